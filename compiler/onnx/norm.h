/* Normalised tensors, for files of com.microsoft's operators. Defined in ops_microsoft.c. */
#ifndef COMPILER_ONNX_NORM_H
#define COMPILER_ONNX_NORM_H

#include "compiler/onnx/import.h"

typedef struct Norm {
    Value *mean, *inverse; /* with the normalised axes as 1, in the working type */
    Value *even;           /* normalised */
} Norm;

/* Over the axes from `axis` on. simple: only divided by the root of the mean square. */
Norm normalize(Graph *g, Value *v, int axis, double epsilon, bool simple);
/* even * scale + shift (which may be NULL), in `dt`. */
Value *norm_scaled(Graph *g, Value *even, Value *scale, Value *shift, DType dt);
/* False after a report if `row` (NULL is right) is no vector as long as v's last dimension. */
bool is_row(Node *n, const Value *row, const Value *v);

#endif
