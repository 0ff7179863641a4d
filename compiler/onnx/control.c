/* See control.h. */
#include "compiler/onnx/control.h"

Attempt attempt_begin(Node *n) {
    Attempt a = {n->g->diag->messages.n, n->g->diag->n_errors, n->failed};
    n->failed = false;
    return a;
}

void attempt_undo(Node *n, const Attempt *a) {
    n->g->diag->messages.n = a->n_messages;
    n->g->diag->n_errors = a->n_errors;
    n->failed = a->failed;
}

bool attempt_misfits(Node *n, const Attempt *a) {
    const Diag *diag = n->g->diag;
    for (int i = a->n_messages; i < diag->messages.n; i++)
        if (diag->messages.items[i].code != E2005) return false;
    return n->failed && diag->messages.n > a->n_messages;
}

Value *as_scalar(Node *n, Value *v, const char *what) {
    if (!v) return NULL;
    if (value_numel(v) != 1) {
        invalid(n, E2005, "%s must be one element, not %s", what,
                shape_text(n->g->arena, v->rank, v->dims));
        return NULL;
    }
    return v->rank ? g_reshape(n->g, v, 0, NULL) : v;
}

Value *as_condition(Node *n, Value *v) {
    if (v && v->dt != DT_bool) {
        invalid(n, E2006, "the condition must be a bool, not %s", dt_name(v->dt));
        return NULL;
    }
    Scalar known;
    v = as_scalar(n, v, "the condition");
    return v && value_known(n->g, v, &known) ? g_scalar(n->g, DT_bool, known.i != 0) : v;
}

bool const_scalar(const Value *v, int64_t *value) {
    if (!value_is_const(v)) return false;
    *value = dt_cast(v->dt, DT_i64, dt_load(v->dt, v->data, 0)).i;
    return true;
}

void set_output(Node *n, int i, Entity *e) {
    if (i >= n->n_out) return;
    if (e->kind == ENTITY_tensor)
        n->out[i] = e->tensor;
    else
        n->out_entity[i] = e;
}
