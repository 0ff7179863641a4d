/* Sampling of images at computed positions: GridSample, AffineGrid, RoiAlign, CropAndResize.
 * Positions are run-time values, so every index is brought into its tensor before it is used. */
#include "compiler/onnx/index.h"
#include "compiler/onnx/window.h"

#include <string.h>

/* `e` as an i32 in [low, high] (high may vary), also for what no integer can hold. */
static const Expr *to_index(Exprs *x, const Expr *e, int64_t low, int64_t high) {
    DType dt = (DType)e->dt;
    const Expr *l = ex_num(x, dt, (double)low), *h = extent_as(x, dt, high);
    e = ex_select(x, ex_lt(x, l, e), e, l);
    e = ex_cast(x, DT_i32, ex_select(x, ex_lt(x, e, h), e, h));
    /* f32 rounds large bounds */
    return ex_bin(x, EX_max, ex_i(x, low), ex_bin(x, EX_min, e, ex_i(x, high)));
}

/* --- GridSample ------------------------------------------------------------------------------- */

typedef enum SampleMode { SAMPLE_nearest, SAMPLE_linear, SAMPLE_cubic } SampleMode;
typedef enum Beyond { BEYOND_zeros, BEYOND_border, BEYOND_reflection } Beyond;

#define MAX_GRID 3 /* spatial dimensions that are sampled */

typedef struct Sample {
    Exprs *x;
    DType work;
    SampleMode mode;
    Beyond beyond;
    bool corners; /* align_corners */
    int d;        /* spatial dimensions */
    int64_t extent[MAX_GRID];
    Value *first[MAX_GRID]; /* [n, positions]: the element of tap 0, i32, ... */
    Value *part[MAX_GRID];  /* ... and how far the position is beyond the element before it */
} Sample;

static const Expr *number(const Sample *s, double value) {
    return ex_num(s->x, s->work, value);
}

static const Expr *extent_of(const Sample *s, int64_t extent) {
    return extent_as(s->x, s->work, extent);
}

/* A position thrown back at both borders until it is between them. */
static const Expr *reflect(const Sample *s, const Expr *at, int64_t extent) {
    Exprs *x = s->x;
    int64_t span = s->corners ? extent - 1 : extent;
    if (dim_max(x, span) <= 0) return number(s, 0);
    const Expr *low = number(s, s->corners ? 0 : -0.5), *from = ex_sub(x, at, low);
    const Expr *period = extent_of(s, dim_mul(x, span, 2));
    const Expr *turns = ex_un(x, EX_floor, ex_div(x, from, period));
    const Expr *rest = ex_sub(x, from, ex_mul(x, turns, period));
    const Expr *folded = ex_add(x, low, ex_bin(x, EX_min, rest, ex_sub(x, period, rest)));
    if (dim_min(x, span) > 0) return folded;
    return ex_select(x, ex_lt(x, number(s, 0), period), folded, number(s, 0));
}

/* The position in elements of what the grid says in [-1, 1], moved into the image unless zeros are
 * around it. */
static const Expr *sample_position(const Sample *s, const Expr *grid, int64_t extent) {
    Exprs *x = s->x;
    const Expr *one = number(s, 1), *two = number(s, 2), *n = ex_add(x, grid, one), *at;
    if (s->corners)
        at = ex_mul(x, ex_div(x, n, two), extent_of(s, extent - 1));
    else
        at = ex_div(x, ex_sub(x, ex_mul(x, n, extent_of(s, extent)), one), two);
    if (s->mode == SAMPLE_nearest) at = ex_un(x, EX_round, at);
    const Expr *low = number(s, s->corners ? 0 : -0.5), *top = extent_of(s, extent - 1);
    const Expr *high = ex_sub(x, top, low), *zero = number(s, 0);
    const Expr *inside = ex_and(x, ex_le(x, low, at), ex_le(x, at, high));
    /* (cubic: its elements are taken from the border one by one) */
    if (s->beyond == BEYOND_border && s->mode != SAMPLE_cubic)
        at = ex_select(x, inside, at, ex_bin(x, EX_min, top, ex_bin(x, EX_max, zero, at)));
    if (s->beyond == BEYOND_reflection) at = ex_select(x, inside, at, reflect(s, at, extent));
    return at;
}

/* The taps of dimension i for every position: they are found once, not again for every channel. */
static void set_taps(Sample *s, Node *n, Value *grid, int i) {
    Exprs *x = s->x;
    const int rank = grid->rank - 1;
    const Expr *at[MAX_RANK], *e[2];
    for (int k = 0; k < 2; k++) {
        Builder b = build(n->g, rank, grid->dims);
        for (int d = 0; d < rank; d++) at[d] = ex_var(x, d);
        at[rank] = ex_i(x, s->d - 1 - i); /* the grid names the last dimension first */
        e[0] = ex_cast(x, s->work, build_load(&b, grid, at));
        e[0] = sample_position(s, e[0], s->extent[i]);
        /* beyond these bounds all taps are outside anyway */
        const Expr *low = number(s, -4), *high = extent_of(s, s->extent[i] + 4);
        e[0] = ex_select(x, ex_lt(x, low, e[0]), e[0], low);
        e[0] = ex_select(x, ex_lt(x, e[0], high), e[0], high);
        const Expr *floor = ex_un(x, EX_floor, e[0]);
        e[1] = to_index(x, floor, -4, s->extent[i] + 4);
        if (s->mode == SAMPLE_cubic) e[1] = ex_sub(x, e[1], ex_i(x, 1));
        if (k)
            s->first[i] = build_map(&b, DT_i32, e[1]);
        else
            s->part[i] = build_map(&b, s->work, ex_sub(x, e[0], floor));
    }
}

static int taps_of(const Sample *s) {
    return s->mode == SAMPLE_nearest ? 1 : s->mode == SAMPLE_linear ? 2 : 4;
}

/* Which tap of dimension i is number `all` of all, of which those of the last dimension are side by
 * side? */
static const Expr *tap_of(const Sample *s, int i, const Expr *all) {
    int64_t below = 1;
    for (int k = i + 1; k < s->d; k++) below *= taps_of(s);
    return ex_bin(s->x, EX_rem, ex_div(s->x, all, ex_i(s->x, below)), ex_i(s->x, taps_of(s)));
}

/* The weight of tap k at a position `part` beyond the element before it. */
static const Expr *weight(const Sample *s, const Expr *k, const Expr *part) {
    Exprs *x = s->x;
    const Expr *back = ex_sub(x, number(s, 1), part);
    if (s->mode == SAMPLE_linear) return ex_select(x, ex_bin(x, EX_eq, k, ex_i(x, 0)), back, part);
    static const char *const names[] = {"d", "a"};
    static const char *const formula[] = {"((a * d - 5 * a) * d + 8 * a) * d - 4 * a",
                                          "((a + 2) * d - (a + 3)) * d * d + 1"};
    const Expr *distance[4] = {ex_add(x, part, number(s, 1)), part, back,
                               ex_add(x, back, number(s, 1))};
    const Expr *e = NULL;
    for (int t = 3; t >= 0; t--) {
        const Expr *operand[2] = {distance[t], number(s, -0.75)};
        const char *error;
        const Expr *w = ex_formula(x, formula[t == 1 || t == 2], 2, names, operand, &error);
        e = e ? ex_select(x, ex_bin(x, EX_eq, k, ex_i(x, t)), w, e) : w;
    }
    return e;
}

/* [n, taps, positions] */
static Builder build_taps(const Sample *s, Node *n, const Expr **at) {
    const Value *first = s->first[0];
    int64_t shape[MAX_RANK] = {first->dims[0], 1};
    at[0] = ex_var(s->x, 0);
    for (int i = 0; i < s->d; i++) {
        shape[1] *= taps_of(s);
        shape[2 + i] = first->dims[1 + i];
        at[1 + i] = ex_var(s->x, 2 + i);
    }
    return build(n->g, 2 + s->d, shape);
}

/* The element of the image, its dimensions joined, that each tap is; -1: it is outside. */
static Value *tap_elements(const Sample *s, Node *n) {
    Exprs *x = s->x;
    const Expr *at[MAX_RANK], *inside = NULL, *place = ex_i(x, 0);
    Builder b = build_taps(s, n, at);
    for (int i = 0; i < s->d; i++) {
        const int64_t top = s->extent[i] - 1;
        const Expr *e = ex_add(x, build_load(&b, s->first[i], at), tap_of(s, i, ex_var(x, 1)));
        if (s->beyond == BEYOND_zeros) {
            const Expr *in = ex_and(x, ex_le(x, ex_i(x, 0), e), ex_le(x, e, ex_i(x, top)));
            inside = inside ? ex_and(x, inside, in) : in;
        }
        if (s->beyond == BEYOND_reflection)
            e = to_index(x, reflect(s, ex_cast(x, s->work, e), s->extent[i]), 0, top);
        e = ex_bin(x, EX_max, ex_i(x, 0), ex_bin(x, EX_min, e, ex_i(x, top)));
        place = ex_add(x, ex_mul(x, place, ex_i(x, s->extent[i])), e);
    }
    return build_map(&b, DT_i32, inside ? ex_select(x, inside, place, ex_i(x, -1)) : place);
}

static Value *tap_weights(const Sample *s, Node *n) {
    const Expr *at[MAX_RANK], *e = NULL;
    Builder b = build_taps(s, n, at);
    for (int i = 0; i < s->d; i++) {
        const Expr *w = weight(s, tap_of(s, i, ex_var(s->x, 1)), build_load(&b, s->part[i], at));
        e = e ? ex_mul(s->x, e, w) : w;
    }
    return build_map(&b, s->work, e);
}

/* The sum over the taps. */
static const Expr *gather(const Sample *s, Node *n, Builder *b, Value *v) {
    Exprs *x = s->x;
    int64_t shape[3] = {v->dims[0], v->dims[1], dim_product(x, s->d, v->dims + 2)};
    Value *image = g_reshape(n->g, v, 3, shape), *element = tap_elements(s, n);
    Value *weights = s->mode == SAMPLE_nearest ? NULL : tap_weights(s, n);
    const Expr *at[MAX_RANK] = {ex_var(x, 0)}, *sum = NULL;
    for (int i = 0; i < s->d; i++) at[2 + i] = ex_var(x, 2 + i);
    for (int64_t t = 0; t < element->dims[1]; t++) {
        at[1] = ex_i(x, t);
        const Expr *place = build_load(b, element, at);
        const Expr *index[3] = {ex_var(x, 0), ex_var(x, 1), place};
        const Expr *e = ex_cast(x, s->work, build_load(b, image, index));
        if (s->beyond == BEYOND_zeros)
            e = ex_select(x, ex_le(x, ex_i(x, 0), place), e, number(s, 0));
        if (weights) e = ex_mul(x, build_load(b, weights, at), e);
        sum = sum ? ex_add(x, sum, e) : e;
    }
    return sum;
}

/* Two names are for the same modes before opset 20. */
static bool read_sample(Node *n, Sample *s) {
    static const SampleMode modes[] = {SAMPLE_nearest, SAMPLE_linear, SAMPLE_cubic, SAMPLE_linear,
                                       SAMPLE_cubic};
    int mode = attr_choice(n, "mode", SAMPLE_linear, "nearest linear cubic bilinear bicubic");
    int beyond = attr_choice(n, "padding_mode", BEYOND_zeros, "zeros border reflection");
    s->corners = attr_int(n, "align_corners", 0) != 0;
    if (n->failed) return false;
    s->mode = modes[mode];
    s->beyond = (Beyond)beyond;
    return true;
}

void import_grid_sample(Node *n) {
    Value *v = node_need(n, 0), *grid = need_float(n, 1, 3);
    Sample s = {.x = n->x};
    if (!v || !grid || !read_sample(n, &s)) return;
    s.d = v->rank - 2;
    if (s.d < 1 || s.d > MAX_GRID || grid->rank != v->rank ||
        !dim_meets(n->x, grid->dims[0], v->dims[0]) ||
        !dim_meets(n->x, grid->dims[v->rank - 1], s.d)) {
        invalid(n, E2005, "input %s and grid %s do not fit",
                shape_text(n->g->arena, v->rank, v->dims),
                shape_text(n->g->arena, grid->rank, grid->dims));
        return;
    }
    s.work = v->dt == DT_f64 || grid->dt == DT_f64 ? DT_f64 : DT_f32;
    int64_t shape[MAX_RANK] = {dim_same(v->dims[0], grid->dims[0]), v->dims[1]};
    for (int i = 0; i < s.d; i++) {
        shape[2 + i] = grid->dims[1 + i];
        s.extent[i] = v->dims[2 + i];
    }
    if (!node_shape_ok(n, v->rank, shape) || !node_source_ok(n, v, v->rank, shape)) return;
    for (int i = 0; i < s.d; i++) set_taps(&s, n, grid, i);
    Builder b = build(n->g, v->rank, shape);
    n->out[0] = build_map(&b, v->dt, gather(&s, n, &b, v));
}

/* --- AffineGrid ------------------------------------------------------------------------------- */

/* grid[n, d.., k] = theta[n, k] . (x, y, .., 1) for positions evenly spaced in [-1, 1] */
void import_affine_grid(Node *n) {
    Value *theta = need_float(n, 0, 3), *size = node_need(n, 1);
    bool corners = attr_int(n, "align_corners", 0) != 0;
    if (!theta || !size || n->failed) return;
    int count, d = 0, rank;
    const int64_t *sizes = node_ints(n, 1, &count);
    /* rows of theta: d, columns: d + 1 */
    if (theta->rank == 3 && !dim_varies(theta->dims[1]))
        d = theta->dims[1] <= 3 ? (int)theta->dims[1] : 0;
    else if (theta->rank == 3)
        d = sizes ? count - 2 : !dim_varies(theta->dims[2]) ? (int)theta->dims[2] - 1 : 0;
    rank = d + 2;
    if (d < 2 || d > 3 || !dim_meets(n->x, theta->dims[2], d + 1)) {
        invalid(n, E2005, "theta has shape %s; expected [N, 2, 3] or [N, 3, 4]",
                dims_text(n->x, theta->rank, theta->dims));
        return;
    }
    int64_t shape[MAX_RANK] = {theta->dims[0]};
    if (sizes && count == d + 2) {
        for (int i = 0; i < d; i++) shape[1 + i] = sizes[2 + i];
        shape[1 + d] = d;
    } else if (sizes) {
        invalid(n, E2005, "the size has %d values; expected %d", count, d + 2);
        return;
    } else if (!node_declared_shape(n, 0, &rank, shape)) {
        node_need_ints(n, 1, "the size", &count);
        return;
    }
    if (rank != d + 2 || !dim_meets(n->x, shape[0], theta->dims[0]) || shape[1 + d] != d) {
        invalid(n, E2009, "declared with shape %s, which does not fit theta",
                shape_text(n->g->arena, rank, shape));
        return;
    }
    if (!node_shape_ok(n, rank, shape)) return;
    Exprs *x = n->x;
    DType work = float_work(theta->dt);
    Builder b = build(n->g, rank, shape);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1 + d), ex_i(x, d)};
    const Expr *sum = ex_cast(x, work, build_load(&b, theta, at));
    for (int j = 0; j < d; j++) {
        int dim = d - j; /* x is the last dimension */
        int64_t extent = shape[dim];
        const Expr *i = ex_cast(x, work, ex_var(x, dim)), *two = ex_num(x, work, 2);
        int64_t intervals = dim_larger(x, corners ? extent - 1 : extent, 1);
        const Expr *step = ex_div(x, two, extent_as(x, work, intervals));
        const Expr *start =
            corners ? ex_num(x, work, -1) : ex_add(x, ex_num(x, work, -1), ex_div(x, step, two));
        const Expr *place = ex_add(x, start, ex_mul(x, i, step));
        at[2] = ex_i(x, j);
        sum = ex_add(x, sum, ex_mul(x, ex_cast(x, work, build_load(&b, theta, at)), place));
    }
    n->out[0] = build_map(&b, theta->dt, sum);
}

/* --- RoiAlign --------------------------------------------------------------------------------- */

typedef struct Roi {
    Exprs *x;
    DType work;
    Value *v, *rois, *batch;
    double scale, offset;
    bool forced;   /* regions are at least one element large */
    int64_t ratio; /* samples in a bin along each axis; 0: as many as the bin has elements */
    int64_t bins[2], extent[2];
} Roi;

/* What a region is along one axis (0: height), for region `var 0`. */
typedef struct RoiAxis {
    const Expr *start, *bin; /* first position; size of a bin */
    const Expr *samples;     /* in a bin, in `work` */
} RoiAxis;

static RoiAxis roi_axis(const Roi *r, Builder *b, int axis) {
    Exprs *x = r->x;
    RoiAxis a;
    const Expr *edge[2], *at[2] = {ex_var(x, 0)};
    for (int i = 0; i < 2; i++) {
        at[1] = ex_i(x, 2 * i + 1 - axis);
        const Expr *e = ex_cast(x, r->work, build_load(b, r->rois, at));
        edge[i] =
            ex_sub(x, ex_mul(x, e, ex_num(x, r->work, r->scale)), ex_num(x, r->work, r->offset));
    }
    const Expr *size = ex_sub(x, edge[1], edge[0]);
    if (r->forced) size = ex_bin(x, EX_max, size, ex_num(x, r->work, 1));
    a.start = edge[0];
    a.bin = ex_div(x, size, ex_num(x, r->work, (double)r->bins[axis]));
    a.samples = r->ratio > 0 ? ex_num(x, r->work, (double)r->ratio) : ex_un(x, EX_ceil, a.bin);
    return a;
}

/* Up to how many samples of a bin can lie in the image: they are more than half an element apart
 * where there are several. */
static int64_t most_samples(const Roi *r, int axis) {
    return r->ratio > 0 ? r->ratio : dim_mul(r->x, r->extent[axis], 2) + 6;
}

/* A sample's place, and the two elements that it lies between. */
typedef struct RoiSample {
    const Expr *valid;
    const Expr *low, *high; /* i32, within the image */
    const Expr *part;       /* weight of `high` */
} RoiSample;

/* The place of sample `number` of bin `bin`. */
static const Expr *sample_place(const Roi *r, const RoiAxis *a, const Expr *bin,
                                const Expr *number) {
    Exprs *x = r->x;
    const Expr *begin = ex_add(x, a->start, ex_mul(x, ex_cast(x, r->work, bin), a->bin));
    const Expr *middle = ex_add(x, number, ex_num(x, r->work, 0.5));
    return ex_add(x, begin, ex_div(x, ex_mul(x, middle, a->bin), a->samples));
}

/* Sample number `k` of bin `bin`, both coordinates. Adaptive sampling skips those before the image,
 * so that most_samples is enough. */
static RoiSample roi_sample(const Roi *r, const RoiAxis *a, int axis, const Expr *bin,
                            const Expr *k) {
    Exprs *x = r->x;
    DType work = r->work;
    RoiSample s;
    const Expr *one = ex_num(x, work, 1), *zero = ex_num(x, work, 0), *half = ex_num(x, work, 0.5);
    const Expr *limit = extent_as(x, work, r->extent[axis]), *minus = ex_num(x, work, -1);
    const Expr *number = ex_cast(x, work, k);
    if (r->ratio <= 0) {
        const Expr *step = ex_div(x, a->bin, ex_bin(x, EX_max, a->samples, one));
        const Expr *before =
            ex_div(x, ex_sub(x, minus, sample_place(r, a, bin, ex_num(x, work, -0.5))),
                   ex_bin(x, EX_max, step, half));
        /* bins of less than an element have one sample, and nothing is skipped */
        const Expr *skip =
            ex_select(x, ex_lt(x, one, a->samples),
                      ex_bin(x, EX_max, zero, ex_sub(x, ex_un(x, EX_floor, before), one)), zero);
        number = ex_add(x, number, skip);
    }
    const Expr *at = sample_place(r, a, bin, number);
    s.valid = ex_and(x, ex_le(x, minus, at), ex_le(x, at, limit));
    if (r->ratio <= 0) s.valid = ex_and(x, ex_lt(x, number, a->samples), s.valid);
    at = ex_bin(x, EX_max, at, zero);
    int64_t top = r->extent[axis] - 1;
    const Expr *floor = ex_un(x, EX_floor, at), *last = ex_le(x, extent_as(x, work, top), floor);
    s.low = to_index(x, floor, 0, top);
    s.high = ex_bin(x, EX_min, ex_add(x, s.low, ex_i(x, 1)), ex_i(x, top));
    s.part = ex_select(x, last, zero, ex_sub(x, at, floor));
    return s;
}

static const Expr *roi_batch(const Roi *r, Builder *b) {
    Exprs *x = r->x;
    const Expr *at[1] = {ex_var(x, 0)}, *e = ex_cast(x, DT_i32, build_load(b, r->batch, at));
    return ex_bin(x, EX_max, ex_i(x, 0), ex_bin(x, EX_min, e, ex_i(x, r->v->dims[0] - 1)));
}

/* Pools the samples of each bin themselves. */
static Value *roi_by_samples(const Roi *r, Graph *g, const int64_t *shape, bool largest) {
    Exprs *x = r->x;
    DType work = r->work;
    Builder b = build(g, 4, shape);
    RoiAxis a[2];
    RoiSample s[2];
    for (int i = 0; i < 2; i++) {
        a[i] = roi_axis(r, &b, i);
        s[i] = roi_sample(r, &a[i], i, ex_var(x, 2 + i), build_red(&b, most_samples(r, i)));
    }
    const Expr *one = ex_num(x, work, 1), *index[4] = {roi_batch(r, &b), ex_var(x, 1)},
               *body = NULL;
    for (int corner = 0; corner < 4; corner++) {
        const Expr *weight = one;
        for (int i = 0; i < 2; i++) {
            bool high = corner >> i & 1;
            index[2 + i] = high ? s[i].high : s[i].low;
            weight = ex_mul(x, weight, high ? s[i].part : ex_sub(x, one, s[i].part));
        }
        const Expr *e = ex_mul(x, weight, ex_cast(x, work, build_load(&b, r->v, index)));
        body = !body ? e : largest ? ex_bin(x, EX_max, body, e) : ex_add(x, body, e);
    }
    const Expr *valid = ex_and(x, s[0].valid, s[1].valid), *zero = ex_num(x, work, 0);
    const Expr *acc = ex_acc(x, work), *all = ex_mul(x, a[0].samples, a[1].samples);
    if (!largest) {
        const Expr *post = ex_div(x, acc, ex_bin(x, EX_max, all, one));
        return build_reduce(&b, r->v->dt, COMBINE_sum, ex_select(x, valid, body, zero), post);
    }
    if (r->ratio > 0)
        return build_reduce(&b, r->v->dt, COMBINE_max, ex_select(x, valid, body, zero), NULL);
    /* a sample outside the image counts as zero, one that there is not as nothing: zero takes part
     * if the first or last sample is outside, or if there are none */
    const Expr *none = ex_const(x, work, combine_identity(COMBINE_max, work));
    const Expr *partly = ex_bin(x, EX_eq, acc, none);
    for (int i = 0; i < 2; i++) {
        const Expr *bin = ex_var(x, 2 + i), *last = ex_sub(x, a[i].samples, one);
        const Expr *limit = extent_as(x, work, r->extent[i]);
        const Expr *before = ex_lt(x, sample_place(r, &a[i], bin, zero), ex_num(x, work, -1));
        const Expr *after = ex_lt(x, limit, sample_place(r, &a[i], bin, last));
        partly = ex_bin(x, EX_or, partly, ex_bin(x, EX_or, before, after));
    }
    const Expr *post = ex_select(x, partly, ex_bin(x, EX_max, acc, zero), acc);
    return build_reduce(&b, r->v->dt, COMBINE_max, ex_select(x, valid, body, none), post);
}

/* weight[region, bin, element]: how much an element along the axis counts in the sum over all
 * samples of a bin. */
static Value *roi_weights(const Roi *r, Graph *g, int axis) {
    Exprs *x = r->x;
    DType work = r->work;
    int64_t shape[3] = {r->rois->dims[0], r->bins[axis], r->extent[axis]};
    Builder b = build(g, 3, shape);
    RoiAxis a = roi_axis(r, &b, axis);
    RoiSample s = roi_sample(r, &a, axis, ex_var(x, 1), build_red(&b, most_samples(r, axis)));
    const Expr *zero = ex_num(x, work, 0), *one = ex_num(x, work, 1), *element = ex_var(x, 2);
    const Expr *low = ex_select(x, ex_bin(x, EX_eq, s.low, element), ex_sub(x, one, s.part), zero);
    const Expr *high = ex_select(x, ex_bin(x, EX_eq, s.high, element), s.part, zero);
    const Expr *body = ex_select(x, s.valid, ex_add(x, low, high), zero);
    const Expr *post = ex_div(x, ex_acc(x, work), ex_bin(x, EX_max, a.samples, one));
    return build_reduce(&b, work, COMBINE_sum, body, post);
}

/* The average over as many samples as a bin has elements: a weighted sum over height, then one over
 * width, so that the number of samples need not be known. */
static Value *roi_by_weights(const Roi *r, Graph *g, const int64_t *shape) {
    Exprs *x = r->x;
    Value *weights[2] = {roi_weights(r, g, 0), roi_weights(r, g, 1)};
    int64_t partial[4] = {shape[0], shape[1], shape[2], r->extent[1]};
    Builder b = build(g, 4, partial);
    const Expr *h = build_red(&b, r->extent[0]);
    const Expr *iv[4] = {roi_batch(r, &b), ex_var(x, 1), h, ex_var(x, 3)};
    const Expr *iw[3] = {ex_var(x, 0), ex_var(x, 2), h};
    const Expr *e =
        ex_mul(x, ex_cast(x, r->work, build_load(&b, r->v, iv)), build_load(&b, weights[0], iw));
    Value *rows = build_reduce(&b, r->work, COMBINE_sum, e, NULL);
    b = build(g, 4, shape);
    const Expr *w = build_red(&b, r->extent[1]);
    const Expr *ir[4] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2), w};
    iw[1] = ex_var(x, 3), iw[2] = w;
    e = ex_mul(x, build_load(&b, rows, ir), build_load(&b, weights[1], iw));
    return build_reduce(&b, r->v->dt, COMBINE_sum, e, NULL);
}

void import_roi_align(Node *n) {
    Value *v = need_float(n, 0, 4), *rois = need_float(n, 1, 2), *batch = node_need(n, 2);
    if (!v || !rois || !batch) return;
    bool largest = attr_choice(n, "mode", 0, "avg max") == 1;
    int shift = attr_choice(n, "coordinate_transformation_mode", n->version < 16,
                            "half_pixel output_half_pixel");
    Roi r = {.x = n->x, .work = float_work(v->dt), .v = v, .rois = rois, .batch = batch};
    r.scale = attr_float(n, "spatial_scale", 1);
    r.ratio = attr_int(n, "sampling_ratio", 0);
    r.bins[0] = attr_int(n, "output_height", 1);
    r.bins[1] = attr_int(n, "output_width", 1);
    if (n->failed) return;
    r.forced = shift == 1;
    r.offset = r.forced ? 0 : 0.5;
    if (r.ratio < 0 || r.ratio > 65536) {
        invalid(n, E2004, "sampling_ratio is %lld", (long long)r.ratio);
        return;
    }
    if (v->rank != 4 || rois->rank != 2 || !dim_meets(n->x, rois->dims[1], 4) || batch->rank != 1 ||
        !dim_meets(n->x, batch->dims[0], rois->dims[0]) || !dt_is_int(batch->dt)) {
        invalid(n, E2005, "input %s, regions %s and batch indices %s do not fit",
                shape_text(n->g->arena, v->rank, v->dims),
                shape_text(n->g->arena, rois->rank, rois->dims),
                shape_text(n->g->arena, batch->rank, batch->dims));
        return;
    }
    int64_t shape[4] = {rois->dims[0], v->dims[1], r.bins[0], r.bins[1]};
    if (!node_shape_ok(n, 4, shape) || !node_source_ok(n, v, 4, shape)) return;
    for (int i = 0; i < 2; i++) r.extent[i] = v->dims[2 + i];
    n->out[0] = !largest && r.ratio == 0 ? roi_by_weights(&r, n->g, shape)
                                         : roi_by_samples(&r, n->g, shape, largest);
}

/* --- CropAndResize of com.microsoft ----------------------------------------------------------- */

/* Where the elements of a crop, `count` along this axis, lie in an extent of the image; *inside:
 * whether there is such a place, and was one along the axes before. */
static const Expr *crop_position(Builder *b, Value *rois, int axis, int64_t extent, int64_t count,
                                 const Expr **inside) {
    Exprs *x = b->x;
    DType dt = dt_reg(rois->dt);
    const Expr *begin[2] = {ex_var(x, 0), ex_i(x, axis)}, *end[2] = {begin[0], ex_i(x, axis + 2)};
    const Expr *low = ex_cast(x, dt, build_load(b, rois, begin)), *at;
    const Expr *high = ex_cast(x, dt, build_load(b, rois, end)),
               *last = extent_as(x, dt, extent - 1);
    if (count > 1) {
        const Expr *step =
            ex_div(x, ex_mul(x, ex_sub(x, high, low), last), ex_num(x, dt, (double)(count - 1)));
        at = ex_add(x, ex_mul(x, low, last), ex_mul(x, ex_cast(x, dt, ex_var(x, 2 + axis)), step));
    } else {
        at = ex_mul(x, ex_mul(x, ex_num(x, dt, 0.5), ex_add(x, low, high)), last);
    }
    const Expr *in = ex_and(x, ex_le(x, ex_num(x, dt, 0), at), ex_le(x, at, last));
    *inside = *inside ? ex_and(x, *inside, in) : in;
    return at;
}

void import_ms_crop_and_resize(Node *n) {
    Exprs *x = n->x;
    int count;
    Value *v = need_float(n, 0, 4), *rois = need_float(n, 1, 2), *batches = node_need(n, 2);
    const int64_t *size = node_need_ints(n, 3, "crop_size", &count);
    bool linear = attr_choice(n, "mode", 0, "bilinear nearest") == 0;
    double beyond = attr_float(n, "extrapolation_value", 0);
    if (!v || !rois || !batches || !size || n->failed || !index_type_ok(n, batches)) return;
    if (count == 2 && (dim_varies(size[0]) || dim_varies(size[1]))) {
        unsupported(n, "a crop_size that varies");
        return;
    }
    bool fits = v->rank == 4 && rois->rank == 2 && dim_meets(x, rois->dims[1], 4) &&
                batches->rank == 1 && dim_meets(x, batches->dims[0], rois->dims[0]) && count == 2;
    if (!fits || dim_max(x, dim_product(x, 4, v->dims)) == 0 || size[0] < 1 || size[1] < 1) {
        invalid(n, E2005, "rois of shape %s, batch_indices and crop_size for an input of shape %s",
                shape_text(n->g->arena, rois->rank, rois->dims),
                shape_text(n->g->arena, v->rank, v->dims));
        return;
    }
    int64_t shape[4] = {rois->dims[0], v->dims[1], size[0], size[1]};
    if (!node_shape_ok(n, 4, shape)) return;
    Builder b = build(n->g, 4, shape);
    DType dt = dt_reg(v->dt);
    const Expr *inside = NULL, *roi = ex_var(x, 0), *tap[2][2], *part[2];
    const Expr *image = index_read(&b, batches, &roi, v->dims[0]);
    for (int i = 0; i < 2; i++) {
        int64_t extent = v->dims[2 + i];
        const Expr *at = ex_cast(x, dt, crop_position(&b, rois, i, extent, size[i], &inside));
        const Expr *floor = ex_un(x, EX_floor, at);
        if (!linear) floor = ex_un(x, EX_floor, ex_add(x, at, ex_num(x, dt, 0.5)));
        part[i] = ex_sub(x, at, floor);
        tap[i][0] = to_index(x, floor, 0, extent - 1);
        tap[i][1] = to_index(x, ex_un(x, EX_ceil, at), 0, extent - 1);
    }
    const Expr *row[2], *e;
    for (int i = 0; i < 1 + linear; i++) {
        const Expr *pair[2];
        for (int k = 0; k < 1 + linear; k++) {
            const Expr *index[4] = {image, ex_var(x, 1), tap[0][i], tap[1][k]};
            pair[k] = ex_cast(x, dt, build_load(&b, v, index));
        }
        row[i] = pair[0];
        if (linear) row[i] = ex_add(x, pair[0], ex_mul(x, ex_sub(x, pair[1], pair[0]), part[1]));
    }
    e = linear ? ex_add(x, row[0], ex_mul(x, ex_sub(x, row[1], row[0]), part[0])) : row[0];
    n->out[0] = build_map(&b, v->dt, ex_select(x, inside, e, ex_num(x, dt, beyond)));
}
