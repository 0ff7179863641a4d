/* Operators of com.microsoft on numbers that can be checked by hand (or that ONNX Runtime or numpy
 * gave), and what they refuse. The first of its quantised ones are in test_ops_ml.c. */
#include "tests/unit/model_text.h"

#define MS "opset 17 opset com.microsoft 1 "

typedef struct Row {
    const char *text;
    const char *inputs[4];
    const char *result;
} Row;

static void run_rows(void **state, size_t n, const Row *rows) {
    Bench *b = *state;
    for (size_t i = 0; i < n; i++) {
        int count = 0;
        while (count < 4 && rows[i].inputs[count]) count++;
        const char *text = arena_printf(&b->arena, MS "%s", rows[i].text);
        const char *result = run_text(b, text, NULL, count, rows[i].inputs);
        if (strcmp(result, rows[i].result) != 0)
            fail_msg("%s: %s, not %s", rows[i].text, result, rows[i].result);
    }
}

static void test_moves(void **state) {
    static const Row rows[] = {
        {"input x f32[2,2] output y init p i64[1,4] = 0 1 1 0 init v f32[1] = 9 "
         "y = com.microsoft:Pad(x, p, v)",
         {"1 2 3 4"},
         "f32[3, 3] 9 1 2 9 3 4 9 9 9"},
        {"input x f32[3] output y init p i64[2] = 2 -1 y = com.microsoft:Pad(x, p) "
         "{mode=\"edge\"}",
         {"1 2 3"},
         "f32[4] 1 1 1 2"},
        {"input x f32[2] output y init a i32[] = -1 y = com.microsoft:ExpandDims(x, a)",
         {"1 2"},
         "f32[2, 1] 1 2"},
        {"input x f32[2] output y init a i32[1] = 0 y = com.microsoft:ExpandDims(x, a)",
         {"1 2"},
         "f32[1, 2] 1 2"},
        {"output y init a i16[] = 2 init b i16[1] = 5 y = com.microsoft:Range(a, b)",
         {NULL},
         "i16[3] 2 3 4"},
        {"output y init a f32[] = 2 init b f32[] = 1 init c f32[] = -0.5 "
         "y = com.microsoft:Range(a, b, c)",
         {NULL},
         "f32[2] 2 1.5"},
        {"input x f32[2,3] output y init k i64[] = 1 y = com.microsoft:Trilu(x, k)",
         {"1 2 3 4 5 6"},
         "f32[2, 3] 0 2 3 0 0 6"},
        {"input x f32[2,2] input i i32[2,1] output y y = com.microsoft:GatherND(x, i)",
         {"1 2 3 4", "1 -2"},
         "f32[2, 2] 3 4 1 2"},
        {"input x f32[1,1,1,2] input g f32[1,1,1,2] output y y = com.microsoft:GridSample(x, g) "
         "{mode=\"bilinear\" align_corners=1}",
         {"1 3", "0 0"},
         "f32[1, 1, 1, 1] 2"},
        /* in the order in which they occur */
        {"output y output i output c init x f32[6] = 2 1 1 3 4 3 "
         "y, i, c = com.microsoft:Unique(x)",
         {NULL},
         "f32[4] 2 1 3 4; i64[6] 0 1 1 2 3 2; i64[4] 1 2 2 1"},
    };
    run_rows(state, N(rows), rows);
}

static void test_biases(void **state) {
    static const Row rows[] = {
        {"input x f32[1,2,2] input b f32[2] input s f32[1,2,2] output y "
         "y = com.microsoft:BiasAdd(x, b, s)",
         {"1 2 3 4", "10 20", "0.5 0.5 0 0"},
         "f32[1, 2, 2] 11.5 22.5 13 24"},
        /* (1 + 1) * gelu(2 - 1) */
        {"input x f32[1,1,2] input b f32[2] output y y = com.microsoft:BiasSplitGelu(x, b)",
         {"1 2", "1 -1"},
         "f32[1, 1, 1] 1.68269"},
        {"input x f32[2,2] input b f32[1,2] output y "
         "y = com.microsoft:BiasSoftmax(x, b) {axis=1 is_inner_broadcast=0}",
         {"0 1 0 0", "1 0"},
         "f32[2, 2] 0.5 0.5 0.731059 0.268941"},
        {"input x f32[2,1,2] input b f32[2,1,2] output y "
         "y = com.microsoft:BiasSoftmax(x, b) {axis=2 is_inner_broadcast=1}",
         {"0 1 0 0", "1 0 -1000 0"},
         "f32[2, 1, 2] 0.5 0.5 0 1"},
        {"input x f32[2,2] input b f32[2] input r f32[2,2] output y output m "
         "y, m = com.microsoft:BiasDropout(x, b, r)",
         {"1 2 3 4", "1 1", "0 0 5 5"},
         "f32[2, 2] 2 3 9 10; bool[2, 2] 1 1 1 1"},
    };
    run_rows(state, N(rows), rows);
}

static void test_products(void **state) {
    static const Row rows[] = {
        {"input a f32[2,1] input b f32[2,1] output y "
         "y = com.microsoft:TransposeMatMul(a, b) {transA=1 alpha=0.5}",
         {"1 2", "3 4"},
         "f32[1, 1] 5.5"},
        {"input a f32[1,2] input b f32[2,1] input c f32[1] output y "
         "y = com.microsoft:GemmFastGelu(a, b, c)",
         {"1 2", "1 1", "-2"},
         "f32[1, 1] 0.841192"},
        /* codes 15 and 0 of NF4 are 1 and -1, the high bits come first; N is 1 */
        {"input a f32[1,2] input b u8[1] input s f32[1] output y y = com.microsoft:MatMulBnb4("
         "a, b, s) {K=2 N=1 block_size=16 quant_type=1}",
         {"3 5", "240", "2"},
         "f32[1, 1] -4"},
        /* codes 3 and 13 of FP4 are 1 and -1/2 */
        {"input a f32[1,1] input b u8[1] input s f32[1] output y y = com.microsoft:MatMulBnb4("
         "a, b, s) {K=2 N=1 block_size=16 quant_type=0 transB=0}",
         {"4", "61", "2"},
         "f32[1, 2] 8 -4"},
    };
    run_rows(state, N(rows), rows);
}

static void test_attention(void **state) {
    static const Row rows[] = {
        /* one key: the value is the result, (12 - 10) * (5, 3, 4 - 1) / 2 + (0, 0, 7) */
        {"input x u8[1,1,1] input w i8[1,3] output y init b f32[3] = 0 0 7 init s f32[] = 0.5 "
         "init t f32[1] = 1 init z u8[] = 10 init o i8[1] = 1 "
         "y = com.microsoft:QAttention(x, w, b, s, t, _, z, o) {num_heads=1}",
         {"12", "5 3 4"},
         "f32[1, 1, 1] 10"},
        /* the second key is masked out; scales and zero points of each column */
        {"input x u8[1,2,1] input w i8[1,3] output y output p init b f32[3] = 0 0 0 init s f32[] = "
         "0.5 init t f32[3] = 1 1 2 init z u8[] = 0 init o i8[3] = 0 0 1 init m i32[1] = 1 "
         "y, p = com.microsoft:QAttention(x, w, b, s, t, m, z, o) {num_heads=1}",
         {"1 2", "5 3 4"},
         "f32[1, 2, 1] 3 3; f32[2, 1, 1, 2, 1] 1.5 3 3 6"},
        /* words 1 + 3, positions 1 + 0, gamma 2, beta 1; (1, 3) is even as (-1, 1) */
        {"input i i32[1,1] output y output m init w u8[2,2] = 0 0 1 3 init p u8[1,2] = 1 1 "
         "init g u8[2] = 4 4 init b u8[2] = 1 1 init s f32[] = 1 init h f32[] = 0.5 "
         "init z u8[] = 0 init o u8[] = 1 init k i32[1,1] = 1 "
         "y, m = com.microsoft:QEmbedLayerNormalization(i, _, w, p, _, g, b, k, s, s, _, h, s, z, "
         "o, _, z, z)",
         {"1"},
         "f32[1, 1, 2] -1 3; i32[1] 1"},
    };
    run_rows(state, N(rows), rows);
}

static void test_refusals(void **state) {
    Bench *b = *state;
    static const struct {
        const char *text;
        ErrCode code;
        const char *part;
    } wrong[] = {
        {"input x f32[2] output y init p i64[2] = 1 1 y = com.microsoft:Pad(x, p) "
         "{mode=\"wrap\"}",
         E2004, "'wrap'"},
        {"input x f32[2] input a i32[] output y y = com.microsoft:ExpandDims(x, a)", E3004,
         "the axis"},
        {"input x f32[2] output y init a i32[2] = 0 1 y = com.microsoft:ExpandDims(x, a)", E2005,
         "2 axes"},
        {"input x f32[2,2] output y output i output c y, i, c = com.microsoft:Unique(x)", E2005,
         "2 dimensions"},
        {"input x f32[1,2,3] input b f32[3] output y y = com.microsoft:BiasSplitGelu(x, b)", E3002,
         "a hidden size of 3"},
        {"input x f32[2,1,2] input b f32[2,2] output y "
         "y = com.microsoft:BiasSoftmax(x, b) {axis=2 is_inner_broadcast=1}",
         E3002, "a bias of shape"},
        {"input x f32[2,2,2] input b f32[2,1,2] output y "
         "y = com.microsoft:BiasSoftmax(x, b) {axis=2 is_inner_broadcast=0}",
         E3002, "a bias of shape"},
        {"input x f32[1,2,2] input b f32[2] input s f32[2,2] output y "
         "y = com.microsoft:BiasAdd(x, b, s)",
         E2005, "a skip input"},
        {"input x f32[2,2] input b f32[2] input t bool[] output y "
         "y = com.microsoft:BiasDropout(x, b, _, _, t)",
         E3002, "training"},
        {"input a f32[1,2] input b u8[1] input s f32[1] output y y = com.microsoft:MatMulBnb4("
         "a, b, s) {K=2 N=1 block_size=16 quant_type=2}",
         E2004, "quant_type 2"},
        {"input a f32[1,3] input b u8[1] input s f32[1] output y y = com.microsoft:MatMulBnb4("
         "a, b, s) {K=2 N=1 block_size=16 quant_type=1}",
         E2005, "for K 2 and N 1"},
        {"input x u8[1,1,1] input w i8[1,3] output y init b f32[3] = 0 0 7 init s f32[] = 1 "
         "y = com.microsoft:QAttention(x, w, b, s, s) {num_heads=1 do_rotary=1}",
         E3002, "do_rotary"},
        {"input x u8[1,1,1] input w i8[1,3] output y init b f32[3] = 0 0 7 init s f32[2] = 1 1 "
         "y = com.microsoft:QAttention(x, w, b, s, s) {num_heads=1}",
         E2005, "do not fit"},
        {"input i i32[1,1] input j i32[1,1] output y output m init w u8[2,2] = 0 0 1 3 init s "
         "f32[] "
         "= 1 init z u8[] = 0 y, m = com.microsoft:QEmbedLayerNormalization(i, _, w, w, w, w, w, "
         "_, "
         "s, s, _, s, s, z, z, _, z, z)",
         E2007, "for segments"},
    };
    for (size_t i = 0; i < N(wrong); i++) {
        const char *text = arena_printf(&b->arena, MS "%s", wrong[i].text);
        if (import_text(b, text, NULL)) fail_msg("%s: imported", wrong[i].text);
        expect_error(b, wrong[i].code, wrong[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_biases, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_products, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_attention, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
