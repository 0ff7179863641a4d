/* Mixtures of experts, group norms, and operators with channels last, of com.microsoft, on numbers
 * that can be checked by hand, and what they refuse. */
#include "tests/unit/model_rows.h"

#define MS "opset 17 opset com.microsoft 1 "

/* Two experts of one hidden element: the first has (3) for (1, 2) and gives (3, 3), the second has
 * 5 and gives (15, 16). */
#define TWO                                                                                        \
    "input x f32[1,2] input r f32[1,2] output y init w f32[2,1,2] = 1 1 2 3 "                      \
    "init b f32[2,1] = 0 -3 init v f32[2,2,1] = 1 1 1 -1 init c f32[2,2] = 0 0 10 21 "             \
    "init u f32[2,1,2] = 0 0 1 1 y = com.microsoft:"
/* One expert of one element in and out. */
#define ONE                                                                                        \
    "input x f32[1,1,1] output y init r f32[1,1] = 0 init v f32[1,1,1] = 1 "                       \
    "init z f32[1,1,2] = 1 10 init a f32[1,1,1] = 2 init c f32[1,1,1] = 3 init d f32[1,1] = -1 "   \
    "init p f32[1,2,1] = 2 3 init q f32[1,4,1] = 1 2 3 4 y = com.microsoft:MoE"

static void test_moe(void **state) {
    static const Row rows[] = {
        {TWO "MoE(x, r, w, b, v, c) {normalize_routing_weights=1}",
         {"1 2", "7 1"},
         "f32[1, 2] 3 3"},
        {TWO "MoE(x, r, w, b, v, c) {normalize_routing_weights=1}",
         {"1 2", "1 7"},
         "f32[1, 2] 15 16"},
        /* of two that are equal the first is taken, with its share of all */
        {TWO "MoE(x, r, w, b, v, c)", {"1 2", "4 4"}, "f32[1, 2] 1.5 1.5"},
        {TWO "MoE(x, r, w, b, v, c) {k=2}", {"1 2", "4 4"}, "f32[1, 2] 9 9.5"},
        /* 3 * (5, -5), and the bias */
        {TWO "MoE(x, r, w, b, v, c, u) {normalize_routing_weights=1}",
         {"1 2", "1 7"},
         "f32[1, 2] 25 6"},
        /* 8 / 2 * (10 + 1): the gate is below the limit */
        {ONE "(x, r, p, _, v) {activation_type=\"swiglu\" swiglu_fusion=1 activation_alpha=0.0 "
             "activation_beta=1.0 swiglu_limit=10.0}",
         {"4"},
         "f32[1, 1, 1] 44"},
        {ONE "(x, r, p, _, v) {activation_type=\"swiglu\" swiglu_fusion=1 activation_alpha=0.0 "
             "swiglu_limit=10.0}",
         {"-20"},
         "f32[1, 1, 1] 200"},
        /* 4 / 2 * 12 + 10 * (8 / 2 * 16) */
        {ONE "(x, r, q, _, z) {activation_type=\"swiglu\" swiglu_fusion=2 activation_alpha=0.0}",
         {"4"},
         "f32[1, 1, 1] 664"},
        {ONE "(x, r, a, _, v, _, c, d) {activation_type=\"swiglu\" activation_alpha=0.0}",
         {"4"},
         "f32[1, 1, 1] 44"},
        {ONE "(x, r, a, d, v) {activation_type=\"silu\"}", {"0.5"}, "f32[1, 1, 1] 0"},
        {ONE "(x, r, a, _, v) {activation_type=\"silu\"}", {"1"}, "f32[1, 1, 1] 1.76159"},
        {ONE "(x, r, a, _, v) {activation_type=\"gelu\"}", {"0.5"}, "f32[1, 1, 1] 0.841192"},
        {ONE "(x, r, a, d, v) {activation_type=\"identity\"}", {"-3"}, "f32[1, 1, 1] -7"},
    };
    run_rows(state, MS, N(rows), rows);
}

/* The second expert's weights are (2, 1), (0, -1) with the scales 1/2 and 1, then (2, -8), (1, 0).
 */
#define NIBBLES                                                                                    \
    "input x f32[1,2] input r f32[1,2] output y init w u8[2,2,1] = 0 0 154 120 "                   \
    "init s f32[2,2] = 1 1 0.5 1 init v u8[2,2,1] = 0 0 10 137 init t f32[2,2] = 1 1 1 1 "         \
    "init z u8[2,1] = 0 135 init p f32[1,2] = 0.5 0.25 y = com.microsoft:QMoE"

static void test_qmoe(void **state) {
    static const Row rows[] = {
        {NIBBLES "(x, r, w, s, _, v, t)", {"4 6", "0 1"}, "f32[1, 2] 14 7"},
        /* zero points 7 and 8 of the first layer */
        {NIBBLES "(x, r, w, s, _, v, t, _, _, _, _, z)", {"4 6", "0 1"}, "f32[1, 2] 24 12"},
        {NIBBLES "(x, r, w, s, _, v, t, _, _, _, _, _, _, _, p)",
         {"4 6", "0 1"},
         "f32[1, 2] 3.5 "
         "1.75"},
        {NIBBLES "(x, r, w, s, _, v, t, _, _, _, _, _, _, _, p) {normalize_routing_weights=1}",
         {"4 6", "0 1"},
         "f32[1, 2] 14 7"},
        /* two blocks in each row: (1, 2 | 3, 4) and (0, 0 | 0, 1), scales 1 and 10; zero points 128
         */
        {"input x f32[1,4] output y init r f32[1,1] = 0 init w u8[1,2,4] = 129 130 131 132 128 128 "
         "128 129 init s f32[1,2,2] = 1 10 1 10 init v u8[1,4,2] = 129 128 128 129 130 128 128 130 "
         "init t f32[1,4,1] = 1 1 1 1 init z u8[1,4,1] = 128 128 127 128 "
         "y = com.microsoft:QMoE(x, r, w, s, _, v, t, _, _, _, _, _, z) {block_size=2 "
         "expert_weight_bits=8 activation_type=\"identity\"}",
         {"1 1 1 1"},
         "f32[1, 4] 73 10 229 20"},
        /* 2 bits for the first layer, 8 for the second: (1, 0, -1, -2) * 3, then 5 */
        {"input x f32[1,4] output y init r f32[1,1] = 0 init w u8[1,1,1] = 27 init s f32[1,1] = 3 "
         "init v u8[1,4,1] = 133 128 127 129 init t f32[1,4] = 1 1 1 1 "
         "y = com.microsoft:QMoE(x, r, w, s, _, v, t) {expert_weight_bits=2 "
         "fc2_expert_weight_bits=8}",
         {"5 1 1 1"},
         "f32[1, 4] 30 0 -6 6"},
    };
    run_rows(state, MS, N(rows), rows);
}

static void test_group_norm(void **state) {
#define GROUPS(shape)                                                                              \
    "input x f32" shape                                                                            \
    " output y init g f32[2] = 2 3 init b f32[2] = 0 1 init s f32[1,2] = 10 20 "                   \
    "init t f32[2] = 1 1 y = com.microsoft:"
#define SHARED "input x f32[1,1,2,2] output y output z init s f32[1,2] = 10 20 init t f32[2] = 1 1 "
    static const Row rows[] = {
        {GROUPS("[1,1,2,2]") "GroupNorm(x, g, b) {groups=2 activation=0 epsilon=0.0}",
         {"1 2 3 6"},
         "f32[1, 1, 2, 2] -2 -2 2 4"},
        {GROUPS("[1,2,1,2]") "GroupNorm(x, g, b) {groups=2 activation=0 epsilon=0.0 "
                             "channels_last=0}",
         {"1 3 2 6"},
         "f32[1, 2, 1, 2] -2 2 -2 4"},
        {GROUPS("[1,1,2,2]") "GroupNorm(x, g, b) {groups=1 activation=0 epsilon=0.0}",
         {"1 1 3 3"},
         "f32[1, 1, 2, 2] -2 -2 2 4"},
        {GROUPS("[1,1,2,2]") "GroupNorm(x, g, b) {groups=2 activation=1 epsilon=0.0}",
         {"1 2 3 6"},
         "f32[1, 1, 2, 2] -0.238406 -0.238406 1.76159 3.92806"},
        {SHARED "init g f32[2] = 2 3 init b f32[2] = 0 1 y, z = com.microsoft:SkipGroupNorm(x, g, "
                "b, s, t) {groups=2 activation=0 epsilon=0.0}",
         {"1 2 3 6"},
         "f32[1, 1, 2, 2] -2 -2 2 4; f32[1, 1, 2, 2] 12 23 14 27"},
        {GROUPS("[1,2,1,2]") "SkipGroupNorm(x, g, b, s) {groups=1 activation=0 epsilon=0.0 "
                             "channels_last=0}",
         {"11 11 3 3"},
         "f32[1, 2, 1, 2] -2 -2 4 4"},
    };
    run_rows(state, MS, N(rows), rows);
}

static void test_channels_last(void **state) {
    static const Row rows[] = {
        {"input x f32[1,1,2,2] output y init w f32[1,1,2,2] = 10 1 100 -1 "
         "y = com.microsoft:NhwcConv(x, w)",
         {"1 2 3 4"},
         "f32[1, 1, 1, 1] 308"},
        {"input x f32[1,1,2,2] input z f32[1,1,2,1] output y init w f32[1,2,1,1] = 10 1 "
         "init b f32[1] = -20 y = com.microsoft:NhwcFusedConv(x, w, b, z) {activation=\"Relu\"}",
         {"1 2 3 4", "1 -1"},
         "f32[1, 1, 2, 1] 0 13"},
        {"input x u8[1,1,2,2] output y y = com.microsoft:NhwcMaxPool(x) {kernel_shape=[1 2]}",
         {"1 8 5 2"},
         "u8[1, 1, 1, 2] 5 8"},
        {"input x i8[1,2,2] output y y = com.microsoft:NhwcMaxPool(x) {kernel_shape=[2] pads=[1 "
         "0]}",
         {"-1 -8 -5 -2"},
         "i8[1, 2, 2] -1 -8 -1 -2"},
        {"input x u8[1,1,2,2] output y init s f32[] = 1 init z u8[] = 0 init w u8[1,2,1,1] = 10 1 "
         "init t f32[] = 2 y = com.microsoft:QLinearConv(x, s, z, w, s, z, t, z) {channels_last=1}",
         {"1 2 3 4"},
         "u8[1, 1, 2, 1] 6 17"},
        {"input x u8[1,2,1,2] output y init s f32[] = 1 init z u8[] = 0 init w u8[1,2,1,1] = 10 1 "
         "init b i32[1] = 4 y = com.microsoft:QLinearConv(x, s, z, w, s, z, s, z, b)",
         {"1 3 2 4"},
         "u8[1, 1, 1, 2] 16 38"},
        /* (a - 1) * 1 or (b - 3) * 2, in halves from 5 */
        {"input c bool[2] input a i8[2] input b i8[1] output y init s f32[] = 1 init t f32[] = 2 "
         "init h f32[] = 0.5 init o i8[] = 1 init p i8[] = 3 init q i8[] = 5 "
         "y = com.microsoft:QLinearWhere(c, a, s, o, b, t, p, h, q)",
         {"1 0", "11 0", "7"},
         "i8[2] 25 21"},
        {"input a u8[2,2] output y init s f32[] = 2 init o u8[] = 1 init h f32[] = 0.5 "
         "y = com.microsoft:QLinearReduceMean(a, s, o, h) {axes=[1] keepdims=0}",
         {"3 6 2 1"},
         "u8[2] 14 2"},
    };
    run_rows(state, MS, N(rows), rows);
}

static void test_refusals(void **state) {
#define NORM                                                                                       \
    "input x f32[1,1,2,2] output y init g f32[2] = 1 1 y = com.microsoft:GroupNorm(x, g, g) "
    static const Wrong wrong[] = {
        {TWO "MoE(x, r, w, b, v, c) {k=2 use_sparse_mixer=1}", E3002, "use_sparse_mixer"},
        {TWO "MoE(x, r, w, b, v, c) {k=3}", E2004, "3 of 2 experts"},
        {TWO "MoE(x, r, w, b, v, c) {k=0}", E2004, "0 of 2 experts"},
        {TWO "MoE(x, x, w, b, v, c) {activation_type=\"tanh\"}", E2004, "'tanh'"},
        {TWO "MoE(x, r, w, b, v, c) {activation_type=\"swiglu\"}", E2004, "without"},
        {TWO "MoE(x, r, w, b, v, c) {activation_type=\"swiglu\" swiglu_fusion=1}", E2005, "1 rows"},
        {TWO "MoE(x, r, w, c, v, c)", E2005, "the biases of fc1 have shape [2, 2]"},
        {TWO "MoE(x, r, w, b, w, c)", E2005, "the weights of fc2 have shape [2, 1, 2]"},
        {TWO "MoE(x, r, w, b, v, c, v)", E2005, "the weights of fc3"},
        {ONE "(x, x, a, _, v)", E2005, "the routes"},
        {NIBBLES "(x, r, w, s, _, v, t) {expert_weight_bits=3}", E3002, "3 bits"},
        {NIBBLES "(x, r, w, s, _, v, t) {quant_type=\"fp8\"}", E3002, "'fp8'"},
        {NIBBLES "(x, r, w, s, _, v, t) {weights_prepacked=1}", E3002, "weights_prepacked"},
        {NIBBLES "(x, r, w, s, _, v, t) {block_size=16}", E2005, "2 columns of fc1"},
        {NIBBLES "(x, r, w, s, _, v, t) {block_size=2}", E2005, "the scales of fc1"},
        {NIBBLES "(x, r, w, s, _, v, t, _, _, _, _, v)", E2005, "the zero points of fc1"},
        {NIBBLES "(x, r, w, s, _, v, t, _, _, _, _, _, _, _, _, p)", E3002, "input 15"},
        {NIBBLES "(x, r, w, _, _, v, t)", E2007, "3"},
        {NIBBLES "(x, r, s, s, _, v, t)", E2005, "the weights of fc1 are f32"},
        {NORM "{groups=3 activation=0}", E2005, "groups 3"},
        {NORM "{groups=1 activation=2}", E2004, "'activation' is 2"},
        {"input x f32[1,1,2,2] output y init w f32[1,2,1,1] = 10 1 init z f32[1] = 1 "
         "y = com.microsoft:NhwcFusedConv(x, w, _, z)",
         E2005, "added"},
        {"input x f32[1,1,2,2] output y init w f32[1,2,1,1] = 10 1 "
         "y = com.microsoft:NhwcFusedConv(x, w) {activation=\"Elu\"}",
         E3002, "'Elu'"},
    };
    refuse_rows(state, MS, N(wrong), wrong);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_moe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_qmoe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_group_norm, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_channels_last, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
