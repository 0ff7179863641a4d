"""Random ONNX models through the whole compiler; what scripts/fuzz-graphs runs.

Model I of seed S is the same in every run. Each is computed node by node by ONNX Runtime, or by
ONNX's reference evaluator where that refuses, and compiled and run in these ways:

    every model      the interpreter; C, plain or with an -march=, on 1, 2 and 3 threads; the
                     lowered kernels of a target in the interpreter with its checks
    by its number    passes left out; every tensor in memory of its own; all renamed and in
                     another order; constants as inputs and inputs as constants,
                     Constant nodes; all in a function; inputs' dimensions as symbols with ranges
    every Nth        CUDA emulated on the CPU; Vulkan

The C compiler is what takes long, so a few models in a row share the ways; the last lines tell how
many were run in each.

Integers, bool, what is moved and floats whose sums are exact must be equal; other floats may differ
by what rounding explains (builder.py). A failing model is cut down and written to a folder.
"""

import argparse
import collections
import multiprocessing
import os
import re
import shutil
import sys
import time
import traceback

import numpy as np
import onnx

from . import compare
from .builder import assemble
from .generate import random_model
from .hostile import HostileCase
from .judge import whole_model
from .minimise import minimise, shown
from .peer import Peer, Task, temporary_folder
from .relations import as_function, constant_nodes, renamed
from .table import OPERATORS
from .varying import Varying

BATCH = 96
KERNELS = ("kernels:c", "kernels:c:native", "kernels:cuda", "kernels:vulkan")
# What -march= is: -march=native is what most use. The one with a matrix unit is for the emitter; the
# C compiler is told the machine's.
MARCH = ("native", "x86-64-v3", "sapphirerapids", "x86-64-v2", "native", "armv7e-m+fp", "x86-64",
         "native", "armv8.2-a+dotprod+fp16", "armv7-m", "native", "armv8-a", "rv32imafc")
SKIPPED = ("fuse", "cse", "fuse+cse", "dce+fuse")


# What Vulkan computes with the precision of f32 for f64, too: GLSL has no such functions.
F32_ON_VULKAN = set("Sin Cos Tan Asin Acos Atan Asinh Acosh Atanh Erf Gelu".split())


def coarse_on_vulkan(g):
    return any(
        node.op_type in F32_ON_VULKAN and g.values[node.input[0]].dtype == "f64"
        for node in g.nodes
    )


def with_parts(way, *parts):
    """A way with passes left out, or with tensors apart."""
    words = way.split(":")
    return ":".join(words + [""] * (3 - len(words)) + list(parts))


def ways_of(number, options):
    """How model `number` is run, besides by its relatives."""
    kernels = KERNELS[number % 4]
    if options.quick:
        return ["interp", kernels]
    march = ("", f":{MARCH[number % len(MARCH)]}")[number % 2]
    level = "c0"
    if number % 24 in (0, 17):  # -O3 takes several times as long; headers are read for each -march=
        level, march = "c3", march and ":native"
    ways = ["interp", f"{level}:c{march}", kernels]
    if number % 3 == 1:
        ways.append(with_parts(kernels, SKIPPED[number // 12 % 4]))
    if number % 5 == 0:
        ways.append(with_parts(kernels, "", "apart"))
    if number % 30 == 7:
        ways.append(f"c1:c:native:{SKIPPED[number // 30 % 4]}:apart")
    if options.gpu and number % options.gpu == 0:
        ways.append("lib:cuda:cpu")
        if not options.no_vulkan:
            ways.append("lib:vulkan")
    return ways


class Case:
    """A model and its relatives."""

    def __init__(self, number, options):
        self.number = number
        self.g = random_model(options.seed, number, only=options.operators)
        g = self.g
        self.outputs = g.outputs()
        self.tasks = []
        if not g.nodes:
            return
        names = [v.name for v in self.outputs]
        used = self.used_sources()
        inputs = [n for n in g.inputs if n in used]
        constants = [n for n in g.constants if n in used]
        self.model = assemble(g, g.nodes, inputs, constants, names)
        self.constants = {"": constants}  # of the models that are made of the builder's values
        ways = ways_of(number, options)
        if coarse_on_vulkan(g):
            ways = [way for way in ways if way != "lib:vulkan"]
        self.add("", self.model, inputs, ways)
        rng = np.random.default_rng([options.seed, number, 1])
        few = ["interp"]
        if not options.quick and number // 4 % 4 == 0:
            few.append(("c0:c", "c0:c:native")[number // 16 % 2])
        if number % 4 == 1:
            self.add("renamed", renamed(self.model, rng), inputs, few)
        if number % 4 == 2:
            free = [n for n in constants if n not in g.frozen]
            now = [n for n in constants if n in g.frozen] + [
                n for n in inputs if rng.random() < 0.6
            ]
            left = [n for n in inputs if n not in now] + free
            self.constants["constants as inputs"] = now
            self.add("constants as inputs", assemble(g, g.nodes, left, now, names), left, few)
        if number % 4 == 3:
            if number % 8 == 3 or g.told:  # a function's body tells no shapes
                self.add("Constant nodes", constant_nodes(self.model, rng), inputs, few)
            else:
                self.add("as a function", as_function(self.model), inputs, few)
        if number % 4 == 0:
            self.add_varying(rng, inputs, constants)

    def used_sources(self):
        from .minimise import names_read

        return {n for node in self.g.nodes for n in names_read(node)}

    def add(self, relation, model, inputs, ways):
        arrays = [self.g.values[n].array for n in inputs]
        task = Task(model.SerializeToString(), [arrays], self.outputs, ways)
        task.relation = relation
        self.tasks.append(task)

    def add_varying(self, rng, inputs, constants):
        """The model with dimensions that vary, run with those that it has."""
        names = [v.name for v in self.outputs]
        model = assemble(self.g, self.g.nodes, inputs, constants, names)
        varying = Varying(rng, self.g, model, self.g.frozen, true=True)
        if not varying.symbols:
            return
        compiled = ("c0:c", "c0:c:native")[self.number // 4 % 2]
        ways = ["interp", compiled, KERNELS[self.number // 8 % 4]]
        runs = [varying.true_run()]
        task = Task(model.SerializeToString(), runs, self.outputs, ways, dims=varying.dims)
        task.relation = "varying"
        self.tasks.append(task)

    def faults(self):
        """(relation, way, kind, text) of everything that is wrong."""
        found = []
        for task in self.tasks:
            for way in task.ways:
                fault = compare.fault(task, way)
                # of what varies not all can be known
                if fault and not (task.dims and fault[0] in ("unsupported", "error 1 error[E3004]:")):
                    found.append((task.relation, way) + fault)
        if not found:
            for task in self.tasks[1:]:
                if task.relation != "renamed":
                    continue
                for way in set(task.ways) & set(self.tasks[0].ways):
                    if task.answers[way][1] != self.tasks[0].answers[way][1]:
                        found.append(
                            (
                                task.relation,
                                way,
                                "differs",
                                "not the same bits as with the other names",
                            )
                        )
        return found


class Worker:
    def __init__(self, options, number):
        self.options = options
        self.folder = temporary_folder()
        self.peer = Peer(options.peer, self.folder)
        self.number = number

    def close(self):
        self.peer.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def batch(self, numbers):
        """Reports on these models: (models, nodes, runs in each way, unsupported, failures)."""
        cases, broken = [], []
        for n in numbers:
            try:
                kind = HostileCase if self.options.hostile else Case
                cases.append(kind(n, self.options))
            except Exception:
                broken.append((n, "the generator fails", traceback.format_exc()))
        cases = [c for c in cases if c.tasks]
        self.peer.run_each([t for c in cases for t in c.tasks])
        unsupported, failures, nodes = [], [], 0
        for case in cases:
            nodes += len(case.g.nodes)
            faults = case.faults()
            unsupported += [
                re.sub(r"node #\d+ '[^']*'|node '[^']*'", "node", f[3])
                for f in faults[:1]
                if f[2] == "unsupported"
            ]
            faults = [f for f in faults if f[2] != "unsupported"]
            if faults:
                failures.append((case.number, *self.explain(case, faults)))
        ways = collections.Counter()
        for task in (t for c in cases for t in c.tasks):
            for way in task.ways:
                ways[way] += task.runs
        return len(cases), nodes, ways, unsupported, failures + broken

    def explain(self, case, faults):
        """What is printed about a failing model: a key and a text."""
        relation, way, kind, text = faults[0]
        head = "\n".join(f"  {r + ', ' if r else ''}{w}: {t}" for r, w, _, t in faults[:6])
        g = case.g
        names = [v.name for v in case.outputs]
        cut = None
        if not self.options.no_minimise and relation in case.constants:
            cut, text = minimise(g, self.peer, way, kind, names, case.constants[relation])
        base = os.path.join(self.options.out, f"{self.options.seed}-{case.number}")
        shutil.rmtree(base, ignore_errors=True)
        os.makedirs(os.path.join(base, "test_data_set_0"))
        if cut is None:
            task = next(t for t in case.tasks if t.relation == relation)
            with open(os.path.join(base, "model.onnx"), "wb") as f:
                f.write(task.model)
            body = onnx.printer.to_text(onnx.ModelProto.FromString(task.model))
            body += "".join(f"\n--dim {word}" for word in task.dims)
            ops = relation or "not minimised"
        else:
            model = cut.model()
            onnx.save(model, os.path.join(base, "model.onnx"))
            self.save_data(cut, os.path.join(base, "test_data_set_0"))
            body = shown(cut) + "\n" + self.opinions(cut)
            ops = " ".join(n.op_type for n in cut.nodes)
        report = (
            f"model {case.number} of seed {self.options.seed}\n{head}\n"
            f"cut down to ({way}): {text}\n{body}\nwritten to {base}/model.onnx"
        )
        with open(os.path.join(base, "report.txt"), "w") as f:
            f.write(report)
        return f"{way} {kind}: {ops}", report

    @staticmethod
    def save_data(cut, folder):
        """As ONNX's own tests are, so that `conformance --suite` runs it."""
        for kind, names in (("input", cut.inputs), ("output", cut.outputs)):
            for i, name in enumerate(names):
                tensor = onnx.numpy_helper.from_array(cut.g.values[name].array, name)
                with open(os.path.join(folder, f"{kind}_{i}.pb"), "wb") as f:
                    f.write(tensor.SerializeToString())

    def opinions(self, cut):
        """What each judge says about the small model as a whole."""
        arrays = {n: cut.g.values[n].array for n in cut.inputs}
        lines = []
        for who, answer in whole_model(cut.model(), arrays).items():
            if isinstance(answer, str):
                lines.append(f"{who}: {answer}")
                continue
            for name, got in zip(cut.outputs, answer):
                value = cut.g.values[name]
                got = np.asarray(got)
                agrees = (
                    got.dtype == value.array.dtype
                    and got.shape == value.shape
                    and compare.difference(value, got) is None
                )
                lines.append(
                    f"{who}: {name} " + ("as expected" if agrees else f"= {got.reshape(-1)[:20]}")
                )
        return "\n".join(lines)


def work(options, number, share, results):
    worker = Worker(options, number)
    try:
        for i in range(0, len(share), BATCH):
            results.put(worker.batch(share[i : i + BATCH]))
    except Exception:
        results.put((0, 0, {}, [], [(-1, "the tool fails", traceback.format_exc())]))
    finally:
        worker.close()
        results.put(None)


def summed(ways):
    """Of runs in each way: how many with each target, and with passes left out or tensors apart."""
    sums = collections.Counter()
    for way, count in sorted(ways.items()):
        words = way.split(":") + [""] * 4
        sums[":".join(words[:3]).rstrip(":")] += count
        if words[3]:
            sums["passes left out"] += count
        if words[4]:
            sums["apart"] += count
    return sums


def main():
    parser = argparse.ArgumentParser(
        prog="fuzz-graphs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("n", type=int, metavar="N", help="how many models")
    parser.add_argument("seed", type=int, metavar="SEED")
    parser.add_argument("--only", type=int, metavar="I", help="model I alone")
    parser.add_argument("--first", type=int, default=0, metavar="I", help="begin with model I")
    parser.add_argument(
        "--hostile",
        type=int,
        default=0,
        metavar="RUNS",
        help="instead: RUNS sets of hostile values for each model, under ASan and UBSan",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--gpu",
        type=int,
        default=20,
        metavar="N",
        help="every Nth model on CUDA and Vulkan; 0: none",
    )
    parser.add_argument("--no-vulkan", action="store_true")
    parser.add_argument("--quick", action="store_true", help="without C: interpreters only")
    parser.add_argument(
        "--operators", default="", metavar="NAME,...", help="only these functions of the table"
    )
    parser.add_argument("--no-minimise", action="store_true")
    parser.add_argument("--most", type=int, default=20, help="stop after so many failures")
    parser.add_argument("--out", default="build/fuzz-graphs", metavar="FOLDER")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.operators = [name for name in options.operators.split(",") if name]
    unknown = set(options.operators) - {name for name, _, _ in OPERATORS}
    if unknown:
        parser.error(f"no function of the table: {' '.join(sorted(unknown))}")
    options.no_vulkan |= os.environ.get("SKIP_VULKAN", "0") != "0"
    options.peer = (
        options.peer or ("build/san" if options.hostile else "build") + "/tests/graph_peer"
    )
    numbers = list(range(options.first, options.first + options.n))
    if options.only is not None:
        numbers = [options.only]
    jobs = max(1, min(options.jobs, len(numbers)))
    start = time.monotonic()
    results = multiprocessing.Queue()
    batches = [numbers[i : i + BATCH] for i in range(0, len(numbers), BATCH)]
    if len(batches) < jobs:
        shares = [numbers[k::jobs] for k in range(jobs)]
    else:
        shares = [[n for b in batches[k::jobs] for n in b] for k in range(jobs)]
    processes = [
        multiprocessing.Process(target=work, args=(options, k, share, results), daemon=True)
        for k, share in enumerate(shares)
        if share
    ]
    for process in processes:
        process.start()
    running, models, nodes, failed = len(processes), 0, 0, 0
    ways, unsupported, kinds = (collections.Counter() for _ in range(3))
    told = time.monotonic()
    while running:
        report = results.get()
        if report is None:
            running -= 1
            continue
        models += report[0]
        nodes += report[1]
        ways.update(report[2])
        unsupported.update(report[3])
        for number, key, text in report[4]:
            failed += 1
            kinds[key] += 1
            if kinds[key] <= 2:
                print(f"--- {key}\n{text}\n", flush=True)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(
                f"{models} models, {failed} failures, {models / (told - start):.1f} a second",
                file=sys.stderr,
                flush=True,
            )
        if failed >= options.most:
            print(f"stopped after {failed} failures")
            break
    for process in processes:
        if process.is_alive():
            process.terminate()
        process.join()
    for key, count in kinds.most_common():
        print(f"failure: {count} x {key}")
    for text, count in unsupported.most_common(20):
        print(f"unsupported: {count} x {text}")
    print("ways: " + ", ".join(f"{count} x {way}" for way, count in summed(ways).items()))
    seconds = time.monotonic() - start
    print(
        f"fuzz-graphs: {models} models, {nodes} nodes, {sum(unsupported.values())} unsupported, "
        f"{failed} failed, {seconds:.0f} s"
    )
    return 1 if failed or models == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
