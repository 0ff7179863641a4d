/* Graphs: values, operators, queries and editing; see graph.h. Builders are in graph_build.c. */
#include "ir/graph.h"

#include <string.h>

static const char *const kind_names[OP_count] = {"input", "const",   "map",     "reduce",
                                                 "scan",  "scatter", "reshape", "loop"};

const char *op_kind_name(OpKind kind) {
    return kind_names[kind];
}

const char *combine_name(Combine combine) {
    static const char *const names[] = {"none", "sum", "prod", "max", "min"};
    return names[combine];
}

ExprOp combine_expr(Combine combine) {
    static const ExprOp ops[] = {EX_const, EX_add, EX_mul, EX_max, EX_min};
    return ops[combine];
}

Scalar combine_identity(Combine combine, DType dt) {
    if (dt_is_float(dt)) {
        double inf = (double)1e300 * 1e300;
        return (Scalar){.f = combine == COMBINE_prod  ? 1
                             : combine == COMBINE_max ? -inf
                             : combine == COMBINE_min ? inf
                                                      : 0};
    }
    int bits = dt_bits(dt);
    bool is_signed = dt_kind(dt) == DK_sint;
    int64_t top = is_signed    ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1)
                  : bits == 64 ? -1
                               : (int64_t)(((uint64_t)1 << bits) - 1);
    int64_t bottom = is_signed ? -top - 1 : 0;
    return (Scalar){.i = combine == COMBINE_prod  ? 1
                         : combine == COMBINE_max ? bottom
                         : combine == COMBINE_min ? top
                                                  : 0};
}

/* --- shapes ----------------------------------------------------------------------------------- */

int64_t shape_numel(int rank, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(n, shape[i], &n)) n = INT64_MAX;
    return n;
}

int64_t value_pitch(const Value *v) {
    return v->rank ? v->shape[v->rank - 1] + v->gap : 0;
}

int64_t value_span(const Value *v) {
    while (v->inside) v = v->inside;
    if (v->stacked) v = v->storage;
    int64_t rows = v->gap ? shape_numel(v->rank - 1, v->shape) : 0;
    return value_numel(v) + rows * v->gap;
}

bool shape_fits(int rank, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0 || shape[i] > INT32_MAX) return false;
        if (shape[i] == 0) continue;
        if (n > INT32_MAX / shape[i]) return false;
        n *= shape[i];
    }
    return true;
}

bool shape_equal(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
    return rank_a == rank_b && (rank_a == 0 || !memcmp(a, b, (size_t)rank_a * sizeof *a));
}

/* Of two of which one may be 1 in a run: the other one, which may be 0. */
static int64_t broadcast_dim(Exprs *x, int64_t a, int64_t b) {
    int64_t larger = dim_larger(x, a, b);
    if (dim_normal(x, a) == dim_normal(x, b)) return a;
    if (dim_min(x, a) > 0 && dim_min(x, b) > 0) return larger;
    return dim_mul(x, larger, dim_smaller(x, dim_smaller(x, a, b), 1));
}

bool shape_broadcast(Exprs *x, int rank_a, const int64_t *a, int rank_b, const int64_t *b,
                     int *rank, int64_t *shape) {
    int r = rank_a > rank_b ? rank_a : rank_b;
    if (r > MAX_RANK) return false;
    /* from the last dimension on, for `shape` may be `a` or `b` */
    for (int i = r - 1; i >= 0; i--) {
        int64_t da = i < r - rank_a ? 1 : a[i - (r - rank_a)];
        int64_t db = i < r - rank_b ? 1 : b[i - (r - rank_b)];
        bool open = dim_varies(da) || dim_varies(db);
        if (da != db && da != 1 && db != 1 && !open) return false;
        if (open) dim_claim(x, CLAIM_broadcast, da, db);
        shape[i] = da == 1 ? db : db == 1 || !open ? da : broadcast_dim(x, da, db);
    }
    *rank = r;
    return true;
}

const char *shape_text(Arena *arena, int rank, const int64_t *shape) {
    Text t = text_new(arena);
    text_add(&t, "[");
    for (int i = 0; i < rank; i++) {
        text_add(&t, i ? ", " : "");
        if (dim_varies(shape[i]))
            text_add(&t, "?");
        else
            text_addf(&t, "%lld", (long long)shape[i]);
    }
    text_add(&t, "]");
    return text_get(&t);
}

bool value_is_const(const Value *v) {
    return v->def->kind == OP_const;
}

const int64_t *value_ints(Graph *g, const Value *v, int *n) {
    if (!value_is_const(v) || (!dt_is_int(v->dt) && v->dt != DT_bool)) return NULL;
    if (dims_vary(v->rank, v->dims)) return NULL;
    int64_t count = value_numel(v);
    int64_t *result = ARENA_ARRAY(g->arena, count + 1, int64_t);
    for (int64_t i = 0; i < count; i++) result[i] = dt_load(v->dt, v->data, (size_t)i).i;
    *n = (int)count;
    return result;
}

/* --- graphs ----------------------------------------------------------------------------------- */

Graph *graph_new(Arena *arena, Exprs *x, Diag *diag, const char *name) {
    Graph *g = ARENA_NEW(arena, Graph);
    g->arena = arena;
    g->x = x;
    g->diag = diag;
    g->name = name;
    return g;
}

Graph *graph_new_sub(Graph *parent) {
    Graph *g = graph_new(parent->arena, parent->x, parent->diag, parent->name);
    g->parent = parent;
    g->depth = parent->depth + 1;
    g->src = parent->src;
    g->no_fold = parent->no_fold;
    return g;
}

Op *graph_new_op(Graph *g, OpKind kind, int n_in, Value *const *in, int n_out) {
    Op *op = ARENA_NEW(g->arena, Op);
    op->kind = kind;
    op->n_in = n_in;
    op->in = ARENA_ARRAY(g->arena, n_in, Value *);
    if (n_in) memcpy(op->in, in, (size_t)n_in * sizeof *in);
    op->n_out = n_out;
    op->out = ARENA_ARRAY(g->arena, n_out, Value *);
    op->src = g->src;
    return op;
}

Value *graph_new_value(Graph *g, Op *def, int def_index, DType dt, int rank, const int64_t *shape) {
    Value *v = ARENA_NEW(g->arena, Value);
    v->id = g->n_values++;
    v->dt = dt;
    v->rank = rank;
    int64_t *own = arena_copy(g->arena, shape, (size_t)rank * sizeof *shape);
    v->dims = v->shape = own;
    if (g->x->dims && dims_vary(rank, shape)) {
        int64_t *most = ARENA_ARRAY(g->arena, rank + 1, int64_t);
        for (int i = 0; i < rank; i++) {
            own[i] = dim_normal(g->x, own[i]);
            if (!dim_varies(own[i]) || dim_min(g->x, own[i]) >= 0) continue;
            dim_claim(g->x, CLAIM_at_most, 0, own[i]);
            own[i] = dim_larger(g->x, own[i], 0);
        }
        dims_max(g->x, rank, own, most);
        v->shape = shape = most;
    }
    v->def = def;
    v->def_index = def_index;
    def->out[def_index] = v;
    if (!shape_fits(rank, shape)) {
        diag_error(g->diag, E3005, "a tensor of shape %s has more than 2^31-1 elements",
                   shape_text(g->arena, rank, shape));
        v->dims = v->shape =
            ARENA_ARRAY(g->arena, rank + 1, int64_t); /* empty: nothing overflows */
    }
    return v;
}

void graph_insert_before(Graph *g, Op *at, Op *op) {
    op->next = at;
    op->prev = at ? at->prev : g->last;
    if (op->prev)
        op->prev->next = op;
    else
        g->first = op;
    if (at)
        at->prev = op;
    else
        g->last = op;
}

void graph_append(Graph *g, Op *op) {
    graph_insert_before(g, NULL, op);
}

bool graph_is_output(const Graph *g, const Value *v) {
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.items[i] == v) return true;
    return false;
}

void graph_unlink(Graph *g, Op *op) {
    *(op->prev ? &op->prev->next : &g->first) = op->next;
    *(op->next ? &op->next->prev : &g->last) = op->prev;
    op->prev = op->next = NULL;
}

bool op_is_product(const Op *op) {
    return op->kind == OP_reduce && op->combine == COMBINE_sum && op->body->op == EX_mul;
}

int op_extents(const Op *op, int64_t *extent) {
    int n = 0;
    if (op->kind == OP_scatter) {
        for (; n < op->n_upd; n++) extent[n] = op->upd[n];
        return n;
    }
    const Value *out = op->out[0];
    for (; n < out->rank; n++) extent[n] = out->shape[n];
    if (op->kind == OP_scan) extent[n++] = out->shape[op->axis];
    for (int i = 0; i < op->n_red; i++) extent[n++] = op->red[i];
    return n;
}
