/* Fused operators of com.microsoft, which optimised exports carry: activations, normalisations with
 * a residual, matrix products. Attention is in ops_attention_ms.c, quantisation in ops_quant_ms.c.
 */
#include "compiler/onnx/quant.h"
#include "compiler/onnx/window.h"

#include <string.h>

static DType work_type(DType dt) {
    return dt == DT_f64 ? DT_f64 : DT_f32;
}

/* The node as one of ai.onnx in its newest version, for import functions that serve both. */
static Node as_onnx(const Node *n) {
    Node copy = *n;
    copy.domain = "";
    copy.version = INT32_MAX;
    return copy;
}

/* --- activations ------------------------------------------------------------------------------ */

#define GELU_ERF "0.5 * (%s) * (1 + erf((%s) * 0.7071067811865476))"
#define GELU_TANH                                                                                  \
    "0.5 * (%s) * (1 + tanh((%s) * (0.7978845608028654 + 0.035677408136300125 * "                  \
    "(%s) * (%s))))"

void import_ms_gelu(Node *n) {
    Value *v = node_need(n, 0);
    if (v) n->out[0] = node_formula(n, "0.5 * a * (1 + erf(a * 0.7071067811865476))", 1, &v);
}

void import_ms_bias_gelu(Node *n) {
    Value *v[2] = {node_need(n, 0), node_need(n, 1)};
    const char *formula = arena_printf(n->g->arena, GELU_ERF, "a + b", "a + b");
    if (v[0] && v[1]) n->out[0] = node_formula(n, formula, 2, v);
}

/* Of v and a bias, which may be NULL. */
static Value *fast_gelu(Node *n, Value *v, Value *bias) {
    Value *parts[2] = {v, bias};
    const char *e = bias ? "a + b" : "a";
    const char *formula = arena_printf(n->g->arena, GELU_TANH, e, e, e, e);
    return node_formula(n, formula, bias ? 2 : 1, parts);
}

void import_ms_fast_gelu(Node *n) {
    Value *v = node_need(n, 0);
    if (v) n->out[0] = fast_gelu(n, v, node_in(n, 1));
}

void import_ms_quick_gelu(Node *n) {
    Value *v = node_need(n, 0);
    double alpha = attr_float(n, "alpha", 1.702f);
    const char *formula = arena_printf(n->g->arena, "a / (1 + exp(-(%.9g) * a))", alpha);
    if (v) n->out[0] = node_formula(n, formula, 1, &v);
}

/* The activation that fused operators name; v itself for none. NULL after a report. p: parameters.
 */
static Value *activate(Node *n, Value *v, const char *name, const double *p) {
    Arena *arena = n->g->arena;
    const char *formula = NULL;
    if (!*name) return v;
    if (!strcmp(name, "Relu"))
        formula = "max(a, 0)";
    else if (!strcmp(name, "Tanh"))
        formula = "tanh(a)";
    else if (!strcmp(name, "Sigmoid"))
        formula = "1 / (1 + exp(-a))";
    else if (!strcmp(name, "LeakyRelu"))
        formula = arena_printf(arena, "select(a < 0, (%.9g) * a, a)", p[0]);
    else if (!strcmp(name, "Clip"))
        formula = arena_printf(arena, "min(max(a, (%.9g)), (%.9g))", p[0], p[1]);
    else if (!strcmp(name, "HardSigmoid"))
        formula = arena_printf(arena, "max(0, min(1, (%.9g) * a + (%.9g)))", p[0], p[1]);
    if (formula) return node_formula(n, formula, 1, &v);
    unsupported(n, "activation '%s'", name);
    return NULL;
}

/* --- normalisation ---------------------------------------------------------------------------- */

typedef struct Norm {
    Value *mean, *inverse; /* with the normalised axes as 1, in the working type */
    Value *even;           /* normalised */
} Norm;

/* Over the axes from `axis` on. simple: only divided by the root of the mean square. */
static Norm normalize(Graph *g, Value *v, int axis, double epsilon, bool simple) {
    DType work = work_type(v->dt);
    uint32_t axes = 0;
    for (int i = axis; i < v->rank; i++) axes |= 1u << i;
    Norm m = {0};
    Value *wide = g_cast(g, v, work);
    Value *size = g_dim(g, work, dim_product(g->x, v->rank - axis, v->dims + axis));
    if (!simple) {
        m.mean = g_bin(g, EX_div, g_reduce(g, COMBINE_sum, wide, axes, true), size);
        wide = g_bin(g, EX_sub, wide, m.mean);
    }
    Value *squares = g_reduce(g, COMBINE_sum, g_bin(g, EX_mul, wide, wide), axes, true);
    static const char *const names[] = {"s", "count", "epsilon"};
    Value *parts[3] = {squares, size, g_scalar(g, work, epsilon)};
    m.inverse = g_formula(g, "1 / sqrt(s / count + epsilon)", 3, names, parts);
    m.even = g_bin(g, EX_mul, wide, m.inverse);
    return m;
}

/* even * scale + shift (which may be NULL), in `dt`. */
static Value *scaled(Graph *g, Value *even, Value *scale, Value *shift, DType dt) {
    even = g_bin(g, EX_mul, even, g_cast(g, scale, even->dt));
    if (shift) even = g_bin(g, EX_add, even, g_cast(g, shift, even->dt));
    return g_cast(g, even, dt);
}

/* A vector as long as v's last dimension. */
static bool is_row(Node *n, const Value *row, const Value *v) {
    if (!row ||
        (row->rank == 1 && v->rank > 0 && dim_meets(n->x, row->dims[0], v->dims[v->rank - 1])))
        return true;
    invalid(n, E2005, "a vector of shape %s for %s", shape_text(n->g->arena, row->rank, row->dims),
            shape_text(n->g->arena, v->rank, v->dims));
    return false;
}

static void skip_normalization(Node *n, bool simple) {
    Graph *g = n->g;
    Value *v = node_need(n, 0), *skip = node_need(n, 1), *gamma = node_need(n, 2);
    Value *beta = simple ? NULL : node_in(n, 3), *bias = node_in(n, simple ? 3 : 4);
    if (!v || !skip || !gamma) return;
    if (v->rank < 2 || !dt_is_float(v->dt)) {
        invalid(n, E2005, "the input is %s%s", dt_name(v->dt),
                shape_text(g->arena, v->rank, v->dims));
        return;
    }
    if (!is_row(n, gamma, v) || !is_row(n, beta, v) || !is_row(n, bias, v)) return;
    Value *parts[3] = {v, skip, bias};
    Value *sum = node_formula(n, bias ? "a + b + c" : "a + b", bias ? 3 : 2, parts);
    if (!sum) return;
    if (!dims_meet(n->x, sum->rank, sum->dims, v->rank, v->dims)) {
        invalid(n, E2005, "the skip input is larger than the input");
        return;
    }
    Norm m = normalize(g, sum, v->rank - 1, attr_float(n, "epsilon", 1e-12f), simple);
    n->out[0] = scaled(g, m.even, gamma, beta, v->dt);
    if (node_wants(n, 1) && m.mean) n->out[1] = m.mean;
    if (node_wants(n, 2)) n->out[2] = m.inverse;
    n->out[3] = sum;
}

void import_ms_skip_layer_normalization(Node *n) {
    skip_normalization(n, false);
}

void import_ms_skip_simplified_layer_normalization(Node *n) {
    skip_normalization(n, true);
}

void import_ms_simplified_layer_normalization(Node *n) {
    Value *v = node_need(n, 0), *scale = node_need(n, 1);
    if (!v || !scale) return;
    int axis = node_axis(n, attr_int(n, "axis", -1), v->rank), rank;
    int64_t shape[MAX_RANK];
    if (axis < 0) return;
    if (!shape_broadcast(n->x, v->rank, v->dims, scale->rank, scale->dims, &rank, shape) ||
        !dims_meet(n->x, rank, shape, v->rank, v->dims)) {
        invalid(n, E2005, "a scale of shape %s for %s",
                shape_text(n->g->arena, scale->rank, scale->dims),
                shape_text(n->g->arena, v->rank, v->dims));
        return;
    }
    Norm m = normalize(n->g, v, axis, attr_float(n, "epsilon", 1e-5f), true);
    n->out[0] = scaled(n->g, m.even, scale, NULL, scale->dt);
    n->out[1] = m.inverse;
}

/* --- biases ----------------------------------------------------------------------------------- */

void import_ms_bias_add(Node *n) {
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_need(n, 2)};
    if (!v[0] || !v[1] || !v[2] || !is_row(n, v[1], v[0])) return;
    if (!dims_meet(n->x, v[0]->rank, v[0]->dims, v[2]->rank, v[2]->dims)) {
        invalid(n, E2005, "a skip input of shape %s for %s",
                shape_text(n->g->arena, v[2]->rank, v[2]->dims),
                shape_text(n->g->arena, v[0]->rank, v[0]->dims));
        return;
    }
    n->out[0] = node_formula(n, "a + b + c", 3, v);
}

/* The left half of the input with its bias times gelu of the right half. */
void import_ms_bias_split_gelu(Node *n) {
    Graph *g = n->g;
    Value *v = node_need(n, 0), *bias = node_need(n, 1), *half[4];
    if (!v || !bias || !is_row(n, bias, v)) return;
    int last = v->rank - 1;
    int64_t all = v->dims[last], start[MAX_RANK] = {0}, step[MAX_RANK], size[MAX_RANK];
    if (dim_varies(all) || all % 2) {
        unsupported(n, "a hidden size of %s", dim_text(n->x, all));
        return;
    }
    for (int i = 0; i <= last; i++) step[i] = 1, size[i] = i == last ? all / 2 : v->dims[i];
    for (int i = 0; i < 2; i++) {
        start[last] = i ? all / 2 : 0;
        half[2 * i] = g_slice(g, v, start, step, size);
        half[2 * i + 1] = g_slice(g, bias, start + last, step, size + last);
    }
    const char *formula = arena_printf(g->arena, "(a + b) * (" GELU_ERF ")", "c + d", "c + d");
    n->out[0] = node_formula(n, formula, 4, half);
}

/* softmax(v + bias) over the axes from `axis` on. The bias has v's dimensions, some of them 1
 * (inner broadcast), or the last of them. */
void import_ms_bias_softmax(Node *n) {
    Value *v[2] = {node_need(n, 0), node_need(n, 1)};
    if (!v[0] || !v[1]) return;
    int axis = node_axis(n, attr_int(n, "axis", 1), v[0]->rank), rank = v[1]->rank;
    if (axis < 0) return;
    bool inner = attr_int(n, "is_inner_broadcast", 0) != 0, fits = rank <= v[0]->rank;
    if (inner) fits = rank == v[0]->rank;
    bool ones = !inner; /* so far all dimensions are broadcast */
    for (int i = 0; i < rank && fits; i++) {
        int64_t d = v[1]->dims[i];
        ones = ones && d == 1;
        if (ones || (inner && i < axis && d == 1)) continue;
        fits = dim_meets(n->x, d, v[0]->dims[v[0]->rank - rank + i]);
    }
    if (!fits) {
        unsupported(n, "a bias of shape %s for %s", shape_text(n->g->arena, rank, v[1]->dims),
                    shape_text(n->g->arena, v[0]->rank, v[0]->dims));
        return;
    }
    uint32_t axes = 0;
    for (int i = axis; i < v[0]->rank; i++) axes |= 1u << i;
    Value *sum = node_formula(n, "a + b", 2, v);
    if (sum) n->out[0] = g_softmax(n->g, sum, axes, false);
}

/* In inference nothing is dropped. */
void import_ms_bias_dropout(Node *n) {
    Graph *g = n->g;
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_in(n, 2)}, *training = node_in(n, 4);
    if (!v[0] || !v[1]) return;
    Scalar on = {.i = 0};
    if (training && (!value_known(g, training, &on) || on.i)) {
        unsupported(n, "training");
        return;
    }
    bool row = v[1]->rank == 1 && v[0]->rank > 1;
    if (row && !is_row(n, v[1], v[0])) return;
    if (!row && !dims_meet(n->x, v[0]->rank, v[0]->dims, v[1]->rank, v[1]->dims)) {
        invalid(n, E2005, "a bias of shape %s for %s", shape_text(g->arena, v[1]->rank, v[1]->dims),
                shape_text(g->arena, v[0]->rank, v[0]->dims));
        return;
    }
    if (v[2] && !dims_meet(n->x, v[0]->rank, v[0]->dims, v[2]->rank, v[2]->dims)) {
        invalid(n, E2005, "a residual of shape %s for %s",
                shape_text(g->arena, v[2]->rank, v[2]->dims),
                shape_text(g->arena, v[0]->rank, v[0]->dims));
        return;
    }
    n->out[0] = node_formula(n, v[2] ? "a + b + c" : "a + b", v[2] ? 3 : 2, v);
    if (node_wants(n, 1)) n->out[1] = g_expand(g, g_scalar(g, DT_bool, 1), v[0]->rank, v[0]->dims);
}

/* --- embedding -------------------------------------------------------------------------------- */

/* A table of floats, or of bytes: (v - zero) * scale, scalars. */
typedef struct Table {
    Value *v, *scale, *zero;
} Table;

/* Row `at` (any integer type) of a table, clamped to the rows there are. */
static const Expr *table_load(Builder *b, const Table *t, const Expr *at, const Expr *column) {
    Exprs *x = b->x;
    const Expr *last = ex_int(x, DT_i64, t->v->dims[0] - 1), *zero = ex_int(x, DT_i64, 0);
    at = ex_bin(x, EX_max, ex_bin(x, EX_min, ex_cast(x, DT_i64, at), last), zero);
    const Expr *index[2] = {ex_cast(x, DT_i32, at), column};
    const Expr *e = build_load(b, t->v, index);
    if (!t->scale) return ex_cast(x, work_type(t->v->dt), e);
    e = ex_sub(x, ex_cast(x, DT_i32, e), ex_cast(x, DT_i32, build_in(b, t->zero)));
    return ex_mul(x, ex_cast(x, DT_f32, e), build_in(b, t->scale));
}

static bool is_table(Node *n, const Table *t, int64_t hidden) {
    const Value *v = t->v;
    if (v->rank == 2 && dim_meets(n->x, v->dims[1], hidden) && dim_max(n->x, v->dims[0]) > 0 &&
        (t->scale || dt_is_float(v->dt)))
        return true;
    invalid(n, E2005, "an embedding of shape %s, for %s columns",
            shape_text(n->g->arena, v->rank, v->dims), dim_text(n->x, hidden));
    return false;
}

static bool is_ids(Node *n, const Value *v, const Value *ids, bool may_be_one) {
    bool fits = v->rank == 2 && ids->rank == 2 && dim_meets(n->x, v->dims[1], ids->dims[1]) &&
                (dim_meets(n->x, v->dims[0], ids->dims[0]) || (may_be_one && v->dims[0] == 1));
    if (fits && dt_is_int(v->dt)) return true;
    invalid(n, E2005, "ids of shape %s beside %s", shape_text(n->g->arena, v->rank, v->dims),
            shape_text(n->g->arena, ids->rank, ids->dims));
    return false;
}

/* What is looked up and normalised; segments, kinds.v, mask and places may be NULL. */
typedef struct Embedding {
    Table words, positions, kinds;
    Value *ids, *segments, *gamma, *beta, *mask, *places;
} Embedding;

static void embed(Node *n, const Embedding *em) {
    Graph *g = n->g;
    Exprs *x = n->x;
    const Table *words = &em->words, *kinds = em->kinds.v ? &em->kinds : NULL;
    Value *ids = em->ids, *segments = em->segments, *mask = em->mask, *places = em->places;
    int64_t hidden = words->v->rank == 2 ? words->v->dims[1] : 0;
    DType dt = words->scale ? DT_f32 : words->v->dt;
    if (!is_ids(n, ids, ids, false) || !is_table(n, words, hidden) ||
        !is_table(n, &em->positions, hidden) || (segments && !is_ids(n, segments, ids, false)) ||
        (kinds && !is_table(n, kinds, hidden)) || (mask && !is_ids(n, mask, ids, false)) ||
        (places && !is_ids(n, places, ids, true)))
        return;
    int64_t shape[3] = {ids->dims[0], ids->dims[1], hidden};
    if (!node_shape_ok(n, 3, shape)) return;
    Builder b = build(g, 3, shape);
    const Expr *at[2] = {ex_var(x, 0), ex_var(x, 1)}, *column = ex_var(x, 2), *place = at[1];
    if (places) {
        const Expr *own[2] = {build_index(&b, 0, places->dims[0]), at[1]};
        place = build_load(&b, places, own);
    }
    const Expr *e = ex_add(x, table_load(&b, words, build_load(&b, ids, at), column),
                           table_load(&b, &em->positions, place, column));
    if (segments && kinds)
        e = ex_add(x, e, table_load(&b, kinds, build_load(&b, segments, at), column));
    Value *sum = build_map(&b, dt, e);
    if (!is_row(n, em->gamma, sum) || !is_row(n, em->beta, sum)) return;
    Norm m = normalize(g, sum, 2, attr_float(n, "epsilon", 1e-12f), false);
    n->out[0] = scaled(g, m.even, em->gamma, em->beta, dt);
    n->out[2] = sum;
    Value *counts = mask ? g_reduce(g, COMBINE_sum, g_cast(g, mask, DT_i32), 2, false)
                         : g_expand(g, g_scalar(g, DT_i32, 0), 1, shape);
    n->out[1] = counts;
}

void import_ms_embed_layer_normalization(Node *n) {
    Embedding em = {.ids = node_need(n, 0),
                    .segments = node_in(n, 1),
                    .words.v = node_need(n, 2),
                    .positions.v = node_need(n, 3),
                    .kinds.v = node_in(n, 4),
                    .gamma = node_need(n, 5),
                    .beta = node_need(n, 6),
                    .mask = node_in(n, 7),
                    .places = node_in(n, 8)};
    if (em.ids && em.words.v && em.positions.v && em.gamma && em.beta) embed(n, &em);
}

/* The three tables, gamma and beta are quantised: scales are inputs 8 on, zero points 13 on. */
void import_ms_qembed_layer_normalization(Node *n) {
    Table t[5] = {{NULL, NULL, NULL}};
    Value *row[5] = {NULL};
    bool segments = node_in(n, 1) != NULL;
    for (int i = 0; i < 5; i++) {
        if (i == 2 && !segments) {
            if (!node_in(n, 4) && !node_in(n, 10) && !node_in(n, 15)) continue;
            invalid(n, E2007, "of the inputs for segments some are missing");
            return;
        }
        Value *v = node_need(n, 2 + i), *scale = node_need(n, 8 + i), *zero = node_need(n, 13 + i);
        if (!v || !scale || !zero) return;
        if (zero->dt != v->dt || (v->dt != DT_u8 && v->dt != DT_i8) || scale->dt != DT_f32 ||
            !value_single(n, scale) || !value_single(n, zero)) {
            invalid(n, E2006, "input %d is %s, its zero point %s, its scale %s", 2 + i,
                    dt_name(v->dt), dt_name(zero->dt), dt_name(scale->dt));
            return;
        }
        t[i] = (Table){v, g_reshape(n->g, scale, 0, NULL), g_reshape(n->g, zero, 0, NULL)};
        if (i > 2) row[i] = quant_decode(n, v, &(Quant){scale, zero, v->dt});
    }
    Embedding em = {.ids = node_need(n, 0),
                    .segments = node_in(n, 1),
                    .words = t[0],
                    .positions = t[1],
                    .kinds = t[2],
                    .gamma = row[3],
                    .beta = row[4],
                    .mask = node_in(n, 7)};
    if (em.ids) embed(n, &em);
}

/* --- matrix products -------------------------------------------------------------------------- */

/* v with dimension 0 moved before the last (batch), and the last two swapped (last). */
static Value *turned(Graph *g, Value *v, bool batch, bool last) {
    int perm[MAX_RANK];
    for (int i = 0; i < v->rank; i++) perm[i] = i;
    if (v->rank < 2 || (!batch && !last)) return v;
    if (batch) {
        for (int i = 0; i < v->rank - 2; i++) perm[i] = i + 1;
        perm[v->rank - 2] = 0;
    }
    if (last) {
        int swap = perm[v->rank - 2];
        perm[v->rank - 2] = perm[v->rank - 1];
        perm[v->rank - 1] = swap;
    }
    return g_transpose(g, v, perm);
}

void import_ms_fused_matmul(Node *n) {
    Graph *g = n->g;
    Value *a = node_need(n, 0), *b = node_need(n, 1);
    if (!a || !b) return;
    a = turned(g, a, attr_int(n, "transBatchA", 0) != 0, attr_int(n, "transA", 0) != 0);
    b = turned(g, b, attr_int(n, "transBatchB", 0) != 0, attr_int(n, "transB", 0) != 0);
    double alpha = attr_float(n, "alpha", 1);
    if (n->failed) return;
    DType work = work_type(a->dt);
    Value *v = g_matmul(g, a, b, work, alpha == 1 ? a->dt : work);
    if (alpha != 1) v = g_cast(g, g_bin(g, EX_mul, v, g_scalar(g, work, alpha)), a->dt);
    n->out[0] = v;
}

void import_ms_fused_matmul_activation(Node *n) {
    const char *name = attr_str(n, "activation", "");
    bool hard = !strcmp(name, "HardSigmoid");
    const double p[2] = {attr_float(n, "activation_alpha", hard ? 0.2f : 0.01f),
                         attr_float(n, "activation_beta", hard ? 0.5f : 0)};
    if (!n->failed && (!*name || !strcmp(name, "Clip"))) unsupported(n, "activation '%s'", name);
    if (n->failed) return;
    import_ms_fused_matmul(n);
    if (!n->failed && n->out[0]) n->out[0] = activate(n, n->out[0], name, p);
}

void import_ms_gemm_fast_gelu(Node *n) {
    Value *a = node_need(n, 0), *b = node_need(n, 1), *bias = node_in(n, 2);
    if (!a || !b) return;
    Value *v = import_as(n, import_matmul, 13, 2, (Value *[]){a, b});
    if (v && is_row(n, bias, v)) n->out[0] = fast_gelu(n, v, bias);
}

void import_ms_fused_gemm(Node *n) {
    Node plain = as_onnx(n);
    import_gemm(&plain);
    n->failed = plain.failed;
    const double p[2] = {attr_float(n, "activation_alpha", 0.01f),
                         attr_float(n, "activation_beta", 0)};
    if (!n->failed && n->out[0])
        n->out[0] = activate(n, n->out[0], attr_str(n, "activation", ""), p);
}

/* FusedConv, NhwcConv, NhwcFusedConv: those with Nhwc have channels last, but for the weights. */
void import_ms_fused_conv(Node *n) {
    bool last = !strncmp(n->op, "Nhwc", 4);
    Value *in[3] = {node_need(n, 0), node_in(n, 1), node_in(n, 2)}, *added = node_in(n, 3);
    if (!in[0]) return;
    if (last) in[0] = channels_second(n->g, in[0]);
    Value *v = import_as(n, import_conv, INT32_MAX, 3, in);
    if (!v) return;
    if (last) v = channels_last(n->g, v);
    int count;
    const float *given = attr_floats(n, "activation_params", &count);
    const double p[2] = {count > 0 ? (double)given[0] : 0.01, count > 1 ? (double)given[1] : 0};
    if (n->failed) return;
    Value *sum[2] = {v, added};
    if (added && !dims_meet(n->x, added->rank, added->dims, v->rank, v->dims)) {
        invalid(n, E2005, "%s are added to a result of shape %s",
                shape_text(n->g->arena, added->rank, added->dims),
                shape_text(n->g->arena, v->rank, v->dims));
        return;
    }
    if (added) v = node_formula(n, "a + b", 2, sum);
    if (v) n->out[0] = activate(n, v, attr_str(n, "activation", ""), p);
}

/* --- weights of few bits ---------------------------------------------------------------------- */

const Expr *packed_load(Builder *b, Value *v, const Expr **index, const Expr *at, int bits) {
    Exprs *x = b->x;
    int each = 8 / bits;
    index[v->rank - 1] = ex_div(x, at, ex_i(x, each));
    const Expr *byte = ex_cast(x, DT_u32, build_load(b, v, index));
    const Expr *part = ex_bin(x, EX_rem, at, ex_i(x, each));
    const Expr *shift = ex_cast(x, DT_u32, ex_mul(x, part, ex_i(x, bits)));
    return ex_bin(x, EX_band, ex_bin(x, EX_shr, byte, shift), ex_int(x, DT_u32, (1 << bits) - 1));
}

static bool bits_ok(Node *n, int64_t bits, int64_t block) {
    bool power = block >= 2 && block <= (1 << 20) && (block & (block - 1)) == 0;
    if ((bits == 2 || bits == 4 || bits == 8) && power) return true;
    if (power)
        unsupported(n, "weights of %lld bits; 2, 4 and 8 are supported", (long long)bits);
    else
        invalid(n, E2004, "attribute 'block_size' is %lld", (long long)block);
    return false;
}

/* v as [rows, columns]; NULL after a report if it does not have as many elements. */
static Value *as_matrix(Node *n, Value *v, int64_t rows, int64_t columns, const char *what) {
    int64_t shape[2] = {rows, columns};
    int64_t count = dim_product(n->x, v->rank, v->dims);
    if (dim_meets(n->x, count, rows * columns)) return g_reshape(n->g, v, 2, shape);
    invalid(n, E2005, "%s has shape %s, expected %lld by %lld", what,
            shape_text(n->g->arena, v->rank, v->dims), (long long)rows, (long long)columns);
    return NULL;
}

void import_ms_matmul_n_bits(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *a = node_need(n, 0), *packed = node_need(n, 1), *scales = node_need(n, 2),
          *zeros = node_in(n, 3), *bias = node_in(n, 5);
    int64_t columns = attr_int(n, "N", 0), depth = attr_int(n, "K", 0),
            bits = attr_int(n, "bits", 4), block = attr_int(n, "block_size", 128);
    if (!a || !packed || !scales || n->failed || !bits_ok(n, bits, block)) return;
    if (node_in(n, 4)) {
        unsupported(n, "the input g_idx");
        return;
    }
    if (columns < 1 || depth < 1 || columns > INT32_MAX || depth > INT32_MAX || a->rank < 1 ||
        !dim_meets(n->x, a->dims[a->rank - 1], depth) || !dt_is_float(a->dt)) {
        invalid(n, E2005, "an input of shape %s for K %lld and N %lld",
                shape_text(g->arena, a->rank, a->dims), (long long)depth, (long long)columns);
        return;
    }
    int64_t blocks = (depth + block - 1) / block, blob = block * bits / 8;
    packed = as_matrix(n, packed, columns, blocks * blob, "the weights");
    scales = as_matrix(n, scales, columns, blocks, "the scales");
    if (!packed || !scales) return;
    bool packed_zeros = zeros && zeros->dt == DT_u8;
    if (zeros)
        zeros = as_matrix(n, zeros, columns, packed_zeros ? (blocks * bits + 7) / 8 : blocks,
                          "the zero points");
    bool right = !bias || dim_meets(n->x, dim_product(x, bias->rank, bias->dims), columns);
    if (n->failed || !right) {
        if (!n->failed)
            invalid(n, E2005, "the bias does not have %lld numbers", (long long)columns);
        return;
    }
    int64_t shape[MAX_RANK];
    for (int i = 0; i < a->rank; i++) shape[i] = i == a->rank - 1 ? columns : a->dims[i];
    if (!node_shape_ok(n, a->rank, shape)) return;
    DType work = work_type(a->dt);
    Builder b = build(g, a->rank, shape);
    const Expr *row = ex_var(x, a->rank - 1), *k, *at_block, *index[MAX_RANK];
    if (depth % block == 0) {
        at_block = build_red(&b, blocks);
        k = ex_add(x, ex_mul(x, at_block, ex_i(x, block)), build_red(&b, block));
    } else {
        k = build_red(&b, depth);
        at_block = ex_div(x, k, ex_i(x, block));
    }
    const Expr *place[2] = {row, NULL}, *block_place[2] = {row, at_block};
    const Expr *w = ex_cast(x, work, packed_load(&b, packed, place, k, (int)bits));
    const Expr *zero = ex_num(x, work, (double)(1 << (bits - 1)));
    if (packed_zeros)
        zero = ex_cast(x, work, packed_load(&b, zeros, place, at_block, (int)bits));
    else if (zeros)
        zero = ex_cast(x, work, build_load(&b, zeros, block_place));
    const Expr *scale = ex_cast(x, work, build_load(&b, scales, block_place));
    for (int i = 0; i < a->rank; i++) index[i] = i == a->rank - 1 ? k : ex_var(x, i);
    const Expr *e =
        ex_mul(x, ex_cast(x, work, build_load(&b, a, index)), ex_mul(x, ex_sub(x, w, zero), scale));
    const Expr *post = ex_acc(x, work);
    if (bias) {
        const int64_t flat[1] = {columns};
        post = ex_add(x, post, ex_cast(x, work, build_load(&b, g_reshape(g, bias, 1, flat), &row)));
    }
    n->out[0] = build_reduce(&b, a->dt, COMBINE_sum, e, post);
}

/* The numbers that 4 bits stand for: FP4 (sign, and a float of 3 bits) and NF4 (the quantiles of a
 * normal distribution), as bitsandbytes has them. */
static const float bnb4_values[2][16] = {
    {0, 5.208333333e-03f, 0.66666667f, 1, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f,
     -5.208333333e-03f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
     -0.18477343022823334f, -0.09105003625154495f, 0, 0.07958029955625534f, 0.16093020141124725f,
     0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
     0.7229568362236023f, 1},
};

/* Weights [N, K] as one row of 4 bits each, the high ones first; blocks of the row have scales. */
void import_ms_matmul_bnb4(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *a = node_need(n, 0), *packed = node_need(n, 1), *scales = node_need(n, 2);
    int64_t columns = attr_int(n, "N", 0), depth = attr_int(n, "K", 0),
            block = attr_int(n, "block_size", 0), kind = attr_int(n, "quant_type", -1);
    bool turned_weights = attr_int(n, "transB", 1) != 0;
    if (!a || !packed || !scales || n->failed) return;
    if (block < 16 || block > (1 << 20) || (block & (block - 1)) || kind < 0 || kind > 1) {
        invalid(n, E2004, "block_size %lld and quant_type %lld", (long long)block, (long long)kind);
        return;
    }
    if (columns < 1 || depth < 1 || columns > INT32_MAX / depth) {
        invalid(n, E2004, "K is %lld, N is %lld", (long long)depth, (long long)columns);
        return;
    }
    int64_t sum = turned_weights ? depth : columns, wide = turned_weights ? columns : depth;
    int64_t count = columns * depth, shape[MAX_RANK];
    bool fits =
        a->rank > 0 && dim_meets(x, a->dims[a->rank - 1], sum) && dt_is_float(a->dt) &&
        packed->dt == DT_u8 && scales->dt == a->dt &&
        dim_meets(x, dim_product(x, packed->rank, packed->dims), (count + 1) / 2) &&
        dim_meets(x, dim_product(x, scales->rank, scales->dims), (count + block - 1) / block);
    if (!fits) {
        invalid(n, E2005, "an input of shape %s, weights %s and scales %s for K %lld and N %lld",
                shape_text(g->arena, a->rank, a->dims),
                shape_text(g->arena, packed->rank, packed->dims),
                shape_text(g->arena, scales->rank, scales->dims), (long long)depth,
                (long long)columns);
        return;
    }
    packed = g_reshape(g, packed, 1, (int64_t[]){(count + 1) / 2});
    scales = g_reshape(g, scales, 1, (int64_t[]){(count + block - 1) / block});
    for (int i = 0; i < a->rank; i++) shape[i] = i == a->rank - 1 ? wide : a->dims[i];
    if (!node_shape_ok(n, a->rank, shape)) return;
    Value *values = graph_const(g, DT_f32, 1, (int64_t[]){16}, bnb4_values[kind]);
    DType work = work_type(a->dt);
    Builder b = build(g, a->rank, shape);
    const Expr *own = ex_var(x, a->rank - 1), *k = build_red(&b, sum), *index[MAX_RANK];
    const Expr *row = turned_weights ? own : k, *column = turned_weights ? k : own;
    const Expr *at = ex_add(x, ex_mul(x, row, ex_i(x, depth)), column);
    const Expr *byte_at = ex_div(x, at, ex_i(x, 2)), *block_at = ex_div(x, at, ex_i(x, block));
    const Expr *high = ex_bin(x, EX_eq, ex_bin(x, EX_rem, at, ex_i(x, 2)), ex_i(x, 0));
    const Expr *code = ex_cast(x, DT_i32, build_load(&b, packed, &byte_at));
    code = ex_bin(x, EX_band, ex_bin(x, EX_shr, code, ex_select(x, high, ex_i(x, 4), ex_i(x, 0))),
                  ex_i(x, 15));
    const Expr *w = ex_mul(x, ex_cast(x, work, build_load(&b, values, &code)),
                           ex_cast(x, work, build_load(&b, scales, &block_at)));
    for (int i = 0; i < a->rank; i++) index[i] = i == a->rank - 1 ? k : ex_var(x, i);
    const Expr *e = ex_mul(x, ex_cast(x, work, build_load(&b, a, index)), w);
    n->out[0] = build_reduce(&b, a->dt, COMBINE_sum, e, NULL);
}

/* data[..., indices, ...] as (data - zero point) * scale; rows that do not exist are zeros. */
void import_ms_gather_block_quantized(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *data = node_need(n, 0), *ids = node_need(n, 1), *scales = node_need(n, 2),
          *zeros = node_in(n, 3);
    if (!data || !ids || !scales) return;
    int axis = node_axis(n, attr_int(n, "gather_axis", 0), data->rank),
        along = node_axis(n, attr_int(n, "quantize_axis", 1), data->rank), rank = data->rank;
    int64_t bits = attr_int(n, "bits", 4), block = attr_int(n, "block_size", 128);
    if (axis < 0 || along < 0 || n->failed || !bits_ok(n, bits, block)) return;
    bool bytes = data->dt == DT_u8;
    int64_t each = bytes ? 8 / bits : 1, extent[MAX_RANK], shape[MAX_RANK];
    for (int i = 0; i < rank; i++) extent[i] = dim_mul(x, data->dims[i], i == rank - 1 ? each : 1);
    bool fits = dt_is_int(data->dt) && dt_is_int(ids->dt) && scales->rank == rank &&
                dt_is_float(scales->dt) &&
                (!zeros || (zeros->rank == rank && zeros->dt == data->dt));
    if (bytes && bits < 8) fits = fits && axis != along && axis != rank - 1;
    for (int i = 0; i < rank && fits; i++) {
        int64_t want = extent[i];
        if (i == along) want = dim_div(x, dim_add(x, want, block - 1), block);
        fits = dim_meets(n->x, scales->dims[i], want);
        if (fits && zeros) {
            if (bytes && i == rank - 1) want = dim_div(x, dim_add(x, want, each - 1), each);
            fits = dim_meets(n->x, zeros->dims[i], want);
        }
    }
    int out_rank = rank - 1 + ids->rank;
    if (!fits || out_rank > MAX_TENSOR_RANK) {
        invalid(n, E2005, "data %s%s, indices, scales %s and zero points do not fit each other",
                dt_name(data->dt), shape_text(g->arena, rank, data->dims),
                shape_text(g->arena, scales->rank, scales->dims));
        return;
    }
    for (int i = 0, k = 0; i < rank; i++) {
        for (int j = 0; i == axis && j < ids->rank; j++) shape[k++] = ids->dims[j];
        if (i != axis) shape[k++] = extent[i];
    }
    if (!node_shape_ok(n, out_rank, shape)) return;
    Builder b = build(g, out_rank, shape);
    const Expr *at[MAX_RANK] = {NULL}, *index[MAX_RANK], *id_at[MAX_RANK];
    for (int j = 0; j < ids->rank; j++) id_at[j] = ex_var(x, axis + j);
    const Expr *id = ex_cast(x, DT_i64, build_load(&b, ids, id_at)), *zero64 = ex_int(x, DT_i64, 0);
    const Expr *limit = ex_int(x, DT_i64, extent[axis]);
    id = ex_select(x, ex_lt(x, id, zero64), ex_add(x, id, limit), id);
    const Expr *exists = ex_and(x, ex_le(x, zero64, id), ex_lt(x, id, limit));
    for (int i = 0; i < rank; i++)
        at[i] = i == axis ? ex_cast(x, DT_i32, id) : ex_var(x, i < axis ? i : i + ids->rank - 1);
    DType work = work_type(scales->dt);
    for (int i = 0; i < rank; i++) index[i] = at[i];
    const Expr *e =
        bytes ? packed_load(&b, data, index, at[rank - 1], (int)bits) : build_load(&b, data, index);
    e = ex_cast(x, work, e);
    for (int i = 0; i < rank; i++) index[i] = i == along ? ex_div(x, at[i], ex_i(x, block)) : at[i];
    const Expr *last = index[rank - 1];
    const Expr *scale = ex_cast(x, work, build_load(&b, scales, index));
    const Expr *zero = ex_num(x, work, bytes ? (double)(1 << (bits - 1)) : 0);
    if (zeros) {
        zero =
            bytes ? packed_load(&b, zeros, index, last, (int)bits) : build_load(&b, zeros, index);
        zero = ex_cast(x, work, zero);
    }
    e = ex_mul(x, ex_sub(x, e, zero), scale);
    n->out[0] = build_map(&b, scales->dt, ex_select(x, exists, e, ex_num(x, work, 0)));
}
