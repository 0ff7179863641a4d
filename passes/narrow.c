/* narrow: with --precision, what products read is stored in a type of 16 bits.
 *
 * A tensor of f32 that a product reads, and that is neither an input nor an output of the model, is
 * rounded where it is made, and widened again wherever it is read; constants that meet such a
 * tensor in a product are rounded when compiling. Sums, and all that happens between them, stay in
 * f32. So is a state that products read, and that is scattered into: keys and values of attention
 * then take half their room, and a token half the time for them.
 */
#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/nest.h"
#include "passes/passes.h"

#define MIN_DEPTH 4 /* products in a sum that is worth it */

typedef struct Narrow {
    Graph *g;
    DType dt;
    bool *may, *does; /* by value id */
    Value **rounded;  /* by value id: the narrow twin of a constant */
    const Op *op;
    bool all, any; /* of a product: all that it loads may be narrow; something computed may */
} Narrow;

static bool is_product(const Op *op) {
    if (!is_product_of_two(op) || op_applies_matrices(op)) return false;
    return op->body->dt == DT_f32 && shape_numel(op->n_red, op->red) >= MIN_DEPTH;
}

/* Which tensors may change: those that maps and reductions make and read, and reshapes of them. */
static void find_candidates(Narrow *n) {
    Graph *g = n->g;
    for (const Op *op = g->first; op; op = op->next) {
        const Value *out = op->n_out == 1 ? op->out[0] : NULL;
        if (!out || out->dt != DT_f32) continue;
        if (op->kind == OP_map || op->kind == OP_reduce) n->may[out->id] = true;
        if (op->kind == OP_reshape) n->may[out->id] = n->may[op->in[0]->id];
    }
    for (int i = 0; i < g->outputs.n; i++) n->may[through_reshape(g->outputs.items[i])->id] = false;
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_in; i++)
            if (op->kind != OP_map && op->kind != OP_reduce && op->kind != OP_reshape)
                n->may[through_reshape(op->in[i])->id] = false;
}

/* The state that an output is, if it may be narrow. */
static Value *narrow_state(const Graph *g, const Value *v) {
    Value *state = v->dt == DT_f32 ? scattered_state(g, v) : NULL;
    if (!state || state == v || state->data) return NULL;
    for (const Value *w = v; w != state; w = w->def->in[0])
        if (w->def->combine != COMBINE_none) return NULL;
    return state;
}

/* Adds those that are read by maps and reductions alone. */
static void find_states(Narrow *n) {
    Graph *g = n->g;
    for (int i = graph_n_outputs(g); i < g->outputs.n; i++) {
        Value *v = g->outputs.items[i];
        bool fits = narrow_state(g, v) != NULL;
        for (const Op *op = v->def->next; op && fits; op = op->next)
            for (int k = 0; k < op->n_in; k++)
                if (through_reshape(op->in[k]) == v)
                    fits &= op->kind == OP_map || op->kind == OP_reduce || op->kind == OP_reshape;
        if (!fits) continue;
        n->may[v->id] = true;
        for (const Op *op = v->def->next; op; op = op->next)
            if (op->kind == OP_reshape && op->in[0] == v) n->may[op->out[0]->id] = true;
    }
}

/* A sum over as many terms as a run has: what it reads of a state may be narrow, too. */
static void choose_limited(Narrow *n, const Op *op) {
    const Expr *e = op->body;
    if (op->kind != OP_reduce || e->op != EX_select || e->arg[1]->op != EX_mul) return;
    for (int i = 0; i < 2; i++) {
        const Expr *load = e->arg[1]->arg[i];
        Value *v = load->op == EX_load ? through_reshape(op->in[load->k.i]) : NULL;
        if (v && n->may[v->id] && narrow_state(n->g, v)) n->does[v->id] = true;
    }
}

/* What becomes a narrow state is narrow all the way. */
static void spread_states(Narrow *n) {
    Graph *g = n->g;
    for (int i = graph_n_outputs(g); i < g->outputs.n; i++) {
        Value *v = g->outputs.items[i], *state = n->does[v->id] ? narrow_state(g, v) : NULL;
        if (!state) continue;
        for (Value *w = v; w != state; w = w->def->in[0]) n->does[w->id] = true;
        state->dt = n->dt;
    }
}

static bool may_be(const Narrow *n, Value *v) {
    return n->may[v->id] && n->may[through_reshape(v)->id];
}

static void look_at(void *user, const Expr *e) {
    Narrow *n = user;
    if (e->op != EX_load || e->dt != DT_f32) return;
    Value *v = n->op->in[e->k.i];
    if (value_is_const(v)) return;
    if (may_be(n, v))
        n->any = true;
    else
        n->all = false;
}

static void choose(void *user, const Expr *e) {
    Narrow *n = user;
    if (e->op == EX_load && e->dt == DT_f32) n->does[through_reshape(n->op->in[e->k.i])->id] = true;
}

static Value *rounded(Narrow *n, Value *v) {
    if (n->rounded[v->id]) return n->rounded[v->id];
    Graph *g = n->g;
    Value *twin = constant_cast(g, v, n->dt);
    twin->name = v->name;
    graph_insert_before(g, v->def->next, twin->def);
    return n->rounded[v->id] = twin;
}

static const Expr *wider(void *user, const Expr *e, const Expr *const *args) {
    Narrow *n = user;
    Exprs *x = n->g->x;
    if (e->op != EX_load) return e;
    DType dt = n->op->in[e->k.i]->dt;
    return ex_cast(x, (DType)e->dt, ex_load(x, dt, (int)e->k.i, e->n, args));
}

/* A map that moves what will be narrow moves it as such. */
static void hand_back(Narrow *n, const Op *op) {
    const Expr *e = op->body;
    if (op->kind != OP_map || op->n_in != 1 || !n->does[op->out[0]->id]) return;
    while (e->op == EX_select && ex_is_const(e->arg[2])) e = e->arg[1];
    if (e->op == EX_load && e->dt == DT_f32 && may_be(n, op->in[0]))
        n->does[through_reshape(op->in[0])->id] = true;
}

static const Expr *narrowed(Exprs *x, DType dt, const Expr *e) {
    if (e->op != EX_select) return ex_cast(x, dt, e);
    return ex_select(x, e->arg[0], narrowed(x, dt, e->arg[1]), narrowed(x, dt, e->arg[2]));
}

/* Rounds what the operator makes and widens what it reads, by what was decided. */
static void apply(Narrow *n, Op *op, int values) {
    Exprs *x = n->g->x;
    if (op->kind == OP_reshape && n->does[through_reshape(op->out[0])->id]) op->out[0]->dt = n->dt;
    if (op->kind != OP_map && op->kind != OP_reduce && op->kind != OP_scatter) return;
    n->op = op;
    op->body = ex_rewrite(x, op->body, wider, n);
    if (op->post) op->post = ex_rewrite(x, op->post, wider, n);
    Value *out = op->out[0];
    if (out->id >= values || !n->does[out->id]) return;
    const Expr **last = op->post ? &op->post : &op->body;
    *last = narrowed(x, n->dt, *last);
    out->dt = n->dt;
}

/* In a product's body narrow constants take the place of wide ones. */
static void use_twins(Narrow *n, Op *op) {
    Exprs *x = n->g->x;
    const Expr *part[2];
    Value **in = ARENA_ARRAY(n->g->arena, op->n_in + 2, Value *);
    for (int i = 0; i < op->n_in; i++) in[i] = op->in[i];
    for (int i = 0; i < 2; i++) {
        const Expr *e = op->body->arg[i];
        if (e->op == EX_load && value_is_const(op->in[e->k.i])) {
            Value *twin = rounded(n, op->in[e->k.i]);
            int at = list_add(in, &op->n_in, twin);
            e = ex_cast(x, DT_f32, ex_load(x, twin->dt, at, e->n, e->arg));
        }
        part[i] = e;
    }
    op->in = in;
    op->body = ex_mul(x, part[0], part[1]);
    graph_drop_inputs(n->g, op);
}

void pass_narrow(Graph *g, const PassOptions *o) {
    if (o->precision == DT_none || o->precision == DT_f32) return;
    Narrow n = {.g = g, .dt = o->precision};
    int values = g->n_values;
    n.may = ARENA_ARRAY(g->arena, values, bool);
    n.does = ARENA_ARRAY(g->arena, values, bool);
    n.rounded = ARENA_ARRAY(g->arena, values, Value *);
    graph_count_uses(g);
    find_candidates(&n);
    find_states(&n);
    VEC(Op *) products = {0};
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_narrow(op->sub, o);
        choose_limited(&n, op);
        if (!is_product(op)) continue;
        n.op = op;
        n.all = true;
        n.any = false;
        ex_visit(g->arena, op->body, look_at, &n);
        if (!n.all || !n.any) continue;
        ex_visit(g->arena, op->body, choose, &n);
        vec_push(g->arena, &products, op);
    }
    for (Op *op = g->last; op; op = op->prev) hand_back(&n, op);
    spread_states(&n);
    for (int i = 0; i < products.n; i++) use_twins(&n, products.items[i]);
    for (Op *op = g->first; op; op = op->next) apply(&n, op, values);
}
