/* phase: a convolution of an image enlarged by repeating pixels becomes one of the image itself,
 * for targets of plain loops.
 *
 * Where every pixel stands s times in a row, several taps of a window read the same one: their
 * weights can be added up when compiling. Which taps these are depends on the phase of the result,
 * its coordinate modulo s. So the coordinate h is split into s * a + q, the weights get the phase
 * as a dimension, and 3 taps become 2 where s is 2: of nine multiply-adds of a 3 x 3 window four
 * are left.
 *
 *     sum over r  W[r] x[(h + r - p) / s]  =  sum over r'  V[q, r'] x[a + first(q) + r']
 *     V[q, r'] = sum of W[r] with (q + r - p) / s = first(q) + r',   first(q) = (q - p) / s,
 * rounded down
 *
 * The padding p is that of the enlarged image; its zeros are the image's own padding then.
 */
#include "ir/constant.h"
#include "passes/passes.h"

#include <string.h>

/* A dimension of the image whose pixels are repeated. */
typedef struct Axis {
    int dim;               /* of the image */
    int at, tap;           /* coordinates of the product: of the result, of the reduction */
    int weight_dim;        /* of the weights, which `tap` runs along */
    int64_t times;         /* s */
    int64_t pad;           /* p */
    int64_t taps;          /* of a phase */
    int64_t first[2];      /* first(q) = first[0] + first[1] * q */
    int64_t before, after; /* zeros around the image */
} Axis;

typedef struct Phase {
    Graph *g;
    Op *op;
    const Expr *factor[2]; /* the loads of the image and of the weights */
    int image;             /* factor that is the image's */
    Value *source;         /* the image */
    Axis axis[MAX_RANK];
    int n_axes;
} Phase;

static int64_t floor_div(int64_t a, int64_t b) {
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/* --- recognising ------------------------------------------------------------------------------ */

/* The parts of a condition are bounds of single coordinates: lo <= i < hi for each. */
static bool read_bounds(Exprs *x, const Expr *e, int n, int64_t *lo, int64_t *hi) {
    if (e->op == EX_and)
        return read_bounds(x, e->arg[0], n, lo, hi) && read_bounds(x, e->arg[1], n, lo, hi);
    int var;
    const Expr *bound;
    bool below;
    if (!ex_bound(x, e, n, hi, &var, &bound, &below) || !ex_is_const(bound)) return false;
    if (below && bound->k.i < hi[var]) hi[var] = bound->k.i;
    if (!below && bound->k.i > lo[var]) lo[var] = bound->k.i;
    return true;
}

/* Reads `v` as zeros around another value of the same rank: its element i is that of *inner at i -
 * pad. A value without padding is its own inner. */
static bool read_pad(Graph *g, Value *v, Value **inner, int64_t *pad) {
    int64_t lo[MAX_RANK] = {0}, hi[MAX_RANK];
    for (int i = 0; i < v->rank; i++) pad[i] = 0;
    *inner = v;
    const Op *op = v->def;
    if (op->kind != OP_map || op->body->op != EX_select) return true;
    const Expr *load = op->body->arg[1], *fill = op->body->arg[2];
    if (load->op != EX_load || load->n != v->rank || !ex_is_const(fill) || fill->k.f != 0)
        return false;
    for (int i = 0; i < v->rank; i++) hi[i] = v->shape[i];
    if (!dt_is_float(v->dt) || !read_bounds(g->x, op->body->arg[0], v->rank, lo, hi)) return false;
    *inner = op->in[load->k.i];
    for (int i = 0; i < v->rank; i++) {
        int64_t coef[MAX_RANK], extent = (*inner)->shape[i];
        const Expr *base;
        if (extent == 1 && v->shape[i] == 1) continue;
        if (!ex_affine(g->x, load->arg[i], v->rank, coef, &base) || !ex_is_const(base))
            return false;
        for (int k = 0; k < v->rank; k++)
            if (coef[k] != (k == i)) return false;
        pad[i] = -base->k.i;
        if (pad[i] < 0 || lo[i] != pad[i] ||
            hi[i] != (pad[i] + extent < v->shape[i] ? pad[i] + extent : v->shape[i]))
            return false;
    }
    return true;
}

/* Reads `v` as pixels repeated: its element i is that of *inner at i / times. */
static bool read_repeat(Value *v, Value **inner, int64_t *times) {
    const Op *op = v->def;
    if (op->kind != OP_map || op->body->op != EX_load || op->body->n != v->rank) return false;
    *inner = op->in[op->body->k.i];
    for (int i = 0; i < v->rank; i++) {
        const Expr *e = op->body->arg[i];
        times[i] = 1;
        if ((*inner)->shape[i] == 1 && v->shape[i] == 1) continue;
        if (e->op == EX_div && ex_is_const(e->arg[1])) {
            times[i] = e->arg[1]->k.i;
            e = e->arg[0];
        }
        if (e->op != EX_var || e->k.i != i || times[i] < 1 ||
            v->shape[i] != (*inner)->shape[i] * times[i])
            return false;
    }
    return true;
}

static void find_var(void *user, const Expr *e) {
    int *counts = user;
    if (e->op == EX_var) counts[e->k.i]++;
}

/* Does the expression read coordinate `k`? */
static bool reads(Graph *g, const Expr *e, int k) {
    int counts[MAX_RANK] = {0};
    ex_visit(g->arena, e, find_var, counts);
    return counts[k] != 0;
}

/* Reads the image's index along a dimension as result + tap, neither of which is read elsewhere. */
static bool read_window(Phase *u, Axis *a) {
    Graph *g = u->g;
    const Op *op = u->op;
    const Expr *image = u->factor[u->image], *weights = u->factor[!u->image];
    int64_t extent[MAX_RANK], coef[MAX_RANK];
    int n = op_extents(op, extent), rank = op->out[0]->rank;
    const Expr *base;
    if (!ex_affine(g->x, image->arg[a->dim], n, coef, &base) || !ex_is_int(base, 0)) return false;
    a->at = a->tap = a->weight_dim = -1;
    for (int k = 0; k < n; k++) {
        if (!coef[k]) continue;
        int *which = k < rank ? &a->at : &a->tap;
        if (coef[k] != 1 || *which >= 0) return false;
        *which = k;
    }
    if (a->at < 0 || a->tap < 0) return false;
    for (int i = 0; i < image->n; i++)
        if (i != a->dim && (reads(g, image->arg[i], a->at) || reads(g, image->arg[i], a->tap)))
            return false;
    for (int i = 0; i < weights->n; i++) {
        if (reads(g, weights->arg[i], a->at)) return false;
        if (!reads(g, weights->arg[i], a->tap)) continue;
        if (weights->arg[i]->op != EX_var || a->weight_dim >= 0) return false;
        a->weight_dim = i;
    }
    return a->weight_dim >= 0 && op->in[weights->k.i]->shape[a->weight_dim] == extent[a->tap] &&
           extent[a->at] % a->times == 0;
}

/* Finds how the taps fall together: false if all phases need as many as before, or not all the
 * same, for a weight of zero would not hide a pixel that is not a number. */
static bool merge_taps(Phase *u, Axis *a) {
    int64_t extent[MAX_RANK];
    op_extents(u->op, extent);
    int64_t taps = extent[a->tap], results = extent[a->at] / a->times, s = a->times;
    a->first[0] = floor_div(-a->pad, s);
    a->first[1] = floor_div(1 - a->pad, s) - a->first[0];
    int64_t last = 0;
    for (int64_t q = 0; q < s; q++) {
        int64_t first = floor_div(q - a->pad, s);
        if (first != a->first[0] + a->first[1] * q) return false;
        last = floor_div(q + taps - 1 - a->pad, s);
        if (q && last - first + 1 != a->taps) return false;
        a->taps = last - first + 1;
    }
    last = results - 1 + last; /* that the last phase reads */
    a->before = -a->first[0];
    a->after = last - (u->source->shape[a->dim] - 1);
    if (a->after < 0) a->after = 0;
    return a->taps < taps && a->before >= 0;
}

static bool recognise(Phase *u) {
    const Op *op = u->op;
    int64_t pad[MAX_RANK], times[MAX_RANK];
    Value *padded, *large;
    if (!op_is_product(op)) return false;
    for (int i = 0; i < 2; i++) {
        u->factor[i] = op->body->arg[i];
        if (u->factor[i]->op != EX_load) return false;
    }
    u->image = value_is_const(op->in[u->factor[0]->k.i]);
    if (u->factor[0]->k.i == u->factor[1]->k.i) return false;
    const Value *weights = op->in[u->factor[!u->image]->k.i];
    padded = op->in[u->factor[u->image]->k.i];
    if (!value_is_const(weights) || !dt_is_float(weights->dt) || value_is_const(padded))
        return false;
    if (!read_pad(u->g, padded, &large, pad) || !read_repeat(large, &u->source, times))
        return false;
    for (int i = 0; i < padded->rank; i++) {
        if (times[i] == 1) {
            if (pad[i] || padded->shape[i] != large->shape[i]) return false;
            continue;
        }
        Axis *a = &u->axis[u->n_axes++];
        *a = (Axis){.dim = i, .times = times[i], .pad = pad[i]};
        if (!read_window(u, a) || !merge_taps(u, a)) return false;
        for (int k = 0; k < u->n_axes - 1; k++)
            if (u->axis[k].at == a->at || u->axis[k].tap == a->tap) return false;
    }
    int64_t extent[MAX_RANK];
    return u->n_axes > 0 && op_extents(op, extent) + u->n_axes <= MAX_RANK &&
           weights->rank + u->n_axes <= MAX_RANK;
}

/* --- rewriting -------------------------------------------------------------------------------- */

/* The image with the zeros around it that the phases read. */
static Value *pad_source(Phase *u) {
    Graph *g = u->g;
    Exprs *x = g->x;
    Value *v = u->source;
    int64_t shape[MAX_RANK];
    const Expr *index[MAX_RANK], *inside = NULL;
    memcpy(shape, v->shape, (size_t)v->rank * sizeof *shape);
    for (int i = 0; i < v->rank; i++) index[i] = v->shape[i] == 1 ? ex_i(x, 0) : ex_var(x, i);
    for (int k = 0; k < u->n_axes; k++) {
        const Axis *a = &u->axis[k];
        const Expr *at = ex_add(x, ex_var(x, a->dim), ex_i(x, -a->before));
        const Expr *both =
            ex_and(x, ex_le(x, ex_i(x, 0), at), ex_lt(x, at, ex_i(x, v->shape[a->dim])));
        if (!a->before && !a->after) continue;
        shape[a->dim] += a->before + a->after;
        index[a->dim] = at;
        inside = inside ? ex_and(x, inside, both) : both;
    }
    if (!inside) return v;
    Op *op = graph_new_op(g, OP_map, 1, &v, 1);
    Value *padded = graph_new_value(g, op, 0, v->dt, v->rank, shape);
    op->src = u->op->src;
    op->body = ex_select(x, inside, ex_load(x, v->dt, 0, v->rank, index), ex_num(x, v->dt, 0));
    op->body = ex_simplify(x, op->body, v->rank, shape);
    graph_insert_before(g, u->op, op);
    return padded;
}

/* The weights of every phase: dimensions of the phases, then those of the weights. */
static Value *phase_weights(Phase *u) {
    Graph *g = u->g;
    Value *w = u->op->in[u->factor[!u->image]->k.i];
    int64_t shape[MAX_RANK], at[MAX_RANK] = {0};
    int rank = u->n_axes + w->rank;
    for (int k = 0; k < u->n_axes; k++) shape[k] = u->axis[k].times;
    for (int i = 0; i < w->rank; i++) shape[u->n_axes + i] = w->shape[i];
    for (int k = 0; k < u->n_axes; k++) shape[u->n_axes + u->axis[k].weight_dim] = u->axis[k].taps;
    int64_t numel = shape_numel(rank, shape), n = value_numel(w), phases = 1;
    for (int k = 0; k < u->n_axes; k++) phases *= shape[k];
    double *sum = ARENA_ARRAY(g->arena, numel + 1, double);
    const void *weights = constant_settle(g->arena, w);
    for (int64_t e = 0; e < n; e++) { /* every weight, to where it belongs in each phase */
        int64_t rest = e;
        for (int i = w->rank - 1; i >= 0; i--) {
            at[u->n_axes + i] = rest % w->shape[i];
            rest /= w->shape[i];
        }
        double value = dt_load(w->dt, weights, (size_t)e).f;
        for (int64_t phase = 0; phase < phases; phase++) {
            int64_t to[MAX_RANK], flat = 0;
            memcpy(to, at, sizeof to);
            rest = phase;
            for (int k = u->n_axes - 1; k >= 0; k--) {
                const Axis *a = &u->axis[k];
                int64_t q = to[k] = rest % a->times, *tap = &to[u->n_axes + a->weight_dim];
                rest /= a->times;
                *tap = floor_div(q + *tap - a->pad, a->times) - a->first[0] - a->first[1] * q;
            }
            for (int i = 0; i < rank; i++) flat = flat * shape[i] + to[i];
            sum[flat] += value;
        }
    }
    Op *op = graph_new_op(g, OP_const, 0, NULL, 1);
    Value *made = graph_new_value(g, op, 0, w->dt, rank, shape);
    char *data = arena_alloc(g->arena, (size_t)numel * dt_store(w->dt) + 1);
    for (int64_t e = 0; e < numel; e++)
        dt_save(w->dt, data, (size_t)e, dt_cast(DT_f64, w->dt, (Scalar){.f = sum[e]}));
    made->data = data;
    op->src = u->op->src;
    graph_insert_before(g, u->op, op);
    return made;
}

static void split_phases(Phase *u) {
    Graph *g = u->g;
    Exprs *x = g->x;
    Op *op = u->op;
    Value *out = op->out[0], *image = pad_source(u), *weights = phase_weights(u);
    int64_t extent[MAX_RANK], split[MAX_RANK];
    const Expr *to[MAX_RANK], *part[2], *index[MAX_RANK], *phase[MAX_RANK], *first[MAX_RANK];
    int n = op_extents(op, extent), count = 0, rank = 0;
    for (int k = 0; k < n; k++) {
        if (k == out->rank) rank = count;
        to[k] = ex_var(x, count);
        split[count++] = extent[k];
        for (int i = 0; i < u->n_axes; i++) {
            const Axis *a = &u->axis[i];
            if (k == a->tap) split[count - 1] = a->taps;
            if (k != a->at) continue;
            split[count - 1] /= a->times;
            split[count] = a->times;
            phase[i] = ex_var(x, count++);
            first[i] = ex_add(x, ex_mul(x, phase[i], ex_i(x, a->first[1])), to[k]);
            to[k] = ex_add(x, ex_mul(x, to[k], ex_i(x, a->times)), phase[i]);
        }
    }
    const Expr *from = u->factor[u->image];
    for (int i = 0; i < from->n; i++) index[i] = ex_subst_vars(x, from->arg[i], n, to);
    for (int i = 0; i < u->n_axes;
         i++) /* zeros before the image: as many as first[0] lies before it */
        index[u->axis[i].dim] = ex_add(x, first[i], to[u->axis[i].tap]);
    part[u->image] = ex_load(x, image->dt, (int)from->k.i, from->n, index);
    const Expr *by = u->factor[!u->image];
    for (int i = 0; i < u->n_axes; i++) index[i] = phase[i];
    for (int i = 0; i < by->n; i++) index[u->n_axes + i] = ex_subst_vars(x, by->arg[i], n, to);
    part[!u->image] = ex_load(x, weights->dt, (int)by->k.i, u->n_axes + by->n, index);
    op->in = arena_copy(g->arena, op->in, (size_t)op->n_in * sizeof *op->in);
    op->in[from->k.i] = image;
    op->in[by->k.i] = weights;
    op->body = ex_simplify(x, ex_mul(x, part[0], part[1]), count, split);
    op->post = ex_simplify(x, ex_subst_vars(x, op->post, n, to), rank, split);
    op->red = arena_copy(g->arena, split + rank, (size_t)op->n_red * sizeof *split);
    Value *made = graph_new_value(g, op, 0, out->dt, rank, split);
    Op *whole = graph_new_op(g, OP_reshape, 1, &made, 1);
    whole->src = op->src;
    whole->out[0] = out;
    out->def = whole;
    graph_insert_before(g, op->next, whole);
}

typedef struct Reads {
    uint32_t inputs;
} Reads;

static void note_input(void *user, const Expr *e) {
    Reads *r = user;
    if (e->op == EX_load) r->inputs |= 1u << e->k.i;
}

void pass_phase(Graph *g, const PassOptions *o) {
    bool any = false;
    if (o->target->blocks) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_phase(op->sub, o);
        Phase u = {.g = g, .op = op};
        if (op->kind != OP_reduce || op->n_in > 32 || !recognise(&u)) continue;
        Reads r = {0}; /* what post reads must stay as it is */
        ex_visit(g->arena, op->post, note_input, &r);
        if (r.inputs >> u.factor[0]->k.i & 1 || r.inputs >> u.factor[1]->k.i & 1) continue;
        split_phases(&u);
        any = true;
    }
    if (any) pass_dce(g, o);
}
