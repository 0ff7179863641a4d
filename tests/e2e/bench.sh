# Measuring a model, and a library of it: what must be printed is.
set -eu
build=$1 work=$2 model=examples/digits/digits.onnx
"$build/mlcc" bench $model -n 3 >"$work/text"
cat "$work/text"
for word in "target c, threads 1, runs 3" "latency: min" "multiply-adds: " "machine: " "GFLOP/s" \
    "Softmax(softmax)" "  in all; bound "; do
    grep -q "$word" "$work/text"
done
# without Winograd, each convolution's multiply-adds are counted once, by kernel and in all
"$build/mlcc" bench $model -n 3 --threads 2 --passes=-fuse,-winograd --json >"$work/json"
cat "$work/json"
total=$(sed -n 's/^ "macs": \([0-9]*\),.*/\1/p' "$work/json")
[ "$total" -gt 0 ]
sed -n 's/^  {"kernel".*"macs": \([0-9]*\),.*/\1/p' "$work/json" |
    awk -v total="$total" '{ n += $1 } END { exit n != total }'
wanted=$("$build/mlcc" inspect $model | sed -n 's/^multiply-adds: //p')
[ "$total" = "$wanted" ]
# a library says nothing of its kernels; the emulation of CUDA has no peak
"$build/mlcc" $model -o "$work/digits.so"
"$build/mlcc" bench "$work/digits.so" -n 5 >"$work/library"
cat "$work/library"
grep -q "runs 5" "$work/library"
"$build/mlcc" bench $model -t cuda -march=cpu -n 1 --json | grep -q '"kernels": \[\]'
