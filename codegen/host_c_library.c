/* What a library of C has besides the model's code: open, run, close and the descriptor, see
 * mlcc/model.h. Instances that keep states are host_instance.c's.
 */
#include "codegen/host.h"
#include "codegen/share.h"

#include <string.h>

typedef struct Library {
    const Program *p;
    const EmitOptions *o;
    Arena *arena;
    bool team; /* the steps are for several threads */
    bool kept; /* there are states */
} Library;

#define PRINTF(...) arena_printf(h->arena, __VA_ARGS__)

/* The weights file of a library: read whole when the model is opened. */
static void print_read_weights(const Library *h, Text *out) {
    unsigned long long bytes = (unsigned long long)h->p->weight_bytes + WEIGHTS_HEAD;
    text_addf(out,
              "static int mlcc_read_weights(void **data, const char *weights) {\n"
              "    const size_t bytes = (size_t)%lluu;\n"
              "    FILE *file = weights ? fopen(weights, \"rb\") : NULL;\n"
              "    int code = MLCC_OK;\n"
              "    *data = NULL;\n"
              "    if (!file) return MLCC_E_FILE;\n"
              "    if (posix_memalign(data, 64, bytes + 1) != 0) *data = NULL;\n"
              "    if (!*data)\n"
              "        code = MLCC_E_MEMORY;\n"
              "    else if (fread(*data, 1, bytes + 1, file) != bytes)\n"
              "        code = MLCC_E_FILE;\n"
              "    fclose(file);\n"
              "    return code;\n"
              "}\n\n",
              bytes);
}

void print_hold_weights(const Program *p, const EmitOptions *o, Text *out) {
    if (o->weights_symbol)
        text_addf(out,
                  "    static int held;\n"
                  "    if (mlcc_hold_weights(&held, %s, (size_t)%lldu) != MLCC_OK)\n"
                  "        return MLCC_E_MEMORY;\n",
                  o->weights_symbol, (long long)p->weight_bytes);
}

/* The state is the team, whose owner's data are the weights of a side file; without a team it is
 * the weights. */
static void print_open_close(const Library *h, bool file, Text *out) {
    text_add(out, "static int mlcc_open(void **state, const char *weights) {\n"
                  "    *state = NULL;\n");
    print_hold_weights(h->p, h->o, out);
    if (h->team) {
        text_add(out, file ? "    void *data = NULL;\n"
                             "    int code = mlcc_read_weights(&data, weights);\n"
                           : "    void *const data = NULL;\n    (void)weights;\n");
        text_addf(out, "    *state = mlcc_team_new(data, %lldu);\n", (long long)apart_bytes(h->p));
        if (file)
            text_add(out, "    if (MLCC_HAS_THREADS && !*state) {\n        free(data);\n"
                          "        return MLCC_E_MEMORY;\n    }\n    return code;\n}\n\n");
        else
            text_add(out,
                     "    return MLCC_HAS_THREADS && !*state ? MLCC_E_MEMORY : MLCC_OK;\n}\n\n");
    } else if (file) {
        text_add(out, "    return mlcc_read_weights(state, weights);\n}\n\n");
    } else {
        text_add(out, "    (void)weights;\n    return MLCC_OK;\n}\n\n");
    }
    text_add(out, "static void mlcc_close(void *state) {\n");
    if (h->team && file) text_add(out, "    free(mlcc_team_user(state));\n");
    text_add(out, h->team ? "    mlcc_team_free(state);\n}\n\n"
                  : file  ? "    free(state);\n}\n\n"
                          : "    (void)state;\n}\n\n");
}

static void print_open(const Library *h, Text *out) {
    bool file = h->o->weights_file != NULL;
    if (file) print_read_weights(h, out);
    if (h->kept)
        print_instance(h->p, h->o, h->team, out);
    else
        print_open_close(h, file, out);
    text_addf(out,
              "static const char *mlcc_error(void *state) {\n    (void)state;\n"
              "    return \"%s\";\n}\n\n",
              file ? "the weights file is missing or not the one made with this model"
              : h->p->graph->images.n ? "a tensor or the arena is missing, or an image cannot be "
                                        "decoded or does not fit"
              : graph_status_output(h->p->graph) >= 0
                  ? "a tensor or the arena is missing, or extents do not fit the model"
                  : "a tensor or the arena is missing");
    if (!h->o->threads) return;
    text_add(out, "static int mlcc_set_threads(void *state, int threads) {\n");
    text_add(out, h->team ? "    return mlcc_team_resize(state, threads);\n}\n\n"
                          : "    (void)state; /* there is no work to share */\n"
                            "    return threads > 0 ? MLCC_OK : MLCC_E_ARGUMENT;\n}\n\n");
}

/* Prints `call(inputs[0], ..., outputs[0], ..., weights, arena` of a run; `from` is where these
 * are. */
static void print_call(const Library *h, const char *call, const char *from, const char *weights,
                       const char *more, Text *out) {
    const Program *p = h->p;
    int n = 0;
    const char **piece = ARENA_ARRAY(
        h->arena, graph_n_inputs(p->graph) + graph_n_outputs(p->graph) + 4, const char *);
    for (int i = 0; i < graph_n_inputs(p->graph); i++) piece[n++] = PRINTF("%sinputs[%d]", from, i);
    for (int i = 0; i < graph_n_outputs(p->graph); i++)
        piece[n++] = PRINTF("%soutputs[%d]", from, i);
    const char *own = *from ? "call->own" : "own";
    if (h->o->weights_file) piece[n++] = h->kept ? PRINTF("%s->weights", own) : weights;
    if (h->kept) piece[n++] = PRINTF("%s->kept", own);
    piece[n++] = PRINTF("%sarena", from);
    if (more) piece[n++] = more;
    int column = (int)strlen(call);
    text_add(out, call);
    text_list(out, n, piece, column, column);
    text_add(out, ");\n");
}

static void print_library_run(const Library *h, Text *out) {
    const Program *p = h->p;
    const char *name = p->graph->images.n ? "mlcc_run_decoded" : "mlcc_run";
    const char *head = PRINTF("static int %s(void *state, const void *const *inputs, "
                              "void *const *outputs,\n%*svoid *arena) {\n",
                              name, (int)strlen(name) + 12, "");
    if (h->team) {
        text_add(out, "typedef struct mlcc_call {\n    const void *const *inputs;\n"
                      "    void *const *outputs;\n    void *arena;\n");
        text_add(out, h->kept ? "    const mlcc_instance *own;\n" : "    const void *weights;\n");
        text_add(out, "    int code;\n} mlcc_call;\n\n"
                      "static void mlcc_steps(void *user, int32_t thread, int32_t threads, "
                      "mlcc_team *team) {\n    mlcc_call *const call = user;\n");
        print_call(h, "    const int code = mlcc_take_part(", "call->", "call->weights",
                   "thread, threads, team", out);
        text_addf(out,
                  "    if (thread == 0) call->code = code;\n}\n\n%s"
                  "    mlcc_call call = {inputs, outputs, arena, %s, MLCC_OK};\n"
                  "    mlcc_team_run(state, mlcc_steps, &call);\n    return call.code;\n}\n\n",
                  head, h->o->weights_file || h->kept ? "mlcc_team_user(state)" : "NULL");
        return;
    }
    text_add(out, head);
    if (h->kept)
        text_add(out, "    const mlcc_instance *const own = state;\n");
    else if (!h->o->weights_file)
        text_add(out, "    (void)state;\n");
    if (graph_n_inputs(p->graph) == 0) text_add(out, "    (void)inputs;\n");
    if (graph_n_outputs(p->graph) == 0) text_add(out, "    (void)outputs;\n");
    print_call(h, PRINTF("    return %s(", steps_name(p, h->o)), "", "state", NULL, out);
    text_add(out, "}\n\n");
}

/* What stands before a function that the library exports. */
#define EXPORT "#if defined(__GNUC__)\n__attribute__((visibility(\"default\")))\n#endif\n"

void print_c_library(const Program *p, const EmitOptions *o, bool team, bool kept, Text *out) {
    Library library = {p, o, p->arena, team, kept}, *h = &library;
    text_add(out, "\n/* --- the library's descriptor, see mlcc/model.h --- */\n\n");
    print_tensors(p, out);
    print_open(h, out);
    print_library_run(h, out);
    if (p->graph->images.n) print_decoding_run(p, p->arena_bytes, "mlcc_run_decoded", out);
    text_addf(out,
              EXPORT "const mlcc_model *\nmlcc_model_v1(void) {\n"
                     "    static const mlcc_model model = {\n"
                     "        .abi_version = MLCC_ABI_VERSION,\n"
                     "        .struct_bytes = (uint32_t)sizeof(mlcc_model),\n"
                     "        .name = %s,\n        .target = \"c\",\n        .n_inputs = %d,\n"
                     "        .n_outputs = %d,\n",
              c_string(h->arena, h->o->model_name), graph_n_given(p->graph),
              graph_n_outputs(p->graph));
    print_tensor_fields(p, "        ", out);
    text_addf(out,
              "        .arena_bytes = %lldu,\n        .weight_bytes = %lldu,\n"
              "        .open = mlcc_open,\n        .run = mlcc_run,\n        .close = mlcc_close,\n"
              "        .error = mlcc_error,\n%s    };\n    return &model;\n}\n",
              (long long)arena_with_images(p, p->arena_bytes), (long long)p->weight_bytes,
              PRINTF("%s%s", h->o->threads ? "        .set_threads = mlcc_set_threads,\n" : "",
                     h->kept
                         ? PRINTF("        .state_bytes = %lldu,\n        .reset = mlcc_reset,\n",
                                  (long long)p->state_bytes)
                         : ""));
    if (h->o->profile)
        text_add(out, "\n" EXPORT "mlcc_profile *\nmlcc_profile_v1(void) {\n"
                      "    return &mlcc_steps_profile;\n}\n");
}
