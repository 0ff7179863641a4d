/* strips: chains of operators are computed a strip of rows after the other, for targets of plain
 * loops, so that what lies between them stays in a cache.
 *
 * What attention computes for a few queries, or a depthwise convolution and the products around it
 * (or the transformed tiles of a Winograd convolution) for a few lines of an image, needs little
 * memory; for all of them it is often more than the L2 cache keeps, or even the cache that cores
 * share, and more than a small device has. Where the last operator of a chain runs over rows
 * that its operands follow, which is read off the indices of loads, the chain becomes a loop over
 * strips of such rows, without a state: threads do iterations apart. Lines that two strips read, as
 * windows overlap, both compute. Which chains, and how many rows, is strips_gain.c's affair.
 *
 * A strip of the result is a block of its first coordinates: one of each but the last, of which it
 * is `rows`. Of an operator before it the strip is as much of one of its coordinates as the strips
 * of those that read it need:
 *
 *   count rows, the first of which is number scale * (number of the strip) + first
 *
 * What lies outside of the tensor there (lines around an image, which a map replaces by zeros) is
 * computed as the line next to it is.
 *
 * Where the first coordinate of the result varies (a batch), the loop ends behind the strips of the
 * run. Operators with another one that does have no strips.
 */
#include "passes/inline.h"
#include "passes/nest.h"
#include "passes/strips.h"

#include <string.h>

#define LEAST_GAIN 20000.0
#define MOST_ROWS  4096 /* of a strip */

/* --- which rows are read ---------------------------------------------------------------------- */

typedef struct Reading {
    Strips *s;
    const Chain *c;
    const Member *reader;
    const Value *value; /* that is looked at */
    int64_t extent[MAX_RANK];
    int n;
    Span span[MOST_AXES]; /* coord -1: no load was seen */
    bool follows;         /* each load has one index for each axis */
} Reading;

/* The divisor of an index that is divided by a number; 1 of another one. */
static int64_t take_divisor(const Expr **e) {
    if ((*e)->op != EX_div || !ex_is_const((*e)->arg[1]) || (*e)->arg[1]->k.i < 1) return 1;
    int64_t divisor = (*e)->arg[1]->k.i;
    *e = (*e)->arg[0];
    return divisor;
}

/* Is the index the same for all strips of axis `a`, since they have a multiple of what it is the
 * remainder by? */
static bool same_in_all(const Reading *r, int a, const Expr *e) {
    const Span *rows = &r->reader->span[a];
    int64_t coef[MAX_RANK];
    const Expr *base;
    return e->op == EX_rem && ex_is_const(e->arg[1]) && e->arg[1]->k.i > 0 &&
           ex_affine(r->s->g->x, e->arg[0], r->n, coef, &base) && ex_is_const(base) &&
           coef[rows->coord] * rows->scale % e->arg[1]->k.i == 0;
}

/* Widens the span of axis `a` by a load whose index of dimension `dim` is `e`; false if it does not
 * run with the reader's rows. */
static bool read_rows(Reading *r, int a, int dim, const Expr *e) {
    const Span *rows = &r->reader->span[a];
    Span *span = &r->span[a];
    int64_t coef[MAX_RANK], divisor = take_divisor(&e);
    const Expr *base;
    if (!ex_affine(r->s->g->x, e, r->n, coef, &base) || !ex_is_const(base)) return false;
    int64_t low = base->k.i, high = base->k.i;
    for (int i = 0; i < r->n; i++) {
        if (i == rows->coord || !coef[i]) continue;
        for (int b = 0; b < r->c->n_axes; b++)
            if (r->reader->span[b].coord == i) return false;
        *(coef[i] < 0 ? &low : &high) += coef[i] * (r->extent[i] - 1);
    }
    int64_t scale = coef[rows->coord] * rows->scale;
    int64_t first = coef[rows->coord] * rows->first + low;
    int64_t last = coef[rows->coord] * (rows->first + rows->count - 1) + high;
    if (scale <= 0 || scale % divisor || (divisor > 1 && first < 0)) return false;
    scale /= divisor, first /= divisor;
    int64_t end = last / divisor + 1;
    if (span->coord < 0) {
        *span = (Span){dim, scale, first, end - first};
        return true;
    }
    if (span->coord != dim || span->scale != scale) return false;
    if (first > span->first) first = span->first;
    if (end < span->first + span->count) end = span->first + span->count;
    *span = (Span){dim, scale, first, end - first};
    return true;
}

static void look_at_load(void *user, const Expr *e) {
    Reading *r = user;
    if (e->op != EX_load || r->reader->op->in[e->k.i] != r->value || !r->follows) return;
    for (int a = 0; a < r->c->n_axes; a++) {
        uint64_t rows = (uint64_t)1 << r->reader->span[a].coord;
        int dim = -1;
        for (int i = 0; i < e->n; i++) {
            if (!(ex_vars(e->arg[i]) & rows) || same_in_all(r, a, e->arg[i])) continue;
            r->follows &= dim < 0;
            dim = i;
        }
        r->follows = r->follows && dim >= 0 && read_rows(r, a, dim, e->arg[dim]);
    }
}

/* The part of `v` that a strip needs, if the members of the chain that read it all read it along
 * their rows. */
static bool spans_of(Strips *s, const Chain *c, const Value *v, Span *span) {
    Reading r = {.s = s, .c = c, .value = v, .follows = true};
    for (int a = 0; a < c->n_axes; a++) r.span[a].coord = -1;
    for (int i = 0; i < c->n; i++) {
        const Member *m = r.reader = &c->member[i];
        r.n = strip_extents(c, m, r.extent);
        ex_visit(s->scratch, m->op->body, look_at_load, &r);
        if (m->op->post) ex_visit(s->scratch, m->op->post, look_at_load, &r);
    }
    for (int a = 0; a < c->n_axes; a++) {
        span[a] = r.span[a];
        if (!r.follows || span[a].coord < 0) return false;
        for (int b = 0; b < a; b++)
            if (span[b].coord == span[a].coord) return false;
        int64_t extent = v->shape[span[a].coord], strips = c->axis[a].strips;
        /* most of the tensor for every strip is no strip, and each must have a row of it */
        if (span[a].count >= extent || span[a].first + span[a].count <= 0 ||
            span[a].scale * (strips - 1) + span[a].first >= extent)
            return false;
    }
    return true;
}

/* --- chains ----------------------------------------------------------------------------------- */

static bool computes(const Op *op) {
    return (op->kind == OP_map || op->kind == OP_reduce) && op->n_out == 1 && op->index >= 0 &&
           value_numel(op->out[0]) > 0;
}

static void add_member(Strips *s, Chain *c, Op *op, const Span *span) {
    Member *m = &c->member[c->n++];
    *m = (Member){.op = op};
    memcpy(m->span, span, sizeof m->span);
    for (int i = 0; i < op->n_in; i++) s->from_chain[op->in[i]->id]++;
}

static void forget_uses(Strips *s, const Chain *c) {
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->member[i].op->n_in; k++)
            s->from_chain[c->member[i].op->in[k]->id] = 0;
}

/* Is it a product with a small matrix, of which the strip would have a few rows? Its sums share
 * terms, which are computed once only if all rows are (winograd.c). */
static bool cuts_transform(const Chain *c, const Op *op, const Span *span) {
    bool small = false;
    for (int a = 0; a < c->n_axes; a++) small |= op->out[0]->shape[span[a].coord] <= MOST_NUMBERS;
    return small && op_applies_matrices(op);
}

/* Does a product make vectors of what lies side by side in the result, or is that read from rows
 * apart? */
static bool has_columns(const Strips *s, const Op *op) {
    if (!op_is_product(op)) return op->kind == OP_map && reads_across(s->scratch, op);
    const uint64_t one = ex_vars(op->body->arg[0]);
    return (one | ex_vars(op->body->arg[1])) >> (op->out[0]->rank - 1) & 1;
}

/* Would the strip have less than a line of such? Vectors of them would be small, or run along
 * another coordinate and be scattered. */
static bool cuts_columns(const Strips *s, const Op *op, const Span *span, int n_axes) {
    const Value *v = op->out[0];
    for (int a = 0; a < n_axes; a++) {
        const int64_t count = span[a].count;
        if (span[a].coord == v->rank - 1 && count < v->shape[v->rank - 1] &&
            count * (int64_t)dt_store(v->dt) < LINE_BYTES)
            return has_columns(s, op);
    }
    return false;
}

typedef struct Panels {
    int coord;
    int64_t count; /* of a strip */
    bool cut;
} Panels;

static void look_at_panel(void *user, const Expr *e) {
    Panels *u = user;
    if ((e->op != EX_div && e->op != EX_rem) || !ex_is_const(e->arg[1]) ||
        e->arg[0]->op != EX_var || e->arg[0]->k.i != u->coord)
        return;
    const int64_t panel = e->arg[1]->k.i;
    u->cut |= panel > 0 && u->count % panel && panel % u->count;
}

/* Would strips begin in the middle of panels that the operator reads? No index then grows evenly.
 */
static bool cuts_panels(const Strips *s, const Op *op, const Span *span, int n_axes) {
    for (int a = 0; a < n_axes; a++) {
        Panels u = {span[a].coord, span[a].count, false};
        if (u.count < op->out[0]->shape[u.coord]) ex_visit(s->scratch, op->body, look_at_panel, &u);
        if (u.cut) return true;
    }
    return false;
}

/* Does a coordinate of the result vary that is not the first axis'? What a strip gains hangs on the
 * run then: of attention with few of many tokens it lost 4 % of BERT's time. */
static bool varies_inside(const Value *v, const Span *span) {
    for (int i = 0; i < v->rank; i++)
        if (dim_varies(v->dims[i]) && i != span[0].coord) return true;
    return false;
}

/* The best chain that ends with `last` and has such strips: operators are added as long as those
 * before them are used by the chain alone. */
static Chain grow(Strips *s, Op *last, int n_axes, const int *coord, const Axis *axis) {
    Chain c = {.n_axes = n_axes}, best = {.n = 0};
    Span span[MOST_AXES] = {{0}};
    memcpy(c.axis, axis, sizeof c.axis);
    for (int a = 0; a < n_axes; a++) span[a] = (Span){coord[a], axis[a].rows, 0, axis[a].rows};
    if (varies_inside(last->out[0], span)) return best;
    add_member(s, &c, last, span);
    for (int i = last->index - 1; i >= 0 && i >= last->index - 4 * MOST_MEMBERS; i--) {
        Op *op = s->ops.items[i];
        const Value *v = op->out[0];
        if (c.n == MOST_MEMBERS) break;
        if (!s->from_chain[v->id] || s->from_chain[v->id] != s->uses[v->id]) continue;
        if (!spans_of(s, &c, v, span) || cuts_transform(&c, op, span) ||
            cuts_columns(s, op, span, n_axes) || cuts_panels(s, op, span, n_axes) ||
            varies_inside(v, span))
            continue;
        add_member(s, &c, op, span);
        c.gain = chain_gain(s, &c);
        if (c.gain > best.gain) best = c;
    }
    forget_uses(s, &c);
    return best;
}

/* Does a member read something large? Else there is nothing to gain. */
static bool may_gain(const Strips *s, const Op *last) {
    const Op *op = last;
    for (int depth = 0; depth < MOST_MEMBERS && op; depth++) {
        const Op *before = NULL;
        for (int i = 0; i < op->n_in; i++) {
            const Value *v = op->in[i];
            if (v->def->kind != OP_const && (int64_t)value_bytes(v) > s->target->l2_bytes / 2)
                return true;
            if (!computes(v->def) || s->uses[v->id] > 2) continue;
            if (!before || value_bytes(v) > value_bytes(before->out[0])) before = v->def;
        }
        op = before;
    }
    return false;
}

/* The best chain that ends with `last`: strips of the first of its coordinates that are more than
 * one, of the first two, and so on. */
static Chain choose(Strips *s, Op *last) {
    const Value *out = last->out[0];
    Chain best = {.n = 0};
    int n = 0, coord[MOST_AXES];
    Axis axis[MOST_AXES] = {{0}};
    if (out->rank + 2 > MAX_RANK || s->box[out->id] || !may_gain(s, last)) return best;
    for (int d = 0; d + 1 < out->rank && n < MOST_AXES; d++) {
        const int64_t extent = out->shape[d];
        const bool varies = dim_varies(out->dims[d]);
        if (extent == 1) continue;
        coord[n] = d;
        for (int64_t rows = 1; rows < extent && rows <= (varies ? 1 : MOST_ROWS); rows++) {
            if (extent % rows) continue;
            axis[n] = (Axis){extent / rows, rows, varies ? out->dims[d] : extent / rows};
            Chain c = grow(s, last, n + 1, coord, axis);
            if (c.gain > best.gain) best = c;
        }
        axis[n++] = (Axis){extent, 1, out->dims[d]};
    }
    return best;
}

/* --- loops ------------------------------------------------------------------------------------ */

typedef struct Build {
    Strips *s;
    Exprs *x;
    Chain *c;
    Graph *sub;
    Member *m;
    const Expr *number[MAX_RANK + MOST_AXES]; /* [MAX_RANK + a]: of the strip along axis a */
    VEC(Value *) outer;                       /* what the loop reads, and ... */
    VEC(Value *) inner;                       /* ... what it is in the body */
} Build;

/* The first row of a member's strip, in which the number of the strip is one more coordinate. */
static const Expr *first_row(const Build *b, const Member *m, int a) {
    const Expr *at = ex_mul(b->x, ex_var(b->x, MAX_RANK + a), ex_i(b->x, m->span[a].scale));
    return ex_add(b->x, at, ex_i(b->x, m->span[a].first));
}

/* Does the strip reach beyond the tensor's rows? */
static bool reaches_out(const Chain *c, const Member *m, int a) {
    const Span *span = &m->span[a];
    int64_t last = span->scale * (c->axis[a].strips - 1) + span->first + span->count;
    return span->first < 0 || last > m->op->out[0]->shape[span->coord];
}

/* Coordinates are the strip's; what is read of other members is, too. */
static const Expr *strip_leaf(void *user, const Expr *e, const Expr *const *args) {
    Build *b = user;
    Exprs *x = b->x;
    if (e->op == EX_var)
        for (int a = 0; a < b->c->n_axes; a++) {
            if (b->m->span[a].coord != e->k.i) continue;
            const Expr *at = ex_add(x, e, first_row(b, b->m, a));
            if (!reaches_out(b->c, b->m, a)) return at;
            int64_t last = b->m->op->out[0]->shape[e->k.i] - 1;
            at = ex_bin(x, EX_max, at, ex_i(x, 0));
            return ex_bin(x, EX_min, at, ex_i(x, last));
        }
    if (e->op != EX_load) return e;
    const Expr *index[MAX_RANK];
    for (int i = 0; i < e->n; i++) index[i] = args[i];
    for (int i = 0; i < b->c->n; i++) {
        const Member *m = &b->c->member[i];
        if (m->op->out[0] != b->m->op->in[e->k.i]) continue;
        for (int a = 0; a < b->c->n_axes; a++)
            index[m->span[a].coord] = ex_sub(x, index[m->span[a].coord], first_row(b, m, a));
    }
    return ex_load(x, (DType)e->dt, (int)e->k.i, e->n, index);
}

/* What `v` is in the body of the loop. */
static Value *value_inside(Build *b, Value *v) {
    for (int i = 0; i < b->c->n; i++)
        if (b->c->member[i].op->out[0] == v) return b->c->member[i].made;
    for (int i = 0; i < b->outer.n; i++)
        if (b->outer.items[i] == v) return b->inner.items[i];
    Value *inner;
    if (v->def->kind == OP_const) { /* weights are laid out where they are read */
        inner = graph_const(b->sub, v->dt, v->rank, v->shape, v->data);
        inner->name = v->name;
        inner->packed = v->packed;
        inner->made = v->made;
    } else {
        inner = graph_captured(b->sub, v);
    }
    for (int k = 0; k < b->s->g->symbols.n; k++)
        if (b->s->g->symbols.items[k] == v) graph_set_symbol(b->sub, k, inner);
    vec_push(b->s->g->arena, &b->outer, v);
    vec_push(b->s->g->arena, &b->inner, inner);
    return inner;
}

/* Splits `cond` into what concerns coordinate `var` alone, which is added to *own, and the rest. */
static const Expr *take_own(Build *b, const Expr *cond, int var, const Expr **own) {
    Exprs *x = b->x;
    if (cond->op == EX_and) {
        const Expr *left = take_own(b, cond->arg[0], var, own);
        return ex_and(x, left, take_own(b, cond->arg[1], var, own));
    }
    if (ex_vars(cond) != (uint64_t)1 << var) return cond;
    *own = *own ? ex_and(x, *own, cond) : cond;
    return ex_int(x, DT_bool, 1);
}

/* Where a map puts a rim around the member's result, the lines of the rim that are rows of strips
 * are computed with these: `value`, of a row of the strip. The map's body, which is built later,
 * then only moves, so that it can be computed in its place. */
static const Expr *with_rim(Build *b, const Member *m, int a, const Expr *value) {
    Exprs *x = b->x;
    const Expr *own = NULL, *to[MAX_RANK] = {NULL};
    Member *reader = NULL;
    for (int i = 0; i < b->c->n; i++)
        for (int k = 0; k < b->c->member[i].op->n_in; k++)
            if (b->c->member[i].op->in[k] == m->op->out[0]) reader = &b->c->member[i];
    const Expr *body = reader->op->body;
    if (!moves_boxes(b->s, reader->op) || b->s->uses[m->op->out[0]->id] > 1) return value;
    const Expr *load = body->arg[1], *rim = body->arg[2];
    if (load->op != EX_load || reader->op->in[load->k.i] != m->op->out[0] || !ex_is_const(rim) ||
        body->arg[0]->loads)
        return value;
    int var = reader->span[a].coord;
    const Expr *moved =
        ex_simplify(x, ex_sub(x, load->arg[m->span[a].coord], ex_var(x, var)), 0, NULL);
    if (!ex_is_const(moved)) return value;
    const Expr *rest = take_own(b, body->arg[0], var, &own);
    if (!own) return value;
    reader->op->body = ex_select(x, rest, load, rim);
    const Expr *row = ex_add(x, ex_var(x, m->span[a].coord), first_row(b, m, a));
    to[var] = ex_sub(x, row, moved);
    return ex_select(x, ex_subst_vars(x, own, MAX_RANK, to), value, rim);
}

/* Simplifies an expression of a strip and says what its number is. */
static const Expr *numbered(const Build *b, const Expr *e, const int64_t *extent) {
    e = ex_simplify(b->x, e, MAX_RANK + b->c->n_axes, extent);
    return ex_subst_vars(b->x, e, MAX_RANK + b->c->n_axes, b->number);
}

static void build_member(Build *b, Member *m) {
    Graph *sub = b->sub;
    const Op *op = m->op;
    int64_t extent[MAX_RANK + MOST_AXES], shape[MAX_RANK];
    b->m = m;
    for (int i = strip_extents(b->c, m, extent); i < MAX_RANK; i++) extent[i] = 1;
    for (int a = 0; a < b->c->n_axes; a++) extent[MAX_RANK + a] = b->c->axis[a].strips;
    Value **in = ARENA_ARRAY(sub->arena, op->n_in + 1, Value *);
    for (int i = 0; i < op->n_in; i++) in[i] = value_inside(b, op->in[i]);
    Op *strip = graph_new_op(sub, op->kind, op->n_in, in, 1);
    const Value *out = op->out[0];
    for (int i = 0; i < out->rank; i++) shape[i] = extent[i];
    strip->combine = op->combine;
    strip->n_red = op->n_red;
    strip->red = op->red;
    strip->src = op->src;
    const Expr *body = ex_rewrite(b->x, op->body, strip_leaf, b);
    const Expr *post = op->post ? ex_rewrite(b->x, op->post, strip_leaf, b) : NULL;
    const Expr **result = post ? &post : &body;
    for (int a = 0; a < b->c->n_axes; a++)
        if (reaches_out(b->c, m, a)) *result = with_rim(b, m, a, *result);
    strip->body = numbered(b, body, extent);
    strip->post = post ? numbered(b, post, extent) : NULL;
    m->made = graph_new_value(sub, strip, 0, out->dt, out->rank, shape);
    m->made->name = out->name;
    graph_append(sub, strip);
}

/* Puts a loop in the place of the chain, whose stacked strips are the result. */
static void make_loop(Strips *s, Chain *c) {
    Graph *g = s->g;
    Exprs *x = g->x;
    Op *last = c->member[0].op;
    Value *out = last->out[0];
    Build b = {.s = s, .x = x, .c = c, .sub = graph_new_sub(g)};
    int64_t trips = (int64_t)strips_of(c), inner = trips, dims[MAX_RANK] = {1};
    for (int a = 0; a < c->n_axes; a++) {
        dims[0] = dim_mul(x, dims[0], c->axis[a].dim);
        const Expr *at = ex_ctr(x, b.sub->depth - 1);
        if (inner < trips) at = ex_bin(x, EX_rem, at, ex_i(x, inner));
        inner /= c->axis[a].strips;
        b.number[MAX_RANK + a] = inner > 1 ? ex_div(x, at, ex_i(x, inner)) : at;
    }
    for (int i = c->n - 1; i >= 0; i--) build_member(&b, &c->member[i]);
    graph_output(b.sub, c->member[0].made, NULL);

    Op *loop = graph_new_op(g, OP_loop, 0, NULL, 1);
    loop->in = ARENA_ARRAY(g->arena, b.outer.n + 1, Value *);
    for (int i = 0; i < b.outer.n; i++)
        if (b.inner.items[i]->outer) loop->in[loop->n_in++] = b.outer.items[i];
    loop->trips = trips;
    loop->sub = b.sub;
    loop->src = last->src;
    for (int i = 0; i < out->rank; i++) dims[i + 1] = c->member[0].made->shape[i];
    Value *stacked = graph_new_value(g, loop, 0, out->dt, out->rank + 1, dims);
    graph_insert_before(g, last, loop);
    Op *whole = graph_new_op(g, OP_reshape, 1, &stacked, 1);
    whole->out[0] = out;
    whole->src = last->src;
    graph_insert_before(g, last, whole);
    for (int i = 0; i < c->n; i++) graph_unlink(g, c->member[i].op);
    out->def = whole;
}

/* Marks what the map moves as it is into a box of its result. */
static void mark_boxes(Strips *s, const Op *op, const Expr *body) {
    if (body->op == EX_load && body != op->body) s->box[op->in[body->k.i]->id] = true;
    for (int i = 1; body->op == EX_select && i < 3; i++) mark_boxes(s, op, body->arg[i]);
}

/* Counts uses, and lists the operators that compute. */
static void begin(Strips *s) {
    Graph *g = s->g;
    s->uses = ARENA_ARRAY(s->scratch, g->n_values + 1, int);
    s->box = ARENA_ARRAY(s->scratch, g->n_values + 1, bool);
    s->from_chain = ARENA_ARRAY(s->scratch, g->n_values + 1, int);
    for (Op *op = g->first; op; op = op->next) {
        op->index = -1;
        for (int i = 0; i < op->n_in; i++) s->uses[op->in[i]->id]++;
        if (op->kind == OP_map) mark_boxes(s, op, op->body);
        if ((op->kind != OP_map && op->kind != OP_reduce) || op->guard) continue;
        op->index = s->ops.n;
        vec_push(s->scratch, &s->ops, op);
    }
    for (int i = 0; i < g->outputs.n; i++) s->uses[g->outputs.items[i]->id]++;
    s->cycles = ARENA_ARRAY(s->scratch, s->ops.n + 1, double);
    for (int i = 0; i < s->ops.n; i++) s->cycles[i] = op_cycles(s, s->ops.items[i]);
}

void pass_strips(Graph *g, const PassOptions *o) {
    Strips s = {.g = g, .target = o->target, .scratch = g->arena};
    if (o->target->blocks || g->depth) return;
    begin(&s);
    VEC(Chain *) found = {0};
    for (int i = 0; i < s.ops.n; i++) {
        s.spares = false;
        Chain c = choose(&s, s.ops.items[i]);
        s.spares = c.gain < LEAST_GAIN;
        if (s.spares) c = choose(&s, s.ops.items[i]);
        if (c.gain >= LEAST_GAIN) vec_push(g->arena, &found, arena_copy(g->arena, &c, sizeof c));
    }
    bool any = found.n > 0;
    for (;;) { /* the one that gains most, then the best of those that share nothing with it */
        Chain *best = NULL;
        for (int i = 0; i < found.n; i++)
            if (!best || found.items[i]->gain > best->gain) best = found.items[i];
        if (!best || best->gain <= 0) break;
        for (int i = 0; i < found.n; i++)
            for (int k = 0; k < found.items[i]->n && found.items[i] != best; k++)
                if (chain_member(best, found.items[i]->member[k].op) >= 0) found.items[i]->gain = 0;
        make_loop(&s, best);
        best->gain = 0;
    }
    if (any) pass_dce(g, o);
}
