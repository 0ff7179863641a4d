"""mlcc's output beside other runtimes, on the CPU or the GPU: the work of scripts/bench.

A row is a model, a precision and a number of threads. Each runtime has a process of its own. They
take turns, a burst of runs each, for several rounds, so that what the machine does meanwhile
reaches all of them; the shortest run of each is compared.
"""

import argparse
import contextlib
import datetime
import fnmatch
import json
import math
import os
import pathlib
import sys
import time

import numpy as np

import models
from bench import calibrate, language, peers, zoo
from bench.worker import Worker

RESULTS = zoo.ROOT / "bench" / "results"

# The largest difference from the expected output that counts as right, as a share of that output's
# largest magnitude. How far quantised sums and bf16 drift depends on the model, and a mask may flip
# where it is undecided: there the bound finds only what is no result at all.
ALLOWED = {"fp32": 1e-2, "int8": 1.0, "bf16": 1.0}
FAR = 0.1  # from here on the difference is mentioned

LOADING_S = 600  # a runtime that compiles the model for longer than this is left out


# ---- one row ----------------------------------------------------------------------------------


def error_of(wanted, got):
    """The largest difference as a share of the output's scale, over all outputs."""
    if len(wanted) != len(got):
        return math.inf
    worst = 0.0
    for want, have in zip(wanted, got):
        have = np.asarray(have)
        if want.shape != have.shape:
            return math.inf
        want, have = want.astype(np.float64), have.astype(np.float64)
        if not np.isfinite(have[np.isfinite(want)]).all():
            return math.inf
        scale = float(np.abs(want).max(initial=0)) or 1.0
        worst = max(worst, float(np.abs(want - have).max(initial=0)) / scale)
    return worst if math.isfinite(worst) else math.inf


def start(peer, job, options, stack):
    """A worker of `peer` that has run the model and is warm, and what is known by then. The
    worker is None when there is nothing to measure. `stack` ends it."""
    entry = {"refused": None}
    log = options.logs / f"{job.name}-{job.precision}-{job.threads}-{peer}.log"
    with log.open("w") as file:
        worker = Worker(peer, job.threads, job.cache, file)
    stack.callback(worker.close)
    try:
        entry["ran"] = worker.ask("load", job, LOADING_S)
        got = worker.ask("outputs", None, options.limit)
        if job.states:
            got = got[: len(options.expected)]
        entry["error"] = error_of(options.expected, got)
        entry["right"] = entry["error"] <= ALLOWED[job.precision]
        worker.ask("burst", 0.2, options.limit)
    except peers.Refused as reason:
        entry["refused"] = str(reason)
        worker.close()
        worker = None
    return worker, entry


def reached(job):
    """What the processor or the GPU reaches now, in fp32."""
    if job.machine == "gpu":
        return [1e3 * calibrate.gpu_tflops("float32")]
    return [calibrate.rates(job.threads, 0.1)[0]]


def measure(job, options):
    """One row of the table."""
    row = {
        "model": job.name,
        "precision": job.precision,
        "threads": job.threads,
        "gflops": reached(job),
        "peers": {},
    }
    running = {}
    with contextlib.ExitStack() as stack:
        for peer in options.peers:
            worker, row["peers"][peer] = start(peer, job, options, stack)
            if worker:
                running[peer] = worker
                row["peers"][peer]["round_ms"] = []
        for _ in range(options.rounds):
            for peer, worker in list(running.items()):
                try:
                    times = worker.ask("burst", options.burst, options.limit + options.burst)
                    row["peers"][peer]["round_ms"].append(round(1e3 * min(times), 5))
                except peers.Refused as reason:
                    row["peers"][peer]["refused"] = str(reason)
                    running.pop(peer).close()
    row["gflops"] += reached(job)
    for peer in running:
        entry = row["peers"][peer]
        entry["ms"] = min(entry["round_ms"])
    ours = row["peers"].get("mlcc", {})
    others = {
        peer: entry["ms"]
        for peer, entry in row["peers"].items()
        if peer != "mlcc" and "ms" in entry and entry["right"]
    }
    if others:
        row["fastest"] = min(others, key=others.get)
        if "ms" in ours and ours["right"]:
            row["ratio"] = others[row["fastest"]] / ours["ms"]
            row["ratio_to"] = {peer: ms / ours["ms"] for peer, ms in others.items()}
    return row


# ---- the table --------------------------------------------------------------------------------


def milliseconds(entry):
    if "ms" not in entry:
        return "-"
    text = f"{entry['ms']:.3f}" if entry["ms"] < 10 else f"{entry['ms']:.1f}"
    return text if entry["right"] else text + " WRONG"


def line(cells, widths):
    first, *rest = (str(cell) for cell in cells)
    return "  ".join([first.ljust(widths[0])] + [c.rjust(w) for c, w in zip(rest, widths[1:])])


class Table:
    """Lines as they come: milliseconds of each runtime, and how many times as long as mlcc the
    fastest other one took."""

    def __init__(self, names):
        self.names = names
        self.widths = [22, 9, 7] + [10] * len(names) + [8, 14]
        heads = ["model", "precision", "threads", *names, "ratio", "to"]
        print(line(heads, self.widths))

    def add(self, row):
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else "-"
        cells = [row["model"], row["precision"], row["threads"]]
        cells += [milliseconds(row["peers"][name]) for name in self.names]
        print(line([*cells, ratio, row.get("fastest", "-")], self.widths), flush=True)

    def add_rates(self, row):
        """Under a product: its GFLOP/s, and the share of what the processor reaches in fp32."""
        operations = zoo.gemm_operations(row["model"])
        if operations is None:
            return
        peak = max(row["gflops"])
        cells = ["", "GFLOP/s", ""]
        for name in self.names:
            entry = row["peers"][name]
            rate = operations / entry["ms"] / 1e6 if "ms" in entry else None
            if rate:
                entry["gflops"], entry["share"] = rate, rate / peak
            cells.append(f"{rate:.0f} {100 * rate / peak:.0f}%" if rate else "-")
        print(line([*cells, "", ""], self.widths), flush=True)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summarise(rows):
    """Geometric means of the ratios by precision and threads, against the fastest and each."""
    means = {}
    for row in rows:
        if "ratio" in row:
            words = f"{zoo.kind(row['model'])} {row['precision']}, {row['threads']} threads"
            key = words.strip()
            group = means.setdefault(key, {})
            for name, value in (("fastest", row["ratio"]), *row["ratio_to"].items()):
                group.setdefault(name, []).append(value)
    for key, group in means.items():
        least = min(group["fastest"])
        for name, values in group.items():
            group[name] = {"mean": geometric_mean(values), "models": len(values)}
        text = ", ".join(f"{n} {g['mean']:.2f} ({g['models']})" for n, g in group.items())
        print(f"geometric mean, {key}: {text}; smallest {least:.2f}")
    return means


def remarks(rows):
    """What is missing from the table, and why; wrong outputs. Returns how many of those."""
    reasons, far, wrong = {}, [], []
    for row in rows:
        for peer, entry in row["peers"].items():
            where = f"{row['model']} {row['precision']}"
            if entry["refused"]:
                reasons.setdefault((peer, entry["refused"]), {})[where] = True
            elif not entry["right"] or entry["error"] > FAR:
                text = f"{where}, {row['threads']} threads: {peer}, {entry['error']:.2g}"
                (far if entry["right"] else wrong).append(text)
    for (peer, reason), where in reasons.items():
        places = list(where)
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        print(f"not measured: {peer}: {', '.join(places[:3])}{more}: {reason}")
    for text in far:
        print(f"far off: {text} of the output's scale")
    for text in wrong:
        print(f"WRONG OUTPUT: {text} of the output's scale off", file=sys.stderr)
    return len(wrong)


# ---- the whole run ----------------------------------------------------------------------------


def calibration(machine, threads):
    if machine == "gpu":
        result = calibrate.gpu_rates()
        print("calibration: " + ", ".join(f"{k} {v}" for k, v in result.items()), flush=True)
        return result
    result = {}
    for count in threads:
        gflops, gbytes = calibrate.rates(count)
        result[count] = {"gflops": gflops, "read_gbytes": gbytes}
    text = "; ".join(
        f"{count} threads {rate['gflops']:.0f} GFLOP/s, reading {rate['read_gbytes']:.1f} GB/s"
        for count, rate in result.items()
    )
    load = os.getloadavg()[0]
    print(f"calibration: {text}; load {load:.2f}", flush=True)
    return {"threads": result, "load": load}


def write(path, report):
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(report, indent=1) + "\n")
    part.replace(path)


def chosen_models(patterns):
    names = []
    for pattern in patterns:
        if pattern.endswith(".onnx"):
            path = pathlib.Path(pattern)
            if not path.exists():
                sys.exit(f"bench: there is no {path}")
            name = zoo.take(path)
            if not name:
                sys.exit(f"bench: {path.stem} is a model of the benchmark: rename the file")
            names.append(name)
            continue
        found = zoo.GROUPS.get(pattern) or fnmatch.filter(zoo.NAMES, pattern)
        if not found:
            sys.exit(f"bench: no model '{pattern}': there are {' '.join(zoo.NAMES)}, and the "
                     f"groups {' '.join(zoo.GROUPS)}")
        names += [name for name in found if name not in names]
    return names


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("machine", choices=peers.ON, help="what the models run on")
    words = {"type": lambda text: text.split(",")}
    parser.add_argument("--models", **words, default=zoo.DEFAULT, metavar="NAME,...",
                        help="names, patterns, .onnx files, or groups: "
                        f"{' '.join(zoo.GROUPS)} (built, int8, found)")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE",
                        help="of an open dimension of a file (1)")
    parser.add_argument("--peers", **words, metavar="NAME,...",
                        help=f"runtimes: {' '.join(peers.PACKAGES)} (all of the machine)")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")],
                        metavar="N,...", help="numbers of threads (1,2; beside a GPU 1)")
    parser.add_argument("--precision", **words, default=["fp32", "int8"], metavar="NAME,...",
                        help="fp32, int8, bf16: int8 are the quantised models (fp32,int8)")
    parser.add_argument("--quantise", action="store_true",
                        help="take int8 versions of fp32 models, by ONNX Runtime's quantisation")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each runtime (5)")
    parser.add_argument("--burst", type=float, default=0.3, help="seconds of a turn (0.3)")
    parser.add_argument("--limit", type=float, default=60,
                        help="seconds after which a run is given up (60)")
    parser.add_argument("--dir", type=pathlib.Path, default=zoo.SHARED, help="folder of models")
    parser.add_argument("--mlcc", type=pathlib.Path, default=zoo.ROOT / "build" / "mlcc")
    parser.add_argument("--output", type=pathlib.Path, help="the report (bench/results/...)")
    options = parser.parse_args()
    for dim in options.dim:
        name, _, size = dim.rpartition("=")
        if not name or not size.isdigit():
            parser.error(f"--dim {dim}: no NAME=SIZE")
        zoo.SIZES[name] = int(size)
    options.models = chosen_models(options.models)
    if options.quantise:
        single = [name for name in options.models if zoo.kind(name)]
        if single:
            parser.error(f"--quantise: {single[0]} is no whole model")
        options.models = list(dict.fromkeys(zoo.quantised(name) for name in options.models))
    options.peers = options.peers or peers.ON[options.machine]
    options.threads = options.threads or ([1] if options.machine == "gpu" else [1, 2])
    for peer in options.peers:
        if peer not in peers.ON[options.machine]:
            parser.error(f"no runtime '{peer}' on the {options.machine}")
    for precision in options.precision:
        if precision not in ALLOWED:
            parser.error(f"no precision '{precision}'")
    if not options.mlcc.exists():
        sys.exit(f"bench: there is no {options.mlcc}: run make")
    return options


def jobs(options):
    """The rows that are asked for, and the models that cannot be had."""
    for name in options.models:
        wanted = [p for p in zoo.precisions(name) if p in options.precision]
        if not wanted:
            continue
        try:
            path = zoo.file(name, options.dir)
            inputs = zoo.inputs(name, options.dir)
            options.expected = zoo.expected(name, options.dir)
        except FileNotFoundError as missing:
            print(f"not measured: {name}: there is no {missing.filename}: name a folder with --dir")
            continue
        except models.Failure as reason:
            print(f"not measured: {name}: {reason}")
            continue
        kept = {}
        if name in language.TASKS:
            kept = {
                "states": language.STATES,
                "ranges": language.RANGES,
                "extents": language.extents(inputs),
            }
        for precision in wanted:
            for threads in options.threads:
                yield peers.Job(
                    name, path, inputs, threads, precision, options.machine, options.mlcc,
                    zoo.FILES / "compiled", **kept,
                )


def main():
    options = arguments()
    options.logs = zoo.FILES / "logs"
    for folder in (options.logs, zoo.FILES / "compiled", RESULTS):
        folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    packages = [package for peer in options.peers for package in peers.PACKAGES[peer]]
    report = {
        "commit": calibrate.commit(),
        "date": now.isoformat(timespec="seconds"),
        "machine": calibrate.machine() | (calibrate.gpu() if options.machine == "gpu" else {}),
        "versions": calibrate.versions(packages),
        "rounds": options.rounds,
        "burst_s": options.burst,
        "calibration": [calibration(options.machine, options.threads)],
        "rows": [],
    }
    name = f"{now:%Y-%m-%d-%H%M}-{report['commit']}-{options.machine}.json"
    output = options.output or RESULTS / name
    table = Table(options.peers)
    began = time.monotonic()
    for job in jobs(options):
        row = measure(job, options)
        table.add(row)
        table.add_rates(row)
        report["rows"].append(row)
        write(output, report)
    report["calibration"].append(calibration(options.machine, options.threads))
    report["means"] = summarise(report["rows"])
    report["seconds"] = round(time.monotonic() - began)
    write(output, report)
    wrong = remarks(report["rows"])
    print(f"written: {os.path.relpath(output)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
