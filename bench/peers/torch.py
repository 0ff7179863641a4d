"""PyTorch's compiler (inductor), with weights frozen into the compiled model.

PyTorch does not read ONNX: `Network` runs the nodes of a model one by one with torch's functions,
and torch.export turns that into a graph. The nodes are those that ONNX Runtime's basic
optimisations leave, so that shape arithmetic and normalisations in convolutions are gone.
"""

import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
import torch._inductor.config
from onnx import numpy_helper
from torch.nn import functional as F

from bench.peers import Refused, histogram

TORCH_DTYPES = {onnx.TensorProto.FLOAT: torch.float32, onnx.TensorProto.INT64: torch.int64}


def as_list(value):
    return [int(x) for x in np.asarray(value).reshape(-1)]


# ---- operators --------------------------------------------------------------------------------
#
# Each takes the attributes, a dict with what is absent left out, and the inputs: tensors, None
# where one is left out, floats where they are constant scalars, and numpy arrays where they are
# constant integers or belong to an operator of PARAMETERISED.


def padded(x, attributes, rank, fill):
    """x padded as the attributes say, and what torch may do itself. Torch pads both sides alike."""
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise Refused("auto_pad is not translated")
    pads = attributes.get("pads", [0] * (2 * rank))
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    sides = [pads[axis + side * rank] for axis in reversed(range(rank)) for side in (0, 1)]
    return F.pad(x, sides, value=fill), [0] * rank


def conv(a, x, weight, bias=None):
    rank = weight.dim() - 2
    x, pads = padded(x, a, rank, 0.0)
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    ones = [1] * rank
    stride, dilation = a.get("strides", ones), a.get("dilations", ones)
    return function(x, weight, bias, stride, pads, dilation, a.get("group", 1))


def conv_transpose(a, x, weight, bias=None):
    rank = weight.dim() - 2
    ones, zeros = [1] * rank, [0] * rank
    pads = a.get("pads", zeros * 2)
    if pads[:rank] != pads[rank:] or "output_shape" in a:
        raise Refused("uneven padding of ConvTranspose is not translated")
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    stride, extra = a.get("strides", ones), a.get("output_padding", zeros)
    dilation = a.get("dilations", ones)
    return function(x, weight, bias, stride, pads[:rank], extra, a.get("group", 1), dilation)


def max_pool(a, x):
    rank = x.dim() - 2
    x, pads = padded(x, a, rank, float("-inf"))
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    ones = [1] * rank
    stride, dilation = a.get("strides", ones), a.get("dilations", ones)
    return function(x, a["kernel_shape"], stride, pads, dilation, bool(a.get("ceil_mode", 0)))


def gemm(a, x, weight, bias=None):
    x = x.t() if a.get("transA", 0) else x
    weight = weight.t() if a.get("transB", 0) else weight
    y = x @ weight
    if a.get("alpha", 1.0) != 1.0:
        y = y * a["alpha"]
    return y if bias is None else y + a.get("beta", 1.0) * bias


def reshape(a, x, shape):
    sizes = as_list(shape)
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(sizes)])


def resize(a, x, roi=None, scales=None, sizes=None):
    mode = (a["mode"], a.get("coordinate_transformation_mode"), a.get("nearest_mode"))
    if mode != (b"nearest", b"asymmetric", b"floor"):
        raise Refused(f"Resize {mode} is not translated")
    if sizes is not None:
        target = as_list(sizes)[2:]
    else:
        factors = scales.tolist()[2:]
        target = [int(size * factor) for size, factor in zip(x.shape[2:], factors)]
    return F.interpolate(x, size=target, mode="nearest")


def slices(a, x, starts, ends, axes=None, steps=None):
    starts, ends = as_list(starts), as_list(ends)
    axes = range(len(starts)) if axes is None else as_list(axes)
    steps = [1] * len(starts) if steps is None else as_list(steps)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        places = range(x.shape[axis])[start:end:step]
        if step > 0:
            x = x.narrow(axis, places.start, max(places.stop - places.start, 0))
            x = x[(slice(None),) * (axis % x.dim()) + (slice(None, None, step),)]
        else:
            x = x.index_select(axis, torch.tensor(list(places)))
    return x


def pad(a, x, pads, value=None, axes=None):
    if a.get("mode", b"constant") not in (b"constant", b"reflect") or axes is not None:
        raise Refused("this Pad is not translated")
    pads, rank = as_list(pads), x.dim()
    sides = [pads[axis + side * rank] for axis in reversed(range(rank)) for side in (0, 1)]
    if a.get("mode", b"constant") == b"reflect":
        while sides[-2:] == [0, 0]:
            sides = sides[:-2]
        return F.pad(x, sides, mode="reflect")
    return F.pad(x, sides, value=0.0 if value is None else float(value))


def gather(a, x, at):
    axis = a.get("axis", 0)
    if isinstance(at, np.ndarray) and at.ndim == 0:
        return x.select(axis, int(at))
    if not isinstance(at, torch.Tensor):
        at = torch.tensor(at)
    if axis == 0 and x.dim() == 2:
        return F.embedding(at, x)
    shape = x.shape[:axis] + at.shape + x.shape[axis % x.dim() + 1 :]
    return x.index_select(axis, at.reshape(-1)).reshape(shape)


def squeeze(a, x, axes=None):
    return x.squeeze(tuple(as_list(a["axes"] if axes is None else axes)))


def unsqueeze(a, x, axes=None):
    axes = as_list(a["axes"] if axes is None else axes)
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def reduce(function):
    def apply(a, x, axes=None):
        axes = a.get("axes") if axes is None else as_list(axes)
        return function(x, tuple(axes or range(x.dim())), bool(a.get("keepdims", 1)))

    return apply


def layer_norm(a, x, weight, bias=None):
    axis = a.get("axis", -1)
    return F.layer_norm(x, x.shape[axis:], weight, bias, a.get("epsilon", 1e-5))


def gelu(a, x):
    return F.gelu(x, approximate=a.get("approximate", b"none").decode())


def clip(a, x, low=None, high=None):
    limits = [a.get("min") if low is None else low, a.get("max") if high is None else high]
    return torch.clamp(x, *[None if limit is None else float(limit) for limit in limits])


OPERATORS = {
    "Add": lambda a, x, y: x + y,
    "BatchNormalization": lambda a, x, scale, bias, mean, variance: F.batch_norm(
        x, mean, variance, scale, bias, eps=a.get("epsilon", 1e-5)
    ),
    "Cast": lambda a, x: x.to(TORCH_DTYPES[a["to"]]),
    "Clip": clip,
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Div": lambda a, x, y: x / y,
    "Equal": lambda a, x, y: x == y,
    "Erf": lambda a, x: torch.erf(x),
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Gather": gather,
    "Gelu": gelu,
    "Gemm": gemm,
    "GlobalAveragePool": lambda a, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "HardSigmoid": lambda a, x: torch.clamp(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda a, x: F.hardswish(x),
    "Identity": lambda a, x: x.clone(),
    "InstanceNormalization": lambda a, x, scale, bias: F.instance_norm(
        x, weight=scale, bias=bias, eps=a.get("epsilon", 1e-5)
    ),
    "LayerNormalization": layer_norm,
    "Log": lambda a, x: torch.log(x),
    "MatMul": lambda a, x, y: x @ y,
    "MaxPool": max_pool,
    "Mul": lambda a, x, y: x * y,
    "Neg": lambda a, x: -x,
    "Pad": pad,
    "Pow": lambda a, x, y: x**y,
    "PRelu": lambda a, x, slope: torch.where(x < 0, x * slope, x),
    "ReduceMax": reduce(torch.amax),
    "ReduceMean": reduce(torch.mean),
    "ReduceMin": reduce(torch.amin),
    "ReduceSum": reduce(torch.sum),
    "Relu": lambda a, x: F.relu(x),
    "Reshape": reshape,
    "Resize": resize,
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "Slice": slices,
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Sqrt": lambda a, x: torch.sqrt(x),
    "Squeeze": squeeze,
    "Sub": lambda a, x, y: x - y,
    "Tanh": lambda a, x: torch.tanh(x),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Unsqueeze": unsqueeze,
    "Where": lambda a, condition, x, y: torch.where(condition, x, y),
}


# All inputs of these but the first must be known when the graph is made.
PARAMETERISED = ("Clip", "Pad", "Resize")


# ---- the model --------------------------------------------------------------------------------


class Network(torch.nn.Module):
    def __init__(self, graph):
        super().__init__()
        lacking = sorted({node.op_type for node in graph.node} - OPERATORS.keys())
        if lacking:
            raise Refused("not translated: " + " ".join(lacking))
        parameters = {x for n in graph.node if n.op_type in PARAMETERISED for x in n.input[1:]}
        self.constants = {"": None}
        self.names = {}  # of the buffers, by name of the initializer
        for weight in graph.initializer:
            array = numpy_helper.to_array(weight)
            if array.dtype == np.int64 or weight.name in parameters:
                self.constants[weight.name] = array
            elif array.ndim == 0 and array.dtype == np.float32:
                self.constants[weight.name] = float(array)
            else:
                self.names[weight.name] = f"weight{len(self.names)}"
                self.register_buffer(self.names[weight.name], torch.from_numpy(array.copy()))
        given = self.constants.keys() | self.names.keys()
        self.inputs = [value.name for value in graph.input if value.name not in given]
        self.results = [value.name for value in graph.output]
        self.nodes = [
            (
                node.op_type,
                {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
                list(node.input),
                node.output[0],
            )
            for node in graph.node
        ]

    def forward(self, *arrays):
        values = dict(zip(self.inputs, arrays)) | self.constants
        for name, buffer in self.names.items():
            values[name] = getattr(self, buffer)
        for operator, attributes, names, result in self.nodes:
            arguments = [values[name] for name in names]
            values[result] = OPERATORS[operator](attributes, *arguments)
        return tuple(values[name] for name in self.results)


def optimised(job):
    """The graph that ONNX Runtime's basic optimisations leave."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(dir=job.cache) as folder:
        options.optimized_model_filepath = f"{folder}/basic.onnx"
        onnxruntime.InferenceSession(job.path, options, providers=["CPUExecutionProvider"])
        model = onnx.load(options.optimized_model_filepath, load_external_data=False)
    # Large weights still lie where they did.
    onnx.load_external_data_for_model(model, str(job.path.parent))
    return model.graph


class Session:
    """Compiled by inductor. On a GPU, with CUDA graphs; products stay in fp32."""

    compiler = "inductor, frozen"

    def __init__(self, job):
        if job.precision == "int8":
            raise Refused("no import of models that others quantised")
        self.device = "cuda" if job.machine == "gpu" else "cpu"
        torch.set_num_threads(job.threads)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        network = Network(optimised(job)).eval().to(self.device)
        self.inputs = [torch.from_numpy(job.inputs[name].copy()) for name in network.inputs]
        self.half = torch.autocast(self.device, torch.bfloat16, enabled=job.precision == "bf16")
        with torch.no_grad(), torch.device(self.device):
            self.model = torch.export.export(network, tuple(self.on_device())).module()
        ops = (str(node.target) for node in self.model.graph.nodes if node.op == "call_function")
        self.ran = {"compiler": self.compiler, "ops": histogram(ops)}
        self.prepare()
        self.run()

    def on_device(self):
        return [x.cuda() for x in self.inputs] if self.device == "cuda" else self.inputs

    def prepare(self):
        torch._inductor.config.freezing = True
        mode = "reduce-overhead" if self.device == "cuda" else None
        self.model = torch.compile(self.model, mode=mode)

    def run(self):
        """From host to host, as mlcc's libraries run."""
        with torch.no_grad(), self.half:
            self.results = self.model(*self.on_device())
            if self.device == "cuda":
                self.results = [result.cpu() for result in self.results]

    def outputs(self):
        return [
            result.float().numpy() if result.is_floating_point() else result.numpy()
            for result in self.results
        ]


load = Session
