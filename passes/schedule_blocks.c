/* The first schedule for grids of blocks: rows and columns of a product are fused, tiled over
 * blocks and threads, both factors staged in shared memory. Long reductions with few results are
 * split over the threads of a block. All else is one element per thread. */
#include "ir/tile_plan.h"
#include "passes/rows.h"
#include "passes/schedule.h"

#include <math.h>
#include <string.h>

static int fuse_all(Nest *n, int count, const int *loops) {
    int at = loops[0];
    for (int i = 1; i < count; i++) at = nest_fuse(n, at, loops[i]);
    return at;
}

/* Spreads a loop over the grid: block.x up to the device's limit, the rest over block.y. */
static void bind_blocks(Nest *n, int loop) {
    int64_t limit = n->target->max_grid;
    if (n->loop[loop].extent <= limit) {
        nest_bind(n, loop, ROLE_block_x);
        return;
    }
    int outer, inner;
    nest_split(n, loop, limit, &outer, &inner);
    nest_bind(n, outer, ROLE_block_y);
    nest_bind(n, inner, ROLE_block_x);
}

/* One thread per element. */
static void blocks_elements(Nest *n) {
    int spatial[MAX_RANK], count = 0, outer, inner;
    for (int i = 0; i < n->n_order; i++)
        if (!n->loop[n->order[i]].reduce) spatial[count++] = n->order[i];
    if (!count) return; /* a scalar: one thread does it all */
    int loop = fuse_all(n, count, spatial);
    int64_t extent = n->loop[loop].extent;
    int64_t threads = n->target->block_threads;
    if (extent <= threads) {
        nest_bind(n, loop, ROLE_thread_x);
        return;
    }
    nest_split(n, loop, threads, &outer, &inner);
    nest_bind(n, inner, ROLE_thread_x);
    bind_blocks(n, outer);
}

/* One block per element, the reduction over its threads. */
static void blocks_reduce(Nest *n, int64_t depth) {
    int spatial[MAX_RANK], reduce[MAX_RANK], n_spatial = 0, n_reduce = 0, outer, inner;
    for (int i = 0; i < n->n_order; i++)
        if (n->loop[n->order[i]].reduce)
            reduce[n_reduce++] = n->order[i];
        else
            spatial[n_spatial++] = n->order[i];
    if (!n_reduce) return;
    int loop = fuse_all(n, n_reduce, reduce);
    int64_t threads = 32;
    while (threads * 2 <= n->target->block_threads && threads * 2 <= depth) threads *= 2;
    nest_split(n, loop, threads, &outer, &inner);
    nest_bind(n, inner, ROLE_thread_x);
    if (n_spatial) bind_blocks(n, fuse_all(n, n_spatial, spatial));
}

void schedule_rows(Nest *n, const RowChain *chain) {
    int row[MAX_RANK] = {0}, other[MAX_RANK] = {0}, reduce[MAX_RANK] = {0};
    int n_row = 0, n_other = 0, n_reduce = 0;
    int order[MAX_RANK + 2], k = 0, outer, inner;
    int64_t wide = 1;
    for (int i = 0; i < n->n_order; i++) {
        const int loop = n->order[i];
        if (n->loop[loop].reduce)
            reduce[n_reduce++] = loop;
        else if (i < chain->axes)
            row[n_row++] = loop;
        else
            other[n_other++] = loop, wide *= n->loop[loop].extent;
    }
    const bool across = wide == 1; /* threads reduce a row together */
    for (int i = 0; across && i < n_other; i++) row[n_row++] = other[i];
    nest_bind(n, fuse_all(n, n_row, row), ROLE_block_x);
    const int all = across ? fuse_all(n, n_reduce, reduce) : fuse_all(n, n_other, other);
    nest_split(n, all, chain->threads, &outer, &inner);
    nest_bind(n, inner, ROLE_thread_x);
    if (across) return;
    order[k++] = inner, order[k++] = outer;
    for (int i = 0; i < n_reduce; i++) order[k++] = reduce[i];
    nest_order(n, k, order);
}

static bool is_tiled(DType dt, int64_t rows, int64_t columns) {
    return rows >= 8 && columns >= 8 && (dt_is_float(dt) || dt == DT_i32);
}

/* How a block computes its part of a product: what it has, what a thread has of that, and how many
 * steps of the reduction are in shared memory at once. For each time that it is filled `n` blocks
 * of a multiprocessor take wait + n * work cycles, or n * least if that is more: fitted to 7,500
 * products of 13 to 69,000 million multiply-adds on an H100 (bench/tiles.py); those of the narrow
 * tiles at the end are guesses. */
typedef struct BlockTile {
    int64_t rows, columns, thread_rows, thread_columns, depth;
    double wait, work, least;
} BlockTile;

/* clang-format off */
static const BlockTile block_tiles[] = {
    {128, 128, 8, 8, 8, 0, 1450, 1370},  {64, 128, 8, 8, 8, 300, 700, 740},
    {128, 64, 8, 8, 8, 300, 700, 740},   {64, 64, 8, 4, 32, 500, 1500, 1630},
    {64, 64, 8, 4, 16, 500, 700, 790},   {64, 64, 8, 8, 8, 600, 300, 400},
    {64, 32, 4, 4, 32, 150, 1020, 1020}, {32, 64, 4, 4, 32, 150, 1020, 1020},
    {64, 32, 4, 4, 16, 350, 430, 510},   {32, 64, 4, 4, 16, 350, 430, 510},
    {32, 32, 4, 2, 32, 350, 600, 660},   {32, 32, 4, 4, 16, 450, 150, 260},
    {16, 64, 4, 4, 16, 450, 170, 260},   {64, 16, 4, 4, 16, 450, 170, 260},
    {8, 64, 2, 4, 32, 600, 300, 400},    {64, 8, 4, 2, 32, 600, 300, 400},
    {16, 16, 2, 2, 32, 600, 150, 200},   {8, 8, 1, 2, 32, 600, 60, 80},
};

/* The same of tiles that warps multiply, of several of theirs, but for the depth, in bytes. Nobody has
 * measured these: a multiprocessor is taken to multiply and add 1,024 numbers of 16 bits a cycle and
 * to move 128 bytes to or from shared memory, one after the other. */
static const BlockTile warp_tiles[] = {
    {128, 128, 8, 8, WARP_BYTES, 500, 1020, 1020}, {64, 128, 8, 8, WARP_BYTES, 500, 540, 540},
    {128, 64, 8, 8, WARP_BYTES, 500, 540, 540},    {64, 64, 4, 8, WARP_BYTES, 500, 320, 320},
    {32, 128, 4, 8, WARP_BYTES, 500, 340, 340},    {32, 64, 4, 4, WARP_BYTES, 500, 210, 210},
    {64, 32, 4, 4, WARP_BYTES, 500, 210, 210},     {32, 32, 2, 4, WARP_BYTES, 500, 130, 130},
    {16, 64, 2, 4, WARP_BYTES, 500, 140, 140},     {64, 8, 2, 2, WARP_BYTES, 500, 100, 100},
    {16, 32, 2, 2, WARP_BYTES, 500, 90, 90},       {16, 8, 2, 2, WARP_BYTES, 500, 30, 30},
};
/* clang-format on */

#define LEAST_SIDE 32  /* of a tile, unless there are not so many rows or columns */
#define MOST_SUMS  256 /* bytes of a thread */

static int64_t threads_of(const BlockTile *tile) {
    return tile->rows / tile->thread_rows * (tile->columns / tile->thread_columns);
}

static int64_t depth_of(const BlockTile *tile, const ProductSize *s) {
    return s->narrow ? tile->depth / s->narrow : tile->depth;
}

static bool fits(const Target *t, const ProductSize *s, const BlockTile *tile) {
    const int64_t sum = (int64_t)dt_store(s->dt), size = s->narrow ? s->narrow : sum;
    if ((tile->rows < LEAST_SIDE && s->rows >= LEAST_SIDE) ||
        (tile->columns < LEAST_SIDE && s->columns >= LEAST_SIDE))
        return false;
    const int64_t line = tile->rows + tile->columns + 2 * (SHARED_PADDING / size);
    if (tiles_of(s->rows, tile->rows) > t->max_grid ||
        tiles_of(s->columns, tile->columns) > t->max_grid || s->batches > t->max_grid)
        return false;
    return threads_of(tile) <= t->block_threads &&
           line * depth_of(tile, s) * size <= t->shared_bytes &&
           tile->thread_rows * tile->thread_columns * sum <= MOST_SUMS;
}

/* Cycles: where there are pieces, a second kernel adds them up. */
#define COST_OF_KERNEL 3400
#define BYTES_A_CYCLE  2000 /* of the L2 cache */

static double cost_of_tile(const Target *t, const BlockTile *tile, const ProductSize *s) {
    const double blocks =
        (double)(tiles_of(s->rows, tile->rows) * tiles_of(s->columns, tile->columns) * s->batches);
    const double each = ceil(blocks / t->multiprocessors);
    const int64_t depth = depth_of(tile, s);
    const double steps = (double)tiles_of(s->depth, depth);
    const double part = (double)s->depth / (steps * (double)depth); /* of a step's work */
    return steps * fmax(tile->wait + each * part * tile->work, each * part * tile->least);
}

/* The tile that costs least; NULL: there is none. */
static const BlockTile *choose_block_tile(const Target *t, const ProductSize *s, double *cost) {
    const BlockTile *best = NULL, *tiles = s->narrow ? warp_tiles : block_tiles;
    const size_t count = s->narrow ? sizeof warp_tiles : sizeof block_tiles;
    *cost = HUGE_VAL;
    for (size_t i = 0; i < count / sizeof *tiles; i++) {
        const BlockTile *tile = &tiles[i];
        const double own = cost_of_tile(t, tile, s);
        if (own >= *cost || !fits(t, s, tile)) continue;
        *cost = own;
        best = tile;
    }
    return best;
}

double product_cost(const Target *t, const ProductSize *s, int64_t pieces) {
    ProductSize piece = *s;
    double cost;
    if (!is_tiled(s->dt, s->rows, s->columns)) return HUGE_VAL;
    piece.batches *= pieces;
    piece.depth /= pieces;
    choose_block_tile(t, &piece, &cost);
    if (pieces == 1) return cost;
    const double results = (double)(s->rows * s->columns * piece.batches);
    return cost + COST_OF_KERNEL + 2 * results * (double)dt_store(s->dt) / BYTES_A_CYCLE;
}

/* Columns are what lies side by side in the result. */
static void turn_product(const Nest *n, Product *m) {
    int last[2] = {-1, -1};
    for (int i = 0; i < m->n_row; i++)
        if (n->loop[m->row[i]].extent > 1) last[0] = m->row[i];
    for (int i = 0; i < m->n_column; i++)
        if (n->loop[m->column[i]].extent > 1) last[1] = m->column[i];
    if (last[0] < last[1]) return;
    const Product old = *m;
    memcpy(m->row, old.column, sizeof m->row);
    memcpy(m->column, old.row, sizeof m->column);
    m->n_row = old.n_column, m->rows = old.columns;
    m->n_column = old.n_row, m->columns = old.rows;
}

#define LEAST_CHUNK 8

/* The reduction as one loop over what is in shared memory at once, and one over that. Of a window
 * the places are outside and a chunk of the channels inside: what a step reads then lies at one
 * place of the window. `whole`: it takes so many steps, even if there are less. */
static void split_depth(Nest *n, const Product *m, int64_t most, bool whole, int *outer,
                        int *inner) {
    int deepest = m->depth[0], others[MAX_RANK] = {0}, count = 0;
    for (int i = 1; i < m->n_depth; i++)
        if (n->loop[m->depth[i]].extent > n->loop[deepest].extent) deepest = m->depth[i];
    const int64_t extent = n->loop[deepest].extent;
    int64_t chunk = whole || extent > most ? most : extent;
    while (!whole && extent % chunk) chunk--;
    const bool wasted = whole && tiles_of(extent, most) * most * 3 > extent * 4;
    if (extent == m->depths || chunk < LEAST_CHUNK || wasted) {
        for (int i = 0; i < m->n_depth; i++)
            if (!whole || m->depth[i] != deepest) others[count++] = m->depth[i];
        if (whole) others[count++] = deepest; /* warps load its steps at once */
        const int depth = fuse_all(n, count, others);
        nest_split(n, depth, whole || m->depths > most ? most : m->depths, outer, inner);
        return;
    }
    for (int i = 0; i < m->n_depth; i++)
        if (m->depth[i] != deepest) others[count++] = m->depth[i];
    nest_split(n, deepest, chunk, &deepest, inner);
    *outer = nest_fuse(n, fuse_all(n, count, others), deepest);
}

/* Does the factor read a constant whose elements for neighbouring rows (or columns) do not lie side
 * by side? For warps it will do if steps lie side by side, and of bytes nothing else will. */
static bool is_scattered(const Nest *n, int factor, int neighbours, int steps) {
    const Expr *e = nest_body(n)->arg[factor];
    const bool warps = n->loop[steps].role == ROLE_tile;
    int64_t stride;
    if (warps) e = nest_narrow_factor(n->x, e);
    if (e->op != EX_load || !nest_can_pack(n, e->k.i, e->arg[0])) return false;
    if (warps && ex_stride(e->arg[0], steps, &stride) && stride == 1) return false;
    if (!ex_stride(e->arg[0], neighbours, &stride)) return true;
    return stride != 0 && (stride != 1 || (warps && dt_store((DType)e->dt) == 1));
}

/* Both factors go through shared memory, and are packed if neighbouring rows or columns of one lie
 * scattered. */
static void stage_factors(Nest *n, int at, int steps, int row, int column) {
    nest_stage(n, 0, at);
    nest_stage(n, 1, at);
    for (int f = 0; f < 2; f++)
        if (is_scattered(n, f, row, steps) || is_scattered(n, f, column, steps)) {
            nest_pack(n);
            break;
        }
}

/* A product of floats of 16 bits or of bytes, of which each warp multiplies tiles of 16 x 8, and
 * its threads have the sums as the instruction spreads them (runtime/cuda_intrin.h):
 *
 *   batch  row_o column_o  row_w column_w   row_y    column_x  depth_o  depth_i
 *   block.z     .y     .x  thread.z (both)  thread.y thread.x           tile
 *
 *   row_m  column_m  row_h  column_v
 *   unroll unroll    unroll vector
 */
static void warps_product(Nest *n, Product *m, const BlockTile *tile, int64_t depth) {
    const int64_t rows = tile->thread_rows * WARP_Y, columns = tile->thread_columns * WARP_X;
    int row = fuse_all(n, m->n_row, m->row), column = fuse_all(n, m->n_column, m->column);
    int batch = m->n_batch ? fuse_all(n, m->n_batch, m->batch) : -1;
    int row_o, row_w, row_m, row_h, row_y, col_o, col_w, col_m, col_x, col_v, depth_o, depth_i;
    nest_split(n, row, tile->rows, &row_o, &row_w);
    nest_split(n, row_w, rows, &row_w, &row_m);
    nest_split(n, row_m, WARP_ROWS, &row_m, &row_h);
    nest_split(n, row_h, WARP_Y, &row_h, &row_y);
    nest_split(n, column, tile->columns, &col_o, &col_w);
    nest_split(n, col_w, columns, &col_w, &col_m);
    nest_split(n, col_m, WARP_COLUMNS, &col_m, &col_x);
    nest_split(n, col_x, WARP_COLUMNS / WARP_X, &col_x, &col_v);
    split_depth(n, m, depth, true, &depth_o, &depth_i);
    if (batch >= 0) nest_bind(n, batch, ROLE_block_z);
    const int loops[] = {row_o,   col_o, row_w, col_w, row_y, col_x,
                         depth_i, row_m, col_m, row_h, col_v};
    static const Role roles[] = {ROLE_block_y,  ROLE_block_x,  ROLE_thread_z, ROLE_thread_z,
                                 ROLE_thread_y, ROLE_thread_x, ROLE_tile,     ROLE_unroll,
                                 ROLE_unroll,   ROLE_unroll,   ROLE_vector};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) nest_bind(n, loops[i], roles[i]);
    int order[13], k = 0;
    if (batch >= 0) order[k++] = batch;
    for (int i = 0; i < 6; i++) order[k++] = loops[i];
    order[k++] = depth_o;
    for (int i = 6; i < 11; i++) order[k++] = loops[i];
    nest_order(n, k, order);
    stage_factors(n, depth_o, depth_i, row_y, col_v);
}

/* A product, tiled over blocks and threads with both factors in shared memory:
 *
 *   batch  row_o column_o  row_t column_t  depth_o  depth_i  row_e  column_e column_v
 *   block.z     .y     .x  thread.y     .x                   unroll unroll   vector
 *
 * Neighbouring threads have neighbouring vectors of columns. */
static bool blocks_product(Nest *n, Product *m) {
    double cost;
    turn_product(n, m);
    const Expr *body = n->op->body;
    const int narrow = nest_warp_bytes(n->target, n->x, body);
    const ProductSize size = {(DType)body->dt, narrow, m->rows, m->columns, m->batches, m->depths};
    const BlockTile *tile = choose_block_tile(n->target, &size, &cost);
    if (!tile) return false;
    if (narrow) {
        warps_product(n, m, tile, depth_of(tile, &size));
        return true;
    }
    int row = fuse_all(n, m->n_row, m->row), column = fuse_all(n, m->n_column, m->column);
    int batch = m->n_batch ? fuse_all(n, m->n_batch, m->batch) : -1;
    const int64_t at_once = n->target->at_once;
    const int64_t vector = tile->thread_columns < at_once ? tile->thread_columns : at_once;
    const int64_t threads = tile->columns / tile->thread_columns;
    int row_o, row_i, row_t, row_e, col_o, col_i, col_t, col_e, col_v, depth_o, depth_i;
    nest_split(n, row, tile->rows, &row_o, &row_i);
    nest_split(n, row_i, tile->thread_rows, &row_t, &row_e);
    nest_split(n, column, tile->columns, &col_o, &col_i);
    nest_split(n, col_i, threads * vector, &col_e, &col_i);
    nest_split(n, col_i, vector, &col_t, &col_v);
    split_depth(n, m, tile->depth, false, &depth_o, &depth_i);
    nest_bind(n, row_o, ROLE_block_y);
    nest_bind(n, col_o, ROLE_block_x);
    if (batch >= 0) nest_bind(n, batch, ROLE_block_z);
    nest_bind(n, row_t, ROLE_thread_y);
    nest_bind(n, col_t, ROLE_thread_x);
    nest_bind(n, row_e, ROLE_unroll);
    nest_bind(n, col_e, ROLE_unroll);
    nest_bind(n, col_v, ROLE_vector);
    int order[10], k = 0;
    if (batch >= 0) order[k++] = batch;
    order[k++] = row_o, order[k++] = col_o, order[k++] = row_t, order[k++] = col_t;
    order[k++] = depth_o, order[k++] = depth_i;
    order[k++] = row_e, order[k++] = col_e, order[k++] = col_v;
    nest_order(n, k, order);
    stage_factors(n, depth_o, depth_i, row_e, col_v);
    return true;
}

void schedule_blocks(Nest *n) {
    const Op *op = n->op;
    /* updates that meet in one element are done one after the other */
    if (op->kind == OP_scatter && op->combine != COMBINE_none) return;
    Product m;
    int64_t depth = shape_numel(op->n_red, op->red), results = value_numel(op->out[0]);
    if (find_product(n, &m) && is_tiled((DType)op->body->dt, m.rows, m.columns) && m.depths >= 4 &&
        blocks_product(n, &m))
        return;
    if (op->kind == OP_reduce && depth >= 128 && results <= 4096)
        blocks_reduce(n, depth);
    else
        blocks_elements(n);
}
