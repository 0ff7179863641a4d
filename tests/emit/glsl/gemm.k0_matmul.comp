/* gemm.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 4, local_size_y = 4, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    float a[];
};
layout(std430, set = 0, binding = 1) restrict readonly buffer Buffer1 {
    float b[];
};
layout(std430, set = 0, binding = 2) restrict buffer Buffer2 {
    float c[];
};
shared float tile_a[72];
shared float tile_b[64];

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

/* MatMul(mm), Relu(relu): a f32[20, 24], b f32[24, 18], c f32[20, 18] */
void main() {
    const int by = int(gl_WorkGroupID.y);
    const int bx = int(gl_WorkGroupID.x);
    const int ty = int(gl_LocalInvocationID.y);
    const int tx = int(gl_LocalInvocationID.x);
    float acc[4];
    [[unroll]]
    for (int i = 0; i < 2; i++) {
        [[unroll]]
        for (int j = 0; j < 2; j++) {
            acc[i * 2 + j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < 3; k0++) {
        [[unroll]]
        for (int l = 0; l < 4; l++) {
            const int row = ty * 2 + l / 2;
            const int col = tx * 2 + l % 2;
            const float v0 = by * 8 + row < 20 ? a[by * 192 + row * 24 + k0 * 8 + col] : 0.0f;
            tile_a[row * 9 + col] = v0;
            const float v1 = bx * 8 + col < 18 ? b[k0 * 144 + row * 18 + bx * 8 + col] : 0.0f;
            tile_b[row * 8 + col] = v1;
        }
        barrier();
        for (int k = 0; k < 8; k++) {
            [[unroll]]
            for (int i1 = 0; i1 < 2; i1++) {
                [[unroll]]
                for (int j1 = 0; j1 < 2; j1++) {
                    const int v2 = i1 * 2 + j1;
                    acc[v2] += tile_a[ty * 18 + i1 * 9 + k] * tile_b[k * 8 + tx * 2 + j1];
                }
            }
        }
        barrier();
    }
    [[unroll]]
    for (int i2 = 0; i2 < 2; i2++) {
        [[unroll]]
        for (int j2 = 0; j2 < 2; j2++) {
            if (by * 8 + ty * 2 + i2 < 20 && bx * 8 + tx * 2 + j2 < 18) {
                const int v3 = by * 144 + ty * 36 + i2 * 18 + bx * 8 + tx * 2 + j2;
                c[v3] = mlcc_max_f32(acc[i2 * 2 + j2], 0.0f);
            }
        }
    }
}
