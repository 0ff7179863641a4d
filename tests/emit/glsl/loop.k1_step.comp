/* loop.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x = 4, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    float x[];
};
layout(std430, set = 0, binding = 1) restrict readonly buffer Buffer1 {
    uint8_t keep[];
};
layout(std430, set = 0, binding = 2) restrict readonly buffer Buffer2 {
    int64_t by[];
};
layout(std430, set = 0, binding = 3) restrict buffer Buffer3 {
    float y[];
};
layout(push_constant) uniform Scalars {
    int t0;
};
shared float row[4];

uint mlcc_f32_bits(float x) {
    return floatBitsToUint(x);
}

float mlcc_bits_f32(uint x) {
    return uintBitsToFloat(x);
}

float mlcc_nan() {
    return uintBitsToFloat(0x7fc00000u);
}

float mlcc_infinity() {
    return uintBitsToFloat(0x7f800000u);
}

bool mlcc_isnan_f32(float x) {
    return (mlcc_f32_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

bool mlcc_isinf_f32(float x) {
    return (mlcc_f32_bits(x) & 0x7fffffffu) == 0x7f800000u;
}

float mlcc_rem_f32(float a, float b) {
    float m = abs(b);
    float r = abs(a);
    if (mlcc_isnan_f32(a) || mlcc_isnan_f32(b)) return mlcc_nan();
    if (mlcc_isinf_f32(a) || m == 0.0f) return mlcc_nan();
    if (r < m) return a;
    uint exponent = mlcc_f32_bits(m) >> 23;
    uint q = (mlcc_f32_bits(m) & 0x7fffffu) | 0x800000u;
    uint p = (mlcc_f32_bits(r) & 0x7fffffu) | 0x800000u;
    for (uint n = mlcc_f32_bits(r) >> 23; n > exponent; n--) p = (p >= q ? p - q : p) << 1;
    if (p >= q) p -= q;
    r = float(p) * 1.1920928955078125e-7f * mlcc_bits_f32(exponent << 23);
    return a < 0.0f ? -r : r;
}

float mlcc_pow_f32(float x, float y) {
    if (y == 0.0f || x == 1.0f) return 1.0f;
    if (mlcc_isnan_f32(x) || mlcc_isnan_f32(y)) return mlcc_nan();
    float a = abs(x);
    float e = abs(y);
    bool whole = trunc(y) == y;
    bool odd = whole && e < 16777216.0f && (int(e) & 1) == 1;
    float r = 1.0f;
    if (mlcc_isinf_f32(y)) {
        r = a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? mlcc_infinity() : 0.0f;
    } else if (a == 0.0f || mlcc_isinf_f32(a)) {
        r = (a == 0.0f) == (y > 0.0f) ? 0.0f : mlcc_infinity();
    } else if (whole && e <= 64.0f) {
        float square = a;
        for (int n = int(e); n > 0; n >>= 1) {
            if ((n & 1) == 1) r *= square;
            square *= square;
        }
        if (y < 0.0f) r = 1.0f / r;
    } else {
        r = exp2(y * log2(a));
    }
    if ((mlcc_f32_bits(x) >> 31) == 0u) return r;
    if (!whole && a != 0.0f && !mlcc_isinf_f32(a)) return mlcc_nan();
    return odd ? -r : r;
}

float mlcc_sinh_f32(float x) {
    float s = x * x;
    float t = 1.0f + s / 42.0f * (1.0f + s / 72.0f);
    if (s < 1.0f) return x + x * s / 6.0f * (1.0f + s / 20.0f * t);
    float half_power = exp(abs(x) * 0.5f);
    float r = 0.5f * half_power * half_power - 0.5f / half_power / half_power;
    return x < 0.0f ? -r : r;
}

float mlcc_tanh_f32(float x) {
    if (mlcc_isnan_f32(x)) return x;
    if (abs(x) < 1.0f) {
        float s = mlcc_sinh_f32(x);
        return s / sqrt(1.0f + s * s);
    }
    float r = 1.0f - 2.0f / (exp(2.0f * min(abs(x), 20.0f)) + 1.0f);
    return x < 0.0f ? -r : r;
}

/* Where(step): x f32[2, 4], keep bool[5, 2, 4], by i64[2], y f32[2, 4] */
void main() {
    const int i = int(gl_WorkGroupID.x);
    {
        const int j = int(gl_LocalInvocationID.x);
        if (j < 3) {
            row[j] = mlcc_tanh_f32(x[i * 4 + j]);
        }
    }
    {
        const int l = int(gl_LocalInvocationID.x);
        if (l == 3) {
            row[l] = mlcc_tanh_f32(x[i * 4 + l]);
        }
    }
    barrier();
    const int k = int(gl_LocalInvocationID.x);
    const int v0 = i * 4 + k;
    float v1;
    if (uint(keep[t0 * 8 + v0]) != 0u) {
        v1 = row[k] + float(t0);
    } else {
        const float v2 = mlcc_rem_f32(mlcc_pow_f32(x[v0], 3.0f), 2.0f);
        v1 = v2 + float(by[i]);
    }
    y[v0] = v1;
}
