# A compilation that a signal or the memory limit ends leaves no file anywhere, and no other process.
set -eu
build=$1 work=$2
mkdir -p "$work/tmp"
TMPDIR=$(realpath "$work/tmp")
export TMPDIR
# a C compiler that does not end by itself; `exec`: it is one process
printf '#!/bin/sh\necho $$ >>"%s/pids"\nexec sleep 60\n' "$(realpath "$work")" >"$work/slow"
chmod +x "$work/slow"
for signal in TERM HUP; do
    rm -f "$work/pids"
    "$build/mlcc" examples/digits/digits.onnx --cc "$work/slow" -t c -o "$work/m.so" &
    tries=0
    while [ ! -s "$work/pids" ] && [ $tries -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -$signal $!
    status=0
    wait $! || status=$?
    echo "$signal: status $status"
    test $status -gt 128
    for pid in $(cat "$work/pids"); do
        if kill -0 "$pid" 2>/dev/null; then
            echo "a C compiler still runs"
            exit 1
        fi
    done
    rmdir "$work/tmp" # nothing was left there
    mkdir "$work/tmp"
    test ! -e "$work/m.so"
done
# the limit is hit at different places, of which some have a temporary folder
for limit in 1M 2M 3M; do
    status=0
    "$build/mlcc" examples/digits/digits.onnx --max-memory $limit -t c -o "$work/m.so" || status=$?
    echo "$limit: status $status"
    test $status -eq 6 || test $status -eq 0
    rmdir "$work/tmp"
    mkdir "$work/tmp"
done
