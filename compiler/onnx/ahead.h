/* What the body of a Loop tells of all its iterations before the first one: which carried values
 * count or stay, and when a condition ends the loop that hangs on these alone. */
#ifndef COMPILER_ONNX_AHEAD_H
#define COMPILER_ONNX_AHEAD_H

#include "ir/graph.h"

/* A carried value. */
typedef struct Counted {
    bool stays;          /* it is what it was */
    bool known;          /* it is `first` (a number, or a dimension that varies) before ... */
    int64_t first, step; /* ... iteration 0, and grows by `step` */
} Counted;

typedef struct Ahead {
    Graph *body;      /* that the loop's was imported to, on trial; its iterations are ctr's */
    int n;            /* carried values ... */
    Value **begin;    /* ... of the graph around, before it; NULL: no tensor */
    Value **before;   /* ... the inputs of `body` that they are */
    Value **after;    /* ... after an iteration; NULL: not known */
    Value *condition; /* whether another one follows; NULL: not known */
    int64_t most;     /* iterations that there are at most, if that is known without it */
    /* Results */
    Counted *counted;
    int64_t trips; /* a dimension: after so many at most the condition ends the loop; -1: that is
                      not known, or not before `most` */
    bool certain;  /* and it holds in all iterations before that end */
} Ahead;

/* False if it tells nothing. */
bool look_ahead(Ahead *a);

#endif
