/* fixed: what is rounded of a sum of integers times constants is computed in integers, with so many
 * bits behind the point, for targets that have no instructions for floats.
 *
 * Between quantised tensors that is all there is: sums of products times the scale of a channel,
 * residuals that are added, means. A Cortex-M3, which has no floating-point unit, takes some 230
 * instructions less for each element of a network of convolutions. What is computed is the sum
 * itself, rounded once to nearest, ties to even; floats round on the way there, so that in a few of
 * a million elements, which lie half way between two integers but for such an error, results are
 * one apart.
 */
#include "ir/constant.h"
#include "ir/expr_memo.h"
#include "passes/passes.h"

#include <math.h>

#define MOST_TERMS    4
#define MOST_ELEMENTS 65536  /* of a constant of scales */
#define ANY           0x1p31 /* bound of an integer of which nothing is known */
#define LONGEST       64     /* expressions of more nodes are not looked into for bounds */
#define ERROR_OF_WORD 0x1p-9 /* by which a sum in 32 bits may be wrong */
#define ERROR         0x1p-6 /* ... in 64, if integers are as large as their types allow */

typedef struct Fixed {
    Graph *g;
    Op *op;
    VEC(Value *) in; /* op's inputs to be */
    Memo done;
} Fixed;

/* value * scale * the constant that `load`, if not NULL, reads. */
typedef struct Term {
    const Expr *value; /* of i32; NULL: 1 */
    const Expr *load;
    double scale;
} Term;

typedef struct Sum {
    Term term[MOST_TERMS];
    int n;
    double plus;
} Sum;

/* --- reading ---------------------------------------------------------------------------------- */

static bool is_scales(const Fixed *f, const Expr *e) {
    if (e->op != EX_load || e->dt != DT_f32) return false;
    Value *v = f->in.items[e->k.i];
    return value_is_const(v) && value_numel(v) <= MOST_ELEMENTS;
}

static bool add_term(Sum *s, const Expr *value, const Expr *load, double scale) {
    if (s->n == MOST_TERMS) return false;
    s->term[s->n++] = (Term){value, load, scale};
    return true;
}

/* Adds e * scale * load to the sum; false if it is none of integers times constants. */
static bool read_sum(const Fixed *f, const Expr *e, double scale, const Expr *load, Sum *s) {
    if (e->dt != DT_f32) return false;
    if (is_scales(f, e)) return !load && add_term(s, NULL, e, scale);
    switch ((ExprOp)e->op) {
    case EX_const:
        if (load) return add_term(s, NULL, load, scale * e->k.f);
        s->plus += scale * e->k.f;
        return true;
    case EX_cast:
        return e->arg[0]->dt == DT_i32 && add_term(s, e->arg[0], load, scale);
    case EX_neg:
        return read_sum(f, e->arg[0], -scale, load, s);
    case EX_add:
    case EX_sub:
        return read_sum(f, e->arg[0], scale, load, s) &&
               read_sum(f, e->arg[1], e->op == EX_sub ? -scale : scale, load, s);
    case EX_div:
        return ex_is_const(e->arg[1]) && e->arg[1]->k.f != 0 &&
               read_sum(f, e->arg[0], scale / e->arg[1]->k.f, load, s);
    case EX_mul:
        for (int i = 0; i < 2; i++) {
            const Expr *by = e->arg[i], *rest = e->arg[1 - i];
            if (ex_is_const(by)) return read_sum(f, rest, scale * by->k.f, load, s);
            if (!load && is_scales(f, by)) return read_sum(f, rest, scale, by, s);
        }
        return false;
    default:
        return false;
    }
}

/* --- bounds ----------------------------------------------------------------------------------- */

/* Infinite if any element is that, or NaN. */
static double largest_element(const Fixed *f, Value *v) {
    const void *data = constant_settle(f->g->arena, v);
    double most = 0;
    for (int64_t i = 0; i < value_numel(v); i++) {
        const double e =
            v->dt == DT_f32 ? (double)((const float *)data)[i] : (double)((const int32_t *)data)[i];
        if (!isfinite(e)) return HUGE_VAL;
        most = fmax(most, fabs(e));
    }
    return most;
}

static double largest_of_type(DType dt) {
    return dt_is_int(dt) && dt_bits(dt) < 32 ? ldexp(1, dt_bits(dt)) : ANY;
}

/* What an integer is at most, or its negative. */
static double largest(const Fixed *f, const Expr *e) {
    double a = ANY, b = ANY, most = largest_of_type((DType)e->dt);
    if (e->size > LONGEST) return most;
    if (ex_is_rounding(e)) {
        ex_bounded(e->arg[0]->arg[0], &a, &b);
        return fmin(most, rint(fmax(fabs(a), fabs(b))));
    }
    if (e->op != EX_load)
        for (int i = 0; i < e->n && i < 2; i++)
            *(i ? &b : &a) = dt_is_int((DType)e->arg[i]->dt) ? largest(f, e->arg[i]) : ANY;
    switch ((ExprOp)e->op) {
    case EX_const:
        return fabs((double)e->k.i);
    case EX_load: {
        Value *v = f->in.items[e->k.i];
        if (e->dt == DT_i32 && value_is_const(v) && value_numel(v) <= MOST_ELEMENTS)
            return largest_element(f, v);
        return most;
    }
    case EX_acc:
        a = largest(f, f->op->body);
        if (f->op->combine == COMBINE_sum)
            return fmin(most, a * (double)shape_numel(f->op->n_red, f->op->red));
        return f->op->combine == COMBINE_max || f->op->combine == COMBINE_min ? a : most;
    case EX_cast:
    case EX_neg:
        return fmin(most, a);
    case EX_add:
    case EX_sub:
        return fmin(most, a + b);
    case EX_mul:
        return fmin(most, a * b);
    default:
        return most;
    }
}

/* What the sum is made of, at most. */
typedef struct Bounds {
    double all, integers, scale; /* the sum, its integers, the scales of these */
    int n;                       /* numbers that are rounded: what is added, too */
} Bounds;

static Bounds bounds_of(const Fixed *f, const Sum *s) {
    Bounds b = {.all = fabs(s->plus), .n = 1};
    for (int i = 0; i < s->n; i++) {
        const Term *t = &s->term[i];
        double scale = fabs(t->scale), value = t->value ? largest(f, t->value) : 1;
        if (t->load) scale *= largest_element(f, f->in.items[t->load->k.i]);
        b.all += value * scale;
        if (t->value) {
            b.integers += value;
            b.scale = fmax(b.scale, scale);
        } else {
            b.n++;
        }
    }
    return b;
}

/* How many bits behind the point leave room for the sum in a type, and for its scales in an i32. */
static int bits_behind(const Bounds *b, DType dt) {
    int all, scale;
    frexp(b->all + 2, &all);
    frexp(b->scale, &scale);
    const int room = (int)dt_bits(dt) - 2 - all;
    return room < 30 - scale ? room : 30 - scale;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* An integer near to scale * 2^bits times the constant that is loaded, or alone. */
static const Expr *fixed_constant(Fixed *f, const Term *t, DType dt, int bits) {
    Exprs *x = f->g->x;
    const double by = ldexp(t->scale, bits);
    if (!t->load) return ex_int(x, dt, (int64_t)rint(by));
    Value *v = f->in.items[t->load->k.i];
    const DType stored = t->value ? DT_i32 : dt;
    const Expr *e = ex_cast(x, DT_f64, constant_element(f->g, v));
    e = ex_un(x, EX_round, ex_mul(x, e, ex_num(x, DT_f64, by)));
    Value *made = constant_mapped(f->g, v, stored, ex_cast(x, stored, e));
    graph_insert_before(f->g, f->op, made->def);
    vec_push(f->g->arena, &f->in, made);
    return ex_cast(x, dt, ex_load(x, stored, f->in.n - 1, t->load->n, t->load->arg));
}

static const Expr *in_integers(Fixed *f, const Expr *e);

/* The integer nearest to the sum. */
static const Expr *rounded_sum(Fixed *f, const Sum *s, DType dt, int bits) {
    Exprs *x = f->g->x;
    const Expr *all = ex_int(x, dt, (int64_t)rint(ldexp(s->plus, bits))), *one = ex_int(x, dt, 1);
    for (int i = 0; i < s->n; i++) {
        const Term *t = &s->term[i];
        const Expr *part = fixed_constant(f, t, dt, bits);
        if (t->value) part = ex_mul(x, ex_cast(x, dt, in_integers(f, t->value)), part);
        all = ex_add(x, all, part);
    }
    /* less than a half is added to what is even, a half to what is odd */
    const Expr *by = ex_int(x, dt, bits), *half = ex_int(x, dt, ((int64_t)1 << (bits - 1)) - 1);
    const Expr *odd = ex_bin(x, EX_band, ex_bin(x, EX_shr, all, by), one);
    all = ex_add(x, all, ex_add(x, half, odd));
    return ex_cast(x, DT_i32, ex_bin(x, EX_shr, all, by));
}

/* `e`, a sum that is rounded between bounds, in integers; NULL: it is none, or its terms are of
 * sizes too different for that. */
static const Expr *fixed_rounding(Fixed *f, const Expr *e) {
    if (!ex_is_rounding(e)) return NULL;
    Exprs *x = f->g->x;
    double low, high;
    const Expr *value = ex_bounded(e->arg[0]->arg[0], &low, &high);
    Sum s = {.n = 0};
    if (!read_sum(f, value, 1, NULL, &s)) return NULL;
    const Bounds b = bounds_of(f, &s);
    if (b.integers == 0 || !(b.all < 0x1p31)) return NULL; /* NaN as well */
    for (int wide = 0; wide < 2; wide++) {
        const DType dt = wide ? DT_i64 : DT_i32;
        const int bits = bits_behind(&b, dt);
        if (bits < 1 || ldexp(b.integers + b.n, -bits - 1) > (wide ? ERROR : ERROR_OF_WORD))
            continue;
        const Expr *whole = rounded_sum(f, &s, dt, bits);
        whole = ex_bin(x, EX_max, whole, ex_i(x, (int64_t)rint(low)));
        whole = ex_bin(x, EX_min, whole, ex_i(x, (int64_t)rint(high)));
        return whole;
    }
    return NULL;
}

static const Expr *in_integers(Fixed *f, const Expr *e) {
    if (e->n == 0) return e;
    MemoSlot *slot = memo_slot(&f->done, e);
    if (slot->key) return slot->value;
    const Expr *result = fixed_rounding(f, e);
    if (!result) {
        const Expr **arg = ARENA_ARRAY(f->g->arena, e->n, const Expr *);
        for (int i = 0; i < e->n; i++) arg[i] = in_integers(f, e->arg[i]);
        result = ex_rebuild(f->g->x, e, arg);
    }
    memo_set(&f->done, e, result);
    return result;
}

static void note_rounding(void *user, const Expr *e) {
    *(bool *)user |= ex_is_rounding(e);
}

void pass_fixed(Graph *g, const PassOptions *o) {
    if (!o->target->soft_floats) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_fixed(op->sub, o);
        bool rounds = false;
        if (op->kind != OP_map && op->kind != OP_reduce) continue;
        ex_visit(g->arena, op->body, note_rounding, &rounds);
        if (op->post) ex_visit(g->arena, op->post, note_rounding, &rounds);
        if (!rounds) continue;
        Fixed f = {.g = g, .op = op};
        for (int i = 0; i < op->n_in; i++) vec_push(g->arena, &f.in, op->in[i]);
        f.done = (Memo){.arena = g->arena};
        if (op->post) op->post = in_integers(&f, op->post); /* bounds are those of the body */
        op->body = in_integers(&f, op->body);
        memo_end(&f.done);
        op->in = f.in.items;
        op->n_in = f.in.n;
        graph_drop_inputs(g, op);
    }
}
