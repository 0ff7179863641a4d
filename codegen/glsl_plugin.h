/* What libmlcc_glsl.so gives to mlcc: a compiler of GLSL compute shaders to SPIR-V.
 *
 * The plugin is apart because shaderc and glslang are large and may be missing where mlcc is built;
 * mlcc opens it when a Vulkan binary is asked for. It exports one function, `mlcc_glsl_plugin`.
 */
#ifndef CODEGEN_GLSL_PLUGIN_H
#define CODEGEN_GLSL_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

/* Changes when anything below does; mlcc takes only the plugin it was built with. */
#define GLSL_PLUGIN_VERSION 1u

typedef struct GlslResult {
    const uint32_t *words; /* SPIR-V 1.3; NULL if the shader was rejected */
    size_t bytes;
    const char *log; /* when rejected: the compiler's lines; never NULL then */
} GlslResult;

typedef struct GlslPlugin {
    uint32_t version; /* GLSL_PLUGIN_VERSION */
    /* A compiler, which serves any number of shaders one after the other; NULL: no memory. */
    void *(*create)(void);
    /* Compiles `length` bytes of GLSL for Vulkan 1.1, optimised for speed; `name` is used in the
     * log. The same text gives the same words. The result lives until the next call with
     * `compiler`. */
    GlslResult (*compile)(void *compiler, const char *name, const char *text, size_t length);
    void (*destroy)(void *compiler);
} GlslPlugin;

typedef const GlslPlugin *GlslPluginFunction(void);

#endif
