/* The IR as text: printing graphs, kernels and programs, and reading them back.
 *
 * The text is line-oriented, one operator or statement a line; a line ends where it ends unless a
 * bracket is open, and `;` begins a comment. Printing loses nothing: reading the text gives the
 * same thing again and printing that gives the same text.
 *
 *     graph @name {
 *       %0 = input : f32[1, 8, 8] "x"
 *       %1 = const : f32[2] = [1.0, -0.5]
 *       %2 = reduce sum (%0, %1) [r0: 2] : f32[1, 8] src "Conv_0"
 *         body $0[i0, i1] * $1[r0]
 *         post max(acc, 0.0)
 *       output %2 "y"
 *     }
 *
 * In expressions `i0`... are the coordinates of the output (in a scatter: of the updates), `r0`...
 * those of the reduction, `$n[...]` an element of the operator's input n, `acc` the reduced value,
 * `ctr0`... the counters of the loops around. In kernels variables and buffers go by their names.
 * Operators bind as in C; a % right before a digit is no operator but begins a value's name.
 * Literals are i32 (`3`), f32 (`2.5`), bool (`true`) or carry their type (`3i64`, `2.5f16`,
 * `inf_f64`). A part that is used often is named before: `let #0 = ...`.
 */
#ifndef IR_TEXT_H
#define IR_TEXT_H

#include "ir/kernel.h"

/* --- printing --------------------------------------------------------------------------------- */

typedef struct TextOptions {
    bool elide; /* constants longer than inline_limit as "<N bytes, fnv H>": not to be read back */
    int64_t inline_limit; /* constants of up to so many elements are listed; 0: 32 */
} TextOptions;

/* What the leaves of an expression mean. For an expression of a kernel, `kernel` alone counts. */
typedef struct ExprScope {
    const Kernel *kernel;
    int rank;         /* vars below are i0..., the others r0... */
    int n_vars;       /* vars there are (reading) */
    int n_in;         /* loads there are ... */
    Value *const *in; /* ... and what they read */
    DType acc;        /* type of `acc`; DT_none: there is none */
    int n_ctr;        /* counters there are (reading) */
} ExprScope;

/* The scope of `op`'s expressions; `post`: of its post rather than its body. */
ExprScope op_scope(const Op *op, bool post, int depth);

/* Prints `e`, after the `let` lines it needs, each begun with `indent` blanks. scope NULL: of no
 * operator; then everything that is not i32 carries its type (`$0:f32[i0]`, `acc:f32`). */
void text_expr(Text *out, const ExprScope *scope, const Expr *e, int indent);
/* The same on one line and cut short if long: for messages. */
const char *ex_text(Arena *arena, const ExprScope *scope, const Expr *e);
void text_graph(Text *out, const Graph *g, TextOptions options);
void text_kernel(Text *out, const Kernel *k);
/* The whole: the graph, kernels, steps and places. */
void text_program(Text *out, const Program *p, TextOptions options);

/* --- reading ---------------------------------------------------------------------------------- */

/* Any text is accepted or gives one E5001 "line L column C: expected ..., found ..." and NULL. What
 * is read is well-formed as text; whether it makes sense is for the verifier (verify.h) to say. */

const Expr *parse_expr(Exprs *x, Diag *diag, const ExprScope *scope, const char *text,
                       size_t length);
Graph *parse_graph(Arena *arena, Exprs *x, Diag *diag, const char *text, size_t length);
/* Reads one kernel and adds it to p->kernels. */
Kernel *parse_kernel(Program *p, const char *text, size_t length);
Program *parse_program(Arena *arena, Exprs *x, Diag *diag, const char *text, size_t length);

/* --- shared by the files text_*.c ------------------------------------------------------------*/

typedef enum TokenKind {
    TOK_end,
    TOK_newline, /* only between brackets-free parts, one for any number of empty lines */
    TOK_name,
    TOK_int,    /* 3 or 3i64 */
    TOK_float,  /* 2.5 or 2.5f16 */
    TOK_hex,    /* 0x...: text/length are the digits */
    TOK_string, /* "...": text is the unescaped content */
    TOK_value,  /* %3 */
    TOK_load,   /* $3 */
    TOK_shared, /* #3 */
    TOK_symbol, /* @name: text/length are the name */
    TOK_punct
} TokenKind;

typedef struct Token {
    TokenKind kind;
    const char *text;
    size_t length;
    int line, column;
    int punct;        /* PUNCT1 or PUNCT2 of the characters */
    uint64_t integer; /* int, value, load, shared */
    double real;      /* int, float */
    DType suffix;     /* int, float: DT_none if there is none */
} Token;

#define PUNCT1(a)    ((int)(a))
#define PUNCT2(a, b) ((int)(a) << 8 | (int)(b))

typedef struct Lexer {
    Arena *arena;
    const char *p, *end, *line_start;
    int line;
    int open;          /* brackets ( and [ open: line ends do not count in them */
    bool formula;      /* no line ends, no %3 */
    Token tok;         /* the current token */
    const char *error; /* the first mistake; from then on every token is TOK_end */
} Lexer;

void lex_init(Lexer *lx, Arena *arena, const char *text, size_t length, bool formula);
void lex_next(Lexer *lx);
/* Reports a mistake at the current token. */
void lex_fail(Lexer *lx, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "expected `what`, found <the current token>". */
void lex_expected(Lexer *lx, const char *what);
bool lex_is(const Lexer *lx, int punct);
bool lex_is_name(const Lexer *lx, const char *name);
/* Passes over the token if it is the wanted one. */
bool lex_accept(Lexer *lx, int punct);
bool lex_accept_name(Lexer *lx, const char *name);
/* The same; reports if it is not. */
bool lex_want(Lexer *lx, int punct);
bool lex_want_name(Lexer *lx, const char *name);
/* A line end (several count as one). */
bool lex_want_line(Lexer *lx);
/* An integer in [low, high]. */
bool lex_want_int(Lexer *lx, int64_t low, int64_t high, const char *what, int64_t *value);
bool lex_want_string(Lexer *lx, const char **value);
bool lex_want_dtype(Lexer *lx, DType *dt);
/* A literal of the given type (-3, 2.5, nan, true) without suffix; any dtype but str and complex.
 */
bool lex_want_scalar(Lexer *lx, DType dt, Scalar *value);
/* The number at hand, with or without suffix, as a value of `dt`. */
bool lex_number_value(Lexer *lx, bool minus, DType dt, Scalar *value);
/* The type of the word at hand if it is inf, nan, inf_f64, nan_f16, ...; else DT_none. */
DType lex_float_word(const Lexer *lx, bool *is_nan);
/* Its value; a nan may be followed by its bits (as of an f64) where they are not the usual ones.
 * False if the word at hand is none, or a nan after a minus. */
bool lex_float_value(Lexer *lx, bool minus, double *value);
/* f32[2, 3]; shape must hold MAX_RANK. */
bool lex_want_type(Lexer *lx, DType *dt, int *rank, int64_t *shape);

/* A literal as lex_want_scalar reads it; `typed`: as an expression, with the suffix it needs. */
void text_scalar(Text *out, DType dt, Scalar value, bool typed);
void text_string(Text *out, const char *string);
void text_type(Text *out, DType dt, int rank, const int64_t *shape);
void text_indent(Text *out, int indent);

/* Binding strength of an infix operator, as in C; 0 if it is none. */
int text_precedence(ExprOp op);

/* The parts of one line's expressions that are named by `let #n`. */
typedef struct Sharing Sharing;
/* Plans the names for n expressions that are printed together and prints the `let` lines. */
Sharing *sharing_plan(Text *out, const ExprScope *scope, int n, const Expr *const *e, int indent);
void sharing_print(Text *out, const Sharing *sharing, const ExprScope *scope, const Expr *e);

typedef struct ExprReader {
    Lexer *lx;
    Exprs *x;
    const ExprScope *scope; /* NULL: free, see text_expr */
    bool formula;           /* with these names instead of coordinates, loads and named parts */
    int n_names;
    const char *const *names;
    const Expr *const *values;
    /* state */
    int depth;
    VEC(const Expr *) shared;
    VEC(int) shared_height;
} ExprReader;

/* An expression from the current token on; NULL after a mistake. */
const Expr *read_expr(ExprReader *r);
/* Any number of lines `let #n = ...`. */
bool read_lets(ExprReader *r);
/* `[a, b]`: n expressions; index must hold MAX_RANK. Returns n, -1 on a mistake. */
int read_index(ExprReader *r, int n, const Expr **index);

/* A name as @name, or as a string if it is no identifier. */
void text_symbol(Text *out, const char *name);
bool lex_want_symbol(Lexer *lx, const char **name);
bool lex_want_end(Lexer *lx);

void text_graph_at(Text *out, const Graph *g, TextOptions options, int indent);
void text_kernel_at(Text *out, const Kernel *k, int indent);
/* `graph ... { ... }` and `kernel ... { ... }`; NULL after a mistake. */
Graph *read_graph(Lexer *lx, Arena *arena, Exprs *x, Diag *diag);
Kernel *read_kernel(Lexer *lx, Program *p);

#endif
