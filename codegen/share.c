/* See share.h. */
#include "codegen/share.h"

#include "codegen/host.h"

#include <string.h>

/* A loop that can be shared if it stands alone: the number of iterations is known. */
static bool is_shareable(const Stmt *s) {
    return s->kind == ST_for && s->role == ROLE_parallel && ex_is_const(s->extent) &&
           s->extent->k.i > 1;
}

const Stmt *shared_loop(const Kernel *k) {
    const Stmt *loop = NULL;
    for (const Stmt *s = k->body; s; s = s->next) {
        if (s->kind == ST_alloc) continue;
        if (!is_shareable(s) || loop) return NULL;
        loop = s;
    }
    return loop;
}

/* How many parallel loops the kernel consists of; 0 if of anything else too, or of no long one. */
static int count_loops(const Kernel *k) {
    int n = 0, long_ones = 0;
    for (const Stmt *s = k->body; s; s = s->next) {
        if (s->kind != ST_for || s->role != ROLE_parallel) return 0;
        long_ones += is_shareable(s);
        n++;
    }
    return long_ones ? n : 0;
}

const Program *share_loops(const Program *p) {
    Arena *arena = p->arena;
    Kernel ***pieces = ARENA_ARRAY(arena, p->kernels.n + 1, Kernel **);
    Program *split = arena_copy(arena, p, sizeof *p);
    memset(&split->kernels, 0, sizeof split->kernels);
    memset(&split->steps, 0, sizeof split->steps);
    bool any = false;
    for (int i = 0; i < p->kernels.n; i++) {
        Kernel *k = p->kernels.items[i];
        int n = count_loops(k);
        vec_push(arena, &split->kernels, k);
        if (n < 2) continue;
        any = true;
        split->kernels.n--;
        pieces[i] = ARENA_ARRAY(arena, n + 1, Kernel *);
        n = 0;
        for (const Stmt *s = k->body; s; s = s->next) {
            Kernel *piece = pieces[i][n++] = arena_copy(arena, k, sizeof *k);
            piece->body = arena_copy(arena, s, sizeof *s);
            piece->body->next = NULL;
            vec_push(arena, &split->kernels, piece);
        }
    }
    for (int s = 0; s < p->steps.n; s++) {
        Step step = p->steps.items[s];
        int k = 0;
        while (step.kernel && p->kernels.items[k] != step.kernel) k++;
        Kernel **piece = step.kernel ? pieces[k] : NULL;
        if (!piece) vec_push(arena, &split->steps, step);
        for (; piece && *piece; piece++) {
            step.kernel = *piece;
            vec_push(arena, &split->steps, step);
        }
    }
    return any ? split : p;
}

bool emit_c_shares(const Program *p) {
    for (int i = 0; i < p->steps.n; i++)
        if (p->steps.items[i].kind == STEP_launch &&
            (shared_loop(p->steps.items[i].kernel) || count_loops(p->steps.items[i].kernel)))
            return true;
    return false;
}

/* What was touched since the last barrier. */
typedef struct Access {
    const Place *place;
    bool written, alone;
} Access;

typedef struct Share {
    const Program *p;
    StepShare *step;
    VEC(Access) since;
} Share;

/* Must step `s` wait for what was done since the last barrier? */
static bool must_wait(const Share *h, int s) {
    const Step *step = &h->p->steps.items[s];
    for (int i = 0; step->kind == STEP_launch && i < step->kernel->n_params; i++)
        for (int k = 0; k < h->since.n; k++) {
            const Access *a = &h->since.items[k];
            bool writes = step->kernel->buffers.items[i]->written || a->written;
            bool ordered = h->step[s].alone && a->alone;
            if (writes && !ordered && places_overlap(a->place, &step->places[i])) return true;
        }
    return false;
}

static void note_step(Share *h, int s) {
    const Step *step = &h->p->steps.items[s];
    for (int i = 0; step->kind == STEP_launch && i < step->kernel->n_params; i++) {
        const Place *place = &step->places[i];
        if (place->space != PLACE_arena && place->space != PLACE_output)
            continue; /* never written */
        Access a = {place, step->kernel->buffers.items[i]->written, h->step[s].alone};
        vec_push(h->p->arena, &h->since, a);
    }
}

static void wait_before(Share *h, int s) {
    h->step[s].barrier = true;
    h->since.n = 0;
}

/* The end of the loop that begins at step `s`. */
static int loop_end(const Program *p, int s) {
    for (int depth = 0;; s++) {
        if (p->steps.items[s].kind == STEP_loop) depth++;
        if (p->steps.items[s].kind == STEP_end && --depth == 0) return s;
    }
}

/* Marks the steps of the first thread alone. */
static void mark_alone(Share *h) {
    const Program *p = h->p;
    for (int s = p->steps.n - 1; s >= 0; s--) {
        const Step *step = &p->steps.items[s];
        h->step[s].alone = step->kind != STEP_launch || !shared_loop(step->kernel);
        if (step->kind != STEP_loop) continue;
        int end = loop_end(p, s);
        for (int i = s + 1; i < end; i++) h->step[s].alone &= h->step[i].alone;
        h->step[end].alone = h->step[s].alone;
    }
}

StepShare *share_steps(const Program *p) {
    Share h = {.p = p, .step = ARENA_ARRAY(p->arena, p->steps.n + 1, StepShare)};
    mark_alone(&h);
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        int last = s;
        if (step->kind != STEP_launch && !h.step[s].alone) {
            /* the first step of a loop also comes after its last */
            if (h.since.n) wait_before(&h, s);
            continue;
        }
        if (step->kind == STEP_loop) last = loop_end(p, s); /* of the first thread: like one step */
        bool wait = false;
        for (int i = s; i <= last; i++) wait |= must_wait(&h, i);
        if (wait) wait_before(&h, s);
        for (; s <= last; s++) note_step(&h, s);
        s = last;
    }
    return h.step;
}
