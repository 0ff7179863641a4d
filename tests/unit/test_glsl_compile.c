/* The GLSL compiler plugin: what compiles, what is said when it does not or is not there. Skipped
 * where the plugin was not built. */
#include "codegen/glsl_compile.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct Fixture {
    Arena arena;
    Diag diag;
    GlslCompiler *glsl; /* NULL: no plugin here */
} Fixture;

static int set_up(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    arena_init(&f->arena, 0, NULL, NULL);
    diag_init(&f->diag, &f->arena, "model.onnx");
    f->glsl = glsl_open(&f->arena, &f->diag, NULL);
    return 0;
}

static int tear_down(void **state) {
    Fixture *f = *state;
    glsl_close(f->glsl);
    arena_free(&f->arena);
    free(f);
    return 0;
}

static Fixture *fixture(void **state) {
    Fixture *f = *state;
    if (!f->glsl) {
        assert_int_equal(f->diag.messages.items[0].code, E4301);
        skip();
    }
    return f;
}

static const char copy_kernel[] =
    "#version 450\n"
    "layout(local_size_x = 64) in;\n"
    "layout(std430, set = 0, binding = 0) readonly buffer B0 { float a0[]; };\n"
    "layout(std430, set = 0, binding = 1) buffer B1 { float a1[]; };\n"
    "void main() { uint i = gl_GlobalInvocationID.x; if (i < 100u) a1[i] = a0[i]; }\n";

static void gives_spirv_1_3(void **state) {
    Fixture *f = fixture(state);
    GlslWords words;
    assert_true(glsl_compile(f->glsl, "copy", copy_kernel, &words));
    assert_true(words.bytes > 20 && words.bytes % 4 == 0);
    assert_int_equal(words.words[0], 0x07230203);
    assert_int_equal(words.words[1], 0x00010300);
    assert_int_equal(f->diag.n_errors, 0);
}

static void same_text_same_words(void **state) {
    Fixture *f = fixture(state);
    GlslCompiler *other = glsl_open(&f->arena, &f->diag, NULL);
    GlslWords first, again, apart;
    assert_true(glsl_compile(f->glsl, "copy", copy_kernel, &first));
    assert_true(glsl_compile(f->glsl, "copy", copy_kernel, &again));
    assert_true(glsl_compile(other, "another_name", copy_kernel, &apart));
    glsl_close(other);
    assert_int_equal(first.bytes, again.bytes);
    assert_memory_equal(first.words, again.words, first.bytes);
    assert_int_equal(first.bytes, apart.bytes);
    assert_memory_equal(first.words, apart.words, first.bytes);
}

static void rejected_text_is_our_bug(void **state) {
    Fixture *f = fixture(state);
    GlslWords words;
    assert_false(
        glsl_compile(f->glsl, "k7", "#version 450\nvoid main() { int x = 1.5; }\n", &words));
    assert_null(words.words);
    assert_int_equal(f->diag.n_errors, 1);
    assert_int_equal(f->diag.messages.items[0].code, E4303);
    assert_int_equal(err_kind(E4303), ERR_BUG);
    const char *text = f->diag.messages.items[0].text;
    assert_non_null(strstr(text, "kernel 'k7'"));
    assert_non_null(strstr(text, "k7:2:"));
    assert_null(strchr(text, '\n'));
    /* and the compiler still serves */
    assert_true(glsl_compile(f->glsl, "copy", copy_kernel, &words));
}

static void missing_plugin(void **state) {
    Fixture *f = *state;
    Diag diag;
    diag_init(&diag, &f->arena, "model.onnx");
    assert_null(glsl_open(&f->arena, &diag, "/nonexistent/libmlcc_glsl.so"));
    assert_int_equal(diag.messages.items[0].code, E4301);
    assert_int_equal(diag_exit_status(&diag), 3);
}

/* Some library that loads but is not the plugin. */
static void another_library(void **state) {
    Fixture *f = *state;
    Diag diag;
    diag_init(&diag, &f->arena, "model.onnx");
    assert_null(glsl_open(&f->arena, &diag, "libm.so.6"));
    assert_int_equal(diag.messages.items[0].code, E4302);
}

/* Every type of element that a kernel may have, with arithmetic in it; one kernel for each. */
static void all_element_types(void **state) {
    Fixture *f = fixture(state);
    static const char *const types[] = {"int8_t",    "uint8_t", "int16_t", "uint16_t",
                                        "int",       "uint",    "int64_t", "uint64_t",
                                        "float16_t", "float",   "double"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        Text text = text_new(&f->arena);
        text_addf(&text,
                  "#version 450\n"
                  "#extension GL_EXT_shader_explicit_arithmetic_types : require\n"
                  "#extension GL_EXT_shader_8bit_storage : require\n"
                  "#extension GL_EXT_shader_16bit_storage : require\n"
                  "layout(local_size_x = 64) in;\n"
                  "layout(std430, set = 0, binding = 0) buffer B0 { %s a0[]; };\n"
                  "shared %s tile[64];\n"
                  "void main() { uint i = gl_GlobalInvocationID.x; tile[i & 63u] = a0[i];\n"
                  "barrier(); a0[i] = tile[63u - (i & 63u)] * a0[i] + %s(3); }\n",
                  types[i], types[i], types[i]);
        GlslWords words;
        if (!glsl_compile(f->glsl, types[i], text_get(&text), &words))
            fail_msg("%s: %s", types[i], f->diag.messages.items[0].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gives_spirv_1_3, set_up, tear_down),
        cmocka_unit_test_setup_teardown(same_text_same_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rejected_text_is_our_bug, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_plugin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_library, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_element_types, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("glsl_compile", tests, NULL, NULL);
}
