/* signs: tensors of bytes that a model encodes and reads again have the sign that the target's
 * products want of their rows (target_row_bytes).
 *
 * Of unsigned bytes q, q - 128 is kept as signed ones, or the other way round. Encoding adds
 * another zero point, decoding subtracts it, and what only moves bytes, or finds the largest, moves
 * the new ones: nothing is computed in between, which would be so if `integer` converted what a
 * product reads.
 */
#include "ir/expr_memo.h"
#include "passes/passes.h"

typedef struct Signs {
    Graph *g;
    DType from, to;
    int by;     /* what is added to an element */
    bool *turn; /* by value id: it gets the other type */
    int values;
    const Op *op; /* at work */
    Memo done;
} Signs;

static bool turns(const Signs *s, const Value *v) {
    return v->id < s->values && s->turn[v->id];
}

static bool loads_turned(const Signs *s, const Expr *e) {
    return e->op == EX_load && (DType)e->dt == s->from && turns(s, s->op->in[e->k.i]);
}

/* --- which ------------------------------------------------------------------------------------ */

/* Is `e` encoded, or moved from what is, wherever it comes from? Constants may stand between. */
static bool is_coded(const Signs *s, const Expr *e) {
    if (e->op == EX_select)
        return (is_coded(s, e->arg[1]) || ex_is_const(e->arg[1])) &&
               (is_coded(s, e->arg[2]) || ex_is_const(e->arg[2]));
    if (e->op == EX_load) return loads_turned(s, e);
    if (e->op != EX_cast || (DType)e->dt != s->from) return false;
    e = e->arg[0];
    if (e->op == EX_add && ex_is_const(e->arg[1])) e = e->arg[0];
    return e->op == EX_cast && e->dt == DT_i32 && e->arg[0]->op == EX_round;
}

/* Is it the largest or smallest of a window of such bytes? */
static bool is_extreme(const Signs *s) {
    const Op *op = s->op;
    const Expr *e = op->body;
    if (op->kind != OP_reduce || (op->combine != COMBINE_max && op->combine != COMBINE_min))
        return false;
    return e->op == EX_cast && loads_turned(s, e->arg[0]) && op->post->op == EX_cast &&
           (DType)op->post->dt == s->from && op->post->arg[0]->op == EX_acc;
}

static const Expr *result_of(const Op *op) {
    return op->kind == OP_reduce ? op->post : op->body;
}

static bool can_turn(Signs *s, const Op *op) {
    if (op->n_out != 1 || op->out[0]->dt != s->from || op->out[0]->id >= s->values) return false;
    s->op = op;
    if (op->kind == OP_reshape) return turns(s, op->in[0]);
    if (op->kind != OP_map && op->kind != OP_reduce) return false;
    return is_extreme(s) || is_coded(s, result_of(op));
}

/* Values stay as they are that others read, or that the model gives. */
static void keep(Signs *s, Value *v, bool *changed) {
    if (!turns(s, v)) return;
    s->turn[v->id] = false;
    *changed = true;
}

/* What is multiplied with parts of bytes stays as it is: those are the unsigned factor. */
static void keep_factor(void *user, const Expr *e) {
    const Signs *s = user;
    if (e->op != EX_mul || e->dt != DT_i32) return;
    for (int i = 0; i < 2; i++)
        if (e->arg[i]->op == EX_cast && loads_turned(s, e->arg[i]->arg[0]) &&
            e->arg[1 - i]->op == EX_band)
            s->turn[s->op->in[e->arg[i]->arg[0]->k.i]->id] = false;
}

static bool choose(Signs *s) {
    Graph *g = s->g;
    bool any = false, changed = true;
    for (Op *op = g->first; op; op = op->next)
        if (can_turn(s, op)) any = s->turn[op->out[0]->id] = true;
    for (s->op = g->first; s->op && any; s->op = s->op->next)
        if (s->op->kind == OP_reduce) ex_visit(g->arena, s->op->body, keep_factor, s);
    while (any && changed) {
        changed = false;
        for (int i = 0; i < g->outputs.n; i++) keep(s, g->outputs.items[i], &changed);
        for (Op *op = g->first; op; op = op->next) {
            const bool reads = op->kind == OP_map || op->kind == OP_reduce,
                       moves = op->kind == OP_reshape;
            if (op->n_out == 1 && turns(s, op->out[0]) && !can_turn(s, op))
                keep(s, op->out[0], &changed);
            for (int i = 0; i < op->n_in; i++)
                if (!reads && !(moves && turns(s, op->out[0]))) keep(s, op->in[i], &changed);
        }
    }
    return any;
}

/* --- turning ---------------------------------------------------------------------------------- */

static const Expr *with_others(Signs *s, const Expr *e);

/* The load of a turned element, and what it was as an integer. */
static const Expr *turned_load(Signs *s, const Expr *load) {
    const Expr **at = ARENA_ARRAY(s->g->arena, load->n + 1, const Expr *);
    for (int i = 0; i < load->n; i++) at[i] = with_others(s, load->arg[i]);
    return ex_load(s->g->x, s->to, (int)load->k.i, load->n, at);
}

static const Expr *integer_of(Signs *s, const Expr *load) {
    Exprs *x = s->g->x;
    return ex_add(x, ex_cast(x, DT_i32, turned_load(s, load)), ex_i(x, -s->by));
}

/* `e` with what it loads as it was. */
static const Expr *with_others(Signs *s, const Expr *e) {
    Exprs *x = s->g->x;
    if (e->n == 0 && !loads_turned(s, e)) return e; /* a scalar's load has no operands, either */
    MemoSlot *slot = memo_slot(&s->done, e);
    if (slot->key) return slot->value;
    const Expr *result;
    if (loads_turned(s, e)) {
        result = ex_cast(x, s->from, integer_of(s, e));
    } else if (e->op == EX_cast && loads_turned(s, e->arg[0]) && !dt_is_narrow((DType)e->dt)) {
        result = ex_cast(x, (DType)e->dt, integer_of(s, e->arg[0]));
    } else {
        const Expr **arg = ARENA_ARRAY(s->g->arena, e->n, const Expr *);
        for (int i = 0; i < e->n; i++) arg[i] = with_others(s, e->arg[i]);
        result = ex_rebuild(x, e, arg);
    }
    memo_set(&s->done, e, result);
    return result;
}

/* What becomes of an element that is `e`. */
static const Expr *turned(Signs *s, const Expr *e) {
    Exprs *x = s->g->x;
    const Expr *by = ex_i(x, s->by);
    if (e->op == EX_select)
        return ex_select(x, with_others(s, e->arg[0]), turned(s, e->arg[1]), turned(s, e->arg[2]));
    if (loads_turned(s, e)) return turned_load(s, e);
    if (e->op == EX_cast && e->arg[0]->dt == DT_i32)
        return ex_cast(x, s->to, ex_add(x, with_others(s, e->arg[0]), by));
    return ex_cast(x, s->to, ex_add(x, ex_cast(x, DT_i32, with_others(s, e)), by));
}

static void turn_operator(Signs *s, Op *op) {
    Exprs *x = s->g->x;
    s->op = op;
    s->done = (Memo){.arena = s->g->arena};
    const bool own = turns(s, op->out[0]);
    if (own && is_extreme(s)) {
        const Expr *load = turned(s, op->body->arg[0]);
        op->body = ex_cast(x, DT_i32, load);
        op->post = ex_cast(x, s->to, ex_acc(x, DT_i32));
    } else if (op->kind == OP_reduce) {
        op->body = with_others(s, op->body);
        op->post = own ? turned(s, op->post) : with_others(s, op->post);
    } else if (op->kind == OP_map) {
        op->body = own ? turned(s, op->body) : with_others(s, op->body);
    }
    if (own) op->out[0]->dt = s->to;
    memo_end(&s->done);
}

void pass_signs(Graph *g, const PassOptions *o) {
    if (o->target->blocks || !o->target->byte_products) return;
    const DType to = target_row_bytes(o->target);
    Signs s = {.g = g, .to = to, .from = to == DT_u8 ? DT_i8 : DT_u8, .values = g->n_values};
    s.by = to == DT_u8 ? 128 : -128;
    s.turn = ARENA_ARRAY(g->arena, s.values, bool);
    for (Op *op = g->first; op; op = op->next)
        if (op->sub) pass_signs(op->sub, o);
    if (!choose(&s)) return;
    for (Op *op = g->first; op; op = op->next)
        if (op->kind == OP_map || op->kind == OP_reduce || op->kind == OP_reshape)
            turn_operator(&s, op);
}
