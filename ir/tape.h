/* Tapes: scalar expressions compiled for the interpreter.
 *
 * A tape is the list of vector instructions that computes one or more expressions for up to `width`
 * lanes at once. The lanes are the elements of a chunk of an operator's iteration space, or the
 * threads of a block of a kernel. Every lane value is a Scalar in canonical form: f32 already
 * rounded, integers wrapped and extended to 64 bits, bool 0 or 1.
 *
 * No instruction but `load` can fail, so everything else is computed for all lanes; only loads
 * whose indices are not proven to be inside their tensor carry a mask: the lanes in which the
 * guards around them (select, and, or) let them be evaluated. A masked-off lane reads nothing and
 * gives 0. An index outside its tensor in an unmasked lane is recorded as a fault.
 *
 * Instructions have a level: 0 is run once, 1 when the lanes move, 2 when the serial coordinates
 * move (in a reduction the lanes are output elements and the reduction is serial, or the other way
 * round).
 */
#ifndef IR_TAPE_H
#define IR_TAPE_H

#include "ir/expr.h"

#define TAPE_LEVELS 3

/* What a load reads. `data` may be changed between runs. */
typedef struct TapeSource {
    const void *data;
    int64_t lane_step; /* elements from one lane's copy to the next's; 0: one for all */
    DType dt;
    int rank;
    const int64_t *shape;
} TapeSource;

typedef struct TapeFault {
    bool set;
    int source, dim;
    int64_t index, extent;
} TapeFault;

typedef struct TapeIndex {
    const Scalar *lanes;
    int64_t stride, extent;
    int dim;
} TapeIndex;

/* A load: its element offset is (base[lane] or 0) + delta + sum of rest[k] * stride. */
typedef struct TapeLoad {
    int source;
    const Scalar *mask; /* NULL: all lanes */
    bool clamp;         /* an index outside gives 0 instead of a fault */
    int64_t constant;   /* affine part: constant + sum coef[v] * var v */
    int64_t *coef;      /* one per var; NULL if vars are given */
    int64_t *base;      /* the affine part in the lane coordinates, per lane */
    int64_t delta;      /* ... and in the serial ones */
    int n_rest, n_check;
    TapeIndex *rest;  /* indices that are not affine */
    TapeIndex *check; /* indices not proven to be inside */
    int64_t *offset;  /* per lane: where it read last (valid under mask) */
} TapeLoad;

typedef struct TapeSlot {
    Scalar *lanes;
    int level;
} TapeSlot;

typedef struct TapeIns {
    uint8_t op; /* ExprOp; EX_const: d = a & ~b, to make masks */
    uint8_t dt, from;
    bool exact; /* do not round to f32 */
    Scalar *d;
    const Scalar *a, *b, *c;
    TapeLoad *load;
} TapeIns;

typedef VEC(TapeIns) TapeCode;

typedef struct TapeMask TapeMask;

/* Filled by the user up to `acc`; the rest belongs to the tape. */
typedef struct Tape {
    Arena *arena;
    int width; /* most lanes of a run */
    int n_vars;
    const int64_t *extent; /* 0 <= var i < extent[i]; -1: unknown */
    int lane_lo, lane_hi; /* the vars the lanes run over, the last fastest; the others are serial */
    int alias, alias_of;  /* var `alias` is the same as `alias_of`; none if equal */
    Scalar **given; /* not NULL: the user keeps the lanes of every var here (all at level 2) */
    const Scalar *active; /* not NULL: base mask, kept by the user */
    TapeSource *sources;
    Scalar *acc; /* lanes of EX_acc */

    TapeFault fault;
    TapeCode code[TAPE_LEVELS];
    VEC(TapeLoad *) loads;
    VEC(TapeSlot) counters; /* `level` is the loop's depth */
    Scalar **vars;          /* lanes of the vars in use; NULL where unused */
    struct TapeEntry **table;
    uint32_t n_table, cap_table;
    TapeMask *root;
} Tape;

/* Lanes are allotted in whole blocks of this many: cheap instructions run over the last block
 * whole. */
#define TAPE_BLOCK 8

/* `width` lanes, zeroed. */
Scalar *tape_lanes_new(Arena *arena, int width);
void tape_init(Tape *tape);
/* Adds an expression; its value is found in the slot after each run. A guard (may be NULL) holds
 * where the value is wanted. Not to be called after tape_start. */
TapeSlot tape_add(Tape *tape, const Expr *e, const Expr *guard);
/* Lets the sum, product ... that gives this expression keep double precision: it is a term of a
 * sum. */
void tape_keep_exact(Tape *tape, const Expr *e);

/* e == constant + sum coef[i] * var i over i < n; false if it is not of that form. */
bool tape_affine(const Expr *e, int n, int64_t *coef, int64_t *constant);

/* Begins a run: loop counters, level 0. `counters` may be NULL if no ctr occurs. */
void tape_start(Tape *tape, const int64_t *counters);
/* Moves the lanes to the `n` flat positions from `first` in the lane coordinates; level 1. */
void tape_move(Tape *tape, int64_t first, int n);
/* Sets the serial coordinates (coords[i] is var i's; lane coordinates are not read). */
void tape_serial(Tape *tape, const int64_t *coords);
/* Level 2. */
void tape_step(Tape *tape, int n);

/* Stores n lanes to elements first.. of a buffer. */
void tape_save(DType dt, void *data, int64_t first, const Scalar *lanes, int n);
/* Runs the code of one level (tape_run.c). */
void tape_run(Tape *tape, int level, int n);

#endif
