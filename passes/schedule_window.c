/* Schedules of reductions over a window whose results take each a column of their own: depthwise
 * convolutions, pooling. See schedule.h.
 *
 * Results along a row make a tile: of what one reads its neighbours read the most, too. A pixel
 * whose channels are a multiple of so many bytes that the lines of a tile fall into few sets of the
 * L1 cache is read from beyond it, a line at a time: then a tile has several vectors of a line.
 */
#include <math.h>

#include "passes/inline.h"
#include "passes/schedule.h"

#define MOST_UNROLLED_WINDOW 32
#define MOST_FOURS           8   /* of a coordinate of a window */
#define MOST_READ            512 /* places of a tile; of more it is not asked whether they compete */
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

/* How many results along `row` a tile of a window has, at most so many. */
static int64_t window_rows(const Nest *n, int row, int64_t most) {
    Ranking ranking = {.n = 0};
    for (int64_t r = most; row >= 0 && r > 1; r--) {
        double cost = (double)(tiles_of(n->loop[row].extent, r) * (r + 1));
        if (r <= n->loop[row].extent) rank_tile(&ranking, (Tile){.rows = r, .cost = cost});
    }
    rank_tile(&ranking, (Tile){.rows = 1, .cost = HUGE_VAL});
    return ranked_tile(&ranking, n->variant).rows;
}

/* A tile of a reduction over a window that slides along `row`, each column for itself (depthwise
 * convolution, pooling): neighbours in the tile share what they load where the window is unrolled,
 * as far as it is not too long. A coordinate that is taken by fours, and perhaps was filled up to
 * them, is the innermost, so that it is known which places are there. */
void window_tile(Nest *n, int column, int row) {
    int64_t tiles, unrolled = 1;
    int inner[2], count = 0, order[NEST_MAX_LOOPS];
    int fours = -1, few = -1, depth = window_depth(n);
    if (depth >= 0) nest_split(n, depth, 4, &fours, &few);
    int k = without(order, reductions_by_stride(n, nest_body(n), order, 0), few);
    if (fours >= 0) {
        k = without(order, k, fours);
        order[k++] = fours;
    }
    int serial = k; /* loops of the window that are not unrolled, the outer ones */
    while (n->target->vector_types && serial > 0) {
        const int loop = order[serial - 1];
        const int64_t more = unrolled * n->loop[loop].extent;
        if (more > (loop == fours ? MOST_FOURS : MOST_UNROLLED_WINDOW)) break;
        unrolled = more;
        serial--;
    }
    bool shares = k == 0 || unrolled > 1 || nest_body(n)->op == EX_mul;
    shares &= n->target->vector_types;
    int64_t rows = window_rows(n, shares ? row : -1, MOST_WINDOW_ROWS), vectors = shares ? 1 : 4;
    TileLines u = {.n = n, .row = row, .rows = rows};
    if (rows > 1 && few < 0) ex_visit(n->p->arena, nest_body(n), look_at_lines, &u);
    if (u.compete && n->target->vector_bytes < LINE_BYTES) {
        const int64_t most = n->target->vector_registers / MOST_WINDOW_ROWS;
        vectors = LINE_BYTES / n->target->vector_bytes;
        if (vectors > most) vectors = most;
        rows = window_rows(n, row, n->target->vector_registers / vectors - 1);
    }
    for (int i = serial; i < k; i++) nest_bind(n, order[i], ROLE_unroll);
    if (rows > 1) inner[count++] = tile_loop(n, row, rows, &tiles);
    inner[count++] = tile_loop(n, column, vectors * lanes_of(n), &tiles);
    for (int i = 0; i < count; i++) {
        nest_bind(n, inner[i], i == count - 1 ? ROLE_vector : ROLE_unroll);
        order[k++] = inner[i];
    }
    if (few >= 0) {
        nest_bind(n, few, ROLE_unroll);
        order[k++] = few;
    }
    nest_order(n, k, order);
}
