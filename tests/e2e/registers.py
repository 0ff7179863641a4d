"""Sums stay in registers in the loop over a product's depth, whatever is done to them behind it:
prints what of such loops in a disassembly uses vectors on the stack, and fails if there is any, or
no such loop for a product. Where vectors have 64 bytes nothing outside of the loops does either."""

import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper
from tiles import constant, save

ENOUGH = 10  # multiply-adds of a loop that is one over a depth


def make_model(folder, name, shape, layers):
    """Layers add nodes and weights behind the input's name, and give the output's."""
    nodes, weights, value = [], [], "x"
    for i, layer in enumerate(layers):
        value = layer(nodes, weights, value, f"v{i}")
    inputs = [("x", TensorProto.FLOAT, shape)]
    outputs = [(value, TensorProto.FLOAT, [None] * len(shape))]
    save(folder, name, nodes, inputs, outputs, weights, opset=20)


def product_of(layer):
    layer.is_product = True
    return layer


def conv(to, depth, window, stride=1, group=1):
    def add(nodes, weights, value, name):
        w = np.full((to, depth, window, window), 0.01, np.float32)
        weights.append(constant(name + "w", w))
        weights.append(constant(name + "b", w[:, 0, 0, 0]))
        operands = [value, name + "w", name + "b"]
        attributes = {"group": group, "pads": [window // 2] * 4, "strides": [stride] * 2}
        nodes.append(helper.make_node("Conv", operands, [name], **attributes))
        return name

    return add if depth == 1 else product_of(add)


def matmul(depth, to):
    def add(nodes, weights, value, name):
        weights.append(constant(name + "w", np.full((depth, to), 0.01, np.float32)))
        nodes.append(helper.make_node("MatMul", [value, name + "w"], [name]))
        return name

    return product_of(add)


def unary(op):
    def add(nodes, weights, value, name):
        nodes.append(helper.make_node(op, [value], [name]))
        return name

    return add


def times(number):
    def add(nodes, weights, value, name):
        weights.append(constant(name + "n", np.float32(number)))
        nodes.append(helper.make_node("Mul", [value, name + "n"], [name]))
        return name

    return add


def silu(nodes, weights, value, name):
    nodes.append(helper.make_node("Sigmoid", [value], [name + "s"]))
    nodes.append(helper.make_node("Mul", [value, name + "s"], [name]))
    return name


MODELS = {
    "relu": (
        "x86-64-v4",
        [1, 728, 38, 38],
        [conv(728, 1, 3, group=728), unary("Relu"), conv(728, 728, 1), unary("Relu")]
        + [conv(728, 1, 3, group=728), unary("Relu")],
    ),
    "gelu": ("x86-64-v3", [128, 768], [matmul(768, 3072), unary("Gelu")]),
    "scaled": (
        "x86-64-v3",
        [196, 1536],
        [matmul(1536, 384), times(0.001), unary("HardSwish"), matmul(384, 384), times(0.001)],
    ),
    "silu": ("x86-64-v3", [1, 64, 40, 40], [conv(64, 64, 1), silu, conv(128, 64, 3, 2), silu]),
    "padded": (
        "x86-64-v3",
        [1, 16, 112, 112],
        [conv(48, 16, 1), unary("Relu"), conv(48, 1, 3, 2, 48), unary("Relu"), conv(24, 48, 1)],
    ),
    "stem": ("x86-64-v3", [1, 3, 96, 96], [conv(32, 3, 3, 2), unary("Relu")]),
    "arm": ("armv8-a", [1, 144, 28, 28], [conv(32, 144, 1), conv(192, 32, 1), unary("Relu")]),
}

# What a jump looks like, a multiply-add, a vector that is stored elsewhere than on the stack, and one
# that is there.
X86 = (
    r"j\w+\s+([0-9a-f]+)",
    "vfmadd",
    r"vmov\w+\s+%[yz]mm\d+,(?!.*\(%r[sb]p\))(?!%)",
    r"[yz]mm.*\(%r[sb]p\)|\(%r[sb]p\).*[yz]mm",
)
ARM = (r"b\.\w+\s+([0-9a-f]+)", "fmla", r"st[rp]\s+q\d+.*\[(?!sp)", r"\bq\d+.*\[sp")
CROSS = "aarch64-linux-gnu-"


def innermost_loops(function, jumps):
    """Lists of instructions."""
    lines = [re.match(r"\s*([0-9a-f]+):\s+(.*)", line) for line in function.split("\n")]
    lines = [(int(m[1], 16), m[2]) for m in lines if m]
    index = {address: i for i, (address, _) in enumerate(lines)}
    loops = []
    for i, (address, text) in enumerate(lines):
        jump = re.match(jumps, text)
        to = int(jump[1], 16) if jump else address + 1
        if to <= address and to in index:
            loops.append((index[to], i))
    for begin, end in loops:
        if not any((b, e) != (begin, end) and b >= begin and e <= end for b, e in loops):
            yield [text for _, text in lines[begin : end + 1]]


def disassembly(mlcc, path, arch):
    library, prefix = path.with_suffix(".so"), ""
    flags = ["-march=" + arch]
    if arch.startswith("arm"):
        prefix, text = CROSS, path.with_suffix(".c")
        subprocess.run([mlcc, path, *flags, "-o", text], check=True)
        flags += ["-O3", "-fPIC", "-shared", "-w", text, "-o", library]
        subprocess.run([prefix + "gcc", *flags], check=True)
    else:
        subprocess.run([mlcc, path, *flags, "-o", library], check=True)
    return subprocess.run(
        [prefix + "objdump", "-d", "--no-show-raw-insn", library],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def main(mlcc, folder):
    wrong = []
    for name, (arch, shape, layers) in MODELS.items():
        if arch.startswith("arm") and not shutil.which(CROSS + "gcc"):
            print(f"registers: no {CROSS}gcc (scripts/setup arm64 installs it): passed over")
            continue
        jumps, add, stores, on_stack = ARM if arch.startswith("arm") else X86
        make_model(folder, name, shape, layers)
        text = disassembly(mlcc, folder / f"{name}.onnx", arch)
        if arch == "x86-64-v4":
            add += ".*zmm"
            wrong += [f"{name}: {line}" for line in text.split("\n") if re.search(on_stack, line)]
        found = 0
        for function in text.split("\n\n"):
            for loop in innermost_loops(function, jumps):
                sums = sum(bool(re.search(add, line)) for line in loop)
                if sums < ENOUGH or any(re.search(stores, line) for line in loop):
                    continue  # no loop over a depth: it has results
                found += 1
                spilled = [line for line in loop if re.search(on_stack, line)]
                wrong += [f"{name}: {function.strip().splitlines()[0]}: {t}" for t in spilled]
        products = sum(hasattr(layer, "is_product") for layer in layers)
        if found < products:
            wrong.append(f"{name}: {found} loops over a depth, of {products} products")
    sys.exit("\n".join(wrong) or 0)


main(sys.argv[1], pathlib.Path(sys.argv[2]))
