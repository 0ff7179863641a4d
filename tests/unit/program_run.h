/* For tests of the passes: runs a program as a target would, its kernels in the interpreter and its
 * tensors where the memory plan put them, in memory full of garbage; and compares results. */
#ifndef TESTS_PROGRAM_RUN_H
#define TESTS_PROGRAM_RUN_H

#include "ir/constant.h"
#include "ir/interp.h"
#include "ir/target.h"
#include "ir/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A small generator with its own state, so that runs are alike everywhere. */
typedef struct Random {
    uint64_t state;
} Random;

static inline uint32_t random_next(Random *r) {
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33);
}

/* 0 <= result < n */
static inline int random_below(Random *r, int n) {
    return (int)(random_next(r) % (uint32_t)n);
}

static inline bool random_chance(Random *r, int percent) {
    return random_below(r, 100) < percent;
}

/* Whole numbers from -4 to 4 (unsigned: 0 to 4; bool: 0 or 1), which most arithmetic keeps exact.
 */
static inline void random_fill(Random *r, const Value *v, void *data) {
    DKind kind = dt_kind(v->dt);
    for (int64_t i = 0; i < value_numel(v); i++) {
        int n = kind == DK_bool   ? random_below(r, 2)
                : kind == DK_uint ? random_below(r, 5)
                                  : random_below(r, 9) - 4;
        Scalar s = {.i = n};
        if (kind == DK_float) s.f = n;
        dt_save(v->dt, data, (size_t)i, s);
    }
}

/* Memory for each of n values, filled with `poison`. */
static inline void **value_buffers(Arena *arena, int n, Value *const *v, int poison) {
    void **buffers = ARENA_ARRAY(arena, n + 1, void *);
    for (int i = 0; i < n; i++) {
        buffers[i] = arena_alloc(arena, value_bytes(v[i]) + 16);
        memset(buffers[i], poison, value_bytes(v[i]));
    }
    return buffers;
}

/* NULL if the tensors are equal; else what differs first. Floats may differ by `tolerance`,
 * relative to the larger of 1 and the largest element. */
static inline const char *tensor_difference(Arena *arena, const Value *v, const void *got,
                                            const void *want, double tolerance) {
    bool real = dt_is_float(v->dt);
    double top = 1;
    for (int64_t i = 0; i < value_numel(v) && real; i++) {
        double w = fabs(dt_load(v->dt, want, (size_t)i).f);
        if (isfinite(w) && w > top) top = w;
    }
    for (int64_t i = 0; i < value_numel(v); i++) {
        Scalar a = dt_load(v->dt, got, (size_t)i), b = dt_load(v->dt, want, (size_t)i);
        bool same = !real        ? a.i == b.i
                    : isnan(b.f) ? isnan(a.f) != 0
                    : isinf(b.f) ? a.f == b.f
                                 : fabs(a.f - b.f) <= tolerance * top;
        if (same) continue;
        return arena_printf(arena, "%s%s: element %lld is %.9g, not %.9g", dt_name(v->dt),
                            shape_text(arena, v->rank, v->shape), (long long)i,
                            real ? a.f : (double)a.i, real ? b.f : (double)b.i);
    }
    return NULL;
}

/* NULL, or which bound of the target a kernel passes. */
static inline const char *limits_passed(const Program *p, const Target *t) {
    for (int i = 0; i < p->kernels.n && t->blocks; i++) {
        const Kernel *k = p->kernels.items[i];
        int64_t shared = 0, threads = k->block[0] * k->block[1] * k->block[2];
        for (int b = 0; b < k->buffers.n; b++) {
            const Buffer *buffer = k->buffers.items[b];
            if (buffer->space == SPACE_shared)
                shared += shape_numel(buffer->rank, buffer->shape) * (int64_t)dt_store(buffer->dt);
        }
        if (shared > t->shared_bytes)
            return arena_printf(p->arena, "kernel %s takes %lld bytes of shared memory", k->name,
                                (long long)shared);
        if (threads > t->max_block_threads)
            return arena_printf(p->arena, "kernel %s has blocks of %lld threads", k->name,
                                (long long)threads);
        for (int d = 0; d < 3; d++)
            if (k->grid[d] > t->max_grid)
                return arena_printf(p->arena, "kernel %s has a grid of %lld blocks", k->name,
                                    (long long)k->grid[d]);
    }
    return NULL;
}

typedef struct ProgramRun {
    Program *p;
    void **inputs, **outputs;
    unsigned char *arena, *weights, *kept;
    int64_t counters[MAX_RANK];
    const char *error; /* NULL: none */
} ProgramRun;

static inline void *place_memory(ProgramRun *run, const Step *s, int arg) {
    const Place *place = &s->places[arg];
    int64_t space = INT64_MAX;
    unsigned char *base = NULL;
    switch (place->space) {
    case PLACE_input:
        base = run->inputs[place->index];
        break;
    case PLACE_output:
        base = run->outputs[place->index];
        break;
    case PLACE_arena:
        base = run->arena, space = run->p->arena_bytes;
        break;
    case PLACE_weights:
        base = run->weights, space = run->p->weight_bytes;
        break;
    case PLACE_state:
        base = run->kept, space = run->p->state_bytes;
        break;
    default:
        break;
    }
    if (!base || place->offset < 0 || place->offset + place->bytes > space ||
        place->bytes < (int64_t)value_bytes(s->args[arg])) {
        run->error = arena_printf(run->p->arena, "kernel %s: argument %d has no place",
                                  s->kernel->name, arg);
        return run->weights;
    }
    return base + place->offset;
}

static inline void run_launch(ProgramRun *run, const Step *s) {
    void **buffers = ARENA_ARRAY(run->p->arena, s->kernel->n_params + 1, void *);
    for (int i = 0; i < s->kernel->n_params; i++) buffers[i] = place_memory(run, s, i);
    const char *message;
    if (!run->error &&
        !interp_kernel_checked(run->p->arena, s->kernel, buffers, run->counters, &message))
        run->error = arena_printf(run->p->arena, "kernel %s: %s", s->kernel->name, message);
}

/* Runs the steps from `at` to the end of their block; returns the step after it. */
static inline int run_steps(ProgramRun *run, int at, int depth) {
    Program *p = run->p;
    while (at < p->steps.n && !run->error) {
        const Step *s = &p->steps.items[at];
        if (s->kind == STEP_end) return at + 1;
        if (s->kind == STEP_launch) {
            run_launch(run, s);
            at++;
            continue;
        }
        int after = at + 1;
        for (int open = 1; open > 0; after++)
            open += p->steps.items[after].kind == STEP_loop  ? 1
                    : p->steps.items[after].kind == STEP_end ? -1
                                                             : 0;
        for (int64_t trip = 0; trip < s->trips && !run->error; trip++) {
            run->counters[depth] = trip;
            run_steps(run, at + 1, depth + 1);
            const Step *end = &p->steps.items[after - 1];
            if (end->args && !*(const bool *)place_memory(run, end, 0)) break;
        }
        at = after;
    }
    return at;
}

/* Moves what the states are between the block of states and the inputs before, the outputs after.
 */
static inline void move_states(ProgramRun *run, bool after) {
    const Graph *g = run->p->graph;
    for (int i = 0; i < g->n_states; i++) {
        unsigned char *kept = run->kept + run->p->states.items[i].offset;
        size_t bytes = (size_t)run->p->states.items[i].bytes;
        if (after)
            memcpy(run->outputs[graph_n_outputs(g) + i], kept, bytes);
        else
            memcpy(kept, run->inputs[graph_n_inputs(g) + i], bytes);
    }
}

/* Runs a placed program; a state is what its input is, and its output what it is then. NULL, or
 * what went wrong. */
static inline const char *run_program(Program *p, void **inputs, void **outputs) {
    ProgramRun run = {.p = p, .inputs = inputs, .outputs = outputs};
    run.arena = arena_alloc(p->arena, (size_t)p->arena_bytes + 16);
    run.weights = arena_alloc(p->arena, (size_t)p->weight_bytes + 16);
    memset(run.arena, 0xff, (size_t)p->arena_bytes); /* NaN as a float, -1 as an integer */
    for (int i = 0; i < p->weights.n; i++)
        constant_read(p->arena, p->weights.items[i], run.weights + p->weight_offset.items[i]);
    run.kept = arena_alloc(p->arena, (size_t)p->state_bytes + 16);
    move_states(&run, false);
    run_steps(&run, 0, 0);
    move_states(&run, true);
    return run.error;
}

#endif
