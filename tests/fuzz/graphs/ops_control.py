"""If, Loop and Scan with small bodies."""

import numpy as np
from onnx import helper, numpy_helper

from . import dtypes
from .table import operator


class Body:
    """Nodes of a subgraph, which read its own values, all of one type, and outer ones."""

    def __init__(self, g, label):
        self.g, self.label, self.nodes, self.names, self.n = g, label, [], [], 0
        self.captured = ()

    def new(self):
        self.n += 1
        return f"{self.label}{self.n}"

    def node(self, op, inputs, **attributes):
        name = self.new()
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value, dtype=np.int64):
        tensor = numpy_helper.from_array(np.array(value, dtype))
        return self.node("Constant", [], value=tensor)

    def grow(self, names, dtype, count):
        """`count` elementwise nodes on values of one shape that never overflow a float."""
        names = list(names)
        for _ in range(count):
            a, b = self.g.one_of(names), self.g.one_of(names)
            if dtype == "bool":
                made = self.node(self.g.one_of(("And", "Or", "Xor")), [a, b])
            elif dtype in dtypes.FLOATS:
                op = self.g.one_of(("Max", "Min", "Neg", "Tanh", "Abs"))
                made = self.node(op, [a] if op in ("Neg", "Tanh", "Abs") else [a, b])
            else:
                # ONNX Runtime's Max and Min of i64: see judge.py
                wide = ("Add", "Sub", "Mul")
                op = self.g.one_of(wide if dtype == "i64" else wide + ("Max", "Min"))
                made = self.node(op, [a, b])
            names.append(made)
        return names[-1]


STATES = ("f32", "i32", "i64", "f64", "i64")


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtypes.ONNX[dtype], shape)


@operator(1.5)
def if_(g):
    x = g.pick(STATES, most=256)
    y = g.partner(x) if g.chance(0.5) else x
    if y.shape != x.shape:
        y = x
    condition = g.pick("bool", rank=(0, 0))
    branches = []
    for label in ("then", "else"):
        body = Body(g, g.new_name(label) + "_")
        result = body.grow([x.name, y.name], x.dtype, g.between(1, 3))
        branches.append(helper.make_graph(body.nodes, label, [], [info(result, x.dtype, x.shape)]))
    g.node(
        "If",
        [condition],
        kind="select" if not x.is_float else "smooth",
        captured=(x, y),
        then_branch=branches[0],
        else_branch=branches[1],
    )


@operator(1.5)
def loop(g):
    x = g.pick(STATES, most=256, rank=(0, 3))
    outer = g.fresh(x.dtype, x.shape, -2, 2)
    trips = g.between(1, 5)
    body = Body(g, g.new_name("loop") + "_")
    counter, going, state = body.new(), body.new(), body.new()
    still = body.node("Identity", [going])
    names = [state, outer.name]
    if x.dtype == "i64" and g.chance(0.6):
        names.append(body.node("Add", [counter, state]))
    after = body.grow(names, x.dtype, g.between(1, 3))
    kept = body.node("Identity", [after])
    results = [info(still, "bool", ()), info(after, x.dtype, x.shape)]
    if g.chance(0.6):
        results.append(info(kept, x.dtype, x.shape))
    graph = helper.make_graph(
        body.nodes,
        "body",
        [info(counter, "i64", ()), info(going, "bool", ()), info(state, x.dtype, x.shape)],
        results,
    )
    condition = g.scalar("bool", True) if g.chance(0.6) else None
    g.node(
        "Loop",
        [g.scalar("i64", trips), condition, x],
        kind="smooth" if x.is_float else "step",
        outputs=len(results) - 1,
        captured=(outer,),
        fixed=(0, 1),
        body=graph,
    )


def plus_one(body, value, dtype):
    """value + 1, perhaps by way of floats, as some exporters write it."""
    if dtype == "i64" and body.g.chance(0.3):
        number = body.node("Cast", [value], to=dtypes.ONNX["f32"])
        number = body.node("Add", [number, body.constant(1, np.float32)])
        return body.node("Cast", [number], to=dtypes.ONNX[dtype])
    return body.node("Add", [value, body.constant(1, dtypes.NUMPY[dtype])])


def row_product(g, body, at, rows, x):
    """A row of a table times a matrix, or times what that makes of it: as wide as x."""
    deep, wide = g.one_of((1, 3, 8, 17)), x.shape[-1]
    tables = g.fresh(x.dtype, (rows, deep), -2, 2), g.fresh(x.dtype, (deep, wide), -1, 1)
    body.captured += tables
    row = body.node("Gather", [tables[0].name, at])
    if x.rank > 1 and g.chance(0.5):
        row = body.node("Tanh", [body.node("Reshape", [row, body.constant([1, deep])])])
    return body.node("MatMul", [row, tables[1].name])


@operator(0.8)
def loop_counted(g):
    """A loop that ends when a carried number reaches another, or a run-time condition ends it."""
    x = g.pick(STATES, most=64, rank=(0, 2))
    number = g.one_of(("i64", "i32"))
    first, trips = g.between(0, 3), g.one_of((g.between(1, 6), g.between(60, 90)))
    table = g.fresh(x.dtype, (first + trips + 1,), -2, 2)
    begin, end = g.scalar(number, first), g.scalar(number, first + trips)
    flags = g.fresh("bool", (first + trips,)) if g.chance(0.3) else None
    body = Body(g, g.new_name("loop") + "_")
    counter, going, at, limit, state = (body.new() for _ in range(5))
    after_at = plus_one(body, at, number)
    if g.chance(0.5):
        element = body.node("Gather", [table.name, at])
    else:
        place = [body.node("Reshape", [v, body.constant([1])]) for v in (at, after_at)]
        element = body.node("Slice", [table.name, *place])
        if number == "i64" and g.chance(0.5):
            steps = body.node("Range", [at, after_at, body.constant(1)])
            element = body.node("Gather", [table.name, steps])
        element = body.node("Reshape", [element, body.constant(np.zeros(0))])
    if x.is_float:
        after = body.node(g.one_of(("Max", "Min")), [state, element])
        after = body.node("Add", [after, element])
        if x.rank and g.chance(0.5):
            after = body.node("Add", [after, row_product(g, body, at, first + trips, x)])
        after = body.node("Tanh", [after])
    else:
        after = body.node("Add", [state, element])
    compared = [after_at, limit]
    if g.chance(0.4):
        compared = [body.node("Cast", [v], to=dtypes.ONNX["f32"]) for v in compared]
    still = body.node(*g.one_of((("Less", compared), ("Greater", compared[::-1]))))
    if flags:
        still = body.node("And", [still, body.node("Gather", [flags.name, at])])
    same = body.node("Identity", [limit])
    results = [
        info(still, "bool", ()),
        info(after_at, number, ()),
        info(same, number, ()),
        info(after, x.dtype, x.shape),
    ]
    if not flags and g.chance(0.6):
        results.append(info(body.node("Identity", [after]), x.dtype, x.shape))
    inputs = [
        info(counter, "i64", ()),
        info(going, "bool", ()),
        info(at, number, ()),
        info(limit, number, ()),
        info(state, x.dtype, x.shape),
    ]
    most = None if g.chance(0.6) else g.scalar("i64", g.one_of((1000, 2**62)))
    g.node(
        "Loop",
        [most, g.scalar("bool", True), begin, end, x],
        kind="smooth" if x.is_float else "step",
        outputs=len(results) - 1,
        captured=(table, *body.captured) + ((flags,) if flags else ()),
        fixed=(0, 1, 2, 3),
        body=helper.make_graph(body.nodes, "body", inputs, results),
    )


@operator(0.8)
def loop_changing(g):
    """A loop that appends to what it carries, or takes from it, until a run-time number says so."""
    x = g.pick(STATES, most=128, rank=(1, 3), test=lambda v: v.size > 0)
    axis, trips = g.between(0, x.rank - 1), g.between(2, 5)
    least = g.fresh("i64", (), 0, trips)
    body = Body(g, g.new_name("loop") + "_")
    counter, going, state = body.new(), body.new(), body.new()
    still = body.node("Less", [counter, least.name])
    start, end, along = (
        body.constant([i])
        for i in (g.between(0, 1), g.one_of((1, 2, 2**40)), axis)
    )
    after = body.grow([state], x.dtype, g.between(1, 2))
    part = body.node("Slice", [after, start, end, along])
    if g.chance(0.75):
        part = body.node("Concat", [part, after] if g.chance(0.3) else [after, part], axis=axis)
    shape = tuple(None if i == axis else d for i, d in enumerate(x.shape))
    graph = helper.make_graph(
        body.nodes,
        "body",
        [info(counter, "i64", ()), info(going, "bool", ()), info(state, x.dtype, shape)],
        [info(still, "bool", ()), info(part, x.dtype, shape)],
    )
    g.node(
        "Loop",
        [g.scalar("i64", trips), None, x],
        kind="smooth" if x.is_float else "step",
        captured=(least,),
        fixed=(0,),
        body=graph,
    )


@operator(1)
def scan(g):
    dtype = g.one_of(STATES)
    shape = g.pick_shape(0, 2, 64)
    state, rows = g.fresh(dtype, shape), g.fresh(dtype, (g.between(1, 5),) + shape)
    body = Body(g, g.new_name("scan") + "_")
    a, b = body.new(), body.new()
    after = body.grow([a, b], dtype, g.between(1, 3))
    kept = body.node("Identity", [after])
    graph = helper.make_graph(
        body.nodes,
        "body",
        [info(a, dtype, shape), info(b, dtype, shape)],
        [info(after, dtype, shape), info(kept, dtype, shape)],
    )
    g.node(
        "Scan",
        [state, rows],
        kind="smooth" if dtype[0] == "f" else "step",
        outputs=2,
        body=graph,
        num_scan_inputs=1,
        scan_input_directions=[g.one_of((0, 1))] if g.chance(0.4) else None,
        scan_output_directions=[g.one_of((0, 1))] if g.chance(0.4) else None,
    )
