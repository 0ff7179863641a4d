# Sums of products of bytes in 16 bits (-march=skylake-avx512) are what the interpreter says. Where
# the machine cannot run such code, and once more where it can, the C compiler is told
# -march=x86-64-v2: functions do then what the instructions would.
set -eu
build=$1 work=$2
[ "$(uname -m)" = x86_64 ] || exit 0
python=$(scripts/venv onnx)
"$python" tests/e2e/pairs.py "$work"
cat >"$work/plain" <<'EOF'
#!/bin/bash
exec cc "${@/#-march=skylake-avx512/-march=x86-64-v2}"
EOF
chmod +x "$work/plain"
compilers=$work/plain
grep -q avx512bw /proc/cpuinfo && compilers="$compilers cc"
for model in "$work"/*.onnx; do
    options="-march=skylake-avx512"
    case $model in */product_n_*) options="$options --dim n=1..40" ;; esac
    for cc in $compilers; do
        # shellcheck disable=SC2086
        "$build/mlcc" verify "$model" -t c $options --cc "$cc" -O1 --threads 2
    done
    # shellcheck disable=SC2086
    "$build/mlcc" "$model" $options -o "$work/model.c"
    grep -qE '= mlcc_lane_dot_pairx16' "$work/model.c" || { echo "$model: no pairs" && exit 1; }
    cc -std=gnu99 -O1 -march=skylake-avx512 -Wall -Wextra -Werror -c "$work/model.c" -o "$work/m.o"
    objdump -d "$work/m.o" | grep -q vpmaddubsw
done
grep -q '= mlcc_lane_dot_movedx16' "$work/model.c"
