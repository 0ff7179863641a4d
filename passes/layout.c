/* layout: chooses which dimension of a tensor is innermost in memory, for targets of plain loops,
 * and around what warps of devices multiply.
 *
 * A convolution is fastest where the channels lie side by side: its columns are then a vector of
 * results, and what it reads for the next step of the reduction is next to what it has just read.
 * So every product with constant weights wants the coordinate that the weights give it as the last
 * dimension of its result, and the dimension that it reduces together with the weights as the last
 * one of its operand. Maps and other reductions hand such wishes on between their operands and
 * their result, along dimensions that they do not move.
 *
 * A wish is granted by permuting the tensor's shape: the coordinates of the operator that makes it
 * are renamed and the loads of those that use it have their indices in the new order. A reshape
 * that leaves the dimension as it is hands the wish on; another one becomes a map, which fuse then
 * puts into its users. Inputs, outputs and constants keep their layout; ports that others declare
 * stay as declared.
 */
#include "passes/inline.h"
#include "passes/nest.h"
#include "passes/passes.h"

#include <string.h>

#define MIN_EXTENT 4  /* a dimension that is worth being innermost */
#define MIN_DEPTH  16 /* ... if a product must go along it */

typedef struct Layout {
    Graph *g;
    const Target *target;
    bool narrows; /* products will read 16 bits, and add some of them at once */
    bool *fixed;  /* by value id: the layout cannot be changed */
    int *axis;    /* by value id: the dimension that is to be innermost; -1: no wish */
    bool changed;
} Layout;

static bool computes(const Op *op) {
    return op->kind == OP_map || op->kind == OP_reduce;
}

/* Does nothing if the value has a wish already or cannot be changed. */
static void wish(Layout *l, const Value *v, int axis) {
    if (l->fixed[v->id] || l->axis[v->id] >= 0 || v->shape[axis] < MIN_EXTENT) return;
    l->axis[v->id] = axis;
    l->changed = true;
}

/* --- wishes of products ----------------------------------------------------------------------- */

typedef struct Factor {
    uint32_t vars; /* coordinates it depends on */
    bool constant; /* it loads constants only */
    bool connects; /* ... if any: a matrix of numbers, that transforms tiles, does not */
    const Op *op;
} Factor;

static void look_at_factor(void *user, const Expr *e) {
    Factor *f = user;
    if (e->op == EX_var) f->vars |= 1u << e->k.i;
    if (e->op != EX_load) return;
    const Value *v = f->op->in[e->k.i];
    f->constant &= value_is_const(v);
    f->connects = true;
}

typedef struct Operands {
    Layout *l;
    const Op *op;
    uint32_t weights; /* coordinates that the weights depend on */
    int64_t least;    /* extent of a dimension of the operand that is worth a wish */
} Operands;

/* Of an operand, the dimension that no coordinate of its own runs through. */
static void wish_for_operand(void *user, const Expr *e) {
    Operands *u = user;
    if (e->op != EX_load) return;
    const Value *v = u->op->in[e->k.i];
    int best = -1;
    for (int i = 0; i < e->n; i++) {
        uint64_t vars = ex_vars(e->arg[i]);
        if (vars && !(vars & ~u->weights) && (best < 0 || v->shape[i] > v->shape[best])) best = i;
    }
    if (best >= 0 && v->shape[best] >= u->least) wish(u->l, v, best);
}

/* The longest of some dimensions, the first of such; -1: there is none. */
static int longest_of(const Value *v, uint32_t dimensions) {
    int best = -1;
    for (int i = 0; i < v->rank; i++)
        if (dimensions >> i & 1 && (best < 0 || v->shape[i] > v->shape[best])) best = i;
    return best;
}

static void look_at_factors(const Layout *l, const Op *op, Factor f[2]) {
    for (int i = 0; i < 2; i++) {
        f[i] = (Factor){.constant = true, .op = op};
        ex_visit(l->g->arena, op->body->arg[i], look_at_factor, &f[i]);
    }
}

/* The coordinates of the result that both factors depend on. */
static uint32_t groups_of(const Value *out, const Factor f[2]) {
    return f[0].vars & f[1].vars & ((1u << out->rank) - 1);
}

/* Does the operator want channels side by side? On devices only products do that their warps
 * compute, or will once `narrow` has had a look at them. */
static bool has_wishes(const Graph *g, const PassOptions *o, const Op *op) {
    const bool narrow = o->precision == DT_bf16 || o->precision == DT_f16;
    if (!op_is_product(op)) return false;
    return !o->target->blocks || (narrow && o->target->warp_tiles) ||
           nest_warp_bytes(o->target, g->x, op->body);
}

/* Are vectors along a row of pixels better than those of channels, which would leave half of the
 * lanes idle? What is read must have as few channels, or others want them side by side. */
static bool suits_pixels(const Layout *l, const Op *op, uint32_t weights) {
    const Target *t = l->target;
    const int64_t lanes = t->vector_bytes / (int)dt_store(DT_f32) / (t->half_units ? 2 : 1);
    const Value *out = op->out[0];
    const int last = out->rank - 1;
    if (!t->vector_types || l->narrows || op->body->dt != DT_f32 || weights >> last & 1 ||
        out->shape[last] < 2 * lanes)
        return false;
    for (int i = 0; i < last; i++)
        if (weights >> i & 1 && 2 * out->shape[i] > lanes) return false;
    for (int f = 0; f < 2; f++) {
        const Expr *load = op->body->arg[f];
        int64_t step;
        if (!ex_depends(load, last)) continue;
        if (load->op != EX_load || !ex_stride(load->arg[load->n - 1], last, &step) || step != 1)
            return false;
        for (int i = 0; i < load->n; i++) {
            const uint64_t vars = ex_vars(load->arg[i]);
            if (vars && !(vars & ~(uint64_t)weights) && 2 * op->in[load->k.i]->shape[i] > lanes)
                return false;
        }
    }
    return true;
}

static void product_wishes(Layout *l, const Op *op) {
    Factor f[2];
    look_at_factors(l, op, f);
    if (f[0].constant == f[1].constant || !f[f[1].constant].connects) return;
    uint32_t weights = f[f[1].constant].vars;
    const Value *out = op->out[0];
    const uint32_t groups = groups_of(out, f);
    int column = longest_of(out, weights & ~groups), best = longest_of(out, weights);
    if (best < 0 || suits_pixels(l, op, weights)) return;
    if (column >= 0 && out->shape[column] >= MIN_EXTENT &&
        out->shape[column] >= l->target->vector_bytes / 8) {
        /* half a vector of columns of one group is better than vectors across groups */
        best = column;
        weights &= ~groups;
    }
    wish(l, out, best);
    Operands u = {l, op, weights, out->shape[best] < MIN_EXTENT ? MIN_DEPTH : MIN_EXTENT};
    ex_visit(l->g->arena, op->body->arg[!f[1].constant], wish_for_operand, &u);
}

/* --- handing wishes on ------------------------------------------------------------------------ */

/* The coordinate that alone moves dimension `i` of a load, by one; -1 if there is none. */
static int coordinate_of(Graph *g, const Expr *load, int i, int n) {
    int64_t coef[MAX_RANK];
    const Expr *base;
    int found = -1;
    if (!ex_affine(g->x, load->arg[i], n, coef, &base)) return -1;
    for (int k = 0; k < n; k++) {
        if (!coef[k]) continue;
        if (found >= 0 || coef[k] != 1) return -1;
        found = k;
    }
    return found;
}

static void hand_on(void *user, const Expr *e) {
    Operands *u = user;
    if (e->op != EX_load) return;
    const Value *v = u->op->in[e->k.i], *out = u->op->out[0];
    int n = out->rank + (u->op->kind == OP_reduce ? u->op->n_red : 0);
    for (int i = 0; i < e->n; i++) {
        int k = coordinate_of(u->l->g, e, i, n);
        if (k < 0 || k >= out->rank) continue;
        if (u->l->axis[v->id] == i) wish(u->l, out, k);
        if (u->l->axis[out->id] == k) wish(u->l, v, i);
    }
}

/* Elements of one step along dimension i. */
static int64_t step_of(const Value *v, int i) {
    return shape_numel(v->rank - 1 - i, v->shape + i + 1);
}

/* Is dimension i of `a` dimension k of `b`, another shape of the same memory? Then both may become
 * innermost and the others stay in order. */
static bool same_dimension(const Value *a, int i, const Value *b, int k) {
    return i >= 0 && k >= 0 && a->shape[i] == b->shape[k] && step_of(a, i) == step_of(b, k);
}

static void hand_on_reshape(Layout *l, const Value *from, const Value *to) {
    for (int k = 0; k < to->rank; k++)
        if (same_dimension(from, l->axis[from->id], to, k)) wish(l, to, k);
}

static void hand_on_all(Layout *l) {
    for (Op *op = l->g->first; op; op = op->next) {
        if (op->kind == OP_reshape) {
            hand_on_reshape(l, op->in[0], op->out[0]);
            hand_on_reshape(l, op->out[0], op->in[0]);
        }
        if (!computes(op)) continue;
        Operands u = {l, op, 0, 0};
        ex_visit(l->g->arena, op->body, hand_on, &u);
        if (op->post) ex_visit(l->g->arena, op->post, hand_on, &u);
    }
}

/* --- granting them ---------------------------------------------------------------------------- */

/* The new place of dimension i when `axis` becomes the last. */
static int place_of(int i, int axis, int rank) {
    return i == axis ? rank - 1 : i > axis ? i - 1 : i;
}

static const int64_t *permuted(Graph *g, const Value *v, const int64_t *shape, int axis) {
    int64_t *to = ARENA_ARRAY(g->arena, v->rank, int64_t);
    for (int i = 0; i < v->rank; i++) to[place_of(i, axis, v->rank)] = shape[i];
    return to;
}

typedef struct Rename {
    Layout *l;
    const Op *op;
    const Expr *const *var; /* new coordinates; NULL: they stay */
} Rename;

static const Expr *rename_leaf(void *user, const Expr *e, const Expr *const *args) {
    Rename *r = user;
    Exprs *x = r->l->g->x;
    if (e->op == EX_var) return r->var && r->var[e->k.i] ? r->var[e->k.i] : e;
    if (e->op != EX_load) return e;
    const Value *v = r->op->in[e->k.i];
    const Expr *index[MAX_RANK];
    int axis = r->l->axis[v->id];
    for (int i = 0; i < e->n; i++) index[axis < 0 ? i : place_of(i, axis, v->rank)] = args[i];
    return ex_load(x, (DType)e->dt, (int)e->k.i, e->n, index);
}

static const Expr *renamed(Rename *r, const Expr *e) {
    return e ? ex_rewrite(r->l->g->x, e, rename_leaf, r) : NULL;
}

/* Rewrites one operator for the layouts of what it reads and makes. */
static void apply(Layout *l, Op *op) {
    Graph *g = l->g;
    const Expr *var[MAX_RANK] = {NULL};
    Rename r = {l, op, NULL};
    bool any = false;
    for (int i = 0; i < op->n_in; i++) any |= l->axis[op->in[i]->id] >= 0;
    int axis = op->n_out == 1 ? l->axis[op->out[0]->id] : -1;
    if (!any && axis < 0) return;
    if (axis >= 0) {
        int rank = op->out[0]->rank;
        for (int i = 0; i < rank; i++) var[i] = ex_var(g->x, place_of(i, axis, rank));
        r.var = var;
    }
    op->body = renamed(&r, op->body);
    op->post = renamed(&r, op->post);
    op->guard = renamed(&r, op->guard);
    for (int i = 0; op->target && i < op->out[0]->rank; i++)
        op->target[i] = renamed(&r, op->target[i]);
}

static void find_fixed(Layout *l) {
    Graph *g = l->g;
    for (Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_out; i++)
            l->fixed[op->out[i]->id] |=
                (!computes(op) && op->kind != OP_reshape) || op->out[i]->rank < 3;
        for (int i = 0; i < op->n_in; i++)
            if (op->kind == OP_loop || (op->kind == OP_scatter && i == 0))
                l->fixed[op->in[i]->id] = true;
    }
    for (int i = 0; i < g->outputs.n; i++) l->fixed[g->outputs.items[i]->id] = true;
}

/* Does the reshape join dimensions of which an inner one has few elements? Products want many side
 * by side. */
static bool joins_few(const Value *from, const Value *to) {
    for (int i = 0; i < from->rank; i++) {
        bool whole = from->shape[i] >= MIN_DEPTH;
        for (int k = 0; k < to->rank; k++)
            whole |= step_of(from, i) * from->shape[i] == step_of(to, k) * to->shape[k];
        if (!whole) return true;
    }
    return false;
}

/* Elementwise operators behind a reshape of a product come before it: they become its epilogue
 * whatever layouts the two shapes get. */
static void lift_epilogues(Graph *g, const PassOptions *o) {
    graph_count_uses(g);
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; op->kind == OP_map && !op->guard && i < op->n_in; i++) {
            const Value *seen = op->in[i], *made = through_reshape(op->in[i]), *out = op->out[0];
            if (seen == made || made->def->kind != OP_reduce || made->index != 1 ||
                seen->index != 1 || !shape_equal(seen->rank, seen->dims, out->rank, out->dims) ||
                joins_few(made, seen) || !reads_own(g->arena, op, i))
                continue;
            map_before_reshape(g, op, i);
            break;
        }
    pass_dce(g, o);
}

/* Tiles that are transformed back for an output (winograd.c), and channels that have windows each
 * for themselves, are computed with channels side by side. Where the output has not, a copy turns
 * them. (C compilers turn tiles of eight lanes well enough, but not of sixteen.) */
static void copy_outputs(Layout *l) {
    Graph *g = l->g;
    if (!l->target->vector_types) return; /* nothing is faster for the memory */
    graph_count_uses(g);
    for (int i = 0; i < g->outputs.n; i++) {
        Value *out = g->outputs.items[i];
        Op *op = out->def;
        Factor f[2];
        if (!op_is_product(op) || out->rank < 3 || out->index > 1 ||
            !shape_equal(out->rank, out->shape, out->rank, out->dims))
            continue;
        look_at_factors(l, op, f);
        if (f[0].constant == f[1].constant) continue;
        const Factor *weights = &f[f[1].constant];
        const uint32_t groups = groups_of(out, f);
        int column = longest_of(out, weights->vars & ~groups);
        bool apart = groups && (column < 0 || out->shape[column] == 1) &&
                     l->target->vector_bytes >= LINE_BYTES;
        if (weights->connects && !apart) continue;
        Op *copy = graph_new_op(g, OP_map, 1, &out, 1);
        const Expr *index[MAX_RANK];
        for (int k = 0; k < out->rank; k++) index[k] = ex_var(g->x, k);
        copy->body = ex_load(g->x, out->dt, 0, out->rank, index);
        copy->src = op->src;
        g->outputs.items[i] = graph_new_value(g, copy, 0, out->dt, out->rank, out->dims);
        g->outputs.items[i]->name = out->name;
        graph_insert_before(g, op->next, copy);
    }
}

void pass_layout(Graph *g, const PassOptions *o) {
    bool any = !o->target->blocks;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_layout(op->sub, o);
        any |= has_wishes(g, o, op);
    }
    if (!any) return;
    lift_epilogues(g, o);
    Layout l = {.g = g, .target = o->target, .narrows = dt_is_narrow(o->precision)};
    copy_outputs(&l);
    l.fixed = ARENA_ARRAY(g->arena, g->n_values, bool);
    l.axis = ARENA_ARRAY(g->arena, g->n_values, int);
    for (int i = 0; i < g->n_values; i++) l.axis[i] = -1;
    find_fixed(&l);
    for (Op *op = g->first; op; op = op->next)
        if (has_wishes(g, o, op)) product_wishes(&l, op);
    if (!l.changed) return;
    for (int round = 0; round < 8 && l.changed; round++) {
        l.changed = false;
        hand_on_all(&l);
    }
    /* the last dimension is where it should be; one that moves past others of extent 1 moves
     * nothing */
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_out; i++) {
            const Value *v = op->out[i];
            int64_t after = 1;
            int axis = l.axis[v->id];
            for (int k = axis + 1; axis >= 0 && k < v->rank; k++) after *= v->shape[k];
            if (axis >= 0 && after == 1) l.axis[v->id] = -1;
        }
    for (Op *op = g->first; op; op = op->next) {
        op->index = 0;
        if (op->kind != OP_reshape) continue;
        int from = l.axis[op->in[0]->id], to = l.axis[op->out[0]->id];
        if ((from >= 0 || to >= 0) && !same_dimension(op->in[0], from, op->out[0], to)) {
            op->index = from >= 0 && to >= 0 && step_of(op->in[0], from) == step_of(op->out[0], to);
            reshape_to_map(g, op);
        }
    }
    /* products read what is innermost in both shapes through the reshape: the channels of a group
     * lie side by side among all channels */
    for (Op *op = g->first; op; op = op->next) {
        int64_t work = 0;
        for (int i = 0; op_is_product(op) && i < op->n_in; i++)
            if (op->in[i]->def->index) op_inline(g, op, i, MAX_INPUTS, &work);
    }
    for (Op *op = g->first; op; op = op->next) apply(&l, op);
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_out; i++) {
            int axis = l.axis[op->out[i]->id];
            Value *out = op->out[i];
            if (axis < 0) continue;
            out->shape = permuted(g, out, out->shape, axis);
            out->dims = permuted(g, out, out->dims, axis);
        }
}
