/* rows.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450

layout(local_size_x = 32, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    float x0[];
};
layout(std430, set = 0, binding = 1) coherent buffer Buffer1 {
    float y1[];
};
layout(std430, set = 0, binding = 2) coherent buffer Buffer2 {
    float y2[];
};
layout(std430, set = 0, binding = 3) coherent buffer Buffer3 {
    float y3[];
};
layout(std430, set = 0, binding = 4) coherent buffer Buffer4 {
    float y4[];
};
shared float partial_0[32];
shared float partial_2[32];

uint mlcc_f32_bits(float x) {
    return floatBitsToUint(x);
}

bool mlcc_isnan_f32(float x) {
    return (mlcc_f32_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

float mlcc_max_f32(float a, float b) {
    if (mlcc_isnan_f32(a)) return a;
    if (mlcc_isnan_f32(b)) return b;
    return max(a, b);
}

/* Softmax(y): x0 f32[1280], y1 f32[40], y2 f32[1280], y3 f32[40], y4 f32[1280] */
void main() {
    const int i0i1_0 = int(gl_WorkGroupID.x);
    const int r0i_0 = int(gl_LocalInvocationID.x);
    float acc_0 = -uintBitsToFloat(0x7f800000u);
    acc_0 = mlcc_max_f32(x0[i0i1_0 * 32 + r0i_0], acc_0);
    partial_0[r0i_0] = acc_0;
    barrier();
    if (r0i_0 < 4) {
        const float v0 = mlcc_max_f32(partial_0[r0i_0 + 4], partial_0[r0i_0]);
        const float v1 = mlcc_max_f32(mlcc_max_f32(v0, partial_0[r0i_0 + 8]),
            partial_0[r0i_0 + 12]);
        const float v2 = mlcc_max_f32(mlcc_max_f32(v1, partial_0[r0i_0 + 16]),
            partial_0[r0i_0 + 20]);
        const float v3 = mlcc_max_f32(mlcc_max_f32(v2, partial_0[r0i_0 + 24]),
            partial_0[r0i_0 + 28]);
        partial_0[r0i_0] = v3;
    }
    barrier();
    const float v4 = mlcc_max_f32(mlcc_max_f32(partial_0[0], partial_0[1]), partial_0[2]);
    float result_0 = mlcc_max_f32(v4, partial_0[3]);
    if (r0i_0 == 0) {
        y1[i0i1_0] = result_0;
    }
    memoryBarrierBuffer(); barrier(); memoryBarrierBuffer();
    const int v5 = i0i1_0 * 32 + r0i_0;
    y2[v5] = exp(x0[v5] - result_0);
    memoryBarrierBuffer(); barrier(); memoryBarrierBuffer();
    float acc_2 = 0.0f;
    acc_2 += y2[v5];
    partial_2[r0i_0] = acc_2;
    barrier();
    if (r0i_0 < 4) {
        const float v6 = partial_2[r0i_0 + 4] + partial_2[r0i_0] + partial_2[r0i_0 + 8];
        const float v7 = v6 + partial_2[r0i_0 + 12] + partial_2[r0i_0 + 16];
        const float v8 = v7 + partial_2[r0i_0 + 20] + partial_2[r0i_0 + 24];
        partial_2[r0i_0] = v8 + partial_2[r0i_0 + 28];
    }
    barrier();
    const float v9 = partial_2[0] + partial_2[1] + partial_2[2] + partial_2[3];
    float result_2 = 1.0f / v9;
    if (r0i_0 == 0) {
        y3[i0i1_0] = result_2;
    }
    memoryBarrierBuffer(); barrier(); memoryBarrierBuffer();
    y4[v5] = y2[v5] * result_2;
}
