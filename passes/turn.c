/* turn: what is read out of order is laid out in rows, for targets of plain loops.
 *
 * A product is vectorised along its columns, which must lie side by side in the factor that has
 * them. Constants are packed when compiling; a computed factor, such as the keys of attention, is
 * copied into the order in which the product reads it: coordinates that it shares with the result,
 * then the reduction's, the columns last. Where the target adds a few products of narrow types at
 * once, those lie side by side within a column. Else there are panels of as many columns as a tile
 * has, each with all of the depth: rows of all columns (16 KiB with 4096 keys) compete for lines
 * and pages, and begin in the middle of lines. Columns that lie side by side are copied, too, where
 * enough rows meet them. (8 heads of 4096 queries and keys of 40 elements: 0.72 of the time.)
 *
 * A state that operators do nothing but scatter rows into, and one product alone reads (the keys of
 * attention that a model keeps from run to run), is kept in that order, and needs no copy.
 *
 * Of an image of the model's, channels may be a multiple of a page apart: those that a product adds
 * up would push each other out of the L1 cache, and again for every tile. A copy has its rows set
 * apart (place.c).
 *
 * Rows that lie in pieces, as the results of heads of attention do, are copied into whole ones.
 *
 * A map reads the means of groups of channels at the channel divided by the length of a group. What
 * is read like this along its rows, and is small beside the result, is spread: copied for every
 * channel.
 */
#include "passes/inline.h"
#include "passes/passes.h"
#include "passes/schedule.h"

#include <math.h>

#define MIN_REUSE     4 /* rows and depth that make a copy worth while */
#define MIN_COLUMNS   4
#define MIN_RESULTS   64  /* rows of them for which columns that lie side by side are copied */
#define MIN_ALONG     8   /* elements of a row of weights */
#define MIN_DEPTH     16  /* rows that push each other out of a cache, */
#define MIN_AGAIN     32  /* and results for which each is read */
#define LONGEST_PIECE 128 /* of rows that are joined, */
#define MIN_PIECES    256 /* for so many results that read each */

typedef struct Factor {
    Graph *g;
    const Op *op;
    uint32_t vars;    /* coordinates it depends on */
    bool constant;    /* it loads constants only */
    int column;       /* the coordinate at question ... */
    bool unit, other; /* ... which loads go along in steps of 1; in other steps */
} Factor;

static void look_at(void *user, const Expr *e) {
    Factor *f = user;
    if (e->op == EX_var) f->vars |= 1u << e->k.i;
    if (e->op != EX_load) return;
    const Value *v = f->op->in[e->k.i];
    f->constant &= value_is_const(v);
    if (f->column < 0) return;
    int64_t step = 0, size = 1;
    for (int i = e->n - 1; i >= 0; i--) {
        int64_t one;
        if (!ex_stride(e->arg[i], f->column, &one)) f->other = true;
        step += one * size;
        size *= v->shape[i];
    }
    if (step == 1)
        f->unit = true;
    else if (step)
        f->other = true;
}

static Factor factor_of(Graph *g, const Op *op, int i, int column) {
    Factor f = {.g = g, .op = op, .constant = true, .column = column};
    ex_visit(g->arena, op->body->arg[i], look_at, &f);
    return f;
}

static bool reads(const Op *op, const Value *v) {
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] == v) return true;
    return false;
}

/* A map that is made for this copy alone becomes part of it. `op` is what the copy is for: it may
 * read the same map elsewhere, which is one use more then. */
static void absorb(Graph *g, Op *copy, const Op *op) {
    for (int i = 0; i < copy->n_in; i++)
        if (reads(op, copy->in[i])) copy->in[i]->index++;
    Op *m = copy->n_in == 1 ? copy->in[0]->def : NULL;
    int64_t work = 0;
    if (!m || m->kind != OP_map || m->out[0]->index != 1) return;
    if (op_inline(g, copy, 0, MAX_RANK, &work)) graph_unlink(g, m);
}

/* Factor `i` of the product becomes a load of `v`, with the casts that it had. */
static void read_instead(Graph *g, Op *op, int i, Value *v, const Expr *const *index) {
    Exprs *x = g->x;
    const Expr *factor = op->body->arg[i], *part[2] = {op->body->arg[0], op->body->arg[1]};
    const Expr *load = ex_load(x, v->dt, op_add_input(g, op, v), v->rank, index);
    part[i] = with_casts(x, factor, without_casts(factor), load);
    op->body = ex_mul(x, part[0], part[1]);
    graph_drop_inputs(g, op);
}

/* A copy of a factor under construction. */
typedef struct Copy {
    Exprs *x;
    const Op *op;             /* the product */
    int64_t extent[MAX_RANK]; /* of its coordinates, */
    const Expr *to[MAX_RANK]; /* which are these of the copy's */
    int rank;                 /* of the copy, */
    int64_t shape[MAX_RANK], dims[MAX_RANK];
    const Expr *index[MAX_RANK]; /* whose coordinates are these of the product's */
} Copy;

/* The copy's next coordinate says in which group of `by` coordinate `k` is; one of `length`, after
 * which they begin again (those in a group that an earlier coordinate says). */
static void add_groups(Copy *c, int k, int64_t by, int64_t length) {
    Exprs *x = c->x;
    const Value *out = c->op->out[0];
    const Expr *at = ex_mul(x, ex_var(x, c->rank), ex_i(x, by));
    const Expr *group = ex_div(x, ex_var(x, k), ex_i(x, by));
    const bool whole = by == 1 && length == c->extent[k];
    c->to[k] = c->to[k] ? ex_add(x, c->to[k], at) : at;
    c->index[c->rank] =
        by * length < c->extent[k] ? ex_bin(x, EX_rem, group, ex_i(x, length)) : group;
    c->shape[c->rank] = length;
    c->dims[c->rank++] = whole && k < out->rank ? out->dims[k] : length;
}

static void set_extent(Graph *g, Value *v, int dim, int64_t extent) {
    int64_t *shape = arena_copy(g->arena, v->shape, sizeof *shape * (size_t)v->rank);
    int64_t *dims = arena_copy(g->arena, v->dims, sizeof *dims * (size_t)v->rank);
    shape[dim] = extent;
    if (!dim_varies(dims[dim])) dims[dim] = extent;
    v->shape = shape;
    v->dims = dims;
}

/* How a factor is copied. */
typedef struct Turning {
    uint32_t vars; /* coordinates it depends on */
    int column;    /* the one that comes last, */
    int at_once;   /* but for so many products of the depth */
    int64_t panel; /* columns that come with all of the depth before the next ones do; 0: all */
} Turning;

/* What is read by a coordinate is read by a quotient of it alone (keys that several heads have in
 * common). */
typedef struct Quotient {
    int var;
    int64_t by; /* 0: not read yet; 1: it is read itself, or divided by different numbers */
} Quotient;

static void find_quotient(void *user, const Expr *e) {
    Quotient *q = user;
    for (int i = 0; i < e->n; i++) {
        if (e->arg[i]->op != EX_var || e->arg[i]->k.i != q->var) continue;
        const bool divided = e->op == EX_div && i == 0 && ex_is_const(e->arg[1]);
        const int64_t by = divided ? e->arg[1]->k.i : 1;
        q->by = q->by == 0 || q->by == by ? by : 1;
    }
}

/* So many places along the coordinate, `extent` long, have the same element of `e`. */
static int64_t common_to(Graph *g, const Expr *e, int var, int64_t extent) {
    Quotient q = {var, 0};
    ex_visit(g->arena, e, find_quotient, &q);
    return q.by > 1 && extent % q.by == 0 ? q.by : 1;
}

/* --- states ----------------------------------------------------------------------------------- */

/* How often the operator's expressions load its input `i`. */
static int loads_of(Graph *g, const Op *op, int i) {
    const Expr *part[] = {op->body, op->post, op->guard};
    int count = 0;
    for (int k = 0; k < 3; k++)
        if (part[k]) count += loads_of_input(g->arena, part[k], i);
    for (int d = 0; op->kind == OP_scatter && d < op->out[0]->rank; d++)
        count += loads_of_input(g->arena, op->target[d], i);
    return count;
}

/* The state that factor `i` of the product loads whole, if it may lie in another order; NULL: there
 * is none. An element at coordinates v0, v1 ... of it is read where coordinate k is place[k]. */
static Value *turnable_state(Graph *g, const Op *op, int i, const Expr **place) {
    Exprs *x = g->x;
    int64_t extent[MAX_RANK];
    const int n = op_extents(op, extent);
    const Expr *load = without_casts(op->body->arg[i]);
    if (load->op != EX_load || loads_of(g, op, (int)load->k.i) != 1) return NULL;
    const Value *seen = op->in[load->k.i], *v = through_reshape(op->in[load->k.i]);
    Value *state = scattered_state(g, v);
    if (!state || state->data || v->index != 2 || (seen != v && seen->index != 1)) return NULL;
    const Expr *index[MAX_RANK];
    reshape_index(x, seen->rank, seen->shape, load->arg, v->rank, v->shape, index);
    for (int k = 0; k < n; k++) place[k] = NULL;
    for (int d = 0; d < v->rank; d++) {
        const Expr *at = ex_simplify(x, index[d], n, extent);
        const bool divided = at->op == EX_div && ex_is_const(at->arg[1]);
        const int64_t by = divided ? at->arg[1]->k.i : 1;
        if (v->shape[d] == 1 && ex_is_int(at, 0)) continue;
        if (divided) at = at->arg[0];
        if (at->op != EX_var || place[at->k.i] || by < 1 || extent[at->k.i] != v->shape[d] * by ||
            by != common_to(g, load, (int)at->k.i, extent[at->k.i]))
            return NULL;
        place[at->k.i] = ex_mul(x, ex_var(x, d), ex_i(x, by));
    }
    for (const Value *w = v; w != state; w = w->def->in[0])
        if (loads_of(g, w->def, 0)) return NULL;
    return state;
}

static void set_shape(Graph *g, Value *v, const Copy *c) {
    v->rank = c->rank;
    v->shape = v->dims = arena_copy(g->arena, c->shape, sizeof *c->shape * (size_t)c->rank);
}

/* The state lies as the copy would, and so does all that it becomes in a run. */
static void turn_state(Graph *g, Op *op, int i, Value *state, const Expr *const *place,
                       const Copy *c) {
    Exprs *x = g->x;
    int64_t extent[MAX_RANK];
    const int n = op_extents(op, extent);
    Value *v = through_reshape(op->in[without_casts(op->body->arg[i])->k.i]);
    for (Value *w = v; w != state; w = w->def->in[0]) {
        Op *scatter = w->def;
        const Expr **target = ARENA_ARRAY(g->arena, c->rank, const Expr *);
        for (int d = 0; d < c->rank; d++) {
            const Expr *at = ex_subst_vars(x, c->index[d], n, place);
            at = ex_subst_vars(x, at, w->rank, scatter->target);
            target[d] = ex_simplify(x, at, scatter->n_upd, scatter->upd);
        }
        scatter->target = target;
        set_shape(g, w, c);
    }
    set_shape(g, state, c);
    state->turned = true;
    read_instead(g, op, i, v, c->index);
}

/* --- factors ---------------------------------------------------------------------------------- */

/* Factor `i` as a tensor of its own, which op reads instead. Where the last panel is not full, op
 * has as many columns as all panels. */
static void turn_factor(Graph *g, Op *op, int i, const Turning *t) {
    Exprs *x = g->x;
    Copy c = {.x = x, .op = op};
    const int n = op_extents(op, c.extent), out = op->out[0]->rank;
    const int depth = t->at_once > 1 ? out : -1;
    const int64_t columns = c.extent[t->column], panel = t->panel ? t->panel : columns;
    const int64_t panels = tiles_of(columns, panel);
    const Expr *factor = op->body->arg[i], *inner = without_casts(factor);
    for (int k = 0; k < n; k++) {
        if (k == out && t->panel) add_groups(&c, t->column, panel, panels);
        if (!(t->vars >> k & 1) || k == t->column || k == depth) continue;
        const int64_t by = common_to(g, inner, k, c.extent[k]);
        add_groups(&c, k, by, c.extent[k] / by);
    }
    if (depth >= 0) add_groups(&c, depth, t->at_once, c.extent[depth] / t->at_once);
    add_groups(&c, t->column, 1, panel);
    if (depth >= 0) add_groups(&c, depth, 1, t->at_once);
    const Expr *place[MAX_RANK];
    Value *state = turnable_state(g, op, i, place);
    if (panels * panel > columns) set_extent(g, op->out[0], t->column, panels * panel);
    if (state) {
        turn_state(g, op, i, state, place, &c);
        return;
    }
    const Expr *body = ex_subst_vars(x, inner, n, c.to);
    if (panels * panel > columns)
        body = ex_select(x, ex_lt(x, c.to[t->column], ex_i(x, columns)), body,
                         ex_num(x, (DType)inner->dt, 0));
    Op *copy = graph_new_op(g, OP_map, op->n_in, op->in, 1);
    copy->body = ex_simplify(x, body, c.rank, c.shape);
    copy->src = op->src;
    Value *turned = graph_new_value(g, copy, 0, (DType)inner->dt, c.rank, c.dims);
    graph_insert_before(g, op, copy);
    graph_drop_inputs(g, copy);
    read_instead(g, op, i, turned, c.index);
    absorb(g, copy, op);
}

/* How many products the target adds at once. */
static int products_at_once(const Op *op, int i, const Target *t) {
    const Expr *columns = without_casts(op->body->arg[i]), *rows = without_casts(op->body->arg[!i]);
    int count = target_products(t, (DType)rows->dt, (DType)columns->dt);
    return op->n_red == 1 && op->red[0] % count == 0 ? count : 1;
}

/* Elements of what the product has for each place along these of its coordinates. */
static int64_t elements_of(const Op *op, uint64_t vars) {
    int64_t extent[MAX_RANK], elements = 1;
    const int n = op_extents(op, extent);
    for (int k = 0; k < n; k++)
        if (vars >> k & 1) elements *= extent[k];
    return elements;
}

/* The result's coordinates. */
static uint64_t spatial_of(const Op *op) {
    return ((uint64_t)1 << op->out[0]->rank) - 1;
}

/* Weights of one result, or of few, are added up along a coordinate in which the other factor's
 * elements lie side by side (channels): there theirs should, too. The schedule packs them itself
 * where they fill its vectors. */
static void turn_weights(Graph *g, Op *op, int i, const Factor *f) {
    int64_t extent[MAX_RANK], results = elements_of(op, f[i].vars & spatial_of(op));
    int n = op_extents(op, extent), rank = op->out[0]->rank, along = -1;
    for (int k = rank; k < n; k++) {
        Factor weights = factor_of(g, op, i, k), other = factor_of(g, op, !i, k);
        if (extent[k] >= MIN_ALONG && weights.other && other.unit && !other.other) along = k;
    }
    if (results >= MIN_COLUMNS || along < 0 || extent[along] % MIN_COLUMNS == 0) return;
    turn_factor(g, op, i, &(Turning){.vars = f[i].vars, .column = along, .at_once = 1});
    graph_fold(g, op->in[op->n_in - 1]->def, 1);
}

/* The dimension of an input that the load goes along with the depth, with rows of whole pages
 * behind it; -1: there is none. */
static int competing_rows(const Op *op, const Expr *load) {
    int64_t extent[MAX_RANK], stride, row = (int64_t)dt_store((DType)load->dt);
    const Value *v = op->in[load->k.i];
    int n = op_extents(op, extent), rank = op->out[0]->rank;
    if (v->def->kind != OP_input || !shape_equal(v->rank, v->shape, v->rank, v->dims)) return -1;
    const int64_t again = elements_of(op, spatial_of(op) & ~ex_vars(load));
    for (int i = v->rank - 1; i >= 0 && again >= MIN_AGAIN; row *= v->shape[i--])
        for (int k = rank; k < n && i < v->rank - 1 && row % L1_WAY_BYTES == 0; k++)
            if (extent[k] >= MIN_DEPTH && ex_stride(load->arg[i], k, &stride) && stride == 1)
                return i;
    return -1;
}

/* Factor `i` reads a copy of an input in which such rows are the last dimension. */
static void part_rows(Graph *g, Op *op, int i) {
    Exprs *x = g->x;
    const Expr *factor = op->body->arg[i], *load = without_casts(factor), *own[MAX_RANK];
    const int dim = load->op == EX_load ? competing_rows(op, load) : -1;
    if (dim < 0) return;
    Value *v = op->in[load->k.i];
    int64_t shape[MAX_RANK], row = 1;
    const Expr *index[MAX_RANK], *at = ex_i(x, 0);
    for (int k = 0; k < v->rank; k++) {
        if (k <= dim) {
            shape[k] = v->shape[k];
            index[k] = load->arg[k];
            continue;
        }
        row *= v->shape[k];
        at = ex_add(x, ex_mul(x, at, ex_i(x, v->shape[k])), load->arg[k]);
    }
    shape[dim + 1] = row;
    index[dim + 1] = at;
    for (int k = 0; k < dim + 2; k++) own[k] = ex_var(x, k);
    Op *flat = graph_new_op(g, OP_reshape, 1, &v, 1);
    Value *rows = graph_new_value(g, flat, 0, v->dt, dim + 2, shape);
    Op *copy = graph_new_op(g, OP_map, 1, &rows, 1);
    copy->body = ex_load(x, v->dt, 0, dim + 2, own);
    flat->src = copy->src = op->src;
    Value *apart = graph_new_value(g, copy, 0, v->dt, dim + 2, shape);
    graph_insert_before(g, op, flat);
    graph_insert_before(g, op, copy);
    read_instead(g, op, i, apart, index);
}

typedef struct Pieces {
    int depth; /* coordinate */
    int64_t by;
} Pieces;

static void find_piece(void *user, const Expr *e) {
    Pieces *p = user;
    if (e->op == EX_div && e->arg[0]->op == EX_var && e->arg[0]->k.i == p->depth &&
        ex_is_const(e->arg[1]))
        p->by = e->arg[1]->k.i;
}

/* Factor `i` reads rows whole where they lie in short pieces (heads of attention): a loop over each
 * ends once for every tile. */
static void join_pieces(Graph *g, Op *op, int i, const Target *t) {
    const Expr *load = without_casts(op->body->arg[i]);
    const int rank = op->out[0]->rank;
    Pieces p = {.depth = rank};
    if (load->op != EX_load || op->n_red != 1 || value_is_const(op->in[load->k.i])) return;
    if (t->matrix_tiles && products_at_once(op, !i, t) > 1) return;
    const uint64_t vars = ex_vars(load);
    ex_visit(g->arena, load, find_piece, &p);
    if (p.by > 1 && p.by <= LONGEST_PIECE &&
        elements_of(op, spatial_of(op) & ~vars) >= MIN_PIECES &&
        elements_of(op, vars) <= value_numel(op->in[load->k.i]))
        turn_factor(g, op, i, &(Turning){.vars = (uint32_t)vars, .column = rank, .at_once = 1});
}

typedef struct ColumnLoads {
    const Op *op;
    int column;
    int64_t width;
    bool beyond;
} ColumnLoads;

static void look_at_post(void *user, const Expr *e) {
    ColumnLoads *l = user;
    if (e->op != EX_load) return;
    for (int i = 0; i < e->n; i++) {
        if (!ex_depends(e->arg[i], l->column)) continue;
        l->beyond |= e->arg[i]->op != EX_var || l->op->in[e->k.i]->shape[i] < l->width;
    }
}

/* Would as many columns read beyond something, when their sums are known? */
static bool reads_beyond(Graph *g, const Op *op, int column, int64_t width) {
    ColumnLoads l = {op, column, width, false};
    ex_visit(g->arena, op->post, look_at_post, &l);
    return l.beyond;
}

/* Is the value read by nothing but indices? Then it may have more elements, which are what is made
 * of a sum of zeros. */
static bool read_by_element(const Graph *g, const Value *v) {
    for (const Op *op = g->first; op; op = op->next)
        if (reads(op, v) && op->kind != OP_map && op->kind != OP_reduce) return false;
    return !graph_is_output(g, v);
}

#define TILES_TRIED 8
#define MOST_COST   1.15 /* of the best one's */

/* How many columns of a computed factor a panel has, those of the best tile that can; 0: there
 * should be none. The last one may have some that nobody reads. */
static int64_t panel_of(Graph *g, const Op *op, int i, int column, int64_t rows, int64_t depth,
                        const Target *t) {
    const Expr *place[MAX_RANK];
    const Value *out = op->out[0];
    const int64_t columns = out->shape[column], bytes = depth * WORD_BYTES;
    if (!t->vector_types || dt_store((DType)op->body->dt) != WORD_BYTES ||
        out->rank + op->n_red == MAX_RANK)
        return 0;
    const Operands o = {.rows = rows,
                        .columns = columns,
                        .depth = depth,
                        .times = 1,
                        .fewest = rows,
                        .row_bytes = (double)(rows * bytes),
                        .column_bytes = (double)(columns * bytes),
                        .most_rows = MOST_ROWS};
    if (out->dims[column] != columns && !turnable_state(g, op, i, place))
        return 0; /* a copy would go to the end */
    double least = HUGE_VAL;
    for (int variant = 0; variant < TILES_TRIED; variant++) {
        const Tile tile = choose_tile(t, t->vector_bytes / WORD_BYTES, &o, variant);
        const int64_t panel = tile.columns;
        least = fmin(least, tile.cost);
        if (tile.cost > MOST_COST * least) break;
        const int64_t width = (columns + panel - 1) / panel * panel;
        if (panel == columns) return 0;
        if (width == columns || (!reads_beyond(g, op, column, width) && read_by_element(g, out)))
            return panel;
    }
    return 0;
}

/* Are rows of columns that lie side by side worth a copy in panels? Only what is read once for each
 * row of results: windows overlap. */
static bool worth_panels(const Op *op, int i, uint32_t vars, int64_t rows) {
    const Expr *load = without_casts(op->body->arg[i]);
    return load->op == EX_load && rows >= MIN_RESULTS &&
           elements_of(op, vars) <= value_numel(op->in[load->k.i]);
}

static void turn_product(Graph *g, Op *op, const Target *t) {
    if (!op_is_product(op)) return;
    for (int i = 0; i < 2 && t->vector_types; i++) {
        part_rows(g, op, i);
        join_pieces(g, op, i, t);
    }
    const Value *out = op->out[0];
    Factor f[2] = {factor_of(g, op, 0, -1), factor_of(g, op, 1, -1)};
    if (f[0].constant != f[1].constant) turn_weights(g, op, f[1].constant, f);
    if (f[0].constant || f[1].constant) return;
    uint32_t either = f[0].vars ^ f[1].vars;
    int column = -1;
    for (int k = 0; k < out->rank; k++)
        if (either >> k & 1 && out->shape[k] >= MIN_COLUMNS) column = k;
    if (column < 0) return;
    int i = f[1].vars >> column & 1;
    const int64_t reuse = elements_of(op, f[!i].vars & ~f[i].vars & spatial_of(op));
    const int64_t depth = elements_of(op, ~spatial_of(op));
    Factor now = factor_of(g, op, i, column);
    int at_once = products_at_once(op, i, t);
    const bool side_by_side = at_once == 1 && now.unit && !now.other;
    if (depth < MIN_REUSE || reuse < MIN_REUSE) return;
    if (side_by_side && !worth_panels(op, i, f[i].vars, reuse)) return;
    const int64_t panel = at_once == 1 ? panel_of(g, op, i, column, reuse, depth, t) : 0;
    if (panel || !side_by_side)
        turn_factor(g, op, i, &(Turning){f[i].vars, column, at_once, panel});
}

/* --- gathering -------------------------------------------------------------------------------- */

#define MIN_CHANNELS 8 /* that a map reads at a computed place */
#define MIN_GATHERED 2 /* elements that it reads for each of the tensor */

/* Loads at computed places of one input, of whose dimension `dim` each is at coordinate `channel`.
 */
typedef struct Gather {
    const Op *op;
    int input, dim, channel; /* -1: not known yet */
    int loads;
    bool other; /* loads that differ, or whose places are not the same for all channels */
} Gather;

static void look_at_gather(void *user, const Expr *e) {
    Gather *s = user;
    int dim = -1, channel = -1;
    bool computed = false, alone = true;
    if (e->op != EX_load || (int)e->k.i != s->input) return;
    for (int i = 0; i < e->n; i++) computed |= e->arg[i]->loads;
    for (int i = 0; i < e->n && computed; i++)
        if (e->arg[i]->op == EX_var && s->op->in[s->input]->shape[i] >= MIN_CHANNELS) {
            channel = (int)e->arg[i]->k.i;
            dim = i;
        }
    for (int i = 0; i < e->n && dim >= 0; i++) alone &= i == dim || !ex_depends(e->arg[i], channel);
    s->other |= dim < 0 || !alone || (s->loads && (dim != s->dim || channel != s->channel));
    s->dim = dim;
    s->channel = channel;
    s->loads++;
}

typedef struct Turned {
    Exprs *x;
    int input, to, dim; /* loads of the input become such of another one, dimension `dim` last */
} Turned;

static const Expr *turned_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Turned *t = user;
    const Expr *index[MAX_RANK];
    int n = 0;
    if (e->op != EX_load) return e;
    if ((int)e->k.i != t->input) return ex_load(t->x, (DType)e->dt, (int)e->k.i, e->n, args);
    for (int i = 0; i < e->n; i++)
        if (i != t->dim) index[n++] = args[i];
    index[n++] = args[t->dim];
    return ex_load(t->x, (DType)e->dt, t->to, n, index);
}

/* Channels of an image that are read at computed places lie side by side in a copy. */
static void turn_gathered(Graph *g, Op *op, int i) {
    Exprs *x = g->x;
    const Value *v = op->in[i];
    Gather s = {.op = op, .input = i, .dim = -1, .channel = -1};
    ex_visit(g->arena, op->body, look_at_gather, &s);
    if (!s.loads || s.other || s.dim == v->rank - 1 || s.channel == op->out[0]->rank - 1 ||
        s.loads * value_numel(op->out[0]) < MIN_GATHERED * value_numel(v))
        return;
    int64_t dims[MAX_RANK];
    const Expr *index[MAX_RANK];
    for (int k = 0, at = 0; k < v->rank; k++) {
        const bool last = k == s.dim;
        const int to = last ? v->rank - 1 : at++;
        dims[to] = v->dims[k];
        index[k] = ex_var(x, to);
    }
    Op *copy = graph_new_op(g, OP_map, 1, &op->in[i], 1);
    copy->body = ex_load(x, v->dt, 0, v->rank, index);
    copy->src = op->src;
    Value *made = graph_new_value(g, copy, 0, v->dt, v->rank, dims);
    graph_insert_before(g, op, copy);
    Turned t = {x, i, op_add_input(g, op, made), s.dim};
    op->body = ex_rewrite(x, op->body, turned_leaf, &t);
    graph_drop_inputs(g, op);
    absorb(g, copy, op);
}

/* --- spreading -------------------------------------------------------------------------------- */

#define MIN_ROW    8  /* of results, in which a division is worth avoiding */
#define MIN_SPREAD 16 /* results for each element of a copy */

typedef struct Spread {
    Graph *g;
    const Op *op;
    const Expr *load; /* to be replaced; NULL: none */
    uint32_t vars;    /* coordinates it depends on */
} Spread;

static void find_divided(void *user, const Expr *e) {
    Spread *s = user;
    const Value *out = s->op->out[0];
    Factor f = {.g = s->g, .op = s->op, .column = out->rank - 1};
    if (e->op != EX_load || s->load) return;
    ex_visit(s->g->arena, e, look_at, &f);
    int64_t size = 1, lo, hi;
    for (int k = 0; k < out->rank; k++)
        if (f.vars >> k & 1) size *= out->shape[k];
    if (!f.other || size > value_numel(out) / MIN_SPREAD) return;
    for (int i = 0; i < e->n; i++) /* for it is no longer behind what guards it here */
        if (!ex_bounds(e->arg[i], out->rank, out->shape, &lo, &hi) || lo < 0 ||
            hi >= s->op->in[e->k.i]->shape[i])
            return;
    s->load = e;
    s->vars = f.vars;
}

static const Expr *spread_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Spread *s = user;
    Exprs *x = s->g->x;
    if (e->op != EX_load) return e;
    if (e != s->load) return ex_load(x, (DType)e->dt, (int)e->k.i, e->n, args);
    const Expr *index[MAX_RANK];
    int rank = 0;
    for (int k = 0; k < s->op->out[0]->rank; k++)
        if (s->vars >> k & 1) index[rank++] = ex_var(x, k);
    return ex_load(x, (DType)e->dt, s->op->n_in - 1, rank, index);
}

/* Copies what one load of the map reads; false if there is none to be copied. */
static bool spread_one(Graph *g, Op *op) {
    Value *out = op->out[0];
    Spread s = {.g = g, .op = op};
    ex_visit(g->arena, op->body, find_divided, &s);
    if (!s.load) return false;
    int64_t shape[MAX_RANK];
    const Expr *to[MAX_RANK] = {NULL};
    int rank = 0;
    for (int k = 0; k < out->rank; k++) {
        if (!(s.vars >> k & 1)) continue;
        to[k] = ex_var(g->x, rank);
        shape[rank++] = out->dims[k];
    }
    Op *copy = graph_new_op(g, OP_map, op->n_in, op->in, 1);
    copy->body = ex_subst_vars(g->x, s.load, out->rank, to);
    copy->src = op->src;
    Value *made = graph_new_value(g, copy, 0, (DType)s.load->dt, rank, shape);
    graph_insert_before(g, op, copy);
    op_add_input(g, op, made);
    op->body = ex_rewrite(g->x, op->body, spread_leaf, &s);
    graph_drop_inputs(g, copy);
    graph_drop_inputs(g, op);
    return true;
}

void pass_turn(Graph *g, const PassOptions *o) {
    if (o->target->blocks) return;
    graph_count_uses(g);
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_turn(op->sub, o);
        turn_product(g, op, o->target);
        int rank = op->kind == OP_map ? op->out[0]->rank : 0;
        for (int i = op->n_in - 1; rank && o->target->vector_types && i >= 0; i--)
            turn_gathered(g, op, i);
        while (rank && op->out[0]->shape[rank - 1] >= MIN_ROW && spread_one(g, op)) {
        }
    }
}
