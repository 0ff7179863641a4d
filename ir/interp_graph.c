/* Interpretation of whole graphs; see interp.h. Operators inside loops are planned once and kept,
 * those outside are planned as they come; a value's memory is taken when it is made and given back
 * after its last use. */
#include "ir/constant.h"
#include "ir/interp_plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct GraphPlan GraphPlan;

typedef struct PlanStep {
    const Op *op;
    OpPlan *plan;   /* NULL outside loops, and for input, const, loop */
    GraphPlan *sub; /* loop */
} PlanStep;

struct GraphPlan {
    const Graph *g;
    VEC(PlanStep) steps;
    int *last_use; /* by Value.id: the step after which it is not needed; outputs: never */
    void **data;   /* by Value.id, of the run at work; graphs in loops do not run twice at once */
    bool *owned;
};

static GraphPlan *graph_plan(Arena *arena, const Graph *g) {
    GraphPlan *p = ARENA_NEW(arena, GraphPlan);
    p->g = g;
    p->last_use = ARENA_ARRAY(arena, g->n_values + 1, int);
    p->data = ARENA_ARRAY(arena, g->n_values + 1, void *);
    p->owned = ARENA_ARRAY(arena, g->n_values + 1, bool);
    for (const Op *op = g->first; op; op = op->next) {
        PlanStep step = {.op = op};
        if (op->kind == OP_loop)
            step.sub = graph_plan(arena, op->sub);
        else if (g->depth > 0 && op->kind != OP_input && op->kind != OP_const)
            step.plan = op_plan(arena, op);
        for (int i = 0; i < op->n_out; i++) p->last_use[op->out[i]->id] = p->steps.n;
        for (int i = 0; i < op->n_in; i++) p->last_use[op->in[i]->id] = p->steps.n;
        vec_push(arena, &p->steps, step);
    }
    for (int i = 0; i < g->outputs.n; i++) p->last_use[g->outputs.items[i]->id] = p->steps.n;
    return p;
}

static bool take(GraphPlan *p, const Value *v) {
    size_t bytes = value_bytes(v);
    void *data = malloc(bytes ? bytes : 1);
    if (!data) {
        diag_error(p->g->diag, E0006, "no memory for %zu bytes of an intermediate tensor", bytes);
        return false;
    }
    p->data[v->id] = data;
    p->owned[v->id] = true;
    return true;
}

static void give_back(GraphPlan *p, const Value *v) {
    if (p->owned[v->id]) free(p->data[v->id]);
    p->owned[v->id] = false;
    p->data[v->id] = NULL;
}

static void copy(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

static bool run_graph(GraphPlan *p, const void *const *inputs, void *const *outputs,
                      int64_t *counters);

/* State lives in the loop's outputs between iterations. As an iteration reads the old state while
 * it writes the new one, it writes to a second set, and the two change places; when the last one
 * has been written to the second set, it is copied. */
static bool run_loop(GraphPlan *p, const Op *op, GraphPlan *sub, int64_t *counters) {
    int n_sub_out = op->sub->outputs.n;
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    const void **in = ARENA_ARRAY(&scratch, op->n_in, const void *);
    void **out = ARENA_ARRAY(&scratch, n_sub_out, void *);
    for (int i = 0; i < op->n_in; i++) in[i] = p->data[op->in[i]->id];
    void **spare = ARENA_ARRAY(&scratch, op->n_state, void *);
    for (int i = 0; i < op->n_state; i++) {
        size_t bytes = value_bytes(op->out[i]);
        spare[i] = arena_alloc(&scratch, bytes ? bytes : 1);
        out[i] = p->data[op->out[i]->id];
    }
    bool ok = true;
    int64_t outer = counters[op->sub->depth - 1];
    for (int64_t trip = 0; trip < op->trips && ok; trip++) {
        counters[op->sub->depth - 1] = trip;
        for (int i = op->n_state; i < n_sub_out; i++)
            out[i] = (unsigned char *)p->data[op->out[i]->id] +
                     (size_t)trip * value_bytes(op->sub->outputs.items[i]);
        ok = run_graph(sub, in, out, counters);
        for (int i = 0; i < op->n_state; i++) {
            void *next = trip == 0 ? spare[i] : (void *)(uintptr_t)in[i];
            in[i] = out[i];
            out[i] = next;
        }
        if (op->go_on && !*(const bool *)in[op->go_on - 1]) break;
    }
    counters[op->sub->depth - 1] = outer;
    for (int i = 0; i < op->n_state && ok; i++)
        if (in[i] != p->data[op->out[i]->id])
            copy(p->data[op->out[i]->id], in[i], value_bytes(op->out[i]));
    arena_free(&scratch);
    return ok;
}

static bool run_step(GraphPlan *p, const PlanStep *step, int64_t *counters) {
    const Op *op = step->op;
    if (op->kind == OP_input) return true;
    if (op->kind == OP_const) {
        const void *data = constant_settle(p->g->arena, op->out[0]);
        p->data[op->out[0]->id] = (void *)(uintptr_t)data;
        return true;
    }
    for (int i = 0; i < op->n_out; i++)
        if (!take(p, op->out[i])) return false;
    if (op->kind == OP_loop) return run_loop(p, op, step->sub, counters);
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    const void **in = ARENA_ARRAY(&scratch, op->n_in + 1, const void *);
    void **out = ARENA_ARRAY(&scratch, op->n_out, void *);
    for (int i = 0; i < op->n_in; i++) in[i] = p->data[op->in[i]->id];
    for (int i = 0; i < op->n_out; i++) out[i] = p->data[op->out[i]->id];
    op_plan_run(step->plan ? step->plan : op_plan(&scratch, op), in, out, counters);
    arena_free(&scratch);
    return true;
}

static bool run_graph(GraphPlan *p, const void *const *inputs, void *const *outputs,
                      int64_t *counters) {
    const Graph *g = p->g;
    bool ok = true;
    for (int i = 0; i < g->inputs.n; i++)
        p->data[g->inputs.items[i]->id] = (void *)(uintptr_t)inputs[i];
    for (int k = 0; k < p->steps.n && ok; k++) {
        const PlanStep *step = &p->steps.items[k];
        ok = run_step(p, step, counters);
        for (int i = 0; i < step->op->n_in; i++)
            if (p->last_use[step->op->in[i]->id] == k) give_back(p, step->op->in[i]);
        for (int i = 0; i < step->op->n_out; i++)
            if (p->last_use[step->op->out[i]->id] == k) give_back(p, step->op->out[i]);
    }
    for (int i = 0; i < g->outputs.n && ok; i++) {
        const Value *v = g->outputs.items[i];
        copy(outputs[i], p->data[v->id], value_bytes(v));
    }
    for (int k = 0; k < p->steps.n; k++)
        for (int i = 0; i < p->steps.items[k].op->n_out; i++)
            give_back(p, p->steps.items[k].op->out[i]);
    return ok;
}

static int max_depth(const Graph *g) {
    int depth = g->depth;
    for (const Op *op = g->first; op; op = op->next) {
        int below = op->kind == OP_loop ? max_depth(op->sub) : 0;
        if (below > depth) depth = below;
    }
    return depth;
}

bool interp_graph(const Graph *g, const void *const *inputs, void *const *outputs) {
    Arena arena;
    arena_init(&arena, 0, NULL, NULL);
    int64_t *counters = ARENA_ARRAY(&arena, max_depth(g) + 1, int64_t);
    bool ok = run_graph(graph_plan(&arena, g), inputs, outputs, counters);
    arena_free(&arena);
    return ok;
}
