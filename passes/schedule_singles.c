/* Schedules of products whose rows vary from run to run: for runs that have few, and for what whole
 * tiles leave; see schedule.h.
 *
 * A tile of 6 rows computes 6 where a run has one: a language model reads a prompt at once, and
 * then token by token. Such runs get tiles of one row, or, where other rows meet the same columns
 * (queries of heads that share keys), of those, and of more columns where no constant lies in
 * panels.
 */
#include "passes/inline.h"
#include "passes/schedule.h"

#define MOST_SINGLES 2 /* rows that are done one by one where a run has no more */
#define LEAST_SUMS   4 /* vectors of them: each is ready after so many cycles */

/* Columns, of `extent`, in a tile of so many rows, if the product computes the factor that has
 * them: constants lie in the order of the other tiles. `column` is those tiles' loop over theirs;
 * -1: as many. */
static int64_t wider_tile(const Nest *n, const Product *m, int column, int64_t extent,
                          int64_t rows) {
    const Expr *body = nest_body(n);
    const int64_t lanes = lanes_of(n);
    bool constant = !m || body->op != EX_mul; /* sums in two steps read constants */
    for (int i = 0; i < 2 && !constant; i++) {
        const Expr *load = without_casts(body->arg[i]);
        constant |= load->op != EX_load || value_is_const(n->op->in[load->k.i]);
    }
    const int64_t most = n->target->vector_registers * 3 / 4 / rows * lanes;
    const int64_t width = most < extent ? most : extent / lanes * lanes;
    return constant || width <= n->loop[column].extent ? -1 : width;
}

/* How many of the tiles of columns a row needs side by side for sums that do not wait for one
 * another; 1: a tile has enough, or their number has no such divisor. */
static int64_t parts_of(const Nest *n, int column, int64_t tiles) {
    const int64_t vectors = tiles_of(n->loop[column].extent, lanes_of(n));
    const int64_t least = tiles_of(LEAST_SUMS, vectors);
    for (int64_t parts = least; n->target->vector_types && parts < 2 * least; parts++)
        if (tiles % parts == 0) return parts;
    return 1;
}

int64_t rows_of_tile(const Nest *n, int row, int64_t rows) {
    const NestLoop *l = &n->loop[row];
    const bool few = row < n->n_coords && n->limit[row] && n->coord[row] == ex_var(n->x, row) &&
                     l->least <= MOST_SINGLES && l->extent > MOST_SINGLES;
    return few && rows >= l->extent ? (l->extent + 1) / 2 : rows;
}

void tile_singles(Nest *n, const Product *m, int rows, int column, int panels, int64_t columns) {
    Singles s = {.loop = rows, .most = MOST_SINGLES, .rows = -1, .columns = -1, .streams = -1};
    const int d = n->loop[rows].extent > MOST_SINGLES ? nest_limited_coordinate(n, rows) : -1;
    const bool alone = d >= 0 && n->coord[d]->op != EX_div && n->coord[d]->op != EX_rem;
    if (!alone || n->loop[d].least > MOST_SINGLES || n->loop[d].extent <= n->loop[rows].extent)
        return;
    for (int i = 0; m && i < m->n_row; i++) {
        const NestLoop *l = &n->loop[m->row[i]];
        if (m->row[i] != rows && !l->retired && l->role == ROLE_serial && l->extent > 1 &&
            l->extent <= n->loop[rows].extent && (s.rows < 0 || l->extent > n->loop[s.rows].extent))
            s.rows = m->row[i];
    }
    const int64_t met = s.rows < 0 ? 1 : n->loop[s.rows].extent;
    if (column >= 0) s.width = wider_tile(n, m, column, columns, met);
    if (s.width > 0) s.columns = column;
    const bool whole = column >= 0 && columns % n->loop[column].extent == 0;
    if (whole && s.rows < 0 && s.columns < 0) {
        const int64_t tiles = n->loop[panels].extent;
        s.parts = streams_of(n, panels, tiles);
        if (s.parts == 1) s.parts = parts_of(n, column, tiles);
    }
    if (s.parts > 1) s.streams = panels;
    nest_single(n, s);
}

#define FEWEST_HALVED 4 /* rows of a tile */

int64_t half_of_tile(int64_t rows) {
    return rows < FEWEST_HALVED ? 0 : (rows + 1) / 2;
}

void tile_rest(Nest *n, int rows) {
    const int64_t half = half_of_tile(n->loop[rows].extent);
    if (half && nest_can_rest(n, rows) && n->target->vector_types && n->stream_loop < 0)
        nest_rest(n, rows, half);
}
