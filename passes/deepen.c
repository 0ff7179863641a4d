/* deepen: the depth of products is a multiple of how many the target adds at once.
 *
 * Where the target adds two or four products of narrow types with one instruction, those must lie
 * side by side: the three channels of an image become four. Both factors get zeros, constants
 * when compiling; a computed one that has no dimension for it (a window's places, joined) becomes a
 * tensor that has. With --precision this goes by the types that `narrow` will give to what the
 * product reads; it has to be known before `layout` and `fuse` look at the operators.
 */
#include "passes/inline.h"
#include "passes/passes.h"

/* One of the two factors of a product: a load, with or without casts around it. */
typedef struct Factor {
    const Expr *factor, *load;
    Value *v;
    DType dt; /* that it has when the product is computed */
    uint64_t vars;
} Factor;

static bool read_factor(const Op *op, int i, const PassOptions *o, Factor *f) {
    const Expr *factor = op->body->arg[i], *e = without_casts(factor);
    if (e->op != EX_load) return false;
    *f = (Factor){factor, e, op->in[e->k.i], (DType)e->dt, ex_vars(e)};
    if (e->dt == DT_f32 && o->precision != DT_none) f->dt = o->precision;
    return true;
}

/* Can the factor become a tensor with a dimension for each coordinate that it depends on? A window
 * that slides over an image would make much more of it. */
static bool can_lay_out(const Op *op, const Factor *f) {
    int64_t extent[MAX_RANK], elements = 1;
    int n = op_extents(op, extent);
    for (int k = 0; k < n; k++)
        if (f->vars >> k & 1) elements *= extent[k];
    return !value_is_const(f->v) && elements <= value_numel(f->v) &&
           __builtin_popcountll(f->vars) < MAX_RANK && !dims_vary(f->v->rank, f->v->dims) &&
           !dims_vary(op->out[0]->rank, op->out[0]->dims);
}

/* Have both factors a dimension for coordinate r, or can they be given one? */
static bool can_pad(const Op *op, const Factor f[2], int r, bool lay_out) {
    for (int i = 0; i < 2; i++)
        if (load_dimension(f[i].load, r) < 0 &&
            !(lay_out && f[i].vars >> r & 1 && can_lay_out(op, &f[i])))
            return false;
    return true;
}

/* Finds the coordinate to be made longer, *best; -1 if none will do. False if one fits as it is. */
static bool coordinate_to_pad(const Op *op, const Factor f[2], int64_t at_once, bool lay_out,
                              int *best) {
    *best = -1;
    for (int k = 0; k < op->n_red; k++) {
        int64_t extent = op->red[k];
        if (!can_pad(op, f, op->out[0]->rank + k, lay_out)) continue;
        if (extent % at_once == 0) return false;
        if (extent >= at_once / 2 && (*best < 0 || extent > op->red[*best])) *best = k;
    }
    return true;
}

/* The factor as a load of a tensor whose dimensions are the coordinates that it depends on, with
 * `by` zeros behind coordinate r. */
static const Expr *laid_out(Graph *g, Op *op, const Factor *f, int r, int64_t by) {
    Exprs *x = g->x;
    Op *last = g->last;
    LaidOut l = lay_out(x, op, f->vars, -1);
    int64_t *extent = &l.dims[l.to[r]->k.i];
    const Expr *there = ex_lt(x, l.to[r], ex_i(x, *extent)), *index[MAX_RANK];
    *extent += by;
    Builder b = build(g, l.rank, l.dims);
    for (int i = 0; i < f->load->n; i++)
        index[i] = ex_subst_vars(x, build_rebased(&b, op->in, f->load->arg[i]),
                                 op->out[0]->rank + op->n_red, l.to);
    const Expr *e = build_load(&b, f->v, index);
    Value *v = build_map(&b, f->v->dt,
                         ex_select(x, there, e, ex_const(x, (DType)e->dt, (Scalar){.i = 0})));
    graph_take_in(g, last, op);
    return ex_load(x, v->dt, op_add_input(g, op, v), l.rank, l.own);
}

/* A factor with `by` zeros behind coordinate r; what it reads then is added to the inputs. */
static const Expr *padded(Graph *g, Op *op, const Factor *f, int r, int64_t by) {
    int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
    if (load_dimension(f->load, r) < 0)
        return with_casts(g->x, f->factor, f->load, laid_out(g, op, f, r, by));
    after[load_dimension(f->load, r)] = by;
    Op *last = g->last;
    Value *v = g_pad(g, f->v, before, after, (Scalar){.i = 0});
    graph_take_in(g, last, op);
    int at = op_add_input(g, op, v);
    return with_casts(g->x, f->factor, f->load, ex_load(g->x, v->dt, at, f->load->n, f->load->arg));
}

static void deepen(Graph *g, Op *op, const PassOptions *o) {
    Factor f[2];
    if (!op_is_product(op)) return;
    for (int i = 0; i < 2; i++)
        if (!read_factor(op, i, o, &f[i])) return;
    int rows = value_is_const(f[0].v) ||
               (!value_is_const(f[1].v) && target_products(o->target, f[0].dt, f[1].dt) == 1);
    uint64_t spatial = ((uint64_t)1 << op->out[0]->rank) - 1;
    if (value_is_const(f[rows].v)) return;
    if (!(f[!rows].vars & ~f[rows].vars & spatial)) return; /* no columns */
    int64_t at_once = target_products(o->target, f[rows].dt, f[!rows].dt);
    int k = -1;
    for (int lay_out = 0; k < 0 && lay_out < 2; lay_out++)
        if (!coordinate_to_pad(op, f, at_once, lay_out, &k)) return;
    if (k < 0) return;
    int64_t by = at_once - op->red[k] % at_once;
    const Expr *part[2];
    for (int i = 0; i < 2; i++) part[i] = padded(g, op, &f[i], op->out[0]->rank + k, by);
    op->body = ex_mul(g->x, part[0], part[1]);
    int64_t *red = arena_copy(g->arena, op->red, (size_t)op->n_red * sizeof *red);
    red[k] += by;
    op->red = red;
    graph_drop_inputs(g, op);
}

void pass_deepen(Graph *g, const PassOptions *o) {
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_deepen(op->sub, o);
        deepen(g, op, o);
    }
}
