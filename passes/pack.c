/* Constants in the order in which a nest reads them: what `pack` of nest.h does, and how they are
 * fetched ahead.
 *
 * A constant that the body loads at one index becomes one of rank 1 that has an element for each
 * iteration of the loops which that index depends on. Only what is small is laid out here; of
 * others it is said how (ir/constant.h), and whoever writes the weights does it.
 */
#include "ir/constant.h"
#include "passes/nest.h"

#include <string.h>

_Static_assert(NEST_MAX_LOOPS <= PACKED_LOOPS && NEST_MAX_LOOPS * 2 <= PACKED_VARS,
               "constants know all loops and variables of a nest");

typedef struct LoadIndex {
    int source;        /* input of the op */
    const Expr *index; /* its flat index; NULL: not loaded */
    bool many;         /* loaded at several indices */
} LoadIndex;

static void find_load(void *user, const Expr *e) {
    LoadIndex *u = user;
    if (e->op != EX_load || e->k.i != u->source) return;
    u->many |= u->index && u->index != e->arg[0];
    u->index = e->arg[0];
}

typedef struct Unknown {
    bool load, counter;
} Unknown;

static void find_unknown(void *user, const Expr *e) {
    Unknown *u = user;
    u->load |= e->op == EX_load;
    u->counter |= e->op == EX_ctr;
}

/* An index of a constant of which the iterations of a loop outside of the kernel read a slice each:
 * number * each + rest, where `number` knows counters alone and `rest` none. */
typedef struct Slices {
    const Expr *number, *rest;
    int64_t each;
} Slices;

/* Adds the terms of `e` to those with counters and to the others; false if one has both. */
static bool part_terms(const Nest *n, const Expr *e, const Expr **counted, const Expr **rest) {
    Unknown u = {false, false};
    ex_visit(n->p->arena, e, find_unknown, &u);
    if (u.counter && e->op == EX_add)
        return part_terms(n, e->arg[0], counted, rest) && part_terms(n, e->arg[1], counted, rest);
    const Expr **to = u.counter ? counted : rest;
    if (u.counter && ex_vars(e)) return false;
    *to = ex_add(n->x, *to, e);
    return true;
}

static bool find_slices(const Nest *n, const Value *v, const Expr *index, Slices *s) {
    const Expr *counted = ex_i(n->x, 0), *rest = counted;
    if (!part_terms(n, index, &counted, &rest)) return false;
    if (counted->op != EX_mul || !ex_is_const(counted->arg[1])) return false;
    *s = (Slices){counted->arg[0], rest, counted->arg[1]->k.i};
    return s->each > 0 && value_numel(v) % s->each == 0;
}

bool nest_can_pack(const Nest *n, int64_t source, const Expr *index) {
    Unknown u = {false, false};
    Slices slices;
    if (!value_is_const(n->op->in[source])) return false;
    ex_visit(n->p->arena, index, find_unknown, &u);
    return !u.load && (!u.counter || find_slices(n, n->op->in[source], index, &slices));
}

typedef struct Redirect {
    Exprs *x;
    int source;
    const Expr *index;
} Redirect;

static const Expr *redirect_leaf(void *user, const Expr *e, const Expr *const *args) {
    Redirect *r = user;
    if (e->op != EX_load) return e;
    return e->k.i == r->source ? ex_load(r->x, (DType)e->dt, r->source, 1, &r->index)
                               : ex_rebuild(r->x, e, args);
}

/* The loops that an index depends on, outermost first. */
typedef struct Order {
    int n, even; /* from number `even` on the index grows evenly */
    int var[NEST_MAX_LOOPS];
    int64_t extent[NEST_MAX_LOOPS], stride[NEST_MAX_LOOPS];
    int64_t total; /* iterations of all of them */
} Order;

static bool is_of_threads(const NestLoop *l) {
    return !l->reduce && is_thread(l->role);
}

/* Is it a tile's steps that warps load side by side? */
static bool is_of_warps(const Nest *n, const NestLoop *l) {
    return n->target->warp_tiles && l->role == ROLE_tile;
}

/* The loops as constants lie: as they run, but for one of streams, which is before all, or, of a
 * reduction, before the other reduction loops, those of threads, which are behind these, and one of
 * warps, which is behind all.
 */
static void lay_loops(const Nest *n, int *order) {
    bool streams = n->stream_loop >= 0;
    int last = n->n_order - 1, k = 0; /* last: position of the last reduction loop */
    while (last > 0 && !n->loop[n->order[last]].reduce) last--;
    for (int i = 0; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (streams && l->reduce >= n->loop[n->stream_loop].reduce) {
            order[k++] = n->stream_loop;
            streams = false;
        }
        if (n->order[i] != n->stream_loop && !is_of_threads(l) && !is_of_warps(n, l))
            order[k++] = n->order[i];
        for (int j = 0; i == last && j < n->n_order; j++)
            if (is_of_threads(&n->loop[n->order[j]])) order[k++] = n->order[j];
    }
    for (int i = 0; i < n->n_order; i++)
        if (is_of_warps(n, &n->loop[n->order[i]])) order[k++] = n->order[i];
}

/* False if they have too many iterations for `numel` elements of a constant. */
static bool find_order(const Nest *n, const Expr *index, int64_t numel, Order *o) {
    int order[NEST_MAX_LOOPS];
    lay_loops(n, order);
    *o = (Order){.total = 1};
    for (int i = 0; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[order[i]];
        bool even = ex_stride(index, l->var, &o->stride[o->n]);
        if ((even && o->stride[o->n] == 0) || l->extent == 1) continue;
        o->var[o->n] = l->var;
        o->extent[o->n++] = l->extent;
        if (!even) o->even = o->n;
        o->total *= l->extent;
        if (o->total > 2 * numel + 1024) return false;
    }
    return true;
}

/* Slices are what one more loop around the others goes over. */
static void add_slices(Order *o, int var, int64_t slices, int64_t each) {
    for (int i = o->n++; i > 0; i--) {
        o->var[i] = o->var[i - 1];
        o->extent[i] = o->extent[i - 1];
        o->stride[i] = o->stride[i - 1];
    }
    o->var[0] = var, o->extent[0] = slices, o->stride[0] = each;
    if (o->even) o->even++;
    o->total *= slices;
}

/* Are the elements read one after the other as they are? */
static bool in_order(const Order *o) {
    int64_t dense = 1;
    for (int i = o->n - 1; i >= 0; i--) {
        if (o->stride[i] != dense) return false;
        dense *= o->extent[i];
    }
    return o->even == 0;
}

/* Lays constant input `source` out in the order in which the loops read it. Returns the body that
 * reads the new layout. */
static const Expr *pack_input(Nest *n, const Kernel *k, int source, const Expr *body,
                              Value **args) {
    Exprs *x = n->x;
    Arena *arena = n->p->arena;
    const Value *v = n->op->in[source];
    LoadIndex u = {.source = source};
    Order o;
    ex_visit(arena, body, find_load, &u);
    if (!u.index || u.many || !nest_can_pack(n, source, u.index)) return body;
    int64_t *extent = ARENA_ARRAY(arena, k->vars.n + 1, int64_t), low, high;
    for (int i = 0; i < k->vars.n; i++) extent[i] = k->vars.items[i].extent;
    Slices s = {NULL, u.index, value_numel(v)};
    bool sliced = find_slices(n, v, u.index, &s);
    int number = k->vars.n; /* a variable of no loop */
    if (!find_order(n, s.rest, s.each, &o)) return body;
    if (sliced) {
        bool inside =
            ex_bounds(s.rest, k->vars.n, extent, &low, &high) && low >= 0 && high < s.each;
        if (!inside || o.n + 1 >= NEST_MAX_LOOPS || number >= PACKED_VARS) return body;
        add_slices(&o, number, value_numel(v) / s.each, s.each);
        if (o.total > 2 * value_numel(v) + 1024) return body;
        u.index = ex_add(x, ex_mul(x, ex_var(x, number), ex_i(x, s.each)), s.rest);
    }
    if (in_order(&o)) return body;
    const Expr *index = ex_i(x, 0);
    for (int i = 0; i < o.n; i++) {
        const Expr *at = o.var[i] == number ? s.number : ex_var(x, o.var[i]);
        index = ex_add(x, ex_mul(x, index, ex_i(x, o.extent[i])), at);
    }
    Packed packed = {.from = v,
                     .index = u.index,
                     .n = o.n,
                     .even = o.even,
                     .var = o.var,
                     .extent = o.extent,
                     .stride = o.stride};
    args[source] = constant_packed(n->p->graph, v->dt, o.total, &packed);
    Redirect r = {x, source, ex_simplify(x, index, k->vars.n, extent)};
    return ex_rewrite(x, body, redirect_leaf, &r);
}

/* The loops of an even layout, those joined that are one loop's parts. */
static int join_loops(const Packed *p, int64_t *extent, int64_t *stride) {
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const bool joins = n > 0 && stride[n - 1] == p->extent[i] * p->stride[i];
        if (!joins) extent[n++] = 1;
        extent[n - 1] *= p->extent[i];
        stride[n - 1] = p->stride[i];
    }
    return n;
}

bool nest_same_layout(const Value *a, const Value *b) {
    const Packed *p = a->packed, *q = b->packed;
    if (a == b) return true;
    if (!p && !q && a->data && b->data) /* small: laid out at once */
        return a->dt == b->dt && value_bytes(a) == value_bytes(b) &&
               !memcmp(a->data, b->data, value_bytes(a));
    if (!p || !q || p->from != q->from) return false;
    if (!p->even && !q->even) { /* both of one operator, which begin at the same element */
        int64_t extent[2][NEST_MAX_LOOPS], stride[2][NEST_MAX_LOOPS];
        const int n = join_loops(p, extent[0], stride[0]);
        const size_t bytes = (size_t)n * sizeof(int64_t);
        return join_loops(q, extent[1], stride[1]) == n && !memcmp(extent[0], extent[1], bytes) &&
               !memcmp(stride[0], stride[1], bytes);
    }
    if (p->n != q->n || p->even != q->even || p->index != q->index) return false;
    for (int i = 0; i < p->n; i++)
        if (p->var[i] != q->var[i] || p->extent[i] != q->extent[i] || p->stride[i] != q->stride[i])
            return false;
    return true;
}

const Expr *nest_pack_constants(Nest *n, const Kernel *k, const Expr *body, Value **args) {
    for (int i = 0; i < n->op->n_in; i++) {
        LoadIndex post = {.source = i}; /* what post reads too must keep its layout */
        if (n->op->post) ex_visit(n->p->arena, n->op->post, find_load, &post);
        if (value_is_const(n->op->in[i]) && !post.index) body = pack_input(n, k, i, body, args);
    }
    return body;
}

/* --- fetching ahead --------------------------------------------------------------------------- */

/* A panel is what the tiles of one iteration of the loops around them read of a constant. Where
 * loops in between read the same panel again and again, the first time waits for memory and the
 * others leave memory idle; therefore each iteration of the innermost reduction loop around the
 * tile brings a bit of the next panel into the L2 cache, and likewise the rows of the next tile.
 * And where the L1 cache does not keep the panel, each iteration brings what a few later ones read
 * into it. */
#define FEWEST_TIMES 2  /* that a panel is read */
#define MOST_STEPS   8  /* for an element of it: the wait is a small part of so much work */
#define MOST_LINES   2  /* of it to fetch in a step of an iteration (ROLE_repeat), */
#define MOST_OF_UNIT 16 /* or in one of a matrix unit, whose tiles take so many lines each */
#define MOST_NEAR    8  /* the same, into the L1 cache, */
#define STEPS_AHEAD  8  /* as many steps before they are read, */
#define FEWEST_ROWS  3  /* by so many rows; fewer leave it to the processor's own prefetcher, */
#define OFTEN        4  /* unless weights are so many times what the shared cache keeps */

typedef struct Ahead {
    Nest *n;
    Kernel *k;
    Value **args;
    const Expr *const *count; /* by loop number: iterations that a run does; NULL: all */
    int first, tile;          /* positions in the order: of the first reduction loop, of the tile */
    int64_t repeats;          /* steps in an iteration (ROLE_repeat) */
    bool unit;                /* the tile is one of a matrix unit */
    Stmt *list;
} Ahead;

typedef struct Panel {
    int64_t size;  /* elements */
    int again;     /* position in the order of the first loop that reads it again */
    int64_t steps; /* iterations of the loops from there to the tile, */
    bool varies;   /* fewer in some runs */
} Panel;

/* How a load goes through the loops from a position of the order on. */
typedef struct Walk {
    int64_t inside; /* elements that it visits, */
    int64_t span;   /* and how far apart they may be */
    int64_t rows;   /* of the tile, that read the same */
    int64_t steps;  /* iterations of the loops around the tile; */
    int64_t stride; /* along the innermost of these */
} Walk;

/* False if it goes backwards, or unevenly. */
static bool walk(const Ahead *a, const Expr *load, int from, Walk *w) {
    const Nest *n = a->n;
    int64_t stride;
    *w = (Walk){.inside = 1, .rows = 1, .steps = 1};
    for (int i = from; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (!ex_stride(load->arg[0], l->var, &stride) || stride < 0) return false;
        if (stride) w->inside *= l->extent;
        if (!stride && i >= a->tile) w->rows *= l->extent;
        if (stride * l->extent > w->span) w->span = stride * l->extent;
        if (i < a->tile) w->steps *= l->extent;
        if (i == a->tile - 1) w->stride = stride;
    }
    return true;
}

/* False if it is not worth it: a small constant stays in the cache from run to run, and of the next
 * panel nothing would stay if one took more than two thirds of the cache. */
static bool find_panel(const Ahead *a, const Expr *load, Panel *panel) {
    const Nest *n = a->n;
    const Expr *index = load->arg[0];
    const int64_t size = (int64_t)dt_store((DType)load->dt), l2 = n->target->l2_bytes;
    const int64_t numel = value_numel(a->args[load->k.i]);
    int64_t times = 1;
    Walk w;
    *panel = (Panel){.again = a->first};
    while (panel->again > 0) {
        const NestLoop *l = &n->loop[n->order[panel->again - 1]];
        if (!ex_stride(index, l->var, &panel->size)) return false;
        if (panel->size) break;
        times *= l->extent;
        panel->again--;
    }
    if (!walk(a, load, panel->again, &w)) return false;
    panel->steps = w.steps;
    for (int i = panel->again; i < a->tile; i++) panel->varies |= a->count[n->order[i]] != NULL;
    const bool dense = panel->size > 0 && w.inside == panel->size;
    return dense && times >= FEWEST_TIMES &&
           (panel->steps <= MOST_STEPS * panel->size || panel->varies) && numel * size >= l2 / 4 &&
           3 * panel->size * size <= 2 * l2 && numel + 2 * panel->size <= INT32_MAX &&
           panel->steps <= INT32_MAX / 2;
}

static void add_prefetch(Ahead *a, const Expr *load, const Expr *at, bool near) {
    Exprs *x = a->n->x;
    int64_t *extent = ARENA_ARRAY(a->n->p->arena, a->k->vars.n + 1, int64_t);
    for (int i = 0; i < a->k->vars.n; i++) extent[i] = a->k->vars.items[i].extent;
    Stmt *s = stmt_new(a->n->p, ST_prefetch);
    s->buffer = (int)load->k.i;
    s->index = ARENA_ARRAY(a->n->p->arena, 1, const Expr *);
    s->index[0] = ex_simplify(x, at, a->k->vars.n, extent);
    s->near = near;
    stmt_append(&a->list, s);
}

/* Bytes of constants, of graphs inside of others too. */
static int64_t constant_bytes(const Graph *g) {
    int64_t bytes = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind == OP_const) bytes += (int64_t)value_bytes(op->out[0]);
        if (op->sub) bytes += constant_bytes(op->sub);
    }
    return bytes;
}

/* Is a stream of columns that so few rows read better left alone? It is where a cache has them:
 * hints cost as much as loads. From memory they come sooner with hints. */
static bool leaves_alone(const Nest *n, int64_t rows) {
    return rows < FEWEST_ROWS && constant_bytes(n->p->graph) < OFTEN * n->target->l3_bytes;
}

/* What is read STEPS_AHEAD later, where the L1 cache does not keep it from the last
 * time; elements of the constant that an iteration reads follow those of the one before. */
static void fetch_columns(Ahead *a, const Expr *load) {
    const Nest *n = a->n;
    Exprs *x = n->x;
    const int64_t size = (int64_t)dt_store((DType)load->dt), line = LINE_BYTES / size;
    Walk w;
    /* several streams need no hints, nor do iterations of several steps: on a Zen 3, beside a
     * neighbour, hints took up to 5 % of products of 24 to 1024 rows */
    if (n->stream_loop >= 0 || a->repeats > 1) return;
    if (!walk(a, load, a->first, &w) || w.stride < line) return;
    if (w.stride > MOST_NEAR * line) return;
    if (w.inside * size <= n->target->l1_bytes / 2 || leaves_alone(n, w.rows)) return;
    if (value_numel(a->args[load->k.i]) + (STEPS_AHEAD + 1) * w.stride > INT32_MAX) return;
    const Expr **zero = ARENA_ARRAY(n->p->arena, a->k->vars.n + 1, const Expr *);
    for (int i = 0; i < a->k->vars.n; i++) zero[i] = ex_var(x, i);
    for (int i = a->tile; i < n->n_order; i++) zero[n->loop[n->order[i]].var] = ex_i(x, 0);
    const Expr *at = ex_subst_vars(x, load->arg[0], a->k->vars.n, zero);
    for (int64_t i = 0; i < w.stride; i += line)
        add_prefetch(a, load, ex_add(x, at, ex_i(x, STEPS_AHEAD * w.stride + i)), true);
}

/* Brings the panel behind the one that `load` reads, a bit in each step. Of a run with fewer steps
 * each brings more, but not more than as many hints can. */
static void fetch_panel(Ahead *a, const Expr *load, const Panel *panel) {
    Exprs *x = a->n->x;
    const int64_t line = LINE_BYTES / (int64_t)dt_store((DType)load->dt);
    int64_t least = (panel->size + panel->steps - 1) / panel->steps;
    if (panel->varies && least < MOST_LINES * a->repeats * line)
        least = MOST_LINES * a->repeats * line;
    if (least > (a->unit ? MOST_OF_UNIT : MOST_LINES * a->repeats) * line) return;
    const Expr **to = ARENA_ARRAY(a->n->p->arena, a->k->vars.n + 1, const Expr *);
    const Expr *step = ex_i(x, 0), *steps = ex_i(x, 1);
    for (int i = 0; i < a->k->vars.n; i++) to[i] = ex_var(x, i);
    for (int i = panel->again; i < a->n->n_order; i++) {
        const NestLoop *l = &a->n->loop[a->n->order[i]];
        const Expr *count = a->count[a->n->order[i]];
        if (!count) count = ex_i(x, l->extent);
        to[l->var] = ex_i(x, 0);
        if (i >= a->tile) continue;
        step = ex_add(x, ex_mul(x, step, count), ex_var(x, l->var));
        steps = ex_mul(x, steps, count);
    }
    steps = ex_bin(x, EX_max, steps, ex_i(x, 1));
    const Expr *each = ex_div(x, ex_add(x, steps, ex_i(x, panel->size - 1)), steps);
    each = ex_bin(x, EX_min, each, ex_i(x, (least + line - 1) / line * line));
    const Expr *ahead = ex_mul(x, step, each);
    if (panel->steps > panel->size) ahead = ex_bin(x, EX_min, ahead, ex_i(x, panel->size));
    const Expr *next = ex_subst_vars(x, load->arg[0], a->k->vars.n, to);
    next = ex_add(x, ex_add(x, next, ex_i(x, panel->size)), ahead);
    for (int64_t i = 0; i < least; i += line)
        add_prefetch(a, load, ex_add(x, next, ex_i(x, i)), false);
}

/* Rows that a tile reads, if they lie side by side and are more than stay in the L2 cache: the next
 * tile's follow them. */
static bool find_rows(const Ahead *a, const Expr *load, Panel *panel) {
    const int64_t size = (int64_t)dt_store((DType)load->dt);
    const int64_t numel = value_numel(a->args[load->k.i]);
    Walk w;
    if (!walk(a, load, a->first, &w)) return false;
    *panel = (Panel){.size = w.span, .again = a->first, .steps = w.steps};
    return w.inside >= w.span - w.span / 8 && numel * size > a->n->target->l2_bytes / 2 &&
           w.steps <= w.span && numel + 2 * w.span <= INT32_MAX;
}

static void fetch_operand(void *user, const Expr *e) {
    Ahead *a = user;
    Panel panel;
    if (e->op != EX_load || e->k.i >= a->n->op->n_in) return;
    if (!nest_can_pack(a->n, e->k.i, e->arg[0])) {
        if (find_rows(a, e, &panel)) fetch_panel(a, e, &panel);
        return;
    }
    fetch_columns(a, e);
    if (find_panel(a, e, &panel)) fetch_panel(a, e, &panel);
}

Stmt *nest_fetch_ahead(Nest *n, Kernel *k, const Expr *body, Value **args, const Expr *const *count,
                       int first, int tile, bool unit) {
    Ahead a = {.n = n, .k = k, .args = args, .count = count, .first = first, .tile = tile};
    const NestLoop *l = tile < n->n_order ? &n->loop[n->order[tile]] : NULL;
    a.repeats = l && l->role == ROLE_repeat ? l->extent : 1;
    a.unit = unit;
    ex_visit(n->p->arena, body, fetch_operand, &a);
    return a.list;
}

typedef struct Results {
    Ahead a;
    const Part *part;
    int64_t least; /* bytes of tensors that are small */
} Results;

/* The lines of one tensor, at the flat index `at` of the part's elements. */
static void fetch_lines(Results *u, int buffer, DType dt, const Expr *at) {
    const Part *part = u->part;
    Exprs *x = u->a.n->x;
    const int64_t line = LINE_BYTES / (int64_t)dt_store(dt);
    const Expr **to = ARENA_ARRAY(u->a.n->p->arena, u->a.k->vars.n + 1, const Expr *);
    const Expr *load = ex_load(x, dt, buffer, 1, &at);
    int64_t step;
    if (!ex_stride(at, part->column, &step) || step != 1) return;
    if (at->loads) return; /* a hint is not worth loads */
    if (part->part >= 0) {
        if (ex_stride(at, part->part, &step) && step == 0) return;
        to[part->part] = ex_add(x, ex_var(x, part->part), ex_i(x, part->parts));
    }
    for (int64_t row = 0; row < part->rows; row++)
        for (int64_t column = 0; column < part->columns; column += line) {
            to[part->row] = ex_i(x, row);
            to[part->column] = ex_i(x, column);
            add_prefetch(&u->a, load, ex_subst_vars(x, at, u->a.k->vars.n, to), true);
        }
}

static void fetch_read(void *user, const Expr *e) {
    Results *u = user;
    const bool input = e->op == EX_load && e->n == 1 && e->k.i < u->a.n->op->n_in;
    if (!input || value_is_const(u->a.args[e->k.i])) return;
    if (value_bytes(u->a.args[e->k.i]) > (size_t)u->least)
        fetch_lines(u, (int)e->k.i, (DType)e->dt, e->arg[0]);
}

Stmt *nest_fetch_results(Nest *n, Kernel *k, Value **args, const Part *part) {
    const Op *op = n->op;
    Results u = {{.n = n, .k = k, .args = args}, part, 0};
    int64_t bytes = (int64_t)value_bytes(op->out[0]);
    for (int i = 0; i < op->n_in; i++) bytes += (int64_t)value_bytes(op->in[i]);
    if (part->store->kind != ST_store || bytes <= n->target->l2_bytes / 2) return NULL;
    fetch_lines(&u, part->store->buffer, op->out[0]->dt, part->store->index[0]);
    ex_visit(n->p->arena, part->store->value, fetch_read, &u);
    return u.a.list;
}

Stmt *nest_fetch_residual(Nest *n, Kernel *k, Value **args, const Part *tile) {
    Results u = {{.n = n, .k = k, .args = args}, tile, n->target->l1_bytes};
    if (tile->store->kind == ST_store) ex_visit(n->p->arena, tile->store->value, fetch_read, &u);
    return u.a.list;
}
