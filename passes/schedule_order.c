/* In which order the tiles of a product go by; see schedule.h. */
#include "passes/schedule.h"

#define MOST_PARTS 4

/* How many of `tiles` tiles make a block of about `most`: no tile should be left over. */
static int64_t block_of(int64_t tiles, int64_t most) {
    int64_t best = most, least = tiles;
    for (int64_t f = most + most / 4; f > most / 2; f--) {
        int64_t spare = tiles_of(tiles, f) * f - tiles;
        if (spare >= least) continue;
        least = spare;
        best = f;
    }
    return best;
}

int order_tiles(Nest *n, const Product *m, const Expr *body, int row, int column, int row_outer,
                int column_outer, bool turned, int *order) {
    int k = 0;
    double l2 = (double)n->target->l2_bytes, size = (double)dt_store((DType)body->dt);
    double rows = bytes_behind(n, m, body, row), columns = bytes_behind(n, m, body, column);
    int64_t row_tiles = row_outer < 0 ? 1 : n->loop[row_outer].extent;
    int64_t column_tiles = n->loop[column_outer].extent;
    int64_t all_row_tiles = m->rows / n->loop[row].extent * row_tiles;
    double far = rows <= l2 / 2 ? 0 : rows * (double)(column_tiles - 1);
    if (m->n_row > 1 && columns > l2 && far < columns * (double)(all_row_tiles - 1) && !turned) {
        order[k++] = column_outer;
        for (int i = 0; i < m->n_row; i++)
            if (m->row[i] != row) order[k++] = m->row[i];
        if (row_outer >= 0) order[k++] = row_outer;
        return k;
    }
    if (row_outer < 0) return 0;
    double visited = (double)m->depths * size;
    double columns_again = (double)(row_tiles - 1) * visited * (double)m->columns;
    if (m->moved) columns_again *= 2; /* with their table */
    double rows_again = (double)(column_tiles - 1) * visited * (double)m->rows;
    bool stay = columns_stay(n->target, columns, all_row_tiles);
    if ((stay || rows_again >= columns_again) != turned) {
        order[k++] = row_outer;
        order[k++] = column_outer;
        return k;
    }
    int64_t block = (int64_t)(l2 / 2 / (rows / (double)row_tiles)); /* beside columns */
    /* a block has all columns come again, perhaps from memory, where the rows are in a cache
     * beyond; certainly from there if that does not hold both */
    double worse = rows + columns > (double)n->target->l3_bytes ? 6 : 3;
    double blocks = (double)tiles_of(row_tiles, block > 0 ? block : 1);
    if (m->n_row == 1 && rows > 2 * l2 && block > 1 &&
        worse * columns * blocks < rows * (double)column_tiles) {
        int around;
        nest_slide(n, row_outer, block_of(row_tiles, block), &around, &row_outer);
        order[k++] = around;
    } else if (m->n_row == 1 && m->batches == 1 && rows + columns <= l2 && !n->apart &&
               !n->target->scalar_registers) {
        /* each thread should find the rows that it has made in its own cache: columns come from
         * there a few times more */
        int64_t parts = MOST_PARTS;
        while (row_tiles % parts) parts--;
        if (parts > 1 && parts < row_tiles) {
            int around;
            nest_split(n, row_outer, row_tiles / parts, &around, &row_outer);
            order[k++] = around;
        }
    }
    order[k++] = column_outer;
    order[k++] = row_outer;
    return k;
}
