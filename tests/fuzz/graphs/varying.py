"""Models whose dimensions vary."""

import types

import numpy as np


# Operators that may find extents at run time.
COUNTING = set(
    "CenterCropPad Compress ConstantOfShape Expand Loop NonZero OneHot Pad Range Reshape Resize Slice "
    "Split Tile TopK Unique".split()
)
OUTSIDE = (-1, -(2**31), 2**31 - 1)


def forget_shapes(graph):
    """Takes declared extents off results and the inputs of subgraphs."""
    del graph.value_info[:]
    for info in graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                for info in attribute.g.input:
                    for dim in info.type.tensor_type.shape.dim:
                        dim.Clear()
                forget_shapes(attribute.g)


class Varying:
    """A model whose inputs have dimensions that vary: those of one size are mostly one symbol."""

    def __init__(self, rng, g, model, fixed, true=False):
        """fixed: inputs whose shapes stay as they are. true: the model's own sizes are in all ranges,
        and sizes of 1, which others may be broadcast to, stay."""
        self.rng, self.model = rng, model
        forget_shapes(model.graph)
        self.symbols = {}  # name: (size, low, high), in the order in which they occur
        self.inputs = []  # of each: value, name or None for each dimension
        for info in model.graph.input:
            value, varies = g.values[info.name], []
            for dim, size in zip(info.type.tensor_type.shape.dim, value.shape):
                if info.name in fixed or size < 1 + true or rng.random() < 0.2:
                    varies.append(None)
                    continue
                name = f"d{size}"
                if name in self.symbols and rng.random() < 0.25:
                    name += f"_{len(self.symbols)}"  # that they are equal shows in the run only
                if name not in self.symbols:
                    low = int(rng.choice([0, 1, size]))
                    self.symbols[name] = size, low, size + int(rng.integers(low == size, 4))
                dim.Clear()
                dim.dim_param = name
                varies.append(name)
            self.inputs.append((value, varies))
        self.dims = [f"{name}={low}..{high}" for name, (_, low, high) in self.symbols.items()]
        for node in g.nodes:
            if node.op_type not in COUNTING or rng.random() < 0.2:
                continue
            for name in filter(None, node.output):
                sizes = g.values[name].shape if name in g.values else ()
                bounds = [max(0, int(size + rng.integers(true - 1, 4))) for size in sizes]
                self.dims += [f"{name}.{axis}=0..{most}" for axis, most in enumerate(bounds) if most]
            if node.op_type == "Loop":
                self.dims.append(f"{node.output[0]}.trips=0..{int(rng.integers(1, 6)) + 99 * true}")

    def room(self):
        """Of each input: the value, and elements that the largest shape has."""
        for value, varies in self.inputs:
            most = [self.symbols[s][2] if s else d for s, d in zip(varies, value.shape)]
            yield value, int(np.prod(most))

    def true_run(self):
        """Inputs of a run with the model's own: room for the largest shapes, and the extents."""
        arrays = []
        for value, size in self.room():
            array = np.zeros(size, value.array.dtype)
            array[: value.size] = value.array.reshape(-1)
            arrays.append(array)
        return arrays + [np.array(size, np.int32) for size, _, _ in self.symbols.values()]

    def hostile_run(self, hostile):
        """The same with any extents and what `hostile` makes, but for some."""
        rng = self.rng
        true = rng.random() < 0.3
        extents = {}
        for name, (size, low, high) in self.symbols.items():
            extents[name] = size if true else int(rng.integers(low, high + 1))
            if rng.random() < 0.03:
                extents[name] = int(rng.choice([low - 1, high + 1, *OUTSIDE]))
        arrays = []
        for value, size in self.room():
            array = hostile(
                rng, types.SimpleNamespace(shape=(size,), dtype=value.dtype, size=size)
            )
            if true and rng.random() < 0.7:
                array[: value.size] = value.array.reshape(-1)
            arrays.append(array)
        return arrays + [np.array(e, np.int32) for e in extents.values()]
