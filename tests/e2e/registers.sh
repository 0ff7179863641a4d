# A tile of vectors of 64 bytes stays in registers in the loop over its depth, whatever follows.
set -eu
build=$1 work=$2
if [ "$(uname -m)" != x86_64 ]; then exit 0; fi
"$(scripts/venv onnx)" - "$work/m.onnx" <<'PYTHON'
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

channels, size = 728, 38
nodes, weights, value = [], [], "x"
for i, (depth, window) in enumerate([(1, 3), (channels, 1), (1, 3)]):
    w = np.full((channels, depth, window, window), 0.01, np.float32)
    weights.append(numpy_helper.from_array(w, f"w{i}"))
    weights.append(numpy_helper.from_array(w[:, 0, 0, 0], f"b{i}"))
    group, edge = channels // depth, window // 2
    nodes.append(
        helper.make_node("Conv", [value, f"w{i}", f"b{i}"], [f"c{i}"], group=group, pads=[edge] * 4)
    )
    nodes.append(helper.make_node("Relu", [f"c{i}"], [f"v{i}"]))
    value = f"v{i}"
shape = [1, channels, size, size]
graph = helper.make_graph(
    nodes,
    "registers",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
    [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
    weights,
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.save(model, sys.argv[1])
PYTHON
"$build/mlcc" "$work/m.onnx" -march=x86-64-v4 -o "$work/m.so"
objdump -d --no-show-raw-insn "$work/m.so" >"$work/m.s"
grep -q 'vfmadd.*zmm' "$work/m.s"
if grep 'zmm.*(%rsp)\|(%rsp).*zmm' "$work/m.s"; then echo "vectors are kept on the stack" && exit 1; fi
