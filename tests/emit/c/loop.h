/* loop.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 64 bytes.
 */
#ifndef LOOP_H
#define LOOP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What loop_run returns. */
#define LOOP_OK 0
#define LOOP_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define LOOP_ARENA_BYTES 64u
#define LOOP_WEIGHT_BYTES 0u

/* Number of elements of each input and output. */
#define LOOP_H0_SIZE 8u /* input 'h0': f32 [2, 4] */
#define LOOP_XS_SIZE 40u /* input 'xs': f32 [5, 2, 4] */
#define LOOP_H_SIZE 8u /* output 'h': f32 [2, 4] */
#define LOOP_HS_SIZE 40u /* output 'hs': f32 [5, 2, 4] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: LOOP_ARENA_BYTES of scratch memory, 64-byte aligned; it keeps nothing between
 * calls. Two threads may run at once with an arena each. */
int loop_run(const float h0[8], const float xs[40], float h[8], float hs[40], void *arena);

#ifdef __cplusplus
}
#endif
#endif
