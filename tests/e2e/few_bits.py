"""Products with weights of 2, 4 and 8 bits, for few_bits.sh: of MatMulNBits, and of DequantizeLinear.

    few_bits.py FOLDER

A folder "bytes" in it holds those of which one factor may be rounded to bytes.
"""

import itertools
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(1)


def save(path, nodes, shapes, constants, opset, varying=False):
    rows, columns = shapes
    if varying:
        rows, columns = ["n", *rows[1:]], ["n", *columns[1:]]
    graph = helper.make_graph(
        nodes,
        "few_bits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, rows)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, columns)],
        constants,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def scales(*shape):
    return numpy_helper.from_array(rng.uniform(0.05, 0.1, shape).astype(np.float32), "s")


def n_bits(folder, bits, block, rows, depth, columns, zeros, level, varying=False):
    blocks = -(-depth // block)
    weights = rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8)
    constants = [numpy_helper.from_array(weights, "w"), scales(columns * blocks)]
    if zeros:
        packed = rng.integers(0, 256, columns * -(-blocks * bits // 8), np.uint8)
        constants.append(numpy_helper.from_array(packed, "z"))
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s", *(["z"] if zeros else [])],
        ["y"],
        domain="com.microsoft",
        K=depth,
        N=columns,
        bits=bits,
        block_size=block,
        accuracy_level=level,
    )
    name = f"n_bits_{bits}_{block}_{rows}_{depth}_{columns}_{level}.onnx"
    if varying:
        name = "varying_" + name
    save(folder / name, [node], ([rows, depth], [rows, columns]), constants, 17, varying)


def four_bits(name, values, signed):
    values = values.reshape(-1, 2) & 15
    packed = (values[:, 0] | values[:, 1] << 4).astype(np.uint8).tobytes()
    return name, TensorProto.INT4 if signed else TensorProto.UINT4, packed


def dequantized(folder, signed, block, rows, depth, columns, turned, zeros):
    low = -8 if signed else 0
    axis, shape = (1, (columns, depth)) if turned else (0, (depth, columns))
    blocks = [n // block if i == axis else n for i, n in enumerate(shape)]
    names, constants = ["w", "s"], [scales(*blocks)]
    tensors = [("w", shape)]
    if zeros:
        tensors.append(("z", blocks))
        names.append("z")
    for name, extents in tensors:
        values = rng.integers(low, low + 16, extents)
        kind, packed = four_bits(name, values, signed)[1:]
        constants.append(helper.make_tensor(name, kind, extents, packed, raw=True))
    nodes = [helper.make_node("DequantizeLinear", names, ["d"], axis=axis, block_size=block)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "d"], ["y"]))
    name = f"decoded_{'i' if signed else 'u'}4_{block}_{rows}_{depth}_{columns}_{turned}.onnx"
    save(folder / name, nodes, ([rows, depth], [rows, columns]), constants, 21)


def main():
    folder = pathlib.Path(sys.argv[1])
    rounded = folder / "bytes"
    rounded.mkdir(exist_ok=True)
    for bits, zeros, level in itertools.product((2, 4, 8), (False, True), (0, 4)):
        n_bits(folder, bits, 32, 3, 96, 40, zeros, level)
    n_bits(folder, 4, 16, 1, 200, 70, False, 4)
    n_bits(folder, 4, 128, 17, 256, 33, True, 0)
    n_bits(folder, 4, 32, 20, 64, 48, True, 4, varying=True)
    for rows, varying in ((1, False), (20, True)):  # columns come as streams to a lone row
        n_bits(folder, 4, 32, rows, 512, 512, False, 4, varying=varying)
    (folder / "far").mkdir(exist_ok=True)
    n_bits(folder / "far", 4, 32, 24, 32, 98304, False, 4)  # more results than caches hold
    for signed, turned in itertools.product((False, True), (0, 1)):
        dequantized(folder, signed, 32, 2, 64, 40, turned, zeros=turned != signed)
        dequantized(rounded, signed, 16, 9, 128, 24, turned, zeros=turned == signed)


main()
