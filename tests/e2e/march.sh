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
    grep -q '^} w.* __attribute__((aligned(.*))) = {{$' "$work/digits.c" # vectors of constants too
    flags=$(sed -n 's/^ \* Compile it with \(.*\)\.$/\1/p' "$work/digits.c")
    case $flags in
    *-march=$march*) ;;
    *) echo "$march: its head says to compile with '$flags'" && exit 1 ;;
    esac
    # shellcheck disable=SC2086
    if [ $march != native ]; then cc -std=c99 $flags -c "$work/digits.c" -o "$work/digits.o"; fi
    sed '/^ \* Compile it with/d' "$work/digits.c" >"$work/$march.c"
    if [ "$first" ]; then cmp "$work/$march.c" "$first"; fi
    first=$work/$march.c
done
# a machine of which nothing is known, and one without vectors by both of its names
"$build/mlcc" $model -march=armv5te --cc arm-none-eabi-gcc -o "$work/digits.c"
cmp "$work/digits.c" "$work/generic.c"
for march in armv7e-m+fp cortex-m4; do
    "$build/mlcc" $model -march=$march -o "$work/digits.c"
    sed '/^ \* Compile it with/d' "$work/digits.c" >"$work/$march.c"
    "$build/mlcc" $model -march=$march --cc 'arm-none-eabi-gcc -mfloat-abi=hard' -o "$work/digits.o"
done
cmp "$work/cortex-m4.c" "$work/armv7e-m+fp.c"
# without -march, what the C compiler takes by itself; of a model.c nothing is known
"$build/mlcc" $model -o "$work/digits.c"
cmp "$work/digits.c" "$work/generic.c"
cp "$work/digits.o" "$work/cortex-m4.o"
"$build/mlcc" $model --cc 'arm-none-eabi-gcc -mcpu=cortex-m4 -mfloat-abi=hard' -o "$work/digits.o"
cmp "$work/digits.o" "$work/cortex-m4.o"
"$build/mlcc" $model -march=generic --cc 'arm-none-eabi-gcc -mcpu=cortex-m4 -mfloat-abi=hard' \
    -o "$work/digits.o"
if cmp -s "$work/digits.o" "$work/cortex-m4.o"; then echo "generic: as a cortex-m4" && exit 1; fi
case $(uname -m) in x86_64) baseline=x86-64 ;; *) baseline=armv8-a ;; esac
for march in generic $baseline; do
    "$build/mlcc" $model -march=$march -o "$work/digits.so"
    mv "$work/digits.so" "$work/$march.so"
done
"$build/mlcc" $model -o "$work/digits.so"
cmp "$work/digits.so" "$work/$baseline.so"
if cmp -s "$work/digits.so" "$work/generic.so"; then echo "no -march: no vectors" && exit 1; fi
if cmp -s "$work/cortex-m4.c" "$work/generic.c"; then echo "cortex-m4: as any machine" && exit 1; fi
# what this processor lacks is said before anything runs, and nothing is left behind
cat >"$work/less" <<'EOC'
#!/bin/bash
exec cc "${@/#-march=native/-march=x86-64}"
EOC
chmod +x "$work/less"
refused() { # COMMAND MARCH CC LACKS
    mkdir -p "$work/empty"
    status=0
    TMPDIR=$work/empty "$build/mlcc" "$1" $model "$2" --cc "$3" >"$work/told" 2>&1 || status=$?
    cat "$work/told"
    [ $status = 3 ]
    grep -q "error\[E0010\]: $2: this machine's processor lacks .*$4" "$work/told"
    [ "$(wc -l <"$work/told")" = 1 ]
    rmdir "$work/empty"
}
if [ "$(uname -m)" = x86_64 ]; then
    refused verify -march=x86-64-v3 "$work/less" "AVX, AVX2, FMA, F16C, BMI, BMI2, LZCNT, MOVBE"
    refused bench -march=haswell "$work/less" AVX2
    refused tune -march=x86-64-v2 "$work/less" SSSE3
    if ! grep -qw avx512f /proc/cpuinfo; then
        for command in verify bench tune; do refused $command -march=x86-64-v4 cc AVX512F; done
    fi
fi
# several in one library: it takes the last that the machine has, and exports one name
if [ "$(uname -m)" = x86_64 ]; then
    levels=x86-64,x86-64-v2,x86-64-v3,x86-64-v4
    "$build/mlcc" $model -march=$levels -o "$work/several.so"
    [ "$(nm -D --defined-only "$work/several.so" | awk '{print $3}')" = mlcc_model_v1 ]
    "$build/mlcc" $model -march=x86-64 -o "$work/first.so"
    # the same digit, within rounding: all print the same large probability
    printf '\223NUMPY\001\000v\000%-117s\n' \
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }" >"$work/x.npy"
    for i in 1 2 3 4 5 6 7 8; do printf '%32s' '' | tr ' ' '>'; done >>"$work/x.npy"
    if ! grep -qw avx512f /proc/cpuinfo; then
        "$build/mlcc" $model -march=x86-64-v4 -o "$work/larger.so"
        for command in "run --input input=$work/x.npy" "bench -n 3"; do
            status=0
            "$build/mlcc" $command "$work/larger.so" >"$work/told" 2>&1 || status=$?
            [ $status = 3 ]
            grep -q "larger.so: error\[E0010\]: has instructions" "$work/told"
        done
    fi
    for library in several first; do
        "$build/mlcc" run "$work/$library.so" --input "input=$work/x.npy" --output "$work/$library"
        od -An -tf4 -j128 "$work/$library"/*.npy | tr -s ' ' '\n' | sort -g | tail -1 |
            cut -c1-5 >"$work/$library.top"
    done
    cmp "$work/several.top" "$work/first.top"
    "$build/mlcc" $model -march=$levels -o "$work/again.so"
    cmp "$work/several.so" "$work/again.so"
fi
