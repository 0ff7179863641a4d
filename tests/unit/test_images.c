/* Images that are decoded before the steps: what a library does with its decoder, which is one here
 * that any stream is an image to: its height, its width, then the first elements. (The real one is
 * tests/e2e/images.sh's.) Run in the repository. */
#include "tests/unit/emit_fixture.h"

#include <dlfcn.h>

enum { MOST = 40, HIGH = 5, WIDE = 6 };

static const char decoder[] =
    "static void mlcc_decode_image(const unsigned char *stream, int32_t length, int32_t most,\n"
    "                              const char *format, int32_t height, int32_t width,\n"
    "                              unsigned char *pixels, int32_t *size) {\n"
    "    const int32_t channels = format[0] == 'G' ? 1 : 3;\n"
    "    size[0] = size[1] = 0;\n"
    "    if (!stream || length < 2 || length > most) return;\n"
    "    size[0] = stream[0];\n"
    "    size[1] = stream[1];\n"
    "    if (size[0] > height || size[1] > width) return;\n"
    "    for (int32_t i = 0; i < size[0] * size[1] * channels; i++)\n"
    "        pixels[i] = (unsigned char)(i + 2 < length ? stream[i + 2] : 200 + i);\n"
    "}\n";

/* out = image + 1, and the second image, which is of a fixed size, twice. */
static Graph *make_graph(Fixture *f) {
    Graph *g = graph_new(&f->arena, &f->x, &f->diag, "main");
    static const int64_t low[2] = {1, 1}, high[2] = {HIGH, WIDE}, two[2] = {2, 2};
    int n = dim_new_symbol(&f->x, "n", 1, MOST);
    const int64_t bytes[1] = {dim_of_symbol(&f->x, n)}, fixed[1] = {6};
    Value *stream = graph_input(g, "stream", DT_u8, 1, bytes);
    Value *other = graph_input(g, "other", DT_u8, 1, fixed);
    graph_set_symbol(g, n, graph_input(g, "n", DT_i32, 0, NULL));
    Value *first = graph_image(g, stream, "RGB", low, high, "first");
    Value *second = graph_image(g, other, "Grayscale", two, two, "second");
    assert_non_null(first);
    assert_non_null(second);
    Value *more = g_bin(g, EX_add, g_cast(g, first, DT_i32), g_scalar(g, DT_i32, 1));
    graph_output_varying(g, more, "more");
    graph_output(g, g_bin(g, EX_add, second, second), "twice");
    assert_int_equal(graph_n_given(g), 3);
    assert_int_equal(graph_n_inputs(g), 9);
    return g;
}

static Program *make_program(Fixture *f, const char *target) {
    PassOptions options = {.target = target_find(target), .verify = true};
    Program *p = run_passes(make_graph(f), &options);
    if (!p) fail_msg("%s", first_message(f));
    return p;
}

static EmitOptions options(void) {
    return (EmitOptions){.prefix = "images",
                         .model_name = "images",
                         .header_name = "model.h",
                         .image_decoder = decoder};
}

typedef struct Run {
    unsigned char stream[MOST], other[6];
    int32_t n[1], more[HIGH * WIDE * 3];
    int64_t shape[3];
    uint8_t twice[4];
} Run;

/* Of an image of this size. */
static Run make_run(int height, int width, int bytes) {
    Run r = {.n = {bytes}, .other = {2, 2, 3, 4, 5, 6}};
    for (int i = 0; i < MOST; i++) r.stream[i] = (unsigned char)(10 + i);
    r.stream[0] = (unsigned char)height;
    r.stream[1] = (unsigned char)width;
    return r;
}

static void check_run(const Run *r, int height, int width) {
    assert_int_equal(r->shape[0], height);
    assert_int_equal(r->shape[1], width);
    assert_int_equal(r->shape[2], 3);
    for (int i = 0; i < height * width * 3; i++)
        assert_int_equal(r->more[i], (uint8_t)(i + 2 < r->n[0] ? 12 + i : 200 + i) + 1);
    for (int i = 0; i < 4; i++) assert_int_equal(r->twice[i], 2 * (3 + i));
}

/* `change`: of the inputs, which is NULL; -1: none. */
static int run_once(const mlcc_model *model, void *state, Run *r, int change) {
    const void *inputs[3] = {r->stream, r->other, r->n};
    void *outputs[3] = {r->more, r->shape, r->twice};
    void *arena = aligned_alloc(64, ((size_t)model->arena_bytes + 63) / 64 * 64);
    if (change >= 0) inputs[change] = NULL;
    int code = model->run(state, inputs, outputs, arena);
    free(arena);
    return code;
}

static void check_library(Fixture *f) {
    void *library = dlopen(arena_printf(&f->arena, "./%s", in_folder(f, "model.so")), RTLD_NOW);
    if (!library) fail_msg("%s", dlerror());
    const mlcc_model *(*get)(void) = NULL;
    *(void **)&get = dlsym(library, "mlcc_model_v1");
    const mlcc_model *model = get();
    void *state = NULL;
    assert_int_equal(model->n_inputs, 3);
    assert_int_equal(model->n_outputs, 3);
    assert_true(model->arena_bytes >= HIGH * WIDE * 3 + 4);
    assert_string_equal(model->inputs[0].name, "stream");
    assert_int_equal(model->open(&state, NULL), MLCC_OK);
    static const int good[][3] = {{HIGH, WIDE, 30}, {1, 1, 2}, {3, 2, MOST}, {HIGH, 1, 10}};
    for (int i = 0; i < 4; i++) {
        Run r = make_run(good[i][0], good[i][1], good[i][2]);
        int code = run_once(model, state, &r, -1);
        if (code != MLCC_OK) fail_msg("run gives %d: %s", code, model->error(state));
        check_run(&r, good[i][0], good[i][1]);
    }
    /* too high, too wide, no image, no bytes, more bytes than there may be */
    static const int bad[][3] = {{HIGH + 1, 1, 9}, {1, WIDE + 1, 9}, {0, 0, 9},
                                 {2, 2, 0},        {2, 2, MOST + 1}, {2, 2, -1}};
    for (int i = 0; i < 6; i++) {
        Run r = make_run(bad[i][0], bad[i][1], bad[i][2]);
        assert_int_equal(run_once(model, state, &r, -1), MLCC_E_ARGUMENT);
        assert_true(*model->error(state));
    }
    Run r = make_run(2, 2, 9);
    for (int i = 0; i < 3; i++) assert_int_equal(run_once(model, state, &r, i), MLCC_E_ARGUMENT);
    r.other[1] = 1; /* smaller than the one size */
    assert_int_equal(run_once(model, state, &r, -1), MLCC_E_ARGUMENT);
    model->close(state);
    dlclose(library);
}

static void write_c(Fixture *f, bool descriptor, bool threads) {
    Text source = text_new(&f->arena), header = text_new(&f->arena);
    EmitOptions o = options();
    o.descriptor = descriptor;
    o.threads = threads;
    emit_c(make_program(f, "c"), &o, &source, &header);
    assert_int_equal(f->diag.n_errors, 0);
    write_text(in_folder(f, "model.c"), text_get(&source), source.length);
    write_text(in_folder(f, "model.h"), text_get(&header), header.length);
}

static void test_library(void **state) {
    Fixture *f = *state;
    for (int threads = 0; threads < 2; threads++) {
        write_c(f, true, threads);
        const char *flags = threads ? "-std=gnu11 -Iruntime runtime/team.c" : STRICT;
        must_run(f, arena_printf(&f->arena,
                                 "gcc %s -fsanitize=undefined -fsanitize-undefined-trap-on-error "
                                 "-fPIC -shared -Iinclude -I%s -o %s/model.so %s/model.c -lm "
                                 "-lpthread",
                                 flags, f->folder, f->folder, f->folder));
        check_library(f);
    }
}

/* The C of callers without a descriptor. */
static void test_source(void **state) {
    static const char caller[] =
        "#include \"model.h\"\n"
        "static uint8_t stream[IMAGES_STREAM_SIZE] = {3, 2, 7}, twice[IMAGES_TWICE_SIZE];\n"
        "static const uint8_t other[IMAGES_OTHER_SIZE] = {2, 2, 1, 2, 3, 4};\n"
        "static int32_t more[IMAGES_MORE_SIZE];\n"
        "static int64_t shape[3];\n"
        "static _Alignas(64) unsigned char arena[IMAGES_ARENA_BYTES];\n"
        "int main(void) {\n"
        "    const int32_t n[1] = {40}, none[1] = {0};\n"
        "    if (images_run(stream, other, n, more, shape, twice, arena) != IMAGES_OK) return 1;\n"
        "    if (shape[0] != 3 || shape[1] != 2 || more[0] != 8 || twice[3] != 8) return 2;\n"
        "    if (images_run(stream, other, n, more, shape, twice, 0) == IMAGES_OK) return 3;\n"
        "    if (images_run(stream, other, 0, more, shape, twice, arena) == IMAGES_OK) return 4;\n"
        "    if (images_run(stream, other, none, more, shape, twice, arena) == IMAGES_OK)\n"
        "        return 5;\n"
        "    stream[0] = 6;\n"
        "    return images_run(stream, other, n, more, shape, twice, arena) != IMAGES_E_ARGUMENT;\n"
        "}\n";
    Fixture *f = *state;
    write_c(f, false, false);
    write_text(in_folder(f, "main.c"), caller, strlen(caller));
    must_run(f, arena_printf(&f->arena,
                             "gcc " STRICT " -c -o %s/model.o %s/model.c && gcc -std=c11 -Wall "
                             "-Werror -fsanitize=address,undefined -o %s/main %s/main.c "
                             "%s/model.c -lm && %s/main",
                             f->folder, f->folder, f->folder, f->folder, f->folder, f->folder));
}

static void test_cuda(void **state) {
    Fixture *f = *state;
    Program *p = make_program(f, "cuda");
    Text kernels = text_new(&f->arena), host = text_new(&f->arena);
    EmitOptions o = options();
    emit_cuda(p, &o, &kernels);
    emit_gpu_host(p, target_find("cuda"), &o, 0, NULL, true, &host);
    write_text(in_folder(f, "kernels.c"), text_get(&kernels), kernels.length);
    write_text(in_folder(f, "host.c"), text_get(&host), host.length);
    must_run(f, arena_printf(&f->arena,
                             "gcc -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -Iruntime "
                             "-Iinclude -include cuda_emu.h -o %s/model.so %s/kernels.c %s/host.c "
                             "runtime/cuda_emu.c -lm -lpthread",
                             f->folder, f->folder, f->folder));
    check_library(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_library, setup, teardown),
        cmocka_unit_test_setup_teardown(test_source, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cuda, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
