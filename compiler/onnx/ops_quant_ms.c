/* Quantised operators of com.microsoft, as ONNX Runtime's quantiser writes them into models. Most
 * compute in f32 between a decoded input and an encoded result, which fuses into one map or
 * reduction. */
#include "compiler/onnx/quant.h"
#include "compiler/onnx/window.h"

#include <string.h>

/* Decodes input i, whose scale and zero point follow it. NULL after a report. */
static Value *decoded(Node *n, int i, Quant *q) {
    Value *v = node_need(n, i);
    if (!v || !quant_read(n, i + 1, v->dt, q)) return NULL;
    if (q->dt == v->dt) return quant_decode(n, v, q);
    invalid(n, E2006, "input %d is %s, its zero point %s", i, dt_name(v->dt), dt_name(q->dt));
    return NULL;
}

/* Encodes a result with the scale in input i and the zero point behind it. */
static void set_encoded(Node *n, Value *v, int i, DType dt) {
    Quant q;
    if (v && !n->failed && quant_read(n, i, dt, &q)) n->out[0] = quant_encode(n, v, &q);
}

/* The same as ONNX Runtime has it for sums and products: the zero point is added before rounding,
 * which tells where two integers are equally near. */
static void set_encoded_late(Node *n, Value *v, int i, DType dt) {
    Quant q;
    if (!v || n->failed || !quant_read(n, i, dt, &q)) return;
    Value *one[3] = {v, g_reshape(n->g, q.scale, 0, NULL), g_scalar(n->g, DT_f32, 0)};
    if (q.zero) one[2] = g_cast(n->g, g_reshape(n->g, q.zero, 0, NULL), DT_f32);
    Quant plain = {g_scalar(n->g, DT_f32, 1), NULL, q.dt};
    v = node_formula(n, "a / b + c", 3, one);
    if (v && !n->failed) n->out[0] = quant_encode(n, v, &plain);
}

void import_ms_qlinear_binary(Node *n) {
    Quant q;
    Value *v[2] = {decoded(n, 0, &q), NULL};
    if (v[0]) v[1] = decoded(n, 3, &q);
    if (!v[1]) return;
    const char *formula = !strcmp(n->op, "QLinearAdd") ? "a + b" : "a * b";
    set_encoded_late(n, node_formula(n, formula, 2, v), 6, q.dt);
}

void import_ms_qlinear_unary(Node *n) {
    Quant q;
    Value *v = decoded(n, 0, &q);
    if (!v) return;
    const char *formula = "1 / (1 + exp(-a))";
    if (!strcmp(n->op, "QLinearLeakyRelu"))
        formula =
            arena_printf(n->g->arena, "select(a < 0, %.17g * a, a)", attr_float(n, "alpha", 0.01));
    set_encoded(n, node_formula(n, formula, 1, &v), 3, q.dt);
}

/* Axes in the sense of the operator set that the attribute names. */
void import_ms_qlinear_softmax(Node *n) {
    Quant q;
    Value *v = decoded(n, 0, &q);
    int64_t opset = attr_int(n, "opset", 13);
    if (!v || n->failed) return;
    v = import_as(n, import_softmax, opset < 13 ? 1 : 13, 1, &v);
    set_encoded(n, v, 3, q.dt);
}

/* Scale and zero point of the result come first, then input, scale and zero point of each part. */
void import_ms_qlinear_concat(Node *n) {
    Quant q;
    int count = (n->n_in - 2) / 3;
    if (count < 1 || n->n_in != 2 + 3 * count) {
        invalid(n, E2007, "%d inputs; expected 2, and 3 for each part", n->n_in);
        return;
    }
    Value **part = ARENA_ARRAY(n->g->arena, count, Value *);
    for (int i = 0; i < count; i++)
        if (!(part[i] = decoded(n, 2 + 3 * i, &q))) return;
    set_encoded(n, import_as(n, import_concat, 13, count, part), 0, q.dt);
}

void import_ms_qlinear_pool(Node *n) {
    bool global = !strcmp(n->op, "QLinearGlobalAveragePool");
    bool last = attr_int(n, "channels_last", 0) != 0;
    Quant q;
    Value *v = decoded(n, 0, &q);
    if (!v) return;
    if (v->rank < 3) {
        invalid(n, E2005, "the input has %d dimensions; at least 3 are needed", v->rank);
        return;
    }
    if (last) v = channels_second(n->g, v);
    v = import_as(n, global ? import_global_average_pool : import_average_pool, 11, 1, &v);
    if (v && last) v = channels_last(n->g, v);
    set_encoded(n, v, 3, q.dt);
}

/* Decoding is monotonic: the largest element of a window is the one with the largest integer. */
void import_ms_nhwc_max_pool(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    v = channels_second(n->g, v);
    v = import_as(n, import_max_pool, INT32_MAX, 1, &v);
    if (v) n->out[0] = channels_last(n->g, v);
}

void import_ms_qlinear_conv(Node *n) {
    Value *v = node_need(n, 0), *in[9];
    if (!v) return;
    bool last = attr_int(n, "channels_last", 0) != 0;
    for (int i = 0; i < 9; i++) in[i] = node_in(n, i);
    if (last) in[0] = channels_second(n->g, v);
    v = import_as(n, import_qlinear_conv, INT32_MAX, 9, in);
    if (v) n->out[0] = last ? channels_last(n->g, v) : v;
}

void import_ms_qlinear_where(Node *n) {
    Quant q;
    Value *v[3] = {node_need(n, 0), NULL, NULL};
    if (!v[0] || !(v[1] = decoded(n, 1, &q)) || !(v[2] = decoded(n, 4, &q))) return;
    set_encoded(n, node_formula(n, "select(a, b, c)", 3, v), 7, q.dt);
}

void import_ms_qlinear_reduce_mean(Node *n) {
    Quant q;
    Value *v = decoded(n, 0, &q);
    if (!v) return;
    Node mean = *n;
    mean.op = "ReduceMean";
    v = import_as(&mean, import_reduce, 13, 1, &v);
    n->failed |= mean.failed;
    set_encoded(n, v, 3, q.dt);
}

/* sum * (a_scale * b_scale) + bias in f32; bias may be NULL. */
static Value *to_float(Node *n, Value *sum, Value *a_scale, Value *b_scale, Value *bias) {
    Value *v[4] = {g_cast(n->g, sum, DT_f32), a_scale, b_scale, bias};
    return node_formula(n, bias ? "a * (b * c) + d" : "a * (b * c)", bias ? 4 : 3, v);
}

void import_ms_matmul_integer_to_float(Node *n) {
    Value *in[4];
    for (int i = 0; i < 4; i++)
        if (!(in[i] = node_need(n, i))) return;
    Value *sum = quant_matmul(n, in[0], node_in(n, 4), in[1], node_in(n, 5));
    if (sum) n->out[0] = to_float(n, sum, quant_row_scale(n->g, in[2]), in[3], node_in(n, 6));
}

void import_ms_dynamic_quantize_matmul(Node *n) {
    Value *a = node_need(n, 0), *b = node_need(n, 1), *b_scale = node_need(n, 2), *scale, *zero;
    if (!a || !b || !b_scale) return;
    if (a->dt != DT_f32 || value_numel(a) == 0) {
        invalid(n, E2006, "A must hold f32");
        return;
    }
    a = quant_dynamic(n->g, a, (1u << a->rank) - 1, &scale, &zero);
    Value *sum = quant_matmul(n, a, zero, b, node_in(n, 3));
    if (sum) n->out[0] = to_float(n, sum, scale, b_scale, node_in(n, 4));
}

/* alpha * A * B + C, where C (i32) has the product's scale. The result is f32 if it has no scale.
 */
void import_ms_qgemm(Node *n) {
    Graph *g = n->g;
    Value *a = node_need(n, 0), *a_scale = node_need(n, 1), *a_zero = node_in(n, 2);
    Value *b = node_need(n, 3), *b_scale = node_need(n, 4), *b_zero = node_in(n, 5);
    Value *c = node_in(n, 6), *y_scale = node_in(n, 7);
    static const int turned[2] = {1, 0};
    if (!a || !a_scale || !b || !b_scale) return;
    if (a->rank != 2 || b->rank != 2 || (c && c->dt != DT_i32)) {
        invalid(n, E2005, "A and B must have two dimensions, and C be i32");
        return;
    }
    if (attr_int(n, "transA", 0)) a = g_transpose(g, a, turned);
    if (attr_int(n, "transB", 0)) b = g_transpose(g, b, turned);
    Value *sum = quant_matmul(n, a, a_zero, b, b_zero), *pair[2] = {sum, c};
    if (sum && c) sum = node_formula(n, "a + b", 2, pair);
    Value *scales[2] = {quant_row_scale(g, a_scale), b_scale};
    const char *formula = arena_printf(g->arena, "a * b * %.9g", attr_float(n, "alpha", 1));
    Value *factor = sum && !n->failed ? node_formula(n, formula, 2, scales) : NULL;
    if (!factor) return;
    if (!y_scale) {
        Value *product[2] = {g_cast(g, sum, DT_f32), factor};
        n->out[0] = node_formula(n, "a * b", 2, product);
        return;
    }
    Quant q;
    if (!quant_read(n, 7, a->dt, &q)) return;
    Value *ratio[2] = {factor, g_reshape(g, y_scale, 0, NULL)};
    factor = node_formula(n, "a / b", 2, ratio);
    if (factor) n->out[0] = quant_scaled(n, sum, factor, &q);
}
