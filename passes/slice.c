/* slice: a deep product is a sum of products over slices of its depth, for targets of plain loops
 * with vectors.
 *
 * While a panel of columns meets all rows, it should stay in the L2 cache. Where the depth is too
 * large for that, it comes from a cache beyond again for every tile of rows. Products over slices,
 * each of which begins with what the one before has summed, read it once, and so they do rows that
 * stay beside it, but they read and write their results once more each. The columns are constants,
 * or what the weights of attention meet, of which strips.c has a few rows computed at a time.
 */
#include "ir/tile_plan.h"
#include "passes/inline.h"
#include "passes/passes.h"
#include "passes/schedule.h"

#include <math.h>

#define LEAST_SLICE 256 /* of depth, */
#define UNIT        16  /* and what it is a multiple of */
#define WORTH       1.5 /* of bytes that the whole waits for, for each that its slices wait for */
#define RESULT      8   /* bytes that are read ahead in the time of a result's */
#define STRIP_ROWS  64  /* that meet computed columns */
#define HIDDEN      2   /* bytes that come in a cycle of a product without its waiting, ... */
#define HIDDEN_MORE 3   /* ... or of one whose iterations have several steps (ROLE_repeat) */

typedef struct Deep {
    Graph *g;
    Op *op;
    int64_t rows, columns, depth;
    double row_bytes, column_bytes; /* of an element */
    int at_once;                    /* products that the target adds in a word */
    bool computed;                  /* columns, which meet strips of rows (strips.c) */
} Deep;

/* Which factor has the columns: the constant one, or, where the other one's rows are what a map has
 * made (the weights of attention), that of the last coordinate that one factor alone has; -1: none.
 */
static int columns_of(const Deep *d, const Expr *const *load, const uint64_t *vars) {
    Value *const *in = d->op->in;
    bool constant[2] = {value_is_const(in[load[0]->k.i]), value_is_const(in[load[1]->k.i])};
    int column = d->op->out[0]->rank - 1;
    if (constant[0] != constant[1]) return constant[1];
    while (column >= 0 && !((vars[0] ^ vars[1]) >> column & 1)) column--;
    if (constant[0] || column < 0) return -1;
    int c = vars[1] >> column & 1;
    return in[load[!c]->k.i]->def->kind == OP_map ? c : -1;
}

/* Reads op as a product of a matrix with a constant one, or of a strip of rows with another. */
static bool read_product(Deep *d, const Target *t) {
    const Op *op = d->op;
    const Value *out = op->out[0];
    if (!op_is_product(op)) return false;
    if (op->n_red != 1) return false;
    const Expr *load[2];
    uint64_t vars[2];
    for (int i = 0; i < 2; i++) {
        load[i] = without_casts(op->body->arg[i]);
        if (load[i]->op != EX_load) return false;
        vars[i] = ex_vars(load[i]);
    }
    if (!(vars[0] & vars[1] & (uint64_t)1 << out->rank)) return false;
    const int c = columns_of(d, load, vars);
    if (c < 0) return false;
    d->computed = !value_is_const(op->in[load[c]->k.i]);
    d->rows = d->columns = 1;
    for (int i = 0; i < out->rank; i++) {
        bool in_rows = vars[!c] >> i & 1, in_columns = vars[c] >> i & 1;
        if (in_rows && in_columns && d->computed) continue;
        if (in_rows && in_columns) return false;
        *(in_columns ? &d->columns : &d->rows) *= out->shape[i];
    }
    if (d->rows == 0 || d->columns == 0) return false;
    if (d->computed && d->rows > STRIP_ROWS) d->rows = STRIP_ROWS;
    d->depth = op->red[0];
    d->row_bytes = (double)dt_store((DType)load[!c]->dt);
    d->column_bytes = (double)dt_store((DType)load[c]->dt);
    d->at_once = target_products(t, (DType)load[!c]->dt, (DType)load[c]->dt);
    return !d->computed || d->at_once == 1; /* others were not measured */
}

static bool on_matrix_unit(const Deep *d, const Target *t) {
    return t->matrix_tiles && d->at_once > 1;
}

/* About the tile that the schedule chooses for slices of such a depth: it may have a row less where
 * a product takes a register of its own. */
static Tile tile_of(const Deep *d, int64_t depth, const Target *t) {
    if (on_matrix_unit(d, t)) return (Tile){.rows = 2 * TILE_SIDE, .columns = 2 * TILE_SIDE};
    Operands o = {.rows = d->rows,
                  .columns = d->columns,
                  .depth = depth * (int64_t)d->column_bytes / WORD_BYTES,
                  .times = 1,
                  .fewest = d->rows,
                  .row_bytes = (double)(d->rows * depth) * d->row_bytes,
                  .column_bytes = (double)(d->columns * depth) * d->column_bytes,
                  .most_rows =
                      most_tile_rows(t, d->depth * (int64_t)d->row_bytes % L1_WAY_BYTES == 0)};
    return choose_tile(t, t->vector_bytes / WORD_BYTES, &o, 0);
}

/* Cycles of the product. */
static double cycles_of(const Deep *d, const Target *t) {
    double words = (double)d->rows * (double)d->columns * (double)d->depth / d->at_once;
    return words /
           (on_matrix_unit(d, t) ? TILE_SIDE * TILE_SIDE : 2 * t->vector_bytes / WORD_BYTES);
}

/* Bytes from beyond the L2 cache that the product waits for, in the order of tiles that the
 * schedule chooses: all rows meet a panel, of which half a cache stays while they go by. Results
 * that the cache keeps are read and written in little time. */
static double waits(const Deep *d, int64_t slices, const Target *t) {
    double l2 = (double)t->l2_bytes, depth = (double)d->depth / (double)slices,
           word = (double)dt_store((DType)d->op->body->dt);
    double rows = (double)d->rows * depth * d->row_bytes;
    double columns = (double)d->columns * depth * d->column_bytes;
    Tile tile = tile_of(d, d->depth / slices, t);
    double panel = (double)tile.columns * depth * d->column_bytes;
    double result = (double)(d->rows * d->columns) * word;
    double results =
        2 * (double)(slices - 1) * result * (d->computed || result > l2 / 2 ? RESULT : 1);
    double again = rows * (double)tiles_of(d->columns, tile.columns);
    again += columns * (1 + target_lost(t, panel) * (double)(tiles_of(d->rows, tile.rows) - 1));
    bool fits = rows + panel <= 0.8 * l2;
    double read = (double)slices * (fits ? rows + columns : again);
    return fmax(read - (tile.repeats > 1 ? HIDDEN_MORE : HIDDEN) * cycles_of(d, t), 0) + results;
}

/* Of slices: multiples of UNIT, but for the last one, which has what remains. */
static int64_t length_of(const Deep *d, int64_t slices) {
    return (d->depth + slices * UNIT - 1) / (slices * UNIT) * UNIT;
}

/* In how many slices; 1: as it is. */
static int64_t choose(const Deep *d, const Target *t) {
    int64_t best = 1;
    double least = waits(d, 1, t) / WORTH;
    for (int64_t n = 2; d->depth / n >= LEAST_SLICE; n++) {
        double then = waits(d, n, t);
        if (then >= least || (n - 1) * length_of(d, n) >= d->depth) continue;
        least = then;
        best = n;
    }
    return best;
}

static void slice(Deep *d, int64_t n) {
    Graph *g = d->g;
    Exprs *x = g->x;
    Op *op = d->op;
    const Value *out = op->out[0];
    int64_t length = length_of(d, n), extent[MAX_RANK];
    const int64_t rest = d->depth - (n - 1) * length;
    DType dt = (DType)op->body->dt;
    const Expr *to[MAX_RANK] = {NULL}, *own[MAX_RANK], *body = op->body, *acc = ex_acc(x, dt);
    Value *before = NULL;
    for (int i = 0; i < out->rank; i++) own[i] = ex_var(x, i);
    const int n_extent = op_extents(op, extent);
    for (int64_t i = 0; i < n; i++) {
        bool last = i == n - 1;
        Op *part = last ? op : graph_new_op(g, OP_reduce, op->n_in, op->in, 1);
        Value **in = ARENA_ARRAY(g->arena, op->n_in + 1, Value *);
        for (int k = 0; k < op->n_in; k++) in[k] = op->in[k];
        part->in = in;
        part->combine = op->combine;
        part->n_red = 1;
        part->red = arena_copy(g->arena, last ? &rest : &length, sizeof length);
        extent[out->rank] = part->red[0];
        to[out->rank] = ex_add(x, ex_var(x, out->rank), ex_i(x, i * length));
        part->body = ex_simplify(x, ex_subst_vars(x, body, n_extent, to), n_extent, extent);
        const Expr *sum = acc;
        if (before) {
            int at = list_add(in, &part->n_in, before);
            sum = ex_add(x, acc, ex_load(x, dt, at, out->rank, own));
        }
        if (last) {
            part->post = ex_replace(x, op->post, acc, sum);
        } else {
            part->post = sum;
            part->src = op->src;
            before = graph_new_value(g, part, 0, dt, out->rank, out->dims);
            graph_insert_before(g, op, part);
        }
        graph_drop_inputs(g, part);
    }
}

void pass_slice(Graph *g, const PassOptions *o) {
    if (o->target->blocks || !o->target->vector_types) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_slice(op->sub, o);
        Deep d = {.g = g, .op = op};
        int64_t n = read_product(&d, o->target) ? choose(&d, o->target) : 1;
        if (n > 1) slice(&d, n);
    }
}
