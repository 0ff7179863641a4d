/* split: loops are cut where a guard changes, so that what is inside needs none.
 *
 * A map that pads or concatenates is select(guard, a, b) over a box of loop variables. Where the
 * guard compares single variables with bounds, constants or what a run's extents give, the box is
 * cut into boxes in which it holds or does not. The pieces are plain copies, which C compilers
 * vectorise; so are values that have a few such selects inside, or many that cut one loop (what is
 * computed of tensors side by side). Where the next piece has the same iterations of the outermost
 * loop, both are done in one: they write rows side by side. Only for targets whose kernels are
 * plain loops: threads would do the pieces one after the other.
 */
#include "passes/passes.h"

#define MAX_LOOPS     16
#define MAX_PIECES    24  /* of several loops */
#define MAX_STRETCH   64  /* of one */
#define MOST_OF_BOUND 256 /* nodes */

typedef struct Box { /* per loop: lo <= variable < hi; there is nothing in it where hi <= lo */
    const Expr *lo[MAX_LOOPS], *hi[MAX_LOOPS];
} Box;

typedef struct Split {
    Program *p;
    Kernel *k;
    Stmt *loop[MAX_LOOPS]; /* the perfect nest, outermost first, ... */
    int n_loops;
    const Expr *limits; /* ... and what must hold inside of it; NULL: nothing */
    Stmt *store;
    int64_t extent[MAX_LOOPS]; /* the most iterations of a loop */
    int n_vars;                /* of the kernel before any piece was made, ... */
    int64_t *most;             /* ... and their extents at most */
    Stmt *pieces;
    int n_pieces, max_pieces;
    Stmt *outer; /* the outermost loop of the last piece */
    Box box;     /* the last piece */
} Split;

/* Is it made of constants, counters and extents? Of other numbers a sum may not fit. */
static bool is_extent(const Split *s, const Expr *e) {
    if (e->size > MOST_OF_BOUND) return false;
    if (e->op == EX_load && !buffer_has_range(s->k->buffers.items[e->k.i])) return false;
    for (int i = 0; i < e->n; i++)
        if (!is_extent(s, e->arg[i])) return false;
    return true;
}

/* The bound that a comparison sets to the variable of loop *l; false if it sets none, or if the
 * loop stays in one piece since it is unrolled. */
static bool read_bound(const Split *s, const Expr *e, int *l, const Expr **bound, bool *below) {
    int var;
    if (!ex_bound(s->p->x, e, s->n_vars, s->most, &var, bound, below) || !is_extent(s, *bound))
        return false;
    for (*l = 0; *l < s->n_loops; (*l)++)
        if (s->loop[*l]->var == var) return s->loop[*l]->role != ROLE_unroll;
    return false;
}

typedef struct Bounds {
    int n;
    uint32_t loops; /* that they cut */
} Bounds;

/* True if the guard is made of bounds that loops can be cut at; adds them. */
static bool is_box(const Split *s, const Expr *guard, Bounds *bounds) {
    int l;
    const Expr *bound;
    bool below;
    if (guard->op == EX_and)
        return is_box(s, guard->arg[0], bounds) && is_box(s, guard->arg[1], bounds);
    if (!read_bound(s, guard, &l, &bound, &below)) return false;
    bounds->n++;
    bounds->loops |= UINT32_C(1) << l;
    return true;
}

/* The nest of serial loops, unrolled ones innermost, and of conditions that bound their variables,
 * around one store; false if there is none. */
static bool find_nest(Split *s) {
    Stmt *at = s->k->body;
    Bounds limits = {0};
    bool unrolled = false;
    for (; at && (at->kind == ST_for || at->kind == ST_if); at = at->body) {
        if (at->next || at->other) return false;
        if (at->kind == ST_if) {
            if (!is_box(s, at->value, &limits)) return false;
            s->limits = s->limits ? ex_and(s->p->x, s->limits, at->value) : at->value;
            continue;
        }
        unrolled |= at->role == ROLE_unroll;
        bool plain = unrolled ? at->role == ROLE_unroll
                              : at->role == ROLE_serial || at->role == ROLE_parallel;
        bool known = !at->extent->vars;
        if (!plain || !known || s->n_loops == MAX_LOOPS) return false;
        s->loop[s->n_loops++] = at;
    }
    s->store = at;
    return at && at->kind == ST_store && !at->next && s->n_loops;
}

/* Is it sure that a <= b in every run? */
static bool at_most(const Split *s, const Expr *a, const Expr *b) {
    int64_t low, high;
    Exprs *x = s->p->x;
    if (a->op == EX_max) return at_most(s, a->arg[0], b) && at_most(s, a->arg[1], b);
    if (b->op == EX_min) return at_most(s, a, b->arg[0]) && at_most(s, a, b->arg[1]);
    if (a->op == EX_min && (at_most(s, a->arg[0], b) || at_most(s, a->arg[1], b))) return true;
    if (b->op == EX_max && (at_most(s, a, b->arg[0]) || at_most(s, a, b->arg[1]))) return true;
    return kernel_bounds(s->k, x, ex_simplify(x, ex_sub(x, b, a), 0, NULL), &low, &high) &&
           low >= 0;
}

static const Expr *smaller(const Split *s, const Expr *a, const Expr *b) {
    return at_most(s, a, b) ? a : at_most(s, b, a) ? b : ex_bin(s->p->x, EX_min, a, b);
}

static const Expr *larger(const Split *s, const Expr *a, const Expr *b) {
    return at_most(s, b, a) ? a : at_most(s, a, b) ? b : ex_bin(s->p->x, EX_max, a, b);
}

/* Is the box without elements in every run? */
static bool is_empty(const Split *s, const Box *box) {
    for (int i = 0; i < s->n_loops; i++)
        if (at_most(s, box->hi[i], box->lo[i])) return true;
    return false;
}

/* How far loop `i` goes in the box, and *most, how far it may in any run. */
static const Expr *extent_in(const Split *s, const Box *box, int i, int64_t *most) {
    Exprs *x = s->p->x;
    int64_t low, high;
    const Expr *extent = ex_simplify(x, ex_sub(x, box->hi[i], box->lo[i]), 0, NULL);
    *most = s->extent[i];
    if (kernel_bounds(s->k, x, extent, &low, &high)) {
        if (high < *most) *most = high;
        if (low >= 0) return extent;
    }
    return ex_bin(x, EX_max, extent, ex_i(x, 0));
}

/* True if `value` is what is stored there already. */
static bool stays(const Split *s, const Expr *value) {
    return value->op == EX_load && value->k.i == s->store->buffer &&
           value->arg[0] == s->store->index[0];
}

/* The nest over one box, with variables of its own: a variable has one extent in its kernel. */
static void emit_piece(Split *s, const Box *box, const Expr *value) {
    Program *p = s->p;
    int old = s->k->vars.n, fresh[MAX_LOOPS];
    if (stays(s, value) || is_empty(s, box)) return;
    const Expr **to = ARENA_ARRAY(p->arena, old, const Expr *), *count[MAX_LOOPS];
    bool joins = s->outer && s->n_loops > 1 && s->loop[0]->role == ROLE_parallel &&
                 s->box.lo[0] == box->lo[0] && s->box.hi[0] == box->hi[0];
    for (int i = 0; i < s->n_loops; i++) {
        int64_t most;
        count[i] = extent_in(s, box, i, &most);
        int var = fresh[i] = s->loop[i]->var;
        const char *name = s->k->vars.items[var].name;
        if (i == 0 && joins) {
            fresh[i] = s->outer->var;
        } else if (s->n_pieces) {
            name = arena_printf(p->arena, "%s_%d", name, s->n_pieces);
            fresh[i] = kernel_var(p, s->k, name, DT_i32, most);
        }
        s->k->vars.items[fresh[i]].extent = most;
        to[var] = ex_add(p->x, ex_var(p->x, fresh[i]), box->lo[i]);
    }
    int n_vars = s->k->vars.n;
    int64_t *extent = ARENA_ARRAY(p->arena, n_vars, int64_t);
    for (int i = 0; i < n_vars; i++) extent[i] = s->k->vars.items[i].extent;
    Stmt *inner = stmt_new(p, ST_store);
    const Expr *index = ex_subst_vars(p->x, s->store->index[0], old, to);
    inner->buffer = s->store->buffer;
    inner->index = ARENA_ARRAY(p->arena, 1, const Expr *);
    inner->index[0] = ex_simplify(p->x, index, n_vars, extent);
    inner->value = ex_simplify(p->x, ex_subst_vars(p->x, value, old, to), n_vars, extent);
    for (int i = s->n_loops - 1; i >= joins; i--) {
        Stmt *loop = stmt_new(p, ST_for);
        loop->var = fresh[i];
        loop->role = s->loop[i]->role;
        loop->extent = count[i];
        loop->body = inner;
        inner = loop;
    }
    stmt_append(joins ? &s->outer->body : &s->pieces, inner);
    if (!joins) s->outer = inner;
    s->box = *box;
    s->n_pieces++;
}

static void split_box(Split *s, Box box, const Expr *value);

/* Cuts off what lies outside of the guard's bounds, where the value is `no` (NULL: there is none);
 * returns what is left. */
static Box cut_off(Split *s, Box box, const Expr *guard, const Expr *no) {
    if (guard->op == EX_and)
        return cut_off(s, cut_off(s, box, guard->arg[0], no), guard->arg[1], no);
    int l;
    const Expr *bound;
    bool below;
    Box off = box;
    read_bound(s, guard, &l, &bound, &below);
    const Expr **end = below ? &off.lo[l] : &off.hi[l];
    *end = below ? larger(s, *end, bound) : smaller(s, *end, bound);
    if (no) split_box(s, off, no);
    end = below ? &box.hi[l] : &box.lo[l];
    *end = below ? smaller(s, *end, bound) : larger(s, *end, bound);
    return box;
}

#define FEW_GUARDS 3 /* inside of a value, whose parts around them are repeated in every piece */

typedef struct Guards {
    const Split *s;
    const Expr *guard[MAX_STRETCH], *first; /* one of the selects */
    int n;
    Bounds bounds;
} Guards;

static void find_guard(void *user, const Expr *e) {
    Guards *u = user;
    int known = 0;
    Bounds own = {0};
    if (e->op != EX_select || u->n == MAX_STRETCH || !is_box(u->s, e->arg[0], &own)) return;
    u->first = e;
    while (known < u->n && u->guard[known] != e->arg[0]) known++;
    if (known < u->n) return;
    u->guard[u->n++] = e->arg[0];
    u->bounds.n += own.n;
    u->bounds.loops |= own.loops;
}

static bool cut_one_loop(const Guards *u) {
    return u->bounds.loops && !(u->bounds.loops & (u->bounds.loops - 1));
}

/* Do these guards make few pieces? Each cuts all that are there; of one loop only one of them. */
static bool are_few(const Guards *u) {
    return u->n <= FEW_GUARDS || (cut_one_loop(u) && u->bounds.n < MAX_STRETCH);
}

/* The value as a select between what it is with one side and the other of a select inside of it;
 * itself if there is none, or if there are many. */
static const Expr *guard_first(Split *s, const Expr *value) {
    Guards u = {.s = s};
    if (value->op == EX_select) return value;
    ex_visit(s->p->arena, value, find_guard, &u);
    if (!u.first || !are_few(&u)) return value;
    Exprs *x = s->p->x;
    const Expr *yes = ex_replace(x, value, u.first, u.first->arg[1]);
    return ex_select(x, u.first->arg[0], yes, ex_replace(x, value, u.first, u.first->arg[2]));
}

static void split_box(Split *s, Box box, const Expr *value) {
    Bounds bounds = {0}, inner = {0};
    if (is_empty(s, &box)) return;
    value = guard_first(s, value);
    if (value->op == EX_select && s->n_pieces < s->max_pieces) {
        const Expr *guard = value->arg[0], *yes = value->arg[1], *no = value->arg[2];
        bool is_one = is_box(s, guard, &bounds);
        if (is_one && s->n_pieces + bounds.n < s->max_pieces) {
            box = cut_off(s, box, guard, no);
            split_box(s, box, yes);
            return;
        }
        if (!is_one) yes = guard_first(s, yes);
        if (!is_one && yes->op == EX_select &&
            is_box(s, yes->arg[0], &inner)) { /* the guard inside first */
            Exprs *x = s->p->x;
            const Expr *a = ex_select(x, guard, yes->arg[1], no);
            const Expr *b = ex_select(x, guard, yes->arg[2], no);
            split_box(s, box, ex_select(x, yes->arg[0], a, b));
            return;
        }
        for (int i = 0; guard->op == EX_and && i < 2; i++) { /* one part after the other */
            const Expr *part = guard->arg[i], *rest = guard->arg[1 - i];
            /* of several boxes; as the second part it may need the first one */
            const bool several = i == 0 && part->op == EX_not;
            bounds = (Bounds){0};
            if (!several && !is_box(s, part, &bounds)) continue;
            Exprs *x = s->p->x;
            split_box(s, box, ex_select(x, part, ex_select(x, rest, yes, no), no));
            return;
        }
    }
    emit_piece(s, &box, value);
}

static void split_kernel(Program *p, Kernel *k) {
    Split s = {.p = p, .k = k, .n_vars = k->vars.n};
    s.most = ARENA_ARRAY(p->arena, s.n_vars, int64_t);
    for (int i = 0; i < s.n_vars; i++) s.most[i] = k->vars.items[i].extent;
    if (!find_nest(&s) || guard_first(&s, s.store->value)->op != EX_select) return;
    Guards all = {.s = &s};
    ex_visit(p->arena, s.store->value, find_guard, &all);
    s.max_pieces = cut_one_loop(&all) ? MAX_STRETCH : MAX_PIECES;
    Box box;
    for (int i = 0; i < s.n_loops; i++) {
        box.lo[i] = ex_i(p->x, 0);
        box.hi[i] = s.loop[i]->extent;
        s.extent[i] = k->vars.items[s.loop[i]->var].extent;
    }
    if (s.limits) box = cut_off(&s, box, s.limits, NULL);
    split_box(&s, box, s.store->value);
    if (s.pieces) k->body = s.pieces;
}

void pass_split(Program *p, const PassOptions *o) {
    if (o->target->blocks) return;
    for (int i = 0; i < p->kernels.n; i++) split_kernel(p, p->kernels.items[i]);
}
