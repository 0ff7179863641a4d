/* Operators that make, tell or rename shapes, and tensors that are made of a shape alone.
 *
 * Where the input that says the new shape is computed at run time, the declared shape of the output
 * stands in for it, or dimensions that vary are as large as a run says (node_counted_shape).
 */
#include "compiler/onnx/text.h"

#include <math.h>
#include <string.h>

/* --- asking for shapes ------------------------------------------------------------------------ */

/* The declared shape of output 0, or E3004 naming the input that should have been constant. */
static bool declared_instead(Node *n, int input, const char *what, int *rank, int64_t *shape) {
    if (node_declared_shape(n, 0, rank, shape)) return true;
    int ignored;
    if (!node_need_ints(n, input, what, &ignored) && !n->failed)
        invalid(n, E2007, "input %d (%s) is missing", input, what);
    return false;
}

/* Copies the integers of an input; -1 if there are too many for a shape. */
static int copy_dims(Node *n, int count, const int64_t *from, int64_t *to) {
    if (count > MAX_TENSOR_RANK) {
        unsupported(n, "the result has %d dimensions; at most %d are supported", count,
                    MAX_TENSOR_RANK);
        return -1;
    }
    for (int i = 0; i < count; i++) to[i] = from[i];
    return count;
}

/* Gives `v` another shape of as many elements. */
static void set_reshaped(Node *n, Value *v, int rank, const int64_t *shape) {
    if (!node_shape_ok(n, rank, shape)) return;
    int64_t count = dim_product(n->x, rank, shape), own = dim_product(n->x, v->rank, v->dims);
    if (count != own && !dim_varies(count) && !dim_varies(own)) {
        invalid(n, E2005, "shape %s cannot hold the elements of shape %s",
                shape_text(n->g->arena, rank, shape), shape_text(n->g->arena, v->rank, v->dims));
        return;
    }
    n->out[0] = g_reshape(n->g, v, rank, shape);
}

/* Input i, the integers of a shape; NULL after a report. */
static Value *need_shape(Node *n, int i) {
    Value *v = node_need(n, i);
    if (!v || dt_is_int(v->dt)) return v;
    invalid(n, E2006, "the shape must be integers, not %s", dt_name(v->dt));
    return NULL;
}

/* a / b, or a / 1 where a run gives b = 0. */
static int64_t dim_ratio(Exprs *x, int64_t a, int64_t b) {
    int64_t ratio = dim_div(x, a, b);
    return dim_max(x, ratio) >= 0 ? ratio : dim_div(x, a, dim_larger(x, b, 1));
}

/* Elements of the shape as they are meant: 0 copies a dimension and, if `all` is there, -1 stands
 * for what the others leave of that number. */
static Value *meant_shape(Node *n, Value *v, Value *want, bool keep_zero, const int64_t *all) {
    Exprs *x = n->x;
    Value *w = g_cast(n->g, want, DT_i64);
    Builder b = build(n->g, 1, w->dims);
    const Expr *zero = ex_int(x, DT_i64, 0), *one = ex_int(x, DT_i64, 1);
    const Expr *e = build_in(&b, w), *own = e;
    for (int i = 0; i < v->rank && !keep_zero; i++) {
        const Expr *copies =
            ex_and(x, ex_bin(x, EX_eq, ex_var(x, 0), ex_i(x, i)), ex_bin(x, EX_eq, own, zero));
        e = ex_select(x, copies, ex_int(x, DT_i64, v->dims[i]), e);
    }
    w = build_map(&b, DT_i64, e);
    if (!all) return w;
    const Expr *open = ex_int(x, DT_i64, -1), *at;
    b = build(n->g, 0, NULL);
    at = build_red(&b, w->dims[0]);
    e = build_load(&b, w, &at);
    e = ex_select(x, ex_bin(x, EX_eq, e, open), one, e);
    Value *others = build_reduce(&b, DT_i64, COMBINE_prod, e, NULL);
    b = build(n->g, 1, w->dims);
    e = build_in(&b, w);
    const Expr *rest = ex_div(x, ex_int(x, DT_i64, *all), build_in(&b, others));
    return build_map(&b, DT_i64, ex_select(x, ex_bin(x, EX_eq, e, open), rest, e));
}

/* Notes a fault where a run wants another shape of Reshape than the model declares. */
static void check_declared(Node *n, Value *v, Value *want, int rank, const int64_t *declared) {
    if (want->rank != 1 || want->dims[0] != rank) return;
    int64_t all = dim_product(n->x, v->rank, v->dims);
    Value *meant = meant_shape(n, v, want, attr_int(n, "allowzero", 0) != 0, &all);
    for (int k = 0; k < rank; k++) {
        int64_t start[1] = {k}, one[1] = {1};
        node_check_count(n, g_slice(n->g, meant, start, one, one), declared[k], declared[k]);
    }
}

/* The shape of Reshape where some of it is computed at run time; NULL after a report, or if the
 * model declares all of it, which is then *rank and `declared`. *left: the dimension that is what
 * the others leave, whatever the run says; -1: none. */
static const int64_t *reshape_runtime(Node *n, Value *v, int *rank, int64_t *declared, int *left) {
    Exprs *x = n->x;
    Value *want = need_shape(n, 1);
    if (!want) return NULL;
    if (node_declared_shape(n, 0, rank, declared)) {
        check_declared(n, v, want, *rank, declared);
        return NULL;
    }
    if (want->rank != 1 || dim_varies(want->dims[0]) || want->dims[0] > MAX_TENSOR_RANK) {
        node_counted_shape(n, want, NULL, rank, declared);
        return NULL;
    }
    *rank = (int)want->dims[0];
    bool keep_zero = attr_int(n, "allowzero", 0) != 0;
    int n_unknown = 0, last = 0;
    bool open = false;
    *left = -1;
    int64_t all = dim_product(x, v->rank, v->dims), most[MAX_TENSOR_RANK];
    int64_t *shape = ARENA_ARRAY(n->g->arena, *rank + 1, int64_t);
    for (int k = 0; k < *rank; k++) {
        int64_t start[1] = {k}, one[1] = {1};
        int n_known;
        const int64_t *known = value_dims(n->g, g_slice(n->g, want, start, one, one), &n_known);
        most[k] = all;
        shape[k] = known ? known[0] : -1;
        open |= known && known[0] == -1;
        n_unknown += !known;
        if (!known) last = k;
    }
    /* one that is not known is what the others leave */
    *left = n_unknown == 1 && !open ? last : -1;
    if (*left >= 0) return shape;
    Value *meant = meant_shape(n, v, want, keep_zero, open ? NULL : &all);
    return node_counted_shape(n, meant, most, rank, shape) ? shape : NULL;
}

/* The shape that input i says, broadcast with that of `v` (NULL: as it is), where it is computed at
 * run time. */
static bool chosen_shape(Node *n, int i, Value *v, int *rank, int64_t *shape) {
    Value *want = need_shape(n, i);
    if (!want) return false;
    if (v && v->rank && want->rank == 1 && !dim_varies(want->dims[0])) {
        Value *own = graph_shape(n->g, v);
        int64_t fewer = want->dims[0] - v->rank, ones = fewer < 0 ? -fewer : fewer;
        Value *none = ones ? g_expand(n->g, g_scalar(n->g, DT_i64, 1), 1, &ones) : NULL;
        want = g_cast(n->g, want, DT_i64);
        Value *both[2] = {none, fewer < 0 ? want : own};
        if (none && fewer < 0) want = g_concat(n->g, 2, both, 0);
        if (none && fewer > 0) own = g_concat(n->g, 2, both, 0);
        Exprs *x = n->x;
        Builder b = build(n->g, 1, want->dims);
        const Expr *w = build_in(&b, want), *o = build_in(&b, own), *one = ex_int(x, DT_i64, 1);
        const Expr *e = ex_select(x, ex_bin(x, EX_eq, w, one), o, ex_bin(x, EX_max, w, o));
        e = ex_select(x, ex_bin(x, EX_eq, o, one), w, e); /* also where it is 0 */
        Builder f = build(n->g, 0, NULL);
        const Expr *at = build_red(&f, want->dims[0]);
        w = build_load(&f, want, &at);
        o = build_load(&f, own, &at);
        const Expr *fits = ex_bin(x, EX_or, ex_bin(x, EX_eq, w, one), ex_bin(x, EX_eq, o, one));
        fits = ex_bin(x, EX_or, fits, ex_bin(x, EX_eq, w, o));
        Value *lacks = build_reduce(&f, DT_bool, COMBINE_max,
                                    ex_select(x, fits, ex_i(x, 0), ex_i(x, 1)), NULL);
        graph_note_fault(n->g, lacks, "the shape asked for does not broadcast");
        want = build_map(&b, DT_i64, e);
    }
    return node_counted_shape(n, want, NULL, rank, shape);
}

/* Notes a fault where a run wants something else of dimension k than what the others leave for it.
 */
static void check_left(Node *n, Value *want, int k, const Value *v, int64_t extent) {
    Exprs *x = n->x;
    Builder b = build(n->g, 0, NULL);
    const Expr *at = ex_i(x, k), *own = ex_cast(x, DT_i64, build_load(&b, want, &at));
    const Expr *have = ex_int(x, DT_i64, extent);
    if (k < v->rank && !attr_int(n, "allowzero", 0)) {
        const Expr *copies = ex_bin(x, EX_eq, own, ex_int(x, DT_i64, 0));
        own = ex_select(x, copies, ex_int(x, DT_i64, v->dims[k]), own);
    }
    const Expr *open = ex_bin(x, EX_eq, own, ex_int(x, DT_i64, -1));
    const Expr *fits = ex_bin(x, EX_or, open, ex_bin(x, EX_eq, own, have));
    graph_note_fault(n->g, build_map(&b, DT_bool, ex_un(x, EX_not, fits)),
                     "the shape asked for has another number of elements");
}

/* --- new shapes ------------------------------------------------------------------------------- */

void import_reshape(Node *n) {
    Value *v = node_need(n, 0);
    int count, rank, left = -1;
    int64_t shape[MAX_TENSOR_RANK];
    const int64_t *want = n->version < 5 ? attr_ints(n, "shape", &count) : node_ints(n, 1, &count);
    if (!v || n->failed) return;
    if (!want) {
        want = reshape_runtime(n, v, &count, shape, &left);
        if (!want && !n->failed) set_reshaped(n, v, count, shape);
        if (!want) return;
    }
    if ((rank = copy_dims(n, count, want, shape)) < 0) return;
    bool keep_zero = attr_int(n, "allowzero", 0) != 0;
    int open = -1;
    int64_t known = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0 && !keep_zero) {
            if (i >= v->rank) {
                invalid(n, E2005, "the shape copies dimension %d of an input that has %d", i,
                        v->rank);
                return;
            }
            shape[i] = v->dims[i];
        }
        bool wrong = shape[i] < -1 && !dim_varies(shape[i]);
        if (wrong || shape[i] > INT32_MAX || (shape[i] == -1 && open >= 0)) {
            invalid(n, E2005, "%s is not a shape", shape_text(n->g->arena, rank, shape));
            return;
        }
        if (shape[i] == -1)
            open = i;
        else
            known = known > INT32_MAX ? known : dim_mul(n->x, known, shape[i]);
    }
    int64_t all = dim_product(n->x, v->rank, v->dims);
    if (open >= 0) shape[open] = known ? dim_ratio(n->x, all, known) : 0;
    if (left >= 0) check_left(n, node_in(n, 1), left, v, shape[left]);
    set_reshaped(n, v, rank, shape);
}

void import_flatten(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    int64_t axis = attr_int(n, "axis", 1), shape[2] = {1, 1};
    if (axis < -v->rank || axis > v->rank) {
        invalid(n, E2004, "axis %lld is not in [%d, %d]", (long long)axis, -v->rank, v->rank);
        return;
    }
    if (axis < 0) axis += v->rank;
    for (int i = 0; i < v->rank; i++)
        shape[i >= axis] = dim_mul(n->x, shape[i >= axis], v->dims[i]);
    n->out[0] = g_reshape(n->g, v, 2, shape);
}

/* Axes from the attribute or, from opset 13 on, input 1. NULL: absent or not constant. */
static const int64_t *given_axes(Node *n, int *count) {
    return n->version < 13 ? attr_ints(n, "axes", count) : node_fixed_ints(n, 1, count);
}

/* The axes as a bit mask; false after a report. */
static bool axis_mask(Node *n, int count, const int64_t *axes, int rank, uint32_t *mask) {
    *mask = 0;
    for (int i = 0; i < count; i++) {
        int axis = node_axis(n, axes[i], rank);
        if (axis < 0) return false;
        if (*mask >> axis & 1) {
            invalid(n, E2004, "axis %d is given twice", axis);
            return false;
        }
        *mask |= 1u << axis;
    }
    return true;
}

void import_squeeze(Node *n) {
    Value *v = node_need(n, 0);
    int count, rank = 0;
    int64_t shape[MAX_TENSOR_RANK], start[MAX_RANK] = {0}, step[MAX_RANK], one[MAX_RANK];
    uint32_t mask = 0;
    if (!v) return;
    const int64_t *axes = given_axes(n, &count);
    if (!axes && n->version >= 13 && node_in(n, 1)) {
        if (declared_instead(n, 1, "the axes", &rank, shape)) set_reshaped(n, v, rank, shape);
        return;
    }
    if (n->failed || !axis_mask(n, count, axes, v->rank, &mask)) return;
    for (int i = 0; i < v->rank; i++) {
        bool drop = axes ? mask >> i & 1 : v->dims[i] == 1;
        if (drop && !dim_meets(n->x, v->dims[i], 1)) {
            invalid(n, E2005, "axis %d has extent %lld, not 1", i, (long long)v->dims[i]);
            return;
        }
        if (!drop) shape[rank++] = v->dims[i];
        one[i] = drop ? 1 : v->dims[i];
        step[i] = 1;
    }
    if (!shape_equal(v->rank, one, v->rank, v->dims)) v = g_slice(n->g, v, start, step, one);
    set_reshaped(n, v, rank, shape);
}

void import_unsqueeze(Node *n) {
    Value *v = node_need(n, 0);
    int count, rank, at = 0;
    int64_t shape[MAX_TENSOR_RANK];
    uint32_t mask;
    if (!v) return;
    const int64_t *axes = given_axes(n, &count);
    if (!axes) {
        if (n->version < 13)
            invalid(n, E2004, "attribute 'axes' is missing");
        else if (declared_instead(n, 1, "the axes", &rank, shape))
            set_reshaped(n, v, rank, shape);
        return;
    }
    if (count > MAX_TENSOR_RANK - v->rank) {
        unsupported(n, "the result has %d dimensions; at most %d are supported", count + v->rank,
                    MAX_TENSOR_RANK);
        return;
    }
    rank = v->rank + count;
    if (!axis_mask(n, count, axes, rank, &mask)) return;
    for (int i = 0; i < rank; i++) shape[i] = mask >> i & 1 ? 1 : v->dims[at++];
    set_reshaped(n, v, rank, shape);
}

void import_transpose(Node *n) {
    Value *v = node_need(n, 0);
    int count, perm[MAX_TENSOR_RANK];
    if (!v) return;
    const int64_t *given = attr_ints(n, "perm", &count);
    uint32_t seen = 0;
    if (given && count != v->rank) {
        invalid(n, E2004, "perm has %d entries for %d dimensions", count, v->rank);
        return;
    }
    for (int i = 0; i < v->rank; i++) {
        perm[i] = v->rank - 1 - i;
        if (given && (perm[i] = node_axis(n, given[i], v->rank)) < 0) return;
        if (seen >> perm[i] & 1) {
            invalid(n, E2004, "perm names axis %d twice", perm[i]);
            return;
        }
        seen |= 1u << perm[i];
    }
    n->out[0] = g_transpose(n->g, v, perm);
}

void import_expand(Node *n) {
    Value *v = node_need(n, 0);
    int count, rank;
    int64_t asked[MAX_TENSOR_RANK], shape[MAX_RANK];
    if (!v) return;
    const int64_t *want = node_ints(n, 1, &count);
    if (want)
        rank = copy_dims(n, count, want, asked);
    else if (!chosen_shape(n, 1, v, &rank, asked))
        return;
    if (rank < 0 || !node_shape_ok(n, rank, asked)) return;
    if (!shape_broadcast(n->x, v->rank, v->dims, rank, asked, &rank, shape)) {
        invalid(n, E2005, "shape %s does not broadcast to %s",
                shape_text(n->g->arena, v->rank, v->dims), shape_text(n->g->arena, rank, asked));
        return;
    }
    if (node_shape_ok(n, rank, shape)) n->out[0] = g_expand(n->g, v, rank, shape);
}

/* out[i] = v[i % extent] in every dimension. */
static void set_tiled(Node *n, Value *v, const int64_t *shape) {
    if (!node_shape_ok(n, v->rank, shape)) return;
    Builder b = build(n->g, v->rank, shape);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        index[i] = v->dims[i] == shape[i]
                       ? ex_var(n->x, i)
                       : ex_bin(n->x, EX_rem, ex_var(n->x, i), ex_i(n->x, v->dims[i]));
    n->out[0] = build_map(&b, v->dt, build_load(&b, v, index));
}

/* Repeats that are computed at run time become the extents that they lead to. */
static bool tile_counts(Node *n, Value *v, Value **times) {
    Value *t = *times;
    if (!dt_is_int(t->dt) || t->rank != 1 || t->dims[0] != v->rank) {
        invalid(n, E2005, "the repeats must be %d integers", v->rank);
        return false;
    }
    /* in a range where products cannot overflow */
    Exprs *x = n->x;
    Builder b = build(n->g, 1, t->dims);
    const Expr *e = ex_bin(x, EX_max, ex_cast(x, DT_i64, build_in(&b, t)), ex_int(x, DT_i64, -1));
    t = build_map(&b, DT_i64, ex_bin(x, EX_min, e, ex_int(x, DT_i64, (int64_t)1 << 31)));
    *times = g_bin(n->g, EX_mul, t, graph_shape(n->g, v));
    return true;
}

void import_tile(Node *n) {
    Value *v = node_need(n, 0);
    int count, rank, axes;
    int64_t shape[MAX_RANK], repeats[MAX_RANK];
    if (!v) return;
    const int64_t *given = node_ints(n, 1, &count);
    for (int i = 0; i < v->rank; i++) repeats[i] = 1;
    if (n->version < 6) { /* tiles along one axis */
        const int64_t *tiles = node_need_ints(n, 1, "the number of tiles", &count);
        const int64_t *along = node_need_ints(n, 2, "the axis", &axes);
        int axis = tiles && along && count == 1 && axes == 1 ? node_axis(n, along[0], v->rank) : -1;
        if (axis < 0) {
            if (!n->failed) invalid(n, E2007, "tiles and axis must be one number each");
            return;
        }
        repeats[axis] = tiles[0];
    } else if (!given) {
        Value *times = node_need(n, 1);
        if (!times || !tile_counts(n, v, &times)) return;
        if (!node_counted_shape(n, times, NULL, &rank, shape)) return;
        for (int i = 0; i < rank && rank == v->rank; i++) {
            if (dim_varies(shape[i]) || dim_varies(v->dims[i])) continue;
            if (v->dims[i] ? shape[i] % v->dims[i] : shape[i]) rank = -1;
            if (rank < 0) break;
        }
        if (rank != v->rank)
            invalid(n, E2009, "the declared shape is no multiple of the input's, %s",
                    dims_text(n->x, v->rank, v->dims));
        else
            set_tiled(n, v, shape);
        return;
    } else if (count != v->rank) {
        invalid(n, E2005, "%d repeats for %d dimensions", count, v->rank);
        return;
    } else {
        for (int i = 0; i < count; i++) repeats[i] = given[i];
    }
    for (int i = 0; i < v->rank; i++) {
        if ((repeats[i] < 0 && !dim_varies(repeats[i])) || repeats[i] > INT32_MAX) {
            invalid(n, E2004, "%lld repeats", (long long)repeats[i]);
            return;
        }
        shape[i] = dim_mul(n->x, v->dims[i], repeats[i]);
    }
    set_tiled(n, v, shape);
}

/* --- telling shapes --------------------------------------------------------------------------- */

void import_shape(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    int64_t start = attr_int(n, "start", 0), end = attr_int(n, "end", v->rank);
    if (start < 0) start += v->rank;
    if (end < 0) end += v->rank;
    start = start < 0 ? 0 : start > v->rank ? v->rank : start;
    end = end < start ? start : end > v->rank ? v->rank : end;
    if (!dims_vary((int)(end - start), v->dims + start)) {
        n->out[0] = g_ints(n->g, (int)(end - start), v->dims + start);
        return;
    }
    int64_t one[1] = {1}, first[1] = {start}, count[1] = {end - start};
    n->out[0] = g_slice(n->g, graph_shape(n->g, v), first, one, count);
}

void import_size(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    n->out[0] = g_dim(n->g, DT_i64, dim_product(n->x, v->rank, v->dims));
}

/* --- tensors from nothing --------------------------------------------------------------------- */

void import_constant(Node *n) {
    Graph *g = n->g;
    int count;
    if (attr_has(n, "value") || attr_has(n, "sparse_value")) {
        if (attr_is_text(n, "value"))
            node_set_text(n, 0, attr_text(n, "value"));
        else
            n->out[0] = attr_tensor(n, attr_has(n, "value") ? "value" : "sparse_value");
    } else if (attr_has(n, "value_float")) {
        float value = (float)attr_float(n, "value_float", 0);
        n->out[0] = graph_const(g, DT_f32, 0, NULL, arena_copy(g->arena, &value, sizeof value));
    } else if (attr_has(n, "value_int")) {
        int64_t value = attr_int(n, "value_int", 0);
        n->out[0] = graph_const(g, DT_i64, 0, NULL, arena_copy(g->arena, &value, sizeof value));
    } else if (attr_has(n, "value_floats")) {
        const float *values = attr_floats(n, "value_floats", &count);
        int64_t shape[1] = {count};
        if (values)
            n->out[0] = graph_const(g, DT_f32, 1, shape,
                                    arena_copy(g->arena, values, (size_t)count * sizeof *values));
    } else if (attr_has(n, "value_ints")) {
        const int64_t *values = attr_ints(n, "value_ints", &count);
        if (values) n->out[0] = g_ints(g, count, values);
    } else if (attr_has(n, "value_string") || attr_has(n, "value_strings")) {
        node_set_text(n, 0,
                      attr_text(n, attr_has(n, "value_string") ? "value_string" : "value_strings"));
    } else {
        invalid(n, E2004, "none of the attributes that give a value is there");
    }
}

void import_constant_of_shape(Node *n) {
    int count, rank;
    int64_t shape[MAX_TENSOR_RANK];
    const int64_t *want = node_ints(n, 0, &count);
    if (want)
        rank = copy_dims(n, count, want, shape);
    else if (!chosen_shape(n, 0, NULL, &rank, shape))
        return;
    if (rank < 0 || !node_shape_ok(n, rank, shape)) return;
    Value *value = attr_tensor(n, "value");
    if (n->failed) return;
    if (value && value_numel(value) != 1) {
        invalid(n, E2004, "attribute 'value' must hold one element");
        return;
    }
    if (!value) value = g_scalar(n->g, DT_f32, 0);
    Builder b = build(n->g, rank, shape);
    const Expr *e = ex_const(n->x, value->dt, dt_load(value->dt, value->data, 0));
    n->out[0] = build_map(&b, value->dt, e);
}

/* The number of elements of Range where its operands are made of dimensions that vary; false if
 * they are not. Only delta is constant. */
static bool range_of_dims(Node *n, Value *const *v, int64_t *length) {
    int count;
    const int64_t *start = value_dims(n->g, v[0], &count), *limit = value_dims(n->g, v[1], &count);
    const int64_t *delta = value_ints(n->g, v[2], &count);
    if (!start || !limit || !delta || *delta == 0 || *delta == INT64_MIN) return false;
    int64_t step = *delta > 0 ? *delta : -*delta;
    int64_t span = *delta > 0 ? dim_sub(n->x, *limit, *start) : dim_sub(n->x, *start, *limit);
    *length = dim_div(n->x, dim_larger(n->x, dim_add(n->x, span, step - 1), 0), step);
    return true;
}

/* Number of elements of Range for constant operands; -1 if there is no such number. */
static int64_t range_length(const Value *start, const Value *limit, const Value *delta) {
    Scalar a = dt_load(start->dt, start->data, 0), b = dt_load(limit->dt, limit->data, 0),
           d = dt_load(delta->dt, delta->data, 0);
    if (dt_is_float(start->dt)) {
        double count = ceil((b.f - a.f) / d.f);
        return count > INT32_MAX || isnan(count) ? -1 : count < 0 ? 0 : (int64_t)count;
    }
    if (d.i == 0) return -1;
    if (d.i > 0 ? b.i <= a.i : b.i >= a.i) return 0;
    uint64_t span = d.i > 0 ? (uint64_t)b.i - (uint64_t)a.i : (uint64_t)a.i - (uint64_t)b.i;
    uint64_t step = d.i > 0 ? (uint64_t)d.i : 0 - (uint64_t)d.i;
    uint64_t count = (span - 1) / step + 1;
    return count > INT32_MAX ? -1 : (int64_t)count;
}

/* The same at run time, i64. */
static Value *runtime_range(Node *n, Value *const *v) {
    Exprs *x = n->x;
    DType dt = dt_is_float(v[0]->dt) ? DT_f64 : DT_i64;
    Builder b = build(n->g, 0, NULL);
    const Expr *e[3], *at[MAX_RANK], *zero = ex_num(x, dt, 0);
    for (int i = 0; i < MAX_RANK; i++) at[i] = ex_i(x, 0);
    for (int i = 0; i < 3; i++) e[i] = ex_cast(x, dt, build_load(&b, v[i], at));
    const Expr *span = ex_sub(x, e[1], e[0]), *count;
    if (dt == DT_f64) {
        const Expr *most = ex_num(x, dt, INT32_MAX);
        count = ex_un(x, EX_ceil, ex_div(x, span, e[2]));
        count = ex_select(x, ex_lt(x, zero, count), ex_bin(x, EX_min, count, most), zero);
    } else {
        const Expr *up = ex_lt(x, zero, e[2]),
                   *step = ex_select(x, up, e[2], ex_sub(x, zero, e[2]));
        span = ex_select(x, up, span, ex_sub(x, zero, span));
        const Expr *before = ex_div(x, ex_sub(x, span, ex_num(x, dt, 1)), step);
        const Expr *any = ex_select(x, up, ex_lt(x, e[0], e[1]), ex_lt(x, e[1], e[0]));
        any = ex_and(x, any, ex_bin(x, EX_ne, step, zero));
        count = ex_add(x, before, ex_num(x, dt, 1));
        /* a difference or step of more than an i64 */
        const Expr *huge = ex_bin(x, EX_or, ex_lt(x, span, zero), ex_lt(x, step, zero));
        count = ex_select(x, huge, ex_int(x, dt, (int64_t)1 << 32), count);
        count = ex_select(x, any, count, zero);
    }
    return build_map(&b, DT_i64, ex_cast(x, DT_i64, count));
}

void import_range(Node *n) {
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_need(n, 2)};
    int64_t shape[MAX_TENSOR_RANK];
    bool is_const = true;
    for (int i = 0; i < 3; i++) {
        if (!v[i]) return;
        if (value_numel(v[i]) != 1 || v[i]->dt != v[0]->dt) {
            invalid(n, E2006, "start, limit and delta must be scalars of one type");
            return;
        }
        is_const &= value_is_const(v[i]);
    }
    if (v[0]->dt == DT_bool) {
        invalid(n, E2006, "the operator takes no elements of type bool");
        return;
    }
    if (is_const) {
        shape[0] = range_length(v[0], v[1], v[2]);
        if (shape[0] < 0) {
            invalid(n, E2004, "delta is zero, or the range has more than 2^31-1 elements");
            return;
        }
    } else if (!range_of_dims(n, v, shape) &&
               !node_chosen_extent(n, runtime_range(n, v), 0, 0, -1, false, shape)) {
        return;
    }
    Exprs *x = n->x;
    Builder b = build(n->g, 1, shape);
    const Expr *zeros[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) zeros[i] = ex_i(x, 0);
    DType dt = v[0]->dt, reg = dt_reg(dt);
    const Expr *start = ex_cast(x, reg, build_load(&b, v[0], zeros));
    const Expr *delta = ex_cast(x, reg, build_load(&b, v[2], zeros));
    const Expr *at = ex_cast(x, reg, ex_var(x, 0));
    if (node_shape_ok(n, 1, shape))
        n->out[0] = build_map(&b, dt, ex_add(x, start, ex_mul(x, at, delta)));
}

void import_eye_like(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    DType dt = attr_has(n, "dtype") ? node_dtype(n, attr_int(n, "dtype", 0)) : v->dt;
    int64_t k = attr_int(n, "k", 0);
    if (dt == DT_none) return;
    if (v->rank != 2) {
        invalid(n, E2005, "the input has %d dimensions, not 2", v->rank);
        return;
    }
    if (k > INT32_MAX / 2) k = INT32_MAX / 2;
    if (k < -(INT32_MAX / 2)) k = -(INT32_MAX / 2);
    Exprs *x = n->x;
    Builder b = build(n->g, 2, v->dims);
    const Expr *on = ex_bin(x, EX_eq, ex_sub(x, ex_var(x, 1), ex_var(x, 0)), ex_i(x, k));
    n->out[0] = build_map(&b, dt, ex_select(x, on, ex_num(x, dt, 1), ex_num(x, dt, 0)));
}

void import_one_hot(Node *n) {
    Value *indices = node_need(n, 0), *depth = node_need(n, 1), *values = node_need(n, 2);
    if (!indices || !depth || !values) return;
    int rank = indices->rank + 1;
    int axis = node_axis(n, attr_int(n, "axis", -1), rank);
    int64_t extent, shape[MAX_RANK];
    if (axis < 0) return;
    if (values->rank != 1 || !dim_meets(n->x, values->dims[0], 2) || values->shape[0] < 2) {
        invalid(n, E2005, "values must hold two elements, off and on");
        return;
    }
    if (value_is_const(depth) && value_numel(depth) == 1) {
        extent = dt_cast(depth->dt, DT_i64, dt_load(depth->dt, depth->data, 0)).i;
    } else if (value_numel(depth) != 1) {
        invalid(n, E2005, "the depth must be one number");
        return;
    } else if (!node_chosen_extent(n, depth, 0, axis, -1, false, &extent)) {
        return;
    }
    for (int i = 0; i < rank; i++)
        shape[i] = i == axis ? extent : indices->dims[i < axis ? i : i - 1];
    if (!node_shape_ok(n, rank, shape)) return;
    Exprs *x = n->x;
    Builder b = build(n->g, rank, shape);
    const Expr *index[MAX_RANK], *off_at[1] = {ex_i(x, 0)}, *on_at[1] = {ex_i(x, 1)};
    for (int i = 0; i < indices->rank; i++) index[i] = ex_var(x, i < axis ? i : i + 1);
    DType work = dt_is_int(indices->dt) && dt_bits(indices->dt) <= 32 && indices->dt != DT_u32
                     ? DT_i32
                     : DT_i64;
    const Expr *at = ex_cast(x, work, build_load(&b, indices, index));
    const Expr *wrapped =
        ex_select(x, ex_lt(x, at, ex_int(x, work, 0)), ex_add(x, at, ex_int(x, work, extent)), at);
    const Expr *hit = ex_bin(x, EX_eq, wrapped, ex_cast(x, work, ex_var(x, axis)));
    const Expr *e =
        ex_select(x, hit, build_load(&b, values, on_at), build_load(&b, values, off_at));
    n->out[0] = build_map(&b, values->dt, e);
}
