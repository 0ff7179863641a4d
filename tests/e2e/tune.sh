# Tuning a model: the file that comes of it, and builds that use it. Which schedules are fast is not
# asked here.
set -eu
build=$1 work=$2
cp examples/digits/digits.onnx "$work/m.onnx"
"$build/mlcc" tune "$work/m.onnx" >"$work/text" 2>"$work/progress"
cat "$work/text" "$work/progress"
for word in "schedules 1: .* ms; operators of interest: " "schedules 2: .* ms, the first "; do
    grep -q "$word" "$work/progress"
done
grep -q "operators measured have a faster schedule" "$work/text"
grep -q "the compiler's own choices have [01]\.[0-9]* of the tuned speed" "$work/text"

# sorted by key, one entry for each operator of interest
file=$work/m.tune
[ "$(head -n 1 "$file")" = "mlcc schedules 1" ]
grep '^[0-9a-f]' "$file" >"$work/entries"
sort -c "$work/entries"
wanted=$(sed -n 's/.*operators of interest: //p' "$work/progress")
[ "$(wc -l <"$work/entries")" = "$wanted" ]

# equal inputs, equal bytes; the results are right; no entry is left over
"$build/mlcc" "$work/m.onnx" --schedules="$file" -o "$work/one.so"
cp "$work/one.so" "$work/first.so"
"$build/mlcc" "$work/m.onnx" --schedules="$file" -o "$work/one.so" 2>"$work/warnings"
cmp "$work/one.so" "$work/first.so"
cat "$work/warnings"
[ ! -s "$work/warnings" ]
"$build/mlcc" verify "$work/m.onnx" --schedules="$file"
"$build/mlcc" bench "$work/m.onnx" --schedules="$file" -n 2 >/dev/null

# the compiler does what the file says: other steps are another program, which computes the same
{
    head -n 1 "$file"
    sed 's/ .*/ share 1;/' "$work/entries"
} >"$work/plain.tune"
"$build/mlcc" "$work/m.onnx" --schedules="$work/plain.tune" --dump-ir=lower -o "$work/plain.so" >"$work/ir"
[ "$(grep -c 'schedule "share 1; "' "$work/ir")" -ge "$wanted" ]
"$build/mlcc" verify "$work/m.onnx" --schedules="$work/plain.tune"

# tuned for what the C compiler takes by itself, it says nothing of longer vectors
"$build/mlcc" "$work/m.onnx" -march=x86-64-v3 --schedules="$file" -o "$work/v3.c" 2>"$work/warnings"
grep -q "warning\[E5004\]: $wanted of the $wanted schedules" "$work/warnings"
