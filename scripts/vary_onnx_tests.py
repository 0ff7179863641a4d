"""ONNX's backend tests with dimensions that vary: vary_onnx_tests.py SUITE FOLDER

Every dimension of a model's inputs becomes a symbol, one for each size that occurs: d3 for all that are
3 in the test's data, from 1 to 6. Declared shapes are taken off everything else, so that the model has
to be compiled for all extents at once, and the test's data are what one run is given.

What stays as it is: dimensions of 0, and those that say how many dimensions something has (TUPLES);
inputs that are initializers, too; and inputs that say shapes, axes, or how many elements there are
(FIXED), for ranks do not vary and a bound must come from somewhere: they become initializers with the
test's values. A model that has then no dimension left to
vary is no test of this, and is left out.

Beside each model is a file `dims`, a line for each symbol as --dim takes it, and for what nothing
else bounds: stacked outputs of loops, sizes of images.
"""
import os
import sys

import onnx

KINDS = ["node", "simple", "pytorch-converted", "pytorch-operator"]

# Operator: the inputs that say shapes, axes or numbers of elements. "*": of all whose name begins so.
FIXED = {
    "AffineGrid": [1],
    "BlackmanWindow": [0],
    "CenterCropPad": [1],
    "Col2Im": [1, 2],
    "ConstantOfShape": [0],
    "DFT": [1, 2],
    "Expand": [1],
    "HammingWindow": [0],
    "HannWindow": [0],
    "MaxUnpool": [2],
    "MelWeightMatrix": [0, 1, 2, 3, 4],
    "NonMaxSuppression": [2],
    "OneHot": [1],
    "Pad": [1, 3],
    "Range": [0, 1, 2],
    "Reduce*": [1],
    "Reshape": [1],
    "Resize": [1, 2, 3],
    "STFT": [1, 3],
    "SequenceInsert": [2],
    "Slice": [1, 2, 3, 4],
    "Split": [1],
    "SplitToSequence": [1],
    "Squeeze": [1],
    "Tile": [1, 2],
    "TopK": [1],
    "Unsqueeze": [1],
    "Upsample": [1],
}

# Operator: the inputs whose last dimension is a number of dimensions.
TUPLES = {"GatherND": [1], "ScatterND": [1]}


def fixed_places(op):
    for name, places in FIXED.items():
        if op == name or name.endswith("*") and op.startswith(name[:-1]):
            return places
    return []


def fixed_inputs(model):
    names = set()
    for node in model.graph.node:
        for place in fixed_places(node.op_type):
            if place < len(node.input):
                names.add(node.input[place])
    return names


def tuple_inputs(model):
    names = set()
    for node in model.graph.node:
        names.update(node.input[k] for k in TUPLES.get(node.op_type, []))
    return names


def load_data(folder, k, kind="input"):
    tensor = onnx.TensorProto()
    with open(f"{folder}/test_data_set_0/{kind}_{k}.pb", "rb") as file:
        tensor.ParseFromString(file.read())
    return tensor


def forget_shapes(graph):
    """Takes declared extents off all but the inputs of the model, keeping ranks."""
    del graph.value_info[:]
    for info in graph.output:
        forget_extents(info)
    for node in graph.node:
        for attribute in node.attribute:
            for sub in [attribute.g, *attribute.graphs]:
                for info in sub.input:
                    forget_extents(info)
                forget_shapes(sub)


def forget_extents(info):
    kind = info.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return
    for dim in getattr(info.type, kind).shape.dim:
        dim.Clear()


def image_dims(graph, folder):
    """What --dim says of decoded images."""
    outputs = [info.name for info in graph.output]
    for node in graph.node:
        if node.op_type == "ImageDecoder":
            data = load_data(folder, outputs.index(node.output[0]), "output")
            for axis, size in enumerate(data.dims[:2]):
                yield f"{node.output[0]}.{axis}=1..{2 * size}"


def plain_folder(folder):
    """The test of the operator itself, of a test of the function that an operator stands for."""
    at = folder.find("_expanded")
    return folder[:at] if at >= 0 and os.path.isdir(folder[:at]) else folder


def loop_bounds(folder, graph):
    """Bounds of how many iterations there are, where only a run tells."""
    outputs = [info.name for info in graph.output]
    lines = []
    for node in graph.node:
        for name in node.output[len(node.input) - 2:] if node.op_type == "Loop" else []:
            if name in outputs:
                size = load_data(folder, outputs.index(name), "output").dims[0]
                lines.append(f"{name}.0=0..{2 * size}\n")
    return lines


def vary(folder, to):
    """Writes the model that varies; False if nothing in it does."""
    model = onnx.load(f"{folder}/model.onnx")
    graph = model.graph
    fixed = fixed_inputs(model) | fixed_inputs(onnx.load(f"{plain_folder(folder)}/model.onnx"))
    tuples = tuple_inputs(model)
    initialized = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    sizes, keep, kept_data, k = set(), [], [], 0
    for info in graph.input:
        if info.name in initialized:
            keep.append(info)
            continue
        place, k = k, k + 1
        if info.type.WhichOneof("value") != "tensor_type":
            keep.append(info)
            kept_data.append(place)
            continue
        data = load_data(folder, place)
        if info.name in fixed:
            data.name = info.name
            graph.initializer.append(data)
            continue
        keep.append(info)
        kept_data.append(place)
        shape = info.type.tensor_type.shape
        del shape.dim[:]
        shape.SetInParent()
        for axis, size in enumerate(data.dims):
            dim = shape.dim.add()
            if size and (info.name not in tuples or axis + 1 < len(data.dims)):
                dim.dim_param = f"d{size}"
                sizes.add(size)
            else:
                dim.dim_value = size
    if not sizes:
        return False
    inputs = [onnx.ValueInfoProto.FromString(i.SerializeToString()) for i in keep]
    del graph.input[:]
    graph.input.extend(inputs)
    forget_shapes(graph)
    os.makedirs(to)
    onnx.save(model, f"{to}/model.onnx")
    with open(f"{to}/dims", "w", encoding="utf-8") as file:
        for size in sorted(sizes):
            file.write(f"d{size}=1..{2 * size}\n")
        for line in image_dims(graph, folder):
            file.write(f"{line}\n")
        file.writelines(loop_bounds(folder, graph))
    number = 0
    while os.path.isdir(data := os.path.abspath(f"{folder}/test_data_set_{number}")):
        os.makedirs(set_to := f"{to}/test_data_set_{number}")
        for at, place in enumerate(kept_data):
            os.symlink(f"{data}/input_{place}.pb", f"{set_to}/input_{at}.pb")
        for name in os.listdir(data):
            if name.startswith("output_"):
                os.symlink(f"{data}/{name}", f"{set_to}/{name}")
        number += 1
    return True


def main():
    suite, out = sys.argv[1:]
    made = left_out = 0
    for kind in KINDS:
        if not os.path.isdir(f"{suite}/{kind}"):
            continue
        for name in sorted(os.listdir(f"{suite}/{kind}")):
            folder = f"{suite}/{kind}/{name}"
            if not os.path.isfile(f"{folder}/model.onnx"):
                continue
            if vary(folder, f"{out}/{kind}/{name}"):
                made += 1
            else:
                left_out += 1
    print(f"{made} models vary; {left_out} have no dimension that could")


main()
