/* Every elementwise operator on a few numbers, by a table: a row is the call, the inputs and what
 * must come out. Inputs and result are "type[shape] numbers"; "@6 " before a call means opset 6. */
#include "tests/unit/model_text.h"

typedef struct Row {
    const char *call;
    const char *inputs[3];
    const char *result;
} Row;

static const Row rows[] = {
    /* arithmetic */
    {"Abs(a)", {"f32[3] -1.5 0 2"}, "f32[3] 1.5 0 2"},
    {"Abs(a)", {"i8[2] -3 3"}, "i8[2] 3 3"},
    {"Add(a, b)", {"f32[2,1] 1 2", "f32[2] 10 20"}, "f32[2, 2] 11 21 12 22"},
    {"Add(a, b)", {"u8[1] 250", "u8[1] 10"}, "u8[1] 4"},
    {"Add(a, b)", {"f16[1] 1", "f16[1] 0.0001"}, "f16[1] 1"},
    {"@6 Add(a, b) {broadcast=1 axis=0}",
     {"f32[2,2] 1 2 3 4", "f32[2] 10 20"},
     "f32[2, 2] 11 12 23 24"},
    {"Div(a, b)", {"i32[2] -7 7", "i32[1] 2"}, "i32[2] -3 3"},
    {"Div(a, b)", {"f32[2] 1 -1", "f32[1] 0"}, "f32[2] inf -inf"},
    {"Max(a, b, c)", {"f32[2] 1 5", "f32[1] 3", "f32[2] 4 4"}, "f32[2] 4 5"},
    {"Mean(a, b)", {"f32[2] 1 5", "f32[1] 3"}, "f32[2] 2 4"},
    {"Min(a, b)", {"u8[2] 1 200", "u8[1] 100"}, "u8[2] 1 100"},
    {"Min(a)", {"f32[1] 3"}, "f32[1] 3"},
    {"Mod(a, b)", {"i32[4] -7 7 -6 7", "i32[4] 3 -3 3 3"}, "i32[4] 2 -2 0 1"},
    {"Mod(a, b) {fmod=1}", {"i32[2] -7 7", "i32[2] 3 -3"}, "i32[2] -1 1"},
    {"Mod(a, b) {fmod=1}", {"f32[2] -7.5 7.5", "f32[2] 2 -2"}, "f32[2] -1.5 1.5"},
    {"Mul(a, b)", {"i64[2] 3 -4", "i64[] 5"}, "i64[2] 15 -20"},
    {"Neg(a)", {"f32[2] 1 -2"}, "f32[2] -1 2"},
    {"Pow(a, b)", {"f32[3] 2 3 4", "f32[3] 3 2 0.5"}, "f32[3] 8 9 2"},
    {"Pow(a, b)", {"i32[3] 2 -3 4", "f32[3] 3 3 0.5"}, "i32[3] 8 -27 2"},
    {"Pow(a, b)", {"f32[2] 2 3", "i64[1] 2"}, "f32[2] 4 9"},
    {"Reciprocal(a)", {"f32[2] 2 -4"}, "f32[2] 0.5 -0.25"},
    {"Sign(a)", {"f32[4] -2 0 3 nan"}, "f32[4] -1 0 1 nan"},
    {"Sign(a)", {"u8[2] 0 9"}, "u8[2] 0 1"},
    {"Sqrt(a)", {"f32[2] 4 2"}, "f32[2] 2 1.41421"},
    {"Sub(a, b)", {"u8[1] 3", "u8[1] 5"}, "u8[1] 254"},
    {"Sum(a, b, c)", {"f32[1] 1", "f32[2] 2 3", "f32[1] 4"}, "f32[2] 7 8"},
    /* rounding, kinds of numbers */
    {"Ceil(a)", {"f32[2] 1.2 -1.2"}, "f32[2] 2 -1"},
    {"Floor(a)", {"f32[2] 1.2 -1.2"}, "f32[2] 1 -2"},
    {"Round(a)", {"f32[4] 0.5 1.5 2.5 -2.5"}, "f32[4] 0 2 2 -2"},
    {"IsNaN(a)", {"f32[2] nan 1"}, "bool[2] 1 0"},
    {"IsInf(a)", {"f32[3] inf -inf 1"}, "bool[3] 1 1 0"},
    {"IsInf(a) {detect_positive=0}", {"f32[3] inf -inf 1"}, "bool[3] 0 1 0"},
    {"IsInf(a) {detect_negative=0}", {"f32[3] inf -inf 1"}, "bool[3] 1 0 0"},
    {"IsInf(a) {detect_negative=0 detect_positive=0}", {"f32[1] inf"}, "bool[1] 0"},
    /* exponentials, trigonometry */
    {"Acos(a)", {"f32[1] 0.5"}, "f32[1] 1.0472"},
    {"Acosh(a)", {"f32[1] 2"}, "f32[1] 1.31696"},
    {"Asin(a)", {"f32[1] 0.5"}, "f32[1] 0.523599"},
    {"Asinh(a)", {"f32[1] 1"}, "f32[1] 0.881374"},
    {"Atan(a)", {"f32[1] 1"}, "f32[1] 0.785398"},
    {"Atanh(a)", {"f32[1] 0.5"}, "f32[1] 0.549306"},
    {"Cos(a)", {"f32[1] 1"}, "f32[1] 0.540302"},
    {"Cosh(a)", {"f32[1] 1"}, "f32[1] 1.54308"},
    {"Erf(a)", {"f32[1] 0.5"}, "f32[1] 0.5205"},
    {"Exp(a)", {"f32[2] 0 1"}, "f32[2] 1 2.71828"},
    {"Log(a)", {"f32[2] 1 10"}, "f32[2] 0 2.30259"},
    {"Sin(a)", {"f32[1] 1"}, "f32[1] 0.841471"},
    {"Sinh(a)", {"f32[1] 1"}, "f32[1] 1.1752"},
    {"Tan(a)", {"f32[1] 1"}, "f32[1] 1.55741"},
    {"Tanh(a)", {"f32[1] 0.5"}, "f32[1] 0.462117"},
    /* comparisons, logic, bits */
    {"And(a, b)", {"bool[4] 0 0 1 1", "bool[4] 0 1 0 1"}, "bool[4] 0 0 0 1"},
    {"Equal(a, b)", {"i64[2] 1 2", "i64[1] 2"}, "bool[2] 0 1"},
    {"Equal(a, b)", {"bool[2] 1 0", "bool[1] 0"}, "bool[2] 0 1"},
    {"Greater(a, b)", {"f32[2] 1 3", "f32[1] 2"}, "bool[2] 0 1"},
    {"GreaterOrEqual(a, b)", {"u8[3] 1 2 3", "u8[1] 2"}, "bool[3] 0 1 1"},
    {"Less(a, b)", {"u64[2] 1 3", "u64[1] 2"}, "bool[2] 1 0"},
    {"LessOrEqual(a, b)", {"f32[3] 1 2 3", "f32[1] 2"}, "bool[3] 1 1 0"},
    {"Not(a)", {"bool[2] 0 1"}, "bool[2] 1 0"},
    {"Or(a, b)", {"bool[4] 0 0 1 1", "bool[4] 0 1 0 1"}, "bool[4] 0 1 1 1"},
    {"Where(a, b, c)", {"bool[2] 1 0", "i8[2] 1 2", "i8[1] 9"}, "i8[2] 1 9"},
    {"Where(a, b, c)", {"bool[2] 1 0", "f16[1] 1", "f16[1] 2"}, "f16[2] 1 2"},
    {"Xor(a, b)", {"bool[4] 0 0 1 1", "bool[4] 0 1 0 1"}, "bool[4] 0 1 1 0"},
    {"BitShift(a, b) {direction=\"LEFT\"}", {"u8[2] 129 1", "u8[2] 1 7"}, "u8[2] 2 128"},
    {"BitShift(a, b) {direction=\"RIGHT\"}", {"u16[2] 256 1", "u16[2] 4 1"}, "u16[2] 16 0"},
    {"BitwiseAnd(a, b)", {"u8[1] 12", "u8[1] 10"}, "u8[1] 8"},
    {"BitwiseNot(a)", {"i8[2] 0 5"}, "i8[2] -1 -6"},
    {"BitwiseOr(a, b)", {"i32[1] 12", "i32[1] 10"}, "i32[1] 14"},
    {"BitwiseXor(a, b)", {"u64[1] 12", "u64[1] 10"}, "u64[1] 6"},
    /* activations */
    {"Celu(a) {alpha=2.0}", {"f32[2] -1 1"}, "f32[2] -0.786939 1"},
    {"Clip(a, b, c)", {"f32[3] -5 0 5", "f32[] -1", "f32[] 1"}, "f32[3] -1 0 1"},
    {"Clip(a, _, b)", {"i8[2] -5 5", "i8[] 1"}, "i8[2] -5 1"},
    {"@6 Clip(a) {min=-1.0}", {"f32[2] -5 5"}, "f32[2] -1 5"},
    {"Elu(a) {alpha=2.0}", {"f32[2] -1 1"}, "f32[2] -1.26424 1"},
    {"Gelu(a)", {"f32[2] -1 1"}, "f32[2] -0.158655 0.841345"},
    {"Gelu(a) {approximate=\"tanh\"}", {"f32[2] -1 1"}, "f32[2] -0.158808 0.841192"},
    {"HardSigmoid(a)", {"f32[3] -3 0 3"}, "f32[3] 0 0.5 1"},
    {"HardSwish(a)", {"f32[3] -3 1 4"}, "f32[3] 0 0.666667 4"},
    {"@1 Affine(a) {alpha=2.0 beta=0.5}", {"f32[2] -1 3"}, "f32[2] -1.5 6.5"},
    {"LeakyRelu(a)", {"f32[2] -1 1"}, "f32[2] -0.01 1"},
    {"Mish(a)", {"f32[2] -1 1"}, "f32[2] -0.303401 0.865098"},
    {"PRelu(a, b)", {"f32[1,2] -1 -1", "f32[2] 0.5 2"}, "f32[1, 2] -0.5 -2"},
    {"@6 PRelu(a, b)", {"f32[1,2,1] -1 -1", "f32[2] 0.5 2"}, "f32[1, 2, 1] -0.5 -2"},
    {"Relu(a)", {"f32[3] -1 2 nan"}, "f32[3] 0 2 nan"},
    {"Relu(a)", {"i32[2] -1 2"}, "i32[2] 0 2"},
    {"Selu(a)", {"f32[2] -1 1"}, "f32[2] -1.11133 1.0507"},
    {"@1 Selu(a)", {"f32[1] 100"}, "f32[1] 105.07"},
    {"Shrink(a) {lambd=1.5 bias=1.5}", {"f32[3] -2 0 2"}, "f32[3] -0.5 0 0.5"},
    {"Shrink(a) {lambd=1.5 bias=1.5}", {"i32[4] -3 -1 2 5"}, "i32[4] -1 0 0 3"},
    {"Shrink(a) {lambd=1.5 bias=0.5}", {"u8[4] 0 1 2 200"}, "u8[4] 0 0 1 199"},
    {"@23 QuantizeLinear(a, b)", {"f32[3] 5 7 -1", "i32[] 2"}, "u8[3] 2 4 0"},
    {"@23 QuantizeLinear(a, b)", {"i32[2] 2147483647 9", "i32[] 16777217"}, "u8[2] 128 0"},
    {"Sigmoid(a)", {"f32[3] -1000 0 1"}, "f32[3] 0 0.5 0.731059"},
    {"Softplus(a)", {"f32[3] -1 0 1000"}, "f32[3] 0.313262 0.693147 1000"},
    {"Softsign(a)", {"f32[2] -1 3"}, "f32[2] -0.5 0.75"},
    {"Swish(a) {alpha=2.0}", {"f32[1] 1"}, "f32[1] 0.880797"},
    {"ThresholdedRelu(a) {alpha=2.0}", {"f32[2] 2 3"}, "f32[2] 0 3"},
    /* types */
    {"BitCast(a) {to=6}", {"f32[1] 1"}, "i32[1] 1065353216"},
    {"BitCast(a) {to=2}", {"bool[2] 0 1"}, "u8[2] 0 1"},
    {"Cast(a) {to=7}", {"f32[3] -1.7 0 1.7"}, "i64[3] -1 0 1"},
    {"Cast(a) {to=9}", {"f32[3] -0.5 0 2"}, "bool[3] 1 0 1"},
    {"@1 Cast(a) {to=\"INT32\"}", {"f32[1] 2.5"}, "i32[1] 2"},
    {"Cast(a) {to=17}", {"f32[4] 1e9 464 -1e9 0.3"}, "f8e4m3fn[4] 448 448 -448 0.3125"},
    {"Cast(a) {to=17 saturate=0}", {"f32[4] 1e9 464 465 0.3"}, "f8e4m3fn[4] nan 448 nan 0.3125"},
    {"Cast(a) {to=18 saturate=0}", {"f32[2] 247 -248"}, "f8e4m3fnuz[2] 240 nan"},
    {"Cast(a) {to=19 saturate=0}", {"f32[3] 61439 61440 -1e9"}, "f8e5m2[3] 57344 inf -inf"},
    {"Cast(a) {to=20 saturate=0}", {"f32[2] 61439 -61440"}, "f8e5m2fnuz[2] 57344 nan"},
    {"Cast(a) {to=24}", {"f32[4] 1 3 5 0"}, "f8e8m0[4] 1 4 8 5.87747e-39"},
    {"Cast(a) {to=24 round_mode=\"down\"}", {"f32[3] 1 3 7"}, "f8e8m0[3] 1 2 4"},
    {"Cast(a) {to=24 round_mode=\"nearest\"}", {"f32[3] 5 6 7"}, "f8e8m0[3] 4 8 8"},
    {"CastLike(a, b)", {"f32[2] 1.5 2.5", "i8[1] 0"}, "i8[2] 1 2"},
    {"Identity(a)", {"i4[2] -8 7"}, "i4[2] -8 7"},
    {"Dropout(a)", {"f32[2] 1 2"}, "f32[2] 1 2"},
};

static void test_rows(void **state) {
    Bench *b = *state;
    for (size_t i = 0; i < N(rows); i++) {
        const Row *row = &rows[i];
        Text model_ = text_new(&b->arena);
        const char *numbers[3];
        int n = 0;
        int opset = row->call[0] == '@' ? atoi(row->call + 1) : 27;
        const char *call = row->call[0] == '@' ? strchr(row->call, ' ') : row->call;
        text_addf(&model_, "opset %d ", opset);
        for (; n < 3 && row->inputs[n]; n++) {
            size_t type = strcspn(row->inputs[n], " ");
            text_addf(&model_, "input %c %.*s ", 'a' + n, (int)type, row->inputs[n]);
            numbers[n] = row->inputs[n] + type;
        }
        text_addf(&model_, "output y y = %s", call);
        const char *result = run_text(b, text_get(&model_), NULL, n, numbers);
        if (strcmp(result, row->result) != 0)
            fail_msg("%s: %s, not %s", row->call, result, row->result);
    }
}

static void test_refusals(void **state) {
    Bench *b = *state;
    static const struct {
        const char *text;
        ErrCode code;
        const char *part;
    } wrong[] = {
        {"input a u8[1] output y y = BitShift(a, a)", E2004, "fit no form of the operator"},
        {"input a f32[1] output y y = BitCast(a) {to=10}", E3002, "different widths"},
        {"opset 5 input a f32[1] output y y = Cast(a) {to=\"LONG\"}", E2004, "'LONG'"},
        {"input a f32[2] input c f32[3] output y y = Clip(a, c)", E2005, "do not broadcast"},
    };
    for (size_t i = 0; i < N(wrong); i++) {
        assert_null(import_text(b, wrong[i].text, NULL));
        expect_error(b, wrong[i].code, wrong[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
