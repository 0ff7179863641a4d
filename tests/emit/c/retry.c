/* retry.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#include "retry.h"

#include <stddef.h>
#include <stdint.h>

/* Of loop variables and what is computed from them: as wide as pointers, and no
 * narrower than int32_t. */
#if PTRDIFF_MAX < INT32_MAX
typedef int32_t mlcc_index;
#else
typedef ptrdiff_t mlcc_index;
#endif

/* Clip(clip): x f32[8], y f32[8] */
static void k0_clip(const float *restrict x, float *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        const float v0 = x[i];
        const float v1 = x[7 - i];
        float v2;
        if (v0 > 0.25f) {
            const float v3 = v0 * 1.234567f + 0.7654321f;
            const float v4 = (v3 < -1.25f ? -1.25f : v3) + v1;
            v2 = v4 > 254.9375f ? 254.9375f : v4;
        } else {
            v2 = v1;
        }
        y[i] = v2;
    }
}

int retry_run(const float x[8], float y[8], void *arena) {
    if (x == NULL || y == NULL)
        return RETRY_E_ARGUMENT;
    (void)arena;
    k0_clip(x, y);
    return RETRY_OK;
}
