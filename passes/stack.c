/* stack: products of one tensor with several constants of one shape are one product with all of
 * these, for devices.
 *
 * The queries, keys and values of attention are such: what one of them has a device do is little,
 * and what is read of the tensor serves them all. Operators that differ in constants alone become
 * one with a coordinate more, the first, which says whose constants are read; what read a result
 * reads that number of the common one. Constants that others read too are there twice then, and all
 * results live as long as the last of them.
 */
#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/passes.h"

#define MOST_ALIKE 16

/* --- which operators -------------------------------------------------------------------------- */

static bool same_shape(const Value *a, const Value *b) {
    if (a->dt != b->dt || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

/* Do they differ in constants alone? */
static bool alike(const Op *a, const Op *b) {
    if (b->kind != OP_reduce || a->combine != b->combine || a->body != b->body ||
        a->post != b->post || a->n_in != b->n_in || a->n_red != b->n_red ||
        !same_shape(a->out[0], b->out[0]))
        return false;
    for (int i = 0; i < a->n_red; i++)
        if (a->red[i] != b->red[i]) return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i] && (!value_is_const(a->in[i]) || !value_is_const(b->in[i]) ||
                                     !same_shape(a->in[i], b->in[i])))
            return false;
    return true;
}

/* May there be one more than `n` of it in a tensor? */
static bool has_room(const Op *op, int n) {
    int64_t most = value_numel(op->out[0]);
    for (int i = 0; i < op->n_in; i++)
        if (value_is_const(op->in[i]) && value_numel(op->in[i]) > most)
            most = value_numel(op->in[i]);
    return most <= INT32_MAX / (n + 1);
}

/* Is `v` read by maps and reductions alone, of it or of reshapes of it? */
static bool can_be_moved(const Graph *g, const Value *v) {
    if (graph_is_output(g, v) || v->rank + 1 >= MAX_RANK || dims_vary(v->rank, v->dims))
        return false;
    for (const Op *op = v->def->next; op; op = op->next)
        for (int i = 0; i < op->n_in; i++) {
            if (op->in[i] != v || op->kind == OP_map || op->kind == OP_reduce) continue;
            if (op->kind != OP_reshape || !can_be_moved(g, op->out[0])) return false;
        }
    return true;
}

/* --- the common one --------------------------------------------------------------------------- */

/* A constant with the elements of all that are input `at` of the operators. */
static Value *stacked_constants(Graph *g, Op *before, Op *const *op, int n, int at) {
    const Value *first = op[0]->in[at];
    Exprs *x = g->x;
    Value *in[MOST_ALIKE];
    int64_t dims[MAX_RANK];
    const Expr *index[MAX_RANK], *body = NULL;
    for (int i = 0; i < n; i++) in[i] = op[i]->in[at];
    dims[0] = n;
    for (int i = 0; i < first->rank; i++) {
        dims[i + 1] = first->dims[i];
        index[i] = ex_var(x, i + 1);
    }
    for (int i = n - 1; i >= 0; i--) {
        const Expr *own = ex_load(x, first->dt, i, first->rank, index);
        body = body ? ex_select(x, ex_lt(x, ex_var(x, 0), ex_i(x, i + 1)), own, body) : own;
    }
    Op *constant = graph_new_op(g, OP_const, 0, NULL, 1), *map = graph_new_op(g, OP_map, n, in, 0);
    Value *out = graph_new_value(g, constant, 0, first->dt, first->rank + 1, dims);
    constant->src = op[0]->src;
    map->body = body;
    map->out = constant->out;
    map->n_out = 1;
    constant_made(g, out, map);
    graph_insert_before(g, before, constant);
    return out;
}

typedef struct Lift {
    Exprs *x;
    bool *stacked; /* inputs that have the new coordinate */
} Lift;

/* Coordinates are one further, and what is stacked is read at the first one. */
static const Expr *lift_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Lift *u = user;
    if (e->op == EX_var) return ex_var(u->x, (int)e->k.i + 1);
    if (e->op == EX_load && u->stacked[e->k.i]) {
        const Expr *index[MAX_RANK] = {ex_var(u->x, 0)};
        for (int i = 0; i < e->n; i++) index[i + 1] = args[i];
        return ex_load(u->x, (DType)e->dt, (int)e->k.i, e->n + 1, index);
    }
    return e->n ? ex_rebuild(u->x, e, args) : e;
}

static Value *common_product(Graph *g, Op *const *op, int n) {
    const Op *first = op[0];
    const Value *out = first->out[0];
    Value **in = ARENA_ARRAY(g->arena, first->n_in, Value *);
    Lift u = {g->x, ARENA_ARRAY(g->arena, first->n_in, bool)};
    int64_t dims[MAX_RANK];
    for (int i = 0; i < first->n_in; i++) {
        in[i] = first->in[i];
        for (int k = 1; k < n; k++) u.stacked[i] |= op[k]->in[i] != in[i];
        if (u.stacked[i]) in[i] = stacked_constants(g, op[0], op, n, i);
    }
    Op *product = graph_new_op(g, OP_reduce, first->n_in, in, 1);
    dims[0] = n;
    for (int i = 0; i < out->rank; i++) dims[i + 1] = out->dims[i];
    product->combine = first->combine;
    product->n_red = first->n_red;
    product->red = first->red;
    product->src = first->src;
    product->body = ex_rewrite(g->x, first->body, lift_leaf, &u);
    product->post = ex_rewrite(g->x, first->post, lift_leaf, &u);
    graph_insert_before(g, op[0], product);
    return graph_new_value(g, product, 0, out->dt, out->rank + 1, dims);
}

/* --- who reads it ----------------------------------------------------------------------------- */

typedef struct Redirect {
    Exprs *x;
    int from, to; /* inputs */
    int number;
} Redirect;

static const Expr *redirect_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Redirect *r = user;
    if (e->op != EX_load || e->k.i != r->from) return e->n ? ex_rebuild(r->x, e, args) : e;
    const Expr *index[MAX_RANK] = {ex_i(r->x, r->number)};
    for (int i = 0; i < e->n; i++) index[i + 1] = args[i];
    return ex_load(r->x, (DType)e->dt, r->to, e->n + 1, index);
}

/* What reads `old` reads number `number` of `common`. */
static void redirect(Graph *g, const Value *old, Value *common, int number) {
    for (Op *op = old->def->next; op; op = op->next)
        for (int i = 0; i < op->n_in; i++) {
            if (op->in[i] != old) continue;
            if (op->kind == OP_reshape) {
                const Value *out = op->out[0];
                int64_t dims[MAX_RANK] = {common->dims[0]};
                for (int d = 0; d < out->rank; d++) dims[d + 1] = out->dims[d];
                Op *reshape = graph_new_op(g, OP_reshape, 1, &common, 1);
                reshape->src = op->src;
                Value *shaped = graph_new_value(g, reshape, 0, out->dt, out->rank + 1, dims);
                graph_insert_before(g, op, reshape);
                redirect(g, out, shaped, number);
                break;
            }
            Redirect r = {g->x, i, op_add_input(g, op, common), number};
            op->body = ex_rewrite(g->x, op->body, redirect_leaf, &r);
            if (op->post) op->post = ex_rewrite(g->x, op->post, redirect_leaf, &r);
            if (op->guard) op->guard = ex_rewrite(g->x, op->guard, redirect_leaf, &r);
            graph_drop_inputs(g, op);
            break; /* an operator has a value once */
        }
}

void pass_stack(Graph *g, const PassOptions *o) {
    if (!o->target->blocks) return;
    for (Op *first = g->first; first; first = first->next) {
        if (first->sub) pass_stack(first->sub, o);
        Op *op[MOST_ALIKE] = {first};
        int n = 1;
        if (!op_is_product(first) || !can_be_moved(g, first->out[0])) continue;
        for (Op *other = first->next; other && n < MOST_ALIKE && has_room(first, n);
             other = other->next)
            if (alike(first, other) && can_be_moved(g, other->out[0])) op[n++] = other;
        if (n < 2) continue;
        Value *common = common_product(g, op, n);
        for (int i = 0; i < n; i++) redirect(g, op[i]->out[0], common, i);
        for (int i = 0; i < n; i++) graph_unlink(g, op[i]);
        first = common->def;
    }
    pass_dce(g, o);
}
