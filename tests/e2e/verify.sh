# The digits network on every target against the interpreter; on Vulkan unless SKIP_VULKAN is set.
set -eu
model=examples/digits/digits.onnx
"$1/mlcc" verify $model -t c
"$1/mlcc" verify $model -t c --seed 7 --passes=-fuse,-cse
"$1/mlcc" verify $model -t cuda -march=cpu
if [ "${SKIP_VULKAN:-0}" = 0 ]; then "$1/mlcc" verify $model -t vulkan; fi
