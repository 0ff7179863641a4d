/* Tensors of strings.
 *
 * There are no strings behind the importer: a tensor of them is one of bytes, u8 with one dimension
 * more, whose rows are the strings, padded with zeros. The width of the rows belongs to the value:
 * that of its longest string for a constant, --string-bytes for an input, the sum for what is
 * joined. A string that fills its row has no zero behind it; none has a zero inside.
 *
 * An operator that is given strings has a row TEXT in ops.def. Its function asks node_text for its
 * inputs and gives its results to node_set_text. Operators that only move elements have no function
 * of their own: import_text_move runs theirs on the numbers of the elements, and gathers the rows.
 */
#ifndef COMPILER_ONNX_TEXT_H
#define COMPILER_ONNX_TEXT_H

#include "compiler/onnx/import.h"

/* Input i, its bytes; reports E2006 or E2007 and returns NULL if it is absent or no strings. */
Value *node_text(Node *n, int i);
/* Sets output i, unless it is too large: then it is reported. */
void node_set_text(Node *n, int i, Value *bytes);
/* Is attribute `name` strings: a tensor of them, a list or a single one? */
bool attr_is_text(const Node *n, const char *name);
/* These strings, as a constant. NULL if they are absent, or after a report. */
Value *attr_text(Node *n, const char *name);

/* A constant of these strings. NULL after a report: one is too long, or has a zero byte in it. */
Value *text_const(Graph *g, int rank, const int64_t *shape, const OnnxString *strings);
/* The width of the rows. */
int64_t text_width(const Value *text);
/* All strings as the rows of a table [count, width]. */
Value *text_rows(Graph *g, Value *text);
/* Byte `w` (an i32 from 0 on) of the string at `at`, as i32; 0 behind the row's end. */
const Expr *text_byte(Builder *b, Value *text, const Expr *const *at, const Expr *w);
/* Byte `w` of the output's own string, whose coordinates are the output's first ones. */
const Expr *text_own_byte(Builder *b, Value *text, const Expr *w);
/* Lengths in bytes, i32. */
Value *text_lengths(Graph *g, Value *text);
/* Pads with zeros to the same width. False if the shapes differ. */
bool text_same_width(Graph *g, int n, Value **text);
/* The rows of two tables, one behind the other. */
Value *text_join(Graph *g, Value *a, Value *b);
/* For each string the last row of `table` [count, width] that equals it, or -1; i32. */
Value *text_find(Graph *g, Value *text, Value *table);
/* Rows of a table [count, width] by their numbers, which must be inside. */
Value *text_pick(Graph *g, Value *table, Value *numbers);

#endif
