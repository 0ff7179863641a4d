/* Programs, kernels and statements; see kernel.h. */
#include "ir/kernel.h"

#include <math.h>

const char *role_name(Role role) {
    static const char *const names[ROLE_count] = {
        "serial",  "parallel", "vector",  "unroll",   "tile",     "pair",    "moved",
        "block.x", "block.y",  "block.z", "thread.x", "thread.y", "thread.z"};
    return names[role];
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
    *b = (Buffer){.name = name, .space = space, .dt = dt, .rank = rank, .low = -HUGE_VAL, .high = HUGE_VAL};
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
