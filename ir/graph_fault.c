/* Runs that contradict the model: see graph.h.
 *
 * Where dimensions vary, importers take for granted what ONNX promises of shapes: that two extents
 * are equal, that a computed one is within its range. Bodies never read or write outside of tensors
 * even where that does not hold, and what is here makes a status of it: one bool of all that was
 * taken for granted.
 */
#include "ir/graph.h"

void graph_note_fault(Graph *g, Value *fault) {
    Scalar known;
    if (value_known(g, fault, &known) && !known.i) return;
    g->fault = g->fault ? g_bin(g, EX_or, g->fault, fault) : fault;
}

/* The same from an expression of symbols. */
static void note(Graph *g, const Expr *e) {
    Builder b = build(g, 0, NULL);
    graph_note_fault(g, build_map(&b, DT_bool, e));
}

static const Expr *broken(Exprs *x, const DimClaim *claim) {
    const Expr *a = ex_i(x, claim->a), *b = ex_i(x, claim->b), *one = ex_i(x, 1);
    if (claim->kind == CLAIM_at_most) return ex_lt(x, b, a);
    const Expr *differ = ex_bin(x, EX_ne, a, b);
    if (claim->kind == CLAIM_equal) return differ;
    return ex_and(x, differ, ex_and(x, ex_bin(x, EX_ne, a, one), ex_bin(x, EX_ne, b, one)));
}

static bool noted(const Graph *g, const DimClaim *claim) {
    for (int i = 0; i < g->claims.n; i++) {
        const DimClaim *at = &g->claims.items[i];
        if (at->kind == claim->kind && at->a == claim->a && at->b == claim->b) return true;
    }
    return false;
}

void graph_note_claims(Graph *g) {
    DimClaim *claim;
    int n = dim_take_claims(g->x, &claim);
    for (int i = 0; i < n; i++) {
        if (noted(g, &claim[i])) continue;
        vec_push(g->arena, &g->claims, claim[i]);
        note(g, broken(g->x, &claim[i]));
    }
}

void graph_note_negative(Graph *g, int rank, const int64_t *dims) {
    for (int i = 0; i < rank; i++)
        if (dim_varies(dims[i]) && dim_min(g->x, dims[i]) < 0)
            dim_claim(g->x, CLAIM_at_most, 0, dims[i]);
    graph_note_claims(g);
}

Faults graph_begin_faults(Graph *g) {
    Faults before = {g->fault, g->claims.n};
    g->fault = NULL;
    return before;
}

void graph_end_faults(Graph *g, const Faults *before, Value *when) {
    Value *fault = g->fault;
    g->fault = before->fault;
    if (when) g->claims.n = before->n_claims;
    if (fault) graph_note_fault(g, when ? g_bin(g, EX_and, when, fault) : fault);
}

void graph_drop_faults(Graph *g, const Faults *before) {
    g->fault = before->fault;
    g->claims.n = before->n_claims;
}

void graph_output_status(Graph *g) {
    if (!g->fault) return;
    int at = g->outputs.n;
    graph_output(g, g_cast(g, g->fault, DT_i32), "mlcc.status");
    g->output_shape.items[at] = at;
}

int graph_status_output(const Graph *g) {
    for (int i = 0; i < g->outputs.n; i++)
        if (g->output_shape.items[i] == i) return i;
    return -1;
}
