/* names.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 16 bytes; scratch memory (arena): 0 bytes.
 */
#ifndef NAMES_H
#define NAMES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What names_run returns. */
#define NAMES_OK 0
#define NAMES_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define NAMES_ARENA_BYTES 0u
#define NAMES_WEIGHT_BYTES 16u

/* Number of elements of each input and output. */
#define NAMES_CLASS_SIZE 4u /* input 'class': f32 [4] */
#define NAMES_ARENA_SIZE 4u /* input 'arena': f32 [4] */
#define NAMES_X_0_SIZE 4u /* input 'x:0': f32 [4] */
#define NAMES_NAMES_OK_SIZE 4u /* input 'NAMES_OK': f32 [4] */
#define NAMES_INT32_MAX_SIZE 4u /* input 'INT32_MAX': f32 [4] */
#define NAMES_X_0_2_SIZE 4u /* output 'x/0': f32 [4] */
#define NAMES_n1_SIZE 4u /* output '1_/ %é"??/': f32 [4] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: scratch memory; this model needs none, it may be NULL. */
int names_run(const float class2[4], const float arena2[4], const float x_0[4],
              const float NAMES_OK2[4], const float INT32_MAX2[4], float x_0_2[4], float n1[4],
              void *arena);

#ifdef __cplusplus
}
#endif
#endif
