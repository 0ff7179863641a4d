/* rows.onnx: the kernels of a neural network as CUDA C, made by mlcc.
 * Model digest: 0123456789abcdef.
 */
#include "cuda_intrin.h"

MLCC_DEVICE float mlcc_max_f32(float a, float b) {
    float m = a < b ? b : a;
    return b != b ? b + b : m;
}

/* Softmax(y): x0 f32[1280], y1 f32[40], y2 f32[1280], y3 f32[40], y4 f32[1280] */
MLCC_GLOBAL(32) k0_softmax_y(const float *__restrict__ x0, float *y1_2, float *y2, float *y3,
                             float *y4) {
    const int i0i1_0 = (int)blockIdx.x;
    const int r0i_0 = (int)threadIdx.x;
    float acc_0 = -INFINITY;
    acc_0 = mlcc_max_f32(x0[i0i1_0 * 32 + r0i_0], acc_0);
    MLCC_SHARED float partial_0[32];
    partial_0[r0i_0] = acc_0;
    __syncthreads();
    if (r0i_0 < 4) {
        const float v0 = mlcc_max_f32(partial_0[r0i_0 + 4], partial_0[r0i_0]);
        const float v1 = mlcc_max_f32(mlcc_max_f32(v0, partial_0[r0i_0 + 8]),
            partial_0[r0i_0 + 12]);
        const float v2 = mlcc_max_f32(mlcc_max_f32(v1, partial_0[r0i_0 + 16]),
            partial_0[r0i_0 + 20]);
        const float v3 = mlcc_max_f32(mlcc_max_f32(v2, partial_0[r0i_0 + 24]),
            partial_0[r0i_0 + 28]);
        partial_0[r0i_0] = v3;
    }
    __syncthreads();
    const float v4 = mlcc_max_f32(mlcc_max_f32(partial_0[0], partial_0[1]), partial_0[2]);
    float result_0 = mlcc_max_f32(v4, partial_0[3]);
    if (r0i_0 == 0) {
        y1_2[i0i1_0] = result_0;
    }
    __syncthreads();
    const int v5 = i0i1_0 * 32 + r0i_0;
    y2[v5] = expf(x0[v5] - result_0);
    __syncthreads();
    float acc_2 = 0.0f;
    acc_2 += y2[v5];
    MLCC_SHARED float partial_2[32];
    partial_2[r0i_0] = acc_2;
    __syncthreads();
    if (r0i_0 < 4) {
        const float v6 = partial_2[r0i_0 + 4] + partial_2[r0i_0] + partial_2[r0i_0 + 8];
        const float v7 = v6 + partial_2[r0i_0 + 12] + partial_2[r0i_0 + 16];
        const float v8 = v7 + partial_2[r0i_0 + 20] + partial_2[r0i_0 + 24];
        partial_2[r0i_0] = v8 + partial_2[r0i_0 + 28];
    }
    __syncthreads();
    const float v9 = partial_2[0] + partial_2[1] + partial_2[2] + partial_2[3];
    float result_2 = 1.0f / v9;
    if (r0i_0 == 0) {
        y3[i0i1_0] = result_2;
    }
    __syncthreads();
    y4[v5] = y2[v5] * result_2;
}

#ifdef MLCC_EMULATED
void tramp_k0_softmax_y(void **p);
void tramp_k0_softmax_y(void **p) {
    k0_softmax_y(*(const float **)p[0], *(float **)p[1], *(float **)p[2], *(float **)p[3],
                 *(float **)p[4]);
}
#endif

