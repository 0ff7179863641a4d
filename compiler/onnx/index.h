/* Indices that are elements of tensors, made safe to load with.
 *
 * What a model computes at run time may be any number. As ONNX has it, a negative index counts from
 * the end; one that is outside all the same must not lead outside of a tensor: what is read is
 * brought to the nearer end, what is written is left out.
 */
#ifndef COMPILER_ONNX_INDEX_H
#define COMPILER_ONNX_INDEX_H

#include "compiler/onnx/import.h"

/* False after a report if the elements are no integers. */
bool index_type_ok(Node *n, const Value *indices);
/* The element of `indices` at `at` as a coordinate in [0, extent). extent > 0. */
const Expr *index_read(Builder *b, Value *indices, const Expr *const *at, int64_t extent);
/* The same as a coordinate of a scatter's target; adds to *guard (NULL: nothing yet) that it is
 * inside. */
const Expr *index_write(Builder *b, Value *indices, const Expr *const *at, int64_t extent,
                        const Expr **guard);
/* guard && cond, where a guard may be NULL. */
const Expr *guard_and(Exprs *x, const Expr *guard, const Expr *cond);
/* `e` (i32) brought into [0, extent). */
const Expr *index_clamp(Exprs *x, const Expr *e, int64_t extent);
/* Where the k largest elements along the axis are, i32, the largest first, of equal ones the first.
 */
Value *largest_at(Node *n, Value *v, int axis, int64_t k);
/* A tensor of zeros. */
Value *zeros(Graph *g, DType dt, int rank, const int64_t *shape);

#endif
