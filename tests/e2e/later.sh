# Sums that are finished while those of the next tile are added up, in loops of any length and on two
# threads. What is made for such processors is compiled for this one.
set -eu
build=$1 work=$2
"$(scripts/venv onnx)" tests/e2e/later.py "$work"
cc="tests/cc-any -Wno-psabi"
for model in "$work"/*.onnx; do
    for options in "" --precision=bf16; do
        case $model in */bytes_*) [ -z "$options" ] || continue ;; esac
        # shellcheck disable=SC2086
        "$build/mlcc" verify "$model" -t c -march=skylake-avx512 $options --cc "$cc" -O1 --threads 2 \
            >"$work/told" || { echo "$model" && cat "$work/told" && exit 1; }
    done
    "$build/mlcc" "$model" -march=skylake-avx512 -o "$work/model.c"
    later=$(grep -c "sums\[0\]" "$work/model.c" || true)
    case $model in
    */floats_40x64x24*) [ "$later" = 0 ] ;;
    */floats_64x3x96*) grep -q "for (int n = 0;" "$work/model.c" ;;                # several at once
    */conv_5_32_3*) [ "$(grep -c "while (done < " "$work/model.c" || true)" = 2 ] ;; # what is left, too
    *) [ "$later" != 0 ] ;;
    esac || { echo "$model: $later" && exit 1; }
    $cc -std=gnu99 -O2 -march=skylake-avx512 -Wall -Wextra -Wconversion -Wshadow -Werror -c "$work/model.c" \
        -o "$work/model.o"
done
