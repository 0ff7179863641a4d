"""Operators of com.microsoft that stand for some of ai.onnx, or for a pattern of them."""

import numpy as np

from .builder import Reject
from .dtypes import NUMPY
from .ops_quant import byte_weights, scale_value, zero
from .table import operator

MICROSOFT = "com.microsoft"
REAL = ("f32", "f64")


@operator(0.7)
def microsoft_move(g):
    """Trilu, Pad, ExpandDims, GatherND."""
    name = g.one_of(("Trilu", "Pad", "ExpandDims", "GatherND"))
    if name == "Trilu":
        x = g.pick(("f32", "f64", "i64"), rank=(2, 4))
        k = g.scalar("i64", g.between(-3, 3)) if g.chance(0.6) else None
        upper = g.one_of((0, 1, None))
        g.node(name, [x, k], kind="select", fixed=(1,), domain=MICROSOFT, upper=upper)
    elif name == "Pad":
        mode = g.one_of(("constant", "reflect", "edge", None))
        x = g.pick("f32", rank=(1, 3), test=lambda v: v.size > 0)
        pads = [g.between(0, max(0, min(n - 1, 3))) for n in x.shape * 2]
        if g.chance(0.3):
            pads = [pads]
        value = g.fresh("f32", ()) if mode in ("constant", None) and g.chance(0.5) else None
        inputs = [x, g.parameter(np.array(pads, np.int64)), value]
        g.node(name, inputs, kind="select", fixed=(1,), domain=MICROSOFT, mode=mode)
    elif name == "ExpandDims":
        x = g.pick(rank=(0, 4))
        axis = g.scalar("i32", g.between(-x.rank - 1, x.rank))
        g.node(name, [x, axis], kind="move", fixed=(1,), domain=MICROSOFT)
    else:
        x = g.pick(("f32", "i32", "u8"), rank=(1, 4), test=lambda v: v.size > 0)
        depth = g.between(1, x.rank)
        shape = (g.between(1, 4), depth)
        places = np.stack([g.rng.integers(-n, n, shape[0]) for n in x.shape[:depth]], 1)
        places = g.add(places.astype(g.one_of((np.int32, np.int64))))
        g.frozen.add(places.name)
        g.node(name, [x, places], kind="move", fixed=(1,), domain=MICROSOFT)


@operator(0.5)
def microsoft_range(g):
    dtype = g.one_of(("f32", "f64", "i16", "i32", "i64"))
    start, steps, delta = g.between(-9, 9), g.between(1, 9), g.one_of((-3, -1, 1, 2))
    numbers = [start, start + steps * delta] + ([delta] if delta != 1 else [])
    g.node("Range", [g.scalar(dtype, v) for v in numbers], domain=MICROSOFT)


@operator(0.7)
def microsoft_products(g):
    """TransposeMatMul and MatMulBnb4."""
    if g.chance(0.5):
        m, k, n = (g.one_of(g.dims) for _ in range(3))
        ta, tb = g.one_of((0, 1, None)), g.one_of((0, 1, None))
        batch = [g.between(1, 3)] if g.chance(0.4) else []
        a = g.fresh("f32", batch + ([k, m] if ta else [m, k]))
        b = g.fresh("f32", batch + ([n, k] if tb else [k, n]))
        alpha = g.one_of((0.5, None))
        attributes = {"transA": ta, "transB": tb, "alpha": alpha}
        g.node("TransposeMatMul", [a, b], kind="smooth", domain=MICROSOFT, **attributes)
        return
    block = g.one_of((16, 32))
    k, n = g.between(1, 70), g.one_of((1, 3, 8, 17))
    a = g.fresh("f32", (g.between(1, 3), k))
    packed = g.add(g.rng.integers(0, 256, ((n * k + 1) // 2,)).astype(np.uint8), True)
    scales = g.add(g.rng.uniform(0.1, 1, (-(-n * k // block),)).astype(np.float32), True)
    g.node(
        "MatMulBnb4",
        [a, packed, scales],
        kind="smooth",
        scale=8,
        domain=MICROSOFT,
        K=k,
        N=n,
        block_size=block,
        quant_type=g.below(2),
    )


@operator(0.7)
def microsoft_quantized_network(g):
    """QAttention and QEmbedLayerNormalization."""
    dtype, batch, length = g.one_of(("u8", "i8")), g.between(1, 2), g.between(1, 5)
    if g.chance(0.5):
        heads, size, wide = g.between(1, 3), g.between(1, 4), g.between(1, 9)
        columns = 3 * heads * size
        per_column = (columns,) if g.chance(0.4) else ()
        scales = (2.0 ** -g.rng.integers(4, 9, per_column)).astype(np.float32)
        mask = None
        if g.chance(0.5):
            mask = g.fresh("i32", (batch, length), 0, 1)
        inputs = [
            g.fresh("u8", (batch, length, wide)),
            byte_weights(g, dtype, (wide, columns)),
            g.fresh("f32", (columns,)),
            scale_value(g),
            g.add(np.asarray(scales)),
            mask,
            zero(g, "u8") if g.chance(0.6) else None,
            zero(g, dtype, per_column) if g.chance(0.6) else None,
        ]
        g.node(
            "QAttention",
            inputs,
            kind="smooth",
            scale=8,
            domain=MICROSOFT,
            num_heads=heads,
            unidirectional=g.one_of((0, 1, None)),
        )
        return
    hidden, words = g.one_of((2, 3, 8, 17)), g.between(1, 9)
    segments = g.chance(0.6)
    shapes = [(words, hidden), (length, hidden), (2, hidden), (hidden,), (hidden,)]
    ids = [g.fresh("i32", (batch, length), 0, words - 1)]
    ids.append(g.fresh("i32", (batch, length), 0, 1) if segments else None)
    g.frozen.update(v.name for v in ids if v)
    there = [i != 2 or segments for i in range(5)]
    tables = [g.fresh(dtype, s) if t else None for s, t in zip(shapes, there)]
    mask = g.fresh("i32", (batch, length), 0, 1) if g.chance(0.5) else None
    scales = [scale_value(g) if t else None for t in there]
    zeros = [zero(g, dtype) if t else None for t in there]
    g.node(
        "QEmbedLayerNormalization",
        ids + tables + [mask] + scales + zeros,
        kind="smooth",
        outputs=2,
        scale=8,
        domain=MICROSOFT,
        epsilon=1e-2,
    )


@operator(0.5)
def microsoft_grid_sample(g):
    x = g.fresh("f32", (g.between(1, 2), g.between(1, 3), g.between(2, 6), g.between(2, 6)))
    grid = g.fresh("f32", (x.shape[0], g.between(1, 4), g.between(1, 4), 2), -1, 1)
    mode = g.one_of(("bilinear", "bicubic", None))
    g.node(
        "GridSample",
        [x, grid],
        kind="smooth",
        scale=4,
        domain=MICROSOFT,
        mode=mode,
        padding_mode=g.one_of(("zeros", "border", None)),
        align_corners=g.one_of((0, 1, None)),
    )


@operator(0.7)
def microsoft_lstm(g):
    """DynamicQuantizeLSTM: a number half way between two steps may be rounded either way."""
    dtype, batch = g.one_of(("u8", "i8")), g.between(1, 3)
    wide, hidden = g.between(1, 5), g.between(1, 6)
    direction = g.one_of(("forward", "reverse", "bidirectional", None))
    both = 2 if direction == "bidirectional" else 1
    x = g.fresh("f32", (g.between(1, 4), batch, wide), -1, 1)
    if not np.any(x.array):
        raise Reject("zeros")
    columns = (both, 4 * hidden) if g.chance(0.4) else (both,)

    def weights(rows):
        # ONNX Runtime wants one zero point for all columns, which is 0 for signed ones
        point = np.zeros(columns) if dtype == "i8" else np.full(columns, g.between(100, 150))
        return (
            byte_weights(g, dtype, (both, rows, 4 * hidden), constant=True),
            g.add(g.rng.uniform(0.002, 0.006, columns).astype(np.float32)),
            g.add(point.astype(NUMPY[dtype]), True),
        )

    (w, w_scale, w_zero), (r, r_scale, r_zero) = weights(wide), weights(hidden)
    state = (both, batch, hidden)
    inputs = [x, w, r]
    inputs.append(g.fresh("f32", (both, 8 * hidden), -1, 1) if g.chance(0.7) else None)
    inputs.append(None)
    inputs += [g.fresh("f32", state, -1, 1) for _ in range(2)] if g.chance(0.5) else [None] * 2
    inputs.append(g.fresh("f32", (both, 3 * hidden), -1, 1) if g.chance(0.3) else None)
    g.frozen.update(v.name for v in (x, w_scale, r_scale))
    g.node(
        "DynamicQuantizeLSTM",
        inputs + [w_scale, w_zero, r_scale, r_zero],
        kind="smooth",
        outputs=3,
        scale=8,
        extra=0.01,
        domain=MICROSOFT,
        hidden_size=hidden,
        direction=direction,
    )


@operator(0.7)
def microsoft_arithmetic(g):
    """Inverse, CDist, ScaledSiLU, MatMulInteger16, MurmurHash3."""
    name = g.one_of(("Inverse", "CDist", "ScaledSiLU", "MatMulInteger16", "MurmurHash3"))
    if name == "Inverse":
        dtype, n = g.one_of(REAL), g.between(1, 6)
        shape = [g.between(1, 3)] * g.below(2) + [n, n]
        array = g.rng.uniform(-1, 1, shape) + 2 * n * np.eye(n)[g.rng.permutation(n)]
        g.node(name, [g.add(array.astype(NUMPY[dtype]))], kind="smooth", scale=8, domain=MICROSOFT)
    elif name == "CDist":
        dtype, n = g.one_of(REAL), g.between(1, 9)
        pair = [g.fresh(dtype, (g.between(1, 6), n)) for _ in range(2)]
        g.node(name, pair, kind="smooth", scale=8, domain=MICROSOFT, metric="sqeuclidean")
    elif name == "ScaledSiLU":
        x = g.pick(("f32", "f16"), rank=(0, 4))
        scale = g.fresh("f32", (), 0.5, 2) if g.chance(0.5) else None
        alpha = g.one_of((0.5, 1.5, None))
        g.node(name, [x, scale], kind="smooth", scale=4, domain=MICROSOFT, alpha=alpha)
    elif name == "MatMulInteger16":
        m, k, n = (g.one_of(g.dims) for _ in range(3))
        pair = [g.fresh("i16", shape, -3000, 3000) for shape in ((m, k), (k, n))]
        g.node(name, pair, domain=MICROSOFT)
    else:
        x = g.pick(("i32", "u32", "i64", "u64", "f32", "f64"), exact=True)
        seed, positive = g.one_of((0, 7, None)), g.one_of((0, 1, None))
        g.node(name, [x], domain=MICROSOFT, seed=seed, positive=positive)


@operator(0.5)
def microsoft_words_and_crops(g):
    """UnfoldTensor, NGramRepeatBlock, CropAndResize."""
    name = g.one_of(("UnfoldTensor", "NGramRepeatBlock", "CropAndResize"))
    if name == "UnfoldTensor":
        x = g.pick(("f32", "i64", "i32"), rank=(1, 4), test=lambda v: v.size > 0)
        axis = g.below(x.rank)
        size = g.between(1, x.shape[axis])
        attributes = {"dim": axis - x.rank if g.chance(0.5) else axis, "size": size}
        step = g.one_of((1, 2, 3, None))
        g.node(name, [x], kind="move", domain=MICROSOFT, step=step, **attributes)
    elif name == "NGramRepeatBlock":
        batch, words = g.between(1, 3), g.between(2, 6)
        ids = g.fresh("i64", (batch, g.between(1, 9)), 0, words - 1)
        g.frozen.add(ids.name)
        scores = g.fresh("f32", (batch, words))
        size = g.between(1, 4)
        inputs = [ids, scores]
        g.node(name, inputs, kind="select", special=True, domain=MICROSOFT, ngram_size=size)
    else:
        x = g.fresh("f32", (g.between(1, 2), g.between(1, 3), g.between(1, 6), g.between(1, 6)))
        rois = g.rng.uniform(-0.2, 1.2, (g.between(1, 4), 4)).astype(np.float32)
        images = g.rng.integers(0, x.shape[0], rois.shape[0]).astype(np.int32)
        size = np.array([g.between(1, 5), g.between(1, 5)], np.int32)
        given = [g.parameter(v) for v in (rois, images, size)]
        g.node(
            name,
            [x] + given,
            kind="smooth",
            scale=8,
            fixed=(1, 2, 3),
            domain=MICROSOFT,
            mode=g.one_of(("bilinear", None)),
            extrapolation_value=g.one_of((2.5, None)),
        )


@operator(0.4)
def microsoft_conv_transpose(g):
    c, m, k = g.between(1, 3), g.between(1, 3), g.between(1, 3)
    x = g.fresh("f32", (1, c, g.between(2, 5), g.between(2, 5)))
    w, bias = g.fresh("f32", (c, m, k, k)), g.fresh("f32", (m,)) if g.chance(0.5) else None
    pads = g.parameter(np.array([g.below(k) for _ in range(4)], np.int64))
    g.node(
        "ConvTransposeWithDynamicPads",
        [x, w, pads, bias],
        kind="smooth",
        scale=8,
        fixed=(2,),
        domain=MICROSOFT,
        strides=[g.between(1, 2)] * 2,
    )
