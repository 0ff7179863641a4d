/* Products with weights of 2, 4 or 8 bits that share bytes, in blocks of rows of the depth that have
 * a scale and a zero point each:
 *
 *   sum v (w - zero) scale  =  sum over blocks of (sum (v w) - rows mean zero) scale
 *
 * where w is the weight as its bits are and `mean` that of v over a block. All weights at one place
 * of their bytes lie side by side, so v is brought into the order of places. A mask is all that a
 * weight needs then, for v is divided by what its place is worth; of v rounded to bytes, which can
 * be multiplied four at once, weights are shifted down. Where v is infinite, the sum is no number.
 */
#ifndef IR_FEW_BITS_H
#define IR_FEW_BITS_H

#include "ir/graph.h"

typedef struct FewBits {
    int64_t blocks, rows; /* rows: of a block, a multiple of the weights in a byte */
    int bits;
    bool beside; /* rows that share a byte lie side by side, else as far apart as a block has bytes */
    DType work;  /* f32 or f64, of all that is computed */

    /* What few_bits_operand makes: v by places, [.., places, bytes], of `work` or of i8; */
    Value *v;
    Value *scale; /* of i8, what v was divided by, [.., blocks]; else NULL */
    Value *mean;  /* of v, or of what its bytes stand for, [.., blocks] */
} FewBits;

static inline int few_bits_each(const FewBits *k) {
    return 8 / k->bits;
}

static inline int64_t few_bits_bytes(const FewBits *k) {
    return k->rows / few_bits_each(k);
}

/* 2^(bits * place): what the lowest bit at a place of a byte is worth, i32. */
const Expr *few_bits_worth(Exprs *x, const Expr *place, int bits);
/* The weight at `place` of the byte, an element of u8, times what the place is worth; i32. */
const Expr *few_bits_masked(Exprs *x, const Expr *byte, const Expr *place, int bits);

/* v[.., row] / worth as [.., places, bytes]; `v` has blocks * rows rows. */
Value *few_bits_places(Graph *g, const FewBits *k, Value *v);
/* All that is multiplied, of v [.., blocks * rows]; `bytes`: v may be rounded to such. */
void few_bits_operand(Graph *g, FewBits *k, Value *v, bool bytes);
/* A term of the sum over blocks, places and the bytes of a block, of `byte` (counted in all blocks),
 * `weights` its element of u8, zero and scale of `work`. at: the coordinates of v before its rows,
 * with room for two more. */
const Expr *few_bits_term(Builder *b, const FewBits *k, const Expr **at, const Expr *block,
                          const Expr *place, const Expr *byte, const Expr *weights,
                          const Expr *zero, const Expr *scale);

#endif
