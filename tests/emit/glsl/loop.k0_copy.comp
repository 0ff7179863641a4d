/* loop.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450

layout(local_size_x = 8, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    float x[];
};
layout(std430, set = 0, binding = 1) restrict buffer Buffer1 {
    float y[];
};

/* k0_copy: x f32[8], y f32[8] */
void main() {
    const int i = int(gl_LocalInvocationID.x);
    y[i] = x[i];
}
