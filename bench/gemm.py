"""Models of one product A B with a constant B: what a linear layer, or a 1x1 convolution with its
pixels as rows, comes down to."""

from bench.builder import FLOAT, Net

# rows of A, columns of B, length of the sums
SIZES = (
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (3136, 24, 144),  # MobileNetV2: the projections of three stages
    (784, 32, 192),
    (196, 64, 384),
    (49, 160, 960),
    (128, 768, 768),  # BERT-base
    (1, 768, 3072),  # one row: the weights are read once and used once
)


def build(m, n, k):
    net = Net(k)
    net.node("MatMul", ["a", net.random("b", (k, n), k**-0.5)], "output")
    return net.model("gemm", [("a", FLOAT, [m, k])], [("output", FLOAT, [m, n])])
