/* place: a tensor that another one holds as a part is computed there at once.
 *
 * A map that pads or concatenates copies whole tensors to a box of its result. Where such a tensor
 * is made by a map or a reduction and needs no memory of its own, it becomes that box
 * (Value.inside): its maker writes there and its other users read there. What remains of the map is
 * the part that copies nothing, under a guard (Op.guard of a map), often nothing at all. What is
 * read there across rows becomes a tensor of its own first, since squares are turned where no guard
 * is.
 *
 * Rows that would get into each other's way in the cache are set apart (Value.gap), and so are
 * those of what a map makes of longer rows, so that it can be written over them.
 */
#include "passes/inline.h"
#include "passes/passes.h"
#include "passes/schedule.h"

#define MIN_ROWS     8 /* that get into each other's way, or are turned */
#define LEAST_SPREAD 8 /* lines of a row beside which one more is little */

typedef struct Box {
    int64_t lo[MAX_RANK], hi[MAX_RANK]; /* per dimension: lo <= coordinate < hi, ... */
    const Expr *end[MAX_RANK]; /* ... and below this in a run, by loads of op; NULL: hi says all */
} Box;

typedef struct Placing {
    Graph *g;
    Op *op;
    bool *fixed;           /* by value id: must keep memory of its own; NULL: nothing is placed */
    const Expr *elsewhere; /* true outside of all boxes that were placed; NULL: there is none */
    int64_t covered;       /* elements of those that end where runs do not decide */
} Placing;

/* Ends the box at `at`, if it does not end before; false if it is not known which comes first. */
static bool end_at(Exprs *x, const Expr *at, const Expr **end) {
    const Expr *more = *end ? ex_simplify(x, ex_sub(x, at, *end), 0, NULL) : NULL;
    if (more && !ex_is_const(more)) return false;
    if (!more || more->k.i < 0) *end = at;
    return true;
}

/* Cuts `box` down to where `guard` holds; false if the guard is not made of bounds of coordinates.
 */
static bool cut_box(const Placing *p, const Expr *guard, Box *box) {
    if (guard->op == EX_and)
        return cut_box(p, guard->arg[0], box) && cut_box(p, guard->arg[1], box);
    const Value *out = p->op->out[0];
    int64_t extent[MAX_RANK];
    for (int i = 0; i < out->rank; i++) extent[i] = dim_max(p->g->x, out->dims[i]);
    int var;
    const Expr *at;
    bool below;
    if (!ex_bound(p->g->x, guard, out->rank, extent, &var, &at, &below)) return false;
    if (!ex_is_const(at)) {
        if (!p->fixed || !below) return false;
        return end_at(p->g->x, at, &box->end[var]);
    }
    int64_t bound = at->k.i;
    if (bound < box->lo[var])
        bound = box->lo[var]; /* the box may become empty, not less than that */
    if (bound > box->hi[var]) bound = box->hi[var];
    *(below ? &box->hi[var] : &box->lo[var]) = bound;
    return true;
}

/* What is left of `box` without `part`, if that is a box. */
static bool rest_of(const Placing *p, const Box *box, const Box *part, Box *rest) {
    int cut = -1;
    for (int i = 0; i < p->op->out[0]->rank; i++) {
        if (part->end[i] != box->end[i]) return false;
        if (part->lo[i] == box->lo[i] && part->hi[i] == box->hi[i]) continue;
        if (cut >= 0) return false;
        cut = i;
    }
    if (cut < 0) return false;
    *rest = *box;
    if (part->lo[cut] == box->lo[cut])
        rest->lo[cut] = part->hi[cut];
    else if (part->hi[cut] == box->hi[cut])
        rest->hi[cut] = part->lo[cut];
    else
        return false;
    return true;
}

static const Expr *symbol_of_load(void *user, const Expr *e, const Expr *const *args) {
    const Placing *p = user;
    const int k = e->op == EX_load ? graph_symbol_of(p->g, p->op->in[e->k.i]) : -1;
    (void)args;
    return k < 0 ? e : ex_var(p->g->x, DIM_VAR + k);
}

/* Ends the box, which a run may end earlier, behind the extent that `v` has there; false if it does
 * not. */
static bool end_with(Placing *p, const Value *v, int i, Box *box) {
    Exprs *x = p->g->x;
    int64_t end, own;
    const Expr *behind = ex_add(x, dim_simplified(x, v->dims[i]), ex_i(x, box->lo[i]));
    if (!dim_from_expr(x, ex_rewrite(x, box->end[i], symbol_of_load, p), &end) ||
        !dim_from_expr(x, behind, &own) || end != own || box->lo[i] + v->shape[i] > box->hi[i])
        return false;
    box->hi[i] = box->lo[i] + v->shape[i];
    return true;
}

/* True if `e` loads the whole of a tensor into the box, unmoved. */
static bool covers(Placing *p, const Expr *e, Box *box) {
    if (e->op != EX_load || e->n != p->op->out[0]->rank) return false;
    const Value *v = p->op->in[e->k.i];
    for (int i = 0; i < e->n; i++) {
        if (box->end[i] && !end_with(p, v, i, box)) return false;
        int64_t extent = box->hi[i] - box->lo[i];
        const Expr *own = ex_sub(p->g->x, ex_var(p->g->x, i), ex_i(p->g->x, box->lo[i]));
        bool one = extent == 1 && ex_is_int(e->arg[i], 0);
        if (v->shape[i] != extent || (e->arg[i] != own && !one)) return false;
    }
    return true;
}

static void place_part(Placing *p, Value *v, const Box *box) {
    Exprs *x = p->g->x;
    Value *whole = p->op->out[0];
    if (p->fixed[v->id] || v->inside) return;
    v->inside = v->storage = whole;
    v->origin = arena_copy(p->g->arena, box->lo, (size_t)v->rank * sizeof *box->lo);
    const Expr *here = NULL;
    int64_t elements = 1;
    for (int i = 0; i < whole->rank; i++) {
        const Expr *i_var = ex_var(x, i), *bound[2] = {NULL, NULL};
        if (box->lo[i] > 0) bound[0] = ex_le(x, ex_i(x, box->lo[i]), i_var);
        if (box->end[i])
            bound[1] = ex_lt(x, i_var, box->end[i]);
        else if (box->hi[i] < whole->shape[i])
            bound[1] = ex_lt(x, i_var, ex_i(x, box->hi[i]));
        elements *= box->end[i] ? 0 : box->hi[i] - box->lo[i];
        for (int k = 0; k < 2; k++)
            if (bound[k]) here = here ? ex_and(x, here, bound[k]) : bound[k];
    }
    p->covered += elements;
    const Expr *outside = here ? ex_un(x, EX_not, here) : ex_int(x, DT_bool, 0);
    p->elsewhere = p->elsewhere ? ex_and(x, p->elsewhere, outside) : outside;
}

/* Does the condition say that coordinates are within the result's extents? What lies beyond them is
 * anything. */
static bool within_extents(Placing *p, const Expr *cond) {
    const Value *out = p->op->out[0];
    if (cond->op == EX_and)
        return within_extents(p, cond->arg[0]) && within_extents(p, cond->arg[1]);
    int64_t var = cond->op == EX_lt && cond->arg[0]->op == EX_var ? cond->arg[0]->k.i : out->rank;
    if (var >= out->rank || !dim_varies(out->dims[var])) return false;
    const Expr *extent = ex_rewrite(p->g->x, cond->arg[1], symbol_of_load, p);
    return extent == dim_simplified(p->g->x, out->dims[var]);
}

/* Finds the parts of the result that `e` computes in the box. */
static void place_parts(Placing *p, const Expr *e, Box box) {
    Box part = box, rest;
    while (e->op == EX_select && within_extents(p, e->arg[0])) e = e->arg[1];
    if (e->op == EX_select && cut_box(p, e->arg[0], &part)) {
        place_parts(p, e->arg[1], part);
        if (rest_of(p, &box, &part, &rest)) place_parts(p, e->arg[2], rest);
    } else if (covers(p, e, &box)) {
        place_part(p, p->op->in[e->k.i], &box);
    }
}

/* What rows of the result read in a box. */
typedef struct Rows {
    const Placing *p;
    const Box *box;
    bool across; /* other tensors' rows, of which some lie along another coordinate */
} Rows;

static void look_across(void *user, const Expr *e) {
    Rows *u = user;
    const int last = u->p->op->out[0]->rank - 1;
    if (e->op != EX_load || !runs_across(e, last)) return;
    for (int i = 0; i < last; i++) {
        int64_t stride;
        if (u->box->hi[i] - u->box->lo[i] < MIN_ROWS) continue;
        u->across |= ex_stride(e->arg[e->n - 1], i, &stride) && stride == 1;
    }
}

/* A map of what `e` is in the box; the load of it for the result. */
static const Expr *turned_part(Placing *p, const Expr *e, const Box *box) {
    Exprs *x = p->g->x;
    Op *op = p->op;
    const int rank = op->out[0]->rank;
    int64_t shape[MAX_RANK];
    const Expr *to[MAX_RANK], *index[MAX_RANK];
    for (int i = 0; i < rank; i++) {
        shape[i] = box->hi[i] - box->lo[i];
        to[i] = ex_add(x, ex_var(x, i), ex_i(x, box->lo[i]));
        index[i] = ex_sub(x, ex_var(x, i), ex_i(x, box->lo[i]));
    }
    Op *part = graph_new_op(p->g, OP_map, op->n_in, op->in, 1);
    part->body = ex_simplify(x, ex_subst_vars(x, e, rank, to), rank, shape);
    part->src = op->src;
    Value *v = graph_new_value(p->g, part, 0, op->out[0]->dt, rank, shape);
    graph_insert_before(p->g, op, part);
    graph_drop_inputs(p->g, part);
    return ex_load(x, v->dt, op_add_input(p->g, op, v), rank, index);
}

/* What `e` computes in the box, where it reads across rows as loads of tensors of their own. */
static const Expr *turn_parts(Placing *p, const Expr *e, Box box) {
    Exprs *x = p->g->x;
    const int last = p->op->out[0]->rank - 1;
    Box part = box, rest;
    if (e->op == EX_select && cut_box(p, e->arg[0], &part)) {
        const Expr *a = turn_parts(p, e->arg[1], part), *b = e->arg[2];
        if (rest_of(p, &box, &part, &rest)) b = turn_parts(p, b, rest);
        return ex_select(x, e->arg[0], a, b);
    }
    Rows rows = {.p = p, .box = &box};
    if (last > 0 && box.hi[last] - box.lo[last] >= MIN_ROWS)
        ex_visit(p->g->arena, e, look_across, &rows);
    return rows.across ? turned_part(p, e, &box) : e;
}

static Box whole_box(const Value *v) {
    Box all = {.lo = {0}};
    for (int i = 0; i < v->rank; i++) all.hi[i] = v->shape[i];
    return all;
}

/* Only of targets whose maps turn squares, of selects of boxes, and where no extent varies, for the
 * part has the largest. */
static void turn_maps(Graph *g, const Target *t) {
    for (Op *op = g->first; op && t->vector_types; op = op->next) {
        if (op->kind != OP_map || op->guard || op->body->op != EX_select) continue;
        bool varies = false;
        for (int i = 0; i < op->out[0]->rank; i++) varies |= dim_varies(op->out[0]->dims[i]);
        if (varies) continue;
        Placing p = {.g = g, .op = op};
        Box all = whole_box(op->out[0]), part = all;
        if (!cut_box(&p, op->body->arg[0], &part)) continue;
        op->body = turn_parts(&p, op->body, all);
        graph_drop_inputs(g, op);
    }
}

/* Only what a map or a reduction makes, and what others read element by element, can lie elsewhere.
 */
static void find_fixed(Graph *g, bool *fixed) {
    for (const Op *op = g->first; op; op = op->next) {
        bool computed = op->kind == OP_map || op->kind == OP_reduce;
        for (int i = 0; i < op->n_out; i++) fixed[op->out[i]->id] |= !computed;
        for (int i = 0; i < op->n_in; i++)
            fixed[op->in[i]->id] |=
                op->kind == OP_reshape || op->kind == OP_loop || (op->kind == OP_scatter && i == 0);
    }
    for (int i = 0; i < g->outputs.n; i++) fixed[g->outputs.items[i]->id] = true;
}

static bool read_later(const Op *op, const Value *v) {
    for (op = op->next; op; op = op->next)
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] == v) return true;
    return false;
}

/* The gap with which rows of a map's result begin where those of an operand do that are a little
 * longer, and that it could write over; 0: there is no such operand. */
static int gap_of_operand(const Placing *p) {
    const Op *op = p->op;
    const Value *out = op->out[0];
    for (int i = 0; i < op->n_in; i++) {
        const Value *in = op->in[i];
        if ((in->def->kind != OP_map && in->def->kind != OP_reduce) || in->inside ||
            p->fixed[in->id] || !may_write_over(p->g->arena, op, i))
            continue;
        const int64_t pitch = value_pitch(in), gap = pitch - value_pitch(out);
        if (gap > 0 && gap <= MOST_GAP && pitch * (int64_t)dt_store(in->dt) % L1_WAY_BYTES &&
            !read_later(op, in))
            return (int)gap;
    }
    return 0;
}

/* What a reduction reads at once, of rows of values. */
typedef struct RowReads {
    const Op *op;
    int64_t ways;  /* of the L1 cache */
    bool *compete; /* by value id: too many of its rows fall into the same sets of the cache */
} RowReads;

/* How many pixels a window reads for neighbouring results; 0: it does not slide. */
static int64_t pixels_of_window(const RowReads *u, const Expr *load) {
    const Op *op = u->op;
    const int rank = op->out[0]->rank;
    int64_t pixels = 1;
    bool slides = false;
    for (int d = load->n - 2; d >= 0; d--) {
        const uint64_t vars = ex_vars(load->arg[d]);
        int64_t places = 1;
        for (int k = 0; k < op->n_red; k++)
            if (vars >> (rank + k) & 1) places *= op->red[k];
        if (places > 1 && vars & ((UINT64_C(1) << rank) - 1) && !slides) {
            places += MOST_WINDOW_ROWS - 1;
            slides = true;
        }
        pixels *= places;
    }
    return slides ? pixels : 0;
}

/* Do results of a product that are neighbours read rows that are some apart, by a multiple of a
 * page? */
static bool skips_rows(const RowReads *u, const Expr *load, int64_t row) {
    int64_t step;
    for (int k = 0; k < u->op->out[0]->rank; k++)
        if (ex_stride(load->arg[load->n - 2], k, &step) && step > 1 &&
            step * row % L1_WAY_BYTES == 0)
            return true;
    return false;
}

static void look_at_rows(void *user, const Expr *e) {
    const RowReads *u = user;
    if (e->op != EX_load || e->n < 2) return;
    const Value *v = u->op->in[e->k.i];
    const int64_t row = v->shape[e->n - 1] * (int64_t)dt_store(v->dt);
    const bool product = ex_vars(e->arg[e->n - 1]) >> u->op->out[0]->rank;
    int64_t sets = 1; /* that pixels' lines fall into: a window has half of their ways */
    while (sets * row % L1_WAY_BYTES && sets < L1_WAY_BYTES / LINE_BYTES) sets++;
    u->compete[v->id] |=
        product ? skips_rows(u, e, row) : pixels_of_window(u, e) > u->ways / 2 * sets;
}

/* Rows that a product reads at once compete for the same few lines of the L1 cache if they are a
 * multiple of a page apart, pixels that a depthwise window reads even if they are less: they are
 * moved apart by a line, if that is little beside a row. */
static void spread_rows(Graph *g, const Target *t, bool *fixed) {
    bool *compete = ARENA_ARRAY(g->arena, g->n_values, bool);
    for (const Op *op = g->first; op; op = op->next) {
        RowReads reads = {op, t->l1_bytes / L1_WAY_BYTES, compete};
        if (op->kind == OP_reduce && t->vector_types)
            ex_visit(g->arena, op->body, look_at_rows, &reads);
    }
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_out; i++) {
            Value *v = op->out[i];
            int64_t row = v->rank > 1 ? v->shape[v->rank - 1] * (int64_t)dt_store(v->dt) : 0;
            if (fixed[v->id] || v->inside || !row || value_numel(v) == 0) continue;
            v->gap = gap_of_operand(&(Placing){g, op, fixed, NULL, 0});
            const bool spread = compete[v->id] && row >= LEAST_SPREAD * LINE_BYTES;
            if (v->gap || (row % L1_WAY_BYTES && !spread)) continue;
            if (shape_numel(v->rank - 1, v->shape) >= MIN_ROWS)
                v->gap = LINE_BYTES / (int)dt_store(v->dt);
        }
}

void pass_place(Graph *g, const PassOptions *o) {
    turn_maps(g, o->target);
    bool *fixed = ARENA_ARRAY(g->arena, g->n_values, bool);
    find_fixed(g, fixed);
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_place(op->sub, o);
        if (op->kind != OP_map || op->body->op != EX_select) continue;
        Placing p = {g, op, fixed, NULL, 0};
        place_parts(&p, op->body, whole_box(op->out[0]));
        op->guard = p.elsewhere;
        if (p.covered == value_numel(op->out[0])) op->guard = ex_int(g->x, DT_bool, 0);
    }
    if (!o->target->blocks) spread_rows(g, o->target, fixed);
}
