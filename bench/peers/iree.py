"""IREE: the model compiled for this CPU, run by its local drivers."""

import pathlib
import subprocess
import sys

import iree.runtime
import numpy as np

from bench import zoo
from bench.peers import Refused

OPTIONS = [
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
    # Without it BERT is refused: a softmax wants 74 KB.
    "--iree-llvmcpu-stack-allocation-limit=262144",
]


def tool(name, *arguments):
    """Runs one of IREE's programs, which lie beside this interpreter."""
    command = [pathlib.Path(sys.executable).with_name(name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
        errors = [line for line in done.stderr.splitlines() if "rror" in line] or ["no message"]
        raise Refused(f"{name} ended with {done.returncode}: {errors[-1][-200:]}")


def compiled(job):
    """The module; made anew when the model is newer."""
    module = job.cache / f"{job.name}-{job.precision}.vmfb"
    if not zoo.newer(module, [job.path, pathlib.Path(__file__)]):
        imported = module.with_suffix(".mlir")
        try:
            tool("iree-import-onnx", job.path, "-o", imported)
            tool("iree-compile", imported, *OPTIONS, "-o", module)
        finally:
            imported.unlink(missing_ok=True)
    return module


class Session:
    def __init__(self, job):
        if job.precision == "bf16":
            raise Refused("its options that demote products to bf16 change nothing for this CPU")
        driver = "local-sync" if job.threads == 1 else "local-task"
        self.ran = {"driver": driver, "options": OPTIONS}
        iree.runtime.flags.parse_flags(
            f"--task_topology_group_count={job.threads}", "--task_worker_stack_size=1048576"
        )
        config = iree.runtime.Config(driver)
        module = iree.runtime.load_vm_flatbuffer_file(str(compiled(job)), driver=driver)
        # Beside the model itself there are `__init` and an asynchronous `NAME$async`.
        names = [name for name in module.vm_module.function_names if "$" not in name]
        self.function = module[next(name for name in names if not name.startswith("__"))]
        self.inputs = [
            iree.runtime.asdevicearray(config.device, np.ascontiguousarray(array))
            for array in job.inputs.values()
        ]
        self.results = None

    def run(self):
        self.results = self.function(*self.inputs)

    def outputs(self):
        results = self.results if isinstance(self.results, (tuple, list)) else [self.results]
        return [np.array(result.to_host()) for result in results]


load = Session
