# What warps of a device multiply, floats of 16 bits and bytes, is by the emulation what the interpreter
# says; NVRTC, where there is one, takes the text.
#
#   warps.sh BUILD WORK [ARCH]    ARCH: of a device that is there, instead of the emulation
#   $PYTHON: this one, which has onnx, instead of build/venv
set -eu
build=$1 work=$2 arch=${3:-cpu}
python=${PYTHON:-$(scripts/venv onnx)}
for script in tiles warps; do
    PYTHONDONTWRITEBYTECODE=1 "$python" tests/e2e/$script.py "$work"
done
for model in "$work"/*.onnx; do
    options="-t cuda" precisions=fp32
    case $model in
    */varying*) options="$options --dim n=1..40" ;;
    */floats_* | */product_* | */attention_* | */window_* | */halves_*) precisions="bf16 fp16" ;;
    esac
    for precision in $precisions; do
        # shellcheck disable=SC2086
        "$build/mlcc" verify "$model" $options -march=$arch --precision=$precision
        # shellcheck disable=SC2086
        "$build/mlcc" "$model" $options -march=sm_80 --precision=$precision -o "$work/model.cu"
        case $model in *_4_16_100.onnx | *_5_512_256.onnx) continue ;; esac # too few rows for a tile
        grep -q "mlcc_warp_product_" "$work/model.cu" || { echo "$model: no tiles" && exit 1; }
        [ "$arch" = cpu ] || continue
        # shellcheck disable=SC2086
        "$build/mlcc" "$model" $options -march=sm_80 --precision=$precision -o "$work/model.so" \
            >"$work/nvrtc.log" 2>&1 ||
            grep -q E4201 "$work/nvrtc.log" || { cat "$work/nvrtc.log" && exit 1; }
    done
done
# Devices that have no such instruction get kernels without it.
"$build/mlcc" "$work/halves_64_128_64.onnx" -t cuda -march=sm_75,sm_80 -o "$work/model.cu"
! grep -q "mlcc_warp_product_" "$work/model.cu"
