"""Models for big.sh.

    big.py FOLDER

sparse.onnx   400 MB of weights in a file of holes; products that are packed, a table that is not
half.onnx     200 MB of half floats
small.onnx    weights that are packed in several pieces, of shapes that are awkward; x.npy, h.npy
chain.onnx    100,000 nodes
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BYTES = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2}


class Model:
    def __init__(self, folder, name):
        self.path, self.data = folder / f"{name}.onnx", folder / f"{name}.data"
        self.nodes, self.weights, self.parts, self.at = [], [], [], 0

    def weight(self, name, dtype, shape, content):
        """`content`: the first bytes, or all of them."""
        size = int(np.prod(shape)) * BYTES[dtype]
        tensor = TensorProto(name=name, data_type=dtype, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in ("location", self.data.name), ("offset", self.at), ("length", size):
            tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        self.parts.append((self.at, content))
        self.at += -size % 4096 + size

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def save(self, inputs, outputs):
        with open(self.data, "wb") as file:
            file.truncate(self.at)
            for at, content in self.parts:
                file.seek(at)
                file.write(content)
        info = helper.make_tensor_value_info
        ends = [info(*i) for i in inputs], [info(*o) for o in outputs]
        graph = helper.make_graph(self.nodes, "big", *ends, self.weights)
        opset = [helper.make_opsetid("", 17)]
        self.path.write_bytes(
            helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
        )


def sparse(folder):
    m, v, d = Model(folder, "sparse"), "x", 2560
    for i in range(8):
        m.weight(f"w{i}", TensorProto.FLOAT, [d, d], b"%016d" % i)
        m.weight(f"t{i}", TensorProto.FLOAT, [d, d], b"%016d" % -i)
        v = m.node("Relu", m.node("MatMul", v, f"w{i}"))
        v = m.node("Relu", m.node("Gemm", v, f"t{i}", transB=1))
    m.weight("table", TensorProto.FLOAT, [8192, d], b"table")
    v = m.node("Add", v, m.node("Gather", "table", "at"))
    m.save([("x", TensorProto.FLOAT, [4, d]), ("at", TensorProto.INT64, [4])],
           [(v, TensorProto.FLOAT, [4, d])])


def half(folder):
    m, v, d = Model(folder, "half"), "x", 2560
    for i in range(16):
        m.weight(f"w{i}", TensorProto.FLOAT16, [d, d], b"%016d" % i)
        v = m.node("Relu", m.node("MatMul", v, f"w{i}"))
    m.save([("x", TensorProto.FLOAT16, [4, d])], [(v, TensorProto.FLOAT16, [4, d])])


def small(folder):
    m, rng, f = Model(folder, "small"), np.random.default_rng(1), TensorProto.FLOAT

    def weight(name, *shape, dtype=np.float32):
        values = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype)
        m.weight(name, helper.np_dtype_to_tensor_dtype(values.dtype), shape, values.tobytes())
        return name

    v = m.node("MatMul", "x", weight("large", 1531, 2053))
    v = m.node("Gemm", v, weight("turned", 517, 2053), transB=1)
    v = m.node("Tanh", v)
    v = m.node("MatMul", v, m.node("Transpose", weight("moved", 2049, 517), perm=[1, 0]))
    v = m.node("MatMul", v, m.node("Cast", weight("cast", 2049, 1331, dtype=np.float16), to=f))
    shape = numpy_helper.from_array(np.array([1, 11, 11, 55], np.int64), "shape")
    m.weights.append(shape)
    v = m.node("Reshape", v, "shape")
    v = m.node("Conv", v, weight("window", 67, 11, 3, 3), pads=[1, 1, 1, 1])
    v = m.node("Conv", v, weight("point", 129, 67, 1, 1))
    np.save(folder / "x.npy", rng.standard_normal((5, 1531), np.float32))
    np.save(folder / "h.npy", rng.standard_normal((3, 2049), np.float32).astype(np.float16))
    half = m.node("MatMul", "h", weight("half", 2049, 1100, dtype=np.float16))
    m.save([("x", f, [5, 1531]), ("h", TensorProto.FLOAT16, [3, 2049])],
           [(v, f, [1, 129, 11, 55]), (half, TensorProto.FLOAT16, [3, 1100])])


def chain(folder):
    ops, nodes = ("Relu", "Abs", "Neg", "Sigmoid"), []
    for i in range(100000):
        nodes.append(helper.make_node(ops[i % 4], [f"v{i}" if i else "x"], [f"v{i + 1}"]))
    info = helper.make_tensor_value_info
    ends = [info(name, TensorProto.FLOAT, [1, 16]) for name in ("x", f"v{len(nodes)}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
              folder / "chain.onnx")


for make in sparse, half, small, chain:
    make(Path(sys.argv[1]))
