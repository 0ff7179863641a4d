/* Gradients: beside differences of the function itself, for operators of each kind. */
#include "tests/unit/model_text.h"

#include <math.h>

#define STEP 1e-5

typedef struct Runner {
    Bench *b;
    Graph *g;
    double *x;
    const void **in;
    double **out;
} Runner;

/* The sum of output 0. */
static double value_at(Runner *r) {
    assert_true(interp_graph(r->g, r->in, (void **)r->out));
    double sum = 0;
    for (int64_t i = 0; i < value_numel(r->g->outputs.items[0]); i++) sum += r->out[0][i];
    return sum;
}

/* y as `body` makes it of x (and of constants), x being f64 of `shape` with n elements, all between
 * 0.1 and 0.9 and different. */
static void expect_slope(Bench *b, const char *shape, const char *body) {
    const char *text = arena_printf(
        &b->arena,
        "opset 21 opset ai.onnx.preview.training 1 input x f64%s output y output dx %s "
        "dx = ai.onnx.preview.training:Gradient(x) {xs=[\"x\"] y=\"y\"}",
        shape, body);
    Graph *g = import_text(b, text, NULL);
    if (!g) {
        for (int i = 0; i < b->diag.messages.n; i++)
            print_error("%s\n", b->diag.messages.items[i].text);
        fail_msg("%s", body);
    }
    int64_t n = value_numel(g->inputs.items[0]);
    Runner r = {b, g, ARENA_ARRAY(&b->arena, n, double), ARENA_ARRAY(&b->arena, 1, const void *),
                ARENA_ARRAY(&b->arena, 2, double *)};
    r.in[0] = r.x;
    for (int i = 0; i < 2; i++)
        r.out[i] = arena_alloc(&b->arena, value_bytes(g->outputs.items[i]) + 16);
    for (int64_t i = 0; i < n; i++)
        r.x[i] = 0.1 + 0.8 * (double)((i * 37 + 11) % 101) / 101 + (double)i * 1e-4;
    value_at(&r);
    double *slope = arena_copy(&b->arena, r.out[1], (size_t)n * sizeof *slope);
    for (int64_t i = 0; i < n; i++) {
        double middle = r.x[i];
        r.x[i] = middle + STEP;
        double above = value_at(&r);
        r.x[i] = middle - STEP;
        double below = value_at(&r);
        r.x[i] = middle;
        double wanted = (above - below) / (2 * STEP);
        if (fabs(slope[i] - wanted) > 1e-6 + 1e-5 * fabs(wanted))
            fail_msg("%s: slope %lld is %.9g, not %.9g", body, (long long)i, slope[i], wanted);
    }
}

static void test_elementwise(void **state) {
    Bench *b = *state;
    static const char *const unary[] = {
        "Abs",  "Neg",   "Sqrt",        "Exp",   "Log",     "Sin",      "Cos",
        "Tan",  "Asin",  "Acos",        "Atan",  "Sinh",    "Cosh",     "Tanh",
        "Erf",  "Asinh", "Relu",        "Atanh", "Sigmoid", "Softplus", "Reciprocal",
        "Gelu", "Mish",  "HardSigmoid", "Elu",   "Floor",   "Round",    "Softsign"};
    for (size_t i = 0; i < N(unary); i++) {
        expect_slope(b, "[7]", arena_printf(&b->arena, "t = Mul(x, x) y = %s(t)", unary[i]));
        expect_slope(b, "[7]",
                     arena_printf(&b->arena,
                                  "c = Constant() {value=f64[](0.3)} t = Sub(x, c) u = Neg(t) "
                                  "v = Mul(u, u) w = %s(v) y = Mul(w, x)",
                                  unary[i]));
    }
    expect_slope(b, "[7]", "one = Constant() {value=f64[](1.5)} t = Add(x, one) y = Acosh(t)");
    expect_slope(b, "[7]", "t = Sin(x) y = Pow(x, t)");
    expect_slope(b, "[7]", "t = Sin(x) u = Div(x, t) v = Sub(t, u) y = Mul(v, v)");
    expect_slope(b, "[7]",
                 "h = Constant() {value=f64[](0.5)} t = Max(x, h) u = Min(x, h) "
                 "y = Div(t, u)");
    expect_slope(b, "[7]",
                 "h = Constant() {value=f64[](0.07)} t = Mod(x, h) {fmod=1} y = Mul(t, x)");
    expect_slope(b, "[7]",
                 "h = Constant() {value=f64[](0.5)} c = Less(x, h) t = Exp(x) "
                 "y = Where(c, t, x)");
    expect_slope(b, "[7]", "t = Cast(x) {to=1} u = Cast(t) {to=11} v = Sub(x, u) y = Mul(x, x)");
    expect_slope(b, "[7]", "t = Cast(x) {to=7} u = Cast(t) {to=11} y = Mul(x, u)");
}

static void test_shapes(void **state) {
    Bench *b = *state;
    expect_slope(b, "[3,4]", "t = Transpose(x) {perm=[1 0]} u = Exp(t) y = MatMul(x, u)");
    expect_slope(b, "[3,1]", "t = Transpose(x) {perm=[1 0]} u = Mul(x, t) y = Mul(u, x)");
    expect_slope(b, "[2,3]",
                 "s = Constant() {value=i64[2](3 2)} t = Reshape(x, s) y = MatMul(x, t)");
    expect_slope(b, "[4]", "t = Mul(x, x) y = Concat(x, t, x) {axis=0}");
    expect_slope(b, "[6]",
                 "s = Constant() {value=i64[1](5)} e = Constant() {value=i64[1](0)} "
                 "a = Constant() {value=i64[1](0)} d = Constant() {value=i64[1](-2)} "
                 "t = Slice(x, s, e, a, d) y = Mul(t, t)");
    expect_slope(b, "[2,3]", "p = Constant() {value=i64[4](1 0 2 -1)} t = Mul(x, x) y = Pad(t, p)");
    expect_slope(b, "[5]",
                 "i = Constant() {value=i64[4](3 0 3 -1)} t = Gather(x, i) y = Mul(t, t)");
    expect_slope(b, "[2,3]", "s = Constant() {value=i64[3](4 2 3)} t = Expand(x, s) y = Exp(t)");
    expect_slope(b, "[5]", "a = Constant() {value=i64[](0)} t = CumSum(x, a) y = Mul(t, t)");
    expect_slope(b, "[2,3]",
                 "a = Constant() {value=i64[](1)} "
                 "t = CumSum(x, a) {exclusive=1 reverse=1} y = Mul(t, x)");
    expect_slope(b, "[5]",
                 "i = Constant() {value=i64[2](3 0)} u = Constant() {value=f64[2](2 3)} "
                 "t = ScatterElements(x, i, u) y = Mul(t, x)");
    expect_slope(b, "[2]",
                 "i = Constant() {value=i64[2](3 0)} d = Constant() {value=f64[4](1 2 3 4)} "
                 "t = ScatterElements(d, i, x) {reduction=\"add\"} y = Mul(t, t)");
    expect_slope(b, "[4]", "k = Constant() {value=i64[1](2)} t, i = TopK(x, k) y = Mul(t, t)");
}

static void test_reductions(void **state) {
    Bench *b = *state;
    expect_slope(b, "[3,4]", "t = ReduceMean(x) {keepdims=1} u = Sub(x, t) y = Mul(u, x)");
    expect_slope(b, "[3,4]", "y = Softmax(x) {axis=1}");
    expect_slope(b, "[3,4]", "t = Softmax(x) {axis=1} u = Log(t) y = Mul(u, x)");
    expect_slope(b, "[3,4]", "t = LogSoftmax(x) {axis=0} y = Mul(t, x)");
    expect_slope(b, "[3,4]", "t = ReduceMax(x) {keepdims=1} y = Mul(t, x)");
    expect_slope(b, "[3,4]", "t = ReduceMin(x) {keepdims=1} y = Div(t, x)");
    expect_slope(b, "[3,4]", "t = ReduceL2(x) {keepdims=1} y = Mul(t, x)");
    expect_slope(b, "[3,4]", "t = ReduceLogSumExp(x) {keepdims=1} y = Mul(t, x)");
    expect_slope(b, "[2,4]",
                 "s = Constant() {value=f64[4](1 2 3 4)} t = LayerNormalization(x, s) "
                 "y = Mul(t, x)");
    expect_slope(
        b, "[1,2,5,5]",
        "w = Constant() {value=f64[3,2,2,2](1 2 3 4 5 6 7 8 -1 -2 -3 -4 -5 -6 -7 -8 "
        "1 -1 2 -2 3 -3 4 -4)} t = Conv(x, w) {pads=[1 0 1 1] strides=[2 1]} y = Mul(t, t)");
    expect_slope(b, "[1,2,2,2]",
                 "c = Constant() {value=f64[1,2,4,4](1 2 3 4 5 6 7 8 9 8 7 6 5 4 3 2 1 2 3 4 5 6 7 "
                 "8 9 8 7 6 5 4 3 2)} t = Conv(c, x) {pads=[1 1 1 1]} y = Mul(t, t)");
    expect_slope(b, "[1,2,5,5]",
                 "t = MaxPool(x) {kernel_shape=[2 2] strides=[2 1] pads=[1 1 0 0]} y = Mul(t, t)");
    expect_slope(b, "[1,2,5,5]",
                 "t = AveragePool(x) {kernel_shape=[3 3] pads=[1 1 1 1]} y = Mul(t, t)");
    expect_slope(b, "[1,2,3,4]", "t = GlobalAveragePool(x) y = Mul(t, x)");
    expect_slope(b, "[2,3]",
                 "w = Constant() {value=f64[4,3](1 2 3 4 5 6 7 8 9 10 11 12)} "
                 "t = Gemm(x, w) {transB=1 alpha=0.5} y = Mul(t, t)");
}

/* the greatest of two that are equal: half each */
static void test_ties(void **state) {
    const char *const x[] = {"3 3 1"};
    const char *text = "opset ai.onnx.preview.training 1 opset 18 input x f32[3] output d "
                       "y = ReduceMax(x) {keepdims=0} "
                       "d = ai.onnx.preview.training:Gradient(x) {xs=[\"x\"] y=\"y\"}";
    assert_string_equal(run_text(*state, text, NULL, 1, x), "f32[3] 0.5 0.5 0");
}

static const char *gradient(Bench *b, const char *inputs, const char *body, const char *node) {
    return arena_printf(&b->arena,
                        "opset ai.onnx.preview.training 1 opset 18 %s output d output e %s "
                        "d, e = ai.onnx.preview.training:Gradient(%s",
                        inputs, body, node);
}

static void test_node(void **state) {
    Bench *b = *state;
    const char *const in[] = {"2 3", "5 7"};
    const char *two = "input p f16[2] input q f16[2]";
    /* by two tensors, of which the second changes nothing; by one, with one that stays */
    assert_string_equal(
        run_text(b, gradient(b, two, "y = Mul(p, p)", "p, q) {xs=[\"p\" \"q\"] y=\"y\"}"), NULL, 2,
                 in),
        "f16[2] 4 6; f16[2] 0 0");
    assert_string_equal(
        run_text(b, gradient(b, two, "y = Mul(p, q)", "p, q) {xs=[\"p\" \"q\"] y=\"y\"}"), NULL, 2,
                 in),
        "f16[2] 5 7; f16[2] 2 3");
    /* a gradient's gradient */
    assert_string_equal(
        run_text(
            b,
            "opset ai.onnx.preview.training 1 opset 18 input p f32[2] output e "
            "s = Mul(p, p) y = Mul(s, p) d = ai.onnx.preview.training:Gradient(p) "
            "{xs=[\"p\"] y=\"y\"} e = ai.onnx.preview.training:Gradient(p) {xs=[\"p\"] y=\"d\"}",
            NULL, 1, in),
        "f32[2] 12 18");
    static const struct {
        const char *body, *node;
        ErrCode code;
        const char *part;
    } wrong[] = {
        {"y = Mul(p, q)", "q, p) {xs=[\"p\" \"q\"] y=\"y\"}", E3002, "input 0 is not 'p'"},
        {"y = Mul(p, q)", "p) {xs=[\"p\" \"q\"] y=\"y\"}", E2007, "2 names in xs, 0 in zs, but 1"},
        {"y = Mul(p, q)", "p, q) {xs=[\"p\" \"q\"] y=\"z\"}", E2001, "'z' is no tensor of floats"},
        {"c = Constant() {value=f32[2](1 2)} y = Mul(p, c)", "p, c) {xs=[\"p\" \"c\"] y=\"y\"}",
         E3002, "a gradient by 'c', which is constant"},
        {"y = ReduceProd(p)", "p, q) {xs=[\"p\" \"q\"] y=\"y\"}", E3002, "a product of many"},
        {"i = Constant() {value=i64[1](1)} u = Constant() {value=f32[1](1)} "
         "y = ScatterElements(p, i, u) {reduction=\"mul\"}",
         "p, q) {xs=[\"p\" \"q\"] y=\"y\"}", E3002,
         "the gradient through ScatterElements(y), which combines elements otherwise"},
        {"m = Constant() {value=i64[](70)} c = Constant() {value=bool[](1)} "
         "y = Loop(m, c, p) {body=graph{ input i i64[] input k bool[] input s f32[2] output k "
         "output r  r = Sin(s)}}",
         "p, q) {xs=[\"p\" \"q\"] y=\"y\"}", E3002,
         "the gradient through Loop(y), which repeats a graph"},
        {"i = Cast(p) {to=7} y = Cast(i) {to=1}", "p, i) {xs=[\"p\" \"i\"] y=\"y\"}", E2006,
         "a gradient by 'i', of type i64"},
    };
    assert_null(import_text(b,
                            "opset ai.onnx.preview.training 1 opset 18 input p f32[2] "
                            "input q f32[N,2] output d y = Mul(p, q) "
                            "d = ai.onnx.preview.training:Gradient(p) {xs=[\"p\"] y=\"y\"}",
                            "N=1..3"));
    expect_error(b, E3002, "the gradient through Mul(y), whose dimensions vary");
    for (size_t i = 0; i < N(wrong); i++) {
        assert_null(import_text(
            b, gradient(b, "input p f32[2] input q f32[2]", wrong[i].body, wrong[i].node), NULL));
        expect_error(b, wrong[i].code, wrong[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_elementwise, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reductions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ties, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_node, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("gradient", tests, NULL, NULL);
}
