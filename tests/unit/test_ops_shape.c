/* Operators that move elements, reduce and multiply: their older versions, the forms whose
 * shape-like inputs come at run time, and what they refuse. (ONNX's own suite covers the plain
 * forms.) */
#include "tests/unit/model_text.h"

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
        const char *result = run_text(b, rows[i].text, NULL, count, rows[i].inputs);
        if (strcmp(result, rows[i].result) != 0)
            fail_msg("%s: %s, not %s", rows[i].text, result, rows[i].result);
    }
}

typedef struct Wrong {
    const char *text;
    ErrCode code;
    const char *part;
} Wrong;

static void refuse_rows(void **state, size_t n, const Wrong *rows) {
    Bench *b = *state;
    for (size_t i = 0; i < n; i++) {
        if (import_text(b, rows[i].text, NULL)) fail_msg("%s: imported", rows[i].text);
        expect_error(b, rows[i].code, rows[i].part);
    }
}

#define V6  "input x f32[6] output y "
#define M23 "input x f32[2,3] output y "
#define S6  "0 1 2 3 4 5"

static void test_shapes(void **state) {
    static const Row rows[] = {
        {"opset 1 " M23 "y = Reshape(x) {shape=[0 -1 1]}", {S6}, "f32[2, 3, 1] 0 1 2 3 4 5"},
        {M23 "init s i64[2] = -1 2 y = Reshape(x, s)", {S6}, "f32[3, 2] 0 1 2 3 4 5"},
        {"input x f32[0,3] output y init s i64[2] = 3 0 y = Reshape(x, s) {allowzero=1}",
         {""},
         "f32[3, 0] "},
        {"input x f32[0,3] output y init s i64[2] = 0 -1 y = Reshape(x, s)", {""}, "f32[0, 0] "},
        {M23 "y = Flatten(x) {axis=0}", {S6}, "f32[1, 6] 0 1 2 3 4 5"},
        {"opset 11 input x f32[1,2,1] output y y = Squeeze(x) {axes=[0]}",
         {"1 2"},
         "f32[2, 1] 1 2"},
        {"input x f32[1,2,1] output y y = Squeeze(x)", {"1 2"}, "f32[2] 1 2"},
        {"input x f32[1,2,1] input a i64[1] output y f32[1,2] y = Squeeze(x, a)",
         {"1 2", "2"},
         "f32[1, 2] 1 2"},
        {"opset 11 input x f32[2] output y y = Unsqueeze(x) {axes=[0 -1]}",
         {"1 2"},
         "f32[1, 2, 1] 1 2"},
        {M23 "y = Transpose(x)", {S6}, "f32[3, 2] 0 3 1 4 2 5"},
        {"input x f32[2,1] output y init s i64[1] = 3 y = Expand(x, s)",
         {"1 2"},
         "f32[2, 3] 1 1 1 2 2 2"},
        {"input x f32[2] input s i64[2] output y f32[2,2] y = Expand(x, s)",
         {"1 2", "2 2"},
         "f32[2, 2] 1 2 1 2"},
        {"input x f32[2] input r i64[1] output y f32[6] y = Tile(x, r)",
         {"1 2", "3"},
         "f32[6] 1 2 1 2 1 2"},
        {"opset 1 input x f32[2,1] output y init t i64[1] = 2 init a i64[1] = 1 y = Tile(x, t, a)",
         {"1 2"},
         "f32[2, 2] 1 1 2 2"},
        {"input x f32[2,3,4] output y y = Shape(x) {start=-2 end=100}", {S6}, "i64[2] 3 4"},
        {M23 "y = Size(x)", {S6}, "i64[] 6"},
        {"input x f32[1] output y output z y = Constant() {value_floats=[1.5 2.5]} "
         "z = Constant() {value_int=7}",
         {"0"},
         "f32[2] 1.5 2.5; i64[] 7"},
        {"input s i64[2] output y i32[2,2] y = ConstantOfShape(s) {value=i32[1](5)}",
         {"2 2"},
         "i32[2, 2] 5 5 5 5"},
        {"init a f32[] = 1 init l f32[] = 2.1 init d f32[] = 0.5 output y y = Range(a, l, d)",
         {NULL},
         "f32[3] 1 1.5 2"},
        {"init a i64[] = 5 init l i64[] = 0 init d i64[] = -2 output y y = Range(a, l, d)",
         {NULL},
         "i64[3] 5 3 1"},
        {"input a i32[] input l i32[] input d i32[] output y i32[3] y = Range(a, l, d)",
         {"1", "7", "2"},
         "i32[3] 1 3 5"},
        {"input x i32[2,3] output y y = EyeLike(x) {k=1 dtype=1}", {S6}, "f32[2, 3] 0 1 0 0 0 1"},
        {"input x i64[3] output y init d i64[] = 3 init v f32[2] = -1 1 y = OneHot(x, d, v)",
         {"1 -1 3"},
         "f32[3, 3] -1 1 -1 -1 -1 1 -1 -1 -1"},
        {"input x f32[1,2] input d f32[] output y f32[3,1,2] init v f32[2] = 0 1 "
         "y = OneHot(x, d, v) {axis=0}",
         {"0 2", "3"},
         "f32[3, 1, 2] 1 0 0 0 0 1"},
    };
    run_rows(state, N(rows), rows);
    static const Wrong wrong[] = {
        {M23 "init s i64[2] = -1 4 y = Reshape(x, s)", E2005, "cannot hold the elements"},
        {M23 "init s i64[2] = -1 -1 y = Reshape(x, s)", E2005, "[-1, -1] is not a shape"},
        {M23 "init s i64[3] = 1 1 0 y = Reshape(x, s)", E2005, "copies dimension 2"},
        {M23 "init s i64[9] = 1 1 1 1 1 1 1 2 3 y = Reshape(x, s)", E3002, "9 dimensions"},
        {M23 "init s f32[1] = 6 y = Reshape(x, s)", E2006, "must be integers, not f32"},
        {M23 "y = Reshape(x)", E2007, "input 1 is missing"},
        {M23 "y = Squeeze(x, a) init a i64[1] = 0", E2005, "axis 0 has extent 2, not 1"},
        {M23 "y = Unsqueeze(x, a) init a i64[2] = 1 1", E2004, "axis 1 is given twice"},
        {"opset 11 " M23 "y = Unsqueeze(x)", E2004, "'axes' is missing"},
        {M23 "y = Transpose(x) {perm=[0 0]}", E2004, "perm names axis 0 twice"},
        {M23 "y = Transpose(x) {perm=[0]}", E2004, "perm has 1 entries for 2 dimensions"},
        {M23 "init s i64[1] = 2 y = Expand(x, s)", E2005, "does not broadcast to [2]"},
        {M23 "init r i64[1] = 2 y = Tile(x, r)", E2005, "1 repeats for 2 dimensions"},
        {M23 "init r i64[2] = 2 -2 y = Tile(x, r)", E2004, "-2 repeats"},
        {M23 "init r i64[2] = 4000000000 1 y = Tile(x, r)", E2004, "4000000000 repeats"},
        {M23 "init r i64[2] = 2000000000 2000000000 y = Tile(x, r)", E3005, "more than 2^31-1"},
        {"input a i32[] init l i32[] = 1 init d i32[] = 1 output y y = Range(a, l, d)", E3004,
         "give --dim y.0=LOW..HIGH"},
        {"init a i32[] = 1 init l i32[] = 9 init d i32[] = 0 output y y = Range(a, l, d)", E2004,
         "delta is zero"},
        {"output y y = Constant()", E2004, "none of the attributes"},
        {"output y y = Constant() {value=c64[1](0)}", E3003, "tensors of type c64"},
        {"input x f32[2] output y y = EyeLike(x)", E2005, "1 dimensions, not 2"},
        {"input x i64[3] output y init d i64[] = 3 init v f32[1] = 1 y = OneHot(x, d, v)", E2005,
         "two elements"},
    };
    refuse_rows(state, N(wrong), wrong);
}

static void test_moves(void **state) {
    static const Row rows[] = {
        {"input x f32[1,2] input z f32[2,2] output y y = Concat(x, z, x) {axis=0}",
         {"1 2", "3 4 5 6"},
         "f32[4, 2] 1 2 3 4 5 6 1 2"},
        {"opset 1 input x f32[1,2] output y y = Concat(x, x)", {"1 2"}, "f32[1, 4] 1 2 1 2"},
        {"opset 2 " V6 "output z y, z = Split(x) {split=[1 5]}",
         {S6},
         "f32[1] 0; f32[5] 1 2 3 4 5"},
        {"opset 1 " V6 "output z init s i64[2] = 4 2 y, z = Split(x, s)",
         {S6},
         "f32[4] 0 1 2 3; f32[2] 4 5"},
        {"opset 18 input x f32[5] output y output z y, z = Split(x) {num_outputs=2}",
         {"0 1 2 3 4"},
         "f32[3] 0 1 2; f32[2] 3 4"},
        {"input x f32[3] input s i64[2] output y f32[1] output z f32[2] y, z = Split(x, s)",
         {"1 2 3", "1 2"},
         "f32[1] 1; f32[2] 2 3"},
        {"opset 1 " M23 "y = Slice(x) {starts=[0 -2] ends=[1 1000]}", {S6}, "f32[1, 2] 1 2"},
        {V6 "init s i64[1] = -1 init e i64[1] = -1000 init a i64[1] = 0 init t i64[1] = -2 "
            "y = Slice(x, s, e, a, t)",
         {S6},
         "f32[3] 5 3 1"},
        {V6 "init s i64[1] = 4 init e i64[1] = 2 y = Slice(x, s, e)", {S6}, "f32[0] "},
        {"input x f32[6] input s i64[1] input e i64[1] output y f32[2] y = Slice(x, s, e)",
         {S6, "-4", "4"},
         "f32[2] 2 3"},
        /* at run time a start may be anything: no load leaves the tensor */
        {"input x f32[6] input s i64[1] input e i64[1] output y f32[2] y = Slice(x, s, e)",
         {S6, "1000000000000", "0"},
         "fault"},
        {"input x f32[2,3] input s i64[1] input a i64[1] input t i64[1] output y f32[2,2] "
         "init e i64[1] = -9 y = Slice(x, s, e, a, t)",
         {S6, "-1", "-1", "-2"},
         "f32[2, 2] 2 0 5 3"},
        {"opset 1 " V6 "y = Pad(x) {paddings=[1 1] value=9.0}", {S6}, "f32[8] 9 0 1 2 3 4 5 9"},
        {"opset 2 " V6 "y = Pad(x) {pads=[-1 -2]}", {S6}, "f32[3] 1 2 3"},
        {V6 "init p i64[2] = 7 1 y = Pad(x, p) {mode=\"reflect\"}",
         {S6},
         "f32[14] 3 4 5 4 3 2 1 0 1 2 3 4 5 4"},
        {"opset 19 " V6 "init p i64[2] = 7 1 y = Pad(x, p) {mode=\"wrap\"}",
         {S6},
         "f32[14] 5 0 1 2 3 4 5 0 1 2 3 4 5 0"},
        {V6 "init p i64[2] = 2 1 y = Pad(x, p) {mode=\"edge\"}", {S6}, "f32[9] 0 0 0 1 2 3 4 5 5"},
        {"input x f32[1,2] input p i64[2] output y f32[1,4] init a i64[1] = 1 init c f32[] = 7 "
         "opset 18 y = Pad(x, p, c, a)",
         {"1 2", "1 1"},
         "f32[1, 4] 7 1 2 7"},
        {"input x f32[1,2] input p i64[2] input a i64[1] output y f32[1,4] "
         "opset 18 y = Pad(x, p, _, a)",
         {"1 2", "2 0", "-1"},
         "f32[1, 4] 0 0 1 2"},
        {"opset 18 input x f32[1,5] input s i64[2] output y f32[2,2] y = CenterCropPad(x, s)",
         {"1 2 3 4 5", "2 2"},
         "f32[2, 2] 2 3 0 0"},
        {"input x f32[2,2] input k i64[] output y y = Trilu(x, k)",
         {"1 2 3 4", "1"},
         "f32[2, 2] 0 2 0 0"},
        {"input x f32[1,4,1,1] output y y = DepthToSpace(x) {blocksize=2}",
         {"1 2 3 4"},
         "f32[1, 1, 2, 2] 1 2 3 4"},
        {"input x f32[1,1,2,2] output y y = SpaceToDepth(x) {blocksize=2}",
         {"1 2 3 4"},
         "f32[1, 4, 1, 1] 1 2 3 4"},
    };
    run_rows(state, N(rows), rows);
    static const Wrong wrong[] = {
        {M23 "y = Concat(x, x)", E2004, "'axis' is missing"},
        {M23 "input z f32[3,3] y = Concat(x, z) {axis=1}", E2005, "differ on another axis than 1"},
        {M23 "input z i32[2,3] y = Concat(x, z) {axis=1}", E2006, "inputs are f32 and i32"},
        {V6 "init s i64[2] = 4 4 output z y, z = Split(x, s)", E2005, "do not add up"},
        {V6 "init s i64[1] = 6 output z y, z = Split(x, s)", E2007, "1 parts for 2 outputs"},
        {"opset 11 input x f32[5] output y output z y, z = Split(x)", E2007, "an extent of 5"},
        {"input x f32[3] input s i64[3] output y output z y, z = Split(x, s)", E2005, "2 integers"},
        {V6 "init s i64[1] = 0 init e i64[2] = 1 2 y = Slice(x, s, e)", E2005, "1, 2, 0 and 0"},
        {V6 "init s i64[1] = 0 init e i64[1] = 1 y = Slice(x, s, e, s, s)", E2004, "step 0"},
        {V6 "input s f32[1] init e i64[1] = 1 y = Slice(x, s, e)", E2006, "must be integers"},
        {"opset 1 " V6 "y = Slice(x) {ends=[1]}", E2004, "'starts' and 'ends' are missing"},
        {V6 "init p i64[3] = 1 1 1 y = Pad(x, p)", E2005, "3 pads for 1 dimensions"},
        {V6 "init p i64[2] = 1 1 y = Pad(x, p) {mode=\"fold\"}", E2004, "mode 'fold'"},
        {V6 "init p i64[2] = -9 1 y = Pad(x, p)", E2005, "shape [-2]"},
        {V6 "input p i64[2] y = Pad(x, p)", E3004, "give --dim y.0=LOW..HIGH"},
        {"input x f32[0] output y init p i64[2] = 1 1 y = Pad(x, p) {mode=\"edge\"}", E2005,
         "empty"},
        {V6 "y = Trilu(x)", E2005, "two dimensions"},
        {V6 "y = DepthToSpace(x) {blocksize=2}", E2005, "1 dimensions, expected 4"},
        {"input x f32[1,4,1,1] output y y = DepthToSpace(x) {blocksize=0}", E2004,
         "a block size of 0"},
        {"input x f32[1,5,1,1] output y y = DepthToSpace(x) {blocksize=2}", E2005,
         "no multiple of 4"},
        {"input x f32[1,1,3,2] output y y = SpaceToDepth(x) {blocksize=2}", E2005,
         "no multiple of 2"},
    };
    refuse_rows(state, N(wrong), wrong);
}

static void test_reductions(void **state) {
    static const Row rows[] = {
        {"opset 11 " M23 "y = ReduceSum(x) {axes=[-1]}", {S6}, "f32[2, 1] 3 12"},
        {M23 "y = ReduceMean(x) {axes=[0] keepdims=0}", {S6}, "f32[3] 1.5 2.5 3.5"},
        {"opset 18 " M23 "y = ReduceMax(x) {noop_with_empty_axes=1}",
         {S6},
         "f32[2, 3] 0 1 2 3 4 5"},
        {"opset 18 " M23 "y = ReduceSumSquare(x) {noop_with_empty_axes=1}",
         {S6},
         "f32[2, 3] 0 1 4 9 16 25"},
        {"opset 18 " M23 "y = ReduceProd(x) {keepdims=0}", {"1 2 3 4 5 6"}, "f32[] 720"},
        {"opset 18 input x i32[3] output y y = ReduceL2(x)", {"2 3 6"}, "i32[1] 7"},
        {"opset 18 input x i8[3] output y y = ReduceMin(x)", {"2 -3 6"}, "i8[1] -3"},
        {"opset 18 input x bool[2] output y output z y = ReduceMin(x) z = ReduceMax(x)",
         {"0 1"},
         "bool[1] 0; bool[1] 1"},
        {"opset 18 input x f32[2] output y y = ReduceLogSumExp(x)",
         {"1000 1000"},
         "f32[1] 1000.69"},
        {"opset 18 input x f32[0,2] output y output z y = ReduceMax(x) {keepdims=0} "
         "init a i64[1] = 0 z = ReduceSum(x, a) {keepdims=0}",
         {""},
         "f32[] -inf; f32[2] 0 0"},
        /* axes at run time: the declared shape leaves one possibility, or two */
        {"opset 18 input x f32[2,3] input a i64[1] output y f32[2,1] y = ReduceSum(x, a)",
         {S6, "1"},
         "f32[2, 1] 3 12"},
        {"opset 18 input x f32[2,2] input a i64[1] output y f32[2] y = ReduceSum(x, a) "
         "{keepdims=0}",
         {"0 1 2 3", "-2"},
         "f32[2] 2 4"},
        {"opset 18 input x f32[2,2] input a i64[1] output y f32[2] y = ReduceSum(x, a) "
         "{keepdims=0}",
         {"0 1 2 3", "1"},
         "f32[2] 1 5"},
        {"input x f32[2,3] output y output z y = ArgMax(x) {axis=1 keepdims=0} "
         "z = ArgMin(x) {axis=1 select_last_index=1}",
         {"1 3 3 2 0 0"},
         "i64[2] 1 0; i64[2, 1] 0 2"},
        {M23 "init a i64[] = 1 y = CumSum(x, a) {exclusive=1 reverse=1}",
         {S6},
         "f32[2, 3] 3 2 0 9 5 0"},
        {"opset 26 input x i32[3] input a i64[] output y y = CumProd(x, a)",
         {"2 3 4", "0"},
         "i32[3] 2 6 24"},
        {"input x f32[2,2] input a i64[] output y y = CumSum(x, a)",
         {"1 2 3 4", "-1"},
         "f32[2, 2] 1 3 3 7"},
        {"input x f32[2,2] input a i64[] output y y = CumSum(x, a)",
         {"1 2 3 4", "0"},
         "f32[2, 2] 1 2 4 6"},
        {"opset 11 input x f32[1,2,2] output y y = Softmax(x)",
         {"0 0 0 0"},
         "f32[1, 2, 2] 0.25 0.25 0.25 0.25"},
        {"opset 11 input x f32[1,2,2] output y y = Hardmax(x)",
         {"0 5 5 1"},
         "f32[1, 2, 2] 0 1 0 0"},
        {"input x f32[2,2] output y y = Hardmax(x) {axis=0}", {"0 5 5 1"}, "f32[2, 2] 0 1 1 0"},
        {"input x f32[2] output y y = LogSoftmax(x)", {"1000 1000"}, "f32[2] -0.693147 -0.693147"},
        {"input x f32[2,2] output y y = LpNormalization(x) {p=1}",
         {"1 3 0 0"},
         "f32[2, 2] 0.25 0.75 0 0"},
    };
    run_rows(state, N(rows), rows);
    static const Wrong wrong[] = {
        {"opset 18 " M23 "input a i64[1] y = ReduceMax(x, a)", E3004, "the axes must be constant"},
        {"opset 18 input x f32[2,3] input a i64[1] output y f32[5,1] y = ReduceMax(x, a)", E2009,
         "no axes reduce shape [2, 3] to the declared [5, 1]"},
        {"opset 18 " M23 "init a i64[1] = 2 y = ReduceMax(x, a)", E2004,
         "axis 2 is not in [-2, 2)"},
        {"input x bool[2] output y y = ReduceSum(x)", E2006, "takes no elements of type bool"},
        {"input x f32[0] output y y = ArgMax(x)", E2005, "axis 0 is empty"},
        {"input x f32[] init a i64[] = 0 output y y = CumSum(x, a)", E2005, "one integer"},
        {"input x i32[2] output y y = Softmax(x)", E2006, "takes no elements of type i32"},
        {M23 "y = LpNormalization(x) {p=3}", E2004, "p is 3"},
    };
    refuse_rows(state, N(wrong), wrong);
}

static void test_products(void **state) {
    static const Row rows[] = {
        {"input a f32[2] input b f32[2] output y y = MatMul(a, b)", {"1 2", "3 4"}, "f32[] 11"},
        {"opset 18 input x bool[1,2,2] init i i64[1] = 3 init k i64[1] = 2 output y "
         "y = Col2Im(x, i, k)",
         {"1 0 1 0"},
         "bool[1, 1, 3] 1 1 0"},
        {"opset 23 input q f32[1,0,2,1] input k f32[1,3,2,1] output y y = Attention(q, k, k)",
         {"", "1 2 3 4 5 6"},
         "f32[1, 0, 2, 1] "},
        {"input a i32[1,2] input b i32[2,1] output y y = MatMul(a, b)",
         {"1 2", "3 4"},
         "i32[1, 1] 11"},
        {"input a u8[2,2] input b i8[2,1] output y init z u8[2] = 1 2 y = MatMulInteger(a, b, z)",
         {"1 2 3 4", "1 -1"},
         "i32[2, 1] -1 -1"},
        {"input a f32[2,1] input b f32[1,2] input c f32[1] output y "
         "y = Gemm(a, b, c) {transA=1 transB=1 alpha=2.0 beta=0.5}",
         {"1 2", "3 4", "10"},
         "f32[1, 1] 27"},
        {"opset 6 input a f32[1,2] input b f32[2,2] input c f32[2] output y "
         "y = Gemm(a, b, c) {broadcast=1}",
         {"1 2", "1 0 0 1", "10 20"},
         "f32[1, 2] 11 22"},
        {"input a i32[1,2] input b i32[2,1] output y y = Gemm(a, b) {alpha=0.5}",
         {"3 4", "1 1"},
         "i32[1, 1] 3"},
        {"input a f32[2,2] output y y = Einsum(a) {equation=\"ii\"}", {"1 2 3 4"}, "f32[] 5"},
        {"input a f32[2,2] output y y = Einsum(a) {equation=\" i j -> j i \"}",
         {"1 2 3 4"},
         "f32[2, 2] 1 3 2 4"},
        {"input a f32[2] input b f32[2] input c f32[2] output y "
         "y = Einsum(a, b, c) {equation=\"i,j,j->i\"}",
         {"1 2", "3 4", "5 6"},
         "f32[2] 39 78"},
        {"input a f32[2,1,2] input b f32[2,2] output y y = Einsum(a, b) {equation=\"...j,...j\"}",
         {"1 2 3 4", "1 0 0 1"},
         "f32[2, 2] 1 2 3 4"},
        {"input a f32[2,2,2] output y y = Det(a)", {"0 1 1 0 1 2 2 4"}, "f32[2] -1 0"},
        {"input a f32[3,3] output y y = Det(a)", {"2 0 1 1 3 2 1 1 1"}, "f32[] 0"},
        {"input a f64[0,0] output y y = Det(a)", {""}, "f64[] 1"},
    };
    run_rows(state, N(rows), rows);
    static const Wrong wrong[] = {
        {M23 "y = MatMul(x, x)", E2005, "a matrix product of shapes [2, 3] and [2, 3]"},
        {M23 "input z f64[3,2] y = MatMul(x, z)", E2006, "inputs are f32 and f64"},
        {"input x bool[2,2] output y y = MatMul(x, x)", E2006, "no elements of type bool"},
        {"input x bool[2,2] output y y = Einsum(x) {equation=\"ij->i\"}", E2006, "of type bool"},
        {M23 "y = Gemm(x, x) {transA=1 transB=1}", E2005,
         "[2, 3] transposed and [2, 3] transposed"},
        {M23 "init c f32[3] = 1 2 3 y = Gemm(x, x, c) {transB=1}", E2005,
         "does not broadcast to [2, 2]"},
        {M23 "y = Einsum(x) {equation=\"ij->ik\"}", E2004, "a label that no input has"},
        {M23 "y = Einsum(x) {equation=\"ij->ii\"}", E2004, "a label twice"},
        {M23 "y = Einsum(x) {equation=\"ii\"}", E2005, "the extents 2 and 3"},
        {M23 "y = Einsum(x) {equation=\"ijk\"}", E2005, "do not fit the inputs' dimensions"},
        {M23 "y = Einsum(x, x) {equation=\"ij\"}", E2005, "do not fit the inputs' dimensions"},
        {M23 "y = Einsum(x) {equation=\"i1\"}", E2004, "'1' at an unexpected place"},
        {M23 "y = Einsum(x)", E2004, "the equation or all inputs are missing"},
        {M23 "y = Det(x)", E2005, "square matrices"},
        {"input a u8[1,1] input b u8[1,1] init z i8[] = 1 output y y = MatMulInteger(a, b, z)",
         E2006, "a zero point is i8"},
        {"input a u8[1,1] input b u8[1,1] init z u8[3] = 1 2 3 output y y = MatMulInteger(a, b, z)",
         E2005, "a zero point of shape [3, 1]"},
    };
    refuse_rows(state, N(wrong), wrong);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reductions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_products, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
