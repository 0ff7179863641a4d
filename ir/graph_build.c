/* Builders of the core operators; see graph.h. */
#include "ir/graph.h"
#include "ir/interp.h"

#include <string.h>

Value *graph_input(Graph *g, const char *name, DType dt, int rank, const int64_t *shape) {
    Op *op = graph_new_op(g, OP_input, 0, NULL, 1);
    Value *v = graph_new_value(g, op, 0, dt, rank, shape);
    v->name = name;
    graph_append(g, op);
    vec_push(g->arena, &g->inputs, v);
    return v;
}

Value *graph_const(Graph *g, DType dt, int rank, const int64_t *shape, const void *data) {
    Op *op = graph_new_op(g, OP_const, 0, NULL, 1);
    Value *v = graph_new_value(g, op, 0, dt, rank, shape);
    v->data = data;
    graph_append(g, op);
    return v;
}

void graph_output(Graph *g, Value *value, const char *name) {
    vec_push(g->arena, &g->outputs, value);
    vec_push(g->arena, &g->output_names, name);
    vec_push(g->arena, &g->output_text, false);
}

void graph_output_text(Graph *g, Value *value, const char *name) {
    graph_output(g, value, name);
    g->output_text.items[g->output_text.n - 1] = true;
}

/* --- folding --------------------------------------------------------------------------------------*/

#define FOLD_ALWAYS_BYTES ((size_t)64 << 10)
#define FOLD_MAX_WORK     ((int64_t)1 << 26)

static void note_counter(void *user, const Expr *e) {
    if (e->op == EX_ctr) *(bool *)user = true;
}

/* True if what the operator computes differs between the iterations of a loop around it. */
static bool reads_counter(Graph *g, const Op *op) {
    bool found = false;
    const Expr *const parts[] = {op->body, op->post, op->guard};
    for (int i = 0; i < 3; i++)
        if (parts[i]) ex_visit(g->arena, parts[i], note_counter, &found);
    for (int i = 0; op->target && i < op->out[0]->rank; i++)
        ex_visit(g->arena, op->target[i], note_counter, &found);
    return found;
}

/* Decodes a matrix of bytes: pass `integer` may want the bytes. */
static bool widens_bytes(const Op *op) {
    const Value *out = op->out[0];
    if (op->kind != OP_map || out->rank < 2) return false;
    for (int i = 0; i < op->n_in; i++)
        if (dt_is_int(op->in[i]->dt) && dt_store(op->in[i]->dt) == 1 && dt_store(out->dt) > 1 &&
            op->in[i]->rank >= 2)
            return true;
    return false;
}

/* What an operator of constants computes; NULL if they are not, or if that would bloat the program: a
 * large result must not be more than `growth` times as large as what it is made of. */
static void *fold(Graph *g, const Op *op, size_t growth) {
    if (g->no_fold || g->diag->n_errors) return NULL;
    size_t in_bytes = 0, out_bytes = 0;
    for (int i = 0; i < op->n_in; i++) {
        if (!value_is_const(op->in[i]) || dt_kind(op->in[i]->dt) == DK_string) return NULL;
        in_bytes += value_bytes(op->in[i]);
    }
    out_bytes = value_bytes(op->out[0]);
    if (out_bytes > FOLD_ALWAYS_BYTES && out_bytes > growth * in_bytes) return NULL;
    int64_t extent[MAX_RANK], work = 1;
    int n = op_extents(op, extent);
    for (int i = 0; i < n; i++) {
        work *= extent[i];
        if (work > FOLD_MAX_WORK) return NULL;
    }
    if (g->depth && reads_counter(g, op)) return NULL;
    const void **in = ARENA_ARRAY(g->arena, op->n_in, const void *);
    for (int i = 0; i < op->n_in; i++) in[i] = op->in[i]->data;
    void *data = arena_alloc(g->arena, out_bytes + 1);
    interp_op(g->arena, op, in, &data, NULL);
    return data;
}

void graph_fold(Graph *g, Op *op, int growth) {
    const void *data;
    if (op->kind == OP_reshape)
        data = op->in[0]->data;
    else if (op->kind == OP_map || op->kind == OP_reduce)
        data = fold(g, op, (size_t)growth);
    else
        return;
    if (!data) return;
    Value *out = op->out[0];
    *op = (Op){.kind = OP_const, .n_out = 1, .out = op->out, .src = op->src, .prev = op->prev,
               .next = op->next};
    out->data = data;
}

static Value *finish(Graph *g, Op *op, DType dt, int rank, const int64_t *shape) {
    graph_new_value(g, op, 0, dt, rank, shape);
    const void *data = widens_bytes(op) ? NULL : fold(g, op, 2);
    if (data) return graph_const(g, dt, rank, shape, data);
    graph_append(g, op);
    return op->out[0];
}

/* --- bodies ---------------------------------------------------------------------------------------*/

Builder build(Graph *g, int rank, const int64_t *shape) {
    Builder b = {.g = g, .x = g->x, .rank = rank};
    if (rank) memcpy(b.shape, shape, (size_t)rank * sizeof *shape);
    return b;
}

const Expr *build_red(Builder *b, int64_t extent) {
    if (b->rank + b->n_red == MAX_RANK) {
        diag_error(b->g->diag, E3006, "more than %d dimensions, those reduced counted in", MAX_RANK);
        b->n_red--;
    }
    b->red[b->n_red++] = extent;
    return ex_var(b->x, b->rank + b->n_red - 1);
}

static int add_input(Builder *b, Value *v) {
    for (int i = 0; i < b->in.n; i++)
        if (b->in.items[i] == v) return i;
    vec_push(b->g->arena, &b->in, v);
    return b->in.n - 1;
}

const Expr *build_load(Builder *b, Value *v, const Expr *const *index) {
    /* a small uniform constant is the number itself */
    if (value_is_const(v) && value_numel(v) == 1 && dt_kind(v->dt) <= DK_float)
        return ex_const(b->x, v->dt, dt_load(v->dt, v->data, 0));
    return ex_load(b->x, v->dt, add_input(b, v), v->rank, index);
}

#define UNIFORM_NUMEL 4096 /* constants that are looked at */

/* Is every element of the constant the same, bit for bit? */
static bool is_uniform(const Value *v) {
    int64_t n = value_numel(v);
    size_t size = dt_store(v->dt);
    if (!value_is_const(v) || dt_kind(v->dt) > DK_float || n < 1 || n > UNIFORM_NUMEL) return false;
    return n == 1 || !memcmp(v->data, (const char *)v->data + size, (size_t)(n - 1) * size);
}

const Expr *build_in(Builder *b, Value *v) {
    const Expr *index[MAX_RANK];
    if (is_uniform(v)) return ex_const(b->x, v->dt, dt_load(v->dt, v->data, 0));
    int skip = b->rank - v->rank;
    for (int i = 0; i < v->rank; i++)
        index[i] = v->shape[i] == 1 ? ex_i(b->x, 0) : ex_var(b->x, skip + i);
    return build_load(b, v, index);
}

static const Expr *simplify_in(Builder *b, const Expr *e) {
    int64_t extent[MAX_RANK];
    for (int i = 0; i < b->rank; i++) extent[i] = b->shape[i];
    for (int i = 0; i < b->n_red; i++) extent[b->rank + i] = b->red[i];
    return ex_simplify(b->x, e, b->rank + b->n_red, extent);
}

Value *build_map(Builder *b, DType dt, const Expr *body) {
    body = simplify_in(b, ex_cast(b->x, dt, body));
    /* an identity map is the value itself */
    if (body->op == EX_load) {
        Value *v = b->in.items[body->k.i];
        bool same = shape_equal(v->rank, v->shape, b->rank, b->shape);
        for (int i = 0; i < v->rank && same; i++)
            same = body->arg[i] == ex_var(b->x, i) ||
                   (v->shape[i] == 1 && ex_is_int(body->arg[i], 0));
        if (same) return v;
    }
    Op *op = graph_new_op(b->g, OP_map, b->in.n, b->in.items, 1);
    op->body = body;
    return finish(b->g, op, dt, b->rank, b->shape);
}

Value *build_reduce(Builder *b, DType dt, Combine combine, const Expr *body, const Expr *post) {
    Exprs *x = b->x;
    Op *op = graph_new_op(b->g, OP_reduce, b->in.n, b->in.items, 1);
    op->combine = combine;
    op->n_red = b->n_red;
    op->red = arena_copy(b->g->arena, b->red, (size_t)b->n_red * sizeof *b->red);
    if (dt_is_narrow((DType)body->dt)) body = ex_cast(x, dt_reg((DType)body->dt), body);
    op->body = simplify_in(b, body);
    op->post = ex_cast(x, dt, post ? post : ex_acc(x, (DType)body->dt));
    op->post = simplify_in(b, op->post);
    return finish(b->g, op, dt, b->rank, b->shape);
}

Value *build_scan(Builder *b, DType dt, Combine combine, int axis, bool exclusive, bool reverse,
                  const Expr *body) {
    Op *op = graph_new_op(b->g, OP_scan, b->in.n, b->in.items, 1);
    op->combine = combine;
    op->axis = axis;
    op->exclusive = exclusive;
    op->reverse = reverse;
    if (dt_is_narrow((DType)body->dt)) body = ex_cast(b->x, dt_reg((DType)body->dt), body);
    op->body = body;
    op->post = ex_cast(b->x, dt, ex_acc(b->x, (DType)body->dt));
    return finish(b->g, op, dt, b->rank, b->shape);
}

Value *build_scatter(Builder *b, Value *data, Combine combine, const Expr *const *target,
                     const Expr *guard, const Expr *body) {
    Graph *g = b->g;
    /* data is input 0: loads made so far move up by one, unless it is there already */
    int n = b->in.n + 1;
    Value **in = ARENA_ARRAY(g->arena, n, Value *);
    in[0] = data;
    for (int i = 1; i < n; i++) in[i] = b->in.items[i - 1];
    Op *op = graph_new_op(g, OP_scatter, n, in, 1);
    op->combine = combine;
    op->n_upd = b->rank;
    op->upd = arena_copy(g->arena, b->shape, (size_t)b->rank * sizeof *b->shape);
    op->target = ARENA_ARRAY(g->arena, data->rank, const Expr *);
    for (int i = 0; i < data->rank; i++)
        op->target[i] = ex_shift_loads(b->x, simplify_in(b, target[i]), 1);
    op->guard = guard ? ex_shift_loads(b->x, simplify_in(b, guard), 1) : NULL;
    op->body = ex_shift_loads(b->x, simplify_in(b, ex_cast(b->x, data->dt, body)), 1);
    return finish(g, op, data->dt, data->rank, data->shape);
}

void build_loop(Graph *g, Graph *sub, int64_t trips, int n_state, int n_in, Value **in,
                Value **out) {
    int n_out = sub->outputs.n;
    Op *op = graph_new_op(g, OP_loop, n_in, in, n_out);
    op->trips = trips;
    op->n_state = n_state;
    op->sub = sub;
    for (int i = 0; i < n_out; i++) {
        const Value *v = sub->outputs.items[i];
        int64_t shape[MAX_RANK + 1];
        int rank = 0;
        if (i >= n_state) shape[rank++] = trips;
        for (int k = 0; k < v->rank; k++) shape[rank++] = v->shape[k];
        if (rank > MAX_RANK) {
            diag_error(g->diag, E3006, "a stacked result of more than %d dimensions", MAX_RANK);
            rank = MAX_RANK;
        }
        out[i] = graph_new_value(g, op, i, v->dt, rank, shape);
    }
    graph_append(g, op);
}
