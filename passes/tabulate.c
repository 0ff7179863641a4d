/* tabulate: what functions make of few numbers becomes a constant.
 *
 * Builders fold operators of constants unless that would bloat the program: two rows of a hundred
 * numbers, added to a table, are computed in every run. Where functions follow, such as the cosines
 * of positions or of a window, or long sums, or elements are put into their places one by one, that
 * takes longer than to read the table; and where a product reads it, the weights of a convolution
 * too, only a constant is packed. So these are computed now, if they are no larger than SLOW_BYTES,
 * on targets with memory for them.
 */
#include "ir/constant.h"
#include "ir/interp.h"
#include "passes/passes.h"

#define SLOW_CYCLES 20                /* of an element */
#define SLOW_BYTES  ((size_t)1 << 20) /* of a table */
#define MOST_WORK   (1 << 22)         /* elements of an operator, times those it sums up */
#define MOST_BYTES  ((size_t)1 << 26) /* that all of them take meanwhile */

/* Of each value, by its number. */
typedef struct Late {
    bool known;       /* it is made of constants, but none itself */
    int cycles;       /* how slowly, in all */
    const void *data; /* what it is; NULL: not computed yet */
    Value *table;     /* the constant that is used for it */
} Late;

/* How slowly an element is computed of what the operator reads. */
static int cycles_of(Graph *g, const Op *op) {
    switch (op->kind) {
    case OP_reshape:
        return 0;
    case OP_scan:
    case OP_scatter: /* a kernel of its own, which no vectors help */
        return SLOW_CYCLES;
    default:
        break;
    }
    const int slow = ex_slow_cycles(g->arena, op->body);
    const int64_t terms = shape_numel(op->n_red, op->red);
    return slow < SLOW_CYCLES && terms >= SLOW_CYCLES ? SLOW_CYCLES : slow;
}

/* Is the operator one of constants that was not folded? */
static bool is_late(Graph *g, const Op *op, Late *late) {
    const Value *out = op->out[0];
    if (op->kind == OP_input || op->kind == OP_const || op->kind == OP_loop) return false;
    if (g->depth || op->n_out != 1 || dims_vary(out->rank, out->dims)) return false;
    int cycles = cycles_of(g, op);
    int64_t extent[MAX_RANK];
    int n = op->kind == OP_reshape ? 0 : op_extents(op, extent);
    if (shape_numel(n, extent) > MOST_WORK) return false;
    for (int i = 0; i < op->n_in; i++) {
        const Value *v = op->in[i];
        if (!late[v->id].known && (!value_is_const(v) || v->dt == DT_str)) return false;
        if (late[v->id].cycles > cycles) cycles = late[v->id].cycles;
    }
    late[out->id] = (Late){.known = true, .cycles = cycles};
    return true;
}

/* *bytes: what is taken so far. */
static const void *elements(Graph *g, Value *v, Late *late, size_t *bytes) {
    Late *l = &late[v->id];
    const Op *op = v->def;
    if (value_is_const(v)) return constant_settle(g->arena, v);
    if (l->data) return l->data;
    if (op->kind == OP_reshape) return elements(g, op->in[0], late, bytes);
    const void **in = ARENA_ARRAY(g->arena, op->n_in + 1, const void *);
    for (int i = 0; i < op->n_in; i++) in[i] = elements(g, op->in[i], late, bytes);
    void *data = arena_alloc(g->arena, value_bytes(v) + 1);
    *bytes += value_bytes(v);
    interp_op(g->arena, op, in, &data, NULL);
    return l->data = data;
}

void pass_tabulate(Graph *g, const PassOptions *o) {
    if (!o->target->vector_types && !o->target->blocks) return;
    Late *late = ARENA_ARRAY(g->arena, g->n_values + 1, Late);
    bool any = false;
    size_t bytes = 0;
    for (Op *op = g->first; op; op = op->next) {
        if (is_late(g, op, late)) continue;
        for (int i = 0; i < op->n_in; i++) {
            Value *v = op->in[i];
            Late *l = &late[v->id];
            if (!l->known || l->cycles < SLOW_CYCLES || value_bytes(v) > SLOW_BYTES) continue;
            if (!l->table && bytes > MOST_BYTES) continue;
            if (!l->table) {
                Op *last = g->last;
                l->table = graph_const(g, v->dt, v->rank, v->shape, elements(g, v, late, &bytes));
                l->table->name = v->name;
                graph_take_in(g, last, op);
            }
            op->in[i] = l->table;
            any = true;
        }
    }
    if (any) pass_dce(g, o);
}
