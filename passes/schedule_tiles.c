/* Products on a matrix unit; see schedule.h and ir/tile_plan.h.
 *
 *   .. columns/c  rows/h  rows/r  depth  word:tile  h:unroll  r:unroll  c:vector  few:unroll
 *
 * A tile is a grid of the unit's: r rows, of h lines of an image if those are short, by c columns.
 * Its size and the order of the tiles are what costs least by a simple model of the unit and of the
 * caches that feed it.
 */
#include "ir/tile_plan.h"
#include "passes/schedule.h"

#include <math.h>

#define LEAST_ROWS 4 /* and words: below, vectors are as fast */
#define MOST_LINES 8 /* of an image */
#define MOST_SIDE  6 /* tiles of rows or of columns */

/* Cycles, measured on a Xeon with AMX and 2 MB of L2 cache. Products of a row start in one each,
 * but for small tiles; lines of a cache that tiles are loaded from delay that, the more the farther
 * away they are (from beyond the L2 cache, fetched ahead); sums are stored and finished. */
#define LEAST_CYCLES    9 /* of a tile's products */
#define COST_OF_LINE    0.2
#define COST_OF_L2_LINE 0.55
#define COST_OF_FAR     5
#define COST_OF_OTHER   30 /* that another core has written */
#define COST_OF_BEGIN   60
#define COST_OF_VECTOR  8
#define COST_OF_PART    4 /* that is finished at once */
#define COST_OF_OUTPUT  4 /* of a line for each row of the tile that is stored into it */

/* Results whose rows are finished at once come in one stretch: this part of the time is gained. */
#define GAIN_OF_STRETCH 0.03

/* The product as the unit sees it. */
typedef struct UnitProduct {
    const Target *target;
    int64_t lines, rows, columns; /* of the loops that tiles cut */
    bool flat;                    /* a line's rows follow those of the one before at one stride */
    int64_t words, steps;         /* of the depth: of a tile, and how many of those */
    int64_t times;                /* that other loops over rows repeat them */
    double row_bytes, column_bytes;
    bool packs;     /* columns are constants */
    int64_t stored; /* bytes of an element of the result */
} UnitProduct;

/* Of a cache line that comes from where so many bytes stay. */
static double cost_of_line(const Target *t, double bytes) {
    return bytes <= (double)t->l1_bytes / 2   ? 0
           : bytes <= (double)t->l2_bytes / 2 ? COST_OF_L2_LINE
                                              : COST_OF_FAR;
}

/* What loading the operands costs beyond what the L1 cache would, where a panel of the `outer` one
 * meets all of the `inner` one's before the next comes; it stays in that cache if both find room.
 * `visited`: the cache lines that a tile loads of each. */
static double cost_of_loads(const Target *t, double outer_bytes, double outer_panels,
                            double outer_visited, double inner_bytes, double inner_panels,
                            double inner_visited) {
    double outer = outer_bytes / outer_panels, inner = inner_bytes / inner_panels;
    bool together = outer + inner <= (double)t->l1_bytes * 3 / 4;
    bool all = outer + inner_bytes <= (double)t->l1_bytes * 3 / 4;
    double first = outer / LINE_BYTES * cost_of_line(t, outer_bytes);
    double again = together ? 0 : outer_visited * COST_OF_L2_LINE;
    double others = (together ? fmin(inner / LINE_BYTES, inner_visited) : inner_visited) *
                    cost_of_line(t, inner_bytes);
    return outer_panels * (first + (inner_panels - 1) * again + (all ? 0 : inner_panels * others));
}

/* Is it a size to consider: the least of those that make as many tiles, or a bit more of which
 * parts are even? */
static bool is_size(int64_t extent, int64_t size) {
    int64_t tiles = tiles_of(extent, size), least = tiles_of(extent, tiles);
    return size == least || (size % 2 == 0 && size < least + 4);
}

/* Ranks the tile in both orders, if the unit has registers enough for it. `turned`: a panel of rows
 * meets all columns before the next one comes, not one of columns all rows. Two threads divide the
 * operand whose panels are outside, and both read all of the other one, of rows half from the other
 * core; that counts too, unless they have batches to divide. */
static void rank_unit_tile(const UnitProduct *u, Ranking *ranking, Tile tile) {
    TilePlan plan;
    if (u->flat ? !tile_pieces(1, tile.lines * tile.rows, 1, &plan.rows)
                : !tile_pieces(tile.lines, tile.rows, 1, &plan.rows))
        return;
    if (!tile_pieces(1, tile.columns, TILE_SIDE, &plan.columns) || !tile_plan(&plan)) return;
    double products = 0, rows = (double)(tile.lines * tile.rows);
    for (int i = 0; i < plan.rows.n; i++)
        products += fmax(plan.rows.extent[i], LEAST_CYCLES) * plan.columns.n;
    double row_lines = rows, column_lines = (double)(u->words * plan.columns.n);
    double step =
        fmax(products + COST_OF_LINE * (row_lines + column_lines), row_lines + column_lines);
    double row_panels =
        (double)(u->times * tiles_of(u->lines, tile.lines) * tiles_of(u->rows, tile.rows));
    double column_panels = (double)tiles_of(u->columns, tile.columns);
    double each = step * (double)u->steps + COST_OF_BEGIN + COST_OF_VECTOR * rows * plan.columns.n;
    each += COST_OF_PART * rows / (double)tile_part(tile.rows, tile.columns);
    each += COST_OF_OUTPUT * rows * (double)tiles_of(tile.columns * u->stored, LINE_BYTES);
    row_lines *= (double)u->steps, column_lines *= (double)u->steps;
    double loads = cost_of_loads(u->target, u->column_bytes, column_panels, column_lines,
                                 u->row_bytes, row_panels, row_lines);
    double turned = cost_of_loads(u->target, u->row_bytes, row_panels, row_lines, u->column_bytes,
                                  column_panels, column_lines);
    const double all = each * row_panels * column_panels;
    for (int k = 0; k < 2; k++) {
        tile.turned = k == 0;
        tile.cost = all + (tile.turned ? turned : loads + all * GAIN_OF_STRETCH);
        if (u->packs)
            tile.cost +=
                0.5 / LINE_BYTES *
                (tile.turned ? u->column_bytes * COST_OF_FAR : u->row_bytes * COST_OF_OTHER);
        rank_tile(ranking, tile);
    }
}

static Tile choose_unit_tile(const UnitProduct *u, int variant) {
    Ranking ranking = {.n = 0};
    for (int64_t c = TILE_SIDE / 2; c <= MOST_SIDE * TILE_SIDE; c += TILE_SIDE / 2) {
        for (int64_t r = 1; r <= u->rows && r <= MOST_SIDE * TILE_SIDE; r++)
            for (int64_t l = 1; l <= u->lines && l <= MOST_LINES && (l == 1 || r == u->rows); l++)
                if (is_size(u->rows, r) && is_size(u->lines, l))
                    rank_unit_tile(
                        u, &ranking,
                        (Tile){.lines = l, .rows = r, .columns = c < u->columns ? c : u->columns});
        if (c >= u->columns) break;
    }
    return ranked_tile(&ranking, variant);
}

/* Words of a tile: as many as divide those of the depth. */
static int64_t words_of(int64_t all) {
    int64_t words = all < TILE_SIDE ? all : TILE_SIDE;
    while (all % words) words--;
    return words;
}

/* The loop of the reduction whose steps follow those of the depth in the rows (the places of a
 * window along a line, of few channels), if the depth should be joined with it, for deeper tiles;
 * -1: there is none. */
static int find_window(const Nest *n, const Product *m, int depth, int at_once, const Expr *rows) {
    const int64_t extent = n->loop[depth].extent, words = words_of(extent / at_once);
    for (int i = 0; i < m->n_depth; i++) {
        const int64_t places = n->loop[m->depth[i]].extent;
        int64_t stride;
        if (ex_stride(rows->arg[0], m->depth[i], &stride) && stride == extent && places > 1 &&
            words_of(extent * places / at_once) > words)
            return m->depth[i];
    }
    return -1;
}

/* The innermost loop around `row` that only rows have; -1: there is none. */
static int find_lines(const Nest *n, const Product *m, int row) {
    int found = -1;
    for (int i = 0; i < m->n_row && m->row[i] != row; i++)
        if (n->loop[m->row[i]].extent > 1) found = m->row[i];
    return found;
}

bool schedule_tiles(Nest *n, const Product *m, const NarrowTile *t, int at_once, const Expr *rows,
                    bool packs, int variant) {
    int depth = t->depth, window = packs ? find_window(n, m, depth, at_once, rows) : -1;
    int64_t deep = n->loop[depth].extent * (window >= 0 ? n->loop[window].extent : 1);
    int64_t words = words_of(deep / at_once), line_stride, row_stride;
    if (t->row < 0 || n->loop[t->row].extent < LEAST_ROWS || words < LEAST_ROWS) return false;
    int lines = find_lines(n, m, t->row);
    const Expr *body = nest_body(n);
    UnitProduct u = {.target = n->target,
                     .lines = lines < 0 ? 1 : n->loop[lines].extent,
                     .rows = n->loop[t->row].extent,
                     .columns = n->loop[t->column].extent,
                     .words = words,
                     .steps = m->depths / at_once / words,
                     .row_bytes = bytes_behind(n, m, body, t->row),
                     .column_bytes = bytes_behind(n, m, body, t->column),
                     .packs = packs,
                     .stored = (int64_t)dt_store(n->op->out[0]->dt)};
    u.times = m->rows / u.lines / u.rows;
    u.flat = lines >= 0 && ex_stride(rows->arg[0], lines, &line_stride) &&
             ex_stride(rows->arg[0], t->row, &row_stride) && line_stride == row_stride * u.rows;
    const Tile tile = choose_unit_tile(&u, variant);
    int order[NEST_MAX_LOOPS], k = 0, inner[3], count = 0, outer, word, few;
    int around_lines = lines, around_rows = -1, around_columns = -1;
    int64_t tiles = 1;
    if (window >= 0) depth = nest_fuse(n, window, depth);
    if (tile.lines > 1) {
        inner[count++] = tile_loop(n, lines, tile.lines, &tiles);
        around_lines = tiles > 1 ? outer_of(inner[0]) : -1;
    }
    inner[count++] = tile_loop(n, t->row, tile.rows, &tiles);
    if (inner[count - 1] != t->row) around_rows = outer_of(inner[count - 1]);
    inner[count++] = tile_loop(n, t->column, tile.columns, &tiles);
    if (inner[count - 1] != t->column) around_columns = outer_of(inner[count - 1]);
    for (int i = 0; i < count; i++)
        nest_bind(n, inner[i], i == count - 1 ? ROLE_vector : ROLE_unroll);
    nest_split(n, depth, words * at_once, &outer, &depth);
    nest_split(n, depth, at_once, &word, &few);
    nest_bind(n, word, ROLE_tile);
    nest_bind(n, few, ROLE_unroll);

    if (!tile.turned && around_columns >= 0) order[k++] = around_columns;
    for (int i = 0; i < m->n_row; i++)
        if (m->row[i] != lines && m->row[i] != t->row) order[k++] = m->row[i];
    if (around_lines >= 0) order[k++] = around_lines;
    if (around_rows >= 0) order[k++] = around_rows;
    if (tile.turned && around_columns >= 0) order[k++] = around_columns;
    k = without(order, reductions_by_stride(n, nest_body(n), order, k), few);
    k = without(order, k, word);
    order[k++] = word;
    for (int i = 0; i < count; i++) order[k++] = inner[i];
    order[k++] = few;
    nest_order(n, k, order);
    return true;
}
