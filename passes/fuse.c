/* fuse: elementwise and movement operators go into the bodies of their users, and into the `post`
 * of the reduction that makes their operand. Fusion is substitution of expressions.
 *
 * Walking in order, at every operator c:
 *
 *   inline: an input that a map m computes is replaced by m's body at the index c loads it from, if
 *   that does not compute much twice (see worth_inlining);
 *
 *   epilogue: if c is a map of a reduction's result at its own coordinates, and nobody else wants
 *   that result, c becomes the reduction's post.
 *
 * Both look through reshapes: an index is put together with the one shape and taken apart with the
 * other. A map that decodes bytes becomes an epilogue only if its users would not have it, for what
 * they read is a quarter as large before.
 */
#include "passes/inline.h"
#include "passes/passes.h"

#include <string.h>

#define MAX_SIZE     4000 /* nodes of a fused body, as a tree */
#define MIN_SIZE     250  /* ... when much was rewritten before, see size_limit */
#define MAX_WORK     (8 << 20)
#define MAX_DECODING 4 /* cost of decoding a byte, and of a little more */
#define MOST_PADDED  2 /* who ask where the padding is, on devices */
#define MOST_ACROSS  2 /* tensors that are read across their rows at once */

/* How large a body may grow. A step that moves what it puts in rewrites all of it, so a chain of
 * such steps would take time by its length times this size: after so many nodes bodies are kept
 * small. */
static uint32_t size_limit(int64_t work) {
    return work < MAX_WORK ? MAX_SIZE : MIN_SIZE;
}

/* --- costs ------------------------------------------------------------------------------------ */

typedef struct Sites {
    Graph *g;
    int source;
    const int64_t *extent;
    int n_extent;
    double elements;    /* of the source, 1 at least */
    double evaluations; /* how often c evaluates each of them by these loads, on average */
} Sites;

/* A load whose index takes every coordinate at most once, unscaled, evaluates each element once for
 * each combination of the coordinates it leaves out; any other is taken to be evaluated every time.
 */
static void count_site(void *user, const Expr *e) {
    Sites *s = user;
    if (e->op != EX_load || e->k.i != s->source) return;
    double all = 1, distinct = 1;
    uint32_t used = 0;
    bool plain = true;
    for (int i = 0; i < s->n_extent; i++) all *= (double)s->extent[i];
    for (int i = 0; i < e->n; i++) {
        int64_t coef[MAX_RANK];
        const Expr *base;
        if (!ex_affine(s->g->x, e->arg[i], s->n_extent, coef, &base)) {
            plain = false;
            continue;
        }
        int vars = 0;
        for (int k = 0; k < s->n_extent; k++) {
            if (!coef[k]) continue;
            if ((coef[k] != 1 && coef[k] != -1) || used >> k & 1 || vars++) plain = false;
            used |= 1u << k;
        }
    }
    for (int k = 0; k < s->n_extent; k++)
        if (used >> k & 1) distinct *= (double)s->extent[k];
    s->evaluations += plain && distinct > 0 ? all / distinct : all / s->elements;
}

/* How often each element of input i is evaluated by c, on average. */
static double evaluations(Graph *g, const Op *c, int i) {
    int64_t extent[MAX_RANK];
    int n = op_extents(c, extent);
    double elements = (double)value_numel(c->in[i]);
    Sites s = {g, i, extent, n, elements > 0 ? elements : 1, 0};
    const Expr *parts[MAX_RANK + 3];
    int n_parts = 0;
    parts[n_parts++] = c->body;
    if (c->guard) parts[n_parts++] = c->guard;
    for (int k = 0; c->target && k < c->out[0]->rank; k++) parts[n_parts++] = c->target[k];
    for (int k = 0; k < n_parts; k++) ex_visit(g->arena, parts[k], count_site, &s);
    if (c->post) {
        s.n_extent = c->out[0]->rank;
        ex_visit(g->arena, c->post, count_site, &s);
    }
    return s.evaluations;
}

typedef struct Loads {
    const Op *op;
    int source;
    int large;   /* of any tensor as large as op's result */
    bool across; /* of source: op's rows run across its own */
} Loads;

static void count_load(void *user, const Expr *e) {
    Loads *l = user;
    if (e->op != EX_load) return;
    const Value *out = l->op->out[0], *v = l->op->in[e->k.i];
    l->large += value_numel(v) >= value_numel(out);
    if (e->k.i == l->source && out->rank && e->n && v->shape[e->n - 1] > 1)
        l->across |= !ex_depends(e->arg[e->n - 1], out->rank - 1);
}

/* Would c, which reads its input across rows, do so with many tensors instead of m's result? */
static bool reads_many_across(Graph *g, const Op *c, int i, const Op *m) {
    Loads from = {c, i, 0, false}, of = {m, -1, 0, false};
    ex_visit(g->arena, c->body, count_load, &from);
    if (c->kind != OP_map || !from.across) return false;
    ex_visit(g->arena, m->body, count_load, &of);
    return of.large > MOST_ACROSS;
}

typedef struct Windows {
    const Op *op;
    int source;
    bool slide; /* along rows of source, as op's rows do */
} Windows;

static void look_at_window(void *user, const Expr *e) {
    Windows *w = user;
    if (e->op != EX_load || e->k.i != w->source || !e->n) return;
    const int rank = w->op->out[0]->rank;
    const uint64_t vars = ex_vars(e->arg[e->n - 1]);
    w->slide |= rank && vars >> (rank - 1) & 1 && vars >> rank;
}

typedef struct Guards {
    int var;
    bool any; /* choice by the variable */
} Guards;

static void look_at_guard(void *user, const Expr *e) {
    Guards *u = user;
    u->any |= e->op == EX_select && ex_depends(e->arg[0], u->var);
}

/* Would each step of a window along rows ask whether it is in the padding? Plain loops read rows
 * that are padded before in vectors. */
static bool asks_along_rows(Graph *g, const Op *c, int i, const Op *m) {
    if (c->kind != OP_reduce || !m->out[0]->rank) return false;
    Windows w = {c, i, false};
    Guards u = {m->out[0]->rank - 1, false};
    ex_visit(g->arena, c->body, look_at_window, &w);
    ex_visit(g->arena, m->body, look_at_guard, &u);
    return w.slide && u.any;
}

static void count_loads(void *user, const Expr *e) {
    if (e->op == EX_load) ++*(int *)user;
}

/* Does the map only put constants around a tensor? */
static bool is_padding(Graph *g, const Op *m) {
    const Expr *e = m->body;
    if (e->op != EX_select) return false;
    const bool first = e->arg[1]->op == EX_load;
    int loads = 0;
    ex_visit(g->arena, e, count_loads, &loads);
    return loads == 1 && e->arg[1 + !first]->op == EX_load && ex_is_const(e->arg[1 + first]);
}

static void look_at_choice(void *user, const Expr *e) {
    Guards *u = user;
    int64_t stride;
    if (e->op == EX_select && ex_vars(e->arg[0]) == UINT64_C(1) << u->var)
        u->any |= e->arg[1]->loads || e->arg[2]->loads;
    for (int i = 0; e->op == EX_load && i < e->n; i++)
        u->any |= ex_depends(e->arg[i], u->var) && !ex_stride(e->arg[i], u->var, &stride) &&
                  !e->arg[i]->loads;
}

/* Does c choose, from column to column, what it reads (tensors side by side, places that are
 * divided)? A loop of its own is cut there (split.c), and reads what was laid out for it (turn.c);
 * the vectors of a tile would be taken apart. */
static bool chooses_columns(Graph *g, const PassOptions *o, const Op *c) {
    Guards u = {c->out[0]->rank - 1, false};
    if (o->target->blocks || !o->target->vector_types || u.var < 0) return false;
    ex_visit(g->arena, c->body, look_at_choice, &u);
    return u.any;
}

/* Functions whose operands lie at places that are divided are computed in vectors by a loop of
 * their own; where c chooses between them and others as well, only one by one. */
static bool scatters_functions(Graph *g, const PassOptions *o, const Op *c, const Op *m) {
    return c->kind == OP_map && chooses_columns(g, o, c) && chooses_columns(g, o, m) &&
           ex_slow_cycles(g->arena, m->body) > 0;
}

static void look_at_division(void *user, const Expr *e) {
    *(bool *)user |= (e->op == EX_div || e->op == EX_rem) && !ex_is_const(e->arg[1]);
}

/* Does the map only read, at places that cost little? Those of what has varying dimensions joined,
 * or joined ones taken apart, are divided by extents of a run. */
static bool is_movement(Graph *g, const Op *m) {
    bool divides = false;
    if (m->body->op != EX_load) return false;
    ex_visit(g->arena, m->body, look_at_division, &divides);
    return !divides;
}

static bool worth_inlining(Graph *g, const PassOptions *o, const Op *c, int i, const Op *m,
                           int users) {
    if (reads_many_across(g, c, i, m) || scatters_functions(g, o, c, m)) return false;
    if (!o->target->blocks && asks_along_rows(g, c, i, m)) return false;
    /* a kernel of its own costs a device more than asking in each place of a window does */
    if (o->target->blocks && c->kind == OP_reduce && users <= MOST_PADDED && is_padding(g, m))
        return true;
    double times = evaluations(g, c, i) * users;
    const bool movement = is_movement(g, m);
    /* what a product reads over and over should be a plain load */
    if (is_product_of_two(c) && !movement) return times <= 1 || m->body->op == EX_const;
    if (times <= 1.001) return true;
    double cost = body_cost(g->arena, m->body);
    if (movement || cost <= 1) return c->kind == OP_map || times <= 64 || cost <= 0.5;
    return cost <= 4 && times <= 4 && c->kind != OP_scan;
}

/* --- into users ------------------------------------------------------------------------------- */

/* "Conv_1, Relu_2": the sources of both. */
static const char *join_src(Graph *g, const char *a, const char *b) {
    if (!a || !*a) return b;
    if (!b || !*b || !strcmp(a, b) || strlen(a) > 200) return a;
    size_t length = strlen(b);
    for (const char *at = strstr(a, b); at; at = strstr(at + 1, b))
        if ((at == a || at[-1] == ' ') && (at[length] == 0 || at[length] == ',')) return a;
    return arena_printf(g->arena, "%s, %s", a, b);
}

static void drop_use(Graph *g, Value *v) {
    if (--v->index > 0 || v->def->kind == OP_input || v->def->n_out > 1) return;
    Op *op = v->def;
    graph_unlink(g, op);
    for (int i = 0; i < op->n_in; i++) drop_use(g, op->in[i]);
}

/* Counts the uses of c's new inputs and drops those of its old ones. */
static void count_inputs(Graph *g, const Op *c, int n_old, Value **old) {
    for (int i = 0; i < c->n_in; i++) c->in[i]->index++;
    for (int i = 0; i < n_old; i++) drop_use(g, old[i]);
}

static bool try_inline(Graph *g, const PassOptions *o, Op *c, int i, int64_t *work) {
    Value *seen = c->in[i], *made = through_reshape(seen), **old = c->in;
    Op *m = made->def;
    int n_old = c->n_in;
    if (m->kind != OP_map || made->range || (c->kind == OP_scatter && i == 0)) return false;
    if (m->body->size + c->body->size > size_limit(*work)) return false;
    int users = made->index > seen->index ? made->index : seen->index;
    if (!worth_inlining(g, o, c, i, m, users) || !op_inline(g, c, i, MAX_INPUTS, work))
        return false;
    c->src = join_src(g, m->src, c->src);
    count_inputs(g, c, n_old, old);
    return true;
}

/* --- epilogues -------------------------------------------------------------------------------- */

typedef struct Epilogue {
    Exprs *x;
    int source;
    const Expr *post;
    const int *to;
} Epilogue;

static const Expr *epilogue_leaf(void *user, const Expr *e, const Expr *const *args) {
    Epilogue *u = user;
    if (e->op != EX_load) return e;
    if (e->k.i == u->source) return u->post;
    return ex_load(u->x, (DType)e->dt, u->to[e->k.i], e->n, args);
}

static bool try_epilogue(Graph *g, Op *c, int64_t *work) {
    Value *out = c->out[0];
    int best = -1;
    for (int i = 0; i < c->n_in; i++) {
        Value *seen = c->in[i], *made = through_reshape(seen);
        if ((made->def->kind != OP_reduce && made->def->kind != OP_scan) || made->index != 1 ||
            made->range || seen->index != 1 ||
            !shape_equal(seen->rank, seen->dims, out->rank, out->dims))
            continue;
        if (!reads_own(g->arena, c, i)) continue;
        /* of several, the one with the longer reduction */
        const Op *r = made->def;
        if (best < 0 ||
            shape_numel(r->n_red, r->red) > shape_numel(through_reshape(c->in[best])->def->n_red,
                                                        through_reshape(c->in[best])->def->red))
            best = i;
    }
    if (best < 0) return false;
    Value *seen = c->in[best], *made = through_reshape(seen);
    Op *r = made->def;
    if (c->body->size + r->post->size > size_limit(*work)) return false;
    Value **list = ARENA_ARRAY(g->arena, c->n_in + r->n_in, Value *);
    int *c_to_new = ARENA_ARRAY(g->arena, c->n_in, int), n = 0;
    int *r_to_new = ARENA_ARRAY(g->arena, r->n_in + 1, int);
    for (int k = 0; k < r->n_in; k++) r_to_new[k] = list_add(list, &n, r->in[k]);
    for (int k = 0; k < c->n_in; k++)
        if (k != best) c_to_new[k] = list_add(list, &n, c->in[k]);
    if (n > MAX_INPUTS && n > r->n_in) return false;
    Value **old = c->in;
    const int n_old = c->n_in;
    if (seen != made) map_before_reshape(g, c, best);
    Epilogue u = {g->x, best, renumber_loads(g->x, r->post, r->n_in, r_to_new), c_to_new};
    const Expr *post = ex_rewrite(g->x, c->body, epilogue_leaf, &u);
    *work += post->size;
    int64_t extent[MAX_RANK];
    op_extents(r, extent);
    c->kind = r->kind;
    c->post = ex_simplify(g->x, post, made->rank, extent);
    c->body = renumber_loads(g->x, r->body, r->n_in, r_to_new);
    c->combine = r->combine;
    c->n_red = r->n_red;
    c->red = r->red;
    c->axis = r->axis;
    c->exclusive = r->exclusive;
    c->reverse = r->reverse;
    c->src = join_src(g, r->src, c->src);
    c->in = arena_copy(g->arena, list, (size_t)n * sizeof *list);
    c->n_in = n;
    count_inputs(g, c, n_old, old);
    return true;
}

#define MOST_GROWTH  2        /* of constants, ... */
#define DEAR_GROWTH  4096     /* ... where an element takes long to compute, ... */
#define DEAR_ELEMENT 20       /* ... so many cycles, ... */
#define DEAR_BYTES   0x400000 /* ... and all are not more than this, for processors with caches */

/* Computes c now if it is one of constants, as steps of it were not, for what they made was larger
 * (rows of a table that are chosen, then encoded; the sines of a filter). */
static bool fold_map(Graph *g, const PassOptions *o, Op *c) {
    Value **old = c->in;
    const int n_old = c->n_in;
    if (c->kind == OP_map) {
        const bool dear = o->target->vector_types && value_bytes(c->out[0]) <= DEAR_BYTES &&
                          body_cost(g->arena, c->body) >= DEAR_ELEMENT;
        graph_fold(g, c, dear ? DEAR_GROWTH : MOST_GROWTH);
    }
    if (c->kind != OP_const) return false;
    for (int i = 0; i < n_old; i++) drop_use(g, old[i]);
    return true;
}

/* Does the map make a float of one byte, at little cost? Its users had better read the byte. */
static bool decodes(Graph *g, const Op *c) {
    return c->kind == OP_map && c->n_in == 1 && dt_store(c->in[0]->dt) == 1 &&
           dt_is_float(c->out[0]->dt) && body_cost(g->arena, c->body) <= MAX_DECODING;
}

/* A reshape of what became one itself (map_before_reshape) is one of what that reshapes. */
static void join_reshapes(Graph *g, Op *c) {
    if (c->kind != OP_reshape) return;
    Value *seen = c->in[0], *made = through_reshape(seen);
    if (seen == made) return;
    c->in = arena_copy(g->arena, &made, sizeof made);
    made->index++;
    drop_use(g, seen);
}

void pass_fuse(Graph *g, const PassOptions *o) {
    int64_t work = 0; /* nodes rewritten */
    graph_count_uses(g);
    for (Op *c = g->first; c; c = c->next) {
        if (c->sub) pass_fuse(c->sub, o);
        join_reshapes(g, c);
        if (c->kind != OP_map && c->kind != OP_reduce && c->kind != OP_scan &&
            c->kind != OP_scatter)
            continue;
        for (int i = 0; i < c->n_in;) i = try_inline(g, o, c, i, &work) ? 0 : i + 1;
        if (fold_map(g, o, c)) continue;
        if (c->kind == OP_map && !decodes(g, c) && !chooses_columns(g, o, c))
            try_epilogue(g, c, &work);
    }
    for (Op *c = g->first; c; c = c->next) { /* decoding that its users did not take */
        join_reshapes(g, c);
        if (decodes(g, c)) try_epilogue(g, c, &work);
    }
}
