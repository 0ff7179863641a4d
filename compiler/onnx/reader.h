/* Reading ONNX files: from bytes to Onnx__ModelProto, and tensors to plain arrays.
 *
 * A file is mapped, never copied. wire.h walks its bytes once to check them and to cut the tensors'
 * data out; protobuf-c unpacks the small rest. A TensorProto of ours therefore never has raw_data,
 * float_data, int32_data, string_data, int64_data, double_data or uint64_data: ask onnx_tensor.
 *
 * All memory comes from the arena given, so that --max-memory bounds it; what an OnnxFile maps is
 * given back by onnx_close, which may be called at any time after the read began (also when the
 * arena's limit ended it with a jump), as long as the arena lives.
 */
#ifndef COMPILER_ONNX_READER_H
#define COMPILER_ONNX_READER_H

#include "compiler/onnx/wire.h"
#include "ir/diag.h"
#include "ir/dtype.h"
#include "onnx.pb-c.h"

typedef struct OnnxMaps OnnxMaps; /* the files that are mapped: mapfile.h */

/* A file's bytes, and where in them the tensors' data are. */
typedef struct OnnxFile {
    const char *path; /* as the user gave it; NULL: read from memory */
    const unsigned char *data;
    size_t size;
    WireIndex index;
    OnnxMaps *maps; /* this file and its external data files; NULL: no file may be opened */
} OnnxFile;

typedef struct OnnxModel {
    const Onnx__ModelProto *proto;
    OnnxFile file;
} OnnxModel;

/* Reads a model. True: `model->proto` is set and has a graph and, from IR version 3 on, at least
 * one opset_import. False: a message was given (E0002, E10xx). `*model` is overwritten. */
bool onnx_read(OnnxModel *model, Arena *arena, Diag *diag, const char *path);
/* The same from memory that outlives the model. Opens no file: external data are refused (E1203).
 */
bool onnx_read_memory(OnnxModel *model, Arena *arena, Diag *diag, const void *data, size_t size);
/* Unmaps everything. What onnx_tensor returned must not be used any more. */
void onnx_close(OnnxFile *file);

/* What a .pb file of test data holds. The bytes do not say it: the model's input does. */
typedef enum OnnxDataKind { ONNX_DATA_tensor, ONNX_DATA_sequence, ONNX_DATA_optional } OnnxDataKind;

typedef struct OnnxData {
    OnnxDataKind kind;
    const Onnx__TensorProto *tensor; /* the one of `kind` is set */
    const Onnx__SequenceProto *sequence;
    const Onnx__OptionalProto *optional;
    OnnxFile file;
} OnnxData;

/* Reads a serialized TensorProto, SequenceProto or OptionalProto (mlcc run --input x=FILE.pb). */
bool onnx_read_data(OnnxData *data, Arena *arena, Diag *diag, OnnxDataKind kind, const char *path);
bool onnx_read_data_memory(OnnxData *data, Arena *arena, Diag *diag, OnnxDataKind kind,
                           const void *bytes, size_t size);

/* --- tensors ---------------------------------------------------------------------------------- */

typedef struct OnnxString {
    const char *data; /* not zero-terminated, and may hold zero bytes */
    size_t length;
} OnnxString;

/* Up to this many bytes, OnnxTensor.data is always aligned. */
#define ONNX_ALIGNED_BYTES 65536

/* A tensor's elements: row-major, one after the other, host byte order, `dt_store(dt)` bytes each.
 * bool is 0 or 1; f16, bf16 and f8 are their bit patterns; 2- and 4-bit types take one byte each
 * (integers sign- or zero-extended, f4 its pattern in the low 4 bits); complex numbers are pairs;
 * strings are OnnxString.
 *
 * `data` points into the mapped file where nothing had to be converted, else into the arena. More
 * than ONNX_ALIGNED_BYTES are taken in place even where the file put them at an odd address: then
 * `aligned` is false, and elements must be read with dt_load or memcpy, not through a typed
 * pointer. */
typedef struct OnnxTensor {
    const char *name; /* "" if it has none */
    DType dt;
    int rank;
    const int64_t *dims; /* of the proto */
    int64_t count;       /* product of dims */
    const void *data;    /* never NULL */
    bool aligned;
} OnnxTensor;

/* Decodes a tensor of this file. False: a message (E11xx, E12xx) that names the tensor. */
bool onnx_tensor(const OnnxFile *file, Arena *arena, Diag *diag, const Onnx__TensorProto *proto,
                 OnnxTensor *out);

#endif
