"""BERT-base (Devlin et al. 2019), sequence of 128, as Hugging Face's BertModel with eager
attention comes out of PyTorch's exporter: three embeddings, a mask that adds a huge negative
number, twelve layers, and the pooler."""

import numpy as np

from bench.builder import FLOAT, INT64, Net

WORDS, TOKENS, WIDTH, HEADS, HIDDEN, LAYERS = 30522, 128, 768, 12, 3072, 12
HEAD = WIDTH // HEADS
EPSILON = 1e-12


def embeddings(net):
    words = net.random("word_embeddings", (WORDS, WIDTH), 1.0)
    types = net.random("token_type_embeddings", (2, WIDTH), 0.5)
    places = net.random("position_embeddings", (1, TOKENS, WIDTH), 0.5)
    x = net.node("Gather", [words, "input_ids"], "words")
    x = net.node("Add", [x, net.node("Gather", [types, "token_type_ids"], "types")], "words.types")
    x = net.node("Add", [x, places], "embeddings.sum")
    return net.layer_norm(x, "embeddings", WIDTH, EPSILON)


def additive_mask(net):
    """0 where a token counts, the lowest float where it does not, [1, 1, 1, TOKENS]."""
    x = net.node("Unsqueeze", ["attention_mask", net.ints("axis1", [1])], "mask.1")
    x = net.node("Unsqueeze", [x, net.ints("axis2", [2])], "mask.2")
    x = net.node("Cast", [x], "mask.float", to=FLOAT)
    x = net.node("Sub", [net.scalar("mask.one", 1), x], "mask.inverse")
    return net.node("Mul", [x, net.scalar("lowest", np.finfo(np.float32).min)], "mask")


def attention(net, x, name, mask):
    parts = {}
    for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        y = net.linear(x, f"{name}.{part}", WIDTH, WIDTH)
        y = net.reshape(y, f"{name}.{part}.split", [1, TOKENS, HEADS, HEAD])
        parts[part] = net.transpose(y, f"{name}.{part}.heads", order)
    y = net.node("MatMul", [parts["query"], parts["key"]], name + ".scores")
    y = net.node("Div", [y, net.scalar(name + ".root", HEAD**0.5)], name + ".scaled")
    y = net.node("Add", [y, mask], name + ".masked")
    y = net.node("Softmax", [y], name + ".softmax", axis=-1)
    y = net.node("MatMul", [y, parts["value"]], name + ".context")
    y = net.transpose(y, name + ".context.heads", [0, 2, 1, 3])
    y = net.reshape(y, name + ".context.join", [1, TOKENS, WIDTH])
    return net.linear(y, name + ".out", WIDTH, WIDTH)


def layer(net, x, name, mask):
    y = net.node("Add", [attention(net, x, name + ".attention", mask), x], name + ".add1")
    x = net.layer_norm(y, name + ".norm1", WIDTH, EPSILON)
    y = net.gelu(net.linear(x, name + ".wide", WIDTH, HIDDEN), name + ".gelu")
    y = net.node("Add", [net.linear(y, name + ".narrow", HIDDEN, WIDTH), x], name + ".add2")
    return net.layer_norm(y, name + ".norm2", WIDTH, EPSILON)


def build():
    net = Net(12)
    x, mask = embeddings(net), additive_mask(net)
    for i in range(LAYERS - 1):
        x = layer(net, x, f"layer{i}", mask)
    x = net.node("Identity", [layer(net, x, "last", mask)], "last_hidden_state")
    y = net.node("Gather", [x, net.ints("at0", 0)], "first_token", axis=1)
    net.node("Tanh", [net.gemm(y, "pooler", WIDTH, WIDTH)], "pooler_output")
    names = ("input_ids", "attention_mask", "token_type_ids")
    return net.model(
        "bert_base",
        [(name, INT64, [1, TOKENS]) for name in names],
        [
            ("last_hidden_state", FLOAT, [1, TOKENS, WIDTH]),
            ("pooler_output", FLOAT, [1, WIDTH]),
        ],
    )


def inputs(rng):
    """A sentence pair that does not fill the sequence."""
    mask = np.ones((1, TOKENS), np.int64)
    mask[:, 120:] = 0
    types = np.zeros((1, TOKENS), np.int64)
    types[:, 50:120] = 1
    return {
        "input_ids": rng.integers(0, WORDS, (1, TOKENS)),
        "attention_mask": mask,
        "token_type_ids": types,
    }
