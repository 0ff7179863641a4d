/* Products of matrices and tensors: MatMul, Gemm, Einsum, and the determinant and the inverse. */
#include "compiler/onnx/quant.h"

#include <string.h>

/* --- MatMul, Gemm ----------------------------------------------------------------------------- */

void import_matmul(Node *n) {
    Value *a = node_need(n, 0), *b = node_need(n, 1);
    if (!a || !b) return;
    if (a->dt != b->dt) {
        invalid(n, E2006, "inputs are %s and %s", dt_name(a->dt), dt_name(b->dt));
        return;
    }
    n->out[0] = g_matmul(n->g, a, b, dt_reg(a->dt), a->dt);
}

/* v - zero in i32; a vector of zero points goes with the rows of A or the columns of B. */
static Value *centred(Node *n, Value *v, Value *zero, bool rows) {
    Graph *g = n->g;
    if (!zero) return quant_centre(g, v, NULL);
    if (zero->dt != v->dt) {
        invalid(n, E2006, "a zero point is %s, its matrix %s", dt_name(zero->dt), dt_name(v->dt));
        return NULL;
    }
    if (rows && zero->rank == 1 && zero->dims[0] != 1) {
        int64_t shape[2] = {zero->dims[0], 1};
        zero = g_reshape(g, zero, 2, shape);
    }
    int rank;
    int64_t shape[MAX_RANK];
    if (!shape_broadcast(n->x, v->rank, v->dims, zero->rank, zero->dims, &rank, shape) ||
        !dims_meet(n->x, rank, shape, v->rank, v->dims)) {
        invalid(n, E2005, "a zero point of shape %s does not fit a matrix of shape %s",
                shape_text(g->arena, zero->rank, zero->dims),
                shape_text(g->arena, v->rank, v->dims));
        return NULL;
    }
    return quant_centre(g, v, zero);
}

void import_matmul_integer(Node *n) {
    Value *a = node_need(n, 0), *b = node_need(n, 1);
    if (!a || !b) return;
    a = centred(n, a, node_in(n, 2), true);
    b = centred(n, b, node_in(n, 3), false);
    if (a && b) n->out[0] = g_matmul(n->g, a, b, DT_i32, DT_i32);
}

void import_gemm(Node *n) {
    Value *a = node_need(n, 0), *b = node_need(n, 1), *c = node_in(n, 2);
    if (!a || !b) return;
    Exprs *x = n->x;
    bool ta = attr_int(n, "transA", 0) != 0, tb = attr_int(n, "transB", 0) != 0;
    double alpha = attr_float(n, "alpha", 1), beta = attr_float(n, "beta", 1);
    if (a->rank != 2 || b->rank != 2 || !dim_meets(n->x, a->dims[!ta], b->dims[tb])) {
        invalid(n, E2005, "a matrix product of shapes %s%s and %s%s",
                shape_text(n->g->arena, a->rank, a->dims), ta ? " transposed" : "",
                shape_text(n->g->arena, b->rank, b->dims), tb ? " transposed" : "");
        return;
    }
    if (a->dt != b->dt || (c && c->dt != a->dt)) {
        invalid(n, E2006, "inputs of different element types");
        return;
    }
    int64_t shape[MAX_RANK] = {a->dims[ta], b->dims[!tb]};
    if (c) {
        int rank;
        int64_t all[MAX_RANK];
        if (!shape_broadcast(n->x, 2, shape, c->rank, c->dims, &rank, all) ||
            !dims_meet(n->x, rank, all, 2, shape)) {
            invalid(n, E2005, "C of shape %s does not broadcast to %s",
                    shape_text(n->g->arena, c->rank, c->dims), shape_text(n->g->arena, 2, shape));
            return;
        }
    }
    if (!node_shape_ok(n, 2, shape)) return;
    DType work = dt_reg(a->dt);
    Builder build_ = build(n->g, 2, shape);
    const Expr *r = build_red(&build_, dim_smaller(x, a->dims[!ta], b->dims[tb]));
    const Expr *ia[2] = {ta ? r : ex_var(x, 0), ta ? ex_var(x, 0) : r};
    const Expr *ib[2] = {tb ? ex_var(x, 1) : r, tb ? r : ex_var(x, 1)};
    const Expr *body = ex_mul(x, ex_cast(x, work, build_load(&build_, a, ia)),
                              ex_cast(x, work, build_load(&build_, b, ib)));
    /* integers are scaled as f64, which holds 32 bits and more */
    bool scaled = alpha != 1 || (c && beta != 1);
    DType scale = scaled && !dt_is_float(work) ? DT_f64 : work;
    const Expr *post = ex_cast(x, scale, ex_acc(x, work));
    if (alpha != 1) post = ex_mul(x, post, ex_num(x, scale, alpha));
    if (c && beta != 0) {
        const Expr *e = ex_cast(x, scale, build_in(&build_, c));
        if (beta != 1) e = ex_mul(x, e, ex_num(x, scale, beta));
        post = ex_add(x, post, e);
    }
    n->out[0] = build_reduce(&build_, a->dt, COMBINE_sum, body, post);
}

/* --- Einsum ----------------------------------------------------------------------------------- */

/* One label per dimension: a letter, or 256 + k for the k-th dimension from the right under "...".
 */
typedef struct Term {
    Value *v;
    int n;
    int label[MAX_RANK];
    bool explicit_rest; /* has "..." */
} Term;

enum { ELLIPSIS_LABEL = 256, MAX_LABELS = ELLIPSIS_LABEL + MAX_RANK };

static bool add_label(Node *n, Term *t, int label) {
    if (t->n == MAX_TENSOR_RANK) {
        invalid(n, E2004, "a term of the equation has more than %d dimensions", MAX_TENSOR_RANK);
        return false;
    }
    t->label[t->n++] = label;
    return true;
}

/* Reads a term up to a comma, an arrow or the end. `rest`: how many dimensions "..." stands for. */
static bool read_term(Node *n, const char **text, int rest, Term *t) {
    for (; **text && **text != ',' && **text != '-'; (*text)++) {
        char c = **text;
        if (c == ' ') continue;
        if (!strncmp(*text, "...", 3) && !t->explicit_rest) {
            t->explicit_rest = true;
            *text += 2;
            for (int k = rest - 1; k >= 0; k--)
                if (!add_label(n, t, ELLIPSIS_LABEL + k)) return false;
        } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
            if (!add_label(n, t, c)) return false;
        } else {
            invalid(n, E2004, "the equation has '%c' at an unexpected place", c);
            return false;
        }
    }
    return true;
}

/* Dimensions that "..." stands for in a term of a tensor of this rank; -1 if the term does not fit.
 */
static int rest_of(const char *text, int rank) {
    int letters = 0;
    bool dots = false;
    for (; *text && *text != ',' && *text != '-'; text++) {
        dots |= *text == '.';
        letters += *text != '.' && *text != ' ';
    }
    return letters > rank || (!dots && letters != rank) ? -1 : rank - letters;
}

static bool has_label(const Term *t, int label) {
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label) return true;
    return false;
}

/* The implicit output: "...", then the letters that occur once, in order. */
static bool implicit_output(Node *n, const Term *term, int count, Term *out) {
    int seen[MAX_LABELS] = {0};
    for (int t = 0; t < count; t++)
        for (int i = 0; i < term[t].n; i++) seen[term[t].label[i]]++;
    for (int label = MAX_LABELS - 1; label >= ELLIPSIS_LABEL; label--)
        if (seen[label] && !add_label(n, out, label)) return false;
    for (int label = 0; label < ELLIPSIS_LABEL; label++)
        if (seen[label] == 1 && !add_label(n, out, label)) return false;
    return true;
}

/* The extent of a label that has `a` in one term and `b` in another; -1 if they do not fit. Of two
 * that are not known to be equal one may be 1. */
static int64_t label_extent(Exprs *x, int64_t a, int64_t b) {
    if (a == 1 || a == b) return b;
    if (b == 1) return a;
    if (!dim_can_meet(x, a, b)) return -1;
    dim_claim(x, CLAIM_broadcast, a, b);
    return dim_varies(a) && dim_varies(b) ? dim_larger(x, a, b) : dim_same(a, b);
}

/* Sums the product of one or two terms over all labels that are not in `out`. */
static Value *contract(Node *n, const Term *term, int count, const Term *out) {
    Exprs *x = n->x;
    int64_t extent[MAX_LABELS];
    const Expr *at[MAX_LABELS] = {0};
    int order[MAX_RANK], n_order = 0;
    memset(extent, -1, sizeof extent);
    for (int t = 0; t < count; t++)
        for (int i = 0; i < term[t].n; i++) {
            int label = term[t].label[i];
            int64_t d = term[t].v->dims[i];
            bool first = extent[label] == -1;
            int64_t both = first ? d : label_extent(x, extent[label], d);
            if (both == -1) {
                invalid(n, E2005, "the equation gives one label the extents %lld and %lld",
                        (long long)extent[label], (long long)d);
                return NULL;
            }
            if (first && !has_label(out, label)) {
                if (out->n + n_order == MAX_RANK) {
                    unsupported(n, "more than %d labels at once", MAX_RANK);
                    return NULL;
                }
                order[n_order++] = label;
            }
            extent[label] = both;
        }
    int64_t shape[MAX_RANK];
    for (int i = 0; i < out->n; i++) {
        if (extent[out->label[i]] == -1) {
            invalid(n, E2004, "the equation's result has a label that no input has");
            return NULL;
        }
        shape[i] = extent[out->label[i]];
        at[out->label[i]] = ex_var(x, i);
    }
    if (!node_shape_ok(n, out->n, shape)) return NULL;
    Builder b = build(n->g, out->n, shape);
    for (int i = 0; i < n_order; i++) at[order[i]] = build_red(&b, extent[order[i]]);
    DType dt = term[0].v->dt, work = dt_reg(dt);
    const Expr *product = NULL;
    for (int t = 0; t < count; t++) {
        const Expr *index[MAX_RANK];
        for (int i = 0; i < term[t].n; i++) {
            int label = term[t].label[i];
            int64_t d = term[t].v->dims[i];
            index[i] = d == extent[label] && d != 1 ? at[label] : dim_index(x, at[label], d);
        }
        const Expr *e = ex_cast(x, work, build_load(&b, term[t].v, index));
        product = product ? ex_mul(x, product, e) : e;
    }
    return n_order ? build_reduce(&b, dt, COMBINE_sum, product, NULL) : build_map(&b, dt, product);
}

/* Two terms at a time from the left; a label stays until nothing further right has it. */
void import_einsum(Node *n) {
    const char *text = attr_str(n, "equation", NULL), *arrow = text ? strstr(text, "->") : NULL;
    int count = n->n_in, most = 0;
    if (!text || count < 1) {
        if (!n->failed) invalid(n, E2004, "the equation or all inputs are missing");
        return;
    }
    Term *term = ARENA_ARRAY(n->g->arena, count, Term), out = {0};
    for (int t = 0; t < count; t++) {
        term[t].v = node_need(n, t);
        if (!term[t].v) return;
        int rank = term[t].v->rank, rest = rest_of(text, rank);
        if (!read_term(n, &text, rest < 0 ? 0 : rest, &term[t])) return;
        bool last = t == count - 1;
        if (rest < 0 || (last ? *text == ',' : *text != ',')) {
            invalid(n, E2005, "the equation's terms do not fit the inputs' dimensions");
            return;
        }
        if (term[t].v->dt != term[0].v->dt) {
            invalid(n, E2006, "inputs of different element types");
            return;
        }
        if (term[t].explicit_rest && rest > most) most = rest;
        text += !last;
    }
    if (arrow) {
        text = arrow + 2;
        if (!read_term(n, &text, most, &out)) return;
        for (int i = 0; i < out.n; i++)
            for (int k = 0; k < i; k++)
                if (out.label[i] == out.label[k]) {
                    invalid(n, E2004, "the equation's result has a label twice");
                    return;
                }
    } else if (!implicit_output(n, term, count, &out)) {
        return;
    }
    Term left = term[0];
    for (int t = 1; t < count - 1; t++) {
        Term pair[2] = {left, term[t]}, kept = {0};
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < pair[k].n; i++) {
                int label = pair[k].label[i];
                bool needed = has_label(&out, label);
                for (int later = t + 1; later < count && !needed; later++)
                    needed = has_label(&term[later], label);
                if (needed && !has_label(&kept, label) && !add_label(n, &kept, label)) return;
            }
        kept.v = contract(n, pair, 2, &kept);
        if (!kept.v) return;
        left = kept;
    }
    Term last[2] = {left, term[count - 1]};
    n->out[0] = contract(n, last, count > 1 ? 2 : 1, &out);
}

/* --- Det, Inverse ----------------------------------------------------------------------------- */

/* The matrices [batch, size, columns] with row k exchanged for that with the largest element of
 * column k at or below it; *row: which that is. */
static Value *pivoted(Graph *g, Value *m, const Expr *k, Value **row) {
    Exprs *x = g->x;
    DType dt = m->dt;
    int64_t batch = m->dims[0], size = m->dims[1];
    const Expr *bat = ex_var(x, 0), *i = ex_var(x, 1), *none = ex_num(x, dt, -1);
    Builder b = build(g, 1, &batch);
    const Expr *r = build_red(&b, size), *below[3] = {bat, r, k};
    const Expr *e = ex_un(x, EX_abs, build_load(&b, m, below));
    Value *top = build_reduce(&b, dt, COMBINE_max, ex_select(x, ex_le(x, k, r), e, none), NULL);
    b = build(g, 1, &batch);
    r = build_red(&b, size);
    const Expr *below2[3] = {bat, r, k};
    e = ex_un(x, EX_abs, build_load(&b, m, below2));
    const Expr *hit = ex_and(x, ex_le(x, k, r), ex_bin(x, EX_eq, e, build_in(&b, top)));
    *row = build_reduce(&b, DT_i32, COMBINE_min, ex_select(x, hit, r, ex_i(x, size - 1)), NULL);
    b = build(g, 3, m->dims);
    const Expr *p = build_load(&b, *row, &bat);
    const Expr *from =
        ex_select(x, ex_bin(x, EX_eq, i, k), p, ex_select(x, ex_bin(x, EX_eq, i, p), k, i));
    const Expr *at[3] = {bat, from, ex_var(x, 2)};
    return build_map(&b, dt, build_load(&b, m, at));
}

/* One step of elimination with row exchange, as the body of a loop over the columns. States: the
 * matrices [batch, size, size] and the determinants so far [batch]. */
static Graph *det_step(Node *n, int64_t batch, int64_t size, DType dt) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    int64_t shape[3] = {batch, size, size};
    Value *m = graph_input(g, NULL, dt, 3, shape), *det = graph_input(g, NULL, dt, 1, shape), *row;
    const Expr *k = ex_ctr(x, n->g->depth), *i = ex_var(x, 1), *j = ex_var(x, 2);
    const Expr *bat = ex_var(x, 0), *zero = ex_num(x, dt, 0);
    Value *swapped = pivoted(g, m, k, &row);
    /* multiples of row k taken off the rows below */
    Builder b = build(g, 3, shape);
    const Expr *here[3] = {bat, i, j}, *factor_at[3] = {bat, i, k}, *pivot_at[3] = {bat, k, k};
    const Expr *row_at[3] = {bat, k, j};
    const Expr *pivot = build_load(&b, swapped, pivot_at), *own = build_load(&b, swapped, here);
    const Expr *factor = ex_div(x, build_load(&b, swapped, factor_at), pivot);
    const Expr *off = ex_sub(x, own, ex_mul(x, factor, build_load(&b, swapped, row_at)));
    const Expr *live = ex_and(x, ex_lt(x, k, i), ex_bin(x, EX_ne, pivot, zero));
    Value *next = build_map(&b, dt, ex_select(x, live, off, own));
    /* the determinant grows by the pivot, negated by an exchange */
    b = build(g, 1, shape);
    const Expr *diagonal[3] = {bat, k, k};
    pivot = build_load(&b, swapped, diagonal);
    const Expr *same = ex_bin(x, EX_eq, build_in(&b, row), k);
    const Expr *grown =
        ex_mul(x, build_in(&b, det), ex_select(x, same, pivot, ex_un(x, EX_neg, pivot)));
    graph_output(g, next, NULL);
    graph_output(g, build_map(&b, dt, grown), NULL);
    return g;
}

void import_det(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    bool square = v->rank >= 2 && dim_meets(n->x, v->dims[v->rank - 1], v->dims[v->rank - 2]);
    if (!square || !dt_is_float(v->dt)) {
        invalid(n, E2005, "the input of shape %s must hold square matrices of floats",
                shape_text(n->g->arena, v->rank, v->dims));
        return;
    }
    Graph *g = n->g;
    DType work = dt_reg(v->dt);
    int64_t size = dim_same(v->dims[v->rank - 1], v->dims[v->rank - 2]);
    int64_t batch = dim_product(n->x, v->rank - 2, v->dims), shape[3] = {batch, size, size};
    Value *one = g_expand(g, g_scalar(g, work, 1), 1, shape), *out[2] = {NULL, one};
    if (dim_max(n->x, size) > 0 && dim_max(n->x, batch) > 0) {
        Value *in[2] = {g_reshape(g, g_cast(g, v, work), 3, shape), one};
        build_loop(g, det_step(n, batch, size, work), size, 2, 2, in, out);
    }
    n->out[0] = g_cast(g, g_reshape(g, out[1], v->rank - 2, v->dims), v->dt);
}

/* One step for the inverse, of matrices [batch, size, 2 * size] whose right half was the unit
 * matrix: row k is divided by its pivot, and multiples of it are taken off all others, so that
 * column k becomes that of the unit matrix. */
static Graph *inverse_step(Node *n, const int64_t *shape, DType dt) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    Value *m = graph_input(g, NULL, dt, 3, shape), *row;
    const Expr *k = ex_ctr(x, n->g->depth), *bat = ex_var(x, 0), *i = ex_var(x, 1),
               *j = ex_var(x, 2);
    Value *swapped = pivoted(g, m, k, &row);
    Builder b = build(g, 3, shape);
    const Expr *here[3] = {bat, i, j}, *factor_at[3] = {bat, i, k}, *pivot_at[3] = {bat, k, k},
               *row_at[3] = {bat, k, j};
    const Expr *one = ex_div(x, build_load(&b, swapped, row_at), build_load(&b, swapped, pivot_at));
    const Expr *off = ex_sub(x, build_load(&b, swapped, here),
                             ex_mul(x, build_load(&b, swapped, factor_at), one));
    const Expr *e = ex_select(x, ex_bin(x, EX_eq, i, k), one, off);
    graph_output(g, build_map(&b, dt, e), NULL);
    return g;
}

void import_ms_inverse(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    Graph *g = n->g;
    Exprs *x = n->x;
    bool square = v->rank >= 2 && dim_meets(x, v->dims[v->rank - 1], v->dims[v->rank - 2]);
    if (!square || !dt_is_float(v->dt)) {
        invalid(n, E2005, "the input of shape %s must hold square matrices of floats",
                shape_text(g->arena, v->rank, v->dims));
        return;
    }
    DType work = dt_reg(v->dt);
    int64_t size = dim_same(v->dims[v->rank - 1], v->dims[v->rank - 2]);
    int64_t batch = dim_product(x, v->rank - 2, v->dims);
    int64_t shape[3] = {batch, size, size}, both[3] = {batch, size, dim_mul(x, size, 2)};
    if (!node_shape_ok(n, 3, both)) return;
    if (dim_max(x, size) == 0 || dim_max(x, batch) == 0) {
        n->out[0] = v;
        return;
    }
    Value *m = g_reshape(g, g_cast(g, v, work), 3, shape);
    Builder b = build(g, 3, both);
    const Expr *i = ex_var(x, 1), *j = ex_var(x, 2), *side = ex_sub(x, j, ex_i(x, size));
    const Expr *at[3] = {ex_var(x, 0), i, j}, *left = ex_lt(x, j, ex_i(x, size));
    const Expr *unit =
        ex_select(x, ex_bin(x, EX_eq, side, i), ex_num(x, work, 1), ex_num(x, work, 0));
    m = build_map(&b, work, ex_select(x, left, build_load(&b, m, at), unit));
    build_loop(g, inverse_step(n, both, work), size, 1, 1, &m, &m);
    b = build(g, 3, shape);
    at[2] = ex_add(x, j, ex_i(x, size));
    m = build_map(&b, work, build_load(&b, m, at));
    n->out[0] = g_cast(g, g_reshape(g, m, v->rank, v->dims), v->dt);
}
