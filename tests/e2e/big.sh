# Models whose weights are larger than the memory that compiling may take, and one of 100,000
# nodes. What comes out is right, and the same each time.
set -eu
build=$1 work=$2
python=$(scripts/venv onnx)
"$python" tests/e2e/big.py "$work"
export TMPDIR="$work"

# limited MiB WORDS...: with so much memory of its own; files that are mapped do not count
limited() {
    (
        ulimit -d $(($1 << 10))
        shift
        "$@"
    )
}

for march in generic x86-64-v3; do
    limited 100 "$build/mlcc" "$work/sparse.onnx" -march=$march --weights "$work/w" -o "$work/m.c"
    limited 100 "$build/mlcc" "$work/half.onnx" -march=$march --weights "$work/w" -o "$work/m.c"
done
# the constants in the C file itself
limited 100 "$build/mlcc" "$work/sparse.onnx" -o "$work/whole.c"
test "$(stat -c %s "$work/whole.c")" -ge 400000000
rm "$work/whole.c"
# a signal while it is written leaves nothing
for signal in TERM HUP PIPE; do
    "$build/mlcc" "$work/sparse.onnx" -o "$work/whole.c" &
    tries=0
    while ! ls "$work"/whole.c.* >"$work/seen" 2>&1 && [ $tries -lt 1000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    grep -q whole.c "$work/seen"
    kill -$signal $!
    status=0
    wait $! || status=$?
    echo "$signal: status $status"
    test $status -gt 128
    if ls "$work"/whole.c*; then
        echo "it left a file"
        exit 1
    fi
done
# the tools take memory, too
limited 160 "$build/mlcc" "$work/sparse.onnx" --weights "$work/w" -o "$work/part.so"
limited 160 "$build/mlcc" "$work/sparse.onnx" -o "$work/whole.so"
limited 160 "$build/mlcc" "$work/sparse.onnx" -t cuda -march=cpu --weights "$work/w2" \
    -o "$work/cuda.so"
test "$(stat -c %s "$work/w")" -ge 400000000
limited 512 "$build/mlcc" "$work/chain.onnx" -o "$work/chain.c"

# all runs give what the interpreter gives
for march in generic x86-64-v3 native; do
    "$build/mlcc" verify "$work/small.onnx" -t c -march=$march
done
"$build/mlcc" verify "$work/small.onnx" -t cuda -march=cpu

# the same numbers wherever the weights are
"$build/mlcc" "$work/small.onnx" -o "$work/whole.so"
"$build/mlcc" "$work/small.onnx" --weights "$work/w" -o "$work/part.so"
inputs="--input x=$work/x.npy --input h=$work/h.npy"
# shellcheck disable=SC2086
"$build/mlcc" run "$work/whole.so" $inputs --output "$work/a"
# shellcheck disable=SC2086
"$build/mlcc" run "$work/part.so" $inputs --weights "$work/w" --output "$work/b"
diff -r "$work/a" "$work/b"
for again in w2 w3; do
    "$build/mlcc" "$work/small.onnx" --weights "$work/$again" -o "$work/$again.so"
    cmp "$work/w" "$work/$again"
done
rm -f "$work"/*.so "$work"/w* "$work"/*.data

# who refused memory
if limited 20 "$build/mlcc" "$work/chain.onnx" -o "$work/chain.c" 2>"$work/message"; then
    echo "it needs no memory"
    exit 1
fi
grep -q 'E0006.*the system refuses' "$work/message"
