"""ViT-B/16 at 224 (Dosovitskiy et al. 2021) as torchvision's vit_b_16 comes out of PyTorch's
exporter: one projection for queries, keys and values, tokens before the batch inside attention."""

from bench.builder import FLOAT, Net

PATCHES, WIDTH, HEADS, HIDDEN, LAYERS = 196, 768, 12, 3072, 12
TOKENS, HEAD = PATCHES + 1, WIDTH // HEADS
EPSILON = 1e-6


def attention(net, x, name):
    x = net.transpose(x, name + ".tokens", [1, 0, 2])
    x = net.linear(x, name + ".in", WIDTH, 3 * WIDTH)
    x = net.reshape(x, name + ".split", [TOKENS, 1, 3, WIDTH])
    x = net.node("Unsqueeze", [x, net.ints(name + ".axis0", [0])], name + ".unsqueeze")
    x = net.transpose(x, name + ".parts", [3, 1, 2, 0, 4])
    x = net.node("Squeeze", [x, net.ints(name + ".axis3", [3])], name + ".squeeze")
    parts = []
    # The root of the scale goes to queries and keys alike.
    root = net.scalar(name + ".scale", HEAD**-0.25)
    for i, part in enumerate(("query", "key", "value")):
        y = net.node("Gather", [x, net.ints(f"{name}.{part}.at", i)], f"{name}.{part}", axis=0)
        y = net.reshape(y, f"{name}.{part}.heads", [TOKENS, HEADS, HEAD])
        y = net.transpose(y, f"{name}.{part}.order", [1, 0, 2])
        y = net.reshape(y, f"{name}.{part}.batch", [1, HEADS, TOKENS, HEAD])
        if part == "key":
            y = net.transpose(y, f"{name}.key.turned", [0, 1, 3, 2])
        if part != "value":
            y = net.node("Mul", [y, root], f"{name}.{part}.scaled")
        parts.append(y)
    y = net.node("MatMul", parts[:2], name + ".scores")
    y = net.node("Softmax", [y], name + ".softmax", axis=-1)
    y = net.node("MatMul", [y, parts[2]], name + ".context")
    y = net.transpose(y, name + ".context.order", [2, 0, 1, 3])
    y = net.reshape(y, name + ".context.join", [TOKENS, WIDTH])
    y = net.gemm(y, name + ".out", WIDTH, WIDTH)
    y = net.reshape(y, name + ".out.batch", [TOKENS, 1, WIDTH])
    return net.transpose(y, name, [1, 0, 2])


def layer(net, x, name):
    y = net.layer_norm(x, name + ".norm1", WIDTH, EPSILON)
    x = net.node("Add", [attention(net, y, name + ".attention"), x], name + ".add1")
    y = net.layer_norm(x, name + ".norm2", WIDTH, EPSILON)
    y = net.gelu(net.linear(y, name + ".wide", WIDTH, HIDDEN), name + ".gelu")
    y = net.linear(y, name + ".narrow", HIDDEN, WIDTH)
    return net.node("Add", [x, y], name + ".add2")


def build():
    net = Net(16)
    x = net.conv("input", "conv_proj", 3, WIDTH, 16, 16, pad=0)
    x = net.reshape(x, "patches", [1, WIDTH, PATCHES])
    x = net.transpose(x, "patches.last", [0, 2, 1])
    token = net.random("class_token", (1, 1, WIDTH), 1.0)
    x = net.node("Concat", [token, x], "tokens", axis=1)
    x = net.node("Add", [x, net.random("positions", (1, TOKENS, WIDTH), 0.5)], "embedded")
    for i in range(LAYERS):
        x = layer(net, x, f"layer{i}")
    x = net.layer_norm(x, "norm", WIDTH, EPSILON)
    x = net.node("Gather", [x, net.ints("at0", 0)], "class", axis=1)
    net.gemm(x, "output", WIDTH, 1000)
    return net.model(
        "vit_b16", [("input", FLOAT, [1, 3, 224, 224])], [("output", FLOAT, [1, 1000])]
    )
