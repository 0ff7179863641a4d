/* Tensors in files: NumPy's .npy (format 1 to 3, C order, little-endian) and ONNX's .pb. */
#ifndef COMPILER_TENSOR_FILE_H
#define COMPILER_TENSOR_FILE_H

#include "compiler/driver.h"

/* A tensor as the outside sees it: a model's input or output. */
typedef struct TensorInfo {
    const char *name;
    DType dt;
    int rank;
    int64_t *shape;
    size_t bytes;
    size_t width; /* strings: bytes of each, zeros behind it; else 0 */
    /* see io.h */
    const int32_t *extent_input; /* of each dimension: the input that holds its extent, or -1 */
    int64_t low, high;           /* an input that holds an extent: its range; else high is 0 */
    int shape_output;            /* the output that holds its extents, or -1 */
} TensorInfo;

/* `text`: the value's rows are strings. */
TensorInfo info_of_value(Arena *arena, const Value *v, const char *name, bool text);
TensorInfo info_of_model(Arena *arena, const mlcc_tensor *t);
/* Lays strings out as a tensor's bytes. False after a diagnostic: one is longer than fits, or has a
 * zero byte in it. `path`: of the file that they come from. */
bool tensor_strings(Session *s, const TensorInfo *t, const char *path, const OnnxString *from,
                    void *data);
/* Fills a tensor with random numbers: floats uniform in [-1, 1), integers small, so that they may
 * serve as indices; strings are of a few small letters. *state is the generator's. */
void tensor_random(const TensorInfo *t, void *data, uint64_t *state);

/* Reads a file that must hold a tensor of this type and shape into `data`; dimensions that vary may
 * be smaller, and `want` gets the shape that they have. bf16 and 8-bit floats, which NumPy has no
 * name for, are read from integers of their width. False after a diagnostic. */
bool tensor_read(Session *s, TensorInfo *want, const char *path, void *data);
/* The same of a tensor that was read; `path`: of the file that it comes from. */
bool tensor_take(Session *s, TensorInfo *want, const char *path, const OnnxTensor *t, void *data);
/* The bytes of a .npy file that holds the tensor, to be written to `path`. */
OutputFile tensor_npy(Session *s, const TensorInfo *t, const char *path, const void *data);

#endif
