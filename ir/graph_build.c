/* Builders of the core operators; see graph.h. */
#include "ir/constant.h"
#include "ir/interp_plan.h"

#include <string.h>

Value *graph_input(Graph *g, const char *name, DType dt, int rank, const int64_t *shape) {
    Op *op = graph_new_op(g, OP_input, 0, NULL, 1);
    Value *v = graph_new_value(g, op, 0, dt, rank, shape);
    v->name = name;
    graph_append(g, op);
    vec_push(g->arena, &g->inputs, v);
    return v;
}

Value *graph_captured(Graph *sub, Value *outer) {
    Value *v = graph_input(sub, outer->name, outer->dt, outer->rank, outer->dims);
    v->outer = outer;
    v->range = outer->range;
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
    vec_push(g->arena, &g->output_shape, -1);
}

void graph_output_text(Graph *g, Value *value, const char *name) {
    graph_output(g, value, name);
    g->output_text.items[g->output_text.n - 1] = true;
}

void graph_tie(Graph *g, int input, int output) {
    Value *in = g->inputs.items[input], *out = g->outputs.items[output];
    const char *name = g->output_names.items[output];
    bool text = g->output_text.items[output];
    int shape = g->output_shape.items[output];
    Op *last = g->inputs.items[g->inputs.n - 1]->def;
    for (int i = input; i + 1 < g->inputs.n; i++) g->inputs.items[i] = g->inputs.items[i + 1];
    for (int i = output; i + 1 < g->outputs.n; i++) {
        g->outputs.items[i] = g->outputs.items[i + 1];
        g->output_names.items[i] = g->output_names.items[i + 1];
        g->output_text.items[i] = g->output_text.items[i + 1];
        g->output_shape.items[i] = g->output_shape.items[i + 1];
    }
    g->inputs.items[g->inputs.n - 1] = in;
    g->outputs.items[g->outputs.n - 1] = out;
    g->output_names.items[g->outputs.n - 1] = name;
    g->output_text.items[g->outputs.n - 1] = text;
    g->output_shape.items[g->outputs.n - 1] = shape;
    for (int i = 0; i < g->outputs.n; i++)
        if (g->output_shape.items[i] > output) g->output_shape.items[i]--;
    if (last != in->def) { /* operators of inputs stand in the order of the inputs */
        Op *after = last->next;
        graph_unlink(g, in->def);
        graph_insert_before(g, after, in->def);
    }
    g->n_states++;
}

/* --- dimensions that vary --------------------------------------------------------------------- */

void graph_set_symbol(Graph *g, int symbol, Value *value) {
    while (g->symbols.n <= symbol) vec_push(g->arena, &g->symbols, NULL);
    g->symbols.items[symbol] = value;
    int64_t *range = ARENA_ARRAY(g->arena, 2, int64_t);
    if (dim_bounds(g->x, ex_var(g->x, DIM_VAR + symbol), &range[0], &range[1]))
        value->range = range;
}

int64_t graph_symbol(Graph *g, Value *value, int64_t low, int64_t high) {
    int k = dim_new_symbol(g->x, NULL, low, high);
    if (k < 0) return -1;
    graph_set_symbol(g, k, value);
    return dim_of_symbol(g->x, k);
}

#define MOST_ARITHMETIC 20 /* nodes of a dimension that is spelled out wherever it is used */

int64_t graph_settled(Graph *g, int64_t d) {
    if (!dim_varies(d) || g->parent || dim_expr(g->x, d)->size <= MOST_ARITHMETIC) return d;
    for (int i = 0; i < g->settled.n; i += 2)
        if (g->settled.items[i] == d) return g->settled.items[i + 1];
    Builder b = build(g, 0, NULL);
    Value *value = build_map(&b, DT_i32, dim_expr(g->x, d));
    int64_t symbol = graph_symbol(g, value, dim_min(g->x, d), dim_max(g->x, d));
    if (symbol == -1) return d;
    vec_push(g->arena, &g->settled, d);
    vec_push(g->arena, &g->settled, symbol);
    return symbol;
}

Value *graph_image(Graph *g, Value *stream, const char *format, const int64_t low[2],
                   const int64_t high[2], const char *name) {
    static const char *const extent_name[2] = {"height", "width"};
    GraphImage image = {.stream = stream, .format = format};
    Value **extent[2] = {&image.height, &image.width};
    int64_t shape[3] = {0, 0, strcmp(format, "Grayscale") ? 3 : 1};
    for (int i = 0; i < 2; i++) {
        *extent[i] =
            graph_input(g, arena_printf(g->arena, "%s.%s", name, extent_name[i]), DT_i32, 0, NULL);
        int64_t dim = graph_symbol(g, *extent[i], low[i], high[i]);
        if (dim == -1) return NULL;
        shape[i] = low[i] == high[i] ? low[i] : dim;
    }
    image.pixels = graph_input(g, arena_printf(g->arena, "%s.pixels", name), DT_u8, 3, shape);
    vec_push(g->arena, &g->images, image);
    return dims_vary(3, shape) ? graph_from_dense(g, image.pixels) : image.pixels;
}

/* A symbol's value here: in the body of a loop one more of its inputs (see build_loop). NULL where
 * it is computed further in. */
static Value *symbol_value(Graph *g, int k) {
    while (g->symbols.n <= k) vec_push(g->arena, &g->symbols, NULL);
    Value *outer = !g->symbols.items[k] && g->parent ? symbol_value(g->parent, k) : NULL;
    if (outer) graph_set_symbol(g, k, graph_input(g, outer->name, DT_i32, 0, NULL));
    return g->symbols.items[k];
}

int graph_symbol_of(const Graph *g, const Value *v) {
    for (int k = 0; k < g->symbols.n; k++)
        if (g->symbols.items[k] == v) return k;
    return -1;
}

typedef struct Symbols {
    Builder *b;
    bool found;
} Symbols;

static void note_symbol(void *user, const Expr *e) {
    if (e->op == EX_var && e->k.i >= DIM_VAR) ((Symbols *)user)->found = true;
}

static const Expr *load_symbol(void *user, const Expr *e, const Expr *const *args) {
    Builder *b = ((Symbols *)user)->b;
    if (e->op == EX_load) return ex_rebuild(b->x, e, args);
    if (e->op != EX_var || e->k.i < DIM_VAR) return e;
    Value *v = symbol_value(b->g, (int)e->k.i - DIM_VAR);
    if (v) return build_load(b, v, NULL);
    diag_error(b->g->diag, E3002,
               "a number of elements that the body of a loop finds is needed outside of it");
    return ex_i(b->x, 0);
}

typedef struct Reach {
    Graph *g;
    bool beyond;
} Reach;

static void note_beyond(void *user, const Expr *e) {
    Reach *r = user;
    if (e->op == EX_var && e->k.i >= DIM_VAR && !symbol_value(r->g, (int)e->k.i - DIM_VAR))
        r->beyond = true;
}

bool graph_has_extents(Graph *g, const Value *v) {
    Reach r = {.g = g};
    for (int i = 0; i < v->rank; i++)
        if (dim_varies(v->dims[i])) ex_visit(g->arena, dim_expr(g->x, v->dims[i]), note_beyond, &r);
    return !r.beyond;
}

/* The body with loads for symbols. */
static const Expr *load_symbols(Builder *b, const Expr *e) {
    if (!b->x->dims || !e) return e;
    Symbols s = {.b = b};
    ex_visit(b->g->arena, e, note_symbol, &s);
    return s.found ? ex_rewrite(b->x, e, load_symbol, &s) : e;
}

/* The extents that vars have, those of symbols included; returns how many. */
static int extents_of(const Builder *b, int64_t *extent) {
    int n = b->rank + b->n_red;
    for (int i = 0; i < n; i++)
        extent[i] = dim_max(b->x, i < b->rank ? b->shape[i] : b->red[i - b->rank]);
    if (!b->x->dims) return n;
    for (int i = n; i < DIM_VAR; i++) extent[i] = -1;
    return dim_extents(b->x, extent);
}

/* True in bodies where those of the first n coordinates that are in `which` are inside; NULL: all
 * are. */
static const Expr *inside(const Builder *b, int n, uint64_t which) {
    const Expr *all = NULL;
    for (int i = 0; i < n; i++) {
        int64_t d = i < b->rank ? b->shape[i] : b->red[i - b->rank];
        if (!dim_varies(d) || !(which >> i & 1)) continue;
        const Expr *one = ex_lt(b->x, ex_var(b->x, i), dim_simplified(b->x, d));
        all = all ? ex_and(b->x, all, one) : one;
    }
    return all;
}

typedef struct Reads {
    const Builder *b;
    int n;
    int64_t extent[DIM_MAX_VARS];
    bool beyond;
    uint64_t compared; /* coordinates that conditions look at */
    uint64_t risky;    /* see at_risk */
} Reads;

/* May an index be outside of an extent, for coordinates up to the largest? */
static bool index_beyond(const Reads *r, const Expr *index, int64_t extent) {
    int64_t low, high;
    return !ex_bounds(index, r->n, r->extent, &low, &high) || low < 0 || high >= extent;
}

static void check_read(void *user, const Expr *e) {
    Reads *r = user;
    if (e->op != EX_load) return;
    const Value *v = r->b->in.items[e->k.i];
    for (int i = 0; i < e->n; i++) r->beyond |= index_beyond(r, e->arg[i], v->shape[i]);
}

/* May the body read outside of a tensor where the coordinates are beyond their extents, but inside
 * of the largest ones? */
static bool reads_beyond(const Builder *b, const Expr *e) {
    Reads r = {.b = b};
    r.n = extents_of(b, r.extent);
    ex_visit(b->g->arena, e, check_read, &r);
    return r.beyond;
}

#define MAX_COMPARED 500 /* nodes of a condition that are looked at */

/* The coordinates that an expression is made of, not those of what it loads. */
static uint64_t coordinates_in(const Expr *e, int *steps) {
    uint64_t found = 0;
    if (e->op == EX_var && e->k.i < DIM_VAR) return (uint64_t)1 << e->k.i;
    for (int i = 0; i < e->n && e->op != EX_load && --*steps > 0; i++)
        found |= coordinates_in(e->arg[i], steps);
    return found;
}

static void note_compared(void *user, const Expr *e) {
    Reads *r = user;
    int steps = MAX_COMPARED;
    if (e->op == EX_lt || e->op == EX_le) r->compared |= coordinates_in(e, &steps);
}

#define ALL_COORDINATES (~(uint64_t)0)

static void note_variable(void *user, const Expr *e) {
    if (e->op == EX_var && e->k.i >= DIM_VAR) *(uint64_t *)user = ALL_COORDINATES;
}

static void note_risk(void *user, const Expr *e) {
    Reads *r = user;
    if (e->op != EX_load) return;
    const Value *v = r->b->in.items[e->k.i];
    for (int i = 0; i < e->n; i++) {
        if (!index_beyond(r, e->arg[i], v->shape[i])) continue;
        r->risky |= ex_vars(e->arg[i]);
        ex_visit(r->b->g->arena, e->arg[i], note_variable, &r->risky);
    }
}

static void note_related(void *user, const Expr *e) {
    Reads *r = user;
    if (e->dt != DT_bool || e->op == EX_load || e->op == EX_and) return;
    uint64_t found = ex_vars(e);
    if (found & r->risky) r->risky |= found;
}

/* The coordinates that must be inside of their extents for all loads to be inside of tensors: those
 * that an index depends on that may be outside, those that a condition depends on beside one of
 * them, and all where such an index depends on the run's extents. */
static uint64_t at_risk(const Builder *b, const Expr *e) {
    Reads r = {.b = b};
    r.n = extents_of(b, r.extent);
    ex_visit(b->g->arena, e, note_risk, &r);
    for (uint64_t before = 0; before != r.risky;) {
        before = r.risky;
        ex_visit(b->g->arena, e, note_related, &r);
    }
    return r.risky;
}

/* May the index be outside though no condition is about its coordinates? */
static bool unguarded(const Reads *r, const Expr *index, int64_t extent) {
    int steps = MAX_COMPARED;
    return index_beyond(r, index, extent) && !(coordinates_in(index, &steps) & r->compared);
}

static const Expr *clamp_load(void *user, const Expr *e, const Expr *const *args) {
    Reads *r = user;
    Exprs *x = r->b->x;
    if (e->op != EX_load) return e;
    const Value *v = r->b->in.items[e->k.i];
    const Expr *index[MAX_RANK];
    for (int i = 0; i < e->n; i++) {
        index[i] = args[i];
        if (!unguarded(r, args[i], v->shape[i])) continue;
        index[i] = ex_bin(x, EX_min, args[i], ex_i(x, v->shape[i] - 1));
        index[i] = ex_bin(x, EX_max, index[i], ex_i(x, 0));
    }
    return e->n ? ex_rebuild(x, e, index) : e;
}

/* The body with indices brought into their tensors where it relies on extents being equal that a
 * run may give otherwise. Where conditions are about coordinates, they see to that. */
static const Expr *within(const Builder *b, const Expr *e) {
    if (!b->x->dims || !e || !reads_beyond(b, e)) return e;
    Reads r = {.b = b};
    r.n = extents_of(b, r.extent);
    ex_visit(b->g->arena, e, note_compared, &r);
    return ex_rewrite(b->x, e, clamp_load, &r);
}

/* The condition on targets of a scatter that are not sure to be in `data`; `guard`: what holds. */
static const Expr *targets_within(const Builder *b, const Value *data, const Expr *const *target,
                                  const Expr *guard) {
    Exprs *x = b->x;
    if (!x->dims) return guard;
    Reads r = {.b = b};
    r.n = extents_of(b, r.extent);
    if (guard) ex_visit(b->g->arena, guard, note_compared, &r);
    for (int i = 0; i < data->rank; i++) {
        if (target[i]->op != EX_var || !unguarded(&r, target[i], data->shape[i])) continue;
        const Expr *fits = ex_lt(x, target[i], ex_i(x, data->shape[i]));
        guard = guard ? ex_and(x, guard, fits) : fits;
    }
    return guard;
}

/* The expression of the first `n` coordinates for all up to the largest extents: what a map
 * computes there does not matter, if it only is computed; what a reduction does must not count. */
static const Expr *guarded(const Builder *b, const Expr *e, int n, Scalar otherwise) {
    if (!b->x->dims || !inside(b, n, ALL_COORDINATES)) return e;
    const uint64_t risky = at_risk(b, e) | ALL_COORDINATES << b->rank;
    const Expr *cond = inside(b, n, risky);
    return cond ? ex_select(b->x, cond, e, ex_const(b->x, (DType)e->dt, otherwise)) : e;
}

/* --- folding ---------------------------------------------------------------------------------- */

#define FOLD_ALWAYS_BYTES ((size_t)64 << 10)
#define FOLD_MAX_WORK     ((int64_t)1 << 26)
#define FOLD_MAX_PRODUCTS ((int64_t)1 << 29) /* multiply-adds (DotPlan): about half a second */
#define FOLD_LATE_BYTES   ((size_t)1 << 20)  /* of floats: computed when somebody wants them */

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

/* Can the operator be computed now? Not if it is not one of constants, nor if its result would
 * bloat the program: where it is large it must not be more than `growth` times as large as what it
 * is made of. */
static bool folds(Graph *g, const Op *op, size_t growth) {
    if (g->no_fold || g->diag->n_errors || dims_vary(op->out[0]->rank, op->out[0]->dims))
        return false;
    size_t in_bytes = 0, out_bytes = 0;
    for (int i = 0; i < op->n_in; i++) {
        if (!value_is_const(op->in[i]) || dt_kind(op->in[i]->dt) == DK_string) return false;
        in_bytes += value_bytes(op->in[i]);
    }
    out_bytes = value_bytes(op->out[0]);
    if (out_bytes > FOLD_ALWAYS_BYTES && out_bytes > growth * in_bytes) return false;
    bool is_quick = op->kind == OP_reduce && dot_plan(g->arena, op);
    int64_t extent[MAX_RANK], work = 1, most = is_quick ? FOLD_MAX_PRODUCTS : FOLD_MAX_WORK;
    int n = op_extents(op, extent);
    for (int i = 0; i < n; i++) {
        work *= extent[i];
        if (work > most) return false;
    }
    return !g->depth || !reads_counter(g, op);
}

/* Gives `out`, the result of a const, the elements that `op` computes. */
static void fold(Graph *g, const Op *op, Value *out) {
    size_t bytes = value_bytes(out);
    if (op->kind == OP_map && dt_is_float(out->dt) && bytes >= FOLD_LATE_BYTES) {
        constant_made(g, out, op);
        return;
    }
    const void **in = ARENA_ARRAY(g->arena, op->n_in, const void *);
    for (int i = 0; i < op->n_in; i++) in[i] = constant_settle(g->arena, op->in[i]);
    void *data = arena_alloc(g->arena, bytes + 1);
    interp_op(g->arena, op, in, &data, NULL);
    out->data = data;
}

void graph_fold(Graph *g, Op *op, int growth) {
    bool computes = op->kind == OP_map || op->kind == OP_reduce;
    if (op->kind == OP_reshape ? !value_is_const(op->in[0])
                               : !computes || !folds(g, op, (size_t)growth))
        return;
    Value *out = op->out[0];
    const Op *before = arena_copy(g->arena, op, sizeof *op);
    *op = (Op){.kind = OP_const,
               .n_out = 1,
               .out = op->out,
               .src = op->src,
               .prev = op->prev,
               .next = op->next};
    if (before->kind == OP_reshape)
        constant_alias(out, before->in[0]); /* renamed dimensions */
    else
        fold(g, before, out);
}

static Value *finish(Graph *g, Op *op, DType dt, int rank, const int64_t *shape) {
    graph_new_value(g, op, 0, dt, rank, shape);
    if (!widens_bytes(op) && folds(g, op, 2)) {
        Value *v = graph_const(g, dt, rank, shape, NULL);
        fold(g, op, v);
        return v;
    }
    graph_append(g, op);
    return op->out[0];
}

/* --- bodies ----------------------------------------------------------------------------------- */

Builder build(Graph *g, int rank, const int64_t *shape) {
    Builder b = {.g = g, .x = g->x, .rank = rank};
    for (int i = 0; i < rank; i++) b.shape[i] = dim_normal(g->x, shape[i]);
    return b;
}

const Expr *build_red(Builder *b, int64_t extent) {
    if (b->rank + b->n_red == MAX_RANK) {
        diag_error(b->g->diag, E3006, "more than %d dimensions, those reduced counted in",
                   MAX_RANK);
        b->n_red--;
    }
    b->red[b->n_red++] = dim_normal(b->x, extent);
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

bool value_is_uniform(const Value *v) {
    int64_t n = value_numel(v);
    size_t size = dt_store(v->dt);
    if (!value_is_const(v) || dt_kind(v->dt) > DK_float || n < 1) return false;
    return n == 1 || !memcmp(v->data, (const char *)v->data + size, (size_t)(n - 1) * size);
}

const Expr *build_index(Builder *b, int at, int64_t extent) {
    Exprs *x = b->x;
    /* of two that are not known to be equal, one may be 1 */
    bool same = extent != 1 && dim_normal(x, extent) == b->shape[at];
    return same ? ex_var(x, at) : dim_index(x, ex_var(x, at), extent);
}

const Expr *build_in(Builder *b, Value *v) {
    const Expr *index[MAX_RANK];
    if (value_numel(v) <= UNIFORM_NUMEL && value_is_uniform(v))
        return ex_const(b->x, v->dt, dt_load(v->dt, v->data, 0));
    int skip = b->rank - v->rank;
    for (int i = 0; i < v->rank; i++) index[i] = build_index(b, skip + i, v->dims[i]);
    return build_load(b, v, index);
}

static const Expr *simplify_in(Builder *b, const Expr *e) {
    int64_t extent[DIM_MAX_VARS];
    int n = extents_of(b, extent);
    return ex_simplify(b->x, e, n, extent);
}

Value *build_map(Builder *b, DType dt, const Expr *body) {
    body = simplify_in(b, ex_cast(b->x, dt, body));
    /* an identity map is the value itself */
    if (body->op == EX_load) {
        Value *v = b->in.items[body->k.i];
        bool same = shape_equal(v->rank, v->dims, b->rank, b->shape);
        for (int i = 0; i < v->rank && same; i++)
            same =
                body->arg[i] == ex_var(b->x, i) || (v->shape[i] == 1 && ex_is_int(body->arg[i], 0));
        if (same) return v;
    }
    body = guarded(b, within(b, body), b->rank, (Scalar){.i = 0});
    body = load_symbols(b, body);
    Op *op = graph_new_op(b->g, OP_map, b->in.n, b->in.items, 1);
    op->body = body;
    return finish(b->g, op, dt, b->rank, b->shape);
}

Value *build_reduce(Builder *b, DType dt, Combine combine, const Expr *body, const Expr *post) {
    Exprs *x = b->x;
    if (dt_is_narrow((DType)body->dt)) body = ex_cast(x, dt_reg((DType)body->dt), body);
    post = simplify_in(b, ex_cast(x, dt, post ? post : ex_acc(x, (DType)body->dt)));
    body = simplify_in(b, body);
    if (x->dims) {
        body = guarded(b, within(b, body), b->rank + b->n_red,
                       combine_identity(combine, (DType)body->dt));
        body = load_symbols(b, body);
        post = guarded(b, within(b, post), b->rank, (Scalar){.i = 0});
        post = load_symbols(b, post);
    }
    Op *op = graph_new_op(b->g, OP_reduce, b->in.n, b->in.items, 1);
    op->combine = combine;
    op->n_red = b->n_red;
    int64_t *red = ARENA_ARRAY(b->g->arena, b->n_red + 1, int64_t);
    dims_max(x, b->n_red, b->red, red);
    op->red = red;
    op->body = body;
    op->post = post;
    return finish(b->g, op, dt, b->rank, b->shape);
}

Value *build_scan(Builder *b, DType dt, Combine combine, int axis, bool exclusive, bool reverse,
                  const Expr *body) {
    if (dt_is_narrow((DType)body->dt)) body = ex_cast(b->x, dt_reg((DType)body->dt), body);
    if (b->x->dims) {
        build_red(b, b->shape[axis]);
        body = within(b, body);
        body = guarded(b, body, b->rank + 1, combine_identity(combine, (DType)body->dt));
        b->n_red--;
        body = load_symbols(b, body);
    }
    Op *op = graph_new_op(b->g, OP_scan, b->in.n, b->in.items, 1);
    op->combine = combine;
    op->axis = axis;
    op->exclusive = exclusive;
    op->reverse = reverse;
    op->body = body;
    op->post = ex_cast(b->x, dt, ex_acc(b->x, (DType)body->dt));
    return finish(b->g, op, dt, b->rank, b->shape);
}

Value *build_scatter(Builder *b, Value *data, Combine combine, const Expr *const *target,
                     const Expr *guard, const Expr *body) {
    Graph *g = b->g;
    const Expr *at[MAX_RANK], *here = inside(b, b->rank, ALL_COORDINATES);
    body = within(b, body);
    guard = targets_within(b, data, target, within(b, guard));
    if (here) guard = guard ? ex_and(b->x, here, guard) : here;
    for (int i = 0; i < data->rank; i++) at[i] = load_symbols(b, simplify_in(b, target[i]));
    body = load_symbols(b, simplify_in(b, ex_cast(b->x, data->dt, body)));
    if (guard) guard = load_symbols(b, simplify_in(b, guard));
    /* data is input 0: loads made so far move up by one, unless it is there already */
    int n = b->in.n + 1;
    Value **in = ARENA_ARRAY(g->arena, n, Value *);
    in[0] = data;
    for (int i = 1; i < n; i++) in[i] = b->in.items[i - 1];
    Op *op = graph_new_op(g, OP_scatter, n, in, 1);
    op->combine = combine;
    op->n_upd = b->rank;
    int64_t *upd = ARENA_ARRAY(g->arena, b->rank + 1, int64_t);
    dims_max(b->x, b->rank, b->shape, upd);
    op->upd = upd;
    op->target = ARENA_ARRAY(g->arena, data->rank, const Expr *);
    for (int i = 0; i < data->rank; i++) op->target[i] = ex_shift_loads(b->x, at[i], 1);
    op->guard = guard ? ex_shift_loads(b->x, guard, 1) : NULL;
    op->body = ex_shift_loads(b->x, body, 1);
    return finish(g, op, data->dt, data->rank, data->dims);
}

/* The state after an iteration, if the loop has not come to its end before it. */
static Value *carried(Graph *sub, int64_t trips, Value *before, Value *after) {
    Builder b = build(sub, after->rank, after->dims);
    const Expr *on = ex_lt(b.x, ex_ctr(b.x, sub->depth - 1), ex_i(b.x, trips));
    const Expr *next = build_in(&b, after), *old = build_in(&b, before);
    return build_map(&b, after->dt, ex_select(b.x, on, next, old));
}

/* Gives the body one more state behind its n_state others, a scalar. Returns what it is before an
 * iteration; the output is still to be added. */
static Value *begin_state(Graph *sub, const char *name, DType dt, int n_state) {
    Value *before = graph_input(sub, name, dt, 0, NULL);
    if (sub->inputs.items[n_state] != before) { /* they stand in the order of the inputs */
        graph_unlink(sub, before->def);
        graph_insert_before(sub, sub->inputs.items[n_state]->def, before->def);
    }
    for (int i = sub->inputs.n - 1; i > n_state; i--)
        sub->inputs.items[i] = sub->inputs.items[i - 1];
    return sub->inputs.items[n_state] = before;
}

/* ... and what it is after it. */
static void end_state(Graph *sub, const char *name, Value *after, int n_state) {
    graph_output(sub, after, name);
    after = sub->outputs.items[sub->outputs.n - 1];
    for (int i = sub->outputs.n - 1; i > n_state; i--) {
        sub->outputs.items[i] = sub->outputs.items[i - 1];
        sub->output_names.items[i] = sub->output_names.items[i - 1];
    }
    sub->outputs.items[n_state] = after;
    sub->output_names.items[n_state] = name;
}

/* Do iterations follow? Those there are, while the body says so. NULL: always. Without a state
 * iterations stay as they are: they may take place at the same time. */
static Value *goes_on(Graph *sub, int64_t trips, int n_state) {
    if (!dim_varies(trips) || n_state == 0) return sub->go_on;
    Builder b = build(sub, 0, NULL);
    const Expr *next = ex_add(b.x, ex_ctr(b.x, sub->depth - 1), ex_i(b.x, 1));
    const Expr *e = ex_lt(b.x, next, ex_i(b.x, trips));
    if (sub->go_on) e = ex_and(b.x, build_in(&b, sub->go_on), e);
    return build_map(&b, DT_bool, e);
}

void build_loop(Graph *g, Graph *sub, int64_t trips, int n_state, int n_in, Value **in,
                Value **out) {
    int fault_at = -1, go_on_at = -1;
    Value *go_on = goes_on(sub, trips, n_state);
    if (sub->fault) {
        fault_at = n_state++;
        Value *before = begin_state(sub, "fault", DT_i32, fault_at);
        end_state(sub, "fault", graph_first_fault(sub, before, sub->fault), fault_at);
    }
    if (dim_varies(trips))
        for (int i = 0; i < n_state; i++)
            sub->outputs.items[i] =
                carried(sub, trips, sub->inputs.items[i], sub->outputs.items[i]);
    if (go_on) {
        go_on_at = n_state++;
        begin_state(sub, "go_on", DT_bool, go_on_at);
        end_state(sub, "go_on", go_on, go_on_at);
    }
    int n_out = sub->outputs.n;
    Value *none = fault_at >= 0 ? g_scalar(g, DT_i32, 0) : NULL;
    Value *yes = go_on ? g_scalar(g, DT_bool, 1) : NULL;
    /* symbols that the body uses are inputs besides those given */
    Value **all = ARENA_ARRAY(g->arena, sub->inputs.n + 1, Value *);
    for (int i = 0, next = 0; i < sub->inputs.n; i++) {
        int k = graph_symbol_of(sub, sub->inputs.items[i]);
        all[i] = k >= 0          ? symbol_value(g, k)
                 : i == fault_at ? none
                 : i == go_on_at ? yes
                 : next < n_in   ? in[next++]
                                 : NULL;
    }
    Op *op = graph_new_op(g, OP_loop, sub->inputs.n, all, n_out);
    op->trips = dim_max(g->x, trips);
    op->n_state = n_state;
    op->go_on = go_on_at + 1;
    op->sub = sub;
    for (int i = 0, next_out = 0; i < n_out; i++) {
        const Value *v = sub->outputs.items[i];
        int64_t shape[MAX_RANK + 1];
        int rank = 0;
        if (i >= n_state) shape[rank++] = trips;
        for (int k = 0; k < v->rank; k++) shape[rank++] = v->dims[k];
        if (rank > MAX_RANK) {
            diag_error(g->diag, E3006, "a stacked result of more than %d dimensions", MAX_RANK);
            rank = MAX_RANK;
        }
        Value *result = graph_new_value(g, op, i, v->dt, rank, shape);
        if (i != fault_at && i != go_on_at) out[next_out++] = result;
    }
    graph_append(g, op);
    if (fault_at >= 0) graph_join_fault(g, op->out[fault_at]);
}
