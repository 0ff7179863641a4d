/* See wire.h. */
#include "compiler/onnx/wire.h"

#include "onnx.pb-c.h"

#include <string.h>

#define LENGTH_BYTES                                                                               \
    5 /* a sub-message's length, written with leading zeros: known only afterwards */

typedef struct Walk {
    const unsigned char *data;
    size_t size;
    int depth; /* of the message that is walked; the outermost is 1 */
    Diag *diag;
    bool writing;       /* false: the first walk, which only counts */
    unsigned char *out; /* the reduced stream */
    size_t out_n, out_cap;
    WireIndex index;
    size_t pieces_cap, payloads_cap;
} Walk;

/* One field as it stands in the bytes. */
typedef struct Field {
    size_t at;         /* of its tag */
    size_t begin, end; /* of its value; for WIRE_bytes of the content */
    uint32_t number;
    int wire;
} Field;

bool wire_varint(const unsigned char *data, size_t end, size_t *at, uint64_t *value) {
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 70 && *at < end; shift += 7) {
        unsigned char byte = data[(*at)++];
        result |= (uint64_t)(byte & 0x7f)
                  << shift; /* the tenth byte has one bit left, as everywhere */
        if (byte < 0x80) {
            *value = result;
            return true;
        }
    }
    return false;
}

/* --- reading fields --------------------------------------------------------------------------- */

/* A field that needs more bytes than its message has. In the outermost message, whose end is the
 * file's, the file was cut short; further in, a length is wrong. */
static bool overrun(Walk *w, const ProtobufCMessageDescriptor *type, size_t at, size_t end) {
    if (w->depth == 1)
        diag_error(w->diag, E1004,
                   "the file ends early: the field at byte %zu goes beyond its %zu bytes (was a "
                   "download or copy cut short?)",
                   at, w->size);
    else
        diag_error(w->diag, E1005,
                   "the file is damaged: the field at byte %zu goes beyond the end of its %s at "
                   "byte %zu",
                   at, type->short_name, end);
    return false;
}

static bool damaged(Walk *w, const ProtobufCMessageDescriptor *type, size_t at, const char *what) {
    diag_error(w->diag, E1005, "the file is damaged, or no ONNX file: %s at byte %zu (in %s)", what,
               at, type->short_name);
    return false;
}

/* Reads the field at `at`, of a message that ends at `end`. */
static bool read_field(Walk *w, const ProtobufCMessageDescriptor *type, size_t at, size_t end,
                       Field *f) {
    uint64_t tag, length = 0;
    *f = (Field){.at = at, .begin = at};
    if (!wire_varint(w->data, end, &f->begin, &tag)) {
        if (f->begin == end) return overrun(w, type, at, end);
        return damaged(w, type, at, "an endless number");
    }
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return damaged(w, type, at, "an impossible field number");
    f->number = (uint32_t)(tag >> 3);
    f->wire = (int)(tag & 7);
    switch (f->wire) {
    case WIRE_varint:
        f->end = f->begin;
        if (wire_varint(w->data, end, &f->end, &length)) return true;
        if (f->end == end) return overrun(w, type, at, end);
        return damaged(w, type, at, "an endless number");
    case WIRE_fixed64:
        length = 8;
        break;
    case WIRE_fixed32:
        length = 4;
        break;
    case WIRE_bytes:
        if (!wire_varint(w->data, end, &f->begin, &length)) return overrun(w, type, at, end);
        break;
    case 3:
    case 4:
        return damaged(w, type, at, "a group");
    default:
        return damaged(w, type, at, "an unknown wire type");
    }
    if (length > end - f->begin) return overrun(w, type, at, end);
    f->end = f->begin + (size_t)length;
    return true;
}

static int wire_of(ProtobufCType type) {
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return WIRE_fixed32;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return WIRE_fixed64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_bytes;
    default:
        return WIRE_varint;
    }
}

/* True for a repeated number that stands there packed. */
static bool is_packed(const ProtobufCFieldDescriptor *schema, const Field *f) {
    return f->wire == WIRE_bytes && wire_of(schema->type) != WIRE_bytes &&
           schema->label == PROTOBUF_C_LABEL_REPEATED;
}

/* Wire type and content of a known field, sub-messages excepted. */
static bool check_field(Walk *w, const ProtobufCMessageDescriptor *type,
                        const ProtobufCFieldDescriptor *schema, const Field *f) {
    int wire = wire_of(schema->type);
    if (is_packed(schema, f)) {
        size_t length = f->end - f->begin;
        uint64_t ignored;
        if ((wire == WIRE_fixed32 && length % 4) || (wire == WIRE_fixed64 && length % 8))
            return damaged(w, type, f->at, "half a number");
        if (wire == WIRE_varint)
            for (size_t at = f->begin; at < f->end;)
                if (!wire_varint(w->data, f->end, &at, &ignored))
                    return damaged(w, type, f->at, "an endless number");
        return true;
    }
    if (f->wire != wire) {
        diag_error(
            w->diag, E1005,
            "the file is damaged, or no ONNX file: %s.%s at byte %zu has wire type %d, not %d",
            type->short_name, schema->name, f->at, f->wire, wire);
        return false;
    }
    if (schema->type == PROTOBUF_C_TYPE_STRING &&
        memchr(w->data + f->begin, 0, f->end - f->begin)) {
        diag_error(w->diag, E1007, "%s.%s at byte %zu has a zero byte in it", type->short_name,
                   schema->name, f->at);
        return false;
    }
    return true;
}

/* --- writing the reduced stream --------------------------------------------------------------- */

static void put(Walk *w, const void *bytes, size_t n) {
    if (w->writing && n <= w->out_cap - w->out_n) memcpy(w->out + w->out_n, bytes, n);
    w->out_n += n;
}

static void put_varint(Walk *w, uint64_t value) {
    unsigned char bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) bytes[n++] = (unsigned char)(value | 0x80);
    bytes[n++] = (unsigned char)value;
    put(w, bytes, n);
}

static void put_tag(Walk *w, uint32_t number, int wire) {
    put_varint(w, (uint64_t)number << 3 | (unsigned)wire);
}

static void put_field(Walk *w, const Field *f) {
    put_tag(w, f->number, f->wire);
    if (f->wire == WIRE_bytes) put_varint(w, f->end - f->begin);
    put(w, w->data + f->begin, f->end - f->begin);
}

/* Writes `length` into the LENGTH_BYTES at `at`. */
static void patch_length(Walk *w, size_t at, size_t length) {
    if (!w->writing || at + LENGTH_BYTES > w->out_cap) return;
    for (size_t i = 0; i < LENGTH_BYTES; i++, length >>= 7)
        w->out[at + i] = (unsigned char)((length & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

/* --- the walk --------------------------------------------------------------------------------- */

static void add_piece(Walk *w, WirePiece piece) {
    if (w->writing && w->index.n_pieces < w->pieces_cap) w->index.pieces[w->index.n_pieces] = piece;
    w->index.n_pieces++;
}

static bool is_tensor_data(uint32_t number) {
    switch (number) {
    case ONNX_FIELD_float_data:
    case ONNX_FIELD_int32_data:
    case ONNX_FIELD_string_data:
    case ONNX_FIELD_int64_data:
    case ONNX_FIELD_raw_data:
    case ONNX_FIELD_double_data:
    case ONNX_FIELD_uint64_data:
        return true;
    default:
        return false;
    }
}

/* Notes a data field. `open` is the piece before, not yet added: fields in a row become one piece.
 */
static void note_data(Walk *w, const ProtobufCFieldDescriptor *schema, const Field *f,
                      WirePiece *open) {
    bool tagged = f->number != ONNX_FIELD_raw_data && !is_packed(schema, f);
    if (tagged && open->tagged && open->field == (int)f->number && open->end == f->at) {
        open->end = f->end;
        return;
    }
    if (open->field) add_piece(w, *open);
    *open = (WirePiece){tagged ? f->at : f->begin, f->end, (int)f->number, tagged};
}

static bool walk(Walk *w, const ProtobufCMessageDescriptor *type, size_t begin, size_t end) {
    bool is_tensor = type == &onnx__tensor_proto__descriptor;
    WirePiece open = {0};
    size_t first_piece = w->index.n_pieces;
    uint64_t seen = 0; /* singular messages, by field number */
    Field f;
    for (size_t at = begin; at < end; at = f.end) {
        if (!read_field(w, type, at, end, &f)) return false;
        const ProtobufCFieldDescriptor *schema =
            protobuf_c_message_descriptor_get_field(type, f.number);
        if (!schema || (is_tensor && f.number == ONNX_FIELD_mlcc_payload)) continue;
        bool is_data = is_tensor && is_tensor_data(f.number);
        /* of tensor data only the place is noted, so that its pages are not touched */
        if (!(is_data && is_packed(schema, &f)) && !check_field(w, type, schema, &f)) return false;
        if (is_data) {
            note_data(w, schema, &f, &open);
        } else if (schema->type != PROTOBUF_C_TYPE_MESSAGE) {
            put_field(w, &f);
        } else {
            uint64_t bit = f.number < 64 ? (uint64_t)1 << f.number : 0;
            if (schema->label != PROTOBUF_C_LABEL_REPEATED && (seen & bit))
                return damaged(w, type, f.at, "a second copy of a field that occurs once");
            seen |= bit;
            if (w->depth == WIRE_DEPTH) {
                diag_error(w->diag, E1006, "more than %d messages within each other at byte %zu",
                           WIRE_DEPTH, f.at);
                return false;
            }
            put_tag(w, f.number, WIRE_bytes);
            size_t length_at = w->out_n;
            put(w, "\0\0\0\0\0", LENGTH_BYTES);
            w->depth++;
            if (!walk(w, schema->descriptor, f.begin, f.end)) return false;
            w->depth--;
            patch_length(w, length_at, w->out_n - length_at - LENGTH_BYTES);
        }
        if (w->out_n > WIRE_MAX_BYTES) {
            diag_error(w->diag, E1008, "more than %zu MiB besides the tensors' data",
                       WIRE_MAX_BYTES >> 20);
            return false;
        }
    }
    if (open.field) {
        add_piece(w, open);
        put_tag(w, ONNX_FIELD_mlcc_payload, WIRE_varint);
        put_varint(w, w->index.n_payloads);
        if (w->writing && w->index.n_payloads < w->payloads_cap)
            w->index.payloads[w->index.n_payloads] =
                (WirePayload){first_piece, w->index.n_pieces - first_piece};
        w->index.n_payloads++;
    }
    return true;
}

bool wire_reduce(const unsigned char *data, size_t size, const ProtobufCMessageDescriptor *type,
                 Arena *arena, Diag *diag, WireIndex *index, WireStream *out) {
    Walk w = {.data = data, .size = size, .depth = 1, .diag = diag};
    if (!walk(&w, type, 0, size)) return false;

    Walk again = {.data = data, .size = size, .depth = 1, .diag = diag, .writing = true};
    again.out_cap = w.out_n;
    again.out = arena_alloc(arena, w.out_n + 1);
    again.pieces_cap = w.index.n_pieces;
    again.index.pieces = ARENA_ARRAY(arena, w.index.n_pieces + 1, WirePiece);
    again.payloads_cap = w.index.n_payloads;
    again.index.payloads = ARENA_ARRAY(arena, w.index.n_payloads + 1, WirePayload);
    if (!walk(&again, type, 0, size)) return false;
    if (again.out_n != w.out_n || again.index.n_pieces != w.index.n_pieces ||
        again.index.n_payloads != w.index.n_payloads) {
        diag_error(diag, E0002, "the file changes while it is read");
        return false;
    }
    *index = again.index;
    *out = (WireStream){again.out, again.out_n};
    return true;
}
