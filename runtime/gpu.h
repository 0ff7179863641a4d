/* The table that a GPU model is: kernels, launches, and where every tensor lies.
 *
 * The compiler's host-program printer writes one `mlcc_gpu_program` as constant C data; a launcher
 * (cuda.c, vulkan.c, or the CUDA emulation used by tests) runs it. Nothing is decided at run time.
 *
 * Memory: one device buffer per input and per output, one arena, one weights block, one block of
 * states that is kept between runs (model->state_bytes). An argument names its space and its place
 * in it; every offset is a multiple of MLCC_GPU_ALIGN.
 */
#ifndef MLCC_RUNTIME_GPU_H
#define MLCC_RUNTIME_GPU_H

#include "mlcc/model.h"

#define MLCC_GPU_ALIGN 256u
#define MLCC_GPU_MAX_SCALARS 8u
#define MLCC_GPU_WEIGHTS_HEAD 64u /* bytes of a side file before the weights */

enum {
    MLCC_SPACE_INPUT,
    MLCC_SPACE_OUTPUT,
    MLCC_SPACE_ARENA,
    MLCC_SPACE_WEIGHTS,
    MLCC_SPACE_STATE
};

typedef struct mlcc_gpu_arg {
    uint32_t space;  /* MLCC_SPACE_* */
    uint32_t index;  /* which input or output; 0 otherwise */
    uint64_t offset; /* bytes from the start of the space */
    uint64_t bytes;  /* size of the tensor there */
} mlcc_gpu_arg;

typedef struct mlcc_gpu_kernel {
    const char *name;       /* entry point in the CUDA module; SPIR-V modules use "main" */
    uint32_t block[3];      /* threads per block, also in the SPIR-V's local size */
    uint32_t n_args;        /* buffers: CUDA parameters in order; Vulkan set 0, binding 0..n-1 */
    uint32_t n_scalars;     /* 32-bit ints after the buffers; Vulkan push constants in order */
    uint32_t write_mask;    /* bit i: buffer i is written, the others are only read; launches run at
                               once unless one writes what another touches. At most 32 buffers */
    const uint32_t *spirv;  /* Vulkan only */
    uint32_t spirv_bytes;
    void (*emulated)(void **params); /* CUDA emulation only; params as for cuLaunchKernel */
} mlcc_gpu_kernel;

/* A step of the program. Loops nest; the counter of the loop at depth d (outermost 0) is what a
 * launch's scalar `d` receives. */
enum { MLCC_STEP_LAUNCH, MLCC_STEP_LOOP, MLCC_STEP_END };

typedef struct mlcc_gpu_step {
    uint32_t kind;     /* MLCC_STEP_* */
    uint32_t kernel;   /* LAUNCH: index into kernels */
    uint32_t grid[3];  /* LAUNCH: blocks */
    uint32_t first_arg; /* LAUNCH: kernels[kernel].n_args entries of `args` from here */
    uint8_t scalar[MLCC_GPU_MAX_SCALARS]; /* LAUNCH: the loop depth each scalar reads */
    uint32_t trips;    /* LOOP: how many times the steps up to the matching END run */
} mlcc_gpu_step;

/* Code for one device architecture. */
typedef struct mlcc_gpu_image {
    uint32_t arch;      /* 80, 90, ...; with `suffix` 'a' only that very architecture fits */
    char suffix;        /* 'a', 'f' or 0 */
    uint8_t is_ptx;     /* PTX text (zero-terminated) instead of a cubin */
    const void *bytes;
    uint64_t n_bytes;
} mlcc_gpu_image;

/* A part of the block of states that is not zeros at first. */
typedef struct mlcc_gpu_copy {
    uint64_t offset;  /* in the block of states */
    uint64_t initial; /* where its first value is in the weights */
    uint64_t bytes;
} mlcc_gpu_copy;

typedef struct mlcc_gpu_program {
    const mlcc_model *model;
    uint32_t n_kernels, n_steps, n_images;
    const mlcc_gpu_kernel *kernels;
    const mlcc_gpu_arg *args;
    const mlcc_gpu_step *steps;
    const mlcc_gpu_image *images; /* CUDA only */
    uint64_t arena_bytes;         /* device memory for intermediate tensors */
    const void *weights;          /* model->weight_bytes bytes, or NULL: in the side file */
    uint64_t weights_digest;      /* FNV-1a 64 of the weights; the side file is "MLCCWTS2", this
                                     digest, little-endian, zeros, then, from byte
                                     MLCC_GPU_WEIGHTS_HEAD on, the weights */
    uint32_t n_initial;
    const mlcc_gpu_copy *initial; /* the rest of the block of states begins as zeros */
} mlcc_gpu_program;

/* The launchers: mlcc_model's functions for a program. Each launcher is one C file that a GPU `.so`
 * is linked with; the generated file defines `mlcc_program` and the descriptor. */
extern const mlcc_gpu_program mlcc_program;
int mlcc_gpu_open(void **state, const char *weights);
int mlcc_gpu_run(void *state, const void *const *inputs, void *const *outputs, void *arena);
void mlcc_gpu_close(void *state);
int mlcc_gpu_reset(void *state);
const char *mlcc_gpu_error(void *state);

#endif
