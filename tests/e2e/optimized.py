"""Small models that C compilers optimise a lot, or wrongly: optimized.py MLCC FOLDER

Compiled as users do, with -O3, as plain C, without -march= and for this processor: results must be right, and the
same bits on any number of threads.
"""
import math
import subprocess
import sys

import numpy
import onnx
from onnx import helper, numpy_helper

LENGTH = 200003  # of no multiple of a vector, and long enough for several threads
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def save(path, nodes, inputs, kind, initializers):
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
             for name, array in inputs.items()]
    arrays = [numpy_helper.from_array(array, name) for name, array in initializers.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", kind, None)], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def run(library, folder, inputs, threads=1):
    words = []
    for name, array in inputs.items():
        numpy.save(f"{folder}/{name}.npy", array)
        words += ["--input", f"{name}={folder}/{name}.npy"]
    subprocess.run([sys.argv[1], "run", library, "--threads", str(threads), *words, "--output", folder],
                   check=True)
    return numpy.load(f"{folder}/y.npy")


def main():
    mlcc, folder = sys.argv[1:]
    model, library = f"{folder}/m.onnx", f"{folder}/m.so"
    node, random = helper.make_node, numpy.random.default_rng(1)
    long = {name: random.standard_normal(LENGTH).astype("f4") for name in "ab"}
    choice = {"a": random.standard_normal(16).astype("f4")}
    halves = numpy.array([0, 1, 1, 2, 2, 2, 0, 0, 1, 0, 1, 2])
    table, zero = numpy.array([3.5, 7.5], "f4"), numpy.zeros(1, "f4")
    cases = [
        # an element of a table by a condition
        ([node("Greater", ["a", "zero"], ["c"]), node("Cast", ["c"], ["i"], to=INT64),
          node("Gather", ["table", "i"], ["y"])], FLOAT, {"zero": zero, "table": table}, choice,
         table[(choice["a"] > 0).astype(int)]),
        # constants that are copied, of 32 bytes twice the same and zeros
        ([node("Identity", ["k"], ["y"])], INT64, {"k": halves}, {}, halves),
        # elements left over behind the last vector of each thread
        ([node("Sigmoid", ["b"], ["s"]), node("Mul", ["b", "s"], ["m"]), node("Add", ["m", "a"], ["y"])],
         FLOAT, {}, long, long["b"] / (1 + numpy.exp(-long["b"])) + long["a"]),
    ]
    # functions of several vectors at once, of as many as there are and of the rest
    functions = [node("Tanh", ["a"], ["t"]), node("Exp", ["b"], ["e"]), node("Mul", ["t", "e"], ["m"]),
                 node("Erf", ["b"], ["r"]), node("Mul", ["a", "r"], ["n"]), node("Sub", ["m", "n"], ["y"])]
    for length in 23, 24, 53, 77, LENGTH:
        a, b = (long[name][:length] for name in "ab")
        want = numpy.tanh(a) * numpy.exp(b) - a * numpy.array([math.erf(x) for x in b])
        cases.append((functions, FLOAT, {}, {"a": a, "b": b}, want))
    save(model, functions, {"a": a, "b": b}, FLOAT, {})
    subprocess.run([mlcc, model, "-march=x86-64-v3", "-o", f"{folder}/m.c"], check=True)
    assert "MLCC_MIXED void" in open(f"{folder}/m.c").read()
    # of two NaN that are multiplied always the same one
    none = numpy.full(LENGTH, numpy.nan, "f4")
    cases.append(([node("Softplus", ["a"], ["y"])], FLOAT, {}, {"a": none}, none))
    # sums of columns of bytes, in arrays of integers
    a, b = (random.integers(0, 256, n).astype("u1") for n in (512, 256))
    codes = {"rows": numpy.array([4, 16, 8]), "columns": numpy.array([4, 8, 8]),
             "one": numpy.float32(1), "zero": numpy.uint8(127), "flat": numpy.array([-1])}
    product = (a.reshape(codes["rows"]) - 127.0) @ b.reshape(codes["columns"])
    cases.append((
        [node("Reshape", ["a", "rows"], ["ra"]), node("Reshape", ["b", "columns"], ["rb"]),
         node("DequantizeLinear", ["ra", "one", "zero"], ["da"]),
         node("DequantizeLinear", ["rb", "one"], ["db"]),
         node("MatMul", ["da", "db"], ["p"]), node("Reshape", ["p", "flat"], ["y"])],
        FLOAT, codes, {"a": a, "b": b}, product.ravel()))
    # the largest and smallest of columns, in arrays of integers, some of them the greatest there are
    least, most = -(1 << 31), (1 << 31) - 1
    i = random.choice(numpy.array([least, 5, most, -3], "i4"), (16, 8, 5))
    for kind, reduced in (("ReduceMax", (i + numpy.int32(7)).max(1)), ("ReduceMin", (i + numpy.int32(7)).min(1))):
        cases.append(([node("Add", ["i", "seven"], ["s"]), node(kind, ["s"], ["y"], axes=[1], keepdims=0)],
                      onnx.TensorProto.INT32, {"seven": numpy.int32(7)}, {"i": i}, reduced))
    rows = random.choice(numpy.array([least, 5, most, -3], "i4"), (1024, 5))
    cases.append(([node("TopK", ["r", "k"], ["v", "y"], axis=0, largest=0)], INT64,
                  {"k": numpy.array([63])}, {"r": rows}, numpy.argsort(rows, 0, kind="stable")[:63]))
    for nodes, kind, initializers, inputs, want in cases:
        save(model, nodes, inputs, kind, initializers)
        for march in (["-march=generic"], [], ["-march=native"]):
            subprocess.run([mlcc, model, *march, "-o", library], check=True)
            got = run(library, folder, inputs)
            right = numpy.allclose(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)
            assert right, (nodes[0].op_type, march, got, want)
            for threads in (2, 3, 5, 7):
                more = run(library, folder, inputs, threads)
                assert got.tobytes() == more.tobytes(), (nodes[0].op_type, march, threads)


main()
