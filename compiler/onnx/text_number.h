/* Casts between numbers and strings; see ops_text_number.c. */
#ifndef COMPILER_ONNX_TEXT_NUMBER_H
#define COMPILER_ONNX_TEXT_NUMBER_H

#include "compiler/onnx/import.h"

/* Sets output 0 to the numbers of `v` as strings. */
void cast_to_text(Node *n, Value *v);
/* Floats (f32) as strings with six decimals, as printf's %f writes them. */
Value *text_fixed(Graph *g, Value *v);
/* Sets output 0 to the numbers that strings are, of type `dt`. */
void cast_from_text(Node *n, Value *text, DType dt);

#endif
