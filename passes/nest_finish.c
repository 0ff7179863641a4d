/* What follows the loops of a reduction, such as functions of its sums; see nest_build.h. */
#include "ir/tile_plan.h"
#include "passes/inline.h"
#include "passes/nest_build.h"

#include <string.h>

#define COMBINED_AT_ONCE 8 /* by a thread; the last of them by each */

/* What `count` elements of a buffer come to, `step` apart from `first` on. */
static const Expr *combined(Build *b, int buffer, const Expr *first, int64_t step, int64_t count) {
    Exprs *x = b->x;
    const DType dt = (DType)b->acc->dt;
    const Expr *all = ex_load(x, dt, buffer, 1, &first);
    for (int64_t i = 1; i < count; i++) {
        const Expr *at = nest_simplify(b, ex_add(x, first, ex_i(x, i * step)));
        all = ex_bin(x, combine_expr(b->n->op->combine), all, ex_load(x, dt, buffer, 1, &at));
    }
    return all;
}

Stmt *nest_combine_threads(Build *b, const NestLoop *l) {
    Exprs *x = b->x;
    Stmt *list = NULL;
    const Expr *tid = ex_var(x, l->var), *zero = ex_i(x, 0);
    DType dt = (DType)b->acc->dt;
    int shared = kernel_buffer(b->p, b->k, "partial", SPACE_shared, dt, 1, &l->extent);
    stmt_append(&list, nest_new_alloc(b, shared));
    stmt_append(&list, nest_new_store(b, shared, tid, b->acc));
    stmt_append(&list, stmt_new(b->p, ST_barrier));
    int64_t left = l->extent;
    while (left > COMBINED_AT_ONCE) {
        int64_t several = COMBINED_AT_ONCE;
        while (left % several) several--;
        if (several == 1) break;
        left /= several;
        const Expr *all = combined(b, shared, tid, left, several);
        Stmt *store = nest_new_store(b, shared, tid, all);
        stmt_append(&list, nest_new_if(b, ex_lt(x, tid, ex_i(x, left)), store));
        stmt_append(&list, stmt_new(b->p, ST_barrier));
    }
    b->acc = combined(b, shared, zero, 1, left);
    const int result =
        kernel_buffer(b->p, b->k, ROW_RESULT, SPACE_reg, b->n->op->out[0]->dt, 1, (int64_t[]){1});
    stmt_append(&list, nest_new_alloc(b, result));
    stmt_append(&list, nest_new_store(b, result, zero, nest_rewrite(b, b->n->op->post)));
    Stmt *store = nest_store_output(b, ex_load(x, b->n->op->out[0]->dt, result, 1, &zero));
    stmt_append(&list, nest_new_if(b, ex_bin(x, EX_eq, tid, zero), store));
    return list;
}

/* The body for what is left over behind the last vector of the lane loop, at its element `t`. */
static const Expr *tail_body(Build *b, int t) {
    Nest *n = b->n;
    const Expr *vars[NEST_MAX_LOOPS], *coord[MAX_RANK];
    memcpy(vars, b->loop_var, sizeof vars);
    vars[n->lane_outer] = nest_extent_of(b, n->lane_outer);
    vars[n->lane_loop] = ex_var(b->x, t);
    memcpy(coord, b->coord, sizeof coord);
    for (int i = 0; i < n->n_coords; i++)
        b->coord[i] = nest_simplify(b, ex_subst_vars(b->x, n->coord[i], NEST_MAX_LOOPS, vars));
    const Expr *body = nest_rewrite(b, n->op->body);
    memcpy(b->coord, coord, sizeof coord);
    if (!b->tail_guard) return body;
    const Expr *guard = nest_simplify(b, ex_subst_vars(b->x, b->tail_guard, NEST_MAX_LOOPS, vars));
    Scalar none = combine_identity(n->op->combine, (DType)body->dt);
    return ex_select(b->x, guard, body, ex_const(b->x, (DType)body->dt, none));
}

#define LEAST_FINISH 20 /* cycles for a row that are worth vectors: functions take so long */

/* What is done with the sums of `count` rows of a tile of lanes, where that is the same for all:
 * they go to a buffer, and what comes of them, in vectors, to another. */
typedef struct Finish {
    int sum, done;        /* -1: each sum must be finished where it is */
    Stmt *clear, *finish; /* of these */
} Finish;

static Stmt *over_rows(Build *b, int buffer, const Expr *value, int var, int64_t count) {
    Stmt *loop = nest_new_for(b, var, count, ROLE_vector), *list = nest_new_alloc(b, buffer);
    loop->body = nest_new_store(b, buffer, ex_var(b->x, var), value);
    stmt_append(&list, loop);
    return list;
}

static Finish finish_rows(Build *b, int rows, int64_t count) {
    Nest *n = b->n;
    Exprs *x = b->x;
    const Op *op = n->op;
    const Expr *acc = b->acc;
    const int64_t lanes = n->loop[n->lane_loop].extent, all = (count + lanes - 1) / lanes * lanes;
    Finish f = {-1, -1, NULL, NULL};
    if (count < 2 || op->out[0]->dt != DT_f32 || acc->dt != DT_f32 ||
        body_cost(b->p->arena, op->post) < LEAST_FINISH)
        return f;
    b->acc = ex_acc(x, DT_f32);
    const Expr *post = nest_rewrite(b, op->post);
    b->acc = acc;
    for (int i = 0; i < rows; i++)
        if (ex_depends(post, n->loop[b->tile[i]].var)) return f;
    const int var = nest_add_var(b, "row", all);
    const Expr *row = ex_var(x, var);
    f.sum = kernel_buffer(b->p, b->k, "sum", SPACE_reg, DT_f32, 1, &all);
    f.done = kernel_buffer(b->p, b->k, "done", SPACE_reg, DT_f32, 1, &all);
    post = ex_replace(x, post, ex_acc(x, DT_f32), ex_load(x, DT_f32, f.sum, 1, &row));
    f.clear = over_rows(b, f.sum, ex_num(x, DT_f32, 0), var, all);
    f.finish = over_rows(b, f.done, post, var, all);
    return f;
}

Stmt *nest_combine_lanes(Build *b, const Expr *at, int64_t tile_size) {
    Nest *n = b->n;
    Exprs *x = b->x;
    DType dt = (DType)b->acc->dt;
    ExprOp combine = combine_expr(n->op->combine);
    int64_t lanes = n->loop[n->lane_loop].extent;
    int rows = b->n_tile - 1; /* the lanes are the last loop of the tile */
    Stmt *list = NULL, *row = NULL;
    int lane = kernel_buffer(b->p, b->k, "lane", SPACE_reg, dt, 1, &tile_size);
    stmt_append(&list, nest_new_alloc(b, lane));
    stmt_append(&list, nest_wrap(b, b->n_tile, b->tile, nest_new_store(b, lane, at, b->acc)));
    const Expr *to[MAX_VARS] = {0};
    to[n->loop[n->lane_loop].var] = ex_i(x, 0);
    const Expr *first = nest_simplify(b, ex_subst_vars(x, at, MAX_VARS, to));
    for (int64_t left = lanes; left > 1;) {
        int64_t half = left / 2;
        int var = nest_add_var(b, arena_printf(b->p->arena, "half%lld", (long long)half), half);
        const Expr *low = ex_add(x, first, ex_var(x, var));
        const Expr *high = ex_add(x, low, ex_i(x, left - half));
        const Expr *both =
            ex_bin(x, combine, ex_load(x, dt, lane, 1, &low), ex_load(x, dt, lane, 1, &high));
        Stmt *loop = nest_new_for(b, var, half, ROLE_vector);
        loop->body = nest_new_store(b, lane, low, both);
        stmt_append(&row, loop);
        left -= half;
    }
    b->acc = ex_load(x, dt, lane, 1, &first);
    const Expr *rest = NULL; /* behind the last whole vector, in a run */
    int64_t least, most = n->lane_tail;
    if (b->lane_limit) {
        rest = nest_simplify(b, ex_bin(x, EX_rem, b->lane_limit, ex_i(x, lanes)));
        if (!kernel_bounds(b->k, x, rest, &least, &most)) most = lanes - 1;
    }
    if (most > 0) {
        int t = nest_add_var(b, "tail", most);
        Stmt *loop = nest_new_for(b, t, most, ROLE_serial);
        if (rest) loop->extent = rest;
        loop->body = nest_new_store(b, lane, first, ex_bin(x, combine, b->acc, tail_body(b, t)));
        int others[NEST_MAX_LOOPS], count = 0; /* the reduction's, in which the tail comes again */
        for (int i = 0; i < n->n_order; i++)
            if (n->loop[n->order[i]].reduce && n->order[i] != n->lane_outer &&
                n->order[i] != n->lane_loop)
                others[count++] = n->order[i];
        stmt_append(&row, nest_wrap(b, count, others, loop));
    }
    const Finish f = finish_rows(b, rows, tile_size / lanes);
    if (f.done < 0) {
        stmt_append(&row, nest_store_output(b, nest_rewrite(b, n->op->post)));
        stmt_append(&list, nest_wrap(b, rows, b->tile, row));
        return list;
    }
    const Expr *own = nest_tile_index(b, rows);
    stmt_append(&row, nest_new_store(b, f.sum, own, b->acc));
    Stmt *store = nest_store_output(b, ex_load(x, DT_f32, f.done, 1, &own));
    stmt_append(&list, f.clear);
    stmt_append(&list, nest_wrap(b, rows, b->tile, row));
    stmt_append(&list, f.finish);
    stmt_append(&list, nest_wrap(b, rows, b->tile, store));
    return list;
}

/* The statement with other expressions for the kernel's variables. */
static Stmt *with_vars(Build *b, const Stmt *from, const Expr *const *to) {
    Stmt *s = arena_copy(b->p->arena, from, sizeof *from);
    const Expr **part[] = {&s->extent, &s->value};
    for (int i = 0; i < 2; i++)
        if (*part[i]) *part[i] = nest_simplify(b, ex_subst_vars(b->x, *part[i], b->k->vars.n, to));
    if (s->kind == ST_store) {
        s->index = ARENA_ARRAY(b->p->arena, 1, const Expr *);
        s->index[0] = nest_simplify(b, ex_subst_vars(b->x, from->index[0], b->k->vars.n, to));
    }
    if (s->body) s->body = with_vars(b, s->body, to);
    if (s->other) s->other = with_vars(b, s->other, to);
    if (s->next) s->next = with_vars(b, s->next, to);
    return s;
}

/* What is done with the sums of a tile, as a loop over parts of a few rows that may be finished
 * while the sums of the next tile are added up (codegen/later.c). NULL: the nest does not ask for
 * that, or the loops are bounded by what a run finds. */
static Stmt *finish_parts(Build *b, Stmt *store) {
    const int count = b->n_tile;
    const bool unit = nest_has_unit(b->n);
    if (b->n->target->blocks || count < 2) return NULL;
    const int column = b->tile[count - 1], row = b->tile[count - 2];
    if (!unit && b->n->later_loop != row) return NULL;
    const NestLoop *rows = &b->n->loop[row];
    for (int i = 0; i < count; i++)
        if (b->until[b->tile[i]] || b->inside[b->tile[i]]) return NULL;
    const int64_t each = unit ? tile_part(rows->extent, b->n->loop[column].extent) : b->n->later;
    int64_t stretch = rows->extent / each, parts = stretch;
    if (count > 2) parts *= b->n->loop[b->tile[0]].extent;
    const int part = nest_add_var(b, "done", parts), one = nest_add_var(b, "row", each);
    const Expr **to = ARENA_ARRAY(b->p->arena, b->k->vars.n, const Expr *);
    const Expr *at = ex_var(b->x, part), *within = at;
    if (count > 2) {
        to[b->n->loop[b->tile[0]].var] = ex_div(b->x, at, ex_i(b->x, stretch));
        within = ex_bin(b->x, EX_rem, at, ex_i(b->x, stretch));
    }
    to[rows->var] = ex_add(b->x, ex_mul(b->x, within, ex_i(b->x, each)), ex_var(b->x, one));
    Stmt *loop = nest_new_for(b, part, parts, ROLE_later),
         *body = nest_new_for(b, one, each, ROLE_unroll);
    store = with_vars(b, store, to);
    body->body = nest_wrap(b, 1, &column, store);
    const NestLoop *columns = &b->n->loop[column];
    const Part what = {store, part, one, columns->var, parts, each, columns->extent};
    if (unit) loop->body = nest_fetch_results(b->n, b->k, b->args, &what);
    stmt_append(&loop->body, body);
    return loop;
}

/* Are functions computed of one row of sums after the other, in a loop? Of all rows at once, their
 * constants and what comes of them would take registers from the loop over the depth, which needs
 * all of them where a wide tile has several steps in an iteration (repeats_of in schedule.c). */
static bool by_rows(const Build *b, const Expr *post) {
    const Nest *n = b->n;
    bool repeats = false;
    for (int i = 0; i < n->n_order; i++) repeats |= n->loop[n->order[i]].role == ROLE_repeat;
    if (!repeats || b->n_tile != 2) return false;
    const NestLoop *row = &n->loop[b->tile[0]], *column = &n->loop[b->tile[1]];
    const int64_t bytes = column->extent * (int64_t)dt_store((DType)b->acc->dt);
    return row->role == ROLE_unroll && column->role == ROLE_vector &&
           bytes > KEPT_VECTORS * n->target->vector_bytes && ex_slow_cycles(b->p->arena, post) > 0;
}

/* `store` in the iterations of the tile's loops but the last, from loop `at` of it on, with the
 * condition around each vector. */
static void finish_inside(Build *b, const Stmt *store, int at, const Expr **to, Stmt **list) {
    const NestLoop *l = &b->n->loop[b->tile[at]];
    if (at < b->n_tile - 1) {
        for (int64_t i = 0; i < l->extent; i++) {
            to[l->var] = ex_i(b->x, i);
            finish_inside(b, store, at + 1, to, list);
        }
        return;
    }
    Stmt *own = with_vars(b, store, to), *loop = nest_new_for(b, l->var, l->extent, l->role);
    const bool guarded = own->kind == ST_if;
    loop->body = guarded ? own->body : own;
    stmt_append(list, nest_new_if(b, guarded ? own->value : NULL, loop));
}

Stmt *nest_finish_lines(Build *b, Stmt *store, const Expr *post) {
    const Expr *to[MAX_VARS] = {0};
    Stmt *list = NULL;
    if (!b->guard[0]) return nest_finish_tile(b, store, post);
    finish_inside(b, store, 0, to, &list);
    return list;
}

Stmt *nest_finish_tile(Build *b, Stmt *store, const Expr *post) {
    Stmt *parts = finish_parts(b, store);
    if (parts) return parts;
    if (!by_rows(b, post)) return nest_wrap(b, b->n_tile, b->tile, store);
    Role *row =
        &b->n->loop[b->tile[0]].role; /* of the loops around the sums, it stays what it is */
    *row = ROLE_serial;
    store = nest_wrap(b, b->n_tile, b->tile, store);
    *row = ROLE_unroll;
    return store;
}
