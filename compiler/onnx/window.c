/* See window.h. */
#include "compiler/onnx/window.h"

#include <string.h>

Value *need_float(Node *n, int i, int rank) {
    Value *v = node_need(n, i);
    if (!v) return NULL;
    if (!dt_is_float(v->dt)) {
        invalid(n, E2006, "input %d has elements of type %s, not floats", i, dt_name(v->dt));
        return NULL;
    }
    if (v->rank < rank) {
        invalid(n, E2005, "input %d has %d dimensions; at least %d are needed", i, v->rank, rank);
        return NULL;
    }
    return v;
}

/* Takes `count` values of an attribute, each in [low, 2^31), to every `step`-th place from `to`;
 * absent: all are `fallback`. */
static bool take_ints(Node *n, const char *name, int count, int64_t low, int64_t fallback,
                      int64_t *to) {
    int have;
    const int64_t *ints = attr_ints(n, name, &have);
    if (n->failed) return false;
    if (ints && have != count) {
        invalid(n, E2004, "attribute '%s' has %d values, expected %d", name, have, count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        to[i] = ints ? ints[i] : fallback;
        if (to[i] >= low && to[i] <= INT32_MAX) continue;
        invalid(n, E2004, "attribute '%s' holds %lld, which is not in [%lld, 2^31)", name,
                (long long)to[i], (long long)low);
        return false;
    }
    return true;
}

bool window_read(Node *n, Window *w, const Value *v, const int64_t *kernel) {
    int64_t size[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], pads[2 * MAX_SPATIAL];
    int pad = attr_choice(n, "auto_pad", AUTO_notset, "NOTSET VALID SAME_UPPER SAME_LOWER");
    if (n->failed) return false;
    *w = (Window){.n = v->rank - 2, .pad = (AutoPad)pad};
    if (v->rank < 3) {
        invalid(n, E2005,
                "the input has shape %s; a window slides over the dimensions from the third "
                "on, and it has none",
                shape_text(n->g->arena, v->rank, v->dims));
        return false;
    }
    if (!kernel && !attr_has(n, "kernel_shape")) {
        invalid(n, E2004, "attribute 'kernel_shape' is missing");
        return false;
    }
    if (!take_ints(n, "kernel_shape", w->n, 1, 1, size) ||
        !take_ints(n, "strides", w->n, 1, 1, stride) ||
        !take_ints(n, "dilations", w->n, 1, 1, dilation) ||
        !take_ints(n, "pads", 2 * w->n, 0, 0, pads))
        return false;
    for (int i = 0; i < w->n; i++) {
        Slide *s = &w->dim[i];
        s->in = v->dims[i + 2];
        bool told = attr_has(n, "kernel_shape");
        s->kernel = !kernel ? size[i] : told ? dim_same(kernel[i], size[i]) : kernel[i];
        s->stride = stride[i];
        s->dilation = dilation[i];
        s->before = pads[i];
        s->after = pads[w->n + i];
        if (kernel && told && !dim_meets(n->x, size[i], kernel[i])) {
            invalid(n, E2005,
                    "attribute 'kernel_shape' says %lld for spatial dimension %d, but the "
                    "weights have %s",
                    (long long)size[i], i, dim_text(n->x, kernel[i]));
            return false;
        }
        int64_t most = dim_max(n->x, s->kernel);
        if (most < 1 || most > INT32_MAX / s->dilation) {
            invalid(n, E2005,
                    "the kernel has %lld elements, %lld apart, along spatial dimension %d",
                    (long long)most, (long long)s->dilation, i);
            return false;
        }
        s->span = dim_mul(n->x, s->kernel - 1, s->dilation) + 1;
    }
    return true;
}

/* The last position, and one, that windows touch, counted from the begin of the padding. */
static int64_t reach_of(Exprs *x, const Slide *s) {
    return dim_add(x, dim_mul(x, s->out - 1, s->stride), s->span);
}

/* Padding and output extent of one dimension. */
static void place(Exprs *x, Slide *s, AutoPad pad, bool ceiling) {
    if (pad == AUTO_same_upper || pad == AUTO_same_lower) {
        s->out = dim_div(x, dim_add(x, s->in, s->stride - 1), s->stride);
        int64_t total = dim_larger(x, dim_sub(x, reach_of(x, s), s->in), 0);
        int64_t half = dim_div(x, total, 2), other = dim_sub(x, total, half);
        s->before = pad == AUTO_same_lower ? other : half;
        s->after = dim_sub(x, total, s->before);
        return;
    }
    if (pad == AUTO_valid) s->before = s->after = 0;
    int64_t room = dim_sub(x, dim_add(x, s->in, s->before + s->after), s->span);
    int64_t ends = dim_add(x, room, s->stride);
    s->out = dim_div(x, dim_larger(x, ends, 0), s->stride);
    if (!ceiling) return;
    /* a window that would begin in the padding at the end does not count */
    int64_t most = dim_div(x, dim_add(x, s->in, s->before + s->stride - 1), s->stride);
    int64_t more = dim_larger(x, dim_add(x, ends, s->stride - 1), 0);
    s->out = dim_smaller(x, dim_div(x, more, s->stride), most);
}

bool window_place(Node *n, Window *w, const Value *v, const int64_t *kernel, bool ceiling) {
    if (!window_read(n, w, v, kernel)) return false;
    w->ceiling = ceiling;
    for (int i = 0; i < w->n; i++) {
        Slide *s = &w->dim[i];
        place(n->x, s, w->pad, ceiling);
        int64_t all = dim_add(n->x, dim_add(n->x, s->in, s->before), s->after);
        if (dim_max(n->x, s->out) <= 0) {
            invalid(n, E2005,
                    "a window of %s positions does not fit into %s of spatial dimension %d",
                    dim_text(n->x, s->span), dim_text(n->x, all), i);
            return false;
        }
        dim_claim(n->x, CLAIM_at_most, 1, s->out); /* it fits into what a run gives */
        if (ceiling && s->dilation == 1 && !dim_varies(all) && s->kernel > all)
            s->kernel = s->span = all; /* behind it there is nothing */
    }
    return true;
}

/* How far windows reach past the end of the input. Less than nothing, where that varies: then what
 * no window touches is cut off. */
static int64_t past_end(Exprs *x, const Window *w, const Slide *s) {
    if (s->before == 0 && s->after == 0 && !w->ceiling) return 0;
    int64_t past = dim_sub(x, reach_of(x, s), dim_add(x, s->before, s->in));
    return dim_varies(past) || past > 0 ? past : 0;
}

Value *window_trim(Node *n, Window *w, Value *weights, int first) {
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK], count[MAX_RANK];
    bool any = false;
    for (int i = 0; i < weights->rank; i++) {
        step[i] = 1;
        count[i] = weights->dims[i];
        Slide *s = i < first ? NULL : &w->dim[i - first];
        if (!s || dim_varies(s->kernel) || dim_varies(s->before)) continue;
        int64_t in = dim_max(n->x, s->in), last = (dim_max(n->x, s->out) - 1) * s->stride;
        int64_t end = s->kernel;
        while (end > 1 && (end - 1) * s->dilation - s->before >= in) end--;
        while (start[i] < end - 1 && start[i] * s->dilation - s->before + last < 0 &&
               s->before >= (start[i] + 1) * s->dilation)
            start[i]++;
        any |= end - start[i] < s->kernel;
        s->before -= start[i] * s->dilation;
        s->kernel = count[i] = end - start[i];
        s->span = (s->kernel - 1) * s->dilation + 1;
    }
    return any ? g_slice(n->g, weights, start, step, count) : weights;
}

Value *window_pad(Node *n, const Window *w, Value *v, Scalar fill) {
    int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0}, shape[MAX_RANK];
    bool any = false;
    for (int i = 0; i < v->rank; i++) {
        int at = i - (v->rank - w->n);
        if (at >= 0) {
            before[i] = w->dim[at].before;
            after[i] = past_end(n->x, w, &w->dim[at]);
        }
        shape[i] = dim_add(n->x, v->dims[i], dim_add(n->x, before[i], after[i]));
        any |= before[i] || after[i];
    }
    if (!any || !node_shape_ok(n, v->rank, shape)) return v;
    return g_pad(n->g, v, before, after, fill);
}

const Expr *reduce_over(Builder *b, int64_t extent) {
    return extent == 1 ? ex_i(b->x, 0) : build_red(b, extent);
}

void window_reduce(Builder *b, const Window *w, int first, const Expr **index, const Expr **tap) {
    Exprs *x = b->x;
    for (int i = 0; i < w->n; i++) {
        const Slide *s = &w->dim[i];
        tap[i] = reduce_over(b, s->kernel);
        index[i] = ex_add(x, ex_mul(x, ex_var(x, first + i), ex_i(x, s->stride)),
                          ex_mul(x, tap[i], ex_i(x, s->dilation)));
    }
}

Value *channels_second(Graph *g, Value *v) {
    int perm[MAX_RANK];
    for (int i = 0; i < v->rank; i++) perm[i] = i < 2 ? i : i - 1;
    if (v->rank > 1) perm[1] = v->rank - 1;
    return g_transpose(g, v, perm);
}

Value *channels_last(Graph *g, Value *v) {
    int perm[MAX_RANK];
    for (int i = 0; i < v->rank; i++) perm[i] = i < 1 ? i : i + 1;
    if (v->rank > 1) perm[v->rank - 1] = 1;
    return g_transpose(g, v, perm);
}
