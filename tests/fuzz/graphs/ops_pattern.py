"""Small pieces of networks, of several nodes: what passes look for."""

import numpy as np

from . import dtypes
from .builder import Reject
from .ops_conv import image
from .ops_quant import Coder, scale_value, scales, zero
from .table import operator


def one(g, op, inputs, kind="smooth", **attributes):
    return g.node(op, inputs, kind=kind, **attributes)[0]


def activation(g, x):
    name = g.one_of(
        ("Relu", "Sigmoid", "Clip", "HardSwish", "Swish", "Gelu", "PRelu", "Tanh", "Elu")
    )
    if name == "Relu":
        return one(g, "Relu", [x], "select")
    if name == "Clip":
        return one(g, "Clip", [x, g.scalar(x.dtype, 0), g.scalar(x.dtype, 6)], "select")
    if name == "Swish":
        return one(g, "Mul", [x, one(g, "Sigmoid", [x])])
    if name == "Gelu":
        inner = one(g, "Erf", [one(g, "Div", [x, g.scalar(x.dtype, 1.4142135)])])
        inner = one(g, "Mul", [x, one(g, "Add", [inner, g.scalar(x.dtype, 1)])])
        return one(g, "Mul", [inner, g.scalar(x.dtype, 0.5)])
    if name == "PRelu":
        slope = g.fresh(x.dtype, (x.shape[1],) + (1,) * (x.rank - 2), -1, 1, constant=True)
        return one(g, "PRelu", [x, slope], "product")
    return one(g, name, [x], coarse=True)


@operator(3)
def conv_chain(g):
    """Convolutions with what usually lies between them."""
    x = image(g, ("f32",), rank=(4, 4))
    kept = x
    for _ in range(g.between(1, 4)):
        c = x.shape[1]
        m = c if g.chance(0.5) else g.one_of((1, 3, 8, 16, 17))
        group = c if m == c and g.chance(0.4) else 1
        k = g.one_of((1, 1, 3, 3, 5))
        if m * c * k * k // group * x.size // c > 400000:
            raise Reject("large")
        weight = g.fresh("f32", (m, c // group, k, k), -1, 1, constant=g.chance(0.9))
        bias = g.fresh("f32", (m,), constant=True) if g.chance(0.6) else None
        stride = g.one_of((1, 1, 1, 2))
        x = one(
            g,
            "Conv",
            [x, weight, bias],
            "product",
            group=group,
            pads=[k // 2] * 4,
            strides=[stride] * 2,
        )
        if g.chance(0.4):
            scale, shift = g.fresh("f32", (m,), 0.5, 2, constant=True), g.fresh(
                "f32", (m,), constant=True
            )
            mean, var = g.fresh("f32", (m,), constant=True), g.fresh(
                "f32", (m,), 0.5, 2, constant=True
            )
            x = one(g, "BatchNormalization", [x, scale, shift, mean, var], coarse=True, scale=4)
        if g.chance(0.7):
            x = activation(g, x)
        if x.shape == kept.shape and g.chance(0.6):
            x = one(g, "Add", [x, kept], "sum")
        elif x.shape[2:] == kept.shape[2:] and g.chance(0.4):
            x = one(g, "Concat", [x, kept], "move", axis=1)
        style = g.rng.random()
        if style < 0.15 and min(x.shape[2:]) >= 2:
            x = one(
                g, g.one_of(("MaxPool", "AveragePool")), [x], kernel_shape=[2, 2], strides=[2, 2]
            )
        elif style < 0.25 and x.size < 2000:
            x = one(
                g,
                "Resize",
                [x, None, g.parameter(np.array([1, 1, 2, 2], np.float32))],
                "move",
                fixed=(2,),
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        elif style < 0.35:
            x = one(
                g,
                "Pad",
                [x, g.shape_input([0, 0, 1, 0, 0, 0, g.one_of((0, -1, 2)), 1])],
                "move",
                fixed=(1,),
            )
        elif style < 0.45:  # squeeze and excite
            mean = one(g, "GlobalAveragePool", [x], extra=dtypes.in_turn(x))
            gate = one(g, "Conv", [mean, g.fresh("f32", (x.shape[1], x.shape[1], 1, 1), -1, 1)])
            x = one(g, "Mul", [x, one(g, "Sigmoid", [gate])])
        if g.chance(0.4):
            kept = x
    if g.chance(0.3):
        x = one(g, "Reshape", [x, g.shape_input([x.shape[0], -1])], "move", fixed=(1,))
        if x.shape[1] <= 512:
            n = g.one_of((1, 3, 10, 16))
            one(
                g,
                "Gemm",
                [x, g.fresh("f32", (n, x.shape[1]), -1, 1), g.fresh("f32", (n,))],
                transB=1,
            )


def split_heads(g, x, heads, last):
    batch, length, width = x.shape
    x = one(
        g,
        "Reshape",
        [x, g.shape_input([batch, length, heads, width // heads])],
        "move",
        fixed=(1,),
    )
    return one(g, "Transpose", [x], "move", perm=[0, 2, 3, 1] if last else [0, 2, 1, 3])


@operator(3)
def attention_by_hand(g):
    batch, length, heads, size = (
        g.between(1, 2),
        g.one_of((1, 3, 8, 17)),
        g.one_of((1, 2, 4)),
        g.one_of((2, 4, 8)),
    )
    width = heads * size
    found = g.existing(
        lambda v: v.dtype == "f32" and v.shape == (batch, length, width) and not v.special
    )
    x = found or g.fresh("f32", (batch, length, width), -2, 2)
    parts = []
    for _ in range(3):
        y = one(g, "MatMul", [x, g.fresh("f32", (width, width), -1, 1)], "product")
        if g.chance(0.7):
            y = one(g, "Add", [y, g.fresh("f32", (width,))], "sum")
        parts.append(y)
    q, k, v = (split_heads(g, y, heads, i == 1) for i, y in enumerate(parts))
    scores = one(g, "Div", [one(g, "MatMul", [q, k], "product"), g.scalar("f32", size**0.5)])
    if g.chance(0.5):
        scores = one(
            g,
            "Add",
            [
                scores,
                g.fresh("f32", g.one_of(((length,), (length, length), (batch, 1, 1, length)))),
            ],
            "sum",
        )
    if g.chance(0.3):
        mask = g.fresh("bool", (length, length))
        scores = one(g, "Where", [mask, scores, g.scalar("f32", -10000)], "move")
    weights = one(g, "Softmax", [scores], axis=-1, scale=2)
    y = one(g, "Transpose", [one(g, "MatMul", [weights, v], "product")], "move", perm=[0, 2, 1, 3])
    y = one(g, "Reshape", [y, g.shape_input([batch, length, width])], "move", fixed=(1,))
    y = one(g, "MatMul", [y, g.fresh("f32", (width, width), -1, 1)], "product")
    if g.chance(0.7):
        y = one(g, "Add", [y, x], "sum")
    if g.chance(0.5):
        norm_by_hand(g, y)


def norm_by_hand(g, x):
    axes = g.shape_input([-1]) if g.opset >= 18 else None
    given = {} if axes else {"axes": [-1]}
    mean = one(g, "ReduceMean", [x, axes], fixed=(1,), **given)
    apart = one(g, "Sub", [x, mean], "sum")
    square = (
        one(g, "Mul", [apart, apart], "product")
        if g.chance(0.5)
        else one(g, "Pow", [apart, g.scalar("f32", 2)], fixed=(1,))
    )
    spread = one(g, "ReduceMean", [square, axes], fixed=(1,), **given)
    spread = one(g, "Sqrt", [one(g, "Add", [spread, g.scalar("f32", 0.01)])])
    y = one(g, "Div", [apart, spread])
    y = one(g, "Mul", [y, g.fresh("f32", x.shape[-1:], 0.5, 2)])
    return one(g, "Add", [y, g.fresh("f32", x.shape[-1:])])


@operator(1.5)
def rows_by_hand(g):
    """A normalisation or a softmax of simple operators."""
    x = g.pick("f32", rank=(2, 4), test=lambda v: v.size > 0)
    if g.chance(0.5):
        norm_by_hand(g, x)
        return
    if g.opset < 18:
        raise Reject("too old")
    axis = g.shape_input([g.below(x.rank)])
    apart = one(g, "Sub", [x, one(g, "ReduceMax", [x, axis], "select", fixed=(1,))], "sum")
    exp = one(g, "Exp", [apart])
    one(g, "Div", [exp, one(g, "ReduceSum", [exp, axis], fixed=(1,))], scale=2)


@operator(1.5)
def perceptron(g):
    x = g.pick("f32", rank=(2, 3), most=2048, test=lambda v: v.size > 0)
    for _ in range(g.between(1, 3)):
        n = g.one_of(g.dims)
        x = one(
            g,
            "MatMul",
            [x, g.fresh("f32", (x.shape[-1], n), -1, 1, constant=g.chance(0.8))],
            "product",
        )
        if g.chance(0.7):
            x = one(g, "Add", [x, g.fresh("f32", (n,), constant=g.chance(0.8))], "sum")
        if g.chance(0.7) and x.rank > 1:
            x = one(g, g.one_of(("Relu", "Tanh", "Sigmoid", "Erf")), [x])


@operator(1.5)
def shuffle(g):
    """Reshape, Transpose, Reshape: windows, channels, pixels."""
    x = g.pick(("f32", "u8", "i64", "f16"), rank=(2, 4), test=lambda v: v.size > 1)
    shape = []
    for d in x.shape:
        parts = [p for p in (2, 3, 4, 8) if d % p == 0 and d > p]
        p = g.one_of(parts) if parts and g.chance(0.7) else None
        shape += [p, d // p] if p else [d]
    if len(shape) > 6:
        raise Reject("rank")
    y = one(g, "Reshape", [x, g.shape_input(shape)], "move", fixed=(1,))
    perm = [int(i) for i in g.rng.permutation(len(shape))]
    y = one(g, "Transpose", [y], "move", perm=perm)
    flat, rest = [], list(y.shape)
    while rest:
        n = g.between(1, len(rest))
        flat.append(int(np.prod(rest[:n])))
        rest = rest[n:]
    y = one(g, "Reshape", [y, g.shape_input(flat)], "move", fixed=(1,))
    if g.chance(0.4) and y.is_float:
        one(g, "ReduceSum", [y, g.shape_input([g.below(y.rank)])], "sum", fixed=(1,))


@operator(1)
def embedding(g):
    rows, width = g.one_of((3, 8, 33)), g.one_of(g.dims)
    table = g.fresh("f32", (rows, width), constant=True)
    ids = g.add(g.rng.integers(0, rows, (g.between(1, 2), g.between(1, 8))).astype(np.int64))
    x = one(g, "Gather", [table, ids], "move", axis=0)
    positions = g.fresh("f32", (ids.shape[1] + 2, width), constant=True)
    ends = g.shape_input([ids.shape[1]])
    y = one(g, "Slice", [positions, g.shape_input([0]), ends], "move", fixed=(1, 2))
    x = one(g, "Add", [x, y], "sum")
    if g.chance(0.6) and width > 1:
        norm_by_hand(g, x)


@operator(1.5)
def quantized_conv(g):
    """QuantizeLinear, DequantizeLinear, Conv, and again."""
    c, m = g.between(1, 8), g.between(1, 8)
    x = g.fresh("f32", (1, c, g.between(3, 9), g.between(3, 9)))
    for _ in range(g.between(1, 2)):
        c = x.shape[1]
        s, z = scale_value(g), zero(g, "u8")
        x = one(g, "QuantizeLinear", [x, s, z], "step")
        x = one(g, "DequantizeLinear", [x, s, z], "step")
        k = g.one_of((1, 3))
        w = g.fresh("i8", (m, c, k, k), constant=True)
        n = g.chance(0.5)
        w = one(
            g,
            "DequantizeLinear",
            [
                w,
                scales(g, m) if n else scale_value(g),
                g.add(np.zeros(m if n else (), np.int8), True),
            ],
            "step",
            axis=0 if n else None,
        )
        x = one(g, "Conv", [x, w], "product", pads=[k // 2] * 4)
        if g.chance(0.5):
            x = one(g, "Relu", [x], "select")
        if not x.exact:
            return
    s = scale_value(g)
    one(g, "QuantizeLinear", [x, s, zero(g, "u8")], "step")


@operator(1.5)
def quantized_attention(g):
    """Attention that is encoded after every step, in the orders that networks have it in."""
    code = Coder(g)
    batch, length = g.between(1, 2), g.one_of((1, 3, 8, 16, 17, 33))
    heads, size = g.one_of((1, 2, 4)), g.one_of((2, 4, 8, 16))
    width = heads * size
    x = code.coded(g.fresh("f32", (batch, length, width), -2, 2))

    def dense(y):
        y = one(g, "MatMul", [y, code.weights((width, width), 1)], "product")
        if g.chance(0.5):
            y = one(g, "Add", [code.coded(y), g.fresh("f32", (width,), -1, 1)], "sum")
        return code.coded(y)

    def laid(y, last):
        direct = g.chance(0.7)
        z = code.moved(split_heads(g, y, heads, last == direct), y)
        return z if direct else turned(z, [0, 1, 3, 2])

    def turned(y, perm):
        return code.moved(one(g, "Transpose", [y], "move", perm=perm), y)

    q, k, v = (dense(x) for _ in range(3))
    by_keys, values_first = g.chance(0.2), g.chance(0.5)
    left, right = (k, q) if by_keys else (q, k)
    left, right = laid(left, False), laid(right, True)
    if g.chance(0.5):
        left = code.coded(one(g, "Mul", [left, g.scalar("f32", size**-0.5)], "product"))
    scores = code.coded(one(g, "MatMul", [left, right], "product"))
    if g.chance(0.4):
        scores = code.coded(one(g, "Add", [scores, score_bias(g, code, scores, left)], "sum"))
    weights = one(g, "Softmax", [scores], axis=-2 if by_keys else -1, scale=2)
    weights = code.coded(weights)
    if by_keys != values_first:  # else they are there as they are met
        weights = turned(weights, [0, 1, 3, 2])
    pair = [laid(v, True), weights] if values_first else [weights, laid(v, False)]
    y = code.coded(one(g, "MatMul", pair, "product"))
    y = turned(y, [0, 3, 1, 2] if values_first else [0, 2, 1, 3])
    y = code.moved(
        one(g, "Reshape", [y, g.shape_input([batch, length, width])], "move", fixed=(1,)), y
    )
    y = dense(y)
    if g.chance(0.5):
        code.coded(one(g, "Add", [y, x], "sum"))


def score_bias(g, code, scores, queries):
    """Elements of a table by places, or what each row says, repeated along the columns."""
    batch, heads, rows, columns = scores.shape
    if g.chance(0.5):
        n = rows + columns - 1
        table = code.decoded(g.fresh(code.dtype, (n, heads), constant=True))
        places = np.arange(rows)[:, None] - np.arange(columns) + columns - 1
        picked = one(g, "Gather", [table, g.parameter(places.astype(np.int64))], "move", axis=0)
        y = one(g, "Transpose", [code.moved(picked, table)], "move", perm=[2, 0, 1])
        return code.moved(y, table)
    y = one(g, "MatMul", [queries, code.weights((queries.shape[-1], 1), 1)], "product")
    y = code.coded(y)
    if g.chance(0.5):
        shape = g.shape_input([batch, heads, rows, columns])
        y = code.moved(one(g, "Expand", [y, shape], "move", fixed=(1,)), y)
    return y


@operator(1.5)
def quantized_concat(g):
    """Decoded tensors side by side, and what is done with all of them."""
    code = Coder(g)
    h, w = g.between(3, 9), g.between(3, 9)

    def conv(x, m, k, group=1, stride=1):
        if m * x.shape[1] * k * k * h * w // group > 100000:
            raise Reject("large")
        bias = g.fresh("f32", (m,), -1, 1, constant=True) if g.chance(0.5) else None
        y = one(
            g,
            "Conv",
            [x, code.weights((m, x.shape[1] // group, k, k), 0), bias],
            "product",
            group=group,
            pads=[k // 2] * 4,
            strides=[stride] * 2,
        )
        return code.coded(one(g, "Relu", [y], "select") if g.chance(0.5) else y)

    parts = []
    for _ in range(g.between(2, 8)):
        c = g.one_of((1, 2, 3, 4, 8, 12))
        if parts and g.chance(0.5):
            parts.append(conv(g.one_of(parts), c, g.one_of((1, 3))))
        else:
            parts.append(code.decoded(g.fresh(code.dtype, (1, c, h, w))))
    x = code.coded(one(g, "Concat", parts, "move", axis=1))
    c = x.shape[1]
    if g.chance(0.5):
        x = one(g, "Mul", [x, g.fresh("f32", (c, 1, 1), 0.5, 2, constant=True)], "product")
        x = one(g, "Add", [x, g.fresh("f32", (c, 1, 1), -1, 1, constant=True)], "sum")
        x = code.coded(one(g, "Relu", [x], "select") if g.chance(0.7) else x)
    style = g.below(5)
    if style == 0:
        x = conv(x, g.one_of((1, 5, 8, 16, 18)), g.one_of((1, 1, 3)))
    elif style == 1:
        x = conv(x, c, g.one_of((3, 5, 7)), c, g.one_of((1, 2)))
    elif style == 2:
        x = code.coded(one(g, "Mul", [x, code.coded(one(g, "Sigmoid", [x]))], "product"))
        x = one(g, "AveragePool", [x], kernel_shape=[2, 2], strides=[g.one_of((1, 2))] * 2)
        x = code.coded(x)
    if g.chance(0.3):
        other = code.decoded(g.fresh(code.dtype, x.shape))
        code.coded(one(g, "Add", [x, other], "sum"))


@operator(1)
def focus(g):
    """Every other row and column, joined as channels."""
    x = image(g, ("f32", "u8"), rank=(4, 4))
    h, w = x.shape[2:]
    if h % 2 or w % 2:
        raise Reject("odd")
    parts = []
    for a in (0, 1):
        for b in (0, 1):
            parts.append(
                one(
                    g,
                    "Slice",
                    [
                        x,
                        g.shape_input([a, b]),
                        g.shape_input([h, w]),
                        g.shape_input([2, 3]),
                        g.shape_input([2, 2]),
                    ],
                    "move",
                    fixed=(1, 2, 3, 4),
                )
            )
    y = one(g, "Concat", parts, "move", axis=1)
    if y.is_float:
        one(g, "Conv", [y, g.fresh("f32", (3, y.shape[1], 1, 1), -1, 1)], "product")
