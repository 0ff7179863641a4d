/* Attention and its relatives of ai.onnx and ai.onnx.preview; what they share is in attention.h. */
#include "compiler/onnx/attention.h"
#include "ir/constant.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* --- Attention -------------------------------------------------------------------------------- */

/* The type that scores are made probabilities in. */
static DType softmax_type(Node *n, DType fallback) {
    if (!attr_has(n, "softmax_precision")) return fallback;
    DType dt = node_dtype(n, attr_int(n, "softmax_precision", 1));
    if (dt == DT_none || dt_is_float(dt)) return dt;
    invalid(n, E2004, "softmax_precision is %s", dt_name(dt));
    return DT_none;
}

static void read_scale(Node *n, Attention *a) {
    a->scale = attr_float(n, "scale", 0);
    a->by_size = !attr_has(n, "scale");
}

/* Inputs 4 and 5, the past, before keys and values; outputs 1 and 2. */
static bool add_past(Node *n, Attention *a) {
    Value *past[2] = {node_in(n, 4), node_in(n, 5)};
    if (!past[0] != !past[1]) {
        invalid(n, E2007, "of past_key and past_value one is missing");
        return false;
    }
    if (past[0]) {
        if (!heads_append(n, past[0], &a->k, "key") || !heads_append(n, past[1], &a->v, "value"))
            return false;
        a->offset = past[0]->dims[2];
    }
    if (node_wants(n, 1)) n->out[1] = heads_plain(n, &a->k);
    if (node_wants(n, 2)) n->out[2] = heads_plain(n, &a->v);
    return true;
}

/* Softmax over the keys; zeros where all are masked, as PyTorch and ONNX Runtime have it. */
static Value *masked_softmax(Graph *g, Value *scores) {
    DType work = dt_reg(scores->dt);
    Value *wide = g_cast(g, scores, work);
    Value *top = g_reduce(g, COMBINE_max, wide, 1u << 3, true);
    top = g_bin(g, EX_max, top, g_scalar(g, work, work == DT_f64 ? -DBL_MAX : -FLT_MAX));
    Value *e = g_un(g, EX_exp, g_bin(g, EX_sub, wide, top));
    Value *sum = g_reduce(g, COMBINE_sum, e, 1u << 3, true); /* 1 or more, or all is masked */
    sum = g_bin(g, EX_max, sum, g_scalar(g, work, 1));
    return g_cast(g, g_bin(g, EX_div, e, sum), scores->dt);
}

void import_attention(Node *n) {
    Graph *g = n->g;
    Value *q = node_need(n, 0), *k = node_need(n, 1), *v = node_need(n, 2);
    if (!q || !k || !v) return;
    int64_t q_heads = attr_int(n, "q_num_heads", 0), kv_heads = attr_int(n, "kv_num_heads", 0);
    Attention a = {.mask = node_in(n, 3), .lengths = node_in(n, 6), .masked = -INFINITY};
    if (!heads_from(n, q, q_heads, "Q", &a.q) || !heads_from(n, k, kv_heads, "K", &a.k) ||
        !heads_from(n, v, kv_heads, "V", &a.v) || !add_past(n, &a))
        return;
    read_scale(n, &a);
    a.softcap = attr_float(n, "softcap", 0);
    a.causal = attr_int(n, "is_causal", 0) != 0;
    DType work = dt_reg(q->dt), soft = softmax_type(n, work);
    int64_t mode = attr_int(n, "qk_matmul_output_mode", 0);
    if (n->failed || soft == DT_none || !attention_check(n, &a)) return;
    if (mode < 0 || mode > 3) {
        invalid(n, E2004, "qk_matmul_output_mode is %lld", (long long)mode);
        return;
    }
    Value *scores = attention_scores(n, &a, SCORE_biased);
    Value *weights = g_cast(g, scores, soft);
    bool masks = a.mask || a.lengths;
    Value *probs = masks ? masked_softmax(g, weights) : g_softmax(g, weights, 1u << 3, false);
    if (node_wants(n, 3)) {
        Value *shown = mode == 3   ? probs
                       : mode == 2 ? scores
                                   : attention_scores(n, &a, (ScoreStage)mode);
        n->out[3] = g_cast(g, shown, q->dt);
    }
    n->out[0] = attention_result(n, &a, probs, q->rank == 3, q->dt);
}

/* --- FlexAttention ---------------------------------------------------------------------------- */

/* The sub-graph of an attribute applied to v; v itself if there is none. NULL after a report. */
static Value *modified(Node *n, const char *name, Value *v) {
    const Onnx__GraphProto *graph = attr_graph(n, name);
    if (!graph) return v;
    if (graph->n_input != 1 || graph->n_output != 1) {
        invalid(n, E2007, "'%s' must have one input and one output", name);
        return NULL;
    }
    Entity *in[1] = {entity_tensor(n->im, v)}, *out[1] = {NULL};
    if (!import_subgraph(n, graph, n->g, in, out, NULL)) return NULL;
    const Value *got = out[0]->kind == ENTITY_tensor ? out[0]->tensor : NULL;
    if (!got || got->dt != v->dt || !dims_meet(n->x, got->rank, got->dims, v->rank, v->dims)) {
        invalid(n, E2005, "'%s' must keep shape and type", name);
        return NULL;
    }
    return out[0]->tensor;
}

void import_flex_attention(Node *n) {
    Graph *g = n->g;
    Value *q = node_need(n, 0), *k = node_need(n, 1), *v = node_need(n, 2);
    if (!q || !k || !v) return;
    Attention a = {.masked = -INFINITY};
    if (!heads_from(n, q, 0, "Q", &a.q) || !heads_from(n, k, 0, "K", &a.k) ||
        !heads_from(n, v, 0, "V", &a.v))
        return;
    read_scale(n, &a);
    DType soft = softmax_type(n, dt_reg(q->dt));
    if (n->failed || soft == DT_none || !attention_check(n, &a)) return;
    Value *scores =
        modified(n, "score_mod", g_cast(g, attention_scores(n, &a, SCORE_biased), soft));
    if (!scores) return;
    Value *probs = modified(n, "prob_mod", g_softmax(g, scores, 1u << 3, false));
    if (probs) n->out[0] = attention_result(n, &a, probs, false, q->dt);
}

/* --- RotaryEmbedding -------------------------------------------------------------------------- */

void import_rotary_embedding(Node *n) {
    Value *v = node_need(n, 0);
    Rotary r = {.cos = node_need(n, 1),
                .sin = node_need(n, 2),
                .ids = node_in(n, 3),
                .interleaved = attr_int(n, "interleaved", 0) != 0,
                .size = attr_int(n, "rotary_embedding_dim", 0)};
    Heads heads;
    if (v && r.cos && r.sin && heads_from(n, v, attr_int(n, "num_heads", 0), "X", &heads))
        n->out[0] = rotary_result(n, v, &heads, &r);
}

/* --- LinearAttention -------------------------------------------------------------------------- */

/* The state has the heads of v. Each reads one of k's heads, and the result has those of q or v,
 * whichever are more. */
typedef struct Linear {
    Heads q, k, v, decay, beta; /* all packed; decay and beta: v NULL where they are absent */
    bool ms;                    /* LinearAttention of com.microsoft, which takes more */
    int64_t heads;              /* of the result */
    double scale;               /* 0: 1 / sqrt(size of a query) */
    DType work;
} Linear;

/* Head h of `heads` as one of `of`, which each serve as many. */
static const Expr *shared_head(Exprs *x, const Expr *h, int64_t heads, int64_t of) {
    return ex_div(x, h, ex_i(x, dim_div(x, heads, of)));
}

/* One step of the recurrence: the state after it, and *out: [batch, heads, value size]. */
static Value *linear_step(Graph *g, const Linear *l, Value *state, const Expr *t, Value **out) {
    Exprs *x = g->x;
    DType work = l->work;
    const Expr *b = ex_var(x, 0), *h = ex_var(x, 1), *d = ex_var(x, 2), *m = ex_var(x, 3);
    const Expr *key_head = shared_head(x, h, l->v.heads, l->k.heads);
    if (l->decay.v) {
        Builder kept = build(g, 4, state->dims);
        const Expr *last = dim_index(x, d, l->decay.size);
        const Expr *by = ex_cast(x, work, heads_load(&kept, &l->decay, b, h, t, last));
        state = build_map(&kept, work, ex_mul(x, build_in(&kept, state), ex_un(x, EX_exp, by)));
    }
    Value *recalled = NULL;
    if (l->beta.v) { /* what the state gives for the key already */
        int64_t shape[3] = {l->k.batch, l->v.heads, l->v.size};
        Builder r = build(g, 3, shape);
        const Expr *red = build_red(&r, l->k.size), *at[4] = {b, h, red, d};
        const Expr *key = ex_cast(x, work, heads_load(&r, &l->k, b, key_head, t, red));
        recalled =
            build_reduce(&r, work, COMBINE_sum, ex_mul(x, build_load(&r, state, at), key), NULL);
    }
    Builder w = build(g, 4, state->dims);
    const Expr *value = ex_cast(x, work, heads_load(&w, &l->v, b, h, t, m));
    const Expr *key = ex_cast(x, work, heads_load(&w, &l->k, b, key_head, t, d));
    if (recalled) {
        const Expr *at[3] = {b, h, m}, *head = dim_index(x, h, l->beta.heads);
        const Expr *rate = heads_load(&w, &l->beta, b, head, t, ex_i(x, 0));
        value = ex_mul(x, ex_cast(x, work, rate), ex_sub(x, value, build_load(&w, recalled, at)));
    }
    state = build_map(&w, work, ex_add(x, build_in(&w, state), ex_mul(x, key, value)));
    int64_t shape[3] = {l->q.batch, l->heads, l->v.size};
    Builder o = build(g, 3, shape);
    const Expr *red = build_red(&o, l->k.size), *from = shared_head(x, h, l->heads, l->v.heads);
    const Expr *query_head = shared_head(x, h, l->heads, l->q.heads);
    const Expr *scale =
        l->scale != 0 ? ex_num(x, work, l->scale) : attention_scale(x, work, l->q.size);
    const Expr *at[4] = {b, from, red, d};
    const Expr *query = ex_cast(x, work, heads_load(&o, &l->q, b, query_head, t, red));
    *out = build_reduce(&o, work, COMBINE_sum, ex_mul(x, query, build_load(&o, state, at)),
                        ex_mul(x, ex_acc(x, work), scale));
    return state;
}

/* All steps: the last state, and *out: [length, batch, heads, value size]. */
static Value *linear_steps(Graph *g, const Linear *l, Value *state, Value **out) {
    Exprs *x = g->x;
    int64_t stacked[4] = {l->q.length, l->q.batch, l->heads, l->v.size};
    if (!dim_varies(l->q.length) && l->q.length <= 1) {
        Value *row = NULL;
        if (l->q.length == 1) state = linear_step(g, l, state, ex_i(x, 0), &row);
        *out = row ? g_reshape(g, row, 4, stacked)
                   : graph_const(g, l->work, 4, stacked, arena_alloc(g->arena, 16));
        return state;
    }
    Graph *sub = graph_new_sub(g);
    Linear inner = *l;
    Heads *part[] = {&inner.q, &inner.k, &inner.v, &inner.decay, &inner.beta};
    Value *in[6] = {state}, *outs[2], *row;
    int n_in = 1;
    Value *carried = graph_input(sub, "state", l->work, 4, state->dims);
    for (int i = 0; i < 5; i++) {
        Value *v = part[i]->v;
        if (!v) continue;
        if (value_is_const(v)) {
            part[i]->v = constant_like(sub, v, v->rank, v->dims);
        } else {
            in[n_in++] = v;
            part[i]->v = graph_input(sub, v->name, v->dt, v->rank, v->dims);
        }
    }
    carried = linear_step(sub, &inner, carried, ex_ctr(x, sub->depth - 1), &row);
    graph_output(sub, carried, "state");
    graph_output(sub, row, "row");
    build_loop(g, sub, l->q.length, 1, n_in, in, outs);
    *out = outs[1];
    return outs[0];
}

/* All steps from *state on, which becomes the last one. The result has this type and shape. */
static Value *linear_result(Node *n, const Linear *l, Value **state, DType dt, int rank,
                            const int64_t *shape) {
    static const int perm[4] = {1, 0, 2, 3};
    Value *rows;
    *state = linear_steps(n->g, l, *state, &rows);
    rows = g_cast(n->g, g_transpose(n->g, rows, perm), dt);
    return g_reshape(n->g, rows, rank, shape);
}

/* Optional input i, [batch, length, heads * size]. `want`: the rule has it; `heads`: how many.
 * com.microsoft ignores those that the rule does not have. */
static bool linear_gate(Node *n, const Linear *l, int i, bool want, int64_t heads, const char *what,
                        Heads *out) {
    Value *v = node_in(n, i);
    *out = (Heads){0};
    if (!want && (!v || l->ms)) return true;
    if (!v || !want) {
        invalid(n, E2007, "%s is %s, but the update rule %s it", what, v ? "given" : "missing",
                want ? "needs" : "does not take");
        return false;
    }
    if (v->rank == 3 && dim_meets(n->x, v->dims[0], l->q.batch) &&
        dim_meets(n->x, v->dims[1], l->q.length))
        return heads_from(n, v, heads, what, out);
    invalid(n, E2005, "%s of shape %s does not fit the query", what, shape_of(n, v));
    return false;
}

/* False after a report if q, k and v do not fit each other. com.microsoft has fewer heads of
 * queries than of values, too, and fewer of keys. */
static bool linear_heads(Node *n, Linear *l, Value *q, Value *k, Value *v) {
    Exprs *x = n->x;
    int64_t q_heads = attr_int(n, "q_num_heads", 0), heads = attr_int(n, "kv_num_heads", 0);
    int64_t k_heads = heads;
    if (q->rank != 3 || k->rank != 3 || v->rank != 3) {
        invalid(n, E2005, "query, key and value must have 3 dimensions");
        return false;
    }
    if (!heads_from(n, q, q_heads, "query", &l->q)) return false;
    if (l->ms) {
        if (l->q.size < 1 || k->dims[2] < 1 || k->dims[2] % l->q.size) {
            invalid(n, E2005, "a key of shape %s for query heads of size %s", shape_of(n, k),
                    dim_text(x, l->q.size));
            return false;
        }
        k_heads = k->dims[2] / l->q.size;
    }
    if (!heads_from(n, k, k_heads, "key", &l->k) || !heads_from(n, v, heads, "value", &l->v))
        return false;
    if (!dim_meets(x, l->q.length, l->k.length)) {
        invalid(n, E2005, "%s queries and %s keys", dim_text(x, l->q.length),
                dim_text(x, l->k.length));
        return false;
    }
    Attention fits = {.q = l->q, .k = l->k, .v = l->v};
    l->heads = l->q.heads;
    if (l->ms && q_heads < heads) l->heads = heads;
    bool divide = l->heads % q_heads == 0 && l->heads % heads == 0 && heads % k_heads == 0;
    if (l->ms && divide) { /* as if they were as many as attention has */
        fits.q.heads = l->heads;
        fits.k.heads = heads;
    }
    return attention_check(n, &fits);
}

static void linear_attention(Node *n, bool ms) {
    Graph *g = n->g;
    Value *q = node_need(n, 0), *k = node_need(n, 1), *v = node_need(n, 2), *past = node_in(n, 3);
    int rule = attr_choice(n, "update_rule", 3, "linear gated delta gated_delta");
    if (!q || !k || !v || n->failed) return;
    bool gated = rule & 1, delta = rule >> 1;
    Linear l = {.work = DT_f32, .ms = ms, .scale = attr_float(n, "scale", 0)};
    if (n->failed || !linear_heads(n, &l, q, k, v)) return;
    int64_t heads = l.v.heads;
    Value *beta = node_in(n, 5);
    /* one for each head, or one for all */
    int64_t last = beta && beta->rank == 3 ? beta->dims[2] : heads;
    int64_t beta_heads = last == 1 || dim_varies(last) ? last : heads;
    if (!linear_gate(n, &l, 4, gated, heads, "decay", &l.decay) ||
        !linear_gate(n, &l, 5, delta, beta_heads, "beta", &l.beta))
        return;
    if (l.decay.v) dim_claim(n->x, CLAIM_broadcast, l.decay.size, l.k.size);
    if ((l.decay.v && !dim_can_meet(n->x, l.decay.size, 1) &&
         !dim_can_meet(n->x, l.decay.size, l.k.size)) ||
        (l.beta.v && !dim_meets(n->x, l.beta.size, 1))) {
        invalid(n, E2005, "decay or beta has a wrong last dimension");
        return;
    }
    int64_t shape[4] = {l.k.batch, heads, l.k.size, l.v.size};
    int64_t flat[3] = {l.q.batch, l.q.length, dim_mul(n->x, l.heads, l.v.size)};
    if (!node_shape_ok(n, 4, shape) || !node_shape_ok(n, 3, flat)) return;
    if (past && !dims_meet(n->x, past->rank, past->dims, 4, shape)) {
        invalid(n, E2005, "past_state has shape %s, expected %s",
                shape_text(g->arena, past->rank, past->dims), shape_text(g->arena, 4, shape));
        return;
    }
    Value *state = past ? g_cast(g, past, l.work) : g_expand(g, g_scalar(g, l.work, 0), 4, shape);
    n->out[0] = linear_result(n, &l, &state, q->dt, 3, flat);
    n->out[1] = g_cast(g, state, past ? past->dt : q->dt);
}

void import_linear_attention(Node *n) {
    linear_attention(n, false);
}

/* How many heads keys have follows from the size of a query's. */
void import_ms_linear_attention(Node *n) {
    Value *q = node_need(n, 0), *k = node_need(n, 1);
    if (!q || !k) return;
    bool varies =
        q->rank == 3 && k->rank == 3 && (dim_varies(q->dims[2]) || dim_varies(k->dims[2]));
    if (varies || attr_int(n, "state_window", 0))
        unsupported(n, "a state_window, and queries and keys of a size that varies");
    else
        linear_attention(n, true);
}

/* --- GatedDeltaNet ---------------------------------------------------------------------------- */

/* As heads in the shape [batch, length, heads, size]. */
static Heads heads_of_tokens(Graph *g, Value *v, const int64_t *shape) {
    return (Heads){g_reshape(g, v, 4, shape), true, shape[0], shape[2], shape[1], shape[3]};
}

/* v, [tokens, heads, size] or [batch, length, heads, size], in the last form, which is `shape`; a
 * size of 1 may be missing. Its first `lead` dimensions are the query's. False after a report. */
static bool token_heads(Node *n, Value *v, int lead, const int64_t *shape, Heads *out) {
    Exprs *x = n->x;
    int behind = v->rank - lead; /* dimensions: heads, and size */
    bool fits = (behind == 2 || (behind == 1 && shape[3] == 1)) &&
                dims_meet(x, lead, v->dims, lead, node_in(n, 0)->dims) &&
                dims_meet(x, behind, v->dims + lead, behind, shape + 2) &&
                dim_meets(x, dim_product(x, v->rank, v->dims), dim_product(x, 4, shape));
    if (fits) {
        *out = heads_of_tokens(n->g, v, shape);
        return true;
    }
    invalid(n, E2005, "shape %s for tokens and heads %s", shape_of(n, v),
            shape_text(n->g->arena, 4, shape));
    return false;
}

/* Query, key and value, which lie side by side in the first input if there are no others. The state
 * is [batch, heads, value size, key size]. False after a report. */
static bool delta_net_inputs(Node *n, const Value *state, Linear *l) {
    Exprs *x = n->x;
    Graph *g = n->g;
    Value *part[3] = {node_need(n, 0), node_in(n, 1), node_in(n, 2)}, *q = part[0];
    bool joined = !part[1] && !part[2];
    if (!q || (!joined && (!node_need(n, 1) || !node_need(n, 2)))) return false;
    int lead = q->rank - (joined ? 1 : 2); /* tokens, or batch and length */
    static const int64_t none[4] = {0};
    const int64_t *d = state->rank == 4 ? state->dims : none, size = d[3];
    int64_t wide = lead == 1 || lead == 2 ? q->dims[lead] : 0, heads = wide;
    bool varies = dim_varies(wide) || dims_vary(3, d + 1) ||
                  (lead == 1 && dim_varies(d[0]) && !dim_varies(q->dims[0]));
    if (varies) {
        unsupported(n, "heads that vary, and a batch that varies of tokens that do not");
        return false;
    }
    if (joined && size > 0) heads = (wide - d[1] * d[2]) / (2 * size);
    bool whole = !joined || 2 * heads * size + d[1] * d[2] == wide;
    bool some = wide > 0 && size > 0 && dim_max(x, d[0]) > 0 && state->dt == DT_f32;
    if (!some || heads < 1 || d[1] % heads || !whole) {
        invalid(n, E2005, "a query of shape %s for a state of shape %s", shape_of(n, q),
                shape_of(n, state));
        return false;
    }
    int64_t length = lead == 2 ? q->dims[1] : dim_div(x, q->dims[0], d[0]);
    const int64_t shapes[3][4] = {
        {d[0], length, heads, size}, {d[0], length, heads, size}, {d[0], length, d[1], d[2]}};
    Heads *to[3] = {&l->q, &l->k, &l->v};
    int64_t flat[3] = {d[0], length, wide}, start[3] = {0}, step[3] = {1, 1, 1};
    if (joined && !dim_meets(x, dim_product(x, 3, flat), dim_product(x, q->rank, q->dims))) {
        invalid(n, E2005, "a query of shape %s for a batch of %s", shape_of(n, q),
                dim_text(x, d[0]));
        return false;
    }
    if (joined) q = g_reshape(g, q, 3, flat);
    for (int i = 0; i < 3; i++) {
        flat[2] = shapes[i][2] * shapes[i][3];
        if (joined)
            *to[i] = heads_of_tokens(g, g_slice(g, q, start, step, flat), shapes[i]);
        else if (!token_heads(n, part[i], lead, shapes[i], to[i]))
            return false;
        start[2] += flat[2];
    }
    return true;
}

/* decay and beta, inputs 4 and 5, with their activations: one number for each head of a token, or
 * one for each element of its keys. lead: dimensions that tokens have. False after a report. */
static bool delta_net_gates(Node *n, bool gated, bool delta, int lead, Linear *l) {
    Graph *g = n->g;
    int qwen = attr_choice(n, "gate_activation", 0, "none qwen"),
        sigmoid = attr_choice(n, "beta_activation", 0, "none sigmoid");
    int64_t shape[4] = {l->v.batch, l->v.length, l->v.heads, 1}, each[2] = {l->v.heads, 1};
    Value *part[3];
    if (n->failed) return false;
    if ((node_in(n, 4) && !gated) || (node_in(n, 5) && !delta)) {
        unsupported(n, "decay or beta that the update rule does not take");
        return false;
    }
    if (delta) {
        Value *beta = node_need(n, 5);
        if (!beta || !token_heads(n, beta, lead, shape, &l->beta)) return false;
        if (sigmoid) l->beta.v = node_formula(n, "1 / (1 + exp(-a))", 1, &l->beta.v);
    }
    if (!gated) return true;
    Value *decay = node_need(n, 4);
    if (!decay) return false;
    if (decay->rank == lead + 2) shape[3] = l->k.size;
    if (!token_heads(n, decay, lead, shape, &l->decay)) return false;
    if (!qwen) return true;
    part[0] = l->decay.v;
    for (int i = 1; i < 3; i++) {
        if (!(part[i] = node_need(n, 6 + i))) return false;
        if (part[i]->rank != 1 || !dim_meets(n->x, part[i]->dims[0], each[0])) {
            invalid(n, E2005, "input %d of shape %s for %s heads", 6 + i, shape_of(n, part[i]),
                    dim_text(n->x, each[0]));
            return false;
        }
        part[i] = g_reshape(g, part[i], 2, each);
    }
    l->decay.v = node_formula(n, "-exp(b) * " SOFTPLUS("(a + c)"), 3, part);
    return l->decay.v != NULL;
}

/* The same with tokens in one dimension, and heads of values that share those of queries and keys.
 * The state is turned, and f32. */
void import_ms_gated_delta_net(Node *n) {
    static const int turned[4] = {0, 1, 3, 2};
    Graph *g = n->g;
    Value *q = node_need(n, 0), *past = node_in(n, 6);
    int rule = attr_choice(n, "update_rule", 3, "linear gated delta gated_delta");
    Linear l = {.work = DT_f32, .scale = attr_float(n, "scale", 0)};
    if (!q || n->failed) return;
    if (!past || node_in(n, 3) || attr_int(n, "qk_l2_norm", 0) ||
        attr_int(n, "state_update_capacity", 0) || node_wants(n, 2)) {
        unsupported(n, "cu_seqlens, no initial_state, qk_l2_norm and state updates");
        return;
    }
    int lead = q->rank - (node_in(n, 1) ? 2 : 1);
    if (!delta_net_inputs(n, past, &l) || !delta_net_gates(n, rule & 1, rule >> 1, lead, &l))
        return;
    l.heads = l.v.heads;
    int64_t shape[4] = {l.v.batch, l.v.length, l.heads, l.v.size}, tokens[3];
    tokens[0] = q->dims[0], tokens[1] = shape[2], tokens[2] = shape[3];
    if (!node_shape_ok(n, 4, shape)) return;
    Value *state = g_transpose(g, past, turned);
    n->out[0] = linear_result(n, &l, &state, q->dt, 2 + lead, lead == 2 ? shape : tokens);
    n->out[1] = g_transpose(g, state, turned);
}

/* --- CausalConvWithState ---------------------------------------------------------------------- */

/* com.microsoft (ms) has channels last, too, in any number of dimensions, and taps apart. */
static void causal_conv(Node *n, bool ms) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *v = node_need(n, 0), *weight = node_need(n, 1), *bias = node_in(n, 2),
          *past = node_in(n, 3);
    bool silu = attr_choice(n, "activation", 0, "none silu swish") > 0; /* one by two names */
    bool last = ms && attr_int(n, "channels_last", 0) != 0;
    int64_t dilation = ms ? attr_int(n, "dilation", 1) : 1;
    if (!v || !weight || n->failed) return;
    int rank = v->rank, along = last ? 1 : 2, across = last ? 2 : 1; /* length and channels */
    int64_t full[MAX_RANK], flat[3] = {0}, channels = 1, kernel = 1;
    bool fits = (last ? rank >= 3 : rank == 3) && dilation >= 1 && dilation <= INT32_MAX &&
                weight->rank == 3 && dim_max(x, weight->dims[2]) >= 1;
    if (fits) {
        channels = last ? dim_product(x, rank - 2, v->dims + 2) : v->dims[1];
        kernel = weight->dims[2];
        for (int i = 0; i < rank; i++) full[i] = v->dims[i];
        full[along] = dim_mul(x, dim_sub(x, kernel, 1), dilation);
        fits = dim_meets(x, weight->dims[0], channels) && dim_meets(x, weight->dims[1], 1);
    }
    if (fits && bias) fits = bias->rank == 1 && dim_meets(x, bias->dims[0], channels);
    if (fits && past) fits = dims_meet(x, past->rank, past->dims, rank, full);
    if (!fits) {
        invalid(n, E2005, "input %s, weight %s, bias and past_state do not fit each other",
                shape_of(n, v), shape_of(n, weight));
        return;
    }
    if (!node_shape_ok(n, rank, full)) return;
    const int64_t *wide = v->dims;
    flat[0] = wide[0], flat[along] = wide[along], flat[across] = channels;
    v = g_reshape(g, v, 3, flat);
    flat[along] = full[along];
    Value *padded;
    if (past) {
        Value *both[2] = {g_reshape(g, past, 3, flat), v};
        padded = g_concat(g, 2, both, along);
    } else {
        int64_t before[3] = {0}, after[3] = {0};
        before[along] = full[along];
        padded = g_pad(g, v, before, after, (Scalar){0});
    }
    DType work = dt_reg(v->dt);
    Builder b = build(g, 3, v->dims);
    const Expr *channel = ex_var(x, across), *r = build_red(&b, kernel);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2)};
    at[along] = ex_add(x, at[along], ex_mul(x, r, ex_i(x, dilation)));
    const Expr *tap[3] = {channel, ex_i(x, 0), r};
    const Expr *product = ex_mul(x, ex_cast(x, work, build_load(&b, padded, at)),
                                 ex_cast(x, work, build_load(&b, weight, tap)));
    const Expr *e = ex_acc(x, work);
    if (bias) e = ex_add(x, e, ex_cast(x, work, build_load(&b, bias, &channel)));
    if (silu) {
        /* the activation is of the rounded sum */
        e = ex_cast(x, work, ex_cast(x, v->dt, e));
        const Expr *one = ex_num(x, work, 1);
        e = ex_div(x, e, ex_add(x, one, ex_un(x, EX_exp, ex_un(x, EX_neg, e))));
    }
    n->out[0] = g_reshape(g, build_reduce(&b, v->dt, COMBINE_sum, product, e), rank, wide);
    int64_t start[3] = {0}, step[3] = {1, 1, 1};
    start[along] = dim_sub(x, padded->dims[along], full[along]);
    n->out[1] = g_reshape(g, g_slice(g, padded, start, step, flat), rank, full);
}

void import_causal_conv_with_state(Node *n) {
    causal_conv(n, false);
}

void import_ms_causal_conv_with_state(Node *n) {
    if (attr_int(n, "ndim", 1) != 1 || attr_int(n, "state_window", 0))
        unsupported(n, "more than one spatial dimension, and a state_window");
    else
        causal_conv(n, true);
}
