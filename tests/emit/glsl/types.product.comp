/* types.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    uint16_t half2[];
};
layout(std430, set = 0, binding = 1) restrict readonly buffer Buffer1 {
    int8_t small[];
};
layout(std430, set = 0, binding = 2) restrict buffer Buffer2 {
    uint16_t y[];
};

uint mlcc_f32_bits(float x) {
    return floatBitsToUint(x);
}

float mlcc_bits_f32(uint x) {
    return uintBitsToFloat(x);
}

float mlcc_f16_decode(uint h) {
    uint sign = (h & 0x8000u) << 16;
    uint rest = (h & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return mlcc_bits_f32(sign | 0x70000000u | rest);
    if (rest >= 0x00800000u) return mlcc_bits_f32(sign | (rest + 0x38000000u));
    float tiny = float(h & 0x3ffu) * 5.9604644775390625e-8f;
    return sign != 0u ? -tiny : tiny;
}

uint mlcc_f16_encode(float x) {
    uint bits = mlcc_f32_bits(x);
    uint sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) {
        uint payload = (bits >> 13) & 0x3ffu;
        return sign | 0x7c00u | (payload == 0u ? 0x200u : payload);
    }
    if (bits >= 0x477ff000u) return sign | 0x7c00u;
    if (bits < 0x38800000u)
        return sign | (mlcc_f32_bits(mlcc_bits_f32(bits) + 0.5f) - 0x3f000000u);
    return sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13);
}

/* product: half f16[8], small i8[8], y f16[8] */
void main() {
    for (int i = 0; i < 8; i++) {
        const float v0 = float(int(small[i])) * mlcc_f16_decode(uint(half2[i]));
        y[i] = uint16_t(mlcc_f16_encode(v0));
    }
}
