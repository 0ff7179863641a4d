# Quantised models of what networks are made of: compiled for an architecture, they give what the
# interpreter gives, but for a few steps of an encoding (verify allows more). What is made for other
# processors is compiled for this one: functions do then what the instructions would.
set -eu
build=$1 work=$2
python=$(scripts/venv onnx)
"$python" tests/e2e/bytes.py "$work"
check() { # ARCH CC LEVEL
    for model in "$work"/*.onnx; do
        echo "$(basename "$model"), -march=$1, $(basename "$2")"
        "$build/mlcc" verify "$model" -t c "-march=$1" --cc "$2" "-O$3" --threads 2 \
            >"$work/told" || { cat "$work/told" && exit 1; }
        cat "$work/told"
        awk '/relative to scale/ { told = 1; sub(/.*relative to scale /, ""); bad += $1 + 0 > 0.01 }
            END { exit bad || !told }' "$work/told"
    done
}
has() { # FLAG...
    for flag in "$@"; do grep -qw "$flag" /proc/cpuinfo || return 1; done
}
check native cc 1
check armv7e-m+fp tests/cc-any 1
check armv6-m tests/cc-any 1
check armv8.2-a+dotprod+fp16 tests/cc-any 1
[ "$(uname -m)" = x86_64 ] || exit 0
cat >"$work/plain" <<'EOC'
#!/bin/bash
exec cc -Wno-psabi "${@/#-march=*/-march=x86-64}"
EOC
chmod +x "$work/plain"
# Vectors of 64 bytes without instructions for them take a compiler long.
check x86-64-v3 "$work/plain" 0
check cascadelake "$work/plain" 0
if has ssse3; then check x86-64-v2 cc 1; fi
if has avx2; then check x86-64-v3 cc 1; fi
if has avx512bw; then check skylake-avx512 cc 1; fi
if has avx512_vnni; then check cascadelake cc 1; fi
if has avx512_vbmi2 gfni vaes; then check icelake-server cc 1; fi
