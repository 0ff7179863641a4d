/* See target.h. */
#include "ir/target.h"

#include <stddef.h>
#include <string.h>

static const Target targets[] = {
    {.name = "c",
     .meaning = "standalone C99",
     .vector_bytes = 32,
     .vector_registers = 16,
     .l1_bytes = 32 << 10,
     .l2_bytes = 512 << 10,
     .max_grid = INT32_MAX,
     .buffer_align = 64},
    {.name = "cuda",
     .meaning = "CUDA C, cubins and PTX",
     .blocks = true,
     .shared_bytes = 48 << 10,
     .block_threads = 256,
     .max_block_threads = 1024,
     .max_grid = 65535,
     .buffer_align = 256},
    {.name = "vulkan",
     .meaning = "GLSL compute shaders, SPIR-V",
     .blocks = true,
     .shared_bytes = 16 << 10,
     .block_threads = 128,
     .max_block_threads = 128,
     .max_grid = 65535,
     .buffer_align = 256},
};

const Target *target_at(int i) {
    return i >= 0 && (size_t)i < sizeof targets / sizeof *targets ? &targets[i] : NULL;
}

const Target *target_find(const char *name) {
    for (int i = 0; target_at(i); i++)
        if (!strcmp(targets[i].name, name)) return &targets[i];
    return NULL;
}
