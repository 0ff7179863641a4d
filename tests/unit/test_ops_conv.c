/* Convolutions whose windows lie in padding: taps that never read anything else are left out.
 * (ONNX's own suite covers the plain forms.) */
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
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_far_taps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
