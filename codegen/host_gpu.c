/* The host side of a GPU model: kernels, launches and places as the constant table of
 * runtime/gpu.h, which a launcher (cuda.c, vulkan.c, cuda_emu.c) runs. There is no code in it.
 */
#include "codegen/host.h"

#include <string.h>

typedef struct GpuHost {
    const Program *p;
    const EmitOptions *o;
    const Target *target;
    int n_blobs;
    const Blob *blobs;
    bool emulated, images; /* blobs are CUDA images, not one SPIR-V per kernel */
    const char **kernel;
} GpuHost;

/* --- data ------------------------------------------------------------------------------------- */

static void print_block(Text *out, const char *name, const void *data, size_t bytes) {
    text_add(out, "static const union {\n    ");
    print_bytes_type(out, bytes);
    text_addf(out, ";\n    uint64_t aligned;\n} %s = {{\n", name);
    print_bytes(out, data, bytes, false);
    text_add(out, "}};\n");
}

static void print_words(Text *out, const char *name, const void *data, size_t bytes) {
    const unsigned char *at = data;
    text_addf(out, "static const uint32_t %s[%zu] = {", name, bytes / 4);
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t word;
        memcpy(&word, at + i * 4, 4);
        text_addf(out, "%s0x%xu,", i % 8 ? " " : "\n    ", (unsigned)word);
    }
    text_add(out, "\n};\n");
}

static void print_data(const GpuHost *h, Text *out) {
    bool any = h->p->weight_bytes > 0;
    bool embedded = any && !h->o->weights_file && !h->o->weights_symbol;
    if (h->o->weights_symbol && any)
        text_addf(out, "extern const unsigned char %s[];\n\n", h->o->weights_symbol);
    if (!embedded && !h->n_blobs) return;
    print_bytes_guard(out, true);
    if (embedded) {
        size_t bytes;
        const void *block = weights_block(h->p, &bytes);
        print_block(out, "mlcc_weights", block, bytes);
    }
    for (int i = 0; i < h->n_blobs; i++) {
        const Blob *b = &h->blobs[i];
        const char *name = arena_printf(h->p->arena, "mlcc_code%d", i);
        if (!h->images)
            print_words(out, name, b->data, b->bytes);
        else /* a zero ends PTX text */
            print_block(out, name, arena_copy(h->p->arena, b->data, b->bytes + b->is_ptx),
                        b->bytes + b->is_ptx);
    }
    print_bytes_guard(out, false);
}

/* --- tables ----------------------------------------------------------------------------------- */

static void print_kernels(const GpuHost *h, Text *out) {
    const Program *p = h->p;
    if (p->kernels.n == 0) return;
    if (h->emulated)
        for (int i = 0; i < p->kernels.n; i++)
            text_addf(out, "void tramp_%s(void **params);\n", h->kernel[i]);
    text_addf(out, "static const mlcc_gpu_kernel kernels[%d] = {\n", p->kernels.n);
    for (int i = 0; i < p->kernels.n; i++) {
        const Kernel *k = p->kernels.items[i];
        unsigned long written = 0;
        for (int b = 0; b < k->n_params && b < 32; b++)
            if (k->buffers.items[b]->written) written |= 1ul << b;
        text_addf(out,
                  "    {.name = \"%s\",\n     .block = {%lld, %lld, %lld},\n     .n_args = %d,\n"
                  "     .n_scalars = %d,\n     .write_mask = 0x%lxu",
                  h->kernel[i], (long long)k->block[0], (long long)k->block[1],
                  (long long)k->block[2], k->n_params, k->n_scalars, written);
        if (h->emulated) text_addf(out, ",\n     .emulated = tramp_%s", h->kernel[i]);
        if (!h->images && i < h->n_blobs)
            text_addf(out, ",\n     .spirv = mlcc_code%d,\n     .spirv_bytes = %zu", i,
                      h->blobs[i].bytes);
        text_add(out, "},\n");
    }
    text_add(out, "};\n\n");
}

static int print_arguments(const GpuHost *h, Text *out) {
    static const char *const spaces[] = {
        [PLACE_none] = "MLCC_SPACE_ARENA",      [PLACE_input] = "MLCC_SPACE_INPUT",
        [PLACE_output] = "MLCC_SPACE_OUTPUT",   [PLACE_arena] = "MLCC_SPACE_ARENA",
        [PLACE_weights] = "MLCC_SPACE_WEIGHTS", [PLACE_state] = "MLCC_SPACE_STATE"};
    const Program *p = h->p;
    Text rows = text_new(p->arena);
    int n = 0;
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        for (int i = 0; step->kind == STEP_launch && i < step->kernel->n_params; i++, n++) {
            const Place *place = &step->places[i];
            text_addf(&rows, "    {%s, %d, %lldu, %lldu},\n", spaces[place->space], place->index,
                      (long long)place->offset, (long long)place->bytes);
        }
    }
    if (n)
        text_addf(out, "static const mlcc_gpu_arg arguments[%d] = {\n%s};\n\n", n, text_get(&rows));
    return n;
}

static void print_steps(const GpuHost *h, Text *out) {
    const Program *p = h->p;
    int first = 0;
    if (p->steps.n == 0) return;
    text_addf(out, "static const mlcc_gpu_step steps[%d] = {\n", p->steps.n);
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (step->kind == STEP_loop) {
            text_addf(out, "    {.kind = MLCC_STEP_LOOP, .trips = %lldu},\n",
                      (long long)step->trips);
            continue;
        }
        if (step->kind == STEP_end) {
            text_add(out, "    {.kind = MLCC_STEP_END},\n");
            continue;
        }
        const Kernel *k = step->kernel;
        text_addf(out,
                  "    {.kind = MLCC_STEP_LAUNCH, .kernel = %d, .grid = {%lld, %lld, %lld}, "
                  ".first_arg = %d",
                  kernel_index(p, k), (long long)k->grid[0], (long long)k->grid[1],
                  (long long)k->grid[2], first);
        if (k->n_scalars) {
            text_add(out, ",\n     .scalar = {");
            for (int i = 0; i < k->n_scalars; i++) text_addf(out, "%s%d", i ? ", " : "", i);
            text_add(out, "}");
        }
        text_add(out, "},\n");
        first += k->n_params;
    }
    text_add(out, "};\n\n");
}

static void print_states(const GpuHost *h, Text *out) {
    const Program *p = h->p;
    int n = 0;
    Text rows = text_new(p->arena);
    for (int i = 0; i < p->states.n; i++) {
        const StatePlace *state = &p->states.items[i];
        if (state->initial < 0) continue;
        text_addf(&rows, "    {%lldu, %lldu, %lldu},\n", (long long)state->offset,
                  (long long)state->initial, (long long)state->bytes);
        n++;
    }
    if (n)
        text_addf(out, "static const mlcc_gpu_copy initial[%d] = {\n%s};\n\n", n, text_get(&rows));
}

static void print_images(const GpuHost *h, Text *out) {
    if (!h->images || !h->n_blobs) return;
    text_addf(out, "static const mlcc_gpu_image images[%d] = {\n", h->n_blobs);
    for (int i = 0; i < h->n_blobs; i++) {
        const Blob *b = &h->blobs[i];
        text_addf(out,
                  "    {.arch = %d, .suffix = %d, .is_ptx = %d, .bytes = mlcc_code%d.bytes, "
                  ".n_bytes = %zu},\n",
                  b->arch, b->suffix, b->is_ptx, i, b->bytes);
    }
    text_add(out, "};\n\n");
}

/* A descriptor: the launcher's, with all inputs, or where images are decoded the callers', too. */
static void print_model(const GpuHost *h, const char *name, const char *run, int n_inputs,
                        int64_t arena_bytes, Text *out) {
    const Program *p = h->p;
    text_addf(out,
              "static const mlcc_model %s = {\n"
              "    .abi_version = MLCC_ABI_VERSION,\n"
              "    .struct_bytes = (uint32_t)sizeof(mlcc_model),\n"
              "    .name = %s,\n    .target = \"%s\",\n    .n_inputs = %d,\n    .n_outputs = %d,\n",
              name, c_string(p->arena, h->o->model_name), h->target->name, n_inputs,
              graph_n_outputs(p->graph));
    print_tensor_fields(p, "    ", out);
    if (arena_bytes) text_addf(out, "    .arena_bytes = %lldu,\n", (long long)arena_bytes);
    text_addf(out,
              "    .weight_bytes = %lldu,\n    .open = mlcc_gpu_open,\n    .run = %s,\n"
              "    .close = mlcc_gpu_close,\n    .error = mlcc_gpu_error,\n",
              (long long)p->weight_bytes, run);
    if (p->state_bytes)
        text_addf(out, "    .state_bytes = %lldu,\n    .reset = mlcc_gpu_reset,\n",
                  (long long)p->state_bytes);
    text_add(out, "};\n\n");
}

static void print_program(const GpuHost *h, int n_args, Text *out) {
    const Program *p = h->p;
    text_addf(out,
              "const mlcc_gpu_program mlcc_program = {\n    .model = &model,\n"
              "    .n_kernels = %d,\n    .n_steps = %d,\n    .n_images = %d,\n",
              p->kernels.n, p->steps.n, h->images ? h->n_blobs : 0);
    if (p->kernels.n) text_add(out, "    .kernels = kernels,\n");
    if (n_args) text_add(out, "    .args = arguments,\n");
    if (p->steps.n) text_add(out, "    .steps = steps,\n");
    if (h->images && h->n_blobs) text_add(out, "    .images = images,\n");
    text_addf(out, "    .arena_bytes = %lldu,\n", (long long)p->arena_bytes);
    if (p->weight_bytes && h->o->weights_symbol)
        text_addf(out, "    .weights = %s,\n", h->o->weights_symbol);
    else if (p->weight_bytes && !h->o->weights_file)
        text_add(out, "    .weights = mlcc_weights.bytes,\n");
    int n_initial = 0;
    for (int i = 0; i < p->states.n; i++) n_initial += p->states.items[i].initial >= 0;
    if (n_initial) text_addf(out, "    .n_initial = %d,\n    .initial = initial,\n", n_initial);
    text_addf(out, "    .weights_digest = UINT64_C(0x%016llx),\n};\n\n",
              (unsigned long long)weights_digest(p, h->o));
    if (p->graph->images.n) {
        print_decoding_run(p, 0, "mlcc_gpu_run", out);
        print_model(h, "mlcc_outer_model", "mlcc_run", graph_n_given(p->graph),
                    arena_with_images(p, 0), out);
    }
    text_addf(out, "const mlcc_model *mlcc_model_v1(void) {\n    return &%s;\n}\n",
              p->graph->images.n ? "mlcc_outer_model" : "model");
    print_decoder(p, h->o, out);
}

void emit_gpu_host(const Program *p, const Target *t, const EmitOptions *o, int n_blobs,
                   const Blob *blobs, bool emulated, Text *source) {
    GpuHost host = {
        .p = p, .o = o, .target = t, .n_blobs = n_blobs, .blobs = blobs, .emulated = emulated};
    for (int i = 0; i < n_blobs; i++) host.images |= blobs[i].arch != 0;
    Names names;
    names_init(&names, p->arena, NULL, dialect_cuda.reserved);
    host.kernel = kernel_names(p, &names);
    text_addf(source, "/* %s: the tables of a neural network, made by mlcc.",
              comment_text(p->arena, o->model_name));
    if (o->digest) text_addf(source, "\n * Model digest: %s.", comment_text(p->arena, o->digest));
    text_add(source,
             "\n */\n#include \"gpu.h\"\n\n#include <stddef.h>\n\n"
             "__attribute__((visibility(\"default\"))) const mlcc_model *mlcc_model_v1(void);"
             "\n\n");
    print_decoder_prototype(p, source);
    print_data(&host, source);
    print_tensors(p, source);
    print_kernels(&host, source);
    int n_args = print_arguments(&host, source);
    print_steps(&host, source);
    print_states(&host, source);
    print_images(&host, source);
    print_model(&host, "model", "mlcc_gpu_run", graph_n_inputs(p->graph), 0, source);
    print_program(&host, n_args, source);
}
