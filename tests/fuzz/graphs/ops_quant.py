"""Quantisation."""

import numpy as np

from . import dtypes
from .builder import Reject
from .table import operator


def scale_value(g, dtype="f32"):
    """A power of two, so that scaled numbers stay exact."""
    return g.add(np.array(2.0 ** -g.between(0, 5)).astype(dtypes.NUMPY[dtype]))


def scales(g, n, dtype="f32"):
    return g.add((2.0 ** -g.rng.integers(0, 5, n)).astype(dtypes.NUMPY[dtype]))


def zero(g, dtype, shape=()):
    low, high = dtypes.int_range(dtype)
    return g.fresh(dtype, shape, max(low, -20), min(high, 20))


def byte_weights(g, dtype, shape, constant=None):
    """Signed ones of 7 bits: without VNNI, ONNX Runtime adds products of u8 and i8 in pairs of 16 bits,
    with saturation."""
    low, high = (-64, 63) if dtype == "i8" else (None, None)
    return g.fresh(dtype, shape, low, high, constant=constant)


class Coder:
    """Encodes and decodes for one pattern. Scales are powers of two, and numbers stay exact, or of
    any size: then products are not, and an encoding is taken that their errors do not change."""

    def __init__(self, g):
        self.g, self.whole = g, g.chance(0.5)
        self.dtype, self.mixed = g.one_of(("u8", "u8", "u8", "i8")), g.chance(0.2)
        self.codes = {}  # scale and zero point of what is decoded, by its name

    def known(self, array):
        return self.g.add(array, self.g.chance(0.95))

    def scale(self, about):
        """... of this size."""
        about = np.asarray(about, np.float64)
        return (2.0 ** np.round(np.log2(about)) if self.whole else about).astype(np.float32)

    def linear(self, op, inputs, kind="step", axis=None):
        return self.g.node(op, inputs, kind=kind, axis=axis)[0]

    def decoded(self, q, s=None, z=None):
        s = s or self.known(self.scale(self.g.rng.uniform(0.01, 0.1)))
        z = z or zero(self.g, q.dtype)
        y = self.linear("DequantizeLinear", [q, s, z])
        self.codes[y.name] = s, z
        return y

    def coded(self, x):
        """Encoded in a range that fits it, more or less, and decoded."""
        g = self.g
        dtype = g.one_of(("u8", "i8")) if self.mixed else self.dtype
        least, most = dtypes.int_range(dtype)
        low, high = min(0.0, float(x.array.min())), max(1e-3, float(x.array.max()))
        for _ in range(12):
            scale = self.scale((high - low) / g.rng.uniform(150, 300))
            point = np.clip(np.rint(least - low / scale), least, most)
            s, z = self.known(scale), self.known(point.astype(dtypes.NUMPY[dtype]))
            try:
                kind = "step" if self.whole and x.exact else "encode"
                return self.decoded(self.linear("QuantizeLinear", [x, s, z], kind), s, z)
            except Reject as reject:
                reason = reject
        raise reason

    def moved(self, y, x):
        """y has elements of x, which is decoded: perhaps encoded as x was."""
        code = self.codes[x.name]
        if self.g.chance(0.5):
            kind = "step" if self.whole else "encode"
            return self.decoded(self.linear("QuantizeLinear", [y, *code], kind), *code)
        self.codes[y.name] = code
        return y

    def weights(self, shape, axis):
        g = self.g
        w = g.fresh("i8", shape, constant=g.chance(0.9))
        n = (shape[axis],) if g.opset >= 13 and g.chance(0.7) else ()
        s = self.known(self.scale(g.rng.uniform(0.01, 0.04, n)))
        z = self.known(np.zeros(n, np.int8))
        return self.linear("DequantizeLinear", [w, s, z], axis=axis if n else None)


@operator(2)
def quantize(g):
    dtype = g.one_of(("i8", "u8", "u8") + (("i16", "u16", "i4", "u4") if g.opset >= 21 else ()))
    x = g.pick("f32", exact=True)
    if x.rank and g.chance(0.4):
        axis = g.below(x.rank)
        n = x.shape[axis]
        g.node(
            "QuantizeLinear",
            [x, scales(g, n), zero(g, dtype, (n,))],
            axis=axis - x.rank if g.chance(0.3) else axis,
        )
        return
    point = zero(g, dtype) if dtype != "u8" or g.chance(0.7) else None
    g.node("QuantizeLinear", [x, scale_value(g), point])


@operator(2)
def dequantize(g):
    types = ("i8", "u8", "i32") + (("i16", "u16", "i4", "u4") if g.opset >= 21 else ())
    x = g.pick(types)
    point = None if x.dtype == "i32" or g.chance(0.3) else zero
    if x.rank and g.chance(0.4):
        axis = g.below(x.rank)
        n = x.shape[axis]
        g.node(
            "DequantizeLinear",
            [x, scales(g, n), point and point(g, x.dtype, (n,))],
            kind="smooth" if x.dtype == "i32" else "step",
            axis=axis - x.rank if g.chance(0.3) else axis,
        )
        return
    if g.opset >= 21 and x.rank and g.chance(0.3):  # blocks
        axis = g.below(x.rank)
        n = x.shape[axis]
        block = g.one_of([d for d in range(1, n + 1) if n % d == 0] or [1])
        shape = list(x.shape)
        shape[axis] = n // block
        g.node(
            "DequantizeLinear",
            [x, scales(g, shape), point and point(g, x.dtype, shape)],
            kind="smooth" if x.dtype == "i32" else "step",
            axis=axis,
            block_size=block,
        )
        return
    g.node(
        "DequantizeLinear",
        [x, scale_value(g), point and point(g, x.dtype)],
        kind="smooth" if x.dtype == "i32" else "step",
    )


@operator(1)
def matmul_integer(g):
    a = g.pick(("u8", "i8"), rank=(2, 3))
    if a.shape[-1] == 0:
        raise Reject("empty")
    dtype = g.one_of(("u8", "i8"))
    b = byte_weights(g, dtype, (a.shape[-1], g.one_of(g.dims)))
    g.node(
        "MatMulInteger",
        [
            a,
            b,
            zero(g, a.dtype) if g.chance(0.6) else None,
            zero(g, dtype) if g.chance(0.5) else None,
        ],
    )


@operator(1)
def conv_integer(g):
    c = g.between(1, 4)
    x = g.fresh("u8", (1, c, g.between(3, 8), g.between(3, 8)))
    m, k = g.between(1, 4), g.between(1, 3)
    w = g.fresh("u8", (m, c, k, k))
    attributes = {}
    if g.chance(0.5):
        attributes = {"pads": [g.below(k) for _ in range(4)], "strides": [g.between(1, 2)] * 2}
    g.node(
        "ConvInteger",
        [x, w, zero(g, "u8") if g.chance(0.6) else None, zero(g, "u8") if g.chance(0.4) else None],
        **attributes
    )


@operator(1)
def qlinear_matmul(g):
    dtype = g.one_of(("u8", "i8"))
    m, k, n = (g.one_of(dtypes.DIMS[:7]) for _ in range(3))
    a, b = g.fresh(dtype, (m, k)), g.fresh(dtype, (k, n))
    g.node(
        "QLinearMatMul",
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
    )


def qlinear_conv_inputs(g, channels_last=False):
    """Inputs and attributes."""
    dtype = g.one_of(("u8", "i8"))
    c, m, k = g.between(1, 5), g.between(1, 5), g.between(1, 3)
    h, w = g.between(3, 9), g.between(3, 9)
    x = g.fresh(dtype, (1, h, w, c) if channels_last else (1, c, h, w))
    w = g.fresh(dtype, (m, c, k, k))
    bias = g.fresh("i32", (m,), -50, 50) if g.chance(0.5) else None
    attributes = {}
    if g.chance(0.5):
        attributes = {"pads": [g.below(k) for _ in range(4)], "strides": [g.between(1, 2)] * 2}
    inputs = []
    for v in (x, w):
        inputs += [v, scale_value(g), zero(g, dtype)]
    return inputs + [scale_value(g), zero(g, dtype), bias], attributes


@operator(1)
def qlinear_conv(g):
    inputs, attributes = qlinear_conv_inputs(g)
    g.node("QLinearConv", inputs, **attributes)


@operator(0.7)
def dynamic_quantize(g):
    x = g.pick("f32", exact=True, rank=(1, 3))
    if x.size == 0 or not np.ptp(x.array) > 0:
        raise Reject("constant")
    # a value half way between two steps may be rounded either way
    low, high = min(0.0, float(x.array.min())), max(0.0, float(x.array.max()))
    steps = dtypes.wide(x.array) / ((high - low) / 255)
    point = -low / ((high - low) / 255)
    for y in (steps, np.array(point)):
        if np.any(np.abs(y - np.floor(y) - 0.5) < 1e-3):
            raise Reject("half way")
    _, scale, _ = g.node("DynamicQuantizeLinear", [x], outputs=3, kind="round", scale=1)
    scale.units = 3  # it promises 2.5
