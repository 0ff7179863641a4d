/* Operators that move elements: slices, padding, concatenation, blocks. Each is one map whose body
 * loads from a computed place. Bounds that are known only at run time (starts of Slice, pads of
 * Pad) become part of the index, clamped so that no load leaves its tensor. */
#include "compiler/onnx/import.h"

#include <string.h>

/* --- Concat and Split ------------------------------------------------------------------------- */

void import_concat(Node *n) {
    Value *first = node_need(n, 0);
    if (!first) return;
    if (n->version >= 4 && !attr_has(n, "axis")) {
        invalid(n, E2004, "attribute 'axis' is missing");
        return;
    }
    int axis = node_axis(n, attr_int(n, "axis", 1), first->rank);
    int count = n->n_in;
    Value **v = ARENA_ARRAY(n->g->arena, count, Value *);
    int64_t shape[MAX_RANK] = {0};
    if (axis < 0) return;
    for (int i = 0; i < first->rank; i++) shape[i] = first->dims[i];
    shape[axis] = 0;
    for (int i = 0; i < count; i++) {
        if (!(v[i] = node_need(n, i))) return;
        bool fits = v[i]->rank == first->rank;
        for (int k = 0; k < first->rank && fits; k++)
            fits = k == axis || dim_meets(n->x, v[i]->dims[k], first->dims[k]);
        if (!fits) {
            invalid(n, E2005, "shapes %s and %s differ on another axis than %d",
                    shape_text(n->g->arena, first->rank, first->dims),
                    shape_text(n->g->arena, v[i]->rank, v[i]->dims), axis);
            return;
        }
        if (v[i]->dt != first->dt) {
            invalid(n, E2006, "inputs are %s and %s", dt_name(first->dt), dt_name(v[i]->dt));
            return;
        }
        for (int k = 0; k < first->rank; k++)
            shape[k] = k == axis ? dim_add(n->x, shape[k], v[i]->dims[k])
                                 : dim_same(shape[k], v[i]->dims[k]);
    }
    if (!node_shape_ok(n, first->rank, shape)) return;
    n->out[0] = g_concat(n->g, count, v, axis);
}

/* Extents of the parts along the axis from an attribute or input, the number of outputs, or the
 * declared shapes of the outputs. False after a report. */
static bool split_sizes(Node *n, int axis, int64_t extent, int64_t *size) {
    int count;
    bool by_input = n->version == 1 || n->version >= 13;
    const int64_t *given = by_input ? node_ints(n, 1, &count) : NULL;
    if (!given && n->version < 13) given = attr_ints(n, "split", &count);
    if (n->failed) return false;
    if (given) {
        if (count != n->n_out) {
            invalid(n, E2007, "split names %d parts for %d outputs", count, n->n_out);
            return false;
        }
        for (int i = 0; i < count; i++) size[i] = given[i];
        return true;
    }
    if (by_input && node_in(n, 1)) { /* computed at run time */
        Value *sizes = node_in(n, 1);
        if (sizes->rank != 1 || sizes->dims[0] != n->n_out || !dt_is_int(sizes->dt)) {
            invalid(n, E2005, "split must be %d integers", n->n_out);
            return false;
        }
        int64_t left = extent;
        for (int i = 0; i < n->n_out; i++) {
            int64_t start[1] = {i}, one[1] = {1};
            Value *own = g_slice(n->g, sizes, start, one, one);
            if (!node_chosen_extent(n, own, i, axis, left, false, &size[i])) return false;
            if (dim_varies(size[i]))
                size[i] = dim_larger(n->x, dim_smaller(n->x, size[i], left), 0);
            left = dim_sub(n->x, left, size[i]);
        }
        return true;
    }
    int64_t parts = attr_int(n, "num_outputs", n->n_out);
    bool divides = dim_varies(extent) || extent % n->n_out == 0;
    if (parts != n->n_out || (n->version < 18 && !divides)) {
        invalid(n, E2007, "an extent of %lld split into %lld parts for %d outputs",
                (long long)extent, (long long)parts, n->n_out);
        return false;
    }
    int64_t each = dim_div(n->x, dim_add(n->x, extent, parts - 1), parts), left = extent;
    for (int i = 0; i < n->n_out; i++) {
        size[i] = dim_smaller(n->x, left, each);
        left = dim_sub(n->x, left, size[i]);
    }
    return true;
}

void import_split(Node *n) {
    Value *v = node_need(n, 0);
    if (!v || n->n_out < 1) return;
    int axis = node_axis(n, attr_int(n, "axis", 0), v->rank);
    int64_t *size = ARENA_ARRAY(n->g->arena, n->n_out, int64_t);
    if (axis < 0 || !split_sizes(n, axis, v->dims[axis], size)) return;
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK], extent[MAX_RANK], sum = 0;
    for (int i = 0; i < n->n_out; i++) {
        if (size[i] < 0 && !dim_varies(size[i])) sum = -1;
        if (sum == -1) break;
        sum = dim_add(n->x, sum, size[i]);
    }
    if (sum == -1 || !dim_meets(n->x, sum, v->dims[axis])) {
        invalid(n, E2005, "the parts do not add up to the extent of axis %d, %lld", axis,
                (long long)v->dims[axis]);
        return;
    }
    for (int i = 0; i < v->rank; i++) {
        step[i] = 1;
        extent[i] = v->dims[i];
    }
    for (int i = 0; i < n->n_out; i++) {
        extent[axis] = size[i];
        if (node_wants(n, i)) n->out[i] = g_slice(n->g, v, start, step, extent);
        start[axis] = dim_add(n->x, start[axis], size[i]);
    }
}

/* --- Slice ------------------------------------------------------------------------------------ */

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* A bound of a slice: from the end where it is negative, then brought to `low` where below, to
 * `high` where above. */
static const Expr *slice_bound(Exprs *x, int64_t bound, const Expr *extent, const Expr *low,
                               const Expr *high) {
    int64_t least, most;
    const Expr *e =
        dim_varies(bound) ? dim_expr(x, bound) : ex_i(x, clamp(bound, -(1 << 30), 1 << 30));
    const Expr *from_end = ex_add(x, e, extent);
    if (!dim_bounds(x, e, &least, &most) || (least < 0 && most >= 0))
        e = ex_select(x, ex_lt(x, e, ex_i(x, 0)), from_end, e);
    else if (least < 0)
        e = from_end;
    return ex_bin(x, EX_min, ex_bin(x, EX_max, e, low), high);
}

/* slice_range where dimensions vary; false if there is no bound on the count. */
static bool slice_varying(Exprs *x, int64_t extent, int64_t *start, int64_t end, int64_t step,
                          int64_t *count) {
    const Expr *e = dim_expr(x, extent), *zero = ex_i(x, 0), *one = ex_i(x, 1);
    const Expr *low = step > 0 ? zero : ex_i(x, -1), *high = step > 0 ? e : ex_sub(x, e, one);
    int64_t first, last;
    if (!dim_from_expr(x, slice_bound(x, *start, e, zero, high), &first) ||
        !dim_from_expr(x, slice_bound(x, end, e, low, high), &last))
        return false;
    bool to_end = !dim_varies(end) && end >= dim_max(x, extent);
    if (step == 1 && *start < 0 && !dim_varies(*start) && to_end) {
        *count = dim_smaller(x, extent, -*start); /* which `last` - `first` does not show */
        *start = first;
        return true;
    }
    int64_t span = step > 0 ? dim_sub(x, last, first) : dim_sub(x, first, last);
    int64_t stride = step > 0 ? step : -step;
    *start = first;
    *count = dim_div(x, dim_larger(x, dim_add(x, span, stride - 1), 0), stride);
    return true;
}

/* Start and count of a slice along an extent. A backward one that starts before the first element
 * starts there (the operator's text, unlike numpy), if there is one. */
static void slice_range(int64_t extent, int64_t *start, int64_t end, int64_t step, int64_t *count) {
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
    int64_t first = *start < 0 ? *start + extent : *start;
    int64_t last = end < 0 ? end + extent : end;
    first = first < 0 ? 0 : first;
    *start = first > high ? high : first;
    last = clamp(last, low, high);
    if (step > 0)
        *count = last > *start ? (last - *start - 1) / step + 1 : 0;
    else
        *count = *start > last ? (*start - last - 1) / -step + 1 : 0;
}

typedef struct SliceArgs {
    int count;
    const int64_t *start, *end, *axis, *step; /* axis, step: NULL where left out */
} SliceArgs;

static void slice_constant(Node *n, Value *v, const SliceArgs *s) {
    int64_t start[MAX_RANK], step[MAX_RANK], count[MAX_RANK];
    for (int i = 0; i < v->rank; i++) {
        start[i] = 0;
        step[i] = 1;
        count[i] = v->dims[i];
    }
    uint32_t seen = 0;
    for (int i = 0; i < s->count; i++) {
        int axis = node_axis(n, s->axis ? s->axis[i] : i, v->rank);
        if (axis < 0) return;
        if (seen >> axis & 1) {
            invalid(n, E2004, "axis %d is given twice", axis);
            return;
        }
        seen |= 1u << axis;
        step[axis] = s->step ? s->step[i] : 1;
        if (step[axis] == 0) {
            invalid(n, E2004, "step 0 along axis %d", axis);
            return;
        }
        /* a longer step than any extent takes the same one element */
        step[axis] = clamp(step[axis], -INT32_MAX, INT32_MAX);
        start[axis] = s->start[i];
        if (dim_varies(v->dims[axis]) || dim_varies(start[axis]) || dim_varies(s->end[i])) {
            if (slice_varying(n->x, v->dims[axis], &start[axis], s->end[i], step[axis],
                              &count[axis]))
                continue;
            unsupported(n, "a slice along axis %d without a bound", axis);
            return;
        }
        slice_range(v->dims[axis], &start[axis], s->end[i], step[axis], &count[axis]);
        if (count[axis] <= 1) step[axis] = 1;
        if (count[axis] == 0) start[axis] = 0;
    }
    n->out[0] = g_slice(n->g, v, start, step, count);
}

/* Element i of a vector of integers, as i64. */
static const Expr *load_i64(Builder *b, Value *v, int i) {
    const Expr *at[1] = {ex_i(b->x, i)};
    return ex_cast(b->x, DT_i64, build_load(b, v, at));
}

/* Brought to `high` where above it, then to `low` where below. */
static const Expr *clamp_expr(Exprs *x, const Expr *e, int64_t low, int64_t high) {
    return ex_bin(x, EX_max, ex_bin(x, EX_min, e, ex_int(x, DT_i64, high)), ex_int(x, DT_i64, low));
}

/* A slice whose bounds are computed at run time. */
typedef struct Bounds {
    Value *starts, *ends, *axes, *steps; /* vectors of `count`; axes, steps: NULL where left out */
    const int64_t *axis;                 /* axes, if they are constant */
    int count;
} Bounds;

/* Start, end and step along dimension d, i64. *cut: whether the slice is along it. */
static void bounds_along(Builder *b, const Bounds *s, const Value *v, int d, const Expr **start,
                         const Expr **end, const Expr **step, bool *cut) {
    Exprs *x = b->x;
    int64_t extent = v->dims[d];
    const Expr *zero = ex_int(x, DT_i64, 0), *all = ex_int(x, DT_i64, extent);
    *start = zero;
    *end = all;
    *step = ex_int(x, DT_i64, 1);
    *cut = false;
    for (int i = 0; i < s->count; i++) {
        const Expr *here = ex_int(x, DT_bool, 1); /* whether entry i is for this axis */
        if (s->axis || !s->axes) {
            if (clamp(s->axis ? s->axis[i] : i, -v->rank, v->rank) != d &&
                (!s->axis || s->axis[i] + v->rank != d))
                continue;
        } else {
            const Expr *a = load_i64(b, s->axes, i);
            here = ex_bin(x, EX_or, ex_bin(x, EX_eq, a, ex_int(x, DT_i64, d)),
                          ex_bin(x, EX_eq, a, ex_int(x, DT_i64, d - v->rank)));
        }
        *cut = true;
        *start = ex_select(x, here, load_i64(b, s->starts, i), *start);
        *end = ex_select(x, here, load_i64(b, s->ends, i), *end);
        if (s->steps) *step = ex_select(x, here, load_i64(b, s->steps, i), *step);
    }
    if (!*cut) return;
    /* negative bounds count from the end; a backward slice begins inside, and may end before all */
    const Expr *back = ex_lt(x, *step, zero), *last = ex_int(x, DT_i64, extent - 1);
    const Expr *low = ex_select(x, back, ex_int(x, DT_i64, -1), zero);
    *start = ex_select(x, ex_lt(x, *start, zero), ex_add(x, *start, all), *start);
    *start = ex_bin(x, EX_min, ex_bin(x, EX_max, *start, zero), ex_select(x, back, last, all));
    *end = ex_select(x, ex_lt(x, *end, zero), ex_add(x, *end, all), *end);
    *end = ex_bin(x, EX_min, ex_bin(x, EX_max, *end, low), all);
}

/* How many elements the slice takes along each dimension, i64[rank]. */
static Value *slice_counts(Node *n, const Bounds *s, const Value *v) {
    Exprs *x = n->x;
    int64_t rank = v->rank;
    Builder b = build(n->g, 1, &rank);
    const Expr *all = NULL, *zero = ex_int(x, DT_i64, 0), *one = ex_int(x, DT_i64, 1);
    for (int d = v->rank - 1; d >= 0; d--) {
        const Expr *start, *end, *step, *count = ex_int(x, DT_i64, v->dims[d]);
        bool cut;
        bounds_along(&b, s, v, d, &start, &end, &step, &cut);
        if (cut) {
            const Expr *back = ex_lt(x, step, zero);
            const Expr *span = ex_select(x, back, ex_sub(x, start, end), ex_sub(x, end, start));
            const Expr *stride = ex_select(x, back, ex_sub(x, zero, step), step);
            count = ex_add(x, ex_div(x, ex_sub(x, span, one), stride), one);
            count = ex_select(x, ex_lt(x, zero, span), count, zero);
        }
        all = all ? ex_select(x, ex_bin(x, EX_eq, ex_var(x, 0), ex_i(x, d)), count, all) : count;
    }
    return build_map(&b, DT_i64, all ? all : zero);
}

/* A slice with bounds that are computed at run time: to the declared shape, or as many elements as
 * they say. */
static void slice_runtime(Node *n, Value *v) {
    Exprs *x = n->x;
    Bounds s = {.starts = node_in(n, 1), .ends = node_in(n, 2), .axes = node_in(n, 3)};
    s.steps = node_in(n, 4);
    int n_axes, rank;
    int64_t shape[MAX_TENSOR_RANK];
    int64_t count = s.starts->rank == 1 ? s.starts->dims[0] : -1;
    s.axis = node_fixed_ints(n, 3, &n_axes);
    for (int i = 2; i <= 4; i++) {
        const Value *other = node_in(n, i);
        if (other && (other->rank != 1 || other->dims[0] != count)) count = -1;
    }
    if (count < 0 || count > v->rank) {
        invalid(n, E2005, "starts, ends, axes and steps do not fit each other or the input");
        return;
    }
    s.count = (int)count;
    if (!node_counted_shape(n, slice_counts(n, &s, v), v->dims, &rank, shape)) return;
    if (rank != v->rank) {
        invalid(n, E2009, "declared with %d dimensions, but computed with %d", rank, v->rank);
        return;
    }
    if (value_numel(v) == 0 && shape_numel(rank, shape) > 0) {
        invalid(n, E2009, "declared with shape %s, but the input is empty",
                shape_text(n->g->arena, rank, shape));
        return;
    }
    if (!node_shape_ok(n, rank, shape)) return;
    Builder b = build(n->g, v->rank, shape);
    const Expr *index[MAX_RANK];
    for (int d = 0; d < v->rank; d++) {
        const Expr *start, *end, *step, *at = ex_cast(x, DT_i64, ex_var(x, d));
        bool cut;
        bounds_along(&b, &s, v, d, &start, &end, &step, &cut);
        at = ex_add(x, start, ex_mul(x, at, step));
        index[d] = ex_cast(x, DT_i32, clamp_expr(x, at, 0, v->dims[d] - 1));
        if (!cut && shape[d] == v->dims[d]) index[d] = ex_var(x, d);
    }
    n->out[0] = build_map(&b, v->dt, build_load(&b, v, index));
}

void import_slice(Node *n) {
    Value *v = node_need(n, 0);
    int n_start, n_end, n_axis, n_step = 0;
    SliceArgs s = {0};
    if (!v) return;
    if (n->version < 10) {
        s.start = attr_ints(n, "starts", &n_start);
        s.end = attr_ints(n, "ends", &n_end);
        s.axis = attr_ints(n, "axes", &n_axis);
        if (n->failed) return;
        if (!s.start || !s.end) {
            invalid(n, E2004, "attributes 'starts' and 'ends' are missing");
            return;
        }
    } else {
        Value *starts = node_need(n, 1), *ends = node_need(n, 2);
        if (!starts || !ends) return;
        s.start = node_ints(n, 1, &n_start);
        s.end = node_ints(n, 2, &n_end);
        s.axis = node_fixed_ints(n, 3, &n_axis);
        s.step = node_fixed_ints(n, 4, &n_step);
        bool known = s.start && s.end && (s.axis || !node_in(n, 3)) && (s.step || !node_in(n, 4));
        if (!known) {
            for (int i = 1; i <= 4; i++)
                if (node_in(n, i) && !dt_is_int(node_in(n, i)->dt))
                    invalid(n, E2006, "bounds must be integers, not %s",
                            dt_name(node_in(n, i)->dt));
            if (!n->failed) slice_runtime(n, v);
            return;
        }
    }
    s.count = n_start;
    if (n_end != n_start || (s.axis && n_axis != n_start) || (s.step && n_step != n_start)) {
        invalid(n, E2005, "starts, ends, axes and steps have %d, %d, %d and %d entries", n_start,
                n_end, n_axis, n_step);
        return;
    }
    slice_constant(n, v, &s);
}

/* --- Pad -------------------------------------------------------------------------------------- */

typedef enum PadMode { PAD_constant, PAD_reflect, PAD_edge, PAD_wrap } PadMode;

static bool pad_mode(Node *n, PadMode *mode) {
    int i = attr_choice(n, "mode", PAD_constant, "constant reflect edge wrap");
    *mode = (PadMode)i;
    return i >= 0;
}

/* at % period, with a result in [0, period). */
static const Expr *wrap_expr(Exprs *x, const Expr *at, int64_t period) {
    const Expr *p = ex_i(x, period);
    const Expr *r = ex_bin(x, EX_rem, at, p);
    return ex_select(x, ex_lt(x, r, ex_i(x, 0)), ex_add(x, r, p), r);
}

/* Where along an extent the element at `at` (which may be outside) comes from. */
static const Expr *pad_source(Exprs *x, PadMode mode, const Expr *at, int64_t extent) {
    if (mode == PAD_wrap) return wrap_expr(x, at, extent);
    if (mode == PAD_edge)
        return ex_bin(x, EX_min, ex_bin(x, EX_max, at, ex_i(x, 0)), ex_i(x, extent - 1));
    if (extent == 1) return ex_i(x, 0);
    int64_t period = dim_larger(x, dim_mul(x, 2, dim_add(x, extent, -1)), 0);
    const Expr *folded = wrap_expr(x, at, dim_larger(x, period, 1));
    return ex_bin(x, EX_min, folded, ex_sub(x, ex_i(x, period), folded));
}

/* A pad that repeats elements of the tensor, of dimension d and those behind it. */
typedef struct Repeat {
    Builder *b;
    Value *v;
    PadMode mode;
    const Expr *const *before;
    const Expr *index[MAX_RANK];
} Repeat;

/* Where what lies `at` before the first element, or behind the last, comes from, not more than an
 * extent away. */
static const Expr *near_source(Exprs *x, PadMode mode, const Expr *at, int64_t extent,
                               bool behind) {
    if (mode == PAD_edge) return ex_i(x, behind ? extent - 1 : 0);
    if (mode == PAD_wrap) return ex_add(x, at, ex_i(x, behind ? -extent : extent));
    return ex_sub(x, ex_i(x, behind ? 2 * (extent - 1) : 0), at);
}

/* An element of the result: one of three loads along each dimension that is padded. So loops can be
 * cut where one load ends and the next begins, and in between rows are copied. */
static const Expr *repeated(Repeat *r, int d) {
    Exprs *x = r->b->x;
    if (d == r->v->rank) return build_load(r->b, r->v, r->index);
    const Expr *at = r->index[d] = ex_sub(x, ex_var(x, d), r->before[d]), *part[2];
    const Expr *e = repeated(r, d + 1);
    if (ex_is_int(r->before[d], 0) && r->b->shape[d] == r->v->dims[d]) return e;
    for (int behind = 0; behind < 2; behind++) {
        r->index[d] = near_source(x, r->mode, at, r->v->dims[d], behind);
        part[behind] = repeated(r, d + 1);
    }
    e = ex_select(x, ex_lt(x, at, ex_i(x, r->v->dims[d])), e, part[1]);
    return ex_select(x, ex_le(x, ex_i(x, 0), at), e, part[0]);
}

/* Does every element of a padded result lie at most an extent away from the tensor, along two
 * dimensions at most? */
static bool repeats_near(const Builder *b, const Value *v, PadMode mode,
                         const Expr *const *before) {
    int moved = 0;
    for (int d = 0; d < v->rank; d++) {
        if (!ex_is_const(before[d]) || dim_varies(v->dims[d]) || dim_varies(b->shape[d]))
            return false;
        int64_t first = before[d]->k.i, last = b->shape[d] - v->dims[d] - first;
        int64_t most = mode == PAD_edge ? INT32_MAX : v->dims[d] - (mode == PAD_reflect);
        moved += first != 0 || last != 0;
        if (first > most || last > most || v->dims[d] == 0) return false;
    }
    return mode != PAD_constant && moved > 0 && moved <= 2;
}

/* before[d]: elements put before the first along d, as an i32 expression. */
static void set_padded(Node *n, Builder *b, Value *v, PadMode mode, const Expr *const *before,
                       Value *fill) {
    Exprs *x = n->x;
    const Expr *index[MAX_RANK], *inside = ex_int(x, DT_bool, 1), *zeros[MAX_RANK];
    if (repeats_near(b, v, mode, before)) {
        Repeat r = {.b = b, .v = v, .mode = mode, .before = before};
        n->out[0] = build_map(b, v->dt, repeated(&r, 0));
        return;
    }
    for (int d = 0; d < v->rank; d++) {
        const Expr *at = ex_sub(x, ex_var(x, d), before[d]);
        bool moved = !ex_is_int(before[d], 0) || b->shape[d] != v->dims[d];
        index[d] = moved && mode != PAD_constant ? pad_source(x, mode, at, v->dims[d]) : at;
        if (!moved || mode != PAD_constant) continue;
        inside = ex_and(x, inside, ex_le(x, ex_i(x, 0), at));
        inside = ex_and(x, inside, ex_lt(x, at, ex_i(x, v->dims[d])));
    }
    for (int d = 0; d < MAX_RANK; d++) zeros[d] = ex_i(x, 0);
    const Expr *e = build_load(b, v, index);
    const Expr *other = fill ? build_load(b, fill, zeros) : ex_num(x, v->dt, 0);
    n->out[0] = build_map(b, v->dt, ex_select(x, inside, e, other));
}

/* Which entry of `axes` is for each dimension, -1 if none; axes NULL: entry d. */
static bool pad_axes(Node *n, int rank, int count, const int64_t *axes, int *entry) {
    for (int d = 0; d < rank; d++) entry[d] = axes ? -1 : d;
    for (int i = 0; axes && i < count; i++) {
        int axis = node_axis(n, axes[i], rank);
        if (axis < 0) return false;
        entry[axis] = i;
    }
    return true;
}

/* A pad computed at run time, in a range where sums with it cannot overflow. */
static const Expr *pad_value(Exprs *x, const Expr *e) {
    return ex_cast(x, DT_i32, clamp_expr(x, e, -(1 << 30), 1 << 30));
}

/* The pad before dimension d where the axes, too, are known only at run time. */
static const Expr *pad_by_axis(Builder *b, int rank, int d, int count, Value *axes, Value *pads) {
    Exprs *x = b->x;
    const Expr *result = ex_int(x, DT_i64, 0);
    for (int i = 0; i < count; i++) {
        const Expr *axis = load_i64(b, axes, i);
        const Expr *here = ex_bin(x, EX_or, ex_bin(x, EX_eq, axis, ex_int(x, DT_i64, d)),
                                  ex_bin(x, EX_eq, axis, ex_int(x, DT_i64, d - rank)));
        result = ex_select(x, here, load_i64(b, pads, i), result);
    }
    return pad_value(x, result);
}

/* The shape after pads that are computed at run time. axes: NULL where they are known. */
static bool padded_shape(Node *n, Value *v, int count, const int *entry, Value *axes, Value *pads,
                         int64_t *shape) {
    Exprs *x = n->x;
    int64_t rank = v->rank, behind[1] = {count}, one[1] = {1}, half[1] = {count};
    int declared;
    if (!dt_is_int(pads->dt) || (axes && !dt_is_int(axes->dt))) {
        invalid(n, E2006, "pads and axes must be integers");
        return false;
    }
    Builder b = build(n->g, 1, &rank);
    Value *after = g_slice(n->g, pads, behind, one, half);
    const Expr *all = ex_int(x, DT_i64, 0);
    for (int d = v->rank - 1; d >= 0; d--) {
        const Expr *e = ex_int(x, DT_i64, v->dims[d]);
        for (int side = 0; side < 2; side++) {
            Value *part = side ? after : pads;
            const Expr *pad = axes           ? pad_by_axis(&b, v->rank, d, count, axes, part)
                              : entry[d] < 0 ? ex_i(x, 0)
                                             : pad_value(x, load_i64(&b, part, entry[d]));
            e = ex_add(x, e, ex_cast(x, DT_i64, pad));
        }
        all = ex_select(x, ex_bin(x, EX_eq, ex_var(x, 0), ex_i(x, d)), e, all);
    }
    if (!node_counted_shape(n, build_map(&b, DT_i64, all), NULL, &declared, shape)) return false;
    if (declared == v->rank) return true;
    invalid(n, E2009, "declared with %d dimensions, but computed with %d", declared, v->rank);
    return false;
}

void import_pad(Node *n) {
    Value *v = node_need(n, 0), *pads_value = NULL, *axes_value = NULL, *fill = node_in(n, 2);
    int count, n_axes = 0, entry[MAX_RANK];
    int64_t shape[MAX_TENSOR_RANK];
    PadMode mode;
    if (!v || !pad_mode(n, &mode)) return;
    const int64_t *pads, *axes = NULL;
    if (n->version < 11) {
        pads = attr_ints(n, n->version < 2 ? "paddings" : "pads", &count);
        fill = g_scalar(n->g, v->dt, attr_float(n, "value", 0));
        if (!pads && !n->failed) invalid(n, E2004, "attribute 'pads' is missing");
    } else {
        if (!(pads_value = node_need(n, 1))) return;
        pads = node_ints(n, 1, &count);
        axes_value = node_in(n, 3);
        axes = node_fixed_ints(n, 3, &n_axes);
        if (axes_value && !axes) pads = NULL; /* all is left to run time */
        if (axes_value) n_axes = (int)value_numel(axes_value);
    }
    if (n->failed) return;
    bool vectors = (!pads_value || pads_value->rank == 1) && (!axes_value || axes_value->rank == 1);
    if (!pads) count = vectors && !dim_varies(pads_value->dims[0]) ? (int)pads_value->dims[0] : -1;
    if (fill && (value_numel(fill) != 1 || fill->dt != v->dt)) {
        invalid(n, E2006, "the constant must be one element of type %s", dt_name(v->dt));
        return;
    }
    int padded = axes_value ? n_axes : v->rank;
    if (count != 2 * padded || !pad_axes(n, v->rank, padded, axes, entry)) {
        if (!n->failed) invalid(n, E2005, "%d pads for %d dimensions", count, padded);
        return;
    }
    if (!pads && !padded_shape(n, v, padded, entry, axes ? NULL : axes_value, pads_value, shape))
        return;
    for (int d = 0; d < v->rank && pads; d++) {
        int64_t before = entry[d] < 0 ? 0 : pads[entry[d]];
        int64_t after = entry[d] < 0 ? 0 : pads[entry[d] + padded];
        bool large = before > INT32_MAX || after > INT32_MAX;
        if (large || (before < -INT32_MAX && !dim_varies(before)) ||
            (after < -INT32_MAX && !dim_varies(after))) {
            invalid(n, E2004, "pads of %lld and %lld", (long long)before, (long long)after);
            return;
        }
        shape[d] = dim_add(n->x, v->dims[d], dim_add(n->x, before, after));
    }
    if (!node_shape_ok(n, v->rank, shape)) return;
    if (mode != PAD_constant && !node_source_ok(n, v, v->rank, shape)) return;
    Builder b = build(n->g, v->rank, shape);
    const Expr *before[MAX_RANK];
    for (int d = 0; d < v->rank; d++) {
        if (axes_value && !axes)
            before[d] = pad_by_axis(&b, v->rank, d, padded, axes_value, pads_value);
        else if (entry[d] < 0)
            before[d] = ex_i(n->x, 0);
        else if (pads)
            before[d] = ex_i(n->x, pads[entry[d]]);
        else
            before[d] = pad_value(n->x, load_i64(&b, pads_value, entry[d]));
    }
    set_padded(n, &b, v, mode, before, fill);
}

/* Extents that are computed at run time, for some axes, as those of all. */
static bool cropped_shape(Node *n, Value *v, const int *entry, int count, Value **extents) {
    Exprs *x = n->x;
    if (!dt_is_int((*extents)->dt) || (*extents)->rank != 1 || (*extents)->dims[0] != count) {
        invalid(n, E2005, "the shape must be %d integers", count);
        return false;
    }
    int64_t rank = v->rank;
    Builder b = build(n->g, 1, &rank);
    const Expr *all = ex_int(x, DT_i64, 0);
    for (int d = 0; d < v->rank; d++) {
        const Expr *e =
            entry[d] < 0 ? ex_int(x, DT_i64, v->dims[d]) : load_i64(&b, *extents, entry[d]);
        all = ex_select(x, ex_bin(x, EX_eq, ex_var(x, 0), ex_i(x, d)), e, all);
    }
    *extents = build_map(&b, DT_i64, all);
    return true;
}

void import_center_crop_pad(Node *n) {
    Value *v = node_need(n, 0);
    int count, n_axes = 0, rank, entry[MAX_RANK];
    int64_t shape[MAX_TENSOR_RANK];
    if (!v) return;
    const int64_t *want = node_ints(n, 1, &count), *axes = attr_ints(n, "axes", &n_axes);
    if (!pad_axes(n, v->rank, n_axes, axes, entry)) return;
    if (!want) {
        Value *extents = node_need(n, 1);
        if (!extents || !cropped_shape(n, v, entry, axes ? n_axes : v->rank, &extents)) return;
        if (!node_counted_shape(n, extents, NULL, &rank, shape)) return;
        if (rank != v->rank) {
            invalid(n, E2009, "declared with %d dimensions, but computed with %d", rank, v->rank);
            return;
        }
    } else {
        if (count != (axes ? n_axes : v->rank)) {
            invalid(n, E2005, "%d extents for %d axes", count, axes ? n_axes : v->rank);
            return;
        }
        for (int d = 0; d < v->rank; d++) shape[d] = entry[d] < 0 ? v->dims[d] : want[entry[d]];
    }
    if (!node_shape_ok(n, v->rank, shape)) return;
    Builder b = build(n->g, v->rank, shape);
    const Expr *before[MAX_RANK];
    for (int d = 0; d < v->rank; d++) {
        before[d] = ex_div(n->x, ex_i(n->x, dim_sub(n->x, shape[d], v->dims[d])), ex_i(n->x, 2));
    }
    set_padded(n, &b, v, PAD_constant, before, NULL);
}

/* --- triangles and blocks --------------------------------------------------------------------- */

void import_trilu(Node *n) {
    Value *v = node_need(n, 0), *k = node_in(n, 1);
    if (!v) return;
    if (v->rank < 2 || (k && value_numel(k) != 1)) {
        invalid(n, E2005, "the input must have two dimensions or more, and k one element");
        return;
    }
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *distance = ex_sub(x, ex_var(x, v->rank - 1), ex_var(x, v->rank - 2));
    const Expr *zero[1] = {ex_i(x, 0)}, *limit = ex_i(x, 0);
    if (k)
        limit = ex_cast(
            x, DT_i32,
            clamp_expr(x, ex_cast(x, DT_i64, build_load(&b, k, zero)), -INT32_MAX, INT32_MAX));
    bool upper = attr_int(n, "upper", 1) != 0;
    const Expr *kept = upper ? ex_le(x, limit, distance) : ex_le(x, distance, limit);
    const Expr *e = ex_select(x, kept, build_in(&b, v), ex_num(x, v->dt, 0));
    n->out[0] = build_map(&b, v->dt, e);
}

/* The block size, or 0 after a report. */
static int64_t block_size(Node *n, const Value *v) {
    int64_t size = attr_int(n, "blocksize", 0);
    if (v->rank == 4 && size > 0 && size < 1 << 15) return size;
    if (v->rank != 4)
        invalid(n, E2005, "an input of %d dimensions, expected 4", v->rank);
    else
        invalid(n, E2004, "a block size of %lld", (long long)size);
    return 0;
}

void import_depth_to_space(Node *n) {
    Value *v = node_need(n, 0);
    int64_t size = v ? block_size(n, v) : 0;
    bool column_first = attr_choice(n, "mode", 0, "DCR CRD") == 1;
    if (!size || n->failed) return;
    if (!dim_varies(v->dims[1]) && v->dims[1] % (size * size)) {
        invalid(n, E2005, "%lld channels are no multiple of %lld", (long long)v->dims[1],
                (long long)(size * size));
        return;
    }
    Exprs *x = n->x;
    int64_t depth = dim_div(x, v->dims[1], size * size);
    int64_t shape[4] = {v->dims[0], depth, dim_mul(x, v->dims[2], size),
                        dim_mul(x, v->dims[3], size)};
    if (!node_shape_ok(n, 4, shape)) return;
    Builder b = build(n->g, 4, shape);
    const Expr *s = ex_i(x, size), *h = ex_var(x, 2), *w = ex_var(x, 3), *c = ex_var(x, 1);
    const Expr *block = ex_add(x, ex_mul(x, ex_bin(x, EX_rem, h, s), s), ex_bin(x, EX_rem, w, s));
    const Expr *channel = column_first ? ex_add(x, ex_mul(x, c, ex_i(x, size * size)), block)
                                       : ex_add(x, ex_mul(x, block, ex_i(x, depth)), c);
    const Expr *index[4] = {ex_var(x, 0), channel, ex_div(x, h, s), ex_div(x, w, s)};
    n->out[0] = build_map(&b, v->dt, build_load(&b, v, index));
}

void import_space_to_depth(Node *n) {
    Value *v = node_need(n, 0);
    int64_t size = v ? block_size(n, v) : 0;
    bool column_first = attr_choice(n, "mode", 0, "DCR CRD") == 1;
    if (!size || n->failed) return;
    if ((!dim_varies(v->dims[2]) && v->dims[2] % size) ||
        (!dim_varies(v->dims[3]) && v->dims[3] % size)) {
        invalid(n, E2005, "%lld by %lld is no multiple of %lld", (long long)v->dims[2],
                (long long)v->dims[3], (long long)size);
        return;
    }
    Exprs *x = n->x;
    int64_t depth = v->dims[1];
    int64_t shape[4] = {v->dims[0], dim_mul(x, depth, size * size), dim_div(x, v->dims[2], size),
                        dim_div(x, v->dims[3], size)};
    if (!node_shape_ok(n, 4, shape) || depth == 0) {
        if (!n->failed) n->out[0] = g_reshape(n->g, v, 4, shape);
        return;
    }
    Builder b = build(n->g, 4, shape);
    const Expr *s = ex_i(x, size), *k = ex_var(x, 1), *c, *block;
    if (column_first) {
        c = ex_div(x, k, ex_i(x, size * size));
        block = ex_bin(x, EX_rem, k, ex_i(x, size * size));
    } else {
        c = ex_bin(x, EX_rem, k, ex_i(x, depth));
        block = ex_div(x, k, ex_i(x, depth));
    }
    const Expr *h = ex_add(x, ex_mul(x, ex_var(x, 2), s), ex_div(x, block, s));
    const Expr *w = ex_add(x, ex_mul(x, ex_var(x, 3), s), ex_bin(x, EX_rem, block, s));
    const Expr *index[4] = {ex_var(x, 0), c, h, w};
    n->out[0] = build_map(&b, v->dt, build_load(&b, v, index));
}
