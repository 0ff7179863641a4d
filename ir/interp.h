/* The reference interpreter: the one oracle in the box.
 *
 * It computes every core operator exactly as graph.h defines it, sums and products of floats in
 * double, with no regard to the passes, schedules and generators that it checks. It folds constants
 * in the builders, executes graphs before and after each pass in tests, and answers `mlcc verify`.
 */
#ifndef IR_INTERP_H
#define IR_INTERP_H

#include "ir/graph.h"
#include "ir/kernel.h"

/* Computes one operator (not input, const, loop). in[i]/out[i]: buffers of the values' bytes; out
 * is written whole. counters[d]: the iteration of the loop at depth d (NULL outside loops). Scratch
 * memory is taken and given back inside; nothing stays in `arena`. */
void interp_op(Arena *arena, const Op *op, const void *const *in, void *const *out,
               const int64_t *counters);
/* Runs a whole graph: inputs and outputs in the graph's order. Memory for intermediate values is
 * taken and given back inside. Returns false after a diagnostic if memory was not to be had. */
bool interp_graph(const Graph *g, const void *const *inputs, void *const *outputs);
/* Runs one kernel serially: all blocks, all threads (in lock step between barriers). buffers[i]:
 * memory of parameter buffer i. */
void interp_kernel(const Kernel *k, void *const *buffers, const int64_t *scalars);
/* The same, and watches: false, with *message (in `arena`) set, if a load or store is outside its
 * buffer, if a barrier is not reached by all threads of a block, or if two threads touch an element
 * of shared or global memory between barriers and one of them stores another value (threads are
 * also the iterations of parallel and vector loops). The buffers then hold what was computed up to
 * there. */
bool interp_kernel_checked(Arena *arena, const Kernel *k, void *const *buffers,
                           const int64_t *scalars, const char **message);

#endif
