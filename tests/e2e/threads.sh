# A library gives the same bits on any number of threads, with its weights inside and in a side file.
set -eu
build=$1 work=$2 model=examples/digits/digits.onnx
# one image of 8 x 8: a .npy file by hand
printf '\223NUMPY\001\000v\000%-117s\n' \
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }" >"$work/x.npy"
i=0
while [ $i -lt 64 ]; do
    printf '\000\000\200\077\000\000\000\100' # 1 and 2
    i=$((i + 2))
done >>"$work/x.npy"
name=$("$build/mlcc" run $model 2>&1 | sed -n "s/.*input '\([^']*\)'.*/\1/p")

"$build/mlcc" $model -o "$work/whole.so"
"$build/mlcc" $model --weights "$work/w.bin" -o "$work/part.so"
for threads in 1 2 3 5; do
    "$build/mlcc" run "$work/whole.so" --threads $threads --input "$name=$work/x.npy" \
        --output "$work/whole$threads"
    "$build/mlcc" run "$work/part.so" --weights "$work/w.bin" --threads $threads \
        --input "$name=$work/x.npy" --output "$work/part$threads"
    diff -r "$work/whole1" "$work/whole$threads"
    diff -r "$work/whole1" "$work/part$threads"
    "$build/mlcc" verify $model --threads $threads
done
# a program that links an object needs no thread
"$build/mlcc" $model -o "$work/digits_model.o"
cc -std=c99 -O2 -I"$work" examples/digits/main.c "$work/digits_model.o" -lm -lpthread -o "$work/digits"
"$work/digits"
# nothing of threads is in a .c file
"$build/mlcc" $model -o "$work/digits_model.c"
if grep -n -i 'thread\|barrier' "$work/digits_model.c"; then exit 1; fi
