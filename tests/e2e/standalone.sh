# Generated C compiles without a warning wherever there is a C99 compiler, and allocates nothing.
set -eu
build=$1 work=$2
strict="-std=c99 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror"
shared=../shared/models/mnist8_cntk.onnx
models=examples/digits/digits.onnx
if [ -e $shared ]; then models="$models $shared"; else echo "note: standalone: no $shared"; fi
for model in $models; do
    name=$(basename "$model" .onnx)
    "$build/mlcc" "$model" -t c -o "$work/$name.c"
    # shellcheck disable=SC2086
    {
        gcc $strict -c "$work/$name.c" -o "$work/$name-gcc.o"
        clang $strict -c "$work/$name.c" -o "$work/$name-clang.o"
        arm-none-eabi-gcc $strict -mcpu=cortex-m4 -ffreestanding -c "$work/$name.c" \
            -o "$work/$name-arm.o"
    }
    if [ "$(uname -m)" = x86_64 ]; then # GNU C's vectors, the last of them not full
        "$build/mlcc" "$model" -t c -march=x86-64-v3 -o "$work/$name.v3.c"
        for cc in gcc clang; do
            $cc -std=gnu99 -march=x86-64-v3 -O2 -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Werror \
                -c "$work/$name.v3.c" -o "$work/$name-v3.o"
        done
    fi
    printf '#include "%s.h"\n' "$name" >"$work/$name.cc"
    clang -x c++ -nostdinc++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only "$work/$name.cc"
    if grep -nE 'malloc|calloc|stdio|printf' "$work/$name.c" "$work/$name.h"; then
        echo "$name: it allocates or prints"
        exit 1
    fi
    nm -u "$work/$name-gcc.o" | awk '{ print $2 }' >"$work/$name.undefined"
    # memory functions and those of <math.h>
    if grep -vxE 'mem(cpy|set|move)|(exp|log|sqrt|tanh|fmax|fmin|floor|ceil|rint|pow|erf|fabs)f?|_GLOBAL.*' \
        "$work/$name.undefined"; then
        echo "$name: it calls these, which a bare machine has not"
        exit 1
    fi
done
