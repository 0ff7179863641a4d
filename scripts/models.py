"""Compares models compiled by mlcc with ONNX Runtime, on real data where there is some.

For each model in FOLDER/index.json: its inputs are made from a fixed seed or read from
FOLDER/data; ONNX Runtime computes what should come out, with its own optimisations off so that it
does what the file says (ONNX's reference evaluator takes over for a model that it refuses); mlcc
compiles the model to a library and runs it in a process of its own, and each output is compared.

What counts as equal, with `scale` for the largest magnitude in the expected output:
    integers, bool, strings  every element equal
    float32, float64         |difference| <= 1e-3 |expected| + 1e-5 scale + 1e-6, the last because
                             ONNX Runtime's own sigmoid is 2e-7 off near 0
    float16                  |difference| <= 1e-2 |expected| + 2e-3 scale: the two round to 16 bits
                             at different places once operations are fused
    quantised outputs        two quantisation steps: a sum that lies between two integers may be
                             rounded either way, and ONNX Runtime with and without its own
                             optimisations is as far apart
"""

import argparse
import base64
import concurrent.futures
import fnmatch
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import wave
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What a target needs besides `-t TARGET` without --march: CUDA runs emulated on the CPU.
TARGET_OPTIONS = {"c": [], "cuda": ["-march=cpu"], "vulkan": []}

# What mlcc's exit code 4 means: the one that is no failure.
NOT_SUPPORTED = 4

# Values of the dimensions that a model leaves open. "INPUT.AXIS" names one that has no name in the
# model. Dimensions not listed here are 1 (they are batches).
DIMENSIONS = {
    "ppocr_v3_det_en": {"?": 96},
    "captcha_crnn_lstm": {"image_wdith": 128},
    "silero_vad_v5": {"input.1": 576},
    "oww_melspectrogram": {"samples": 1760},
    "bert_toy": {"batch": 2, "max_seq_len_in_batch": 12},
    "gpt2_past_tiny": {"batch_size": 2, "seq_len": 5},
    "bidi_lstm_bytes": {"batch": 2, "length": 58},
    "scan_lstm": {"Sequence": 7},
    "sklearn_rf": {"X.0": 6},
    "sklearn_titanic": {f"{name}.0": 4 for name in "pclass sex age fare embarked".split()},
    "kws_micro_qdq": {"unk__68": 2},
    "oww_embedding": {"unk__314": 2},
}


# Models that hand tensors on from one call to the next, input by output: after the call that every
# model gets, these are compiled once more with --state, called CALLS times, and compared with ONNX
# Runtime that is fed its own outputs.
STATES = {
    "gtcrn_stream_simple": {
        "conv_cache": "conv_cache_out",
        "tra_cache": "tra_cache_out",
        "inter_cache": "inter_cache_out",
    },
    "silero_vad_v5": {"state": "stateN"},
    "gpt2_past_tiny": {f"past_{i}": f"window_{i}" for i in range(12)},
}
CALLS = 12

# With --dynamic: the sizes that a library is run with, compiled once for the range from the least to
# the greatest. Run k takes the k-th of each list, from its beginning again where it ends. Dimensions
# not listed here are 2, 1 and 3.
SIZES = {
    "ppocr_v3_det_en": {"?": [96, 32, 64]},
    "captcha_crnn_lstm": {"image_wdith": [128, 64, 96]},
    "silero_vad_v5": {"input.1": [576]},
    "oww_melspectrogram": {"samples": [1760, 1000, 1280], "batch_size": [1, 2]},
    "bert_toy": {"batch": [2, 1], "max_seq_len_in_batch": [32, 12, 1]},
    "gpt2_past_tiny": {"batch_size": [2, 1], "seq_len": [7, 5, 1]},
    "bidi_lstm_bytes": {"batch": [2, 1], "length": [58, 20, 7]},
    "scan_lstm": {"Sequence": [7, 1, 4]},
}
USUAL_SIZES = [2, 1, 3]


class Skip(Exception):
    """mlcc says that it does not support this model."""


class Failure(Exception):
    """The model should have worked and did not."""


# ---- inputs -----------------------------------------------------------------------------------


def open_inputs(model):
    """The graph inputs that are not initializers, as (name, numpy dtype, dims): a dim is an int,
    or the name by which DIMENSIONS and `mlcc --dim` know it."""
    given = {i.name for i in model.graph.initializer}
    inputs = []
    for value in model.graph.input:
        if value.name in given:
            continue
        tensor = value.type.tensor_type
        dims = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            else:
                dims.append(dim.dim_param or f"{value.name}.{axis}")
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if tensor.elem_type == TensorProto.STRING:
            dtype = np.dtype(object)
        inputs.append((value.name, dtype, dims))
    return inputs


def read_pb(path):
    tensor = TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def read_wav(path, start, count):
    """`count` samples of 16 bits from the first channel, as float32 in -1..1."""
    with wave.open(str(path)) as f:
        f.setpos(start)
        samples = np.frombuffer(f.readframes(count), "<i2")[:: f.getnchannels()]
    return samples.astype(np.float32) / 32768


def picture(rng, shape, low, high):
    """Something like a photograph: smooth shapes with a little noise, from `low` to `high`. The
    two longest axes are taken for height and width."""
    height, width = sorted(np.argsort(shape)[-2:])
    coarse = [1] * len(shape)
    coarse[height], coarse[width] = 8, 8
    for axis, size in enumerate(shape):
        if axis not in (height, width):
            coarse[axis] = size
    image = rng.random(coarse)
    for axis in (height, width):
        position = np.linspace(0, 7, shape[axis])
        left = np.minimum(position.astype(int), 6)
        part = (position - left).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        image = np.take(image, left, axis) * (1 - part) + np.take(image, left + 1, axis) * part
    image = np.clip(image + 0.05 * rng.standard_normal(shape), 0, 1)
    return (low + image * (high - low)).astype(np.float32)


def drawn_text(rng, shape):
    """Dark strokes in lines on white, for a text detector: -2..2, [1, 3, height, width]."""
    page = np.full(shape[2:], 2.0, np.float32)
    for top in range(20, shape[2] - 14, 40):
        for left in range(10, shape[3] - 8, 9):
            for stroke in np.flatnonzero(rng.random(3) < 0.6):
                page[top : top + 14, left + 2 * stroke] = -2
            bar = top + rng.integers(0, 13)
            page[bar : bar + 2, left : left + 6] = -2
    return np.broadcast_to(page, shape).copy()


def drawn_person(rng, shape):
    """Head and shoulders before a grey wall, for a selfie model: 0..1, [1, height, width, 3]."""
    row, column = np.mgrid[0 : shape[1], 0 : shape[2]]
    middle = shape[2] // 2

    def ellipse(x, y, width, height):
        return ((column - x) / width) ** 2 + ((row - y) / height) ** 2 < 1

    head = ellipse(middle, 55, 26, 36)
    image = np.full(shape[1:], (0.35, 0.45, 0.55))
    image[ellipse(middle, 150, 70, 65)] = (0.2, 0.2, 0.5)
    image[head] = (0.85, 0.65, 0.55)
    image[head & (row < 38)] = (0.2, 0.12, 0.08)
    image[ellipse(middle - 12, 52, 5, 3) | ellipse(middle + 12, 52, 5, 3)] = (0.05, 0.05, 0.05)
    image[ellipse(middle, 74, 9, 3)] = (0.6, 0.2, 0.2)
    image += 0.02 * rng.standard_normal(image.shape)
    return np.clip(image, 0, 1).astype(np.float32)[None]


def magika_bytes(data):
    """The first and the last 1,024 bytes of a file, 256 standing for `no byte`."""
    packed = (data / "inference_examples_by_content.json.gz").read_bytes()
    examples = json.loads(gzip.decompress(packed))
    contents = [base64.b64decode(e["content_base64"] or "") for e in examples]
    content = np.frombuffer(max(contents, key=len), np.uint8)
    features = np.full((1, 2048), 256, np.int32)
    first, last = content[:1024], content[-1024:]
    features[0, : len(first)] = first
    features[0, 2048 - len(last) :] = last
    return features


def special_inputs(name, shapes, rng, data):
    """Inputs for which `any number` would be no good test, by input name; {} where it is."""

    def image(input_name, low, high):
        return {input_name: picture(rng, shapes[input_name], low, high)}

    if name in ("mnist8_cntk", "mobilenetv2_qdq", "subpixel_superres"):
        (input_name,) = shapes
        return {input_name: read_pb(data / "test_data_set_0" / "input_0.pb")}
    if name == "cct2_32":
        return dict(np.load(data / "inputs.npz"))
    if name == "bidi_lstm_bytes":
        return {"input": np.load(data / "io.npz")["input"]}
    if name == "magika_v3_3":
        return {"bytes": magika_bytes(data)}
    if name == "ppocr_v3_det_en":
        return {"x": drawn_text(rng, shapes["x"])}
    if name == "selfie_seg_landscape":
        return {"input_1:0": drawn_person(rng, shapes["input_1:0"])}
    if name == "silero_vad_v5":
        sound = read_wav(data / "test.wav", 40000, 576)
        return {"input": sound[None], "sr": np.array(16000, np.int64)}
    if name == "basic_pitch_nmp":
        sound = read_wav(data / "vocadito_10.wav", 44100, 2 * 43844)[::2]
        return {"serving_default_input_2:0": sound.reshape(1, 43844, 1)}
    if name == "oww_melspectrogram":
        return {"input": read_wav(data / "alexa_test.wav", 4000, 1760)[None] * 32768}
    if name == "bert_toy":
        mask = np.ones(shapes["input_mask"], np.int64)
        mask[-1, -3:] = 0
        return {
            "input_ids": rng.integers(0, 99, shapes["input_ids"]),
            "token_type_ids": rng.integers(0, 2, shapes["token_type_ids"]),
            "input_mask": mask,
        }
    if name == "sklearn_titanic":
        return {
            "pclass": np.array([["1"], ["3"], ["2"], ["3"]], object),
            "sex": np.array([["female"], ["male"], ["male"], ["female"]], object),
            "embarked": np.array([["S"], ["C"], ["Q"], ["S"]], object),
            "age": np.array([[29.0], [0.9167], [40.0], [18.5]], np.float32),
            "fare": np.array([[211.3375], [151.55], [7.25], [13.0]], np.float32),
        }
    if name == "sklearn_rf":
        low, high = np.array([4.3, 2.0, 1.0, 0.1]), np.array([7.9, 4.4, 6.9, 2.5])
        return {"X": (low + rng.random(shapes["X"]) * (high - low)).astype(np.float32)}
    ranges = {
        "vww_mobilenetv1_025": ("input_1", 0, 1),
        "ultraface_rfb320": ("input", -1, 1),
        "yolox_nano_416": ("images", 0, 255),
        "yunet_n_320": ("input", 0, 255),
        "fastestdet_352": ("input.1", 0, 1),
        "deeplabv3_257": ("sub_7", -1, 1),
        "captcha_crnn_lstm": ("input1", 0, 1),
    }
    if name in ranges:
        return image(*ranges[name])
    if name == "vittrack":
        return {**image("template", -2, 2), **image("search", -2, 2)}
    return {}


def make_inputs(name, inputs, dims, data):
    """All inputs of model `name` as arrays, the same ones in every run."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shapes = {
        input_name: [d if isinstance(d, int) else dims[d] for d in shape]
        for input_name, _, shape in inputs
    }
    arrays = special_inputs(name, shapes, rng, data)
    for input_name, dtype, _ in inputs:
        shape = shapes[input_name]
        if input_name not in arrays:
            if dtype.kind == "f":
                arrays[input_name] = rng.standard_normal(shape).astype(dtype) * dtype.type(0.5)
            elif dtype.kind == "b":
                arrays[input_name] = rng.random(shape) < 0.5
            else:
                arrays[input_name] = rng.integers(0, 10, shape).astype(dtype)
        # The data may leave out dimensions of 1, or be of another size than is asked for.
        if arrays[input_name].size == np.prod(shape):
            arrays[input_name] = np.reshape(np.asarray(arrays[input_name]), shape)
        else:
            arrays[input_name] = np.resize(arrays[input_name], shape)
    return arrays


# ---- expected outputs -------------------------------------------------------------------------


def expected_outputs(path, model, arrays):
    """What ONNX Runtime computes, and who computed it. Outputs in the order of the graph's."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return session.run(None, arrays), "onnxruntime"
    except Exception as refusal:  # it has a class of exception for each status, without a base
        try:
            from onnx.reference import ReferenceEvaluator

            return ReferenceEvaluator(model).run(None, arrays), "reference evaluator"
        except Exception:
            first = str(refusal).strip().splitlines()[0]
            raise Failure(f"neither ONNX Runtime nor the reference runs it: {first}") from None


def as_tensor(value):
    """ONNX Runtime's sequence of maps (scikit-learn's class probabilities) as a matrix."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value], np.float32)
    return np.asarray(value)


# ---- mlcc -------------------------------------------------------------------------------------


def summary(text):
    """mlcc's messages on one line: operators that it lacks by name, of others the first three."""
    lines = text.strip().splitlines() or ["no message"]
    errors = [line for line in lines if "error" in line] or lines
    lacking = [re.search(r"operator (\S+) of \S+ opset \d+, is not supported", e) for e in errors]
    others = [
        re.sub(r"^\S*?: (error)", r"\1", error)
        for error, match in zip(errors, lacking)
        if match is None
    ]
    names = sorted({match[1] for match in lacking if match})
    parts = (["operators " + " ".join(names)] if names else []) + others[:3]
    if len(others) > 3:
        parts.append(f"and {len(others) - 3} more")
    return "; ".join(parts)


def call(command, timeout, what):
    """Runs mlcc; returns the seconds it took."""
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"{what}: more than {timeout} s") from None
    if done.returncode != 0:
        message = summary(done.stderr.decode(errors="replace"))
        if done.returncode == NOT_SUPPORTED:
            raise Skip(message)
        raise Failure(f"{what}: exit code {done.returncode}: {message}")
    return time.monotonic() - start


def as_bytes(array):
    """An array of strings as .npy files hold it, in UTF-8; any other as it is."""
    return np.char.encode(array.astype(str), "utf-8") if array.dtype.kind in "OU" else array


def file_name(tensor_name):
    return re.sub(r"[^A-Za-z0-9_.-]", "_", tensor_name) + ".npy"


def quantisation_step(model, output):
    """The step of the DequantizeLinear that makes graph output `output`; 0 when none does."""
    makers = {name: node for node in model.graph.node for name in node.output}
    node = makers.get(output)
    if node is None or node.op_type != "DequantizeLinear":
        return 0.0
    name = node.input[1]
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    for weight in model.graph.initializer:
        if weight.name == name:
            return float(numpy_helper.to_array(weight).max())
    return 0.0


def compare(name, want, got, step):
    """The largest difference as a share of what is allowed; above 1 is a failure. `step` is the
    quantisation step of the output, 0 for one that is not quantised."""
    want = as_bytes(want)
    if want.shape != got.shape:
        raise Failure(f"output '{name}' is {list(got.shape)}, not {list(want.shape)}")
    strings = want.dtype.kind == "S" and got.dtype.kind == "S"
    if want.dtype != got.dtype and not strings:
        raise Failure(f"output '{name}' is {got.dtype}, not {want.dtype}")
    if want.dtype.kind != "f":
        return float("inf") if (want != got).any() else 0.0
    if want.size == 0:
        return 0.0
    half = want.dtype.itemsize == 2
    want, got = want.astype(np.float64), got.astype(np.float64)
    same = (want == got) | (np.isnan(want) & np.isnan(got))
    finite = np.where(np.isfinite(want), want, 0)
    scale = np.abs(finite).max()
    if half:
        allowed = 1e-2 * np.abs(finite) + 2e-3 * scale
    else:
        allowed = 1e-3 * np.abs(finite) + 1e-5 * scale + 1e-6
    allowed += 2 * step
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(same, 0, np.abs(want - got) / allowed)
    return float(np.nan_to_num(share, nan=np.inf).max())


def compile_model(path, library, dims, more, options):
    """Returns the seconds it took."""
    command = [options.mlcc, path, "-t", options.target, "-o", library, *more]
    command += [f"-march={options.march}"] if options.march else TARGET_OPTIONS[options.target]
    for dim, value in dims.items():
        command += ["--dim", f"{dim}={value}"]
    return call(command, options.timeout, "compile")


def run_library(library, arrays, outputs, more, options):
    """Runs it on arrays by input name; returns the arrays of these outputs, and the seconds."""
    out = library.parent
    command = [options.mlcc, "run", library, "--output", out, *more]
    for input_name, array in arrays.items():
        np.save(out / ("in_" + file_name(input_name)), as_bytes(array))
        command += ["--input", f"{input_name}={out / ('in_' + file_name(input_name))}"]
    for name in outputs:
        (out / file_name(name)).unlink(missing_ok=True)
    running = call(command, options.timeout, "run")
    for name in outputs:
        if not (out / file_name(name)).exists():
            raise Failure(f"output '{name}' was not written")
    return {name: np.load(out / file_name(name)) for name in outputs}, running


def check_output(model, name, want, got):
    """What share of what is allowed the output differs by."""
    share = compare(name, as_tensor(want), got, quantisation_step(model, name))
    if share > 1:
        raise Failure(f"output '{name}' differs: {share:.3g} times what is allowed")
    return share


def with_windows(model, states):
    """The model with an output more for each state that grows by a row each call: its last rows,
    as many as the input has."""
    made = {value.name for value in model.graph.output}
    constants = {"window_first": [1], "window_end": [2**31 - 1], "window_axis": [3]}
    grown = onnx.ModelProto()
    grown.CopyFrom(model)
    for name, value in constants.items():
        grown.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    for past, name in states.items():
        if name in made:
            continue
        present = name.replace("window", "present")
        grown.graph.node.append(helper.make_node("Slice", [present, *constants], [name]))
        (value,) = (v for v in model.graph.input if v.name == past)
        grown.graph.output.append(value)
        grown.graph.output[-1].name = name
    return grown


def run_states(name, path, model, inputs, dims, arrays, options):
    """A model with states, called several times. Returns the largest share of what is allowed."""
    out = options.out / options.target / (name + "_states")
    out.mkdir(parents=True, exist_ok=True)
    states = STATES[name]
    if not set(states.values()) <= {value.name for value in model.graph.output}:
        model = with_windows(model, states)
        path = out / "model.onnx"
        onnx.save(model, path)
    more = [f"--state={past}={present}" for past, present in states.items()]
    compile_model(path, out / "model.so", dims, more, options)
    rng = np.random.default_rng(5)
    given = {k: np.stack([v] * CALLS) for k, v in arrays.items() if k not in states}
    for values in given.values():
        if values.dtype.kind == "f":
            values *= rng.standard_normal([CALLS] + [1] * (values.ndim - 1)).astype(values.dtype)
        elif values.size > CALLS:
            values[:] = rng.integers(0, 5, values.shape)
    outputs = [v.name for v in model.graph.output if v.name not in states.values()]
    got, _ = run_library(out / "model.so", given, outputs, ["--calls", str(CALLS)], options)
    state = {past: np.zeros_like(arrays[past]) for past in states}
    worst = 0.0
    for i in range(CALLS):
        feed = {**{k: np.asarray(v[i]) for k, v in given.items()}, **state}
        wanted, _ = expected_outputs(path, model, feed)
        wanted = {v.name: want for v, want in zip(model.graph.output, wanted)}
        state = {past: wanted[present] for past, present in states.items()}
        for output in outputs:
            worst = max(worst, check_output(model, output, wanted[output], got[output][i]))
    return worst


def run_sizes(name, names, dynamic):
    """The values of the dimensions `names` in each run, and what --dim says of them."""
    if not dynamic:
        fixed = {d: DIMENSIONS.get(name, {}).get(d, 1) for d in names}
        return [fixed], fixed
    lists = {d: SIZES.get(name, {}).get(d, USUAL_SIZES) for d in names}
    runs = max(len(values) for values in lists.values())
    sizes = [{d: values[k % len(values)] for d, values in lists.items()} for k in range(runs)]
    ranges = {
        d: f"{min(values)}..{max(values)}" if len(values) > 1 else values[0]
        for d, values in lists.items()
    }
    return sizes, ranges


def run_model(entry, options):
    """One model from its file to the comparison. Returns (what happened, the rest of its line)."""
    name = entry["name"]
    path = options.dir / entry["file"]
    out = options.out / (options.target + ("-dynamic" if options.dynamic else "")) / name
    out.mkdir(parents=True, exist_ok=True)
    model = onnx.load(path)
    inputs = open_inputs(model)
    names = list(dict.fromkeys(d for _, _, shape in inputs for d in shape if isinstance(d, str)))
    if options.dynamic and not names:
        return "static", ""
    sizes, ranges = run_sizes(name, names, options.dynamic)
    dims = None
    try:
        library = out / "model.so"
        compiling = compile_model(path, library, ranges, [], options)
        outputs = [value.name for value in model.graph.output]
        worst = running = 0.0
        for dims in sizes:
            arrays = make_inputs(name, inputs, dims, options.dir / "data" / name)
            got, seconds = run_library(library, arrays, outputs, [], options)
            wanted, oracle = expected_outputs(path, model, arrays)
            shares = [check_output(model, *pair, got[pair[0]]) for pair in zip(outputs, wanted)]
            worst = max(worst, *shares)
            running += seconds
        calls = ""
        if name in STATES and not options.dynamic:
            share = run_states(name, path, model, inputs, dims, arrays, options)
            calls = f", {share:.2f} in {CALLS} calls with states"
    except Skip as reason:
        return "unsupported", str(reason)
    except Failure as reason:
        where = f"with {dims}: " if options.dynamic and dims else ""
        return "failed", where + str(reason)
    note = "" if oracle == "onnxruntime" else f", against the {oracle}"
    if options.dynamic:
        note += "; " + " ".join(f"{dim}={value}" for dim, value in ranges.items())
    return "passed", f"{worst:.2f} of what is allowed, {compiling:.1f} s + {running:.1f} s{note}{calls}"


def main():
    parser = argparse.ArgumentParser(prog="scripts/models", description=__doc__.split("\n\n")[0])
    parser.add_argument("--target", "-t", choices=sorted(TARGET_OPTIONS), required=True)
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="models with open dimensions, compiled for ranges of them, at several sizes",
    )
    parser.add_argument("--filter", default="*", help="which models: a pattern for their names")
    parser.add_argument("--jobs", type=int, default=2, help="models at a time (2)")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for each step (120)")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT.parent / "shared" / "models")
    parser.add_argument("--march", help="the architecture that mlcc compiles for")
    parser.add_argument("--mlcc", type=pathlib.Path, default=ROOT / "build" / "mlcc")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "models")
    options = parser.parse_args()
    index = options.dir / "index.json"
    if not index.exists():
        print(f"models: skipped, there is no {os.path.relpath(index)}: name a folder with --dir")
        print(f"models {options.target}: 0/0 passed")
        return 0
    if not options.mlcc.exists():
        print(f"models: there is no {os.path.relpath(options.mlcc)}: run make", file=sys.stderr)
        return 3
    entries = json.loads(index.read_text())
    entries = [e for e in entries if fnmatch.fnmatch(e["name"], options.filter)]
    counts = {"passed": 0, "unsupported": 0, "failed": 0, "static": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for entry, (result, text) in zip(
            entries, pool.map(lambda entry: run_model(entry, options), entries)
        ):
            counts[result] += 1
            if result == "static":
                continue
            print(f"{result:11} {entry['name']:22} {text}", flush=True)
    print(f"{counts['unsupported']} unsupported, {counts['failed']} failed")
    print(f"models {options.target}: {counts['passed']}/{len(entries) - counts['static']} passed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
