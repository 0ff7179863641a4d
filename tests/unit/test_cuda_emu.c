/* The CUDA emulation: cuda_kernels.cu is compiled as a model library would be, loaded, and its
 * kernels are compared with plain loops, with 1, 2 and 3 workers. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/gpu_common.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZE
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZE
#endif
#endif
#ifdef SANITIZE
#define OPTIMISE "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
#else
#define OPTIMISE "-O2"
#endif
#ifdef __clang__
#define COMPILER "clang"
#else
#define COMPILER "cc"
#endif
#define BUILD                                                                                      \
    COMPILER " -x c -std=gnu11 -Wall -Wextra -Werror -Iinclude -Iruntime -include cuda_emu.h "     \
             "tests/unit/cuda_kernels.cu runtime/cuda_emu.c "

typedef struct Library {
    char folder[64], weights[96];
    void *handle;
    const mlcc_gpu_program *program;
    int (*open_with)(void **, const mlcc_gpu_program *, const char *, int);
    int (*launch)(void *, const mlcc_gpu_kernel *, const uint32_t[3], void **);
    const mlcc_model *model;
} Library;

static Library lib;

static int run_command(const char *format, ...) {
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    const int status = system(command);
    return status == -1 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

static void *symbol(const char *name) {
    void *at = dlsym(lib.handle, name);
    assert_non_null(at);
    return at;
}

static void write_weights(const char *path, uint64_t digest, size_t floats) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite("MLCCWTS2", 1, 8, file);
    for (int i = 0; i < 8; i++) fputc((int)(digest >> (8 * i) & 255), file);
    for (unsigned i = 16; i < MLCC_GPU_WEIGHTS_HEAD; i++) fputc(0, file);
    for (size_t i = 0; i < floats; i++) fwrite(&(const float){0.5f}, sizeof(float), 1, file);
    fclose(file);
}

static int setup(void **unused) {
    char path[128];
    (void)unused;
    strcpy(lib.folder, "/tmp/mlcc-emu-XXXXXX");
    if (!mkdtemp(lib.folder)) return -1;
    if (run_command(BUILD "%s -fPIC -shared -o %s/kernels.so -lm -lpthread", OPTIMISE,
                    lib.folder) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/kernels.so", lib.folder);
    lib.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib.handle) return -1;
    *(void **)&lib.open_with = symbol("mlcc_emu_open");
    *(void **)&lib.launch = symbol("mlcc_emu_launch");
    const mlcc_model *(*model)(void);
    *(void **)&model = symbol("mlcc_model_v1");
    lib.model = model();
    lib.program = (const mlcc_gpu_program *)symbol("mlcc_program");
    snprintf(lib.weights, sizeof lib.weights, "%s/steps.weights", lib.folder);
    write_weights(lib.weights, lib.program->weights_digest, 64);
    return 0;
}

static int teardown(void **unused) {
    (void)unused;
    if (lib.handle) dlclose(lib.handle);
    return run_command("rm -r %s", lib.folder);
}

static void *open_state(int workers) {
    void *state;
    assert_int_equal(lib.open_with(&state, lib.program, lib.weights, workers), MLCC_OK);
    return state;
}

static int try_launch(void *state, const char *name, unsigned x, unsigned y, unsigned z,
                      void **params) {
    for (uint32_t i = 0; i < lib.program->n_kernels; i++)
        if (!strcmp(lib.program->kernels[i].name, name))
            return lib.launch(state, &lib.program->kernels[i], (const uint32_t[3]){x, y, z},
                              params);
    fail_msg("no kernel %s", name);
    return -1;
}

/* Launches with pointers and ints as they come. */
#define LAUNCH(state, name, x, y, z, ...)                                                          \
    assert_int_equal(try_launch(state, name, x, y, z, (void *[]){__VA_ARGS__}), MLCC_OK)

static uint32_t noise(uint32_t *seed) {
    return *seed = *seed * 1664525u + 1013904223u;
}

static float *random_floats(size_t n, uint32_t seed) {
    float *all = malloc(n * sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++) all[i] = (float)(int32_t)noise(&seed) * (1.0f / 2147483648.0f);
    return all;
}

static void test_add_and_indices(void **unused) {
    enum { N = 100003 };
    (void)unused;
    for (int workers = 1; workers <= 3; workers++) {
        void *state = open_state(workers);
        float *a = random_floats(N, 1), *b = random_floats(N, 2), *c = calloc(N, sizeof *c);
        int n = N;
        LAUNCH(state, "k_add", (N + 255) / 256, 1, 1, &a, &b, &c, &n);
        for (int i = 0; i < N; i++) assert_true(c[i] == a[i] + b[i]);
        int *where = calloc(24 * 30, sizeof *where);
        LAUNCH(state, "k_where", 2, 3, 5, &where);
        for (int i = 0; i < 24 * 30; i++) {
            const int t = i % 24, block = i / 24;
            assert_int_equal(where[i], t % 2 + 10 * (t / 2 % 3) + 100 * (t / 6) +
                                           1000 * (block % 2) + 10000 * (block / 2 % 3) +
                                           100000 * (block / 6));
        }
        free(a), free(b), free(c), free(where);
        lib.model->close(state);
    }
}

static void test_sgemm(void **unused) {
    enum { M = 150, N = 100, K = 77 };
    (void)unused;
    float *a = random_floats(M * K, 3), *b = random_floats(K * N, 4), *first = NULL;
    int m = M, n = N, k = K;
    for (int workers = 1; workers <= 3; workers++) {
        void *state = open_state(workers);
        float *c = calloc(M * N, sizeof *c);
        LAUNCH(state, "k_sgemm", (N + 63) / 64, (M + 63) / 64, 1, &a, &b, &c, &m, &n, &k);
        for (int i = 0; i < M * N; i++) {
            double sum = 0;
            for (int j = 0; j < K; j++) sum += (double)a[i / N * K + j] * (double)b[j * N + i % N];
            assert_true(fabs(sum - (double)c[i]) < 1e-5);
        }
        if (first) {
            assert_memory_equal(first, c, M * N * sizeof *c);
            free(c);
        } else {
            first = c;
        }
        lib.model->close(state);
    }
    free(a), free(b), free(first);
}

static void test_softmax(void **unused) {
    enum { ROWS = 37, N = 301 };
    (void)unused;
    float *a = random_floats(ROWS * N, 5), *c = calloc(ROWS * N, sizeof *c);
    int n = N;
    void *state = open_state(2);
    for (int i = 0; i < ROWS * N; i++) a[i] *= 20.0f;
    LAUNCH(state, "k_softmax", ROWS, 1, 1, &a, &c, &n);
    for (int r = 0; r < ROWS; r++) {
        double top = -1e30, sum = 0;
        for (int i = 0; i < N; i++) top = fmax(top, (double)a[r * N + i]);
        for (int i = 0; i < N; i++) sum += exp((double)a[r * N + i] - top);
        for (int i = 0; i < N; i++)
            assert_true(fabs(exp((double)a[r * N + i] - top) / sum - (double)c[r * N + i]) < 1e-6);
    }
    free(a), free(c);
    lib.model->close(state);
}

static void test_reduce_and_atomics(void **unused) {
    enum { N = 10007 };
    (void)unused;
    for (int workers = 1; workers <= 2; workers++) {
        void *state = open_state(workers);
        int *a = malloc(N * sizeof *a), *out = calloc(20, sizeof *out), n = N, want[20] = {0};
        uint32_t seed = 6;
        out[1] = want[1] = INT32_MAX;
        out[2] = want[2] = INT32_MIN;
        for (int i = 0; i < N; i++) {
            a[i] = (int)(noise(&seed) >> 16) % 1000 - 500;
            want[0] += a[i];
            want[1] = a[i] < want[1] ? a[i] : want[1];
            want[2] = a[i] > want[2] ? a[i] : want[2];
            want[3] += a[i] != 0;
            want[4 + (a[i] & 15)]++;
        }
        LAUNCH(state, "k_reduce", 7, 1, 1, &a, &out, &n);
        assert_memory_equal(out, want, sizeof want);
        float *f = calloc(2, sizeof *f);
        unsigned long long *u = calloc(2, sizeof *u);
        LAUNCH(state, "k_atomics", 50, 1, 1, &f, &u);
        assert_true(f[0] == 1600.0f && f[1] == 3200.0f);
        assert_true(u[0] == 3200ull << 33 && u[1] == 3199ull << 40);
        free(a), free(out), free(f), free(u);
        lib.model->close(state);
    }
}

static void test_warp(void **unused) {
    int *out = calloc(576, sizeof *out), want[576] = {0};
    void *state = open_state(1);
    (void)unused;
    LAUNCH(state, "k_warp", 1, 1, 1, &out);
    for (int t = 0; t < 64; t++) {
        const int base = t & 32, lane = t & 31, v = 100 + t;
        want[t] = 100 + base + 5;
        want[64 + t] = 100 + base + (lane & ~7) + ((t + 1) & 7);
        want[128 + t] = lane < 3 ? v : v - 3;
        want[192 + t] = (lane & 15) + 2 > 15 ? v : v + 2;
        want[256 + t] = 100 + base + (lane ^ 17);
        for (int i = 0; i < 32; i++)
            if ((base + i) % 3 == 0) want[320 + t] = (int)((unsigned)want[320 + t] | 1u << i);
        want[384 + t] = (base == 32) + 2 * (base == 0);
        if (t < 48) want[448 + t] = (t % 2 ? -1 : 1) * (100 + base + (lane ^ 2));
    }
    for (int t = 0; t < 48; t++) want[512 + t] = want[448 + (t + 7) % 48];
    for (int i = 0; i < 576; i++)
        if (out[i] != want[i]) fail_msg("out[%d] is %d, not %d", i, out[i], want[i]);
    free(out);
    lib.model->close(state);
}

/* A bfloat16 number as a double. */
static double bf16_value(unsigned short bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return (double)v;
}

/* A half-precision number as a double. */
static double half_value(unsigned short bits) {
    const int exponent = bits >> 10 & 31, rest = bits & 1023;
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31) return rest ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + rest, exponent - 25) : ldexp(rest, -24));
}

static void test_matrix_units(void **unused) {
    enum { K = 80 };
    (void)unused;
    void *state = open_state(1);
    unsigned short *a = aligned_alloc(16, 16 * K * sizeof *a);
    unsigned short *b = aligned_alloc(16, 8 * K * sizeof *b);
    float *c = calloc(16 * 8, sizeof *c);
    int k = K;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        uint32_t seed = 7;
        /* numbers of either sign between 1/8 and 4 */
        const unsigned low = bf16 ? 0x3e00 : 0x3000, span = bf16 ? 0x280 : 0x1400;
        for (int i = 0; i < 24 * K; i++) {
            const uint32_t r = noise(&seed);
            unsigned short *to = i < 16 * K ? &a[i] : &b[i - 16 * K];
            *to = (unsigned short)((r & 0x8000) | (low + (r >> 16) % span));
        }
        double (*value)(unsigned short) = bf16 ? bf16_value : half_value;
        LAUNCH(state, "k_hgemm", 1, 1, 1, &a, &b, &c, &k, &bf16);
        for (int i = 0; i < 128; i++) {
            double sum = 0;
            for (int j = 0; j < K; j++) sum += value(a[i / 8 * K + j]) * value(b[i % 8 * K + j]);
            assert_true(fabs(sum - (double)c[i]) < 1e-4);
        }
    }
    unsigned int *out = calloc(128, sizeof *out);
    for (int i = 0; i < 256; i++) a[i] = (unsigned short)(i + 1);
    LAUNCH(state, "k_trans", 1, 1, 1, &a, &out);
    for (int m = 0; m < 4; m++)
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 2; i++) {
                const int row = lane % 4 * 2 + i, column = lane / 4;
                const int zero = m == 3 && row == 7 && column > 2;
                assert_int_equal(out[m * 32 + lane] >> (16 * i) & 0xffff,
                                 zero ? 0 : m * 64 + row * 8 + column + 1);
            }
    free(a), free(b), free(c), free(out);
    lib.model->close(state);
}

static void test_matrix_units_bytes(void **unused) {
    unsigned char *bytes = aligned_alloc(16, 24 * 64);
    const unsigned char *a = bytes, *b = bytes + 16 * 64;
    int *c = calloc(16 * 8, sizeof *c);
    uint32_t seed = 9;
    (void)unused;
    void *state = open_state(1);
    for (int i = 0; i < 24 * 64; i++) bytes[i] = (unsigned char)(noise(&seed) >> 8);
    for (int kind = 0; kind < 4; kind++) {
        LAUNCH(state, "k_bytes", 1, 1, 1, &a, &b, &c, &kind);
        for (int i = 0; i < 128; i++) {
            int sum = 0;
            for (int j = 0; j < 64; j++) {
                const int x = a[i / 8 * 64 + j], y = b[i % 8 * 64 + j];
                sum += (kind & 1 ? (signed char)x : x) * (kind & 2 ? (signed char)y : y);
            }
            assert_int_equal(sum, c[i]);
        }
    }
    free(bytes), free(c);
    lib.model->close(state);
}

static void test_half(void **unused) {
    enum { N = 131072 };
    (void)unused;
    float *a = malloc(N * sizeof *a), *f16 = calloc(N, sizeof *a), *bf16 = calloc(N, sizeof *a);
    int n = N;
    void *state = open_state(2);
    /* Every half-precision number, and a float halfway (or a little off) to its neighbour. */
    for (int i = 0; i < 65536; i++) {
        const double here = half_value((unsigned short)i);
        const double next = half_value((unsigned short)((i & 0x7fff) < 0x7bff ? i + 1 : i));
        a[2 * i] = (float)here;
        a[2 * i + 1] = (float)((here + next) / 2);
        if (i % 3) a[2 * i + 1] = nextafterf(a[2 * i + 1], i % 3 == 1 ? 1e30f : -1e30f);
    }
    LAUNCH(state, "k_half", N / 256, 1, 1, &a, &f16, &bf16, &n);
    for (int i = 0; i < 65536; i++) {
        const double here = half_value((unsigned short)i);
        if (isnan(here)) {
            assert_true(isnan(f16[2 * i]) && isnan(bf16[2 * i]));
            continue;
        }
        assert_true((double)f16[2 * i] == here);
        if ((i & 0x7fff) >= 0x7bff) continue;
        /* the nearer one, or, halfway, the one whose last bit is 0 */
        const double next = half_value((unsigned short)(i + 1)), middle = (double)a[2 * i + 1];
        const double up = fabs(next - middle), down = fabs(middle - here);
        const double want = up < down || (!(down < up) && i % 2) ? next : here;
        assert_true((double)f16[2 * i + 1] == want);
        assert_true(fabs((double)bf16[2 * i] - here) <= fabs(here) / 256);
    }
    free(a), free(f16), free(bf16);
    lib.model->close(state);
}

static void test_math(void **unused) {
    float *a = malloc(32 * sizeof *a);
    double *out = calloc(64, sizeof *out);
    void *state = open_state(1);
    (void)unused;
    for (int i = 0; i < 32; i++) a[i] = 0.1f + (float)i * 0.04f;
    LAUNCH(state, "k_math", 1, 1, 1, &a, &out);
    for (int i = 0; i < 32; i++)
        if (!(fabs(out[2 * i] - out[2 * i + 1]) < 1e-5 * fabs(out[2 * i + 1])))
            fail_msg("at %f: %f, not %f", (double)a[i], out[2 * i], out[2 * i + 1]);
    free(a), free(out);
    lib.model->close(state);
}

static void test_stuck(void **unused) {
    int *out = calloc(2, sizeof *out);
    void *state = open_state(2), *params[] = {&out};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try_launch(state, "k_stuck", 20, 1, 1, params), MLCC_E_DEVICE);
        assert_non_null(strstr(lib.model->error(state), "k_stuck"));
    }
    /* The state still works. */
    int *warp = calloc(576, sizeof *warp);
    LAUNCH(state, "k_warp", 1, 1, 1, &warp);
    assert_int_equal(warp[0], 105);
    assert_int_equal(try_launch(state, "k_warp", 1, 65536, 1, (void *[]){&warp}), MLCC_E_DEVICE);
    free(out), free(warp);
    lib.model->close(state);
}

static void test_program(void **unused) {
    const mlcc_model *model = lib.model;
    float x[64], y[64];
    void *state;
    (void)unused;
    assert_int_equal(model->open(&state, lib.weights), MLCC_OK);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 64; i++) x[i] = (float)(i + turn);
        assert_int_equal(model->run(state, (const void *[]){x}, (void *[]){y}, NULL), MLCC_OK);
        for (int i = 0; i < 64; i++) {
            float v = x[i] * 0.5f;
            for (int r = 0; r < 2; r++)
                for (int c = 0; c < 3; c++) v = v * 0.5f + (float)(10 * r + c);
            assert_true(y[i] == v * x[i]);
        }
    }
    assert_int_equal(model->run(state, (const void *[]){NULL}, (void *[]){y}, NULL),
                     MLCC_E_ARGUMENT);
    assert_string_equal(model->error(state), "input 'x' is null");
    model->close(state);
}

static void expect_open_fails(const char *path, const char *message) {
    void *state;
    assert_int_equal(lib.model->open(&state, path), MLCC_E_FILE);
    if (!strstr(lib.model->error(state), message))
        fail_msg("'%s' is not in '%s'", message, lib.model->error(state));
    lib.model->close(state);
}

static void test_weights(void **unused) {
    char path[96];
    (void)unused;
    snprintf(path, sizeof path, "%s/bad.weights", lib.folder);
    expect_open_fails(NULL, "in a side file");
    expect_open_fails("/nonexistent/weights", "cannot open");
    expect_open_fails("runtime/gpu.h", "not an mlcc weights file");
    write_weights(path, 42, 64);
    expect_open_fails(path, "another model");
    write_weights(path, lib.program->weights_digest, 63);
    expect_open_fails(path, "does not hold 256 bytes");
    write_weights(path, lib.program->weights_digest, 65);
    expect_open_fails(path, "does not hold 256 bytes");
    write_weights(path, lib.program->weights_digest, 64);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 100, SEEK_SET);
    fputc(1, file);
    fclose(file);
    expect_open_fails(path, "damaged");
}

/* 0: no reports; 66: races; the rest: it did not run. */
static int race(const char *flags) {
    if (run_command(BUILD "tests/unit/cuda_race_main.c -DMLCC_EMU_THREADS -fsanitize=thread -O1 -g "
                          "%s -o %s/race -lm -lpthread 2>%s/race.log",
                    flags, lib.folder, lib.folder) != 0)
        return -1;
    return run_command("TSAN_OPTIONS=exitcode=66 setarch -R %s/race %s >/dev/null 2>%s/race.log",
                       lib.folder, lib.weights, lib.folder);
}

static void test_missing_barrier_is_reported(void **unused) {
    (void)unused;
    const int clean = race("");
    if (clean != 0 && clean != 66) {
        print_message("ThreadSanitizer does not run here\n");
        skip();
    }
    assert_int_equal(clean, 0);
    assert_int_equal(race("-DWITHOUT_BARRIER"), 66);
    assert_int_equal(run_command("grep -q k_sgemm %s/race.log", lib.folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_and_indices),
        cmocka_unit_test(test_sgemm),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_reduce_and_atomics),
        cmocka_unit_test(test_warp),
        cmocka_unit_test(test_matrix_units),
        cmocka_unit_test(test_matrix_units_bytes),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_math),
        cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_missing_barrier_is_reported),
    };
    return cmocka_run_group_tests_name("cuda_emu", tests, setup, teardown);
}
