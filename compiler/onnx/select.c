/* See select.h. */
#include "compiler/onnx/select.h"

bool same_type(const Value *a, const Value *b) {
    return a->dt == b->dt && shape_equal(a->rank, a->dims, b->rank, b->dims);
}

/* The extent that is `a` where the scalar `cond` holds, else `b`: as a symbol, or as `b` and a
 * symbol for the rest where that shows how far they are apart. False if there are too many symbols.
 */
static bool select_extent(Graph *g, Value *cond, int64_t a, int64_t b, int64_t *extent) {
    Exprs *x = g->x;
    int64_t low[2] = {dim_min(x, a), dim_min(x, b)}, high[2] = {dim_max(x, a), dim_max(x, b)};
    int64_t least = low[low[1] < low[0]], most = high[high[1] > high[0]];
    int64_t fewer, more;
    dim_apart(x, a, b, &fewer, &more);
    fewer = fewer > 0 ? 0 : fewer;
    more = more < 0 ? 0 : more;
    bool near = dim_varies(b) && high[1] + more <= most;
    Builder s = build(g, 0, NULL);
    const Expr *which = build_in(&s, cond), *one = dim_expr(x, a), *other = dim_expr(x, b);
    const Expr *e = near ? ex_select(x, which, ex_sub(x, one, other), ex_i(x, 0))
                         : ex_select(x, which, one, other);
    if (near) e = ex_sub(x, e, ex_i(x, fewer));
    Value *value = build_map(&s, DT_i32, e);
    int64_t symbol =
        near ? graph_symbol(g, value, 0, more - fewer) : graph_symbol(g, value, least, most);
    *extent = near ? dim_add(x, dim_add(x, b, symbol), fewer) : symbol;
    return symbol != -1;
}

/* `v` of one element, of a rank no less than its own. */
static Value *of_rank(Graph *g, Value *v, int rank) {
    int64_t ones[MAX_RANK];
    for (int i = 0; i < rank; i++) ones[i] = 1;
    return v->rank == rank ? v : g_reshape(g, v, rank, ones);
}

/* The tensor that is `a` or `b`, with the extents of the one that it is. NULL if they are not of
 * one type, and of one rank unless they are single elements, of fixed extents: those get the
 * higher rank whichever it is. */
static Value *select_varying(Graph *g, Value *cond, Value *a, Value *b) {
    Exprs *x = g->x;
    int64_t dims[MAX_RANK];
    bool fixed = !dims_vary(a->rank, a->dims) && !dims_vary(b->rank, b->dims);
    if (fixed && value_numel(a) == 1 && value_numel(b) == 1) {
        const int rank = a->rank > b->rank ? a->rank : b->rank;
        a = of_rank(g, a, rank), b = of_rank(g, b, rank);
    }
    if (a->dt != b->dt || a->rank != b->rank) return NULL;
    for (int i = 0; i < a->rank; i++) {
        dims[i] = a->dims[i];
        if (dims[i] == b->dims[i]) continue;
        if (!select_extent(g, cond, a->dims[i], b->dims[i], &dims[i])) return NULL;
    }
    Builder o = build(g, a->rank, dims);
    /* of what is empty nothing can be read: the result has no element then, either */
    if (value_numel(a) == 0 || value_numel(b) == 0)
        return build_map(&o, a->dt, build_in(&o, value_numel(a) == 0 ? b : a));
    const Expr *which = build_in(&o, cond), *one = build_in(&o, a), *other = build_in(&o, b);
    return build_map(&o, a->dt, ex_select(x, which, one, other));
}

Entity *select_entity(Node *n, Graph *g, Value *cond, Entity *a, Entity *b, bool varies) {
    if (a == b) return a;
    if (a->kind != b->kind) return NULL;
    if (a->kind == ENTITY_tensor) {
        if (!same_type(a->tensor, b->tensor)) {
            Value *v = varies ? select_varying(g, cond, a->tensor, b->tensor) : NULL;
            return v ? entity_tensor(n->im, v) : NULL;
        }
        if (a->tensor == b->tensor) return a;
        return entity_tensor(n->im, g_where(g, cond, a->tensor, b->tensor));
    }
    if (a->kind == ENTITY_text) {
        Value *text[2] = {a->tensor, b->tensor};
        if (a->tensor->rank != b->tensor->rank || !text_same_width(g, 2, text)) return NULL;
        Value *v = same_type(text[0], text[1]) ? g_where(g, cond, text[0], text[1])
                   : varies                    ? select_varying(g, cond, text[0], text[1])
                                               : NULL;
        return v ? entity_strings(n->im, v) : NULL;
    }
    if (a->n != b->n || a->kind == ENTITY_map) return NULL;
    if (a->kind == ENTITY_filled && (a->tensor || !a->begun || a->begun != b->begun)) return NULL;
    Entity *e = ARENA_NEW(g->arena, Entity);
    *e = *a;
    e->items = ARENA_ARRAY(g->arena, a->n, Entity *);
    for (int i = 0; i < a->n; i++) {
        e->items[i] = select_entity(n, g, cond, a->items[i], b->items[i], varies);
        if (!e->items[i]) return NULL;
    }
    return e;
}

const char *entity_text(Arena *arena, const Entity *e) {
    if (e->kind == ENTITY_tensor)
        return arena_printf(arena, "%s%s", dt_name(e->tensor->dt),
                            shape_text(arena, e->tensor->rank, e->tensor->dims));
    if (e->kind == ENTITY_text)
        return arena_printf(arena, "%s%s", dt_name(DT_str),
                            shape_text(arena, e->tensor->rank - 1, e->tensor->dims));
    if (e->kind == ENTITY_map) return "map";
    if (e->kind == ENTITY_filled)
        return arena_printf(arena, "sequence that a loop fills%s", e->n ? ", and an item" : "");
    return arena_printf(arena, "%s of %d", e->kind == ENTITY_sequence ? "sequence" : "optional",
                        e->n);
}
