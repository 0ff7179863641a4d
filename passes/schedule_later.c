/* Sums that are finished while those of the next tile are added up; see schedule.h. */
#include "ir/tile_plan.h"
#include "passes/inline.h"
#include "passes/schedule.h"

#define LEAST_LATER 6 /* what is done with a sum, as body_cost counts, that is worth an array */

/* The loops over a tile's rows and columns, behind `first` of the order; false: it has others, or
 * how often it adds up hangs on the run. */
static bool find_tile(const Nest *n, int first, int *row, int *column) {
    *row = *column = -1;
    for (int i = first; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (l->role == ROLE_tile || l->least < l->extent || (!l->reduce && *column >= 0))
            return false;
        if (l->reduce) continue;
        if (l->role == ROLE_vector)
            *column = n->order[i];
        else if (*row < 0)
            *row = n->order[i];
        else
            return false;
    }
    return *row >= 0 && *column >= 0 && n->loop[*row].role == ROLE_unroll;
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
