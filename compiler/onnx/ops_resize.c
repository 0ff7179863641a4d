/* Resize and Upsample.
 *
 * Every axis is a thing of its own: a position in the input for each output coordinate, and from it
 * the first of some neighbouring elements ("taps") and a weight for each. These are small tensors
 * along the axis, computed in f32 as graph operators, so they fold into tables when the scales are
 * constant and are computed at run time when they are not. Nearest takes one tap of all axes in one
 * map; linear over few axes is one map too; all else goes axis by axis.
 *
 * Scales, sizes and roi may be run-time values where the output's shape is declared.
 */
#include "compiler/onnx/window.h"

#include <math.h>
#include <string.h>

typedef enum ResizeMode { RESIZE_nearest, RESIZE_linear, RESIZE_cubic } ResizeMode;

/* How output coordinates become positions in the input. */
typedef enum Coordinates {
    AT_half_pixel,
    AT_half_pixel_symmetric,
    AT_pytorch_half_pixel,
    AT_align_corners,
    AT_asymmetric,
    AT_tf_half_pixel_for_nn,
    AT_tf_crop_and_resize
} Coordinates;

static const char coordinate_names[] =
    "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
    "tf_half_pixel_for_nn tf_crop_and_resize";

/* Which neighbour is nearest. `simple` is that of opset 10: down where the output is larger, else
 * up. */
typedef enum Nearest { TO_prefer_floor, TO_prefer_ceil, TO_floor, TO_ceil, TO_simple } Nearest;

static const char nearest_names[] = "round_prefer_floor round_prefer_ceil floor ceil";

typedef enum Policy { FIT_stretch, FIT_not_larger, FIT_not_smaller } Policy;

static const char policy_names[] = "stretch not_larger not_smaller";

typedef struct Axis {
    int number;      /* of the input; -1: not resized */
    int64_t in, out; /* may vary */
    int slot;        /* its place in scales, sizes and roi */
    bool exact;      /* the scale is out / in */
    bool known;      /* the scale is constant: */
    float scale;
    Value *position; /* [out] f32; NULL: coordinate and position are the same */
} Axis;

typedef struct Resize {
    Node *n;
    Graph *g;
    Exprs *x;
    Value *v, *roi, *scales, *sizes; /* NULL: absent */
    const int64_t *want;             /* the sizes where they are known, perhaps to vary */
    ResizeMode mode;
    Coordinates at;
    Nearest nearest;
    Policy policy;
    bool antialias, exclude;
    double cubic_a, beyond; /* beyond: value where tf_crop_and_resize leaves the input */
    int n_axes;             /* that scales, sizes and roi speak of */
    Axis axis[MAX_TENSOR_RANK];
    int64_t shape[MAX_TENSOR_RANK]; /* of the output */
} Resize;

/* --- reading ---------------------------------------------------------------------------------- */

/* Upsample had another name for `linear` at first. */
static bool read_mode(Resize *r) {
    static const ResizeMode modes[] = {RESIZE_nearest, RESIZE_linear, RESIZE_cubic, RESIZE_linear};
    int i = attr_choice(r->n, "mode", 0, "nearest linear cubic bilinear");
    if (i >= 0) r->mode = modes[i];
    return i >= 0;
}

static bool read_axes(Resize *r) {
    int count;
    const int64_t *axes = attr_ints(r->n, "axes", &count);
    if (r->n->failed) return false;
    r->n_axes = axes ? count : r->v->rank;
    bool seen[MAX_TENSOR_RANK] = {false};
    if (r->n_axes > r->v->rank) {
        invalid(r->n, E2004, "%d axes, but the input has %d dimensions", r->n_axes, r->v->rank);
        return false;
    }
    for (int i = 0; i < r->n_axes; i++) {
        int at = axes ? node_axis(r->n, axes[i], r->v->rank) : i;
        if (at < 0) return false;
        if (seen[at]) {
            invalid(r->n, E2004, "axis %d is given twice", at);
            return false;
        }
        seen[at] = true;
        r->axis[i] = (Axis){.number = at, .in = r->v->dims[at], .slot = i};
    }
    return true;
}

/* Number `i` of a constant, as f32. */
static float const_float(const Value *v, int64_t i) {
    return (float)dt_cast(v->dt, DT_f64, dt_load(v->dt, v->data, (size_t)i)).f;
}

static const Expr *f32(Resize *r, double value) {
    return ex_num(r->x, DT_f32, value);
}

static const Expr *extent_f32(Resize *r, int64_t extent) {
    return extent_as(r->x, DT_f32, extent);
}

/* The one ratio of sizes that keep the aspect ratio; sizes are read at run time if b is given. */
static const Expr *shared_ratio(Resize *r, Builder *b) {
    Exprs *x = r->x;
    const Expr *best = NULL;
    for (int i = 0; i < r->n_axes; i++) {
        const Expr *at[1] = {ex_i(x, i)};
        const Expr *size =
            r->want ? extent_f32(r, r->want[i]) : ex_cast(x, DT_f32, build_load(b, r->sizes, at));
        const Expr *ratio = ex_div(x, size, extent_f32(r, r->axis[i].in));
        best =
            !best ? ratio : ex_bin(x, r->policy == FIT_not_larger ? EX_min : EX_max, best, ratio);
    }
    return best;
}

/* The extent floor(scale * in + more) of an axis whose `in` or scale varies; -1 if it has no bound.
 */
static int64_t scaled_extent(Resize *r, const Axis *a, const Expr *scale, double more) {
    Exprs *x = r->x;
    const Expr *full = ex_add(x, ex_mul(x, scale, extent_f32(r, a->in)), f32(r, more));
    int64_t out = -1;
    return dim_from_expr(x, ex_cast(x, DT_i32, ex_un(x, EX_floor, full)), &out) ? out : -1;
}

/* floor(scale * in) for a constant scale. Whole numbers, and their inverses, keep dimensions
 * simple. */
static int64_t extent_by(Resize *r, const Axis *a) {
    float scale = a->scale, inverse = 1 / scale;
    if (scale >= 1 && scale <= 65536 && scale == floorf(scale))
        return dim_mul(r->x, a->in, (int64_t)scale);
    if (scale > 0 && scale < 1 && inverse <= 65536 && inverse == floorf(inverse) &&
        1 / inverse == scale)
        return dim_div(r->x, a->in, (int64_t)inverse);
    return scale > 0 && scale <= 65536 ? scaled_extent(r, a, f32(r, (double)scale), 0) : -1;
}

/* Output extents where an input's extents vary, or the sizes do. */
static bool extents_that_vary(Resize *r) {
    bool stretch = r->policy == FIT_stretch;
    if (r->scales ? !value_is_const(r->scales) : !r->want) return false;
    const Expr *shared = r->scales || stretch ? NULL : shared_ratio(r, NULL);
    for (int i = 0; i < r->n_axes; i++) {
        Axis *a = &r->axis[i];
        a->known = r->scales != NULL;
        a->exact = !r->scales && stretch;
        if (r->scales) {
            a->scale = const_float(r->scales, i);
            a->out = extent_by(r, a);
        } else {
            a->out = stretch ? r->want[i] : scaled_extent(r, a, shared, 0.5);
        }
    }
    return true;
}

/* Number `i` of the scales or sizes, which are known. */
static float told_number(const Resize *r, int i) {
    return r->want ? (float)r->want[i] : const_float(r->scales ? r->scales : r->sizes, i);
}

/* Output extents from constant scales or sizes; false: they are not constant. */
static bool shape_from_consts(Resize *r) {
    bool varies = r->want && dims_vary(r->n_axes, r->want);
    for (int i = 0; i < r->n_axes; i++) varies |= dim_varies(r->axis[i].in);
    if (varies) return extents_that_vary(r);
    float shared = 0;
    if (!r->want && !value_is_const(r->scales ? r->scales : r->sizes)) return false;
    for (int i = 0; i < r->n_axes; i++) {
        float ratio = told_number(r, i) / (float)r->axis[i].in;
        bool better = r->policy == FIT_not_larger ? ratio < shared : ratio > shared;
        if (i == 0 || better) shared = ratio;
    }
    for (int i = 0; i < r->n_axes; i++) {
        Axis *a = &r->axis[i];
        double out = told_number(r, i);
        a->known = true;
        if (r->scales) {
            a->scale = (float)out;
            out = floorf((float)a->in * a->scale);
            a->exact = out == (double)((float)a->in * a->scale);
        } else if (r->policy == FIT_stretch) {
            a->exact = true;
            a->scale = (float)out / (float)a->in;
        } else {
            a->scale = shared;
            out = floorf(shared * (float)a->in + 0.5f);
        }
        a->out = out >= 0 && out <= INT32_MAX ? (int64_t)out : -1;
    }
    return true;
}

/* The output's extents as the run-time scales or sizes have them, integers [rank]. */
static Value *counted_extents(Resize *r) {
    Exprs *x = r->x;
    int64_t rank = r->v->rank;
    bool all_axes = r->n_axes == rank;
    for (int i = 0; i < r->n_axes; i++) all_axes &= r->axis[i].number == i;
    if (all_axes && r->sizes && r->policy == FIT_stretch) return r->sizes;
    Builder b = build(r->n->g, 1, &rank);
    const Expr *all = extent_as(x, DT_i64, r->v->dims[0]);
    for (int d = 0; d < rank; d++) {
        const Expr *e = extent_as(x, DT_i64, r->v->dims[d]);
        for (int i = 0; i < r->n_axes; i++) {
            const Axis *a = &r->axis[i];
            const Expr *at[1] = {ex_i(x, i)}, *in = extent_f32(r, a->in);
            if (a->number != d) continue;
            if (r->sizes && r->policy == FIT_stretch) {
                e = ex_cast(x, DT_i64, build_load(&b, r->sizes, at));
            } else {
                const Expr *scale = r->scales ? ex_cast(x, DT_f32, build_load(&b, r->scales, at))
                                              : shared_ratio(r, &b);
                e = ex_add(x, ex_mul(x, scale, in), f32(r, r->scales ? 0 : 0.5));
                e = ex_cast(x, DT_i64, ex_un(x, EX_floor, e));
            }
        }
        all = ex_select(x, ex_bin(x, EX_eq, ex_var(x, 0), ex_i(x, d)), e, all);
    }
    return build_map(&b, DT_i64, all);
}

/* Output extents from scales or sizes that a run computes: as declared, or as they say. */
static bool shape_at_run_time(Resize *r) {
    int64_t shape[MAX_TENSOR_RANK];
    int rank;
    if (!node_declared_shape(r->n, 0, &rank, shape) &&
        !node_counted_shape(r->n, counted_extents(r), NULL, &rank, shape))
        return false;
    if (rank != r->v->rank) {
        invalid(r->n, E2009, "declared with %d dimensions, but the input has %d", rank, r->v->rank);
        return false;
    }
    for (int i = 0; i < r->n_axes; i++) {
        Axis *a = &r->axis[i];
        a->out = shape[a->number];
        a->exact = !r->scales && r->policy == FIT_stretch;
        a->known = a->exact && !dim_varies(a->in) && !dim_varies(a->out);
        if (a->known) a->scale = (float)a->out / (float)a->in;
    }
    return true;
}

/* Fills in out, scale and the output's shape. */
static bool read_extents(Resize *r) {
    Node *n = r->n;
    Value *told = r->scales ? r->scales : r->sizes;
    if (!told) {
        invalid(n, E2007, "neither scales nor sizes are given");
        return false;
    }
    if (told->rank != 1 || told->dims[0] != r->n_axes) {
        invalid(n, E2005, "%s of shape %s are given for %d axes", r->scales ? "scales" : "sizes",
                dims_text(r->x, told->rank, told->dims), r->n_axes);
        return false;
    }
    int count;
    if (!r->scales) r->want = node_ints(n, 3, &count);
    for (int i = 0; i < r->v->rank; i++) r->shape[i] = r->v->dims[i];
    if (!shape_from_consts(r) && !shape_at_run_time(r)) return false;
    for (int i = 0; i < r->n_axes; i++) {
        const Axis *a = &r->axis[i];
        r->shape[a->number] = a->out;
        if (dim_max(r->x, a->out) > 0 && dim_max(r->x, a->in) < 1) {
            invalid(n, E2005, "axis %d has no elements to resize", a->number);
            return false;
        }
        if (a->known && dim_max(r->x, a->out) > 0 && !(a->scale > 0)) {
            invalid(n, E2004, "the scale of axis %d is %g", a->number, (double)a->scale);
            return false;
        }
    }
    if (!node_shape_ok(n, r->v->rank, r->shape)) return false;
    return r->scales || node_source_ok(n, r->v, r->v->rank, r->shape);
}

/* --- positions -------------------------------------------------------------------------------- */

/* The scale of an axis, as f32. */
static const Expr *scale_of(Resize *r, Builder *b, const Axis *a) {
    Exprs *x = r->x;
    if (a->known) return f32(r, (double)a->scale);
    const Expr *at[1] = {ex_i(x, a->slot)};
    if (r->scales) return ex_cast(x, DT_f32, build_load(b, r->scales, at));
    return a->exact ? ex_div(x, extent_f32(r, a->out), extent_f32(r, a->in)) : shared_ratio(r, b);
}

/* The number of elements that the scale asks for, a fraction perhaps. */
static const Expr *full_width(Resize *r, const Axis *a, const Expr *scale) {
    return a->exact ? extent_f32(r, a->out) : ex_mul(r->x, scale, extent_f32(r, a->in));
}

/* The width that coordinates by corners go by. ONNX's text says the output's extent, which other
 * runtimes take; its tests, which only shrink, want what the scale asks for. */
static const Expr *corner_width(Resize *r, const Axis *a, const Expr *scale) {
    Exprs *x = r->x;
    const Expr *out = extent_f32(r, a->out), *full = full_width(r, a, scale);
    return a->exact ? out : ex_select(x, ex_lt(x, scale, f32(r, 1)), full, out);
}

/* o * (in - 1) / (width - 1), and `single` where the width is 1. */
static const Expr *by_corners(Resize *r, const Axis *a, const Expr *scale, const Expr *o,
                              const Expr *single) {
    Exprs *x = r->x;
    const Expr *width = corner_width(r, a, scale), *one = f32(r, 1);
    const Expr *is_one = ex_bin(x, EX_eq, width, one);
    const Expr *steps = ex_select(x, is_one, one, ex_sub(x, width, one));
    return ex_select(x, is_one, single, ex_div(x, ex_mul(x, o, extent_f32(r, a->in - 1)), steps));
}

/* Where output coordinate `o` lies in the input. */
static const Expr *position(Resize *r, Builder *b, const Axis *a, const Expr *o) {
    Exprs *x = r->x;
    const Expr *half = f32(r, 0.5), *zero = f32(r, 0), *last = extent_f32(r, a->in - 1);
    const Expr *scale = scale_of(r, b, a);
    const Expr *centre = ex_div(x, ex_add(x, o, half), scale);
    switch (r->at) {
    case AT_half_pixel:
        return ex_sub(x, centre, half);
    case AT_half_pixel_symmetric: {
        const Expr *ratio = ex_div(x, extent_f32(r, a->out), full_width(r, a, scale));
        const Expr *middle = ex_mul(x, extent_f32(r, a->in), half);
        const Expr *offset = ex_mul(x, middle, ex_sub(x, f32(r, 1), ratio));
        return ex_sub(x, ex_add(x, offset, centre), half);
    }
    case AT_pytorch_half_pixel:
        return ex_select(x, ex_lt(x, ex_i(x, 1), ex_i(x, a->out)), ex_sub(x, centre, half), zero);
    case AT_align_corners:
        return by_corners(r, a, scale, o, zero);
    case AT_asymmetric:
        return ex_div(x, o, scale);
    case AT_tf_half_pixel_for_nn:
        return centre;
    case AT_tf_crop_and_resize: {
        const Expr *at[1] = {ex_i(x, a->slot)};
        const Expr *start = ex_cast(x, DT_f32, build_load(b, r->roi, at));
        at[0] = ex_i(x, a->slot + r->n_axes);
        const Expr *span = ex_sub(x, ex_cast(x, DT_f32, build_load(b, r->roi, at)), start);
        const Expr *single = ex_mul(x, ex_mul(x, span, last), half);
        const Expr *inner = by_corners(r, a, scale, ex_mul(x, o, span), single);
        return ex_add(x, ex_mul(x, start, last), inner);
    }
    }
    return o;
}

/* True if the axis keeps its coordinates, whatever the mode. */
static bool is_still(const Resize *r, const Axis *a) {
    bool one = a->known ? a->scale == 1.0f : a->exact;
    return a->in == a->out && one && r->at != AT_tf_crop_and_resize &&
           r->at != AT_tf_half_pixel_for_nn;
}

static void set_position(Resize *r, Axis *a) {
    if (is_still(r, a)) return;
    Builder b = build(r->g, 1, &a->out);
    const Expr *o = ex_cast(r->x, DT_f32, ex_var(r->x, 0));
    a->position = build_map(&b, DT_f32, position(r, &b, a, o));
}

/* `e` as an i32 within [low, high] (high may vary), also for what no integer can hold. */
static const Expr *to_index(Resize *r, const Expr *e, int64_t low, int64_t high) {
    Exprs *x = r->x;
    const Expr *l = f32(r, (double)low), *h = extent_f32(r, high);
    e = ex_select(x, ex_lt(x, l, e), e, l);
    e = ex_cast(x, DT_i32, ex_select(x, ex_lt(x, e, h), e, h));
    /* f32 rounds large bounds */
    return ex_bin(x, EX_max, ex_i(x, low), ex_bin(x, EX_min, e, ex_i(x, high)));
}

/* --- nearest ---------------------------------------------------------------------------------- */

/* The table's entry for coordinate `o`: where it is o / k, or a multiple of o, arithmetic says it.
 */
static const Expr *indexed(Resize *r, Builder *b, const Axis *a, Value *table, const Expr *o) {
    Exprs *x = r->x;
    const int32_t *index = value_is_const(table) ? table->data : NULL;
    if (index && a->out > 1) {
        int64_t ratio = a->out / a->in, step = index[1] - index[0];
        bool divided = ratio > 0, affine = true;
        for (int64_t i = 0; i < a->out; i++) {
            divided &= divided && index[i] == i / ratio;
            affine &= index[i] == index[0] + i * step;
        }
        if (divided) return ex_div(x, o, ex_i(x, ratio));
        if (affine) return ex_add(x, ex_mul(x, o, ex_i(x, step)), ex_i(x, index[0]));
    }
    return build_load(b, table, &o);
}

static Value *nearest_index(Resize *r, const Axis *a) {
    Exprs *x = r->x;
    Builder b = build(r->g, 1, &a->out);
    const Expr *e = build_in(&b, a->position), *half = f32(r, 0.5);
    switch (r->nearest) {
    case TO_prefer_floor:
        e = ex_un(x, EX_ceil, ex_sub(x, e, half));
        break;
    case TO_prefer_ceil:
        e = ex_un(x, EX_floor, ex_add(x, e, half));
        break;
    case TO_floor:
        e = ex_un(x, EX_floor, e);
        break;
    case TO_ceil:
        e = ex_un(x, EX_ceil, e);
        break;
    case TO_simple:
        e = ex_select(x, ex_lt(x, scale_of(r, &b, a), f32(r, 1)), ex_un(x, EX_ceil, e),
                      ex_un(x, EX_floor, e));
    }
    return build_map(&b, DT_i32, to_index(r, e, 0, a->in - 1));
}

/* True where the position of an axis leaves the input. */
static const Expr *outside(Resize *r, Builder *b, const Axis *a) {
    Exprs *x = r->x;
    const Expr *o = ex_var(x, a->number), *at = build_load(b, a->position, &o);
    return ex_bin(x, EX_or, ex_lt(x, at, f32(r, 0)), ex_lt(x, extent_f32(r, a->in - 1), at));
}

/* `e`, or what stands for places outside if positions can be there. */
static const Expr *or_beyond(Resize *r, Builder *b, const Expr *e) {
    Exprs *x = r->x;
    if (r->at != AT_tf_crop_and_resize) return e;
    for (int i = 0; i < r->n_axes; i++)
        if (r->axis[i].position)
            e = ex_select(x, outside(r, b, &r->axis[i]), ex_num(x, (DType)e->dt, r->beyond), e);
    return e;
}

/* The axis at its largest, if its table does not depend on its extents but for the end of the
 * input. */
static bool largest_axis(Resize *r, const Axis *a, Axis *largest) {
    bool by_scale = r->at == AT_half_pixel || r->at == AT_asymmetric ||
                    r->at == AT_tf_half_pixel_for_nn ||
                    (r->at == AT_pytorch_half_pixel && dim_min(r->x, a->out) > 1);
    if (!dim_varies(a->out) || !a->known || !by_scale) return false;
    *largest = *a;
    largest->in = dim_max(r->x, a->in);
    largest->out = dim_max(r->x, a->out);
    set_position(r, largest);
    return largest->position != NULL;
}

static Value *resize_nearest(Resize *r) {
    Builder b = build(r->g, r->v->rank, r->shape);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < r->v->rank; i++) index[i] = ex_var(r->x, i);
    for (int i = 0; i < r->n_axes; i++) {
        const Axis *a = &r->axis[i];
        if (!a->position) continue;
        Axis largest;
        const Expr *o = ex_var(r->x, a->number);
        if (largest_axis(r, a, &largest)) {
            const Expr *at = indexed(r, &b, &largest, nearest_index(r, &largest), o);
            index[a->number] = ex_bin(r->x, EX_min, at, ex_i(r->x, a->in - 1));
        } else {
            index[a->number] = indexed(r, &b, a, nearest_index(r, a), o);
        }
    }
    return build_map(&b, r->v->dt, or_beyond(r, &b, build_load(&b, r->v, index)));
}

/* --- linear and cubic ------------------------------------------------------------------------- */

/* The interpolation kernel at distance `d`. */
static const Expr *kernel(Resize *r, const Expr *d) {
    Exprs *x = r->x;
    const Expr *one = f32(r, 1), *zero = f32(r, 0);
    d = ex_un(x, EX_abs, d);
    if (r->mode == RESIZE_linear) return ex_bin(x, EX_max, zero, ex_sub(x, one, d));
    static const char *const names[] = {"d", "a"};
    const Expr *operand[2] = {d, f32(r, r->cubic_a)};
    const char *error;
    const Expr *near =
        ex_formula(x, "((a + 2) * d - (a + 3)) * d * d + 1", 2, names, operand, &error);
    const Expr *far =
        ex_formula(x, "((a * d - 5 * a) * d + 8 * a) * d - 4 * a", 2, names, operand, &error);
    return ex_select(x, ex_le(x, d, one), near, ex_select(x, ex_lt(x, d, f32(r, 2)), far, zero));
}

/* The least out / in; an output of no elements does not count. */
static double least_ratio(Resize *r, const Axis *a) {
    int64_t out = dim_min(r->x, a->out), in = dim_max(r->x, a->in);
    return (double)(out > 1 ? out : 1) / (double)in;
}

/* The taps of one axis. Tap t of coordinate o is element first[o] + t, at the edges the last one
 * there is, with weight[t, o]. */
typedef struct Taps {
    int count;
    Value *first;  /* [out] i32 */
    Value *weight; /* [count, out] f32 */
} Taps;

static Taps taps_of(Resize *r, const Axis *a) {
    Exprs *x = r->x;
    int64_t reach = r->mode == RESIZE_linear ? 1 : 2;
    /* a stretched kernel; out / in is the least scale that gives this output */
    double least = a->known ? (double)a->scale : least_ratio(r, a);
    bool stretch = r->antialias && least < 1;
    if (stretch) reach = (int64_t)ceil((double)reach / least);
    Taps t = {.count = (int)(2 * reach)};

    Builder b = build(r->g, 1, &a->out);
    const Expr *at = ex_un(x, EX_floor, build_in(&b, a->position));
    at = to_index(r, at, -reach - 1, a->in + reach);
    t.first = build_map(&b, DT_i32, ex_add(x, at, ex_i(x, 1 - reach)));

    int64_t shape[2] = {t.count, a->out};
    b = build(r->g, 2, shape);
    const Expr *o = ex_var(x, 1);
    const Expr *element = ex_add(x, build_load(&b, t.first, &o), ex_var(x, 0));
    const Expr *distance = ex_sub(x, ex_cast(x, DT_f32, element), build_load(&b, a->position, &o));
    if (stretch) distance = ex_mul(x, distance, ex_bin(x, EX_min, scale_of(r, &b, a), f32(r, 1)));
    const Expr *weight = kernel(r, distance), *zero = f32(r, 0);
    if (r->exclude) {
        const Expr *in =
            ex_and(x, ex_le(x, ex_i(x, 0), element), ex_lt(x, element, ex_i(x, a->in)));
        weight = ex_select(x, in, weight, zero);
    }
    t.weight = build_map(&b, DT_f32, weight);
    if (!r->exclude && !stretch) return t;
    Value *sum = g_reduce(r->g, COMBINE_sum, t.weight, 1, true);
    b = build(r->g, 2, shape);
    const Expr *total = build_in(&b, sum);
    total = ex_select(x, ex_bin(x, EX_eq, total, zero), f32(r, 1), total);
    t.weight = build_map(&b, DT_f32, ex_div(x, build_in(&b, t.weight), total));
    return t;
}

/* Index and weight (in `work`) of tap `t` for the output's coordinate along the axis. */
static const Expr *tap_index(Resize *r, Builder *b, const Axis *a, const Taps *taps,
                             const Expr *t) {
    Exprs *x = r->x;
    const Expr *o = ex_var(x, a->number);
    const Expr *at = ex_add(x, build_load(b, taps->first, &o), t);
    return ex_bin(x, EX_max, ex_i(x, 0), ex_bin(x, EX_min, at, ex_i(x, a->in - 1)));
}

static const Expr *tap_weight(Resize *r, Builder *b, const Axis *a, const Taps *taps, const Expr *t,
                              DType work) {
    const Expr *at[2] = {t, ex_var(r->x, a->number)};
    return ex_cast(r->x, work, build_load(b, taps->weight, at));
}

#define MAX_TOGETHER 4 /* elements that one map interpolates between */

/* The weighted sum over the taps of axes `i` and further, from index[] on. */
static const Expr *interpolate(Resize *r, Builder *b, const Taps *taps, int i, const Expr **index,
                               DType work) {
    Exprs *x = r->x;
    while (i < r->n_axes && !r->axis[i].position) i++;
    if (i == r->n_axes) return ex_cast(x, work, build_load(b, r->v, index));
    const Axis *a = &r->axis[i];
    const Expr *sum = NULL;
    for (int t = 0; t < taps[i].count; t++) {
        index[a->number] = tap_index(r, b, a, &taps[i], ex_i(x, t));
        const Expr *e = ex_mul(x, tap_weight(r, b, a, &taps[i], ex_i(x, t), work),
                               interpolate(r, b, taps, i + 1, index, work));
        sum = sum ? ex_add(x, sum, e) : e;
    }
    return sum;
}

/* Resizes `v` along one axis. */
static Value *resize_axis(Resize *r, Value *v, const Axis *a, const Taps *taps, DType work) {
    Exprs *x = r->x;
    int64_t shape[MAX_RANK];
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) {
        shape[i] = i == a->number ? a->out : v->dims[i];
        index[i] = ex_var(x, i);
    }
    if (!node_shape_ok(r->n, v->rank, shape)) return NULL;
    Builder b = build(r->g, v->rank, shape);
    if (taps->count > MAX_TOGETHER) {
        const Expr *t = build_red(&b, taps->count);
        index[a->number] = tap_index(r, &b, a, taps, t);
        const Expr *e = ex_mul(x, tap_weight(r, &b, a, taps, t, work),
                               ex_cast(x, work, build_load(&b, v, index)));
        return build_reduce(&b, work, COMBINE_sum, e, NULL);
    }
    const Expr *sum = NULL;
    for (int t = 0; t < taps->count; t++) {
        index[a->number] = tap_index(r, &b, a, taps, ex_i(x, t));
        const Expr *e = ex_mul(x, tap_weight(r, &b, a, taps, ex_i(x, t), work),
                               ex_cast(x, work, build_load(&b, v, index)));
        sum = sum ? ex_add(x, sum, e) : e;
    }
    return build_map(&b, work, sum);
}

/* An integer type's values end where the type's range does. */
static const Expr *into_range(Exprs *x, const Expr *e, DType dt) {
    if (!dt_is_int(dt) || dt_bits(dt) > 16) return e;
    DType work = (DType)e->dt;
    Scalar low = combine_identity(COMBINE_max, dt), high = combine_identity(COMBINE_min, dt);
    return ex_bin(x, EX_max, ex_num(x, work, (double)low.i),
                  ex_bin(x, EX_min, e, ex_num(x, work, (double)high.i)));
}

static Value *resize_smooth(Resize *r) {
    DType dt = r->v->dt, work = float_work(dt);
    Taps taps[MAX_TENSOR_RANK];
    int64_t together = 1;
    for (int i = 0; i < r->n_axes; i++) {
        const Axis *a = &r->axis[i];
        if (!a->position) continue;
        if (least_ratio(r, a) < 1.0 / 65536) {
            unsupported(r->n, "axis %d shrinks from %s to %s", a->number, dim_text(r->x, a->in),
                        dim_text(r->x, a->out));
            return NULL;
        }
        taps[i] = taps_of(r, a);
        together *= taps[i].count;
    }
    const Expr *index[MAX_RANK];
    for (int i = 0; i < r->v->rank; i++) index[i] = ex_var(r->x, i);
    Value *v = r->v;
    bool at_once = together <= MAX_TOGETHER;
    for (int i = 0; i < r->n_axes && !at_once && v; i++)
        if (r->axis[i].position) v = resize_axis(r, v, &r->axis[i], &taps[i], work);
    if (!v) return NULL;
    Builder b = build(r->g, v->rank, r->shape);
    const Expr *e = at_once ? interpolate(r, &b, taps, 0, index, work) : build_in(&b, v);
    return build_map(&b, dt, into_range(r->x, or_beyond(r, &b, e), dt));
}

static void resize(Resize *r) {
    Node *n = r->n;
    if (!read_axes(r) || !read_extents(r)) return;
    int64_t most[MAX_TENSOR_RANK];
    dims_max(r->x, r->v->rank, r->shape, most);
    bool empty = value_numel(r->v) == 0 || shape_numel(r->v->rank, most) == 0;
    for (int i = 0; i < r->n_axes && !empty; i++) set_position(r, &r->axis[i]);
    Value *v = r->mode == RESIZE_nearest || empty ? resize_nearest(r) : resize_smooth(r);
    n->out[0] = v;
}

/* An input that is there and not empty. */
static Value *nonempty(const Node *n, int i) {
    Value *v = node_in(n, i);
    return v && value_numel(v) > 0 ? v : NULL;
}

void import_resize(Node *n) {
    Resize r = {.n = n, .g = n->g, .x = n->x, .v = node_need(n, 0)};
    if (!r.v || !read_mode(&r)) return;
    if (n->version < 11) {
        r.scales = node_need(n, 1);
        r.at = AT_asymmetric;
        r.nearest = TO_simple;
        if (r.scales) resize(&r);
        return;
    }
    r.roi = nonempty(n, 1);
    r.scales = nonempty(n, 2);
    r.sizes = nonempty(n, 3);
    int at = attr_choice(n, "coordinate_transformation_mode", 0, coordinate_names);
    int nearest = attr_choice(n, "nearest_mode", 0, nearest_names);
    int policy = attr_choice(n, "keep_aspect_ratio_policy", 0, policy_names);
    r.antialias = attr_int(n, "antialias", 0) != 0;
    r.exclude = attr_int(n, "exclude_outside", 0) != 0;
    r.cubic_a = attr_float(n, "cubic_coeff_a", -0.75);
    r.beyond = attr_float(n, "extrapolation_value", 0);
    if (n->failed) return;
    r.at = (Coordinates)at;
    r.nearest = (Nearest)nearest;
    r.policy = (Policy)policy;
    int count;
    attr_ints(n, "axes", &count);
    if (!attr_has(n, "axes")) count = r.v->rank;
    if (r.scales && r.sizes) {
        invalid(n, E2007, "both scales and sizes are given");
    } else if (r.at == AT_tf_crop_and_resize &&
               (!r.roi || r.roi->rank != 1 || !dim_meets(n->x, r.roi->dims[0], 2 * count))) {
        invalid(n, E2005, "tf_crop_and_resize needs a roi of %d values", 2 * count);
    } else {
        resize(&r);
    }
}

/* Scales are an attribute before opset 9 (at first, one each for height and width), then an input.
 */
void import_upsample(Node *n) {
    Resize r = {.n = n, .g = n->g, .x = n->x, .v = node_need(n, 0)};
    if (!r.v || !read_mode(&r)) return;
    r.at = AT_asymmetric;
    r.nearest = TO_floor;
    if (n->version >= 9) {
        r.scales = node_need(n, 1);
    } else {
        int count = r.v->rank;
        float *scales = ARENA_ARRAY(n->g->arena, count + 1, float);
        const float *given = NULL;
        if (n->version < 7) {
            for (int i = 0; i < count; i++)
                scales[i] = i == count - 2   ? (float)attr_float(n, "height_scale", 1)
                            : i == count - 1 ? (float)attr_float(n, "width_scale", 1)
                                             : 1;
        } else if ((given = attr_floats(n, "scales", &count)) != NULL && count == r.v->rank) {
            memcpy(scales, given, (size_t)count * sizeof *scales);
        } else if (!n->failed) {
            invalid(n, E2004, "attribute 'scales' must have %d values", r.v->rank);
        }
        int64_t extent = count;
        r.scales = graph_const(n->g, DT_f32, 1, &extent, scales);
    }
    if (r.scales && !n->failed) resize(&r);
}
