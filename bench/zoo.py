"""The models that are measured, by name: how each file is made, its inputs, what should come out.

Files lie in build/bench-models and are made when missing or older than the code that makes them.
"""

import functools
import pathlib
import zlib

import numpy as np
import onnx

import export_mobilenetv2
import models
from bench import bert, builder, gemm, language, ops, quantise, resnet50, tiny, vae, vit

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ROOT / "build" / "bench-models"
SHARED = ROOT.parent / "shared" / "models"

# What is written by code: the architecture, with weights from a fixed seed.
BUILT = {
    "mobilenetv2": export_mobilenetv2.mobilenet_v2,
    "resnet50": resnet50.build,
    "bert_base": bert.build,
    "vit_b16": vit.build,
    "vae_decoder": vae.build,
}
TINY = tiny.MODELS  # for microcontrollers
INT8 = {name + "_int8": name for name in ("mobilenetv2", "resnet50", "bert_base")}
# What comes from the folder of models: precision of its weights by name.
FOUND = {
    "yolox_nano_416": "fp32",
    "ppocr_v3_det_en": "fp32",
    "gtcrn_stream_simple": "fp32",
    "silero_vad_v5": "fp32",
    "cct2_32": "fp32",
    "basic_pitch_nmp": "fp32",
    "mobilenetv2_qdq": "int8",
}
# Files that the command line names: their folders, and sizes of open dimensions by name.
PLACES = {}
SIZES = {}
# ONNX Runtime refuses this one once its dimensions are fixed: its branches contradict each other
# then. It stays as it is.
OPEN = ("silero_vad_v5",)
GEMMS = {"gemm_" + "x".join(map(str, size)): size for size in gemm.SIZES}
OPS = {"op_" + name: op for name, op in ops.OPS.items()}

GROUPS = {
    "built": list(BUILT),
    "int8": [*INT8, "mobilenetv2_qdq"],
    "found": list(FOUND),
    "gemm": list(GEMMS),
    "ops": list(OPS),
    "tiny": list(TINY),
    "language": list(language.TASKS),
}
DEFAULT = [*BUILT, *INT8, *FOUND]
NAMES = [*DEFAULT, *GEMMS, *OPS, *TINY, *language.TASKS]


def take(path):
    """Makes a model of any file; its name, or None if a model has that: its file would be taken
    for this one."""
    if path.stem in NAMES:
        return None
    operators = {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}
    quantised = any(op.startswith("QLinear") or op == "DequantizeLinear" for op in operators)
    FOUND[path.stem] = "int8" if quantised else "fp32"
    PLACES[path.stem] = path.parent
    return path.stem


def quantised(name):
    """The int8 version of a model, made as those of the benchmark are; of one that is quantised,
    itself."""
    if name in INT8 or FOUND.get(name) == "int8":
        return name
    INT8[name + "_int8"] = name
    return name + "_int8"


def precisions(name):
    """In which a model can be run: one that is quantised only as it is."""
    quantised_one = name in INT8 or name in language.TASKS or FOUND.get(name) == "int8"
    return ("int8",) if quantised_one else ("fp32", "bf16")


def kind(name):
    """What its ratio is averaged with: "gemm", "ops", "language", or "" for other whole models."""
    groups = {"gemm": GEMMS, "ops": OPS, "language": language.TASKS}
    return next((group for group, names in groups.items() if name in names), "")


def gemm_operations(name):
    """Floating-point operations of a product; None for other models."""
    return 2 * int(np.prod(GEMMS[name])) if name in GEMMS else None


# ---- files ------------------------------------------------------------------------------------


def newer(target, sources):
    """Is `target` there, and no older than what it is made from?"""
    return target.exists() and all(
        target.stat().st_mtime_ns >= source.stat().st_mtime_ns for source in sources
    )


def dimensions(name, opened):
    """Sizes of the open dimensions by name; `opened` as models.open_inputs returns it."""
    dims = {d: 1 for _, _, shape in opened for d in shape if not isinstance(d, int)}
    return dims | models.DIMENSIONS.get(name, {}) | SIZES


def fixed(path, name):
    """A model of the folder with its open dimensions fixed, so that no runtime has to guess."""
    model = onnx.load(path)
    if name in OPEN:
        return model
    opened = models.open_inputs(model)
    dims = dimensions(name, opened)
    shapes = {input_name: shape for input_name, _, shape in opened}
    for value in model.graph.input:
        if value.name in shapes:
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes[value.name]):
                dim.dim_value = size if isinstance(size, int) else dims[size]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def builder_of(name):
    if name in OPS:
        return OPS[name].build
    if name in language.TASKS:
        return language.build
    return BUILT.get(name) or TINY.get(name) or functools.partial(gemm.build, *GEMMS[name])


def file(name, folder=SHARED):
    """The ONNX file of a model. Raises FileNotFoundError when the folder of models lacks it."""
    FILES.mkdir(parents=True, exist_ok=True)
    target = FILES / ((language.FILE if name in language.TASKS else name) + ".onnx")
    if name in FOUND:
        source = PLACES.get(name, folder) / (name + ".onnx")
        if name in PLACES or not newer(target, [source, pathlib.Path(__file__)]):
            builder.save(fixed(source, name), target)
    elif name in INT8:
        source = file(INT8[name], folder)
        if not newer(target, [source, pathlib.Path(quantise.__file__)]):
            samples = range(1, quantise.SAMPLES + 1)
            feeds = [inputs(INT8[name], folder, sample) for sample in samples]
            quantise.quantise(source, target, feeds)
    else:
        build = builder_of(name)
        code = getattr(build, "func", build).__code__.co_filename
        if not newer(target, [pathlib.Path(code), pathlib.Path(builder.__file__)]):
            builder.save(build(), target)
    return target


# ---- data -------------------------------------------------------------------------------------


def inputs(name, folder=SHARED, sample=0):
    """The inputs of a model by name, the same ones in every run; other ones for each `sample`."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), sample])
    base = INT8.get(name, name)
    if base == "bert_base":
        return bert.inputs(rng)
    if base in language.TASKS:
        return language.inputs(base, rng)
    opened = models.open_inputs(onnx.load(file(name, folder), load_external_data=False))
    if base in FOUND:
        return models.make_inputs(
            base, opened, dimensions(base, opened), folder / "data" / base
        )
    return {
        input_name: rng.standard_normal(shape).astype(dtype) for input_name, dtype, shape in opened
    }


def expected(name, folder=SHARED):
    """What should come out, as ONNX Runtime computes it without its own optimisations. Kept
    beside the model: the large ones take minutes."""
    path = file(name, folder)
    kept = FILES / (name + ".expected.npz")
    if not newer(kept, [path, pathlib.Path(__file__)]):
        outputs, _ = models.expected_outputs(path, None, inputs(name, folder))
        if name in language.TASKS:
            outputs = outputs[:1]  # the caches are nobody's who keeps them
        np.savez(kept, *outputs)
    with np.load(kept) as arrays:
        return [arrays[f"arr_{i}"] for i in range(len(arrays))]
