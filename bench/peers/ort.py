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
        for value in self.session.get_outputs():
            if value.name not in job.states.values():
                self.binding.bind_output(value.name)
        for name, array in job.inputs.items():
            if name in job.states:  # one buffer for both, as its own generation loop has it
                value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
                self.binding.bind_ortvalue_input(name, value)
                self.binding.bind_ortvalue_output(job.states[name], value)
            else:
                self.binding.bind_cpu_input(name, array)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        return [output.numpy() for output in self.binding.get_outputs()]


load = Session
