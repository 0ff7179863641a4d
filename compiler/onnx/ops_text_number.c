/* Cast between numbers and strings, in the arithmetic of 64-bit integers that every target has.
 *
 * A float becomes the shortest decimal number that reads back as the same float, written as NumPy
 * writes it; the digits are found by the method of Giulietti ("The Schubfach way to render
 * doubles"). A string becomes the float nearest to it, by the method of Lemire ("Number parsing at
 * a gigabyte per second"), from its first 19 digits. Both multiply by a power of ten of 128 bits
 * from a table. What is no number gives whatever its digits do; ONNX leaves it undefined.
 */
#include "compiler/onnx/text.h"
#include "compiler/onnx/text_number.h"

#include <stdarg.h>
#include <string.h>

/* --- powers of ten ---------------------------------------------------------------------------- */

#define LEAST_POWER (-342)
#define MOST_POWER  324
#define N_POWERS    (MOST_POWER - LEAST_POWER + 1)
#define BIG_WORDS   80 /* of 32 bits; 2^2200 / 5^342 has more than 128 bits left */

typedef struct Power {
    uint64_t high, low; /* of the first 128 bits, rounded down */
    bool exact;
} Power;

/* The first 128 bits of a number of BIG_WORDS words, lowest first. */
static Power first_bits(const uint32_t *big, bool exact) {
    int top = BIG_WORDS - 1, shift = 0;
    while (!big[top]) top--;
    while (!(big[top] << shift >> 31)) shift++;
    uint64_t half[2] = {0};
    for (int i = 0; i < 4; i++) {
        uint64_t word = top - i >= 0 ? (uint64_t)big[top - i] << 32 : 0;
        if (top - i - 1 >= 0) word |= big[top - i - 1];
        half[i / 2] = half[i / 2] << 32 | (word << shift >> 32);
    }
    for (int i = 0; i < top - 3; i++) exact &= big[i] == 0;
    if (top >= 4 && shift) exact &= (uint32_t)(big[top - 4] << shift) == 0;
    return (Power){half[0], half[1], exact};
}

/* 10^k has the bits of 5^k. */
static void fill_powers(Power *powers) {
    uint32_t big[BIG_WORDS] = {1};
    for (int k = 0; k <= MOST_POWER; k++) {
        powers[k - LEAST_POWER] = first_bits(big, true);
        uint64_t carry = 0;
        for (int i = 0; i < BIG_WORDS; i++) {
            carry += (uint64_t)big[i] * 5;
            big[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    memset(big, 0, sizeof big);
    big[BIG_WORDS - 1] = 1;
    for (int k = -1; k >= LEAST_POWER; k--) {
        uint64_t rest = 0;
        for (int i = BIG_WORDS - 1; i >= 0; i--) {
            rest = rest << 32 | big[i];
            big[i] = (uint32_t)(rest / 5);
            rest %= 5;
        }
        powers[k - LEAST_POWER] = first_bits(big, false);
    }
}

typedef enum Rounding { ROUND_down, ROUND_up, ROUND_up_small } Rounding;

/* Two tables u64 [N_POWERS]. Up: to the next number if it is not exact; small: only from 10^-27 to
 * 10^-1, as reading wants it. */
static void power_tables(Graph *g, Rounding rounding, Value **high, Value **low) {
    Power *powers = ARENA_ARRAY(g->arena, N_POWERS, Power);
    uint64_t *half[2] = {ARENA_ARRAY(g->arena, N_POWERS, uint64_t),
                         ARENA_ARRAY(g->arena, N_POWERS, uint64_t)};
    fill_powers(powers);
    for (int i = 0; i < N_POWERS; i++) {
        int k = i + LEAST_POWER;
        bool up = rounding == ROUND_up ? !powers[i].exact
                                       : rounding == ROUND_up_small && k >= -27 && k < 0;
        half[1][i] = powers[i].low + up;
        half[0][i] = powers[i].high + (up && !half[1][i]);
    }
    int64_t shape[1] = {N_POWERS};
    *high = graph_const(g, DT_u64, 1, shape, half[0]);
    *low = graph_const(g, DT_u64, 1, shape, half[1]);
}

/* --- formulas --------------------------------------------------------------------------------- */

/* A formula of up to eight expressions a, b, c ... None depends on the model, so none can fail. */
static const Expr *calc(Exprs *x, const char *formula, ...) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const Expr *value[8];
    const char *error = "";
    int n = 0;
    va_list args;
    va_start(args, formula);
    for (const Expr *e; n < 8 && (e = va_arg(args, const Expr *));) value[n++] = e;
    va_end(args);
    return ex_formula(x, formula, n, names, value, &error);
}
#define CALC(...) calc(x, __VA_ARGS__, (const Expr *)NULL)

/* The high half of a product of two u64. */
static const Expr *high_half(Exprs *x, const Expr *a, const Expr *b) {
    const Expr *mask = ex_int(x, DT_u64, 0xffffffff), *shift = ex_int(x, DT_u64, 32);
    const Expr *al = ex_bin(x, EX_band, a, mask), *ah = ex_bin(x, EX_shr, a, shift);
    const Expr *bl = ex_bin(x, EX_band, b, mask), *bh = ex_bin(x, EX_shr, b, shift);
    const Expr *u = ex_add(x, ex_mul(x, ah, bl), ex_bin(x, EX_shr, ex_mul(x, al, bl), shift));
    const Expr *v = ex_add(x, ex_mul(x, al, bh), ex_bin(x, EX_band, u, mask));
    return ex_add(x, ex_mul(x, ah, bh),
                  ex_add(x, ex_bin(x, EX_shr, u, shift), ex_bin(x, EX_shr, v, shift)));
}

/* The element of a table [n] at an i32, brought inside. */
static const Expr *look_up(Builder *b, Value *table, const Expr *at) {
    Exprs *x = b->x;
    at = ex_bin(x, EX_max, at, ex_i(x, 0));
    at = ex_bin(x, EX_min, at, ex_i(x, table->dims[0] - 1));
    return build_load(b, table, &at);
}

/* 1, 10, 100 ... 10^19. */
static Value *small_powers(Graph *g) {
    int64_t shape[1] = {20};
    uint64_t *p = ARENA_ARRAY(g->arena, 20, uint64_t);
    p[0] = 1;
    for (int i = 1; i < 20; i++) p[i] = p[i - 1] * 10;
    return graph_const(g, DT_u64, 1, shape, p);
}

/* --- digits ----------------------------------------------------------------------------------- */

/* Number of decimal digits of v (u64), 1 for 0; i32. */
static Value *count_digits(Graph *g, Value *v) {
    Exprs *x = g->x;
    Value *powers = small_powers(g);
    Builder b = build(g, v->rank, v->dims);
    const Expr *i = build_red(&b, 20), *own = build_in(&b, v);
    const Expr *reached = ex_le(x, build_load(&b, powers, &i), own);
    return build_reduce(&b, DT_i32, COMBINE_max,
                        ex_select(x, reached, ex_add(x, i, ex_i(x, 1)), ex_i(x, 1)), NULL);
}

/* The coordinates of the string of an output's byte as an operand of lower rank. */
static const Expr *of_string(Builder *b, Value *v) {
    const Expr *at[MAX_RANK];
    for (int i = 0; i < v->rank; i++) at[i] = ex_var(b->x, i);
    return build_load(b, v, at);
}

/* The digit (as a character) of v, that has `count` digits, number `place` from the left. */
static const Expr *digit_at(Builder *b, Value *powers, const Expr *v, const Expr *count,
                            const Expr *place) {
    Exprs *x = b->x;
    const Expr *power = look_up(b, powers, CALC("a - 1 - b", count, place));
    const Expr *digit = ex_bin(x, EX_rem, ex_div(x, v, power), ex_int(x, DT_u64, 10));
    return ex_add(x, ex_cast(x, DT_i32, digit), ex_i(x, '0'));
}

/* The character of a word of three at place `w`; 0 elsewhere. */
static const Expr *spelt(Exprs *x, const char *word, const Expr *w) {
    const Expr *text = ex_i(x, 0);
    for (int c = 0; c < 3; c++)
        text = ex_select(x, ex_bin(x, EX_eq, w, ex_i(x, c)), ex_i(x, word[c]), text);
    return text;
}

/* --- numbers to strings ----------------------------------------------------------------------- */

static Value *whole_to_text(Node *n, Value *v) {
    Exprs *x = n->x;
    Graph *g = n->g;
    bool sign = dt_kind(v->dt) == DK_sint;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++) shape[i] = v->dims[i];
    shape[v->rank] = dt_store(v->dt) == 8 ? 20 : dt_store(v->dt) == 4 ? 11 : 6;
    Builder b = build(g, v->rank, v->dims);
    const Expr *own = ex_cast(x, dt_reg(v->dt), build_in(&b, v)), *wide = ex_cast(x, DT_u64, own);
    const Expr *less = sign ? CALC("a < 0", own) : ex_int(x, DT_bool, 0);
    Value *size = build_map(&b, DT_u64, CALC("select(b, 0 - a, a)", wide, less));
    Value *negative = build_map(&b, DT_i32, CALC("cast(i32, a)", less));
    Value *count = count_digits(g, size), *powers = small_powers(g);
    b = build(g, v->rank + 1, shape);
    const Expr *start = of_string(&b, negative), *digits = of_string(&b, count);
    const Expr *place = ex_sub(x, ex_var(x, v->rank), start);
    const Expr *digit = digit_at(&b, powers, of_string(&b, size), digits, place);
    return build_map(&b, DT_u8,
                     CALC("select(a < 0, 45, select(a < b, c, 0))", place, digits, digit));
}

static Value *bool_to_text(Node *n, Value *v) {
    static const OnnxString names[2] = {{"False", 5}, {"True", 4}};
    int64_t shape[1] = {2};
    return text_pick(n->g, text_const(n->g, 1, shape, names), g_cast(n->g, v, DT_i32));
}

/* The shortest decimal number digits * 10^power of a float that is neither 0 nor special. */
static void shortest(Graph *g, Value *v, Value **digits, Value **power) {
    Exprs *x = g->x;
    bool big = v->dt == DT_f64, half = v->dt == DT_f16, brain = v->dt == DT_bf16;
    int mantissa = big ? 52 : half ? 10 : brain ? 7 : 23, width = dt_bits(v->dt);
    int bias = big ? 1075 : half ? 25 : brain ? 134 : 150;
    Value *high, *low;
    power_tables(g, ROUND_up, &high, &low);
    Builder b = build(g, v->rank, v->dims);
    DType unsigned_type = big ? DT_u64 : width == 16 ? DT_u16 : DT_u32;
    const Expr *bits = ex_cast(x, DT_u64, ex_bits(x, unsigned_type, build_in(&b, v)));
    const Expr *m = ex_int(x, DT_u64, mantissa), *one = ex_int(x, DT_u64, 1);
    const Expr *hidden = ex_int(x, DT_u64, (int64_t)1 << mantissa);
    const Expr *field = ex_bin(x, EX_band, bits, ex_sub(x, hidden, one));
    const Expr *stored = ex_bin(x, EX_band, ex_bin(x, EX_shr, bits, m),
                                ex_int(x, DT_u64, ((int64_t)1 << (width - 1 - mantissa)) - 1));
    const Expr *normal = CALC("a != 0", stored);
    const Expr *c = CALC("select(a, b + c, b)", normal, field, hidden);
    const Expr *q = CALC("select(a, cast(i32, b), 1) - c", normal, stored, ex_i(x, bias));
    const Expr *even = CALC("a % 2 == 0", c);
    /* the float below a power of two is nearer */
    const Expr *near = CALC("a == 0 && b > 1", field, stored);
    const Expr *left = CALC("select(b, 4 * a - 1, 4 * a - 2)", c, near), *mid = CALC("4 * a", c);
    const Expr *right = CALC("4 * a + 2", c);
    /* floor(log10(2^q)), or of 3/4 of it; floor(log2(10^-k)) */
    const Expr *shift = ex_i(x, 22),
               *log = CALC("select(b, a * 1262611 - 524031, a * 1262611)", q, near);
    const Expr *k = ex_bin(x, EX_shr, log, shift);
    const Expr *log2 = ex_bin(x, EX_shr, CALC("a * -1741647", k), ex_i(x, 19));
    const Expr *h = CALC("cast(u64, a + b + 1)", q, log2);
    const Expr *row = CALC("a - b", ex_i(x, -LEAST_POWER), k);
    const Expr *g1 = look_up(&b, high, row), *g0 = look_up(&b, low, row);
    const Expr *rounded[3], *from[3] = {left, mid, right};
    for (int i = 0; i < 3; i++) { /* from * power, rounded to odd */
        const Expr *cp = ex_bin(x, EX_shl, from[i], h);
        const Expr *middle = CALC("a * b + c", g1, cp, high_half(x, g0, cp));
        const Expr *carry = CALC("select(a < b, 1, 0)", middle, CALC("a * b", g1, cp));
        const Expr *top = CALC("a + cast(u64, b)", high_half(x, g1, cp), carry);
        rounded[i] = ex_bin(x, EX_bor, top, CALC("select(a > 1, b, b - b)", middle, one));
    }
    const Expr *lower = CALC("select(b, a, a + 1)", rounded[0], even);
    const Expr *upper = CALC("select(b, a, a - 1)", rounded[2], even), *vb = rounded[1];
    const Expr *s = CALC("a / 4", vb), *sp = CALC("a / 10", s);
    const Expr *up_in = CALC("a <= 40 * b", lower, sp),
               *wp_in = CALC("40 * a + 40 <= b", sp, upper);
    const Expr *u_in = CALC("a <= 4 * b", lower, s), *w_in = CALC("4 * a + 4 <= b", s, upper);
    const Expr *tens = CALC("a >= 10 && b != c", s, up_in, wp_in);
    const Expr *round = CALC("a > 4 * b + 2 || (a == 4 * b + 2 && b % 2 == 1)", vb, s);
    const Expr *units = CALC("select(a != b, b, c)", u_in, w_in, round);
    const Expr *result =
        CALC("select(a, select(c, b + 1, b), select(e, d + 1, d))", tens, sp, wp_in, s, units);
    *digits = build_map(&b, DT_u64, result);
    *power = build_map(&b, DT_i32, CALC("select(b, a + 1, a)", k, tens));
}

/* Takes zeros at the end off the digits. */
static void strip(Graph *g, Value **digits, Value **power) {
    Exprs *x = g->x;
    Value *powers = small_powers(g);
    Builder b = build(g, (*digits)->rank, (*digits)->dims);
    const Expr *i = build_red(&b, 18),
               *rest = CALC("a % b", build_in(&b, *digits), build_load(&b, powers, &i));
    Value *zeros_at_end =
        build_reduce(&b, DT_i32, COMBINE_max, CALC("select(a == 0, b, 0)", rest, i), NULL);
    b = build(g, (*digits)->rank, (*digits)->dims);
    const Expr *drop = build_in(&b, zeros_at_end);
    Value *shorter =
        build_map(&b, DT_u64, ex_div(x, build_in(&b, *digits), look_up(&b, powers, drop)));
    b = build(g, (*digits)->rank, (*digits)->dims);
    *power = build_map(&b, DT_i32, CALC("a + b", build_in(&b, *power), build_in(&b, zeros_at_end)));
    *digits = shorter;
}

/* Digits with a point, "0.001" or "120.0", or with an exponent, "1.5e-05"; as NumPy 2 chooses. */
static Value *float_to_text(Node *n, Value *v) {
    Exprs *x = n->x;
    Graph *g = n->g;
    if (dt_is_narrow(v->dt) && v->dt != DT_f16 && v->dt != DT_bf16) v = g_cast(g, v, DT_f32);
    Value *digits, *power;
    shortest(g, v, &digits, &power);
    strip(g, &digits, &power);
    Value *count = count_digits(g, digits), *powers = small_powers(g);
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++) shape[i] = v->dims[i];
    shape[v->rank] = v->dt == DT_f64 ? 24 : 16;
    double most = v->dt == DT_f64 ? 1e16 : v->dt == DT_f32 || v->dt == DT_bf16 ? 1e6 : 1e3;
    Builder b = build(g, v->rank, v->dims);
    const Expr *size = ex_un(x, EX_abs, ex_cast(x, DT_f64, build_in(&b, v)));
    const Expr *zero = ex_num(x, DT_f64, 0);
    const Expr *plain = CALC("a == b || (a >= c && a < d)", size, zero, ex_num(x, DT_f64, 1e-4),
                             ex_num(x, DT_f64, most));
    Value *is_plain = build_map(&b, DT_bool, plain);
    DType same = v->dt == DT_f64 ? DT_i64 : dt_bits(v->dt) == 16 ? DT_i16 : DT_i32;
    b = build(g, v->rank, v->dims);
    const Expr *sign = ex_cast(x, dt_reg(same), ex_bits(x, same, build_in(&b, v)));
    const Expr *nan = ex_un(x, EX_isnan, ex_cast(x, dt_reg(v->dt), build_in(&b, v)));
    Value *minus = build_map(
        &b, DT_i32, CALC("select(a < 0 && b == 0, 1, 0)", sign, CALC("select(a, 1, 0)", nan)));
    b = build(g, v->rank + 1, shape);
    const Expr *own = ex_cast(x, dt_reg(v->dt), of_string(&b, v));
    const Expr *start = of_string(&b, minus), *w = ex_sub(x, ex_var(x, v->rank), start);
    const Expr *d = of_string(&b, digits), *size_of = of_string(&b, count);
    /* the first digit stands for 10^exponent */
    const Expr *exponent = CALC("a + b - 1", of_string(&b, power), size_of);
    const Expr *zeros_before = CALC("max(0 - a, 0)", exponent);
    /* plain: whole digits, the point, the others, one at least; zeros where there are no digits */
    const Expr *whole = CALC("max(a + 1, 1)", exponent);
    const Expr *place = CALC("a - b - select(a > c, 1, 0)", w, zeros_before, whole);
    const Expr *length = CALC("max(a + 1, b + c) + 1", whole, size_of, zeros_before);
    const Expr *digit = digit_at(&b, powers, d, size_of, place);
    digit = CALC("select(a >= 0 && a < b, c, 48)", place, size_of, digit);
    const Expr *fixed = CALC("select(a == b, 46, select(a < c, d, 0))", w, whole, length, digit);
    /* with exponent: a digit, the point and the others if there are, e, sign, two digits at least
     */
    const Expr *body = CALC("select(a > 1, a + 1, 1)", size_of);
    const Expr *at = CALC("a - select(a > 1, 1, 0)", w), *e = CALC("abs(a)", exponent);
    digit = digit_at(&b, powers, d, size_of, at);
    const Expr *long_one = CALC("select(a >= 100, 1, 0)", e), *tail = CALC("a - b", w, body);
    const Expr *which = CALC("b - (a - 2) + 1", tail, long_one);
    const Expr *tens = CALC("select(a == 2, 100, select(a == 1, 10, 1))", which);
    const Expr *figure = CALC("select(a >= 0, b / c % 10 + 48, 0)", which, e, tens);
    const Expr *end = CALC("select(a == 0, 101, select(a == 1, select(b < 0, 45, 43), c))", tail,
                           exponent, figure);
    const Expr *front = CALC("select(a == 1, 46, b)", w, digit);
    const Expr *scientific = CALC("select(a < b, c, d)", w, body, front, end);
    const Expr *result = CALC("select(a, b, c)", of_string(&b, is_plain), fixed, scientific);
    /* 0.0, inf, nan */
    const char *const special[3] = {"0.0", "inf", "nan"};
    const Expr *cond[3] = {ex_bin(x, EX_eq, own, ex_num(x, (DType)own->dt, 0)),
                           ex_un(x, EX_isinf, own), ex_un(x, EX_isnan, own)};
    for (int i = 0; i < 3; i++) result = ex_select(x, cond[i], spelt(x, special[i], w), result);
    return build_map(&b, DT_u8, CALC("select(a < 0, 45, b)", w, result));
}

void cast_to_text(Node *n, Value *v) {
    node_set_text(n, 0,
                  v->dt == DT_bool     ? bool_to_text(n, v)
                  : dt_is_float(v->dt) ? float_to_text(n, v)
                                       : whole_to_text(n, v));
}

/* --- floats with six decimals ----------------------------------------------------------------- */

#define MILLION   1000000
#define GROUP     1000000000 /* nine digits */
#define GROUPS    5          /* of the largest float, less than 2^128 */
#define MOST_TWOS 104        /* it is 24 bits times this power of two */

/* The powers of two in groups of nine digits, lowest first: u64 [MOST_TWOS + 1, GROUPS]. */
static Value *twos(Graph *g) {
    int64_t shape[2] = {MOST_TWOS + 1, GROUPS};
    uint64_t *p = ARENA_ARRAY(g->arena, (MOST_TWOS + 1) * GROUPS, uint64_t);
    p[0] = 1;
    for (int e = 1; e <= MOST_TWOS; e++)
        for (int k = 0, carry = 0; k < GROUPS; k++) {
            uint64_t twice = 2 * p[(e - 1) * GROUPS + k] + (uint64_t)carry;
            p[e * GROUPS + k] = twice % GROUP;
            carry = (int)(twice / GROUP);
        }
    return graph_const(g, DT_u64, 2, shape, p);
}

/* A float (f32) is m * 2^e. With e < 0 it is rounded to millionths, which fit u64 and leave a whole
 * part of 24 bits; else it is whole. So whole parts are 24 bits times a power of two. */
typedef struct Fixed {
    Value *m;          /* u64 */
    Value *e;          /* i32 */
    Value *millionths; /* u64: if e < 0 */
} Fixed;

static Fixed split_fixed(Graph *g, Value *v) {
    Exprs *x = g->x;
    Fixed f;
    Builder b = build(g, v->rank, v->dims);
    const Expr *bits = ex_bits(x, DT_u32, build_in(&b, v));
    f.e = build_map(&b, DT_i32, CALC("max(cast(i32, a / 8388608 % 256), 1) - 150", bits));
    b = build(g, v->rank, v->dims);
    bits = ex_bits(x, DT_u32, build_in(&b, v));
    const Expr *fraction = CALC("a % 8388608", bits);
    const Expr *m = CALC("select(a / 8388608 % 256 == 0, b, b + 8388608)", bits, fraction);
    f.m = build_map(&b, DT_u64, ex_cast(x, DT_u64, m));
    b = build(g, v->rank, v->dims);
    const Expr *scaled = ex_mul(x, build_in(&b, f.m), ex_int(x, DT_u64, MILLION));
    const Expr *shift = CALC("cast(u64, min(max(0 - a, 1), 63))", build_in(&b, f.e));
    const Expr *half = ex_bin(x, EX_shl, ex_int(x, DT_u64, 1), CALC("a - 1", shift));
    const Expr *down = ex_bin(x, EX_shr, scaled, shift);
    const Expr *rest = ex_sub(x, scaled, ex_bin(x, EX_shl, down, shift));
    const Expr *up = CALC("a > b || (a == b && c % 2 == 1)", rest, half, down); /* half: to even */
    f.millionths = build_map(&b, DT_u64, CALC("select(a, b + 1, b)", up, down));
    return f;
}

/* The whole parts in groups of nine digits, lowest first, each with what it carries on to the next:
 * u64 [..., GROUPS]. */
static Value *whole_groups(Graph *g, const Fixed *f) {
    Exprs *x = g->x;
    int rank = f->m->rank;
    int64_t shape[MAX_RANK];
    Value *table = twos(g), *group[GROUPS], *row[GROUPS];
    for (int i = 0; i < rank; i++) shape[i] = f->m->dims[i];
    shape[rank] = 1;
    for (int k = 0; k < GROUPS; k++) {
        Builder b = build(g, rank, shape);
        const Expr *e = build_in(&b, f->e);
        const Expr *small = ex_div(x, build_in(&b, f->millionths), ex_int(x, DT_u64, MILLION));
        const Expr *whole = CALC("select(a < 0, b, c)", e, small, build_in(&b, f->m));
        const Expr *at[2] = {CALC("min(max(a, 0), b)", e, ex_i(x, MOST_TWOS)), ex_i(x, k)};
        const Expr *sum = ex_mul(x, whole, build_load(&b, table, at)), *before;
        if (k) {
            before = ex_div(x, build_in(&b, group[k - 1]), ex_int(x, DT_u64, GROUP));
            sum = ex_add(x, sum, before);
        }
        group[k] = build_map(&b, DT_u64, sum);
        row[k] = g_reshape(g, group[k], rank + 1, shape);
    }
    return g_concat(g, GROUPS, row, rank);
}

/* Digit number `place` (0: the last one) of a whole part, u64. */
static const Expr *group_digit(Builder *b, Value *groups, Value *powers, const Expr *place) {
    Exprs *x = b->x;
    int rank = groups->rank - 1;
    const Expr *at[MAX_RANK];
    for (int i = 0; i < rank; i++) at[i] = ex_var(x, i);
    at[rank] = CALC("min(max(a, 0) / 9, b)", place, ex_i(x, GROUPS - 1));
    return CALC("a % b / c % 10", build_load(b, groups, at), ex_int(x, DT_u64, GROUP),
                look_up(b, powers, CALC("max(a, 0) % 9", place)));
}

Value *text_fixed(Graph *g, Value *v) {
    Exprs *x = g->x;
    int rank = v->rank;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < rank; i++) shape[i] = v->dims[i];
    Fixed f = split_fixed(g, v);
    Value *groups = whole_groups(g, &f), *powers = small_powers(g);
    Builder b = build(g, rank, shape);
    const Expr *r = build_red(&b, 9 * GROUPS), *digit = group_digit(&b, groups, powers, r);
    const Expr *reach = CALC("select(a == 0, 1, b + 1)", digit, r);
    Value *length = build_reduce(&b, DT_i32, COMBINE_max, reach, NULL);
    /* sign, digits, the point, six digits */
    shape[rank] = 1 + 39 + 1 + 6;
    b = build(g, rank + 1, shape);
    const Expr *own = of_string(&b, v), *size = of_string(&b, length);
    const Expr *minus = CALC("select(a < 0, 1, 0)", ex_bits(x, DT_i32, own));
    const Expr *w = CALC("a - b", ex_var(x, rank), minus);
    digit = group_digit(&b, groups, powers, CALC("a - 1 - b", size, w));
    const Expr *part = ex_bin(x, EX_rem, of_string(&b, f.millionths), ex_int(x, DT_u64, MILLION));
    part = CALC("select(a < 0, b, b - b)", of_string(&b, f.e), part);
    const Expr *behind = CALC("b - a + 6", w, size); /* 5: the first behind the point */
    const Expr *decimal = CALC("a / b % 10", part, look_up(&b, powers, behind));
    decimal = CALC("select(a < 0, 0, cast(i32, b) + 48)", behind, decimal);
    const Expr *byte =
        CALC("select(a < b, cast(i32, c) + 48, select(a == b, 46, d))", w, size, digit, decimal);
    const char *const special[2] = {"inf", "nan"};
    const Expr *cond[2] = {ex_un(x, EX_isinf, own), ex_un(x, EX_isnan, own)};
    for (int i = 0; i < 2; i++) byte = ex_select(x, cond[i], spelt(x, special[i], w), byte);
    return build_map(&b, DT_u8, CALC("select(a < 0, 45, b)", w, byte));
}

/* --- strings to numbers ----------------------------------------------------------------------- */

#define KEPT_DIGITS 19 /* that surely fit u64 */

/* What is read of each string: sign * digits * 10^power. */
typedef struct Decimal {
    Value *digits;         /* u64 */
    Value *power;          /* i32 */
    Value *negative;       /* bool */
    Value *inf, *nan, *on; /* bool: a letter of Infinity, NaN, True is in it */
} Decimal;

/* The byte as a lower-case letter, if it is a letter. */
static const Expr *letter(Exprs *x, const Expr *byte) {
    return ex_bin(x, EX_bor, byte, ex_i(x, 32));
}

static const Expr *is_digit(Exprs *x, const Expr *byte) {
    return CALC("a >= 48 && a <= 57", byte);
}

/* The first place of a byte for which `c` (of its bytes and place) holds, or the width; i32. */
static Value *first_place(Builder *b, Value *text, const Expr *w, const Expr *hit) {
    Exprs *x = b->x;
    const Expr *e = CALC("select(a, b, c)", hit, w, ex_i(x, text_width(text)));
    return build_reduce(b, DT_i32, COMBINE_min, e, NULL);
}

/* Does a byte as a lower-case letter occur? */
static Value *has_letter(Graph *g, Value *text, int which) {
    Exprs *x = g->x;
    Builder b = build(g, text->rank - 1, text->dims);
    const Expr *w = build_red(&b, text_width(text));
    const Expr *hit = ex_bin(x, EX_eq, letter(x, text_own_byte(&b, text, w)), ex_i(x, which));
    return build_reduce(&b, DT_bool, COMBINE_max, CALC("select(a, 1, b)", hit, ex_i(x, 0)), NULL);
}

/* How many places up to each (from it to the end: `reverse`) have a flag; i32 [count, width]. */
static Value *running_count(Graph *g, Value *flags, bool reverse) {
    Builder b = build(g, 2, flags->dims);
    const Expr *at[2] = {ex_var(g->x, 0), ex_var(g->x, 2)};
    return build_scan(&b, DT_i32, COMBINE_sum, 1, false, reverse,
                      ex_cast(g->x, DT_i32, build_load(&b, flags, at)));
}

/* text: [count, width] */
static Decimal read_decimal(Graph *g, Value *text, int kept) {
    Exprs *x = g->x;
    int64_t width = text_width(text);
    const Expr *row = ex_var(x, 0), *w, *byte;
    Decimal d = {.inf = has_letter(g, text, 'i'),
                 .nan = has_letter(g, text, 'a'),
                 .on = has_letter(g, text, 't')};
    Value *powers = small_powers(g);
    Builder b;
#define OVER_BYTES(rank)                                                                           \
    (b = build(g, rank, text->dims), w = (rank) == 1 ? build_red(&b, width) : ex_var(x, 1),        \
     byte = text_own_byte(&b, text, w))
    OVER_BYTES(1);
    Value *e = first_place(&b, text, w, ex_bin(x, EX_eq, letter(x, byte), ex_i(x, 'e')));
    OVER_BYTES(1);
    Value *point = first_place(&b, text, w, CALC("a == 46", byte));
    OVER_BYTES(1);
    Value *first = first_place(&b, text, w, CALC("a >= 49 && a <= 57", byte));
    /* digits before the e, from the first that is not 0 */
    OVER_BYTES(2);
    const Expr *front = CALC("a && b >= c && b < d", is_digit(x, byte), w,
                             build_load(&b, first, &row), build_load(&b, e, &row));
    Value *rank = running_count(g, build_map(&b, DT_u8, CALC("cast(u8, a)", front)), false);
    OVER_BYTES(2);
    const Expr *back = CALC("a && b > c", is_digit(x, byte), w, build_load(&b, e, &row));
    Value *behind = running_count(g, build_map(&b, DT_u8, CALC("cast(u8, a)", back)), true);
    OVER_BYTES(1);
    const Expr *place[2] = {row, w};
    Value *total = build_reduce(&b, DT_i32, COMBINE_max, build_load(&b, rank, place), NULL);
    OVER_BYTES(1);
    const Expr *own = build_load(&b, rank, place), *limit = ex_i(x, kept);
    const Expr *all = CALC("min(a, b)", build_load(&b, total, &row), limit);
    front = CALC("a && b < c && d >= 1 && d <= e", is_digit(x, byte), w, build_load(&b, e, &row),
                 own, limit);
    const Expr *value = ex_cast(x, DT_u64, CALC("a - 48", byte));
    value = ex_mul(x, value, look_up(&b, powers, CALC("a - b", all, own)));
    d.digits = build_reduce(&b, DT_u64, COMBINE_sum, CALC("select(a, b, 0)", front, value), NULL);
    /* every digit behind the point takes one power away */
    OVER_BYTES(1);
    const Expr *fraction = CALC("a && b > c && b < d", is_digit(x, byte), w,
                                build_load(&b, point, &row), build_load(&b, e, &row));
    Value *fractions =
        build_reduce(&b, DT_i32, COMBINE_sum, CALC("select(a, 1, b)", fraction, ex_i(x, 0)), NULL);
    OVER_BYTES(1);
    back = CALC("a && b > c", is_digit(x, byte), w, build_load(&b, e, &row));
    value = look_up(&b, powers, CALC("min(a - 1, 5)", build_load(&b, behind, place)));
    value = CALC("cast(i64, a - 48) * cast(i64, b)", byte, value);
    Value *exponent = build_reduce(&b, DT_i64, COMBINE_sum, CALC("select(a, b, 0)", back, value),
                                   CALC("min(a, 100000)", ex_acc(x, DT_i64)));
    Value *minus[2]; /* before the e, behind it */
    for (int k = 0; k < 2; k++) {
        OVER_BYTES(1);
        const Expr *side = CALC(k ? "a > b" : "a < b", w, build_load(&b, e, &row));
        minus[k] = build_reduce(&b, DT_bool, COMBINE_max,
                                CALC("select(a == 45 && b, 1, c)", byte, side, ex_i(x, 0)), NULL);
    }
#undef OVER_BYTES
    d.negative = minus[0];
    b = build(g, 1, text->dims);
    const Expr *written = ex_cast(x, DT_i32, build_in(&b, exponent));
    written = CALC("select(a, 0 - b, b)", build_in(&b, minus[1]), written);
    const Expr *dropped = CALC("max(a - b, 0)", build_in(&b, total), limit);
    d.power = build_map(&b, DT_i32, CALC("a - b + c", written, build_in(&b, fractions), dropped));
    return d;
}

/* Truncated; what does not fit wraps. */
static Value *to_whole(Graph *g, const Decimal *d, DType dt) {
    Exprs *x = g->x;
    Value *powers = small_powers(g);
    Builder b = build(g, 1, d->digits->dims);
    const Expr *v = build_in(&b, d->digits), *p = build_in(&b, d->power);
    const Expr *up = ex_mul(x, v, look_up(&b, powers, p));
    const Expr *down = ex_div(x, v, look_up(&b, powers, CALC("0 - a", p)));
    v = CALC("select(a < 0, select(a > -20, b, 0), c)", p, down, up);
    v = CALC("select(a, 0 - b, b)", build_in(&b, d->negative), v);
    return build_map(&b, dt, ex_cast(x, dt, v));
}

/* The parameters of a float format; powers of ten out of range give 0 or infinity, and only between
 * the last two can a decimal number lie half-way between floats. */
typedef struct Format {
    DType dt, bits;
    int mantissa, least_exponent, infinite, least, most, least_even, most_even;
} Format;

static Value *to_float(Graph *g, const Decimal *d, const Format *f) {
    Exprs *x = g->x;
    Value *high, *low;
    power_tables(g, ROUND_up_small, &high, &low);
    Builder b = build(g, 1, d->digits->dims);
    const Expr *w = build_in(&b, d->digits), *q = build_in(&b, d->power),
               *is_zero = CALC("a == 0", w);
    const Expr *lz = ex_i(x, 0), *one = ex_int(x, DT_u64, 1);
    for (int s = 32; s; s /= 2) { /* the highest bit to the top */
        const Expr *above = ex_bin(x, EX_shr, w, ex_int(x, DT_u64, 64 - s));
        const Expr *clear = CALC("a == 0", above);
        w = ex_select(x, clear, ex_bin(x, EX_shl, w, ex_int(x, DT_u64, s)), w);
        lz = ex_select(x, clear, ex_add(x, lz, ex_i(x, s)), lz);
    }
    Value *shifted = build_map(&b, DT_u64, w), *zeros_before = build_map(&b, DT_i32, lz);
    b = build(g, 1, d->digits->dims);
    w = build_in(&b, shifted);
    lz = build_in(&b, zeros_before);
    q = build_in(&b, d->power);
    is_zero = CALC("a == 0", build_in(&b, d->digits));
    const Expr *row = CALC("a + b", q, ex_i(x, -LEAST_POWER));
    const Expr *t1 = look_up(&b, high, row), *t0 = look_up(&b, low, row);
    const Expr *hi = high_half(x, w, t1), *lo = ex_mul(x, w, t1);
    /* the lower half of the power matters where the bits behind those that are kept are all ones */
    const Expr *mask = ex_bin(x, EX_shr, ex_un(x, EX_bnot, ex_int(x, DT_u64, 0)),
                              ex_int(x, DT_u64, f->mantissa + 3));
    const Expr *more = CALC("a == b", ex_bin(x, EX_band, hi, mask), mask);
    const Expr *sum = ex_add(x, lo, high_half(x, w, t0));
    hi = CALC("select(a && b < c, d + 1, d)", more, sum, lo, hi);
    lo = CALC("select(a, b, c)", more, sum, lo);
    const Expr *top = ex_bin(x, EX_shr, hi, ex_int(x, DT_u64, 63));
    const Expr *cut = ex_add(x, top, ex_int(x, DT_u64, 64 - f->mantissa - 3));
    const Expr *m = ex_bin(x, EX_shr, hi, cut);
    const Expr *e = ex_bin(x, EX_shr, CALC("a * 217706", q), ex_i(x, 16));
    e = CALC("a + 63 + cast(i32, b) - c - d", e, top, lz, ex_i(x, f->least_exponent));
    /* half-way: to even */
    const Expr *tie =
        CALC("a <= 1 && b >= c && b <= d", lo, q, ex_i(x, f->least_even), ex_i(x, f->most_even));
    tie = CALC("a && b % 4 == 1 && c == d", tie, m, ex_bin(x, EX_shl, m, cut), hi);
    const Expr *small = CALC("a <= 0", e);
    const Expr *shift = CALC("cast(u64, min(1 - a, 63))", e);
    const Expr *tiny = ex_bin(x, EX_shr, m, shift);
    tiny = CALC("(a + a % 2) / 2", tiny);
    const Expr *normal = CALC("select(a, b - 1, b + b % 2) / 2", tie, m);
    const Expr *hidden = ex_int(x, DT_u64, (int64_t)1 << f->mantissa);
    const Expr *over = CALC("a >= 2 * b", normal, hidden);
    e = CALC("select(a, b + 1, b)", over, e);
    normal = CALC("select(a, b, c) - b", over, hidden, normal);
    const Expr *field = ex_int(x, DT_u64, f->mantissa);
    const Expr *bits = ex_add(x, normal, ex_bin(x, EX_shl, CALC("cast(u64, max(a, 0))", e), field));
    /* a rounded subnormal number may reach the first normal one: the bits are right all the same */
    bits = ex_select(x, small, tiny, bits);
    const Expr *infinity = ex_int(x, DT_u64, (int64_t)f->infinite << f->mantissa);
    const Expr *large = CALC("a > b || c >= d", q, ex_i(x, f->most), e, ex_i(x, f->infinite));
    bits = ex_select(x, large, infinity, bits);
    bits = CALC("select(a || b < c, d - d, d)", is_zero, q, ex_i(x, f->least), bits);
    bits = ex_select(x, build_in(&b, d->inf), infinity, bits);
    const Expr *not_a_number = ex_bin(x, EX_bor, infinity, ex_bin(x, EX_shr, hidden, one));
    bits = ex_select(x, build_in(&b, d->nan), not_a_number, bits);
    const Expr *sign = ex_bin(x, EX_shl, one, ex_int(x, DT_u64, dt_bits(f->dt) - 1));
    bits = ex_bin(x, EX_bor, bits, CALC("select(a, b, 0)", build_in(&b, d->negative), sign));
    return build_map(&b, f->dt, ex_bits(x, f->dt, ex_cast(x, f->bits, bits)));
}

void cast_from_text(Node *n, Value *v, DType dt) {
    static const Format formats[] = {
        {DT_f64, DT_u64, 52, -1023, 0x7ff, -342, 308, -4, 23},
        {DT_f32, DT_u32, 23, -127, 0xff, -65, 38, -17, 10},
    };
    Graph *g = n->g;
    Value *text = text_rows(g, v), *result;
    Decimal d = read_decimal(g, text, dt_is_float(dt) ? KEPT_DIGITS : KEPT_DIGITS + 1);
    if (dt == DT_bool) {
        Builder b = build(g, 1, text->dims);
        result = build_map(&b, DT_bool,
                           calc(g->x, "a != 0 || b", build_in(&b, d.digits), build_in(&b, d.on),
                                (const Expr *)NULL));
    } else if (dt_is_float(dt)) {
        result = g_cast(g, to_float(g, &d, &formats[dt == DT_f32]), dt);
    } else {
        result = to_whole(g, &d, dt);
    }
    n->out[0] = g_reshape(g, result, v->rank - 1, v->dims);
}
