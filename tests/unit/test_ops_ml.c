/* ai.onnx.ml and the quantised operators of com.microsoft on numbers that can be checked by hand
 * (or that ONNX Runtime gave), and what they refuse. ONNX's own suite has next to nothing of these.
 */
#include "tests/unit/model_rows.h"

/* Models with inputs that are maps: entries of `dims`; the inputs are keys, values and how many. */
typedef struct MapRow {
    const char *text, *dims;
    const char *inputs[3];
    const char *result;
} MapRow;

#define ML "opset 18 opset ai.onnx.ml 3 "

static void test_features(void **state) {
    static const Row rows[] = {
        {"input x f32[3] output y y = ai.onnx.ml:Binarizer(x) {threshold=1.0}",
         {"1 2 nan"},
         "f32[3] 0 1 0"},
        {"input x i64[2,2] output y y = ai.onnx.ml:Scaler(x) {offset=[1.0 2.0] scale=[0.5 2.0]}",
         {"3 4 5 6"},
         "f32[2, 2] 1 4 2 8"},
        {"input x f32[2,2] output y y = ai.onnx.ml:Imputer(x) "
         "{imputed_value_floats=[1.0 2.0] replaced_value_float=-1.0}",
         {"-1 5 6 -1"},
         "f32[2, 2] 1 5 6 2"},
        {"input x i64[2,2] output y y = ai.onnx.ml:Imputer(x) "
         "{imputed_value_int64s=[7] replaced_value_int64=-1}",
         {"-1 5 6 -1"},
         "i64[2, 2] 7 5 6 7"},
        {"input x f32[2,2] output y y = ai.onnx.ml:Normalizer(x) {norm=\"L1\"}",
         {"1 -3 0 0"},
         "f32[2, 2] 0.25 -0.75 0 0"},
        {"input x f32[2] output y y = ai.onnx.ml:Normalizer(x) {norm=\"L2\"}",
         {"3 -4"},
         "f32[2] 0.6 -0.8"},
        {"input x f32[1,2] output y y = ai.onnx.ml:Normalizer(x) {norm=\"MAX\"}",
         {"2 4"},
         "f32[1, 2] 0.5 1"},
        {"input a f32[1,2] input b i64[1,3] output y y = ai.onnx.ml:FeatureVectorizer(a, b) "
         "{inputdimensions=[3 2]}",
         {"1 2", "3 4 5"},
         "f32[1, 5] 1 2 0 3 4"},
        {"input x f32[3] output y y = ai.onnx.ml:OneHotEncoder(x) {cats_int64s=[1 5] zeros=1}",
         {"5 2 1"},
         "f32[3, 2] 0 1 0 0 1 0"},
        {"input x i64[4] output y y = ai.onnx.ml:LabelEncoder(x) "
         "{keys_int64s=[1 3 5] values_floats=[0.5 1.5 2.5] default_float=9.0}",
         {"5 2 1 3"},
         "f32[4] 2.5 9 0.5 1.5"},
        {"input x f32[2] output y y = ai.onnx.ml:LabelEncoder(x) "
         "{keys_floats=[1.0 2.0] values_int64s=[10 20]}",
         {"2 nan"},
         "i64[2] 20 -1"},
        {"input x f32[1,2] output y y = ai.onnx.ml:ZipMap(x) {classlabels_int64s=[1 2]}",
         {"1 2"},
         "f32[1, 2] 1 2"},
    };
    run_rows(state, ML, N(rows), rows);
}

static void test_maps(void **state) {
    Bench *b = *state;
#define DICT(types, words)                                                                         \
    "input m map(" types ") output y y = ai.onnx.ml:DictVectorizer(m) {" words "}"
#define CAST(types, attributes)                                                                    \
    "input m map(" types ") output y y = ai.onnx.ml:CastMap(m) {" attributes "}"
    static const MapRow rows[] = {
        {DICT("i64,f32", "int64_vocabulary=[5 -1 7 5]"),
         "m.entries=3",
         {"7 6 5", "1 2 3"},
         "f32[1, 4] 3 0 1 3"},
        {DICT("i64,f64", "int64_vocabulary=[5 -1]"),
         "--items m=3",
         {"-1 5 9", "1 2 3", "1"},
         "f64[1, 2] 0 1"},
        {DICT("i64,str", "int64_vocabulary=[5 -1]"),
         "--items m=2",
         {"-1 5", "ab cd", "2"},
         "str[1, 2] \"cd\" \"ab\""},
        {DICT("i64,str", "int64_vocabulary=[5 -1]"),
         "--items m=2",
         {"-1 5", "ab cd", "0"},
         "str[1, 2] \"\" \"\""},
        {DICT("str,i64", "string_vocabulary=[\"a\" \"\" \"ab\"]"),
         "--items m=3",
         {"ab abc a", "1 2 3", "3"},
         "i64[1, 3] 3 0 1"},
        {DICT("str,f32", "string_vocabulary=[\"a\" \"\"]"),
         "--items m=2",
         {"\"\" a", "1 2", "1"},
         "f32[1, 2] 0 1"},
        {DICT("str,f32[1]", "string_vocabulary=[\"a\" \"b\"]"),
         "--items m=2",
         {"b a", "1 2", "1"},
         "f32[1, 2] 0 1"},
        /* of equal keys the last counts */
        {DICT("str,f32", "string_vocabulary=[\"a\" \"b\"]"),
         "m.entries=3",
         {"a b a", "1 2 3"},
         "f32[1, 2] 3 2"},
        {DICT("i64,f32", "int64_vocabulary=[1 2]"),
         "m.entries=3",
         {"1 2 1", "1 2 3"},
         "f32[1, 2] 3 2"},
        {DICT("i64,f32", "int64_vocabulary=[1 2]"), "--items m=0", {"", ""}, "f32[1, 2] 0 0"},
        {CAST("i64,f32", ""), "--items *=4", {"9 -3 7 0", "1 2 3 4", "3"}, "f32[1, 3] 2 3 1"},
        {CAST("i64,f32", "cast_to=\"TO_INT64\""),
         "m.entries=2..4",
         {"9 -3 7 0", "1.5 -2.5 3", "2"},
         "i64[1, 2] -2 1"},
        {CAST("i64,f32", ""), "--items m=4", {"9", "1", "0"}, "f32[1, 0] "},
        {CAST("i64,str", "cast_to=\"TO_FLOAT\""),
         "--items m=4 *=3",
         {"9 2", "-1.5e1 .25", "2"},
         "f32[1, 2] 0.25 -15"},
        {CAST("i64,str", "cast_to=\"TO_STRING\""),
         "m.entries=2",
         {"9 2", "a b"},
         "str[1, 2] \"b\" \"a\""},
        {CAST("i64,f32", "map_form=\"SPARSE\" max_map=4"),
         "m.entries=5",
         {"4 -1 0 2 2", "1 2 3 4 5"},
         "f32[1, 4] 3 0 5 0"},
        {CAST("i64,str", "map_form=\"SPARSE\" max_map=2 cast_to=\"TO_INT64\""),
         "m.entries=1",
         {"1", "-12"},
         "i64[1, 2] 0 -12"},
        {CAST("i64,str", "map_form=\"SPARSE\" max_map=2 cast_to=\"TO_STRING\""),
         "--items m=1",
         {"1", "", "1"},
         "str[1, 2] \"0.f\" \"\""},
        /* as printf's %f: halves go to even, which they are exactly or not at all */
        {CAST("i64,f32", "cast_to=\"TO_STRING\""),
         "m.entries=12",
         {"0 1 2 3 4 5 6 7 8 9 10 11",
          "0 -0.0 0.1 -2.5 1e-7 9.9999995e-1 3.4028235e38 1e10 inf -inf nan 0.0000152587890625"},
         "str[1, 12] \"0.000000\" \"-0.000000\" \"0.100000\" \"-2.500000\" \"0.000000\" "
         "\"1.000000\" \"340282346638528859811704183484516925440.000000\" "
         "\"10000000000.000000\" \"inf\" \"-inf\" \"nan\" \"0.000015\""},
        {CAST("i64,f32", "cast_to=\"TO_STRING\""),
         "m.entries=4",
         {"0 1 2 3", "0.00390625 0.01171875 16777215 0.99999994"},
         "str[1, 4] \"0.003906\" \"0.011719\" \"16777215.000000\" \"1.000000\""},
        /* a map in a function, in a branch and in a loop */
        {"input m map(i64,f32) output y function my:F(a) -> (b) { opset 18 opset ai.onnx.ml 3 "
         "b = ai.onnx.ml:CastMap(a) } opset my 1 y = my:F(m)",
         "--items m=3",
         {"2 1", "1 2", "2"},
         "f32[1, 2] 2 1"},
        {"init c bool[] = 1 input m map(i64,f32) output y i = Identity(c) y = If(i) "
         "{then_branch=graph{ output a a = ai.onnx.ml:CastMap(m) } "
         "else_branch=graph{ output b b = Identity(c) }}",
         "--items m=3",
         {"2 1", "1 2", "2"},
         "f32[1, 2] 2 1"},
        {"init n i64[] = 2 init t bool[] = 1 input m map(i64,f32) output y init s f32[1,2] = 0 0 "
         "y = Loop(n, t, s) {body=graph{ input i i64[] input c bool[] input a f32[1,2] output d "
         "output e d = Identity(c) f = ai.onnx.ml:DictVectorizer(m) {int64_vocabulary=[1 2]} "
         "e = Add(a, f) }}",
         "--items m=3",
         {"2 1", "1 2", "2"},
         "f32[1, 2] 4 2"},
        /* a map that is an output */
        {"input m map(str,f32) output k k = Identity(m)",
         "m.entries=2",
         {"b a", "1 2"},
         "str[2] \"b\" \"a\"; f32[2] 1 2"},
    };
    for (size_t i = 0; i < N(rows); i++) {
        int count = 0;
        while (count < 3 && rows[i].inputs[count]) count++;
        const char *text = arena_printf(&b->arena, ML "%s", rows[i].text);
        const char *result = run_text(b, text, rows[i].dims, count, rows[i].inputs);
        if (strcmp(result, rows[i].result) != 0)
            fail_msg("%s, %s: %s, not %s", rows[i].text, rows[i].dims, result, rows[i].result);
    }
    static const struct {
        const char *text, *dims;
        ErrCode code;
        const char *part;
    } wrong[] = {
        {DICT("i64,f32", ""), "--items m=1", E2004, "'int64_vocabulary' is missing"},
        {DICT("str,f32", "int64_vocabulary=[1]"), "--items m=1", E2004,
         "'string_vocabulary' is missing, for keys of type str"},
        {DICT("i64,f32", "int64_vocabulary=[\"a\"]"), "--items m=1", E2004, "int64_vocabulary"},
        {DICT("i64,f32[2]", "int64_vocabulary=[1]"), "--items m=1", E3002,
         "only maps from integers or strings to single elements"},
        {DICT("i64,f32[?]", "int64_vocabulary=[1]"), "--items m=1", E3002,
         "only maps from integers or strings to single elements"},
        {DICT("f32,f32", "int64_vocabulary=[1]"), "--items m=1", E3002,
         "only maps from integers or strings to single elements"},
        {DICT("i64,c64", "int64_vocabulary=[1]"), "--items m=1", E3003, "type c64"},
        {DICT("i64,f32", "int64_vocabulary=[1]"), NULL, E2008, "give --items m=N (or"},
        {DICT("i64,f32", "int64_vocabulary=[1]"), "--items m=[2]", E0001,
         "--items m=[2]: the input is a map; N is the most entries"},
        {DICT("i64,f32", "int64_vocabulary=[1]"), "--items m=none", E0001, "the input is a map"},
        {DICT("i64,f32", "int64_vocabulary=[1]"), "--items m=2147483648", E0001,
         "the input is a map"},
        {DICT("str,f32", "string_vocabulary=[\"a\"]"), "--items m=2147483647", E3005,
         "take more than 2^31-1 bytes"},
        {"input m map(i64,f32) input m.keys f32[1] output y y = ai.onnx.ml:CastMap(m)",
         "--items m=1", E2002, "'m.keys' is a part of 'm'"},
        {"input m map(i64,f32) input m.entries f32[1] output y y = ai.onnx.ml:CastMap(m)",
         "--items m=1", E2002, "'m.entries' is a part of 'm'"},
        {"input m f32[1] output y y = ai.onnx.ml:CastMap(m)", NULL, E2006, "must be a map"},
        {"output y y = ai.onnx.ml:CastMap()", NULL, E2007, "input 0 is missing"},
        {"input m map(i64,f32) output y y = Neg(m)", "--items m=1", E2006,
         "must be a tensor, not a map"},
        {"input m map(i64,f32) output y f32[1] y = Identity(m)", "--items m=1", E2009,
         "declared as a tensor, but computed as a map"},
        {"input x f32[1] output y map(i64,f32) y = Neg(x)", NULL, E2009,
         "declared as a map, but computed as a tensor"},
        {CAST("str,f32", ""), "--items m=1", E2006, "a map from str to f32"},
        {CAST("i64,f64", ""), "--items m=1", E2006, "a map from i64 to f64"},
        {CAST("i64,f32", "cast_to=\"TO_BOOL\""), "--items m=1", E2004,
         "attribute 'cast_to' is 'TO_BOOL', none of: TO_FLOAT TO_STRING TO_INT64"},
        {CAST("i64,f32", "map_form=\"\""), "--items m=1", E2004, "'map_form' is '', none of"},
        {CAST("i64,f32", "map_form=\"SPARSE\" max_map=0"), "--items m=1", E2004, "max_map is 0"},
        {CAST("i64,f32", "map_form=\"SPARSE\" max_map=3000000000"), "--items m=1", E3005,
         "more than 2^31-1 elements"},
    };
    for (size_t i = 0; i < N(wrong); i++) {
        const char *text = arena_printf(&b->arena, ML "%s", wrong[i].text);
        if (import_text(b, text, wrong[i].dims)) fail_msg("%s: imported", wrong[i].text);
        expect_error(b, wrong[i].code, wrong[i].part);
    }
#undef DICT
#undef CAST
}

static void test_models(void **state) {
#define LEAVES                                                                                     \
    "nodes_treeids=[0 0 0] nodes_nodeids=[0 1 2] nodes_featureids=[0 0 0] "                        \
    "nodes_modes=[\"BRANCH_LEQ\" \"LEAF\" \"LEAF\"] nodes_values=[0.0 0.0 0.0] "                   \
    "nodes_truenodeids=[1 0 0] nodes_falsenodeids=[2 0 0] "
#define X2 "input x f32[2,1] output y "
    static const Row rows[] = {
        {"input x f32[2,2] output y y = ai.onnx.ml:LinearRegressor(x) "
         "{coefficients=[1.0 2.0 3.0 4.0] intercepts=[0.5 1.0] targets=2}",
         {"1 0 0 1"},
         "f32[2, 2] 1.5 4 2.5 5"},
        {"input x f32[2,1] output y output z y, z = ai.onnx.ml:LinearClassifier(x) "
         "{coefficients=[1.0 -1.0] intercepts=[0.0 0.0] classlabels_ints=[4 8]}",
         {"1 -2"},
         "i64[2] 4 8; f32[2, 2] 1 -1 -2 2"},
        /* more coefficients than features times intercepts: the first ones count */
        {"input x f32[2,1] output y output z y, z = ai.onnx.ml:LinearClassifier(x) "
         "{coefficients=[1.0 -1.0 7.0 7.0] intercepts=[0.0 0.0] classlabels_ints=[4 8]}",
         {"1 -2"},
         "i64[2] 4 8; f32[2, 2] 1 -1 -2 2"},
        /* one score for two classes */
        {"input x f32[2,1] output y output z y, z = ai.onnx.ml:LinearClassifier(x) "
         "{coefficients=[1.0] intercepts=[0.0] classlabels_ints=[4 8] post_transform=\"LOGISTIC\"}",
         {"0 2"},
         "i64[2] 4 8; f32[2, 2] 0.5 0.5 0.119203 0.880797"},
        {"input x f32[2,1] output y output z y, z = ai.onnx.ml:LinearClassifier(x) "
         "{coefficients=[1.0 0.0 -1.0] intercepts=[0.0 0.5 0.0] classlabels_ints=[4 8 6] "
         "post_transform=\"SOFTMAX\"}",
         {"2 0"},
         "i64[2] 4 8; f32[2, 3] 0.805512 0.179734 0.0147535 0.274069 0.451863 0.274069"},
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {" LEAVES "n_targets=2 "
            "target_treeids=[0 0 0] target_nodeids=[1 2 2] target_ids=[0 0 1] "
            "target_weights=[1.0 2.0 3.0] base_values=[0.5 0.25]}",
         {"0 nan"},
         "f32[2, 2] 1.5 0.25 2.5 3.25"},
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {" LEAVES "n_targets=1 "
            "target_treeids=[0 0 0] target_nodeids=[1 2 2] target_ids=[0 0 0] "
            "target_weights=[1.0 2.0 3.0]}",
         {"0 nan"},
         "f32[2, 1] 1 2"},
        /* the higher of two trees has no vote */
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {nodes_treeids=[0 0 0 1] "
            "nodes_nodeids=[0 1 2 0] nodes_featureids=[0 0 0 0] nodes_modes=[\"BRANCH_LEQ\" "
            "\"LEAF\" \"LEAF\" \"LEAF\"] nodes_values=[0.0 0.0 0.0 0.0] "
            "nodes_truenodeids=[1 0 0 0] nodes_falsenodeids=[2 0 0 0] n_targets=1 "
            "target_treeids=[1] target_nodeids=[0] target_ids=[0] target_weights=[3.0]}",
         {"-1 1"},
         "f32[2, 1] 3 3"},
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {" LEAVES "n_targets=2 "
            "nodes_missing_value_tracks_true=[1 0 0] aggregate_function=\"MIN\" "
            "target_treeids=[0 0 0] target_nodeids=[1 2 2] target_ids=[0 0 1] "
            "target_weights=[1.0 2.0 3.0]}",
         {"0 nan"},
         "f32[2, 2] 1 0 1 0"},
        {X2 "output z y, z = ai.onnx.ml:TreeEnsembleClassifier(x) {" LEAVES
            "class_treeids=[0 0] class_nodeids=[1 2] class_ids=[0 0] class_weights=[0.25 0.75] "
            "classlabels_int64s=[4 8]}",
         {"-1 1"},
         "i64[2] 4 8; f32[2, 2] 0.75 0.25 0.25 0.75"},
        {X2 "output z y, z = ai.onnx.ml:TreeEnsembleClassifier(x) {" LEAVES
            "class_treeids=[0 0] class_nodeids=[1 2] class_ids=[0 0] class_weights=[-0.5 0.75] "
            "classlabels_int64s=[4 8]}",
         {"-1 1"},
         "i64[2] 4 8; f32[2, 2] 0.5 -0.5 -0.75 0.75"},
        {X2 "output z y, z = ai.onnx.ml:TreeEnsembleClassifier(x) {" LEAVES
            "class_treeids=[0 0 0] class_nodeids=[1 2 2] class_ids=[2 0 1] "
            "class_weights=[1.0 0.25 0.5] classlabels_int64s=[4 8 6]}",
         {"-1 1"},
         "i64[2] 6 8; f32[2, 3] 0 0 1 0.25 0.5 0"},
        {X2 "y = ai.onnx.ml:SVMRegressor(x) {kernel_type=\"POLY\" kernel_params=[1.0 1.0 2.0] "
            "support_vectors=[1.0 2.0] coefficients=[1.0 -0.5] n_supports=2 rho=[0.5]}",
         {"1 0"},
         "f32[2, 1] 0 1"},
        {X2 "output z y, z = ai.onnx.ml:SVMClassifier(x) {kernel_type=\"LINEAR\" "
            "support_vectors=[1.0 2.0] vectors_per_class=[1 1] coefficients=[1.0 -1.0] rho=[0.25] "
            "classlabels_ints=[4 8]}",
         {"1 -1"},
         "i64[2] 8 4; f32[2, 2] 0.75 -0.75 -1.25 1.25"},
        {X2 "output z y, z = ai.onnx.ml:SVMClassifier(x) {kernel_type=\"LINEAR\" "
            "support_vectors=[1.0 2.0] vectors_per_class=[1 1] coefficients=[1.0 -1.0] rho=[0.25] "
            "prob_a=[-1.0] prob_b=[0.0] classlabels_ints=[4 8]}",
         {"1 -1"},
         "i64[2] 8 4; f32[2, 2] 0.320821 0.679179 0.7773 0.2227"},
    };
    run_rows(state, ML, N(rows), rows);
}

/* A tree of set membership, less-than and a leaf that is a target's only one. */
static void test_tree_ensemble(void **state) {
    static const Row rows[] = {
        {"input x f32[5,1] output y y = ai.onnx.ml:TreeEnsemble(x) {n_targets=2 tree_roots=[0] "
         "nodes_modes=u8[2](6 1) nodes_splits=f32[2](0 0) nodes_featureids=[0 0] "
         "nodes_truenodeids=[0 1] nodes_trueleafs=[1 1] nodes_falsenodeids=[1 2] "
         "nodes_falseleafs=[0 1] membership_values=f32[4](2 5 7 nan) leaf_targetids=[0 1 1] "
         "leaf_weights=f32[3](10 20 30)}",
         {"5 7 6 -1 nan"},
         "f32[5, 2] 10 0 10 0 0 30 0 20 0 30"},
    };
    run_rows(state, "opset 18 opset ai.onnx.ml 5", N(rows), rows);
}

static void test_quantised(void **state) {
#define PAIR(op)                                                                                   \
    "input a u8[3] input b u8[3] output y init s f32[] = 0.5 init t f32[] = 0.25 "                 \
    "init z u8[] = 10 y = com.microsoft:" op
    static const Row rows[] = {
        /* (a - 10) / 2 + (b - 10) / 2, in quarters */
        {PAIR("QLinearAdd(a, s, z, b, s, z, t, z)"), {"12 10 255", "14 0 255"}, "u8[3] 22 0 255"},
        {PAIR("QLinearMul(a, s, z, b, s, z, t, z)"), {"12 10 255", "14 0 255"}, "u8[3] 18 10 255"},
        /* 9 / 2 + 3 lies between 7 and 8: the even one, whatever 9 / 2 is rounded to */
        {"input a u8[2] input b u8[1] output y init s f32[] = 1 init t f32[] = 2 init z u8[] = 0 "
         "init m u8[] = 3 y = com.microsoft:QLinearAdd(a, s, z, b, s, z, t, m)",
         {"8 6", "1"},
         "u8[2] 8 6"},
        {"input a i8[3] output y init s f32[] = 0.5 init t f32[] = 0.00390625 init z i8[] = 0 "
         "init m i8[] = -128 y = com.microsoft:QLinearSigmoid(a, s, z, t, m)",
         {"0 4 -128"},
         "i8[3] 0 97 -128"},
        {"input a i8[2] output y init s f32[] = 1 init z i8[] = 0 "
         "y = com.microsoft:QLinearLeakyRelu(a, s, z, s, z) {alpha=0.5}",
         {"-5 5"},
         "i8[2] -2 5"},
        {"input a u8[1,2] input b u8[1,1] output y init s f32[] = 1 init t f32[] = 2 init z u8[] = "
         "0 "
         "y = com.microsoft:QLinearConcat(s, z, a, s, z, b, t, z) {axis=1}",
         {"1 2", "3"},
         "u8[1, 3] 1 2 6"},
        {"input a u8[1,2,2,1] output y init s f32[] = 1 init z u8[] = 4 "
         "y = com.microsoft:QLinearAveragePool(a, s, z, s, z) {kernel_shape=[2 1] channels_last=1}",
         {"6 8 8 12"},
         "u8[1, 1, 2, 1] 7 10"},
        {"input a u8[1,1,2,2] output y init s f32[] = 1 init z u8[] = 4 "
         "y = com.microsoft:QLinearGlobalAveragePool(a, s, z, s, z)",
         {"6 8 8 14"},
         "u8[1, 1, 1, 1] 9"},
        {"input a u8[1,2] output y init s f32[] = 1 init t f32[] = 0.00390625 init z u8[] = 0 "
         "y = com.microsoft:QLinearSoftmax(a, s, z, t, z) {axis=-1 opset=13}",
         {"3 3"},
         "u8[1, 2] 128 128"},
        {"input a u8[1,2] input b i8[2,2] output y init s f32[] = 0.5 init w f32[2] = 1 2 "
         "init z u8[] = 1 init m i8[] = 0 init c i32[2] = 1 -1 "
         "y = com.microsoft:QGemm(a, s, z, b, w, m, c) {transB=1}",
         {"2 3", "1 2 3 4"},
         "f32[1, 2] 3 10"},
        {"input a u8[1,2] input b i8[2,1] output y init s f32[] = 0.5 init w f32[] = 1 "
         "init z u8[] = 1 init m i8[] = 1 init c f32[1] = 100 "
         "y = com.microsoft:MatMulIntegerToFloat(a, b, s, w, z, m, c)",
         {"2 3", "1 3"},
         "f32[1, 1] 102"},
        {"input a f32[1,2] input b i8[2,1] output y init w f32[] = 1 "
         "y = com.microsoft:DynamicQuantizeMatMul(a, b, w)",
         {"-1 1.55", "2 4"},
         "f32[1, 1] 4.2"},
    };
    run_rows(state, "opset 17 opset com.microsoft 1", N(rows), rows);
}

static void test_refusals(void **state) {
    Bench *b = *state;
    static const struct {
        const char *text;
        ErrCode code;
        const char *part;
    } wrong[] = {
        {X2 "y = ai.onnx.ml:LinearRegressor(x) {coefficients=[1.0 2.0] targets=3}", E2004,
         "2 coefficients"},
        {X2 "output z y, z = ai.onnx.ml:LinearClassifier(x) {coefficients=[1.0] "
            "classlabels_strings=[\"a\"]}",
         E3002, "a single label that is a string"},
        {"input x f32[2,0] output y output z y, z = ai.onnx.ml:LinearClassifier(x) "
         "{coefficients=[1.0] classlabels_ints=[4]}",
         E2005, "no matrix of rows and features"},
        {"input x f32[2,2] output y output z y, z = ai.onnx.ml:LinearClassifier(x) "
         "{coefficients=[1.0 2.0 3.0] intercepts=[1.0 2.0] classlabels_ints=[4 8]}",
         E2004, "3 coefficients and 2 intercepts for 2 outputs of 2 features"},
        {X2 "y = ai.onnx.ml:LinearRegressor(x) {coefficients=[1.0] post_transform=\"TANH\"}", E2004,
         "'TANH'"},
        {X2 "y = ai.onnx.ml:Imputer(x) {imputed_value_floats=[1.0 2.0 3.0]}", E2004, "3 numbers"},
        {X2 "y = ai.onnx.ml:OneHotEncoder(x) {cats_strings=[\"a\"]}", E2004,
         "not of the input's type"},
        {X2 "y = ai.onnx.ml:LabelEncoder(x) {keys_int64s=[1] values_int64s=[1]}", E2004,
         "for an input of f32"},
        {X2 "y = ai.onnx.ml:SVMRegressor(x) {kernel_type=\"RBF\" support_vectors=[1.0] "
            "coefficients=[1.0 2.0] n_supports=2 rho=[0.0]}",
         E2004, "support vectors"},
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {nodes_treeids=[0] nodes_nodeids=[0] "
            "nodes_featureids=[3] nodes_modes=[\"BRANCH_LEQ\"] nodes_values=[0.0] "
            "nodes_truenodeids=[0] nodes_falsenodeids=[0] target_treeids=[0] target_nodeids=[0] "
            "target_ids=[0] target_weights=[1.0]}",
         E2004, "feature 3 of 1"},
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {nodes_treeids=[0] nodes_nodeids=[0] "
            "nodes_featureids=[0] nodes_modes=[\"BRANCH_LEQ\"] nodes_values=[0.0] "
            "nodes_truenodeids=[0] nodes_falsenodeids=[0] target_treeids=[0] target_nodeids=[0] "
            "target_ids=[0] target_weights=[1.0]}",
         E2004, "reached twice"},
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {nodes_treeids=[0] nodes_nodeids=[0] "
            "nodes_featureids=[0] nodes_modes=[\"BRANCH_LEQ\"] nodes_values=[0.0] "
            "nodes_truenodeids=[7] nodes_falsenodeids=[0] target_treeids=[0] target_nodeids=[0] "
            "target_ids=[0] target_weights=[1.0]}",
         E2004, "not there"},
        {X2 "y = ai.onnx.ml:TreeEnsembleRegressor(x) {nodes_treeids=[0] nodes_nodeids=[0] "
            "nodes_featureids=[0] nodes_modes=[\"LEAF\"] nodes_values=[0.0] nodes_truenodeids=[0] "
            "nodes_falsenodeids=[0] target_treeids=[0] target_nodeids=[0] target_ids=[4] "
            "target_weights=[1.0]}",
         E2004, "for target 4"},
        {"opset com.microsoft 1 opset 17 input a u8[3] output y init s f32[2] = 1 1 init z u8[] = "
         "0 "
         "y = com.microsoft:QLinearSigmoid(a, s, z, s, z)",
         E3002, "not one number"},
    };
    for (size_t i = 0; i < N(wrong); i++) {
        const char *text = strstr(wrong[i].text, "opset")
                               ? wrong[i].text
                               : arena_printf(&b->arena, ML "%s", wrong[i].text);
        if (import_text(b, text, NULL)) fail_msg("%s: imported", wrong[i].text);
        expect_error(b, wrong[i].code, wrong[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_features, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_maps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_ensemble, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_quantised, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
