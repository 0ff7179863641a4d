/* CUDA C: for NVRTC, and as host C for the emulation (runtime/cuda_emu.h). The words that begin
 * with MLCC_ are macros of runtime/cuda_intrin.h, which stands before every kernel text. */
#include "codegen/host.h"

#include <string.h>

/* Keywords of C and C++, names of CUDA, and names of the C library that the emulation sees. */
static const char *const reserved[] = {
    /* clang-format off */
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "main", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "union", "unsigned", "void", "volatile", "while", "_Bool", "_Complex",
    "_Imaginary", "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool",
    "catch", "char8_t", "char16_t", "char32_t", "class", "co_await", "co_return", "co_yield",
    "compl", "concept", "consteval", "constexpr", "constinit", "const_cast", "decltype", "delete",
    "dynamic_cast", "explicit", "export", "false", "friend", "mutable", "namespace", "new",
    "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected",
    "public", "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this",
    "thread_local", "throw", "true", "try", "typeid", "typename", "using", "virtual", "wchar_t",
    "xor", "xor_eq", "abs", "acos", "acosf", "acosh", "acoshf", "asin", "asinf", "asinh",
    "asinhf", "atan", "atan2", "atan2f", "atanf", "atanh", "atanhf", "cbrt", "cbrtf", "ceil",
    "ceilf", "copysign", "copysignf", "cos", "cosf", "cosh", "coshf", "erf", "erfc", "erfcf",
    "erff", "exp", "exp2", "exp2f", "expf", "expm1", "expm1f", "fabs", "fabsf", "fdim", "fdimf",
    "floor", "floorf", "fma", "fmaf", "fmax", "fmaxf", "fmin", "fminf", "fmod", "fmodf", "frexp",
    "frexpf", "gamma", "hypot", "hypotf", "ilogb", "ilogbf", "isnan", "isinf", "isfinite",
    "isnormal", "signbit", "j0", "j1", "jn", "y0", "y1", "yn", "ldexp", "ldexpf", "lgamma",
    "lgammaf", "llrint", "llrintf", "llround", "llroundf", "log", "log10", "log10f", "log1p",
    "log1pf", "log2", "log2f", "logb", "logbf", "logf", "lrint", "lrintf", "lround", "lroundf",
    "modf", "modff", "nan", "nanf", "nearbyint", "nearbyintf", "nextafter", "nextafterf",
    "nexttoward", "pow", "powf", "remainder", "remainderf", "remquo", "remquof", "rint", "rintf",
    "round", "roundf", "scalb", "scalbln", "scalblnf", "scalbn", "scalbnf", "signgam",
    "significand", "sin", "sinf", "sinh", "sinhf", "sqrt", "sqrtf", "tan", "tanf", "tanh",
    "tanhf", "tgamma", "tgammaf", "trunc", "truncf", "infinity", "memcpy", "memmove", "memset",
    "size_t", "ptrdiff_t", "NULL", "INFINITY", "NAN", "M_PI", "M_E", "unix", "linux", "errno",
    "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t",
    "intptr_t", "uintptr_t", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "min",
    "max", "half", "int2", "int3", "int4", "float2", "float3", "float4", "double2", "uint",
    "uint2", "uint3", "uint4", "char1", "uchar", "ushort", "ulong", "dim3", "rsqrt", "rsqrtf",
    "rcbrt", "saturate", "tex1D", "tex2D", "clock64", "assert", "__shared__", "__global__",
    "rhypot", "normcdf", "sincos", "sincosf", "sinpi", "cospi", "erfinv", "erfcinv", "erfcx",
    "norm3d", "umin", "umax", "ullmin", "ullmax", "llabs", NULL,
    /* clang-format on */
};

const Dialect dialect_cuda = {
    .name = "cuda",
    .helpers = IN_cuda,
    .reg =
        {
            [DT_f32] = "float",
            [DT_f64] = "double",
            [DT_i32] = "int",
            [DT_u32] = "unsigned int",
            [DT_i64] = "long long",
            [DT_u64] = "unsigned long long",
            [DT_bool] = "bool",
        },
    .mem =
        {
            [DT_f32] = "float",
            [DT_f64] = "double",
            [DT_i32] = "int",
            [DT_u32] = "unsigned int",
            [DT_i64] = "long long",
            [DT_u64] = "unsigned long long",
            [DT_bool] = "unsigned char",
            [DT_i8] = "signed char",
            [DT_u8] = "unsigned char",
            [DT_i16] = "short",
            [DT_u16] = "unsigned short",
            [DT_f16] = "unsigned short",
            [DT_bf16] = "unsigned short",
            [DT_f8e4m3fn] = "unsigned char",
            [DT_f8e4m3fnuz] = "unsigned char",
            [DT_f8e5m2] = "unsigned char",
            [DT_f8e5m2fnuz] = "unsigned char",
            [DT_f8e8m0] = "unsigned char",
            [DT_f4e2m1] = "unsigned char",
            [DT_i4] = "signed char",
            [DT_i2] = "signed char",
            [DT_u4] = "unsigned char",
            [DT_u2] = "unsigned char",
        },
    .wide = {[DT_f32] = "mlcc_f32x",
             [DT_i32] = "mlcc_i32x",
             [DT_f16] = "mlcc_u16x",
             [DT_bf16] = "mlcc_u16x",
             [DT_u8] = "mlcc_u8x",
             [DT_i8] = "mlcc_i8x"},
    .warp_tiles = true,
    .int_promotion = true,
    .long_suffix = "ll",
    .double_suffix = "",
    .infinity = "INFINITY",
    .nan = "NAN",
    .fn32 =
        {
            [EX_sqrt] = "sqrtf",   [EX_exp] = "expf",     [EX_log] = "logf",
            [EX_sin] = "sinf",     [EX_cos] = "cosf",     [EX_tan] = "tanf",
            [EX_asin] = "asinf",   [EX_acos] = "acosf",   [EX_atan] = "atanf",
            [EX_sinh] = "sinhf",   [EX_cosh] = "coshf",   [EX_tanh] = "tanhf",
            [EX_asinh] = "asinhf", [EX_acosh] = "acoshf", [EX_atanh] = "atanhf",
            [EX_erf] = "erff",     [EX_floor] = "floorf", [EX_ceil] = "ceilf",
            [EX_abs] = "fabsf",    [EX_round] = "rintf",  [EX_trunc] = "truncf",
            [EX_isnan] = "isnan",  [EX_isinf] = "isinf",  [EX_rem] = "fmodf",
            [EX_pow] = "powf",
        },
    .fn64 =
        {
            [EX_sqrt] = "sqrt",   [EX_exp] = "exp",     [EX_log] = "log",     [EX_sin] = "sin",
            [EX_cos] = "cos",     [EX_tan] = "tan",     [EX_asin] = "asin",   [EX_acos] = "acos",
            [EX_atan] = "atan",   [EX_sinh] = "sinh",   [EX_cosh] = "cosh",   [EX_tanh] = "tanh",
            [EX_asinh] = "asinh", [EX_acosh] = "acosh", [EX_atanh] = "atanh", [EX_erf] = "erf",
            [EX_floor] = "floor", [EX_ceil] = "ceil",   [EX_abs] = "fabs",    [EX_round] = "rint",
            [EX_trunc] = "trunc", [EX_isnan] = "isnan", [EX_isinf] = "isinf", [EX_rem] = "fmod",
            [EX_pow] = "pow",
        },
    .select_min_max = true,
    .function = "MLCC_DEVICE ",
    .barrier = "__syncthreads();",
    .global_barrier = "__syncthreads();",
    .unroll = "MLCC_UNROLL",
    .shared = "MLCC_SHARED",
    .block_at = {"(int)blockIdx.x", "(int)blockIdx.y", "(int)blockIdx.z"},
    .thread_at = {"(int)threadIdx.x", "(int)threadIdx.y", "(int)threadIdx.z"},
    .reserved = reserved,
};

/* The trampoline of a kernel for the emulation: `p` as for cuLaunchKernel. */
static void print_trampoline(Printer *printer, const char *name, Text *out) {
    const Kernel *k = printer->k;
    Arena *arena = printer->scratch;
    int n = k->n_params + k->n_scalars;
    const char **piece = ARENA_ARRAY(arena, n + 1, const char *);
    for (int i = 0; i < n; i++)
        piece[i] = i >= k->n_params
                       ? arena_printf(arena, "*(int *)p[%d]", i)
                       : arena_printf(arena, "*(%s%s **)p[%d]",
                                      k->buffers.items[i]->written ? "" : "const ",
                                      mem_type(printer->unit, k->buffers.items[i]->dt), i);
    text_addf(out, "#ifdef MLCC_EMULATED\nvoid tramp_%s(void **p);\nvoid tramp_%s(void **p) {\n",
              name, name);
    if (n == 0) text_add(out, "    (void)p;\n");
    text_addf(out, "    %s(", name);
    text_list(out, n, piece, (int)strlen(name) + 5, (int)strlen(name) + 5);
    text_add(out, ");\n}\n#endif\n\n");
}

#define WIDE_BYTES 16

/* Which parameters begin at multiples of what is read at once, in all launches of the kernel? */
static void find_aligned(const Program *p, const Kernel *k, Printer *printer) {
    printer->aligned = ARENA_ARRAY(printer->scratch, k->buffers.n, bool);
    for (int i = 0; i < k->n_params; i++) {
        printer->aligned[i] = true;
        for (int s = 0; s < p->steps.n; s++)
            if (p->steps.items[s].kernel == k && p->steps.items[s].places)
                printer->aligned[i] &= p->steps.items[s].places[i].offset % WIDE_BYTES == 0;
    }
}

static void print_kernel(const Program *p, Unit *unit, const Kernel *k, const char *name,
                         Text *out) {
    Arena scratch;
    arena_init(&scratch, p->arena->limit, p->arena->on_limit, p->arena->user);
    Printer printer;
    printer_init(&printer, unit, p, &scratch, k);
    find_aligned(p, k, &printer);
    print_body(&printer);

    kernel_comment(k, &scratch, out);
    const char **words = ARENA_ARRAY(&scratch, k->n_params + 1, const char *);
    for (int i = 0; i < k->n_params; i++)
        words[i] = parameter_alone(p, k, i) ? "__restrict__ " : "";
    long long threads = (long long)(k->block[0] * k->block[1] * k->block[2]);
    const char *head = arena_printf(&scratch, "MLCC_GLOBAL(%lld) %s(", threads, name);
    text_add(out, head);
    kernel_parameters(&printer, words, "int", out, (int)strlen(head));
    text_add(out, ") {\n");
    print_unused(&printer, out);
    text_addn(out, text_get(&printer.out), printer.out.length);
    text_add(out, "}\n\n");
    print_trampoline(&printer, name, out);
    arena_free(&scratch);
}

void emit_cuda(const Program *p, const EmitOptions *o, Text *out) {
    if (!types_supported(p, &dialect_cuda)) return;
    Unit unit;
    unit_init(&unit, p->arena, &dialect_cuda);
    const char **name = kernel_names(p, &unit.names);
    Text kernels = text_new(p->arena);
    for (int i = 0; i < p->kernels.n; i++)
        print_kernel(p, &unit, p->kernels.items[i], name[i], &kernels);
    text_addf(out, "/* %s: the kernels of a neural network as CUDA C, made by mlcc.",
              comment_text(p->arena, o->model_name));
    if (o->digest) text_addf(out, "\n * Model digest: %s.", comment_text(p->arena, o->digest));
    text_add(out, "\n */\n");
    text_add(out, o->prologue ? o->prologue : "#include \"cuda_intrin.h\"\n");
    if (unit.needs & NEEDS_bool)
        text_add(out, "#ifndef __cplusplus\n#include <stdbool.h>\n#endif\n");
    text_add(out, "\n");
    unit_print_helpers(&unit, text_get(&kernels), out);
    text_addn(out, text_get(&kernels), kernels.length);
}
