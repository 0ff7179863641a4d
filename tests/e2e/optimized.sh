# What C compilers optimise a lot, or wrongly, computes what it should, on any number of threads.
set -eu
"$(scripts/venv onnx)" tests/e2e/optimized.py "$1/mlcc" "$2"
