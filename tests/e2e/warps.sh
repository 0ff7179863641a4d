# What warps of a device multiply by tiles of 16 bits is, by the emulation, what the interpreter says.
set -eu
build=$1 work=$2
python=$(scripts/venv onnx)
PYTHONDONTWRITEBYTECODE=1 "$python" tests/e2e/warps.py "$work"
for model in "$work"/*.onnx; do
    for precision in bf16 fp16; do
        case $model in */halves_*) [ $precision = fp16 ] || continue ;; esac
        "$build/mlcc" verify "$model" -t cuda -march=cpu --precision=$precision
        "$build/mlcc" "$model" -t cuda -march=sm_80 --precision=$precision -o "$work/model.cu"
        grep -q "mlcc_warp_product_" "$work/model.cu" || { echo "$model: no tiles" && exit 1; }
    done
done
# Devices that have no such instruction get kernels without it.
"$build/mlcc" "$model" -t cuda -march=sm_75,sm_80 --precision=fp16 -o "$work/model.cu"
! grep -q "mlcc_warp_product_" "$work/model.cu"
