/* See measure.h. */
#include "compiler/measure.h"

#include "compiler/io.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool allocate(Runner *r) {
    const mlcc_model *model = r->m.model;
    uint64_t state = r->s->o->seed ? strtoull(r->s->o->seed, NULL, 10) : 1;
    Io io;
    io_of_model(r->s, &io, model, 1);
    if (!io_set_inputs(r->s, &io, EXTENTS_largest, &state)) return false;
    r->extents = io_smaller_extents(r->s, &io);
    r->in = io.in_data;
    r->out = io.out_data;
    memset(r->m.arena, 0, (size_t)model->arena_bytes);
    return true;
}

bool runner_open(Runner *r, Session *s, const char *path, const char *weights) {
    *r = (Runner){.s = s};
    if (!model_load(s, &r->m, path, weights) || !allocate(r)) return false;
    union { /* POSIX promises that a function pointer comes through dlsym whole */
        void *object;
        mlcc_profile *(*function)(void);
    } symbol = {dlsym(r->m.library, "mlcc_profile_v1")};
    if (!symbol.object) return true;
    r->profile = symbol.function();
    r->least = ARENA_ARRAY(&s->arena, r->profile->n_steps + 1, uint64_t);
    runner_forget(r);
    return true;
}

double runner_run(Runner *r) {
    const mlcc_model *model = r->m.model;
    double start = seconds_now();
    int code = model->run(r->m.state, (const void *const *)r->in, r->out, r->m.arena);
    double took = seconds_now() - start;
    if (code == MLCC_OK) return took;
    diag_error(&r->s->diag, E0008, "failed with status %d: %s", code, model->error(r->m.state));
    return -1;
}

bool runner_measure(Runner *r) {
    mlcc_profile *profile = r->profile;
    memset(profile->nanoseconds, 0, profile->n_steps * sizeof *profile->nanoseconds);
    profile->on = 1;
    bool ok = runner_run(r) >= 0;
    profile->on = 0;
    for (uint32_t k = 0; k < profile->n_steps; k++)
        if (profile->nanoseconds[k] < r->least[k]) r->least[k] = profile->nanoseconds[k];
    return ok;
}

void runner_forget(Runner *r) {
    memset(r->least, 0xff, (r->profile->n_steps + 1) * sizeof *r->least);
}

void runner_close(Runner *r) {
    model_unload(&r->m);
}
