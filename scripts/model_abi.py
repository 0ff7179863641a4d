"""include/mlcc/model.h for ctypes."""

import ctypes


class Tensor(ctypes.Structure):
    """mlcc_tensor of include/mlcc/model.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_uint64),
    ]


POINTERS = ctypes.POINTER(ctypes.c_void_p)


class Model(ctypes.Structure):
    """mlcc_model of include/mlcc/model.h."""

    _fields_ = [
        ("abi_version", ctypes.c_uint32),
        ("struct_bytes", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("n_inputs", ctypes.c_uint32),
        ("n_outputs", ctypes.c_uint32),
        ("inputs", ctypes.POINTER(Tensor)),
        ("outputs", ctypes.POINTER(Tensor)),
        ("arena_bytes", ctypes.c_uint64),
        ("weight_bytes", ctypes.c_uint64),
        ("open", ctypes.CFUNCTYPE(ctypes.c_int, POINTERS, ctypes.c_char_p)),
        (
            "run",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, POINTERS, POINTERS, ctypes.c_void_p),
        ),
        ("close", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
        ("set_threads", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)),
        ("input_extents", ctypes.c_void_p),
        ("input_range", ctypes.c_void_p),
        ("output_shape", ctypes.POINTER(ctypes.c_int32)),
        ("state_bytes", ctypes.c_uint64),
        ("reset", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
    ]


def pointers(arrays):
    """What `run` wants for the inputs, or the outputs."""
    return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
