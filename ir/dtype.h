/* Element types of tensors and of scalar expressions; the table is dtype.def. */
#ifndef IR_DTYPE_H
#define IR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DType {
    DT_none,
#define DTYPE(name, onnx, bits, kind, store, reg) DT_##name,
#include "ir/dtype.def"
    DT_count
} DType;

typedef enum DKind { DK_none, DK_bool, DK_sint, DK_uint, DK_float, DK_complex, DK_string } DKind;

const char *dt_name(DType dt);
/* DT_none if there is no such name / code. */
DType dt_parse(const char *name, size_t length);
DType dt_from_onnx(int32_t onnx);
int dt_onnx(DType dt);
int dt_bits(DType dt);
DKind dt_kind(DType dt);
/* Bytes an element takes in a buffer. */
size_t dt_store(DType dt);
/* The type values of `dt` are computed in. */
DType dt_reg(DType dt);

static inline bool dt_is_float(DType dt) {
    return dt_kind(dt) == DK_float;
}
static inline bool dt_is_int(DType dt) {
    return dt_kind(dt) == DK_sint || dt_kind(dt) == DK_uint;
}
/* An integer of 8 bits? */
static inline bool dt_is_byte(DType dt) {
    return dt == DT_u8 || dt == DT_i8;
}
/* An integer that is computed with as i32? */
static inline bool dt_is_short(DType dt) {
    return dt_is_byte(dt) || dt == DT_i16;
}
/* True for types whose arithmetic happens in another type (`dt_reg`). */
static inline bool dt_is_narrow(DType dt) {
    return dt_reg(dt) != dt;
}

/* One scalar of any real type. Floats in `f`, all others in `i` (u64 as its two's complement). */
typedef union Scalar {
    int64_t i;
    double f;
} Scalar;

/* Reads / writes element `index` of a buffer in its stored form (narrow floats are decoded/encoded,
 * encoding rounds to nearest even; f8 and f4 saturate, as ONNX Cast does by default). */
Scalar dt_load(DType dt, const void *data, size_t index);
void dt_save(DType dt, void *data, size_t index, Scalar value);
/* Converts between types as the expression `cast` does: float to integer truncates (out of range:
 * wraps through 64 bits), to a narrow integer wraps, to a narrow float rounds to nearest even and
 * saturates for f8/f4, to bool is `!= 0`. */
Scalar dt_cast(DType from, DType to, Scalar value);
/* Bit patterns of the narrow float formats. `saturate`: out-of-range becomes the largest finite. */
uint32_t dt_encode_float(DType dt, double value, bool saturate);
double dt_decode_float(DType dt, uint32_t bits);

#endif
