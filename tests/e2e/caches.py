"""Models whose states grow, for caches.sh: keys and values of attention, kept by the library.

    caches.py make FOLDER             NAME.onnx
    caches.py check MODEL LIBRARY N ERROR
                                      for a batch of N, with results so much apart at most; calls it for several tokens and for single ones, the last time after
                                      some have been taken back; ONNX Runtime is fed its own outputs
"""

import ctypes
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from model_abi import Model, pointers

HEADS, KV_HEADS, SIZE, ROOM = 6, 2, 16, 24
CALLS = [4, 1, 1, 3, 1]  # tokens of a call
TAKEN_BACK, MORE = 5, [2, 1]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def tensor(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def cache(name, heads, length):
    return tensor(name, ["batch", heads, length, SIZE])


def plain():
    """Concatenation, and attention spelled out."""
    nodes = [
        helper.make_node("Concat", ["k_past", "k"], ["k_present"], axis=2),
        helper.make_node("Concat", ["v_past", "v"], ["v_present"], axis=2),
        helper.make_node("Transpose", ["k_present"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v_present"], ["y"]),
    ]
    inputs = [tensor(name, ["batch", HEADS, "seq", SIZE]) for name in "qkv"]
    return nodes, inputs, tensor("y", ["batch", HEADS, "seq", SIZE]), HEADS, {}


def attention():
    """ai.onnx's operator."""
    node = helper.make_node(
        "Attention",
        ["q", "k", "v", "", "k_past", "v_past"],
        ["y", "k_present", "v_present"],
        is_causal=1,
        q_num_heads=HEADS,
        kv_num_heads=KV_HEADS,
    )
    inputs = [tensor("q", ["batch", "seq", HEADS * SIZE])]
    inputs += [tensor(name, ["batch", "seq", KV_HEADS * SIZE]) for name in "kv"]
    return [node], inputs, tensor("y", ["batch", "seq", HEADS * SIZE]), KV_HEADS, {}


def grouped():
    """com.microsoft's, which turns queries and keys, and counts keys by a mask."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "last"], ["sums"], keepdims=1),
        helper.make_node("Sub", ["sums", "last"], ["before"]),
        helper.make_node("Cast", ["before"], ["seqlens"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"], start=1, end=2),
        helper.make_node("Cast", ["shape"], ["length"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "k_past", "v_past", "seqlens", "length", "cos", "sin"],
            ["y", "k_present", "v_present"],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=KV_HEADS,
            do_rotary=1,
        ),
    ]
    angle = np.outer(np.arange(ROOM), 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2)))
    constants = {
        "last": np.array([1]),
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
    }
    _, inputs, output, heads, _ = attention()
    return nodes, [*inputs, tensor("mask", ["batch", "total"], INT64)], output, heads, constants


MODELS = {"plain": plain, "attention": attention, "grouped": grouped, "half": attention}


def make(folder):
    for name, build in MODELS.items():
        nodes, inputs, output, heads, constants = build()
        inputs += [cache(kind + "_past", heads, "past") for kind in "kv"]
        outputs = [output] + [cache(kind + "_present", heads, "total") for kind in "kv"]
        values = [numpy_helper.from_array(value, key) for key, value in constants.items()]
        if name == "half":
            for value in [*inputs, *outputs]:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
        graph = helper.make_graph(nodes, name, inputs, outputs, values)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        onnx.save(model, folder / f"{name}.onnx")


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.mlcc_model_v1.restype = ctypes.POINTER(Model)
        self.model = self.library.mlcc_model_v1().contents
        self.state = ctypes.c_void_p()
        if self.model.open(ctypes.byref(self.state), None):
            sys.exit(f"open: {self.model.error(self.state).decode()}")
        self.arena = np.full(self.model.arena_bytes + 64, 0xA5, np.uint8)

    def run(self, inputs, shape, dtype):
        """The first output, of this shape and type."""
        model = self.model
        given = [inputs[model.inputs[i].name.decode()] for i in range(model.n_inputs)]
        taken = [np.full(model.outputs[i].bytes, 0xFF, np.uint8) for i in range(model.n_outputs)]
        arena = self.arena.ctypes.data
        status = model.run(self.state, pointers(given), pointers(taken), arena + -arena % 64)
        if status:
            sys.exit(f"run: {status}")
        names = [model.outputs[i].name.decode() for i in range(model.n_outputs)]
        if names[0] != "y" or any("present" in name for name in names):
            sys.exit(f"outputs {names}")
        return taken[0].view(dtype)[: int(np.prod(shape))].reshape(shape)


def check(path, library, batch, error):
    rng = np.random.default_rng(5)
    peer = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ours = Library(library)
    infos = {i.name: i.shape for i in peer.get_inputs()}
    dtype = np.float16 if "16" in peer.get_inputs()[0].type else np.float32
    past = {n: np.zeros((batch, s[1], 0, SIZE), dtype) for n, s in infos.items() if "past" in n}
    for number, seq in enumerate([*CALLS, *MORE]):
        if number == len(CALLS):
            past = {name: value[:, :, :TAKEN_BACK] for name, value in past.items()}
        length = next(iter(past.values())).shape[2]
        extents = {"batch": batch, "seq": seq, "past": length, "total": length + seq}
        inputs = dict(past)
        for name, shape in infos.items():
            if name == "mask":
                inputs[name] = np.ones((batch, length + seq), np.int64)
            elif name not in past:
                shape = [extents.get(d, d) for d in shape]
                inputs[name] = rng.standard_normal(shape).astype(dtype)
        want, *now = peer.run(None, inputs)
        past = dict(zip(past, now))
        numbers = {name: np.array(value, np.int32) for name, value in extents.items()}
        got = ours.run({**inputs, **numbers}, want.shape, dtype)
        if not np.allclose(got, want, rtol=error, atol=error):
            sys.exit(f"{path}: call {number}: {np.abs(got - want).max()} apart")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
    else:
        check(*sys.argv[2:4], int(sys.argv[4]), float(sys.argv[5]))
