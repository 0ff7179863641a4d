"""OpenVINO's CPU plugin, tuned for latency."""

import openvino

from bench.peers import histogram


class Session:
    def __init__(self, job):
        core = openvino.Core()
        config = {
            "INFERENCE_NUM_THREADS": job.threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if job.precision == "bf16" else "f32",
        }
        model = core.read_model(job.path)
        if model.is_dynamic():
            model.reshape({name: array.shape for name, array in job.inputs.items()})
        self.compiled = core.compile_model(model, "CPU", config)
        self.request = self.compiled.create_infer_request()
        # Tensors over the arrays' own memory: nothing is copied when it runs.
        self.tensors = [openvino.Tensor(array, shared_memory=True) for array in job.inputs.values()]
        for name, tensor in zip(job.inputs, self.tensors):
            self.request.set_tensor(name, tensor)
        nodes = [op.get_rt_info() for op in self.compiled.get_runtime_model().get_ops()]
        keys = ("layerType", "runtimePrecision", "primitiveType")
        kernels = [[node[key].astype(str) for key in keys] for node in nodes]
        self.ran = {"kernels": histogram(" ".join(k) for k in kernels if k[0] != "Const")}

    def run(self):
        self.request.infer()

    def outputs(self):
        return [self.request.get_tensor(output).data.copy() for output in self.compiled.outputs]


load = Session
