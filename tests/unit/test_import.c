/* The importer: how names, functions, sub-graphs and shapes are brought together, and every message
 * it has for models that are wrong or not supported. */
#include "tests/unit/model_text.h"

static void expect_run(Bench *b, const char *text, const char *input, const char *wanted) {
    assert_string_equal(run_text(b, text, NULL, 1, &input), wanted);
}

static void refuse(Bench *b, const char *text, ErrCode code, const char *part) {
    assert_null(import_text(b, text, NULL));
    expect_error(b, code, part);
}

/* --- names ------------------------------------------------------------------------------------ */

static void test_order(void **state) {
    Bench *b = *state;
    expect_run(b, "input x f32[2] output z  z = Add(y, y)  y = Neg(x)", "1 2", "f32[2] -2 -4");
    refuse(b, "input x f32[2] output z z = Add(x, nothing)", E2001,
           "node #0 'z' (Add): input 'nothing' is made by no node");
    refuse(b, "input x f32[2] output z y = Neg(x)", E2001, "output 'z': made by no node");
    refuse(b, "input x f32[2] output y \"twice\" y = Neg(x) y = Abs(x)", E2002,
           "output 'y' is defined twice");
    refuse(b, "input x f32[2] input x f32[2] output x", E2002, "input 'x' is defined twice");
    refuse(b, "init x f32[1] = 1 init x f32[1] = 1 output x", E2002, "'x' is defined twice");
    refuse(b, "input x f32[2] output y \"a\" y = Add(z, x) \"b\" w = Neg(y) z = Abs(w)", E2003,
           "node 'a' (Add) -> node #2 'z' (Abs) -> node 'b' (Neg) -> node 'a' (Add)");
    refuse(b, "output y y = Neg(y)", E2003, "(Neg) -> node #0 'y' (Neg)");
}

/* 100,000 nodes, each needing the one behind it: no recursion, no quadratic time. */
static void test_long_chain(void **state) {
    Bench *b = *state;
    Text t = text_new(&b->arena);
    text_add(&t, "input x f32[1] output v0 ");
    for (int i = 0; i < 100000; i++) text_addf(&t, "v%d = Neg(v%d) ", i, i + 1);
    text_add(&t, "v100000 = Identity(x)");
    Graph *g = import_text(b, text_get(&t), NULL);
    assert_non_null(g);
    assert_int_equal(g->outputs.n, 1);
}

static void test_initializers(void **state) {
    Bench *b = *state;
    const char *one = "input x f32[2] input w f32[2] output y init w f32[2] = 1 2 y = Add(x, w)";
    expect_run(b, one, "10 20", "f32[2] 11 22");
    expect_run(b, "ir 3 input x f32[2] input w f32[2] init w f32[2] = 3 4 output y y = Add(x, w)",
               "10 20", "f32[2] 13 24");
    expect_run(b, "input x f32[4] sparse s f32[4] = 1:5 3:7 output y y = Add(x, s)", "1 1 1 1",
               "f32[4] 1 6 1 8");
    /* of several Constant nodes the last counts */
    expect_run(b,
               "input x f32[1] output y c = Constant() {value=f32[1](1)} y = Add(x, c) "
               "c = Constant() {value=f32[1](2)}",
               "10", "f32[1] 12");
    refuse(b, "sparse s f32[4] = 9:5 output y y = Neg(s)", E2005, "index 0 is outside");
    expect_run(b, "input x f32[1] output x output w init w i64[2] = 1 -2", "3",
               "f32[1] 3; i64[2] 1 -2");
}

/* --- shapes ----------------------------------------------------------------------------------- */

static void test_dims(void **state) {
    Bench *b = *state;
    const char *text =
        "input x f32[N,?] input y f32[M,?] output s output t s = Shape(x) t = Shape(y)";
    assert_null(import_text(b, text, "N=2"));
    expect_error(b, E2008, "give --dim x.1=VALUE --dim M=VALUE --dim y.1=VALUE");
    Graph *g = import_text(b, text, "N=3 N=2 y.1=5 *=7");
    assert_non_null(g);
    int n;
    assert_memory_equal(value_ints(g, g->outputs.items[0], &n), ((int64_t[]){2, 7}), 16);
    assert_memory_equal(value_ints(g, g->outputs.items[1], &n), ((int64_t[]){7, 5}), 16);
    assert_null(import_text(b, text, "K=2 *=1"));
    expect_error(b, E0001, "--dim K=2: the model has no such dimension; it has: N x.1 M y.1");
    assert_null(import_text(b, text, "N=-2 *=1"));
    expect_error(b, E0001, "--dim N=-2: a dimension is between 0 and 2^31-1");
}

static void test_declared(void **state) {
    Bench *b = *state;
    const char *const inputs[] = {"1 2 3 4", "2 2"};
    /* the shape of Reshape is only known at run time; a declaration stands in for it */
    const char *direct = "input x f32[4] input s i64[2] output y f32[2,2] y = Reshape(x, s)";
    assert_string_equal(run_text(b, direct, NULL, 2, inputs), "f32[2, 2] 1 2 3 4");
    const char *behind = "input x f32[4] input s i64[2] output y f32[2,2] t = Reshape(x, s) "
                         "u = Neg(t) c = Constant() {value=f32[](1)} y = Add(u, c)";
    assert_string_equal(run_text(b, behind, NULL, 2, inputs), "f32[2, 2] 0 -1 -2 -3");
    const char *info = "input x f32[4] input s i64[2] value t f32[M,2] output y t = Reshape(x, s) "
                       "y = Shape(t) input z f32[M] output z";
    assert_non_null(import_text(b, info, "M=2"));
    /* an inner 0 says nothing */
    const char *zero =
        "input x f32[4] input e i64[1] init s i64[1] = 0 value t f32[0] output y f32[n] "
        "t = Slice(x, s, e) y = Neg(t)";
    const char *const three[] = {"1 2 3 4", "3"};
    assert_string_equal(run_text(b, zero, NULL, 2, three), "f32[3] -1 -2 -3");
    refuse(
        b, "input s i64[2] output y f32[2,N] y = ConstantOfShape(s)", E3004,
        "node #0 'y' (ConstantOfShape): how many elements there are depends on run-time data, and "
        "the model does not say; give --dim N=LOW..HIGH");
    refuse(b, "input x f32[4] output y i32[4] y = Neg(x)", E2009,
           "output 'y': declared as i32, but computed as f32");
    /* a wrong shape of what is computed does no harm: a warning */
    assert_non_null(import_text(b, "input x f32[4] output y f32[5] y = Neg(x)", NULL));
    assert_int_equal(b->diag.n_errors, 0);
    expect_error(b, E2009,
                 "output 'y': declared with shape [5] (-1: not fixed), but computed with [4]");
    assert_non_null(import_text(b, "input s str[3] output y str[4] y = Identity(s)", NULL));
    expect_error(b, E2009, "declared with shape [4] (-1: not fixed), but computed with [3]");
}

/* --- inputs and outputs ----------------------------------------------------------------------- */

static void test_sequences(void **state) {
    Bench *b = *state;
    const char *const inputs[] = {"1 2", "3 4"};
    const char *same = "input s seq(f32[N]) output t seq(f32[N]) t = Identity(s)";
    Graph *g = import_text(b, same, "--items s=2 N=2");
    assert_non_null(g);
    assert_string_equal(g->inputs.items[1]->name, "s.1");
    assert_string_equal(g->output_names.items[1], "t.1");
    assert_string_equal(run_text(b, same, "--items s=2 N=2", 2, inputs), "f32[2] 1 2; f32[2] 3 4");
    /* shapes that are given need no dimension, and "*" is all that have no option of their own */
    assert_string_equal(run_text(b, same, "--items *=9 --items s=[2],[1]", 2, inputs),
                        "f32[2] 1 2; f32[1] 3");
    assert_string_equal(run_text(b, same, "--items s=9 --items s=0", 0, NULL), "");
    assert_non_null(import_text(b, same, "--items *=3 N=1"));
    assert_null(import_text(b, same, NULL));
    expect_error(b, E2008, "input 's': the sequence has no length; give --items s=N");
    assert_null(import_text(b, same, "--items s=2"));
    expect_error(b, E2008, "give --dim N=VALUE");
    assert_null(import_text(b, same, "--items s=[2,3]"));
    expect_error(b, E0001, "'s.0' of shape [2, 3], but the model declares [-1]");
    static const char *const wrong[] = {"--items s=4097",   "--items s=-1",   "--items s=[2",
                                        "--items s=[2][3]", "--items s=[2],", "--items s=[-2]",
                                        "--items s=1x",     "--items s=[,2]"};
    for (size_t i = 0; i < N(wrong); i++) {
        assert_null(import_text(b, same, wrong[i]));
        expect_error(b, E0001, "input 's': --items wants NAME=N (at most 4096), NAME=[2,3],[4]");
    }
    assert_null(import_text(b, same, "--items s=none"));
    expect_error(b, E0001, "--items s=none: the input is not optional");
    assert_null(import_text(b, same, "--items s=0 --items x=2"));
    expect_error(b, E0001, "--items x=2: the model has no such input");
    assert_null(import_text(b, "input s seq(f32) output s", "--items s=2"));
    expect_error(b, E2008, "the model declares no shape for it; give --items s=[2,3],[4]");
    assert_null(import_text(b, "input s seq(str[2]) output s", "--items s=2"));
    expect_error(b, E3003, "sequences of strings are not supported");
    assert_null(import_text(b, "input s seq(seq(f32[2])) output s", "--items s=2"));
    expect_error(b, E3002, "only tensors, maps of single elements, and sequences and optionals of");
    assert_null(import_text(b, "input s seq(f32[1]) input s.0 f32[1] output s.0", "--items s=1"));
    expect_error(b, E2002, "'s.0' is a part of 's', and another input or output");
    assert_null(
        import_text(b, "input s seq(f32[1]) output t i32[1] t = Identity(s)", "--items s=1"));
    expect_error(b, E2009, "output 't': declared as a tensor, but computed as a sequence");
    assert_null(import_text(b, "input x f32[1] output t seq(f32[1]) t = Identity(x)", NULL));
    expect_error(b, E2009, "output 't': declared as a sequence, but computed as a tensor");
    assert_null(
        import_text(b, "input s seq(f32[1]) output t seq(i32[1]) t = Identity(s)", "--items s=1"));
    expect_error(b, E2009, "output 't': declared as i32, but computed as f32");
    /* items of extents that vary, by names of their own */
    assert_non_null(import_text(b, "input s seq(f32[?]) output s", "--items s=2 s.item.0=1..3"));
    const char *items[] = {"1 2", "3 4", "2"};
    assert_string_equal(run_text(b,
                                 "input s seq(f32[?]) output t t = ConcatFromSequence(s) {axis=0}",
                                 "--items s=2 s.item.0=1..3", 3, items),
                        "f32[4] 1 2 3 4");
    /* what has only a length when it runs */
    assert_null(
        import_text(b, "input x f32[4] input n i64[] output t t = SplitToSequence(x, n)", NULL));
    expect_error(b, E3004, "'n' is computed at run time (--fix n=V would make it constant)");
}

/* What is computed of few small inputs, or of extents, is known with them. */
static void test_remedies(void **state) {
    Bench *b = *state;
    const char *split = "input x f32[4,6] input n i64[2] input m i64[] output t s = Mul(n, m) "
                        "t = SplitToSequence(x, s)";
    assert_null(import_text(b, split, NULL));
    expect_error(b, E3004, "run time (--fix n=V,V,... --fix m=V would make it constant)");
    const char *branches =
        "input x f32[N,4] input y f32[400] input k i64[1] output t s = Shape(x) "
        "z = Gather(s, k) e = Equal(z, k) t = If(e) {then_branch=graph{ output a "
        "a = Identity(x) } else_branch=graph{ output c c = Identity(y) }}";
    assert_null(import_text(b, branches, "N=1..3"));
    expect_error(b, E3002, "run time (--fix k=V --dim N=V would make it constant), and output 0");
    /* not what hangs on data, too */
    const char *data = "input y f32[400] input k f32[] output t l = ReduceMax(y) {keepdims=0} "
                       "e = Greater(l, k) t = If(e) {then_branch=graph{ output a a = Identity(y) } "
                       "else_branch=graph{ output c c = Flatten(y) }}";
    assert_null(import_text(b, data, NULL));
    expect_error(b, E3002, "the condition is computed at run time, and output 0");
}

static void test_optionals(void **state) {
    Bench *b = *state;
    const char *const inputs[] = {"5", "7"};
    const char *text = "opset 18 input o opt(f32[N]) output h output t opt(f32[N]) "
                       "h = OptionalHasElement(o) t = Identity(o)";
    assert_string_equal(run_text(b, text, "N=1", 1, inputs), "bool[] 1; f32[1] 5");
    assert_string_equal(run_text(b, text, "--items o=[1]", 1, inputs), "bool[] 1; f32[1] 5");
    assert_string_equal(run_text(b, text, "--items o=none", 0, NULL), "bool[] 0");
    assert_string_equal(run_text(b, text, "N=1 --fix o=9", 0, NULL), "bool[] 1; f32[1] 9");
    assert_null(import_text(b, text, "--items o=2"));
    expect_error(b, E0001, "--items o=2: the input is no sequence, but one tensor");
    text = "opset 18 input o opt(seq(f32[1])) output h output t h = OptionalHasElement(o) "
           "t = Identity(o)";
    assert_string_equal(run_text(b, text, "--items o=2", 2, inputs),
                        "bool[] 1; f32[1] 5; f32[1] 7");
    assert_string_equal(run_text(b, text, "--items o=none", 0, NULL), "bool[] 0");
    assert_null(import_text(b, text, NULL));
    expect_error(b, E2008, "input 'o': the sequence has no length");
    assert_null(import_text(b, "input o opt(f32) output o", NULL));
    expect_error(b, E2008, "the model declares no shape for it; give --items o=[2,3]");
}

static void test_fixed(void **state) {
    Bench *b = *state;
    const char *const inputs[] = {"1 2 3 4"};
    const char *text = "input x f32[4] input s i64[2] output y y = Reshape(x, s)";
    assert_string_equal(run_text(b, text, "--fix s=2,-1", 1, inputs), "f32[2, 2] 1 2 3 4");
    assert_string_equal(run_text(b, "input x f16[2] output x", "--fix x=0.5,-inf", 0, NULL),
                        "f16[2] 0.5 -inf");
    static const char *const wrong[][2] = {
        {"--fix s=2", "--fix s=2: 1 values for i64[2]"},
        {"--fix s=2,2,2", "3 values for i64[2]"},
        {"--fix s=2,", "1 values for i64[2]"},
        {"--fix s=2,0.5", "'0.5' is no i64"},
        {"--fix s=2,,1", "'' is no i64"},
        {"--fix s=2,9223372036854775808", "'9223372036854775808' is no i64"},
        {"--fix s=2,2 --fix q=2", "--fix q=2: the model has no such input"},
    };
    for (size_t i = 0; i < N(wrong); i++) {
        assert_null(import_text(b, text, wrong[i][0]));
        expect_error(b, E0001, wrong[i][1]);
    }
    assert_null(import_text(b, "input x u8[1] output x", "--fix x=256"));
    expect_error(b, E0001, "'256' is no u8");
    assert_null(import_text(b, "input x f32[N] output x", "--fix x=2 N=1..2"));
    expect_error(b, E0001, "--fix x=2: the input has dimensions that vary");
    assert_null(import_text(b, "input x bool[1] output x", "--fix x=2"));
    expect_error(b, E0001, "'2' is no bool");
}

/* --- operators -------------------------------------------------------------------------------- */

static void test_unsupported(void **state) {
    Bench *b = *state;
    const char *text = "input x f32[2] output y \"first\" a = Foo(x) b = Foo(a) c = ai.x:Bar(b) "
                       "d = Neg(c) y = Reshape(d, q) opset 17 opset ai.x 3";
    assert_null(import_text(b, text, NULL));
    assert_int_equal(b->diag.messages.n, 3);
    assert_int_equal(diag_exit_status(&b->diag), ERR_MODEL); /* for q, which nothing defines */
    const DiagMessage *m = b->diag.messages.items;
    assert_string_equal(m[0].text, "node 'first' (Foo): operator Foo of ai.onnx, opset 17, is not "
                                   "supported (used 2 times)");
    assert_string_equal(m[1].text,
                        "node #2 'c' (Bar): operator Bar of ai.x, opset 3, is not supported");
    assert_int_equal(m[2].code, E2001);
    forget(b);
    refuse(b, "input x f32[2] output y y = ai.x:Bar(x)", E2010,
           "domain 'ai.x' of operator Bar is not in opset_import");
    refuse(b, "opset 0 input x f32[2] output x", E2010, "domain 'ai.onnx' has version 0");
    expect_run(b, "input x f32[2] output y y = ai.onnx:Neg(x)", "1 2", "f32[2] -1 -2");
    assert_true(onnx_supports("ai.onnx", "Add", 7));
    assert_false(onnx_supports("", "Foo", 7));
}

static void test_refusals(void **state) {
    Bench *b = *state;
    refuse(b, "input x f32[2] output y y = Neg(_)", E2007, "(Neg): input 0 is missing");
    refuse(b, "input x f32[2] output y y = Neg(x, x)", E2007, "2 inputs, expected 1");
    refuse(b, "input x f32[2] output y y, z = Neg(x) output z", E3002,
           "output 1, 'z', is not supported");
    refuse(b, "input x f32[2] input s c64[1] output x", E3003,
           "input 's': tensors of type c64 are not supported");
    refuse(b, "input x opt(opt(f32[2])) output x", E3002,
           "input 'x': only tensors, maps of single elements, and sequences and optionals of");
    refuse(b, "input x f32 output x", E3002, "does not say how many dimensions");
    refuse(b, "input x f32[1,1,1,1,1,1,1,1,1] output x", E3002, "9 dimensions; at most 8");
    refuse(b, "input x f32[3000000000] output x", E3005, "more than 2^31-1 elements");
    refuse(b, "input x f32[2] output y y = Flatten(x) {axis=1.5}", E2004,
           "attribute 'axis' is FLOAT, expected INT");
    refuse(b, "input x f32[2] output y y = Flatten(x) {axis=3}", E2004, "axis 3 is not in [-1, 1]");
    refuse(b, "input x f32[2] output y y = Softmax(x) {axis=3}", E2004, "axis 3 is not in [-1, 1)");
    refuse(b, "input x f32[2] input z f32[3] output y y = Add(x, z)", E2005,
           "input shapes [2] and [3] do not broadcast");
    refuse(b, "input x f32[2] input z i32[2] output y y = Add(x, z)", E2006, "do not fit");
    refuse(b, "input x bool[2] output y y = Exp(x)", E2006, "takes no elements of type bool");
    refuse(b, "input x f32[2] output y y = Cast(x) {to=99}", E2004, "99 is not an element type");
    refuse(b, "input x f32[2] output y y = Cast(x) {to=14}", E3003, "type c64");
    refuse(b, "input x f32[2] output y y = Cast(x) {to=@some}", E2004, "not an element type");
    refuse(b, "init s i64[3] = 2000 2000 2000 output y y = ConstantOfShape(s)", E3005,
           "[2000, 2000, 2000] has more than 2^31-1 elements");
    refuse(b, "init s i64[1] = -5 output y y = ConstantOfShape(s)", E2005, "shape [-5]");
}

/* --- functions and sub-graphs ----------------------------------------------------------------- */

/* An attribute that names a way to compute must be one of the names that there are. */
static void test_unknown_names(void **state) {
#define V  "input x f32[2,4] output y "
#define V4 "input x f32[1,4,4,4] output y "
#define W4 V4 "input w f32[4,4,3,3] "
    static const char *const rows[][2] = {
        {"opset 20 " V "y = Gelu(x) {approximate=\"foo\"}",
         "the attributes fit no form of the operator; it has 'approximate' tanh or 'approximate' "
         "none"},
        {"input x u8[2] output y y = BitShift(x, x) {direction=\"foo\"}",
         "it has 'direction' LEFT or 'direction' RIGHT"},
        {"input x u8[2] output y y = BitShift(x, x)",
         "it has 'direction' LEFT or 'direction' RIGHT"},
        {"opset 24 " V "y = Cast(x) {to=24 round_mode=\"foo\"}",
         "'round_mode' is 'foo', none of: up down nearest"},
        {V4 "y = DepthToSpace(x) {blocksize=2 mode=\"foo\"}", "'mode' is 'foo', none of: DCR CRD"},
        {V4 "y = SpaceToDepth(x) {blocksize=2 mode=\"foo\"}", "'mode' is 'foo'"},
        {V4 "init p i64[8] = 0 0 0 0 0 0 0 0 y = Pad(x, p) {mode=\"foo\"}",
         "'mode' is 'foo', none of: constant reflect edge wrap"},
        {V4 "y = MaxPool(x) {kernel_shape=[2 2] auto_pad=\"same_upper\"}",
         "'auto_pad' is 'same_upper', none of: NOTSET VALID SAME_UPPER SAME_LOWER"},
        {W4 "y = Conv(x, w) {auto_pad=\"foo\"}", "'auto_pad' is 'foo'"},
        {W4 "y = ConvTranspose(x, w) {auto_pad=\"foo\"}", "'auto_pad' is 'foo'"},
        {V4 "init s f32[4] = 1 1 2 2 y = Resize(x, , s) {mode=\"foo\"}", "'mode' is 'foo'"},
        {V4 "init s f32[4] = 1 1 2 2 y = Resize(x, , s) {nearest_mode=\"foo\"}",
         "'nearest_mode' is 'foo'"},
        {V4 "init s f32[4] = 1 1 2 2 y = Resize(x, , s) {coordinate_transformation_mode=\"foo\"}",
         "'coordinate_transformation_mode' is 'foo', none of: half_pixel"},
        {V4 "input g f32[1,2,2,2] y = GridSample(x, g) {mode=\"foo\"}", "'mode' is 'foo'"},
        {V4 "input g f32[1,2,2,2] y = GridSample(x, g) {padding_mode=\"foo\"}",
         "'padding_mode' is 'foo', none of: zeros border reflection"},
        {V4 "input r f32[1,4] input i i64[1] y = RoiAlign(x, r, i) {mode=\"foo\"}",
         "'mode' is 'foo', none of: avg max"},
        {V "input i i64[2,4] y = ScatterElements(x, i, x) {reduction=\"foo\"}",
         "'reduction' is 'foo', none of: none add mul max min"},
        {V "input t i64[2] y = NegativeLogLikelihoodLoss(x, t) {reduction=\"foo\"}",
         "'reduction' is 'foo', none of: none sum mean"},
        {"input x f32[3,2,4] input w f32[1,5,4] input r f32[1,5,5] output y "
         "y = RNN(x, w, r) {hidden_size=5 direction=\"foo\"}",
         "direction is 'foo'"},
        {"input x i64[4] output y y = TfIdfVectorizer(x) {mode=\"foo\" min_gram_length=1 "
         "max_gram_length=1 max_skip_count=0 ngram_counts=[0] ngram_indexes=[0] pool_int64s=[1]}",
         "'mode' is 'foo', none of: TF IDF TFIDF"},
    };
#undef V
#undef V4
#undef W4
    for (size_t i = 0; i < N(rows); i++) refuse(*state, rows[i][0], E2004, rows[i][1]);
}

static void test_functions(void **state) {
    Bench *b = *state;
    const char *text = "opset 17 opset f 1 input x f32[2] output y output z "
                       "y = f:Scale(x) {by=3.0} z = f:Scale(y) "
                       "function f:Scale(a, missing) -> (c) <by=2.0> { opset 17 "
                       "k = Constant() {value_float=@by} c = f:Times(k, a) } "
                       "function f:Times(a, b) -> (c) { opset 17 c = Mul(a, b) }";
    expect_run(b, text, "1 2", "f32[2] 3 6; f32[2] 6 12");
    refuse(b,
           "opset 17 opset f 1 input x f32[2] output y \"call\" y = f:F(x) "
           "function f:F(a) -> (c) { opset 17 c = Softmax(a) {axis=@ax} } "
           "function f:F(a) -> (c) { opset 17 c = Neg(a) }",
           E2002, "function 'F' is defined twice");
    refuse(b,
           "opset 17 opset f 1 input x f32[2] output y \"call\" y = f:F(x) {ax=4} "
           "function f:F(a) -> (c) <ax> { opset 17 \"in\" c = Softmax(a) {axis=@ax} }",
           E2004, "node 'call' (F): in function 'F': node 'in' (Softmax): axis 4 is not in");
    refuse(b,
           "opset 17 opset f 1 input x f32[2] output y y = f:F(x) "
           "function f:F(a) -> (c) { opset 17 c = f:G(a) } "
           "function f:G(a) -> (c) { opset 17 c = f:F(a) }",
           E2003, "function 'F' calls itself");
    refuse(b,
           "opset 17 opset f 1 input x f32[2] output y y = f:F(x, x) "
           "function f:F(a) -> (c) { opset 17 c = Neg(a) }",
           E2007, "function 'F' has 1 inputs and 1 outputs, the call 2 and 1");
    refuse(b,
           "opset 17 opset f 1 input x f32[2] output y y = f:F(x) "
           "function f:F(a) -> (c) { opset 17 d = Neg(a) }",
           E2001, "function 'F': output 'c' is made by no node");
    refuse(b,
           "opset 17 opset f 1 input x f32[2] output y y = f:F(x) "
           "function f:F(a) -> (c) { opset 17 \"in\" c = Foo(a) }",
           E3001, "function 'F': node 'in' (Foo): operator Foo");
}

/* Functions that call the next one twice would unfold to 2^40 nodes. */
static void test_unfolding(void **state) {
    Bench *b = *state;
    Text t = text_new(&b->arena);
    text_add(&t, "opset 17 opset f 1 input x f32[2] output y y = f:F0(x) ");
    for (int i = 0; i < 200; i++)
        text_addf(&t, "function f:F%d(a) -> (c) { c = f:F%d(a) } ", i, i + 1);
    text_add(&t, "function f:F200(a) -> (c) { opset 17 c = Neg(a) }");
    assert_null(import_text(b, text_get(&t), NULL));
    expect_error(b, E0007, "nested more than 128 deep");
    t = text_new(&b->arena);
    text_add(&t, "opset 17 opset f 1 input x f32[2] output y y = f:F0(x) ");
    for (int i = 0; i < 40; i++)
        text_addf(&t, "function f:F%d(a) -> (c) { b = f:F%d(a) c = f:F%d(b) } ", i, i + 1, i + 1);
    text_add(&t, "function f:F40(a) -> (c) { opset 17 c = Neg(a) }");
    assert_null(import_text(b, text_get(&t), NULL));
    expect_error(b, E0007, "unfold to more than 500000 nodes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_chain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_initializers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dims, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_declared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sequences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_remedies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_optionals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fixed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unsupported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_functions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unfolding, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
