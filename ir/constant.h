/* The bytes of constants.
 *
 * A constant holds its elements (Value.data), or says how they are made of other constants: by an
 * operator that computes them (Value.made), or by loops that say which elements of another one it
 * has, and in what order (Value.packed). So weights of gigabytes are converted, and laid out anew
 * for their kernels, without copies of all of them in memory. Only large constants of floats, and
 * those that lowering makes, are like this; who wants bytes of such asks here.
 */
#ifndef IR_CONSTANT_H
#define IR_CONSTANT_H

#include "ir/graph.h"

#define PACKED_LOOPS 64
#define PACKED_VARS  128

/* One element for each iteration of a nest of loops, in their order. */
struct Packed {
    const Value *from;
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
/* Makes a constant of the result of a map of constants, which is not in the graph: `out` is the
 * result of an operator without inputs, of kind const. */
void constant_made(Graph *g, Value *out, const Op *map);
/* Gives `out`, such a result too, the elements of `v`; it has as many. */
void constant_alias(Value *out, const Value *v);
/* What `body` makes of each element of `v`, which is constant_element in it. The new constant's
 * operator is not yet linked. */
Value *constant_mapped(Graph *g, Value *v, DType dt, const Expr *body);
const Expr *constant_element(Graph *g, const Value *v);
/* The elements of `v` as others of type `dt`; not yet linked either. */
Value *constant_cast(Graph *g, Value *v, DType dt);
/* A constant of the same elements. */
Value *constant_like(Graph *g, const Value *v, int rank, const int64_t *shape);
/* Do both have the same elements, as far as is seen without computing them? */
bool constant_same(const Value *a, const Value *b);
/* All elements. Memory needed meanwhile is borrowed. */
void constant_read(Arena *arena, const Value *v, void *to);
/* All of them at once; in `arena`, unless the constant holds them itself. */
const void *constant_data(Arena *arena, const Value *v);

/* The same; it holds them from then on. For those who need one again and again. */
const void *constant_settle(Arena *arena, Value *v);

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
    const Value *source;         /* what the bytes are taken from, packed or not ... */
    const unsigned char *from;   /* ... and its elements */
    void *piece;                 /* where they are laid out; NULL: they are there already */
    size_t computed, piece_room; /* bytes borrowed for both until the last piece has been taken */
    const void *data;
    size_t bytes;
} ConstantPieces;

/* Enough that what is read here and there in one piece is still read in long runs. */
#define CONSTANT_PIECE ((size_t)8 << 20)

ConstantPieces constant_pieces(Arena *arena, const Value *v, size_t most);
bool constant_next(ConstantPieces *c);

#endif
