/* Which kernels are worth sharing, and how; see share_gain.h.
 *
 * With two threads, one that is shared takes half the time. But a step that reads what another has
 * made waits for it, unless the first thread does both. And what lies between them moves from one
 * core to the other, which takes longer than computing something simple: half of it where one of
 * the two is shared and the other is not, or where each thread makes some columns and then reads
 * all columns of some rows; none where each goes on with the rows that it has made. So kernels are
 * shared or not, and in such ways, that all of this takes least, as far as changes of one of them,
 * of two of which one reads the other, or of all shared ones that hang together, find it.
 */
#include "codegen/share_gain.h"

#include "codegen/host.h"
#include "codegen/share_ways.h"

#include <math.h>
#include <string.h>

#define BARRIER_CYCLES 500.0
#define MOVE_CYCLES    0.4     /* for a byte from one core to the other */
#define CALLER_CYCLES  0.02 /* the same of inputs and outputs: who calls again soon leaves them */
#define NEAR_BYTES     1048576 /* that stay in a core's cache */
#define READ_CYCLES    0.1     /* for a byte of others */
#define FAR_CYCLES     0.045   /* for a byte of what a kernel reads or writes if that is more */
#define LEAST_GAIN     5000.0  /* of a run */
#define ALIKE          1.25    /* spans of rows that were rounded up to tiles, to those of others */
#define TILE_VECTORS   16      /* of sums that a matrix unit adds to in a cycle */
#define MOST_ROUNDS    8
#define MOST_EDGES     64 /* of two steps that change together */
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

double share_cycles(Arena *arena, const Kernel *k, int lanes) {
    return cycles_of(arena, k, k->body, lanes);
}

/* --- what lies between ------------------------------------------------------------------------ */

/* A kernel, or a loop whose iterations are apart, or the program that calls. */
typedef struct Sharer {
    Ways ways;
    double cycles;               /* in all launches, by one thread */
    double reads[1 + MOST_WAYS]; /* by way: bytes of weights that a thread reads, of two */
    int way; /* 0: the first thread does it, else 1 + the way in which it is shared */
    VEC(int) edges;
    int group; /* a node of the same one; its own number: the first */
} Sharer;

/* What node `from` makes and `to` reads, and the spans (ways_span) of both by way. */
typedef struct Edge {
    int from, to;
    double wait, bytes; /* cycles of barriers; bytes in all launches */
    double made[MOST_WAYS], read[MOST_WAYS];
} Edge;

/* Who wrote what: the tensor (Value.index: 1 + the first of these), or one that lies inside of it.
 */
typedef struct Maker {
    const Value *value;
    int node, next; /* -1: the last */
    double made[MOST_WAYS];
} Maker;

typedef struct Gain {
    const Program *p;
    Arena *arena;
    Sharer *node; /* kernels, the caller, loops */
    int n;
    double read_cycles; /* for a byte of weights */
    VEC(Edge) edges;
    VEC(Maker) makers;
} Gain;

/* The value in whose memory `v` lies. */
static Value *root_of(Value *v) {
    while (v->inside || v->storage) v = v->inside ? v->inside : v->storage;
    return v;
}

static void add_edge(Gain *h, Edge e) {
    if (e.from == e.to) return;
    vec_push(h->arena, &h->edges, e);
    vec_push(h->arena, &h->node[e.from].edges, h->edges.n - 1);
    vec_push(h->arena, &h->node[e.to].edges, h->edges.n - 1);
}

/* The spans of argument `i` of the step, by way of its node. */
static void find_spans(const Gain *h, const Step *step, int at, int i, double *span) {
    const Ways *ways = &h->node[at].ways;
    for (int w = 0; w < ways->n; w++) span[w] = ways_span(h->p, step->kernel, ways, w, i);
}

/* The edges of what a step of node `at` reads, `times` times. */
static void add_reads(Gain *h, const Step *step, int at, double times) {
    const Maker *maker = h->makers.items;
    Sharer *n = &h->node[at];
    bool waited = false;
    for (int i = 0; i < step->kernel->n_params; i++) {
        const Value *root = root_of(step->args[i]);
        double rest = (double)value_bytes(root);
        if (step->kernel->buffers.items[i]->written) continue;
        Edge e = {.to = at};
        find_spans(h, step, at, i, e.read);
        if (step->places[i].space == PLACE_weights) {
            n->reads[0] += rest * times;
            for (int w = 0; w < n->ways.n; w++)
                n->reads[1 + w] += rest * times * (e.read[w] > 0 ? 0.5 : 1);
        }
        if (step->places[i].space == PLACE_input) {
            e.from = h->p->kernels.n;
            e.bytes = fmin(rest, NEAR_BYTES); /* iterations read parts, or what is there already */
            add_edge(h, e);
        }
        int seen = 0;
        for (int m = root->index - 1; m >= 0; m = maker[m].next)
            if (maker[m].value != root) rest -= (double)value_bytes(maker[m].value);
        for (int m = root->index - 1; m >= 0 && seen++ < MOST_MAKERS; m = maker[m].next) {
            e.from = maker[m].node;
            e.bytes = (maker[m].value == root ? rest : (double)value_bytes(maker[m].value)) * times;
            e.wait = waited ? 0 : BARRIER_CYCLES * times;
            memcpy(e.made, maker[m].made, sizeof e.made);
            add_edge(h, e);
            waited = true;
        }
    }
}

static void add_writes(Gain *h, const Step *step, int at, double times) {
    for (int i = 0; i < step->kernel->n_params; i++) {
        Value *v = step->args[i], *root = root_of(v);
        if (!step->kernel->buffers.items[i]->written) continue;
        if (step->places[i].space == PLACE_output)
            add_edge(h, (Edge){.from = at,
                               .to = h->p->kernels.n,
                               .bytes = fmin((double)value_bytes(v) * times, NEAR_BYTES)});
        Maker m = {.value = v, .node = at, .next = root->index - 1};
        find_spans(h, step, at, i, m.made);
        vec_push(h->arena, &h->makers, m);
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

/* How long the caches take for what the step reads and writes, a lane of each at most for each that
 * it computes in so many cycles; weights are counted elsewhere. */
static double far_cycles(const Step *step, double computed, int lanes) {
    double bytes = 0;
    for (int i = 0; i < step->kernel->n_params; i++)
        if (!value_is_const(root_of(step->args[i]))) bytes += (double)value_bytes(step->args[i]);
    bytes = fmin(bytes, 8.0 * lanes * computed);
    return bytes > NEAR_BYTES ? FAR_CYCLES * bytes : 0;
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
            const double computed = cycles_of(h->arena, k, k->body, lanes);
            h->node[node[s]].cycles += times * fmax(computed, far_cycles(step, computed, lanes));
            add_reads(h, step, node[s], times);
            add_writes(h, step, node[s], times);
        }
    }
}

/* --- the choice ------------------------------------------------------------------------------- */

/* Bytes that each of two threads, or the one that gets more, takes from the other. */
static double moved(const Gain *h, const Edge *e) {
    const int from = h->node[e->from].way, to = h->node[e->to].way;
    if (!from && !to) return 0;
    if (!from || !to) return e->bytes / 2;
    const double made = e->made[from - 1], read = e->read[to - 1];
    if (made < 0 || read < 0) return 0;
    if (read == 0) return e->bytes / 2;
    if (made > read * ALIKE || read > made * ALIKE) return e->bytes / 4;
    const Ways *a = &h->node[e->from].ways, *b = &h->node[e->to].ways;
    return e->bytes * fabs(ways_part(a, from - 1) * made - ways_part(b, to - 1) * read) /
           fmax(made, read);
}

static double cost_of(const Gain *h, const Edge *e) {
    const bool waits = h->node[e->from].way || h->node[e->to].way;
    const bool calls = e->from == h->p->kernels.n || e->to == h->p->kernels.n;
    return (waits ? e->wait : 0) + moved(h, e) * (calls ? CALLER_CYCLES : MOVE_CYCLES);
}

/* Cycles of what node `i` does itself. */
static double own_cost(const Gain *h, int i, int way) {
    const Sharer *n = &h->node[i];
    const double part = way ? ways_part(&n->ways, way - 1) : 1;
    return n->cycles * part + n->reads[way] * h->read_cycles;
}

static double cost_at(const Gain *h, int i) {
    const Sharer *n = &h->node[i];
    double cost = own_cost(h, i, n->way);
    for (int k = 0; k < n->edges.n; k++) cost += cost_of(h, &h->edges.items[n->edges.items[k]]);
    return cost;
}

static double cost_of_both(const Gain *h, int i, int k) {
    double cost = cost_at(h, i) + cost_at(h, k);
    const Sharer *n = &h->node[i];
    for (int e = 0; e < n->edges.n; e++) {
        const Edge *edge = &h->edges.items[n->edges.items[e]];
        if (edge->from == k || edge->to == k) cost -= cost_of(h, edge);
    }
    return cost;
}

/* Does node `i` in the way that costs least, all others as they are; true if that is another. */
static bool improve(Gain *h, int i) {
    Sharer *n = &h->node[i];
    const int before = n->way;
    int best = before;
    double least = cost_at(h, i);
    for (n->way = 0; n->way <= n->ways.n; n->way++) {
        const double cost = cost_at(h, i);
        if (cost >= least) continue;
        least = cost;
        best = n->way;
    }
    n->way = best;
    return best != before;
}

/* The same of two nodes at once, which the edge connects: what one alone would gain, it may lose at
 * the other. */
static bool improve_both(Gain *h, const Edge *between) {
    Sharer *a = &h->node[between->from], *b = &h->node[between->to];
    const int before_a = a->way, before_b = b->way;
    int best_a = before_a, best_b = before_b;
    double least = cost_of_both(h, between->from, between->to);
    for (a->way = 0; a->way <= a->ways.n; a->way++)
        for (b->way = 0; b->way <= b->ways.n; b->way++) {
            const double cost = cost_of_both(h, between->from, between->to);
            if (cost >= least) continue;
            least = cost;
            best_a = a->way;
            best_b = b->way;
        }
    a->way = best_a;
    b->way = best_b;
    return best_a != before_a || best_b != before_b;
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
        if (h->node[e->from].way && h->node[e->to].way)
            h->node[group_of(h, e->from)].group = group_of(h, e->to);
    }
    for (int i = 0; i < h->n; i++)
        if (h->node[i].way)
            gain[group_of(h, i)] += own_cost(h, i, 0) - own_cost(h, i, h->node[i].way);
    for (int i = 0; i < h->edges.n; i++) {
        const Edge *e = &h->edges.items[i];
        if (h->node[e->from].way || h->node[e->to].way)
            gain[group_of(h, h->node[e->from].way ? e->from : e->to)] -= cost_of(h, e);
    }
    for (int i = 0; i < h->n; i++)
        if (h->node[i].way && group_of(h, i) == i && gain[i] > 0) all += gain[i];
    for (int i = 0; i < h->n; i++)
        if (all < LEAST_GAIN || gain[group_of(h, i)] <= 0) h->node[i].way = 0;
}

int *share_gain(const Program *p, const int *ways, int lanes) {
    Arena *arena = p->arena;
    Gain h = {.p = p, .arena = arena, .n = p->kernels.n + 1};
    int *way = ARENA_ARRAY(arena, p->steps.n + 1, int);
    int *node = ARENA_ARRAY(arena, p->steps.n + 1, int);
    number_nodes(&h, node);
    h.node = ARENA_ARRAY(arena, h.n, Sharer);
    h.read_cycles = p->weight_bytes > NEAR_BYTES ? READ_CYCLES : 0;
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (!ways[s]) continue;
        Sharer *n = &h.node[node[s]];
        if (step->kind == STEP_launch)
            ways_of(p, step->kernel, &n->ways);
        else
            n->ways = (Ways){.n = 1, .var = {-1}, .extent = {step->trips}};
        n->way = 1;
    }
    add_steps(&h, node, lanes);
    bool any = true;
    for (int round = 0; round < MOST_ROUNDS && any; round++) {
        any = false;
        for (int i = 0; i < h.n; i++)
            if (h.node[i].ways.n) any |= improve(&h, i);
        for (int i = 0; i < h.edges.n; i++) {
            const Edge *e = &h.edges.items[i];
            const Sharer *from = &h.node[e->from], *to = &h.node[e->to];
            if (from->ways.n && to->ways.n && from->edges.n + to->edges.n <= MOST_EDGES)
                any |= improve_both(&h, e);
        }
    }
    drop_groups(&h);
    for (int s = 0; s < p->steps.n; s++) way[s] = ways[s] ? h.node[node[s]].way : 0;
    return way;
}
