# Products with weights of few bits are what the interpreter says, on processors with dots of bytes,
# without, and without vectors; weights of 4 bits stay packed.
#
#   few_bits.sh BUILD WORK
set -eu
build=$1 work=$2
PYTHONDONTWRITEBYTECODE=1 "$(scripts/venv onnx)" tests/e2e/few_bits.py "$work"
any=$PWD/tests/cc-any # what is made for others is C that runs anywhere
for model in "$work"/*.onnx "$work"/bytes/*.onnx; do
    options=
    case $model in
    */varying*) options="--dim n=1..20" ;;
    */bytes/*) options=--precision=int8 ;;
    esac
    for arch in native x86-64-v3 armv8.2-a+dotprod armv7e-m; do
        case $arch in arm*) cc=$any ;; *) cc=cc ;; esac
        # shellcheck disable=SC2086
        "$build/mlcc" verify "$model" -t c -march=$arch $options --cc "$cc" -O1
    done
    # shellcheck disable=SC2086
    "$build/mlcc" verify "$model" -t cuda -march=cpu $options
done
"$build/mlcc" "$work/decoded_i4_32_2_64_40_0.onnx" -o "$work/model.c"
bytes=$(sed -n 's/#define MODEL_WEIGHT_BYTES \([0-9]*\)u/\1/p' "$work/model.h")
[ "$bytes" -lt 2560 ] || { echo "$bytes bytes for 2560 weights of 4 bits" && exit 1; }
"$build/mlcc" "$work/bytes/decoded_i4_16_9_128_24_0.onnx" -march=x86-64-v3 --precision=int8 \
    -o "$work/model.c"
grep -q "mlcc_lane_dot_short_addx8" "$work/model.c"
schedule() { # MODEL ARCH [OPTION VALUE]
    model=$work/$1 arch=$2
    shift 2
    "$build/mlcc" "$model" "-march=$arch" "$@" --dump-ir=lower -o "$work/model.c" 2>&1
}
lone=n_bits_4_32_1_512_512_4.onnx
schedule $lone x86-64-v3 | grep -q "bind r2o short; .*stream i0i1oo; .*partial"
schedule varying_n_bits_4_32_20_512_512_4.onnx x86-64-v3 --dim "n=1..20" |
    grep -q "single i0i 2 streams i1o 4;"
# results that no cache holds: blocks of columns
far=far/n_bits_4_32_24_32_98304_4.onnx
schedule $far x86-64-v3 | grep -q "split i1o 384; .*order i1oo i0o i1oi .*partial"
"$build/mlcc" verify "$work/$far" -t c -march=x86-64-v3
[ "$(uname -m)" = x86_64 ] || exit 0
schedule $lone skylake | grep -q " short;" # names about which the C compiler is asked:
schedule $lone alderlake >"$work/alderlake" # this one has dots of bytes
grep -q "bind r2i unroll; .*partial" "$work/alderlake"
! grep -q " short;" "$work/alderlake" || exit 1
