/* gather.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 16 bytes; scratch memory (arena): 0 bytes.
 */
#include "gather.h"

#include <stddef.h>
#include <stdint.h>

/* Of loop variables and what is computed from them: as wide as pointers, and no
 * narrower than int32_t. */
#if PTRDIFF_MAX < INT32_MAX
typedef int32_t mlcc_index;
#else
typedef ptrdiff_t mlcc_index;
#endif

/* constant: i32 [4] */
static const int32_t w[4] = {
    2, 9, 0, 5
};

/* Gather(rows): at i32[4], x f32[10, 6, 8], y f32[4, 6, 8] */
static void k0_gather(const int32_t *restrict at, const float *restrict x, float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 4; i0++) {
        for (mlcc_index i1 = 0; i1 < 6; i1++) {
            for (mlcc_index i2 = 0; i2 < 8; i2++) {
                y[i0 * 48 + i1 * 8 + i2] = x[(int32_t)((uint32_t)at[i0] * 48u) + (i1 * 8 + i2)];
            }
        }
    }
}

/* Gather(moved): at i32[4], x f32[10, 6, 8], y f32[4, 5] */
static void k1_gather(const int32_t *restrict at, const float *restrict x, float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 4; i0++) {
        for (mlcc_index i1 = 0; i1 < 5; i1++) {
            const mlcc_index v0 = (int32_t)((uint32_t)(int32_t)((uint32_t)at[i0] * 48u) +
                (uint32_t)at[0]);
            y[i0 * 5 + i1] = x[(int32_t)((uint32_t)v0 + 4294967295u) + i1];
        }
    }
}

int gather_run(const float x[480], float rows[192], float moved[20], void *arena) {
    if (x == NULL || rows == NULL || moved == NULL)
        return GATHER_E_ARGUMENT;
    (void)arena;
    k0_gather(w, x, rows);
    k1_gather(w, x, moved);
    return GATHER_OK;
}
