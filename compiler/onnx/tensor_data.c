/* Decoding tensors: onnx_tensor of reader.h.
 *
 * A TensorProto has its data in one of three places: raw_data, one typed field (which one depends
 * on the element type), or an external file. Raw bytes and external files are taken in place where
 * possible; typed fields are converted, except for packed floats, which are as good as raw bytes.
 */
#include "compiler/onnx/mapfile.h"
#include "compiler/onnx/reader.h"

#include <inttypes.h>
#include <stdalign.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are taken in place: little-endian");

#define MAX_RANK_READ 64

typedef struct Decode {
    const OnnxFile *file;
    Arena *arena;
    Diag *diag;
    const Onnx__TensorProto *proto;
    OnnxTensor *out;
    const char *label; /* "tensor 'w'", as messages begin */
    const WirePiece *pieces;
    size_t n_pieces;
} Decode;

/* --- element types ---------------------------------------------------------------------------- */

/* Elements to the byte or to the value of int32_data: 2 or 4 for the 4- and 2-bit types, else 1. */
static int64_t packing(DType dt) {
    int bits = dt_bits(dt);
    return bits == 4 || bits == 2 ? 8 / bits : 1;
}

/* What must be aligned to read an element through a pointer of its type. */
static size_t alignment(DType dt) {
    DKind kind = dt_kind(dt);
    if (kind == DK_string) return alignof(OnnxString);
    return kind == DK_complex ? dt_store(dt) / 2 : dt_store(dt);
}

/* The field of TensorProto that holds elements of this type. */
static int typed_field(DType dt) {
    switch (dt) {
    case DT_f32:
    case DT_c64:
        return ONNX_FIELD_float_data;
    case DT_f64:
    case DT_c128:
        return ONNX_FIELD_double_data;
    case DT_i64:
        return ONNX_FIELD_int64_data;
    case DT_u32:
    case DT_u64:
        return ONNX_FIELD_uint64_data;
    case DT_str:
        return ONNX_FIELD_string_data;
    default:
        return ONNX_FIELD_int32_data;
    }
}

static const char *field_name(int field) {
    const ProtobufCFieldDescriptor *schema =
        protobuf_c_message_descriptor_get_field(&onnx__tensor_proto__descriptor, (unsigned)field);
    return schema ? schema->name : "?";
}

/* --- raw bytes -------------------------------------------------------------------------------- */

/* Splits bytes of 2- or 4-bit elements, lowest bits first; the last byte may be partly unused. */
static void unpack_bits(DType dt, const unsigned char *from, unsigned char *to, int64_t count) {
    int bits = dt_bits(dt), per_byte = 8 / bits;
    unsigned mask = (1u << bits) - 1, sign = dt_kind(dt) == DK_sint ? 1u << (bits - 1) : 0;
    for (int64_t i = 0; i < count; i++) {
        unsigned value = (unsigned)from[i / per_byte] >> (int)(i % per_byte) * bits & mask;
        to[i] = (unsigned char)((value ^ sign) - sign);
    }
}

static bool wrong_size(const Decode *d, const char *where, const char *unit, uint64_t has,
                       int64_t wants) {
    diag_error(d->diag, E1103,
               "%s: %s has %" PRIu64 " %s, but %" PRId64 " elements of %s need %" PRId64, d->label,
               where, has, unit, d->out->count, dt_name(d->out->dt), wants);
    return false;
}

/* Takes elements as a file stores them: little-endian, narrow types packed. `where` is what
 * messages call the bytes. */
static bool take_bytes(Decode *d, const unsigned char *bytes, size_t size, const char *where) {
    OnnxTensor *out = d->out;
    int64_t per_byte = packing(out->dt);
    int64_t wants = per_byte > 1 ? out->count / per_byte + (out->count % per_byte != 0)
                                 : out->count * (int64_t)dt_store(out->dt);
    if (size != (uint64_t)wants) return wrong_size(d, where, "bytes", size, wants);
    if (per_byte > 1) {
        unsigned char *to = arena_alloc(d->arena, (size_t)out->count);
        unpack_bits(out->dt, bytes, to, out->count);
        out->data = to;
        return true;
    }
    out->data = bytes;
    out->aligned = (uintptr_t)bytes % alignment(out->dt) == 0;
    bool truth = true; /* every bool is 0 or 1 */
    for (size_t i = 0; out->dt == DT_bool && truth && i < size; i++) truth = bytes[i] <= 1;
    if (!truth || (!out->aligned && size <= ONNX_ALIGNED_BYTES)) {
        unsigned char *to = arena_copy(d->arena, bytes, size);
        for (size_t i = 0; !truth && i < size; i++) to[i] = to[i] != 0;
        out->data = to;
        out->aligned = true;
    }
    return true;
}

/* --- typed fields ----------------------------------------------------------------------------- */

/* Goes over the values of one field, in whatever pieces and packing they come. */
typedef struct Values {
    const Decode *d;
    int field;
    int wire;       /* of a single value */
    size_t piece;   /* the next one */
    size_t at, end; /* what is left of the current one */
    bool tagged;
} Values;

typedef enum Next { NEXT_value, NEXT_end, NEXT_damaged } Next;

static Next next_damaged(const Values *v) {
    diag_error(v->d->diag, E1005, "%s: %s is damaged at byte %zu", v->d->label,
               field_name(v->field), v->at);
    return NEXT_damaged;
}

/* The next value: a number's bits, or for strings the length of what then begins at v->at - length.
 */
static Next next_value(Values *v, uint64_t *value) {
    const unsigned char *data = v->d->file->data;
    while (v->at == v->end) {
        if (v->piece == v->d->n_pieces) return NEXT_end;
        const WirePiece *p = &v->d->pieces[v->piece++];
        if (p->field != v->field) continue;
        v->at = p->begin;
        v->end = p->end;
        v->tagged = p->tagged;
    }
    if (v->tagged && !wire_varint(data, v->end, &v->at, value)) return next_damaged(v);
    size_t bytes = v->wire == WIRE_fixed64 ? 8 : 4;
    switch (v->wire) {
    case WIRE_fixed32:
    case WIRE_fixed64:
        if (v->end - v->at < bytes) return next_damaged(v);
        *value = 0;
        memcpy(value, data + v->at, bytes);
        v->at += bytes;
        return NEXT_value;
    default:
        if (!wire_varint(data, v->end, &v->at, value)) return next_damaged(v);
        if (v->wire == WIRE_bytes) {
            if (*value > v->end - v->at) return next_damaged(v);
            v->at += (size_t)*value;
        }
        return NEXT_value;
    }
}

static bool out_of_range(const Decode *d, int64_t index, int64_t value) {
    diag_error(d->diag, E1105,
               "%s: value %" PRId64 " at position %" PRId64 " of %s does not fit %s", d->label,
               value, index, field_name(typed_field(d->out->dt)), dt_name(d->out->dt));
    return false;
}

/* Stores a value of int32_data: a whole number of the type, or the bit pattern of a float, or the
 * byte that several narrow elements share. */
static bool save_int32(const Decode *d, unsigned char *to, int64_t index, uint64_t value) {
    DType dt = d->out->dt;
    int32_t number = (int32_t)(uint32_t)value;
    int64_t per_value = packing(dt);
    if (dt == DT_bool) {
        to[index] = number != 0;
        return true;
    }
    if (dt == DT_i32) {
        memcpy(to + index * 4, &number, 4);
        return true;
    }
    /* writers disagree on whether the top bit is a sign */
    int32_t least = dt_store(dt) == 1 ? INT8_MIN : INT16_MIN;
    int32_t most = dt_store(dt) == 1 ? UINT8_MAX : UINT16_MAX;
    if (number < least || number > most) return out_of_range(d, index, number);
    uint16_t low = (uint16_t)number;
    if (per_value > 1) {
        int64_t first = index * per_value, left = d->out->count - first;
        unsigned char byte = (unsigned char)low;
        unpack_bits(dt, &byte, to + first, left < per_value ? left : per_value);
    } else {
        memcpy(to + (size_t)index * dt_store(dt), &low, dt_store(dt));
    }
    return true;
}

/* Converts the values of a typed field to elements. */
static bool take_values(Decode *d, int field) {
    OnnxTensor *out = d->out;
    DType dt = out->dt;
    Values v = {.d = d, .field = field};
    size_t part = dt_store(dt); /* bytes that one value fills */
    int64_t per_value = packing(dt);
    int64_t wants = out->count / per_value + (out->count % per_value != 0);
    switch (field) {
    case ONNX_FIELD_float_data:
        v.wire = WIRE_fixed32;
        break;
    case ONNX_FIELD_double_data:
        v.wire = WIRE_fixed64;
        break;
    case ONNX_FIELD_string_data:
        v.wire = WIRE_bytes;
        break;
    default:
        v.wire = WIRE_varint;
        break;
    }
    if (dt_kind(dt) == DK_complex) {
        wants *= 2;
        part /= 2;
    }
    /* a value takes a byte at least, so a false shape cannot make us take much memory */
    uint64_t bytes = 0;
    for (size_t i = 0; i < d->n_pieces; i++)
        if (d->pieces[i].field == field) bytes += d->pieces[i].end - d->pieces[i].begin;
    bool fits = bytes >= (uint64_t)wants;
    unsigned char *to = fits ? arena_array(d->arena, (size_t)out->count, dt_store(dt)) : NULL;

    int64_t n = 0;
    uint64_t value;
    Next next;
    for (; (next = next_value(&v, &value)) == NEXT_value; n++) {
        if (!fits || n >= wants) continue; /* only count, for the message */
        if (field == ONNX_FIELD_int32_data) {
            if (!save_int32(d, to, n, value)) return false;
        } else if (field == ONNX_FIELD_string_data) {
            OnnxString string = {(const char *)d->file->data + (v.at - value), (size_t)value};
            memcpy(to + (size_t)n * sizeof string, &string, sizeof string);
        } else {
            if (dt == DT_u32 && value > UINT32_MAX) return out_of_range(d, n, (int64_t)value);
            memcpy(to + (size_t)n * part, &value, part);
        }
    }
    if (next == NEXT_damaged) return false;
    if (n != wants) return wrong_size(d, field_name(field), "values", (uint64_t)n, wants);
    out->data = to;
    out->aligned = true;
    return true;
}

/* A typed field. One packed piece of floats is as good as raw bytes. */
static bool take_typed(Decode *d, int field) {
    const WirePiece *only = NULL;
    for (size_t i = 0; i < d->n_pieces; i++) {
        const WirePiece *p = &d->pieces[i];
        if (p->field != field || p->begin == p->end) continue;
        if (only || p->tagged) return take_values(d, field);
        only = p;
    }
    if (only && (field == ONNX_FIELD_float_data || field == ONNX_FIELD_double_data))
        return take_bytes(d, d->file->data + only->begin, only->end - only->begin,
                          field_name(field));
    return take_values(d, field);
}

/* --- external data ---------------------------------------------------------------------------- */

/* A decimal number, the whole of `text`. */
static bool parse_size(const char *text, uint64_t *value) {
    *value = 0;
    if (!*text) return false;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(*value, 10u, value) ||
            __builtin_add_overflow(*value, (unsigned)(*text - '0'), value))
            return false;
    return *text == 0;
}

static bool take_external(Decode *d) {
    const char *location = NULL;
    uint64_t offset = 0, length = 0;
    bool has_length = false;
    for (size_t i = 0; i < d->proto->n_external_data; i++) {
        const char *key = d->proto->external_data[i]->key,
                   *value = d->proto->external_data[i]->value;
        if (!key || !value) continue;
        bool is_length = strcmp(key, "length") == 0;
        if (strcmp(key, "location") == 0) {
            location = value;
        } else if (is_length || strcmp(key, "offset") == 0) {
            if (!parse_size(value, is_length ? &length : &offset)) {
                diag_error(d->diag, E1201, "%s: external_data has %s '%s', which is no number",
                           d->label, key, value);
                return false;
            }
            has_length = has_length || is_length;
        }
    }
    if (!location || !*location) {
        diag_error(d->diag, E1201, "%s: external_data names no location", d->label);
        return false;
    }
    if (d->out->dt == DT_str) {
        diag_error(d->diag, E1201, "%s: strings cannot be external data", d->label);
        return false;
    }
    if (!d->file->maps) {
        diag_error(d->diag, E1203, "%s: external data '%s' are not opened: the model has no folder",
                   d->label, location);
        return false;
    }
    const OnnxMap *map = maps_external(d->file->maps, d->diag, location);
    if (!map) return false;
    if (!has_length) {
        int64_t per_byte = packing(d->out->dt);
        length = per_byte > 1
                     ? (uint64_t)(d->out->count / per_byte + (d->out->count % per_byte != 0))
                     : (uint64_t)d->out->count * dt_store(d->out->dt);
    }
    if (offset > map->size || length > map->size - offset) {
        diag_error(d->diag, E1204,
                   "%s: %" PRIu64 " bytes at offset %" PRIu64
                   " reach beyond the end of '%s', which has %zu bytes",
                   d->label, length, offset, location, map->size);
        return false;
    }
    static const unsigned char nothing[16] = {0};
    return take_bytes(d, map->data ? map->data + offset : nothing, (size_t)length, location);
}

/* --- the whole tensor ------------------------------------------------------------------------- */

static bool read_shape(Decode *d) {
    const Onnx__TensorProto *proto = d->proto;
    int64_t count = 1;
    bool empty = false, overflow = false;
    if (proto->n_dims > MAX_RANK_READ) {
        diag_error(d->diag, E1102, "%s has %zu dimensions", d->label, proto->n_dims);
        return false;
    }
    for (size_t i = 0; i < proto->n_dims; i++) {
        if (proto->dims[i] < 0) {
            diag_error(d->diag, E1102, "%s has dimension %zu of size %" PRId64, d->label, i,
                       proto->dims[i]);
            return false;
        }
        empty = empty || proto->dims[i] == 0;
        overflow = overflow || __builtin_mul_overflow(count, proto->dims[i], &count);
    }
    d->out->count = empty ? 0 : count;
    if (!empty && (overflow || count > INT64_MAX / 64)) {
        diag_error(d->diag, E1102, "%s has a shape of more elements than can be", d->label);
        return false;
    }
    d->out->rank = (int)proto->n_dims;
    d->out->dims = proto->dims;
    return true;
}

bool onnx_tensor(const OnnxFile *file, Arena *arena, Diag *diag, const Onnx__TensorProto *proto,
                 OnnxTensor *out) {
    const char *name = proto->name ? proto->name : "";
    Decode d = {.file = file, .arena = arena, .diag = diag, .proto = proto, .out = out};
    d.label = *name ? arena_printf(arena, "tensor '%s'", name) : "a tensor without name";
    *out = (OnnxTensor){.name = name, .dt = dt_from_onnx(proto->data_type), .aligned = true};
    if (out->dt == DT_none) {
        diag_error(diag, E1101, "%s has element type %d, which is none of ONNX's", d.label,
                   (int)proto->data_type);
        return false;
    }
    if (!read_shape(&d)) return false;
    if (proto->has_mlcc_payload && proto->mlcc_payload < file->index.n_payloads) {
        const WirePayload *payload = &file->index.payloads[proto->mlcc_payload];
        d.pieces = &file->index.pieces[payload->first];
        d.n_pieces = payload->n;
    }

    /* Fields without content do not count. Of raw_data, which occurs once, the last one holds. */
    bool external = proto->has_data_location &&
                    proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    int field = 0;
    const WirePiece *raw = NULL;
    for (size_t i = 0; i < d.n_pieces; i++) {
        const WirePiece *p = &d.pieces[i];
        if (p->field == ONNX_FIELD_raw_data) raw = p;
        if (p->begin == p->end) continue;
        if ((field && field != p->field) || external) {
            diag_error(diag, E1104, "%s has data in two places, %s and %s", d.label,
                       external ? "external_data" : field_name(field), field_name(p->field));
            return false;
        }
        field = p->field;
    }
    if (external) return take_external(&d);
    if (field == 0 && out->count > 0) {
        diag_error(diag, E1103, "%s has no data, but its shape has %" PRId64 " elements", d.label,
                   out->count);
        return false;
    }
    if (field && field != typed_field(out->dt) &&
        (field != ONNX_FIELD_raw_data || out->dt == DT_str)) {
        diag_error(diag, E1104, "%s has its data in %s, where elements of type %s cannot be",
                   d.label, field_name(field), dt_name(out->dt));
        return false;
    }
    if (field == ONNX_FIELD_raw_data)
        return take_bytes(&d, file->data + raw->begin, raw->end - raw->begin, "raw_data");
    return take_typed(&d, field ? field : typed_field(out->dt));
}
