"""A model as a C program that runs it once on a random input and compares the outputs with what
mlcc's interpreter gives: bench/case.c, and the arrays that are written here."""

import pathlib
import re
import subprocess

import numpy as np
import onnx

# what a program of mlcc's model declares for it
ARENA = '''#include "model.h"
#ifdef MODEL_ARENA_BYTES
static _Alignas(64) unsigned char arena[MODEL_ARENA_BYTES];
#else
static void *const arena = 0;
#endif
'''
TYPES = {"float32": "float", "float64": "double", "bool": "unsigned char"}


class Failed(Exception):
    """A peer cannot do the model; the text says why."""


def call(command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        told = [line for line in lines if "error" in line.lower() or "overflow" in line] or lines
        raise Failed(f"{pathlib.Path(str(command[0])).name}: {told[0]}")
    return done.stdout + done.stderr


def random_inputs(model, seed):
    rng = np.random.default_rng(seed)
    constants = {weight.name for weight in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.floating):
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[value.name] = rng.integers(0, 100, shape).astype(dtype)
    return feeds


def interpreted(mlcc, path, feeds, work):
    """The outputs, in the model's order."""
    words = [mlcc, "run", path, "--output", work / "wanted"]
    for i, (name, array) in enumerate(feeds.items()):
        np.save(work / f"in{i}.npy", array)
        words += ["--input", f"{name}={work / f'in{i}.npy'}"]
    call(words)
    names = [value.name for value in onnx.load(path).graph.output]
    files = {re.sub(r"\W", "_", f.stem): f for f in (work / "wanted").glob("*.npy")}
    return [np.load(files[re.sub(r"\W", "_", name)]) for name in names]


def c_array(name, array, const):
    """The array by its bytes, as words."""
    data = np.ascontiguousarray(array).tobytes()
    data += bytes(-len(data) % 8)
    words = ", ".join(str(word) + "u" for word in np.frombuffer(data, np.uint32))
    return f"static {'const ' if const else ''}_Alignas(8) unsigned {name}[] = {{{words}}};\n"


def case_text(feeds, wanted, run, declared):
    """case.h. run: the call, an int, with %s for the arrays; declared: what it needs before."""
    text = declared
    for i, array in enumerate(feeds.values()):
        text += c_array(f"in{i}", array, True)
    compared = ""
    for i, array in enumerate(wanted):
        text += c_array(f"wanted{i}", array, True)
        text += f"static _Alignas(8) unsigned out{i}[{(array.nbytes + 7) // 8 * 2}];\n"
        kind = TYPES.get(str(array.dtype)) or f"{array.dtype}_t"
        compared += f"COMPARE({kind}, out{i}, wanted{i}, {array.size}); "
    places = [f"(void *)in{i}" for i in range(len(feeds))] + [f"out{i}" for i in range(len(wanted))]
    return (
        f"#include <stdint.h>\n{text}"
        f"#define RUN {run % ', '.join(places)}\n"
        f"#define COMPARE_ALL {compared}\n"
    )


