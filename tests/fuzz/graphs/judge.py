"""What a node computes: ONNX Runtime's answer, or that of ONNX's reference evaluator where the
first refuses a node or is known to be wrong."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from . import dtypes
from .stand_ins import OPSET, stand_in


def _large_integers(node, arrays):
    return any(
        a.dtype.kind in "iu" and a.size and np.abs(dtypes.wide(a)).max() >= 2.0**53
        for a in arrays.values()
    )


def _always(node, arrays):
    return True


def _long_integers(node, arrays):
    return any(
        a.dtype.itemsize == 8
        and a.dtype.kind in "iu"
        and a.size
        and np.abs(dtypes.wide(a)).max() >= 2.0**30
        for a in arrays.values()
    )


def _below_single(node, arrays):
    return any(a.dtype.itemsize < 4 for a in arrays.values())


def _doubles(node, arrays):
    return any(a.dtype == np.float64 for a in arrays.values())


def _attribute(node, name):
    for a in node.attribute:
        if a.name == name:
            return helper.get_attribute_value(a)
    return None


def _automatic_padding(node, arrays):
    return _attribute(node, "auto_pad") not in (None, b"NOTSET")


def _aligned_corners(node, arrays, of):
    """With scales that do not give whole lengths, of which some are like this."""
    if _attribute(node, "coordinate_transformation_mode") != b"align_corners":
        return False
    scales = arrays[node.input[2]] if len(node.input) == 3 and node.input[2] else np.ones(1)
    lengths = np.array(arrays[node.input[0]].shape) * scales
    return bool(np.any((lengths != np.floor(lengths)) & of(scales)))


def _aligned_corners_when_shrunk(node, arrays):
    return _aligned_corners(node, arrays, lambda scales: scales < 1)


def _aligned_corners_when_grown(node, arrays):
    return _aligned_corners(node, arrays, lambda scales: scales > 1)


# Where a judge is not to be asked: operator: (for which nodes, why).
RUNTIME_IS_WRONG = {
    "Max": (_long_integers, "the lesser of 2^31 - 1 and 2^31"),
    "Min": (_long_integers, "the lesser of 2^31 - 1 and 2^31"),
    "Mod": (_large_integers, "fmod of integers goes through a float"),
    "ReduceSum": (_large_integers, "a scalar goes through a float"),
    "Sigmoid": (_doubles, "of x < 0 it is one less that of -x, of which the last digits cancel"),
    "Resize": (
        _aligned_corners_when_shrunk,
        "ONNX's tests take the length before it is rounded",
    ),
}
REFERENCE_IS_WRONG = {
    "Conv": (_automatic_padding, "VALID is taken for SAME, and that is wrong with strides"),
    "ConvTranspose": (_always, "groups and dilations are mixed up"),
    "Erf": (_always, "an f64 is rounded to f32"),
    "Resize": (_aligned_corners_when_grown, "the length before it is rounded is taken"),
    "OneHot": (_always, "indices outside the range are wrapped"),
    "Gemm": (_large_integers, "integers are multiplied by a float"),
    "Softplus": (_below_single, "1 + exp(x) is rounded to the type, and is 1 for most x below 0"),
}


def _wrong(table, node, arrays):
    row = table.get(node.op_type)
    return row is not None and row[0](node, arrays)


# The types that ONNX Runtime takes from numpy arrays.
TAKEN = set(dtypes.COMMON) - {"bf16"}

# As what its outputs are to be seen, by the names it has for types; others are not asked for.
OUTPUT_VIEWS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
    "tensor(float8e4m3fn)": dtypes.NUMPY["f8e4m3fn"],
    "tensor(float8e4m3fnuz)": dtypes.NUMPY["f8e4m3fnuz"],
    "tensor(float8e5m2)": dtypes.NUMPY["f8e5m2"],
    "tensor(float8e5m2fnuz)": dtypes.NUMPY["f8e5m2fnuz"],
} | {
    f"tensor({kind}int{bits})": np.dtype(f"{kind}int{bits}")
    for kind in ("", "u")
    for bits in (8, 16, 32, 64)
}

IR_VERSION = {
    8: 7,
    9: 7,
    10: 7,
    11: 7,
    12: 7,
    13: 7,
    15: 8,
    17: 8,
    18: 8,
    19: 9,
    20: 9,
    21: 10,
    22: 10,
    23: 11,
    24: 12,
}


class Refused(Exception):
    """Neither judge computes this node."""


def _options():
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


onnxruntime.set_default_logger_severity(4)
OPTIONS = _options()


def opset_imports(opset):
    return [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]


def one_node_model(node, arrays, opset):
    """`arrays`: the inputs by name; those of outer scopes that subgraphs read among them."""
    nodes, constants = [node], []
    instead = stand_in(node, arrays)
    if instead:
        (nodes, constants), opset = instead, OPSET
        read = {name for part in nodes for name in part.input}
        arrays = {name: a for name, a in arrays.items() if name in read}
    inputs = [
        helper.make_tensor_value_info(name, dtypes.ONNX[dtypes.name_of(a)], a.shape)
        for name, a in arrays.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph(nodes, "one", inputs, outputs, constants)
    return helper.make_model(
        graph, opset_imports=opset_imports(opset), ir_version=IR_VERSION[opset]
    )


class Judge:
    """Computes one node for arrays of fixed shapes."""

    def __init__(self, node, arrays, opset):
        self.node, self.opset = node, opset
        self.model = one_node_model(node, arrays, opset)
        self.who = None
        self.given = [i.name for i in self.model.graph.input]
        names = {dtypes.name_of(arrays[name]) for name in self.given}
        if names <= TAKEN and not _wrong(RUNTIME_IS_WRONG, node, arrays):
            try:
                self.session = onnxruntime.InferenceSession(
                    self.model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
                )
            except Exception:  # one class for each status, without a base
                self.session = None
            if self.session:
                self.views = [OUTPUT_VIEWS.get(o.type) for o in self.session.get_outputs()]
                if None not in self.views:
                    self.who = "ONNX Runtime"
        if not self.who:
            self.ask_reference(arrays)

    def ask_reference(self, arrays):
        if self.opset < 13:
            raise Refused("the reference knows operators as they are now")
        if _wrong(REFERENCE_IS_WRONG, self.node, arrays):
            raise Refused("no judge computes this")
        try:
            self.session = ReferenceEvaluator(self.model)
            self.who = "reference"
        except Exception as refusal:
            raise Refused(str(refusal)) from None

    def run(self, arrays):
        """The outputs, None for those that the node leaves out."""
        try:
            with np.errstate(all="ignore"):
                given = {name: arrays[name] for name in self.given}
                results = iter(self.session.run(None, given))
        except Exception as refusal:
            if self.who == "ONNX Runtime":
                self.ask_reference(arrays)
                return self.run(arrays)
            raise Refused(str(refusal)) from None
        if self.who == "ONNX Runtime":
            results = iter([np.asarray(r).view(v) for r, v in zip(results, self.views)])
        outputs = [next(results) if name else None for name in self.node.output]
        for value in outputs:
            if value is not None and not isinstance(value, (np.ndarray, np.generic)):
                raise Refused("no tensor")
        return [None if v is None else np.asarray(v) for v in outputs]


def whole_model(model, arrays):
    """The outputs of a whole model by each judge that takes it: {name: list of arrays}."""
    answers = {}
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
        )
        answers["ONNX Runtime"] = session.run(None, arrays)
    except Exception as refusal:
        answers["ONNX Runtime"] = str(refusal).splitlines()[0]
    try:
        with np.errstate(all="ignore"):
            answers["reference"] = ReferenceEvaluator(
                onnx.ModelProto.FromString(model.SerializeToString())
            ).run(None, arrays)
    except Exception as refusal:
        answers["reference"] = (str(refusal).splitlines() or ["it fails"])[0]
    return answers
