/* recode: what fuse has put together of encoded and decoded values.
 *
 * What depends on nothing but one byte is read from a table of its 256 values, where it costs more
 * than a load: between two quantised tensors an activation, with all the rounding around it, is
 * such a function. A byte that is decoded as soon as it is encoded is never wrapped. A factor of
 * what is encoded goes into the constants that the sum behind it is scaled with and added to.
 */
#include "ir/constant.h"
#include "ir/expr_memo.h"
#include "passes/passes.h"

#include <math.h>
#include <string.h>

#define MIN_COST    16 /* of what a table replaces: one function */
#define VALUES      256
#define MORE_INPUTS 8 /* that an operator gets at most */

typedef struct Tables {
    Graph *g;
    Op *op;
    Value **in; /* op's inputs to be */
    int n_in, cap;
    Memo source, rewritten;
} Tables;

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
    if (source == &many && dt_is_byte((DType)e->dt)) source = e;
    memo_set(&t->source, e, source);
    return source;
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
    bool fits = value_is_const(table) && t->n_in < t->cap;
    for (Op *made; (made = last->next);) { /* builders append */
        graph_unlink(t->g, made);
        if (fits) graph_insert_before(t->g, t->op, made);
    }
    if (!fits) return NULL;
    t->in[t->n_in] = table;
    const Expr *at = ex_add(x, ex_cast(x, DT_i32, source), ex_i(x, low));
    return ex_load(x, table->dt, t->n_in++, 1, &at);
}

static const Expr *tabulated(Tables *t, const Expr *e) {
    if (e->n == 0 || e->op == EX_load) return e;
    MemoSlot *slot = memo_slot(&t->rewritten, e);
    if (slot->key) return slot->value;
    const Expr *source = source_of(t, e), *arg[3], *result = NULL;
    bool widens = e->op == EX_cast && dt_is_int((DType)e->dt) && dt_is_byte((DType)e->arg[0]->dt);
    int cost = 0;
    if (source && source != &many && source != e && !widens) cost = ex_slow_cycles(t->g->arena, e);
    if (cost) cost -= ex_slow_cycles(t->g->arena, source); /* of what is above the source */
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

/* --- encoded and decoded at once -------------------------------------------------------------- */

/* Bounds of a clamped and rounded float as an integer, plus a constant; false if it is none. (NaN
 * is outside: nobody may rely on them for a place in memory.) */
static bool encoded_bounds(const Expr *e, int64_t *lo, int64_t *hi) {
    int64_t zero = 0;
    if (e->op == EX_add && ex_is_const(e->arg[1])) {
        zero = e->arg[1]->k.i;
        e = e->arg[0];
    }
    if (e->op != EX_cast || e->dt != DT_i32 || e->arg[0]->op != EX_round) return false;
    double low, high;
    ex_bounded(e->arg[0]->arg[0], &low, &high);
    if (!(low >= -1e6 && high <= 1e6 && low <= high)) return false;
    *lo = (int64_t)rint(low) + zero;
    *hi = (int64_t)rint(high) + zero;
    return true;
}

/* An element of a table after `rewrite` of what its place, which remains a byte, is encoded from;
 * other elements as they are. */
static const Expr *rewritten_place(Tables *t, const Expr *load,
                                   const Expr *(*rewrite)(Tables *, const Expr *)) {
    const Expr *byte = load->n == 1 ? load->arg[0] : load;
    while (!dt_is_byte((DType)byte->dt) && (byte->op == EX_cast || byte->op == EX_add) &&
           (byte->n == 1 || ex_is_const(byte->arg[1])))
        byte = byte->arg[0];
    if (byte->op != EX_cast || !dt_is_byte((DType)byte->dt)) return load;
    const Expr *from = rewrite(t, byte->arg[0]);
    Replace r = {t->g->x, byte, ex_rebuild(t->g->x, byte, &from)};
    return replaced(&r, load);
}

#define NEAR_ITSELF  0.25
#define MOST_FACTORS 4   /* and so large, ... */
#define LARGE_FACTOR 1e9 /* ... or the inverse: no product of them with a byte overflows */

/* The integer that `e` rounds and bounds, times factors that do not change which one is nearest, if
 * all integers that it may be lie within these bounds; NULL: it is no such thing. */
static const Expr *rounded_again(const Expr *e) {
    if (!ex_is_rounding(e)) return NULL;
    double low, high, factor = 1;
    int64_t lo, hi;
    const Expr *value = ex_bounded(e->arg[0]->arg[0], &low, &high);
    for (int i = 0; i < MOST_FACTORS && (value->op == EX_mul || value->op == EX_div) &&
                    ex_is_const(value->arg[1]);
         i++, value = value->arg[0]) {
        const double one = fabs(value->arg[1]->k.f);
        if (!(one >= 1 / LARGE_FACTOR && one <= LARGE_FACTOR)) return NULL;
        factor *= value->op == EX_mul ? value->arg[1]->k.f : 1 / value->arg[1]->k.f;
    }
    if (value->op != EX_cast || value->arg[0]->dt != DT_i32 ||
        !encoded_bounds(value->arg[0], &lo, &hi) || low > (double)lo || high < (double)hi)
        return NULL;
    const double most = fmax(fabs((double)lo), fabs((double)hi));
    if (most > 256) return NULL;
    return fabs(factor - 1) * most <= NEAR_ITSELF ? value->arg[0] : NULL;
}

/* A byte that is used as a number at once is the number that became the byte, and what is encoded
 * again as it was is what it was. */
static const Expr *unwrapped(Tables *t, const Expr *e) {
    if (e->op == EX_load) return rewritten_place(t, e, unwrapped);
    if (e->n == 0) return e;
    MemoSlot *slot = memo_slot(&t->rewritten, e);
    if (slot->key) return slot->value;
    const Expr *arg[3], *result = NULL;
    for (int i = 0; i < e->n; i++) arg[i] = unwrapped(t, e->arg[i]);
    int64_t lo, hi;
    if (e->op == EX_cast && (e->dt == DT_i32 || e->dt == DT_i16) && arg[0]->op == EX_cast &&
        dt_is_byte((DType)arg[0]->dt) && encoded_bounds(arg[0]->arg[0], &lo, &hi)) {
        int low = arg[0]->dt == DT_i8 ? -128 : 0;
        if (lo >= low && hi <= low + 255) result = ex_cast(t->g->x, (DType)e->dt, arg[0]->arg[0]);
    }
    if (!result) result = ex_rebuild(t->g->x, e, arg);
    const Expr *before = rounded_again(result);
    if (before) result = before;
    memo_set(&t->rewritten, e, result);
    return result;
}

/* --- factors ---------------------------------------------------------------------------------- */

/* A constant input times `factor`, as another input. */
static const Expr *scaled_load(Tables *t, const Expr *load, double factor) {
    Value *v = t->in[load->k.i];
    if (!value_is_const(v) || v->dt != DT_f32 || t->n_in == t->cap) return NULL;
    int64_t n = value_numel(v);
    float *data = ARENA_ARRAY(t->g->arena, n, float);
    const float *from = constant_settle(t->g->arena, v);
    for (int64_t i = 0; i < n; i++) {
        data[i] = (float)(from[i] * factor);
        if (!isfinite(data[i])) return NULL;
    }
    Op *op = graph_new_op(t->g, OP_const, 0, NULL, 1);
    Value *scaled = graph_new_value(t->g, op, 0, v->dt, v->rank, v->dims);
    scaled->data = data;
    op->src = v->def->src;
    graph_insert_before(t->g, t->op, op);
    t->in[t->n_in] = scaled;
    return ex_load(t->g->x, DT_f32, t->n_in++, load->n, load->arg);
}

static const Expr *scaled_const(Exprs *x, const Expr *e, double factor) {
    float value = (float)(e->k.f * factor);
    return isfinite(value) ? ex_num(x, DT_f32, value) : NULL;
}

/* e * factor, without a multiplication more than e has; NULL: there is no such form, or a constant
 * in it would be beyond all floats. */
static const Expr *scaled(Tables *t, const Expr *e, double factor) {
    Exprs *x = t->g->x;
    if (e->dt != DT_f32) return NULL;
    if (ex_is_const(e)) return scaled_const(x, e, factor);
    if (e->op == EX_load) return scaled_load(t, e, factor);
    if (e->op == EX_mul)
        for (int i = 1; i >= 0; i--) {
            const Expr *part = scaled(t, e->arg[i], factor);
            if (part) return ex_mul(x, e->arg[1 - i], part);
        }
    if ((e->op == EX_min || e->op == EX_max) && ex_is_const(e->arg[1]) && factor > 0) {
        const Expr *bound = scaled_const(x, e->arg[1], factor);
        const Expr *inside = bound ? scaled(t, e->arg[0], factor) : NULL;
        return inside ? ex_bin(x, (ExprOp)e->op, inside, bound) : NULL;
    }
    if (e->op != EX_add) return NULL;
    const Expr *a = scaled(t, e->arg[0], factor);
    const Expr *b = a ? scaled(t, e->arg[1], factor) : NULL;
    return b ? ex_add(x, a, b) : NULL;
}

/* Puts factors of what is rounded where they cost nothing. */
static const Expr *without_factors(Tables *t, const Expr *e) {
    if (e->op == EX_load) return rewritten_place(t, e, without_factors);
    if (e->n == 0) return e;
    MemoSlot *slot = memo_slot(&t->rewritten, e);
    if (slot->key) return slot->value;
    const Expr *arg[3];
    for (int i = 0; i < e->n; i++) arg[i] = without_factors(t, e->arg[i]);
    if (e->op == EX_max && ex_is_const(arg[1]) && arg[0]->op == EX_mul && arg[0]->dt == DT_f32 &&
        ex_is_const(arg[0]->arg[1])) {
        const Expr *small = scaled(t, arg[0]->arg[0], arg[0]->arg[1]->k.f);
        if (small) arg[0] = small;
    }
    const Expr *result = ex_rebuild(t->g->x, e, arg);
    memo_set(&t->rewritten, e, result);
    return result;
}

static const Expr *rewritten(Tables *t, const Expr *e,
                             const Expr *(*rewrite)(Tables *, const Expr *)) {
    t->source = t->rewritten = (Memo){.arena = t->g->arena};
    e = rewrite(t, e);
    memo_end(&t->rewritten);
    memo_end(&t->source);
    return e;
}

/* Does the operator compute with sums of products: its own, or those that `strassen` adds up? */
static bool has_sums(const Op *op) {
    bool sums = op->kind == OP_reduce;
    for (int i = 0; i < op->n_in; i++)
        sums |= op->in[i]->dt == DT_i32 && !value_is_const(op->in[i]);
    return sums;
}

static const Expr *part_done(Tables *t, const Expr *e, bool functions) {
    if (!e) return NULL;
    if (functions) e = rewritten(t, e, tabulated);
    const Expr *before = e;
    e = rewritten(t, e, unwrapped);
    if (has_sums(t->op)) e = rewritten(t, e, without_factors);
    if (e == before) return e;
    int64_t extent[MAX_RANK];
    int n = op_extents(t->op, extent);
    return ex_simplify(t->g->x, e, n, extent);
}

static void note_work(void *user, const Expr *e) {
    *(bool *)user |= e->op == EX_cast && dt_is_byte((DType)e->dt);
}

void pass_recode(Graph *g, const PassOptions *o) {
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_recode(op->sub, o);
        if (op->kind != OP_map && op->kind != OP_reduce) continue;
        int cost = 0;
        bool bytes = false;
        for (int i = 0; i < op->n_in; i++) bytes |= dt_store(op->in[i]->dt) == 1;
        const Expr *part[2] = {op->body, op->post};
        for (int i = 0; i < 2; i++)
            if (part[i]) {
                cost += ex_slow_cycles(g->arena, part[i]);
                ex_visit(g->arena, part[i], note_work, &bytes);
            }
        if (!bytes) continue;
        Tables t = {.g = g, .op = op, .n_in = op->n_in, .cap = op->n_in + MORE_INPUTS};
        t.in = ARENA_ARRAY(g->arena, t.cap, Value *);
        memcpy(t.in, op->in, (size_t)op->n_in * sizeof *op->in);
        op->body = part_done(&t, op->body, cost >= MIN_COST);
        op->post = part_done(&t, op->post, cost >= MIN_COST);
        op->in = t.in;
        op->n_in = t.n_in;
        graph_drop_inputs(g, op);
    }
}
