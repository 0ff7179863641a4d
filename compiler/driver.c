/* Sessions, the pipeline, and the compile command; see driver.h. */
#include "compiler/driver.h"
#include "compiler/states.h"
#include "ir/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- sessions --------------------------------------------------------------------------------- */

static void limit_hit(void *user, size_t wanted, bool refused) {
    Session *s = user;
    s->refused = refused ? wanted : 0;
    longjmp(s->limit, 1);
}

/* "512M" in bytes; 0 if it is no size. */
static size_t parse_size(const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (end == text || (shift && end[1]) || (!shift && *end) || value > (SIZE_MAX >> shift >> 1))
        return 0;
    return (size_t)value << shift;
}

/* Levels that gcc and clang know. */
static bool is_level(const char *word) {
    static const char *const levels[] = {"0", "1", "2", "3", "s", "g", "z", "fast"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(word, levels[i])) return true;
    return false;
}

int with_session(const Options *o, int (*body)(Session *)) {
    static const size_t default_limit = (size_t)16 << 30;
    Session *s = calloc(1, sizeof *s);
    if (!s) return ERR_LIMIT;
    s->o = o;
    arena_init(&s->arena, o->max_memory ? parse_size(o->max_memory) : default_limit, limit_hit, s);
    diag_init(&s->diag, &s->arena, o->model);
    exprs_init(&s->x, &s->arena);
    strmap_init(&s->macros, &s->arena);
    volatile int status = 0;
    if (!s->arena.limit) {
        diag_error(&s->diag, E0001, "--max-memory wants a size such as 512M, not '%s'",
                   o->max_memory);
    } else if (o->optimize && !is_level(o->optimize)) {
        diag_error(&s->diag, E0001, "-O wants 0, 1, 2, 3, s, g, z or fast, not '%s'", o->optimize);
    } else if (setjmp(s->limit) == 0) {
        status = body(s);
    } else if (s->refused) {
        /* the arena is full: the message must not need it */
        fprintf(stderr,
                "%s: error[E0006]: the system refuses %zu KiB more memory (%zu MiB are in use): it "
                "has none left, or a limit is set (ulimit -a)\n",
                o->model, s->refused >> 10, s->arena.used >> 20);
        status = ERR_LIMIT;
    } else {
        bool small = s->arena.limit < (size_t)1 << 20;
        fprintf(stderr,
                "%s: error[E0006]: compiling needs more than %zu %s of memory; allow more "
                "with --max-memory\n",
                o->model, s->arena.limit >> (small ? 10 : 20), small ? "KiB" : "MiB");
        status = ERR_LIMIT;
    }
    if (status != ERR_LIMIT || s->diag.n_errors) diag_print(&s->diag);
    int from_messages = diag_exit_status(&s->diag);
    if (from_messages && status == 0) status = from_messages;
    temp_remove_all(s);
    if (s->model_open) onnx_close(&s->model.file);
    arena_free(&s->arena);
    free(s);
    return status;
}

/* --- the pipeline ----------------------------------------------------------------------------- */

static bool read_dims(Session *s, ImportOptions *options) {
    const StringList *list = &s->o->dims;
    options->dims = ARENA_ARRAY(&s->arena, list->n, DimOption);
    for (int i = 0; i < list->n; i++) {
        const char *word = list->items[i], *equals = strrchr(word, '=');
        char *end = NULL;
        long long value = equals ? strtoll(equals + 1, &end, 10) : -1, low = value;
        bool ok = equals && equals != word && end != equals + 1;
        if (ok && !strncmp(end, "..", 2)) {
            const char *from = end + 2;
            value = strtoll(from, &end, 10);
            ok = end != from;
        }
        if (!ok || *end || low < 0 || value < low || value > INT32_MAX) {
            diag_error(&s->diag, E0001,
                       "--dim wants NAME=VALUE or NAME=LOW..HIGH with whole numbers, not '%s'",
                       word);
            return false;
        }
        DimOption *dim = &options->dims[options->n_dims++];
        dim->name = arena_strndup(&s->arena, word, (size_t)(equals - word));
        dim->low = low;
        dim->value = value;
    }
    return true;
}

static bool read_string_bytes(Session *s, ImportOptions *options) {
    const StringList *list = &s->o->string_bytes;
    options->string_bytes = ARENA_ARRAY(&s->arena, list->n, DimOption);
    for (int i = 0; i < list->n; i++) {
        const char *word = list->items[i], *equals = strrchr(word, '=');
        const char *number = equals ? equals + 1 : word;
        char *end = NULL;
        long value = strtol(number, &end, 10);
        if (equals == word || end == number || *end || value < 1 || value > MAX_STRING_BYTES) {
            diag_error(&s->diag, E0001,
                       "--string-bytes wants N or NAME=N with N from 1 to %d, not '%s'",
                       MAX_STRING_BYTES, word);
            return false;
        }
        const char *name = equals ? arena_strndup(&s->arena, word, (size_t)(equals - word)) : "*";
        options->string_bytes[options->n_string_bytes++] =
            (DimOption){.name = name, .value = value};
    }
    return true;
}

/* Options that are NAME=VALUE. */
static bool read_input_options(Session *s, const char *option, const StringList *list,
                               InputOption **options, int *n) {
    *options = ARENA_ARRAY(&s->arena, list->n, InputOption);
    for (int i = 0; i < list->n; i++) {
        const char *word = list->items[i], *equals = strrchr(word, '=');
        if (!equals || equals == word || !equals[1]) {
            diag_error(&s->diag, E0001, "%s wants NAME=VALUE, not '%s'", option, word);
            return false;
        }
        const char *name = arena_strndup(&s->arena, word, (size_t)(equals - word));
        (*options)[(*n)++] = (InputOption){name, equals + 1, false};
    }
    return true;
}

/* A name that --string-bytes gave must be that of an input of strings. */
static void check_string_bytes(Session *s, const ImportOptions *options) {
    for (int i = 0; i < options->n_string_bytes; i++) {
        const DimOption *option = &options->string_bytes[i];
        if (!option->used && strcmp(option->name, "*") != 0)
            diag_error(&s->diag, E0001,
                       "--string-bytes %s=%lld: the model has no such input of strings",
                       option->name, (long long)option->value);
    }
}

/* Are all names of the list, but for minus signs, among `known`? */
static bool check_names(Session *s, const char *option, const char *list, const char *known) {
    while (list && *list) {
        list += strspn(list, "-,");
        size_t length = strcspn(list, ",");
        bool found = length == 0;
        for (const char *at = known; *at && !found; at += strcspn(at, " "), at += *at == ' ')
            found = strcspn(at, " ") == length && !strncmp(at, list, length);
        if (!found) {
            diag_error(&s->diag, E0001, "%s: there is no '%.*s' among: %s", option, (int)length,
                       list, known);
            return false;
        }
        list += length;
    }
    return true;
}

/* Do --passes and --dump-ir name passes that there are, the first each with a minus sign? */
static bool check_pass_names(Session *s) {
    for (const char *at = s->o->passes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (*at != '-') {
            diag_error(&s->diag, E0001,
                       "--passes wants a minus sign before each name, as in "
                       "-fuse,-cse; not '%s'",
                       s->o->passes);
            return false;
        }
    static const char optional[] =
        "dce cse fuse winograd strassen softmax fixed flush slice stack cascade strips",
                      all[] = "all import"
#define PASS(name, level, needs, gives) " " #name
#include "passes/passes.def"
        ;
    return check_names(s, "--passes", s->o->passes, optional) &&
           check_names(s, "--dump-ir", s->o->dump_ir, all);
}

static bool wants_dump(const Session *s, const char *pass) {
    const char *list = s->o->dump_ir;
    size_t length = strlen(pass);
    for (; list && *list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL) {
        if (!strncmp(list, "all", 3) && (list[3] == 0 || list[3] == ',')) return true;
        if (!strncmp(list, pass, length) && (list[length] == 0 || list[length] == ',')) return true;
    }
    return false;
}

static void after_pass(void *user, const char *pass, const Graph *g, const Program *p,
                       double seconds) {
    Session *s = user;
    if (s->o->time_passes) fprintf(stderr, "%-10s %9.3f ms\n", pass, seconds * 1e3);
    if (!wants_dump(s, pass)) return;
    Text text = text_new(&s->arena);
    TextOptions options = {.elide = true};
    if (p)
        text_program(&text, p, options);
    else
        text_graph(&text, g, options);
    printf("; after %s\n%s\n", pass, text_get(&text));
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

Graph *session_graph(Session *s) {
    ImportOptions options = {0};
    if (!check_pass_names(s) || !read_dims(s, &options) || !read_string_bytes(s, &options) ||
        !read_input_options(s, "--items", &s->o->items, &options.items, &options.n_items) ||
        !read_input_options(s, "--fix", &s->o->fixed, &options.fixed, &options.n_fixed))
        return NULL;
    options.image_decoder = s->o->image_decoder != NULL;
    options.device = s->target && s->target->blocks;
    if (options.image_decoder && strcmp(s->o->image_decoder, "magickwand") != 0) {
        diag_error(&s->diag, E0001, "--image-decoder: there is no '%s' among: magickwand",
                   s->o->image_decoder);
        return NULL;
    }
    s->model_open = true;
    double start = now();
    if (!onnx_read(&s->model, &s->arena, &s->diag, s->o->model)) return NULL;
    const StatePairs states = states_read(s);
    options.states = states.past;
    options.kept = states.present;
    options.n_states = states.n;
    Graph *g = onnx_import(&s->arena, &s->x, &s->diag, &s->model, &options);
    if (g) check_string_bytes(s, &options);
    if (g) states_tie(s, g, &states);
    if (!g || s->diag.n_errors) return NULL;
    after_pass(s, "import", g, NULL, now() - start);
    return g;
}

/* Vulkan devices are known when running only: an -march there would do nothing. */
static bool check_march(Session *s) {
    if (!s->o->march || strcmp(s->target->name, "vulkan") != 0) return true;
    diag_error(&s->diag, E0001, "-march=%s: target vulkan has no architectures; leave it out",
               s->o->march);
    return false;
}

/* What --precision says. False after a diagnostic. */
static bool read_precision(Session *s, PassOptions *to) {
    const char *name = s->o->precision ? s->o->precision : "fp32";
    to->bytes = !strcmp(name, "int8");
    to->precision = !strcmp(name, "bf16") ? DT_bf16 : !strcmp(name, "fp16") ? DT_f16 : DT_f32;
    if (to->precision != DT_f32 || to->bytes || !strcmp(name, "fp32")) return true;
    diag_error(&s->diag, E0001, "--precision: there is no '%s' among: fp32 bf16 fp16 int8", name);
    return false;
}

/* The table of --schedules, or the one that is tried. False after a diagnostic. */
static bool read_schedules(Session *s, const Schedules **table) {
    OutputFile file = {0};
    *table = s->o->trial ? s->o->trial->schedules : NULL;
    if (!s->o->schedules) return true;
    Schedules *read = ARENA_NEW(&s->arena, Schedules);
    read->file = s->o->schedules;
    *table = read;
    return load_file(s, read->file, &file) &&
           schedules_read(&s->arena, &s->diag, file.data, file.bytes, read);
}

Program *session_lower(Session *s, Graph *g) {
    PassOptions options = {.strassen = s->o->strassen,
                           .variant = s->o->trial ? s->o->trial->variant : 0,
                           .dump = s->o->dump_ir,
                           .on_pass = after_pass,
                           .user = s};
    if (!check_march(s) || !read_precision(s, &options) || !read_schedules(s, &options.schedules))
        return NULL;
    Target target;
    if (!target_of_march(s, &target)) return NULL;
    s->target = arena_copy(&s->arena, &target, sizeof target);
    options.target = s->target;
    if (s->o->passes) { /* "-fuse,-cse" without the minus signs */
        char *skip = arena_strdup(&s->arena, s->o->passes), *to = skip;
        for (const char *from = skip; *from; from++)
            if (*from != '-') *to++ = *from;
        *to = 0;
        options.skip = skip;
    }
    return run_passes(g, &options);
}

Program *session_program(Session *s) {
    Graph *g = session_graph(s);
    return g ? session_lower(s, g) : NULL;
}

/* --- compile ---------------------------------------------------------------------------------- */

static const char *suffix_of(const char *path) {
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    return dot && (!slash || dot > slash) ? dot : "";
}

int command_compile(Session *s) {
    const Options *o = s->o;
    if (!o->output) {
        diag_error(&s->diag, E0001, "-o FILE is missing: .c .cu .comp .spv .o .a or .so");
        return 0;
    }
    const char *suffix = suffix_of(o->output), *name = o->target;
    if (!name)
        name = !strcmp(suffix, ".cu")                                ? "cuda"
               : !strcmp(suffix, ".comp") || !strcmp(suffix, ".spv") ? "vulkan"
                                                                     : "c";
    s->target = target_find(name);
    if (!s->target) {
        diag_error(&s->diag, E0001, "there is no target '%s' (c, cuda, vulkan)", name);
        return 0;
    }
    if (!output_fits(s->target, suffix)) {
        diag_error(&s->diag, E0001, "target %s cannot be written as '%s'", name,
                   *suffix ? suffix : o->output);
        return 0;
    }
    if (lists_architectures(o) && !strcmp(name, "c")) {
        if (!strcmp(suffix, ".so")) return compile_several(s);
        diag_error(&s->diag, E0001, "-march=%s: several architectures go into a .so only",
                   o->march);
        return 0;
    }
    s->source = !strcmp(suffix, ".c");
    Program *p = session_program(s);
    if (p) write_program(s, p, o->output);
    return 0;
}
