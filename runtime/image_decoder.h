/* Decodes images for generated code, with ImageMagick's MagickWand.
 *
 * The text of this file ends a file of generated code that needs it, so that nothing before sees
 * the library's names; the function is declared there before it is called. The library is in C99
 * with the usual extensions, and takes memory of its own while it decodes.
 *
 * Only the formats of ONNX's ImageDecoder are let through, by how they begin, and the library is
 * told which one it is: it never guesses, and knows formats that read files or run programs. The
 * size is read first, and an image that does not fit is not decoded, so what a small file claims to
 * hold takes no memory. Limits of the process (policy.xml, resource limits) are left as they are
 * and hold too.
 */
#if defined(__has_include)
#if __has_include(<MagickWand/MagickWand.h>)
#define MLCC_MAGICKWAND_7
#endif
#endif
#ifdef MLCC_MAGICKWAND_7
#include <MagickWand/MagickWand.h>
#else
#include <wand/MagickWand.h>
#endif
#include <string.h>

/* The name that the library has for the format, as the beginning of a file's name; NULL: none of
 * ours. */
static const char *mlcc_image_format(const unsigned char *stream, size_t length) {
    static const struct {
        const char *bytes;
        unsigned char length;
        const char *format;
    } known[] = {
        {"BM", 2, "BMP:"},
        {"\xff\xd8\xff", 3, "JPEG:"},
        {"\x00\x00\x00\x0cjP  \r\n\x87\n", 12, "JP2:"},
        {"\xff\x4f\xff\x51", 4, "J2K:"},
        {"II*\x00", 4, "TIFF:"},
        {"MM\x00*", 4, "TIFF:"},
        {"\x89PNG\r\n\x1a\n", 8, "PNG:"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (length >= known[i].length && !memcmp(stream, known[i].bytes, known[i].length))
            return known[i].format;
    if (length >= 12 && !memcmp(stream, "RIFF", 4) && !memcmp(stream + 8, "WEBP", 4))
        return "WEBP:";
    if (length >= 3 && stream[0] == 'P' && stream[1] >= '1' && stream[1] <= '6' &&
        strchr(" \t\r\n#", stream[2]) && stream[2])
        return "PNM:";
    return NULL;
}

/* Is a JPEG's end marker there? The library fills what is missing with gray, and says nothing. */
static int mlcc_image_ends(const unsigned char *stream, size_t length) {
    for (size_t at = 2; at + 1 < length;) {
        const unsigned marker = stream[at + 1];
        if (stream[at] != 0xff || marker == 0xff) {
            at++; /* compressed data, or what fills up */
        } else if (marker == 0xd9) {
            return 1;
        } else if (marker <= 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {
            at += 2; /* without a segment */
        } else if (length - at < 4) {
            return 0;
        } else { /* the segment, which may hold another JPEG */
            at += 2 + ((size_t)stream[at + 2] << 8 | stream[at + 3]);
        }
    }
    return 0;
}

/* A wand with what MagickPingImageBlob or MagickReadImageBlob makes of the stream's first image;
 * NULL: it cannot be read. */
static MagickWand *mlcc_image_open(const unsigned char *stream, size_t length,
                                   MagickBooleanType (*read)(MagickWand *, const void *,
                                                             const size_t)) {
    const char *format = mlcc_image_format(stream, length);
    char name[16] = "";
    if (!format || (!strcmp(format, "JPEG:") && !mlcc_image_ends(stream, length))) return NULL;
    strcat(strcat(name, format), "[0]");
    MagickWandGenesis(); /* does nothing but the first time */
    MagickWand *wand = NewMagickWand();
    if (!wand) return NULL;
    MagickBooleanType read_all = MagickSetFilename(wand, name) && read(wand, stream, length);
    ExceptionType problem = MagickGetExceptionType(wand);
    /* the data end early, say: a warning to the library, but no image to ONNX */
    if (problem >= ErrorException || problem == CorruptImageWarning) read_all = MagickFalse;
    if (read_all && MagickGetNumberImages(wand) > 0 && MagickSetIteratorIndex(wand, 0)) return wand;
    DestroyMagickWand(wand);
    return NULL;
}

/* Luma of ITU-R 601-2, rounded. */
static MagickBooleanType mlcc_image_gray(MagickWand *wand, size_t height, size_t width,
                                         unsigned char *pixels) {
    unsigned char rgb[3 * 256];
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x += 256) {
            size_t n = width - x < 256 ? width - x : 256;
            if (!MagickExportImagePixels(wand, (ssize_t)x, (ssize_t)y, n, 1, "RGB", CharPixel, rgb))
                return MagickFalse;
            for (size_t i = 0; i < n; i++)
                pixels[y * width + x + i] =
                    (unsigned char)((19595u * rgb[3 * i] + 38470u * rgb[3 * i + 1] +
                                     7471u * rgb[3 * i + 2] + 32768u) >>
                                    16);
        }
    return MagickTrue;
}

/* The pixels of the stream's first image. False: it cannot be decoded. */
static MagickBooleanType mlcc_image_read(const unsigned char *stream, size_t length,
                                         const char *format, size_t height, size_t width,
                                         unsigned char *pixels) {
    MagickWand *wand = mlcc_image_open(stream, length, MagickReadImageBlob);
    if (!wand) return MagickFalse;
    MagickBooleanType ok =
        MagickGetImageHeight(wand) == height && MagickGetImageWidth(wand) == width;
    ColorspaceType space = MagickGetImageColorspace(wand);
    if (ok && space != sRGBColorspace && space != RGBColorspace && space != GRAYColorspace &&
        space != LinearGRAYColorspace) /* CMYK, say */
        ok = MagickTransformImageColorspace(wand, sRGBColorspace);
    if (ok)
        ok = format[0] == 'G'
                 ? mlcc_image_gray(wand, height, width, pixels)
                 : MagickExportImagePixels(wand, 0, 0, width, height, format, CharPixel, pixels);
    DestroyMagickWand(wand);
    return ok;
}

/* Decodes `length` bytes, of which there must be no more than `most`, to u8[height, width, 3], or 1
 * channel for "Grayscale". size: the image's height and width; both are 0 if it cannot be decoded,
 * and pixels are written only where neither is above its limit. */
static void mlcc_decode_image(const unsigned char *stream, int32_t length, int32_t most,
                              const char *format, int32_t height, int32_t width,
                              unsigned char *pixels, int32_t *size) {
    size[0] = size[1] = 0;
    if (!stream || length < 0 || length > most) return;
    MagickWand *wand = mlcc_image_open(stream, (size_t)length, MagickPingImageBlob);
    if (!wand) return;
    size_t h = MagickGetImageHeight(wand), w = MagickGetImageWidth(wand);
    DestroyMagickWand(wand);
    if (h == 0 || w == 0) return;
    if (h <= (size_t)height && w <= (size_t)width &&
        !mlcc_image_read(stream, (size_t)length, format, h, w, pixels))
        return;
    size[0] = (int32_t)(h < INT32_MAX ? h : INT32_MAX);
    size[1] = (int32_t)(w < INT32_MAX ? w : INT32_MAX);
}
