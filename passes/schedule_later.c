/* Sums that are finished while those of the next tile are added up; see schedule.h. */
#include "ir/tile_plan.h"
#include "passes/inline.h"
#include "passes/schedule.h"

#define LEAST_LATER 6 /* what is done with a sum, as body_cost counts, that is worth an array */

/* The loops over a tile's rows and columns; false: it has others, or how often it adds up, from
 * `first` of the order on, hangs on the run. */
static bool find_tile(const Nest *n, int first, int *row, int *column) {
    int tile[NEST_MAX_LOOPS];
    for (int i = first; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (l->role == ROLE_tile || l->least < l->extent) return false;
    }
    if (nest_tile_loops(n, tile) != 2) return false;
    *row = tile[0];
    *column = tile[1];
    return n->loop[*row].role == ROLE_unroll && n->loop[*column].role == ROLE_vector;
}

void finish_later(Nest *n) {
    const Target *t = n->target;
    int first = 0, row, column;
    int64_t tiles = 1;
    if (!t->vector_types || t->vector_bytes < LINE_BYTES || n->lane_loop >= 0 ||
        n->partial_loop >= 0 || n->stream_loop >= 0 || n->singles.loop >= 0)
        return;
    for (int i = 0; i < n->n_coords; i++)
        if (n->limit[i]) return;
    for (; first < n->n_order && !n->loop[n->order[first]].reduce; first++)
        tiles *= n->loop[n->order[first]].extent;
    if (tiles < 2 || first == n->n_order || n->loop[n->order[first]].role != ROLE_serial ||
        !find_tile(n, first, &row, &column))
        return;
    const int64_t rows = n->loop[row].extent, columns = n->loop[column].extent;
    const int64_t each =
        tile_part(rows, columns); /* as vectors of words are as long as its tiles */
    if (each < rows && columns % lanes_of(n) == 0 &&
        body_cost(n->p->arena, n->op->post) >= LEAST_LATER)
        nest_later(n, row, each);
}
