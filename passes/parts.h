/* Dimensions that vary and that a model made of others: a reshape of [n, h, w] to [n, h * w] has its
 * element at k read from k / w and k % w.
 */
#ifndef PASSES_PARTS_H
#define PASSES_PARTS_H

#include "ir/graph.h"

/* `e`, of symbols, with loads of them. What the operator lacks of them becomes an input of it; there
 * is room for all. NULL, and nothing changed, if some have no value that is computed before. */
const Expr *load_symbols(const Graph *g, Op *op, const Expr *e);

/* The dimensions, the outermost first, that coordinate `k` of a map's result is divided into by its
 * body, and which together are that dimension. Returns how many: 1 if it is not divided. */
int parts_of_coordinate(const Graph *g, const Op *op, int k, int64_t parts[MAX_RANK]);

/* Has the body of a map use variables from `first` on, one for each part of coordinate `k`, in place
 * of quotients and remainders of it. `extent`: of all but the first, in terms of its loads; `shape`:
 * of all, the largest. False if the body does something else with the coordinate, and is of no more
 * use then. */
bool divide_coordinate(Exprs *x, Op *op, int k, int n, const int64_t *shape,
                       const Expr *const *extent, int first);

/* A map to a tensor that holds other dimensions without gaps (Value.dense, or those its body divides
 * coordinates into) as a map over the coordinates of these, for which nothing need be divided. In
 * these coordinates lies[k] is coordinate k of the tensor. NULL if there are none, or the body does
 * something else with one. */
const Op *by_coordinates(const Graph *g, const Op *op, const Expr **lies);

#endif
