/* loop.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450

layout(local_size_x = 4, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    float x[];
};
layout(std430, set = 0, binding = 1) restrict buffer Buffer1 {
    float y[];
};
layout(push_constant) uniform Scalars {
    int t0;
};

/* k2_row: x f32[2, 4], y f32[5, 2, 4] */
void main() {
    const int i = int(gl_WorkGroupID.x);
    const int j = int(gl_LocalInvocationID.x);
    const int v0 = i * 4 + j;
    y[t0 * 8 + v0] = x[v0];
}
