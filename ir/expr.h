/* Scalar expressions: what one element of a tensor is computed from.
 *
 * The same expressions stand in graph operators (bodies of map, reduce, scan, scatter) and in
 * kernels (right-hand sides, indices, extents). They are immutable and hash-consed: structurally
 * equal expressions are the same pointer, so common subexpressions are shared from the start, and
 * every constructor simplifies what it can see at once (constants, neutral elements).
 *
 * In a graph operator, var 0..rank-1 are the coordinates of the output element and var rank.. those
 * of the reduction; load `i` reads the operator's input i. In a kernel, vars index Kernel.vars and
 * loads Kernel.buffers. Coordinates and indices are i32.
 *
 * Arithmetic on narrow types (dt_is_narrow) is built as arithmetic in dt_reg(dt) and a cast back,
 * so printers and interpreters see narrow types only in const, load, cast, bits and select.
 */
#ifndef IR_EXPR_H
#define IR_EXPR_H

#include "ir/arena.h"
#include "ir/dtype.h"

typedef enum ExprOp {
#define EXPR(name, arity, text) EX_##name,
#include "ir/expr.def"
    EX_count
} ExprOp;

#define EX_OTHER_VARS 63 /* the vars of an expression are a set of 64 bits */

typedef struct Expr {
    uint8_t op; /* ExprOp */
    uint8_t dt; /* DType of the value */
    uint16_t n; /* operands */
    bool loads; /* anything */
    uint32_t hash;
    uint32_t id;   /* order of creation; operands have smaller ids */
    uint32_t size; /* nodes of the tree it stands for, saturating: a cost to bound fusion with */
    uint64_t vars; /* bit i: it depends on var i; bit EX_OTHER_VARS: on one from there on */
    Scalar k;      /* const: the value; var, ctr, load: the number in k.i */
    const struct Expr *arg[];
} Expr;

/* The table that hash-conses; one per compilation. */
typedef struct Exprs {
    Arena *arena;
    const Expr **slots;
    uint32_t n, cap;
    struct Dims *dims; /* dimensions that vary (dim.h); NULL: there are none */
} Exprs;

void exprs_init(Exprs *x, Arena *arena);

const char *ex_name(ExprOp op);
int ex_arity(ExprOp op);
const char *ex_infix(ExprOp op); /* "" if none */

/* Leaves. ex_num makes `value` in any type (rounded, wrapped); ex_i is an i32 index constant. A
 * dimension that varies (dim.h) is the expression that it stands for. */
const Expr *ex_const(Exprs *x, DType dt, Scalar value);
const Expr *ex_num(Exprs *x, DType dt, double value);
const Expr *ex_int(Exprs *x, DType dt, int64_t value);
const Expr *ex_i(Exprs *x, int64_t value);
const Expr *ex_var(Exprs *x, int number);
/* A var of another type than i32 (kernel lets). */
const Expr *ex_var_of(Exprs *x, int number, DType dt);
const Expr *ex_ctr(Exprs *x, int depth);
const Expr *ex_acc(Exprs *x, DType dt);
const Expr *ex_load(Exprs *x, DType dt, int source, int n, const Expr *const *index);

/* Operators. The result type of un is the operand's (bool for not, isnan, isinf), of bin the first
 * operand's (bool for comparisons, and, or). Operand types must agree. */
const Expr *ex_un(Exprs *x, ExprOp op, const Expr *a);
const Expr *ex_bin(Exprs *x, ExprOp op, const Expr *a, const Expr *b);
const Expr *ex_select(Exprs *x, const Expr *cond, const Expr *a, const Expr *b);
const Expr *ex_cast(Exprs *x, DType dt, const Expr *a);
const Expr *ex_bits(Exprs *x, DType dt, const Expr *a);
/* a / c of f32, c a constant, as a * (1 / c): one rounding more. NULL if `e` is something else or
 * 1 / c no normal number. ex_un does it to what erf and tanh are computed of. */
const Expr *ex_by_reciprocal(Exprs *x, const Expr *e);
/* e / scale, floats, as the nearest i8 from -127 to 127; 0 where the scale is 0. */
const Expr *ex_as_byte(Exprs *x, const Expr *e, const Expr *scale);

static inline const Expr *ex_add(Exprs *x, const Expr *a, const Expr *b) {
    return ex_bin(x, EX_add, a, b);
}
static inline const Expr *ex_sub(Exprs *x, const Expr *a, const Expr *b) {
    return ex_bin(x, EX_sub, a, b);
}
static inline const Expr *ex_mul(Exprs *x, const Expr *a, const Expr *b) {
    return ex_bin(x, EX_mul, a, b);
}
static inline const Expr *ex_div(Exprs *x, const Expr *a, const Expr *b) {
    return ex_bin(x, EX_div, a, b);
}
static inline const Expr *ex_and(Exprs *x, const Expr *a, const Expr *b) {
    return ex_bin(x, EX_and, a, b);
}
static inline const Expr *ex_lt(Exprs *x, const Expr *a, const Expr *b) {
    return ex_bin(x, EX_lt, a, b);
}
static inline const Expr *ex_le(Exprs *x, const Expr *a, const Expr *b) {
    return ex_bin(x, EX_le, a, b);
}

/* An expression from text, for tables of elementwise operators: infix and call syntax of the IR
 * text; names are looked up in `names`/`values` (n of them); a number literal takes the other
 * operand's type. Example: "select(x > 0, x, alpha * (exp(x) - 1))". NULL and *error set on a
 * mistake. */
const Expr *ex_formula(Exprs *x, const char *text, int n, const char *const *names,
                       const Expr *const *values, const char **error);

/* Rebuilds `e` with `leaf(user, e)` applied to every var, ctr, acc and load (a load's operands are
 * rewritten before; `args` holds them). `leaf` returns the replacement. Shared parts are visited
 * once. */
typedef const Expr *ExprLeafFn(void *user, const Expr *leaf, const Expr *const *args);
const Expr *ex_rewrite(Exprs *x, const Expr *e, ExprLeafFn *leaf, void *user);
/* An order of expressions that depends on nothing but their structure (not on what was built
 * before): larger ones first. */
int ex_order(const Expr *a, const Expr *b);
/* The node `e` with other operands, through the constructors. `e` has operands. */
const Expr *ex_rebuild(Exprs *x, const Expr *e, const Expr *const *arg);
/* Replaces var i by to[i] for i < n. */
const Expr *ex_subst_vars(Exprs *x, const Expr *e, int n, const Expr *const *to);
/* Puts `to` in the place of `part` wherever it stands in `e`. */
const Expr *ex_replace(Exprs *x, const Expr *e, const Expr *part, const Expr *to);
/* The variables that `e` depends on: bit i for var i, of those below EX_OTHER_VARS. */
static inline uint64_t ex_vars(const Expr *e) {
    return e->vars & ~((uint64_t)1 << EX_OTHER_VARS);
}
/* Of var -1, which stands for none, nothing does. */
bool ex_depends(const Expr *e, int var);
/* Adds `by` to the number of every load. */
const Expr *ex_shift_loads(Exprs *x, const Expr *e, int by);

/* Simplifies with the knowledge that 0 <= var i < extent[i] for i < n (extent < 0: unknown): folds
 * division and remainder of index arithmetic, comparisons that always or never hold, min/max. */
const Expr *ex_simplify(Exprs *x, const Expr *e, int n, const int64_t *extent);
/* Bounds of an integer expression under the same knowledge; false if unknown. */
bool ex_bounds(const Expr *e, int n, const int64_t *extent, int64_t *lo, int64_t *hi);
/* e == base + sum coef[i] * var i with constant coefficients for all i < n, and `base` without vars
 * below n. False if not of that form. */
bool ex_affine(Exprs *x, const Expr *e, int n, int64_t *coef, const Expr **base);

/* Reads a comparison as `bound <= var` (*below false) or `var < bound` (*below true), of one
 * variable below n, which is not negative, by a bound without those; false if it is none, or if a
 * multiple of the variable wraps around (extent: as of ex_simplify). */
bool ex_bound(Exprs *x, const Expr *e, int n, const int64_t *extent, int *var, const Expr **bound,
              bool *below);

/* How much `e` grows when var `var` grows by one and all else stays; false if that is not always
 * the same, or not plain to see. */
bool ex_stride(const Expr *e, int var, int64_t *stride);

/* Is `e` a multiple of n, whatever is loaded and variables are? False if it is not plain to see. */
bool ex_is_multiple(const Expr *e, int64_t n);

/* `e` with `value` for variable `var`. */
const Expr *ex_subst_var(Exprs *x, const Expr *e, int var, const Expr *value);

/* Is a condition the same for all values of `var` below n, whatever else it depends on? False if it
 * is not plain to see. */
bool ex_same_below(Exprs *x, const Expr *e, int var, int64_t n);

/* Evaluates an expression without loads on constants: vars[i] for var i. */
Scalar ex_eval(const Expr *e, const int64_t *vars);
/* An expression made ready to be evaluated many times: its parts, operands first. */
typedef struct ExprParts {
    int n;
    const Expr **part;
    int (*arg)[3]; /* of each part: which of the parts its operands are */
    Scalar *value;
} ExprParts;
/* NULL if it has loads or many parts. */
ExprParts *ex_parts(Arena *arena, const Expr *e);
/* What `leaf` says that its vars and counters are. */
typedef Scalar ExprValueFn(void *user, const Expr *leaf);
Scalar ex_parts_eval(ExprParts *p, ExprValueFn *leaf, void *user);
/* Applies one operator (not a leaf, not load) to constant operands of type `from`, giving type
 * `dt`. */
Scalar ex_apply(ExprOp op, DType dt, DType from, const Scalar *args);

/* Visits every distinct node once, operands first. */
typedef void ExprVisitFn(void *user, const Expr *e);
void ex_visit(Arena *scratch, const Expr *e, ExprVisitFn *visit, void *user);

/* About how many cycles its slow operations take for one element, for models of cost: 20 a function
 * such as exp, 4 a division or a square root of floats. */
int ex_slow_cycles(Arena *scratch, const Expr *e);
/* A load from a table of floats or bytes, with one index, at the place that a byte says? */
bool ex_is_lookup(const Expr *load);

/* What `e`, of floats, bounds by constants, with min and max; *low, *high: these, infinite where it
 * does not. */
const Expr *ex_bounded(const Expr *e, double *low, double *high);

#define ROUND_LIMIT 4194304.0 /* floats of at most this size have neighbours less than 1 apart */

/* A cast to i32 of a rounded float that is small enough to be rounded by an addition? */
bool ex_is_rounding(const Expr *e);
/* Is it made of loads of 16 bits or fewer that depend on the variable, and of any integers that do
 * not, by operations whose result's low 16 bits depend on those of their operands alone? */
bool ex_is_word_sum(const Expr *e, int var);
/* Is it an i32 that min, max and conditions which do not depend on the variable choose from bytes of
 * the type and from constants, and surely such a byte? Constants beyond them may be replaced by the
 * nearest byte then. */
bool ex_chooses_bytes(const Expr *e, DType dt, int var);
/* The least and the largest of a type of bytes. */
static inline int64_t byte_least(DType dt) {
    return dt == DT_i8 ? -128 : 0;
}
static inline int64_t byte_most(DType dt) {
    return byte_least(dt) + 255;
}

static inline bool ex_is_const(const Expr *e) {
    return e->op == EX_const;
}
static inline bool ex_is_int(const Expr *e, int64_t value) {
    return e->op == EX_const && dt_kind((DType)e->dt) != DK_float && e->k.i == value;
}
static inline bool ex_is_one(const Expr *e) {
    return ex_is_const(e) && (dt_is_float((DType)e->dt) ? e->k.f == 1 : e->k.i == 1);
}
/* A zero of any type, -0.0 too. */
static inline bool ex_is_zero(const Expr *e) {
    return e->op == EX_const && (dt_is_float((DType)e->dt) ? e->k.f == 0 : e->k.i == 0);
}

#endif
