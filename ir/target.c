/* See target.h. */
#include "ir/target.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const Target targets[] = {
    {.name = "c",
     .meaning = "standalone C99",
     .vector_bytes = 16, /* what every 64-bit x86 and Arm has */
     .vector_registers = 16,
     .l1_bytes = 32 << 10,
     .l2_bytes = 512 << 10,
     .l3_bytes = 8 << 20,
     .max_grid = INT32_MAX,
     .buffer_align = 64},
    {.name = "cuda",
     .meaning = "CUDA C, cubins and PTX",
     .blocks = true,
     .half_floats = true,
     .shared_bytes = 48 << 10,
     .block_threads = 256,
     .max_block_threads = 1024,
     .max_grid = 65535,
     .few_blocks = 256,
     .at_once = 4,
     .warp_tiles = true,
     .multiprocessors = 132,
     .buffer_align = 256},
    {.name = "vulkan",
     .meaning = "GLSL compute shaders, SPIR-V",
     .blocks = true,
     .half_floats = true,
     .shared_bytes = 16 << 10,
     .block_threads = 128,
     .max_block_threads = 128,
     .max_grid = 65535,
     .few_blocks = 256,
     .at_once = 1,
     .multiprocessors = 132,
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

enum {
    BYTES = 1,
    BYTE_DOTS = 2,
    WORDS = 4,
    BF16 = 8,
    TILES = 16,
    WHOLE = 32,
    PAIRS = 64,
    SIGNED = 128,
    UNFUSED = 256,
    HALVES = 512
};

typedef struct ArchRow {
    const char *name;
    int vector_bytes, vector_registers;
    int has;    /* of what Target names */
    int l2_kib; /* 0: what the target says */
} ArchRow;

static const ArchRow archs[] = {
    {"x86-64", 16, 16, UNFUSED | BYTES | WORDS, 0},
    {"x86-64-v2", 16, 16, UNFUSED | BYTES | WORDS | PAIRS, 0},
    {"x86-64-v3", 32, 16, BYTES | WORDS | PAIRS, 0},
    {"haswell", 32, 16, BYTES | WORDS | PAIRS, 256},
    {"x86-64-v4", 64, 32, HALVES | BYTES | WORDS | PAIRS, 1024},
    {"skylake-avx512", 64, 32, WHOLE | BYTES | WORDS | PAIRS, 1024},
    {"cascadelake", 64, 32, WHOLE | BYTES | BYTE_DOTS | WORDS, 1024},
    {"icelake-server", 64, 32, WHOLE | BYTES | BYTE_DOTS | WORDS, 1280},
    {"sapphirerapids", 64, 32, WHOLE | BYTES | BYTE_DOTS | WORDS | BF16 | TILES, 2048},
    {"znver1", 32, 16, BYTES | WORDS | PAIRS, 512},
    {"znver2", 32, 16, BYTES | WORDS | PAIRS, 512},
    {"znver3", 32, 16, BYTES | WORDS | PAIRS, 512},
    {"znver4", 64, 32, HALVES | BYTES | BYTE_DOTS | WORDS | BF16, 1024},
    {"znver5", 64, 32, BYTES | BYTE_DOTS | WORDS | BF16, 1024},
    {"armv8-a", 16, 32, BYTES | SIGNED, 0},
    {"armv8.2-a+dotprod+fp16", 16, 32, BYTES | BYTE_DOTS | SIGNED, 0},
};

/* Cores without vectors, by how compilers' names of them begin: what follows are extensions. (If
 * these have vectors, they are not used.) */
static const struct {
    const char *name;
    int scalars; /* registers of integers that a loop can use */
    bool halves; /* instructions for two halves of 16 bits at once: Arm's DSP extension */
    bool floats; /* a floating-point unit, unless the name says +nofp */
} cores[] = {
    {"armv6-m", THUMB_1, false, false},        {"armv6s-m", THUMB_1, false, false},
    {"armv7-m", THUMB_2, false, false},        {"armv7e-m", THUMB_2, true, false},
    {"armv8-m.base", THUMB_1, false, false},   {"armv8-m.main", THUMB_2, false, false},
    {"armv8.1-m.main", THUMB_2, false, false}, {"cortex-m0", THUMB_1, false, false},
    {"cortex-m0plus", THUMB_1, false, false},  {"cortex-m1", THUMB_1, false, false},
    {"cortex-m3", THUMB_2, false, false},      {"cortex-m4", THUMB_2, true, true},
    {"cortex-m7", THUMB_2, true, true},        {"cortex-m23", THUMB_1, false, false},
    {"cortex-m33", THUMB_2, true, true},       {"cortex-m35p", THUMB_2, true, true},
    {"cortex-m55", THUMB_2, true, true},       {"cortex-m85", THUMB_2, true, true},
    {"rv32e", RISCV_E, false, false},          {"rv64e", RISCV_E, false, false},
    {"rv32", RISCV_I, false, false},           {"rv64", RISCV_I, false, false},
};

const char *target_arch(int i) {
    const int n = sizeof archs / sizeof *archs, n_cores = sizeof cores / sizeof *cores;
    return i < n ? archs[i].name : i - n < n_cores ? cores[i - n].name : NULL;
}

#define SCALAR_FLOATS 32 /* registers of a floating-point unit of such */
#define KEPT_FLOATS   6  /* where functions compute with floats: registers that they leave alone */

/* Do the extensions in a core's name have a floating-point unit? */
static bool has_float_unit(const char *name, const char *rest) {
    if (!strncmp(name, "rv", 2)) return strcspn(rest, "fdgq") < strcspn(rest, "_zsx");
    return strstr(rest, "+fp") || strstr(rest, ".fp");
}

void target_set_core(Target *t, int scalars, bool halves, bool floats) {
    t->vector_bytes = 4;
    t->scalar_registers = scalars;
    t->soft_floats = !floats;
    t->vector_registers = floats ? SCALAR_FLOATS : KEPT_FLOATS;
    t->byte_products = halves;
}

/* The facts of a core without vectors; false: it is not a name of one. */
static bool read_core(const char *arch, Target *t) {
    for (size_t i = 0; arch && i < sizeof cores / sizeof *cores; i++) {
        const size_t length = strlen(cores[i].name);
        const char *rest = arch + length;
        if (strncmp(arch, cores[i].name, length) != 0) continue;
        if (*rest && *rest != '+' && strncmp(arch, "rv", 2) != 0) continue;
        const bool halves = cores[i].halves || strstr(rest, "+dsp") || strstr(rest, "+mve");
        const bool floats = cores[i].floats ? !strstr(rest, "+nofp") : has_float_unit(arch, rest);
        target_set_core(t, cores[i].scalars, halves && !strstr(rest, "+nodsp"), floats);
        return true;
    }
    return false;
}

#if defined(__x86_64__)
/* Dots of bytes for vectors of 32 bytes: processors without AVX-512. (Not all compilers know a name
 * of this for __builtin_cpu_supports.) */
static bool has_avx_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}
#endif

/* What the machine that compiles has. */
static ArchRow native(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        int has = BYTES | WORDS;
        has |= __builtin_cpu_supports("avx512vnni") ? BYTE_DOTS : PAIRS;
        if (__builtin_cpu_supports("avx512bf16")) has |= BF16;
        if (matrix_tiles_work()) has |= TILES;
        if (__builtin_cpu_is("intel")) has |= WHOLE;
        if (__builtin_cpu_is("amdfam19h")) has |= HALVES;
        return (ArchRow){"native", 64, 32, has, 1024};
    }
    if (__builtin_cpu_supports("avx2"))
        return (ArchRow){"native", 32, 16, BYTES | WORDS | (has_avx_vnni() ? BYTE_DOTS : PAIRS), 0};
    int bytes = __builtin_cpu_supports("ssse3") ? BYTES | PAIRS : 0;
    return (ArchRow){"native", 16, 16, UNFUSED | bytes | WORDS, 0};
#else
    return (ArchRow){"native", 16, 32, 0, 0};
#endif
}

double target_lost(const Target *t, double bytes) {
    double half = (double)t->l2_bytes / 2;
    return fmin(1, fmax(0, bytes - half) / half);
}

int target_window(const Target *t) {
    return t->vector_bytes == 64 ? 64 : 16;
}

DType target_row_bytes(const Target *t) {
    return t->signed_rows ? DT_i8 : DT_u8;
}

int target_products(const Target *t, DType rows, DType columns) {
    if (t->byte_products && rows == target_row_bytes(t) && columns == DT_i8) return 4;
    if (t->word_products && rows == DT_i16 && columns == DT_i16) return 2;
    if (t->bf16_products && rows == DT_bf16 && columns == DT_bf16) return 2;
    return 1;
}

double target_rate(const Target *t, DType rows, DType columns) {
    int at_once = target_products(t, rows, columns);
    if (rows != DT_bf16 && !t->byte_dots) return 1; /* multiplied in pairs, then added */
    return t->matrix_tiles && rows != DT_i16 && at_once > 1 ? 8 * at_once : at_once;
}

/* Multiprocessors of usual devices of a compute capability; of those that were built small and
 * large one in between. */
static const struct {
    int capability, multiprocessors;
} devices[] = {{72, 8},   {75, 40},   {80, 108},  {86, 60},  {87, 16},  {89, 76},
               {90, 132}, {100, 148}, {103, 148}, {110, 20}, {120, 84}, {121, 48}};

#define WARP_TILES_FROM 80 /* compute capability that has mma of 16 x 8 x 16 */

/* The facts for a list of architectures as "sm_80,sm_90a,compute_80": as many multiprocessors as
 * the largest has, and what each of them can do. */
static void read_devices(const char *list, Target *t) {
    int most = 0;
    for (const char *at = list; (at = strchr(at, '_')); at++) {
        const int capability = atoi(at + 1);
        t->warp_tiles &= capability >= WARP_TILES_FROM;
        for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
            if (capability == devices[i].capability && devices[i].multiprocessors > most)
                most = devices[i].multiprocessors;
    }
    if (most) t->multiprocessors = most;
}

Target target_for_arch(const Target *t, const char *arch) {
    Target result = *t;
    if (t->blocks && arch) read_devices(arch, &result);
    if (!t->blocks && read_core(arch, &result)) return result;
    ArchRow row = {NULL, t->vector_bytes, t->vector_registers, 0, 0};
    for (size_t i = 0; arch && i < sizeof archs / sizeof *archs; i++)
        if (!strcmp(arch, archs[i].name)) row = archs[i];
    if (arch && !strcmp(arch, "native")) row = native();
    if (t->vector_bytes) {
        result.vector_bytes = row.vector_bytes;
        result.vector_registers = row.vector_registers;
        result.vector_types = row.name != NULL;
        result.byte_products = row.has & BYTES;
        result.signed_rows = row.has & SIGNED;
        result.byte_pairs = row.has & PAIRS;
        result.byte_dots = row.has & BYTE_DOTS;
        result.word_products = row.has & WORDS;
        result.unfused_products = row.has & UNFUSED;
        result.bf16_products = row.has & BF16;
        result.matrix_tiles = row.has & TILES;
        result.whole_vectors = row.has & WHOLE;
        result.half_units = row.has & HALVES;
        result.half_vectors = row.vector_bytes >= 32; /* AVX2 never came without F16C */
        if (row.l2_kib) result.l2_bytes = (int64_t)row.l2_kib << 10;
    }
    return result;
}
