/* Constant columns of products of bytes whose sums fit into 16 bits, or nearly do, for targets that
 * add such in pairs (Target.byte_pairs). */
#ifndef PASSES_RELIEVE_H
#define PASSES_RELIEVE_H

#include "ir/graph.h"
#include "ir/target.h"

/* Constant columns of a product, of one matrix or of several (of an LSTM's directions): elements
 * are i8, or u8 that will be such less 128; how far apart they are along the depth, from column to
 * column, and from matrix to matrix. */
typedef struct ConstantColumns {
    Value *v;
    int64_t depth, stride;
    int column;               /* coordinate of the result */
    int64_t n, column_stride; /* columns of a matrix */
    int batch;                /* the coordinate that says which matrix; -1: none does, the columns'
                                 goes through all of them */
    int64_t batches, batch_stride;
    int64_t rows; /* that meet them, at most */
} ConstantColumns;

/* Those that `load` reads, all of v once, along the depth of a product, coordinate `rank`, one of
 * the result's that `row` does not read, and perhaps one more; false if it does not. */
bool relieve_columns_of(Value *v, const Expr *row, const Expr *load, int rank,
                        const int64_t *extent, ConstantColumns *c);
/* Fours of constant columns whose sums are added in 16 bits: `together` of them so far `apart`, at
 * every place of loops with such extents and strides. */
typedef struct Fours {
    Value *v;                     /* i8 */
    int64_t first, stride, apart; /* stride: within a four */
    int together;
    int n;
    int64_t extent[64], step[64];
} Fours;

/* Do they fit: have the products with any unsigned bytes, of the first two of all and of the last
 * two, sums of 16 bits? */
bool relieve_fits(Arena *arena, const Fours *fours);
/* Does a table move bytes in pairs side by side, from within `window` bytes, and have products of
 * these with `lack`, as many elements in the same order, sums of 16 bits in pairs? Constants of u8
 * and i8. */
bool relieve_moves(Arena *arena, Value *table, Value *lack, int window);
/* Are all of the table, constant bytes, less than `window`? */
bool relieve_reaches(Arena *arena, Value *table, int window);
/* Is the product, once pass `relieve` has had a look at it, faster than one of words is, of which
 * this part (0 .. 1) is left to be multiplied? */
bool relieve_pays(Arena *arena, const Target *t, const ConstantColumns *columns, double words);

#endif
