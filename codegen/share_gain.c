/* Which kernels are worth sharing; see share_gain.h.
 *
 * With two threads, one that is shared takes half the time. But a step that reads what another has
 * made waits for it, unless the first thread does both, and where one of the two is shared and the
 * other is not, half of what lies between them moves from one core to the other, which takes longer
 * than computing something simple. So kernels are either shared or not such that all of this takes
 * least, as far as changes of one of them, or of all shared ones that hang together, find it.
 */
#include "codegen/share_gain.h"

#include "codegen/host.h"

#define BARRIER_CYCLES 800.0
#define MOVE_CYCLES    0.2     /* for a byte from one core to the other */
#define WAKE_CYCLES    20000.0 /* for a thread that sleeps */
#define TILE_VECTORS   16      /* of sums that a matrix unit adds to in a cycle */
#define MOST_ROUNDS    8
#define MOST_MAKERS    16 /* of a tensor, that are looked at */

/* --- work ------------------------------------------------------------------------------------- */

/* Does each iteration store beside the one before, and is there no loop in it? */
static bool is_contiguous(const Kernel *k, const Stmt *loop) {
    for (const Stmt *s = loop->body; s; s = s->next) {
        int64_t stride;
        if (s->kind != ST_store && s->kind != ST_let) return false;
        if (s->kind == ST_let) continue;
        int last = k->buffers.items[s->buffer]->rank - 1;
        if (last < 0 || !ex_stride(s->index[last], loop->var, &stride) || stride != 1) return false;
        for (int i = 0; i < last; i++)
            if (!ex_stride(s->index[i], loop->var, &stride) || stride != 0) return false;
    }
    return true;
}

/* About how many cycles the statements take: one a store and what is slow of it, and so many lanes
 * of a vector at once. */
static double cycles_of(Arena *arena, const Kernel *k, const Stmt *s, int lanes) {
    double cycles = 0;
    for (; s; s = s->next) {
        if (s->kind == ST_store || s->kind == ST_let) cycles += 1 + ex_slow_cycles(arena, s->value);
        double inside = cycles_of(arena, k, s->body, lanes) + cycles_of(arena, k, s->other, lanes);
        if (s->kind == ST_for) {
            bool known = ex_is_const(s->extent);
            inside *= (double)(known ? s->extent->k.i : k->vars.items[s->var].extent);
            if (s->role == ROLE_vector || is_contiguous(k, s)) inside /= lanes;
            if (s->role == ROLE_tile) inside /= TILE_VECTORS;
        }
        cycles += inside;
    }
    return cycles;
}

/* --- what lies between ------------------------------------------------------------------------ */

/* A kernel, or a loop whose iterations are apart, or the program that calls. */
typedef struct Sharer {
    double cycles; /* in all launches, by one thread */
    bool can, shared;
    VEC(int) edges;
    int group; /* a node of the same one; its own number: the first */
} Sharer;

/* What node `from` makes and `to` reads. */
typedef struct Edge {
    int from, to;
    double wait, move; /* cycles of barriers, and of moving */
} Edge;

/* Who wrote what: the tensor (Value.index: 1 + the first of these), or one that lies inside of it.
 */
typedef struct Maker {
    const Value *value;
    int node, next; /* -1: the last */
} Maker;

typedef struct Gain {
    const Program *p;
    Arena *arena;
    Sharer *node; /* kernels, the caller, loops */
    int n;
    VEC(Edge) edges;
    VEC(Maker) makers;
} Gain;

/* The value in whose memory `v` lies. */
static Value *root_of(Value *v) {
    while (v->inside || v->storage) v = v->inside ? v->inside : v->storage;
    return v;
}

static void add_edge(Gain *h, int from, int to, double wait, double move) {
    if (from == to) return;
    vec_push(h->arena, &h->edges, ((Edge){from, to, wait, move}));
    vec_push(h->arena, &h->node[from].edges, h->edges.n - 1);
    vec_push(h->arena, &h->node[to].edges, h->edges.n - 1);
}

/* The edges of what a step of node `at` reads, `times` times. */
static void add_reads(Gain *h, const Step *step, int at, double times) {
    const Maker *maker = h->makers.items;
    bool waited = false;
    for (int i = 0; i < step->kernel->n_params; i++) {
        const Value *root = root_of(step->args[i]);
        double rest = (double)value_bytes(root);
        if (step->kernel->buffers.items[i]->written) continue;
        if (step->places[i].space == PLACE_input)
            add_edge(h, h->p->kernels.n, at, 0, rest * MOVE_CYCLES / 2 * times);
        int seen = 0;
        for (int m = root->index - 1; m >= 0; m = maker[m].next)
            if (maker[m].value != root) rest -= (double)value_bytes(maker[m].value);
        for (int m = root->index - 1; m >= 0 && seen++ < MOST_MAKERS; m = maker[m].next) {
            double bytes = maker[m].value == root ? rest : (double)value_bytes(maker[m].value);
            double wait = waited ? 0 : BARRIER_CYCLES * times;
            add_edge(h, maker[m].node, at, wait, bytes * MOVE_CYCLES / 2 * times);
            waited = true;
        }
    }
}

static void add_writes(Gain *h, const Step *step, int at, double times) {
    for (int i = 0; i < step->kernel->n_params; i++) {
        Value *v = step->args[i], *root = root_of(v);
        if (!step->kernel->buffers.items[i]->written) continue;
        if (step->places[i].space == PLACE_output)
            add_edge(h, at, h->p->kernels.n, 0, (double)value_bytes(v) * MOVE_CYCLES / 2 * times);
        vec_push(h->arena, &h->makers, ((Maker){v, at, root->index - 1}));
        root->index = h->makers.n;
    }
}

/* The node of each step: of its kernel, or of the loop that it is in; -1: none. */
static void number_nodes(Gain *h, int *node) {
    const Program *p = h->p;
    int loop = -1; /* whose iterations are apart, that the step is in; it has none inside */
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (step->kind == STEP_loop && step->apart) loop = h->n++;
        node[s] = loop;
        if (step->kind == STEP_end) loop = -1;
        if (step->kind == STEP_launch && loop < 0) node[s] = kernel_index(p, step->kernel);
    }
}

static void add_steps(Gain *h, const int *node, int lanes) {
    const Program *p = h->p;
    double times = 1;
    VEC(double) around = {0};
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        for (int i = 0; step->kind == STEP_launch && i < step->kernel->n_params; i++)
            root_of(step->args[i])->index = 0;
    }
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (step->kind == STEP_loop) {
            vec_push(h->arena, &around, times);
            times *= (double)step->trips;
        } else if (step->kind == STEP_end) {
            times = around.items[--around.n];
        } else {
            const Kernel *k = step->kernel;
            h->node[node[s]].cycles += times * cycles_of(h->arena, k, k->body, lanes);
            add_reads(h, step, node[s], times);
            add_writes(h, step, node[s], times);
        }
    }
}

/* --- the choice ------------------------------------------------------------------------------- */

/* What an edge costs. */
static double cost_of(const Gain *h, const Edge *e) {
    bool from = h->node[e->from].shared, to = h->node[e->to].shared;
    return (from || to ? e->wait : 0) + (from != to ? e->move : 0);
}

/* Cycles that the program takes less if node `i` is what it is not now. */
static double gain_of_change(Gain *h, int i) {
    Sharer *n = &h->node[i];
    double gain = n->shared ? -n->cycles / 2 : n->cycles / 2;
    for (int k = 0; k < n->edges.n; k++) gain += cost_of(h, &h->edges.items[n->edges.items[k]]);
    n->shared = !n->shared;
    for (int k = 0; k < n->edges.n; k++) gain -= cost_of(h, &h->edges.items[n->edges.items[k]]);
    n->shared = !n->shared;
    return gain;
}

static int group_of(Gain *h, int i) {
    while (h->node[i].group != i) i = h->node[i].group = h->node[h->node[i].group].group;
    return i;
}

/* Leaves groups of shared nodes that hang together to the first thread if they gain too little. */
static void drop_groups(Gain *h) {
    double *gain = ARENA_ARRAY(h->arena, h->n + 1, double), all = 0;
    for (int i = 0; i < h->n; i++) h->node[i].group = i;
    for (int i = 0; i < h->edges.n; i++) {
        const Edge *e = &h->edges.items[i];
        if (h->node[e->from].shared && h->node[e->to].shared)
            h->node[group_of(h, e->from)].group = group_of(h, e->to);
    }
    for (int i = 0; i < h->n; i++)
        if (h->node[i].shared) gain[group_of(h, i)] += h->node[i].cycles / 2;
    for (int i = 0; i < h->edges.n; i++) {
        const Edge *e = &h->edges.items[i];
        if (h->node[e->from].shared || h->node[e->to].shared)
            gain[group_of(h, h->node[e->from].shared ? e->from : e->to)] -= cost_of(h, e);
    }
    for (int i = 0; i < h->n; i++)
        if (h->node[i].shared && group_of(h, i) == i && gain[i] > 0) all += gain[i];
    for (int i = 0; i < h->n; i++)
        h->node[i].shared &= all >= WAKE_CYCLES && gain[group_of(h, i)] > 0;
}

bool *share_gain(const Program *p, const bool *can, int lanes) {
    Arena *arena = p->arena;
    Gain h = {.p = p, .arena = arena, .n = p->kernels.n + 1};
    bool *shared = ARENA_ARRAY(arena, p->steps.n + 1, bool);
    int *node = ARENA_ARRAY(arena, p->steps.n + 1, int);
    number_nodes(&h, node);
    h.node = ARENA_ARRAY(arena, h.n, Sharer);
    for (int s = 0; s < p->steps.n; s++)
        if (can[s]) h.node[node[s]].can = h.node[node[s]].shared = true;
    add_steps(&h, node, lanes);
    bool any = true;
    for (int round = 0; round < MOST_ROUNDS && any; round++) {
        any = false;
        for (int i = 0; i < h.n; i++) {
            if (!h.node[i].can || gain_of_change(&h, i) <= 0) continue;
            h.node[i].shared = !h.node[i].shared;
            any = true;
        }
    }
    drop_groups(&h);
    for (int s = 0; s < p->steps.n; s++) shared[s] = can[s] && h.node[node[s]].shared;
    return shared;
}
