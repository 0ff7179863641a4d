/* types.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_shader_8bit_storage : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    int8_t small[];
};
layout(std430, set = 0, binding = 1) restrict buffer Buffer1 {
    uint8_t y[];
};

/* wrapped: small i8[8], y u8[8] */
void main() {
    for (int i = 0; i < 8; i++) {
        y[i] = uint8_t(uint(int(int(small[i])) * 3) & 255u);
    }
}
