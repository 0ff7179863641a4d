# Vectors of 64-bit Arm: what models compute in an emulator is what the interpreter does.
set -eu
build=$1 work=$2
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null || { echo "arm64: no $tool (scripts/setup arm64 installs it): passed over" && exit 0; }
done
python=$(scripts/venv onnx)
"$python" tests/e2e/bytes.py "$work"
cp examples/digits/digits.onnx "$work/floats.onnx"
PYTHONPATH=.:scripts "$python" tests/e2e/arm64.py "$build/mlcc" "$work"
