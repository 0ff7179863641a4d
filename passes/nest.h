/* A loop nest under construction: one operator's coordinates, the schedule steps applied to them,
 * and the kernel that comes of it.
 *
 * A nest begins with one loop per coordinate of the operator. Steps transform the loops;
 * coordinates stay expressions of the loops that remain, so bodies never need to be rewritten by
 * hand:
 *
 *   fuse A B      two loops become one; A = it / extent(B), B = it % extent(B)
 *   split A n     A = Ao * n + Ai; where n does not divide the extent the work is guarded
 *   slide A n     the same, but the last tile is moved back to end at the edge: it computes some
 *                 elements twice and needs no guard (spatial loops of reductions only)
 *   order A B ..  the loops from the outermost to the innermost
 *   bind A role   parallel, vector, unroll, tile, short, moved, repeat, block.x ..., thread.x ...
 *   stage k A     operand k of the product in the body goes through shared memory, loaded by all
 *                 threads of the block together at the top of loop A
 *   partial A     the loops inside of reduction loop A sum up the factors that change with them, in
 *                 the type of their product; what the body does to that is done once in an
 *                 iteration of A
 *   matrices      factors without loads are small matrices of numbers, of reduction loops and loops
 *                 of the tile: the sums with one are taken before those with the other, in straight
 *                 lines
 *   pack          constant operands are stored in the order in which the nest reads them
 *   stream A      ... but for loop A: what its iterations read lies as far apart as if it were the
 *                 outermost one, of a reduction loop the outermost of these, so that caches fetch
 *                 several streams ahead at once
 *   later A n     the sums of a tile are finished n of its rows, iterations of the unrolled loop A
 *                 around its vectors, at a time while those of the next tile are added up
 *   single A n    runs that go no further than n along a coordinate with tile A have tiles of one
 *                 row of it, with others along "rows B", wider ones along "columns C w", or n of
 *                 loop D side by side as streams, "streams D n"
 *
 * Every step is written down as text, which nest_replay reads back.
 *
 * Spatial loops inside the first reduction loop form the accumulator tile, kept in registers. A
 * reduction loop bound to thread.x is combined over the threads through shared memory.
 */
#ifndef PASSES_NEST_H
#define PASSES_NEST_H

#include "ir/kernel.h"
#include "ir/target.h"

#define NEST_MAX_LOOPS 64

typedef struct NestLoop {
    const char *name;
    int64_t extent;
    int64_t least; /* that is done in any run */
    bool reduce;
    bool retired; /* replaced by fuse or split */
    Role role;
    int var; /* of the kernel, once built */
} NestLoop;

/* What runs do in which a coordinate that has a limit goes no further than `most`: tiles of one row
 * of it in place of those of an unrolled loop. */
typedef struct Singles {
    int loop; /* that one; -1: all runs do the same */
    int64_t most;
    int rows;      /* the loop whose iterations are the rows of a tile then; -1: it has one */
    int columns;   /* the loop over a tile's columns, if there are more of them then; -1: as many */
    int64_t width; /* so many */
    int streams; /* a loop over tiles of columns, so many parts of which go by side by side then; */
    int64_t parts; /* -1: none */
} Singles;

typedef struct Nest {
    Program *p;
    Exprs *x;
    const Op *op, *given; /* without conditions that loops imply, and as nest_begin got it */
    const Target *target;
    int n_coords;
    const Expr *coord[MAX_RANK]; /* each coordinate of the operator, over loop numbers */
    NestLoop loop[NEST_MAX_LOOPS];
    int n_loops;
    int order[NEST_MAX_LOOPS]; /* loop numbers */
    int n_order;
    const Expr *guard[2]; /* [0] spatial, [1] reduction: conditions over loop numbers; or NULL */
    bool cut;             /* some of them are of splits that leave a rest */
    const Expr *reach, *given_reach; /* over loop numbers, and as nest_reach got it: without it
                                        there is nothing to combine; or NULL */
    const Expr
        *limit[MAX_RANK]; /* where a dimension of the result varies: how far the coordinate goes in
                             a run; NULL: as far as its extent. Beyond may be computed or not */
    const Value *flat; /* whose elements the map's are, at coordinates `lies` of it, expressions of
                          the operator's; NULL: of the result at the operator's own */
    const Expr *lies[MAX_RANK];
    int stage_loop[2];           /* per factor of the product: loop number, -1: not staged */
    bool pack;
    bool matrices; /* see nest_read_matrices */
    int partial_loop;  /* reduction loop whose iterations have sums of their own; -1: none */
    int stream_loop;   /* loop whose iterations read streams of constants; -1: none */
    int later_loop;    /* unrolled loop, `later` rows of which are finished at a time while the sums
                          of the next tile are added up; -1: none */
    int64_t later;
    Singles singles;
    int rest_loop; /* unrolled loop over rows that vary in number: where no more than `rest` of a
                      run's are left for a tile, one of so many does them; -1: none */
    int64_t rest;
    int lane_loop;     /* reduction loop whose lanes are reduced apart (`dot`); -1: none */
    int lane_outer;    /* ... the loop around its vectors */
    int64_t lane_tail; /* ... and what is left over behind the last of them, unless that overlaps */
    int share;         /* the outermost loops that threads share as one */
    int variant;       /* see schedule_choose */
    bool apart;        /* a thread runs all of it, others run it at the same time (Step.apart) */
    Text steps;
} Nest;

/* A nest of the op's coordinates in order, all serial. Spatial are those of the output (map,
 * reduce) or of the updates (scatter). */
void nest_begin(Nest *n, Program *p, const Op *op, const Target *t);
/* Coordinate `axis` of the result goes no further than `extent`, an expression of loads of op's
 * inputs that is `least` or more. */
void nest_limit(Nest *n, int axis, const Expr *extent, int64_t least);
/* Terms of the reduction are its identity where this does not hold (reach.h). */
void nest_reach(Nest *n, const Expr *condition);
/* Elements of the result are those of `flat` at these coordinates of it, expressions of the map's
 * coordinates and loads of its inputs; none is stored beyond its limits. */
void nest_lay_dense(Nest *n, const Value *flat, const Expr *const *lies);
/* Loop by name; -1 if there is none. */
int nest_find(const Nest *n, const char *name);
int nest_fuse(Nest *n, int a, int b); /* returns the new loop */
void nest_split(Nest *n, int a, int64_t factor, int *outer, int *inner);
void nest_slide(Nest *n, int a, int64_t factor, int *outer, int *inner);
void nest_order(Nest *n, int count,
                const int *loops); /* the innermost loops; others stay outside */
void nest_bind(Nest *n, int a, Role role);
void nest_stage(Nest *n, int factor, int at);
void nest_pack(Nest *n);
void nest_stream(Nest *n, int a);
void nest_partial(Nest *n, int a);
void nest_matrices(Nest *n);
void nest_later(Nest *n, int a, int64_t rows);
void nest_single(Nest *n, Singles singles);
void nest_rest(Nest *n, int a, int64_t rows);
/* Is each iteration of the loop the next row of a coordinate that has a limit? */
bool nest_can_rest(const Nest *n, int a);
/* Takes the step `single` back. */
void nest_drop_singles(Nest *n);
/* The first coordinate that has a limit and goes along loop `a`; -1: there is none. */
int nest_limited_coordinate(const Nest *n, int a);
/* The nest of the runs that n->singles is for; false after a diagnostic (E5002). */
bool nest_of_singles(const Nest *n, Nest *one);
/* Is this input a constant that `pack` could lay out? Not if a run decides where it is read. */
bool nest_can_pack(const Nest *n, int64_t source, const Expr *index);
/* Reduction loop `a` becomes vectors of so many lanes, with an accumulator each, that are combined
 * in the end. What is left over is added then, but the last vector of a maximum or minimum begins
 * before the one before it ends, unless a run says where that is. */
void nest_dot(Nest *n, int a, int64_t lanes, int *outer, int *inner);
/* Does a run say how far reduction loop `a` goes, which no step has taken apart? */
bool nest_limited(const Nest *n, int a);
void nest_share(Nest *n,
                int count); /* the outermost loops, none of a reduction, run as one in parallel */
/* Applies steps from text; false after a diagnostic (E5002). */
bool nest_replay(Nest *n, const char *steps);
/* Can plain loops do what was replayed, and in bounds? For steps that may come from a file; false
 * after a diagnostic (E5002). */
bool nest_check_loops(const Nest *n);

/* Do sums of products of bytes, of four of loop `few`, fit into 16 bits over these loops around, as
 * loops of role short ask for? Rows of unsigned bytes times constant columns (of one loop around,
 * `times` iterations that follow each other, the first of which has a number that they divide), or
 * of signed bytes times parts of bytes. */
bool nest_sums_are_short(const Nest *n, const Expr *product, int n_around, const int *around,
                         int64_t times, int few);

/* May the target add four products of loop `few`, whose rows lie where constant tables say, by
 * moving a window of bytes? `shorts`: inside of a loop of role short. */
bool nest_moves_fit(const Nest *n, int few, bool shorts);

static inline bool is_thread(Role role) {
    return role >= ROLE_thread_x && role <= ROLE_thread_z;
}

#define SHARED_PADDING 16 /* bytes of a line of a tile in shared memory */

/* The loops of the accumulator tile, the outermost first; returns how many. */
int nest_tile_loops(const Nest *n, int tile[NEST_MAX_LOOPS]);

/* The bytes of which the reduction finds the largest or the smallest, and does nothing else: then it
 * begins with their identity, and vectors have four times as many of them as of i32. DT_none: it
 * does not. */
DType nest_chosen_bytes(const Nest *n);

/* Takes loop `a` out of the nest: its coordinate is `value` (an iteration number or a constant). */
void nest_fix(Nest *n, int a, const Expr *value);

/* A factor of a product before it is widened from floats of 16 bits or from bytes; NULL: it is not.
 */
const Expr *nest_narrow_factor(Exprs *x, const Expr *factor);
/* The bytes of an operand of this body of a product if warps of a device multiply tiles of such
 * (floats of 16 bits, or bytes), which it widens; else 0. */
int nest_warp_bytes(const Target *t, Exprs *x, const Expr *body);

/* The register in which threads that reduce together have what comes of it. */
#define ROW_RESULT "result"

/* A sum in two steps: of `term` over some variables, and of `body`, which is linear in that sum,
 * over the others. */
typedef struct PartialSum {
    const Expr *term; /* the whole body where it is not made of such sums */
    const Expr *body; /* EX_acc stands for the sum of terms */
} PartialSum;

/* Reads a sum of `e` as such a one; `inside`: the variables of the sum of terms, `times`: how many
 * terms it has. */
PartialSum nest_partial_sum(Exprs *x, const Expr *e, uint64_t inside, int64_t times);

#define MOST_MATRICES 2
#define MOST_NUMBERS  6 /* rows, and columns */

/* A factor of a product without loads: numbers that hang on two loops. */
typedef struct Matrix {
    int row, red; /* loops, of the results and of the reduction */
    int rows, columns;
    double at[MOST_NUMBERS][MOST_NUMBERS]; /* [rows][columns] */
} Matrix;

/* A sum over all reduction loops of `factor` and of a matrix for each of them. */
typedef struct MatrixSum {
    int n;
    Matrix of[MOST_MATRICES];
    const Expr *factor; /* over loop numbers, without the rows */
} MatrixSum;

/* Is the operator such a sum? Its terms are shared, so that it takes few instructions. */
bool op_applies_matrices(const Op *op);
/* Reads the nest's body as such a one; false if it is none, or the rows are not yet loops. */
bool nest_read_matrices(const Nest *n, MatrixSum *m);

/* Builds the kernel of a map, reduce, scan or the updates of a scatter. args receives the values
 * behind its parameters (those of the op, in order, then the output; packed constants replace
 * theirs). */
Kernel *nest_build(Nest *n, const char *name, Value ***args);

/* Has constant inputs of the op laid out in the order in which the nest reads them, by `body`, over
 * the variables of `k` and with loads of flat elements. Their args become the new constants;
 * returns the body that reads these. */
const Expr *nest_pack_constants(Nest *n, const Kernel *k, const Expr *body, Value **args);
/* Do two constants hold the same, in the same order? */
bool nest_same_layout(const Value *a, const Value *b);
/* Hints for the innermost reduction loop around the tile, for constants that such a body reads
 * panel by panel; NULL: there are none. count[loop]: how many iterations of it a run does, NULL:
 * all; `first`, `tile`: where in the order the reduction loops and the tile begin; `unit`: that of
 * a matrix unit. */
Stmt *nest_fetch_ahead(Nest *n, Kernel *k, const Expr *body, Value **args, const Expr *const *count,
                       int first, int tile, bool unit);

/* A part of a tile's results that is finished at once: `store`, at variables of the kernel, for the
 * part, a row of it and the columns, and how many of each there are in a tile. */
typedef struct Part {
    const Stmt *store;
    int part, row, column;
    int64_t parts, rows, columns;
} Part;

/* Hints for what the same part of the next tile of rows stores and reads (a residual), if that does
 * not stay in the L2 cache; NULL: there are none. */
Stmt *nest_fetch_results(Nest *n, Kernel *k, Value **args, const Part *part);
/* Hints for what `tile` (part: -1) reads when its sums are there, if that does not stay in the L1
 * cache: they stand before the sums. NULL: there are none. */
Stmt *nest_fetch_residual(Nest *n, Kernel *k, Value **args, const Part *tile);

/* The place of the output's element at the operator's coordinates. NULL for a scatter. */
const Expr *nest_output_index(const Nest *n);
/* `e` with the loads of op's inputs flattened to one index each, row-major. */
const Expr *nest_flatten_loads(Exprs *x, const Expr *e, const Op *op);

/* The op's body over the loops as they are now, loads flattened, simplified. */
const Expr *nest_body(const Nest *n);

/* Chooses the steps from the target's facts. n->variant says which: 0 the one thought best, 1 the
 * next best and so on; where there are not so many it is the best again. */
void schedule_choose(Nest *n);

#endif
