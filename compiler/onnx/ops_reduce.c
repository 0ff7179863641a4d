/* Reductions, arg-reductions, cumulative operators, and what is made of them: Softmax and its
 * friends. */
#include "compiler/onnx/import.h"

#include <string.h>

/* --- Reduce* ---------------------------------------------------------------------------------- */

/* Each is post(combine over the axes of body(a)), with `a` the element and, in post, `a` the
 * combined value and `b` the number of elements; computed in the wide type of the input's. `real`:
 * post needs a float, so integers are taken there and back. */
typedef struct ReduceRow {
    const char *name;
    Combine combine;
    const char *body, *post;
    bool real;
} ReduceRow;

static const ReduceRow reduce_rows[] = {
    {"ReduceSum", COMBINE_sum, "a", "a", false},
    /* of nothing, which ONNX leaves open, what ONNX Runtime gives */
    {"ReduceMean", COMBINE_sum, "a", "select(b == 0, 0, a / b)", false},
    {"ReduceMax", COMBINE_max, "a", "a", false},
    {"ReduceMin", COMBINE_min, "a", "a", false},
    {"ReduceProd", COMBINE_prod, "a", "a", false},
    {"ReduceL1", COMBINE_sum, "abs(a)", "a", false},
    {"ReduceL2", COMBINE_sum, "a * a", "sqrt(a)", true},
    {"ReduceSumSquare", COMBINE_sum, "a * a", "a", false},
    {"ReduceLogSum", COMBINE_sum, "a", "log(a)", true},
    {"ReduceLogSumExp", COMBINE_sum, "exp(a)", "log(a)", true},
};

static const Expr *formula_of(Node *n, const char *text, const Expr *a, const Expr *count) {
    static const char *const names[] = {"a", "b"};
    const Expr *values[2] = {a, count};
    const char *error = "";
    const Expr *e = ex_formula(n->x, text, 2, names, values, &error);
    if (!e) invalid(n, E2006, "the input's element type does not fit: %s", error);
    return e;
}

/* One reduction over the axes of a mask. NULL after a report. */
static Value *reduce_axes(Node *n, const ReduceRow *row, Value *v, uint32_t mask, bool keep) {
    Exprs *x = n->x;
    int64_t shape[MAX_RANK], count = 1;
    int rank = 0;
    for (int i = 0; i < v->rank; i++) {
        bool reduced = mask >> i & 1;
        if (reduced) count = dim_mul(x, count, v->dims[i]);
        if (!reduced || keep) shape[rank++] = reduced ? 1 : v->dims[i];
    }
    Builder b = build(n->g, rank, shape);
    const Expr *index[MAX_RANK];
    for (int i = 0, at = 0; i < v->rank; i++) {
        bool reduced = mask >> i & 1;
        index[i] = reduced ? build_red(&b, v->dims[i]) : ex_var(x, at);
        at += !reduced || keep;
    }
    /* bools are reduced as numbers: max is `or`, min is `and` */
    DType work = v->dt == DT_bool ? DT_i32 : dt_reg(v->dt);
    const Expr *a = ex_cast(x, work, build_load(&b, v, index));
    const Expr *body = formula_of(n, row->body, a, a);
    if (!body) return NULL;
    const Expr *acc = ex_acc(x, (DType)body->dt);
    if (row->real && !dt_is_float(work)) acc = ex_cast(x, DT_f64, acc);
    if (count == 0 && !dt_is_float(work)) count = 1; /* a mean of nothing: 0 */
    const Expr *total = ex_cast(x, (DType)acc->dt, ex_int(x, DT_i64, count));
    const Expr *post = formula_of(n, row->post, acc, total);
    return post ? build_reduce(&b, v->dt, row->combine, body, post) : NULL;
}

/* log(sum(exp)) with the largest element taken out first, so that exp cannot overflow. */
static Value *reduce_log_sum_exp(Node *n, const ReduceRow *row, Value *v, uint32_t mask,
                                 bool keep) {
    Graph *g = n->g;
    DType dt = v->dt;
    v = g_cast(g, v, dt_is_float(dt) ? dt_reg(dt) : DT_f64);
    Value *top = g_reduce(g, COMBINE_max, v, mask, true);
    top = node_formula(n, "select(isinf(a), 0, a)", 1, &top);
    Value *sum = reduce_axes(n, row, g_bin(g, EX_sub, v, top), mask, true);
    if (!sum) return NULL;
    Value *result = g_cast(g, g_bin(g, EX_add, sum, top), dt);
    if (keep) return result;
    int64_t shape[MAX_RANK];
    int rank = 0;
    for (int i = 0; i < v->rank; i++)
        if (!(mask >> i & 1)) shape[rank++] = v->dims[i];
    return g_reshape(g, result, rank, shape);
}

static Value *reduce_with(Node *n, const ReduceRow *row, Value *v, uint32_t mask, bool keep) {
    if (!strcmp(row->name, "ReduceLogSumExp")) return reduce_log_sum_exp(n, row, v, mask, keep);
    return reduce_axes(n, row, v, mask, keep);
}

/* True if reducing these axes gives the declared shape. */
static bool mask_gives(const Value *v, uint32_t mask, bool keep, int rank, const int64_t *shape) {
    int at = 0;
    for (int i = 0; i < v->rank; i++) {
        bool reduced = mask >> i & 1;
        if (reduced && !keep) continue;
        if (at == rank || shape[at++] != (reduced ? 1 : v->dims[i])) return false;
    }
    return at == rank;
}

/* Whether the axes computed at run time are those of the mask, as a scalar bool. */
static Value *axes_are(Node *n, Value *axes, int rank, uint32_t mask) {
    Exprs *x = n->x;
    Builder b = build(n->g, 0, NULL);
    const Expr *all = ex_int(x, DT_bool, 1);
    for (int d = 0; d < rank; d++) {
        const Expr *any = ex_int(x, DT_bool, 0);
        for (int i = 0; i < (int)value_numel(axes); i++) {
            const Expr *at[1] = {ex_i(x, i)};
            const Expr *axis = ex_cast(x, DT_i64, build_load(&b, axes, at));
            any = ex_bin(x, EX_or, any, ex_bin(x, EX_eq, axis, ex_int(x, DT_i64, d)));
            any = ex_bin(x, EX_or, any, ex_bin(x, EX_eq, axis, ex_int(x, DT_i64, d - rank)));
        }
        all = ex_and(x, all, mask >> d & 1 ? any : ex_un(x, EX_not, any));
    }
    return build_map(&b, DT_bool, all);
}

/* Axes known only at run time: the declared shape says which they can be. Where it allows several,
 * all are computed and the axes choose. */
static void reduce_runtime(Node *n, const ReduceRow *row, Value *v, Value *axes, bool keep) {
    int rank, ignored;
    int64_t shape[MAX_TENSOR_RANK];
    if (!node_declared_shape(n, 0, &rank, shape) || axes->rank != 1) {
        node_need_ints(n, 1, "the axes", &ignored);
        return;
    }
    int count = axes->dims[0] > v->rank ? v->rank : (int)axes->dims[0];
    Value *result = NULL;
    for (uint32_t mask = 0; mask < 1u << v->rank; mask++) {
        int bits = 0;
        for (int i = 0; i < v->rank; i++) bits += (int)(mask >> i & 1);
        /* an axis of extent 1 that is kept may be reduced or not: the same result */
        bool plain = keep ? bits <= count : bits == count;
        for (int i = 0; i < v->rank && keep; i++)
            if (mask >> i & 1 && v->dims[i] == 1) plain = false;
        if (!plain || !mask_gives(v, mask, keep, rank, shape)) continue;
        Value *one = reduce_with(n, row, v, mask, keep);
        if (!one) return;
        result = result ? g_where(n->g, axes_are(n, axes, v->rank, mask), one, result) : one;
    }
    if (!result)
        invalid(n, E2009, "no axes reduce shape %s to the declared %s",
                shape_text(n->g->arena, v->rank, v->dims), shape_text(n->g->arena, rank, shape));
    n->out[0] = result;
}

void import_reduce(Node *n) {
    const ReduceRow *row = reduce_rows;
    while (strcmp(row->name, n->op) != 0) row++;
    Value *v = node_need(n, 0), *axes_value = NULL;
    int count;
    if (!v) return;
    if (v->dt == DT_bool && row->combine != COMBINE_max && row->combine != COMBINE_min) {
        invalid(n, E2006, "the operator takes no elements of type bool");
        return;
    }
    bool keep = attr_int(n, "keepdims", 1) != 0, by_input = n->version >= 18;
    if (!strcmp(row->name, "ReduceSum")) by_input = n->version >= 13;
    const int64_t *axes = by_input ? node_fixed_ints(n, 1, &count) : attr_ints(n, "axes", &count);
    if (by_input) axes_value = node_in(n, 1);
    if (n->failed) return;
    if (axes_value && value_numel(axes_value) == 0) {
        count = 0;
    } else if (axes_value && !axes) {
        reduce_runtime(n, row, v, axes_value, keep);
        return;
    }
    uint32_t mask = 0;
    for (int i = 0; i < count; i++) {
        int axis = node_axis(n, axes[i], v->rank);
        if (axis < 0) return;
        mask |= 1u << axis;
    }
    if (count == 0 && !attr_int(n, "noop_with_empty_axes", 0)) mask = (1u << v->rank) - 1;
    n->out[0] = reduce_with(n, row, v, mask, keep);
}

/* --- ArgMax, ArgMin --------------------------------------------------------------------------- */

/* The position along an axis of the largest (smallest) element: first its value, then the first (or
 * last) place that has it. NaN counts as largest and smallest. */
static Value *arg_reduce(Node *n, Value *v, int axis, bool largest, bool last, bool keep) {
    Exprs *x = n->x;
    Graph *g = n->g;
    if (dt_is_narrow(v->dt) || v->dt == DT_bool)
        v = g_cast(g, v, v->dt == DT_bool ? DT_i32 : dt_reg(v->dt));
    Value *top = g_reduce(g, largest ? COMBINE_max : COMBINE_min, v, 1u << axis, true);
    int64_t shape[MAX_RANK];
    int rank = 0;
    for (int i = 0; i < v->rank; i++)
        if (i != axis || keep) shape[rank++] = i == axis ? 1 : v->dims[i];
    Builder b = build(g, rank, shape);
    const Expr *index[MAX_RANK], *top_index[MAX_RANK], *r = build_red(&b, v->dims[axis]);
    for (int i = 0, at = 0; i < v->rank; i++) {
        index[i] = i == axis ? r : ex_var(x, at);
        top_index[i] = i == axis ? ex_i(x, 0) : ex_var(x, at);
        at += i != axis || keep;
    }
    const Expr *e = build_load(&b, v, index);
    const Expr *hit = ex_bin(x, EX_eq, e, build_load(&b, top, top_index));
    hit = ex_bin(x, EX_or, hit, ex_un(x, EX_isnan, e));
    const Expr *miss = ex_i(x, last ? 0 : v->dims[axis] - 1);
    return build_reduce(&b, DT_i64, last ? COMBINE_max : COMBINE_min, ex_select(x, hit, r, miss),
                        NULL);
}

void import_arg_reduce(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    int axis = node_axis(n, attr_int(n, "axis", 0), v->rank);
    if (axis < 0) return;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++) shape[i] = i == axis ? 1 : v->dims[i];
    if (!node_source_ok(n, v, v->rank, shape)) return;
    bool last = attr_int(n, "select_last_index", 0) != 0;
    n->out[0] =
        arg_reduce(n, v, axis, !strcmp(n->op, "ArgMax"), last, attr_int(n, "keepdims", 1) != 0);
}

/* --- CumSum, CumProd -------------------------------------------------------------------------- */

static Value *cumulate(Node *n, Value *v, int axis, Combine combine, bool exclusive, bool reverse) {
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) index[i] = ex_var(n->x, i == axis ? v->rank : i);
    return build_scan(&b, v->dt, combine, axis, exclusive, reverse, build_load(&b, v, index));
}

void import_cumulative(Node *n) {
    Value *v = node_need(n, 0), *axis_value = node_need(n, 1);
    int count;
    if (!v || !axis_value) return;
    Combine combine = !strcmp(n->op, "CumSum") ? COMBINE_sum : COMBINE_prod;
    bool exclusive = attr_int(n, "exclusive", 0) != 0, reverse = attr_int(n, "reverse", 0) != 0;
    const int64_t *given = node_fixed_ints(n, 1, &count);
    if (value_numel(axis_value) != 1 || v->rank < 1 || !dt_is_int(axis_value->dt)) {
        invalid(n, E2005, "the axis must be one integer, and the input have a dimension");
        return;
    }
    if (given) {
        int axis = node_axis(n, given[0], v->rank);
        if (axis >= 0) n->out[0] = cumulate(n, v, axis, combine, exclusive, reverse);
        return;
    }
    /* an axis computed at run time chooses between the results for all */
    Value *result = cumulate(n, v, 0, combine, exclusive, reverse);
    for (int axis = 1; axis < v->rank; axis++) {
        Value *scalar = g_reshape(n->g, axis_value, 0, NULL);
        const char *formula = arena_printf(n->g->arena, "a == %d || a == %d", axis, axis - v->rank);
        Value *chosen = node_formula(n, formula, 1, &scalar);
        if (!chosen) return;
        result = g_where(n->g, chosen, cumulate(n, v, axis, combine, exclusive, reverse), result);
    }
    n->out[0] = result;
}

/* --- Softmax and friends ---------------------------------------------------------------------- */

/* The axes as a mask: one from opset 13 on, before that all from `axis` on. False after a report.
 */
static bool softmax_axes(Node *n, const Value *v, uint32_t *mask) {
    bool one = n->version >= 13;
    int64_t axis = attr_int(n, "axis", one ? -1 : 1);
    if (!one && axis == v->rank) { /* nothing but single elements */
        *mask = 0;
        return true;
    }
    int at = node_axis(n, axis, v->rank);
    if (at < 0) return false;
    *mask = one ? 1u << at : ((1u << v->rank) - 1) & ~((1u << at) - 1);
    return true;
}

void import_softmax(Node *n) {
    Value *v = node_need(n, 0);
    uint32_t mask;
    if (!v || !softmax_axes(n, v, &mask)) return;
    if (!dt_is_float(v->dt)) {
        invalid(n, E2006, "the operator takes no elements of type %s", dt_name(v->dt));
        return;
    }
    n->out[0] = g_softmax(n->g, v, mask, !strcmp(n->op, "LogSoftmax"));
}

void import_hardmax(Node *n) {
    Value *v = node_need(n, 0), *flat = v;
    uint32_t mask;
    if (!v || !softmax_axes(n, v, &mask)) return;
    /* as [before, axis, after], with all coerced axes in the middle */
    int64_t shape[3] = {1, 1, 1};
    for (int i = 0, part = 0; i < v->rank; i++) {
        if (mask >> i & 1)
            part = 1;
        else if (part == 1)
            part = 2;
        shape[part] = dim_mul(n->x, shape[part], v->dims[i]);
    }
    Exprs *x = n->x;
    if (value_numel(v) == 0) {
        n->out[0] = v;
        return;
    }
    flat = g_reshape(n->g, v, 3, shape);
    Value *top = arg_reduce(n, flat, 1, true, false, true);
    Builder b = build(n->g, 3, shape);
    const Expr *hit = ex_bin(x, EX_eq, build_in(&b, top), ex_cast(x, DT_i64, ex_var(x, 1)));
    const Expr *e = ex_select(x, hit, ex_num(x, v->dt, 1), ex_num(x, v->dt, 0));
    n->out[0] = g_reshape(n->g, build_map(&b, v->dt, e), v->rank, v->dims);
}

/* x / norm, and 0 where the norm is 0. */
void import_lp_normalization(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    int axis = node_axis(n, attr_int(n, "axis", -1), v->rank);
    int64_t p = attr_int(n, "p", 2);
    if (axis < 0) return;
    if (p != 1 && p != 2) {
        invalid(n, E2004, "p is %lld, not 1 or 2", (long long)p);
        return;
    }
    const ReduceRow rows[] = {{"", COMBINE_sum, "abs(a)", "a", false},
                              {"", COMBINE_sum, "a * a", "sqrt(a)", false}};
    Value *wide = g_cast(n->g, v, dt_reg(v->dt));
    Value *pair[2] = {wide, reduce_axes(n, &rows[p - 1], wide, 1u << axis, true)};
    Value *result = pair[1] ? node_formula(n, "select(b == 0, 0, a / b)", 2, pair) : NULL;
    if (result) n->out[0] = g_cast(n->g, result, v->dt);
}
