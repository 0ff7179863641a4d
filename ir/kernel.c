/* Programs, kernels and statements; see kernel.h. */
#include "ir/kernel.h"

#include <float.h>
#include <math.h>

const char *role_name(Role role) {
    static const char *const names[ROLE_count] = {
        "serial", "parallel", "vector",  "unroll",  "tile",     "short",    "moved",   "repeat",
        "later",  "block.x",  "block.y", "block.z", "thread.x", "thread.y", "thread.z"};
    return names[role];
}

int step_n_args(const Step *s) {
    return s->kind == STEP_launch ? s->kernel->n_params : s->args != NULL;
}

Value *value_storage(Value *v) {
    while (v->storage) v = v->storage;
    return v;
}

Program *program_new(Graph *g) {
    Program *p = ARENA_NEW(g->arena, Program);
    p->arena = g->arena;
    p->x = g->x;
    p->diag = g->diag;
    p->graph = g;
    return p;
}

Kernel *kernel_new(Program *p, const char *name) {
    Kernel *k = ARENA_NEW(p->arena, Kernel);
    k->name = name;
    for (int i = 0; i < 3; i++) k->grid[i] = k->block[i] = 1;
    vec_push(p->arena, &p->kernels, k);
    return k;
}

int kernel_buffer(Program *p, Kernel *k, const char *name, Space space, DType dt, int rank,
                  const int64_t *shape) {
    Buffer *b = ARENA_NEW(p->arena, Buffer);
    *b = (Buffer){
        .name = name, .space = space, .dt = dt, .rank = rank, .low = -HUGE_VAL, .high = HUGE_VAL};
    b->shape = arena_copy(p->arena, shape, (size_t)rank * sizeof *shape);
    vec_push(p->arena, &k->buffers, b);
    if (space == SPACE_param) k->n_params = k->buffers.n;
    return k->buffers.n - 1;
}

int kernel_var(Program *p, Kernel *k, const char *name, DType dt, int64_t extent) {
    Var v = {name, dt, extent};
    vec_push(p->arena, &k->vars, v);
    return k->vars.n - 1;
}

Stmt *stmt_new(Program *p, StmtKind kind) {
    Stmt *s = ARENA_NEW(p->arena, Stmt);
    s->kind = kind;
    return s;
}

void stmt_append(Stmt **list, Stmt *s) {
    while (*list) list = &(*list)->next;
    *list = s;
}

#define MOST_LOADS 16 /* that an extent is computed from */

typedef struct Loaded {
    const Kernel *k;
    Exprs *x;
    int n; /* variables that stand for loads so far, and their extents */
    int64_t extent[MOST_LOADS];
} Loaded;

/* A load becomes the least that it may be and a variable. */
static const Expr *load_as_var(void *user, const Expr *e, const Expr *const *args) {
    Loaded *u = user;
    (void)args;
    if (e->op != EX_load) return e;
    const Buffer *b = u->k->buffers.items[e->k.i];
    if (!buffer_has_range(b) || u->n == MOST_LOADS) return e;
    u->extent[u->n] = (int64_t)b->high - (int64_t)b->low + 1;
    return ex_add(u->x, ex_var(u->x, u->n++), ex_i(u->x, (int64_t)b->low));
}

bool kernel_bounds(const Kernel *k, Exprs *x, const Expr *e, int64_t *low, int64_t *high) {
    Loaded u = {.k = k, .x = x};
    e = ex_rewrite(x, e, load_as_var, &u);
    return ex_bounds(e, u.n, u.extent, low, high);
}

static double largest_of_float(const Kernel *k, const Expr *e) {
    double a, b;
    switch ((ExprOp)e->op) {
    case EX_const:
        return isnan(e->k.f) ? HUGE_VAL : fabs(e->k.f);
    case EX_load:
        return fmax(-k->buffers.items[e->k.i]->low, k->buffers.items[e->k.i]->high);
    case EX_cast:
    case EX_neg:
    case EX_round:
        return kernel_largest(k, e->arg[0]);
    case EX_add:
    case EX_sub:
        return kernel_largest(k, e->arg[0]) + kernel_largest(k, e->arg[1]);
    case EX_mul:
        a = kernel_largest(k, e->arg[0]);
        b = a < HUGE_VAL ? kernel_largest(k, e->arg[1]) : a;
        return b < HUGE_VAL ? a * b : b;
    case EX_min:
    case EX_max:
        return fmax(kernel_largest(k, e->arg[0]), kernel_largest(k, e->arg[1]));
    default:
        return HUGE_VAL;
    }
}

double kernel_largest(const Kernel *k, const Expr *e) {
    if (e->dt == DT_f32) { /* beyond the largest float is infinity, of which NaN may come */
        const double most = largest_of_float(k, e);
        return most <= FLT_MAX ? most : HUGE_VAL;
    }
    if (dt_is_byte((DType)e->dt)) return 255;
    if (e->dt == DT_i16) return 0x1p15;
    if (e->dt != DT_i32) return HUGE_VAL;
    double all = 0x1p31; /* a sum wraps around rather than exceed it */
    if (e->op == EX_const) return fabs((double)e->k.i);
    if (e->op == EX_add || e->op == EX_sub)
        return fmin(all, kernel_largest(k, e->arg[0]) + kernel_largest(k, e->arg[1]));
    if (e->op == EX_cast && dt_is_short((DType)e->arg[0]->dt)) return kernel_largest(k, e->arg[0]);
    return ex_is_rounding(e) ? fmin(all, kernel_largest(k, e->arg[0]->arg[0])) : all;
}
