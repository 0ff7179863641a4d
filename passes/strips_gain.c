/* strips_gain: what a chain of operators in strips is worth, by a model of what each of them reads
 * and writes, where that lies, and how much of it hides behind what is computed. See strips.h.
 */
#include "passes/inline.h"
#include "passes/nest.h"
#include "passes/strips.h"

#include <math.h>

#define MEMORY_BYTES  4.0    /* that come in a cycle from memory, or go there, */
#define FAR_BYTES     8.0    /* from the cache that cores share, */
#define NEAR_BYTES    32.0   /* and from the L2 cache */
#define MATRIX_TERMS  2.0    /* of a row of a small matrix, which others share */
#define VECTORS       1.5    /* of products in a cycle */
#define LAUNCH_CYCLES 300.0  /* of a kernel, for what happens before its loops and behind them */
#define OTHER_CYCLES  0.05   /* for a byte that another core may have made, or had before */
#define FEW           0.0625 /* of what lies between operators */
#define ROOM          0.8    /* of a cache that a strip may fill */
#define HIDDEN        0.5    /* of the time of what computes: its operands come meanwhile */
#define AGAIN         1.5 /* times that strips read a tensor, if each reads more than rows of its own */
#define LEAST_ROWS    8 /* of a tile of a product */
#define LEAST_STRIPS  8 /* so that threads have the same work */

double strips_of(const Chain *c) {
    double n = 1;
    for (int a = 0; a < c->n_axes; a++) n *= (double)c->axis[a].strips;
    return n;
}

int strip_extents(const Chain *c, const Member *m, int64_t *extent) {
    int n = op_extents(m->op, extent);
    for (int a = 0; a < c->n_axes; a++) extent[m->span[a].coord] = m->span[a].count;
    return n;
}

/* As many are there in every run that has any. */
static double fewest_strips(const Strips *s, const Chain *c) {
    double n = 1;
    for (int a = 0; a < c->n_axes; a++) n *= fmax((double)dim_min(s->g->x, c->axis[a].dim), 1);
    return n;
}

/* The part of the operator that one strip computes. */
static double part_of(const Chain *c, const Member *m) {
    double part = 1;
    for (int a = 0; a < c->n_axes; a++)
        part *= (double)m->span[a].count / (double)m->op->out[0]->shape[m->span[a].coord];
    return part;
}

static double strip_bytes(const Chain *c, const Member *m) {
    return (double)value_bytes(m->op->out[0]) * part_of(c, m);
}

/* Rows of a tensor: all its dimensions but the last. */
static double rows_of(const Value *v) {
    return v->rank ? (double)shape_numel(v->rank - 1, v->shape) : 1;
}

static double steps_of(const Op *op) {
    int64_t extent[MAX_RANK];
    double steps = 1;
    int n = op_extents(op, extent);
    for (int i = 0; i < n; i++) steps *= (double)extent[i];
    return steps;
}

typedef struct Footprint {
    const Op *op;
    int n;
    const int64_t *extent;
    double *bytes; /* by input: that a strip reads, of rows whole lines of a cache */
} Footprint;

static void look_at_reach(void *user, const Expr *e) {
    Footprint *f = user;
    int64_t low, high;
    double elements = 1;
    if (e->op != EX_load) return;
    const Value *v = f->op->in[e->k.i];
    for (int i = 0; i < e->n; i++) {
        bool known = ex_bounds(e->arg[i], f->n, f->extent, &low, &high);
        double width = known ? (double)(high - low + 1) : (double)v->shape[i];
        if (i == e->n - 1) width = fmax(width, LINE_BYTES / (double)dt_store(v->dt));
        elements *= fmin(width, (double)v->shape[i]);
    }
    f->bytes[e->k.i] = fmax(f->bytes[e->k.i], elements * (double)dt_store(v->dt));
}

int chain_member(const Chain *c, const Op *op) {
    for (int i = 0; i < c->n; i++)
        if (c->member[i].op == op) return i;
    return -1;
}

/* Does a member after `m` read it? */
static bool reads(const Chain *c, const Member *m, const Value *v) {
    for (const Member *after = c->member; after < m; after++)
        for (int i = 0; i < after->op->n_in; i++)
            if (after->op->in[i] == v) return true;
    return false;
}

/* Bytes that a member reads. */
typedef struct Reads {
    double again;                /* from outside of the chain: by a strip, but for those of its own
                                    rows alone, which all strips together read once; */
    double twice;                /* by all strips, rows that a member after this one reads too */
    double inside[MOST_MEMBERS]; /* by a strip, of each member's */
} Reads;

static Reads reads_of(Strips *s, const Chain *c, const Member *m) {
    int64_t extent[MAX_RANK];
    Footprint f = {m->op, strip_extents(c, m, extent), extent, NULL};
    f.bytes = ARENA_ARRAY(s->scratch, m->op->n_in + 1, double);
    ex_visit(s->scratch, m->op->body, look_at_reach, &f);
    f.n = m->op->out[0]->rank;
    if (m->op->post) ex_visit(s->scratch, m->op->post, look_at_reach, &f);
    Reads r = {.again = 0};
    for (int i = 0; i < m->op->n_in; i++) {
        const double whole = (double)value_bytes(m->op->in[i]);
        const int k = chain_member(c, m->op->in[i]->def);
        if (k >= 0)
            r.inside[k] += fmin(f.bytes[i], strip_bytes(c, &c->member[k]));
        else if (f.bytes[i] * strips_of(c) > AGAIN * whole)
            r.again += f.bytes[i];
        else if (reads(c, m, m->op->in[i]))
            r.twice += whole;
    }
    return r;
}

/* The part of what is there `at_once` that a cache does not keep: much of what is a little larger
 * is still in it. */
static double lost_to(int64_t cache, double at_once) {
    return fmin(fmax((at_once / (double)cache - 0.5) / 1.5, 0), 1);
}

/* Cycles in which so many bytes come, of a tensor or of what is there `at_once`. */
static double cycles_for(const Strips *s, double bytes, double at_once) {
    double far = lost_to(s->target->l2_bytes, at_once);
    double memory = lost_to(s->target->l3_bytes, at_once);
    return bytes / NEAR_BYTES + far * bytes * (1 / FAR_BYTES - 1 / NEAR_BYTES) +
           memory * bytes * (1 / MEMORY_BYTES - 1 / FAR_BYTES);
}

/* Cycles in which so many bytes come while strips hold `held`. */
static double strip_cycles(const Strips *s, double bytes, double held) {
    if (held <= (double)s->target->l2_bytes * ROOM) return bytes / NEAR_BYTES;
    return bytes / (held <= (double)s->target->l3_bytes * ROOM ? FAR_BYTES : MEMORY_BYTES);
}

/* Cycles that bytes from beyond the L2 cache keep it and the core busy, whatever hides that they
 * come late. */
static double fills(const Strips *s, double bytes, double held) {
    return held <= (double)s->target->l2_bytes * ROOM ? 0 : bytes / NEAR_BYTES;
}

double op_cycles(const Strips *s, const Op *op) {
    double lanes = s->target->vector_types ? s->target->vector_bytes / 4.0 : 1;
    double each = 1 + ex_slow_cycles(s->scratch, op->body);
    double last = op->post ? ex_slow_cycles(s->scratch, op->post) : 0;
    if (op_applies_matrices(op)) /* for each of them, a few terms */
        return (double)value_numel(op->out[0]) * (op->n_red * MATRIX_TERMS + last) / lanes;
    return (steps_of(op) * each / VECTORS + (double)value_numel(op->out[0]) * last) / lanes;
}

bool moves_boxes(const Strips *s, const Op *op) {
    bool made = false;
    if (op->kind != OP_map || op->body->op != EX_select) return false;
    for (int i = 0; i < op->n_in; i++)
        made |= op->in[i]->def->kind == OP_map || op->in[i]->def->kind == OP_reduce;
    return made || reads_across(s->scratch, op);
}

/* Is the member's result a box of another one's? */
static bool boxed(const Strips *s, const Chain *c, const Member *m) {
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->member[i].op->n_in; k++)
            if (c->member[i].op->in[k] == m->op->out[0])
                return moves_boxes(s, c->member[i].op) && s->uses[m->op->out[0]->id] == 1;
    return false;
}

/* Bytes that are there at once, at most, while a strip is computed: what an operator reads of the
 * chain and what it makes, which a map may write over an operand. */
static double bytes_held(Arena *scratch, const Chain *c) {
    double most = 0;
    for (int i = 0; i < c->n; i++) {
        const Op *op = c->member[i].op;
        double own = i ? strip_bytes(c, &c->member[i]) : 0, read = 0, over = 0;
        for (int k = 1; k < c->n; k++)
            for (int n = 0; n < op->n_in; n++) {
                if (op->in[n] != c->member[k].op->out[0]) continue;
                read += strip_bytes(c, &c->member[k]);
                if (may_write_over(scratch, op, n)) over = own;
            }
        most = fmax(most, read + own - over);
    }
    return most;
}

/* Cycles in which what a member moves comes and goes. */
typedef struct Moves {
    double between; /* what lies between the operators: reading it, */
    double made;    /* and writing it; */
    double again;   /* reading from outside what all strips need, */
    double busy;    /* of which so many nothing hides */
} Moves;

/* How many of these cycles the member waits: what it computes hides some of the others. A map that
 * takes long hides what lies between. A product hides what it reads again, but the first of its
 * columns comes while its first tile of rows waits; `part` of its rows are computed at a time. */
static double waits_of(const Strips *s, const Member *m, const Moves *w, double part) {
    const double hidden = HIDDEN * s->cycles[m->op->index], rows = rows_of(m->op->out[0]) * part;
    if (op_is_product(m->op))
        return w->between + w->made + fmax(w->busy, w->again - hidden * rows / (rows + LEAST_ROWS));
    return w->again + fmax(0, w->between + w->made - (m->op->kind == OP_map ? hidden : 0));
}

/* Cycles in which results that are written now and then go to memory, whose lines come first; to a
 * cache they go at once. */
static double cycles_to_memory(const Strips *s, double bytes, double at_once) {
    return lost_to(s->target->l3_bytes, at_once) * bytes * 2 / MEMORY_BYTES;
}

/* Cycles that the member waits less than if it were computed apart. Strips hold `held`, and `stays`
 * with what they read again, if the cache is large enough. */
static double waits_less(const Strips *s, const Chain *c, const Member *m, const Reads *r,
                         double held, double stays) {
    const bool map = m->op->kind == OP_map;
    const double strips = strips_of(c), again = r->again;
    Moves apart = {.again = cycles_for(s, again, again), .busy = fills(s, again, again)};
    Moves together = {.again = strip_cycles(s, again * strips, stays),
                      .busy = fills(s, again * strips, stays)};
    double bytes = 0;
    for (int i = 1; i < c->n; i++) {
        const Member *other = &c->member[i];
        if (!r->inside[i] || boxed(s, c, other)) continue;
        double whole = (double)value_bytes(other->op->out[0]);
        apart.between += cycles_for(s, whole * r->inside[i] / strip_bytes(c, other), whole);
        bytes += r->inside[i] * strips;
    }
    together.between = strip_cycles(s, bytes, held);
    if (m > c->member && !moves_boxes(s, m->op) && !boxed(s, c, m)) {
        double whole = (double)value_bytes(m->op->out[0]), made = strip_bytes(c, m) * strips;
        apart.made = map ? cycles_for(s, whole, whole) : cycles_to_memory(s, whole, whole);
        together.made = map ? strip_cycles(s, made, held) : cycles_to_memory(s, made, held);
    }
    return waits_of(s, m, &apart, 1) - waits_of(s, m, &together, part_of(c, m));
}

/* What lies between operators comes from a nearer cache; but some of it is computed twice, and what
 * all strips read (weights, keys) is read again for each. Where there is next to nothing of that,
 * as between the heads of attention, strips also spare threads what moves between their cores,
 * which decides where nothing else does. */
double chain_gain(Strips *s, const Chain *c) {
    double strips = strips_of(c), few = fewest_strips(s, c), held = bytes_held(s->scratch, c),
           stays = 0;
    double gain = 0, work = 0;
    double between = 0, reread = 0;
    bool once = true;
    Reads read[MOST_MEMBERS];
    if (few < LEAST_STRIPS) return 0;
    for (int i = 0; i < c->n; i++) {
        read[i] = reads_of(s, c, &c->member[i]);
        held += read[i].twice / strips;
        stays += read[i].again;
    }
    for (int i = 0; i < c->n; i++) {
        const Member *m = &c->member[i];
        const Value *out = m->op->out[0];
        double whole = (double)value_bytes(out), strip = strip_bytes(c, m), part = part_of(c, m);
        double again = read[i].again, twice = read[i].twice, moved = 0, rows = rows_of(out);
        bool product = op_is_product(m->op);
        if (product && rows * part < LEAST_ROWS && rows >= LEAST_ROWS) return 0;
        for (int k = 0; moves_boxes(s, m->op) && k < m->op->n_in; k++)
            if (chain_member(c, m->op->in[k]->def) < 0) moved += strip;
        if (i > 0 && !boxed(s, c, m)) between += whole;
        gain += waits_less(s, c, m, &read[i], held, held + stays);
        gain -= cycles_for(s, moved * strips, whole) + moved * strips / NEAR_BYTES;
        gain -= LAUNCH_CYCLES * strips;
        gain += cycles_for(s, twice, twice) - strip_cycles(s, twice, held);
        once &= part * strips < 1.001;
        reread += again * strips;
        if (moves_boxes(s, m->op)) continue;
        gain -= (part * strips - 1) * s->cycles[m->op->index];
        work += s->cycles[m->op->index];
    }
    if (s->spares && once && reread < between * FEW) gain += between * OTHER_CYCLES;
    /* two threads, of which one does a strip more */
    return gain - (ceil(few / 2) * 2 / few - 1) * work;
}
