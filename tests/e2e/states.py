"""A small model with states of all kinds for states.sh.

    states.py make MODEL X           the model, and the inputs of CALLS calls
    states.py check MODEL X RESULTS  compares RESULTS/*.npy with ONNX Runtime, fed its own outputs
"""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

CALLS = 9
STATES = {"h": "h_next", "cache": "cache_next", "row": "row_next", "delay": "delay_next"}


def make(path, inputs):
    """y reads a hidden state (all of it is read before it is written), a cache of rows (one is
    written each time, at a position that is a state too), and a delay line, which begins as its
    initializer says."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["xw"]),
        helper.make_node("MatMul", ["h", "R"], ["hr"]),
        helper.make_node("Add", ["xw", "hr"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["h_next"]),
        helper.make_node("Unsqueeze", ["row", "zero"], ["row1"]),
        helper.make_node("Unsqueeze", ["row1", "zero"], ["row2"]),
        helper.make_node("ScatterND", ["cache", "row2", "h_next"], ["cache_next"]),
        helper.make_node("Add", ["row", "one"], ["more"]),
        helper.make_node("Mod", ["more", "rows"], ["row_next"]),
        helper.make_node("Slice", ["delay", "first", "end", "zero"], ["kept"]),
        helper.make_node("Concat", ["kept", "x"], ["delay_next"], axis=0),
        helper.make_node("ReduceMean", ["cache_next"], ["mean"], keepdims=0),
        helper.make_node("ReduceSum", ["delay", "zero"], ["old"], keepdims=0),
        helper.make_node("Add", ["old", "mean"], ["y"]),
        helper.make_node("Identity", ["row"], ["at"]),
    ]
    constants = {
        "W": rng.standard_normal((24, 160)).astype(np.float32),
        "R": rng.standard_normal((160, 160)).astype(np.float32) / 12,
        "delay": rng.standard_normal((3, 24)).astype(np.float32),
        "zero": np.array([0]),
        "first": np.array([1]),
        "end": np.array([3]),
        "one": np.array(1),
        "rows": np.array(4),
    }

    def tensor(name, shape, dtype=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, dtype, shape)

    graph = helper.make_graph(
        nodes,
        "states",
        [
            tensor("h", [1, 160]),
            tensor("delay", [3, 24]),
            tensor("x", [1, 24]),
            tensor("cache", [4, 160]),
            tensor("row", [], TensorProto.INT64),
        ],
        [
            tensor("h_next", [1, 160]),
            tensor("y", [24]),
            tensor("cache_next", [4, 160]),
            tensor("row_next", [], TensorProto.INT64),
            tensor("at", [], TensorProto.INT64),
            tensor("delay_next", [3, 24]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    np.save(inputs, rng.standard_normal((CALLS, 1, 24)).astype(np.float32))


def check(path, inputs, results):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    got = {name: np.load(f"{results}/{name}.npy") for name in names if name not in STATES.values()}
    state = {
        "h": np.zeros((1, 160), np.float32),
        "cache": np.zeros((4, 160), np.float32),
        "row": np.array(0),
    }
    for call, x in enumerate(np.load(inputs)):
        want = dict(zip(names, session.run(None, {"x": x, **state})))
        state = {past: want[present] for past, present in STATES.items()}
        for name, values in got.items():
            np.testing.assert_allclose(
                values[call], want[name], rtol=1e-4, atol=1e-5, err_msg=f"{name}, call {call}"
            )


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
