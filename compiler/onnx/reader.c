/* See reader.h. */
#include "compiler/onnx/reader.h"

#include "compiler/onnx/mapfile.h"

#include <string.h>

/* --- what else a file may be ------------------------------------------------------------------ */

typedef struct Signature {
    size_t at;
    const char *bytes;
    size_t n;
    const char *what;
} Signature;

#define SIGNATURE(at, bytes, what)                                                                 \
    { (at), (bytes), sizeof(bytes) - 1, (what) }

/* None of these can begin an ONNX model: as a protobuf tag the first byte is a group, an unknown
 * wire type, a field that ModelProto does not have, or one that it has in another wire type. */
static const Signature signatures[] = {
    SIGNATURE(0, "\x89PNG\r\n", "a PNG image"),
    SIGNATURE(0, "\xff\xd8\xff", "a JPEG image"),
    SIGNATURE(0, "GIF8", "a GIF image"),
    SIGNATURE(0, "%PDF", "a PDF document"),
    SIGNATURE(0, "PK\x03\x04",
              "a zip archive (such as a PyTorch checkpoint .pt, a Keras model or a packed model); "
              "export or unpack it to .onnx first"),
    SIGNATURE(0, "\x1f\x8b", "gzip-compressed; unpack it first"),
    SIGNATURE(0, "\3757zXZ", "xz-compressed; unpack it first"),
    SIGNATURE(0, "\x89HDF\r\n",
              "an HDF5 file (such as a Keras .h5 model); export it to .onnx first"),
    SIGNATURE(0, "\177ELF", "an ELF program or library"),
    SIGNATURE(0, "\x93NUMPY", "a NumPy array"),
    SIGNATURE(0, "GGUF", "a GGUF model; there is no ONNX graph in it"),
};

/* Files of FlatBuffers: a small offset, then an identifier. */
static const Signature flatbuffers[] = {
    SIGNATURE(4, "TFL3", "a TensorFlow Lite model; convert it to .onnx first"),
    SIGNATURE(4, "ORTM", "an ORT-format model; take the .onnx file that it was made from"),
};

static bool matches(const OnnxFile *file, const Signature *s) {
    return file->size >= s->at + s->n && memcmp(file->data + s->at, s->bytes, s->n) == 0;
}

static bool starts_with(const OnnxFile *file, size_t at, const char *text) {
    Signature s = {at, text, strlen(text), NULL};
    return matches(file, &s);
}

/* A tensor file of the safetensors format: 8 bytes of length, then JSON. */
static bool is_safetensors(const OnnxFile *file) {
    uint64_t header;
    if (file->size < 10 || file->data[8] != '{') return false;
    memcpy(&header, file->data, sizeof header);
    return header >= 2 && header <= file->size - 8;
}

static bool is_text(const OnnxFile *file) {
    size_t n = file->size < 512 ? file->size : 512;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = file->data[i];
        if (c == 0x7f || (c < ' ' && c != '\t' && c != '\n' && c != '\r')) return false;
    }
    return true;
}

static const char *text_kind(const OnnxFile *file) {
    size_t at = 0;
    while (at < file->size && strchr(" \t\r\n", file->data[at]) && file->data[at]) at++;
    if (starts_with(file, at, "{") || starts_with(file, at, "[")) return "JSON text";
    if (starts_with(file, at, "<!") || starts_with(file, at, "<h") || starts_with(file, at, "<H"))
        return "a web page (was an error page downloaded in place of the model?)";
    if (starts_with(file, at, "<")) return "XML text (such as an OpenVINO model)";
    return "text";
}

/* What the file is, if it is something else than protobuf; NULL otherwise. */
static const char *other_format(const OnnxFile *file) {
    const unsigned char *d = file->data;
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (matches(file, &signatures[i])) return signatures[i].what;
    for (size_t i = 0; i < sizeof flatbuffers / sizeof *flatbuffers; i++)
        if (matches(file, &flatbuffers[i]) && d[1] == 0 && d[2] == 0 && d[3] == 0)
            return flatbuffers[i].what;
    if (file->size >= 2 && d[0] == 0x80 && d[1] >= 2 && d[1] <= 5)
        return "a Python pickle (such as an old PyTorch checkpoint); export it to .onnx first";
    if (is_safetensors(file)) return "a safetensors file: weights without a graph";
    return is_text(file) ? text_kind(file) : NULL;
}

/* True if the first field is one that a message of `type` has: all writers put known fields first.
 */
static bool plausible(const OnnxFile *file, const ProtobufCMessageDescriptor *type) {
    size_t at = 0;
    uint64_t tag;
    return wire_varint(file->data, file->size, &at, &tag) && tag >> 3 < 1000 &&
           protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
}

/* False after a message for what cannot be a `type` by its first bytes. */
static bool check_format(const OnnxFile *file, Diag *diag, const ProtobufCMessageDescriptor *type) {
    const char *what;
    if (file->size == 0) {
        diag_error(diag, E1001, "the file is empty");
    } else if (starts_with(file, 0, "version https://git-lfs")) {
        diag_error(diag, E1003,
                   "the file is a Git LFS pointer, not the model itself (run: git lfs pull)");
    } else if ((what = other_format(file)) != NULL) {
        diag_error(diag, E1002, "not an ONNX file, but %s", what);
    } else if (!plausible(file, type)) {
        diag_error(diag, E1002, "not an ONNX file: byte 0 (0x%02x) begins no field of %s",
                   file->data[0], type->short_name);
    } else {
        return true;
    }
    return false;
}

/* --- reading ---------------------------------------------------------------------------------- */

static void *unpack_alloc(void *arena, size_t n) {
    return arena_alloc(arena, n);
}

static void unpack_free(void *arena, void *pointer) {
    (void)arena;
    (void)pointer;
}

/* Unpacks `file`, whose bytes are set, as a message of `type`. NULL after a message. */
static void *unpack(OnnxFile *file, Arena *arena, Diag *diag,
                    const ProtobufCMessageDescriptor *type) {
    WireStream stream;
    if (!wire_reduce(file->data, file->size, type, arena, diag, &file->index, &stream)) return NULL;
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, arena};
    void *message = protobuf_c_message_unpack(type, &allocator, stream.size, stream.data);
    if (!message)
        diag_error(diag, E1005, "the file is damaged: its %s cannot be unpacked", type->short_name);
    return message;
}

static bool open_path(OnnxFile *file, Arena *arena, Diag *diag, const char *path) {
    *file = (OnnxFile){.path = path};
    const OnnxMap *map = maps_open(&file->maps, arena, diag, path);
    if (!map) return false;
    file->data = map->data;
    file->size = map->size;
    return true;
}

void onnx_close(OnnxFile *file) {
    if (file->maps) maps_close(file->maps);
}

static bool read_model(OnnxModel *model, Arena *arena, Diag *diag) {
    if (!check_format(&model->file, diag, &onnx__model_proto__descriptor)) return false;
    const Onnx__ModelProto *proto =
        unpack(&model->file, arena, diag, &onnx__model_proto__descriptor);
    if (!proto) return false;
    if (!proto->graph) {
        diag_error(diag, E1009, "the model has no graph%s",
                   proto->n_opset_import ? "" : " and no opset_import: is this an ONNX model?");
        return false;
    }
    if (proto->n_opset_import == 0 && proto->ir_version >= 3) {
        diag_error(diag, E1010, "the model names no operator set (opset_import is empty)");
        return false;
    }
    model->proto = proto;
    return true;
}

bool onnx_read(OnnxModel *model, Arena *arena, Diag *diag, const char *path) {
    *model = (OnnxModel){0};
    return open_path(&model->file, arena, diag, path) && read_model(model, arena, diag);
}

bool onnx_read_memory(OnnxModel *model, Arena *arena, Diag *diag, const void *data, size_t size) {
    *model = (OnnxModel){.file = {.data = data, .size = size}};
    return read_model(model, arena, diag);
}

static bool read_data(OnnxData *data, Arena *arena, Diag *diag) {
    static const ProtobufCMessageDescriptor *const types[] = {
        [ONNX_DATA_tensor] = &onnx__tensor_proto__descriptor,
        [ONNX_DATA_sequence] = &onnx__sequence_proto__descriptor,
        [ONNX_DATA_optional] = &onnx__optional_proto__descriptor};
    const ProtobufCMessageDescriptor *type = types[data->kind];
    /* an empty sequence or optional may take no bytes at all */
    bool nothing = data->file.size == 0 && data->kind != ONNX_DATA_tensor;
    if (!nothing && !check_format(&data->file, diag, type)) return false;
    const void *message = unpack(&data->file, arena, diag, type);
    if (!message) return false;
    switch (data->kind) {
    case ONNX_DATA_tensor:
        data->tensor = message;
        break;
    case ONNX_DATA_sequence:
        data->sequence = message;
        break;
    case ONNX_DATA_optional:
        data->optional = message;
        break;
    }
    return true;
}

bool onnx_read_data(OnnxData *data, Arena *arena, Diag *diag, OnnxDataKind kind, const char *path) {
    *data = (OnnxData){.kind = kind};
    return open_path(&data->file, arena, diag, path) && read_data(data, arena, diag);
}

bool onnx_read_data_memory(OnnxData *data, Arena *arena, Diag *diag, OnnxDataKind kind,
                           const void *bytes, size_t size) {
    *data = (OnnxData){.kind = kind, .file = {.data = bytes, .size = size}};
    return read_data(data, arena, diag);
}
