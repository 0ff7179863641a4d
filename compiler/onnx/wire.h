/* The walk over a protobuf's bytes that comes before protobuf-c.
 *
 * protobuf-c recurses without bound, copies every payload and every unknown field, and silently
 * cuts strings at a zero byte. So wire_reduce goes over the bytes first, with the message
 * descriptors that protobuf-c generated from onnx.proto as its schema, and writes a second, small
 * stream for protobuf-c to unpack:
 *
 *   - every length lies within its message, every varint ends, wire types fit the schema, there are
 * no groups, nesting is at most WIRE_DEPTH, and a singular message occurs once;
 *   - strings hold no zero byte;
 *   - unknown fields are left out;
 *   - the data fields of each TensorProto are left out. Where they lie in the bytes is noted in a
 *     WireIndex; the private field TensorProto.mlcc_payload says which entry is whose.
 *
 * Two equal walks are made, one that counts and one that writes, so that memory is taken once and
 * exactly. Time is linear in the bytes outside of tensors.
 */
#ifndef COMPILER_ONNX_WIRE_H
#define COMPILER_ONNX_WIRE_H

#include "ir/diag.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#define WIRE_DEPTH     100               /* messages within messages; protobuf's own default */
#define WIRE_MAX_BYTES ((size_t)1 << 30) /* of the reduced stream */

/* Wire types. Groups (3, 4) are refused. */
enum { WIRE_varint = 0, WIRE_fixed64 = 1, WIRE_bytes = 2, WIRE_fixed32 = 5 };

/* Fields of TensorProto that the walk takes out, and the private one that it puts in (onnx.proto).
 */
enum {
    ONNX_FIELD_float_data = 4,
    ONNX_FIELD_int32_data = 5,
    ONNX_FIELD_string_data = 6,
    ONNX_FIELD_int64_data = 7,
    ONNX_FIELD_raw_data = 9,
    ONNX_FIELD_double_data = 10,
    ONNX_FIELD_uint64_data = 11,
    ONNX_FIELD_mlcc_payload = 1000
};

/* A stretch of one data field of one TensorProto. */
typedef struct WirePiece {
    size_t begin, end; /* offsets into the bytes walked */
    int field;         /* its number in TensorProto */
    bool tagged; /* true: the field as it stands, once or more, each with its tag (repeated fields
                  * written one by one, strings); false: the content alone (raw_data, packed) */
} WirePiece;

/* The data of one TensorProto: pieces[first] .. pieces[first + n - 1], in the order of the file. */
typedef struct WirePayload {
    size_t first, n;
} WirePayload;

typedef struct WireIndex {
    WirePiece *pieces;
    WirePayload *payloads;
    size_t n_pieces, n_payloads;
} WireIndex;

typedef struct WireStream {
    const unsigned char *data;
    size_t size;
} WireStream;

/* Walks `size` bytes at `data` as one message of type `type`. `index` and `out` are in the arena;
 * offsets in `index` are relative to `data`. False after a message (E1004 .. E1008). */
bool wire_reduce(const unsigned char *data, size_t size, const ProtobufCMessageDescriptor *type,
                 Arena *arena, Diag *diag, WireIndex *index, WireStream *out);

/* Reads a varint of at most ten bytes at *at. False if it does not end before `end`. */
bool wire_varint(const unsigned char *data, size_t end, size_t *at, uint64_t *value);

#endif
