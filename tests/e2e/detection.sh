# Sorting, and choosing boxes, of as many as detectors have, are what ONNX Runtime says.
set -eu
"$(scripts/venv onnx)" tests/e2e/detection.py "$1/mlcc" "$2"
"$1/mlcc" "$2/varying_largest.onnx" --dim n=1..1500 -march=generic -o "$2/model.c"
if grep -E "for \(.* < (1500|3000);" "$2/model.c"; then
    echo "goes as far as n may, not as it does"
    exit 1
fi
