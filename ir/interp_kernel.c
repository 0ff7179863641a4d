/* Interpretation of kernels; see interp.h.
 *
 * All threads of a GPU block run in lock step, statement by statement, as the lanes of tapes, so
 * that barriers are right by themselves; blocks run one after another. A loop over block or thread
 * indices binds its variable to the index, as the printers do. A kernel for CPUs runs as one
 * thread, but the iterations of a parallel or vector loop, which must be independent, become lanes:
 * the outermost such loop that is long enough.
 *
 * When checked, every element of memory that threads share remembers who wrote and read it last:
 * two threads that touch it between barriers, one of them writing, are a race (unless both store
 * the same value). The bookkeeping is in interp_race.c.
 */
#include "ir/interp_race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES_MAX     256                /* of a loop that becomes lanes */
#define PRIVATE_BYTES ((int64_t)1 << 26) /* bound on the private memory of such lanes together */

typedef struct Node Node;

/* A statement made ready to run. */
struct Node {
    const Stmt *stmt;
    Node *next, *body, *other;
    Tape *tape; /* NULL if it has no expression to compute */
    TapeSlot value, *index;
    int width;     /* lanes that run it at most */
    bool expanded; /* for: its iterations are lanes */
    int n_outer;   /* expanded: the variables set before it ... */
    int *outer;
    Scalar *saved; /* for, if: the lanes active before it */
};

typedef struct Machine {
    const Kernel *k;
    Arena *arena;
    const int64_t *scalars;
    bool is_gpu;
    int width;      /* most lanes of any statement */
    int n;          /* lanes of the statement at work ... */
    Scalar *active; /* ... and which of them run it */
    Scalar **vars;
    int64_t *var_extent;
    VEC(int) defined; /* variables met so far, while nodes are built */
    TapeSource *sources;
    void **memory;         /* per buffer */
    int64_t *memory_lanes; /* allotted buffers: lanes there is memory for */
    int64_t block[3];      /* GPU: the block at work */
    Race *race;            /* NULL unless checked */
    const char *message;   /* what went wrong; NULL: nothing */
} Machine;

static bool is_gpu_role(Role role) {
    return role >= ROLE_block_x;
}

/* --- building nodes --------------------------------------------------------------------------- */

static bool has_gpu_role(const Stmt *s) {
    for (; s; s = s->next)
        if ((s->kind == ST_for && is_gpu_role(s->role)) || has_gpu_role(s->body) ||
            has_gpu_role(s->other))
            return true;
    return false;
}

static int64_t buffer_numel(const Buffer *b) {
    return shape_numel(b->rank, b->shape);
}

/* Bytes that the statements allot for each lane that runs them. */
static int64_t private_bytes(const Kernel *k, const Stmt *s) {
    int64_t bytes = 0;
    for (; s; s = s->next) {
        if (s->kind == ST_alloc) {
            const Buffer *b = k->buffers.items[s->buffer];
            bytes += buffer_numel(b) * (int64_t)dt_store(b->dt);
        }
        bytes += private_bytes(k, s->body) + private_bytes(k, s->other);
    }
    return bytes;
}

/* How many lanes the iterations of a loop make: 1 if it is to run as a loop. */
static int lanes_of_loop(const Machine *m, const Stmt *s) {
    int64_t extent = m->k->vars.items[s->var].extent;
    if (m->is_gpu || extent < (s->role == ROLE_parallel ? 16 : 4)) return 1;
    if (s->role != ROLE_parallel && s->role != ROLE_vector) return 1;
    int64_t bytes = private_bytes(m->k, s->body);
    if (extent > LANES_MAX) extent = LANES_MAX;
    while (extent > 1 && bytes * extent > PRIVATE_BYTES) extent /= 2;
    return (int)extent;
}

static int widest(const Machine *m, const Stmt *s) {
    int width = 1;
    for (; s; s = s->next) {
        int lanes = s->kind == ST_for ? lanes_of_loop(m, s) : 1;
        if (lanes == 1) {
            int in_body = widest(m, s->body), in_other = widest(m, s->other);
            lanes = in_body > in_other ? in_body : in_other;
        }
        if (lanes > width) width = lanes;
    }
    return width;
}

static Tape *new_tape(Machine *m, int width) {
    Tape *t = ARENA_NEW(m->arena, Tape);
    *t = (Tape){.arena = m->arena,
                .width = width,
                .n_vars = m->k->vars.n,
                .extent = m->var_extent,
                .given = m->vars,
                .active = m->active,
                .sources = m->sources};
    tape_init(t);
    return t;
}

static Node *build_nodes(Machine *m, const Stmt *s, int width);

static void build_loop_node(Machine *m, Node *node) {
    const Stmt *s = node->stmt;
    int lanes = node->width == 1 ? lanes_of_loop(m, s) : 1;
    int inner = node->width;
    if (lanes > 1) {
        node->expanded = true;
        inner = lanes;
        node->n_outer = m->defined.n;
        node->outer = arena_copy(m->arena, m->defined.items, (size_t)m->defined.n * sizeof(int));
    }
    vec_push(m->arena, &m->defined, s->var);
    node->body = build_nodes(m, s->body, inner);
}

static Node *build_node(Machine *m, const Stmt *s, int width) {
    Node *node = ARENA_NEW(m->arena, Node);
    node->stmt = s;
    node->width = width;
    if (s->kind == ST_for || s->kind == ST_if) node->saved = tape_lanes_new(m->arena, m->width);
    const Expr *value = s->kind == ST_for ? s->extent : s->value;
    bool computes = s->kind != ST_alloc && s->kind != ST_barrier && s->kind != ST_prefetch;
    if (computes) {
        Tape *t = node->tape = new_tape(m, width);
        if (s->kind == ST_store) {
            int rank = m->k->buffers.items[s->buffer]->rank;
            node->index = ARENA_ARRAY(m->arena, rank, TapeSlot);
            for (int i = 0; i < rank; i++) node->index[i] = tape_add(t, s->index[i], NULL);
        }
        node->value = tape_add(t, value, NULL);
        tape_start(t, m->scalars);
    }
    if (s->kind == ST_for) build_loop_node(m, node);
    if (s->kind == ST_let) vec_push(m->arena, &m->defined, s->var);
    if (s->kind == ST_if) {
        node->body = build_nodes(m, s->body, width);
        node->other = build_nodes(m, s->other, width);
    }
    return node;
}

static Node *build_nodes(Machine *m, const Stmt *s, int width) {
    Node *first = NULL, **end = &first;
    for (; s; s = s->next) {
        *end = build_node(m, s, width);
        end = &(*end)->next;
    }
    return first;
}

/* --- running ---------------------------------------------------------------------------------- */

static void fail(Machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(Machine *m, const char *format, ...) {
    if (m->message) return;
    va_list args;
    va_start(args, format);
    m->message = arena_vprintf(m->arena, format, args);
    va_end(args);
}

/* Computes a statement's expressions; false if that failed. */
static bool compute(Machine *m, const Node *node) {
    Tape *t = node->tape;
    for (int k = 0; k < t->loads.n; k++) {
        int buffer = t->loads.items[k]->source;
        if (buffer < m->k->n_params || m->memory[buffer]) continue;
        fail(m, "buffer '%s' is read before it is allotted", m->k->buffers.items[buffer]->name);
        return false;
    }
    tape_step(t, m->n);
    if (t->fault.set) {
        fail(m, "buffer '%s' is read at index %lld in dimension %d, which has extent %lld",
             m->k->buffers.items[t->fault.source]->name, (long long)t->fault.index, t->fault.dim,
             (long long)t->fault.extent);
        return false;
    }
    for (int k = 0; m->race && k < t->loads.n && !m->message; k++) {
        const TapeLoad *l = t->loads.items[k];
        if (m->sources[l->source].lane_step || l->clamp) continue;
        for (int i = 0; i < m->n && !m->message; i++)
            if (m->active[i].i && (!l->mask || l->mask[i].i))
                m->message = race_read(m->race, l->source, l->offset[i], i);
    }
    return !m->message;
}

static int count_active(const Machine *m) {
    int64_t count = 0;
    for (int i = 0; i < m->n; i++) count += m->active[i].i;
    return (int)count;
}

static void run_nodes(Machine *m, const Node *node);

static void run_store(Machine *m, const Node *node) {
    const Stmt *s = node->stmt;
    const Buffer *b = m->k->buffers.items[s->buffer];
    const TapeSource *source = &m->sources[s->buffer];
    if (!compute(m, node)) return;
    if (s->buffer >= m->k->n_params && !m->memory[s->buffer])
        fail(m, "buffer '%s' is written before it is allotted", b->name);
    for (int i = 0; i < m->n && !m->message; i++) {
        if (!m->active[i].i) continue;
        int64_t at = 0;
        for (int dim = 0; dim < b->rank; dim++) {
            int64_t index = node->index[dim].lanes[i].i;
            if (index < 0 || index >= b->shape[dim]) {
                fail(m,
                     "buffer '%s' is written at index %lld in dimension %d, which has extent %lld",
                     b->name, (long long)index, dim, (long long)b->shape[dim]);
                return;
            }
            at = at * b->shape[dim] + index;
        }
        Scalar value = node->value.lanes[i];
        if (m->race && !source->lane_step) {
            m->message = race_write(m->race, s->buffer, at, i, value);
            if (m->message) return;
        }
        dt_save(b->dt, m->memory[s->buffer], (size_t)(at + source->lane_step * i), value);
    }
}

/* Gives a register or shared buffer its memory, with contents that show if they are read. */
static void run_alloc(Machine *m, const Node *node) {
    int buffer = node->stmt->buffer;
    const Buffer *b = m->k->buffers.items[buffer];
    int64_t numel = buffer_numel(b), lanes = b->space == SPACE_shared ? 1 : node->width;
    size_t bytes = (size_t)(numel * lanes) * dt_store(b->dt);
    if (m->memory_lanes[buffer] < lanes) {
        m->memory[buffer] = arena_alloc(m->arena, bytes + 1);
        m->memory_lanes[buffer] = lanes;
    }
    bool is_fnuz = b->dt == DT_f8e4m3fnuz || b->dt == DT_f8e5m2fnuz;
    int poison = !dt_is_float(b->dt) ? 0xa5 : is_fnuz ? 0x80 : 0xff;
    memset(m->memory[buffer], poison, bytes);
    m->sources[buffer].data = m->memory[buffer];
    m->sources[buffer].lane_step = lanes > 1 ? numel : 0;
    if (m->race) race_forget(m->race, buffer);
}

static void run_if(Machine *m, const Node *node) {
    if (!compute(m, node)) return;
    size_t bytes = (size_t)m->n * sizeof *m->active;
    Scalar *saved = node->saved;
    memcpy(saved, m->active, bytes);
    const Scalar *cond = node->value.lanes;
    /* the condition's lanes may be computed again inside: what the else branch needs is kept in
     * `saved` */
    for (int i = 0; i < m->n; i++) {
        int64_t was = m->active[i].i;
        m->active[i].i = was & cond[i].i;
        saved[i].i = was | (was & ~cond[i].i & 1) << 1;
    }
    if (count_active(m)) run_nodes(m, node->body);
    for (int i = 0; i < m->n; i++) m->active[i].i = saved[i].i >> 1;
    if (node->other && count_active(m)) run_nodes(m, node->other);
    for (int i = 0; i < m->n; i++) m->active[i].i = saved[i].i & 1;
}

/* A loop over block or thread indices: they are there already. */
static void run_gpu_loop(Machine *m, const Node *node) {
    const Stmt *s = node->stmt;
    Scalar *var = m->vars[s->var];
    size_t bytes = (size_t)m->n * sizeof *m->active;
    memcpy(node->saved, m->active, bytes);
    for (int i = 0; i < m->n; i++) {
        int64_t index;
        if (s->role < ROLE_thread_x) {
            index = m->block[s->role - ROLE_block_x];
        } else {
            index = i;
            for (int dim = 0; dim < (int)s->role - (int)ROLE_thread_x; dim++)
                index /= m->k->block[dim];
            index %= m->k->block[s->role - ROLE_thread_x];
        }
        var[i].i = index;
        m->active[i].i &= index < node->value.lanes[i].i;
    }
    if (count_active(m)) run_nodes(m, node->body);
    memcpy(m->active, node->saved, bytes);
}

/* Iterations as lanes, LANES_MAX at a time. */
static void run_expanded(Machine *m, const Node *node) {
    const Stmt *s = node->stmt;
    int64_t extent = node->value.lanes[0].i;
    int width = lanes_of_loop(m, s);
    for (int k = 0; k < node->n_outer; k++) {
        Scalar *lanes = m->vars[node->outer[k]];
        for (int i = 1; i < width; i++) lanes[i] = lanes[0];
    }
    if (m->race) race_barrier(m->race, true);
    for (int64_t first = 0; first < extent && !m->message; first += width) {
        m->n = extent - first < width ? (int)(extent - first) : width;
        for (int i = 0; i < m->n; i++) {
            m->active[i].i = 1;
            m->vars[s->var][i].i = first + i;
        }
        if (m->race) race_set_first(m->race, first);
        run_nodes(m, node->body);
    }
    m->n = 1;
    m->active[0].i = 1;
    if (!m->race) return;
    race_set_first(m->race, 0);
    race_barrier(m->race, true);
}

static void run_for(Machine *m, const Node *node) {
    const Stmt *s = node->stmt;
    if (!compute(m, node)) return;
    if (is_gpu_role(s->role)) {
        run_gpu_loop(m, node);
        return;
    }
    if (node->expanded) {
        run_expanded(m, node);
        return;
    }
    /* the extent is kept with the mask, as its slot may be computed again inside */
    Scalar *saved = node->saved, *var = m->vars[s->var];
    int64_t longest = 0;
    bool uniform = true;
    for (int i = 0; i < m->n; i++) {
        int64_t extent = node->value.lanes[i].i;
        saved[i].i = !m->active[i].i ? -1 : extent > 0 ? extent : 0;
        if (saved[i].i > longest) longest = saved[i].i;
    }
    for (int i = 0; i < m->n; i++) uniform &= saved[i].i < 0 || saved[i].i == longest;
    for (int64_t at = 0; at < longest && !m->message; at++) {
        for (int i = 0; i < m->n; i++) var[i].i = at;
        if (!uniform)
            for (int i = 0; i < m->n; i++) m->active[i].i = at < saved[i].i;
        run_nodes(m, node->body);
    }
    if (!uniform)
        for (int i = 0; i < m->n; i++) m->active[i].i = saved[i].i >= 0;
}

static void run_let(Machine *m, const Node *node) {
    if (!compute(m, node)) return;
    Scalar *var = m->vars[node->stmt->var];
    const Scalar *value = node->value.lanes;
    for (int i = 0; i < m->n; i++)
        if (m->active[i].i) var[i] = value[i];
}

static void run_nodes(Machine *m, const Node *node) {
    for (; node && !m->message; node = node->next) {
        switch (node->stmt->kind) {
        case ST_for:
            run_for(m, node);
            break;
        case ST_if:
            run_if(m, node);
            break;
        case ST_store:
            run_store(m, node);
            break;
        case ST_let:
            run_let(m, node);
            break;
        case ST_alloc:
            run_alloc(m, node);
            break;
        case ST_barrier:
            if (count_active(m) != m->n)
                fail(m, "only %d of %d threads come to a barrier", count_active(m), m->n);
            else if (m->race)
                race_barrier(m->race, node->stmt->global);
            break;
        case ST_prefetch:
            break;
        }
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

static void set_up(Machine *m, void *const *buffers) {
    const Kernel *k = m->k;
    m->is_gpu = has_gpu_role(k->body);
    m->width = m->is_gpu ? (int)(k->block[0] * k->block[1] * k->block[2]) : widest(m, k->body);
    m->active = tape_lanes_new(m->arena, m->width);
    m->vars = ARENA_ARRAY(m->arena, k->vars.n, Scalar *);
    m->var_extent = ARENA_ARRAY(m->arena, k->vars.n, int64_t);
    for (int i = 0; i < k->vars.n; i++) {
        m->vars[i] = tape_lanes_new(m->arena, m->width);
        m->var_extent[i] = k->vars.items[i].extent;
    }
    m->sources = ARENA_ARRAY(m->arena, k->buffers.n, TapeSource);
    m->memory = ARENA_ARRAY(m->arena, k->buffers.n, void *);
    m->memory_lanes = ARENA_ARRAY(m->arena, k->buffers.n, int64_t);
    for (int i = 0; i < k->buffers.n; i++) {
        const Buffer *b = k->buffers.items[i];
        if (i < k->n_params) m->memory[i] = buffers[i];
        m->sources[i] =
            (TapeSource){.data = m->memory[i], .dt = b->dt, .rank = b->rank, .shape = b->shape};
    }
}

/* Parameters hold what the kernel takes for granted. */
static void check_ranges(Machine *m) {
    for (int i = 0; i < m->k->n_params; i++) {
        const Buffer *b = m->k->buffers.items[i];
        int64_t elements = b->high < HUGE_VAL ? shape_numel(b->rank, b->shape) : 0;
        for (int64_t at = 0; at < elements; at++) {
            Scalar v = dt_load(b->dt, m->memory[i], (size_t)at);
            double value = dt_is_float(b->dt) ? v.f : (double)v.i;
            if (!(value >= b->low && value <= b->high))
                fail(m, "buffer '%s' holds %g, which is not within %g and %g", b->name, value,
                     b->low, b->high);
        }
    }
}

static void run_machine(Machine *m, void *const *buffers) {
    set_up(m, buffers);
    check_ranges(m);
    const Kernel *k = m->k;
    Node *nodes = build_nodes(m, k->body, m->is_gpu ? m->width : 1);
    int64_t blocks = m->is_gpu ? k->grid[0] * k->grid[1] * k->grid[2] : 1;
    for (int64_t block = 0; block < blocks && !m->message; block++) {
        m->block[0] = block % k->grid[0];
        m->block[1] = block / k->grid[0] % k->grid[1];
        m->block[2] = block / k->grid[0] / k->grid[1];
        m->n = m->is_gpu ? m->width : 1;
        for (int i = 0; i < m->n; i++) m->active[i].i = 1;
        if (m->race) race_begin_block(m->race, block);
        run_nodes(m, nodes);
    }
}

bool interp_kernel_checked(Arena *arena, const Kernel *k, void *const *buffers,
                           const int64_t *scalars, const char **message) {
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    Machine m = {.k = k, .arena = &scratch, .scalars = scalars};
    m.race = race_new(&scratch, k);
    run_machine(&m, buffers);
    if (m.message) *message = arena_printf(arena, "kernel %s: %s", k->name, m.message);
    arena_free(&scratch);
    return !m.message;
}

void interp_kernel(const Kernel *k, void *const *buffers, const int64_t *scalars) {
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    Machine m = {.k = k, .arena = &scratch, .scalars = scalars};
    run_machine(&m, buffers);
    if (m.message) {
        fprintf(stderr, "mlcc: error[E9002]: interpreter: kernel %s: %s\n", k->name, m.message);
        exit(ERR_BUG);
    }
    arena_free(&scratch);
}
