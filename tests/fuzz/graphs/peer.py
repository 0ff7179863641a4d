"""The compiler's side: a long-lived process that runs models in many ways (graph_peer.c)."""

import os
import select
import subprocess
import tempfile

from . import dtypes


PATIENCE = 1200  # seconds that a batch may take on a busy machine
SHOWN = 12  # lines of what a process that crashed has written


class Died(Exception):
    """The peer ended or did not answer; the message says how."""


class Task:
    """A model with its inputs, and the ways in which it is to be run."""

    def __init__(self, model, inputs, outputs, ways, runs=1, dims=()):
        """model: bytes; inputs: a list of lists of arrays, one for each run; outputs: values; dims:
        words for --dim."""
        self.model, self.inputs, self.outputs, self.ways = model, inputs, outputs, ways
        self.answers = {}  # way: (line, bytes)
        self.runs = runs
        self.dims = dims
        self.relation = ""  # to the model that was made first


class Peer:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        os.makedirs(folder, exist_ok=True)
        self.process = None
        self.number = 0
        self.errors = os.path.join(folder, "stderr")

    def start(self):
        environment = dict(os.environ)
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0")
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [self.program, self.folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        self.pending = b""

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
        self.process = None

    def lines(self, seconds):
        """Lines of the answer up to "done"."""
        while True:
            while b"\n" in self.pending:
                line, self.pending = self.pending.split(b"\n", 1)
                if line == b"done":
                    return
                yield line.decode(errors="replace")
            if not select.select([self.process.stdout], [], [], seconds)[0]:
                self.stop()
                raise Died(f"no answer in {seconds} s")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                self.process.wait()
                status = self.process.returncode
                self.stop()
                with open(self.errors, errors="replace") as f:
                    lines = f.read().splitlines()
                raise Died("\n    ".join([f"crash, status {status}:"] + lines[:SHOWN]))
            self.pending += data

    def run(self, tasks, seconds=PATIENCE):
        """Runs all tasks in one batch; fills in task.answers. Raises Died."""
        if not self.process:
            self.start()
        text, files = [], []
        for task in tasks:
            self.number += 1
            base = os.path.join(self.folder, f"{self.number}")
            with open(base + ".onnx", "wb") as f:
                f.write(task.model)
            with open(base + ".in", "wb") as f:
                for arrays in task.inputs:
                    for array in arrays:
                        f.write(dtypes.to_bytes(array))
            if task.dims:
                with open(base + ".onnx.dims", "w", encoding="utf-8") as f:
                    f.write("\n".join(task.dims))
            files.append(base)
            text.append(" ".join([base + ".onnx", base + ".in", str(task.runs)] + task.ways))
        try:
            try:
                self.process.stdin.write(("\n".join(text) + "\ngo\n").encode())
                self.process.stdin.flush()
            except BrokenPipeError:
                pass
            answers = self.lines(seconds)
            for task, base in zip(tasks, files):
                for k, way in enumerate(task.ways):
                    line = next(answers)
                    data = b""
                    if line.startswith("ok"):
                        with open(f"{base}.onnx.{k}", "rb") as f:
                            data = f.read()
                    task.answers[way] = line, data
            for _ in answers:
                pass
        finally:
            for task, base in zip(tasks, files):
                for path in [base + ".onnx", base + ".onnx.dims", base + ".in"] + [
                    f"{base}.onnx.{k}" for k in range(len(task.ways))
                ]:
                    if os.path.exists(path):
                        os.unlink(path)

    def run_each(self, tasks, seconds=PATIENCE):
        """The same; a task that kills the peer has "crash ..." as the answer of that way. It is
        found by halving."""
        try:
            self.run(tasks, seconds)
            return
        except Died:
            pass
        if len(tasks) > 1:
            middle = len(tasks) // 2
            self.run_each(tasks[:middle], seconds)
            self.run_each(tasks[middle:], seconds)
            return
        (task,) = tasks
        task.answers = {}
        for way in task.ways:
            one = Task(task.model, task.inputs, task.outputs, [way], task.runs, task.dims)
            try:
                self.run([one], seconds)
                task.answers[way] = one.answers[way]
            except Died as how:
                task.answers[way] = str(how), b""


def temporary_folder():
    return tempfile.mkdtemp(prefix="fuzz-graphs-")
