"""Hostile values: indices, shapes and lengths that no model would have, on code that ASan and UBSan
check. What comes out is not compared: nothing may be read or written outside its tensor.

Half of the models have dimensions that vary, with ranges that their true extents need not be in, and
bounds of what they compute that may be too low: runs give all extents, some of them outside."""

import numpy as np

from . import compare, dtypes
from .builder import assemble
from .generate import random_model
from .minimise import names_read
from .peer import Task
from .varying import Varying

# Operators that take the more interesting half of the nodes.
INDEXED = (
    "gather",
    "gather_elements",
    "gather_nd",
    "scatter_elements",
    "scatter_nd",
    "one_hot",
    "reverse_sequence",
    "topk",
    "cumulative",
    "slice_",
    "recurrent",
    "loop",
    "arg_reduce",
    "pad",
    "expand",
    "range_",
    "trilu",
    "dequantize",
    "grid_sample",
    "reshape",
)
KERNELS = ("kernels:c", "kernels:c:native", "kernels:cuda", "kernels:vulkan")


def hostile(rng, value):
    """An array of the value's type and shape."""
    shape, name = value.shape, value.dtype
    if name == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if name in dtypes.REAL:
        some = np.array(
            [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40, 2.0**31, -(2.0**63)]
        )
        array = np.where(
            rng.random(shape) < 0.4, some[rng.integers(0, 10, shape)], rng.uniform(-3, 3, shape)
        )
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(dtypes.NUMPY[name])
    low, high = dtypes.int_range(name)
    ends = [low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 8, 17, 33, 34, 1000, 65536, 2**31 - 1]
    ends += [-e for e in ends[5:]] + [2**32, -(2**32), 2**31, -(2**31)]
    ends = [e for e in ends if low <= e <= high]
    picked = [ends[i] for i in rng.integers(0, len(ends), max(value.size, 1))]
    return np.array(picked[: value.size], object).reshape(shape).astype(dtypes.NUMPY[name])


class HostileCase:
    """A random model whose integers are all inputs, and some sets of values for them."""

    def __init__(self, number, options):
        rng = np.random.default_rng([options.seed, number, 2])
        self.number = number
        only = options.operators
        self.g = g = random_model(options.seed, number, preferred=() if only else INDEXED, only=only)
        self.tasks, self.constants = [], {}
        if not g.nodes:
            return
        self.outputs = g.outputs()
        used = {n for node in g.nodes for n in names_read(node)}
        # shapes, too, where they are what a model may compute: it tells the shapes of results
        shapes = {n for n in sorted(g.frozen) if rng.random() < 0.3}
        for loose in (set(), shapes) if shapes and number % 3 == 0 else (set(),):
            moved = [
                n
                for n in g.constants
                if n in used and (n in loose or n not in g.frozen and rng.random() < 0.8)
            ]
            inputs = [n for n in g.inputs if n in used] + moved
            rest = [n for n in g.constants if n in used and n not in moved]
            declared = [
                v.name for v in g.values.values() if v.source == "node" and v not in self.outputs
            ]
            model = assemble(g, g.nodes, inputs, rest, [v.name for v in self.outputs], declared)
            runs = []
            for _ in range(options.hostile):
                kept = rng.random() < 0.3  # of some inputs the true values: others get further
                runs.append(
                    [
                        (
                            g.values[n].array
                            if kept and rng.random() < 0.7
                            else hostile(rng, g.values[n])
                        )
                        for n in inputs
                    ]
                )
            kind, dims = "hostile" + ", shapes as inputs" * bool(loose), ()
            if number % 2:
                varying = Varying(rng, g, model, loose | g.frozen)
                runs = [varying.hostile_run(hostile) for _ in range(options.hostile)]
                kind, dims = kind.replace("hostile", "varying"), varying.dims
            # compiling takes long, and so do the checks of what interprets kernels
            compiled = ("c0:c:::apart", "c0:c:native")[number // 4 % 2]
            parts = [(runs, ["interp", compiled])]
            if number % 5 == 0:
                parts.append((runs[:3], ["interp", KERNELS[number // 5 % 4]]))
            for some, ways in parts:
                task = Task(
                    model.SerializeToString(), some, self.outputs, ways, len(some), dims
                )
                task.relation = kind
                self.tasks.append(task)

    def comparable(self):
        """Names of values that are the same on all targets whatever the inputs hold: integers, and
        floats that are only moved or rounded."""
        g, found = self.g, set(self.g.inputs) | set(self.g.constants)
        for node in g.nodes:
            floats = any(g.values[n].is_float for n in node.output)
            settled = not floats or g.kinds[id(node)] in (
                "move",
                "select",
                "round",
                "step",
                "shape",
            )
            # of two updates of one element either may be the last
            if "Scatter" in node.op_type or not settled:
                continue
            if all(n in found for n in names_read(node)):
                found |= set(node.output)
        return found

    def faults(self):
        found, comparable = [], self.comparable()
        for task in self.tasks:
            for way in task.ways:
                line = task.answers[way][0]
                if line.startswith("ok "):
                    text = compare.misfit(task, line) or self.unlike(task, way, comparable)
                    if text:
                        found.append((task.relation, way, "differs", text))
                    continue
                if "race on buffer" in line and "catter" in line:
                    continue  # two updates of one element, whose order ONNX leaves open
                refused = line.startswith(("error 1 ", "error 4 "))
                if refused and task.relation != "hostile":
                    continue
                kind = "unsupported" if line.startswith("error 4 ") else line.split(":")[0]
                found.append((task.relation, way, kind, line))
        return found

    @staticmethod
    def unlike(task, way, comparable):
        """How the answer differs from the interpreter's, or None."""
        line, wanted = task.answers["interp"]
        own, data = task.answers[way]
        if way == "interp" or not line.startswith("ok"):
            return None
        if own != line:
            return f"{own} and {line} in the interpreter"
        outputs = compare.room_of(line)
        for run in range(task.runs):
            got, data = compare.split(data, outputs)
            want, wanted = compare.split(wanted, outputs)
            for value, a, b in zip(task.outputs, got, want):
                if value.name not in comparable or a.tobytes() == b.tobytes():
                    continue
                x, y = (dtypes.wide(v) if value.is_float else v for v in (a, b))
                wrong = ~((x == y) | (x != x) & (y != y))
                if np.any(wrong):
                    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if value.rank else ()
                    return (
                        f"run {run}: {value.name}{list(at)} is {a[at]}, {b[at]} in the interpreter"
                    )
        return None
