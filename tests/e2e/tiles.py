"""Products of all shapes that a matrix unit takes, and some that it does not, for tiles.sh.

    tiles.py FOLDER
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, U8, I8, I32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
rng = np.random.default_rng(1)


def constant(name, array):
    return numpy_helper.from_array(array, name)


def bytes_of(*shape):
    return rng.integers(-128, 128, shape, np.int8)


def save(folder, name, nodes, inputs, outputs, constants, opset=17):
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / f"{name}.onnx")


def product(folder, rows, depth, columns):
    """Bytes, of constants and of two inputs; floats, for --precision=bf16."""
    size = f"{rows}_{depth}_{columns}"
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    given = [("a", U8, [rows, depth]), ("b", I8, [depth, columns])]
    result = [("y", I32, [rows, columns])]
    save(folder, f"bytes_{size}", [node], given[:1], result, [constant("b", bytes_of(depth, columns))])
    save(folder, f"both_{size}", [node], given, result, [])
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["y"]),
    ]
    constants = [
        constant(name, rng.standard_normal(shape).astype(np.float32))
        for name, shape in (("b", (depth, 48)), ("c", (48, columns)))
    ]
    given, result = [("a", F, [rows, depth])], [("y", F, [rows, columns])]
    save(folder, f"floats_{size}", nodes, given, result, constants)


def convolution(folder, channels, kernel, stride, maps, size):
    node = helper.make_node(
        "QLinearConv",
        ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"],
        ["y"],
        pads=[kernel // 2] * 4,
        strides=[stride, stride],
    )
    constants = [
        constant("xs", np.float32(0.02)),
        constant("xz", np.uint8(131)),
        constant("w", bytes_of(maps, channels, kernel, kernel)),
        constant("ws", rng.uniform(0.001, 0.01, maps).astype(np.float32)),
        constant("wz", np.zeros(maps, np.int8)),
        constant("ys", np.float32(0.1)),
        constant("yz", np.uint8(120)),
        constant("bias", rng.integers(-5000, 5000, maps, np.int32)),
    ]
    after = (size - 1) // stride + 1
    given, result = [("x", U8, [1, channels, size, size])], [("y", U8, [1, maps, after, after])]
    name = f"conv_{channels}_{kernel}_{stride}_{maps}_{size}"
    save(folder, name, [node], given, result, constants)


PRODUCTS = ((37, 96, 40), (16, 64, 16), (4, 16, 100), (33, 80, 9), (128, 300, 64), (5, 512, 256))

# channels, window, stride, maps, size: lines of an image in one tile, windows of few channels, and
# tiles whose last one overlaps the one before
CONVOLUTIONS = (
    (16, 3, 1, 24, 19),
    (64, 1, 1, 32, 14),
    (32, 3, 2, 48, 17),
    (20, 5, 1, 17, 9),
    (3, 7, 2, 64, 30),
    (64, 3, 1, 80, 7),
    (64, 3, 1, 32, 14),
    (128, 1, 2, 96, 14),
    (256, 1, 1, 64, 5),
)


def float_convolution(folder, channels, kernel, stride, maps, size):
    """Two, so that bytes of the second lie with channels innermost; for --precision=bf16."""
    nodes, constants, name = [], [], "x"
    for i, (to, step) in enumerate(((maps, stride), (maps, 1))):
        given = channels if i == 0 else maps
        weights = rng.standard_normal((to, given, kernel, kernel)).astype(np.float32)
        constants.append(constant(f"w{i}", weights / np.float32(kernel * given**0.5)))
        nodes.append(
            helper.make_node(
                "Conv", [name, f"w{i}"], [f"y{i}"], pads=[kernel // 2] * 4, strides=[step, step]
            )
        )
        name = f"y{i}"
    after = (size - 1) // stride + 1
    given, result = [("x", F, [1, channels, size, size])], [(name, F, [1, maps, after, after])]
    label = f"floats_conv_{channels}_{kernel}_{stride}_{maps}_{size}"
    save(folder, label, nodes, given, result, constants)


def main():
    folder = pathlib.Path(sys.argv[1])
    for rows, depth, columns in PRODUCTS:
        product(folder, rows, depth, columns)
    for each in CONVOLUTIONS:
        convolution(folder, *each)
    for each in ((3, 7, 2, 64, 30), (64, 3, 1, 80, 7), (16, 3, 1, 32, 12)):
        float_convolution(folder, *each)
    save(
        folder,
        "varying",
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        [("a", U8, ["n", 64])],
        [("y", I32, ["n", 48])],
        [constant("b", bytes_of(64, 48))],
    )


if __name__ == "__main__":
    main()
