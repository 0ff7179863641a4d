/* Reading expressions: IR text and the formulas of the operator tables; see text.h and ex_formula.
 *
 * One precedence-climbing reader serves both. They differ in the leaves (coordinates, loads and
 * named parts, or given names) and in literals: IR text says each literal's type; in a formula a
 * literal is loose until it meets an operand, whose type it then takes. Loose literals are kept as
 * i64 or f64 constants and computed with as such, so `x * (2 / 3)` means what it says.
 */
#include "ir/text.h"
#include "ir/verify.h"

#include <math.h>
#include <string.h>

enum {
    MAX_DEPTH = 200,  /* brackets in brackets */
    MAX_HEIGHT = 4000 /* operators on operators, so that walks over what was read may recurse */
};

typedef struct Operand {
    const Expr *e;
    int height;
    bool loose;
} Operand;

static bool read_binary(ExprReader *r, int weakest, Operand *result);

static bool fail_at(Lexer *lx, const Token *at, const char *why) {
    if (!lx->error) {
        lx->tok = *at;
        lex_fail(lx, "%s", why);
    }
    return false;
}

/* --- types ------------------------------------------------------------------------------------ */

/* A loose literal as a literal of type `dt`. */
static bool settle(ExprReader *r, const Token *at, Operand *a, DType dt) {
    if (!a->loose) return true;
    a->loose = false;
    const Expr *e = a->e;
    bool is_int = e->dt == DT_i64;
    double real = is_int ? (double)e->k.i : e->k.f;
    if (dt_is_float(dt)) {
        a->e = ex_num(r->x, dt, real);
        return true;
    }
    bool whole = is_int || (real == floor(real) && fabs(real) < 9e15);
    Scalar wide = {.i = is_int ? e->k.i : whole ? (int64_t)real : 0};
    if (!dt_is_int(dt) || !whole || dt_cast(DT_i64, dt, wide).i != wide.i)
        return fail_at(r->lx, at,
                       arena_printf(r->lx->arena, "the literal does not fit type %s", dt_name(dt)));
    a->e = ex_int(r->x, dt, wide.i);
    return true;
}

/* The type of literals that meet no operand: the first name's if it can hold them, else f32 or i32.
 */
static DType natural_type(const ExprReader *r, const Operand *a) {
    DType first = r->n_names > 0 ? (DType)r->values[0]->dt : DT_none;
    bool is_int = a->e->dt == DT_i64;
    if (dt_is_float(first) || (is_int && dt_is_int(first))) return first;
    return is_int ? DT_i32 : DT_f32;
}

static void make_real(ExprReader *r, Operand *a) {
    if (a->loose) a->e = ex_cast(r->x, DT_f64, a->e);
}

/* Brings loose operands to the type of the others; if all are loose, to one loose type. */
static bool agree(ExprReader *r, const Token *at, int n, Operand *a) {
    bool real = false;
    for (int i = 0; i < n; i++) {
        real |= a[i].e->dt == DT_f64;
        if (a[i].loose) continue;
        for (int k = 0; k < n; k++)
            if (!settle(r, at, &a[k], (DType)a[i].e->dt)) return false;
        return true;
    }
    for (int i = 0; i < n && real; i++) make_real(r, &a[i]);
    return true;
}

/* --- building --------------------------------------------------------------------------------- */

static bool whole_operator(ExprOp op) {
    return op == EX_neg || op == EX_abs || op == EX_bnot || (op >= EX_add && op <= EX_rem) ||
           op == EX_min || op == EX_max || (op >= EX_band && op <= EX_le);
}

/* `op` of n operands (cast, bits: to type `to`), checked. */
static bool apply(ExprReader *r, const Token *at, ExprOp op, DType to, int n, Operand *a,
                  Operand *result) {
    Exprs *x = r->x;
    DType types[3] = {DT_none, DT_none, DT_none};
    Operand *first = op == EX_select ? a + 1 : a;
    int same = n - (op == EX_select);
    if (op == EX_cast && a[0].loose && dt_kind(to) != DK_bool) {
        *result = a[0];
        return settle(r, at, result, to);
    }
    if (!agree(r, at, same, first)) return false;
    bool loose = first->loose;
    if (loose && (op == EX_select || op == EX_bits)) {
        for (int i = 0; i < same; i++)
            if (!settle(r, at, &first[i], natural_type(r, &first[i]))) return false;
        loose = false;
    }
    if (loose && (!whole_operator(op) || op == EX_div))
        for (int i = 0; i < same; i++) make_real(r, &first[i]);
    int height = 0;
    for (int i = 0; i < n; i++) {
        types[i] = (DType)a[i].e->dt;
        if (a[i].height > height) height = a[i].height;
    }
    const char *why = NULL;
    if (expr_type(r->lx->arena, op, to, types, false, &why) == DT_none)
        return fail_at(r->lx, at, why);
    if (++height > MAX_HEIGHT) return fail_at(r->lx, at, "the expression is too deep");
    const Expr *e = op == EX_select ? ex_select(x, a[0].e, a[1].e, a[2].e)
                    : op == EX_cast ? ex_cast(x, to, a[0].e)
                    : op == EX_bits ? ex_bits(x, to, a[0].e)
                    : n == 1        ? ex_un(x, op, a[0].e)
                                    : ex_bin(x, op, a[0].e, a[1].e);
    *result = (Operand){e, height, loose && ex_is_const(e) && e->dt != DT_bool};
    return true;
}

/* --- leaves ----------------------------------------------------------------------------------- */

static bool leaf(Operand *result, const Expr *e) {
    *result = (Operand){e, 0, false};
    return true;
}

/* inf, nan or a number, after a minus or not. False without an error: none of them stands here. */
static bool read_literal(ExprReader *r, bool minus, Operand *result) {
    Lexer *lx = r->lx;
    bool is_nan, number = lx->tok.kind == TOK_int || lx->tok.kind == TOK_float;
    DType word = lex_float_word(lx, &is_nan);
    if ((!number && word == DT_none) || (word != DT_none && is_nan && minus)) return false;
    bool loose = r->formula && (number ? lx->tok.suffix == DT_none : lx->tok.length == 3);
    DType dt = !number                     ? word
               : lx->tok.suffix != DT_none ? lx->tok.suffix
               : lx->tok.kind == TOK_float ? DT_f32
                                           : DT_i32;
    if (loose) dt = lx->tok.kind == TOK_int ? DT_i64 : DT_f64;
    Scalar value = {0};
    if (number ? !lex_number_value(lx, minus, dt, &value) : !lex_float_value(lx, minus, &value.f))
        return false;
    *result = (Operand){ex_const(r->x, dt, value), 0, loose};
    return true;
}

/* The number in a name such as i3 or ctr0 behind `prefix`; -1 if the name is none. */
static int numbered_name(const Token *t, const char *prefix) {
    size_t n = strlen(prefix);
    if (t->length <= n || t->length > n + 5 || memcmp(t->text, prefix, n) != 0) return -1;
    int number = 0;
    for (size_t i = n; i < t->length; i++) {
        if (t->text[i] < '0' || t->text[i] > '9') return -1;
        number = number * 10 + (t->text[i] - '0');
    }
    bool leading_zero = t->text[n] == '0' && t->length > n + 1;
    return leading_zero ? -1 : number;
}

/* `:f32` after a leaf. */
static bool read_annotation(ExprReader *r, DType *dt) {
    return !lex_accept(r->lx, ':') || lex_want_dtype(r->lx, dt);
}

/* A coordinate; `number` of them all. */
static bool read_var(ExprReader *r, int number, DType dt, Operand *result) {
    if (r->scope && !r->scope->kernel && number >= r->scope->n_vars) {
        lex_fail(r->lx, "there are only %d coordinates here", r->scope->n_vars);
        return false;
    }
    lex_next(r->lx);
    if (!read_annotation(r, &dt)) return false;
    return leaf(result, ex_var_of(r->x, number, dt));
}

static bool same_name(const Token *t, const char *name) {
    return !strncmp(name, t->text, t->length) && name[t->length] == 0;
}

static int find_kernel_var(const Kernel *k, const Token *t) {
    for (int i = 0; i < k->vars.n; i++)
        if (same_name(t, k->vars.items[i].name)) return i;
    return -1;
}

static int find_kernel_buffer(const Kernel *k, const Token *t) {
    for (int i = 0; i < k->buffers.n; i++)
        if (same_name(t, k->buffers.items[i]->name)) return i;
    return -1;
}

/* `[a, b]` with up to MAX_RANK expressions. */
static bool read_indices(ExprReader *r, const Expr **index, int *n, int *height) {
    Lexer *lx = r->lx;
    *n = *height = 0;
    if (!lex_want(lx, '[')) return false;
    if (lex_accept(lx, ']')) return !lx->error;
    do {
        Operand at;
        if (*n == MAX_RANK) {
            lex_fail(lx, "more than %d indices", MAX_RANK);
            return false;
        }
        if (!read_binary(r, 1, &at)) return false;
        index[(*n)++] = at.e;
        if (at.height > *height) *height = at.height;
    } while (lex_accept(lx, ','));
    return lex_want(lx, ']');
}

int read_index(ExprReader *r, int n, const Expr **index) {
    int count, height;
    const Token at = r->lx->tok;
    if (!read_indices(r, index, &count, &height)) return -1;
    if (count == n) return count;
    fail_at(r->lx, &at, arena_printf(r->lx->arena, "expected %d indices, found %d", n, count));
    return -1;
}

/* The indices of a load whose source was read. */
static bool read_load(ExprReader *r, int source, DType dt, Operand *result) {
    Lexer *lx = r->lx;
    const Expr *index[MAX_RANK];
    int n, height;
    if (!read_annotation(r, &dt)) return false;
    if (dt == DT_none) {
        lex_fail(lx, "'$%d' is no input here: it needs a type, as in $%d:f32[...]", source, source);
        return false;
    }
    if (!read_indices(r, index, &n, &height)) return false;
    if (++height > MAX_HEIGHT) {
        lex_fail(lx, "the expression is too deep");
        return false;
    }
    *result = (Operand){ex_load(r->x, dt, source, n, index), height, false};
    return true;
}

/* A name that is neither a function nor a literal, in IR text. */
static bool read_name(ExprReader *r, Operand *result) {
    Lexer *lx = r->lx;
    const Token t = lx->tok;
    const Kernel *kernel = r->scope ? r->scope->kernel : NULL;
    int number;
    if (kernel) {
        Lexer ahead = *lx;
        lex_next(&ahead);
        bool indexed = lex_is(&ahead, '[') || lex_is(&ahead, ':');
        if (indexed && (number = find_kernel_buffer(kernel, &t)) >= 0) {
            lex_next(lx);
            return read_load(r, number, kernel->buffers.items[number]->dt, result);
        }
        if ((number = find_kernel_var(kernel, &t)) >= 0)
            return read_var(r, number, kernel->vars.items[number].dt, result);
    } else {
        if ((number = numbered_name(&t, "i")) >= 0 && (!r->scope || number < r->scope->rank))
            return read_var(r, number, DT_i32, result);
        if (r->scope && (number = numbered_name(&t, "r")) >= 0)
            return read_var(r, r->scope->rank + number, DT_i32, result);
    }
    if ((number = numbered_name(&t, "ctr")) >= 0) {
        lex_next(lx);
        return leaf(result, ex_ctr(r->x, number));
    }
    if (lex_is_name(lx, "acc")) {
        DType dt = r->scope ? r->scope->acc : DT_none;
        lex_next(lx);
        if (!read_annotation(r, &dt)) return false;
        if (dt == DT_none) return fail_at(lx, &t, "'acc' has no type here: write acc:f32 or such");
        return leaf(result, ex_acc(r->x, dt));
    }
    lex_expected(lx, kernel ? "a variable, a buffer or a number" : "a coordinate or a number");
    return false;
}

static bool read_formula_name(ExprReader *r, Operand *result) {
    for (int i = 0; i < r->n_names; i++)
        if (same_name(&r->lx->tok, r->names[i])) {
            lex_next(r->lx);
            return leaf(result, r->values[i]);
        }
    lex_expected(r->lx, "a known name");
    return false;
}

/* --- operators -------------------------------------------------------------------------------- */

static ExprOp find_function(const Token *t) {
    for (int op = 0; op < EX_count; op++)
        if (ex_arity((ExprOp)op) > 0 && same_name(t, ex_name((ExprOp)op))) return (ExprOp)op;
    return EX_count;
}

/* name(...); the name is current and a bracket follows. */
static bool read_call(ExprReader *r, Operand *result) {
    Lexer *lx = r->lx;
    const Token at = lx->tok;
    ExprOp op = find_function(&at);
    if (op == EX_count) {
        lex_expected(lx, "the name of a function");
        return false;
    }
    lex_next(lx);
    if (!lex_want(lx, '(')) return false;
    DType to = DT_none;
    if (op == EX_cast || op == EX_bits)
        if (!lex_want_dtype(lx, &to) || !lex_want(lx, ',')) return false;
    Operand a[3];
    int arity = ex_arity(op), n = 0;
    bool any = op == EX_min || op == EX_max;
    do {
        if (n == arity) { /* min(a, b, c) is min(min(a, b), c) */
            if (!apply(r, &at, op, to, n, a, &a[0])) return false;
            n = 1;
        }
        if (!read_binary(r, 1, &a[n])) return false;
        n++;
    } while ((any || n < arity) && lex_accept(lx, ','));
    if (n != arity || !lex_is(lx, ')')) {
        lex_expected(lx, n == arity ? "')'" : "','");
        return false;
    }
    lex_next(lx);
    return apply(r, &at, op, to, n, a, result);
}

static bool read_primary(ExprReader *r, Operand *result) {
    Lexer *lx = r->lx;
    const Token t = lx->tok;
    if (t.kind == TOK_name) {
        Lexer ahead = *lx;
        lex_next(&ahead);
        if (lex_is(&ahead, '(')) return read_call(r, result);
        for (int i = 0; r->formula && i < r->n_names; i++)
            if (same_name(&t, r->names[i])) return read_formula_name(r, result);
        if (read_literal(r, false, result)) return true;
        if (lx->error) return false;
        if (lex_is_name(lx, "true") || lex_is_name(lx, "false")) {
            bool yes = lex_accept_name(lx, "true") || !lex_accept_name(lx, "false");
            return leaf(result, ex_int(r->x, DT_bool, yes));
        }
        return r->formula ? read_formula_name(r, result) : read_name(r, result);
    }
    if (t.kind == TOK_int || t.kind == TOK_float) return read_literal(r, false, result);
    if (lex_accept(lx, '(')) return read_binary(r, 1, result) && lex_want(lx, ')');
    if (t.kind == TOK_load && !r->formula) {
        int source = (int)t.integer;
        DType dt = DT_none;
        if (r->scope && !r->scope->kernel && source < r->scope->n_in) dt = r->scope->in[source]->dt;
        lex_next(lx);
        return read_load(r, source, dt, result);
    }
    if (t.kind == TOK_shared && !r->formula) {
        if (t.integer >= (uint64_t)r->shared.n) {
            lex_fail(lx, "no 'let #%d' stands before", (int)t.integer);
            return false;
        }
        *result = (Operand){r->shared.items[t.integer], r->shared_height.items[t.integer], false};
        lex_next(lx);
        return true;
    }
    lex_expected(lx, "an expression");
    return false;
}

static bool read_unary(ExprReader *r, Operand *result) {
    Lexer *lx = r->lx;
    const Token at = lx->tok;
    ExprOp op = lex_is(lx, '-')   ? EX_neg
                : lex_is(lx, '!') ? EX_not
                : lex_is(lx, '~') ? EX_bnot
                                  : EX_count;
    if (op == EX_count) return read_primary(r, result);
    if (r->depth >= MAX_DEPTH) return fail_at(lx, &at, "the expression nests too deeply");
    lex_next(lx);
    if (op == EX_neg && read_literal(r, true, result)) return true;
    if (lx->error) return false;
    r->depth++;
    Operand a;
    bool ok = read_unary(r, &a) && apply(r, &at, op, DT_none, 1, &a, result);
    r->depth--;
    return ok;
}

/* The infix operator at hand, EX_count if there is none. `swap`: its operands are to be exchanged.
 */
static ExprOp infix_operator(const Lexer *lx, bool *swap) {
    *swap = lex_is(lx, '>') || lex_is(lx, PUNCT2('>', '='));
    if (*swap) return lex_is(lx, '>') ? EX_lt : EX_le;
    for (int op = 0; op < EX_count && lx->tok.kind == TOK_punct; op++) {
        const char *text = ex_infix((ExprOp)op);
        if (*text && lex_is(lx, text[1] ? PUNCT2(text[0], text[1]) : PUNCT1(text[0])))
            return (ExprOp)op;
    }
    return EX_count;
}

/* An expression of operators that bind at least as strongly as `weakest`. */
static bool read_binary(ExprReader *r, int weakest, Operand *result) {
    Lexer *lx = r->lx;
    if (++r->depth > MAX_DEPTH) {
        lex_fail(lx, "the expression nests too deeply");
        return false;
    }
    bool ok = read_unary(r, result);
    while (ok) {
        bool swap;
        const Token at = lx->tok;
        ExprOp op = infix_operator(lx, &swap);
        if (op == EX_count || text_precedence(op) < weakest) break;
        lex_next(lx);
        Operand a[2];
        a[swap] = *result;
        ok = read_binary(r, text_precedence(op) + 1, &a[!swap]) &&
             apply(r, &at, op, DT_none, 2, a, result);
    }
    r->depth--;
    return ok;
}

/* --- whole expressions ------------------------------------------------------------------------ */

static bool read_whole(ExprReader *r, Operand *result) {
    const Token at = r->lx->tok;
    return read_binary(r, 1, result) && settle(r, &at, result, natural_type(r, result)) &&
           !r->lx->error;
}

const Expr *read_expr(ExprReader *r) {
    Operand result;
    return read_whole(r, &result) ? result.e : NULL;
}

bool read_lets(ExprReader *r) {
    Lexer *lx = r->lx;
    while (lex_is_name(lx, "let")) {
        Lexer ahead = *lx;
        lex_next(&ahead);
        if (ahead.tok.kind != TOK_shared) break;
        *lx = ahead;
        if (lx->tok.integer != (uint64_t)r->shared.n) {
            lex_fail(lx, "expected #%d: they are numbered in order", r->shared.n);
            return false;
        }
        lex_next(lx);
        Operand part;
        if (!lex_want(lx, '=') || !read_whole(r, &part) || !lex_want_line(lx)) return false;
        vec_push(lx->arena, &r->shared, part.e);
        vec_push(lx->arena, &r->shared_height, part.height);
    }
    return !lx->error;
}

const Expr *parse_expr(Exprs *x, Diag *diag, const ExprScope *scope, const char *text,
                       size_t length) {
    Lexer lx;
    lex_init(&lx, x->arena, text, length, false);
    ExprReader r = {.lx = &lx, .x = x, .scope = scope};
    const Expr *e = read_lets(&r) ? read_expr(&r) : NULL;
    if (lex_want_end(&lx)) return e;
    diag_error(diag, E5001, "%s", lx.error);
    return NULL;
}

const Expr *ex_formula(Exprs *x, const char *text, int n, const char *const *names,
                       const Expr *const *values, const char **error) {
    Lexer lx;
    lex_init(&lx, x->arena, text, strlen(text), true);
    ExprReader r = {
        .lx = &lx, .x = x, .formula = true, .n_names = n, .names = names, .values = values};
    const Expr *e = read_expr(&r);
    if (!lx.error && lx.tok.kind != TOK_end) lex_expected(&lx, "the end of the formula");
    if (!lx.error) return e;
    *error = lx.error;
    return NULL;
}
