"""The work of scripts/check-size; see there."""

import argparse
import ctypes
import os
import pathlib
import re
import sys
import time

import numpy as np
import onnx

import export_mobilenetv2
import models

ROOT = models.ROOT
LIMITS = {"mlcc": (1.0, None), "gcc": (30.0, 2000.0)}  # seconds, MB


def measured(command):
    """Runs a command; returns its exit status, the seconds of processor time it took, its children
    included, and the most MB that one of its processes held."""
    pid = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss / 1000


def aligned(size, alignment=64):
    """`size` bytes of memory at a multiple of `alignment`."""
    space = np.zeros(size + alignment, np.uint8)
    skip = -space.ctypes.data % alignment
    return space[skip : skip + size]


def main():
    parser = argparse.ArgumentParser(prog="scripts/check-size")
    parser.add_argument("--mlcc", type=pathlib.Path, default=ROOT / "build" / "mlcc")
    mlcc = parser.parse_args().mlcc
    out = ROOT / "build" / "size"
    out.mkdir(parents=True, exist_ok=True)
    model = export_mobilenetv2.mobilenet_v2()
    onnx.save(model, out / "mobilenetv2.onnx")

    problems = []
    source, library = str(out / "mobilenetv2.c"), str(out / "mobilenetv2.so")
    commands = {
        "mlcc": [str(mlcc), str(out / "mobilenetv2.onnx"), "-t", "c", "-o", source],
        "gcc": ["gcc", "-std=c99", "-O2", "-shared", "-fPIC", source, "-o", library, "-lm"],
    }
    for tool, command in commands.items():
        status, seconds, megabytes = measured(command)
        print(f"{tool}: {seconds:.2f} s, {megabytes:.0f} MB")
        if status != 0:
            print(f"check-size: {tool} ended with {status}")
            return 1
        most_seconds, most_megabytes = LIMITS[tool]
        if seconds >= most_seconds:
            problems.append(f"{tool} took {seconds:.2f} s, the limit is {most_seconds:g} s")
        if most_megabytes and megabytes >= most_megabytes:
            problems.append(f"{tool} took {megabytes:.0f} MB, the limit is {most_megabytes:g} MB")

    header = (out / "mobilenetv2.h").read_text()
    arena = aligned(int(re.search(r"#define MOBILENETV2_ARENA_BYTES (\d+)", header)[1]))
    image = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    scores = np.zeros((1, 1000), np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (image, scores, arena)]
    start = time.monotonic()
    status = ctypes.CDLL(library).mobilenetv2_run(*pointers)
    print(f"one image: {(time.monotonic() - start) * 1000:.0f} ms, arena {arena.size} bytes")
    (want,), _ = models.expected_outputs(out / "mobilenetv2.onnx", model, {"input": image})
    share = models.compare("output", want, scores, 0)
    print(f"largest difference from ONNX Runtime: {share:.2f} of what is allowed")
    if status != 0:
        problems.append(f"mobilenetv2_run returned {status}")
    if share > 1:
        problems.append("the result differs from ONNX Runtime's")

    for problem in problems:
        print("check-size: " + problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
