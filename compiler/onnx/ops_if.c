/* If. A condition that is known picks its branch; one that is computed at run time computes both
 * branches and selects between their results, which is sound because operators load inside their
 * tensors and have no effects.
 */
#include "compiler/onnx/control.h"

/* when: whether the branch is taken; NULL: it is. */
static Entity **import_branch(Node *n, const Onnx__GraphProto *branch, Value *when) {
    if (branch->n_input || (size_t)n->n_out > branch->n_output) {
        invalid(n, E2007, "a branch has %zu inputs and %zu outputs, the node %d outputs",
                branch->n_input, branch->n_output, n->n_out);
        return NULL;
    }
    Entity **out = ARENA_ARRAY(n->g->arena, branch->n_output + 1, Entity *);
    Entity *none[1] = {NULL};
    Faults before = graph_begin_faults(n->g);
    bool ok = import_subgraph(n, branch, n->g, none, out, NULL);
    if (ok)
        graph_end_faults(n->g, &before, when);
    else
        graph_drop_faults(n->g, &before);
    return ok ? out : NULL;
}

/* Both branches, where each can be computed. One whose shapes do not fit the inputs' can never be
 * taken: models that serve several input sizes have such branches. */
static bool import_branches(Node *n, const Onnx__GraphProto *const *branch, Value *cond,
                            Entity ***out) {
    Attempt before = attempt_begin(n);
    Value *other = g_un(n->g, EX_not, cond);
    const char *misfitting = "the branch taken does not fit its inputs";
    out[0] = import_branch(n, branch[0], cond);
    bool misfit = attempt_misfits(n, &before);
    if (!out[0] && !misfit) return false;
    Attempt between = attempt_begin(n);
    out[1] = import_branch(n, branch[1], other);
    if (out[1] && out[0]) return true;
    if (out[1]) {
        attempt_undo(n, &before);
        graph_note_fault(n->g, cond, misfitting);
        out[0] = out[1];
        return true;
    }
    if (!out[0] || !attempt_misfits(n, &between)) {
        n->failed = true;
        return false;
    }
    attempt_undo(n, &between);
    graph_note_fault(n->g, other, misfitting);
    out[1] = out[0];
    return true;
}

void import_if(Node *n) {
    Value *cond = as_condition(n, node_need(n, 0));
    const Onnx__GraphProto *branch[2] = {attr_graph(n, "then_branch"),
                                         attr_graph(n, "else_branch")};
    if (!cond || n->failed) return;
    if (!branch[0] || !branch[1]) {
        invalid(n, E2004, "attribute '%s' is missing", branch[0] ? "else_branch" : "then_branch");
        return;
    }
    int64_t known;
    Entity **out[2];
    if (const_scalar(cond, &known)) {
        out[0] = import_branch(n, branch[known ? 0 : 1], NULL);
        for (int i = 0; i < n->n_out && out[0]; i++) set_output(n, i, out[0][i]);
        return;
    }
    if (!import_branches(n, branch, cond, out)) return;
    for (int i = 0; i < n->n_out; i++) {
        Entity *e = select_entity(n, n->g, cond, out[0][i], out[1][i], true);
        if (!e) {
            unsupported(n,
                        "the condition is computed at run time%s, and output %d is %s in one "
                        "branch but %s in the other",
                        node_remedy(n, cond), i, entity_text(n->g->arena, out[0][i]),
                        entity_text(n->g->arena, out[1][i]));
            return;
        }
        set_output(n, i, e);
    }
}
