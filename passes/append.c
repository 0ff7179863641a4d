/* append: what grows behind a state is written there, and the rest stays where it is.
 *
 * A model that keeps what it has seen (the keys and values of attention) concatenates it with
 * something new, and hands both on to the next run. As a map that computes every element anew; here
 * it becomes a scatter of the new elements into the state, which the memory plan lets happen in the
 * state's own memory. What reads the result reads memory, too, and not two tensors and a condition.
 */
#include "passes/inline.h"
#include "passes/passes.h"

/* out[i] = i[axis] < begin ? state[i] : fresh(i), as far as out's dimensions go */
typedef struct Growth {
    int axis;
    int64_t begin; /* may vary */
    const Expr *fresh;
} Growth;

typedef struct Reading {
    Graph *g;
    const Op *op;
    bool known;
} Reading;

static const Expr *symbol_leaf(void *user, const Expr *e, const Expr *const *args) {
    Reading *r = user;
    if (e->op != EX_load) return e->n ? ex_rebuild(r->g->x, e, args) : e;
    const int k = graph_symbol_of(r->g, r->op->in[e->k.i]);
    r->known &= k >= 0;
    return r->known ? ex_var(r->g->x, DIM_VAR + k) : e;
}

/* The dimension that an expression without coordinates is; false: it is none. */
static bool read_dim(Graph *g, const Op *op, const Expr *e, int64_t *d) {
    Reading r = {g, op, ex_vars(e) == 0};
    if (r.known) e = ex_rewrite(g->x, e, symbol_leaf, &r);
    return r.known && dim_from_expr(g->x, e, d);
}

/* Is it `coordinate < d`? */
static bool read_limit(Graph *g, const Op *op, const Expr *e, int *axis, int64_t *d) {
    if (e->op != EX_lt || e->arg[0]->op != EX_var) return false;
    *axis = (int)e->arg[0]->k.i;
    return *axis < op->out[0]->rank && read_dim(g, op, e->arg[1], d);
}

/* Does it hold wherever the result has elements? */
static bool is_inside(Graph *g, const Op *op, const Expr *e) {
    int axis;
    int64_t d;
    if (e->op == EX_and) return is_inside(g, op, e->arg[0]) && is_inside(g, op, e->arg[1]);
    return read_limit(g, op, e, &axis, &d) &&
           dim_normal(g->x, d) == dim_normal(g->x, op->out[0]->dims[axis]);
}

static bool read_growth(Graph *g, const Op *op, const Value *state, Growth *growth) {
    const Value *out = op->out[0];
    if (op->kind != OP_map || op->guard ||
        !shape_equal(state->rank, state->shape, out->rank, out->shape))
        return false;
    const Expr *e = op->body;
    while (e->op == EX_select && is_inside(g, op, e->arg[0])) e = e->arg[1];
    if (e->op != EX_select || !read_limit(g, op, e->arg[0], &growth->axis, &growth->begin) ||
        own_load(op, e->arg[1]) != state)
        return false;
    growth->fresh = e->arg[2];
    return loads_of_input(g->arena, growth->fresh, (int)e->arg[1]->k.i) == 0;
}

/* A scatter of what is fresh takes the place of the map. */
static void append(Graph *g, Op *op, Value *state, const Growth *growth) {
    Exprs *x = g->x;
    const int rank = op->out[0]->rank, axis = growth->axis;
    Op *last = g->last;
    int64_t dims[MAX_RANK] = {0};
    const Expr *target[MAX_RANK], *to[MAX_RANK] = {NULL};
    for (int i = 0; i < rank; i++) dims[i] = op->out[0]->dims[i];
    dims[axis] = dim_sub(x, dims[axis], growth->begin);
    Builder b = build(g, rank, dims);
    for (int i = 0; i < rank; i++) target[i] = ex_var(x, i);
    to[axis] = target[axis] = ex_add(x, ex_i(x, growth->begin), ex_var(x, axis));
    const Expr *fresh = build_rebased(&b, op->in, ex_subst_vars(x, growth->fresh, rank, to));
    Op *scatter = build_scatter(&b, state, COMBINE_none, target, NULL, fresh)->def;
    graph_take_in(g, last, op);
    scatter->out[0] = op->out[0];
    scatter->out[0]->def = scatter;
    graph_unlink(g, op);
}

/* Is it a map that only has fewer elements than the state it reads? */
static bool is_part(const Graph *g, const Op *op) {
    const Value *state =
        op->kind == OP_map && op->n_in == 1 && !op->guard ? own_load(op, op->body) : NULL;
    int i = g->n_states;
    while (i-- && g->inputs.items[graph_n_inputs(g) + i] != state) continue;
    return i >= 0;
}

/* What loads elements of a part of a state loads them from the state. */
static void read_states(const Graph *g) {
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_in; i++) {
            const Op *part = op->in[i]->def;
            bool loads = op->kind == OP_map || op->kind == OP_reduce || op->kind == OP_scan ||
                         (op->kind == OP_scatter && i > 0);
            if (!is_part(g, part)) continue;
            if (loads ||
                (op->kind == OP_scatter && shape_equal(op->in[i]->rank, op->in[i]->shape,
                                                       part->in[0]->rank, part->in[0]->shape)))
                op->in[i] = part->in[0];
        }
}

void pass_append(Graph *g, const PassOptions *o) {
    read_states(g);
    for (int i = 0; i < g->n_states; i++) {
        Value *state = g->inputs.items[graph_n_inputs(g) + i];
        Op *op = g->outputs.items[graph_n_outputs(g) + i]->def;
        while (op->kind == OP_scatter)
            op = op->in[0]->def; /* where rows have places of their own */
        Growth growth;
        if (read_growth(g, op, state, &growth)) append(g, op, state, &growth);
    }
    pass_dce(g, o);
}
