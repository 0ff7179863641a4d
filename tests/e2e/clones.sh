# What a library's C compiler does with kernels of which it knows the operands: see clones.py.
set -eu
build=$1 work=$2
grep -qw avx2 /proc/cpuinfo || exit 0
python=$(scripts/venv onnx)
"$python" tests/e2e/clones.py "$work"
"$build/mlcc" verify "$work/clones.onnx" -t c -march=x86-64-v3 --passes=-fuse
