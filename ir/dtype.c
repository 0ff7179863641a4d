/* Element types: facts from dtype.def, conversion, and the bit patterns of the narrow float
 * formats.
 *
 * A narrow float format is described by its exponent and mantissa widths, its bias and what it does
 * without infinities (FloatStyle); one encoder and one decoder serve all of them. f8e8m0 is a bare
 * exponent and stands apart.
 */
#include "ir/dtype.h"

#include <math.h>
#include <string.h>

typedef struct DTypeRow {
    const char *name;
    int onnx, bits;
    DKind kind;
    size_t store;
    DType reg;
} DTypeRow;

static const DTypeRow rows[DT_count] = {
    [DT_none] = {"none", 0, 0, DK_none, 0, DT_none},
#define DTYPE(name, onnx, bits, kind, store, reg)                                                  \
    [DT_##name] = {#name, onnx, bits, DK_##kind, store, DT_##reg},
#include "ir/dtype.def"
};

const char *dt_name(DType dt) {
    return rows[dt].name;
}

DType dt_parse(const char *name, size_t length) {
    for (int dt = DT_none + 1; dt < DT_count; dt++)
        if (strlen(rows[dt].name) == length && !memcmp(rows[dt].name, name, length))
            return (DType)dt;
    return DT_none;
}

DType dt_from_onnx(int32_t onnx) {
    for (int dt = DT_none + 1; dt < DT_count; dt++)
        if (rows[dt].onnx == onnx) return (DType)dt;
    return DT_none;
}

int dt_onnx(DType dt) {
    return rows[dt].onnx;
}

int dt_bits(DType dt) {
    return rows[dt].bits;
}

DKind dt_kind(DType dt) {
    return rows[dt].kind;
}

size_t dt_store(DType dt) {
    return rows[dt].store;
}

DType dt_reg(DType dt) {
    return rows[dt].reg;
}

/* --- narrow floats ---------------------------------------------------------------------------- */

typedef enum FloatStyle {
    STYLE_none,
    STYLE_ieee,   /* the top exponent holds infinity and NaN */
    STYLE_fn,     /* no infinity; NaN is all ones */
    STYLE_fnuz,   /* no infinity, no -0; NaN is the sign bit alone */
    STYLE_finite, /* neither; NaN becomes -0, as ml_dtypes and ONNX's tests have it */
} FloatStyle;

typedef struct FloatFormat {
    int exponent_bits, mantissa_bits, bias;
    FloatStyle style;
} FloatFormat;

static const FloatFormat formats[DT_count] = {
    [DT_f16] = {5, 10, 15, STYLE_ieee},    [DT_bf16] = {8, 7, 127, STYLE_ieee},
    [DT_f8e4m3fn] = {4, 3, 7, STYLE_fn},   [DT_f8e4m3fnuz] = {4, 3, 8, STYLE_fnuz},
    [DT_f8e5m2] = {5, 2, 15, STYLE_ieee},  [DT_f8e5m2fnuz] = {5, 2, 16, STYLE_fnuz},
    [DT_f4e2m1] = {2, 1, 1, STYLE_finite},
};

#define DOUBLE_MANTISSA 52
#define DOUBLE_BIAS     1023

static uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double bits_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The code of the largest finite value. */
static uint32_t largest_code(const FloatFormat *f) {
    uint32_t all = (1u << (f->exponent_bits + f->mantissa_bits)) - 1;
    if (f->style == STYLE_ieee) return all - (1u << f->mantissa_bits);
    return f->style == STYLE_fn ? all - 1 : all;
}

/* NaN keeps its sign and the top of its payload where the format has room for them. */
static uint32_t nan_code(const FloatFormat *f, uint32_t sign, uint64_t wide) {
    uint32_t sign_bit = 1u << (f->exponent_bits + f->mantissa_bits);
    if (f->style == STYLE_fnuz || f->style == STYLE_finite) return sign_bit;
    if (f->style == STYLE_fn) return sign | (sign_bit - 1);
    uint32_t payload = (uint32_t)(wide >> (DOUBLE_MANTISSA - f->mantissa_bits));
    payload &= (1u << f->mantissa_bits) - 1;
    if (!payload) payload = 1u << (f->mantissa_bits - 1);
    return sign | ((1u << f->exponent_bits) - 1) << f->mantissa_bits | payload;
}

static uint32_t overflow_code(const FloatFormat *f, uint32_t sign, bool saturate) {
    uint32_t largest = largest_code(f);
    if (saturate || f->style == STYLE_finite) return sign | largest;
    if (f->style == STYLE_fnuz) return largest + 1; /* NaN */
    return sign | (largest + 1);                    /* infinity, or the NaN of STYLE_fn */
}

static uint32_t encode_format(const FloatFormat *f, double value, bool saturate) {
    uint64_t wide = double_bits(value);
    uint32_t sign = (uint32_t)(wide >> 63) << (f->exponent_bits + f->mantissa_bits);
    if (isnan(value)) return nan_code(f, sign, wide);
    if (isinf(value)) return overflow_code(f, sign, saturate);
    int exponent = (int)(wide >> DOUBLE_MANTISSA & 0x7ff);
    uint64_t mantissa = wide & (((uint64_t)1 << DOUBLE_MANTISSA) - 1);
    uint64_t code = 0;
    if (exponent) { /* a subnormal double is far below every format here */
        mantissa |= (uint64_t)1 << DOUBLE_MANTISSA;
        /* Drop what is below the last place; more of it where the result is subnormal. The implicit
         * bit of a normal result then counts as one step of the exponent field, and so does a
         * carry. */
        int above_min = exponent - DOUBLE_BIAS - (1 - f->bias);
        int drop = DOUBLE_MANTISSA - f->mantissa_bits + (above_min < 0 ? -above_min : 0);
        if (drop <= DOUBLE_MANTISSA + 1) {
            uint64_t kept = mantissa >> drop, half = (uint64_t)1 << (drop - 1);
            uint64_t lost = mantissa & (half * 2 - 1);
            if (lost > half || (lost == half && (kept & 1))) kept++;
            code = kept + ((uint64_t)(above_min < 0 ? 0 : above_min) << f->mantissa_bits);
        }
    }
    if (code > largest_code(f)) return overflow_code(f, sign, saturate);
    if (!code && f->style == STYLE_fnuz) return 0;
    return sign | (uint32_t)code;
}

static double decode_format(const FloatFormat *f, uint32_t code) {
    uint32_t sign_bit = 1u << (f->exponent_bits + f->mantissa_bits);
    uint32_t magnitude = code & (sign_bit - 1);
    uint64_t sign = (uint64_t)((code & sign_bit) != 0) << 63;
    uint32_t exponent = magnitude >> f->mantissa_bits;
    uint64_t mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
    if (f->style == STYLE_fnuz && magnitude == 0 && sign) return (double)NAN;
    if (f->style == STYLE_fn && magnitude == sign_bit - 1)
        return bits_double(sign | double_bits((double)NAN));
    if (f->style == STYLE_ieee && exponent == (1u << f->exponent_bits) - 1)
        return bits_double(sign | (uint64_t)0x7ff << DOUBLE_MANTISSA |
                           mantissa << (DOUBLE_MANTISSA - f->mantissa_bits));
    if (exponent) {
        uint64_t wide = (uint64_t)((int)exponent - f->bias + DOUBLE_BIAS);
        return bits_double(sign | wide << DOUBLE_MANTISSA |
                           mantissa << (DOUBLE_MANTISSA - f->mantissa_bits));
    }
    double tiny = ldexp((double)mantissa, 1 - f->bias - f->mantissa_bits);
    return sign ? -tiny : tiny;
}

#define E8M0_NAN  255u
#define E8M0_MAX  254
#define E8M0_BIAS 127

/* ONNX Cast to f8e8m0: with saturation rounds up and stays in range, else rounds to nearest (ties
 * up) and gives NaN out of range. The sign is ignored. */
static uint32_t encode_e8m0(double value, bool saturate) {
    if (isnan(value)) return E8M0_NAN;
    if (isinf(value)) return saturate ? (uint32_t)E8M0_MAX : E8M0_NAN;
    if (value == 0) return saturate ? 0 : E8M0_NAN;
    int exponent; /* fabs(value) = fraction * 2^exponent, fraction in [0.5, 1) */
    double fraction = frexp(fabs(value), &exponent);
    bool up = saturate ? fraction > 0.5 : fraction >= 0.75;
    int code = exponent - 1 + up + E8M0_BIAS;
    if (code >= 0 && code <= E8M0_MAX) return (uint32_t)code;
    if (!saturate) return E8M0_NAN;
    return code < 0 ? 0 : (uint32_t)E8M0_MAX;
}

uint32_t dt_encode_float(DType dt, double value, bool saturate) {
    if (dt == DT_f8e8m0) return encode_e8m0(value, saturate);
    if (formats[dt].style) return encode_format(&formats[dt], value, saturate);
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return bits;
}

double dt_decode_float(DType dt, uint32_t bits) {
    if (dt == DT_f8e8m0) return bits == E8M0_NAN ? (double)NAN : ldexp(1, (int)bits - E8M0_BIAS);
    if (formats[dt].style) return decode_format(&formats[dt], bits);
    float single;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

/* --- elements of buffers ---------------------------------------------------------------------- */

/* The low `bits` bits of `value`, extended by sign or by zero. */
static int64_t wrap_int(int64_t value, int bits, bool is_signed) {
    if (bits >= 64) return value;
    uint64_t low = (uint64_t)value & (((uint64_t)1 << bits) - 1);
    if (is_signed && (low >> (bits - 1))) low |= ~(uint64_t)0 << bits;
    return (int64_t)low;
}

Scalar dt_load(DType dt, const void *data, size_t index) {
    const unsigned char *at = (const unsigned char *)data + index * rows[dt].store;
    switch (dt) {
    case DT_f32: {
        float value;
        memcpy(&value, at, sizeof value);
        return (Scalar){.f = (double)value};
    }
    case DT_f64: {
        double value;
        memcpy(&value, at, sizeof value);
        return (Scalar){.f = value};
    }
    case DT_bool:
        return (Scalar){.i = *at != 0};
    case DT_none:
    case DT_str:
    case DT_c64:
    case DT_c128:
    case DT_count:
        return (Scalar){.i = 0};
    default:
        break;
    }
    uint64_t raw;
    switch (rows[dt].store) {
    case 1:
        raw = *at;
        break;
    case 2: {
        uint16_t half;
        memcpy(&half, at, sizeof half);
        raw = half;
        break;
    }
    case 4: {
        uint32_t word;
        memcpy(&word, at, sizeof word);
        raw = word;
        break;
    }
    default:
        memcpy(&raw, at, sizeof raw);
        break;
    }
    if (rows[dt].kind == DK_float) return (Scalar){.f = dt_decode_float(dt, (uint32_t)raw)};
    return (Scalar){.i = wrap_int((int64_t)raw, rows[dt].bits, rows[dt].kind == DK_sint)};
}

/* What dt_save does to a narrow float. A value of the type comes back unchanged, so the infinity of
 * f8e5m2 stays: bringing it into range is the cast's work. */
static uint32_t save_code(DType dt, double value) {
    bool saturate = rows[dt].bits <= 8 && !(dt == DT_f8e5m2 && isinf(value));
    return dt_encode_float(dt, value, saturate);
}

void dt_save(DType dt, void *data, size_t index, Scalar value) {
    unsigned char *at = (unsigned char *)data + index * rows[dt].store;
    switch (dt) {
    case DT_f32: {
        float single = (float)value.f;
        memcpy(at, &single, sizeof single);
        return;
    }
    case DT_f64:
        memcpy(at, &value.f, sizeof value.f);
        return;
    case DT_bool:
        *at = value.i != 0;
        return;
    case DT_none:
    case DT_str:
    case DT_c64:
    case DT_c128:
    case DT_count:
        return;
    default:
        break;
    }
    uint64_t raw = rows[dt].kind == DK_float
                       ? save_code(dt, value.f)
                       : (uint64_t)wrap_int(value.i, rows[dt].bits, rows[dt].kind == DK_sint);
    switch (rows[dt].store) {
    case 1:
        *at = (unsigned char)raw;
        return;
    case 2: {
        uint16_t half = (uint16_t)raw;
        memcpy(at, &half, sizeof half);
        return;
    }
    case 4: {
        uint32_t word = (uint32_t)raw;
        memcpy(at, &word, sizeof word);
        return;
    }
    default:
        memcpy(at, &raw, sizeof raw);
    }
}

/* --- conversion ------------------------------------------------------------------------------- */

/* Truncation to 64 bits; NaN and what no 64-bit integer holds give INT64_MIN, whose low bits are 0.
 */
static int64_t float_to_int(double value) {
    const double two63 = 9223372036854775808.0;
    if (value >= -two63 && value < two63) return (int64_t)value;
    if (value >= two63 && value < 2 * two63) return (int64_t)(uint64_t)value;
    return INT64_MIN;
}

Scalar dt_cast(DType from, DType to, Scalar value) {
    bool from_float = rows[from].kind == DK_float;
    if (rows[to].kind != DK_float) {
        if (rows[to].kind == DK_bool)
            return (Scalar){.i = from_float ? value.f != 0 : value.i != 0};
        int64_t wide = from_float ? float_to_int(value.f) : value.i;
        return (Scalar){.i = wrap_int(wide, rows[to].bits, rows[to].kind == DK_sint)};
    }
    if (from == to) return value;
    double wide = from_float       ? value.f
                  : from == DT_u64 ? (double)(uint64_t)value.i
                                   : (double)value.i;
    if (to == DT_f64) return (Scalar){.f = wide};
    if (to == DT_f32) {
        /* integers round once, not by way of double */
        float single = from_float       ? (float)value.f
                       : from == DT_u64 ? (float)(uint64_t)value.i
                                        : (float)value.i;
        return (Scalar){.f = (double)single};
    }
    return (Scalar){.f = dt_decode_float(to, dt_encode_float(to, wide, rows[to].bits <= 8))};
}
