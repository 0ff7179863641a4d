/* GLSL 4.50 for Vulkan: compute shaders, compiled to SPIR-V.
 *
 * What GLSL promises about its elementary functions is loose, and some of the implementations are
 * looser still near 0, so that most of them are helpers here. double has no such functions: they
 * compute in float.
 */
#include "codegen/host.h"

#include <string.h>

/* Keywords, reserved words and functions of GLSL. */
static const char *const reserved[] = {
    /* clang-format off */
    "attribute", "const", "uniform", "varying", "buffer", "shared", "coherent", "volatile",
    "restrict", "readonly", "writeonly", "atomic_uint", "layout", "centroid", "flat", "smooth",
    "noperspective", "patch", "sample", "invariant", "precise", "break", "continue", "do", "for",
    "while", "switch", "case", "default", "if", "else", "subroutine", "in", "out", "inout", "int",
    "void", "bool", "true", "false", "float", "double", "discard", "return", "lowp", "mediump",
    "highp", "precision", "struct", "common", "partition", "active", "asm", "class", "union",
    "enum", "typedef", "template", "this", "resource", "goto", "inline", "noinline", "public",
    "static", "extern", "external", "interface", "long", "short", "half", "fixed", "unsigned",
    "superp", "input", "output", "filter", "sizeof", "cast", "namespace", "using", "main", "vec2",
    "vec3", "vec4", "ivec2", "ivec3", "ivec4", "uvec2", "uvec3", "uvec4", "dvec2", "dvec3",
    "dvec4", "bvec2", "bvec3", "bvec4", "mat2", "mat3", "mat4", "uint", "int8_t", "uint8_t",
    "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "float16_t", "float32_t",
    "float64_t", "radians", "degrees", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "pow", "exp", "log", "exp2", "log2", "sqrt",
    "inversesqrt", "abs", "sign", "floor", "trunc", "round", "roundEven", "ceil", "fract", "mod",
    "modf", "min", "max", "clamp", "mix", "step", "smoothstep", "isnan", "isinf",
    "floatBitsToInt", "floatBitsToUint", "intBitsToFloat", "uintBitsToFloat", "fma", "frexp",
    "ldexp", "packHalf2x16", "unpackHalf2x16", "length", "distance", "dot", "cross", "normalize",
    "reflect", "refract", "transpose", "determinant", "inverse", "lessThan", "equal", "any",
    "all", "not", "bitfieldExtract", "bitfieldInsert", "bitfieldReverse", "bitCount", "findLSB",
    "findMSB", "texture", "image2D", "sampler2D", "imageLoad", "imageStore", "barrier",
    "memoryBarrier", "memoryBarrierBuffer", "memoryBarrierShared", "groupMemoryBarrier",
    "atomicAdd", "noise1", "sampler", "texture2D", "hvec2", "fvec2", "iimage2D", "pixelLocal",
    "nonuniformEXT", "demote", "terminateInvocation", NULL,
    /* clang-format on */
};

const Dialect dialect_glsl = {
    .name = "glsl",
    .helpers = IN_glsl,
    .reg =
        {
            [DT_f32] = "float",
            [DT_f64] = "double",
            [DT_i32] = "int",
            [DT_u32] = "uint",
            [DT_i64] = "int64_t",
            [DT_u64] = "uint64_t",
            [DT_bool] = "bool",
        },
    .mem =
        {
            [DT_f32] = "float",      [DT_f64] = "double",         [DT_i32] = "int",
            [DT_u32] = "uint",       [DT_i64] = "int64_t",        [DT_u64] = "uint64_t",
            [DT_bool] = "uint8_t",   [DT_i8] = "int8_t",          [DT_u8] = "uint8_t",
            [DT_i16] = "int16_t",    [DT_u16] = "uint16_t",       [DT_f16] = "uint16_t",
            [DT_bf16] = "uint16_t",  [DT_f8e4m3fn] = "uint8_t",   [DT_f8e4m3fnuz] = "uint8_t",
            [DT_f8e5m2] = "uint8_t", [DT_f8e5m2fnuz] = "uint8_t", [DT_f8e8m0] = "uint8_t",
            [DT_f4e2m1] = "uint8_t", [DT_i4] = "int8_t",          [DT_i2] = "int8_t",
            [DT_u4] = "uint8_t",     [DT_u2] = "uint8_t",
        },
    .call_casts = true,
    .wraps = true,
    .long_suffix = "l",
    .double_suffix = "lf",
    .infinity = "uintBitsToFloat(0x7f800000u)",
    .nan = "uintBitsToFloat(0x7fc00000u)",
    .fn32 =
        {
            [EX_sqrt] = "sqrt",
            [EX_exp] = "exp",
            [EX_log] = "log",
            [EX_sin] = "sin",
            [EX_cos] = "cos",
            [EX_tan] = "tan",
            [EX_asin] = "mlcc_asin_f32",
            [EX_acos] = "mlcc_acos_f32",
            [EX_atan] = "mlcc_atan_f32",
            [EX_sinh] = "mlcc_sinh_f32",
            [EX_cosh] = "mlcc_cosh_f32",
            [EX_tanh] = "mlcc_tanh_f32",
            [EX_asinh] = "mlcc_asinh_f32",
            [EX_acosh] = "mlcc_acosh_f32",
            [EX_atanh] = "mlcc_atanh_f32",
            [EX_erf] = "mlcc_erf_f32",
            [EX_floor] = "floor",
            [EX_ceil] = "ceil",
            [EX_abs] = "abs",
            [EX_round] = "roundEven",
            [EX_trunc] = "trunc",
            [EX_isnan] = "mlcc_isnan_f32",
            [EX_isinf] = "mlcc_isinf_f32",
            [EX_rem] = "mlcc_rem_f32",
            [EX_pow] = "mlcc_pow_f32",
            [EX_min] = "min",
            [EX_max] = "max",
        },
    .fn64 =
        {
            [EX_sqrt] = "sqrt",
            [EX_floor] = "floor",
            [EX_ceil] = "ceil",
            [EX_abs] = "abs",
            [EX_round] = "roundEven",
            [EX_trunc] = "trunc",
            [EX_isnan] = "mlcc_isnan_f64",
            [EX_isinf] = "mlcc_isinf_f64",
            [EX_rem] = "mlcc_rem_f64",
            [EX_exp] = "mlcc_exp_f64",
            [EX_log] = "mlcc_log_f64",
            [EX_sinh] = "mlcc_sinh_f64",
            [EX_cosh] = "mlcc_cosh_f64",
            [EX_tanh] = "mlcc_tanh_f64",
            [EX_pow] = "mlcc_pow_f64",
        },
    .f64_by_f32 = true,
    .function = "",
    .barrier = "barrier();",
    .global_barrier = "memoryBarrierBuffer(); barrier(); memoryBarrierBuffer();",
    .unroll = "[[unroll]]",
    .shared = "shared",
    .global_shared = true,
    .block_at = {"int(gl_WorkGroupID.x)", "int(gl_WorkGroupID.y)", "int(gl_WorkGroupID.z)"},
    .thread_at = {"int(gl_LocalInvocationID.x)", "int(gl_LocalInvocationID.y)",
                  "int(gl_LocalInvocationID.z)"},
    .reserved = reserved,
};

static void print_extensions(const Unit *unit, Text *out) {
    text_add(out, "#version 450\n");
    if (unit->needs & NEEDS_unroll)
        text_add(out, "#extension GL_EXT_control_flow_attributes : require\n");
    if (unit->needs & NEEDS_8bit)
        text_add(out, "#extension GL_EXT_shader_8bit_storage : require\n");
    if (unit->needs & NEEDS_16bit)
        text_add(out, "#extension GL_EXT_shader_16bit_storage : require\n");
    if (unit->needs & NEEDS_i64)
        text_add(out, "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n");
    text_add(out, "\n");
}

static void print_interface(const Program *p, Printer *printer, Text *out) {
    const Kernel *k = printer->k;
    text_addf(out, "layout(local_size_x = %lld, local_size_y = %lld, local_size_z = %lld) in;\n",
              (long long)k->block[0], (long long)k->block[1], (long long)k->block[2]);
    for (int i = 0; i < k->n_params; i++) {
        const Buffer *b = k->buffers.items[i];
        text_addf(
            out,
            "layout(std430, set = 0, binding = %d) %s%s%sbuffer Buffer%d {\n    %s %s[];\n};\n", i,
            parameter_exchanged(k, i) ? "coherent " : "",
            parameter_alone(p, k, i) ? "restrict " : "", b->written ? "" : "readonly ", i,
            mem_type(printer->unit, b->dt), printer->buffer[i]);
    }
    if (k->n_scalars) {
        text_add(out, "layout(push_constant) uniform Scalars {\n");
        for (int i = 0; i < k->n_scalars; i++) text_addf(out, "    int %s;\n", printer->scalar[i]);
        text_add(out, "};\n");
    }
    for (int i = k->n_params; i < k->buffers.n; i++) {
        const Buffer *b = k->buffers.items[i];
        if (b->space == SPACE_shared && printer->buffer_used[i])
            text_addf(out, "shared %s %s[%lld];\n", type_of(printer, b->dt), printer->buffer[i],
                      (long long)buffer_elements(b));
    }
    text_add(out, "\n");
}

void emit_glsl(const Program *p, const EmitOptions *o, int kernel, Text *out) {
    if (!types_supported(p, &dialect_glsl)) return;
    const Kernel *k = p->kernels.items[kernel];
    Arena scratch;
    arena_init(&scratch, p->arena->limit, p->arena->on_limit, p->arena->user);
    Unit unit;
    unit_init(&unit, &scratch, &dialect_glsl);
    for (int i = 0; i < k->n_params; i++)
        names_take(&unit.names, arena_printf(&scratch, "Buffer%d", i), "Buffer");
    names_take(&unit.names, "Scalars", "Scalars");
    Printer printer;
    printer_init(&printer, &unit, p, &scratch, k);
    print_body(&printer);
    Text interface = text_new(&scratch);
    print_interface(p, &printer, &interface);

    text_addf(out, "/* %s: a kernel of a neural network as GLSL, made by mlcc. */\n",
              comment_text(&scratch, o->model_name));
    print_extensions(&unit, out);
    text_add(out, text_get(&interface));
    unit_print_helpers(&unit, text_get(&printer.out), out);
    kernel_comment(k, &scratch, out);
    text_add(out, "void main() {\n");
    text_addn(out, text_get(&printer.out), printer.out.length);
    text_add(out, "}\n");
    arena_free(&scratch);
}
