# Two models in one program, as sources, as objects and as archives; and a library of any name.
set -eu
build=$1 work=$2
model=examples/digits/digits.onnx
cat >"$work/main.c" <<'END'
#include "first.h"
#include "second.h"

static float image[FIRST_INPUT_SIZE], a[FIRST_OUTPUT_SIZE], b[SECOND_OUTPUT_SIZE];
static union {
    unsigned char bytes[FIRST_ARENA_BYTES];
    double align[8];
} arena;

int main(void) {
    return first_run(image, a, &arena) | second_run(image, b, &arena) | (a[0] != b[0]);
}
END
for kind in c o a; do
    "$build/mlcc" $model -t c -o "$work/first.$kind"
    "$build/mlcc" $model -t c -o "$work/second.$kind"
    cc -std=c99 -I"$work" "$work/main.c" "$work/first.$kind" "$work/second.$kind" -lm \
        -o "$work/$kind"
    "$work/$kind"
done
# names of the library interface itself
for name in mlcc MLCC model; do "$build/mlcc" $model -t c -o "$work/$name.so"; done
cmp "$work/mlcc.so" "$work/model.so"
