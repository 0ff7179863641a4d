"""Operators of com.microsoft with a state of fixed size, for recurrent.sh.

    recurrent.py make FOLDER          NAME.onnx
    recurrent.py check MODEL LIBRARY  calls the library, which keeps the state, for several tokens
                                      and for single ones; ONNX Runtime is fed its own outputs
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from caches import Library

BATCH, ROOM, CALLS = 1, 32, [4, 1, 1, 3, 1]
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def constant(name, *values, shape=None, dtype=np.float32):
    return numpy_helper.from_array(np.array(values, dtype).reshape(shape or len(values)), name)


def normal(name, *shape):
    array = np.random.default_rng(len(name) + sum(shape)).standard_normal(shape)
    return numpy_helper.from_array(array.astype(np.float32), name)


# NAME: (operator, inputs, attributes, shapes of inputs, shapes of states, constants); inputs of
# other types than f32 are in INTEGERS
INTEGERS = {"ids": INT64, "total": INT32, "ends": INT32, "place": INT32}
LINEAR = {"q": ["b", "t", 8], "k": ["b", "t", 8], "v": ["b", "t", 20], "g": ["b", "t", 4]}
BUFFER = [BATCH, 2, ROOM, 16]
MODELS = {
    "linear": (
        "LinearAttention",
        ["q", "k", "v", "past_s", "g", "beta"],
        {"q_num_heads": 2, "kv_num_heads": 4},
        LINEAR | {"beta": ["b", "t", 4]},
        {"s": [BATCH, 4, 4, 5]},
        [],
    ),
    "conv": (
        "CausalConvWithState",
        ["x", "w", "bias", "past_s"],
        {"channels_last": 1, "dilation": 2, "activation": "silu"},
        {"x": ["b", "t", 24]},
        {"s": [BATCH, 6, 24]},
        [normal("w", 24, 1, 4), normal("bias", 24)],
    ),
    "hashes": (
        "NGramHashMapping",
        ["ids", "factors", "sizes", "past_ids"],
        {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 1},
        {"ids": ["b", "t"]},
        {"ids": [BATCH, 2]},
        [
            constant("factors", 3**30, -(5**20), 7**15, dtype=np.int64),
            constant("sizes", 11, 13, 17, 19, dtype=np.int64),
        ],
    ),
    "sparse": (
        "SparseAttention",
        ["q", "k", "v", "past_k", "past_v", "rows", "columns", "total", "ends", "cos", "sin"],
        {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, "do_rotary": 1},
        {name: ["b", "t", n] for name, n in (("q", 64), ("k", 32), ("v", 32))}
        | {"total": [1], "ends": ["b"]},
        {"k": BUFFER, "v": BUFFER},
        [
            constant("rows", 0, 1, 3, 0, 1, 2, shape=(2, 3), dtype=np.int32),
            constant("columns", 0, 0, 1, 0, 1, -1, shape=(2, 3), dtype=np.int32),
            normal("cos", ROOM, 8),
            normal("sin", ROOM, 8),
        ],
    ),
    "decoder": (
        "DecoderMaskedMultiHeadAttention",
        ["q", "k", "v", "", "", "past_k", "past_v", "place"],
        {"num_heads": 2, "past_present_share_buffer": 1},
        {"q": ["b", 1, 32], "k": ["b", 1, 32], "v": ["b", 1, 32], "place": [1]},
        {"k": BUFFER, "v": BUFFER},
        [],
    ),
}


def make(folder):
    for name, (op, inputs, attributes, shapes, states, constants) in MODELS.items():
        outputs = ["y"] + [f"present_{s}" for s in states]
        node = helper.make_node(op, inputs, outputs, domain="com.microsoft", **attributes)

        def tensor(label, shape):
            word = label.split("_")[-1] if "_" in label else label
            return helper.make_tensor_value_info(label, INTEGERS.get(word, FLOAT), shape)

        given = [tensor(n, s) for n, s in shapes.items()]
        given += [tensor(f"past_{s}", shape) for s, shape in states.items()]
        kept = [tensor(f"present_{s}", shape) for s, shape in states.items()]
        result = helper.make_tensor_value_info("y", INT64 if name == "hashes" else FLOAT, None)
        graph = helper.make_graph([node], name, given, [result] + kept, constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(
            helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / f"{name}.onnx"
        )


def run_bound(session, inputs):
    """With each state's memory as input and output, which some operators ask for."""
    binding, states = session.io_binding(), {}
    for name, array in inputs.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, value)
        states[name.replace("past", "present")] = value
    for output in session.get_outputs():
        if output.name in states:
            binding.bind_ortvalue_output(output.name, states[output.name])
        else:
            binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    return [value.numpy().copy() for value in binding.get_outputs()]


def check(path, library):
    rng = np.random.default_rng(5)
    name = pathlib.Path(path).stem
    peer = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ours, before = Library(library), 0
    past = {}
    for number, length in enumerate(CALLS):
        length = 1 if name == "decoder" else length
        inputs = {}
        for i in peer.get_inputs():
            shape = [{"b": BATCH, "t": length}.get(n, n) for n in i.shape]
            special = {"total": before + length, "ends": before + length, "place": before}
            if i.name in special:
                inputs[i.name] = np.full(shape, special[i.name], np.int32)
            elif "int64" in i.type:
                inputs[i.name] = rng.integers(0, 9, shape)
            else:
                inputs[i.name] = rng.uniform(-1, 1, shape).astype(np.float32)
            if i.name.startswith("past"):
                inputs[i.name] = past.get(i.name, np.zeros(shape, inputs[i.name].dtype))
        before += length
        want, *now = run_bound(peer, inputs) if name == "sparse" else peer.run(None, inputs)
        past = dict(zip([n for n in inputs if n.startswith("past")], now))
        extents = {"b": np.array(BATCH, np.int32), "t": np.array(length, np.int32)}
        got = ours.run({**inputs, **extents}, want.shape, want.dtype)
        if not np.allclose(got, want, rtol=1e-5, atol=1e-5):
            sys.exit(f"{path}: call {number}: {np.abs(got - want).max()} apart")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
    else:
        check(*sys.argv[2:4])
