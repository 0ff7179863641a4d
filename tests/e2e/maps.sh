# Inputs that are maps, of any number of entries, give what a dictionary says and, where it can be fed
# with them, what ONNX Runtime gives: in the interpreter and on every target.
set -eu
build=$1 work=$2
python=$(scripts/venv onnx)
model=$work/maps.onnx
options="--items words=6 --items *=9 --string-bytes words.keys=5"
set -f # the option has an asterisk
"$python" tests/e2e/maps.py make "$work"

# check NAME MODEL RUN-OPTIONS...
check() {
    name=$1 run=$2
    shift 2
    for round in 0 1 2 3; do
        inputs=
        for map in words numbers texts counts; do
            for part in keys values; do
                inputs="$inputs --input $map.$part=$work/$round.$map.$part.npy"
            done
        done
        # shellcheck disable=SC2086
        "$build/mlcc" run "$run" "$@" $inputs --output "$work/$name.$round"
        "$python" tests/e2e/maps.py check "$work" $round "$work/$name.$round"
    done
}
# shellcheck disable=SC2086
{
    check interpreter "$model" $options
    for target in c cuda vulkan; do
        case $target in c) march="-march generic" ;; cuda) march="-march cpu" ;; *) march= ;; esac
        if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
        "$build/mlcc" "$model" $options -t $target $march -o "$work/$target.so"
        check $target "$work/$target.so"
        "$build/mlcc" verify "$model" $options -t $target $march
    done
    "$build/mlcc" "$model" $options -o "$work/maps.c"
    strict="-std=c99 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror"
    for cc in gcc clang; do
        $cc $strict -c "$work/maps.c" -o "$work/maps.o"
    done
}
grep -qF 'int maps_run(const uint8_t words_keys[30], const float words_values[6],' "$work/maps.h"
