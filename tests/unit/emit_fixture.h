/* For tests of generated code: programs from text, code into a folder of its own, tools, and
 * running what came out against the interpreter. */
#ifndef TESTS_EMIT_FIXTURE_H
#define TESTS_EMIT_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "codegen/codegen.h"
#include "ir/diag.h"
#include "ir/interp.h"
#include "ir/text.h"
#include "mlcc/model.h"
#include "passes/passes.h"

#define STRICT                                                                                     \
    "-std=c99 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes "             \
    "-Wdouble-promotion -Wsign-compare -Werror -Iinclude"

typedef struct Fixture {
    Arena arena;
    Exprs x;
    Diag diag;
    char folder[64]; /* for the files of the test, removed at its end */
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 0, NULL, NULL);
    exprs_init(&f->x, &f->arena);
    diag_init(&f->diag, &f->arena, "test");
    strcpy(f->folder, "build/emit-XXXXXX");
    if (!f || !mkdtemp(f->folder)) return -1;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    int status = system(arena_printf(&f->arena, "rm -rf %s", f->folder));
    arena_free(&f->arena);
    free(f);
    return status;
}

/* --- files and tools -------------------------------------------------------------------------- */

static const char *in_folder(Fixture *f, const char *name) {
    return arena_printf(&f->arena, "%s/%s", f->folder, name);
}

/* The contents of a file; NULL if it cannot be read. */
static char *read_text(Fixture *f, const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *length = (size_t)ftell(file);
    rewind(file);
    char *text = arena_alloc(&f->arena, *length + 1);
    if (fread(text, 1, *length, file) != *length) *length = 0;
    fclose(file);
    return text;
}

static void write_text(const char *path, const char *text, size_t length) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("cannot write %s", path);
    if (fwrite(text, 1, length, file) != length) fail_msg("cannot write %s", path);
    fclose(file);
}

static inline bool have(Fixture *f, const char *tool) {
    return system(arena_printf(&f->arena, "command -v %s >/dev/null 2>&1", tool)) == 0;
}

static void must_run(Fixture *f, const char *command) {
    if (system(arena_printf(&f->arena, "%s >%s/log 2>&1", command, f->folder)) == 0) return;
    size_t length = 0;
    const char *log = read_text(f, in_folder(f, "log"), &length);
    fail_msg("%s\n%s", command, log ? log : "");
}

/* --- programs --------------------------------------------------------------------------------- */

static const char *first_message(const Fixture *f) {
    return f->diag.messages.n ? f->diag.messages.items[0].text : "no message";
}

static inline Program *read_program(Fixture *f, const char *text, size_t length) {
    Program *p = parse_program(&f->arena, &f->x, &f->diag, text, length);
    if (!p) fail_msg("%s", first_message(f));
    return p;
}

/* A graph from text, through all passes for a target. */
static inline Program *lower_text(Fixture *f, const char *text, const char *target) {
    Graph *g = parse_graph(&f->arena, &f->x, &f->diag, text, strlen(text));
    PassOptions options = {.target = target_find(target), .verify = true};
    Program *p = g ? run_passes(g, &options) : NULL;
    if (!p) fail_msg("%s\n%s", first_message(f), text);
    return p;
}

/* --- memory ----------------------------------------------------------------------------------- */

typedef struct Tensors {
    void **inputs, **outputs, **wanted;
} Tensors;

static double float_sample(int64_t i, uint64_t *seed) {
    static const double special[] = {0.0,   -0.0,  1,     -1,    0.5,      -0.5,      2,     -2,
                                     1e-3,  -1e-3, 1e-5,  0.999, -0.99,    1.5,       2.5,   -2.5,
                                     3,     10,    -10,   100,   -100,     1e4,       -1e4,  448,
                                     6.1,   57344, 65504, 65520, 240,      0x1p31,    -1e10, 1e19,
                                     -1e19, 1e20,  3e38,  3e-38, INFINITY, -INFINITY, NAN};
    int n = (int)(sizeof special / sizeof *special);
    if (i < n) return special[i];
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*seed >> 40) / (1 << 23) - 1) * (i % 3 ? 4 : 40);
}

static int64_t int_sample(int64_t i, uint64_t *seed) {
    static const int64_t special[] = {
        0,      1,     -1,    2,     -2,    3,         5,         7,          -7,        31,
        32,     33,    63,    64,    127,   128,       -128,      255,        256,       32767,
        -32768, 65535, 65536, 70000, 99999, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN};
    int n = (int)(sizeof special / sizeof *special);
    if (i < n) return special[i];
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)*seed >> (*seed >> 6) % 60;
}

/* Samples: `slow` elements in a row are the same; special: begins with the difficult ones. */
static void fill(DType dt, void *data, int64_t n, int64_t slow, bool special) {
    uint64_t seed = 7;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = special ? i / slow % (n > 64 ? 64 : n) : 1000 + i;
        Scalar v = {.i = 0};
        if (dt_is_float(dt))
            v.f = float_sample(at, &seed) / (special ? 1 : 8);
        else
            v.i = int_sample(at, &seed);
        dt_save(dt, data, (size_t)i, dt_cast(dt_is_float(dt) ? DT_f64 : DT_i64, dt, v));
    }
}

static inline Tensors make_tensors(Fixture *f, const Program *p, bool special) {
    const Graph *g = p->graph;
    Tensors t = {ARENA_ARRAY(&f->arena, g->inputs.n + 1, void *),
                 ARENA_ARRAY(&f->arena, g->outputs.n + 1, void *),
                 ARENA_ARRAY(&f->arena, g->outputs.n + 1, void *)};
    for (int i = 0; i < g->inputs.n; i++) {
        const Value *v = g->inputs.items[i];
        t.inputs[i] = arena_alloc(&f->arena, value_bytes(v) + 16);
        fill(v->dt, t.inputs[i], value_numel(v), i == 0 ? 1 : 64, special);
    }
    for (int i = 0; i < g->outputs.n; i++) {
        t.outputs[i] = arena_alloc(&f->arena, value_bytes(g->outputs.items[i]) + 16);
        t.wanted[i] = arena_alloc(&f->arena, value_bytes(g->outputs.items[i]) + 16);
    }
    return t;
}

static void *place_at(const Place *place, unsigned char *arena, unsigned char *kept,
                      const unsigned char *weights, const Tensors *t) {
    switch (place->space) {
    case PLACE_input:
        return t->inputs[place->index];
    case PLACE_output:
        return t->wanted[place->index];
    case PLACE_arena:
        return arena + place->offset;
    case PLACE_state:
        return kept + place->offset;
    default:
        return (void *)(uintptr_t)(weights + place->offset);
    }
}

/* Runs the steps from `at` to the end of their loop by the interpreter; returns where that is. */
static int interpret_steps(const Program *p, int at, int depth, int64_t *counters,
                           unsigned char *arena, unsigned char *kept, const unsigned char *weights,
                           const Tensors *t) {
    for (; at < p->steps.n && p->steps.items[at].kind != STEP_end; at++) {
        const Step *step = &p->steps.items[at];
        if (step->kind == STEP_loop) {
            int end = at;
            for (counters[depth] = 0; counters[depth] < step->trips; counters[depth]++) {
                end = interpret_steps(p, at + 1, depth + 1, counters, arena, kept, weights, t);
                const Step *last = &p->steps.items[end];
                if (last->args &&
                    !*(const bool *)place_at(&last->places[0], arena, kept, weights, t))
                    break;
            }
            at = end;
            continue;
        }
        void *buffers[32];
        for (int i = 0; i < step->kernel->n_params; i++)
            buffers[i] = place_at(&step->places[i], arena, kept, weights, t);
        interp_kernel(step->kernel, buffers, counters);
    }
    return at;
}

/* A model with states is called twice: the second call shows what the first has left. */
static int calls_of(const Program *p) {
    return p->states.n ? 2 : 1;
}

/* Fills t->wanted by the kernels of the program, interpreted. */
static inline void interpret_program(Fixture *f, const Program *p, const Tensors *t) {
    int64_t counters[8] = {0};
    size_t bytes;
    const unsigned char *weights = weights_block(p, &bytes);
    unsigned char *arena = arena_alloc(&f->arena, (size_t)p->arena_bytes + 64);
    unsigned char *kept = arena_alloc(&f->arena, (size_t)p->state_bytes + 64);
    for (int i = 0; i < p->states.n; i++) {
        const StatePlace *state = &p->states.items[i];
        if (state->initial >= 0)
            memcpy(kept + state->offset, weights + state->initial, (size_t)state->bytes);
    }
    for (int call = 0; call < calls_of(p); call++)
        interpret_steps(p, 0, 0, counters, arena, kept, weights, t);
}

static bool close_enough(DType dt, Scalar got, Scalar want) {
    if (!dt_is_float(dt)) return got.i == want.i;
    if (isnan(want.f)) return isnan(got.f);
    if (isinf(want.f)) return got.f == want.f;
    return fabs(got.f - want.f) <= 1e-7 + 1e-3 * fabs(want.f);
}

static void compare_outputs(const Program *p, const Tensors *t) {
    for (int i = 0; i < graph_n_outputs(p->graph); i++) {
        const Value *v = p->graph->outputs.items[i];
        for (int64_t at = 0; at < value_numel(v); at++) {
            Scalar got = dt_load(v->dt, t->outputs[i], (size_t)at);
            Scalar want = dt_load(v->dt, t->wanted[i], (size_t)at);
            if (close_enough(v->dt, got, want)) continue;
            const char *name = p->graph->output_names.items[i];
            if (dt_is_float(v->dt))
                fail_msg("%s[%lld]: %.9g, not %.9g", name, (long long)at, got.f, want.f);
            fail_msg("%s[%lld]: %lld, not %lld", name, (long long)at, (long long)got.i,
                     (long long)want.i);
        }
    }
}

/* Loads a model library, runs it and compares with t->wanted. weights: the side file, or NULL. */
static inline void run_library(Fixture *f, const char *path, const Program *p, const Tensors *t,
                               const char *weights) {
    void *library = dlopen(arena_printf(&f->arena, "./%s", path), RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    const mlcc_model *(*get)(void) = NULL;
    *(void **)&get = dlsym(library, "mlcc_model_v1");
    assert_non_null(get);
    const mlcc_model *model = get();
    assert_int_equal(model->n_inputs, graph_n_inputs(p->graph));
    assert_int_equal(model->n_outputs, graph_n_outputs(p->graph));
    assert_int_equal(model->state_bytes, p->state_bytes);
    void *state = NULL, *arena = aligned_alloc(64, (size_t)model->arena_bytes / 64 * 64 + 64);
    assert_int_equal(model->open(&state, weights), MLCC_OK);
    for (int round = 0; round < calls_of(p); round++) { /* again after a reset */
        if (round) assert_int_equal(model->reset(state), MLCC_OK);
        for (int call = 0; call < calls_of(p); call++) {
            int code = model->run(state, (const void *const *)t->inputs, t->outputs, arena);
            if (code != MLCC_OK) fail_msg("run gives %d: %s", code, model->error(state));
        }
        compare_outputs(p, t);
    }
    model->close(state);
    free(arena);
    dlclose(library);
}

#endif
