/* The ABI of a model compiled by mlcc into a shared library.
 *
 * Every `.so`, whatever its target, exports one function, `mlcc_model_v1`, that returns a constant
 * descriptor. A generic loader (mlcc's own, ctypes, a Go program) needs nothing else to run it.
 *
 * Tensors are dense, row-major, host memory, in the machine's byte order. bool is one byte (0 or
 * 1); float16, bfloat16 and the 8-bit floats are their bit patterns; 2- and 4-bit types take one
 * byte an element (sign- or zero-extended integers; float4e2m1 is its bit pattern in the low four
 * bits). Strings are arrays of bytes (UTF-8), one behind the other, all of the same size: the
 * tensor's `bytes` divided by its number of elements. What a string does not fill is zeros, up to
 * its end; one that fills all has no zero behind it, and none has a zero inside. A sequence of the
 * ONNX model is one tensor for each item, NAME.0, NAME.1 and so on; an optional is its tensor, or
 * none.
 */
#ifndef MLCC_MODEL_H
#define MLCC_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLCC_ABI_VERSION 1u

/* What `open` and `run` return. Generated C code returns the same values. */
enum {
    MLCC_OK = 0,
    MLCC_E_ARGUMENT = 1, /* a null pointer where a tensor is needed, an extent out of its range, or
                            an encoded image that cannot be decoded or does not fit */
    MLCC_E_DRIVER = 2,   /* no driver or no device that fits; `error` says which */
    MLCC_E_MEMORY = 3,   /* the device or the host has not enough memory */
    MLCC_E_DEVICE = 4,   /* the device failed while it ran */
    MLCC_E_FILE = 5,     /* the weights file is missing or not the one compiled with the model */
    MLCC_E_EXTENT = 6    /* `run`: extents that it computes, or is given, are beyond those that the
                            model was compiled for, or contradict each other. Outputs and states
                            mean nothing then */
};

typedef struct mlcc_tensor {
    const char *name;     /* the ONNX name */
    uint32_t dtype;       /* TensorProto.DataType of onnx.proto: 1 float, 2 uint8, ... */
    uint32_t rank;        /* number of dimensions; 0 for a scalar */
    const int64_t *shape; /* `rank` extents */
    uint64_t bytes;       /* size of the whole tensor */
} mlcc_tensor;

typedef struct mlcc_range {
    int32_t low, high;
} mlcc_range;

typedef struct mlcc_model {
    uint32_t abi_version;  /* MLCC_ABI_VERSION */
    uint32_t struct_bytes; /* sizeof(mlcc_model) of the compiler that wrote it */
    const char *name;      /* model name */
    const char *target;    /* "c", "cuda", "vulkan" */
    uint32_t n_inputs, n_outputs;
    const mlcc_tensor *inputs, *outputs;
    uint64_t arena_bytes;  /* host memory that `run` wants as `arena` (GPU targets: for decoded
                              images, else 0) */
    uint64_t weight_bytes; /* constants, wherever they lie */

    /* Prepares a device and uploads weights. *state is opaque, may be NULL for CPU targets.
     * `weights` is the path of the `--weights` side file, NULL when the weights are inside. Returns
     * MLCC_OK or an MLCC_E_ code; after a failure *state may still be passed to `error` and must be
     * to `close`. */
    int (*open)(void **state, const char *weights);
    /* Runs the model once. inputs[i] and outputs[i] point to `bytes` bytes each, aligned to their
     * element. `arena` is `arena_bytes` long and 64-byte aligned; its contents need not survive.
     * Two threads may run at once with two states and two arenas. */
    int (*run)(void *state, const void *const *inputs, void *const *outputs, void *arena);
    void (*close)(void *state);
    /* One line about the last failure of `state`; never NULL. */
    const char *(*error)(void *state);
    /* How many threads `run` works on, the calling one among them; 1 after `open`. (It alone does
     * what takes less than waking the others would.) The others wait between runs, and end in
     * `close`, which must come before the library is unloaded. Results are the same, bit by bit,
     * for any number. Not while `run` works. NULL where it is not offered; after a failure it is
     * one thread again. */
    int (*set_threads)(void *state, int threads);

    /* Dimensions that vary from run to run; all three are NULL where none does. Then the shapes
     * above are the largest ones, and so are the sizes in bytes: `outputs` of a run must have room
     * for them. A run's tensors are dense all the same, and of its inputs no more is read than they
     * hold. input_extents[i]: NULL, or for each dimension of input i the number of the input, an
     * int32, that holds its extent; -1 where it is fixed. input_range[i]: the range of an input
     * like that (high 0: it is none); `run` returns MLCC_E_ARGUMENT for others. output_shape[i]:
     * the number of the output that holds the extents of output i, an int64 for each dimension; -1
     * where they are fixed. An output that holds its own is an int32, the run's status: 0, or,
     * where `run` returns MLCC_E_EXTENT, which of `faults` it is, counted from 1. Models that
     * cannot return that have none. */
    const int32_t *const *input_extents;
    const mlcc_range *input_range;
    const int32_t *output_shape;
    /* A model with states (--state): what is kept from one run for the next lies in *state, so each
     * `open` has its own, and the arena has none of it. `reset` puts it back to its first value, as
     * it is after `open`; not while `run` works. 0 and NULL where nothing is kept. These and what
     * follows are there if `struct_bytes` says so. */
    uint64_t state_bytes;
    int (*reset)(void *state);
    /* What a run may contradict, each one line that begins with the node; see output_shape. NULL
     * where no output holds a status. */
    const char *const *faults;
} mlcc_model;

/* The one symbol a model library exports. */
const mlcc_model *mlcc_model_v1(void);

#ifdef __cplusplus
}
#endif
#endif
