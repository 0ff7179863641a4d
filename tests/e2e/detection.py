"""TopK and NonMaxSuppression of many elements beside ONNX Runtime: detection.py MLCC FOLDER"""

import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from tiles import constant, rng, save

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def largest(folder, dtype, shape, k, **attributes):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    name = f"largest_{dtype}_{'x'.join(map(str, shape))}_{k}"
    node = helper.make_node("TopK", ["x", "k"], ["y", "at"], **attributes)
    result = list(shape)
    result[attributes.get("axis", -1)] = k
    outputs = [("y", kind, result), ("at", I64, result)]
    save(folder, name, [node], [("x", kind, shape)], outputs, [constant("k", np.array([k]))])
    numbers = rng.integers(-400, 400, shape)  # some are equal
    return name, {"x": numbers.astype(dtype)}


def varying_largest(folder):
    """All of as many as a run gives, sorted: no loop goes farther (detection.sh)."""
    name = "varying_largest"
    nodes = [
        helper.make_node("Shape", ["x"], ["k"], start=1, end=2),
        helper.make_node("TopK", ["x", "k"], ["y", "at"]),
    ]
    outputs = [("y", F, [2, "n"]), ("at", I64, [2, "n"])]
    save(folder, name, nodes, [("x", F, [2, "n"])], outputs, [])
    return name, {"x": rng.integers(0, 300, (2, 900)).astype(np.float32)}, "--dim", "n=1..1500"


def boxes_of(shape, centred):
    """Corners on a coarse grid, so that shares are often the limit itself, in any order; some boxes
    are empty."""
    first = rng.integers(0, 60, (*shape, 2))
    second = rng.integers(0, 12, (*shape, 2))
    if not centred:
        second = np.where(rng.random((*shape, 2)) < 0.9, first + second, first - second)
    return np.concatenate([first, second], axis=-1).astype(np.float32)


def suppression(folder, batches, classes, boxes, most, share, least=None, centred=0):
    name = f"boxes_{batches}x{classes}x{boxes}_{most}_{share}_{least}_{centred}"
    numbers = [np.array([most]), np.float32([share])] + ([] if least is None else [np.float32([least])])
    names = ["most", "share", "least"][: len(numbers)]
    node = helper.make_node(
        "NonMaxSuppression", ["boxes", "scores", *names], ["y"], center_point_box=centred
    )
    inputs = [("boxes", F, [batches, boxes, 4]), ("scores", F, [batches, classes, boxes])]
    constants = [constant(n, v) for n, v in zip(names, numbers, strict=True)]
    save(folder, name, [node], inputs, [("y", I64, [None, 3])], constants)
    scores = rng.integers(0, 200, (batches, classes, boxes)) / np.float32(200)
    given = {"boxes": boxes_of((batches, boxes), centred), "scores": scores.astype(np.float32)}
    return name, given


def varying_suppression(folder, classes, boxes, most, share, least):
    """Of as many boxes as a run gives, with limits that it gives."""
    name = f"varying_{classes}x{boxes}_{most}_{share}_{least}"
    names = ["boxes", "scores", "most", "share", "least"]
    node = helper.make_node("NonMaxSuppression", names, ["y"])
    inputs = [("boxes", F, [1, "n", 4]), ("scores", F, [1, classes, "n"])]
    inputs += [("most", I64, [1]), ("share", F, [1]), ("least", F, [1])]
    save(folder, name, [node], inputs, [("y", I64, [None, 3])], [])
    scores = rng.integers(0, 200, (1, classes, boxes)) / np.float32(200)
    limits = [np.array([most]), np.float32([share]), np.float32([least])]
    given = [boxes_of((1, boxes), 0), scores.astype(np.float32), *limits]
    return name, dict(zip(names, given, strict=True)), "--dim", "n=1..1500"


def check(mlcc, folder, march, name, given, *options):
    library, out = folder / "model.so", folder / "out"
    model = folder / f"{name}.onnx"
    session = onnxruntime.InferenceSession(model)
    want = session.run(None, given)
    subprocess.run([mlcc, model, f"-march={march}", *options, "-o", library], check=True)
    command = [mlcc, "run", library, "--output", out]
    for key, value in given.items():
        np.save(folder / f"{key}.npy", value)
        command += ["--input", f"{key}={folder / f'{key}.npy'}"]
    subprocess.run(command, check=True)
    for output, expected in zip(session.get_outputs(), want, strict=True):
        got = np.load(out / f"{output.name}.npy")
        if got.shape != expected.shape or (got != expected).any():
            sys.exit(f"{name}, -march={march}: {output.name}: {got.shape}, not {expected.shape}, or others")


def main():
    mlcc, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    cases = [
        largest(folder, "float32", (2, 1500), 1500),
        largest(folder, "float32", (3000,), 800),  # the last one is looked for, then these are sorted
        largest(folder, "float32", (900, 3), 700, axis=0, largest=0),
        largest(folder, "float64", (2, 900), 900, largest=0),
        largest(folder, "int64", (1000,), 1000),
        largest(folder, "int32", (2, 3, 1024), 1024),
        varying_largest(folder),
        suppression(folder, 1, 1, 3000, 2**31 - 1, 0.5),
        suppression(folder, 1, 1, 1200, 40, 0.25, 0.1),
        suppression(folder, 2, 7, 700, 30, 0.5, 0.8),
        suppression(folder, 1, 3, 600, 600, 0.75, 0.05, centred=1),
        suppression(folder, 2, 2, 40, 9, 0.0, 0.5),
        suppression(folder, 1, 2, 500, 500, 1.0),
        suppression(folder, 1, 2, 400, 20, 0.5),  # the best one is looked for each time
        varying_suppression(folder, 1, 1300, 5000, 0.5, 0.25),
        varying_suppression(folder, 3, 1, 7, 0.5, 0.0),
        varying_suppression(folder, 3, 800, 50, 0.125, 0.75),
    ]
    for march in ("native", "generic"):
        for case in cases:
            check(mlcc, folder, march, *case)


main()
