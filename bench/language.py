"""A language model of 135 M parameters (the shapes of SmolLM2) with weights of 4 bits, as ONNX
Runtime's model builder writes them: MatMulNBits, GroupQueryAttention, a cache of keys and values
that a caller hands in and gets back, in one buffer of ROOM tokens.

Its tasks are calls of that one model: a token where few or many are in the cache, and a prompt.
"""

import math

import numpy as np

from bench.builder import FLOAT, INT64, Net, TensorProto, helper

LAYERS, WIDTH, HEADS, KEYS, HEAD, HIDDEN, WORDS = 30, 576, 9, 3, 64, 1536, 49152
ROOM, BLOCK, EPSILON = 1024, 32, 1e-5
FILE = "language_135m_4bits"
# Tokens of the call, and tokens before it.
TASKS = {
    "language_token": (1, 16),
    "language_token_1000": (1, 1000),
    "language_prompt_256": (256, 0),
}
STATES = {
    f"past.{i}.{part}": f"present.{i}.{part}" for i in range(LAYERS) for part in ("key", "value")
}
# What one library is compiled for.
RANGES = {"seq": "1..256", "total": f"1..{ROOM}"}


def microsoft(net, op, inputs, outputs, **attributes):
    net.nodes.append(
        helper.make_node(op, inputs, outputs, outputs[0], domain="com.microsoft", **attributes)
    )
    return outputs[-1]


def linear(net, x, name, inputs, outputs):
    blocks = inputs // BLOCK
    words = net.rng.integers(0, 256, (outputs, blocks, BLOCK // 2)).astype(np.uint8)
    scales = (0.5 + net.rng.random(outputs * blocks)) * 0.2 / math.sqrt(inputs)
    weights = [
        net.constant(name + ".words", words),
        net.constant(name + ".scales", scales.astype(np.float32)),
    ]
    return microsoft(net, "MatMulNBits", [x, *weights], [name], K=inputs, N=outputs, bits=4,
                     block_size=BLOCK, accuracy_level=4)


def norm(net, name):
    return net.constant(name, (1 + 0.1 * net.rng.standard_normal(WIDTH)).astype(np.float32))


def add_and_norm(net, x, y, name):
    """The normalised sum, and the sum."""
    outputs = [name, "", "", name + ".sum"]
    microsoft(net, "SkipSimplifiedLayerNormalization", [x, y, norm(net, name + ".weight")],
              outputs, epsilon=EPSILON)
    return name, name + ".sum"


def lengths(net):
    """How many tokens there are when the call is done, less one; and the length of the mask."""
    one = net.ints("one", [1])
    last = net.node("Sub", [net.node("ReduceSum", ["attention_mask", one], "sums"), one], "before")
    total = net.node("Gather", [net.node("Shape", ["attention_mask"], "shape"),
                                net.constant("axis", np.array(1))], "length")
    cast = {"to": TensorProto.INT32}
    return net.node("Cast", [last], "last", **cast), net.node("Cast", [total], "total", **cast)


def build():
    net = Net(13)
    angle = np.outer(np.arange(ROOM), 1e4 ** (-np.arange(HEAD // 2) / (HEAD // 2)))
    turns = [net.constant("cos", np.cos(angle).astype(np.float32)),
             net.constant("sin", np.sin(angle).astype(np.float32))]
    counts = lengths(net)
    x = net.node("Gather", [net.random("embeddings", (WORDS, WIDTH), 1.0), "input_ids"], "words")
    y = net.node("SimplifiedLayerNormalization", [x, norm(net, "first.weight")], "first",
                 epsilon=EPSILON, axis=-1)
    for i in range(LAYERS):
        name = f"layer{i}."
        query = linear(net, y, name + "query", WIDTH, HEADS * HEAD)
        key = linear(net, y, name + "key", WIDTH, KEYS * HEAD)
        value = linear(net, y, name + "value", WIDTH, KEYS * HEAD)
        caches = [f"past.{i}.key", f"past.{i}.value"]
        microsoft(net, "GroupQueryAttention", [query, key, value, *caches, *counts, *turns],
                  [name + "attention", *(STATES[cache] for cache in caches)],
                  num_heads=HEADS, kv_num_heads=KEYS, do_rotary=1)
        out = linear(net, name + "attention", name + "out", HEADS * HEAD, WIDTH)
        y, x = add_and_norm(net, x, out, name + "norm")
        gate = linear(net, y, name + "gate", WIDTH, HIDDEN)
        gate = net.node("Mul", [gate, net.node("Sigmoid", [gate], name + "sigmoid")], name + "silu")
        wide = net.node("Mul", [gate, linear(net, y, name + "up", WIDTH, HIDDEN)], name + "wide")
        y, x = add_and_norm(net, x, linear(net, wide, name + "down", HIDDEN, WIDTH), name + "next")
    head = linear(net, y, "logits", WIDTH, WORDS)
    inputs = [("input_ids", INT64, [1, "seq"]), ("attention_mask", INT64, [1, "total"])]
    inputs += [(name, FLOAT, [1, KEYS, ROOM, HEAD]) for name in STATES]
    outputs = [(head, FLOAT, [1, "seq", WORDS])]
    outputs += [(name, FLOAT, [1, KEYS, ROOM, HEAD]) for name in STATES.values()]
    model = net.model("language", inputs, outputs)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def inputs(task, rng):
    """A cache of zeros: a library that keeps it begins with that, too."""
    seq, before = TASKS[task]
    caches = {name: np.zeros((1, KEYS, ROOM, HEAD), np.float32) for name in STATES}
    return {
        "input_ids": rng.integers(0, WORDS, (1, seq)),
        "attention_mask": np.ones((1, before + seq), np.int64),
        **caches,
    }


def extents(arrays):
    """The dimensions that vary, as a call gives them."""
    return {"seq": arrays["input_ids"].shape[1], "total": arrays["attention_mask"].shape[1]}
