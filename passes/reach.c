/* See reach.h. */
#include "passes/reach.h"

#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/passes.h"

#include <math.h>

typedef struct Reach {
    Graph *g;
    Op *op; /* whose inputs grow */
    int n;  /* its coordinates, */
    int64_t extent[MAX_RANK];
} Reach;

typedef struct Rebase {
    Reach *r;
    const Op *from;
    bool fails;
} Rebase;

/* Loads of the operator that makes a mask become loads of the one at work. */
static const Expr *rebase(void *user, const Expr *e, const Expr *const *args) {
    Rebase *u = user;
    Exprs *x = u->r->g->x;
    u->fails |= e->op == EX_acc;
    if (e->op != EX_load) return ex_rebuild(x, e, args);
    for (int i = 0; i < e->n; i++) u->fails |= !ex_is_const(args[i]);
    if (u->fails || u->r->op->n_in == MAX_INPUTS) {
        u->fails = true;
        return e;
    }
    const int at = op_add_input(u->r->g, u->r->op, u->from->in[e->k.i]);
    return ex_load(x, (DType)e->dt, at, e->n, args);
}

/* `e`, a comparison of integers, as one of a reduction variable, times a number, with what does not
 * hang on it; NULL: it is none. */
static const Expr *bound_of(const Reach *r, const Expr *e) {
    Exprs *x = r->g->x;
    const Expr *to[MAX_RANK] = {NULL};
    const uint64_t vars = ex_vars(e) >> r->op->out[0]->rank;
    if ((e->op != EX_lt && e->op != EX_le) || e->arg[0]->dt != DT_i32) return NULL;
    if (!vars || vars & (vars - 1)) return NULL;
    int var = r->op->out[0]->rank;
    while (!(vars >> (var - r->op->out[0]->rank) & 1)) var++;
    int64_t step, other;
    if (!ex_stride(e->arg[0], var, &step) || !ex_stride(e->arg[1], var, &other)) return NULL;
    if (step < 1 || other) return NULL;
    to[var] = ex_i(x, 0);
    const Expr *rest = ex_subst_vars(x, e->arg[0], r->n, to);
    const Expr *left = ex_mul(x, ex_var(x, var), ex_i(x, step));
    return ex_bin(x, (ExprOp)e->op, left, ex_sub(x, e->arg[1], rest));
}

/* What of the condition bounds reduction variables, in the coordinates of the operator at work, of
 * which `index` says where in the result of `from` they are. */
static const Expr *bounds_of(Reach *r, const Op *from, const Expr *cond, const Expr *const *index) {
    Exprs *x = r->g->x;
    if (cond->op == EX_and) {
        const Expr *a = bounds_of(r, from, cond->arg[0], index);
        const Expr *b = bounds_of(r, from, cond->arg[1], index);
        return a && b ? ex_and(x, a, b) : a ? a : b;
    }
    Rebase u = {r, from, false};
    const int inputs = r->op->n_in;
    const Expr *e = ex_rewrite(x, cond, rebase, &u);
    if (!u.fails) {
        e = ex_subst_vars(x, e, from->out[0]->rank, index);
        e = bound_of(r, ex_simplify(x, e, r->n, r->extent));
    }
    if (!u.fails && e) return e;
    r->op->n_in = inputs;
    return NULL;
}

static bool is_number(const Expr *e, double number) {
    return ex_is_const(e) && dt_is_float((DType)e->dt) && e->k.f == number;
}

static const Expr *condition_of(Reach *r, const Value *v, const Expr *const *index, double none);

/* The condition without which `e`, in the body of `def`, or behind its sums, is `none`: zero, or
 * less than all numbers. NULL: none is known. index: where, over the coordinates of the operator at
 * work.
 */
static const Expr *condition_in(Reach *r, const Op *def, const Expr *e, const Expr *const *index,
                                double none) {
    Exprs *x = r->g->x;
    const Expr *at[MAX_RANK];
    if ((e->op == EX_exp || e->op == EX_exp_low) && none == 0) {
        e = e->arg[0]->op == EX_sub ? e->arg[0]->arg[0] : e->arg[0];
        none = -HUGE_VAL;
    }
    if (e->op == EX_select && is_number(e->arg[2], none))
        return bounds_of(r, def, e->arg[0], index);
    if (e->op != EX_load) return NULL;
    for (int i = 0; i < e->n; i++) {
        at[i] = ex_subst_vars(x, e->arg[i], def->out[0]->rank, index);
        at[i] = ex_simplify(x, at[i], r->n, r->extent);
        if (at[i]->loads) return NULL;
    }
    return condition_of(r, def->in[e->k.i], at, none);
}

/* The same of an element of `v`. */
static const Expr *condition_of(Reach *r, const Value *v, const Expr *const *index, double none) {
    const Expr *at[MAX_RANK], *from_at[MAX_RANK];
    while (v->def->kind == OP_reshape) {
        const Value *from = v->def->in[0];
        reshape_index(r->g->x, v->rank, v->shape, index, from->rank, from->shape, from_at);
        for (int i = 0; i < from->rank; i++)
            at[i] = ex_simplify(r->g->x, from_at[i], r->n, r->extent);
        index = at;
        v = from;
    }
    const Op *def = v->def;
    if ((def->kind != OP_map && def->kind != OP_reduce) || def->guard) return NULL;
    return condition_in(r, def, def->kind == OP_map ? def->body : def->post, index, none);
}

#define WORTH       0.98 /* of the terms, that are left; of more, counting gains nothing, ... */
#define LEAST_STEPS 8    /* ... nor of short loops, */
#define LEAST_TIMES 6    /* and of what few rows read, as it comes from memory, gaps are a loss */

/* Constants, [blocks, steps, ...], that are zeroes from some step of the reduction on, not in all
 * blocks the same: the condition without which they are; NULL: they are not. */
static const Expr *condition_of_zeros(Reach *r, const Expr *load) {
    Exprs *x = r->g->x;
    Value *v = r->op->in[load->k.i];
    const int rank = r->op->out[0]->rank;
    if (!value_is_const(v) || v->rank < 2 || load->arg[1]->op != EX_var) return NULL;
    if (load->arg[1]->k.i < rank || load->arg[0]->loads) return NULL;
    if (ex_vars(load->arg[0]) >> rank || r->op->n_in == MAX_INPUTS) return NULL;
    const int64_t blocks = v->shape[0], steps = v->shape[1];
    const int64_t terms = shape_numel(r->n, r->extent);
    if (value_numel(v) == 0 || steps < LEAST_STEPS) return NULL;
    if (terms / value_numel(v) < LEAST_TIMES) return NULL;
    const int64_t bytes = (int64_t)value_bytes(v) / (blocks * steps);
    const uint8_t *data = constant_settle(x->arena, v);
    int32_t *count = ARENA_ARRAY(x->arena, blocks, int32_t);
    int64_t all = 0, *range = ARENA_ARRAY(x->arena, 2, int64_t);
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t *block = &data[b * steps * bytes];
        int64_t end = steps * bytes;
        while (end > 0 && !block[end - 1]) end--;
        count[b] = (int32_t)((end + bytes - 1) / bytes);
        all += count[b];
    }
    if ((double)all > WORTH * (double)(blocks * steps)) return NULL;
    Op *last = r->g->last;
    Value *counts = graph_const(r->g, DT_i32, 1, &blocks, count);
    range[1] = steps;
    counts->range = range;
    graph_take_in(r->g, last, r->op->out[0]->def);
    const int at = op_add_input(r->g, r->op, counts);
    return ex_bin(x, EX_lt, load->arg[1], ex_load(x, DT_i32, at, 1, load->arg));
}

const Expr *reach_of_reduction(Graph *g, const Op **op) {
    const Expr *condition, *found = NULL;
    if ((*op)->kind != OP_reduce || (*op)->n_in > MAX_INPUTS) return NULL;
    if ((*op)->combine != COMBINE_sum && (*op)->combine != COMBINE_max) return NULL;
    const Expr *term = reduce_term(g->x, *op, &condition);
    const bool floats = dt_is_float((DType)term->dt);
    const double none = (*op)->combine == COMBINE_sum ? 0 : -HUGE_VAL;
    Op *own = arena_copy(g->arena, *op, sizeof **op);
    Reach r = {.g = g, .op = own};
    r.n = op_extents(own, r.extent);
    const bool product = none == 0 && term->op == EX_mul;
    for (int i = 0; i < (product ? 2 : 1); i++) {
        const Expr *load = without_casts(product ? term->arg[i] : term), *own_bounds = NULL;
        if (load->op != EX_load) continue;
        if (floats)
            own_bounds = condition_of(&r, own->in[load->k.i], load->arg, none);
        else if (product)
            own_bounds = condition_of_zeros(&r, load);
        if (own_bounds) found = found ? ex_and(g->x, found, own_bounds) : own_bounds;
    }
    if (found) *op = own;
    return found;
}
