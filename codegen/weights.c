/* Constants as text and as bytes.
 *
 * Small tensors are printed as numbers that a person can read. Large ones are string literals of
 * their bytes: of the forms that C99 allows, compilers read it fastest (3.5 million floats: gcc 12
 * takes 1 s and 225 MB, against 10 s and 725 MB for a list of hexadecimal words). No literal may
 * have more than 4095 characters, so the bytes are rows of an array, and a union gives them the
 * type.
 */
#include "codegen/host.h"
#include "ir/constant.h"

#include <stdio.h>
#include <string.h>

#define READABLE_BYTES ((size_t)16 << 10)
#define ROW_BYTES      4080
#define PIECE_ROWS     256
#define LINE_WIDTH     96

bool weights_write(const Program *p, WeightsSink *sink, void *user) {
    static const unsigned char zeros[4096];
    int64_t at = 0;
    for (int i = 0; i <= p->weights.n; i++) {
        int64_t next = i < p->weights.n ? p->weight_offset.items[i] : p->weight_bytes;
        for (int64_t n; at < next; at += n) {
            n = next - at < (int64_t)sizeof zeros ? next - at : (int64_t)sizeof zeros;
            if (!sink(user, zeros, (size_t)n)) return false;
        }
        if (i == p->weights.n) break;
        ConstantPieces c = constant_pieces(p->arena, p->weights.items[i], CONSTANT_PIECE);
        while (constant_next(&c))
            if (!sink(user, c.data, c.bytes)) return false;
        at += (int64_t)c.at;
    }
    return true;
}

static bool append_bytes(void *user, const void *data, size_t bytes) {
    unsigned char **to = user;
    memcpy(*to, data, bytes);
    *to += bytes;
    return true;
}

const void *weights_block(const Program *p, size_t *bytes) {
    *bytes = (size_t)p->weight_bytes;
    if (!*bytes) return NULL;
    unsigned char *block = arena_alloc(p->arena, *bytes), *at = block;
    weights_write(p, append_bytes, &at);
    return block;
}

static bool digest_bytes(void *user, const void *data, size_t bytes) {
    uint64_t *digest = user;
    *digest = fnv1a(data, bytes, *digest);
    return true;
}

uint64_t weights_digest(const Program *p, const EmitOptions *o) {
    if (o && o->weights_digest) return *o->weights_digest;
    uint64_t digest = FNV_SEED;
    weights_write(p, digest_bytes, &digest);
    return digest;
}

void weights_mark(uint64_t digest, unsigned char mark[WEIGHTS_MARK]) {
    memcpy(mark, "MLCCWTS2", 8);
    for (int i = 0; i < 8; i++) mark[8 + i] = (unsigned char)(digest >> (8 * i));
}

/* On x86-64 linkers put .lrodata behind all else: code and data stay near each other whatever its
 * size is, and its beginning near them. Elsewhere it is a section like others. */
void emit_weights_asm(const Program *p, const char *symbol, const char *path, int alignment,
                      Text *out) {
    text_add(out, "/* Constants of the model, taken in as they are. */\n");
    text_addf(out, "    .section .lrodata, \"a\", %%progbits\n    .balign %d\n", alignment);
    if (symbol)
        text_addf(
            out, "    .globl %s\n    .hidden %s\n    .type %s, %%object\n    .size %s, %lld\n%s:\n",
            symbol, symbol, symbol, symbol, (long long)p->weight_bytes, symbol);
    text_add(out, "    .incbin \"");
    for (; *path; path++) {
        if (*path == '"' || *path == '\\') text_add(out, "\\");
        text_addn(out, path, 1);
    }
    text_add(out, "\"\n    .section .note.GNU-stack, \"\", %progbits\n");
}

/* A byte inside of a string literal. */
typedef struct Escaped {
    char text[4];
    size_t n;
} Escaped;

/* before_digit: a digit follows, which a shorter escape would swallow. */
static Escaped escape_byte(unsigned byte, bool before_digit) {
    Escaped e = {.text = {(char)byte}, .n = 1};
    if (byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\' && byte != '?') return e;
    e.text[0] = '\\';
    if (before_digit || byte >= 0100) e.text[e.n++] = (char)('0' + (byte >> 6));
    if (before_digit || byte >= 010) e.text[e.n++] = (char)('0' + (byte >> 3 & 7));
    e.text[e.n++] = (char)('0' + (byte & 7));
    return e;
}

static bool is_octal(unsigned byte) {
    return byte >= '0' && byte <= '7';
}

void print_bytes(Text *out, const void *data, size_t bytes, bool more) {
    const unsigned char *at = data;
    char line[LINE_WIDTH + 16];
    Escaped escaped[2][256];
    for (unsigned i = 0; i < 512; i++) escaped[i / 256][i % 256] = escape_byte(i % 256, i / 256);
    for (size_t row = 0; row < bytes; row += ROW_BYTES) {
        size_t end = bytes - row < ROW_BYTES ? bytes : row + ROW_BYTES;
        for (size_t i = row; i < end;) {
            size_t n = 0;
            line[n++] = '"';
            for (; i < end && n < LINE_WIDTH; i++) {
                const Escaped *e = &escaped[i + 1 < end && is_octal(at[i + 1])][at[i]];
                memcpy(line + n, e->text, sizeof e->text);
                n += e->n;
            }
            line[n++] = '"';
            if (i == end && (more || end < bytes)) line[n++] = ',';
            line[n++] = '\n';
            text_addn(out, line, n);
        }
    }
}

void print_bytes_type(Text *out, size_t bytes) {
    text_addf(out, "unsigned char bytes[%zu][%d]", (bytes + ROW_BYTES - 1) / ROW_BYTES, ROW_BYTES);
}

bool weights_readable(const Value *v) {
    return value_bytes(v) <= READABLE_BYTES;
}

static const char *element_text(Unit *unit, DType dt, const void *data, size_t i) {
    if (dt_is_float(dt) && dt_is_narrow(dt)) {
        uint16_t half;
        if (dt_store(dt) == 1)
            return arena_printf(unit->arena, "0x%02x", ((const uint8_t *)data)[i]);
        memcpy(&half, (const uint8_t *)data + i * sizeof half, sizeof half);
        return arena_printf(unit->arena, "0x%04x", half);
    }
    Scalar value = dt_load(dt, data, i);
    if (dt == DT_bool) return value.i ? "1" : "0";
    return print_number(unit, dt, value);
}

/* Vectors of a constant should not cross lines of a cache. */
static const char *alignment(const Unit *unit, const Value *v) {
    if (!unit->vector_bytes || value_bytes(v) < (size_t)unit->vector_bytes) return "";
    return arena_printf(unit->arena, " __attribute__((aligned(%d)))", unit->vector_bytes);
}

void print_array(Unit *unit, const Value *v, const char *name, Text *out) {
    size_t n = (size_t)value_numel(v);
    const char *type = mem_type(unit, v->dt);
    const void *data = constant_data(out->arena, v);
    text_addf(out, "static const %s %s[%zu]%s = {", type, name, n ? n : 1, alignment(unit, v));
    size_t column = 100; /* begin a line */
    if (n == 0) text_add(out, "0");
    for (size_t i = 0; i < n; i++) {
        const char *text = element_text(unit, v->dt, data, i);
        if (column + strlen(text) + 2 > LINE_WIDTH) {
            text_add(out, "\n   ");
            column = 3;
        }
        text_addf(out, " %s%s", text, i + 1 < n ? "," : "");
        column += strlen(text) + 2;
    }
    text_add(out, n ? "\n};\n" : "};\n");
}

void print_large(Unit *unit, const Value *v, const char *name, Text *out) {
    text_add(out, "static const union {\n    ");
    print_bytes_type(out, value_bytes(v));
    text_addf(out, ";\n    %s v[%lld];\n} %s%s = {{\n", mem_type(unit, v->dt),
              (long long)value_numel(v), name, alignment(unit, v));
    ConstantPieces c = constant_pieces(out->arena, v, PIECE_ROWS * ROW_BYTES);
    while (constant_next(&c)) print_bytes(out, c.data, c.bytes, c.at < value_bytes(v));
    text_add(out, "}};\n");
}

void print_bytes_guard(Text *out, bool begin) {
    if (!begin) {
        text_add(out, "#ifdef MLCC_QUIET_ROWS\n#pragma GCC diagnostic pop\n#endif\n\n");
        return;
    }
    text_add(
        out,
        "/* Large constants are the bytes of their elements, least significant first. Each row of "
        "an\n * array is full, without a zero at its end, of which newer compilers warn. */\n"
        "#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n"
        "#error \"the constants below are for little-endian machines\"\n"
        "#endif\n"
        "#if defined(__clang__) ? __clang_major__ >= 20 : defined(__GNUC__) && __GNUC__ >= 15\n"
        "#define MLCC_QUIET_ROWS\n"
        "#pragma GCC diagnostic push\n"
        "#pragma GCC diagnostic ignored \"-Wunterminated-string-initialization\"\n"
        "#endif\n");
}
