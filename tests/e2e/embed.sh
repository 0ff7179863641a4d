# The digits network as firmware, run on an emulated Cortex-M4: the stack that it measures is what the
# C compiler says of the functions that call each other, but for what is left free at the end.
set -eu
sh examples/embed/run "$1/mlcc" >"$2/told" 2>&1 || { cat "$2/told" && exit 1; }
cat "$2/told"
if grep -q '^stack:' "$2/told"; then
    measured=$(awk '$1 == "stack:" { print $2 }' "$2/told")
    awk -v measured="$measured" '
        $1 ~ /:(classify|digits_model_run)$/ { sum += $2 }
        $1 ~ /:k[0-9]+_[a-z0-9_]+$/ && $2 > kernel { kernel = $2 }
        END {
            sum += kernel
            print "stack: measured " measured ", by build/embed/*.su " sum
            exit !kernel || measured > sum || measured < sum - 8
        }' build/embed/*.su
fi
