/* ai.onnx.ml: support vector machines.
 *
 * Every row is compared with every support vector; what is left is a product with a matrix that is
 * put together here. Probabilities of several classes come from those of pairs of classes by Wu,
 * Lin and Weng's iteration ("Probability Estimates for Multi-class Classification by Pairwise
 * Coupling"), as libsvm does it.
 */
#include "compiler/onnx/ml.h"

#include <string.h>

#define MAX_CLASSES 64 /* the iteration is unrolled over the classes */

/* What every support vector gives for every row, [rows, vectors]. NULL after a report. */
static Value *kernel_values(Node *n, Value *v, int64_t vectors) {
    Graph *g = n->g;
    Exprs *x = n->x;
    enum { LINEAR, POLY, RBF };
    int kind = attr_choice(n, "kernel_type", LINEAR, "LINEAR POLY RBF SIGMOID");
    int n_params, n_numbers;
    const float *params = attr_floats(n, "kernel_params", &n_params);
    const float *numbers = attr_floats(n, "support_vectors", &n_numbers);
    if (n->failed) return NULL;
    if (!numbers || n_numbers != vectors * v->dims[1] || (n_params && n_params < 3)) {
        invalid(n, E2004, "%d numbers for %lld support vectors of %lld features", n_numbers,
                (long long)vectors, (long long)v->dims[1]);
        return NULL;
    }
    int64_t shape[2] = {vectors, v->dims[1]};
    Value *table = g_cast(g, ml_floats(g, numbers, 2, shape), v->dt);
    double gamma = n_params ? (double)params[0] : 0, offset = n_params ? (double)params[1] : 0;
    double degree = n_params ? (double)params[2] : 0;
    bool rbf = kind == RBF;
    int64_t out[2] = {v->dims[0], vectors};
    if (!node_shape_ok(n, 2, out)) return NULL;
    Builder b = build(g, 2, out);
    const Expr *r = build_red(&b, v->dims[1]);
    const Expr *own_at[2] = {ex_var(x, 0), r}, *vector_at[2] = {ex_var(x, 1), r};
    const Expr *own = build_load(&b, v, own_at), *vector = build_load(&b, table, vector_at);
    const Expr *apart = ex_sub(x, own, vector);
    const Expr *e = rbf ? ex_mul(x, apart, apart) : ex_mul(x, own, vector);
    Value *product = build_reduce(&b, v->dt, COMBINE_sum, e, NULL);
    if (kind == LINEAR) return product;
    const char *formula;
    if (rbf)
        formula = arena_printf(g->arena, "exp((%.9g) * a)", -gamma);
    else if (kind == POLY)
        formula = arena_printf(g->arena, "pow((%.9g) * a + (%.9g), %.9g)", gamma, offset, degree);
    else
        formula = arena_printf(g->arena, "tanh((%.9g) * a + (%.9g))", gamma, offset);
    return node_formula(n, formula, 1, &product);
}

void import_ml_svm_regressor(Node *n) {
    Value *v = ml_features(n);
    MlTransform transform;
    int count, n_rho;
    if (!v || !ml_read_transform(n, &transform)) return;
    Graph *g = n->g;
    const float *coefficients = attr_floats(n, "coefficients", &count);
    const float *rho = attr_floats(n, "rho", &n_rho);
    int64_t vectors = attr_int(n, "n_supports", 0);
    if (n->failed) return;
    int64_t shape[2] = {vectors > 0 ? vectors : v->dims[1], 1};
    if (!coefficients || count != shape[0] || !rho || n_rho < 1) {
        invalid(n, E2004, "%d coefficients, expected %lld, and %d numbers in rho, expected 1",
                count, (long long)shape[0], n_rho);
        return;
    }
    Value *values = vectors > 0 ? kernel_values(n, v, vectors) : v;
    if (!values) return;
    Value *weights = g_cast(g, ml_floats(g, coefficients, 2, shape), v->dt);
    Value *score = g_matmul(g, values, weights, v->dt, v->dt);
    score = node_formula(n, arena_printf(g->arena, "a + (%.9g)", (double)rho[0]), 1, &score);
    if (score && attr_int(n, "one_class", 0))
        score = node_formula(n, "select(a > 0, 0 * a + 1, 0 * a - 1)", 1, &score);
    else if (score)
        score = ml_transform(n, score, transform);
    if (score) n->out[0] = g_cast(g, score, DT_f32);
}

/* --- SVMClassifier ---------------------------------------------------------------------------- */

typedef struct Svm {
    int classes, pairs;
    int64_t vectors; /* 0: a linear model */
    MlLabels labels;
    const int64_t *per_class;
    const float *coefficients, *rho;
    const float *prob_a, *prob_b; /* NULL: no probabilities */
                                  /* no coefficient is negative */
} Svm;

static bool read_svm(Node *n, const Value *v, Svm *s) {
    int n_classes, n_coefficients, n_rho, n_a, n_b;
    *s = (Svm){0};
    if (!ml_read_labels(n, "classlabels_ints", "classlabels_strings", &s->labels)) return false;
    s->per_class = attr_ints(n, "vectors_per_class", &n_classes);
    s->coefficients = attr_floats(n, "coefficients", &n_coefficients);
    s->rho = attr_floats(n, "rho", &n_rho);
    s->prob_a = attr_floats(n, "prob_a", &n_a);
    s->prob_b = attr_floats(n, "prob_b", &n_b);
    if (n->failed) return false;
    if (s->labels.count > MAX_CLASSES) {
        unsupported(n, "more than %d classes", MAX_CLASSES);
        return false;
    }
    s->classes = s->labels.count;
    for (int i = 0; i < n_classes; i++) {
        if (s->per_class[i] < 0 || s->per_class[i] > INT32_MAX) s->vectors = -1;
        if (s->vectors >= 0) s->vectors += s->per_class[i];
    }
    s->pairs = s->classes * (s->classes - 1) / 2;
    int64_t want = s->vectors ? s->vectors * (s->classes - 1) : s->classes * v->dims[1];
    bool fits = s->vectors >= 0 && s->coefficients && n_coefficients == want && n_rho >= 1;
    if (s->vectors) fits = fits && s->classes >= 2 && n_classes == s->classes && n_rho == s->pairs;
    if (!n_a || !s->vectors) s->prob_a = NULL;
    if (s->prob_a && (n_a != s->pairs || n_b != s->pairs)) fits = false;
    if (!fits)
        invalid(n, E2004, "classes, vectors_per_class, coefficients (%d) and rho (%d) do not fit",
                n_coefficients, n_rho);
    return fits;
}

/* A score for each pair of classes [rows, pairs]: positive if the first is the likelier one. */
static Value *pair_scores(Node *n, const Svm *s, Value *v) {
    Graph *g = n->g;
    Value *values = kernel_values(n, v, s->vectors);
    if (!values) return NULL;
    int64_t shape[2] = {s->vectors, s->pairs};
    if (!node_shape_ok(n, 2, shape)) return NULL;
    float *weight = ARENA_ARRAY(g->arena, (size_t)(s->vectors * s->pairs), float);
    /* vectors of class i have in line j - 1 (j > i) or j (j < i) their weights against class j */
    int64_t at = 0;
    for (int c = 0; c < s->classes; c++)
        for (int64_t k = 0; k < s->per_class[c]; k++, at++)
            for (int i = 0, pair = 0; i < s->classes; i++)
                for (int j = i + 1; j < s->classes; j++, pair++) {
                    int line = c == i ? j - 1 : i;
                    if (c == i || c == j)
                        weight[at * s->pairs + pair] = s->coefficients[line * s->vectors + at];
                }
    Value *weights = g_cast(g, graph_const(g, DT_f32, 2, shape, weight), v->dt);
    Value *offset = g_cast(g, ml_floats(g, s->rho, 1, shape + 1), v->dt);
    return g_bin(g, EX_add, g_matmul(g, values, weights, v->dt, v->dt), offset);
}

/* How often each class is the likelier one [rows, classes]. */
static Value *votes(Node *n, const Svm *s, Value *scores) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int64_t shape[2] = {scores->dims[0], s->classes}, pairs[1] = {s->pairs};
    int64_t *ends[2];
    for (int e = 0; e < 2; e++) ends[e] = ARENA_ARRAY(g->arena, s->pairs, int64_t);
    for (int i = 0, pair = 0; i < s->classes; i++)
        for (int j = i + 1; j < s->classes; j++, pair++) ends[0][pair] = i, ends[1][pair] = j;
    Value *first = g_cast(g, g_ints(g, s->pairs, ends[0]), DT_i32);
    Value *second = g_cast(g, g_ints(g, s->pairs, ends[1]), DT_i32);
    Builder b = build(g, 2, shape);
    const Expr *pair = build_red(&b, pairs[0]), *at[2] = {ex_var(x, 0), pair};
    const Expr *positive = ex_lt(x, ex_num(x, scores->dt, 0), build_load(&b, scores, at));
    const Expr *winner =
        ex_select(x, positive, build_load(&b, first, &pair), build_load(&b, second, &pair));
    const Expr *own = ex_bin(x, EX_eq, winner, ex_var(x, 1));
    return build_reduce(&b, DT_i32, COMBINE_sum, ex_select(x, own, ex_i(x, 1), ex_i(x, 0)), NULL);
}

/* The probability of class i against class j, [rows, classes, classes]; 0 where i is j. */
static Value *pair_probabilities(Node *n, const Svm *s, Value *scores) {
    Graph *g = n->g;
    Exprs *x = n->x;
    DType dt = scores->dt;
    int64_t shape[3] = {scores->dims[0], s->classes, s->classes}, pairs[1] = {s->pairs};
    Value *in[3] = {scores, g_cast(g, ml_floats(g, s->prob_a, 1, pairs), dt),
                    g_cast(g, ml_floats(g, s->prob_b, 1, pairs), dt)};
    Value *p = node_formula(n, "max(min(1 / (1 + exp(a * b + c)), 0.9999999), 0.0000001)", 3, in);
    if (!p) return NULL;
    int64_t *number = ARENA_ARRAY(g->arena, s->classes * s->classes, int64_t);
    for (int i = 0, pair = 0; i < s->classes; i++)
        for (int j = i + 1; j < s->classes; j++, pair++)
            number[i * s->classes + j] = number[j * s->classes + i] = pair;
    Value *numbers = g_cast(g, g_ints(g, s->classes * s->classes, number), DT_i32);
    Builder b = build(g, 3, shape);
    const Expr *i = ex_var(x, 1), *j = ex_var(x, 2), *zero = ex_num(x, dt, 0);
    const Expr *flat = ex_add(x, ex_mul(x, i, ex_i(x, s->classes)), j);
    const Expr *at[2] = {ex_var(x, 0), build_load(&b, numbers, &flat)};
    const Expr *e = build_load(&b, p, at), *other = ex_sub(x, ex_num(x, dt, 1), e);
    e = ex_select(x, ex_lt(x, i, j), e, ex_select(x, ex_lt(x, j, i), other, zero));
    return build_map(&b, dt, e);
}

/* One round of the iteration, as the body of a loop. State: probabilities p [rows, classes], and
 * whether each row is done; Q [rows, classes, classes] stays. */
static Graph *coupling_round(Node *n, Value *p, Value *q) {
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    Graph *g = graph_new_sub(n->g);
    Exprs *x = n->x;
    DType dt = p->dt;
    int64_t classes = p->dims[1], column[2] = {p->dims[0], 1};
    p = graph_input(g, NULL, dt, 2, p->dims);
    Value *done = graph_input(g, NULL, DT_bool, 2, column), *old = p;
    q = graph_input(g, NULL, dt, 3, q->dims);
    Builder b = build(g, 2, p->dims);
    const Expr *r = build_red(&b, classes);
    const Expr *q_at[3] = {ex_var(x, 0), ex_var(x, 1), r}, *p_at[2] = {ex_var(x, 0), r};
    const Expr *e = ex_mul(x, build_load(&b, q, q_at), build_load(&b, p, p_at));
    Value *qp = build_reduce(&b, dt, COMBINE_sum, e, NULL);
    Value *pqp = g_reduce(g, COMBINE_sum, g_bin(g, EX_mul, p, qp), 2, true);
    Value *gap = g_reduce(g, COMBINE_max, g_un(g, EX_abs, g_bin(g, EX_sub, qp, pqp)), 2, true);
    Value *ends[2] = {done, gap};
    const char *test = arena_printf(g->arena, "a || b < %.9g", 0.005 / (double)classes);
    done = g_formula(g, test, 2, names, ends);
    for (int64_t t = 0; t < classes; t++) {
        /* the part of class t: its product, its own weight, its line of Q */
        b = build(g, 2, column);
        const Expr *row = ex_var(x, 0), *own[3] = {row, ex_i(x, t), ex_i(x, t)};
        const Expr *product_at[2] = {row, ex_i(x, t)};
        Value *product = build_map(&b, dt, build_load(&b, qp, product_at));
        b = build(g, 2, column);
        Value *weight = build_map(&b, dt, build_load(&b, q, own));
        b = build(g, 2, p->dims);
        const Expr *line_at[3] = {row, ex_i(x, t), ex_var(x, 1)};
        Value *line = build_map(&b, dt, build_load(&b, q, line_at));
        Value *step_in[3] = {pqp, product, weight};
        Value *step = g_formula(g, "(a - b) / c", 3, names, step_in);
        b = build(g, 2, p->dims);
        const Expr *is_t = ex_bin(x, EX_eq, ex_var(x, 1), ex_i(x, t)), *by = build_in(&b, step);
        e = ex_add(x, build_in(&b, p), ex_select(x, is_t, by, ex_num(x, dt, 0)));
        p = build_map(&b, dt, ex_div(x, e, ex_add(x, by, ex_num(x, dt, 1))));
        Value *sum_in[4] = {pqp, step, weight, product};
        pqp = g_formula(g, "(a + b * (b * c + 2 * d)) / ((1 + b) * (1 + b))", 4, names, sum_in);
        Value *line_in[3] = {qp, step, line};
        qp = g_formula(g, "(a + b * c) / (1 + b)", 3, names, line_in);
    }
    graph_output(g, g_where(g, done, old, p), NULL);
    graph_output(g, done, NULL);
    return g;
}

/* Probabilities of the classes [rows, classes] from those of the pairs. */
static Value *couple(Node *n, const Svm *s, Value *pairs) {
    Graph *g = n->g;
    Exprs *x = n->x;
    DType dt = pairs->dt;
    int64_t rows = pairs->dims[0], shape[3] = {rows, s->classes, s->classes}, column[2] = {rows, 1};
    Builder b = build(g, 3, shape);
    const Expr *row = ex_var(x, 0), *i = ex_var(x, 1), *j = ex_var(x, 2),
               *r = build_red(&b, s->classes);
    const Expr *diagonal = ex_bin(x, EX_eq, i, j), *zero = ex_num(x, dt, 0);
    const Expr *column_at[3] = {row, r, i}, *ij[3] = {row, i, j}, *ji[3] = {row, j, i};
    const Expr *e = build_load(&b, pairs, column_at);
    const Expr *off = ex_mul(x, build_load(&b, pairs, ij), build_load(&b, pairs, ji));
    const Expr *once = ex_select(x, ex_bin(x, EX_eq, r, ex_i(x, 0)), ex_un(x, EX_neg, off), zero);
    e = ex_select(x, diagonal, ex_mul(x, e, e), once);
    Value *q = build_reduce(&b, dt, COMBINE_sum, e, NULL);
    Value *p = g_expand(g, g_scalar(g, dt, 1.0 / s->classes), 2, shape);
    Value *in[3] = {p, g_expand(g, g_scalar(g, DT_bool, 0), 2, column), q}, *out[2];
    build_loop(g, coupling_round(n, p, q), s->classes > 100 ? s->classes : 100, 2, 3, in, out);
    return out[0];
}

void import_ml_svm_classifier(Node *n) {
    Value *v = ml_features(n);
    MlTransform transform;
    Svm s;
    if (!v || !ml_read_transform(n, &transform) || !read_svm(n, v, &s)) return;
    Graph *g = n->g;
    Value *scores, *ballot = NULL;
    if (s.vectors) {
        scores = pair_scores(n, &s, v);
        if (!scores) return;
        ballot = votes(n, &s, scores);
        Value *pairs = s.prob_a ? pair_probabilities(n, &s, scores) : NULL;
        if (s.prob_a) scores = pairs ? couple(n, &s, pairs) : NULL;
    } else {
        static const int turned[2] = {1, 0};
        int64_t shape[2] = {s.classes, v->dims[1]};
        Value *weights = g_transpose(g, ml_floats(g, s.coefficients, 2, shape), turned);
        scores = g_matmul(g, v, g_cast(g, weights, v->dt), v->dt, v->dt);
        scores =
            node_formula(n, arena_printf(g->arena, "a + (%.9g)", (double)s.rho[0]), 1, &scores);
    }
    if (!scores) return;
    Value *position = ml_best(g, ballot ? ballot : scores);
    if (scores->dims[1] == 1 && s.classes == 2)
        scores =
            ml_two_scores(n, scores, transform == ML_none ? ML_negated : ML_complement, transform);
    else
        scores = ml_transform(n, scores, transform);
    if (!scores) return;
    ml_set_labels(n, position, &s.labels);
    n->out[1] = g_cast(g, scores, DT_f32);
}
