/* The IR as text: what is printed reads back as the same thing, mistakes are named with their
 * place, and no text makes the reader crash. Files: tests/ir/NAME.ir are read and must print as
 * they are; tests/ir/errors/NAME.ir say in their first line what the reader must say. Run in the
 * repository. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "ir/verify.h"

typedef struct Fixture {
    Arena arena;
    Exprs x;
    Diag diag;
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 0, NULL, NULL);
    exprs_init(&f->x, &f->arena);
    diag_init(&f->diag, &f->arena, "test");
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    arena_free(&f->arena);
    free(f);
    return 0;
}

/* A small generator with its own state, so that runs are alike everywhere. */
static uint32_t next_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static int below(uint64_t *seed, int n) {
    return (int)(next_random(seed) % (uint32_t)n);
}

/* --- expressions ------------------------------------------------------------------------------ */

static const char *print(Fixture *f, const Expr *e) {
    Text t = text_new(&f->arena);
    text_expr(&t, NULL, e, 0);
    return text_get(&t);
}

/* Printing and reading gives the very same node. */
static void check_round_trip(Fixture *f, const Expr *e) {
    const char *text = print(f, e);
    const Expr *back = parse_expr(&f->x, &f->diag, NULL, text, strlen(text));
    if (back != e) {
        const char *why = f->diag.n_errors ? f->diag.messages.items[0].text : "another expression";
        fail_msg("%s\nreads as\n%s\n(%s)", text, back ? print(f, back) : "nothing", why);
    }
}

static const Expr *load_of(Fixture *f, DType dt, int source) {
    const Expr *index = ex_var(&f->x, 0);
    return ex_load(&f->x, dt, source, 1, &index);
}

static bool is_real(DType dt) {
    return dt_kind(dt) >= DK_bool && dt_kind(dt) <= DK_float;
}

static void test_every_operator(void **state) {
    Fixture *f = *state;
    int tried = 0;
    for (int op = 0; op < EX_count; op++)
        for (int dt = 1; dt < DT_count; dt++) {
            DType arg[3] = {(DType)dt, (DType)dt, (DType)dt};
            const char *why;
            int arity = ex_arity((ExprOp)op);
            if (arity < 1) continue;
            const Expr *a = load_of(f, (DType)dt, 0), *b = load_of(f, (DType)dt, 1);
            if (op == EX_select) {
                check_round_trip(f, ex_select(&f->x, load_of(f, DT_bool, 2), a, b));
                tried++;
            } else if (op == EX_cast || op == EX_bits) {
                for (int to = 1; to < DT_count; to++) {
                    if (!expr_type(&f->arena, (ExprOp)op, (DType)to, arg, false, &why)) continue;
                    check_round_trip(f, op == EX_cast ? ex_cast(&f->x, (DType)to, a)
                                                      : ex_bits(&f->x, (DType)to, a));
                    tried++;
                }
            } else if (expr_type(&f->arena, (ExprOp)op, DT_none, arg, false, &why)) {
                check_round_trip(f, arity == 1 ? ex_un(&f->x, (ExprOp)op, a)
                                               : ex_bin(&f->x, (ExprOp)op, a, b));
                tried++;
            }
        }
    assert_true(tried > 1000);
}

static void test_literals(void **state) {
    Fixture *f = *state;
    static const double reals[] = {
        0.0,  -0.0, 1.0,    0.1,    -1.5,     1e-45,    3.4028234663852886e38,
        1e20, 1e-7, 1.0e16, 1e-300, 123456.7, 16777217, 5e-324};
    static const int64_t wholes[] = {0,   1,         -1,        7,         -8,       127,
                                     255, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    for (int dt = 1; dt < DT_count; dt++) {
        if (!is_real((DType)dt)) continue;
        for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
            check_round_trip(f, ex_num(&f->x, (DType)dt, reals[i]));
        for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
            check_round_trip(f, ex_int(&f->x, (DType)dt, wholes[i]));
        if (!dt_is_float((DType)dt)) continue;
        uint64_t raw = 0xfff8000000000123u;
        double odd;
        memcpy(&odd, &raw, sizeof odd);
        const double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, odd};
        for (int i = 0; i < 4; i++)
            check_round_trip(f, ex_const(&f->x, (DType)dt, (Scalar){.f = special[i]}));
    }
    /* every 16-bit pattern of the narrow floats, and random ones of f32 and f64 */
    for (int bits = 0; bits < 65536; bits += 7) {
        double v = dt_decode_float(DT_f16, (uint32_t)bits);
        if (!isnan(v)) check_round_trip(f, ex_const(&f->x, DT_f16, (Scalar){.f = v}));
        v = dt_decode_float(DT_bf16, (uint32_t)bits);
        if (!isnan(v)) check_round_trip(f, ex_const(&f->x, DT_bf16, (Scalar){.f = v}));
    }
    uint64_t seed = 1;
    for (int i = 0; i < 5000; i++) {
        uint32_t low = next_random(&seed) << 1, high = next_random(&seed) << 1;
        uint64_t raw = (uint64_t)high << 32 | low;
        float single;
        double wide;
        memcpy(&single, &high, sizeof single);
        memcpy(&wide, &raw, sizeof wide);
        if (!isnan(single))
            check_round_trip(f, ex_const(&f->x, DT_f32, (Scalar){.f = (double)single}));
        check_round_trip(f, ex_const(&f->x, DT_f64, (Scalar){.f = wide}));
    }
}

static void check_text(Fixture *f, const Expr *e, const char *want) {
    assert_string_equal(print(f, e), want);
    check_round_trip(f, e);
}

static void test_parentheses(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    const Expr *a = ex_var(x, 0), *b = ex_var(x, 1), *c = ex_var(x, 2);
    check_text(f, ex_sub(x, a, ex_sub(x, b, c)), "i0 - (i1 - i2)");
    check_text(f, ex_sub(x, ex_sub(x, a, b), c), "i0 - i1 - i2");
    check_text(f, ex_div(x, ex_add(x, a, b), c), "(i0 + i1) / i2");
    check_text(f, ex_div(x, a, ex_mul(x, b, c)), "i0 / (i1 * i2)");
    check_text(f, ex_un(x, EX_neg, ex_add(x, a, b)), "-(i0 + i1)");
    check_text(f, ex_sub(x, a, ex_un(x, EX_neg, b)), "i0 - -i1");
    check_text(f, ex_add(x, a, ex_i(x, -3)), "i0 + -3");
    check_text(f, ex_bin(x, EX_shr, ex_bin(x, EX_bor, a, b), c), "(i0 | i1) >> i2");
    check_text(f, ex_bin(x, EX_rem, a, b), "i0 % i1");
    check_text(f, ex_and(x, ex_lt(x, a, b), ex_le(x, b, c)), "i0 < i1 && i1 <= i2");
    check_text(f, ex_num(x, DT_f32, 0.1), "0.1");
    check_text(f, ex_num(x, DT_f64, 0.1), "0.1f64");
    check_text(f, ex_num(x, DT_f32, 1e10), "1e+10");
    check_text(f, ex_num(x, DT_bf16, 3), "3.0bf16");
    check_text(f, ex_int(x, DT_u64, -1), "18446744073709551615u64");
    check_text(f, ex_const(x, DT_f16, (Scalar){.f = -(double)INFINITY}), "-inf_f16");
    check_text(f, ex_ctr(x, 2), "ctr2");
    check_text(f, ex_acc(x, DT_f64), "acc:f64");
    check_text(f, ex_var_of(x, 3, DT_f32), "i3:f32");
}

/* Big, shared and deep expressions stay linear in text and come back. */
static void test_sharing(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    const Expr *e = ex_un(x, EX_exp, load_of(f, DT_f32, 0)), *deep = ex_var(x, 0);
    for (int i = 0; i < 200; i++) e = ex_sub(x, ex_mul(x, e, e), ex_un(x, EX_sqrt, e));
    check_round_trip(f, e);
    assert_true(strlen(print(f, e)) < 200 * 60);
    assert_true(strlen(ex_text(&f->arena, NULL, e)) < 200);
    for (int i = 0; i < 1900; i++) deep = ex_sub(x, ex_var(x, 1), ex_un(x, EX_neg, deep));
    check_round_trip(f, ex_mul(x, deep, deep));
    assert_true(strlen(print(f, deep)) < 1900 * 40);
}

/* A random expression of the given type from few leaves. */
static const Expr *random_expr(Fixture *f, uint64_t *seed, DType dt, int depth) {
    Exprs *x = &f->x;
    if (depth == 0 || below(seed, 8) == 0) {
        if (below(seed, 3) == 0) {
            if (dt_is_float(dt))
                return ex_num(x, dt, ldexp(below(seed, 2000) - 1000, below(seed, 20) - 9));
            return ex_int(x, dt, below(seed, 300) - 150);
        }
        if (dt == DT_i32)
            return below(seed, 4) ? ex_var(x, below(seed, 4)) : ex_ctr(x, below(seed, 2));
        return load_of(f, dt, below(seed, 3));
    }
    for (;;) {
        ExprOp op = (ExprOp)below(seed, EX_count);
        static const DType types[] = {DT_i32, DT_f32, DT_bool, DT_f16, DT_i64, DT_u8, DT_f64};
        DType inner = types[below(seed, 7)], arg[3] = {inner, inner, inner};
        const char *why;
        if (ex_arity(op) < 1) continue;
        if (op == EX_select) {
            const Expr *cond = random_expr(f, seed, DT_bool, depth - 1);
            const Expr *yes = random_expr(f, seed, dt, depth - 1);
            return ex_select(x, cond, yes, random_expr(f, seed, dt, depth - 1));
        }
        if (expr_type(&f->arena, op, dt, arg, false, &why) != dt) continue;
        const Expr *a = random_expr(f, seed, inner, depth - 1);
        if (op == EX_cast) return ex_cast(x, dt, a);
        if (op == EX_bits) return ex_bits(x, dt, a);
        if (ex_arity(op) == 1) return ex_un(x, op, a);
        return ex_bin(x, op, a, random_expr(f, seed, inner, depth - 1));
    }
}

static void test_random_expressions(void **state) {
    Fixture *f = *state;
    static const DType types[] = {DT_i32, DT_f32, DT_bool, DT_f16, DT_i64, DT_u8, DT_f64};
    uint64_t seed = 42;
    for (int i = 0; i < 3000; i++)
        check_round_trip(f, random_expr(f, &seed, types[i % 7], 1 + i % 9));
}

/* --- formulas --------------------------------------------------------------------------------- */

static const Expr *formula(Fixture *f, const char *text, const char **error) {
    static const char *const names[] = {"x", "y", "c", "n", "h"};
    const Expr *values[] = {load_of(f, DT_f32, 0), load_of(f, DT_f32, 1), load_of(f, DT_bool, 2),
                            load_of(f, DT_i64, 3), load_of(f, DT_f16, 4)};
    *error = NULL;
    return ex_formula(&f->x, text, 5, names, values, error);
}

static void test_formulas(void **state) {
    Fixture *f = *state;
    static const char *const rows[][2] = {
        {"x + 1", "$0:f32[i0] + 1.0"},
        {"x > y", "$1:f32[i0] < $0:f32[i0]"},
        {"x >= y", "$1:f32[i0] <= $0:f32[i0]"},
        {"n * 2 % 3", "$3:i64[i0] * 2i64 % 3i64"},
        {"x * (2 / 4)", "$0:f32[i0] * 0.5"},
        {"x / sqrt(4)", "$0:f32[i0] / 2.0"},
        {"cast(i32, n) + 1", "cast(i32, $3:i64[i0]) + 1"},
        {"cast(f64, 2) / 3", "0.6666666666666666f64"},
        {"select(x > 0, 1, select(x < 0, -1, 0))",
         "select(0.0 < $0:f32[i0], 1.0, select($0:f32[i0] < 0.0, -1.0, 0.0))"},
        {"h + 1", "cast(f16, cast(f32, $4:f16[i0]) + 1.0)"},
        {"min(x, inf)", "min($0:f32[i0], inf)"},
        {"!c && x != y", "!$2:bool[i0] && $0:f32[i0] != $1:f32[i0]"},
        {"bits(u32, x) >> 3", "bits(u32, $0:f32[i0]) >> 3u32"},
        {"max(x, 1, 2, 3)", "max($0:f32[i0], 3.0)"},
        {"-x", "-$0:f32[i0]"},
        {"1", "1.0"},
        {"n%3", "$3:i64[i0] % 3i64"},
        {"x\n  * 1e-3", "$0:f32[i0] * 0.001"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *error;
        const Expr *e = formula(f, rows[i][0], &error);
        if (!e) fail_msg("%s: %s", rows[i][0], error);
        assert_string_equal(print(f, e), rows[i][1]);
    }
    static const char *const wrong[][2] = {
        {"x + n", "line 1 column 3: the operands of 'add' are f32 and i64"},
        {"n + 0.5", "line 1 column 3: the literal does not fit type i64"},
        {"x +", "line 1 column 4: expected an expression, found the end of the text"},
        {"z", "line 1 column 1: expected a known name, found 'z'"},
        {"foo(x)", "line 1 column 1: expected the name of a function, found 'foo'"},
        {"sqrt(n)", "line 1 column 1: 'sqrt' takes floats, not i64"},
        {"select(x, x, y)", "line 1 column 1: the condition of 'select' is not a bool"},
        {"pow(x)", "line 1 column 6: expected ',', found ')'"},
        {"exp(x, y)", "line 1 column 6: expected ')', found ','"},
        {"x y", "line 1 column 3: expected the end of the formula, found 'y'"},
        {"", "line 1 column 1: expected an expression, found the end of the text"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *error;
        assert_null(formula(f, wrong[i][0], &error));
        assert_string_equal(error, wrong[i][1]);
    }
}

/* --- files ------------------------------------------------------------------------------------ */

static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    *length = fread(text, 1, (size_t)size, file);
    text[*length] = 0;
    fclose(file);
    return text;
}

/* Reads what the text begins with, a graph, kernel or program, and prints it again. NULL: an error.
 */
static const char *reprint(Fixture *f, const char *text, size_t length, bool verify) {
    Text out = text_new(&f->arena);
    TextOptions options = {0};
    const char *start = text;
    while (*start == ';' || *start == '\n' || *start == ' ')
        start = strchr(start, *start == ';' ? '\n' : *start) + 1;
    if (!strncmp(start, "kernel", 6)) {
        Program *p = program_new(graph_new(&f->arena, &f->x, &f->diag, NULL));
        Kernel *k = parse_kernel(p, text, length);
        if (!k) return NULL;
        if (verify) verify_kernel(k, &f->diag, NULL);
        text_kernel(&out, k);
    } else if (!strncmp(start, "program", 7)) {
        Program *p = parse_program(&f->arena, &f->x, &f->diag, text, length);
        if (!p) return NULL;
        if (verify) verify_graph(p->graph, &f->diag, NULL);
        if (verify) verify_program(p, &f->diag, NULL);
        text_program(&out, p, options);
    } else {
        Graph *g = parse_graph(&f->arena, &f->x, &f->diag, text, length);
        if (!g) return NULL;
        if (verify) verify_graph(g, &f->diag, NULL);
        text_graph(&out, g, options);
    }
    return text_get(&out);
}

typedef void FileTest(const char *path, const char *text, size_t length);

/* Runs a test on every .ir file of a folder; returns how many there are. */
static int each_file(const char *folder, FileTest *test) {
    DIR *dir = opendir(folder);
    if (!dir) fail_msg("cannot open %s", folder);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".ir") != 0) continue;
        char path[400];
        size_t length;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        char *text = read_file(path, &length);
        test(path, text, length);
        free(text);
        n++;
    }
    closedir(dir);
    return n;
}

static void check_golden(const char *path, const char *text, size_t length) {
    void *state;
    setup(&state);
    Fixture *f = state;
    const char *out = reprint(f, text, length, true);
    if (f->diag.n_errors) fail_msg("%s: %s", path, f->diag.messages.items[0].text);
    if (strcmp(out, text) != 0) {
        fprintf(stderr, "%s prints as\n%s", path, out); /* cmocka would cut it short */
        fail();
    }
    teardown(&state);
}

static void test_golden_files(void **state) {
    (void)state;
    assert_true(each_file("tests/ir", check_golden) >= 7);
}

static void check_error(const char *path, const char *text, size_t length) {
    void *state;
    setup(&state);
    Fixture *f = state;
    const char *out = reprint(f, text, length, false);
    if (out || f->diag.n_errors != 1) fail_msg("%s: accepted", path);
    const char *want = arena_strndup(&f->arena, text + 2, strcspn(text + 2, "\n"));
    if (strcmp(f->diag.messages.items[0].text, want) != 0)
        fail_msg("%s: says\n; %s", path, f->diag.messages.items[0].text);
    assert_int_equal(f->diag.messages.items[0].code, E5001);
    teardown(&state);
}

static void test_error_files(void **state) {
    (void)state;
    assert_true(each_file("tests/ir/errors", check_error) >= 15);
}

/* What the builders make prints, reads back and passes the verifier. */
static void test_built(void **state) {
    Fixture *f = *state;
    Graph *g = graph_new(&f->arena, &f->x, &f->diag, "built");
    static const int64_t shape[2] = {4, 6}, start[2] = {3, 0}, step[2] = {-1, 2}, count[2] = {2, 3},
                         before[2] = {1, 0}, after[2] = {0, 2}, flat[1] = {24};
    static const int perm[2] = {1, 0};
    Value *x = graph_input(g, "x", DT_f32, 2, shape), *h = graph_input(g, "h", DT_f16, 2, shape);
    Value *n = graph_input(g, "n", DT_i64, 2, shape), *t = g_transpose(g, x, perm);
    Value *parts[2] = {x, g_cast(g, h, DT_f32)};
    graph_output(g, g_slice(g, x, start, step, count), "slice");
    graph_output(g, g_pad(g, h, before, after, (Scalar){.f = 0.25}), "pad");
    graph_output(g, g_concat(g, 2, parts, 1), "concat");
    graph_output(g, g_matmul(g, x, t, DT_f64, DT_f32), "matmul");
    graph_output(g, g_softmax(g, h, 2, true), "softmax");
    graph_output(g, g_reduce(g, COMBINE_max, n, 1, true), "max");
    graph_output(g, g_where(g, g_bin(g, EX_lt, x, parts[1]), x, parts[1]), "where");
    graph_output(g, g_reshape(g, g_bin(g, EX_add, h, h), 1, flat), "flat");
    Builder b = build(g, 2, shape);
    const Expr *index[2] = {ex_var(&f->x, 0), ex_var(&f->x, 2)};
    Value *sum = build_scan(&b, DT_f32, COMBINE_sum, 1, true, false, build_load(&b, x, index));
    b = build(g, 2, shape);
    const Expr *row = ex_cast(&f->x, DT_i32, build_in(&b, n));
    const Expr *target[2] = {row, ex_var(&f->x, 1)};
    const Expr *guard =
        ex_and(&f->x, ex_le(&f->x, ex_i(&f->x, 0), row), ex_lt(&f->x, row, ex_i(&f->x, 4)));
    graph_output(g, build_scatter(&b, sum, COMBINE_sum, target, guard, build_in(&b, x)), "scatter");
    if (!verify_graph(g, &f->diag, NULL)) fail_msg("%s", f->diag.messages.items[0].text);
    Text once = text_new(&f->arena), twice = text_new(&f->arena);
    text_graph(&once, g, (TextOptions){0});
    Graph *back = parse_graph(&f->arena, &f->x, &f->diag, text_get(&once), once.length);
    if (!back) fail_msg("%s", f->diag.messages.items[0].text);
    text_graph(&twice, back, (TextOptions){0});
    assert_string_equal(text_get(&once), text_get(&twice));
    assert_true(verify_graph(back, &f->diag, NULL));
}

static void test_elided(void **state) {
    Fixture *f = *state;
    static const char text[] = "graph {\n  %0 = const : i32[3] = [1, 2, 3]\n}\n";
    Graph *g = parse_graph(&f->arena, &f->x, &f->diag, text, strlen(text));
    Text out = text_new(&f->arena);
    text_graph(&out, g, (TextOptions){.elide = true, .inline_limit = 2});
    assert_non_null(strstr(text_get(&out), "= <12 bytes, fnv "));
    assert_null(parse_graph(&f->arena, &f->x, &f->diag, text_get(&out), out.length));
}

/* Damaged texts: read, verified, and if they read, printed and read again to the same text. */
static void check_damaged(const char *path, const char *text, size_t length) {
    uint64_t seed = 7;
    char *damaged = malloc(length + 64);
    static const char pieces[][8] = {"%",  "(",     ")", "[",      "]",  "{",  "}",
                                     "-1", "99999", ",", " ",      "\n", "i0", "$9",
                                     "#0", "\"",    ":", "let #0", "0x", "f16"};
    for (int round = 0; round < 400; round++) {
        void *state;
        setup(&state);
        Fixture *f = state;
        memcpy(damaged, text, length + 1);
        size_t n = length;
        for (int k = below(&seed, 3); k >= 0; k--) {
            size_t at = (size_t)below(&seed, (int)n), cut = (size_t)below(&seed, 6);
            const char *piece = pieces[below(&seed, (int)(sizeof pieces / sizeof *pieces))];
            size_t more = below(&seed, 3) ? strlen(piece) : 0;
            if (below(&seed, 4) == 0) {
                damaged[at] = (char)next_random(&seed);
                continue;
            }
            if (cut > n - at) cut = n - at;
            if (n - cut + more > length + 32) more = 0;
            memmove(damaged + at + more, damaged + at + cut, n - at - cut + 1);
            memcpy(damaged + at, piece, more);
            n = n - cut + more;
        }
        if (!memchr(damaged, 0, n) || round % 4) { /* the test's own prefix search needs text */
            damaged[n] = 0;
            const char *once = reprint(f, damaged, strlen(damaged), true);
            const char *twice = once ? reprint(f, once, strlen(once), false) : NULL;
            if (once && (!twice || strcmp(once, twice) != 0))
                fail_msg("%s: damaged\n%s\nprints as\n%s\nand again as\n%s\n%s", path, damaged,
                         once, twice ? twice : "nothing", f->diag.messages.items[0].text);
        }
        teardown(&state);
    }
    free(damaged);
}

static void test_damaged_files(void **state) {
    (void)state;
    each_file("tests/ir", check_damaged);
}

/* Texts made to hurt: deep nesting, huge numbers, endless chains. */
static void test_hostile(void **state) {
    Fixture *f = *state;
    Text t = text_new(&f->arena);
    static const char *const units[][2] = {{"(", ""},      {"-", ""},         {"i0+", "i0"},
                                           {"exp(", ""},   {"$0:f32[", ""},   {"!", "true"},
                                           {"i0 *", "i0"}, {"max(i0,", "i0)"}};
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        t.length = 0;
        for (int i = 0; i < 100000; i++) text_add(&t, units[k][0]);
        text_add(&t, units[k][1]);
        int before = f->diag.n_errors;
        assert_null(parse_expr(&f->x, &f->diag, NULL, text_get(&t), t.length));
        assert_true(f->diag.n_errors >= before);
    }
    /* a tower of squares: 2^4000 nodes as a tree */
    t.length = 0;
    text_add(&t, "graph {\n%0 = map () : i32[4]\nlet #0 = i0 * i0\n");
    for (int i = 1; i < 3000; i++) text_addf(&t, "let #%d = #%d * #%d\n", i, i - 1, i - 1);
    text_add(&t, "body #2999\noutput %0\n}\n");
    Graph *g = parse_graph(&f->arena, &f->x, &f->diag, text_get(&t), t.length);
    assert_non_null(g);
    assert_true(verify_graph(g, &f->diag, NULL));
    t.length = 0;
    for (int i = 0; i < 100000; i++) text_add(&t, "if true {\n");
    const char *kernel = arena_printf(&f->arena, "kernel @k {\n%s", text_get(&t));
    assert_null(reprint(f, kernel, strlen(kernel), false));
    t.length = 0;
    for (int i = 0; i < 10000; i++) text_add(&t, "%0 = loop 1 state 0 () : f32[] {\n");
    const char *loops = arena_printf(&f->arena, "graph {\n%s", text_get(&t));
    assert_null(reprint(f, loops, strlen(loops), false));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_operator, setup, teardown),
        cmocka_unit_test_setup_teardown(test_literals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parentheses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sharing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_expressions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_formulas, setup, teardown),
        cmocka_unit_test(test_golden_files),
        cmocka_unit_test(test_error_files),
        cmocka_unit_test_setup_teardown(test_built, setup, teardown),
        cmocka_unit_test_setup_teardown(test_elided, setup, teardown),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
