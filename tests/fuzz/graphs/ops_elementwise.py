"""Elementwise operators."""

import numpy as np

from . import dtypes
from .builder import Reject
from .dtypes import COMMON, FLOATS, INTS, NUMBERS, SIGNED, UNSIGNED
from .table import operator

# name: (interval of a new input, attributes with the values to choose from)
SMOOTH = {
    "Exp": ((-4, 3), {}),
    "Log": ((0.1, 50), {}),
    "Sqrt": ((0, 50), {}),
    "Sin": ((-6, 6), {}),
    "Cos": ((-6, 6), {}),
    "Tan": ((-1, 1), {}),
    "Asin": ((-0.9, 0.9), {}),
    "Acos": ((-0.9, 0.9), {}),
    "Atan": ((-5, 5), {}),
    "Sinh": ((-3, 3), {}),
    "Cosh": ((-3, 3), {}),
    "Asinh": ((-5, 5), {}),
    "Acosh": ((1.1, 9), {}),
    "Atanh": ((-0.9, 0.9), {}),
    "Tanh": ((-4, 4), {}),
    "Sigmoid": ((-8, 8), {}),
    "Erf": ((-3, 3), {}),
    "Softplus": ((-9, 9), {}),
    "Softsign": ((-9, 9), {}),
    "Elu": ((-4, 4), {"alpha": (0.5, 1.0, 2.0, None)}),
    "Selu": ((-4, 4), {"alpha": (1.0, None), "gamma": (0.5, None)}),
    "Celu": ((-4, 4), {"alpha": (0.5, 1.0, None)}),
    "HardSigmoid": ((-4, 4), {"alpha": (0.25, None), "beta": (0.25, None)}),
    "HardSwish": ((-4, 4), {}),
    "Gelu": ((-4, 4), {"approximate": ("none", "tanh", None)}),
    "Mish": ((-9, 9), {}),
    "LeakyRelu": ((-9, 9), {"alpha": (0.25, 0.0, -1.0, None)}),
    "Reciprocal": ((0.25, 8), {}),
}
# Constants and attributes of f32, which an f64 is multiplied by with or without being rounded.
COARSE = ("HardSigmoid", "HardSwish", "Gelu", "LeakyRelu", "Selu", "Elu", "Celu")
SINCE = {"HardSwish": 14, "Gelu": 20, "Mish": 18}


@operator(5)
def smooth_unary(g):
    name = g.one_of([n for n in SMOOTH if SINCE.get(n, 1) <= g.opset])
    (low, high), attributes = SMOOTH[name]
    chosen = {key: g.one_of(values) for key, values in attributes.items()}
    types = FLOATS if name not in ("Celu",) else ("f32",)
    x = g.pick(types) if g.chance(0.5) else g.fresh(types, low=low, high=high)
    g.node(name, [x], kind="smooth", coarse=name in COARSE, **chosen)


@operator(2)
def select_unary(g):
    name = g.one_of(("Abs", "Neg", "Relu", "Identity", "Sign"))
    types = {
        "Abs": NUMBERS,
        "Neg": FLOATS + SIGNED,
        "Relu": FLOATS + SIGNED,
        "Identity": COMMON,
        "Sign": NUMBERS,
    }[name]
    x = g.pick(types, special=name == "Identity", exact=name == "Sign")
    g.node(name, [x], kind="step" if name == "Sign" else "select", special=name == "Identity")


@operator(1.5)
def step_unary(g):
    name = g.one_of(("Floor", "Ceil", "Round", "IsNaN", "IsInf", "Shrink", "ThresholdedRelu"))
    types, attributes = FLOATS, {}
    if name == "IsInf":
        types = ("f32", "f64") if g.opset < 20 else FLOATS
        attributes = {
            key: g.one_of((0, 1, None)) for key in ("detect_negative", "detect_positive")
        }
    if name == "IsNaN" and g.opset < 13:
        types = ("f32", "f64", "f16")
    if name == "Shrink":
        attributes = {"lambd": g.one_of((0.5, 1.5, None)), "bias": g.one_of((0.25, None))}
    if name == "ThresholdedRelu":
        attributes = {"alpha": g.one_of((0.5, 2.0, None))}
    if name in ("Shrink", "ThresholdedRelu"):
        types = ("f32", "f16")  # an f64 is rounded by one judge
    x = g.pick(types, exact=True, special=name.startswith("Is"))
    g.node(name, [x], kind="step", special=False, **attributes)


@operator(1)
def logic(g):
    name = g.one_of(("Not", "And", "Or", "Xor"))
    a = g.pick("bool")
    g.node(name, [a] if name == "Not" else [a, g.partner(a)])


@operator(8)
def arithmetic(g):
    name = g.one_of(("Add", "Sub", "Mul", "Div"))
    a = g.pick(NUMBERS)
    if name == "Div":
        b = g.partner(a, low=1, high=9) if g.chance(0.7) else g.partner(a)
        if np.any(dtypes.wide(b.array) == 0):
            raise Reject("division by zero")
        if a.dtype in SIGNED and np.any(b.array == -1):
            raise Reject("the least number / -1")
    else:
        b = g.partner(a)
    if g.chance(0.3):
        if name != "Div":
            a, b = b, a
    kind = {"Add": "sum", "Sub": "sum", "Mul": "product", "Div": "smooth"}[name]
    g.node(name, [a, b], kind=kind)


@operator(1)
def variadic(g):
    name = g.one_of(("Sum", "Max", "Min", "Mean"))
    a = g.pick(FLOATS if name in ("Sum", "Mean") else NUMBERS)
    inputs = [a] + [g.partner(a) for _ in range(g.below(4))]
    g.node(name, inputs, kind={"Sum": "sum", "Mean": "smooth"}.get(name, "select"))


@operator(1.5)
def remainder(g):
    a = g.pick(NUMBERS, exact=True)
    b = g.partner(a, exact=True, low=1, high=9) if g.chance(0.6) else g.partner(a, exact=True)
    if np.any(dtypes.wide(b.array) == 0):
        raise Reject("remainder of a division by zero")
    if a.dtype in SIGNED and np.any(b.array == -1):
        raise Reject("the least number % -1")
    fmod = 1 if a.is_float else g.one_of((0, 1, None))
    g.node("Mod", [a, b], fmod=fmod)


@operator(1.5)
def bits(g):
    name = g.one_of(("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"))
    if name == "BitShift":
        a = g.pick(UNSIGNED)
        b = g.partner(a, low=0, high=dtypes.NUMPY[a.dtype].itemsize * 8 - 1)
        g.node(name, [a, b], direction=g.one_of(("LEFT", "RIGHT")))
        return
    if g.opset < 18:
        raise Reject("too old")
    a = g.pick(INTS)
    g.node(name, [a] if name == "BitwiseNot" else [a, g.partner(a)])


@operator(3)
def comparison(g):
    name = g.one_of(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    a = g.pick(COMMON if name == "Equal" else NUMBERS, exact=True, special=True)
    b = g.partner(a, exact=True, special=True)
    if g.chance(0.3):
        a, b = b, a
    g.node(name, [a, b])


@operator(2)
def where(g):
    a = g.pick(COMMON, special=True)
    b = g.partner(a, special=True)
    # the condition's shape fits what both make together
    both = np.broadcast_shapes(a.shape, b.shape)
    condition = g.existing(
        lambda v: v.dtype == "bool" and v.rank <= 5 and v.shape == both[len(both) - v.rank :]
    )
    if condition is None or g.chance(0.4):
        condition = g.fresh(
            "bool", [1 if g.chance(0.3) else d for d in both][g.below(len(both) + 1) :]
        )
    g.node("Where", [condition, a, b], kind="move", special=True)


@operator(1.5)
def clip(g):
    a = g.pick(NUMBERS)
    if g.opset < 11:
        if a.dtype != "f32":
            raise Reject("too old")
        g.node(
            "Clip",
            [a],
            kind="select",
            min=g.one_of((-2.0, 0.0, None)),
            max=g.one_of((1.0, 6.0, None)),
        )
        return
    low = g.fresh(a.dtype, (), low=-3, high=2) if g.chance(0.7) else None
    high = g.fresh(a.dtype, (), low=3, high=9) if g.chance(0.7) else None
    g.node("Clip", [a, low, high], kind="select")


@operator(1)
def power(g):
    a = g.pick(("f32", "f64", "f16", "i32", "i64"))
    if a.is_float:
        a = g.fresh(a.dtype, low=0.25, high=4) if g.chance(0.7) else a
        b = g.partner(a, low=-2, high=3, dtype=g.one_of((a.dtype, "f32")))
        g.node("Pow", [a, b], kind="smooth", scale=4)
        return
    b = g.partner(a, low=0, high=4)
    exact = np.power(dtypes.wide(a.array), dtypes.wide(b.array))
    if np.any(np.abs(exact) >= 2.0 ** (31 if a.dtype == "i32" else 53)):
        raise Reject("powers that do not fit")
    g.node("Pow", [a, b])


@operator(1)
def prelu(g):
    a = g.pick(("f32", "f64", "f16"), rank=(1, 5))
    shape = [1 if g.chance(0.3) else d for d in a.shape][g.below(a.rank) :]
    slope = g.fresh(a.dtype, shape, low=-1, high=1)
    g.node("PRelu", [a, slope], kind="product")


def cast_fits(array, to):
    """Is it determined what a cast gives?"""
    name = dtypes.name_of(array)
    x = dtypes.wide(array)
    if to == "bool":
        return not np.any(np.isnan(x))
    if to in dtypes.INTS + ("i4", "u4") and name in dtypes.REAL:
        low, high = dtypes.int_range(to)
        return bool(
            np.all(np.isfinite(x))
            and np.all(x > max(low, -(2.0**62)) - 1 + (low < 0))
            and np.all(x < min(high, 2**62))
            and np.all(x >= low)
        )
    return True


@operator(4)
def cast(g):
    wide = g.chance(0.25) and g.opset >= 21
    a = g.pick(COMMON + (dtypes.SMALL if wide else ()), special=wide)
    to = g.pick_type(COMMON + (dtypes.SMALL if wide and g.chance(0.6) else ()))
    if not cast_fits(a.array, to):
        raise Reject("out of range")
    step = to not in dtypes.REAL or not a.is_float
    attributes = {}
    if to.startswith("f8") and g.opset >= 19:
        attributes["saturate"] = g.one_of((0, 1, None))
    if not a.exact and to not in FLOATS:
        raise Reject("inexact")
    kind = "step" if step else "round"
    if g.chance(0.15) and g.opset >= 15 and not attributes:
        like = g.fresh(to, (2,))
        g.node("CastLike", [a, like], kind=kind, fixed=(1,), special=True)
        return
    g.node("Cast", [a], kind=kind, special=True, to=dtypes.ONNX[to], **attributes)


@operator(0.5)
def nothing(g):
    """Operators that give what they get."""
    a = g.pick(COMMON)
    training = g.one_of((0, 1))
    if training and a.is_float and a.dtype != "bf16" and g.opset >= 12:
        g.node(
            "Dropout",
            [a, g.scalar("f32", 0.5), g.scalar("bool", False)],
            kind="move",
            fixed=(1, 2),
            outputs=g.one_of((1, 2)),
        )
    else:
        g.node("Identity", [a], kind="move")
