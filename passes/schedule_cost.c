/* What a tile of a product costs a core, and which one costs least; see schedule.h. */
#include "passes/schedule.h"

#include <math.h>

#define COST_OF_TURNING 1.05
#define COST_OF_LINES   0.4    /* cycles for one in a cycle, where the L1 cache keeps none */
#define FAR_BYTES       8      /* that come in a cycle from beyond the L2 cache */
#define ADDS_AT_ONCE    3.2    /* instructions on integers that start in a cycle */
#define STEP            0.6    /* cycles of a loop's step beside them */
#define LATE_L1         0.0625 /* of loads that nothing hides, by where the rows come from */
#define LATE_L2         0.25
#define LATE_BEYOND     0.5
#define LATE_MOST       0.125 /* on Zen 3 */
#define LATE_COMPETING  0.3   /* of rows whose lines push each other out of the L1 cache */
#define LAST_CYCLES     5     /* of a tile's end for a sum that nothing hides: ... */
#define LAST_HIDDEN     14    /* ... all but so many, and ... */
#define LAST_LEAST      2     /* ... these always */
#define MANY_TILES      32
#define REPEATS         4 /* steps of the depth in an iteration, where a register is left */
#define ISSUED          4 /* instructions that start in a cycle beside a neighbour on the core */
#define COUNTING        4 /* instructions of an iteration beside its steps: it counts, and a hint */
#define HINTING         4 /* more, if it has one step and the L1 cache does not keep columns */
#define FEW_REGISTERS   16
#define FEW_BYTES       32 /* of a vector */

bool columns_stay(const Target *t, double column_bytes, int64_t row_tiles) {
    return column_bytes <= (double)t->l2_bytes / 2 && row_tiles >= MANY_TILES;
}

/* The part of the loads of a tile of rows and columns that is late. Where all columns stay, rows
 * come once and are then read from the L1 cache, or, if a panel of columns pushes them out of it,
 * from the L2 cache; else they come again for every panel. */
static double late_part(const Target *t, const Operands *o, int64_t rows, int64_t columns) {
    double first = LATE_BEYOND * fmin(1, o->row_bytes / (double)t->l2_bytes), again = first;
    if (columns_stay(t, o->column_bytes, o->times * tiles_of(o->rows, rows)))
        again =
            ((double)rows + (double)columns * (1 - o->overlap)) * (double)o->depth * WORD_BYTES >
                    (double)(t->l1_bytes * 3 / 4)
                ? LATE_L2
                : LATE_L1;
    double part = again + (first - again) / (double)tiles_of(o->columns, columns);
    return fmax(part, LATE_L1);
}

/* Multiply-adds, or loads, of vectors that start in a cycle. Zen 5 has whole units, but tiles of
 * matrices that suit halves were no worse there: 0.97 to 1.05 of the time (ten networks, 1 in the
 * mean), of six measured again 0.98 to 1. Not so of windows, of which the L1 cache keeps panels. */
static double vectors_at_once(const Target *t, const Operands *o) {
    const bool halves = t->half_units || (!t->whole_vectors && o->overlap == 0);
    return t->vector_bytes == 64 && halves ? 1 : 2;
}

/* Do the instructions beside multiply-adds and loads count? Two threads that share a core share
 * what starts instructions, too, and tiles of few registers have many others: on Zen 3, beside a
 * neighbour, one of 6 x 2 vectors took 0.77 of the time with four steps in an iteration, alone
 * 0.98. Of words, which take two instructions, it gained nothing; more registers were not measured.
 */
static bool counts_others(const Target *t, const Operands *o) {
    return t->vector_types && t->vector_bytes == FEW_BYTES && !o->instructions &&
           t->vector_registers == FEW_REGISTERS;
}

/* How many steps of the depth an iteration has: GCC needs a register to spare for several. Of more
 * than two vectors of columns the last need not stay in one (keep_columns), but where sums are cut
 * at bounds tiles of 4 x 3 were no faster so. Functions of so wide a tile are computed row by row
 * (by_rows in nest_finish.c), which did not pay for fewer rows than vectors: with 4 x 2 instead of
 * 2 x 4 YOLOX took 0.98 of the time. */
static int repeats_of(const Target *t, const Operands *o, int64_t rows, int64_t vectors) {
    const int64_t kept = vectors < KEPT_VECTORS ? vectors : KEPT_VECTORS;
    const int64_t taken = rows * vectors + kept + 1 + o->temporaries;
    const bool wide = vectors > KEPT_VECTORS, few = wide && rows < vectors;
    if (!counts_others(t, o) || taken >= FEW_REGISTERS || (few && o->functions)) return 1;
    return wide && o->bounds ? 1 : REPEATS;
}

#define FEWEST_TILED 8   /* rows of a run: fewer wait for memory */
#define COST_OF_REST 0.6 /* of a tile, if half of one does what is left (tile_rest) */

/* What tiles of so many rows cost of which the first takes `first` and others `later`. Of rows that
 * vary from run to run the most are as likely as half of them, a quarter and so on: the mean of
 * what a row costs in such runs, times the most. */
static double cost_of_runs(const Operands *o, int64_t rows, double first, double later) {
    const bool varies = o->fewest < o->rows;
    double cost = 0;
    int runs = 0;
    for (int64_t most = o->rows; most > 0 && most >= o->fewest; most /= 2) {
        if (runs && most < FEWEST_TILED) break;
        const bool halved = varies && most % rows && most % rows <= half_of_tile(rows);
        const double tiles = (double)tiles_of(most, rows) - (halved ? 1 - COST_OF_REST : 0);
        const double others = fmax(0, (double)o->times * tiles - 1);
        cost += (first + others * later) * (double)o->rows / (double)most;
        runs++;
    }
    return runs ? cost / runs : 0;
}

/* What a step of the depth takes in all tiles of this size, in cycles, by a simple model of a core:
 * so many multiply-adds and two loads start in a cycle, though loads seldom so many; a multiply-add
 * takes four and has a successor ready one later. (Where integers are added by an instruction of
 * its own, more start in a cycle, and a sum is ready in the next.) Loads hide behind two thirds of
 * the multiply-adds' time, the others are late the more, the farther away the rows are: each begins
 * a line of its own at the same step. Columns follow each other in memory, so that they come ahead
 * and cost little where the L1 cache does not keep them; but the first tile of rows waits for those
 * that the L2 cache does not keep, and so do all for what it loses of a panel that the next one
 * reads again; of two tiles that wait as long, the one with less to do is better. Where units are
 * half as wide as vectors, a tile of many sums ends late (measured on Zen 4), which counts where
 * the depth is short. Tiles at the edge cost as much as whole ones. */
static double cost_of_tiles(const Target *t, const Operands *o, int64_t rows, int64_t vectors,
                            int64_t columns) {
    const double all = (double)(rows * vectors), at_once = vectors_at_once(t, o);
    const double loads = (double)rows + (double)vectors * 2 / at_once;
    const double products =
        o->instructions ? all * o->instructions / ADDS_AT_ONCE + STEP : all / at_once;
    const double least = o->instructions ? 2 : counts_others(t, o) ? 4 : 5;
    const double lines = (double)(vectors * t->vector_bytes) / LINE_BYTES;
    double panel = (double)(o->depth * columns * WORD_BYTES) * (1 - o->overlap);
    double cycles = fmax(fmax(products, COST_OF_LOAD * loads / 2), least);
    if (counts_others(t, o)) {
        const int repeats = repeats_of(t, o, rows, vectors);
        const bool hints = repeats == 1 && panel > (double)t->l1_bytes / 2;
        const double counting = (double)(COUNTING + (hints ? HINTING : 0)) / repeats;
        cycles = fmax(cycles, (all + (double)(rows + vectors) + counting) / ISSUED);
    }
    double late = late_part(t, o, rows, columns);
    if (counts_others(t, o)) late = fmin(late, LATE_MOST);
    cycles += late * fmax(0, loads - products * 2 / 3);
    if (rows > o->most_rows) cycles += LATE_COMPETING * (double)rows;
    if (at_once < 2) cycles += LAST_CYCLES * fmax(LAST_LEAST, all - LAST_HIDDEN) / (double)o->depth;
    if (panel > (double)t->l1_bytes / 2) cycles += COST_OF_LINES * lines * lines / products;
    double far = (double)(vectors * t->vector_bytes) / FAR_BYTES * (1 - o->overlap);
    double waiting =
        cycles + target_lost(t, o->column_bytes) * (fmax(cycles, far) + cycles / 8 - cycles);
    double later = cycles + target_lost(t, panel) * (waiting - cycles);
    return cost_of_runs(o, rows, waiting, later) * (double)tiles_of(o->columns, columns);
}

#define PLAIN_FLOATS 2

/* Are so many vectors of columns good where sums are arrays of which compilers make vectors? GCC
 * keeps several rows of more floats in memory. Bytes, whose sums are integers, come 16 at once. */
static bool suits_arrays(const Operands *o, int64_t rows, int64_t vectors, int64_t lanes) {
    if (o->floats) return rows == 1 || vectors <= PLAIN_FLOATS;
    return vectors == 4 || o->columns < 4 * lanes;
}

Tile choose_tile(const Target *t, int lanes, const Operands *o, int variant) {
    if (t->scalar_registers) return scalar_tile(t, o, variant);
    Ranking ranking = {.n = 0};
    for (int64_t vectors = 1; vectors <= 4; vectors++)
        for (int64_t r = 1; r <= o->rows && r <= MOST_ROWS; r++) {
            int64_t width = vectors * lanes;
            int64_t most = t->vector_types ? t->vector_registers - vectors - 1 - o->temporaries
                                           : (t->vector_registers + 1) / 2;
            if (r * vectors > most) break;
            if (!t->vector_types && !suits_arrays(o, r, vectors, lanes)) continue;
            if (vectors > 1 && (t->vector_types ? width - lanes >= o->columns : width > o->columns))
                break;
            double cost = cost_of_tiles(t, o, r, vectors, width);
            Tile tile = {
                .rows = r, .columns = width < o->columns ? width : o->columns, .cost = cost};
            tile.repeats = repeats_of(t, o, r, vectors);
            rank_tile(&ranking, tile);
            tile.turned = true;
            tile.cost *= COST_OF_TURNING;
            if (r < o->rows && width < o->columns) rank_tile(&ranking, tile);
        }
    return ranked_tile(&ranking, variant);
}

int64_t most_tile_rows(const Target *t, bool compete) {
    return compete ? t->l1_bytes / L1_WAY_BYTES - 1 : MOST_ROWS;
}
