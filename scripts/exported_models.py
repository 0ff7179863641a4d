"""Architectures with random weights as PyTorch's exporters write them (export_models.py), and what
scikit-learn's converters make of its estimators (export_sklearn.py).

Each model lies beside the inputs that it was exported with, NAME.npz, whose shapes are those of
the first run; models.py compares what mlcc makes of them with ONNX Runtime. Open dimensions, of
texts and sounds, are run longer and shorter, too.
"""

import argparse
import json
import subprocess
import sys

import models
import numpy as np
import onnx

FOLDER = models.ROOT / "build" / "exported-models"


def example(folder, name):
    return dict(np.load(folder / f"{name}.npz"))


def set_sizes(folder, name):
    given = example(folder, name)
    model = onnx.load(folder / f"{name}.onnx", load_external_data=False)
    for key, _, shape in models.open_inputs(model):
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                size = given[key].shape[axis]
                models.DIMENSIONS.setdefault(name, {})[dim] = size
                other = [size, 2] if size == 1 else [size, max(size - 5, 1), size + 3]
                models.SIZES.setdefault(name, {})[dim] = other


def inputs_like(folder):
    """Inputs as they were exported with, or such numbers in other shapes."""

    def special_inputs(name, shapes, rng, _data):
        inputs = {}
        for key, value in example(folder, name).items():
            if key in shapes:
                shape = shapes[key]
                same = list(value.shape) == list(shape)
                inputs[key] = value if same else rng.choice(value.ravel(), shape)
        return inputs

    return special_inputs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--python", required=True)
    parser.add_argument("--exporter", choices=["dynamo", "torchscript", "sklearn"], default="dynamo")
    parser.add_argument("--filter", default="*")
    own, rest = parser.parse_known_args()
    folder = FOLDER / own.exporter
    folder.mkdir(parents=True, exist_ok=True)
    script = ["export_sklearn.py"] if own.exporter == "sklearn" else ["export_models.py", own.exporter]
    script[0] = models.ROOT / "scripts" / script[0]
    exported = subprocess.run([own.python, *script, folder, own.filter], check=False)
    names = sorted(path.stem for path in folder.glob("*.onnx"))
    for model in names:
        set_sizes(folder, model)
    index = [{"name": name, "file": f"{name}.onnx"} for name in names]
    (folder / "index.json").write_text(json.dumps(index))
    models.special_inputs = inputs_like(folder)
    sys.argv[1:] = [*rest, "--filter", own.filter, "--dir", folder, "--out", folder / "out"]
    sys.argv[1:] = map(str, sys.argv[1:])
    sys.exit(models.main() or exported.returncode)
