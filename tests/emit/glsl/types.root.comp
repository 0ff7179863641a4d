/* types.onnx: a kernel of a neural network as GLSL, made by mlcc. */
#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(std430, set = 0, binding = 0) restrict readonly buffer Buffer0 {
    double wide[];
};
layout(std430, set = 0, binding = 1) restrict buffer Buffer1 {
    int y[];
};

int64_t mlcc_f64_to_i64(double x) {
    if (x >= -9223372036854775808.0 && x < 9223372036854775808.0) return int64_t(x);
    if (x > 0.0 && x < 18446744073709551616.0) return int64_t(uint64_t(x));
    return int64_t(uint64_t(1) << 63);
}

int mlcc_f64_to_i32(double x) {
    return int(mlcc_f64_to_i64(x));
}

/* root: wide f64[8], y i32[8] */
void main() {
    for (int i = 0; i < 8; i++) {
        y[i] = mlcc_f64_to_i32(sqrt(abs(wide[i])) * 1000.0lf);
    }
}
