/* flatten: pixels of lines that vary lie one behind the other where products make or read them, for
 * targets of plain loops with vectors.
 *
 * The pixels of a convolution of 1 x 1 are the rows of a matrix. Where height and width vary,
 * memory has room for the longest line, so tiles of rows end with each line: tiles of 6 compute 5
 * of 7 pixels twice. So height and width are joined to one dimension h * w, of which tiles are cut
 * without regard to lines. What the product reads is joined, too: a map of results that are, such
 * as the sum with a residual, is computed so, other tensors are copied. Who reads the result by
 * lines puts the place together, y * w + x, which divides nothing. (Convolutions of 512 to 2048
 * channels and back, of 7 x 7 of at most 10 x 10 pixels: 0.76 of the time.)
 */
#include "ir/graph_dims.h"
#include "passes/inline.h"
#include "passes/passes.h"

#define LONGEST_LINE  40 /* pixels, the most in any run: of more, few tiles are at the end */
#define LEAST_COLUMNS 64 /* sums of each pixel, ... */
#define LEAST_DEPTH   64 /* ... of so many products */
#define WORTH_COPYING 3  /* sums for each pixel of a line: few ends are not worth a copy */

typedef struct Flat {
    Value *v; /* with two dimensions joined; NULL: there is none */
    int line; /* the first of them */
} Flat;

typedef struct Flatten {
    Graph *g;
    Flat *flat;  /* by value id, of values that were there before: made so, ... */
    Flat *copy;  /* ... or copied */
    int *wanted; /* ... 1 + the first of the dimensions that products want joined; 0: none */
    int n_values;
} Flatten;

#define UNSEEN (-1)
#define PLAIN  (-2)

/* How an operator reads pixels, whose line is its coordinate `line`, and their place in it the next
 * one. */
typedef struct Pixels {
    const Op *op;
    int line;
    bool apart;    /* one of the two is used otherwise than together with the other */
    bool gathered; /* other coordinates of what is read of a pixel are loaded */
    int *at;       /* by input: the dimension of lines; PLAIN: it has no pixels */
} Pixels;

static bool is_var(const Expr *e, int var) {
    return e->op == EX_var && e->k.i == var;
}

static void look_at_pixels(void *user, const Expr *e) {
    Pixels *p = user;
    int found = PLAIN;
    for (int i = 0; i < e->n; i++) {
        const bool line = is_var(e->arg[i], p->line);
        if (!line && !is_var(e->arg[i], p->line + 1)) continue;
        if (e->op != EX_load || !line || found != PLAIN || i + 1 == e->n ||
            !is_var(e->arg[i + 1], p->line + 1)) {
            p->apart = true;
            return;
        }
        const int64_t *own = p->op->out[0]->dims + p->line, *dims = p->op->in[e->k.i]->dims + i;
        p->apart |= dims[0] != own[0] || dims[1] != own[1];
        found = i++;
    }
    if (e->op != EX_load) return;
    for (int i = 0; i < e->n && found != PLAIN; i++) p->gathered |= e->arg[i]->loads != 0;
    p->apart |= p->at[e->k.i] != UNSEEN && p->at[e->k.i] != found;
    p->at[e->k.i] = found;
}

/* Can the operator be computed with the coordinates `line` and the next joined? */
static bool reads_pixels(Graph *g, const Op *op, int line, Pixels *p) {
    bool any = false;
    *p = (Pixels){.op = op, .line = line, .at = ARENA_ARRAY(g->arena, op->n_in + 1, int)};
    if (op->guard || op->out[0]->rank < line + 2 || op->body->op == EX_var) return false;
    if (op->post && op->post->op == EX_var) return false;
    for (int i = 0; i < op->n_in; i++) p->at[i] = UNSEEN;
    ex_visit(g->arena, op->body, look_at_pixels, p);
    if (op->post) ex_visit(g->arena, op->post, look_at_pixels, p);
    for (int i = 0; i < op->n_in; i++) any |= p->at[i] >= 0;
    return any && !p->apart;
}

/* The coordinate of lines, the innermost, if a product's rows are pixels; -1: they are none, or not
 * enough is done with each. */
static int lines_of(Graph *g, const Op *op, Pixels *p) {
    const Value *out = op->out[0];
    if (!is_product_of_two(op) || shape_numel(op->n_red, op->red) < LEAST_DEPTH) return -1;
    for (int line = out->rank - 3; line >= 0; line--) {
        const bool vary = dim_varies(out->dims[line]) && dim_varies(out->dims[line + 1]);
        if (vary && out->shape[line + 1] <= LONGEST_LINE &&
            out->shape[out->rank - 1] >= LEAST_COLUMNS && reads_pixels(g, op, line, p) &&
            !p->gathered)
            return line;
    }
    return -1;
}

static void note_wanted(Flatten *f) {
    Pixels p;
    for (Op *op = f->g->last; op; op = op->prev) {
        int line = -1;
        if (op->n_out != 1) continue;
        const int wanted = f->wanted[op->out[0]->id];
        if (op->kind == OP_reduce) line = lines_of(f->g, op, &p);
        if (op->kind == OP_map && wanted && reads_pixels(f->g, op, wanted - 1, &p))
            line = wanted - 1;
        for (int i = 0; i < op->n_in && line >= 0; i++)
            if (p.at[i] >= 0) f->wanted[op->in[i]->id] = p.at[i] + 1;
    }
}

/* The value with dimension `line` and the next joined, as there is one; NULL: there is none. */
static Value *flat_of(const Flatten *f, const Value *v, int line) {
    const Flat *flat = v->id < f->n_values ? &f->flat[v->id] : NULL;
    return flat && flat->line == line ? flat->v : NULL;
}

/* The first coordinate of the pixels of a map of joined ones: of no others, or also of others if
 * products want the result joined; -1: it has none. */
static int lines_behind(const Flatten *f, const Op *op, Pixels *p) {
    for (int line = 0; line + 1 < op->out[0]->rank; line++) {
        if (!dim_varies(op->out[0]->dims[line + 1]) || !reads_pixels(f->g, op, line, p)) continue;
        bool any = false, all = true;
        for (int i = 0; i < op->n_in; i++) {
            if (p->at[i] < 0) continue;
            const bool flat = flat_of(f, op->in[i], p->at[i]) != NULL;
            any |= flat;
            all &= flat;
        }
        if (any && (all || f->wanted[op->out[0]->id] == line + 1)) return line;
    }
    return -1;
}

/* Are there enough sums of each pixel for what the product reads to be copied, if it must be? */
static bool is_worth(const Flatten *f, const Op *op, const Pixels *p) {
    const Value *out = op->out[0];
    bool copies = false;
    for (int i = 0; i < op->n_in; i++) copies |= p->at[i] >= 0 && !flat_of(f, op->in[i], p->at[i]);
    return !copies || out->shape[out->rank - 1] >= WORTH_COPYING * out->shape[p->line + 1];
}

static int joined_dims(Exprs *x, const Value *v, int line, int64_t *dims) {
    for (int i = 0; i < v->rank; i++) dims[i - (i > line)] = v->dims[i];
    dims[line] = dim_mul(x, v->dims[line], v->dims[line + 1]);
    return v->rank - 1;
}

/* The input with dimension `line` and the next joined. */
static Value *joined(const Flatten *f, Op *op, Value *in, int line) {
    Graph *g = f->g;
    Value *flat = flat_of(f, in, line);
    int64_t dims[MAX_RANK];
    if (flat) return flat;
    Flat *copy = in->id < f->n_values ? &f->copy[in->id] : NULL;
    if (copy && copy->v && copy->line == line) return copy->v;
    Op *last = g->last;
    flat = reshape_varying(g, in, joined_dims(g->x, in, line, dims), dims);
    graph_take_in(g, last, op);
    if (copy) *copy = (Flat){flat, line};
    return flat;
}

typedef struct Rewrite {
    Exprs *x;
    const Pixels *p;
} Rewrite;

static const Expr *rewrite_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Rewrite *r = user;
    const Expr *index[MAX_RANK];
    if (e->op == EX_var) return ex_var(r->x, (int)e->k.i - (e->k.i > r->p->line));
    if (e->op != EX_load) return e;
    const int line = r->p->at[e->k.i], n = e->n - (line >= 0);
    for (int i = 0; i < n; i++) index[i] = args[i + (line >= 0 && i > line)];
    return ex_load(r->x, (DType)e->dt, (int)e->k.i, n, index);
}

/* Computes the operator's result with two coordinates joined, and takes that apart behind it. */
static void flatten_op(Flatten *f, Op *op, const Pixels *p) {
    Graph *g = f->g;
    Value *out = op->out[0];
    Rewrite r = {g->x, p};
    int64_t dims[MAX_RANK];
    for (int i = 0; i < op->n_in; i++)
        if (p->at[i] >= 0) op->in[i] = joined(f, op, op->in[i], p->at[i]);
    op->body = ex_rewrite(g->x, op->body, rewrite_leaf, &r);
    if (op->post) op->post = ex_rewrite(g->x, op->post, rewrite_leaf, &r);
    const int rank = joined_dims(g->x, out, p->line, dims);
    Value *flat = graph_new_value(g, op, 0, out->dt, rank, dims);
    Op *last = g->last, *apart = reshape_varying(g, flat, out->rank, out->dims)->def;
    apart->out[0] = out;
    apart->src = op->src;
    out->def = apart;
    if (op != last) graph_take_in(g, last, op->next);
    f->flat[out->id] = (Flat){flat, p->line};
}

/* Not in sub-graphs, whose operators would have to read extents of a run. */
void pass_flatten(Graph *g, const PassOptions *o) {
    if (!o->target->vector_types || !g->x->dims) return;
    const int n = g->n_values;
    Flatten f = {g, ARENA_ARRAY(g->arena, n + 1, Flat), ARENA_ARRAY(g->arena, n + 1, Flat),
                 ARENA_ARRAY(g->arena, n + 1, int), n};
    Pixels p;
    note_wanted(&f);
    for (Op *op = g->first; op; op = op->next) {
        int line = -1;
        if (op->n_out != 1 || op->out[0]->id >= n || f.flat[op->out[0]->id].v) continue;
        if (op->kind == OP_reduce) line = lines_of(g, op, &p);
        if (op->kind == OP_map) line = lines_behind(&f, op, &p);
        if (line < 0 || (op->kind == OP_reduce && !is_worth(&f, op, &p))) continue;
        flatten_op(&f, op, &p);
    }
    pass_dce(g, o); /* of what was taken apart, though nobody reads it so */
}
