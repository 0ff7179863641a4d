"""Makes a failing model small: nodes are left out while it still fails in the same way.

Every value is known, so a node may go anywhere: what it computed becomes an input."""

import numpy as np
import onnx

from . import compare
from .builder import assemble
from .peer import Task


def names_read(node):
    """Names that a node reads, also from inside its subgraphs."""
    names = [n for n in node.input if n]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = {n for node_ in attribute.g.node for n in node_.output}
            inner |= {i.name for i in attribute.g.input}
            for node_ in attribute.g.node:
                names += [n for n in names_read(node_) if n not in inner]
            names += [o.name for o in attribute.g.output if o.name not in inner]
    return names


class Cut:
    """A part of a builder's model."""

    def __init__(self, g, nodes, outputs, constants):
        made = {n: node for node in nodes for n in node.output}
        needed, todo, kept = set(), list(outputs), set()
        while todo:
            name = todo.pop()
            if name in needed:
                continue
            needed.add(name)
            if name in made:
                kept.add(id(made[name]))
                todo += names_read(made[name])
        self.g = g
        self.nodes = [n for n in nodes if id(n) in kept]
        produced = {n for node in self.nodes for n in node.output}
        self.outputs = list(outputs)
        self.constants = [
            n for n in g.values if n in needed and n in constants and n not in produced
        ]
        self.inputs = [
            n for n in g.values if n in needed and n not in produced and n not in self.constants
        ]

    def model(self):
        return assemble(self.g, self.nodes, self.inputs, self.constants, self.outputs)

    def task(self, ways):
        g = self.g
        arrays = [g.values[n].array for n in self.inputs]
        return Task(
            self.model().SerializeToString(),
            [arrays],
            [g.values[n] for n in self.outputs],
            list(ways),
        )


def without(cut, node):
    """Cuts that leave out one node: its results are inputs, or constants, where others read them;
    where they are outputs, what it reads is instead."""
    rest = [n for n in cut.nodes if n is not node]
    choices = [cut.outputs]
    if any(n in cut.outputs for n in node.output):
        kept = [n for n in cut.outputs if n not in node.output]
        made = {n for other in rest for n in other.output}
        choices = [kept] if kept else []
        choices += [kept + [n] for n in names_read(node) if n in made and n not in kept]
    for outputs in choices:
        for constants in (cut.constants, cut.constants + list(node.output)):
            smaller = Cut(cut.g, rest, outputs, constants)
            if smaller.nodes:
                yield smaller


def smaller_cuts(cut):
    for name in cut.outputs if len(cut.outputs) > 1 else []:
        yield Cut(cut.g, cut.nodes, [name], cut.constants)
    for node in cut.nodes:
        yield from without(cut, node)
    for name in cut.constants:
        if name not in cut.g.frozen:
            yield Cut(cut.g, cut.nodes, cut.outputs, [n for n in cut.constants if n != name])


def minimise(g, peer, way, kind, outputs, constants):
    """The smallest Cut found that fails in `way` with the same kind of failure, and the text."""

    def text_of(cut):
        task = cut.task([way])
        peer.run_each([task], 60)
        found = compare.fault(task, way)
        return found[1] if found and found[0] == kind else None

    best = Cut(g, g.nodes, outputs, constants)
    text = text_of(best)
    if text is None:
        return None, "the failure does not come again"
    found = True
    while found:
        for cut in smaller_cuts(best):
            found = text_of(cut)
            if found:
                best, text = cut, found
                break
        else:
            found = None
    return best, text


def shown(cut, limit=40):
    """The model as text, with the values that are short."""
    model = cut.model()
    lines = [onnx.printer.to_text(model)]
    g = cut.g
    for name in cut.inputs:
        v = g.values[name]
        flat = np.asarray(v.array).reshape(-1)
        values = " ".join(str(x) for x in flat[:limit])
        lines.append(
            f"input {name}: {v.dtype}{list(v.shape)} = {values}"
            + (" ..." if flat.size > limit else "")
        )
    return "\n".join(lines)
