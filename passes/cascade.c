/* cascade: a reduction of many elements is one of pieces, and then of their results.
 *
 * A sum of floats that takes one element after the other errs in proportion to their number, and
 * by as much as 3 % for three millions that are alike; one of pieces by their length and number.
 * And only elements of results are computed side by side: a mean of an image would keep one block
 * of a device at work, or one of several threads, and a product of few tiles a few blocks.
 */
#include "passes/inline.h"
#include "passes/passes.h"
#include "passes/schedule.h"

#include <math.h>

#define LONGEST_SUM 4096 /* of floats, in plain loops */
#define LEAST_PIECE 2048 /* for a block of threads */
#define MOST_BLOCKS 1024 /* as many as a large device has at work */
#define LEAST_DEPTH 64   /* of a piece of a product */
#define MOST_OFF    32   /* times the wanted number of pieces, or a part of it: an image's lines */

typedef struct Reads {
    const Op *op;
    uint64_t results; /* the coordinates of results */
    uint64_t along;   /* those that are reduced */
    const Expr *load; /* of the largest tensor read along them */
    bool other;       /* one of these serves several results, as the factors of a product of
                         matrices do, or is constant; or what is read ends where a run says */
} Reads;

static void keep_larger(Reads *u, const Expr *load) {
    const Value *v = u->op->in[load->k.i];
    if (!u->load || value_numel(v) > value_numel(u->op->in[u->load->k.i])) u->load = load;
}

static void look_at_load(void *user, const Expr *e) {
    Reads *u = user;
    if (e->op != EX_load && e->op != EX_lt && e->op != EX_le) return;
    uint64_t vars = ex_vars(e);
    if (!(vars & u->along)) return;
    u->other |= e->op != EX_load;
    if (e->op != EX_load) return;
    keep_larger(u, e);
    u->other |= (vars & u->results) != u->results || value_is_const(u->op->in[e->k.i]);
}

/* The load of what is reduced, if each of its elements goes to one result, or two; else NULL. */
static const Expr *find_load(Graph *g, const Op *op, int64_t elements) {
    const Value *out = op->out[0];
    Reads u = {.op = op};
    if (out->rank + op->n_red + 1 > MAX_RANK) return NULL;
    for (int i = 0; i < out->rank; i++) u.results |= (uint64_t)(out->shape[i] > 1) << i;
    for (int i = 0; i < op->n_red; i++) u.along |= (uint64_t)1 << (out->rank + i);
    ex_visit(g->arena, op->body, look_at_load, &u);
    if (!u.load || u.other || value_numel(out) == 0) return NULL;
    return elements * value_numel(out) <= 2 * value_numel(op->in[u.load->k.i]) ? u.load : NULL;
}

static void look_for_largest(void *user, const Expr *e) {
    if (e->op == EX_load) keep_larger(user, e);
}

static const Expr *largest_load(Graph *g, const Op *op, const Expr *e) {
    Reads u = {.op = op};
    ex_visit(g->arena, e, look_for_largest, &u);
    return u.load;
}

/* Lanes of a vector that each add up a part of a sum, as they do along rows. */
static double lanes_along(Graph *g, const Op *op, const Target *t) {
    const Expr *load = largest_load(g, op, op->body);
    if (!t->vector_types || !load || !load->n) return 1;
    const uint64_t vars = ex_vars(load->arg[load->n - 1]);
    return vars >> op->out[0]->rank ? t->vector_bytes / (double)sizeof(float) : 1;
}

/* How many pieces there should be for each result; 1: it stays as it is. */
static double wanted_pieces(Graph *g, const Op *op, const Target *t, int64_t elements) {
    double results = (double)value_numel(op->out[0]), n = (double)elements;
    bool sum = op->combine == COMBINE_sum && dt_is_float((DType)op->body->dt);
    if (!t->blocks) return sum && n / lanes_along(g, op, t) > LONGEST_SUM ? sqrt(n) : 1;
    if (results >= t->few_blocks) return 1;
    return fmin(n / LEAST_PIECE, MOST_BLOCKS / results);
}

/* What cutting a reduction into pieces is to bring. */
typedef struct Wanted {
    double pieces; /* as near to so many as can be */
    const Target *target;
    ProductSize product; /* ... or whatever makes this cost least; rows 0: it is none */
} Wanted;

/* Of a product on a device: what its first factor loads, for its pieces may keep more blocks at
 * work; else NULL. */
static const Expr *find_product_load(Graph *g, const Op *op, int64_t depth, Wanted *wanted) {
    const Value *out = op->out[0];
    if (!wanted->target->blocks || !op_is_product(op) || out->rank + op->n_red + 1 > MAX_RANK)
        return NULL;
    const uint64_t vars[2] = {ex_vars(op->body->arg[0]), ex_vars(op->body->arg[1])};
    int64_t extent[2] = {1, 1}, batches = 1; /* rows and columns, which each factor has alone */
    for (int i = 0; i < out->rank; i++) {
        const bool in[2] = {vars[0] >> i & 1, vars[1] >> i & 1};
        *(in[0] == in[1] ? &batches : &extent[in[1]]) *= out->shape[i];
    }
    wanted->product = (ProductSize){(DType)op->body->dt,
                                    nest_warp_bytes(wanted->target, g->x, op->body),
                                    extent[0],
                                    extent[1],
                                    batches,
                                    depth};
    return largest_load(g, op, op->body->arg[0]);
}

static bool of_product(const Wanted *w) {
    return w->product.rows > 0;
}

/* Less is better; infinite: so many pieces are out of the question. */
static double rate(const Wanted *w, int64_t pieces) {
    if (of_product(w)) return product_cost(w->target, &w->product, pieces);
    const double off = fabs(log((double)pieces / w->pieces));
    return off < log(MOST_OFF) ? off : HUGE_VAL;
}

/* The best factor of an extent of the reduction, and of which: of the coordinate whose steps in
 * what is loaded are the largest, if it has any. 1: there is none. */
static int64_t choose_factor(const Op *op, const Expr *load, const Wanted *wanted, int *which) {
    const double most =
        of_product(wanted) ? (double)(wanted->product.depth / LEAST_DEPTH) : 4 * wanted->pieces;
    int64_t best = 1;
    for (int i = 0; i < load->n && best == 1; i++) {
        uint64_t vars = ex_vars(load->arg[i]) >> op->out[0]->rank;
        double least = of_product(wanted) ? rate(wanted, 1) : HUGE_VAL;
        for (int k = 0; k < op->n_red; k++)
            for (int64_t f = 2; vars >> k & 1 && f <= op->red[k] && (double)f <= most; f++) {
                const double own = op->red[k] % f ? HUGE_VAL : rate(wanted, f);
                if (own >= least) continue;
                least = own;
                best = f;
                *which = k;
            }
    }
    return best;
}

/* Does the load run through coordinate `var` in a dimension before those of all results? */
static bool comes_first(const Expr *load, int rank, int var) {
    uint64_t results = ((uint64_t)1 << rank) - 1;
    for (int i = 0; i < load->n; i++) {
        uint64_t vars = ex_vars(load->arg[i]);
        if (vars & results) return false;
        if (vars >> var & 1) return true;
    }
    return true;
}

/* A reduction of `pieces` pieces of coordinate number `which` before op, which reduces those.
 * first: the results of one piece lie side by side, else those for one result. */
static void take_apart(Graph *g, Op *op, bool first, int which, int64_t pieces) {
    Exprs *x = g->x;
    const Value *out = op->out[0];
    DType dt = (DType)op->body->dt;
    Op *part = graph_new_op(g, OP_reduce, op->n_in, op->in, 1);
    int rank = out->rank, own = first ? 0 : rank; /* the dimension of pieces */
    int64_t dims[MAX_RANK], red[MAX_RANK], extent[MAX_RANK];
    const Expr *to[MAX_RANK], *at[MAX_RANK];
    dims[own] = pieces;
    at[own] = ex_var(x, rank);
    for (int i = 0; i < rank; i++) {
        dims[i + first] = out->dims[i];
        at[i + first] = ex_var(x, i);
        to[i] = ex_var(x, i + first);
    }
    for (int i = 0; i < op->n_red; i++) {
        red[i] = op->red[i];
        to[rank + i] = ex_var(x, rank + 1 + i);
    }
    red[which] /= pieces;
    to[rank + which] = ex_add(x, ex_mul(x, ex_var(x, own), ex_i(x, red[which])), to[rank + which]);
    part->combine = op->combine;
    part->n_red = op->n_red;
    part->red = arena_copy(g->arena, red, (size_t)op->n_red * sizeof *red);
    part->post = ex_acc(x, dt);
    part->src = op->src;
    Value *results = graph_new_value(g, part, 0, dt, rank + 1, dims);
    int n = op_extents(part, extent);
    part->body = ex_simplify(x, ex_subst_vars(x, op->body, n - 1, to), n, extent);
    graph_insert_before(g, op, part);

    op->body = ex_load(x, dt, op_add_input(g, op, results), rank + 1, at);
    op->n_red = 1;
    op->red = arena_copy(g->arena, &pieces, sizeof pieces);
    graph_drop_inputs(g, part);
    graph_drop_inputs(g, op);
}

void pass_cascade(Graph *g, const PassOptions *o) {
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_cascade(op->sub, o);
        int64_t elements = op->kind == OP_reduce ? shape_numel(op->n_red, op->red) : 0;
        Wanted wanted = {.target = o->target};
        wanted.pieces = elements ? wanted_pieces(g, op, o->target, elements) : 1;
        const Expr *load = wanted.pieces >= 2 ? find_load(g, op, elements) : NULL;
        const bool product = !load;
        if (product) load = find_product_load(g, op, elements, &wanted);
        if (!load) continue;
        int which = 0;
        int64_t pieces = choose_factor(op, load, &wanted, &which);
        bool first = product || comes_first(load, op->out[0]->rank, op->out[0]->rank + which);
        if (pieces > 1) take_apart(g, op, first, which, pieces);
    }
}
