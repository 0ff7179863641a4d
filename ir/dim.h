/* Dimensions that vary from run to run.
 *
 * A dimension is an int64_t: its extent where that is known when compiling, else the number of an
 * expression of symbols, such as seq or (seq + 1) / 2. A symbol is an integer with a range that a
 * run gives (a dimension of an input) or computes (how many elements NonZero finds); in expressions
 * it is var DIM_VAR + its number.
 *
 * Equal dimensions are equal numbers: expressions are brought into a normal form, a sum of
 * products. `d + 1`, for a constant that is not large, is again a dimension; all other arithmetic
 * goes through the functions below, which compute at once with extents that are known. Numbers of
 * expressions are far below zero, so that other arithmetic ends in an error and not in a wrong
 * shape.
 *
 * ex_int and ex_i take dimensions, so bodies may compute with those that vary.
 */
#ifndef IR_DIM_H
#define IR_DIM_H

#include "ir/expr.h"

#define DIM_VAR         64 /* above any coordinate of an operator */
#define DIM_MAX_SYMBOLS 1024

typedef struct DimSymbol {
    const char *name; /* NULL: computed by the model */
    int64_t low, high;
} DimSymbol;

/* True if the dimension is not known when compiling. */
bool dim_varies(int64_t d);
bool dims_vary(int rank, const int64_t *dims);
/* False if the two cannot be equal. */
static inline bool dim_fits(int64_t a, int64_t b) {
    return a == b || dim_varies(a) || dim_varies(b);
}
bool dims_fit(int rank_a, const int64_t *a, int rank_b, const int64_t *b);
/* May they be equal, by their ranges too? If so the caller goes on as if they were: a claim. */
bool dim_meets(Exprs *x, int64_t a, int64_t b);
/* The same for a caller that only asks. */
bool dim_can_meet(Exprs *x, int64_t a, int64_t b);
/* Bounds of a - b. */
void dim_apart(Exprs *x, int64_t a, int64_t b, int64_t *least, int64_t *most);
bool dims_meet(Exprs *x, int rank_a, const int64_t *a, int rank_b, const int64_t *b);
/* Of two that are equal in every run the one that says more. */
static inline int64_t dim_same(int64_t a, int64_t b) {
    return dim_varies(a) ? b : a;
}

/* What was taken for granted of dimensions that vary. A run may be given others: graph_fault.c has
 * it checked there. */
typedef enum ClaimKind {
    CLAIM_equal,     /* a == b */
    CLAIM_broadcast, /* a == b, or one of them is 1 */
    CLAIM_at_most    /* a <= b */
} ClaimKind;
typedef struct DimClaim {
    ClaimKind kind;
    int64_t a, b;
} DimClaim;
/* Notes a claim; one that is sure to hold, or is noted already, is none. */
void dim_claim(Exprs *x, ClaimKind kind, int64_t a, int64_t b);
/* Takes the claims away; returns how many there were. */
int dim_take_claims(Exprs *x, DimClaim **claims);

/* A new symbol. -1 if there are too many. */
int dim_new_symbol(Exprs *x, const char *name, int64_t low, int64_t high);
int64_t dim_of_symbol(Exprs *x, int symbol);
/* The symbol that a dimension is; -1: it is none, but may be computed from some. */
int dim_symbol(const Exprs *x, int64_t d);
DimSymbol dim_symbol_range(const Exprs *x, int symbol);
/* The dimension that an integer expression of symbols stands for; false if it has no upper bound,
 * or i32 might not hold what is computed on the way. */
bool dim_from_expr(Exprs *x, const Expr *e, int64_t *d);
/* Its value as an i32 expression. */
const Expr *dim_expr(Exprs *x, int64_t d);
/* The extents that the variables of symbols have, from DIM_VAR on; returns how many variables there
 * are. */
#define DIM_MAX_VARS (DIM_VAR + DIM_MAX_SYMBOLS)
int dim_extents(const Exprs *x, int64_t *extent);
/* Its value, simplified as in the bodies of operators. */
const Expr *dim_simplified(Exprs *x, int64_t d);
/* The bounds of an expression of symbols and constants; false if there are none. */
bool dim_bounds(const Exprs *x, const Expr *e, int64_t *low, int64_t *high);
/* The largest extent it has. */
int64_t dim_max(Exprs *x, int64_t d);
int64_t dim_min(Exprs *x, int64_t d);
/* One number for each dimension: `d + 1` gets that of its expression. */
int64_t dim_normal(Exprs *x, int64_t d);

int64_t dim_add(Exprs *x, int64_t a, int64_t b);
int64_t dim_sub(Exprs *x, int64_t a, int64_t b);
int64_t dim_mul(Exprs *x, int64_t a, int64_t b);
/* Rounded towards zero; b > 0. */
int64_t dim_div(Exprs *x, int64_t a, int64_t b);
/* Is `whole` that many times `part`, whatever the symbols are? */
bool dim_divides(Exprs *x, int64_t part, int64_t whole);
/* The larger one. */
int64_t dim_larger(Exprs *x, int64_t a, int64_t b);
int64_t dim_smaller(Exprs *x, int64_t a, int64_t b);
/* The index `e` into a dimension of this extent which is broadcast: brought into it. */
const Expr *dim_index(Exprs *x, const Expr *e, int64_t extent);
/* Number of elements. */
int64_t dim_product(Exprs *x, int rank, const int64_t *dims);
/* The largest extents. */
void dims_max(Exprs *x, int rank, const int64_t *dims, int64_t *shape);
const char *dim_text(Exprs *x, int64_t d);
const char *dims_text(Exprs *x, int rank, const int64_t *dims); /* "[batch, seq, 16]" */

#endif
