# Columns that leave half a vector over: where units are as wide as vectors of 64 bytes, rows end in vectors
# of two, and few channels stay apart. What is made for such processors is compiled for this one.
set -eu
build=$1 work=$2
"$(scripts/venv onnx)" tests/e2e/halves.py "$work"
check() { # MARCH CC
    for model in "$work"/*.onnx; do
        "$build/mlcc" verify "$model" -t c "-march=$1" --cc "$2" >"$work/told" ||
            { echo "$model, -march=$1" && cat "$work/told" && exit 1; }
    done
}
check native cc
for march in znver5 znver4 skylake-avx512 x86-64-v3; do
    check $march "tests/cc-any -Wno-psabi"
    for model in matmul_28x33x24 bytes_28x36x24; do
        "$build/mlcc" "$work/$model.onnx" -march=$march -o "$work/model.c"
        pairs=$(grep -c mlcc_lane_both "$work/model.c" || true)
        [ $march = znver5 ] && [ "$pairs" = 0 ] && echo "$model: no pairs of rows" && exit 1
        [ $march != znver5 ] && [ "$pairs" != 0 ] && echo "$model, -march=$march: pairs" && exit 1
    done
done
exit 0
