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
used=0
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
    if grep -qE '^ +MLCC_TILE_(BYTES|BF16)' "$work/model.c"; then used=$((used + 1)); fi
done
# conv_64_1_1 does not: bytes of an input in the layout of ONNX lie side by side along rows of the image
[ $used -ge 19 ] || { echo "only $used models use the unit" && exit 1; }
