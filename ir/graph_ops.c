/* Common tensor operators made of the core ones; see graph.h. */
#include "ir/constant.h"
#include "ir/graph_dims.h"

#include <string.h>

Value *g_reshape(Graph *g, Value *v, int rank, const int64_t *shape) {
    if (shape_equal(v->rank, v->dims, rank, shape)) return v;
    if (dims_vary(v->rank, v->dims) || dims_vary(rank, shape))
        return reshape_varying(g, v, rank, shape);
    if (value_is_const(v)) return constant_like(g, v, rank, shape);
    if (v->def->kind == OP_reshape && !dims_vary(v->def->in[0]->rank, v->def->in[0]->dims))
        return g_reshape(g, v->def->in[0], rank, shape);
    return reshape_memory(g, v, rank, shape);
}

Value *g_transpose(Graph *g, Value *v, const int *perm) {
    int64_t shape[MAX_RANK];
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) {
        shape[i] = v->dims[perm[i]];
        index[perm[i]] = ex_var(g->x, i);
    }
    Builder b = build(g, v->rank, shape);
    return build_map(&b, v->dt, build_load(&b, v, index));
}

Value *g_expand(Graph *g, Value *v, int rank, const int64_t *shape) {
    Builder b = build(g, rank, shape);
    return build_map(&b, v->dt, build_in(&b, v));
}

Value *g_slice(Graph *g, Value *v, const int64_t *start, const int64_t *step,
               const int64_t *count) {
    Builder b = build(g, v->rank, count);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        index[i] =
            ex_add(g->x, ex_mul(g->x, ex_var(g->x, i), ex_i(g->x, step[i])), ex_i(g->x, start[i]));
    return build_map(&b, v->dt, build_load(&b, v, index));
}

Value *g_pad(Graph *g, Value *v, const int64_t *before, const int64_t *after, Scalar fill) {
    Exprs *x = g->x;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        shape[i] = dim_add(x, v->dims[i], dim_add(x, before[i], after[i]));
    Builder b = build(g, v->rank, shape);
    const Expr *index[MAX_RANK], *inside = ex_int(x, DT_bool, 1);
    for (int i = 0; i < v->rank; i++) {
        index[i] = ex_sub(x, ex_var(x, i), ex_i(x, before[i]));
        if (dim_max(x, before[i]) > 0) inside = ex_and(x, inside, ex_le(x, ex_i(x, 0), index[i]));
        if (dim_max(x, after[i]) > 0)
            inside = ex_and(x, inside, ex_lt(x, index[i], ex_i(x, v->dims[i])));
    }
    uint64_t stored[2]; /* the fill as the type holds it */
    dt_save(v->dt, stored, 0, fill);
    const Expr *e = build_load(&b, v, index), *rim = ex_const(x, v->dt, dt_load(v->dt, stored, 0));
    return build_map(&b, v->dt, ex_select(x, inside, e, rim));
}

#define CONCAT_AT_ONCE 32 /* parts of one map: each is one more level of its body */

static Value *concat_few(Graph *g, int n, Value *const *v, int axis) {
    if (n == 1) return v[0];
    Exprs *x = g->x;
    int rank = v[0]->rank;
    int64_t shape[MAX_RANK];
    memcpy(shape, v[0]->dims, (size_t)rank * sizeof *shape);
    shape[axis] = 0;
    for (int i = 0; i < n; i++) shape[axis] = dim_add(x, shape[axis], v[i]->dims[axis]);
    int64_t end = shape[axis];
    shape[axis] = graph_settled(g, end);
    Builder b = build(g, rank, shape);
    /* from the last part to the first: select(i < end of part, part, the rest) */
    const Expr *index[MAX_RANK], *body = NULL;
    for (int i = 0; i < rank; i++) index[i] = ex_var(x, i);
    for (int i = n - 1; i >= 0; i--) {
        int64_t begin = dim_sub(x, end, v[i]->dims[axis]);
        if (begin != end) {
            index[axis] = ex_sub(x, ex_var(x, axis), ex_i(x, begin));
            const Expr *part = build_load(&b, v[i], index);
            const Expr *in_part = ex_lt(x, ex_var(x, axis), ex_i(x, end));
            body = body ? ex_select(x, in_part, part, body) : part;
        }
        end = begin;
    }
    if (!body) body = ex_num(x, v[0]->dt, 0); /* nothing to store at all */
    return build_map(&b, v[0]->dt, body);
}

Value *g_concat(Graph *g, int n, Value *const *v, int axis) {
    Value **part = arena_copy(g->arena, v, (size_t)n * sizeof *v);
    do {
        int groups = 0;
        for (int i = 0; i < n; i += CONCAT_AT_ONCE) {
            int size = n - i < CONCAT_AT_ONCE ? n - i : CONCAT_AT_ONCE;
            part[groups++] = concat_few(g, size, part + i, axis);
        }
        n = groups;
    } while (n > 1);
    return part[0];
}

Value *g_cast(Graph *g, Value *v, DType dt) {
    if (v->dt == dt) return v;
    Builder b = build(g, v->rank, v->dims);
    return build_map(&b, dt, build_in(&b, v));
}

/* A builder of the broadcast shape of n values; rank -1 after an error. */
static Builder build_broadcast(Graph *g, int n, Value *const *v) {
    int rank = v[0]->rank;
    int64_t shape[MAX_RANK];
    memcpy(shape, v[0]->dims, (size_t)rank * sizeof *shape);
    for (int i = 1; i < n; i++)
        if (!shape_broadcast(g->x, rank, shape, v[i]->rank, v[i]->dims, &rank, shape)) {
            diag_error(g->diag, E2005, "shapes %s and %s do not broadcast",
                       shape_text(g->arena, rank, shape),
                       shape_text(g->arena, v[i]->rank, v[i]->dims));
            rank = 0;
            break;
        }
    return build(g, rank, shape);
}

static bool broadcast_ok(const Builder *b, int n, Value *const *v) {
    for (int i = 0; i < n; i++)
        if (v[i]->rank > b->rank) return false;
    return true;
}

Value *g_bin(Graph *g, ExprOp op, Value *a, Value *c) {
    Value *v[2] = {a, c};
    Builder b = build_broadcast(g, 2, v);
    if (!broadcast_ok(&b, 2, v)) return a;
    const Expr *ea = build_in(&b, a), *eb = build_in(&b, c);
    const Expr *e = ex_bin(g->x, op, ea, eb);
    return build_map(&b, (DType)e->dt, e);
}

Value *g_un(Graph *g, ExprOp op, Value *a) {
    Builder b = build(g, a->rank, a->dims);
    const Expr *e = ex_un(g->x, op, build_in(&b, a));
    return build_map(&b, (DType)e->dt, e);
}

Value *g_where(Graph *g, Value *cond, Value *a, Value *c) {
    Value *v[3] = {cond, a, c};
    Builder b = build_broadcast(g, 3, v);
    if (!broadcast_ok(&b, 3, v)) return a;
    const Expr *ec = build_in(&b, cond), *ea = build_in(&b, a), *eb = build_in(&b, c);
    return build_map(&b, a->dt, ex_select(g->x, ec, ea, eb));
}

Value *g_formula(Graph *g, const char *formula, int n, const char *const *names, Value *const *v) {
    Builder b = build_broadcast(g, n, v);
    if (!broadcast_ok(&b, n, v)) return v[0];
    const Expr *operand[8];
    for (int i = 0; i < n && i < 8; i++) operand[i] = build_in(&b, v[i]);
    const char *error = NULL;
    const Expr *e = ex_formula(g->x, formula, n, names, operand, &error);
    if (!e) {
        diag_error(g->diag, E9002, "formula '%s': %s", formula, error);
        return v[0];
    }
    return build_map(&b, (DType)e->dt, e);
}

Value *g_reduce(Graph *g, Combine combine, Value *v, uint32_t axes, bool keep) {
    int64_t shape[MAX_RANK], red[MAX_RANK];
    int rank = 0, n_red = 0;
    for (int i = 0; i < v->rank; i++) {
        bool reduced = axes >> i & 1;
        if (reduced) red[n_red++] = v->dims[i];
        if (!reduced || keep) shape[rank++] = reduced ? 1 : v->dims[i];
    }
    Builder b = build(g, rank, shape);
    const Expr *index[MAX_RANK];
    int at = 0, r = 0;
    for (int i = 0; i < v->rank; i++) {
        bool reduced = axes >> i & 1;
        index[i] = reduced ? build_red(&b, red[r++]) : ex_var(g->x, at);
        at += !reduced || keep;
    }
    return build_reduce(&b, v->dt, combine, build_load(&b, v, index), NULL);
}

Value *g_scalar(Graph *g, DType dt, double value) {
    void *data = arena_alloc(g->arena, 16);
    dt_save(dt, data, 0, dt_cast(DT_f64, dt, (Scalar){.f = value}));
    return graph_const(g, dt, 0, NULL, data);
}

Value *g_dim(Graph *g, DType dt, int64_t dim) {
    Builder b = build(g, 0, NULL);
    return build_map(&b, dt, ex_cast(g->x, dt, dim_expr(g->x, dim)));
}

Value *g_ints(Graph *g, int n, const int64_t *values) {
    int64_t shape[1] = {n};
    return graph_const(g, DT_i64, 1, shape,
                       arena_copy(g->arena, values, (size_t)n * sizeof *values));
}

Value *g_matmul(Graph *g, Value *a, Value *c, DType acc, DType dt) {
    Exprs *x = g->x;
    int64_t sa[MAX_RANK], sc[MAX_RANK], shape[MAX_RANK];
    /* rank 1 operands get a dimension of 1 that is taken out again */
    bool row = a->rank == 1, column = c->rank == 1;
    if (a->rank == 0 || c->rank == 0) {
        diag_error(g->diag, E2005, "a matrix product of a scalar");
        return a;
    }
    if (row) {
        sa[0] = 1, sa[1] = a->dims[0];
        a = g_reshape(g, a, 2, sa);
    }
    if (column) {
        sc[0] = c->dims[0], sc[1] = 1;
        c = g_reshape(g, c, 2, sc);
    }
    int rank;
    int64_t k = a->dims[a->rank - 1], rows = c->dims[c->rank - 2];
    if (k != rows && dim_meets(x, k, rows)) k = rows = dim_smaller(x, k, rows);
    if (k != rows ||
        !shape_broadcast(g->x, a->rank - 2, a->dims, c->rank - 2, c->dims, &rank, shape)) {
        diag_error(g->diag, E2005, "a matrix product of shapes %s and %s",
                   shape_text(g->arena, a->rank, a->dims), shape_text(g->arena, c->rank, c->dims));
        return a;
    }
    shape[rank] = a->dims[a->rank - 2];
    shape[rank + 1] = c->dims[c->rank - 1];
    Builder b = build(g, rank + 2, shape);
    const Expr *r = build_red(&b, k), *ia[MAX_RANK], *ic[MAX_RANK];
    for (int i = 0; i < a->rank - 2; i++)
        ia[i] = build_index(&b, rank - (a->rank - 2) + i, a->dims[i]);
    for (int i = 0; i < c->rank - 2; i++)
        ic[i] = build_index(&b, rank - (c->rank - 2) + i, c->dims[i]);
    ia[a->rank - 2] = ex_var(x, rank);
    ia[a->rank - 1] = r;
    ic[c->rank - 2] = r;
    ic[c->rank - 1] = ex_var(x, rank + 1);
    const Expr *product =
        ex_mul(x, ex_cast(x, acc, build_load(&b, a, ia)), ex_cast(x, acc, build_load(&b, c, ic)));
    Value *out = build_reduce(&b, dt, COMBINE_sum, product, NULL);
    if (!row && !column) return out;
    int n = rank;
    if (!row) shape[n++] = a->dims[a->rank - 2];
    if (!column) shape[n++] = c->dims[c->rank - 1];
    return g_reshape(g, out, n, shape);
}

Value *g_softmax(Graph *g, Value *v, uint32_t axes, bool logarithm) {
    DType dt = v->dt, reg = dt_reg(dt);
    Value *wide = g_cast(g, v, reg);
    Value *top = g_reduce(g, COMBINE_max, wide, axes, true);
    Value *shifted = g_bin(g, EX_sub, wide, top);
    Value *e = g_un(g, EX_exp, shifted);
    Value *sum = g_reduce(g, COMBINE_sum, e, axes, true);
    Value *result =
        logarithm ? g_bin(g, EX_sub, shifted, g_un(g, EX_log, sum)) : g_bin(g, EX_div, e, sum);
    return g_cast(g, result, dt);
}
