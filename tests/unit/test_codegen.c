/* Generated code: it is the text in tests/emit, real compilers take it without a warning, and it
 * computes what the interpreter does.
 *
 * tests/emit/TARGET/NAME.ir is a program; beside it lies what must come out: NAME.c and NAME.h,
 * NAME.cu, or NAME.KERNEL.comp. `test_codegen --bless` writes these files anew. Run in the
 * repository. Tools that are not installed are passed over. */
#include "tests/unit/emit_fixture.h"

#include <dirent.h>

#include "codegen/nvrtc.h"

static bool bless;

/* --- golden texts ----------------------------------------------------------------------------- */

/* The text is that of the file. */
static void check_golden(Fixture *f, const char *path, const Text *text) {
    if (bless) write_text(path, text_get(text), text->length);
    size_t length = 0;
    const char *golden = read_text(f, path, &length);
    if (!golden) fail_msg("%s is missing: run test_codegen --bless", path);
    if (length == text->length && !memcmp(golden, text_get(text), length)) return;
    size_t at = 0, line = 1;
    for (; at < length && at < text->length && golden[at] == text_get(text)[at]; at++)
        line += golden[at] == '\n';
    fail_msg("%s:%zu: the generated text differs: %.60s", path, line, text_get(text) + at);
}

static EmitOptions options_of(Fixture *f, const char *name) {
    return (EmitOptions){.prefix = name,
                         .model_name = arena_printf(&f->arena, "%s.onnx", name),
                         .digest = "0123456789abcdef",
                         .header_name = arena_printf(&f->arena, "%s.h", name)};
}

static void compile_strictly(Fixture *f, const char *path) {
    static const char *const compilers[] = {"gcc", "clang",
                                            "arm-none-eabi-gcc -mcpu=cortex-m4 -ffreestanding"};
    for (int i = 0; i < 3; i++)
        if (i == 0 || have(f, i == 1 ? "clang" : "arm-none-eabi-gcc"))
            must_run(f, arena_printf(&f->arena, "%s " STRICT " -c -o %s/x.o %s", compilers[i],
                                     f->folder, path));
}

/* Compiles C with undefined behaviour made fatal, runs it, compares. */
static void run_c(Fixture *f, const Program *p, EmitOptions o, const Tensors *t, const char *more,
                  const char *weights) {
    Text source = text_new(&f->arena), header = text_new(&f->arena);
    o.header_name = "model.h";
    o.descriptor = true;
    emit_c(p, &o, &source, &header);
    assert_int_equal(f->diag.n_errors, 0);
    write_text(in_folder(f, "model.c"), text_get(&source), source.length);
    write_text(in_folder(f, "model.h"), text_get(&header), header.length);
    must_run(f,
             arena_printf(&f->arena,
                          "gcc " STRICT " -fsanitize=undefined -fsanitize-undefined-trap-on-error "
                          "-fPIC -shared -I%s -o %s/model.so %s/model.c %s -lm",
                          f->folder, f->folder, f->folder, more));
    run_library(f, in_folder(f, "model.so"), p, t, weights);
}

static void run_cuda(Fixture *f, const Program *p, EmitOptions o, const Tensors *t) {
    Text kernels = text_new(&f->arena), host = text_new(&f->arena);
    emit_cuda(p, &o, &kernels);
    emit_gpu_host(p, target_find("cuda"), &o, 0, NULL, true, &host);
    write_text(in_folder(f, "kernels.c"), text_get(&kernels), kernels.length);
    write_text(in_folder(f, "host.c"), text_get(&host), host.length);
    must_run(f, arena_printf(&f->arena,
                             "gcc -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -Iruntime "
                             "-Iinclude -include cuda_emu.h -o %s/model.so %s/kernels.c %s/host.c "
                             "runtime/cuda_emu.c -lm -lpthread",
                             f->folder, f->folder, f->folder));
    run_library(f, in_folder(f, "model.so"), p, t, NULL);
}

/* NVRTC takes the text, where it is installed. */
static void compile_cuda(Fixture *f, const Text *kernels) {
    Diag diag;
    diag_init(&diag, &f->arena, "test");
    size_t length = 0;
    NvrtcHeader header = {"cuda_intrin.h", read_text(f, "runtime/cuda_intrin.h", &length)};
    NvrtcOptions options = {.archs = "sm_80", .n_headers = 1, .headers = &header};
    NvrtcResult result;
    if (nvrtc_compile(&f->arena, &diag, &options, "kernels.cu", text_get(kernels), &result) == 0)
        return;
    if (diag.messages.items[0].code != E4201) fail_msg("%s", diag.messages.items[0].text);
    print_message("note: NVRTC is not installed\n");
}

static void golden_c(Fixture *f, const char *path, const char *name, const Program *p) {
    Text source = text_new(&f->arena), header = text_new(&f->arena);
    EmitOptions o = options_of(f, name);
    emit_c(p, &o, &source, &header);
    check_golden(f, arena_printf(&f->arena, "%s.c", path), &source);
    check_golden(f, arena_printf(&f->arena, "%s.h", path), &header);
    compile_strictly(f, arena_printf(&f->arena, "%s.c", path));
    if (have(f, "g++")) /* the header is for C++ too */
        must_run(f, arena_printf(&f->arena,
                                 "g++ -x c++ -Wall -Wextra -Wpedantic -Werror "
                                 "-fsyntax-only %s.h",
                                 path));
    Tensors t = make_tensors(f, p, false);
    interpret_program(f, p, &t);
    run_c(f, p, o, &t, "", NULL);
}

static void golden_cuda(Fixture *f, const char *path, const char *name, const Program *p) {
    Text kernels = text_new(&f->arena);
    EmitOptions o = options_of(f, name);
    emit_cuda(p, &o, &kernels);
    check_golden(f, arena_printf(&f->arena, "%s.cu", path), &kernels);
    compile_cuda(f, &kernels);
    Tensors t = make_tensors(f, p, false);
    interpret_program(f, p, &t);
    run_cuda(f, p, o, &t);
}

static void golden_glsl(Fixture *f, const char *path, const char *name, const Program *p) {
    EmitOptions o = options_of(f, name);
    for (int i = 0; i < p->kernels.n; i++) {
        Text shader = text_new(&f->arena);
        const char *file = arena_printf(&f->arena, "%s.%s.comp", path, p->kernels.items[i]->name);
        emit_glsl(p, &o, i, &shader);
        check_golden(f, file, &shader);
        if (have(f, "glslangValidator"))
            must_run(f, arena_printf(&f->arena, "glslangValidator --target-env vulkan1.1 -o %s %s",
                                     in_folder(f, "x.spv"), file));
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks all programs of a folder with `check`. */
static void each_golden(Fixture *f, const char *target,
                        void (*check)(Fixture *, const char *, const char *, const Program *)) {
    const char *folder = arena_printf(&f->arena, "tests/emit/%s", target);
    const char *names[64];
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) && n < 64;) {
        size_t length = strlen(e->d_name);
        if (length > 3 && !strcmp(e->d_name + length - 3, ".ir"))
            names[n++] = arena_strndup(&f->arena, e->d_name, length - 3);
    }
    closedir(dir);
    assert_int_not_equal(n, 0);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) {
        size_t length = 0;
        const char *path = arena_printf(&f->arena, "%s/%s", folder, names[i]);
        const char *text = read_text(f, arena_printf(&f->arena, "%s.ir", path), &length);
        check(f, path, names[i], read_program(f, text, length));
    }
}

static void test_golden_c(void **state) {
    each_golden(*state, "c", golden_c);
}

static void test_golden_cuda(void **state) {
    each_golden(*state, "cuda", golden_cuda);
}

static void test_golden_glsl(void **state) {
    each_golden(*state, "glsl", golden_glsl);
}

/* --- every operator on every type ------------------------------------------------------------- */

#define SAMPLES "[4096]" /* each of 64 samples with each */

typedef struct Writer {
    Text text, outputs;
    int n, inputs;
} Writer;

static Writer begin_graph(Fixture *f, int inputs, const char *dt) {
    Writer w = {text_new(&f->arena), text_new(&f->arena), inputs, inputs};
    text_add(&w.text, "graph @ops {\n");
    for (int i = 0; i < inputs; i++)
        text_addf(&w.text, "  %%%d = input : %s" SAMPLES " \"in%d\"\n", i, dt, i);
    return w;
}

static void add_map(Writer *w, const char *dt, const char *name, const char *body) {
    text_addf(&w->text, "  %%%d = map (%%0%s) : %s" SAMPLES "\n    body %s\n", w->n,
              w->inputs > 1 ? ", %1" : "", dt, body);
    text_addf(&w->outputs, "  output %%%d \"%s\"\n", w->n++, name);
}

/* Generates C and emulated CUDA, runs both on difficult numbers, compares with the interpreter. */
static void run_graph(Fixture *f, Writer *w) {
    text_add(&w->text, text_get(&w->outputs));
    text_add(&w->text, "}\n");
    EmitOptions o = {.prefix = "ops", .model_name = "ops"};
    Program *p = lower_text(f, text_get(&w->text), "c");
    Tensors t = make_tensors(f, p, true);
    assert_true(interp_graph(p->graph, (const void *const *)t.inputs, t.wanted));
    run_c(f, p, o, &t, "", NULL);
    run_cuda(f, lower_text(f, text_get(&w->text), "cuda"), o, &t);
}

static const char *const float_functions[] = {
    "abs",  "sqrt", "exp",   "log",   "sin",   "cos", "tan",   "asin", "acos",  "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "round", "trunc"};

static void test_float_operators(void **state) {
    static const char *const both[] = {
        "$0[i0] + $1[i0]",
        "$0[i0] - $1[i0]",
        "$0[i0] * $1[i0]",
        "$0[i0] / $1[i0]",
        "$0[i0] % $1[i0]",
        "min($0[i0], $1[i0])",
        "max($0[i0], $1[i0])",
        "pow($0[i0], $1[i0])",
        "-$0[i0]",
        "select($0[i0] < $1[i0], $0[i0] * $1[i0], exp($1[i0]) + $0[i0])"};
    static const char *const truths[] = {"$0[i0] == $1[i0]", "$0[i0] != $1[i0]", "$0[i0] < $1[i0]",
                                         "$0[i0] <= $1[i0]", "isnan($0[i0])",    "isinf($0[i0])"};
    for (int wide = 0; wide < 2; wide++) {
        const char *dt = wide ? "f64" : "f32";
        Fixture *f = *state;
        Writer w = begin_graph(f, 2, dt);
        for (size_t i = 0; i < sizeof float_functions / sizeof *float_functions; i++)
            add_map(&w, dt, float_functions[i],
                    arena_printf(&f->arena, "%s($0[i0])", float_functions[i]));
        for (size_t i = 0; i < sizeof both / sizeof *both; i++)
            add_map(&w, dt, arena_printf(&f->arena, "both %zu", i), both[i]);
        for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
            add_map(&w, "bool", arena_printf(&f->arena, "truth %zu", i), truths[i]);
        if (!wide) {
            add_map(&w, dt, "relu", "max($0[i0], 0.0)");
            add_map(&w, dt, "clip", "min(max($0[i0] + $1[i0], -1.0), 6.0)");
        }
        run_graph(f, &w);
    }
}

static void test_int_operators(void **state) {
    static const char *const types[] = {"i32", "u32", "i64", "u64", "i8", "u8", "i16", "i4"};
    static const char *const both[] = {"$0[i0] + $1[i0]",
                                       "$0[i0] - $1[i0]",
                                       "$0[i0] * $1[i0]",
                                       "$0[i0] / $1[i0]",
                                       "$0[i0] % $1[i0]",
                                       "min($0[i0], $1[i0])",
                                       "max($0[i0], $1[i0])",
                                       "$0[i0] & $1[i0]",
                                       "$0[i0] | $1[i0]",
                                       "$0[i0] ^ $1[i0]",
                                       "$0[i0] << $1[i0]",
                                       "$0[i0] >> $1[i0]",
                                       "-$0[i0]",
                                       "abs($0[i0])",
                                       "~$0[i0]"};
    static const char *const constant[] = {
        "$0[i0] << 5%s", "$0[i0] >> 3%s", "$0[i0] << 99%s",           "$0[i0] >> 99%s",
        "$0[i0] / 7%s",  "$0[i0] %% 7%s", "max($0[i0] + $1[i0], 5%s)"};
    static const char *const truths[] = {
        "$0[i0] == $1[i0]", "$0[i0] != $1[i0]", "$0[i0] < $1[i0]", "$0[i0] <= $1[i0]",
        "$0[i0] < $1[i0] || !($0[i0] == $1[i0]) && $1[i0] < $0[i0]"};
    Fixture *f = *state;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const char *dt = types[k], *suffix = k == 0 ? "" : dt;
        Writer w = begin_graph(f, 2, dt);
        for (size_t i = 0; i < sizeof both / sizeof *both; i++)
            add_map(&w, dt, arena_printf(&f->arena, "%s %zu", dt, i), both[i]);
        for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
            add_map(&w, "bool", arena_printf(&f->arena, "%s truth %zu", dt, i), truths[i]);
        for (size_t i = 0; k < 4 && i < sizeof constant / sizeof *constant; i++) {
            char body[80];
            const char *hole = strstr(constant[i], "%s");
            snprintf(body, sizeof body, "%.*s%s%s", (int)(hole - constant[i]), constant[i], suffix,
                     hole + 2);
            char *percent = strstr(body, "%%");
            if (percent) memmove(percent, percent + 1, strlen(percent));
            add_map(&w, dt, arena_printf(&f->arena, "%s constant %zu", dt, i), body);
        }
        run_graph(f, &w);
    }
}

static void test_casts(void **state) {
    static const char *const types[] = {
        "f32", "f64",      "i32",        "u32",    "i64",        "u64",    "bool",  "i8",
        "u8",  "i16",      "u16",        "f16",    "bf16",       "i4",     "u4",    "i2",
        "u2",  "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1"};
    Fixture *f = *state;
    for (size_t from = 0; from < sizeof types / sizeof *types; from++) {
        Writer w = begin_graph(f, 1, types[from]);
        for (size_t to = 0; to < sizeof types / sizeof *types; to++)
            add_map(&w, types[to], arena_printf(&f->arena, "%s to %s", types[from], types[to]),
                    to == from ? "$0[i0]" : arena_printf(&f->arena, "cast(%s, $0[i0])", types[to]));
        run_graph(f, &w);
    }
}

static void test_bits(void **state) {
    static const char *const pairs[][2] = {
        {"f32", "u32"}, {"f32", "i32"}, {"i32", "f32"}, {"u32", "f32"},     {"i32", "u32"},
        {"f64", "u64"}, {"i64", "f64"}, {"f16", "u16"}, {"u16", "f16"},     {"i16", "bf16"},
        {"i8", "u8"},   {"u8", "i8"},   {"i4", "u4"},   {"f8e4m3fn", "u8"}, {"u8", "f8e5m2"}};
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        Writer w = begin_graph(f, 1, pairs[i][0]);
        add_map(&w, pairs[i][1], pairs[i][0],
                arena_printf(&f->arena, "bits(%s, $0[i0])", pairs[i][1]));
        run_graph(f, &w);
    }
}

/* --- constants -------------------------------------------------------------------------------- */

/* y = x * w + b with 9000 weights, so many that they are printed as bytes. */
static Program *large_program(Fixture *f) {
    const int64_t shape[] = {9000};
    Graph *g = graph_new(&f->arena, &f->x, &f->diag, "main");
    float *w = ARENA_ARRAY(&f->arena, shape[0], float);
    uint16_t *b = ARENA_ARRAY(&f->arena, shape[0], uint16_t);
    for (int i = 0; i < shape[0]; i++) {
        w[i] = (float)i * 0.37f - 1000.0f;
        b[i] = (uint16_t)(i * 3);
    }
    Value *x = graph_input(g, "x", DT_f32, 1, shape);
    Value *scaled = g_bin(g, EX_mul, x, graph_const(g, DT_f32, 1, shape, w));
    Value *bias = g_cast(g, graph_const(g, DT_u16, 1, shape, b), DT_f32);
    g->no_fold = true;
    graph_output(g, g_bin(g, EX_add, scaled, bias), "y");
    PassOptions options = {.target = target_find("c"), .verify = true};
    Program *p = run_passes(g, &options);
    assert_non_null(p);
    return p;
}

/* The side file of a program. */
static void write_weights(Fixture *f, const Program *p, const char *name, bool head) {
    size_t bytes;
    const void *block = weights_block(p, &bytes);
    unsigned char *file = arena_alloc(&f->arena, bytes + WEIGHTS_HEAD);
    memset(file, 0, WEIGHTS_HEAD);
    weights_mark(weights_digest(p, NULL), file);
    if (bytes) memcpy(file + WEIGHTS_HEAD, block, bytes);
    write_text(in_folder(f, name), (const char *)file + (head ? 0 : WEIGHTS_HEAD),
               bytes + (head ? WEIGHTS_HEAD : 0));
}

static void test_weights(void **state) {
    Fixture *f = *state;
    Program *p = large_program(f);
    Tensors t = make_tensors(f, p, false);
    assert_true(interp_graph(p->graph, (const void *const *)t.inputs, t.wanted));
    EmitOptions o = {.prefix = "large", .model_name = "large"};
    run_c(f, p, o, &t, "", NULL);
    compile_strictly(f, arena_printf(&f->arena, "-I%s %s", f->folder, in_folder(f, "model.c")));

    Text assembly = text_new(&f->arena);
    write_weights(f, p, "block", false);
    emit_weights_asm(p, "large_weights", in_folder(f, "block"), 64, &assembly);
    write_text(in_folder(f, "weights.s"), text_get(&assembly), assembly.length);
    o.weights_symbol = "large_weights";
    run_c(f, p, o, &t,
          arena_printf(&f->arena, "%s -Iruntime runtime/resident.c", in_folder(f, "weights.s")),
          NULL);

    o.weights_symbol = NULL;
    o.weights_file = "large.weights";
    write_weights(f, p, "large.weights", true);
    run_c(f, p, o, &t, "", in_folder(f, "large.weights"));
    compile_strictly(f, arena_printf(&f->arena, "-I%s %s", f->folder, in_folder(f, "model.c")));
}

/* The weights of another model are refused. */
static void test_wrong_weights(void **state) {
    Fixture *f = *state;
    Program *p = large_program(f);
    EmitOptions o = {.prefix = "large",
                     .model_name = "large",
                     .weights_file = "large.weights",
                     .descriptor = true,
                     .header_name = NULL};
    Text source = text_new(&f->arena);
    emit_c(p, &o, &source, NULL);
    write_text(in_folder(f, "model.c"), text_get(&source), source.length);
    must_run(f,
             arena_printf(&f->arena, "gcc " STRICT " -fPIC -shared -o %s/model.so %s/model.c -lm",
                          f->folder, f->folder));
    void *library = dlopen(arena_printf(&f->arena, "./%s/model.so", f->folder), RTLD_NOW);
    assert_non_null(library);
    const mlcc_model *(*get)(void) = NULL;
    *(void **)&get = dlsym(library, "mlcc_model_v1");
    void *state_of = NULL;
    assert_int_equal(get()->open(&state_of, NULL), MLCC_E_FILE);
    assert_int_equal(get()->open(&state_of, "Makefile"), MLCC_E_FILE);
    assert_non_null(get()->error(state_of));
    get()->close(state_of);

    write_weights(f, p, "other.weights", true);
    size_t length = 0;
    char *bytes = read_text(f, in_folder(f, "other.weights"), &length);
    bytes[9] ^= 1;
    write_text(in_folder(f, "other.weights"), bytes, length);
    assert_int_equal(get()->open(&state_of, in_folder(f, "other.weights")), MLCC_OK);
    Tensors t = make_tensors(f, p, false);
    unsigned char arena[64];
    assert_int_equal(get()->run(state_of, (const void *const *)t.inputs, t.outputs, arena),
                     MLCC_E_FILE);
    t.inputs[0] = NULL;
    assert_int_equal(get()->run(state_of, (const void *const *)t.inputs, t.outputs, arena),
                     MLCC_E_ARGUMENT);
    get()->close(state_of);
    dlclose(library);
}

/* --- sizes of expressions --------------------------------------------------------------------- */

/* A chain in which each step uses the last one three times, once under a guard: printed as a tree
 * it would have 3^40 leaves. */
static void test_sharing_is_linear(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    const int64_t shape[] = {16};
    Graph *g = graph_new(&f->arena, x, &f->diag, "main");
    Value *in = graph_input(g, "x", DT_f32, 1, shape);
    Builder b = build(g, 1, shape);
    const Expr *e = build_in(&b, in);
    for (int i = 0; i < 40; i++) {
        const Expr *limit = ex_num(x, DT_f32, i);
        const Expr *half = ex_mul(x, e, ex_num(x, DT_f32, 0.5));
        e = ex_select(x, ex_lt(x, e, limit), ex_add(x, ex_un(x, EX_tanh, half), limit),
                      ex_sub(x, limit, ex_mul(x, half, half)));
    }
    graph_output(g, build_map(&b, DT_f32, e), "y");
    PassOptions options = {.target = target_find("c"), .verify = true};
    Program *p = run_passes(g, &options);
    assert_non_null(p);
    Text source = text_new(&f->arena);
    EmitOptions o = {.prefix = "chain", .model_name = "chain"};
    emit_c(p, &o, &source, NULL);
    assert_true(source.length < 40000);
    Tensors t = make_tensors(f, p, false);
    assert_true(interp_graph(p->graph, (const void *const *)t.inputs, t.wanted));
    run_c(f, p, o, &t, "", NULL);
}

/* The same program gives the same bytes. */
static void test_same_bytes(void **state) {
    Fixture *f = *state;
    EmitOptions o = {.prefix = "large", .model_name = "large"};
    Text first = text_new(&f->arena), second = text_new(&f->arena);
    emit_c(large_program(f), &o, &first, NULL);
    emit_c(large_program(f), &o, &second, NULL);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
}

int main(int argc, char **argv) {
    bless = argc > 1 && !strcmp(argv[1], "--bless");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden_c, setup, teardown),
        cmocka_unit_test_setup_teardown(test_golden_cuda, setup, teardown),
        cmocka_unit_test_setup_teardown(test_golden_glsl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_float_operators, setup, teardown),
        cmocka_unit_test_setup_teardown(test_int_operators, setup, teardown),
        cmocka_unit_test_setup_teardown(test_casts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_weights, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_weights, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sharing_is_linear, setup, teardown),
        cmocka_unit_test_setup_teardown(test_same_bytes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
