/* See repeat.h.
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
 * carried with room for the largest (carry.h), and the items that each iteration adds to a sequence
 * are stacked, behind those that it had.
 */
#include "compiler/onnx/repeat.h"

#include "compiler/onnx/import_impl.h"
#include "ir/constant.h"

#include <string.h>

#define MAX_TRIES 40 /* to find how much room carried values need */
#define MOST_TRIALS                                                                                \
    7000 /* of bodies, and of those in them: three times as many for each loop in one */

#define TOO_MANY_SYMBOLS "more than %d dimensions that vary"

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
                  .row = ARENA_ARRAY(g->arena, r->n_rows + r->n_filled + 1, Value *)};
}

Value *take_slice(Graph *g, Value *v, int axis, const Expr *at) {
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
    if (condition && !r->certain) {
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

/* Imports the body for one turn. *out: what its outputs are; after false, NULL those that are not
 * known. */
static bool import_turn(const Repeat *r, const Turn *t, ValueVec *captured, Entity ***out) {
    Node *n = r->n;
    Exprs *x = n->x;
    Arena *arena = t->g->arena;
    int skip = r->is_loop ? 2 : 0;
    Entity **in = ARENA_ARRAY(arena, r->body->n_input + 1, Entity *);
    *out = ARENA_ARRAY(arena, r->body->n_output + 1, Entity *);
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
    bool ok = import_subgraph(n, r->body, t->g, in, *out, captured);
    if (ok)
        graph_end_faults(t->g, &before, t->alive);
    else
        graph_drop_faults(t->g, &before);
    return ok;
}

/* Imports the body for one turn, whose state, alive and row become those after it; the state as if
 * the turn took place. */
static bool run_turn(const Repeat *r, Turn *t, ValueVec *captured) {
    Node *n = r->n;
    Entity **out;
    const int skip_out = r->is_loop ? 1 : 0;
    Value *alive = t->alive;
    if (!import_turn(r, t, captured, &out)) return false;
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

/* A sequence as an iteration gets it that will add an item. */
static Entity *filled_begun(const Repeat *r, int i) {
    Entity *e = ARENA_NEW(r->n->g->arena, Entity);
    *e = (Entity){.kind = ENTITY_filled, .dt = r->state[i]->dt};
    return e;
}

/* The item that an iteration added to the sequence that `before` was; NULL: not just one. */
static Value *item_added(const Entity *before, const Entity *after) {
    if (after->kind != ENTITY_filled || after->begun != before || after->n != 1) return NULL;
    return after->items[0]->kind == ENTITY_tensor ? after->items[0]->tensor : NULL;
}

static bool counts(const Repeat *r, int i) {
    return r->counted && r->counted[i].known;
}

/* Is state i the same in all iterations of a loop? */
static bool stays(const Repeat *r, int i) {
    return r->counted && r->counted[i].stays;
}

/* The values that travel for the states, from one iteration to the next. */
static ValueVec travelling(const Repeat *r, Graph *g, Entity *const *state) {
    ValueVec parts = {0};
    for (int i = 0; i < r->n_state; i++) {
        if (r->filled[i] || stays(r, i)) continue;
        if (state_changes(r, i))
            carry_pack(&r->carry[i], g, state[i]->tensor, &parts);
        else
            vec_push(g->arena, &parts, state[i]->tensor);
    }
    return parts;
}

/* The states of which `parts` travelled; `trips`: see carry_unpack. The others, such as sequences
 * that are filled, stay as they are. False after a report. */
static bool arrived(const Repeat *r, Graph *g, Value *const *parts, int64_t trips, Entity **state) {
    for (int i = 0, at = 0; i < r->n_state; i++) {
        if (r->filled[i] || stays(r, i)) continue;
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
        bool tensors = !r->filled[i] && after[i]->kind == ENTITY_tensor;
        if (r->filled[i] && item_added(before[i], after[i])) continue;
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

static void drop_input(Graph *sub, int i) {
    graph_unlink(sub, sub->inputs.items[i]->def);
    memmove(&sub->inputs.items[i], &sub->inputs.items[i + 1],
            (size_t)(--sub->inputs.n - i) * sizeof *sub->inputs.items);
}

/* Of some iterations, at most so many, `ran` took place. */
static void note_ran(Repeat *r, Value *ran, int64_t most) {
    static const int64_t single[1] = {1};
    Graph *g = r->n->g;
    vec_push(g->arena, &r->ran, g_reshape(g, g_cast(g, ran, DT_i64), 1, single));
    r->most_ran = dim_add(g->x, r->most_ran, most);
}

/* State i, if it counts, as it is after `number` iterations of a loop. */
static Entity *counted_state(const Repeat *r, Graph *g, int i, const Value *like,
                             const Expr *number) {
    Exprs *x = g->x;
    const Counted *k = &r->counted[i];
    Builder b = build(g, like->rank, like->dims);
    const Expr *first = ex_cast(x, like->dt, ex_int(x, DT_i64, k->first));
    const Expr *step = ex_cast(x, like->dt, ex_int(x, DT_i64, k->step));
    const Expr *e = ex_add(x, first, ex_mul(x, ex_cast(x, like->dt, number), step));
    return entity_tensor(r->n->im, build_map(&b, like->dt, e));
}

/* Imports the body of all iterations that are left as one loop. False, perhaps after reports, if
 * the body does not repeat itself; *again is set if it may with r->carry as it is now. */
static bool try_loop(Repeat *r, bool *again) {
    Node *n = r->n;
    Graph *g = n->g, *sub = graph_new_sub(g);
    Exprs *x = g->x;
    const Expr *number = ex_add(x, ex_ctr(x, sub->depth - 1), ex_i(x, r->done));
    Turn t = turn_new(r, sub, number);
    sub->trips = dim_max(x, r->trips) - r->done;
    int n_rows = r->n_rows + r->n_filled;
    ValueVec captured = {0}, given = travelling(r, g, r->state), brought = {0};
    /* whether these are needed shows afterwards; then they are the first states */
    Value *alive = graph_input(sub, "alive", DT_bool, 0, NULL);
    Value *ran = graph_input(sub, "ran", DT_i64, 0, NULL);
    for (int i = 0; i < given.n; i++) {
        const Value *v = given.items[i];
        vec_push(g->arena, &brought, graph_input(sub, v->name, v->dt, v->rank, v->dims));
    }
    Entity **before = ARENA_ARRAY(g->arena, r->n_state + 1, Entity *);
    for (int i = 0; i < r->n_state; i++)
        if (r->filled[i])
            before[i] = filled_begun(r, i);
        else if (stays(r, i))
            before[i] = entity_tensor(n->im, inside(sub, r->state[i]->tensor, &captured));
    if (!arrived(r, sub, brought.items, -1, before)) return false;
    const Expr *iteration = ex_ctr(x, sub->depth - 1);
    for (int i = 0; i < r->n_state; i++)
        t.state[i] =
            counts(r, i) ? counted_state(r, sub, i, before[i]->tensor, iteration) : before[i];
    t.alive = r->alive ? alive : NULL;
    if (r->limit) t.limit = inside(sub, r->limit, &captured);
    for (int i = 0; i < r->n_slices; i++) t.sliced[i] = inside(sub, r->sliced[i], &captured);
    if (!run_turn(r, &t, &captured) || t.ends) return false;
    if (!states_keep(r, sub, before, t.state, again)) return false;
    for (int i = 0, k = r->n_rows; i < r->n_state; i++)
        if (r->filled[i]) t.row[k++] = item_added(before[i], t.state[i]);
    for (int i = 0; i < n_rows; i++) {
        if (graph_has_extents(g, t.row[i])) continue;
        unsupported(n, "a stacked output whose number of elements the body finds");
        return false;
    }
    bool few = !dim_varies(r->trips) && r->trips - r->done <= MAX_UNROLL;
    bool ends_early = t.alive != NULL, folds = captured.n == 0 && !r->alive;
    for (int i = 0; i < r->n_state; i++)
        folds = folds && (r->filled[i] || value_is_const(r->state[i]->tensor));
    /* what is constant from beginning to end is computed now, turn by turn */
    r->folds = folds && few;
    if (r->folds) return false;
    if (r->n_filled && few && !ends_early) return false; /* items that are known can do more */
    ValueVec next = travelling(r, sub, t.state);
    bool rows_end = ends_early && n_rows;
    int first = ends_early + rows_end, n_state = next.n + first, n_in = 0;
    if (!rows_end) drop_input(sub, 1);
    if (ends_early) {
        Value *go_on = t.alive;
        if (!r->alive) {
            graph_limit_fault(sub, alive);
            go_on = both(sub, alive, go_on);
        }
        graph_output(sub, go_on, "alive");
        if (!r->zero_rows || !n_rows) sub->go_on = go_on;
    } else {
        drop_input(sub, 0);
    }
    if (rows_end) graph_output(sub, g_bin(sub, EX_add, ran, g_cast(sub, alive, DT_i64)), "ran");
    for (int i = 0; i < next.n; i++) {
        Value *v = next.items[i];
        if (ends_early && v != brought.items[i]) v = g_where(sub, alive, v, brought.items[i]);
        graph_output(sub, v, "state");
    }
    for (int i = 0; i < n_rows; i++) graph_output(sub, t.row[i], "row");
    Value **in = ARENA_ARRAY(g->arena, n_state + captured.n + 1, Value *);
    Value **out = ARENA_ARRAY(g->arena, n_state + n_rows + 2, Value *);
    if (ends_early) in[n_in++] = r->alive ? r->alive : g_scalar(g, DT_bool, 1);
    if (rows_end) in[n_in++] = g_scalar(g, DT_i64, 0);
    for (int i = 0; i < given.n; i++) in[n_in++] = given.items[i];
    for (int i = 0; i < captured.n; i++) in[n_in++] = captured.items[i];
    int64_t trips = dim_sub(x, r->trips, r->done);
    build_loop(g, sub, trips, n_state, n_in, in, out);
    if (ends_early) r->alive = out[0];
    if (!arrived(r, g, out + first, ends_early ? -1 : trips, r->state)) return false;
    for (int i = 0; i < r->n_state && !ends_early; i++)
        if (counts(r, i))
            r->state[i] = counted_state(r, g, i, r->state[i]->tensor, ex_int(x, DT_i64, trips));
    for (int i = 0; i < n_rows; i++) vec_push(g->arena, &r->rows[i], out[n_state + i]);
    if (rows_end) note_ran(r, out[1], trips);
    r->done = r->trips;
    return true;
}

static Value *tensor_of(const Entity *e) {
    return e && e->kind == ENTITY_tensor ? e->tensor : NULL;
}

/* Could items be added to the sequence's as rows of one tensor? */
static bool is_stackable(const Entity *e) {
    if (e->kind == ENTITY_filled) return e->tensor;
    if (e->kind != ENTITY_sequence) return false;
    for (int i = 0; i < e->n; i++) {
        const Value *v = tensor_of(e->items[i]), *first = tensor_of(e->items[0]);
        if (!v || v->rank == MAX_RANK || !dims_fit(v->rank, v->dims, first->rank, first->dims))
            return false;
    }
    return true;
}

/* The items that a sequence begins with, stacked; NULL: it has none. */
static Value *stacked_items(Graph *g, const Entity *e) {
    if (e->kind == ENTITY_filled || !e->n) return e->tensor;
    ValueVec rows = {0};
    for (int i = 0; i < e->n; i++) {
        Value *v = e->items[i]->tensor;
        int64_t shape[MAX_RANK] = {1};
        memcpy(shape + 1, v->dims, sizeof(int64_t) * (size_t)v->rank);
        vec_push(g->arena, &rows, g_reshape(g, v, v->rank + 1, shape));
    }
    return g_concat(g, rows.n, rows.items, 0);
}

/* Are all states tensors, or sequences that a loop may fill from the first iteration on? Finds
 * these. */
static bool loop_has(Repeat *r) {
    r->n_filled = 0;
    for (int i = 0; i < r->n_state; i++) {
        const Entity *e = r->state[i];
        r->filled[i] = r->done == 0 && is_stackable(e);
        r->n_filled += r->filled[i];
        if (e->kind != ENTITY_tensor && !r->filled[i]) return false;
    }
    return true;
}

/* Nothing is filled but by a loop. */
static void fill_nothing(Repeat *r) {
    r->n_filled = 0;
    for (int i = 0; i < r->n_state; i++) r->filled[i] = false;
}

/* The same with room for what changes its extents, if `changing`. */
static bool repeat_as_loop(Repeat *r, bool changing) {
    Node *n = r->n;
    if (!loop_has(r)) return false;
    r->carry = changing ? ARENA_ARRAY(n->g->arena, r->n_state + 1, Carry) : NULL;
    for (int i = 0; changing && i < r->n_state; i++)
        if (!r->filled[i]) r->carry[i] = carry_of(n->g, r->state[i]->tensor);
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
    fill_nothing(r);
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
    note_ran(r, r->alive ? r->alive : g_scalar(g, DT_bool, 1), 1);
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

/* Does the body give state i on as it is? Names alone say so. */
static bool stays_by_name(const Onnx__GraphProto *body, int i) {
    const char *name = body->output[1 + i]->name, *own = body->input[2 + i]->name;
    for (size_t k = body->n_node; k > 0 && name && own && strcmp(name, own);) {
        const Onnx__NodeProto *node = body->node[--k];
        if (node->n_output == 1 && node->n_input == 1 && !strcmp(node->output[0], name) &&
            node->op_type && !strcmp(node->op_type, "Identity"))
            name = node->input[0];
    }
    return name && own && !strcmp(name, own);
}

/* What the body, imported on trial, tells of all iterations: r->counted, r->certain, and perhaps
 * fewer trips. It holds if states keep their shapes. `told`: what was told before, which the body
 * takes for granted; NULL: states are taken to be what they are before the first iteration, where
 * it asks (*guessed). False if it tells nothing. */
static bool tell_ahead(Repeat *r, const Repeat *told, bool *guessed) {
    Node *n = r->n;
    Graph *g = n->g, *sub = graph_new_sub(g);
    Arena *arena = g->arena;
    const Expr *iteration = ex_ctr(sub->x, sub->depth - 1);
    Turn t = turn_new(r, sub, ex_add(sub->x, iteration, ex_i(sub->x, r->done)));
    ValueVec captured = {0};
    Entity **out;
    bool bound = !r->bounded && !dim_varies(r->trips);
    Ahead a = {.body = sub,
               .n = r->n_state,
               .begin = ARENA_ARRAY(arena, r->n_state + 1, Value *),
               .before = ARENA_ARRAY(arena, r->n_state + 1, Value *),
               .after = ARENA_ARRAY(arena, r->n_state + 1, Value *),
               .most = bound ? r->trips - r->done : INT64_MAX};
    if (told) sub->trips = dim_max(g->x, told->trips) - told->done;
    for (int i = 0; i < r->n_state; i++) {
        const Value *v = a.begin[i] = tensor_of(r->state[i]);
        if (!v) continue;
        a.before[i] = graph_input(sub, v->name, v->dt, v->rank, v->dims);
        t.state[i] = told && counts(told, i) ? counted_state(told, sub, i, v, iteration)
                                             : entity_tensor(n->im, a.before[i]);
        if (!told) vec_push(arena, &sub->guesses, a.begin[i]);
    }
    Attempt before = attempt_begin(n);
    const int n_nodes = n->im->n_nodes; /* those of trials do not count */
    n->im->n_trials++;
    import_turn(r, &t, &captured, &out);
    n->im->n_nodes = n_nodes;
    attempt_undo(n, &before);
    n->failed = before.failed;
    for (int i = 0; i < r->n_state; i++) a.after[i] = tensor_of(out[1 + i]);
    a.condition = tensor_of(out[0]);
    *guessed = sub->guessed;
    if (!look_ahead(&a)) return false;
    r->counted = a.counted;
    r->certain = a.certain;
    if (a.trips != -1) {
        int64_t trips = dim_add(g->x, a.trips, r->done);
        bool first = r->bounded || r->trips == INT64_MAX;
        r->trips = first ? trips : dim_smaller(g->x, r->trips, trips);
        r->bounded = false;
    }
    return true;
}

/* Was the same told again? Takes back of states what was not. */
static bool told_again(const Repeat *told, const Repeat *again) {
    bool same = told->trips == again->trips && told->certain == again->certain;
    for (int i = 0; i < told->n_state; i++) {
        Counted *a = &told->counted[i];
        const Counted *b = &again->counted[i];
        if (a->known && !(b->known && a->first == b->first && a->step == b->step))
            a->known = same = false;
        if (a->stays && !b->stays) a->stays = same = false;
    }
    return same;
}

/* Might a trial tell something: is there a state that may count, or that stays by its name? */
static bool worth_a_trial(const Repeat *r) {
    if (!r->is_loop || r->n->im->n_trials >= MOST_TRIALS) return false;
    if (!dim_varies(r->trips) && r->trips - r->done <= 1) return false;
    for (int i = 0; i < r->n_state; i++) {
        const Value *v = tensor_of(r->state[i]);
        if (v && value_numel(v) == 1 && dt_is_int(v->dt)) return true;
        if (v && stays_by_name(r->body, i)) return true;
    }
    return false;
}

/* Imports iterations as one loop with what is known ahead of them. */
static bool repeat_ahead(Repeat *r) {
    Repeat told = *r;
    Attempt a = attempt_begin(r->n);
    bool guessed, sure = worth_a_trial(r) && tell_ahead(&told, NULL, &guessed);
    bool shown = sure && !guessed; /* without guesses */
    for (int tries = 0; sure && !shown; tries++) {
        Repeat again = *r;
        sure = tries < MAX_TRIES && tell_ahead(&again, &told, &guessed);
        shown = sure && told_again(&told, &again);
        told.trips = again.trips;
        told.certain = again.certain;
    }
    if (sure && told.trips <= INT32_MAX && repeat_as_loop(&told, false)) {
        *r = told;
        return true;
    }
    attempt_undo(r->n, &a);
    r->n->failed = a.failed;
    fill_nothing(r); /* what the attempt found, which shares r->filled */
    if (sure && !dim_varies(told.trips)) r->seen = told.trips;
    if (sure && told.folds) {
        r->trips = told.trips;
        r->bounded = told.bounded;
    }
    /* what grows may be imported one by one: its condition shows whether these are all */
    r->few = sure && r->n->g->depth == 0 && !dim_varies(told.trips) &&
             told.trips - r->done <= MAX_UNROLL;
    return false;
}

bool repeat_all(Repeat *r) {
    Node *n = r->n;
    graph_note_claims(n->g); /* nodes of the body begin with their own */
    r->rows = ARENA_ARRAY(n->g->arena, r->n_rows + r->n_state + 1, ValueVec);
    r->filled = ARENA_ARRAY(n->g->arena, r->n_state + 1, bool);
    fill_nothing(r);
    int64_t known;
    if (r->alive && const_scalar(r->alive, &known)) {
        r->stopped = !known;
        r->alive = NULL;
    }
    r->n_rows_found = -1;
    if (!r->stopped && repeat_ahead(r)) return true;
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
        if (attempts == 1 && repeat_ahead(r)) break;
        bool many = !r->few && (!bounded || r->trips - r->done > MAX_UNROLL);
        if (bounded && r->trips - r->done > 1 && attempts < 2) {
            Attempt a = attempt_begin(n);
            bool done = repeat_as_loop(r, false);
            if (!done && (r->alive || (many && (attempts == 1 || r->n_filled)))) {
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
        if (!bounded && r->alive && r->seen > r->done && r->seen <= INT32_MAX) {
            r->trips = r->seen;
            r->bounded = bounded = true;
            continue;
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
    int output = r->n_state + i;
    for (int k = 0, at = r->n_rows; k < r->n_state && i >= r->n_rows; k++)
        if (r->filled[k] && at++ == i) output = k;
    int64_t known;
    /* did the last one take place for certain? */
    bool certain =
        r->zero_rows || (r->ran.n && const_scalar(r->ran.items[r->ran.n - 1], &known) && known);
    *found = all;
    if (certain || !r->ran.n) return true;
    if (node_declared_extent(n, output, 0, found, &name)) {
        *found = dim_smaller(n->x, *found, all);
        return true;
    }
    if (r->n_rows_found < 0 && !dim_varies(r->n_rows_found)) {
        Value *ran = g_concat(n->g, r->ran.n, r->ran.items, 0);
        Value *count = g_reduce(n->g, COMBINE_sum, ran, 1, false);
        if (!node_counted_extent(n, count, r->most_ran, true, name, &r->n_rows_found)) return false;
    }
    *found = dim_smaller(n->x, r->n_rows_found, all);
    return true;
}

Value *first_rows(Graph *g, Value *v, int64_t found) {
    if (found == v->dims[0]) return v;
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK], count[MAX_RANK];
    for (int k = 0; k < v->rank; k++) {
        step[k] = 1;
        count[k] = k ? v->dims[k] : found;
    }
    return g_slice(g, v, start, step, count);
}

Value *repeat_stacked(Repeat *r, int i) {
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

Entity *repeat_state(Repeat *r, int i) {
    int row = r->n_rows;
    if (!r->filled[i]) return r->state[i];
    for (int k = 0; k < i; k++) row += r->filled[k];
    Entity *e = filled_begun(r, i);
    Value *begin = stacked_items(r->n->g, r->state[i]), *all = repeat_stacked(r, row);
    if (begin && all) {
        if (begin->rank != all->rank ||
            !dims_meet(r->n->x, begin->rank - 1, begin->dims + 1, all->rank - 1, all->dims + 1)) {
            unsupported(r->n, "a sequence filled by a loop that has items of several shapes");
            return NULL;
        }
        Value *both[] = {begin, all};
        all = g_concat(r->n->g, 2, both, 0);
    }
    e->tensor = all;
    return e->tensor ? e : NULL;
}

void repeat_limit(Repeat *r, Value *limit) {
    Graph *g = r->n->g;
    r->limit = limit;
    r->alive = both(g, r->alive, within_limit(g, ex_i(g->x, -1), limit));
}
