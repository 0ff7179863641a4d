/* Images that the host decodes before the steps run: the same for all targets. The steps are in a
 * function of all inputs, and what callers see is one of those that they give, which decodes into
 * the arena and calls it. The decoder is runtime/image_decoder.h. See host.h.
 */
#include "codegen/host.h"

#define IMAGE_ALIGN 64

static int64_t align_image(int64_t bytes) {
    return (bytes + IMAGE_ALIGN - 1) / IMAGE_ALIGN * IMAGE_ALIGN;
}

int64_t arena_with_images(const Program *p, int64_t own) {
    const Graph *g = p->graph;
    if (!g->images.n) return own;
    int64_t bytes = align_image(own);
    for (int i = 0; i < g->images.n; i++)
        bytes += align_image((int64_t)value_bytes(g->images.items[i].pixels));
    return bytes;
}

const char *steps_name(const Program *p, const EmitOptions *o) {
    return arena_printf(p->arena, "%s_run%s", o->prefix, p->graph->images.n ? "_decoded" : "");
}

void print_decoder_prototype(const Program *p, Text *out) {
    if (p->graph->images.n)
        text_add(out, "/* Decodes an image; at the end of this file. */\n"
                      "static void mlcc_decode_image(const unsigned char *stream, int32_t length, "
                      "int32_t most,\n"
                      "                              const char *format, int32_t height, int32_t "
                      "width,\n"
                      "                              unsigned char *pixels, int32_t *size);\n\n");
}

void print_decoder(const Program *p, const EmitOptions *o, Text *out) {
    if (!p->graph->images.n) return;
    text_add(out, "\n");
    text_add(out, o->image_decoder);
}

/* How many bytes the encoded image has in a run. */
static const char *stream_length(const Program *p, const Value *stream, const char *const *input) {
    int at = symbol_input(p, dim_symbol(p->x, stream->dims[0]));
    if (!dim_varies(stream->dims[0]))
        return arena_printf(p->arena, "%lld", (long long)stream->shape[0]);
    return arena_printf(p->arena, "%s == NULL ? -1 : *(const int32_t *)%s", input[at], input[at]);
}

static int input_number(const Graph *g, const Value *v) {
    int i = 0;
    while (g->inputs.items[i] != v) i++;
    return i;
}

void print_decoding(const Program *p, int64_t own, const char **input, Text *out) {
    const Graph *g = p->graph;
    int64_t offset = align_image(own);
    text_addf(out, "    unsigned char *const mlcc_pixels = (unsigned char *)arena + %lld;\n",
              (long long)offset);
    text_addf(out, "    int32_t mlcc_size[%d][2];\n", g->images.n);
    offset = 0;
    for (int i = 0; i < g->images.n; i++) {
        const GraphImage *image = &g->images.items[i];
        const Value *pixels = image->pixels;
        int n = 0, at = graph_n_given(g) + 3 * i;
        const char *place = arena_printf(p->arena, "mlcc_pixels + %lld", (long long)offset);
        const char *piece[8];
        piece[n++] = input[input_number(g, image->stream)];
        piece[n++] = stream_length(p, image->stream, input);
        piece[n++] = arena_printf(p->arena, "%lld", (long long)image->stream->shape[0]);
        piece[n++] = arena_printf(p->arena, "\"%s\"", image->format);
        piece[n++] = arena_printf(p->arena, "%lld", (long long)pixels->shape[0]);
        piece[n++] = arena_printf(p->arena, "%lld", (long long)pixels->shape[1]);
        piece[n++] = place;
        piece[n++] = arena_printf(p->arena, "mlcc_size[%d]", i);
        text_add(out, "    mlcc_decode_image(");
        text_list(out, n, piece, 22, 22);
        text_add(out, ");\n");
        input[at] = arena_printf(p->arena, "&mlcc_size[%d][0]", i);
        input[at + 1] = arena_printf(p->arena, "&mlcc_size[%d][1]", i);
        input[at + 2] = place;
        offset += align_image((int64_t)value_bytes(pixels));
    }
}

void print_decoding_run(const Program *p, int64_t own, const char *steps, Text *out) {
    int n = graph_n_inputs(p->graph);
    const char **input = ARENA_ARRAY(p->arena, n + 1, const char *);
    for (int i = 0; i < graph_n_given(p->graph); i++)
        input[i] = arena_printf(p->arena, "inputs[%d]", i);
    text_addf(out,
              "/* Images are decoded into the arena; the steps read what came of them, and refuse "
              "sizes that do\n * not fit. */\n"
              "static int mlcc_run(void *state, const void *const *inputs, void *const *outputs,\n"
              "                    void *arena) {\n"
              "    if (inputs == NULL || arena == NULL) return MLCC_E_ARGUMENT;\n");
    print_decoding(p, own, input, out);
    text_addf(out, "    const void *const all[%d] = {", n);
    text_list(out, n, input, 33, 8);
    text_addf(out, "};\n    return %s(state, all, outputs, arena);\n}\n\n", steps);
}
