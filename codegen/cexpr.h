/* Inside of the shared printer: pieces of text with the precedence that they bind with. */
#ifndef CODEGEN_CEXPR_H
#define CODEGEN_CEXPR_H

#include "codegen/cprint.h"

/* Precedence, loosest first. */
enum {
    P_cond = 1,
    P_or,
    P_and,
    P_bitor,
    P_bitxor,
    P_bitand,
    P_equal,
    P_less,
    P_shift,
    P_sum,
    P_product,
    P_unary,
    P_atom
};

typedef struct Piece {
    const char *text;
    int prec;
} Piece;

/* The text of a value: its name if it has one. Under p->inline_only nothing is printed before. */
Piece print(Printer *p, const Expr *e);
/* The same in an index, where a place need not have the type of values. */
Piece print_in_place(Printer *p, const Expr *e);
/* The same in a comparison. */
Piece print_compared(Printer *p, const Expr *e);
/* A value of the register type `type`. */
Piece convert(Printer *p, const char *type, Piece a);
/* The text of the operator itself; may name the node instead (then node_of(e)->name is set). It may
 * set p->in_place to false for operands that must be values: the caller restores it. */
Piece compose(Printer *p, const Expr *e);
Piece compose_select(Printer *p, const Expr *e);
Piece compose_logic(Printer *p, const Expr *e);
/* The function that computes the operator on floats of a type, which is noted as used; NULL: none.
 */
const char *function_name(Printer *p, ExprOp op, DType dt);

/* x where e is 1 / (exp(-x) + 1) and one function is faster than its parts; else NULL. */
const Expr *sigmoid_operand(const Printer *p, const Expr *e);
/* x where e is x * (erf(x / sqrt(2)) + 1) / 2, likewise. */
const Expr *gelu_operand(const Printer *p, const Expr *e);
/* Gives `e` a constant of its own; its name. Not under p->inline_only. */
const char *name_expr(Printer *p, const Expr *e);
/* `name` stands for `e` until the scope ends. */
void use_name(Printer *p, const Expr *e, const char *name);
/* The text of a piece, in parentheses if it binds looser than `prec`. */
const char *operand(Printer *p, Piece piece, int prec);
const char *logic_operand(Printer *p, Piece piece, int prec);

/* --- crange.c --- */

/* The node of `e` with its range: lo <= value <= hi if it is bounded. */
const Node *range_of(Printer *p, const Expr *e);
/* Do all loads in `e` stay inside of their buffers, whatever a condition around them says? */
bool loads_inside(Printer *p, const Expr *e);
/* The values of a type, if it has at most 32 bits. */
void type_range(Node *node, DType dt);
/* The range of a binary integer operator before it wraps; false if it is not known. */
bool exact_range(Printer *p, const Expr *e, int64_t *lo, int64_t *hi);

#endif
