/* flush: constants that sums of products multiply with or add are 0 where they are less than all
 * normal floats, for targets of plain loops.
 *
 * Channels that died in training have such weights and biases, and with them all that is computed
 * of them is like that; many processors take a hundred cycles for a product of one, and some
 * runtimes have the processor take all such numbers for 0. What is lost is less than 2^-126 times
 * what they are multiplied with. Constants that are divided by or compared stay.
 */
#include "ir/constant.h"
#include "passes/passes.h"

#include <string.h>

#define MOST_ELEMENTS (1 << 22) /* of a constant; larger ones are not computed anew */

static bool has_subnormals(Graph *g, const Value *v) {
    bool any = false;
    if (value_numel(v) > MOST_ELEMENTS) return false;
    ConstantPieces c = constant_pieces(g->arena, v, CONSTANT_PIECE);
    while (constant_next(&c)) {
        const unsigned char *at = c.data;
        for (size_t i = 0; i < c.bytes; i += sizeof(uint32_t)) {
            uint32_t bits;
            memcpy(&bits, at + i, sizeof bits);
            any |= (bits & 0x7fffffff) - 1 < 0x007fffff; /* all but 0, which wraps around */
        }
    }
    return any;
}

/* The constant without them. */
static Value *flushed(Graph *g, Value *v) {
    Exprs *x = g->x;
    const Expr *e = constant_element(g, v), *least = ex_num(x, v->dt, 0x1p-126);
    const Expr *small = ex_and(x, ex_lt(x, e, least), ex_lt(x, ex_un(x, EX_neg, least), e));
    Value *out = constant_mapped(g, v, v->dt, ex_select(x, small, ex_num(x, v->dt, 0), e));
    out->name = v->name;
    graph_insert_before(g, v->def->next, out->def);
    return out;
}

/* Notes which inputs are loaded other than as factors or summands. */
static void note_others(const Expr *e, bool near, bool *others) {
    if (e->op == EX_load && !near) others[e->k.i] = true;
    near = (e->op == EX_add || e->op == EX_sub || e->op == EX_mul) && e->dt == DT_f32;
    for (int i = 0; i < e->n; i++) note_others(e->arg[i], near, others);
}

void pass_flush(Graph *g, const PassOptions *o) {
    if (o->target->blocks) return;
    int values = g->n_values;
    Value **twin = ARENA_ARRAY(g->arena, values, Value *); /* by value id; itself: all is well */
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_flush(op->sub, o);
        if (!op_is_product(op) || op->body->dt != DT_f32) continue;
        Value **in = arena_copy(g->arena, op->in, (size_t)op->n_in * sizeof *in);
        bool *others = ARENA_ARRAY(g->arena, op->n_in + 1, bool);
        note_others(op->body, false, others);
        note_others(op->post, false, others);
        for (int i = 0; i < op->n_in; i++) {
            Value *v = in[i];
            if (others[i] || !value_is_const(v) || v->dt != DT_f32 || v->id >= values) continue;
            if (!twin[v->id]) twin[v->id] = has_subnormals(g, v) ? flushed(g, v) : v;
            in[i] = twin[v->id];
        }
        op->in = in;
    }
    pass_dce(g, o);
}
