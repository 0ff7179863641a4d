/* winograd: a convolution with a window of 3 or 5, or that squared, or a longer one along its only
 * coordinate, and stride 1 as products of transformed tiles, for targets of plain loops with
 * vectors.
 *
 * Of every tile of m x m results, m + r - 1 squared inputs d and the weights g are transformed,
 * multiplied element by element and summed over the channels, and the sum is transformed back
 * (Winograd's minimal filtering F(m x m, r x r), with the points 0, 1, -1 and infinity, and 2 and
 * -2 where there are 6, as in Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"):
 *
 *     Y = At [ (G g Gt) * (Bt d B) ] A
 *
 * For m = 4, 36 multiply-adds take the place of 144; in f32 the result differs from the direct sum
 * by about 1e-6 of the output's scale, more than the direct sum errs, but less than a thousandth of
 * what half floats do. For m = 2, 16 take the place of 36, and what is rounded grows so little that
 * with --precision the transformed tiles and weights may be of 16 bits, which errs about twice as
 * much as the direct sum of rounded operands. For windows of 5 m is 2, and 36 take the place of
 * 100. The weights are transformed when compiling and take 4, 16/9 or 36/25 times their room. Where
 * that, the transforms or tiles beyond the edge cost more than is won, the convolution stays.
 *
 * Tiles are cut along two coordinates, the last two with such a window, or along the only one: 6
 * (4) multiply-adds then take the place of 12 (6), and weights twice (4/3 times) their room. Other
 * coordinates of an image, and of the window, are as they were: the products are summed over those
 * of the window, too. Of a window whose places are d apart, each tile lies in one of the d x d
 * images of every d-th line and pixel (its phase).
 *
 * A longer window along the only coordinate is cut into pieces of 3 taps, as if there were another
 * coordinate, over whose places products are summed: 18 multiply-adds take the place of 28 (7
 * taps), 24 of 44 (11 taps).
 *
 * Of bytes the result is exact. G has denominators that divide 24 (2 for m = 2); with the weights
 * of each point multiplied by them, all is integers, of which transformed tiles and weights fit
 * into 16 bits, and the results are 576 (4) times too large. In 32 bits they may wrap around: what
 * is odd in 576 has an inverse there, and a shift by the other 6 bits leaves y if it has at most
 * 26, which is known of the weights.
 */
#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/passes.h"

#include <math.h>
#include <string.h>

#define MOST_WINDOW 5
#define MOST_POINTS 6
#define MOST_AXES   2

/* Of a byte of the weights, in multiply-adds of one lane. */
#define COST_FROM_L2     0.5
#define COST_FROM_MEMORY 4

/* F(tile x tile, window x window); points = tile + window - 1. */
typedef struct Winograd {
    int tile, window, points;
    double cost; /* of the transforms of an input or a result along two axes, in multiply-adds of
                    one lane, with what lies between them in caches (strips.c) */
    double input[MOST_POINTS * MOST_POINTS];  /* Bt [points][points] */
    double weight[MOST_POINTS * MOST_WINDOW]; /* G [points][window] */
    double output[MOST_POINTS * MOST_POINTS]; /* At [tile][points] */
    /* Of integers: the weights of a point times its `scale` are whole, and its part of the results
     * comes times `whole` / scale. Along both coordinates that is whole^2 = odd << shift; odd *
     * inverse = 1 mod 2^32. */
    double whole, scale[MOST_POINTS];
    int shift;
    uint32_t inverse;
} Winograd;

static const Winograd two = {
    .tile = 2,
    .window = 3,
    .points = 4,
    .cost = 12,
    .input = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, -1, 0, 1},
    .weight = {1, 0, 0, 0.5, 0.5, 0.5, 0.5, -0.5, 0.5, 0, 0, 1},
    .output = {1, 1, 1, 0, 0, 1, -1, 1},
    .whole = 2,
    .scale = {2, 2, 2, 2},
    .shift = 2,
    .inverse = 1,
};
/* What depends on the points 0, 1, -1, 2, -2 and infinity alone. */
#define SIX_POINTS                                                                                 \
    .points = 6, .input = {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,            \
                           0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1},           \
    .whole = 24, .scale = {24, 24, 24, 24, 24, 12}, /* 24 would make the last too large */         \
        .shift = 6, .inverse = 954437177

static const Winograd four = {
    .tile = 4,
    .window = 3,
    .cost = 12,
    .weight = {1.0 / 4, 0, 0, -1.0 / 6, -1.0 / 6, -1.0 / 6, -1.0 / 6, 1.0 / 6, -1.0 / 6, 1.0 / 24,
               1.0 / 12, 1.0 / 6, 1.0 / 24, -1.0 / 12, 1.0 / 6, 0, 0, 1},
    .output = {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 0, 0, 1, 1, 4, 4, 0, 0, 1, -1, 8, -8, 1},
    SIX_POINTS,
};
static const Winograd two_of_five = {
    .tile = 2,
    .window = 5,
    .cost = 48,
    .weight = {1.0 / 4,  0,        0,        0,       0,        -1.0 / 6,  -1.0 / 6, -1.0 / 6,
               -1.0 / 6, -1.0 / 6, -1.0 / 6, 1.0 / 6, -1.0 / 6, 1.0 / 6,   -1.0 / 6, 1.0 / 24,
               1.0 / 12, 1.0 / 6,  1.0 / 3,  2.0 / 3, 1.0 / 24, -1.0 / 12, 1.0 / 6,  -1.0 / 3,
               2.0 / 3,  0,        0,        0,       0,        1},
    .output = {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 1},
    SIX_POINTS,
};

/* A coordinate along which tiles are cut: `dim` of the result and of the image. */
typedef struct Axis {
    int dim;
    int64_t dilation;
    int64_t tiles; /* of one phase; they vary where the extent does */
} Axis;

typedef struct Convolution {
    Graph *g;
    Exprs *x;
    Op *op;
    const Expr *load;       /* of the image */
    Value *image, *weights; /* [n, c, ...], padded; [k, c, window ...] */
    int n_axes;
    Axis axis[MOST_AXES];
    bool joined; /* tiles along both are one coordinate: rows of a run may have few of them, which
                    lie side by side then */
    /* The reduction of op that runs over the window along a dimension; -1: none, for its extent is
     * 1. */
    int window[MAX_RANK];
    int64_t taps;   /* of the window along each axis */
    int64_t pieces; /* of 3 taps each that a longer window is cut into */
    int64_t c, k;
    int64_t others;    /* places of the window along other coordinates */
    DType dt;          /* that sums are computed in: f32, or i32 of ... */
    int64_t low, high; /* ... image elements in this range */
    const Winograd *f;
} Convolution;

/* --- recognising ------------------------------------------------------------------------------ */

/* Is index i of the load coordinate `a` (0 where that has but one value) and, unless it is -1, a
 * multiple of `b`? */
static bool is_sum(const Convolution *v, const Expr *load, int i, int a, int b, int64_t *multiple) {
    int64_t coef[MAX_RANK], extent[MAX_RANK];
    const Expr *base;
    int n = op_extents(v->op, extent);
    if (!ex_affine(v->x, load->arg[i], n, coef, &base) || !ex_is_int(base, 0)) return false;
    for (int k = 0; k < n; k++) {
        if (k == a ? coef[k] != 1 && (coef[k] || extent[k] > 1) : k != b && coef[k]) return false;
        if (k == b) *multiple = coef[k];
    }
    return b < 0 || *multiple >= 1;
}

static bool is_coordinate(const Convolution *v, const Expr *load, int i, int a) {
    return is_sum(v, load, i, a, -1, NULL);
}

/* The load of a factor: of f32, or of an integer that is widened; else NULL. */
static const Expr *loaded(const Convolution *v, const Expr *factor) {
    if (v->dt == DT_i32) factor = factor->op == EX_cast ? factor->arg[0] : factor;
    return factor->op == EX_load && factor->n == v->op->out[0]->rank ? factor : NULL;
}

/* Are factors of these types summed in v->dt? */
static bool fits(const Convolution *v) {
    if (v->dt == DT_f32) return v->image->dt == DT_f32 && v->weights->dt == DT_f32;
    return v->dt == DT_i32 && (v->weights->dt == DT_i8 || v->weights->dt == DT_i16);
}

/* The axis that is dimension d; -1: none. */
static int axis_of(const Convolution *v, int d) {
    for (int a = 0; a < v->n_axes; a++)
        if (v->axis[a].dim == d) return a;
    return -1;
}

/* Reads the window off the load of the weights. */
static bool find_window(Convolution *v, const Expr *weights) {
    const Op *op = v->op;
    const int rank = op->out[0]->rank;
    int found = 1;
    for (int d = 2; d < rank; d++) {
        v->window[d] = -1;
        if (ex_is_int(weights->arg[d], 0) && v->weights->shape[d] == 1) continue;
        if (found == op->n_red || !is_coordinate(v, weights, d, rank + found)) return false;
        v->window[d] = found++;
    }
    return found == op->n_red;
}

/* Takes the coordinates that tiles are cut along, those of so many taps. False if there are none,
 * or if what is read along others depends on more than those. */
static bool find_axes(Convolution *v, int64_t taps) {
    const int rank = v->op->out[0]->rank;
    v->taps = taps;
    v->pieces = taps == 3 || taps == 5 ? 1 : (taps + 2) / 3;
    v->n_axes = 0;
    v->others = 1;
    uint64_t free = 0; /* what indices along others may depend on */
    for (int d = rank - 1; d >= 2; d--) {
        const int w = rank + v->window[d];
        Axis axis = {.dim = d};
        if (v->n_axes < MOST_AXES && v->weights->shape[d] == taps && v->op->out[0]->shape[d] > 1 &&
            is_sum(v, v->load, d, d, w, &axis.dilation)) {
            v->axis[v->n_axes++] = axis;
        } else {
            free |= UINT64_C(1) << d;
            if (v->window[d] >= 0) free |= UINT64_C(1) << w;
            v->others *= v->weights->shape[d];
        }
    }
    if (v->n_axes == 2) { /* in the order of coordinates */
        Axis last = v->axis[0];
        v->axis[0] = v->axis[1], v->axis[1] = last;
    }
    for (int d = 2; d < rank; d++)
        if (free >> d & 1 && ex_vars(v->load->arg[d]) & ~free) return false;
    return v->n_axes;
}

/* Reads op as such a convolution: results n, k, ...; summed over c and the window. */
static bool read_convolution(Convolution *v) {
    const Op *op = v->op;
    if (!op_is_product(op)) return false;
    const Value *out = op->out[0];
    if (out->rank < 3 || op->n_red > out->rank - 1) return false;
    /* the products have coordinates of points and of phases, two each, and reductions */
    if (out->rank + 4 + op->n_red > MAX_RANK) return false;
    if (dim_varies(out->dims[1])) return false;
    /* where images end is said by symbols, which the body of a loop may not have */
    if (dims_vary(out->rank - 1, out->dims + 1) && (v->g->parent || !graph_has_extents(v->g, out)))
        return false;
    v->dt = (DType)op->body->dt;
    for (int f = 0; f < 2; f++) {
        const Expr *image = loaded(v, op->body->arg[f]);
        const Expr *weights = loaded(v, op->body->arg[1 - f]);
        if (!image || !weights) continue;
        v->load = image;
        v->image = op->in[image->k.i];
        v->weights = op->in[weights->k.i];
        if (!value_is_const(v->weights) || value_is_const(v->image) || !fits(v)) continue;
        if (!is_coordinate(v, image, 0, 0) || !is_coordinate(v, image, 1, out->rank)) continue;
        if (!is_coordinate(v, weights, 0, 1) || !is_coordinate(v, weights, 1, out->rank)) continue;
        if (!find_window(v, weights)) continue;
        v->k = out->shape[1];
        v->c = op->red[0];
        const bool longer = v->dt == DT_f32 && out->rank == 3 && v->weights->shape[2] > 3;
        if (!find_axes(v, 3) && !find_axes(v, 5) &&
            (!longer || !find_axes(v, v->weights->shape[2])))
            continue;
        /* of integers, what is_exact and result_of know is of two axes */
        return v->dt == DT_f32 ||
               (v->n_axes == 2 && integer_range(v->g->arena, v->image, &v->low, &v->high));
    }
    return false;
}

/* The largest magnitude of sums of elements of the image, with the rows of a matrix as factors
 * along both coordinates. */
static double reach(const Convolution *v, int rows, int columns, const double *m) {
    double most = 0;
    for (int i = 0; i < rows * rows; i++) {
        double low = 0, high = 0;
        for (int k = 0; k < columns * columns; k++) {
            double f = m[i / rows * columns + k / columns] * m[i % rows * columns + k % columns];
            high += f > 0 ? f * (double)v->high : f * (double)v->low;
            low += f > 0 ? f * (double)v->low : f * (double)v->high;
        }
        most = fmax(most, fmax(high, -low));
    }
    return most;
}

/* Is the convolution of integers exact with this filtering? */
static bool is_exact(const Convolution *v, const Winograd *f) {
    int64_t depth = v->c * v->others * f->window * f->window;
    const void *weights = constant_settle(v->g->arena, v->weights);
    double most = 0, limit = ldexp(1, 31 - f->shift);
    for (int64_t k = 0; k < v->k; k++) {
        double low = 0, high = 0;
        for (int64_t i = 0; i < depth; i++) {
            double w = (double)dt_load(v->weights->dt, weights, (size_t)(k * depth + i)).i;
            high += w > 0 ? w * (double)v->high : w * (double)v->low;
            low += w > 0 ? w * (double)v->low : w * (double)v->high;
            most = fmax(most, fabs(w));
        }
        if (high >= limit || -low >= limit) return false;
    }
    double weight = 0;
    for (int i = 0; i < f->points; i++) {
        double sum = 0;
        for (int r = 0; r < f->window; r++) sum += fabs(f->weight[i * f->window + r] * f->scale[i]);
        weight = fmax(weight, sum);
    }
    return weight * weight * most <= INT16_MAX &&
           reach(v, f->points, f->points, f->input) <= INT16_MAX;
}

/* What products cost, in multiply-adds of one lane of f32, `rate` of which take the time of one;
 * weights come from the cache, or the memory if that does not keep them, meanwhile: few tiles take
 * as long as those. */
static double cost_of(double products, double rate, double weights, const Target *t) {
    double byte = weights > (double)t->l2_bytes ? COST_FROM_MEMORY : COST_FROM_L2;
    return fmax(products / rate, byte * weights);
}

static int64_t divided_up(Exprs *x, int64_t extent, int64_t by) {
    return dim_div(x, dim_add(x, extent, by - 1), by);
}

/* How many tiles there are of so many results along the axis, of each phase. */
static int64_t tiles_along(const Convolution *v, const Axis *axis, int64_t extent, int tile) {
    return divided_up(v->x, divided_up(v->x, extent, axis->dilation), tile);
}

#define MOST_RUNS 3

/* Sizes of the result in runs: of what varies the most, half of that and a quarter. */
typedef struct Sizes {
    int n;
    double pixels[MOST_RUNS];
    int64_t along[MOST_RUNS][MOST_AXES]; /* the axis */
} Sizes;

static Sizes sizes_of(const Convolution *v) {
    const Value *out = v->op->out[0];
    Sizes sizes = {0};
    for (int64_t part = 1; sizes.n < MOST_RUNS; part *= 2) {
        double *pixels = &sizes.pixels[sizes.n], others = (double)value_numel(out) / (double)v->k;
        *pixels = 1;
        bool varies = false;
        for (int a = 0; a < v->n_axes; a++) {
            const int64_t dim = out->dims[v->axis[a].dim], most = out->shape[v->axis[a].dim];
            const int64_t least = dim_min(v->x, dim), some = (most + part - 1) / part;
            varies |= least < some;
            sizes.along[sizes.n][a] = some > least ? some : least;
            *pixels *= (double)sizes.along[sizes.n][a];
            others /= (double)most;
        }
        *pixels *= others;
        sizes.n++;
        if (!varies) break;
    }
    return sizes;
}

/* What the direct sum of a result of so many pixels costs. */
static double direct_cost(const Convolution *v, const PassOptions *o, bool exact, DType from,
                          double pixels) {
    const double products =
        pow((double)v->taps, v->n_axes) * (double)(v->c * v->others) * (double)v->k;
    const DType dt = exact ? (DType)v->image->dt : from;
    return 0.8 * cost_of(products * pixels, target_rate(o->target, dt, from),
                         products * (double)dt_store(from), o->target);
}

/* What the filtering costs of the result of run `run`. */
static double filtering_cost(const Convolution *v, const Winograd *f, const Target *t, DType dt,
                             const Sizes *sizes, int run) {
    const double ck = (double)(v->c * v->others) * (double)v->k;
    const double points = pow(f->points, v->n_axes) * (double)v->pieces;
    double tiles = sizes->pixels[run];
    for (int a = 0; a < v->n_axes; a++) {
        const int64_t extent = sizes->along[run][a];
        const int64_t along = tiles_along(v, &v->axis[a], extent, f->tile);
        tiles *= (double)(along * v->axis[a].dilation) / (double)extent;
    }
    /* along one axis there is one transform, of lines of `tile` in place of `points` */
    const double transforms = v->n_axes == 2 ? f->cost : f->cost * f->tile / f->points / 2;
    return cost_of(tiles * points * ck, target_rate(t, dt, dt), points * ck * (double)dt_store(dt),
                   t) +
           tiles * pow(f->tile, v->n_axes) * transforms * (double)(v->c * v->pieces + v->k);
}

/* The filtering that costs least, of what a pixel costs in the mean of the runs; false if the
 * direct sum does. */
static bool choose(Convolution *v, const PassOptions *o) {
    const Target *t = o->target;
    bool exact = v->dt == DT_i32 || o->precision == DT_none || o->precision == DT_f32;
    DType from = v->dt == DT_i32 ? v->weights->dt : exact ? DT_f32 : o->precision;
    DType dt = v->dt == DT_i32 ? DT_i16 : from;
    if ((v->dt == DT_i32 && !t->word_products) || value_numel(v->op->out[0]) == 0) return false;
    const Sizes sizes = sizes_of(v);
    double best = 0;
    for (int run = 0; run < sizes.n; run++)
        best += direct_cost(v, o, exact, from, sizes.pixels[run]) / sizes.pixels[run];
    static const Winograd *const known[] = {&two, &four, &two_of_five};
    for (int i = 0; i < 3; i++) {
        const Winograd *f = known[i];
        if (f->window != (v->pieces > 1 ? 3 : v->taps) || (!exact && f != &two)) continue;
        if (v->dt == DT_i32 && !is_exact(v, f)) continue;
        double cost = 0;
        for (int run = 0; run < sizes.n; run++)
            cost += filtering_cost(v, f, t, dt, &sizes, run) / sizes.pixels[run];
        if (cost >= best) continue;
        best = cost;
        v->f = f;
    }
    if (!v->f || v->c < 16 || v->k < 8) return false;
    for (int a = 0; a < v->n_axes; a++) {
        Axis *axis = &v->axis[a];
        axis->tiles = tiles_along(v, axis, v->op->out[0]->dims[axis->dim], v->f->tile);
    }
    v->joined = v->n_axes == 2 && v->axis[0].dilation == 1 && v->axis[1].dilation == 1 &&
                dim_varies(v->axis[1].tiles);
    return true;
}

/* --- rewriting -------------------------------------------------------------------------------- */

/* The element of a matrix: a number where its place is known. */
static const Expr *number(const Convolution *v, int rows, int columns, const double *from,
                          const Expr *row, const Expr *column) {
    Exprs *x = v->x;
    const Expr *e = NULL;
    for (int i = rows - 1; i >= 0; i--) {
        const Expr *one = NULL;
        for (int k = columns - 1; k >= 0; k--) {
            const Expr *here = ex_num(x, v->dt, from[i * columns + k]);
            one = one ? ex_select(x, ex_bin(x, EX_eq, column, ex_i(x, k)), here, one) : here;
        }
        e = e ? ex_select(x, ex_bin(x, EX_eq, row, ex_i(x, i)), one, e) : one;
    }
    return e;
}

/* G g Gt of every pair of channels, and of every place of the window along other coordinates:
 * [points, points, c, others, k]. Along one axis only, the second is of one point. */
static Value *transformed_weights(const Convolution *v) {
    const int points = v->f->points, across = v->n_axes == 2 ? points : 1;
    const int window = v->f->window, taps = v->n_axes == 2 ? window : 1;
    static const double one_point[1] = {1};
    const double *m = v->f->weight, *n = v->n_axes == 2 ? m : one_point, *scale = v->f->scale;
    bool whole = v->dt == DT_i32;
    DType dt = whole ? DT_i16 : DT_f32;
    const int rank = v->op->out[0]->rank;
    int64_t stride[MAX_RANK], other[MAX_RANK]; /* of the window; places along others, in order */
    int n_others = 0;
    stride[rank - 1] = 1;
    for (int d = rank - 1; d > 0; d--) stride[d - 1] = stride[d] * v->weights->shape[d];
    const int64_t down = stride[v->axis[0].dim], right = stride[v->axis[v->n_axes - 1].dim];
    int64_t shape[MAX_RANK], pairs = v->c * v->others * v->k;
    int r = 0;
    for (int a = 0; a < v->n_axes; a++) shape[r++] = points;
    shape[r++] = v->c;
    for (int d = 2; d < rank; d++)
        if (axis_of(v, d) < 0) other[n_others++] = d, shape[r++] = v->weights->shape[d];
    shape[r++] = v->k;
    const void *from = constant_settle(v->g->arena, v->weights);
    void *data = arena_array(v->g->arena, (size_t)(points * across * pairs), dt_store(dt));
    for (int64_t pair = 0; pair < pairs; pair++) { /* of c, others, k */
        int64_t at = pair % v->k * stride[0], left = pair / v->k;
        for (int o = n_others - 1; o >= 0; o--) {
            at += left % v->weights->shape[other[o]] * stride[other[o]];
            left /= v->weights->shape[other[o]];
        }
        at += left * stride[1];
        double w[MOST_WINDOW * MOST_WINDOW];
        for (int i = 0; i < window; i++)
            for (int j = 0; j < taps; j++) {
                Scalar one = dt_load(v->weights->dt, from, (size_t)(at + i * down + j * right));
                w[i * taps + j] = whole ? (double)one.i : one.f;
            }
        for (int i = 0; i < points; i++)
            for (int j = 0; j < across; j++) {
                double sum = 0;
                for (int p = 0; p < window; p++)
                    for (int q = 0; q < taps; q++)
                        sum += m[i * window + p] * n[j * taps + q] * w[p * taps + q];
                Scalar one = {.f = sum};
                if (whole) one.i = llrint(sum * scale[i] * scale[j]);
                dt_save(dt, data, (size_t)((i * across + j) * pairs + pair), one);
            }
    }
    return graph_const(v->g, dt, r, shape, data);
}

/* Where the coordinates of an image are in a tensor of tiles: the points along the first axis, n,
 * the others in order, of axes that are cut into tiles the phase (if there are several) and the
 * tile, the points along the second axis, c. So neither a tile's elements nor the rows of a product
 * are all a multiple of a page apart, as they often would be with all points first, or last: then
 * they compete for a few lines of the L1 cache. */
typedef struct Places {
    int rank;
    int64_t shape[MAX_RANK];
    int at[MAX_RANK], phase[MAX_RANK]; /* of each dimension of the image; no phase: -1 */
    int point[MOST_AXES];
} Places;

/* Of an image, or the result, of which the first `cut` axes are cut. */
static Places places_of(const Convolution *v, const Value *of, int cut) {
    Places p = {.rank = 0};
    for (int i = 0; i < of->rank; i++) {
        int d = i == 0 ? 0 : i < of->rank - 1 ? i + 1 : 1;
        for (int a = 0; a < cut; a++) {
            if (a ? d != 1 : i != 0) continue;
            p.point[a] = p.rank++;
            p.shape[p.point[a]] = v->f->points;
        }
        int a = axis_of(v, d);
        const Axis *axis = a >= 0 && a < cut ? &v->axis[a] : NULL;
        p.phase[d] = axis && axis->dilation > 1 ? p.rank++ : -1;
        if (p.phase[d] >= 0) p.shape[p.phase[d]] = axis->dilation;
        const bool joins = v->joined && axis == &v->axis[1];
        p.at[d] = joins ? p.at[v->axis[0].dim] : p.rank++;
        p.shape[p.at[d]] = joins  ? dim_mul(v->x, v->axis[0].tiles, axis->tiles)
                           : axis ? axis->tiles
                                  : of->dims[d];
    }
    return p;
}

/* Are transforms along all axes one operator? Where rows end in a run they are one for each:
 * results would be no tiles of straight lines (schedule_matrices.c), and each of them a sum of all.
 */
static bool together(const Convolution *v) {
    const Value *out = v->op->out[0];
    return !dims_vary(out->rank - 1, out->dims + 1);
}

/* The tile along axis `a` that is number `at` of joined ones, which may be beyond those of a run.
 */
static const Expr *tile_of(const Convolution *v, int a, const Expr *at) {
    Exprs *x = v->x;
    const Expr *apart = dim_simplified(x, v->axis[1].tiles);
    const Expr *tile = ex_bin(x, a ? EX_rem : EX_div, at, apart);
    return ex_bin(x, EX_min, tile, ex_i(x, dim_max(x, v->axis[a].tiles) - 1));
}

/* Bt d B. */
static Value *transformed_image(const Convolution *v) {
    Exprs *x = v->x;
    Value *image = v->image;
    int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
    bool padded = false;
    for (int a = 0; a < v->n_axes; a++) {
        const Axis *axis = &v->axis[a];
        int64_t lines = dim_add(x, dim_mul(x, axis->tiles, v->f->tile), v->f->window - 1);
        lines = dim_mul(x, lines, axis->dilation);
        after[axis->dim] = dim_sub(x, lines, image->dims[axis->dim]);
        padded |= after[axis->dim] != 0;
    }
    if (padded) image = g_pad(v->g, image, before, after, (Scalar){0});
    const int step = together(v) ? v->n_axes : 1;
    Value *from = image;
    for (int first = 0; first < v->n_axes; first += step) {
        /* pixels along later axes are as they were */
        Places is = places_of(v, image, first), to = places_of(v, image, first + step);
        const Expr *index[MAX_RANK], *factor = NULL;
        Builder b = build(v->g, to.rank, to.shape);
        for (int a = 0; a < first; a++) index[is.point[a]] = ex_var(x, to.point[a]);
        for (int d = 0; d < image->rank; d++) {
            index[first ? is.at[d] : d] = ex_var(x, to.at[d]);
            if (is.phase[d] >= 0) index[is.phase[d]] = ex_var(x, to.phase[d]);
        }
        for (int a = 0; a < 2 && first && v->joined; a++)
            index[is.at[v->axis[a].dim]] = tile_of(v, a, ex_var(x, to.at[v->axis[first].dim]));
        for (int a = first; a < first + step; a++) {
            const Axis *axis = &v->axis[a];
            const int along = first ? is.at[axis->dim] : axis->dim, phase = to.phase[axis->dim];
            const Expr *r = build_red(&b, v->f->points);
            index[along] = ex_mul(x, index[along], ex_i(x, v->f->tile * axis->dilation));
            if (phase >= 0) index[along] = ex_add(x, index[along], ex_var(x, phase));
            index[along] = ex_add(x, index[along], ex_mul(x, r, ex_i(x, axis->dilation)));
            const Expr *one =
                number(v, v->f->points, v->f->points, v->f->input, ex_var(x, to.point[a]), r);
            factor = factor ? ex_mul(x, factor, one) : one;
        }
        const Expr *body = ex_mul(x, ex_cast(x, v->dt, build_load(&b, from, index)), factor);
        from = build_reduce(&b, v->dt == DT_i32 ? DT_i16 : DT_f32, COMBINE_sum, body, NULL);
    }
    return from;
}

/* The products, summed over c and the others of the window: placed as `to`, at all points. */
static Value *products(const Convolution *v, const Places *to, Value *image, Value *weights) {
    Exprs *x = v->x;
    const Op *op = v->op;
    const int rank = op->out[0]->rank;
    Builder b = build(v->g, to->rank, to->shape);
    const Expr *moved[MAX_RANK], *in[MAX_RANK], *w[MAX_RANK];
    int n_w = v->n_axes;
    Places of = places_of(v, v->image, v->n_axes);
    for (int i = 0; i < rank + op->n_red; i++) moved[i] = ex_i(x, 0);
    for (int a = 0; a < v->n_axes; a++) w[a] = in[of.point[a]] = ex_var(x, to->point[a]);
    w[n_w++] = in[of.at[1]] = build_red(&b, v->c);
    in[of.at[0]] = ex_var(x, to->at[0]);
    for (int d = 2; d < rank; d++) {
        moved[d] = in[of.at[d]] = ex_var(x, to->at[d]);
        if (of.phase[d] >= 0) in[of.phase[d]] = ex_var(x, to->phase[d]);
        if (axis_of(v, d) >= 0) continue;
        w[n_w++] = v->window[d] < 0 ? ex_i(x, 0) : build_red(&b, op->red[v->window[d]]);
        if (v->window[d] >= 0) moved[rank + v->window[d]] = w[n_w - 1];
    }
    for (int d = 2; d < rank; d++)
        if (axis_of(v, d) < 0)
            in[of.at[d]] = ex_subst_vars(x, v->load->arg[d], rank + op->n_red, moved);
    w[n_w++] = ex_var(x, to->at[1]);
    const Expr *product = ex_mul(x, ex_cast(x, v->dt, build_load(&b, image, in)),
                                 ex_cast(x, v->dt, build_load(&b, weights, w)));
    return build_reduce(&b, v->dt, COMBINE_sum, product, NULL);
}

/* The result of which the sum is a multiple. */
static const Expr *result_of(const Convolution *v, const Expr *sum) {
    Exprs *x = v->x;
    const Expr *odd = ex_mul(x, sum, ex_int(x, DT_i32, (int32_t)v->f->inverse));
    return ex_bin(x, EX_shr, odd, ex_int(x, DT_i32, v->f->shift));
}

/* At, or what takes its place where the weights of points have been multiplied. */
static const double *output_matrix(const Convolution *v) {
    const Winograd *f = v->f;
    double *m = ARENA_ARRAY(v->g->arena, f->tile * f->points, double);
    for (int i = 0; i < f->tile * f->points; i++)
        m[i] = f->output[i] * (v->dt == DT_i32 ? f->whole / f->scale[i % f->points] : 1);
    return m;
}

/* A symbol becomes a load of an input of op that has its value. */
static const Expr *symbol_input(void *user, const Expr *e, const Expr *const *args) {
    const Convolution *v = user;
    if (e->op == EX_load) return ex_rebuild(v->x, e, args);
    if (e->op != EX_var || e->k.i < DIM_VAR) return e;
    Value *symbol = v->g->symbols.items[e->k.i - DIM_VAR];
    return ex_load(v->x, symbol->dt, op_add_input(v->g, v->op, symbol), 0, NULL);
}

static void rewrite(Convolution *v) {
    Graph *g = v->g;
    Exprs *x = v->x;
    Op *op = v->op, *last = g->last;
    const int tile = v->f->tile, points = v->f->points, rank = op->out[0]->rank;
    const double *m = output_matrix(v);
    Places to = places_of(v, op->out[0], v->n_axes);
    Value *image = transformed_image(v), *weights = transformed_weights(v);
    Value *sums = products(v, &to, image, weights);
    const int first = together(v) ? 0 : v->n_axes - 1; /* of the axes along which op sums up */
    for (int a = 0; a < first; a++) {
        const Expr *from[MAX_RANK];
        to.shape[to.point[a]] = tile;
        Builder b = build(g, to.rank, to.shape);
        const Expr *r = build_red(&b, points);
        for (int i = 0; i < to.rank; i++) from[i] = i == to.point[a] ? r : ex_var(x, i);
        const Expr *one = number(v, tile, points, m, ex_var(x, to.point[a]), r);
        sums =
            build_reduce(&b, v->dt, COMBINE_sum, ex_mul(x, build_load(&b, sums, from), one), NULL);
    }
    /* A, and what op did to its sum */
    Value **inputs = ARENA_ARRAY(g->arena, op->n_in + 1, Value *);
    memcpy(inputs, op->in, (size_t)op->n_in * sizeof *inputs);
    const Expr *at[MAX_RANK], *factor = NULL;
    int64_t extent[MAX_RANK];
    for (int d = 0; d < rank; d++) {
        at[to.at[d]] = ex_var(x, d);
        extent[d] = op->out[0]->shape[d];
    }
    for (int a = 0; a < v->n_axes; a++) {
        const Axis *axis = &v->axis[a];
        const Expr *apart = ex_i(x, axis->dilation), *by = ex_i(x, tile);
        const Expr *line = ex_div(x, ex_var(x, axis->dim), apart);
        if (to.phase[axis->dim] >= 0)
            at[to.phase[axis->dim]] = ex_bin(x, EX_rem, ex_var(x, axis->dim), apart);
        const Expr **number_of = &at[to.at[axis->dim]], *own = ex_div(x, line, by);
        if (a && v->joined) { /* behind the tiles of the rows before */
            *number_of = ex_mul(x, *number_of, dim_simplified(x, axis->tiles));
            own = ex_add(x, *number_of, own);
        }
        *number_of = own;
        const Expr *place = at[to.point[a]] = ex_bin(x, EX_rem, line, by);
        if (a < first) continue;
        const int red = rank + a - first;
        at[to.point[a]] = ex_var(x, red);
        extent[red] = points;
        const Expr *one = number(v, tile, points, m, place, ex_var(x, red));
        factor = factor ? ex_mul(x, factor, one) : one;
    }
    if (v->dt == DT_i32) {
        const Expr *acc = ex_acc(x, v->dt);
        op->post = ex_replace(x, op->post, acc, result_of(v, acc));
    }
    inputs[op->n_in] = sums;
    op->body = ex_mul(x, ex_load(x, v->dt, op->n_in, to.rank, at), factor);
    op->in = inputs;
    op->n_in++;
    op->n_red = v->n_axes - first;
    if (v->joined) op->body = ex_rewrite(x, op->body, symbol_input, v);
    op->body = ex_simplify(x, op->body, rank + op->n_red, extent);
    op->red = arena_copy(g->arena, &extent[rank], (size_t)op->n_red * sizeof *extent);
    graph_drop_inputs(g, op);
    graph_take_in(g, last, op);
}

/* A long window along the only coordinate in pieces of 3 taps, the last with zeros: the sum over a
 * window of pieces x 3 in images that are shifted by 3 taps for each piece, and what op did to its
 * sum. Returns the sum. */
static Op *split_window(Convolution *v) {
    Graph *g = v->g;
    Exprs *x = v->x;
    Op *op = v->op, *last = g->last;
    const Value *out = op->out[0];
    const int64_t apart = v->axis[0].dilation, pieces = v->pieces;
    const int64_t before[3] = {0}, after[3] = {0, 0, apart * (3 * pieces - v->taps)};
    Value *image = after[2] ? g_pad(g, v->image, before, after, (Scalar){0}) : v->image;
    const int64_t shifted[4] = {image->dims[0], v->c, pieces, dim_add(x, out->dims[2], 2 * apart)};
    const int64_t window[4] = {v->k, v->c, pieces, 3},
                  sums[4] = {out->dims[0], v->k, 1, out->dims[2]};

    const float *from = constant_settle(g->arena, v->weights);
    float *data = ARENA_ARRAY(g->arena, shape_numel(4, window), float);
    for (int64_t i = 0; i < v->k * v->c; i++)
        memcpy(data + i * 3 * pieces, from + i * v->taps, (size_t)v->taps * sizeof *data);

    Builder b = build(g, 4, shifted);
    const Expr *by = ex_mul(x, ex_var(x, 2), ex_i(x, 3 * apart));
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), ex_add(x, ex_var(x, 3), by)};
    image = build_map(&b, DT_f32, build_load(&b, image, at));
    b = build(g, 4, sums);
    const Expr *c = build_red(&b, v->c), *piece = build_red(&b, pieces), *tap = build_red(&b, 3);
    const Expr *place = ex_add(x, ex_var(x, 3), ex_mul(x, tap, ex_i(x, apart)));
    const Expr *pixel[4] = {ex_var(x, 0), c, ex_add(x, ex_var(x, 2), piece), place};
    const Expr *weight[4] = {ex_var(x, 1), c, piece, tap};
    const Expr *factor = build_load(&b, graph_const(g, DT_f32, 4, window, data), weight);
    Value *sum = build_reduce(&b, DT_f32, COMBINE_sum,
                              ex_mul(x, build_load(&b, image, pixel), factor), NULL);
    Op *made = sum->def;
    made->src = op->src;

    Value **in = ARENA_ARRAY(g->arena, op->n_in + 1, Value *);
    const Expr *own[3] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2)};
    memcpy(in, op->in, (size_t)op->n_in * sizeof *in);
    in[op->n_in] = g_reshape(g, sum, 3, out->dims);
    op->body = ex_replace(x, op->post, ex_acc(x, v->dt), ex_load(x, v->dt, op->n_in, 3, own));
    op->in = in;
    op->n_in++;
    op->kind = OP_map;
    op->combine = COMBINE_none;
    op->n_red = 0;
    op->post = NULL;
    graph_drop_inputs(g, op);
    graph_take_in(g, last, op);
    return made;
}

void pass_winograd(Graph *g, const PassOptions *o) {
    if (o->target->blocks || !o->target->vector_types) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_winograd(op->sub, o);
        Convolution v = {.g = g, .x = g->x, .op = op};
        if (!read_convolution(&v) || !choose(&v, o)) continue;
        if (v.pieces > 1) {
            Convolution pieces = {.g = g, .x = g->x, .op = split_window(&v)};
            if (!read_convolution(&pieces)) continue;
            pieces.f = v.f;
            pieces.axis[0].tiles = v.axis[0].tiles;
            v = pieces;
        }
        rewrite(&v);
    }
}
