/* types.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    uint64_t words[];
};
layout(std430, set = 0, binding = 1) restrict buffer Buffer1 {
    int8_t y[];
};

/* nibble: words u64[8], y i4[8] */
void main() {
    for (int i = 0; i < 8; i++) {
        y[i] = int8_t(int((uint(int(words[i] >> 3)) & 15u) ^ 8u) - 8);
    }
}
