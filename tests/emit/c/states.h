/* states.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 32 bytes; scratch memory (arena): 128 bytes; state: 320 bytes.
 */
#ifndef STATES_H
#define STATES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What states_run returns. */
#define STATES_OK 0
#define STATES_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define STATES_ARENA_BYTES 128u
#define STATES_WEIGHT_BYTES 32u
#define STATES_STATE_BYTES 320u

/* Number of elements of each input and output. */
#define STATES_X_SIZE 8u /* input 'x': f32 [8] */
#define STATES_Y_SIZE 8u /* output 'y': f32 [8] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * state: STATES_STATE_BYTES of memory, 64-byte aligned, that keep from one call for the next what these
 * outputs of the model are, which its inputs are then:
 *     'over next', then 'over': f32 [8] at byte 0
 *     'shifted next', then 'shifted': f32 [8] at byte 64
 *     'sum next', then 'sum': f32 [8] at byte 128
 *     'late next', then 'late': f32 [8] at byte 192
 *     'unread next', then 'unread': f32 [8] at byte 256
 * arena: STATES_ARENA_BYTES of scratch memory, 64-byte aligned; it keeps nothing between
 * calls. Two threads may run at once with an arena and a state each. */
int states_run(const float x[8], float y[8], void *state, void *arena);

/* Puts the state to its first values: before the first call of states_run, and wherever a new
 * sequence begins. */
int states_reset(void *state);

#ifdef __cplusplus
}
#endif
#endif
