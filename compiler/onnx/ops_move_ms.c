/* Operators of com.microsoft that move elements, or make them from indices. */
#include "compiler/onnx/quant.h"

#include <string.h>

/* The pads may be one row of a matrix; modes are those of opset 13. */
void import_ms_pad(Node *n) {
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_in(n, 2)};
    if (!v[0] || !v[1]) return;
    if (!strcmp(attr_str(n, "mode", "constant"), "wrap")) {
        invalid(n, E2004, "mode 'wrap' is unknown");
        return;
    }
    if (v[1]->rank == 2 && v[1]->dims[0] == 1)
        v[1] = g_reshape(n->g, v[1], 1, (int64_t[]){v[1]->dims[1]});
    n->out[0] = import_as(n, import_pad, 13, 3, v);
}

void import_ms_expand_dims(Node *n) {
    Value *v = node_need(n, 0);
    int count;
    const int64_t *given = node_need_ints(n, 1, "the axis", &count);
    if (!v || !given) return;
    if (count != 1 || dim_varies(given[0]) || v->rank >= MAX_TENSOR_RANK) {
        invalid(n, E2005, "%d axes for an input of %d dimensions", count, v->rank);
        return;
    }
    int axis = node_axis(n, given[0], v->rank + 1);
    int64_t shape[MAX_RANK];
    if (axis < 0) return;
    for (int i = 0; i <= v->rank; i++) shape[i] = i == axis ? 1 : v->dims[i - (i > axis)];
    n->out[0] = g_reshape(n->g, v, v->rank + 1, shape);
}

/* By ones where there is no delta. */
void import_ms_range(Node *n) {
    Value *v[3] = {node_need(n, 0), node_need(n, 1), node_in(n, 2)};
    if (!v[0] || !v[1]) return;
    if (!v[2]) v[2] = g_scalar(n->g, v[0]->dt, 1);
    n->out[0] = import_as(n, import_range, 11, 3, v);
}
