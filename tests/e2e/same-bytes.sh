# Compiled twice, in two folders, by users with other environments, every kind of output is the same.
set -eu
build=$(realpath "$1") work=$2
mkdir -p "$work/here/tmp" "$work/a longer name/of folders/t"
cp examples/digits/digits.onnx "$work/here/m.onnx"
cp examples/digits/digits.onnx "$work/a longer name/of folders/m.onnx"

kinds="c:m.c c:m.o c:m.a c:m.so cuda:m.cu cuda-cpu:e.so vulkan:m.spv vulkan:m.comp vulkan:v.so"
library_path=${LD_LIBRARY_PATH:-}
(cd "$work/here" && "$build/mlcc" m.onnx -t cuda -march=sm_80 -o n.so) >"$work/nvrtc.log" 2>&1 ||
    if ! grep -q 'E4201' "$work/nvrtc.log"; then cat "$work/nvrtc.log" && exit 1; fi
if [ -e "$work/here/n.so" ]; then
    kinds="$kinds cuda:n.so"
else
    echo "note: same-bytes: NVRTC is not installed: cubins are not compared"
fi

compile() { # MLCC-WORDS...: every kind of output
    for kind in $kinds; do
        target=${kind%%:*} march=
        case $kind in
        cuda-cpu:*) target=cuda march=-march=cpu ;;
        cuda:*.so) march=-march=sm_80,compute_80 ;;
        esac
        # shellcheck disable=SC2086
        "$@" -t $target $march -o "${kind#*:}"
    done
}
(
    umask 022
    export HOME=/ USER=root LANG=C TMPDIR="$PWD/$work/here/tmp" TZ=UTC
    case $work in /*) TMPDIR=$work/here/tmp ;; esac
    cd "$work/here"
    compile "$build/mlcc" m.onnx
    compile "$build/mlcc" m.onnx >/dev/null # over what is there already
)
(
    umask 077
    cd "$work/a longer name/of folders"
    compile env -i PATH="$PATH" LD_LIBRARY_PATH="$library_path" HOME=/nowhere USER=somebody \
        LANG=de_DE.UTF-8 LC_ALL=tr_TR.UTF-8 TZ=Asia/Tokyo TMPDIR="$PWD/t" COLUMNS=40 \
        SOURCE_DATE_EPOCH=12345 "$build/mlcc" "$PWD/m.onnx"
)
rmdir "$work/here/tmp" "$work/a longer name/of folders/t" # nothing was left there
diff -r "$work/here" "$work/a longer name/of folders"
# no path, and nothing of the user, is in them
if grep -rlE 'somebody|mlcc-[A-Za-z0-9]{6}|of folders' "$work/here"; then exit 1; fi
ls "$work/here"
