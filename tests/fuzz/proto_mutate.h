/* Mutations of an ONNX model that keep it a well-formed message, so that the fuzzer reaches what
 * lies behind the reader: fields are taken out, doubled, swapped, copied from elsewhere; numbers
 * become extreme ones, names other names of the model, operators other operators. */
#ifndef TESTS_FUZZ_PROTO_MUTATE_H
#define TESTS_FUZZ_PROTO_MUTATE_H

#include "ir/arena.h"
#include "onnx.pb-c.h"

#include <stdbool.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b,
                                 uint8_t *out, size_t max_size, unsigned seed);

#define MUTATE_DEPTH 40
#define MUTATE_MAX_BYTES ((size_t)1 << 20)

typedef struct Message Message;

typedef struct Field {
    unsigned number;
    int wire;             /* protobuf's wire type */
    uint64_t value;       /* of a varint */
    const uint8_t *bytes; /* of anything else but a message */
    size_t n;
    Message *sub; /* a message */
} Field;

struct Message {
    const ProtobufCMessageDescriptor *type;
    VEC(Field) fields;
};

typedef struct Mutator {
    Arena arena;
    uint32_t random;
    size_t written;          /* bytes put so far */
    VEC(Message *) messages; /* all there are, also of the second model in a cross-over */
    VEC(Field *) names;      /* all strings */
} Mutator;

static uint32_t mutate_below(Mutator *m, uint32_t n) {
    m->random = m->random * 1664525 + 1013904223;
    return n ? (m->random >> 8) % n : 0;
}

/* --- reading and writing ----------------------------------------------------------------------*/

static bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 70 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static Message *get_message(Mutator *m, const ProtobufCMessageDescriptor *type, const uint8_t *at,
                            const uint8_t *end, int depth) {
    Message *msg = ARENA_NEW(&m->arena, Message);
    msg->type = type;
    vec_push(&m->arena, &m->messages, msg);
    while (at < end) {
        uint64_t tag, length = 0;
        if (!get_varint(&at, end, &tag) || tag >> 3 == 0 || tag >> 3 > 0xffff) return NULL;
        Field f = {.number = (unsigned)(tag >> 3), .wire = (int)(tag & 7)};
        if (f.wire == 0) {
            if (!get_varint(&at, end, &f.value)) return NULL;
        } else {
            length = f.wire == 1 ? 8 : 4;
            if (f.wire == 2 && !get_varint(&at, end, &length)) return NULL;
            if (f.wire == 3 || f.wire == 4 || f.wire > 5 || length > (size_t)(end - at))
                return NULL;
            f.bytes = at;
            f.n = (size_t)length;
            at += length;
        }
        const ProtobufCFieldDescriptor *d = protobuf_c_message_descriptor_get_field(type, f.number);
        if (d && d->type == PROTOBUF_C_TYPE_MESSAGE && f.wire == 2 && depth < MUTATE_DEPTH) {
            f.sub = get_message(m, d->descriptor, f.bytes, f.bytes + f.n, depth + 1);
            if (!f.sub) return NULL;
        }
        vec_push(&m->arena, &msg->fields, f);
    }
    return msg;
}

static void put_varint(Text *t, uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_addn(t, &(char){(char)(value | 0x80)}, 1);
    text_addn(t, &(char){(char)value}, 1);
}

/* Mutations hang one message into several places, itself included: what is written is bounded. */
static void put_fields(Mutator *m, Text *t, const Message *msg, int depth) {
    for (int i = 0; i < msg->fields.n && m->written < MUTATE_MAX_BYTES; i++) {
        const Field *f = &msg->fields.items[i];
        m->written += f->n + 8;
        put_varint(t, (uint64_t)f->number << 3 | (uint64_t)f->wire);
        if (f->wire == 0) {
            put_varint(t, f->value);
            continue;
        }
        Text inner = text_new(&m->arena);
        if (f->sub && depth < 2 * MUTATE_DEPTH)
            put_fields(m, &inner, f->sub, depth + 1);
        else if (!f->sub)
            text_addn(&inner, (const char *)f->bytes, f->n);
        if (f->wire == 2) put_varint(t, inner.length);
        text_addn(t, text_get(&inner), inner.length);
    }
}

/* --- mutations --------------------------------------------------------------------------------*/

static const ProtobufCFieldDescriptor *described(const Message *msg, const Field *f) {
    return protobuf_c_message_descriptor_get_field(msg->type, f->number);
}

static bool is_string(const Message *msg, const Field *f) {
    const ProtobufCFieldDescriptor *d = described(msg, f);
    return d && d->type == PROTOBUF_C_TYPE_STRING && f->wire == 2;
}

static void set_bytes(Field *f, const void *bytes, size_t n) {
    f->bytes = bytes;
    f->n = n;
}

static void mutate_number(Mutator *m, Field *f) {
    static const int64_t extreme[] = {0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      -1,
                                      -2,
                                      7,
                                      8,
                                      16,
                                      17,
                                      255,
                                      65536,
                                      1 << 30,
                                      INT32_MAX,
                                      INT32_MIN,
                                      INT64_MAX,
                                      INT64_MIN,
                                      (int64_t)1 << 32,
                                      (int64_t)1 << 62};
    uint32_t n = sizeof extreme / sizeof *extreme, k = mutate_below(m, n + 4);
    f->value = k < n ? (uint64_t)extreme[k] : f->value + mutate_below(m, 5) - 2;
}

static void mutate_string(Mutator *m, const Message *msg, Field *f) {
    static const char *const operators[] = {
#define OP(domain, name, since, fn) name,
#include "compiler/onnx/ops.def"
#undef OP
#define ELEMENTWISE(name, since, inputs, types, attrs, formula) #name,
#include "compiler/onnx/elementwise.def"
#undef ELEMENTWISE
    };
    bool op_type = msg->type == &onnx__node_proto__descriptor && f->number == 4;
    if (op_type && mutate_below(m, 4)) {
        const char *name = operators[mutate_below(m, sizeof operators / sizeof *operators)];
        set_bytes(f, name, strlen(name));
    } else if (m->names.n && mutate_below(m, 8)) {
        const Field *other = m->names.items[mutate_below(m, (uint32_t)m->names.n)];
        set_bytes(f, other->bytes, other->n);
    } else {
        set_bytes(f, "", 0);
    }
}

static void mutate_bytes(Mutator *m, Field *f) {
    size_t room = f->n + 16;
    uint8_t *copy = arena_alloc(&m->arena, room);
    if (f->n) memcpy(copy, f->bytes, f->n);
    set_bytes(f, copy, f->wire == 2 ? LLVMFuzzerMutate(copy, f->n, room) : f->n);
    if (f->wire != 2) LLVMFuzzerMutate(copy, f->n, f->n);
}

/* A random field of a message of this type; number 0: any. NULL if chance finds none. */
static const Field *find_alike(Mutator *m, const Message *like, unsigned number) {
    for (int tries = 0; tries < 30; tries++) {
        const Message *other = m->messages.items[mutate_below(m, (uint32_t)m->messages.n)];
        if (other->type != like->type || !other->fields.n) continue;
        const Field *f = &other->fields.items[mutate_below(m, (uint32_t)other->fields.n)];
        if (!number || f->number == number) return f;
    }
    return NULL;
}

static void remove_field(Message *msg, int i) {
    memmove(&msg->fields.items[i], &msg->fields.items[i + 1],
            (size_t)(msg->fields.n - i - 1) * sizeof(Field));
    msg->fields.n--;
}

static void mutate_once(Mutator *m) {
    Message *msg = m->messages.items[mutate_below(m, (uint32_t)m->messages.n)];
    const Field *alike;
    Field copy;
    if (!msg->fields.n) {
        if ((alike = find_alike(m, msg, 0))) {
            copy = *alike;
            vec_push(&m->arena, &msg->fields, copy);
        }
        return;
    }
    int i = (int)mutate_below(m, (uint32_t)msg->fields.n);
    Field *f = &msg->fields.items[i];
    switch (mutate_below(m, 12)) {
    case 0:
        remove_field(msg, i);
        return;
    case 1:
        copy = *f;
        vec_push(&m->arena, &msg->fields, copy);
        return;
    case 2: {
        Field *g = &msg->fields.items[mutate_below(m, (uint32_t)msg->fields.n)];
        copy = *f, *f = *g, *g = copy;
        return;
    }
    case 3:
        if ((alike = find_alike(m, msg, 0))) {
            copy = *alike;
            vec_push(&m->arena, &msg->fields, copy);
        }
        return;
    case 4:
        if ((alike = find_alike(m, msg, f->number))) *f = *alike;
        return;
    default:
        break;
    }
    if (f->wire == 0)
        mutate_number(m, f);
    else if (is_string(msg, f))
        mutate_string(m, msg, f);
    else if (!f->sub)
        mutate_bytes(m, f);
}

static void collect_names(Mutator *m) {
    for (int i = 0; i < m->messages.n; i++) {
        Message *msg = m->messages.items[i];
        for (int k = 0; k < msg->fields.n; k++)
            if (is_string(msg, &msg->fields.items[k])) {
                Field *copy = arena_copy(&m->arena, &msg->fields.items[k], sizeof(Field));
                vec_push(&m->arena, &m->names, copy);
            }
    }
}

/* Reads both models (b may be empty) and writes a mutation of the first; 0 if they cannot be read.
 */
static size_t mutate(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b, uint8_t *out,
                     size_t max_size, unsigned seed) {
    Mutator m = {.random = seed * 2654435761u + 12345};
    arena_init(&m.arena, 0, NULL, NULL);
    const ProtobufCMessageDescriptor *type = &onnx__model_proto__descriptor;
    const uint8_t *copy = arena_copy(&m.arena, a, n_a + !n_a), *end = copy + n_a;
    Message *top = get_message(&m, type, copy, end, 0);
    if (top && n_b && !get_message(&m, type, b, b + n_b, 0)) top = NULL;
    size_t size = 0;
    if (top) {
        collect_names(&m);
        for (uint32_t n = 1 + mutate_below(&m, 4); n > 0; n--) mutate_once(&m);
        Text t = text_new(&m.arena);
        put_fields(&m, &t, top, 0);
        size = t.length <= max_size ? t.length : 0;
        if (size) memcpy(out, text_get(&t), size);
    }
    arena_free(&m.arena);
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    size_t n = seed % 16 ? mutate(data, size, NULL, 0, data, max_size, seed) : 0;
    return n ? n : LLVMFuzzerMutate(data, size, max_size);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b,
                                 uint8_t *out, size_t max_size, unsigned seed) {
    return mutate(a, n_a, b, n_b, out, max_size, seed);
}

#endif
