/* What a loop carries from one iteration to the next: tensors, of which an extent may change with
 * every iteration. Such a tensor travels with room for its largest extents, and its extents beside
 * it as scalars. */
#ifndef COMPILER_ONNX_CARRY_H
#define COMPILER_ONNX_CARRY_H

#include "compiler/onnx/control.h"

typedef struct Carry {
    int rank;
    int64_t first[MAX_RANK]; /* the extents before the loop */
    int64_t room[MAX_RANK];  /* extents of the tensor that travels: the largest */
    int64_t low[MAX_RANK];   /* the least extents, where they change */
    bool changes[MAX_RANK];
    int enlarged[MAX_RANK]; /* how often the room was made larger */
    /* by how much an iteration changes the extent, at least and at most */
    int64_t least_step[MAX_RANK], most_step[MAX_RANK];
} Carry;

/* v with other extents. What lies behind those that it has means nothing. */
Value *in_room(Graph *g, Value *v, const int64_t *dims);

Carry carry_of(Graph *g, const Value *v);
/* Does any of the extents change? */
bool carry_changes(const Carry *c);
/* Adds to `parts` the values that travel for v: one, or more where its extents change. */
void carry_pack(const Carry *c, Graph *g, Value *v, ValueVec *parts);
/* The tensor of which parts[*at] ... travel; *at goes behind them. Its extents that change are
 * symbols; with `trips` != -1 those after so many iterations, where each changes them alike. NULL
 * if there are too many symbols. */
Value *carry_unpack(const Carry *c, Graph *g, Value *const *parts, int *at, int64_t trips);
/* Notes what one of at most `trips` iterations made of `before`, which carry_unpack gave. False if
 * that is of another type or rank. Sets *again if the iteration is to be imported anew, because c
 * says now that more changes, or that there is more room. */
bool carry_learn(Carry *c, Graph *g, const Value *before, const Value *after, int64_t trips,
                 bool *again);

#endif
