"""Products of bytes whose sums fit into 16 bits, or nearly do, for pairs.sh.

    pairs.py FOLDER
"""

import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper
from tiles import constant, rng, save

F, U8, I32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32


def weights(depth, columns, outliers):
    """As trained ones are: most are near zero, a channel's largest is 127."""
    w = rng.laplace(size=(depth, columns))
    w = np.rint(w / np.abs(w).max(0) * 127)
    at = rng.random(w.shape) < outliers
    return np.where(at, rng.choice([-128, 127], w.shape), w).astype(np.int8)


def product(folder, name, rows, w):
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    depth, columns = w.shape
    given, result = [("a", U8, [rows, depth])], [("y", I32, [rows, columns])]
    name = f"{name}_{rows}_{depth}_{columns}"
    save(folder, name, [node], given, result, [constant("b", w)])


def medium(depth, columns, large):
    """None is near zero; of so many fours of the depth all are as large as they can be."""
    w = rng.integers(-60, 61, (depth, columns))
    for four in rng.choice(depth // 4, large, replace=False):
        w[four * 4 : four * 4 + 4] = rng.choice([-128, 127], (4, columns))
    return w.astype(np.int8)


def normal(depth, columns):
    """Many sums are too large: each column chooses its own."""
    w = rng.standard_normal((depth, columns))
    return np.rint(w / np.abs(w).max(0) * 127).astype(np.int8)


def convolution(folder, name, channels, stride, maps, size, w):
    nodes = [
        helper.make_node("QuantizeLinear", ["f", "xs", "xz"], ["x"]),
        helper.make_node(
            "QLinearConv",
            ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"],
            ["y"],
            strides=[stride, stride],
        ),
    ]
    w = w.T.reshape(maps, channels, 1, 1)
    constants = [
        constant("xs", np.float32(0.02)),
        constant("xz", np.uint8(131)),
        constant("w", np.ascontiguousarray(w)),
        constant("ws", rng.uniform(0.001, 0.01, maps).astype(np.float32)),
        constant("wz", np.zeros(maps, np.int8)),
        constant("ys", np.float32(0.1)),
        constant("yz", np.uint8(120)),
    ]
    after = (size - 1) // stride + 1
    given, result = [("f", F, [1, channels, size, size])], [("y", U8, [1, maps, after, after])]
    save(folder, f"{name}_{channels}_{stride}_{maps}_{size}", nodes, given, result, constants)


def main():
    folder = pathlib.Path(sys.argv[1])
    product(folder, "product", 40, weights(640, 96, 0.0))
    product(folder, "product", 17, weights(1024, 48, 0.001))
    product(folder, "product", 4, weights(640, 96, 0.0))  # too few rows to deal columns
    product(folder, "product", "n", weights(768, 64, 0.0))
    product(folder, "fours", 9, medium(260, 48, 4))
    convolution(folder, "conv", 512, 1, 64, 7, weights(512, 64, 0.0))
    convolution(folder, "conv", 768, 2, 80, 9, weights(768, 80, 0.0))
    product(folder, "dealt", 40, normal(264, 96))
    product(folder, "dealt", 9, normal(1024, 48))
    product(folder, "dealt", "n", normal(512, 64))
    convolution(folder, "dealt_conv", 256, 1, 64, 7, normal(256, 64))
    convolution(folder, "dealt_conv", 264, 2, 80, 9, normal(264, 80))


if __name__ == "__main__":
    main()
