/* The GLSL compiler plugin: shaderc behind the interface of glsl_plugin.h.
 *
 * Built to libmlcc_glsl.so from shaderc's and glslang's static archives; nothing of them is visible
 * outside. Only this file knows shaderc.
 */
#include "codegen/glsl_plugin.h"

#include <shaderc/shaderc.h>
#include <stdlib.h>

typedef struct Compiler {
    shaderc_compiler_t shaderc;
    shaderc_compile_options_t options;
    shaderc_compilation_result_t last; /* holds what the last GlslResult points to */
} Compiler;

static void destroy(void *opaque) {
    Compiler *compiler = opaque;
    if (!compiler) return;
    if (compiler->last) shaderc_result_release(compiler->last);
    if (compiler->options) shaderc_compile_options_release(compiler->options);
    if (compiler->shaderc) shaderc_compiler_release(compiler->shaderc);
    free(compiler);
}

static void *create(void) {
    Compiler *compiler = calloc(1, sizeof *compiler);
    if (!compiler) return NULL;
    compiler->shaderc = shaderc_compiler_initialize();
    compiler->options = shaderc_compile_options_initialize();
    if (!compiler->shaderc || !compiler->options) {
        destroy(compiler);
        return NULL;
    }
    shaderc_compile_options_set_target_env(compiler->options, shaderc_target_env_vulkan,
                                           shaderc_env_version_vulkan_1_1);
    shaderc_compile_options_set_optimization_level(compiler->options,
                                                   shaderc_optimization_level_performance);
    shaderc_compile_options_set_suppress_warnings(compiler->options);
    return compiler;
}

static GlslResult compile(void *opaque, const char *name, const char *text, size_t length) {
    Compiler *compiler = opaque;
    GlslResult result = {0};
    if (compiler->last) shaderc_result_release(compiler->last);
    compiler->last =
        shaderc_compile_into_spv(compiler->shaderc, text, length, shaderc_glsl_compute_shader, name,
                                 "main", compiler->options);
    if (!compiler->last) {
        result.log = "out of memory";
    } else if (shaderc_result_get_compilation_status(compiler->last) !=
               shaderc_compilation_status_success) {
        result.log = shaderc_result_get_error_message(compiler->last);
    } else {
        result.words = (const uint32_t *)(const void *)shaderc_result_get_bytes(compiler->last);
        result.bytes = shaderc_result_get_length(compiler->last);
    }
    return result;
}

__attribute__((visibility("default"))) const GlslPlugin *mlcc_glsl_plugin(void);
const GlslPlugin *mlcc_glsl_plugin(void) {
    static const GlslPlugin plugin = {GLSL_PLUGIN_VERSION, create, compile, destroy};
    return &plugin;
}
