/* Random numbers: with a seed those of numpy's RandomState, without one numbers that are as often
 * in each part of their range as they should be. */
#include "tests/unit/model_text.h"

static void expect(Bench *b, const char *text, const char *input, const char *wanted) {
    assert_string_equal(run_text(b, text, NULL, input != NULL, &input), wanted);
}

static const char probabilities[] = "0 1 0.5 0.3 0.7 0.9 0.1 0.45 0.55 0.6 0.2 0.8";

/* numpy.random.RandomState(seed).binomial(1, p), rand(4) and randn(4) */
static void test_seeds(void **state) {
    Bench *b = *state;
    expect(b, "input x f64[12] output y y = Bernoulli(x) {seed=0.0}", probabilities,
           "f64[12] 0 1 1 0 1 1 0 1 0 1 0 1");
    expect(b, "input x f32[12] output y y = Bernoulli(x) {seed=42.0 dtype=6}", probabilities,
           "i32[12] 0 1 1 0 1 1 0 1 0 0 0 0");
    expect(b, "input x f32[4] output y y = RandomUniformLike(x) {seed=7.0 low=-1.0 high=2.0}",
           "0 0 0 0", "f32[4] -0.771075 1.33976 0.315228 1.1704");
    expect(b, "input x i32[4] output y y = RandomNormalLike(x) {seed=7.0 dtype=1}", "0 0 0 0",
           "f32[4] 1.69053 -0.465937 0.0328202 0.407516");
}

/* Draws `text`, a tensor of 10000 numbers, and returns how many of them are in [low, high). */
static int count(Bench *b, const char *text, double low, double high, const char *input) {
    const char *model = arena_printf(
        &b->arena,
        "init low f32[] = %g init high f32[] = %g input p f32[1] init n i64[1] = 10000 "
        "many = Expand(p, n) %s a = GreaterOrEqual(y, low) b = Less(y, high) "
        "c = And(a, b) d = Cast(c) {to=7} s = ReduceSum(d) {keepdims=0} output s",
        low, high, text);
    const char *result = run_text(b, model, NULL, 1, &input);
    assert_memory_equal(result, "i64[] ", 6);
    return atoi(result + 6);
}

/* n draws of probability p: within 4 standard deviations of n * p */
static void expect_about(int have, double p) {
    double n = 10000, off = have - n * p;
    if (off * off > 16 * n * p * (1 - p)) fail_msg("%d of 10000, wanted about %g", have, n * p);
}

static void test_frequencies(void **state) {
    Bench *b = *state;
    static const char *const p[] = {"0", "0.03", "0.3", "0.5", "0.7", "0.999", "1"};
    for (size_t i = 0; i < N(p); i++) {
        expect_about(count(b, "y = Bernoulli(many)", 1, 1.5, p[i]), atof(p[i]));
        expect_about(count(b, "y = Bernoulli(many)", 0, 0.5, p[i]), 1 - atof(p[i]));
        expect_about(count(b, "y = Bernoulli(many) {seed=3.0}", 1, 1.5, p[i]), atof(p[i]));
    }
    for (int part = 0; part < 5; part++) {
        double low = -1 + part, high = low + 1;
        expect_about(count(b, "y = RandomUniformLike(many) {low=-1.0 high=4.0}", low, high, "0"),
                     0.2);
        expect_about(
            count(b, "y = RandomUniform() {low=-1.0 high=4.0 shape=[10000]}", low, high, "0"), 0.2);
    }
    expect_about(count(b, "y = RandomNormalLike(many) {mean=2.0 scale=3.0}", -1, 5, "0"), 0.682689);
    expect_about(count(b, "y = RandomNormalLike(many) {mean=2.0 scale=3.0}", -1, 2, "0"), 0.341345);
}

static void test_types(void **state) {
    Bench *b = *state;
    expect(b, "input x f16[2] output y y = Bernoulli(x)", "0 1", "f16[2] 0 1");
    expect(b, "input x f64[2] output y y = Bernoulli(x) {dtype=9}", "0 1", "bool[2] 0 1");
    expect(b, "input x bf16[0,2] output y y = Bernoulli(x)", "", "bf16[0, 2] ");
    assert_null(import_text(b, "input x i32[2] output y y = Bernoulli(x)", NULL));
    expect_error(b, E2006, "the operator takes no elements of type i32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_seeds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_frequencies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_types, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("ops_random", tests, NULL, NULL);
}
