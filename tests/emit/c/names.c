/* names.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 16 bytes; scratch memory (arena): 0 bytes.
 */
#include "names.h"

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

/* constant: f32 [4] */
static const float w[4] = {
    1.0f, -0.0f, INFINITY, NAN
};

/* Add(a_/b), /_Exp_: x_0 f32[4], double f32[4], exp f32[4] */
static void exp3(const float *restrict x_0, const float *restrict double2, float *restrict exp4) {
    for (mlcc_index int2 = 0; int2 < 4; int2++) {
        exp4[int2] = x_0[int2] + double2[int2];
    }
}

/* main: a f32[4], unused f32[4], main_run f32[4] */
static void main2(const float *restrict a, const float *restrict unused,
                  float *restrict main_run) {
    for (mlcc_index v0 = 0; v0 < 4; v0++) {
        main_run[v0] = a[v0] * unused[v0];
    }
}

int names_run(const float class2[4], const float arena2[4], const float x_0[4],
              const float NAMES_OK2[4], const float INT32_MAX2[4], float x_0_2[4], float n1[4],
              void *arena) {
    if (class2 == NULL || arena2 == NULL || x_0 == NULL || NAMES_OK2 == NULL ||
        INT32_MAX2 == NULL || x_0_2 == NULL || n1 == NULL)
        return NAMES_E_ARGUMENT;
    (void)arena;
    exp3(class2, arena2, x_0_2);
    main2(x_0, w, n1);
    return NAMES_OK;
}
