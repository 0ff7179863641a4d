/* Operators that take indices, lengths and counts from tensors: whatever these hold, nothing
 * outside a tensor is read or written (the interpreter would say so), and what comes out is as
 * documented. Then what they refuse. (ONNX's own suite covers the plain forms.) */
#include "tests/unit/model_rows.h"

/* beyond both ends, and beyond what 32 bits hold */
#define WILD "-9223372036854775808 9e18 4294967297 -4294967297 -3 3"

static void test_reading(void **state) {
    static const Row rows[] = {
        {"input x f32[3] input i i64[6] output y y = Gather(x, i)",
         {"10 20 30", WILD},
         "f32[6] 10 30 30 10 10 30"},
        {"input x f32[3] input i i32[4] output y y = Gather(x, i)",
         {"10 20 30", "-2147483648 2147483647 -1 1"},
         "f32[4] 10 30 30 20"},
        {"input x f32[3] input i u8[2] output y y = Gather(x, i)",
         {"10 20 30", "255 1"},
         "f32[2] 30 20"},
        {"input x f32[3] init i i64[3] = -1 -9 9 output y y = Gather(x, i)",
         {"10 20 30"},
         "f32[3] 30 10 30"},
        {"input x f32[2,3] input i i64[2,6] output y y = GatherElements(x, i) {axis=1}",
         {"0 1 2 3 4 5", WILD " " WILD},
         "f32[2, 6] 0 2 2 0 0 2 3 5 5 3 3 5"},
        {"input x f32[2,2] input i i64[3,2] output y y = GatherND(x, i)",
         {"0 1 2 3", "-9 9 9 -9 -1 -1"},
         "f32[3] 1 2 3"},
        {"input x f32[3] input i i64[0] output y y = Gather(x, i)", {"1 2 3", ""}, "f32[0] "},
        {"input x f32[2,3] input n i64[2] output y y = ReverseSequence(x, n) "
         "{batch_axis=0 time_axis=1}",
         {"0 1 2 3 4 5", "9e18 -5"},
         "f32[2, 3] 2 1 0 3 4 5"},
        {"opset ai.onnx.ml 1 opset 17 input x f32[2,3] input i i64[2] output y "
         "y = ai.onnx.ml:ArrayFeatureExtractor(x, i)",
         {"0 1 2 3 4 5", "99 -99"},
         "f32[2, 2] 2 0 5 3"},
        {"opset 13 input x f32[2,3] input t i64[2] output y "
         "y = NegativeLogLikelihoodLoss(x, t) {reduction=\"none\"}",
         {"0 1 2 3 4 5", "99 -99"},
         "f32[2] -2 -3"},
        /* frames beyond the signal are silence */
        {"opset 17 input x f32[1,4,1] input s i64[] init w f32[2] = 1 1 output y f32[1,2,2,2] "
         "y = STFT(x, s, w)",
         {"1 2 3 4", "9e18"},
         "f32[1, 2, 2, 2] 3 0 -1 0 0 0 0 0"},
    };
    run_rows(state, "", N(rows), rows);
}

static void test_writing(void **state) {
    static const Row rows[] = {
        {"opset 18 input x f32[3] input i i64[6] input u f32[6] output y "
         "y = ScatterElements(x, i, u) {reduction=\"add\"}",
         {"0 0 0", "-9223372036854775808 9e18 4294967297 2 -3 3", "1 2 4 8 16 32"},
         "f32[3] 16 0 8"},
        {"opset 18 input x u8[2] input i i64[2] input u u8[2] output y "
         "y = ScatterElements(x, i, u) {reduction=\"mul\"}",
         {"3 200", "1 1", "2 3"},
         "u8[2] 3 176"},
        {"opset 18 input x f32[2,2] input i i64[3,2] input u f32[3] output y y = ScatterND(x, i, "
         "u)",
         {"0 0 0 0", "0 2 -3 0 -1 -1", "1 2 3"},
         "f32[2, 2] 0 0 0 3"},
        {"opset 24 input x f32[3,4,1] input u f32[3,2,1] input i i64[3] output y "
         "y = TensorScatter(x, u, i)",
         {"0 0 0 0 0 0 0 0 0 0 0 0", "1 2 3 4 5 6", "3 9e18 -9e18"},
         "f32[3, 4, 1] 0 0 0 1 0 0 0 0 0 0 0 0"},
        {"opset 24 input x f32[3,4,1] input u f32[3,2,1] input i i64[3] output y "
         "y = TensorScatter(x, u, i) {mode=\"circular\"}",
         {"0 0 0 0 0 0 0 0 0 0 0 0", "1 2 3 4 5 6", "3 4294967297 -1"},
         "f32[3, 4, 1] 2 0 0 1 0 3 4 0 6 0 0 5"},
    };
    run_rows(state, "", N(rows), rows);
}

static void test_choosing(void **state) {
    static const Row rows[] = {
        /* NaN counts as the largest; of equals the first comes first */
        {"input x f32[5] init k i64[1] = 5 output y output i y, i = TopK(x, k)",
         {"2 nan inf nan 2"},
         "f32[5] nan nan inf 2 2; i64[5] 1 3 2 0 4"},
        {"input x f32[4] init k i64[1] = 3 output y output i y, i = TopK(x, k) {largest=0}",
         {"0 nan -0 -inf"},
         "f32[3] -inf 0 0; i64[3] 3 0 2"},
        /* a few of many, one after the other: equals in the order of their positions */
        {"input x i32[1,11] init r i64[2] = 1 7 init k i64[1] = 6 output y output i t = Tile(x, r) "
         "y, i = TopK(t, k)",
         {"-2147483648 1 2 2147483647 2 1 0 0 1 0 -1"},
         "i32[1, 6] 2147483647 2147483647 2147483647 2147483647 2147483647 2147483647; "
         "i64[1, 6] 3 14 25 36 47 58"},
        {"input x f32[11] init r i64[1] = 7 init k i64[1] = 8 output y output i t = Tile(x, r) "
         "y, i = TopK(t, k) {largest=0}",
         {"5 1 2 nan 2 1 -0 0 1 inf -1"},
         "f32[8] -1 -1 -1 -1 -1 -1 -1 0; i64[8] 10 21 32 43 54 65 76 6"},
        {"opset 9 input x f32[3] output y output i y, i = TopK(x) {k=1}",
         {"1 3 2"},
         "f32[1] 3; i64[1] 1"},
        {"input x f32[2] init k i64[1] = 0 output y output i y, i = TopK(x, k)",
         {"1 3"},
         "f32[0] ; i64[0] "},
        /* a run-time k: as many as declared */
        {"input x f32[3] input k i64[1] output y f32[2] output i y, i = TopK(x, k)",
         {"1 3 2", "1"},
         "fault: TopK(y): a computed extent is out of its range"},
        /* fewer than declared: zeros; more: the first ones */
        {"input x f32[2,2] output y i64[2,4] y = NonZero(x)",
         {"0 1 0 1"},
         "i64[2, 4] 0 1 0 0 1 1 0 0"},
        {"input x f32[2,2] output y i64[2,1] y = NonZero(x)",
         {"0 1 0 1"},
         "fault: NonZero(y): a computed extent is out of its range"},
        {"init x f32[2,2] = 0 1 0 1 output y y = NonZero(x)", {NULL}, "i64[2, 2] 0 1 1 1"},
        {"init x f32[] = 3 output y y = NonZero(x)", {NULL}, "i64[1, 1] 0"},
        {"input x f32[3] input c bool[5] output y f32[2] y = Compress(x, c)",
         {"7 8 9", "0 1 0 1 1"},
         "f32[2] 8 0"},
        {"input x f32[2,3] init c bool[2] = 0 1 output y y = Compress(x, c) {axis=1}",
         {"0 1 2 3 4 5"},
         "f32[2, 1] 1 4"},
        {"input x f32[4] output y f32[3] output i output v output n y, i, v, n = Unique(x)",
         {"nan 2 nan 1"},
         "f32[3] 1 2 nan; i64[3] 3 1 0; i64[4] 2 1 2 0; i64[3] 1 1 2"},
        {"init x i64[4] = 3 1 3 2 output y y = Unique(x) {sorted=0}", {NULL}, "i64[3] 3 1 2"},
        /* scores that are no numbers are never chosen; none may be */
        {"input b f32[1,3,4] input s f32[1,1,3] input m i64[1] output y i64[3,3] "
         "y = NonMaxSuppression(b, s, m)",
         {"0 0 1 1 5 5 6 6 0 0 nan 1", "nan 0.5 0.25", "9e18"},
         "i64[3, 3] 0 0 1 0 0 2 0 0 0"},
        {"input b f32[1,3,4] input s f32[1,1,3] input m i64[1] output y i64[1,3] "
         "y = NonMaxSuppression(b, s, m)",
         {"0 0 1 1 5 5 6 6 9 9 10 10", "0.1 0.5 0.3", "-1"},
         "i64[1, 3] 0 0 0"},
        {"input b f32[1,2,4] input s f32[1,1,2] output y y = NonMaxSuppression(b, s)",
         {"0 0 1 1 5 5 6 6", "1 1"},
         "i64[0, 3] "},
        {"opset 9 input x i32[1,5] output y y = TfIdfVectorizer(x) {mode=\"IDF\" min_gram_length=1 "
         "max_gram_length=2 max_skip_count=99 ngram_counts=[0 2] ngram_indexes=[2 0 1] "
         "pool_int64s=[1 2 1 3] weights=[0.5 2.0 3.0]}",
         {"1 1 9 3 1"},
         "f32[1, 3] 0 2 3"},
    };
    run_rows(state, "", N(rows), rows);
}

static void test_refusals(void **state) {
    static const Wrong rows[] = {
        {"input x f32[3] input i f32[1] output y y = Gather(x, i)", E2006, "must be integers"},
        {"input x f32[0] input i i64[1] output y y = Gather(x, i)", E2005, "has none to take"},
        {"input x f32[2,2] input i i64[3,1] output y y = GatherElements(x, i) {axis=1}", E2005,
         "do not fit"},
        {"input x f32[2] input i i64[1,2] output y y = GatherND(x, i)", E2005, "do not fit"},
        {"input x f32[2] input i i64[1] input u f32[2] output y y = ScatterElements(x, i, u)",
         E2005, "updates"},
        {"opset 18 input x f32[2] input i i64[1] input u f32[1] output y "
         "y = ScatterElements(x, i, u) {reduction=\"mean\"}",
         E2004, "'mean'"},
        {"opset 18 input x f32[2] input i i64[1,1] input u f64[1] output y y = ScatterND(x, i, u)",
         E2006, "updates f64"},
        {"input x f32[3] init k i64[1] = 4 output y output i y, i = TopK(x, k)", E2005, "k is 4"},
        {"input x bool[1,2147483647] output y i64[2,3] y = NonZero(x)", E3005, "[2, 2147483647]"},
        {"input x f32[3] input k i64[2] output y output i y, i = TopK(x, k)", E2005,
         "k must be one number"},
        {"input b f32[1,2,5] input s f32[1,1,2] output y y = NonMaxSuppression(b, s)", E2005,
         "boxes of shape"},
        {"opset 24 input x f32[1,4,1] input u f32[1,5,1] output y y = TensorScatter(x, u)", E2005,
         "does not fit a cache"},
        {"input x f32[2,3] input n i64[3] output y y = ReverseSequence(x, n) {batch_axis=0 "
         "time_axis=1}",
         E2005, "one length for each"},
        {"opset 9 input x i32[5] output y y = TfIdfVectorizer(x) {mode=\"TF\" min_gram_length=1 "
         "max_gram_length=1 max_skip_count=0 ngram_counts=[0] ngram_indexes=[0 1] "
         "pool_strings=[\"a\" \"b\"]}",
         E2004, "do not fit together"},
        {"opset 9 input x i32[5] output y y = TfIdfVectorizer(x) {mode=\"TF\" min_gram_length=1 "
         "max_gram_length=1 max_skip_count=0 ngram_counts=[7] ngram_indexes=[0 1] pool_int64s=[1 "
         "2]}",
         E2004, "do not fit together"},
        {"input x f32[2,3] input t i64[3] output y y = NegativeLogLikelihoodLoss(x, t)", E2005,
         "do not fit targets"},
        {"input x f32[2,3,3] output y y = DFT(x)", E2005, "1 or 2 in the last"},
    };
    refuse_rows(state, "", N(rows), rows);
}

/* By how many loops of so many iterations, and then by one of `last` (0: none). */
typedef struct Way {
    int loops, trips, last;
} Way;

static void expect_way(Bench *b, const char *text, Way way) {
    const Graph *g = import_text(b, text, NULL);
    int loops = 0;
    assert_non_null(g);
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_loop) continue;
        assert_int_equal(op->trips, loops < way.loops ? way.trips : way.last);
        loops++;
    }
    assert_int_equal(loops, way.loops + (way.last > 0));
}

/* What TopK finds in one of its ways: elements of few values, so that most are equal, and equals in
 * the order of their positions. */
static void expect_largest(void **state, const char *dtype, int lines, int length, int k,
                           bool largest, Way way) {
    Bench *b = *state;
    Arena *arena = &b->arena;
    const char *x = "", *values = "", *places = "";
    for (int line = 0; line < lines; line++) {
        int *element = ARENA_ARRAY(arena, length, int), found = 0;
        for (int i = 0; i < length; i++) {
            element[i] = (i * 7919 + line * 31) % 1009 % 23 + 1;
            x = arena_printf(arena, "%s %d", x, element[i]);
        }
        for (int value = 23; value > 0; value--) {
            for (int i = 0; i < length && found < k; i++) {
                if (element[i] != (largest ? value : 24 - value)) continue;
                values = arena_printf(arena, "%s %d", values, element[i]);
                places = arena_printf(arena, "%s %d", places, i);
                found++;
            }
        }
    }
    const Row row = {
        arena_printf(arena,
                     "input x %s[%d,%d] init k i64[1] = %d output y output i "
                     "y, i = TopK(x, k) {largest=%d}",
                     dtype, lines, length, k, largest),
        {x + 1},
        arena_printf(arena, "%s[%d, %d]%s; i64[%d, %d]%s", dtype, lines, k, values, lines, k,
                     places),
    };
    run_rows(state, "", 1, &row);
    expect_way(b, row.text, way);
}

static void test_choosing_in_each_way(void **state) {
    const Way pairs = {0, 0, 0}, by_last = {1, 32, 0}, in_pieces = {2, 32, 0};
    expect_largest(state, "f32", 3, 20, 4, true, pairs);
    expect_largest(state, "i64", 2, 70, 3, true, (Way){1, 3, 0});     /* one after the other */
    expect_largest(state, "f32", 2, 1000, 5, true, (Way){2, 5, 0});   /* in groups */
    expect_largest(state, "i32", 1, 999, 20, false, (Way){2, 20, 0}); /* some are not full */
    expect_largest(state, "f32", 2, 200, 90, true, by_last);
    expect_largest(state, "f32", 1, 4003, 100, true, in_pieces); /* the last is not full */
    expect_largest(state, "u8", 1, 4003, 100, false, in_pieces);
    expect_largest(state, "f32", 2, 700, 650, true, (Way){0, 0, 16}); /* all are sorted */
    expect_largest(state, "i32", 1, 600, 600, false, (Way){0, 0, 16});
    expect_largest(state, "i64", 1, 1300, 1290, true, (Way){0, 0, 32});
    expect_largest(state, "f32", 1, 9000, 700, true, (Way){2, 32, 16}); /* in pieces, then sorted */
}

/* Boxes are sorted (16 iterations) before they are looked at, also if how many pass the threshold
 * varies, but for few that may be chosen. */
static void test_choosing_boxes(void **state) {
    const char *text = "input b f32[1,1000,4] input s f32[1,1,1000] init m i64[1] = %d "
                       "init t f32[1] = 0.5 output y y = NonMaxSuppression(b, s, m, t%s)";
    Bench *b = *state;
    expect_way(b, arena_printf(&b->arena, text, 300, ""), (Way){1, 16, 1000});
    expect_way(b, arena_printf(&b->arena, text, 300, ", t"), (Way){1, 16, 1000});
    expect_way(b, arena_printf(&b->arena, text, 20, ""), (Way){0, 0, 1000});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reading, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_writing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_choosing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_choosing_in_each_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_choosing_boxes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
