# States of a fixed size: what a library keeps gives what ONNX Runtime gives that is fed its own outputs,
# on every target, for any number of tokens in a call. Of buffers of keys and values nothing is copied.
set -eu
build=$1 work=$2
python=$(scripts/venv onnx)
export PYTHONPATH=scripts:tests/e2e PYTHONDONTWRITEBYTECODE=1
"$python" tests/e2e/recurrent.py make "$work"
set -f # that is no pattern of files
for name in linear conv hashes sparse decoder; do
    options="--dim b=1 --dim t=1..4 --state past*=present*"
    if [ $name = decoder ]; then options="--dim b=1 --state past*=present*"; fi
    for target in c cuda vulkan; do
        march=
        if [ $target = cuda ]; then march="-march=cpu"; fi
        if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
        # shellcheck disable=SC2086
        "$build/mlcc" "$work/$name.onnx" $options -t $target $march -o "$work/$target.so"
        "$python" tests/e2e/recurrent.py check "$work/$name.onnx" "$work/$target.so"
    done
    case $name in sparse | decoder) ;; *) continue ;; esac
    # shellcheck disable=SC2086
    "$build/mlcc" "$work/$name.onnx" $options --dump-ir=plan -o "$work/$name.c" >"$work/$name.ir"
    if grep -qE "launch .* (state .* state|arena \+[0-9]+ bytes 4096[,)])" "$work/$name.ir"; then
        echo "$name: a state is copied"
        exit 1
    fi
done
