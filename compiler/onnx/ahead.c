/* See ahead.h.
 *
 * A value is closed if constants, the number of the iteration and closed values make it. Where all
 * numbers are known, closed values are followed from iteration to iteration, whatever arithmetic
 * makes them, as long as the condition holds. Where some are dimensions that vary, only two forms
 * are known: a value that grows by a constant, and a comparison of two sums of such. */
#include "compiler/onnx/ahead.h"

#define MOST_FOLLOWED  100000    /* iterations */
#define MOST_CONJUNCTS 16        /* of a condition */
#define MOST_SUM       (1 << 23) /* of numbers whose sums are exact, as floats of 32 bits, too */

typedef struct Closed {
    const Ahead *a;
    int n_part; /* parts of the condition that are closed ... */
    const Expr *part[MOST_CONJUNCTS];
    bool all; /* ... which are all of it */
    bool *closed;
    const Expr **formula; /* of values after an iteration */
    ExprParts **parts;
    Scalar *now;
    int64_t number;  /* of the iteration */
    bool open, dims; /* of the expression that is looked at */
} Closed;

/* Which carried value a var of a formula is; -1: none. */
static int carried_of(const Ahead *a, const Expr *e) {
    for (int i = 0; i < a->n && e->k.i >= VALUE_INPUT; i++)
        if (a->before[i] == a->body->inputs.items[e->k.i - VALUE_INPUT]) return i;
    return -1;
}

static void note_open(void *user, const Expr *e) {
    Closed *c = user;
    if (e->op == EX_ctr) c->open |= e->k.i != c->a->body->depth - 1;
    if (e->op != EX_var) return;
    int i = carried_of(c->a, e);
    if (e->k.i < VALUE_UNKNOWN) {
        c->dims = true;
        /* of what a run computes iterations may compute others */
        c->open |= !dim_symbol_range(c->a->body->x, (int)e->k.i - DIM_VAR).name;
    } else if (i < 0 || !c->closed[i]) {
        c->open = true;
    }
}

static bool is_open(Closed *c, const Expr *e) {
    c->open = c->dims = false;
    ex_visit(c->a->body->arena, e, note_open, c);
    return c->open;
}

/* A closed expression of no dimension that varies, made ready; NULL if it is none. */
static ExprParts *ready(Closed *c, const Expr *e) {
    return !is_open(c, e) && !c->dims ? ex_parts(c->a->body->arena, e) : NULL;
}

/* A number that cannot be told from a dimension that varies? */
static bool is_code(const Ahead *a, const Value *v) {
    int n;
    const int64_t *known = value_ints(a->body->parent, v, &n);
    return known && dim_varies(known[0]);
}

/* Finds the values that are closed: those left when none hangs on another that is not. */
static bool find_closed(Closed *c) {
    const Ahead *a = c->a;
    bool any = false;
    int n;
    for (int i = 0; i < a->n; i++) {
        const Value *v = a->after[i], *first = a->begin[i];
        c->closed[i] = v && first && value_numel(v) == 1 && value_numel(first) == 1 &&
                       v->dt == first->dt && (v->dt == DT_i32 || v->dt == DT_i64) &&
                       value_dims(a->body->parent, first, &n) && !is_code(a, first);
        if (c->closed[i]) c->formula[i] = value_formula(a->body, v);
    }
    for (bool again = true; again;) {
        again = any = false;
        for (int i = 0; i < a->n; i++) {
            if (!c->closed[i]) continue;
            c->closed[i] = !is_open(c, c->formula[i]);
            again |= !c->closed[i];
            any |= c->closed[i];
        }
    }
    return any;
}

/* Finds the parts of the condition that are closed. An If, as TorchScript writes `and`, is a choice
 * between its second part and false. */
static void find_parts(Closed *c, const Expr *e) {
    const Expr *left[MOST_CONJUNCTS] = {e};
    int n_left = 1;
    c->n_part = 0;
    c->all = true;
    while (n_left) {
        e = left[--n_left];
        const bool and_by_if = e->op == EX_select && ex_is_const(e->arg[2]) && !e->arg[2]->k.i;
        if ((e->op == EX_and || and_by_if) && n_left + 2 <= MOST_CONJUNCTS) {
            left[n_left++] = e->arg[1];
            left[n_left++] = e->arg[0];
        } else if (is_open(c, e) || c->n_part == MOST_CONJUNCTS) {
            c->all = false;
        } else {
            c->part[c->n_part++] = e;
        }
    }
}

static Scalar leaf_now(void *user, const Expr *e) {
    const Closed *c = user;
    return e->op == EX_ctr ? (Scalar){.i = c->number} : c->now[carried_of(c->a, e)];
}

/* Follows the closed values from the first iteration to the last. False if that is too far, or they
 * are not all known. */
static bool follow(Closed *c, Ahead *a) {
    Arena *arena = a->body->arena;
    ExprParts **condition = ARENA_ARRAY(arena, c->n_part + 1, ExprParts *);
    Scalar *next = ARENA_ARRAY(arena, a->n + 1, Scalar);
    int n;
    for (int i = 0; i < c->n_part; i++)
        if (!(condition[i] = ready(c, c->part[i]))) return false;
    for (int i = 0; i < a->n; i++) {
        if (!c->closed[i]) continue;
        const int64_t *first = value_ints(a->body->parent, a->begin[i], &n);
        c->parts[i] = first ? ready(c, c->formula[i]) : NULL;
        if (!c->parts[i]) return false;
        c->now[i].i = first[0];
        a->counted[i] = (Counted){.known = true, .first = first[0]};
    }
    bool goes_on = true;
    for (c->number = 0; goes_on && c->number < a->most; c->number++) {
        if (c->number == MOST_FOLLOWED) return false;
        for (int i = 0; i < c->n_part; i++)
            goes_on &= ex_parts_eval(condition[i], leaf_now, c).i != 0;
        for (int i = 0; i < a->n; i++)
            if (c->closed[i]) next[i] = ex_parts_eval(c->parts[i], leaf_now, c);
        for (int i = 0; i < a->n; i++) {
            if (!c->closed[i]) continue;
            int64_t step = (int64_t)((uint64_t)next[i].i - (uint64_t)c->now[i].i);
            if (c->number == 0) a->counted[i].step = step;
            a->counted[i].known &= step == a->counted[i].step && !dim_varies(step);
            c->now[i] = next[i];
        }
    }
    if (!goes_on) a->trips = c->number;
    return true;
}

#define MOST_DEPTH 8 /* of sums that are compared */

static const Expr *small(Exprs *x, int64_t number) {
    return number <= MOST_SUM && number >= -MOST_SUM ? ex_i(x, number) : NULL;
}

static bool is_wide(const Expr *e) {
    return e->dt == DT_i32 || e->dt == DT_i64;
}

/* A sum of closed values, of numbers of at most MOST_SUM, in i32, with var 0 for the number of the
 * iteration; NULL if it is none. Casts between i32 and i64 are left out: the caller sees to it that
 * the sum is small. */
static const Expr *sum_of_number(const Ahead *a, const Expr *e, int depth) {
    Exprs *x = a->body->x;
    if (depth == MOST_DEPTH || !is_wide(e)) return NULL;
    switch ((ExprOp)e->op) {
    case EX_const:
        return small(x, e->k.i);
    case EX_ctr:
        return ex_var(x, 0);
    case EX_var: {
        int i = carried_of(a, e);
        if (i < 0) return e->dt == DT_i32 ? e : NULL;
        const Counted *k = &a->counted[i];
        const Expr *step = small(x, k->step);
        const Expr *first = dim_varies(k->first) ? ex_i(x, k->first) : small(x, k->first);
        return first && step ? ex_add(x, first, ex_mul(x, ex_var(x, 0), step)) : NULL;
    }
    case EX_cast:
        return sum_of_number(a, e->arg[0], depth + 1);
    case EX_add:
    case EX_sub: {
        const Expr *left = sum_of_number(a, e->arg[0], depth + 1);
        const Expr *right = left ? sum_of_number(a, e->arg[1], depth + 1) : NULL;
        return right ? ex_bin(x, (ExprOp)e->op, left, right) : NULL;
    }
    default:
        return NULL;
    }
}

/* A side of a comparison, such a sum, perhaps as a float: base + grows * number, of which both are
 * small as long as the number is. */
static bool side_of(const Ahead *a, const Expr *e, int64_t *grows, const Expr **base) {
    Exprs *x = a->body->x;
    int64_t low, high;
    if (e->op == EX_cast && (e->dt == DT_f32 || e->dt == DT_f64)) e = e->arg[0];
    e = sum_of_number(a, e, 0);
    return e && ex_affine(x, e, 1, grows, base) && *grows >= -1 && *grows <= 1 &&
           dim_bounds(x, *base, &low, &high) && high <= MOST_SUM && low >= -MOST_SUM;
}

/* As long as number < *left; false if the condition is none of that form. */
static bool find_left(const Ahead *a, const Expr *condition, int64_t *left) {
    Exprs *x = a->body->x;
    int64_t less, more, low, high;
    const Expr *below, *above;
    if (condition->op != EX_lt && condition->op != EX_le) return false;
    if (!side_of(a, condition->arg[0], &less, &below) ||
        !side_of(a, condition->arg[1], &more, &above) || less - more != 1)
        return false;
    const Expr *base = ex_sub(x, above, below);
    if (condition->op == EX_le) base = ex_add(x, base, ex_i(x, 1));
    return dim_bounds(x, base, &low, &high) && high <= MOST_SUM && dim_from_expr(x, base, left);
}

/* The same by their forms. */
static void find_forms(Closed *c, Ahead *a) {
    Exprs *x = a->body->x;
    int n;
    for (int i = 0; i < a->n; i++) {
        a->counted[i] = (Counted){0};
        if (!c->closed[i]) continue;
        const Expr *e = c->formula[i], *own = e->op == EX_add ? e->arg[0] : e;
        const int64_t *first = value_dims(a->body->parent, a->begin[i], &n);
        bool grows = e->op == EX_add && ex_is_const(e->arg[1]) && !dim_varies(e->arg[1]->k.i);
        c->closed[i] = first && (own == e || grows) && own->op == EX_var && carried_of(a, own) == i;
        a->counted[i] = (Counted){.known = c->closed[i],
                                  .first = first ? first[0] : 0,
                                  .step = grows ? e->arg[1]->k.i : 0};
    }
    for (int i = 0; i < c->n_part; i++) {
        int64_t left;
        if (is_open(c, c->part[i]) || !find_left(a, c->part[i], &left)) {
            c->all = false;
            continue;
        }
        int64_t trips = dim_add(x, dim_larger(x, left, 0), 1);
        a->trips = a->trips == -1 ? trips : dim_smaller(x, a->trips, trips);
    }
}

bool look_ahead(Ahead *a) {
    Arena *arena = a->body->arena;
    Closed c = {.a = a,
                .closed = ARENA_ARRAY(arena, a->n + 1, bool),
                .formula = ARENA_ARRAY(arena, a->n + 1, const Expr *),
                .parts = ARENA_ARRAY(arena, a->n + 1, ExprParts *),
                .now = ARENA_ARRAY(arena, a->n + 1, Scalar)};
    a->trips = -1;
    a->counted = ARENA_ARRAY(arena, a->n + 1, Counted);
    bool tells = find_closed(&c);
    if (tells) {
        if (a->condition && value_numel(a->condition) == 1)
            find_parts(&c, value_formula(a->body, a->condition));
        bool followed = follow(&c, a);
        if (!followed) find_forms(&c, a);
        a->certain = c.all && (followed || a->trips != -1);
    }
    for (int i = 0; i < a->n; i++) {
        a->counted[i].stays = a->before[i] && a->after[i] == a->before[i];
        tells |= a->counted[i].stays;
    }
    return tells;
}
