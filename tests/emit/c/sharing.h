/* sharing.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#ifndef SHARING_H
#define SHARING_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What sharing_run returns. */
#define SHARING_OK 0
#define SHARING_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define SHARING_ARENA_BYTES 0u
#define SHARING_WEIGHT_BYTES 0u

/* Number of elements of each input and output. */
#define SHARING_X_SIZE 32u /* input 'x': f32 [4, 8] */
#define SHARING_INDEX_SIZE 4u /* input 'index': i64 [4] */
#define SHARING_GATHERED_SIZE 32u /* output 'gathered': f32 [4, 8] */
#define SHARING_TWICE_SIZE 32u /* output 'twice': f32 [4, 8] */
#define SHARING_FLAGS_SIZE 32u /* output 'flags': bool [4, 8] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: scratch memory; this model needs none, it may be NULL. */
int sharing_run(const float x[32], const int64_t index[4], float gathered[32], float twice[32],
                uint8_t flags[32], void *arena);

#ifdef __cplusplus
}
#endif
#endif
