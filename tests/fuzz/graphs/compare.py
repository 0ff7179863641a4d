"""Is what a way of running a model gave what it should be?"""

from types import SimpleNamespace

import numpy as np

from . import dtypes


def expected_line(outputs):
    parts = [f"{v.dtype}[{','.join(str(d) for d in v.shape)}]" for v in outputs]
    return " ".join(["ok"] + parts)


def room_of(line):
    """What outputs have room for: those of a line like "ok f32[2,3] i64[]"."""
    rooms = []
    for word in line.split()[1:]:
        dtype, inner = word[:-1].split("[")
        shape = tuple(int(d) for d in inner.split(",")) if inner else ()
        size = int(np.prod(shape))
        rooms.append(SimpleNamespace(dtype=dtype, shape=shape, rank=len(shape), size=size))
    return rooms


def misfit(task, line):
    """None, or how the outputs of such a line are not those of the task. Only where dimensions vary
    (if only those that shapes as inputs tell), or a loop may change extents, is there room for more
    than the elements."""
    rooms, outputs = room_of(line), task.outputs
    fits = [(r.dtype, r.rank) for r in rooms] == [(v.dtype, v.rank) for v in outputs]
    may_vary = task.dims or task.relation.startswith("varying") or b"Loop" in task.model
    if fits and (may_vary or line == expected_line(outputs)):
        return None
    return f"{line[3:]} instead of {expected_line(outputs)[3:]}"


def difference(value, got, way=""):
    """None, or how the array, which this way of running gave, differs from the value."""
    want = value.array
    if value.dtype not in dtypes.REAL:
        wrong = got != want
        error = None
    else:
        x, y = dtypes.wide(got), dtypes.wide(want)
        with np.errstate(all="ignore"):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            if value.error is not None:
                same |= np.abs(x - y) <= 4 * value.error
            if "vulkan" in way:
                same |= np.abs(x - y) <= value.units * dtypes.epsilon(value.dtype) * np.abs(y)
        wrong = ~same
        error = value.error
    if not np.any(wrong):
        return None
    at = np.argwhere(np.asarray(wrong))[0] if wrong.ndim else ()
    at = tuple(int(i) for i in at)
    allowed = "" if error is None else f" (+- {4 * float(error[at]):.3g})"
    return (
        f"{int(np.sum(wrong))} of {want.size} elements of {value.name} differ, first "
        f"{list(at)}: {got[at]} instead of {want[at]}{allowed}"
    )


def split(data, outputs):
    """The arrays of one run, and the bytes after them and their extents."""
    arrays, at = [], 0
    for v in outputs:
        size = v.size * dtypes.stored_bytes(v.dtype)
        arrays.append(dtypes.from_bytes(data[at : at + size], v.dtype, v.shape))
        at += size
    return arrays, data[at + 8 * sum(v.rank for v in outputs) :]


def true_shapes(data, outputs):
    """What one run says of their extents."""
    counts = np.cumsum([v.rank for v in outputs])
    told = np.frombuffer(data[len(data) - 8 * int(counts[-1]) :], np.int64)
    return [tuple(int(e) for e in part) for part in np.split(told, counts[:-1])]


def fault(task, way):
    """None, or what is wrong with the answer: a kind of failure and a text."""
    line, data = task.answers[way]
    if line.startswith("error 4 "):
        return "unsupported", line
    if line.startswith("error "):
        words = line.split(None, 3)
        kind = words[2] if len(words) > 2 else ""
        return "error " + words[1] + " " + kind, line
    if not line.startswith("ok"):
        return line.split(":")[0], line
    text = misfit(task, line)
    if text:
        return "shapes", text
    room = room_of(line)
    for value, shape in zip(task.outputs, true_shapes(data, room)):
        if shape != value.shape:
            return "shapes", f"{value.name}: {shape} instead of {value.shape}"
    arrays, _ = split(data, room)
    for value, got in zip(task.outputs, arrays):
        got = got.reshape(-1)[: value.size].reshape(value.shape)  # the elements come first
        text = difference(value, got, way)
        if text:
            return "differs", text
    return None
