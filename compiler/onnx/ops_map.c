/* ai.onnx.ml: what makes tensors of maps, DictVectorizer and CastMap.
 *
 * A map is an input of the model, of which import_io.c makes two tensors, keys and values; the
 * number of entries is their extent. A result is picked from the values by place, where place 0 has
 * what stands for an absent entry. The keys of a map differ; of equal ones the last counts, but
 * DENSE gives the values of all.
 *
 * What stands for absent strings, and how numbers are written, is as ONNX Runtime has it, since the
 * standard does not say. Strings are read as numbers as Cast reads them.
 */
#include "compiler/onnx/index.h"
#include "compiler/onnx/text.h"
#include "compiler/onnx/text_number.h"

#include <string.h>

/* Keys [entries] or values, [entries, width] if they are strings. */
typedef struct Column {
    Value *v;
    bool text;
} Column;

/* Input 0. False after a report. */
static bool need_map(Node *n, Column *keys, Column *values) {
    const Entity *e = n->n_in ? n->entity[0] : NULL;
    if (!e || e->kind != ENTITY_map) {
        invalid(n, e ? E2006 : E2007, e ? "input 0 must be a map" : "input 0 is missing");
        return false;
    }
    *keys = (Column){e->items[0]->tensor, e->items[0]->kind == ENTITY_text};
    *values = (Column){e->items[1]->tensor, e->items[1]->kind == ENTITY_text};
    return true;
}

/* Sets the output to the values at these places (i32): 0 is the filler, 1 the first value. */
static void set_picked(Node *n, Value *places, Column values, OnnxString filler) {
    Graph *g = n->g;
    const int64_t one[1] = {1};
    int64_t count = dim_add(n->x, values.v->dims[0], 1);
    if (values.text) {
        Value *rows = text_join(g, text_const(g, 1, one, &filler), values.v);
        node_set_text(n, 0, text_pick(g, rows, places));
        return;
    }
    Value *table[2] = {zeros(g, values.v->dt, 1, one), values.v};
    Value *rows = g_concat(g, 2, table, 0);
    Builder b = build(g, places->rank, places->dims);
    const Expr *at = index_clamp(b.x, build_in(&b, places), count);
    n->out[0] = build_map(&b, values.v->dt, build_load(&b, rows, &at));
}

/* --- DictVectorizer --------------------------------------------------------------------------- */

/* For each word of the vocabulary the place of its entry; 0: the map has none. */
static Value *find_words(Node *n, Column keys, int count, const int64_t *ints, Value *words) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int64_t shape[2] = {1, count}, entries = keys.v->dims[0];
    Value *found = words ? text_find(g, words, keys.v) : NULL; /* -1: none */
    if (!found) {
        Value *vocabulary = g_ints(g, count, ints);
        Builder b = build(g, 1, vocabulary->dims);
        const Expr *own = build_in(&b, vocabulary), *r = build_red(&b, entries);
        const Expr *same = ex_bin(x, EX_eq, own, ex_cast(x, DT_i64, build_load(&b, keys.v, &r)));
        found = build_reduce(&b, DT_i32, COMBINE_max, ex_select(x, same, r, ex_i(x, -1)), NULL);
    }
    Builder b = build(g, 2, shape);
    const Expr *word = ex_var(x, 1);
    const Expr *place = ex_bin(x, EX_max, build_load(&b, found, &word), ex_i(x, -1));
    return build_map(&b, DT_i32, ex_add(x, place, ex_i(x, 1)));
}

void import_ml_dict_vectorizer(Node *n) {
    Column keys, values;
    int count;
    if (!need_map(n, &keys, &values)) return;
    const char *name = keys.text ? "string_vocabulary" : "int64_vocabulary";
    const int64_t *ints = keys.text ? NULL : attr_ints(n, name, &count);
    Value *words = keys.text ? attr_text(n, name) : NULL;
    if (words) count = words->rank == 2 ? (int)words->dims[0] : 0;
    if (n->failed) return;
    if ((!ints && !words) || count < 1) {
        invalid(n, E2004, "attribute '%s' is missing, for keys of type %s", name,
                dt_name(keys.text ? DT_str : keys.v->dt));
        return;
    }
    set_picked(n, find_words(n, keys, count, ints, words), values, (OnnxString){"", 0});
}

/* --- CastMap ---------------------------------------------------------------------------------- */

/* The places of the entries in the order of their keys. */
static Value *places_by_order(Node *n, Value *keys) {
    Exprs *x = n->x;
    int64_t shape[2] = {1, keys->dims[0]};
    Builder b = build(n->g, 1, keys->dims);
    const Expr *i = ex_var(x, 0), *r = build_red(&b, keys->dims[0]);
    const Expr *own = build_load(&b, keys, &i), *other = build_load(&b, keys, &r);
    const Expr *before = ex_and(x, ex_bin(x, EX_eq, other, own), ex_lt(x, r, i));
    before = ex_bin(x, EX_or, ex_lt(x, other, own), before);
    Value *order =
        build_reduce(&b, DT_i32, COMBINE_sum, ex_select(x, before, ex_i(x, 1), ex_i(x, 0)), NULL);
    b = build(n->g, 1, keys->dims);
    const Expr *target[2] = {ex_i(x, 0), build_in(&b, order)};
    return build_scatter(&b, zeros(n->g, DT_i32, 2, shape), COMBINE_none, target, NULL,
                         ex_add(x, i, ex_i(x, 1)));
}

/* For each key from 0 on the place of its entry; 0: the map has none. Other keys are left out. */
static Value *places_by_key(Node *n, Value *keys, int64_t count) {
    Exprs *x = n->x;
    int64_t shape[2] = {1, count};
    Builder b = build(n->g, 1, keys->dims);
    const Expr *key = build_in(&b, keys);
    const Expr *inside =
        ex_and(x, ex_le(x, ex_int(x, DT_i64, 0), key), ex_lt(x, key, ex_int(x, DT_i64, count)));
    const Expr *target[2] = {ex_i(x, 0), ex_cast(x, DT_i32, key)};
    return build_scatter(&b, zeros(n->g, DT_i32, 2, shape), COMBINE_max, target, inside,
                         ex_add(x, ex_var(x, 0), ex_i(x, 1)));
}

/* The values in the type that is asked for. */
static Column cast_values(Node *n, Column values, DType to) {
    if (to == DT_str) return (Column){values.text ? values.v : text_fixed(n->g, values.v), true};
    if (!values.text) return (Column){g_cast(n->g, values.v, to), false};
    cast_from_text(n, values.v, to);
    return (Column){n->out[0], false};
}

void import_ml_cast_map(Node *n) {
    static const DType dtypes[] = {DT_f32, DT_str, DT_i64};
    Column keys, values;
    if (!need_map(n, &keys, &values)) return;
    int type = attr_choice(n, "cast_to", 0, "TO_FLOAT TO_STRING TO_INT64");
    int form = attr_choice(n, "map_form", 0, "DENSE SPARSE");
    int64_t length = attr_int(n, "max_map", 1), shape[2] = {1, length};
    if (n->failed) return;
    if (keys.text || keys.v->dt != DT_i64 || (!values.text && values.v->dt != DT_f32)) {
        invalid(n, E2006, "a map from %s to %s, not from i64 to f32 or str",
                dt_name(keys.text ? DT_str : keys.v->dt),
                dt_name(values.text ? DT_str : values.v->dt));
        return;
    }
    if (form == 1 && length < 1) {
        invalid(n, E2004, "max_map is %lld", (long long)length);
        return;
    }
    if (form == 1 && !node_shape_ok(n, 2, shape)) return;
    values = cast_values(n, values, dtypes[type]);
    Value *places = form ? places_by_key(n, keys.v, length) : places_by_order(n, keys.v);
    set_picked(n, places, values, (OnnxString){"0.f", 3});
}
