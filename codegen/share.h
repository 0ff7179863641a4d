/* How the steps of a program are shared among threads.
 *
 * All threads walk through the same list of steps. Of a kernel whose body is one parallel loop each
 * does a part of the iterations (share_ways.h); one that is several such loops is taken apart. Of
 * loops of steps whose iterations are apart (Step.apart) each does some iterations. Any other
 * kernel is done by the first thread alone. Threads wait for each other only where a step touches
 * memory that a step since the last such place has touched, one of the two writing. Steps of the
 * first thread alone need not wait for one another, nor those that write elements of their own:
 * pieces of a kernel, and makers of tensors that lie inside of the same one.
 *
 * Long stretches without such places are done in more pieces than there are threads
 * (mlcc_team_take): where a processor is slower, or is wanted by others, its thread does fewer.
 */
#ifndef CODEGEN_SHARE_H
#define CODEGEN_SHARE_H

#include "codegen/codegen.h"
#include "codegen/share_ways.h"

/* What the threads' parts of such a loop are multiples of: where iterations may become lanes of
 * vectors, those left over behind the last vectors are the same ones for any number of threads. A
 * compiler may round them differently: it joins products and sums in other places, or swaps factors
 * of which both are NaN. */
int shared_unit(const Stmt *loop);

/* The program as threads share it. Kernels that are not worth it (share_gain.h) have no parallel
 * loop any more, nor have those in loops whose iterations threads do each on their own (Step.apart,
 * which then says so). Those that are several parallel loops, one after the other, are in pieces:
 * each loop is a kernel of its own, and each launch as many. */
const Program *share_loops(const Program *p, const EmitOptions *o);

/* The most that a thread needs for iterations of its own. */
int64_t apart_bytes(const Program *p);

/* Of each step: */
typedef struct StepShare {
    bool barrier; /* all threads wait for each other before it */
    bool alone;   /* the first thread does it alone (a loop: all of its steps) */
    int pieces;   /* a stretch of steps begins that is worth cutting into so many, which threads
                     take from one another when they have done their own; 0: none does */
    int last;     /* ... and this is its last step */
} StepShare;
StepShare *share_steps(const Program *p, const EmitOptions *o);

#endif
