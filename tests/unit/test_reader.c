/* The ONNX reader: which files it accepts, and how it refuses everything else. A message is checked
 * by its code and by a part of its text. */
#include "tests/unit/onnx_writer.h"

#include <sys/stat.h>

/* --- models ----------------------------------------------------------------------------------- */

static void test_model(void **state) {
    Bench *b = *state;
    Text w = vector(b, DT_i32, 2);
    put_bytes(&w, ONNX_FIELD_raw_data, "\1\0\0\0\2\0\0\0", 8);
    put_int(&w, ONNX_FIELD_mlcc_payload, 12345); /* the private field of a file is not believed */
    Text bytes = model(b, &w);
    OnnxModel m;
    assert_true(read_text(b, &m, &bytes));
    assert_int_equal(m.proto->ir_version, 8);
    assert_int_equal(m.proto->opset_import[0]->version, 17);
    const Onnx__GraphProto *g = m.proto->graph;
    assert_int_equal(g->n_node, 1);
    assert_string_equal(g->node[0]->op_type, "Relu");
    assert_int_equal(g->initializer[0]->raw_data.len, 0);
    OnnxTensor t;
    assert_true(onnx_tensor(&m.file, &b->arena, &b->diag, g->initializer[0], &t));
    assert_memory_equal(t.data, "\1\0\0\0\2\0\0\0", 8);
    onnx_close(&m.file);
}

static void test_incomplete_models(void **state) {
    Bench *b = *state;
    OnnxModel m;
    Text t = text_new(&b->arena);
    put_int(&t, 1, 8);
    assert_false(read_text(b, &m, &t));
    expect_error(b, E1009, "no graph and no opset_import");
    put_bytes(&t, 7, "", 0);
    assert_false(read_text(b, &m, &t));
    expect_error(b, E1010, "opset_import is empty");
    t = text_new(&b->arena);
    put_int(&t, 1, 2); /* IR versions 1 and 2 have no operator sets yet */
    put_bytes(&t, 7, "", 0);
    assert_true(read_text(b, &m, &t));
}

/* Reads `n` bytes and decodes what was read, in little memory. True if the model was read. */
static bool try_reading(const unsigned char *bytes, size_t n) {
    Bench small;
    OnnxModel m;
    OnnxTensor t;
    volatile bool good = false;
    arena_init(&small.arena, 1 << 20, over_limit, &small);
    diag_init(&small.diag, &small.arena, "test");
    if (setjmp(small.limit) == 0) {
        good = onnx_read_memory(&m, &small.arena, &small.diag, bytes, n);
        for (size_t i = 0; good && i < m.proto->graph->n_initializer; i++)
            onnx_tensor(&m.file, &small.arena, &small.diag, m.proto->graph->initializer[i], &t);
        assert_true(good || small.diag.n_errors == 1);
    }
    arena_free(&small.arena);
    return good;
}

/* Whatever is cut off or changed, reading ends with a result or with a message. */
static void test_truncation_and_noise(void **state) {
    Bench *b = *state;
    Text w = vector(b, DT_i4, 3);
    put_packed(b, &w, ONNX_FIELD_int32_data, 2, (int64_t[]){0x21, 0x03});
    Text bytes = model(b, &w);
    uint32_t random = 1;
    for (size_t round = 0; round < 20000; round++) {
        bool cut = round < bytes.length;
        size_t n = cut ? round : bytes.length;
        unsigned char *copy = malloc(n + !n); /* exact, so that a sanitizer sees any step beyond */
        assert_non_null(copy);
        memcpy(copy, text_get(&bytes), n);
        for (size_t k = 0; !cut && k < 1 + round % 3; k++) {
            random = random * 1664525 + 1013904223;
            copy[(random >> 8) % n] = (unsigned char)(random >> 24);
        }
        bool good = try_reading(copy, n);
        assert_false(cut && good);
        free(copy);
    }
    OnnxModel m;
    bytes.length -= 3;
    assert_false(read_text(b, &m, &bytes));
    expect_error(b, E1004, "the file ends early");
}

static void test_damage(void **state) {
    Bench *b = *state;
    static const struct {
        const char *bytes; /* of a GraphProto */
        size_t n;
        const char *part;
    } cases[] = {
        {"\x0a\x05\x0a\x09"
         "abc",
         7, "goes beyond the end of its NodeProto"},
        {"\x0a\x09"
         "abc",
         5, "goes beyond the end of its GraphProto"},
        {"\x0b\x0c", 2, "a group"},
        {"\x0e", 1, "an unknown wire type"},
        {"\x02\x00", 2, "an impossible field number"},
        {"\x08\x01", 2, "GraphProto.node at byte 4 has wire type 0, not 2"},
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "an endless number"},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "goes beyond"},
        {"\x0a\xff\xff\xff\xff\x7f", 6, "goes beyond"},
        {"\x2a\x03\x0a\x01\xff", 5, "an endless number"}, /* packed dims */
        {"\x0a\x06\x2a\x04\x3a\x02"
         "ab",
         8, "half a number"}, /* packed attribute.floats */
    };
    for (size_t i = 0; i < N(cases); i++) {
        Text t = text_new(&b->arena);
        put_int(&t, 1, 8);
        put_bytes(&t, 7, cases[i].bytes, cases[i].n);
        put_int(&t, 5, 0); /* so that the graph does not end where the file ends */
        OnnxModel m;
        assert_false(read_text(b, &m, &t));
        expect_error(b, E1005, cases[i].part);
    }
    Text bytes = model(b, NULL);
    put_bytes(&bytes, 7, "", 0);
    OnnxModel m;
    assert_false(read_text(b, &m, &bytes));
    expect_error(b, E1005, "a second copy");
}

static void test_zero_byte_in_string(void **state) {
    Bench *b = *state;
    Text t = text_new(&b->arena);
    put_bytes(&t, 2, "a\0b", 3);
    OnnxModel m;
    assert_false(read_text(b, &m, &t));
    expect_error(b, E1007, "ModelProto.producer_name at byte 0 has a zero byte");
}

/* Sub-graphs within sub-graphs: three messages each. */
static Text nested(Bench *b, int levels) {
    Text t = text_new(&b->arena);
    for (int i = 0; i < levels; i++) {
        Text attribute = text_new(&b->arena), node = text_new(&b->arena),
             graph = text_new(&b->arena);
        put_message(&attribute, 6, &t);
        put_message(&node, 5, &attribute);
        put_message(&graph, 1, &node);
        t = graph;
    }
    Text m = text_new(&b->arena);
    put_int(&m, 1, 2);
    put_message(&m, 7, &t);
    return m;
}

static void test_nesting(void **state) {
    Bench *b = *state;
    OnnxModel m;
    Text t = nested(b, 32);
    assert_true(read_text(b, &m, &t));
    t = nested(b, 33);
    assert_false(read_text(b, &m, &t));
    expect_error(b, E1006, "more than 100 messages within each other");
    t = nested(b, 5000);
    assert_false(read_text(b, &m, &t));
    expect_error(b, E1006, "more than 100 messages within each other");
}

/* Two bytes in the file become a hundred in memory: the arena's limit ends it. */
static void test_memory_limit(void **state) {
    Bench *b = *state;
    Text graph = text_new(&b->arena), t = text_new(&b->arena);
    for (int i = 0; i < 100000; i++) text_addn(&graph, "\x0a\x00", 2);
    put_int(&t, 1, 2);
    put_message(&t, 7, &graph);
    Bench small;
    arena_init(&small.arena, 8 << 20, over_limit, &small);
    diag_init(&small.diag, &small.arena, "test");
    OnnxModel m;
    bool limited = setjmp(small.limit) != 0;
    if (!limited) read_text(&small, &m, &t);
    assert_true(limited);
    onnx_close(&m.file); /* may be called after the jump */
    arena_free(&small.arena);
    assert_true(read_text(b, &m, &t));
    assert_int_equal(m.proto->graph->n_node, 100000);
}

static void test_other_formats(void **state) {
    Bench *b = *state;
    static const struct {
        const char *bytes;
        size_t n;
        ErrCode code;
        const char *part;
    } cases[] = {
        {"", 0, E1001, "empty"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", 56, E1003, "git lfs pull"},
        {"\x89PNG\r\n\x1a\n", 8, E1002, "PNG"},
        {"\xff\xd8\xff\xe0", 4, E1002, "JPEG"},
        {"PK\x03\x04zip", 7, E1002, "PyTorch"},
        {"\x1f\x8b\x08\x00", 4, E1002, "gzip"},
        {"\x89HDF\r\n\x1a\n", 8, E1002, "HDF5"},
        {"\x1c\x00\x00\x00TFL3", 8, E1002, "TensorFlow Lite"},
        {"\x1c\x00\x00\x00ORTM", 8, E1002, "ORT"},
        {"\x7f"
         "ELF\2\1\1",
         7, E1002, "ELF"},
        {"\x80\x02}q\x00", 5, E1002, "pickle"},
        {"{\"a\": 1}", 8, E1002, "JSON"},
        {"<!DOCTYPE html>", 15, E1002, "web page"},
        {"<?xml version='1.0'?>", 21, E1002, "XML"},
        {"hello\n", 6, E1002, "text"},
        {"\x02\0\0\0\0\0\0\0{}", 10, E1002, "safetensors"},
        {"\xfa\x01\x02", 3, E1002, "byte 0 (0xfa) begins no field"},
        {"\x00\x00\x00\x00", 4, E1002, "byte 0 (0x00) begins no field"},
    };
    OnnxModel m;
    for (size_t i = 0; i < N(cases); i++) {
        assert_false(onnx_read_memory(&m, &b->arena, &b->diag, cases[i].bytes, cases[i].n));
        expect_error(b, cases[i].code, cases[i].part);
        const char *path = put_file(b, "m.onnx", cases[i].bytes, cases[i].n);
        assert_false(onnx_read(&m, &b->arena, &b->diag, path));
        expect_error(b, cases[i].code, cases[i].part);
        onnx_close(&m.file);
    }
    assert_false(onnx_read(&m, &b->arena, &b->diag, b->folder));
    expect_error(b, E0002, "it is a folder, not a file");
    assert_false(onnx_read(&m, &b->arena, &b->diag, "/nonexistent/m.onnx"));
    expect_error(b, E0002, "No such file");
    assert_false(onnx_read(&m, &b->arena, &b->diag, "/dev/zero"));
    expect_error(b, E0002, "not a regular file");
    /* a producer whose name looks like another format's mark */
    Text t = text_new(&b->arena);
    put_int(&t, 1, 2);
    put_string(&t, 2, "TFL3");
    put_bytes(&t, 7, "", 0);
    assert_true(read_text(b, &m, &t));
}

/* A tensor of 256 MB, aligned and not, is taken from the map as it is. */
static void test_large_tensor_in_place(void **state) {
    Bench *b = *state;
    const size_t size = (size_t)256 << 20;
    for (int shift = 0; shift < 4; shift++) {
        Text prefix = text_new(&b->arena), head = vector(b, DT_f32, (int64_t)(size / 4));
        put_string(&head, 12, &"xxx"[shift]);
        put_tag(&head, ONNX_FIELD_raw_data, WIRE_bytes);
        put_varint(&head, size);
        Text graph = text_new(&b->arena);
        put_tag(&graph, 5, WIRE_bytes);
        put_varint(&graph, head.length + size);
        put_int(&prefix, 1, 2);
        put_tag(&prefix, 7, WIRE_bytes);
        put_varint(&prefix, graph.length + head.length + size);
        text_addn(&prefix, text_get(&graph), graph.length);
        text_addn(&prefix, text_get(&head), head.length);
        const char *path = write_text(b, "large.onnx", &prefix);
        assert_int_equal(truncate(path, (off_t)(prefix.length + size)), 0);

        size_t used = b->arena.used;
        OnnxModel m;
        OnnxTensor t;
        assert_true(onnx_read(&m, &b->arena, &b->diag, path));
        assert_true(onnx_tensor(&m.file, &b->arena, &b->diag, m.proto->graph->initializer[0], &t));
        assert_true(b->arena.used - used < 1 << 20);
        assert_ptr_equal(t.data, m.file.data + prefix.length);
        assert_int_equal(t.aligned, prefix.length % 4 == 0);
        assert_true(dt_load(DT_f32, t.data, size / 4 - 1).f == 0);
        onnx_close(&m.file);
    }
}

/* --- external data ---------------------------------------------------------------------------- */

static Text external(Bench *b, const char *location, const char *offset, const char *length) {
    Text t = vector(b, DT_i32, 2);
    if (location) put_external(b, &t, "location", location);
    if (offset) put_external(b, &t, "offset", offset);
    if (length) put_external(b, &t, "length", length);
    put_int(&t, 14, 1);
    return t;
}

/* Reads FOLDER/`name` (written before if it is "m.onnx") and decodes its initializer; the values
 * expected are 1, 2. */
static bool read_external(Bench *b, const char *name, const Text *t) {
    Text bytes = model(b, t);
    if (strcmp(name, "m.onnx") == 0) write_text(b, name, &bytes);
    OnnxModel m;
    OnnxTensor out;
    const char *path = arena_printf(&b->arena, "%s/%s", b->folder, name);
    bool good = onnx_read(&m, &b->arena, &b->diag, path) &&
                onnx_tensor(&m.file, &b->arena, &b->diag, m.proto->graph->initializer[0], &out) &&
                onnx_tensor(&m.file, &b->arena, &b->diag, m.proto->graph->initializer[0], &out);
    if (good) assert_memory_equal(out.data, "\1\0\0\0\2\0\0\0", 8);
    onnx_close(&m.file);
    return good;
}

static void test_external_data(void **state) {
    Bench *b = *state;
    put_file(b, "w.bin", "----\1\0\0\0\2\0\0\0++", 14);
    put_file(b, "empty.bin", "", 0);
    mkdir(arena_printf(&b->arena, "%s/sub", b->folder), 0700);
    put_file(b, "sub/w.bin", "\1\0\0\0\2\0\0\0", 8);
    static const struct {
        const char *location, *offset, *length;
        ErrCode code; /* 0: good */
        const char *part;
    } cases[] = {
        {"w.bin", "4", "8", 0, NULL},
        {"./w.bin", "4", NULL, 0, NULL},
        {"sub/../w.bin", "4", "8", 0, NULL},
        {"sub/w.bin", NULL, NULL, 0, NULL},
        {"w.bin", "4", "7", E1103, "w.bin has 7 bytes, but 2 elements of i32 need 8"},
        {"w.bin", "7", "8", E1204, "8 bytes at offset 7 reach beyond the end of 'w.bin'"},
        {"w.bin", "18446744073709551615", "8", E1204, "beyond"},
        {"w.bin", "99999999999999999999", "8", E1201, "no number"},
        {"w.bin", "-1", "8", E1201, "offset '-1', which is no number"},
        {"empty.bin", "0", "8", E1204, "beyond"},
        {NULL, "0", "8", E1201, "tensor 'w': external_data names no location"},
        {"missing.bin", NULL, NULL, E1203, "No such file"},
        {"sub", NULL, NULL, E1203, "it is a folder"},
        {"/etc/passwd", NULL, NULL, E1202, "outside"},
        {"../w.bin", NULL, NULL, E1202, "outside"},
        {"sub/../../w.bin", NULL, NULL, E1202, "outside"},
        {"sub//./..//../w.bin", NULL, NULL, E1202, "outside"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        Text t = external(b, cases[i].location, cases[i].offset, cases[i].length);
        assert_int_equal(read_external(b, "m.onnx", &t), cases[i].code == 0);
        if (cases[i].code) expect_error(b, cases[i].code, cases[i].part);
    }
    Text t = external(b, "w.bin", "4", "8");
    put_bytes(&t, ONNX_FIELD_raw_data, "12345678", 8);
    assert_false(read_external(b, "m.onnx", &t));
    expect_error(b, E1104, "external_data and raw_data");
    t = external(b, "w.bin", "4", "8");
    OnnxTensor out;
    assert_false(decode(b, &t, &out));
    expect_error(b, E1203, "not opened: the model has no folder");
}

static void make_link(Bench *b, const char *target, const char *name) {
    assert_int_equal(symlink(target, arena_printf(&b->arena, "%s/%s", b->folder, name)), 0);
}

static void make_folder(Bench *b, const char *name) {
    assert_int_equal(mkdir(arena_printf(&b->arena, "%s/%s", b->folder, name), 0700), 0);
}

static void test_external_links(void **state) {
    Bench *b = *state;
    make_folder(b, "blobs");
    make_folder(b, "snapshot");
    make_folder(b, "other");
    Text t = external(b, "m.onnx_data", NULL, NULL), bytes = model(b, &t);
    put_file(b, "blobs/d1", "\1\0\0\0\2\0\0\0", 8);
    write_text(b, "blobs/m1", &bytes);
    make_link(b, "../blobs/d1", "snapshot/m.onnx_data");
    make_link(b, "../blobs/m1", "snapshot/m.onnx");
    /* a download cache: both are links into one folder */
    assert_true(read_external(b, "snapshot/m.onnx", &t));
    /* the model lies here, its data are a link to elsewhere */
    write_text(b, "other/m.onnx", &bytes);
    make_link(b, "../blobs/d1", "other/m.onnx_data");
    assert_false(read_external(b, "other/m.onnx", &t));
    expect_error(b, E1202, "a link to");
    /* a folder that is a link leads out as well */
    make_link(b, "../blobs", "other/sub");
    t = external(b, "sub/d1", NULL, NULL);
    bytes = model(b, &t);
    write_text(b, "other/m.onnx", &bytes);
    assert_false(read_external(b, "other/m.onnx", &t));
    expect_error(b, E1202, "a link to");
    /* a link that stays within the folder, and the folder itself named by a link */
    put_file(b, "other/d", "\1\0\0\0\2\0\0\0", 8);
    make_link(b, "d", "other/link");
    t = external(b, "link", NULL, NULL);
    bytes = model(b, &t);
    write_text(b, "other/m.onnx", &bytes);
    assert_true(read_external(b, "other/m.onnx", &t));
    make_link(b, "other", "alias");
    assert_true(read_external(b, "alias/m.onnx", &t));
    /* a pipe does not keep us waiting */
    assert_int_equal(mkfifo(arena_printf(&b->arena, "%s/pipe", b->folder), 0600), 0);
    t = external(b, "pipe", NULL, NULL);
    assert_false(read_external(b, "m.onnx", &t));
    expect_error(b, E1203, "not a regular file");
}

/* --- test data -------------------------------------------------------------------------------- */

static void test_data_files(void **state) {
    Bench *b = *state;
    Text t = vector(b, DT_u8, 2), sequence = text_new(&b->arena), optional = text_new(&b->arena);
    put_bytes(&t, ONNX_FIELD_raw_data, "ab", 2);
    put_int(&sequence, 2, 1);
    put_message(&sequence, 3, &t);
    put_message(&sequence, 3, &t);
    put_int(&optional, 2, 3);
    put_message(&optional, 5, &sequence);
    OnnxData data;
    OnnxTensor out;
    assert_true(
        onnx_read_data(&data, &b->arena, &b->diag, ONNX_DATA_tensor, write_text(b, "t.pb", &t)));
    assert_true(onnx_tensor(&data.file, &b->arena, &b->diag, data.tensor, &out));
    assert_memory_equal(out.data, "ab", 2);
    onnx_close(&data.file);
    assert_true(onnx_read_data(&data, &b->arena, &b->diag, ONNX_DATA_sequence,
                               write_text(b, "s.pb", &sequence)));
    assert_int_equal(data.sequence->n_tensor_values, 2);
    onnx_close(&data.file);
    assert_true(onnx_read_data(&data, &b->arena, &b->diag, ONNX_DATA_optional,
                               write_text(b, "o.pb", &optional)));
    const Onnx__SequenceProto *inner = data.optional->sequence_value;
    assert_true(onnx_tensor(&data.file, &b->arena, &b->diag, inner->tensor_values[1], &out));
    assert_memory_equal(out.data, "ab", 2);
    onnx_close(&data.file);
    assert_true(onnx_read_data_memory(&data, &b->arena, &b->diag, ONNX_DATA_sequence, "", 0));
    assert_false(onnx_read_data_memory(&data, &b->arena, &b->diag, ONNX_DATA_tensor, "", 0));
    expect_error(b, E1001, "empty");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        TEST(test_model),         TEST(test_incomplete_models),   TEST(test_truncation_and_noise),
        TEST(test_damage),        TEST(test_zero_byte_in_string), TEST(test_nesting),
        TEST(test_memory_limit),  TEST(test_other_formats),       TEST(test_large_tensor_in_place),
        TEST(test_external_data), TEST(test_external_links),      TEST(test_data_files),
    };
    return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
