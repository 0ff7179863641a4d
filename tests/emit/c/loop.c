/* loop.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 64 bytes.
 */
#include "loop.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Of loop variables and what is computed from them: as wide as pointers, and no
 * narrower than int32_t. */
#if PTRDIFF_MAX < INT32_MAX
typedef int32_t mlcc_index;
#else
typedef ptrdiff_t mlcc_index;
#endif

/* Scan(scan): x0 f32[8], y f32[8] */
static void k0_scan_scan(const float *restrict x0, float *restrict y) {
    for (mlcc_index i0i1 = 0; i0i1 < 8; i0i1++) {
        y[i0i1] = x0[i0i1];
    }
}

/* Tanh(tanh): x0 f32[8], x1 f32[40], y f32[8] */
static void k1_tanh_tanh(const float *restrict x0, const float *restrict x1, float *restrict y,
                         int32_t t0) {
    for (mlcc_index i0i1 = 0; i0i1 < 8; i0i1++) {
        y[i0i1] = tanhf(x1[t0 * 8 + i0i1] + x0[i0i1] * 0.5f);
    }
}

/* Scan(scan): x0 f32[8], y f32[40] */
static void k2_scan_scan(const float *restrict x0, float *restrict y, int32_t t0) {
    for (mlcc_index i1 = 0; i1 < 2; i1++) {
        for (mlcc_index i2 = 0; i2 < 4; i2++) {
            const mlcc_index v0 = i1 * 4 + i2;
            y[t0 * 8 + v0] = x0[v0];
        }
    }
}

/* Scan(scan): x0 f32[8], y f32[8] */
static void k3_scan_scan(const float *restrict x0, float *restrict y) {
    for (mlcc_index i0i1 = 0; i0i1 < 8; i0i1++) {
        y[i0i1] = x0[i0i1];
    }
}

int loop_run(const float h0[8], const float xs[40], float h[8], float hs[40], void *arena) {
    if (h0 == NULL || xs == NULL || h == NULL || hs == NULL || arena == NULL)
        return LOOP_E_ARGUMENT;
    unsigned char *const base = arena;
    float *const t0 = (float *)(void *)(base + 0);
    k0_scan_scan(h0, h);
    for (int32_t step0 = 0; step0 < 5; step0++) {
        k1_tanh_tanh(h, xs, t0, step0);
        k2_scan_scan(t0, hs, step0);
        k3_scan_scan(t0, h);
    }
    return LOOP_OK;
}
