/* What the operators of control flow share: ops_if.c, repeat.c, ops_control.c. */
#ifndef COMPILER_ONNX_CONTROL_H
#define COMPILER_ONNX_CONTROL_H

#include "compiler/onnx/select.h"

/* What was reported before an attempt to import something in one of several ways. */
typedef struct Attempt {
    int n_messages, n_errors;
    bool failed;
} Attempt;

Attempt attempt_begin(Node *n);
/* Takes back what the attempt reported. What it built stays behind unused. */
void attempt_undo(Node *n, const Attempt *a);
/* True if the attempt failed, and only because shapes do not agree. */
bool attempt_misfits(Node *n, const Attempt *a);

/* `v` as a scalar. NULL stays NULL; what has not one element is reported. */
Value *as_scalar(Node *n, Value *v, const char *what);
/* `v` as a condition, a bool scalar. NULL stays NULL; what is none is reported. */
Value *as_condition(Node *n, Value *v);
/* The constant that a scalar holds; false if it is not constant. */
bool const_scalar(const Value *v, int64_t *value);
void set_output(Node *n, int i, Entity *e);

#endif
