"""Images and what ImageDecoder makes of them, for images.sh.

    images.py make FOLDER SUITE    models, NAME.npy (encoded) and want/NAME.npy (RGB) of good images,
                                   bad/NAME.npy of what is none or does not fit
    images.py check WANT GOT [Grayscale]
"""

import os
import struct
import sys
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIMIT = 40  # rows and columns of the models' images
BYTES = 6000  # of the encoded stream


def png(width, height, depth, color, rows, extra=b""):
    """rows: bytes of each row, as the format packs them."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", data)
            + chunk(b"IEND", b""))


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def tiff(pages):
    """Pages of (pixels, photometric), uncompressed, 8 bits a sample."""
    out = bytearray(b"II*\0\0\0\0\0")
    link = 4
    for pixels, photometric in pages:
        height, width, samples = pixels.shape
        data = len(out)
        out += pixels.tobytes() + b"\0" * (pixels.size % 2)
        bits = len(out)
        out += struct.pack("<4H", 8, 8, 8, 8)
        out[link:link + 4] = struct.pack("<I", len(out))
        entries = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, samples, bits if samples > 2 else 8),
                   (259, 3, 1, 1), (262, 3, 1, photometric), (273, 4, 1, data), (277, 3, 1, samples),
                   (278, 3, 1, height), (279, 4, 1, pixels.size), (284, 3, 1, 1)]
        out += struct.pack("<H", len(entries))
        for tag, kind, count, value in entries:
            out += struct.pack("<HHII", tag, kind, count, value)
        link = len(out)
        out += b"\0\0\0\0"
    return bytes(out)


def rotated(jpeg):
    """The same with an EXIF note that the picture lies on its side."""
    note = b"Exif\0\0" + b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 274, 3, 1, 6, 0, 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(note) + 2) + note + jpeg[2:]


def good_images(suite):
    """name -> (bytes, RGB pixels)"""
    rng = np.random.default_rng(5)
    images = {}

    def add(name, data, pixels):
        images[name] = (data, np.ascontiguousarray(pixels))

    rgb = rng.integers(0, 256, (7, 11, 3), np.uint8)
    gray = rng.integers(0, 256, (9, 5), np.uint8)
    grays = np.repeat(gray[:, :, None], 3, 2)
    alpha = rng.integers(0, 256, gray.shape, np.uint8)
    add("png_color", png(11, 7, 8, 2, [r.tobytes() for r in rgb]), rgb)
    add("png_gray", png(5, 9, 8, 0, [r.tobytes() for r in gray]), grays)
    add("png_gray_alpha", png(5, 9, 8, 4, [r.tobytes() for r in np.dstack([gray, alpha])]), grays)
    opacity = rng.integers(0, 256, (7, 11, 1), np.uint8)
    add("png_rgb_alpha", png(11, 7, 8, 6, [r.tobytes() for r in np.dstack([rgb, opacity])]), rgb)
    palette = rng.integers(0, 256, (16, 3), np.uint8)
    index = rng.integers(0, 16, (6, 8), np.uint8)
    packed = [bytes(row[0::2] << 4 | row[1::2]) for row in index]
    plte = png_chunk(b"PLTE", palette.tobytes())
    add("png_palette", png(8, 6, 4, 3, packed, plte), palette[index])
    trns = png_chunk(b"tRNS", bytes([0, 128]))
    add("png_palette_alpha", png(8, 6, 4, 3, packed, plte + trns), palette[index])
    wide = rgb.astype(">u2") * 257  # 16 bits
    add("png_rgb_16", png(11, 7, 16, 2, [r.astype(">u2").tobytes() for r in wide]), rgb)
    wide = gray.astype(">u2") * 257
    add("png_gray_16", png(5, 9, 16, 0, [r.astype(">u2").tobytes() for r in wide]), grays)
    linear = png_chunk(b"gAMA", struct.pack(">I", 100000))  # pixels are not converted
    add("png_linear", png(11, 7, 8, 2, [r.tobytes() for r in rgb], linear), rgb)
    bits = rng.integers(0, 2, (3, 16), np.uint8)
    ones = np.repeat(bits[:, :, None] * np.uint8(255), 3, 2)
    add("png_bits", png(16, 3, 1, 0, [np.packbits(r).tobytes() for r in bits]), ones)
    add("pbm", b"P4 16 3\n" + b"".join(np.packbits(1 - r).tobytes() for r in bits), ones)
    add("pgm", b"P5\n# a note\n5 9\n255\n" + gray.tobytes(), grays)
    add("pgm_text", b"P2 2 1 100\n0 100\n", np.array([[[0] * 3, [255] * 3]], np.uint8))
    add("ppm_one", b"P6 1 1 255\n\x01\x02\x03", np.array([[[1, 2, 3]]], np.uint8))
    most = rng.integers(0, 256, (LIMIT, LIMIT, 3), np.uint8)
    add("largest", b"P6 %d %d 255\n" % (LIMIT, LIMIT) + most.tobytes(), most)
    ink = np.array([[[0, 0, 0, 0], [255, 0, 0, 0], [0, 255, 0, 0], [0, 0, 0, 255]]], np.uint8)
    white = np.array([[[255, 255, 255], [0, 255, 255], [255, 0, 255], [0, 0, 0]]], np.uint8)
    add("tiff_cmyk", tiff([(ink, 5)]), white)
    add("tiff_pages", tiff([(rgb, 2), (rgb[::-1, :5], 2)]), rgb)
    for name in sorted(os.listdir(suite)):
        if not name.startswith("test_image_decoder") or not name.endswith("_rgb"):
            continue
        tensors = []
        for which in ("input_0", "output_0"):
            with open(f"{suite}/{name}/test_data_set_0/{which}.pb", "rb") as file:
                tensors.append(numpy_helper.to_array(TensorProto.FromString(file.read())))
        data, pixels = tensors[0].tobytes(), tensors[1]
        add(name[len("test_image_decoder_decode_"):], data, pixels)
        if "_jpeg_" in name:
            add("jpeg_on_its_side", rotated(data), pixels)
    return images


def bad_images(good):
    """What is no image of ours, or one that does not fit."""
    flat = [b"\0" * 3 * (LIMIT + 1)]
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>'
    bad = {
        "one_byte": b"P",
        "noise": bytes(np.random.default_rng(6).integers(0, 256, 500, np.uint8)),
        "svg": svg,
        "xml_svg": b'<?xml version="1.0"?>' + svg,
        "mvg": b"push graphic-context\nviewbox 0 0 4 4\npop graphic-context\n",
        "gif": b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;",
        "name": b"label:4",
        "path": b"@/etc/hostname",
        "png_head": b"\x89PNG\r\n\x1a\n",
        "png_false": b"\x89PNG\r\n\x1a\n" + svg,
        "too_wide": png(LIMIT + 1, 1, 8, 2, flat),
        "too_high": b"P5 1 %d 255\n" % (LIMIT + 1) + b"\0" * (LIMIT + 1),
        "beyond": png(2**31 - 1, 2**31 - 1, 8, 2, [b""]),
        "beyond_pnm": b"P6 4000000000 4000000000 255\n",
    }
    bad.update(vast_images(good))
    for name in ("png_rgb", "jpeg_rgb", "bmp_rgb", "pnm_rgb", "tiff_rgb", "webp_rgb"):
        data = good[name][0]
        bad[f"cut_{name}"] = data[:len(data) * 2 // 3]
    return bad


def vast_images(good):
    """Whole images whose heads claim to be of 15000 x 15000 pixels, 1.8 GB to the library."""
    size = 15000

    def patched(name, after, skip, *fields):
        data = bytearray(good[name][0])
        at = data.index(after) + len(after) + skip if after else skip
        for field in fields:
            data[at:at + len(field)] = field
            at += len(field)
        return data

    big, small = struct.pack(">I", size), struct.pack("<I", size)
    jp2 = patched("jpeg2k_rgb", b"ihdr", 0, big, big)
    siz = jp2.index(b"\xff\x51") + 6
    jp2[siz:siz + 8] = big * 2
    sof = struct.pack(">H", size)
    ink = np.zeros((4, 4, 3), np.uint8)
    page = bytearray(tiff([(ink, 2)]))
    for tag in (256, 257):
        at = page.index(struct.pack("<HHI", tag, 3, 1)) + 8
        page[at:at + 4] = small
    return {"vast_bmp": bytes(patched("bmp_rgb", b"", 18, small, small)), "vast_jp2": bytes(jp2),
            "vast_jpeg": bytes(patched("jpeg_rgb", b"\xff\xc0", 3, sof, sof)),
            "vast_webp": bytes(patched("webp_rgb", b"\x9d\x01\x2a", 0, sof[::-1], sof[::-1])),
            "vast_pnm": b"P6 %d %d 255\n" % (size, size), "vast_tiff": bytes(page),
            "vast_png": png(size, size, 8, 2, [b""])}


def make_model(path, pixel_format, declared, stream=None):
    shape = ["height", "width", None] if declared is None else declared
    node = helper.make_node("ImageDecoder", ["bytes"], ["image"], "decode", pixel_format=pixel_format)
    scale = helper.make_node("Cast", ["image"], ["numbers"], to=TensorProto.FLOAT)
    graph = helper.make_graph(
        [node, scale], "images",
        [helper.make_tensor_value_info("bytes", TensorProto.UINT8, [stream or "n"])],
        [helper.make_tensor_value_info("image", TensorProto.UINT8, shape),
         helper.make_tensor_value_info("numbers", TensorProto.FLOAT, shape)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def make_two(path):
    """Two images, of which one is decoded twice, and a state: how many calls there were."""
    nodes = [
        helper.make_node("ImageDecoder", ["left"], ["image"], "first"),
        helper.make_node("ImageDecoder", ["right"], ["gray"], "second", pixel_format="Grayscale"),
        helper.make_node("ImageDecoder", ["left"], ["again"], "third", pixel_format="BGR"),
        helper.make_node("Cast", ["image"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["calls", "one"], ["calls_next"]),
        helper.make_node("Identity", ["calls_next"], ["counted"]),
    ]
    u8, i64, f32 = TensorProto.UINT8, TensorProto.INT64, TensorProto.FLOAT
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "two", [info("left", u8, ["n"]), info("calls", i64, []), info("right", u8, ["m"])],
        [info("image", u8, ["h", "w", 3]), info("gray", u8, ["gh", "gw", 1]),
         info("again", u8, [7, 11, 3]), info("numbers", f32, ["h", "w", 3]), info("calls_next", i64, []),
         info("counted", i64, [])],
        [numpy_helper.from_array(np.array(1), "one")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def save(path, data):
    np.save(path, np.frombuffer(data, np.uint8))


def make(folder, suite):
    for name in ("good", "want", "bad", "raw"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    for pixel_format in ("RGB", "BGR", "Grayscale"):
        make_model(f"{folder}/{pixel_format}.onnx", pixel_format, None)
    good = good_images(suite)
    make_model(f"{folder}/fixed.onnx", "RGB", [7, 11, 3], len(good["png_color"][0]))
    make_two(f"{folder}/two.onnx")
    for name, (data, pixels) in good.items():
        assert len(data) <= BYTES, name
        save(f"{folder}/good/{name}.npy", data)
        np.save(f"{folder}/want/{name}.npy", pixels)
        with open(f"{folder}/raw/{name}", "wb") as file:
            file.write(data)
    for name, data in bad_images(good).items():
        save(f"{folder}/bad/{name}.npy", data)


def check(want, got, pixel_format):
    want, image, numbers = np.load(want), np.load(f"{got}/image.npy"), np.load(f"{got}/numbers.npy")
    if pixel_format == "BGR":
        want = want[:, :, ::-1]
    if pixel_format == "Grayscale":
        want = (want.astype(np.int64) @ [19595, 38470, 7471] + 32768 >> 16)[:, :, None]
    assert image.shape == want.shape, (image.shape, want.shape)
    assert np.array_equal(image, want), (image.reshape(-1)[:12], want.reshape(-1)[:12])
    assert np.array_equal(numbers, want.astype(np.float32))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:])
    else:
        check(*sys.argv[2:])
