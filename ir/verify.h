/* The verifier: what must hold of graphs and kernels, checked after every pass.
 *
 * A violation is our own bug: each gives an E9001 that names the pass, the operator or statement,
 * and what does not hold. The verifier accepts anything that the text reader (text.h) lets through
 * without crashing, so it checks pointers and numbers before it follows them.
 */
#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/text.h"

/* Checks `g` and the sub-graphs of its loops. `after_pass` names the last pass in messages (NULL:
 * none). True if nothing is wrong. */
bool verify_graph(const Graph *g, Diag *diag, const char *after_pass);
bool verify_kernel(const Kernel *k, Diag *diag, const char *after_pass);
/* All kernels, and that launches and loops of the steps fit them. */
bool verify_program(const Program *p, Diag *diag, const char *after_pass);

/* The type that operator `op` (no leaf; cast and bits: to `to`) gives for operands of types `arg`.
 * DT_none, and *why set, if they do not fit. `strict`: arithmetic on narrow types does not fit (in
 * an Expr it is spelled out with casts; the constructors do that for who asks for it). */
DType expr_type(Arena *arena, ExprOp op, DType to, const DType *arg, bool strict, const char **why);

/* --- shared by the files verify_*.c ----------------------------------------------------------*/

typedef struct Verifier {
    Diag *diag;
    Arena *arena; /* of the messages' parts */
    const char *pass;
    const char *place; /* the operator or statement at hand */
    int n_errors;      /* after a number of messages the rest is not reported */
} Verifier;

void verify_fail(Verifier *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What the leaves of an expression may be. */
typedef struct VerifyScope {
    int n_vars;             /* vars below may be used ... */
    const DType *var_types; /* ... of these types (NULL: all i32; DT_none: not defined here) */
    const int64_t *extents; /* upper bounds of the vars, -1 unknown; NULL: all unknown */
    int n_sources;          /* loads below may be used ... */
    Value *const *values;   /* ... of these values, or ... */
    Buffer *const *buffers; /* ... these buffers */
    const bool *usable;     /* buffers: those that exist here; NULL: all */
    int n_ctr;              /* counters below may be used */
    DType acc;              /* DT_none: acc may not be used */
    ExprScope names;        /* how messages write them */
} VerifyScope;

/* Checks one expression; `what` names its part ("body"). want: its type, DT_none if any will do. */
void verify_expr(Verifier *v, const VerifyScope *scope, const Expr *e, DType want,
                 const char *what);
/* Reports if the index is outside [0, size) for every value of the vars. */
void verify_index(Verifier *v, const VerifyScope *scope, const Expr *index, int64_t size,
                  const char *what);

#endif
