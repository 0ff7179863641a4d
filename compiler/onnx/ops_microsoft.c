/* Fused operators of com.microsoft, which optimised exports carry: activations, normalisations with
 * a residual, matrix products. Attention is in ops_attention_ms.c, quantisation in ops_quant_ms.c.
 */
#include "compiler/onnx/norm.h"
#include "compiler/onnx/quant.h"
#include "compiler/onnx/window.h"

#include <math.h>
#include <string.h>

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

Norm normalize(Graph *g, Value *v, int axis, double epsilon, bool simple) {
    DType work = float_work(v->dt);
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

Value *norm_scaled(Graph *g, Value *even, Value *scale, Value *shift, DType dt) {
    even = g_bin(g, EX_mul, even, g_cast(g, scale, even->dt));
    if (shift) even = g_bin(g, EX_add, even, g_cast(g, shift, even->dt));
    return g_cast(g, even, dt);
}

bool is_row(Node *n, const Value *row, const Value *v) {
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
    n->out[0] = norm_scaled(g, m.even, gamma, beta, v->dt);
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
    n->out[0] = norm_scaled(n->g, m.even, scale, NULL, scale->dt);
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

/* The mask has a bit for each element; what it has behind the last is not documented. */
void import_ms_bitmask_dropout(Node *n) {
    Value *v = node_need(n, 0), *training = node_in(n, 2);
    Scalar on = {.i = 0};
    if (!v) return;
    if ((training && (!value_known(n->g, training, &on) || on.i)) || node_wants(n, 1)) {
        unsupported(n, "training and the mask");
        return;
    }
    n->out[0] = v;
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
    if (!t->scale) return ex_cast(x, float_work(t->v->dt), e);
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
    n->out[0] = norm_scaled(g, m.even, em->gamma, em->beta, dt);
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

/* The embedding of a word: the largest of each filter's results over its characters, 0 for a word
 * without any, which ONNX Runtime leaves unwritten. What is 0 does not count as a character, but is
 * embedded like one where the word is shorter than the filters, or it stands between others. */
void import_ms_word_conv_embedding(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *words = node_need(n, 0), *filters = node_need(n, 1), *bias = node_need(n, 2);
    Table characters = {.v = node_need(n, 3)};
    if (!words || !filters || !bias || !characters.v) return;
    if (words->rank != 2 || dim_varies(words->dims[1]) || dims_vary(filters->rank, filters->dims)) {
        unsupported(n, "words that are no matrix, and lengths that vary");
        return;
    }
    bool fits = words->dt == DT_i32 && filters->rank == 4 && filters->dims[1] == 1 &&
                bias->rank == 1 && dim_meets(x, bias->dims[0], filters->dims[0]);
    if (!fits || filters->dims[2] < 1 || words->dims[1] < filters->dims[2]) {
        invalid(n, E2005, "words %s%s, filters %s and biases %s do not fit", dt_name(words->dt),
                shape_of(n, words), shape_of(n, filters), shape_of(n, bias));
        return;
    }
    if (!is_table(n, &characters, filters->dims[3])) return;
    const char *const names[3] = {"embedding_size", "conv_window_size", "char_embedding_size"};
    const int64_t sizes[3] = {filters->dims[0], filters->dims[2], filters->dims[3]};
    for (int i = 0; i < 3; i++) {
        if (dim_meets(x, attr_int(n, names[i], sizes[i]), sizes[i])) continue;
        invalid(n, E2004, "%s does not fit filters of shape %s", names[i], shape_of(n, filters));
        return;
    }
    if (n->failed) return;
    int64_t count = words->dims[0], windows = words->dims[1] - sizes[1] + 1;
    int64_t shape[3] = {count, sizes[0], windows};
    if (!node_shape_ok(n, 3, shape)) return;
    const Expr *word = ex_var(x, 0), *filter = ex_var(x, 1), *window = ex_var(x, 2),
               *none = ex_i(x, 0);
    Builder b = build(g, 1, &count);
    const Expr *at[3] = {word, build_red(&b, words->dims[1])};
    const Expr *is_letter = ex_lt(x, none, build_load(&b, words, at));
    Value *letters =
        build_reduce(&b, DT_i32, COMBINE_sum, ex_select(x, is_letter, ex_i(x, 1), none), NULL);
    b = build(g, 3, shape);
    const Expr *place = build_red(&b, sizes[1]), *column = build_red(&b, sizes[2]);
    at[1] = ex_add(x, window, place);
    const Expr *tap[4] = {filter, none, place, column};
    const Expr *e = ex_mul(x, table_load(&b, &characters, build_load(&b, words, at), column),
                           build_load(&b, filters, tap));
    const Expr *sum = ex_add(x, ex_acc(x, DT_f32), build_load(&b, bias, &filter));
    Value *found = build_reduce(&b, DT_f32, COMBINE_sum, e, ex_un(x, EX_tanh, sum));
    b = build(g, 2, shape);
    at[1] = filter;
    at[2] = build_red(&b, windows);
    const Expr *length = build_load(&b, letters, &word);
    const Expr *last = ex_bin(x, EX_max, ex_sub(x, length, ex_i(x, sizes[1])), none);
    e = ex_select(x, ex_le(x, at[2], last), build_load(&b, found, at),
                  ex_num(x, DT_f32, -INFINITY));
    const Expr *most =
        ex_select(x, ex_lt(x, none, length), ex_acc(x, DT_f32), ex_num(x, DT_f32, 0));
    n->out[0] = build_reduce(&b, DT_f32, COMBINE_max, e, most);
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
    DType work = float_work(a->dt);
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

/* FusedConv, NhwcConv, NhwcFusedConv: those with Nhwc have channels last. Weights have them second,
 * but for NhwcConv: ONNX Runtime's documentation says so there, too, but its optimizer, which makes
 * these nodes, and its kernel have them last. */
void import_ms_fused_conv(Node *n) {
    bool last = !strncmp(n->op, "Nhwc", 4);
    Value *in[3] = {node_need(n, 0), node_in(n, 1), node_in(n, 2)}, *added = node_in(n, 3);
    if (!in[0]) return;
    if (last) in[0] = channels_second(n->g, in[0]);
    if (in[1] && !strcmp(n->op, "NhwcConv")) in[1] = channels_second(n->g, in[1]);
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
