/* Index arithmetic: bounds, affine forms, and simplification with known coordinate ranges.
 *
 * Movement operators turn into index expressions, and chains of reshapes into divisions and
 * remainders. ex_simplify brings every i32 sum into a linear form (terms with coefficients, in the
 * order of ex_order) and uses four facts about it, for a positive constant c:
 *
 *   (A*c + R) / c = A + R/c  and  (A*c + R) % c = R % c, when A*c + R >= 0 and R >= 0
 *   (z % c) + (z / c)*c = z, where an index is taken apart and put together
 *   (z / a) / b = z / (a*b)  and  (z % (a*b)) / b = (z / b) % a, when z >= 0: one form for each
 *   value
 *   (B + z/a) / b = (B*a + z) / (a*b), when the sums are >= 0: the same for a quotient in a sum
 */
#include "ir/expr_memo.h"

#include <stdlib.h>
#include <string.h>

/* --- bounds ----------------------------------------------------------------------------------- */

#define MAX_AFFINE 128 /* variables of one kernel */

#define BIG ((int64_t)1 << 40) /* beyond any index; keeps the products below from overflowing */

/* Nodes that a walk over trees may visit: it meets shared parts again and again, and must end. */
#define MAX_WALK 2000

static bool in_range(int64_t v) {
    return v > -BIG && v < BIG;
}

typedef struct Range {
    const Expr *key; /* NULL: free */
    int64_t lo, hi;
    bool known;
} Range;

/* Variables with their extents, and a table of the bounds found so far. */
typedef struct Ranges {
    int n;
    const int64_t *extent;
    Arena *arena; /* of the table; NULL: there is none */
    int steps;    /* without a table: nodes that may still be visited */
    Range *slots;
    uint32_t used, cap;
} Ranges;

static Range *range_slot(Ranges *r, const Expr *e) {
    uint32_t at = e->hash & (r->cap - 1);
    while (r->slots[at].key && r->slots[at].key != e) at = (at + 1) & (r->cap - 1);
    return &r->slots[at];
}

static void ranges_end(Ranges *r) {
    if (r->cap) arena_return(r->arena, r->slots, r->cap * sizeof *r->slots);
}

static void range_put(Ranges *r, Range found) {
    if (r->used * 2 >= r->cap) {
        Ranges old = *r;
        r->cap = old.cap ? old.cap * 2 : 64;
        r->slots = arena_borrow(r->arena, r->cap * sizeof *r->slots);
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.slots[i].key) *range_slot(r, old.slots[i].key) = old.slots[i];
        ranges_end(&old);
    }
    *range_slot(r, found.key) = found;
    r->used++;
}

static bool bounds(Ranges *r, const Expr *e, int64_t *lo, int64_t *hi);

/* The bounds of an operator from those of its operands, as if its type had no end. */
static bool find_bounds(Ranges *r, const Expr *e, int64_t *lo, int64_t *hi) {
    int64_t al, ah, bl, bh;
    switch ((ExprOp)e->op) {
    case EX_cast:
        if (!bounds(r, e->arg[0], lo, hi)) return false;
        return (e->dt == DT_i32 || e->dt == DT_i64) && *lo >= INT32_MIN && *hi <= INT32_MAX;
    case EX_select:
        if (!bounds(r, e->arg[1], &al, &ah) || !bounds(r, e->arg[2], &bl, &bh)) return false;
        *lo = al < bl ? al : bl;
        *hi = ah > bh ? ah : bh;
        return true;
    case EX_min:
    case EX_max: {
        if (!bounds(r, e->arg[0], &al, &ah) || !bounds(r, e->arg[1], &bl, &bh)) return false;
        bool is_min = e->op == EX_min;
        *lo = (al < bl) == is_min ? al : bl;
        *hi = (ah < bh) == is_min ? ah : bh;
        return true;
    }
    case EX_add:
    case EX_sub:
    case EX_mul:
    case EX_div:
    case EX_rem:
        break;
    default:
        return false;
    }
    if (!bounds(r, e->arg[0], &al, &ah)) {
        /* a remainder is bounded by its divisor alone */
        if (e->op != EX_rem || !ex_is_const(e->arg[1]) || e->arg[1]->k.i <= 0) return false;
        *hi = e->arg[1]->k.i - 1;
        *lo = -*hi;
        return true;
    }
    if (!bounds(r, e->arg[1], &bl, &bh)) return false;
    if (e->op == EX_add) {
        *lo = al + bl;
        *hi = ah + bh;
    } else if (e->op == EX_sub) {
        *lo = al - bh;
        *hi = ah - bl;
    } else if (e->op == EX_mul) {
        int64_t p[4];
        int64_t lim = (int64_t)1 << 31;
        if (al < -lim || ah > lim || bl < -lim || bh > lim) return false;
        p[0] = al * bl, p[1] = al * bh, p[2] = ah * bl, p[3] = ah * bh;
        *lo = *hi = p[0];
        for (int i = 1; i < 4; i++) {
            if (p[i] < *lo) *lo = p[i];
            if (p[i] > *hi) *hi = p[i];
        }
    } else if (al >= 0 && bl >= 0 && bl != bh) { /* by what varies; by 0 it is 0 */
        *lo = 0;
        *hi = e->op == EX_div ? ah / (bl ? bl : 1) : ah < bh ? ah : bh - 1;
    } else if (bl != bh || bl <= 0) {
        return false;
    } else if (e->op == EX_div) {
        *lo = al / bl;
        *hi = ah / bl;
    } else {
        *hi = ah < 0 ? 0 : ah < bl ? ah : bl - 1;
        *lo = al >= 0 ? 0 : al > -bl ? al : -(bl - 1);
    }
    return true;
}

/* Can a value of this type wrap around between these bounds? Then they say nothing. */
static bool may_wrap(DType dt, int64_t lo, int64_t hi) {
    if (!in_range(lo) || !in_range(hi)) return true;
    if (dt_kind(dt) == DK_uint && lo < 0) return true;
    return dt == DT_i32 ? lo < INT32_MIN || hi > INT32_MAX : dt == DT_u32 && hi > UINT32_MAX;
}

static bool bounds(Ranges *r, const Expr *e, int64_t *lo, int64_t *hi) {
    if (!dt_is_int((DType)e->dt) && e->dt != DT_bool) return false;
    if (e->op == EX_const) {
        *lo = *hi = e->k.i;
        return !may_wrap((DType)e->dt, *lo, *hi);
    }
    if (e->op == EX_var) {
        if (e->k.i >= r->n || r->extent[e->k.i] < 0) return false;
        *lo = 0;
        *hi = r->extent[e->k.i] > 0 ? r->extent[e->k.i] - 1 : 0;
        return true;
    }
    if (e->n == 0 || (!r->arena && --r->steps < 0)) return false;
    Range found = {.key = e};
    if (r->cap) {
        const Range *before = range_slot(r, e);
        *lo = before->lo;
        *hi = before->hi;
        if (before->key) return before->known;
    }
    found.known = find_bounds(r, e, lo, hi) && !may_wrap((DType)e->dt, *lo, *hi);
    if (found.known) found.lo = *lo, found.hi = *hi;
    if (r->arena) range_put(r, found);
    return found.known;
}

bool ex_bounds(const Expr *e, int n, const int64_t *extent, int64_t *lo, int64_t *hi) {
    Ranges r = {.n = n, .extent = extent, .steps = MAX_WALK};
    return bounds(&r, e, lo, hi);
}

/* --- affine form ------------------------------------------------------------------------------ */

/* Is `e` index arithmetic without vars below n? */
static bool is_free(const Expr *e, int n) {
    if (e->dt != DT_i32 || (e->op == EX_var && e->k.i < n)) return false;
    for (int i = 0; i < e->n; i++)
        if (!is_free(e->arg[i], n)) return false;
    return true;
}

/* Adds factor * e to coef and *base. */
static bool add_affine(Exprs *x, const Expr *e, int64_t factor, int n, int64_t *coef,
                       const Expr **base) {
    if (e->dt != DT_i32 || e->size > MAX_WALK || factor > INT32_MAX || factor < -INT32_MAX)
        return false;
    switch ((ExprOp)e->op) {
    case EX_var:
        if (e->k.i >= n) break;
        coef[e->k.i] += factor;
        return true;
    case EX_add:
        return add_affine(x, e->arg[0], factor, n, coef, base) &&
               add_affine(x, e->arg[1], factor, n, coef, base);
    case EX_sub:
        return add_affine(x, e->arg[0], factor, n, coef, base) &&
               add_affine(x, e->arg[1], -factor, n, coef, base);
    case EX_neg:
        return add_affine(x, e->arg[0], -factor, n, coef, base);
    case EX_mul:
        if (!ex_is_const(e->arg[1])) break;
        return add_affine(x, e->arg[0], factor * e->arg[1]->k.i, n, coef, base);
    default:
        break;
    }
    if (!is_free(e, n)) return false;
    *base = ex_add(x, *base, ex_mul(x, e, ex_i(x, factor)));
    return true;
}

bool ex_affine(Exprs *x, const Expr *e, int n, int64_t *coef, const Expr **base) {
    for (int i = 0; i < n; i++) coef[i] = 0;
    *base = ex_i(x, 0);
    return add_affine(x, e, 1, n, coef, base);
}

bool ex_bound(Exprs *x, const Expr *e, int n, const int64_t *extent, int *var, const Expr **bound,
              bool *below) {
    if ((e->op != EX_lt && e->op != EX_le) || e->arg[0]->dt != DT_i32) return false;
    int64_t coef[MAX_AFFINE];
    const Expr *base;
    /* right - left, which is > 0 (lt) or >= 0 (le) */
    if (n > MAX_AFFINE || !ex_affine(x, ex_sub(x, e->arg[1], e->arg[0]), n, coef, &base))
        return false;
    *var = -1;
    for (int i = 0; i < n; i++) {
        if (!coef[i]) continue;
        if (*var >= 0) return false;
        *var = i;
    }
    if (*var < 0) return false;
    *below = coef[*var] < 0;
    const int64_t c = *below ? -coef[*var] : coef[*var];
    if (c > INT32_MAX || extent[*var] > INT32_MAX / c) return false;
    const Expr *k =
        ex_add(x, base, ex_i(x, -(e->op == EX_lt))); /* right - left - (lt ? 1 : 0) >= 0 */
    *bound = *below ? ex_add(x, k, ex_i(x, c))       /* -c v + k >= 0: v < (k + c) / c; */
                    : ex_sub(x, ex_i(x, c - 1), k);  /* c v + k >= 0: v >= (-k + c - 1) / c */
    *bound = ex_simplify(x, ex_div(x, *bound, ex_i(x, c)), 0, NULL);
    return true;
}

/* A type in which sums are exact but for wrapping around: not a float, which rounds. */
static bool is_index_type(const Expr *e) {
    return dt_is_int((DType)e->dt) && dt_bits((DType)e->dt) >= 32;
}

bool ex_stride(const Expr *e, int var, int64_t *stride) {
    int64_t a = 0, b = 0;
    *stride = e->op == EX_var && e->k.i == var;
    if (e->n == 0 || !ex_depends(e, var)) return true;
    if (e->size > MAX_WALK) return false;
    if (e->op == EX_cast)
        return ex_stride(e->arg[0], var, stride) &&
               (*stride == 0 || (is_index_type(e) && is_index_type(e->arg[0])));
    for (int i = 0; i < e->n; i++) {
        if (!ex_stride(e->arg[i], var, i ? &b : &a)) return false;
        if (e->op == EX_add || e->op == EX_sub || e->op == EX_mul) continue;
        if (a || b) return false;
    }
    if ((a || b) && !is_index_type(e)) return false;
    if (e->op == EX_mul && (a || b)) {
        const Expr *other = e->arg[a != 0];
        if ((a && b) || !ex_is_const(other)) return false;
        return !__builtin_mul_overflow(a + b, other->k.i, stride) && in_range(*stride);
    }
    *stride = e->op == EX_sub ? a - b : a + b;
    return true;
}

bool ex_is_multiple(const Expr *e, int64_t n) {
    switch ((ExprOp)e->op) {
    case EX_const:
        return e->k.i % n == 0;
    case EX_add:
    case EX_sub:
    case EX_rem:
        return ex_is_multiple(e->arg[0], n) && ex_is_multiple(e->arg[1], n);
    case EX_mul:
        return ex_is_multiple(e->arg[0], n) || ex_is_multiple(e->arg[1], n);
    default:
        return n == 1;
    }
}

const Expr *ex_subst_var(Exprs *x, const Expr *e, int var, const Expr *value) {
    const Expr **to = ARENA_ARRAY(x->arena, var + 1, const Expr *);
    to[var] = value;
    return ex_subst_vars(x, e, var + 1, to);
}

bool ex_same_below(Exprs *x, const Expr *e, int var, int64_t n) {
    int64_t stride;
    if (e->op == EX_and)
        return ex_same_below(x, e->arg[0], var, n) && ex_same_below(x, e->arg[1], var, n);
    if (e->op != EX_lt || !ex_is_const(e->arg[1]) || !ex_stride(e->arg[0], var, &stride))
        return ex_stride(e, var, &stride) && stride == 0;
    if (stride == 0) return true;
    return stride == 1 && e->arg[1]->k.i % n == 0 &&
           ex_is_multiple(ex_subst_var(x, e->arg[0], var, ex_i(x, 0)), n);
}

/* --- linear forms ----------------------------------------------------------------------------- */

typedef struct Term {
    const Expr *e;
    int64_t coef;
} Term;

#define MAX_TERMS 48

typedef struct Linear {
    Term term[MAX_TERMS];
    int n;
    int64_t k;
} Linear;

typedef struct Simplifier {
    Exprs *x;
    Ranges ranges;
    Memo memo;
} Simplifier;

static bool is_coef(int64_t v) {
    return v >= -INT32_MAX && v <= INT32_MAX;
}

/* False if the form has no room for it: then it is of no use any more. */
static bool linear_add_term(Linear *l, const Expr *e, int64_t coef) {
    for (int i = 0; i < l->n; i++) {
        if (l->term[i].e != e) continue;
        int64_t sum = l->term[i].coef += coef;
        if (sum == 0) l->term[i] = l->term[--l->n];
        return is_coef(sum);
    }
    if (coef == 0) return true;
    if (l->n == MAX_TERMS) return false;
    l->term[l->n++] = (Term){e, coef};
    return true;
}

static bool linear_add(Linear *l, const Expr *e, int64_t factor) {
    if (!is_coef(factor)) return false;
    if (e->size > MAX_WALK) return linear_add_term(l, e, factor);
    switch ((ExprOp)e->op) {
    case EX_const:
        l->k += e->k.i * factor;
        return in_range(l->k);
    case EX_add:
        return linear_add(l, e->arg[0], factor) && linear_add(l, e->arg[1], factor);
    case EX_sub:
        return linear_add(l, e->arg[0], factor) && linear_add(l, e->arg[1], -factor);
    case EX_neg:
        return linear_add(l, e->arg[0], -factor);
    case EX_mul:
        if (ex_is_const(e->arg[1])) return linear_add(l, e->arg[0], factor * e->arg[1]->k.i);
        return linear_add_term(l, e, factor);
    default:
        return linear_add_term(l, e, factor);
    }
}

static int by_structure(const void *a, const void *b) {
    return ex_order(((const Term *)a)->e, ((const Term *)b)->e);
}

static const Expr *linear_expr(Exprs *x, Linear *l) {
    qsort(l->term, (size_t)l->n, sizeof *l->term, by_structure);
    const Expr *sum = NULL;
    /* positive terms first, so that the sum needs no negation */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < l->n; i++) {
            int64_t c = l->term[i].coef;
            if ((c > 0) != (pass == 0)) continue;
            const Expr *t = ex_mul(x, l->term[i].e, ex_i(x, sum && c < 0 ? -c : c));
            sum = !sum ? t : ex_bin(x, c < 0 ? EX_sub : EX_add, sum, t);
        }
    if (!sum) return ex_i(x, l->k);
    return ex_add(x, sum, ex_i(x, l->k));
}

static bool linear_bounds(Simplifier *s, const Linear *l, int64_t *lo, int64_t *hi) {
    *lo = *hi = l->k;
    for (int i = 0; i < l->n; i++) {
        int64_t a, b, c = l->term[i].coef;
        if (!bounds(&s->ranges, l->term[i].e, &a, &b)) return false;
        *lo += c > 0 ? a * c : b * c;
        *hi += c > 0 ? b * c : a * c;
        if (!in_range(*lo) || !in_range(*hi)) return false;
    }
    return true;
}

static const Expr *simplify_div(Simplifier *s, const Expr *a, int64_t c, bool remainder);

/* (z % c)*k + (z / c)*(k*c) = z*k, until none is left. */
static bool recombine(Simplifier *s, Linear *l) {
    for (int i = 0; i < l->n; i++) {
        const Expr *rem = l->term[i].e;
        if (rem->op != EX_rem || !ex_is_const(rem->arg[1]) || rem->arg[1]->k.i <= 0) continue;
        int64_t c = rem->arg[1]->k.i, k = l->term[i].coef;
        const Expr *quotient = simplify_div(s, rem->arg[0], c, false);
        Linear q = {.n = 0};
        if (!linear_add(&q, quotient, k * c)) continue;
        /* every term of the quotient must be there */
        bool all = q.n > 0;
        for (int j = 0; j < q.n && all; j++) {
            bool found = false;
            for (int m = 0; m < l->n; m++)
                found |= l->term[m].e == q.term[j].e && l->term[m].coef == q.term[j].coef;
            all = found;
        }
        if (!all) continue;
        Linear whole = *l;
        bool fits = true;
        for (int j = 0; j < q.n; j++)
            fits = fits && linear_add_term(&whole, q.term[j].e, -q.term[j].coef);
        whole.k -= q.k;
        if (!fits || !linear_add_term(&whole, rem, -k) || !linear_add(&whole, rem->arg[0], k))
            continue;
        *l = whole;
        return true;
    }
    return false;
}

static const Expr *simplify_sum(Simplifier *s, const Expr *e) {
    Linear l = {.n = 0};
    if (!linear_add(&l, e, 1)) return e;
    while (recombine(s, &l)) {
    }
    return linear_expr(s->x, &l);
}

static const Expr *simplify_div(Simplifier *s, const Expr *a, int64_t c, bool remainder);

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

/* (f b + r) / (f c) is b / c for 0 <= r < f, and the remainder f (b % c) + r. NULL where the sum
 * `l` is none of that kind. */
static const Expr *cancel_factor(Simplifier *s, const Linear *l, int64_t c, bool remainder) {
    Exprs *x = s->x;
    for (int k = 0; k < l->n; k++) {
        int64_t f = gcd(c, l->term[k].coef), lo, hi;
        if (f < 2 || f == c) continue;
        Linear big = {.n = 0}, rest = {.n = 0};
        for (int i = 0; i < l->n; i++) {
            bool divides = l->term[i].coef % f == 0;
            linear_add_term(divides ? &big : &rest, l->term[i].e,
                            divides ? l->term[i].coef / f : l->term[i].coef);
        }
        rest.k = ((l->k % f) + f) % f;
        big.k = (l->k - rest.k) / f;
        if (!rest.n && !rest.k && !remainder) {
            lo = 0;
            hi = 0;
        } else if (!linear_bounds(s, &rest, &lo, &hi)) {
            continue;
        }
        if (lo < 0 || hi >= f) continue;
        const Expr *part = simplify_div(s, simplify_sum(s, linear_expr(x, &big)), c / f, remainder);
        if (!remainder) return part;
        return simplify_sum(s, ex_add(x, ex_mul(x, part, ex_i(x, f)), linear_expr(x, &rest)));
    }
    return NULL;
}

/* (b + e / d) / c is (b d + e) / (c d), as (e / d) / c is e / (c d). NULL where the sum `l` has no
 * such term. */
static const Expr *join_divisions(Simplifier *s, const Linear *l, int64_t c) {
    for (int i = 0; i < l->n; i++) {
        const Expr *e = l->term[i].e;
        int64_t lo, hi;
        if (e->op != EX_div || l->term[i].coef != 1 || !ex_is_const(e->arg[1])) continue;
        int64_t d = e->arg[1]->k.i;
        if (d < 1 || d > INT32_MAX / c || !bounds(&s->ranges, e->arg[0], &lo, &hi) || lo < 0)
            continue;
        Linear sum = {.k = l->k * d};
        bool fits = linear_add(&sum, e->arg[0], 1);
        for (int k = 0; k < l->n && fits; k++)
            fits = k == i || linear_add_term(&sum, l->term[k].e, l->term[k].coef * d);
        if (!fits || !linear_bounds(s, &sum, &lo, &hi) || lo < 0 || hi > INT32_MAX) continue;
        return simplify_div(s, linear_expr(s->x, &sum), c * d, false);
    }
    return NULL;
}

/* a / c or a % c with a simplified and c > 0. */
static const Expr *simplify_div(Simplifier *s, const Expr *a, int64_t c, bool remainder) {
    Exprs *x = s->x;
    const Expr *ce = ex_i(x, c);
    const Expr *plain = ex_bin(x, remainder ? EX_rem : EX_div, a, ce);
    if (plain->op != EX_div && plain->op != EX_rem) return plain;
    int64_t lo, hi;
    if (!bounds(&s->ranges, a, &lo, &hi) || lo < 0) return plain;
    if (hi < c) return remainder ? a : ex_i(x, 0);
    Linear l = {.n = 0};
    if (linear_add(&l, a, 1)) {
        /* whole: the part divisible by c; rest: what remains, with its constant in [0, c) */
        Linear whole = {.n = 0}, rest = {.n = 0};
        for (int i = 0; i < l.n; i++)
            linear_add_term(l.term[i].coef % c == 0 ? &whole : &rest, l.term[i].e, l.term[i].coef);
        rest.k = ((l.k % c) + c) % c;
        whole.k = l.k - rest.k;
        int64_t rlo, rhi;
        if ((whole.n || whole.k) && linear_bounds(s, &rest, &rlo, &rhi) && rlo >= 0 &&
            rhi <= INT32_MAX) {
            const Expr *r = linear_expr(x, &rest);
            if (remainder) return simplify_div(s, r, c, true);
            for (int i = 0; i < whole.n; i++) whole.term[i].coef /= c;
            whole.k /= c;
            const Expr *sum = ex_add(x, linear_expr(x, &whole), simplify_div(s, r, c, false));
            return simplify_sum(s, sum);
        }
        const Expr *cancelled = cancel_factor(s, &l, c, remainder);
        if (cancelled) return cancelled;
        const Expr *joined = remainder ? NULL : join_divisions(s, &l, c);
        if (joined) return joined;
    }
    const Expr *inner = a->op == EX_div || a->op == EX_rem ? a->arg[1] : NULL;
    int64_t zl, zh;
    if (inner && ex_is_const(inner) && inner->k.i > 0 && bounds(&s->ranges, a->arg[0], &zl, &zh) &&
        zl >= 0) {
        int64_t d = inner->k.i;
        if (a->op == EX_div && !remainder && d <= INT32_MAX / c)
            return simplify_div(s, a->arg[0], c * d, false);
        if (a->op == EX_rem && d % c == 0)
            return remainder ? simplify_div(s, a->arg[0], c, true)
                             : simplify_div(s, simplify_div(s, a->arg[0], c, false), d / c, true);
    }
    return plain;
}

/* f w + r > 0 with r in [1, f] is w >= 0: NULL where the sum `l` is none of that kind. */
static const Expr *coarse_compare(Simplifier *s, const Linear *l) {
    Exprs *x = s->x;
    int64_t f = 0, lo, hi;
    for (int i = 0; i < l->n; i++) {
        int64_t c = l->term[i].coef < 0 ? -l->term[i].coef : l->term[i].coef;
        f = c > f ? c : f;
    }
    if (f < 2) return NULL;
    Linear rest = {.n = 0}, side[2] = {{.n = 0}, {.n = 0}}; /* w = side[0] - side[1] */
    for (int i = 0; i < l->n; i++) {
        int64_t c = l->term[i].coef;
        if (c % f)
            linear_add_term(&rest, l->term[i].e, c);
        else
            linear_add_term(&side[c < 0], l->term[i].e, (c < 0 ? -c : c) / f);
    }
    if (!linear_bounds(s, &rest, &lo, &hi)) return NULL;
    int64_t least = ((l->k + lo - 1) % f + f) % f + 1; /* of r */
    if (hi - lo + least > f) return NULL;
    int64_t k = (l->k + lo - least) / f;
    side[k < 0].k = k < 0 ? -k : k;
    return ex_le(x, linear_expr(x, &side[1]), linear_expr(x, &side[0]));
}

/* a < b and the like, by the bounds of b - a. Those of the difference alone would not do for an
 * order: x + 1 < x + 3 does not hold where only one of the sums wraps around. */
static const Expr *simplify_compare(Simplifier *s, const Expr *e) {
    const Expr *a = e->arg[0], *b = e->arg[1];
    Linear l = {.n = 0};
    int64_t lo, hi, ignored[4];
    if (a->dt != DT_i32) return e;
    if (!linear_add(&l, b, 1) || !linear_add(&l, a, -1)) return e;
    if (!linear_bounds(s, &l, &lo, &hi) || !bounds(&s->ranges, a, &ignored[0], &ignored[1]) ||
        !bounds(&s->ranges, b, &ignored[2], &ignored[3]))
        return e;
    int yes = -1; /* b - a in [lo, hi] */
    switch ((ExprOp)e->op) {
    case EX_lt:
        yes = lo > 0 ? 1 : hi <= 0 ? 0 : -1;
        break;
    case EX_le:
        yes = lo >= 0 ? 1 : hi < 0 ? 0 : -1;
        break;
    case EX_eq:
        yes = lo > 0 || hi < 0 ? 0 : lo == 0 && hi == 0 ? 1 : -1;
        break;
    case EX_ne:
        yes = lo > 0 || hi < 0 ? 1 : lo == 0 && hi == 0 ? 0 : -1;
        break;
    default:
        break;
    }
    if (yes >= 0) return ex_int(s->x, DT_bool, yes);
    if (e->op != EX_lt && e->op != EX_le) return e;
    l.k += e->op == EX_le;
    const Expr *coarse = coarse_compare(s, &l);
    return coarse ? coarse : e;
}

/* The one of two that is always the smaller or larger one; constructors may have widened it. */
static const Expr *simplify_extreme(Simplifier *s, const Expr *e) {
    int64_t al, ah, bl, bh;
    if (e->op == EX_cast) return ex_cast(s->x, (DType)e->dt, simplify_extreme(s, e->arg[0]));
    if ((e->op != EX_min && e->op != EX_max) || (e->dt != DT_i32 && e->dt != DT_i64) ||
        !bounds(&s->ranges, e->arg[0], &al, &ah) || !bounds(&s->ranges, e->arg[1], &bl, &bh))
        return e;
    if (ah <= bl) return e->op == EX_min ? e->arg[0] : e->arg[1];
    if (bh <= al) return e->op == EX_min ? e->arg[1] : e->arg[0];
    return e;
}

static const Expr *simplify(Simplifier *s, const Expr *e) {
    if (e->n == 0) {
        if (e->op == EX_var && e->dt == DT_i32 && e->k.i < s->ranges.n &&
            s->ranges.extent[e->k.i] == 1)
            return ex_i(s->x, 0);
        return e;
    }
    MemoSlot *slot = memo_slot(&s->memo, e);
    if (slot->key) return slot->value;
    Exprs *x = s->x;
    const Expr *small[4], **arg = small;
    if (e->n > 4) arg = ARENA_ARRAY(x->arena, e->n, const Expr *);
    for (int i = 0; i < e->n; i++) arg[i] = simplify(s, e->arg[i]);
    const Expr *r = ex_rebuild(x, e, arg);
    if (r->dt == DT_i32 && (r->op == EX_add || r->op == EX_sub || r->op == EX_mul))
        r = simplify_sum(s, r);
    else if (r->dt == DT_i32 && (r->op == EX_div || r->op == EX_rem) && ex_is_const(r->arg[1]) &&
             r->arg[1]->k.i > 0)
        r = simplify_div(s, r->arg[0], r->arg[1]->k.i, r->op == EX_rem);
    else if (r->op == EX_lt || r->op == EX_le || r->op == EX_eq || r->op == EX_ne)
        r = simplify_compare(s, r);
    else if (e->op == EX_min || e->op == EX_max)
        r = simplify_extreme(s, r);
    memo_set(&s->memo, e, r);
    return r;
}

const Expr *ex_simplify(Exprs *x, const Expr *e, int n, const int64_t *extent) {
    Simplifier s = {x, {.n = n, .extent = extent, .arena = x->arena}, {.arena = x->arena}};
    const Expr *result = simplify(&s, e);
    memo_end(&s.memo);
    ranges_end(&s.ranges);
    return result;
}
