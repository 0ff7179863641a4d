"""mlcc itself: the model compiled to a library for this machine, or its GPU, called by ctypes."""

import ctypes
import json
import math
import resource
import subprocess
import time

import numpy as np
import onnx

import models
from model_abi import Model, pointers
from bench import calibrate, zoo
from bench.peers import Refused


def aligned(size, alignment=4096):
    """`size` bytes of memory at a multiple of `alignment`. Where a result begins a line or two
    behind its operand, but for whole pages, loads wait for stores that they have nothing to do
    with, which takes a third longer; large blocks of malloc all begin at the same place of a page.
    """
    space = np.zeros(size + alignment, np.uint8)
    skip = -space.ctypes.data % alignment
    return space[skip : skip + size]


def compiled(job):
    """The library and what compiling it took."""
    target = ["-t", "c", "-march=native"]
    if job.machine == "gpu":
        target = ["-t", "cuda", f"-march={calibrate.gpu_arch()}"]
    name = job.path.stem if job.ranges else job.name
    library = job.cache / f"{name}-{job.precision}{target[-1]}.so"
    record = library.with_suffix(".json")
    if not zoo.newer(library, [job.mlcc, job.path]) or not record.exists():
        command = [job.mlcc, job.path, "-o", library, *target]
        if job.precision == "bf16":
            command.append("--precision=bf16")
        for name, _, dims in models.open_inputs(onnx.load(job.path, load_external_data=False)):
            for dim, size in zip(dims, job.inputs[name].shape):
                if not isinstance(dim, int):
                    command += ["--dim", f"{dim}={job.ranges.get(dim, size)}"]
        for past, present in job.states.items():
            command += ["--state", f"{past}={present}"]
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"mlcc ended with {done.returncode}: {done.stderr.strip()[:200]}")
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = {
            "compile_s": round(time.monotonic() - start, 2),
            "compile_mb": round(usage.ru_maxrss / 1024),
        }
        record.write_text(json.dumps(took))
    return library, json.loads(record.read_text())


class Session:
    def __init__(self, job):
        path, self.ran = compiled(job)
        self.library = ctypes.CDLL(str(path))
        self.library.mlcc_model_v1.restype = ctypes.POINTER(Model)
        self.model = model = self.library.mlcc_model_v1().contents
        self.state = ctypes.c_void_p()
        if model.open(ctypes.byref(self.state), None) != 0:
            raise Refused(f"open: {model.error(self.state).decode()}")
        if job.threads > 1:
            reached = model.struct_bytes >= Model.set_threads.offset + Model.set_threads.size
            if not reached or not model.set_threads:
                raise Refused("this library runs on one thread")
            if model.set_threads(self.state, job.threads) != 0:
                raise Refused(f"set_threads: {model.error(self.state).decode()}")
        self.arrays = [aligned(model.inputs[i].bytes) for i in range(model.n_inputs)]
        given = job.inputs | {name: np.int32(size) for name, size in job.extents.items()}
        for i, array in enumerate(self.arrays):
            value = np.ascontiguousarray(given[model.inputs[i].name.decode()])
            data = value.reshape(-1).view(np.uint8)
            array[: data.size] = data
        self.results = [aligned(model.outputs[i].bytes) for i in range(model.n_outputs)]
        self.arena = aligned(model.arena_bytes)
        self.arguments = (
            self.state,
            pointers(self.arrays),
            pointers(self.results),
            ctypes.c_void_p(self.arena.ctypes.data),
        )

    def run(self):
        if self.model.run(*self.arguments) != 0:
            raise RuntimeError(f"run: {self.model.error(self.state).decode()}")

    def shape(self, i):
        """What the run says of output i, if anything, else what is fixed."""
        tensor = self.model.outputs[i]
        holder = self.model.output_shape[i] if self.model.output_shape else -1
        if holder < 0:
            return tensor.shape[: tensor.rank]
        return [int(extent) for extent in self.results[holder].view(np.int64)[: tensor.rank]]

    def outputs(self):
        arrays = []
        count = self.model.n_outputs if self.model.output_shape else 0
        holders = {self.model.output_shape[i] for i in range(count)}
        for i, result in enumerate(self.results):
            if i in holders:  # shapes, and the status: 0, or run would have failed
                continue
            shape = self.shape(i)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(self.model.outputs[i].dtype)
            elements = result.view(dtype)[: math.prod(shape)]
            arrays.append(elements.reshape(shape).copy())
        return arrays


load = Session
