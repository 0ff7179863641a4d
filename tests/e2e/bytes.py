"""Quantised models of what networks are made of, for bytes.sh.

    bytes.py FOLDER

QuantizeLinear and DequantizeLinear lie around every operator. A value's scale and zero point are of
about the range that it has for a random input: of the very range, whole numbers of steps would lie
half way between steps of the next encoding, and could be rounded either way.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from tiles import constant, rng, save

F = TensorProto.FLOAT
HEADS = 4  # of 16 elements each
MOVES = {"Expand", "Gather", "Reshape", "Transpose", "Unsqueeze"}


class Network:
    """A model under construction, with what a random input gives for each value."""

    signed = False  # are values encoded as signed bytes?

    def __init__(self, *shape):
        self.shape, self.nodes, self.constants = shape, [], []
        self.codes = {}  # of what is decoded: names of its scale and zero point
        self.values = {"x": rng.uniform(-1, 1, shape).astype(np.float32)}

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(constant(name, np.asarray(array)))
        self.values[name] = np.asarray(array)
        return name

    def op(self, kind, *inputs, **attributes):
        """Adds a node; arrays among its inputs are constants."""
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        node = helper.make_node(kind, names, [f"v{len(self.nodes)}"], **attributes)
        self.nodes.append(node)
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(self.values[name].dtype), None
            )
            for name in dict.fromkeys(names)
        ]
        graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=node.output[0])])
        one = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        session = onnxruntime.InferenceSession(one.SerializeToString())
        given = {info.name: self.values[info.name] for info in infos}
        self.values[node.output[0]] = session.run(None, given)[0]
        return node.output[0]

    def coded(self, x, code=None):
        """The value, encoded and decoded; what moves decoded elements is encoded as they were."""
        node = self.nodes[-1] if self.nodes else None
        if not code and node and node.op_type in MOVES:
            code = self.codes.get(node.input[0])
        if not code:
            array = self.values[x]
            low, high = min(float(array.min()), 0.0), max(float(array.max()), 0.0)
            scale = np.float32((high - low) / 255 * rng.uniform(0.85, 1.1))
            zero = np.clip(np.rint(-low / scale), 0, 255)
            zero = np.int8(zero - 128) if self.signed else np.uint8(zero)
            code = self.constant(scale), self.constant(zero)
        y = self.op("DequantizeLinear", self.op("QuantizeLinear", x, *code), *code)
        self.codes[y] = code
        return y

    def weights(self, shape, axis):
        """Signed bytes, decoded with a scale for each channel."""
        n = shape[axis]
        depth = np.prod(shape) / n
        scale = (rng.uniform(0.5, 2, n) / 64 / depth**0.5).astype(np.float32)
        w = np.clip(np.rint(rng.normal(0, 40, shape)), -127, 127).astype(np.int8)
        return self.op("DequantizeLinear", w, scale, np.zeros(n, np.int8), axis=axis)

    def bias(self, n):
        return rng.uniform(-0.5, 0.5, n).astype(np.float32)

    def product(self, x, columns):
        """MatMul, and Add of a bias, each encoded."""
        depth = self.values[x].shape[-1]
        y = self.coded(self.op("MatMul", x, self.weights((depth, columns), 1)))
        return self.coded(self.op("Add", y, self.bias(columns)))

    def conv(self, x, maps, kernel, stride=1, group=1):
        """A convolution that leaves an image as large as it is; not encoded."""
        channels = self.values[x].shape[1]
        return self.op(
            "Conv",
            x,
            self.weights((maps, channels // group, kernel, kernel), 0),
            self.bias(maps),
            group=group,
            pads=[kernel // 2] * 4,
            strides=[stride] * 2,
        )

    def depthwise(self, x, kernel, stride=1):
        channels = self.values[x].shape[1]
        return self.relu(self.conv(x, channels, kernel, stride, channels))

    def relu(self, x):
        return self.coded(self.op("Relu", x))

    def save(self, folder, name, *outputs):
        results = [(y, F, self.values[y].shape) for y in outputs]
        save(folder, name + "_signed" * self.signed, self.nodes, [("x", F, self.shape)], results, self.constants)


def ints(*numbers):
    return np.array(numbers, np.int64)


def heads_of(net, x):
    """Queries and values [1, heads, tokens, depth] of [1, tokens, width], and keys transposed."""
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        y = net.coded(net.op("Reshape", net.product(x, 64), ints(1, -1, HEADS, 16)))
        parts.append(net.coded(net.op("Transpose", y, perm=perm)))
    return parts


def scores_of(net, q, k):
    """... of transposed keys, as far apart as trained ones are."""
    q = net.coded(net.op("Mul", q, np.float32(0.25)))
    return net.coded(net.op("Mul", net.coded(net.op("MatMul", q, k)), np.float32(8)))


def met(net, scores, v):
    """Tokens of the heads' means, through a last product."""
    weights = net.coded(net.op("Softmax", scores, axis=-1))
    y = net.coded(net.op("MatMul", weights, v))
    y = net.coded(net.op("Transpose", y, perm=[0, 2, 1, 3]))
    y = net.coded(net.op("Reshape", y, ints(1, net.values[y].shape[1], -1)))
    return net.product(y, net.values[y].shape[-1])


def attention(folder):
    net = Network(1, 17, 64)
    x = net.coded("x")
    q, k, v = heads_of(net, x)
    y = met(net, scores_of(net, q, k), v)
    net.save(folder, "attention", net.coded(net.op("Add", y, x)))


def attention_of_image(folder, size):
    """Pixels are innermost: values, [heads, depth, tokens], meet the weights transposed."""
    net = Network(1, 24, size, size)
    x = net.coded(net.conv(net.coded("x"), 64, 1))
    q, k, v = (
        net.coded(net.op("Reshape", net.coded(net.conv(x, 64, 1)), ints(1, HEADS, 16, -1)))
        for _ in range(3)
    )
    q = net.coded(net.op("Transpose", q, perm=[0, 1, 3, 2]))
    weights = net.coded(net.op("Softmax", scores_of(net, q, k), axis=-1))
    weights = net.coded(net.op("Transpose", weights, perm=[0, 1, 3, 2]))
    y = net.coded(net.op("MatMul", v, weights))
    y = net.coded(net.op("Reshape", y, ints(1, 64, size, size)))
    y = net.coded(net.conv(y, 64, 1))
    net.save(folder, "attention_of_image", net.coded(net.op("Add", y, x)))


def with_distances(net, scores, size, encode):
    """A bias for each pair of places, from a table of their distances."""
    table = net.op(
        "DequantizeLinear",
        rng.integers(0, 256, ((2 * size - 1) ** 2, HEADS), np.uint8),
        np.float32(0.02),
        np.uint8(117),
    )
    at = np.stack(np.divmod(np.arange(size * size), size), -1)
    apart = at[:, None] - at[None] + size - 1
    index = apart[..., 0] * (2 * size - 1) + apart[..., 1]
    bias = encode(net.op("Gather", table, index.reshape(-1).astype(np.int64), axis=0))
    bias = encode(net.op("Reshape", bias, ints(size * size, size * size, HEADS)))
    bias = encode(net.op("Transpose", bias, perm=[2, 0, 1]))
    return net.coded(net.op("Add", scores, encode(net.op("Unsqueeze", bias, ints(0)))))


def with_places(net, scores, q, size):
    """The query says what a key's row and column are worth: each is repeated along the other."""
    shape = ints(HEADS, size, size, size, size)
    y = net.coded(net.op("Reshape", scores, shape))
    q = net.coded(net.op("Reshape", q, ints(HEADS, size, size, 16)))
    for axis in (4, 3):
        part = net.coded(net.op("MatMul", q, net.weights((16, size), 1)))
        part = net.coded(net.op("Unsqueeze", part, ints(axis)))
        if axis == 3:
            part = net.coded(net.op("Expand", part, shape))
        y = net.coded(net.op("Add", y, part))
    return net.coded(net.op("Reshape", y, ints(1, HEADS, size * size, size * size)))


def attention_of_places(folder, size):
    """Three layers: a table whose elements are just decoded, or encoded after each step; places."""
    net = Network(1, size * size, 64)
    x = net.coded("x")
    for layer in range(3):
        q, k, v = heads_of(net, x)
        scores = scores_of(net, q, k)
        if layer < 2:
            scores = with_distances(net, scores, size, net.coded if layer else lambda y: y)
        else:
            scores = with_places(net, scores, q, size)
        x = net.coded(net.op("Add", met(net, scores, v), x))
    net.save(folder, "attention_of_places", x)


def dense(folder):
    """Each layer reads what all before it gave."""
    net = Network(1, 3, 9, 11)
    parts = [net.relu(net.conv(net.coded("x"), 24, 3))]
    for maps in (12, 8, 20, 16, 24):
        x = parts[0]
        if len(parts) > 1:
            x = net.coded(net.op("Concat", *parts, axis=1))
        channels = net.values[x].shape[1]
        norm = [rng.uniform(0.5, 1.5, channels), net.bias(channels)]
        norm += [net.bias(channels), rng.uniform(0.2, 1, channels)]
        x = net.op("BatchNormalization", x, *(each.astype(np.float32) for each in norm))
        x = net.relu(net.conv(net.relu(x), 40, 1))
        parts.append(net.coded(net.conv(x, maps, 3)))
    y = net.coded(net.op("Concat", *parts, axis=1))
    net.save(folder, "dense", net.coded(net.conv(y, 32, 1)))


def depthwise(folder):
    net = Network(1, 8, 15, 13)
    x = net.depthwise(net.coded("x"), 3)
    for maps, kernel, stride in ((24, 5, 1), (24, 7, 2), (40, 5, 2), (40, 7, 1)):
        x = net.depthwise(net.relu(net.conv(x, maps, 1)), kernel, stride)
    net.save(folder, "depthwise", net.coded(net.conv(x, 24, 1)))


def odd(folder):
    """Channels that fill no vectors, and what is added to them."""
    net = Network(1, 16, 7, 9)
    x = net.coded("x")
    for maps, kernel in ((18, 1), (5, 3), (21, 1)):
        x = net.relu(net.conv(x, maps, kernel))
        y = net.coded(net.conv(x, maps, 4 - kernel))
        x = net.relu(net.op("Add", y, x))
    left, right = net.coded(net.conv(x, 13, 3)), net.coded(net.conv(x, 8, 1))
    side = net.coded(net.op("Concat", left, right, axis=1))
    x = net.relu(net.op("Add", net.coded(net.conv(x, 21, 3)), side))
    y = net.coded(net.conv(x, 255, 1))
    net.save(folder, "odd", y, net.coded(net.op("Add", net.coded(net.conv(x, 255, 3)), y)))


def pool(folder):
    net = Network(1, 8, 12, 10)
    x = net.coded("x")
    for maps in (24, 18):
        x = net.coded(net.conv(x, maps, 3))
        x = net.coded(net.op("Mul", x, net.coded(net.op("Sigmoid", x))))
        x = net.coded(net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        x = net.coded(net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]))
    net.save(folder, "pool", net.coded(net.conv(x, 32, 1)))


def pools(folder):
    """Largest bytes, and nothing else is done with them: of whole vectors, and of parts."""
    net = Network(1, 8, 20, 17)
    x = net.coded("x")
    for maps in (64, 44):
        x = net.coded(net.conv(x, maps, 3))
        code = net.codes[x]
        x = net.coded(net.op("MaxPool", x, kernel_shape=[3] * 2, strides=[2] * 2, pads=[1] * 4), code)
        x = net.coded(net.op("MaxPool", x, kernel_shape=[5] * 2, pads=[2] * 4), code)
    net.save(folder, "pools", net.coded(net.conv(x, 32, 1)))


def joined(folder):
    """Parts with codes of their own, encoded again as they are joined."""
    net = Network(1, 8, 14, 11)
    x = net.coded("x")
    parts = [net.coded(net.conv(x, maps, kernel)) for maps, kernel in ((32, 1), (24, 3), (9, 1))]
    parts.append(net.coded(net.op("MaxPool", x, kernel_shape=[3] * 2, pads=[1] * 4)))
    x = net.coded(net.op("Concat", *parts, axis=1))
    x = net.coded(net.op("Concat", x, parts[2], net.coded(net.op("Relu", parts[2])), axis=1))
    net.save(folder, "joined", net.coded(net.conv(x, 32, 1)))


def shuffled(folder):
    """Channels of two tensors that take turns, one of them encoded again."""
    net = Network(1, 8, 9, 7)
    x = net.coded("x")
    parts = [net.coded(net.conv(x, 29, kernel)) for kernel in (1, 3)]
    y = net.coded(net.op("Concat", *parts, axis=1), net.codes[parts[1]])
    y = net.coded(net.op("Reshape", y, np.int64([1, 2, 29, 9, 7])))
    y = net.coded(net.op("Transpose", y, perm=[0, 2, 1, 3, 4]))
    y = net.coded(net.op("Reshape", y, np.int64([1, 58, 9, 7])))
    net.save(folder, "shuffled", net.coded(net.conv(y, 16, 1)), parts[0])


def windows(folder, channels):
    """Windows of few channels, whose lines become rows of products (deepen.c)."""
    net = Network(2, channels, 41, 39)
    x = net.coded("x")
    wide = [net.coded(net.conv(x, 32, kernel, 2)) for kernel in (3, 5, 7)]
    net.save(folder, f"windows{channels}", *wide, net.coded(net.conv(x, 32, 5)))


def main():
    folder = pathlib.Path(sys.argv[1])
    attention(folder)
    attention_of_image(folder, 4)
    attention_of_places(folder, 4)
    dense(folder)
    depthwise(folder)
    odd(folder)
    pool(folder)
    Network.signed = True
    attention(folder)
    depthwise(folder)
    odd(folder)
    pool(folder)
    for Network.signed in (False, True):
        pools(folder)
        for channels in (1, 2, 3, 5):
            windows(folder, channels)
        joined(folder)
        shuffled(folder)


if __name__ == "__main__":
    main()
