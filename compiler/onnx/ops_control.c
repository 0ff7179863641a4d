/* Repetition: Loop and Scan. (If is in ops_if.c.)
 *
 * Everything here is settled when compiling. A repetition becomes a `loop` of the IR; the number of
 * iterations is constant or a dimension that varies. Where it may end earlier, the loop carries one
 * more state, `alive`; once that is false the other states keep their values, and of stacked
 * outputs there are as many rows as there were iterations: their number varies. (Where the model
 * fixes it there are so many, and those behind the end are meaningless.) Where it would go on after
 * its bound, the run has a fault.
 *
 * A loop needs carried values of fixed shapes. Where a body changes them, where it carries
 * sequences, or where it needs the number of the iteration as a constant, iterations are imported
 * one by one instead: first one, for many loops settle after it, then all, as far as MAX_UNROLL.
 * Where there are more of them, or their number varies, tensors whose extents a body changes are
 * carried with room for the largest (carry.h).
 */
#include "compiler/onnx/carry.h"
#include "ir/constant.h"

#include <string.h>

#define MAX_UNROLL 64
#define MAX_TRIES  40 /* to find how much room carried values need */

#define TOO_MANY_SYMBOLS "more than %d dimensions that vary"

/* --- repetition ------------------------------------------------------------------------------- */

typedef struct Repeat {
    Node *n;
    const Onnx__GraphProto *body;
    bool is_loop;   /* the body begins with iteration number and condition, and gives a condition */
    int64_t trips;  /* at most; may be a dimension that varies */
    int64_t done;   /* iterations imported so far */
    bool stopped;   /* no more of them for certain */
    Value *alive;   /* bool: whether the next iteration takes place; NULL: it does */
    Value *limit;   /* i64: number of iterations known at run time only; NULL: `trips` */
    bool zero_rows; /* rows after the end are zeros */
    int n_state;
    Entity **state; /* carried values, as after `done` iterations */
    Carry *carry;   /* how a loop carries them; NULL: with the extents that they have ... */
    bool claims;    /* ... which those after an iteration are taken to be, where they may be */
    int n_slices;   /* Scan: values of which each iteration gets one slice ... */
    Value **sliced;
    int *axis;              /* ... along this axis ... */
    bool *backward;         /* ... from the end */
    int n_rows;             /* outputs that are stacked */
    ValueVec *rows;         /* for each the parts so far, stacked along dimension 0 */
    ValueVec ran;           /* parts alike, bool: whether the iteration took place */
    bool bounded;           /* `trips` is not of the loop itself: it might go on */
    const char *bound_name; /* what --dim calls the greatest number of iterations */
    int64_t
        n_rows_found; /* rows that there are where iterations may be left out; -1: not asked yet */
} Repeat;

/* The values that one iteration works on, in the graph that it is imported to. */
typedef struct Turn {
    Graph *g;
    const Expr *number; /* of the iteration, i32 */
    Entity **state;
    Value **sliced;
    Value *alive, *limit;
    bool ends; /* set: it is the last one for certain */
    Value **row;
} Turn;

static Turn turn_new(const Repeat *r, Graph *g, const Expr *number) {
    return (Turn){.g = g,
                  .number = number,
                  .state = ARENA_ARRAY(g->arena, r->n_state + 1, Entity *),
                  .sliced = ARENA_ARRAY(g->arena, r->n_slices + 1, Value *),
                  .row = ARENA_ARRAY(g->arena, r->n_rows + 1, Value *)};
}

/* v without dimension `axis`, at a position along it. */
static Value *take_slice(Graph *g, Value *v, int axis, const Expr *at) {
    int64_t shape[MAX_RANK];
    const Expr *index[MAX_RANK];
    for (int i = 0, k = 0; i < v->rank; i++) {
        index[i] = i == axis ? at : ex_var(g->x, k);
        if (i != axis) shape[k++] = v->dims[i];
    }
    Builder b = build(g, v->rank - 1, shape);
    return build_map(&b, v->dt, build_load(&b, v, index));
}

/* A scalar for the body's input i; rank 1 if it is declared so. */
static Entity *scalar_input(const Repeat *r, Graph *g, int i, Value *v) {
    const Onnx__TypeProto *type = r->body->input[i]->type;
    bool vector = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
                  type->tensor_type->shape && type->tensor_type->shape->n_dim == 1;
    static const int64_t one[1] = {1};
    return entity_tensor(r->n->im, vector ? g_reshape(g, v, 1, one) : v);
}

static Value *both(Graph *g, Value *a, Value *b) {
    return !a ? b : !b ? a : g_bin(g, EX_and, a, b);
}

/* i + 1 < limit */
static Value *within_limit(Graph *g, const Expr *number, Value *limit) {
    Builder b = build(g, 0, NULL);
    const Expr *next = ex_add(g->x, ex_cast(g->x, DT_i64, number), ex_int(g->x, DT_i64, 1));
    const Expr *bound = ex_cast(g->x, DT_i64, build_in(&b, limit));
    return build_map(&b, DT_bool, ex_lt(g->x, next, bound));
}

/* What follows from the body's condition and the limit for the turn after this one. */
static bool next_alive(const Repeat *r, Turn *t, const Entity *condition) {
    Value *go_on = NULL;
    if (condition) {
        if (condition->kind != ENTITY_tensor || value_numel(condition->tensor) != 1 ||
            condition->tensor->dt != DT_bool) {
            invalid(r->n, E2005, "the body's condition must be one element, a bool");
            return false;
        }
        int64_t known;
        go_on = condition->tensor;
        if (go_on->rank) go_on = g_reshape(t->g, go_on, 0, NULL);
        if (const_scalar(go_on, &known)) {
            t->ends = !known;
            go_on = NULL;
        }
    }
    if (t->limit) go_on = both(t->g, go_on, within_limit(t->g, t->number, t->limit));
    t->alive = both(t->g, t->alive, go_on);
    return true;
}

/* Imports the body for one turn, whose state, alive and row become those after it; the state as if
 * the turn took place. */
static bool run_turn(const Repeat *r, Turn *t, ValueVec *captured) {
    Node *n = r->n;
    Exprs *x = n->x;
    Arena *arena = t->g->arena;
    int skip = r->is_loop ? 2 : 0, skip_out = r->is_loop ? 1 : 0;
    Entity **in = ARENA_ARRAY(arena, r->body->n_input + 1, Entity *);
    Entity **out = ARENA_ARRAY(arena, r->body->n_output + 1, Entity *);
    if (r->is_loop) {
        Builder b = build(t->g, 0, NULL);
        in[0] = scalar_input(r, t->g, 0, build_map(&b, DT_i64, ex_cast(x, DT_i64, t->number)));
        in[1] = scalar_input(r, t->g, 1, g_scalar(t->g, DT_bool, 1));
    }
    for (int i = 0; i < r->n_state; i++) in[skip + i] = t->state[i];
    for (int i = 0; i < r->n_slices; i++) {
        const Expr *at = t->number;
        if (r->backward[i]) at = ex_sub(x, ex_i(x, r->trips - 1), at);
        if (r->backward[i] && dim_varies(r->trips)) at = ex_bin(x, EX_max, at, ex_i(x, 0));
        Value *v = take_slice(t->g, t->sliced[i], r->axis[i], at);
        in[skip + r->n_state + i] = entity_tensor(n->im, v);
    }
    Faults before = graph_begin_faults(t->g);
    if (!import_subgraph(n, r->body, t->g, in, out, captured)) {
        graph_drop_faults(t->g, &before);
        return false;
    }
    Value *alive = t->alive;
    graph_end_faults(t->g, &before, alive);
    if (!next_alive(r, t, r->is_loop ? out[0] : NULL)) return false;
    for (int i = 0; i < r->n_state; i++) t->state[i] = out[skip_out + i];
    for (int i = 0; i < r->n_rows; i++) {
        const Entity *row = out[skip_out + r->n_state + i];
        if (row->kind == ENTITY_text) {
            unsupported(n, "a stacked output of strings");
            return false;
        }
        if (row->kind != ENTITY_tensor) {
            invalid(n, E2006, "stacked output %d is no tensor", i);
            return false;
        }
        t->row[i] = row->tensor;
        if (alive && r->zero_rows)
            t->row[i] = g_where(t->g, alive, row->tensor, g_scalar(t->g, row->tensor->dt, 0));
    }
    return true;
}

/* An outer value inside of a loop's body; see import_subgraph. */
static Value *inside(Graph *sub, Value *v, ValueVec *captured) {
    if (value_is_const(v)) return constant_like(sub, v, v->rank, v->dims);
    vec_push(sub->arena, captured, v);
    return graph_captured(sub, v);
}

/* Does state i travel with room for extents that change? */
static bool state_changes(const Repeat *r, int i) {
    return r->carry && carry_changes(&r->carry[i]);
}

/* The values that travel for the states, from one iteration to the next. */
static ValueVec travelling(const Repeat *r, Graph *g, Entity *const *state) {
    ValueVec parts = {0};
    for (int i = 0; i < r->n_state; i++) {
        if (state_changes(r, i))
            carry_pack(&r->carry[i], g, state[i]->tensor, &parts);
        else
            vec_push(g->arena, &parts, state[i]->tensor);
    }
    return parts;
}

/* The states of which `parts` travelled; `trips`: see carry_unpack. False after a report. */
static bool arrived(const Repeat *r, Graph *g, Value *const *parts, int64_t trips, Entity **state) {
    for (int i = 0, at = 0; i < r->n_state; i++) {
        Value *v =
            state_changes(r, i) ? carry_unpack(&r->carry[i], g, parts, &at, trips) : parts[at++];
        if (!v) {
            unsupported(r->n, TOO_MANY_SYMBOLS, DIM_MAX_SYMBOLS);
            return false;
        }
        state[i] = entity_tensor(r->n->im, v);
    }
    return true;
}

/* A state after an iteration with the extents that it had before, which is claimed; false if it
 * cannot be. */
static bool claim_shape(Graph *sub, const Value *before, Entity **after, Import *im) {
    Value *v = (*after)->tensor;
    if (v->dt != before->dt || !dims_meet(sub->x, v->rank, v->dims, before->rank, before->dims))
        return false;
    graph_note_claims(sub);
    *after = entity_tensor(im, in_room(sub, v, before->dims));
    return true;
}

/* Are the states after an iteration what the loop carries? If not, *again is set where r->carry has
 * been changed so that they may be. */
static bool states_keep(Repeat *r, Graph *g, Entity *const *before, Entity **after, bool *again) {
    int64_t trips = dim_max(g->x, r->trips) - r->done;
    for (int i = 0; i < r->n_state; i++) {
        bool tensors = after[i]->kind == ENTITY_tensor;
        if (tensors && !r->carry && same_type(after[i]->tensor, before[i]->tensor)) continue;
        if (tensors && r->claims && claim_shape(g, before[i]->tensor, &after[i], r->n->im))
            continue;
        if (tensors && r->carry &&
            carry_learn(&r->carry[i], g, before[i]->tensor, after[i]->tensor, trips, again))
            continue;
        *again = false;
        return false;
    }
    return !*again;
}

/* Imports the body of all iterations that are left as one loop. False, perhaps after reports, if
 * the body does not repeat itself; *again is set if it may with r->carry as it is now. */
static bool try_loop(Repeat *r, bool *again) {
    Node *n = r->n;
    Graph *g = n->g, *sub = graph_new_sub(g);
    Exprs *x = g->x;
    const Expr *number = ex_add(x, ex_ctr(x, sub->depth - 1), ex_i(x, r->done));
    Turn t = turn_new(r, sub, number);
    ValueVec captured = {0}, given = travelling(r, g, r->state), brought = {0};
    /* whether `alive` is needed shows afterwards; then it is the first state */
    Value *alive = graph_input(sub, "alive", DT_bool, 0, NULL);
    for (int i = 0; i < given.n; i++) {
        const Value *v = given.items[i];
        vec_push(g->arena, &brought, graph_input(sub, v->name, v->dt, v->rank, v->dims));
    }
    Entity **before = ARENA_ARRAY(g->arena, r->n_state + 1, Entity *);
    if (!arrived(r, sub, brought.items, -1, before)) return false;
    for (int i = 0; i < r->n_state; i++) t.state[i] = before[i];
    t.alive = r->alive ? alive : NULL;
    if (r->limit) t.limit = inside(sub, r->limit, &captured);
    for (int i = 0; i < r->n_slices; i++) t.sliced[i] = inside(sub, r->sliced[i], &captured);
    if (!run_turn(r, &t, &captured) || t.ends) return false;
    if (!states_keep(r, sub, before, t.state, again)) return false;
    for (int i = 0; i < r->n_rows; i++) {
        if (graph_has_extents(g, t.row[i])) continue;
        unsupported(n, "a stacked output whose number of elements the body finds");
        return false;
    }
    bool ends_early = t.alive != NULL, folds = captured.n == 0 && !r->alive;
    for (int i = 0; i < r->n_state; i++) folds = folds && value_is_const(r->state[i]->tensor);
    /* what is constant from beginning to end is computed now, turn by turn */
    if (folds && !dim_varies(r->trips) && r->trips - r->done <= MAX_UNROLL) return false;
    ValueVec next = travelling(r, sub, t.state);
    int first = ends_early ? 1 : 0, n_state = next.n + first, n_in = 0;
    if (ends_early) {
        Value *go_on = t.alive;
        if (!r->alive) graph_limit_fault(sub, alive);
        graph_output(sub, r->alive ? go_on : both(sub, alive, go_on), "alive");
    } else {
        graph_unlink(sub, alive->def);
        sub->inputs.n--;
        memmove(sub->inputs.items, sub->inputs.items + 1,
                (size_t)sub->inputs.n * sizeof *sub->inputs.items);
    }
    for (int i = 0; i < next.n; i++) {
        Value *v = next.items[i];
        if (ends_early && v != brought.items[i]) v = g_where(sub, alive, v, brought.items[i]);
        graph_output(sub, v, "state");
    }
    for (int i = 0; i < r->n_rows; i++) graph_output(sub, t.row[i], "row");
    if (ends_early && r->n_rows) graph_output(sub, alive, "ran");
    Value **in = ARENA_ARRAY(g->arena, n_state + captured.n + 1, Value *);
    Value **out = ARENA_ARRAY(g->arena, n_state + r->n_rows + 2, Value *);
    if (ends_early) in[n_in++] = r->alive ? r->alive : g_scalar(g, DT_bool, 1);
    for (int i = 0; i < given.n; i++) in[n_in++] = given.items[i];
    for (int i = 0; i < captured.n; i++) in[n_in++] = captured.items[i];
    int64_t trips = dim_sub(x, r->trips, r->done);
    build_loop(g, sub, trips, n_state, n_in, in, out);
    if (ends_early) r->alive = out[0];
    if (!arrived(r, g, out + first, ends_early ? -1 : trips, r->state)) return false;
    for (int i = 0; i < r->n_rows; i++) vec_push(g->arena, &r->rows[i], out[n_state + i]);
    if (ends_early && r->n_rows) vec_push(g->arena, &r->ran, out[n_state + r->n_rows]);
    r->done = r->trips;
    return true;
}

/* The same with room for what changes its extents, if `changing`. */
static bool repeat_as_loop(Repeat *r, bool changing) {
    Node *n = r->n;
    for (int i = 0; i < r->n_state; i++)
        if (r->state[i]->kind != ENTITY_tensor) return false;
    r->carry = changing ? ARENA_ARRAY(n->g->arena, r->n_state + 1, Carry) : NULL;
    for (int i = 0; changing && i < r->n_state; i++)
        r->carry[i] = carry_of(n->g, r->state[i]->tensor);
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        Attempt a = attempt_begin(n);
        bool again = false, done = try_loop(r, &again);
        if (again) attempt_undo(n, &a);
        n->failed |= a.failed;
        if (!again) return done;
    }
    unsupported(n, "the extents of carried values grow without a bound that shows");
    return false;
}

/* Imports one iteration into the graph around. */
static bool repeat_once(Repeat *r) {
    Graph *g = r->n->g;
    Turn t = turn_new(r, g, ex_i(g->x, r->done));
    t.alive = r->alive;
    t.limit = r->limit;
    for (int i = 0; i < r->n_state; i++) t.state[i] = r->state[i];
    for (int i = 0; i < r->n_slices; i++) t.sliced[i] = r->sliced[i];
    if (!run_turn(r, &t, NULL)) return false;
    for (int i = 0; r->alive && i < r->n_state; i++) {
        Entity *kept = select_entity(r->n, g, r->alive, t.state[i], r->state[i], true);
        bool alike = r->state[i]->kind == ENTITY_tensor && t.state[i]->kind == ENTITY_tensor &&
                     r->state[i]->tensor->dt == t.state[i]->tensor->dt &&
                     r->state[i]->tensor->rank == t.state[i]->tensor->rank;
        if (!kept && alike) unsupported(r->n, TOO_MANY_SYMBOLS, DIM_MAX_SYMBOLS);
        if (!kept && !alike)
            unsupported(r->n,
                        "carried value %d changes from %s to %s, and whether it does is known "
                        "only at run time",
                        i, entity_text(g->arena, r->state[i]), entity_text(g->arena, t.state[i]));
        if (!kept) return false;
        t.state[i] = kept;
    }
    static const int64_t single[1] = {1};
    Value *ran = r->alive ? r->alive : g_scalar(g, DT_bool, 1);
    vec_push(g->arena, &r->ran, g_reshape(g, ran, 1, single));
    r->state = t.state;
    r->alive = t.alive;
    int64_t known;
    if (r->alive && const_scalar(r->alive, &known)) {
        t.ends |= !known;
        r->alive = NULL;
    }
    r->stopped = t.ends;
    r->done++;
    for (int i = 0; i < r->n_rows; i++) {
        int64_t shape[MAX_RANK + 1] = {1};
        for (int k = 0; k < t.row[i]->rank; k++) shape[k + 1] = t.row[i]->dims[k];
        if (!node_shape_ok(r->n, t.row[i]->rank + 1, shape)) return false;
        vec_push(g->arena, &r->rows[i], g_reshape(g, t.row[i], t.row[i]->rank + 1, shape));
    }
    return true;
}

/* Without an iteration the stacked outputs are empty; their shapes are found by importing the body
 * in vain. */
static bool empty_rows(Repeat *r) {
    Node *n = r->n;
    Graph *sub = graph_new_sub(n->g);
    Turn t = turn_new(r, sub, ex_ctr(sub->x, sub->depth - 1));
    ValueVec captured = {0};
    for (int i = 0; i < r->n_state; i++) t.state[i] = r->state[i];
    for (int i = 0; i < r->n_state; i++)
        if (r->state[i]->kind == ENTITY_tensor)
            t.state[i] = entity_tensor(n->im, inside(sub, r->state[i]->tensor, &captured));
    for (int i = 0; i < r->n_slices; i++) {
        const Value *v = r->sliced[i];
        int64_t shape[MAX_RANK];
        for (int k = 0; k < v->rank; k++) shape[k] = k == r->axis[i] ? 1 : v->dims[k];
        t.sliced[i] = graph_input(sub, v->name, v->dt, v->rank, shape);
    }
    if (!run_turn(r, &t, &captured)) return false;
    for (int i = 0; i < r->n_rows; i++) {
        int64_t shape[MAX_RANK + 1] = {0};
        const Value *row = t.row[i];
        for (int k = 0; k < row->rank; k++) shape[k + 1] = row->dims[k];
        if (!node_shape_ok(n, row->rank + 1, shape)) return false;
        vec_push(n->g->arena, &r->rows[i],
                 graph_const(n->g, row->dt, row->rank + 1, shape, arena_alloc(n->g->arena, 16)));
    }
    return true;
}

/* Runs all iterations; r->state and r->rows hold what they give. False after reports. */
static bool repeat(Repeat *r) {
    Node *n = r->n;
    graph_note_claims(n->g); /* nodes of the body begin with their own */
    r->rows = ARENA_ARRAY(n->g->arena, r->n_rows + 1, ValueVec);
    int64_t known;
    if (r->alive && const_scalar(r->alive, &known)) {
        r->stopped = !known;
        r->alive = NULL;
    }
    r->n_rows_found = -1;
    if (dim_varies(r->trips) && !r->stopped) {
        Attempt before = attempt_begin(n);
        bool done = repeat_as_loop(r, true);
        if (!done) { /* perhaps because of what is stacked */
            attempt_undo(n, &before);
            n->failed = false;
            r->claims = true;
            done = repeat_as_loop(r, false);
        }
        if (!done && !n->failed)
            unsupported(n,
                        "carried values change their ranks, types or extents, or are no tensors, "
                        "and the number of iterations varies");
        n->failed |= before.failed;
        return done;
    }
    if (r->trips <= 0) r->stopped = true;
    bool bounded = r->trips <= INT32_MAX;
    for (int attempts = 0; r->done < r->trips && !r->stopped;) {
        bool many = !bounded || r->trips - r->done > MAX_UNROLL;
        if (bounded && r->trips - r->done > 1 && attempts < 2) {
            Attempt a = attempt_begin(n);
            bool done = repeat_as_loop(r, false);
            if (!done && (r->alive || (many && attempts == 1))) {
                attempt_undo(n, &a);
                done = repeat_as_loop(r, true);
            }
            if (done) {
                n->failed = a.failed;
                break;
            }
            attempts++;
            if (many && attempts == 2) {
                if (!n->failed)
                    unsupported(n,
                                "carried values change their ranks, types or extents, or are no "
                                "tensors, and there are more than %d iterations",
                                MAX_UNROLL);
                return false;
            }
            attempt_undo(n, &a);
        }
        if (r->done >= MAX_UNROLL || (!bounded && r->alive)) {
            invalid(
                n, E3004,
                "how many iterations there are depends on run-time data, and the model does not "
                "say; give --dim %s=LOW..HIGH",
                r->bound_name);
            return false;
        }
        if (!repeat_once(r)) return false;
    }
    if (r->done == 0 && r->n_rows && !empty_rows(r)) return false;
    return !n->failed;
}

/* How many of the rows of stacked output i there are: all, if the model fixes their number or every
 * iteration takes place. False after a report. */
static bool rows_found(Repeat *r, int i, int64_t all, int64_t *found) {
    Node *n = r->n;
    const char *name;
    bool certain = r->zero_rows;
    for (int k = 0; k < r->ran.n; k++) {
        int64_t known;
        const Value *part = r->ran.items[k];
        certain |=
            k == r->ran.n - 1 && value_numel(part) == 1 && const_scalar(part, &known) && known;
    }
    *found = all;
    if (certain || !r->ran.n) return true;
    if (node_declared_extent(n, r->n_state + i, 0, found, &name)) {
        *found = dim_smaller(n->x, *found, all);
        return true;
    }
    if (r->n_rows_found < 0 && !dim_varies(r->n_rows_found)) {
        Value *ran = g_concat(n->g, r->ran.n, r->ran.items, 0);
        Value *count = g_reduce(n->g, COMBINE_sum, g_cast(n->g, ran, DT_i64), 1, false);
        int64_t most = dim_smaller(n->x, ran->dims[0], node_most_extent(n, name, INT32_MAX));
        if (!node_counted_extent(n, count, most, true, name, &r->n_rows_found)) return false;
    }
    *found = dim_smaller(n->x, r->n_rows_found, all);
    return true;
}

static Value *first_rows(Graph *g, Value *v, int64_t found) {
    if (found == v->dims[0]) return v;
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK], count[MAX_RANK];
    for (int k = 0; k < v->rank; k++) {
        step[k] = 1;
        count[k] = k ? v->dims[k] : found;
    }
    return g_slice(g, v, start, step, count);
}

/* The parts of stacked output i as one. NULL after a report. */
static Value *stacked(Repeat *r, int i) {
    const ValueVec *rows = &r->rows[i];
    for (int k = 1; k < rows->n; k++) {
        const Value *a = rows->items[0];
        Value *b = rows->items[k];
        if (a->dt != b->dt || a->rank != b->rank ||
            !dims_meet(r->n->x, a->rank - 1, a->dims + 1, b->rank - 1, b->dims + 1)) {
            if (dims_vary(a->rank, a->dims) || dims_vary(b->rank, b->dims))
                unsupported(r->n, "a stacked output whose number of elements the body finds");
            else
                invalid(r->n, E2005, "stacked output %d changes its shape", i);
            return NULL;
        }
        int64_t dims[MAX_RANK + 1] = {b->dims[0]};
        memcpy(dims + 1, a->dims + 1, sizeof(int64_t) * (size_t)(a->rank - 1));
        rows->items[k] = in_room(r->n->g, b, dims);
    }
    Value *all = g_concat(r->n->g, rows->n, rows->items, 0);
    int64_t found;
    if (!rows_found(r, i, all->dims[0], &found)) return NULL;
    return first_rows(r->n->g, all, found);
}

/* --- Loop ------------------------------------------------------------------------------------- */

/* The greatest number of iterations; INT64_MAX if nothing tells. */
static int64_t loop_bound(Repeat *r, Value *count) {
    Node *n = r->n;
    int64_t trips = INT64_MAX, known;
    int n_dims, first = 0;
    if (count && const_scalar(count, &known)) {
        trips = known;
    } else if (count) {
        const int64_t *dims = value_dims(n->g, count, &n_dims);
        if (dims) return dim_larger(n->x, dims[0], 0);
        r->limit = count;
    }
    while (first < n->n_out - 1 && !node_wants(n, first)) first++;
    r->bound_name = arena_printf(n->g->arena, "%s.trips", n->n_out ? n->proto->output[first] : "");
    if (trips <= INT32_MAX) return trips;
    for (int i = 0; i < r->n_rows; i++) {
        int64_t extent;
        const char *name;
        if (!node_wants(n, r->n_state + i)) continue;
        if (!node_declared_extent(n, r->n_state + i, 0, &extent, &name))
            extent = node_most_extent(n, name, -1);
        r->bounded = extent >= 0 || dim_varies(extent);
        if (r->bounded) return extent;
        r->bound_name = name;
    }
    known = node_most_extent(n, r->bound_name, -1);
    r->bounded = known >= 0;
    return r->bounded ? known : trips;
}

typedef struct Found {
    const Exprs *x;
    bool any;
} Found;

static void note_found(void *user, const Expr *e) {
    Found *f = user;
    if (e->op == EX_var && e->k.i >= DIM_VAR)
        f->any |= !dim_symbol_range(f->x, (int)e->k.i - DIM_VAR).name;
}

/* Does the extent follow from what a run computes, not from the inputs' extents alone? */
static bool found_in_run(Graph *g, int64_t extent) {
    Found f = {.x = g->x};
    if (dim_varies(extent)) ex_visit(g->arena, dim_expr(g->x, extent), note_found, &f);
    return f.any;
}

/* Output i with the extents that the model fixes, where a run finds those of `e`: they must be the
 * same. */
static Entity *as_declared(Node *n, int i, Entity *e) {
    if (e->kind != ENTITY_tensor) return e;
    Value *v = e->tensor;
    int64_t dims[MAX_RANK];
    bool fixed = false;
    for (int k = 0; k < v->rank; k++) {
        const char *name;
        int64_t extent;
        dims[k] = v->dims[k];
        if (!found_in_run(n->g, dims[k]) || !node_declared_extent(n, i, k, &extent, &name) ||
            dim_varies(extent))
            continue;
        node_check_count(n, g_dim(n->g, DT_i64, dims[k]), extent, extent);
        dims[k] = extent;
        fixed = true;
    }
    return fixed ? entity_tensor(n->im, in_room(n->g, v, dims)) : e;
}

void import_loop(Node *n) {
    Graph *g = n->g;
    Repeat r = {.n = n, .body = attr_graph(n, "body"), .is_loop = true};
    if (!r.body) {
        if (!n->failed) invalid(n, E2004, "attribute 'body' is missing");
        return;
    }
    r.n_state = n->n_in > 2 ? n->n_in - 2 : 0;
    r.n_rows = (int)r.body->n_output - 1 - r.n_state;
    if ((int)r.body->n_input != r.n_state + 2 || r.n_rows < 0 || n->n_out > r.n_state + r.n_rows) {
        invalid(n, E2007, "the body has %zu inputs and %zu outputs, the node %d and %d",
                r.body->n_input, r.body->n_output, n->n_in, n->n_out);
        return;
    }
    r.state = ARENA_ARRAY(g->arena, r.n_state + 1, Entity *);
    for (int i = 0; i < r.n_state; i++) {
        r.state[i] = n->entity[i + 2];
        if (r.state[i]) continue;
        node_need(n, i + 2);
        return;
    }
    Value *count = as_scalar(n, node_in(n, 0), "the number of iterations");
    r.alive = as_condition(n, node_in(n, 1));
    if (n->failed) return;
    r.trips = loop_bound(&r, count);
    if (r.limit) {
        Value *some = within_limit(g, ex_i(g->x, -1), r.limit);
        r.alive = both(g, r.alive, some);
    }
    if (!repeat(&r)) return;
    if (r.bounded && !r.stopped)
        graph_note_fault(g, r.alive ? r.alive : g_scalar(g, DT_bool, 1), "too many iterations");
    for (int i = 0; i < r.n_state; i++) set_output(n, i, as_declared(n, i, r.state[i]));
    for (int i = 0; i < r.n_rows && r.n_state + i < n->n_out; i++)
        n->out[r.n_state + i] = stacked(&r, i);
}

/* --- Scan ------------------------------------------------------------------------------------- */

/* Attributes of Scan, one number for each input or output that is scanned; zeros where absent. */
static const int64_t *scan_list(Node *n, const char *name, int want) {
    int count;
    const int64_t *given = attr_ints(n, name, &count);
    if (!given) return ARENA_ARRAY(n->g->arena, want + 1, int64_t);
    if (count == want) return given;
    invalid(n, E2004, "attribute '%s' has %d numbers, expected %d", name, count, want);
    return NULL;
}

/* Sets r->trips to the common extent. */
static bool scan_slices(Repeat *r, const int64_t *axes, const int64_t *directions) {
    Node *n = r->n;
    r->axis = ARENA_ARRAY(n->g->arena, r->n_slices + 1, int);
    r->backward = ARENA_ARRAY(n->g->arena, r->n_slices + 1, bool);
    for (int i = 0; i < r->n_slices; i++) {
        Value *v = r->sliced[i];
        r->axis[i] = node_axis(n, axes[i], v->rank);
        r->backward[i] = directions[i] != 0;
        if (r->axis[i] < 0) return false;
        int64_t extent = v->dims[r->axis[i]];
        if (i && !dim_meets(n->x, extent, r->trips)) {
            invalid(n, E2005, "scanned inputs have extents %lld and %lld", (long long)r->trips,
                    (long long)extent);
            return false;
        }
        r->trips = i ? dim_smaller(n->x, r->trips, extent) : extent;
    }
    return true;
}

/* Stacked output i with its rows in the order and along the axis that are asked for. */
static Value *scan_output(Repeat *r, int i, int64_t axis, bool backward) {
    Graph *g = r->n->g;
    Value *v = stacked(r, i);
    if (!v) return NULL;
    int to = node_axis(r->n, axis, v->rank);
    if (to < 0) return NULL;
    if (backward && v->dims[0] != 0) {
        int64_t start[MAX_RANK] = {v->dims[0] - 1}, step[MAX_RANK] = {-1};
        for (int k = 1; k < v->rank; k++) step[k] = 1;
        v = g_slice(g, v, start, step, v->dims);
    }
    int perm[MAX_RANK];
    for (int k = 0; k < v->rank; k++) perm[k] = k < to ? k + 1 : k == to ? 0 : k;
    return to ? g_transpose(g, v, perm) : v;
}

/* Before version 9: a batch in dimension 0 of everything, the sequence in dimension 1, and lengths
 * of the batch's sequences as an optional first input. */
static void scan_batches(Node *n, Repeat *all, const int64_t *directions) {
    Graph *g = n->g;
    Value *lengths = node_in(n, 0);
    int n_in = all->n_state + all->n_slices, n_out = all->n_state + all->n_rows;
    int64_t found = node_in(n, 1) && node_in(n, 1)->rank ? node_in(n, 1)->dims[0] : 0;
    int64_t batches = dim_max(n->x, found); /* those beyond the batch are cut off in the end */
    for (int i = 0; i < n_in; i++) {
        const Value *v = node_need(n, i + 1);
        if (!v) return;
        if (v->rank < (i < all->n_state ? 1 : 2) || !dim_meets(n->x, v->dims[0], found)) {
            invalid(n, E2005, "input %d has no batch of %s", i + 1, dim_text(n->x, found));
            return;
        }
    }
    if (lengths && (lengths->rank != 1 || !dim_meets(n->x, lengths->dims[0], found))) {
        invalid(n, E2005, "sequence_lens must have one number for each of the batch");
        return;
    }
    if (batches < 1 || batches > MAX_UNROLL) {
        unsupported(n, "a batch of %s; from 1 to %d are supported", dim_text(n->x, found),
                    MAX_UNROLL);
        return;
    }
    Value **part = ARENA_ARRAY(g->arena, n_out * batches + 1, Value *);
    const int64_t *axes = ARENA_ARRAY(g->arena, all->n_slices + 1, int64_t);
    for (int64_t b = 0; b < batches; b++) {
        Repeat r = *all;
        const Expr *at = ex_i(g->x, b);
        r.state = ARENA_ARRAY(g->arena, r.n_state + 1, Entity *);
        r.sliced = ARENA_ARRAY(g->arena, r.n_slices + 1, Value *);
        for (int i = 0; i < r.n_state; i++)
            r.state[i] = entity_tensor(n->im, take_slice(g, n->in[i + 1], 0, at));
        for (int i = 0; i < r.n_slices; i++)
            r.sliced[i] = take_slice(g, n->in[r.n_state + i + 1], 0, at);
        if (!scan_slices(&r, axes, directions)) return;
        if (lengths) {
            r.limit = g_cast(g, take_slice(g, lengths, 0, at), DT_i64);
            r.alive = within_limit(g, ex_i(g->x, -1), r.limit);
            r.zero_rows = true;
        }
        if (!repeat(&r)) return;
        for (int i = 0; i < n_out; i++) {
            Value *v = i < r.n_state ? r.state[i]->tensor : stacked(&r, i - r.n_state);
            if (!v) return;
            int64_t shape[MAX_RANK + 1] = {1};
            for (int k = 0; k < v->rank; k++) shape[k + 1] = v->dims[k];
            if (!node_shape_ok(n, v->rank + 1, shape)) return;
            v = g_reshape(g, v, v->rank + 1, shape);
            const Value *first = b ? part[i * batches] : v;
            if (!dims_meet(n->x, first->rank, first->dims, v->rank, v->dims)) {
                invalid(n, E2005, "output %d has shapes %s and %s for two of the batch", i,
                        dims_text(n->x, first->rank, first->dims),
                        dims_text(n->x, v->rank, v->dims));
                return;
            }
            part[i * batches + b] = in_room(g, v, first->dims);
        }
    }
    for (int i = 0; i < n_out && i < n->n_out; i++)
        n->out[i] = first_rows(g, g_concat(g, (int)batches, part + i * batches, 0), found);
}

void import_scan(Node *n) {
    Graph *g = n->g;
    Repeat r = {.n = n, .body = attr_graph(n, "body")};
    int skip = n->version < 9 ? 1 : 0; /* sequence_lens */
    int64_t n_slices = attr_int(n, "num_scan_inputs", 0);
    if (!r.body || n->failed) {
        if (!n->failed) invalid(n, E2004, "attribute 'body' is missing");
        return;
    }
    if (n_slices < 1 || n_slices > n->n_in - skip) {
        invalid(n, E2004, "attribute 'num_scan_inputs' is %lld for %d inputs", (long long)n_slices,
                n->n_in);
        return;
    }
    r.n_slices = (int)n_slices;
    r.n_state = n->n_in - skip - r.n_slices;
    r.n_rows = (int)r.body->n_output - r.n_state;
    if ((int)r.body->n_input != n->n_in - skip || r.n_rows < 0 || n->n_out > r.n_state + r.n_rows) {
        invalid(n, E2007, "the body has %zu inputs and %zu outputs, the node %d and %d",
                r.body->n_input, r.body->n_output, n->n_in, n->n_out);
        return;
    }
    if (skip) {
        const int64_t *directions = scan_list(n, "directions", r.n_slices);
        if (directions) scan_batches(n, &r, directions);
        return;
    }
    const int64_t *axes = scan_list(n, "scan_input_axes", r.n_slices),
                  *directions = scan_list(n, "scan_input_directions", r.n_slices),
                  *out_axes = scan_list(n, "scan_output_axes", r.n_rows),
                  *out_directions = scan_list(n, "scan_output_directions", r.n_rows);
    if (!axes || !directions || !out_axes || !out_directions || n->failed) return;
    r.state = ARENA_ARRAY(g->arena, r.n_state + 1, Entity *);
    r.sliced = ARENA_ARRAY(g->arena, r.n_slices + 1, Value *);
    for (int i = 0; i < n->n_in; i++) {
        Value *v = node_need(n, i);
        if (!v) return;
        if (i < r.n_state)
            r.state[i] = entity_tensor(n->im, v);
        else
            r.sliced[i - r.n_state] = v;
    }
    if (!scan_slices(&r, axes, directions) || !repeat(&r)) return;
    for (int i = 0; i < r.n_state; i++) set_output(n, i, as_declared(n, i, r.state[i]));
    for (int i = 0; i < r.n_rows && r.n_state + i < n->n_out; i++)
        n->out[r.n_state + i] = scan_output(&r, i, out_axes[i], out_directions[i] != 0);
}
