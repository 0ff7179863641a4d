"""Models of one operator, or of attention, in shapes that networks have them in: how good are the
kernels that the models of the other groups do not need?"""

import numpy as np
import onnx

from bench.builder import FLOAT, INT64, Net


class Op:
    """One node from "input", of f32, to "output". `more`: what else it takes: the shape of another
    input of f32, a function that adds a constant to the graph, or None for what is left out.
    Attributes are the node's."""

    def __init__(self, kind, shape, *more, dtype=FLOAT, outputs=1, **attributes):
        self.kind, self.shape, self.more, self.dtype = kind, shape, more, dtype
        self.outputs, self.attributes = outputs, attributes

    def build(self):
        net = Net(1)
        inputs = [("input", FLOAT, self.shape)]
        names = ["input"]
        for i, one in enumerate(self.more):
            name = f"input{i + 1}"
            if isinstance(one, list):
                inputs.append((name, FLOAT, one))
            names.append(one(net, name) if callable(one) else name if one else "")
        outputs = [("output", self.dtype, None)]
        outputs += [(f"output{i}", INT64, None) for i in range(1, self.outputs)]  # TopK's
        net.node(self.kind, names, "output", **self.attributes)
        net.nodes[-1].output[:] = [name for name, _, _ in outputs]
        model = net.model("op", inputs, outputs)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


class Attention:
    """Attention of queries, keys and values as projections leave them, heads side by side."""

    def __init__(self, heads, queries, keys, size):
        self.heads, self.queries, self.keys, self.size = heads, queries, keys, size

    def build(self):
        net, width = Net(1), self.heads * self.size
        inputs = [
            ("query", FLOAT, [1, self.queries, width]),
            ("key", FLOAT, [1, self.keys, width]),
            ("value", FLOAT, [1, self.keys, width]),
        ]
        q, k, v = (
            net.transpose(
                net.reshape(name, name + ".split", [1, -1, self.heads, self.size]),
                name + ".heads",
                [0, 2, 3, 1] if name == "key" else [0, 2, 1, 3],
            )
            for name, _, _ in inputs
        )
        y = net.node("MatMul", [q, k], "scores")
        y = net.node("Mul", [y, net.scalar("scale", self.size**-0.5)], "scaled")
        y = net.node("Softmax", [y], "weights", axis=-1)
        y = net.node("MatMul", [y, v], "context")
        y = net.transpose(y, "context.heads", [0, 2, 1, 3])
        net.reshape(y, "output", [1, self.queries, width])
        return net.model("attention", inputs, [("output", FLOAT, [1, self.queries, width])])


class Boxes:
    """NonMaxSuppression of boxes all over an image of about 640 x 640; what is chosen is added up.
    most: of each class; least: the score that is to be passed, None: any."""

    def __init__(self, classes, boxes, most, least):
        self.classes, self.boxes, self.most, self.least = classes, boxes, most, least

    def build(self):
        net = Net(1)
        inputs = [
            ("input", FLOAT, [1, self.boxes, 4]),
            ("scores", FLOAT, [1, self.classes, self.boxes]),
        ]
        sides = net.constant("sides", np.asarray([300, 300, 40, 40], np.float32))
        boxes = net.node("Mul", [net.node("Abs", ["input"], "parts"), sides], "boxes")
        names = [boxes, "scores", net.ints("most", [self.most]), net.scalar("share", 0.5)]
        if self.least is not None:
            names.append(net.scalar("least", self.least))
        chosen = net.node("NonMaxSuppression", names, "chosen", center_point_box=1)
        net.node("ReduceSum", [chosen, net.ints("axes", [0])], "output", keepdims=0)
        return net.model("op", inputs, [("output", INT64, [3])])


class FewBits:
    """A product with weights of 4 bits, in blocks of 32 rows, as language models have them. level:
    0: of floats, 4: what is multiplied by them may be rounded to bytes."""

    def __init__(self, rows, depth, columns, level):
        self.rows, self.depth, self.columns, self.level = rows, depth, columns, level

    def build(self):
        net, blocks = Net(1), self.depth // 32
        weights = net.rng.integers(0, 256, (self.columns, blocks, 16)).astype(np.uint8)
        scales = net.rng.uniform(0.5, 1, self.columns * blocks) * self.depth**-0.5 / 4
        y = net.node(
            "MatMulNBits",
            ["input", net.constant("weights", weights),
             net.constant("scales", scales.astype(np.float32))],
            "output", domain="com.microsoft", K=self.depth, N=self.columns, bits=4, block_size=32,
            accuracy_level=self.level)
        model = net.model("op", [("input", FLOAT, [self.rows, self.depth])],
                          [(y, FLOAT, [self.rows, self.columns])])
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        return model


def random(*shape, scale=1.0):
    return lambda net, name: net.random(name, shape, scale)


def ints(*values):
    return lambda net, name: net.ints(name, values)


def floats(*values):
    return lambda net, name: net.constant(name, np.asarray(values, np.float32))


def below(limit, *shape):
    """Indices, drawn at random."""
    return lambda net, name: net.ints(name, net.rng.integers(0, limit, shape))


def conv(outputs, inputs, *kernel):
    return random(outputs, inputs, *kernel, scale=float(inputs * np.prod(kernel)) ** -0.5)


PADS1, STRIDES2 = {"pads": [1, 1, 1, 1]}, {"strides": [2, 2]}
BILINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}

OPS = {
    # convolutions
    "conv_depthwise3": Op("Conv", [1, 96, 56, 56], conv(96, 1, 3, 3), group=96, **PADS1),
    "conv_depthwise7": Op("Conv", [1, 96, 56, 56], conv(96, 1, 7, 7), group=96, pads=[3] * 4),
    "conv_groups": Op("Conv", [1, 128, 28, 28], conv(128, 4, 3, 3), group=32, **PADS1),
    "conv_dilated": Op("Conv", [1, 128, 28, 28], conv(128, 128, 3, 3), dilations=[2, 2],
                       pads=[2] * 4),
    "conv_stem7": Op("Conv", [1, 3, 224, 224], conv(64, 3, 7, 7), pads=[3] * 4, **STRIDES2),
    "conv_1d": Op("Conv", [1, 256, 400], conv(256, 256, 3), pads=[1, 1]),
    "conv_3d": Op("Conv", [1, 32, 16, 28, 28], conv(32, 32, 3, 3, 3), pads=[1] * 6),
    "deconv2": Op("ConvTranspose", [1, 128, 32, 32], conv(128, 64, 2, 2), **STRIDES2),
    "deconv3": Op("ConvTranspose", [1, 128, 32, 32], conv(128, 64, 3, 3), **PADS1, **STRIDES2),
    "deconv4": Op("ConvTranspose", [1, 128, 32, 32], conv(128, 64, 4, 4), **PADS1, **STRIDES2),
    # windows
    "max_pool3": Op("MaxPool", [1, 64, 112, 112], kernel_shape=[3, 3], **PADS1, **STRIDES2),
    "max_pool5": Op("MaxPool", [1, 256, 20, 20], kernel_shape=[5, 5], pads=[2] * 4),
    "average_pool3": Op("AveragePool", [1, 192, 35, 35], kernel_shape=[3, 3], **PADS1),
    "global_average_pool": Op("GlobalAveragePool", [1, 512, 28, 28]),
    "resize_nearest": Op("Resize", [1, 128, 40, 40], None, floats(1, 1, 2, 2), mode="nearest",
                         coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    "resize_linear": Op("Resize", [1, 128, 40, 40], None, floats(1, 1, 2, 2), **BILINEAR),
    "resize_linear_odd": Op("Resize", [1, 32, 65, 65], None, None, ints(1, 32, 224, 224),
                            **BILINEAR),
    "resize_cubic": Op("Resize", [1, 3, 128, 128], None, floats(1, 1, 2, 2), mode="cubic"),
    "grid_sample": Op("GridSample", [1, 32, 64, 64], [1, 64, 64, 2]),
    "pad_reflect": Op("Pad", [1, 64, 56, 56], ints(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"),
    "pad": Op("Pad", [1, 64, 56, 56], ints(0, 0, 1, 1, 0, 0, 1, 1)),
    # norms and reductions
    "softmax_rows": Op("Softmax", [12, 197, 197], axis=-1),
    "softmax_long": Op("Softmax", [64, 32000], axis=-1),
    "softmax_channels": Op("Softmax", [1, 21, 128, 128], axis=1),
    "log_softmax": Op("LogSoftmax", [128, 5000], axis=-1),
    "layer_norm": Op("LayerNormalization", [256, 768], random(768), random(768), axis=-1),
    "instance_norm": Op("InstanceNormalization", [1, 64, 64, 64], random(64), random(64)),
    "lp_norm": Op("LpNormalization", [512, 512], axis=-1, p=2),
    "reduce_mean_last": Op("ReduceMean", [256, 1024], axes=[1]),
    "reduce_mean_first": Op("ReduceMean", [256, 1024], axes=[0]),
    "reduce_max_middle": Op("ReduceMax", [16, 256, 64], axes=[1]),
    "reduce_l2": Op("ReduceL2", [256, 1024], axes=[1]),
    "arg_max_last": Op("ArgMax", [1024, 256], axis=1, dtype=INT64),
    "arg_max_first": Op("ArgMax", [21, 65536], axis=0, dtype=INT64),
    "top_k": Op("TopK", [1, 8400], ints(300), axis=1, outputs=2),
    "top_k_rows": Op("TopK", [256, 1000], ints(5), axis=1, outputs=2),
    "sort": Op("TopK", [1, 27000], ints(27000), axis=1, outputs=2),
    "sort_rows": Op("TopK", [64, 1000], ints(1000), axis=1, outputs=2),
    "boxes_proposals": Boxes(1, 4800, 2**31 - 1, None),
    "boxes_one_class": Boxes(1, 8400, 300, 1.0),
    "boxes_classes": Boxes(80, 8400, 100, 2.5),
    "cumsum": Op("CumSum", [64, 4096], ints(1)),
    # moves
    "transpose_nhwc": Op("Transpose", [1, 64, 112, 112], perm=[0, 2, 3, 1]),
    "transpose_nchw": Op("Transpose", [1, 112, 112, 64], perm=[0, 3, 1, 2]),
    "transpose_heads": Op("Transpose", [1, 197, 12, 64], perm=[0, 2, 1, 3]),
    "transpose_square": Op("Transpose", [1024, 1024], perm=[1, 0]),
    "gather_rows": Op("Gather", [30000, 256], below(30000, 512), axis=0),
    "gather_last": Op("Gather", [512, 1024], below(1024, 512), axis=1),
    "gather_elements": Op("GatherElements", [512, 1024], below(1024, 512, 512), axis=1),
    "concat": Op("Concat", [1, 64, 56, 56], [1, 64, 56, 56], axis=1),
    "slice_steps": Op("Slice", [1, 64, 112, 112], ints(0, 0), ints(112, 112), ints(2, 3),
                      ints(2, 2)),
    "depth_to_space": Op("DepthToSpace", [1, 256, 32, 32], blocksize=2),
    "space_to_depth": Op("SpaceToDepth", [1, 16, 128, 128], blocksize=4),
    "expand": Op("Expand", [1, 256, 1, 1], ints(4, 256, 28, 28)),
    "tile": Op("Tile", [1, 64, 28, 28], ints(1, 1, 2, 2)),
    # elementwise
    "erf": Op("Erf", [256, 1024]),
    "tanh": Op("Tanh", [256, 1024]),
    "sigmoid": Op("Sigmoid", [256, 1024]),
    "exp": Op("Exp", [256, 1024]),
    "pow": Op("Pow", [256, 1024], floats(3)),
    "sin": Op("Sin", [256, 1024]),
    "relu": Op("Relu", [256, 1024]),
    "hard_swish": Op("HardSwish", [256, 1024]),
    "add_row": Op("Add", [256, 1024], random(1024)),
    "prelu": Op("PRelu", [1, 64, 56, 56], random(64, 1, 1)),
    "round": Op("Round", [256, 1024]),
    # attention: of ViT, of Whisper's encoder, of Stable Diffusion at 64 x 64, there with 77 words
    "attention_197": Attention(12, 197, 197, 64),
    "attention_1500": Attention(6, 1500, 1500, 64),
    "attention_4096": Attention(8, 4096, 4096, 40),
    "attention_cross": Attention(8, 4096, 77, 40),
    # products
    "matmul_batch": Op("MatMul", [12, 197, 64], [12, 64, 197]),
    "matmul_4bits": FewBits(1, 4096, 4096, 0),
    "matmul_4bits_bytes": FewBits(1, 4096, 4096, 4),
    "matmul_4bits_64": FewBits(64, 4096, 4096, 0),
    "matmul_4bits_64_bytes": FewBits(64, 4096, 4096, 4),
    "matmul_row": Op("MatMul", [1, 2048], random(2048, 2048)),
    "lstm": Op("LSTM", [64, 1, 128], random(1, 512, 128, scale=0.1),
               random(1, 512, 128, scale=0.1), hidden_size=128),
    "gru": Op("GRU", [64, 1, 128], random(1, 384, 128, scale=0.1),
              random(1, 384, 128, scale=0.1), hidden_size=128),
}
