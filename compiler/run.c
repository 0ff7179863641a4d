/* The commands run and verify. */
#include "compiler/io.h"
#include "ir/interp.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* verify: calls of a model with states */
#define CALLS_OF_STATES 4

/* How many calls --calls says; `fallback` where it is not there. 0 after a diagnostic. */
static int read_calls(Session *s, int fallback) {
    char *end = NULL;
    long calls = s->o->calls ? strtol(s->o->calls, &end, 10) : fallback;
    if (!s->o->calls || (!*end && calls > 0 && calls <= 1000000)) return (int)calls;
    diag_error(&s->diag, E0001, "--calls wants a number from 1 to 1000000, not '%s'", s->o->calls);
    return 0;
}

/* --- run -------------------------------------------------------------------------------------- */

/* DIR/NAME.npy for output `i`. Characters of the name other than letters, digits, '_', '.', '-'
 * become
 * '_', and a long name is cut; where that gives the name of an output before it, "_I" is added. */
static const char *result_path(Session *s, const Io *io, int i, int n_before,
                               const OutputFile *before) {
    enum { LONGEST = 200 }; /* file systems allow 255 */
    char *name = arena_strndup(&s->arena, io->out[i].name, strnlen(io->out[i].name, LONGEST));
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '.' && *c != '-') *c = '_';
    const char *path = arena_printf(&s->arena, "%s/%s.npy", s->o->out_dir, name);
    for (int k = 0; k < n_before; k++) {
        if (strcmp(before[k].path, path) != 0) continue;
        name = arena_printf(&s->arena, "%s_%d", name, i);
        path = arena_printf(&s->arena, "%s/%s.npy", s->o->out_dir, name);
        k = -1; /* the new name is compared with all again */
    }
    return path;
}

static void write_results(Session *s, Io *io) {
    io_take_shapes(io);
    if (!s->o->out_dir) {
        for (int i = 0; i < io->n_out; i++) {
            TensorInfo t = io_in_file(s, io, &io->out[i]);
            if (!io_output_hidden(io, i))
                printf("%s: %s%s\n", shown_name(s, t.name), dt_name(t.dt),
                       shape_text(&s->arena, t.rank, t.shape));
        }
        return;
    }
    mkdir(s->o->out_dir, 0777); /* if that fails, writing to it will say so */
    OutputFile *files = ARENA_ARRAY(&s->arena, io->n_out, OutputFile);
    int n = 0;
    for (int i = 0; i < io->n_out; i++) {
        if (io_output_hidden(io, i)) continue;
        TensorInfo t = io_in_file(s, io, &io->out[i]);
        files[n] = tensor_npy(s, &t, result_path(s, io, i, n, files), io->out_data[i]);
        n++;
    }
    write_outputs(s, n, files);
}

/* A library, by its name or, if that has a version behind ".so", by how it begins. */
static bool is_library(const char *path) {
    const char *dot = strrchr(path, '.');
    if (dot && !strcmp(dot, ".so")) return true;
    char head[4] = "";
    FILE *f = strstr(path, ".so.") ? fopen(path, "rb") : NULL;
    bool elf = f && fread(head, 1, sizeof head, f) == sizeof head && !memcmp(head, "\177ELF", 4);
    if (f) fclose(f);
    return elf;
}

/* What was decided when the library was made cannot be said again. */
static bool check_library_options(Session *s) {
    const struct {
        const StringList *list;
        const char *message;
    } rows[] = {
        {&s->o->dims, "--dim is for ONNX files: a library's shapes are fixed"},
        {&s->o->string_bytes,
         "--string-bytes is for ONNX files: a library's strings have their size"},
        {&s->o->items, "--items is for ONNX files: a library's inputs are tensors"},
        {&s->o->states, "--state is for ONNX files: a library has its states"},
        {&s->o->fixed, "--fix is for ONNX files: give a library's inputs with --input"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].list->n) diag_error(&s->diag, E0001, "%s", rows[i].message);
    return !s->diag.n_errors;
}

int command_run(Session *s) {
    Io io;
    int calls = read_calls(s, 1);
    if (!calls) return 0;
    if (is_library(s->o->model)) {
        if (!check_library_options(s)) return 0;
        LoadedModel m;
        if (model_load(s, &m, s->o->model, s->o->weights)) {
            io_of_model(s, &io, m.model, calls);
            if (io_set_inputs(s, &io, EXTENTS_largest, NULL) && io_run(s, &m, &io, io.out_data))
                write_results(s, &io);
        }
        model_unload(&m);
        return 0;
    }
    if (s->o->threads) {
        diag_error(&s->diag, E0001, "--threads is for libraries: the interpreter works on one");
        return 0;
    }
    if (s->o->weights) {
        diag_error(&s->diag, E0001, "--weights is for libraries: an ONNX file names its own");
        return 0;
    }
    Graph *g = session_graph(s);
    if (!g) return 0;
    io_of_graph(s, &io, g, calls);
    if (io_set_inputs(s, &io, EXTENTS_largest, NULL) && io_interpret(g, &io, io.out_data))
        write_results(s, &io);
    return 0;
}

/* --- verify ----------------------------------------------------------------------------------- */

typedef struct Difference {
    double absolute, relative; /* largest; relative to the largest magnitude of the reference */
    size_t at;
    bool wrong_kind; /* NaN or infinity on one side only */
    size_t nothing;  /* elements that are the same NaN or infinity on both: they tell nothing */
} Difference;

static Difference compare(const TensorInfo *t, const void *got, const void *want) {
    Difference d = {0};
    size_t n = (size_t)shape_numel(t->rank, t->shape);
    for (size_t i = 0; i < n && t->width && !d.wrong_kind; i++) { /* strings: the same or not */
        const char *a = (const char *)got + i * t->width, *b = (const char *)want + i * t->width;
        if (!memcmp(a, b, t->width)) continue;
        d.wrong_kind = true;
        d.at = i;
    }
    if (t->width) return d;
    double scale = 0;
    for (size_t i = 0; i < n; i++) {
        Scalar a = dt_load(t->dt, got, i), b = dt_load(t->dt, want, i);
        double x = dt_is_float(t->dt) ? a.f : (double)a.i,
               y = dt_is_float(t->dt) ? b.f : (double)b.i;
        bool infinities = isinf(x) && isinf(y) && (x > 0) == (y > 0);
        if ((isnan(x) && isnan(y)) || infinities) {
            d.nothing++;
            continue;
        }
        if (!isfinite(x) || !isfinite(y)) {
            d.wrong_kind = true;
            d.at = i;
            continue;
        }
        if (fabs(y) > scale) scale = fabs(y);
        if (fabs(x - y) > d.absolute) {
            d.absolute = fabs(x - y);
            if (!d.wrong_kind) d.at = i;
        }
    }
    d.relative = scale > 0 ? d.absolute / scale : d.absolute;
    return d;
}

/* What a correct target may differ by, relative to the output's scale: of half floats by what a
 * softmax makes of the last bit of a number from 8 to 16. */
static double tolerance(DType dt) {
    if (!dt_is_float(dt)) return 0;
    return dt == DT_f64 ? 1e-9 : dt == DT_f32 ? 1e-4 : dt == DT_f16 ? 0x1p-7 : 4e-2;
}

static void find_rounding(void *user, const Expr *e) {
    *(bool *)user |= e->op == EX_round && dt_is_float((DType)e->dt);
}

/* Does the model encode floats as bytes? A difference in the last bit of a float is one of a whole
 * step where it is rounded, and of several after a few layers of that. */
static bool quantises(const Graph *g) {
    bool found = false;
    for (const Op *op = g->first; op && !found; op = op->next) {
        if (op->kind == OP_loop) found = quantises(op->sub);
        if (!op->body || dt_store(op->out[0]->dt) != 1) continue;
        ex_visit(g->arena, op->body, find_rounding, &found);
        if (op->post) ex_visit(g->arena, op->post, find_rounding, &found);
    }
    return found;
}

/* What --precision and encodings add to it. */
static double slack(const Session *s, const Graph *g) {
    const char *precision = s->o->precision ? s->o->precision : "fp32";
    double by_precision = !strcmp(precision, "bf16") || !strcmp(precision, "int8") ? 4e-2
                          : !strcmp(precision, "fp16")                             ? 1e-2
                                                                                   : 0;
    double by_encoding = quantises(g) ? 5e-2 : 0;
    return by_precision > by_encoding ? by_precision : by_encoding;
}

/* Inputs, and what the interpreter makes of them. */
typedef struct Reference {
    Io io;
    void **want;
} Reference;

static bool make_reference(Session *s, Graph *g, Reference *r, int calls, Extents extents,
                           uint64_t *state) {
    Io *io = &r->io;
    io_of_graph(s, io, g, calls);
    io->may_fault = !s->o->inputs.n; /* who gives inputs wants to see results */
    if (!io_set_inputs(s, io, extents, state)) return false;
    r->want = ARENA_ARRAY(&s->arena, io->n_out + 1, void *);
    for (int i = 0; i < io->n_out; i++) r->want[i] = io_alloc_output(s, io, i);
    return io_interpret(g, io, r->want);
}

/* The call in which output `i` differs most. */
static Difference compare_calls(const Io *io, int i, const void *want) {
    Difference worst = {0};
    for (int call = 0; call < io->calls; call++) {
        size_t at = io->out_room[i] * (size_t)call;
        Difference d = compare(&io->out[i], (char *)io->out_data[i] + at, (const char *)want + at);
        bool kind = d.wrong_kind && !worst.wrong_kind;
        bool more = d.wrong_kind == worst.wrong_kind && d.relative > worst.relative;
        if (call == 0 || kind || more) worst = d;
    }
    return worst;
}

/* After a reset, the first call must give what it gave. */
static bool check_reset(Session *s, LoadedModel *m, Io *io) {
    void **again = ARENA_ARRAY(&s->arena, io->n_out + 1, void *);
    for (int i = 0; i < io->n_out; i++) again[i] = io_alloc_output(s, io, i);
    io_call(io, 0, again);
    if (!model_reset(s, m) || !model_run(s, m, io->call_in, io->call_out)) return false;
    for (int i = 0; i < io->n_out; i++)
        if (memcmp(again[i], io->out_data[i], io->out[i].bytes) != 0)
            diag_error(&s->diag, E0004, "output '%s' differs in the first call after a reset",
                       io->out[i].name);
    return model_reset(s, m);
}

/* Extents that contradict each other, as random ones may, must be a status of the target's, too. */
static bool check_fault(Session *s, LoadedModel *m, Io *io, const char *target) {
    int status = MLCC_OK;
    for (int call = 0; call < io->calls && status == MLCC_OK; call++) {
        io_call(io, call, io->out_data);
        status = m->model->run(m->state, io->call_in, io->call_out, m->arena);
    }
    if (status == MLCC_E_EXTENT)
        printf("the extents of this run contradict each other: status %d: %s\n", status,
               model_failure(m, status, io->call_out));
    else
        diag_error(&s->diag, E0004, "status %d of target %s for extents that contradict each other",
                   status, target);
    return status == MLCC_E_EXTENT && (!io->n_states || model_reset(s, m));
}

static bool compare_reference(Session *s, LoadedModel *m, Reference *r, double more,
                              const char *target) {
    Io *io = &r->io;
    if (io->fault) return check_fault(s, m, io, target);
    if (!io_run(s, m, io, io->out_data)) return false;
    io_take_shapes(io);
    if (io->n_states && !check_reset(s, m, io)) return false;
    for (int i = 0; i < io->n_out; i++) {
        const TensorInfo *t = &io->out[i];
        Difference d = compare_calls(io, i, r->want[i]);
        double allowed = tolerance(t->dt);
        if (allowed < more) allowed = more;
        bool bad = d.wrong_kind || d.relative > allowed;
        if (bad || !io_output_hidden(io, i)) {
            printf("%s: %s%s largest error %.3g, relative to scale %.3g, at element %zu%s\n",
                   shown_name(s, t->name), dt_name(t->dt), shape_text(&s->arena, t->rank, t->shape),
                   d.absolute, d.relative, d.at, bad ? "  DIFFERS" : "");
            if (d.nothing)
                printf(
                    "  %zu of its elements are NaN or infinite, which tells nothing; --input gives "
                    "an input other values than random ones\n",
                    d.nothing);
        }
        if (bad)
            diag_error(&s->diag, E0004, "output '%s' of target %s differs from the interpreter",
                       t->name, target);
    }
    return true;
}

int command_verify(Session *s) {
    const char *name = s->o->target ? s->o->target : "c";
    s->target = target_find(name);
    if (!s->target) {
        diag_error(&s->diag, E0001, "there is no target '%s' (c, cuda, vulkan)", name);
        return 0;
    }
    char *end = NULL;
    uint64_t state = s->o->seed ? strtoull(s->o->seed, &end, 10) : 1;
    if (end && *end) {
        diag_error(&s->diag, E0001, "--seed wants a whole number, not '%s'", s->o->seed);
        return 0;
    }
    if (!march_runs(s)) return 0;
    /* the reference first: the passes change the graph */
    Graph *g = session_graph(s);
    if (!g) return 0;
    int calls = read_calls(s, g->n_states ? CALLS_OF_STATES : 1);
    if (!calls) return 0;
    Io io;
    io_of_graph(s, &io, g, 1);
    /* where dimensions vary and nobody says how: the largest, the smallest, and some between */
    Reference reference[3];
    int n_references = io_varies(&io) && !s->o->inputs.n ? 3 : 1;
    for (int i = 0; i < n_references; i++)
        if (!make_reference(s, g, &reference[i], calls, (Extents)i, &state)) return 0;
    double more = slack(s, g);
    Program *p = session_lower(s, g);
    const char *folder = p ? temp_folder(s) : NULL;
    if (!folder) return 0;
    const char *library = arena_printf(&s->arena, "%s/model.so", folder);
    LoadedModel m = {0};
    bool ok = write_program(s, p, library) && model_load(s, &m, library, NULL);
    temp_remove(folder); /* a loaded library does not need its file, and a run may last */
    for (int i = 0; i < n_references && ok; i++)
        ok = compare_reference(s, &m, &reference[i], more, name);
    model_unload(&m);
    return 0;
}
