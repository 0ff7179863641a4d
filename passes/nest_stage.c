/* Factors of a product on their way through shared memory; see nest_build.h. */
#include "passes/nest_build.h"

#include <string.h>

typedef struct UsedVars {
    bool var[MAX_VARS];
} UsedVars;

static void find_vars(void *user, const Expr *e) {
    UsedVars *u = user;
    if (e->op == EX_var) u->var[e->k.i] = true;
}

/* The linear number of the thread in its block, and how many there are. */
static const Expr *thread_number(Build *b, int64_t *threads) {
    const Expr *tid = ex_i(b->x, 0);
    *threads = 1;
    for (Role role = ROLE_thread_z; role >= ROLE_thread_x; role--)
        for (int i = 0; i < b->n->n_order; i++) {
            const NestLoop *l = &b->n->loop[b->n->order[i]];
            if (l->role != role) continue;
            tid = ex_add(b->x, ex_mul(b->x, tid, ex_i(b->x, l->extent)), ex_var(b->x, l->var));
            *threads *= l->extent;
        }
    return tid;
}

typedef struct Largest {
    const Build *b;
    const Expr *load; /* of the largest tensor */
} Largest;

static void find_largest(void *user, const Expr *e) {
    Largest *u = user;
    if (e->op != EX_load) return;
    Value **args = u->b->args;
    if (!u->load || value_numel(args[e->k.i]) > value_numel(args[u->load->k.i])) u->load = e;
}

/* How far apart are the first two elements that a loop of the tile runs through? */
static int64_t first_step(Build *b, const Expr *load, const NestLoop *l) {
    const Expr *at[MAX_VARS], *first[2];
    for (int64_t k = 0; k < 2; k++) {
        for (int i = 0; i < b->k->vars.n; i++) at[i] = ex_i(b->x, i == l->var ? k : 0);
        first[k] = nest_simplify(b, ex_subst_vars(b->x, load->arg[0], b->k->vars.n, at));
        if (!ex_is_const(first[k])) return INT64_MAX;
    }
    const int64_t step = first[1]->k.i - first[0]->k.i;
    return step < 0 ? -step : step;
}

typedef struct TileLoop {
    int loop;
    int64_t step; /* in memory */
    bool last;    /* it goes behind those that are not */
} TileLoop;

static bool goes_before(TileLoop a, TileLoop b) {
    return a.last == b.last ? a.step > b.step : b.last;
}

/* Orders the loops by their steps, the smallest last, so that neighbouring threads load
 * neighbouring elements; all of the reduction before the others if not only its steps are small:
 * lines of an image are longer than those of a window. */
static void fastest_last(Build *b, const Expr *factor, int count, int *loops) {
    Largest found = {.b = b};
    TileLoop sorted[NEST_MAX_LOOPS];
    int64_t least[2] = {INT64_MAX, INT64_MAX};
    ex_visit(b->p->arena, factor, find_largest, &found);
    if (!found.load) return;
    for (int i = 0; i < count; i++) {
        const NestLoop *l = &b->n->loop[loops[i]];
        sorted[i] = (TileLoop){loops[i], first_step(b, found.load, l), l->reduce};
        if (sorted[i].step < least[l->reduce]) least[l->reduce] = sorted[i].step;
    }
    for (int i = 0; i < count; i++) {
        TileLoop own = sorted[i];
        int at = i;
        if (least[false] <= least[true]) own.last = !own.last;
        for (; at > 0 && goes_before(own, sorted[at - 1]); at--) sorted[at] = sorted[at - 1];
        sorted[at] = own;
    }
    for (int i = 0; i < count; i++) loops[i] = sorted[i].loop;
}

/* Where a tile's element lies in shared memory: in a line for each step of the reduction, in which
 * what threads along x read at once lies side by side, vectors of it whole. If steps lie side by
 * side in memory, and of bytes, a warp's tile has a line of them for each row (or column). Lines
 * are padded, so that threads that load elements of several steps at once do not all write to one
 * bank (a few still do where each loads several steps), and loads of 16 bytes stay possible. */
static const Expr *tile_place(Build *b, int count, const int *loops, bool along_steps, DType dt,
                              int64_t *size) {
    enum { REDUCED, OTHERS, ALONG_Y, ALONG_X, OF_VECTOR, PARTS };
    Exprs *x = b->x;
    const Expr *place[2] = {ex_i(x, 0), ex_i(x, 0)}; /* of a line, in it */
    int64_t extent[2] = {1, 1};
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < count; i++) {
            const NestLoop *l = &b->n->loop[loops[i]];
            const int own = l->reduce                                         ? REDUCED
                            : l->role == ROLE_thread_x                        ? ALONG_X
                            : l->role == ROLE_thread_y && nest_has_unit(b->n) ? ALONG_Y
                            : l->role == ROLE_vector                          ? OF_VECTOR
                                                                              : OTHERS;
            if (own != part) continue;
            const bool inside = l->reduce == along_steps;
            place[inside] =
                ex_add(x, ex_mul(x, place[inside], ex_i(x, l->extent)), ex_var(x, l->var));
            extent[inside] *= l->extent;
        }
    const int64_t length = extent[1] + SHARED_PADDING / (int64_t)dt_store(dt);
    *size = extent[0] * length;
    return ex_add(x, ex_mul(x, place[0], ex_i(x, length)), place[1]);
}

/* Loops from number `from` on that together go through `extent` neighbouring elements, of which a
 * thread loads `few` at once. */
typedef struct Run {
    int from;
    int64_t extent, few;
} Run;

/* Do the innermost loops go through `factor` in runs of which so many may be loaded at once? */
static bool read_run(Build *b, const Expr *factor, int64_t few, int count, const int *loops,
                     Run *run) {
    const int one = b->k->vars.n, fews = one + 1; /* variables for a moment */
    const Expr *to[MAX_VARS] = {0}, *number = ex_var(b->x, fews);
    *run = (Run){count, 1, few};
    while (run->extent % few && run->from > 0) run->extent *= b->n->loop[loops[--run->from]].extent;
    if (run->extent % few || fews >= MAX_VARS) return false;
    b->extent[one] = few;
    b->extent[fews] = run->extent / few;
    number = ex_add(b->x, ex_mul(b->x, number, ex_i(b->x, few)), ex_var(b->x, one));
    nest_number_to_vars(b, count - run->from, loops + run->from, number, to);
    factor = ex_simplify(b->x, ex_subst_vars(b->x, factor, MAX_VARS, to), fews + 1, b->extent);
    const bool chosen = factor->op == EX_select; /* not beyond an edge */
    const Expr *load = chosen ? factor->arg[1] : factor;
    int64_t stride;
    return load->op == EX_load && ex_stride(load->arg[0], one, &stride) && stride == 1 &&
           ex_is_multiple(ex_subst_var(b->x, load->arg[0], one, ex_i(b->x, 0)), few) &&
           (!chosen || ex_same_below(b->x, factor->arg[0], one, few));
}

/* What the innermost loops do with `factor`; few = 1: nothing is loaded at once. */
static Run find_run(Build *b, const Expr *factor, int count, const int *loops) {
    const int64_t most = b->n->target->at_once * 4 / (int64_t)dt_store((DType)factor->dt);
    const bool narrow = nest_has_unit(b->n), words = factor->dt == DT_f32 || factor->dt == DT_i32;
    Run run;
    for (int64_t few = most; few > 1 && (words || narrow); few = narrow ? few / 2 : 1)
        if (read_run(b, factor, few, count, loops, &run)) return run;
    return (Run){count, 1, 1};
}

const Expr *nest_narrow_factor(Exprs *x, const Expr *factor) {
    if (factor->op == EX_cast) {
        const DType dt = (DType)factor->arg[0]->dt;
        const bool half = dt == DT_bf16 || dt == DT_f16, byte = dt == DT_u8 || dt == DT_i8;
        return half || byte ? factor->arg[0] : NULL;
    }
    if (factor->op != EX_select || !ex_is_zero(factor->arg[2])) return NULL;
    const Expr *e = nest_narrow_factor(x, factor->arg[1]);
    return e ? ex_select(x, factor->arg[0], e, ex_num(x, (DType)e->dt, 0)) : NULL;
}

int nest_warp_bytes(const Target *t, Exprs *x, const Expr *body) {
    if (!t->warp_tiles || body->op != EX_mul) return 0;
    const Expr *a = nest_narrow_factor(x, body->arg[0]), *b = nest_narrow_factor(x, body->arg[1]);
    if (!a || !b) return 0;
    const int bytes = (int)dt_store((DType)a->dt);
    if (body->dt == DT_f32 && bytes == 2 && a->dt == b->dt) return 2;
    return body->dt == DT_i32 && bytes == 1 && dt_store((DType)b->dt) == 1;
}

/* Loads factor `f` at position `at` of the order; b->factor[f] becomes the load from shared memory
 * that takes its place. */
static Staged stage(Build *b, int f, const Expr *factor, int at) {
    Nest *n = b->n;
    Exprs *x = b->x;
    UsedVars used = {{false}};
    ex_visit(b->p->arena, factor, find_vars, &used);
    int loops[NEST_MAX_LOOPS], count = 0;
    int64_t total = 1, threads, size;
    const Expr *tid = thread_number(b, &threads);
    for (int i = 0; i < n->n_order; i++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (!used.var[l->var] || (i <= at && !is_thread(l->role))) continue;
        loops[count++] = n->order[i];
        total *= l->extent;
    }
    DType dt = (DType)factor->dt;
    int sorted[NEST_MAX_LOOPS];
    memcpy(sorted, loops, (size_t)count * sizeof *loops);
    fastest_last(b, factor, count, loops);
    const bool along_steps =
        nest_has_unit(n) && count && (n->loop[loops[count - 1]].reduce || dt_store(dt) == 1);
    const Expr *place = tile_place(b, count, sorted, along_steps, dt, &size);
    const Run run = find_run(b, factor, count, loops);
    Staged s = {.few = run.few, .ahead = -1};
    s.tile = kernel_buffer(b->p, b->k, f ? "tile_b" : "tile_a", SPACE_shared, dt, 1, &size);
    total /= s.few;
    s.rounds = (total + threads - 1) / threads;
    s.round = nest_add_var(b, f ? "load_b" : "load_a", s.rounds);
    s.one = s.few > 1 ? nest_add_var(b, f ? "one_b" : "one_a", s.few) : -1;
    const Expr *e = ex_add(x, ex_mul(x, ex_var(x, s.round), ex_i(x, threads)), tid);
    /* element e of the tile (or `few` of them), taken apart into the loops it stands for */
    const Expr *to[MAX_VARS] = {0}, *fews = ex_i(x, run.extent / run.few), *own = e;
    if (s.few > 1) {
        own = run.from > 0 ? ex_bin(x, EX_rem, e, fews) : e;
        own = ex_add(x, ex_mul(x, own, ex_i(x, s.few)), ex_var(x, s.one));
        nest_number_to_vars(b, count - run.from, loops + run.from, own, to);
    }
    nest_number_to_vars(b, run.from, loops, ex_div(x, e, fews), to);
    s.value = ex_subst_vars(x, factor, MAX_VARS, to);
    s.place = ex_subst_vars(x, place, MAX_VARS, to);
    s.inside = nest_simplify(b, ex_lt(x, e, ex_i(x, total)));
    place = nest_simplify(b, place);
    b->factor[f] = ex_load(x, dt, s.tile, 1, &place);
    return s;
}

/* Statement `store` for all elements that a thread moves. */
static Stmt *for_staged(Build *b, const Staged *s, Stmt *store) {
    Stmt *loop = nest_new_for(b, s->round, s->rounds, ROLE_unroll), *inner = store;
    if (s->few > 1) {
        inner = nest_new_for(b, s->one, s->few, ROLE_vector);
        inner->body = store;
    }
    loop->body = nest_new_if(b, s->inside, inner);
    return loop;
}

/* The register that holds an element which is loaded ahead. */
static const Expr *ahead_place(Build *b, const Staged *s) {
    const Expr *at = ex_mul(b->x, ex_var(b->x, s->round), ex_i(b->x, s->few));
    return s->few > 1 ? ex_add(b->x, at, ex_var(b->x, s->one)) : at;
}

/* Stores a staged element. Of a narrow type that is loaded or a number a branch says which, for
 * either is then stored as it is, without being decoded. */
static Stmt *store_staged(Build *b, const Staged *s, int buffer, const Expr *at,
                          const Expr *value) {
    value = nest_simplify(b, value);
    if (s->few > 1 || dt_store((DType)value->dt) > 2 || value->op != EX_select)
        return nest_new_store(b, buffer, at, value);
    Stmt *choice = nest_new_if(b, value->arg[0], nest_new_store(b, buffer, at, value->arg[1]));
    choice->other = nest_new_store(b, buffer, at, value->arg[2]);
    return choice;
}

/* Loads what the iteration of loop `l` that `number` says needs into registers. */
static Stmt *load_ahead(Build *b, const Staged *s, const NestLoop *l, const Expr *number) {
    const Expr *value = ex_subst_var(b->x, s->value, l->var, number);
    return for_staged(b, s, store_staged(b, s, s->ahead, ahead_place(b, s), value));
}

/* Puts it into the tile. */
static Stmt *fill_tile(Build *b, const Staged *s) {
    const Expr *value = s->value;
    if (s->ahead >= 0) {
        const Expr *at = nest_simplify(b, ahead_place(b, s));
        value = ex_load(b->x, (DType)value->dt, s->ahead, 1, &at);
    }
    return for_staged(b, s, store_staged(b, s, s->tile, s->place, value));
}

/* The parts of a condition that have a variable in common with `used`; NULL if none has. */
static const Expr *concerning(Build *b, const Expr *guard, const UsedVars *used) {
    if (guard->op == EX_and) {
        const Expr *left = concerning(b, guard->arg[0], used);
        const Expr *right = concerning(b, guard->arg[1], used);
        return left && right ? ex_and(b->x, left, right) : left ? left : right;
    }
    UsedVars own = {{false}};
    ex_visit(b->p->arena, guard, find_vars, &own);
    for (int i = 0; i < MAX_VARS; i++)
        if (own.var[i] && used->var[i]) return guard;
    return NULL;
}

/* A factor of the product, zero where the work is guarded. Of the spatial guard only what concerns
 * the factor is taken: its tile in shared memory would otherwise hold a copy for every row (or
 * column) of the other factor. A constant that was laid out for the nest has something there. */
static const Expr *guarded_factor(Build *b, const Expr *factor) {
    UsedVars used = {{false}};
    ex_visit(b->p->arena, factor, find_vars, &used);
    const Expr *zero = ex_num(b->x, (DType)factor->dt, 0);
    const bool laid = factor->op == EX_load && b->args[factor->k.i] != b->n->op->in[factor->k.i];
    const Expr *inside = b->guard[0] && !laid ? concerning(b, b->guard[0], &used) : NULL;
    if (b->guard[1]) inside = inside ? ex_and(b->x, inside, b->guard[1]) : b->guard[1];
    if (inside && factor->op == EX_select && ex_is_zero(factor->arg[2])) { /* padding */
        inside = ex_and(b->x, inside, factor->arg[0]);
        factor = factor->arg[1];
    }
    return inside ? nest_simplify(b, ex_select(b->x, inside, factor, zero)) : factor;
}

const Expr *nest_stage_factors(Build *b, const Expr *body, int at, Staged staged[2], int *count) {
    Nest *n = b->n;
    const Expr *part[2];
    for (int f = 0; f < 2; f++) {
        part[f] = body->arg[f];
        const Expr *narrow = nest_has_unit(n) ? nest_narrow_factor(b->x, part[f]) : NULL;
        part[f] = guarded_factor(b, narrow ? narrow : part[f]);
        if (n->stage_loop[f] >= 0) {
            staged[(*count)++] = stage(b, f, part[f], at);
            part[f] = b->factor[f];
        }
        if (narrow) part[f] = ex_cast(b->x, (DType)body->dt, part[f]);
    }
    return ex_mul(b->x, part[0], part[1]);
}

Stmt *nest_staged_loops(Build *b, int n_staged, Staged *staged, int count, const int *serial,
                        Stmt *update) {
    const NestLoop *l = &b->n->loop[serial[count - 1]];
    const bool ahead = count == 1 && l->role == ROLE_serial && l->extent > 1;
    const Expr *at = ex_var(b->x, l->var), *next = ex_add(b->x, at, ex_i(b->x, 1));
    Stmt *list = NULL, *body = NULL, *later = NULL;
    for (int i = 0; i < n_staged; i++) {
        Staged *s = &staged[i];
        if (ahead) {
            const int64_t size = s->rounds * s->few;
            s->ahead = kernel_buffer(b->p, b->k, i ? "next_b" : "next_a", SPACE_reg,
                                     (DType)s->value->dt, 1, &size);
            stmt_append(&list, nest_new_alloc(b, s->ahead));
            stmt_append(&list, load_ahead(b, s, l, ex_i(b->x, 0)));
            stmt_append(&later, load_ahead(b, s, l, next));
        }
        stmt_append(&body, fill_tile(b, s));
    }
    stmt_append(&body, stmt_new(b->p, ST_barrier));
    if (later) stmt_append(&body, nest_new_if(b, ex_lt(b->x, next, ex_i(b->x, l->extent)), later));
    stmt_append(&body, update);
    stmt_append(&body, stmt_new(b->p, ST_barrier));
    stmt_append(&list, nest_wrap(b, count, serial, body));
    return list;
}
