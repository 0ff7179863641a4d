/* Strings: operators that move them, compare them, cut them; and what they refuse. The results are
 * NumPy's, Python's or RE2's. */
#include "tests/unit/model_rows.h"

#define ML  "opset 20 opset ai.onnx.ml 4 opset com.microsoft 1 "
#define S3  "input s str[3] output y "
#define ABC "\"a\" \"bc\" \"\""

static void test_movement(void **state) {
    static const Row rows[] = {
        {S3 "y = Identity(s)", {ABC}, "str[3] \"a\" \"bc\" \"\""},
        {S3 "init t i64[2] = 3 1 y = Reshape(s, t)", {ABC}, "str[3, 1] \"a\" \"bc\" \"\""},
        {S3 "init t str[2] = \"longer\" \"x\" y = Concat(s, t) {axis=0}",
         {ABC},
         "str[5] \"a\" \"bc\" \"\" \"longer\" \"x\""},
        {S3 "init i i64[2] = 2 -2 y = Gather(s, i)", {ABC}, "str[2] \"\" \"bc\""},
        {S3 "input i i64[2] y = Gather(s, i)", {ABC, "1 0"}, "str[2] \"bc\" \"a\""},
        {S3 "input i i32[1] y = GatherElements(s, i)", {ABC, "1"}, "str[1] \"bc\""},
        {S3 "init i i64[1,1] = 1 input u str[1] y = ScatterND(s, i, u)",
         {ABC, "\"new\""},
         "str[3] \"a\" \"new\" \"\""},
        {S3 "init p i64[2] = 1 1 y = Pad(s, p)", {ABC}, "str[5] \"\" \"a\" \"bc\" \"\" \"\""},
        {S3 "init p i64[2] = 0 1 init c str[1] = \"pad\" y = Pad(s, p, c)",
         {ABC},
         "str[4] \"a\" \"bc\" \"\" \"pad\""},
        {S3 "input c bool[3] init t str[1] = \"no\" y = Where(c, s, t)",
         {ABC, "1 0 1"},
         "str[3] \"a\" \"no\" \"\""},
        {"input s str[2,2] output y y = Transpose(s)",
         {"\"a\" \"b\" \"c\" \"d\""},
         "str[2, 2] \"a\" \"c\" \"b\" \"d\""},
        {S3 "output z y, z = Split(s) {axis=0 num_outputs=2}",
         {ABC},
         "str[2] \"a\" \"bc\"; str[1] \"\""},
        {S3 "init b i64[1] = 2 init e i64[1] = -9 init a i64[1] = 0 init t i64[1] = -1 "
            "y = Slice(s, b, e, a, t)",
         {ABC},
         "str[3] \"\" \"bc\" \"a\""},
        {S3 "init c bool[3] = 0 1 1 y = Compress(s, c)", {ABC}, "str[2] \"bc\" \"\""},
        {S3 "y = Shape(s)", {ABC}, "i64[1] 3"},
        {"input s str[0] output y init t i64[1] = 2 y = Tile(s, t)", {""}, "str[0] "},
        {"output y y = Constant() {value_strings=[\"x\" \"yz\"]}", {NULL}, "str[2] \"x\" \"yz\""},
        {"output y y = Constant() {value=str[1](\"x\")}", {NULL}, "str[1] \"x\""},
        {"input c bool[] input s str[2] output y init t str[2] = \"much\" \"more\" "
         "y = If(c) {then_branch=graph{ output a a = Identity(s) } "
         "else_branch=graph{ output b b = Identity(t)}}",
         {"0", "\"a\" \"b\""},
         "str[2] \"much\" \"more\""},
        {S3 "opset my 1 y = my:F(s) function my:F(a) -> (b) { opset 20 b = Concat(a, a) {axis=0} }",
         {ABC},
         "str[6] \"a\" \"bc\" \"\" \"a\" \"bc\" \"\""},
    };
    run_rows(state, "opset 20", N(rows), rows);
}

static void test_comparison(void **state) {
    static const Row rows[] = {
        {S3 "init t str[1] = \"bc\" y = Equal(s, t)", {ABC}, "bool[3] 0 1 0"},
        {S3 "init t str[3] = \"ab\" \"bc\" \"\" y = Equal(s, t)", {ABC}, "bool[3] 0 1 1"},
        {S3 "init t str[1] = \"-\" y = StringConcat(s, t)", {ABC}, "str[3] \"a-\" \"bc-\" \"-\""},
        {S3 "init t str[1] = \"-\" y = StringConcat(t, s)", {ABC}, "str[3] \"-a\" \"-bc\" \"-\""},
    };
    run_rows(state, "opset 20", N(rows), rows);
}

#define MATCH(pattern) "input s str[3] output y y = RegexFullMatch(s) {pattern=\"" pattern "\"}"

static void test_regex(void **state) {
    static const Row rows[] = {
        {MATCH("a|b*c"), {"\"a\" \"bbc\" \"ab\""}, "bool[3] 1 1 0"},
        {MATCH("a{2,3}(bc)?"), {"\"aa\" \"aaabc\" \"aaaa\""}, "bool[3] 1 1 0"},
        {MATCH("(?i)ab(?-i)c"), {"\"ABc\" \"abC\" \"aBc\""}, "bool[3] 1 0 1"},
        {MATCH("[^a-c\\]]+"), {"\"xyz\" \"xbz\" \"]\""}, "bool[3] 1 0 0"},
        {MATCH("[[:alpha:]_]\\w*"), {"\"_9\" \"9_\" \"a\""}, "bool[3] 1 0 1"},
        {MATCH(".."), {"\"\xc3\xa9\xe2\x82\xac\" \"\xc3\xa9\" \"ab\""}, "bool[3] 1 0 1"},
        {MATCH("[\xce\xb1-\xcf\x89]+"),
         {"\"\xce\xb2\xcf\x80\" \"ab\" \"\xce\x91\""},
         "bool[3] 1 0 0"},
        {MATCH("\\bfoo\\b.*"), {"\"foo bar\" \"foobar\" \"foo\""}, "bool[3] 1 0 1"},
        {MATCH("^a$|\\Ab\\z|c^"), {"\"a\" \"b\" \"c\""}, "bool[3] 1 1 0"},
        {MATCH("(a*)*b"), {"\"aab\" \"b\" \"aa\""}, "bool[3] 1 1 0"},
        {MATCH("x{,2}"), {"\"x{,2}\" \"xx\" \"\""}, "bool[3] 1 0 0"},
        {MATCH("\\x41\\x{e9}\\."), {"\"A\xc3\xa9.\" \"A\xc3\xa9x\" \"\""}, "bool[3] 1 0 0"},
        {MATCH(""), {"\"\" \"a\" \"\""}, "bool[3] 1 0 1"},
        {MATCH("(a|b)*abb"), {"\"aababb\" \"abab\" \"abb\""}, "bool[3] 1 0 1"},
        {MATCH("[^\\x00-\\x{10ffff}]|a"), {"\"a\" \"b\" \"\""}, "bool[3] 1 0 0"},
    };
    run_rows(state, "opset 20", N(rows), rows);
}

#define SPLIT(attrs) "input s str[2] output y str[2,3] output n y, n = StringSplit(s) {" attrs "}"

static void test_split(void **state) {
    static const Row rows[] = {
        {SPLIT("delimiter=\"ab\""),
         {"\"1ab2abc\" \"aab\""},
         "str[2, 3] \"1\" \"2\" \"c\" \"a\" \"\" \"\"; i64[2] 3 2"},
        {SPLIT("delimiter=\"aa\""),
         {"\"aaaaa\" \"baab\""},
         "str[2, 3] \"\" \"\" \"a\" \"b\" \"b\" \"\"; i64[2] 3 2"},
        {SPLIT("delimiter=\"-\" maxsplit=1"),
         {"\"a-b-c\" \"-\""},
         "str[2, 3] \"a\" \"b-c\" \"\" \"\" \"\" \"\"; i64[2] 2 2"},
        {SPLIT("delimiter=\"-\" maxsplit=0"),
         {"\"a-b\" \"\""},
         "str[2, 3] \"a-b\" \"\" \"\" \"\" \"\" \"\"; i64[2] 1 1"},
        {SPLIT("maxsplit=1"),
         {"\"  a  b c \" \"\""},
         "str[2, 3] \"a\" \"b c \" \"\" \"\" \"\" \"\"; i64[2] 2 0"},
        {"output y output n init s str[1] = \" p q\" y, n = StringSplit(s)",
         {NULL},
         "str[1, 2] \"p\" \"q\"; i64[1] 2"},
    };
    run_rows(state, "opset 20", N(rows), rows);
}

#define TOKENS(from, attrs)                                                                        \
    "input s str[" from "] output y str[" from ",q] "                                              \
    "y = com.microsoft:Tokenizer(s) {pad_value=\"#\" " attrs "}"
#define BY(expression) TOKENS("2", "mark=0 mincharnum=1 tokenexp=\"" expression "\"")
#define AT(separators) TOKENS("2", "mark=0 mincharnum=1 separators=[" separators "]")

static void test_tokenizer(void **state) {
    static const Row rows[] = {
        {BY("[a-z]+"), {"\"ab  c!\" \"1\""}, "str[2, 2] \"ab\" \"c\" \"#\" \"#\""},
        {BY("[a-z]+"), {"\"\" \"1\""}, "str[2, 0] "},
        /* the longest match, wherever it stands among the alternatives, and as if lazy were not */
        {BY("a|ab|abcd"), {"\"abcabcd\" \"aab\""}, "str[2, 2] \"ab\" \"abcd\" \"a\" \"ab\""},
        {BY("a+?"), {"\"aaa\" \"baa\""}, "str[2, 1] \"aaa\" \"aa\""},
        /* far ahead without an end */
        {BY("a|a.*z"), {"\"aaz\" \"aay\""}, "str[2, 2] \"aaz\" \"#\" \"a\" \"a\""},
        {BY("b*"), {"\"abba\" \"aa\""}, "str[2, 1] \"bb\" \"#\""},
        {BY("^a|\\bb|c$"), {"\"aa b cc\" \"bb\""}, "str[2, 3] \"a\" \"b\" \"c\" \"b\" \"#\" \"#\""},
        {BY("."),
         {"\"\xc3\xa9\nx\" \"\""},
         "str[2, 3] \"\xc3\xa9\" \"\n\" \"x\" \"#\" \"#\" \"#\""},
        {BY("[^x]"), {"\"\xc3\xa9xa\" \"x\""}, "str[2, 2] \"\xc3\xa9\" \"a\" \"#\" \"#\""},
        {AT("\"\""), {"\"ab\" \"c\""}, "str[2, 2] \"a\" \"b\" \"c\" \"#\""},
        {AT("\" \""), {"\" a  b\" \"ab \""}, "str[2, 2] \"a\" \"b\" \"ab\" \"#\""},
        /* one after the other: anchors are those of the parts */
        {AT("\"ab\" \"b\""), {"\"1ab2\" \"babb\""}, "str[2, 2] \"1\" \"2\" \"#\" \"#\""},
        {AT("\"-\" \"^a\""), {"\"ab-ac\" \"ba\""}, "str[2, 2] \"b\" \"c\" \"ba\" \"#\""},
        {TOKENS("3", "mark=1 mincharnum=1 tokenexp=\"a+\""),
         {"\"aba\" \"a\" \"\""},
         "str[3, 4] \"\2\" \"a\" \"a\" \"\3\" \"\2\" \"a\" \"\3\" \"#\" \"\2\" \"\3\" \"#\" \"#\""},
        {TOKENS("1", "mark=1 mincharnum=1 tokenexp=\"a\""), {"\"b\""}, "str[1, 0] "},
        {TOKENS("2,1", "mark=0 mincharnum=2 tokenexp=\"a|bcd\""),
         {"\"abcd\" \"a\""},
         "str[2, 1, 1] \"bcd\" \"#\""},
        {TOKENS("2", "mark=0 mincharnum=2 separators=[\",\"]"),
         {"\"\xc3\xa9,ab,c\" \"\""},
         "str[2, 1] \"ab\" \"#\""},
        {"init s str[2] = \"a b\" \"c\" output y y = com.microsoft:Tokenizer(s) "
         "{mark=0 mincharnum=1 pad_value=\"longer\" separators=[\" \"]}",
         {NULL},
         "str[2, 2] \"a\" \"b\" \"c\" \"longer\""},
    };
    run_rows(state, ML, N(rows), rows);
}

static void test_normalizer(void **state) {
    static const Row rows[] = {
        {S3 "y = StringNormalizer(s) {case_change_action=\"UPPER\"}",
         {"\"aZ\xc3\xa9\" \"1\" \"\""},
         "str[3] \"AZ\xc3\xa9\" \"1\" \"\""},
        {"input s str[3] output y str[2] "
         "y = StringNormalizer(s) {stopwords=[\"A\"] case_change_action=\"LOWER\"}",
         {"\"B\" \"a\" \"C\""},
         "str[2] \"b\" \"c\""},
        {"input s str[3] output y str[3] y = StringNormalizer(s) {stopwords=[\"a\"] "
         "is_case_sensitive=1}",
         {"\"A\" \"a\" \"aa\""},
         "str[3] \"A\" \"aa\" \"\""},
        {"init s str[2] = \"a\" \"b\" output y y = StringNormalizer(s) {stopwords=[\"a\" \"b\"]}",
         {NULL},
         "str[1] \"\""},
    };
    run_rows(state, "opset 20", N(rows), rows);
}

static void test_labels(void **state) {
    static const Row rows[] = {
        {S3 "y = ai.onnx.ml:LabelEncoder(s) {keys_strings=[\"bc\" \"a\" \"bc\"] "
            "values_int64s=[1 2 3] default_int64=-7}",
         {ABC},
         "i64[3] 2 3 -7"},
        {S3 "y = ai.onnx.ml:LabelEncoder(s) {keys_strings=[\"bc\" \"a\"] "
            "values_strings=[\"longer\" \"x\"]}",
         {ABC},
         "str[3] \"x\" \"longer\" \"_Unused\""},
        {"input s i64[2] output y y = ai.onnx.ml:LabelEncoder(s) {keys_tensor=i64[2](4 5) "
         "values_tensor=str[2](\"four\" \"five\") default_tensor=str[1](\"much more\")}",
         {"5 6"},
         "str[2] \"five\" \"much more\""},
        {S3 "y = ai.onnx.ml:CategoryMapper(s) {cats_strings=[\"a\" \"\"] cats_int64s=[3 4]}",
         {ABC},
         "i64[3] 3 -1 4"},
        {"input s i64[2] output y y = ai.onnx.ml:CategoryMapper(s) "
         "{cats_strings=[\"a\" \"b\"] cats_int64s=[3 4] default_string=\"?\"}",
         {"4 5"},
         "str[2] \"b\" \"?\""},
        {S3 "y = ai.onnx.ml:OneHotEncoder(s) {cats_strings=[\"bc\" \"a\"]}",
         {ABC},
         "f32[3, 2] 0 1 1 0 0 0"},
        {"input x f32[2,1] output y y = ai.onnx.ml:LinearClassifier(x) {coefficients=[1.0 -1.0] "
         "intercepts=[0.0 0.0] classlabels_strings=[\"up\" \"down\"]}",
         {"1 -1"},
         "str[2] \"up\" \"down\""},
        {"input s str[6] output y y = TfIdfVectorizer(s) {mode=\"TF\" min_gram_length=1 "
         "max_gram_length=2 max_skip_count=0 ngram_counts=[0 2] ngram_indexes=[0 1 2] "
         "pool_strings=[\"a\" \"b\" \"b\" \"a\"]}",
         {"\"a\" \"b\" \"a\" \"c\" \"b\" \"a\""},
         "f32[3] 3 2 2"},
    };
    run_rows(state, ML, N(rows), rows);
}

#define TO(dt, count, to) "input x " dt "[" count "] output y y = Cast(x) {to=" to "}"

static void test_hashes(void **state) {
    static const Row rows[] = {
        {S3 "y = com.microsoft:MurmurHash3(s)",
         {"\"\" \"abcd\" \"abcd\xc3\xa9\""},
         "u32[3] 0 1139631978 3825281041"},
        {"input s str[3,1] output y y = com.microsoft:MurmurHash3(s) {seed=7 positive=0}",
         {"\"a\" \"abcde\" \"ab\""},
         "i32[3, 1] -304251353 -1257012173 -30791937"},
        {"init s str[1] = \"abcd\" output y y = com.microsoft:MurmurHash3(s)",
         {NULL},
         "u32[1] 1139631978"},
    };
    run_rows(state, ML, N(rows), rows);
}

static void test_casts(void **state) {
    static const Row rows[] = {
        {TO("f32", "6", "8"),
         {"0 -1 0.1 16777216 1e-45 0.0001"},
         "str[6] \"0.0\" \"-1.0\" \"0.1\" \"1.6777216e+07\" \"1e-45\" \"1e-04\""},
        {TO("f32", "4", "8"),
         {"nan -inf 999999 3.4028235e38"},
         "str[4] \"nan\" \"-inf\" \"999999.0\" \"3.4028235e+38\""},
        {TO("f64", "6", "8"),
         {"0.3 1e16 123456789.125 -5e-324 0.0001 9007199254740993"},
         "str[6] \"0.3\" \"1e+16\" \"123456789.125\" \"-5e-324\" \"0.0001\" "
         "\"9007199254740992.0\""},
        {TO("f16", "3", "8"), {"0.1 1000 -65504"}, "str[3] \"0.1\" \"1e+03\" \"-6.55e+04\""},
        {TO("bf16", "2", "8"), {"0.1 -3"}, "str[2] \"0.1\" \"-3.0\""},
        {TO("i64", "2", "8"), {"-9007199254740992 0"}, "str[2] \"-9007199254740992\" \"0\""},
        {TO("i8", "3", "8"), {"-128 7 10"}, "str[3] \"-128\" \"7\" \"10\""},
        {TO("u8", "1", "8"), {"255"}, "str[1] \"255\""},
        {TO("bool", "2", "8"), {"1 0"}, "str[2] \"True\" \"False\""},
        {TO("str", "2", "8"), {"\"a\" \"b\""}, "str[2] \"a\" \"b\""},
        {TO("str", "5", "1"),
         {"\"1.5\" \"-1e-3\" \"+INF\" \"nAn\" \" 12 \""},
         "f32[5] 1.5 -0.001 inf nan 12"},
        {TO("str", "3", "11"), {"\"1e400\" \"1e-400\" \"-.5E+2\""}, "f64[3] inf 0 -50"},
        {TO("str", "3", "7"),
         {"\"-9223372036854775808\" \"100.5\" \"1e3\""},
         "i64[3] -9223372036854775808 100 1000"},
        {TO("str", "3", "9"), {"\"True\" \"0\" \"2\""}, "bool[3] 1 0 1"},
        {"input x i32[2] init s str[1] = \"a\" output y y = CastLike(x, s)",
         {"5 -6"},
         "str[2] \"5\" \"-6\""},
        {"input s str[1] init x f32[1] = 1 output y y = CastLike(s, x)", {"\"2.5\""}, "f32[1] 2.5"},
    };
    run_rows(state, "opset 20", N(rows), rows);
}

/* The nearest float to a decimal number, and the shortest one of a float: what reads back is the
 * same, as libc has it. */
static void test_round_trip(void **state) {
    Bench *b = *state;
    enum { COUNT = 500 };
    Text model = text_new(&b->arena);
    text_addf(&model,
              "opset 20 input x f64[%d] output z s = Cast(x) {to=8} output s "
              "z = Cast(s) {to=11}",
              COUNT);
    Graph *g = import_text(b, text_get(&model), NULL);
    assert_non_null(g);
    double x[COUNT], z[COUNT];
    uint64_t random = 1;
    for (int i = 0; i < COUNT; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = random ^ random >> 31;
        memcpy(&x[i], &bits, sizeof bits);
        if (i % 2) x[i] = (double)(int64_t)(bits >> 40) / 1000;
    }
    const Value *s = g->outputs.items[1];
    char *text = arena_alloc(&b->arena, value_bytes(s));
    const void *in[1] = {x};
    void *out[2] = {z, text};
    assert_true(interp_graph(g, in, out));
    size_t width = (size_t)s->shape[1];
    for (int i = 0; i < COUNT; i++) {
        char own[32], shorter[32];
        snprintf(own, sizeof own, "%.*s", (int)width, text + (size_t)i * width);
        if (x[i] != x[i]) {
            assert_string_equal(own, "nan");
            continue;
        }
        if (strtod(own, NULL) != x[i] || z[i] != x[i])
            fail_msg("%.17g is %s, which reads as %.17g", x[i], own, z[i]);
        /* no number of fewer digits reads as the same */
        if (!strchr(own, 'e')) continue;
        int digits = 0, n = 1;
        for (const char *c = own; *c != 'e'; c++) digits += *c >= '0' && *c <= '9';
        for (;
             snprintf(shorter, sizeof shorter, "%.*e", n - 1, x[i]), strtod(shorter, NULL) != x[i];)
            n++;
        if (digits > n) fail_msg("%s is longer than %s", own, shorter);
    }
}

static void test_refusals(void **state) {
    Bench *b = *state;
    static const Wrong rows[] = {
        {S3 "y = Neg(s)", E3003, "input 0 is a tensor of strings"},
        {"input x f32[3] output y y = StringConcat(x, x)", E2006,
         "input 0 must be a tensor of strings"},
        {S3 "input x i64[3] y = Equal(s, x)", E2006, "input 1 must be a tensor of strings"},
        {S3 "init i i64[1,1] = 0 y = ScatterND(s, i, s) {reduction=\"add\"}", E3002,
         "a reduction of strings"},
        {S3 "input f f32[2] y = Gather(f, s)", E2006, "input 0 is of type f32, others are strings"},
        {S3 "input d i64[2] y = Gather(d, s)", E2006, "must be integers"},
        {S3 "init t str[1] = \"a\" y = Reshape(s, t)", E2006, "must be integers"},
        {S3 "input c u8[3] y = Where(s, c, c)", E2006, ""},
        {"init n i64[] = 2 init t bool[] = 1 input s str[2] output y y = Loop(n, t) "
         "{body=graph{ input i i64[] input c bool[] output d output z d = Identity(c) "
         "z = Identity(s) }}",
         E3002, "a stacked output of strings"},
        {"init n i64[] = 2 init t bool[] = 1 input s str[2] output y y = Loop(n, t, s) "
         "{body=graph{ input i i64[] input c bool[] input u str[2] output d output z "
         "d = Identity(c) z = Identity(u) }}",
         E3003, "input 2 is a tensor of strings"},
        {S3 "init t str[2] = \"a\" \"b\" y = Equal(s, t)", E2005, "[3] and [2] do not broadcast"},
        {"input s str[3] output y f32[3] y = Identity(s)", E2009,
         "declared as f32, but computed as str"},
        {"input s str[1,1,1,1,1,1,1,1] output s", E3002, "8 dimensions; strings may have 7"},
        {"input s str[40000000] output s", E3005, "strings of 64 bytes in shape [40000000]"},
        {MATCH("("), E2004, "no regular expression: a missing )"},
        {MATCH("a**"), E2004, "a repetition of a repetition"},
        {MATCH("*a"), E2004, "a repetition of nothing"},
        {MATCH("[b-a]"), E2004, "a range that runs backwards"},
        {MATCH("(?=a)"), E2004, "a group that there is not"},
        {MATCH("\\1"), E2004, "an escape that there is not"},
        {MATCH("[[:what:]]"), E2004, "a class that there is not"},
        {MATCH("a{1001}"), E2004, "a count above 1000"},
        {MATCH("\xff"), E2004, "it is not UTF-8"},
        {MATCH("\\pL"), E3002, "Unicode property"},
        {MATCH("((a{1000}){1000}){1000}"), E3002, "it is too large"},
        {MATCH(".*a.{30}"), E3002, "it is too large"},
        {S3 "y = RegexFullMatch(s)", E2004, "attribute 'pattern' is missing"},
        {BY("("), E2004, "'tokenexp' is no regular expression: a missing )"},
        {BY("\\pL"), E3002, "Unicode property"},
        {BY("[a-c]*b.{12}"), E3002, "it is too large"},
        {BY(""), E2004, "neither separators nor tokenexp say"},
        {AT("\")\""), E2004, "'separators' is no regular expression: a ) without a ("},
        {AT("\",\" \"a*\""), E3002, "separator 1, which matches empty strings"},
        {TOKENS("2", "mark=0 tokenexp=\"a\""), E2004, "attribute 'mincharnum' is missing"},
        {TOKENS("2", "mark=0 mincharnum=0 tokenexp=\"a\""), E2004, "mincharnum is 0"},
        {TOKENS("2", "mark=0 mincharnum=2 tokenexp=\".\""), E2004, "but characters are tokens"},
        {TOKENS("1,1,1", "mark=0 mincharnum=1 tokenexp=\"a\""), E2005, "shape [C] or [N, C]"},
        {S3 "y = StringNormalizer(s) {case_change_action=\"UP\"}", E2004, "none of: NONE LOWER"},
        {S3 "y = ai.onnx.ml:LabelEncoder(s) {keys_int64s=[1] values_int64s=[2]}", E2004,
         "1 keys (i64) and 1 values for an input of str"},
        {S3 "y = ai.onnx.ml:OneHotEncoder(s) {cats_int64s=[1]}", E2004, "not of the input's type"},
        {S3 "y = TfIdfVectorizer(s) {mode=\"TF\" pool_int64s=[1]}", E2004,
         "attribute 'pool_strings' is missing"},
        {"input s str[2,2] output y y = StringNormalizer(s)", E2005, "shape [C] or [1, C]"},
    };
    for (size_t i = 0; i < N(rows); i++) {
        const char *text = arena_printf(&b->arena, ML "%s", rows[i].text);
        if (import_text(b, text, NULL)) fail_msg("%s: imported", text);
        expect_error(b, rows[i].code, rows[i].part);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_movement, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_comparison, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_regex, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_split, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tokenizer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_normalizer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_labels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hashes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_casts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
