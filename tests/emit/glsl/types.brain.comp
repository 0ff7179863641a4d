/* types.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    int8_t small[];
};
layout(std430, set = 0, binding = 1) restrict buffer Buffer1 {
    uint16_t y[];
};

uint mlcc_f32_bits(float x) {
    return floatBitsToUint(x);
}

uint mlcc_bf16_encode(float x) {
    uint bits = mlcc_f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        uint payload = (bits >> 16) & 0x7fu;
        return ((bits >> 16) & 0xff80u) | (payload == 0u ? 0x40u : payload);
    }
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

/* brain: small i8[8], y bf16[8] */
void main() {
    for (int i = 0; i < 8; i++) {
        y[i] = uint16_t(mlcc_bf16_encode(float(int(small[i])) / 3.0f));
    }
}
