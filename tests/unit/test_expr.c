/* Simplification, bounds and affine forms of index arithmetic, against plain 32-bit arithmetic that
 * wraps around: random expressions over two coordinates and a number of which nothing is known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ir/expr.h"

#define SEEDS   20000
#define VARS    3
#define POINTS  (5 * 7 * 6)
#define MAX_TOP 8

/* Of each variable: its extent as the simplifier is told, and what it takes here. */
static const int64_t extents[VARS] = {5, 7, -1};
static const int64_t unknown[6] = {INT32_MIN, -4, 0, 3, INT32_MAX - 1, INT32_MAX};

/* An expression, and what it is at every point by the arithmetic of C. */
typedef struct Known {
    const Expr *e;
    int32_t at[POINTS];
} Known;

static void point(int i, int64_t *vars) {
    vars[0] = i % 5;
    vars[1] = i / 5 % 7;
    vars[2] = unknown[i / 35];
}

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void push_leaf(Exprs *x, uint32_t *seed, Known *to) {
    static const int32_t constants[] = {0, 1, 2, 3, 4, 5, 7, 12, 35, -1, -6, 100000, 1 << 30};
    uint32_t kind = next(seed) % 5;
    int32_t c = constants[next(seed) % (sizeof constants / sizeof *constants)];
    to->e = kind < VARS ? ex_var(x, (int)kind) : ex_i(x, c);
    for (int i = 0; i < POINTS; i++) {
        int64_t vars[VARS];
        point(i, vars);
        to->at[i] = kind < VARS ? (int32_t)vars[kind] : c;
    }
}

static int32_t compute(ExprOp op, int32_t a, int32_t b) {
    switch (op) {
    case EX_add:
        return (int32_t)((uint32_t)a + (uint32_t)b);
    case EX_sub:
        return (int32_t)((uint32_t)a - (uint32_t)b);
    case EX_mul:
        return (int32_t)((uint32_t)a * (uint32_t)b);
    case EX_div:
        return a / b;
    case EX_rem:
        return a % b;
    case EX_min:
        return a < b ? a : b;
    case EX_max:
        return a > b ? a : b;
    case EX_lt:
        return a < b;
    case EX_le:
        return a <= b;
    case EX_eq:
        return a == b;
    default:
        return a != b;
    }
}

/* a op b in a's place; comparisons choose between a and b. Division is by a positive constant. */
static void combine(Exprs *x, uint32_t *seed, Known *a, const Known *b) {
    static const ExprOp ops[] = {EX_add, EX_add, EX_sub, EX_mul, EX_div, EX_rem, EX_div,
                                 EX_rem, EX_min, EX_max, EX_lt,  EX_le,  EX_eq,  EX_ne};
    static const int32_t divisors[] = {1, 2, 3, 4, 5, 7, 12, 35, 100000};
    ExprOp op = ops[next(seed) % (sizeof ops / sizeof *ops)];
    int32_t divisor = divisors[next(seed) % (sizeof divisors / sizeof *divisors)];
    bool divides = op == EX_div || op == EX_rem;
    bool chooses = op == EX_lt || op == EX_le || op == EX_eq || op == EX_ne;
    const Expr *e = ex_bin(x, op, a->e, divides ? ex_i(x, divisor) : b->e);
    a->e = chooses ? ex_select(x, e, a->e, b->e) : e;
    for (int i = 0; i < POINTS; i++) {
        int32_t r = compute(op, a->at[i], divides ? divisor : b->at[i]);
        a->at[i] = !chooses ? r : r ? a->at[i] : b->at[i];
    }
}

static void check_stride(const Known *k, int var, uint32_t seed) {
    int64_t stride, vars[VARS];
    if (!ex_stride(k->e, var, &stride)) return;
    for (int i = 0; i < POINTS; i++) {
        point(i, vars);
        vars[var]++;
        int64_t grown = ex_eval(k->e, vars).i - k->at[i];
        if ((int32_t)(uint64_t)grown != (int32_t)(uint64_t)stride)
            fail_msg("seed %u, point %d: stride", seed, i);
    }
}

static void check(Exprs *x, const Known *k, uint32_t seed) {
    const Expr *simple = ex_simplify(x, k->e, VARS, extents), *base;
    int64_t lo = 0, hi = 0, coef[VARS], vars[VARS];
    bool bounded = ex_bounds(k->e, VARS, extents, &lo, &hi);
    bool affine = ex_affine(x, k->e, 2, coef, &base);
    for (int i = 0; i < POINTS; i++) {
        point(i, vars);
        int64_t value = k->at[i];
        if (ex_eval(k->e, vars).i != value) fail_msg("seed %u, point %d: as built", seed, i);
        if (ex_eval(simple, vars).i != value) fail_msg("seed %u, point %d: simplified", seed, i);
        if (bounded && (value < lo || value > hi)) fail_msg("seed %u, point %d: bounds", seed, i);
        if (!affine) continue;
        int64_t sum = ex_eval(base, vars).i + coef[0] * vars[0] + coef[1] * vars[1];
        if ((int32_t)(uint64_t)sum != value) fail_msg("seed %u, point %d: affine", seed, i);
    }
}

static void test_random(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        Arena arena;
        Exprs x;
        arena_init(&arena, 0, NULL, NULL);
        exprs_init(&x, &arena);
        Known stack[MAX_TOP];
        uint32_t random = seed * 2654435761u;
        int top = 0;
        for (int step = 0; step < 14; step++) {
            if (top < 2 || (top < MAX_TOP && next(&random) % 3 == 0))
                push_leaf(&x, &random, &stack[top++]);
            else
                combine(&x, &random, &stack[top - 2], &stack[top - 1]), top--;
        }
        while (top > 1) combine(&x, &random, &stack[top - 2], &stack[top - 1]), top--;
        check(&x, &stack[0], seed);
        for (int var = 0; var < 2; var++) check_stride(&stack[0], var, seed);
        arena_free(&arena);
    }
}

/* x + 1 < x + 3 and x < x + 1 do not hold where the larger one wraps around. */
static void test_order_of_sums(void **state) {
    (void)state;
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    const Expr *v = ex_var(&x, 2), *i = ex_var(&x, 0);
    const Expr *unsure = ex_lt(&x, ex_add(&x, v, ex_i(&x, 1)), ex_add(&x, v, ex_i(&x, 3)));
    const Expr *sure = ex_lt(&x, ex_add(&x, i, ex_i(&x, 1)), ex_add(&x, i, ex_i(&x, 3)));
    assert_false(ex_is_const(ex_simplify(&x, unsure, VARS, extents)));
    assert_true(ex_is_int(ex_simplify(&x, sure, VARS, extents), 1));
    arena_free(&arena);
}

/* 64 i + j + 768 < 1152 with j < 64 is a bound on i alone; with j < 65 it is not. */
static void test_coarse_order(void **state) {
    (void)state;
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    const Expr *sum = ex_add(&x, ex_mul(&x, ex_var(&x, 0), ex_i(&x, 64)), ex_var(&x, 1));
    const Expr *order = ex_lt(&x, ex_add(&x, sum, ex_i(&x, 768)), ex_i(&x, 1152));
    int64_t fits[2] = {12, 64}, wider[2] = {12, 65};
    int var;
    const Expr *bound;
    bool below;
    const Expr *simple = ex_simplify(&x, order, 2, fits);
    assert_true(ex_bound(&x, simple, 2, fits, &var, &bound, &below));
    assert_true(var == 0 && ex_is_int(bound, 6) && below);
    /* of a multiple, and of what has no bound that is a number: 2 i < 7, 3 <= 2 i, 2 i - 1 < n */
    const Expr *twice = ex_mul(&x, ex_var(&x, 0), ex_i(&x, 2)), *n = ex_var(&x, 9);
    assert_true(ex_bound(&x, ex_lt(&x, twice, ex_i(&x, 7)), 2, fits, &var, &bound, &below));
    assert_true(var == 0 && ex_is_int(bound, 4) && below);
    assert_true(ex_bound(&x, ex_le(&x, ex_i(&x, 3), twice), 2, fits, &var, &bound, &below));
    assert_true(var == 0 && ex_is_int(bound, 2) && !below);
    assert_true(
        ex_bound(&x, ex_lt(&x, ex_sub(&x, twice, ex_i(&x, 1)), n), 2, fits, &var, &bound, &below));
    assert_ptr_equal(bound,
                     ex_simplify(&x, ex_div(&x, ex_add(&x, n, ex_i(&x, 2)), ex_i(&x, 2)), 0, NULL));
    assert_false(ex_bound(&x, ex_simplify(&x, order, 2, wider), 2, fits, &var, &bound, &below));
    /* it may wrap around */
    fits[0] = (int64_t)1 << 30;
    assert_true(ex_bound(&x, ex_lt(&x, ex_var(&x, 0), n), 2, fits, &var, &bound, &below));
    assert_false(ex_bound(&x, ex_lt(&x, twice, ex_i(&x, 7)), 2, fits, &var, &bound, &below));
    arena_free(&arena);
}

/* The place of element z of rows of 14 vectors of 16 is z, also where z = 64 i + j and z / 16 has
 * become 4 i + j / 16. */
static void test_joined_divisions(void **state) {
    (void)state;
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    const int64_t extent[2] = {294, 64};
    const Expr *z = ex_add(&x, ex_mul(&x, ex_var(&x, 0), ex_i(&x, 64)), ex_var(&x, 1));
    const Expr *row = ex_mul(&x, ex_div(&x, z, ex_i(&x, 224)), ex_i(&x, 224));
    const Expr *vector = ex_bin(&x, EX_rem, ex_div(&x, z, ex_i(&x, 16)), ex_i(&x, 14));
    const Expr *lane = ex_bin(&x, EX_rem, z, ex_i(&x, 16));
    const Expr *place = ex_add(&x, ex_mul(&x, vector, ex_i(&x, 16)), lane);
    place = ex_simplify(&x, ex_add(&x, row, place), 2, extent);
    assert_ptr_equal(place, ex_simplify(&x, z, 2, extent));
    arena_free(&arena);
}

/* erf and tanh of a quotient are of a product, where the reciprocal is a normal number. */
static void test_by_reciprocal(void **state) {
    (void)state;
    Arena arena;
    Exprs exprs, *x = &exprs;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(x, &arena);
    const Expr *v = ex_cast(x, DT_f32, ex_var(x, 0));
    const Expr *quotient = ex_bin(x, EX_div, v, ex_num(x, DT_f32, 3));
    const Expr *product = ex_mul(x, v, ex_num(x, DT_f32, 1.0 / 3));
    assert_ptr_equal(ex_by_reciprocal(x, quotient), product);
    assert_ptr_equal(ex_un(x, EX_erf, quotient), ex_un(x, EX_erf, product));
    assert_ptr_equal(ex_un(x, EX_tanh, quotient), ex_un(x, EX_tanh, product));
    assert_ptr_equal(ex_un(x, EX_exp, quotient)->arg[0], quotient);
    static const double none[] = {0, 1e-39, 3e38, INFINITY, NAN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const Expr *kept = ex_bin(x, EX_div, v, ex_num(x, DT_f32, none[i]));
        assert_null(ex_by_reciprocal(x, kept));
        assert_ptr_equal(ex_un(x, EX_erf, kept)->arg[0], kept);
    }
    const Expr *wide = ex_cast(x, DT_f64, v);
    assert_null(ex_by_reciprocal(x, ex_bin(x, EX_div, wide, ex_num(x, DT_f64, 3))));
    arena_free(&arena);
}

/* Floats round and narrow integers wrap around: what is computed with them does not grow evenly. */
static void test_no_stride(void **state) {
    (void)state;
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    int64_t stride;
    const Expr *i = ex_var(&x, 0), *f = ex_cast(&x, DT_f32, i);
    const Expr *half = ex_cast(&x, DT_i32, ex_mul(&x, f, ex_num(&x, DT_f32, 0.5)));
    const Expr *more = ex_cast(&x, DT_i32, ex_add(&x, f, ex_num(&x, DT_f32, 16777216.0)));
    assert_false(ex_stride(half, 0, &stride));
    assert_false(ex_stride(more, 0, &stride));
    assert_false(ex_stride(ex_cast(&x, DT_i32, ex_cast(&x, DT_i8, i)), 0, &stride));
    assert_true(ex_stride(half, 1, &stride));
    assert_int_equal(stride, 0);
    assert_true(ex_stride(ex_cast(&x, DT_i64, i), 0, &stride));
    assert_int_equal(stride, 1);
    arena_free(&arena);
}

/* What was widened to i64 is compared as the i32 that it was, also behind max and min, but not with
 * what no i32 is. */
static void test_widened(void **state) {
    (void)state;
    static const ExprOp ops[] = {EX_lt, EX_le, EX_eq, EX_ne};
    static const int64_t values[] = {INT32_MIN, -5, -1, 0, 2, 3, 7, INT32_MAX};
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    const Expr *v = ex_var(&x, 0), *wide = ex_cast(&x, DT_i64, v);
    const Expr *byte = ex_cast(&x, DT_i64, ex_cast(&x, DT_i8, v));
    const Expr *three = ex_int(&x, DT_i64, 3), *most = ex_int(&x, DT_i64, INT32_MAX);
    const Expr *within = ex_bin(&x, EX_max, wide, ex_int(&x, DT_i64, 0));
    const Expr *side[] = {wide, byte, within, ex_bin(&x, EX_min, within, byte)};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < sizeof side / sizeof *side; k++) {
            const Expr *e = ex_bin(&x, ops[i], side[k], three);
            assert_int_equal(e->arg[0]->dt, DT_i32);
            for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
                Scalar args[2] = {ex_eval(side[k], &values[j]), {.i = 3}};
                assert_int_equal(ex_eval(e, &values[j]).i,
                                 ex_apply(ops[i], DT_bool, DT_i64, args).i);
            }
        }
    const Expr *more = ex_add(&x, most, ex_int(&x, DT_i64, 1));
    assert_int_equal(ex_lt(&x, wide, more)->arg[0]->dt, DT_i64);
    assert_int_equal(ex_bin(&x, EX_max, wide, more)->op, EX_max);
    assert_int_equal(ex_lt(&x, ex_add(&x, wide, three), most)->arg[0]->dt, DT_i64);
    const Expr *natural = ex_cast(&x, DT_i64, ex_cast(&x, DT_u32, v));
    assert_int_equal(ex_lt(&x, natural, three)->arg[0]->dt, DT_i64);
    arena_free(&arena);
}

/* Expressions whose parts are shared are trees of 2^n nodes: no walk may see them so. And a long
 * chain simplified again at every step must not take memory for every step. */
static void test_shared_parts(void **state) {
    (void)state;
    Arena arena;
    Exprs x;
    arena_init(&arena, (size_t)64 << 20, NULL, NULL);
    exprs_init(&x, &arena);
    const Expr *e = ex_add(&x, ex_var(&x, 0), ex_var(&x, 2)), *base;
    const Expr *chain = e;
    int64_t lo, hi, coef[VARS];
    for (int i = 0; i < 100; i++) {
        const Expr *limit = ex_bin(&x, EX_min, ex_i(&x, i), e);
        e = ex_select(&x, ex_lt(&x, e, ex_i(&x, i)), ex_mul(&x, e, e), ex_sub(&x, limit, e));
        e = ex_simplify(&x, e, VARS, extents);
    }
    assert_false(ex_bounds(e, VARS, extents, &lo, &hi));
    assert_false(ex_affine(&x, e, VARS, coef, &base));
    for (int i = 0; i < 2000; i++)
        chain = ex_simplify(&x, ex_bin(&x, EX_div, chain, ex_i(&x, 3)), VARS, extents);
    assert_false(ex_bounds(chain, VARS, extents, &lo, &hi));
    arena_free(&arena);
}

/* Floats times 8 and then 32 are floats times 256; times 0.5 first they may lose a bit. */
static void test_scaling(void **state) {
    (void)state;
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    const Expr *v = ex_cast(&x, DT_f32, ex_var(&x, 0));
    const Expr *one = ex_mul(&x, ex_mul(&x, v, ex_num(&x, DT_f32, 8)), ex_num(&x, DT_f32, 32));
    assert_true(one == ex_mul(&x, v, ex_num(&x, DT_f32, 256)));
    const double first[] = {0.5, 3, -2, 0x1p64};
    for (int i = 0; i < 4; i++) {
        const Expr *scaled = ex_mul(&x, v, ex_num(&x, DT_f32, first[i]));
        const Expr *two = ex_mul(&x, scaled, ex_num(&x, DT_f32, 32));
        assert_true(two->op == EX_mul && two->arg[0] == scaled);
    }
    arena_free(&arena);
}

/* What an expression depends on is known of any number of variables, and of -1 nothing. */
static void test_variables(void **state) {
    (void)state;
    static const int numbers[] = {0, 5, EX_OTHER_VARS - 1, EX_OTHER_VARS, EX_OTHER_VARS + 1, 200};
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    const Expr *all = ex_i(&x, 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const Expr *v = ex_var(&x, numbers[i]);
        assert_false(ex_depends(all, numbers[i]));
        all = ex_bin(&x, EX_rem, ex_mul(&x, all, v), ex_add(&x, v, ex_i(&x, 3)));
        for (size_t k = 0; k <= i; k++) {
            assert_true(ex_depends(all, numbers[k]));
            assert_true(ex_depends(v, numbers[k]) == (k == i));
        }
        assert_false(ex_depends(all, -1) || all->loads);
    }
    const uint64_t low = UINT64_C(1) << numbers[0] | UINT64_C(1) << numbers[1];
    assert_true(ex_vars(all) == (low | UINT64_C(1) << numbers[2]));
    assert_true(ex_add(&x, ex_load(&x, DT_i32, 0, 1, &all), all)->loads);
    arena_free(&arena);
}

/* What is chosen from bytes and constants beyond them is a byte where one that lies within wins. */
static void test_chosen_bytes(void **state) {
    Arena arena;
    Exprs x;
    arena_init(&arena, 0, NULL, NULL);
    exprs_init(&x, &arena);
    const Expr *at = ex_var(&x, 0), *byte = ex_cast(&x, DT_i32, ex_load(&x, DT_u8, 0, 1, &at));
    const Expr *least = ex_i(&x, INT32_MIN), *inside = ex_lt(&x, ex_var(&x, 1), ex_i(&x, 3));
    const Expr *rim = ex_select(&x, inside, byte, least);
    const Expr *own = ex_select(&x, ex_lt(&x, at, ex_i(&x, 3)), byte, ex_i(&x, 0));
    (void)state;
    assert_true(ex_chooses_bytes(byte, DT_u8, 0));
    assert_false(ex_chooses_bytes(byte, DT_i8, 0));
    assert_false(ex_chooses_bytes(rim, DT_u8, 0));
    assert_true(ex_chooses_bytes(ex_bin(&x, EX_max, rim, byte), DT_u8, 0));
    assert_false(ex_chooses_bytes(ex_bin(&x, EX_min, rim, byte), DT_u8, 0));
    assert_true(ex_chooses_bytes(ex_bin(&x, EX_max, rim, ex_i(&x, 255)), DT_u8, 0));
    assert_false(ex_chooses_bytes(ex_bin(&x, EX_max, byte, ex_i(&x, 256)), DT_u8, 0));
    assert_false(ex_chooses_bytes(own, DT_u8, 0));
    assert_true(ex_chooses_bytes(own, DT_u8, 1));
    assert_false(ex_chooses_bytes(ex_add(&x, byte, ex_i(&x, 1)), DT_u8, 0));
    arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),           cmocka_unit_test(test_order_of_sums),
        cmocka_unit_test(test_coarse_order),     cmocka_unit_test(test_no_stride),
        cmocka_unit_test(test_joined_divisions), cmocka_unit_test(test_shared_parts),
        cmocka_unit_test(test_by_reciprocal),    cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_widened),          cmocka_unit_test(test_variables),
        cmocka_unit_test(test_chosen_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
