/* conv.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 208 bytes; scratch memory (arena): 512 bytes.
 */
#include "conv.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of loop variables and what is computed from them: as wide as pointers, and no
 * narrower than int32_t. */
#if PTRDIFF_MAX < INT32_MAX
typedef int32_t mlcc_index;
#else
typedef ptrdiff_t mlcc_index;
#endif

/* Before loops whose arrays should become registers. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define MLCC_UNROLL _Pragma("GCC unroll 32")
#else
#define MLCC_UNROLL
#endif

/* Before loops over rows of sums, which become vectors. GCC would unroll them before,
 * and then find vectors in what is left that it has to shuffle. Where there are none
 * for floats, they become scalars. */
#if !defined(__GNUC__) || defined(__clang__) || __GNUC__ < 8
#define MLCC_LANES
#elif defined(__SSE__) || defined(__aarch64__) || defined(__ALTIVEC__) || \
    defined(__ARM_FEATURE_MVE) || defined(__riscv_vector)
#define MLCC_LANES _Pragma("GCC unroll 1")
#else
#define MLCC_LANES _Pragma("GCC unroll 32")
#endif

/* constant: f32 [36] */
static const float w[36] = {
    1.0f, 1.0f, 1.0f, 1.0f, 0.5f, 0.5f, 0.5f, 0.5f, -0.25f, -0.25f, -0.25f, -0.25f, 1.0f, 1.0f,
    1.0f, 1.0f, 0.5f, 0.5f, 0.5f, 0.5f, -0.25f, -0.25f, -0.25f, -0.25f, 1.0f, 1.0f, 1.0f, 1.0f,
    0.5f, 0.5f, 0.5f, 0.5f, -0.25f, -0.25f, -0.25f, -0.25f
};
/* constant: f32 [4] */
static const float w2[4] = {
    1.0f, -0.5f, 0.25f, 0.1f
};

static inline float mlcc_max_f32(float a, float b) {
    float m = a < b ? b : a;
    return b != b ? b + b : m;
}

/* Conv(conv1): x0 f32[48], x1 f32[36], x2 f32[4], y f32[96] */
static void k0_conv_conv1(const float *restrict x0, const float *restrict x1,
                          const float *restrict x2, float *restrict y) {
    for (mlcc_index i2 = 0; i2 < 4; i2++) {
        float acc[24];
        MLCC_UNROLL
        for (mlcc_index i0i1 = 0; i0i1 < 4; i0i1++) {
            for (mlcc_index i3 = 0; i3 < 6; i3++) {
                acc[i0i1 * 6 + i3] = 0.0f;
            }
        }
        for (mlcc_index r0r1 = 0; r0r1 < 3; r0r1++) {
            for (mlcc_index r2 = 0; r2 < 3; r2++) {
                MLCC_LANES
                for (mlcc_index i3 = 0; i3 < 6; i3++) {
                    acc[i3] += x0[i2 * 8 + r0r1 * 8 + r2 + i3] * x1[r0r1 * 12 + r2 * 4];
                }
                MLCC_LANES
                for (mlcc_index i3 = 0; i3 < 6; i3++) {
                    acc[i3 + 6] += x0[i2 * 8 + r0r1 * 8 + r2 + i3] * x1[r0r1 * 12 + r2 * 4 + 1];
                }
                MLCC_LANES
                for (mlcc_index i3 = 0; i3 < 6; i3++) {
                    acc[i3 + 12] += x0[i2 * 8 + r0r1 * 8 + r2 + i3] * x1[r0r1 * 12 + r2 * 4 + 2];
                }
                MLCC_LANES
                for (mlcc_index i3 = 0; i3 < 6; i3++) {
                    acc[i3 + 18] += x0[i2 * 8 + r0r1 * 8 + r2 + i3] * x1[r0r1 * 12 + r2 * 4 + 3];
                }
            }
        }
        MLCC_UNROLL
        for (mlcc_index i0i1 = 0; i0i1 < 4; i0i1++) {
            MLCC_LANES
            for (mlcc_index i3 = 0; i3 < 6; i3++) {
                const float v0 = acc[i0i1 * 6 + i3] + x2[i0i1];
                y[i0i1 * 24 + i2 * 6 + i3] = v0 < 0.0f ? 0.0f : v0;
            }
        }
    }
}

/* MaxPool(pool): x0 f32[96], y f32[24] */
static void k1_maxpool_pool(const float *restrict x0, float *restrict y) {
    for (mlcc_index i0i1i2 = 0; i0i1i2 < 8; i0i1i2++) {
        for (mlcc_index i3 = 0; i3 < 3; i3++) {
            float acc = -INFINITY;
            for (mlcc_index r0 = 0; r0 < 2; r0++) {
                for (mlcc_index r1 = 0; r1 < 2; r1++) {
                    const float v0 = x0[i0i1i2 * 12 + r0 * 6 + i3 * 2 + r1];
                    acc = mlcc_max_f32(v0, acc);
                }
            }
            y[i0i1i2 * 3 + i3] = acc;
        }
    }
}

/* Pad(pad): x0 f32[24], y f32[80] */
static void k2_pad_pad(const float *restrict x0, float *restrict y) {
    for (mlcc_index i0i1 = 0; i0i1 < 4; i0i1++) {
        for (mlcc_index i2 = 0; i2 < 4; i2++) {
            for (mlcc_index i3 = 0; i3 < 5; i3++) {
                const bool v0 = i2 >= 1 && i2 < 3 && i3 >= 1 && i3 < 4;
                y[i0i1 * 20 + i2 * 5 + i3] = v0 ? x0[i0i1 * 6 + i2 * 3 + i3 - 4] : 0.5f;
            }
        }
    }
}

int conv_run(const float image[48], float features[80], void *arena) {
    if (image == NULL || features == NULL || arena == NULL)
        return CONV_E_ARGUMENT;
    unsigned char *const base = arena;
    float *const t0 = (float *)(void *)(base + 0);
    float *const t1 = (float *)(void *)(base + 384);
    k0_conv_conv1(image, w, w2, t0);
    k1_maxpool_pool(t0, t1);
    k2_pad_pad(t1, features);
    return CONV_OK;
}
