"""Operators of whole networks: attention, losses, samplers, those of com.microsoft."""

import numpy as np


from .builder import Reject
from .ops_quant import qlinear_conv_inputs, scale_value, zero
from .table import operator

MICROSOFT = "com.microsoft"


@operator(1)
def attention(g):
    if g.opset < 23:
        raise Reject("too old")
    batch, heads, queries, keys = (
        g.between(1, 2),
        g.one_of((1, 2, 4)),
        g.between(1, 8),
        g.between(1, 9),
    )
    size, values = g.one_of((2, 4, 8)), g.one_of((2, 4, 8))
    groups = g.one_of([d for d in (1, 2, 4) if heads % d == 0]) if g.chance(0.4) else heads
    q = g.fresh("f32", (batch, heads, queries, size), -2, 2)
    k = g.fresh("f32", (batch, groups, keys, size), -2, 2)
    v = g.fresh("f32", (batch, groups, keys, values), -2, 2)
    mask = None
    if g.chance(0.5):
        shape = g.one_of(((queries, keys), (batch, 1, queries, keys), (1, heads, queries, keys)))
        mask = g.fresh("f32", shape, -2, 2)
    causal = 1 if g.chance(0.3) else None
    g.node(
        "Attention",
        [q, k, v, mask],
        kind="smooth",
        scale=8,
        is_causal=causal,
        softcap=g.one_of((None, None, 2.0)),
    )


@operator(0.7)
def rotary(g):
    if g.opset < 23:
        raise Reject("too old")
    batch, heads, length, size = (
        g.between(1, 2),
        g.between(1, 3),
        g.between(1, 7),
        g.one_of((2, 4, 8)),
    )
    x = g.fresh("f32", (batch, heads, length, size))
    cos, sin = g.fresh("f32", (length + 2, size // 2), -1, 1), g.fresh(
        "f32", (length + 2, size // 2), -1, 1
    )
    positions = g.add(g.rng.integers(0, length + 2, (batch, length)).astype(np.int64))
    g.node(
        "RotaryEmbedding",
        [x, cos, sin, positions],
        kind="smooth",
        interleaved=g.one_of((0, 1, None)),
    )


@operator(1)
def loss(g):
    name = g.one_of(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    classes, batch = g.between(1, 7), g.between(1, 5)
    rest = [g.between(1, 4) for _ in range(g.below(3))]
    x = g.fresh("f32", [batch, classes] + rest)
    labels = g.add(
        g.rng.integers(0, classes, [batch] + rest).astype(g.one_of((np.int64, np.int32)))
    )
    weight = g.fresh("f32", (classes,), 0.5, 2) if g.chance(0.5) else None
    ignore = (
        g.below(classes)
        if g.chance(0.3) and classes > 1 and not np.all(labels.array == labels.array.flat[0])
        else None
    )
    g.node(
        name,
        [x, labels, weight],
        kind="smooth",
        scale=8,
        fixed=(1,),
        ignore_index=ignore,
        reduction=g.one_of(("none", "sum", "mean", None)),
    )


@operator(0.7)
def unpool(g):
    n, c, h, w = 1, g.between(1, 3), g.one_of((2, 4, 6)), g.one_of((2, 4, 6))
    x = g.fresh("f32", (n, c, h, w))
    pooled, indices = g.node(
        "MaxPool", [x], kind="select", outputs=2, kernel_shape=[2, 2], strides=[2, 2]
    )
    g.node(
        "MaxUnpool",
        [pooled, indices],
        kind="move",
        fixed=(1,),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )


@operator(0.7)
def roi_align(g):
    if g.opset < 16:
        raise Reject("too old")
    x = g.fresh("f32", (2, g.between(1, 3), 8, 8))
    n = g.between(1, 3)
    corner = g.rng.integers(0, 8, (n, 2)) * 0.5
    boxes = g.add(
        np.concatenate([corner, corner + g.rng.integers(1, 8, (n, 2)) * 0.5], 1).astype("f4")
    )
    batch = g.add(g.rng.integers(0, 2, n).astype(np.int64))
    g.node(
        "RoiAlign",
        [x, boxes, batch],
        kind="smooth",
        scale=8,
        fixed=(1, 2),
        output_height=g.between(1, 3),
        output_width=g.between(1, 3),
        sampling_ratio=g.between(1, 3),
        mode="avg",
        spatial_scale=g.one_of((1.0, 0.5, None)),
        coordinate_transformation_mode=g.one_of(("half_pixel", "output_half_pixel", None)),
    )


@operator(0.5)
def affine_grid(g):
    if g.opset < 20:
        raise Reject("too old")
    n = g.between(1, 2)
    theta = g.fresh("f32", (n, 2, 3), -1, 1)
    g.node(
        "AffineGrid",
        [theta, g.shape_input([n, 1, g.between(2, 5), g.between(2, 5)])],
        kind="smooth",
        scale=4,
        fixed=(1,),
        align_corners=g.one_of((0, 1, None)),
    )


@operator(0.7)
def transform(g):
    if g.opset < 20:
        raise Reject("too old")
    n = g.one_of((1, 2, 3, 4, 5, 8, 16))
    x = g.fresh("f32", (g.between(1, 3), n, g.one_of((1, 2))), -2, 2)
    length = g.scalar("i64", g.between(1, n + 2)) if g.chance(0.3) else None
    real = x.shape[-1] == 1
    g.node(
        "DFT",
        [x, length, g.scalar("i64", 1)],
        kind="smooth",
        scale=8,
        fixed=(1, 2),
        onesided=1 if real and g.chance(0.4) else None,
        inverse=1 if not real and g.chance(0.4) else None,
    )


# ---- com.microsoft ----------------------------------------------------------------------------


@operator(1)
def microsoft_activation(g):
    name = g.one_of(("Gelu", "FastGelu", "QuickGelu", "BiasGelu"))
    x = g.pick("f32", rank=(1, 4), test=lambda v: v.size > 0)
    inputs = [x]
    if name == "BiasGelu" or name == "FastGelu" and g.chance(0.5):
        inputs.append(g.fresh("f32", x.shape[-1:]))
    g.node(name, inputs, kind="smooth", domain=MICROSOFT, scale=4)


@operator(1)
def microsoft_matmul(g):
    m, k, n = (g.one_of(g.dims) for _ in range(3))
    ta, tb = g.one_of((0, 1, None)), g.one_of((0, 1, None))
    batch = [g.between(1, 3)] if g.chance(0.4) else []
    a = g.fresh("f32", batch + ([k, m] if ta else [m, k]))
    b = g.fresh("f32", batch + ([n, k] if tb else [k, n]))
    if g.chance(0.6):
        g.node(
            "FusedMatMul",
            [a, b],
            kind="smooth",
            domain=MICROSOFT,
            transA=ta,
            transB=tb,
            alpha=g.one_of((0.5, 2.0, None)),
        )
        return
    if batch:
        raise Reject("matrices only")
    c = g.fresh("f32", (n,)) if g.chance(0.6) else None
    activation = g.one_of(("Relu", "LeakyRelu", "Tanh", "Sigmoid"))
    g.node(
        "FusedGemm",
        [a, b, c],
        kind="smooth",
        domain=MICROSOFT,
        transA=ta,
        transB=tb,
        activation=activation,
        activation_alpha=0.25 if activation == "LeakyRelu" else None,
    )


@operator(1)
def microsoft_norm(g):
    name = g.one_of(
        (
            "SkipLayerNormalization",
            "SimplifiedLayerNormalization",
            "SkipSimplifiedLayerNormalization",
        )
    )
    shape = (g.between(1, 2), g.between(1, 5), g.one_of((2, 3, 8, 16, 17)))
    x, gamma = g.fresh("f32", shape), g.fresh("f32", shape[-1:], 0.5, 2)
    if name == "SimplifiedLayerNormalization":
        g.node(name, [x, gamma], kind="smooth", scale=8, epsilon=1e-2, axis=-1)
        return
    inputs = [x, g.fresh("f32", shape), gamma]
    if name == "SkipLayerNormalization":
        inputs.append(g.fresh("f32", shape[-1:]) if g.chance(0.6) else None)
    if g.chance(0.4):
        inputs += [None] * (4 - len(inputs)) if name == "SkipLayerNormalization" else []
        inputs.append(g.fresh("f32", shape[-1:]))
    g.node(name, inputs, kind="smooth", scale=8, domain=MICROSOFT, epsilon=1e-2)


@operator(1)
def microsoft_quantized(g):
    dtype = g.one_of(("u8", "i8"))
    name = g.one_of(("QLinearAdd", "QLinearMul"))
    a = g.pick(dtype)
    b = g.partner(a)
    g.node(
        name,
        [
            a,
            scale_value(g),
            zero(g, dtype),
            b,
            scale_value(g),
            zero(g, dtype),
            scale_value(g),
            zero(g, dtype),
        ],
        domain=MICROSOFT,
    )


@operator(0.7)
def microsoft_concat(g):
    dtype = g.one_of(("u8", "i8"))
    x = g.fresh(dtype, rank=(1, 3))
    axis = g.below(x.rank)
    shape = list(x.shape)
    shape[axis] = g.between(1, 3)
    inputs = [scale_value(g), zero(g, dtype), x, scale_value(g), zero(g, dtype)]
    inputs += [g.fresh(dtype, shape), scale_value(g), zero(g, dtype)]
    g.node("QLinearConcat", inputs, domain=MICROSOFT, axis=axis)


@operator(1)
def matmul_bits(g):
    """Weights of 4 bits in blocks."""
    block = g.one_of((16, 32))
    k, n = block * g.between(1, 3), g.one_of((1, 3, 8, 17))
    a = g.fresh("f32", (g.between(1, 3), k))
    b = g.add(g.rng.integers(0, 256, (n, k // block, block // 2)).astype(np.uint8), True)
    scales = g.add(g.rng.uniform(0.1, 1, (n * (k // block),)).astype(np.float32), True)
    points = None
    if g.chance(0.5):
        points = g.add(
            g.rng.integers(0, 256, (n * ((k // block + 1) // 2),)).astype(np.uint8), True
        )
    g.node(
        "MatMulNBits",
        [a, b, scales, points],
        kind="smooth",
        scale=8,
        domain=MICROSOFT,
        K=k,
        N=n,
        bits=4,
        block_size=block,
    )


def router(g, tokens, experts):
    """Routes without two that are nearly equal, of which either may be chosen."""
    order = np.argsort(g.rng.random((tokens, experts)), axis=1)
    return g.parameter((order / 2 - experts / 4).astype(np.float32))


def expert_attributes(g, experts):
    activation = g.one_of(("relu", "gelu", "silu", "identity", "swiglu"))
    attributes = {
        "k": g.between(1, experts),
        "activation_type": activation,
        "normalize_routing_weights": g.one_of((0, 1, None)),
    }
    if activation == "swiglu":
        attributes["swiglu_fusion"] = 1
        attributes["activation_alpha"] = g.one_of((1.5, None))
        attributes["activation_beta"] = g.one_of((0.5, None))
        attributes["swiglu_limit"] = g.one_of((1.0, None))
    return attributes


@operator(1)
def experts(g):
    tokens, count, hidden, inner = (
        g.between(1, 5),
        g.between(1, 5),
        g.one_of((1, 3, 8, 16)),
        g.one_of((1, 2, 7, 16)),
    )
    attributes = expert_attributes(g, count)
    rows = inner * (2 if "swiglu_fusion" in attributes else 1)
    shape = (1, tokens, hidden) if g.chance(0.3) else (tokens, hidden)
    bias = g.chance(0.5)
    inputs = [
        g.fresh("f32", shape, -2, 2),
        router(g, tokens, count),
        g.fresh("f32", (count, rows, hidden), -1, 1),
        g.fresh("f32", (count, rows), -1, 1) if bias else None,
        g.fresh("f32", (count, hidden, inner), -1, 1),
        g.fresh("f32", (count, hidden), -1, 1) if bias else None,
    ]
    g.node("MoE", inputs, kind="smooth", scale=16, fixed=(1,), domain=MICROSOFT, **attributes)


@operator(1)
def experts_of_bits(g):
    bits, block = g.one_of((2, 4, 8)), g.one_of((None, 16, 32))
    tokens, count, hidden, inner = g.between(1, 4), g.between(1, 4), 32 * g.between(1, 2), 32
    attributes = expert_attributes(g, count)
    rows = inner * (2 if "swiglu_fusion" in attributes else 1)
    zeros = g.chance(0.5)

    def octets(*shape):
        return g.add(g.rng.integers(0, 256, shape).astype(np.uint8), True)

    def layer(rows, depth):
        blocks = [depth // block] if block else []
        scales = g.rng.uniform(0.5, 1, [count, rows] + blocks) / 2**bits
        points = [count, rows] + blocks
        points[-1] = (points[-1] * bits + 7) // 8
        return (
            octets(count, rows, depth * bits // 8),
            g.add(scales.astype(np.float32), True),
            octets(*points) if zeros else None,
        )

    w1, s1, z1 = layer(rows, hidden)
    w2, s2, z2 = layer(hidden, inner)
    bias = g.fresh("f32", (count, rows), -1, 1) if g.chance(0.5) else None
    inputs = [g.fresh("f32", (tokens, hidden), -1, 1), router(g, tokens, count)]
    inputs += [w1, s1, bias, w2, s2, None, None, None, None, z1, z2]
    if g.chance(0.4):
        inputs += [None, g.fresh("f32", (tokens, count), 0.25, 1)]
    g.node(
        "QMoE",
        inputs,
        kind="smooth",
        scale=16,
        fixed=(1,),
        domain=MICROSOFT,
        expert_weight_bits=bits,
        block_size=block,
        **attributes,
    )


@operator(1)
def microsoft_conv(g):
    last = g.one_of((0, 1, None))
    inputs, attributes = qlinear_conv_inputs(g, bool(last))
    g.node("QLinearConv", inputs, domain=MICROSOFT, channels_last=last, **attributes)


@operator(0.7)
def microsoft_pool(g):
    kernel = [g.between(1, 3), g.between(1, 3)]
    x = g.fresh(
        g.one_of(("u8", "i8")), (1, g.between(3, 9), g.between(3, 9), g.one_of((1, 3, 16, 17)))
    )
    g.node(
        "NhwcMaxPool",
        [x],
        domain=MICROSOFT,
        kernel_shape=kernel,
        strides=g.one_of(([1, 1], [2, 2], None)),
        pads=[g.below(k) for k in kernel * 2] if g.chance(0.4) else None,
        ceil_mode=g.one_of((0, 1, None)),
    )


@operator(0.7)
def microsoft_where(g):
    dtype = g.one_of(("u8", "i8"))
    x = g.pick(dtype)
    y, condition = g.partner(x), g.partner(x, dtype="bool")
    inputs = [condition]
    for v in (x, y):
        inputs += [v, scale_value(g), zero(g, dtype)]
    g.node("QLinearWhere", inputs + [scale_value(g), zero(g, dtype)], domain=MICROSOFT)
