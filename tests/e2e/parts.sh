# A library whose kernels are much text is compiled in parts: what it computes is right, the bytes do not
# depend on how many compilers run at once, and if one of them fails nothing is written. So it is with kernels
# that multiply matrices, which are never inlined, and with others where they are many.
set -eu
build=$1 work=$2
"$(scripts/venv onnx)" - "$work" <<'PYTHON'
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(1)
widths = [20 + 7 * i % 199 for i in range(200)]


def save(name, nodes, weights, output, shape):
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [50, widths[0]])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, f"{sys.argv[1]}/{name}.onnx")


nodes, weights, value = [], [], "x"
for i, (rows, columns) in enumerate(zip(widths, widths[1:])):
    w = rng.normal(size=(rows, columns)) / rows**0.5
    weights.append(numpy_helper.from_array(w.astype(np.float32), f"w{i}"))
    nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"v{i}"]))
    value = f"v{i}"
save("products", nodes, weights, value, [50, widths[-1]])

nodes, weights = [], [numpy_helper.from_array(np.array(1), "axis")]
for i in range(80):
    first = numpy_helper.from_array(rng.integers(0, widths[0], 5 + i), f"first{i}")
    weights.append(first)
    nodes += [
        helper.make_node("Gather", ["x", f"first{i}"], [f"a{i}"], axis=1),
        helper.make_node("CumSum", [f"a{i}", "axis"], [f"b{i}"]),
        helper.make_node("Softmax", [f"b{i}"], [f"c{i}"], axis=0),
        helper.make_node("ReduceMax", [f"c{i}"], [f"d{i}"], axes=[1], keepdims=0),
    ]
nodes.append(helper.make_node("Sum", [f"d{i}" for i in range(80)], ["y"]))
save("others", nodes, weights, "y", [50])
PYTHON
printf '#!/bin/sh\nfor word; do case $word in -DMLCC_PART=*) echo >>"%s/parts" ;; esac; done\nexec cc "$@"\n' \
    "$(realpath "$work")" >"$work/counting"
printf '#!/bin/sh\nfor word; do case $word in -DMLCC_PART=1) exit 1 ;; esac; done\nexec cc "$@"\n' >"$work/failing"
chmod +x "$work/counting" "$work/failing"

for model in products others; do
    # with vectors most of the others would have tiles
    case $model in products) march=-march=native ;; *) march= ;; esac
    compile="$build/mlcc $work/$model.onnx $march -O1"
    rm -f "$work/parts"
    $compile --cc "$work/counting" -o "$work/a.so"
    parts=$(wc -l <"$work/parts")
    echo "$parts parts"
    test "$parts" -gt 1
    taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" $compile -o "$work/b.so"
    cmp "$work/a.so" "$work/b.so"
    "$build/mlcc" verify "$work/$model.onnx" $march

    status=0
    $compile --cc "$work/failing" -o "$work/c.so" || status=$?
    test $status -eq 3
    test ! -e "$work/c.so"
done
