"""resident.py MODEL: a product with weights of 2.4 MB."""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = np.random.default_rng(1).standard_normal((1024, 600)).astype(np.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["y"])],
    "resident",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1024])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 600])],
    [numpy_helper.from_array(weights, "w")],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), sys.argv[1])
