/* rows: operators that go through the same rows, one after the other, are one kernel of a device.
 *
 * The mean of a row, its variance and what normalises it, or the maximum, the exponentials and the
 * sum of a softmax, are little work each, and a kernel of its own takes a device longer to begin
 * than to do. Where all that such operators read of each other lies in the own row, a block does
 * them for a row, with barriers between them.
 */
#ifndef PASSES_ROWS_H
#define PASSES_ROWS_H

#include "passes/nest.h"

#define MOST_IN_ROWS 8 /* operators */

typedef struct RowChain {
    int n; /* operators; fewer than two: there is no chain */
    const Op *op[MOST_IN_ROWS];
    int axes;        /* rows are what the first so many coordinates say */
    int64_t threads; /* of a block */
} RowChain;

/* The chain that begins with `first`. Reshapes between its operators are passed over. */
RowChain find_rows(const Op *first, const Target *t);

/* One of the chain's, as a block goes through its rows. */
void schedule_rows(Nest *n, const RowChain *chain);

/* The kernels of a chain as one. args[i]: what is behind the parameters of kernel i; *joined:
 * behind those of the result. */
Kernel *join_rows(Program *p, const char *name, int n, Kernel *const *kernels, Value **const *args,
                  Value ***joined);

#endif
