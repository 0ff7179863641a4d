/* How far reductions have anything to combine: behind a mask (what queries may not see of keys) are
 * scores that are less than all numbers, whose exponentials are zeros, and blocks of constant
 * columns of integers may end in zeros.
 */
#ifndef PASSES_REACH_H
#define PASSES_REACH_H

#include "ir/graph.h"

/* A condition without which a term of the reduction is its identity: comparisons `r * number < e`,
 * or <=, of reduction variables, all of which hold. NULL: none is known. *op may become a copy,
 * with what the condition loads among its inputs. A product with zero counts as zero, though the
 * other factor may be infinite, and exp(x - m) as zero where x is less than all numbers, though m
 * may be so, too: then other terms of that sum are no numbers, if there are any. */
const Expr *reach_of_reduction(Graph *g, const Op **op);

#endif
