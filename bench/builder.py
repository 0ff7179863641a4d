"""Builds ONNX graphs of known networks with random weights from a fixed seed.

Weights are scaled by their fan-in, so that activations neither vanish nor grow and comparing the
outputs of two runtimes means something.
"""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

import export_mobilenetv2

# Protobuf ends at 2 GiB and every reader copies what is inside: above this many bytes of weights a
# model keeps them in a file of their own.
EXTERNAL_BYTES = 64 << 20


class Net(export_mobilenetv2.Builder):
    """A graph under construction. Methods add nodes and return the name of their result."""

    def ints(self, name, values):
        return self.constant(name, np.asarray(values, np.int64))

    def scalar(self, name, value):
        return self.constant(name, np.float32(value))

    def conv(
        self, x, name, inputs, outputs, kernel, stride=1, pad=None, gain=1.0, group=1, pads=None
    ):
        """kernel: a side, or height and width. pad: on each side, half of it unless given; pads: as
        ONNX lists them."""
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        if pads is None:
            pads = [high // 2, wide // 2] * 2 if pad is None else [pad] * 4
        weight = self.random(
            name + ".weight",
            (outputs, inputs // group, high, wide),
            math.sqrt(gain / (inputs // group * high * wide)),
        )
        return self.node(
            "Conv",
            [x, weight, self.random(name + ".bias", (outputs,), 0.1)],
            name,
            dilations=[1, 1],
            group=group,
            kernel_shape=[high, wide],
            pads=pads,
            strides=[stride, stride],
        )

    def linear(self, x, name, inputs, outputs, gain=1.0):
        """A linear layer on more than two dimensions: a product with the transposed weights and
        an addition, bias first."""
        weight = self.random(name + ".weight", (inputs, outputs), math.sqrt(gain / inputs))
        y = self.node("MatMul", [x, weight], name + ".product")
        return self.node("Add", [self.random(name + ".bias", (outputs,), 0.02), y], name)

    def gemm(self, x, name, inputs, outputs, gain=1.0):
        """A linear layer on two dimensions."""
        weight = self.random(name + ".weight", (outputs, inputs), math.sqrt(gain / inputs))
        bias = self.random(name + ".bias", (outputs,), 0.02)
        return self.node("Gemm", [x, weight, bias], name, alpha=1.0, beta=1.0, transB=1)

    def layer_norm(self, x, name, width, epsilon):
        scale = 1 + 0.1 * self.rng.standard_normal(width)
        weight = self.constant(name + ".weight", scale.astype(np.float32))
        bias = self.random(name + ".bias", (width,), 0.1)
        return self.node("LayerNormalization", [x, weight, bias], name, axis=-1, epsilon=epsilon)

    def gelu(self, x, name):
        """The exact one: x / 2 (1 + erf(x / sqrt 2)), in the exporter's order."""
        y = self.node("Div", [x, self.scalar(name + ".root", math.sqrt(2))], name + ".div")
        y = self.node("Erf", [y], name + ".erf")
        y = self.node("Add", [y, self.scalar(name + ".one", 1)], name + ".add")
        y = self.node("Mul", [x, y], name + ".mul")
        return self.node("Mul", [y, self.scalar(name + ".half", 0.5)], name)

    def reshape(self, x, name, shape):
        return self.node("Reshape", [x, self.ints(name + ".shape", shape)], name, allowzero=0)

    def transpose(self, x, name, order):
        return self.node("Transpose", [x], name, perm=order)

    def model(self, name, inputs, outputs):
        """Closes the graph. `inputs` and `outputs` are (name, TensorProto type, shape)."""
        used = {x for node in self.nodes for x in node.input}
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(*value) for value in outputs],
            [weight for weight in self.weights if weight.name in used],
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
            producer_name="mlcc bench",
        )


def save(model, path):
    """Writes a model, whole or not at all; large weights go to PATH.data beside it."""
    large = sum(len(weight.raw_data) for weight in model.graph.initializer) > EXTERNAL_BYTES
    data = path.with_name(path.name + ".data")
    data.unlink(missing_ok=True)
    part = path.with_name(path.name + ".part")
    onnx.save(
        model,
        part,
        save_as_external_data=large,
        all_tensors_to_one_file=True,
        location=data.name,
        size_threshold=1024,
    )
    part.rename(path)


FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
