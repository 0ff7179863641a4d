/* loop.onnx: the kernels of a neural network as CUDA C, made by mlcc.
 * Model digest: 0123456789abcdef.
 */
#include "cuda_intrin.h"

/* k0_copy: x f32[8], y f32[8] */
MLCC_GLOBAL(8) k0_copy(const float *__restrict__ x, float *__restrict__ y) {
    const int i = (int)threadIdx.x;
    y[i] = x[i];
}

#ifdef MLCC_EMULATED
void tramp_k0_copy(void **p);
void tramp_k0_copy(void **p) {
    k0_copy(*(const float **)p[0], *(float **)p[1]);
}
#endif

/* Where(step): x f32[2, 4], keep bool[5, 2, 4], by i64[2], y f32[2, 4] */
MLCC_GLOBAL(4) k1_step(const float *__restrict__ x, const unsigned char *__restrict__ keep,
                       const long long *__restrict__ by, float *__restrict__ y, int t0) {
    const int i = (int)blockIdx.x;
    MLCC_SHARED float row[4];
    {
        const int j = (int)threadIdx.x;
        if (j < 3) {
            row[j] = tanhf(x[i * 4 + j]);
        }
    }
    {
        const int l = (int)threadIdx.x;
        if (l == 3) {
            row[l] = tanhf(x[i * 4 + l]);
        }
    }
    __syncthreads();
    const int k = (int)threadIdx.x;
    const int v0 = i * 4 + k;
    float v1;
    if (keep[t0 * 8 + v0] != 0) {
        v1 = row[k] + (float)t0;
    } else {
        v1 = fmodf(powf(x[v0], 3.0f), 2.0f) + (float)by[i];
    }
    y[v0] = v1;
}

#ifdef MLCC_EMULATED
void tramp_k1_step(void **p);
void tramp_k1_step(void **p) {
    k1_step(*(const float **)p[0], *(const unsigned char **)p[1], *(const long long **)p[2],
            *(float **)p[3], *(int *)p[4]);
}
#endif

/* k2_row: x f32[2, 4], y f32[5, 2, 4] */
MLCC_GLOBAL(4) k2_row(const float *__restrict__ x, float *__restrict__ y, int t0) {
    const int i = (int)blockIdx.x;
    const int j = (int)threadIdx.x;
    const int v0 = i * 4 + j;
    y[t0 * 8 + v0] = x[v0];
}

#ifdef MLCC_EMULATED
void tramp_k2_row(void **p);
void tramp_k2_row(void **p) {
    k2_row(*(const float **)p[0], *(float **)p[1], *(int *)p[2]);
}
#endif

