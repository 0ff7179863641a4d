# Sorting, and choosing boxes, of as many as detectors have, are what ONNX Runtime says.
set -eu
"$(scripts/venv onnx)" tests/e2e/detection.py "$1/mlcc" "$2"
