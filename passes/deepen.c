/* deepen: the depth of products is a multiple of how many the target adds at once.
 *
 * Where the target adds two or four products of narrow types with one instruction, those must lie
 * side by side: the three channels of an image become four. Both factors get zeros, constants
 * when compiling; a computed one that has no dimension for it (a window's places, joined) becomes a
 * tensor that has. With --precision this goes by the types that `narrow` will give to what the
 * product reads; it has to be known before `layout` and `fuse` look at the operators.
 *
 * Where windows slide over an image of few channels, a line of the window is often shorter as a
 * whole: 7 places of 3 channels are 21 neighbours of an image with its channels innermost, 24 with
 * the zeros behind, but 28 with four channels each. The image is laid out so (a line's pixels and
 * their channels are one dimension, with zeros behind the line where windows reach beyond it), the
 * places of the window and the channels become one coordinate of the reduction, and only the
 * weights get zeros: they meet the pixel next to the window. So do those of a line of one channel,
 * where that is as good: 3 x 8 products take the place of 3 x 7, in an image that stays as it is.
 * (Of floats, NaN or infinity there reaches a result more; so only --precision, which asks for less
 * than fp32, has lines of floats joined.) A matrix unit takes a line of either length in one step.
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

/* --- joined rows of windows ------------------------------------------------------------------- */

#define LEAST_GAIN        0.1 /* of the products: rows begin at any byte then */
#define DOTS_A_CYCLE      2
#define FEW_CHANNELS      3
#define CYCLES_IN_VECTORS 0.25 /* that an element of the image takes to be laid out */
#define CYCLES_APART      2
#define MOVED_CHANNELS    4 /* so many `layout` may have side by side, whatever is asked for here */

/* Of a window over an image, its places along one dimension and the channels there, as one
 * coordinate of the reduction. */
typedef struct Join {
    int tap, channel;       /* the coordinates of the two; channel -1: there is one channel */
    int of_tap, of_channel; /* the dimensions of the image that they run through */
    int64_t channels;
    int64_t places, depth; /* those that are joined, and as many with the zeros behind them */
    int64_t pixels;        /* that a line of the image has then */
    int64_t products;      /* of one result */
} Join;

static int64_t rounded_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* The only dimension whose index depends on coordinate `var`, if it grows with that by one; -1:
 * there is none. */
static int tap_dimension(const Expr *load, int var) {
    int found = -1;
    int64_t stride;
    for (int i = 0; i < load->n; i++) {
        if (!ex_depends(load->arg[i], var)) continue;
        if (found >= 0 || !ex_stride(load->arg[i], var, &stride) || stride != 1) return -1;
        found = i;
    }
    return found;
}

/* Completes the join of two coordinates, if pixels of a line and their channels can lie side by
 * side. */
static bool read_join(const Op *op, const Factor *image, const Factor *weights, int64_t at_once,
                      Join *j) {
    const Expr *load = image->load;
    int64_t extent[MAX_RANK], low, high;
    const int n = op_extents(op, extent);
    j->of_tap = tap_dimension(load, j->tap);
    j->of_channel = j->channel < 0 ? -1 : load_dimension(load, j->channel);
    if (j->of_tap < 0 || load_dimension(weights->load, j->tap) < 0) return false;
    if (j->channel >= 0 && (j->of_channel < 0 || load_dimension(weights->load, j->channel) < 0))
        return false;
    for (int i = 0; i < load->n; i++) {
        const bool channels = i != j->of_tap && !(ex_vars(load->arg[i]) & ~weights->vars);
        if (i == j->of_channel) continue;
        if (i > j->of_tap && image->v->shape[i] != 1) return false;
        if (channels && image->v->shape[i] >= MOVED_CHANNELS && ex_vars(load->arg[i])) return false;
    }
    j->channels = j->channel < 0 ? 1 : extent[j->channel];
    j->places = extent[j->tap] * j->channels;
    j->depth = rounded_up(j->places, at_once);
    j->products = shape_numel(op->n_red, op->red) / j->places * j->depth;
    extent[j->tap] = 1; /* where windows begin */
    if (!ex_bounds(load->arg[j->of_tap], n, extent, &low, &high) || low < 0) return false;
    j->pixels = rounded_up(high * j->channels + j->depth, j->channels) / j->channels;
    /* one more at least: what only moves elements would become part of the product */
    if (j->pixels <= image->v->shape[j->of_tap]) j->pixels = image->v->shape[j->of_tap] + 1;
    return true;
}

/* Cycles that the products take which it leaves out, less those that laying out the image takes
 * more than what would be done else (nothing, or channels of zeros behind others). Few channels are
 * interleaved in vectors, others one by one. */
static double cycles_gained(const Op *op, const PassOptions *o, const Factor *image,
                            int64_t at_once, int64_t now, const Join *j) {
    const int lanes = o->target->vector_bytes / (int)dt_store(DT_f32);
    const double dots = (double)(now - j->products) / (double)at_once;
    const bool padded = now < shape_numel(op->n_red, op->red) * at_once;
    const double each = j->channels > FEW_CHANNELS ? CYCLES_APART : padded ? 0 : CYCLES_IN_VECTORS;
    return dots * (double)value_numel(op->out[0]) / lanes / DOTS_A_CYCLE -
           each * (double)value_numel(image->v);
}

/* Finds the join that leaves the fewest products, if they are clearly fewer than the `now` that are
 * computed without. */
static bool find_join(const Op *op, const PassOptions *o, const Factor *image,
                      const Factor *weights, int64_t at_once, int64_t now, Join *best) {
    const uint64_t spatial = ((uint64_t)1 << op->out[0]->rank) - 1;
    const int rank = op->out[0]->rank, n = rank + op->n_red;
    const int64_t all = shape_numel(op->n_red, op->red);
    int64_t most = (int64_t)((1 - LEAST_GAIN) * (double)now);
    bool found = false;
    if (!o->target->vector_types || o->target->matrix_tiles || !value_is_const(weights->v) ||
        (image->vars & weights->vars & spatial) ||
        (dt_is_float(image->dt) && image->dt == image->v->dt) ||
        dims_vary(image->v->rank, image->v->dims) || dims_vary(rank, op->out[0]->dims) ||
        dims_vary(op->n_red, op->red))
        return false;
    for (int tap = rank; tap < n; tap++)
        for (int channel = rank - 1; channel < n; channel++) { /* rank - 1: none */
            Join j = {.tap = tap, .channel = channel < rank ? -1 : channel};
            if (channel == tap || !read_join(op, image, weights, at_once, &j)) continue;
            if (j.products == all && now == all * at_once) return false; /* lines are fours now */
            if (j.products > most || cycles_gained(op, o, image, at_once, now, &j) <= 0) continue;
            *best = j;
            most = j.products - 1;
            found = true;
        }
    return found;
}

/* The image with a line's pixels and their channels as its last dimension. */
static const Expr *joined_image(Graph *g, Op *op, const Factor *f, const Join *j) {
    Exprs *x = g->x;
    Op *last = g->last;
    const Value *from = f->v;
    const Expr *own[MAX_RANK], *at[MAX_RANK];
    int64_t dims[MAX_RANK];
    int rank = 0;
    for (int i = 0; i < from->rank; i++) {
        if (i == j->of_tap || i == j->of_channel) continue;
        own[rank] = f->load->arg[i];
        at[i] = ex_var(x, rank);
        dims[rank++] = from->dims[i];
    }
    const Expr *pixel = at[j->of_tap] = ex_var(x, rank);
    const Expr *first = ex_subst_var(x, f->load->arg[j->of_tap], j->tap, ex_i(x, 0));
    own[rank] = ex_add(x, ex_mul(x, first, ex_i(x, j->channels)), ex_var(x, j->tap));
    dims[rank++] = j->pixels;
    if (j->channel >= 0) {
        at[j->of_channel] = ex_var(x, rank);
        dims[rank++] = j->channels;
    }
    Builder b = build(g, rank, dims);
    const Expr *e = build_load(&b, f->v, at), *zero = ex_const(x, (DType)e->dt, (Scalar){.i = 0});
    const Expr *there = ex_lt(x, pixel, ex_i(x, from->shape[j->of_tap]));
    Value *v = build_map(&b, from->dt, ex_select(x, there, e, zero));
    if (j->channel >= 0) {
        dims[--rank - 1] *= j->channels;
        v = g_reshape(g, v, rank, dims);
    }
    graph_take_in(g, last, op);
    return with_casts(x, f->factor, f->load, ex_load(x, v->dt, op_add_input(g, op, v), rank, own));
}

/* The weights of a line of the window in a row, with zeros behind it. */
static const Expr *joined_weights(Graph *g, Op *op, const Factor *f, const Join *j) {
    Exprs *x = g->x;
    Op *last = g->last;
    const uint64_t joined =
        (uint64_t)1 << j->tap | (j->channel < 0 ? 0 : (uint64_t)1 << j->channel);
    LaidOut l = lay_out(x, op, f->vars & ~joined, -1);
    const Expr *place = ex_var(x, l.rank), *index[MAX_RANK];
    l.own[l.rank] = ex_var(x, j->tap);
    l.dims[l.rank++] = j->depth;
    l.to[j->tap] = ex_div(x, place, ex_i(x, j->channels));
    if (j->channel >= 0) l.to[j->channel] = ex_bin(x, EX_rem, place, ex_i(x, j->channels));
    Builder b = build(g, l.rank, l.dims);
    for (int i = 0; i < f->load->n; i++)
        index[i] = ex_subst_vars(x, f->load->arg[i], op->out[0]->rank + op->n_red, l.to);
    const Expr *e = build_load(&b, f->v, index),
               *zero = ex_const(x, (DType)e->dt, (Scalar){.i = 0});
    const Expr *there = ex_lt(x, place, ex_i(x, j->places));
    Value *v = build_map(&b, f->v->dt, ex_select(x, there, e, zero));
    graph_take_in(g, last, op);
    return with_casts(x, f->factor, f->load,
                      ex_load(x, v->dt, op_add_input(g, op, v), l.rank, l.own));
}

/* The joined coordinate takes the tap's place, and the channels' one goes. */
static void join(Graph *g, Op *op, const Factor f[2], int image, const Join *j) {
    const int rank = op->out[0]->rank, n = rank + op->n_red;
    int64_t *red = ARENA_ARRAY(g->arena, op->n_red, int64_t), extent[MAX_RANK];
    const Expr *part[2], *to[MAX_RANK];
    int left = 0;
    part[image] = joined_image(g, op, &f[image], j);
    part[!image] = joined_weights(g, op, &f[!image], j);
    for (int k = 0; k < n; k++) {
        to[k] = k == j->channel ? ex_i(g->x, 0) : ex_var(g->x, k < rank ? k : rank + left);
        if (k >= rank && k != j->channel) red[left++] = k == j->tap ? j->depth : op->red[k - rank];
    }
    op->body = ex_subst_vars(g->x, ex_mul(g->x, part[0], part[1]), n, to);
    op->red = red;
    op->n_red = left;
    op->body = ex_simplify(g->x, op->body, op_extents(op, extent), extent);
    graph_drop_inputs(g, op);
}

/* --- the pass --------------------------------------------------------------------------------- */

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
    const int64_t all = shape_numel(op->n_red, op->red);
    int k = -1;
    if (at_once == 1) return;
    for (int lay_out = 0; k < 0 && lay_out < 2; lay_out++)
        if (!coordinate_to_pad(op, f, at_once, lay_out, &k)) return;
    Join j;
    int64_t now = k < 0 ? all * at_once : all / op->red[k] * rounded_up(op->red[k], at_once);
    if (find_join(op, o, &f[rows], &f[!rows], at_once, now, &j)) {
        join(g, op, f, rows, &j);
        return;
    }
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
