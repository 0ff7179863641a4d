/* types.onnx: interface of a neural network, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#ifndef TYPES_H
#define TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What types_run returns. */
#define TYPES_OK 0
#define TYPES_E_ARGUMENT 1 /* a pointer is NULL */

/* Sizes in bytes. */
#define TYPES_ARENA_BYTES 0u
#define TYPES_WEIGHT_BYTES 0u

/* Number of elements of each input and output. */
#define TYPES_HALF_SIZE 8u /* input 'half': f16 [8] */
#define TYPES_SMALL_SIZE 8u /* input 'small': i8 [8] */
#define TYPES_WIDE_SIZE 8u /* input 'wide': f64 [8] */
#define TYPES_LONG_SIZE 8u /* input 'long': u64 [8] */
#define TYPES_PRODUCT_SIZE 8u /* output 'product': f16 [8] */
#define TYPES_WRAPPED_SIZE 8u /* output 'wrapped': u8 [8] */
#define TYPES_ROOT_SIZE 8u /* output 'root': i32 [8] */
#define TYPES_NIBBLE_SIZE 8u /* output 'nibble': i4 [8] */
#define TYPES_TINY_SIZE 8u /* output 'tiny': f8e4m3fn [8] */
#define TYPES_BRAIN_SIZE 8u /* output 'brain': bf16 [8] */
#define TYPES_HASH_SIZE 8u /* output 'hash': i32 [8] */

/* Runs the model once. Tensors are dense and row-major; they must not overlap. float16 and
 * bfloat16 are their bit patterns, bool is a byte, 0 or 1.
 * arena: scratch memory; this model needs none, it may be NULL. */
int types_run(const uint16_t half[8], const int8_t small[8], const double wide[8],
              const uint64_t long2[8], uint16_t product[8], uint8_t wrapped[8], int32_t root[8],
              int8_t nibble[8], uint8_t tiny[8], uint16_t brain[8], int32_t hash[8],
              void *arena);

#ifdef __cplusplus
}
#endif
#endif
