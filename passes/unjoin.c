/* unjoin: dimensions that a reshape joined stay apart where a reduction runs over them, or where
 * they vary, for targets of plain loops.
 *
 * A group norm, as models write it, reshapes [N, C, H, W] to [N, G, C/G*H*W] and reduces the last
 * dimension. Read through the reshape, its coordinate is divided to give those of the tensor, at
 * every element; where the channels lie innermost in memory that does not simplify, and nothing is
 * left of rows. So the coordinate becomes three, of extents C/G, H and W: the tensor is read at
 * plain sums.
 *
 * Coordinates of operators and dimensions of values that must be split alike, because a load takes
 * one as the index of the other, are joined into classes. A class is split where shapes on the
 * other side of its reshapes say that its elements come in rows, if a reduction runs over it and
 * nobody uses it in another way. Every operator is rewritten for itself, between reshapes, which
 * share memory.
 *
 * Where H and W vary, maps do what these reshapes do: one divides the joined coordinate, and others
 * put it together again. Elements of the parts do not lie where those of the whole did, so all who
 * use the values must be rewritten.
 */
#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/parts.h"
#include "passes/passes.h"

#define MAX_PARTS 8
#define OF_PARTS  (2 * MAX_RANK) /* variables of parts, while the op's own are being replaced */

typedef struct Class {
    int parent;
    int64_t extent;
    bool reduced; /* a reduction runs over it */
    bool blocked; /* somebody needs it whole */
    bool divided; /* it varies, and a map divides it into its rows */
    bool fixed;   /* elements must stay where they are */
    int n_rows;
    int64_t
        rows[MAX_PARTS]; /* lengths of rows in it, ascending, each a multiple of the one before */
} Class;

typedef struct Unjoin {
    Graph *g;
    Class *class; /* a node for each dimension and each reduction coordinate */
    int *dims;    /* by value id: the node of its first dimension */
    int *red;     /* by the id of the result: the node of the op's first reduction coordinate */
    uint32_t *divided; /* by value id: its dimensions that vary and that the map of it divides */
    Value **apart;     /* by value id: the value with its dimensions split; NULL: not made */
} Unjoin;

static bool computes(const Op *op) {
    return op->kind == OP_map || op->kind == OP_reduce;
}

static int root_of(Unjoin *u, int node) {
    Class *c = u->class;
    while (c[node].parent != node) node = c[node].parent = c[c[node].parent].parent;
    return node;
}

/* The node of coordinate `k` of the op. */
static int coordinate(const Unjoin *u, const Op *op, int k) {
    const Value *out = op->out[0];
    return k < out->rank ? u->dims[out->id] + k : u->red[out->id] + k - out->rank;
}

/* Does the body divide coordinate `k`, and do nothing else with it? */
static bool is_divided(const Unjoin *u, const Op *op, int k) {
    return k < op->out[0]->rank && u->divided[op->out[0]->id] >> k & 1;
}

static void block(Unjoin *u, int node) {
    u->class[root_of(u, node)].blocked = true;
}

static void unite(Unjoin *u, int a, int b) {
    Class *to = &u->class[a = root_of(u, a)], *from = &u->class[b = root_of(u, b)];
    if (a == b) return;
    if (to->extent != from->extent) to->blocked = from->blocked = true;
    if (to->blocked || from->blocked) {
        to->blocked = from->blocked = true;
        return;
    }
    to->reduced |= from->reduced;
    to->fixed |= from->fixed;
    from->parent = a;
}

/* --- classes ---------------------------------------------------------------------------------- */

typedef struct Loads {
    Unjoin *u;
    const Op *op;
    uint32_t wild;    /* coordinates that are used in another way than as an index */
    uint32_t divided; /* that the body divides, and does nothing else with */
} Loads;

/* Is it `coordinate < extent`? */
static bool is_limit(const Graph *g, const Op *op, const Expr *e, int64_t extent) {
    return e->op == EX_lt && e->arg[0]->op == EX_var && !e->arg[1]->vars && dim_varies(extent) &&
           symbols_of_loads(g, op, e->arg[1]) == dim_simplified(g->x, extent);
}

static void classify_load(void *user, const Expr *e) {
    Loads *l = user;
    Unjoin *u = l->u;
    if (e->op != EX_load) {
        for (int i = 0; i < e->n; i++) {
            if (e->arg[i]->op != EX_var) continue;
            const int k = (int)e->arg[i]->k.i, node = root_of(u, coordinate(u, l->op, k));
            if (!is_limit(u->g, l->op, e, u->class[node].extent)) l->wild |= 1u << k;
        }
        return;
    }
    const Value *v = l->op->in[e->k.i];
    for (int i = 0; i < e->n; i++) {
        int node = u->dims[v->id] + i;
        if (e->arg[i]->op == EX_var) {
            unite(u, coordinate(u, l->op, (int)e->arg[i]->k.i), node);
        } else if (v->shape[i] > 1) {
            if (!dim_varies(v->dims[i])) block(u, node); /* else see check_places */
            l->wild |= (uint32_t)ex_vars(e->arg[i]);
        }
    }
}

/* A product of two tensors: its loops are the schedule's matter. */
static bool is_contraction(Exprs *x, const Op *op) {
    const Expr *condition, *term = reduce_term(x, op, &condition);
    return op->kind == OP_reduce && op->combine == COMBINE_sum && term->op == EX_mul &&
           term->arg[0] != term->arg[1];
}

static void classify(Unjoin *u, const Op *op) {
    int64_t extent[MAX_RANK];
    int n = op_extents(op, extent);
    Loads l = {.u = u, .op = op, .divided = u->divided[op->out[0]->id]};
    ex_visit(u->g->arena, op->body, classify_load, &l);
    if (op->body->op == EX_var) l.wild |= 1u << op->body->k.i;
    if (op->post) {
        ex_visit(u->g->arena, op->post, classify_load, &l);
        if (op->post->op == EX_var) l.wild |= 1u << op->post->k.i;
    }
    for (int k = 0; k < n; k++)
        if ((l.wild & ~l.divided) >> k & 1 || is_contraction(u->g->x, op))
            block(u, coordinate(u, op, k));
}

static void new_nodes(Unjoin *u, int *n, int count, const int64_t *extent, bool reduced) {
    for (int i = 0; i < count; i++, (*n)++)
        u->class[*n] = (Class){.parent = *n, .extent = extent[i], .reduced = reduced};
}

typedef struct Look {
    Unjoin *u;
    const Op *op;
    bool lost; /* some class was blocked */
} Look;

/* How far a reduction's coordinate goes in a run. */
static void note_limit(void *user, const Expr *e) {
    Look *l = user;
    const Graph *g = l->u->g;
    int64_t d;
    if (e->op != EX_lt || e->arg[0]->op != EX_var || e->arg[1]->vars || !e->arg[1]->loads) return;
    const int k = (int)e->arg[0]->k.i;
    if (k < l->op->out[0]->rank || !dim_from_expr(g->x, symbols_of_loads(g, l->op, e->arg[1]), &d))
        return;
    Class *c = &l->u->class[coordinate(l->u, l->op, k)];
    if (dim_varies(d) && dim_max(g->x, d) == c->extent) c->extent = dim_normal(g->x, d);
}

static void fix(Unjoin *u, const Value *v) {
    for (int i = 0; i < v->rank; i++) u->class[root_of(u, u->dims[v->id] + i)].fixed = true;
}

/* Values whose elements others than maps and reductions know the places of. */
static void fix_values(Unjoin *u) {
    for (int i = 0; i < u->g->outputs.n; i++) fix(u, u->g->outputs.items[i]);
    for (const Op *op = u->g->first; op; op = op->next) {
        for (int i = 0; i < op->n_in && !computes(op); i++) fix(u, op->in[i]);
        for (int i = 0; i < op->n_out && !computes(op); i++) fix(u, op->out[i]);
    }
}

/* --- where they are split --------------------------------------------------------------------- */

static void add_rows(Class *c, int64_t length) {
    int at = 0;
    while (at < c->n_rows && c->rows[at] < length) at++;
    if (at < c->n_rows && c->rows[at] == length) return;
    if (c->n_rows == MAX_PARTS - 1) {
        c->blocked = true;
        return;
    }
    for (int i = c->n_rows++; i > at; i--) c->rows[i] = c->rows[i - 1];
    c->rows[at] = length;
    if ((at && length % c->rows[at - 1]) || (at + 1 < c->n_rows && c->rows[at + 1] % length))
        c->blocked = true;
}

/* The parts of a dimension that varies as loads in the body of `op`; false if it lacks some. */
static bool load_parts(const Graph *g, const Op *op, int n, const int64_t *dims,
                       const Expr **extent) {
    for (int i = 0; i < n; i++) {
        Op own = *op; /* which keeps its inputs */
        own.in = ARENA_ARRAY(g->arena, op->n_in + g->symbols.n, Value *);
        for (int k = 0; k < op->n_in; k++) own.in[k] = op->in[k];
        extent[i] = load_symbols(g, &own, dim_simplified(g->x, dims[i]));
        if (!extent[i] || own.n_in > op->n_in) return false;
    }
    return true;
}

/* Coordinates of a map that vary and that its body only divides. */
static uint32_t divided_by(const Graph *g, const Op *op) {
    uint32_t divided = 0;
    const Value *out = op->out[0];
    if (op->kind != OP_map || op->guard) return 0;
    for (int k = 0; k < out->rank; k++) {
        int64_t dims[MAX_RANK], shape[MAX_RANK];
        const Expr *extent[MAX_RANK];
        if (!dim_varies(out->dims[k])) continue;
        const int n = parts_of_coordinate(g, op, k, dims);
        Op own = *op;
        for (int i = 0; i < n; i++) shape[i] = dim_max(g->x, dims[i]);
        if (n > 1 && n <= MAX_PARTS && shape_numel(n, shape) == out->shape[k] &&
            load_parts(g, op, n - 1, dims + 1, extent + 1) &&
            divide_coordinate(g->x, &own, k, n, shape, extent, OF_PARTS))
            divided |= 1u << k;
    }
    return divided;
}

/* Notes what the map divides coordinates into. */
static void divide_by_map(Unjoin *u, const Op *op) {
    for (int k = 0; k < op->out[0]->rank; k++) {
        int64_t dims[MAX_RANK], length = 1;
        if (!is_divided(u, op, k)) continue;
        const int n = parts_of_coordinate(u->g, op, k, dims);
        Class *c = &u->class[root_of(u, coordinate(u, op, k))];
        if (c->divided && c->n_rows != n - 1) {
            c->blocked = true;
            continue;
        }
        for (int i = 0; i < n - 1; i++) {
            length = dim_mul(u->g->x, length, dims[n - 1 - i]);
            if (c->divided && c->rows[i] != length) c->blocked = true;
            c->rows[i] = length;
        }
        c->n_rows = n - 1;
        c->divided = true;
    }
}

/* Notes in the classes of v's dimensions how the other shape of the same memory divides them. */
static void divide_by(Unjoin *u, const Value *v, const Value *other) {
    int64_t inner = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        Class *c = &u->class[root_of(u, u->dims[v->id] + i)];
        int64_t length = 1;
        for (int k = other->rank - 1; k >= 0; k--) {
            length *= other->shape[k];
            if (length <= inner || length >= inner * v->shape[i]) continue;
            if (length % inner || inner * v->shape[i] % length)
                c->blocked = true;
            else if (!dim_varies(c->extent))
                add_rows(c, length / inner);
        }
        inner *= v->shape[i];
    }
}

static void find_rows(Unjoin *u) {
    for (Op *op = u->g->first; op; op = op->next) {
        if (op->kind != OP_reshape || value_numel(op->out[0]) == 0) continue;
        divide_by(u, op->in[0], op->out[0]);
        const Value *from = op->in[0];
        divide_by(u, op->out[0], from);
        while (from->def->kind == OP_reshape) divide_by(u, op->out[0], from = from->def->in[0]);
    }
}

/* The class if it is to be split; else NULL. */
static const Class *split_class(Unjoin *u, int node) {
    const Class *c = &u->class[root_of(u, node)];
    if (c->blocked || !c->n_rows) return NULL;
    return c->divided ? c->fixed ? NULL : c : c->reduced ? c : NULL;
}

/* Appends the extents of a node's parts to a shape; returns how many. */
static int parts_of(Unjoin *u, int node, int64_t extent, int64_t *parts) {
    const Class *c = split_class(u, node);
    if (!c) {
        *parts = extent;
        return 1;
    }
    for (int i = c->n_rows; i >= 0; i--)
        *parts++ = dim_div(u->g->x, i < c->n_rows ? c->rows[i] : c->extent, i ? c->rows[i - 1] : 1);
    return c->n_rows + 1;
}

/* The parts of `place`, the index of a dimension of parts `dims`, if it is put together of such:
 * (a * dims[1] + b) * dims[2] + c, where b and c are less than these. */
static bool take_apart(const Graph *g, const Op *op, const Expr *place, int n, const int64_t *dims,
                       const Expr **part) {
    const Value *out = op->out[0];
    Exprs *x = g->x;
    for (int i = n - 1; i > 0; i--) {
        int64_t low, high;
        const Expr *size = NULL;
        if (place->op != EX_add) return false;
        for (int f = 0; f < 4 && !size; f++) {
            const Expr *product = place->arg[f & 1];
            if (product->op != EX_mul ||
                symbols_of_loads(g, op, product->arg[f >> 1]) != dim_simplified(x, dims[i]))
                continue;
            size = product->arg[f >> 1];
            part[i] = place->arg[!(f & 1)];
            place = product->arg[!(f >> 1)];
        }
        if (!size) return false;
        const Expr *e = part[i];
        if (e->op == EX_var && e->k.i < out->rank && out->dims[e->k.i] == dims[i]) continue;
        if (dim_varies(dims[i]) || !ex_bounds(e, out->rank, out->shape, &low, &high) || low < 0 ||
            high >= dims[i])
            return false;
    }
    part[0] = place;
    int64_t low, high;
    return ex_bounds(place, out->rank, out->shape, &low, &high) && low >= 0 &&
           high < dim_max(x, dims[0]);
}

typedef struct LimitOf {
    const Graph *g;
    const Op *op;
    int coordinate;
    int64_t extent;
    const Expr *limit; /* `coordinate < extent` */
} LimitOf;

static void find_limit(void *user, const Expr *e) {
    LimitOf *l = user;
    if (is_limit(l->g, l->op, e, l->extent) && e->arg[0]->k.i == l->coordinate) l->limit = e;
}

/* `coordinate k < how far it goes`, if `e` asks that; else NULL. */
static const Expr *limit_in(Unjoin *u, const Op *op, const Expr *e, int k) {
    LimitOf l = {u->g, op, k, u->class[root_of(u, coordinate(u, op, k))].extent, NULL};
    if (e) ex_visit(u->g->arena, e, find_limit, &l);
    return l.limit;
}

/* The first of a coordinate's parts whose extents the op needs; `n`: none. */
static int first_needed(Unjoin *u, const Op *op, int k, int n) {
    if (limit_in(u, op, op->body, k) || limit_in(u, op, op->post, k)) return 0;
    return is_divided(u, op, k) ? 1 : n;
}

static void check_place(void *user, const Expr *e) {
    Look *p = user;
    Unjoin *u = p->u;
    if (e->op != EX_load) return;
    const Value *v = p->op->in[e->k.i];
    for (int i = 0; i < e->n; i++) {
        int64_t dims[MAX_PARTS];
        const Expr *part[MAX_PARTS];
        const int node = u->dims[v->id] + i;
        const int n = parts_of(u, node, v->dims[i], dims);
        if (e->arg[i]->op == EX_var || n == 1) continue;
        const uint64_t vars = ex_vars(e->arg[i]); /* which must not become others before */
        if (!(vars & u->divided[p->op->out[0]->id]) &&
            take_apart(u->g, p->op, e->arg[i], n, dims, part))
            continue;
        block(u, node);
        p->lost = true;
    }
}

/* Blocks what the op cannot be rewritten for; true if there was any. */
static bool check_places(Unjoin *u, const Op *op) {
    Look p = {u, op, false};
    int64_t bounds[MAX_RANK], dims[MAX_PARTS];
    const Expr *extent[MAX_PARTS];
    const int n = op_extents(op, bounds);
    ex_visit(u->g->arena, op->body, check_place, &p);
    if (op->post) ex_visit(u->g->arena, op->post, check_place, &p);
    for (int k = 0; k < n; k++) {
        const int node = coordinate(u, op, k);
        const Class *c = split_class(u, node);
        if (!c || !c->divided) continue;
        const int parts = parts_of(u, node, bounds[k], dims);
        const int from = first_needed(u, op, k, parts);
        if (load_parts(u->g, op, parts - from, dims + from, extent)) continue;
        block(u, node);
        p.lost = true;
    }
    return p.lost;
}

/* An operator whose coordinates would become too many keeps them. */
static bool block_long(Unjoin *u, const Op *op) {
    int64_t extent[MAX_RANK], parts[MAX_PARTS];
    int n = op_extents(op, extent), count = 0;
    for (int k = 0; k < n; k++) count += parts_of(u, coordinate(u, op, k), extent[k], parts);
    for (int k = 0; k < n && count > MAX_RANK; k++) block(u, coordinate(u, op, k));
    return count > MAX_RANK;
}

/* --- splitting -------------------------------------------------------------------------------- */

static int split_shape(Unjoin *u, const Value *v, int64_t *shape) {
    int rank = 0;
    for (int i = 0; i < v->rank; i++)
        rank += parts_of(u, u->dims[v->id] + i, v->dims[i], shape + rank);
    return rank;
}

/* The value with its dimensions split; itself if none is. */
static Value *apart(Unjoin *u, Op *user, Value *v) {
    if (u->apart[v->id]) return u->apart[v->id];
    int64_t shape[MAX_RANK * MAX_PARTS];
    int rank = split_shape(u, v, shape);
    Value *whole = v, *made = v;
    while (whole->def->kind == OP_reshape) whole = whole->def->in[0];
    if (rank != v->rank) {
        Op *op = value_is_const(v) ? graph_new_op(u->g, OP_const, 0, NULL, 1)
                                   : graph_new_op(u->g, OP_reshape, 1, &whole, 1);
        op->src = v->def->src;
        made = graph_new_value(u->g, op, 0, v->dt, rank, shape);
        constant_alias(made, v);
        graph_insert_before(u->g, user, op);
    }
    return u->apart[v->id] = made;
}

typedef struct Rewrite {
    Unjoin *u;
    const Op *op;
    int first[MAX_RANK +
              1]; /* coordinate -> the first of its parts; behind the last: their number */
} Rewrite;

static const Expr *rewrite_leaf(void *user, const Expr *e, const Expr *const *args) {
    Rewrite *r = user;
    Unjoin *u = r->u;
    Exprs *x = u->g->x;
    if (e->op == EX_var && e->k.i >= OF_PARTS) return ex_var(x, (int)e->k.i - OF_PARTS);
    if (e->op == EX_var) return ex_var(x, r->first[e->k.i]);
    if (e->op != EX_load) return e;
    const Value *v = r->op->in[e->k.i];
    const Expr *index[MAX_RANK];
    int n = 0;
    for (int i = 0; i < e->n; i++) {
        int64_t dims[MAX_PARTS];
        const int count = parts_of(u, u->dims[v->id] + i, v->dims[i], dims);
        if (count == 1) {
            index[n++] = args[i];
        } else if (e->arg[i]->op == EX_var) {
            for (int k = 0; k < count; k++) index[n++] = ex_var(x, r->first[e->arg[i]->k.i] + k);
        } else {
            const Expr *part[MAX_PARTS];
            take_apart(u->g, r->op, e->arg[i], count, dims, part);
            for (int k = 0; k < count; k++) index[n++] = ex_rewrite(x, part[k], rewrite_leaf, r);
        }
    }
    return ex_load(x, (DType)e->dt, (int)e->k.i, n, index);
}

/* `e` without what becomes of coordinate k as a whole: its limit is those of its parts. */
static const Expr *limit_parts(Unjoin *u, const Op *op, const Expr *e, int k, int n,
                               const int64_t *dims, const Expr *const *extent, int first) {
    Exprs *x = u->g->x;
    const Expr *limit = limit_in(u, op, e, k);
    if (!limit) return e;
    const Expr *all = ex_int(x, DT_bool, 1);
    for (int i = 0; i < n; i++)
        if (dim_varies(dims[i]))
            all = ex_and(x, all, ex_lt(x, ex_var(x, OF_PARTS + first + i), extent[i]));
    return ex_replace(x, e, limit, all);
}

/* Has the op's expressions do with the parts of coordinate k, which varies, what they do with it.
 */
static void divide_op(Unjoin *u, Op *op, int k, int first) {
    const Graph *g = u->g;
    int64_t dims[MAX_PARTS], shape[MAX_PARTS];
    const Expr *extent[MAX_PARTS];
    const int node = coordinate(u, op, k), n = parts_of(u, node, 0, dims);
    const int from = first_needed(u, op, k, n);
    load_parts(g, op, n - from, dims + from, extent + from);
    for (int i = 0; i < n; i++) shape[i] = dim_max(g->x, dims[i]);
    if (is_divided(u, op, k)) divide_coordinate(g->x, op, k, n, shape, extent, OF_PARTS + first);
    op->body = limit_parts(u, op, op->body, k, n, dims, extent, first);
    if (op->post) op->post = limit_parts(u, op, op->post, k, n, dims, extent, first);
}

/* Does it read a value that will be apart? */
static bool reads_apart(Unjoin *u, const Op *op) {
    int64_t shape[MAX_RANK * MAX_PARTS];
    for (int i = 0; i < op->n_in; i++)
        if (split_shape(u, op->in[i], shape) != op->in[i]->rank) return true;
    return false;
}

/* Rewrites the op for its coordinates split; what it makes is a reshape of the result. */
static void split_op(Unjoin *u, Op *op) {
    Graph *g = u->g;
    int64_t extent[MAX_RANK], parts[MAX_RANK * MAX_PARTS], shape[MAX_RANK * MAX_PARTS];
    int n = op_extents(op, extent), count = 0;
    Rewrite r = {.u = u, .op = op};
    for (int k = 0; k < n; k++) {
        r.first[k] = count;
        count += parts_of(u, coordinate(u, op, k), extent[k], parts + count);
    }
    r.first[n] = count;
    if (count == n && !reads_apart(u, op)) return;
    for (int k = 0; k < n; k++) {
        const Class *c = split_class(u, coordinate(u, op, k));
        if (c && c->divided) divide_op(u, op, k, r.first[k]);
    }
    Value *out = op->out[0];
    int rank = split_shape(u, out, shape);
    op->body = ex_rewrite(g->x, op->body, rewrite_leaf, &r);
    if (op->post) op->post = ex_rewrite(g->x, op->post, rewrite_leaf, &r);
    for (int i = 0; i < op->n_in; i++) op->in[i] = apart(u, op, op->in[i]);
    op->n_red = count - rank;
    dims_max(g->x, op->n_red, parts + rank, parts + rank);
    op->red = arena_copy(g->arena, parts + rank, (size_t)op->n_red * sizeof *parts);
    if (rank == out->rank) return;
    Value *made = graph_new_value(g, op, 0, out->dt, rank, shape);
    Op *whole = graph_new_op(g, OP_reshape, 1, &made, 1);
    whole->src = op->src;
    whole->out[0] = out;
    out->def = whole;
    graph_insert_before(g, op->next, whole);
    u->apart[out->id] = made;
}

void pass_unjoin(Graph *g, const PassOptions *o) {
    if (o->target->blocks) return;
    Unjoin u = {.g = g};
    int nodes = 0, first = g->n_values;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_unjoin(op->sub, o);
        for (int i = 0; i < op->n_out; i++) nodes += op->out[i]->rank;
        nodes += op->n_red;
    }
    u.class = ARENA_ARRAY(g->arena, nodes + 1, Class);
    u.dims = ARENA_ARRAY(g->arena, first + 1, int);
    u.red = ARENA_ARRAY(g->arena, first + 1, int);
    u.divided = ARENA_ARRAY(g->arena, first + 1, uint32_t);
    nodes = 0;
    for (Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_out; i++) {
            u.dims[op->out[i]->id] = nodes;
            new_nodes(&u, &nodes, op->out[i]->rank, op->out[i]->dims, false);
        }
        if (op->kind != OP_reduce) continue;
        u.red[op->out[0]->id] = nodes;
        new_nodes(&u, &nodes, op->n_red, op->red, true);
        Look l = {&u, op, false};
        ex_visit(g->arena, op->body, note_limit, &l);
    }
    fix_values(&u);
    for (Op *op = g->first; op; op = op->next) {
        if (!computes(op)) continue;
        if (g->x->dims) u.divided[op->out[0]->id] = divided_by(g, op);
        classify(&u, op);
    }
    find_rows(&u);
    for (const Op *op = g->first; op; op = op->next)
        if (computes(op)) divide_by_map(&u, op);
    for (bool again = true; again;) {
        again = false;
        for (Op *op = g->first; op; op = op->next)
            if (computes(op)) again |= block_long(&u, op) || check_places(&u, op);
    }
    u.apart = ARENA_ARRAY(g->arena, first + 1, Value *);
    for (Op *op = g->first; op; op = op->next)
        if (computes(op)) split_op(&u, op);
    for (Op *op = g->first; op; op = op->next)
        while (op->kind == OP_reshape && op->in[0]->def->kind == OP_reshape)
            op->in[0] = op->in[0]->def->in[0];
    pass_dce(g, o); /* of the reshapes, most are not used */
}
