/* Chains of operators that may be computed in strips (strips.c), and what that is worth
 * (strips_gain.c). */
#ifndef PASSES_STRIPS_H
#define PASSES_STRIPS_H

#include "passes/passes.h"

#define MOST_AXES    3
#define MOST_MEMBERS 16

/* The strips of one coordinate of the chain's result. */
typedef struct Axis {
    int64_t strips, rows;
    int64_t dim; /* the number of strips, as dim.h has it */
} Axis;

/* What a strip has of one coordinate of an operator, see strips.c. */
typedef struct Span {
    int coord;
    int64_t scale, first, count;
} Span;

typedef struct Member {
    Op *op;
    Span span[MOST_AXES];
    Value *made; /* its strip, once it is built */
} Member;

typedef struct Chain {
    int n_axes, n; /* n: members, the last one of the chain first */
    Axis axis[MOST_AXES];
    Member member[MOST_MEMBERS];
    double gain; /* cycles */
} Chain;

typedef struct Strips {
    Graph *g;
    const Target *target;
    Arena *scratch;
    VEC(Op *) ops;   /* those that compute, in order; Op.index is the number here, others' is -1 */
    double *cycles;  /* of each of them */
    int *uses;       /* by value id: by operators, and as an output */
    bool *box;       /* by value id: it may become a box of another one */
    int *from_chain; /* by value id: uses by operators of the chain */
    bool spares;     /* count what strips spare threads, too */
} Strips;

/* How many strips the chain has, in the largest run. */
double strips_of(const Chain *c);
/* The number of the member that computes with `op`; -1: none does. */
int chain_member(const Chain *c, const Op *op);
/* The extents of the coordinates of a strip of the member; returns how many there are. */
int strip_extents(const Chain *c, const Member *m, int64_t *extent);
/* Does the operator move whole tensors into boxes of its result? Then they are computed there
 * (place.c), unless the result of a chain is one of them. What is given to the graph nobody could
 * compute there, so that is copied, and counts only where it is turned, which a map does (place.c).
 */
bool moves_boxes(const Strips *s, const Op *op);
/* Cycles that the operator takes for all of its result. */
double op_cycles(const Strips *s, const Op *op);
/* How many cycles the chain gains. */
double chain_gain(Strips *s, const Chain *c);

#endif
