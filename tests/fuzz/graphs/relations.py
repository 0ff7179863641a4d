"""Models that must give the same: renamed ones, ones made of Constant nodes or of a function."""

import onnx

NAMES = (
    "for",
    "x y",
    "1",
    "a/b:0",
    "main",
    "int",
    "float",
    "é",
    "run",
    "arena",
    "weights",
    "NULL",
    "_",
    "__x",
    "exp",
    "model",
    "A",
    "a",
    "b\\c",
    "*/",
    "tensor(1)",
    "memcpy",
    "i0",
    "v",
    "restrict",
)


def renamed(model, rng):
    """A copy with other names for all that has a name, and its nodes in another order."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = {}

    def rename(name):
        if not name:
            return name
        if name not in names:
            new = str(rng.choice(NAMES)) if rng.random() < 0.5 else f"n{rng.integers(10**6)}"
            while new in names.values():
                new += str(rng.choice(list("_01xX.")))
            names[name] = new
        return names[name]

    def rename_graph(graph):
        for value in list(graph.input) + list(graph.output) + list(graph.value_info):
            value.name = rename(value.name)
        for tensor in graph.initializer:
            tensor.name = rename(tensor.name)
        for number, node in enumerate(graph.node):
            node.input[:] = [rename(n) for n in node.input]
            node.output[:] = [rename(n) for n in node.output]
            node.name = str(rng.choice(NAMES)) + str(number)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    rename_graph(attribute.g)

    rename_graph(copy.graph)
    shuffle_nodes(copy.graph, rng)
    return copy


def shuffle_nodes(graph, rng):
    """Another order in which every node still comes after those it reads from."""
    from .minimise import names_read

    made = {n for node in graph.node for n in node.output}
    waiting, order, done = list(graph.node), [], set()
    while waiting:
        ready = [n for n in waiting if all(i in done or i not in made for i in names_read(n))]
        node = ready[int(rng.integers(len(ready)))]
        order.append(node)
        waiting = [n for n in waiting if n is not node]
        done |= set(node.output)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
    del graph.node[:]
    graph.node.extend(copies)


def as_function(model):
    """A copy whose nodes are a function that the graph calls."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    inputs = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    outputs = [v.name for v in graph.output]
    whole = onnx.helper.make_function(
        "local", "Whole", inputs, outputs, list(graph.node), list(copy.opset_import)
    )
    del graph.node[:]
    graph.node.append(onnx.helper.make_node("Whole", inputs, outputs, domain="local"))
    copy.functions.append(whole)
    copy.opset_import.append(onnx.helper.make_opsetid("local", 1))
    copy.ir_version = max(copy.ir_version, 8)
    return copy


def constant_nodes(model, rng):
    """A copy where some initializers are Constant nodes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    moved = [t for t in copy.graph.initializer if rng.random() < 0.5]
    nodes = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in moved]
    kept = [t for t in copy.graph.initializer if t not in moved]
    old = list(copy.graph.node)
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes + old)
    return copy
