"""Products, also of bytes, whose columns leave half a vector over, and convolutions, for halves.sh.

    halves.py FOLDER
"""

import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper
from tiles import bytes_of, constant, rng, save

F = TensorProto.FLOAT


def floats(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def matmul(folder, rows, depth, columns):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    weights = [constant("w", floats(depth, columns)), constant("b", floats(columns))]
    name = f"matmul_{rows}x{depth}x{columns}"
    save(folder, name, nodes, [("x", F, [rows, depth])], [("y", F, [rows, columns])], weights)


def of_bytes(folder, rows, depth, columns):
    weights = [constant("w", bytes_of(depth, columns))]
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    inputs = [("x", TensorProto.UINT8, [rows, depth])]
    outputs = [("y", TensorProto.INT32, [rows, columns])]
    save(folder, f"bytes_{rows}x{depth}x{columns}", nodes, inputs, outputs, weights)


def conv_of_bytes(folder, channels, size):
    """Of which Winograd's tiles are words."""
    constants = {
        "w": bytes_of(channels, channels, 3, 3),
        "half": np.float32(0.5),
        "wide": np.float32(64 * channels),
        "middle": np.uint8(128),
        "none": np.int8(0),
    }
    operands = ["x", "half", "middle", "w", "half", "none", "wide", "middle"]
    nodes = [helper.make_node("QLinearConv", operands, ["y"], pads=[1] * 4)]
    weights = [constant(name, np.asarray(array)) for name, array in constants.items()]
    inputs = [("x", TensorProto.UINT8, [1, channels, size, size])]
    outputs = [("y", TensorProto.UINT8, [1, channels, size, size])]
    save(folder, f"conv_of_bytes_{channels}", nodes, inputs, outputs, weights)


def convs(folder, name, size, channels, window, stride=1):
    """One after the other, with so many channels before, between and behind them."""
    nodes, weights, value = [], [], "x"
    for i, (inside, outside) in enumerate(zip(channels, channels[1:], strict=False)):
        weights += [constant(f"w{i}", floats(outside, inside, *window))]
        weights += [constant(f"b{i}", floats(outside))]
        pads = [window[0] // 2, window[1] // 2] * 2
        attributes = {"pads": pads, "strides": [stride] * 2}
        nodes.append(helper.make_node("Conv", [value, f"w{i}", f"b{i}"], [f"c{i}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        value = f"r{i}"
    inputs = [("x", F, [1, channels[0], *size])]
    save(folder, name, nodes, inputs, [(value, F, [None] * 4)], weights)


def main():
    folder = pathlib.Path(sys.argv[1])
    matmul(folder, 28, 33, 24)
    matmul(folder, 13, 20, 40)
    matmul(folder, 7, 16, 24)
    matmul(folder, 2, 48, 56)
    of_bytes(folder, 28, 36, 24)
    of_bytes(folder, 9, 64, 40)
    conv_of_bytes(folder, 24, 28)
    conv_of_bytes(folder, 48, 16)
    convs(folder, "into_24", (18, 22), (3, 24, 24), (3, 3), 2)
    convs(folder, "pixels", (9, 40), (3, 8, 8, 5), (3, 3))
    convs(folder, "long_windows", (7, 70), (8, 8, 1), (1, 9))
    convs(folder, "pixels_and_channels", (9, 40), (8, 8, 24, 8), (1, 1))


main()
