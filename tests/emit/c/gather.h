/* gather.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 16 bytes; scratch memory (arena): 0 bytes.
 */
#ifndef GATHER_H
#define GATHER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What gather_run returns. */
#define GATHER_OK 0
#define GATHER_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define GATHER_ARENA_BYTES 0u
#define GATHER_WEIGHT_BYTES 16u

/* Number of elements of each input and output. */
#define GATHER_X_SIZE 480u /* input 'x': f32 [10, 6, 8] */
#define GATHER_ROWS_SIZE 192u /* output 'rows': f32 [4, 6, 8] */
#define GATHER_MOVED_SIZE 20u /* output 'moved': f32 [4, 5] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: scratch memory; this model needs none, it may be NULL. */
int gather_run(const float x[480], float rows[192], float moved[20], void *arena);

#ifdef __cplusplus
}
#endif
#endif
