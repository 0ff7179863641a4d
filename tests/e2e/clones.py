"""A convolution of two results a channel, a squeeze and an excitation, of which GCC 12 did not call
the first: a clone that knew that its weights and its bias lie in one array seemed to have no effect.
"""

import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

CHANNELS, RESULTS, FEW = 384, 768, 48


def main(folder):
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    constants = {
        "w1": numbers(RESULTS, 1, 1, 1),
        "w3": numbers(RESULTS, 1, 3, 3),
        "zeros": np.zeros(RESULTS, np.float32),
        "squeeze": numbers(FEW, RESULTS, 1, 1) * np.float32(0.1),
        "excite": numbers(RESULTS, FEW, 1, 1) * np.float32(0.1),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "zeros"], ["one"], group=CHANNELS),
        helper.make_node("Conv", ["x", "w3", "zeros"], ["three"], group=CHANNELS, pads=[1] * 4),
        helper.make_node("Add", ["one", "three"], ["sum"]),
        helper.make_node("GlobalAveragePool", ["sum"], ["mean"]),
        helper.make_node("Conv", ["mean", "squeeze"], ["few"]),
        helper.make_node("Conv", ["few", "excite"], ["gate"]),
        helper.make_node("Mul", ["sum", "gate"], ["gated"]),
        helper.make_node("Erf", ["gated"], ["erf"]),
        helper.make_node("Mul", ["gated", "erf"], ["y"]),
    ]
    shape = {"x": [1, CHANNELS, 8, 8], "y": [1, RESULTS, 8, 8]}
    f32 = onnx.TensorProto.FLOAT
    info = {name: helper.make_tensor_value_info(name, f32, shape[name]) for name in shape}
    graph = helper.make_graph(
        nodes, "clones", [info["x"]], [info["y"]],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, f"{folder}/clones.onnx")


main(sys.argv[1])
