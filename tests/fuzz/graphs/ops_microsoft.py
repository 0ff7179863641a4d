"""Operators of com.microsoft that stand for some of ai.onnx, or for a pattern of them."""

import numpy as np

from .builder import Reject
from .ops_quant import scale_value, zero
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
            g.fresh(dtype, (wide, columns)),
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
