/* Code generation: from a lowered, scheduled and placed Program to text.
 *
 * One printer (cprint.c) writes kernels in C-like languages; what differs between C99, CUDA C and
 * GLSL is a Dialect: spellings of types, functions, qualifiers, and how buffers and threads are
 * declared. Helper functions that a dialect lacks (erf in GLSL, half conversion in C, ...) are rows
 * of helpers.def, written once in a common subset and printed only when used.
 *
 * All text depends on the program and the options alone: same input, same bytes.
 */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "ir/kernel.h"
#include "ir/target.h"

typedef struct EmitOptions {
    const char *prefix;     /* C identifier that every public name begins with: "digits_model" */
    const char *model_name; /* for the head comment and the descriptor */
    const char *digest;     /* hex digest of the model file, for the head comment; may be NULL */
    /* Where the constants are. Both NULL: in the text. weights_file: in a side file of this name
     * (see weights_mark), which C code gets as a pointer and GPU code reads when it is opened.
     * weights_symbol: in an object with this symbol, see emit_weights_asm. */
    const char *weights_file;
    const char *weights_symbol;
    const uint64_t *weights_digest; /* of the block; NULL: it is computed where a text needs it */
    const char *header_name;        /* C: what the .c includes; NULL: nothing, it declares itself */
    int vector_bytes;   /* C: write vectors of so many bytes as GNU C's; 0: plain loops */
    bool scalars;       /* C: for a core without vectors: small arrays are registers */
    bool whole_vectors; /* C: rather whole ones than narrower ones at the end of a row */
    bool pairs_rows;    /* C: rows' last half vectors two by two as a whole one */
    const char *march;  /* the compiler's flag for what vectors, or scalars, are for; or NULL */
    bool descriptor;    /* C: also print the mlcc_model descriptor (for .so) */
    bool profile; /* C, with descriptor: the time of each step is measured, by runtime/profile.h */
    bool threads; /* C, with descriptor: the steps may run on several threads, by runtime/team.h */
    int *parts; /* C: a text may be compiled in parts, each with MLCC_PART defined as its number; it
                   is set to how many there are. NULL: as a whole only */
    bool share_all; /* with threads: they share whatever they can, not only what gains by it */
    const char *image_decoder; /* text of runtime/image_decoder.h, for graphs with images */
    const char *prologue; /* CUDA: text of runtime/cuda_intrin.h; NULL: it is included by name */
} EmitOptions;

/* C99: the .c file and its header. */
void emit_c(const Program *p, const EmitOptions *o, Text *source, Text *header);
/* A function `int mlcc_may_tile(void)`: does the system give the processor's matrix unit? */
extern const char may_tile_text[];
/* True if the program has work for several threads: with `threads` its text needs runtime/team.h.
 */
bool emit_c_shares(const Program *p, const EmitOptions *o);

/* CUDA: the kernels, one translation unit: for NVRTC, or as C after `-include cuda_emu.h`, where
 * each kernel has a trampoline `void tramp_<kernel>(void **)` besides. */
void emit_cuda(const Program *p, const EmitOptions *o, Text *kernels);

/* Vulkan: a GLSL compute shader for kernel number `kernel` of the program. */
void emit_glsl(const Program *p, const EmitOptions *o, int kernel, Text *shader);

/* A compiled kernel or image to be embedded by emit_gpu_host. */
typedef struct Blob {
    const char *name;
    const void *data;
    size_t bytes;
    int arch;    /* CUDA: 80, 90 ... */
    char suffix; /* CUDA: 'a', 'f' or 0 */
    bool is_ptx; /* zero-terminated text; the zero is counted in `bytes` */
} Blob;

/* The host side of a GPU model: C source with the mlcc_gpu_program table (runtime/gpu.h) and the
 * descriptor. blobs: Vulkan one SPIR-V per kernel in order; CUDA images; emulated: none. */
void emit_gpu_host(const Program *p, const Target *t, const EmitOptions *o, int n_blobs,
                   const Blob *blobs, bool emulated, Text *source);

/* The weights block (Program.weights at their offsets, zero between) in pieces, first byte to last:
 * they are gone when `sink` returns. False as soon as that is false. */
typedef bool WeightsSink(void *user, const void *data, size_t bytes);
bool weights_write(const Program *p, WeightsSink *sink, void *user);
/* The whole of it at once, for what is small; NULL if there are none. Its memory is the program's
 * arena. */
const void *weights_block(const Program *p, size_t *bytes);
/* Its FNV-1a digest: o->weights_digest, where that is known. */
uint64_t weights_digest(const Program *p, const EmitOptions *o);
/* The side file is a head, then the block, at a line of a cache. The head is a mark, "MLCCWTS2" and
 * the block's digest, and zeros. */
#define WEIGHTS_MARK 16
#define WEIGHTS_HEAD 64
void weights_mark(uint64_t digest, unsigned char mark[WEIGHTS_MARK]);
/* GNU assembler text that takes in the file `path`, the weights block or a piece of it; pieces are
 * multiples of the alignment, a power of two, and become the block when they are linked in order.
 * `symbol` stands for the whole, from the first piece on (NULL in others). It is hidden: seen
 * inside the library only. */
void emit_weights_asm(const Program *p, const char *symbol, const char *path, int alignment,
                      Text *out);

#endif
