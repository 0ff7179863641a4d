/* What a C library with states has for each time that it is opened: the block of states, and the
 * weights of a side file. See host.h.
 */
#include "codegen/host.h"
#include "codegen/share.h"

void print_instance(const Program *p, const EmitOptions *o, bool team, Text *out) {
    bool file = o->weights_file != NULL;
    const char *own = team ? "mlcc_team_user(state)" : "state";
    text_addf(out,
              "/* What one opened model has of its own. */\n"
              "typedef struct mlcc_instance {\n%s"
              "    void *memory;        /* to be given back */\n"
              "    unsigned char *kept; /* the state: the part of it that begins at 64 bytes */\n"
              "} mlcc_instance;\n\n"
              "static void mlcc_free_instance(mlcc_instance *own) {\n"
              "    if (!own) return;\n%s"
              "    free(own->memory);\n    free(own);\n}\n\n",
              file ? "    void *weights;\n" : "", file ? "    free(own->weights);\n" : "");
    text_addf(out,
              "static int mlcc_new_instance(mlcc_instance **result, const char *weights) {\n"
              "    mlcc_instance *const own = calloc(1, sizeof *own);\n"
              "    *result = own;\n"
              "    if (own) own->memory = malloc((size_t)%lldu + 63);\n"
              "    if (!own || !own->memory) return MLCC_E_MEMORY;\n"
              "    own->kept = (unsigned char *)(((uintptr_t)own->memory + 63) / 64 * 64);\n",
              (long long)p->state_bytes);
    if (file)
        text_addf(out,
                  "    const int code = mlcc_read_weights(&own->weights, weights);\n"
                  "    return code == MLCC_OK ? %s_reset(own->weights, own->kept) : code;\n}\n\n",
                  o->prefix);
    else
        text_addf(out, "    (void)weights;\n    return %s_reset(own->kept);\n}\n\n", o->prefix);
    text_add(out, "static int mlcc_open(void **state, const char *weights) {\n"
                  "    *state = NULL;\n");
    print_hold_weights(p, o, out);
    text_add(out, "    mlcc_instance *own;\n"
                  "    const int code = mlcc_new_instance(&own, weights);\n");
    if (team)
        text_addf(out,
                  "    *state = mlcc_team_new(own, %lldu);\n"
                  "    if (MLCC_HAS_THREADS && !*state) {\n"
                  "        mlcc_free_instance(own);\n"
                  "        return MLCC_E_MEMORY;\n    }\n",
                  (long long)apart_bytes(p));
    else
        text_add(out, "    *state = own;\n");
    text_addf(out,
              "    return code;\n}\n\n"
              "static void mlcc_close(void *state) {\n"
              "    if (!state) return;\n    mlcc_free_instance(%s);\n%s}\n\n"
              "static int mlcc_reset(void *state) {\n"
              "    mlcc_instance *const own = %s;\n    return %s_reset(%sown->kept);\n}\n\n",
              own, team ? "    mlcc_team_free(state);\n" : "", own, o->prefix,
              file ? "own->weights, " : "");
}
