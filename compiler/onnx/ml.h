/* What the classifiers and regressors of ai.onnx.ml share. */
#ifndef COMPILER_ONNX_ML_H
#define COMPILER_ONNX_ML_H

#include "compiler/onnx/import.h"

typedef enum MlTransform {
    ML_none,
    ML_softmax,
    ML_logistic,
    ML_softmax_zero,
    ML_probit
} MlTransform;

/* Scores of two classes from one: the other class has 1 - s, or -s. */
typedef enum MlSecond { ML_complement, ML_negated } MlSecond;

/* Attribute post_transform; false after a report. */
bool ml_read_transform(Node *n, MlTransform *transform);
/* The transform of scores [rows, classes] in their own type; a single score is changed by probit
 * only. NULL after a report. */
Value *ml_transform(Node *n, Value *scores, MlTransform transform);
/* Scores [rows, 2] from one score per row [rows, 1]. Of the transforms only logistic (of -s and s)
 * and probit (of 1 - s and s) change them. */
Value *ml_two_scores(Node *n, Value *score, MlSecond second, MlTransform transform);
/* Position of the largest score of each row, the first of several; i32 [rows]. */
Value *ml_best(Graph *g, Value *scores);
/* Names of classes, numbers or strings. */
typedef struct MlLabels {
    int count;
    const int64_t *ints; /* NULL: strings */
    Value *strings;      /* [count, width] */
} MlLabels;

/* Sets output 0 to the label at each position (clamped). */
void ml_set_labels(Node *n, Value *position, const MlLabels *labels);
/* The input as a matrix [rows, features] of floats: f64 as it is, all else as f32. A vector is one
 * row. NULL after a report. */
Value *ml_rows(Node *n);
/* The same, of a known number of features. */
Value *ml_features(Node *n);
/* Class labels in one of these attributes. False after a report. */
bool ml_read_labels(Node *n, const char *ints, const char *strings, MlLabels *labels);
/* A constant f32 tensor of an attribute's floats. */
Value *ml_floats(Graph *g, const float *data, int rank, const int64_t *shape);

#endif
