/* Constants in the order in which a nest reads them: what `pack` of nest.h does.
 *
 * A constant that the body loads at one index becomes one of rank 1 that has an element for each
 * iteration of the loops which that index depends on. Only what is small is laid out here; of
 * others it is said how (ir/constant.h), and whoever writes the weights does it.
 */
#include "ir/constant.h"
#include "passes/nest.h"

_Static_assert(NEST_MAX_LOOPS <= PACKED_LOOPS && NEST_MAX_LOOPS * 2 <= PACKED_VARS,
               "constants know all loops and variables of a nest");

typedef struct LoadIndex {
    int source;        /* input of the op */
    const Expr *index; /* its flat index; NULL: not loaded */
    bool many;         /* loaded at several indices */
} LoadIndex;

static void find_load(void *user, const Expr *e) {
    LoadIndex *u = user;
    if (e->op != EX_load || e->k.i != u->source) return;
    u->many |= u->index && u->index != e->arg[0];
    u->index = e->arg[0];
}

static void find_unknown(void *user, const Expr *e) {
    bool *found = user;
    if (e->op == EX_load || e->op == EX_ctr) *found = true;
}

bool nest_can_pack(const Nest *n, int64_t source, const Expr *index) {
    bool unknown = false;
    ex_visit(n->p->arena, index, find_unknown, &unknown);
    return !unknown && value_is_const(n->op->in[source]);
}

typedef struct Redirect {
    Exprs *x;
    int source;
    const Expr *index;
} Redirect;

static const Expr *redirect_leaf(void *user, const Expr *e, const Expr *const *args) {
    Redirect *r = user;
    if (e->op != EX_load) return e;
    return e->k.i == r->source ? ex_load(r->x, (DType)e->dt, r->source, 1, &r->index)
                               : ex_rebuild(r->x, e, args);
}

/* The loops that an index depends on, outermost first. */
typedef struct Order {
    int n, even; /* from number `even` on the index grows evenly */
    int var[NEST_MAX_LOOPS];
    int64_t extent[NEST_MAX_LOOPS], stride[NEST_MAX_LOOPS];
    int64_t total; /* iterations of all of them */
} Order;

/* False if they have too many iterations for a constant of `numel` elements. */
static bool find_order(const Nest *n, const Expr *index, int64_t numel, Order *o) {
    *o = (Order){.total = 1};
    for (int i = 0; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        bool even = ex_stride(index, l->var, &o->stride[o->n]);
        if ((even && o->stride[o->n] == 0) || l->extent == 1) continue;
        o->var[o->n] = l->var;
        o->extent[o->n++] = l->extent;
        if (!even) o->even = o->n;
        o->total *= l->extent;
        if (o->total > 2 * numel + 1024) return false;
    }
    return true;
}

/* Are the elements read one after the other as they are? */
static bool in_order(const Order *o) {
    int64_t dense = 1;
    for (int i = o->n - 1; i >= 0; i--) {
        if (o->stride[i] != dense) return false;
        dense *= o->extent[i];
    }
    return o->even == 0;
}

/* Lays constant input `source` out in the order in which the loops read it. Returns the body that
 * reads the new layout. */
static const Expr *pack_input(Nest *n, const Kernel *k, int source, const Expr *body,
                              Value **args) {
    Exprs *x = n->x;
    Arena *arena = n->p->arena;
    const Value *v = n->op->in[source];
    LoadIndex u = {.source = source};
    Order o;
    ex_visit(arena, body, find_load, &u);
    if (!u.index || u.many) return body;
    if (!nest_can_pack(n, source, u.index) || !find_order(n, u.index, value_numel(v), &o) ||
        in_order(&o))
        return body;
    int64_t *extent = ARENA_ARRAY(arena, k->vars.n + 1, int64_t);
    const Expr *index = ex_i(x, 0);
    for (int i = 0; i < k->vars.n; i++) extent[i] = k->vars.items[i].extent;
    for (int i = 0; i < o.n; i++)
        index = ex_add(x, ex_mul(x, index, ex_i(x, o.extent[i])), ex_var(x, o.var[i]));
    Packed packed = {.from = v,
                     .index = u.index,
                     .n = o.n,
                     .even = o.even,
                     .var = o.var,
                     .extent = o.extent,
                     .stride = o.stride};
    args[source] = constant_packed(n->p->graph, v->dt, o.total, &packed);
    Redirect r = {x, source, ex_simplify(x, index, k->vars.n, extent)};
    return ex_rewrite(x, body, redirect_leaf, &r);
}

const Expr *nest_pack_constants(Nest *n, const Kernel *k, const Expr *body, Value **args) {
    for (int i = 0; i < n->op->n_in; i++) {
        LoadIndex post = {.source = i}; /* what post reads too must keep its layout */
        if (n->op->post) ex_visit(n->p->arena, n->op->post, find_load, &post);
        if (value_is_const(n->op->in[i]) && !post.index) body = pack_input(n, k, i, body, args);
    }
    return body;
}
