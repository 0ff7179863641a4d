/* The bytes of constants.
 *
 * A constant holds its elements (Value.data), or says which elements of another one it has, and in
 * what order (Value.packed): models of gigabytes are laid out anew for their kernels without a copy
 * in memory. Who wants bytes of constants that lowering made asks here.
 */
#ifndef IR_CONSTANT_H
#define IR_CONSTANT_H

#include "ir/graph.h"

#define PACKED_LOOPS 64
#define PACKED_VARS  128

/* One element for each iteration of a nest of loops, in their order. */
struct Packed {
    const Value *from; /* has data */
    /* The element of `from`, of variables of which a loop has each, and others are 0; outside of
     * `from` the element is zero. */
    const Expr *index;
    int n; /* loops, outermost first */
    const int *var;
    const int64_t *extent;
    /* From loop `even` on the index grows by `stride` with each iteration, whatever the others are.
     */
    const int64_t *stride;
    int even;
};

/* A constant of rank 1. Large ones are kept as `packed`, which is copied; small ones become data at
 * once. */
Value *constant_packed(Graph *g, DType dt, int64_t numel, const Packed *packed);
/* Elements `first` to `first` + `count` of a constant. */
void constant_read(const Value *v, int64_t first, int64_t count, void *to);
/* All of its elements at once; in `arena`, unless it holds them itself. */
const void *constant_data(Arena *arena, const Value *v);

/* Goes over the bytes of a constant, first to last, in pieces of `most` bytes, but for the last
 * one:
 *
 *     ConstantPieces c = constant_pieces(arena, v, CONSTANT_PIECE);
 *     while (constant_next(&c)) ... c.data, c.bytes ...
 */
typedef struct ConstantPieces {
    Arena *arena;
    const Value *v;
    size_t most, at; /* at: the byte behind this piece */
    void *room;      /* borrowed until the last piece has been taken */
    const void *data;
    size_t bytes;
} ConstantPieces;

/* Enough that what is read here and there in one piece is still read in long runs. */
#define CONSTANT_PIECE ((size_t)8 << 20)

ConstantPieces constant_pieces(Arena *arena, const Value *v, size_t most);
bool constant_next(ConstantPieces *c);

#endif
