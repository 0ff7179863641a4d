/* The graph: tensors and the few core operators that every ONNX operator is made of.
 *
 * Four operators compute; each is written once per level (interpreter, lowering), never per ONNX
 * operator:
 *
 *   map      out[i] = body(i)
 *   reduce   out[i] = post(i, combine over r of body(i, r))
 *   scan     out[i] = post(i, combine over r <= i[axis] of body) along one axis (cumulative)
 *   scatter  out = copy of input 0; then for every update u: out[target(u)] combine= body(u)
 *
 * and `loop` repeats a sub-graph a fixed number of times with carried state; `reshape` renames the
 * dimensions of the same memory; `input` and `const` are where values come from.
 *
 * A body is a scalar expression (expr.h) that may load any input at any index computed from the
 * output coordinates, so transposition, slicing, padding, concatenation, gathering and broadcasting
 * are all maps; matrix products, convolutions and pools are reduces whose loads are affine in the
 * coordinates. Fusion is substitution. Loads must be inside their tensor for every coordinate that
 * evaluates them: guard with select or and.
 *
 * Values are in SSA form. Shapes are fixed; scalars have rank 0. A tensor has < 2^31 elements.
 *
 * Dimensions that vary from run to run (dim.h) are for those who build: a tensor of theirs has the
 * shape of the largest extents, and holds its elements at the same indices whatever its extents are
 * in a run. What lies beyond them is anything; bodies that would read outside of a tensor there are
 * guarded by the builders, as are reductions. The values of symbols are scalars, which bodies load.
 */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include "ir/diag.h"
#include "ir/dim.h"

#define MAX_RANK 16 /* output coordinates + reduction coordinates of one operator */

typedef enum OpKind {
    OP_input,
    OP_const,
    OP_map,
    OP_reduce,
    OP_scan,
    OP_scatter,
    OP_reshape,
    OP_loop,
    OP_count
} OpKind;

typedef enum Combine { COMBINE_none, COMBINE_sum, COMBINE_prod, COMBINE_max, COMBINE_min } Combine;

typedef struct Op Op;
typedef struct Graph Graph;
typedef struct Value Value;
typedef struct Packed Packed;

/* An image that the host decodes before a run: three inputs that it makes of another. */
typedef struct GraphImage {
    Value *stream;         /* the input with the encoded bytes: u8[n] */
    Value *height, *width; /* i32 scalars, symbols whose ranges say what fits; both 0 where the
                              bytes cannot be decoded */
    Value *pixels;         /* u8[height, width, channels], dense */
    const char *format;    /* "RGB", "BGR" or "Grayscale" */
} GraphImage;

struct Value {
    int id; /* unique in its graph; printed as %id */
    DType dt;
    int rank;
    const int64_t *shape;
    const int64_t *dims; /* the same, but numbers of dim.h where they vary */
    Op *def;             /* the operator that makes it */
    int def_index;       /* which of its outputs */
    const char *name;    /* ONNX name, or NULL */
    const void *data; /* OP_const: the elements as dt_store lays them out; OP_input that is a state:
                         the first ones, NULL: zeros; else NULL */
    struct Value *outer; /* OP_input: see graph_captured; else NULL */
    /* OP_const without data: how its elements are made, see constant.h; else NULL */
    const Packed *packed;
    const Op *made;
    struct Value
        *storage; /* set by lowering: the value whose memory this one lies in; NULL: its own */
    /* set by pass `place`: the value is the box of `inside` that begins at `origin`, and has no
     * memory of its own; NULL: it has */
    struct Value *inside;
    const int64_t *origin;
    bool turned; /* OP_input, a state: pass `turn` has it in an order of its own */
    bool text; /* OP_input: for the outside a tensor of strings, one in each row; see output_text */
    const int64_t *range; /* of one of Graph.symbols, which bodies and ends of loops load, or of a
                             constant table of places: it lies in range[0] to range[1]; of others
                             NULL */
    /* Of a flat tensor (rank 1): the dimensions, some of which vary, of the tensor whose elements
     * it holds without gaps; NULL: it is not known to be one. For lower, which need not divide
     * then. */
    const int64_t *dense;
    int dense_rank;
    int gap; /* set by pass `place`: elements between one row (the last dimension) and the next in
                memory, so that rows do not compete for lines of a cache, or begin where those of
                another tensor do; at most MOST_GAP */
    int stacked; /* set by lowering, of an output of a loop's body: 1 + the number of the loop
                    counter that says in which row of `storage` it is computed; else 0 */
    int index; /* scratch of the pass at work */
};

struct Op {
    OpKind kind;
    int n_in, n_out;
    Value **in, **out;
    const Expr *body;
    const Expr *post; /* reduce, scan: of acc (and loads at output coordinates); never NULL there */
    Combine combine;  /* reduce, scan, scatter */
    int n_red;        /* reduce: number of reduction coordinates */
    const int64_t *red;      /* reduce: their extents */
    int axis;                /* scan: the axis; var rank stands for the scanned position r */
    bool exclusive, reverse; /* scan: r < i instead of r <= i; from the end */
    int n_upd;               /* scatter: coordinates of the update space ... */
    const int64_t *upd;      /* ... and their extents; var 0.. are these in target and body */
    const Expr **target;     /* scatter: output coordinates, one per dimension of the output */
    const Expr *guard; /* scatter: the update happens only where this holds (bool); NULL: always.
                          map, after `place`: elsewhere others write the element */
    int64_t trips;     /* loop: iterations */
    int n_state;       /* loop: carried values */
    int go_on;         /* loop: 1 + the state, a bool, that says whether iterations follow; 0: until
                          `trips`. Those behind would change no state, and what they would stack
                          means nothing: targets may leave them out */
    Graph *sub;        /* loop: one iteration */
    const char *src;   /* the ONNX nodes it came from, for comments and reports */
    Op *prev, *next;   /* order of execution */
    int index;         /* scratch of the pass at work */
};

/* loop: sub->inputs correspond to op->in: first n_state carried values, then invariants.
 * sub->outputs are the next n_state carried values, then the stacked outputs of one iteration.
 * op->out are the final carried values, then each stacked output with `trips` as new first
 * dimension, iteration t at index t. In the sub-graph's expressions ctr `depth` (number of loops
 * around) is the iteration. */

struct Graph {
    Arena *arena;
    Exprs *x;
    Diag *diag;
    const char *name;
    Graph *parent; /* sub-graph of a loop: the graph around it */
    int depth;     /* loops around: 0 at top */
    int64_t trips; /* of a loop's body, if known while it is built: at most so often; else 0 */
    int n_values;
    Op *first, *last;
    VEC(Value *) inputs;
    VEC(Value *) outputs;
    /* Of a body that is built on trial: what its first inputs are taken to be where the builder
     * asks, values of the graph around; and whether it did. */
    VEC(Value *) guesses;
    bool guessed;
    VEC(const char *) output_names;
    /* parallel to outputs. A string tensor is u8 here, with one dimension more: a string is a row
     * of bytes, padded with zeros. Only the tables for the outside tell it from others of u8. */
    VEC(bool) output_text;
    /* parallel to outputs: the output that holds this one's extents; -1: they do not vary */
    VEC(int) output_shape;
    /* The last n_states inputs and the last n_states outputs, in this order, are a state each: what
     * the output is in one run, the input is in the next. They are no part of what callers see. */
    int n_states;
    /* What the host decodes: their height, width and pixels are the last inputs before the states,
     * in this order, and no part of what callers see either. */
    VEC(GraphImage) images;
    const char *src;          /* given to operators built from now on */
    bool no_fold;             /* builders fold operators of constants unless set */
    Value *fault;             /* i32, rank 0: see graph_note_fault; NULL: there is none */
    Value *go_on;             /* of a loop's body: bool, rank 0; false: iterations that follow would
                                 change no state, and none is missed. NULL: see build_loop */
    VEC(const char *) faults; /* at top: what the numbers of `fault` mean, from 1 on */
    VEC(DimClaim) claims;     /* those that `fault` knows of */
    VEC(int64_t) settled; /* at top: pairs of dimensions, see graph_settled */
    VEC(Value *) symbols; /* the values of dim.h's symbols here (i32, rank 0); NULL: not used yet */
};

Graph *graph_new(Arena *arena, Exprs *x, Diag *diag, const char *name);
Graph *graph_new_sub(Graph *parent);

/* --- building ------------------------------------------------------------------------------------
 * Builders append to the graph, check what they are given, and fold operators whose inputs are all
 * constant by interpreting them at once (so an importer can read computed shapes as constants).
 * Shapes are copied. They may have dimensions that vary. */

/* Makes `value` (i32, rank 0) a symbol with this range, and returns the dimension that it is; -1 if
 * there are too many. */
int64_t graph_symbol(Graph *g, Value *value, int64_t low, int64_t high);
/* The dimension, or, where much arithmetic makes it, a symbol that is computed once and equals it:
 * one number for one dimension. */
int64_t graph_settled(Graph *g, int64_t d);
/* Says which value a symbol has in this graph. */
void graph_set_symbol(Graph *g, int symbol, Value *value);
/* The first symbol whose value `v`, not NULL, is; -1: none. */
int graph_symbol_of(const Graph *g, const Value *v);
/* Are the extents of v known in this graph? Those that the body of a loop finds are not outside. */
bool graph_has_extents(Graph *g, const Value *v);
/* An input of the graph holds its elements one behind the other, without room for the largest
 * extents: the tensor that it is. Reads nothing beyond its elements. */
Value *graph_from_dense(Graph *g, Value *input);
/* The tensor like that, to be an output. */
Value *graph_to_dense(Graph *g, Value *v);
/* The extents of `v` in a run: i64[rank]. */
Value *graph_shape(Graph *g, const Value *v);

/* Runs in which `fault` (bool, rank 0) is true ask for more than there is room for, or contradict
 * what the model says of shapes. They touch nothing outside of tensors, but what they give is
 * meaningless, and they end with a status of its own, which tells the node that operators are built
 * for (g->src) and `what` of the first such fault. In the body of a loop it counts in every
 * iteration. */
void graph_note_fault(Graph *g, Value *fault, const char *what);
/* From now on what is noted so far counts only where `when` (bool, rank 0) is true. */
void graph_limit_fault(Graph *g, Value *when);
/* A fault (i32, as Graph.fault) behind those noted so far; the two in one. */
void graph_join_fault(Graph *g, Value *fault);
Value *graph_first_fault(Graph *g, Value *first, Value *second);
/* The same where a claim (dim.h) that was made since the last call does not hold. */
void graph_note_claims(Graph *g);
/* What is noted between the two counts only where `when` (bool, rank 0; NULL: always) is true. */
typedef struct Faults {
    Value *fault;
    int n_claims, n_faults;
} Faults;
Faults graph_begin_faults(Graph *g);
void graph_end_faults(Graph *g, const Faults *before, Value *when);
/* What was noted since then is forgotten. */
void graph_drop_faults(Graph *g, const Faults *before);
/* If there is a fault: the status of a run (i32; 0: there is none in it, else which of g->faults,
 * counted from 1) as one more output. Its output_shape is its own number, which tells it from the
 * others. */
void graph_output_status(Graph *g);
/* The number of that output; -1: there is none. */
int graph_status_output(const Graph *g);

Value *graph_input(Graph *g, const char *name, DType dt, int rank, const int64_t *shape);
/* One of a loop's body that is this value of the graph around it in every iteration. */
Value *graph_captured(Graph *sub, Value *outer);
/* `data` is kept, not copied; it must live as long as the arena and hold numel * dt_store bytes. */
Value *graph_const(Graph *g, DType dt, int rank, const int64_t *shape, const void *data);
void graph_output(Graph *g, Value *value, const char *name);
/* One with dimensions that vary, and one more, "name.shape", with its extents. */
void graph_output_varying(Graph *g, Value *value, const char *name);
/* The same of a tensor of strings: u8 of rank 1 at least. */
void graph_output_text(Graph *g, Value *value, const char *name);
/* Makes a state of input and output number so and so, of one type and shape: they become the last.
 */
void graph_tie(Graph *g, int input, int output);

/* A body under construction: coordinates of the output are ex_var 0..rank-1. */
typedef struct Builder {
    Graph *g;
    Exprs *x;
    int rank;
    int64_t shape[MAX_RANK];
    int n_red;
    int64_t red[MAX_RANK];
    VEC(Value *) in;
} Builder;

/* A map (or with build_red a reduction) that gives a tensor of this shape. */
Builder build(Graph *g, int rank, const int64_t *shape);
/* Adds a reduction coordinate of this extent; returns its var. */
const Expr *build_red(Builder *b, int64_t extent);
/* Coordinate `at` of the output as the index into a dimension that broadcasts to that. */
const Expr *build_index(Builder *b, int at, int64_t extent);
/* The element of `v`, broadcast to the output as ONNX (numpy) does. `v` must broadcast to b's
 * shape. */
const Expr *build_in(Builder *b, Value *v);
/* The element of `v` at explicit coordinates (v->rank of them). */
const Expr *build_load(Builder *b, Value *v, const Expr *const *index);
Value *build_map(Builder *b, DType dt, const Expr *body);
/* post == NULL: the reduced value itself. `dt` is post's type. */
Value *build_reduce(Builder *b, DType dt, Combine combine, const Expr *body, const Expr *post);
/* Cumulative along `axis`; in body var b->rank stands for the scanned position, the other
 * coordinates (and var axis, not to be used) are the output's. */
Value *build_scan(Builder *b, DType dt, Combine combine, int axis, bool exclusive, bool reverse,
                  const Expr *body);
/* b's shape is the update space; `data` is copied, then updated at target[0..data->rank-1]. */
Value *build_scatter(Builder *b, Value *data, Combine combine, const Expr *const *target,
                     const Expr *guard, const Expr *body);

/* A loop. sub->inputs must have been made with graph_input in the order states, invariants; the
 * outputs with graph_output in the order next states, stacked; sub->go_on may be set. in: n_in
 * values of the outer graph. out: receives n_state + stacked values. */
void build_loop(Graph *g, Graph *sub, int64_t trips, int n_state, int n_in, Value **in,
                Value **out);

/* --- common operators, made of the above ------------------------------------------------------ */
/* Of as many elements, also in every run. */
Value *g_reshape(Graph *g, Value *v, int rank, const int64_t *shape);
Value *g_transpose(Graph *g, Value *v, const int *perm); /* out dim i = in dim perm[i] */
Value *g_expand(Graph *g, Value *v, int rank, const int64_t *shape);
/* start, step (may be negative), count per dimension */
Value *g_slice(Graph *g, Value *v, const int64_t *start, const int64_t *step, const int64_t *count);
/* before/after may be negative (crop); fill is a constant of v's type */
Value *g_pad(Graph *g, Value *v, const int64_t *before, const int64_t *after, Scalar fill);
/* of n >= 1 values that differ along `axis` alone */
Value *g_concat(Graph *g, int n, Value *const *v, int axis);
Value *g_cast(Graph *g, Value *v, DType dt);
/* elementwise with broadcasting; comparisons give bool */
Value *g_bin(Graph *g, ExprOp op, Value *a, Value *b);
Value *g_un(Graph *g, ExprOp op, Value *a);
Value *g_where(Graph *g, Value *cond, Value *a, Value *b);
/* elementwise from a formula over names a, b, c ... (see ex_formula); result type is the formula's
 */
Value *g_formula(Graph *g, const char *formula, int n, const char *const *names, Value *const *v);
/* reduction over axes (bit mask); keep: reduced dims stay as 1. body type is the accumulator's */
Value *g_reduce(Graph *g, Combine combine, Value *v, uint32_t axes, bool keep);
Value *g_scalar(Graph *g, DType dt, double value);
Value *g_dim(Graph *g, DType dt, int64_t dim);         /* a dimension's extent as a scalar */
Value *g_ints(Graph *g, int n, const int64_t *values); /* i64[n] */
/* Matrix product with numpy's rules (batch broadcasting, rank 1), accumulated in `acc` and cast to
 * dt */
Value *g_matmul(Graph *g, Value *a, Value *b, DType acc, DType dt);
/* softmax along the given axes (bit mask), numerically stable, in v's type (computed in f32 at
 * least) */
Value *g_softmax(Graph *g, Value *v, uint32_t axes, bool logarithm);

#define MOST_GAP 4096

/* Is it a constant of which every element is the same, bit for bit? */
bool value_is_uniform(const Value *v);
/* Elements from one row (the last dimension) to the next, of a value in memory of its own. */
int64_t value_pitch(const Value *v);
/* Elements of the memory that the value lies in, gaps and what it is a part of included. */
int64_t value_span(const Value *v);

/* Adds an image and returns its pixels, as u8[height, width, channels]; these two are fixed or vary
 * as their ranges say. `stream` is an input; not after graph_tie. NULL if there are too many
 * symbols. */
Value *graph_image(Graph *g, Value *stream, const char *format, const int64_t low[2],
                   const int64_t high[2], const char *name);
/* Inputs and outputs that are no states: they come first. */
static inline int graph_n_inputs(const Graph *g) {
    return g->inputs.n - g->n_states;
}
/* Inputs that callers give: those and no decoded images. */
static inline int graph_n_given(const Graph *g) {
    return graph_n_inputs(g) - 3 * g->images.n;
}
static inline int graph_n_outputs(const Graph *g) {
    return g->outputs.n - g->n_states;
}

/* --- queries ---------------------------------------------------------------------------------- */
/* Number of elements; INT64_MAX where it is more than that. */
int64_t shape_numel(int rank, const int64_t *shape);
/* May a tensor have this shape? No extent is negative, and the product of those that are not 0 is
 * below 2^31: so no product of some of them overflows. */
bool shape_fits(int rank, const int64_t *shape);
static inline int64_t value_numel(const Value *v) {
    return shape_numel(v->rank, v->shape);
}
static inline size_t value_bytes(const Value *v) {
    return (size_t)value_numel(v) * dt_store(v->dt);
}
bool shape_equal(int rank_a, const int64_t *a, int rank_b, const int64_t *b);
/* Numpy broadcasting of two shapes; false if they do not fit. Where a dimension varies, the larger
 * of the two is taken. */
bool shape_broadcast(Exprs *x, int rank_a, const int64_t *a, int rank_b, const int64_t *b,
                     int *rank, int64_t *shape);
const char *shape_text(Arena *arena, int rank, const int64_t *shape);
/* The constant integers of a value (any integer type), or NULL if it is not constant. *n: how many.
 */
const int64_t *value_ints(Graph *g, const Value *v, int *n);
/* The same where they may be dimensions that vary, such as those computed of a shape. */
const int64_t *value_dims(Graph *g, const Value *v, int *n);
/* The one element of a value, if it is the same in every run, and in every iteration of the loops
 * around, though it may be computed of others. */
bool value_known(Graph *g, const Value *v, Scalar *value);
/* The one element of a value of a loop's body as an expression of loop counters, of dimensions, and
 * of var VALUE_INPUT + i for input i of the body where that has one element. What else goes into it
 * is a var from VALUE_UNKNOWN to there. */
#define VALUE_UNKNOWN (DIM_VAR + DIM_MAX_SYMBOLS)
#define VALUE_INPUT   (VALUE_UNKNOWN + (1 << 20))
const Expr *value_formula(Graph *g, const Value *v);
bool value_is_const(const Value *v);
const char *op_kind_name(OpKind kind);
const char *combine_name(Combine combine);
/* The neutral element of a combine in a type. */
Scalar combine_identity(Combine combine, DType dt);
ExprOp combine_expr(Combine combine);

/* --- editing (passes) ------------------------------------------------------------------------- */
Op *graph_new_op(Graph *g, OpKind kind, int n_in, Value *const *in, int n_out); /* not yet linked */
void graph_append(Graph *g, Op *op);
void graph_insert_before(Graph *g, Op *at, Op *op);
void graph_unlink(Graph *g, Op *op);
bool graph_is_output(const Graph *g, const Value *v);
/* Turns an operator of constants into a constant; not one whose large result would take more than
 * `growth` times the bytes of what it is made of. */
void graph_fold(Graph *g, Op *op, int growth);
/* Dimensions that a run may make less than 0 are 0 then, and it is claimed (dim.h) that they are not
 * less: two of them would have a product above 0. */
Value *graph_new_value(Graph *g, Op *def, int def_index, DType dt, int rank, const int64_t *shape);
/* Extents of all coordinates of an op's body: output (or update) coordinates, then reduction.
 * Returns how many; extent must hold MAX_RANK. */
int op_extents(const Op *op, int64_t *extent);
/* Is it a sum of products? */
bool op_is_product(const Op *op);

#endif
