/* Schedule steps on a loop nest; see nest.h. The kernel is built in nest_build.c. */
#include "passes/nest.h"

#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/relieve.h"

#include <stdlib.h>
#include <string.h>

int nest_find(const Nest *n, const char *name) {
    for (int i = 0; i < n->n_loops; i++)
        if (!n->loop[i].retired && !strcmp(n->loop[i].name, name)) return i;
    return -1;
}

static int new_loop(Nest *n, const char *name, int64_t extent, bool reduce) {
    n->loop[n->n_loops] =
        (NestLoop){.name = name, .extent = extent, .least = extent, .reduce = reduce};
    return n->n_loops++;
}

/* Loop `a` becomes the expression `to` everywhere. */
static void substitute(Nest *n, int a, const Expr *to) {
    const Expr *map[NEST_MAX_LOOPS] = {0};
    map[a] = to;
    for (int i = 0; i < n->n_coords; i++)
        n->coord[i] = ex_subst_vars(n->x, n->coord[i], NEST_MAX_LOOPS, map);
    for (int i = 0; i < 2; i++)
        if (n->guard[i]) n->guard[i] = ex_subst_vars(n->x, n->guard[i], NEST_MAX_LOOPS, map);
    if (n->reach) n->reach = ex_subst_vars(n->x, n->reach, NEST_MAX_LOOPS, map);
    n->loop[a].retired = true;
}

/* In the order, `a` gives way to the given loops. */
static void replace_in_order(Nest *n, int a, int count, const int *loops) {
    int order[NEST_MAX_LOOPS], m = 0;
    for (int i = 0; i < n->n_order; i++) {
        if (n->order[i] != a) {
            order[m++] = n->order[i];
            continue;
        }
        for (int k = 0; k < count; k++) order[m++] = loops[k];
    }
    memcpy(n->order, order, (size_t)m * sizeof *order);
    n->n_order = m;
}

/* Is it `var < extent`, or several of that, with extents that are the same in the whole run? */
static bool only_limits(const Expr *cond) {
    if (cond->op == EX_and) return only_limits(cond->arg[0]) && only_limits(cond->arg[1]);
    return cond->op == EX_lt && cond->arg[0]->op == EX_var && !cond->arg[1]->vars;
}

/* Updates of a scatter that a condition on a coordinate alone allows. */
static void take_update_limits(Nest *n, const Expr *guard) {
    if (guard->op == EX_and)
        for (int i = 0; i < 2; i++) take_update_limits(n, guard->arg[i]);
    else if (only_limits(guard) && !n->limit[guard->arg[0]->k.i])
        nest_limit(n, (int)guard->arg[0]->k.i, guard->arg[1], 0);
}

/* `e` where all parts of the condition hold. */
static const Expr *where_holds(Exprs *x, const Expr *e, const Expr *cond) {
    for (int i = 0; i < 2 && cond->op == EX_and; i++) e = where_holds(x, e, cond->arg[i]);
    return cond->op == EX_and ? e : ex_replace(x, e, cond, ex_int(x, DT_bool, 1));
}

static bool limits(const Expr *guard, int a) {
    if (guard->op == EX_and) return limits(guard->arg[0], a) || limits(guard->arg[1], a);
    return guard->op == EX_lt && guard->arg[0]->op == EX_var && guard->arg[0]->k.i == a &&
           !guard->arg[1]->vars;
}

bool nest_limited(const Nest *n, int a) {
    return n->guard[1] && limits(n->guard[1], a);
}

/* A reduction that counts no element beyond an extent which varies: the condition goes to the
 * loops. */
static void take_limits(Nest *n) {
    const Op *op = n->op;
    const Expr *condition;
    if (op->kind == OP_scatter && op->guard) take_update_limits(n, op->guard);
    if (op->kind != OP_reduce) return;
    const Expr *term = reduce_term(n->x, op, &condition);
    if (!condition || !only_limits(condition)) return;
    Op *own = arena_copy(n->p->arena, op, sizeof *op);
    own->body = where_holds(n->x, term, condition);
    n->op = own;
    n->guard[1] = nest_flatten_loads(n->x, condition, op);
}

void nest_lay_dense(Nest *n, const Value *flat, const Expr *const *lies) {
    n->flat = flat;
    for (int i = 0; i < flat->rank; i++) n->lies[i] = nest_flatten_loads(n->x, lies[i], n->op);
}

void nest_limit(Nest *n, int axis, const Expr *extent, int64_t least) {
    n->limit[axis] = nest_flatten_loads(n->x, extent, n->op);
    n->loop[axis].least = least;
}

void nest_reach(Nest *n, const Expr *condition) {
    n->reach = n->given_reach = nest_flatten_loads(n->x, condition, n->op);
}

void nest_begin(Nest *n, Program *p, const Op *op, const Target *t) {
    *n = (Nest){.p = p, .x = p->x, .op = op, .given = op, .target = t, .steps = text_new(p->arena)};
    int64_t extent[MAX_RANK];
    n->n_coords = op_extents(op, extent);
    int n_spatial = n->n_coords - (op->kind == OP_reduce ? op->n_red : 0);
    for (int i = 0; i < n->n_coords; i++) {
        bool reduce = i >= n_spatial;
        n->loop[i].name =
            arena_printf(p->arena, reduce ? "r%d" : "i%d", reduce ? i - n_spatial : i);
        n->loop[i].extent = n->loop[i].least = extent[i];
        n->loop[i].reduce = reduce;
        n->coord[i] = ex_var(n->x, i);
        n->order[n->n_order++] = i;
    }
    n->n_loops = n->n_coords;
    n->stage_loop[0] = n->stage_loop[1] = n->lane_loop = n->stream_loop = n->partial_loop = -1;
    n->later_loop = -1;
    n->singles.loop = -1;
    n->rest_loop = -1;
    take_limits(n);
    if (op->kind != OP_scan) return;
    /* the scanned position is the last coordinate, innermost; the axis follows it */
    int last = n->n_coords - 1;
    n->loop[last].reduce = true;
    n->loop[op->axis].retired = true;
    replace_in_order(n, op->axis, 0, NULL);
    if (op->reverse)
        n->coord[last] = ex_sub(n->x, ex_i(n->x, extent[last] - 1), ex_var(n->x, last));
    n->coord[op->axis] = n->coord[last];
}

void nest_fix(Nest *n, int a, const Expr *value) {
    substitute(n, a, value);
    replace_in_order(n, a, 0, NULL);
}

int nest_fuse(Nest *n, int a, int b) {
    Exprs *x = n->x;
    int64_t eb = n->loop[b].extent;
    const char *name = arena_printf(n->p->arena, "%s%s", n->loop[a].name, n->loop[b].name);
    text_addf(&n->steps, "fuse %s %s; ", n->loop[a].name, n->loop[b].name);
    int c = new_loop(n, name, n->loop[a].extent * eb, n->loop[a].reduce);
    n->loop[c].least = n->loop[a].least * n->loop[b].least;
    substitute(n, a, ex_div(x, ex_var(x, c), ex_i(x, eb > 0 ? eb : 1)));
    substitute(n, b, ex_bin(x, EX_rem, ex_var(x, c), ex_i(x, eb > 0 ? eb : 1)));
    replace_in_order(n, a, 1, &c);
    replace_in_order(n, b, 0, NULL);
    return c;
}

static void split_names(Nest *n, int a, int64_t outer_extent, int64_t factor, int *outer,
                        int *inner) {
    *outer = new_loop(n, arena_printf(n->p->arena, "%so", n->loop[a].name), outer_extent,
                      n->loop[a].reduce);
    *inner =
        new_loop(n, arena_printf(n->p->arena, "%si", n->loop[a].name), factor, n->loop[a].reduce);
    if (n->loop[a].least < n->loop[a].extent) n->loop[*outer].least = n->loop[a].least / factor;
}

void nest_split(Nest *n, int a, int64_t factor, int *outer, int *inner) {
    Exprs *x = n->x;
    int64_t extent = n->loop[a].extent;
    text_addf(&n->steps, "split %s %lld; ", n->loop[a].name, (long long)factor);
    split_names(n, a, (extent + factor - 1) / factor, factor, outer, inner);
    const Expr *at = ex_add(x, ex_mul(x, ex_var(x, *outer), ex_i(x, factor)), ex_var(x, *inner));
    substitute(n, a, at);
    if (extent % factor) {
        const Expr **guard = &n->guard[n->loop[a].reduce];
        const Expr *inside = ex_lt(x, at, ex_i(x, extent));
        *guard = *guard ? ex_and(x, *guard, inside) : inside;
        n->cut = true;
    }
    int both[2] = {*outer, *inner};
    replace_in_order(n, a, 2, both);
}

/* Steps of `factor`, of which the last may begin before the one before it ends. */
static void slide(Nest *n, int a, int64_t factor, int *outer, int *inner) {
    Exprs *x = n->x;
    int64_t extent = n->loop[a].extent;
    split_names(n, a, (extent + factor - 1) / factor, factor, outer, inner);
    const Expr *begin = ex_mul(x, ex_var(x, *outer), ex_i(x, factor));
    if (extent % factor) begin = ex_bin(x, EX_min, begin, ex_i(x, extent - factor));
    substitute(n, a, ex_add(x, begin, ex_var(x, *inner)));
    int both[2] = {*outer, *inner};
    replace_in_order(n, a, 2, both);
}

void nest_slide(Nest *n, int a, int64_t factor, int *outer, int *inner) {
    text_addf(&n->steps, "slide %s %lld; ", n->loop[a].name, (long long)factor);
    slide(n, a, factor, outer, inner);
}

void nest_dot(Nest *n, int a, int64_t lanes, int *outer, int *inner) {
    Exprs *x = n->x;
    int64_t extent = n->loop[a].extent;
    bool repeats = n->op->combine == COMBINE_max || n->op->combine == COMBINE_min;
    if (nest_limited(n, a)) repeats = false;
    text_addf(&n->steps, "dot %s %lld; ", n->loop[a].name, (long long)lanes);
    if (repeats && extent >= lanes) { /* a largest element may be met twice */
        slide(n, a, lanes, outer, inner);
    } else {
        split_names(n, a, extent / lanes, lanes, outer, inner);
        const Expr *begin = ex_mul(x, ex_var(x, *outer), ex_i(x, lanes));
        substitute(n, a, ex_add(x, begin, ex_var(x, *inner)));
        int both[2] = {*outer, *inner};
        replace_in_order(n, a, 2, both);
        n->lane_tail = extent % lanes;
    }
    n->loop[*inner].role = ROLE_vector;
    n->lane_outer = *outer;
    n->lane_loop = *inner;
}

void nest_order(Nest *n, int count, const int *loops) {
    int order[NEST_MAX_LOOPS], m = 0;
    for (int i = 0; i < n->n_order; i++) {
        bool named = false;
        for (int k = 0; k < count; k++) named |= loops[k] == n->order[i];
        if (!named) order[m++] = n->order[i];
    }
    text_add(&n->steps, "order");
    for (int k = 0; k < count; k++) {
        order[m++] = loops[k];
        text_addf(&n->steps, " %s", n->loop[loops[k]].name);
    }
    text_add(&n->steps, "; ");
    memcpy(n->order, order, (size_t)m * sizeof *order);
}

void nest_bind(Nest *n, int a, Role role) {
    n->loop[a].role = role;
    text_addf(&n->steps, "bind %s %s; ", n->loop[a].name, role_name(role));
}

void nest_stage(Nest *n, int factor, int at) {
    n->stage_loop[factor] = at;
    text_addf(&n->steps, "stage %d %s; ", factor, n->loop[at].name);
}

void nest_pack(Nest *n) {
    n->pack = true;
    text_add(&n->steps, "pack; ");
}

void nest_stream(Nest *n, int a) {
    n->stream_loop = a;
    text_addf(&n->steps, "stream %s; ", n->loop[a].name);
}

void nest_matrices(Nest *n) {
    n->matrices = true;
    text_add(&n->steps, "matrices; ");
}

void nest_partial(Nest *n, int a) {
    n->partial_loop = a;
    text_addf(&n->steps, "partial %s; ", n->loop[a].name);
}

void nest_later(Nest *n, int a, int64_t rows) {
    n->later_loop = a;
    n->later = rows;
    text_addf(&n->steps, "later %s %lld; ", n->loop[a].name, (long long)rows);
}

void nest_single(Nest *n, Singles s) {
    n->singles = s;
    text_addf(&n->steps, "single %s %lld", n->loop[s.loop].name, (long long)s.most);
    if (s.rows >= 0) text_addf(&n->steps, " rows %s", n->loop[s.rows].name);
    if (s.columns >= 0)
        text_addf(&n->steps, " columns %s %lld", n->loop[s.columns].name, (long long)s.width);
    if (s.streams >= 0)
        text_addf(&n->steps, " streams %s %lld", n->loop[s.streams].name, (long long)s.parts);
    text_add(&n->steps, "; ");
}

void nest_rest(Nest *n, int a, int64_t rows) {
    n->rest_loop = a;
    n->rest = rows;
    text_addf(&n->steps, "rest %s %lld; ", n->loop[a].name, (long long)rows);
}

bool nest_can_rest(const Nest *n, int a) {
    const int d = nest_limited_coordinate(n, a);
    int64_t step;
    return d >= 0 && ex_stride(n->coord[d], a, &step) && step == 1;
}

int nest_limited_coordinate(const Nest *n, int a) {
    for (int d = 0; d < n->n_coords; d++)
        if (n->limit[d] && ex_depends(n->coord[d], a)) return d;
    return -1;
}

void nest_share(Nest *n, int count) {
    n->share = count;
    text_addf(&n->steps, "share %d; ", count);
}

/* --- reading steps back ----------------------------------------------------------------------- */

#define MAX_WORDS 40

/* Is it named by another part of the nest, so that no step may take it apart? */
static bool is_held(const Nest *n, int a) {
    return a == n->stage_loop[0] || a == n->stage_loop[1] || a == n->stream_loop ||
           a == n->partial_loop || a == n->later_loop || a == n->rest_loop ||
           (n->singles.loop >= 0 && (a == n->singles.loop || a == n->singles.rows ||
                                     a == n->singles.columns || a == n->singles.streams)) ||
           (n->lane_loop >= 0 && (a == n->lane_loop || a == n->lane_outer));
}

/* Is it what a split made of a loop, its iterations' part? */
static bool is_inner(const Nest *n, int a) {
    const char *own = n->loop[a].name, *outer = a ? n->loop[a - 1].name : "";
    const size_t last = strlen(own) - 1;
    return own[last] == 'i' && strlen(outer) == last + 1 && !strncmp(own, outer, last) &&
           outer[last] == 'o';
}

/* ... or the part around that? */
static bool is_outer(const Nest *n, int a) {
    return a + 1 < n->n_loops && is_inner(n, a + 1);
}

/* "rest TILE ROWS" */
static bool replay_rest(Nest *n, int count, char **w, int tile) {
    const int64_t rows = count == 3 ? strtoll(w[2], NULL, 10) : 0;
    if (n->op->kind != OP_reduce || n->rest_loop >= 0 || tile < 0 || rows < 1 ||
        rows >= n->loop[tile].extent || n->loop[tile].role != ROLE_unroll || !is_inner(n, tile) ||
        !nest_can_rest(n, tile))
        return false;
    nest_rest(n, tile, rows);
    return true;
}

/* "single TILE MOST [rows LOOP] [columns LOOP WIDTH]", or "single TILE MOST streams LOOP PARTS";
 * loops: those that words name. */
static bool replay_single(Nest *n, int count, char **w, const int *loops) {
    Singles s = {.rows = -1, .columns = -1, .streams = -1};
    int at = 3;
    if (count < at || n->op->kind != OP_reduce || n->singles.loop >= 0) return false;
    s.loop = loops[1];
    s.most = strtoll(w[2], NULL, 10);
    if (s.loop < 0 || s.most < 1 || n->loop[s.loop].role != ROLE_unroll || !is_inner(n, s.loop) ||
        nest_limited_coordinate(n, s.loop) < 0)
        return false;
    if (at + 1 < count && !strcmp(w[at], "rows")) {
        s.rows = loops[at + 1];
        if (s.rows < 0 || is_held(n, s.rows) || n->loop[s.rows].reduce ||
            n->loop[s.rows].role != ROLE_serial)
            return false;
        at += 2;
    }
    if (at + 2 < count && !strcmp(w[at], "columns")) {
        s.columns = loops[at + 1];
        s.width = strtoll(w[at + 2], NULL, 10);
        if (s.columns < 0 || n->loop[s.columns].role != ROLE_vector || s.width < 1 ||
            !is_inner(n, s.columns))
            return false;
        at += 3;
    }
    if (at + 2 < count && !strcmp(w[at], "streams")) {
        s.streams = loops[at + 1];
        s.parts = strtoll(w[at + 2], NULL, 10);
        if (s.streams < 0 || s.rows >= 0 || s.columns >= 0 || is_held(n, s.streams) ||
            !is_outer(n, s.streams) || s.parts < 2 || n->loop[s.streams].reduce ||
            n->loop[s.streams].role != ROLE_serial || n->loop[s.streams].extent % s.parts)
            return false;
        at += 3;
    }
    if (at != count) return false;
    nest_single(n, s);
    return true;
}

/* One step, its words in w. */
static bool replay_step(Nest *n, int count, char **w) {
    int outer, inner, loops[MAX_WORDS];
    bool staging = !strcmp(w[0], "stage");
    if (n->n_loops > NEST_MAX_LOOPS - 2) return false;
    for (int i = 1; i < count; i++) loops[i] = nest_find(n, w[i]);
    if (!strcmp(w[0], "pack") && count == 1) {
        nest_pack(n);
        return true;
    }
    if (!strcmp(w[0], "matrices") && count == 1) {
        nest_matrices(n);
        return true;
    }
    if (!strcmp(w[0], "stream") && count == 2) {
        if (loops[1] < 0 || n->stream_loop >= 0) return false;
        nest_stream(n, loops[1]);
        return true;
    }
    if (!strcmp(w[0], "partial") && count == 2) {
        if (loops[1] < 0 || !n->loop[loops[1]].reduce || n->partial_loop >= 0) return false;
        nest_partial(n, loops[1]);
        return true;
    }
    if (!strcmp(w[0], "single")) return replay_single(n, count, w, loops);
    if (!strcmp(w[0], "rest")) return replay_rest(n, count, w, loops[1]);
    if (!strcmp(w[0], "share") && count == 2) {
        int shared = atoi(w[1]);
        for (int i = 0; i < shared && i < n->n_order; i++)
            if (n->loop[n->order[i]].reduce || n->loop[n->order[i]].role != ROLE_serial)
                return false;
        if (shared < 1 || shared > n->n_order) return false;
        nest_share(n, shared);
        return true;
    }
    if (!strcmp(w[0], "order") && count > 1) {
        for (int i = 1; i < count; i++)
            for (int k = i; k < count; k++)
                if (loops[i] < 0 || (k > i && loops[k] == loops[i])) return false;
        nest_order(n, count - 1, loops + 1);
        return true;
    }
    if (count != 3 || loops[staging ? 2 : 1] < 0) return false;
    if (staging) {
        int factor = atoi(w[1]);
        if (factor != 0 && factor != 1) return false;
        nest_stage(n, factor, loops[2]);
        return true;
    }
    if (!strcmp(w[0], "fuse")) {
        if (loops[2] < 0 || loops[1] == loops[2] || is_held(n, loops[1]) || is_held(n, loops[2]) ||
            n->loop[loops[1]].reduce != n->loop[loops[2]].reduce)
            return false;
        nest_fuse(n, loops[1], loops[2]);
        return true;
    }
    if (!strcmp(w[0], "bind")) {
        for (int r = 0; r < ROLE_count; r++)
            if (!strcmp(w[2], role_name((Role)r))) {
                nest_bind(n, loops[1], (Role)r);
                return true;
            }
        return false;
    }
    int64_t factor = strtoll(w[2], NULL, 10);
    if (factor <= 0 || factor > INT32_MAX || is_held(n, loops[1])) return false;
    if (!strcmp(w[0], "later")) {
        const NestLoop *l = &n->loop[loops[1]];
        if (l->reduce || l->role != ROLE_unroll || l->extent % factor || n->later_loop >= 0)
            return false;
        nest_later(n, loops[1], factor);
    } else if (!strcmp(w[0], "dot")) {
        bool power = (factor & (factor - 1)) == 0; /* lanes are halved in the end */
        if (!n->loop[loops[1]].reduce || n->lane_loop >= 0 || !power ||
            factor > n->loop[loops[1]].extent)
            return false;
        nest_dot(n, loops[1], factor, &outer, &inner);
    } else if (!strcmp(w[0], "split"))
        nest_split(n, loops[1], factor, &outer, &inner);
    else if (!strcmp(w[0], "slide") && !n->loop[loops[1]].reduce &&
             factor <= n->loop[loops[1]].extent)
        nest_slide(n, loops[1], factor, &outer, &inner);
    else
        return false;
    return true;
}

bool nest_replay(Nest *n, const char *steps) {
    char *copy = arena_strdup(n->p->arena, steps), *rest = copy;
    for (char *step; (step = strtok_r(rest, ";", &rest));) {
        char *words[MAX_WORDS], *more = step;
        int count = 0;
        for (char *w; (w = strtok_r(more, " \t\n", &more)) && count < MAX_WORDS;)
            words[count++] = w;
        if (count && !replay_step(n, count, words)) {
            diag_error(n->p->diag, E5002, "schedule step '%s ...' does not fit the loops",
                       words[0]);
            return false;
        }
    }
    return true;
}

/* Does the step make the loop, of another one's split: the inner part ("i"), or the outer ("o")? */
static bool makes(const Nest *n, char **w, int loop, const char *part) {
    const char *made = loop >= 0 ? n->loop[loop].name : "";
    const size_t length = strlen(w[1]);
    return (!strcmp(w[0], "split") || !strcmp(w[0], "slide")) && !strncmp(made, w[1], length) &&
           !strcmp(made + length, part);
}

/* Does the word name a loop of the tile, unrolled or of vectors? */
static bool is_of_tile(const Nest *n, const char *word) {
    const int loop = nest_find(n, word);
    return loop >= 0 && !n->loop[loop].reduce && n->loop[loop].role != ROLE_serial;
}

void nest_drop_singles(Nest *n) {
    const char *steps = text_get(&n->steps), *at = strstr(steps, "single ");
    Text rest = text_new(n->p->arena);
    text_addf(&rest, "%.*s%s", (int)(at - steps), steps, strchr(at, ';') + 2);
    n->steps = rest;
    n->singles.loop = -1;
}

/* One step of those that make n's nest, its words in w, as the nest of singles has it. */
static void add_single_step(const Nest *n, int count, char **w, Text *steps) {
    const Singles *s = &n->singles;
    const char *tile = n->loop[s->loop].name;
    const char *rows = s->rows >= 0 ? n->loop[s->rows].name : NULL;
    const char *streams = s->streams >= 0 ? n->loop[s->streams].name : NULL;
    if (!strcmp(w[0], "later") || !strcmp(w[0], "rest")) return; /* rows come one by one */
    if (!strcmp(w[0], "single")) {
        if (streams) text_addf(steps, "stream %so; ", streams);
        return;
    }
    if (count == 3 && makes(n, w, s->loop, "i")) {
        text_addf(steps, "split %s 1; ", w[1]);
        return;
    }
    if (count == 3 && makes(n, w, s->streams, "o")) {
        text_addf(steps, "%s %s %s; split %s %lld; bind %so unroll; ", w[0], w[1], w[2], streams,
                  (long long)(n->loop[s->streams].extent / s->parts), streams);
        return;
    }
    if (count == 3 && makes(n, w, s->columns, "i")) {
        text_addf(steps, "slide %s %lld; ", w[1], (long long)s->width);
        return;
    }
    if (!strcmp(w[0], "share")) {
        int shared = atoi(w[1]);
        for (int i = 0; i < n->share && rows; i++) shared -= n->order[i] == s->rows;
        if (shared) text_addf(steps, "share %d; ", shared);
        return;
    }
    bool outside =
        streams && !strcmp(w[0], "order"); /* of the tile, of which streams are the first */
    for (int i = 0; i < count; i++) {
        const bool moved = rows && i && !strcmp(w[i], rows), is_tile = i && !strcmp(w[i], tile);
        if (outside && i && is_of_tile(n, w[i])) {
            text_addf(steps, " %so", streams);
            outside = false;
        }
        if (moved) continue;
        text_addf(steps, "%s%s", i ? " " : "", is_tile && rows ? rows : w[i]);
        if (streams && i && !strcmp(w[i], streams)) text_add(steps, "i");
    }
    text_add(steps, "; ");
}

bool nest_of_singles(const Nest *n, Nest *one) {
    Text steps = text_new(n->p->arena);
    char *rest = arena_strdup(n->p->arena, text_get(&n->steps));
    for (char *step; (step = strtok_r(rest, ";", &rest));) {
        char *words[MAX_WORDS], *more = step;
        int count = 0;
        for (char *w; (w = strtok_r(more, " \t\n", &more)) && count < MAX_WORDS;)
            words[count++] = w;
        if (count) add_single_step(n, count, words, &steps);
    }
    nest_begin(one, n->p, n->given, n->target);
    for (int i = 0; i < n->n_coords; i++) {
        one->limit[i] = n->limit[i];
        one->loop[i].least = n->loop[i].least;
    }
    one->reach = one->given_reach = n->given_reach;
    one->variant = n->variant;
    one->apart = n->apart;
    return nest_replay(one, text_get(&steps));
}

#define MOST_ACCUMULATORS 16384

/* Is the loop of role tile at this position around rows, of one loop or two, columns and a sum of
 * few products, and are all loops of the reduction before it that? */
static bool is_unit_tile(const Nest *n, int at) {
    static const Role roles[] = {ROLE_tile, ROLE_unroll, ROLE_unroll, ROLE_vector, ROLE_unroll};
    const int skipped = n->n_order - at == 4;
    bool fits = n->target->matrix_tiles && at + 5 - skipped == n->n_order, reducing = false;
    for (int i = 0; i < n->n_order && fits; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        const int inside = i == at ? 0 : i - at + skipped;
        reducing |= l->reduce;
        fits = i < at ? l->reduce || !reducing
                      : l->role == roles[inside] && l->reduce == (inside == 0 || inside == 4);
    }
    return fits;
}

/* What the innermost loops add up: the body, or of sums in two steps a term of the first. */
static const Expr *term_of(const Nest *n) {
    const Expr *body = nest_body(n);
    uint64_t inside = 0;
    int64_t times = 1;
    if (n->partial_loop < 0) return body;
    for (int i = n->n_order - 1; i >= 0 && n->order[i] != n->partial_loop; i--) {
        if (!n->loop[n->order[i]].reduce) continue;
        inside |= UINT64_C(1) << n->order[i];
        times *= n->loop[n->order[i]].extent;
    }
    return nest_partial_sum(n->x, body, inside, times).term;
}

/* The largest part of a byte that a factor is; -1: it is none. */
static int64_t largest_part(const Expr *e) {
    const bool masked = e->op == EX_band && ex_is_const(e->arg[1]);
    return masked && e->arg[1]->k.i >= 0 && e->arg[1]->k.i <= INT8_MAX ? e->arg[1]->k.i : -1;
}

/* The fours that a sum over `times` iterations of loop `around` adds, of constant columns. */
static bool read_fours(const Nest *n, const Expr *columns, int around, int64_t times, int few,
                       Fours *f) {
    const Expr *index = columns->arg[0], *to[NEST_MAX_LOOPS];
    for (int i = 0; i < n->n_loops; i++) to[i] = ex_i(n->x, 0);
    const Expr *first = ex_simplify(n->x, ex_subst_vars(n->x, index, n->n_loops, to), 0, NULL);
    *f = (Fours){.v = n->op->in[columns->k.i], .together = (int)times};
    if (!value_is_const(f->v) || !ex_is_const(first) || !ex_stride(index, few, &f->stride) ||
        !ex_stride(index, around, &f->apart))
        return false;
    for (int i = 0; i < n->n_order; i++) {
        const int loop = n->order[i];
        if (loop == few) continue;
        const int64_t each = loop == around ? times : 1;
        if (n->loop[loop].extent % each || !ex_stride(index, loop, &f->step[f->n])) return false;
        f->extent[f->n] = n->loop[loop].extent / each;
        f->step[f->n] *= each;
        if (f->step[f->n]) f->n++;
    }
    f->first = first->k.i;
    int64_t last = f->first + (times - 1) * f->apart + 3 * f->stride;
    bool inside = f->first >= 0 && f->stride >= 0 && f->apart >= 0;
    for (int i = 0; i < f->n; i++) {
        inside &= f->step[i] >= 0;
        last += f->step[i] * (f->extent[i] - 1);
    }
    return inside && last < value_numel(f->v);
}

bool nest_sums_are_short(const Nest *n, const Expr *product, int n_around, const int *around,
                         int64_t times, int few) {
    if (!n->target->byte_pairs || product->op != EX_mul || product->dt != DT_i32) return false;
    if (n->loop[few].extent != 4) return false;
    for (int k = 0; k < 2; k++) {
        const Expr *columns = without_casts(product->arg[k]);
        const Expr *rows = without_casts(product->arg[1 - k]);
        const int64_t most = largest_part(product->arg[k]);
        Fours f;
        if (rows->op != EX_load) continue;
        if (rows->dt == DT_i8 && most >= 0) return 2 * times * most * -INT8_MIN <= INT16_MAX;
        if (rows->dt == DT_u8 && columns->op == EX_load && columns->dt == DT_i8)
            return n_around == 1 && read_fours(n, columns, around[0], times, few, &f) &&
                   relieve_fits(n->p->arena, &f);
    }
    return false;
}

typedef struct Moves {
    const Nest *n;
    const Expr *table, *place; /* loads of constant bytes, and of others; NULL: none */
    bool wrong;
} Moves;

static void look_at_move(void *user, const Expr *e) {
    Moves *m = user;
    if (e->op != EX_load) return;
    const Expr **to = e->dt == DT_u8 ? &m->table : &m->place;
    m->wrong |= (*to && *to != e) || !nest_can_pack(m->n, e->k.i, e->arg[0]) ||
                (e->dt != DT_u8 && e->dt != DT_i32);
    *to = e;
}

/* Puts variables, numbered behind the nest's loops, for the counters of the loops around the place
 * that is being lowered, which is the end of the program, into *e, and writes their extents;
 * returns how many variables there are then. */
static int counters_as_loops(const Nest *n, const Expr **e, int64_t *extent) {
    int count = n->n_loops;
    for (int s = 0; s < n->p->steps.n; s++) {
        const Step *step = &n->p->steps.items[s];
        if (step->kind == STEP_loop && count < NEST_MAX_LOOPS) extent[count] = step->trips;
        count += (step->kind == STEP_loop) - (step->kind == STEP_end);
    }
    if (count > NEST_MAX_LOOPS) return n->n_loops;
    for (int i = n->n_loops; i < count; i++)
        *e = ex_replace(n->x, *e, ex_ctr(n->x, i - n->n_loops), ex_var(n->x, i));
    return count;
}

/* Are the rows, with the windows of so many bytes that begin at places, there? */
static bool has_windows(const Nest *n, const Expr *rows, const Moves *m, int window) {
    int64_t extent[NEST_MAX_LOOPS], low, high, first = 0, last = 0;
    const Expr *zero = ex_i(n->x, 0);
    const Expr *start = ex_replace(n->x, rows->arg[0], ex_cast(n->x, DT_i32, m->table), zero);
    if (m->place) {
        Value *v = n->op->in[m->place->k.i];
        const int32_t *place = constant_settle(n->p->arena, v);
        for (int64_t i = 0; i < value_numel(v); i++) {
            if (place[i] < first) first = place[i];
            if (place[i] > last) last = place[i];
        }
        start = ex_replace(n->x, start, m->place, zero);
    }
    for (int i = 0; i < n->n_loops; i++) extent[i] = n->loop[i].extent;
    const int loops = counters_as_loops(n, &start, extent);
    return !start->loads && !n->guard[0] && !n->guard[1] &&
           ex_bounds(start, loops, extent, &low, &high) && low + first >= 0 &&
           high + last + window <= value_span(n->op->in[rows->k.i]);
}

bool nest_moves_fit(const Nest *n, int few, bool shorts) {
    const Expr *body = nest_body(n);
    const int window = shorts ? BYTES_WINDOW : target_window(n->target);
    if (!n->target->byte_pairs || body->op != EX_mul || body->dt != DT_i32) return false;
    if (n->loop[few].extent != 4) return false;
    for (int k = 0; k < 2; k++) {
        const Expr *lack = without_casts(body->arg[k]), *rows = without_casts(body->arg[1 - k]);
        if (lack->op != EX_load || lack->dt != DT_i8 || !value_is_const(n->op->in[lack->k.i]) ||
            rows->op != EX_load || rows->dt != DT_u8)
            continue;
        Moves m = {.n = n};
        ex_visit(n->p->arena, rows->arg[0], look_at_move, &m);
        if (!m.table || m.wrong || m.table->arg[0] != lack->arg[0] ||
            !has_windows(n, rows, &m, window))
            return false;
        Value *table = n->op->in[m.table->k.i];
        return shorts ? relieve_reaches(n->p->arena, table, window)
                      : relieve_moves(n->p->arena, table, n->op->in[lack->k.i], window);
    }
    return false;
}

/* The type of the first bytes that are read. */
static void find_bytes(void *user, const Expr *e) {
    DType *dt = user;
    if (e->op == EX_cast && e->arg[0]->op == EX_load && *dt == DT_none) *dt = (DType)e->arg[0]->dt;
}

DType nest_chosen_bytes(const Nest *n) {
    const Op *op = n->op;
    DType dt = DT_none;
    if (op->kind != OP_reduce || (op->combine != COMBINE_max && op->combine != COMBINE_min) ||
        op->body->dt != DT_i32 || !n->target->vector_types || n->lane_loop >= 0 ||
        n->partial_loop >= 0 || n->stream_loop >= 0)
        return DT_none;
    ex_visit(n->p->arena, op->body, find_bytes, &dt);
    if (!dt_is_byte(dt)) return DT_none;
    const ExprOp combine = combine_expr(op->combine);
    const Expr *acc = ex_acc(n->x, DT_i32), *none = ex_i(n->x, combine_identity(op->combine, dt).i);
    if (!ex_chooses_bytes(ex_bin(n->x, combine, op->body, none), dt, -1)) return DT_none;
    if (op->post == ex_cast(n->x, dt, ex_bin(n->x, combine, acc, none))) return dt;
    if (op->post != ex_cast(n->x, dt, acc)) return DT_none;
    /* what is combined from nothing is i32's identity, whose low byte is that of bytes without sign
     */
    bool nothing = n->reach || !ex_chooses_bytes(op->body, dt, -1);
    for (int i = 0; i < n->n_coords; i++) nothing |= n->limit[i] != NULL;
    return nothing && dt == DT_i8 ? DT_none : dt;
}

/* Are the loops of role short that begin at this position around a tile of sums of four products,
 * and do these fit? */
static bool are_short(const Nest *n, int at) {
    int loops[NEST_MAX_LOOPS], count = 0;
    const int few = n->order[n->n_order - 1];
    int64_t times = 1;
    for (int i = 0; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (l->role != ROLE_short) continue;
        if (i != at + count || !l->reduce) return false;
        loops[count++] = n->order[i];
        times *= l->extent;
    }
    return n->loop[few].reduce && nest_sums_are_short(n, term_of(n), count, loops, times, few);
}

int nest_tile_loops(const Nest *n, int tile[NEST_MAX_LOOPS]) {
    int count = 0;
    bool reducing = false;
    for (int i = 0; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        reducing |= l->reduce;
        if (reducing && !l->reduce) tile[count++] = n->order[i];
    }
    return count;
}

/* Of a tile whose sums are finished later (finish_parts in nest_finish.c). */
#define LATER_LOOPS 3

/* Is the loop whose rows are finished a tile later the one around the tile's vectors, and still
 * what it was? */
static bool is_later_row(const Nest *n) {
    int tile[NEST_MAX_LOOPS];
    const int count = nest_tile_loops(n, tile);
    if (count < 2 || count > LATER_LOOPS || tile[count - 2] != n->later_loop) return false;
    return n->loop[n->later_loop].role == ROLE_unroll &&
           n->loop[tile[count - 1]].role == ROLE_vector;
}

bool nest_check_loops(const Nest *n) {
    const char *wrong = n->stage_loop[0] >= 0 || n->stage_loop[1] >= 0 ? "shared memory" : NULL;
    int64_t tile = 1;
    bool reducing = false, in_tile = false, inside_vector = false, shorts = false;
    if (n->lane_loop >= 0 && n->cut) wrong = "lanes in a guarded nest";
    if (n->later_loop >= 0 && !is_later_row(n)) wrong = "rows that are not around vectors, later";
    for (int i = 0; i < n->n_order; i++) {
        int loop = n->order[i];
        const NestLoop *l = &n->loop[loop];
        reducing |= l->reduce;
        if (l->role >= ROLE_block_x) wrong = "threads of a block";
        if (l->role == ROLE_parallel) wrong = "a parallel loop that is not shared";
        if (l->role == ROLE_vector && l->reduce && loop != n->lane_loop)
            wrong = "a reduction along a vector";
        if (reducing && !l->reduce && l->role == ROLE_serial)
            wrong = "accumulators in a loop that is not unrolled";
        if (l->role == ROLE_tile && !is_unit_tile(n, i)) wrong = "a tile that no unit takes";
        const bool inside_short = i > 0 && n->loop[n->order[i - 1]].role == ROLE_short;
        if (l->role == ROLE_short && !inside_short && !are_short(n, i))
            wrong = "sums that may not fit into 16 bits";
        if (l->role == ROLE_repeat && !l->reduce) wrong = "a repetition of what is not added up";
        if (l->role == ROLE_later) wrong = "a loop of the nest a tile later";
        in_tile |= reducing && !l->reduce;
        if (in_tile && l->reduce && l->role == ROLE_serial && loop != n->lane_loop)
            wrong = "a reduction inside of a tile";
        shorts |= l->role == ROLE_short;
        if (l->role == ROLE_moved && !(l->reduce && nest_moves_fit(n, loop, shorts)))
            wrong = "rows that may not be moved";
        if (inside_vector && l->role != ROLE_unroll && l->role != ROLE_moved)
            wrong = "a loop inside of a vector";
        inside_vector |= l->role == ROLE_vector;
        if (loop == n->lane_loop && i != n->n_order - 1) wrong = "lanes that are not innermost";
        if (i < n->share && (l->reduce || l->role != ROLE_serial)) wrong = "a shared reduction";
        if (reducing && (!l->reduce || loop == n->lane_loop)) tile *= l->extent;
        if (tile > MOST_ACCUMULATORS) wrong = "too many accumulators";
        if (wrong) break;
    }
    if (wrong) diag_error(n->p->diag, E5002, "the schedule asks for %s", wrong);
    Nest one;
    return !wrong && (n->singles.loop < 0 || (nest_of_singles(n, &one) && nest_check_loops(&one)));
}
