/* Passes that take away: dce, cse, tidy; and the use lists that they and fuse share. */
#include "ir/constant.h"
#include "passes/passes.h"

#include <string.h>

void graph_count_uses(Graph *g) {
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_out; i++) op->out[i]->index = 0;
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_in; i++) op->in[i]->index++;
    for (int i = 0; i < g->outputs.n; i++) g->outputs.items[i]->index++;
}

/* --- inputs ----------------------------------------------------------------------------------- */

typedef struct Loads {
    Exprs *x;
    bool *loaded;
    int *to;
} Loads;

static void note_load(void *user, const Expr *e) {
    Loads *u = user;
    if (e->op == EX_load) u->loaded[e->k.i] = true;
}

static const Expr *renumber_leaf(void *user, const Expr *e, const Expr *const *args) {
    Loads *u = user;
    return e->op == EX_load ? ex_load(u->x, (DType)e->dt, u->to[e->k.i], e->n, args) : e;
}

void graph_take_in(Graph *g, Op *last, Op *op) {
    for (Op *made; (made = last->next);) {
        if (made->kind != OP_const) made->src = op->src;
        graph_unlink(g, made);
        graph_insert_before(g, op, made);
    }
}

void graph_drop_inputs(Graph *g, Op *op) {
    Loads u = {g->x, ARENA_ARRAY(g->arena, op->n_in + 1, bool),
               ARENA_ARRAY(g->arena, op->n_in + 1, int)};
    const Expr **part[3 + MAX_RANK] = {&op->body, &op->post, &op->guard};
    int n_parts = 3;
    for (int i = 0; op->target && i < op->out[0]->rank; i++) part[n_parts++] = &op->target[i];
    u.loaded[0] |= op->kind == OP_scatter; /* which is copied */
    for (int i = 0; i < n_parts; i++)
        if (*part[i]) ex_visit(g->arena, *part[i], note_load, &u);
    Value **in = ARENA_ARRAY(g->arena, op->n_in + 1, Value *);
    int n = 0;
    for (int i = 0; i < op->n_in; i++) {
        u.to[i] = n;
        if (u.loaded[i]) in[n++] = op->in[i];
    }
    if (n == op->n_in) return;
    for (int i = 0; i < n_parts; i++)
        if (*part[i]) *part[i] = ex_rewrite(g->x, *part[i], renumber_leaf, &u);
    op->in = in;
    op->n_in = n;
}

/* --- dce -------------------------------------------------------------------------------------- */

static void drop_value(Value **list, int *n, int k) {
    memmove(&list[k], &list[k + 1], (size_t)(--*n - k) * sizeof *list);
}

/* Kernels of a device are all launched: none of them asks whether a loop goes on. */
static void drop_go_on(Op *op) {
    Graph *sub = op->sub;
    const int k = op->go_on - 1;
    graph_count_uses(sub);
    if (op->out[k]->index || sub->inputs.items[k]->index) return; /* a state for others, too */
    graph_unlink(sub, sub->inputs.items[k]->def);
    drop_value(sub->inputs.items, &sub->inputs.n, k);
    drop_value(sub->outputs.items, &sub->outputs.n, k);
    memmove(&sub->output_names.items[k], &sub->output_names.items[k + 1],
            (size_t)(sub->outputs.n - k) * sizeof *sub->output_names.items);
    sub->output_names.n = sub->output_text.n = sub->output_shape.n = sub->outputs.n;
    op->in[k]->index--;
    drop_value(op->in, &op->n_in, k);
    drop_value(op->out, &op->n_out, k);
    for (int i = k; i < op->n_out; i++) op->out[i]->def_index = i;
    op->n_state--;
    op->go_on = 0;
}

void pass_dce(Graph *g, const PassOptions *o) {
    graph_count_uses(g);
    for (Op *op = g->last, *prev; op; op = prev) {
        prev = op->prev;
        int uses = 0;
        for (int i = 0; i < op->n_out; i++) uses += op->out[i]->index;
        if (op->go_on && o && o->target->blocks) drop_go_on(op);
        if (op->sub) pass_dce(op->sub, o);
        if (uses || op->kind == OP_input) continue;
        for (int i = 0; i < op->n_in; i++) op->in[i]->index--;
        graph_unlink(g, op);
    }
}

/* --- cse -------------------------------------------------------------------------------------- */

static uint64_t op_hash(const Op *op) {
    uint64_t h = fnv1a(&op->kind, sizeof op->kind, FNV_SEED);
    for (int i = 0; i < op->n_in; i++) h = fnv1a(&op->in[i]->id, sizeof op->in[i]->id, h);
    if (op->body) h = fnv1a(&op->body->id, sizeof op->body->id, h);
    const Value *out = op->out[0];
    h = fnv1a(out->shape, (size_t)out->rank * sizeof *out->shape, h);
    if (op->kind == OP_const && out->made)
        h = fnv1a(&out->made->body->id, sizeof out->made->body->id, h);
    else if (op->kind == OP_const && out->data)
        h = fnv1a(out->data, value_bytes(out) < 4096 ? value_bytes(out) : 4096, h);
    return h;
}

static bool same_op(const Op *a, const Op *b) {
    const Value *va = a->out[0], *vb = b->out[0];
    if (a->kind != b->kind || a->n_in != b->n_in || va->dt != vb->dt ||
        !shape_equal(va->rank, va->dims, vb->rank, vb->dims))
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i]) return false;
    switch (a->kind) {
    case OP_const:
        return constant_same(va, vb);
    case OP_map:
    case OP_reshape:
        return a->body == b->body;
    case OP_reduce:
        return a->body == b->body && a->post == b->post && a->combine == b->combine &&
               shape_equal(a->n_red, a->red, b->n_red, b->red);
    case OP_scan:
        return a->body == b->body && a->post == b->post && a->combine == b->combine &&
               a->axis == b->axis && a->exclusive == b->exclusive && a->reverse == b->reverse;
    default:
        return false;
    }
}

void pass_cse(Graph *g, const PassOptions *o) {
    int count = 0;
    for (Op *op = g->first; op; op = op->next) count++;
    size_t cap = 64;
    while (cap < (size_t)count * 2) cap *= 2;
    Op **table = ARENA_ARRAY(g->arena, cap, Op *);
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_out; i++) op->out[i]->index = -1;
    /* forward[v->id]: the value that stands for v */
    Value **forward = ARENA_ARRAY(g->arena, g->n_values, Value *);
    for (Op *op = g->first, *next; op; op = next) {
        next = op->next;
        for (int i = 0; i < op->n_in; i++)
            if (forward[op->in[i]->id]) op->in[i] = forward[op->in[i]->id];
        if (op->sub) pass_cse(op->sub, o);
        if (op->kind == OP_input || op->kind == OP_loop || op->kind == OP_scatter) continue;
        size_t at = op_hash(op) & (cap - 1);
        while (table[at] && !same_op(table[at], op)) at = (at + 1) & (cap - 1);
        if (!table[at]) {
            table[at] = op;
            continue;
        }
        forward[op->out[0]->id] = table[at]->out[0];
        if (op->out[0]->range) table[at]->out[0]->range = op->out[0]->range;
        graph_unlink(g, op);
    }
    for (int k = 0; k < g->symbols.n; k++)
        if (g->symbols.items[k] && forward[g->symbols.items[k]->id])
            g->symbols.items[k] = forward[g->symbols.items[k]->id];
    for (int i = 0; i < g->outputs.n; i++)
        if (forward[g->outputs.items[i]->id])
            g->outputs.items[i] = forward[g->outputs.items[i]->id];
}

/* --- tidy ------------------------------------------------------------------------------------- */

/* A new operator that copies v. Built by hand: the builder would give v back. Outputs of the model
 * hold their elements densely: dimensions that vary do not say where, so all of the memory is
 * copied. */
static Value *copy_of(Graph *g, Value *v) {
    Op *op = graph_new_op(g, OP_map, 1, &v, 1);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) index[i] = ex_var(g->x, i);
    op->body = ex_load(g->x, v->dt, 0, v->rank, index);
    op->src = v->def->src;
    Value *copy = graph_new_value(g, op, 0, v->dt, v->rank, g->parent ? v->dims : v->shape);
    graph_append(g, op);
    return copy;
}

/* What memory a value lies in: reshapes share their operand's. */
static Value *storage(Value *v) {
    while (v->def->kind == OP_reshape) v = v->def->in[0];
    return v;
}

/* The last operator that reads the value's memory, but for `besides`; NULL: none does. */
static Op *last_reader(const Graph *g, const Value *v, const Op *besides) {
    for (Op *op = g->last; op; op = op->prev)
        for (int i = 0; i < op->n_in && op != besides; i++)
            if (storage(op->in[i]) == v) return op;
    return NULL;
}

/* Has what a state is in the next run computed when nothing else reads the state any more, where
 * only the next run wants it: then the memory plan can let it lie in the state's memory. */
static void delay_states(Graph *g) {
    graph_count_uses(g);
    for (int i = 0; i < g->n_states; i++) {
        Value *next = g->outputs.items[graph_n_outputs(g) + i];
        if (next->index != 1 || next->def->n_out != 1) continue;
        Op *last = last_reader(g, g->inputs.items[graph_n_inputs(g) + i], next->def);
        const Op *at = next->def;
        while (last && at && at != last) at = at->next;
        if (!last || !at) continue; /* it is computed later already */
        graph_unlink(g, next->def);
        graph_insert_before(g, last->next, next->def);
    }
}

void pass_tidy(Graph *g, const PassOptions *o) {
    pass_dce(g, o);
    for (Op *op = g->first; op; op = op->next)
        if (op->sub) pass_tidy(op->sub, o);
    /* every output gets memory of its own */
    for (int i = 0; i < g->outputs.n; i++) {
        Value *root = storage(g->outputs.items[i]);
        bool shared = root->def->kind == OP_input || root->def->kind == OP_const ||
                      (root->def->kind == OP_loop && root->def_index < root->def->n_state);
        for (int k = 0; k < i; k++) shared |= storage(g->outputs.items[k]) == root;
        if (shared) g->outputs.items[i] = copy_of(g, g->outputs.items[i]);
    }
    delay_states(g);
}
