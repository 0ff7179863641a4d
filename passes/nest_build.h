/* A kernel as nest_build makes it, shared by its files: nest_build.c, nest_stage.c for factors of
 * products that go through shared memory, and nest_finish.c for what follows the loops of a
 * reduction. */
#ifndef PASSES_NEST_BUILD_H
#define PASSES_NEST_BUILD_H

#include "passes/nest.h"

#define MAX_VARS (NEST_MAX_LOOPS * 2) /* loops and the few helpers that staging adds */

typedef struct Build {
    Nest *n;
    Program *p;
    Exprs *x;
    Kernel *k;
    Value **args;
    const Expr *loop_var[NEST_MAX_LOOPS]; /* loop number -> kernel variable */
    const Expr *coord[MAX_RANK];          /* coordinate -> expression of kernel variables */
    const Expr *guard[2];
    const Expr *lane_limit; /* how far the coordinate of the lanes goes in a run, which the guard no
                               longer says; NULL: the guard does, or all of its extent */
    const Expr *tail_guard; /* that of a reduction over loop numbers, without it */
    int64_t extent[MAX_VARS]; /* of kernel variables, for ex_simplify */
    const Expr
        *inside[NEST_MAX_LOOPS]; /* by loop number: what is in the loop runs where this holds */
    const Expr *holds[MAX_RANK]; /* by coordinate: a condition that they imply; or NULL */
    const Expr *until[NEST_MAX_LOOPS]; /* by loop number: its extent in a run; NULL: it is known */
    const Expr *count[NEST_MAX_LOOPS]; /* ... how many of its iterations do something; NULL: all */
    const Expr *acc;                   /* what `acc` in post stands for */
    int tile[NEST_MAX_LOOPS], n_tile;  /* accumulator tile: loop numbers */
    int acc_buffer;
    int acc_of_rest; /* of the tile that does what is left (Nest.rest_loop) */
    const Expr *single;    /* holds in runs that have few rows, which another nest does; or NULL */
    int single_outer;      /* the loop over tiles of rows, that does nothing then */
    bool stands_back;      /* it does nothing then, indeed */
    const Expr *factor[2]; /* staged factors of the product, as shared loads; or NULL */
} Build;

/* A factor of the product on its way into shared memory. */
typedef struct Staged {
    const Expr *value, *place; /* of an element that a thread moves: of the tensor, in the tile */
    const Expr *inside;        /* is there one? NULL: in all rounds */
    int round, one;            /* variables; one: of elements that are loaded at once */
    int64_t rounds, few;
    int tile;  /* the buffer */
    int ahead; /* the buffer, in registers, of what is loaded before the tile is free; -1: none */
} Staged;

const Expr *nest_simplify(Build *b, const Expr *e);
int nest_add_var(Build *b, const char *name, int64_t extent);
Stmt *nest_new_for(Build *b, int var, int64_t extent, Role role);
Stmt *nest_new_store(Build *b, int buffer, const Expr *index, const Expr *value);
/* The body itself if there is no condition. */
Stmt *nest_new_if(Build *b, const Expr *cond, Stmt *body);
Stmt *nest_new_alloc(Build *b, int buffer);
/* The variables of loops, the last of the list innermost, for `number`, that of an iteration of all
 * of them as one. */
void nest_number_to_vars(Build *b, int count, const int *loops, const Expr *number,
                         const Expr **to);
/* Wraps `body` in the loops, the last of the list innermost. Several that are bound to one role of
 * threads become one, where the outermost of them is. */
Stmt *nest_wrap(Build *b, int count, const int *loops, Stmt *body);
/* Does a matrix unit do the product? */
bool nest_has_unit(const Nest *n);

/* Coordinates become loop variables, loads become flat, acc becomes the accumulator. */
const Expr *nest_rewrite(Build *b, const Expr *e);
/* An expression over loop numbers, in terms of the loops' variables. */
const Expr *nest_in_loops(Build *b, const Expr *e);
/* The element of the accumulator tile, of the first `count` loops of it. */
const Expr *nest_tile_index(Build *b, int count);
/* How many iterations a loop has in a run. */
const Expr *nest_extent_of(Build *b, int loop);
/* Stores the output element at the op's output coordinates. */
Stmt *nest_store_output(Build *b, const Expr *value);

/* Has the factors of the product in `body` that are to be staged, at position `at` of the order,
 * lie in shared memory: they are the first *count of `staged`. Returns the product of what is read
 * there, zero where the work is guarded. */
const Expr *nest_stage_factors(Build *b, const Expr *body, int at, Staged staged[2], int *count);
/* The loops of a product whose factors go through shared memory, from the one on at whose top they
 * do; `update`: the rest of it. What its next iteration needs is loaded while one is at work, into
 * registers, if no other loop is around it. */
Stmt *nest_staged_loops(Build *b, int n_staged, Staged *staged, int count, const int *serial,
                        Stmt *update);

/* Combines the threads' partial results, kept in acc, where the loop `l` is bound to them. All of
 * them know the outcome then, thread 0 stores it. */
Stmt *nest_combine_threads(Build *b, const NestLoop *l);
/* Combines the lanes of every row of the tile, halving them again and again, and stores the
 * outcomes. `at`: an element of the tile, of so many. */
Stmt *nest_combine_lanes(Build *b, const Expr *at, int64_t tile_size);
/* The loops over the tile around `store`, that of an output: `post` of a sum. */
Stmt *nest_finish_tile(Build *b, Stmt *store, const Expr *post);
/* Stores the sums of a tile to the accumulators, in straight lines; NULL: the nest does not apply
 * matrices of numbers to vectors (nest_read_matrices). */
Stmt *nest_apply_matrices(Build *b);
/* nest_finish_tile for these, some of whose vectors may lie beyond the edge. */
Stmt *nest_finish_lines(Build *b, Stmt *store, const Expr *post);

#endif
