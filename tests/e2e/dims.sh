# Dimensions that vary from run to run: models of many families give what they give with fixed
# dimensions, for several extents; all targets do what the interpreter does; and what a library is given
# decides what it computes.
set -eu
build=$1 work=$2
suite=$(scripts/vary-onnx-tests)
python=$(scripts/venv onnx)
"$python" tests/e2e/dims.py "$build/mlcc" "$suite" 'test_basic_conv*' 'test_convtranspose' \
    'test_averagepool_2d_*' 'test_maxpool_2d_ceil' 'test_resize_up*' 'test_gridsample_bi*' \
    'test_attention_3d*_causal' 'test_attention_4d_gqa' 'test_rotary_embedding*' 'test_gru_*' \
    'test_einsum_*' 'test_qlinearmatmul*' 'test_quantizelinear*' 'test_sce_*3d' 'test_dft*' \
    'test_layer_normalization_4d*' 'test_matmul*' 'test_reduce_l2*' 'test_softmax*'
"$python" tests/e2e/dims_models.py "$work/models"
"$python" tests/e2e/dims.py "$build/mlcc" "$work/models" '*'

verify() {
    folder=$suite/node/test_$1
    dims=$(sed 's/^/--dim /' "$folder/dims")
    for target in c cuda vulkan; do
        case $target in c) march="-march generic" ;; cuda) march="-march cpu" ;; *) march= ;; esac
        if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
        # shellcheck disable=SC2086
        "$build/mlcc" verify "$folder/model.onnx" $dims -t $target $march
    done
}
verify basic_conv_with_padding
verify averagepool_2d_ceil
verify resize_upsample_scales_linear
verify attention_3d_causal
verify gru_defaults
verify layer_normalization_4d_axis1
verify stft

# one library, run for several extents
model=$suite/node/test_softmax_axis_1/model.onnx
dims=$(sed 's/^/--dim /' "$suite/node/test_softmax_axis_1/dims")
# shellcheck disable=SC2086
"$build/mlcc" "$model" $dims -o "$work/softmax.so"
for n in 1 2 5; do
    "$python" -c "import numpy; numpy.save('$work/x.npy', numpy.ones(($n, 3, $n), 'f4'))"
    "$build/mlcc" run "$work/softmax.so" --input x="$work/x.npy" --output "$work/out"
    "$python" -c "
import numpy
y = numpy.load('$work/out/y.npy')
assert y.shape == ($n, 3, $n) and numpy.allclose(y, 1 / 3)"
done

# it is measured with the extents that are asked for, which must be ones it has
name=$(sed -n '1s/=.*//p' "$suite/node/test_softmax_axis_1/dims")
"$build/mlcc" bench "$work/softmax.so" -n 3 --extent "$name=2" >"$work/bench"
grep -q "extents: $name=2" "$work/bench"
for wrong in "$name=0x" "$name=1000000" "other=2"; do
    ! "$build/mlcc" bench "$work/softmax.so" -n 3 --extent "$wrong" 2>"$work/wrong"
    grep -q "E0001" "$work/wrong"
done

# or with inputs that are given: their shapes are the extents, and must not contradict others
"$python" -c "import numpy; numpy.save('$work/x.npy', numpy.zeros(($n, 3, $n), 'f4'))"
"$build/mlcc" bench "$work/softmax.so" -n 3 --input x="$work/x.npy" >"$work/bench"
grep -q "extents: .*=$n, .*=3, .*=$n;" "$work/bench"
! "$build/mlcc" bench "$work/softmax.so" -n 3 --input x="$work/x.npy" --extent "$name=1" 2>"$work/wrong"
grep -q "E0009" "$work/wrong"
# shellcheck disable=SC2086
"$build/mlcc" verify "$model" $dims --input x="$work/x.npy" | tee "$work/verify"
grep -q "y: f32\[$n, 3, $n\] largest error 0," "$work/verify"

# short functions are inlined into kernels of libraries of several threads: maxima, here
[ "$(uname -m)" = x86_64 ] || exit 0
model=$work/models/node/MultiHeadAttention_5
# shellcheck disable=SC2046
"$build/mlcc" "$model/model.onnx" $(sed 's/^/--dim /' "$model/dims") -march=x86-64-v3 -o "$work/inlined.so"
if nm "$work/inlined.so" | grep ' t mlcc_max_f32'; then exit 1; fi

# joined dimensions that vary are not divided, but by loops that threads share
model=$work/models/node/groups
# shellcheck disable=SC2046
"$build/mlcc" "$model/model.onnx" $(sed 's/^/--dim /' "$model/dims") -march=x86-64-v3 -o "$work/groups.c"
if grep -E '% v[0-9]' "$work/groups.c" | grep -v 'part %'; then exit 1; fi

# pixels of lines that vary are rows of products one behind the other: of 5 products and what is added
model=$work/models/node/joined
# shellcheck disable=SC2046
"$build/mlcc" "$model/model.onnx" $(sed 's/^/--dim /' "$model/dims") -march=x86-64-v3 -o "$work/joined.c" \
    --dump-ir flatten,fuse >"$work/joined"
sed '/^; after fuse/,$d' "$work/joined" >"$work/flatten"
test "$(grep -c 'reduce sum .*f32\[4, 72, 64\]' "$work/flatten")" = 5
grep -q 'f32\[4, 72, 64\] src "Add(h)"' "$work/flatten"
# products do not divide the places of what is joined for them
sed '1,/^; after fuse/d' "$work/joined" | grep -A1 'reduce sum .*f32\[4, 72, 64\]' >"$work/products"
test "$(grep -c body "$work/products")" = 5
if grep ' % ' "$work/products"; then exit 1; fi
