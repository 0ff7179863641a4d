# Strings: every target computes what the interpreter does, the generated C compiles without a warning,
# and what a library writes can be read again.
set -eu
build=$1 work=$2
suite=$(scripts/onnx-tests)/node
strict="-std=c99 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror"
for test in string_concat string_split_maxsplit string_split_consecutive_delimiters \
    regex_full_match_email_domain ai_onnx_ml_label_encoder_string_int; do
    model=$suite/test_$test/model.onnx
    for target in c cuda vulkan; do
        march=
        if [ $target = cuda ]; then march="-march cpu"; fi
        if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
        # shellcheck disable=SC2086
        "$build/mlcc" verify "$model" -t $target $march --string-bytes 20
    done
    "$build/mlcc" "$model" -t c --string-bytes 20 -o "$work/$test.c"
    # shellcheck disable=SC2086
    gcc $strict -c "$work/$test.c" -o "$work/$test.o"
    # shellcheck disable=SC2086
    clang $strict -c "$work/$test.c" -o "$work/$test.o"
done
grep -q "input 'x': str \[2\], 20 bytes each, padded with zeros" "$work/string_concat.h"

# abc + .com and def + .net, then the result + the same again
data=$suite/test_string_concat/test_data_set_0
"$build/mlcc" "$suite/test_string_concat/model.onnx" --string-bytes 14 -o "$work/m.so"
"$build/mlcc" run "$work/m.so" --input x="$data/input_0.pb" --input y="$data/input_1.pb" \
    --output "$work/once"
"$build/mlcc" run "$work/m.so" --input x="$work/once/result.npy" --input y="$data/input_1.pb" \
    --output "$work/twice"
tr -d '\0' <"$work/twice/result.npy" | grep -qF 'abc.com.comdef.net.net'
grep -qaF "'descr': '|S28'" "$work/twice/result.npy"
