"""Products of floats and of bytes, and convolutions, whose sums functions follow, for later.sh.

    later.py FOLDER
"""

import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper
from tiles import bytes_of, constant, rng, save

F, U8 = TensorProto.FLOAT, TensorProto.UINT8


def floats(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def finish(value):
    """SiLU, and what is added to it: the nodes that make y."""
    return [
        helper.make_node("Sigmoid", [value], ["s"]),
        helper.make_node("Mul", [value, "s"], ["m"]),
        helper.make_node("Add", ["m", "r"], ["y"]),
    ]


def matmul(folder, rows, depth, columns):
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["p"]), *finish("p")]
    weights = [constant("w", floats(depth, columns)), constant("b", floats(columns))]
    inputs = [("x", F, [rows, depth]), ("r", F, [rows, columns])]
    save(folder, f"floats_{rows}x{depth}x{columns}", nodes, inputs, [("y", F, [rows, columns])], weights)


def of_bytes(folder, rows, depth, columns):
    """To bytes again, which are stored several vectors at a time."""
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=F),
        helper.make_node("Mul", ["f", "scale"], ["p"]),
        *finish("p")[:2],
        helper.make_node("Add", ["m", "r"], ["t"]),
        helper.make_node("QuantizeLinear", ["t", "step", "middle"], ["y"]),
    ]
    weights = [
        constant("w", bytes_of(depth, columns)),
        constant("scale", floats(columns) / depth / 100),
        constant("step", np.float32(0.02)),
        constant("middle", np.uint8(100)),
    ]
    inputs = [("x", U8, [rows, depth]), ("r", F, [rows, columns])]
    save(folder, f"bytes_{rows}x{depth}x{columns}", nodes, inputs, [("y", U8, [rows, columns])], weights)


def convolution(folder, size, inside, outside, window):
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["p"], pads=[window // 2] * 4), *finish("p")]
    weights = [constant("w", floats(outside, inside, window, window)), constant("b", floats(outside))]
    shape = [1, outside, *size]
    inputs = [("x", F, [1, inside, *size]), ("r", F, shape)]
    save(folder, f"conv_{inside}_{outside}_{window}", nodes, inputs, [("y", F, shape)], weights)


def main():
    folder = pathlib.Path(sys.argv[1])
    matmul(folder, 56, 33, 64)
    matmul(folder, 25, 7, 32)
    matmul(folder, 64, 3, 96)  # fewer steps than parts
    matmul(folder, 40, 64, 24)  # half a vector is left over: not later
    of_bytes(folder, 56, 48, 64)
    of_bytes(folder, 27, 36, 128)
    of_bytes(folder, 16, 8, 32)
    convolution(folder, (9, 14), 5, 32, 3)  # at an edge fewer steps than within
    convolution(folder, (7, 20), 24, 64, 1)


main()
