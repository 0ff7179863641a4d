/* types.onnx: the kernels of a neural network as CUDA C, made by mlcc.
 * Model digest: 0123456789abcdef.
 */
#include "cuda_intrin.h"
#ifndef __cplusplus
#include <stdbool.h>
#endif

MLCC_DEVICE unsigned int mlcc_f32_bits(float x) {
    union {
        float f;
        unsigned int u;
    } v;
    v.f = x;
    return v.u;
}

MLCC_DEVICE float mlcc_bits_f32(unsigned int x) {
    union {
        unsigned int u;
        float f;
    } v;
    v.u = x;
    return v.f;
}

MLCC_DEVICE bool mlcc_isnan_f32(float x) {
    return (mlcc_f32_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

MLCC_DEVICE long long mlcc_f64_to_i64(double x) {
    if (x >= -9223372036854775808.0 && x < 9223372036854775808.0) return (long long)x;
    if (x > 0.0 && x < 18446744073709551616.0) return (long long)((unsigned long long)x);
    return (long long)((unsigned long long)1 << 63);
}

MLCC_DEVICE int mlcc_f64_to_i32(double x) {
    return (int)(mlcc_f64_to_i64(x));
}

MLCC_DEVICE float mlcc_f64_to_f32_odd(double x) {
    float y = (float)x;
    double d = (double)y;
    unsigned int bits = mlcc_f32_bits(y);
    if (d == x) return y;
    if (x > 0.0 ? d > x : d < x) bits -= 1u;
    return mlcc_bits_f32(bits | 1u);
}

MLCC_DEVICE float mlcc_f16_decode(unsigned int h) {
    return mlcc_f16_to_float((unsigned short)h);
}

MLCC_DEVICE unsigned int mlcc_f16_encode(float x) {
    unsigned int bits = mlcc_f32_bits(x);
    if (x == x) return mlcc_float_to_f16(x);
    unsigned int payload = (bits >> 13) & 0x3ffu;
    return ((bits >> 16) & 0x8000u) | 0x7c00u | (payload == 0u ? 0x200u : payload);
}

MLCC_DEVICE unsigned int mlcc_bf16_encode(float x) {
    unsigned int bits = mlcc_f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        unsigned int payload = (bits >> 16) & 0x7fu;
        return ((bits >> 16) & 0xff80u) | (payload == 0u ? 0x40u : payload);
    }
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

MLCC_DEVICE unsigned int mlcc_small_encode(float x, unsigned int m, unsigned int width, unsigned int rebias) {
    unsigned int bits = mlcc_f32_bits(x);
    unsigned int sign = (bits >> 31) << width;
    unsigned int drop = 23u - m;
    bits &= 0x7fffffffu;
    if (bits < (rebias + 1u) << 23) {
        unsigned int unit = (rebias + 1u + drop) << 23;
        return sign | (mlcc_f32_bits(mlcc_bits_f32(bits) + mlcc_bits_f32(unit)) - unit);
    }
    bits += (1u << (drop - 1u)) - 1u + ((bits >> drop) & 1u);
    return sign | ((bits - (rebias << 23)) >> drop);
}

MLCC_DEVICE unsigned int mlcc_f8e4m3fn_encode(float x) {
    if (mlcc_isnan_f32(x)) return ((mlcc_f32_bits(x) >> 24) & 0x80u) | 0x7fu;
    return mlcc_small_encode(x, 3u, 7u, 120u);
}

MLCC_DEVICE unsigned int mlcc_f8e4m3fn_cast(float x) {
    return mlcc_f8e4m3fn_encode(x > 448.0f ? 448.0f : x < -448.0f ? -448.0f : x);
}

/* product: half f16[8], small i8[8], y f16[8] */
MLCC_GLOBAL(1) product(const unsigned short *__restrict__ half2,
                       const signed char *__restrict__ small, unsigned short *__restrict__ y) {
    for (int i = 0; i < 8; i++) {
        const float v0 = (float)small[i] * mlcc_f16_decode(half2[i]);
        y[i] = (unsigned short)mlcc_f16_encode(v0);
    }
}

#ifdef MLCC_EMULATED
void tramp_product(void **p);
void tramp_product(void **p) {
    product(*(const unsigned short **)p[0], *(const signed char **)p[1],
            *(unsigned short **)p[2]);
}
#endif

/* wrapped: small i8[8], y u8[8] */
MLCC_GLOBAL(1) wrapped(const signed char *__restrict__ small, unsigned char *__restrict__ y) {
    for (int i = 0; i < 8; i++) {
        y[i] = (unsigned char)((int)small[i] * 3);
    }
}

#ifdef MLCC_EMULATED
void tramp_wrapped(void **p);
void tramp_wrapped(void **p) {
    wrapped(*(const signed char **)p[0], *(unsigned char **)p[1]);
}
#endif

/* root: wide f64[8], y i32[8] */
MLCC_GLOBAL(1) root(const double *__restrict__ wide, int *__restrict__ y) {
    for (int i = 0; i < 8; i++) {
        y[i] = mlcc_f64_to_i32(sqrt(fabs(wide[i])) * 1000.0);
    }
}

#ifdef MLCC_EMULATED
void tramp_root(void **p);
void tramp_root(void **p) {
    root(*(const double **)p[0], *(int **)p[1]);
}
#endif

/* nibble: words u64[8], y i4[8] */
MLCC_GLOBAL(1) nibble(const unsigned long long *__restrict__ words, signed char *__restrict__ y) {
    for (int i = 0; i < 8; i++) {
        y[i] = (signed char)((int)(((unsigned int)(int)(words[i] >> 3) & 15u) ^ 8u) - 8);
    }
}

#ifdef MLCC_EMULATED
void tramp_nibble(void **p);
void tramp_nibble(void **p) {
    nibble(*(const unsigned long long **)p[0], *(signed char **)p[1]);
}
#endif

/* tiny: wide f64[8], y f8e4m3fn[8] */
MLCC_GLOBAL(1) tiny(const double *__restrict__ wide, unsigned char *__restrict__ y) {
    for (int i = 0; i < 8; i++) {
        y[i] = (unsigned char)mlcc_f8e4m3fn_cast(mlcc_f64_to_f32_odd(wide[i]));
    }
}

#ifdef MLCC_EMULATED
void tramp_tiny(void **p);
void tramp_tiny(void **p) {
    tiny(*(const double **)p[0], *(unsigned char **)p[1]);
}
#endif

/* brain: small i8[8], y bf16[8] */
MLCC_GLOBAL(1) brain(const signed char *__restrict__ small, unsigned short *__restrict__ y) {
    for (int i = 0; i < 8; i++) {
        y[i] = (unsigned short)mlcc_bf16_encode((float)small[i] / 3.0f);
    }
}

#ifdef MLCC_EMULATED
void tramp_brain(void **p);
void tramp_brain(void **p) {
    brain(*(const signed char **)p[0], *(unsigned short **)p[1]);
}
#endif

/* hash: small i8[8], y i32[8] */
MLCC_GLOBAL(1) hash(const signed char *__restrict__ small, int *__restrict__ y) {
    for (int i = 0; i < 8; i++) {
        const int v0 = (int)((unsigned int)(int)small[i] * 1000000007u);
        y[i] = (int)((unsigned int)v0 + 2147483647u);
    }
}

#ifdef MLCC_EMULATED
void tramp_hash(void **p);
void tramp_hash(void **p) {
    hash(*(const signed char **)p[0], *(int **)p[1]);
}
#endif

