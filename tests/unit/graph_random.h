/* Random graphs of every kind of operator, for tests of the passes.
 *
 * Values are small whole numbers and operators keep them so: arithmetic is exact and results can be
 * compared bit for bit, whatever the order of sums. Values that went through a function such as exp
 * are marked and only used where a small error stays small. Shapes are small, with the sizes that
 * tiles do not divide (17, 31, 33), ones, and now and then zero. */
#ifndef TESTS_GRAPH_RANDOM_H
#define TESTS_GRAPH_RANDOM_H

#include "tests/unit/program_run.h"

typedef struct Item {
    Value *v;
    double bound; /* largest absolute value */
    bool exact;
} Item;

typedef struct Maker {
    Graph *g;
    Exprs *x;
    Random *r;
    Item pool[96];
    int n;
    int64_t max_numel;
    bool smooth; /* functions that are not exact are allowed */
} Maker;

static inline Item *maker_add(Maker *m, Value *v, double bound, bool exact) {
    if (m->n == (int)(sizeof m->pool / sizeof *m->pool)) m->n--; /* forget the newest */
    m->pool[m->n] = (Item){v, bound, exact};
    return &m->pool[m->n++];
}

static inline int64_t random_dim(Random *r) {
    static const int64_t dims[] = {1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 33, 40, 64, 130};
    return dims[random_below(r, (int)(sizeof dims / sizeof *dims))];
}

static inline int random_shape(Maker *m, int rank, int64_t *shape) {
    int64_t numel = 1;
    for (int i = 0; i < rank; i++) {
        shape[i] = random_chance(m->r, 1) ? 0 : random_dim(m->r);
        while (numel * shape[i] > m->max_numel) shape[i] = shape[i] / 2;
        numel *= shape[i] > 0 ? shape[i] : 1;
    }
    return rank;
}

static inline DType random_type(Random *r) {
    static const DType types[] = {DT_f32, DT_f32, DT_f32, DT_f32, DT_i32,
                                  DT_i64, DT_f16, DT_u8,  DT_i8,  DT_f64};
    return types[random_below(r, (int)(sizeof types / sizeof *types))];
}

static inline Item *maker_const(Maker *m, DType dt, int rank, const int64_t *shape) {
    size_t bytes = (size_t)shape_numel(rank, shape) * dt_store(dt);
    void *data = arena_alloc(m->g->arena, bytes + 16);
    Value *v = graph_const(m->g, dt, rank, shape, data);
    random_fill(m->r, v, data);
    return maker_add(m, v, 4, true);
}

static inline Item *pick(Maker *m) {
    /* the newer half more often */
    int half = m->n / 2;
    int at =
        random_chance(m->r, 60) ? half + random_below(m->r, m->n - half) : random_below(m->r, m->n);
    return &m->pool[at];
}

/* An f32 value of at least this rank, made of another if need be. */
static inline Item pick_f32(Maker *m) {
    Item it = *pick(m);
    if (it.v->dt == DT_f32) return it;
    if (it.bound > 1e6) it.bound = 1e6;
    Value *v = g_cast(m->g, it.v, DT_f32);
    if (dt_is_int(it.v->dt)) {
        Value *limits[3] = {v, g_scalar(m->g, DT_f32, -100), g_scalar(m->g, DT_f32, 100)};
        const char *names[] = {"a", "b", "c"};
        v = g_formula(m->g, "min(max(a, b), c)", 3, names, limits);
        it.bound = 100;
    }
    return *maker_add(m, v, it.bound, it.exact);
}

/* Brings large values back to -8..8. */
static inline Item tame(Maker *m, Item it) {
    double limit = it.v->dt == DT_f16 ? 100 : it.exact ? 4096 : 64;
    if (!dt_is_float(it.v->dt) || it.bound <= limit) return it;
    const char *names[] = {"a"};
    Value *v = g_formula(m->g, "min(max(a, -8), 8)", 1, names, &it.v);
    return (Item){v, 8, it.exact};
}

static inline Item *add_tamed(Maker *m, Value *v, double bound, bool exact) {
    Item it = tame(m, (Item){v, bound, exact});
    return maker_add(m, it.v, it.bound, it.exact);
}

/* A value that can be broadcast with `a`, of its type: an existing one, or a constant or slice. */
static inline Item partner(Maker *m, Item a) {
    for (int tries = 0; tries < 6; tries++) {
        Item *b = pick(m);
        int rank;
        int64_t shape[MAX_RANK];
        if (b->v->dt == a.v->dt && (!dt_is_float(a.v->dt) || b->exact == a.exact) &&
            shape_broadcast(m->g->x, a.v->rank, a.v->shape, b->v->rank, b->v->shape, &rank,
                            shape) &&
            rank <= 5 && shape_numel(rank, shape) <= m->max_numel)
            return *b;
    }
    int64_t shape[MAX_RANK];
    int skip = a.v->rank ? random_below(m->r, a.v->rank + 1) : 0;
    for (int i = skip; i < a.v->rank; i++)
        shape[i - skip] = random_chance(m->r, 40) ? 1 : a.v->shape[i];
    Item *c = maker_const(m, a.v->dt, a.v->rank - skip, shape);
    return *c;
}

/* --- operators -------------------------------------------------------------------------------- */

static inline void make_binary(Maker *m) {
    Item a = tame(m, *pick(m)), b = tame(m, partner(m, a));
    static const ExprOp ops[] = {EX_add, EX_sub, EX_mul, EX_min, EX_max, EX_add};
    ExprOp op = ops[random_below(m->r, 6)];
    double bound = op == EX_mul ? a.bound * b.bound : a.bound + b.bound;
    add_tamed(m, g_bin(m->g, op, a.v, b.v), bound, a.exact && b.exact);
}

static inline void make_unary(Maker *m) {
    Item a = tame(m, *pick(m));
    static const char *const exact[] = {"-a",
                                        "abs(a)",
                                        "a + a - 1",
                                        "max(a, 0)",
                                        "a * 2",
                                        "select(a > 1, a, 0 - a)",
                                        "select(a < 0, 1, a)"};
    static const char *const smooth[] = {"tanh(a)", "exp(-abs(a))", "1 / (1 + exp(-a))",
                                         "sqrt(abs(a))", "a / 3"};
    const char *names[] = {"a"};
    bool f = m->smooth && a.v->dt == DT_f32 && random_chance(m->r, 50);
    const char *formula = f ? smooth[random_below(m->r, 5)] : exact[random_below(m->r, 7)];
    if (!f && !a.exact) formula = exact[random_below(m->r, 5)];
    add_tamed(m, g_formula(m->g, formula, 1, names, &a.v), a.bound * 2 + 1, a.exact && !f);
}

static inline void make_cast(Maker *m) {
    Item a = tame(m, *pick(m));
    DType dt = random_type(m->r);
    if (!a.exact || (dt == DT_f16 && !dt_is_float(a.v->dt))) return;
    if (dt_is_float(dt) && !dt_is_float(a.v->dt)) {
        pick_f32(m);
        return;
    }
    maker_add(m, g_cast(m->g, a.v, dt), a.bound, true);
}

static inline void make_transpose(Maker *m) {
    Item a = *pick(m);
    int perm[MAX_RANK];
    for (int i = 0; i < a.v->rank; i++) perm[i] = i;
    for (int i = a.v->rank - 1; i > 0; i--) {
        int k = random_below(m->r, i + 1), t = perm[i];
        perm[i] = perm[k], perm[k] = t;
    }
    maker_add(m, g_transpose(m->g, a.v, perm), a.bound, a.exact);
}

static inline void make_slice(Maker *m) {
    Item a = *pick(m);
    int64_t start[MAX_RANK], step[MAX_RANK], count[MAX_RANK];
    for (int i = 0; i < a.v->rank; i++) {
        int64_t n = a.v->shape[i];
        step[i] = 1 + random_below(m->r, 3);
        start[i] = n > 1 && random_chance(m->r, 60) ? random_below(m->r, (int)n) : 0;
        if (random_chance(m->r, 30)) {
            step[i] = -step[i];
            start[i] = n > 0 ? n - 1 - start[i] : 0;
            count[i] = n > 0 ? start[i] / -step[i] + 1 : 0;
        } else {
            count[i] = n > 0 ? (n - start[i] + step[i] - 1) / step[i] : 0;
        }
        if (count[i] > 1 && random_chance(m->r, 20)) count[i]--;
    }
    maker_add(m, g_slice(m->g, a.v, start, step, count), a.bound, a.exact);
}

static inline void make_pad(Maker *m) {
    Item a = *pick(m);
    int64_t before[MAX_RANK], after[MAX_RANK], numel = 1;
    for (int i = 0; i < a.v->rank; i++) {
        before[i] = random_below(m->r, 4) - 1, after[i] = random_below(m->r, 4) - 1;
        if (a.v->shape[i] + before[i] + after[i] < 0) before[i] = after[i] = 0;
        numel *= a.v->shape[i] + before[i] + after[i];
    }
    if (numel > 2 * m->max_numel) return;
    Scalar fill = {.i = 2};
    if (dt_is_float(a.v->dt)) fill.f = 2;
    maker_add(m, g_pad(m->g, a.v, before, after, fill), a.bound + 2, a.exact);
}

/* A value in one range of a coordinate, a constant or another value in the rest. */
static inline void make_band(Maker *m) {
    Exprs *x = m->x;
    Item a = *pick(m);
    if (a.v->rank == 0) return;
    Item c = random_chance(m->r, 50) ? partner(m, a) : a;
    Builder b = build(m->g, a.v->rank, a.v->shape);
    int axis = random_below(m->r, a.v->rank);
    int rank;
    int64_t shape[MAX_RANK], extent = a.v->shape[axis];
    if (!shape_broadcast(m->g->x, a.v->rank, a.v->shape, c.v->rank, c.v->shape, &rank, shape) ||
        !shape_equal(rank, shape, a.v->rank, a.v->shape))
        return;
    const Expr *i = ex_var(x, axis);
    const Expr *bound = ex_i(x, extent > 1 ? random_below(m->r, (int)extent) : 0);
    const Expr *inside = random_chance(m->r, 50) ? ex_lt(x, i, bound) : ex_le(x, bound, i);
    if (a.v->rank > 1 && random_chance(m->r, 20))
        inside = ex_le(x, ex_var(x, (axis + 1) % a.v->rank), i);
    if (random_chance(m->r, 40)) inside = ex_and(x, ex_le(x, ex_i(x, 1), i), inside);
    const Expr *one = build_in(&b, a.v);
    const Expr *rest = c.v != a.v ? build_in(&b, c.v) : ex_num(x, a.v->dt, 2);
    if (random_chance(m->r, 30)) one = ex_add(x, one, one);
    Value *v = build_map(&b, a.v->dt, ex_select(x, inside, one, rest));
    add_tamed(m, v, 2 * a.bound + c.bound + 2, a.exact && c.exact);
}

static inline void make_concat(Maker *m) {
    Item a = *pick(m);
    if (a.v->rank == 0 || value_numel(a.v) * 3 > 2 * m->max_numel) return;
    int axis = random_below(m->r, a.v->rank), n = 2 + random_below(m->r, 2);
    Value *v[3] = {a.v};
    double bound = a.bound;
    for (int i = 1; i < n; i++) {
        int64_t shape[MAX_RANK];
        memcpy(shape, a.v->shape, (size_t)a.v->rank * sizeof *shape);
        shape[axis] = 1 + random_below(m->r, 5);
        v[i] = NULL;
        for (int k = 0; k < m->n && !v[i]; k++) {
            Value *b = m->pool[k].v;
            shape[axis] = b->rank == a.v->rank ? b->shape[axis] : 1;
            if (b != a.v && b->dt == a.v->dt && m->pool[k].exact == a.exact &&
                shape_equal(a.v->rank, shape, b->rank, b->shape) && random_chance(m->r, 60)) {
                v[i] = b;
                bound = fmax(bound, m->pool[k].bound);
            }
        }
        shape[axis] = 1 + random_below(m->r, 5);
        if (!v[i])
            v[i] = random_chance(m->r, 50) ? a.v : maker_const(m, a.v->dt, a.v->rank, shape)->v;
    }
    Value *result = g_concat(m->g, n, v, axis);
    if (value_numel(result) <= 3 * m->max_numel) maker_add(m, result, fmax(bound, 4), a.exact);
}

static inline void make_reshape(Maker *m) {
    Item a = *pick(m);
    int64_t shape[MAX_RANK], rest = value_numel(a.v);
    int rank = 0;
    while (rank < 4 && random_chance(m->r, 75)) {
        int64_t d = 1;
        for (int64_t k = 1; k <= rest && k <= 64; k++)
            if (rest % k == 0 && random_chance(m->r, 40)) d = k;
        if (random_chance(m->r, 15)) d = 1;
        shape[rank++] = d;
        rest = rest ? rest / d : 0;
    }
    if (rest != 1 || rank == 0) {
        if (rest == 1 && rank == 0 && random_chance(m->r, 50))
            rank = 0;
        else
            shape[rank++] = rest;
    }
    maker_add(m, g_reshape(m->g, a.v, rank, shape), a.bound, a.exact);
}

static inline void make_expand(Maker *m) {
    Item a = *pick(m);
    int64_t shape[MAX_RANK], numel = 1;
    int lead = random_below(m->r, 2);
    if (a.v->rank + lead > 5) return;
    if (lead) shape[0] = 1 + random_below(m->r, 4);
    for (int i = 0; i < a.v->rank; i++)
        shape[lead + i] = a.v->shape[i] == 1 ? 1 + random_below(m->r, 9) : a.v->shape[i];
    for (int i = 0; i < a.v->rank + lead; i++) numel *= shape[i];
    if (numel > m->max_numel) return;
    maker_add(m, g_expand(m->g, a.v, a.v->rank + lead, shape), a.bound, a.exact);
}

static inline void make_reduce(Maker *m) {
    Item a = tame(m, *pick(m));
    static const Combine kinds[] = {COMBINE_sum, COMBINE_max, COMBINE_min, COMBINE_sum};
    Combine kind = kinds[random_below(m->r, 4)];
    uint32_t axes = 0;
    double count = 1;
    for (int i = 0; i < a.v->rank; i++)
        if (random_chance(m->r, 50)) axes |= 1u << i, count *= (double)a.v->shape[i];
    if (count == 0) kind = COMBINE_sum;
    if (dt_is_int(a.v->dt) && random_chance(m->r, 20)) kind = COMBINE_prod;
    Value *v = g_reduce(m->g, kind, a.v, axes, random_chance(m->r, 50));
    add_tamed(m, v, kind == COMBINE_sum ? a.bound * count : a.bound, a.exact);
}

static inline void make_matmul(Maker *m) {
    Item a = pick_f32(m);
    a = tame(m, a);
    if (a.v->rank == 0 || a.v->shape[a.v->rank - 1] == 0) return;
    int64_t k = a.v->shape[a.v->rank - 1];
    int64_t n = random_dim(m->r), shape[2] = {k, n};
    Item b = {NULL, 4, true};
    for (int i = 0; i < m->n && !b.v; i++) {
        Item *c = &m->pool[i];
        if (c->v->dt == DT_f32 && c->v->rank >= 2 && c->v->shape[c->v->rank - 2] == k &&
            c->v->rank <= a.v->rank && (c->v->rank == 2 || a.v->rank == 1) &&
            random_chance(m->r, 60))
            b = *c;
    }
    if (a.v->rank > 1 && value_numel(a.v) / k * n > 2 * m->max_numel) return;
    if (!b.v) b = *maker_const(m, DT_f32, 2, shape);
    b = tame(m, b);
    Value *v = g_matmul(m->g, a.v, b.v, DT_f32, DT_f32);
    add_tamed(m, v, a.bound * b.bound * (double)k, a.exact && b.exact);
}

/* A tensor of these dimensions in random order: an input of the graph, or a constant.
 * at: the coordinates it is to be loaded at, brought into the same order. */
static inline Value *make_factor(Maker *m, DType dt, int n, const int64_t *dims, const Expr **at) {
    int64_t shape[MAX_RANK];
    const Expr *index[MAX_RANK];
    for (int i = 0; i < n; i++) shape[i] = dims[i], index[i] = at[i];
    for (int i = n - 1; i > 0; i--) {
        int k = random_below(m->r, i + 1);
        int64_t d = shape[i];
        const Expr *e = index[i];
        shape[i] = shape[k], shape[k] = d;
        index[i] = index[k], index[k] = e;
    }
    for (int i = 0; i < n; i++) at[i] = index[i];
    if (m->g->depth > 0 || random_chance(m->r, 50)) return maker_const(m, dt, n, shape)->v;
    return graph_input(m->g, "factor", dt, n, shape);
}

/* A contraction of two tensors: rows of one, columns of the other, batches of both, any layout. */
static inline void make_contraction(Maker *m) {
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 9, 16, 17, 20, 31, 33};
    Exprs *x = m->x;
    int64_t shape[MAX_RANK], dims[2][MAX_RANK], numel = 1, depth = 1;
    const Expr *at[2][MAX_RANK];
    int rank = 0, n[2] = {0, 0}, count[3];
    for (int role = 0; role < 3; role++) count[role] = 1 + (random_below(m->r, 4) == 0);
    count[2] = random_chance(m->r, 30);
    Builder b = build(m->g, 0, NULL);
    for (int role = 0; role < 3; role++) /* rows, columns, batches */
        for (int i = 0; i < count[role]; i++) {
            int64_t d = sizes[random_below(m->r, role < 2 ? 11 : 4)];
            while (numel * d > 3000) d = (d + 1) / 2;
            if (numel * d > 3000) d = 1;
            numel *= d;
            for (int f = 0; f < 2; f++)
                if (role == 2 || role == f) {
                    dims[f][n[f]] = d;
                    at[f][n[f]++] = ex_var(x, rank);
                }
            shape[rank++] = d;
        }
    b = build(m->g, rank, shape);
    for (int i = 1 + (random_below(m->r, 4) == 0); i > 0; i--) {
        int64_t d = sizes[random_below(m->r, 11)];
        if (depth * d > 80) d = 2;
        depth *= d;
        const Expr *r = build_red(&b, d);
        for (int f = 0; f < 2; f++) {
            dims[f][n[f]] = d;
            at[f][n[f]++] = r;
        }
    }
    bool whole = random_chance(m->r, 20); /* bytes, as quantised models have them */
    DType dt = whole ? DT_i8 : random_chance(m->r, 15) ? DT_f16 : DT_f32;
    DType acc = whole ? DT_i32 : DT_f32;
    const Expr *factor[2];
    for (int f = 0; f < 2; f++) {
        Value *v = make_factor(m, dt, n[f], dims[f], at[f]);
        factor[f] = ex_cast(x, acc, build_load(&b, v, at[f]));
        if (whole) factor[f] = ex_sub(x, factor[f], ex_i(x, 3));
    }
    Value *v = build_reduce(&b, acc, COMBINE_sum, ex_mul(x, factor[0], factor[1]), NULL);
    add_tamed(m, v, 64 * (double)depth, true);
}

/* A long reduction to a few elements. */
static inline void make_long_reduce(Maker *m) {
    int64_t few = 1 + random_below(m->r, 5), shape[2] = {few, 100 + random_below(m->r, 400)};
    const Expr *at[2] = {ex_var(m->x, 0), NULL};
    Builder b = build(m->g, 1, &few);
    at[1] = build_red(&b, shape[1]);
    Value *v = make_factor(m, DT_f32, 2, shape, at);
    static const Combine kinds[] = {COMBINE_sum, COMBINE_max, COMBINE_min};
    v = build_reduce(&b, DT_f32, kinds[random_below(m->r, 3)], build_load(&b, v, at), NULL);
    add_tamed(m, v, 4 * 500, true);
}

/* A product of a value with its own transpose: no constants, both sides computed. */
static inline void make_gram(Maker *m) {
    Item a = tame(m, pick_f32(m));
    if (a.v->rank != 2 || a.v->shape[0] * a.v->shape[0] > m->max_numel || a.v->shape[1] == 0)
        return;
    int perm[2] = {1, 0};
    Value *v = g_matmul(m->g, a.v, g_transpose(m->g, a.v, perm), DT_f32, DT_f32);
    add_tamed(m, v, a.bound * a.bound * (double)a.v->shape[1], a.exact);
}

/* [n, c, h, w] * [o, c, kh, kw] with strides, dilations and padding. */
static inline void make_conv(Maker *m) {
    Exprs *x = m->x;
    Item a = tame(m, pick_f32(m));
    if (value_numel(a.v) == 0) return;
    int64_t numel = value_numel(a.v), c = 1, h = 1, w;
    for (int64_t k = 2; k <= 5; k++)
        if (numel % k == 0 && random_chance(m->r, 50)) c = k;
    for (int64_t k = 2; k <= 17; k++)
        if ((numel / c) % k == 0 && random_chance(m->r, 40)) h = k;
    w = numel / c / h;
    if (w > 70) return;
    int64_t in_shape[4] = {1, c, h, w};
    Value *in = g_reshape(m->g, a.v, 4, in_shape);
    int64_t o = 1 + random_below(m->r, 9), kh = 1 + random_below(m->r, 3),
            kw = 1 + random_below(m->r, 3), stride = 1 + random_below(m->r, 2),
            dilation = 1 + random_below(m->r, 2), pad = random_below(m->r, 3);
    int64_t oh = (h + 2 * pad - dilation * (kh - 1) - 1) / stride + 1,
            ow = (w + 2 * pad - dilation * (kw - 1) - 1) / stride + 1;
    if (h + 2 * pad < dilation * (kh - 1) + 1 || w + 2 * pad < dilation * (kw - 1) + 1 ||
        o * oh * ow > 2 * m->max_numel)
        return;
    int64_t w_shape[4] = {o, c, kh, kw}, shape[4] = {1, o, oh, ow};
    Value *weights = maker_const(m, DT_f32, 4, w_shape)->v;
    Builder b = build(m->g, 4, shape);
    const Expr *rc = build_red(&b, c), *rh = build_red(&b, kh), *rw = build_red(&b, kw);
    const Expr *r[2] = {rh, rw}, *at[2], *inside = ex_int(x, DT_bool, 1);
    for (int i = 0; i < 2; i++) {
        at[i] = ex_add(x, ex_mul(x, ex_var(x, 2 + i), ex_i(x, stride)),
                       ex_sub(x, ex_mul(x, r[i], ex_i(x, dilation)), ex_i(x, pad)));
        inside = ex_and(
            x, inside,
            ex_and(x, ex_le(x, ex_i(x, 0), at[i]), ex_lt(x, at[i], ex_i(x, in_shape[2 + i]))));
    }
    const Expr *from[4] = {ex_var(x, 0), rc, at[0], at[1]}, *of[4] = {ex_var(x, 1), rc, rh, rw};
    const Expr *element = ex_select(x, inside, build_load(&b, in, from), ex_num(x, DT_f32, 0));
    const Expr *product = ex_mul(x, element, build_load(&b, weights, of));
    Value *v = build_reduce(&b, DT_f32, COMBINE_sum, product, NULL);
    add_tamed(m, v, a.bound * 4 * (double)(c * kh * kw), a.exact);
}

/* (q - zero) * 2^-3 of a tensor of bytes. */
static inline Value *make_decoded(Maker *m, Value *q) {
    Exprs *x = m->x;
    const Expr *at[MAX_RANK];
    Builder b = build(m->g, q->rank, q->shape);
    for (int i = 0; i < q->rank; i++) at[i] = ex_var(x, i);
    const Expr *e = ex_cast(x, DT_i32, build_load(&b, q, at));
    e = ex_cast(x, DT_f32, ex_sub(x, e, ex_i(x, random_below(m->r, 3) * 5)));
    return build_map(&b, DT_f32, ex_mul(x, e, ex_num(x, DT_f32, 0.125)));
}

static inline const Expr *as_byte(Maker *m, DType type, const Expr *e) {
    Exprs *x = m->x;
    int low = type == DT_i8 ? -128 : 0, zero = random_below(m->r, 2) * (low + 100);
    e = ex_bin(x, EX_max, e, ex_num(x, DT_f32, low - zero));
    e = ex_un(x, EX_round, ex_bin(x, EX_min, e, ex_num(x, DT_f32, low + 255 - zero)));
    return ex_cast(x, type, ex_add(x, ex_cast(x, DT_i32, e), ex_i(x, zero)));
}

/* A window that slides over each channel of bytes for itself, encoded as bytes; sometimes after a
 * function. All of it is exact. */
static inline void make_channel_window(Maker *m) {
    static const int64_t channels[] = {1, 3, 4, 7, 8, 16, 17, 24, 33, 48, 64};
    Exprs *x = m->x;
    int64_t c = channels[random_below(m->r, 11)], kh = 1 + random_below(m->r, 8),
            kw = 1 + random_below(m->r, 3), oh = 1 + random_below(m->r, 4),
            ow = 1 + random_below(m->r, 9), stride = 1 + random_below(m->r, 2);
    while (c * oh * ow > 2 * m->max_numel) oh = (oh + 1) / 2, ow = (ow + 1) / 2, c = (c + 1) / 2;
    int64_t in_shape[3] = {c, stride * (oh - 1) + kh, stride * (ow - 1) + kw};
    int64_t w_shape[3] = {c, kh, kw}, shape[3] = {c, oh, ow};
    DType type = random_chance(m->r, 50) ? DT_u8 : DT_i8;
    Value *bytes = m->g->depth > 0 ? maker_const(m, type, 3, in_shape)->v
                                   : graph_input(m->g, "bytes", type, 3, in_shape);
    Value *in = make_decoded(m, bytes);
    DType w_type = random_chance(m->r, 80) ? DT_i8 : DT_u8;
    Value *weights = make_decoded(m, maker_const(m, w_type, 3, w_shape)->v);
    Builder b = build(m->g, 3, shape);
    const Expr *rh = build_red(&b, kh), *rw = build_red(&b, kw), *step = ex_i(x, stride);
    const Expr *from[3] = {ex_var(x, 0), ex_add(x, ex_mul(x, ex_var(x, 1), step), rh),
                           ex_add(x, ex_mul(x, ex_var(x, 2), step), rw)};
    const Expr *of[3] = {ex_var(x, 0), rh, rw};
    Value *sum =
        build_reduce(&b, DT_f32, COMBINE_sum,
                     ex_mul(x, build_load(&b, in, from), build_load(&b, weights, of)), NULL);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2)};
    b = build(m->g, 3, shape);
    const Expr *e = ex_mul(x, build_load(&b, sum, at), ex_num(x, DT_f32, 0.25));
    if (random_chance(m->r, 30)) e = ex_add(x, e, ex_num(x, DT_f32, 2.5));
    maker_add(m, build_map(&b, type, as_byte(m, type, e)), 255, true);
}

/* Planes, encoded as bytes, side by side in pixels of four, with a rim. */
static inline void make_pixels(Maker *m) {
    Exprs *x = m->x;
    int64_t c = 3 + random_below(m->r, 2), h = 1 + random_below(m->r, 4), w = random_dim(m->r),
            rim = random_below(m->r, 2), planes[3] = {c, h, w}, shape[3] = {h + rim, w + rim, 4};
    DType type = random_chance(m->r, 50) ? DT_u8 : DT_i8;
    Value *in = m->g->depth > 0 ? maker_const(m, DT_f32, 3, planes)->v
                                : graph_input(m->g, "planes", DT_f32, 3, planes);
    Builder b = build(m->g, 3, shape);
    const Expr *edge = ex_i(x, rim), *row = ex_var(x, 0), *column = ex_var(x, 1);
    const Expr *at[3] = {ex_var(x, 2), ex_sub(x, row, edge), ex_sub(x, column, edge)};
    const Expr *e = ex_mul(x, build_load(&b, in, at), ex_num(x, DT_f32, 37));
    const Expr *inside = ex_and(x, ex_le(x, edge, row), ex_le(x, edge, column));
    e = ex_select(x, inside, as_byte(m, type, e), ex_int(x, type, 7));
    if (c < 4) e = ex_select(x, ex_lt(x, at[0], ex_i(x, c)), e, ex_int(x, type, 0));
    maker_add(m, build_map(&b, type, e), 255, true);
}

/* A function of bytes between encoded tensors: exact, for every target reads it from a table. */
static inline void make_activation(Maker *m) {
    Exprs *x = m->x;
    const Expr *at[MAX_RANK];
    Value *in = NULL;
    for (int i = 0; i < m->n; i++)
        if (m->pool[i].v->dt == DT_u8 || m->pool[i].v->dt == DT_i8) in = m->pool[i].v;
    if (!in) {
        int64_t shape[2] = {1 + random_below(m->r, 3), 1 + random_below(m->r, 300)};
        in = m->g->depth > 0 ? maker_const(m, DT_u8, 2, shape)->v
                             : graph_input(m->g, "bytes", DT_u8, 2, shape);
    }
    Builder b = build(m->g, in->rank, in->shape);
    for (int i = 0; i < in->rank; i++) at[i] = ex_var(x, i);
    const Expr *e = ex_cast(x, DT_f32, ex_cast(x, DT_i32, build_load(&b, in, at)));
    e = ex_un(x, EX_exp, ex_mul(x, e, ex_num(x, DT_f32, 0.0078125)));
    e = ex_sub(x, ex_mul(x, e, ex_num(x, DT_f32, 16)), ex_num(x, DT_f32, 20));
    maker_add(m, build_map(&b, in->dt, as_byte(m, in->dt, e)), 255, true);
}

static inline void make_scan(Maker *m) {
    Item a = tame(m, *pick(m));
    if (a.v->rank == 0) return;
    int axis = random_below(m->r, a.v->rank);
    Builder b = build(m->g, a.v->rank, a.v->shape);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < a.v->rank; i++) index[i] = ex_var(m->x, i == axis ? a.v->rank : i);
    Combine kind = random_chance(m->r, 70) ? COMBINE_sum : COMBINE_max;
    bool exclusive = kind == COMBINE_sum && random_chance(m->r, 40);
    bool reverse = random_chance(m->r, 40);
    for (int twins = random_below(m->r, 3); twins >= 0; twins--) { /* almost the same, for cse */
        Value *v =
            build_scan(&b, a.v->dt, kind, axis, exclusive, reverse, build_load(&b, a.v, index));
        add_tamed(m, v, a.bound * (double)a.v->shape[axis], a.exact);
        if (kind == COMBINE_sum) exclusive = !exclusive;
    }
}

/* A value and itself, turned around and in another shape: an operator that reads one tensor twice.
 */
static inline void make_mirror(Maker *m) {
    Item a = tame(m, *pick(m));
    int64_t flat = value_numel(a.v), shape[MAX_RANK], step[MAX_RANK], start[MAX_RANK];
    if (flat == 0) return;
    bool one = random_chance(m->r, 50);
    Value *v = one ? g_reshape(m->g, a.v, 1, &flat) : a.v;
    for (int i = 0; i < v->rank; i++) {
        step[i] = one || random_chance(m->r, 60) ? -1 : 1;
        start[i] = step[i] < 0 ? v->shape[i] - 1 : 0;
        shape[i] = v->shape[i];
    }
    v = g_slice(m->g, v, start, step, shape);
    v = g_reshape(m->g, v, a.v->rank, a.v->shape);
    maker_add(m, v, a.bound, a.exact);
    if (random_chance(m->r, 70)) add_tamed(m, g_bin(m->g, EX_sub, a.v, v), 2 * a.bound, a.exact);
}

/* An element of an integer value, brought into 0..size-1. */
static inline const Expr *safe_index(Maker *m, const Expr *e, int64_t size) {
    Exprs *x = m->x;
    e = ex_cast(x, DT_i32, e);
    return ex_bin(x, EX_min, ex_bin(x, EX_max, e, ex_i(x, 0)), ex_i(x, size - 1));
}

static inline Value *index_value(Maker *m, int rank, const int64_t *shape) {
    for (int i = 0; i < m->n; i++) {
        Value *v = m->pool[i].v;
        if (dt_is_int(v->dt) && shape_equal(rank, shape, v->rank, v->shape)) return v;
    }
    return maker_const(m, random_chance(m->r, 50) ? DT_i32 : DT_i64, rank, shape)->v;
}

static inline void make_gather(Maker *m) {
    Item a = *pick(m);
    if (a.v->rank == 0 || value_numel(a.v) == 0) return;
    int axis = random_below(m->r, a.v->rank);
    int64_t shape[MAX_RANK], n = 1 + random_below(m->r, 20);
    memcpy(shape, a.v->shape, (size_t)a.v->rank * sizeof *shape);
    if (value_numel(a.v) / shape[axis] * n > 2 * m->max_numel) return;
    shape[axis] = n;
    Value *index = index_value(m, 1, &n);
    Builder b = build(m->g, a.v->rank, shape);
    const Expr *at[MAX_RANK], *i = ex_var(m->x, axis);
    for (int k = 0; k < a.v->rank; k++) at[k] = ex_var(m->x, k);
    at[axis] = safe_index(m, build_load(&b, index, &i), a.v->shape[axis]);
    maker_add(m, build_map(&b, a.v->dt, build_load(&b, a.v, at)), a.bound, a.exact);
}

static inline void make_scatter(Maker *m) {
    Exprs *x = m->x;
    Item a = tame(m, *pick(m));
    if (a.v->rank == 0 || value_numel(a.v) == 0) return;
    int64_t shape[MAX_RANK];
    const Expr *target[MAX_RANK], *own[MAX_RANK], *guard = NULL;
    bool add = random_chance(m->r, 50);
    for (int i = 0; i < a.v->rank; i++) {
        int64_t n = a.v->shape[i];
        shape[i] = 1 + random_below(m->r, (int)n);
        int64_t offset = n - shape[i];
        own[i] = ex_var(x, i);
        target[i] = random_chance(m->r, 50) ? ex_sub(x, ex_i(x, n - 1), own[i])
                                            : ex_add(x, own[i], ex_i(x, offset));
    }
    Value *updates = maker_const(m, a.v->dt, a.v->rank, shape)->v;
    for (int i = 0; i < m->n; i++)
        if (m->pool[i].exact && m->pool[i].v->dt == a.v->dt && m->pool[i].bound <= 4096 &&
            shape_equal(a.v->rank, shape, m->pool[i].v->rank, m->pool[i].v->shape))
            updates = m->pool[i].v;
    int axis = random_below(m->r, a.v->rank);
    Builder b = build(m->g, a.v->rank, shape);
    if (add) { /* several may meet in one place */
        Value *index = index_value(m, 1, &shape[axis]);
        const Expr *i = own[axis];
        target[axis] = safe_index(m, build_load(&b, index, &i), a.v->shape[axis]);
    }
    if (random_chance(m->r, 40)) guard = ex_lt(x, ex_i(x, 0), own[axis]);
    const Expr *body = build_load(&b, updates, own);
    Value *v = build_scatter(&b, a.v, add ? COMBINE_sum : COMBINE_none, target, guard, body);
    add_tamed(m, v, a.bound + 4096 * (double)shape[axis], a.exact);
}

static inline void make_softmax(Maker *m) {
    Item a = tame(m, pick_f32(m));
    if (!m->smooth || a.v->rank == 0 || value_numel(a.v) == 0) return;
    uint32_t axes = 1u << random_below(m->r, a.v->rank);
    maker_add(m, g_softmax(m->g, a.v, axes, false), 1, false);
}

static inline void make_steps(Maker *m, int count);

static inline void make_loop(Maker *m) {
    Graph *g = m->g, *sub;
    if (g->depth >= 2) return;
    int n_state = random_below(m->r, 3), n_more = 1 + random_below(m->r, 2),
        n_in = n_state + n_more;
    Value *in[5], *out[8];
    Maker inner = {.x = m->x, .r = m->r, .max_numel = m->max_numel / 4, .smooth = false};
    sub = inner.g = graph_new_sub(g);
    for (int i = 0; i < n_in; i++) {
        Item it = {NULL, 0, false};
        for (int tries = 0; tries < 20 && !it.v; tries++) {
            Item *a = pick(m);
            if (a->exact && value_numel(a->v) <= inner.max_numel && a->bound <= 4096) it = *a;
        }
        int64_t four = 4;
        if (!it.v) it = *maker_const(m, DT_f32, 1, &four);
        in[i] = it.v;
        maker_add(&inner, graph_input(sub, NULL, it.v->dt, it.v->rank, it.v->shape),
                  it.bound > 8 ? it.bound : 8, true);
    }
    make_steps(&inner, 2 + random_below(m->r, 5));
    if (random_chance(m->r, 60)) { /* the counter plays a part */
        Item a = *pick(&inner);
        Builder b = build(sub, a.v->rank, a.v->shape);
        const Expr *t = ex_cast(m->x, a.v->dt, ex_ctr(m->x, sub->depth - 1));
        add_tamed(&inner, build_map(&b, a.v->dt, ex_add(m->x, build_in(&b, a.v), t)), a.bound + 8,
                  a.exact);
    }
    for (int i = 0; i < n_state; i++) {
        Value *next = NULL;
        for (int tries = 0; tries < 30 && !next; tries++) {
            Value *v = pick(&inner)->v;
            if (v->dt == in[i]->dt && shape_equal(v->rank, v->shape, in[i]->rank, in[i]->shape))
                next = v;
        }
        if (!next) next = inner.pool[i].v;
        if (dt_is_float(next->dt) && random_chance(m->r, 80)) {
            const char *names[] = {"a"};
            next = g_formula(sub, "min(max(a, -8), 8)", 1, names, &next);
        }
        graph_output(sub, next, NULL);
    }
    int n_out = n_state + random_below(m->r, 3);
    if (n_out == 0) n_out = 1;
    double bound = 0;
    for (int i = n_state; i < n_out; i++) {
        Item a = *pick(&inner);
        bound = fmax(bound, a.bound);
        graph_output(sub, a.v, NULL);
    }
    build_loop(g, sub, random_below(m->r, 5), n_state, n_in, in, out);
    for (int i = 0; i < n_out; i++) {
        bool small = value_numel(out[i]) <= 4 * m->max_numel;
        if (small) add_tamed(m, out[i], bound > 1e5 ? bound : 1e5, true);
    }
}

static inline void make_steps(Maker *m, int count) {
    static void (*const makers[])(Maker *) = {
        make_binary,      make_binary,         make_unary,   make_unary,
        make_cast,        make_transpose,      make_slice,   make_pad,
        make_concat,      make_reshape,        make_reshape, make_expand,
        make_reduce,      make_reduce,         make_matmul,  make_gram,
        make_conv,        make_channel_window, make_pixels,  make_activation,
        make_scan,        make_mirror,         make_mirror,  make_band,
        make_band,        make_gather,         make_scatter, make_softmax,
        make_loop,        make_binary,         make_unary,   make_contraction,
        make_contraction, make_long_reduce};
    const int n = (int)(sizeof makers / sizeof *makers);
    for (int i = 0; i < count; i++) makers[random_below(m->r, n)](m);
}

/* A graph of about `steps` operators with 1 to 3 inputs and as many outputs as come. *exact: the
 * results can be compared bit for bit. */
static inline Graph *random_graph(Arena *arena, Exprs *x, Diag *diag, Random *r, int steps,
                                  bool *exact) {
    Graph *g = graph_new(arena, x, diag, "random");
    Maker m = {.g = g, .x = x, .r = r, .max_numel = 3000, .smooth = random_chance(r, 30)};
    int n_inputs = 1 + random_below(r, 3);
    for (int i = 0; i < n_inputs; i++) {
        int64_t shape[MAX_RANK];
        int rank = random_shape(&m, random_below(r, 5), shape);
        DType dt = random_chance(r, 70) ? DT_f32 : random_type(r);
        maker_add(&m, graph_input(g, arena_printf(arena, "x%d", i), dt, rank, shape), 4, true);
    }
    make_steps(&m, steps);
    int n_outputs = 1 + random_below(r, 6);
    *exact = true;
    for (int i = 0; i < n_outputs; i++) {
        Item *it = i == 0 ? &m.pool[m.n - 1] : pick(&m);
        *exact &= it->exact;
        graph_output(g, it->v, arena_printf(arena, "y%d", i));
    }
    return g;
}

#endif
