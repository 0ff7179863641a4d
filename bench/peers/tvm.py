"""Apache TVM's default build for this CPU. Its schedules are found by tuning, which takes hours
for a model of usual size; without it, as here, loops stay as they come and run on one thread."""

import pathlib

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from bench import zoo
from bench.peers import Refused


def compiled(job):
    """The library; made anew when the model is newer."""
    library = job.cache / f"{job.name}-{job.precision}-tvm.so"
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    if not zoo.newer(library, [job.path, pathlib.Path(__file__)]):
        module = from_onnx(onnx.load(job.path), keep_params_in_input=False)
        triple = tvm.target.codegen.llvm_get_system_triple()
        target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu})
        with tvm.transform.PassContext(opt_level=3):
            tvm.compile(module, target=target).export_library(str(library))
    return library, cpu


class Session:
    def __init__(self, job):
        if job.precision == "bf16":
            raise Refused("its default build has no bf16 mode")
        library, cpu = compiled(job)
        self.ran = {"build": "default, not tuned", "cpu": cpu}
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        inputs = [tvm.runtime.tensor(array) for array in job.inputs.values()]
        machine.set_input("main", *inputs)
        self.machine, self.inputs = machine, inputs

    def run(self):
        self.machine.invoke_stateful("main")

    def outputs(self):
        results = self.machine.get_outputs("main")
        single = isinstance(results, tvm.runtime.Tensor)
        return [result.numpy() for result in ([results] if single else results)]


load = Session
