"""ONNX Runtime's CPU provider with all its optimisations."""

import tempfile

import onnx
import onnxruntime

from bench.peers import Refused, histogram


class Session:
    def __init__(self, job):
        if job.precision == "bf16":
            raise Refused("no bf16 kernels on x86 CPUs")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        with tempfile.TemporaryDirectory(dir=job.cache) as folder:
            options.optimized_model_filepath = f"{folder}/optimised.onnx"
            self.session = onnxruntime.InferenceSession(
                job.path, options, providers=["CPUExecutionProvider"]
            )
            optimised = onnx.load(options.optimized_model_filepath, load_external_data=False)
        self.ran = {
            "ops": histogram(
                f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                for node in optimised.graph.node
            )
        }
        self.binding = self.session.io_binding()
        for name, array in job.inputs.items():
            self.binding.bind_cpu_input(name, array)
        for value in self.session.get_outputs():
            self.binding.bind_output(value.name)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        return self.binding.copy_outputs_to_cpu()


load = Session
