/* The CUDA launcher against fake_libcuda.c: the choice of the image, the steps, memory, graphs, and
 * what happens when each call of the driver fails in turn. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/cuda.c"

/* The beginning of struct Fake in fake_libcuda.c. */
typedef struct Fake {
    int n_devices, majors[4], minors[4];
    int refuse_images;
    char fail_call[64];
    int fail_nth, fail_code;
    int calls;
    int live;
    int pushed;
    int capturing;
    int device;
    int launches, replays;
    char image[32];
} Fake;

static Fake *fake;
static void (*fake_reset)(void);

/* v = x * w; for row < 2 for column < 3: v = v * w + 10 * row + column; y = v * x. */
static const mlcc_gpu_arg args[] = {
    {MLCC_SPACE_INPUT, 0, 0, 256},     {MLCC_SPACE_WEIGHTS, 0, 256, 256},
    {MLCC_SPACE_STATE, 0, 256, 256},   {MLCC_SPACE_STATE, 0, 256, 256},
    {MLCC_SPACE_WEIGHTS, 0, 256, 256}, {MLCC_SPACE_STATE, 0, 256, 256},
    {MLCC_SPACE_STATE, 0, 256, 256},   {MLCC_SPACE_INPUT, 0, 0, 256},
    {MLCC_SPACE_OUTPUT, 1, 0, 256}};
#define LAUNCH(first, depth0, depth1)                                                              \
    {                                                                                              \
        .kind = MLCC_STEP_LAUNCH, .grid = {1, 1, 1}, .first_arg = first, .scalar = {               \
            depth0,                                                                                \
            depth1                                                                                 \
        }                                                                                          \
    }
#define LOOP(n)                                                                                    \
    { .kind = MLCC_STEP_LOOP, .trips = n }
#define END                                                                                        \
    { .kind = MLCC_STEP_END }
static const mlcc_gpu_step steps[] = {
    LOOP(1), LOOP(1), LAUNCH(0, 0, 1), END, END, LOOP(2), LOOP(0), LAUNCH(0, 0, 1),
    END,     LOOP(3), LAUNCH(3, 1, 0), END, END, LOOP(1), LOOP(1), LAUNCH(6, 0, 1),
    END,     END};
static const mlcc_gpu_kernel kernels[] = {
    {.name = "k_step", .block = {64, 1, 1}, .n_args = 3, .n_scalars = 2}};
static const mlcc_gpu_image images[] = {{80, 0, 1, "ptx80", 6},
                                        {80, 0, 0, "cubin80", 8},
                                        {90, 'a', 0, "cubin90a", 9},
                                        {86, 0, 0, "cubin86", 8},
                                        {100, 'f', 0, "cubin100f", 10}};
static const int64_t shape[] = {64};
static const mlcc_tensor inputs[] = {{"x", 1, 1, shape, 256}};
static const mlcc_tensor outputs[] = {{"empty", 1, 1, shape, 0}, {"y", 1, 1, shape, 256}};
static float weights[128]; /* the second half is used */
static const mlcc_model model = {.name = "steps",
                                 .target = "cuda",
                                 .n_inputs = 1,
                                 .n_outputs = 2,
                                 .inputs = inputs,
                                 .outputs = outputs,
                                 .weight_bytes = sizeof weights,
                                 .state_bytes = 512,
                                 .reset = mlcc_gpu_reset};
/* v lies in the second half of the states, which is the second half of the weights at first. */
static const mlcc_gpu_copy initial[] = {{256, 256, 256}};
const mlcc_gpu_program mlcc_program = {.model = &model,
                                       .n_kernels = 1,
                                       .n_steps = sizeof steps / sizeof *steps,
                                       .n_images = sizeof images / sizeof *images,
                                       .kernels = kernels,
                                       .args = args,
                                       .steps = steps,
                                       .images = images,
                                       .arena_bytes = 768,
                                       .weights = weights,
                                       .n_initial = 1,
                                       .initial = initial};

static char folder[] = "/tmp/mlcc-fake-XXXXXX";

static int setup(void **unused) {
    char command[256];
    (void)unused;
    for (int i = 0; i < 64; i++) weights[64 + i] = 0.25f * (float)(i % 9);
    if (!mkdtemp(folder)) return -1;
    snprintf(command, sizeof command,
             "cc -std=c11 -O1 -Wall -Wextra -shared -fPIC -Wl,-soname,libcuda.so.1 "
             "tests/unit/fake_libcuda.c -o %s/libcuda.so.1",
             folder);
    return system(command) == 0 ? 0 : -1;
}

static int teardown(void **unused) {
    char command[64];
    (void)unused;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* From here on, "libcuda.so.1" is the fake one: the loader knows its soname. */
static void load_fake(void) {
    char path[64];
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    fake = dlsym(library, "fake");
    *(void **)&fake_reset = dlsym(library, "fake_reset");
    fake_reset();
}

/* First of all tests, while the fake is not loaded yet. */
static void test_no_driver(void **unused) {
    void *state;
    (void)unused;
    void *real = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (real) {
        dlclose(real);
        skip();
    }
    assert_int_equal(mlcc_gpu_open(&state, NULL), MLCC_E_DRIVER);
    assert_string_equal(mlcc_gpu_error(state),
                        "libcuda.so.1 not found: install the NVIDIA driver, or compile with "
                        "-march=cpu");
    mlcc_gpu_close(state);
}

static void check_run(void *state, float seed) {
    float x[64], y[64];
    for (int i = 0; i < 64; i++) x[i] = seed + (float)i;
    assert_int_equal(mlcc_gpu_run(state, (const void *[]){x}, (void *[]){NULL, y}, NULL), MLCC_OK);
    for (int i = 0; i < 64; i++) {
        float v = x[i] * weights[64 + i];
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 3; c++) v = v * weights[64 + i] + (float)(10 * r + c);
        assert_true(fabsf(y[i] - v * x[i]) <= 0.0f);
    }
}

/* The states are what they are at first; device addresses are those of the host. */
static void check_first_state(void *state) {
    const float *kept = (const float *)(uintptr_t)((State *)state)->kept;
    for (int i = 0; i < 64; i++) assert_true(kept[i] == 0);
    assert_memory_equal(kept + 64, weights + 64, 256);
}

static void test_states(void **unused) {
    void *state[2];
    (void)unused;
    load_fake();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mlcc_gpu_open(&state[i], NULL), MLCC_OK);
        check_first_state(state[i]);
    }
    float *kept = (float *)(uintptr_t)((State *)state[1])->kept;
    kept[0] = 1;
    check_run(state[1], 1.0f); /* the fake knows the graph that was made last */
    assert_true(memcmp(kept + 64, weights + 64, 256) != 0);
    check_first_state(state[0]); /* it has its own */
    assert_int_equal(mlcc_gpu_reset(state[1]), MLCC_OK);
    check_first_state(state[1]);
    strcpy(fake->fail_call, "cuMemcpyDtoDAsync_v2");
    fake->fail_code = 700;
    assert_int_equal(mlcc_gpu_reset(state[1]), MLCC_E_DEVICE);
    assert_string_equal(mlcc_gpu_error(state[1]), "cuMemcpyDtoDAsync: CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_int_equal(fake->pushed, 0);
    for (int i = 0; i < 2; i++) mlcc_gpu_close(state[i]);
    assert_int_equal(fake->live, 0);
}

static void test_run(void **unused) {
    void *state;
    (void)unused;
    load_fake();
    assert_int_equal(mlcc_gpu_open(&state, NULL), MLCC_OK);
    assert_string_equal(fake->image, "cubin90a");
    assert_int_equal(fake->pushed, 0);
    const int live = fake->live;
    check_run(state, 1.0f);
    check_run(state, -7.0f);
    assert_int_equal(fake->replays, 2);
    assert_int_equal(fake->launches, 0);
    assert_int_equal(fake->live, live);
    assert_int_equal(mlcc_gpu_run(state, (const void *[]){NULL}, (void *[]){NULL, NULL}, NULL),
                     MLCC_E_ARGUMENT);
    assert_string_equal(mlcc_gpu_error(state), "input 'x' is null");
    mlcc_gpu_close(state);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->pushed, 0);
}

static const char *image_for(int major, int minor, int refuse) {
    void *state;
    fake_reset();
    fake->majors[0] = major;
    fake->minors[0] = minor;
    fake->refuse_images = refuse;
    const int code = mlcc_gpu_open(&state, NULL);
    mlcc_gpu_close(state);
    assert_int_equal(fake->live, 0);
    return code == MLCC_OK ? fake->image : NULL;
}

static void test_images(void **unused) {
    (void)unused;
    load_fake();
    assert_string_equal(image_for(8, 0, 0), "cubin80");
    assert_string_equal(image_for(8, 6, 0), "cubin86");
    assert_string_equal(image_for(8, 9, 0), "cubin86");
    assert_string_equal(image_for(9, 0, 0), "cubin90a");
    assert_string_equal(image_for(10, 3, 0), "cubin100f");
    assert_string_equal(image_for(12, 0, 0), "ptx80");
    assert_null(image_for(7, 5, 0));
    /* One that the driver refuses is followed by the next best. */
    assert_string_equal(image_for(8, 9, 1), "cubin80");
    assert_string_equal(image_for(8, 9, 2), "ptx80");
    assert_null(image_for(8, 9, 3));
}

static void test_second_device(void **unused) {
    void *state;
    (void)unused;
    load_fake();
    fake->n_devices = 2;
    fake->majors[0] = 7;
    fake->majors[1] = 9;
    assert_int_equal(mlcc_gpu_open(&state, NULL), MLCC_OK);
    assert_int_equal(fake->device, 1);
    check_run(state, 2.0f);
    mlcc_gpu_close(state);
    assert_int_equal(fake->live, 0);
}

static void expect_open(const char *call, int nth, int error, int code, const char *message) {
    void *state;
    strcpy(fake->fail_call, call);
    fake->fail_nth = nth;
    fake->fail_code = error;
    assert_int_equal(mlcc_gpu_open(&state, NULL), code);
    if (!strstr(mlcc_gpu_error(state), message))
        fail_msg("'%s' is not in '%s'", message, mlcc_gpu_error(state));
    mlcc_gpu_close(state);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->pushed, 0);
    fake_reset();
}

static void test_open_failures(void **unused) {
    (void)unused;
    load_fake();
    expect_open("cuInit", 1, 100, MLCC_E_DRIVER, "cuInit: unknown error");
    expect_open("cuMemAlloc_v2", 1, 2, MLCC_E_MEMORY, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY");
    expect_open("cuMemAlloc_v2", 4, 2, MLCC_E_MEMORY, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY");
    expect_open("cuStreamCreate", 1, 700, MLCC_E_DRIVER, "cuStreamCreate: CUDA_ERROR_ILLEGAL");
    expect_open("cuModuleGetFunction", 1, 700, MLCC_E_DRIVER, "cuModuleGetFunction: CUDA_ERROR");
    expect_open("cuMemcpyHtoDAsync_v2", 1, 700, MLCC_E_DRIVER, "cuMemcpyHtoDAsync: CUDA_ERROR");
    expect_open("cuMemsetD8Async", 1, 700, MLCC_E_DEVICE, "cuMemsetD8Async: CUDA_ERROR");
    expect_open("cuMemcpyDtoDAsync_v2", 1, 700, MLCC_E_DEVICE, "cuMemcpyDtoDAsync: CUDA_ERROR");
    fake->n_devices = 0;
    expect_open("", 0, 0, MLCC_E_DRIVER, "no CUDA device");
    fake->majors[0] = 7;
    fake->minors[0] = 5;
    expect_open("", 0, 0, MLCC_E_DRIVER,
                "model 'steps' holds no code for this device (compute capability 7.5)");
    fake->refuse_images = 9;
    expect_open("", 0, 0, MLCC_E_DRIVER,
                "cuModuleLoadDataEx: CUDA_ERROR_NO_BINARY_FOR_GPU: ptxas fatal: too new");
}

static void test_without_graph(void **unused) {
    static const char *const calls[] = {"cuStreamBeginCapture_v2", "cuLaunchKernel",
                                        "cuStreamEndCapture", "cuGraphInstantiateWithFlags"};
    (void)unused;
    load_fake();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *state;
        fake_reset();
        strcpy(fake->fail_call, calls[i]);
        fake->fail_code = 700;
        assert_int_equal(mlcc_gpu_open(&state, NULL), MLCC_OK);
        check_run(state, 3.0f);
        assert_int_equal(fake->launches, 8);
        assert_int_equal(fake->replays, 0);
        mlcc_gpu_close(state);
        assert_int_equal(fake->live, 0);
    }
}

static void test_run_failures(void **unused) {
    static const char *const calls[] = {"cuMemcpyHtoDAsync", "cuGraphLaunch", "cuMemcpyDtoHAsync",
                                        "cuStreamSynchronize"};
    static const char *const symbols[] = {"cuMemcpyHtoDAsync_v2", "cuGraphLaunch",
                                          "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"};
    float x[64] = {0}, y[64];
    (void)unused;
    load_fake();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *state;
        char message[96];
        fake_reset();
        assert_int_equal(mlcc_gpu_open(&state, NULL), MLCC_OK);
        strcpy(fake->fail_call, symbols[i]);
        fake->fail_code = 700;
        assert_int_equal(mlcc_gpu_run(state, (const void *[]){x}, (void *[]){NULL, y}, NULL),
                         MLCC_E_DEVICE);
        snprintf(message, sizeof message, "%s: CUDA_ERROR_ILLEGAL_ADDRESS", calls[i]);
        assert_string_equal(mlcc_gpu_error(state), message);
        assert_int_equal(fake->pushed, 0);
        check_run(state, 4.0f);
        mlcc_gpu_close(state);
        assert_int_equal(fake->live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_driver),     cmocka_unit_test(test_run),
        cmocka_unit_test(test_images),        cmocka_unit_test(test_second_device),
        cmocka_unit_test(test_open_failures), cmocka_unit_test(test_without_graph),
        cmocka_unit_test(test_run_failures),  cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests_name("cuda_launcher", tests, setup, teardown);
}
