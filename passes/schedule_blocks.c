/* The first schedule for grids of blocks: rows and columns of a product are fused, tiled over
 * blocks and threads, both factors staged in shared memory. Long reductions with few results are
 * split over the threads of a block. All else is one element per thread. */
#include "passes/schedule.h"

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

static bool is_tiled(DType dt, int64_t rows, int64_t columns) {
    return rows >= 8 && columns >= 8 && (dt_is_float(dt) || dt == DT_i32);
}

/* Elements that a thread of a product computes: it has 16 threads along the columns, and as many
 * rows of threads as a block holds. */
typedef struct ThreadTile {
    int64_t rows, columns;
} ThreadTile;

/* Not measured yet. */
#define THREAD_COLUMNS 16
#define MOST_OF_TILE   8 /* rows or columns of a thread: 64 sums of 32 bits in registers */
#define USUAL_OF_TILE  4
#define LEAST_OF_TILE  2   /* where there would be few blocks else */
#define MOST_WASTE     1.1 /* more than by usual tiles, for rows and columns that there are not */

static const ThreadTile usual = {USUAL_OF_TILE, USUAL_OF_TILE};

static ThreadTile block_tile(const Target *t, ThreadTile tile) {
    return (ThreadTile){t->block_threads / THREAD_COLUMNS * tile.rows,
                        THREAD_COLUMNS * tile.columns};
}

static double blocks_of(const Target *t, ThreadTile tile, int64_t rows, int64_t columns) {
    const ThreadTile block = block_tile(t, tile);
    return (double)tiles_of(rows, block.rows) * (double)tiles_of(columns, block.columns);
}

/* What is computed, beyond the edges too. */
static double computed(const Target *t, ThreadTile tile, int64_t rows, int64_t columns) {
    return blocks_of(t, tile, rows, columns) * (double)(tile.rows * tile.columns);
}

/* None along rows or columns that there are not. */
static ThreadTile clipped(const Target *t, ThreadTile tile, int64_t rows, int64_t columns) {
    while (tile.rows > 1 && block_tile(t, tile).rows > rows) tile.rows /= 2;
    while (tile.columns > 1 && block_tile(t, tile).columns > columns) tile.columns /= 2;
    return tile;
}

/* Of so many rows and columns at most; the more, the less is read, and the fewer blocks there are.
 */
static ThreadTile choose_thread_tile(const Target *t, int64_t most, int64_t rows, int64_t columns,
                                     int64_t batches) {
    ThreadTile tile = {most, most};
    while (tile.rows > LEAST_OF_TILE &&
           ((double)batches * blocks_of(t, tile, rows, columns) < t->few_blocks ||
            computed(t, tile, rows, columns) > MOST_WASTE * computed(t, usual, rows, columns))) {
        if (tile.columns >= tile.rows)
            tile.columns /= 2;
        else
            tile.rows /= 2;
    }
    return clipped(t, tile, rows, columns);
}

double product_blocks(const Target *t, DType dt, int64_t rows, int64_t columns) {
    if (!is_tiled(dt, rows, columns)) return 0;
    return blocks_of(t, clipped(t, usual, rows, columns), rows, columns);
}

/* A product, tiled over blocks and threads with both factors in shared memory. */
static void blocks_product(Nest *n, const Product *m) {
    int row = fuse_all(n, m->n_row, m->row), column = fuse_all(n, m->n_column, m->column);
    int depth = fuse_all(n, m->n_depth, m->depth);
    int batch = m->n_batch ? fuse_all(n, m->n_batch, m->batch) : -1;
    const bool wide = dt_store((DType)n->op->body->dt) > sizeof(float);
    const ThreadTile tile = choose_thread_tile(n->target, wide ? USUAL_OF_TILE : MOST_OF_TILE,
                                               m->rows, m->columns, m->batches);
    int row_o, row_i, row_t, row_e, col_o, col_i, col_t, col_e, depth_o, depth_i;
    int64_t tile_depth = m->depths < 16 ? m->depths : 16;
    nest_split(n, row, block_tile(n->target, tile).rows, &row_o, &row_i);
    nest_split(n, row_i, tile.rows, &row_t, &row_e);
    nest_split(n, column, block_tile(n->target, tile).columns, &col_o, &col_i);
    /* neighbouring threads, neighbouring columns */
    nest_split(n, col_i, THREAD_COLUMNS, &col_e, &col_t);
    nest_split(n, depth, tile_depth, &depth_o, &depth_i);
    nest_bind(n, row_o, ROLE_block_y);
    nest_bind(n, col_o, ROLE_block_x);
    if (batch >= 0) nest_bind(n, batch, ROLE_block_z);
    nest_bind(n, row_t, ROLE_thread_y);
    nest_bind(n, col_t, ROLE_thread_x);
    nest_bind(n, row_e, ROLE_unroll);
    nest_bind(n, col_e, ROLE_unroll);
    int order[9], k = 0;
    if (batch >= 0) order[k++] = batch;
    order[k++] = row_o, order[k++] = col_o, order[k++] = row_t, order[k++] = col_t;
    order[k++] = depth_o, order[k++] = depth_i, order[k++] = row_e, order[k++] = col_e;
    nest_order(n, k, order);
    nest_stage(n, 0, depth_o);
    nest_stage(n, 1, depth_o);
}

void schedule_blocks(Nest *n) {
    const Target *t = n->target;
    const Op *op = n->op;
    /* updates that meet in one element are done one after the other */
    if (op->kind == OP_scatter && op->combine != COMBINE_none) return;
    Product m;
    int64_t depth = shape_numel(op->n_red, op->red), results = value_numel(op->out[0]);
    if (find_product(n, &m) && is_tiled((DType)op->body->dt, m.rows, m.columns) && m.depths >= 4 &&
        m.batches <= t->max_grid && m.rows <= t->max_grid)
        blocks_product(n, &m);
    else if (op->kind == OP_reduce && depth >= 128 && results <= 4096)
        blocks_reduce(n, depth);
    else
        blocks_elements(n);
}
