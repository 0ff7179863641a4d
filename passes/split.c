/* split: loops are cut where a guard changes, so that what is inside needs none.
 *
 * A map that pads or concatenates is select(guard, a, b) over a box of loop variables. Where the guard
 * compares single variables with constants, the box is cut: into two boxes where one comparison decides
 * (concat), or, if b is a constant, into the whole box that stores b and then the part that stores a
 * (pad; not where the kernel may work in place, for what a reads would be overwritten). The pieces are
 * plain copies, which C compilers vectorise. Only for targets whose kernels are plain loops: threads
 * would do the pieces one after the other.
 */
#include "passes/passes.h"

#define MAX_LOOPS  16
#define MAX_PIECES 24

typedef struct Split {
    Program *p;
    Kernel *k;
    Stmt *loop[MAX_LOOPS]; /* the perfect nest, outermost first */
    int n_loops;
    Stmt *store;
    bool in_place; /* a launch of the kernel may write over what it reads */
    int n_vars; /* of the kernel before any piece was made */
    Stmt *pieces;
    int n_pieces;
} Split;

typedef struct Box {
    int64_t lo[MAX_LOOPS], hi[MAX_LOOPS]; /* per loop: lo <= variable < hi */
} Box;

/* The nest of serial loops with constant extents around one store; false if there is none. */
static bool find_nest(Split *s) {
    Stmt *at = s->k->body;
    for (; at && at->kind == ST_for; at = at->body) {
        bool plain = at->role == ROLE_serial || at->role == ROLE_parallel;
        if (at->next || !plain || !ex_is_const(at->extent) || s->n_loops == MAX_LOOPS) return false;
        s->loop[s->n_loops++] = at;
    }
    s->store = at;
    return at && at->kind == ST_store && !at->next && s->n_loops;
}

/* Reads a comparison as `bound <= variable of loop l` (*below false) or `variable < bound` (*below). */
static bool read_bound(const Split *s, const Expr *e, int *l, int64_t *bound, bool *below) {
    if ((e->op != EX_lt && e->op != EX_le) || e->arg[0]->dt != DT_i32) return false;
    Exprs *x = s->p->x;
    int n = s->n_vars;
    int64_t *coef = ARENA_ARRAY(s->p->arena, n, int64_t);
    const Expr *base;
    /* right - left, which is > 0 (lt) or >= 0 (le) */
    if (!ex_affine(x, ex_sub(x, e->arg[1], e->arg[0]), n, coef, &base) || !ex_is_const(base))
        return false;
    int found = -1;
    for (int i = 0; i < s->n_loops; i++) {
        int64_t c = coef[s->loop[i]->var];
        if (!c) continue;
        if (found >= 0 || (c != 1 && c != -1)) return false;
        found = i;
    }
    int used = 0;
    for (int i = 0; i < n; i++) used += coef[i] != 0;
    if (found < 0 || used != 1) return false;
    int64_t k = base->k.i - (e->op == EX_lt); /* right - left - (lt ? 1 : 0) >= 0 */
    *l = found;
    *below = coef[s->loop[found]->var] < 0;
    *bound = *below ? k + 1 : -k; /* -v + k >= 0: v < k + 1; v + k >= 0: v >= -k */
    return true;
}

/* Cuts `box` down to where `guard` holds; false if the guard is not made of single bounds. */
static bool cut_box(const Split *s, const Expr *guard, Box *box, int *n_bounds) {
    if (guard->op == EX_and)
        return cut_box(s, guard->arg[0], box, n_bounds) && cut_box(s, guard->arg[1], box, n_bounds);
    int l;
    int64_t bound;
    bool below;
    if (!read_bound(s, guard, &l, &bound, &below)) return false;
    (*n_bounds)++;
    if (below && bound < box->hi[l]) box->hi[l] = bound;
    if (!below && bound > box->lo[l]) box->lo[l] = bound;
    return true;
}

/* The part of `box` outside of one bound. */
static Box outside(const Split *s, const Expr *guard, Box box) {
    int l;
    int64_t bound;
    bool below;
    read_bound(s, guard, &l, &bound, &below);
    if (below && bound > box.lo[l]) box.lo[l] = bound;
    if (!below && bound < box.hi[l]) box.hi[l] = bound;
    return box;
}

/* The nest over one box, with variables of its own: a variable has one extent in its kernel. */
static void emit_piece(Split *s, const Box *box, const Expr *value) {
    Program *p = s->p;
    int old = s->k->vars.n, fresh[MAX_LOOPS];
    for (int i = 0; i < s->n_loops; i++)
        if (box->hi[i] <= box->lo[i]) return;
    const Expr **to = ARENA_ARRAY(p->arena, old, const Expr *);
    for (int i = 0; i < s->n_loops; i++) {
        int64_t extent = box->hi[i] - box->lo[i];
        int var = fresh[i] = s->loop[i]->var;
        const char *name = s->k->vars.items[var].name;
        if (s->n_pieces) {
            name = arena_printf(p->arena, "%s_%d", name, s->n_pieces);
            fresh[i] = kernel_var(p, s->k, name, DT_i32, extent);
        }
        s->k->vars.items[fresh[i]].extent = extent;
        to[var] = ex_add(p->x, ex_var(p->x, fresh[i]), ex_i(p->x, box->lo[i]));
    }
    int n_vars = s->k->vars.n;
    int64_t *extent = ARENA_ARRAY(p->arena, n_vars, int64_t);
    for (int i = 0; i < n_vars; i++) extent[i] = s->k->vars.items[i].extent;
    Stmt *inner = stmt_new(p, ST_store);
    const Expr *index = ex_subst_vars(p->x, s->store->index[0], old, to);
    inner->buffer = s->store->buffer;
    inner->index = ARENA_ARRAY(p->arena, 1, const Expr *);
    inner->index[0] = ex_simplify(p->x, index, n_vars, extent);
    inner->value = ex_simplify(p->x, ex_subst_vars(p->x, value, old, to), n_vars, extent);
    for (int i = s->n_loops - 1; i >= 0; i--) {
        Stmt *loop = stmt_new(p, ST_for);
        loop->var = fresh[i];
        loop->role = s->loop[i]->role;
        loop->extent = ex_i(p->x, box->hi[i] - box->lo[i]);
        loop->body = inner;
        inner = loop;
    }
    stmt_append(&s->pieces, inner);
    s->n_pieces++;
}

static void split_box(Split *s, Box box, const Expr *value) {
    if (value->op == EX_select && s->n_pieces < MAX_PIECES) {
        const Expr *guard = value->arg[0], *yes = value->arg[1], *no = value->arg[2];
        Box inside = box;
        int bounds = 0;
        if (cut_box(s, guard, &inside, &bounds)) {
            if (bounds == 1) {
                split_box(s, outside(s, guard, box), no);
                split_box(s, inside, yes);
                return;
            }
            if (ex_is_const(no) && !s->in_place) {
                emit_piece(s, &box, no);
                split_box(s, inside, yes);
                return;
            }
        }
    }
    emit_piece(s, &box, value);
}

static void split_kernel(Program *p, Kernel *k) {
    Split s = {.p = p, .k = k, .n_vars = k->vars.n};
    for (int i = 0; i < p->steps.n; i++)
        if (p->steps.items[i].kernel == k && p->steps.items[i].in_place) s.in_place = true;
    if (!find_nest(&s) || s.store->value->op != EX_select) return;
    Box box;
    for (int i = 0; i < s.n_loops; i++) {
        box.lo[i] = 0;
        box.hi[i] = s.loop[i]->extent->k.i;
    }
    split_box(&s, box, s.store->value);
    if (s.pieces) k->body = s.pieces;
}

void pass_split(Program *p, const PassOptions *o) {
    if (o->target->blocks) return;
    for (int i = 0; i < p->kernels.n; i++) split_kernel(p, p->kernels.items[i]);
}
