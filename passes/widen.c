/* widen: what a product reads over and over is stored in the type it is computed in.
 *
 * A product of half floats decodes each operand at every multiply-add. Where the target has no
 * instruction for that, the operand is decoded once, into a tensor of its own; constants when
 * compiling. It runs before fuse, which joins the decoding with whatever makes the operand.
 *
 * Large constants that are read once or a few times come from memory, which takes longer than to
 * decode them: those stay narrow where vectors of them are decoded by an instruction. So do states
 * that grow by what is scattered into them: decoded they would be copied whole in each run.
 */
#include "ir/constant.h"
#include "ir/target.h"
#include "passes/inline.h"
#include "passes/passes.h"

typedef struct Widen {
    Graph *g;
    const Op *op;
    Value **wide; /* by value id: the widened value, once made */
    bool bad;     /* a narrow load that is not simply cast */
} Widen;

static bool is_narrow_float(DType dt) {
    return dt_is_float(dt) && dt_is_narrow(dt);
}

static void check_use(void *user, const Expr *e) {
    Widen *w = user;
    for (int i = 0; i < e->n; i++) {
        const Expr *a = e->arg[i];
        bool narrow = a->op == EX_load && is_narrow_float((DType)a->dt);
        if (narrow && (e->op != EX_cast || e->dt != dt_reg((DType)a->dt))) w->bad = true;
    }
}

static Value *widened(Widen *w, Op *before, Value *v) {
    if (w->wide[v->id]) return w->wide[v->id];
    Graph *g = w->g;
    DType reg = dt_reg(v->dt);
    Op *op;
    if (value_is_const(v)) {
        op = constant_cast(g, v, reg)->def;
    } else {
        const Expr *index[MAX_RANK];
        op = graph_new_op(g, OP_map, 1, &v, 1);
        graph_new_value(g, op, 0, reg, v->rank, v->dims);
        for (int i = 0; i < v->rank; i++) index[i] = ex_var(g->x, i);
        op->body = ex_cast(g->x, reg, ex_load(g->x, v->dt, 0, v->rank, index));
        op->src = v->def->src;
    }
    /* right behind what makes it: others may use it before this product does */
    graph_insert_before(g, v->def->next ? v->def->next : before, op);
    return w->wide[v->id] = op->out[0];
}

#define FEW_TIMES 4 /* that a constant is read */

/* Is it a state, or one that is only moved? */
static bool is_state(const Graph *g, const Value *v) {
    while ((v->def->kind == OP_map && v->def->body->op == EX_load && v->def->n_in == 1) ||
           v->def->kind == OP_reshape)
        v = v->def->in[0];
    return v->def->kind == OP_scatter && scattered_state(g, v) != NULL;
}

static bool stays_narrow(const Graph *g, const Target *t, const Op *op, const Value *v) {
    if (t->half_vectors && (v->dt == DT_f16 || v->dt == DT_bf16) && is_state(g, v)) return true;
    int64_t products = value_numel(op->out[0]) * shape_numel(op->n_red, op->red);
    return t->half_vectors && (v->dt == DT_f16 || v->dt == DT_bf16) && value_is_const(v) &&
           (int64_t)value_bytes(v) > t->l2_bytes && products <= FEW_TIMES * value_numel(v);
}

static const Expr *wide_leaf(void *user, const Expr *e, const Expr *const *args) {
    Widen *w = user;
    if (e->op != EX_load) return e;
    /* the cast around it falls away when it is rebuilt */
    return ex_load(w->g->x, w->op->in[e->k.i]->dt, (int)e->k.i, e->n, args);
}

void pass_widen(Graph *g, const PassOptions *o) {
    if (o->target->half_floats) return;
    Widen w = {.g = g};
    int values = g->n_values;
    w.wide = ARENA_ARRAY(g->arena, values, Value *);
    graph_count_uses(g);
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_widen(op->sub, o);
        if (op->kind != OP_reduce || op->body->op != EX_mul) continue;
        w.op = op;
        w.bad = false;
        bool any = false;
        for (int i = 0; i < op->n_in; i++) any |= is_narrow_float(op->in[i]->dt);
        ex_visit(g->arena, op->body, check_use, &w);
        ex_visit(g->arena, op->post, check_use, &w);
        if (!any || w.bad) continue;
        for (int i = 0; i < op->n_in; i++)
            if (is_narrow_float(op->in[i]->dt) && op->in[i]->id < values &&
                !stays_narrow(g, o->target, op, op->in[i]))
                op->in[i] = widened(&w, op, op->in[i]);
        op->body = ex_rewrite(g->x, op->body, wide_leaf, &w);
        op->post = ex_rewrite(g->x, op->post, wide_leaf, &w);
    }
}
