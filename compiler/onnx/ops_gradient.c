/* Gradient of ai.onnx.preview.training: backwards through the operators that the importer has
 * built.
 *
 * What reaches one element of an operator's input is the sum over all elements that it is loaded
 * for, of what reaches those times the derivative of the body by that load. Where the coordinates
 * of the load are coordinates of the operator, that is a map or a sum over the others (so a
 * product's gradient is a product again); elsewhere it is a scatter that adds. Expressions are
 * differentiated by the rules of gradient.def. Gradients of narrow floats are kept in the type that
 * computes.
 */
#include "compiler/onnx/import_impl.h"
#include "compiler/onnx/index.h"
#include "ir/expr_memo.h"

#include <string.h>

typedef struct Tape {
    Node *n;
    Graph *g;
    Exprs *x;
    bool *depends; /* by a value's id: on what the gradient is taken by */
    Value **grad;  /* by a value's id; NULL: none so far */
} Tape;

/* --- expressions ------------------------------------------------------------------------------ */

typedef struct Rule {
    ExprOp op;
    const char *of[2];
} Rule;

static const Rule rules[] = {
#define GRADIENT(op, of_a, of_b) {EX_##op, {of_a, of_b}},
#include "compiler/onnx/gradient.def"
};

/* A derivative by one leaf (a load, or acc). */
typedef struct Derivative {
    Exprs *x;
    const Expr *leaf;
    Memo done, reached;
    bool failed; /* something has no rule */
} Derivative;

static bool is_real(const Expr *e) {
    return dt_is_float((DType)e->dt);
}

static const Expr *sum_of(Exprs *x, const Expr *a, const Expr *b) {
    return !a ? b : !b ? a : ex_add(x, a, b);
}

static const Expr *derive(Derivative *w, const Expr *e);

static const Expr *derive_operator(Derivative *w, const Expr *e) {
    static const char *const names[] = {"d", "a", "b", "y"};
    const Rule *rule = NULL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && !rule; i++)
        if (rules[i].op == e->op) rule = &rules[i];
    const Expr *sum = NULL;
    for (int i = 0; i < e->n; i++) {
        const Expr *d = derive(w, e->arg[i]);
        if (!d) continue;
        if (!rule || i > 1) {
            w->failed = true;
            return NULL;
        }
        const Expr *values[] = {d, e->arg[0], e->n > 1 ? e->arg[1] : d, e};
        const char *mistake;
        if (*rule->of[i])
            sum = sum_of(w->x, sum, ex_formula(w->x, rule->of[i], 4, names, values, &mistake));
    }
    return sum;
}

/* What `e` changes by when the leaf does, in the type that computes; NULL: nothing. */
static const Expr *derive(Derivative *w, const Expr *e) {
    Exprs *x = w->x;
    if (!is_real(e) || e->op == EX_const) return NULL;
    DType dt = dt_reg((DType)e->dt);
    if (e == w->leaf) return ex_num(x, dt, 1);
    if (e->op == EX_load || e->op == EX_acc || w->failed) return NULL;
    MemoSlot *slot = memo_slot(&w->done, e);
    if (slot->key) return slot->value;
    const Expr *d = NULL;
    if (e->op == EX_cast) {
        const Expr *from = derive(w, e->arg[0]);
        if (from) d = ex_cast(x, dt, from);
    } else if (e->op == EX_select) {
        const Expr *a = derive(w, e->arg[1]), *b = derive(w, e->arg[2]);
        const Expr *zero = ex_num(x, dt, 0);
        if (a || b) d = ex_select(x, e->arg[0], a ? a : zero, b ? b : zero);
    } else {
        d = derive_operator(w, e);
    }
    memo_set(&w->done, e, d);
    return d;
}

/* When the leaf is looked at for a derivative, for a load is inside of its tensor only then; NULL:
 * never. */
static const Expr *reached(Derivative *w, const Expr *e) {
    Exprs *x = w->x;
    if (e == w->leaf) return ex_int(x, DT_bool, 1);
    if (e->op == EX_load || !is_real(e)) return NULL;
    MemoSlot *slot = memo_slot(&w->reached, e);
    if (slot->key) return slot->value;
    const Expr *when = NULL;
    for (int i = e->op == EX_select; i < e->n; i++) {
        const Expr *part = reached(w, e->arg[i]);
        if (!part) continue;
        if (e->op == EX_select)
            part = ex_and(x, i == 1 ? e->arg[0] : ex_un(x, EX_not, e->arg[0]), part);
        when = when ? ex_bin(x, EX_or, when, part) : part;
    }
    memo_set(&w->reached, e, when);
    return when;
}

/* --- operators -------------------------------------------------------------------------------- */

static void add_gradient(Tape *t, const Value *v, Value *part) {
    Value **grad = &t->grad[v->id];
    *grad = *grad ? g_bin(t->g, EX_add, *grad, part) : part;
}

/* Where the expressions of an operator are written again. */
typedef struct Copy {
    Builder *b;
    const Op *op;
    const Expr **to; /* for each coordinate */
    Value *acc;      /* for acc, at the operator's output coordinates */
} Copy;

static const Expr *copy_leaf(void *user, const Expr *leaf, const Expr *const *args) {
    Copy *c = user;
    if (leaf->op == EX_var) return c->to[leaf->k.i];
    if (leaf->op == EX_load) return build_load(c->b, c->op->in[leaf->k.i], args);
    return leaf->op == EX_acc ? build_load(c->b, c->acc, c->to) : leaf;
}

static const Expr *copied(Copy *c, const Expr *e) {
    return ex_rewrite(c->b->x, e, copy_leaf, c);
}

/* A share of the gradient: `factor` (an expression of the operator, NULL: 1) times what reaches the
 * operator's output, for one load of its body. */
typedef struct Share {
    const Op *op;
    Value *reaches; /* the gradient of the output */
    Value *acc;
    const Expr *load, *factor, *when; /* when: the load takes place; NULL: always */
    int n;                            /* coordinates: of the output, then of the reduction */
    int64_t extent[MAX_RANK];
} Share;

static const Expr *share_body(Share *s, Copy *c) {
    Exprs *x = c->b->x;
    const Expr *e = build_load(c->b, s->reaches, c->to);
    return ex_mul(x, e, ex_cast(x, (DType)e->dt, copied(c, s->factor)));
}

/* For each dimension of the loaded tensor the coordinate that it is loaded at, -1 where it has one
 * element. False if the load is at something else, or leaves elements out. */
static bool plain_load(const Share *s, const Value *v, int *coordinate) {
    uint32_t used = 0;
    for (int i = 0; i < v->rank; i++) {
        const Expr *at = s->load->arg[i];
        coordinate[i] = -1;
        if (v->shape[i] == 1 && ex_is_int(at, 0)) continue;
        if (at->op != EX_var || s->extent[at->k.i] != v->shape[i] || used >> at->k.i & 1)
            return false;
        coordinate[i] = (int)at->k.i;
        used |= 1u << at->k.i;
    }
    return true;
}

static void flow_share(Tape *t, Share *s) {
    Exprs *x = t->x;
    Value *v = s->op->in[s->load->k.i];
    DType dt = dt_reg(v->dt);
    int coordinate[MAX_RANK];
    const Expr *to[MAX_RANK];
    if (plain_load(s, v, coordinate)) {
        Builder b = build(t->g, v->rank, v->shape);
        Copy c = {&b, s->op, to, s->acc};
        for (int k = 0; k < s->n; k++) to[k] = NULL;
        for (int i = 0; i < v->rank; i++)
            if (coordinate[i] >= 0) to[coordinate[i]] = ex_var(x, i);
        for (int k = 0; k < s->n; k++)
            if (!to[k]) to[k] = s->extent[k] == 1 ? ex_i(x, 0) : build_red(&b, s->extent[k]);
        const Expr *e = ex_cast(x, dt, share_body(s, &c));
        if (s->when) e = ex_select(x, copied(&c, s->when), e, ex_num(x, dt, 0));
        add_gradient(t, v,
                     b.n_red ? build_reduce(&b, dt, COMBINE_sum, e, NULL) : build_map(&b, dt, e));
        return;
    }
    Builder b = build(t->g, s->n, s->extent);
    Copy c = {&b, s->op, to, s->acc};
    for (int k = 0; k < s->n; k++) to[k] = ex_var(x, k);
    const Expr *target[MAX_RANK];
    for (int i = 0; i < v->rank; i++) target[i] = copied(&c, s->load->arg[i]);
    const Expr *guard = s->when ? copied(&c, s->when) : NULL;
    Value *none = zeros(t->g, dt, v->rank, v->shape);
    add_gradient(t, v, build_scatter(&b, none, COMBINE_sum, target, guard, share_body(s, &c)));
}

typedef struct Loads {
    Arena *arena;
    VEC(const Expr *) list;
} Loads;

static void find_load(void *user, const Expr *e) {
    Loads *loads = user;
    if (e->op == EX_load && is_real(e)) vec_push(loads->arena, &loads->list, e);
}

static void no_rule(Tape *t, const Op *op, const char *what) {
    if (!t->n->failed)
        unsupported(t->n, "the gradient through %s, %s", op->src ? op->src : op_kind_name(op->kind),
                    what);
    t->n->failed = true;
}

/* From what reaches `e`, an expression over the first n coordinates of the operator, to all that it
 * loads. chosen: a condition under which it counts; NULL: always. */
static void flow(Tape *t, const Op *op, const Expr *e, int n, Value *reaches, Value *acc,
                 const Expr *chosen) {
    Loads loads = {.arena = t->g->arena};
    ex_visit(t->g->arena, e, find_load, &loads);
    for (int i = 0; i < loads.list.n && !t->n->failed; i++) {
        const Expr *load = loads.list.items[i];
        if (!t->depends[op->in[load->k.i]->id]) continue;
        Derivative w = {.x = t->x, .leaf = load};
        w.done.arena = w.reached.arena = t->g->arena;
        Share s = {.op = op, .reaches = reaches, .acc = acc, .load = load, .n = n};
        op_extents(op, s.extent);
        s.factor = derive(&w, e);
        if (w.failed) {
            no_rule(t, op, "an operator that works on bits");
            return;
        }
        if (!s.factor) continue;
        s.when = reached(&w, e);
        if (chosen) s.when = ex_and(t->x, s.when, chosen);
        if (ex_is_const(s.when)) s.when = NULL;
        flow_share(t, &s);
    }
}

/* The reduced value itself, without post. */
static Value *reduced(Tape *t, const Op *op, const Expr *body, Combine combine) {
    const Value *out = op->out[0];
    Builder b = build(t->g, out->rank, out->shape);
    const Expr *to[MAX_RANK];
    Copy c = {&b, op, to, NULL};
    for (int k = 0; k < out->rank; k++) to[k] = ex_var(t->x, k);
    for (int k = 0; k < op->n_red; k++) to[out->rank + k] = build_red(&b, op->red[k]);
    return build_reduce(&b, (DType)body->dt, combine, copied(&c, body), NULL);
}

/* Sums reach all elements alike; the least and the greatest those that are equal to it, in equal
 * parts. */
static void flow_reduce(Tape *t, const Op *op, Value *reaches) {
    Exprs *x = t->x;
    const Value *out = op->out[0];
    DType dt = (DType)op->body->dt;
    bool extreme = op->combine == COMBINE_max || op->combine == COMBINE_min;
    if (op->combine == COMBINE_prod) {
        no_rule(t, op, "a product of many elements");
        return;
    }
    Value *acc = op->post->op == EX_acc ? op->out[0] : reduced(t, op, op->body, op->combine);
    flow(t, op, op->post, out->rank, reaches, acc, NULL);
    Derivative w = {.x = x, .leaf = ex_acc(x, dt)};
    w.done.arena = w.reached.arena = t->g->arena;
    const Expr *factor = derive(&w, op->post);
    if (w.failed) no_rule(t, op, "an operator that works on bits");
    if (!factor || t->n->failed || !dt_is_float(dt)) return;
    Builder b = build(t->g, out->rank, out->shape);
    const Expr *to[MAX_RANK];
    Copy c = {&b, op, to, acc};
    for (int k = 0; k < out->rank; k++) to[k] = ex_var(x, k);
    const Expr *e =
        ex_mul(x, ex_cast(x, dt, build_in(&b, reaches)), ex_cast(x, dt, copied(&c, factor)));
    const Expr *chosen = NULL;
    if (extreme) {
        chosen = ex_bin(x, EX_eq, op->body, ex_acc(x, dt));
        Builder counted = build(t->g, out->rank, out->shape);
        const Expr *at[MAX_RANK];
        Copy k = {&counted, op, at, acc};
        for (int i = 0; i < out->rank; i++) at[i] = ex_var(x, i);
        for (int i = 0; i < op->n_red; i++) at[out->rank + i] = build_red(&counted, op->red[i]);
        const Expr *one = ex_cast(x, dt, copied(&k, chosen));
        Value *count = build_reduce(&counted, dt, COMBINE_sum, one, NULL);
        e = ex_div(x, e, build_in(&b, count));
    }
    flow(t, op, op->body, out->rank + op->n_red, build_map(&b, dt, e), acc, chosen);
}

/* What was written over is lost; what was written had what reaches its place. */
static void flow_scatter(Tape *t, const Op *op, Value *reaches) {
    Exprs *x = t->x;
    Copy c;
    const Expr *to[MAX_RANK], *target[MAX_RANK];
    for (int k = 0; k < op->n_upd; k++) to[k] = ex_var(x, k);
    const int rank = op->out[0]->rank;
    if (op->combine != COMBINE_none && op->combine != COMBINE_sum) {
        no_rule(t, op, "which combines elements otherwise than by a sum");
        return;
    }
    Builder read = build(t->g, op->n_upd, op->upd);
    c = (Copy){&read, op, to, NULL};
    for (int i = 0; i < rank; i++) target[i] = copied(&c, op->target[i]);
    const Expr *e = build_load(&read, reaches, target), *zero = ex_num(x, reaches->dt, 0);
    if (op->guard) e = ex_select(x, copied(&c, op->guard), e, zero);
    flow(t, op, op->body, op->n_upd, build_map(&read, reaches->dt, e), NULL, op->guard);
    if (op->combine == COMBINE_none) {
        Builder write = build(t->g, op->n_upd, op->upd);
        c = (Copy){&write, op, to, NULL};
        for (int i = 0; i < rank; i++) target[i] = copied(&c, op->target[i]);
        const Expr *guard = op->guard ? copied(&c, op->guard) : NULL;
        reaches = build_scatter(&write, reaches, COMBINE_none, target, guard, zero);
    }
    add_gradient(t, op->in[0], reaches);
}

/* A running sum from the other end. */
static void flow_scan(Tape *t, const Op *op, Value *reaches) {
    const Value *out = op->out[0];
    if (op->combine != COMBINE_sum) {
        no_rule(t, op, "which combines elements otherwise than by a sum");
        return;
    }
    const Expr *at[MAX_RANK + 1] = {NULL};
    Builder b = build(t->g, out->rank, out->shape);
    for (int i = 0; i < out->rank; i++) at[i] = ex_var(t->x, i == op->axis ? out->rank : i);
    Value *sums = build_scan(&b, reaches->dt, COMBINE_sum, op->axis, op->exclusive, !op->reverse,
                             build_load(&b, reaches, at));
    for (int i = 0; i < out->rank; i++) at[i] = NULL;
    at[out->rank] = ex_var(t->x, op->axis);
    flow(t, op, ex_subst_vars(t->x, op->body, out->rank + 1, at), out->rank, sums, NULL, NULL);
}

static void flow_op(Tape *t, const Op *op) {
    const Value *out = op->out[0];
    Value *reaches = t->grad[out->id];
    bool varies = dims_vary(out->rank, out->dims);
    for (int i = 0; i < op->n_in; i++) varies |= dims_vary(op->in[i]->rank, op->in[i]->dims);
    if (varies) {
        no_rule(t, op, "whose dimensions vary");
        return;
    }
    switch (op->kind) {
    case OP_map:
        flow(t, op, op->body, out->rank, reaches, NULL, NULL);
        return;
    case OP_reduce:
        flow_reduce(t, op, reaches);
        return;
    case OP_reshape:
        add_gradient(t, op->in[0], g_reshape(t->g, reaches, op->in[0]->rank, op->in[0]->shape));
        return;
    case OP_scan:
        flow_scan(t, op, reaches);
        return;
    case OP_scatter:
        flow_scatter(t, op, reaches);
        return;
    case OP_loop:
        no_rule(t, op, "which repeats a graph");
        return;
    default:
        return;
    }
}

/* --- the node --------------------------------------------------------------------------------- */

/* The tensor of this name, which the node must be given as input i. */
static Value *need_given(Node *n, const char *name, int i) {
    Value *v = node_need(n, i);
    if (!v) return NULL;
    if (scope_value(n->scope, name) != v)
        unsupported(n, "input %d is not '%s': a gradient at other values than the graph's", i,
                    name);
    else if (value_is_const(v))
        unsupported(n, "a gradient by '%s', which is constant", name);
    else if (!dt_is_float(v->dt))
        invalid(n, E2006, "a gradient by '%s', of type %s", name, dt_name(v->dt));
    else
        return v;
    return NULL;
}

void import_gradient(Node *n) {
    Graph *g = n->g;
    int n_by = 0, n_fixed = 0;
    const char *const *by = attr_strs(n, "xs", &n_by);
    attr_strs(n, "zs", &n_fixed);
    const char *of = attr_str(n, "y", NULL);
    if (n->failed) return;
    if (!by || !of || n->n_in != n_by + n_fixed || n->n_out > n_by) {
        invalid(n, E2007, "%d names in xs, %d in zs, but %d inputs and %d outputs", n_by, n_fixed,
                n->n_in, n->n_out);
        return;
    }
    const Value *y = scope_value(n->scope, of);
    const Op *maker = g->first;
    while (y && maker && maker != y->def) maker = maker->next;
    if (!y || !maker || !dt_is_float(y->dt)) {
        invalid(n, E2001, "'%s' is no tensor of floats that this graph computes before", of);
        return;
    }
    Tape t = {.n = n, .g = g, .x = g->x};
    t.depends = ARENA_ARRAY(g->arena, g->n_values + 1, bool);
    t.grad = ARENA_ARRAY(g->arena, g->n_values + 1, Value *);
    Value **in = ARENA_ARRAY(g->arena, n_by + 1, Value *);
    for (int i = 0; i < n_by; i++) {
        in[i] = need_given(n, by[i], i);
        if (!in[i]) return;
        t.depends[in[i]->id] = true;
    }
    Op *last = g->last;
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_in; i++)
            for (int k = 0; k < op->n_out && t.depends[op->in[i]->id]; k++)
                t.depends[op->out[k]->id] = true;
    if (t.depends[y->id])
        t.grad[y->id] = g_expand(g, g_scalar(g, dt_reg(y->dt), 1), y->rank, y->shape);
    for (Op *op = last; op && !n->failed; op = op->prev)
        for (int k = 0; k < op->n_out && !n->failed; k++)
            if (t.grad[op->out[k]->id] && t.depends[op->out[k]->id]) {
                flow_op(&t, op);
                break;
            }
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        Value *grad = t.grad[in[i]->id];
        n->out[i] =
            grad ? g_cast(g, grad, in[i]->dt) : zeros(g, in[i]->dt, in[i]->rank, in[i]->shape);
    }
}
