/* See inline.h. */
#include "passes/inline.h"

#include "ir/constant.h"
#include "ir/dim.h"

#define SMALL_SIZE 100 /* nodes of a body that costs nothing to rewrite */

void reshape_index(Exprs *x, int rank_from, const int64_t *from, const Expr *const *index,
                   int rank_to, const int64_t *to, const Expr **result) {
    const Expr *flat = ex_i(x, 0);
    for (int i = 0; i < rank_from; i++)
        flat = ex_add(x, ex_mul(x, flat, ex_i(x, from[i])), index[i]);
    for (int i = rank_to - 1; i >= 0; i--) {
        int64_t size = to[i] > 0 ? to[i] : 1;
        result[i] = i ? ex_bin(x, EX_rem, flat, ex_i(x, size)) : flat;
        flat = ex_div(x, flat, ex_i(x, size));
    }
}

const Expr *reshape_body(Exprs *x, const Expr *body, int rank_from, const int64_t *from,
                         int rank_to, const int64_t *to) {
    const Expr *own[MAX_RANK], *at[MAX_RANK];
    for (int i = 0; i < rank_to; i++) own[i] = ex_var(x, i);
    reshape_index(x, rank_to, to, own, rank_from, from, at);
    return ex_simplify(x, ex_subst_vars(x, body, rank_from, at), rank_to, to);
}

void reshape_to_map(Graph *g, Op *op) {
    const Value *in = op->in[0], *out = op->out[0];
    const Expr *own[MAX_RANK];
    for (int i = 0; i < in->rank; i++) own[i] = ex_var(g->x, i);
    op->kind = OP_map;
    op->body = reshape_body(g->x, ex_load(g->x, in->dt, 0, in->rank, own), in->rank, in->shape,
                            out->rank, out->shape);
}

typedef struct Own {
    int source;
    const Value *v;
    bool moved; /* it is loaded elsewhere too */
} Own;

static void check_own(void *user, const Expr *e) {
    Own *u = user;
    if (e->op != EX_load || e->k.i != u->source) return;
    for (int i = 0; i < e->n; i++)
        u->moved |= !(e->arg[i]->op == EX_var && e->arg[i]->k.i == i) &&
                    !(ex_is_int(e->arg[i], 0) && u->v->shape[i] == 1);
}

bool reads_own(Arena *scratch, const Op *c, int i) {
    Own own = {i, c->in[i], false};
    ex_visit(scratch, c->body, check_own, &own);
    return !own.moved;
}

#define LITTLE 16 /* a row is a little longer by at most this part of the other */

bool may_write_over(Arena *scratch, const Op *op, int i) {
    const Value *in = op->in[i], *out = op->out[0];
    const int last = out->rank - 1;
    if (op->kind != OP_map || op->guard || in->rank != out->rank ||
        dt_store(in->dt) != dt_store(out->dt))
        return false;
    if (last >= 0) {
        const int64_t row = out->shape[last], longer = in->shape[last] - row;
        if (!shape_equal(last, in->shape, last, out->shape) || longer < 0 ||
            longer > row / LITTLE || longer > MOST_GAP)
            return false;
    }
    return reads_own(scratch, op, i);
}

typedef struct Unseen {
    Exprs *x;
    int source;
    const Expr *to;
} Unseen;

static const Expr *unseen_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Unseen *u = user;
    if (e->op != EX_load) return e;
    return e->k.i == u->source ? u->to : ex_load(u->x, (DType)e->dt, (int)e->k.i, e->n, args);
}

static const Expr *unseen_acc(void *user, const Expr *e, const Expr *const *args) {
    const Unseen *u = user;
    if (e->op == EX_acc) return u->to;
    return e->op == EX_load ? ex_load(u->x, (DType)e->dt, (int)e->k.i, e->n, args) : e;
}

void map_before_reshape(Graph *g, Op *c, int i) {
    Value *out = c->out[0], *made = through_reshape(c->in[i]);
    const Expr *own[MAX_RANK];
    for (int d = 0; d < made->rank; d++) own[d] = ex_var(g->x, d);
    /* an accumulator, which maps have not, stands for the element meanwhile */
    Unseen hide = {g->x, i, ex_acc(g->x, made->dt)};
    Unseen show = {g->x, i, ex_load(g->x, made->dt, i, made->rank, own)};
    const Expr *body = ex_rewrite(g->x, c->body, unseen_leaf, &hide);
    body = reshape_body(g->x, body, out->rank, out->shape, made->rank, made->shape);
    c->body = ex_rewrite(g->x, body, unseen_acc, &show);
    c->in = arena_copy(g->arena, c->in, (size_t)c->n_in * sizeof *c->in);
    c->in[i] = made;
    Op *reshape = graph_new_op(g, OP_reshape, 1, &out, 1);
    Value *inner = graph_new_value(g, c, 0, out->dt, made->rank, made->dims);
    reshape->in[0] = inner;
    reshape->out[0] = out;
    out->def = reshape;
    inner->index = 1;
    graph_insert_before(g, c->next, reshape);
}

typedef struct Rebase {
    Builder *b;
    Value *const *in;
} Rebase;

static const Expr *rebase_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Rebase *r = user;
    return e->op == EX_load ? build_load(r->b, r->in[e->k.i], args) : e;
}

const Expr *build_rebased(Builder *b, Value *const *in, const Expr *e) {
    Rebase r = {b, in};
    return ex_rewrite(b->x, e, rebase_leaf, &r);
}

const Expr *without_casts(const Expr *factor) {
    const Expr *e = factor;
    while (e->op == EX_cast) e = e->arg[0];
    return e->op == EX_load ? e : factor;
}

const Expr *with_casts(Exprs *x, const Expr *factor, const Expr *inner, const Expr *e) {
    if (factor == inner) return e;
    return ex_cast(x, (DType)factor->dt, with_casts(x, factor->arg[0], inner, e));
}

Value *own_load(const Op *op, const Expr *e) {
    if (e->op != EX_load || e->n != op->out[0]->rank) return NULL;
    for (int i = 0; i < e->n; i++) {
        bool own = e->arg[i]->op == EX_var && e->arg[i]->k.i == i;
        if (!own && !(ex_is_int(e->arg[i], 0) && op->out[0]->shape[i] == 1)) return NULL;
    }
    return op->in[e->k.i];
}

const Expr *reduce_term(Exprs *x, const Op *op, const Expr **condition) {
    const Expr *e = op->body;
    *condition = NULL;
    if (e->op != EX_select) return e;
    const Scalar none = combine_identity(op->combine, (DType)e->dt);
    if (e->arg[2] != ex_const(x, (DType)e->dt, none)) return e;
    *condition = e->arg[0];
    return e->arg[1];
}

void reduce_set_term(Exprs *x, Op *op, const Expr *term) {
    const Expr *condition;
    reduce_term(x, op, &condition);
    const Scalar none = combine_identity(op->combine, (DType)term->dt);
    op->body = condition ? ex_select(x, condition, term, ex_const(x, (DType)term->dt, none)) : term;
}

typedef struct Symbols {
    const Graph *g;
    const Op *op;
} Symbols;

/* Loads of symbols are what they stand for in dimensions, and of several that are one value the
 * first is taken. */
static const Expr *symbol_of(void *user, const Expr *e, const Expr *const *args) {
    const Symbols *u = user;
    const Value *v = NULL;
    (void)args;
    if (e->op == EX_load && e->n == 0) v = u->op->in[e->k.i];
    if (e->op == EX_var && e->k.i >= DIM_VAR && e->k.i - DIM_VAR < u->g->symbols.n)
        v = u->g->symbols.items[e->k.i - DIM_VAR];
    const int k = v ? graph_symbol_of(u->g, v) : -1;
    return k < 0 ? e : ex_var(u->g->x, DIM_VAR + k);
}

const Expr *symbols_of_loads(const Graph *g, const Op *op, const Expr *e) {
    Symbols u = {g, op};
    return ex_rewrite(g->x, e, symbol_of, &u);
}

/* The condition under which `var` is less than `extent`, and nothing else hangs on `var`. */
static bool only_ends(Arena *scratch, const Expr *condition, int var, const Expr **extent) {
    if (condition->op == EX_and)
        return only_ends(scratch, condition->arg[0], var, extent) &&
               only_ends(scratch, condition->arg[1], var, extent);
    if (!ex_depends(condition, var)) return true;
    if (condition->op != EX_lt || *extent || condition->arg[0]->op != EX_var ||
        condition->arg[0]->k.i != var)
        return false;
    *extent = condition->arg[1];
    return true;
}

bool reduces_all_of(Graph *g, const Op *op, int r, const Value *v, int d) {
    const Expr *condition, *extent = NULL;
    const bool varies = dim_varies(v->dims[d]);
    if (op->red[r] != v->shape[d]) return false;
    reduce_term(g->x, op, &condition);
    if (condition && !only_ends(g->arena, condition, op->out[0]->rank + r, &extent)) return false;
    if (!extent || !varies) return !extent && !varies;
    return symbols_of_loads(g, op, extent) ==
           symbols_of_loads(g, op, dim_simplified(g->x, v->dims[d]));
}

static void add_cost(void *user, const Expr *e) {
    double *cost = user;
    switch ((ExprOp)e->op) {
    case EX_const:
    case EX_var:
    case EX_ctr:
    case EX_acc:
    case EX_load:
    case EX_cast:
        break;
    case EX_div:
    case EX_rem:
        *cost += e->dt == DT_i32 ? 2 : 4;
        break;
    case EX_sqrt:
        *cost += 6;
        break;
    case EX_exp:
    case EX_exp_low:
    case EX_log:
    case EX_pow:
    case EX_sin:
    case EX_cos:
    case EX_tan:
    case EX_asin:
    case EX_acos:
    case EX_atan:
    case EX_sinh:
    case EX_cosh:
    case EX_tanh:
    case EX_asinh:
    case EX_acosh:
    case EX_atanh:
    case EX_erf:
        *cost += 20;
        break;
    default:
        *cost += dt_is_float((DType)e->dt) ? 1 : 0.25;
    }
}

double body_cost(Arena *scratch, const Expr *e) {
    double cost = 0;
    ex_visit(scratch, e, add_cost, &cost);
    return cost;
}

typedef struct InputLoads {
    int input, count;
} InputLoads;

static void count_load(void *user, const Expr *e) {
    InputLoads *l = user;
    l->count += e->op == EX_load && e->k.i == l->input;
}

int loads_of_input(Arena *scratch, const Expr *e, int input) {
    InputLoads l = {input, 0};
    ex_visit(scratch, e, count_load, &l);
    return l.count;
}

Value *scattered_state(const Graph *g, const Value *v) {
    int i = g->n_states;
    while (i-- && g->outputs.items[graph_n_outputs(g) + i] != v) continue;
    if (i < 0) return NULL;
    Value *state = g->inputs.items[graph_n_inputs(g) + i];
    while (v != state && v->def->kind == OP_scatter && v->def->in[0]->index == 1) v = v->def->in[0];
    return v == state ? state : NULL;
}

int load_dimension(const Expr *load, int var) {
    int found = -1;
    for (int i = 0; i < load->n; i++) {
        if (!ex_depends(load->arg[i], var)) continue;
        if (found >= 0 || load->arg[i]->op != EX_var) return -1;
        found = i;
    }
    return found;
}

static void add_dimension(Exprs *x, const Op *op, LaidOut *l, int k) {
    const int rank = op->out[0]->rank;
    l->own[l->rank] = ex_var(x, k);
    l->to[k] = ex_var(x, l->rank);
    l->dims[l->rank++] = k < rank ? op->out[0]->dims[k] : op->red[k - rank];
}

LaidOut lay_out(Exprs *x, const Op *op, uint64_t vars, int last) {
    LaidOut l = {.rank = 0};
    for (int k = 0; k < op->out[0]->rank + op->n_red; k++) {
        l.to[k] = ex_i(x, 0);
        if (vars >> k & 1 && k != last) add_dimension(x, op, &l, k);
    }
    if (last >= 0) add_dimension(x, op, &l, last);
    return l;
}

/* The integers that a body which moves, widens and adds bytes gives; false: it does something else.
 */
static bool range_of_body(Arena *a, const Op *op, const Expr *e, int64_t *low, int64_t *high) {
    int64_t other_low, other_high;
    while (e->op == EX_cast && dt_is_int((DType)e->dt) && !dt_is_byte((DType)e->dt)) e = e->arg[0];
    if (e->op == EX_load) return integer_range(a, op->in[e->k.i], low, high);
    if (ex_is_const(e)) {
        *low = *high = e->k.i;
        return dt_is_int((DType)e->dt);
    }
    const bool select = e->op == EX_select, adds = e->op == EX_add || e->op == EX_sub;
    if (select || (adds && e->dt == DT_i32)) {
        if (!range_of_body(a, op, e->arg[select], low, high) ||
            !range_of_body(a, op, e->arg[1 + select], &other_low, &other_high))
            return false;
        if (select) {
            if (other_low < *low) *low = other_low;
            if (other_high > *high) *high = other_high;
        } else {
            *low += e->op == EX_add ? other_low : -other_high;
            *high += e->op == EX_add ? other_high : -other_low;
        }
        return true;
    }
    *low = e->dt == DT_i8 ? -128 : 0;
    *high = *low + 255;
    return dt_is_byte((DType)e->dt);
}

bool integer_range(Arena *a, Value *v, int64_t *low, int64_t *high) {
    if (v->dt == DT_i16 && value_is_const(v) && value_numel(v) > 0) {
        const int16_t *data = constant_settle(a, v);
        *low = *high = data[0];
        for (int64_t i = value_numel(v) - 1; i > 0; i--) {
            if (data[i] < *low) *low = data[i];
            if (data[i] > *high) *high = data[i];
        }
        return true;
    }
    if (v->dt == DT_i16 && v->def->kind == OP_map)
        return range_of_body(a, v->def, v->def->body, low, high) && *low >= INT16_MIN &&
               *high <= INT16_MAX;
    *low = v->dt == DT_i8 ? -128 : 0;
    *high = *low + 255;
    return dt_is_byte(v->dt);
}

int list_add(Value **list, int *n, Value *v) {
    for (int i = 0; i < *n; i++)
        if (list[i] == v) return i;
    list[*n] = v;
    return (*n)++;
}

int op_add_input(Graph *g, Op *op, Value *v) {
    Value **in = ARENA_ARRAY(g->arena, op->n_in + 1, Value *);
    for (int i = 0; i < op->n_in; i++) in[i] = op->in[i];
    op->in = in;
    return list_add(in, &op->n_in, v);
}

bool runs_across(const Expr *load, int var) {
    bool across = false;
    for (int i = 0; i < load->n; i++) {
        bool depends = ex_depends(load->arg[i], var);
        across = i < load->n - 1 ? across || depends : across && !depends;
    }
    return across;
}

typedef struct Across {
    int last;
    bool any;
} Across;

static void look_across(void *user, const Expr *e) {
    Across *u = user;
    u->any |= e->op == EX_load && runs_across(e, u->last);
}

bool reads_across(Arena *scratch, const Op *op) {
    Across u = {.last = op->out[0]->rank - 1};
    ex_visit(scratch, op->body, look_across, &u);
    return u.any;
}

typedef struct Renumber {
    Exprs *x;
    const int *to;
} Renumber;

static const Expr *renumber_leaf(void *user, const Expr *e, const Expr *const *args) {
    Renumber *u = user;
    return e->op == EX_load ? ex_load(u->x, (DType)e->dt, u->to[e->k.i], e->n, args) : e;
}

const Expr *renumber_loads(Exprs *x, const Expr *e, int n, const int *to) {
    bool same = true;
    for (int i = 0; i < n; i++) same &= to[i] == i;
    if (same) return e;
    Renumber u = {x, to};
    return ex_rewrite(x, e, renumber_leaf, &u);
}

typedef struct Inline {
    Exprs *x;
    int source; /* c's input to be replaced */
    const Op *m;
    const Value *seen;     /* what c loads: m's value or a reshape of it */
    const int *old_to_new; /* c's inputs in the new list */
    const Expr *body;      /* m's body with its loads renumbered */
    bool moved;            /* set: m's coordinates are not c's own everywhere */
    int64_t *work;         /* nodes rewritten */
} Inline;

/* Is this the element at the coordinates themselves? */
static bool own_index(Exprs *x, int rank, const Expr *const *index) {
    for (int i = 0; i < rank; i++)
        if (index[i] != ex_var(x, i)) return false;
    return true;
}

static const Expr *inline_leaf(void *user, const Expr *e, const Expr *const *args) {
    Inline *u = user;
    if (e->op != EX_load) return e;
    if (e->k.i != u->source) return ex_load(u->x, (DType)e->dt, u->old_to_new[e->k.i], e->n, args);
    const Value *made = u->m->out[0], *seen = u->seen;
    if (seen == made && own_index(u->x, made->rank, args)) return u->body;
    u->moved = true;
    if (seen == made) return ex_subst_vars(u->x, u->body, made->rank, args);
    const Expr *index[MAX_RANK];
    reshape_index(u->x, seen->rank, seen->shape, args, made->rank, made->shape, index);
    return ex_subst_vars(u->x, u->body, made->rank, index);
}

/* `e` of c with m's body in it. Both were simplified before: there is more to find only where an
 * index of c meets m's coordinates, or where integers meet. */
static const Expr *inlined(const Op *c, Inline *u, const Expr *e) {
    int64_t extent[MAX_RANK];
    int n = op_extents(c, extent);
    u->moved = false;
    e = ex_rewrite(u->x, e, inline_leaf, u);
    if (!u->moved && dt_is_float((DType)u->body->dt)) return e;
    *u->work += e->size;
    return ex_simplify(u->x, e, n, extent);
}

bool op_inline(Graph *g, Op *c, int i, int most, int64_t *work) {
    Value *seen = c->in[i], *made = through_reshape(seen);
    const Op *m = made->def;
    Value **list = ARENA_ARRAY(g->arena, c->n_in + m->n_in, Value *);
    int *old_to_new = ARENA_ARRAY(g->arena, c->n_in, int);
    int *m_to_new = ARENA_ARRAY(g->arena, m->n_in + 1, int);
    int n = 0;
    /* a large body keeps the numbers of its loads: a long chain would be renumbered at every step
     */
    bool m_first = m->body->size > SMALL_SIZE && c->kind == OP_map;
    for (int k = 0; m_first && k < m->n_in; k++) list_add(list, &n, m->in[k]);
    for (int k = 0; k < c->n_in; k++)
        if (k != i) old_to_new[k] = list_add(list, &n, c->in[k]);
    for (int k = 0; k < m->n_in; k++) m_to_new[k] = list_add(list, &n, m->in[k]);
    if (n > most && n > c->n_in) return false;
    Inline u = {
        .x = g->x, .source = i, .m = m, .seen = seen, .old_to_new = old_to_new, .work = work};
    u.body = renumber_loads(g->x, m->body, m->n_in, m_to_new);
    c->body = inlined(c, &u, c->body);
    if (c->post) c->post = inlined(c, &u, c->post);
    if (c->guard) c->guard = inlined(c, &u, c->guard);
    for (int k = 0; c->target && k < c->out[0]->rank; k++)
        c->target[k] = inlined(c, &u, c->target[k]);
    c->in = list;
    c->n_in = n;
    return true;
}
