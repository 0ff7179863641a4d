/* From a scheduled loop nest to a kernel; see nest.h.
 *
 * Every parameter is a buffer of one dimension: loads are flattened row-major before they are
 * simplified, so that divisions that take an index apart meet the products that put it together.
 */
#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/nest_build.h"

#include <float.h>
#include <math.h>
#include <string.h>

const Expr *nest_simplify(Build *b, const Expr *e) {
    return ex_simplify(b->x, e, b->k->vars.n, b->extent);
}

static const Expr *flat_index(Exprs *x, const Value *v, const Expr *const *index) {
    const Expr *at[MAX_RANK], *flat = ex_i(x, 0);
    for (int i = 0; i < v->rank; i++) at[i] = index[i];
    for (; v->inside; v = v->inside)
        for (int i = 0; i < v->rank; i++) at[i] = ex_add(x, at[i], ex_i(x, v->origin[i]));
    for (int i = 0; i < v->rank; i++) {
        int64_t extent = i == v->rank - 1 ? value_pitch(v) : v->shape[i];
        flat = ex_add(x, ex_mul(x, flat, ex_i(x, extent)), at[i]);
    }
    if (v->stacked)
        flat = ex_add(x, ex_mul(x, ex_ctr(x, v->stacked - 1), ex_i(x, value_numel(v))), flat);
    return flat;
}

typedef struct Flatten {
    Exprs *x;
    const Op *op;
} Flatten;

static const Expr *flatten_leaf(void *user, const Expr *e, const Expr *const *args) {
    Flatten *f = user;
    if (e->op != EX_load) return e;
    const Expr *flat = flat_index(f->x, f->op->in[e->k.i], args);
    return ex_load(f->x, (DType)e->dt, (int)e->k.i, 1, &flat);
}

const Expr *nest_flatten_loads(Exprs *x, const Expr *e, const Op *op) {
    Flatten f = {x, op};
    return ex_rewrite(x, e, flatten_leaf, &f);
}

/* Where the result's element at these coordinates lies. */
static const Expr *output_index(const Nest *n, const Expr *const *at) {
    const Expr *place[MAX_RANK];
    if (!n->flat) return flat_index(n->x, n->op->out[0], at);
    for (int i = 0; i < n->flat->rank; i++)
        place[i] = ex_subst_vars(n->x, n->lies[i], n->op->out[0]->rank, at);
    return flat_index(n->x, n->flat, place);
}

const Expr *nest_output_index(const Nest *n) {
    const Expr *own[MAX_RANK];
    if (n->op->kind == OP_scatter) return NULL;
    for (int i = 0; i < n->op->out[0]->rank; i++) own[i] = ex_var(n->x, i);
    return output_index(n, own);
}

const Expr *nest_body(const Nest *n) {
    int64_t extent[NEST_MAX_LOOPS];
    for (int i = 0; i < n->n_loops; i++) extent[i] = n->loop[i].extent;
    const Expr *e = nest_flatten_loads(n->x, n->op->body, n->op);
    e = ex_subst_vars(n->x, e, n->n_coords, n->coord);
    return ex_simplify(n->x, e, n->n_loops, extent);
}

static const Expr *rewrite_leaf(void *user, const Expr *e, const Expr *const *args) {
    Build *b = user;
    switch ((ExprOp)e->op) {
    case EX_var:
        return b->coord[e->k.i];
    case EX_acc:
        return b->acc;
    case EX_load: {
        const Expr *flat = flat_index(b->x, b->n->op->in[e->k.i], args);
        return ex_load(b->x, (DType)e->dt, (int)e->k.i, 1, &flat);
    }
    default:
        return e;
    }
}

const Expr *nest_rewrite(Build *b, const Expr *e) {
    return nest_simplify(b, ex_rewrite(b->x, e, rewrite_leaf, b));
}

int nest_add_var(Build *b, const char *name, int64_t extent) {
    int var = kernel_var(b->p, b->k, name, DT_i32, extent);
    b->extent[var] = extent;
    return var;
}

/* --- statements ------------------------------------------------------------------------------- */

Stmt *nest_new_for(Build *b, int var, int64_t extent, Role role) {
    Stmt *s = stmt_new(b->p, ST_for);
    s->var = var;
    s->role = role;
    s->extent = ex_i(b->x, extent);
    return s;
}

Stmt *nest_new_store(Build *b, int buffer, const Expr *index, const Expr *value) {
    Stmt *s = stmt_new(b->p, ST_store);
    s->buffer = buffer;
    s->index = ARENA_ARRAY(b->p->arena, 1, const Expr *);
    s->index[0] = nest_simplify(b, index);
    s->value = nest_simplify(b, value);
    return s;
}

static Stmt *store_acc(Build *b, const Expr *at, const Expr *value) {
    const DType held = b->k->buffers.items[b->acc_buffer]->dt;
    return nest_new_store(b, b->acc_buffer, at, ex_cast(b->x, held, value));
}

Stmt *nest_new_if(Build *b, const Expr *cond, Stmt *body) {
    if (!cond || ex_is_int(cond, 1)) return body;
    Stmt *s = stmt_new(b->p, ST_if);
    s->value = cond;
    s->body = body;
    return s;
}

Stmt *nest_new_alloc(Build *b, int buffer) {
    Stmt *s = stmt_new(b->p, ST_alloc);
    s->buffer = buffer;
    return s;
}

/* The iterations of a loop in a run. */
const Expr *nest_extent_of(Build *b, int loop) {
    return b->until[loop] ? b->until[loop] : ex_i(b->x, b->n->loop[loop].extent);
}

const Expr *nest_in_loops(Build *b, const Expr *e) {
    return nest_simplify(b, ex_subst_vars(b->x, e, NEST_MAX_LOOPS, b->loop_var));
}

void nest_number_to_vars(Build *b, int count, const int *loops, const Expr *number,
                         const Expr **to) {
    int first = 0; /* of more iterations than one */
    while (first < count - 1 && b->n->loop[loops[first]].extent == 1) first++;
    for (int i = count - 1; i >= first; i--) {
        const Expr *extent = nest_extent_of(b, loops[i]);
        to[b->n->loop[loops[i]].var] = i > first ? ex_bin(b->x, EX_rem, number, extent) : number;
        number = ex_div(b->x, number, extent);
    }
    for (int i = 0; i < first; i++) to[b->n->loop[loops[i]].var] = ex_i(b->x, 0);
}

/* Statements that compute them. */
static Stmt *take_apart(Build *b, int count, const int *loops, const Expr *number) {
    const Expr *to[MAX_VARS] = {0};
    Stmt *list = NULL;
    nest_number_to_vars(b, count, loops, number, to);
    for (int i = count - 1; i >= 0; i--) {
        Stmt *let = stmt_new(b->p, ST_let);
        let->var = b->n->loop[loops[i]].var;
        let->value = to[let->var];
        stmt_append(&list, let);
    }
    return list;
}

/* Of `count` loops number `at` and those inside of it that are bound to the same threads; 0: one
 * around it is, too. */
static int of_same_threads(const Nest *n, int count, const int *loops, int at, int *same) {
    const Role role = n->loop[loops[at]].role;
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (i != at && (!is_thread(role) || n->loop[loops[i]].role != role)) continue;
        if (i < at) return 0;
        same[found++] = loops[i];
    }
    return found;
}

bool nest_has_unit(const Nest *n) {
    for (int i = 0; i < n->n_order; i++)
        if (n->loop[n->order[i]].role == ROLE_tile) return true;
    return false;
}

Stmt *nest_wrap(Build *b, int count, const int *loops, Stmt *body) {
    for (int i = count - 1; i >= 0; i--) {
        const NestLoop *l = &b->n->loop[loops[i]];
        int same[NEST_MAX_LOOPS];
        const int joined = of_same_threads(b->n, count, loops, i, same);
        body = nest_new_if(b, b->inside[loops[i]], body);
        if (!joined) continue;
        Stmt *s = nest_new_for(b, l->var, l->extent, l->role), *list = NULL;
        s->extent = nest_extent_of(b, loops[i]);
        if (joined > 1) {
            const int64_t threads = b->k->block[l->role - ROLE_thread_x];
            s->var = nest_add_var(b, "threads", threads);
            s->extent = ex_i(b->x, threads);
            list = take_apart(b, joined, same, ex_var(b->x, s->var));
        }
        stmt_append(&list, body);
        s->body = list;
        body = s;
    }
    return body;
}

/* Wraps `body` in the first `count` loops of the order, those that are shared as one parallel loop,
 * from whose variable theirs are computed. */
static Stmt *wrap_outer(Build *b, int count, Stmt *body) {
    Nest *n = b->n;
    int share = n->share < count ? n->share : count;
    body = nest_wrap(b, count - share, n->order + share, body);
    if (share <= 1) {
        body = nest_wrap(b, share, n->order, body);
        if (share) body->role = ROLE_parallel;
        return body;
    }
    int64_t total = 1;
    for (int i = 0; i < share; i++) total *= n->loop[n->order[i]].extent;
    int all = nest_add_var(b, "part", total);
    const Expr *iterations = ex_i(b->x, 1);
    Stmt *list = take_apart(b, share, n->order, ex_var(b->x, all));
    Stmt *loop = nest_new_for(b, all, total, ROLE_parallel);
    for (int i = share - 1; i >= 0; i--) {
        body = nest_new_if(b, b->inside[n->order[i]], body);
        iterations = ex_mul(b->x, iterations, nest_extent_of(b, n->order[i]));
    }
    loop->extent = iterations;
    stmt_append(&list, body);
    loop->body = list;
    return loop;
}

/* --- dimensions that vary --------------------------------------------------------------------- */

static const Expr *both_hold(Exprs *x, const Expr *a, const Expr *b) {
    return a && b ? ex_and(x, a, b) : a ? a : b;
}

/* The position in the order of the innermost of the first `count` loops that `e` depends on; -1:
 * none. */
static int last_loop(const Build *b, const Expr *e, int count) {
    int last = -1;
    for (int i = 0; i < count; i++)
        if (ex_depends(e, b->n->loop[b->n->order[i]].var)) last = i;
    return last;
}

/* Does `e` never fall where a variable grows? */
static bool never_falls(const Expr *e) {
    switch ((ExprOp)e->op) {
    case EX_var:
    case EX_const:
        return true;
    case EX_add:
    case EX_min:
    case EX_max:
        return never_falls(e->arg[0]) && never_falls(e->arg[1]);
    case EX_mul:
    case EX_div:
        return ex_is_const(e->arg[1]) && e->arg[1]->k.i > 0 && never_falls(e->arg[0]);
    default:
        return false;
    }
}

/* The coordinate `at` in the first iteration of all loops but the first `count` outside of the
 * tile, which are serial or blocks. `first`: how many loops there are outside of it. */
static const Expr *begin_within(Build *b, const Expr *at, int count, int first) {
    Nest *n = b->n;
    const Expr *to[MAX_VARS] = {0};
    for (int i = 0; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        bool outside = i < first && (l->role == ROLE_serial ||
                                     (l->role >= ROLE_block_x && l->role <= ROLE_block_z));
        if (i >= count || !outside) to[l->var] = ex_i(b->x, 0);
    }
    return nest_simplify(b, ex_subst_vars(b->x, at, b->k->vars.n, to));
}

/* How often a loop runs until `at`, its variable times a step, as far as the last tile begins, or
 * a quotient of that, comes to `rest`; NULL if it is something else. *whole: how far all of the
 * loop comes. */
static const Expr *count_to(Build *b, const Expr *at, const NestLoop *l, const Expr *rest,
                            int64_t *whole) {
    Exprs *x = b->x;
    int64_t step = 1, by = 1;
    if (at->op == EX_div && ex_is_const(at->arg[1])) {
        by = at->arg[1]->k.i;
        at = at->arg[0];
    }
    if (at->op == EX_min && ex_is_const(at->arg[1])) at = at->arg[0];
    if (at->op == EX_mul && ex_is_const(at->arg[1])) {
        step = at->arg[1]->k.i;
        at = at->arg[0];
    }
    if (at != ex_var(x, l->var) || step < 1 || by < 1) return NULL;
    *whole = l->extent * step / by;
    rest = ex_mul(x, rest, ex_i(x, by));
    return ex_div(x, ex_add(x, rest, ex_i(x, step - 1)), ex_i(x, step));
}

/* `limit`, which has no variables, of a coordinate: not beyond its extent, whatever a run loads. */
static const Expr *end_of(Build *b, const Expr *limit, int64_t extent) {
    int64_t low, high;
    if (kernel_bounds(b->k, b->x, limit, &low, &high) && high <= extent) return limit;
    return ex_bin(b->x, EX_min, limit, ex_i(b->x, extent));
}

/* How often loop `l` runs until coordinate `d`, which is `at` in it and was `before` in the loops
 * outside (below the limit), comes to its limit; NULL if that cannot be said, or the loop is not
 * all of the coordinate. */
static const Expr *iterations(Build *b, const Expr *at, const Expr *before, const NestLoop *l,
                              int d) {
    Exprs *x = b->x;
    const Expr *limit = b->n->limit[d];
    int64_t whole;
    if (!before) {
        const Expr *count = count_to(b, at, l, limit, &whole);
        int64_t extent[MAX_RANK];
        op_extents(b->n->op, extent);
        if (!count || whole < extent[d]) return NULL;
        /* a guard of updates may allow more of them than there are */
        return b->n->op->kind == OP_scatter ? end_of(b, count, l->extent) : count;
    }
    at = nest_simplify(b, ex_sub(x, at, before));
    const Expr *count = count_to(b, at, l, ex_sub(x, limit, before), &whole);
    return count ? ex_bin(x, EX_min, count, ex_i(x, l->extent)) : NULL;
}

/* Is `at` below the limit wherever `before` is? */
static bool ends_together(Build *b, const Expr *before, const Expr *at, const Expr *limit) {
    int64_t low, high;
    return ex_bounds(nest_simplify(b, ex_sub(b->x, at, before)), b->k->vars.n, b->extent, &low,
                     &high) &&
           low >= 0 && ex_is_multiple(before, high + 1) && ex_is_multiple(limit, high + 1);
}

/* Work that lies beyond how far a coordinate goes is left out, at every loop of it outside of the
 * tile: of the outermost loop, of those that are shared with it, of a map's innermost one, and of
 * all of a scan or scatter by its extent, else by a condition. `first`: loops outside of the tile.
 */
static void apply_limits(Build *b, int first) {
    Nest *n = b->n;
    for (int d = 0; d < MAX_RANK; d++) {
        const Expr *before = NULL;
        if (!n->limit[d] || !never_falls(b->coord[d])) continue;
        for (int i = 0; i < first; i++) {
            int loop = n->order[i];
            const Expr *at = begin_within(b, b->coord[d], i + 1, first), *until = NULL;
            if (!ex_depends(at, n->loop[loop].var)) continue;
            const Expr *inside = ex_lt(b->x, at, n->limit[d]);
            if (at == b->coord[d]) b->holds[d] = inside;
            if (before && ends_together(b, before, at, n->limit[d])) continue;
            const bool single = b->single && loop == b->single_outer;
            bool by_extent = i == 0 || single || n->op->kind == OP_scatter ||
                             n->op->kind == OP_scan || (i < n->share && !before) ||
                             (n->op->kind == OP_map && i == n->n_order - 1 && n->share <= i);
            if (!b->until[loop] && n->loop[loop].role == ROLE_serial)
                until = b->count[loop] = iterations(b, at, before, &n->loop[loop], d);
            if (single) {
                b->stands_back = true;
                if (until && by_extent)
                    until = ex_select(b->x, b->single, until, ex_i(b->x, 0));
                else
                    inside = ex_and(b->x, b->single, inside);
            }
            if (until && by_extent)
                b->until[loop] = until;
            else
                b->inside[loop] = both_hold(b->x, b->inside[loop], inside);
            before = at;
        }
    }
}

/* `e` without the conditions that hold wherever it is computed. */
static const Expr *without_limits(Build *b, const Expr *e) {
    for (int d = 0; d < MAX_RANK; d++)
        if (b->holds[d]) e = ex_replace(b->x, e, b->holds[d], ex_int(b->x, DT_bool, 1));
    return nest_simplify(b, e);
}

/* --- reductions ------------------------------------------------------------------------------- */

const Expr *nest_tile_index(Build *b, int count) {
    const Expr *index = ex_i(b->x, 0);
    for (int i = 0; i < count; i++)
        index = ex_add(b->x, ex_mul(b->x, index, ex_i(b->x, b->n->loop[b->tile[i]].extent)),
                       b->loop_var[b->tile[i]]);
    return nest_simplify(b, index);
}

Stmt *nest_store_output(Build *b, const Expr *value) {
    const Expr *flat = output_index(b->n, b->coord);
    return nest_new_if(b, b->guard[0], nest_new_store(b, b->n->op->n_in, flat, value));
}

/* Has the innermost serial loop of the reduction that says where `part` of its guard begins to
 * hold no more end there; true if there is one and the loop says all. */
static bool ends_loop(Build *b, const Expr *part, int first) {
    Nest *n = b->n;
    if (part->op != EX_lt) return false;
    for (int i = n->n_order - 1; i >= first; i--) {
        int loop = n->order[i];
        const NestLoop *l = &n->loop[loop];
        if (l->role != ROLE_serial || !ex_depends(part->arg[0], l->var)) continue;
        const Expr *at = begin_within(b, part->arg[0], i + 1, n->n_order);
        int64_t step, low, high;
        if (b->until[loop] || !ex_bounds(part->arg[0], b->k->vars.n, b->extent, &low, &high))
            return false;
        const Expr *until = count_to(b, at, l, end_of(b, part->arg[1], high + 1), &step);
        if (!until || l->extent * step <= high) return false;
        b->until[loop] = until;
        return at == part->arg[0];
    }
    return false;
}

/* Parts of the reduction's guard that read how far a dimension goes become ends of the reduction's
 * loops, or conditions in them, from position `first` of the order on, where these know enough; in
 * vectors and what is unrolled they stay. Returns those that are known before: there is nothing to
 * be added up unless they hold. */
static const Expr *guards_to_loops(Build *b, int first) {
    Nest *n = b->n;
    const Expr *left = NULL, *around = NULL, *rest = b->guard[1];
    while (rest) {
        const Expr *part = rest->op == EX_and ? rest->arg[1] : rest;
        rest = rest->op == EX_and ? rest->arg[0] : NULL;
        while (part->op == EX_and) {
            rest = both_hold(b->x, rest, part->arg[0]);
            part = part->arg[1];
        }
        int at = last_loop(b, part, n->n_order);
        bool known = at >= 0 && part->loads;
        if (known && ends_loop(b, part, first)) continue;
        bool plain = known && n->loop[n->order[at]].role == ROLE_serial;
        const Expr **to = !plain ? &left : at < first ? &around : &b->inside[n->order[at]];
        *to = both_hold(b->x, *to, part);
    }
    b->guard[1] = left;
    return around;
}

/* The least, or the greatest, that `e` is in a tile; NULL: that cannot be said. */
static const Expr *extreme(Build *b, const Expr *e, bool least) {
    const Expr *to[MAX_VARS] = {0};
    for (int i = 0; i < b->n_tile; i++) {
        const NestLoop *l = &b->n->loop[b->tile[i]];
        int64_t step;
        if (!ex_stride(e, l->var, &step)) return NULL;
        to[l->var] = ex_i(b->x, (step > 0) == least ? 0 : l->extent - 1);
    }
    return nest_simplify(b, ex_subst_vars(b->x, e, b->k->vars.n, to));
}

/* Has the innermost serial loop that `part` of the nest's reach bounds end where it holds for no
 * element of a tile any more. */
static void end_beyond_reach(Build *b, const Expr *part, int first) {
    Nest *n = b->n;
    Exprs *x = b->x;
    if (part->op == EX_and) {
        for (int i = 0; i < 2; i++) end_beyond_reach(b, part->arg[i], first);
        return;
    }
    if (part->op != EX_lt && part->op != EX_le) return; /* it holds everywhere */
    const Expr *end = extreme(b, part->arg[1], false);
    if (!end) return;
    if (part->op == EX_le) end = ex_add(x, end, ex_i(x, 1));
    for (int i = first; i < n->n_order; i++)
        if (ex_depends(end, n->loop[n->order[i]].var)) return;
    for (int i = n->n_order - 1; i >= first; i--) {
        const int loop = n->order[i];
        const NestLoop *l = &n->loop[loop];
        int64_t whole;
        if (l->role != ROLE_serial || !ex_depends(part->arg[0], l->var)) continue;
        const Expr *at = begin_within(b, part->arg[0], i + 1, n->n_order);
        const Expr *until = count_to(b, at, l, ex_bin(x, EX_max, end, ex_i(x, 0)), &whole);
        if (until)
            b->until[loop] = nest_simplify(b, ex_bin(x, EX_min, until, nest_extent_of(b, loop)));
        return;
    }
}

/* How far from zero a factor of a product of integers may be; infinite: not known. */
static double most_of(const Expr *e) {
    if (ex_is_const(e)) return fabs((double)e->k.i);
    if (e->op == EX_band && ex_is_const(e->arg[1]) && e->arg[1]->k.i >= 0)
        return (double)e->arg[1]->k.i;
    if (e->op != EX_cast || e->arg[0]->op != EX_load || !dt_is_byte((DType)e->arg[0]->dt))
        return HUGE_VAL;
    return e->arg[0]->dt == DT_u8 ? 255 : 128;
}

/* Do so many products fit into an i32 together? */
static bool sum_fits(const Expr *e, int64_t times) {
    return e->dt == DT_i32 && e->op == EX_mul &&
           most_of(e->arg[0]) * most_of(e->arg[1]) * (double)times <= INT32_MAX;
}

PartialSum nest_partial_sum(Exprs *x, const Expr *e, uint64_t inside, int64_t times) {
    PartialSum part = {NULL, NULL};
    const bool floats = dt_is_float((DType)e->dt);
    for (int i = 0; i < 2 && floats && (e->op == EX_mul || (e->op == EX_sub && i == 0)); i++) {
        const Expr *other = e->arg[1 - i];
        if (ex_vars(other) & inside) continue;
        part = nest_partial_sum(x, e->arg[i], inside, times);
        if (e->op == EX_sub) other = ex_mul(x, other, ex_num(x, (DType)e->dt, (double)times));
        part.body = ex_bin(x, (ExprOp)e->op, i ? other : part.body, i ? part.body : other);
        return part;
    }
    part.term = e;
    if (e->op == EX_cast && floats && sum_fits(e->arg[0], times)) part.term = e->arg[0];
    part.body = ex_cast(x, (DType)e->dt, ex_acc(x, (DType)part.term->dt));
    return part;
}

/* The reduction loops of sums in two steps: those inside of n->partial_loop begin with a tile of
 * zeros and add to it. NULL: the body is not made of such. */
static Stmt *partial_loops(Build *b, int count, const int *loops, const Expr *at,
                           const Expr *body) {
    Nest *n = b->n;
    Exprs *x = b->x;
    uint64_t inside = 0;
    int64_t times = 1, size = 1;
    int outside = 0;
    while (outside < count && loops[outside] != n->partial_loop)
        if (!n->loop[loops[outside++]].reduce) return NULL;
    for (int i = ++outside; i < count; i++) {
        const NestLoop *l = &n->loop[loops[i]];
        if (!l->reduce) continue;
        if (l->var >= EX_OTHER_VARS ||
            (l->role != ROLE_serial && l->role != ROLE_unroll && l->role != ROLE_short))
            return NULL;
        inside |= UINT64_C(1) << l->var;
        times *= l->extent;
    }
    for (int i = 0; i < b->n_tile; i++) size *= n->loop[b->tile[i]].extent;
    const PartialSum part = nest_partial_sum(x, body, inside, times);
    if (outside > count || part.term == body) return NULL;
    const DType dt = (DType)part.term->dt;
    const int buffer = kernel_buffer(b->p, b->k, "partial", SPACE_reg, dt, 1, &size);
    const Expr *sum = ex_load(x, dt, buffer, 1, &at);
    const Expr *whole = ex_replace(x, part.body, ex_acc(x, dt), sum);
    Stmt *list = nest_new_alloc(b, buffer);
    stmt_append(&list,
                nest_wrap(b, b->n_tile, b->tile, nest_new_store(b, buffer, at, ex_num(x, dt, 0))));
    stmt_append(&list, nest_wrap(b, count - outside, loops + outside,
                                 nest_new_store(b, buffer, at, ex_add(x, sum, part.term))));
    stmt_append(&list, nest_wrap(b, b->n_tile, b->tile,
                                 nest_new_store(b, b->acc_buffer, at, ex_add(x, b->acc, whole))));
    return nest_wrap(b, outside, loops, list);
}

/* The reduction loops from position `first` of the order on, around the accumulation of `body`;
 * with staged factors, their loads and barriers at the top of the staging loop. */
static Stmt *reduction_loops(Build *b, int first, const Expr *at, const Expr *body,
                             const Expr *identity) {
    Nest *n = b->n;
    int serial[NEST_MAX_LOOPS], count = 0, stage_at = -1;
    for (int i = 0; i < n->n_order; i++) {
        bool here = n->order[i] == n->stage_loop[0] || n->order[i] == n->stage_loop[1];
        if (here && i >= first && body->op == EX_mul) stage_at = i;
        if (i >= first && !is_thread(n->loop[n->order[i]].role)) serial[count++] = n->order[i];
    }
    Staged staged[2];
    int n_staged = 0;
    const Expr *around = stage_at < 0 ? guards_to_loops(b, first) : NULL;
    if (n->reach && stage_at < 0 && !n->target->blocks && !nest_has_unit(n))
        end_beyond_reach(b, nest_in_loops(b, n->reach), first);
    const Expr *inside = both_hold(b->x, b->guard[0], b->guard[1]);
    if (stage_at >= 0) {
        body = nest_stage_factors(b, body, stage_at, staged, &n_staged);
    } else if (inside) {
        body = ex_select(b->x, inside, body, identity);
    }
    if (n->partial_loop >= 0 && n->op->combine == COMBINE_sum && n->lane_loop < 0 &&
        !(n->stream_loop >= 0 && n->loop[n->stream_loop].reduce) && !n->target->blocks && !inside &&
        !around && stage_at < 0) {
        Stmt *loops = partial_loops(b, count, serial, at, body);
        if (loops) return loops;
    }
    Stmt *update = store_acc(b, at, ex_bin(b->x, combine_expr(n->op->combine), b->acc, body));
    if (stage_at < 0) {
        int depth = 0; /* reduction loops around the tile */
        while (depth < count && n->loop[serial[depth]].reduce && serial[depth] != n->lane_loop &&
               serial[depth] != n->stream_loop && n->loop[serial[depth]].role != ROLE_short &&
               n->loop[serial[depth]].role != ROLE_repeat)
            depth++;
        Stmt *list = NULL;
        bool unit = depth > 0 && n->loop[serial[depth - 1]].role == ROLE_tile;
        if (unit) depth--; /* hints do not go into the tile */
        if (n->pack && n->target->vector_types)
            list = nest_fetch_ahead(n, b->k, body, b->args, b->count, first, first + depth, unit);
        stmt_append(&list, nest_wrap(b, count - depth, serial + depth, update));
        return nest_new_if(b, around, nest_wrap(b, depth, serial, list));
    }
    int outside = stage_at + 1 - first;
    update = nest_wrap(b, count - outside, serial + outside, update);
    return nest_staged_loops(b, n_staged, staged, outside, serial, update);
}

typedef struct AccUses {
    int count;       /* of the reduced value */
    const Expr *sum; /* what adds something to it */
} AccUses;

static void find_acc(void *user, const Expr *e) {
    AccUses *u = user;
    for (int i = 0; i < e->n; i++) {
        if (e->arg[i]->op != EX_acc) continue;
        u->count++;
        if (e->op == EX_add) u->sum = e;
    }
}

/* What a sum may start with: `identity`, or, of integers, what is added to the result anyway. Then
 * *post is without it. */
static const Expr *first_value(Build *b, const Expr *identity, const Expr **post) {
    const Nest *n = b->n;
    AccUses u = {0};
    if (n->op->combine != COMBINE_sum || dt_is_float((DType)identity->dt) || b->guard[0] ||
        n->target->blocks || n->lane_loop >= 0 || nest_has_unit(n)) /* a unit begins with zeros */
        return identity;
    ex_visit(b->p->arena, *post, find_acc, &u);
    if (u.count != 1 || !u.sum) return identity;
    bool left = u.sum->arg[0]->op == EX_acc;
    *post = ex_replace(b->x, *post, u.sum, u.sum->arg[!left]);
    return nest_rewrite(b, u.sum->arg[left]);
}

/* Hints for what a tile of vectors reads beside its sums. */
static Stmt *fetch_beside(Build *b, const Stmt *store) {
    Nest *n = b->n;
    if (!n->target->vector_types || b->n_tile != 2) return NULL;
    const NestLoop *row = &n->loop[b->tile[0]], *column = &n->loop[b->tile[1]];
    if (row->role != ROLE_unroll || column->role != ROLE_vector) return NULL;
    const Part tile = {store, -1, row->var, column->var, 0, row->extent, column->extent};
    return nest_fetch_residual(n, b->k, b->args, &tile);
}

/* Holds where `cond` does for some element of a tile, and perhaps elsewhere. */
static const Expr *holds_somewhere(Build *b, const Expr *cond) {
    Exprs *x = b->x;
    if (cond->op == EX_and)
        return ex_and(x, holds_somewhere(b, cond->arg[0]), holds_somewhere(b, cond->arg[1]));
    if (cond->op == EX_lt || cond->op == EX_le) {
        const Expr *left = extreme(b, cond->arg[0], true), *right = extreme(b, cond->arg[1], false);
        if (left && right) return cond->op == EX_lt ? ex_lt(x, left, right) : ex_le(x, left, right);
    }
    return ex_int(x, DT_bool, 1);
}

static void note_acc(void *user, const Expr *e) {
    *(bool *)user |= e->op == EX_acc;
}

/* Of tiles whose sums nobody asks for (scores of queries with later keys) nothing is summed up. */
static void skip_unasked(Build *b, int first) {
    Nest *n = b->n;
    const Expr *post = n->op->post;
    const int loop = first < n->n_order ? n->order[first] : -1;
    bool uses = false; /* outside of what is asked for */
    if (post->op != EX_select || loop < 0 || n->loop[loop].role != ROLE_serial ||
        n->target->blocks || nest_has_unit(n) || n->lane_loop >= 0 || n->partial_loop >= 0 ||
        n->guard[0] || n->guard[1] || b->until[loop])
        return;
    ex_visit(b->p->arena, post->arg[0], note_acc, &uses);
    ex_visit(b->p->arena, post->arg[2], note_acc, &uses);
    if (uses) return;
    const Expr *asked = nest_simplify(b, holds_somewhere(b, nest_rewrite(b, post->arg[0])));
    if (!asked->vars) return;
    b->until[loop] = ex_select(b->x, asked, ex_i(b->x, n->loop[loop].extent), ex_i(b->x, 0));
}

/* Takes `at < limit` out of the conditions that `e` is made of; NULL: nothing is left. */
static const Expr *take_limit(Exprs *x, const Expr *e, const Expr *at, const Expr **limit) {
    if (e->op == EX_and) {
        const Expr *first = take_limit(x, e->arg[0], at, limit);
        return both_hold(x, first, take_limit(x, e->arg[1], at, limit));
    }
    if (*limit || e->op != EX_lt || e->arg[0] != at || e->arg[1]->vars) return e;
    *limit = e->arg[1];
    return NULL;
}

/* How far the coordinate goes that lanes run along becomes the end of the loop over whole vectors,
 * and what is left over is added behind it, in place of a condition in each lane. */
static void limit_lanes(Build *b) {
    Nest *n = b->n;
    Exprs *x = b->x;
    if (n->lane_loop < 0 || n->pack || !n->guard[1]) return;
    const NestLoop *outer = &n->loop[n->lane_outer];
    const int64_t lanes = n->loop[n->lane_loop].extent;
    const Expr *begin = ex_mul(x, ex_var(x, n->lane_outer), ex_i(x, lanes)), *limit = NULL;
    b->tail_guard = take_limit(x, n->guard[1], ex_add(x, begin, ex_var(x, n->lane_loop)), &limit);
    if (!limit) return;
    b->lane_limit = end_of(b, limit, outer->extent * lanes + n->lane_tail);
    b->guard[1] = b->tail_guard ? nest_in_loops(b, b->tail_guard) : NULL;
    b->until[n->lane_outer] = nest_simplify(b, ex_div(x, b->lane_limit, ex_i(x, lanes)));
}

typedef struct Apart {
    int var;
    bool found; /* what does not lie side by side in the loop */
} Apart;

static void note_apart(void *user, const Expr *e) {
    Apart *u = user;
    int64_t stride;
    if (e->op != EX_load || !ex_depends(e, u->var)) return;
    u->found |= !ex_stride(e->arg[0], u->var, &stride) || stride != 1;
}

/* Are sums of `body` computed in 16 bits? Of such that are stored as integers of 16 bits the others
 * do not matter, and vectors have twice as many of them. One factor has no loads: of two that have,
 * there are instructions that add products. */
static bool sums_are_words(Build *b, const Expr *body) {
    const Nest *n = b->n;
    const Expr *post = n->op->post;
    if (!n->target->vector_types || n->op->combine != COMBINE_sum || body->dt != DT_i32 ||
        body->op != EX_mul || post->op != EX_cast || post->dt != DT_i16 ||
        post->arg[0]->op != EX_acc || n->lane_loop >= 0 || n->partial_loop >= 0 ||
        n->stream_loop >= 0 || !b->n_tile || n->guard[0] || n->guard[1])
        return false;
    const NestLoop *lanes = &n->loop[b->tile[b->n_tile - 1]];
    Apart u = {lanes->var, false};
    if (lanes->role != ROLE_vector || !ex_is_word_sum(body, lanes->var) ||
        (body->arg[0]->loads && body->arg[1]->loads))
        return false;
    ex_visit(b->p->arena, body, note_apart, &u);
    const Expr *place = nest_rewrite(b, nest_output_index(n));
    int64_t stride;
    return !u.found && ex_stride(place, lanes->var, &stride) && stride == 1;
}

/* A reduction's sums. */
typedef struct Sums {
    int first;              /* loops outside of the tile */
    int across;             /* the loop over threads that share a sum; -1: none */
    DType dt, held, chosen; /* of the terms; of the accumulators; DT_none or that of byte choices */
    const Expr *body;
} Sums;

/* What is inside of the loops around a tile. */
static Stmt *build_tile(Build *b, const Sums *s) {
    Nest *n = b->n;
    const Op *op = n->op;
    const Expr *post = op->post;
    int64_t size = 1;
    for (int i = 0; i < b->n_tile; i++) size *= n->loop[b->tile[i]].extent;
    if (s->chosen != DT_none) post = ex_cast(b->x, s->chosen, ex_acc(b->x, s->dt));
    b->acc_buffer = kernel_buffer(b->p, b->k, "acc", SPACE_reg, s->held, 1, &size);
    const Expr *at = nest_tile_index(b, b->n_tile);
    b->acc = ex_cast(b->x, s->dt, ex_load(b->x, s->held, b->acc_buffer, 1, &at));
    const Expr *identity = ex_const(b->x, s->dt, combine_identity(op->combine, s->dt));

    Stmt *lines = n->matrices ? nest_apply_matrices(b) : NULL;
    if (lines) {
        Stmt *store = nest_store_output(b, nest_rewrite(b, post));
        stmt_append(&lines, nest_finish_lines(b, store, post));
        Stmt *sums = nest_new_alloc(b, b->acc_buffer);
        stmt_append(&sums, lines);
        return sums;
    }
    Stmt *list = NULL, *loops = reduction_loops(b, s->first, at, s->body, identity);
    for (int f = 0; f < 2; f++)
        if (b->factor[f]) stmt_append(&list, nest_new_alloc(b, (int)b->factor[f]->k.i));
    stmt_append(&list, nest_new_alloc(b, b->acc_buffer));
    const Expr *start = first_value(b, identity, &post);
    if (s->chosen != DT_none) start = ex_i(b->x, combine_identity(op->combine, s->chosen).i);
    stmt_append(&list, nest_wrap(b, b->n_tile, b->tile, store_acc(b, at, start)));
    Stmt *store =
        s->across < 0 && n->lane_loop < 0 ? nest_store_output(b, nest_rewrite(b, post)) : NULL;
    if (store && !nest_has_unit(n)) stmt_append(&list, fetch_beside(b, store));
    stmt_append(&list, loops);
    if (s->across >= 0) {
        stmt_append(&list, nest_combine_threads(b, &n->loop[s->across]));
        return nest_wrap(b, 1, &s->across, list);
    }
    if (n->lane_loop >= 0)
        stmt_append(&list, nest_combine_lanes(b, at, size));
    else
        stmt_append(&list, nest_finish_tile(b, store, post));
    return list;
}

/* Gives what was added to the kernel since it had so many variables and buffers other names. */
static void rename_new(Build *b, int vars, int buffers, const char *suffix) {
    Arena *a = b->p->arena;
    for (int i = vars; i < b->k->vars.n; i++)
        b->k->vars.items[i].name = arena_printf(a, "%s_%s", b->k->vars.items[i].name, suffix);
    for (int i = buffers; i < b->k->buffers.n; i++)
        b->k->buffers.items[i]->name =
            arena_printf(a, "%s_%s", b->k->buffers.items[i]->name, suffix);
}

/* The tile, `whole`, or, where only so many rows are left, one of n->rest. `b`: before the tile was
 * built. */
static Stmt *build_rest(Build *b, const Sums *s, Stmt *whole) {
    const int vars = b->k->vars.n, buffers = b->k->buffers.n, loop = b->n->rest_loop;
    const int d = nest_limited_coordinate(b->n, loop);
    const Expr *begin = begin_within(b, b->coord[d], s->first, s->first);
    const Expr *after = ex_add(b->x, begin, ex_i(b->x, b->n->rest));
    Stmt *either = nest_new_if(b, ex_lt(b->x, after, b->n->limit[d]), whole);
    if (either == whole) return whole; /* there is none */
    Nest few = *b->n;
    few.loop[loop].extent = few.rest;
    b->n = &few;
    either->other = build_tile(b, s);
    rename_new(b, vars, buffers, "rest");
    return either;
}

static Stmt *build_reduction(Build *b) {
    Nest *n = b->n;
    Sums s = {.across = -1, .dt = (DType)n->op->body->dt};
    while (s.first < n->n_order && !n->loop[n->order[s.first]].reduce) s.first++;
    for (int i = s.first; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (l->reduce && is_thread(l->role)) s.across = n->order[i];
        if (l->reduce && n->order[i] != n->lane_loop) continue;
        b->tile[b->n_tile++] = n->order[i];
    }
    limit_lanes(b);
    apply_limits(b, s.first);
    skip_unasked(b, s.first);
    s.body = nest_rewrite(b, n->op->body);
    s.chosen = nest_chosen_bytes(n);
    s.held = s.chosen != DT_none ? s.chosen : sums_are_words(b, s.body) ? DT_i16 : s.dt;
    if (n->pack) s.body = nest_pack_constants(n, b->k, s.body, b->args);
    Build before = *b;
    Stmt *tile = build_tile(b, &s);
    before.acc_buffer = b->acc_buffer;
    if (n->rest_loop >= 0) tile = build_rest(&before, &s, tile);
    b->acc_of_rest = before.acc_buffer;
    return wrap_outer(b, s.first, tile);
}

/* --- scans and updates ------------------------------------------------------------------------ */

/* acc = identity; for every position: acc = combine(acc, body), output = post(acc), in this order
 * or, if exclusive, the other. Loops inside of the scanned position are a tile of accumulators. */
static Stmt *build_scan_loops(Build *b) {
    Nest *n = b->n;
    const Op *op = n->op;
    DType dt = (DType)op->body->dt;
    int64_t size = 1;
    int at = 0;
    while (!n->loop[n->order[at]].reduce) at++;
    for (int i = at + 1; i < n->n_order; i++) {
        b->tile[b->n_tile++] = n->order[i];
        size *= n->loop[n->order[i]].extent;
    }
    apply_limits(b, at + 1);
    b->acc_buffer = kernel_buffer(b->p, b->k, "acc", SPACE_reg, dt, 1, &size);
    const Expr *index = nest_tile_index(b, b->n_tile);
    b->acc = ex_load(b->x, dt, b->acc_buffer, 1, &index);
    const Expr *value = without_limits(b, nest_rewrite(b, op->body));
    const Expr *next = ex_bin(b->x, combine_expr(op->combine), b->acc, value);
    Stmt *update = nest_new_if(b, b->guard[0], nest_new_store(b, b->acc_buffer, index, next));
    Stmt *store = nest_store_output(b, nest_rewrite(b, op->post));
    Stmt *body = NULL, *list = NULL;
    stmt_append(&body, op->exclusive ? store : update);
    stmt_append(&body, op->exclusive ? update : store);
    const Expr *identity = ex_const(b->x, dt, combine_identity(op->combine, dt));
    stmt_append(&list, nest_new_alloc(b, b->acc_buffer));
    stmt_append(
        &list, nest_wrap(b, b->n_tile, b->tile, nest_new_store(b, b->acc_buffer, index, identity)));
    stmt_append(&list, nest_wrap(b, 1, &n->order[at], nest_wrap(b, b->n_tile, b->tile, body)));
    return wrap_outer(b, at, list);
}

static Stmt *build_updates(Build *b) {
    const Op *op = b->n->op;
    const Expr *index[MAX_RANK];
    apply_limits(b, b->n->n_order);
    for (int i = 0; i < op->out[0]->rank; i++) index[i] = nest_rewrite(b, op->target[i]);
    const Expr *at = nest_simplify(b, flat_index(b->x, op->out[0], index));
    const Expr *value = without_limits(b, nest_rewrite(b, op->body));
    if (op->combine != COMBINE_none) {
        const Expr *old = ex_load(b->x, op->out[0]->dt, op->n_in, 1, &at);
        value = ex_bin(b->x, combine_expr(op->combine), old, value);
    }
    Stmt *store = nest_new_store(b, op->n_in, at, value);
    const Expr *guard = op->guard ? without_limits(b, nest_rewrite(b, op->guard)) : NULL;
    store = nest_new_if(b, b->guard[0], nest_new_if(b, guard, store));
    return nest_wrap(b, b->n->n_order, b->n->order, store);
}

/* The element of a map. Where others write it, it is stored again as it is (`split` cuts that
 * away), or not stored where threads would do so for nothing. */
static Stmt *build_element(Build *b) {
    const Op *op = b->n->op;
    const Expr *value = without_limits(b, nest_rewrite(b, op->body)), *inside = NULL;
    for (int d = 0; d < op->out[0]->rank; d++) /* what lies beyond is another's place */
        if (b->n->flat && b->n->limit[d] && !b->holds[d])
            inside = both_hold(b->x, inside, ex_lt(b->x, b->coord[d], b->n->limit[d]));
    if (!op->guard) return nest_new_if(b, inside, nest_store_output(b, value));
    const Expr *guard = nest_rewrite(b, op->guard);
    if (b->n->target->blocks) return nest_new_if(b, guard, nest_store_output(b, value));
    const Expr *at = nest_simplify(b, flat_index(b->x, op->out[0], b->coord));
    const Expr *old = ex_load(b->x, op->out[0]->dt, op->n_in, 1, &at);
    return nest_store_output(b, ex_select(b->x, guard, value, old));
}

/* A kernel has a parameter for every loop counter up to the last that it reads. */
static void note_counter(void *user, const Expr *e) {
    Kernel *k = user;
    if (e->op == EX_ctr && k->n_scalars <= e->k.i) k->n_scalars = (int)e->k.i + 1;
}

static void note_counters(Arena *arena, Kernel *k, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->extent) ex_visit(arena, s->extent, note_counter, k);
        if (s->value) ex_visit(arena, s->value, note_counter, k);
        for (int i = 0; s->index && i < k->buffers.items[s->buffer]->rank; i++)
            ex_visit(arena, s->index[i], note_counter, k);
        note_counters(arena, k, s->body);
        note_counters(arena, k, s->other);
    }
}

#define ROUNDED_UP 1.01   /* of sums of floats, which are rounded, ... */
#define MOST_TERMS 100000 /* ... so many of them at most */

/* What no element of a constant exceeds, of the few limits that tell printers how to encode results
 * as bytes or words: kernels that differ in their constants stay the same. */
static double magnitude(Arena *arena, const Value *v) {
    double most = 0;
    if (!value_is_const(v) || v->dt != DT_f32) return HUGE_VAL;
    ConstantPieces c = constant_pieces(arena, v, CONSTANT_PIECE);
    while (constant_next(&c)) {
        const float *x = c.data;
        for (size_t i = 0; i < c.bytes / sizeof *x; i++) {
            if (!(fabsf(x[i]) <= 65536)) most = HUGE_VAL;
            if (fabsf(x[i]) > most) most = fabsf(x[i]);
        }
    }
    return most <= 0.5 ? 0.5 : most <= 65536 ? 65536 : HUGE_VAL;
}

/* Operands, and coordinates in terms of the loops' variables. */
static void begin_build(Build *b) {
    Nest *n = b->n;
    const Op *op = n->op;
    b->args = ARENA_ARRAY(b->p->arena, op->n_in + 1, Value *);
    for (int i = 0; i < op->n_in; i++) b->args[i] = op->in[i];
    b->args[op->n_in] = op->out[0];
    for (int i = 0; i < n->n_order; i++)
        b->loop_var[n->order[i]] = ex_var(b->x, n->loop[n->order[i]].var);
    for (int i = 0; i < n->n_coords; i++) b->coord[i] = nest_in_loops(b, n->coord[i]);
    for (int i = 0; i < 2; i++)
        if (n->guard[i]) b->guard[i] = nest_in_loops(b, n->guard[i]);
    b->tail_guard = n->guard[1];
}

/* Variables for the loops of another nest of b's kernel: those of the same loops, or new ones. */
static void share_vars(Build *b, const Nest *with) {
    for (int i = 0; i < b->n->n_order; i++) {
        NestLoop *l = &b->n->loop[b->n->order[i]];
        l->var = -1;
        for (int j = 0; j < with->n_order && l->var < 0; j++) {
            const NestLoop *same = &with->loop[with->order[j]];
            if (same->extent == l->extent && !strcmp(same->name, l->name)) l->var = same->var;
        }
        if (l->var < 0) l->var = nest_add_var(b, l->name, l->extent);
    }
}

/* The reduction, and behind it the one of tiles of one row for runs of few rows. False if they read
 * constants in different orders, or if that is no matter of one loop. */
static bool build_with_singles(Build *b) {
    Nest *n = b->n, one;
    Exprs *x = b->x;
    if (!nest_of_singles(n, &one)) return false;
    const Expr *limit = n->limit[nest_limited_coordinate(n, n->singles.loop)];
    const Expr *many = ex_lt(x, ex_i(x, n->singles.most), limit);
    Build other = {.n = &one, .p = b->p, .x = x, .k = b->k};
    b->single = many;
    b->single_outer = n->singles.loop - 1;
    b->k->body = build_reduction(b);
    const int vars = b->k->vars.n, buffers = b->k->buffers.n;
    memcpy(other.extent, b->extent, sizeof other.extent);
    share_vars(&other, n);
    begin_build(&other);
    other.single = ex_le(x, limit, ex_i(x, n->singles.most));
    other.single_outer = nest_find(&one, n->loop[b->single_outer].name);
    stmt_append(&b->k->body, build_reduction(&other));
    rename_new(b, vars, buffers, "1");
    for (int i = 0; i < n->op->n_in; i++)
        if (!nest_same_layout(b->args[i], other.args[i])) return false;
    return b->stands_back && other.stands_back;
}

Kernel *nest_build(Nest *n, const char *name, Value ***args) {
    Program *p = n->p;
    const Op *op = n->op;
    Build b = {.n = n, .p = p, .x = n->x};
    Kernel *k = b.k = kernel_new(p, name);
    k->src = op->src;
    k->schedule = text_get(&n->steps);
    for (int i = 0; i < n->n_order; i++) {
        NestLoop *l = &n->loop[n->order[i]];
        l->var = nest_add_var(&b, l->name, l->extent);
        if (l->role >= ROLE_block_x && l->role <= ROLE_block_z)
            k->grid[l->role - ROLE_block_x] = l->extent;
        if (is_thread(l->role)) k->block[l->role - ROLE_thread_x] *= l->extent;
    }
    begin_build(&b);
    for (int i = 0; i <= op->n_in; i++) {
        int64_t numel = value_span(b.args[i]);
        const char *param = i < op->n_in ? arena_printf(p->arena, "x%d", i) : "y";
        kernel_buffer(p, k, param, SPACE_param, b.args[i]->dt, 1, &numel);
        Buffer *buffer = k->buffers.items[i];
        if (b.args[i]->range && i < op->n_in) {
            buffer->low = (double)b.args[i]->range[0];
            buffer->high = (double)b.args[i]->range[1];
        }
        const Value *whole = b.args[i];
        while (whole->inside) whole = whole->inside;
        if (k->n_scalars < whole->stacked) k->n_scalars = whole->stacked;
    }
    k->buffers.items[op->n_in]->written = true;
    if (n->singles.loop >= 0) {
        if (!build_with_singles(&b)) {
            p->kernels.n--;
            nest_drop_singles(n);
            return nest_build(n, name, args);
        }
    } else if (op->kind == OP_reduce)
        k->body = build_reduction(&b);
    else if (op->kind == OP_scan)
        k->body = build_scan_loops(&b);
    else if (op->kind == OP_scatter)
        k->body = build_updates(&b);
    else {
        apply_limits(&b, n->n_order);
        k->body = wrap_outer(&b, n->n_order, build_element(&b));
    }
    note_counters(p->arena, k, k->body);
    for (int i = 0; i < op->n_in; i++) { /* packing may have changed sizes */
        int64_t numel = value_span(b.args[i]);
        k->buffers.items[i]->shape = arena_copy(p->arena, &numel, sizeof numel);
        const Value *root = value_storage(b.args[i]);
        k->buffers.items[i]->partial =
            root->def->kind == OP_input && dims_vary(root->rank, root->dims);
        if (dt_is_short(op->out[0]->dt) && !b.args[i]->range) {
            k->buffers.items[i]->high = magnitude(p->arena, b.args[i]);
            k->buffers.items[i]->low = -k->buffers.items[i]->high;
        }
    }
    if (op->kind == OP_reduce && op->combine == COMBINE_sum && op->body->dt == DT_f32 &&
        dt_is_short(op->out[0]->dt)) {
        Buffer *acc = k->buffers.items[b.acc_buffer], *rest = k->buffers.items[b.acc_of_rest];
        const double most = kernel_largest(k, op->body) * ROUNDED_UP;
        const int64_t terms = shape_numel(op->n_red, op->red);
        if (most < HUGE_VAL && terms <= MOST_TERMS && most * (double)terms <= FLT_MAX) {
            acc->high = rest->high = most * (double)terms;
            acc->low = rest->low = -acc->high;
        }
    }
    *args = b.args;
    return k;
}
