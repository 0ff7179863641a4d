/* retry.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#ifndef RETRY_H
#define RETRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What retry_run returns. */
#define RETRY_OK 0
#define RETRY_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define RETRY_ARENA_BYTES 0u
#define RETRY_WEIGHT_BYTES 0u

/* Number of elements of each input and output. */
#define RETRY_X_SIZE 8u /* input 'x': f32 [8] */
#define RETRY_Y_SIZE 8u /* output 'y': f32 [8] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: scratch memory; this model needs none, it may be NULL. */
int retry_run(const float x[8], float y[8], void *arena);

#ifdef __cplusplus
}
#endif
#endif
