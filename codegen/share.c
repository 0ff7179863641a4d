/* See share.h. */
#include "codegen/share.h"

#include "codegen/host.h"
#include "codegen/share_gain.h"

#include <string.h>

/* A loop that can be shared if it stands alone. */
static bool is_shareable(const Kernel *k, const Stmt *s) {
    return s->kind == ST_for && s->role == ROLE_parallel && k->vars.items[s->var].extent > 1;
}

const Stmt *shared_loop(const Kernel *k) {
    const Stmt *loop = NULL;
    for (const Stmt *s = k->body; s; s = s->next) {
        if (s->kind == ST_alloc) continue;
        if (!is_shareable(k, s) || loop) return NULL;
        loop = s;
    }
    return loop;
}

#define MOST_LANES  64
#define MOST_PEELED 16 /* iterations of a loop that compilers unroll completely */
#define PLAIN_LANES 4  /* of loops that a C compiler makes vectors of */

/* Is there no loop in the list, but those that C compilers may unroll completely? The one around is
 * then their innermost. */
static bool is_innermost(const Stmt *s) {
    for (; s; s = s->next) {
        bool few = s->kind == ST_for && s->role != ROLE_vector && ex_is_const(s->extent) &&
                   s->extent->k.i <= MOST_PEELED;
        if (s->kind == ST_for && (!few || !is_innermost(s->body))) return false;
    }
    return true;
}

int shared_unit(const Stmt *loop) {
    return is_innermost(loop->body) ? MOST_LANES : 1;
}

/* How many parallel loops the kernel consists of; 0 if of anything else too, or of no long one. */
static int count_loops(const Kernel *k) {
    int n = 0, long_ones = 0;
    for (const Stmt *s = k->body; s; s = s->next) {
        if (s->kind != ST_for || s->role != ROLE_parallel) return 0;
        long_ones += is_shareable(k, s);
        n++;
    }
    return long_ones ? n : 0;
}

/* The end of the loop that begins at step `s`. */
static int loop_end(const Program *p, int s) {
    for (int depth = 0;; s++) {
        if (p->steps.items[s].kind == STEP_loop) depth++;
        if (p->steps.items[s].kind == STEP_end && --depth == 0) return s;
    }
}

/* Of each step whether threads share it: the loop of a kernel, or iterations of a loop of steps. */
static const bool *choose_shared(const Program *p, const EmitOptions *o) {
    bool *can = ARENA_ARRAY(p->arena, p->steps.n + 1, bool);
    bool apart = false; /* in a loop whose iterations are: its kernels are not shared */
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (step->kind == STEP_launch)
            can[s] = !apart && (shared_loop(step->kernel) || count_loops(step->kernel));
        else
            can[s] = apart = step->kind == STEP_loop && step->apart;
    }
    return o->share_all ? can
                        : share_gain(p, can, o->vector_bytes ? o->vector_bytes / 4 : PLAIN_LANES);
}

bool emit_c_shares(const Program *p, const EmitOptions *o) {
    const bool *shared = choose_shared(p, o);
    bool any = false;
    for (int s = 0; s < p->steps.n; s++) any |= shared[s];
    return any;
}

/* --- kernels in pieces ------------------------------------------------------------------------ */

/* A copy of the kernel, whose body is one of its statements. */
static Kernel *piece_of(Arena *arena, const Kernel *k, const Stmt *s) {
    Kernel *piece = arena_copy(arena, k, sizeof *k);
    piece->body = arena_copy(arena, s, sizeof *s);
    piece->body->next = NULL;
    return piece;
}

/* A copy of the kernel without parallel loops outermost. */
static Kernel *serial_copy(Arena *arena, const Kernel *k) {
    Kernel *copy = arena_copy(arena, k, sizeof *k);
    copy->body = NULL;
    for (const Stmt *s = k->body; s; s = s->next) {
        Stmt *own = arena_copy(arena, s, sizeof *s);
        own->next = NULL;
        if (own->kind == ST_for && own->role == ROLE_parallel) own->role = ROLE_serial;
        stmt_append(&copy->body, own);
    }
    return copy;
}

int64_t apart_bytes(const Program *p) {
    int64_t most = 0;
    for (int i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.items[i];
        if (step->kind == STEP_loop && step->apart && step->own_bytes > most)
            most = step->own_bytes;
    }
    return most;
}

/* The kernel's loops, each a kernel of its own, then NULL. */
static Kernel **pieces_of(Arena *arena, Kernel *k) {
    int loops = count_loops(k), n = 0;
    Kernel **piece = ARENA_ARRAY(arena, loops + 2, Kernel *);
    if (loops < 2) piece[n++] = k;
    for (const Stmt *s = k->body; s && loops >= 2; s = s->next) piece[n++] = piece_of(arena, k, s);
    return piece;
}

const Program *share_loops(const Program *p, const EmitOptions *o) {
    Arena *arena = p->arena;
    const bool *shared = choose_shared(p, o);
    /* of each kernel, then NULL: as several threads do it and as one does; NULL: none do */
    Kernel ***made[2];
    for (int i = 0; i < 2; i++) made[i] = ARENA_ARRAY(arena, p->kernels.n + 1, Kernel **);
    Program *split = arena_copy(arena, p, sizeof *p);
    memset(&split->kernels, 0, sizeof split->kernels);
    memset(&split->steps, 0, sizeof split->steps);
    for (int s = 0; s < p->steps.n; s++) {
        Step step = p->steps.items[s];
        step.apart &= shared[s];
        if (step.kind != STEP_launch) {
            vec_push(arena, &split->steps, step);
            continue;
        }
        Kernel ***launch = &made[shared[s]][kernel_index(p, step.kernel)];
        if (!*launch) {
            if (shared[s]) {
                *launch = pieces_of(arena, step.kernel);
            } else {
                *launch = ARENA_ARRAY(arena, 2, Kernel *);
                (*launch)[0] = serial_copy(arena, step.kernel);
            }
            for (Kernel **k = *launch; *k; k++) vec_push(arena, &split->kernels, *k);
        }
        for (Kernel **k = *launch; *k; k++) {
            step.kernel = *k;
            vec_push(arena, &split->steps, step);
        }
    }
    return split;
}

/* --- barriers --------------------------------------------------------------------------------- */

/* What a step touches, and what was touched since the last barrier. */
typedef struct Access {
    const Value *value;
    const Place *place;
    bool read, written, alone;
} Access;

typedef struct Share {
    const Program *p;
    StepShare *step;
    VEC(Access) since;
} Share;

static void note_load(void *user, const Expr *e) {
    bool *read = user;
    if (e->op == EX_load) read[e->k.i] = true;
}

/* Sets `read` for buffers that the statements load from. */
static void note_loads(Arena *arena, const Kernel *k, const Stmt *s, bool *read) {
    for (; s; s = s->next) {
        if (s->extent) ex_visit(arena, s->extent, note_load, read);
        if (s->value) ex_visit(arena, s->value, note_load, read);
        for (int i = 0; s->index && i < k->buffers.items[s->buffer]->rank; i++)
            ex_visit(arena, s->index[i], note_load, read);
        note_loads(arena, k, s->body, read);
        note_loads(arena, k, s->other, read);
    }
}

/* What step `s` touches of memory that is ever written; returns how many, `access` in the arena. */
static int accesses_of(const Share *h, int s, Access **access) {
    Arena *arena = h->p->arena;
    const Step *step = &h->p->steps.items[s];
    const Kernel *k = step->kernel;
    if (step->kind != STEP_launch) return 0;
    bool *read = ARENA_ARRAY(arena, k->buffers.n + 1, bool);
    note_loads(arena, k, k->body, read);
    *access = ARENA_ARRAY(arena, k->n_params + 1, Access);
    int n = 0;
    for (int i = 0; i < k->n_params; i++) {
        const Place *place = &step->places[i];
        bool written = k->buffers.items[i]->written;
        if (place->space == PLACE_input || place->space == PLACE_weights) continue;
        if (read[i] || written)
            (*access)[n++] = (Access){step->args[i], place, read[i], written, h->step[s].alone};
    }
    return n;
}

/* Does each write elements of its own? Pieces of a map do, and makers of tensors that lie inside of
 * the same one. */
static bool write_apart(const Access *a, const Access *b) {
    if (a->read || b->read) return false;
    if (a->place == b->place) return true; /* of one launch */
    const Value *v = a->value, *w = b->value;
    while (v->inside) v = v->inside;
    while (w->inside) w = w->inside;
    return v == w && a->value != b->value;
}

/* Must step `s` wait for what was done since the last barrier? */
static bool must_wait(const Share *h, int s) {
    Access *access;
    int n = accesses_of(h, s, &access);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < h->since.n; k++) {
            const Access *a = &access[i], *b = &h->since.items[k];
            bool writes = a->written || b->written, ordered = a->alone && b->alone;
            if (writes && !ordered && places_overlap(a->place, b->place) && !write_apart(a, b))
                return true;
        }
    return false;
}

static void note_step(Share *h, int s) {
    Access *access;
    int n = accesses_of(h, s, &access);
    for (int i = 0; i < n; i++) vec_push(h->p->arena, &h->since, access[i]);
}

static void wait_before(Share *h, int s) {
    h->step[s].barrier = true;
    h->since.n = 0;
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
        for (int i = s; i <= end && step->apart; i++) h->step[i].alone = false;
        h->step[end].alone = h->step[s].alone;
    }
}

StepShare *share_steps(const Program *p) {
    Share h = {.p = p, .step = ARENA_ARRAY(p->arena, p->steps.n + 1, StepShare)};
    mark_alone(&h);
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        int last = s;
        if (step->kind != STEP_launch && !h.step[s].alone && !step->apart) {
            /* the first step of a loop also comes after its last */
            if (h.since.n) wait_before(&h, s);
            continue;
        }
        /* of the first thread, or of iterations of several: like one step */
        if (step->kind == STEP_loop) last = loop_end(p, s);
        bool wait = false;
        for (int i = s; i <= last; i++) wait |= must_wait(&h, i);
        if (wait) wait_before(&h, s);
        for (; s <= last; s++) note_step(&h, s);
        s = last;
    }
    return h.step;
}
