/* See share_ways.h. */
#include "codegen/share_ways.h"

#include "codegen/clanes.h"

#include <math.h>
#include <string.h>

#define MUCH_LESS   0.95 /* of the iterations that one thread does */
#define EVEN        0.55 /* of all iterations: about half */
#define SHORT_BYTES 8192 /* of a row that two threads share: within two pages */

static bool is_parallel(const Stmt *s) {
    return s->kind == ST_for && s->role == ROLE_parallel;
}

static bool runs_often(const Kernel *k, const Stmt *loop) {
    return k->vars.items[loop->var].extent > 1;
}

/* Does it always run as often as its variable may? */
static bool runs_fully(const Kernel *k, const Stmt *loop) {
    return ex_is_int(loop->extent, k->vars.items[loop->var].extent);
}

const Stmt *shared_loop(const Kernel *k) {
    const Stmt *loop = NULL;
    for (const Stmt *s = k->body; s; s = s->next) {
        if (s->kind == ST_alloc) continue;
        if (!is_parallel(s) || loop) return NULL;
        loop = s;
    }
    while (loop && loop->body && is_parallel(loop->body) && !loop->body->next) loop = loop->body;
    return loop && runs_often(k, loop) ? loop : NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

static void note_load(void *user, const Expr *e) {
    bool *read = user;
    if (e->op == EX_load) read[e->k.i] = true;
}

void note_loads(Arena *arena, const Kernel *k, const Stmt *s, bool *read) {
    for (; s; s = s->next) {
        if (s->extent) ex_visit(arena, s->extent, note_load, read);
        if (s->value) ex_visit(arena, s->value, note_load, read);
        for (int i = 0; s->index && i < k->buffers.items[s->buffer]->rank; i++)
            ex_visit(arena, s->index[i], note_load, read);
        note_loads(arena, k, s->body, read);
        note_loads(arena, k, s->other, read);
    }
}

static void note_unknown(void *user, const Expr *e) {
    if (e->op == EX_load || e->op == EX_ctr) *(bool *)user = true;
}

/* Is it known which place of the buffer that is? */
static bool is_known(Arena *arena, const Buffer *b, const Expr *const *index) {
    bool unknown = false;
    for (int i = 0; i < b->rank; i++) ex_visit(arena, index[i], note_unknown, &unknown);
    return !unknown;
}

/* Do the statements store to parameters alone, none of which is in `read`, and at known places that
 * depend on the variable? */
static bool stores_apart(Arena *arena, const Kernel *k, const Stmt *s, int var, const bool *read) {
    for (; s; s = s->next) {
        if (s->kind == ST_alloc || s->kind == ST_barrier) return false;
        if (s->kind == ST_store) {
            const Buffer *b = k->buffers.items[s->buffer];
            bool depends = false;
            for (int i = 0; i < b->rank; i++) depends |= ex_depends(s->index[i], var);
            if (s->buffer >= k->n_params || read[s->buffer] || !depends) return false;
            if (!is_known(arena, b, s->index)) return false;
        }
        if (!stores_apart(arena, k, s->body, var, read)) return false;
        if (!stores_apart(arena, k, s->other, var, read)) return false;
    }
    return true;
}

/* --- the loops -------------------------------------------------------------------------------- */

/* Loops that are one, outermost first: those that a loop joins, whose body they begin with the
 * definitions of, or that stand in each other and nothing else. */
typedef struct Nested {
    int n;
    int var[MOST_WAYS];
    Stmt *body; /* inside of them */
    bool joined;
} Nested;

/* What the definitions at the begin of the loop's body, the innermost first, say that it joins. */
static bool find_joined(const Program *p, const Kernel *k, const Stmt *loop, Nested *found) {
    const Expr *rest = ex_var(p->x, loop->var);
    int64_t total = 1, all = k->vars.items[loop->var].extent;
    for (Stmt *s = loop->body; s && s->kind == ST_let && found->n < MOST_WAYS; s = s->next) {
        const int64_t extent = k->vars.items[s->var].extent;
        if (extent < 1 || total > all / extent) return false;
        total *= extent;
        const bool outermost = total == all && s->value == rest;
        if (!outermost && s->value != ex_bin(p->x, EX_rem, rest, ex_i(p->x, extent))) return false;
        memmove(found->var + 1, found->var, (size_t)found->n++ * sizeof *found->var);
        found->var[0] = s->var;
        found->body = s->next;
        if (outermost) return true;
        rest = ex_div(p->x, rest, ex_i(p->x, extent));
    }
    return false;
}

/* Loops inside of it whose iterations are apart, too: each stores elements of its own. */
static void find_nested(const Program *p, const Kernel *k, const Stmt *loop, Nested *found) {
    bool *read = ARENA_ARRAY(p->arena, k->buffers.n + 1, bool);
    note_loads(p->arena, k, k->body, read);
    *found = (Nested){1, {loop->var}, loop->body, false};
    for (Stmt *s = loop->body; s && !s->next && s->kind == ST_for; s = s->body) {
        if (s->role != ROLE_serial || !runs_fully(k, s) || found->n == MOST_WAYS ||
            !stores_apart(p->arena, k, k->body, s->var, read))
            return;
        found->var[found->n++] = s->var;
        found->body = s->body;
    }
}

/* Those that the shared loop is. */
static Nested find_loops(const Program *p, const Kernel *k, const Stmt *loop) {
    Nested found = {0};
    if (!runs_fully(k, loop)) return (Nested){1, {loop->var}, loop->body, false};
    if (find_joined(p, k, loop, &found))
        found.joined = true;
    else
        find_nested(p, k, loop, &found);
    return found;
}

/* Would threads do parts of short rows? What a core fetches ahead is then another's. */
static bool cuts_rows(const Program *p, const Kernel *k, const Ways *ways, int way) {
    for (int i = 0; i < k->n_params; i++) {
        if (!k->buffers.items[i]->written) continue;
        const double span = ways_span(p, k, ways, way, i);
        if (span >= 0 && span < SHORT_BYTES) return true;
    }
    return false;
}

/* Do hints for constants go from one iteration of the variable's loop to the next? */
static bool fetches_along(const Stmt *s, int var) {
    for (; s; s = s->next) {
        if (s->kind == ST_prefetch && ex_depends(s->index[0], var)) return true;
        if (fetches_along(s->body, var) || fetches_along(s->other, var)) return true;
    }
    return false;
}

void ways_of(const Program *p, const Kernel *k, Ways *ways) {
    *ways = (Ways){.loop = shared_loop(k)};
    if (!ways->loop) {
        int64_t longest = 0;
        for (const Stmt *s = k->body; s; s = s->next) {
            if (!is_parallel(s)) return;
            const int64_t extent = k->vars.items[s->var].extent;
            longest = extent > longest ? extent : longest;
        }
        ways->n = longest > 1;
        ways->var[0] = -1;
        ways->extent[0] = longest;
        return;
    }
    const Nested loops = find_loops(p, k, ways->loop);
    ways->n = 1;
    ways->var[0] = loops.var[0];
    ways->extent[0] = k->vars.items[ways->loop->var].extent;
    const bool even = ways_part(ways, 0) <= EVEN;
    for (int i = 1; i < loops.n; i++) {
        /* a loop inside of such a one, with constants of its own in each iteration: what is fetched
         * ahead there would be another thread's */
        if (fetches_along(ways->loop->body, loops.var[i - 1])) break;
        if (k->vars.items[loops.var[i]].extent < 2) continue;
        ways->var[ways->n] = loops.var[i];
        ways->extent[ways->n] = k->vars.items[loops.var[i]].extent;
        if (!loops.joined && even && cuts_rows(p, k, ways, ways->n)) continue;
        ways->n++;
    }
}

int ways_even(const Ways *ways) {
    int best = 0;
    for (int w = 1; w < ways->n; w++)
        if (ways_part(ways, w) < ways_part(ways, best) * MUCH_LESS) best = w;
    return best;
}

double ways_part(const Ways *ways, int way) {
    const int64_t extent = ways->extent[way];
    return (double)((extent + 1) / 2) / (double)extent;
}

Kernel *share_inside(const Program *p, const Kernel *k, const Ways *ways, int way) {
    const Nested loops = find_loops(p, k, ways->loop);
    Stmt *inside = loops.body;
    Role role = ROLE_serial;
    for (int i = loops.n - 1; i >= 0; i--) {
        Stmt *loop = arena_copy(p->arena, ways->loop, sizeof *loop);
        if (loops.var[i] == ways->var[way]) role = ROLE_parallel;
        loop->var = loops.var[i];
        loop->role = role;
        loop->extent = ex_i(p->x, k->vars.items[loop->var].extent);
        loop->body = inside;
        loop->next = NULL;
        inside = loop;
    }
    Kernel *copy = arena_copy(p->arena, k, sizeof *k);
    copy->body = NULL;
    for (const Stmt *s = k->body; s; s = s->next) {
        Stmt *own = s == ways->loop ? inside : arena_copy(p->arena, s, sizeof *s);
        own->next = NULL;
        stmt_append(&copy->body, own);
    }
    return copy;
}

/* --- what threads touch ----------------------------------------------------------------------- */

/* A way's loop, and how its accesses to a buffer go along. */
typedef struct Along {
    const Program *p;
    const Kernel *k;
    int buffer, var;
    int64_t *at; /* of each variable */
    double span; /* of elements, the least; NAN: not known */
    bool any;
} Along;

/* The element that is touched while the loop is at `at`, the others at their begin. */
static double place_at(Along *a, const Expr *const *index, int64_t at) {
    const Buffer *b = a->k->buffers.items[a->buffer];
    double place = 0;
    a->at[a->var] = at;
    for (int i = 0; i < b->rank; i++)
        place = place * (double)b->shape[i] + (double)ex_eval(index[i], a->at).i;
    a->at[a->var] = 0;
    return place;
}

static void note_access(Along *a, const Expr *const *index) {
    const Buffer *b = a->k->buffers.items[a->buffer];
    const double n = (double)a->k->vars.items[a->var].extent;
    double span = NAN;
    if (is_known(a->p->arena, b, index))
        span = fabs(place_at(a, index, (int64_t)n - 1) - place_at(a, index, 0)) / (n - 1) * n;
    a->span = a->any ? isnan(span) || isnan(a->span) ? NAN : fmin(span, a->span) : span;
    a->any = true;
}

static void note_read(void *user, const Expr *e) {
    Along *a = user;
    if (e->op == EX_load && e->k.i == a->buffer) note_access(a, e->arg);
}

static void note_statements(Along *a, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->extent) ex_visit(a->p->arena, s->extent, note_read, a);
        if (s->value) ex_visit(a->p->arena, s->value, note_read, a);
        if (s->kind == ST_store && s->buffer == a->buffer) note_access(a, s->index);
        note_statements(a, s->body);
        note_statements(a, s->other);
    }
}

double ways_span(const Program *p, const Kernel *k, const Ways *ways, int way, int buffer) {
    Along a = {.p = p, .k = k, .buffer = buffer, .var = ways->var[way]};
    if (a.var < 0 || k->vars.items[a.var].extent < 2) return -1;
    a.at = ARENA_ARRAY(p->arena, k->vars.n + 1, int64_t);
    note_statements(&a, k->body);
    if (!a.any || isnan(a.span)) return -1;
    const double all = (double)buffer_elements(k->buffers.items[buffer]);
    return fmin(a.span, all) * (double)dt_store(k->buffers.items[buffer]->dt);
}
