# mlcc itself needs libc and protobuf-c, nothing else; it starts at once.
set -eu
ldd "$1/mlcc" | awk '{ print $1 }' >"$2/libraries"
if grep -vE '^(linux-vdso|libc|libm|libprotobuf-c|/lib.*/ld-linux.*|ld-linux.*)(\.so|$)' "$2/libraries"; then
    echo "mlcc must not need these"
    exit 1
fi
"$1/mlcc" --version
"$1/mlcc" --help >"$2/help"
grep -q 'exit status' "$2/help"
start=$(date +%s%N)
for _ in 1 2 3 4 5 6 7 8 9 10; do "$1/mlcc" --version >/dev/null; done
echo "note: mlcc --version takes $((($(date +%s%N) - start) / 10000000)) ms"
