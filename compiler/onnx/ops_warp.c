/* DynamicTimeWarping of com.microsoft: the cheapest path through a matrix of costs from its first
 * element to its last, where a step goes down, to the right, or both.
 *
 * Two loops. One goes over the diagonals (row + column = the iteration), whose elements hang on the
 * two diagonals before alone: it carries what the cheapest ways to these cost, and stacks where
 * each came from. The other goes back from the last element and stacks where it was. Where ways
 * cost the same, the one from the left is taken, as ONNX Runtime does.
 */
#include "compiler/onnx/import.h"

#include <math.h>

enum { FROM_BOTH, FROM_ABOVE, FROM_LEFT };

/* One diagonal. States: what it costs to come to the elements of the last diagonal and of the one
 * before it, by their rows; those outside of the matrix cost infinitely much. */
static Graph *diagonal(Graph *outer, const Value *costs) {
    Graph *g = graph_new_sub(outer);
    Exprs *x = g->x;
    Value *last = graph_input(g, "last", DT_f32, 1, costs->dims);
    Value *before = graph_input(g, "before", DT_f32, 1, costs->dims);
    Value *cost = graph_input(g, "costs", DT_f32, 2, costs->dims);
    const Expr *t = ex_ctr(x, g->depth - 1), *row = ex_var(x, 0), *zero = ex_i(x, 0);
    const Expr *column = ex_sub(x, t, row), *above = ex_sub(x, row, ex_i(x, 1));
    const Expr *is_below = ex_lt(x, zero, row), *is_right = ex_lt(x, zero, column);
    const Expr *far = ex_num(x, DT_f32, INFINITY), *at[2] = {row, column};
    const Expr *inside =
        ex_and(x, ex_le(x, zero, column), ex_lt(x, column, ex_i(x, costs->dims[1])));
    Value *out[2];
    for (int i = 0; i < 2; i++) {
        Builder b = build(g, 1, costs->dims);
        const Expr *start = ex_select(x, ex_bin(x, EX_eq, t, zero), ex_num(x, DT_f32, 0), far);
        const Expr *both =
            ex_select(x, ex_and(x, is_below, is_right), build_load(&b, before, &above), start);
        const Expr *down = ex_select(x, is_below, build_load(&b, last, &above), far);
        const Expr *right = ex_select(x, is_right, build_load(&b, last, &row), far);
        const Expr *by_both = ex_and(x, ex_lt(x, both, down), ex_lt(x, both, right));
        const Expr *by_down = ex_and(x, ex_lt(x, down, both), ex_lt(x, down, right));
        const Expr *way[3] = {both, down, right};
        for (int k = 0; k < 3 && i; k++) way[k] = ex_int(x, DT_u8, k);
        const Expr *e = ex_select(x, by_both, way[FROM_BOTH],
                                  ex_select(x, by_down, way[FROM_ABOVE], way[FROM_LEFT]));
        if (!i) e = ex_select(x, inside, ex_add(x, build_load(&b, cost, at), e), far);
        out[i] = build_map(&b, i ? DT_u8 : DT_f32, e);
    }
    Builder b = build(g, 1, costs->dims);
    graph_output(g, out[0], "last");
    graph_output(g, build_map(&b, DT_f32, build_in(&b, last)), "before");
    graph_output(g, out[1], "from");
    return g;
}

/* One step back. States, scalars: row and column, and the number of places in the matrix so far. A
 * place that left it stays: at an edge, too, costs that are infinite or NaN lead to the left. */
static Graph *step_back(Graph *outer, const Value *ways) {
    Graph *g = graph_new_sub(outer);
    Exprs *x = g->x;
    Value *place[3], *next[3];
    for (int i = 0; i < 3; i++) place[i] = graph_input(g, NULL, DT_i32, 0, NULL);
    Value *from = graph_input(g, "from", DT_u8, 2, ways->dims);
    for (int i = 0; i < 3; i++) {
        Builder b = build(g, 0, NULL);
        const Expr *row = build_in(&b, place[0]), *column = build_in(&b, place[1]);
        const Expr *zero = ex_i(x, 0), *one = ex_i(x, 1), *at[2] = {ex_add(x, row, column), row};
        const Expr *inside = ex_and(x, ex_le(x, zero, row), ex_le(x, zero, column));
        const Expr *way = ex_cast(x, DT_i32, build_load(&b, from, at));
        const Expr *stays = ex_bin(x, EX_eq, way, ex_i(x, i ? FROM_ABOVE : FROM_LEFT));
        const Expr *by = i == 2 ? one : ex_select(x, stays, zero, one);
        const Expr *own = build_in(&b, place[i]);
        by = ex_select(x, inside, by, zero);
        next[i] = build_map(&b, DT_i32, i == 2 ? ex_add(x, own, by) : ex_sub(x, own, by));
    }
    for (int i = 0; i < 3; i++) graph_output(g, next[i], NULL);
    for (int i = 0; i < 2; i++) {
        Builder b = build(g, 0, NULL);
        graph_output(g, build_map(&b, DT_i32, build_in(&b, place[i])), NULL);
    }
    return g;
}

void import_ms_dynamic_time_warping(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *costs = node_need(n, 0);
    if (!costs) return;
    bool fits =
        costs->dt == DT_f32 && (costs->rank == 2 || (costs->rank == 3 && costs->dims[0] == 1));
    const int64_t *d = costs->dims + (fits ? costs->rank - 2 : 0);
    if (!fits || dim_max(x, d[0]) < 1 || dim_max(x, d[1]) < 1) {
        invalid(n, E2005, "costs %s%s", dt_name(costs->dt), shape_of(n, costs));
        return;
    }
    int64_t steps = dim_sub(x, dim_add(x, d[0], d[1]), 1), ways_shape[2] = {steps, d[0]};
    if (!node_shape_ok(n, 2, ways_shape)) return;
    costs = g_reshape(g, costs, 2, d);
    Value *none = g_expand(g, g_scalar(g, DT_f32, INFINITY), 1, d);
    Value *in[4] = {none, none, costs}, *out[5];
    build_loop(g, diagonal(g, costs), steps, 2, 3, in, out);
    Value *ways = out[2];
    in[0] = g_dim(g, DT_i32, dim_sub(x, d[0], 1));
    in[1] = g_dim(g, DT_i32, dim_sub(x, d[1], 1));
    in[2] = g_scalar(g, DT_i32, 0);
    in[3] = ways;
    build_loop(g, step_back(g, ways), steps, 3, 4, in, out);
    Value *count = out[2];
    int64_t shape[2] = {2, 0};
    if (!node_chosen_extent(n, count, 0, 1, steps, true, &shape[1])) return;
    Builder b = build(g, 2, shape);
    const Expr *last = ex_sub(x, build_in(&b, count), ex_i(x, 1)), *zero = ex_i(x, 0);
    const Expr *at = ex_bin(x, EX_max, ex_sub(x, last, ex_var(x, 1)), zero);
    const Expr *is_row = ex_bin(x, EX_eq, ex_var(x, 0), zero);
    n->out[0] = build_map(
        &b, DT_i32, ex_select(x, is_row, build_load(&b, out[3], &at), build_load(&b, out[4], &at)));
}
