# Products on a matrix unit (-march=sapphirerapids) are what the interpreter says. On a machine that
# has none, the C compiler is told -march=native: functions do then what the unit would.
set -eu
build=$1 work=$2
[ "$(uname -m)" = x86_64 ] || exit 0
python=$(scripts/venv onnx)
"$python" tests/e2e/tiles.py "$work"
cat >"$work/cc" <<'EOF'
#!/bin/bash
exec cc "${@/#-march=sapphirerapids/-march=native}"
EOF
chmod +x "$work/cc"
for model in "$work"/*.onnx; do
    options="-march=sapphirerapids"
    case $model in
    */floats_*) options="$options --precision=bf16" ;;
    */varying*) options="$options --dim n=1..40" ;;
    esac
    # shellcheck disable=SC2086
    "$build/mlcc" verify "$model" -t c $options --cc "$work/cc" -O1 --threads 2
    # shellcheck disable=SC2086
    "$build/mlcc" "$model" $options -o "$work/model.c"
    # Windows of 1 x 1 do not: in an input's layout bytes lie side by side along rows of the image.
    case $model in */conv_*_1_[12]_*) continue ;; esac
    grep -qE '^ +MLCC_TILE_(BYTES|BF16)' "$work/model.c" || { echo "$model: no tiles" && exit 1; }
    if cc -march=sapphirerapids -E -x c /dev/null >/dev/null 2>&1; then
        cc -std=gnu99 -O1 -march=sapphirerapids -Wall -Wextra -Werror -c "$work/model.c" -o "$work/m.o"
        objdump -d "$work/m.o" | grep -q tdp
    fi
done
