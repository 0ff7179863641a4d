/* GLSL to SPIR-V, through the plugin libmlcc_glsl.so. */
#ifndef CODEGEN_GLSL_COMPILE_H
#define CODEGEN_GLSL_COMPILE_H

#include "ir/arena.h"
#include "ir/diag.h"

#include <stdbool.h>

typedef struct GlslCompiler GlslCompiler;

typedef struct GlslWords {
    const uint32_t *words; /* SPIR-V 1.3, in the arena */
    size_t bytes;
} GlslWords;

/* Opens the plugin: `path`, or if that is NULL libmlcc_glsl.so beside the running program, in the
 * folder above it, or in ../lib/mlcc. NULL with E4301 or E4302 in `diag`. Arena and diag serve
 * until glsl_close, which must follow. */
GlslCompiler *glsl_open(Arena *arena, Diag *diag, const char *path);
/* Compiles one compute shader, zero-terminated; `name` is the kernel's, for messages. Any number of
 * shaders, one after the other. False with E4303 in `diag`: the compiler's first line and the
 * kernel. */
bool glsl_compile(GlslCompiler *compiler, const char *name, const char *text, GlslWords *result);
/* NULL is allowed. */
void glsl_close(GlslCompiler *compiler);

#endif
