# Random networks of sizes that people run are what ONNX Runtime says; see networks.py.
set -eu
"$(scripts/venv onnx)" tests/e2e/networks.py "$1/mlcc" "$2"
