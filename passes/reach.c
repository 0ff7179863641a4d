/* See reach.h. */
#include "passes/reach.h"

#include "passes/inline.h"

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

/* Those of the comparisons that can be had, in the coordinates of the operator at work, of which
 * `index` says where in the result of `from` they are. */
static const Expr *comparisons(Reach *r, const Op *from, const Expr *cond,
                               const Expr *const *index) {
    Exprs *x = r->g->x;
    if (cond->op == EX_and) {
        const Expr *a = comparisons(r, from, cond->arg[0], index);
        const Expr *b = comparisons(r, from, cond->arg[1], index);
        return a && b ? ex_and(x, a, b) : a ? a : b;
    }
    if (cond->op != EX_lt && cond->op != EX_le) return NULL;
    Rebase u = {r, from, false};
    const int inputs = r->op->n_in;
    const Expr *e = ex_rewrite(x, cond, rebase, &u);
    if (u.fails) {
        r->op->n_in = inputs;
        return NULL;
    }
    e = ex_subst_vars(x, e, from->out[0]->rank, index);
    return ex_simplify(x, e, r->n, r->extent);
}

static bool is_number(const Expr *e, double number) {
    return ex_is_const(e) && dt_is_float((DType)e->dt) && e->k.f == number;
}

/* The condition without which an element of `v` is `none`: zero, or less than all numbers. NULL: none
 * is known. index: which element, over the coordinates of the operator at work. */
static const Expr *condition_of(Reach *r, const Value *v, const Expr *const *index, double none) {
    const Expr *at[MAX_RANK], *deeper[MAX_RANK];
    Exprs *x = r->g->x;
    while (v->def->kind == OP_reshape) {
        const Value *from = v->def->in[0];
        reshape_index(x, v->rank, v->shape, index, from->rank, from->shape, deeper);
        for (int i = 0; i < from->rank; i++) at[i] = ex_simplify(x, deeper[i], r->n, r->extent);
        index = at;
        v = from;
    }
    const Op *def = v->def;
    if ((def->kind != OP_map && def->kind != OP_reduce) || def->guard) return NULL;
    const Expr *e = def->kind == OP_map ? def->body : def->post;
    if (e->op == EX_select && is_number(e->arg[2], none))
        return comparisons(r, def, e->arg[0], index);
    if ((e->op == EX_exp || e->op == EX_exp_low) && none == 0) {
        e = e->arg[0]->op == EX_sub ? e->arg[0]->arg[0] : e->arg[0];
        none = -HUGE_VAL;
    }
    if (e->op != EX_load || def->kind != OP_map) return NULL;
    for (int i = 0; i < e->n; i++)
        deeper[i] = ex_simplify(x, ex_subst_vars(x, e->arg[i], v->rank, index), r->n, r->extent);
    return condition_of(r, def->in[e->k.i], deeper, none);
}

const Expr *reach_of_reduction(Graph *g, const Op **op) {
    const Expr *condition, *found = NULL;
    if ((*op)->kind != OP_reduce || (*op)->n_in > MAX_INPUTS) return NULL;
    if ((*op)->combine != COMBINE_sum && (*op)->combine != COMBINE_max) return NULL;
    const Expr *term = reduce_term(g->x, *op, &condition);
    if (!dt_is_float((DType)term->dt)) return NULL;
    const double none = (*op)->combine == COMBINE_sum ? 0 : -HUGE_VAL;
    Op *own = arena_copy(g->arena, *op, sizeof **op);
    Reach r = {.g = g, .op = own};
    r.n = op_extents(own, r.extent);
    const bool product = none == 0 && term->op == EX_mul;
    for (int i = 0; i < (product ? 2 : 1) && !found; i++) {
        const Expr *load = without_casts(product ? term->arg[i] : term);
        if (load->op == EX_load) found = condition_of(&r, own->in[load->k.i], load->arg, none);
    }
    if (found) *op = own;
    return found;
}
