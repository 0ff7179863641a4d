# A library whose weights lie in a file beside it gives the same as one that holds them, and refuses the
# weights of another model; the interpreter agrees.
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

targets="c cuda"
if [ "${SKIP_VULKAN:-0}" = 0 ]; then targets="c cuda vulkan"; fi
for target in $targets; do
    march=
    if [ $target = cuda ]; then march=-march=cpu; fi
    out=$work/$target
    mkdir -p "$out"
    # shellcheck disable=SC2086
    {
        "$build/mlcc" $model -t $target $march -o "$out/whole.so"
        "$build/mlcc" $model -t $target $march --weights "$out/w.bin" -o "$out/part.so"
    }
    "$build/mlcc" run "$out/whole.so" --input "$name=$work/x.npy" --output "$out/whole"
    "$build/mlcc" run "$out/part.so" --weights "$out/w.bin" --input "$name=$work/x.npy" \
        --output "$out/part"
    diff -r "$out/whole" "$out/part"
    # the weights begin at a line of a cache, behind zeros
    [ "$(head -c 64 "$out/w.bin" | tail -c 48 | tr -d '\000' | wc -c)" = 0 ]
    { # another digest
        head -c 8 "$out/w.bin"
        printf 'another.'
        tail -c +17 "$out/w.bin"
    } >"$out/other.bin"
    if "$build/mlcc" run "$out/part.so" --weights "$out/other.bin" --input "$name=$work/x.npy" \
        --output "$out/wrong" 2>"$out/message"; then
        echo "$target: it takes another model's weights"
        exit 1
    fi
    cat "$out/message"
    if "$build/mlcc" run "$out/part.so" --input "$name=$work/x.npy" 2>"$out/message"; then
        echo "$target: it runs without its weights"
        exit 1
    fi
done
