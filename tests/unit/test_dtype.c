/* Element types: the narrow float formats against their definition, element access, conversions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/dtype.h"

static const DType narrow[] = {DT_f16,    DT_bf16,       DT_f8e4m3fn, DT_f8e4m3fnuz,
                               DT_f8e5m2, DT_f8e5m2fnuz, DT_f4e2m1,   DT_f8e8m0};
#define N_NARROW (sizeof narrow / sizeof *narrow)

static uint64_t raw_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_tables(void **state) {
    (void)state;
    for (int dt = DT_none + 1; dt < DT_count; dt++) {
        const char *name = dt_name((DType)dt);
        assert_int_equal(dt_parse(name, strlen(name)), dt);
        assert_int_equal(dt_from_onnx(dt_onnx((DType)dt)), dt);
        assert_int_equal(dt_reg(dt_reg((DType)dt)), dt_reg((DType)dt));
    }
    assert_int_equal(dt_parse("f3", 2), DT_none);
    assert_int_equal(dt_parse("f32x", 4), DT_none);
    assert_int_equal(dt_from_onnx(0), DT_none);
    assert_int_equal(dt_from_onnx(99), DT_none);
    assert_true(dt_is_narrow(DT_i8) && dt_is_narrow(DT_bf16) && !dt_is_narrow(DT_i32));
}

/* Every pattern is a value, and saving that value gives the pattern back. */
static void test_round_trip(void **state) {
    (void)state;
    for (size_t k = 0; k < N_NARROW; k++) {
        DType dt = narrow[k];
        for (uint32_t code = 0; code < 1u << dt_bits(dt); code++) {
            double value = dt_decode_float(dt, code);
            uint32_t again = dt_encode_float(dt, value, false);
            if (dt == DT_f8e8m0 || !isnan(value) || dt_bits(dt) == 16)
                assert_int_equal(again, code);
            else
                assert_true(isnan(dt_decode_float(dt, again)));
            unsigned char buffer[4] = {0};
            dt_save(dt, buffer, 1, (Scalar){.f = value});
            Scalar loaded = dt_load(dt, buffer, 1);
            assert_true(isnan(value) ? isnan(loaded.f) : raw_double(loaded.f) == raw_double(value));
        }
    }
}

/* Between neighbours the nearer one is taken, halfway the one with the even code. */
static void test_rounding(void **state) {
    (void)state;
    for (size_t k = 0; k < N_NARROW; k++) {
        DType dt = narrow[k];
        if (dt == DT_f8e8m0) continue;
        uint32_t sign = 1u << (dt_bits(dt) - 1);
        for (uint32_t code = 0; code + 1 < sign; code++) {
            double lo = dt_decode_float(dt, code), hi = dt_decode_float(dt, code + 1);
            if (!isfinite(lo) || !isfinite(hi)) break;
            double mid = (lo + hi) / 2;
            uint32_t even = code & 1 ? code + 1 : code;
            assert_int_equal(dt_encode_float(dt, mid, false), even);
            assert_int_equal(dt_encode_float(dt, nextafter(mid, lo), false), code);
            assert_int_equal(dt_encode_float(dt, nextafter(mid, hi), false), code + 1);
            bool is_zero = even == 0 && (dt == DT_f8e4m3fnuz || dt == DT_f8e5m2fnuz);
            assert_int_equal(dt_encode_float(dt, -mid, true), is_zero ? 0 : (sign | even));
        }
    }
}

/* The tables of ONNX Cast: what becomes of values that have no place. */
static void test_special(void **state) {
    (void)state;
    static const struct {
        DType dt;
        double value;
        bool saturate;
        uint32_t code;
    } rows[] = {
        {DT_f16, 65504, false, 0x7bff},
        {DT_f16, 65519.99, false, 0x7bff},
        {DT_f16, 65520, false, 0x7c00},
        {DT_f16, -1e9, false, 0xfc00},
        {DT_f16, (double)INFINITY, false, 0x7c00},
        {DT_f16, (double)NAN, false, 0x7e00},
        {DT_f16, 0x1p-25, false, 0},
        {DT_f16, 0x1.8p-25, false, 1},
        {DT_f16, 0x1p-1030, false, 0},
        {DT_bf16, (double)NAN, false, 0x7fc0},
        {DT_bf16, 3.4e38, false, 0x7f80},
        {DT_f8e4m3fn, 448, true, 0x7e},
        {DT_f8e4m3fn, 1e6, true, 0x7e},
        {DT_f8e4m3fn, (double)-INFINITY, true, 0xfe},
        {DT_f8e4m3fn, 464, false, 0x7e},
        {DT_f8e4m3fn, 465, false, 0x7f},
        {DT_f8e4m3fn, (double)-INFINITY, false, 0xff},
        {DT_f8e4m3fn, (double)NAN, true, 0x7f},
        {DT_f8e4m3fn, -0.0, true, 0x80},
        {DT_f8e4m3fnuz, 1e6, true, 0x7f},
        {DT_f8e4m3fnuz, -1e6, true, 0xff},
        {DT_f8e4m3fnuz, 1e6, false, 0x80},
        {DT_f8e4m3fnuz, (double)INFINITY, false, 0x80},
        {DT_f8e4m3fnuz, (double)NAN, true, 0x80},
        {DT_f8e4m3fnuz, -0.0, true, 0},
        {DT_f8e4m3fnuz, -1e-7, true, 0},
        {DT_f8e5m2, 1e6, true, 0x7b},
        {DT_f8e5m2, (double)INFINITY, true, 0x7b},
        {DT_f8e5m2, (double)INFINITY, false, 0x7c},
        {DT_f8e5m2, -1e6, false, 0xfc},
        {DT_f8e5m2, (double)NAN, true, 0x7e},
        {DT_f8e5m2fnuz, (double)INFINITY, true, 0x7f},
        {DT_f8e5m2fnuz, (double)INFINITY, false, 0x80},
        {DT_f8e5m2fnuz, -0.0, false, 0},
        {DT_f4e2m1, 9, true, 7},
        {DT_f4e2m1, (double)-INFINITY, true, 15},
        {DT_f4e2m1, -3.5, true, 14},
        {DT_f4e2m1, 0.25, true, 0},
        {DT_f4e2m1, -0.0, true, 8},
        {DT_f8e8m0, 0, true, 0},
        {DT_f8e8m0, 0.124, true, 124},
        {DT_f8e8m0, 1.1, true, 128},
        {DT_f8e8m0, 1.1, false, 127},
        {DT_f8e8m0, 1.5, false, 128},
        {DT_f8e8m0, 1e300, true, 254},
        {DT_f8e8m0, 1e300, false, 255},
        {DT_f8e8m0, (double)INFINITY, true, 254},
        {DT_f8e8m0, (double)NAN, true, 255},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(dt_encode_float(rows[i].dt, rows[i].value, rows[i].saturate),
                         rows[i].code);
    /* an infinity that is there stays through a load and a store, but not through a cast */
    unsigned char code = 0x7c;
    dt_save(DT_f8e5m2, &code, 0, dt_load(DT_f8e5m2, &code, 0));
    assert_int_equal(code, 0x7c);
    assert_true(dt_cast(DT_f32, DT_f8e5m2, (Scalar){.f = (double)INFINITY}).f == 57344);
}

static int64_t int_cast(DType from, DType to, int64_t value) {
    return dt_cast(from, to, (Scalar){.i = value}).i;
}

static int64_t from_float(DType to, double value) {
    return dt_cast(DT_f64, to, (Scalar){.f = value}).i;
}

static void test_casts(void **state) {
    (void)state;
    assert_int_equal(int_cast(DT_i16, DT_i8, 200), -56);
    assert_int_equal(int_cast(DT_i32, DT_u8, -1), 255);
    assert_int_equal(int_cast(DT_i64, DT_i32, INT64_C(0x180000000)), INT32_MIN);
    assert_int_equal(int_cast(DT_i32, DT_u64, -1), -1);
    assert_int_equal(int_cast(DT_u64, DT_i64, -1), -1);
    assert_int_equal(int_cast(DT_i32, DT_u32, -1), UINT32_MAX);
    assert_int_equal(int_cast(DT_i32, DT_i4, 8), -8);
    assert_int_equal(int_cast(DT_i32, DT_u4, 31), 15);
    assert_int_equal(int_cast(DT_i32, DT_i2, 2), -2);
    assert_int_equal(int_cast(DT_i32, DT_u2, -1), 3);
    assert_int_equal(int_cast(DT_i32, DT_bool, 256), 1);
    assert_int_equal(int_cast(DT_bool, DT_i64, 1), 1);
    assert_int_equal(from_float(DT_i32, -2.9), -2);
    assert_int_equal(from_float(DT_u8, -1.0), 255);
    assert_int_equal(from_float(DT_u64, 1.5e19), (int64_t)UINT64_C(15000000000000000000));
    assert_int_equal(from_float(DT_i64, (double)NAN), INT64_MIN);
    assert_int_equal(from_float(DT_i32, (double)INFINITY), 0);
    assert_int_equal(from_float(DT_bool, 0.25), 1);
    assert_int_equal(from_float(DT_bool, -0.0), 0);
    assert_int_equal(from_float(DT_bool, (double)NAN), 1);
    assert_true(dt_cast(DT_f64, DT_f32, (Scalar){.f = 0.1}).f == (double)0.1f);
    assert_true(isinf(dt_cast(DT_f64, DT_f32, (Scalar){.f = 1e39}).f));
    assert_true(dt_cast(DT_i64, DT_f32, (Scalar){.i = 16777217}).f == 16777216.0);
    assert_true(dt_cast(DT_u64, DT_f64, (Scalar){.i = -1}).f == 18446744073709551616.0);
    assert_true(dt_cast(DT_i32, DT_f16, (Scalar){.i = 2049}).f == 2048.0);
}

static void test_elements(void **state) {
    (void)state;
    int64_t memory[4] = {0};
    static const DType ints[] = {DT_u8,  DT_i8, DT_u16, DT_i16, DT_i32, DT_i64, DT_u32,
                                 DT_u64, DT_u4, DT_i4,  DT_u2,  DT_i2,  DT_bool};
    for (size_t k = 0; k < sizeof ints / sizeof *ints; k++)
        for (int64_t value = -300; value < 300; value++) {
            Scalar canonical = dt_cast(DT_i64, ints[k], (Scalar){.i = value});
            dt_save(ints[k], memory, 2, (Scalar){.i = value});
            Scalar got = dt_load(ints[k], memory, 2);
            assert_int_equal(got.i, canonical.i);
        }
    dt_save(DT_f32, memory, 3, (Scalar){.f = 0.1});
    assert_true(dt_load(DT_f32, memory, 3).f == (double)0.1f);
    dt_save(DT_f64, memory, 1, (Scalar){.f = 0.1});
    assert_true(dt_load(DT_f64, memory, 1).f == 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),   cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_rounding), cmocka_unit_test(test_special),
        cmocka_unit_test(test_casts),    cmocka_unit_test(test_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
