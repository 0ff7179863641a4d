/* The standalone C output: head comment, constants, one function per kernel, and PREFIX_run, which
 * calls them in order with their places in the arena; and the header with the sizes.
 */
#include "codegen/host.h"
#include "codegen/profile.h"
#include "codegen/share.h"

#include <string.h>

/* What PREFIX_run calls things. */
typedef struct Host {
    const Program *p;
    const EmitOptions *o;
    Unit unit;
    Arena *arena;
    Names names;                  /* inside of PREFIX_run */
    const char *macro;            /* PREFIX */
    const char **input, **output; /* parameters */
    const char *kept;             /* the parameter of the states; NULL: there are none */
    const char **input_macro, **output_macro;
    const char **weight; /* names of the constants; NULL: not used */
    const char **kernel; /* names of the kernels' functions; NULL: not launched */
    StrMap local;        /* pointers into the arena: place -> name */
    int n_locals;        /* of them without a name of their own */
    bool uses_base;      /* some of them lie in the arena */
    const Step *apart;   /* with a team: the loop at work, whose iterations threads do each ... */
    const char *own;     /* ... and the thread's memory for what they make */
    const char *part[2]; /* which part of a shared loop the thread does now, and of how many */
    bool team;           /* the steps are for several threads */
} Host;

#define PRINTF(...) arena_printf(h->arena, __VA_ARGS__)

/* --- names ------------------------------------------------------------------------------------ */

static int weight_at(const Program *p, int64_t offset) {
    int low = 0, high = p->weights.n; /* offsets ascend */
    while (low < high) {
        int mid = (low + high) / 2;
        if (p->weight_offset.items[mid] < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->weights.n && p->weight_offset.items[low] == offset ? low : -1;
}

static bool embedded(const Host *h) {
    return !h->o->weights_file && !h->o->weights_symbol;
}

static void name_weight(Host *h, int64_t offset) {
    int w = weight_at(h->p, offset);
    if (w < 0 || h->weight[w]) return;
    const char *name = h->p->weights.items[w]->name;
    h->weight[w] = names_take(&h->unit.names, PRINTF("w_%s", name ? name : ""), PRINTF("w%d", w));
}

static void name_steps(Host *h) {
    const Program *p = h->p;
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (step->kind != STEP_launch) continue;
        int k = kernel_index(p, step->kernel);
        if (!h->kernel[k]) h->kernel[k] = names_take(&h->unit.names, step->kernel->name, "kernel");
        for (int i = 0; i < step->kernel->n_params; i++) {
            const Place *place = &step->places[i];
            if (place->space == PLACE_weights) name_weight(h, place->offset);
        }
    }
    for (int i = 0; i < p->states.n; i++)
        if (p->states.items[i].initial >= 0) name_weight(h, p->states.items[i].initial);
}

/* Keeps functions and constants of the file from having a tensor's name; kernels may have it. */
static void claim_tensors(Host *h, bool claim) {
    for (int i = 0; i < graph_n_inputs(h->p->graph); i++)
        names_claim(&h->unit.names, h->input[i], claim);
    for (int i = 0; i < graph_n_outputs(h->p->graph); i++)
        names_claim(&h->unit.names, h->output[i], claim);
}

/* Names that PREFIX_run has besides the tensors'. */
static const char *const run_names[] = {"arena", "base",          "weights", "constants",
                                        "head",  "mlcc_may_tile", NULL};

/* Names that the file has besides for a descriptor: those of the C library first. */
static const char *const descriptor_names[] = {"calloc",
                                               "fclose",
                                               "fopen",
                                               "fread",
                                               "free",
                                               "malloc",
                                               "held",
                                               "mlcc_barrier",
                                               "mlcc_call",
                                               "mlcc_close",
                                               "mlcc_deal",
                                               "mlcc_error",
                                               "mlcc_hold_weights",
                                               "mlcc_faults",
                                               "mlcc_input_extents",
                                               "mlcc_input_range",
                                               "mlcc_inputs",
                                               "mlcc_job",
                                               "mlcc_model",
                                               "mlcc_model_v1",
                                               "mlcc_open",
                                               "mlcc_part",
                                               "mlcc_pieces",
                                               "mlcc_output_shape",
                                               "mlcc_outputs",
                                               "mlcc_run",
                                               "mlcc_set_threads",
                                               "mlcc_steps",
                                               "mlcc_team",
                                               "mlcc_take",
                                               "mlcc_take_part",
                                               "mlcc_team_memory",
                                               "mlcc_tensor",
                                               "mlcc_read_weights",
                                               "mlcc_reset",
                                               "mlcc_instance",
                                               "piece",
                                               "team",
                                               "thread",
                                               "threads",
                                               NULL};

/* Macros of the header, without PREFIX_. */
static const char *const header_macros[] = {
    "H",        "OK",          "E_ARGUMENT",   "E_DRIVER",    "E_FILE",
    "E_EXTENT", "ARENA_BYTES", "WEIGHT_BYTES", "STATE_BYTES", NULL};

static void claim_macro(Host *h, const char *name) {
    names_claim(&h->unit.names, PRINTF("%s_%s", h->macro, name), true);
}

/* The tensors' names are public, so they are chosen before all others; but not those of macros. */
static void name_tensors(Host *h, Names *macros) {
    const Program *p = h->p;
    names_init(&h->names, h->arena, &h->unit.names, run_names);
    if (p->state_bytes) {
        h->kept = names_take(&h->names, "state", "state");
        names_claim(&h->names, "kept", true);
    }
    for (int i = 0; header_macros[i]; i++) claim_macro(h, header_macros[i]);
    for (int i = 0; i < graph_n_inputs(p->graph); i++) {
        h->input_macro[i] = names_take(macros, upper_case(h->arena, input_name(p, i)), "INPUT");
        claim_macro(h, PRINTF("%s_SIZE", h->input_macro[i]));
    }
    for (int i = 0; i < graph_n_outputs(p->graph); i++) {
        h->output_macro[i] = names_take(macros, upper_case(h->arena, output_name(p, i)), "OUTPUT");
        claim_macro(h, PRINTF("%s_SIZE", h->output_macro[i]));
    }
    for (int i = 0; i < graph_n_inputs(p->graph); i++)
        h->input[i] = names_take(&h->names, input_name(p, i), "input");
    for (int i = 0; i < graph_n_outputs(p->graph); i++)
        h->output[i] = names_take(&h->names, output_name(p, i), "output");
}

static void claim_image_names(Host *h) {
    static const char *const names[] = {"mlcc_decode_image", "mlcc_image_ends",
                                        "mlcc_image_format", "mlcc_image_gray",
                                        "mlcc_image_open",   "mlcc_image_read",
                                        "mlcc_pixels",       "mlcc_run_decoded",
                                        "mlcc_size",         NULL};
    if (!h->p->graph->images.n) return;
    names_take(&h->unit.names, steps_name(h->p, h->o), "run");
    for (int i = 0; names[i]; i++) names_claim(&h->unit.names, names[i], true);
}

/* --- PREFIX_run ------------------------------------------------------------------------------- */

static const char *tensor_parameter(Host *h, const Value *v, const char *name, bool input) {
    const char *type = mem_type(&h->unit, v->dt), *is_const = input ? "const " : "";
    if (value_numel(v) == 0) return PRINTF("%s%s *%s", is_const, type, name);
    return PRINTF("%s%s %s[%lld]", is_const, type, name, (long long)value_numel(v));
}

/* The functions of the steps: what callers call; what does all steps, which is the same where no
 * image is decoded before; and what does a team's thread's part of them. */
typedef enum Runs { RUNS_all, RUNS_steps, RUNS_part } Runs;

/* The declaration without the semicolon. */
static void print_signature(Host *h, Runs what, Text *out) {
    const Program *p = h->p;
    int n = 0, n_inputs = what == RUNS_all ? graph_n_given(p->graph) : graph_n_inputs(p->graph);
    const char *head = what == RUNS_part  ? "static int mlcc_take_part("
                       : what == RUNS_all ? PRINTF("int %s_run(", h->o->prefix)
                                          : PRINTF("%sint %s(", p->graph->images.n ? "static " : "",
                                                   steps_name(p, h->o));
    const char **piece = ARENA_ARRAY(
        h->arena, graph_n_inputs(p->graph) + graph_n_outputs(p->graph) + 6, const char *);
    for (int i = 0; i < n_inputs; i++)
        piece[n++] = tensor_parameter(h, p->graph->inputs.items[i], h->input[i], true);
    for (int i = 0; i < graph_n_outputs(p->graph); i++)
        piece[n++] = tensor_parameter(h, p->graph->outputs.items[i], h->output[i], false);
    if (h->o->weights_file) piece[n++] = "const void *weights";
    if (h->kept) piece[n++] = PRINTF("void *%s", h->kept);
    piece[n++] = "void *arena";
    if (what == RUNS_part) {
        piece[n++] = "int32_t thread";
        piece[n++] = "int32_t threads";
        piece[n++] = "mlcc_team *team";
    }
    int column = (int)strlen(head);
    text_add(out, head);
    text_list(out, n, piece, column, column);
    text_add(out, ")");
}

/* Is a value an element of a buffer as it is, perhaps only if a condition holds? */
static bool is_element(const Expr *e, int buffer) {
    if (e->op == EX_select) return is_element(e->arg[1], buffer) || is_element(e->arg[2], buffer);
    return e->op == EX_load && e->k.i == buffer;
}

static bool copies(const Stmt *s, int buffer) {
    for (; s; s = s->next) {
        if (s->kind == ST_store && is_element(s->value, buffer)) return true;
        if (copies(s->body, buffer) || copies(s->other, buffer)) return true;
    }
    return false;
}

/* The pointer to a constant that something copies, so that the compiler does not see its elements.
 */
static const char *opaque(Host *h, const char *type, const char *pointer) {
    h->unit.needs |= NEEDS_opaque;
    return PRINTF("MLCC_OPAQUE(%s, %s)", type, pointer);
}

/* The argument for parameter i of a launch, or i of what another step reads. */
static const char *argument(Host *h, const Step *step, int i, Text *locals) {
    const Place *place = &step->places[i];
    const Value *v = step->args[i];
    const char *type = mem_type(&h->unit, v ? v->dt : step->kernel->buffers.items[i]->dt);
    switch (place->space) {
    case PLACE_input:
        return h->input[place->index];
    case PLACE_output:
        return h->output[place->index];
    case PLACE_weights: {
        int w = weight_at(h->p, place->offset);
        if (!embedded(h) || w < 0) break;
        if (!weights_readable(h->p->weights.items[w])) return PRINTF("%s.v", h->weight[w]);
        return copies(step->kernel->body, i) ? opaque(h, type, h->weight[w]) : h->weight[w];
    }
    default:
        break;
    }
    bool weight = place->space == PLACE_weights, state = place->space == PLACE_state;
    const void *storage = v && !weight ? value_storage(step->args[i]) : NULL;
    bool own = h->own && place->space == PLACE_arena && place->offset >= h->apart->own_offset &&
               place->offset < h->apart->own_offset + h->apart->own_bytes;
    int64_t offset = place->offset - (own ? h->apart->own_offset : 0);
    const char *base = weight ? "constants" : state ? "kept" : own ? h->own : "base";
    const char *key =
        PRINTF("%d %s %lld %s %p", place->space, base, (long long)offset, type, storage);
    void **slot = strmap_put(&h->local, key);
    if (*slot) return *slot;
    const char *wanted = v && v->name ? v->name : PRINTF("t%d", h->n_locals++);
    if (weight && h->weight[weight_at(h->p, place->offset)])
        wanted = h->weight[weight_at(h->p, place->offset)];
    const char *name = names_take(&h->names, wanted, "t");
    *slot = (void *)(uintptr_t)name;
    const char *is_const = weight ? "const " : "";
    text_addf(locals, "    %s%s *const %s = (%s%s *)(%svoid *)(%s + %lld);\n", is_const, type, name,
              is_const, type, is_const, base, (long long)offset);
    if (!weight && !state) h->uses_base = true;
    return name;
}

/* From here on, steps are those of a loop whose iterations threads do each, in memory of their own:
 * that of the first thread is in the arena. */
static void enter_apart(Host *h, const Step *loop, Text *locals) {
    h->apart = loop;
    if (!loop->own_bytes) return;
    h->own = names_take(&h->names, "own", "own");
    text_addf(locals,
              "    unsigned char *const %s =\n"
              "        thread ? mlcc_team_memory(team, thread) : base + %lld;\n",
              h->own, (long long)loop->own_offset);
}

/* How many iterations of the loop a run does. */
static const char *trips_of(Host *h, const Step *loop, Text *locals) {
    if (!loop->args) return PRINTF("%lld", (long long)loop->trips);
    const char *count = argument(h, loop, 0, locals);
    return loop->each > 1 ? PRINTF("*%s * %lld", count, (long long)loop->each)
                          : PRINTF("*%s", count);
}

/* A line of PREFIX_run that calls the kernel of a step. */
static void print_launch(Host *h, const Step *step, const char *const *counter, int indent,
                         Text *locals, Text *out) {
    const Kernel *k = step->kernel;
    int n = 0;
    const char **piece = ARENA_ARRAY(h->arena, k->n_params + k->n_scalars + 3, const char *);
    for (int i = 0; i < k->n_params; i++) piece[n++] = argument(h, step, i, locals);
    for (int i = 0; i < k->n_scalars; i++) piece[n++] = counter[i];
    if (h->team && shared_loop(k)) {
        piece[n++] = h->part[0];
        piece[n++] = h->part[1];
    }
    const char *name = h->kernel[kernel_index(h->p, k)];
    int column = indent + (int)strlen(name) + 1;
    text_addf(out, "%*s%s(", indent, "", name);
    text_list(out, n, piece, column, column);
    text_add(out, ");\n");
}

static void print_steps(Host *h, Text *locals, Text *out) {
    const Program *p = h->p;
    const StepShare *share = h->team ? share_steps(p, h->o) : NULL;
    int depth = 0, indent = 4, stretch = -1; /* the last step of the one at work */
    h->part[0] = "thread";
    h->part[1] = "threads";
    bool alone = false; /* inside of what the first thread does alone */
    int n_launches = 0;
    const char *counter[MAX_RANK + 1] = {NULL};
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (alone && (share[s].barrier || !share[s].alone)) {
            indent -= 4;
            text_addf(out, "%*s}\n", indent, "");
            alone = false;
        }
        /* the first thread's parts are timed, so they have to be the same ones each time */
        const bool begins = share && share[s].pieces && !h->o->profile;
        if (begins)
            text_addf(out, "%*smlcc_deal(team, thread, %d);\n", indent, "", share[s].pieces);
        if (share && share[s].barrier) text_addf(out, "%*smlcc_barrier(team);\n", indent, "");
        if (begins) {
            text_addf(out, "%*sfor (int32_t piece = -1; mlcc_take(team, thread, &piece);) {\n",
                      indent, "");
            indent += 4;
            stretch = share[s].last;
            h->part[0] = "piece";
            h->part[1] = PRINTF("mlcc_pieces(team, threads, %d)", share[s].pieces);
        }
        if (share && share[s].alone && !alone) {
            text_addf(out, "%*sif (thread == 0) {\n", indent, "");
            indent += 4;
            alone = true;
        }
        if (step->kind == STEP_end) {
            if (step->args)
                text_addf(out, "%*sif (!*%s) break;\n", indent, "", argument(h, step, 0, locals));
            indent -= 4;
            text_addf(out, "%*s}\n", indent, "");
            depth--;
            h->apart = NULL;
            h->own = NULL;
        } else if (step->kind == STEP_loop) {
            const char *t = counter[depth] = names_take(&h->names, PRINTF("step%d", depth), "step");
            const char *trips = trips_of(h, step, locals);
            if (h->team && step->apart) {
                enter_apart(h, step, locals);
                const char *end = names_take(&h->names, "end", "end");
                text_addf(out, "%*sconst int32_t %s = mlcc_part(%s, 1, %s + 1, %s);\n", indent, "",
                          end, trips, h->part[0], h->part[1]);
                text_addf(out, "%*sfor (int32_t %s = mlcc_part(%s, 1, %s, %s); %s < %s; %s++) {\n",
                          indent, "", t, trips, h->part[0], h->part[1], t, end, t);
            } else {
                text_addf(out, "%*sfor (int32_t %s = 0; %s < %s; %s++) {\n", indent, "", t, t,
                          trips, t);
            }
            depth++;
            indent += 4;
        } else {
            if (h->o->profile)
                text_addf(out, "%*s%smlcc_profile_step(&mlcc_steps_profile, %d);\n", indent, "",
                          h->team && !alone ? "if (thread == 0) " : "", n_launches++);
            print_launch(h, step, counter, indent, locals, out);
        }
        if (s == stretch) {
            indent -= 4;
            text_addf(out, "%*s}\n", indent, "");
            h->part[0] = "thread";
            h->part[1] = "threads";
        }
    }
    if (alone) text_add(out, "    }\n");
    if (!h->o->profile) return;
    if (h->team) text_add(out, "    mlcc_barrier(team);\n    if (thread == 0)\n    ");
    text_add(out, "    mlcc_profile_step(&mlcc_steps_profile, -1);\n");
}

static void print_null_checks(Host *h, Text *out) {
    const Program *p = h->p;
    const char **piece = ARENA_ARRAY(
        h->arena, graph_n_inputs(p->graph) + graph_n_outputs(p->graph) + 3, const char *);
    int n = 0;
    for (int i = 0; i < graph_n_inputs(p->graph); i++)
        if (value_numel(p->graph->inputs.items[i])) piece[n++] = h->input[i];
    for (int i = 0; i < graph_n_outputs(p->graph); i++)
        if (value_numel(p->graph->outputs.items[i])) piece[n++] = h->output[i];
    if (p->arena_bytes) piece[n++] = "arena";
    if (h->kept) piece[n++] = h->kept;
    if (h->o->weights_file) piece[n++] = "weights";
    if (n == 0) return;
    int column = 8;
    text_add(out, "    if (");
    for (int i = 0; i < n; i++) {
        int length = (int)strlen(piece[i]) + 12;
        if (i && column + length > 96) {
            text_add(out, "\n        ");
            column = 8;
        } else if (i) {
            text_add(out, " ");
        }
        column += length;
        text_addf(out, "%s == NULL%s", piece[i], i + 1 < n ? " ||" : ")\n");
    }
    text_addf(out, "        return %s_E_ARGUMENT;\n", h->macro);
    for (int i = 0; i < graph_n_inputs(p->graph); i++) {
        int k = input_symbol(p, i);
        if (k < 0) continue;
        DimSymbol range = dim_symbol_range(p->x, k);
        text_addf(out, "    if (%s[0] < %lld || %s[0] > %lld) return %s_E_ARGUMENT;\n", h->input[i],
                  (long long)range.low, h->input[i], (long long)range.high, h->macro);
    }
}

/* The side file begins with the digest of the constants it holds. */
static void print_weights_check(Host *h, Text *out) {
    unsigned char mark[WEIGHTS_MARK];
    weights_mark(weights_digest(h->p, h->o), mark);
    text_addf(out, "    static const unsigned char mark[%d] = {", WEIGHTS_MARK);
    for (int i = 0; i < WEIGHTS_MARK; i++)
        text_addf(out, "%s0x%02x%s", i % 8 == 0 ? "\n        " : " ", mark[i],
                  i < WEIGHTS_MARK - 1 ? "," : "};\n");
    text_addf(out, "    if (memcmp(weights, mark, sizeof mark) != 0) return %s_E_FILE;\n",
              h->macro);
}

/* True if a step reads this input or writes this output. */
static bool tensor_used(const Program *p, int space, int index) {
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        for (int i = 0; step->kind == STEP_launch && i < step->kernel->n_params; i++)
            if ((int)step->places[i].space == space && step->places[i].index == index) return true;
    }
    return false;
}

/* PREFIX_reset, which puts the states to their first values. */
static void print_reset_signature(Host *h, Text *out) {
    text_addf(out, "int %s_reset(%svoid *state)", h->o->prefix,
              h->o->weights_file ? "const void *weights, " : "");
}

/* Where constant number `w` is, for a copy of bytes. */
static const char *weight_bytes(const Host *h, int w) {
    long long offset = (long long)h->p->weight_offset.items[w];
    if (embedded(h)) return h->weight[w];
    if (h->o->weights_file)
        return PRINTF("(const unsigned char *)weights + %lld", WEIGHTS_HEAD + offset);
    return PRINTF("%s + %lld", h->o->weights_symbol, offset);
}

static void print_reset(Host *h, Text *out) {
    const Program *p = h->p;
    if (!h->kept) return;
    print_reset_signature(h, out);
    text_addf(out, " {\n    if (state == NULL%s) return %s_E_ARGUMENT;\n",
              h->o->weights_file ? " || weights == NULL" : "", h->macro);
    if (h->o->weights_file) print_weights_check(h, out);
    text_addf(out, "    memset(state, 0, %lld);\n", (long long)p->state_bytes);
    for (int i = 0; i < p->states.n; i++) {
        const StatePlace *state = &p->states.items[i];
        if (state->initial < 0) continue;
        int w = weight_at(p, state->initial);
        const char *from = weight_bytes(h, w);
        if (embedded(h))
            from = weights_readable(p->weights.items[w]) ? opaque(h, "void", from)
                                                         : PRINTF("&%s", from);
        text_addf(out, "    memcpy((unsigned char *)state + %lld, %s, %lld);\n",
                  (long long)state->offset, from, (long long)state->bytes);
    }
    text_addf(out, "    return %s_OK;\n}\n\n", h->macro);
}

/* The last line of a function like those of the steps: it calls one. */
static void print_steps_call(Host *h, const char *name, const char *const *input, Text *out) {
    const Program *p = h->p;
    int n = 0, column = (int)strlen(name) + 12;
    const char **piece = ARENA_ARRAY(
        h->arena, graph_n_inputs(p->graph) + graph_n_outputs(p->graph) + 6, const char *);
    for (int i = 0; i < graph_n_inputs(p->graph); i++) piece[n++] = input[i];
    for (int i = 0; i < graph_n_outputs(p->graph); i++) piece[n++] = h->output[i];
    if (h->o->weights_file) piece[n++] = "weights";
    if (h->kept) piece[n++] = h->kept;
    piece[n++] = "arena";
    if (!strcmp(name, "mlcc_take_part")) {
        piece[n++] = "0";
        piece[n++] = "1";
        piece[n++] = "NULL";
    }
    text_addf(out, "    return %s(", name);
    text_list(out, n, piece, column, column);
    text_add(out, ");\n}\n");
}

static void print_run(Host *h, Text *out) {
    const Program *p = h->p;
    Text locals = text_new(h->arena), calls = text_new(h->arena);
    print_steps(h, &locals, &calls);
    if (h->team)
        text_add(out,
                 "/* What each thread of a team does. They walk through the same steps; a thread "
                 "alone is a\n * team of one. */\n");
    print_signature(h, h->team ? RUNS_part : RUNS_steps, out);
    text_add(out, " {\n");
    print_null_checks(h, out);
    if (h->o->weights_file) print_weights_check(h, out);
    if (h->unit.needs & NEEDS_tiles)
        text_addf(out, "    if (!mlcc_may_tile()) return %s_E_DRIVER;\n", h->macro);
    if (strstr(text_get(&locals), "(constants + "))
        text_addf(out, "    const unsigned char *const constants = %s;\n",
                  h->o->weights_file ? PRINTF("(const unsigned char *)weights + %d", WEIGHTS_HEAD)
                                     : h->o->weights_symbol);
    if (h->uses_base) text_add(out, "    unsigned char *const base = arena;\n");
    if (h->kept) text_addf(out, "    unsigned char *const kept = %s;\n", h->kept);
    if (h->kept && !strstr(text_get(&locals), "(kept + ")) text_add(out, "    (void)kept;\n");
    if (!p->arena_bytes) text_add(out, "    (void)arena;\n");
    for (int i = 0; i < graph_n_inputs(p->graph); i++)
        if (!value_numel(p->graph->inputs.items[i]) && !tensor_used(p, PLACE_input, i))
            text_addf(out, "    (void)%s;\n", h->input[i]);
    for (int i = 0; i < graph_n_outputs(p->graph); i++)
        if (!value_numel(p->graph->outputs.items[i]) && !tensor_used(p, PLACE_output, i))
            text_addf(out, "    (void)%s;\n", h->output[i]);
    text_add(out, text_get(&locals));
    if (h->team && !strstr(text_get(&calls), "mlcc_barrier(")) text_add(out, "    (void)team;\n");
    text_add(out, text_get(&calls));
    int status = graph_status_output(p->graph);
    if (status >= 0)
        text_addf(out, "    if (%s%s[0]) return %s_E_EXTENT;\n", h->team ? "thread == 0 && " : "",
                  h->output[status], h->macro);
    text_addf(out, "    return %s_OK;\n}\n", h->macro);
    if (h->team) {
        text_add(out, "\n");
        print_signature(h, RUNS_steps, out);
        text_add(out, " {\n");
        print_steps_call(h, "mlcc_take_part", h->input, out);
    }
    if (!p->graph->images.n || h->o->descriptor) return; /* a library's mlcc_run decodes */
    const char **input =
        arena_copy(h->arena, h->input, (size_t)graph_n_inputs(p->graph) * sizeof *input);
    text_add(out, "\n");
    print_signature(h, RUNS_all, out);
    text_addf(out, " {\n    if (arena == NULL) return %s_E_ARGUMENT;\n", h->macro);
    print_decoding(p, p->arena_bytes, input, out);
    print_steps_call(h, steps_name(p, h->o), input, out);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* Has the kernel a tile of vectors, or of scalars for a core without, that GCC, in a function of
 * several, may keep on the stack, and constants of what follows the loop in registers? */
static bool has_tile(const Host *h, const Kernel *k) {
    const int64_t vector = h->o->scalars ? 4 : h->unit.vector_bytes;
    for (int i = k->n_params; i < k->buffers.n && vector; i++) {
        const Buffer *b = k->buffers.items[i];
        if (shape_numel(b->rank, b->shape) * (int64_t)dt_store(b->dt) >= 2 * vector) return true;
    }
    return false;
}

/* Prints the kernel, and its head as a declaration. */
static void print_kernel(Host *h, int index, bool tile, Text *out, Text *declarations) {
    const Program *p = h->p;
    const Kernel *k = p->kernels.items[index];
    if (!h->kernel[index]) return;
    Arena scratch;
    arena_init(&scratch, p->arena->limit, p->arena->on_limit, p->arena->user);
    Printer printer;
    printer_init(&printer, &h->unit, p, &scratch, k);
    const Stmt *shared = h->team ? shared_loop(k) : NULL;
    if (shared) printer_share(&printer, shared, shared_unit(shared));
    printer.has_tile = tile;
    print_body(&printer);

    kernel_comment(k, &scratch, out);
    const char **words = ARENA_ARRAY(&scratch, k->n_params + 1, const char *);
    for (int i = 0; i < k->n_params; i++) words[i] = parameter_alone(p, k, i) ? "restrict " : "";
    const bool marked = h->unit.vector_bytes || h->o->parts;
    const char *how = tile ? "MLCC_APART " : marked ? "MLCC_KERNEL " : "";
    if (printer.mixed) how = "MLCC_MIXED ";
    if (*how) h->unit.needs |= printer.mixed ? NEEDS_mixed : NEEDS_kernel;
    const char *link = !h->o->parts ? "static" : tile ? "MLCC_LINK" : "MLCC_NEAR";
    const char *begin = PRINTF("%s %svoid %s(", link, how, h->kernel[index]);
    Text head = text_new(&scratch);
    text_add(&head, begin);
    kernel_parameters(&printer, words, "int32_t", &head, (int)strlen(begin));
    text_add(&head, k->n_params + k->n_scalars || shared ? ")" : "void)");
    text_addf(declarations, "%s;\n", text_get(&head));
    text_addf(out, "%s {\n", text_get(&head));
    print_unused(&printer, out);
    text_addn(out, text_get(&printer.out), printer.out.length);
    text_add(out, "}\n\n");
    arena_free(&scratch);
}

/* Those that are printed as numbers may need what stands before them: INFINITY is math.h's. */
static void note_weights(Host *h) {
    Text scratch = text_new(h->arena);
    for (int i = 0; i < h->p->weights.n && embedded(h); i++)
        if (h->weight[i] && weights_readable(h->p->weights.items[i])) {
            print_array(&h->unit, h->p->weights.items[i], h->weight[i], &scratch);
            scratch.length = 0;
        }
}

static void print_weights(Host *h, Text *out) {
    const Program *p = h->p;
    bool any = false, rows = false;
    for (int i = 0; i < p->weights.n; i++) {
        if (!h->weight[i]) continue;
        any = true;
        rows |= !weights_readable(p->weights.items[i]);
    }
    if (!any || !embedded(h)) return;
    if (rows) print_bytes_guard(out, true);
    for (int i = 0; i < p->weights.n; i++) {
        const Value *v = p->weights.items[i];
        if (!h->weight[i]) continue;
        print_comment(PRINTF("%s: %s %s", v->name ? comment_text(h->arena, v->name) : "constant",
                             dt_name(v->dt), shape_text(h->arena, v->rank, v->shape)),
                      out);
        if (weights_readable(v))
            print_array(&h->unit, v, h->weight[i], out);
        else
            print_large(&h->unit, v, h->weight[i], out);
    }
    text_add(out, "\n");
    if (rows) print_bytes_guard(out, false);
}

/* --- the files -------------------------------------------------------------------------------- */

static void print_head(Host *h, const char *what, Text *out) {
    text_addf(out, "/* %s: %s, made by mlcc.", comment_text(h->arena, h->o->model_name), what);
    if (h->o->digest)
        text_addf(out, "\n * Model digest: %s.", comment_text(h->arena, h->o->digest));
    text_addf(out, "\n * Constants: %lld bytes", (long long)h->p->weight_bytes);
    if (h->o->weights_file)
        text_addf(out, " in the side file %s", comment_text(h->arena, h->o->weights_file));
    text_addf(out, "; scratch memory (arena): %lld bytes",
              (long long)arena_with_images(h->p, h->p->arena_bytes));
    if (h->p->state_bytes) text_addf(out, "; state: %lld bytes", (long long)h->p->state_bytes);
    if (h->o->march)
        text_addf(out, ".\n * Compile it with %s %s -ffp-contract=fast -fno-math-errno%s",
                  h->o->scalars ? "-O2" : "-O3", comment_text(h->arena, h->o->march),
                  h->o->scalars ? "" : " -falign-loops=32");
    text_add(out, ".\n */\n");
}

/* NAME_SIZE of an input or output, and what it is. */
static void print_size(const Host *h, bool input, int i, Text *out) {
    const Program *p = h->p;
    const Value *v = input ? p->graph->inputs.items[i] : p->graph->outputs.items[i];
    bool text = is_text(p, input, i);
    text_addf(out, "#define %s_%s_SIZE %lldu /* %s '%s': %s %s", h->macro,
              input ? h->input_macro[i] : h->output_macro[i], (long long)value_numel(v),
              input ? "input" : "output",
              comment_text(h->arena, input ? input_name(p, i) : output_name(p, i)),
              dt_name(text ? DT_str : v->dt), shape_text(h->arena, v->rank - text, v->shape));
    if (text)
        text_addf(out, ", %lld bytes each, padded with zeros; one that fills them has no zero",
                  (long long)v->shape[v->rank - 1]);
    text_add(out, " */\n");
}

static void print_macros(Host *h, Text *out) {
    const Program *p = h->p;
    text_addf(out, "/* What %s_run returns. */\n", h->o->prefix);
    text_addf(out, "#define %s_OK 0\n#define %s_E_ARGUMENT 1 /* a pointer is NULL%s */\n", h->macro,
              h->macro,
              p->graph->images.n  ? ", an extent is out of its range, or an image cannot be\n"
                                    " * decoded or does not fit"
              : program_varies(p) ? ", or an extent out of its range"
                                  : "");
    if (h->unit.needs & NEEDS_tiles)
        text_addf(out,
                  "#define %s_E_DRIVER 2 /* the system does not give the processor's matrix unit "
                  "*/\n",
                  h->macro);
    if (h->o->weights_file)
        text_addf(out, "#define %s_E_FILE 5 /* the weights are not those of this model */\n",
                  h->macro);
    if (graph_status_output(p->graph) >= 0)
        text_addf(out,
                  "#define %s_E_EXTENT 6 /* extents are beyond what the model was compiled for, or "
                  "contradict each other */\n",
                  h->macro);
    text_add(out, "\n/* Sizes in bytes. */\n");
    text_addf(out, "#define %s_ARENA_BYTES %lldu\n", h->macro,
              (long long)arena_with_images(p, p->arena_bytes));
    text_addf(out, "#define %s_WEIGHT_BYTES %lldu\n", h->macro, (long long)p->weight_bytes);
    if (h->kept)
        text_addf(out, "#define %s_STATE_BYTES %lldu\n", h->macro, (long long)p->state_bytes);
    text_add(out, "\n/* Number of elements of each input and output. */\n");
    for (int i = 0; i < graph_n_given(p->graph); i++) print_size(h, true, i, out);
    for (int i = 0; i < graph_n_outputs(p->graph); i++) print_size(h, false, i, out);
}

/* What the state holds. */
static void print_state_note(Host *h, Text *out) {
    const Program *p = h->p;
    const Graph *g = p->graph;
    text_addf(
        out,
        " * state: %s_STATE_BYTES of memory, 64-byte aligned, that keep from one call for the "
        "next what these\n * outputs of the model are, which its inputs are then:\n",
        h->macro);
    for (int i = 0; i < g->n_states; i++) {
        const Value *v = g->inputs.items[graph_n_inputs(g) + i];
        const char *shape = v->turned ? arena_printf(h->arena, "[%lld], in another order",
                                                     (long long)value_numel(v))
                                      : shape_text(h->arena, v->rank, v->shape);
        text_addf(out, " *     '%s', then '%s': %s %s at byte %lld\n",
                  comment_text(h->arena, output_name(p, graph_n_outputs(g) + i)),
                  comment_text(h->arena, input_name(p, graph_n_inputs(g) + i)), dt_name(v->dt),
                  shape, (long long)p->states.items[i].offset);
    }
}

/* What the numbers of the status, output `name`, mean. */
static void print_faults(Host *h, const char *name, Text *out) {
    const Graph *g = h->p->graph;
    text_addf(out, " * %s: 0, or, where %s_E_EXTENT is returned, one of these:\n", name, h->macro);
    for (int i = 0; i < g->faults.n; i++)
        text_addf(out, " *     %d %s\n", i + 1, comment_text(h->arena, g->faults.items[i]));
}

/* Which tensors have dimensions that vary, and where their extents are given. */
static void print_extents(Host *h, Text *out) {
    const Graph *g = h->p->graph;
    bool varies = false;
    for (int i = 0; i < graph_n_given(g); i++) varies |= input_symbol(h->p, i) >= 0;
    for (int i = 0; i < graph_n_outputs(g); i++) varies |= g->output_shape.items[i] >= 0;
    if (!varies) return;
    text_add(out, " * Dimensions that vary: arrays have room for the largest shape, and hold the "
                  "elements of the\n * shape of a run densely, without gaps.\n");
    for (int i = 0; i < graph_n_given(g); i++) {
        const Value *v = g->inputs.items[i];
        int k = input_symbol(h->p, i);
        if (k >= 0) {
            DimSymbol range = dim_symbol_range(g->x, k);
            text_addf(out, " * %s: an extent, %lld to %lld.\n", h->input[i], (long long)range.low,
                      (long long)range.high);
        } else if (dims_vary(v->rank, v->dims)) {
            text_addf(out, " * %s: of shape %s.\n", h->input[i],
                      comment_text(h->arena, dims_text(g->x, v->rank, v->dims)));
        }
    }
    for (int i = 0; i < graph_n_outputs(g); i++)
        if (g->output_shape.items[i] == i)
            print_faults(h, h->output[i], out);
        else if (g->output_shape.items[i] >= 0)
            text_addf(out, " * %s: of the shape that %s gets.\n", h->output[i],
                      h->output[g->output_shape.items[i]]);
}

static void print_image_notes(Host *h, Text *out) {
    const Graph *g = h->p->graph;
    for (int i = 0; i < g->images.n; i++) {
        const char *name = g->images.items[i].stream->name;
        DimSymbol range[2];
        for (int k = 0; k < 2; k++) {
            int extent = graph_n_given(g) + 3 * i + k;
            range[k] = dim_symbol_range(g->x, input_symbol(h->p, extent));
        }
        text_addf(
            out,
            " * '%s' is an encoded image, %lld to %lld rows of %lld to %lld pixels: BMP, JPEG, "
            "JPEG 2000,\n * TIFF, PNG, WebP or PNM. ImageMagick decodes it, with memory of its "
            "own.\n",
            name ? comment_text(h->arena, name) : "input", (long long)range[0].low,
            (long long)range[0].high, (long long)range[1].low, (long long)range[1].high);
    }
}

static void print_header(Host *h, Text *out) {
    print_head(h, "interface of a neural network", out);
    text_addf(out, "#ifndef %s_H\n#define %s_H\n\n#include <stdint.h>\n\n", h->macro, h->macro);
    text_add(out, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    print_macros(h, out);
    text_add(out,
             "\n/* Runs the model once. Tensors are dense and row-major; they must not overlap. "
             "float16 and\n * bfloat16 are their bit patterns, bool is a byte, 0 or 1.\n");
    print_extents(h, out);
    print_image_notes(h, out);
    if (h->o->weights_file)
        text_addf(out, " * weights: the contents of the file %s, 8-byte aligned%s.\n",
                  comment_text(h->arena, h->o->weights_file),
                  h->unit.vector_bytes ? "; 64 is faster" : "");
    if (h->kept) print_state_note(h, out);
    if (arena_with_images(h->p, h->p->arena_bytes))
        text_addf(out,
                  " * arena: %s_ARENA_BYTES of scratch memory, 64-byte aligned; it keeps nothing "
                  "between\n * calls. Two threads may run at once with an arena%s each. */\n",
                  h->macro, h->kept ? " and a state" : "");
    else
        text_add(out, " * arena: scratch memory; this model needs none, it may be NULL. */\n");
    print_signature(h, RUNS_all, out);
    text_add(out, ";\n");
    if (h->kept) {
        text_addf(out,
                  "\n/* Puts the state to its first values: before the first call of %s_run, and "
                  "wherever a new\n * sequence begins. */\n",
                  h->o->prefix);
        print_reset_signature(h, out);
        text_add(out, ";\n");
    }
    text_addf(out, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

/* GCC's predictive commoning, a part of -O3, puts back elements that it loaded before, whatever
 * another thread wrote there meanwhile. Headers come after it: what is inlined must have it, too.
 */
static const char no_put_back[] = "#if defined(__GNUC__) && !defined(__clang__)\n"
                                  "#pragma GCC optimize(\"no-predictive-commoning\")\n"
                                  "#endif\n";

static void print_includes(Host *h, bool many, Text *out) {
    const EmitOptions *o = h->o;
    if (h->team) text_add(out, no_put_back);
    if (o->descriptor && o->weights_file)
        text_add(out, "#define _POSIX_C_SOURCE 200112L /* for posix_memalign */\n\n");
    if (o->header_name) text_addf(out, "#include \"%s\"\n\n", o->header_name);
    if (o->descriptor)
        text_addf(out, "#include \"mlcc/model.h\"\n%s%s%s\n",
                  h->team ? "#include \"team.h\"\n" : "",
                  o->weights_symbol ? "#include \"resident.h\"\n" : "",
                  o->profile ? "#include \"profile.h\"\n" : "");
    if (h->unit.needs & NEEDS_math) text_add(out, "#include <math.h>\n");
    if (h->unit.needs & NEEDS_bool) text_add(out, "#include <stdbool.h>\n");
    text_add(out, "#include <stddef.h>\n#include <stdint.h>\n");
    if (o->descriptor && o->weights_file) text_add(out, "#include <stdio.h>\n");
    if (o->descriptor && (o->weights_file || h->kept)) text_add(out, "#include <stdlib.h>\n");
    if (o->weights_file || h->kept) text_add(out, "#include <string.h>\n");
    text_add(out, "\n");
    if (h->unit.needs & NEEDS_index)
        text_add(
            out,
            "/* Of loop variables and what is computed from them: as wide as pointers, and no\n"
            " * narrower than int32_t. */\n"
            "#if PTRDIFF_MAX < INT32_MAX\ntypedef int32_t mlcc_index;\n"
            "#else\ntypedef ptrdiff_t mlcc_index;\n#endif\n\n");
    if (!o->header_name) {
        print_macros(h, out);
        text_add(out, "\n");
        print_signature(h, RUNS_all, out);
        text_add(out, ";\n\n");
        if (h->kept) {
            print_reset_signature(h, out);
            text_add(out, ";\n\n");
        }
    }
    if (o->weights_symbol)
        text_addf(out, "extern const unsigned char %s[];\n\n", o->weights_symbol);
    print_decoder_prototype(h->p, out);
    print_vector_types(&h->unit, out);
    print_tile_functions(&h->unit, out);
    if (h->unit.needs & NEEDS_kernel)
        text_addf(
            out,
            "/* Before kernels: GCC 12 may take a clone that knows where its operands lie for\n"
            " * a function without effects, and not call it%s. APART, before those\n"
            " * with tiles: inlined into one function with others, GCC keeps tiles on the stack. "
            "*/\n"
            "#if defined(__clang__)\n#define MLCC_KERNEL%s\n"
            "#define MLCC_APART __attribute__((noinline))\n"
            "#elif defined(__GNUC__)\n#define MLCC_KERNEL __attribute__((%s))\n"
            "%s#else\n#define MLCC_KERNEL\n#define MLCC_APART\n#endif\n\n",
            many ? "; and inlined all into one\n * function, so many would take it long" : "",
            many ? " __attribute__((noinline))" : "", many ? "noinline, noclone" : "noclone",
            h->unit.vector_bytes
                ? "/* So it does where it reads all rows of a step first (Arm), or where it gives\n"
                  " * registers loop by loop and what is done to the sums takes many. */\n"
                  "#if defined(__aarch64__)\n"
                  "#define MLCC_APART \\\n"
                  "    __attribute__((noinline, noclone, optimize(\"no-schedule-insns\")))\n"
                  "#else\n#define MLCC_APART \\\n"
                  "    __attribute__((noinline, noclone, optimize(\"ira-region=one\")))\n#endif\n"
                : "#define MLCC_APART __attribute__((noinline, noclone))\n");
    if (h->unit.needs & NEEDS_mixed)
        text_add(
            out,
            "/* Before kernels that compute functions of several vectors, and in their loops.\n"
            " * GCC for x86 mixes the instructions of those only if it is asked to; compilers\n"
            " * that do so anyhow, or not at all, do one vector after the other. */\n"
            "#if defined(__GNUC__) && !defined(__clang__)\n"
            "#define MLCC_MIXES 1\n#define MLCC_MIXED \\\n"
            "    __attribute__((noclone, optimize(\"schedule-insns\", \"sched-pressure\")))\n"
            "#else\n#define MLCC_MIXES 0\n#define MLCC_MIXED\n#endif\n\n");
    if (h->unit.needs & NEEDS_unroll)
        text_add(out, "/* Before loops whose arrays should become registers. */\n"
                      "#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8\n"
                      "#define MLCC_UNROLL _Pragma(\"GCC unroll 32\")\n#else\n"
                      "#define MLCC_UNROLL\n#endif\n\n");
    if (h->unit.needs & NEEDS_lanes)
        text_add(out,
                 "/* Before loops over rows of sums, which become vectors. GCC would unroll "
                 "them before,\n"
                 " * and then find vectors in what is left that it has to shuffle. Where there "
                 "are none\n"
                 " * for floats, they become scalars. */\n"
                 "#if !defined(__GNUC__) || defined(__clang__) || __GNUC__ < 8\n"
                 "#define MLCC_LANES\n"
                 "#elif defined(__SSE__) || defined(__aarch64__) || defined(__ALTIVEC__) || \\\n"
                 "    defined(__ARM_FEATURE_MVE) || defined(__riscv_vector)\n"
                 "#define MLCC_LANES _Pragma(\"GCC unroll 1\")\n#else\n"
                 "#define MLCC_LANES _Pragma(\"GCC unroll 32\")\n#endif\n\n");
    if (h->unit.needs & NEEDS_rolled)
        text_add(
            out,
            "/* Before loops over few steps of a product. Compilers would unroll them entirely,\n"
            " * read for later steps before, and then have no registers for the sums. */\n"
            "#if defined(__clang__)\n"
            "#define MLCC_ROLLED _Pragma(\"clang loop unroll(disable)\")\n"
            "#elif defined(__GNUC__) && __GNUC__ >= 8\n"
            "#define MLCC_ROLLED _Pragma(\"GCC unroll 1\")\n#else\n"
            "#define MLCC_ROLLED\n#endif\n\n");
    if (h->unit.needs & NEEDS_stay)
        text_add(
            out,
            "/* Behind loops that fill a tile of vectors. GCC would fetch what is added to the\n"
            " * sums, such as biases, before, and then have no registers for the tile. */\n"
            "#if defined(__GNUC__)\n#define MLCC_STAY __asm__ volatile(\"\" ::: \"memory\")\n"
            "#else\n#define MLCC_STAY ((void)0)\n#endif\n\n");
    if (h->unit.needs & NEEDS_fresh)
        text_add(out,
                 "/* What is computed of x is computed behind this. GCC would do so before the\n"
                 " * loops around, and then have no registers for them. */\n"
                 "#if defined(__GNUC__)\n#define MLCC_FRESH(x) __asm__ volatile(\"\" : \"+r\"(x))\n"
                 "#else\n#define MLCC_FRESH(x) ((void)0)\n#endif\n\n");
    if (h->unit.needs & NEEDS_late)
        text_add(out,
                 "/* Numbers behind loops that need all registers for sums. Compilers would have\n"
                 " * them in registers before the loop. */\n"
                 "#define MLCC_LATE(x) (*(const volatile float *)&(x))\n\n");
    if (h->unit.needs & NEEDS_opaque)
        text_add(out,
                 "/* A pointer to constants that are copied. Of 32 bytes whose first half repeats\n"
                 " * something and whose second half is zeros, GCC 12 would repeat it in both. */\n"
                 "#define MLCC_OPAQUE(type, x) \\\n"
                 "    (*(const type *const volatile *)&(const type *const){x})\n\n");
    if (h->unit.needs & NEEDS_prefetch) /* an address: no pointer may point behind an array */
        text_add(out,
                 "/* Brings x[i], which may lie behind the array, into the L1 cache (near: 3) or\n"
                 " * the L2 cache (2). */\n"
                 "#if defined(__GNUC__)\n#define MLCC_PREFETCH(x, i, near) \\\n"
                 "    __builtin_prefetch((const void *)((uintptr_t)(x) + (uintptr_t)(i) * "
                 "sizeof *(x)), 0, near)\n#else\n"
                 "#define MLCC_PREFETCH(x, i, near) ((void)0)\n#endif\n\n");
}

/* The texts of all kernels, one behind the other. */
typedef struct KernelTexts {
    Text all;
    size_t *end;                    /* where that of each ends */
    bool *tile;                     /* has it one? */
    size_t plain_bytes, tile_bytes; /* of those without, and with */
    Text plain_heads, tile_heads;   /* their declarations */
} KernelTexts;

static KernelTexts print_each_kernel(Host *h) {
    const Program *p = h->p;
    KernelTexts k = {.all = text_new(p->arena)};
    k.end = ARENA_ARRAY(p->arena, p->kernels.n + 1, size_t);
    k.tile = ARENA_ARRAY(p->arena, p->kernels.n + 1, bool);
    k.plain_heads = text_new(p->arena);
    k.tile_heads = text_new(p->arena);
    for (int i = 0; i < p->kernels.n; i++) {
        const size_t begin = k.all.length;
        const bool tile = k.tile[i] = has_tile(h, p->kernels.items[i]);
        print_kernel(h, i, tile, &k.all, tile ? &k.tile_heads : &k.plain_heads);
        k.end[i] = k.all.length;
        *(tile ? &k.tile_bytes : &k.plain_bytes) += k.end[i] - begin;
    }
    return k;
}

#define PART_BYTES (96 << 10) /* of kernels: seconds of GCC's, which takes 0.3 to begin */
#define MOST_PARTS 16

/* Are there so many kernels without tiles that, inlined into the one function that runs them all,
 * they would take the compiler long? */
static bool many_apart(const KernelTexts *k) {
    return k->plain_bytes >= PART_BYTES;
}

/* All kernels. Those that are never inlined are dealt out to parts. */
static void print_kernels(const Host *h, const KernelTexts *k, Text *out) {
    const Program *p = h->p;
    const char *text = text_get(&k->all);
    const bool many = many_apart(k);
    const size_t whole = k->tile_bytes + (many ? k->plain_bytes : 0);
    size_t before = 0;
    int now = 0, parts = 1;
    if (h->o->parts) {
        parts = whole / PART_BYTES > MOST_PARTS ? MOST_PARTS : (int)(whole / PART_BYTES);
        *h->o->parts = parts = parts ? parts : 1;
        text_addf(out, "#define MLCC_LINK%s\n#define MLCC_NEAR%s\n\n", parts > 1 ? "" : " static",
                  parts > 1 && many ? "" : " static");
    }
    if (parts == 1) {
        text_addn(out, text, k->all.length);
        return;
    }
    if (many) text_add(out, text_get(&k->plain_heads));
    text_add(out, text_get(&k->tile_heads));
    text_add(out, "\n#if MLCC_PART == 0\n");
    for (int dealt = 0; dealt < 2; dealt++)
        for (int i = 0; i < p->kernels.n; i++) {
            const size_t begin = i ? k->end[i - 1] : 0;
            if ((many || k->tile[i]) != dealt) continue;
            const int part = (int)(before * (size_t)parts / whole);
            if (part != now) text_addf(out, "#elif MLCC_PART == %d\n", now = part);
            text_addn(out, text + begin, k->end[i] - begin);
            if (dealt) before += k->end[i] - begin;
        }
    text_add(out, "#endif\n\n");
}

/* What the first part has, of several: from the one to the other. */
static void begin_first(const Host *h, Text *out) {
    if (h->o->parts) text_add(out, "#if !MLCC_PART\n");
}

static void end_first(const Host *h, Text *out) {
    if (h->o->parts) text_add(out, "#endif\n");
}

void emit_c(const Program *p, const EmitOptions *o, Text *source, Text *header) {
    bool team = o->descriptor && o->threads && emit_c_shares(p, o);
    if (team) p = share_loops(p, o);
    Host host = {.p = p, .o = o, .arena = p->arena, .team = team}, *h = &host;
    if (!types_supported(p, &dialect_c)) return;
    unit_init(&h->unit, p->arena, &dialect_c);
    h->unit.vector_bytes = o->vector_bytes;
    h->unit.whole_vectors = o->whole_vectors;
    h->unit.pairs_rows = o->pairs_rows;
    h->unit.inlines = team; /* no_put_back: GCC inlines nothing else where options differ */
    strmap_init(&h->local, p->arena);
    h->macro = upper_case(p->arena, o->prefix);
    h->input = ARENA_ARRAY(p->arena, graph_n_inputs(p->graph) + 1, const char *);
    h->input_macro = ARENA_ARRAY(p->arena, graph_n_inputs(p->graph) + 1, const char *);
    h->output = ARENA_ARRAY(p->arena, graph_n_outputs(p->graph) + 1, const char *);
    h->output_macro = ARENA_ARRAY(p->arena, graph_n_outputs(p->graph) + 1, const char *);
    h->weight = ARENA_ARRAY(p->arena, p->weights.n + 1, const char *);
    h->kernel = ARENA_ARRAY(p->arena, p->kernels.n + 1, const char *);
    Names macros;
    names_init(&macros, p->arena, NULL, NULL);
    names_take(&h->unit.names, PRINTF("%s_run", o->prefix), "run");
    if (p->state_bytes) names_take(&h->unit.names, PRINTF("%s_reset", o->prefix), "reset");
    claim_image_names(h);
    for (int i = 0; o->descriptor && descriptor_names[i]; i++)
        names_claim(&h->unit.names, descriptor_names[i], true);
    if (o->weights_symbol) names_take(&h->unit.names, o->weights_symbol, "weights");
    name_tensors(h, &macros);
    claim_tensors(h, true);
    name_steps(h);
    claim_tensors(h, false);

    Text run = text_new(p->arena);
    const KernelTexts kernels = print_each_kernel(h);
    note_weights(h);
    print_reset(h, &run);
    print_run(h, &run);
    print_head(h, "a neural network as C99", source);
    print_includes(h, many_apart(&kernels), source);
    begin_first(h, source);
    print_weights(h, source);
    end_first(h, source);
    unit_print_helpers(&h->unit, text_get(&kernels.all), source);
    print_kernels(h, &kernels, source);
    begin_first(h, source);
    if (o->profile) print_profile(p, h->kernel, source);
    text_addn(source, text_get(&run), run.length);
    if (o->descriptor) print_c_library(p, o, h->team, h->kept != NULL, source);
    print_decoder(p, o, source);
    end_first(h, source);
    if (header) print_header(h, header);
}
