# Names that are awkward: of files, which become C identifiers, and in models, which are printed.
set -eu
build=$1 work=$2
model=examples/digits/digits.onnx
# C keeps identifiers that begin with '_' for itself
for name in _Plain 9 . -; do
    "$build/mlcc" $model -o "$work/$name.c"
    (cd "$work" && clang -std=c99 -Wall -Wextra -Wreserved-identifier -Werror -c "./$name.c" -o x.o)
done
# libraries that mlcc loads call libc, not a function of mlcc that has the same name
nm -D --defined-only "$build/mlcc" >"$work/exported.txt"
if grep -v '@GLIBC' "$work/exported.txt"; then exit 1; fi
# one line for each name, whatever is in it
LC_ALL=C sed 's/input/in\x1but/g' $model >"$work/odd.onnx"
"$build/mlcc" inspect "$work/odd.onnx" >"$work/inspect.txt"
grep -qx 'input: in\\x1but f32\[.*\]' "$work/inspect.txt"
