/* Decoding tensors: every element type from raw_data and from its typed field, packed and one by
 * one; wrong shapes, lengths and fields. */
#include "tests/unit/onnx_writer.h"

/* --- tensors ---------------------------------------------------------------------------------- */

/* One value per row: as raw bytes, and as the value of the typed field. */
typedef struct Row {
    DType dt;
    unsigned field;  /* the typed one */
    const char *raw; /* two elements (or as many as fit one byte) */
    size_t raw_n;
    int64_t values[2]; /* the same in the typed field */
    int n_values, count;
    unsigned char stored[4]; /* first bytes as decoded */
} Row;

#define ROW(dt, field, raw, ...)                                                                   \
    { DT_##dt, ONNX_FIELD_##field, raw, sizeof(raw) - 1, __VA_ARGS__ }

static const Row rows[] = {
    ROW(u8, int32_data, "\x05\xff", {5, 255}, 2, 2, {5, 255}),
    ROW(i8, int32_data, "\x05\xff", {5, -1}, 2, 2, {5, 255}),
    ROW(u16, int32_data, "\x05\x00\xff\xff", {5, 65535}, 2, 2, {5, 0, 255, 255}),
    ROW(i16, int32_data, "\x05\x00\xfe\xff", {5, -2}, 2, 2, {5, 0, 254, 255}),
    ROW(i32, int32_data, "\x05\x00\x00\x00\xff\xff\xff\xff", {5, -1}, 2, 2, {5, 0, 0, 0}),
    ROW(i64, int64_data, "\x05\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", {5, -1}, 2, 2, {5}),
    ROW(u32, uint64_data, "\x05\0\0\0\xff\xff\xff\xff", {5, 0xffffffff}, 2, 2, {5}),
    ROW(u64, uint64_data, "\x05\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", {5, -1}, 2, 2, {5}),
    ROW(bool, int32_data, "\x07\x00", {7, 0}, 2, 2, {1, 0}),
    ROW(f16, int32_data, "\x00\x3c\x00\xbc", {0x3c00, 0xbc00}, 2, 2, {0, 0x3c, 0, 0xbc}),
    ROW(bf16, int32_data, "\x80\x3f\x80\xbf", {0x3f80, 0xbf80}, 2, 2, {0x80, 0x3f, 0x80, 0xbf}),
    ROW(f8e4m3fn, int32_data, "\x38\xb8", {0x38, 0xb8}, 2, 2, {0x38, 0xb8}),
    ROW(f8e4m3fnuz, int32_data, "\x38\xb8", {0x38, 0xb8}, 2, 2, {0x38, 0xb8}),
    ROW(f8e5m2, int32_data, "\x3c\xbc", {0x3c, 0xbc}, 2, 2, {0x3c, 0xbc}),
    ROW(f8e5m2fnuz, int32_data, "\x3c\xbc", {0x3c, 0xbc}, 2, 2, {0x3c, 0xbc}),
    ROW(f8e8m0, int32_data, "\x7f\x80", {0x7f, 0x80}, 2, 2, {0x7f, 0x80}),
    ROW(u4, int32_data, "\xf3\x0a", {0xf3, 0x0a}, 2, 3, {3, 15, 10}),
    ROW(i4, int32_data, "\xf3\x0a", {0xf3, 0x0a}, 2, 3, {3, 255, 250}),
    ROW(f4e2m1, int32_data, "\xf3", {0xf3}, 1, 2, {3, 15}),
    ROW(u2, int32_data, "\xe4", {0xe4}, 1, 4, {0, 1, 2, 3}),
    ROW(i2, int32_data, "\xe4", {-28}, 1, 4, {0, 1, 254, 255}), /* 0xe4 with its sign spread */
};

static void check_row(Bench *b, const Row *row, const Text *bytes) {
    OnnxTensor t;
    bool good = decode(b, bytes, &t);
    if (!good) diag_print(&b->diag);
    assert_true(good);
    assert_int_equal(t.dt, row->dt);
    assert_int_equal(t.rank, 1);
    assert_int_equal(t.count, row->count);
    assert_string_equal(t.name, "w");
    assert_true(t.aligned);
    size_t n = (size_t)row->count * dt_store(row->dt);
    assert_memory_equal(t.data, row->stored, n < 4 ? n : 4);
    if (dt_kind(row->dt) == DK_sint) {
        int64_t last =
            row->n_values == row->count ? row->values[1] : (int8_t)row->stored[row->count - 1];
        assert_int_equal(dt_load(row->dt, t.data, (size_t)row->count - 1).i, last);
    }
}

static void test_integer_like_types(void **state) {
    Bench *b = *state;
    for (size_t i = 0; i < N(rows); i++) {
        const Row *row = &rows[i];
        Text raw = vector(b, row->dt, row->count);
        put_bytes(&raw, ONNX_FIELD_raw_data, row->raw, row->raw_n);
        check_row(b, row, &raw);
        Text packed = vector(b, row->dt, row->count);
        put_packed(b, &packed, row->field, (size_t)row->n_values, row->values);
        check_row(b, row, &packed);
        /* one by one, with an unknown field and an empty packed one between them */
        Text single = vector(b, row->dt, row->count);
        for (int k = 0; k < row->n_values; k++) {
            put_int(&single, row->field, row->values[k]);
            put_int(&single, 77, 1);
            put_bytes(&single, row->field, "", 0);
        }
        check_row(b, row, &single);
    }
}

static void test_floats(void **state) {
    Bench *b = *state;
    static const float f[] = {1.5f, -2, 3, 4};
    static const double d[] = {1.5, -2, 3, 4};
    static const DType types[] = {DT_f32, DT_c64, DT_f64, DT_c128};
    for (size_t i = 0; i < N(types); i++) {
        bool wide = i >= 2;
        int64_t count = i % 2 ? 2 : 4;
        unsigned field = wide ? ONNX_FIELD_double_data : ONNX_FIELD_float_data;
        size_t part = wide ? 8 : 4;
        const char *values = wide ? (const char *)d : (const char *)f;
        for (int form = 0; form < 4; form++) {
            Text t = vector(b, types[i], count);
            if (form == 0) put_bytes(&t, ONNX_FIELD_raw_data, values, 4 * part);
            if (form == 1) put_bytes(&t, field, values, 4 * part);
            for (int k = 0; form >= 2 && k < 4; k++) {
                if (form == 2) put_tag(&t, field, wide ? WIRE_fixed64 : WIRE_fixed32);
                if (form == 2) text_addn(&t, values + (size_t)k * part, part);
                if (form == 3) put_bytes(&t, field, values + (size_t)k * part, part);
            }
            OnnxTensor out;
            assert_true(decode(b, &t, &out));
            assert_int_equal(out.count, count);
            assert_memory_equal(out.data, values, 4 * part);
        }
    }
}

static void test_strings(void **state) {
    Bench *b = *state;
    Text t = vector(b, DT_str, 3);
    put_bytes(&t, ONNX_FIELD_string_data, "a\0b", 3);
    put_string(&t, ONNX_FIELD_string_data, "");
    put_string(&t, ONNX_FIELD_string_data, "last");
    OnnxTensor out;
    assert_true(decode(b, &t, &out));
    const OnnxString *s = out.data;
    assert_int_equal(s[0].length, 3);
    assert_memory_equal(s[0].data, "a\0b", 3);
    assert_int_equal(s[1].length, 0);
    assert_int_equal(s[2].length, 4);
    assert_memory_equal(s[2].data, "last", 4);
}

static void test_scalar_and_empty(void **state) {
    Bench *b = *state;
    OnnxTensor out;
    Text scalar = tensor(b, "", DT_i64, 0, NULL);
    put_int(&scalar, ONNX_FIELD_int64_data, -7);
    assert_true(decode(b, &scalar, &out));
    assert_int_equal(out.rank, 0);
    assert_int_equal(out.count, 1);
    assert_int_equal(*(const int64_t *)out.data, -7);
    Text empty = tensor(b, "e", DT_f32, 3, (int64_t[]){0, INT64_MAX, INT64_MAX});
    assert_true(decode(b, &empty, &out));
    assert_int_equal(out.count, 0);
    assert_non_null(out.data);
    put_bytes(&empty, ONNX_FIELD_raw_data, "", 0);
    assert_true(decode(b, &empty, &out));
}

static void test_wrong_tensors(void **state) {
    Bench *b = *state;
    OnnxTensor out;
    Text t = vector(b, DT_f32, 2);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1103, "tensor 'w' has no data, but its shape has 2 elements");
    put_bytes(&t, ONNX_FIELD_raw_data, "1234567", 7);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1103, "raw_data has 7 bytes, but 2 elements of f32 need 8");
    put_tag(&t, ONNX_FIELD_float_data, WIRE_fixed32);
    text_addn(&t, "1234", 4);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1104, "tensor 'w' has data in two places, raw_data and float_data");

    t = vector(b, DT_i64, 3);
    put_packed(b, &t, ONNX_FIELD_int64_data, 2, (int64_t[]){1, 2});
    assert_false(decode(b, &t, &out));
    expect_error(b, E1103, "int64_data has 2 values, but 3 elements of i64 need 3");
    t = vector(b, DT_i64, 1);
    put_packed(b, &t, ONNX_FIELD_int64_data, 2, (int64_t[]){1, 2});
    assert_false(decode(b, &t, &out));
    expect_error(b, E1103, "int64_data has 2 values");
    t = vector(b, DT_i64, 1);
    put_int(&t, ONNX_FIELD_int32_data, 1);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1104, "tensor 'w' has its data in int32_data, where elements of type i64");
    t = vector(b, DT_str, 1);
    put_string(&t, ONNX_FIELD_raw_data, "x");
    assert_false(decode(b, &t, &out));
    expect_error(b, E1104, "raw_data");
    t = vector(b, DT_i8, 1);
    put_int(&t, ONNX_FIELD_int32_data, 1000);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1105, "value 1000 at position 0 of int32_data does not fit i8");
    t = vector(b, DT_u32, 1);
    put_int(&t, ONNX_FIELD_uint64_data, (int64_t)1 << 32);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1105, "4294967296");
    t = vector(b, DT_i64, 1);
    put_bytes(&t, ONNX_FIELD_int64_data, "\xff\xff", 2);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1005, "int64_data is damaged");
}

static void test_wrong_shapes(void **state) {
    Bench *b = *state;
    OnnxTensor out;
    Text t = vector(b, DT_f32, -1);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1102, "tensor 'w' has dimension 0 of size -1");
    t = tensor(b, "w", DT_f32, 2, (int64_t[]){(int64_t)1 << 32, (int64_t)1 << 32});
    assert_false(decode(b, &t, &out));
    expect_error(b, E1102, "more elements than can be");
    int64_t ones[65];
    for (size_t i = 0; i < N(ones); i++) ones[i] = 1;
    t = tensor(b, "w", DT_f32, 65, ones);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1102, "65 dimensions");
    /* a large shape with few values takes no memory */
    t = vector(b, DT_i64, (int64_t)1 << 50);
    put_int(&t, ONNX_FIELD_int64_data, 1);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1103, "int64_data has 1 values");
    t = text_new(&b->arena);
    put_int(&t, 2, 99);
    assert_false(decode(b, &t, &out));
    expect_error(b, E1101, "a tensor without name has element type 99");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        TEST(test_integer_like_types), TEST(test_floats),        TEST(test_strings),
        TEST(test_scalar_and_empty),   TEST(test_wrong_tensors), TEST(test_wrong_shapes),
    };
    return cmocka_run_group_tests_name("tensor_data", tests, NULL, NULL);
}
