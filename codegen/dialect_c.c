/* C99: what the standalone `.c` output is written in. */
#include "codegen/dialect.h"

#include <stddef.h>

/* Keywords of C and C++ (headers are read by both); names and macros of the standard library. */
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
    "intptr_t", "uintptr_t", "memcmp", "offsetof", "max_align_t", "float_t", "double_t",
    "fpclassify", "isgreater", "isgreaterequal", "isless", "islessequal", "islessgreater",
    "isunordered", "math_errhandling", "MATH_ERRNO", "MATH_ERREXCEPT", "HUGE_VAL", "HUGE_VALF",
    "HUGE_VALL", "FP_FAST_FMA", "FP_FAST_FMAF", "FP_FAST_FMAL", "FP_ILOGB0", "FP_ILOGBNAN",
    "FP_INFINITE", "FP_NAN", "FP_NORMAL", "FP_SUBNORMAL", "FP_ZERO", "M_1_PI", "M_2_PI",
    "M_2_SQRTPI", "M_LN10", "M_LN2", "M_LOG10E", "M_LOG2E", "M_PI_2", "M_PI_4", "M_SQRT1_2",
    "M_SQRT2", "MAXFLOAT", "DOMAIN", "SING", "OVERFLOW", "UNDERFLOW", "PLOSS", "TLOSS",
    "SIZE_MAX", "PTRDIFF_MAX", "PTRDIFF_MIN", "SIG_ATOMIC_MAX", "SIG_ATOMIC_MIN", "WCHAR_MAX",
    "WCHAR_MIN", "WINT_MAX", "WINT_MIN", "EOF", "BUFSIZ", "RAND_MAX", "EXIT_SUCCESS",
    "EXIT_FAILURE", "SEEK_CUR", "SEEK_END", "SEEK_SET", "typeof", "i386",
    "INT8_MAX", "INT8_MIN", "INT8_C", "INT16_MAX", "INT16_MIN", "INT16_C", "INT32_MAX",
    "INT32_MIN", "INT32_C", "INT64_MAX", "INT64_MIN", "INT64_C", "INTMAX_MAX", "INTMAX_MIN",
    "INTMAX_C", "INTPTR_MAX", "INTPTR_MIN", "UINT8_MAX", "UINT8_C", "UINT16_MAX", "UINT16_C",
    "UINT32_MAX", "UINT32_C", "UINT64_MAX", "UINT64_C", "UINTMAX_MAX", "UINTMAX_C", "UINTPTR_MAX",
    NULL,
    /* clang-format on */
};

const Dialect dialect_c = {
    .name = "c",
    .helpers = IN_c,
    .reg =
        {
            [DT_f32] = "float",
            [DT_f64] = "double",
            [DT_i32] = "int32_t",
            [DT_u32] = "uint32_t",
            [DT_i64] = "int64_t",
            [DT_u64] = "uint64_t",
            [DT_bool] = "bool",
        },
    .mem =
        {
            [DT_f32] = "float",      [DT_f64] = "double",         [DT_i32] = "int32_t",
            [DT_u32] = "uint32_t",   [DT_i64] = "int64_t",        [DT_u64] = "uint64_t",
            [DT_bool] = "uint8_t",   [DT_i8] = "int8_t",          [DT_u8] = "uint8_t",
            [DT_i16] = "int16_t",    [DT_u16] = "uint16_t",       [DT_f16] = "uint16_t",
            [DT_bf16] = "uint16_t",  [DT_f8e4m3fn] = "uint8_t",   [DT_f8e4m3fnuz] = "uint8_t",
            [DT_f8e5m2] = "uint8_t", [DT_f8e5m2fnuz] = "uint8_t", [DT_f8e8m0] = "uint8_t",
            [DT_f4e2m1] = "uint8_t", [DT_i4] = "int8_t",          [DT_i2] = "int8_t",
            [DT_u4] = "uint8_t",     [DT_u2] = "uint8_t",
        },
    .int_promotion = true,
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
    .function = "static inline ",
    .vector_outside = true,
    .unroll = "MLCC_UNROLL",
    .reserved = reserved,
};
