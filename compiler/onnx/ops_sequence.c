/* Sequences and optionals. Neither exists at run time: how many items there are is known when
 * compiling, and operators on them only pass values around. Where a loop whose iterations only a
 * run counts fills a sequence, its items are the rows of a tensor (ENTITY_filled). */
#include "compiler/onnx/index.h"
#include "compiler/onnx/repeat.h"

#include <string.h>

#define MAX_ITEMS 4096 /* of one sequence */

static Entity *new_entity(const Node *n, int kind, int count, DType dt) {
    Entity *e = ARENA_NEW(n->g->arena, Entity);
    e->kind = kind == ENTITY_sequence ? ENTITY_sequence : ENTITY_optional;
    e->n = count;
    e->items = ARENA_ARRAY(n->g->arena, count + 1, Entity *);
    e->dt = dt;
    return e;
}

/* The sequence that a loop has filled with a number of items that is known. */
static Entity *items_of(Node *n, const Entity *filled) {
    Value *rows = filled->tensor;
    Entity *e = new_entity(n, ENTITY_sequence, (int)rows->dims[0], filled->dt);
    for (int i = 0; i < e->n; i++)
        e->items[i] = entity_tensor(n->im, take_slice(n->g, rows, 0, ex_i(n->x, i)));
    return e;
}

/* Input i as a sequence; NULL after a report. */
static Entity *need_sequence(Node *n, int i) {
    Entity *e = i < n->n_in ? n->entity[i] : NULL;
    if (e && e->kind == ENTITY_optional && e->n == 1) e = e->items[0];
    if (e && e->kind == ENTITY_sequence) return e;
    if (e && e->kind == ENTITY_filled && e->tensor && !dim_varies(e->tensor->dims[0]) &&
        e->tensor->dims[0] <= MAX_ITEMS)
        return items_of(n, e);
    if (e && e->kind == ENTITY_filled)
        unsupported(n, "a sequence that a loop fills");
    else if (e)
        invalid(n, E2006, "input %d must be a sequence", i);
    else
        invalid(n, E2007, "input %d is missing", i);
    return NULL;
}

/* The items of input 0, stacked, if a loop filled it; else NULL. */
static Value *filled_items(const Node *n) {
    const Entity *e = n->n_in ? n->entity[0] : NULL;
    return e && e->kind == ENTITY_filled ? e->tensor : NULL;
}

/* The position that input i names among `count` places, or -1 after a report. */
static int need_position(Node *n, int i, int count) {
    int n_ints;
    const int64_t *ints = node_need_ints(n, i, "the position", &n_ints);
    if (!ints) return -1;
    int64_t at = n_ints == 1 ? ints[0] : INT64_MIN;
    if (at < 0) at += count;
    if (at >= 0 && at < count) return (int)at;
    invalid(n, E2004, "the position is outside of the sequence, which has %d places", count);
    return -1;
}

/* --- sequences -------------------------------------------------------------------------------- */

void import_sequence_construct(Node *n) {
    Value *first = node_need(n, 0);
    if (!first) return;
    Entity *e = new_entity(n, ENTITY_sequence, n->n_in, first->dt);
    for (int i = 0; i < n->n_in; i++) {
        Value *v = node_need(n, i);
        if (!v) return;
        if (v->dt != first->dt) {
            invalid(n, E2006, "items are %s and %s", dt_name(first->dt), dt_name(v->dt));
            return;
        }
        e->items[i] = n->entity[i];
    }
    n->out_entity[0] = e;
}

void import_sequence_empty(Node *n) {
    DType dt = node_dtype(n, attr_int(n, "dtype", 1));
    if (dt != DT_none) n->out_entity[0] = new_entity(n, ENTITY_sequence, 0, dt);
}

void import_sequence_insert(Node *n) {
    Entity *to = n->n_in ? n->entity[0] : NULL;
    /* in the loop that fills it a sequence grows at its end */
    bool grows = to && to->kind == ENTITY_filled && !to->tensor && !node_in(n, 2);
    Entity *from = grows ? to : need_sequence(n, 0);
    Value *v = node_need(n, 1);
    if (!from || !v) return;
    if (v->dt != from->dt) {
        invalid(n, E2006, "a tensor of %s into a sequence of %s", dt_name(v->dt),
                dt_name(from->dt));
        return;
    }
    if (from->n >= MAX_ITEMS) {
        unsupported(n, "sequences of more than %d items", MAX_ITEMS);
        return;
    }
    int at = node_in(n, 2) ? need_position(n, 2, from->n + 1) : from->n;
    if (at < 0) return;
    /* a negative position counts from the last item, not from behind it */
    int count;
    const int64_t *given = node_in(n, 2) ? node_ints(n, 2, &count) : NULL;
    if (given && given[0] < 0) at--;
    if (at < 0) {
        invalid(n, E2004, "the position is outside of the sequence, which has %d items", from->n);
        return;
    }
    Entity *e = new_entity(n, ENTITY_sequence, from->n + 1, from->dt);
    for (int i = 0, k = 0; i < e->n; i++) e->items[i] = i == at ? n->entity[1] : from->items[k++];
    if (grows) {
        e->kind = ENTITY_filled;
        e->begun = from->begun ? from->begun : from;
    }
    n->out_entity[0] = e;
}

void import_sequence_erase(Node *n) {
    Entity *from = need_sequence(n, 0);
    if (!from) return;
    if (from->n == 0) {
        invalid(n, E2004, "the sequence is empty");
        return;
    }
    int at = node_in(n, 1) ? need_position(n, 1, from->n) : from->n - 1;
    if (at < 0) return;
    Entity *e = new_entity(n, ENTITY_sequence, from->n - 1, from->dt);
    for (int i = 0, k = 0; i < from->n; i++)
        if (i != at) e->items[k++] = from->items[i];
    n->out_entity[0] = e;
}

/* Row `at` (an integer) of what is stacked, from the end if it is negative; past the ends, the
 * nearest. */
static Value *row_at(Node *n, Value *rows, Value *at) {
    Builder b = build(n->g, rows->rank - 1, rows->dims + 1);
    const Expr *index[MAX_RANK] = {index_read(&b, at, NULL, rows->dims[0])};
    for (int i = 1; i < rows->rank; i++) index[i] = ex_var(n->x, i - 1);
    return build_map(&b, rows->dt, build_load(&b, rows, index));
}

/* Item number `at`, computed at run time, of items of one shape; past the ends, the nearest. */
static Value *item_at_runtime(Node *n, const Entity *from, Value *at) {
    Exprs *x = n->x;
    const Value *first = from->n ? from->items[0]->tensor : NULL;
    if (!first || value_numel(at) != 1) return NULL;
    Value *v = NULL;
    if (at->rank) at = g_reshape(n->g, at, 0, NULL);
    for (int i = from->n - 1; i >= 0; i--) {
        Value *item = from->items[i]->tensor;
        if (!item || !shape_equal(item->rank, item->dims, first->rank, first->dims)) return NULL;
        Builder b = build(n->g, 0, NULL);
        const Expr *p = ex_cast(x, DT_i64, build_in(&b, at)), *zero = ex_int(x, DT_i64, 0);
        p = ex_select(x, ex_lt(x, p, zero), ex_add(x, p, ex_int(x, DT_i64, from->n)), p);
        Value *here = build_map(&b, DT_bool, ex_le(x, p, ex_int(x, DT_i64, i)));
        v = v ? g_where(n->g, here, item, v) : item;
    }
    return v;
}

void import_sequence_at(Node *n) {
    Value *rows = filled_items(n), *position = node_need(n, 1);
    Entity *from = rows ? NULL : need_sequence(n, 0);
    if (rows && position) {
        Value *at = as_scalar(n, position, "the position");
        bool fixed = at && value_is_const(at) && !dim_varies(rows->dims[0]);
        if (!at || (fixed && need_position(n, 1, (int)rows->dims[0]) < 0)) return;
        if (node_source_ok(n, rows, rows->rank - 1, rows->dims + 1))
            n->out[0] = row_at(n, rows, at);
        return;
    }
    if (!from || !position) return;
    if (!value_is_const(position)) n->out[0] = item_at_runtime(n, from, position);
    if (n->out[0]) return;
    int at = need_position(n, 1, from->n);
    if (at >= 0) set_output(n, 0, from->items[at]);
}

void import_sequence_length(Node *n) {
    Value *rows = filled_items(n);
    if (rows) {
        n->out[0] = g_dim(n->g, DT_i64, rows->dims[0]);
        return;
    }
    Entity *from = need_sequence(n, 0);
    if (!from) return;
    int64_t length = from->n;
    n->out[0] = graph_const(n->g, DT_i64, 0, NULL, arena_copy(n->g->arena, &length, sizeof length));
}

/* The items one after the other along `axis`; `stack`: along a new one. */
static void concat_filled(Node *n, Value *rows, bool stack) {
    Exprs *x = n->x;
    int rank = rows->rank - !stack, axis = node_axis(n, attr_int(n, "axis", 0), rank);
    int64_t shape[MAX_RANK];
    if (axis < 0) return;
    /* dimensions of `rows` but the first are in order around, or at, the axis */
    for (int i = 0; i < rank; i++) shape[i] = rows->dims[i + (!stack || i < axis)];
    int64_t each = stack || shape[axis] == 0 ? 1 : shape[axis];
    shape[axis] = stack ? rows->dims[0] : dim_mul(x, rows->dims[0], shape[axis]);
    if (!node_shape_ok(n, rank, shape)) return;
    Builder b = build(n->g, rank, shape);
    const Expr *index[MAX_RANK], *at = ex_var(x, axis);
    index[0] = stack ? at : ex_div(x, at, ex_i(x, each));
    for (int i = 0; i < rank; i++)
        if (i != axis || !stack) index[i + (!stack || i < axis)] = ex_var(x, i);
    if (!stack) index[axis + 1] = ex_bin(x, EX_rem, at, ex_i(x, each));
    n->out[0] = build_map(&b, rows->dt, build_load(&b, rows, index));
}

void import_concat_from_sequence(Node *n) {
    Graph *g = n->g;
    bool stack = attr_int(n, "new_axis", 0) != 0;
    if (filled_items(n)) {
        concat_filled(n, filled_items(n), stack);
        return;
    }
    Entity *from = need_sequence(n, 0);
    if (!from) return;
    if (from->n == 0 || !from->items[0]->tensor) {
        invalid(n, E2005, "nothing to concatenate: the sequence is empty");
        return;
    }
    const Value *first = from->items[0]->tensor;
    int rank = first->rank + stack, axis = node_axis(n, attr_int(n, "axis", 0), rank);
    if (axis < 0) return;
    if (rank > MAX_TENSOR_RANK) {
        unsupported(n, "a result of %d dimensions", rank);
        return;
    }
    Value **v = ARENA_ARRAY(g->arena, from->n, Value *);
    int64_t total[MAX_RANK] = {0};
    for (int i = 0; i < from->n; i++) {
        v[i] = from->items[i]->tensor;
        int64_t shape[MAX_RANK];
        for (int k = 0, at = 0; k < rank && stack; k++)
            shape[k] = k == axis ? 1 : v[i]->rank == first->rank ? v[i]->dims[at++] : -1;
        if (stack && v[i]->rank == first->rank) v[i] = g_reshape(g, v[i], rank, shape);
        bool fits = v[i]->rank == rank;
        for (int k = 0; k < rank && fits; k++)
            fits = k == axis || dim_meets(n->x, v[i]->dims[k], v[0]->dims[k]);
        if (!fits) {
            invalid(n, E2005, "items of shapes %s and %s",
                    shape_text(g->arena, first->rank, first->dims),
                    shape_text(g->arena, v[i]->rank, v[i]->dims));
            return;
        }
        for (int k = 0; k < rank; k++)
            total[k] = k == axis ? dim_add(n->x, total[k], v[i]->dims[k]) : v[i]->dims[k];
    }
    if (!node_shape_ok(n, rank, total)) return;
    n->out[0] = g_concat(g, from->n, v, axis);
}

/* One length for all parts (the last may be shorter), or the length of each. */
void import_split_to_sequence(Node *n) {
    Graph *g = n->g;
    Value *v = node_need(n, 0), *split = node_in(n, 1);
    if (!v) return;
    int axis = node_axis(n, attr_int(n, "axis", 0), v->rank), count = 0;
    const int64_t *given = node_need_ints(n, 1, "the lengths", &count);
    if (axis < 0 || n->failed) return;
    bool keep = split || attr_int(n, "keepdims", 1) != 0;
    int64_t extent = v->dims[axis], each = !split ? 1 : split->rank == 0 ? given[0] : 0;
    if (split && split->rank == 0 && each < 1) {
        invalid(n, E2004, "parts of length %lld", (long long)each);
        return;
    }
    if (dim_varies(extent) || dim_varies(each) || dims_vary(count, given)) {
        unsupported(n, "how many parts there are, and their lengths, must not vary: axis %d has %s",
                    axis, dim_text(n->x, extent));
        return;
    }
    int64_t parts = each ? (extent + each - 1) / each : count, sum = 0;
    if (parts > MAX_ITEMS) {
        unsupported(n, "%lld parts; at most %d are supported", (long long)parts, MAX_ITEMS);
        return;
    }
    Entity *e = new_entity(n, ENTITY_sequence, (int)parts, v->dt);
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK], size[MAX_RANK];
    for (int k = 0; k < v->rank; k++) step[k] = 1, size[k] = v->dims[k];
    for (int64_t i = 0; i < parts; i++) {
        size[axis] = !each ? given[i] : extent - sum < each ? extent - sum : each;
        if (size[axis] < 0 || size[axis] > extent - sum) {
            invalid(n, E2005, "the parts do not add up to the extent of axis %d, %lld", axis,
                    (long long)extent);
            return;
        }
        start[axis] = sum;
        sum += size[axis];
        Value *part = g_slice(g, v, start, step, size);
        int64_t squeezed[MAX_RANK];
        int rank = 0;
        for (int k = 0; k < v->rank; k++)
            if (k != axis) squeezed[rank++] = v->dims[k];
        if (!keep) part = g_reshape(g, part, rank, squeezed);
        e->items[i] = entity_tensor(n->im, part);
    }
    if (sum != extent)
        invalid(n, E2005, "the parts do not add up to the extent of axis %d, %lld", axis,
                (long long)extent);
    n->out_entity[0] = e;
}

/* The body once for each item of the first sequence; further sequences go along, tensors stay. */
void import_sequence_map(Node *n) {
    Arena *arena = n->g->arena;
    const Onnx__GraphProto *body = attr_graph(n, "body");
    Entity *first = need_sequence(n, 0);
    if (!first || n->failed) return;
    if (!body || (int)body->n_input != n->n_in || (size_t)n->n_out > body->n_output) {
        invalid(n, E2007, "the body does not have the node's %d inputs and %d outputs", n->n_in,
                n->n_out);
        return;
    }
    Entity **result = ARENA_ARRAY(arena, n->n_out + 1, Entity *);
    for (int k = 0; k < n->n_out; k++) {
        result[k] = new_entity(n, ENTITY_sequence, first->n, first->dt);
        const Onnx__TypeProto *type = body->output[k]->type;
        if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            result[k]->dt = dt_from_onnx(type->tensor_type->elem_type);
    }
    Entity **in = ARENA_ARRAY(arena, n->n_in + 1, Entity *);
    Entity **out = ARENA_ARRAY(arena, body->n_output + 1, Entity *);
    for (int i = 0; i < first->n; i++) {
        for (int k = 0; k < n->n_in; k++) {
            in[k] = n->entity[k];
            if (!in[k] || in[k]->kind != ENTITY_sequence) continue;
            if (in[k]->n != first->n) {
                invalid(n, E2005, "sequences of %d and %d items", first->n, in[k]->n);
                return;
            }
            in[k] = in[k]->items[i];
        }
        if (!import_subgraph(n, body, n->g, in, out, NULL)) return;
        for (int k = 0; k < n->n_out; k++) {
            result[k]->items[i] = out[k];
            if (out[k]->kind != ENTITY_tensor) {
                unsupported(n, "output %d would be a sequence of sequences", k);
                return;
            }
            result[k]->dt = out[k]->tensor->dt;
        }
    }
    for (int k = 0; k < n->n_out; k++) n->out_entity[k] = result[k];
}

/* --- optionals -------------------------------------------------------------------------------- */

/* The element type that a type's tensors have; DT_none if it has none. */
static DType tensor_dtype(const Onnx__TypeProto *type) {
    while (type) {
        switch (type->value_case) {
        case ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE:
            return dt_from_onnx(type->tensor_type->elem_type);
        case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
            type = type->sequence_type->elem_type;
            break;
        case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
            type = type->optional_type->elem_type;
            break;
        default:
            return DT_none;
        }
    }
    return DT_none;
}

void import_optional(Node *n) {
    Entity *item = n->n_in ? n->entity[0] : NULL;
    Entity *e = new_entity(n, ENTITY_optional, item ? 1 : 0, tensor_dtype(attr_type(n, "type")));
    if (item) {
        e->items[0] = item;
        e->dt = item->kind == ENTITY_tensor ? item->tensor->dt : item->dt;
    }
    n->out_entity[0] = e;
}

void import_optional_has_element(Node *n) {
    const Entity *e = n->n_in ? n->entity[0] : NULL;
    bool has = e && (e->kind != ENTITY_optional || e->n);
    n->out[0] = g_scalar(n->g, DT_bool, has);
}

void import_optional_get_element(Node *n) {
    Entity *e = n->n_in ? n->entity[0] : NULL;
    if (e && e->kind == ENTITY_optional) e = e->n ? e->items[0] : NULL;
    if (e)
        set_output(n, 0, e);
    else
        invalid(n, E2007, "the optional is empty");
}
