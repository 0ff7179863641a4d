/* The ways in which threads may share a kernel: each does a part of the iterations of its parallel
 * loop, or of one of the loops that this one joins (rows, blocks of columns), or of one inside of
 * it whose iterations store elements of their own.
 */
#ifndef CODEGEN_SHARE_WAYS_H
#define CODEGEN_SHARE_WAYS_H

#include "ir/kernel.h"

#define MOST_WAYS 5

/* Ways are numbered from 0: the whole loop, whose parts are those of the outermost loop that it
 * joins; the others stand for loops inside of that one. */
typedef struct Ways {
    const Stmt *loop; /* the parallel loop; NULL: there is none, or several */
    int n;
    int var[MOST_WAYS];        /* -1: several loops are shared, each on its own */
    int64_t extent[MOST_WAYS]; /* iterations that are shared; of way 0 all of them */
} Ways;

/* The loop of the kernel that threads may share: the only statement of the body's outermost list
 * but for allocations, or the innermost of parallel loops that have nothing but each other. It runs
 * more than once. NULL: there is none. */
const Stmt *shared_loop(const Kernel *k);

/* Those of a kernel that has one, or consists of several such loops; else there are none. */
void ways_of(const Program *p, const Kernel *k, Ways *ways);

/* The part of the iterations that falls to the thread, of two, that does more. */
double ways_part(const Ways *ways, int way);
/* The outermost way in which two threads do about as much as each other. */
int ways_even(const Ways *ways);

/* A copy of the kernel whose shared loop is that of way `way` > 0; those around it are, too. */
Kernel *share_inside(const Program *p, const Kernel *k, const Ways *ways, int way);

/* How far apart in memory, in bytes, lies what the first and the last thread touch of parameter
 * `buffer`, in the limit of many threads: all of its bytes if these are shared as they lie, a row's
 * if parts of each row are. 0: all threads touch the same; negative: it is not known. */
double ways_span(const Program *p, const Kernel *k, const Ways *ways, int way, int buffer);

/* Sets `read` for buffers that the statements load from. */
void note_loads(Arena *arena, const Kernel *k, const Stmt *s, bool *read);

#endif
