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
    *w = (Window){.n = v->rank - 2};
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
        s->kernel = kernel ? kernel[i] : size[i];
        s->stride = stride[i];
        s->dilation = dilation[i];
        s->before = pads[i];
        s->after = pads[w->n + i];
        if (kernel && attr_has(n, "kernel_shape") && size[i] != kernel[i]) {
            invalid(n, E2005,
                    "attribute 'kernel_shape' says %lld for spatial dimension %d, but the "
                    "weights have %lld",
                    (long long)size[i], i, (long long)kernel[i]);
            return false;
        }
        if (s->kernel < 1 || s->kernel > INT32_MAX / s->dilation) {
            invalid(n, E2005,
                    "the kernel has %lld elements, %lld apart, along spatial dimension %d",
                    (long long)s->kernel, (long long)s->dilation, i);
            return false;
        }
        s->span = (s->kernel - 1) * s->dilation + 1;
    }
    return true;
}

/* Padding and output extent of one dimension; `how` is auto_pad. */
static void place(Slide *s, const char *how, bool ceiling) {
    if (!strncmp(how, "SAME_", 5)) {
        s->out = (s->in + s->stride - 1) / s->stride;
        int64_t total = (s->out - 1) * s->stride + s->span - s->in;
        if (total < 0) total = 0;
        s->before = !strcmp(how, "SAME_LOWER") ? total - total / 2 : total / 2;
        s->after = total - s->before;
        return;
    }
    if (!strcmp(how, "VALID")) s->before = s->after = 0;
    int64_t room = s->in + s->before + s->after - s->span;
    if (room < 0) {
        s->out = 0;
        return;
    }
    s->out = (room + (ceiling ? s->stride - 1 : 0)) / s->stride + 1;
    /* a window that would begin in the padding at the end does not count */
    if (ceiling && (s->out - 1) * s->stride >= s->in + s->before) s->out--;
}

bool window_place(Node *n, Window *w, const Value *v, const int64_t *kernel, bool ceiling) {
    if (!window_read(n, w, v, kernel)) return false;
    const char *how = attr_str(n, "auto_pad", "NOTSET");
    if (n->failed) return false;
    if (strcmp(how, "NOTSET") && strcmp(how, "VALID") && strcmp(how, "SAME_UPPER") &&
        strcmp(how, "SAME_LOWER")) {
        invalid(n, E2004, "attribute 'auto_pad' is '%s'", how);
        return false;
    }
    for (int i = 0; i < w->n; i++) {
        Slide *s = &w->dim[i];
        place(s, how, ceiling);
        if (s->out > 0) continue;
        invalid(n, E2005,
                "a window of %lld positions does not fit into %lld of spatial dimension %d",
                (long long)s->span, (long long)(s->in + s->before + s->after), i);
        return false;
    }
    return true;
}

Value *window_pad(Node *n, const Window *w, Value *v, Scalar fill) {
    int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0}, shape[MAX_RANK];
    bool any = false;
    for (int i = 0; i < v->rank; i++) {
        int at = i - (v->rank - w->n);
        if (at >= 0) {
            const Slide *s = &w->dim[at];
            int64_t past = (s->out - 1) * s->stride + s->span - s->before - s->in;
            before[i] = s->before;
            after[i] = past > 0 ? past : 0;
        }
        shape[i] = v->dims[i] + before[i] + after[i];
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
