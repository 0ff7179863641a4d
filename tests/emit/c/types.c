/* types.onnx: a neural network as C99, made by mlcc.
 * Model digest: 0123456789abcdef.
 * Constants: 0 bytes; scratch memory (arena): 0 bytes.
 */
#include "types.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of loop variables and what is computed from them: as wide as pointers, and no
 * narrower than int32_t. */
#if PTRDIFF_MAX < INT32_MAX
typedef int32_t mlcc_index;
#else
typedef ptrdiff_t mlcc_index;
#endif

static inline uint32_t mlcc_f32_bits(float x) {
    union {
        float f;
        uint32_t u;
    } v;
    v.f = x;
    return v.u;
}

static inline float mlcc_bits_f32(uint32_t x) {
    union {
        uint32_t u;
        float f;
    } v;
    v.u = x;
    return v.f;
}

static inline bool mlcc_isnan_f32(float x) {
    return (mlcc_f32_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

static inline int64_t mlcc_f64_to_i64(double x) {
    if (x >= -9223372036854775808.0 && x < 9223372036854775808.0) return (int64_t)x;
    if (x > 0.0 && x < 18446744073709551616.0) return (int64_t)((uint64_t)x);
    return (int64_t)((uint64_t)1 << 63);
}

static inline int32_t mlcc_f64_to_i32(double x) {
    return (int32_t)(mlcc_f64_to_i64(x));
}

static inline float mlcc_f64_to_f32_odd(double x) {
    float y = (float)x;
    double d = (double)y;
    uint32_t bits = mlcc_f32_bits(y);
    if (d == x) return y;
    if (x > 0.0 ? d > x : d < x) bits -= 1u;
    return mlcc_bits_f32(bits | 1u);
}

static inline float mlcc_f16_decode(uint32_t h) {
    uint32_t rest = (h & 0x7fffu) << 13;
    uint32_t magnitude = mlcc_f32_bits(mlcc_bits_f32(rest) * 5.192296858534828e33f);
    return mlcc_bits_f32((h & 0x8000u) << 16 |
                         (rest >= 0x0f800000u ? rest | 0x7f800000u : magnitude));
}

static inline uint32_t mlcc_f16_encode(float x) {
    uint32_t bits = mlcc_f32_bits(x);
    uint32_t sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) {
        uint32_t payload = (bits >> 13) & 0x3ffu;
        return sign | 0x7c00u | (payload == 0u ? 0x200u : payload);
    }
    if (bits >= 0x477ff000u) return sign | 0x7c00u;
    if (bits < 0x38800000u)
        return sign | (mlcc_f32_bits(mlcc_bits_f32(bits) + 0.5f) - 0x3f000000u);
    return sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13);
}

static inline uint32_t mlcc_bf16_encode(float x) {
    uint32_t bits = mlcc_f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        uint32_t payload = (bits >> 16) & 0x7fu;
        return ((bits >> 16) & 0xff80u) | (payload == 0u ? 0x40u : payload);
    }
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

static inline uint32_t mlcc_small_encode(float x, uint32_t m, uint32_t width, uint32_t rebias) {
    uint32_t bits = mlcc_f32_bits(x);
    uint32_t sign = (bits >> 31) << width;
    uint32_t drop = 23u - m;
    bits &= 0x7fffffffu;
    if (bits < (rebias + 1u) << 23) {
        uint32_t unit = (rebias + 1u + drop) << 23;
        return sign | (mlcc_f32_bits(mlcc_bits_f32(bits) + mlcc_bits_f32(unit)) - unit);
    }
    bits += (1u << (drop - 1u)) - 1u + ((bits >> drop) & 1u);
    return sign | ((bits - (rebias << 23)) >> drop);
}

static inline uint32_t mlcc_f8e4m3fn_encode(float x) {
    if (mlcc_isnan_f32(x)) return ((mlcc_f32_bits(x) >> 24) & 0x80u) | 0x7fu;
    return mlcc_small_encode(x, 3u, 7u, 120u);
}

static inline uint32_t mlcc_f8e4m3fn_cast(float x) {
    return mlcc_f8e4m3fn_encode(x > 448.0f ? 448.0f : x < -448.0f ? -448.0f : x);
}

/* product: half f16[8], small i8[8], y f16[8] */
static void product2(const uint16_t *restrict half, const int8_t *restrict small,
                     uint16_t *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        const float v0 = (float)small[i] * mlcc_f16_decode(half[i]);
        y[i] = (uint16_t)mlcc_f16_encode(v0);
    }
}

/* wrapped: small i8[8], y u8[8] */
static void wrapped2(const int8_t *restrict small, uint8_t *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        y[i] = (uint8_t)((int32_t)small[i] * 3);
    }
}

/* root: wide f64[8], y i32[8] */
static void root2(const double *restrict wide, int32_t *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        y[i] = mlcc_f64_to_i32(sqrt(fabs(wide[i])) * 1000.0);
    }
}

/* nibble: words u64[8], y i4[8] */
static void nibble2(const uint64_t *restrict words, int8_t *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        y[i] = (int8_t)((int32_t)(((uint32_t)(int32_t)(words[i] >> 3) & 15u) ^ 8u) - 8);
    }
}

/* tiny: wide f64[8], y f8e4m3fn[8] */
static void tiny2(const double *restrict wide, uint8_t *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        y[i] = (uint8_t)mlcc_f8e4m3fn_cast(mlcc_f64_to_f32_odd(wide[i]));
    }
}

/* brain: small i8[8], y bf16[8] */
static void brain2(const int8_t *restrict small, uint16_t *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        y[i] = (uint16_t)mlcc_bf16_encode((float)small[i] / 3.0f);
    }
}

/* hash: small i8[8], y i32[8] */
static void hash2(const int8_t *restrict small, int32_t *restrict y) {
    for (mlcc_index i = 0; i < 8; i++) {
        const int32_t v0 = (int32_t)((uint32_t)(int32_t)small[i] * 1000000007u);
        y[i] = (int32_t)((uint32_t)v0 + 2147483647u);
    }
}

int types_run(const uint16_t half[8], const int8_t small[8], const double wide[8],
              const uint64_t long2[8], uint16_t product[8], uint8_t wrapped[8], int32_t root[8],
              int8_t nibble[8], uint8_t tiny[8], uint16_t brain[8], int32_t hash[8],
              void *arena) {
    if (half == NULL || small == NULL || wide == NULL || long2 == NULL || product == NULL ||
        wrapped == NULL || root == NULL || nibble == NULL || tiny == NULL || brain == NULL ||
        hash == NULL)
        return TYPES_E_ARGUMENT;
    (void)arena;
    product2(half, small, product);
    wrapped2(small, wrapped);
    root2(wide, root);
    nibble2(long2, nibble);
    tiny2(wide, tiny);
    brain2(small, brain);
    hash2(small, hash);
    return TYPES_OK;
}
