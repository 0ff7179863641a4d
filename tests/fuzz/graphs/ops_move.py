"""Movement: operators that copy elements, some of them to or from computed places."""

import numpy as np

from . import dtypes
from .builder import Reject
from .dtypes import COMMON, NUMBERS, SMALL
from .table import operator

ANY = COMMON


@operator(3)
def transpose(g):
    x = g.pick(ANY, special=True)
    perm = [int(i) for i in g.rng.permutation(x.rank)]
    g.node(
        "Transpose",
        [x],
        kind="move",
        special=True,
        perm=None if g.chance(0.2) or not perm else perm,
    )


def factors(g, size):
    """A random shape of that many elements."""
    shape = []
    while size > 1 and len(shape) < 4:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(int(g.one_of(divisors)))
        size //= shape[-1]
    shape.append(size)
    while len(shape) < 5 and g.chance(0.3):
        shape.append(1)
    g.rng.shuffle(shape)
    return shape if g.chance(0.95) or shape != [1] else []


@operator(3)
def reshape(g):
    x = g.pick(ANY + (SMALL if g.chance(0.1) and g.opset >= 21 else ()), special=True)
    if x.size == 0:
        shape, allow = list(x.shape), 1 if g.opset >= 14 else None
        g.rng.shuffle(shape)
        if allow is None:
            raise Reject("zero means copy")
        g.node(
            "Reshape",
            [x, g.shape_input(shape)],
            kind="move",
            fixed=(1,),
            special=True,
            allowzero=allow,
        )
        return
    shape = factors(g, x.size)
    if x.size == 1 and g.chance(0.3):
        shape = []
    for i, d in enumerate(shape):
        if i < x.rank and x.shape[i] == d and g.chance(0.4):
            shape[i] = 0
    if shape and g.chance(0.4):
        shape[g.below(len(shape))] = -1
    shape = g.shape_input(shape) if shape else g.parameter(np.array([], np.int64))
    g.frozen.add(shape.name)
    g.node("Reshape", [x, shape], kind="move", fixed=(1,), special=True)


@operator(1)
def flatten(g):
    x = g.pick(ANY, rank=(1, 5), special=True)
    axis = g.between(-x.rank, x.rank)
    g.node("Flatten", [x], kind="move", special=True, axis=axis)


@operator(2)
def squeeze_or_unsqueeze(g):
    x = g.pick(ANY, special=True)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones and g.chance(0.6):
        if g.chance(0.3):
            g.node("Squeeze", [x], kind="move", special=True)
            return
        axes = [
            a - x.rank if g.chance(0.4) and g.opset >= 11 else a for a in ones if g.chance(0.7)
        ]
        axes = axes or ones[:1]
        if g.opset < 13:
            g.node("Squeeze", [x], kind="move", special=True, axes=axes)
            return
        g.node("Squeeze", [x, g.shape_input(axes)], kind="move", fixed=(1,), special=True)
        return
    more = g.between(1, 2)
    if x.rank + more > 5:
        raise Reject("rank")
    axes = [int(a) for a in g.rng.choice(x.rank + more, more, replace=False)]
    axes = [a - x.rank - more if g.chance(0.4) and g.opset >= 11 else a for a in axes]
    if g.opset < 13:
        g.node("Unsqueeze", [x], kind="move", special=True, axes=axes)
        return
    g.node("Unsqueeze", [x, g.shape_input(axes)], kind="move", fixed=(1,), special=True)


@operator(4)
def slice_(g):
    x = g.pick(ANY, rank=(1, 5), special=True)
    axes = [a for a in range(x.rank) if g.chance(0.6)] or [g.below(x.rank)]
    g.rng.shuffle(axes)
    starts, ends, steps = [], [], []
    for a in axes:
        n = x.shape[a]
        step = int(g.one_of((1, 1, 2, 3, -1, -1, -2, -3, 7)))
        first, last = sorted(int(i) for i in g.rng.integers(0, n + 1, 2))
        if first == last and g.chance(0.9):
            last = min(n, first + 1)
            first = max(0, last - 1)
        if step > 0:
            start, end = first, last
            if g.chance(0.3):
                end = int(g.one_of((n + 3, 2**31 - 1, 2**63 - 1)))
        else:
            start, end = last - 1, first - 1
            if g.chance(0.3):
                start = int(g.one_of((n + 3, 2**31 - 1, 2**62)))
        if start >= 0 and start < n and g.chance(0.4):
            start -= n
        if end < 0 or step > 0 and end < n and g.chance(0.4) or step < 0 and g.chance(0.3):
            end -= n
        if end < -n and g.chance(0.3):
            end = int(g.one_of((-n - 5, -(2**31), -(2**63))))
        starts.append(start)
        ends.append(end)
        steps.append(step)
    named = [a - x.rank if g.chance(0.3) and g.opset >= 11 else a for a in axes]
    if g.opset < 10:
        if any(s != 1 for s in steps):
            raise Reject("too old")
        g.node("Slice", [x], kind="move", special=True, starts=starts, ends=ends, axes=named)
        return
    inputs = [x, g.shape_input(starts), g.shape_input(ends), g.shape_input(named)]
    if any(s != 1 for s in steps) or g.chance(0.5):
        inputs.append(g.shape_input(steps))
    elif axes == list(range(len(axes))) and g.chance(0.5):
        inputs.pop()
    g.node("Slice", inputs, kind="move", fixed=(1, 2, 3, 4), special=True)


@operator(4)
def pad(g):
    mode = g.one_of(("constant", "constant", "constant", "edge", "reflect", "wrap", None))
    if mode == "wrap" and g.opset < 19:
        raise Reject("too old")
    x = g.pick(ANY, rank=(1, 5), special=True)
    axes = None
    if g.opset >= 18 and g.chance(0.4):
        axes = [a for a in range(x.rank) if g.chance(0.5)] or [g.below(x.rank)]
    n = len(axes) if axes else x.rank
    amounts = [int(a) for a in g.one_of((0, 0, 1, 2, 5)) * g.rng.integers(0, 2, 2 * n)]
    for i in range(2 * n):
        size = x.shape[axes[i % n] if axes else i % n]
        if g.chance(0.3):
            amounts[i] = -g.below(max(1, (size + 1) // 2))
        elif g.chance(0.3):
            amounts[i] = g.below(4)
        if mode == "reflect":
            amounts[i] = min(amounts[i], size - 1)
        if mode in ("wrap",):
            amounts[i] = min(amounts[i], size)
    if mode in ("edge", "reflect", "wrap"):  # what these make of a tensor cut to nothing is open
        for i in range(n):
            size = x.shape[axes[i] if axes else i]
            if size + min(amounts[i], 0) + min(amounts[n + i], 0) <= max(
                1, amounts[i], amounts[n + i]
            ):
                amounts[i], amounts[n + i] = max(amounts[i], 0), max(amounts[n + i], 0)
            if min(amounts[i], amounts[n + i]) < 0 and mode != "edge":
                # the judges do not agree whether cutting comes before reflecting
                amounts[i], amounts[n + i] = max(amounts[i], 0), max(amounts[n + i], 0)
    if g.opset < 11:
        value = float(g.between(-3, 3)) if mode in ("constant", None) and g.chance(0.6) else None
        if x.dtype not in ("f32", "f64"):
            raise Reject("too old")
        g.node("Pad", [x], kind="move", special=True, mode=mode, pads=amounts, value=value)
        return
    fill = None
    if mode in ("constant", None) and g.chance(0.6):
        fill = g.fresh(x.dtype, (), low=-3, high=3)
    inputs = [x, g.shape_input(amounts), fill]
    if axes:
        inputs.append(g.shape_input([a - x.rank if g.chance(0.3) else a for a in axes]))
    g.node("Pad", inputs, kind="move", fixed=(1, 3), special=True, mode=mode)


@operator(3)
def concat(g):
    x = g.pick(ANY, rank=(1, 5), special=True)
    axis = g.below(x.rank)

    def fits(v):
        return (
            v.dtype == x.dtype
            and v.rank == x.rank
            and all(a == b or i == axis for i, (a, b) in enumerate(zip(v.shape, x.shape)))
        )

    parts = [x]
    for _ in range(g.below(4)):
        found = g.existing(fits) if g.chance(0.6) else None
        shape = list(x.shape)
        shape[axis] = g.one_of((1, 2, 3, 5, 8))
        parts.append(found or g.fresh(x.dtype, shape))
    g.rng.shuffle(parts)
    g.node(
        "Concat", parts, kind="move", special=True, axis=axis - x.rank if g.chance(0.3) else axis
    )


@operator(2)
def split(g):
    x = g.pick(ANY, rank=(1, 5), special=True, test=lambda v: max(v.shape) > 1)
    axis = g.one_of([i for i, d in enumerate(x.shape) if d > 1])
    n = x.shape[axis]
    named = axis - x.rank if g.chance(0.3) else axis
    if g.chance(0.3) and g.opset >= 18:
        parts = g.between(1, min(n, 5))
        if -(-n // parts) * (parts - 1) > n:
            raise Reject("empty parts")
        g.node(
            "Split", [x], kind="move", outputs=parts, special=True, axis=named, num_outputs=parts
        )
        return
    cuts = sorted(
        int(c) for c in g.rng.integers(0 if g.chance(0.1) else 1, n + 1, g.between(1, 3))
    )
    sizes = list(np.diff([0] + cuts + [n]))
    if min(sizes) == 0 and g.chance(0.9):
        sizes = [int(s) for s in sizes if s]
    if g.opset < 13:
        g.node(
            "Split",
            [x],
            kind="move",
            outputs=len(sizes),
            special=True,
            axis=axis,
            split=[int(s) for s in sizes],
        )
        return
    g.node(
        "Split",
        [x, g.shape_input([int(s) for s in sizes])],
        kind="move",
        outputs=len(sizes),
        special=True,
        fixed=(1,),
        axis=named,
    )


@operator(2)
def expand(g):
    x = g.pick(ANY, special=True, most=512)
    shape = [int(g.one_of((1, 2, 3, 5, 7))) if d == 1 and g.chance(0.7) else d for d in x.shape]
    if len(shape) < 5 and g.chance(0.4):
        shape = [g.one_of((1, 2, 3))] + shape
    wanted = [1 if g.chance(0.2) else d for d in shape]
    if g.chance(0.2):
        wanted = wanted[g.below(len(wanted) + 1) :]
    shape = g.shape_input(wanted) if wanted else g.parameter(np.array([], np.int64))
    g.frozen.add(shape.name)
    g.node("Expand", [x, shape], kind="move", fixed=(1,), special=True)


@operator(1.5)
def tile(g):
    x = g.pick(ANY, rank=(1, 5), special=True, most=512)
    repeats = [int(g.one_of((1, 1, 2, 3))) for _ in x.shape]
    if g.chance(0.03):
        repeats[g.below(x.rank)] = 0
    g.node("Tile", [x, g.shape_input(repeats)], kind="move", fixed=(1,), special=True)


@operator(1)
def blocks(g):
    b = g.one_of((2, 2, 3))
    n, c, h, w = g.between(1, 2), g.one_of((1, 2, 3)), g.one_of((1, 2, 3, 5)), g.one_of((1, 2, 3))
    types = ("f32", "f64", "u8", "f16", "i8", "i32")
    if g.chance(0.6):
        x = g.fresh(types, (n, c * b * b, h, w))
        if x.is_float or g.chance(0.5):
            g.node(
                "DepthToSpace", [x], kind="move", blocksize=b, mode=g.one_of(("DCR", "CRD", None))
            )
    else:
        g.node("SpaceToDepth", [g.fresh(types, (n, c, h * b, w * b))], kind="move", blocksize=b)


@operator(1)
def trilu(g):
    if g.opset < 14:
        raise Reject("too old")
    x = g.pick(ANY, rank=(2, 5), special=True)
    k = g.scalar("i64", g.between(-4, 4)) if g.chance(0.7) else None
    g.node("Trilu", [x, k], kind="move", fixed=(1,), special=True, upper=g.one_of((0, 1, None)))


@operator(0.7)
def center_crop_pad(g):
    if g.opset < 18:
        raise Reject("too old")
    x = g.pick(ANY, rank=(1, 4), special=True)
    axes = [a for a in range(x.rank) if g.chance(0.6)] or [0]
    sizes = [g.between(1, 9) for _ in axes]
    if g.chance(0.3):
        axes, sizes = None, [g.between(1, 9) for _ in x.shape]
    g.node(
        "CenterCropPad",
        [x, g.shape_input(sizes)],
        kind="move",
        fixed=(1,),
        special=True,
        axes=axes,
    )


@operator(0.5)
def eye_like(g):
    x = g.pick(NUMBERS, rank=(2, 2))
    to = g.pick_type(("f32", "f64", "i32", "i64", "u64")) if g.chance(0.7) else None
    g.node(
        "EyeLike", [x], kind="shape", k=g.one_of((0, 1, -2, None)), dtype=to and dtypes.ONNX[to]
    )


@operator(0.7)
def constant_of_shape(g):
    from onnx import helper

    to = g.pick_type(COMMON)
    value = helper.make_tensor("value", dtypes.ONNX[to], [1], [g.one_of((0, 1, 3))])
    g.node(
        "ConstantOfShape",
        [g.shape_input(list(g.pick_shape(1, 4, 256)))],
        value=value if g.chance(0.8) else None,
    )


@operator(0.7)
def range_(g):
    dtype = g.one_of(("i32", "i64", "f32", "i16", "f64"))
    step = g.one_of((1, 2, 3, -1, -2))
    count, start = g.between(1, 33), g.between(-9, 9)
    if dtype[0] == "f" and g.chance(0.5):
        step, start = step * 0.5, start * 0.25
    end = start + step * count - (0 if g.chance(0.5) else step * 0.5)
    if dtype[0] == "i":
        end = int(end)
    g.node(
        "Range",
        [g.scalar(dtype, start), g.scalar(dtype, end), g.scalar(dtype, step)],
        fixed=(0, 1, 2),
    )


# ---- indices ----------------------------------------------------------------------------------


def indices(g, shape, low, high, dtype=None):
    """Indices from low to high - 1; some from the end."""
    dtype = dtype or g.one_of(("i64", "i64", "i32"))
    found = g.rng.integers(low, high, shape) if high > low else None
    if found is None:
        raise Reject("nothing to index")
    return g.add(np.asarray(found).astype(dtypes.NUMPY[dtype]))


@operator(3)
def gather(g):
    x = g.pick(ANY, rank=(1, 5), special=True, most=512)
    axis = g.below(x.rank)
    n = x.shape[axis]
    shape = g.pick_shape(0, max(0, min(2, 6 - x.rank)), 64)
    found = g.existing(
        lambda v: v.dtype in ("i32", "i64")
        and v.rank <= 2
        and v.size
        and v.size < 64
        and v.array.min() >= -n
        and v.array.max() < n
    )
    i = found if found and g.chance(0.5) else indices(g, shape, -n, n)
    g.node(
        "Gather", [x, i], kind="move", special=True, axis=axis - x.rank if g.chance(0.3) else axis
    )


@operator(2)
def gather_elements(g):
    x = g.pick(ANY, rank=(1, 4), special=True)
    axis = g.below(x.rank)
    shape = [int(g.rng.integers(1, d + 1)) if d else 0 for d in x.shape]
    shape[axis] = int(g.one_of((1, 2, 3, 5)))
    i = indices(g, shape, -x.shape[axis], x.shape[axis])
    g.node(
        "GatherElements",
        [x, i],
        kind="move",
        special=True,
        axis=axis - x.rank if g.chance(0.3) else axis,
    )


def tuples(g, shape, extents):
    """Index tuples: the last dimension of the result runs along `extents`."""
    if min(extents, default=1) == 0:
        raise Reject("nothing to index")
    columns = [g.rng.integers(-d, d, shape) for d in extents]
    return np.stack(columns, -1).astype(np.int64)


@operator(2)
def gather_nd(g):
    x = g.pick(ANY, rank=(1, 5), special=True)
    batch = g.below(x.rank) if g.chance(0.3) else 0
    depth = g.between(1, x.rank - batch)
    shape = list(x.shape[:batch]) + list(g.pick_shape(0, 2, 32))
    i = g.add(tuples(g, shape, x.shape[batch : batch + depth]))
    g.node("GatherND", [x, i], kind="move", special=True, batch_dims=batch or None)


def reduction_for(g, x, types=("f32", "f64", "f16") + dtypes.INTS):
    choices = ["none", None, "add", "mul"] + (["max", "min"] if g.opset >= 18 else [])
    return g.one_of(choices) if x.dtype in types and g.opset >= 16 and x.exact else None


@operator(2)
def scatter_elements(g):
    x = g.pick(ANY, rank=(1, 4))
    axis = g.below(x.rank)
    shape = [int(g.rng.integers(1, d + 1)) if d else 0 for d in x.shape]
    if min(shape) == 0:
        raise Reject("empty")
    reduction = reduction_for(g, x)
    n, m = x.shape[axis], shape[axis]
    if reduction in ("none", None):  # no place may be written to twice
        lines = np.array([g.rng.permutation(n)[:m] for _ in range(int(np.prod(shape)) // m)])
        rest = [d for i, d in enumerate(shape) if i != axis]
        i = np.moveaxis(lines.reshape(rest + [m]), -1, axis)
        i = np.where(g.rng.random(i.shape) < 0.3, i - n, i)
    else:
        i = g.rng.integers(-n, n, shape)
    i = g.add(i.astype(np.int64 if g.chance(0.7) else np.int32))
    updates = g.existing(
        lambda v: v.dtype == x.dtype and v.shape == tuple(shape) and v.exact and not v.special
    )
    updates = updates or g.fresh(x.dtype, shape)
    kind = {"add": "sum", "mul": "product", "max": "select", "min": "select"}.get(
        reduction, "move"
    )
    if kind == "product" and x.is_float:
        kind = "smooth"
    g.node(
        "ScatterElements",
        [x, i, updates],
        kind=kind,
        reduction=reduction,
        axis=axis - x.rank if g.chance(0.3) else axis,
    )


@operator(2)
def scatter_nd(g):
    x = g.pick(ANY, rank=(1, 5))
    depth = g.between(1, x.rank)
    extents = x.shape[:depth]
    room = int(np.prod(extents))
    if room == 0:
        raise Reject("empty")
    count = g.between(1, min(room, 9))
    reduction = reduction_for(g, x)
    if reduction in ("none", None):
        flat = g.rng.permutation(room)[:count]
    else:
        flat = g.rng.integers(0, room, count)
    i = np.stack(np.unravel_index(flat, extents), -1).astype(np.int64)
    i = np.where(g.rng.random(i.shape) < 0.3, i - np.array(extents), i)
    shape = (count,) + x.shape[depth:]
    if count % 2 == 0 and g.chance(0.3):
        i, shape = i.reshape(2, count // 2, depth), (2, count // 2) + x.shape[depth:]
    updates = g.fresh(x.dtype, shape)
    kind = {"add": "sum", "mul": "product", "max": "select", "min": "select"}.get(
        reduction, "move"
    )
    if kind == "product" and x.is_float:
        kind = "smooth"
    g.node("ScatterND", [x, g.add(i), updates], kind=kind, reduction=reduction)


@operator(1)
def reverse_sequence(g):
    x = g.pick(ANY, rank=(2, 4), special=True)
    time, batch = g.one_of(((0, 1), (1, 0)))
    if min(x.shape[:2]) == 0:
        raise Reject("empty")
    lengths = g.add(g.rng.integers(1, x.shape[time] + 1, x.shape[batch]).astype(np.int64))
    g.node(
        "ReverseSequence",
        [x, lengths],
        kind="move",
        special=True,
        time_axis=time,
        batch_axis=batch,
    )


@operator(1)
def one_hot(g):
    depth = g.one_of((1, 2, 3, 5, 7))
    i = g.pick(
        ("i32", "i64", "u8", "f32"), rank=(0, 3), exact=True, most=256, low=-depth, high=depth - 1
    )
    if i.size and (dtypes.wide(i.array) != np.floor(dtypes.wide(i.array))).any():
        raise Reject("fractions")
    to = g.one_of(("f32", "i64", "i32", "u8"))
    values = g.add(dtypes.pick_data(g.rng, to, (2,)))
    g.node(
        "OneHot",
        [i, g.scalar("i64", depth), values],
        kind="move",
        fixed=(0, 1),
        axis=g.one_of((-1, 0, None)),
    )


@operator(0.7)
def compress_constant(g):
    x = g.pick(ANY, rank=(1, 4), special=True)
    axis = g.below(x.rank)
    if x.shape[axis] == 0:
        raise Reject("empty")
    mask = g.rng.random(g.between(1, x.shape[axis])) < 0.6
    if not mask.any():
        mask[0] = True
    condition = g.add(mask, True)
    g.frozen.add(condition.name)
    g.node(
        "Compress",
        [x, condition],
        kind="move",
        special=True,
        axis=axis - x.rank if g.chance(0.3) else axis,
    )


@operator(0.7)
def shape_or_size(g):
    x = g.pick(ANY, special=True)
    if g.chance(0.3):
        g.node("Size", [x], kind="shape")
        return
    start = end = None
    if g.opset >= 15 and g.chance(0.5):
        start, end = g.between(-6, 6), g.one_of((None, g.between(-6, 6)))
    g.node("Shape", [x], kind="shape", start=start, end=end)
