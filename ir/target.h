/* A target: facts that passes ask for by name, never the target's identity. The table is target.c.
 */
#ifndef IR_TARGET_H
#define IR_TARGET_H

#include "ir/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes: what lies a multiple of this apart competes for the same lines of an L1 cache. */
#define LINE_BYTES   64 /* of a cache */
#define L1_WAY_BYTES 4096

typedef struct Target {
    const char *name;    /* -t */
    const char *meaning; /* one line for --help */
    bool blocks;         /* kernels are grids of blocks of threads (else plain loops) */
    bool half_floats;    /* narrow floats are loaded and converted by an instruction */
    int vector_bytes;    /* width of a vector register; 0: none */
    int vector_registers;
    int scalar_registers; /* not 0: the core has no vectors, but so many registers for integers, and
                             those for floats are vector_registers */
    bool soft_floats;   /* no instruction computes with floats */
    bool byte_products; /* a few instructions add four products of bytes in lanes */
    bool signed_rows;   /* ... of signed ones; else those of rows are unsigned */
    bool byte_pairs;    /* one adds two of them, which must fit into 16 bits (role short) */
    bool byte_dots;     /* one does, which makes sums of few products worth it, too */
    bool word_products; /* an instruction or two add two products of signed words of 16 bits */
    bool unfused_products; /* of floats, in vectors: they take an instruction, and a register,
                              before they are added */
    bool bf16_products; /* an instruction adds two products of bf16 in lanes of f32 */
    bool matrix_tiles;  /* one adds products of tiles, of bytes and of bf16 */
    bool warp_tiles;    /* a warp multiplies tiles, of floats of 16 bits and of bytes */
    bool half_vectors;  /* vectors of half floats are loaded and decoded by an instruction or two */
    bool vector_types;  /* kernels are printed with vector types: accumulators stay in registers */
    bool whole_vectors; /* narrower ones take longer: of two multipliers one is for whole vectors */
    bool half_units;    /* units are half as wide as vectors, which take them twice */
    int64_t l1_bytes, l2_bytes; /* caches of one core */
    int64_t l3_bytes;           /* what a core can count on of the one that all share */
    int64_t shared_bytes;       /* shared memory of a block */
    int block_threads;          /* threads of a block by default */
    int max_block_threads;
    int64_t max_grid;    /* blocks in one grid dimension */
    int few_blocks;      /* grids of fewer leave multiprocessors of a large device idle */
    int at_once;         /* elements of 4 bytes that a thread reads or writes as one; 1: no more */
    int multiprocessors; /* that schedules keep at work */
    int buffer_align;    /* of every tensor in the arena and the weights, bytes */
} Target;

const Target *target_find(const char *name);
/* The facts of `t` for an architecture as C compilers name it (-march=): vector width and
 * registers; of devices, for a list of those that NVRTC knows: multiprocessors, and what all of
 * them can do. An unknown name, "generic" among them, leaves them as they are: kernels are portable
 * plain loops. */
Target target_for_arch(const Target *t, const char *arch);
/* Registers of integers that a loop can use. */
enum { THUMB_1 = 8, THUMB_2 = 13, RISCV_E = 12, RISCV_I = 27 };
/* Makes the facts those of a core without vectors, with so many registers. halves: instructions for
 * two halves of 16 bits at once (Arm's DSP extension); floats: it has a floating-point unit. */
void target_set_core(Target *t, int scalars, bool halves, bool floats);
/* The i-th name of an architecture that target_for_arch knows, NULL past the end; those of cores
 * without vectors may have extensions behind them. */
const char *target_arch(int i);
/* The part of a panel of so many bytes that the L2 cache loses while other operands go by: half of
 * the cache stays. */
double target_lost(const Target *t, double bytes);
/* Bytes among which one instruction moves pairs to wherever a vector wants them. */
int target_window(const Target *t);
/* Bytes among which one moves any, each for itself. */
#define BYTES_WINDOW 16
/* The type of bytes that the target multiplies with signed ones. */
DType target_row_bytes(const Target *t);
#define BYTES_AT_ONCE 4 /* products of bytes that a target adds at once, if it does */
/* How many products of elements of these types the target adds at once in a lane; 1: no more than
 * one. */
int target_products(const Target *t, DType rows, DType columns);
/* How many of them it does in the time of a product of f32 in a lane. */
double target_rate(const Target *t, DType rows, DType columns);
/* Does the machine that runs this have such tiles, does the system give them, and are their
 * products right? */
bool matrix_tiles_work(void);
/* The i-th target, NULL past the end. */
const Target *target_at(int i);

#endif
