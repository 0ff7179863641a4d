"""A model whose inputs are maps, for maps.sh.

    maps.py make FOLDER                   the model, and the inputs of some rounds
    maps.py check FOLDER ROUND RESULTS    compares RESULTS/*.npy with dictionaries, and with ONNX
                                          Runtime, whose Python can be given two kinds of maps
"""

import pathlib
import pickle
import random
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

F, I, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
MAPS = {"words": (S, F), "numbers": (I, F), "texts": (I, S), "counts": (S, I)}
FED = {"words", "numbers"}  # to ONNX Runtime
DTYPES = {F: "f4", I: "i8", S: "S8"}
WORDS = ["a", "b", "", "word", "a", "ab", "äß"]
NUMBERS = [3, -1, 2**40, 0, 5]
LENGTH = 7
ROUNDS = 4

# output: input, operator, attributes
NODES = {
    "word_vector": ("words", "DictVectorizer", {"string_vocabulary": WORDS}),
    "number_vector": ("numbers", "DictVectorizer", {"int64_vocabulary": NUMBERS}),
    "text_vector": ("texts", "DictVectorizer", {"int64_vocabulary": NUMBERS}),
    "count_vector": ("counts", "DictVectorizer", {"string_vocabulary": WORDS}),
}
for source in ("numbers", "texts"):
    for cast in ("TO_FLOAT", "TO_INT64", "TO_STRING"):
        for form in ("DENSE", "SPARSE"):
            attributes = {"cast_to": cast, "map_form": form, "max_map": LENGTH}
            NODES[f"{source}_{cast}_{form}"] = source, "CastMap", attributes


def model(sources):
    nodes, outputs = [], []
    for name, (source, op, attributes) in NODES.items():
        if source in sources:
            nodes.append(helper.make_node(op, [source], [name], domain="ai.onnx.ml", **attributes))
            outputs.append(helper.make_empty_tensor_value_info(name))
    inputs = []
    for name in sources:
        key, value = MAPS[name]
        value_type = helper.make_tensor_type_proto(value, [])
        inputs.append(helper.make_value_info(name, helper.make_map_type_proto(key, value_type)))
    graph = helper.make_graph(nodes, "maps", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def random_map(rng, name, size):
    key, value = MAPS[name]
    keys = set(WORDS) | {"other", "c"} if key == S else set(NUMBERS) | {1, 2, 6, 7, 2**62}
    keys.discard(-1)  # no index of a sparse form
    if value == F:
        values = [float(np.float32(rng.uniform(-1, 1) * 10 ** rng.randint(-7, 15))) for _ in keys]
    elif value == I:
        values = [rng.randint(-(2**63), 2**63 - 1) for _ in keys]
    else:
        values = [str(rng.randint(-99999, 99999)) for _ in keys]
    return dict(zip(rng.sample(sorted(keys), size), values))


def make(folder):
    onnx.save(model(MAPS), folder / "maps.onnx")
    rng = random.Random(5)
    rounds = []
    for k in range(ROUNDS):
        maps = {name: random_map(rng, name, k and rng.randint(1, 6)) for name in MAPS}
        rounds.append(maps)
        for name, entries in maps.items():
            for part, dtype, column in zip(
                ("keys", "values"), MAPS[name], (entries.keys(), entries.values())
            ):
                column = [x.encode() if isinstance(x, str) else x for x in column]
                np.save(folder / f"{k}.{name}.{part}.npy", np.array(column, DTYPES[dtype]))
    (folder / "maps.pickle").write_bytes(pickle.dumps(rounds))


def expected(entries, op, attributes):
    """What a dictionary says, as a list; None is what stands for a missing number or string."""
    if op == "DictVectorizer":
        vocabulary = attributes.get("string_vocabulary", attributes.get("int64_vocabulary"))
        return [entries.get(word) for word in vocabulary]
    cast = attributes["cast_to"]
    convert = {"TO_FLOAT": float, "TO_INT64": int, "TO_STRING": str}[cast]
    if cast == "TO_STRING" and any(isinstance(v, float) for v in entries.values()):
        convert = "{:f}".format
    if attributes["map_form"] == "DENSE":
        return [convert(entries[key]) for key in sorted(entries)]
    absent = "0.f" if cast == "TO_STRING" else None
    return [convert(entries[k]) if k in entries else absent for k in range(LENGTH)]


def check(folder, number, results):
    maps = pickle.loads((folder / "maps.pickle").read_bytes())[number]
    session = onnxruntime.InferenceSession(model(sorted(FED)).SerializeToString())
    theirs = {}
    if all(maps[name] for name in FED):
        names = [x.name for x in session.get_outputs()]
        theirs = dict(zip(names, session.run(names, {name: maps[name] for name in FED})))
    for name, (source, op, attributes) in NODES.items():
        got = np.load(results / f"{name}.npy")
        text = got.dtype.kind == "S"
        want = expected(maps[source], op, attributes)
        want = [(b"" if text else 0) if x is None else x for x in want]
        want = np.array([x.encode() if isinstance(x, str) else x for x in want], got.dtype)
        assert np.array_equal(got, want[None]), (name, maps[source], got, want)
        if name in theirs:
            other = theirs[name].astype("S") if text else theirs[name]
            assert np.array_equal(got, other), (name, maps[source], got, other)


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "make":
        make(where)
    else:
        check(where, int(sys.argv[3]), pathlib.Path(sys.argv[4]))
