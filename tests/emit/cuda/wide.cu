/* wide.onnx: the kernels of a neural network as CUDA C, made by mlcc.
 * Model digest: 0123456789abcdef.
 */
#include "cuda_intrin.h"

/* MatMul(t), Add(y): x0 f32[576], x1 f32[640], x2 f32[1440], y f32[1440] */
MLCC_GLOBAL(64) k0_matmul_t(const float *__restrict__ x0, const float *__restrict__ x1,
                            const float *__restrict__ x2, float *__restrict__ y) {
    const int i0o = (int)blockIdx.y;
    const int i1o = (int)blockIdx.x;
    const int i0io = (int)threadIdx.y;
    const int i1iio = (int)threadIdx.x;
    MLCC_SHARED float tile_a[576];
    MLCC_SHARED float tile_b[576];
    float acc[16];
    MLCC_UNROLL
    for (int i0ii = 0; i0ii < 4; i0ii++) {
        MLCC_UNROLL
        for (int i1iii = 0; i1iii < 4; i1iii++) {
            acc[i0ii * 4 + i1iii] = 0.0f;
        }
    }
    MLCC_UNROLL
    for (int load_a = 0; load_a < 2; load_a++) {
        mlcc_f32x4 w0 = {{0}};
        if (i1o * 32 + i1iio * 4 < 36) {
            w0 = *(const mlcc_f32x4 *)(x0 + load_a * 288 + i0io * 36 + i1o * 32 + i1iio * 4);
        }
        MLCC_UNROLL
        for (int one_a = 0; one_a < 4; one_a++) {
            const int v1 = load_a * 288 + i0io * 36 + i1iio * 4 + one_a;
            tile_a[v1] = w0.e[one_a];
        }
    }
    MLCC_UNROLL
    for (int load_b = 0; load_b < 2; load_b++) {
        mlcc_f32x4 w2 = {{0}};
        const int v3 = i0o * 32 + load_b * 16 + i0io * 2 + i1iio / 4;
        if (v3 < 40) {
            w2 = *(const mlcc_f32x4 *)(x1 + i0o * 512 + load_b * 256 + i0io * 32 + i1iio * 4);
        }
        MLCC_UNROLL
        for (int one_b = 0; one_b < 4; one_b++) {
            const int v4 = i1iio / 4;
            const int v5 = i1iio % 4 * 144 + one_b * 36 + load_b * 16 + i0io * 2 + v4;
            tile_b[v5] = w2.e[one_b];
        }
    }
    __syncthreads();
    for (int r0i = 0; r0i < 16; r0i++) {
        MLCC_UNROLL
        for (int i0ii = 0; i0ii < 4; i0ii++) {
            MLCC_UNROLL
            for (int i1iii = 0; i1iii < 4; i1iii++) {
                const int v6 = i0ii * 4 + i1iii;
                acc[v6] += tile_a[r0i * 36 + i1iio * 4 + i1iii] * tile_b[r0i * 36 + i0io * 4 +
                    i0ii];
            }
        }
    }
    __syncthreads();
    MLCC_UNROLL
    for (int i0ii = 0; i0ii < 4; i0ii++) {
        if (i0o * 32 + i0io * 4 + i0ii < 40 && i1o * 32 + i1iio * 4 < 36) {
            const mlcc_f32x4 w7 = *(const mlcc_f32x4 *)(x2 + i0o * 1152 + i0io * 144 +
                i0ii * 36 + i1o * 32 + i1iio * 4);
            mlcc_f32x4 out;
            MLCC_UNROLL
            for (int i1iii = 0; i1iii < 4; i1iii++) {
                out.e[i1iii] = w7.e[i1iii] + acc[i0ii * 4 + i1iii];
            }
            *(mlcc_f32x4 *)(y + i0o * 1152 + i0io * 144 + i0ii * 36 + i1o * 32 + i1iio * 4) = out;
        }
    }
}

#ifdef MLCC_EMULATED
void tramp_k0_matmul_t(void **p);
void tramp_k0_matmul_t(void **p) {
    k0_matmul_t(*(const float **)p[0], *(const float **)p[1], *(const float **)p[2],
                *(float **)p[3]);
}
#endif

