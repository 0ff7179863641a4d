/* places.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#include "places.h"

#include <stddef.h>
#include <stdint.h>

/* Of loop variables and what is computed from them: as wide as pointers, and no
 * narrower than int32_t. */
#if PTRDIFF_MAX < INT32_MAX
typedef int32_t mlcc_index;
#else
typedef ptrdiff_t mlcc_index;
#endif

static inline int32_t mlcc_rem_i32(int32_t a, int32_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}

/* Max(most): x i32[16], y i32[16] */
static void k0_max(const int32_t *restrict x, int32_t *restrict y) {
    for (mlcc_index i0 = 0; i0 < 16; i0++) {
        const mlcc_index v0 = i0 * 37 - 555;
        y[i0] = (int32_t)v0 < x[i0] ? x[i0] : (int32_t)v0;
    }
}

/* Where(place): x i32[16], y f32[16] */
static void k1_where(const int32_t *restrict x, float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 16; i0++) {
        const int32_t v0 = (int32_t)((uint32_t)x[i0] + (uint32_t)(int32_t)i0);
        y[i0] = v0 < 9 ? (float)(int32_t)(i0 * 3 + 1) : 0.5f;
    }
}

/* Mod(rest): x i32[16], y i32[16] */
static void k2_mod(const int32_t *restrict x, int32_t *restrict y) {
    for (mlcc_index i0 = 0; i0 < 16; i0++) {
        const int32_t v0 = x[i0];
        const int32_t v1 = (int32_t)((uint32_t)v0 + (uint32_t)(int32_t)i0);
        const int32_t v2 = (v1 < 0 ? 0 : v1) > 15 ? 15 : (v1 < 0 ? 0 : v1);
        const int32_t v3 = (int32_t)((uint32_t)x[v2] + (uint32_t)mlcc_rem_i32((int32_t)(i0 * 5 -
            3), v0));
        y[i0] = (int32_t)((uint32_t)v3 + (uint32_t)x[15 - i0]);
    }
}

int places_run(const int32_t x[16], int32_t most[16], float place[16], int32_t rest[16],
               void *arena) {
    if (x == NULL || most == NULL || place == NULL || rest == NULL)
        return PLACES_E_ARGUMENT;
    (void)arena;
    k0_max(x, most);
    k1_where(x, place);
    k2_mod(x, rest);
    return PLACES_OK;
}
