"""Convolutions, pools, resizing: windows over spatial dimensions."""

import numpy as np

from . import dtypes
from .builder import Reject
from .table import operator


def windows(g, x, kernel, transposed=False, far=False):
    """Attributes of a window over the spatial dimensions of x; far: taps may lie in padding."""
    n = x.rank - 2
    attributes = {}
    strides = [g.one_of((1, 1, 2, 3)) for _ in range(n)]
    dilations = [g.one_of((1, 1, 1, 2, 3) + (9,) * far) for _ in range(n)]
    if g.chance(0.7):
        attributes["strides"] = strides
    if g.chance(0.4):
        attributes["dilations"] = dilations
    style = g.rng.random()
    if style < 0.5:
        pads = [g.below(k) if k > 1 else 0 for k in kernel + kernel]
        if "dilations" in attributes and far and g.chance(0.5):
            pads = [(k - 1) * d // 2 for k, d in zip(kernel, dilations)] * 2
        attributes["pads"] = [int(p) for p in pads]
    elif style < 0.65 and not transposed:
        attributes["auto_pad"] = g.one_of(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
        if attributes["auto_pad"].startswith("SAME"):
            attributes.pop("dilations", None)
    for i in range(n):  # windows must fit
        reach = (kernel[i] - 1) * attributes.get("dilations", dilations)[i] + 1
        around = sum(attributes["pads"][i::n]) if "pads" in attributes else 0
        if "dilations" not in attributes:
            reach = kernel[i]
        if attributes.get("auto_pad", "").startswith("SAME") and reach < strides[i]:
            raise Reject("negative padding")
        if not attributes.get("auto_pad", "").startswith("SAME") and not transposed:
            if x.shape[2 + i] + around < reach:
                raise Reject("the window does not fit")
    return attributes


def image(g, types, channels=None, most=1024, rank=(3, 5)):
    """A tensor [batch, channels, spatial...]."""
    if g.large:
        most *= 8
    found = g.existing(
        lambda v: v.dtype in types
        and rank[0] <= v.rank <= rank[1]
        and v.size <= most
        and not v.special
        and (channels is None or v.shape[1] == channels)
        and v.size > 0
    )
    if found and g.chance(0.5):
        return found
    spatial = g.one_of([n for n in (1, 2, 2, 2, 3) if rank[0] <= n + 2 <= rank[1]])
    c = channels or g.one_of((3, 16, 24, 32, 33) if g.large else (1, 2, 3, 5, 8, 16))
    shape = [g.one_of((1, 1, 2)), c]
    for _ in range(spatial):
        fitting = [d for d in g.dims if np.prod(shape, dtype=int) * d <= most] or [1]
        shape.append(int(g.one_of(fitting)))
    return g.fresh(types, shape)


@operator(5)
def conv(g):
    x = image(g, ("f32", "f32", "f64", "f16"))
    c = x.shape[1]
    group = g.one_of([d for d in range(1, c + 1) if c % d == 0]) if g.chance(0.5) else 1
    m = group * g.one_of((1, 1, 2, 3, 5))
    if g.large and group == 1:
        m = g.one_of((16, 17, 32, 48))
    if m > 64:
        raise Reject("large")
    kernel = [g.one_of([k for k in (1, 2, 3, 3, 5, 7) if k <= d + 2]) for d in x.shape[2:]]
    if m * (c // group) * np.prod(kernel) * (x.size // c) > 2e6:
        raise Reject("large")
    weight = g.fresh(x.dtype, [m, c // group] + kernel, constant=g.chance(0.8))
    bias = g.fresh(x.dtype, (m,)) if g.chance(0.5) else None
    attributes = windows(g, x, kernel, far=True)
    if g.chance(0.4):
        attributes["kernel_shape"] = kernel
    g.node(
        "Conv",
        [x, weight, bias],
        kind="product",
        group=group if group > 1 or g.chance(0.3) else None,
        **attributes
    )


@operator(2)
def conv_transpose(g):
    x = image(g, ("f32",), most=512)
    c = x.shape[1]
    group = g.one_of([d for d in range(1, c + 1) if c % d == 0]) if g.chance(0.4) else 1
    m = g.one_of((1, 2, 3))
    kernel = [g.one_of((1, 2, 3, 3, 5)) for _ in x.shape[2:]]
    weight = g.fresh(x.dtype, [c, m] + kernel)
    bias = g.fresh(x.dtype, (m * group,)) if g.chance(0.5) else None
    attributes = windows(g, x, kernel, transposed=True)
    if g.chance(0.3) and "strides" in attributes:
        attributes["output_padding"] = [g.below(s) for s in attributes["strides"]]
    g.node(
        "ConvTranspose",
        [x, weight, bias],
        kind="product",
        group=group if group > 1 or g.chance(0.3) else None,
        **attributes
    )


@operator(3)
def pool(g):
    name = g.one_of(("MaxPool", "MaxPool", "AveragePool", "LpPool"))
    types = ("f32", "f64", "i8", "u8", "f16") if name == "MaxPool" else ("f32",)
    x = image(g, types)
    kernel = [g.one_of([k for k in (1, 2, 3, 3, 5) if k <= d + 1]) for d in x.shape[2:]]
    attributes = windows(g, x, kernel)
    if name == "AveragePool":
        attributes["count_include_pad"] = g.one_of((0, 1, None))
        if g.opset < 19 or not attributes["count_include_pad"]:
            attributes.pop("dilations", None)  # a window of padding alone is 0 / 0
    if name == "LpPool":
        attributes["p"] = g.one_of((1, 2, 3, None))
        if g.opset < 18:
            attributes.pop("dilations", None)
    if name != "LpPool" or g.opset >= 18:
        attributes["ceil_mode"] = g.one_of((0, 0, 1, None))
        if attributes.get("auto_pad"):
            attributes["ceil_mode"] = None
    outputs = 1
    if name == "MaxPool" and x.exact and g.chance(0.3) and x.dtype in ("f32", "f64"):
        outputs = 2
        attributes["storage_order"] = g.one_of((0, 1, None))
    g.node(
        name,
        [x],
        kind="smooth" if name != "MaxPool" else "select",
        outputs=outputs,
        kernel_shape=kernel,
        **attributes
    )


@operator(1)
def global_pool(g):
    name = g.one_of(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = image(g, ("f32", "f64") if name == "GlobalAveragePool" else ("f32",))
    g.node(
        name,
        [x],
        kind="select" if name == "GlobalMaxPool" else "smooth",
        extra=dtypes.in_turn(x),
        p=g.one_of((1, 2, 3, None)) if name == "GlobalLpPool" else None,
    )


@operator(2)
def resize(g):
    if g.opset < 11:
        mode = g.one_of(("nearest", "linear", None))
        x = image(g, ("f32",), most=512, rank=(4, 4))
        scales = g.parameter(
            np.array([1, 1, g.one_of((1, 2, 3)), g.one_of((1, 2, 3))], np.float32)
        )
        name = "Resize" if g.opset == 10 else "Upsample"
        kind = "smooth" if mode == "linear" else "move"
        if g.opset >= 9:
            g.node(name, [x, scales], kind=kind, fixed=(1,), mode=mode)
        else:
            g.node(name, [x], kind=kind, mode=mode, scales=[float(s) for s in scales.array])
        return
    mode = g.one_of(("nearest", "nearest", "linear", "cubic", None))
    x = image(
        g, ("f32", "u8", "i8") if mode in ("nearest", None) else ("f32",), most=512, rank=(4, 4)
    )
    h, w = x.shape[2:]
    attributes = {"mode": mode}
    transform = g.one_of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", None))
    attributes["coordinate_transformation_mode"] = transform
    if mode in ("nearest", None):
        attributes["nearest_mode"] = g.one_of(
            ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", None)
        )
    if mode == "cubic":
        attributes["cubic_coeff_a"] = g.one_of((-0.5, None))
        attributes["exclude_outside"] = g.one_of((0, 1, None))
    factors = (1.0, 2.0, 3.0, 0.5) if mode in ("nearest", None) else (1.0, 2.0, 0.5, 1.5, 0.75)
    if g.chance(0.5):
        scales = g.add(np.array([1, 1, g.one_of(factors), g.one_of(factors)], np.float32), True)
        inputs = [x, None, scales]
        if any(int(d * s) < 1 for d, s in zip((h, w), scales.array[2:])):
            raise Reject("empty")
    else:
        target = [int(h * g.one_of(factors)), int(w * g.one_of(factors))]
        if min(target) < 1:
            raise Reject("empty")
        scales = g.shape_input([x.shape[0], x.shape[1]] + target)
        inputs = [x, None, None, scales]
    g.frozen.add(scales.name)
    g.node(
        "Resize",
        inputs,
        kind="move" if mode in ("nearest", None) else "smooth",
        scale=4,
        fixed=(2, 3),
        **attributes
    )


@operator(0.7)
def grid_sample(g):
    if g.opset < 20:
        raise Reject("too old")
    x = image(g, ("f32",), most=256, rank=(4, 4))
    grid = g.fresh("f32", (x.shape[0], g.between(1, 5), g.between(1, 5), 2), low=-1, high=1)
    g.node(
        "GridSample",
        [x, grid],
        kind="smooth",
        scale=8,
        mode=g.one_of(("linear", "linear", None)),
        padding_mode=g.one_of(("zeros", "border", "reflection", None)),
        align_corners=g.one_of((0, 1, None)),
    )


@operator(0.7)
def col2im(g):
    if g.opset < 18:
        raise Reject("too old")
    h, w, kh, kw = g.between(2, 6), g.between(2, 6), g.between(1, 2), g.between(1, 2)
    blocks = (h - kh + 1) * (w - kw + 1)
    x = g.fresh(("f32", "f64"), (g.between(1, 2), g.between(1, 3) * kh * kw, blocks))
    g.node("Col2Im", [x, g.shape_input([h, w]), g.shape_input([kh, kw])], kind="sum", fixed=(1, 2))


@operator(0.7)
def recurrent(g):
    name = g.one_of(("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    steps, batch, size, hidden = g.between(1, 5), g.between(1, 3), g.between(1, 5), g.between(1, 5)
    direction = g.one_of(("forward", "reverse", "bidirectional", None))
    n = 2 if direction == "bidirectional" else 1
    x = g.fresh("f32", (steps, batch, size), -1, 1)
    w = g.fresh("f32", (n, gates * hidden, size), -1, 1)
    r = g.fresh("f32", (n, gates * hidden, hidden), -1, 1)
    b = g.fresh("f32", (n, 2 * gates * hidden), -1, 1) if g.chance(0.5) else None
    lengths = None
    if g.chance(0.4):
        lengths = g.add(g.rng.integers(1, steps + 1, batch).astype(np.int32))
    initial = g.fresh("f32", (n, batch, hidden), -1, 1) if g.chance(0.4) else None
    attributes = {"hidden_size": hidden, "direction": direction}
    if name == "GRU":
        attributes["linear_before_reset"] = g.one_of((0, 1, None))
    g.node(
        name,
        [x, w, r, b, lengths, initial],
        kind="smooth",
        scale=8,
        outputs=3 if name == "LSTM" else 2,
        **attributes
    )
