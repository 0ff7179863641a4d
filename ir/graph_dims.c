/* Shapes with dimensions that vary: reshapes of such tensors, and reading dimensions off the
 * tensors that they are computed in. See graph.h and dim.h.
 */
#include "ir/graph_dims.h"

#include <string.h>

#include "ir/expr_memo.h"

/* --- reshapes --------------------------------------------------------------------------------- */

/* Neighbouring dimensions of both shapes that have as many elements. */
typedef struct Group {
    int from, to;         /* of the operand */
    int new_from, new_to; /* of the result */
    bool sure;            /* in every run, whatever its extents are */
} Group;

/* Cuts both shapes into the smallest groups; returns how many. */
static int cut_groups(Exprs *x, int rank, const int64_t *old, int new_rank, const int64_t *new_dims,
                      Group *group) {
    int n = 0, i = 0, k = 0;
    while (i < rank || k < new_rank) {
        Group *at = &group[n++];
        *at = (Group){i, i, k, k, false};
        int64_t have = i < rank ? old[i++] : 1, want = k < new_rank ? new_dims[k++] : 1;
        while (have != want && (i < rank || k < new_rank)) {
            if (i < rank && (k == new_rank || dim_max(x, have) <= dim_max(x, want)))
                have = dim_mul(x, have, old[i++]);
            else
                want = dim_mul(x, want, new_dims[k++]);
        }
        at->to = i;
        at->new_to = k;
        at->sure = have == want;
    }
    return n;
}

/* Are elements at the same place of the memory as long as no other than the first of these
 * dimensions (those of 1 left out) varies? *most: how many there may be. */
static bool outermost_varies(Exprs *x, const int64_t *dims, int from, int to, int64_t *most) {
    bool first = true;
    *most = 1;
    for (int i = from; i < to; i++) {
        if (dims[i] == 1) continue;
        if (!first && dim_varies(dims[i])) return false;
        *most *= dim_max(x, dims[i]);
        first = false;
    }
    return true;
}

/* What dimensions of both shapes of a group are products of. */
typedef struct Part {
    int64_t dim;
    int old, new; /* which ones */
} Part;

/* Cuts the dimensions of a group into common parts, the outermost first; returns how many, 0 if
 * they are not made of the same ones. */
static int cut_parts(Exprs *x, const Group *g, const int64_t *old, const int64_t *new_dims,
                     Part part[2 * MAX_RANK]) {
    int n = 0, i = g->from - 1, k = g->new_from - 1;
    int64_t a = 1, b = 1; /* what is left of the dimension of each */
    for (;;) {
        while (a == 1 && i < g->to && ++i < g->to) a = old[i];
        while (b == 1 && k < g->new_to && ++k < g->new_to) b = new_dims[k];
        if (a == 1 || b == 1) return a == b ? n : 0;
        if (!dim_divides(x, a, b) && !dim_divides(x, b, a)) return 0;
        const int64_t dim = dim_divides(x, a, b) ? a : b;
        part[n++] = (Part){dim, i, k};
        a = a == dim ? 1 : dim_div(x, a, dim);
        b = b == dim ? 1 : dim_div(x, b, dim);
    }
}

/* The operand's coordinates of a group from those of the result, by the parts of both. */
static void regroup_parts(Exprs *x, const Group *g, int n, const Part *part, const Expr **index) {
    const Expr *at[2 * MAX_RANK];
    for (int i = g->from; i < g->to; i++) index[i] = ex_i(x, 0);
    for (int i = n - 1; i >= 0; i--) {
        const bool innermost = i == n - 1 || part[i + 1].new != part[i].new;
        const bool outermost = i == 0 || part[i - 1].new != part[i].new;
        const Expr *dim = ex_i(x, part[i].dim);
        const Expr *place = innermost ? ex_var(x, part[i].new) : at[i];
        at[i] = outermost ? place : ex_bin(x, EX_rem, place, dim);
        if (!outermost) at[i - 1] = ex_div(x, place, dim);
    }
    for (int i = 0; i < n; i++) {
        const Expr *before = ex_mul(x, index[part[i].old], ex_i(x, part[i].dim));
        index[part[i].old] = ex_add(x, before, at[i]);
    }
}

/* The operand's coordinates of a group from those of the result. */
static void regroup(Exprs *x, const Group *g, const int64_t *old, const int64_t *new_dims,
                    const Expr **index) {
    Part part[2 * MAX_RANK];
    const int parts = cut_parts(x, g, old, new_dims, part);
    if (parts) {
        regroup_parts(x, g, parts, part, index);
        return;
    }
    const Expr *place = ex_i(x, 0);
    int last = -1, count = 0, new_last = -1, new_count = 0;
    for (int i = g->from; i < g->to; i++) {
        index[i] = ex_i(x, 0);
        if (old[i] == 1) continue;
        last = i;
        count++;
    }
    for (int k = g->new_from; k < g->new_to; k++) {
        if (new_dims[k] == 1) continue;
        place = ex_add(x, ex_mul(x, place, ex_i(x, new_dims[k])), ex_var(x, k));
        new_last = k;
        new_count++;
    }
    if (count == 1 && new_count == 1) place = ex_var(x, new_last);
    for (int i = last; i >= g->from; i--) {
        if (old[i] == 1) continue;
        count--;
        index[i] = count ? ex_bin(x, EX_rem, place, ex_i(x, old[i])) : place;
        /* a run may be given extents that contradict the model: nothing outside of memory is read
         */
        if (!count && !g->sure)
            index[i] = ex_bin(x, EX_min, place, ex_i(x, dim_max(x, old[i]) - 1));
        if (count) place = ex_div(x, place, ex_i(x, old[i]));
    }
}

Value *reshape_memory(Graph *g, Value *v, int rank, const int64_t *shape) {
    Op *op = graph_new_op(g, OP_reshape, 1, &v, 1);
    graph_new_value(g, op, 0, v->dt, rank, shape);
    graph_append(g, op);
    return op->out[0];
}

Value *reshape_varying(Graph *g, Value *v, int rank, const int64_t *shape) {
    Builder b = build(g, rank, shape);
    Group group[2 * MAX_RANK];
    const Expr *index[MAX_RANK];
    int n = cut_groups(g->x, v->rank, v->dims, rank, b.shape, group);
    bool same_memory = true;
    for (int i = 0; i < n; i++) {
        int64_t most, new_most;
        const Group *at = &group[i];
        same_memory &= outermost_varies(g->x, v->dims, at->from, at->to, &most) &&
                       outermost_varies(g->x, b.shape, at->new_from, at->new_to, &new_most) &&
                       most == new_most;
        regroup(g->x, at, v->dims, b.shape, index);
    }
    /* a run may say otherwise than that there are as many */
    int64_t have = dim_product(g->x, v->rank, v->dims), want = dim_product(g->x, rank, b.shape);
    dim_claim(g->x, CLAIM_equal, have, want);
    if (same_memory) return reshape_memory(g, v, rank, b.shape);
    if (have != want)
        for (int i = 0; i < v->rank; i++) {
            const Expr *e = ex_bin(g->x, EX_min, index[i], ex_i(g->x, v->dims[i] - 1));
            index[i] = ex_bin(g->x, EX_max, e, ex_i(g->x, 0));
        }
    return build_map(&b, v->dt, build_load(&b, v, index));
}

/* --- inputs and outputs ----------------------------------------------------------------------- */

Value *graph_from_dense(Graph *g, Value *input) {
    Exprs *x = g->x;
    int64_t count = dim_product(x, input->rank, input->dims);
    Value *flat = reshape_memory(g, input, 1, &count);
    Builder b = build(g, input->rank, input->dims);
    const Expr *place = ex_i(x, 0), *all = ex_int(x, DT_bool, 1);
    for (int i = 0; i < input->rank; i++) {
        const Expr *extent = ex_i(x, input->dims[i]);
        place = ex_add(x, ex_mul(x, place, extent), ex_var(x, i));
        if (dim_varies(input->dims[i])) all = ex_and(x, all, ex_lt(x, ex_var(x, i), extent));
    }
    const Expr *e = build_load(&b, flat, &place);
    return build_map(&b, input->dt, ex_select(x, all, e, ex_num(x, input->dt, 0)));
}

Value *graph_to_dense(Graph *g, Value *v) {
    Exprs *x = g->x;
    int64_t count = dim_product(x, v->rank, v->dims), most = value_numel(v);
    if (dim_max(x, count) == most) {
        Value *flat = g_reshape(g, v, 1, &count);
        flat->dense = v->dims;
        flat->dense_rank = v->rank;
        return reshape_memory(g, flat, v->rank, v->dims);
    }
    /* not all extents are at their largest at once, or their product has looser bounds */
    Group all = {0, v->rank, 0, 1, true};
    const Expr *index[MAX_RANK];
    Builder b = build(g, 1, &most);
    regroup(x, &all, v->dims, &most, index);
    const Expr *inside = ex_lt(x, ex_var(x, 0), ex_i(x, count));
    const Expr *e = ex_select(x, inside, build_load(&b, v, index), ex_num(x, v->dt, 0));
    return reshape_memory(g, build_map(&b, v->dt, e), v->rank, v->dims);
}

Value *graph_shape(Graph *g, const Value *v) {
    Exprs *x = g->x;
    int64_t rank = v->rank;
    if (!dims_vary(v->rank, v->dims)) return g_ints(g, v->rank, v->dims);
    Builder b = build(g, 1, &rank);
    const Expr *e = ex_int(x, DT_i64, v->dims[rank - 1]);
    for (int i = v->rank - 2; i >= 0; i--)
        e = ex_select(x, ex_lt(x, ex_var(x, 0), ex_i(x, i + 1)), ex_int(x, DT_i64, v->dims[i]), e);
    return build_map(&b, DT_i64, e);
}

void graph_output_varying(Graph *g, Value *value, const char *name) {
    graph_output(g, graph_to_dense(g, value), name);
    int at = g->outputs.n - 1;
    g->output_shape.items[at] = g->outputs.n;
    graph_output(g, graph_shape(g, value), arena_printf(g->arena, "%s.shape", name));
}

/* --- dimensions as values --------------------------------------------------------------------- */

#define MAX_DIM_VALUES 64    /* elements of a tensor of dimensions */
#define MAX_WALK       4000  /* elements looked at for one of them */
#define MAX_ITERATIONS 16384 /* that are looked at one by one */

typedef struct Walk {
    Graph *g;
    int up;    /* from the graph where it began to `g` */
    int steps; /* left */
    int n_unknown;
    const Graph *body; /* whose inputs are vars; NULL: they are unknown */
    Memo found;        /* by key_of: operands of operands are met again and again */
} Walk;

typedef struct Element {
    Walk *walk;
    const Op *op;
    const int64_t *at; /* coordinates, then those reduced over */
    int n;
    const Expr *acc;
} Element;

static const Expr *element(Walk *w, const Value *v, const int64_t *at);

/* What is not known is a var of its own, so that what does not depend on it is known still, and no
 * two of them are taken for equal. */
static const Expr *unknown(Walk *w, DType dt) {
    return ex_var_of(w->g->x, VALUE_UNKNOWN + w->n_unknown++, dt);
}

/* How many iterations the loop with this counter has at most; 0: not known. */
static int64_t trips_of(const Graph *g, int64_t counter) {
    while (g->depth > counter + 1) g = g->parent;
    return g->depth == counter + 1 ? g->trips : 0;
}

static const Expr *leaf_of_element(void *user, const Expr *e, const Expr *const *args) {
    Element *el = user;
    Exprs *x = el->walk->g->x;
    if (e->op == EX_acc) return el->acc;
    if (e->op == EX_var && e->k.i < el->n) return ex_i(x, el->at[e->k.i]);
    if (e->op == EX_ctr) return e;
    if (e->op != EX_load) return unknown(el->walk, (DType)e->dt);
    const Value *v = el->op->in[e->k.i];
    int64_t at[MAX_RANK];
    for (int i = 0; i < e->n; i++) {
        if (!ex_is_const(args[i])) return unknown(el->walk, (DType)e->dt);
        at[i] = args[i]->k.i;
        if (at[i] < 0 || at[i] >= v->shape[i]) return unknown(el->walk, (DType)e->dt);
    }
    return element(el->walk, v, at);
}

static int64_t place_of(const Value *v, const int64_t *at) {
    int64_t place = 0;
    for (int i = 0; i < v->rank; i++) place = place * v->shape[i] + at[i];
    return place;
}

static void coordinates(int rank, const int64_t *shape, int64_t place, int64_t *at) {
    for (int i = rank - 1; i >= 0; i--) {
        at[i] = place % shape[i];
        place /= shape[i];
    }
}

static const Expr *element_of_reduce(Walk *w, const Op *op, const int64_t *at) {
    Exprs *x = w->g->x;
    DType dt = (DType)op->body->dt;
    int rank = op->out[0]->rank;
    int64_t total = shape_numel(op->n_red, op->red), all[MAX_RANK];
    if (total > MAX_DIM_VALUES) return unknown(w, op->out[0]->dt);
    for (int i = 0; i < rank; i++) all[i] = at[i];
    const Expr *acc = ex_const(x, dt, combine_identity(op->combine, dt));
    Element el = {w, op, all, rank + op->n_red, NULL};
    for (int64_t r = 0; r < total; r++) {
        coordinates(op->n_red, op->red, r, all + rank);
        const Expr *one = ex_rewrite(x, op->body, leaf_of_element, &el);
        acc = r ? ex_bin(x, combine_expr(op->combine), acc, one) : one;
    }
    el.n = rank;
    el.acc = acc;
    return ex_rewrite(x, op->post, leaf_of_element, &el);
}

/* Do these expressions of an update say that it is one of the element at `at`? 1: yes, 0: no, -1:
 * nobody knows. */
static int updates(Element *update, const Op *op, const int64_t *at) {
    Exprs *x = update->walk->g->x;
    int found = 1;
    for (int i = 0; i < op->out[0]->rank; i++) {
        const Expr *e = ex_rewrite(x, op->target[i], leaf_of_element, update);
        if (!ex_is_const(e)) return -1;
        found &= e->k.i == at[i];
    }
    if (!found || !op->guard) return found;
    const Expr *e = ex_rewrite(x, op->guard, leaf_of_element, update);
    return ex_is_const(e) ? e->k.i != 0 : -1;
}

static const Expr *element_of_scatter(Walk *w, const Op *op, const int64_t *at) {
    Exprs *x = w->g->x;
    const DType dt = op->out[0]->dt;
    int64_t total = shape_numel(op->n_upd, op->upd), own[MAX_RANK];
    if (total > MAX_DIM_VALUES) return unknown(w, dt);
    const Expr *e = element(w, op->in[0], at);
    for (int64_t u = 0; u < total; u++) {
        Element update = {w, op, own, op->n_upd, NULL};
        coordinates(op->n_upd, op->upd, u, own);
        const int found = updates(&update, op, at);
        if (found < 0) return unknown(w, dt);
        if (!found) continue;
        const Expr *one = ex_rewrite(x, op->body, leaf_of_element, &update);
        e = op->combine == COMBINE_none ? one : ex_bin(x, combine_expr(op->combine), e, one);
    }
    return e;
}

static const Expr *find_element(Walk *w, const Value *v, const int64_t *at) {
    Exprs *x = w->g->x;
    const Op *op = v->def;
    int64_t inner[MAX_RANK];
    if (--w->steps < 0) return unknown(w, v->dt);
    const int symbol = graph_symbol_of(w->g, v);
    if (symbol >= 0) return ex_var(x, DIM_VAR + symbol);
    switch (op->kind) {
    case OP_const:
        return dt_kind(v->dt) > DK_float
                   ? unknown(w, v->dt)
                   : ex_const(x, v->dt, dt_load(v->dt, v->data, (size_t)place_of(v, at)));
    case OP_input: { /* of a loop's body */
        Graph *here = w->g;
        const Value *outer = v->outer;
        for (int i = 0; here == w->body && value_numel(v) == 1 && i < here->inputs.n; i++)
            if (here->inputs.items[i] == v && !outer) return ex_var_of(x, VALUE_INPUT + i, v->dt);
        for (int i = 0; here != w->body && i < here->guesses.n; i++) {
            if (here->inputs.items[i] != v) continue;
            outer = here->guesses.items[i];
            here->guessed = true;
        }
        if (!outer) return unknown(w, v->dt);
        w->g = here->parent;
        w->up++;
        const Expr *e = element(w, outer, at);
        w->up--;
        w->g = here;
        return e;
    }
    case OP_reshape:
        coordinates(op->in[0]->rank, op->in[0]->shape, place_of(v, at), inner);
        return element(w, op->in[0], inner);
    case OP_map: {
        Element el = {w, op, at, v->rank, unknown(w, v->dt)};
        return ex_rewrite(x, op->body, leaf_of_element, &el);
    }
    case OP_reduce:
        return element_of_reduce(w, op, at);
    case OP_scatter:
        return element_of_scatter(w, op, at);
    default:
        return unknown(w, v->dt);
    }
}

/* An element of a value of w->g, by an expression that stands for nothing else in the walk. */
static const Expr *key_of(const Walk *w, const Value *v, const int64_t *at) {
    const Expr *place[MAX_RANK + 1] = {ex_i(w->g->x, w->up)};
    for (int i = 0; i < v->rank; i++) place[1 + i] = ex_i(w->g->x, at[i]);
    return ex_load(w->g->x, v->dt, v->id, 1 + v->rank, place);
}

/* An element as an expression of symbols. */
static const Expr *element(Walk *w, const Value *v, const int64_t *at) {
    const Expr *key = key_of(w, v, at);
    const MemoSlot *before = memo_slot(&w->found, key);
    if (before->key) return before->value;
    const Expr *e = find_element(w, v, at);
    memo_set(&w->found, key, e);
    return e;
}

static const Expr *walk_element(Graph *g, const Graph *body, const Value *v, const int64_t *at) {
    Walk walk = {.g = g, .steps = MAX_WALK, .body = body, .found = {.arena = g->arena}};
    const Expr *e = element(&walk, v, at);
    memo_end(&walk.found);
    return e;
}

/* --- values that are the same in every iteration ---------------------------------------------- */

typedef struct Iterations {
    const Graph *g;
    int n_ctr;
    int64_t ctr[MAX_RANK], trips[MAX_RANK], now[MAX_RANK];
    bool open; /* something else goes into it, or nobody knows how many there are */
} Iterations;

static void note_leaf(void *user, const Expr *e) {
    Iterations *t = user;
    if (e->op == EX_var) t->open = true;
    if (e->op != EX_ctr) return;
    int64_t trips = trips_of(t->g, e->k.i);
    for (int i = 0; i < t->n_ctr; i++)
        if (t->ctr[i] == e->k.i) return;
    if (trips < 1 || t->n_ctr == MAX_RANK) {
        t->open = true;
    } else {
        t->ctr[t->n_ctr] = e->k.i;
        t->trips[t->n_ctr++] = trips;
    }
}

static Scalar counter_now(void *user, const Expr *e) {
    const Iterations *t = user;
    int i = 0;
    while (t->ctr[i] != e->k.i) i++;
    return (Scalar){.i = t->now[i]};
}

/* `e`, or the constant that it is in all iterations of the loops whose counters go into it. */
static const Expr *in_all_iterations(Graph *g, const Expr *e) {
    Iterations t = {.g = g};
    ex_visit(g->arena, e, note_leaf, &t);
    if (t.open || t.n_ctr == 0) return e;
    int64_t count = shape_numel(t.n_ctr, t.trips);
    ExprParts *parts = count <= MAX_ITERATIONS ? ex_parts(g->arena, e) : NULL;
    Scalar first = {0};
    for (int64_t k = 0; parts && k < count; k++) {
        coordinates(t.n_ctr, t.trips, k, t.now);
        Scalar value = ex_parts_eval(parts, counter_now, &t);
        if (k == 0) first = value;
        /* of floats, too: bit by bit */
        if (memcmp(&value, &first, sizeof value)) return e;
    }
    return parts ? ex_const(g->x, (DType)e->dt, first) : e;
}

static void note_unknown(void *user, const Expr *e) {
    if (e->op == EX_ctr || (e->op == EX_var && e->k.i >= VALUE_UNKNOWN)) *(bool *)user = true;
}

static const Expr *element_known(Graph *g, const Value *v, const int64_t *at) {
    return in_all_iterations(g, walk_element(g, NULL, v, at));
}

const Expr *value_formula(Graph *g, const Value *v) {
    static const int64_t first[MAX_RANK];
    return walk_element(g, g, v, first);
}

bool value_known(Graph *g, const Value *v, Scalar *value) {
    static const int64_t first[MAX_RANK];
    if (value_numel(v) != 1) return false;
    const Expr *e = element_known(g, v, first);
    if (!ex_is_const(e)) return false;
    *value = e->k;
    return true;
}

const int64_t *value_dims(Graph *g, const Value *v, int *n) {
    const int64_t *known = value_ints(g, v, n);
    int64_t count = value_numel(v), at[MAX_RANK];
    if (known || (!g->x->dims && !g->parent)) return known;
    if (!dt_is_int(v->dt) || dims_vary(v->rank, v->dims) || count > MAX_DIM_VALUES) return NULL;
    int64_t *result = ARENA_ARRAY(g->arena, count + 1, int64_t);
    for (int64_t i = 0; i < count; i++) {
        bool open = false;
        coordinates(v->rank, v->shape, i, at);
        const Expr *e = element_known(g, v, at);
        ex_visit(g->arena, e, note_unknown, &open);
        if (open || !dim_from_expr(g->x, e, &result[i])) return NULL;
    }
    *n = (int)count;
    return result;
}
