/* Ensembles of trees, as read from the operators of ai.onnx.ml, and how they are run. */
#ifndef COMPILER_ONNX_TREE_H
#define COMPILER_ONNX_TREE_H

#include "compiler/onnx/import.h"

typedef enum TreeBranch {
    BRANCH_leq,
    BRANCH_lt,
    BRANCH_gte,
    BRANCH_gt,
    BRANCH_eq,
    BRANCH_neq,
    BRANCH_member, /* is it in a set? */
    BRANCH_leaf
} TreeBranch;

typedef struct TreeNode {
    int32_t feature;
    uint8_t branch;
    bool nan_is_true; /* what is no number goes where the test holds */
    bool negated;     /* it tests -x; for tree.c, which makes all tests alike */
    double value;
    int32_t on_true, on_false;  /* nodes */
    int32_t members, n_members; /* member: of Forest.members */
} TreeNode;

typedef struct TreeVote {
    int32_t leaf; /* node */
    int32_t target;
    double weight;
} TreeVote;

typedef struct Forest {
    VEC(TreeNode) nodes;
    VEC(int32_t) roots;
    VEC(TreeVote) votes;
    VEC(double) members; /* of all sets */
    int64_t targets;
    DType dt; /* f32 or f64: of thresholds and weights */
} Forest;

typedef enum TreeAggregate {
    AGGREGATE_average,
    AGGREGATE_sum,
    AGGREGATE_min,
    AGGREGATE_max
} TreeAggregate;

/* The joined votes, [rows, targets] of type f->dt, for v [rows, features] of f32 or f64; 0 for a
 * target that got none. Changes f. NULL after a report. */
Value *tree_scores(Node *n, Forest *f, Value *v, TreeAggregate aggregate);

#endif
