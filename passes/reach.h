/* How far reductions have anything to combine: behind a mask (what queries may not see of keys) are
 * scores that are less than all numbers, whose exponentials are zeros.
 */
#ifndef PASSES_REACH_H
#define PASSES_REACH_H

#include "ir/graph.h"

/* A condition on the operator's coordinates, without which a term of the reduction is its identity:
 * comparisons, all of which hold, of numbers that one run does not change. NULL: none is known. *op
 * may become a copy, with what the condition loads among its inputs. A term that is a product with
 * zero counts as zero, though the other factor may be infinite. */
const Expr *reach_of_reduction(Graph *g, const Op **op);

#endif
