/* Convolutions whose windows lie in padding: taps that never read anything else are left out. Large
 * windows of which the largest element is wanted. (ONNX's own suite covers the plain forms.) */
#include "tests/unit/model_rows.h"

static void test_far_taps(void **state) {
    static const Row rows[] = {
        /* the middle tap alone reads the input */
        {"input x f32[1,1,3] init w f32[1,1,3] = 5 2 7 output y "
         "y = Conv(x, w) {dilations=[4] pads=[4 4]}",
         {"1 10 100"},
         "f32[1, 1, 3] 2 20 200"},
        /* the last one begins behind the end, the first reads with the second step */
        {"input x f32[1,1,2] init w f32[1,1,3] = 5 2 7 output y "
         "y = Conv(x, w) {dilations=[3] pads=[2 6] strides=[2]}",
         {"1 10"},
         "f32[1, 1, 2] 20 5"},
        /* all but the first lie behind the end */
        {"input x f32[1,1,2] init w f32[1,1,3] = 5 2 7 output y "
         "y = Conv(x, w) {dilations=[2] pads=[0 4]}",
         {"1 10"},
         "f32[1, 1, 2] 5 50"},
        /* along one dimension, with weights of a run */
        {"input x f32[1,1,2,2] input w f32[1,1,2,3] output y "
         "y = Conv(x, w) {dilations=[1 2] pads=[1 2 0 2]}",
         {"1 2 3 4", "9 1 9 9 10 9"},
         "f32[1, 1, 2, 2] 10 20 31 42"},
        /* padding is the zero point */
        {"opset 10 input x u8[1,1,2] init w i8[1,1,3] = 5 2 7 init z u8[] = 3 output y "
         "y = ConvInteger(x, w, z) {dilations=[2] pads=[2 2]}",
         {"4 13"},
         "i32[1, 1, 2] 2 20"},
    };
    run_rows(state, "", sizeof rows / sizeof *rows, rows);
}

/* One dimension after the other, with steps, dilation and padding of its own. */
static void test_large_windows(void **state) {
    static const Row rows[] = {
        {"input x f32[1,1,10,6] output y y = MaxPool(x) {kernel_shape=[5 5] dilations=[2 1] "
         "strides=[1 2] pads=[4 2 4 1]}",
         {"-30 -1 28 -4 25 -7 22 -10 19 -13 16 -16 13 -19 10 -22 7 -25 4 -28 1 30 -2 27 -5 24 "
          "-8 21 -11 18 -14 15 -17 12 -20 9 -23 6 -26 3 -29 0 29 -3 26 -6 23 -9 20 -12 17 -15 "
          "14 -18 11 -21 8 -24 5 -27"},
         "f32[1, 1, 10, 3] "
         "28 28 28 22 30 30 28 28 28 29 30 30 28 28 28 29 30 30 24 24 21 29 30 30 24 24 21 29 "
         "29 26"},
    };
    run_rows(state, "", sizeof rows / sizeof *rows, rows);
}

/* How many places the last reduction of the model runs over. */
static int64_t taps(Bench *b, const char *text) {
    Graph *g = import_text(b, text, NULL);
    assert_non_null(g);
    const Op *op = g->last;
    while (op->kind != OP_reduce) op = op->prev;
    return shape_numel(op->n_red, op->red);
}

static void test_work(void **state) {
    assert_int_equal(taps(*state,
                          "input x f32[1,2,9,9] init w f32[1,2,3,3] = 1 2 3 4 5 6 7 8 9 1 2 "
                          "3 4 5 6 7 8 9 output y y = Conv(x, w) {dilations=[9 8] "
                          "pads=[9 8 9 8]}"),
                     2 * 1 * 3);
    /* the largest of rows, then of these; all at once where a window is small or goes far */
    static const char pool[] = "input x f32[1,2,20,20] output y y = MaxPool(x) ";
    static const char *const windows[] = {"{kernel_shape=[5 5] pads=[2 2 2 2]}",
                                          "{kernel_shape=[3 3]}",
                                          "{kernel_shape=[5 5] strides=[5 5]}"};
    static const int64_t places[] = {5, 3 * 3, 5 * 5};
    for (int i = 0; i < 3; i++) {
        Bench *b = *state;
        assert_int_equal(taps(b, arena_printf(&b->arena, "%s%s", pool, windows[i])), places[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_far_taps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_windows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
