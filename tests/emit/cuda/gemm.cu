/* gemm.onnx: the kernels of a neural network as CUDA C, made by mlcc.
 * Model digest: 0123456789abcdef.
 */
#include "cuda_intrin.h"

/* MatMul(mm), Relu(relu): a f32[20, 24], b f32[24, 18], c f32[20, 18] */
MLCC_GLOBAL(16) k0_matmul(const float *__restrict__ a, const float *__restrict__ b,
                          float *__restrict__ c) {
    const int by = (int)blockIdx.y;
    const int bx = (int)blockIdx.x;
    MLCC_SHARED float tile_a[72];
    MLCC_SHARED float tile_b[64];
    const int ty = (int)threadIdx.y;
    const int tx = (int)threadIdx.x;
    float acc[4];
    MLCC_UNROLL
    for (int i = 0; i < 2; i++) {
        MLCC_UNROLL
        for (int j = 0; j < 2; j++) {
            acc[i * 2 + j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < 3; k0++) {
        MLCC_UNROLL
        for (int l = 0; l < 4; l++) {
            const int row = ty * 2 + l / 2;
            const int col = tx * 2 + l % 2;
            const float v0 = by * 8 + row < 20 ? a[by * 192 + row * 24 + k0 * 8 + col] : 0.0f;
            tile_a[row * 9 + col] = v0;
            const float v1 = bx * 8 + col < 18 ? b[k0 * 144 + row * 18 + bx * 8 + col] : 0.0f;
            tile_b[row * 8 + col] = v1;
        }
        __syncthreads();
        for (int k = 0; k < 8; k++) {
            MLCC_UNROLL
            for (int i1 = 0; i1 < 2; i1++) {
                MLCC_UNROLL
                for (int j1_2 = 0; j1_2 < 2; j1_2++) {
                    const int v2 = i1 * 2 + j1_2;
                    acc[v2] += tile_a[ty * 18 + i1 * 9 + k] * tile_b[k * 8 + tx * 2 + j1_2];
                }
            }
        }
        __syncthreads();
    }
    MLCC_UNROLL
    for (int i2 = 0; i2 < 2; i2++) {
        MLCC_UNROLL
        for (int j2 = 0; j2 < 2; j2++) {
            if (by * 8 + ty * 2 + i2 < 20 && bx * 8 + tx * 2 + j2 < 18) {
                const int v3 = by * 144 + ty * 36 + i2 * 18 + bx * 8 + tx * 2 + j2;
                const float v4 = acc[i2 * 2 + j2];
                c[v3] = v4 < 0.0f ? 0.0f : v4;
            }
        }
    }
}

#ifdef MLCC_EMULATED
void tramp_k0_matmul(void **p);
void tramp_k0_matmul(void **p) {
    k0_matmul(*(const float **)p[0], *(const float **)p[1], *(float **)p[2]);
}
#endif

