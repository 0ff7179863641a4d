/* NVRTC: the kernels of cuda_kernels.cu compile for every default architecture, twice to the same
 * bytes, and each failure has its message. Skipped where NVRTC is not installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/nvrtc.h"

typedef struct Fixture {
    Arena arena;
    Diag diag;
    NvrtcHeader header;
    NvrtcOptions options;
} Fixture;

static char *read_file(Arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = arena_alloc(arena, 1 << 20);
    const size_t n = fread(text, 1, (1 << 20) - 1, file);
    assert_true(n > 0 && n < (1 << 20) - 1);
    fclose(file);
    return text;
}

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    arena_init(&f->arena, 0, NULL, NULL);
    diag_init(&f->diag, &f->arena, "test");
    f->header = (NvrtcHeader){"cuda_intrin.h", read_file(&f->arena, "runtime/cuda_intrin.h")};
    f->options = (NvrtcOptions){.n_headers = 1, .headers = &f->header};
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    arena_free(&f->arena);
    free(f);
    return 0;
}

/* Compiles; skips the test if there is no NVRTC. */
static int compile(Fixture *f, const char *source, NvrtcResult *result) {
    const int code = nvrtc_compile(&f->arena, &f->diag, &f->options, "kernels.cu", source, result);
    if (code != 0 && f->diag.messages.items[0].code == E4201) {
        print_message("%s\n", f->diag.messages.items[0].text);
        skip();
    }
    return code;
}

static void expect_error(Fixture *f, ErrCode code, const char *text) {
    assert_int_equal(f->diag.n_errors, 1);
    assert_int_equal(f->diag.messages.items[0].code, code);
    if (!strstr(f->diag.messages.items[0].text, text))
        fail_msg("'%s' is not in '%s'", text, f->diag.messages.items[0].text);
}

static void test_default_archs(void **state) {
    Fixture *f = *state;
    const char *source = read_file(&f->arena, "tests/unit/cuda_kernels.cu");
    NvrtcResult first, again;
    if (compile(f, source, &first) != 0) fail_msg("%s", f->diag.messages.items[0].text);
    assert_int_equal(first.n_images, 3);
    assert_int_equal(first.images[0].arch, 80);
    assert_int_equal(first.images[0].suffix, 0);
    assert_int_equal(first.images[1].arch, 90);
    assert_int_equal(first.images[1].suffix, 'a');
    for (int i = 0; i < 2; i++) {
        assert_false(first.images[i].is_ptx);
        assert_memory_equal(first.images[i].data, "\177ELF", 4);
    }
    assert_true(first.images[2].is_ptx);
    const char *ptx = first.images[2].data;
    assert_int_equal(strlen(ptx), first.images[2].bytes);
    assert_non_null(strstr(ptx, ".target sm_80"));
    assert_non_null(strstr(ptx, ".entry k_sgemm("));
    assert_non_null(strstr(ptx, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"));
    assert_non_null(strstr(ptx, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"));
    assert_non_null(strstr(ptx, "cp.async.wait_group 1"));
    assert_string_equal(first.log, "");

    assert_int_equal(compile(f, source, &again), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(first.images[i].bytes, again.images[i].bytes);
        assert_memory_equal(first.images[i].data, again.images[i].data, first.images[i].bytes);
    }
}

static void test_error_in_text(void **state) {
    Fixture *f = *state;
    NvrtcResult result;
    assert_int_equal(
        compile(f, "extern \"C\" __global__ void k(int *p) { *p = nothing; }", &result), -1);
    expect_error(f, E4203, "nothing");
    assert_int_equal(result.n_images, 0);
}

static void test_log_of_success(void **state) {
    Fixture *f = *state;
    NvrtcResult result;
    f->options.archs = "compute_90";
    const char *source = "extern \"C\" __global__ void k(int *p) { int unused; *p = 1; }";
    assert_int_equal(compile(f, source, &result), 0);
    assert_int_equal(result.n_images, 1);
    assert_non_null(strstr(result.log, "unused"));
}

static void test_flags(void **state) {
    Fixture *f = *state;
    NvrtcResult result;
    const char *flags[] = {"--fmad=false"};
    const char *source = "extern \"C\" __global__ void k(float *p) { p[0] = p[1] * p[2] + p[3]; }";
    f->options.archs = "compute_80";
    assert_int_equal(compile(f, source, &result), 0);
    assert_non_null(strstr(result.images[0].data, "fma.rn.f32"));
    f->options.n_flags = 1;
    f->options.flags = flags;
    assert_int_equal(compile(f, source, &result), 0);
    assert_null(strstr(result.images[0].data, "fma.rn.f32"));
}

static void test_unknown_archs(void **state) {
    Fixture *f = *state;
    NvrtcResult result;
    f->options.archs = "sm_80,sm_11";
    assert_int_equal(compile(f, "", &result), -1);
    expect_error(f, E4202, "does not compile for sm_11");
}

static void test_no_arch(void **state) {
    Fixture *f = *state;
    NvrtcResult result;
    f->options.archs = "gfx90";
    assert_int_equal(compile(f, "", &result), -1);
    expect_error(f, E4202, "'gfx90' is no architecture");
}

static void test_missing(void **state) {
    Fixture *f = *state;
    NvrtcResult result;
    f->options.folder = "/nonexistent";
    assert_int_equal(nvrtc_compile(&f->arena, &f->diag, &f->options, "k.cu", "", &result), -1);
    expect_error(f, E4201,
                 "NVRTC not found in /nonexistent: pip install nvidia-cuda-nvrtc, or install the "
                 "CUDA toolkit");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_default_archs), TEST(test_error_in_text), TEST(test_log_of_success),
        TEST(test_flags),         TEST(test_unknown_archs), TEST(test_no_arch),
        TEST(test_missing),
    };
    return cmocka_run_group_tests_name("nvrtc", tests, NULL, NULL);
}
