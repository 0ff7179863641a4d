"""Random networks for images, of sizes at which strips, Winograd's method, wide tiles and the like
are chosen, beside ONNX Runtime: networks.py MLCC FOLDER [FIRST LAST]

Compiled for several architectures in turn, some by Clang; for one that this machine does not have
the C compiler only looks at the code."""

import pathlib
import platform
import random
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from tiles import constant, save

ARCHITECTURES = ["x86-64-v3", "native", "x86-64-v4", "x86-64-v3"]
COMPILERS = ["cc", "cc", "clang" if shutil.which("clang") else "cc"]
NEEDS = {"x86-64-v3": "avx2", "x86-64-v4": "avx512bw"}  # flags of a processor
STEP = 1 / 32  # of what is quantized
MOST_ELEMENTS = 400_000  # of a tensor
LEAST = 8  # lines and columns of an image of any size


class Network:
    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0
        self.quantized = self.draw.random() < 0.25
        self.varies = self.draw.random() < 0.3  # images have any size

    def node(self, op, inputs, **attributes):
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def const(self, array):
        self.count += 1
        self.weights.append(constant(f"c{self.count}", np.asarray(array)))
        return self.weights[-1].name

    def floats(self, *shape, scale=1.0):
        return self.const((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def rounded(self, x):
        """A tensor in bytes, and back."""
        scale, middle = self.const(np.float32(STEP)), self.const(np.uint8(128))
        x = self.node("QuantizeLinear", [x, scale, middle])
        return self.node("DequantizeLinear", [x, scale, middle])

    def weight(self, *shape):
        gain = 1 / np.prod(shape[1:]) ** 0.5
        if not self.quantized:
            return self.floats(*shape, scale=gain)
        octets = self.rng.integers(-127, 128, shape, np.int8)
        scales = self.const(np.full(shape[0], gain / 64, np.float32))
        zeros = self.const(np.zeros(shape[0], np.int8))
        return self.node("DequantizeLinear", [self.const(octets), scales, zeros], axis=0)

    def activated(self, x):
        kind = self.draw.choice(
            ["Relu"] * 2 + ["Clip", "Sigmoid", "HardSwish", "Silu", "Gelu", "LeakyRelu", "Tanh", ""]
        )
        if kind == "Silu":
            x = self.node("Mul", [x, self.node("Sigmoid", [x])])
        elif kind == "Clip":
            x = self.node("Clip", [x, self.const(np.float32(0)), self.const(np.float32(2))])
        elif kind:
            x = self.node(kind, [x])
        if self.draw.random() < 0.1:
            x = self.node("Mul", [x, self.const(np.float32(0.7))])
        return self.rounded(x) if self.quantized else x

    def conv(self, x, channels, to, window=1, stride=1, group=1):
        operands = [x, self.weight(to, channels // group, window, window)]
        if self.draw.random() < 0.8 and not self.quantized:
            operands.append(self.floats(to, scale=0.2))
        size = {"group": group, "strides": [stride] * 2, "pads": [window // 2] * 4}
        x = self.node("Conv", operands, **size)
        if self.draw.random() < 0.3 and not self.quantized:
            others = [self.floats(to, scale=0.2) for _ in range(3)]
            variance = self.const(self.rng.uniform(0.5, 2, to).astype(np.float32))
            x = self.node("BatchNormalization", [x, *others, variance])
        return x


def inverted(n, x, channels, size):
    """Expands, goes over windows, projects (MobileNetV2)."""
    middle = channels * n.draw.choice([2, 3, 4, 6])
    stride, to = n.draw.choice([1, 1, 1, 2]), n.draw.choice([channels, channels, 24, 40, 64])
    y = n.activated(n.conv(x, channels, middle))
    y = n.activated(n.conv(y, middle, middle, n.draw.choice([3, 3, 5, 7]), stride, middle))
    if n.draw.random() < 0.2:
        gate = n.conv(n.node("GlobalAveragePool", [y]), middle, 8)
        gate = n.node("Sigmoid", [n.conv(n.node("Relu", [gate]), 8, middle)])
        y = n.node("Mul", [y, gate])
    y = n.conv(y, middle, to)
    if stride == 1 and to == channels:
        y = n.node("Add", [x, y])
    return y, to, (size - 1) // stride + 1


def residual(n, x, channels, size):
    window, group = n.draw.choice([3, 3, 3, 5]), n.draw.choice([1, 1, 1, 4])
    y = n.conv(n.activated(n.conv(x, channels, channels, window, 1, group)), channels, channels, 3)
    return n.activated(n.node("Add", [y, x])), channels, size


def plain(n, x, channels, size):
    to, stride = n.draw.choice([16, 32, 48, 64, 96]), n.draw.choice([1, 1, 2])
    y = n.activated(n.conv(x, channels, to, n.draw.choice([1, 1, 3]), stride))
    return y, to, (size - 1) // stride + 1


def joined(n, x, channels, size):
    parts = [n.activated(n.conv(x, channels, 24, window)) for window in (1, 3)]
    pooled = {"kernel_shape": [3, 3], "pads": [1] * 4}
    parts.append(n.node(n.draw.choice(["MaxPool", "AveragePool"]), [x], **pooled))
    return n.node("Concat", parts, axis=1), 48 + channels, size


def smaller(n, x, channels, size):
    window = n.draw.choice([2, 3])
    pads = [window // 2 if window == 3 else 0] * 4
    pool = n.draw.choice(["MaxPool", "AveragePool"])
    y = n.node(pool, [x], kernel_shape=[window] * 2, strides=[2, 2], pads=pads)
    return y, channels, (size - 1) // 2 + 1 if window == 3 else size // 2


def larger(n, x, channels, size):
    if size > 30:
        return None
    scales, mode = n.const(np.float32([1, 1, 2, 2])), n.draw.choice(["nearest", "linear"])
    return n.node("Resize", [x, "", scales], mode=mode), channels, 2 * size


def rows_of(n, x, channels, size):
    """Pixels as rows, normalized, through two products (ConvNeXt, ViT)."""
    if n.quantized:
        return None
    y = n.node("Transpose", [x], perm=[0, 2, 3, 1])
    image = n.node("Shape", [y])
    if n.draw.random() < 0.5:
        y = n.node("Reshape", [y, n.const(np.int64([1, -1, channels]))])
    gains = [n.floats(channels, scale=0.5) for _ in range(2)]
    z = n.node("LayerNormalization", [y, *gains], axis=-1)
    middle = channels * n.draw.choice([2, 4])
    z = n.activated(n.node("MatMul", [z, n.floats(channels, middle, scale=channels**-0.5)]))
    z = n.node("MatMul", [z, n.floats(middle, channels, scale=middle**-0.5)])
    y = n.node("Reshape", [n.node("Add", [y, z]), image])
    return n.node("Transpose", [y], perm=[0, 3, 1, 2]), channels, size


def attention(n, x, channels, size):
    if n.quantized or channels % 8 or size > 20:
        return None
    heads = n.draw.choice([2, 4])
    y = n.node("Reshape", [x, n.const(np.int64([1, channels, -1]))])
    y = n.node("Transpose", [y], perm=[0, 2, 1])
    apart = n.const(np.int64([1, -1, heads, channels // heads]))
    weights = [n.floats(channels, channels, scale=channels**-0.5) for _ in range(3)]
    q, k, v = (n.node("Reshape", [n.node("MatMul", [y, w]), apart]) for w in weights)
    q, v = (n.node("Transpose", [t], perm=[0, 2, 1, 3]) for t in (q, v))
    scores = n.node("MatMul", [q, n.node("Transpose", [k], perm=[0, 2, 3, 1])])
    scores = n.node("Mul", [scores, n.const(np.float32((channels // heads) ** -0.5))])
    z = n.node("MatMul", [n.node("Softmax", [scores], axis=-1), v])
    z = n.node("Transpose", [z], perm=[0, 2, 1, 3])
    z = n.node("Reshape", [z, n.const(np.int64([1, -1, channels]))])
    z = n.node("Transpose", [n.node("Add", [y, z])], perm=[0, 2, 1])
    return n.node("Reshape", [z, n.node("Shape", [x])]), channels, size


BLOCKS = [*[inverted] * 4, residual, plain, plain, joined, smaller, larger, rows_of, attention]


def network(folder, seed):
    """(the path of the model, the network, the most channels, lines and columns of its input)"""
    n = Network(seed)
    size, channels = n.draw.choice([28, 30, 56, 57, 96, 112]), n.draw.choice([3, 3, 16, 24])
    shape, ends = [channels, size, size], ["h", "w"] if n.varies else [size, size]
    inputs = [("x", TensorProto.FLOAT, [1, channels, *ends])]
    x = n.rounded("x") if n.quantized else "x"
    made = 0
    while made < 5:
        block = n.draw.choice(BLOCKS) if made else plain
        if channels * size * size * 4 > MOST_ELEMENTS:
            block = smaller
        result = block(n, x, channels, size)
        if result:
            (x, channels, size), made = result, made + 1
            if n.quantized:
                x = n.rounded(x)
    ends = ["h_out", "w_out"] if n.varies else [size, size]
    outputs = [(x, TensorProto.FLOAT, [1, channels, *ends])]
    save(folder, f"net{seed}", n.nodes, inputs, outputs, n.weights, opset=20)
    return folder / f"net{seed}.onnx", n, shape


def expected(path, x):
    options = onnxruntime.SessionOptions()  # fused products of bytes saturate without VNNI
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options).run(None, {"x": x})[0]


def flags_here():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return set(next(line for line in file if line.startswith("flags")).split())


def run(mlcc, folder, path, x):
    """What the library and ONNX Runtime make of it."""
    np.save(folder / "x.npy", x)
    command = [mlcc, "run", folder / "model.so", "--input", f"x={folder}/x.npy", "--output", folder]
    subprocess.run([*command, "--threads", "2"], check=True)
    (name,) = (o.name for o in onnxruntime.InferenceSession(path).get_outputs())
    return np.load(folder / f"{name}.npy"), expected(path, x)


def check(mlcc, folder, seed, arch, compiler, runs_here):
    """What is wrong, or None."""
    path, n, shape = network(folder, seed)
    compile_it = [mlcc, path, f"-march={arch}", "--cc", compiler, "-O", "1", "-o"]
    if n.varies:
        dims = [f"{name}={LEAST}..{shape[1]}" for name in "hw"]
        compile_it[2:2] = ["--dim", dims[0], "--dim", dims[1]]
    result = folder / ("model.so" if runs_here else "model.c")
    if subprocess.run([*compile_it, result], check=False).returncode:
        return "does not compile"
    if not runs_here:
        syntax = [compiler, "-std=gnu99", "-fsyntax-only", f"-march={arch}", result]
        return "is no C" if subprocess.run(syntax, check=False).returncode else None
    shapes = [shape]
    if n.varies:
        shapes += [[shape[0], *(n.draw.randint(LEAST, shape[1]) for _ in "hw")] for _ in range(2)]
    for shape in shapes:
        got, want = run(mlcc, folder, path, n.rng.standard_normal([1, *shape]).astype(np.float32))
        if want.shape != got.shape:
            return f"of {shape}: shape {got.shape}, not {want.shape}"
        error, size = (np.sqrt(np.mean(v.astype(np.float64) ** 2)) for v in (got - want, want))
        if not error <= (STEP if n.quantized else 1e-3 * size):
            return f"of {shape}: differs by {error:.2g}"
    return None


def main(mlcc, folder, first=0, last=48):
    x86, failed = platform.machine() == "x86_64", 0
    for seed in range(int(first), int(last)):
        arch = ARCHITECTURES[seed % len(ARCHITECTURES)] if x86 else "native"
        here = arch == "native" or NEEDS[arch] in flags_here()
        compiler = COMPILERS[seed % len(COMPILERS)]
        wrong = check(mlcc, pathlib.Path(folder), seed, arch, compiler, here)
        if wrong:
            print(f"network {seed}, -march={arch}, {compiler}: {wrong}")
            failed += 1
    sys.exit(failed > 0)


main(*sys.argv[1:])
