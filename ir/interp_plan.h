/* Operators made ready to be interpreted, so that one in a loop is compiled once. */
#ifndef IR_INTERP_PLAN_H
#define IR_INTERP_PLAN_H

#include "ir/interp.h"
#include "ir/tape.h"

#define MAX_GUARDS 12

/* reduce: a sum of products of two loads with affine indices inside their tensors (interp_dot.c),
 * some of them left out by guards. Dimensions are the output's coordinates, then the reduction's.
 */
typedef struct DotPlan {
    bool whole; /* the sum is an i32 */
    int rank, n_red;
    int64_t extent[MAX_RANK];
    int source[2]; /* input; -1: the constant `factor` stands for the second operand */
    DType dt[2];
    int64_t count[2];                       /* elements of the whole tensor */
    int64_t offset[2], stride[2][MAX_RANK]; /* in elements */
    int n_guard; /* a term counts where slack[g] + sum slope[g][k] * coordinate k >= 0 for all g */
    int64_t slack[MAX_GUARDS], slope[MAX_GUARDS][MAX_RANK];
    double factor;
    const void *data[2]; /* f32 or f64, set by dot_start */
} DotPlan;

typedef struct OpPlan {
    const Op *op;
    Arena *arena;
    Tape body, post;
    TapeSlot body_slot, post_slot, guard_slot;
    TapeSlot *target_slot;
    TapeSource *sources;
    int width;
    int64_t n_out, n_red; /* elements of the output (scatter: updates), of the reduction */
    bool lanes_reduce;    /* reduce: lanes run over the reduction, outputs are serial */
    DotPlan *dot;         /* not NULL: takes the place of `body` */
    Scalar *acc;
} OpPlan;

/* Compiles an operator (not input, const, loop). Lives in `arena`; keeps `op`. */
OpPlan *op_plan(Arena *arena, const Op *op);
/* Runs it as interp_op does. Exits on a load outside its tensor. */
void op_plan_run(OpPlan *plan, const void *const *in, void *const *out, const int64_t *counters);

/* Recognises the form; NULL if `op` is not of it. */
DotPlan *dot_plan(Arena *arena, const Op *op);
/* Takes the inputs for the runs that follow; widened copies of narrow elements come from
 * `scratch`. */
void dot_start(Arena *scratch, DotPlan *dot, const void *const *in);
/* Sums for outputs first..first+n (flat positions) to acc. */
void dot_run(const DotPlan *dot, int64_t first, int n, Scalar *acc);

#endif
