/* ai.onnx.ml: preparing features, linear models. Trees are in ops_tree.c, support vector machines
 * in ops_svm.c.
 *
 * What these operators say of their special cases (one score for two classes, which label belongs
 * to a score of 0) is as ONNX Runtime computes it, where the text of the standard leaves it open.
 */
#include "compiler/onnx/index.h"
#include "compiler/onnx/ml.h"
#include "compiler/onnx/text.h"

#include <math.h>
#include <string.h>

/* --- what is shared --------------------------------------------------------------------------- */

bool ml_read_transform(Node *n, MlTransform *transform) {
    int i = attr_choice(n, "post_transform", 0, "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT");
    *transform = (MlTransform)i;
    return i >= 0;
}

/* exp(v - max) / sum, where scores that are 0 stay 0. */
static Value *softmax_zero(Node *n, Value *scores) {
    Graph *g = n->g;
    Value *v[2] = {scores, g_reduce(g, COMBINE_max, scores, 1u << 1, true)};
    Value *e = node_formula(n, "select(abs(a) > 0.0000001, exp(a - b), a * exp(-b))", 2, v);
    if (!e) return NULL;
    Value *share[2] = {e, g_reduce(g, COMBINE_sum, e, 1u << 1, true)};
    return node_formula(n, "select(b == 0, 0.5, a / b)", 2, share);
}

Value *ml_transform(Node *n, Value *scores, MlTransform transform) {
    if (scores->dims[1] == 1 && transform != ML_probit) return scores;
    switch (transform) {
    case ML_none:
        return scores;
    case ML_softmax:
        return g_softmax(n->g, scores, 1u << 1, false);
    case ML_logistic:
        return node_formula(n, "1 / (1 + exp(-a))", 1, &scores);
    case ML_softmax_zero:
        return softmax_zero(n, scores);
    case ML_probit:
        break;
    }
    /* the inverse of the normal distribution, by way of an approximate inverse of erf */
    Value *twice = node_formula(n, "2 * a - 1", 1, &scores);
    Value *log = twice ? node_formula(n, "log((1 - a) * (1 + a))", 1, &twice) : NULL;
    Value *half = log ? node_formula(n, "4.330746750799873 + 0.5 * a", 1, &log) : NULL;
    Value *v[3] = {twice, log, half};
    return half ? node_formula(n,
                               "1.41421356 * select(a < 0, -1, 1) * "
                               "sqrt(sqrt(c * c - b * 6.802721088435375) - c)",
                               3, v)
                : NULL;
}

Value *ml_two_scores(Node *n, Value *score, MlSecond second, MlTransform transform) {
    bool negated = transform == ML_logistic || (second == ML_negated && transform != ML_probit);
    Value *pair[2] = {node_formula(n, negated ? "-a" : "1 - a", 1, &score), score};
    if (!pair[0]) return NULL;
    Value *scores = g_concat(n->g, 2, pair, 1);
    bool changed = transform == ML_logistic || transform == ML_probit;
    return changed ? ml_transform(n, scores, transform) : scores;
}

Value *ml_best(Graph *g, Value *scores) {
    Exprs *x = g->x;
    Value *top = g_reduce(g, COMBINE_max, scores, 1u << 1, false);
    Builder b = build(g, 1, scores->dims);
    const Expr *r = build_red(&b, scores->dims[1]), *at[2] = {ex_var(x, 0), r};
    const Expr *hit = ex_bin(x, EX_eq, build_load(&b, scores, at), build_load(&b, top, at));
    const Expr *e = ex_select(x, hit, r, ex_i(x, scores->dims[1] - 1));
    return build_reduce(&b, DT_i32, COMBINE_min, e, NULL);
}

void ml_set_labels(Node *n, Value *position, const MlLabels *labels) {
    Builder b = build(n->g, position->rank, position->dims);
    const Expr *at = index_clamp(b.x, build_in(&b, position), labels->count);
    if (!labels->ints) {
        node_set_text(n, 0, text_pick(n->g, labels->strings, build_map(&b, DT_i32, at)));
        return;
    }
    Value *table = g_ints(n->g, labels->count, labels->ints);
    n->out[0] = build_map(&b, DT_i64, build_load(&b, table, &at));
}

Value *ml_rows(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return NULL;
    if (v->rank < 1 || v->rank > 2 || value_numel(v) == 0) {
        invalid(n, E2005, "the input of shape %s is no matrix of rows and features",
                shape_text(n->g->arena, v->rank, v->dims));
        return NULL;
    }
    int64_t shape[2] = {v->rank == 2 ? v->dims[0] : 1, v->dims[v->rank - 1]};
    v = g_reshape(n->g, v, 2, shape);
    return v->dt == DT_f64 ? v : g_cast(n->g, v, DT_f32);
}

Value *ml_features(Node *n) {
    Value *v = ml_rows(n);
    if (!v || !dim_varies(v->dims[1])) return v;
    unsupported(n, "the number of features varies");
    return NULL;
}

bool ml_read_labels(Node *n, const char *ints, const char *strings, MlLabels *labels) {
    *labels = (MlLabels){0};
    labels->ints = attr_ints(n, ints, &labels->count);
    if (n->failed) return false;
    if (labels->ints && labels->count > 0) return true;
    labels->ints = NULL;
    labels->strings = attr_text(n, strings);
    if (labels->strings) labels->count = (int)labels->strings->dims[0];
    if (labels->count < 1 && !n->failed) invalid(n, E2004, "attribute '%s' is missing", ints);
    return labels->count > 0 && !n->failed;
}

Value *ml_floats(Graph *g, const float *data, int rank, const int64_t *shape) {
    size_t bytes = (size_t)shape_numel(rank, shape) * sizeof *data;
    return graph_const(g, DT_f32, rank, shape, arena_copy(g->arena, data, bytes));
}

/* --- features --------------------------------------------------------------------------------- */

void import_ml_binarizer(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    DType wide = v->dt == DT_f64 || dt_is_int(v->dt) ? DT_f64 : DT_f32;
    const Expr *limit = ex_num(x, wide, attr_float(n, "threshold", 0));
    const Expr *above = ex_lt(x, limit, ex_cast(x, wide, build_in(&b, v)));
    n->out[0] = build_map(&b, v->dt, ex_select(x, above, ex_num(x, v->dt, 1), ex_num(x, v->dt, 0)));
}

/* An attribute of one number, or one for each feature (index of the last axis), as a tensor that
 * broadcasts to `v`. NULL after a report. */
static Value *per_feature(Node *n, const Value *v, const char *name, int count, Value *numbers) {
    if (count == 1) return g_reshape(n->g, numbers, 0, NULL);
    if (v->rank >= 1 && dim_meets(n->x, count, v->dims[v->rank - 1])) return numbers;
    invalid(n, E2004, "attribute '%s' has %d numbers, but the input has shape %s", name, count,
            shape_text(n->g->arena, v->rank, v->dims));
    return NULL;
}

void import_ml_scaler(Node *n) {
    Value *v = node_need(n, 0);
    static const char *const names[] = {"offset", "scale"};
    if (!v) return;
    Value *in[3] = {g_cast(n->g, v, DT_f32)};
    for (int i = 0; i < 2; i++) {
        int count;
        const float *numbers = attr_floats(n, names[i], &count);
        if (n->failed) return;
        int64_t shape[1] = {count};
        if (!numbers || !count)
            in[i + 1] = g_scalar(n->g, DT_f32, i);
        else
            in[i + 1] = per_feature(n, v, names[i], count, ml_floats(n->g, numbers, 1, shape));
        if (!in[i + 1]) return;
    }
    n->out[0] = node_formula(n, "(a - b) * c", 3, in);
}

void import_ml_imputer(Node *n) {
    Value *v = node_need(n, 0);
    int count;
    if (!v) return;
    Graph *g = n->g;
    Exprs *x = n->x;
    bool floats = dt_is_float(v->dt);
    const char *name = floats ? "imputed_value_floats" : "imputed_value_int64s";
    Value *numbers = NULL;
    if (floats) {
        const float *given = attr_floats(n, name, &count);
        int64_t shape[1] = {count};
        if (given && count) numbers = ml_floats(g, given, 1, shape);
    } else {
        const int64_t *given = attr_ints(n, name, &count);
        if (given && count) numbers = g_ints(g, count, given);
    }
    if (!numbers) {
        if (!n->failed) invalid(n, E2004, "attribute '%s' is missing", name);
        return;
    }
    numbers = per_feature(n, v, name, count, numbers);
    if (!numbers) return;
    Builder b = build(g, v->rank, v->dims);
    const Expr *e = build_in(&b, v), *missing;
    if (!floats) {
        const Expr *given = ex_int(x, v->dt, attr_int(n, "replaced_value_int64", 0));
        missing = ex_bin(x, EX_eq, e, given);
    } else {
        double given = attr_float(n, "replaced_value_float", 0);
        missing =
            isnan(given) ? ex_un(x, EX_isnan, e) : ex_bin(x, EX_eq, e, ex_num(x, v->dt, given));
    }
    const Expr *instead = ex_cast(x, v->dt, build_in(&b, numbers));
    n->out[0] = build_map(&b, v->dt, ex_select(x, missing, instead, e));
}

void import_ml_normalizer(Node *n) {
    Value *v = ml_rows(n);
    int norm = attr_choice(n, "norm", 0, "MAX L1 L2");
    if (!v || n->failed) return;
    Graph *g = n->g;
    const Value *given = n->in[0];
    v = g_cast(g, v, DT_f32);
    bool largest = norm == 0, squares = norm == 2;
    Value *size = node_formula(n, squares ? "a * a" : largest ? "a" : "abs(a)", 1, &v);
    if (!size) return;
    size = g_reduce(g, largest ? COMBINE_max : COMBINE_sum, size, 1u << 1, true);
    Value *in[2] = {v, size};
    const char *formula = squares ? "select(b == 0, a, a / sqrt(b))" : "select(b == 0, a, a / b)";
    Value *result = node_formula(n, formula, 2, in);
    if (result) n->out[0] = g_reshape(g, result, given->rank, given->dims);
}

/* Side by side, each cut or filled with zeros to its number of columns. */
void import_ml_feature_vectorizer(Node *n) {
    int count;
    const int64_t *columns = attr_ints(n, "inputdimensions", &count);
    Graph *g = n->g;
    if (n->failed) return;
    if (n->n_in < 1 || (columns && count != n->n_in)) {
        invalid(n, E2004, "inputdimensions has %d entries for %d inputs", count, n->n_in);
        return;
    }
    Value **part = ARENA_ARRAY(g->arena, n->n_in, Value *);
    for (int i = 0; i < n->n_in; i++) {
        Value *v = node_need(n, i);
        if (!v) return;
        if (v->rank == 1) {
            int64_t row[2] = {1, v->dims[0]};
            v = g_reshape(g, v, 2, row);
        }
        if (v->rank != 2 || (i && !dim_meets(n->x, v->dims[0], part[0]->dims[0]))) {
            invalid(n, E2005, "input %d has shape %s", i, shape_text(g->arena, v->rank, v->dims));
            return;
        }
        v = g_cast(g, v, DT_f32);
        if (columns && columns[i] != v->dims[1]) {
            int64_t before[2] = {0, 0}, after[2] = {0, dim_sub(n->x, columns[i], v->dims[1])};
            int64_t shape[2] = {v->dims[0], columns[i]};
            if (!node_shape_ok(n, 2, shape)) return;
            v = g_pad(g, v, before, after, (Scalar){.f = 0});
        }
        part[i] = v;
    }
    int64_t shape[2] = {part[0]->dims[0], 0};
    for (int i = 0; i < n->n_in; i++) shape[1] = dim_add(n->x, shape[1], part[i]->dims[1]);
    if (node_shape_ok(n, 2, shape)) n->out[0] = g_concat(g, n->n_in, part, 1);
}

/* 1 at the category that an element is, else 0; a row for each element. */
void import_ml_one_hot_encoder(Node *n) {
    MlLabels categories;
    if (!ml_read_labels(n, "cats_int64s", "cats_strings", &categories)) return;
    bool text = n->n_in && n->entity[0] && n->entity[0]->kind == ENTITY_text;
    Value *v = text ? node_text(n, 0) : node_need(n, 0);
    if (!v) return;
    if (text != !categories.ints) {
        invalid(n, E2004, "the categories are not of the input's type");
        return;
    }
    Exprs *x = n->x;
    int rank = v->rank - text;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < rank; i++) shape[i] = v->dims[i];
    shape[rank] = categories.count;
    if (!node_shape_ok(n, rank + 1, shape)) return;
    if (text) v = text_find(n->g, v, categories.strings);
    Builder b = build(n->g, rank + 1, shape);
    const Expr *at[MAX_RANK], *category = ex_var(x, rank);
    for (int i = 0; i < rank; i++) at[i] = ex_var(x, i);
    const Expr *e = ex_cast(x, DT_i64, build_load(&b, v, at)), *own = ex_cast(x, DT_i64, category);
    if (!text) own = build_load(&b, g_ints(n->g, categories.count, categories.ints), &category);
    const Expr *hit = ex_bin(x, EX_eq, e, own);
    n->out[0] =
        build_map(&b, DT_f32, ex_select(x, hit, ex_num(x, DT_f32, 1), ex_num(x, DT_f32, 0)));
}

/* --- ZipMap ----------------------------------------------------------------------------------- */

/* A list of maps from labels to the numbers of a row: here the rows themselves, since the labels
 * are known when compiling. */
void import_ml_zip_map(Node *n) {
    n->out[0] = node_need(n, 0);
}

/* --- linear models ---------------------------------------------------------------------------- */

/* v [rows, features] times coefficients [lines, features], plus an intercept for each line.
 * There may be more coefficients, a multiple of the lines: those behind are not looked at, as in
 * ONNX Runtime (whose example logreg_iris.onnx has twice as many as it needs). NULL after a report.
 */
static Value *linear(Node *n, Value *v, int64_t lines) {
    Graph *g = n->g;
    int count, n_intercepts;
    const float *coefficients = attr_floats(n, "coefficients", &count);
    const float *intercepts = attr_floats(n, "intercepts", &n_intercepts);
    if (n->failed) return NULL;
    if (lines < 1 || !coefficients || count % lines || count / lines < v->dims[1] ||
        (n_intercepts && n_intercepts != lines)) {
        invalid(n, E2004, "%d coefficients and %d intercepts for %lld outputs of %lld features",
                count, n_intercepts, (long long)lines, (long long)v->dims[1]);
        return NULL;
    }
    static const int turned[2] = {1, 0};
    int64_t shape[2] = {lines, v->dims[1]};
    Value *weights = g_transpose(g, ml_floats(g, coefficients, 2, shape), turned);
    Value *scores = g_matmul(g, v, g_cast(g, weights, v->dt), v->dt, v->dt);
    if (!n_intercepts) return scores;
    Value *offset = g_cast(g, ml_floats(g, intercepts, 1, shape), v->dt);
    return g_bin(g, EX_add, scores, offset);
}

void import_ml_linear_regressor(Node *n) {
    Value *v = ml_features(n);
    MlTransform transform;
    if (!v || !ml_read_transform(n, &transform)) return;
    Value *scores = linear(n, v, attr_int(n, "targets", 1));
    if (scores) scores = ml_transform(n, scores, transform);
    if (scores) n->out[0] = g_cast(n->g, scores, DT_f32);
}

void import_ml_linear_classifier(Node *n) {
    Value *v = ml_features(n);
    MlTransform transform;
    MlLabels labels;
    int n_coefficients, n_intercepts;
    if (!v || !ml_read_transform(n, &transform)) return;
    if (!ml_read_labels(n, "classlabels_ints", "classlabels_strings", &labels)) return;
    Graph *g = n->g;
    attr_floats(n, "coefficients", &n_coefficients);
    attr_floats(n, "intercepts", &n_intercepts);
    int64_t lines = n_intercepts ? n_intercepts : n_coefficients / v->dims[1];
    Value *scores = linear(n, v, lines), *position, *raw = scores;
    if (!scores) return;
    if (lines > 1) {
        position = ml_best(g, scores);
        scores = ml_transform(n, scores, transform);
    } else {
        /* one score says which of two classes it is; a single label is that of the second */
        const char *formula = "select(a > 0, 1, 0)";
        if (labels.count == 2)
            scores = ml_two_scores(n, raw, ML_complement, transform);
        else
            scores = ml_transform(n, raw, transform);
        Value *sign = node_formula(n, formula, 1, &raw);
        if (!sign) return;
        position = g_reshape(g, g_cast(g, sign, DT_i32), 1, raw->dims);
    }
    if (!scores) return;
    if (lines == 1 && labels.count == 1) {
        if (!labels.ints) {
            unsupported(n, "a single label that is a string");
            return;
        }
        const int64_t pair[2] = {0, labels.ints[0]};
        ml_set_labels(n, position, &(MlLabels){.count = 2, .ints = pair});
    } else {
        ml_set_labels(n, position, &labels);
    }
    n->out[1] = g_cast(g, scores, DT_f32);
}
