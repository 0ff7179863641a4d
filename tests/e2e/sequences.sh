# Sequences and optionals: their items are tensors of the model on every target, a length that is an
# input's value is fixed when compiling, and a library gives what the interpreter does.
set -eu
build=$1 work=$2
suite=$(scripts/onnx-tests)/node
strict="-std=c99 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror"

# verify TEST OPTION...
verify() {
    test=$1
    shift
    for target in c cuda vulkan; do
        march=
        if [ $target = cuda ]; then march="-march cpu"; fi
        if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
        # shellcheck disable=SC2086
        "$build/mlcc" verify "$suite/test_$test/model.onnx" -t $target $march "$@"
    done
}
verify sequence_map_add_2_sequences_expanded --items 'x0=[6],[1],[4]' --items 'x1=[6],[3],[1]'
verify identity_opt --items opt_in=3
verify optional_get_element_optional_tensor
verify loop16_seq_none --items opt_seq=none --fix trip_count=3 --fix cond=1
verify split_to_sequence_2 --fix split=2,1
verify sequence_map_add_1_sequence_1_tensor --items x0=2 --dim N=1..5
verify center_crop_pad_crop_and_pad_expanded --fix shape=10,10,3

# in C: an argument for each item
model=$suite/test_sequence_map_add_1_sequence_1_tensor/model.onnx
"$build/mlcc" "$model" --items x0=2 --dim N=10 -o "$work/add.c"
grep -qF 'int add_run(const float x0_0[10], const float x0_1[10], const float x1[10], float y0_0[10],' \
    "$work/add.h"
for cc in gcc clang; do
    # shellcheck disable=SC2086
    $cc $strict -c "$work/add.c" -o "$work/add.o"
done

# a library, whose items are given one by one, does what the interpreter does
data=$suite/test_sequence_map_add_1_sequence_1_tensor/test_data_set_0/input_1.pb
"$build/mlcc" "$model" --items x0=2 --dim N=10 -o "$work/add.so"
inputs="--input x0.0=$data --input x0.1=$data --input x1=$data"
# shellcheck disable=SC2086
"$build/mlcc" run "$work/add.so" $inputs --output "$work/library"
# shellcheck disable=SC2086
"$build/mlcc" run "$model" --items x0=2 --dim N=10 $inputs --output "$work/interpreter"
cmp "$work/library/y0.1.npy" "$work/interpreter/y0.1.npy"

# without anything in it a sequence is no argument at all
"$build/mlcc" "$suite/test_identity_sequence/model.onnx" --items x=0 -o "$work/none.c"
grep -q '^int none_run(void \*arena);' "$work/none.h"
