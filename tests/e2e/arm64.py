"""The models of a folder, compiled for 64-bit Arm and run in an emulator, beside the interpreter.

    arm64.py MLCC FOLDER
"""

import pathlib
import sys

import onnx

from bench import cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMBED = ROOT / "examples" / "embed"
ARCHS = ("armv8-a", "armv8.2-a+dotprod+fp16")
ALLOWED = 0.01  # two steps of an encoding


def error_of(mlcc, path, arch, work):
    gcc = ["aarch64-linux-gnu-gcc", "-O2", "-march=" + arch, "-ffp-contract=fast", "-w"]
    feeds = cases.random_inputs(onnx.load(path), 1)
    wanted = cases.interpreted(mlcc, path, feeds, work)
    cases.call([mlcc, path, "-t", "c", "-march=" + arch, "-o", work / "model.c"])
    text = cases.case_text(feeds, wanted, "model_run(%s, arena)", cases.ARENA)
    (work / "case.h").write_text(text)
    sources = [ROOT / "bench" / "case.c", EMBED / "board_host.c", work / "model.c"]
    cases.call([*gcc, f"-I{EMBED}", f"-I{work}", *sources, "-static", "-lm", "-o", work / "run"])
    return int(cases.call(["qemu-aarch64", "-cpu", "max", work / "run"]).split()[-1]) / 1e6


def main():
    mlcc, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for path in sorted(folder.glob("*.onnx")):
        for arch in ARCHS:
            work = folder / f"{path.stem}-{arch}"
            work.mkdir()
            error = error_of(mlcc, path, arch, work)
            print(f"{path.stem}, {arch}: relative to scale {error:g}")
            if error > ALLOWED:
                sys.exit(1)


if __name__ == "__main__":
    main()
