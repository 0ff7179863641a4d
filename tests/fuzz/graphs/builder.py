"""Random models under construction.

Every node is computed by a judge as it is added, so that all values are known: what ONNX leaves
open is avoided by looking, and a failing model can be cut anywhere. A value is exact, that is
determined bit by bit, or a float with a bound of the error that a correct implementation may make.
How a node passes errors on is its kind:

    move     elements are copied: errors are copied with them
    select   elements, perhaps negated, or constants: exact if the inputs are
    round    one rounding, the same everywhere: exact if the inputs are, else as smooth
    sum      exact if the inputs are and no partial sum needs more bits than the type has
    product  the same for products, and sums of these
    smooth   any continuous function: the error is found by moving the inputs a little
    step     it jumps: its inputs must be exact, and its outputs are
    encode   a step, up or down, where the first input reaches it: not nearer than its error
    shape    only the shapes of its inputs matter
"""

import numpy as np
from onnx import helper, numpy_helper

from . import dtypes
from .judge import Judge, Refused, opset_imports, IR_VERSION

OPSETS = (8, 9, 10, 11, 12, 13, 13, 15, 17, 18, 18, 20, 21, 21, 22, 22, 23, 23, 23, 23)
LARGEST_FLOAT = {"f32": 1e12, "f64": 1e30, "f16": 2e4, "bf16": 1e12}


class Reject(Exception):
    """This node cannot be used: another one is tried."""


class Value:
    def __init__(self, name, array, error=None, source="node"):
        self.name, self.array, self.source = name, array, source
        self.error = error  # None: exact
        self.units = 0  # in the last place, by which Vulkan's division may err
        self.dtype = dtypes.name_of(array)
        self.shape = array.shape
        self.rank = array.ndim
        self.size = array.size
        self.used = False
        self.special = self.dtype in dtypes.REAL and not bool(
            np.all(np.isfinite(dtypes.wide(array)))
        )

    @property
    def exact(self):
        return self.error is None

    @property
    def is_float(self):
        return self.dtype in dtypes.REAL


def grid_exponent(array):
    """The largest q such that all elements are multiples of 2^q; None if all are zero."""
    x = dtypes.wide(array)
    x = x[x != 0]
    if not x.size or not np.all(np.isfinite(x)):
        return None
    mantissa, exponent = np.frexp(x)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    low = whole & -whole
    return int(np.min(exponent - 53 + np.log2(low.astype(np.float64)).astype(np.int64)))


class Builder:
    """A model: its values by name, its nodes in order."""

    def __init__(self, rng, opset=None):
        self.rng = rng
        self.opset = opset or int(rng.choice(OPSETS))
        self.values, self.nodes = {}, []
        # A model that likes some types and dimensions has more values that go together.
        liked = rng.random(len(dtypes.COMMON)) < (0.25 if rng.random() < 0.5 else 1)
        self.liked_types = [t for t, like in zip(dtypes.COMMON, liked) if like]
        self.dims = dtypes.DIMS
        if rng.random() < 0.5:
            count = int(rng.integers(2, 5))
            self.dims = tuple(int(d) for d in rng.choice(dtypes.DIMS, count, replace=False))
        # Some are of a few large tensors, for tiles, packing and rows of vectors.
        self.large = rng.random() < 0.12
        self.largest = dtypes.LARGEST * (8 if self.large else 1)
        if self.large:
            self.dims = tuple(int(d) for d in rng.choice(dtypes.LONG, 3, replace=False))
        self.inputs, self.constants = [], []  # names
        self.kinds = {}  # of nodes, by id()
        self.counter = 0
        self.who = set()  # judges asked
        self.frozen = set()  # inputs whose values decide shapes or were chosen with care
        self.told = set()  # results whose shapes depend on data, which models therefore tell

    # ---- choosing -----------------------------------------------------------------------------

    def chance(self, p):
        return self.rng.random() < p

    def one_of(self, options):
        return options[int(self.rng.integers(len(options)))]

    def below(self, n):
        return int(self.rng.integers(n))

    def between(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def pick_type(self, allowed):
        if self.opset < 13:
            allowed = [t for t in allowed if t != "bf16"]
        liked = [t for t in allowed if t in self.liked_types]
        return dtypes.pick_type(self.rng, liked or allowed)

    def pick_shape(self, low=0, high=5, most=None):
        most = most or self.largest
        return dtypes.pick_shape(self.rng, self.dims, low, high, most)

    def new_name(self, letter):
        self.counter += 1
        return f"{letter}{self.counter}"

    # ---- values -------------------------------------------------------------------------------

    def add(self, array, constant=None):
        """A new input, initializer or Constant node that holds the array."""
        if constant is None:
            constant = self.chance(0.4)
        if not constant:
            value = Value(self.new_name("x"), np.asarray(array), source="input")
            self.inputs.append(value.name)
        else:
            value = Value(self.new_name("c"), np.asarray(array), source="constant")
            self.constants.append(value.name)
        self.values[value.name] = value
        return value

    def fresh(
        self,
        type_or_types,
        shape=None,
        low=None,
        high=None,
        special=False,
        constant=None,
        rank=(0, 5),
    ):
        if not isinstance(type_or_types, str):
            type_or_types = self.pick_type(type_or_types)
        if shape is None:
            shape = self.pick_shape(*rank)
        return self.add(
            dtypes.pick_data(self.rng, type_or_types, tuple(shape), low, high, special), constant
        )

    def existing(self, test):
        fitting = [v for v in self.values.values() if test(v)]
        if not fitting:
            return None
        # late values are likelier, so that graphs get deep
        index = int(len(fitting) * self.rng.random() ** 0.6)
        return fitting[min(index, len(fitting) - 1)]

    def pick(
        self,
        allowed=dtypes.COMMON,
        rank=(0, 5),
        exact=False,
        special=False,
        most=None,
        test=None,
        low=None,
        high=None,
    ):
        """A value of one of these types and ranks, there already or new. exact: bit by bit;
        special: NaN and infinities are welcome. low, high: of a new one's elements."""
        if isinstance(allowed, str):
            allowed = (allowed,)

        def fits(v):
            return (
                v.dtype in allowed
                and rank[0] <= v.rank <= rank[1]
                and (v.exact or not exact)
                and (special or not v.special)
                and (most is None or v.size <= most)
                and (test is None or test(v))
            )

        found = self.existing(fits) if self.chance(0.75) else None
        if found:
            return found
        for _ in range(30):
            wanted_special = special and self.chance(0.3)
            shape = self.pick_shape(rank[0], rank[1], most or self.largest)
            dtype = self.pick_type(allowed)
            array = dtypes.pick_data(self.rng, dtype, shape, low, high, wanted_special)
            if test is None or test(Value("", array)):
                return self.add(array)
        raise Reject("nothing fits")

    def partner(self, v, exact=False, special=False, dtype=None, low=None, high=None):
        """A value that broadcasts with v, of v's type."""
        dtype = dtype or v.dtype

        def fits(w):
            try:
                shape = np.broadcast_shapes(v.shape, w.shape)
            except ValueError:
                return False
            return (
                w.dtype == dtype
                and (w.exact or not exact)
                and (special or not w.special)
                and np.prod(shape, dtype=int) <= 2 * self.largest
                and low is None
            )

        found = self.existing(fits) if self.chance(0.6) else None
        if found:
            return found
        shape = [1 if self.chance(0.25) else d for d in v.shape]
        if self.chance(0.3):
            shape = shape[self.below(len(shape) + 1) :]
        if self.chance(0.15) and len(shape) == v.rank and v.rank < 5:
            shape = [int(self.one_of((1, 2, 3)))] + shape
        if self.chance(0.2):  # v is stretched instead
            shape = [
                (
                    self.one_of((2, 3, 5))
                    if n == 1 and v.rank >= len(shape) and v.shape[v.rank - len(shape) + i] == 1
                    else n
                )
                for i, n in enumerate(shape)
            ]
        return self.fresh(dtype, shape, low, high, special and self.chance(0.2))

    def shape_input(self, numbers):
        """An int64 vector that mlcc must know when compiling."""
        array = np.array(numbers, np.int64)
        style = self.rng.random()
        if style < 0.2:
            value = self.add(array, True)
            self.frozen.add(value.name)
            return self.node("Identity", [value], kind="move")[0]
        if style < 0.3 and len(numbers) > 1:
            parts = [self.shape_input(numbers[:1]), self.shape_input(numbers[1:])]
            return self.node("Concat", parts, axis=0, kind="move")[0]
        if style < 0.4 and array.ndim == 1:
            found = self.existing(lambda v: v.shape == tuple(numbers))
            if found and self.opset >= 15:
                return self.node("Shape", [found], kind="shape")[0]
        value = self.add(array, True)
        self.frozen.add(value.name)
        return value

    def parameter(self, array):
        """A constant that decides a shape or must stay what it is."""
        value = self.add(array, True)
        self.frozen.add(value.name)
        return value

    def scalar(self, dtype, number):
        return self.parameter(np.array(number).astype(dtypes.NUMPY[dtype]))

    # ---- nodes --------------------------------------------------------------------------------

    def node(
        self,
        op,
        inputs,
        kind="step",
        outputs=1,
        domain="",
        captured=(),
        scale=1.0,
        fixed=(),
        special=False,
        coarse=False,
        extra=0.0,
        **attributes,
    ):
        """Adds a node and returns its outputs. inputs: values, None for those left out. captured:
        outer values that its subgraphs read. fixed: indices of inputs that are parameters, not
        moved when errors are estimated. special: NaN and infinities may come out. coarse:
        constants of the operator may be rounded to f32. extra: error that it may make besides.
        Raises Reject."""
        names = [v.name if v else "" for v in inputs]
        while names and not names[-1]:
            names.pop()
        attributes = {k: v for k, v in attributes.items() if v is not None}
        results = [self.new_name("v") for _ in range(outputs)]
        node = helper.make_node(op, names, results, domain=domain, **attributes)
        given = {v.name: v for v in list(inputs) + list(captured) if v}
        arrays = {name: v.array for name, v in given.items()}
        try:
            judge = Judge(node, arrays, self.opset)
            found = judge.run(arrays)
            loose = [v for i, v in enumerate(inputs) if v and i not in fixed] + list(captured)
            errors = self.errors(judge, kind, arrays, found, loose, scale)
            if extra:
                errors = [e if e is None else e + extra for e in errors]
            if coarse:
                errors = [
                    e if e is None else e + 2e-7 * np.abs(dtypes.wide(a)).max(initial=1.0)
                    for e, a in zip(errors, found)
                ]
        except Refused as refusal:
            raise Reject(f"{op}: {refusal}") from None
        values = []
        for name, array, error in zip(results, found, errors):
            values.append(self.checked(op, name, array, error, special))
            if kind in ("move", "select"):
                values[-1].units = max((v.units for v in loose), default=0)
        for v in given.values():
            v.used = True
        self.who.add(judge.who)
        self.nodes.append(node)
        self.kinds[id(node)] = kind
        for v in values:
            self.values[v.name] = v
        return values

    def checked(self, op, name, array, error, special):
        if array.dtype not in dtypes.NAME_OF_NUMPY:
            raise Reject(f"{op}: {array.dtype}")
        if array.size > 4 * self.largest or array.ndim > 6:
            raise Reject(f"{op}: too large")
        value = Value(name, array, error)
        if value.is_float and array.size:
            x = dtypes.wide(array)
            if value.special and not special:
                raise Reject(f"{op}: not finite")
            finite = np.abs(x[np.isfinite(x)])
            if finite.size and finite.max() > LARGEST_FLOAT.get(value.dtype, 1e3):
                raise Reject(f"{op}: too large")
            if error is not None:
                if value.special or not np.all(np.isfinite(error)):
                    raise Reject(f"{op}: its error is not known")
                if np.any(error > 0.05 * np.maximum(np.abs(x).max(), 1e-3)):
                    raise Reject(f"{op}: ill-conditioned")
        return value

    def errors(self, judge, kind, arrays, found, loose, scale):
        """The error bound of each output, None where it is exact."""
        none = [None] * len(found)
        if kind == "shape":
            return none
        if kind == "encode":
            self.reach_no_step(judge, arrays, found, loose[0])
            return none
        floats = [v for v in loose if v.is_float]
        exact = all(v.exact for v in loose)
        real = [a is not None and dtypes.name_of(a) in dtypes.REAL for a in found]
        if not exact and kind == "step" or not exact and not all(real) and kind != "move":
            raise Reject("inexact inputs")
        if not any(real):
            if not exact:
                raise Reject("inexact inputs")
            return none
        if exact and kind in ("move", "select", "round", "step"):
            return none
        if kind == "move":
            return self.moved_errors(judge, arrays, found, floats)
        if (
            exact
            and kind in ("sum", "product")
            and self.is_on_grid(judge, kind, arrays, found, loose)
        ):
            return none
        if any(v.special for v in floats):
            raise Reject("not finite")
        return self.moved_a_little(judge, kind, arrays, found, floats, scale)

    @staticmethod
    def reach_no_step(judge, arrays, found, v):
        """Of exact inputs, too, quotients are rounded."""
        x = dtypes.wide(v.array)
        room = 8 * dtypes.epsilon(v.dtype) * np.abs(x) + (0 if v.exact else 4 * v.error)
        for moved in (x - room, x + room):
            answers = judge.run({**arrays, v.name: np.asarray(moved).astype(v.array.dtype)})
            if any(np.any(a != b) for a, b in zip(answers, found)):
                raise Reject("near a step")

    @staticmethod
    def moved_errors(judge, arrays, found, floats):
        instead = dict(arrays)
        for v in floats:
            error = np.zeros(v.shape) if v.error is None else v.error
            # rounded up, so that narrow types do not lose them
            error = np.asarray(error * (1 + 2 * dtypes.epsilon(v.dtype)))
            instead[v.name] = error.astype(v.array.dtype)
        return [
            dtypes.wide(e) if dtypes.name_of(e) in dtypes.REAL else None
            for e in judge.run(instead)
        ]

    @staticmethod
    def is_on_grid(judge, kind, arrays, found, loose):
        floats = [v for v in loose if v.is_float]
        if any(v.special for v in floats):
            return False
        exponents = [q for q in (grid_exponent(v.array) for v in floats) if q is not None]
        if not exponents:
            return True
        q = min(exponents) if kind == "sum" else sum(min(e, 0) for e in exponents)
        q = min(q, *exponents) if kind == "product" and len(exponents) > 1 else q
        instead = {
            name: np.asarray(np.abs(a)) if dtypes.name_of(a) in dtypes.REAL else a
            for name, a in arrays.items()
        }
        largest = [dtypes.wide(a).max(initial=0.0) for a in judge.run(instead)]
        return all(
            top < 2.0 ** (dtypes.PRECISION[dtypes.name_of(a)] + q)
            for top, a in zip(largest, found)
        )

    def moved_a_little(self, judge, kind, arrays, found, floats, scale):
        """What the outputs do when the inputs move by their errors, and by some roundings: every
        stable way to compute a function gives its value for inputs near those given."""
        samples = 4
        carried = [np.zeros(a.shape) for a in found]
        own = [np.zeros(a.shape) for a in found]
        base = [dtypes.wide(a) for a in found]
        inexact = any(not v.exact for v in floats)
        for what in (["carried"] if inexact else []) + ([] if kind == "select" else ["own"]):
            for i in range(samples):
                instead = dict(arrays)
                for v in floats:
                    x = dtypes.wide(v.array)
                    sign = self.rng.choice((-1.0, 1.0), v.shape)
                    if kind == "select" and i < 2:  # Relu may change on one side only
                        sign = np.full(v.shape, (-1.0, 1.0)[i])
                    if what == "own":
                        change = 4 * dtypes.epsilon(v.dtype) * np.abs(x)
                    else:
                        change = 0 if v.error is None else v.error
                    instead[v.name] = np.asarray(x + sign * change).astype(v.array.dtype)
                sums = carried if what == "carried" else own
                for total, a, b in zip(sums, judge.run(instead), base):
                    with np.errstate(all="ignore"):
                        np.maximum(total, np.abs(dtypes.wide(a) - b), out=total)
        result = []
        for total, mine, array in zip(carried, own, found):
            dtype = dtypes.name_of(array)
            if dtype not in dtypes.REAL:
                result.append(None)
                continue
            bound = 1.5 * total
            if kind != "select":
                top = np.abs(dtypes.wide(array)).max(initial=0.0)
                e = dtypes.epsilon(dtype)
                bound = bound + scale * (
                    4 * mine + 8 * e * np.abs(dtypes.wide(array)) + 4 * e * top
                )
                # what fast exponentials and the like may miss
                bound = bound + (1e-30 if dtype == "f64" else 5e-7 * scale)
            result.append(bound)
        return result

    # ---- the model ----------------------------------------------------------------------------

    def outputs(self):
        """Values that no node reads, and a few that one does."""
        made = [v for v in self.values.values() if v.source == "node"]
        chosen = [v for v in made if not v.used or self.chance(0.08)]
        return chosen or made[-1:]

    def value_info(self, name):
        v = self.values[name]
        return helper.make_tensor_value_info(name, dtypes.ONNX[v.dtype], v.shape)


def assemble(builder, nodes, inputs, constants, outputs, declared=()):
    """A model of these nodes; all other arguments are names of the builder's values. Constants are
    initializers. declared: values whose types the model is to tell, beside `builder.told`."""
    made = {name for node in nodes for name in node.output}
    declared = {*declared, *(builder.told & made)}.difference(outputs)
    tensors = []
    for name in constants:
        tensor = numpy_helper.from_array(builder.values[name].array, name)
        tensors.append(tensor)
    graph = helper.make_graph(
        list(nodes),
        "random",
        [builder.value_info(n) for n in inputs],
        [builder.value_info(n) for n in outputs],
        tensors,
        value_info=[builder.value_info(n) for n in sorted(declared)],
    )
    return helper.make_model(
        graph, opset_imports=opset_imports(builder.opset), ir_version=IR_VERSION[builder.opset]
    )
