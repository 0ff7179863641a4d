/* unjoin: dimensions that a reshape joined stay apart where a reduction runs over them, for targets
 * of plain loops.
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
 */
#include "ir/constant.h"
#include "passes/passes.h"

#define MAX_PARTS 8

typedef struct Class {
    int parent;
    int64_t extent;
    bool reduced; /* a reduction runs over it */
    bool blocked; /* somebody needs it whole */
    int n_rows;
    int64_t
        rows[MAX_PARTS]; /* lengths of rows in it, ascending, each a multiple of the one before */
} Class;

typedef struct Unjoin {
    Graph *g;
    Class *class;  /* a node for each dimension and each reduction coordinate */
    int *dims;     /* by value id: the node of its first dimension */
    int *red;      /* by the id of the result: the node of the op's first reduction coordinate */
    Value **apart; /* by value id: the value with its dimensions split; NULL: not made */
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
    from->parent = a;
}

/* --- classes ---------------------------------------------------------------------------------- */

typedef struct Loads {
    Unjoin *u;
    const Op *op;
    uint32_t wild; /* coordinates that are used in another way than as an index */
} Loads;

static void classify_load(void *user, const Expr *e) {
    Loads *l = user;
    if (e->op != EX_load) {
        for (int i = 0; i < e->n; i++)
            if (e->arg[i]->op == EX_var) l->wild |= 1u << e->arg[i]->k.i;
        return;
    }
    const Value *v = l->op->in[e->k.i];
    for (int i = 0; i < e->n; i++) {
        int node = l->u->dims[v->id] + i;
        if (e->arg[i]->op == EX_var) {
            unite(l->u, coordinate(l->u, l->op, (int)e->arg[i]->k.i), node);
        } else if (v->shape[i] > 1) {
            block(l->u, node);
            l->wild |= (uint32_t)ex_vars(e->arg[i]);
        }
    }
}

/* A product of two tensors: its loops are the schedule's matter. */
static bool is_contraction(const Op *op) {
    return op_is_product(op) && op->body->arg[0] != op->body->arg[1];
}

static void classify(Unjoin *u, const Op *op) {
    int64_t extent[MAX_RANK];
    int n = op_extents(op, extent);
    Loads l = {.u = u, .op = op};
    ex_visit(u->g->arena, op->body, classify_load, &l);
    if (op->body->op == EX_var) l.wild |= 1u << op->body->k.i;
    if (op->post) {
        ex_visit(u->g->arena, op->post, classify_load, &l);
        if (op->post->op == EX_var) l.wild |= 1u << op->post->k.i;
    }
    for (int k = 0; k < n; k++)
        if (l.wild >> k & 1 || is_contraction(op)) block(u, coordinate(u, op, k));
}

static void new_nodes(Unjoin *u, int *n, int count, const int64_t *extent, bool reduced) {
    for (int i = 0; i < count; i++, (*n)++)
        u->class[*n] = (Class){.parent = *n, .extent = extent[i], .reduced = reduced};
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
            else
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
    return c->reduced && !c->blocked && c->n_rows ? c : NULL;
}

/* Appends the extents of a node's parts to a shape; returns how many. */
static int parts_of(Unjoin *u, int node, int64_t extent, int64_t *parts) {
    const Class *c = split_class(u, node);
    if (!c) {
        *parts = extent;
        return 1;
    }
    for (int i = c->n_rows; i >= 0; i--)
        *parts++ = (i < c->n_rows ? c->rows[i] : c->extent) / (i ? c->rows[i - 1] : 1);
    return c->n_rows + 1;
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
        rank += parts_of(u, u->dims[v->id] + i, v->shape[i], shape + rank);
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
    Exprs *x = r->u->g->x;
    if (e->op == EX_var) return ex_var(x, r->first[e->k.i]);
    if (e->op != EX_load) return e;
    const Value *v = r->op->in[e->k.i];
    const Expr *index[MAX_RANK];
    int n = 0;
    for (int i = 0; i < e->n; i++) {
        bool split = split_class(r->u, r->u->dims[v->id] + i);
        int k = split ? (int)e->arg[i]->k.i : 0;
        for (int at = r->first[k]; split && at < r->first[k + 1]; at++) index[n++] = ex_var(x, at);
        if (!split) index[n++] = args[i];
    }
    return ex_load(x, (DType)e->dt, (int)e->k.i, n, index);
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
    if (count == n) return;
    Value *out = op->out[0];
    int rank = split_shape(u, out, shape);
    op->body = ex_rewrite(g->x, op->body, rewrite_leaf, &r);
    if (op->post) op->post = ex_rewrite(g->x, op->post, rewrite_leaf, &r);
    for (int i = 0; i < op->n_in; i++) op->in[i] = apart(u, op, op->in[i]);
    op->n_red = count - rank;
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
    nodes = 0;
    for (Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_out; i++) {
            u.dims[op->out[i]->id] = nodes;
            new_nodes(&u, &nodes, op->out[i]->rank, op->out[i]->shape, false);
        }
        if (op->kind != OP_reduce) continue;
        u.red[op->out[0]->id] = nodes;
        new_nodes(&u, &nodes, op->n_red, op->red, true);
    }
    for (Op *op = g->first; op; op = op->next)
        if (computes(op)) classify(&u, op);
    find_rows(&u);
    for (bool again = true; again;) {
        again = false;
        for (Op *op = g->first; op; op = op->next) again |= computes(op) && block_long(&u, op);
    }
    u.apart = ARENA_ARRAY(g->arena, first + 1, Value *);
    for (Op *op = g->first; op; op = op->next)
        if (computes(op)) split_op(&u, op);
    for (Op *op = g->first; op; op = op->next)
        while (op->kind == OP_reshape && op->in[0]->def->kind == OP_reshape)
            op->in[0] = op->in[0]->def->in[0];
    pass_dce(g, o); /* of the reshapes, most are not used */
}
