/* Convolutions. All become sums over plain loads, affine in the coordinates, of tensors that were
 * padded before: the form that scheduling knows best. Groups are split off as dimensions of their
 * own. */
#include "compiler/onnx/quant.h"
#include "compiler/onnx/window.h"

#include <string.h>

/* What a convolution is between: x [N, group * in, D..] and weights of `group * out` output
 * channels. */
typedef struct Channels {
    int64_t group, in, out; /* channels in each group */
} Channels;

/* Checks group and channels. The weights' dimension 0 has group * out channels and dimension 1 has
 * `in`, or, transposed, group * in and out. */
static bool read_channels(Node *n, const Value *v, const Value *w, bool transposed, Channels *c) {
    Arena *arena = n->g->arena;
    if (w->rank != v->rank) {
        invalid(n, E2005, "the weights' shape %s has not as many dimensions as the input's, %s",
                shape_text(arena, w->rank, w->dims), shape_text(arena, v->rank, v->dims));
        return false;
    }
    c->group = attr_int(n, "group", 1);
    if (n->failed) return false;
    if (c->group < 1 || c->group > INT32_MAX) {
        invalid(n, E2004, "group is %lld", (long long)c->group);
        return false;
    }
    Exprs *x = n->x;
    if (dim_max(x, v->dims[1]) < 1 || dim_max(x, w->dims[0]) < 1 || dim_max(x, w->dims[1]) < 1) {
        invalid(n, E2005, "no channels: input %s, weights %s", shape_text(arena, v->rank, v->dims),
                shape_text(arena, w->rank, w->dims));
        return false;
    }
    if (!dim_varies(v->dims[1]) && v->dims[1] % c->group) {
        invalid(n, E2005, "group %lld does not divide %lld input channels", (long long)c->group,
                (long long)v->dims[1]);
        return false;
    }
    int64_t have = transposed ? w->dims[0] : dim_mul(x, w->dims[1], c->group);
    if (!dim_meets(n->x, have, v->dims[1])) {
        invalid(n, E2005, "the weights' shape %s (group %lld) does not fit %lld input channels",
                shape_text(arena, w->rank, w->dims), (long long)c->group, (long long)v->dims[1]);
        return false;
    }
    if (!dim_varies(w->dims[0]) && w->dims[0] % c->group) {
        invalid(n, E2005, "group %lld does not divide %lld output channels", (long long)c->group,
                (long long)w->dims[0]);
        return false;
    }
    c->in = dim_same(dim_div(x, have, c->group), dim_div(x, v->dims[1], c->group));
    c->out = transposed ? w->dims[1] : dim_div(x, w->dims[0], c->group);
    return true;
}

/* A bias must be one number per output channel. */
static bool bias_fits(Node *n, const Value *bias, int64_t channels) {
    if (!bias || (bias->rank == 1 && dim_meets(n->x, bias->dims[0], channels))) return true;
    invalid(n, E2005, "the bias has shape %s; expected [%s]",
            shape_text(n->g->arena, bias->rank, bias->dims), dim_text(n->x, channels));
    return false;
}

/* True if a dimension of its own for the groups is needed: not with one group, and not where each
 * has one channel on both sides (then group and channel are the same coordinate). */
static bool splits(const Channels *c) {
    return c->group > 1 && (c->in != 1 || c->out != 1);
}

/* `v` with dimension `at` split in two. */
static Value *split_dim(Graph *g, Value *v, int at, int64_t outer, int64_t inner) {
    int64_t shape[MAX_RANK];
    for (int i = 0, k = 0; i < v->rank; i++) {
        if (i == at) shape[k++] = outer;
        shape[k++] = i == at ? inner : v->dims[i];
    }
    return g_reshape(g, v, v->rank + 1, shape);
}

/* The sum over channels and kernel of x * w, each cast to `acc`, then + bias, as `dt`. `v` is
 * padded. */
static Value *convolve(Node *n, const Window *win, const Channels *c, Value *v, Value *w,
                       Value *bias, DType acc, DType dt) {
    Graph *g = n->g;
    Exprs *x = n->x;
    bool split = splits(c), depthwise = c->group > 1 && !split;
    int64_t channels = dim_mul(x, c->group, c->out);
    int64_t shape[MAX_RANK] = {v->dims[0], channels};
    int rank = 2;
    if (split) {
        shape[1] = c->group, shape[2] = c->out, rank = 3;
        v = split_dim(g, v, 1, c->group, c->in);
        w = split_dim(g, w, 0, c->group, c->out);
        if (bias) bias = split_dim(g, bias, 0, c->group, c->out);
    }
    for (int i = 0; i < win->n; i++) shape[rank + i] = win->dim[i].out;
    if (!node_shape_ok(n, rank + win->n - split, shape + split)) return NULL;
    Builder b = build(g, rank + win->n, shape);
    const Expr *iv[MAX_RANK] = {ex_var(x, 0)}, *iw[MAX_RANK], *ib[2];
    const Expr *channel = depthwise ? ex_var(x, 1) : reduce_over(&b, c->in);
    int nv = 1, nw = 0;
    if (split) iv[nv++] = iw[nw++] = ex_var(x, 1);
    iv[nv++] = channel;
    iw[nw++] = ex_var(x, rank - 1);
    iw[nw++] = depthwise ? ex_i(x, 0) : channel;
    window_reduce(&b, win, rank, iv + nv, iw + nw);
    if (!b.n_red) build_red(&b, 1);
    const Expr *product =
        ex_mul(x, ex_cast(x, acc, build_load(&b, v, iv)), ex_cast(x, acc, build_load(&b, w, iw)));
    const Expr *post = NULL;
    if (bias) {
        ib[0] = ex_var(x, 1), ib[1] = ex_var(x, 2);
        post = ex_add(x, ex_acc(x, acc), ex_cast(x, acc, build_load(&b, bias, ib)));
    }
    Value *out = build_reduce(&b, dt, COMBINE_sum, product, post);
    if (!split) return out;
    shape[1] = v->dims[0], shape[2] = channels;
    return g_reshape(g, out, rank - 1 + win->n, shape + 1);
}

void import_conv(Node *n) {
    Value *v = need_float(n, 0, 3), *w = need_float(n, 1, 3), *bias = node_in(n, 2);
    Window win;
    Channels c;
    if (!v || !w || !read_channels(n, v, w, false, &c) || !bias_fits(n, bias, w->dims[0])) return;
    if (!window_place(n, &win, v, w->dims + 2, false)) return;
    w = window_trim(n, &win, w, 2);
    Value *padded = window_pad(n, &win, v, (Scalar){.f = 0});
    if (n->failed) return;
    n->out[0] = convolve(n, &win, &c, padded, w, bias, float_work(v->dt), v->dt);
}

/* v - zero as i32, where zero is a scalar or has one number per index of dimension 0. */
static Value *without_zero_point(Node *n, Value *v, Value *zero) {
    Graph *g = n->g;
    if (!zero) return quant_centre(g, v, NULL);
    int64_t shape[MAX_RANK] = {dim_product(n->x, zero->rank, zero->dims)};
    for (int i = 1; i < v->rank; i++) shape[i] = 1;
    zero = shape[0] == 1 ? g_reshape(g, zero, 0, NULL) : g_reshape(g, zero, v->rank, shape);
    return quant_centre(g, v, zero);
}

void import_conv_integer(Node *n) {
    Value *v = node_need(n, 0), *w = node_need(n, 1), *vz = node_in(n, 2), *wz = node_in(n, 3);
    Window win;
    Channels c;
    if (!v || !w) return;
    if (!dt_is_int(v->dt) || !dt_is_int(w->dt)) {
        invalid(n, E2006, "input and weights must be integers, not %s and %s", dt_name(v->dt),
                dt_name(w->dt));
        return;
    }
    if (!window_place(n, &win, v, w->rank == v->rank ? w->dims + 2 : NULL, false) ||
        !read_channels(n, v, w, false, &c))
        return;
    bool each = wz && wz->rank == 1 && wz->dims[0] != 1 && dim_meets(n->x, wz->dims[0], w->dims[0]);
    if ((vz && !value_single(n, vz)) || (wz && !each && !value_single(n, wz))) {
        invalid(n, E2005, "a zero point must be one number%s",
                vz ? "" : " for each output channel");
        return;
    }
    /* padding stands for the zero point, so it is 0 once that is taken off */
    if (vz) vz = g_reshape(n->g, vz, 0, NULL);
    w = window_trim(n, &win, without_zero_point(n, w, wz), 2);
    v = window_pad(n, &win, without_zero_point(n, v, vz), (Scalar){.i = 0});
    if (!n->failed) n->out[0] = convolve(n, &win, &c, v, w, NULL, DT_i32, DT_i32);
}

/* --- transposed convolution ------------------------------------------------------------------- */

/* Output position o takes tap k of input position i where o + before = i * stride + k * dilation.
 * With o + before = q * stride + phase (and dilation 1, or stride 1) that is k = phase + j * stride
 * and i = q - j: for every phase a plain convolution with its own taps. So the result is computed
 * with the coordinates q and phase instead of o, from a padded input, and then cut to size. With
 * stride 2 and an odd number before, that would begin and end with half a q: there o is 2q + r, of
 * which r = 0 is phase 1, and r = 1 is phase 0 of the next q.
 */
typedef struct Unslide {   /* all may vary */
    int64_t taps;          /* values of j */
    int64_t apart;         /* i = q - j * apart */
    int64_t first, count;  /* values of q */
    bool odd;              /* o = 2 * q + r */
    int64_t before, after; /* padding of the input */
} Unslide;

/* Output extent and padding of one dimension. */
static bool unplace(Node *n, Slide *s, int64_t extra, AutoPad pad, const int64_t *want) {
    Exprs *x = n->x;
    int64_t full = dim_add(x, dim_add(x, dim_mul(x, s->in - 1, s->stride), extra), s->span);
    bool upper = pad == AUTO_same_upper, same = upper || pad == AUTO_same_lower;
    if (want && (*want < 1 || *want > INT32_MAX)) {
        invalid(n, E2004, "attribute 'output_shape' holds %lld", (long long)*want);
        return false;
    }
    if (pad == AUTO_valid) s->before = s->after = 0;
    if (want || same) {
        int64_t aim = want ? *want : dim_mul(x, s->in, s->stride);
        int64_t total = dim_larger(x, dim_sub(x, full, aim), 0), half = dim_div(x, total, 2);
        /* padding does not add what the kernel lacks */
        s->out = want ? aim : dim_sub(x, full, total);
        /* which side gets the odd one was the other way round at first */
        s->before = upper == (n->version >= 11) ? half : dim_sub(x, total, half);
        s->after = dim_sub(x, total, s->before);
    } else {
        s->out = dim_sub(x, full, dim_add(x, s->before, s->after));
    }
    int64_t most = dim_max(x, s->out);
    if (most > 0 && most <= INT32_MAX && dim_max(x, full) <= INT32_MAX) return true;
    invalid(n, E2005, "the result would have an extent of %s", dim_text(x, s->out));
    return false;
}

/* Spreads the weights' taps `dilation` apart, with zeros between them, to the given shape. */
static Value *spread_taps(Graph *g, const Window *win, Value *w, const int64_t *shape) {
    Exprs *x = g->x;
    if (shape_equal(w->rank, w->dims, w->rank, shape)) return w;
    Builder b = build(g, w->rank, shape);
    const Expr *index[MAX_RANK] = {ex_var(x, 0), ex_var(x, 1)}, *on = ex_int(x, DT_bool, 1);
    for (int i = 0; i < win->n; i++) {
        const Slide *s = &win->dim[i];
        int64_t apart = s->stride == 1 ? 1 : s->dilation;
        const Expr *at = ex_var(x, i + 2), *step = ex_i(x, apart);
        index[i + 2] = ex_div(x, at, step);
        on = ex_and(x, on, ex_bin(x, EX_eq, ex_bin(x, EX_rem, at, step), ex_i(x, 0)));
        on = ex_and(x, on, ex_lt(x, index[i + 2], ex_i(x, s->kernel)));
    }
    const Expr *e = build_load(&b, w, index);
    return build_map(&b, w->dt, ex_select(x, on, e, ex_num(x, w->dt, 0)));
}

/* Some phases of a dimension, which take as many taps as each other: phase first + r * step, which
 * reads from shift + r * shifts elements behind the first on. */
typedef struct Phases {
    int64_t first, count, taps;
    int step, shift, shifts;
} Phases;

/* A transposed convolution; channels of several groups are two dimensions. */
typedef struct Unconvolve {
    const Window *win;
    const Unslide *u;
    const Channels *c;
    bool depthwise, split;
    Value *v, *w, *bias;
    Phases part[MAX_SPATIAL];
} Unconvolve;

/* The sum for all q and these phases, as [N, M, q, phase, ..]. */
static Value *sum_of_phases(Node *n, const Unconvolve *t) {
    Exprs *x = n->x;
    const Window *win = t->win;
    const Channels *c = t->c;
    DType acc = float_work(t->v->dt);
    const bool depthwise = t->depthwise;
    int64_t shape[MAX_RANK] = {t->v->dims[0]};
    int rank = 1, at[MAX_SPATIAL];
    if (t->split) shape[rank++] = c->group;
    shape[rank++] = depthwise ? c->group : c->out;
    int spatial = rank;
    for (int i = 0; i < win->n; i++) {
        at[i] = rank;
        shape[rank++] = t->u[i].count;
        if (win->dim[i].stride > 1) shape[rank++] = t->part[i].count;
    }
    Builder b = build(n->g, rank, shape);
    const Expr *iv[MAX_RANK] = {ex_var(x, 0)}, *iw[MAX_RANK], *ib[2] = {ex_var(x, 1), ex_var(x, 2)};
    const Expr *channel = depthwise ? ex_var(x, 1) : reduce_over(&b, c->in);
    int nv = 1, nw = 0;
    if (t->split) iv[nv++] = iw[nw++] = ex_var(x, 1);
    iv[nv++] = iw[nw++] = channel;
    iw[nw++] = depthwise ? ex_i(x, 0) : ex_var(x, spatial - 1);
    for (int i = 0; i < win->n; i++) {
        const Slide *s = &win->dim[i];
        const Unslide *u = &t->u[i];
        const Phases *part = &t->part[i];
        const Expr *j = reduce_over(&b, part->taps), *q = ex_var(x, at[i]);
        const Expr *from = ex_i(x, dim_add(x, dim_add(x, u->first, u->before), part->shift));
        iv[nv] = ex_add(x, q, ex_sub(x, from, ex_mul(x, j, ex_i(x, u->apart))));
        iw[nw] = j;
        if (s->stride > 1) {
            const Expr *r = ex_var(x, at[i] + 1);
            const Expr *phase = ex_add(x, ex_mul(x, r, ex_i(x, part->step)), ex_i(x, part->first));
            iw[nw] = ex_add(x, phase, ex_mul(x, j, ex_i(x, s->stride)));
            iv[nv] = ex_add(x, iv[nv], ex_mul(x, r, ex_i(x, part->shifts)));
        }
        nv++, nw++;
    }
    if (!b.n_red) build_red(&b, 1);
    const Expr *product = ex_mul(x, ex_cast(x, acc, build_load(&b, t->v, iv)),
                                 ex_cast(x, acc, build_load(&b, t->w, iw)));
    const Expr *post = NULL;
    if (t->bias) post = ex_add(x, ex_acc(x, acc), ex_cast(x, acc, build_load(&b, t->bias, ib)));
    return build_reduce(&b, t->v->dt, COMBINE_sum, product, post);
}

/* The same for all phases of dimension i and further. Where the first ones have a tap more, they
 * are a sum of their own: the others would add zeros. */
static Value *sum_from(Node *n, Unconvolve *t, int i) {
    if (i == t->win->n) return sum_of_phases(n, t);
    const Slide *s = &t->win->dim[i];
    const int64_t taps = t->u[i].taps, more = dim_varies(s->span) ? 0 : s->span % s->stride;
    const bool apart = s->stride > 1 && more && taps > 1, odd = t->u[i].odd;
    t->part[i] = (Phases){0, s->stride, taps, 1, 0, 0};
    if (odd) t->part[i] = (Phases){1, 2, taps, -1, 0, 1};
    if (!apart) return sum_from(n, t, i + 1);
    Value *sums[2];
    t->part[i] = (Phases){0, more, taps, 1, odd, 0};
    sums[odd] = sum_from(n, t, i + 1);
    t->part[i] = (Phases){more, s->stride - more, taps - 1, 1, 0, 0};
    sums[!odd] = sum_from(n, t, i + 1);
    int axis = t->split ? 4 : 3;
    for (int k = 0; k < i; k++) axis += t->win->dim[k].stride > 1 ? 2 : 1;
    return g_concat(n->g, 2, sums, axis);
}

/* The sum for all q and phases, as [N, M, q * phase ..]. */
static Value *unconvolve(Node *n, const Window *win, const Unslide *u, const Channels *c, Value *v,
                         Value *w, Value *bias) {
    Graph *g = n->g;
    Unconvolve t = {.win = win, .u = u, .c = c, .v = v, .w = w, .bias = bias};
    int64_t flat[MAX_RANK] = {v->dims[0], dim_mul(n->x, c->group, c->out)};
    for (int i = 0; i < win->n; i++) flat[i + 2] = dim_mul(n->x, u[i].count, win->dim[i].stride);
    if (!node_shape_ok(n, win->n + 2, flat)) return NULL;
    t.depthwise = c->group > 1 && c->in == 1 && c->out == 1;
    t.split = c->group > 1 && !t.depthwise;
    if (t.split) {
        t.v = split_dim(g, v, 1, c->group, c->in);
        t.w = split_dim(g, w, 0, c->group, c->in);
        if (bias) t.bias = split_dim(g, bias, 0, c->group, c->out);
    }
    return g_reshape(g, sum_from(n, &t, 0), win->n + 2, flat);
}

void import_conv_transpose(Node *n) {
    Value *v = need_float(n, 0, 3), *w = need_float(n, 1, 3), *bias = node_in(n, 2);
    Window win;
    Channels c;
    Exprs *x = n->x;
    if (!v || !w || !read_channels(n, v, w, true, &c) ||
        !bias_fits(n, bias, dim_mul(x, c.group, c.out)))
        return;
    if (!window_read(n, &win, v, w->dims + 2)) return;
    int n_extra, n_want;
    const int64_t *extra = attr_ints(n, "output_padding", &n_extra);
    const int64_t *want = attr_ints(n, "output_shape", &n_want);
    if (n->failed) return;
    if ((extra && n_extra != win.n) || (want && n_want != win.n && n_want != win.n + 2)) {
        invalid(n, E2004,
                "output_padding and output_shape need a value for each of %d spatial "
                "dimensions",
                win.n);
        return;
    }
    if (want) want += n_want - win.n;
    Unslide u[MAX_SPATIAL];
    int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
    int64_t spread[MAX_RANK] = {w->dims[0], w->dims[1]};
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK] = {1, 1}, shape[MAX_RANK], padded[MAX_RANK];
    shape[0] = padded[0] = v->dims[0];
    shape[1] = dim_mul(x, c.group, c.out);
    padded[1] = v->dims[1];
    int coordinates = 4 + win.n;
    for (int i = 0; i < win.n; i++) {
        Slide *s = &win.dim[i];
        int64_t more = extra ? extra[i] : 0;
        int64_t most = dim_max(x, s->in);
        if (more < 0 || more > INT32_MAX || most < 1 || s->stride > INT32_MAX / most) {
            invalid(n, E2004, "the extents of spatial dimension %d are absurd", i);
            return;
        }
        if (!unplace(n, s, more, win.pad, want ? want + i : NULL)) return;
        int64_t stride = s->stride, end = dim_add(x, s->before, s->out);
        u[i].taps = stride == 1 ? s->kernel : dim_div(x, dim_add(x, s->span, stride - 1), stride);
        u[i].apart = stride == 1 ? s->dilation : 1;
        u[i].first = dim_div(x, s->before, stride);
        int64_t last = dim_div(x, end - 1, stride), reach = dim_mul(x, u[i].taps - 1, u[i].apart);
        u[i].count = dim_sub(x, last, u[i].first) + 1;
        u[i].odd = stride == 2 && !dim_varies(s->before) && s->before % 2;
        if (u[i].odd) {
            u[i].count = dim_div(x, s->out + 1, 2);
            last = dim_add(x, u[i].first, u[i].count);
        }
        u[i].before = before[i + 2] = dim_larger(x, dim_sub(x, reach, u[i].first), 0);
        u[i].after = after[i + 2] = dim_larger(x, dim_sub(x, last, s->in) + 1, 0);
        spread[i + 2] = dim_mul(x, u[i].taps, stride);
        padded[i + 2] = dim_add(x, s->in, dim_add(x, before[i + 2], after[i + 2]));
        if (!u[i].odd) start[i + 2] = dim_sub(x, s->before, dim_mul(x, u[i].first, stride));
        step[i + 2] = 1;
        shape[i + 2] = s->out;
        coordinates += s->stride > 1 ? 3 : 2;
    }
    if (coordinates > MAX_RANK) {
        unsupported(n, "%d spatial dimensions with strides are too many", win.n);
        return;
    }
    if (!node_shape_ok(n, v->rank, padded) || !node_shape_ok(n, v->rank, shape) ||
        !node_shape_ok(n, v->rank, spread))
        return;
    v = g_pad(n->g, v, before, after, (Scalar){.f = 0});
    Value *all = unconvolve(n, &win, u, &c, v, spread_taps(n->g, &win, w, spread), bias);
    if (all) n->out[0] = g_slice(n->g, all, start, step, shape);
}

/* The node with one attribute more, a list. */
static Onnx__NodeProto *with_ints(Node *n, char *name, int count, const int64_t *values) {
    Arena *arena = n->g->arena;
    Onnx__NodeProto *proto = ARENA_NEW(arena, Onnx__NodeProto);
    Onnx__AttributeProto *more = ARENA_NEW(arena, Onnx__AttributeProto);
    *proto = *n->proto;
    onnx__attribute_proto__init(more);
    more->name = name;
    more->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    more->n_ints = (size_t)count;
    more->ints = arena_copy(arena, values, (size_t)count * sizeof *values);
    proto->n_attribute = n->proto->n_attribute + 1;
    proto->attribute = ARENA_ARRAY(arena, proto->n_attribute, Onnx__AttributeProto *);
    for (size_t i = 0; i < n->proto->n_attribute; i++) proto->attribute[i] = n->proto->attribute[i];
    proto->attribute[n->proto->n_attribute] = more;
    return proto;
}

/* Of com.microsoft: the pads are an input, which must be constant. */
void import_ms_conv_transpose_with_pads(Node *n) {
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_in(n, 3)};
    int count = 0;
    const int64_t *pads = node_need_ints(n, 2, "the pads", &count);
    if (!v[0] || !v[1] || n->failed) return;
    for (int i = 0; i < count; i++)
        if (dim_varies(pads[i])) {
            unsupported(n, "pads that vary");
            return;
        }
    Node other = *n;
    if (pads) other.proto = with_ints(n, "pads", count, pads);
    n->out[0] = import_as(&other, import_conv_transpose, 11, 3, v);
    n->failed |= other.failed;
}

/* --- deformable convolution ------------------------------------------------------------------- */

/* cols[n, channel, k.., o..]: the input at each tap's place moved by the offset, linear between
 * elements and zero outside, times the mask. */
static Value *deformed(Node *n, const Window *win, Value *v, Value *offset, Value *mask,
                       int64_t groups) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int d = win->n;
    DType dt = v->dt, work = float_work(dt);
    int64_t shape[MAX_RANK] = {v->dims[0], v->dims[1]}, taps = 1;
    for (int i = 0; i < d; i++) {
        shape[2 + i] = win->dim[i].kernel;
        shape[2 + d + i] = win->dim[i].out;
        taps = dim_mul(x, taps, win->dim[i].kernel);
    }
    int rank = 2 + 2 * d;
    int64_t most[MAX_RANK];
    dims_max(x, rank, shape, most);
    if (!shape_fits(rank, most)) {
        unsupported(n, "the sampled input would have more than 2^31-1 elements");
        return NULL;
    }
    Builder b = build(g, rank, shape);
    const Expr *tap = ex_i(x, 0), *low[MAX_SPATIAL], *part[MAX_SPATIAL];
    for (int i = 0; i < d; i++)
        tap = ex_add(x, ex_mul(x, tap, ex_i(x, win->dim[i].kernel)), ex_var(x, 2 + i));
    const Expr *group = ex_div(x, ex_var(x, 1), ex_i(x, dim_div(x, v->dims[1], groups)));
    tap = ex_add(x, ex_mul(x, group, ex_i(x, taps)), tap);
    const Expr *index[MAX_RANK] = {ex_var(x, 0)};
    for (int i = 0; i < d; i++) index[2 + i] = ex_var(x, 2 + d + i);
    for (int i = 0; i < d; i++) {
        const Slide *s = &win->dim[i];
        index[1] = ex_add(x, ex_mul(x, tap, ex_i(x, d)), ex_i(x, i));
        const Expr *fixed = ex_add(x, ex_mul(x, ex_var(x, 2 + d + i), ex_i(x, s->stride)),
                                   ex_mul(x, ex_var(x, 2 + i), ex_i(x, s->dilation)));
        const Expr *at = ex_add(x, ex_cast(x, work, ex_sub(x, fixed, ex_i(x, s->before))),
                                ex_cast(x, work, build_load(&b, offset, index)));
        /* far outside everything is zero; NaN becomes such a place too */
        const Expr *lowest = ex_num(x, work, -2), *highest = extent_as(x, work, s->in + 1);
        at = ex_select(x, ex_lt(x, lowest, at), at, lowest);
        at = ex_select(x, ex_lt(x, at, highest), at, highest);
        const Expr *floor = ex_un(x, EX_floor, at);
        low[i] = ex_cast(x, DT_i32, floor);
        part[i] = ex_sub(x, at, floor);
    }
    const Expr *sum = NULL, *one = ex_num(x, work, 1), *zero = ex_num(x, work, 0);
    for (int corner = 0; corner < 1 << d; corner++) {
        const Expr *weight = one, *inside = ex_int(x, DT_bool, 1);
        const Expr *iv[MAX_RANK] = {ex_var(x, 0), ex_var(x, 1)};
        for (int i = 0; i < d; i++) {
            bool high = corner >> i & 1;
            const Expr *at = high ? ex_add(x, low[i], ex_i(x, 1)) : low[i];
            inside = ex_and(x, inside, ex_le(x, ex_i(x, 0), at));
            inside = ex_and(x, inside, ex_lt(x, at, ex_i(x, win->dim[i].in)));
            weight = ex_mul(x, weight, high ? part[i] : ex_sub(x, one, part[i]));
            iv[2 + i] = at;
        }
        const Expr *e = ex_mul(x, weight, ex_cast(x, work, build_load(&b, v, iv)));
        e = ex_select(x, inside, e, zero);
        sum = sum ? ex_add(x, sum, e) : e;
    }
    if (mask) {
        index[1] = tap;
        sum = ex_mul(x, sum, ex_cast(x, work, build_load(&b, mask, index)));
    }
    return build_map(&b, dt == DT_f64 ? DT_f64 : DT_f32, sum);
}

/* The offsets (per: one number for each spatial dimension) and the mask (per 1) have a shape of
 * [N, groups * taps * per, o..]. */
static bool per_tap_shape(Node *n, const Window *win, const Value *v, const char *what,
                          int64_t batch, int64_t groups, int per) {
    int64_t channels = groups * per;
    bool fits = v->rank == win->n + 2 && dim_meets(n->x, v->dims[0], batch);
    for (int i = 0; i < win->n && fits; i++) {
        channels = dim_mul(n->x, channels, win->dim[i].kernel);
        fits = dim_meets(n->x, v->dims[i + 2], win->dim[i].out) &&
               dim_max(n->x, channels) <= INT32_MAX;
    }
    if (fits && dim_meets(n->x, v->dims[1], channels)) return true;
    invalid(n, E2005, "the %s has shape %s, which does not fit kernel and output", what,
            shape_text(n->g->arena, v->rank, v->dims));
    return false;
}

void import_deform_conv(Node *n) {
    Value *v = need_float(n, 0, 3), *w = need_float(n, 1, 3), *offset = need_float(n, 2, 3);
    Value *bias = node_in(n, 3), *mask = node_in(n, 4);
    Window win;
    Channels c;
    if (!v || !w || !offset || !read_channels(n, v, w, false, &c) ||
        !bias_fits(n, bias, w->dims[0]) || !window_place(n, &win, v, w->dims + 2, false))
        return;
    int64_t groups = attr_int(n, "offset_group", 1);
    if (win.n > 3) {
        unsupported(n, "%d spatial dimensions; at most 3 are supported", win.n);
        return;
    }
    if (groups < 1 || groups > INT32_MAX || (!dim_varies(v->dims[1]) && v->dims[1] % groups)) {
        invalid(n, E2004, "offset_group %lld does not divide %lld channels", (long long)groups,
                (long long)v->dims[1]);
        return;
    }
    if (!per_tap_shape(n, &win, offset, "offset", v->dims[0], groups, win.n) ||
        (mask && !per_tap_shape(n, &win, mask, "mask", v->dims[0], groups, 1)))
        return;
    Value *cols = deformed(n, &win, v, offset, mask, groups);
    if (!cols) return;
    /* the product with the weights: a convolution whose every window is its own */
    Graph *g = n->g;
    Exprs *x = n->x;
    int64_t shape[MAX_RANK] = {v->dims[0], w->dims[0]};
    for (int i = 0; i < win.n; i++) shape[2 + i] = win.dim[i].out;
    if (!node_shape_ok(n, v->rank, shape)) return;
    Builder b = build(g, v->rank, shape);
    const Expr *ic[MAX_RANK] = {ex_var(x, 0)}, *iw[MAX_RANK] = {ex_var(x, 1)};
    iw[1] = build_red(&b, c.in);
    const Expr *group = ex_div(x, ex_var(x, 1), ex_i(x, c.out));
    ic[1] = ex_add(x, ex_mul(x, group, ex_i(x, c.in)), iw[1]);
    for (int i = 0; i < win.n; i++) {
        ic[2 + i] = iw[2 + i] = reduce_over(&b, win.dim[i].kernel);
        ic[2 + win.n + i] = ex_var(x, 2 + i);
    }
    DType acc = cols->dt;
    const Expr *product =
        ex_mul(x, build_load(&b, cols, ic), ex_cast(x, acc, build_load(&b, w, iw)));
    const Expr *post = NULL, *ib[1] = {ex_var(x, 1)};
    if (bias) post = ex_add(x, ex_acc(x, acc), ex_cast(x, acc, build_load(&b, bias, ib)));
    n->out[0] = build_reduce(&b, v->dt, COMBINE_sum, product, post);
}

/* --- columns to image ------------------------------------------------------------------------- */

/* The image's shape [N, C, D..], from constant inputs or as declared. False after a report. */
static bool image_shape(Node *n, const Value *v, int *rank, int64_t *shape) {
    int n_image, n_block;
    const int64_t *image = node_ints(n, 1, &n_image), *block = node_ints(n, 2, &n_block);
    if (image && block) {
        Exprs *x = n->x;
        int64_t taps = 1, most = 1;
        for (int i = 0; i < n_block && most >= 1 && most <= INT32_MAX; i++) {
            int64_t size = dim_max(x, block[i]);
            taps = size < 1 || size > INT32_MAX ? 0 : dim_mul(x, taps, block[i]);
            most = dim_max(x, taps);
        }
        bool divides = dim_varies(taps) || dim_varies(v->dims[1]);
        if (most < 1 || most > INT32_MAX || (!divides && v->dims[1] % taps) || n_image != n_block ||
            n_image > MAX_SPATIAL) {
            invalid(n, E2005, "blocks of %s elements do not fit %s rows, or the image",
                    dim_text(x, taps), dim_text(x, v->dims[1]));
            return false;
        }
        shape[0] = v->dims[0], shape[1] = dim_div(x, v->dims[1], taps);
        for (int i = 0; i < n_image; i++) shape[i + 2] = image[i];
        *rank = n_image + 2;
    } else if (!node_declared_shape(n, 0, rank, shape)) {
        node_need_ints(n, image ? 2 : 1, image ? "the block's shape" : "the image's shape",
                       &n_image);
        return false;
    }
    if (!node_shape_ok(n, *rank, shape)) return false;
    bool open = dim_varies(shape[1]) || dim_varies(v->dims[1]);
    if (*rank >= 3 && dim_meets(n->x, shape[0], v->dims[0]) &&
        (open || (shape[1] >= 1 && v->dims[1] % shape[1] == 0)))
        return true;
    invalid(n, E2005, "an image of shape %s is not made of %s",
            shape_text(n->g->arena, *rank, shape), shape_text(n->g->arena, v->rank, v->dims));
    return false;
}

/* Every position sums what all blocks put there: element k of the block in place l (both taken
 * apart by dimensions) lies at l * stride + k * dilation - before. The block's extents may be
 * run-time values. */
void import_col2_im(Node *n) {
    Value *v = node_need(n, 0), *image = node_need(n, 1), *block = node_need(n, 2);
    int rank, n_block;
    int64_t shape[MAX_RANK];
    if (!v || !image || !block) return;
    if (v->rank != 3) {
        invalid(n, E2005, "the input has %d dimensions, not 3", v->rank);
        return;
    }
    if (!image_shape(n, v, &rank, shape)) return;
    int d = rank - 2;
    if (block->rank != 1 || !dim_meets(n->x, block->dims[0], d)) {
        invalid(n, E2005, "the block's shape has not %d dimensions", d);
        return;
    }
    Value like = *v; /* the image, for the attributes to be checked against */
    const int64_t *known = node_ints(n, 2, &n_block);
    int64_t ones[MAX_SPATIAL];
    int64_t rows = known ? dim_product(n->x, d, known) : dim_div(n->x, v->dims[1], shape[1]);
    for (int i = 0; i < d; i++) ones[i] = 1;
    like.rank = rank;
    like.dims = shape;
    Window win;
    if (!window_read(n, &win, &like, ones)) return;
    Exprs *x = n->x;
    Builder b = build(n->g, rank, shape);
    const Expr *row = build_red(&b, rows), *rest = row, *place = ex_i(x, 0), *run = ex_i(x, 1);
    const Expr *zero = ex_i(x, 0), *hit = ex_int(x, DT_bool, 1);
    for (int i = d - 1; i >= 0; i--) {
        const Slide *s = &win.dim[i];
        const Expr *stride = ex_i(x, s->stride), *dilation = ex_i(x, s->dilation),
                   *at[1] = {ex_i(x, i)};
        const Expr *size =
            known ? ex_i(x, known[i])
                  : ex_bin(x, EX_max, ex_i(x, 1), ex_cast(x, DT_i32, build_load(&b, block, at)));
        const Expr *k = ex_bin(x, EX_rem, rest, size);
        rest = ex_div(x, rest, size);
        const Expr *room = ex_sub(x, ex_i(x, dim_add(x, s->in, s->before + s->after - 1)),
                                  ex_mul(x, ex_sub(x, size, ex_i(x, 1)), dilation));
        const Expr *count = ex_add(x, ex_div(x, room, stride), ex_i(x, 1));
        const Expr *from =
            ex_sub(x, ex_add(x, ex_var(x, 2 + i), ex_i(x, s->before)), ex_mul(x, k, dilation));
        const Expr *l = ex_div(x, from, stride);
        hit = ex_and(x, hit, ex_le(x, zero, from));
        hit = ex_and(x, hit, ex_bin(x, EX_eq, ex_bin(x, EX_rem, from, stride), zero));
        hit = ex_and(x, hit, ex_lt(x, l, count));
        place = ex_add(x, place, ex_mul(x, l, run));
        run = ex_mul(x, run, count);
    }
    /* where the extents say otherwise than the declared shape, nothing outside is read */
    hit = ex_and(x, hit, ex_and(x, ex_le(x, zero, place), ex_lt(x, place, ex_i(x, v->dims[2]))));
    const Expr *index[3] = {ex_var(x, 0), ex_add(x, ex_mul(x, ex_var(x, 1), ex_i(x, rows)), row),
                            place};
    /* the sum of bools is whether there is one */
    DType acc = v->dt == DT_bool ? DT_i32 : dt_reg(v->dt);
    const Expr *e = ex_cast(x, acc, build_load(&b, v, index));
    n->out[0] = build_reduce(&b, v->dt, COMBINE_sum, ex_select(x, hit, e, ex_num(x, acc, 0)), NULL);
}
