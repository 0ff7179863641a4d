/* Operators of com.microsoft that move elements, or make them from indices. */
#include "compiler/onnx/index.h"
#include "compiler/onnx/quant.h"

#include <math.h>
#include <string.h>

/* The pads may be one row of a matrix; modes are those of opset 13. */
void import_ms_pad(Node *n) {
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_in(n, 2)};
    if (!v[0] || !v[1]) return;
    if (attr_choice(n, "mode", 0, "constant reflect edge") < 0) return;
    if (v[1]->rank == 2 && v[1]->dims[0] == 1)
        v[1] = g_reshape(n->g, v[1], 1, (int64_t[]){v[1]->dims[1]});
    n->out[0] = import_as(n, import_pad, 13, 3, v);
}

void import_ms_expand_dims(Node *n) {
    Value *v = node_need(n, 0);
    int count;
    const int64_t *given = node_need_ints(n, 1, "the axis", &count);
    if (!v || !given) return;
    if (count != 1 || dim_varies(given[0]) || v->rank >= MAX_TENSOR_RANK) {
        invalid(n, E2005, "%d axes for an input of %d dimensions", count, v->rank);
        return;
    }
    int axis = node_axis(n, given[0], v->rank + 1);
    int64_t shape[MAX_RANK];
    if (axis < 0) return;
    for (int i = 0; i <= v->rank; i++) shape[i] = i == axis ? 1 : v->dims[i - (i > axis)];
    n->out[0] = g_reshape(n->g, v, v->rank + 1, shape);
}

/* By ones where there is no delta. */
void import_ms_range(Node *n) {
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_in(n, 2)};
    if (!v[0] || !v[1]) return;
    if (!v[2]) v[2] = g_scalar(n->g, v[0]->dt, 1);
    n->out[0] = import_as(n, import_range, 11, 3, v);
}

/* All slices of `size` elements along a dimension, `step` apart, their elements along a new last
 * one. */
void import_ms_unfold_tensor(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    Exprs *x = n->x;
    int64_t size = attr_int(n, "size", 0), step = attr_int(n, "step", 1), shape[MAX_RANK];
    int axis = node_axis(n, attr_int(n, "dim", -1), v->rank);
    if (axis < 0 || n->failed) return;
    if (size < 1 || step < 1 || step > INT32_MAX || v->rank >= MAX_TENSOR_RANK ||
        size > dim_max(x, v->dims[axis])) {
        invalid(n, E2004, "slices of %lld, %lld apart, of an input of shape %s", (long long)size,
                (long long)step, dims_text(x, v->rank, v->dims));
        return;
    }
    for (int i = 0; i < v->rank; i++) shape[i] = v->dims[i];
    int64_t room = dim_larger(x, dim_sub(x, v->dims[axis], size), 0);
    dim_claim(x, CLAIM_at_most, size, v->dims[axis]);
    shape[axis] = dim_add(x, dim_div(x, room, step), 1);
    shape[v->rank] = size;
    if (!node_shape_ok(n, v->rank + 1, shape)) return;
    Builder b = build(n->g, v->rank + 1, shape);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) index[i] = ex_var(x, i);
    index[axis] = ex_add(x, ex_mul(x, index[axis], ex_i(x, step)), ex_var(x, v->rank));
    n->out[0] = build_map(&b, v->dt, build_load(&b, v, index));
}

/* Scores of the words that would make the last words an n-gram that there is already: -inf. */
void import_ms_ngram_repeat_block(Node *n) {
    Value *ids = node_need(n, 0), *scores = node_need(n, 1);
    if (!ids || !scores) return;
    Exprs *x = n->x;
    int64_t size = attr_int(n, "ngram_size", 0);
    bool fits = ids->rank == 2 && scores->rank == 2 && dt_is_int(ids->dt) &&
                dt_is_float(scores->dt) && dim_meets(x, ids->dims[0], scores->dims[0]);
    if (!fits || size < 1) {
        invalid(n, E2005, "ids of shape %s and scores of shape %s, ngram_size %lld",
                shape_text(n->g->arena, ids->rank, ids->dims),
                shape_text(n->g->arena, scores->rank, scores->dims), (long long)size);
        return;
    }
    n->out[0] = scores;
    int64_t length = ids->dims[1];
    if (dim_max(x, length) < size || dim_max(x, scores->dims[0]) == 0) return;
    if (size > 16 || dim_min(x, length) < size) {
        unsupported(n, "n-grams of %lld of %s words", (long long)size, dim_text(x, length));
        return;
    }
    int64_t space[2] = {ids->dims[0], dim_add(x, dim_sub(x, length, size), 1)};
    Builder b = build(n->g, 2, space);
    const Expr *row = ex_var(x, 0), *at = ex_var(x, 1), *same = ex_int(x, DT_bool, 1);
    for (int64_t k = 0; k + 1 < size; k++) {
        const Expr *here[2] = {row, ex_add(x, at, ex_i(x, k))};
        const Expr *last[2] = {row, ex_i(x, dim_add(x, dim_sub(x, length, size), k + 1))};
        same =
            ex_and(x, same, ex_bin(x, EX_eq, build_load(&b, ids, here), build_load(&b, ids, last)));
    }
    const Expr *next[2] = {row, ex_add(x, at, ex_i(x, size - 1))}, *guard = NULL, *target[2];
    target[0] = row;
    target[1] = index_write(&b, ids, next, scores->dims[1], &guard);
    n->out[0] = build_scatter(&b, scores, COMBINE_none, target, guard_and(x, guard, same),
                              ex_num(x, scores->dt, -INFINITY));
}
