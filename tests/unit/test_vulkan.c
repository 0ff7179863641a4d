/* The Vulkan launcher, with programs written by hand: results, hazards, staging, loops, failures.
 *
 * The launcher is compiled into the test, so that its options and counters can be reached. Kernels
 * are GLSL, compiled when the test starts; without the plugin, a loader or a device the tests that
 * need them are skipped. Where the validation layer is installed it must have nothing to say.
 */
#include "runtime/vulkan.c"

#include "codegen/glsl_compile.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const mlcc_model empty_model = {.name = "empty"};
const mlcc_gpu_program mlcc_program = {.model = &empty_model}; /* what mlcc_gpu_open opens */

static const Options plain = {"libvulkan.so.1", 0};
static const Options staged = {"libvulkan.so.1", 1};

#define HEAD                                                                                       \
    "#version 450\n"                                                                               \
    "#extension GL_EXT_shader_explicit_arithmetic_types : require\n"                               \
    "#extension GL_EXT_shader_8bit_storage : require\n"                                            \
    "#extension GL_EXT_shader_16bit_storage : require\n"
#define BUFFER(n, type)                                                                            \
    "layout(std430, set = 0, binding = " #n ") buffer B" #n " { " type " a" #n "[]; };\n"
#define GROUP(x, y) "layout(local_size_x = " #x ", local_size_y = " #y ") in;\n"

/* TYPES is last and most programs end before it: not every device has all the types in it. */
enum { ADD, GEMM, STEP, TYPES, N_KERNELS };

static const char *const sources[N_KERNELS] = {
    /* infinities and NaN must survive the driver's algebra */
    [ADD] = HEAD
    "#extension GL_EXT_spirv_intrinsics : require\n"
    "spirv_execution_mode(extensions = [\"SPV_KHR_float_controls\"], capabilities = [4466],\n"
    "  4461, 32);\n" GROUP(64, 1) BUFFER(0, "float") BUFFER(1, "float")
        BUFFER(2, "float") "void main() { uint i = gl_GlobalInvocationID.x;\n"
                           "  if (i < a2.length()) a2[i] = a0[i] + a1[i]; }\n",
    /* 48x48x48 in tiles of 16 */
    [GEMM] = HEAD GROUP(16, 16) BUFFER(0, "float") BUFFER(1, "float") BUFFER(
        2, "float") "shared float ta[16][16]; shared float tb[16][16];\n"
                    "void main() {\n"
                    "  uint x = gl_LocalInvocationID.x, y = gl_LocalInvocationID.y;\n"
                    "  uint col = gl_GlobalInvocationID.x, row = gl_GlobalInvocationID.y;\n"
                    "  float sum = 0.0;\n"
                    "  for (uint k = 0u; k < 48u; k += 16u) {\n"
                    "    ta[y][x] = a0[row * 48u + k + x]; tb[y][x] = a1[(k + y) * 48u + col];\n"
                    "    barrier();\n"
                    "    for (uint i = 0u; i < 16u; i++) sum += ta[y][i] * tb[i][x];\n"
                    "    barrier();\n"
                    "  }\n"
                    "  a2[row * 48u + col] = sum; }\n",
    /* a1 = 3 a1 + a0[inner counter] + 10 outer counter */
    [STEP] = HEAD GROUP(64, 1) BUFFER(0, "float") BUFFER(
        1, "float") "layout(push_constant) uniform P { int outer; int inner; };\n"
                    "void main() { uint i = gl_GlobalInvocationID.x;\n"
                    "  if (i < 64u) a1[i] = 3.0 * a1[i] + a0[inner] + 10.0 * float(outer); }\n",
    [TYPES] = HEAD GROUP(64, 1) BUFFER(0, "int8_t") BUFFER(1, "float16_t") BUFFER(2, "int64_t")
        BUFFER(3, "double") BUFFER(4, "int16_t") BUFFER(
            5, "uint8_t") "void main() { uint i = gl_GlobalInvocationID.x; if (i >= 5u) return;\n"
                          "  int8_t v = a0[i] * int8_t(3);\n"
                          "  a1[i] = float16_t(v) * 0.5hf;\n"
                          "  a2[i] = int64_t(v) << 33;\n"
                          "  a3[i] = double(v) * 0.1lf;\n"
                          "  a4[i] = int16_t(v) * int16_t(200);\n"
                          "  a5[i] = uint8_t(v) + uint8_t(1); }\n",
};

static mlcc_gpu_kernel kernels[N_KERNELS] = {
    [ADD] = {.name = "add", .block = {64, 1, 1}, .n_args = 3, .write_mask = 4},
    [GEMM] = {.name = "gemm", .block = {16, 16, 1}, .n_args = 3, .write_mask = 4},
    [STEP] = {.name = "step", .block = {64, 1, 1}, .n_args = 2, .n_scalars = 2, .write_mask = 2},
    [TYPES] = {.name = "types", .block = {64, 1, 1}, .n_args = 6, .write_mask = 62},
};

static Arena arena;
static bool have_kernels, have_device;
/* A state that stays open to the end, so that the loader keeps the driver loaded: opening is four
 * times as fast then, and a leak checker can tell the driver's leaks from ours. */
static void *held;

#if defined(__SANITIZE_ADDRESS__)
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libvulkan\nleak:libLLVM\nleak:libdrm\n";
}
static const bool leak_checker = true;
#else
static const bool leak_checker = false;
#endif

static int compile_kernels(void **unused) {
    (void)unused;
    arena_init(&arena, 0, NULL, NULL);
    Diag diag;
    diag_init(&diag, &arena, "test_vulkan");
    GlslCompiler *glsl = glsl_open(&arena, &diag, NULL);
    have_kernels = glsl != NULL;
    for (int i = 0; glsl && i < N_KERNELS; i++) {
        GlslWords words;
        have_kernels &= glsl_compile(glsl, kernels[i].name, sources[i], &words);
        kernels[i].spirv = words.words;
        kernels[i].spirv_bytes = (uint32_t)words.bytes;
    }
    glsl_close(glsl);
    diag_print(&diag);
    have_device = open_program(&held, &mlcc_program, NULL, &plain) == MLCC_OK;
    if (!have_device) print_message("no Vulkan: %s\n", mlcc_gpu_error(held));
    return 0;
}

static int free_kernels(void **unused) {
    (void)unused;
    arena_free(&arena);
    return 0;
}

static void need_device(void) {
    if (!have_kernels || !have_device) skip();
}

static State *open_ok(const mlcc_gpu_program *program, const char *weights,
                      const Options *options) {
    void *state;
    int code = open_program(&state, program, weights, options);
    if (code != MLCC_OK) fail_msg("open: %d %s", code, mlcc_gpu_error(state));
    return state;
}

/* Opens a program that must fail with `code` and a line that holds `words`. */
static void open_fails(const mlcc_gpu_program *program, const Options *options, int code,
                       const char *words) {
    void *state;
    assert_int_equal(open_program(&state, program, NULL, options), code);
    if (!strstr(mlcc_gpu_error(state), words))
        fail_msg("'%s' says nothing of '%s'", mlcc_gpu_error(state), words);
    assert_null(strchr(mlcc_gpu_error(state), '\n'));
    assert_int_equal(mlcc_gpu_run(state, NULL, NULL, NULL), MLCC_E_DRIVER);
    mlcc_gpu_close(state);
}

static void run_ok(State *state, const void *const *inputs, void *const *outputs) {
    int code = mlcc_gpu_run(state, inputs, outputs, NULL);
    if (code != MLCC_OK) fail_msg("run: %d %s", code, mlcc_gpu_error(state));
}

/* ---- add: y = a + b, 1000 floats ---- */

#define TENSOR(name, n)                                                                            \
    { name, 1, 1, NULL, (n) * sizeof(float) }
static const mlcc_tensor add_inputs[] = {TENSOR("a", 1000), TENSOR("b", 1000)};
static const mlcc_tensor add_output = TENSOR("y", 1000);
static const mlcc_model add_model = {
    .name = "add", .n_inputs = 2, .n_outputs = 1, .inputs = add_inputs, .outputs = &add_output};
static const mlcc_gpu_arg add_args[] = {{MLCC_SPACE_INPUT, 0, 0, 4000},
                                        {MLCC_SPACE_INPUT, 1, 0, 4000},
                                        {MLCC_SPACE_OUTPUT, 0, 0, 4000}};
static const mlcc_gpu_step add_step = {.kernel = ADD, .grid = {16, 1, 1}};
static const mlcc_gpu_program add_program = {.model = &add_model,
                                             .n_kernels = TYPES,
                                             .n_steps = 1,
                                             .kernels = kernels,
                                             .args = add_args,
                                             .steps = &add_step};

/* Opens, runs `runs` times with other numbers each, and closes. Returns how many results are wrong.
 */
static int add_some(const Options *options, int runs) {
    float a[1000], b[1000], y[1000];
    int wrong = 0;
    void *state;
    if (open_program(&state, &add_program, NULL, options) != MLCC_OK) wrong = -1;
    for (int r = 0; wrong == 0 && r < runs; r++) {
        for (int i = 0; i < 1000; i++) {
            a[i] = (float)(i * (r + 1));
            b[i] = 0.5f + (float)r;
        }
        const void *inputs[] = {a, b};
        void *outputs[] = {y};
        if (mlcc_gpu_run(state, inputs, outputs, NULL) != MLCC_OK) wrong = -1;
        for (int i = 0; wrong >= 0 && i < 1000; i++) wrong += y[i] != a[i] + b[i];
    }
    mlcc_gpu_close(state);
    return wrong;
}

static void add_runs_again_and_again(void **unused) {
    (void)unused;
    need_device();
    assert_int_equal(add_some(&plain, 3), 0);
}

/* inf + -inf is not a number. Without the mode in ADD's source a driver may reckon otherwise. */
static void infinities_stay(void **unused) {
    (void)unused;
    need_device();
    static float a[1000], b[1000], y[1000];
    for (int i = 0; i < 1000; i++) {
        a[i] = INFINITY;
        b[i] = i % 2 ? -INFINITY : 1;
    }
    const void *inputs[] = {a, b};
    void *outputs[] = {y};
    State *state = open_ok(&add_program, NULL, &plain);
    run_ok(state, inputs, outputs);
    mlcc_gpu_close(state);
    for (int i = 0; i < 1000; i++) assert_true(i % 2 ? isnan(y[i]) : isinf(y[i]));
}

static void add_through_staging_buffers(void **unused) {
    (void)unused;
    need_device();
    assert_int_equal(add_some(&staged, 3), 0);
    State *state = open_ok(&add_program, NULL, &staged);
    assert_null(state->blocks[MLCC_SPACE_INPUT].host);
    assert_non_null(state->staging[0].host);
    assert_non_null(state->staging[1].host);
    mlcc_gpu_close(state);
}

static void missing_tensors(void **unused) {
    (void)unused;
    need_device();
    float y[1000];
    State *state = open_ok(&add_program, NULL, &plain);
    const void *inputs[] = {y, NULL};
    void *outputs[] = {y};
    assert_int_equal(mlcc_gpu_run(state, inputs, outputs, NULL), MLCC_E_ARGUMENT);
    assert_string_equal(mlcc_gpu_error(state), "input 'b' is null");
    assert_int_equal(mlcc_gpu_run(state, NULL, outputs, NULL), MLCC_E_ARGUMENT);
    inputs[1] = y;
    outputs[0] = NULL;
    assert_int_equal(mlcc_gpu_run(state, inputs, outputs, NULL), MLCC_E_ARGUMENT);
    assert_string_equal(mlcc_gpu_error(state), "output 'y' is null");
    mlcc_gpu_close(state);
}

static void *add_thread(void *wrong) {
    *(int *)wrong = add_some(&plain, 4);
    return NULL;
}

static void two_threads(void **unused) {
    (void)unused;
    need_device();
    pthread_t threads[2];
    int wrong[2] = {-1, -1};
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, add_thread, &wrong[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(wrong[0], 0);
    assert_int_equal(wrong[1], 0);
}

/* ---- gemm: y = a . w, w among the weights at offset 512 ---- */

enum { N = 48, GEMM_BYTES = N * N * 4, WEIGHT_BYTES = 512 + GEMM_BYTES };
static float gemm_weights[128 + N * N];
static const mlcc_tensor gemm_input = TENSOR("a", N *N), gemm_output = TENSOR("y", N *N);
static const mlcc_model gemm_model = {.name = "gemm",
                                      .n_inputs = 1,
                                      .n_outputs = 1,
                                      .inputs = &gemm_input,
                                      .outputs = &gemm_output,
                                      .weight_bytes = WEIGHT_BYTES};
static const mlcc_gpu_arg gemm_args[] = {{MLCC_SPACE_INPUT, 0, 0, GEMM_BYTES},
                                         {MLCC_SPACE_WEIGHTS, 0, 512, GEMM_BYTES},
                                         {MLCC_SPACE_OUTPUT, 0, 0, GEMM_BYTES}};
static const mlcc_gpu_step gemm_step = {.kernel = GEMM, .grid = {3, 3, 1}};

static mlcc_gpu_program gemm_program(bool side_file) {
    for (int i = 0; i < 128 + N * N; i++) gemm_weights[i] = (float)(i % 7) - 3;
    return (mlcc_gpu_program){
        .model = &gemm_model,
        .n_kernels = TYPES,
        .n_steps = 1,
        .kernels = kernels,
        .args = gemm_args,
        .steps = &gemm_step,
        .weights = side_file ? NULL : gemm_weights,
        .weights_digest = mlcc_gpu_digest(MLCC_GPU_DIGEST_SEED, gemm_weights, sizeof gemm_weights)};
}

static void check_gemm(const mlcc_gpu_program *program, const char *file, const Options *options) {
    static float a[N * N], y[N * N];
    for (int i = 0; i < N * N; i++) a[i] = (float)(i % 5);
    const void *inputs[] = {a};
    void *outputs[] = {y};
    State *state = open_ok(program, file, options);
    run_ok(state, inputs, outputs);
    mlcc_gpu_close(state);
    for (int row = 0; row < N; row++) {
        for (int col = 0; col < N; col++) {
            float sum = 0;
            for (int k = 0; k < N; k++) sum += a[row * N + k] * gemm_weights[128 + k * N + col];
            assert_true(y[row * N + col] == sum); /* small integers: exact */
        }
    }
}

static void gemm_with_weights_inside(void **unused) {
    (void)unused;
    need_device();
    mlcc_gpu_program program = gemm_program(false);
    check_gemm(&program, NULL, &plain);
    check_gemm(&program, NULL, &staged);
}

static void gemm_with_a_side_file(void **unused) {
    (void)unused;
    need_device();
    mlcc_gpu_program program = gemm_program(true);
    char path[] = "/tmp/mlcc-weights-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unsigned char head[MLCC_GPU_WEIGHTS_HEAD] = "MLCCWTS2";
    for (int i = 0; i < 8; i++) head[8 + i] = (unsigned char)(program.weights_digest >> 8 * i);
    assert_int_equal(write(fd, head, sizeof head), sizeof head);
    assert_int_equal(write(fd, gemm_weights, sizeof gemm_weights), sizeof gemm_weights);
    close(fd);
    check_gemm(&program, path, &plain);
    check_gemm(&program, path, &staged);
    unlink(path);
    open_fails(&program, &plain, MLCC_E_FILE, "side file");
}

/* ---- loop: an accumulator in the arena, two loops, counters as scalars ---- */

static void loops_count(void **unused) {
    (void)unused;
    need_device();
    static const mlcc_tensor inputs[] = {TENSOR("x", 64), TENSOR("zero", 64)};
    static const mlcc_tensor output = TENSOR("y", 64);
    static const mlcc_model model = {
        .name = "loops", .n_inputs = 2, .n_outputs = 1, .inputs = inputs, .outputs = &output};
    static const mlcc_gpu_arg args[] = {
        {MLCC_SPACE_INPUT, 1, 0, 256},   {MLCC_SPACE_INPUT, 1, 0, 256},
        {MLCC_SPACE_ARENA, 0, 256, 256}, {MLCC_SPACE_INPUT, 0, 0, 256},
        {MLCC_SPACE_ARENA, 0, 256, 256}, {MLCC_SPACE_ARENA, 0, 256, 256},
        {MLCC_SPACE_INPUT, 1, 0, 256},   {MLCC_SPACE_OUTPUT, 0, 0, 256}};
    static const mlcc_gpu_step steps[] = {
        {.kind = MLCC_STEP_LAUNCH, .kernel = ADD, .grid = {1, 1, 1}, .first_arg = 0},
        {.kind = MLCC_STEP_LOOP, .trips = 3},
        {.kind = MLCC_STEP_LOOP, .trips = 4},
        {.kernel = STEP, .grid = {1, 1, 1}, .first_arg = 3, .scalar = {0, 1}},
        {.kind = MLCC_STEP_END},
        {.kind = MLCC_STEP_END},
        {.kind = MLCC_STEP_LOOP, .trips = 0},
        {.kernel = STEP, .grid = {1, 1, 1}, .first_arg = 3, .scalar = {0, 0}},
        {.kind = MLCC_STEP_END},
        {.kernel = ADD, .grid = {1, 1, 1}, .first_arg = 5}};
    const mlcc_gpu_program program = {.model = &model,
                                      .n_kernels = TYPES,
                                      .n_steps = sizeof steps / sizeof *steps,
                                      .kernels = kernels,
                                      .args = args,
                                      .steps = steps,
                                      .arena_bytes = 512};
    float x[64], zero[64] = {0}, y[64], want = 0;
    for (int i = 0; i < 64; i++) x[i] = (float)(i + 1);
    for (int outer = 0; outer < 3; outer++)
        for (int inner = 0; inner < 4; inner++) want = 3 * want + x[inner] + 10 * (float)outer;
    const void *in[] = {x, zero};
    void *out[] = {y};
    State *state = open_ok(&program, NULL, &plain);
    assert_int_equal(state->n_launches, 14);
    assert_int_equal(state->n_barriers, 13); /* each needs what came before */
    for (int r = 0; r < 2; r++) {
        run_ok(state, in, out);
        for (int i = 0; i < 64; i++) assert_true(y[i] == want);
    }
    mlcc_gpu_close(state);
}

/* ---- hazards: barriers where they are due and nowhere else ---- */

static void hazards(void **unused) {
    (void)unused;
    need_device();
    enum { BYTES = 4000, STRIDE = 4096 };
    static const mlcc_tensor outputs[] = {TENSOR("p", 1000), TENSOR("q", 1000)};
    static const mlcc_model model = {
        .name = "hazards", .n_inputs = 2, .n_outputs = 2, .inputs = add_inputs, .outputs = outputs};
#define A                                                                                          \
    { MLCC_SPACE_INPUT, 0, 0, BYTES }
#define B                                                                                          \
    { MLCC_SPACE_INPUT, 1, 0, BYTES }
#define T(n)                                                                                       \
    { MLCC_SPACE_ARENA, 0, (n)*STRIDE, BYTES }
    static const mlcc_gpu_arg args[] = {
        A,    B,    T(0),                             /* t0 = a + b */
        A,    A,    T(1),                             /* t1 = 2a: with the first */
        T(0), T(1), T(2),                             /* t2 = 3a + b: read after write */
        T(0), B,    {MLCC_SPACE_OUTPUT, 0, 0, BYTES}, /* p = a + 2b: with the third */
        B,    B,    T(0),                             /* t0 = 2b: write after read, and */
        T(2), T(0), {MLCC_SPACE_OUTPUT, 1, 0, BYTES}, /* q = 3a + 3b: read after write */
        A,    B,    T(2),                             /* t2 = a + b: write after read */
        B,    A,    T(2),                             /* t2 = b + a: write after write */
    };
#undef A
#undef B
#undef T
    mlcc_gpu_step steps[8];
    for (uint32_t i = 0; i < 8; i++)
        steps[i] = (mlcc_gpu_step){.kernel = ADD, .grid = {16, 1, 1}, .first_arg = 3 * i};
    static const uint32_t barriers[] = {0, 0, 1, 1, 2, 3, 4, 5};
    mlcc_gpu_program program = {.model = &model,
                                .n_kernels = TYPES,
                                .kernels = kernels,
                                .args = args,
                                .steps = steps,
                                .arena_bytes = 3 * STRIDE};
    for (program.n_steps = 1; program.n_steps <= 8; program.n_steps++) {
        State *state = open_ok(&program, NULL, &plain);
        assert_int_equal(state->n_barriers, barriers[program.n_steps - 1]);
        mlcc_gpu_close(state);
    }
    program.n_steps = 8;
    float a[1000], b[1000], p[1000], q[1000];
    for (int i = 0; i < 1000; i++) {
        a[i] = (float)i;
        b[i] = (float)(i % 9);
    }
    const void *in[] = {a, b};
    void *out[] = {p, q};
    State *state = open_ok(&program, NULL, &staged);
    run_ok(state, in, out);
    mlcc_gpu_close(state);
    for (int i = 0; i < 1000; i++) {
        assert_true(p[i] == a[i] + 2 * b[i]);
        assert_true(q[i] == 3 * a[i] + 3 * b[i]);
    }
}

/* More launches that touch nothing of each other than are remembered between barriers. */
static void many_independent_launches(void **unused) {
    (void)unused;
    need_device();
    enum { LAUNCHES = MAX_ACCESSES + 44, BYTES = 256 };
    static mlcc_gpu_arg args[LAUNCHES * 3];
    static mlcc_gpu_step steps[LAUNCHES];
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        args[3 * i] = args[3 * i + 1] = (mlcc_gpu_arg){MLCC_SPACE_INPUT, 0, 0, BYTES};
        args[3 * i + 2] = (mlcc_gpu_arg){MLCC_SPACE_ARENA, 0, (uint64_t)i * BYTES, BYTES};
        steps[i] = (mlcc_gpu_step){.kernel = ADD, .grid = {1, 1, 1}, .first_arg = 3 * i};
    }
    const mlcc_gpu_program program = {.model = &add_model,
                                      .n_kernels = TYPES,
                                      .n_steps = LAUNCHES,
                                      .kernels = kernels,
                                      .args = args,
                                      .steps = steps,
                                      .arena_bytes = LAUNCHES * BYTES};
    State *state = open_ok(&program, NULL, &plain);
    assert_int_equal(state->n_barriers, 1);
    assert_int_equal(state->n_accesses, LAUNCHES - MAX_ACCESSES);
    mlcc_gpu_close(state);
}

/* ---- element types that need features; odd sizes; tensors without elements ---- */

static void small_and_large_elements(void **unused) {
    (void)unused;
    need_device();
    static const mlcc_tensor input = {"x", 3, 1, NULL, 5};
    static const mlcc_tensor outputs[] = {{"half", 10, 1, NULL, 10},   {"long", 7, 1, NULL, 40},
                                          {"double", 11, 1, NULL, 40}, {"short", 5, 1, NULL, 10},
                                          {"byte", 2, 1, NULL, 5},     {"none", 1, 1, NULL, 0}};
    static const mlcc_model model = {
        .name = "types", .n_inputs = 1, .n_outputs = 6, .inputs = &input, .outputs = outputs};
    static const mlcc_gpu_arg args[] = {
        {MLCC_SPACE_INPUT, 0, 0, 5},   {MLCC_SPACE_OUTPUT, 0, 0, 10}, {MLCC_SPACE_OUTPUT, 1, 0, 40},
        {MLCC_SPACE_OUTPUT, 2, 0, 40}, {MLCC_SPACE_OUTPUT, 3, 0, 10}, {MLCC_SPACE_OUTPUT, 4, 0, 5},
        {MLCC_SPACE_INPUT, 0, 0, 5},   {MLCC_SPACE_INPUT, 0, 0, 5},   {MLCC_SPACE_OUTPUT, 5, 0, 0}};
    static const mlcc_gpu_step steps[] = {{.kernel = TYPES, .grid = {1, 1, 1}},
                                          {.kernel = ADD, .grid = {0, 1, 1}, .first_arg = 6}};
    const mlcc_gpu_program program = {.model = &model,
                                      .n_kernels = N_KERNELS,
                                      .n_steps = 2,
                                      .kernels = kernels,
                                      .args = args,
                                      .steps = steps};
    static const int8_t x[5] = {1, -2, 3, 40, 50}; /* times 3: the last wraps to -106 */
    static const int8_t v[5] = {3, -6, 9, 120, -106};
    uint16_t half[5];
    int64_t wide[5];
    double real[5];
    int16_t narrow[5];
    uint8_t byte[5];
    const void *in[] = {x};
    void *out[] = {half, wide, real, narrow, byte, NULL};
    State *state = open_ok(&program, NULL, &plain);
    run_ok(state, in, out);
    mlcc_gpu_close(state);
    static const uint16_t halves[5] = {0x3e00, 0xc200, 0x4480, 0x5380, 0xd2a0};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(half[i], halves[i]);
        assert_true(wide[i] == (int64_t)v[i] * (INT64_C(1) << 33));
        assert_true(real[i] == v[i] * 0.1);
        assert_int_equal(narrow[i], (int16_t)(v[i] * 200));
        assert_int_equal(byte[i], (uint8_t)(v[i] + 1));
    }
}

static void an_empty_program(void **unused) {
    (void)unused;
    need_device();
    void *state;
    assert_int_equal(mlcc_gpu_open(&state, NULL), MLCC_OK);
    assert_int_equal(mlcc_gpu_run(state, NULL, NULL, NULL), MLCC_OK);
    assert_string_equal(mlcc_gpu_error(state), "");
    mlcc_gpu_close(state);
}

/* ---- failures ---- */

static void no_loader(void **unused) {
    (void)unused;
    const Options options = {"libnothing.so.1", 0};
    open_fails(&add_program, &options, MLCC_E_DRIVER,
               "libnothing.so.1 not found: install libvulkan1 and a driver");
    const Options other = {"libm.so.6", 0};
    open_fails(&add_program, &other, MLCC_E_DRIVER, "libm.so.6 has no vkGetInstanceProcAddr");
    mlcc_gpu_close(NULL);
    assert_string_equal(mlcc_gpu_error(NULL), "out of host memory");
    assert_int_equal(mlcc_gpu_open(NULL, NULL), MLCC_E_ARGUMENT);
    assert_int_equal(mlcc_gpu_run(NULL, NULL, NULL, NULL), MLCC_E_ARGUMENT);
}

/* A kernel that says it needs SPIR-V capability `number`, and no more. */
static void capability(uint32_t number, const char *words) {
    const uint32_t spirv[] = {0x07230203, 0x00010300,    0,     1, 0, 2u << 16 | 17,
                              1,          2u << 16 | 17, number};
    const mlcc_gpu_kernel kernel = {
        .name = "k", .block = {1, 1, 1}, .spirv = spirv, .spirv_bytes = sizeof spirv};
    const mlcc_gpu_program program = {.model = &empty_model, .n_kernels = 1, .kernels = &kernel};
    open_fails(&program, &plain, MLCC_E_DRIVER, words);
}

static void a_device_that_does_not_fit(void **unused) {
    (void)unused;
    need_device();
    capability(9999, "kernel 'k' needs SPIR-V capability 9999");
    State *state = open_ok(&mlcc_program, NULL, &plain);
    const VkPhysicalDeviceLimits limits = state->gpu.facts.properties.properties.limits;
    bool clustered = state->gpu.facts.subgroups.supportedOperations & 0x40;
    mlcc_gpu_close(state);
    if (!clustered)
        capability(67, "lacks VK_SUBGROUP_FEATURE_CLUSTERED_BIT, which kernel 'k' needs");

    mlcc_gpu_kernel kernel = kernels[ADD];
    mlcc_gpu_arg args[3];
    memcpy(args, add_args, sizeof args);
    mlcc_gpu_step step = add_step;
    mlcc_gpu_program program = add_program;
    step.kernel = 0;
    program.n_kernels = 1;
    program.kernels = &kernel;
    program.args = args;
    program.steps = &step;
    args[0].bytes = (uint64_t)limits.maxStorageBufferRange + 1;
    open_fails(&program, &plain, MLCC_E_DRIVER, "cannot run kernel 'add': a tensor of");
    args[0].bytes = 4000;
    if (limits.maxComputeWorkGroupCount[1] < UINT32_MAX) {
        step.grid[1] = limits.maxComputeWorkGroupCount[1] + 1;
        open_fails(&program, &plain, MLCC_E_DRIVER, "in dimension 1");
        step.grid[1] = 1;
    }
    kernel.block[2] = 1u << 30;
    open_fails(&program, &plain, MLCC_E_DRIVER, "threads, at most");
    kernel.block[2] = 1;
    kernel.n_args = 33;
    open_fails(&program, &plain, MLCC_E_DRIVER, "33 buffers, at most");
}

static void too_much(void **unused) {
    (void)unused;
    need_device();
    mlcc_gpu_program program = add_program;
    program.arena_bytes = UINT64_C(1) << 50;
    open_fails(&program, &plain, MLCC_E_MEMORY, "bytes for intermediate tensors");
    static const mlcc_gpu_step steps[] = {{.kind = MLCC_STEP_LOOP, .trips = 5000000},
                                          {.kernel = ADD, .grid = {16, 1, 1}},
                                          {.kind = MLCC_STEP_END}};
    program = add_program;
    program.steps = steps;
    program.n_steps = 3;
    open_fails(&program, &plain, MLCC_E_MEMORY, "launches more than");
    program.n_steps = 2;
    open_fails(&program, &plain, MLCC_E_DEVICE, "ill-formed");
}

static void failed_calls_are_named(void **unused) {
    (void)unused;
    Gpu gpu = {.program = &add_program};
    assert_int_equal(
        call_failed(&gpu, "vkCreateComputePipelines", VK_ERROR_INITIALIZATION_FAILED, "add"),
        MLCC_E_DRIVER);
    assert_string_equal(gpu.message.text,
                        "vkCreateComputePipelines: VK_ERROR_INITIALIZATION_FAILED, add");
    assert_int_equal(call_failed(&gpu, "vkQueueSubmit(a, b)", VK_ERROR_DEVICE_LOST, ""),
                     MLCC_E_DEVICE);
    assert_string_equal(gpu.message.text, "vkQueueSubmit: VK_ERROR_DEVICE_LOST");
}

/* The programs above once more under the validation layer, with its search for hazards: it must
 * find nothing. Skipped where the layer is not installed. */
static void nothing_to_validate(void **unused) {
    need_device();
    if (leak_checker) skip();
    char folder[] = "/tmp/mlcc-vulkan-XXXXXX", settings[64], log[64], line[512] = "";
    assert_non_null(mkdtemp(folder));
    snprintf(settings, sizeof settings, "%s/vk_layer_settings.txt", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    FILE *file = fopen(settings, "w");
    assert_non_null(file);
    fprintf(file,
            "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
            "khronos_validation.report_flags = error,warn\n"
            "khronos_validation.log_filename = %s\n"
            "khronos_validation.enables = "
            "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n",
            log);
    fclose(file);
    setenv("VK_LAYER_SETTINGS_PATH", folder, 1);
    setenv("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation", 1);
    add_runs_again_and_again(unused);
    add_through_staging_buffers(unused);
    gemm_with_weights_inside(unused);
    loops_count(unused);
    hazards(unused);
    small_and_large_elements(unused);
    unsetenv("VK_LAYER_SETTINGS_PATH");
    unsetenv("VK_INSTANCE_LAYERS");
    file = fopen(log, "r");
    if (file) {
        if (!fgets(line, sizeof line, file)) line[0] = 0;
        fclose(file);
    }
    unlink(log);
    unlink(settings);
    rmdir(folder);
    if (!file) skip();
    assert_string_equal(line, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_runs_again_and_again),
        cmocka_unit_test(infinities_stay),
        cmocka_unit_test(add_through_staging_buffers),
        cmocka_unit_test(missing_tensors),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(gemm_with_weights_inside),
        cmocka_unit_test(gemm_with_a_side_file),
        cmocka_unit_test(loops_count),
        cmocka_unit_test(hazards),
        cmocka_unit_test(many_independent_launches),
        cmocka_unit_test(small_and_large_elements),
        cmocka_unit_test(an_empty_program),
        cmocka_unit_test(no_loader),
        cmocka_unit_test(a_device_that_does_not_fit),
        cmocka_unit_test(too_much),
        cmocka_unit_test(failed_calls_are_named),
        cmocka_unit_test(nothing_to_validate),
    };
    return cmocka_run_group_tests_name("vulkan", tests, compile_kernels, free_kernels);
}
