/* Quantised tensors: integers that stand for (integer - zero point) * scale. Shared by ops_quant.c
 * (the operators of ONNX) and the files of com.microsoft's. */
#ifndef COMPILER_ONNX_QUANT_H
#define COMPILER_ONNX_QUANT_H

#include "compiler/onnx/import.h"

/* A node's inputs that say how a tensor is quantised. */
typedef struct Quant {
    Value *scale;
    Value *zero; /* NULL: 0 */
    DType dt;    /* of the quantised tensor */
} Quant;

/* Scale in input i and zero point in input i + 1, which may be absent; `dt` where it is. Both must
 * be one number for the whole tensor. False after a report. */
bool quant_read(Node *n, int i, DType dt, Quant *q);
/* (v - zero) * scale in f32. */
Value *quant_decode(Node *n, Value *v, const Quant *q);
/* The nearest integers to v / scale, plus zero, brought into the type's range. `v` is f32. */
Value *quant_encode(Node *n, Value *v, const Quant *q);
/* The same for v * factor, where v is an i32 sum and `factor` an f32 tensor that broadcasts to it;
 * q->scale is not read. */
Value *quant_scaled(Node *n, Value *v, Value *factor, const Quant *q);
/* What `fn` makes as output 0 of other inputs, with this node's attributes. NULL after a report. */
Value *import_as(Node *n, ImportFn *fn, int version, int n_in, Value *const *in);
/* v - zero in i32, in one map: pass `integer` reads the bytes off it. Zero broadcasts to v; NULL:
 * 0. */
Value *quant_centre(Graph *g, Value *v, Value *zero);
/* v in u8, with a scale (f32) and a zero point (u8) for the range of all elements along the
 * dimensions in the mask `dims`: these have extent 1 in both, which are of rank 0 if the mask has
 * all. See DynamicQuantizeLinear. */
Value *quant_dynamic(Graph *g, Value *v, uint32_t dims, Value **scale, Value **zero);
/* The matrix product, exact in i32, of two quantised tensors; zero points may be NULL. */
Value *quant_matmul(Node *n, Value *a, Value *a_zero, Value *b, Value *b_zero);
/* Scales of the rows of a matrix product's first operand as a tensor that broadcasts to the
 * product. */
Value *quant_row_scale(Graph *g, Value *scale);
/* Element `at` of those of 2, 4 or 8 bits that are packed into bytes along the last dimension of v,
 * low bits first, as u32. The last place of `index` is set. */
const Expr *packed_load(Builder *b, Value *v, const Expr **index, const Expr *at, int bits);
/* (weight - zero) * scale, times what `place` is worth, of the weight at that place of the byte. */
const Expr *packed_weight(Exprs *x, const Expr *byte, const Expr *place, int bits, const Expr *zero,
                          const Expr *scale);

#endif
