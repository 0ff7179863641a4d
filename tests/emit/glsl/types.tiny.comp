/* types.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_shader_8bit_storage : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    double wide[];
};
layout(std430, set = 0, binding = 1) restrict buffer Buffer1 {
    uint8_t y[];
};

uint mlcc_f32_bits(float x) {
    return floatBitsToUint(x);
}

float mlcc_bits_f32(uint x) {
    return uintBitsToFloat(x);
}

bool mlcc_isnan_f32(float x) {
    return (mlcc_f32_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

float mlcc_f64_to_f32_odd(double x) {
    float y = float(x);
    double d = double(y);
    uint bits = mlcc_f32_bits(y);
    if (d == x) return y;
    if (x > 0.0 ? d > x : d < x) bits -= 1u;
    return mlcc_bits_f32(bits | 1u);
}

uint mlcc_small_encode(float x, uint m, uint width, uint rebias) {
    uint bits = mlcc_f32_bits(x);
    uint sign = (bits >> 31) << width;
    uint drop = 23u - m;
    bits &= 0x7fffffffu;
    if (bits < (rebias + 1u) << 23) {
        uint unit = (rebias + 1u + drop) << 23;
        return sign | (mlcc_f32_bits(mlcc_bits_f32(bits) + mlcc_bits_f32(unit)) - unit);
    }
    bits += (1u << (drop - 1u)) - 1u + ((bits >> drop) & 1u);
    return sign | ((bits - (rebias << 23)) >> drop);
}

uint mlcc_f8e4m3fn_encode(float x) {
    if (mlcc_isnan_f32(x)) return ((mlcc_f32_bits(x) >> 24) & 0x80u) | 0x7fu;
    return mlcc_small_encode(x, 3u, 7u, 120u);
}

uint mlcc_f8e4m3fn_cast(float x) {
    return mlcc_f8e4m3fn_encode(x > 448.0f ? 448.0f : x < -448.0f ? -448.0f : x);
}

/* tiny: wide f64[8], y f8e4m3fn[8] */
void main() {
    for (int i = 0; i < 8; i++) {
        y[i] = uint8_t(mlcc_f8e4m3fn_cast(mlcc_f64_to_f32_odd(wide[i])));
    }
}
