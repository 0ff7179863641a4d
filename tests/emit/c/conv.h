/* conv.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 208 bytes; scratch memory (arena): 512 bytes.
 */
#ifndef CONV_H
#define CONV_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What conv_run returns. */
#define CONV_OK 0
#define CONV_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define CONV_ARENA_BYTES 512u
#define CONV_WEIGHT_BYTES 208u

/* Number of elements of each input and output. */
#define CONV_IMAGE_SIZE 48u /* input 'image': f32 [1, 1, 6, 8] */
#define CONV_FEATURES_SIZE 80u /* output 'features': f32 [1, 4, 4, 5] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: CONV_ARENA_BYTES of scratch memory, 64-byte aligned; it keeps nothing between
 * calls. Two threads may run at once with an arena each. */
int conv_run(const float image[48], float features[80], void *arena);

#ifdef __cplusplus
}
#endif
#endif
