/* What every generated `.cu` text begins with: the words of the dialect, and device functions that
 * have no name in CUDA C.
 *
 * The text serves three readers, so it includes nothing: NVRTC (an in-memory header or a prologue;
 * there is no <stdint.h> and no INFINITY there), nvcc, and a host C compiler behind `-include
 * cuda_emu.h`. Every piece of PTX is a named function with its twin for the host right beside it.
 *
 *     MLCC_GLOBAL(256) k3_conv(const float *__restrict__ a0, float *__restrict__ a1, int t0) {
 *         MLCC_SHARED float s0[1024];
 *         ...
 *     }
 */
#ifndef MLCC_RUNTIME_CUDA_INTRIN_H
#define MLCC_RUNTIME_CUDA_INTRIN_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define MLCC_ON_DEVICE       1
#define MLCC_GLOBAL(THREADS) extern "C" __global__ void __launch_bounds__(THREADS)
#define MLCC_DEVICE          static __device__ __forceinline__
#define MLCC_SHARED          __shared__ __align__(16)
#define MLCC_UNROLL          _Pragma("unroll")
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#else
#define MLCC_GLOBAL(THREADS) static void
#define MLCC_DEVICE          static inline __attribute__((unused))
#define MLCC_SHARED          __shared__ __attribute__((aligned(16)))
#if defined(__clang__)
#define MLCC_UNROLL _Pragma("unroll")
#else
#define MLCC_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

/* ---- what threads read and write at once ---- */

#ifdef MLCC_ON_DEVICE
#define MLCC_WIDE(bytes) __align__(bytes)
#else
#define MLCC_WIDE(bytes) __attribute__((aligned(bytes), may_alias))
#endif

/* clang-format off */
typedef struct MLCC_WIDE(8) mlcc_f32x2 { float e[2]; } mlcc_f32x2;
typedef struct MLCC_WIDE(16) mlcc_f32x4 { float e[4]; } mlcc_f32x4;
typedef struct MLCC_WIDE(8) mlcc_i32x2 { int e[2]; } mlcc_i32x2;
typedef struct MLCC_WIDE(16) mlcc_i32x4 { int e[4]; } mlcc_i32x4;

/* The words are there so that compilers copy these. */
typedef union MLCC_WIDE(4) mlcc_u16x2 { unsigned short e[2]; unsigned int word[1]; } mlcc_u16x2;
typedef union MLCC_WIDE(8) mlcc_u16x4 { unsigned short e[4]; unsigned int word[2]; } mlcc_u16x4;
typedef union MLCC_WIDE(16) mlcc_u16x8 { unsigned short e[8]; unsigned int word[4]; } mlcc_u16x8;
typedef union MLCC_WIDE(2) mlcc_u8x2 { unsigned char e[2]; unsigned short word[1]; } mlcc_u8x2;
typedef union MLCC_WIDE(4) mlcc_u8x4 { unsigned char e[4]; unsigned int word[1]; } mlcc_u8x4;
typedef union MLCC_WIDE(8) mlcc_u8x8 { unsigned char e[8]; unsigned int word[2]; } mlcc_u8x8;
typedef union MLCC_WIDE(16) mlcc_u8x16 { unsigned char e[16]; unsigned int word[4]; } mlcc_u8x16;
typedef union MLCC_WIDE(2) mlcc_i8x2 { signed char e[2]; unsigned short word[1]; } mlcc_i8x2;
typedef union MLCC_WIDE(4) mlcc_i8x4 { signed char e[4]; unsigned int word[1]; } mlcc_i8x4;
typedef union MLCC_WIDE(8) mlcc_i8x8 { signed char e[8]; unsigned int word[2]; } mlcc_i8x8;
typedef union MLCC_WIDE(16) mlcc_i8x16 { signed char e[16]; unsigned int word[4]; } mlcc_i8x16;
/* clang-format on */

/* ---- 16-bit floats as bit patterns ---- */

MLCC_DEVICE float mlcc_bf16_to_float(unsigned short v) {
    return __uint_as_float((unsigned int)v << 16);
}

/* Rounds to the nearest even; a not-a-number stays one. */
MLCC_DEVICE unsigned short mlcc_float_to_bf16(float v) {
    const unsigned int bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(bits >> 16 | 0x40u);
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#ifdef MLCC_ON_DEVICE

MLCC_DEVICE float mlcc_f16_to_float(unsigned short v) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}

MLCC_DEVICE unsigned short mlcc_float_to_f16(float v) {
    unsigned short r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

#else

MLCC_DEVICE float mlcc_f16_to_float(unsigned short v) {
    const unsigned int sign = (v & 0x8000u) << 16, exponent = v >> 10 & 31u, rest = v & 0x3ffu;
    float r;
    if (exponent == 31u) return __uint_as_float(sign | 0x7f800000u | rest << 13);
    if (exponent != 0u) return __uint_as_float(sign | (exponent + 112u) << 23 | rest << 13);
    r = (float)rest * (1.0f / 16777216.0f);
    return sign ? -r : r;
}

MLCC_DEVICE unsigned short mlcc_float_to_f16(float v) {
    const unsigned int bits = __float_as_uint(v), sign = bits >> 16 & 0x8000u;
    unsigned int rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return 0x7fffu;
    if (rest >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    if (rest < 0x38800000u) {
        /* Subnormal: the unit of 0.5's last place is that of the result, so adding 0.5 rounds. */
        rest = __float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000u;
        return (unsigned short)(sign | rest);
    }
    rest += 0xfffu + (rest >> 13 & 1u);
    return (unsigned short)(sign | (rest - 0x38000000u) >> 13);
}

#endif

/* ---- asynchronous copies from global to shared memory, sm_80 and later ----
 *
 * mlcc_cp_async16 starts a copy of 16 bytes (both addresses aligned to 16); mlcc_cp_async16_zfill
 * reads only the first `bytes` and fills up with 0. mlcc_cp_async_commit closes a group of copies,
 * and mlcc_cp_async_wait(n) waits until all but the last n groups of this thread (n a constant)
 * have arrived. Other threads see them after the next __syncthreads.
 */
#ifdef MLCC_ON_DEVICE

MLCC_DEVICE unsigned int mlcc_shared_address(const void *at) {
    return (unsigned int)__cvta_generic_to_shared(at);
}

MLCC_DEVICE void mlcc_cp_async16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(mlcc_shared_address(shared)),
                 "l"(global)
                 : "memory");
}

MLCC_DEVICE void mlcc_cp_async16_zfill(void *shared, const void *global, unsigned int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(mlcc_shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
}

MLCC_DEVICE void mlcc_cp_async_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

#define mlcc_cp_async_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

#else

#define mlcc_cp_async16(shared, global)              mlcc_emu_copy16((shared), (global), 16u)
#define mlcc_cp_async16_zfill(shared, global, bytes) mlcc_emu_copy16((shared), (global), (bytes))
#define mlcc_cp_async_commit()                       mlcc_emu_copy_commit()
#define mlcc_cp_async_wait(n)                        mlcc_emu_copy_wait(n)

#endif

/* ---- matrix units, sm_80 and later; all 32 lanes of a warp call together ----
 *
 * d[16][8] = a[16][16] * b[16][8] + c[16][8], spread over the lanes. With g = lane / 4, t = lane %
 * 4, a[r] holds row g + 8 * (r % 2), columns 2t + 8 * (r / 2) and the next (low half first), b[r]
 * holds rows 2t + 8r and the next, column g, c[i] and d[i] hold row g + 8 * (i / 2), column 2t + i
 * % 2. `d` and `c` may be the same array.
 *
 * Of bytes, a has 32 columns and b as many rows: four bytes take the place of two halves. Their
 * sums wrap around.
 *
 * mlcc_ldmatrix_x4 loads four 8x8 matrices of 16-bit numbers from shared memory: lane i gives the
 * address of row i % 8 of matrix i / 8 (16 bytes, aligned to 16) and gets in r[m] columns 2t and 2t
 * + 1 of row g of matrix m; with _trans, rows 2t and 2t + 1 of column g.
 */
#ifdef MLCC_ON_DEVICE

#define MLCC_MMA_M16N8K16(type)                                                                    \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"             \
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),    \
                   "f"(c[1]), "f"(c[2]), "f"(c[3]))

MLCC_DEVICE void mlcc_mma_m16n8k16_f16(float *d, const unsigned int *a, const unsigned int *b,
                                       const float *c) {
    MLCC_MMA_M16N8K16("f16");
}

MLCC_DEVICE void mlcc_mma_m16n8k16_bf16(float *d, const unsigned int *a, const unsigned int *b,
                                        const float *c) {
    MLCC_MMA_M16N8K16("bf16");
}

#define MLCC_PTX_u8 "u8"
#define MLCC_PTX_i8 "s8"

#define MLCC_MMA_BYTES(rows, columns)                                                              \
    MLCC_DEVICE void mlcc_mma_m16n8k32_##rows##_##columns(int *d, const unsigned int *a,           \
                                                          const unsigned int *b, const int *c) {   \
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." MLCC_PTX_##rows                      \
                     "." MLCC_PTX_##columns                                                        \
                     ".s32 "                                                                       \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"         \
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),           \
                       "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));                                \
    }

#define MLCC_LDMATRIX_X4(trans)                                                                    \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0, %1, %2, %3}, [%4];"       \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                  \
                 : "r"(mlcc_shared_address(row))                                                   \
                 : "memory")

MLCC_DEVICE void mlcc_ldmatrix_x4(unsigned int *r, const void *row) {
    MLCC_LDMATRIX_X4("");
}

MLCC_DEVICE void mlcc_ldmatrix_x4_trans(unsigned int *r, const void *row) {
    MLCC_LDMATRIX_X4(".trans");
}

#else

typedef struct mlcc_emu_mma {
    float *d;
    const unsigned int *a, *b;
    const float *c;
} mlcc_emu_mma;

/* Products are exact; each sum is made in double and rounded once. */
static inline __attribute__((unused)) void mlcc_emu_mma_op(void *const *args, unsigned int lanes,
                                                           float (*number)(unsigned short)) {
    double a[16][16], b[16][8], c[16][8];
    if (lanes != 0xffffffffu) __builtin_trap();
    for (int lane = 0; lane < 32; lane++) {
        const mlcc_emu_mma *m = (const mlcc_emu_mma *)args[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i++)
            a[g + 8 * (i / 2 % 2)][2 * t + 8 * (i / 4) + i % 2] =
                (double)number((unsigned short)(m->a[i / 2] >> 16 * (i % 2)));
        for (int i = 0; i < 4; i++) {
            b[2 * t + 8 * (i / 2) + i % 2][g] =
                (double)number((unsigned short)(m->b[i / 2] >> 16 * (i % 2)));
            c[g + 8 * (i / 2)][2 * t + i % 2] = (double)m->c[i];
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        const mlcc_emu_mma *m = (const mlcc_emu_mma *)args[lane];
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            double sum = c[row][column];
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            m->d[i] = (float)sum;
        }
    }
}

MLCC_DEVICE void mlcc_emu_mma_f16(void *const *args, unsigned int lanes) {
    mlcc_emu_mma_op(args, lanes, mlcc_f16_to_float);
}

MLCC_DEVICE void mlcc_emu_mma_bf16(void *const *args, unsigned int lanes) {
    mlcc_emu_mma_op(args, lanes, mlcc_bf16_to_float);
}

MLCC_DEVICE void mlcc_mma_m16n8k16_f16(float *d, const unsigned int *a, const unsigned int *b,
                                       const float *c) {
    mlcc_emu_mma all = {d, a, b, c};
    mlcc_emu_warp(0xffffffffu, mlcc_emu_mma_f16, &all);
}

MLCC_DEVICE void mlcc_mma_m16n8k16_bf16(float *d, const unsigned int *a, const unsigned int *b,
                                        const float *c) {
    mlcc_emu_mma all = {d, a, b, c};
    mlcc_emu_warp(0xffffffffu, mlcc_emu_mma_bf16, &all);
}

typedef struct mlcc_emu_mma_bytes {
    int *d;
    const unsigned int *a, *b;
    const int *c;
    int signed_a, signed_b;
} mlcc_emu_mma_bytes;

MLCC_DEVICE void mlcc_emu_mma_bytes_op(void *const *args, unsigned int lanes) {
    const mlcc_emu_mma_bytes *all = (const mlcc_emu_mma_bytes *)args[0];
    const int half_a = all->signed_a ? 128 : 0, half_b = all->signed_b ? 128 : 0;
    int a[16][32], b[32][8];
    unsigned int c[16][8];
    if (lanes != 0xffffffffu) __builtin_trap();
    for (int lane = 0; lane < 32; lane++) {
        const mlcc_emu_mma_bytes *m = (const mlcc_emu_mma_bytes *)args[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 16; i++)
            a[g + 8 * (i / 4 % 2)][4 * t + 16 * (i / 8) + i % 4] =
                (int)((m->a[i / 4] >> 8 * (i % 4) & 255u) ^ (unsigned int)half_a) - half_a;
        for (int i = 0; i < 8; i++)
            b[4 * t + 16 * (i / 4) + i % 4][g] =
                (int)((m->b[i / 4] >> 8 * (i % 4) & 255u) ^ (unsigned int)half_b) - half_b;
        for (int i = 0; i < 4; i++) c[g + 8 * (i / 2)][2 * t + i % 2] = (unsigned int)m->c[i];
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            unsigned int sum = c[row][column];
            for (int k = 0; k < 32; k++) sum += (unsigned int)(a[row][k] * b[k][column]);
            ((const mlcc_emu_mma_bytes *)args[lane])->d[i] = (int)sum;
        }
}

#define MLCC_SIGNED_u8 0
#define MLCC_SIGNED_i8 1

#define MLCC_MMA_BYTES(rows, columns)                                                              \
    MLCC_DEVICE void mlcc_mma_m16n8k32_##rows##_##columns(int *d, const unsigned int *a,           \
                                                          const unsigned int *b, const int *c) {   \
        mlcc_emu_mma_bytes all = {d, a, b, c, MLCC_SIGNED_##rows, MLCC_SIGNED_##columns};          \
        mlcc_emu_warp(0xffffffffu, mlcc_emu_mma_bytes_op, &all);                                   \
    }

typedef struct mlcc_emu_ldmatrix {
    unsigned int *r;
    const unsigned short *row;
    int trans;
} mlcc_emu_ldmatrix;

MLCC_DEVICE void mlcc_emu_ldmatrix_op(void *const *args, unsigned int lanes) {
    if (lanes != 0xffffffffu) __builtin_trap();
    for (int lane = 0; lane < 32; lane++)
        if ((size_t)((const mlcc_emu_ldmatrix *)args[lane])->row % 16) __builtin_trap();
    for (int lane = 0; lane < 32; lane++) {
        const mlcc_emu_ldmatrix *l = (const mlcc_emu_ldmatrix *)args[lane];
        const int g = lane / 4, t = lane % 4;
        for (int m = 0; m < 4; m++) {
            unsigned int half[2];
            for (int i = 0; i < 2; i++) {
                const int row = l->trans ? 2 * t + i : g, column = l->trans ? g : 2 * t + i;
                half[i] = ((const mlcc_emu_ldmatrix *)args[8 * m + row])->row[column];
            }
            l->r[m] = half[0] | half[1] << 16;
        }
    }
}

MLCC_DEVICE void mlcc_ldmatrix_x4(unsigned int *r, const void *row) {
    mlcc_emu_ldmatrix all = {r, (const unsigned short *)row, 0};
    mlcc_emu_warp(0xffffffffu, mlcc_emu_ldmatrix_op, &all);
}

MLCC_DEVICE void mlcc_ldmatrix_x4_trans(unsigned int *r, const void *row) {
    mlcc_emu_ldmatrix all = {r, (const unsigned short *)row, 1};
    mlcc_emu_warp(0xffffffffu, mlcc_emu_ldmatrix_op, &all);
}

#endif

MLCC_MMA_BYTES(u8, u8)
MLCC_MMA_BYTES(u8, i8)
MLCC_MMA_BYTES(i8, u8)
MLCC_MMA_BYTES(i8, i8)

/* A tile of sums, four in each lane, plus products of 32 bytes of each row and column. With
 * mlcc_ldmatrix_x4 each lane has loaded 64 bytes of 8 rows to four registers, of the next 8 to the
 * four behind them, and of 8 columns to four; `rows` and `columns` are the first of the two
 * registers for these 32. */
#define MLCC_WARP_PRODUCT(type, types, shape)                                                      \
    MLCC_DEVICE void mlcc_warp_product_##types(type *sums, const unsigned int *rows,               \
                                               const unsigned int *columns) {                      \
        const unsigned int a[4] = {rows[0], rows[4], rows[1], rows[5]};                            \
        mlcc_mma_##shape(sums, a, columns, sums);                                                  \
    }

MLCC_WARP_PRODUCT(float, f16_f16, m16n8k16_f16)
MLCC_WARP_PRODUCT(float, bf16_bf16, m16n8k16_bf16)
MLCC_WARP_PRODUCT(int, u8_u8, m16n8k32_u8_u8)
MLCC_WARP_PRODUCT(int, u8_i8, m16n8k32_u8_i8)
MLCC_WARP_PRODUCT(int, i8_u8, m16n8k32_i8_u8)
MLCC_WARP_PRODUCT(int, i8_i8, m16n8k32_i8_i8)

#endif
