# The example: the trained network, as C, reads handwritten digits that it never saw.
set -eu
"$1/mlcc" examples/digits/digits.onnx -t c -o "$2/digits_model.c"
cc -std=c99 -O2 -I"$2" examples/digits/main.c "$2/digits_model.c" -lm -o "$2/digits"
"$2/digits"
