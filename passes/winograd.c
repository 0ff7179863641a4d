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
 */
#include "ir/constant.h"
#include "passes/passes.h"

#include <string.h>

#define WINDOW      3
#define MOST_POINTS 6

/* F(tile x tile, 3 x 3); points = tile + 2. */
typedef struct Winograd {
    int tile, points;
    double cost; /* of the transforms of an input or a result, in multiply-adds of one lane; the
                    passes over memory between them come to most of it */
    double input[MOST_POINTS * MOST_POINTS];  /* Bt [points][points] */
    double weight[MOST_POINTS * WINDOW];      /* G [points][3] */
    double output[MOST_POINTS * MOST_POINTS]; /* At [tile][points] */
} Winograd;

static const Winograd two = {
    .tile = 2,
    .points = 4,
    .cost = 60,
    .input = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, -1, 0, 1},
    .weight = {1, 0, 0, 0.5, 0.5, 0.5, 0.5, -0.5, 0.5, 0, 0, 1},
    .output = {1, 1, 1, 0, 0, 1, -1, 1},
};
static const Winograd four = {
    .tile = 4,
    .points = 6,
    .cost = 60,
    .input = {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,
              0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1},
    .weight = {1.0 / 4, 0, 0, -1.0 / 6, -1.0 / 6, -1.0 / 6, -1.0 / 6, 1.0 / 6, -1.0 / 6, 1.0 / 24,
               1.0 / 12, 1.0 / 6, 1.0 / 24, -1.0 / 12, 1.0 / 6, 0, 0, 1},
    .output = {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 0, 0, 1, 1, 4, 4, 0, 0, 1, -1, 8, -8, 1},
};

typedef struct Convolution {
    Graph *g;
    Exprs *x;
    Op *op;
    Value *image, *weights; /* [n, c, h, w], padded; [k, c, 3, 3] */
    int64_t n, c, k, height, width;
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

/* Reads op as such a convolution: results n, k, h, w; summed over c and the window. */
static bool read_convolution(Convolution *v) {
    const Op *op = v->op;
    if (op->kind != OP_reduce || op->combine != COMBINE_sum || op->body->op != EX_mul) return false;
    const Value *out = op->out[0];
    if (dims_vary(out->rank, out->dims)) return false; /* tiles would have what lies beyond */
    if (op->body->dt != DT_f32 || out->rank != 4 || op->n_red != 3) return false;
    if (op->red[1] != WINDOW || op->red[2] != WINDOW) return false;
    for (int f = 0; f < 2; f++) {
        const Expr *image = op->body->arg[f], *weights = op->body->arg[1 - f];
        if (image->op != EX_load || weights->op != EX_load || image->n != 4 || weights->n != 4)
            continue;
        v->image = op->in[image->k.i];
        v->weights = op->in[weights->k.i];
        if (!value_is_const(v->weights) || value_is_const(v->image) || v->weights->dt != DT_f32)
            continue;
        if (!is_sum(v, image, 0, 0, -1) || !is_sum(v, image, 1, 4, -1) ||
            !is_sum(v, image, 2, 2, 5) || !is_sum(v, image, 3, 3, 6))
            continue;
        if (!is_sum(v, weights, 0, 1, -1) || !is_sum(v, weights, 1, 4, -1) ||
            !is_sum(v, weights, 2, 5, -1) || !is_sum(v, weights, 3, 6, -1))
            continue;
        v->n = out->shape[0], v->k = out->shape[1];
        v->height = out->shape[2], v->width = out->shape[3];
        v->c = op->red[0];
        return true;
    }
    return false;
}

/* The filtering that costs least; false if the direct sum does. Costs in multiply-adds of one lane,
 * of f32; weights that the cache does not keep are read at an eighth of their rate. */
static bool choose(Convolution *v, const PassOptions *o) {
    bool exact = o->precision == DT_none || o->precision == DT_f32;
    DType dt = exact ? DT_f32 : o->precision;
    double at_once = target_rate(o->target, dt, dt), ck = (double)v->c * (double)v->k;
    double of_weights = (double)dt_store(dt) * ck, l2 = (double)o->target->l2_bytes;
    double best = 9 * ck / at_once * (double)(v->n * v->height * v->width);
    if (9 * of_weights > l2) best += 9 * 2 * of_weights;
    best *= 0.8;
    for (int i = 0; i < 1 + exact; i++) {
        const Winograd *f = i ? &four : &two;
        double tiles = (double)(v->n * ((v->height + f->tile - 1) / f->tile) *
                                ((v->width + f->tile - 1) / f->tile));
        double points = f->points * f->points, pixels = f->tile * f->tile;
        double cost = tiles * (points * ck / at_once + pixels * f->cost * (double)(v->c + v->k));
        if (points * of_weights > l2) cost += points * 2 * of_weights;
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

/* G g Gt of every pair of channels: [points, points, c, k]. */
static Value *transformed_weights(const Convolution *v) {
    int points = v->f->points;
    const double *m = v->f->weight;
    int64_t shape[4] = {points, points, v->c, v->k}, pairs = v->c * v->k;
    const float *from = constant_settle(v->g->arena, v->weights);
    float *data = arena_array(v->g->arena, (size_t)(points * points * pairs), sizeof *data);
    for (int64_t k = 0; k < v->k; k++)
        for (int64_t c = 0; c < v->c; c++) {
            const float *w = from + (k * v->c + c) * WINDOW * WINDOW;
            for (int i = 0; i < points; i++)
                for (int j = 0; j < points; j++) {
                    double sum = 0;
                    for (int r = 0; r < WINDOW; r++)
                        for (int s = 0; s < WINDOW; s++)
                            sum +=
                                m[i * WINDOW + r] * m[j * WINDOW + s] * (double)w[r * WINDOW + s];
                    data[(i * points + j) * pairs + c * v->k + k] = (float)sum;
                }
        }
    return graph_const(v->g, DT_f32, 4, shape, data);
}

/* The sum over `red` values of m[row][r] * from[index], where row is coordinate `row` of the shape
 * and the summed coordinate is added to (or is) coordinate `along` of the index. */
static Value *transform(const Convolution *v, int rank, const int64_t *shape, Value *m, int row,
                        Value *from, const Expr **index, int along) {
    Exprs *x = v->x;
    Builder b = build(v->g, rank, shape);
    const Expr *r = build_red(&b, m->shape[1]), *at[2] = {ex_var(x, row), r};
    index[along] = index[along] ? ex_add(x, index[along], r) : r;
    const Expr *body = ex_mul(x, build_load(&b, from, index), build_load(&b, m, at));
    return build_reduce(&b, DT_f32, COMBINE_sum, body, NULL);
}

/* Bt d B: [points, points, n, tiles_y, tiles_x, c]. */
static Value *transformed_image(const Convolution *v) {
    Graph *g = v->g;
    Exprs *x = v->x;
    int points = v->f->points;
    const Expr *var[6], *tile = ex_i(x, v->f->tile);
    for (int i = 0; i < 6; i++) var[i] = ex_var(x, i);
    int64_t before[4] = {0}, after[4] = {0};
    int64_t rows = v->tiles_y * v->f->tile + WINDOW - 1;
    int64_t columns = v->tiles_x * v->f->tile + WINDOW - 1;
    after[2] = rows - v->image->shape[2];
    after[3] = columns - v->image->shape[3];
    Value *image = v->image;
    if (after[2] || after[3]) image = g_pad(g, image, before, after, (Scalar){.f = 0});
    Value *m = matrix(g, points, points, v->f->input);
    /* columns of tiles first: [points, n, tiles_y, w, c] */
    int64_t shape[6] = {points, v->n, v->tiles_y, columns, v->c};
    const Expr *down[4] = {var[1], var[4], ex_mul(x, var[2], tile), var[3]};
    Value *half = transform(v, 5, shape, m, 0, image, down, 2);
    int64_t whole[6] = {points, points, v->n, v->tiles_y, v->tiles_x, v->c};
    const Expr *across[5] = {var[0], var[2], var[3], ex_mul(x, var[4], tile), var[5]};
    return transform(v, 6, whole, m, 1, half, across, 3);
}

static void rewrite(Convolution *v) {
    Graph *g = v->g;
    Exprs *x = v->x;
    Op *op = v->op, *last = g->last;
    int64_t tile = v->f->tile, points = v->f->points;
    const Expr *var[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) var[i] = ex_var(x, i);
    Value *image = transformed_image(v), *weights = transformed_weights(v);
    int64_t shape[6] = {points, points, v->n, v->tiles_y, v->tiles_x, v->k};
    Builder b = build(g, 6, shape);
    const Expr *c = build_red(&b, v->c);
    const Expr *in[6] = {var[0], var[1], var[2], var[3], var[4], c};
    const Expr *w[4] = {var[0], var[1], c, var[5]};
    const Expr *product = ex_mul(x, build_load(&b, image, in), build_load(&b, weights, w));
    Value *sums = build_reduce(&b, DT_f32, COMBINE_sum, product, NULL);
    /* At first: [tile, points, n, tiles_y, tiles_x, k] */
    Value *m = matrix(g, v->f->tile, v->f->points, v->f->output);
    int64_t back[6] = {tile, points, v->n, v->tiles_y, v->tiles_x, v->k};
    const Expr *from[6] = {NULL, var[1], var[2], var[3], var[4], var[5]};
    Value *half = transform(v, 6, back, m, 0, sums, from, 0);
    /* then A, with what op did to its sum */
    Value **inputs = ARENA_ARRAY(g->arena, op->n_in + 2, Value *);
    memcpy(inputs, op->in, (size_t)op->n_in * sizeof *inputs);
    inputs[op->n_in] = half;
    inputs[op->n_in + 1] = m;
    const Expr *by = ex_i(x, tile), *point = var[4];
    const Expr *at[6] = {ex_bin(x, EX_rem, var[2], by), point, var[0], ex_div(x, var[2], by),
                         ex_div(x, var[3], by),         var[1]};
    const Expr *factor[2] = {ex_bin(x, EX_rem, var[3], by), point};
    int64_t extent[5] = {v->n, v->k, v->height, v->width, points};
    op->body =
        ex_mul(x, ex_load(x, DT_f32, op->n_in, 6, at), ex_load(x, DT_f32, op->n_in + 1, 2, factor));
    op->body = ex_simplify(x, op->body, 5, extent);
    op->n_red = 1;
    op->red = arena_copy(g->arena, &points, sizeof points);
    op->in = inputs;
    op->n_in += 2;
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
