/* Dimensions that vary; see dim.h. */
#include "ir/dim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Expression number k is FIRST + k * STEP, and what differs from it by less than half a STEP is it
 * plus a constant. */
#define FIRST     (-((int64_t)0x2d4c4d << 40))
#define STEP      ((int64_t)1 << 24)
#define MAX_DIMS  65536
#define MAX_TERMS 64

typedef struct Interval {
    double low, high;
} Interval;

/* What was found of an expression. They are shared: walks over them as trees would not end. */
typedef struct Known {
    const Expr *key;    /* NULL: free */
    const Expr *normal; /* NULL: not asked for yet */
    const Expr *i32;    /* as_i32; NULL: not asked for yet, or there is none */
    enum { BOUNDS_unasked, BOUNDS_none, BOUNDS_known } bounds;
    Interval interval;
    int fits;   /* 0: not asked for yet; 1: it does; -1 */
    bool asked; /* is `decided` known? */
    int decided;
} Known;

struct Dims {
    VEC(const Expr *) expr;
    VEC(DimSymbol) symbol;
    VEC(DimClaim) claim;
    Known *known;
    uint32_t n_known, cap;
};

bool dim_varies(int64_t d) {
    return d >= FIRST - STEP / 2 && d < FIRST + MAX_DIMS * STEP;
}

bool dims_vary(int rank, const int64_t *dims) {
    for (int i = 0; i < rank; i++)
        if (dim_varies(dims[i])) return true;
    return false;
}

bool dims_fit(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
    if (rank_a != rank_b) return false;
    for (int i = 0; i < rank_a; i++)
        if (!dim_fits(a[i], b[i])) return false;
    return true;
}

static Known *known_slot(const struct Dims *d, const Expr *e) {
    uint32_t at = e->hash & (d->cap - 1);
    while (d->known[at].key && d->known[at].key != e) at = (at + 1) & (d->cap - 1);
    return &d->known[at];
}

/* The entry of an expression, which stays where it is until the next one is asked for. */
static Known *known_of(const Exprs *x, const Expr *e) {
    struct Dims *d = x->dims;
    if (d->n_known * 2 >= d->cap) {
        struct Dims old = *d;
        d->cap = old.cap ? old.cap * 2 : 256;
        d->known = ARENA_ARRAY(x->arena, d->cap, Known);
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.known[i].key) *known_slot(d, old.known[i].key) = old.known[i];
    }
    Known *known = known_slot(d, e);
    if (!known->key) d->n_known++;
    known->key = e;
    return known;
}

/* --- bounds ----------------------------------------------------------------------------------- */

static bool interval(const Exprs *x, const Expr *e, Interval *to);

static Interval around(const double *value, int n) {
    Interval to = {value[0], value[0]};
    for (int i = 1; i < n; i++) {
        if (value[i] < to.low) to.low = value[i];
        if (value[i] > to.high) to.high = value[i];
    }
    return to;
}

/* Are all of these, rounded, integers of the type? */
static bool holds(DType dt, Interval a) {
    const bool is_signed = dt_kind(dt) == DK_sint;
    const double end = ldexp(1, dt_bits(dt) - is_signed);
    return a.low >= (is_signed ? -end : 0) && a.high < end;
}

/* A function that never falls, at both ends. */
static Interval rising(const Expr *e, Interval a) {
    DType from = (DType)e->arg[0]->dt, dt = (DType)e->dt;
    double end[2] = {a.low, a.high};
    for (int i = 0; i < 2; i++) {
        Scalar at = {.f = end[i]};
        if (!dt_is_float(from)) at.i = (int64_t)end[i];
        Scalar value = ex_apply((ExprOp)e->op, dt, from, &at);
        end[i] = dt_is_float(dt) ? value.f : (double)value.i;
    }
    return around(end, 2);
}

/* f32 results count rounded and, for a compiler may join a product and a sum, as they are. */
static bool interval_of_two(const Expr *e, Interval a, Interval b, Interval *to) {
    double corner[8] = {a.low, a.low, a.high, a.high}, other[4] = {b.low, b.high, b.low, b.high};
    bool is_float = dt_is_float((DType)e->dt);
    for (int i = 0; i < 4; i++) {
        double l = corner[i], r = other[i];
        switch ((ExprOp)e->op) {
        case EX_add:
            corner[i] = l + r;
            break;
        case EX_sub:
            corner[i] = l - r;
            break;
        case EX_mul:
            corner[i] = l * r;
            break;
        case EX_min:
            corner[i] = l < r ? l : r;
            break;
        case EX_max:
            corner[i] = l > r ? l : r;
            break;
        case EX_div:
            if (b.low <= 0) return false;
            corner[i] = is_float ? l / r : (double)((int64_t)l / (int64_t)r);
            break;
        case EX_rem:
            if (b.low <= 0) return false;
            corner[i] = i < 2                 ? (a.low < 0 ? 1 - b.high : 0)
                        : a.high < b.high - 1 ? a.high
                                              : b.high - 1;
            break;
        default:
            return false;
        }
    }
    for (int i = 0; i < 4; i++)
        corner[4 + i] = e->dt == DT_f32 ? (double)(float)corner[i] : corner[i];
    *to = around(corner, 8);
    return true;
}

static int decided(const Exprs *x, const Expr *e);

static int find_decided(const Exprs *x, const Expr *e) {
    if (e->op == EX_not) {
        const int a = decided(x, e->arg[0]);
        return a < 0 ? -1 : !a;
    }
    if (e->op == EX_and || e->op == EX_or) {
        int a = decided(x, e->arg[0]), b = decided(x, e->arg[1]), settles = e->op == EX_or;
        return a == settles || b == settles ? settles : a < 0 || b < 0 ? -1 : !settles;
    }
    Interval a, b;
    bool equal = e->op == EX_eq || e->op == EX_ne;
    if ((e->op != EX_lt && e->op != EX_le && !equal) || !interval(x, e->arg[0], &a) ||
        !interval(x, e->arg[1], &b))
        return -1;
    if (equal) {
        if (a.high < b.low || b.high < a.low) return e->op == EX_ne;
        return a.low == a.high && b.low == b.high && a.low == b.low ? e->op == EX_eq : -1;
    }
    bool strict = e->op == EX_lt;
    if (strict ? a.high < b.low : a.high <= b.low) return 1;
    return (strict ? a.low >= b.high : a.low > b.high) ? 0 : -1;
}

/* 1 if a condition always holds, 0 if never, else -1. */
static int decided(const Exprs *x, const Expr *e) {
    if (ex_is_const(e)) return e->k.i != 0;
    if (!x->dims) return -1;
    if (known_of(x, e)->asked) return known_of(x, e)->decided;
    const int found = find_decided(x, e);
    Known *known = known_of(x, e);
    known->asked = true;
    known->decided = found;
    return found;
}

static bool find_interval(const Exprs *x, const Expr *e, Interval *to) {
    Interval part[3];
    if (e->op == EX_load || e->n < 1 || e->n > 3) return false;
    if (e->dt == DT_bool) {
        *to = (Interval){0, 1};
        return true;
    }
    for (int i = e->op == EX_select; i < e->n; i++)
        if (!interval(x, e->arg[i], &part[i])) return false;
    switch ((ExprOp)e->op) {
    case EX_select: {
        int holds = decided(x, e->arg[0]);
        if (holds >= 0) part[holds ? 2 : 1] = part[holds ? 1 : 2];
        double ends[4] = {part[1].low, part[1].high, part[2].low, part[2].high};
        *to = around(ends, 4);
        return true;
    }
    case EX_neg:
        *to = (Interval){-part[0].high, -part[0].low};
        return true;
    case EX_cast:
    case EX_floor:
    case EX_ceil:
    case EX_round:
    case EX_trunc:
    case EX_sqrt:
        if (dt_is_int((DType)e->dt) && !holds((DType)e->dt, part[0])) return false; /* it wraps */
        *to = rising(e, part[0]);
        return true;
    default:
        return e->n == 2 && interval_of_two(e, part[0], part[1], to);
    }
}

static bool interval(const Exprs *x, const Expr *e, Interval *to) {
    if (e->op == EX_const) {
        to->low = to->high = dt_is_float((DType)e->dt) ? e->k.f : (double)e->k.i;
        return true;
    }
    if (!x->dims) return false;
    if (e->op == EX_var) {
        int64_t k = e->k.i - DIM_VAR;
        if (k < 0 || k >= x->dims->symbol.n) return false;
        const DimSymbol *symbol = &x->dims->symbol.items[k];
        *to = (Interval){(double)symbol->low, (double)symbol->high};
        return true;
    }
    const Known *before = known_of(x, e);
    *to = before->interval;
    if (before->bounds != BOUNDS_unasked) return before->bounds == BOUNDS_known;
    bool found = find_interval(x, e, to);
    Known *known = known_of(x, e);
    known->bounds = found ? BOUNDS_known : BOUNDS_none;
    if (found) known->interval = *to;
    return found;
}

bool dim_bounds(const Exprs *x, const Expr *e, int64_t *low, int64_t *high) {
    Interval range;
    if (!interval(x, e, &range)) return false;
    if (!(range.low >= -9e15 && range.high <= 9e15)) return false;
    *low = (int64_t)range.low;
    *high = (int64_t)range.high;
    return true;
}

/* --- sums of products ------------------------------------------------------------------------- */

static bool fits_i32(int64_t k) {
    return k >= -INT32_MAX && k <= INT32_MAX;
}

/* coef * product; product NULL: 1 */
typedef struct Term {
    int64_t coef;
    const Expr *product;
} Term;

typedef struct Sum {
    Term term[MAX_TERMS];
    int n;
    bool whole; /* it had room for all */
} Sum;

static void sum_add(Sum *s, int64_t coef, const Expr *product) {
    for (int i = 0; i < s->n; i++) {
        if (s->term[i].product != product) continue;
        s->term[i].coef += coef;
        if (!fits_i32(s->term[i].coef)) s->whole = false;
        if (s->term[i].coef == 0) s->term[i] = s->term[--s->n];
        return;
    }
    if (coef == 0) return;
    if (s->n == MAX_TERMS || !fits_i32(coef))
        s->whole = false;
    else
        s->term[s->n++] = (Term){coef, product};
}

#define MAX_FACTORS 16

/* Adds the factors of a product (NULL: 1), which are no products; more than fit stay one. */
static int factors_of(const Expr *product, const Expr **to) {
    if (!product) return 0;
    int n = 0, left = 1;
    const Expr *stack[MAX_FACTORS] = {product};
    while (left) {
        const Expr *e = stack[--left];
        if (e->op != EX_mul || n + left + 2 > MAX_FACTORS) {
            to[n++] = e;
            continue;
        }
        stack[left++] = e->arg[0];
        stack[left++] = e->arg[1];
    }
    return n;
}

static int by_structure(const void *a, const void *b) {
    return ex_order(*(const Expr *const *)a, *(const Expr *const *)b);
}

/* The one product of these factors, whatever their order. */
static const Expr *product_of(Exprs *x, int n, const Expr **factor) {
    if (n == 0) return NULL;
    qsort(factor, (size_t)n, sizeof *factor, by_structure);
    const Expr *product = factor[0];
    for (int i = 1; i < n; i++) product = ex_mul(x, product, factor[i]);
    return product;
}

static const Expr *multiply(Exprs *x, const Expr *a, const Expr *b) {
    const Expr *factor[2 * MAX_FACTORS];
    int n = factors_of(a, factor);
    n += factors_of(b, factor + n);
    return product_of(x, n, factor);
}

static void sum_times(Exprs *x, const Sum *a, const Sum *b, Sum *to) {
    *to = (Sum){.whole = a->whole && b->whole};
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            sum_add(to, a->term[i].coef * b->term[k].coef,
                    multiply(x, a->term[i].product, b->term[k].product));
}

static const Expr *normal(Exprs *x, const Expr *e);
static const Expr *as_i32(Exprs *x, const Expr *e);

static void sum_of(Exprs *x, const Expr *e, Sum *to);

static void sum_of_two(Exprs *x, const Expr *e, int64_t sign, Sum *to) {
    Sum b;
    sum_of(x, e->arg[0], to);
    sum_of(x, e->arg[1], &b);
    to->whole &= b.whole;
    for (int i = 0; i < b.n; i++) sum_add(to, sign * b.term[i].coef, b.term[i].product);
}

static void sum_of(Exprs *x, const Expr *e, Sum *to) {
    *to = (Sum){.whole = true};
    Sum a, b;
    switch ((ExprOp)e->op) {
    case EX_const:
        sum_add(to, e->k.i, NULL);
        return;
    case EX_add:
        sum_of_two(x, e, 1, to);
        return;
    case EX_sub:
        sum_of_two(x, e, -1, to);
        return;
    case EX_mul:
        sum_of(x, e->arg[0], &a);
        sum_of(x, e->arg[1], &b);
        sum_times(x, &a, &b, to);
        return;
    default:
        sum_add(to, 1, e);
    }
}

static int by_product(const void *a, const void *b) {
    const Expr *l = ((const Term *)a)->product, *r = ((const Term *)b)->product;
    if (!l || !r) return l ? -1 : r ? 1 : 0;
    return ex_order(l, r);
}

static const Expr *sum_expr(Exprs *x, Sum *s) {
    qsort(s->term, (size_t)s->n, sizeof *s->term, by_product);
    const Expr *sum = NULL;
    for (int i = 0; i < s->n; i++) {
        const Expr *product = s->term[i].product, *coef = ex_i(x, s->term[i].coef);
        const Expr *term = product ? ex_mul(x, product, coef) : coef;
        sum = sum ? ex_add(x, sum, term) : term;
    }
    return sum ? sum : ex_i(x, 0);
}

/* By degree, then by the first factor that differs, so that the largest term of a product of sums
 * is the product of their largest terms. */
static int term_order(const Term *a, const Term *b) {
    const Expr *f[MAX_FACTORS], *g[MAX_FACTORS];
    int n = factors_of(a->product, f), m = factors_of(b->product, g);
    if (n != m) return n - m;
    qsort(f, (size_t)n, sizeof *f, by_structure);
    qsort(g, (size_t)n, sizeof *g, by_structure);
    for (int i = 0; i < n; i++)
        if (f[i] != g[i]) return ex_order(g[i], f[i]);
    return 0;
}

static const Term *largest_term(const Sum *s) {
    const Term *best = &s->term[0];
    for (int i = 1; i < s->n; i++)
        if (term_order(best, &s->term[i]) < 0) best = &s->term[i];
    return best;
}

/* a / b, false if it is no term. */
static bool divide_terms(Exprs *x, const Term *a, const Term *b, Term *to) {
    const Expr *have[MAX_FACTORS], *want[MAX_FACTORS];
    int n = factors_of(a->product, have), n_want = factors_of(b->product, want);
    for (int k = 0; k < n_want; k++) {
        int at = 0;
        while (at < n && have[at] != want[k]) at++;
        if (at == n) return false;
        have[at] = have[--n];
    }
    *to = (Term){a->coef / b->coef, product_of(x, n, have)};
    return a->coef % b->coef == 0;
}

/* a / b, false if that leaves something or is too large to tell. */
static bool divide(Exprs *x, const Sum *a, const Sum *b, Sum *to) {
    Sum rest = *a, less;
    *to = (Sum){.whole = true};
    if (!b->n) return false;
    const Term lead = *largest_term(b);
    while (rest.n) {
        Sum part = {.n = 1, .whole = true};
        if (!divide_terms(x, largest_term(&rest), &lead, &part.term[0])) return false;
        sum_add(to, part.term[0].coef, part.term[0].product);
        sum_times(x, &part, b, &less);
        for (int i = 0; i < less.n; i++) sum_add(&rest, -less.term[i].coef, less.term[i].product);
        if (!less.whole || !rest.whole || !to->whole) return false;
    }
    return a->whole;
}

/* Divides by what all coefficients and `with` are multiples of, and returns it. */
static int64_t take_shared(Sum *s, int64_t with) {
    int64_t shared = with;
    for (int i = 0; i < s->n; i++)
        for (int64_t b = s->term[i].coef < 0 ? -s->term[i].coef : s->term[i].coef, r; b; b = r) {
            r = shared % b;
            shared = b;
        }
    for (int i = 0; i < s->n; i++) s->term[i].coef /= shared;
    return shared;
}

static const Expr *quotient(Exprs *x, const Expr *a, const Expr *b);

/* What p / b is at most, for a product p that has rounded quotients among its factors: their
 * dividends over b and their divisors. NULL if that is no simpler. h/4 * 4 / h is at most 1. */
static const Expr *most_of_quotient(Exprs *x, const Sum *p, const Expr *b) {
    const Expr *factor[MAX_FACTORS], *by = b;
    int64_t low, high;
    if (p->n != 1 || !dim_bounds(x, b, &low, &high) || low < 1) return NULL;
    const Expr *top = ex_i(x, p->term[0].coef);
    int n = factors_of(p->term[0].product, factor);
    for (int i = 0; i < n; i++) {
        const Expr *f = factor[i];
        if (!dim_bounds(x, f, &low, &high) || low < 0) return NULL;
        bool rounded = f->op == EX_div && ex_is_const(f->arg[1]);
        if (rounded && ex_is_const(by) && !fits_i32(by->k.i * f->arg[1]->k.i)) return NULL;
        if (rounded) by = ex_mul(x, by, f->arg[1]);
        top = ex_mul(x, top, rounded ? f->arg[0] : f);
    }
    if (by == b) return NULL;
    const Expr *most = normal(x, ex_div(x, top, by));
    bool simpler = most->op != EX_min && (most->op != EX_div || ex_is_const(most->arg[1]));
    return simpler ? most : NULL;
}

/* (z / a + r) / c = (z + r*a) / (a*c), if nothing is below zero; NULL: `s` is no such sum, or that
 * may be too large. */
static const Expr *joined_quotient(Exprs *x, const Sum *s, int64_t c) {
    const Expr *inner = NULL;
    int64_t r = 0, low, high;
    for (int i = 0; i < s->n; i++) {
        const Term *t = &s->term[i];
        if (!t->product)
            r = t->coef;
        else if (inner || t->coef != 1)
            return NULL;
        else
            inner = t->product;
    }
    if (!inner || inner->op != EX_div || !ex_is_const(inner->arg[1]) || r < 0) return NULL;
    const int64_t a = inner->arg[1]->k.i;
    if (a < 1 || a > INT32_MAX / c || r * a > INT32_MAX) return NULL;
    if (!dim_bounds(x, inner->arg[0], &low, &high) || low < 0) return NULL;
    if (high > INT32_MAX - r * a) return NULL;
    const Expr *top = normal(x, ex_add(x, inner->arg[0], ex_i(x, r * a)));
    return quotient(x, top, ex_i(x, a * c));
}

/* (A*c + R) / c = A + R/c, if nothing is below zero; (z / a) / b = z / (a*b); (A*P) / (P*c) =
 * A / c, of numbers below zero, too. */
static const Expr *quotient(Exprs *x, const Expr *a, const Expr *b) {
    int64_t low, high;
    Sum s, out = {.whole = true}, rest = {.whole = true};
    if (a->op == EX_div && ex_is_const(a->arg[1]) && ex_is_const(b) &&
        fits_i32(a->arg[1]->k.i * b->k.i))
        return quotient(x, a->arg[0], ex_mul(x, a->arg[1], b));
    sum_of(x, a, &s);
    if (!ex_is_const(b)) {
        Sum divisor;
        sum_of(x, b, &divisor);
        int64_t shared = take_shared(&divisor, 0);
        if (!divisor.whole || !divide(x, &s, &divisor, &out)) {
            const Expr *most = most_of_quotient(x, &s, b), *rounded = ex_div(x, a, b);
            return most ? ex_bin(x, EX_min, rounded, most) : rounded;
        }
        const Expr *cancelled = sum_expr(x, &out);
        return shared == 1 ? cancelled : normal(x, ex_div(x, cancelled, ex_i(x, shared)));
    }
    int64_t c = b->k.i;
    const int64_t shared = s.whole && c > 0 ? take_shared(&s, c) : 1;
    if (shared > 1) return quotient(x, sum_expr(x, &s), ex_i(x, c / shared));
    for (int i = 0; i < s.n; i++) {
        bool divides = s.term[i].coef % c == 0;
        if (!divides && !s.term[i].product) {
            int64_t k = s.term[i].coef, r = ((k % c) + c) % c;
            sum_add(&out, (k - r) / c, NULL);
            sum_add(&rest, r, NULL);
        } else {
            sum_add(divides ? &out : &rest, divides ? s.term[i].coef / c : s.term[i].coef,
                    s.term[i].product);
        }
    }
    if (s.whole && !rest.n) return sum_expr(x, &out);
    const Expr *left = sum_expr(x, &rest);
    if (!s.whole || !dim_bounds(x, a, &low, &high) || low < 0 ||
        !dim_bounds(x, left, &low, &high) || low < 0)
        return ex_div(x, a, b);
    if (high < c) return sum_expr(x, &out);
    const Expr *joined = joined_quotient(x, &rest, c);
    left = joined ? joined : ex_div(x, left, b);
    if (!out.n) return left;
    return normal(x, ex_add(x, sum_expr(x, &out), left));
}

#define MOST_EXACT ((double)(1 << 24)) /* integers up to here are exact in f32 */

/* A float made an integer: models compute with extents in floats, too. */
static const Expr *from_float(Exprs *x, const Expr *e) {
    const Expr *a = e->arg[0];
    Interval l, r;
    while ((a->op == EX_min || a->op == EX_max) && interval(x, a->arg[0], &l) &&
           interval(x, a->arg[1], &r) && (l.high <= r.low || r.high <= l.low))
        a = a->arg[(l.high <= r.low) != (a->op == EX_min)];
    if (a->op == EX_floor || a->op == EX_ceil || a->op == EX_round || a->op == EX_trunc)
        if (a->arg[0]->op == EX_cast && dt_is_int((DType)a->arg[0]->arg[0]->dt)) a = a->arg[0];
    bool holds = a->dt == DT_f32 || a->dt == DT_f64;
    if (a->op == EX_cast && holds && dt_is_int((DType)a->arg[0]->dt) && interval(x, a, &l) &&
        l.low >= -MOST_EXACT && l.high <= MOST_EXACT) {
        const Expr *integer = as_i32(x, a->arg[0]);
        if (integer) return normal(x, integer);
    }
    return a == e->arg[0] ? e : ex_cast(x, DT_i32, a);
}

/* e + (c - e % c) % c, among other terms: what e is padded to, (e + c - 1) / c * c. */
static bool round_up(Exprs *x, Sum *s) {
    for (int i = 0; i < s->n; i++) {
        const Expr *pad = s->term[i].product;
        if (s->term[i].coef != 1 || !pad || pad->op != EX_rem || !ex_is_const(pad->arg[1]))
            continue;
        int64_t c = pad->arg[1]->k.i, low, high;
        Sum missing, own, rest = *s;
        sum_of(x, pad->arg[0], &missing);
        sum_add(&missing, -c, NULL);
        const Expr *part = missing.n == 1 ? missing.term[0].product : NULL;
        if (!part || missing.term[0].coef != -1 || part->op != EX_rem || c < 1 ||
            !ex_is_int(part->arg[1], c) || !dim_bounds(x, part->arg[0], &low, &high) || low < 0)
            continue;
        sum_of(x, part->arg[0], &own);
        sum_add(&rest, -1, pad);
        for (int k = 0; k < own.n; k++) sum_add(&rest, -own.term[k].coef, own.term[k].product);
        if (!own.whole || !rest.whole || rest.n + own.n + 1 != s->n) continue;
        const Expr *up = ex_add(x, part->arg[0], ex_i(x, c - 1));
        sum_of(x, normal(x, ex_mul(x, ex_div(x, up, ex_i(x, c)), ex_i(x, c))), &own);
        for (int k = 0; k < own.n; k++) sum_add(&rest, own.term[k].coef, own.term[k].product);
        *s = rest;
        return true;
    }
    return false;
}

/* Is it the smaller or larger one of `e` and something else? */
static bool is_extreme_of(const Expr *a, const Expr *e) {
    return (a->op == EX_min || a->op == EX_max) && (a->arg[0] == e || a->arg[1] == e);
}

/* Of i32 sums, products, quotients and extremes of symbols; all else is taken as it is. */
static const Expr *find_normal(Exprs *x, const Expr *e) {
    if (e->op == EX_add || e->op == EX_sub || e->op == EX_mul) {
        Sum s;
        const Expr *arg[2] = {normal(x, e->arg[0]), normal(x, e->arg[1])};
        const Expr *again = ex_rebuild(x, e, arg);
        sum_of(x, again, &s);
        while (s.whole && round_up(x, &s)) continue;
        return s.whole ? sum_expr(x, &s) : again;
    }
    if (e->op == EX_rem) {
        const Expr *arg[2] = {normal(x, e->arg[0]), normal(x, e->arg[1])};
        return ex_rebuild(x, e, arg);
    }
    if (e->op == EX_select) {
        int holds = decided(x, e->arg[0]);
        return holds < 0 ? e : normal(x, e->arg[holds ? 1 : 2]);
    }
    if (e->op == EX_div) return quotient(x, normal(x, e->arg[0]), normal(x, e->arg[1]));
    if (e->op == EX_min || e->op == EX_max) {
        int64_t low, high;
        const Expr *a = normal(x, e->arg[0]), *b = normal(x, e->arg[1]);
        if (ex_is_const(b) && a->op == e->op && ex_is_const(a->arg[1])) /* max(max(a, 1), 0) */
            return normal(
                x, ex_bin(x, (ExprOp)e->op, a->arg[0], ex_bin(x, (ExprOp)e->op, a->arg[1], b)));
        if (is_extreme_of(a, b)) return a->op == e->op ? a : b; /* max(min(b, c), b) */
        if (is_extreme_of(b, a)) return b->op == e->op ? b : a;
        const Expr *difference = normal(x, ex_sub(x, a, b));
        if (dim_bounds(x, difference, &low, &high)) {
            if (low >= 0) return e->op == EX_max ? a : b;
            if (high <= 0) return e->op == EX_max ? b : a;
        }
        return ex_bin(x, (ExprOp)e->op, a, b);
    }
    if (e->op == EX_cast) return from_float(x, e);
    return e;
}

static const Expr *normal(Exprs *x, const Expr *e) {
    if (e->dt != DT_i32 || e->n == 0 || !x->dims) return e;
    const Expr *found = known_of(x, e)->normal;
    if (found) return found;
    found = find_normal(x, e);
    known_of(x, e)->normal = found;
    known_of(x, found)->normal = found;
    return found;
}

/* --- dimensions ------------------------------------------------------------------------------- */

int dim_new_symbol(Exprs *x, const char *name, int64_t low, int64_t high) {
    if (!x->dims) x->dims = ARENA_NEW(x->arena, struct Dims);
    if (x->dims->symbol.n == DIM_MAX_SYMBOLS) return -1;
    vec_push(x->arena, &x->dims->symbol, ((DimSymbol){name, low, high}));
    return x->dims->symbol.n - 1;
}

static int64_t number_of(Exprs *x, const Expr *e) {
    if (ex_is_const(e)) return e->k.i;
    for (int i = 0; i < x->dims->expr.n; i++)
        if (x->dims->expr.items[i] == e) return FIRST + i * STEP;
    if (x->dims->expr.n == MAX_DIMS) return INT64_MIN / 2;
    vec_push(x->arena, &x->dims->expr, e);
    return FIRST + (x->dims->expr.n - 1) * STEP;
}

/* The number of an expression in normal form; a constant that it adds goes into the number. */
static int64_t dim_of(Exprs *x, const Expr *e) {
    return number_of(x, normal(x, e));
}

int64_t dim_of_symbol(Exprs *x, int symbol) {
    return dim_of(x, ex_var(x, DIM_VAR + symbol));
}

const Expr *dim_expr(Exprs *x, int64_t d) {
    if (!dim_varies(d)) return ex_const(x, DT_i32, (Scalar){.i = d});
    int64_t k = (d - FIRST + STEP / 2) / STEP, more = d - FIRST - k * STEP;
    if (k >= x->dims->expr.n) return ex_const(x, DT_i32, (Scalar){.i = 0});
    const Expr *e = x->dims->expr.items[k];
    return more ? normal(x, ex_add(x, e, ex_const(x, DT_i32, (Scalar){.i = more}))) : e;
}

int dim_extents(const Exprs *x, int64_t *extent) {
    const int n = x->dims->symbol.n;
    for (int i = 0; i < n; i++) extent[DIM_VAR + i] = x->dims->symbol.items[i].high + 1;
    return DIM_VAR + n;
}

const Expr *dim_simplified(Exprs *x, int64_t d) {
    int64_t extent[DIM_MAX_VARS];
    if (!dim_varies(d)) return dim_expr(x, d);
    for (int i = 0; i < DIM_VAR; i++) extent[i] = -1;
    return ex_simplify(x, dim_expr(x, d), dim_extents(x, extent), extent);
}

int dim_symbol(const Exprs *x, int64_t d) {
    if (!x->dims || !dim_varies(d)) return -1;
    int64_t k = (d - FIRST) / STEP;
    const Expr *e = k < x->dims->expr.n && d == FIRST + k * STEP ? x->dims->expr.items[k] : NULL;
    return e && e->op == EX_var ? (int)e->k.i - DIM_VAR : -1;
}

DimSymbol dim_symbol_range(const Exprs *x, int symbol) {
    return x->dims->symbol.items[symbol];
}

int64_t dim_normal(Exprs *x, int64_t d) {
    return dim_varies(d) ? number_of(x, dim_expr(x, d)) : d;
}

int64_t dim_max(Exprs *x, int64_t d) {
    int64_t low, high;
    if (!dim_varies(d)) return d;
    return dim_bounds(x, dim_expr(x, d), &low, &high) ? high < 0 ? 0 : high : -1;
}

void dim_apart(Exprs *x, int64_t a, int64_t b, int64_t *least, int64_t *most) {
    int64_t low, high;
    *least = dim_min(x, a) - dim_max(x, b);
    *most = dim_max(x, a) - dim_min(x, b);
    const Expr *apart = normal(x, ex_sub(x, dim_expr(x, a), dim_expr(x, b)));
    if (!dim_bounds(x, apart, &low, &high)) return;
    if (low > *least) *least = low;
    if (high < *most) *most = high;
}

bool dim_can_meet(Exprs *x, int64_t a, int64_t b) {
    int64_t least, most;
    if (!dim_fits(a, b)) return false;
    dim_apart(x, a, b, &least, &most);
    return least <= 0 && most >= 0;
}

bool dim_meets(Exprs *x, int64_t a, int64_t b) {
    if (!dim_can_meet(x, a, b)) return false;
    dim_claim(x, CLAIM_equal, a, b);
    return true;
}

void dim_claim(Exprs *x, ClaimKind kind, int64_t a, int64_t b) {
    if (!dim_varies(a) && !dim_varies(b)) return;
    a = dim_normal(x, a);
    b = dim_normal(x, b);
    if (a == b || (kind == CLAIM_broadcast && (a == 1 || b == 1)) ||
        (kind == CLAIM_at_most && dim_max(x, a) <= dim_min(x, b)))
        return;
    struct Dims *d = x->dims;
    for (int i = 0; i < d->claim.n; i++)
        if (d->claim.items[i].kind == kind && d->claim.items[i].a == a && d->claim.items[i].b == b)
            return;
    vec_push(x->arena, &d->claim, ((DimClaim){kind, a, b}));
}

int dim_take_claims(Exprs *x, DimClaim **claims) {
    if (!x->dims) return 0;
    int n = x->dims->claim.n;
    *claims = arena_copy(x->arena, x->dims->claim.items, sizeof(DimClaim) * (size_t)n);
    x->dims->claim.n = 0;
    return n;
}

bool dims_meet(Exprs *x, int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
    if (rank_a != rank_b) return false;
    for (int i = 0; i < rank_a; i++)
        if (!dim_meets(x, a[i], b[i])) return false;
    return true;
}

int64_t dim_min(Exprs *x, int64_t d) {
    int64_t low, high;
    if (!dim_varies(d)) return d;
    return dim_bounds(x, dim_expr(x, d), &low, &high) ? low : 0;
}

/* Is it one of its operands? */
static bool picks(const Expr *e) {
    return e->op == EX_min || e->op == EX_max || e->op == EX_select;
}

static const Expr *find_i32(Exprs *x, const Expr *e) {
    if (!dt_is_int((DType)e->dt)) return NULL;
    if (e->op == EX_const) {
        int64_t k = e->k.i;
        k = k > INT32_MAX ? INT32_MAX : k < -INT32_MAX ? -INT32_MAX : k;
        return ex_i(x, k);
    }
    const bool wraps = e->dt != DT_i32 && e->dt != DT_i64; /* in fewer bits, or below zero */
    Interval range;
    if (e->n == 0 || e->n > 3) return NULL;
    if (wraps && !(interval(x, e, &range) && holds((DType)e->dt, range))) return NULL;
    if (e->op == EX_cast)
        return dt_is_int((DType)e->arg[0]->dt) ? as_i32(x, e->arg[0])
                                               : ex_cast(x, DT_i32, e->arg[0]);
    const Expr *arg[3] = {NULL};
    for (int i = 0; i < e->n; i++) {
        arg[i] = e->arg[i]->dt == DT_bool ? e->arg[i] : as_i32(x, e->arg[i]);
        if (!arg[i] || (!picks(e) && ex_is_const(e->arg[i]) && !fits_i32(e->arg[i]->k.i)))
            return NULL;
    }
    return ex_rebuild(x, e, arg);
}

/* i64 and other integer arithmetic as i32, which dimensions and their parts fit into; NULL of
 * anything else. Ends of slices are as large as can be: constants that others are compared with are
 * brought there. */
static const Expr *as_i32(Exprs *x, const Expr *e) {
    if (e->dt == DT_i32 && e->n == 0) return e;
    if (!x->dims) return find_i32(x, e);
    const Expr *found = known_of(x, e)->i32;
    if (found) return found;
    found = find_i32(x, e);
    known_of(x, e)->i32 = found;
    return found;
}

static bool fits(Exprs *x, const Expr *e);

/* Does all that is computed for an i32 expression fit? What is INT32_MAX may stand for more. */
static bool find_fits(Exprs *x, const Expr *e) {
    int64_t low, high;
    if (!dim_bounds(x, e, &low, &high) || !fits_i32(low) || !fits_i32(high)) return false;
    for (int i = 0; i < e->n; i++) {
        const Expr *arg = e->arg[i];
        if (arg->dt != DT_i32) continue;
        if (!fits(x, arg)) return false;
        if (!picks(e) && (!dim_bounds(x, arg, &low, &high) || high == INT32_MAX)) return false;
    }
    return true;
}

static bool fits(Exprs *x, const Expr *e) {
    const int before = known_of(x, e)->fits;
    if (before) return before > 0;
    const bool found = find_fits(x, e);
    known_of(x, e)->fits = found ? 1 : -1;
    return found;
}

bool dim_from_expr(Exprs *x, const Expr *e, int64_t *d) {
    int64_t low, high;
    if (!dt_is_int((DType)e->dt)) return false;
    if (ex_is_const(e)) {
        *d = e->k.i;
        return true;
    }
    const Expr *small = as_i32(x, e);
    if (!small) return false;
    small = normal(x, small);
    if (ex_is_const(small)) {
        *d = small->k.i;
        return true;
    }
    /* a condition's coordinates and loads have no bounds, but what it chooses between may */
    if (!x->dims || small->loads || ex_vars(small)) return false;
    if (!fits(x, small) || !dim_bounds(x, small, &low, &high)) return false;
    *d = low == high ? low : number_of(x, small);
    return true;
}

static int64_t apply(Exprs *x, ExprOp op, int64_t a, int64_t b) {
    if (!dim_varies(a) && !dim_varies(b)) {
        Scalar args[2] = {{.i = a}, {.i = b}};
        return ex_apply(op, DT_i64, DT_i64, args).i;
    }
    return dim_of(x, ex_bin(x, op, dim_expr(x, a), dim_expr(x, b)));
}

int64_t dim_add(Exprs *x, int64_t a, int64_t b) {
    return apply(x, EX_add, a, b);
}
int64_t dim_sub(Exprs *x, int64_t a, int64_t b) {
    return apply(x, EX_sub, a, b);
}
int64_t dim_mul(Exprs *x, int64_t a, int64_t b) {
    return apply(x, EX_mul, a, b);
}
int64_t dim_div(Exprs *x, int64_t a, int64_t b) {
    return apply(x, EX_div, a, b);
}
bool dim_divides(Exprs *x, int64_t part, int64_t whole) {
    if (part == whole) return true;
    return part != 0 &&
           dim_normal(x, dim_mul(x, dim_div(x, whole, part), part)) == dim_normal(x, whole);
}
int64_t dim_larger(Exprs *x, int64_t a, int64_t b) {
    return apply(x, EX_max, a, b);
}
int64_t dim_smaller(Exprs *x, int64_t a, int64_t b) {
    return apply(x, EX_min, a, b);
}

const Expr *dim_index(Exprs *x, const Expr *e, int64_t extent) {
    if (extent == 1) return ex_i(x, 0);
    e = ex_bin(x, EX_min, e, ex_i(x, extent - 1));
    return dim_varies(extent) ? ex_bin(x, EX_max, e, ex_i(x, 0)) : e;
}

int64_t dim_product(Exprs *x, int rank, const int64_t *dims) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n = dim_mul(x, n, dims[i]);
    return n;
}

void dims_max(Exprs *x, int rank, const int64_t *dims, int64_t *shape) {
    for (int i = 0; i < rank; i++) shape[i] = dim_max(x, dims[i]);
}

#define MOST_TEXT 200 /* nodes of a dimension that is written out */

static void add_text(Exprs *x, const Expr *e, Text *to) {
    static const char *const infix[EX_count] = {
        [EX_add] = " + ", [EX_sub] = " - ", [EX_mul] = "*", [EX_div] = "/", [EX_rem] = "%"};
    if (e->op == EX_const && dt_is_int((DType)e->dt)) {
        text_addf(to, "%lld", (long long)e->k.i);
    } else if (e->op == EX_const) {
        text_addf(to, "%g", e->k.f);
    } else if (e->op == EX_var) {
        const char *name = x->dims->symbol.items[e->k.i - DIM_VAR].name;
        text_add(to, name ? name : arena_printf(x->arena, "n%d", (int)e->k.i - DIM_VAR));
    } else if (e->size > MOST_TEXT) { /* shared parts are many written out */
        text_add(to, "...");
    } else {
        const char *between = infix[e->op];
        if (!between) text_add(to, ex_name((ExprOp)e->op));
        text_add(to, "(");
        for (int i = 0; i < e->n; i++) {
            if (i) text_add(to, between ? between : ", ");
            add_text(x, e->arg[i], to);
        }
        text_add(to, ")");
    }
}

const char *dim_text(Exprs *x, int64_t d) {
    Text t = text_new(x->arena);
    add_text(x, dim_expr(x, d), &t);
    return text_get(&t);
}

const char *dims_text(Exprs *x, int rank, const int64_t *dims) {
    Text t = text_new(x->arena);
    for (int i = 0; i < rank; i++) {
        text_add(&t, i ? ", " : "[");
        add_text(x, dim_expr(x, dims[i]), &t);
    }
    text_add(&t, rank ? "]" : "[]");
    return text_get(&t);
}
