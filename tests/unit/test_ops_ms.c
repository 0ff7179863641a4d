/* Operators of com.microsoft on numbers that can be checked by hand (or that ONNX Runtime or numpy
 * gave), and what they refuse. The first of its quantised ones are in test_ops_ml.c. */
#include "tests/unit/model_rows.h"

#define MS "opset 17 opset com.microsoft 1 "

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
    run_rows(state, MS, N(rows), rows);
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
    run_rows(state, MS, N(rows), rows);
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
        {"input a f32[1,1] input b f32[1,2] output y y = com.microsoft:FusedMatMulActivation(a, b) "
         "{activation=\"LeakyRelu\" activation_alpha=0.5 alpha=2.0}",
         {"2", "-3 1"},
         "f32[1, 2] -6 4"},
        {"input a f32[1,1] input b f32[1,2] output y y = com.microsoft:FusedMatMulActivation(a, b) "
         "{activation=\"HardSigmoid\"}",
         {"1", "-3 1"},
         "f32[1, 2] 0 0.7"},
        {"input x f32[1,1,2] input w f32[1,1,2] output y init p i64[2] = 1 0 init b f32[1] = 0.5 "
         "y = com.microsoft:ConvTransposeWithDynamicPads(x, w, p, b)",
         {"1 2", "1 10"},
         "f32[1, 1, 2] 12.5 20.5"},
        /* weights of 2, 1 and 0, the low bits first, and a block of 7s; x as it is, or, where that
         * is allowed, as bytes: each block has a scale of its own, the first that of 1 */
        {"input x f32[1,32] output y init w u8[1,2,8] = 154 136 136 136 136 136 136 136 "
         "255 255 255 255 255 255 255 255 init s f32[2] = 0.5 2 "
         "y = com.microsoft:MatMulNBits(x, w, s) {K=32 N=1 block_size=16}",
         {"127 1.4 -1.6 0.5 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"},
         "f32[1, 1] 141.7"},
        {"input x f32[1,32] output y init w u8[1,2,8] = 154 136 136 136 136 136 136 136 "
         "255 255 255 255 255 255 255 255 init s f32[2] = 0.5 2 "
         "y = com.microsoft:MatMulNBits(x, w, s) {K=32 N=1 block_size=16 accuracy_level=4}",
         {"127 1.4 -1.6 0.5 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"},
         "f32[1, 1] 141.5"},
        {"input x f16[1,16] output y init w u8[1,1,8] = 154 136 136 136 136 136 136 136 "
         "init s f16[1] = 0.5 "
         "y = com.microsoft:MatMulNBits(x, w, s) {K=16 N=1 block_size=16 accuracy_level=4}",
         {"127 1.4 -1.6 0.5 0 0 0 0 0 0 0 0 0 0 0 0"},
         "f16[1, 1] 127.5"},
        {"input x f32[2,16] output y init w u8[2,1,8] = 0 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0 "
         "init s f32[2] = 1 3 init z u8[2] = 2 5 "
         "y = com.microsoft:MatMulNBits(x, w, s, z) {K=16 N=2 block_size=16 accuracy_level=4}",
         {"0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -127 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"},
         "f32[2, 2] 0 0 254 -1524"},
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
    run_rows(state, MS, N(rows), rows);
}

static void test_lstm(void **state) {
/* X is 0 .. 2 in steps of 2 / 255, W of the cell's gate is 1 and that of the others 0 */
#define LSTM(more)                                                                                 \
    "input x f32[1,1,1] output y output h output c init w i8[1,1,4] = 0 0 0 1 "                    \
    "init r i8[1,1,4] = 0 0 0 2 init s f32[1] = 1 init z i8[1] = 0 init o i8[1] = 1 " more
    static const Row rows[] = {
        /* c = sigmoid(0) * tanh(2), y = sigmoid(0) * tanh(c) */
        {LSTM("y, h, c = com.microsoft:DynamicQuantizeLSTM(x, w, r, _, _, _, _, _, s, z, s, z) "
              "{hidden_size=1}"),
         {"2"},
         "f32[1, 1, 1, 1] 0.223927; f32[1, 1, 1] 0.223927; f32[1, 1, 1] 0.482014"},
        /* zero points of 1 make -1 of 0, and the gates sigmoid(-2); as ONNX Runtime has it */
        {LSTM("y, h, c = com.microsoft:DynamicQuantizeLSTM(x, r, r, _, _, _, _, _, s, o, s, o) "
              "{hidden_size=1}"),
         {"2"},
         "f32[1, 1, 1, 1] 0.0136382; f32[1, 1, 1] 0.0136382; f32[1, 1, 1] 0.114915"},
        /* a state of 1 and one of 0.001, which is none of the 256 steps up to 1: the product with R
         * sees 0; 0.5 * tanh(2) and 0.5 * tanh(0) */
        {"input x f32[1,2,1] output y output h output c init w i8[1,1,4] = 0 0 0 0 init r "
         "i8[1,1,4] "
         "= 0 0 0 2 init s f32[1] = 1 init z i8[1] = 0 init i f32[1,2,1] = 1 0.001 "
         "init n f32[1,2,1] = 0 0 "
         "y, h, c = com.microsoft:DynamicQuantizeLSTM(x, w, r, _, _, i, n, _, s, z, s, z) "
         "{hidden_size=1}",
         {"1 2"},
         "f32[1, 1, 2, 1] 0.223927 0; f32[1, 2, 1] 0.223927 0; f32[1, 2, 1] 0.482014 0"},
    };
    run_rows(state, MS, N(rows), rows);
}

static void test_arithmetic(void **state) {
    static const Row rows[] = {
        {"input x f32[2,2] output y y = com.microsoft:Inverse(x)",
         {"0 2 4 0"},
         "f32[2, 2] 0 0.25 0.5 0"},
        {"input a f32[1,2] input b f32[2,2] output y "
         "y = com.microsoft:CDist(a, b) {metric=\"euclidean\"}",
         {"0 0", "3 4 0 1"},
         "f32[1, 2] 5 1"},
        {"input a f32[1,2] input b f32[1,2] output y y = com.microsoft:CDist(a, b)",
         {"0 0", "3 4"},
         "f32[1, 1] 25"},
        {"input a f32[1,2] input b f32[2,2] output y y = com.microsoft:ComplexMul(a, b)",
         {"1 2", "3 4 0 1"},
         "f32[2, 2] -5 10 -2 1"},
        {"input a f32[1,2] input b f32[2,2] output y y = com.microsoft:ComplexMulConj(a, b)",
         {"1 2", "3 4 0 1"},
         "f32[2, 2] 11 2 2 -1"},
        {"input x f32[2] output y y = com.microsoft:ScaledSiLU(x) {alpha=2.0}",
         {"0 0.5"},
         "f32[2] 0 0.731059"},
        {"input x f32[2] input s f32[1] output y y = com.microsoft:ScaledSiLU(x, s) {alpha=2.0}",
         {"0 1", "-1"},
         "f32[2] 0 -0.268941"},
        {"input a f32[2] input b f32[2] output y y = com.microsoft:IsAllFinite(a, b)",
         {"1 2", "3 inf"},
         "bool[] 0"},
        {"input a f32[2] output y y = com.microsoft:IsAllFinite(a) {isnan_only=1}",
         {"1 inf"},
         "bool[] 1"},
        {"input a u8[2] input b u8[1] output y init z u8[] = 10 "
         "y = com.microsoft:MulInteger(a, z, b)",
         {"0 255", "200"},
         "i32[2] -2000 49000"},
        {"input a i16[1,2] input b i16[2,1] output y y = com.microsoft:MatMulInteger16(a, b)",
         {"-300 400", "500 600"},
         "i32[1, 1] 90000"},
        {"input a u16[1,1] input b u16[1,1] output y y = com.microsoft:MatMulInteger16(a, b)",
         {"65535", "65535"},
         "i32[1, 1] -131071"},
        /* of the bytes 03 00 00 00, and with another seed */
        {"input x i32[1] output y y = com.microsoft:MurmurHash3(x)", {"3"}, "u32[1] 847579505"},
        {"input x i64[1] output y y = com.microsoft:MurmurHash3(x) {seed=1 positive=0}",
         {"-3"},
         "i32[1] -672340119"},
        {"input x f32[4] output y y = com.microsoft:Rfft(x) {signal_ndim=1}",
         {"1 2 3 5"},
         "f32[3, 2] 11 0 -2 3 -3 0"},
        {"input x f32[3,2] output y y = com.microsoft:Irfft(x) {signal_ndim=1}",
         {"11 0 -2 3 -3 0"},
         "f32[4] 1 2 3 5"},
    };
    run_rows(state, MS, N(rows), rows);
}

static void test_places(void **state) {
    static const Row rows[] = {
        {"input x f32[2,5] output y y = com.microsoft:UnfoldTensor(x) {size=3 step=2}",
         {"1 2 3 4 5 6 7 8 9 10"},
         "f32[2, 2, 3] 1 2 3 3 4 5 6 7 8 8 9 10"},
        {"input x f32[3,1] output y y = com.microsoft:UnfoldTensor(x) {size=2 dim=0}",
         {"1 2 3"},
         "f32[2, 1, 2] 1 2 2 3"},
        /* 1 2 was followed by 0 */
        {"input i i64[1,5] input s f32[1,4] output y "
         "y = com.microsoft:NGramRepeatBlock(i, s) {ngram_size=3}",
         {"1 2 0 1 2", "1 2 3 4"},
         "f32[1, 4] -inf 2 3 4"},
        {"input i i64[1,1] input s f32[1,2] output y "
         "y = com.microsoft:NGramRepeatBlock(i, s) {ngram_size=2}",
         {"1", "1 2"},
         "f32[1, 2] 1 2"},
        /* the second crop reaches beyond the image */
        {"input x f32[1,1,3,3] output y init r f32[2,4] = 0 0 1 1 0.5 0.5 0.5 1.5 "
         "init i i32[2] = 0 0 init s i32[2] = 1 2 "
         "y = com.microsoft:CropAndResize(x, r, i, s) {extrapolation_value=-1.0}",
         {"1 2 3 4 5 6 7 8 9"},
         "f32[2, 1, 1, 2] 4 6 5 -1"},
        {"input x f32[1,1,1,3] output y init r f32[1,4] = 0 0.25 0 0.75 init i i32[1] = 0 "
         "init s i32[2] = 1 2 y = com.microsoft:CropAndResize(x, r, i, s)",
         {"1 2 4"},
         "f32[1, 1, 1, 2] 1.5 3"},
        {"input x f32[1,1,1,3] output y init r f32[1,4] = 0 0.25 0 0.7 init i i32[1] = 0 "
         "init s i32[2] = 1 2 y = com.microsoft:CropAndResize(x, r, i, s) {mode=\"nearest\"}",
         {"1 2 4"},
         "f32[1, 1, 1, 2] 2 2"},
    };
    run_rows(state, MS, N(rows), rows);
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
        /* two buckets, of distance 0 and of more back; the table is head by head */
        {"input t f32[2,2] output y init n i64[1] = 2 "
         "y = com.microsoft:RelativePositionBias(t, n, n) {max_distance=4}",
         {"1 2 3 4"},
         "f32[1, 2, 2, 2] 1 1 2 1 3 3 4 3"},
        /* and as many of those ahead */
        {"input t f32[4,1] output y init n i64[1] = 2 "
         "y = com.microsoft:RelativePositionBias(t, n, n) {max_distance=4 is_bidirectional=1}",
         {"1 2 3 4"},
         "f32[1, 1, 2, 2] 1 4 2 1"},
        /* 3 * (sigmoid(2) * (sigmoid(-2) * 2 - 1) + 2) */
        {"input q f32[1,1,1] input p f32[1,1,1,1] output y init c f32[1] = 1 init w f32[1,2] = 1 "
         "-1 "
         "init b f32[2] = 0 0 init e f32[1,1,1,1] = 2 "
         "y = com.microsoft:GatedRelativePositionBias(q, c, p, w, b, e) {num_heads=1}",
         {"1", "3"},
         "f32[1, 1, 1, 1] 3.98757"},
        /* words 1 + 3, positions 1 + 0, gamma 2, beta 1; (1, 3) is even as (-1, 1) */
        {"input i i32[1,1] output y output m init w u8[2,2] = 0 0 1 3 init p u8[1,2] = 1 1 "
         "init g u8[2] = 4 4 init b u8[2] = 1 1 init s f32[] = 1 init h f32[] = 0.5 "
         "init z u8[] = 0 init o u8[] = 1 init k i32[1,1] = 1 "
         "y, m = com.microsoft:QEmbedLayerNormalization(i, _, w, p, _, g, b, k, s, s, _, h, s, z, "
         "o, _, z, z)",
         {"1"},
         "f32[1, 1, 2] -1 3; i32[1] 1"},
    };
    run_rows(state, MS, N(rows), rows);
}

static void test_language(void **state) {
    static const Row rows[] = {
        {"input x f32[2] output y y = com.microsoft:BitmaskDropout(x)", {"1 2"}, "f32[2] 1 2"},
        /* 1.1 is 1.125 with three bits behind the first; the scale is 0.5 */
        {"input a f16[1,2] output y init w f8e4m3fn[1,2] = 1 2 init s f32[1,1] = 0.5 "
         "init t f32[] = 1 init b f16[1] = 8 "
         "y = com.microsoft:MatMulBlockQuantizedFp8Weight(a, w, s, t, b)",
         {"1.1 3"},
         "f16[1, 1] 11.5625"},
        /* the codes 3 and 12 are 1.5 and -2, the scale of their block is 2 (64), that of all 3 */
        {"input a f16[1,2] output y init w u8[1,1] = 195 init s u8[1,1] = 64 init t f32[] = 3 "
         "y = com.microsoft:MatMulBlockQuantizedFp4Weight(a, w, s, t)",
         {"1 10"},
         "f16[1, 1] -111"},
        /* two words of two letters and one filter of one letter: the largest letter */
        {"input w i32[2,2] output y init f f32[1,1,1,1] = 1 init b f32[1] = 0 "
         "init c f32[3,1] = 0 0.5 1 y = com.microsoft:WordConvEmbedding(w, f, b, c)",
         {"1 2 1 0"},
         "f32[2, 1] 0.761594 0.462117"},
        /* down where that is as cheap as both, right where all are */
        {"input c f32[2,3] output y y = com.microsoft:DynamicTimeWarping(c)",
         {"0 0 0 0 0 0"},
         "i32[2, 4] 0 1 1 1 0 0 1 2"},
        /* to the left where none is cheaper, and no further than the edge */
        {"input c f32[3,2] output y y = com.microsoft:DynamicTimeWarping(c)",
         {"inf inf inf inf inf inf"},
         "i32[2, 2] 2 2 0 1"},
        {"input c f32[2,2] output y y = com.microsoft:DynamicTimeWarping(c)",
         {"nan nan nan nan"},
         "i32[2, 2] 1 1 0 1"},
    };
    run_rows(state, MS, N(rows), rows);
}

static void test_language_refusals(void **state) {
#define LINEAR "input q f32[1,2,4] input d f32[1,2,1] output y output p "
#define DELTA  "input q f32[2,1,3] input d f32[2,1] input s f32[1,1,3,3] output y output p "
    static const Wrong wrong[] = {
        {LINEAR "y, p = com.microsoft:LinearAttention(q, q, q, _, d, d) "
                "{q_num_heads=1 kv_num_heads=1 state_window=2}",
         E3002, "a state_window"},
        {LINEAR "y, p = com.microsoft:LinearAttention(q, q, q, _, _, d) "
                "{q_num_heads=1 kv_num_heads=1}",
         E2007, "decay is missing"},
        {LINEAR "y, p = com.microsoft:LinearAttention(q, q, q, _, d, d) "
                "{q_num_heads=2 kv_num_heads=1}",
         E2005, "do not fit"},
        {"input x f32[1,3,4] output y output p init w f32[3,1,2] = 1 1 1 1 1 1 "
         "y, p = com.microsoft:CausalConvWithState(x, w) {ndim=2}",
         E3002, "more than one spatial dimension"},
        {"input x f32[1,3,4] output y output p init w f32[3,1,2] = 1 1 1 1 1 1 "
         "y, p = com.microsoft:CausalConvWithState(x, w) {dilation=0}",
         E2005, "do not fit each other"},
        {DELTA "y, p = com.microsoft:GatedDeltaNet(q, q, q, _, d, d, s) {qk_l2_norm=1}", E3002,
         "qk_l2_norm"},
        {DELTA "y, p = com.microsoft:GatedDeltaNet(q, q, q, _, d, d, s) {update_rule=\"gated\"}",
         E3002, "does not take"},
        {DELTA "y, p = com.microsoft:GatedDeltaNet(s, q, q, _, d, d, s)", E2005,
         "a query of shape"},
        {"input x f32[2,3] input c f32[2] output y y = com.microsoft:GatedRMSNorm(x, c, x)", E2005,
         "a scale of shape"},
        {"input x f32[2,3] input g f32[1,1] output y y = com.microsoft:GatedAdd(x, x, g)", E2005,
         "a gate of shape"},
        {"input x f32[2,3] output y y = com.microsoft:BranchwiseRMSNorm(x) {num_branches=2}", E2005,
         "2 branches"},
        {"input x f32[2,3] input g f32[2,1] output y "
         "y = com.microsoft:HyperConnectionPreMix(x, g) {num_branches=3}",
         E2005, "gates"},
        {"input i i32[1,2] output y init m i32[20] = 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
         "init s i32[19] = 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 y = com.microsoft:"
         "NGramHashMapping(i, m, s) {max_ngram_size=20 n_head_per_ngram=1 pad_id=0}",
         E3002, "n-grams of 20 words"},
        {"input x f32[1,1,1,2] input p i64[3,1,1] input c f32[1,1] output y "
         "y = com.microsoft:MRotaryEmbedding(x, p, c, c) {mrope_section=[1,1,0]}",
         E2005, "mrope_section"},
        {"input q f32[1,1,2] output y y = com.microsoft:DecoderMaskedMultiHeadAttention(q) "
         "{num_heads=1}",
         E3002, "packed queries"},
        {"input x f32[1,16] output y init w u8[1,1,8] = 0 0 0 0 0 0 0 0 init s f32[1,1] = 1 "
         "y = com.microsoft:MatMulNBitsMlp(x, _, _, w, s, _, w, s) "
         "{K=16 N=1 block_size=16 activation=\"gelu\"}",
         E3002, "activation 'gelu'"},
        {"input x f32[1,16] output y init w u8[1,1,8] = 0 0 0 0 0 0 0 0 init s f32[1,1] = 1 "
         "y = com.microsoft:MatMulNBitsMlp(x, x, _, w, s, _, w, s) "
         "{K=16 N=1 block_size=16 activation=\"silu\"}",
         E2007, "norm_scale is missing"},
        {"input x f32[2] output y output m y, m = com.microsoft:BitmaskDropout(x)", E3002,
         "training and the mask"},
        {"input w i32[1,1,2] output y init f f32[1,1,1,1] = 1 init b f32[1] = 0 "
         "init c f32[3,1] = 0 0.5 1 y = com.microsoft:WordConvEmbedding(w, f, b, c)",
         E3002, "no matrix"},
        {"input c f32[2,2,3] output y y = com.microsoft:DynamicTimeWarping(c)", E2005, "costs"},
    };
    refuse_rows(state, MS, N(wrong), wrong);
}

static void test_language_shapes(void **state) {
#define BUFFER                                                                                     \
    "input q f32[1,1,2] input p f32[1,1,4,2] output y output k output v init n i32[1] = 4 "
#define FLOATS8 "input a f16[1,2] output y init w f8e4m3fn[1,2] = 1 2 init s f32[1,1] = 0.5 "
#define FLOATS4 "input a f16[1,2] output y init w u8[1,1] = 195 init t f32[2] = 1 1 "
    static const Wrong wrong[] = {
        {LINEAR "input k f32[1,2,6] y, p = com.microsoft:LinearAttention(q, k, q, _, d, "
                "d) {q_num_heads=1 kv_num_heads=1}",
         E2005, "a key of shape [1, 2, 6] for query heads of size 4"},
        {LINEAR "input e f32[1,3,1] y, p = com.microsoft:LinearAttention(q, q, q, _, e, "
                "d) {q_num_heads=1 kv_num_heads=1}",
         E2005, "decay of shape [1, 3, 1]"},
        {"input q f32[3,9] input d f32[3,1] input s f32[2,1,3,3] output y output p y, p "
         "= com.microsoft:GatedDeltaNet(q, _, _, _, d, d, s)",
         E2005, "for a batch of 2"},
        {DELTA "input k f32[1,2,3] y, p = com.microsoft:GatedDeltaNet(q, k, q, _, d, d, "
               "s)",
         E2005, "shape [1, 2, 3] for tokens and heads"},
        {DELTA "input e f32[1,2] y, p = com.microsoft:GatedDeltaNet(q, q, q, _, d, e, "
               "s)",
         E2005, "shape [1, 2] for tokens and heads"},
        {DELTA "input e f32[2] y, p = com.microsoft:GatedDeltaNet(q, q, q, _, d, d, s, "
               "e, e) {gate_activation=\"qwen\"}",
         E2005, "input 7 of shape [2] for 1 heads"},
        {"input x f32[2,3] input c f32[3] input b f32[2,1] output y output z y, z = "
         "com.microsoft:LinearAttentionGate(x, c, c, b)",
         E2005, "shapes [2, 1] and [2, 3] must be the same"},
        {"input x f32[1,2,3] input c f32[2] output y y = "
         "com.microsoft:BranchwiseRMSNorm(x, c)",
         E2005, "a scale of shape [2] for streams"},
        {"input x f32[1,2,3] input f f32[1,2] input g f32[1,2] output y y = "
         "com.microsoft:HyperConnectionPostMix(x, f, g)",
         E2005, "block_output of shape [1, 2]"},
        {"input k f32[1,2,3] input c f32[2,3] output y y = com.microsoft:EngramGate(k, "
         "k, k, c, c)",
         E2005, "keys of shape [1, 2, 3]"},
        {"input k f32[1,1,2,3] input q f32[1,1,2,2] input c f32[2,3] output y y = "
         "com.microsoft:EngramGate(k, q, k, c, c)",
         E2005, "shapes [1, 1, 2, 2]"},
        {"input i i32[1,2] output y init m i32[2] = 1 1 init s i32[1] = 2 y = "
         "com.microsoft:NGramHashMapping(i, m, s) {max_ngram_size=1 n_head_per_ngram=1 "
         "pad_id=0}",
         E2004, "max_ngram_size is 1"},
        {"input i i32[1,2] output y init m i32[2] = 1 1 init s i64[1] = 2 y = "
         "com.microsoft:NGramHashMapping(i, m, s) {max_ngram_size=2 n_head_per_ngram=1 "
         "pad_id=0}",
         E2005, "vocab_sizes [1]"},
        {"input x f32[1,1,1,2] input p i64[3,1,1] input c f32[1,1] output y y = "
         "com.microsoft:MRotaryEmbedding(x, p, c, c) {mrope_section=[1,0]}",
         E2004, "mrope_section has 2 numbers"},
        {"input a f32[1,1,2] input q f16[1,2] output y output z y, z = "
         "com.microsoft:GemmaRotaryEmbedding(a, q, q, q, q)",
         E2005, "angles [1, 1, 2], a state of shape [1, 2]"},
        {"input a f32[1,2,2] input q f16[1,1,1,2] output y output z y, z = "
         "com.microsoft:GemmaRotaryEmbedding(a, q, q, q, q)",
         E2005, "angles [1, 2, 2]"},
        {BUFFER "init e i32[2,3] = 0 1 2 0 1 2 y, k, v = "
                "com.microsoft:SparseAttention(q, q, q, p, p, e, e, n, n) {num_heads=1 "
                "kv_num_heads=1 sparse_block_size=2}",
         E2005, "rows [2, 3] and columns [2, 3] of blocks for 1 heads"},
        {BUFFER "init e i32[1,3] = 0 1 2 y, k, v = com.microsoft:SparseAttention(q, q, "
                "q, p, p, e, e, n, n) {num_heads=1 kv_num_heads=1}",
         E2004, "sparse_block_size is 0"},
        {BUFFER "y, k, v = com.microsoft:DecoderMaskedMultiHeadAttention(q, q, q, _, "
                "_, q, q, n) {num_heads=1 past_present_share_buffer=1}",
         E2005, "a past of shape [1, 1, 2]"},
        {BUFFER "y, k, v = com.microsoft:DecoderMaskedMultiHeadAttention(q, q, q, _, "
                "_, p, p, q) {num_heads=1 past_present_share_buffer=1}",
         E2005, "past_sequence_length f32[1, 1, 2]"},
        {BUFFER "y, k, v = com.microsoft:DecoderMaskedMultiHeadAttention(q, q, q, _, "
                "_, p, p, n) {num_heads=1 past_present_share_buffer=1}",
         E2005, "5 keys in a buffer of 4"},
        {"input q f32[1,2,2] input p f32[1,1,4,2] output y y = "
         "com.microsoft:DecoderMaskedMultiHeadAttention(q, p, p) {num_heads=1}",
         E2005, "2 queries"},
        {FLOATS8 "y = com.microsoft:MatMulBlockQuantizedFp8Weight(a, s, s)", E2006,
         "weights f32[1, 1] and scales f32"},
        {FLOATS8 "y = com.microsoft:MatMulBlockQuantizedFp8Weight(a, w, s, a)", E2006,
         "a_scale is f16[1, 2]"},
        {FLOATS8 "init t f32[2] = 1 1 y = "
                 "com.microsoft:MatMulBlockQuantizedFp8Weight(a, w, s, t)",
         E2005, "a_scale is f32[2]"},
        {FLOATS8 "y = com.microsoft:MatMulBlockQuantizedFp8Weight(a, w, s) "
                 "{block_size=0}",
         E2004, "'block_size' is 0"},
        {FLOATS8 "y = com.microsoft:MatMulBlockQuantizedFp8Weight(a, w, s) "
                 "{block_size=1}",
         E2005, "weights [1, 2] and scales [1, 1] do not fit"},
        {FLOATS4 "y = com.microsoft:MatMulBlockQuantizedFp4Weight(a, w, t, t)", E2006,
         "weights u8[1, 1] and scales f32"},
        {FLOATS4 "y = com.microsoft:MatMulBlockQuantizedFp4Weight(a, w, w, t)", E2005,
         "weight_scale_2 is f32[2]"},
        {"input w i32[2,2] output y init f f32[1,1,1,1] = 1 init b f32[1] = 0 init c "
         "f32[3,1] = 0 0.5 1 y = com.microsoft:WordConvEmbedding(w, f, b, c) "
         "{conv_window_size=2}",
         E2004, "conv_window_size does not fit"},
        {"input w i64[2,2] output y init f f32[1,1,1,1] = 1 init b f32[1] = 0 init c "
         "f32[3,1] = 0 0.5 1 y = com.microsoft:WordConvEmbedding(w, f, b, c)",
         E2005, "words i64[2, 2]"},
    };
    refuse_rows(state, MS, N(wrong), wrong);
}

static void test_open_shapes(void **state) {
    Bench *b = *state;
    static const Wrong wrong[] = {
        {"input q f32[2,1,3] input d f32[2,1] input s f32[N,1,3,3] output y output p y, "
         "p = com.microsoft:GatedDeltaNet(q, q, q, _, d, d, s)",
         E3002, "a batch that varies"},
        {"input x f32[2,3] input c f32[N] output y y = com.microsoft:GatedRMSNorm(x, c, "
         "x)",
         E3002, "a scale of a length that varies"},
        {"input x f32[1,2,3] input c f32[N] output y y = "
         "com.microsoft:BranchwiseRMSNorm(x, c)",
         E3002, "scales and gates of a length that varies"},
    };
    for (size_t i = 0; i < N(wrong); i++) {
        const char *text = arena_printf(&b->arena, "%s %s", MS, wrong[i].text);
        if (import_text(b, text, "N=1..8")) fail_msg("%s: imported", wrong[i].text);
        expect_error(b, wrong[i].code, wrong[i].part);
    }
}

static void test_refusals(void **state) {
    static const Wrong wrong[] = {
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
         E2005, "a scale or zero point of shape [2]"},
        {"input x u8[1,1,1] input w i8[1,4] output y init b f32[3] = 0 0 7 init s f32[] = 1 "
         "y = com.microsoft:QAttention(x, w, b, s, s) {num_heads=1}",
         E2005, "do not fit"},
        {"input x i16[1,1,1] input w i8[1,3] output y init b f32[3] = 0 0 7 init s f32[] = 1 "
         "y = com.microsoft:QAttention(x, w, b, s, s) {num_heads=1}",
         E2006, "the input is i16"},
        {"input i i32[1,1] input j i32[1,1] output y output m init w u8[2,2] = 0 0 1 3 init s "
         "f32[] "
         "= 1 init z u8[] = 0 y, m = com.microsoft:QEmbedLayerNormalization(i, _, w, w, w, w, w, "
         "_, "
         "s, s, _, s, s, z, z, _, z, z)",
         E2007, "for segments"},
        {LSTM("input l i32[1] y, h, c = com.microsoft:DynamicQuantizeLSTM(x, w, r, _, l, _, _, _, "
              "s, "
              "z, s, z) {hidden_size=1}"),
         E3002, "different lengths"},
        {LSTM("init t f32[3] = 1 1 1 y, h, c = com.microsoft:DynamicQuantizeLSTM(x, w, r, _, _, _, "
              "_, _, t, z, s, z) {hidden_size=1}"),
         E2005, "does not fit"},
        {"input a f32[1,1] input b f32[1,2] output y y = com.microsoft:FusedMatMulActivation(a, b) "
         "{activation=\"Softplus\"}",
         E3002, "'Softplus'"},
        {"input x f32[1,1,2] input w f32[1,1,2] input p i64[2] output y "
         "y = com.microsoft:ConvTransposeWithDynamicPads(x, w, p)",
         E3004, "the pads"},
        {"input t f32[4,1] output y init n i64[1] = 2 init m i64[1] = 3 "
         "y = com.microsoft:RelativePositionBias(t, n, m) {max_distance=4}",
         E3002, "2 queries and 3 keys"},
        {"input q f32[1,1] input p f32[1,1,1,1] output y init c f32[1] = 1 init w f32[1,2] = 1 -1 "
         "init b f32[2] = 0 0 init e f32[1,1,1,1] = 2 "
         "y = com.microsoft:GatedRelativePositionBias(q, c, p, w, b, e) {num_heads=1}",
         E3002, "without padding"},
        {"input x f32[2,3] output y y = com.microsoft:Inverse(x)", E2005, "square"},
        {"input a f32[1,2] input b f32[2,2] output y "
         "y = com.microsoft:CDist(a, b) {metric=\"cosine\"}",
         E3002, "'cosine'"},
        {"input a f32[1,3] input b f32[1,3] output y y = com.microsoft:ComplexMul(a, b)", E2005,
         "complex numbers"},
        {"input a f32[2] output y y = com.microsoft:IsAllFinite(a) {isnan_only=1 isinf_only=1}",
         E2004, "both"},
        {"input x u8[1] output y y = com.microsoft:MurmurHash3(x)", E2006, "u8"},
        {"input x f32[4,4] output y y = com.microsoft:Rfft(x) {signal_ndim=2}", E3002,
         "more than one dimension"},
        {"input x f32[2,5] output y y = com.microsoft:UnfoldTensor(x) {size=6}", E2004,
         "slices of 6"},
        {"input x f32[1,1,3,3] input s i32[2] output y init r f32[1,4] = 0 0 1 1 init i i32[1] = 0 "
         "y = com.microsoft:CropAndResize(x, r, i, s)",
         E3004, "crop_size"},
    };
    refuse_rows(state, MS, N(wrong), wrong);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_biases, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_products, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_attention, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lstm, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arithmetic, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_places, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_language, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_language_refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_language_shapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_open_shapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
