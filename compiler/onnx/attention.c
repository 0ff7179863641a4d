/* Attention and rotary embedding; see attention.h. Heads stay where they lie: a packed tensor is
 * read in its own order, so nothing is transposed. With grouped queries the group is a coordinate
 * of its own (h = key head * group + member), which keeps every load affine. */
#include "compiler/onnx/attention.h"

#include <math.h>

/* --- heads ------------------------------------------------------------------------------------ */

bool heads_from(Node *n, Value *v, int64_t heads, const char *what, Heads *out) {
    *out = (Heads){0};
    if (v->rank == 4) {
        *out = (Heads){v, false, v->dims[0], v->dims[1], v->dims[2], v->dims[3]};
        return true;
    }
    if (v->rank != 3) {
        invalid(n, E2005, "%s must have 3 or 4 dimensions, not %s", what,
                shape_text(n->g->arena, v->rank, v->dims));
        return false;
    }
    bool open = dim_varies(heads) || dim_varies(v->dims[2]);
    if (dim_max(n->x, heads) < 1 || (!open && v->dims[2] % heads)) {
        invalid(n, E2005, "%s: %s heads do not divide %s", what, dim_text(n->x, heads),
                dim_text(n->x, v->dims[2]));
        return false;
    }
    int64_t shape[4] = {v->dims[0], v->dims[1], heads, dim_div(n->x, v->dims[2], heads)};
    *out = (Heads){g_reshape(n->g, v, 4, shape), true, shape[0], heads, shape[1], shape[3]};
    return true;
}

const Expr *heads_load(Builder *builder, const Heads *heads, const Expr *b, const Expr *h,
                       const Expr *at, const Expr *d) {
    const Expr *plain[4] = {b, h, at, d}, *packed[4] = {b, at, h, d};
    return build_load(builder, heads->v, heads->packed ? packed : plain);
}

Value *heads_plain(Node *n, const Heads *heads) {
    static const int perm[4] = {0, 2, 1, 3};
    return heads->packed ? g_transpose(n->g, heads->v, perm) : heads->v;
}

bool heads_append(Node *n, Value *past, Heads *now, const char *what) {
    bool fits = past->rank == 4 && dim_meets(n->x, past->dims[0], now->batch) &&
                dim_meets(n->x, past->dims[1], now->heads) &&
                dim_meets(n->x, past->dims[3], now->size);
    if (!fits || past->dt != now->v->dt) {
        invalid(n, fits ? E2006 : E2005, "the past %s, %s%s, does not fit the present", what,
                dt_name(past->dt), shape_text(n->g->arena, past->rank, past->dims));
        return false;
    }
    Value *both[2] = {past, heads_plain(n, now)};
    int64_t shape[4] = {now->batch, now->heads, dim_add(n->x, past->dims[2], now->length),
                        now->size};
    if (!node_shape_ok(n, 4, shape)) return false;
    *now = (Heads){g_concat(n->g, 2, both, 2), false, shape[0], shape[1], shape[2], shape[3]};
    return true;
}

#define FAR_AWAY (INT64_C(1) << 29) /* queries and keys are no more; sums of three fit into i32 */

/* --- attention -------------------------------------------------------------------------------- */

/* Broadcasts to [batch, heads, queries, keys]; `shorter`: the last dimension may be less. */
static bool bias_fits(Node *n, const Attention *a, const Value *v, bool shorter) {
    int64_t full[4] = {a->q.batch, a->q.heads, a->q.length, a->k.length};
    bool fits = v->rank <= 4;
    for (int i = 0; i < v->rank && fits; i++) {
        int64_t want = full[4 - v->rank + i];
        bool last = i == v->rank - 1;
        fits = dim_can_meet(n->x, v->dims[i], want) || v->dims[i] == 1 ||
               (last && shorter && dim_min(n->x, v->dims[i]) <= dim_max(n->x, want));
        if (fits)
            dim_claim(n->x, last && shorter ? CLAIM_at_most : CLAIM_broadcast, v->dims[i], want);
    }
    if (!fits)
        invalid(n, E2005, "a mask of shape %s does not broadcast to %s",
                shape_text(n->g->arena, v->rank, v->dims), shape_text(n->g->arena, 4, full));
    return fits;
}

static bool per_batch(Node *n, const Attention *a, const Value *v) {
    if (!v || dim_meets(n->x, dim_product(n->x, v->rank, v->dims), a->q.batch)) return true;
    invalid(n, E2005, "lengths of shape %s for a batch of %s", dims_text(n->x, v->rank, v->dims),
            dim_text(n->x, a->q.batch));
    return false;
}

const Expr *attention_scale(Exprs *x, DType work, int64_t size) {
    if (!dim_varies(size)) return ex_num(x, work, size > 0 ? 1 / sqrt((double)size) : 1);
    return ex_div(x, ex_num(x, work, 1), ex_un(x, EX_sqrt, extent_as(x, work, size)));
}

bool attention_check(Node *n, const Attention *a) {
    const Heads *q = &a->q, *k = &a->k, *v = &a->v;
    Exprs *x = n->x;
    bool fits = dim_meets(n->x, q->batch, k->batch) && dim_meets(n->x, q->batch, v->batch) &&
                dim_meets(n->x, k->heads, v->heads) && dim_meets(n->x, q->size, k->size) &&
                dim_meets(n->x, k->length, v->length) && dim_max(x, k->heads) > 0;
    if (fits && !dim_varies(q->heads) && !dim_varies(k->heads)) fits = q->heads % k->heads == 0;
    if (!fits) {
        invalid(n, E2005,
                "%s heads of %s queries of size %s do not fit %s heads of %s keys of size %s and "
                "%s heads of %s values",
                dim_text(x, q->heads), dim_text(x, q->length), dim_text(x, q->size),
                dim_text(x, k->heads), dim_text(x, k->length), dim_text(x, k->size),
                dim_text(x, v->heads), dim_text(x, v->length));
        return false;
    }
    if (!dt_is_float(q->v->dt) || k->v->dt != q->v->dt || !dt_is_float(v->v->dt)) {
        invalid(n, E2006, "queries are %s, keys %s, values %s", dt_name(q->v->dt),
                dt_name(k->v->dt), dt_name(v->v->dt));
        return false;
    }
    if (dim_max(x, q->length) > FAR_AWAY || dim_max(x, k->length) > FAR_AWAY) {
        unsupported(n, "%s queries and %s keys", dim_text(x, q->length), dim_text(x, k->length));
        return false;
    }
    int64_t scores[4] = {q->batch, q->heads, q->length, k->length};
    return (!a->mask || bias_fits(n, a, a->mask, true)) &&
           (!a->bias || bias_fits(n, a, a->bias, false)) && per_batch(n, a, a->lengths) &&
           per_batch(n, a, a->offsets) && node_shape_ok(n, 4, scores);
}

/* The element of a mask at (b, h, i, j). */
static const Expr *load_bias(Builder *builder, const Attention *a, Value *v,
                             const Expr *const *at) {
    const int64_t full[4] = {a->q.batch, a->q.heads, a->q.length, a->k.length};
    const Expr *index[4];
    for (int i = 0; i < v->rank; i++) {
        int k = 4 - v->rank + i;
        bool last = k == 3 && !dim_varies(v->dims[i]); /* (a shorter one is guarded) */
        bool whole = v->dims[i] == full[k] || last;
        index[i] = whole && v->dims[i] != 1 ? at[k] : dim_index(builder->x, at[k], v->dims[i]);
    }
    return build_load(builder, v, index);
}

/* Element b of a vector of integers (of any rank), as i64. */
static const Expr *load_length(Builder *builder, Value *v, const Expr *b) {
    Exprs *x = builder->x;
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        index[i] = dim_varies(v->dims[i]) ? dim_index(x, b, v->dims[i])
                   : v->dims[i] == 1      ? ex_i(x, 0)
                                          : b;
    return ex_cast(x, DT_i64, build_load(builder, v, index));
}

/* A place or a length as an i32 that compares with places in tensors like it does. */
static const Expr *as_place(Exprs *x, const Expr *e) {
    e = ex_bin(x, EX_min, e, ex_int(x, DT_i64, FAR_AWAY));
    return ex_cast(x, DT_i32, ex_bin(x, EX_max, e, ex_int(x, DT_i64, -FAR_AWAY)));
}

/* Whether causality, window and lengths let query i see key j; NULL: always. */
static const Expr *sees(Builder *builder, const Attention *a, const Expr *const *at) {
    Exprs *x = builder->x;
    const Expr *j = at[3], *see = NULL;
    const Expr *offset = a->offsets ? as_place(x, load_length(builder, a->offsets, at[0]))
                                    : ex_i(x, a->offset);
    const Expr *position = ex_add(x, at[2], offset);
    if (a->causal) see = ex_le(x, j, position);
    if (a->window > 0) {
        const int64_t window = a->window < FAR_AWAY ? a->window : FAR_AWAY;
        const Expr *near = ex_lt(x, position, ex_add(x, j, ex_i(x, window)));
        see = see ? ex_and(x, see, near) : near;
    }
    if (a->lengths) {
        const Expr *length = as_place(x, load_length(builder, a->lengths, at[0]));
        const Expr *valid = ex_lt(x, j, length);
        see = see ? ex_and(x, see, valid) : valid;
    }
    return see;
}

static const Expr *add_bias(Builder *builder, const Attention *a, DType work, const Expr *e,
                            const Expr *const *at) {
    Exprs *x = builder->x;
    const Expr *none = ex_num(x, work, a->masked), *zero = ex_num(x, work, 0);
    if (a->bias) e = ex_add(x, e, ex_cast(x, work, load_bias(builder, a, a->bias, at)));
    if (a->mask) {
        const Expr *m = load_bias(builder, a, a->mask, at);
        m = a->mask->dt == DT_bool ? ex_select(x, m, zero, none) : ex_cast(x, work, m);
        int64_t last = a->mask->rank ? a->mask->dims[a->mask->rank - 1] : 1;
        if (last != 1 && last != a->k.length) {
            const Expr *end = ex_i(x, last), *in = ex_lt(x, at[3], end);
            if (dim_varies(last)) in = ex_bin(x, EX_or, in, ex_bin(x, EX_eq, end, ex_i(x, 1)));
            m = ex_select(x, in, m, ex_num(x, work, -INFINITY));
        }
        e = ex_add(x, e, m);
    }
    const Expr *see = sees(builder, a, at);
    return see ? ex_select(x, see, e, ex_num(x, work, -INFINITY)) : e;
}

/* Coordinates (b, key head, [member of the group], i, j or d) of a result with `last` as its last
 * extent; *h and *kh: the heads. */
static Builder grouped(Graph *g, const Attention *a, int64_t last, const Expr **at,
                       const Expr **kh) {
    Exprs *x = g->x;
    int64_t group = dim_div(x, a->q.heads, a->k.heads);
    int64_t whole[5] = {a->q.batch, a->k.heads, group, a->q.length, last};
    int64_t plain[4] = {a->q.batch, a->q.heads, a->q.length, last}; /* 1 or 0 of a group */
    int skip = group != 1 && group != 0;
    at[0] = ex_var(x, 0);
    at[1] = *kh = ex_var(x, 1);
    if (skip) at[1] = ex_add(x, ex_mul(x, *kh, ex_i(x, group)), ex_var(x, 2));
    at[2] = ex_var(x, 2 + skip);
    at[3] = ex_var(x, 3 + skip);
    return build(g, 4 + skip, skip ? whole : plain);
}

Value *attention_scores(Node *n, const Attention *a, ScoreStage stage) {
    Exprs *x = n->x;
    DType work = dt_reg(a->q.v->dt);
    const Expr *at[4], *kh;
    Builder b = grouped(n->g, a, a->k.length, at, &kh);
    const Expr *d = build_red(&b, a->q.size);
    const Expr *q = ex_cast(x, work, heads_load(&b, &a->q, at[0], at[1], at[2], d));
    const Expr *k = ex_cast(x, work, heads_load(&b, &a->k, at[0], kh, at[3], d));
    const Expr *scale =
        a->by_size ? attention_scale(x, work, a->q.size) : ex_num(x, work, a->scale);
    const Expr *e = ex_mul(x, ex_acc(x, work), scale);
    if (stage >= SCORE_capped && a->softcap > 0) {
        const Expr *cap = ex_num(x, work, a->softcap);
        e = ex_mul(x, ex_un(x, EX_tanh, ex_div(x, e, cap)), cap);
    }
    if (stage >= SCORE_biased) e = add_bias(&b, a, work, e, at);
    Value *v = build_reduce(&b, work, COMBINE_sum, ex_mul(x, q, k), e);
    int64_t shape[4] = {a->q.batch, a->q.heads, a->q.length, a->k.length};
    return v->rank == 4 ? v : g_reshape(n->g, v, 4, shape);
}

Value *attention_result(Node *n, const Attention *a, Value *probs, bool packed, DType dt) {
    Exprs *x = n->x;
    Graph *g = n->g;
    DType work = dt_reg(probs->dt);
    int64_t group = dim_div(x, a->q.heads, a->k.heads), size = a->v.size;
    int64_t plain[4] = {a->q.batch, a->q.heads, a->q.length, size};
    int64_t flat[3] = {a->q.batch, a->q.length, dim_mul(x, a->q.heads, size)};
    if (packed && !node_shape_ok(n, 3, flat)) return NULL;
    Builder b;
    const Expr *at[4], *kh;
    if (packed) { /* (b, i, key head, member, d): what is stored is [b, i, heads * size] */
        int64_t shape[5] = {a->q.batch, a->q.length, a->k.heads, group, size};
        b = build(g, 5, shape);
        at[0] = ex_var(x, 0);
        at[2] = ex_var(x, 1);
        kh = ex_var(x, 2);
        at[1] = ex_add(x, ex_mul(x, kh, ex_i(x, group)), ex_var(x, 3));
        at[3] = ex_var(x, 4);
    } else {
        b = grouped(g, a, size, at, &kh);
    }
    const Expr *j = build_red(&b, a->k.length);
    const Expr *where[4] = {at[0], at[1], at[2], j};
    const Expr *p = ex_cast(x, work, build_load(&b, probs, where));
    const Expr *v = ex_cast(x, work, heads_load(&b, &a->v, at[0], kh, j, at[3]));
    Value *y = build_reduce(&b, dt, COMBINE_sum, ex_mul(x, p, v), NULL);
    return g_reshape(g, y, packed ? 3 : 4, packed ? flat : plain);
}

/* --- rotary embedding ------------------------------------------------------------------------- */

/* Are there positions for each element, and not one number? */
static bool ids_for_each(Exprs *x, const Heads *heads, const Value *ids) {
    return ids->rank == 2 && dim_can_meet(x, ids->dims[0], heads->batch) &&
           dim_can_meet(x, ids->dims[1], heads->length) && dim_product(x, 2, ids->dims) != 1;
}

bool rotary_check(Node *n, const Heads *heads, Rotary *r) {
    Arena *arena = n->g->arena;
    const Value *c = r->cos;
    if (r->size == 0) r->size = heads->size;
    bool positions = r->ids || r->starts;
    bool open = dim_varies(r->size);
    bool fits = dims_meet(n->x, c->rank, c->dims, r->sin->rank, r->sin->dims) &&
                c->dt == r->sin->dt && c->rank == (positions ? 2 : 3) &&
                (open || (r->size % 2 == 0 && r->size >= 0));
    fits = fits && (open || dim_varies(heads->size) || r->size <= heads->size) &&
           dim_meets(n->x, c->dims[c->rank - 1], dim_div(n->x, r->size, 2));
    if (fits && positions) fits = dim_max(n->x, c->dims[0]) > 0 || value_numel(heads->v) == 0;
    if (fits && !positions)
        fits =
            dim_meets(n->x, c->dims[0], heads->batch) && dim_meets(n->x, c->dims[1], heads->length);
    if (!fits) {
        invalid(n, E2005, "caches of shapes %s and %s do not fit %s elements of heads %s",
                shape_text(arena, c->rank, c->dims), shape_text(arena, r->sin->rank, r->sin->dims),
                dim_text(n->x, r->size), shape_text(arena, heads->v->rank, heads->v->dims));
        return false;
    }
    if (r->ids && !value_single(n, r->ids) && !ids_for_each(n->x, heads, r->ids)) {
        invalid(n, E2005, "positions of shape %s for a batch of %s with length %s",
                shape_text(arena, r->ids->rank, r->ids->dims), dim_text(n->x, heads->batch),
                dim_text(n->x, heads->length));
        return false;
    }
    return true;
}

/* The row of the caches for (b, s), within them whatever the positions are. */
static const Expr *rotary_row(Builder *b, const Heads *heads, const Rotary *r, const Expr *batch,
                              const Expr *at) {
    Exprs *x = b->x;
    const Expr *p;
    const Expr *step = ex_cast(x, DT_i64, at);
    if (r->starts) {
        p = ex_add(x, load_length(b, r->starts, batch), step);
    } else if (ids_for_each(x, heads, r->ids)) {
        const Expr *index[2] = {batch, at};
        p = ex_cast(x, DT_i64, build_load(b, r->ids, index));
    } else {
        p = ex_add(x, load_length(b, r->ids, ex_i(x, 0)), step);
    }
    const Expr *last = ex_int(x, DT_i64, r->cos->dims[0] - 1), *zero = ex_int(x, DT_i64, 0);
    return ex_cast(x, DT_i32, ex_bin(x, EX_max, ex_bin(x, EX_min, p, last), zero));
}

Value *rotary_apply(Node *n, const Heads *heads, const Rotary *r) {
    Exprs *x = n->x;
    DType dt = heads->v->dt, work = dt_reg(dt);
    Builder b = build(n->g, 4, heads->v->dims);
    const Expr *batch = ex_var(x, 0), *h = ex_var(x, heads->packed ? 2 : 1),
               *at = ex_var(x, heads->packed ? 1 : 2), *d = ex_var(x, 3);
    const Expr *half = ex_i(x, dim_div(x, r->size, 2)), *two = ex_i(x, 2), *first, *pair, *partner;
    if (r->size == 0) return heads->v;
    if (r->interleaved) {
        first = ex_bin(x, EX_eq, ex_bin(x, EX_rem, d, two), ex_i(x, 0));
        pair = ex_div(x, d, two);
        partner = ex_select(x, first, ex_add(x, d, ex_i(x, 1)), ex_sub(x, d, ex_i(x, 1)));
    } else {
        first = ex_lt(x, d, half);
        pair = ex_select(x, first, d, ex_sub(x, d, half));
        partner = ex_select(x, first, ex_add(x, d, half), ex_sub(x, d, half));
    }
    const Expr *row[2] = {NULL, pair}, *own[3] = {batch, at, pair};
    if (r->cos->rank == 2) row[0] = rotary_row(&b, heads, r, batch, at);
    const Expr *const *where = r->cos->rank == 2 ? row : own;
    const Expr *c = ex_cast(x, work, build_load(&b, r->cos, where));
    const Expr *s = ex_cast(x, work, build_load(&b, r->sin, where));
    const Expr *e = ex_cast(x, work, heads_load(&b, heads, batch, h, at, d));
    const Expr *other = ex_cast(x, work, heads_load(&b, heads, batch, h, at, partner));
    const Expr *across = ex_mul(x, s, other);
    const Expr *turned =
        ex_add(x, ex_mul(x, c, e), ex_select(x, first, ex_un(x, EX_neg, across), across));
    if (r->size != heads->size) turned = ex_select(x, ex_lt(x, d, ex_i(x, r->size)), turned, e);
    return build_map(&b, dt, turned);
}

Value *rotary_result(Node *n, const Value *v, const Heads *heads, Rotary *r) {
    if (!rotary_check(n, heads, r) || n->failed) return NULL;
    Value *turned = rotary_apply(n, heads, r);
    return v->rank == 3 ? g_reshape(n->g, turned, 3, v->dims) : turned;
}
