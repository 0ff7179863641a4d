/* hoist: sums in a loop that hang on no state are taken before it.
 *
 * Recurrent layers that are written as loops multiply the row of their input that an iteration
 * takes, and what they carry, by matrices. A row at a time, each iteration reads the whole matrix;
 * all rows at once read it once for a tile of them. So a product of what is known before the loop
 * moves out of it, with what it is made of and with the iteration as one more dimension; what is
 * left in the loop reads a row of the result. A sum that is the same in all iterations is taken once.
 */
#include "ir/constant.h"
#include "passes/passes.h"

#define MOST_BYTES ((size_t)4 << 20) /* of a tensor for all iterations */
#define MOST_ROWS  4                 /* of a product that gains */

/* Of a value of the body, by its number. */
typedef struct Hoisted {
    bool can;     /* hangs on no state ... */
    bool varies;  /* ... but on the iteration */
    Value *value; /* the same in the graph around, NULL: not built yet */
} Hoisted;

typedef struct Hoist {
    Graph *g;
    Op *loop;
    Hoisted *of;
    bool all;     /* iterations take place */
    const Op *op; /* that is copied: what leaves are to become */
    Builder *b;
} Hoist;

typedef struct Counters {
    int64_t own; /* of the loop */
    bool found;
} Counters;

static void note_counter(void *user, const Expr *e) {
    Counters *c = user;
    c->found |= e->op == EX_ctr && e->k.i == c->own;
}

static bool counts(const Hoist *h, const Expr *e) {
    Counters c = {.own = h->loop->sub->depth - 1};
    if (e) ex_visit(h->g->arena, e, note_counter, &c);
    return c.found;
}

static void look_at(Hoist *h, const Op *op) {
    const Graph *sub = h->loop->sub;
    const Value *v = op->out[0];
    Hoisted *it = &h->of[v->id];
    if (op->n_out != 1 || dims_vary(v->rank, v->dims)) return;
    switch (op->kind) {
    case OP_const:
        it->can = v->dt != DT_str;
        return;
    case OP_input:
        for (int i = h->loop->n_state; i < sub->inputs.n; i++)
            it->can |= sub->inputs.items[i] == v && h->loop->in[i] && !v->range;
        return;
    case OP_map:
    case OP_reduce:
    case OP_reshape:
        it->can = v->rank + op->n_red + 1 <= MAX_RANK;
        it->varies = counts(h, op->body) || counts(h, op->post);
        for (int i = 0; i < op->n_in; i++) {
            it->can &= h->of[op->in[i]->id].can;
            it->varies |= h->of[op->in[i]->id].varies;
        }
        it->can &= value_bytes(v) * (size_t)(it->varies ? h->loop->trips : 1) <= MOST_BYTES;
        return;
    default:
        return;
    }
}

static Value *outside(Hoist *h, Value *v);

static const Expr *leaf_outside(void *user, const Expr *e, const Expr *const *args) {
    Hoist *h = user;
    Exprs *x = h->g->x;
    const int shift = h->of[h->op->out[0]->id].varies;
    if (e->op == EX_ctr && e->k.i == h->loop->sub->depth - 1) return ex_var(x, 0);
    if (e->op == EX_var && e->k.i < DIM_VAR) return ex_var(x, (int)e->k.i + shift);
    if (e->op != EX_load) return e;
    const Value *v = h->op->in[e->k.i];
    const Expr *at[MAX_RANK + 1] = {ex_var(x, 0)};
    const int first = h->of[v->id].varies;
    for (int i = 0; i < e->n; i++) at[first + i] = args[i];
    return build_load(h->b, h->of[v->id].value, at);
}

/* What the body computes, in the graph around. */
static Value *outside(Hoist *h, Value *v) {
    Hoisted *it = &h->of[v->id];
    Op *op = v->def;
    int64_t shape[MAX_RANK + 1] = {h->loop->trips};
    if (it->value) return it->value;
    if (op->kind == OP_const) return it->value = constant_like(h->g, v, v->rank, v->dims);
    if (op->kind == OP_input) {
        const Graph *sub = h->loop->sub;
        int i = h->loop->n_state;
        while (sub->inputs.items[i] != v) i++;
        return it->value = h->loop->in[i];
    }
    for (int i = 0; i < op->n_in; i++) outside(h, op->in[i]);
    for (int k = 0; k < v->rank; k++) shape[it->varies + k] = v->dims[k];
    h->g->src = op->src;
    if (op->kind == OP_reshape)
        return it->value = g_reshape(h->g, h->of[op->in[0]->id].value, v->rank + it->varies, shape);
    Builder b = build(h->g, v->rank + it->varies, shape);
    for (int i = 0; i < op->n_red; i++) build_red(&b, op->red[i]);
    h->op = op;
    h->b = &b;
    const Expr *body = ex_rewrite(h->g->x, op->body, leaf_outside, h);
    if (op->kind == OP_map) return it->value = build_map(&b, v->dt, body);
    const Expr *post = ex_rewrite(h->g->x, op->post, leaf_outside, h);
    return it->value = build_reduce(&b, v->dt, op->combine, body, post);
}

/* A sum that is the same in all iterations, or a product of few rows with a matrix that all of them
 * read? */
static bool gains(const Hoist *h, const Op *op) {
    if (op->kind != OP_reduce || !h->of[op->out[0]->id].can) return false;
    const Value *v = op->out[0];
    const bool varies = h->of[v->id].varies;
    if (!varies) return true;
    if (!h->all || !op_is_product(op) || op->n_red != 1 || v->rank < 1 || v->rank > 3) return false;
    bool matrix = false;
    for (int i = 0; i < op->n_in; i++)
        matrix |= !h->of[op->in[i]->id].varies && value_numel(op->in[i]) > value_numel(v);
    return matrix && value_numel(v) <= MOST_ROWS * v->shape[v->rank - 1];
}

/* Inputs stand in their order. */
static void inputs_first(Graph *sub) {
    for (int i = sub->inputs.n - 1; i >= 0; i--) {
        graph_unlink(sub, sub->inputs.items[i]->def);
        graph_insert_before(sub, sub->first, sub->inputs.items[i]->def);
    }
}

/* The operator of the body becomes one that reads what was computed before. */
static void read_instead(Hoist *h, Op *op) {
    Graph *sub = h->loop->sub;
    Exprs *x = h->g->x;
    Value *v = op->out[0], *before = outside(h, v), *inner = graph_captured(sub, before);
    const int first = h->of[v->id].varies;
    const Expr *at[MAX_RANK + 1] = {ex_ctr(x, sub->depth - 1)};
    Value **in = ARENA_ARRAY(h->g->arena, h->loop->n_in + 1, Value *);
    for (int i = 0; i < h->loop->n_in; i++) in[i] = h->loop->in[i];
    in[h->loop->n_in++] = before;
    h->loop->in = in;
    inputs_first(sub);
    for (int i = 0; i < v->rank; i++) at[first + i] = ex_var(x, i);
    op->kind = OP_map;
    op->combine = COMBINE_none;
    op->n_red = 0;
    op->red = NULL;
    op->post = NULL;
    op->n_in = 1;
    op->in = arena_copy(h->g->arena, &inner, sizeof(Value *));
    op->body = ex_load(x, v->dt, 0, v->rank + first, at);
}

/* Puts what was built since `last` before the loop. */
static void put_before(Graph *g, Op *last, Op *loop) {
    for (Op *made; (made = last->next);) {
        graph_unlink(g, made);
        graph_insert_before(g, loop, made);
    }
}

void pass_hoist(Graph *g, const PassOptions *o) {
    if (!o->target->vector_types && !o->target->blocks) return;
    bool any = false;
    const char *src = g->src;
    for (Op *loop = g->first; loop; loop = loop->next) {
        if (loop->kind != OP_loop) continue;
        pass_hoist(loop->sub, o);
        Hoist h = {.g = g, .loop = loop, .all = !loop->go_on && loop->n_state};
        h.of = ARENA_ARRAY(g->arena, loop->sub->n_values + 1, Hoisted);
        for (Op *op = loop->sub->first; op; op = op->next) {
            look_at(&h, op);
            if (!gains(&h, op)) continue;
            Op *last = g->last;
            read_instead(&h, op);
            put_before(g, last, loop);
            h.of[op->out[0]->id] = (Hoisted){0};
            any = true;
        }
    }
    g->src = src;
    if (any) pass_dce(g, o);
}
