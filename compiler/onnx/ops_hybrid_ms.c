/* What language models of com.microsoft have beside attention: gates, normalisations by groups,
 * residual streams that are mixed (hyper-connections), and hashes of n-grams. Floats are computed
 * in f32 whatever their type. */
#include "compiler/onnx/norm.h"

/* `v` has the shape of `like`; false after a report. */
static bool same_shape(Node *n, const Value *v, const Value *like) {
    if (dims_meet(n->x, v->rank, v->dims, like->rank, like->dims)) return true;
    invalid(n, E2005, "shapes %s and %s must be the same", shape_of(n, v), shape_of(n, like));
    return false;
}

static Value *wide(Graph *g, Value *v) {
    return g_cast(g, v, DT_f32);
}

/* The sum over the last dimension, which stays as 1. */
static Value *row_sum(Graph *g, Value *v) {
    return g_reduce(g, COMBINE_sum, v, 1u << (v->rank - 1), true);
}

/* v divided by the root of the mean square of its last dimension, times the scale. */
static Value *rms_scaled(Graph *g, Value *v, double epsilon, Value *scale) {
    Norm m = normalize(g, wide(g, v), v->rank - 1, epsilon, true);
    return scale ? norm_scaled(g, m.even, scale, NULL, DT_f32) : m.even;
}

/* --- gates ------------------------------------------------------------------------------------ */

/* decay = scale * softplus(a + bias), beta = sigmoid(b) */
void import_ms_linear_attention_gate(Node *n) {
    Graph *g = n->g;
    Value *a = node_need(n, 0), *bias = node_need(n, 1), *scale = node_need(n, 2),
          *b = node_in(n, 3);
    if (!a || !bias || !scale || !is_row(n, bias, a) || !is_row(n, scale, a)) return;
    if (node_wants(n, 1) && !(b = node_need(n, 3))) return;
    if (b && !same_shape(n, b, a)) return;
    Value *parts[3] = {wide(g, a), bias, scale};
    Value *decay = node_formula(n, "c * " SOFTPLUS("(a + b)"), 3, parts);
    if (decay) n->out[0] = g_cast(g, decay, a->dt);
    if (b) n->out[1] = node_formula(n, "1 / (1 + exp(-a))", 1, &b);
}

/* Each group of as many elements as the scale has is normalised by itself. */
void import_ms_gated_rms_norm(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *v = node_need(n, 0), *scale = node_need(n, 1), *gate = node_need(n, 2);
    int activation = attr_choice(n, "activation", 0, "silu swish sigmoid");
    double epsilon = attr_float(n, "epsilon", 1e-6);
    if (!v || !scale || !gate || n->failed || !same_shape(n, gate, v)) return;
    int last = v->rank - 1;
    int64_t size = scale->rank == 1 ? scale->dims[0] : 0, shape[MAX_RANK];
    if (dim_varies(size)) {
        unsupported(n, "a scale of a length that varies");
        return;
    }
    bool fits = last >= 0 && size > 0 && v->rank < MAX_TENSOR_RANK;
    for (int i = 0; i <= last && fits; i++) shape[i] = v->dims[i];
    if (fits) {
        shape[last] = dim_div(x, v->dims[last], size);
        shape[last + 1] = size;
        fits = dim_meets(x, dim_mul(x, shape[last], size), v->dims[last]);
    }
    if (!fits) {
        invalid(n, E2005, "a scale of shape %s for %s", shape_of(n, scale), shape_of(n, v));
        return;
    }
    Value *parts[2] = {rms_scaled(g, g_reshape(g, v, last + 2, shape), epsilon, scale),
                       wide(g, g_reshape(g, gate, last + 2, shape))};
    const char *formula = activation < 2 ? "a * (b / (1 + exp(-b)))" : "a * (1 / (1 + exp(-b)))";
    Value *gated = node_formula(n, formula, 2, parts);
    if (gated) n->out[0] = g_reshape(g, g_cast(g, gated, v->dt), v->rank, v->dims);
}

/* v + the rounded product of another and its rows' gates. */
void import_ms_gated_add(Node *n) {
    Exprs *x = n->x;
    Value *v = node_need(n, 0), *other = node_need(n, 1), *gate = node_need(n, 2);
    if (!v || !other || !gate || !same_shape(n, other, v)) return;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++) shape[i] = i == v->rank - 1 ? 1 : v->dims[i];
    if (v->rank < 1 || !dims_meet(x, gate->rank, gate->dims, v->rank, shape)) {
        invalid(n, E2005, "a gate of shape %s for %s", shape_of(n, gate), shape_of(n, v));
        return;
    }
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *product =
        ex_mul(x, ex_cast(x, DT_f32, build_in(&b, other)), ex_cast(x, DT_f32, build_in(&b, gate)));
    product = ex_cast(x, DT_f32, ex_cast(x, v->dt, product));
    n->out[0] = build_map(&b, v->dt, ex_add(x, ex_cast(x, DT_f32, build_in(&b, v)), product));
}

/* --- streams ---------------------------------------------------------------------------------- */

/* Streams side by side: [..., branches, size]. */
typedef struct Streams {
    Value *v;
    int lead; /* dimensions before these two */
    int64_t branches, size;
    bool flat; /* they were given as [..., branches * size] */
} Streams;

/* Input 0; num_branches takes flat ones apart. False after a report. */
static bool streams_from(Node *n, Streams *s) {
    Value *v = node_need(n, 0);
    int64_t branches = attr_int(n, "num_branches", 0), shape[MAX_RANK];
    if (!v || n->failed) return false;
    int rank = v->rank;
    s->flat = branches != 0;
    bool fits = branches >= 0 && branches <= INT32_MAX && rank >= (s->flat ? 1 : 2) &&
                rank + s->flat <= MAX_TENSOR_RANK && dt_is_float(v->dt);
    if (fits && s->flat) {
        for (int i = 0; i < rank; i++) shape[i] = v->dims[i];
        shape[rank] = dim_div(n->x, v->dims[rank - 1], branches);
        shape[rank - 1] = branches;
        fits = dim_meets(n->x, dim_mul(n->x, shape[rank], branches), v->dims[rank - 1]);
    }
    if (!fits) {
        invalid(n, E2005, "streams %s%s of %lld branches", dt_name(v->dt), shape_of(n, v),
                (long long)branches);
        return false;
    }
    s->v = s->flat ? g_reshape(n->g, v, rank + 1, shape) : v;
    s->lead = s->v->rank - 2;
    s->branches = s->v->dims[s->lead];
    s->size = s->v->dims[s->lead + 1];
    return true;
}

/* A length is that of one of two forms, and a run alone may say of which: false after a report. */
static bool tells_apart(Node *n, int64_t length, int64_t one, int64_t other) {
    if (one == other || !dim_can_meet(n->x, length, one) || !dim_can_meet(n->x, length, other))
        return true;
    unsupported(n, "scales and gates of a length that varies");
    return false;
}

/* Input i as [..., branches, 1] or [..., branches, size], which it is but that the 1 may be missing
 * or, if joined, the last two be one. NULL after a report. */
static Value *stream_gate(Node *n, const Streams *s, int i, bool joined) {
    Exprs *x = n->x;
    Value *v = node_need(n, i);
    if (!v) return NULL;
    int lead = s->lead, beyond = v->rank - lead;
    int64_t shape[MAX_RANK];
    bool fits = (beyond == 1 || beyond == 2) && dt_is_float(v->dt) &&
                dims_meet(x, lead, v->dims, lead, s->v->dims);
    for (int k = 0; k < lead; k++) shape[k] = s->v->dims[k];
    shape[lead] = s->branches;
    shape[lead + 1] = s->size;
    if (fits && beyond == 1) {
        int64_t whole = dim_mul(x, s->branches, s->size), length = v->dims[lead];
        if (joined && !tells_apart(n, length, s->branches, whole)) return NULL;
        bool each = !joined || dim_can_meet(x, length, s->branches);
        if (each) shape[lead + 1] = 1;
        fits = dim_meets(x, length, each ? s->branches : whole);
    } else if (fits) {
        if (v->dims[lead + 1] == 1) shape[lead + 1] = 1;
        fits = dims_meet(x, 2, v->dims + lead, 2, shape + lead);
    }
    if (fits) return g_reshape(n->g, v, lead + 2, shape);
    invalid(n, E2005, "gates %s%s for streams of shape %s", dt_name(v->dt), shape_of(n, v),
            shape_of(n, s->v));
    return NULL;
}

/* [size], [branches * size] or [branches, size] as the first or last of these. NULL after a report.
 */
static Value *stream_scale(Node *n, const Streams *s, Value *v) {
    Exprs *x = n->x;
    const int64_t each[2] = {s->branches, s->size}, all = dim_mul(x, s->branches, s->size);
    bool fits = dt_is_float(v->dt);
    if (fits && v->rank == 1) {
        if (!tells_apart(n, v->dims[0], s->size, all)) return NULL;
        if (dim_can_meet(x, v->dims[0], s->size) && dim_meets(x, v->dims[0], s->size)) return v;
        fits = dim_meets(x, v->dims[0], all);
    } else if (fits) {
        fits = dims_meet(x, v->rank, v->dims, 2, each);
    }
    if (fits) return g_reshape(n->g, v, 2, each);
    invalid(n, E2005, "a scale of shape %s for streams of shape %s", shape_of(n, v),
            shape_of(n, s->v));
    return NULL;
}

/* Each branch is normalised by itself. The scale is for all, or one for each branch. */
void import_ms_branchwise_rms_norm(Node *n) {
    Graph *g = n->g;
    Value *scale = node_in(n, 1);
    double epsilon = attr_float(n, "epsilon", 1e-6);
    Streams s;
    if (!streams_from(n, &s)) return;
    if (scale && !(scale = stream_scale(n, &s, scale))) return;
    Value *even = g_cast(g, rms_scaled(g, s.v, epsilon, scale), s.v->dt), *v = node_in(n, 0);
    n->out[0] = g_reshape(g, even, v->rank, v->dims);
}

/* The sum of all branches times their gates. */
void import_ms_hyper_connection_pre_mix(Node *n) {
    Exprs *x = n->x;
    double scale = attr_float(n, "reduction_scale", 1);
    Streams s;
    if (!streams_from(n, &s)) return;
    Value *gate = stream_gate(n, &s, 1, s.flat);
    if (!gate || n->failed) return;
    int lead = s.lead;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < lead; i++) shape[i] = s.v->dims[i];
    shape[lead] = s.size;
    Builder b = build(n->g, lead + 1, shape);
    const Expr *at[MAX_RANK];
    for (int i = 0; i < lead; i++) at[i] = ex_var(x, i);
    at[lead] = build_red(&b, s.branches);
    at[lead + 1] = ex_var(x, lead);
    const Expr *e = ex_cast(x, DT_f32, build_load(&b, s.v, at));
    at[lead + 1] = build_index(&b, lead, gate->dims[lead + 1]);
    e = ex_mul(x, e, ex_cast(x, DT_f32, build_load(&b, gate, at)));
    const Expr *post = ex_mul(x, ex_acc(x, DT_f32), ex_num(x, DT_f32, scale));
    n->out[0] = build_reduce(&b, s.v->dt, COMBINE_sum, e, post);
}

/* Branch k is the sum of all branches c times mix[c, k], and a new one times the gate of k. Without
 * a mix the branches stay apart. */
void import_ms_hyper_connection_post_mix(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *fresh = node_need(n, 1), *mix = node_in(n, 3);
    Streams s;
    if (!fresh || !streams_from(n, &s)) return;
    Value *gate = stream_gate(n, &s, 2, false);
    if (!gate) return;
    int lead = s.lead, rank = lead + 2;
    int64_t each[MAX_RANK], square[MAX_RANK];
    for (int i = 0; i < lead; i++) each[i] = square[i] = s.v->dims[i];
    each[lead] = s.size;
    square[lead] = square[lead + 1] = s.branches;
    if (!dims_meet(x, fresh->rank, fresh->dims, lead + 1, each) ||
        (mix && !dims_meet(x, mix->rank, mix->dims, rank, square))) {
        invalid(n, E2005, "block_output of shape %s or stream_mix for streams of shape %s",
                shape_of(n, fresh), shape_of(n, s.v));
        return;
    }
    Builder b = build(g, rank, s.v->dims);
    const Expr *own[MAX_RANK], *from[MAX_RANK], *to[MAX_RANK], *sum = NULL;
    for (int i = 0; i < rank; i++) own[i] = from[i] = to[i] = ex_var(x, i);
    if (mix) {
        to[lead + 1] = to[lead];
        to[lead] = from[lead] = build_red(&b, s.branches);
        sum = ex_mul(x, ex_cast(x, DT_f32, build_load(&b, mix, to)),
                     ex_cast(x, DT_f32, build_load(&b, s.v, from)));
    }
    const Expr *kept = mix ? ex_acc(x, DT_f32) : ex_cast(x, DT_f32, build_load(&b, s.v, own));
    const Expr *by = ex_cast(x, DT_f32, build_in(&b, gate));
    own[lead] = own[lead + 1];
    kept = ex_add(x, kept, ex_mul(x, by, ex_cast(x, DT_f32, build_load(&b, fresh, own))));
    Value *out =
        mix ? build_reduce(&b, s.v->dt, COMBINE_sum, sum, kept) : build_map(&b, s.v->dt, kept);
    const Value *v = node_in(n, 0);
    n->out[0] = g_reshape(g, out, v->rank, v->dims);
}

/* --- n-grams ---------------------------------------------------------------------------------- */

/* The gate opens where normalised keys and queries agree: the sigmoid of their product's root. */
void import_ms_engram_gate(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *key = node_need(n, 0), *query = node_need(n, 1), *value = node_need(n, 2),
          *scale[3] = {node_need(n, 3), node_need(n, 4), node_in(n, 5)};
    double epsilon = attr_float(n, "epsilon", 1e-5);
    bool normed = node_wants(n, 1);
    if (!key || !query || !value || !scale[0] || !scale[1] || n->failed) return;
    if (normed && !node_need(n, 5)) return;
    if (!same_shape(n, query, key)) return;
    bool fits = key->rank == 4;
    int64_t one[4] = {0, 0, 1, 0};
    for (int i = 0; i < 3 && fits; i++)
        if (scale[i]) fits = dims_meet(x, scale[i]->rank, scale[i]->dims, 2, key->dims + 2);
    if (fits) {
        one[0] = key->dims[0], one[1] = key->dims[1], one[3] = key->dims[3];
        const int64_t shared[3] = {one[0], one[1], one[3]};
        fits = dims_meet(x, value->rank, value->dims, 3, shared);
    }
    if (!fits) {
        invalid(n, E2005, "keys of shape %s, values %s and the scales do not fit", shape_of(n, key),
                shape_of(n, value));
        return;
    }
    Value *product = g_bin(g, EX_mul, rms_scaled(g, key, epsilon, scale[0]),
                           rms_scaled(g, query, epsilon, scale[1]));
    Value *parts[3] = {row_sum(g, product), g_dim(g, DT_f32, one[3]),
                       wide(g, g_reshape(g, value, 4, one))};
    Value *dot = node_formula(n, "a / sqrt(b)", 2, parts);
    if (!dot) return;
    parts[0] = dot;
    parts[1] = node_formula(n, "sqrt(max(abs(a), 0.000001))", 1, &dot);
    Value *gated =
        node_formula(n, "1 / (1 + exp(-select(a > 0, b, select(a < 0, -b, 0)))) * c", 3, parts);
    if (!gated) return;
    n->out[0] = g_cast(g, gated, value->dt);
    if (normed) n->out[1] = g_cast(g, rms_scaled(g, gated, epsilon, scale[2]), value->dt);
}

#define MOST_WORDS 16 /* of an n-gram: the formula of a hash is written out */

/* The ids that precede a call and those of it, [batch, words - 1 + length]. */
static Value *with_history(Node *n, Value *ids, Value *past, Value *pad, int64_t words) {
    int64_t shape[2] = {ids->dims[0], words - 1};
    Value *both[2] = {past ? past : g_expand(n->g, pad, 2, shape), ids};
    return g_concat(n->g, 2, both, 1);
}

/* Does a segment begin at position t - k? */
static const Expr *begins(Builder *b, Value *segments, const Expr *row, const Expr *t, int64_t k) {
    Exprs *x = b->x;
    const Expr *here = ex_sub(x, t, ex_i(x, k));
    const Expr *at[2] = {row, here}, *before[2] = {row, ex_sub(x, here, ex_i(x, 1))};
    const Expr *other =
        ex_bin(x, EX_ne, build_load(b, segments, at), build_load(b, segments, before));
    return ex_and(x, ex_le(x, ex_i(x, 1), here), other);
}

/* The hashes of the n-grams of 2 words, 3 ... that end at each position: [batch, length, words -
 * 1]. A word from before the last end of a text (reset), or before its segment, counts as `pad`,
 * which is the word that ends texts where there is one (input eos), and pad_id else, whether texts
 * that end reset or not. */
static Value *ngram_hashes(Node *n, Value *ids, Value *all, Value *multipliers, Value *pad,
                           Value *segments, bool reset, int64_t words) {
    Exprs *x = n->x;
    DType work = ids->dt == DT_i64 ? DT_u64 : DT_u32;
    int64_t shape[3] = {ids->dims[0], ids->dims[1], words - 1};
    Builder b = build(n->g, 3, shape);
    const Expr *row = ex_var(x, 0), *t = ex_var(x, 1), *hash = NULL,
               *outside = ex_int(x, DT_bool, 0);
    const Expr *none = build_in(&b, pad);
    for (int64_t k = 0; k < words; k++) {
        const Expr *at[2] = {row, ex_add(x, t, ex_i(x, words - 1 - k))}, *factor = ex_i(x, k);
        const Expr *word = build_load(&b, all, at);
        if (k && segments) outside = ex_bin(x, EX_or, outside, begins(&b, segments, row, t, k - 1));
        if (k && reset) outside = ex_bin(x, EX_or, outside, ex_bin(x, EX_eq, word, none));
        word = ex_bits(x, work, ex_select(x, outside, none, word));
        const Expr *term = ex_mul(x, word, ex_bits(x, work, build_load(&b, multipliers, &factor)));
        if (k > 1)
            term = ex_select(x, ex_lt(x, ex_i(x, k - 2), ex_var(x, 2)), term, ex_num(x, work, 0));
        hash = hash ? ex_bin(x, EX_bxor, hash, term) : term;
    }
    return build_map(&b, ids->dt, ex_bits(x, ids->dt, hash));
}

/* Each n-gram's hash modulo the sizes of its heads' vocabularies, plus their offsets. */
void import_ms_ngram_hash_mapping(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *ids = node_need(n, 0), *multipliers = node_need(n, 1), *sizes = node_need(n, 2),
          *past = node_in(n, 3), *offsets = node_in(n, 4), *eos = node_in(n, 5),
          *segments = node_in(n, 6);
    int64_t words = attr_int(n, "max_ngram_size", 0), heads = attr_int(n, "n_head_per_ngram", 0);
    bool reset = attr_int(n, "reset_on_eos", 0) != 0 && eos;
    int64_t pad_id = attr_int(n, "pad_id", 0);
    if (!ids || !multipliers || !sizes || n->failed) return;
    if (words < 2 || heads < 1 || heads > INT32_MAX) {
        invalid(n, E2004, "max_ngram_size is %lld, n_head_per_ngram %lld", (long long)words,
                (long long)heads);
        return;
    }
    if (words > MOST_WORDS) {
        unsupported(n, "n-grams of %lld words", (long long)words);
        return;
    }
    int64_t count = (words - 1) * heads;
    bool fits = ids->rank == 2 && (ids->dt == DT_i32 || ids->dt == DT_i64) &&
                multipliers->rank == 1 && dim_max(x, multipliers->dims[0]) >= words &&
                sizes->rank == 1 && dim_meets(x, sizes->dims[0], count);
    if (fits) {
        int64_t before[2] = {ids->dims[0], words - 1};
        if (past) fits = dims_meet(x, past->rank, past->dims, 2, before);
        if (fits && offsets) fits = dims_meet(x, offsets->rank, offsets->dims, 1, &count);
        if (fits && segments) fits = dims_meet(x, segments->rank, segments->dims, 2, ids->dims);
        if (fits && eos) fits = eos->rank == 0;
        Value *like[5] = {multipliers, sizes, past, offsets, eos};
        for (int i = 0; i < 5 && fits; i++) fits = !like[i] || like[i]->dt == ids->dt;
    }
    if (!fits) {
        invalid(n, E2005, "ids %s%s, multipliers %s, vocab_sizes %s and the others do not fit",
                dt_name(ids->dt), shape_of(n, ids), shape_of(n, multipliers), shape_of(n, sizes));
        return;
    }
    dim_claim(x, CLAIM_at_most, words, multipliers->dims[0]);
    int64_t shape[3] = {ids->dims[0], ids->dims[1], count};
    if (!node_shape_ok(n, 3, shape)) return;
    Value *pad = eos ? eos : g_cast(g, g_ints(g, 1, &pad_id), ids->dt);
    pad = g_reshape(g, pad, 0, NULL);
    Value *all = with_history(n, ids, past, pad, words);
    Value *hashes = ngram_hashes(n, ids, all, multipliers, pad, segments, reset, words);
    Builder b = build(g, 3, shape);
    const Expr *head = ex_var(x, 2), *zero = ex_num(x, ids->dt, 0);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), ex_div(x, head, ex_i(x, heads))};
    const Expr *size = ex_bin(x, EX_max, build_load(&b, sizes, &head), ex_num(x, ids->dt, 1));
    const Expr *rest = ex_bin(x, EX_rem, build_load(&b, hashes, at), size);
    rest = ex_select(x, ex_lt(x, rest, zero), ex_add(x, rest, size), rest);
    if (offsets) rest = ex_add(x, rest, build_load(&b, offsets, &head));
    n->out[0] = build_map(&b, ids->dt, rest);
    if (!node_wants(n, 1)) return;
    int64_t start[2] = {0, ids->dims[1]}, step[2] = {1, 1}, size_of[2] = {ids->dims[0], words - 1};
    n->out[1] = g_slice(g, all, start, step, size_of);
}
