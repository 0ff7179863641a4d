/* plan: where every tensor lies.
 *
 * Inputs and outputs lie where the caller says, constants in the weights block, what is kept
 * between runs in the block of states, all else in one arena. A tensor lives from the first step
 * that touches it to the last; one that is used inside a loop but made outside, or carried, lives
 * as long as the loop. Elementwise kernels write over an operand that dies with them. Offsets: one
 * tensor after the other, each at the lowest place free for its whole life, in the order of those
 * that are tried that takes least. What an iteration of a loop makes for itself lies together where
 * threads may do iterations apart.
 *
 * What a state is after the run gets the state's memory at once where nothing reads the state any
 * more when it is first written, or where each element is read just before it is written; so does
 * what that is a changed copy of. Where neither holds it has memory of its own, and the copy at the
 * end of the run remains. Copies of a tensor to where it lies are left out.
 */
#include "ir/constant.h"
#include "passes/passes.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MUCH_BYTES 256 /* of a constant, to look for one of the same elements */

typedef struct Life {
    Value *root;
    int first, last;
    int64_t bytes, offset;
    int merged; /* lies in this other life's memory; -1: in its own */
    int state;  /* its memory is that of this state; -1: it is in the arena */
    int block;  /* it lies in the block of this loop, at `offset` there; -1: it does not */
} Life;

typedef struct PlanLoop {
    int begin, end; /* steps */
    int parent;     /* the loop around it; -1: none */
} PlanLoop;

/* A value that the caller gives memory to, and its number among the inputs or outputs. */
typedef struct End {
    const Value *root;
    int number;
} End;

typedef struct Plan {
    Program *p;
    End *inputs, *outputs; /* sorted by address, to be searched */
    const Target *target;
    VEC(Life) lives;
    VEC(PlanLoop) loops;
    int *loop_of; /* of every step: the innermost loop around it; -1: none */
} Plan;

static int by_root(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)((const End *)a)->root, y = (uintptr_t)((const End *)b)->root;
    return (x > y) - (x < y);
}

static End *find_ends(Arena *arena, int n, Value **values) {
    End *ends = ARENA_ARRAY(arena, n + 1, End);
    for (int i = 0; i < n; i++) ends[i] = (End){value_storage(values[i]), i};
    qsort(ends, (size_t)n, sizeof *ends, by_root);
    return ends;
}

/* The number of the input or output that lies in `root`; -1: none. */
static int end_number(int n, const End *ends, const Value *root) {
    End key = {root, 0};
    const End *found = bsearch(&key, ends, (size_t)n, sizeof key, by_root);
    return found ? found->number : -1;
}

static int input_index(const Plan *pl, const Value *root) {
    return end_number(pl->p->graph->inputs.n, pl->inputs, root);
}

static int output_index(const Plan *pl, const Value *root) {
    return end_number(graph_n_outputs(pl->p->graph), pl->outputs, root);
}

/* Values outside the arena get no life, but for states. */
static bool in_arena(const Plan *pl, const Value *root) {
    return root->def->kind != OP_const && input_index(pl, root) < 0 && output_index(pl, root) < 0;
}

/* Of the memory that the value lies in. */
static int64_t bytes_of(const Value *v) {
    return value_span(v) * (int64_t)dt_store(v->dt);
}

static bool is_state(const Plan *pl, const Value *root) {
    return input_index(pl, root) >= graph_n_inputs(pl->p->graph);
}

static int64_t align_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* For every step the innermost loop around it, as an index into pl->loops; -1: none. */
static void find_loops(Plan *pl) {
    Program *p = pl->p;
    pl->loop_of = ARENA_ARRAY(p->arena, p->steps.n + 1, int);
    int current = -1;
    for (int i = 0; i < p->steps.n; i++) {
        if (p->steps.items[i].kind == STEP_loop) {
            PlanLoop loop = {i, i, current};
            vec_push(p->arena, &pl->loops, loop);
            current = pl->loops.n - 1;
        }
        pl->loop_of[i] = current;
        if (p->steps.items[i].kind == STEP_end) {
            pl->loops.items[current].end = i;
            current = pl->loops.items[current].parent;
        }
    }
}

/* Lengthens a life to step i. Where the life enters a loop it lasts to the loop's end, for the next
 * iteration needs it again; where it leaves one it began with the loop, for the others wrote to it.
 */
static void extend_life(const Plan *pl, Life *life, int i) {
    if (i > life->last) life->last = i;
    for (int at = pl->loop_of[i]; at >= 0; at = pl->loops.items[at].parent)
        if (pl->loops.items[at].begin > life->first && pl->loops.items[at].end > life->last)
            life->last = pl->loops.items[at].end;
    for (int at = life->first < 0 ? -1 : pl->loop_of[life->first]; at >= 0;
         at = pl->loops.items[at].parent)
        if (pl->loops.items[at].end < i) life->first = pl->loops.items[at].begin;
}

/* States are there before the first step; their lives are the first ones. */
static void begin_states(Plan *pl) {
    Graph *g = pl->p->graph;
    for (int i = 0; i < g->n_states; i++) {
        Value *root = g->inputs.items[graph_n_inputs(g) + i];
        root->index = pl->lives.n;
        Life life = {root, -1, -1, bytes_of(root), 0, -1, i, -1};
        vec_push(pl->p->arena, &pl->lives, life);
    }
}

/* What a launch writes: its last argument. */
static Value *written_by(const Step *s) {
    return s->args[s->kernel->n_params - 1];
}

/* Does the step only store a state for the next run? */
static bool stores_state(const Plan *pl, const Step *s) {
    if (!s->copy) return false;
    const Value *to = written_by(s);
    return to->index >= 0 && to->index < pl->p->graph->n_states &&
           pl->lives.items[to->index].root == to;
}

/* Lives from the first step to the last that touches a value; of a state, that reads it. */
static void find_lives(Plan *pl) {
    Program *p = pl->p;
    begin_states(pl);
    for (int i = 0; i < p->steps.n; i++) {
        const Step *s = &p->steps.items[i];
        for (int a = 0; a < step_n_args(s); a++) {
            Value *root = value_storage(s->args[a]);
            if (a == 1 && stores_state(pl, s)) continue;
            if (!in_arena(pl, root) && !is_state(pl, root)) continue;
            if (root->index < 0) {
                root->index = pl->lives.n;
                int64_t bytes = bytes_of(root);
                Life life = {root, i, i, bytes > 0 ? bytes : 1, 0, -1, -1, -1};
                vec_push(p->arena, &pl->lives, life);
            }
            extend_life(pl, &pl->lives.items[root->index], i);
        }
    }
}

/* The life that `index` finally lies in. */
static int settled(const Plan *pl, int index) {
    while (pl->lives.items[index].merged >= 0) index = pl->lives.items[index].merged;
    return index;
}

/* May the step write over its argument `a`? The mask has a bit for the first 32 arguments. */
static bool in_place(const Step *s, int a) {
    return a < 32 && s->in_place >> a & 1;
}

/* Does another argument, one that is not read in place, lie in this life's memory too? */
static bool read_elsewhere(const Plan *pl, const Step *s, int arg, int home) {
    for (int a = 0; a < s->kernel->n_params - 1; a++) {
        const Value *root = value_storage(s->args[a]);
        if (a != arg && !in_place(s, a) && root->index >= 0 && in_arena(pl, root) &&
            settled(pl, root->index) == home)
            return true;
    }
    return false;
}

/* Step i is the last that reads the state in `root`, and the first that writes its next value. Does
 * it read every element just before it writes that one? */
static bool updates_in_place(const Plan *pl, int i, const Value *root, const Value *next) {
    const Step *s = &pl->p->steps.items[i];
    int last = s->kind == STEP_launch ? s->kernel->n_params - 1 : -1;
    if (last < 0 || pl->loop_of[i] >= 0 || value_storage(s->args[last]) != next) return false;
    for (int a = 0; a < last; a++)
        if (value_storage(s->args[a]) == root && !in_place(s, a)) return false;
    return true;
}

/* What the first step of `life` copies, if nothing reads that afterwards; else NULL. */
static Life *copied_from(const Plan *pl, const Life *life) {
    const Step *s = &pl->p->steps.items[life->first];
    if (!s->copy || value_storage(written_by(s)) != life->root) return NULL;
    const Value *from = value_storage(s->args[0]);
    if (!in_arena(pl, from)) return NULL;
    Life *theirs = &pl->lives.items[from->index];
    return theirs->last == life->first && pl->loop_of[life->first] < 0 ? theirs : NULL;
}

/* Could `life`, which is no larger, lie in the memory of state `now`? */
static bool fits_state(const Plan *pl, const Life *life, const Life *now) {
    return life->first >= now->last &&
           (life->first > now->last || updates_in_place(pl, life->first, now->root, life->root));
}

/* Has the next value of each state computed in the state's memory where that cannot be seen; and
 * what that is a changed copy of, too, as far back as possible. */
static void merge_states(Plan *pl) {
    Graph *g = pl->p->graph;
    for (int i = 0; i < g->n_states; i++) {
        Life *now = &pl->lives.items[i], *first = NULL;
        bool small = true;
        const Value *next = value_storage(g->outputs.items[graph_n_outputs(g) + i]);
        Life *last = next->index >= 0 ? &pl->lives.items[next->index] : NULL;
        for (Life *at = last; at && at->state < 0; at = copied_from(pl, at))
            if ((small &= at->bytes <= now->bytes) && fits_state(pl, at, now)) first = at;
        for (Life *at = last; first; at = copied_from(pl, at)) {
            at->merged = i;
            if (at == first) break;
        }
        now->last = INT_MAX; /* nothing else may lie there */
    }
}

static void merge_in_place(Plan *pl) {
    Program *p = pl->p;
    for (int i = 0; i < p->steps.n; i++) {
        const Step *s = &p->steps.items[i];
        if (s->kind != STEP_launch || !s->in_place) continue;
        Value *out = value_storage(written_by(s));
        if (out->index < 0 || pl->lives.items[out->index].first != i) continue;
        if (pl->lives.items[out->index].merged >= 0) continue; /* in a state */
        for (int a = 0; a < s->kernel->n_params - 1; a++) {
            Value *in = value_storage(s->args[a]);
            if (!in_place(s, a) || in->index < 0) continue;
            int home = settled(pl, in->index);
            Life *mine = &pl->lives.items[out->index], *theirs = &pl->lives.items[home];
            if (home == out->index || theirs->last != i || theirs->bytes < mine->bytes ||
                read_elsewhere(pl, s, a, home))
                continue;
            theirs->last = mine->last;
            mine->merged = home;
            break;
        }
    }
}

static int by_size(const void *a, const void *b) {
    const Life *x = *(Life *const *)a, *y = *(Life *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->root->index - y->root->index;
}

/* Lives that have a place, by time: a tree of spans of steps, each half of the one above. A life is
 * in the lists of the largest spans that it lasts through, so those that are there at some time are
 * in the spans around that time and below. */
typedef struct Timeline {
    Arena *arena;
    int first, steps; /* of the root's span: a power of two */
    VEC(Life *) * span;
    bool *below; /* there are lives in a span or under it */
    VEC(Life *) found;
} Timeline;

static Timeline timeline_new(Arena *arena, int first, int end) {
    Timeline t = {.arena = arena, .first = first, .steps = 1};
    while (t.steps < end - first) t.steps *= 2;
    t.span = arena_array(arena, (size_t)t.steps * 2, sizeof *t.span);
    t.below = ARENA_ARRAY(arena, t.steps * 2, bool);
    return t;
}

/* Span number `at` is that of `steps` steps from `first` on. */
static void timeline_add(Timeline *t, Life *life, int at, int first, int steps) {
    if (life->first >= first + steps || life->last < first) return;
    t->below[at] = true;
    if (life->first <= first && life->last >= first + steps - 1) {
        vec_push(t->arena, &t->span[at], life);
        return;
    }
    timeline_add(t, life, at * 2, first, steps / 2);
    timeline_add(t, life, at * 2 + 1, first + steps / 2, steps / 2);
}

/* Finds those that are there together with `life`, some of them more than once. */
static void timeline_find(Timeline *t, const Life *life, int at, int first, int steps) {
    if (!t->below[at] || life->first >= first + steps || life->last < first) return;
    for (int i = 0; i < t->span[at].n; i++) vec_push(t->arena, &t->found, t->span[at].items[i]);
    if (steps == 1) return;
    timeline_find(t, life, at * 2, first, steps / 2);
    timeline_find(t, life, at * 2 + 1, first + steps / 2, steps / 2);
}

static int by_offset(const void *a, const void *b) {
    const Life *x = *(Life *const *)a, *y = *(Life *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The lowest place that is free for all of `life`. */
static int64_t free_place(const Plan *pl, Timeline *t, const Life *life) {
    int64_t offset = 0;
    t->found.n = 0;
    timeline_find(t, life, 1, t->first, t->steps);
    if (t->found.n) qsort(t->found.items, (size_t)t->found.n, sizeof(Life *), by_offset);
    for (int i = 0; i < t->found.n && t->found.items[i]->offset < offset + life->bytes; i++) {
        const Life *other = t->found.items[i];
        int64_t end = align_up(other->offset + other->bytes, pl->target->buffer_align);
        if (end > offset) offset = end;
    }
    return offset;
}

static int by_start(const void *a, const void *b) {
    const Life *x = *(Life *const *)a, *y = *(Life *const *)b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : by_size(a, b);
}

/* The most bytes that are alive at a step: no plan takes less. */
static int64_t most_alive(const Plan *pl, int n, Life **lives, int first, int end) {
    int64_t *more = ARENA_ARRAY(pl->p->arena, end - first + 2, int64_t), alive = 0, most = 0;
    for (int i = 0; i < n; i++) {
        const int64_t bytes = align_up(lives[i]->bytes, pl->target->buffer_align);
        const int begin = lives[i]->first < first ? first : lives[i]->first;
        more[begin - first] += bytes;
        if (lives[i]->last < end) more[lives[i]->last + 1 - first] -= bytes;
    }
    for (int i = 0; i <= end - first; i++) {
        alive += more[i];
        if (alive > most) most = alive;
    }
    return most;
}

/* Gives each of the lives, in this order, the lowest place; returns how many bytes they take, and
 * the number of the one that reaches highest. */
static int64_t place_in_order(Plan *pl, int n, Life **lives, int first, int end, int *highest) {
    int64_t bytes = 0;
    Arena scratch;
    arena_init(&scratch, pl->p->arena->limit, pl->p->arena->on_limit, pl->p->arena->user);
    Timeline t = timeline_new(&scratch, first, end);
    *highest = 0;
    for (int i = 0; i < n; i++) {
        Life *life = lives[i];
        life->offset = free_place(pl, &t, life);
        timeline_add(&t, life, 1, t.first, t.steps);
        if (life->offset + life->bytes <= bytes) continue;
        bytes = life->offset + life->bytes;
        *highest = i;
    }
    arena_free(&scratch);
    return align_up(bytes, pl->target->buffer_align);
}

#define MOST_PLACINGS 20000 /* of single lives, in search of the order that takes least */

/* Gives each of the lives, of steps from `first` to before `end`, its offset; returns how many
 * bytes they take together. Of the orders that are tried the first that takes least: largest first,
 * as they begin, and from each of these on again and again with the one first that reached highest,
 * until there are no more bytes than are alive at once. */
static int64_t place_together(Plan *pl, int n, Life **lives, int first, int end) {
    static int (*const orders[])(const void *, const void *) = {by_size, by_start};
    if (!n) return 0;
    const int64_t least = most_alive(pl, n, lives, first, end);
    int64_t *offset = ARENA_ARRAY(pl->p->arena, n + 1, int64_t), best = INT64_MAX;
    Life **kept = ARENA_ARRAY(pl->p->arena, n + 1, Life *);
    for (int o = 0; o < 2 && best > least; o++) {
        qsort(lives, (size_t)n, sizeof *lives, orders[o]);
        for (int tries = MOST_PLACINGS / 2 / n; tries >= 0 && best > least; tries--) {
            int highest;
            const int64_t bytes = place_in_order(pl, n, lives, first, end, &highest);
            Life *high = lives[highest];
            for (int i = 0; i < n && bytes < best; i++) {
                kept[i] = lives[i];
                offset[i] = lives[i]->offset;
            }
            if (bytes < best) best = bytes;
            if (highest == 0) break;
            memmove(lives + 1, lives, (size_t)highest * sizeof *lives);
            lives[0] = high;
        }
    }
    for (int i = 0; i < n; i++) kept[i]->offset = offset[i];
    return best;
}

/* Puts what lives within loop number `at` alone into a block, for a thread to have its own, and
 * returns the block's life. Many threads would need much memory if it were more than their caches
 * keep: then the loop's iterations come one after the other, and it returns an empty life. */
static Life place_block(Plan *pl, int at, Life **lives) {
    const PlanLoop *loop = &pl->loops.items[at];
    Step *step = &pl->p->steps.items[loop->begin];
    int n = 0;
    for (int i = 0; i < pl->lives.n; i++) {
        Life *life = &pl->lives.items[i];
        if (life->merged < 0 && life->state < 0 && life->first > loop->begin &&
            life->last < loop->end)
            lives[n++] = life;
    }
    step->own_bytes = place_together(pl, n, lives, loop->begin, loop->end);
    step->apart = step->own_bytes <= pl->target->l2_bytes;
    if (!step->apart) step->own_bytes = 0;
    for (int i = 0; i < n && step->apart; i++) lives[i]->block = at;
    Value *root = n ? lives[0]->root : NULL;
    return (Life){root, loop->begin, loop->end, step->own_bytes, 0, -1, -1, -1};
}

static void place_lives(Plan *pl) {
    Program *p = pl->p;
    int n = 0;
    Life **order = ARENA_ARRAY(p->arena, pl->lives.n + pl->loops.n + 1, Life *);
    Life *block = ARENA_ARRAY(p->arena, pl->loops.n + 1, Life);
    for (int i = 0; i < pl->loops.n; i++)
        if (p->steps.items[pl->loops.items[i].begin].apart) block[i] = place_block(pl, i, order);
    for (int i = 0; i < pl->lives.n; i++) {
        Life *life = &pl->lives.items[i];
        if (life->merged < 0 && life->state < 0 && life->block < 0) order[n++] = life;
    }
    for (int i = 0; i < pl->loops.n; i++)
        if (block[i].bytes) order[n++] = &block[i];
    p->arena_bytes = place_together(pl, n, order, 0, p->steps.n);
    for (int i = 0; i < pl->loops.n; i++)
        p->steps.items[pl->loops.items[i].begin].own_offset = block[i].offset;
    for (int i = 0; i < pl->lives.n; i++)
        if (pl->lives.items[i].block >= 0)
            pl->lives.items[i].offset += block[pl->lives.items[i].block].offset;
}

/* The number of a constant that has its place and the same elements, if it is one of those that
 * take much room; -1: there is none. */
static int find_same(const Program *p, const Value *v) {
    for (int i = 0; i < p->weights.n && value_bytes(v) >= MUCH_BYTES; i++)
        if (constant_same(p->weights.items[i], v)) return i;
    return -1;
}

/* Constants are placed in the weights block in the order of their first use. An empty one takes a
 * place too: printers know constants by their offsets. */
static int64_t weight_offset(Plan *pl, Value *root) {
    Program *p = pl->p;
    if (root->index < 0) root->index = find_same(p, root);
    if (root->index >= 0) return p->weight_offset.items[root->index];
    int64_t offset = align_up(p->weight_bytes, pl->target->buffer_align);
    root->index = p->weights.n;
    vec_push(p->arena, &p->weights, root);
    vec_push(p->arena, &p->weight_offset, offset);
    int64_t bytes = (int64_t)value_bytes(root);
    p->weight_bytes = offset + (bytes ? bytes : 1);
    return offset;
}

static bool is_zeros(const unsigned char *data, int64_t bytes) {
    while (bytes && !data[bytes - 1]) bytes--;
    return bytes == 0;
}

/* The block of states, one behind the other. Their first values are constants. */
static void place_states(Plan *pl) {
    Program *p = pl->p;
    const Graph *g = p->graph;
    for (int i = 0; i < g->n_states; i++) {
        Value *v = g->inputs.items[graph_n_inputs(g) + i];
        StatePlace state = {p->state_bytes, bytes_of(v), -1};
        if (v->data && !is_zeros(v->data, state.bytes)) {
            state.initial = align_up(p->weight_bytes, pl->target->buffer_align);
            vec_push(p->arena, &p->weights, v);
            vec_push(p->arena, &p->weight_offset, state.initial);
            p->weight_bytes = state.initial + state.bytes;
        }
        vec_push(p->arena, &p->states, state);
        p->state_bytes = align_up(p->state_bytes + state.bytes, pl->target->buffer_align);
    }
}

/* Does the step copy something to itself? */
static bool copies_nothing(const Step *s) {
    if (!s->copy) return false;
    const Place *from = &s->places[0], *to = &s->places[s->kernel->n_params - 1];
    return from->space == to->space && from->offset == to->offset &&
           (to->space == PLACE_state || to->space == PLACE_arena);
}

/* The smaller one of two that are one piece of memory lies in the larger one. */
static void tie(Value *a, Value *b) {
    Value *larger = bytes_of(a) >= bytes_of(b) ? a : b;
    if (a != b) (larger == a ? b : a)->storage = larger;
}

/* Leaves out copies to where something lies already, and kernels that nothing launches then. */
static void drop_copies(Program *p) {
    int steps = 0, kernels = 0;
    for (int i = 0; i < p->steps.n; i++) {
        const Step *s = &p->steps.items[i];
        if (copies_nothing(s))
            tie(value_storage(s->args[0]), value_storage(written_by(s)));
        else
            p->steps.items[steps++] = *s;
    }
    if (steps == p->steps.n) return;
    p->steps.n = steps;
    for (int k = 0; k < p->kernels.n; k++) {
        bool launched = false;
        for (int i = 0; i < steps && !launched; i++)
            launched = p->steps.items[i].kernel == p->kernels.items[k];
        if (launched) p->kernels.items[kernels++] = p->kernels.items[k];
    }
    p->kernels.n = kernels;
}

static Place place_of(Plan *pl, Value *v) {
    Value *root = value_storage(v);
    Place place = {.bytes = bytes_of(v)};
    if (root->def->kind == OP_const) {
        place.space = PLACE_weights;
        place.offset = weight_offset(pl, root);
    } else if (root->index >= 0 && pl->lives.items[settled(pl, root->index)].state >= 0) {
        place.space = PLACE_state;
        place.offset = pl->p->states.items[pl->lives.items[settled(pl, root->index)].state].offset;
    } else if (input_index(pl, root) >= 0) {
        place.space = PLACE_input;
        place.index = input_index(pl, root);
    } else if (output_index(pl, root) >= 0) {
        place.space = PLACE_output;
        place.index = output_index(pl, root);
    } else {
        place.space = PLACE_arena;
        place.offset = pl->lives.items[settled(pl, root->index)].offset;
    }
    return place;
}

void pass_plan(Program *p, const PassOptions *o) {
    Plan pl = {.p = p, .target = o->target};
    for (int i = 0; i < p->steps.n; i++)
        for (int a = 0; a < step_n_args(&p->steps.items[i]); a++)
            value_storage(p->steps.items[i].args[a])->index = -1;
    Graph *g = p->graph;
    for (int i = 0; i < g->outputs.n; i++) value_storage(g->outputs.items[i])->index = -1;
    pl.inputs = find_ends(p->arena, g->inputs.n, g->inputs.items);
    pl.outputs = find_ends(p->arena, graph_n_outputs(g), g->outputs.items);
    find_loops(&pl);
    find_lives(&pl);
    merge_states(&pl);
    merge_in_place(&pl);
    place_lives(&pl);
    place_states(&pl);
    for (int i = 0; i < p->steps.n; i++) {
        Step *s = &p->steps.items[i];
        s->places = ARENA_ARRAY(p->arena, step_n_args(s) + 1, Place);
        for (int a = 0; a < step_n_args(s); a++) s->places[a] = place_of(&pl, s->args[a]);
    }
    drop_copies(p);
}
