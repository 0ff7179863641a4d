/* places.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#ifndef PLACES_H
#define PLACES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What places_run returns. */
#define PLACES_OK 0
#define PLACES_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define PLACES_ARENA_BYTES 0u
#define PLACES_WEIGHT_BYTES 0u

/* Number of elements of each input and output. */
#define PLACES_X_SIZE 16u /* input 'x': i32 [16] */
#define PLACES_MOST_SIZE 16u /* output 'most': i32 [16] */
#define PLACES_PLACE_SIZE 16u /* output 'place': f32 [16] */
#define PLACES_REST_SIZE 16u /* output 'rest': i32 [16] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: scratch memory; this model needs none, it may be NULL. */
int places_run(const int32_t x[16], int32_t most[16], float place[16], int32_t rest[16],
               void *arena);

#ifdef __cplusplus
}
#endif
#endif
