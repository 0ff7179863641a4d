/* Attention of com.microsoft: Attention, QAttention, MultiHeadAttention, GroupQueryAttention,
 * SparseAttention, DecoderMaskedMultiHeadAttention. They differ from ai.onnx's in how inputs are
 * packed and masks are given; attention.h does the rest. */
#include "compiler/onnx/attention.h"
#include "compiler/onnx/index.h"

#include <math.h>

#define MASK_FILTER (-10000.0f) /* the default of mask_filter_value */

static void read_scale(Node *n, Attention *a) {
    a->scale = attr_float(n, "scale", 0);
    a->by_size = a->scale == 0;
}

/* Columns begin.. of [batch, length, columns], with as many of the bias added (NULL: none). */
static Value *columns_of(Graph *g, Value *v, int64_t begin, int64_t count, Value *bias,
                         int64_t bias_begin) {
    int64_t start[3] = {0, 0, begin}, step[3] = {1, 1, 1},
            size[3] = {v->dims[0], v->dims[1], count};
    v = g_slice(g, v, start, step, size);
    return bias ? g_bin(g, EX_add, v, g_slice(g, bias, &bias_begin, step, &count)) : v;
}

/* v [batch, length, heads, parts, size] as its part number `part`, [batch, length, heads * size].
 */
static Value *part_of(Graph *g, Value *v, int64_t part) {
    int64_t start[5] = {0, 0, 0, part, 0}, step[5] = {1, 1, 1, 1, 1}, size[5], flat[3];
    for (int i = 0; i < 5; i++) size[i] = i == 3 ? 1 : v->dims[i];
    flat[0] = size[0], flat[1] = size[1], flat[2] = dim_mul(g->x, size[2], size[4]);
    return g_reshape(g, g_slice(g, v, start, step, size), 3, flat);
}

/* --- masks ------------------------------------------------------------------------------------ */

/* i32[batch] of ends (and then of begins) of what is no padding: bool [batch, 1, 1, keys]. */
static Value *mask_of_ends(Graph *g, Value *ends, int64_t batch, int64_t keys) {
    Exprs *x = g->x;
    int64_t shape[4] = {batch, 1, 1, keys};
    Builder b = build(g, 4, shape);
    const Expr *at = ex_var(x, 0), *key = ex_cast(x, DT_i64, ex_var(x, 3));
    const Expr *keep = ex_lt(x, key, ex_cast(x, DT_i64, build_load(&b, ends, &at)));
    if (ends->dims[0] == dim_mul(x, batch, 2)) {
        at = ex_add(x, at, ex_i(x, batch));
        keep = ex_and(x, keep, ex_le(x, ex_cast(x, DT_i64, build_load(&b, ends, &at)), key));
    }
    return build_map(&b, DT_bool, keep);
}

/* The forms that a padding mask may have, as a bool mask of rank 4. False after a report. */
static bool padding_mask(Node *n, Attention *a, Value *mask) {
    Graph *g = n->g;
    if (!mask) return true;
    int64_t batch = a->q.batch, keys = a->k.length;
    if (!dt_is_int(mask->dt)) {
        invalid(n, E2006, "the mask is %s", dt_name(mask->dt));
        return false;
    }
    if (mask->rank == 1 &&
        (dim_meets(n->x, mask->dims[0], batch) || mask->dims[0] == dim_mul(n->x, batch, 2))) {
        a->mask = mask_of_ends(g, mask, batch, keys);
        return true;
    }
    bool flat = mask->rank == 2 && dim_meets(n->x, mask->dims[0], batch) &&
                dim_meets(n->x, mask->dims[1], keys);
    bool each = mask->rank == 3 && dim_meets(n->x, mask->dims[0], batch) &&
                dim_meets(n->x, mask->dims[1], a->q.length) && dim_meets(n->x, mask->dims[2], keys);
    if (!flat && !each) {
        Exprs *x = n->x;
        unsupported(n, "a mask of shape %s for a batch of %s with %s queries and %s keys",
                    shape_of(n, mask), dim_text(x, batch), dim_text(x, a->q.length),
                    dim_text(x, keys));
        return false;
    }
    int64_t shape[4] = {batch, 1, flat ? 1 : a->q.length, keys};
    a->mask = g_reshape(g, g_cast(g, mask, DT_bool), 4, shape);
    return true;
}

/* Scores, softmax and result as output 0, packed. probs: what the softmax gives is put there. */
static void finish_attention(Node *n, const Attention *a, DType dt, Value **probs) {
    if (n->failed || !attention_check(n, a)) return;
    *probs = g_softmax(n->g, attention_scores(n, a, SCORE_biased), 1u << 3, false);
    n->out[0] = attention_result(n, a, *probs, true, dt);
}

/* --- Attention -------------------------------------------------------------------------------- */

/* past [2, batch, heads, length, size] before keys and values; output 1 is both together. */
static bool attention_past(Node *n, Attention *a, Value *past) {
    Graph *g = n->g;
    if (past) {
        if (past->rank != 5 || !dim_meets(n->x, past->dims[0], 2)) {
            invalid(n, E2005, "the past has shape %s", shape_of(n, past));
            return false;
        }
        int64_t start[5] = {0}, step[5] = {1, 1, 1, 1, 1}, size[5];
        for (int i = 0; i < 5; i++) size[i] = i ? past->dims[i] : 1;
        Value *key = g_reshape(g, g_slice(g, past, start, step, size), 4, size + 1);
        start[0] = 1;
        Value *value = g_reshape(g, g_slice(g, past, start, step, size), 4, size + 1);
        if (!heads_append(n, key, &a->k, "key") || !heads_append(n, value, &a->v, "value"))
            return false;
        a->offset = past->dims[3];
    }
    if (!node_wants(n, 1)) return true;
    Value *both[2] = {heads_plain(n, &a->k), heads_plain(n, &a->v)};
    if (!dim_meets(n->x, a->k.size, a->v.size)) {
        unsupported(n, "a present of keys and values of different sizes");
        return false;
    }
    int64_t one[5] = {1}, two[5] = {2};
    for (int i = 1; i < 5; i++) one[i] = two[i] = both[0]->dims[i - 1];
    if (!node_shape_ok(n, 5, two)) return false;
    for (int i = 0; i < 2; i++) both[i] = g_reshape(g, both[i], 5, one);
    n->out[1] = g_concat(g, 2, both, 0);
    return true;
}

/* Attention of queries, keys and values that lie side by side in `all` [batch, length, columns],
 * with as many numbers of the bias (NULL: none) added. dt: of the result. */
static void attention_of(Node *n, Value *all, Value *bias, const int64_t *size, Value *mask,
                         Value *past, Value *added, DType dt) {
    Value *part[3];
    int64_t begin = 0, heads = attr_int(n, "num_heads", 0);
    for (int i = 0; i < 3; i++) {
        part[i] = columns_of(n->g, all, begin, size[i], bias, begin);
        begin = dim_add(n->x, begin, size[i]);
    }
    Attention a = {.causal = attr_int(n, "unidirectional", 0) != 0,
                   .masked = attr_float(n, "mask_filter_value", MASK_FILTER),
                   .bias = added};
    if (!heads_from(n, part[0], heads, "the query", &a.q) ||
        !heads_from(n, part[1], heads, "the key", &a.k) ||
        !heads_from(n, part[2], heads, "the value", &a.v) || !attention_past(n, &a, past) ||
        !padding_mask(n, &a, mask))
        return;
    read_scale(n, &a);
    Value *probs;
    finish_attention(n, &a, dt, &probs);
}

/* False after a report. */
static bool attention_form(Node *n) {
    if (!attr_int(n, "do_rotary", 0) && !attr_int(n, "past_present_share_buffer", 0))
        return !n->failed;
    unsupported(n, "do_rotary and past_present_share_buffer");
    return false;
}

void import_ms_attention(Node *n) {
    Value *v = node_need(n, 0), *weights = node_need(n, 1), *bias = node_in(n, 2);
    int count;
    const int64_t *sizes = attr_ints(n, "qkv_hidden_sizes", &count);
    if (!v || !weights || n->failed || !attention_form(n)) return;
    Exprs *x = n->x;
    bool fits = v->rank == 3 && weights->rank == 2 &&
                dim_meets(n->x, v->dims[2], weights->dims[0]) &&
                (!bias || (bias->rank == 1 && dim_meets(n->x, bias->dims[0], weights->dims[1]))) &&
                (!sizes || count == 3);
    int64_t size[3], sum = 0;
    for (int i = 0; i < 3 && fits; i++) {
        size[i] = sizes ? sizes[i] : dim_div(x, weights->dims[1], 3);
        fits = dim_varies(size[i]) || (size[i] >= 0 && size[i] <= dim_max(x, weights->dims[1]));
        sum = dim_add(x, sum, size[i]);
    }
    if (!fits || !dim_meets(n->x, sum, weights->dims[1])) {
        invalid(n, E2005, "an input of shape %s, weights %s and the bias do not fit",
                shape_of(n, v), shape_of(n, weights));
        return;
    }
    Value *all = g_matmul(n->g, v, weights, dt_reg(v->dt), v->dt);
    attention_of(n, all, bias, size, node_in(n, 3), node_in(n, 4), node_in(n, 5), v->dt);
}

/* --- QAttention ------------------------------------------------------------------------------- */

/* A scale or zero point of a tensor of bytes as a scalar, or (columns) as a vector for its columns.
 * NULL if it is absent, or after a report (one is enough). */
static Value *byte_part(Node *n, Value *part, const Value *v, bool columns) {
    if (!part || n->failed) return NULL;
    if (columns && part->rank == 1 && part->dims[0] != 1 &&
        dim_meets(n->x, part->dims[0], v->dims[v->rank - 1]))
        return part;
    if (value_single(n, part)) return g_reshape(n->g, part, 0, NULL);
    invalid(n, E2005, "a scale or zero point of shape %s for %s", shape_of(n, part),
            shape_of(n, v));
    return NULL;
}

/* (v - zero) * scale in f32; the two are such parts, zero may be NULL. */
static Value *decoded(Node *n, Value *v, Value *scale, Value *zero) {
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *e = ex_cast(x, DT_i32, build_in(&b, v));
    if (zero) e = ex_sub(x, e, ex_cast(x, DT_i32, build_in(&b, zero)));
    e = ex_mul(x, ex_cast(x, DT_f32, e), ex_cast(x, DT_f32, build_in(&b, scale)));
    return build_map(&b, DT_f32, e);
}

static bool is_bytes(const Value *v, const Value *zero) {
    return (v->dt == DT_u8 || v->dt == DT_i8) && (!zero || zero->dt == v->dt);
}

/* The same of an input and weights of bytes. */
void import_ms_qattention(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *v = node_need(n, 0), *weights = node_need(n, 1), *bias = node_need(n, 2),
          *scale = node_need(n, 3), *column_scale = node_need(n, 4), *zero = node_in(n, 6),
          *column_zero = node_in(n, 7);
    if (!v || !weights || !bias || !scale || !column_scale || !attention_form(n)) return;
    int64_t columns = weights->rank == 2 ? weights->dims[1] : 0, third = dim_div(x, columns, 3);
    bool fits = v->rank == 3 && weights->rank == 2 && dim_meets(x, dim_mul(x, third, 3), columns) &&
                dim_meets(x, v->dims[2], weights->dims[0]) && bias->rank == 1 &&
                dim_meets(x, bias->dims[0], columns);
    if (!fits) {
        invalid(n, E2005, "an input of shape %s, weights %s and the bias do not fit",
                shape_of(n, v), shape_of(n, weights));
        return;
    }
    if (!is_bytes(v, zero) || !is_bytes(weights, column_zero) || !dt_is_float(bias->dt) ||
        scale->dt != bias->dt || column_scale->dt != bias->dt) {
        invalid(n, E2006,
                "the input is %s, the weights are %s, the bias is %s; or a scale or zero "
                "point is of another type",
                dt_name(v->dt), dt_name(weights->dt), dt_name(bias->dt));
        return;
    }
    scale = byte_part(n, scale, v, false);
    zero = byte_part(n, zero, v, false);
    column_scale = byte_part(n, column_scale, weights, true);
    column_zero = byte_part(n, column_zero, weights, true);
    if (n->failed) return;
    Value *all = g_matmul(g, decoded(n, v, scale, zero),
                          decoded(n, weights, column_scale, column_zero), DT_f32, DT_f32);
    all = g_bin(g, EX_add, all, g_cast(g, bias, DT_f32));
    const int64_t size[3] = {third, third, third};
    attention_of(n, g_cast(g, all, bias->dt), NULL, size, node_in(n, 5), node_in(n, 8), NULL,
                 bias->dt);
}

/* --- MultiHeadAttention ----------------------------------------------------------------------- */

/* Query, key and value from the ways in which they may be packed, with the bias (NULL: none) added.
 */
static bool multi_head_inputs(Node *n, int64_t heads, Value *bias, Attention *a) {
    Graph *g = n->g;
    Value *q = node_need(n, 0), *k = node_in(n, 1), *v = node_in(n, 2);
    if (!q) return false;
    bool key_bias = true; /* keys of rank 4 have it already */
    if (q->rank == 5 && !k && !v) {
        if (!dim_meets(n->x, q->dims[3], 3)) {
            invalid(n, E2005, "a packed query of shape %s", shape_of(n, q));
            return false;
        }
        k = part_of(g, q, 1);
        v = part_of(g, q, 2);
        q = part_of(g, q, 0);
    } else if (k && k->rank == 5 && !v) {
        if (!dim_meets(n->x, k->dims[3], 2)) {
            invalid(n, E2005, "a packed key of shape %s", shape_of(n, k));
            return false;
        }
        v = part_of(g, k, 1);
        k = part_of(g, k, 0);
    } else if (!k || !v) {
        node_need(n, k ? 2 : 1);
        return false;
    } else {
        key_bias = k->rank == 3;
    }
    if (q->rank != 3 || (k->rank != 3 && k->rank != 4) || v->rank != k->rank) {
        invalid(n, E2005, "query %s, key %s and value %s do not fit", shape_of(n, q),
                shape_of(n, k), shape_of(n, v));
        return false;
    }
    if (bias) {
        Exprs *x = n->x;
        int64_t hidden = q->dims[2], twice = dim_mul(x, hidden, 2);
        int64_t values = v->rank == 3 ? v->dims[2] : dim_mul(x, v->dims[1], v->dims[3]);
        bool fits = bias->rank == 1 && dim_meets(n->x, bias->dims[0], dim_add(x, twice, values));
        if (fits && key_bias) fits = dim_meets(n->x, k->dims[2], hidden);
        if (!fits) {
            invalid(n, E2005, "a bias of shape %s", shape_of(n, bias));
            return false;
        }
        q = columns_of(g, q, 0, hidden, bias, 0);
        if (key_bias) k = columns_of(g, k, 0, hidden, bias, hidden);
        if (key_bias) v = columns_of(g, v, 0, values, bias, twice);
    }
    return heads_from(n, q, heads, "the query", &a->q) &&
           heads_from(n, k, heads, "the key", &a->k) && heads_from(n, v, heads, "the value", &a->v);
}

void import_ms_multi_head_attention(Node *n) {
    int64_t heads = attr_int(n, "num_heads", 0);
    Attention a = {.causal = attr_int(n, "unidirectional", 0) != 0,
                   .masked = attr_float(n, "mask_filter_value", MASK_FILTER),
                   .bias = node_in(n, 5)};
    Value *past[2] = {node_in(n, 6), node_in(n, 7)};
    if (!multi_head_inputs(n, heads, node_in(n, 3), &a) || n->failed) return;
    if (node_in(n, 8) || node_in(n, 9)) {
        unsupported(n, "past_sequence_length and cache_indirection");
        return;
    }
    if (!past[0] != !past[1]) {
        invalid(n, E2007, "of past_key and past_value one is missing");
        return;
    }
    if (past[0]) {
        if (!heads_append(n, past[0], &a.k, "key") || !heads_append(n, past[1], &a.v, "value"))
            return;
        a.offset = past[0]->dims[2];
    }
    if (node_wants(n, 1)) n->out[1] = heads_plain(n, &a.k);
    if (node_wants(n, 2)) n->out[2] = heads_plain(n, &a.v);
    if (!padding_mask(n, &a, node_in(n, 4))) return;
    read_scale(n, &a);
    DType dt = a.q.v->dt;
    Value *probs = NULL;
    finish_attention(n, &a, dt, &probs);
    if (probs && node_wants(n, 3)) n->out[3] = g_cast(n->g, probs, dt);
}

/* --- caches ----------------------------------------------------------------------------------- */

typedef struct Cache {
    Value *past[2];   /* [batch, heads, capacity, size]; NULL: none */
    int64_t capacity; /* of the past */
    int64_t length;   /* of the present */
    int64_t keys;     /* of it, so many are looked at: no item of the batch has more */
    Value *begin;     /* i64[batch]: where the new keys go */
    Value *end;       /* i64[batch]: how many there are then */
    bool shared;      /* past and present are one buffer: what is behind the new keys stays */
} Cache;

/* How many keys each of the batch has before and after, from `last` (`less` less than they are
 * then) and the greatest of them: where that is the number of queries, there were none before. */
static bool cache_lengths(Node *n, const Heads *q, Value *last, int64_t less, Value *total,
                          Cache *c) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int64_t batch = q->batch, queries = q->length;
    if (!last || !total) return false;
    if (!dim_meets(n->x, dim_product(x, last->rank, last->dims), batch) ||
        !value_single(n, total) || !dt_is_int(last->dt) || !dt_is_int(total->dt)) {
        invalid(n, E2005, "lengths of keys %s and total_sequence_length %s for a batch of %s",
                shape_of(n, last), shape_of(n, total), dim_text(x, batch));
        return false;
    }
    last = g_reshape(g, last, 1, &batch);
    total = g_reshape(g, total, 0, NULL);
    Builder b = build(g, 1, &batch);
    const Expr *end = ex_add(x, ex_cast(x, DT_i64, build_in(&b, last)), ex_int(x, DT_i64, less));
    c->end = build_map(&b, DT_i64, end);
    b = build(g, 1, &batch);
    const Expr *news = ex_int(x, DT_i64, queries), *zero = ex_int(x, DT_i64, 0);
    const Expr *begin = ex_bin(x, EX_max, ex_sub(x, build_in(&b, c->end), news), zero);
    const Expr *first = ex_bin(x, EX_eq, ex_cast(x, DT_i64, build_in(&b, total)), news);
    if (!c->past[0]) first = ex_int(x, DT_bool, 1);
    c->begin = build_map(&b, DT_i64, ex_select(x, first, zero, begin));
    int rank, count;
    int64_t shape[MAX_TENSOR_RANK];
    const int64_t *known = value_dims(g, total, &count);
    if (node_declared_shape(n, 1, &rank, shape) && rank == 4)
        c->length = shape[2];
    else if (known)
        c->length = dim_larger(x, known[0], c->capacity);
    else
        c->length = dim_add(x, c->capacity, queries);
    if (!dim_varies(c->capacity) && c->capacity >= dim_max(x, c->length)) c->length = c->capacity;
    c->keys = known ? dim_smaller(x, known[0], c->length) : c->length;
    int64_t least = dim_larger(x, queries, c->capacity);
    if (dim_varies(least) || dim_varies(c->length) || c->length >= least) return true;
    invalid(n, E2005, "a present of %s for a past of %s and %s new keys", dim_text(x, c->length),
            dim_text(x, c->capacity), dim_text(x, queries));
    return false;
}

/* Where a run alone says how many keys there are: no more than that are looked at. */
static void count_keys(Node *n, Cache *c) {
    Exprs *x = n->x;
    if (!c->past[0] || dim_varies(c->keys) || c->keys < 2 || value_is_const(c->end)) return;
    Value *most = g_reduce(n->g, COMBINE_max, c->end, 1u << 0, false);
    Builder b = build(n->g, 0, NULL);
    const Expr *e = ex_bin(x, EX_min, build_in(&b, most), ex_int(x, DT_i64, c->keys));
    e = ex_bin(x, EX_max, e, ex_int(x, DT_i64, 1));
    int64_t keys = graph_symbol(n->g, build_map(&b, DT_i32, ex_cast(x, DT_i32, e)), 1, c->keys);
    if (keys != -1) c->keys = keys;
}

/* The cache with the new keys (or values) in it, output `i`. Behind them are zeros, as ONNX Runtime
 * has them where the cache is not shared, but in a state nobody sees what is there. */
static Heads cache_update(Node *n, const Cache *c, Value *past, const Heads *fresh, int i) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int64_t shape[4] = {fresh->batch, fresh->heads, c->length, fresh->size};
    Heads now = {past, false, shape[0], shape[1], c->keys, shape[3]};
    if (!past || c->capacity != c->length || !node_keeps(n, i)) {
        Builder b = build(g, 4, shape);
        const Expr *at[4] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2), ex_var(x, 3)};
        const Expr *e = ex_num(x, fresh->v->dt, 0), *kept = ex_lt(x, at[2], ex_i(x, c->capacity));
        if (!node_keeps(n, i) && !c->shared)
            kept =
                ex_and(x, kept, ex_lt(x, ex_cast(x, DT_i64, at[2]), build_load(&b, c->begin, at)));
        if (past && dim_max(x, c->capacity) > 0)
            e = ex_select(x, kept, build_load(&b, past, at), e);
        now.v = build_map(&b, fresh->v->dt, e);
    }
    if (dim_max(x, dim_product(x, 4, shape)) == 0 || dim_max(x, fresh->length) == 0) return now;
    shape[2] = fresh->length;
    Builder b = build(g, 4, shape);
    const Expr *at[4] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2), ex_var(x, 3)};
    const Expr *put = heads_load(&b, fresh, at[0], at[1], at[2], at[3]);
    const Expr *place = ex_add(x, build_load(&b, c->begin, at), ex_cast(x, DT_i64, at[2]));
    const Expr *fits = ex_lt(x, place, ex_int(x, DT_i64, c->length));
    at[2] = ex_cast(x, DT_i32, place);
    now.v = build_scatter(&b, now.v, COMBINE_none, at, fits, put);
    return now;
}

/* Softmax over the keys with one more term in the sum, the exponential of `sink` (one number, or
 * one for each head), that takes its share and gives nothing. */
static Value *softmax_with_sink(Node *n, Value *scores, Value *sink) {
    Graph *g = n->g;
    DType work = scores->dt;
    static const char *const names[] = {"s", "m", "k"};
    int64_t shape[4] = {1, dim_product(n->x, sink->rank, sink->dims), 1, 1};
    sink = g_reshape(g, g_cast(g, sink, work), 4, shape);
    Value *top = g_bin(g, EX_max, g_reduce(g, COMBINE_max, scores, 1u << 3, true), sink);
    Value *parts[3] = {scores, top};
    Value *e = g_formula(g, "exp(s - m)", 2, names, parts);
    Value *sums[3] = {g_reduce(g, COMBINE_sum, e, 1u << 3, true), top, sink};
    Value *sum = g_formula(g, "s + exp(k - m)", 3, names, sums);
    return g_bin(g, EX_div, e, sum);
}

/* ids: positions; NULL: those from where the new keys go. False after a report. */
static bool group_rotary(Node *n, const Cache *c, Value *cos, Value *sin, Value *ids, Heads *q,
                         Heads *k) {
    if (!cos || !sin) return false;
    Rotary r = {.cos = cos,
                .sin = sin,
                .ids = ids,
                .interleaved = attr_int(n, "rotary_interleaved", 0) != 0};
    if (!r.ids) r.starts = c->begin;
    if (r.cos->rank == 2) r.size = dim_mul(n->x, r.cos->dims[1], 2);
    if (!rotary_check(n, q, &r) || !rotary_check(n, k, &r)) return false;
    q->v = rotary_apply(n, q, &r);
    k->v = rotary_apply(n, k, &r);
    return true;
}

/* Inputs 0 to 2, query, key and value, which may lie in the first, and the past, 3 and 4: a->q, new
 * keys and values, c->past. False after a report. */
static bool group_inputs(Node *n, Attention *a, Heads *fresh, Cache *c) {
    Graph *g = n->g;
    Value *q = node_need(n, 0), *k = node_in(n, 1), *v = node_in(n, 2);
    int64_t heads = attr_int(n, "num_heads", 0), kv_heads = attr_int(n, "kv_num_heads", 0);
    if (!q || n->failed) return false;
    if (heads < 1 || kv_heads < 1 || heads > INT32_MAX || kv_heads > heads || q->rank != 3) {
        invalid(n, E2005, "a query of shape %s for %lld and %lld heads", shape_of(n, q),
                (long long)heads, (long long)kv_heads);
        return false;
    }
    if (!k && !v) {
        int64_t all = heads + 2 * kv_heads, size = dim_div(n->x, q->dims[2], all);
        int64_t own = dim_mul(n->x, size, heads), other = dim_mul(n->x, size, kv_heads);
        if (!dim_varies(size) && q->dims[2] % all) {
            invalid(n, E2005, "a packed query of shape %s for %lld heads", shape_of(n, q),
                    (long long)all);
            return false;
        }
        k = columns_of(g, q, own, other, NULL, 0);
        v = columns_of(g, q, dim_add(n->x, own, other), other, NULL, 0);
        q = columns_of(g, q, 0, own, NULL, 0);
    }
    c->past[0] = node_in(n, 3);
    c->past[1] = node_in(n, 4);
    if (!k || !v || !c->past[0] != !c->past[1]) {
        invalid(n, E2007, "of key and value, or past_key and past_value, one is missing");
        return false;
    }
    if (!heads_from(n, q, heads, "the query", &a->q) ||
        !heads_from(n, k, kv_heads, "the key", &fresh[0]) ||
        !heads_from(n, v, kv_heads, "the value", &fresh[1]))
        return false;
    for (int i = 0; i < 2 && c->past[0]; i++) {
        const Value *past = c->past[i];
        bool fits = past->rank == 4 && dim_meets(n->x, past->dims[0], a->q.batch) &&
                    dim_meets(n->x, past->dims[1], kv_heads) &&
                    dim_meets(n->x, past->dims[3], fresh[i].size) && past->dt == fresh[i].v->dt;
        if (fits && i) fits = dim_meets(n->x, past->dims[2], c->capacity);
        if (!fits) {
            invalid(n, E2005, "a past of shape %s", shape_of(n, past));
            return false;
        }
        c->capacity = past->dims[2];
    }
    if (dim_meets(n->x, fresh[0].batch, a->q.batch) &&
        dim_meets(n->x, fresh[1].batch, a->q.batch) &&
        dim_meets(n->x, fresh[0].length, a->q.length) &&
        dim_meets(n->x, fresh[1].length, a->q.length))
        return true;
    invalid(n, E2005, "query, key and value have different batches or lengths");
    return false;
}

/* Keys and values in the cache, outputs 1 and 2. */
static void update_caches(Node *n, const Cache *c, const Heads *fresh, Attention *a) {
    a->k = cache_update(n, c, c->past[0], &fresh[0], 1);
    a->v = cache_update(n, c, c->past[1], &fresh[1], 2);
    n->out[1] = a->k.v;
    n->out[2] = a->v.v;
}

/* --- GroupQueryAttention ---------------------------------------------------------------------- */

void import_ms_group_query_attention(Node *n) {
    Graph *g = n->g;
    if (attr_int(n, "kv_cache_bit_width", 0) || attr_int(n, "sliding_window_cache", 0) ||
        node_in(n, 14) || node_in(n, 15)) {
        unsupported(n, "quantised or windowed caches and normalised queries");
        return;
    }
    Cache c = {.shared = false};
    Attention a = {.causal = attr_int(n, "causal", 1) != 0,
                   .window = attr_int(n, "local_window_size", -1),
                   .softcap = attr_float(n, "softcap", 0),
                   .bias = node_in(n, 10)};
    Heads fresh[2];
    if (!group_inputs(n, &a, fresh, &c) ||
        !cache_lengths(n, &a.q, node_need(n, 5), 1, node_need(n, 6), &c))
        return;
    if (attr_int(n, "do_rotary", 0) &&
        !group_rotary(n, &c, node_need(n, 7), node_need(n, 8), node_in(n, 9), &a.q, &fresh[0]))
        return;
    int64_t present[4] = {a.q.batch, fresh[0].heads, c.length, fresh[0].size};
    if (!node_shape_ok(n, 4, present)) return;
    if (!a.bias && !node_wants(n, 3)) count_keys(n, &c);
    update_caches(n, &c, fresh, &a);
    a.offsets = c.begin;
    a.lengths = c.end;
    read_scale(n, &a);
    if (n->failed || !attention_check(n, &a)) return;
    Value *sink = node_in(n, 11), *scores = attention_scores(n, &a, SCORE_biased);
    if (sink && !dim_meets(n->x, dim_product(n->x, sink->rank, sink->dims), a.q.heads)) {
        invalid(n, E2005, "head_sink of shape %s for %lld heads", shape_of(n, sink),
                (long long)a.q.heads);
        return;
    }
    if (!sink && attr_int(n, "smooth_softmax", 0) > 0) sink = g_scalar(g, scores->dt, 0);
    Value *probs = sink ? softmax_with_sink(n, scores, sink) : g_softmax(g, scores, 1u << 3, false);
    DType dt = a.q.v->dt;
    n->out[0] = attention_result(n, &a, probs, true, dt);
    int64_t shown = attr_int(n, "qk_output", 0);
    if (shown && node_wants(n, 3)) n->out[3] = g_cast(g, shown == 1 ? scores : probs, dt);
}

/* --- SparseAttention -------------------------------------------------------------------------- */

/* Which blocks of keys a block of queries sees, from the rows' ends and their columns (CSR): bool
 * [layouts, blocks, blocks]. NULL after a report. */
static Value *seen_blocks(Node *n, int64_t heads, Value *ends, Value *columns) {
    Exprs *x = n->x;
    bool fits = ends->rank == 2 && columns->rank == 2 && dim_max(x, ends->dims[1]) >= 2 &&
                dim_meets(x, ends->dims[0], columns->dims[0]) && dt_is_int(ends->dt) &&
                dt_is_int(columns->dt) && !dim_varies(ends->dims[0]) && ends->dims[0] > 0 &&
                heads % ends->dims[0] == 0;
    if (!fits) {
        invalid(n, E2005, "rows %s and columns %s of blocks for %lld heads", shape_of(n, ends),
                shape_of(n, columns), (long long)heads);
        return NULL;
    }
    int64_t blocks = dim_sub(x, ends->dims[1], 1), shape[3] = {ends->dims[0], blocks, blocks};
    if (!node_shape_ok(n, 3, shape)) return NULL;
    Builder b = build(n->g, 3, shape);
    const Expr *layout = ex_var(x, 0), *k = build_red(&b, columns->dims[1]);
    const Expr *from[2] = {layout, ex_var(x, 1)}, *at[2] = {layout, k};
    const Expr *to[2] = {layout, ex_add(x, from[1], ex_i(x, 1))};
    const Expr *place = ex_cast(x, DT_i64, k), *column = ex_cast(x, DT_i64, ex_var(x, 2));
    const Expr *sees = ex_le(x, ex_cast(x, DT_i64, build_load(&b, ends, from)), place);
    sees = ex_and(x, sees, ex_lt(x, place, ex_cast(x, DT_i64, build_load(&b, ends, to))));
    const Expr *own = ex_cast(x, DT_i64, build_load(&b, columns, at));
    sees = ex_and(x, sees, ex_bin(x, EX_eq, own, column));
    const Expr *one = ex_i(x, 1), *none = ex_i(x, 0);
    return build_reduce(&b, DT_bool, COMBINE_max, ex_select(x, sees, one, none),
                        ex_bin(x, EX_ne, ex_acc(x, DT_i32), none));
}

/* The same for queries and keys, [batch, heads, queries, keys]; layouts serve heads in turn. */
static Value *seen_keys(Node *n, const Attention *a, const Cache *c, Value *blocks, int64_t size) {
    Exprs *x = n->x;
    int64_t shape[4] = {a->q.batch, a->q.heads, a->q.length, c->keys};
    if (!node_shape_ok(n, 4, shape)) return NULL;
    Builder b = build(n->g, 4, shape);
    const Expr *item = ex_var(x, 0), *each = ex_i(x, size);
    const Expr *begin = ex_bin(x, EX_min, build_load(&b, c->begin, &item),
                               ex_int(x, DT_i64, dim_max(x, c->capacity)));
    const Expr *query = ex_add(x, ex_cast(x, DT_i32, begin), ex_var(x, 2));
    const Expr *at[3] = {ex_bin(x, EX_rem, ex_var(x, 1), ex_i(x, blocks->dims[0])),
                         index_clamp(x, ex_div(x, query, each), blocks->dims[1]),
                         index_clamp(x, ex_div(x, ex_var(x, 3), each), blocks->dims[2])};
    return build_map(&b, DT_bool, build_load(&b, blocks, at));
}

/* As its documentation says. ONNX Runtime's CPU kernel does so, too, but where the keys of a batch
 * end at different places: there an item may get weights that are made of another one's keys. */
void import_ms_sparse_attention(Node *n) {
    Cache c = {.shared = true};
    Attention a = {.causal = true, .masked = -INFINITY};
    Heads fresh[2];
    int64_t size = attr_int(n, "sparse_block_size", 0);
    Value *ends = node_need(n, 5), *columns = node_need(n, 6);
    if (!node_need(n, 3) || !ends || !columns || !group_inputs(n, &a, fresh, &c)) return;
    if (size < 1 || size > INT32_MAX) {
        invalid(n, E2004, "sparse_block_size is %lld", (long long)size);
        return;
    }
    if (!cache_lengths(n, &a.q, node_need(n, 8), 0, node_need(n, 7), &c)) return;
    if (attr_int(n, "do_rotary", 0) &&
        !group_rotary(n, &c, node_need(n, 9), node_need(n, 10), NULL, &a.q, &fresh[0]))
        return;
    c.keys = dim_smaller(n->x, c.keys, c.capacity);
    c.length = c.capacity;
    count_keys(n, &c);
    update_caches(n, &c, fresh, &a);
    a.offsets = c.begin;
    read_scale(n, &a);
    Value *blocks = seen_blocks(n, a.q.heads, ends, columns), *probs;
    if (!blocks || !(a.mask = seen_keys(n, &a, &c, blocks, size))) return;
    finish_attention(n, &a, a.q.v->dt, &probs);
}

/* --- DecoderMaskedMultiHeadAttention ---------------------------------------------------------- */

/* The new key of each of the batch goes to the same place, input 7, of a buffer: a->k and a->v.
 * False after a report. */
static bool decoder_cache(Node *n, const Value *mask, Attention *a) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *place = node_need(n, 7);
    Cache c = {.past = {node_need(n, 5), node_need(n, 6)}, .shared = true};
    const Heads fresh[2] = {a->k, a->v};
    if (!place || !c.past[0] || !c.past[1]) return false;
    for (int i = 0; i < 2; i++) {
        const Value *past = c.past[i];
        const Heads *h = &fresh[i];
        if (i == 0 && past->rank == 4) c.capacity = past->dims[2];
        int64_t shape[4] = {h->batch, h->heads, c.capacity, h->size};
        bool fits = past->dt == h->v->dt && dims_meet(x, past->rank, past->dims, 4, shape);
        if (fits && dim_meets(x, h->length, 1)) continue;
        invalid(n, E2005, "a past of shape %s for %s", shape_of(n, past), shape_of(n, h->v));
        return false;
    }
    if (!value_single(n, place) || !dt_is_int(place->dt)) {
        invalid(n, E2005, "past_sequence_length %s%s", dt_name(place->dt), shape_of(n, place));
        return false;
    }
    int count;
    const int64_t *known = value_dims(g, place, &count);
    c.length = c.keys = c.capacity;
    place = g_reshape(g, place, 0, NULL);
    Builder b = build(g, 1, &a->q.batch);
    const Expr *at = ex_bin(x, EX_max, build_in(&b, place), ex_num(x, place->dt, 0));
    c.begin = build_map(&b, DT_i64, ex_cast(x, DT_i64, at));
    b = build(g, 1, &a->q.batch);
    c.end = build_map(&b, DT_i64, ex_add(x, build_in(&b, c.begin), ex_int(x, DT_i64, 1)));
    if (known)
        c.keys = dim_add(x, known[0], 1);
    else if (a->bias && a->bias->rank == 4)
        c.keys = a->bias->dims[3];
    else if (mask && mask->rank == 2)
        c.keys = mask->dims[1];
    else
        count_keys(n, &c);
    if (dim_min(x, c.keys) > dim_max(x, c.capacity) || dim_max(x, c.keys) < 1) {
        invalid(n, E2005, "%s keys in a buffer of %s", dim_text(x, c.keys),
                dim_text(x, c.capacity));
        return false;
    }
    dim_claim(x, CLAIM_at_most, c.keys, c.capacity);
    update_caches(n, &c, fresh, a);
    a->lengths = c.end;
    return true;
}

/* One query looks at what it is given (cross-attention), or at a buffer with its key in it. */
void import_ms_decoder_attention(Node *n) {
    Graph *g = n->g;
    Value *q = node_need(n, 0), *k = node_in(n, 1), *mask = node_in(n, 3);
    Attention a = {.masked = attr_float(n, "mask_filter_value", MASK_FILTER),
                   .bias = node_in(n, 4)};
    int64_t heads = attr_int(n, "num_heads", 0);
    bool shared = attr_int(n, "past_present_share_buffer", 0) != 0;
    bool cross = k && k->rank == 4, present = node_wants(n, 1) || node_wants(n, 2);
    if (!q || n->failed) return;
    if (!k || node_in(n, 8) || node_in(n, 9) || (cross ? a.bias || present : !shared)) {
        unsupported(n, "packed queries, beams, a past that is not shared, and cross-attention with "
                       "an attention_bias or a present");
        return;
    }
    if (!multi_head_inputs(n, heads, node_in(n, 10), &a)) return;
    if (!dim_meets(n->x, a.q.length, 1)) {
        invalid(n, E2005, "%s queries", dim_text(n->x, a.q.length));
        return;
    }
    if ((!cross && !decoder_cache(n, mask, &a)) || !padding_mask(n, &a, mask)) return;
    read_scale(n, &a);
    if (n->failed || !attention_check(n, &a)) return;
    Value *scores = attention_scores(n, &a, SCORE_biased);
    DType dt = a.q.v->dt;
    n->out[0] = attention_result(n, &a, g_softmax(g, scores, 1u << 3, false), true, dt);
    if (node_wants(n, 3)) n->out[3] = g_cast(g, scores, dt);
}
