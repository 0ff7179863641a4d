/* A dialect: what differs between C99, CUDA C and GLSL, as a table of spellings for the shared
 * printer.
 *
 * A new dialect is one file with one such table, and a bit of helpers.def for the functions that
 * the language lacks. Names that begin with "mlcc_" are helpers; they are printed where they are
 * used.
 */
#ifndef CODEGEN_DIALECT_H
#define CODEGEN_DIALECT_H

#include "ir/kernel.h"

/* Which rows of helpers.def a dialect reads. */
enum { IN_c = 1, IN_cuda = 2, IN_glsl = 4, IN_all = 7, IN_c_like = 3 };

typedef struct Dialect {
    const char *name;
    unsigned helpers; /* IN_<name> */

    const char *reg[DT_count]; /* type of a value, by register type (dt_reg) */
    const char *mem[DT_count]; /* type of an element in memory */
    const char *index; /* type of loop variables and of places (cexpr.c); NULL: that of an i32 */
    /* Type of 2, 4 ... elements in memory, of 16 bytes at most, that are read and written at once
     * from a multiple of these, without their number; .e[i] is one. NULL: there is none. */
    const char *wide[DT_count];
    bool call_casts;           /* float(x) instead of (float)x */
    bool wraps;                /* signed arithmetic and INT_MIN / -1 wrap by definition */
    bool int_promotion;        /* small integers and bool become int by themselves */
    const char *long_suffix;   /* of 64-bit literals; u64: with 'u' before. NULL: INT64_C(x) */
    const char *double_suffix;
    const char *infinity, *nan; /* f32 expressions */

    /* Functions by operator, for f32 and for f64; NULL: there is none. f64_by_f32: operators
     * without a function for f64 compute in f32. */
    const char *fn32[EX_count], *fn64[EX_count];
    const char *fn32_vector[EX_count]; /* instead of fn32 where loops become vectors; NULL: none */
    bool f64_by_f32;
    bool select_min_max; /* min and max of a constant may be printed as a comparison */

    const char *function; /* before the type of a helper function */
    const char *barrier, *global_barrier; /* the other one for memory outside of the block, too */
    bool gcc_makes_vectors; /* of its loops, not always the right ones: see cops.c */
    bool prefetch;          /* there is MLCC_PREFETCH; else nothing is printed */
    const char *unroll;     /* line before a loop to be unrolled; NULL: none */
    const char *lanes;      /* line before a loop over a row of sums; NULL: the device has lanes */
    bool warp_tiles;        /* there are mlcc_ldmatrix_x4 and
                               mlcc_warp_product_<type>_<type> */
    const char *shared;     /* qualifier of shared memory; NULL: there is none */
    bool global_shared;     /* shared memory is declared outside of functions */
    const char *block_at[3], *thread_at[3]; /* expressions of type int; NULL: plain loops */
    const char *const *reserved;            /* NULL-terminated: words that names may not be */
} Dialect;

extern const Dialect dialect_c, dialect_cuda, dialect_glsl;

#endif
