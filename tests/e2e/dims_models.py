"""Models with dimensions that vary, of operators that ONNX's tests do not have: dims_models.py FOLDER

Those of com.microsoft and ai.onnx.ml, one a model, and a few of several operators, laid out as
scripts/vary-onnx-tests does, for dims.py: a model, the file `dims`, and inputs whose elements are to be
drawn from.
"""
import os
import sys

import numpy
import onnx
from onnx import helper, numpy_helper

random = numpy.random.default_rng(1)


def floats(*shape):
    return random.standard_normal(shape).astype("f4")


def ints(most, *shape, dtype="i4"):
    return random.integers(0, most, shape).astype(dtype)


def octets(*shape):
    return ints(256, *shape, dtype="u1")


def scale(value):
    return numpy.array(value, "f4")


def zero(value):
    return numpy.array(value, "u1")


def varying(shape, data):
    """An input of this shape: numbers, and names of RANGES."""
    return shape.split(), data


RANGES = {"B": "1..4", "S": "1..8", "K": "1..9", "H": "3..8", "W": "3..9", "Y": "1..37", "X": "1..45"}

# name, operator, outputs, inputs (arrays are initializers), attributes
MS = "com.microsoft"
ML = "ai.onnx.ml"
QKV = [varying("B S 16", floats(2, 3, 16))] + [varying("B K 16", floats(2, 4, 16)) for _ in range(2)]
PAST = [varying("B 4 K 4", floats(2, 4, 5, 4)) for _ in range(2)]
PAST2 = [varying("B 2 K 8", floats(2, 2, 5, 8)) for _ in range(2)]
LENGTHS = [varying("B", ints(3, 2)), varying("1", ints(4, 1))]
ROWS = varying("B S 8", floats(2, 3, 8))
IDS = varying("B S", ints(2, 2, 3))
IMAGE = varying("B 3 H W", octets(2, 3, 5, 6))
CASES = [
    ("", "Conv", 1, [varying("B 16 7 9", floats(2, 16, 7, 9)), floats(16, 16, 3, 3), floats(16)],
     {"pads": [1, 1, 1, 1]}),
    # fewer updates than elements, the first ones
    ("", "ScatterElements", 1, [varying("S", floats(3)), numpy.array([0, 1]), floats(2)], {}),
    ("", "MatMul", 1, [varying("B S 8192", floats(2, 3, 8192)), floats(8192, 64) / 90], {}),
    (MS, "MultiHeadAttention", 1, QKV, {"num_heads": 4}),
    (MS, "MultiHeadAttention", 1, [*QKV, floats(48), varying("B K", ints(2, 2, 4))], {"num_heads": 4}),
    (MS, "MultiHeadAttention", 3, [*QKV[:1] * 3, None, None, None, *PAST],
     {"num_heads": 4, "unidirectional": 1}),
    (MS, "MultiHeadAttention", 1, [varying("B S 4 3 4", floats(2, 3, 4, 3, 4))], {"num_heads": 4}),
    (MS, "Attention", 1, [ROWS, floats(8, 24), floats(24), IDS], {"num_heads": 2}),
    (MS, "Attention", 1, [ROWS, floats(8, 24), floats(24), varying("B", ints(3, 2))], {"num_heads": 2}),
    (MS, "Attention", 2, [ROWS, floats(8, 24), floats(24), None,
                          varying("2 B 2 K 4", floats(2, 2, 2, 5, 4))],
     {"num_heads": 2, "unidirectional": 1}),
    (MS, "GroupQueryAttention", 3, [varying("B S 32", floats(2, 3, 32)),
                                    *[varying("B S 16", floats(2, 3, 16))] * 2, *PAST2, *LENGTHS],
     {"num_heads": 4, "kv_num_heads": 2}),
    (MS, "GroupQueryAttention", 3, [varying("B S 64", floats(2, 3, 64)), None, None, *PAST2, *LENGTHS,
                                    floats(32, 4), floats(32, 4)],
     {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}),
    (MS, "RotaryEmbedding", 1, [varying("B S 16", floats(2, 3, 16)),
                                varying("B S", ints(8, 2, 3, dtype="i8")), floats(8, 4), floats(8, 4)], {}),
    (MS, "SkipLayerNormalization", 1, [ROWS, ROWS, floats(8), floats(8), floats(8)], {}),
    (MS, "SkipSimplifiedLayerNormalization", 1, [ROWS, ROWS, floats(8)], {}),
    (MS, "SkipLayerNormalization", 1, [varying("B S K", floats(2, 3, 8))] * 2
     + [varying("K", floats(8))] * 2, {}),
    (MS, "EmbedLayerNormalization", 2, [varying("B S", ints(5, 2, 3)), IDS, floats(5, 8), floats(9, 8),
                                        floats(2, 8), floats(8), floats(8), IDS], {}),
    (MS, "MatMulNBits", 1, [varying("B S 32", floats(2, 3, 32)), octets(5, 2, 8), floats(10), octets(5)],
     {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
    (MS, "GatherBlockQuantized", 1, [octets(6, 16), varying("B S", ints(6, 2, 3)), floats(6, 2)],
     {"quantize_axis": 1, "block_size": 16}),
    (MS, "FusedMatMul", 1, [ROWS, varying("B K 8", floats(2, 4, 8))], {"transB": 1, "alpha": 0.5}),
    (MS, "FusedConv", 1, [varying("B 3 S K", floats(2, 3, 5, 6)), floats(4, 3, 3, 3), floats(4)],
     {"pads": [1] * 4, "strides": [2, 2], "activation": "Relu"}),
    (MS, "BiasGelu", 1, [ROWS, floats(8)], {}),
    (MS, "QLinearAdd", 1, [varying("B S", octets(2, 3)), scale(0.1), zero(3), varying("S", octets(3)),
                           scale(0.2), zero(9), scale(0.3), zero(100)], {}),
    (MS, "QGemm", 1, [varying("S 8", octets(3, 8)), scale(0.1), zero(3), octets(8, 5), scale(0.2), zero(9),
                      ints(50, 5), scale(0.9), zero(100)], {}),
    (MS, "DynamicQuantizeMatMul", 1, [ROWS, octets(8, 5), scale(0.2), zero(9)], {}),
    (MS, "MatMulIntegerToFloat", 1, [varying("B S 8", octets(2, 3, 8)), octets(8, 5), scale(0.1),
                                     abs(floats(5)), zero(3), zero(9), floats(5)], {}),
    (MS, "QLinearAveragePool", 1, [IMAGE, scale(0.1), zero(3), scale(0.2), zero(9)],
     {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}),
    (MS, "QLinearGlobalAveragePool", 1, [IMAGE, scale(0.1), zero(3), scale(0.2), zero(9)], {}),
    (MS, "QLinearConcat", 1, [scale(0.3), zero(5), varying("B S", octets(2, 3)), scale(0.1), zero(3),
                              varying("B K", octets(2, 4)), scale(0.2), zero(9)], {"axis": 1}),
    (MS, "GroupNorm", 1, [varying("B H W 8", floats(2, 5, 6, 8)), floats(8), floats(8)],
     {"groups": 2, "activation": 1}),
    (MS, "SkipGroupNorm", 2, [varying("B 8 H W", floats(2, 8, 5, 6)), floats(8), floats(8),
                              varying("B 8", floats(2, 8)), floats(8)],
     {"groups": 2, "activation": 0, "channels_last": 0}),
    (MS, "MoE", 1, [varying("S 8", floats(3, 8)), varying("S 4", floats(3, 4)), floats(4, 6, 8), floats(4, 6),
                    floats(4, 8, 3), floats(4, 8)],
     {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}),
    (MS, "QMoE", 1, [varying("S 32", floats(3, 32)), varying("S 4", floats(3, 4)), octets(4, 16, 16),
                     floats(4, 16, 2), None, octets(4, 32, 8), floats(4, 32, 1), floats(4, 32)],
     {"k": 2, "block_size": 16}),
    (MS, "NhwcFusedConv", 1, [varying("B S K 3", floats(2, 5, 6, 3)), floats(4, 3, 3, 3), floats(4),
                              varying("B S K 4", floats(2, 5, 6, 4))],
     {"pads": [1] * 4, "activation": "Relu"}),
    (MS, "NhwcMaxPool", 1, [varying("B H W 3", octets(2, 5, 6, 3))],
     {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}),
    (MS, "QLinearConv", 1, [varying("B H W 3", octets(2, 5, 6, 3)), scale(0.1), zero(3),
                            octets(4, 3, 3, 3), scale(0.2), zero(9), scale(30), zero(100), ints(50, 4)],
     {"channels_last": 1, "pads": [1] * 4}),
    ("", "QLinearConv", 1, [varying("B 16 Y X", octets(2, 16, 9, 7)), scale(0.1), zero(3),
                            ints(99, 24, 16, 3, 3, dtype="i1"), scale(0.2), numpy.array(0, "i1"), scale(90),
                            zero(100)], {"pads": [1, 1, 1, 1]}),
    (MS, "QLinearWhere", 1, [varying("S", ints(2, 3, dtype="?")), varying("B S", octets(2, 3)), scale(0.1),
                             zero(3), varying("S", octets(3)), scale(0.2), zero(9), scale(0.3), zero(100)],
     {}),
    (MS, "QLinearReduceMean", 1, [varying("B S", octets(2, 3)), scale(0.1), zero(3), scale(0.05), zero(9)],
     {"axes": [1], "keepdims": 0}),
    (ML, "Scaler", 1, [varying("B 3", floats(2, 3))], {"offset": [1.0, 2.0, 3.0], "scale": [1.0, 0.5, 2.0]}),
    (ML, "Normalizer", 1, [varying("B S", floats(2, 3))], {"norm": "L2"}),
    (ML, "LinearClassifier", 2, [varying("B 3", floats(2, 3))],
     {"coefficients": floats(9).tolist(), "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [0, 1, 2],
      "post_transform": "SOFTMAX"}),
    (ML, "SVMRegressor", 1, [varying("B 3", floats(2, 3))],
     {"coefficients": floats(2).tolist(), "support_vectors": floats(6).tolist(), "n_supports": 2,
      "rho": [0.5], "kernel_type": "RBF", "kernel_params": [0.3, 0.0, 3.0]}),
    (ML, "FeatureVectorizer", 1, [varying("B S", floats(2, 3)), varying("B 2", floats(2, 2))], {}),
    (ML, "OneHotEncoder", 1, [varying("B S", ints(4, 2, 3, dtype="i8"))], {"cats_int64s": [0, 1, 2]}),
]


def rows_of_pixels(channels, op):
    """(nodes, inputs) that reduce over the channels of all pixels of a batch, as rows of a matrix."""
    nodes = [helper.make_node("Transpose", ["in0"], ["t"], perm=[0, 2, 3, 1]),
             helper.make_node("Reshape", ["t", "in1"], ["rows"]),
             helper.make_node(op, ["rows"], ["out0"], axes=[-1])]
    return nodes, [varying(f"B {channels} 8 8", floats(2, channels, 8, 8)), numpy.array([-1, channels])]


def lines():
    """(nodes, inputs) of convolutions between which so much lies that it is computed by strips."""
    nodes = [helper.make_node("Conv", ["in0", "in1"], ["wide"]),
             helper.make_node("Conv", ["wide", "in2"], ["window"], group=48, pads=[1, 1, 1, 1]),
             helper.make_node("Conv", ["window", "in3"], ["out0"])]
    return nodes, [varying("B 8 96 96", floats(2, 8, 96, 96)), floats(48, 8, 1, 1) / 3,
                   floats(48, 1, 3, 3) / 3, floats(8, 48, 1, 1) / 7]


def images():
    """(nodes, inputs) of convolutions of images of any size: what pads, joins and enlarges them, and windows
    of 3 x 3 and enough channels for Winograd's filtering."""
    nodes = [helper.make_node("Conv", ["in0", "in1"], ["a"], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["a"], ["fine"]),
             helper.make_node("Conv", ["fine", "in2"], ["b"], pads=[1, 1, 1, 1], strides=[2, 2]),
             helper.make_node("Relu", ["b"], ["coarse"]),
             helper.make_node("Conv", ["coarse", "in3"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("Conv", ["c", "in4"], ["d"], pads=[0, 1, 2, 1]),
             helper.make_node("Add", ["c", "coarse"], ["e"]),
             helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
             helper.make_node("Concat", ["e", "d", "f"], ["parts"], axis=1),
             helper.make_node("Resize", ["parts", "", "in5"], ["out0"], mode="nearest",
                              coordinate_transformation_mode="asymmetric", nearest_mode="floor")]
    return nodes, [varying("B 8 Y X", floats(2, 8, 9, 7)), floats(16, 8, 3, 3) / 8,
                   floats(32, 16, 3, 3) / 12, floats(32, 32, 3, 3) / 17, floats(16, 32, 3, 3) / 17,
                   numpy.array([1, 1, 2, 2], "f4")]


def windows():
    """(nodes, inputs) of what adds, again and again, the end of a table's beginning that is as long as the sum
    so far: each length is an expression of the one before, several times, as in a decoder with a mask of fixed
    size (written out, of 30 lengths, it would not end)."""
    nodes = [helper.make_node("Shape", ["in1"], ["end"])]
    last = "in0"
    for i in range(30):
        nodes += [helper.make_node("Shape", [last], [f"length{i}"]),
                  helper.make_node("Sub", ["end", f"length{i}"], [f"begin{i}"]),
                  helper.make_node("Slice", ["in2", f"begin{i}", "end"], [f"window{i}"]),
                  helper.make_node("Add", [last, f"window{i}"], [f"sum{i}"])]
        last = f"sum{i}"
    nodes.append(helper.make_node("Softmax", [last], ["out0"]))
    return nodes, [varying("S", floats(3)), varying("K", floats(5)), floats(8)]


def lengths():
    """(nodes, inputs) of a length that is chosen again and again between two, each made of both before: the
    walk from the end to the inputs meets all of them, and the code says each once."""
    nodes = [helper.make_node("Shape", ["in0"], ["u0"]), helper.make_node("Shape", ["in1"], ["v0"])]
    for i in range(24):
        u, v = f"u{i}", f"v{i}"
        nodes += [helper.make_node("Less", [u, v], [f"less{i}"]),
                  helper.make_node("Equal", [u, "in3"], [f"equal{i}"]),
                  helper.make_node("Add", [v, "in4"], [f"next{i}"]),
                  helper.make_node("Where", [f"less{i}", f"next{i}", u], [f"u{i + 1}"]),
                  helper.make_node("Where", [f"equal{i}", u, f"next{i}"], [f"v{i + 1}"])]
    nodes += [helper.make_node("Min", ["u24", "v24"], ["least"]),
              helper.make_node("Expand", ["in2", "least"], ["out0"])]
    return nodes, [varying("S", floats(3)), varying("K", floats(5)), floats(1), numpy.array([4]),
                   numpy.array([1])]


def groups():
    """(nodes, inputs) of groups of channels that are normalized, of an image, of one with channels innermost,
    and of one of twice the size: dimensions are joined, reduced and taken apart again."""
    nodes, last = [], "in0"
    # scales and biases of so many groups are the inputs of that number and the next
    for i, (image, number) in enumerate([("in0", 2), ("a1", 4), ("a2", 2)]):
        if i == 1:
            nodes.append(helper.make_node("Conv", [last, "in1"], ["a1"], pads=[1, 1, 1, 1]))
        if i == 2:
            nodes.append(helper.make_node("DepthToSpace", [last], ["a2"], blocksize=2))
        nodes += [helper.make_node("Shape", [image], [f"shape{i}"]),
                  helper.make_node("Constant", [], [f"rows{i}"], value_ints=[0, number, -1]),
                  helper.make_node("Reshape", [image, f"rows{i}"], [f"joined{i}"]),
                  helper.make_node("InstanceNormalization",
                                   [f"joined{i}", f"in{number}", f"in{number + 1}"], [f"norm{i}"]),
                  helper.make_node("Reshape", [f"norm{i}", f"shape{i}"], [f"apart{i}"]),
                  helper.make_node("Sigmoid", [f"apart{i}"], [f"s{i}"]),
                  helper.make_node("Mul", [f"apart{i}", f"s{i}"], [f"silu{i}" if i < 2 else "out0"])]
        last = f"silu{i}"
    return nodes, [varying("B 4 Y X", floats(2, 4, 5, 7)), floats(8, 4, 3, 3), floats(2), floats(2),
                   floats(4), floats(4)]


def areas():
    """(nodes, inputs) of what runs over all pixels at once: a softmax, products, the largest and the mean."""
    nodes = [helper.make_node("Conv", ["in0", "in1"], ["a"], pads=[1, 1, 1, 1]),
             helper.make_node("Shape", ["a"], ["shape"]),
             helper.make_node("Reshape", ["a", "in2"], ["rows"]),
             helper.make_node("Softmax", ["rows"], ["soft"], axis=-1),
             helper.make_node("Reshape", ["soft", "shape"], ["image"]),
             helper.make_node("ReduceMax", ["image"], ["most"], axes=[2, 3], keepdims=0),
             helper.make_node("ReduceMean", ["image"], ["mean"], axes=[2, 3], keepdims=0),
             helper.make_node("ReduceProd", ["in0"], ["product"], axes=[2, 3], keepdims=0),
             helper.make_node("ReduceL2", ["in0"], ["length"], axes=[1, 3], keepdims=0),
             helper.make_node("ReduceMin", ["length"], ["least"], axes=[1]),
             helper.make_node("Transpose", ["in0"], ["last"], perm=[0, 2, 3, 1]),
             helper.make_node("Reshape", ["last", "in3"], ["pixels"]),
             helper.make_node("MatMul", ["rows", "pixels"], ["matrix"]),
             helper.make_node("ReduceMean", ["matrix"], ["sums"], axes=[2], keepdims=0),
             helper.make_node("Concat", ["most", "mean", "product", "least", "sums"], ["out0"], axis=1)]
    return nodes, [varying("B 4 Y X", floats(2, 4, 5, 7)), floats(8, 4, 3, 3), numpy.array([0, 8, -1]),
                   numpy.array([0, -1, 4])]


def joined():
    """(nodes, inputs) of products of pixels, in lines whose places others read: residuals, windows, means."""
    nodes = [helper.make_node("Conv", ["in0", "in1"], ["a"]),
             helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Add", ["b", "in0"], ["residual"]),
             helper.make_node("Conv", ["residual", "in2", "in3"], ["c"]),
             helper.make_node("HardSwish", ["c"], ["d"]),
             helper.make_node("Conv", ["d", "in4"], ["e"], group=64, pads=[1, 1, 1, 1]),
             helper.make_node("GlobalAveragePool", ["e"], ["mean"]),
             helper.make_node("Sigmoid", ["mean"], ["gate"]),
             helper.make_node("Mul", ["e", "gate"], ["f"]),
             helper.make_node("Conv", ["f", "in1"], ["g"]),
             helper.make_node("Add", ["g", "residual"], ["h"]),
             helper.make_node("Conv", ["h", "in2", "in3"], ["i"]),
             helper.make_node("Conv", ["h", "in2"], ["j"], strides=[2, 1]),
             helper.make_node("ReduceMax", ["j"], ["most"], axes=[2], keepdims=1),
             helper.make_node("MaxPool", ["h"], ["pooled"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
             helper.make_node("Conv", ["pooled", "in1"], ["k"]),
             helper.make_node("Concat", ["i", "most", "residual", "k"], ["out0"], axis=2)]
    return nodes, [varying("B 64 H W", floats(2, 64, 5, 7)), floats(64, 64, 1, 1) / 8,
                   floats(64, 64, 1, 1) / 8, floats(64), floats(64, 1, 3, 3)]


def activated():
    """(nodes, inputs) of a product with a function behind it, of few rows or many."""
    nodes = [helper.make_node("MatMul", ["in0", "in1"], ["a"]), helper.make_node("Sigmoid", ["a"], ["b"]),
             helper.make_node("Mul", ["a", "b"], ["out0"])]
    return nodes, [varying("B S 64", floats(2, 7, 64)), floats(64, 192)]


CHAINS = {"pixels3": rows_of_pixels(3, "ReduceMean"), "pixels16": rows_of_pixels(16, "ReduceMax"),
          "lines": lines(), "images": images(), "windows": windows(), "lengths": lengths(), "groups": groups(),
          "areas": areas(), "joined": joined(),
          "activated": activated()}


def write(folder, nodes, n_outputs, inputs):
    os.makedirs(f"{folder}/test_data_set_0")
    infos, initializers, ranges = [], [], set()
    for k, value in enumerate(inputs):
        if value is None:
            continue
        if isinstance(value, numpy.ndarray):
            initializers.append(numpy_helper.from_array(value, f"in{k}"))
            continue
        shape, data = value
        kind = helper.np_dtype_to_tensor_dtype(data.dtype)
        extents = [int(d) if d.isdigit() else d for d in shape]
        ranges |= set(shape) & set(RANGES)
        with open(f"{folder}/test_data_set_0/input_{len(infos)}.pb", "wb") as file:
            file.write(numpy_helper.from_array(data).SerializeToString())
        infos.append(helper.make_tensor_value_info(f"in{k}", kind, extents))
    outputs = [f"out{k}" for k in range(n_outputs)]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=o) for o in outputs],
                              initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1), helper.make_opsetid(ML, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), f"{folder}/model.onnx")
    with open(f"{folder}/dims", "w", encoding="utf-8") as file:
        file.writelines(f"{name}={RANGES[name]}\n" for name in sorted(ranges))


def main():
    for number, (domain, op, n_outputs, inputs, attributes) in enumerate(CASES):
        node = helper.make_node(op, [f"in{k}" if value is not None else "" for k, value in enumerate(inputs)],
                                [f"out{k}" for k in range(n_outputs)], domain=domain, **attributes)
        write(f"{sys.argv[1]}/node/{op}_{number}", [node], n_outputs, inputs)
    for name, (nodes, inputs) in CHAINS.items():
        write(f"{sys.argv[1]}/node/{name}", nodes, 1, inputs)


main()
