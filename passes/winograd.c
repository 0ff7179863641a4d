/* winograd: a convolution with a window of 3 x 3 and stride 1 as products of transformed tiles, for
 * targets of plain loops with vectors.
 *
 * Of every tile of m x m results, m + 2 squared inputs d and the weights g are transformed,
 * multiplied element by element and summed over the channels, and the sum is transformed back
 * (Winograd's minimal filtering F(m x m, 3 x 3), with the points 0, 1, -1 and infinity, and 2 and
 * -2 for m = 4, as in Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"):
 *
 *     Y = At [ (G g Gt) * (Bt d B) ] A
 *
 * For m = 4, 36 multiply-adds take the place of 144; in f32 the result differs from the direct sum
 * by about 1e-6 of the output's scale, more than the direct sum errs, but less than a thousandth of
 * what half floats do. For m = 2, 16 take the place of 36, and what is rounded grows so little that
 * with --precision the transformed tiles and weights may be of 16 bits, which errs about twice as
 * much as the direct sum of rounded operands. The weights are transformed when compiling and take
 * 4 or 16/9 times their room. Where that, the transforms or tiles beyond the edge cost more than is
 * won, the convolution stays.
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

#define WINDOW      3
#define MOST_POINTS 6

#define COST_OF_BYTE 4 /* from memory */

/* F(tile x tile, 3 x 3); points = tile + 2. */
typedef struct Winograd {
    int tile, points;
    double cost; /* of the transforms of an input or a result, in multiply-adds of one lane, with
                    what lies between them in caches (strips.c) */
    double input[MOST_POINTS * MOST_POINTS];  /* Bt [points][points] */
    double weight[MOST_POINTS * WINDOW];      /* G [points][3] */
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
    .points = 4,
    .cost = 20,
    .input = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, -1, 0, 1},
    .weight = {1, 0, 0, 0.5, 0.5, 0.5, 0.5, -0.5, 0.5, 0, 0, 1},
    .output = {1, 1, 1, 0, 0, 1, -1, 1},
    .whole = 2,
    .scale = {2, 2, 2, 2},
    .shift = 2,
    .inverse = 1,
};
static const Winograd four = {
    .tile = 4,
    .points = 6,
    .cost = 20,
    .input = {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,
              0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1},
    .weight = {1.0 / 4, 0, 0, -1.0 / 6, -1.0 / 6, -1.0 / 6, -1.0 / 6, 1.0 / 6, -1.0 / 6, 1.0 / 24,
               1.0 / 12, 1.0 / 6, 1.0 / 24, -1.0 / 12, 1.0 / 6, 0, 0, 1},
    .output = {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 0, 0, 1, 1, 4, 4, 0, 0, 1, -1, 8, -8, 1},
    .whole = 24,
    .scale = {24, 24, 24, 24, 24, 12}, /* 24 would make the last too large */
    .shift = 6,
    .inverse = 954437177,
};

typedef struct Convolution {
    Graph *g;
    Exprs *x;
    Op *op;
    Value *image, *weights; /* [n, c, h, w], padded; [k, c, 3, 3] */
    int64_t n, c, k, height, width;
    DType dt;          /* that sums are computed in: f32, or i32 of ... */
    int64_t low, high; /* ... image elements in this range */
    const Winograd *f;
    int64_t tiles_y, tiles_x;
} Convolution;

/* --- recognising ------------------------------------------------------------------------------ */

/* Is index i of the load the sum of these coordinates (-1: none), or 0 where they have but one
 * value? */
static bool is_sum(const Convolution *v, const Expr *load, int i, int a, int b) {
    int64_t coef[MAX_RANK], extent[MAX_RANK];
    const Expr *base;
    int n = op_extents(v->op, extent);
    if (!ex_affine(v->x, load->arg[i], n, coef, &base) || !ex_is_int(base, 0)) return false;
    for (int k = 0; k < n; k++) {
        bool wanted = k == a || k == b;
        if (coef[k] != wanted && !(wanted && extent[k] == 1 && coef[k] == 0)) return false;
    }
    return true;
}

/* The load of a factor: of f32, or of an integer that is widened; else NULL. */
static const Expr *loaded(const Convolution *v, const Expr *factor) {
    if (v->dt == DT_i32) factor = factor->op == EX_cast ? factor->arg[0] : factor;
    return factor->op == EX_load && factor->n == 4 ? factor : NULL;
}

/* Are factors of these types summed in v->dt? */
static bool fits(const Convolution *v) {
    if (v->dt == DT_f32) return v->image->dt == DT_f32 && v->weights->dt == DT_f32;
    return v->dt == DT_i32 && (v->weights->dt == DT_i8 || v->weights->dt == DT_i16);
}

/* Reads op as such a convolution: results n, k, h, w; summed over c and the window. */
static bool read_convolution(Convolution *v) {
    const Op *op = v->op;
    if (op->kind != OP_reduce || op->combine != COMBINE_sum || op->body->op != EX_mul) return false;
    const Value *out = op->out[0];
    if (out->rank != 4 || op->n_red != 3) return false;
    if (dims_vary(3, out->dims + 1)) return false; /* tiles would have what lies beyond */
    if (op->red[1] != WINDOW || op->red[2] != WINDOW) return false;
    v->dt = (DType)op->body->dt;
    for (int f = 0; f < 2; f++) {
        const Expr *image = loaded(v, op->body->arg[f]);
        const Expr *weights = loaded(v, op->body->arg[1 - f]);
        if (!image || !weights) continue;
        v->image = op->in[image->k.i];
        v->weights = op->in[weights->k.i];
        if (!value_is_const(v->weights) || value_is_const(v->image) || !fits(v)) continue;
        if (!is_sum(v, image, 0, 0, -1) || !is_sum(v, image, 1, 4, -1) ||
            !is_sum(v, image, 2, 2, 5) || !is_sum(v, image, 3, 3, 6))
            continue;
        if (!is_sum(v, weights, 0, 1, -1) || !is_sum(v, weights, 1, 4, -1) ||
            !is_sum(v, weights, 2, 5, -1) || !is_sum(v, weights, 3, 6, -1))
            continue;
        v->n = out->dims[0], v->k = out->shape[1];
        v->height = out->shape[2], v->width = out->shape[3];
        v->c = op->red[0];
        return v->dt == DT_f32 || integer_range(v->g->arena, v->image, &v->low, &v->high);
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
    int64_t depth = v->c * WINDOW * WINDOW;
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
        for (int r = 0; r < WINDOW; r++) sum += fabs(f->weight[i * WINDOW + r] * f->scale[i]);
        weight = fmax(weight, sum);
    }
    return weight * weight * most <= INT16_MAX &&
           reach(v, f->points, f->points, f->input) <= INT16_MAX;
}

/* What products cost, in multiply-adds of one lane of f32, `rate` of which take the time of one;
 * weights that the cache does not keep come from memory meanwhile. */
static double cost_of(double products, double rate, double weights, const Target *t) {
    double cost = products / rate;
    return weights > (double)t->l2_bytes ? fmax(cost, COST_OF_BYTE * weights) : cost;
}

/* The filtering that costs least; false if the direct sum does. */
static bool choose(Convolution *v, const PassOptions *o) {
    const Target *t = o->target;
    bool exact = v->dt == DT_i32 || o->precision == DT_none || o->precision == DT_f32;
    DType from = v->dt == DT_i32 ? v->weights->dt : exact ? DT_f32 : o->precision;
    DType dt = v->dt == DT_i32 ? DT_i16 : from;
    if (v->dt == DT_i32 && !t->word_products) return false;
    double ck = (double)v->c * (double)v->k, n = (double)v->op->out[0]->shape[0];
    double pixels = n * (double)(v->height * v->width);
    double best = cost_of(9 * ck * pixels, target_rate(t, exact ? v->image->dt : from, from),
                          9 * ck * (double)dt_store(from), t);
    best *= 0.8;
    for (int i = 0; i < 1 + exact; i++) {
        const Winograd *f = i ? &four : &two;
        if (v->dt == DT_i32 && !is_exact(v, f)) continue;
        double tiles = n * (double)(((v->height + f->tile - 1) / f->tile) *
                                    ((v->width + f->tile - 1) / f->tile));
        double points = f->points * f->points;
        double cost = cost_of(tiles * points * ck, target_rate(t, dt, dt),
                              points * ck * (double)dt_store(dt), t);
        cost += tiles * f->tile * f->tile * f->cost * (double)(v->c + v->k);
        if (cost >= best) continue;
        best = cost;
        v->f = f;
    }
    if (!v->f || v->c < 16 || v->k < 16) return false;
    v->tiles_y = (v->height + v->f->tile - 1) / v->f->tile;
    v->tiles_x = (v->width + v->f->tile - 1) / v->f->tile;
    return true;
}

/* --- rewriting -------------------------------------------------------------------------------- */

static Value *matrix(Graph *g, int rows, int columns, const double *from) {
    int64_t shape[2] = {rows, columns};
    float *data = ARENA_ARRAY(g->arena, rows * columns, float);
    for (int i = 0; i < rows * columns; i++) data[i] = (float)from[i];
    return graph_const(g, DT_f32, 2, shape, data);
}

/* The element of a matrix of integers: numbers where its place is known. */
static const Expr *number(Exprs *x, int rows, int columns, const double *from, const Expr *row,
                          const Expr *column) {
    const Expr *e = NULL;
    for (int i = rows - 1; i >= 0; i--) {
        const Expr *one = NULL;
        for (int k = columns - 1; k >= 0; k--) {
            const Expr *here = ex_int(x, DT_i32, (int64_t)from[i * columns + k]);
            one = one ? ex_select(x, ex_bin(x, EX_eq, column, ex_i(x, k)), here, one) : here;
        }
        e = e ? ex_select(x, ex_bin(x, EX_eq, row, ex_i(x, i)), one, e) : one;
    }
    return e;
}

/* G g Gt of every pair of channels: [points, points, c, k]. */
static Value *transformed_weights(const Convolution *v) {
    int points = v->f->points;
    const double *m = v->f->weight, *scale = v->f->scale;
    bool whole = v->dt == DT_i32;
    DType dt = whole ? DT_i16 : DT_f32;
    int64_t shape[4] = {points, points, v->c, v->k}, pairs = v->c * v->k;
    const void *from = constant_settle(v->g->arena, v->weights);
    void *data = arena_array(v->g->arena, (size_t)(points * points * pairs), dt_store(dt));
    for (int64_t k = 0; k < v->k; k++)
        for (int64_t c = 0; c < v->c; c++) {
            double w[WINDOW * WINDOW];
            for (int i = 0; i < WINDOW * WINDOW; i++) {
                size_t at = (size_t)((k * v->c + c) * WINDOW * WINDOW + i);
                Scalar one = dt_load(v->weights->dt, from, at);
                w[i] = whole ? (double)one.i : one.f;
            }
            for (int i = 0; i < points; i++)
                for (int j = 0; j < points; j++) {
                    double sum = 0;
                    for (int r = 0; r < WINDOW; r++)
                        for (int s = 0; s < WINDOW; s++)
                            sum += m[i * WINDOW + r] * m[j * WINDOW + s] * w[r * WINDOW + s];
                    Scalar one = {.f = sum};
                    if (whole) one.i = llrint(sum * scale[i] * scale[j]);
                    dt_save(dt, data, (size_t)((i * points + j) * pairs + c * v->k + k), one);
                }
        }
    return graph_const(v->g, dt, 4, shape, data);
}

/* The sum over `columns` values of m[row][r] * from[index], where row is coordinate `row` of the
 * shape and the summed coordinate is added to (or is) coordinate `along` of the index. */
static Value *transform(const Convolution *v, DType dt, int rank, const int64_t *shape, int rows,
                        int columns, const double *m, int row, Value *from, const Expr **index,
                        int along) {
    Exprs *x = v->x;
    Builder b = build(v->g, rank, shape);
    const Expr *r = build_red(&b, columns), *at[2] = {ex_var(x, row), r};
    index[along] = index[along] ? ex_add(x, index[along], r) : r;
    const Expr *factor = v->dt == DT_i32 ? number(x, rows, columns, m, at[0], r)
                                         : build_load(&b, matrix(v->g, rows, columns, m), at);
    const Expr *body = ex_mul(x, ex_cast(x, v->dt, build_load(&b, from, index)), factor);
    return build_reduce(&b, dt, COMBINE_sum, body, NULL);
}

/* Bt d B: [points, points, n, tiles_y, tiles_x, c]. */
static Value *transformed_image(const Convolution *v) {
    Graph *g = v->g;
    Exprs *x = v->x;
    int points = v->f->points;
    const Expr *var[6], *tile = ex_i(x, v->f->tile);
    for (int i = 0; i < 6; i++) var[i] = ex_var(x, i);
    const double *m = v->f->input;
    DType dt = v->dt == DT_i32 ? DT_i16 : DT_f32;
    int64_t before[4] = {0}, after[4] = {0};
    int64_t rows = v->tiles_y * v->f->tile + WINDOW - 1;
    int64_t columns = v->tiles_x * v->f->tile + WINDOW - 1;
    after[2] = rows - v->image->shape[2];
    after[3] = columns - v->image->shape[3];
    Value *image = v->image;
    if (after[2] || after[3]) image = g_pad(g, image, before, after, (Scalar){0});
    /* columns of tiles first: [points, n, tiles_y, w, c] */
    int64_t shape[6] = {points, v->n, v->tiles_y, columns, v->c};
    const Expr *down[4] = {var[1], var[4], ex_mul(x, var[2], tile), var[3]};
    Value *half = transform(v, dt, 5, shape, points, points, m, 0, image, down, 2);
    int64_t whole[6] = {points, points, v->n, v->tiles_y, v->tiles_x, v->c};
    const Expr *across[5] = {var[0], var[2], var[3], ex_mul(x, var[4], tile), var[5]};
    return transform(v, dt, 6, whole, points, points, m, 1, half, across, 3);
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

static void rewrite(Convolution *v) {
    Graph *g = v->g;
    Exprs *x = v->x;
    Op *op = v->op, *last = g->last;
    int tile = v->f->tile;
    int64_t points = v->f->points;
    const Expr *var[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) var[i] = ex_var(x, i);
    Value *image = transformed_image(v), *weights = transformed_weights(v);
    int64_t shape[6] = {points, points, v->n, v->tiles_y, v->tiles_x, v->k};
    Builder b = build(g, 6, shape);
    const Expr *c = build_red(&b, v->c);
    const Expr *in[6] = {var[0], var[1], var[2], var[3], var[4], c};
    const Expr *w[4] = {var[0], var[1], c, var[5]};
    const Expr *product = ex_mul(x, ex_cast(x, v->dt, build_load(&b, image, in)),
                                 ex_cast(x, v->dt, build_load(&b, weights, w)));
    Value *sums = build_reduce(&b, v->dt, COMBINE_sum, product, NULL);
    /* At first: [tile, points, n, tiles_y, tiles_x, k] */
    const double *m = output_matrix(v);
    int64_t back[6] = {tile, points, v->n, v->tiles_y, v->tiles_x, v->k};
    const Expr *from[6] = {NULL, var[1], var[2], var[3], var[4], var[5]};
    Value *half = transform(v, v->dt, 6, back, tile, v->f->points, m, 0, sums, from, 0);
    /* then A, with what op did to its sum */
    Value **inputs = ARENA_ARRAY(g->arena, op->n_in + 2, Value *);
    memcpy(inputs, op->in, (size_t)op->n_in * sizeof *inputs);
    const Expr *by = ex_i(x, tile), *point = var[4];
    const Expr *at[6] = {ex_bin(x, EX_rem, var[2], by), point, var[0], ex_div(x, var[2], by),
                         ex_div(x, var[3], by),         var[1]};
    const Expr *place[2] = {ex_bin(x, EX_rem, var[3], by), point}, *factor;
    int64_t extent[5] = {op->out[0]->shape[0], v->k, v->height, v->width, points};
    int n_in = op->n_in;
    inputs[n_in++] = half;
    if (v->dt == DT_i32) {
        factor = number(x, tile, v->f->points, m, place[0], point);
        const Expr *acc = ex_acc(x, v->dt);
        op->post = ex_replace(x, op->post, acc, result_of(v, acc));
    } else {
        factor = ex_load(x, DT_f32, n_in, 2, place);
        inputs[n_in++] = matrix(g, tile, v->f->points, m);
    }
    op->body = ex_mul(x, ex_load(x, v->dt, op->n_in, 6, at), factor);
    op->body = ex_simplify(x, op->body, 5, extent);
    op->n_red = 1;
    op->red = arena_copy(g->arena, &points, sizeof points);
    op->in = inputs;
    op->n_in = n_in;
    graph_drop_inputs(g, op);
    graph_take_in(g, last, op);
}

void pass_winograd(Graph *g, const PassOptions *o) {
    if (o->target->blocks || !o->target->vector_types) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_winograd(op->sub, o);
        Convolution v = {.g = g, .x = g->x, .op = op};
        if (read_convolution(&v) && choose(&v, o)) rewrite(&v);
    }
}
