# States with dimensions that vary: keys and values of attention that a library keeps, of which each call
# adds some, give what ONNX Runtime gives that is fed its own outputs, on every target. A call writes what
# is new, and copies nothing.
set -eu
build=$1 work=$2
python=$(scripts/venv onnx)
PYTHONPATH=scripts "$python" tests/e2e/caches.py make "$work"
ranges="--dim seq=1..4 --dim total=1..24"
states="--state *_past=*_present"
set -f # that is no pattern of files

# check NAME BATCH ERROR OPTIONS...
check() {
    name=$1 batch=$2 error=$3
    shift 3
    for target in $targets; do
        to=$target
        case $target in
        c) march="-march=generic" ;;
        cuda) march="-march=cpu" ;;
        native) march="-march=native" to=c ;;
        *) march= ;;
        esac
        if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
        # shellcheck disable=SC2086
        "$build/mlcc" "$work/$name.onnx" $ranges $states "$@" -t $to $march -o "$work/$target.so"
        PYTHONPATH=scripts "$python" tests/e2e/caches.py check "$work/$name.onnx" "$work/$target.so" "$batch" "$error"
    done
    # shellcheck disable=SC2086
    "$build/mlcc" "$work/$name.onnx" $ranges $states "$@" -march=native --dump-ir=plan -o "$work/$name.c" \
        >"$work/$name.ir"
    # nothing in the arena is as large as a state, and no kernel reads one and writes another
    bytes=$(sed -n 's/^  state at 0 bytes //p' "$work/$name.ir")
    if [ -z "$bytes" ] || grep -qE "launch .* (state .* state|arena \+[0-9]+ bytes $bytes[,)])" "$work/$name.ir"; then
        echo "$name: a state is copied"
        exit 1
    fi
}
targets="c native cuda vulkan"
check plain 2 1e-5 --dim batch=2 --dim past=0..23
check plain 2 1e-5 --dim batch=1..3 --dim past=0..23
check attention 2 1e-5 --dim batch=2 --dim past=0..23
check grouped 1 1e-5 --dim batch=1 --dim past=0..23
check grouped 1 1e-5 --dim batch=1 --dim past=24

targets="native"
check half 2 5e-3 --dim batch=2 --dim past=0..23
check attention 2 2e-2 --dim batch=2 --dim past=0..23 --precision=bf16
check plain 2 5e-3 --dim batch=2 --dim past=0..23 --precision=fp16

# exponentials of a row are divided where they have been multiplied, as where all extents are known
# shellcheck disable=SC2086
"$build/mlcc" "$work/attention.onnx" $ranges $states --dim batch=2 --dim past=0..23 -march=x86-64-v3 \
    --dump-ir=softmax -o "$work/m.c" >"$work/softmax.ir"
grep -q "body exp_low(" "$work/softmax.ir"
grep -q "post acc / " "$work/softmax.ir"

# half the memory, as a model in half floats has
bytes() {
    "$build/mlcc" "$work/plain.onnx" $ranges $states --dim batch=2 --dim past=0..23 "$@" -o "$work/m.c"
    sed -n 's/.*PLAIN_STATE_BYTES  *//p; s/.*M_STATE_BYTES  *//p' "$work/m.h" | head -1 | tr -dc 0-9
}
test "$(bytes)" -eq $((2 * $(bytes --precision=fp16)))

# refused MESSAGE OPTIONS...
refused() {
    message=$1
    shift
    ! "$build/mlcc" "$work/plain.onnx" --dim batch=2 "$@" -o "$work/refused.c" 2>"$work/message"
    grep -q "error\[E0001\]: --state $message" "$work/message"
    test ! -e "$work/refused.c"
}
refused '.*: the input is .*, the output' --state '*_past=*_present' --dim seq=1..4 --dim past=24
refused ".*: the model has no output 'k_next'" --state '*_past=*_next' --dim '*=1'
refused ".*: the model has no input '_past\*'" --state '_past*=_present*' --dim '*=1'
