/* Schedules of reductions over a window whose results take each a column of their own: depthwise
 * convolutions, pooling. See schedule.h.
 *
 * Results along a row, or along two lines of an image, make a tile: of what one reads its
 * neighbours read the most, too. A pixel whose channels are a multiple of so many bytes that the
 * lines of a tile fall into few sets of the L1 cache is read from beyond it, a line at a time: then
 * a tile has several vectors of a line.
 */
#include <math.h>

#include "passes/inline.h"
#include "passes/schedule.h"

#define MOST_UNROLLED_WINDOW 32  /* places */
#define MOST_UNROLLED        512 /* products of a tile */
#define MOST_FOURS           8   /* of a coordinate of a window */
#define MOST_READ            512 /* places of a tile; of more it is not asked whether they compete */
#define WINDOW_LINES         2   /* of results, in a tile */
#define COST_OF_PRODUCT      0.5 /* in cycles */
#define COST_OF_READ         1.2 /* of a vector from beyond the L1 cache */
#define COST_OF_TILE         5
#define N_SETS               (L1_WAY_BYTES / LINE_BYTES)

/* The loop of a window along which the target adds products of bytes by fours; -1: there is none.
 */
static int window_depth(Nest *n) {
    const Expr *body = nest_body(n);
    int order[NEST_MAX_LOOPS], count = reductions_by_stride(n, body, order, 0);
    if (!n->target->byte_dots || body->op != EX_mul || body->dt != DT_i32) return -1;
    for (int i = 0; i < 2; i++) {
        const Expr *load = without_casts(body->arg[i]);
        if (load->op != EX_load || load->dt != DT_i8 || !value_is_const(n->op->in[load->k.i]))
            continue;
        for (int k = 0; k < count; k++)
            if (n->loop[order[k]].extent % 4 == 0) return order[k];
    }
    return -1;
}

typedef struct TileLines {
    const Nest *n;
    int row;
    int64_t rows;
    bool compete;
} TileLines;

/* Notes whether a load reads more lines in a tile of so many rows, at one column, than fit into the
 * sets of the L1 cache that these lines belong to. */
static void look_at_lines(void *user, const Expr *e) {
    TileLines *u = user;
    const Nest *n = u->n;
    const int64_t ways = n->target->l1_bytes / L1_WAY_BYTES;
    int64_t at[MOST_READ], n_at = 1, n_lines = 0, n_sets = 0, stride;
    bool set[N_SETS] = {false};
    if (e->op != EX_load || nest_can_pack(n, e->k.i, e->arg[0]) ||
        dt_store((DType)e->dt) != WORD_BYTES)
        return;
    at[0] = 0;
    for (int k = 0; k < n->n_order; k++) {
        const int loop = n->order[k];
        const int64_t extent = loop == u->row ? u->rows : n->loop[loop].extent;
        if ((loop != u->row && !n->loop[loop].reduce) || !ex_stride(e->arg[0], loop, &stride))
            continue;
        if (n_at * extent > MOST_READ || stride < 0) return;
        for (int64_t i = 1; i < extent; i++)
            for (int64_t j = 0; j < n_at; j++) at[i * n_at + j] = at[j] + i * stride * WORD_BYTES;
        n_at *= extent;
    }
    for (int64_t i = 0; i < n_at; i++) {
        const int64_t line = at[i] / LINE_BYTES;
        int64_t j = 0;
        while (j < i && at[j] / LINE_BYTES != line) j++;
        if (j < i) continue;
        bool *in = &set[line % N_SETS];
        n_lines++;
        n_sets += !*in;
        *in = true;
    }
    u->compete |= n_lines > ways * n_sets;
}

static bool compete(const Nest *n, const Expr *body, int row, int64_t rows) {
    TileLines u = {.n = n, .row = row, .rows = rows};
    ex_visit(n->p->arena, body, look_at_lines, &u);
    return u.compete;
}

static void look_at_slide(void *user, const Expr *e) {
    Slide *s = user;
    int64_t row, loop;
    if (e->op == EX_load && ex_stride(e->arg[0], s->row, &row) &&
        ex_stride(e->arg[0], s->loop, &loop) && loop && row && row % loop == 0)
        s->step = row / loop;
}

/* Do neighbours along `row` share what they read? */
static bool slides_along(const Nest *n, const Expr *body, int row, const int *order, int k,
                         Slide *slide) {
    for (int i = 0; i < k; i++) {
        *slide = (Slide){.row = row, .loop = order[i]};
        ex_visit(n->p->arena, body, look_at_slide, slide);
        if (slide->step >= 1 && slide->step < n->loop[slide->loop].extent) return true;
    }
    *slide = (Slide){.row = row, .loop = -1};
    return false;
}

bool find_slide(Nest *n, int column, const Slide *other, const int *order, int k, Slide *slide) {
    const Expr *body = nest_body(n);
    for (int i = 0; i < n->n_order; i++) {
        const int row = n->order[i];
        if (row == column || row == other->row || n->loop[row].reduce || n->loop[row].extent < 2)
            continue;
        if (slides_along(n, body, row, order, k, slide) && slide->loop != other->loop) return true;
    }
    *slide = NO_SLIDE;
    return false;
}

/* Do results of neighbouring columns lie side by side? Others are turned in registers first, for
 * which a tile's rows should lie side by side, and come out even. */
static bool writes_along(const Nest *n, int column) {
    int64_t stride;
    const Expr *at = nest_output_index(n);
    return at && ex_stride(at, column, &stride) && stride == 1;
}

/* Places of a window along its loop, and of all that so many neighbours read. */
static int64_t places_of(const Nest *n, const Slide *s) {
    return s->loop >= 0 ? n->loop[s->loop].extent : 1;
}

static int64_t reads_of(const Nest *n, const Slide *s, int64_t results) {
    return s->loop >= 0 ? (results - 1) * s->step + places_of(n, s) : results;
}

/* How many places of a window are unrolled at most, for a tile of so many results. */
static int64_t most_unrolled(const Expr *body, int64_t results) {
    const int64_t most = body->op == EX_mul && results > 1 ? MOST_UNROLLED / results : 0;
    return most < MOST_UNROLLED_WINDOW ? MOST_UNROLLED_WINDOW : most;
}

/* The tile of a window of so many places: at most so many neighbours along a row, or fewer of two
 * lines each, for registers should remain for what these read together, once. Costs are those of
 * products, of the factors of each place, and of what is read from beyond the L1 cache, for other
 * columns come between tiles that share places. Tiles that do not come out even overlap. */
static Tile tile_of_window(const Nest *n, const Expr *body, const Slide *row, const Slide *line,
                           int64_t places, int64_t most) {
    Ranking ranking = {.n = 0};
    const int64_t width = row->row >= 0 ? n->loop[row->row].extent : 1;
    const int64_t height = line->row >= 0 ? n->loop[line->row].extent : 1;
    const bool slow = ex_slow_cycles(n->p->arena, body) > 0;
    for (int64_t l = 1; l <= (slow ? 1 : WINDOW_LINES) && l <= height; l++) {
        const int64_t held = l > 1 ? n->target->vector_registers * 5 / 8 / l : most;
        for (int64_t r = most; r > 1; r--) {
            if (r > held || r > width || (l > 1 && places > most_unrolled(body, r * l))) continue;
            const int64_t reads = reads_of(n, row, r) * reads_of(n, line, l) *
                                  (places / places_of(n, row) / places_of(n, line));
            const double cost = (double)(places * (r * l + 1)) * COST_OF_PRODUCT +
                                (double)reads * COST_OF_READ + COST_OF_TILE;
            const int64_t tiles = tiles_of(width, r) * tiles_of(height, l);
            rank_tile(&ranking, (Tile){.rows = r, .lines = l, .cost = (double)tiles * cost});
        }
    }
    rank_tile(&ranking, (Tile){.rows = 1, .lines = 1, .cost = HUGE_VAL});
    return ranked_tile(&ranking, n->variant);
}

/* Of the k loops over a window in `order` the first of those, the inner ones, that are unrolled:
 * so many places at most, fewer of the loop `fours`. */
static int first_unrolled(const Nest *n, const int *order, int k, int fours, int64_t most) {
    int64_t unrolled = 1;
    while (n->target->vector_types && k > 0) {
        unrolled *= n->loop[order[k - 1]].extent;
        if (unrolled > (order[k - 1] == fours ? MOST_FOURS : most)) break;
        k--;
    }
    return k;
}

/* A tile of a reduction over a window that slides along `row`, each column for itself (depthwise
 * convolution, pooling): neighbours in the tile share what they load where the window is unrolled,
 * as far as it is not too long. A coordinate that is taken by fours, and perhaps was filled up to
 * them, is the innermost, so that it is known which places are there. */
void window_tile(Nest *n, int column, int row) {
    int64_t tiles, places = 1, vectors = 1;
    int order[NEST_MAX_LOOPS], fours = -1, few = -1, depth = window_depth(n);
    if (depth >= 0) nest_split(n, depth, 4, &fours, &few);
    const Expr *body = nest_body(n);
    int k = without(order, reductions_by_stride(n, body, order, 0), few);
    if (fours >= 0) {
        k = without(order, k, fours);
        order[k++] = fours;
    }
    for (int i = 0; i < k; i++) places *= n->loop[order[i]].extent;
    const bool shares = k == 0 || body->op == EX_mul ||
                        first_unrolled(n, order, k, fours, MOST_UNROLLED_WINDOW) < k;
    if (!shares || !n->target->vector_types) {
        row = -1;
        vectors = 4;
    }
    Slide across = NO_SLIDE, down = NO_SLIDE;
    if (row >= 0) slides_along(n, body, row, order, k, &across);
    Tile tile = tile_of_window(n, body, &across, &down, places, MOST_WINDOW_ROWS);
    if (tile.rows > 1 && few < 0 && n->target->vector_bytes < LINE_BYTES &&
        compete(n, body, row, tile.rows)) {
        const int64_t most = n->target->vector_registers / MOST_WINDOW_ROWS;
        vectors = LINE_BYTES / n->target->vector_bytes;
        if (vectors > most) vectors = most;
        const int64_t held = n->target->vector_registers / vectors - 1;
        tile = tile_of_window(n, body, &across, &down, places, held);
    } else if (tile.rows > 1 && few < 0 && writes_along(n, column) &&
               find_slide(n, column, &across, order, k, &down)) {
        tile = tile_of_window(n, body, &across, &down, places, MOST_WINDOW_ROWS);
    }
    const int64_t results = tile.rows > 1 ? tile.rows * tile.lines * vectors : 1;
    for (int i = first_unrolled(n, order, k, fours, most_unrolled(body, results)); i < k; i++)
        nest_bind(n, order[i], ROLE_unroll);
    if (tile.lines > 1)
        nest_bind(n, order[k++] = tile_loop(n, down.row, tile.lines, &tiles), ROLE_unroll);
    if (tile.rows > 1) nest_bind(n, order[k++] = tile_loop(n, row, tile.rows, &tiles), ROLE_unroll);
    const int64_t lanes = nest_chosen_bytes(n) != DT_none ? n->target->vector_bytes : lanes_of(n);
    nest_bind(n, order[k++] = tile_loop(n, column, vectors * lanes, &tiles), ROLE_vector);
    if (few >= 0) nest_bind(n, order[k++] = few, ROLE_unroll);
    nest_order(n, k, order);
}
