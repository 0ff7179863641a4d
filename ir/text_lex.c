/* Tokens of the IR text, and the small pieces that all its printers and readers use; see text.h. */
#include "ir/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- mistakes --------------------------------------------------------------------------------- */

void lex_fail(Lexer *lx, const char *format, ...) {
    if (lx->error) return;
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(lx->arena, format, args);
    va_end(args);
    lx->error =
        arena_printf(lx->arena, "line %d column %d: %s", lx->tok.line, lx->tok.column, text);
    lx->p = lx->end;
    lx->tok.kind = TOK_end;
}

/* The current token as a message shows it: short and printable. */
static const char *describe(const Lexer *lx) {
    const Token *t = &lx->tok;
    if (t->kind == TOK_end) return "the end of the text";
    if (t->kind == TOK_newline) return "the end of the line";
    char shown[40];
    size_t n = 0;
    for (; n < t->length && n < 24; n++)
        shown[n] = isprint((unsigned char)t->text[n]) ? t->text[n] : '?';
    shown[n] = 0;
    const char *mark = t->kind == TOK_string ? "\"" : "'";
    const char *begin = t->kind == TOK_hex ? "0x" : t->kind == TOK_symbol ? "@" : "";
    return arena_printf(lx->arena, "%s%s%s%s%s", mark, begin, shown, n < t->length ? "..." : "",
                        mark);
}

void lex_expected(Lexer *lx, const char *what) {
    if (!lx->error) lex_fail(lx, "expected %s, found %s", what, describe(lx));
}

/* --- tokens ----------------------------------------------------------------------------------- */

void lex_init(Lexer *lx, Arena *arena, const char *text, size_t length, bool formula) {
    *lx = (Lexer){.arena = arena,
                  .p = text,
                  .end = text + length,
                  .line_start = text,
                  .line = 1,
                  .formula = formula};
    lx->tok.kind = TOK_newline; /* so that leading empty lines are passed over */
    lex_next(lx);
}

static bool is_name_start(char c) {
    return isalpha((unsigned char)c) || c == '_';
}

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The character `ahead` places on; 0 past the end. */
static char peek(const Lexer *lx, size_t ahead) {
    return (size_t)(lx->end - lx->p) > ahead ? lx->p[ahead] : 0;
}

static void skip_digits(Lexer *lx) {
    while (is_digit(peek(lx, 0))) lx->p++;
}

/* Digits as an unsigned integer; false if it passes 64 bits. */
static bool digits_value(const char *p, const char *end, uint64_t *value) {
    *value = 0;
    for (; p < end; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (*value > (UINT64_MAX - digit) / 10) return false;
        *value = *value * 10 + digit;
    }
    return true;
}

/* %3, $3 or #3. */
static void lex_numbered(Lexer *lx, TokenKind kind) {
    const char *digits = ++lx->p;
    skip_digits(lx);
    lx->tok.kind = kind;
    if (!digits_value(digits, lx->p, &lx->tok.integer) || lx->tok.integer > INT32_MAX)
        lex_fail(lx, "the number is too large");
}

static void lex_number(Lexer *lx) {
    Token *t = &lx->tok;
    const char *start = lx->p;
    if (*start == '0' && peek(lx, 1) == 'x') {
        lx->p += 2;
        t->kind = TOK_hex;
        t->text = lx->p;
        while (isxdigit((unsigned char)peek(lx, 0))) lx->p++;
        return;
    }
    t->kind = TOK_int;
    skip_digits(lx);
    if (peek(lx, 0) == '.' && is_digit(peek(lx, 1))) {
        t->kind = TOK_float;
        lx->p++;
        skip_digits(lx);
    }
    bool sign = peek(lx, 1) == '+' || peek(lx, 1) == '-';
    if ((peek(lx, 0) == 'e' || peek(lx, 0) == 'E') && is_digit(peek(lx, sign ? 2 : 1))) {
        t->kind = TOK_float;
        lx->p += sign ? 2 : 1;
        skip_digits(lx);
    }
    char copy[400];
    size_t length = (size_t)(lx->p - start);
    if (length >= sizeof copy) {
        lex_fail(lx, "the number is too long");
        return;
    }
    memcpy(copy, start, length);
    copy[length] = 0;
    t->real = strtod(copy, NULL);
    if (t->kind == TOK_int && !digits_value(start, lx->p, &t->integer)) {
        lex_fail(lx, "the number is too large");
        return;
    }
    const char *suffix = lx->p;
    while (is_name_char(peek(lx, 0))) lx->p++;
    if (suffix == lx->p) return;
    t->suffix = dt_parse(suffix, (size_t)(lx->p - suffix));
    t->length = (size_t)(lx->p - start);
    if (t->suffix == DT_none) lex_expected(lx, "a number with an element type after it");
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static void lex_string(Lexer *lx) {
    Text content = text_new(lx->arena);
    text_add(&content, "");
    for (lx->p++; lx->p < lx->end && *lx->p != '"' && *lx->p != '\n'; lx->p++) {
        char c = *lx->p;
        if (c == '\\') {
            char escape = peek(lx, 1);
            if (escape == 'n') {
                c = '\n';
                lx->p++;
            } else if (escape == 'x' && hex_digit(peek(lx, 2)) >= 0 &&
                       hex_digit(peek(lx, 3)) >= 0) {
                c = (char)(hex_digit(peek(lx, 2)) * 16 + hex_digit(peek(lx, 3)));
                lx->p += 3;
            } else if (escape == '"' || escape == '\\') {
                c = escape;
                lx->p++;
            } else {
                lex_fail(lx, "a string has an escape other than \\n \\\" \\\\ \\xHH");
                return;
            }
        }
        if (!c) {
            lex_fail(lx, "a string holds a zero byte");
            return;
        }
        text_addn(&content, &c, 1);
    }
    if (peek(lx, 0) != '"') {
        lex_fail(lx, "a string does not end on its line");
        return;
    }
    lx->p++;
    lx->tok.kind = TOK_string;
    lx->tok.text = text_get(&content);
    lx->tok.length = content.length;
}

/* Passes blanks and comments, and line ends where they do not count; true if one counts. */
static bool skip_blanks(Lexer *lx) {
    bool line_end = false;
    for (; lx->p < lx->end; lx->p++) {
        if (*lx->p == ';') {
            while (lx->p < lx->end && *lx->p != '\n') lx->p++;
            if (lx->p == lx->end) break;
        }
        if (*lx->p == '\n') {
            if (lx->line < INT32_MAX) lx->line++;
            lx->line_start = lx->p + 1;
            line_end |= lx->open == 0 && !lx->formula;
        } else if (*lx->p != ' ' && *lx->p != '\t' && *lx->p != '\r') {
            break;
        }
    }
    return line_end;
}

static int column_of(const Lexer *lx) {
    ptrdiff_t column = lx->p - lx->line_start + 1;
    return column > INT32_MAX ? INT32_MAX : (int)column;
}

void lex_next(Lexer *lx) {
    static const char pairs[][3] = {"&&", "||", "==", "!=", "<=", ">=", "<<", ">>"};
    if (lx->error) return;
    TokenKind before = lx->tok.kind;
    int line = lx->line, column = column_of(lx);
    bool line_end = skip_blanks(lx) && before != TOK_newline;
    if (!line_end) line = lx->line, column = column_of(lx);
    lx->tok = (Token){.text = lx->p, .length = 1, .line = line, .column = column};
    Token *t = &lx->tok;
    if (line_end) {
        t->kind = TOK_newline;
        return;
    }
    if (lx->p >= lx->end) {
        t->kind = TOK_end;
        t->length = 0;
        return;
    }
    char c = *lx->p;
    if (is_name_start(c)) {
        while (is_name_char(peek(lx, 0))) lx->p++;
        t->kind = TOK_name;
        t->length = (size_t)(lx->p - t->text);
        return;
    }
    bool number_next = is_digit(peek(lx, 1));
    if (is_digit(c)) {
        lex_number(lx);
    } else if (c == '"') {
        lex_string(lx);
        return;
    } else if (number_next && c == '%' && !lx->formula) {
        lex_numbered(lx, TOK_value);
    } else if (number_next && c == '$') {
        lex_numbered(lx, TOK_load);
    } else if (number_next && c == '#') {
        lex_numbered(lx, TOK_shared);
    } else if (c == '@' && is_name_start(peek(lx, 1))) {
        lx->p++;
        t->text = lx->p;
        while (is_name_char(peek(lx, 0))) lx->p++;
        t->kind = TOK_symbol;
    } else {
        t->kind = TOK_punct;
        t->punct = PUNCT1((unsigned char)c);
        lx->p++;
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            if (c == pairs[i][0] && peek(lx, 0) == pairs[i][1]) {
                t->punct = PUNCT2(c, pairs[i][1]);
                lx->p++;
                break;
            }
        if (c == '(' || c == '[') lx->open++;
        if ((c == ')' || c == ']') && lx->open > 0) lx->open--;
    }
    if (!lx->error) t->length = (size_t)(lx->p - t->text);
}

/* --- expectations ----------------------------------------------------------------------------- */

bool lex_is(const Lexer *lx, int punct) {
    return lx->tok.kind == TOK_punct && lx->tok.punct == punct;
}

bool lex_is_name(const Lexer *lx, const char *name) {
    return lx->tok.kind == TOK_name && lx->tok.length == strlen(name) &&
           !memcmp(lx->tok.text, name, lx->tok.length);
}

bool lex_accept(Lexer *lx, int punct) {
    if (!lex_is(lx, punct)) return false;
    lex_next(lx);
    return true;
}

bool lex_accept_name(Lexer *lx, const char *name) {
    if (!lex_is_name(lx, name)) return false;
    lex_next(lx);
    return true;
}

bool lex_want(Lexer *lx, int punct) {
    if (lex_accept(lx, punct)) return !lx->error;
    char what[6] = {'\'', (char)punct, '\'', 0, 0, 0};
    if (punct > 255) memcpy(what, (char[]){'\'', (char)(punct >> 8), (char)punct, '\'', 0, 0}, 6);
    lex_expected(lx, what);
    return false;
}

bool lex_want_name(Lexer *lx, const char *name) {
    if (lex_accept_name(lx, name)) return !lx->error;
    lex_expected(lx, arena_printf(lx->arena, "'%s'", name));
    return false;
}

bool lex_want_line(Lexer *lx) {
    if (lx->tok.kind == TOK_newline) {
        lex_next(lx);
        return !lx->error;
    }
    lex_expected(lx, "the end of the line");
    return false;
}

bool lex_want_int(Lexer *lx, int64_t low, int64_t high, const char *what, int64_t *value) {
    bool minus = lex_accept(lx, '-');
    if (lx->tok.kind != TOK_int || lx->tok.suffix != DT_none) {
        lex_expected(lx, what);
        return false;
    }
    int64_t v = lx->tok.integer > INT64_MAX ? INT64_MAX : (int64_t)lx->tok.integer;
    if (minus) v = -v;
    if (v < low || v > high || lx->tok.integer > INT64_MAX) {
        lex_fail(lx, "expected %s from %lld to %lld", what, (long long)low, (long long)high);
        return false;
    }
    *value = v;
    lex_next(lx);
    return !lx->error;
}

bool lex_want_string(Lexer *lx, const char **value) {
    if (lx->tok.kind != TOK_string) {
        lex_expected(lx, "a string");
        return false;
    }
    *value = lx->tok.text;
    lex_next(lx);
    return !lx->error;
}

bool lex_want_dtype(Lexer *lx, DType *dt) {
    *dt = lx->tok.kind == TOK_name ? dt_parse(lx->tok.text, lx->tok.length) : DT_none;
    if (*dt == DT_none) {
        lex_expected(lx, "an element type");
        return false;
    }
    lex_next(lx);
    return !lx->error;
}

bool lex_want_type(Lexer *lx, DType *dt, int *rank, int64_t *shape) {
    if (!lex_want_dtype(lx, dt) || !lex_want(lx, '[')) return false;
    *rank = 0;
    if (lex_accept(lx, ']')) return !lx->error;
    do {
        if (*rank == MAX_RANK) {
            lex_fail(lx, "more than %d dimensions", MAX_RANK);
            return false;
        }
        if (!lex_want_int(lx, 0, INT32_MAX, "a dimension", &shape[*rank])) return false;
        ++*rank;
    } while (lex_accept(lx, ','));
    return lex_want(lx, ']');
}

DType lex_float_word(const Lexer *lx, bool *is_nan) {
    const Token *t = &lx->tok;
    if (t->kind != TOK_name || t->length < 3) return DT_none;
    *is_nan = !memcmp(t->text, "nan", 3);
    if (!*is_nan && memcmp(t->text, "inf", 3) != 0) return DT_none;
    if (t->length == 3) return DT_f32;
    DType dt = t->text[3] == '_' ? dt_parse(t->text + 4, t->length - 4) : DT_none;
    return dt_is_float(dt) ? dt : DT_none;
}

bool lex_float_value(Lexer *lx, bool minus, double *value) {
    bool is_nan;
    if (lex_float_word(lx, &is_nan) == DT_none || (is_nan && minus)) return false;
    lex_next(lx);
    *value = is_nan ? (double)NAN : minus ? -(double)INFINITY : (double)INFINITY;
    if (is_nan && lx->tok.kind == TOK_hex && lx->tok.length <= 16 && lx->tok.length > 0) {
        uint64_t raw = 0;
        for (size_t i = 0; i < lx->tok.length; i++)
            raw = raw << 4 | (uint64_t)hex_digit(lx->tok.text[i]);
        memcpy(value, &raw, sizeof raw);
        lex_next(lx);
    }
    return true;
}

bool lex_number_value(Lexer *lx, bool minus, DType dt, Scalar *value) {
    DKind kind = dt_kind(dt);
    const Token *t = &lx->tok;
    if ((t->kind != TOK_int && t->kind != TOK_float) || kind == DK_bool || kind == DK_complex ||
        kind == DK_string || (t->kind == TOK_float && kind != DK_float)) {
        lex_expected(lx, arena_printf(lx->arena, "a literal of type %s", dt_name(dt)));
        return false;
    }
    if (kind == DK_float) {
        *value = dt_cast(DT_f64, dt, (Scalar){.f = minus ? -t->real : t->real});
    } else {
        Scalar wide = {.i = (int64_t)(minus ? 0 - t->integer : t->integer)};
        *value = dt_cast(DT_i64, dt, wide);
        bool sign_fits = dt == DT_u64 ? !minus : t->integer <= (uint64_t)INT64_MAX + minus;
        if (!sign_fits || value->i != wide.i) {
            lex_fail(lx, "the number does not fit %s", dt_name(dt));
            return false;
        }
    }
    lex_next(lx);
    return !lx->error;
}

bool lex_want_scalar(Lexer *lx, DType dt, Scalar *value) {
    if (dt_kind(dt) == DK_bool && (lex_is_name(lx, "true") || lex_is_name(lx, "false"))) {
        value->i = lex_is_name(lx, "true");
        lex_next(lx);
        return !lx->error;
    }
    bool minus = dt_kind(dt) != DK_bool && lex_accept(lx, '-');
    bool typed = lx->tok.kind == TOK_name ? lx->tok.length > 3 : lx->tok.suffix != DT_none;
    if (dt_kind(dt) == DK_float && !typed && lex_float_value(lx, minus, &value->f))
        return !lx->error;
    if (typed) {
        lex_expected(lx, "a literal without a type");
        return false;
    }
    return lex_number_value(lx, minus, dt, value);
}

/* --- printing pieces -------------------------------------------------------------------------- */

static bool same_bits(double a, double b) {
    return !memcmp(&a, &b, sizeof a);
}

/* The shortest digits that give `value` again when rounded to `dt`; small integers as they are. */
static void add_float(Text *out, DType dt, double value) {
    if (value == floor(value) && fabs(value) < 1e7) {
        text_addf(out, "%.1f", value);
        return;
    }
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        Scalar back = {.f = strtod(digits, NULL)};
        if (same_bits(dt_cast(DT_f64, dt, back).f, value)) break;
    }
    text_add(out, digits);
    if (!strpbrk(digits, ".e")) text_add(out, ".0");
}

void text_scalar(Text *out, DType dt, Scalar value, bool typed) {
    const char *suffix = typed && dt != DT_f32 && dt != DT_i32 ? dt_name(dt) : "";
    switch (dt_kind(dt)) {
    case DK_bool:
        text_add(out, value.i ? "true" : "false");
        return;
    case DK_uint:
        text_addf(out, "%llu%s", (unsigned long long)value.i, suffix);
        return;
    case DK_sint:
        text_addf(out, "%lld%s", (long long)value.i, suffix);
        return;
    case DK_float:
        break;
    default:
        text_addf(out, "?%s", dt_name(dt));
        return;
    }
    if (isinf(value.f) || isnan(value.f)) {
        text_add(out, isnan(value.f) ? "nan" : value.f < 0 ? "-inf" : "inf");
        if (*suffix) text_addf(out, "_%s", suffix);
        uint64_t raw;
        memcpy(&raw, &value.f, sizeof raw);
        if (isnan(value.f) && !same_bits(value.f, (double)NAN))
            text_addf(out, " 0x%016llx", (unsigned long long)raw);
        return;
    }
    add_float(out, dt, value.f);
    text_add(out, suffix);
}

void text_string(Text *out, const char *string) {
    text_add(out, "\"");
    for (const char *p = string; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            text_addf(out, "\\%c", c);
        else if (c == '\n')
            text_add(out, "\\n");
        else if (c < 32 || c == 127)
            text_addf(out, "\\x%02x", c);
        else
            text_addn(out, p, 1);
    }
    text_add(out, "\"");
}

void text_type(Text *out, DType dt, int rank, const int64_t *shape) {
    text_addf(out, "%s[", dt_name(dt));
    for (int i = 0; i < rank; i++) text_addf(out, i ? ", %lld" : "%lld", (long long)shape[i]);
    text_add(out, "]");
}

void text_indent(Text *out, int indent) {
    text_addf(out, "%*s", indent, "");
}
