/* progressions: an index that a constant holds is computed where the constant grows evenly.
 *
 * Exporters write a window of a tensor as a Gather by a table of places, and an assignment to a
 * slice as a ScatterND by the places of all its elements. What such a table holds is a number, plus
 * a step times the index for each of its dimensions. So the load of one becomes that sum: what
 * reads by it then moves along its coordinates like a slice, and clamps to where the tensor ends
 * fall away.
 */
#include "ir/constant.h"
#include "passes/passes.h"

#define MOST_ELEMENTS (1 << 22) /* of a table; larger ones are not looked at */
#define MOST_LOADS    64        /* of an operator */

typedef struct Tables {
    Graph *g;
    const Op *op;
    int n; /* coordinates of the operator, and their extents */
    int64_t extent[MAX_RANK];
    int count; /* loads, and what they come to */
    const Expr *load[MOST_LOADS], *sum[MOST_LOADS];
} Tables;

static int64_t element(const Value *v, const void *data, int64_t at) {
    return v->dt == DT_i64 ? ((const int64_t *)data)[at] : ((const int32_t *)data)[at];
}

/* Are the elements from `first` on, along dimensions of these extents, in places that are `apart`,
 * what base and steps say? */
static bool grows_evenly(const Value *v, const void *data, int64_t first, const int64_t *extent,
                         const int64_t *apart, const int64_t *step) {
    const int64_t total = shape_numel(v->rank, extent), base = element(v, data, first);
    int64_t at[MAX_RANK] = {0}, place = first, want = base;
    for (int64_t n = 0; n < total; n++) {
        if (element(v, data, place) != want) return false;
        for (int d = v->rank - 1; d >= 0; d--) {
            place += apart[d], want += step[d];
            if (++at[d] < extent[d]) break;
            place -= apart[d] * extent[d], want -= step[d] * extent[d];
            at[d] = 0;
        }
    }
    return true;
}

/* The load of a constant of integers as a sum; NULL: it does not grow evenly. Indices that are
 * numbers choose a part of it. */
static const Expr *as_sum(Tables *t, const Expr *load) {
    Exprs *x = t->g->x;
    Value *v = t->op->in[load->k.i];
    const Expr *const *args = load->arg;
    int64_t extent[MAX_RANK], apart[MAX_RANK], step[MAX_RANK], first = 0, low, high;
    if (!value_is_const(v) || (v->dt != DT_i64 && v->dt != DT_i32) ||
        value_numel(v) > MOST_ELEMENTS || value_numel(v) == 0)
        return NULL;
    const void *data = constant_settle(t->g->arena, v);
    for (int d = v->rank - 1, inner = 1; d >= 0; inner *= (int)v->shape[d--]) {
        const bool number = ex_is_const(args[d]);
        if (number && (args[d]->k.i < 0 || args[d]->k.i >= v->shape[d])) return NULL;
        extent[d] = number ? 1 : v->shape[d];
        apart[d] = inner;
        if (number) first += inner * args[d]->k.i;
    }
    low = high = element(v, data, first);
    if (low < INT32_MIN || high > INT32_MAX) return NULL;
    const Expr *sum = ex_i(x, low);
    for (int d = 0; d < v->rank; d++) {
        step[d] = extent[d] > 1 ? element(v, data, first + apart[d]) - element(v, data, first) : 0;
        if (step[d] < INT32_MIN || step[d] > INT32_MAX) return NULL;
        const int64_t most = step[d] * (extent[d] - 1);
        *(most < 0 ? &low : &high) += most;
        if (low < INT32_MIN || high > INT32_MAX) return NULL;
        if (step[d]) sum = ex_add(x, sum, ex_mul(x, args[d], ex_i(x, step[d])));
    }
    return grows_evenly(v, data, first, extent, apart, step) ? ex_cast(x, v->dt, sum) : NULL;
}

/* Notes a load of a constant that is a sum, in an expression of indices. */
static void note_sum(void *user, const Expr *e) {
    Tables *t = user;
    if (e->op != EX_load || t->count == MOST_LOADS) return;
    for (int i = 0; i < t->count; i++)
        if (t->load[i] == e) return;
    t->load[t->count] = e;
    t->sum[t->count] = as_sum(t, e);
    t->count += t->sum[t->count] != NULL;
}

/* Notes those by whose value something is loaded. */
static void note_indices(void *user, const Expr *e) {
    Tables *t = user;
    for (int i = 0; e->op == EX_load && i < e->n; i++)
        ex_visit(t->g->arena, e->arg[i], note_sum, t);
}

/* With the sums in place of the loads, wherever these are: what is loaded by one may hang on it. */
static const Expr *with_sums(const Tables *t, const Expr *e) {
    for (int i = 0; i < t->count; i++) e = ex_replace(t->g->x, e, t->load[i], t->sum[i]);
    return ex_simplify(t->g->x, e, t->n, t->extent);
}

static void apply(Graph *g, Op *op) {
    Tables t = {.g = g, .op = op, .n = op_extents(op, t.extent)};
    const int n_target = op->target ? op->out[0]->rank : 0;
    ex_visit(g->arena, op->body, note_indices, &t);
    if (op->post) ex_visit(g->arena, op->post, note_indices, &t);
    for (int i = 0; i < n_target; i++) ex_visit(g->arena, op->target[i], note_sum, &t);
    if (!t.count) return;
    op->body = with_sums(&t, op->body);
    if (op->post) op->post = with_sums(&t, op->post);
    if (op->guard) op->guard = with_sums(&t, op->guard);
    if (op->guard && ex_is_int(op->guard, 1)) op->guard = NULL;
    for (int i = 0; i < n_target; i++) op->target[i] = with_sums(&t, op->target[i]);
    graph_drop_inputs(g, op);
}

void pass_progressions(Graph *g, const PassOptions *o) {
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_progressions(op->sub, o);
        if (op->body) apply(g, op);
    }
    pass_dce(g, o);
}
