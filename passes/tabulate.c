/* tabulate: what depends on nothing but one byte is read from a table of its 256 values, where it
 * costs more than a load: between two quantised tensors an activation, with all the rounding around
 * it, is such a function.
 */
#include "ir/expr_memo.h"
#include "passes/passes.h"

#include <string.h>

#define MIN_COST 16 /* of what a table replaces: one function */
#define VALUES   256

typedef struct Tables {
    Graph *g;
    Op *op;
    Value **in; /* op's inputs to be */
    int n_in, cap;
    Memo source, rewritten;
} Tables;

static bool is_byte(const Expr *e) {
    return e->dt == DT_u8 || e->dt == DT_i8;
}

/* The byte that alone decides what `e` is; NULL: nothing does; &many: more than that. */
static const Expr many;

static const Expr *source_of(Tables *t, const Expr *e) {
    MemoSlot *slot = memo_slot(&t->source, e);
    if (slot->key) return slot->value;
    const Expr *source = NULL;
    if (e->op == EX_load || e->op == EX_var || e->op == EX_acc || e->op == EX_ctr)
        source = &many;
    else
        for (int i = 0; i < e->n; i++) {
            const Expr *s = source_of(t, e->arg[i]);
            if (s && source && s != source) source = &many;
            if (!source) source = s;
        }
    if (source == &many && is_byte(e)) source = e;
    memo_set(&t->source, e, source);
    return source;
}

static void add_cost(void *user, const Expr *e) {
    int *cost = user;
    bool function = e->n == 1 && dt_is_float((DType)e->dt) && e->op >= EX_exp && e->op <= EX_erf;
    *cost += function || e->op == EX_pow ? 20 : e->op == EX_div || e->op == EX_sqrt ? 4 : 0;
}

typedef struct Replace {
    Exprs *x;
    const Expr *from, *to;
} Replace;

static const Expr *replaced(const Replace *r, const Expr *e) {
    if (e == r->from) return r->to;
    if (e->n == 0) return e;
    const Expr *arg[3];
    for (int i = 0; i < e->n; i++) arg[i] = replaced(r, e->arg[i]);
    return ex_rebuild(r->x, e, arg);
}

/* The element of a table of `e` by its source; NULL if there is none to be had. */
static const Expr *table_load(Tables *t, const Expr *e, const Expr *source) {
    Exprs *x = t->g->x;
    int64_t shape[1] = {VALUES};
    int low = source->dt == DT_i8 ? 128 : 0;
    Builder b = build(t->g, 1, shape);
    Replace r = {x, source, ex_cast(x, (DType)source->dt, ex_sub(x, ex_var(x, 0), ex_i(x, low)))};
    Op *last = t->g->last;
    Value *table = build_map(&b, (DType)e->dt, replaced(&r, e));
    if (!value_is_const(table) || t->n_in == t->cap) return NULL;
    for (Op *made; (made = last->next);) { /* builders append */
        graph_unlink(t->g, made);
        graph_insert_before(t->g, t->op, made);
    }
    t->in[t->n_in] = table;
    const Expr *at = ex_add(x, ex_cast(x, DT_i32, source), ex_i(x, low));
    return ex_load(x, table->dt, t->n_in++, 1, &at);
}

static const Expr *tabulated(Tables *t, const Expr *e) {
    if (e->n == 0 || e->op == EX_load) return e;
    MemoSlot *slot = memo_slot(&t->rewritten, e);
    if (slot->key) return slot->value;
    const Expr *source = source_of(t, e), *arg[3], *result = NULL;
    int cost = 0;
    if (source && source != &many && source != e) ex_visit(t->g->arena, e, add_cost, &cost);
    if (cost) { /* of what is above the source */
        int below = 0;
        ex_visit(t->g->arena, source, add_cost, &below);
        cost -= below;
    }
    if (cost >= MIN_COST) {
        const Expr *inner = tabulated(t, source);
        if (inner != source) { /* a new source: it has a table of its own below */
            Replace r = {t->g->x, source, inner};
            e = replaced(&r, e);
            source = inner;
        }
        result = table_load(t, e, source);
    }
    if (!result) {
        for (int i = 0; i < e->n; i++) arg[i] = tabulated(t, e->arg[i]);
        result = ex_rebuild(t->g->x, e, arg);
    }
    memo_set(&t->rewritten, e, result);
    return result;
}

static bool has_functions(Graph *g, const Expr *e) {
    int cost = 0;
    if (e) ex_visit(g->arena, e, add_cost, &cost);
    return cost >= MIN_COST;
}

void pass_tabulate(Graph *g, const PassOptions *o) {
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_tabulate(op->sub, o);
        if (op->kind != OP_map && op->kind != OP_reduce) continue;
        if (!has_functions(g, op->body) && !has_functions(g, op->post)) continue;
        Tables t = {.g = g, .op = op, .n_in = op->n_in, .cap = op->n_in + 4};
        t.in = ARENA_ARRAY(g->arena, t.cap, Value *);
        memcpy(t.in, op->in, (size_t)op->n_in * sizeof *op->in);
        t.source.arena = t.rewritten.arena = g->arena;
        const Expr *body = tabulated(&t, op->body);
        const Expr *post = op->post ? tabulated(&t, op->post) : NULL;
        memo_end(&t.rewritten);
        memo_end(&t.source);
        if (t.n_in == op->n_in) continue;
        op->body = body;
        op->post = post;
        op->in = t.in;
        op->n_in = t.n_in;
        graph_drop_inputs(g, op);
    }
}
