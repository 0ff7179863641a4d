/* See share.h. */
#include "codegen/share.h"

#include "codegen/host.h"
#include "codegen/share_gain.h"

#include <math.h>
#include <string.h>

#define MOST_LANES  64
#define MOST_PEELED 16 /* iterations of a loop that compilers unroll completely */
#define PLAIN_LANES 4  /* of loops that a C compiler makes vectors of */

/* Is there no loop in the list, but those that C compilers may unroll completely? The one around is
 * then their innermost. */
static bool is_innermost(const Stmt *s) {
    for (; s; s = s->next) {
        if (s->kind == ST_for &&
            (s->role == ROLE_vector || !ex_is_const(s->extent) || s->extent->k.i > MOST_PEELED))
            return false;
        if (!is_innermost(s->body) || !is_innermost(s->other)) return false;
    }
    return true;
}

int shared_unit(const Stmt *loop) {
    return is_innermost(loop->body) ? MOST_LANES * TOGETHER : 1;
}

/* The begin of the loop that ends at step `s`. */
static int loop_begin(const Program *p, int s) {
    for (int depth = 0;; s--) {
        if (p->steps.items[s].kind == STEP_end) depth++;
        if (p->steps.items[s].kind == STEP_loop && --depth == 0) return s;
    }
}

/* The end of the loop that begins at step `s`. */
static int loop_end(const Program *p, int s) {
    for (int depth = 0;; s++) {
        if (p->steps.items[s].kind == STEP_loop) depth++;
        if (p->steps.items[s].kind == STEP_end && --depth == 0) return s;
    }
}

/* Of vectors of the processor. */
static int lanes_of(const EmitOptions *o) {
    return o->vector_bytes ? o->vector_bytes / 4 : PLAIN_LANES;
}

/* Of each step how threads share it, a kernel or iterations of a loop of steps; see share_gain. */
static const int *choose_ways(const Program *p, const EmitOptions *o) {
    int *ways_there = ARENA_ARRAY(p->arena, p->steps.n + 1, int);
    bool apart = false; /* in a loop whose iterations are: its kernels are not shared */
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (step->kind == STEP_launch) {
            Ways ways;
            ways_of(p, step->kernel, &ways);
            ways_there[s] = apart ? 0 : ways.n;
        } else {
            apart = step->kind == STEP_loop && step->apart;
            ways_there[s] = apart;
        }
    }
    if (o->share_all) return ways_there;
    return share_gain(p, ways_there, lanes_of(o));
}

bool emit_c_shares(const Program *p, const EmitOptions *o) {
    const int *way = choose_ways(p, o);
    bool any = false;
    for (int s = 0; s < p->steps.n; s++) any |= way[s] > 0;
    return any;
}

/* --- kernels in pieces ------------------------------------------------------------------------ */

/* A copy of the kernel, whose body is one of its loops. */
static Kernel *piece_of(const Program *p, const Kernel *k, const Stmt *s) {
    Kernel *piece = arena_copy(p->arena, k, sizeof *k);
    piece->body = arena_copy(p->arena, s, sizeof *s);
    piece->body->next = NULL;
    Ways ways;
    ways_of(p, piece, &ways);
    const int way = ways_even(&ways);
    return way ? share_inside(p, piece, &ways, way) : piece;
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

/* The kernel's loops, each a kernel of its own, or the kernel as threads share it, then NULL; `way`
 * as share_gain says. */
static Kernel **pieces_of(const Program *p, Kernel *k, int way) {
    int loops = 1, n = 0;
    Ways ways;
    ways_of(p, k, &ways);
    for (const Stmt *s = k->body; s && !ways.loop; s = s->next) loops++;
    Kernel **piece = ARENA_ARRAY(p->arena, loops + 1, Kernel *);
    if (ways.loop)
        piece[n++] = way > 1 ? share_inside(p, k, &ways, way - 1) : k;
    else
        for (const Stmt *s = k->body; s; s = s->next) piece[n++] = piece_of(p, k, s);
    return piece;
}

const Program *share_loops(const Program *p, const EmitOptions *o) {
    Arena *arena = p->arena;
    const int *way = choose_ways(p, o);
    /* of each kernel, then NULL: as several threads do it and as one does; NULL: none do */
    Kernel ***made[2];
    for (int i = 0; i < 2; i++) made[i] = ARENA_ARRAY(arena, p->kernels.n + 1, Kernel **);
    Program *split = arena_copy(arena, p, sizeof *p);
    memset(&split->kernels, 0, sizeof split->kernels);
    memset(&split->steps, 0, sizeof split->steps);
    for (int s = 0; s < p->steps.n; s++) {
        Step step = p->steps.items[s];
        step.apart &= way[s] > 0;
        if (step.kind != STEP_launch) {
            vec_push(arena, &split->steps, step);
            continue;
        }
        Kernel ***launch = &made[way[s] > 0][kernel_index(p, step.kernel)];
        if (!*launch) {
            if (way[s]) {
                *launch = pieces_of(p, step.kernel, way[s]);
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

/* What step `s` touches of memory that is ever written; returns how many, `access` in the arena. */
static int accesses_of(const Share *h, int s, Access **access) {
    Arena *arena = h->p->arena;
    const Step *step = &h->p->steps.items[s];
    const Kernel *k = step->kernel;
    *access = ARENA_ARRAY(arena, step_n_args(step) + 1, Access);
    if (step->kind != STEP_launch) {
        if (step->args)
            **access = (Access){step->args[0], &step->places[0], true, false, h->step[s].alone};
        return step_n_args(step);
    }
    bool *read = ARENA_ARRAY(arena, k->buffers.n + 1, bool);
    note_loads(arena, k, k->body, read);
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

static bool lies_inside(const Value *v, const Value *whole) {
    while (v && v != whole) v = v->inside;
    return v;
}

/* Does each write elements of its own? Pieces of a map do, and makers of tensors that lie inside of
 * the same one. (What is made of a tensor beyond a run's extents lies in what is around it.) */
static bool write_apart(const Access *a, const Access *b) {
    if (a->read || b->read) return false;
    if (a->place == b->place) return true; /* of one launch */
    const Value *v = a->value, *w = b->value;
    if (lies_inside(v, w) || lies_inside(w, v))
        return v != w && !dims_vary(v->rank, v->dims) && !dims_vary(w->rank, w->dims);
    while (v->inside) v = v->inside;
    while (w->inside) w = w->inside;
    return v == w;
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

/* --- pieces ----------------------------------------------------------------------------------- */

#define LEAST_PIECE  5e4 /* cycles: a taking costs hundreds, where the piece is another thread's */
#define LEAST_PIECES 4   /* of which two threads have two each */
#define MOST_PIECES  32

/* The last step of the stretch that begins with step `s`, which all threads share: launches that
 * need nothing of one another, so that whoever takes a piece does that of each, or one loop whose
 * iterations are apart. cycles: of one thread. */
static int stretch_of(const Share *h, int s, int lanes, double *cycles) {
    const Program *p = h->p;
    const Step *step = &p->steps.items[s];
    *cycles = 0;
    if (step->kind == STEP_loop) {
        const int end = loop_end(p, s);
        for (int i = s; i < end; i++)
            if (p->steps.items[i].kind == STEP_launch)
                *cycles += share_cycles(p->arena, p->steps.items[i].kernel, lanes);
        *cycles *= (double)step->trips;
        return end;
    }
    int last = s;
    for (int i = s; i < p->steps.n; i++) {
        step = &p->steps.items[i];
        if (step->kind != STEP_launch || h->step[i].alone || (i > s && h->step[i].barrier)) break;
        *cycles += share_cycles(p->arena, step->kernel, lanes);
        last = i;
    }
    return last;
}

static void find_stretches(Share *h, const EmitOptions *o) {
    const Program *p = h->p;
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        const bool loop = step->kind == STEP_loop && step->apart;
        if (h->step[s].alone || (step->kind != STEP_launch && !loop)) continue;
        double cycles;
        const int last = stretch_of(h, s, lanes_of(o), &cycles);
        const int most = (int)fmin(cycles / LEAST_PIECE, MOST_PIECES);
        h->step[s].pieces = most >= LEAST_PIECES ? most : o->share_all ? LEAST_PIECES : 0;
        h->step[s].last = last;
        s = last;
    }
}

StepShare *share_steps(const Program *p, const EmitOptions *o) {
    Share h = {.p = p, .step = ARENA_ARRAY(p->arena, p->steps.n + 1, StepShare)};
    mark_alone(&h);
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        int last = s;
        if (step->kind != STEP_launch && !h.step[s].alone && !step->apart) {
            /* the first step of a loop also comes after its last; and all threads have looked
             * whether the loop goes on, at either end, before anyone says anew */
            if (h.since.n) wait_before(&h, s);
            note_step(&h, s);
            note_step(&h, step->kind == STEP_loop ? loop_end(p, s) : loop_begin(p, s));
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
    find_stretches(&h, o);
    return h.step;
}
