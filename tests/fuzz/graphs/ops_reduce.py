"""Reductions, what accumulates along an axis, order, softmax, normalisation, products."""

import numpy as np

from . import dtypes
from .builder import Reject
from .table import operator

ORT_SUMS = ("f32", "f64", "i32", "i64")
MOST_OF_TYPE = {"i32": 2.0**31, "f16": 6e4, "f32": 3e38, "f64": 1e308}


def too_large(x, name):
    """May sums of these integers, or products of some of these numbers, overflow?"""
    if x.is_float and name != "Prod":
        return False
    each = np.abs(dtypes.wide(x.array))
    if name == "Prod":
        with np.errstate(over="ignore"):
            total = np.prod(np.maximum(each, 1))
    else:
        total = np.sum(each * each if name == "SumSquare" else each)
    return total >= MOST_OF_TYPE.get(x.dtype, 2.0**53)


@operator(5)
def reduce(g):
    name = g.one_of(
        ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    )
    types = ORT_SUMS + (("f16",) if g.chance(0.2) else ())
    if name in ("Max", "Min"):
        types = ("f32", "f64", "i32", "i64", "i8", "u8", "f16") + (
            ("bool",) if g.opset >= 20 else ()
        )
    if name in ("Mean", "LogSum", "LogSumExp", "L2"):
        types = ("f32", "f64", "f16")
    if name == "LogSum" and g.chance(0.8):
        x = g.fresh(types, low=0.25, high=5, rank=(0, 5))
    elif name == "Prod" and g.chance(0.8):
        x = g.fresh(types, low=-2, high=2)
    else:
        x = g.pick(types)
    if x.size == 0:
        raise Reject("the neutral elements of empty reductions differ")
    style = g.rng.random()
    axes = [a for a in range(x.rank) if g.chance(0.5)]
    if style < 0.2:
        axes = None
    elif style < 0.3:
        axes = []
    elif not axes and x.rank:
        axes = [g.below(x.rank)]
    if axes:
        axes = [a - x.rank if g.chance(0.3) else a for a in axes]
        g.rng.shuffle(axes)
        axes = [int(a) for a in axes]
    if name not in ("Max", "Min") and too_large(x, name):
        raise Reject("what does not fit: a judge saturates it, and in floats the order counts")
    kind = {"Sum": "sum", "Max": "select", "Min": "select", "L1": "sum", "Mean": "smooth"}.get(
        name, "smooth"
    )
    keep = g.one_of((0, 1, None))
    as_input = g.opset >= (13 if name == "Sum" else 18)
    noop = g.one_of((0, 1, None)) if as_input and not axes else None
    if name in ("L1", "L2", "LogSum", "LogSumExp", "SumSquare", "Prod", "Mean") and noop == 1:
        noop = None  # opset 18 leaves open whether squares and the like are still taken
    if as_input:
        inputs = [
            x,
            (
                g.shape_input(axes)
                if axes
                else g.parameter(np.array([], np.int64)) if axes == [] else None
            ),
        ]
        g.node(
            "Reduce" + name,
            inputs,
            kind=kind,
            fixed=(1,),
            keepdims=keep,
            noop_with_empty_axes=noop,
        )
    else:
        g.node("Reduce" + name, [x], kind=kind, keepdims=keep, axes=axes or None)


@operator(2)
def arg_reduce(g):
    x = g.pick(("f32", "f64", "i32", "i8", "u8", "i64", "f16"), rank=(1, 5), exact=True)
    axis = g.below(x.rank)
    if x.size == 0:
        raise Reject("empty")
    g.node(
        g.one_of(("ArgMax", "ArgMin")),
        [x],
        keepdims=g.one_of((0, 1, None)),
        axis=axis - x.rank if g.chance(0.3) else axis,
        select_last_index=g.one_of((0, 1, None)),
    )


@operator(1.5)
def topk(g):
    x = g.pick(("f32", "f64", "i32", "i64", "u8", "i8", "f16"), rank=(1, 4), exact=True)
    axis = g.below(x.rank)
    if x.shape[axis] == 0:
        raise Reject("empty")
    k = g.between(1, x.shape[axis])
    if g.chance(0.15) and x.size <= 4 * x.shape[axis]:  # so many that not all are looked through
        repeats = [1] * x.rank
        many = g.chance(0.3)
        repeats[axis] = (4000 if many else 1100) // x.shape[axis] + 1
        k = g.between(65, 120) if many else g.between(600, 1100) if g.chance(0.3) else k
        (x,) = g.node("Tile", [x, g.shape_input(repeats)], kind="move", fixed=(1,))
    if g.opset < 10:
        g.node("TopK", [x], outputs=2, k=k, axis=axis)
        return
    largest = g.one_of((0, 1, None)) if g.opset >= 11 else None
    g.node(
        "TopK",
        [x, g.shape_input([k])],
        outputs=2,
        fixed=(1,),
        largest=largest,
        axis=axis - x.rank if g.chance(0.3) else axis,
    )


@operator(1.5)
def cumulative(g):
    x = g.pick(ORT_SUMS, rank=(1, 4))
    axis = g.below(x.rank)
    axis = g.scalar(g.one_of(("i32", "i64")), axis - x.rank if g.chance(0.3) else axis)
    g.node(
        "CumSum",
        [x, axis],
        kind="sum",
        fixed=(1,),
        exclusive=g.one_of((0, 1, None)),
        reverse=g.one_of((0, 1, None)),
    )


@operator(2)
def softmax(g):
    name = g.one_of(("Softmax", "LogSoftmax", "Hardmax"))
    x = g.pick(("f32", "f64", "f16"), rank=(1, 5), exact=name == "Hardmax")
    axis = g.below(x.rank)
    if x.size == 0:
        raise Reject("empty")
    g.node(
        name,
        [x],
        kind="step" if name == "Hardmax" else "smooth",
        scale=2,
        axis=g.one_of((axis, axis - x.rank, None)),
    )


# ---- products ---------------------------------------------------------------------------------


@operator(4)
def matmul(g):
    types = ("f32", "f32", "f64", "i32", "i64", "f16", "u32")
    a = g.pick(types, rank=(1, 4))
    k = a.shape[-1]

    def fits(v):
        if v.dtype != a.dtype or v.rank < 1 or v.special:
            return False
        if v.shape[0 if v.rank == 1 else -2] != k:
            return False
        try:
            np.broadcast_shapes(a.shape[:-2], v.shape[:-2])
        except ValueError:
            return False
        return True

    b = g.existing(fits) if g.chance(0.5) else None
    if b is None:
        batch = [1 if g.chance(0.3) else d for d in a.shape[:-2]]
        if g.chance(0.4):
            batch = batch[g.below(len(batch) + 1) :]
        n = g.one_of(g.dims)
        b = g.fresh(a.dtype, [k] if g.chance(0.15) else batch + [k, n])
    if k == 0 or a.size * b.shape[-1] > 2e6:
        raise Reject("empty or large")
    g.node("MatMul", [a, b], kind="product")


@operator(3)
def gemm(g):
    dtype = g.one_of(("f32", "f32", "f64", "f16", "i32", "i64"))
    m, k, n = (g.one_of(g.dims) for _ in range(3))
    ta, tb = g.one_of((0, 1, None)), g.one_of((0, 1, None))
    shape_a, shape_b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    def take(shape):
        found = g.existing(lambda v: v.dtype == dtype and v.shape == shape and not v.special)
        return found or g.fresh(dtype, shape)

    c = take(g.one_of(((m, n), (1, n), (n,), (m, 1), (), (1,), (1, 1)))) if g.chance(0.6) else None
    alpha, beta = g.one_of((1.0, None, 0.5, 2.0)), g.one_of((1.0, None, 0.0, 2.0))
    a, b = take(shape_a), take(shape_b)
    if dtype[0] == "i":
        alpha = beta = None
        top = k * np.prod([np.abs(dtypes.wide(v.array)).max() for v in (a, b)])
        top += np.abs(dtypes.wide(c.array)).max() if c else 0
        if top >= (2.0**31 if dtype == "i32" else 2.0**53):
            raise Reject("the judges compute it with floats")
    plain = alpha != 0.5
    g.node(
        "Gemm",
        [a, b, c],
        kind="product" if plain else "smooth",
        transA=ta,
        transB=tb,
        alpha=alpha,
        beta=beta,
    )


@operator(1.5)
def einsum(g):
    dtype = g.one_of(("f32", "f64", "i32", "i64"))
    equation = g.one_of(
        (
            "ij,jk->ik",
            "ij,jk",
            "bij,bjk->bik",
            "ij->ji",
            "ii->i",
            "ii",
            "ij->",
            "ij->j",
            "i,j->ij",
            "...ij,...jk->...ik",
            "bhid,bhjd->bhij",
            "abc,cd->abd",
            "i,i->",
            "ij,ij->i",
            "ijk->kji",
            "b...,b...->b...",
            "abc,b->ac",
            "i,ij,j->",
        )
    )
    sizes = {}
    inputs = []
    for term in equation.replace(" ", "").split("->")[0].split(","):
        shape = []
        for letter in term.replace("...", "*"):
            if letter == "*":
                shape += sizes.setdefault("*", [int(g.one_of((1, 2, 3)))])
            else:
                shape.append(sizes.setdefault(letter, int(g.one_of(dtypes.DIMS[:7]))))
        shape = tuple(shape)
        if np.prod(shape) > 4096:
            raise Reject("large")
        found = g.existing(lambda v: v.dtype == dtype and v.shape == shape and not v.special)
        inputs.append(found or g.fresh(dtype, shape))
    if dtype[0] == "i":
        top = np.prod([np.sum(np.abs(dtypes.wide(v.array))) for v in inputs])
        if top >= (2.0**31 if dtype == "i32" else 2.0**53):
            raise Reject("sums that do not fit: a judge saturates them")
    g.node("Einsum", inputs, kind="product" if len(inputs) < 3 else "smooth", equation=equation)


@operator(0.7)
def det(g):
    n = g.between(1, 4)
    g.node("Det", [g.fresh(("f32", "f64"), (2, n, n))], kind="smooth", scale=8)


# ---- normalisation ----------------------------------------------------------------------------


@operator(2)
def normalization(g):
    x = g.pick(("f32", "f64"), rank=(2, 4), test=lambda v: v.size > 0 and np.ptp(v.array) > 0.5)
    c = x.shape[1]
    t = x.dtype
    name = g.one_of(
        (
            "BatchNormalization",
            "InstanceNormalization",
            "LayerNormalization",
            "LRN",
            "LpNormalization",
            "MeanVarianceNormalization",
            "GroupNormalization",
            "RMSNormalization",
        )
    )
    scale, bias = g.fresh(t, (c,), 0.5, 2), g.fresh(t, (c,), -1, 1)
    # scale * x - scale * mean, where all x are alike
    extra = 100 * dtypes.epsilon(t) * np.abs(x.array).max() * 2
    epsilon = g.one_of((1e-5, 1e-2, None))
    if name == "BatchNormalization":
        mean, variance = g.fresh(t, (c,), -1, 1), g.fresh(t, (c,), 0.5, 2)
        g.node(
            name,
            [x, scale, bias, mean, variance],
            kind="smooth",
            coarse=True,
            extra=extra,
            scale=4,
            epsilon=epsilon,
        )
    elif name == "InstanceNormalization":
        if x.rank < 3:
            raise Reject("rank")
        g.node(
            name, [x, scale, bias], kind="smooth", coarse=True, extra=extra, scale=8, epsilon=1e-2
        )
    elif name == "LayerNormalization" and g.opset >= 17:
        axis = g.between(1, x.rank - 1)
        shape = x.shape[axis:]
        scale, bias = g.fresh(t, shape, 0.5, 2), g.fresh(t, shape, -1, 1)
        g.node(
            name,
            [x, scale, bias if g.chance(0.6) else None],
            kind="smooth",
            coarse=True,
            extra=extra,
            scale=8,
            axis=axis - x.rank if g.chance(0.5) else axis,
            epsilon=1e-2,
        )
    elif name == "LRN" and t == "f32":
        g.node(
            name,
            [x],
            kind="smooth",
            coarse=True,
            extra=extra,
            scale=4,
            size=g.one_of((1, 3, 5)),
            alpha=g.one_of((0.1, None)),
            beta=g.one_of((0.5, None)),
            bias=g.one_of((2.0, None)),
        )
    elif name == "LpNormalization":
        g.node(
            name,
            [x],
            kind="smooth",
            coarse=True,
            extra=extra,
            scale=4,
            p=g.one_of((1, 2)),
            axis=g.between(-1, x.rank - 1),
        )
    elif name == "MeanVarianceNormalization" and g.opset >= 9 and x.rank == 4:
        g.node(name, [x], kind="smooth", coarse=True, extra=extra, scale=16)
    elif name == "GroupNormalization" and g.opset >= 21 and x.rank > 2 and t == "f32":
        groups = g.one_of([d for d in range(1, c + 1) if c % d == 0])
        g.node(
            name,
            [x, scale, bias],
            kind="smooth",
            coarse=True,
            extra=extra,
            scale=8,
            num_groups=groups,
            epsilon=1e-2,
        )
    elif name == "RMSNormalization" and g.opset >= 23:
        scale = g.fresh(t, x.shape[-1:], 0.5, 2)
        g.node(
            name,
            [x, scale],
            kind="smooth",
            coarse=True,
            extra=extra,
            scale=4,
            axis=-1,
            epsilon=1e-2,
        )
    else:
        raise Reject("not here")
