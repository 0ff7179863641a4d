/* Pools: reductions over windows, over all positions, over regions of interest, and their inverse.
 */
#include "compiler/onnx/window.h"

#include <math.h>
#include <string.h>

/* What a pool does to the elements of a window. */
typedef enum PoolKind { POOL_max, POOL_average, POOL_lp } PoolKind;

/* The body of a pool, |e| ^ p for norms, and what undoes the power. */
static const Expr *pool_body(Exprs *x, PoolKind kind, double p, const Expr *e) {
    if (kind != POOL_lp) return e;
    if (p == 2) return ex_mul(x, e, e);
    e = ex_un(x, EX_abs, e);
    return p == 1 ? e : ex_bin(x, EX_pow, e, ex_num(x, (DType)e->dt, p));
}

static const Expr *pool_root(Exprs *x, double p, const Expr *acc) {
    if (p == 2) return ex_un(x, EX_sqrt, acc);
    return p == 1 ? acc : ex_bin(x, EX_pow, acc, ex_num(x, (DType)acc->dt, 1 / p));
}

/* attribute p, a float in the first version */
static double norm_order(Node *n) {
    double p = n->version < 2 ? attr_float(n, "p", 2) : (double)attr_int(n, "p", 2);
    if (!n->failed && !(p > 0)) invalid(n, E2004, "attribute 'p' is %g", p);
    return p;
}

/* --- windows ---------------------------------------------------------------------------------- */

/* How many positions window `o` of a dimension covers: of the input, or with its padding. */
static int64_t covered(const Slide *s, int64_t o, bool with_padding) {
    int64_t low = with_padding ? -s->before : 0, high = s->in + (with_padding ? s->after : 0);
    int64_t first = o * s->stride - s->before, last = first + s->span - 1;
    int64_t k0 = first < low ? (low - first + s->dilation - 1) / s->dilation : 0;
    int64_t k1 = last >= high ? (high - 1 - first) / s->dilation : s->kernel - 1;
    return high - 1 < first ? 0 : k1 >= k0 ? k1 - k0 + 1 : 0;
}

/* The same of window `o`, where extents vary. */
static const Expr *covered_expr(Exprs *x, const Slide *s, const Expr *o, bool with_padding) {
    const Expr *zero = ex_i(x, 0), *one = ex_i(x, 1), *step = ex_i(x, s->dilation);
    int64_t high = with_padding ? dim_add(x, s->in, s->after) : s->in;
    const Expr *low = with_padding ? ex_sub(x, zero, ex_i(x, s->before)) : zero;
    const Expr *first = ex_sub(x, ex_mul(x, o, ex_i(x, s->stride)), ex_i(x, s->before));
    const Expr *lacks = ex_bin(x, EX_max, ex_sub(x, low, first), zero);
    const Expr *k0 = ex_div(x, ex_add(x, lacks, ex_i(x, s->dilation - 1)), step);
    const Expr *room = ex_bin(x, EX_max, ex_sub(x, ex_i(x, high - 1), first), zero);
    const Expr *k1 = ex_bin(x, EX_min, ex_div(x, room, step), ex_i(x, s->kernel - 1));
    return ex_bin(x, EX_max, ex_add(x, ex_sub(x, k1, k0), one), one);
}

/* The factor of a dimension's windows in the number of positions, or NULL with *fixed: all have the
 * same. A table says it, unless extents vary. */
static const Expr *count_factor(Builder *b, const Window *w, int i, bool with_padding, DType work,
                                int64_t *fixed) {
    const Slide *s = &w->dim[i];
    const Expr *at[1] = {ex_var(b->x, 2 + i)};
    *fixed = s->kernel;
    if (dim_varies(s->out) || dim_varies(s->in)) {
        bool whole = !w->ceiling && (with_padding || (s->before == 0 && s->after == 0));
        return whole ? NULL : ex_cast(b->x, work, covered_expr(b->x, s, at[0], with_padding));
    }
    void *table = arena_array(b->g->arena, (size_t)s->out, dt_store(work));
    bool same = true;
    *fixed = covered(s, 0, with_padding);
    for (int64_t o = 0; o < s->out; o++) {
        int64_t count = covered(s, o, with_padding);
        same &= count == *fixed;
        dt_save(work, table, (size_t)o, (Scalar){.f = (double)count});
    }
    return same ? NULL : build_load(b, graph_const(b->g, work, 1, &s->out, table), at);
}

/* The number of positions that an average is over, of type `work`: a product of one factor for each
 * dimension. */
static const Expr *pool_count(Builder *b, const Window *w, bool with_padding, DType work) {
    Exprs *x = b->x;
    double fixed = 1;
    const Expr *varying = NULL;
    for (int i = 0; i < w->n; i++) {
        int64_t count;
        const Expr *factor = count_factor(b, w, i, with_padding, work, &count);
        if (!factor) {
            fixed *= (double)count;
            continue;
        }
        varying = varying ? ex_mul(x, varying, factor) : factor;
    }
    const Expr *e = ex_num(x, work, fixed);
    return varying ? ex_mul(x, varying, e) : e;
}

/* The lowest value of a type: what padding is to a maximum. */
static Scalar lowest(DType dt) {
    return combine_identity(COMBINE_max, dt);
}

/* Which element was the largest: its number in row-major order, the first one if several are,
 * counted over the whole tensor, with columns first where `column_major`. */
static Value *largest_index(Node *n, const Window *w, Value *v, Value *padded, Value *top,
                            bool column_major) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Builder b = build(g, top->rank, top->dims);
    const Expr *index[MAX_RANK] = {ex_var(x, 0), ex_var(x, 1)}, *tap[MAX_SPATIAL];
    window_reduce(&b, w, 2, index + 2, tap);
    if (!b.n_red) build_red(&b, 1);
    const Expr *flat = ex_i(x, 0), *inside = ex_int(x, DT_bool, 1);
    int64_t plane = 1;
    for (int i = 0; i < w->n; i++) {
        const Slide *s = &w->dim[i];
        const Expr *at = ex_sub(x, index[2 + i], ex_i(x, s->before));
        flat = ex_add(x, ex_mul(x, flat, ex_i(x, s->in)), at);
        inside = ex_and(x, inside, ex_le(x, ex_i(x, 0), at));
        inside = ex_and(x, inside, ex_lt(x, at, ex_i(x, s->in)));
        plane = dim_mul(x, plane, s->in);
    }
    const Expr *e = build_load(&b, padded, index), *best = build_in(&b, top);
    const Expr *hit = ex_bin(x, EX_eq, e, best);
    if (dt_is_float(v->dt)) hit = ex_bin(x, EX_or, hit, ex_un(x, EX_isnan, e));
    /* beyond all if there is none; then the last one stands for it */
    const Expr *found = ex_select(x, ex_and(x, inside, hit), flat, ex_i(x, plane - 1));
    const Expr *channel = ex_add(x, ex_mul(x, ex_var(x, 0), ex_i(x, v->dims[1])), ex_var(x, 1));
    const Expr *at = ex_acc(x, DT_i32);
    if (column_major) {
        const Expr *rest = at, *turned = ex_i(x, 0);
        for (int i = w->n - 1; i >= 0; i--) {
            int64_t stride = 1;
            for (int k = 0; k < i; k++) stride = dim_mul(x, stride, w->dim[k].in);
            const Expr *extent = ex_i(x, w->dim[i].in);
            turned = ex_add(x, turned, ex_mul(x, ex_bin(x, EX_rem, rest, extent), ex_i(x, stride)));
            rest = ex_div(x, rest, extent);
        }
        at = turned;
    }
    at = ex_add(x, ex_mul(x, channel, ex_i(x, plane)), at);
    return build_reduce(&b, DT_i64, COMBINE_min, found, at);
}

/* Is the largest element of a window rather found along one dimension after the other? Steps for
 * each result: those of the windows, and a store and a load for what lies between; what is not yet
 * reduced along the dimensions before has more elements. */
static bool pays_by_dimension(const Window *w) {
    double at_once = 1, apart = 0, elements = 1;
    for (int i = 0; i < w->n; i++) {
        const Slide *s = &w->dim[i];
        bool varies = dim_varies(s->out);
        at_once *= (double)s->kernel;
        apart += (double)(s->kernel + 2) * elements;
        elements *= varies ? (double)s->stride
                           : (double)((s->out - 1) * s->stride + s->span) / (double)s->out;
    }
    return at_once > 1.25 * apart;
}

/* The largest of each window: of a row of it, then of these. */
static Value *max_by_dimension(Node *n, const Window *w, Value *padded) {
    Exprs *x = n->x;
    Value *v = padded;
    DType work = dt_is_float(v->dt) ? float_work(v->dt) : dt_reg(v->dt);
    for (int i = w->n - 1; i >= 0; i--) {
        int64_t shape[MAX_RANK];
        const Expr *index[MAX_RANK];
        for (int d = 0; d < v->rank; d++) shape[d] = v->dims[d];
        shape[2 + i] = w->dim[i].out;
        Builder b = build(n->g, v->rank, shape);
        for (int d = 0; d < v->rank; d++) index[d] = ex_var(x, d);
        const Expr *first = ex_mul(x, index[2 + i], ex_i(x, w->dim[i].stride));
        const Expr *tap = ex_mul(x, reduce_over(&b, w->dim[i].kernel), ex_i(x, w->dim[i].dilation));
        index[2 + i] = ex_add(x, first, tap);
        if (!b.n_red) build_red(&b, 1);
        const Expr *e = ex_cast(x, work, build_load(&b, v, index));
        v = build_reduce(&b, v->dt, COMBINE_max, e, ex_acc(x, work));
    }
    return v;
}

static void pool(Node *n, PoolKind kind) {
    Value *v = kind == POOL_max ? node_need(n, 0) : need_float(n, 0, 3);
    Window w;
    if (!v) return;
    bool ceiling = attr_int(n, "ceil_mode", 0) != 0;
    bool with_padding = attr_int(n, "count_include_pad", 0) != 0;
    double p = kind == POOL_lp ? norm_order(n) : 0;
    if (n->failed || !window_place(n, &w, v, NULL, ceiling)) return;
    Exprs *x = n->x;
    DType work = dt_is_float(v->dt) ? float_work(v->dt) : dt_reg(v->dt);
    Scalar fill = kind == POOL_max ? lowest(v->dt) : (Scalar){.f = 0};
    Value *padded = window_pad(n, &w, v, fill);
    int64_t shape[MAX_RANK] = {v->dims[0], v->dims[1]};
    for (int i = 0; i < w.n; i++) shape[i + 2] = w.dim[i].out;
    if (n->failed || !node_shape_ok(n, v->rank, shape)) return;
    if (kind == POOL_max && pays_by_dimension(&w)) {
        n->out[0] = max_by_dimension(n, &w, padded);
    } else {
        Builder b = build(n->g, v->rank, shape);
        const Expr *index[MAX_RANK] = {ex_var(x, 0), ex_var(x, 1)}, *tap[MAX_SPATIAL];
        window_reduce(&b, &w, 2, index + 2, tap);
        if (!b.n_red) build_red(&b, 1);
        const Expr *e = ex_cast(x, work, build_load(&b, padded, index)), *post = ex_acc(x, work);
        if (kind == POOL_average) { /* multiplied: the reciprocal is the same for many elements */
            const Expr *count = pool_count(&b, &w, with_padding, work);
            post = ex_mul(x, post, ex_div(x, ex_num(x, work, 1), count));
        }
        if (kind == POOL_lp) post = pool_root(x, p, post);
        Combine combine = kind == POOL_max ? COMBINE_max : COMBINE_sum;
        n->out[0] = build_reduce(&b, v->dt, combine, pool_body(x, kind, p, e), post);
    }
    if (kind == POOL_max && node_wants(n, 1))
        n->out[1] =
            largest_index(n, &w, v, padded, n->out[0], attr_int(n, "storage_order", 0) != 0);
}

void import_max_pool(Node *n) {
    pool(n, POOL_max);
}

void import_average_pool(Node *n) {
    pool(n, POOL_average);
}

void import_lp_pool(Node *n) {
    pool(n, POOL_lp);
}

/* --- all positions ---------------------------------------------------------------------------- */

static void global_pool(Node *n, PoolKind kind) {
    Value *v = need_float(n, 0, 2);
    double p = kind == POOL_lp ? norm_order(n) : 0;
    if (!v || n->failed) return;
    Exprs *x = n->x;
    DType work = float_work(v->dt);
    int64_t shape[MAX_RANK] = {v->dims[0], v->dims[1]}, count = 1;
    for (int i = 2; i < v->rank; i++) {
        shape[i] = 1;
        count = dim_mul(x, count, v->dims[i]);
    }
    Builder b = build(n->g, v->rank, shape);
    const Expr *index[MAX_RANK] = {ex_var(x, 0), ex_var(x, 1)};
    for (int i = 2; i < v->rank; i++) index[i] = reduce_over(&b, v->dims[i]);
    if (!b.n_red) build_red(&b, 1);
    const Expr *e = ex_cast(x, work, build_load(&b, v, index)), *post = ex_acc(x, work);
    if (kind == POOL_average) post = ex_div(x, post, extent_as(x, work, count));
    if (kind == POOL_lp) post = pool_root(x, p, post);
    n->out[0] = build_reduce(&b, v->dt, kind == POOL_max ? COMBINE_max : COMBINE_sum,
                             pool_body(x, kind, p, e), post);
}

void import_global_max_pool(Node *n) {
    global_pool(n, POOL_max);
}

void import_global_average_pool(Node *n) {
    global_pool(n, POOL_average);
}

void import_global_lp_pool(Node *n) {
    global_pool(n, POOL_lp);
}

/* --- the inverse of MaxPool ------------------------------------------------------------------- */

/* Puts each element back where its index says, zeros elsewhere. The indices count in the shape that
 * kernel, strides and pads give; a larger output_shape adds zeros at the end of each dimension. */
void import_max_unpool(Node *n) {
    Value *v = node_need(n, 0), *where = node_need(n, 1);
    Window w;
    if (!v || !where || !window_read(n, &w, v, NULL)) return;
    if (!dims_meet(n->x, v->rank, v->dims, where->rank, where->dims) || !dt_is_int(where->dt)) {
        invalid(n, E2005, "the indices must be integers in the input's shape");
        return;
    }
    int n_want = 0, want_rank = 0;
    int64_t shape[MAX_RANK] = {v->dims[0], v->dims[1]}, declared[MAX_RANK];
    for (int i = 0; i < w.n; i++) {
        const Slide *s = &w.dim[i];
        int64_t most = dim_max(n->x, s->in);
        if (most < 1 || s->stride > INT32_MAX / most) {
            invalid(n, E2005, "spatial dimension %d cannot be unpooled", i);
            return;
        }
        shape[i + 2] =
            dim_add(n->x, dim_mul(n->x, s->in - 1, s->stride), s->kernel - s->before - s->after);
    }
    if (!node_shape_ok(n, v->rank, shape)) return;
    const int64_t *want = node_ints(n, 2, &n_want);
    if (!want && node_in(n, 2)) {
        if (node_declared_shape(n, 0, &want_rank, declared)) {
            want = declared;
            n_want = want_rank;
        } else {
            want = node_need_ints(n, 2, "the output shape", &n_want);
        }
        if (!want) return;
    }
    if (want && (n_want != v->rank || !node_shape_ok(n, n_want, want))) {
        if (!n->failed) invalid(n, E2005, "the output shape has %d dimensions", n_want);
        return;
    }
    Exprs *x = n->x;
    int64_t numel = dim_product(x, v->rank, shape);
    Builder zeros = build(n->g, 1, &numel);
    Value *flat = build_map(&zeros, v->dt, ex_num(x, v->dt, 0));
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *at = ex_cast(x, DT_i64, build_in(&b, where));
    const Expr *inside =
        ex_and(x, ex_le(x, ex_int(x, DT_i64, 0), at), ex_lt(x, at, ex_int(x, DT_i64, numel)));
    const Expr *target[1] = {ex_cast(x, DT_i32, at)};
    flat = build_scatter(&b, flat, COMBINE_none, target, inside, build_in(&b, v));
    Value *out = g_reshape(n->g, flat, v->rank, shape);
    int64_t none[MAX_RANK] = {0}, more[MAX_RANK];
    for (int i = 0; i < v->rank; i++) more[i] = want ? dim_sub(x, want[i], shape[i]) : 0;
    n->out[0] = g_pad(n->g, out, none, more, (Scalar){.i = 0});
}

/* --- regions of interest ---------------------------------------------------------------------- */

/* Element `column` of region r, as a whole number after scaling, rounded half away from zero. */
static const Expr *roi_edge(Builder *b, Value *rois, int column, double scale, DType work) {
    Exprs *x = b->x;
    const Expr *at[2] = {ex_var(x, 0), ex_i(x, column)};
    const Expr *e = ex_mul(x, ex_cast(x, work, build_load(b, rois, at)), ex_num(x, work, scale));
    const Expr *half = ex_num(x, work, 0.5), *zero = ex_num(x, work, 0);
    const Expr *up = ex_un(x, EX_floor, ex_add(x, e, half));
    const Expr *down = ex_un(x, EX_ceil, ex_sub(x, e, half));
    return ex_select(x, ex_lt(x, e, zero), down, up);
}

/* Each region is cut into pooled_shape bins whose edges are rounded outwards; an empty bin gives 0.
 * The bins differ at run time, so each looks at all positions. */
void import_max_roi_pool(Node *n) {
    Value *v = need_float(n, 0, 4), *rois = need_float(n, 1, 2);
    int n_pooled;
    const int64_t *pooled = attr_ints(n, "pooled_shape", &n_pooled);
    double scale = attr_float(n, "spatial_scale", 1);
    if (!v || !rois || n->failed) return;
    if (v->rank != 4 || rois->rank != 2 || !dim_meets(n->x, rois->dims[1], 5)) {
        invalid(n, E2005, "input %s or regions %s have a wrong shape",
                shape_text(n->g->arena, v->rank, v->dims),
                shape_text(n->g->arena, rois->rank, rois->dims));
        return;
    }
    if (!pooled || n_pooled != 2 || pooled[0] < 1 || pooled[1] < 1) {
        invalid(n, E2004, "attribute 'pooled_shape' must have two positive values");
        return;
    }
    Exprs *x = n->x;
    DType work = float_work(v->dt);
    int64_t shape[4] = {rois->dims[0], v->dims[1], pooled[0], pooled[1]};
    if (!node_shape_ok(n, 4, shape)) return;
    Builder b = build(n->g, 4, shape);
    const Expr *batch_at[2] = {ex_var(x, 0), ex_i(x, 0)};
    const Expr *batch = ex_cast(x, DT_i32, build_load(&b, rois, batch_at));
    const Expr *top = ex_i(x, v->dims[0] - 1);
    const Expr *index[4] = {ex_bin(x, EX_max, ex_i(x, 0), ex_bin(x, EX_min, batch, top)),
                            ex_var(x, 1)};
    const Expr *inside = ex_int(x, DT_bool, 1), *none = ex_int(x, DT_bool, 0);
    const Expr *one = ex_num(x, work, 1), *zero = ex_num(x, work, 0);
    for (int i = 0; i < 2; i++) {
        const Expr *low = roi_edge(&b, rois, 2 - i, scale, work);
        const Expr *high = roi_edge(&b, rois, 4 - i, scale, work);
        const Expr *size = ex_bin(x, EX_max, one, ex_add(x, ex_sub(x, high, low), one));
        const Expr *bin = ex_div(x, size, ex_num(x, work, (double)pooled[i]));
        const Expr *o = ex_cast(x, work, ex_var(x, 2 + i));
        const Expr *first = ex_add(x, ex_un(x, EX_floor, ex_mul(x, o, bin)), low);
        const Expr *end = ex_add(x, ex_un(x, EX_ceil, ex_mul(x, ex_add(x, o, one), bin)), low);
        const Expr *limit = extent_as(x, work, v->dims[2 + i]);
        first = ex_bin(x, EX_min, limit, ex_bin(x, EX_max, zero, first));
        end = ex_bin(x, EX_min, limit, ex_bin(x, EX_max, zero, end));
        index[2 + i] = build_red(&b, v->dims[2 + i]);
        const Expr *at = ex_cast(x, work, index[2 + i]);
        inside = ex_and(x, inside, ex_and(x, ex_le(x, first, at), ex_lt(x, at, end)));
        none = ex_bin(x, EX_or, none, ex_le(x, end, first));
    }
    const Expr *e = ex_cast(x, work, build_load(&b, v, index));
    const Expr *body = ex_select(x, inside, e, ex_const(x, work, lowest(work)));
    const Expr *post = ex_select(x, none, zero, ex_acc(x, work));
    n->out[0] = build_reduce(&b, v->dt, COMBINE_max, body, post);
}
