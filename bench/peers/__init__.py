"""One module for each runtime that is measured.

Each has `load(job)`, which returns a session that is ready to run, or raises: `Refused` where the
runtime is known not to do what is asked, anything else where it fails. A session has

    run()      runs the model once on the job's inputs; what is timed
    outputs()  the results of the last run, numpy arrays in the order of the model's outputs
    ran        what the runtime made of the model, as it says itself: a dict for the report
"""

import collections
import dataclasses
import pathlib

# The Python packages of each, in the order of the table. Which versions: scripts/venv.
PACKAGES = {
    "mlcc": (),
    "ort": ("onnxruntime",),
    "openvino": ("openvino",),
    "iree": ("iree-base-compiler", "iree-base-runtime"),
    "tvm": ("apache-tvm",),
    "torch": ("torch",),
    "cudnn": ("torch",),
}
# What runs on which machine.
ON = {
    "cpu": ("mlcc", "ort", "openvino", "iree", "tvm", "torch"),
    "gpu": ("mlcc", "torch", "cudnn"),
}


class Refused(Exception):
    """The runtime cannot do what is asked; the message says why."""


@dataclasses.dataclass
class Job:
    name: str  # of the model
    path: pathlib.Path  # of its ONNX file
    inputs: dict  # arrays by input name
    threads: int
    precision: str  # fp32, int8 or bf16
    machine: str  # cpu or gpu
    mlcc: pathlib.Path  # the compiler
    cache: pathlib.Path  # a folder for what takes long to make
    states: dict = dataclasses.field(default_factory=dict)  # inputs that outputs are in the next run
    ranges: dict = dataclasses.field(default_factory=dict)  # of dimensions of one library for them,
    extents: dict = dataclasses.field(default_factory=dict)  # and what they are in this job


def histogram(names):
    """How often each name occurs, the most frequent first."""
    return dict(collections.Counter(names).most_common())
