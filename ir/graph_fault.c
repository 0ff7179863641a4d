/* Runs that contradict the model: see graph.h.
 *
 * Where dimensions vary, importers take for granted what ONNX promises of shapes: that two extents
 * are equal, that a computed one is within its range. Bodies never read or write outside of tensors
 * even where that does not hold, and what is here makes a status of it: the number of the first
 * thing taken for granted that does not.
 */
#include "ir/graph.h"

#include <string.h>

static Graph *top_of(Graph *g) {
    while (g->parent) g = g->parent;
    return g;
}

/* The number of "node: what", which is the same for the same words. */
static int fault_number(Graph *g, const char *what) {
    Graph *top = top_of(g);
    char *text = arena_printf(g->arena, "%s: %s", g->src ? g->src : g->name, what);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' '; /* it is one line */
    for (int i = 0; i < top->faults.n; i++)
        if (!strcmp(top->faults.items[i], text)) return i + 1;
    vec_push(top->arena, &top->faults, text);
    return top->faults.n;
}

Value *graph_first_fault(Graph *g, Value *first, Value *second) {
    Builder b = build(g, 0, NULL);
    const Expr *one = build_in(&b, first), *other = build_in(&b, second);
    return build_map(&b, DT_i32, ex_select(b.x, ex_bin(b.x, EX_eq, one, ex_i(b.x, 0)), other, one));
}

void graph_join_fault(Graph *g, Value *fault) {
    g->fault = g->fault ? graph_first_fault(g, g->fault, fault) : fault;
}

void graph_note_fault(Graph *g, Value *fault, const char *what) {
    Scalar known;
    if (value_known(g, fault, &known) && !known.i) return;
    Value *number = g_scalar(g, DT_i32, fault_number(g, what));
    graph_join_fault(g, g_where(g, fault, number, g_scalar(g, DT_i32, 0)));
}

void graph_limit_fault(Graph *g, Value *when) {
    if (g->fault) g->fault = g_where(g, when, g->fault, g_scalar(g, DT_i32, 0));
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

static const char *const broken_text[] = {[CLAIM_equal] = "extents that must be equal differ",
                                          [CLAIM_broadcast] = "extents do not broadcast",
                                          [CLAIM_at_most] = "an extent is out of its range"};

void graph_note_claims(Graph *g) {
    DimClaim *claim;
    int n = dim_take_claims(g->x, &claim);
    for (int i = 0; i < n; i++) {
        if (noted(g, &claim[i])) continue;
        vec_push(g->arena, &g->claims, claim[i]);
        Builder b = build(g, 0, NULL);
        Value *fault = build_map(&b, DT_bool, broken(g->x, &claim[i]));
        graph_note_fault(g, fault, broken_text[claim[i].kind]);
    }
}

Faults graph_begin_faults(Graph *g) {
    Faults before = {g->fault, g->claims.n, top_of(g)->faults.n};
    g->fault = NULL;
    return before;
}

void graph_end_faults(Graph *g, const Faults *before, Value *when) {
    if (when) {
        graph_limit_fault(g, when);
        g->claims.n = before->n_claims;
    }
    Value *fault = g->fault;
    g->fault = before->fault;
    if (fault) graph_join_fault(g, fault);
}

void graph_drop_faults(Graph *g, const Faults *before) {
    g->fault = before->fault;
    g->claims.n = before->n_claims;
    top_of(g)->faults.n = before->n_faults;
}

void graph_output_status(Graph *g) {
    if (!g->fault) return;
    int at = g->outputs.n;
    graph_output(g, g->fault, "mlcc.status");
    g->output_shape.items[at] = at;
}

int graph_status_output(const Graph *g) {
    for (int i = 0; i < g->outputs.n; i++)
        if (g->output_shape.items[i] == i) return i;
    return -1;
}
