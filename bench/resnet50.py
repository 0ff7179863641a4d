"""ResNet-50 v1.5 (He et al. 2016, the stride in the 3x3 convolution) as torchvision's resnet50
comes out of PyTorch's exporter: batch normalisation folded into the convolutions."""

from bench.builder import FLOAT, Net

# channels inside a block, number of blocks, stride of the first: table 1 of the paper
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


def bottleneck(net, x, name, inputs, width, stride):
    y = net.node("Relu", [net.conv(x, name + ".conv1", inputs, width, 1, gain=2)], name + ".relu1")
    y = net.conv(y, name + ".conv2", width, width, 3, stride, gain=2)
    y = net.node("Relu", [y], name + ".relu2")
    # The branch adds a fifth to the variance: sixteen blocks leave the sum of order 1.
    y = net.conv(y, name + ".conv3", width, 4 * width, 1, gain=0.4)
    if inputs != 4 * width:
        x = net.conv(x, name + ".downsample", inputs, 4 * width, 1, stride, gain=1.5)
    return net.node("Relu", [net.node("Add", [y, x], name + ".add")], name)


def build():
    net = Net(50)
    x = net.node("Relu", [net.conv("input", "conv1", 3, 64, 7, 2, gain=2)], "relu")
    x = net.node(
        "MaxPool",
        [x],
        "maxpool",
        ceil_mode=0,
        dilations=[1, 1],
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[2, 2],
    )
    channels = 64
    for stage, (width, count, stride) in enumerate(STAGES, 1):
        for i in range(count):
            first = stride if i == 0 else 1
            x = bottleneck(net, x, f"layer{stage}.{i}", channels, width, first)
            channels = 4 * width
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x], "avgpool")], "flatten", axis=1)
    net.gemm(x, "output", 2048, 1000, gain=0.03)
    return net.model(
        "resnet50", [("input", FLOAT, [1, 3, 224, 224])], [("output", FLOAT, [1, 1000])]
    )
