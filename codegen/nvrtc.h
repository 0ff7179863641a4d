/* NVRTC: CUDA C text to device code, in memory, without a GPU, a toolkit's headers or a process.
 *
 * The library is found at run time, so that mlcc is built and prints CUDA text without it. It is
 * looked for in the folder given; without one: where the system's loader looks, in a Python
 * environment `venv` beside the running program (or one folder up) that holds the wheel
 * nvidia-cuda-nvrtc, and where CUDA is usually installed. Versions 13 and 12 serve.
 */
#ifndef CODEGEN_NVRTC_H
#define CODEGEN_NVRTC_H

#include "codegen/codegen.h"
#include "ir/diag.h"

/* What is compiled for if nothing else is said: code for A100 and later of its generation, code for
 * H100 with what only it has, and PTX that any later device compiles itself. */
#define NVRTC_DEFAULT_ARCHS "sm_80,sm_90a,compute_80"

typedef struct NvrtcHeader {
    const char *name; /* as in #include "name" */
    const char *text;
} NvrtcHeader;

typedef struct NvrtcOptions {
    const char *folder; /* of libnvrtc (`--nvrtc=DIR`), searched alone; NULL: search */
    const char *archs;  /* "sm_80,sm_90a,compute_80": cubins and PTX; NULL: NVRTC_DEFAULT_ARCHS */
    int n_headers;      /* files in memory that the text includes */
    const NvrtcHeader *headers;
    int n_flags; /* more flags for NVRTC, e.g. "--fmad=false" */
    const char *const *flags;
} NvrtcOptions;

typedef struct NvrtcResult {
    int n_images;       /* one for each of `archs`, in their order */
    const Blob *images; /* PTX without its terminating zero in `bytes`, but with one behind it */
    const char *log;    /* what NVRTC said although it compiled; "" if nothing */
} NvrtcResult;

/* Compiles `source` (named `name` in messages) for each architecture. The same text gives the same
 * bytes. Returns 0, or -1 with a message: E4201 no library, E4202 an architecture that it does not
 * know, E4203 an error in the text, E4204 any other failure. `options` may be NULL. */
int nvrtc_compile(Arena *arena, Diag *diag, const NvrtcOptions *options, const char *name,
                  const char *source, NvrtcResult *result);

#endif
