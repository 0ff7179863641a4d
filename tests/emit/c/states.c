/* states.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 32 bytes; scratch memory (arena): 128 bytes; state: 320 bytes.
 */
#include "states.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of loop variables and what is computed from them: as wide as pointers, and no
 * narrower than int32_t. */
#if PTRDIFF_MAX < INT32_MAX
typedef int32_t mlcc_index;
#else
typedef ptrdiff_t mlcc_index;
#endif

/* A pointer to constants that are copied. Of 32 bytes whose first half repeats
 * something and whose second half is zeros, GCC 12 would repeat it in both. */
#define MLCC_OPAQUE(type, x) \
    (*(const type *const volatile *)&(const type *const){x})

/* over: f32 [8] */
static const float w_over[8] = {
    1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f
};

/* in place: element by element: x0 f32[8], x1 f32[8], y f32[8] */
static void k0_in_place_element_by_element(const float *restrict x0, const float *x1, float *y) {
    for (mlcc_index i0 = 0; i0 < 8; i0++) {
        y[i0] = x0[i0] * 0.5f + x1[i0];
    }
}

/* copied: read at other places: x0 f32[8], x1 f32[8], y f32[8] */
static void k1_copied_read_at_other_places(const float *restrict x0, const float *restrict x1,
                                           float *restrict y) {
    y[7] = x0[0];
    for (mlcc_index i0_1 = 0; i0_1 < 7; i0_1++) {
        y[i0_1] = x1[i0_1 + 1];
    }
}

/* the last that reads sum: x0 f32[8], y f32[1] */
static void k2_the_last_that_reads_sum(const float *restrict x0, float *restrict y) {
    float acc = 0.0f;
    for (mlcc_index r0 = 0; r0 < 8; r0++) {
        acc += x0[r0];
    }
    y[0] = acc;
}

/* in place: nothing reads sum any more: x0 f32[8], x1 f32[1], y f32[8] */
static void k3_in_place_nothing_reads_sum_any(const float *restrict x0,
                                              const float *restrict x1, float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 8; i0++) {
        y[i0] = x0[i0] * x1[0];
    }
}

/* copied: late is read below: x0 f32[8], x1 f32[8], y f32[8] */
static void k4_copied_late_is_read_below(const float *restrict x0, const float *restrict x1,
                                         float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 8; i0++) {
        y[i0] = x0[i0] + x1[i0];
    }
}

/* below: x0 f32[8], x1 f32[8], y f32[8] */
static void k5_below(const float *restrict x0, const float *restrict x1, float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 8; i0++) {
        y[i0] = x0[i0] * x1[i0];
    }
}

/* in place: x0 f32[8], y f32[8] */
static void k6_in_place(const float *restrict x0, float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 8; i0++) {
        y[i0] = -x0[i0];
    }
}

/* State(over); State(shifted); State(sum); State(late); State(unread): x0 f32[8], y f32[8] */
static void k7_state_over(const float *restrict x0, float *restrict y) {
    for (mlcc_index i0 = 0; i0 < 8; i0++) {
        y[i0] = x0[i0];
    }
}

int states_reset(void *state) {
    if (state == NULL) return STATES_E_ARGUMENT;
    memset(state, 0, 320);
    memcpy((unsigned char *)state + 0, MLCC_OPAQUE(void, w_over), 32);
    return STATES_OK;
}

int states_run(const float x[8], float y[8], void *state, void *arena) {
    if (x == NULL || y == NULL || arena == NULL || state == NULL)
        return STATES_E_ARGUMENT;
    unsigned char *const base = arena;
    unsigned char *const kept = state;
    float *const over = (float *)(void *)(kept + 0);
    float *const t0 = (float *)(void *)(kept + 0);
    float *const shifted = (float *)(void *)(kept + 64);
    float *const t1 = (float *)(void *)(base + 0);
    float *const sum = (float *)(void *)(kept + 128);
    float *const t2 = (float *)(void *)(base + 64);
    float *const t3 = (float *)(void *)(kept + 128);
    float *const late = (float *)(void *)(kept + 192);
    float *const t4 = (float *)(void *)(base + 64);
    float *const t5 = (float *)(void *)(kept + 256);
    k0_in_place_element_by_element(x, over, t0);
    k1_copied_read_at_other_places(x, shifted, t1);
    k2_the_last_that_reads_sum(sum, t2);
    k3_in_place_nothing_reads_sum_any(x, t2, t3);
    k4_copied_late_is_read_below(x, late, t4);
    k5_below(t4, late, y);
    k6_in_place(x, t5);
    k7_state_over(t1, shifted);
    k7_state_over(t4, late);
    return STATES_OK;
}
