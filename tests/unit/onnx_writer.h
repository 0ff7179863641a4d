/* For tests of the ONNX reader and importer: an arena with diagnostics and a folder of its own, and
 * a small protobuf writer, so that wrong models are as easy to make as right ones. */
#ifndef TESTS_ONNX_WRITER_H
#define TESTS_ONNX_WRITER_H

#include "compiler/onnx/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N(array) (sizeof(array) / sizeof *(array))

/* --- one test's surroundings ------------------------------------------------------------------ */

typedef struct Bench {
    Arena arena;
    Diag diag;
    jmp_buf limit;
    char folder[64];
} Bench;

static inline void over_limit(void *user, size_t wanted, bool refused) {
    (void)refused;
    (void)wanted;
    longjmp(((Bench *)user)->limit, 1);
}

static inline int set_up(void **state) {
    Bench *b = calloc(1, sizeof *b);
    if (!b) return -1;
    arena_init(&b->arena, 0, over_limit, b);
    diag_init(&b->diag, &b->arena, "test");
    snprintf(b->folder, sizeof b->folder, P_tmpdir "/test_reader.XXXXXX");
    *state = b;
    return mkdtemp(b->folder) ? 0 : -1;
}

static inline int tear_down(void **state) {
    Bench *b = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", b->folder);
    int status = system(command);
    arena_free(&b->arena);
    free(b);
    return status;
}

static inline void forget(Bench *b) {
    diag_init(&b->diag, &b->arena, "test");
}

/* Exactly one message was given: this code, with `part` in its text. Forgets it. */
static inline void expect_error_(Bench *b, ErrCode code, const char *part, const char *file,
                                 int line) {
    bool good = b->diag.messages.n == 1 && b->diag.messages.items[0].code == code &&
                strstr(b->diag.messages.items[0].text, part);
    if (!good) {
        print_error("wanted E%04d '%s'\n", (int)code, part);
        for (int i = 0; i < b->diag.messages.n; i++)
            print_error("have   E%04d '%s'\n", (int)b->diag.messages.items[i].code,
                        b->diag.messages.items[i].text);
    }
    _assert_true(good, "message", file, line);
    forget(b);
}
#define expect_error(b, code, part) expect_error_((b), (code), (part), __FILE__, __LINE__)

/* --- a protobuf writer ------------------------------------------------------------------------ */

static inline void put_varint(Text *t, uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_addn(t, &(char){(char)(value | 0x80)}, 1);
    text_addn(t, &(char){(char)value}, 1);
}

static inline void put_tag(Text *t, unsigned field, int wire) {
    put_varint(t, (uint64_t)field << 3 | (unsigned)wire);
}

static inline void put_int(Text *t, unsigned field, int64_t value) {
    put_tag(t, field, WIRE_varint);
    put_varint(t, (uint64_t)value);
}

static inline void put_bytes(Text *t, unsigned field, const void *data, size_t n) {
    put_tag(t, field, WIRE_bytes);
    put_varint(t, n);
    text_addn(t, data, n);
}

static inline void put_string(Text *t, unsigned field, const char *string) {
    put_bytes(t, field, string, strlen(string));
}

static inline void put_message(Text *t, unsigned field, const Text *message) {
    put_bytes(t, field, text_get(message), message->length);
}

/* A packed field of varints. */
static inline void put_packed(Bench *b, Text *t, unsigned field, size_t n, const int64_t *values) {
    Text packed = text_new(&b->arena);
    for (size_t i = 0; i < n; i++) put_varint(&packed, (uint64_t)values[i]);
    put_message(t, field, &packed);
}

static inline Text tensor(Bench *b, const char *name, DType dt, int rank, const int64_t *dims) {
    Text t = text_new(&b->arena);
    for (int i = 0; i < rank; i++) put_int(&t, 1, dims[i]);
    put_int(&t, 2, dt_onnx(dt));
    put_string(&t, 8, name);
    return t;
}

static inline Text vector(Bench *b, DType dt, int64_t n) {
    return tensor(b, "w", dt, 1, &n);
}

static inline void put_external(Bench *b, Text *t, const char *key, const char *value) {
    Text entry = text_new(&b->arena);
    put_string(&entry, 1, key);
    put_string(&entry, 2, value);
    put_message(t, 13, &entry);
}

/* A model whose graph has these initializers (NULL: none) and one Relu. */
static inline Text model(Bench *b, const Text *initializer) {
    Text node = text_new(&b->arena), graph = text_new(&b->arena), opset = text_new(&b->arena);
    put_string(&node, 1, "x");
    put_string(&node, 2, "y");
    put_string(&node, 4, "Relu");
    put_message(&graph, 1, &node);
    put_string(&graph, 2, "main");
    if (initializer) put_message(&graph, 5, initializer);
    put_string(&opset, 1, "");
    put_int(&opset, 2, 17);
    Text m = text_new(&b->arena);
    put_int(&m, 1, 8);
    put_string(&m, 2, "test");
    put_message(&m, 7, &graph);
    put_message(&m, 8, &opset);
    return m;
}

static inline bool read_text(Bench *b, OnnxModel *m, const Text *bytes) {
    return onnx_read_memory(m, &b->arena, &b->diag, text_get(bytes), bytes->length);
}

/* Reads and decodes one tensor from memory. */
static inline bool decode(Bench *b, const Text *bytes, OnnxTensor *out) {
    OnnxData data;
    return onnx_read_data_memory(&data, &b->arena, &b->diag, ONNX_DATA_tensor, text_get(bytes),
                                 bytes->length) &&
           onnx_tensor(&data.file, &b->arena, &b->diag, data.tensor, out);
}

static inline const char *put_file(Bench *b, const char *name, const void *data, size_t n) {
    const char *path = arena_printf(&b->arena, "%s/%s", b->folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(n ? fwrite(data, 1, n, f) : 0, n);
    fclose(f);
    return path;
}

static inline const char *write_text(Bench *b, const char *name, const Text *bytes) {
    return put_file(b, name, text_get(bytes), bytes->length);
}

#endif
