/* Operators that one formula says whole; the table is elementwise.def. */
#ifndef COMPILER_ONNX_ELEMENTWISE_H
#define COMPILER_ONNX_ELEMENTWISE_H

#include "compiler/onnx/import.h"

struct Elementwise {
    const char *name;
    int since;
    int n_in;          /* -1: one or more, folded from the left */
    const char *types; /* which element types: see elementwise.def */
    const char *attrs; /* "alpha=1.0 beta" */
    const char *formula;
};

/* The rows; the last has no name. */
extern const Elementwise elementwise_rows[];
/* Imports the node by its row (n->row). */
ImportFn import_elementwise;

#endif
