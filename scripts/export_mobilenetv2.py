"""Writes MobileNetV2 (Sandler et al. 2018) as ONNX, layer for layer as torchvision's mobilenet_v2
of width 1.0 comes out of PyTorch's exporter: batch normalisation folded into the convolutions,
ReLU6 as Clip(0, 6), one image of 3x224x224 in, 1,000 class scores out.

Usage: export_mobilenetv2.py FILE.onnx

The weights are random, from a fixed seed. They are drawn so that the activations neither vanish
nor all run into the clip: comparing outputs with another runtime then means something.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# expansion, output channels, number of blocks, stride of the first: table 2 of the paper
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class Builder:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes = []
        self.weights = []
        self.constant("zero", np.float32(0))
        self.constant("six", np.float32(6))

    def constant(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name + "." + op, **attributes))
        return name

    def random(self, name, shape, scale):
        return self.constant(name, (self.rng.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, x, name, inputs, outputs, kernel, stride=1, groups=1, relu6=True):
        fan_in = inputs // groups * kernel * kernel
        shape = (outputs, inputs // groups, kernel, kernel)
        weight = self.random(name + ".weight", shape, np.sqrt((2.0 if relu6 else 1.0) / fan_in))
        bias = self.random(name + ".bias", (outputs,), 0.1)
        y = self.node(
            "Conv",
            [x, weight, bias],
            name,
            dilations=[1, 1],
            group=groups,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )
        return self.node("Clip", [y, "zero", "six"], name + ".relu6") if relu6 else y

    def inverted_residual(self, x, name, inputs, outputs, stride, expansion):
        hidden = inputs * expansion
        y = x
        if expansion != 1:
            y = self.conv(y, name + ".expand", inputs, hidden, 1)
        y = self.conv(y, name + ".depthwise", hidden, hidden, 3, stride, groups=hidden)
        y = self.conv(y, name + ".project", hidden, outputs, 1, relu6=False)
        if stride == 1 and inputs == outputs:
            y = self.node("Add", [x, y], name + ".add")
        return y


def mobilenet_v2(seed=2):
    b = Builder(seed)
    x = b.conv("input", "features.0", 3, 32, 3, stride=2)
    channels, index = 32, 1
    for expansion, outputs, count, stride in BLOCKS:
        for i in range(count):
            x = b.inverted_residual(
                x, f"features.{index}", channels, outputs, stride if i == 0 else 1, expansion
            )
            channels, index = outputs, index + 1
    x = b.conv(x, f"features.{index}", channels, 1280, 1)
    x = b.node("GlobalAveragePool", [x], "pool")
    x = b.node("Flatten", [x], "flatten", axis=1)
    weight = b.random("classifier.weight", (1000, 1280), np.sqrt(1.0 / 1280))
    bias = b.random("classifier.bias", (1000,), 0.1)
    b.node("Gemm", [x, weight, bias], "output", alpha=1.0, beta=1.0, transB=1)

    graph = helper.make_graph(
        b.nodes,
        "mobilenet_v2",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1000])],
        b.weights,
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="mlcc scripts/export-mobilenetv2",
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    model = mobilenet_v2()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, sys.argv[1])


if __name__ == "__main__":
    main()
