/* warps.onnx: the kernels of a neural network as CUDA C, made by mlcc.
 * Model digest: 0123456789abcdef.
 */
#include "cuda_intrin.h"
#ifndef __cplusplus
#include <stdbool.h>
#endif

MLCC_DEVICE unsigned int mlcc_f32_bits(float x) {
    union {
        float f;
        unsigned int u;
    } v;
    v.f = x;
    return v.u;
}

MLCC_DEVICE unsigned int mlcc_f16_encode(float x) {
    unsigned int bits = mlcc_f32_bits(x);
    if (x == x) return mlcc_float_to_f16(x);
    unsigned int payload = (bits >> 13) & 0x3ffu;
    return ((bits >> 16) & 0x8000u) | 0x7c00u | (payload == 0u ? 0x200u : payload);
}

/* MatMul: x0 bf16[4000], x1 bf16[2400], y f32[960] */
MLCC_GLOBAL(128) k0_matmul(const unsigned short *__restrict__ x0,
                           const unsigned short *__restrict__ x1, float *__restrict__ y) {
    const int i1o = (int)blockIdx.x;
    const int threads = (int)threadIdx.z;
    const int i0io = threads;
    const int i0iiii = (int)threadIdx.y;
    const int i1iiio = (int)threadIdx.x;
    MLCC_SHARED unsigned short tile_a[2560];
    MLCC_SHARED unsigned short tile_b[512];
    float acc[4];
    MLCC_UNROLL
    for (int i0iiio = 0; i0iiio < 2; i0iiio++) {
        MLCC_UNROLL
        for (int i1iiii = 0; i1iiii < 2; i1iiii++) {
            acc[i0iiio * 2 + i1iiii] = 0.0f;
        }
    }
    mlcc_u16x8 next_a_wide[2];
    unsigned short *const next_a = (unsigned short *)next_a_wide;
    MLCC_UNROLL
    for (int load_a = 0; load_a < 4; load_a++) {
        mlcc_u16x4 w0 = {{0}};
        if (load_a * 16 + i0io * 4 + i0iiii / 2 < 40) {
            w0 = *(const mlcc_u16x4 *)(x0 + load_a * 1600 + i0io * 400 + i0iiii / 2 * 100 +
                i0iiii % 2 * 16 + i1iiio * 4);
        }
        *(mlcc_u16x4 *)(next_a + load_a * 4) = w0;
    }
    mlcc_u16x8 next_b_wide[1];
    unsigned short *const next_b = (unsigned short *)next_b_wide;
    if (i0io <= 0) {
        mlcc_u16x8 w1 = {{0}};
        if (i0io * 32 + i0iiii * 4 + i1iiio < 100) {
            w1 = *(const mlcc_u16x8 *)(x1 + i0io * 768 + i0iiii * 96 + i1iiio * 24 + i1o * 8);
        }
        *(mlcc_u16x8 *)(next_b + 0) = w1;
    }
    for (int r0o = 0; r0o < 4; r0o++) {
        MLCC_UNROLL
        for (int load_a = 0; load_a < 4; load_a++) {
            const mlcc_u16x4 w2 = *(mlcc_u16x4 *)(next_a + load_a * 4);
            *(mlcc_u16x4 *)(tile_a + load_a * 640 + i0io * 160 + i0iiii / 2 * 40 +
                i0iiii % 2 * 16 + i1iiio * 4) = w2;
        }
        if (i0io <= 0) {
            const mlcc_u16x8 w3 = *(mlcc_u16x8 *)(next_b + 0);
            *(mlcc_u16x8 *)(tile_b + i0io * 512 + i0iiii * 64 + i1iiio * 16) = w3;
        }
        __syncthreads();
        if (r0o < 3) {
            MLCC_UNROLL
            for (int load_a = 0; load_a < 4; load_a++) {
                mlcc_u16x4 w4 = {{0}};
                const bool v5 = load_a * 16 + i0io * 4 + i0iiii / 2 < 40;
                if (v5 && r0o * 32 + i0iiii % 2 * 16 + i1iiio * 4 < 68) {
                    w4 = *(const mlcc_u16x4 *)(x0 + load_a * 1600 + i0io * 400 +
                        i0iiii / 2 * 100 + r0o * 32 + i0iiii % 2 * 16 + i1iiio * 4 + 32);
                }
                *(mlcc_u16x4 *)(next_a + load_a * 4) = w4;
            }
            if (i0io <= 0) {
                mlcc_u16x8 w6 = {{0}};
                const int v7 = i0io * 32 + r0o * 32 + i0iiii * 4 + i1iiio;
                if (v7 < 68) {
                    w6 = *(const mlcc_u16x8 *)(x1 + i0io * 768 + r0o * 768 + i0iiii * 96 +
                        i1iiio * 24 + i1o * 8 + 768);
                }
                *(mlcc_u16x8 *)(next_b + 0) = w6;
            }
        }
        unsigned int rows[8], columns[4];
        MLCC_UNROLL
        for (int i1iio = 0; i1iio < 1; i1iio++) {
            mlcc_ldmatrix_x4_trans(columns + 4 * i1iio, tile_b + i0iiii * 64 + i1iiio * 16);
        }
        MLCC_UNROLL
        for (int i0iio = 0; i0iio < 1; i0iio++) {
            mlcc_ldmatrix_x4(rows, tile_a + i0io * 640 + i0iiii % 2 * 160 + i1iiio * 40 +
                i0iiii / 2 * 8);
            mlcc_ldmatrix_x4(rows + 4, tile_a + i0io * 640 + i0iiii % 2 * 160 + i1iiio * 40 +
                i0iiii / 2 * 8 + 320);
            MLCC_UNROLL
            for (int step = 0; step < 2; step++) {
                MLCC_UNROLL
                for (int i1iio = 0; i1iio < 1; i1iio++) {
                    mlcc_warp_product_bf16_bf16(acc + 0, rows + 2 * step,
                        columns + 4 * i1iio + 2 * step);
                }
            }
        }
        __syncthreads();
    }
    MLCC_UNROLL
    for (int i0iiio = 0; i0iiio < 2; i0iiio++) {
        if (i0io * 16 + i0iiio * 8 + i0iiii < 40) {
            mlcc_f32x2 out;
            MLCC_UNROLL
            for (int i1iiii = 0; i1iiii < 2; i1iiii++) {
                out.e[i1iiii] = acc[i0iiio * 2 + i1iiii];
            }
            *(mlcc_f32x2 *)(y + i0io * 384 + i0iiio * 192 + i0iiii * 24 + i1o * 8 + i1iiio * 2) =
                out;
        }
    }
}

#ifdef MLCC_EMULATED
void tramp_k0_matmul(void **p);
void tramp_k0_matmul(void **p) {
    k0_matmul(*(const unsigned short **)p[0], *(const unsigned short **)p[1], *(float **)p[2]);
}
#endif

/* Conv: x0 f16[1152], x1 f16[4608], y f16[576] */
MLCC_GLOBAL(128) k1_conv(const unsigned short *__restrict__ x0,
                         const unsigned short *__restrict__ x1, unsigned short *__restrict__ y) {
    const int i2o = (int)blockIdx.x;
    const int threads = (int)threadIdx.z;
    const int i0i1io = threads;
    const int i0i1iiii = (int)threadIdx.y;
    const int i2iiio = (int)threadIdx.x;
    MLCC_SHARED unsigned short tile_a[2560];
    MLCC_SHARED unsigned short tile_b[512];
    float acc[4];
    MLCC_UNROLL
    for (int i0i1iiio = 0; i0i1iiio < 2; i0i1iiio++) {
        MLCC_UNROLL
        for (int i2iiii = 0; i2iiii < 2; i2iiii++) {
            acc[i0i1iiio * 2 + i2iiii] = 0.0f;
        }
    }
    mlcc_u16x8 next_a_wide[2];
    unsigned short *const next_a = (unsigned short *)next_a_wide;
    MLCC_UNROLL
    for (int load_a = 0; load_a < 2; load_a++) {
        const int v1 = load_a * 32 + i0i1io * 8 + i0i1iiii;
        const int v2 = v1 / 6 - 1;
        mlcc_u16x8 w0 = {{0}};
        if (v1 < 36 && v2 >= 0 && v2 < 6 && v1 % 6 >= 1) {
            w0 = *(const mlcc_u16x8 *)(x0 + load_a * 1024 + i0i1io * 256 + i0i1iiii * 32 +
                i2iiio * 8 - 224);
        }
        *(mlcc_u16x8 *)(next_a + load_a * 8) = w0;
    }
    mlcc_u16x8 next_b_wide[1];
    unsigned short *const next_b = (unsigned short *)next_b_wide;
    if (i0i1io <= 0) {
        const mlcc_u16x8 w3 = *(const mlcc_u16x8 *)(x1 + i0i1io * 512 + i0i1iiii * 64 +
            i2iiio * 16 + i2o * 8);
        *(mlcc_u16x8 *)(next_b + 0) = w3;
    }
    for (int r1r2r0o = 0; r1r2r0o < 9; r1r2r0o++) {
        MLCC_UNROLL
        for (int load_a = 0; load_a < 2; load_a++) {
            const mlcc_u16x8 w4 = *(mlcc_u16x8 *)(next_a + load_a * 8);
            *(mlcc_u16x8 *)(tile_a + load_a * 1280 + i0i1io * 320 + i0i1iiii * 40 + i2iiio * 8) =
                w4;
        }
        if (i0i1io <= 0) {
            const mlcc_u16x8 w5 = *(mlcc_u16x8 *)(next_b + 0);
            *(mlcc_u16x8 *)(tile_b + i0i1io * 512 + i0i1iiii * 64 + i2iiio * 16) = w5;
        }
        __syncthreads();
        if (r1r2r0o < 8) {
            MLCC_UNROLL
            for (int load_a = 0; load_a < 2; load_a++) {
                const int v7 = load_a * 32 + i0i1io * 8 + i0i1iiii;
                const int v8 = v7 / 6 + (r1r2r0o + 1) / 3 - 1;
                const int v9 = v7 % 6 + (r1r2r0o + 1) % 3 - 1;
                mlcc_u16x8 w6 = {{0}};
                if (v7 < 36 && v8 >= 0 && v8 < 6 && v9 >= 0 && v9 < 6) {
                    w6 = *(const mlcc_u16x8 *)(x0 + load_a * 1024 + i0i1io * 256 + (r1r2r0o +
                        1) / 3 * 192 + (r1r2r0o + 1) % 3 * 32 + i0i1iiii * 32 + i2iiio * 8 - 224);
                }
                *(mlcc_u16x8 *)(next_a + load_a * 8) = w6;
            }
            if (i0i1io <= 0) {
                const mlcc_u16x8 w10 = *(const mlcc_u16x8 *)(x1 + i0i1io * 512 + r1r2r0o * 512 +
                    i0i1iiii * 64 + i2iiio * 16 + i2o * 8 + 512);
                *(mlcc_u16x8 *)(next_b + 0) = w10;
            }
        }
        unsigned int rows[8], columns[4];
        MLCC_UNROLL
        for (int i2iio = 0; i2iio < 1; i2iio++) {
            mlcc_ldmatrix_x4_trans(columns + 4 * i2iio, tile_b + i0i1iiii * 64 + i2iiio * 16);
        }
        MLCC_UNROLL
        for (int i0i1iio = 0; i0i1iio < 1; i0i1iio++) {
            mlcc_ldmatrix_x4(rows, tile_a + i0i1io * 640 + i0i1iiii % 2 * 160 + i2iiio * 40 +
                i0i1iiii / 2 * 8);
            mlcc_ldmatrix_x4(rows + 4, tile_a + i0i1io * 640 + i0i1iiii % 2 * 160 + i2iiio * 40 +
                i0i1iiii / 2 * 8 + 320);
            MLCC_UNROLL
            for (int step = 0; step < 2; step++) {
                MLCC_UNROLL
                for (int i2iio = 0; i2iio < 1; i2iio++) {
                    mlcc_warp_product_f16_f16(acc + 0, rows + 2 * step,
                        columns + 4 * i2iio + 2 * step);
                }
            }
        }
        __syncthreads();
    }
    MLCC_UNROLL
    for (int i0i1iiio = 0; i0i1iiio < 2; i0i1iiio++) {
        if (i0i1io * 16 + i0i1iiio * 8 + i0i1iiii < 36) {
            mlcc_u16x2 out;
            MLCC_UNROLL
            for (int i2iiii = 0; i2iiii < 2; i2iiii++) {
                out.e[i2iiii] = (unsigned short)mlcc_f16_encode(acc[i0i1iiio * 2 + i2iiii]);
            }
            *(mlcc_u16x2 *)(y + i0i1io * 256 + i0i1iiio * 128 + i0i1iiii * 16 + i2o * 8 +
                i2iiio * 2) = out;
        }
    }
}

#ifdef MLCC_EMULATED
void tramp_k1_conv(void **p);
void tramp_k1_conv(void **p) {
    k1_conv(*(const unsigned short **)p[0], *(const unsigned short **)p[1],
            *(unsigned short **)p[2]);
}
#endif

/* MatMulInteger: x0 u8[2048], x1 i8[1024], y i32[512] */
MLCC_GLOBAL(128) k2_matmulinteger(const unsigned char *__restrict__ x0,
                                  const signed char *__restrict__ x1, int *__restrict__ y) {
    const int i1o = (int)blockIdx.x;
    const int threads = (int)threadIdx.z;
    const int i0io = threads;
    const int i0iiii = (int)threadIdx.y;
    const int i1iiio = (int)threadIdx.x;
    MLCC_SHARED unsigned char tile_a[5120];
    MLCC_SHARED signed char tile_b[640];
    int acc[4];
    MLCC_UNROLL
    for (int i0iiio = 0; i0iiio < 2; i0iiio++) {
        MLCC_UNROLL
        for (int i1iiii = 0; i1iiii < 2; i1iiii++) {
            acc[i0iiio * 2 + i1iiii] = 0;
        }
    }
    MLCC_UNROLL
    for (int load_a = 0; load_a < 2; load_a++) {
        mlcc_u8x16 w0 = {{0}};
        if (load_a <= 0) {
            w0 = *(const mlcc_u8x16 *)(x0 + load_a * 2048 + i0io * 512 + i0iiii * 64 +
                i1iiio * 16);
        }
        *(mlcc_u8x16 *)(tile_a + load_a * 2560 + i0io * 640 + i0iiii * 80 + i1iiio * 16) = w0;
    }
    if (i0io <= 1) {
        const mlcc_i8x8 w1 = *(const mlcc_i8x8 *)(x1 + i0io * 512 + i0iiii * 64 + i1iiio * 16 +
            i1o * 8);
        MLCC_UNROLL
        for (int one_b = 0; one_b < 8; one_b++) {
            const int v2 = one_b * 80 + i0io * 32 + i0iiii * 4 + i1iiio;
            tile_b[v2] = (signed char)w1.e[one_b];
        }
    }
    __syncthreads();
    unsigned int rows[8], columns[4];
    MLCC_UNROLL
    for (int i1iio = 0; i1iio < 1; i1iio++) {
        mlcc_ldmatrix_x4(columns + 4 * i1iio,
            tile_b + i0iiii % 2 * 320 + i1iiio * 80 + i0iiii / 2 * 16);
    }
    MLCC_UNROLL
    for (int i0iio = 0; i0iio < 1; i0iio++) {
        mlcc_ldmatrix_x4(rows, tile_a + i0io * 1280 + i0iiii % 2 * 320 + i1iiio * 80 +
            i0iiii / 2 * 16);
        mlcc_ldmatrix_x4(rows + 4, tile_a + i0io * 1280 + i0iiii % 2 * 320 + i1iiio * 80 +
            i0iiii / 2 * 16 + 640);
        MLCC_UNROLL
        for (int step = 0; step < 2; step++) {
            MLCC_UNROLL
            for (int i1iio = 0; i1iio < 1; i1iio++) {
                mlcc_warp_product_u8_i8(acc + 0, rows + 2 * step, columns + 4 * i1iio + 2 * step);
            }
        }
    }
    __syncthreads();
    MLCC_UNROLL
    for (int i0iiio = 0; i0iiio < 2; i0iiio++) {
        if (i0io <= 1) {
            mlcc_i32x2 out;
            MLCC_UNROLL
            for (int i1iiii = 0; i1iiii < 2; i1iiii++) {
                out.e[i1iiii] = acc[i0iiio * 2 + i1iiii];
            }
            *(mlcc_i32x2 *)(y + i0io * 256 + i0iiio * 128 + i0iiii * 16 + i1o * 8 + i1iiio * 2) =
                out;
        }
    }
}

#ifdef MLCC_EMULATED
void tramp_k2_matmulinteger(void **p);
void tramp_k2_matmulinteger(void **p) {
    k2_matmulinteger(*(const unsigned char **)p[0], *(const signed char **)p[1], *(int **)p[2]);
}
#endif

