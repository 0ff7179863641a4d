/* The first schedule of a reduction on a core without vectors, as microcontrollers have: tiles of
 * scalars in registers. The C compiler sees small arrays, and loops over them that it unrolls.
 *
 * Costs are instructions: such cores start one in a cycle, and loads take one or two.
 */
#include "passes/schedule.h"

#define MOST_SCALARS  6  /* rows and columns of a tile */
#define POINTERS      3  /* registers that a tile takes to find its operands */
#define LOOP          3  /* instructions of a loop's step beside what it does */
#define STEPS_AT_ONCE 4  /* of a loop: counting them takes time */
#define WINDOW_ROWS   4  /* results of a window that registers hold beside what they read */
#define WINDOW_PLACES 32 /* that are unrolled */

/* Of products that are added two at once, an operand is a word of four bytes, which takes two
 * instructions to make halves of: of even ones and of odd ones. */
Tile scalar_tile(const Target *t, const Operands *o, int variant) {
    Ranking ranking = {.n = 0};
    const int halves = o->at_once > 1 ? 2 : 1, made = halves > 1 ? 2 : 0;
    for (int64_t c = 1; c <= MOST_SCALARS && c <= o->columns; c++)
        for (int64_t r = 1; r <= MOST_SCALARS && r <= o->rows; r++) {
            int64_t taken = r * c + r * halves + halves + (o->floats ? 0 : POINTERS);
            if (taken > (o->floats ? t->vector_registers : t->scalar_registers)) break;
            double step = (double)((r + c) * (1 + made) + r * c * halves + LOOP);
            double cost = step * (double)(tiles_of(o->rows, r) * tiles_of(o->columns, c));
            rank_tile(&ranking, (Tile){.rows = r, .columns = c, .cost = cost});
        }
    return ranked_tile(&ranking, variant);
}

int scalar_steps(Nest *n, Tile tile, int at_once, int *order, int k) {
    const Target *t = n->target;
    const bool floats = dt_is_float((DType)n->op->body->dt);
    const int registers = floats ? t->vector_registers : t->scalar_registers;
    const int64_t operands = (tile.rows + tile.columns) * (at_once > 1 ? 2 : 1);
    if (tile.rows * tile.columns + 2 * operands > registers) return k;
    return split_innermost(n, STEPS_AT_ONCE, ROLE_unroll, order, k);
}

/* A reduction over a small window: a few neighbours share what they load, for the window is
 * unrolled, innermost the loop along which it moves from one to the next. */
static bool window_of_scalars(Nest *n) {
    int order[NEST_MAX_LOOPS], k = reductions_by_stride(n, nest_body(n), order, 0);
    int64_t places = 1, tiles;
    Slide slide;
    for (int i = 0; i < k; i++) places *= n->loop[order[i]].extent;
    if (places > WINDOW_PLACES || !find_slide(n, -1, &NO_SLIDE, order, k, &slide)) return false;
    const int row = slide.row;
    k = without(order, k, slide.loop);
    order[k++] = slide.loop;
    Ranking ranking = {.n = 0};
    for (int64_t r = WINDOW_ROWS; r > 0; r--) {
        double cost = (double)(tiles_of(n->loop[row].extent, r) * (r + 1));
        if (r <= n->loop[row].extent) rank_tile(&ranking, (Tile){.rows = r, .cost = cost});
    }
    for (int i = 0; i < k; i++) nest_bind(n, order[i], ROLE_unroll);
    order[k++] = tile_loop(n, row, ranked_tile(&ranking, n->variant).rows, &tiles);
    nest_bind(n, order[k - 1], ROLE_unroll);
    nest_order(n, k, order);
    return true;
}

/* Loads need not lie side by side: the tile of a product may be along any loops. */
void schedule_scalars(Nest *n) {
    Product m;
    bool product = find_product(n, &m);
    int column = product ? longest_of(n, m.column, m.n_column) : -1;
    int row = product ? longest_of(n, m.row, m.n_row) : -1;
    if (column >= 0 && row >= 0) {
        matrix_tile(n, &m, column, row, -1, -1, n->variant);
    } else if (window_of_scalars(n)) {
        /* has its loops */
    } else if (column >= 0) {
        matrix_tile(n, &m, column, -1, -1, -1, n->variant);
    } else if (row >= 0) {
        const Product turned = transposed(&m);
        matrix_tile(n, &turned, row, -1, -1, -1, n->variant);
    }
    nest_pack(n);
}
