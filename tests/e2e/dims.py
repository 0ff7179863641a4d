"""Models whose dimensions vary, against the same models with fixed ones: dims.py MLCC SUITE GLOB...

Of every model of the suite (scripts/vary-onnx-tests) whose name fits: the interpreter runs it for some
extents, once told that they may be anything in their ranges, and once told just them; so does a library
with vectors that was made for the ranges. Outputs must have the same shapes and numbers. Extents that the
model itself refuses when they are fixed do not count.
"""
import fnmatch
import glob
import os
import random
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import numpy_helper

TYPES = {1: "f4", 2: "u1", 3: "i1", 4: "u2", 5: "i2", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8",
         12: "u4", 13: "u8"}


def options(dims):
    return [word for d in dims for word in ("--dim", d)]


def run(mlcc, model, dims, inputs, work):
    """What the outputs are, by name; None if mlcc refuses."""
    out = tempfile.mkdtemp(dir=work)
    command = [mlcc, "run", model, "--output", out, *options(dims)]
    command += [word for i in inputs.items() for word in ("--input", "=".join(i))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return None, done.stderr
    return {name: numpy.load(f"{out}/{name}") for name in os.listdir(out)}, ""


def make_inputs(model, folder, extents, generator, work):
    """Files of tensors of these extents, their elements drawn from those of the test."""
    initialized = {t.name for t in model.graph.initializer}
    infos = [i for i in model.graph.input if i.name not in initialized]
    inputs = {}
    for k, info in enumerate(infos):
        tensor = info.type.tensor_type
        path = f"{folder}/test_data_set_0/input_{k}.pb"
        if not info.type.HasField("tensor_type") or tensor.elem_type not in TYPES:
            return None
        with open(path, "rb") as file:
            data = numpy_helper.to_array(onnx.TensorProto.FromString(file.read())).reshape(-1)
        shape = [extents[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        count = int(numpy.prod(shape)) if data.size else 0
        value = generator.choice(data, count).reshape(shape) if data.size else data.reshape(shape)
        inputs[info.name] = f"{work}/{k}.npy"
        numpy.save(inputs[info.name], value.astype(TYPES[tensor.elem_type]))
    return inputs


def difference(fixed, varying, step):
    """`step`: how far quantised bytes may be apart, where ties may be rounded either way."""
    if fixed.keys() != varying.keys():
        return f"outputs {sorted(fixed)} and {sorted(varying)}"
    for name, want in fixed.items():
        got = varying[name]
        if want.shape != got.shape:
            return f"{name} has shape {got.shape}, not {want.shape}"
        if want.dtype in ("u1", "i1"):
            same = abs(want.astype("i4") - got.astype("i4")).max(initial=0) <= step
        elif want.dtype.kind != "f":
            same = numpy.array_equal(want, got)
        else:
            a, b = want.astype("f8"), got.astype("f8")
            # sums of tiles (Winograd) err by 1e-6 to 3e-6 of what is largest, whatever they come to
            largest = abs(a[numpy.isfinite(a)]).max(initial=0)
            same = numpy.allclose(a, b, rtol=2e-3, atol=max(1e-5, 4e-6 * largest), equal_nan=True)
        if not same:
            return f"{name} differs"
    return None


def check(mlcc, folder, work):
    """(compared, failed)"""
    model = onnx.load(f"{folder}/model.onnx")
    with open(f"{folder}/dims", encoding="utf-8") as file:
        dims = file.read().split()
    ends = {d.split("=")[0]: d.split("=")[1].split("..") for d in dims}
    low, high = ({n: int(e[k]) for n, e in ends.items()} for k in range(2))
    draw = random.Random(os.path.basename(folder))
    generator = numpy.random.default_rng(draw.getrandbits(32))
    path, library = f"{folder}/model.onnx", f"{work}/model.so"
    subprocess.run([mlcc, path, "-march=native", "-O", "0", "-o", library, *options(dims)], check=True,
                   stderr=subprocess.DEVNULL)
    compared = failed = 0
    for extents in (high, {n: max(low[n], h // 2 - 1) for n, h in high.items()},
                    {n: draw.randint(low[n], h) for n, h in high.items()}):
        inputs = make_inputs(model, folder, extents, generator, work)
        if inputs is None:
            continue
        fixed, _ = run(mlcc, path, [f"{n}={e}" for n, e in extents.items()], inputs, work)
        if fixed is None:
            continue
        for what, given, step in ((path, dims, 0), (library, [], 1)):
            varying, message = run(mlcc, what, given, inputs, work)
            message = message if varying is None else difference(fixed, varying, step)
            compared += 1
            if message:
                failed += 1
                print(f"FAILED {folder} by {os.path.basename(what)} {extents}: {message.strip()}")
    return compared, failed


def main():
    mlcc, suite, *patterns = sys.argv[1:]
    compared = failed = 0
    for folder in sorted(glob.glob(f"{suite}/*/*")):
        if not any(fnmatch.fnmatch(os.path.basename(folder), p) for p in patterns):
            continue
        with tempfile.TemporaryDirectory() as work:
            more, wrong = check(mlcc, folder, work)
        compared += more
        failed += wrong
    print(f"{compared} runs compared, {failed} failed")
    sys.exit(failed > 0 or not compared)


main()
