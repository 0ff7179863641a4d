/* sharing.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#include "sharing.h"

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

/* Gather(g), Exp(e): x f32[4, 8], index i64[4], y f32[4, 8] */
static void gather(const float *restrict x, const int64_t *restrict index, float *restrict y) {
    for (mlcc_index i = 0; i < 4; i++) {
        const int64_t v0 = index[i];
        const int64_t v1 = v0 < 0 ? (int64_t)((uint64_t)v0 + 8u) : v0;
        const mlcc_index at = (int32_t)v1 & 7;
        for (mlcc_index j = 0; j < 8; j++) {
            const mlcc_index v2 = i * 8 + j;
            float v3;
            if (j > 0 && j < 7) {
                const float v4 = x[i * 8 + at] * 0.5f;
                const float v5 = expf(v4) + v4;
                const float v6 = x[v2 + 1];
                v3 = x[v2 - 1] < v5 ? v5 * v6 + v5 : sinf(v5) * cosf(v5) * v5 + v6;
            } else {
                v3 = x[v2];
            }
            y[v2] = v3;
        }
    }
}

/* Erf(erf): x f32[4, 8], y f32[4, 8] */
static void twice2(const float *restrict x, float *restrict y) {
    for (mlcc_index i = 0; i < 4; i++) {
        float total = 0.0f;
        for (mlcc_index j = 0; j < 8; j++) {
            const float v0 = x[i * 8 - j + 7];
            float v1;
            if (v0 > 0.0f) {
                const float v2 = v0 * v0 + 1.0f;
                v1 = v2 / (v2 + v0);
            } else {
                const float v3 = v0 < -1.0f ? -1.0f : v0;
                v1 = v3 > 6.0f ? 6.0f : v3;
            }
            total += v1;
            y[i * 8 + j] = total;
        }
    }
}

/* And(and): x f32[4, 8], y bool[4, 8] */
static void flags2(const float *restrict x, uint8_t *restrict y) {
    for (mlcc_index i = 0; i < 4; i++) {
        for (mlcc_index j = 0; j < 8; j++) {
            if (i != 2) {
                const mlcc_index v0 = i * 8 + j;
                const float v1 = x[v0];
                bool v2 = isnan(v1);
                if (!v2) {
                    bool v3 = v1 < 0.25f;
                    if (v3) {
                        bool v5 = j >= 1;
                        if (v5) {
                            const float v6 = expf(v1);
                            v5 = x[v0 - 1] * v6 < v6 - 0.125f;
                        }
                        bool v4 = v5;
                        if (!v4) {
                            const float v7 = expf(v1);
                            v4 = v7 == 1.0f;
                        }
                        v3 = v4;
                    }
                    v2 = v3;
                }
                y[v0] = (uint8_t)(v2 || i == j);
            } else {
                const mlcc_index v8 = i * 8 + j;
                y[v8] = (uint8_t)(!(x[v8] < 0.0f));
            }
        }
    }
}

int sharing_run(const float x[32], const int64_t index[4], float gathered[32], float twice[32],
                uint8_t flags[32], void *arena) {
    if (x == NULL || index == NULL || gathered == NULL || twice == NULL || flags == NULL)
        return SHARING_E_ARGUMENT;
    (void)arena;
    gather(x, index, gathered);
    twice2(x, twice);
    flags2(x, flags);
    return SHARING_OK;
}
