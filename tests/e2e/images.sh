# Encoded images as inputs: every format and kind of pixels comes out as ONNX wants it, on all targets;
# what is no image, is cut short or does not fit is refused, whatever it claims, and takes no memory.
set -eu
build=$1 work=$2
if ! pkg-config --exists MagickWand 2>/dev/null; then
    echo "note: MagickWand is not installed: ImageDecoder is not tested"
    exit 0
fi
python=$(scripts/venv onnx)
suite=$(scripts/onnx-tests)/node
"$python" tests/e2e/images.py make "$work" "$suite"
bounds="--image-decoder=magickwand --dim n=1..6000 --dim height=1..40 --dim width=1..40"

run() { "$build/mlcc" run "$1" --input "bytes=$2" --output "$work/out"; }
check() { "$python" tests/e2e/images.py check "$work/want/$1.npy" "$work/out" "$2"; }

# refused LIBRARY NAME
refused() {
    if run "$1" "$work/bad/$2.npy" >"$work/message" 2>&1; then
        echo "$2 was taken"
        exit 1
    fi
    grep -q 'failed with status 1: ' "$work/message" || { cat "$work/message" && exit 1; }
}

for format in RGB BGR Grayscale; do
    # shellcheck disable=SC2086
    "$build/mlcc" "$work/$format.onnx" $bounds -t c -o "$work/$format.so"
done
for path in "$work"/good/*.npy; do
    name=$(basename "$path" .npy)
    for format in RGB BGR Grayscale; do
        run "$work/$format.so" "$path"
        check "$name" $format
    done
done

# some claim to be so large that the library would take 1.8 GB: there is no room for a fifth of that
for path in "$work"/bad/*.npy; do
    (ulimit -v 400000 && refused "$work/RGB.so" "$(basename "$path" .npy)")
done

# other targets; several architectures; threads
cp "$work/RGB.so" "$work/c.so"
# shellcheck disable=SC2086
"$build/mlcc" "$work/RGB.onnx" $bounds -t c -march=x86-64-v2,x86-64-v3 -o "$work/several.so"
# shellcheck disable=SC2086
"$build/mlcc" "$work/RGB.onnx" $bounds -t cuda -march cpu -o "$work/cuda.so"
libraries="c several cuda"
if [ "${SKIP_VULKAN-}" != 1 ]; then
    # shellcheck disable=SC2086
    "$build/mlcc" "$work/RGB.onnx" $bounds -t vulkan -o "$work/vulkan.so"
    libraries="$libraries vulkan"
fi
for library in $libraries; do
    for name in png_palette largest tiff_cmyk jpeg_rgb; do
        run "$work/$library.so" "$work/good/$name.npy"
        check $name RGB
    done
    for name in noise too_wide cut_jpeg_rgb; do refused "$work/$library.so" $name; done
done
"$build/mlcc" run "$work/several.so" --threads 2 --input "bytes=$work/good/largest.npy" \
    --output "$work/out"
check largest RGB
for library in cuda vulkan; do
    case " $libraries " in *" $library "*) ;; *) continue ;; esac
    refused "$work/$library.so" too_wide
    grep -q "'image.width' is 41, not in 1..40" "$work/message"
done

# where no rows are allowed, what cannot be decoded is an empty image, as ONNX has it
# shellcheck disable=SC2086
"$build/mlcc" "$work/RGB.onnx" $bounds --dim height=0..40 --dim width=0..40 -o "$work/empty.so"
run "$work/empty.so" "$work/bad/noise.npy"
"$python" -c "import numpy; assert numpy.load('$work/out/image.npy').shape == (0, 0, 3)"
refused "$work/empty.so" too_wide

# several images, and a state besides
for target in c cuda vulkan; do
    case $target in c) march="-march generic" ;; cuda) march="-march cpu" ;; *) march= ;; esac
    if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
    # shellcheck disable=SC2086
    "$build/mlcc" "$work/two.onnx" --image-decoder=magickwand --state calls=calls_next -t $target $march \
        --dim n=1..6000 --dim m=1..6000 --dim h=1..40 --dim w=1..40 --dim gh=1..40 --dim gw=1..40 \
        -o "$work/two_$target.so"
    rm -rf "$work/out"
    "$build/mlcc" run "$work/two_$target.so" --input "left=$work/good/png_color.npy" \
        --input "right=$work/good/png_gray.npy" --output "$work/out"
    check png_color RGB
    "$python" -c "
import numpy
out, want = '$work/out', numpy.load('$work/want/png_gray.npy')
assert numpy.array_equal(numpy.load(out + '/gray.npy'), want[:, :, :1])
assert numpy.array_equal(numpy.load(out + '/again.npy'), numpy.load(out + '/image.npy')[:, :, ::-1])
assert numpy.load(out + '/counted.npy') == 1"
done

# a size that the model declares is the only one; other inputs have the right number of bytes
"$build/mlcc" "$work/fixed.onnx" --image-decoder magickwand -o "$work/fixed.so"
run "$work/fixed.so" "$work/good/png_color.npy"
check png_color RGB


# C to be compiled by others: strictly, and under the sanitizers on threads
# shellcheck disable=SC2086
"$build/mlcc" "$work/RGB.onnx" $bounds -t c -o "$work/rgb.c"
flags=$(pkg-config --cflags MagickWand)
strict=$(echo "$flags" | sed 's/-I/-isystem /g')
# shellcheck disable=SC2086
gcc -std=c99 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror $strict \
    -c "$work/rgb.c" -o "$work/rgb.o"
# shellcheck disable=SC2046,SC2086
gcc -std=gnu11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined $flags -I"$work" \
    tests/e2e/images_main.c "$work/rgb.c" $(pkg-config --libs MagickWand) -lm -lpthread -o "$work/main"
ASAN_OPTIONS=detect_leaks=0 "$work/main" "$work"/raw/*

# without the library
if PKG_CONFIG_LIBDIR=/nowhere "$build/mlcc" "$work/fixed.onnx" --image-decoder=magickwand \
    -o "$work/none.so" 2>"$work/message"; then
    exit 1
fi
grep -q 'error\[E0003\].*install libmagickwand-dev' "$work/message"
