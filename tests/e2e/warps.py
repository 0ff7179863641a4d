"""Products of floats of 16 bits that warps multiply, of shapes that fit their tiles and of others, for
warps.sh.

    warps.py FOLDER
"""

import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper
from tiles import constant, rng, save

F, F16 = TensorProto.FLOAT, TensorProto.FLOAT16


def weights(name, *shape, depth):
    return constant(name, (rng.standard_normal(shape) / depth**0.5).astype(np.float32))


def product(folder, rows, depth, columns, turned):
    """The first has an input as an operand, which stays as it is; with --precision warps do the
    second, whose rows or columns may lie across its constant."""
    middle = helper.make_node("MatMul", ["a", "b"], ["h"])
    last = helper.make_node("Gemm", ["h", "c", "d"], ["y"], transB=int(turned))
    shape = (columns, depth) if turned else (depth, columns)
    constants = [
        weights("b", 24, depth, depth=24),
        weights("c", *shape, depth=depth),
        weights("d", columns, depth=1),
    ]
    save(
        folder,
        f"product_{rows}_{depth}_{columns}_{int(turned)}",
        [middle, last],
        [("a", F, [rows, 24])],
        [("y", F, [rows, columns])],
        constants,
    )


def attention(folder, heads, length, size):
    """Products of two computed tensors, of which lines of steps or of columns lie side by side."""
    width = heads * size
    nodes, constants = [], []
    for name in "qkv":
        constants.append(weights(f"w{name}", width, width, depth=width))
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [name]),
            helper.make_node("Reshape", [name, "split"], [f"{name}s"]),
            helper.make_node("Transpose", [f"{name}s"], [f"{name}h"], perm=[1, 0, 2]),
        ]
    constants.append(constant("split", np.array([length, heads, size], np.int64)))
    nodes += [
        helper.make_node("Transpose", ["kh"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["qh", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("MatMul", ["weights", "vh"], ["y"]),
    ]
    save(
        folder,
        f"attention_{heads}_{length}_{size}",
        nodes,
        [("x", F, [length, width])],
        [("y", F, [heads, length, size])],
        constants,
    )


def convolution(folder, channels, maps, size, **attributes):
    """Behind one of 1 x 1, so that it does not read the input."""
    window = attributes.pop("window")
    group = attributes.get("group", 1)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["y"], **attributes),
    ]
    depth = channels // group
    constants = [
        weights("w0", channels, 4, 1, 1, depth=4),
        weights("w1", maps, depth, window, window, depth=depth * window**2),
    ]
    label = "_".join(f"{k}{v}" for k, v in {**attributes, "window": window}.items())
    label = label.replace("[", "").replace("]", "").replace(", ", "")
    save(
        folder,
        f"window_{channels}_{maps}_{size}_{label}",
        nodes,
        [("x", F, [1, 4, size, size])],
        [("y", F, [1, maps, "height", "width"])],
        constants,
    )


def halves(folder, rows, depth, columns):
    """A model of half floats: all of its tensors are."""
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["y"]),
    ]
    constants = [
        constant("b", (rng.standard_normal((depth, 72)) / depth**0.5).astype(np.float16)),
        constant("c", (rng.standard_normal((72, columns)) / 72**0.5).astype(np.float16)),
    ]
    given, result = [("a", F16, [2, rows, depth])], [("y", F16, [2, rows, columns])]
    save(folder, f"halves_{rows}_{depth}_{columns}", nodes, given, result, constants)


def main():
    folder = pathlib.Path(sys.argv[1])
    for i, each in enumerate(((128, 256, 128), (37, 96, 40), (16, 64, 16), (9, 33, 8), (200, 100, 72))):
        product(folder, *each, turned=i % 2 == 1)
        product(folder, *each, turned=i % 2 == 0)
    for each in ((2, 64, 32), (3, 50, 24), (1, 33, 40)):
        attention(folder, *each)
    convolution(folder, 32, 48, 12, window=3, pads=[1] * 4)
    convolution(folder, 64, 32, 9, window=3, pads=[1] * 4, strides=[2, 2])
    convolution(folder, 40, 24, 11, window=3, pads=[2] * 4, dilations=[2, 2])
    convolution(folder, 48, 64, 8, window=1)
    convolution(folder, 64, 64, 10, window=3, pads=[1] * 4, group=4)
    convolution(folder, 16, 20, 13, window=5, pads=[2, 1, 0, 2])
    for each in ((33, 64, 40), (64, 128, 64)):
        halves(folder, *each)


if __name__ == "__main__":
    main()
