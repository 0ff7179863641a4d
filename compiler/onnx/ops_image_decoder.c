/* ImageDecoder: pixels of an encoded image. The host decodes it before the run, with a library that
 * only generated code links; the graph gets three inputs more (GraphImage in ir/graph.h). That
 * keeps the steps of a run on the device, and asks that the bytes are an input of the model.
 */
#include "compiler/onnx/import.h"

#include <string.h>

/* The range of a dimension of the image. False after a report, or, without one, where nothing says
 * it; *name is what --dim calls it then. */
static bool image_extent(Node *n, int axis, int64_t *low, int64_t *high, const char **name) {
    int64_t extent = 0;
    *name = "";
    if (node_declared_extent(n, 0, axis, &extent, name)) {
        *low = *high = extent;
        if (dim_varies(extent))
            unsupported(n, "the image's dimension %d is declared as one of an input, which varies",
                        axis);
    } else if (!node_range(n, *name, low, high)) {
        return false;
    }
    if (!n->failed && *high < 1) invalid(n, E2005, "the image has no pixels");
    return !n->failed;
}

/* The encoded bytes as callers give them. NULL after a report. */
static Value *encoded_input(Node *n) {
    const Value *stream = node_need(n, 0);
    if (!stream) return NULL;
    if (stream->dt != DT_u8 || stream->rank != 1) {
        invalid(n, E2006, "the encoded stream is %s of rank %d, not uint8 of rank 1",
                dt_name(stream->dt), stream->rank);
        return NULL;
    }
    if (!node_decodes_images(n))
        unsupported(n, "a library decodes images, which only compiled code uses: compile with "
                       "--image-decoder=magickwand");
    else if (n->g->depth)
        unsupported(n, "images are decoded before the run, not inside of a loop");
    else if (!n->entity[0]->input)
        unsupported(n, "images are decoded before the run: the encoded stream must be an input of "
                       "the model");
    return n->failed ? NULL : n->entity[0]->input;
}

void import_image_decoder(Node *n) {
    static const char *const formats[] = {"RGB", "BGR", "Grayscale"};
    const char *name[2];
    int64_t low[2] = {0, 0}, high[2] = {0, 0};
    int format = attr_choice(n, "pixel_format", 0, "RGB BGR Grayscale");
    if (n->failed) return;
    Value *stream = encoded_input(n);
    if (!stream) return;
    Text missing = text_new(n->g->arena);
    for (int axis = 0; axis < 2 && !n->failed; axis++)
        if (!image_extent(n, axis, &low[axis], &high[axis], &name[axis]) && !n->failed)
            text_addf(&missing, " --dim %s=LOW..HIGH", name[axis]);
    if (n->failed) return;
    if (missing.length) {
        invalid(n, E3004, "the model does not say how large the image may be; give%s",
                text_get(&missing));
        return;
    }
    n->out[0] = graph_image(n->g, stream, formats[format], low, high, n->proto->output[0]);
    if (!n->out[0]) unsupported(n, "more than %d dimensions that vary", DIM_MAX_SYMBOLS);
}
