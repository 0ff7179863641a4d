# -march=: names that mlcc knows, and names about which it asks the C compiler, give the same code.
set -eu
build=$1 work=$2
model=examples/digits/digits.onnx
"$build/mlcc" $model -march=generic -o "$work/digits.c"
if grep -q vector_size "$work/digits.c"; then echo "generic: it has vectors" && exit 1; fi
mv "$work/digits.c" "$work/generic.c"
case $(uname -m) in
x86_64) same="x86-64-v3 haswell broadwell alderlake" ;;
*) same="armv8-a native" ;;
esac
first=
for march in $same; do
    "$build/mlcc" $model "-march=$march" -o "$work/digits.c"
    grep -q vector_size "$work/digits.c"
    if [ "$first" ]; then cmp "$work/digits.c" "$first"; fi
    first=$work/first.c
    mv "$work/digits.c" "$first"
done
# a machine without vectors
"$build/mlcc" $model -march=armv7e-m --cc arm-none-eabi-gcc -o "$work/digits.c"
cmp "$work/digits.c" "$work/generic.c"
