"""What mlcc generates beside emx-onnx-cgen's C on an emulated Cortex-M: instructions of a run, RAM
and flash. QEMU counts instructions, not cycles; it does so alike in every run, on any machine.

    scripts/bench mcu [--models NAME|FILE.onnx,...] [--cores m4,m3] [--peers mlcc,emx]
                      [--output FILE]

Both are compiled by the same compiler with the same flags. RAM is what the model takes besides its
inputs and outputs: static arrays, mlcc's arena, and the stack as it is after a run. Results are
compared with mlcc's interpreter. A model with open dimensions, or with other types than numbers, is
not for this.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import onnx

from bench import calibrate, zoo
from bench.cases import ARENA, Failed, call, case_text, interpreted, random_inputs

ROOT = zoo.ROOT
RESULTS = ROOT / "bench" / "results"
EMBED = ROOT / "examples" / "embed"
CORES = {  # -march for mlcc, flags for GCC, QEMU's board
    "m4": ("cortex-m4", "-mcpu=cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard", "mps2-an386"),
    "m3": ("cortex-m3", "-mcpu=cortex-m3", "mps2-an385"),
}
FLAGS = "-mthumb -O2 -ffp-contract=fast -fno-math-errno"
ALLOWED = {"fp32": 1e-3, "int8": 0.01}  # of an output's scale: two steps of an encoding


# ---- models -----------------------------------------------------------------------------------


def model_files(name):
    """(precision, path) of what the name stands for, made if need be."""
    if name in zoo.TINY:
        return [("fp32", zoo.file(name)), ("int8", zoo.file(zoo.quantised(name)))]
    path = pathlib.Path(name)
    if not path.exists() or not zoo.take(path):
        sys.exit(f"bench: no model {name}, or another one has its name")
    return [(zoo.FOUND[path.stem], path)]


# ---- one program ------------------------------------------------------------------------------


def generate(peer, path, core, options, work):
    """Writes model.c; returns how it is called and what has to be declared for that."""
    if peer == "mlcc":
        call([options.mlcc, path, "-t", "c", "-march=" + CORES[core][0], "-o", work / "model.c"])
        return "model_run(%s, arena)", ARENA
    # everything in memory that is known before: weights in the text, temporaries on the stack
    call([sys.executable, "-m", "emx_onnx_cgen", "compile", "--large-weight-threshold", "0",
          "--large-temp-threshold", "0", path, work / "model.c"])  # fmt: skip
    return "(model(%s), 0)", "void model();\n"


def measure(peer, path, precision, core, options):
    """What the model takes on the core; raises Failed."""
    _, flags, board = CORES[core]
    gcc = ["arm-none-eabi-gcc", *flags.split(), *FLAGS.split(), "-w"]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        feeds = random_inputs(onnx.load(path), 1)
        wanted = interpreted(options.mlcc, path, feeds, work)
        run, declared = generate(peer, path, core, options, work)
        (work / "case.h").write_text(case_text(feeds, wanted, run, declared))
        call([*gcc, "-c", work / "model.c", "-o", work / "model.o"])
        call(
            [*gcc, f"-I{EMBED}", f"-I{work}", "--specs=nano.specs", "-nostartfiles", "-T",
             EMBED / "mps2.ld", "-Wl,--defsym=flash_bytes=4M", "-Wl,--defsym=ram_bytes=4M",
             ROOT / "bench" / "case.c", EMBED / "board_mps2.c",
             work / "model.o", "-lm", "-o", work / "run.elf"]
        )  # fmt: skip
        sizes = call(["arm-none-eabi-size", work / "model.o"]).splitlines()[1].split()
        text = call(
            ["qemu-system-arm", "-M", board, "-nographic", "-monitor", "none", "-serial", "none",
             "-semihosting-config", "enable=on,target=native", "-icount", "shift=6",
             "-kernel", work / "run.elf"], stdin=subprocess.DEVNULL, timeout=600
        )  # fmt: skip
        found = dict(re.findall(r"^(stack|instructions|error) (\d+)$", text, re.M))
        if "error" not in found:
            raise Failed(f"qemu-system-arm: {text.strip() or 'no output'}")
        header = (work / "model.h").read_text() if peer == "mlcc" else ""
        arena = re.search(r"MODEL_ARENA_BYTES (\d+)", header)
    text_bytes, data_bytes, bss_bytes = map(int, sizes[:3])
    result = {
        "instructions": int(found["instructions"]),
        "flash_bytes": text_bytes + data_bytes,
        "ram_bytes": data_bytes + bss_bytes + int(found["stack"]) + int(arena[1] if arena else 0),
        "error": int(found["error"]) / 1e6,
    }
    if result["error"] > ALLOWED[precision]:
        result["wrong"] = True
    return result


# ---- the whole run ----------------------------------------------------------------------------


def multiply_adds(mlcc, path):
    found = re.search(r"multiply-adds: (\d+)", call([mlcc, "inspect", path]))
    return int(found[1]) if found else None


def line_of(row):
    cells = [f"{row['model']:16} {row['precision']:5} {row['core']:3}"]
    for result in row["peers"].values():
        if "refused" in result:
            cells.append(f"{'-':>8} {'':>7} {'':>7}")
        else:
            cells.append(
                f"{result['instructions'] / 1e6:8.2f} {result['ram_bytes'] / 1024:7.1f}"
                f" {result['flash_bytes'] / 1024:7.1f}{'  WRONG' if 'wrong' in result else ''}"
            )
    return "  ".join(cells)


def names(text):
    return text.split(",")


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench mcu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", type=names, default=list(zoo.TINY))
    parser.add_argument("--cores", type=names, default=list(CORES))
    parser.add_argument("--peers", type=names, default=["mlcc", "emx"])
    parser.add_argument("--mlcc", type=pathlib.Path, default=ROOT / "build" / "mlcc")
    parser.add_argument("--output", type=pathlib.Path)
    return parser.parse_args()


def main():
    options = arguments()
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if not shutil.which(tool):
            sys.exit(f"bench: no {tool}: scripts/setup arm installs it")
    now = datetime.datetime.now(datetime.timezone.utc)
    report = {
        "commit": calibrate.commit(),
        "date": now.isoformat(timespec="seconds"),
        "versions": calibrate.versions(["emx-onnx-cgen"] if "emx" in options.peers else [])
        | {"arm-none-eabi-gcc": call(["arm-none-eabi-gcc", "--version"]).splitlines()[0]},
        "flags": FLAGS,
        "rows": [],
    }
    print("millions of instructions, KiB of RAM and of flash: " + ", ".join(options.peers))
    failed = False
    for name in options.models:
        for precision, path in model_files(name):
            for core in options.cores:
                row = {
                    "model": path.stem.removesuffix("_int8"),
                    "precision": precision,
                    "core": core,
                    "multiply_adds": multiply_adds(options.mlcc, path),
                    "peers": {},
                }
                for peer in options.peers:
                    try:
                        row["peers"][peer] = measure(peer, path, precision, core, options)
                    except (Failed, subprocess.TimeoutExpired) as reason:
                        row["peers"][peer] = {"refused": str(reason)}
                    failed |= peer == "mlcc" and not row["peers"][peer].get("instructions")
                    failed |= "wrong" in row["peers"][peer]
                report["rows"].append(row)
                print(line_of(row), flush=True)
    for row in report["rows"]:
        for peer, result in row["peers"].items():
            if "refused" in result:
                print(f"{row['model']}, {row['precision']}, {peer}: {result['refused']}")
    output = options.output or RESULTS / f"{now:%Y-%m-%d-%H%M}-{report['commit']}-mcu.json"
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {os.path.relpath(output)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
