"""Trains the digit classifier of this example and writes the two files that are committed:

    digits.onnx    the trained network: float input[1,1,8,8] in 0..1 -> float output[1,10]
    heldout.h      the images that the training never saw, with their labels, as C data

Usage: python train.py [FOLDER]        (FOLDER: where to write; by default beside this file)
Needs numpy, onnx and scikit-learn; `scripts/venv train` installs the versions used.

The data is scikit-learn's bundled copy of 1,797 handwritten digits of 8x8 pixels, each 0..16. One
fifth of each class is put aside before anything else happens and is looked at only once, after the
last training step. The network is small enough to be trained with nothing but numpy: a
convolution is a matrix multiplication over gathered 3x3 patches, and each layer knows its own
derivative.
Seeds are fixed, so that a second run gives the same network up to the rounding of numpy's BLAS.
"""

import os
import pathlib
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products this small wait for each other

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

SEED = 20240229
EPOCHS = 60
BATCH = 32
HELD_BACK_SHARE = 0.2
CHANNELS = (16, 16, 32)


def split(labels, rng):
    """Index arrays (train, held back), with HELD_BACK_SHARE of every class in the second."""
    train, held = [], []
    for digit in range(10):
        members = rng.permutation(np.flatnonzero(labels == digit))
        count = round(len(members) * HELD_BACK_SHARE)
        held.append(members[:count])
        train.append(members[count:])
    return rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(held))


class Conv:
    """3x3 convolution, zero padding of one pixel, over [batch, channel, row, column]."""

    def __init__(self, rng, inputs, outputs):
        scale = np.sqrt(2.0 / (inputs * 9))
        self.weight = (rng.standard_normal((outputs, inputs, 3, 3)) * scale).astype(np.float32)
        self.bias = np.zeros(outputs, np.float32)

    def forward(self, x):
        n, c, h, w = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        self.shape = x.shape
        self.columns = patches.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
        y = self.columns @ self.weight.reshape(len(self.bias), -1).T + self.bias
        return y.reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(self, dy):
        n, c, h, w = self.shape
        dy = dy.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        self.dweight = (dy.T @ self.columns).reshape(self.weight.shape)
        self.dbias = dy.sum(0)
        dcols = (dy @ self.weight.reshape(len(self.bias), -1)).reshape(n, h, w, c, 3, 3)
        dx = np.zeros((n, c, h + 2, w + 2), np.float32)
        for row in range(3):
            for column in range(3):
                dx[:, :, row : row + h, column : column + w] += dcols[..., row, column].transpose(
                    0, 3, 1, 2
                )
        return dx[:, :, 1:-1, 1:-1]


class Relu:
    def forward(self, x):
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy):
        return dy * self.positive


class MaxPool:
    """Largest of each 2x2 block; the derivative goes to the pixels that were largest."""

    def forward(self, x):
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = blocks.max((3, 5), keepdims=True)
        winners = blocks == y
        self.share = winners / winners.sum((3, 5), keepdims=True, dtype=np.float32)
        self.shape = x.shape
        return y.reshape(n, c, h // 2, w // 2)

    def backward(self, dy):
        return (self.share * dy[:, :, :, None, :, None]).astype(np.float32).reshape(self.shape)


class Flatten:
    def forward(self, x):
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy):
        return dy.reshape(self.shape)


class Dense:
    def __init__(self, rng, inputs, outputs):
        self.weight = (rng.standard_normal((outputs, inputs)) * np.sqrt(1.0 / inputs)).astype(
            np.float32
        )
        self.bias = np.zeros(outputs, np.float32)

    def forward(self, x):
        self.x = x
        return x @ self.weight.T + self.bias

    def backward(self, dy):
        self.dweight = dy.T @ self.x
        self.dbias = dy.sum(0)
        return dy @ self.weight


class Adam:
    """Adam (Kingma and Ba) over the weights and biases of the layers that have them."""

    def __init__(self, layers):
        self.layers = [layer for layer in layers if hasattr(layer, "weight")]
        self.state = {}
        self.count = 0

    def step(self, rate):
        self.count += 1
        for layer in self.layers:
            for name in ("weight", "bias"):
                gradient = getattr(layer, "d" + name)
                mean, square = self.state.get((layer, name), (0.0, 0.0))
                mean = 0.9 * mean + 0.1 * gradient
                square = 0.999 * square + 0.001 * gradient**2
                self.state[layer, name] = mean, square
                unbiased_mean = mean / (1 - 0.9**self.count)
                unbiased_square = square / (1 - 0.999**self.count)
                getattr(layer, name)[...] -= (
                    rate * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)
                )


def softmax(logits):
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def shifted(images, rng):
    """Each image moved by -1, 0 or 1 pixels in both directions: more handwriting for free."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.empty_like(images)
    for i, (row, column) in enumerate(rng.integers(0, 3, (len(images), 2))):
        out[i] = padded[i, :, row : row + 8, column : column + 8]
    return out


def forward(layers, x):
    for layer in layers:
        x = layer.forward(x)
    return x


def train(layers, images, labels, rng):
    adam = Adam(layers)
    for epoch in range(EPOCHS):
        rate = 1e-3 * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(images))
        loss = 0.0
        for start in range(0, len(order), BATCH):
            pick = order[start : start + BATCH]
            probability = softmax(forward(layers, shifted(images[pick], rng)))
            loss -= np.log(probability[np.arange(len(pick)), labels[pick]] + 1e-12).sum()
            gradient = probability
            gradient[np.arange(len(pick)), labels[pick]] -= 1
            gradient = (gradient / len(pick)).astype(np.float32)
            for layer in reversed(layers):
                gradient = layer.backward(gradient)
            adam.step(rate)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: training loss {loss / len(order):.4f}")


def export(layers, path):
    """Writes the layers as one ONNX graph with a Softmax at its end."""
    nodes, weights, value = [], [], "input"
    for i, layer in enumerate(layers):
        kind = {"Dense": "Gemm"}.get(type(layer).__name__, type(layer).__name__)
        name = f"{kind.lower()}_{i}"
        inputs = [value]
        attributes = {
            "Conv": dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            "MaxPool": dict(kernel_shape=[2, 2], strides=[2, 2]),
            "Gemm": dict(transB=1),
        }.get(kind, {})
        if hasattr(layer, "weight"):
            for part in ("weight", "bias"):
                inputs.append(f"{name}.{part}")
                weights.append(numpy_helper.from_array(getattr(layer, part), inputs[-1]))
        value = name + ".out"
        nodes.append(helper.make_node(kind, inputs, [value], name=name, **attributes))
    nodes.append(helper.make_node("Softmax", [value], ["output"], name="softmax", axis=1))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 10])],
        weights,
        "Handwritten digits of 8x8 pixels, scaled to 0..1; output: the probability of each digit",
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="mlcc examples/digits/train.py",
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


HEADER = """\
/* Handwritten digits that the training of digits.onnx never saw; written by train.py.
 *
 * Each line is one image: its label, and its 64 pixels row by row as letters, 'a' for paper (0) to
 * 'q' for full ink (16). From the test set of Alpaydin and Kaynak, "Optical Recognition of
 * Handwritten Digits" (UCI Machine Learning Repository, CC BY 4.0), as scikit-learn carries it.
 */
#ifndef DIGITS_HELDOUT_H
#define DIGITS_HELDOUT_H

#define HELDOUT_COUNT %d

static const struct {
    unsigned char label;
    char pixels[65];
} heldout[HELDOUT_COUNT] = {
"""


def write_heldout(pixels, labels, path):
    with open(path, "w", encoding="ascii") as f:
        f.write(HEADER % len(labels))
        for image, label in zip(pixels, labels):
            letters = "".join(chr(ord("a") + int(p)) for p in image.reshape(64))
            f.write(f'    {{{label}, "{letters}"}},\n')
        f.write("};\n\n#endif\n")


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    pixels = digits.images.astype(np.float32)[:, None]
    labels = digits.target
    rng = np.random.default_rng(SEED)
    train_index, held_index = split(labels, rng)

    first, second, third = CHANNELS
    layers = [
        Conv(rng, 1, first),
        Relu(),
        Conv(rng, first, second),
        Relu(),
        MaxPool(),
        Conv(rng, second, third),
        Relu(),
        MaxPool(),
        Flatten(),
        Dense(rng, third * 4, 10),
    ]
    train(layers, pixels[train_index] / 16, labels[train_index], rng)

    export(layers, folder / "digits.onnx")
    write_heldout(pixels[held_index], labels[held_index], folder / "heldout.h")
    for name, index in (("training", train_index), ("held-back", held_index)):
        guess = forward(layers, pixels[index] / 16).argmax(1)
        right = int((guess == labels[index]).sum())
        print(f"{name} images: {right} of {len(index)} right ({right / len(index):.4f})")


if __name__ == "__main__":
    main()
