"""The four networks of MLPerf Tiny (Banbury et al. 2021, the closed division's reference models),
with random weights and batch normalisation folded: keywords in audio, a person in an image, the
class of an image, an odd machine by its sound. As TensorFlow pads, an odd row or column is at the
end."""

from onnx import helper

from bench.builder import FLOAT, Net


def conv(net, x, name, inputs, outputs, kernel, stride=1, group=1, pads=None):
    if pads is None and stride > 1:
        pads = [0, 0, kernel[0] // 2, kernel[1] // 2]
    return net.conv(
        x, name, inputs, outputs, kernel, stride, gain=2, group=group, pads=pads
    )


def relu(net, x, name):
    return net.node("Relu", [x], name + ".relu")


def separable(net, x, name, inputs, outputs, stride=1):
    """A depthwise convolution and one of 1 x 1."""
    x = relu(net, conv(net, x, name + ".dw", inputs, inputs, (3, 3), stride, inputs), name + ".dw")
    return relu(net, conv(net, x, name + ".pw", inputs, outputs, (1, 1)), name + ".pw")


def classes(net, x, inputs, outputs, name, shape):
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x], "pool")], "flatten", axis=1)
    x = net.gemm(x, "fc", inputs, outputs)
    net.nodes.append(helper.make_node("Softmax", [x], ["output"], axis=1))
    return net.model(name, [("input", FLOAT, shape)], [("output", FLOAT, [1, outputs])])


def keywords():
    net = Net(61)
    x = relu(net, conv(net, "input", "stem", 1, 64, (10, 4), 2, pads=[4, 1, 5, 1]), "stem")
    for i in range(4):
        x = separable(net, x, f"block{i}", 64, 64)
    return classes(net, x, 64, 12, "tiny_kws", [1, 1, 49, 10])


def person():
    net = Net(62)
    x = relu(net, conv(net, "input", "stem", 3, 8, (3, 3), 2), "stem")
    channels = 8
    widths = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)) + ((128, 1),) * 5
    for i, (width, stride) in enumerate(widths + ((256, 2), (256, 1))):
        x = separable(net, x, f"block{i}", channels, width, stride)
        channels = width
    return classes(net, x, 256, 2, "tiny_vww", [1, 3, 96, 96])


def image():
    net = Net(63)
    x = relu(net, conv(net, "input", "stem", 3, 16, (3, 3)), "stem")
    channels = 16
    for i, width in enumerate((16, 32, 64)):
        stride = 1 if i == 0 else 2
        y = relu(net, conv(net, x, f"block{i}.a", channels, width, (3, 3), stride), f"block{i}.a")
        y = conv(net, y, f"block{i}.b", width, width, (3, 3))
        if stride > 1:
            x = conv(net, x, f"block{i}.skip", channels, width, (1, 1), stride)
        x = relu(net, net.node("Add", [x, y], f"block{i}.add"), f"block{i}")
        channels = width
    return classes(net, x, 64, 10, "tiny_ic", [1, 3, 32, 32])


def oddity():
    net = Net(64)
    x, widths = "input", (640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640)
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        x = net.gemm(x, f"fc{i}", inputs, outputs, gain=2)
        if outputs != 640:
            x = relu(net, x, f"fc{i}")
    net.nodes.append(helper.make_node("Identity", [x], ["output"]))
    return net.model("tiny_ad", [("input", FLOAT, [1, 640])], [("output", FLOAT, [1, 640])])


MODELS = {"tiny_kws": keywords, "tiny_vww": person, "tiny_ic": image, "tiny_ad": oddity}
