/* Dimensions that vary: normal forms, bounds, quotients; random arithmetic against that of C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ir/dim.h"

#define SYMBOLS 3
#define SEEDS   4000

typedef struct Fixture {
    Arena arena;
    Exprs x;
    int64_t a, b, c; /* 1..8, 0..5, 3..100 */
} Fixture;

static const int64_t lows[SYMBOLS] = {1, 0, 3}, highs[SYMBOLS] = {8, 5, 100};

static void begin(Fixture *f) {
    static const char *const names[SYMBOLS] = {"a", "b", "c"};
    int64_t *to[SYMBOLS] = {&f->a, &f->b, &f->c};
    arena_init(&f->arena, 0, NULL, NULL);
    exprs_init(&f->x, &f->arena);
    for (int i = 0; i < SYMBOLS; i++)
        *to[i] = dim_of_symbol(&f->x, dim_new_symbol(&f->x, names[i], lows[i], highs[i]));
}

static void test_same_numbers(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    assert_true(dim_varies(f.a) && dim_varies(f.a + 1) && !dim_varies(7) && !dim_varies(-1));
    int64_t twice = dim_mul(x, dim_add(x, f.a, f.b), 2);
    assert_true(twice == dim_add(x, dim_mul(x, f.b, 2), dim_mul(x, 2, f.a)));
    assert_true(dim_mul(x, f.a, f.c) == dim_mul(x, f.c, f.a));
    assert_true(dim_mul(x, dim_mul(x, f.a, f.b), f.c) == dim_mul(x, f.b, dim_mul(x, f.c, f.a)));
    assert_true(dim_normal(x, f.a + 3) == dim_add(x, 3, f.a));
    assert_true(dim_sub(x, f.a + 3, f.a) == 3 && dim_sub(x, f.a, f.a) == 0);
    assert_true(dim_mul(x, f.a, 0) == 0 && dim_mul(x, f.a, 1) == f.a);
    assert_string_equal(dims_text(x, 2, (int64_t[]){f.b, 4}), "[b, 4]");
    arena_free(&f.arena);
}

/* What is missing to the next multiple of c, as models that pad compute it. */
static int64_t padded(Exprs *x, int64_t d, int64_t c) {
    const Expr *e = dim_expr(x, d), *by = ex_i(x, c);
    const Expr *missing = ex_bin(x, EX_rem, ex_sub(x, by, ex_bin(x, EX_rem, e, by)), by);
    int64_t result = -1;
    assert_true(dim_from_expr(x, ex_add(x, e, missing), &result));
    return result;
}

static void test_multiples(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    int64_t fours = dim_div(x, dim_add(x, f.c, 3), 4), windows = padded(x, f.c, 4);
    assert_true(windows == dim_mul(x, fours, 4) && dim_div(x, windows, 4) == fours);
    assert_int_equal(dim_max(x, windows), 100);
    assert_int_equal(dim_max(x, padded(x, dim_add(x, f.a, f.b), 8)), 16);
    /* a rounded quotient is no larger than the exact one */
    int64_t product = dim_mul(x, dim_mul(x, dim_div(x, f.c, 4), f.a), 4);
    assert_int_equal(dim_max(x, dim_div(x, product, f.c)), 8);
    /* a condition that bounds settle: the sign of a remainder */
    const Expr *c = dim_expr(x, f.c), *zero = ex_i(x, 0), *four = ex_i(x, 4);
    const Expr *rest = ex_bin(x, EX_rem, c, four);
    rest = ex_select(x, ex_lt(x, rest, zero), ex_add(x, rest, four), rest);
    int64_t d;
    assert_true(dim_from_expr(x, rest, &d));
    assert_int_equal(dim_max(x, d), 3);
    /* 40 * 0.7f is 28 where the product is rounded, and a bit less where it is not */
    int64_t forty = dim_of_symbol(x, dim_new_symbol(x, "forty", 6, 40));
    const Expr *scaled =
        ex_mul(x, ex_cast(x, DT_f32, dim_expr(x, forty)), ex_num(x, DT_f32, (double)0.7f));
    assert_true(dim_from_expr(x, ex_cast(x, DT_i32, ex_un(x, EX_floor, scaled)), &d));
    assert_int_equal(dim_max(x, d), 28);
    arena_free(&f.arena);
}

static void test_quotients(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    int64_t even = dim_mul(x, f.a, 2), product = dim_mul(x, dim_mul(x, f.a, f.b), 6);
    assert_true(dim_div(x, even, 2) == f.a && dim_div(x, even + 1, 2) == f.a);
    assert_true(dim_div(x, even + 2, 2) == dim_add(x, f.a, 1));
    assert_true(dim_div(x, product, f.a) == dim_mul(x, f.b, 6));
    assert_true(dim_div(x, product, dim_mul(x, f.b, 3)) == even);
    /* by sums, too, if nothing is left */
    int64_t sum = dim_add(x, product, dim_add(x, f.b, 2)),
            other = dim_sub(x, dim_mul(x, f.a, f.c), f.b);
    int64_t both = dim_mul(x, dim_mul(x, sum, other), 32);
    assert_true(dim_div(x, both, dim_mul(x, sum, 8)) == dim_mul(x, other, 4));
    assert_true(dim_div(x, dim_mul(x, both, f.c), both) == f.c);
    assert_true(dim_div(x, both, dim_mul(x, both, 1)) == 1);
    assert_true(dim_varies(dim_div(x, dim_add(x, both, 1), sum)));
    /* (z / 2) / 3 = z / 6, also where nothing else simplifies it */
    int64_t half = dim_div(x, f.c, 2);
    assert_true(dim_varies(half) && half != f.c);
    assert_true(dim_div(x, half, 3) == dim_div(x, f.c, 6));
    /* what two layers leave that round up */
    assert_true(dim_div(x, half + 1, 3) == dim_div(x, f.c + 2, 6));
    assert_true(dim_div(x, dim_div(x, f.c + 1, 2) + 1, 2) == dim_div(x, f.c + 3, 4));
    assert_true(dim_div(x, half + 7, 3) == dim_add(x, dim_div(x, f.c + 2, 6), 2));
    assert_true(dim_div(x, dim_add(x, half, f.a), 1) == dim_add(x, f.a, half));
    assert_true(dim_max(x, half) == 50 && dim_min(x, half) == 1);
    arena_free(&f.arena);
}

static void test_bounds(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    assert_true(dim_max(x, f.a) == 8 && dim_min(x, f.a) == 1 && dim_max(x, 7) == 7);
    assert_true(dim_max(x, dim_sub(x, f.a, 100)) == 0); /* nothing is less than empty */
    assert_true(dim_min(x, dim_sub(x, f.a, f.c)) == -99);
    assert_true(dim_larger(x, f.a, dim_add(x, f.a, 2)) == dim_add(x, f.a, 2));
    assert_true(dim_larger(x, f.a, 9) == 9 && dim_smaller(x, f.a, 9) == f.a);
    assert_true(dim_max(x, dim_larger(x, f.a, f.b)) == 8 &&
                dim_max(x, dim_smaller(x, f.a, f.b)) == 5);
    const int64_t cut = dim_smaller(x, f.a, 5); /* as the rows of a table of 5 that there are */
    assert_true(cut != f.a && dim_larger(x, cut, f.a) == f.a && dim_larger(x, f.a, cut) == f.a);
    assert_true(dim_smaller(x, cut, f.a) == cut &&
                dim_smaller(x, f.a, dim_larger(x, f.b, f.a)) == f.a);
    int64_t dims[3] = {f.a, 4, dim_add(x, f.b, 1)}, most[3];
    dims_max(x, 3, dims, most);
    assert_true(most[0] == 8 && most[1] == 4 && most[2] == 6 && dims_vary(3, dims));
    assert_true(dim_max(x, dim_product(x, 3, dims)) == 8 * 4 * 6);
    assert_true(dim_meets(x, f.a, 8) && !dim_meets(x, f.a, 9) && !dim_meets(x, f.a + 7, f.b));
    assert_true(dim_fits(f.a, 5) && dim_fits(3, 3) && !dim_fits(3, 4) && dim_same(f.a, 5) == 5);
    arena_free(&f.arena);
}

/* What models compute with: casts to i64, floats that are rounded down. */
static void test_from_expr(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    int64_t d;
    const Expr *wide =
        ex_add(x, ex_mul(x, ex_int(x, DT_i64, f.a), ex_int(x, DT_i64, 2)), ex_int(x, DT_i64, 1));
    assert_true(dim_from_expr(x, wide, &d) && d == dim_add(x, dim_mul(x, f.a, 2), 1));
    const Expr *scaled = ex_mul(x, ex_int(x, DT_f32, f.c), ex_num(x, DT_f32, 1.5));
    scaled = ex_cast(x, DT_i64, ex_un(x, EX_floor, scaled));
    assert_true(dim_from_expr(x, scaled, &d) && dim_max(x, d) == 150 && dim_min(x, d) == 4);
    assert_true(dim_from_expr(x, ex_int(x, DT_i64, 12), &d) && d == 12);
    assert_false(dim_from_expr(x, ex_num(x, DT_f32, 3), &d));
    assert_false(dim_from_expr(x, ex_var(x, 0), &d)); /* no symbol: a coordinate */
    arena_free(&f.arena);
}

static const Expr *wide_op(Exprs *x, ExprOp op, const Expr *e, int64_t by) {
    return ex_bin(x, op, e, ex_int(x, DT_i64, by));
}

/* Arithmetic of i64 that i32 does not hold is refused, unless nothing of it is left. */
static void test_beyond_i32(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    int64_t d;
    const Expr *c = ex_int(x, DT_i64, f.c), *power = c;
    assert_false(
        dim_from_expr(x, wide_op(x, EX_div, wide_op(x, EX_mul, c, 6000000000), 3000000000), &d));
    assert_false(dim_from_expr(
        x, wide_op(x, EX_rem, wide_op(x, EX_mul, wide_op(x, EX_mul, c, 100000), 100000), 50), &d));
    for (int i = 0; i < 5; i++) power = ex_mul(x, power, c); /* up to 1e12 */
    assert_false(dim_from_expr(x, wide_op(x, EX_rem, power, 50), &d));
    assert_true(dim_from_expr(x, ex_div(x, ex_mul(x, power, c), power), &d) && d == f.c);
    /* sums whose coefficients leave i32 one after the other */
    const Expr *sum = wide_op(x, EX_mul, c, INT32_MAX);
    for (int i = 0; i < 3; i++) sum = ex_add(x, sum, wide_op(x, EX_mul, c, INT32_MAX - i));
    assert_false(dim_from_expr(x, wide_op(x, EX_rem, sum, 50), &d));
    /* ends of slices, and what is computed with them */
    const Expr *end = wide_op(x, EX_min, c, INT64_MAX);
    assert_true(dim_from_expr(x, end, &d) && d == f.c);
    const Expr *open =
        ex_select(x, ex_lt(x, c, ex_int(x, DT_i64, 9)), c, ex_int(x, DT_i64, INT64_MAX));
    assert_true(dim_from_expr(x, ex_bin(x, EX_min, open, c), &d));
    assert_false(dim_from_expr(x, wide_op(x, EX_div, open, 2), &d));
    /* narrower integers wrap */
    assert_true(dim_from_expr(x, ex_cast(x, DT_u8, c), &d) && d == f.c);
    assert_false(dim_from_expr(x, ex_cast(x, DT_u8, wide_op(x, EX_mul, c, 3)), &d));
    assert_false(dim_from_expr(x, ex_cast(x, DT_u8, wide_op(x, EX_sub, c, 4)), &d));
    assert_false(
        dim_from_expr(x, ex_cast(x, DT_i64, ex_cast(x, DT_i8, wide_op(x, EX_mul, c, 2))), &d));
    arena_free(&f.arena);
}

/* What is made of coordinates and loads, or chosen by them, is no dimension, whether there are any
 * or not. */
static void test_no_symbols(void **state) {
    (void)state;
    Arena arena;
    Exprs x;
    int64_t d = 0;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    for (int symbols = 0; symbols < 2; symbols++) {
        const Expr *zero = ex_i(&x, 0), *load = ex_load(&x, DT_i32, 0, 1, &zero);
        const Expr *leaf[2] = {load, ex_var(&x, 0)};
        for (int i = 0; i < 2; i++) {
            const Expr *below = ex_lt(&x, leaf[i], ex_i(&x, 3));
            assert_false(dim_from_expr(&x, leaf[i], &d));
            assert_false(dim_from_expr(&x, ex_bin(&x, EX_min, leaf[i], ex_i(&x, 4)), &d));
            assert_false(dim_from_expr(&x, ex_select(&x, below, ex_i(&x, 5), ex_i(&x, 7)), &d));
        }
        assert_true(dim_from_expr(&x, ex_i(&x, 6), &d) && d == 6);
        dim_new_symbol(&x, "s", 1, 8);
    }
    arena_free(&arena);
}

static void test_index(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    assert_true(ex_is_int(dim_index(x, ex_var(x, 0), 1), 0));
    assert_true(dim_index(x, ex_i(x, 9), 4) == ex_i(x, 3));
    arena_free(&f.arena);
}

/* --- random arithmetic ------------------------------------------------------------------------ */

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

typedef struct Values {
    Exprs *x;
    const int64_t *of; /* each symbol */
} Values;

static const Expr *symbol_value(void *user, const Expr *e, const Expr *const *args) {
    (void)args;
    const Values *values = user;
    return ex_i(values->x, values->of[e->k.i - DIM_VAR]);
}

static int64_t value_of(Exprs *x, int64_t d, const int64_t *values) {
    Values all = {x, values};
    const Expr *e = ex_rewrite(x, dim_expr(x, d), symbol_value, &all);
    assert_true(ex_is_const(e));
    return e->k.i;
}

/* A quotient of a quotient is not joined where its dividend would be too large. */
static void test_large(void **state) {
    (void)state;
    Fixture f;
    begin(&f);
    Exprs *x = &f.x;
    const int64_t values[SYMBOLS + 2] = {1, 1, 3, 40000, 50000};
    int64_t n = dim_of_symbol(x, dim_new_symbol(x, "n", 1, values[SYMBOLS]));
    int64_t m = dim_of_symbol(x, dim_new_symbol(x, "m", 1, values[SYMBOLS + 1]));
    int64_t half = dim_div(x, dim_mul(x, n, m), 2);
    int64_t rounded = dim_div(x, dim_add(x, half, 99999999), 100000000);
    assert_int_equal(value_of(x, rounded, values), 10);
    arena_free(&f.arena);
}

#define TOP 6

/* Whatever way a dimension is computed, it has the value that C computes with the symbols' values,
 * and that lies within its bounds. */
static void test_random(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        Fixture f;
        begin(&f);
        Exprs *x = &f.x;
        uint32_t s = seed;
        int64_t values[SYMBOLS], d[TOP], v[TOP];
        for (int i = 0; i < SYMBOLS; i++)
            values[i] = lows[i] + (int64_t)(next(&s) % (uint32_t)(highs[i] - lows[i] + 1));
        const int64_t leaf[SYMBOLS] = {f.a, f.b, f.c};
        for (int i = 0; i < TOP; i++) {
            uint32_t k = next(&s) % SYMBOLS, more = next(&s) % 5;
            d[i] = leaf[k] + more;
            v[i] = values[k] + more;
        }
        for (int step = 0; step < 8; step++) {
            uint32_t to = next(&s) % TOP, from = next(&s) % TOP;
            int64_t by = 1 + (int64_t)(next(&s) % 6), p = d[to], q = d[from], m = v[to],
                    n = v[from];
            switch (next(&s) % 8) {
            case 0:
                d[to] = dim_add(x, p, q), v[to] = m + n;
                break;
            case 1:
                d[to] = dim_sub(x, p, q), v[to] = m - n;
                break;
            case 2:
                if (dim_max(x, p) * dim_max(x, q) > 100000) break;
                if (dim_min(x, p) < -1000 || dim_min(x, q) < -1000) break;
                d[to] = dim_mul(x, p, q), v[to] = m * n;
                break;
            case 3:
                d[to] = dim_div(x, p, by), v[to] = m / by;
                break;
            case 4:
                d[to] = dim_larger(x, p, q), v[to] = m > n ? m : n;
                break;
            case 5:
                d[to] = dim_smaller(x, p, q), v[to] = m < n ? m : n;
                break;
            case 6:
                if (dim_min(x, p) < 0) break;
                d[to] = padded(x, p, by), v[to] = (m + by - 1) / by * by;
                break;
            default:
                if (dim_min(x, q) > 0) d[to] = dim_div(x, p, q), v[to] = m / n;
            }
            int64_t most = dim_max(x, d[to]), got = value_of(x, d[to], values);
            if (got != v[to])
                fail_msg("seed %u step %d: %s is %lld, not %lld", seed, step, dim_text(x, d[to]),
                         (long long)got, (long long)v[to]);
            assert_true(v[to] <= most && v[to] >= dim_min(x, d[to]));
        }
        arena_free(&f.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_numbers), cmocka_unit_test(test_quotients),
        cmocka_unit_test(test_large),        cmocka_unit_test(test_multiples),
        cmocka_unit_test(test_bounds),       cmocka_unit_test(test_from_expr),
        cmocka_unit_test(test_no_symbols),   cmocka_unit_test(test_index),
        cmocka_unit_test(test_random),       cmocka_unit_test(test_beyond_i32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
