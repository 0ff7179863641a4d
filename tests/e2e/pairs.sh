# Sums of products of bytes in 16 bits, which x86 has before VNNI, are what the interpreter says. The
# C compiler is told -march=x86-64, too: functions do then what the instructions would.
set -eu
build=$1 work=$2
[ "$(uname -m)" = x86_64 ] || exit 0
python=$(scripts/venv onnx)
"$python" tests/e2e/pairs.py "$work"
cat >"$work/plain" <<'EOF'
#!/bin/bash
exec cc "${@/#-march=*/-march=x86-64}"
EOF
chmod +x "$work/plain"
check() { # ARCH LANES FLAG
    compilers=$work/plain
    grep -qw "$3" /proc/cpuinfo && compilers="$compilers cc"
    moved=0
    for model in "$work"/*.onnx; do
        options="-march=$1"
        case $model in
        */dealt*) [ "$2" != 16 ] || continue ;; # words are as fast
        esac
        case $model in *_n_*) options="$options --dim n=1..40" ;; esac
        for cc in $compilers; do
            # shellcheck disable=SC2086
            "$build/mlcc" verify "$model" -t c $options --cc "$cc" -O1 --threads 2
        done
        # shellcheck disable=SC2086
        "$build/mlcc" "$model" $options -o "$work/model.c"
        grep -q "= mlcc_lane_dot_short_sumx$2" "$work/model.c" || { echo "$model: no short sums" && exit 1; }
        case $model in # sums of two products, or of four
        */fours*) ! grep -q "dot_short_add" "$work/model.c" ;;
        *) grep -q "= mlcc_lane_dot_short_addx$2" "$work/model.c" ;;
        esac || { echo "$model: other sums" && exit 1; }
        case $model in */dealt*) grep -q "(mlcc_lane_movedx$2" "$work/model.c" || exit 1 ;; esac
        ! grep -q "= mlcc_lane_dot_movedx$2" "$work/model.c" || moved=1
        cc -std=gnu99 -O1 "-march=$1" -Wall -Wextra -Werror -c "$work/model.c" -o "$work/m.o"
        objdump -d "$work/m.o" | grep -q pmaddubsw
    done
    [ $moved = 1 ]
}
check skylake-avx512 16 avx512bw
check x86-64-v3 8 avx2
check x86-64-v2 4 ssse3
