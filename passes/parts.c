/* Dimensions that vary, as parts of those that they were joined to; see parts.h. */
#include "passes/parts.h"

#include "passes/inline.h"

typedef struct Symbols {
    const Graph *g;
    Op *op;     /* gets the symbols as inputs */
    bool known; /* they have values that are computed before */
} Symbols;

static const Expr *load_symbol(void *user, const Expr *e, const Expr *const *args) {
    Symbols *u = user;
    (void)args;
    int64_t k = e->k.i - DIM_VAR;
    Value *v = e->op == EX_var && k < u->g->symbols.n ? u->g->symbols.items[k] : NULL;
    int at = 0;
    while (at < u->op->n_in && u->op->in[at] != v) at++;
    if (!v || (at == u->op->n_in && !v->index)) {
        u->known = false;
        return e;
    }
    u->op->in[at] = v;
    if (at == u->op->n_in) u->op->n_in++;
    return ex_load(u->g->x, DT_i32, at, 0, NULL);
}

const Expr *load_symbols(const Graph *g, Op *op, const Expr *e) {
    Symbols u = {g, op, true};
    const int before = op->n_in;
    e = ex_rewrite(g->x, e, load_symbol, &u);
    if (u.known) return e;
    op->n_in = before;
    return NULL;
}

/* --- parts ------------------------------------------------------------------------------------ */

typedef struct Divisor {
    const Expr *place; /* what is divided */
    const Expr *by;    /* a divisor, of a remainder if there is any: that of the innermost part */
} Divisor;

static void find_divisor(void *user, const Expr *e) {
    Divisor *d = user;
    if ((e->op != EX_div && e->op != EX_rem) || e->arg[0] != d->place || e->arg[1]->vars) return;
    if (!d->by || e->op == EX_rem) d->by = e->arg[1];
}

int parts_of_coordinate(const Graph *g, const Op *op, int k, int64_t parts[MAX_RANK]) {
    Exprs *x = g->x;
    const Value *out = op->out[0];
    int64_t whole = out->dims[k], part;
    const Expr *place = ex_var(x, k);
    int n = 0;
    while (n < MAX_RANK - 1) {
        Divisor d = {place, NULL};
        ex_visit(g->arena, op->body, find_divisor, &d);
        if (!d.by || !dim_from_expr(x, symbols_of_loads(g, op, d.by), &part) || part == 1 ||
            !dim_divides(x, part, whole))
            break;
        parts[n++] = part;
        whole = dim_div(x, whole, part);
        place = ex_simplify(x, ex_div(x, place, d.by), out->rank, out->shape);
    }
    parts[n++] = whole;
    for (int i = 0; i < n / 2; i++) {
        part = parts[i];
        parts[i] = parts[n - 1 - i];
        parts[n - 1 - i] = part;
    }
    return n;
}

/* --- maps over them --------------------------------------------------------------------------- */

bool divide_coordinate(Exprs *x, Op *op, int k, int n, const int64_t *shape,
                       const Expr *const *extent, int first) {
    const Value *out = op->out[0];
    const Expr *place = ex_var(x, k);
    int outermost = n;
    for (int i = n - 1; i >= 0; i--)
        if (shape[i] != 1 || n == 1) outermost = i;
    for (int i = n - 1; i >= outermost; i--) {
        if (shape[i] == 1 && i > outermost) continue;
        const Expr *at = i == outermost ? place : ex_bin(x, EX_rem, place, extent[i]);
        at = ex_simplify(x, at, out->rank, out->shape);
        op->body = ex_replace(x, op->body, at, ex_var(x, first + i));
        if (i > outermost)
            place = ex_simplify(x, ex_div(x, place, extent[i]), out->rank, out->shape);
    }
    return !(ex_vars(op->body) >> k & 1);
}

const Op *by_coordinates(const Graph *g, const Op *op, const Expr **lies) {
    Exprs *x = g->x;
    Arena *arena = g->arena;
    const Value *flat = op->out[0];
    const Expr *to[2 * MAX_RANK] = {NULL}, *extent[MAX_RANK];
    int64_t dims[MAX_RANK], shape[MAX_RANK];
    int rank = 0;
    if (op->kind != OP_map || op->guard || flat->inside || flat->stacked || flat->gap || !x->dims)
        return NULL;
    Op *own = arena_copy(arena, op, sizeof *op);
    own->in = ARENA_ARRAY(arena, op->n_in + g->symbols.n, Value *);
    for (int i = 0; i < op->n_in; i++) own->in[i] = op->in[i];
    for (int k = 0; k < flat->rank; k++) {
        int64_t parts[MAX_RANK];
        const int first = rank;
        int n = flat->dense ? flat->dense_rank : 1;
        for (int i = 0; i < n; i++) parts[i] = flat->dense ? flat->dense[i] : flat->dims[k];
        if (!flat->dense && dim_varies(flat->dims[k])) n = parts_of_coordinate(g, own, k, parts);
        if (rank + n > MAX_RANK) return NULL;
        lies[k] = ex_i(x, 0);
        for (int i = 0; i < n; i++, rank++) {
            dims[rank] = parts[i];
            shape[rank] = dim_max(x, parts[i]);
            extent[rank] = load_symbols(g, own, dim_simplified(x, parts[i]));
            if (!extent[rank]) return NULL;
            lies[k] = ex_add(x, ex_mul(x, lies[k], extent[rank]), ex_var(x, rank));
        }
        if (shape_numel(n, shape + first) != flat->shape[k]) return NULL;
        const Expr *whole = load_symbols(g, own, dim_simplified(x, flat->dims[k]));
        if (n > 1 && whole) /* nothing beyond is stored, and parts end where memory does */
            own->body =
                ex_replace(x, own->body, ex_lt(x, ex_var(x, k), whole), ex_int(x, DT_bool, 1));
        if (!divide_coordinate(x, own, k, n, shape + first, extent + first, flat->rank + first))
            return NULL;
    }
    if (rank == flat->rank) return NULL;
    for (int i = 0; i < rank; i++) to[flat->rank + i] = ex_var(x, i);
    own->body = ex_subst_vars(x, own->body, flat->rank + rank, to);
    own->body = ex_simplify(x, own->body, rank, shape);
    Value *out = arena_copy(arena, flat, sizeof *flat);
    out->storage = op->out[0];
    out->rank = rank;
    out->dims = out->dense = arena_copy(arena, dims, sizeof dims);
    out->shape = arena_copy(arena, shape, sizeof shape);
    own->out = arena_copy(arena, &out, sizeof out);
    return own;
}
