/* Mixtures of experts of com.microsoft: MoE, and QMoE, whose weights are integers of few bits.
 *
 * A router chooses k experts for each token, networks of two layers:
 *   h[t, j, f] = activation(sum over i of x[t, i] * w1[e(t, j), f, i] + b1[e(t, j), f])
 *   z[t, j, o] = sum over f of h[t, j, f] * w2[e(t, j), o, f] + b2[e(t, j), o]
 *   y[t, o]    = sum over j of share[t, j] * z[t, j, o]
 * where e(t, j) is the expert that token t has chosen as number j. Bodies load weights at this
 * computed place, so what no token chose is neither computed nor read, and no tokens are sorted.
 */
#include "compiler/onnx/index.h"
#include "compiler/onnx/quant.h"
#include "compiler/onnx/window.h"
#include "ir/few_bits.h"

#include <math.h>
#include <string.h>

/* One layer of all experts. */
typedef struct Layer {
    Value *w;    /* [experts, rows, depth], or packed along the depth */
    Value *bias; /* [experts, rows]; NULL: none */
    int64_t rows, depth;
    int bits;      /* of packed weights, which are (w - zero) * scale; 0: w is not packed */
    Value *scale;  /* [experts, rows], or [experts, rows, blocks] if a row has several */
    Value *zero;   /* the same packed along the last dimension; NULL: half of the range */
    int64_t block; /* columns that share a scale; 0: all */
} Layer;

typedef struct Mixture {
    Value *x; /* [tokens, hidden] */
    int64_t tokens, hidden, experts, k;
    Value *chosen; /* i32[tokens, k] */
    Value *share;  /* [tokens, k], in the working type */
    DType work;
} Mixture;

static bool has_shape(Node *n, const Value *v, int rank, const int64_t *shape, const char *what) {
    if (!v || dims_meet(n->x, v->rank, v->dims, rank, shape)) return true;
    invalid(n, E2005, "%s have shape %s, expected %s", what,
            shape_text(n->g->arena, v->rank, v->dims), shape_text(n->g->arena, rank, shape));
    return false;
}

/* --- routing ---------------------------------------------------------------------------------- */

/* v[t, chosen[t, j]] */
static Value *of_chosen(Node *n, const Mixture *m, Value *v) {
    const int64_t shape[2] = {m->tokens, m->k};
    Builder b = build(n->g, 2, shape);
    const Expr *index[2] = {ex_var(n->x, 0),
                            index_clamp(n->x, build_in(&b, m->chosen), m->experts)};
    return build_map(&b, m->work, ex_cast(n->x, m->work, build_load(&b, v, index)));
}

/* Reads tokens and router. even: shares add up to 1. weights: what shares are taken from, if not
 * the softmax of what the experts are chosen by. */
static bool mixture_read(Node *n, Mixture *m, Value *weights, bool even) {
    Graph *g = n->g;
    Value *x = need_float(n, 0, 2), *router = need_float(n, 1, 2);
    if (!x || !router) return false;
    *m = (Mixture){.tokens = dim_product(n->x, x->rank - 1, x->dims),
                   .hidden = x->dims[x->rank - 1],
                   .experts = router->dims[1],
                   .k = attr_int(n, "k", 1),
                   .work = float_work(x->dt)};
    if (x->rank > 3 || dim_varies(m->hidden) || dim_varies(m->experts)) {
        unsupported(n, "tokens of shape %s and routes of shape %s",
                    shape_text(g->arena, x->rank, x->dims),
                    shape_text(g->arena, router->rank, router->dims));
        return false;
    }
    if (attr_int(n, "use_sparse_mixer", 0)) unsupported(n, "use_sparse_mixer");
    if (n->failed) return false;
    if (m->k < 1 || m->k > m->experts || m->hidden < 1) {
        invalid(n, E2004, "k is %lld of %lld experts, for %lld elements", (long long)m->k,
                (long long)m->experts, (long long)m->hidden);
        return false;
    }
    const int64_t shape[2] = {m->tokens, m->hidden}, routes[2] = {m->tokens, m->experts};
    if (!has_shape(n, router, 2, routes, "the routes") ||
        !has_shape(n, weights, 2, routes, "the router's weights") || !node_shape_ok(n, 2, shape))
        return false;
    m->x = g_reshape(g, x, 2, shape);
    m->chosen = largest_at(n, router, 1, m->k);
    if (!weights) weights = g_softmax(g, g_cast(g, router, m->work), 2, false);
    m->share = of_chosen(n, m, weights);
    if (even) m->share = g_bin(g, EX_div, m->share, g_reduce(g, COMBINE_sum, m->share, 2, true));
    return true;
}

/* --- layers ----------------------------------------------------------------------------------- */

/* Completes a layer and checks its tensors; rows -1: as many as the weights say. */
static bool layer_check(Node *n, const Mixture *m, Layer *l, int64_t rows, int64_t depth,
                        const char *name) {
    Arena *arena = n->g->arena;
    if (l->w->rank != 3 || (l->bits ? l->w->dt != DT_u8 : !dt_is_float(l->w->dt))) {
        invalid(n, E2005, "the weights of %s are %s%s", name, dt_name(l->w->dt),
                shape_text(arena, l->w->rank, l->w->dims));
        return false;
    }
    l->rows = rows < 0 ? l->w->dims[1] : rows;
    l->depth = depth;
    if (dim_varies(l->rows) || l->rows < 1 || depth < 1) {
        unsupported(n, "weights of %s of shape %s", name,
                    shape_text(arena, l->w->rank, l->w->dims));
        return false;
    }
    int bits = l->bits ? l->bits : 8;
    if (depth * bits % 8 || (l->block && (depth % l->block || l->block * bits % 8))) {
        invalid(n, E2005, "%lld columns of %s are no whole number of bytes or blocks",
                (long long)depth, name);
        return false;
    }
    int64_t shape[3] = {m->experts, l->rows, depth * bits / 8};
    if (!has_shape(n, l->w, 3, shape, arena_printf(arena, "the weights of %s", name)) ||
        !has_shape(n, l->bias, 2, shape, arena_printf(arena, "the biases of %s", name)))
        return false;
    if (!l->bits) return true;
    int rank = l->block ? 3 : 2;
    if (l->block) shape[2] = depth / l->block;
    if (!has_shape(n, l->scale, rank, shape, arena_printf(arena, "the scales of %s", name)))
        return false;
    shape[rank - 1] = (shape[rank - 1] * bits + 7) / 8;
    return has_shape(n, l->zero, rank, shape, arena_printf(arena, "the zero points of %s", name));
}

/* Reads one weight: at byte `byte` and place `place` of the row, in block `block`. */
static const Expr *weight_load(Builder *b, const Mixture *m, const Layer *l, const Expr *expert,
                               const Expr *row, const Expr *block, const Expr *place,
                               const Expr *byte) {
    Exprs *x = b->x;
    const Expr *index[3] = {expert, row, byte}, *w = build_load(b, l->w, index);
    if (!l->bits) return ex_cast(x, m->work, w);
    const Expr *zero = ex_num(x, m->work, (double)(1 << (l->bits - 1)));
    if (l->zero) {
        const Expr *at = l->block ? block : row;
        zero = ex_cast(x, m->work, packed_load(b, l->zero, index, at, l->bits));
    }
    index[1] = row, index[2] = block;
    const Expr *scale = ex_cast(x, m->work, build_load(b, l->scale, index));
    return packed_weight(x, w, place, l->bits, zero, scale);
}

/* v (of each token, or of each expert that it chose) times the layer: [tokens, k, rows]. Of bytes
 * that hold several weights all are read for each place anew: they lie side by side. */
static Value *apply(Node *n, const Mixture *m, const Layer *l, Value *v) {
    Exprs *x = n->x;
    const int64_t shape[3] = {m->tokens, m->k, l->rows};
    if (!node_shape_ok(n, 3, shape)) return NULL;
    int64_t each = l->bits ? 8 / l->bits : 1, block = l->block ? l->block : l->depth;
    const FewBits k = {
        .blocks = 1, .rows = l->depth, .bits = l->bits, .beside = true, .work = m->work};
    if (each > 1) v = few_bits_places(n->g, &k, v);
    Builder b = build(n->g, 3, shape);
    const Expr *at[4] = {ex_var(x, 0), ex_var(x, 1)}, *row = ex_var(x, 2), *post = NULL;
    const Expr *expert = index_clamp(x, build_load(&b, m->chosen, at), m->experts);
    const Expr *at_block = reduce_over(&b, l->depth / block), *place = reduce_over(&b, each);
    const Expr *byte =
        ex_add(x, ex_mul(x, at_block, ex_i(x, block / each)), reduce_over(&b, block / each));
    if (!b.n_red) build_red(&b, 1);
    if (each > 1) at[v->rank - 2] = place;
    at[v->rank - 1] = byte;
    const Expr *w = weight_load(&b, m, l, expert, row, at_block, place, byte);
    const Expr *bias_at[2] = {expert, row};
    if (l->bias)
        post = ex_add(x, ex_acc(x, m->work), ex_cast(x, m->work, build_load(&b, l->bias, bias_at)));
    const Expr *e = ex_mul(x, ex_cast(x, m->work, build_load(&b, v, at)), w);
    return build_reduce(&b, m->work, COMBINE_sum, e, post);
}

/* --- the network ------------------------------------------------------------------------------ */

/* `count` elements of the last dimension of v (rank 3), `step` apart. */
static Value *part_of(Node *n, Value *v, int64_t first, int64_t step, int64_t count) {
    const int64_t start[3] = {0, 0, first}, steps[3] = {1, 1, step},
                  counts[3] = {v->dims[0], v->dims[1], count};
    return g_slice(n->g, v, start, steps, counts);
}

/* The product of a gate and what it lets through. */
static Value *swiglu(Node *n, Value *gate, Value *linear) {
    DType dt = gate->dt;
    Value *v[5] = {gate, linear};
    v[2] = g_scalar(n->g, dt, attr_float(n, "activation_alpha", 1));
    v[3] = g_scalar(n->g, dt, attr_float(n, "activation_beta", 0));
    v[4] = g_scalar(n->g, dt, attr_float(n, "swiglu_limit", INFINITY));
    if (!attr_has(n, "swiglu_limit"))
        return node_formula(n, "a / (1 + exp(-(c * a))) * (b + d)", 4, v);
    return node_formula(n,
                        "min(a, e) / (1 + exp(-(c * min(a, e)))) * "
                        "(max(min(b, e), 0 - e) + d)",
                        5, v);
}

static const char *const activations[][2] = {
    {"relu", "max(a, 0)"},
    {"gelu", "0.5 * a * (1 + tanh(a * (0.7978845608028654 + 0.035677408136300125 * a * a)))"},
    {"silu", "a / (1 + exp(-a))"},
    {"identity", "a"},
};

static Value *activate(Node *n, Value *v, const char *name) {
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (!strcmp(name, activations[i][0])) return node_formula(n, activations[i][1], 1, &v);
    invalid(n, E2004, "attribute 'activation_type' is '%s'", name);
    return NULL;
}

/* The experts' layers: first, second, and a third beside the first, whose w is NULL if there is
 * none. */
static void mixture(Node *n, const Mixture *m, Layer layer[3]) {
    Graph *g = n->g;
    const char *name = attr_str(n, "activation_type", "relu");
    int64_t fusion = attr_int(n, "swiglu_fusion", 0);
    bool gated = !strcmp(name, "swiglu"), fused = gated && fusion != 0, third = layer[2].w != NULL;
    if (n->failed) return;
    if (fusion < 0 || fusion > 2 || (gated && fused == third)) {
        invalid(n, E2004, "swiglu_fusion is %lld with%s weights of fc3", (long long)fusion,
                third ? "" : "out");
        return;
    }
    if (!layer_check(n, m, &layer[0], -1, m->hidden, "fc1")) return;
    int64_t inner = layer[0].rows;
    if (fused && inner % 2) {
        invalid(n, E2005, "%lld rows of fc1 are no pairs", (long long)inner);
        return;
    }
    if (fused) inner /= 2;
    if (!layer_check(n, m, &layer[1], m->hidden, inner, "fc2") ||
        (third && !layer_check(n, m, &layer[2], inner, m->hidden, "fc3")))
        return;
    Value *h = apply(n, m, &layer[0], m->x);
    Value *beside = third && h ? apply(n, m, &layer[2], m->x) : NULL;
    if (n->failed) return;
    if (fused) {
        beside = part_of(n, h, fusion == 1 ? 1 : inner, fusion == 1 ? 2 : 1, inner);
        h = part_of(n, h, 0, fusion == 1 ? 2 : 1, inner);
    }
    h = gated ? swiglu(n, h, beside) : activate(n, h, name);
    if (h && third && !gated) h = g_bin(g, EX_mul, h, beside);
    Value *z = h && !n->failed ? apply(n, m, &layer[1], h) : NULL;
    if (!z) return;
    const int64_t per[3] = {m->tokens, m->k, 1};
    Value *y = g_bin(g, EX_mul, z, g_reshape(g, m->share, 3, per));
    y = g_cast(g, g_reduce(g, COMBINE_sum, y, 2, false), n->in[0]->dt);
    n->out[0] = g_reshape(g, y, n->in[0]->rank, n->in[0]->dims);
}

void import_ms_moe(Node *n) {
    Mixture m;
    Layer layer[3] = {{.w = node_need(n, 2), .bias = node_in(n, 3)},
                      {.w = node_need(n, 4), .bias = node_in(n, 5)},
                      {.w = node_in(n, 6), .bias = node_in(n, 7)}};
    bool even = attr_int(n, "normalize_routing_weights", 0) != 0;
    if (layer[0].w && layer[1].w && !n->failed && mixture_read(n, &m, NULL, even))
        mixture(n, &m, layer);
}

/* Without weights of its own a router's shares add up to 1 whatever normalize_routing_weights says:
 * so ONNX Runtime computes it, for whose models this operator is. */
void import_ms_qmoe(Node *n) {
    Mixture m;
    Layer layer[3];
    static const char *const names[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                        "fc3_expert_weight_bits"};
    int64_t bits = attr_int(n, "expert_weight_bits", 4), block = attr_int(n, "block_size", 0);
    bool even = attr_int(n, "normalize_routing_weights", 0) != 0 || !node_in(n, 14);
    if (strcmp(attr_str(n, "quant_type", "int"), "int") != 0) {
        unsupported(n, "quant_type '%s'", attr_str(n, "quant_type", "int"));
        return;
    }
    if (attr_int(n, "weights_prepacked", -1) > 0) {
        unsupported(n, "weights_prepacked");
        return;
    }
    for (int i = 15; i < n->n_in; i++)
        if (node_in(n, i)) {
            unsupported(n, "input %d, which is for weights of floats", i);
            return;
        }
    for (int i = 0; i < 3 && !n->failed; i++) {
        bool third = i == 2;
        Value *w = third ? node_in(n, 8) : node_need(n, 2 + 3 * i);
        Value *scale = w ? node_need(n, 3 + 3 * i) : NULL;
        int64_t own = attr_int(n, names[i], bits);
        if (own != 2 && own != 4 && own != 8) {
            unsupported(n, "weights of %lld bits; 2, 4 and 8 are supported", (long long)own);
            return;
        }
        Value *zero = node_in(n, 11 + i);
        if ((scale && !dt_is_float(scale->dt)) || (zero && zero->dt != DT_u8)) {
            invalid(n, E2006, "scales or zero points of fc%d", i + 1);
            return;
        }
        layer[i] = (Layer){.w = w,
                           .bias = node_in(n, 4 + 3 * i),
                           .bits = (int)own,
                           .scale = scale,
                           .zero = zero,
                           .block = block > 0 ? block : 0};
    }
    if (!n->failed && mixture_read(n, &m, node_in(n, 14), even)) mixture(n, &m, layer);
}
