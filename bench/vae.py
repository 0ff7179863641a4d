"""The decoder of Stable Diffusion's autoencoder (Rombach et al. 2022), a latent of 4x32x32 to an
image of 3x256x256, as diffusers' AutoencoderKL comes out of PyTorch's exporter: group
normalisation as InstanceNormalization between reshapes, SiLU as x sigmoid(x), one attention."""

import numpy as np

from bench.builder import FLOAT, Net

SIDE, LATENT, GROUPS = 32, 4, 32
CHANNELS = (512, 512, 256, 128)  # of the four stages, each but the last doubling the side
BLOCKS = 3
EPSILON = 1e-6


def group_norm(net, x, name, channels, dims):
    """`dims`: the extents behind the channels."""
    ones = net.constant(name + ".ones", np.ones(GROUPS, np.float32))
    zeros = net.constant(name + ".zeros", np.zeros(GROUPS, np.float32))
    y = net.reshape(x, name + ".groups", [0, GROUPS, -1])
    y = net.node("InstanceNormalization", [y, ones, zeros], name + ".instance", epsilon=EPSILON)
    y = net.reshape(y, name + ".ungroup", [1, channels, *dims])
    shape = (channels,) + (1,) * len(dims)
    scale = 1 + 0.1 * net.rng.standard_normal(shape)
    y = net.node(
        "Mul", [y, net.constant(name + ".weight", scale.astype(np.float32))], name + ".mul"
    )
    return net.node("Add", [y, net.random(name + ".bias", shape, 0.1)], name)


def norm_silu(net, x, name, channels, side):
    x = group_norm(net, x, name, channels, (side, side))
    return net.node("Mul", [x, net.node("Sigmoid", [x], name + ".sigmoid")], name + ".silu")


def residual(net, x, name, inputs, outputs, side):
    y = norm_silu(net, x, name + ".norm1", inputs, side)
    y = net.conv(y, name + ".conv1", inputs, outputs, 3, gain=2)
    y = norm_silu(net, y, name + ".norm2", outputs, side)
    y = net.conv(y, name + ".conv2", outputs, outputs, 3, gain=1)
    if inputs != outputs:
        x = net.conv(x, name + ".shortcut", inputs, outputs, 1)
    return net.node("Add", [x, y], name)


def attention(net, x, name, channels, side):
    y = net.reshape(x, name + ".flat", [1, channels, side * side])
    y = group_norm(net, y, name + ".norm", channels, (side * side,))
    y = net.transpose(y, name + ".last", [0, 2, 1])
    query, key, value = (
        net.transpose(
            net.reshape(
                net.linear(y, f"{name}.{part}", channels, channels),
                f"{name}.{part}.split",
                [1, side * side, 1, channels],
            ),
            f"{name}.{part}.heads",
            order,
        )
        for part, order in (
            ("query", [0, 2, 1, 3]),
            ("key", [0, 2, 3, 1]),
            ("value", [0, 2, 1, 3]),
        )
    )
    root = net.scalar(name + ".scale", channels**-0.25)
    query = net.node("Mul", [query, root], name + ".query.scaled")
    key = net.node("Mul", [key, root], name + ".key.scaled")
    y = net.node("Softmax", [net.node("MatMul", [query, key], name + ".scores")], name + ".softmax")
    y = net.node("MatMul", [y, value], name + ".context")
    y = net.transpose(y, name + ".context.heads", [0, 2, 1, 3])
    y = net.reshape(y, name + ".context.join", [1, side * side, channels])
    y = net.linear(y, name + ".out", channels, channels)
    y = net.reshape(
        net.transpose(y, name + ".first", [0, 2, 1]), name + ".image", [1, channels, side, side]
    )
    return net.node("Add", [y, x], name)


def upsample(net, x, name, channels):
    scales = net.constant(name + ".scales", np.float32([1, 1, 2, 2]))
    x = net.node(
        "Resize",
        [x, "", scales],
        name + ".resize",
        coordinate_transformation_mode="asymmetric",
        cubic_coeff_a=-0.75,
        mode="nearest",
        nearest_mode="floor",
    )
    return net.conv(x, name, channels, channels, 3)


def build():
    net = Net(15)
    x = net.conv("latent", "post_quant_conv", LATENT, LATENT, 1)
    channels, side = CHANNELS[0], SIDE
    x = net.conv(x, "conv_in", LATENT, channels, 3)
    x = residual(net, x, "mid.0", channels, channels, side)
    x = attention(net, x, "mid.attention", channels, side)
    x = residual(net, x, "mid.1", channels, channels, side)
    for stage, outputs in enumerate(CHANNELS):
        for block in range(BLOCKS):
            x = residual(net, x, f"up{stage}.{block}", channels, outputs, side)
            channels = outputs
        if stage + 1 < len(CHANNELS):
            x = upsample(net, x, f"up{stage}.sample", channels)
            side *= 2
    x = norm_silu(net, x, "norm_out", channels, side)
    net.conv(x, "image", channels, 3, 3)
    return net.model(
        "vae_decoder",
        [("latent", FLOAT, [1, LATENT, SIDE, SIDE])],
        [("image", FLOAT, [1, 3, side, side])],
    )
