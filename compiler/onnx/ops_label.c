/* ai.onnx.ml: maps from labels to labels, numbers or strings on either side. */
#include "compiler/onnx/index.h"
#include "compiler/onnx/ml.h"
#include "compiler/onnx/text.h"

#include <string.h>

/* A list of labels [count], or [count, width] if they are strings. */
typedef struct Labels {
    Value *v;
    bool text;
} Labels;

/* The list that an attribute gives, a tensor, integers, floats or strings: "keys_tensor" ... False
 * after a report. */
static bool label_list(Node *n, const char *what, Labels *out) {
    Arena *arena = n->g->arena;
    const char *tensor = arena_printf(arena, "%s_tensor", what);
    const char *ints = arena_printf(arena, "%s_int64s", what);
    const char *floats = arena_printf(arena, "%s_floats", what);
    const char *strings = arena_printf(arena, "%s_strings", what);
    int count;
    *out = (Labels){0};
    if (attr_is_text(n, tensor) || attr_is_text(n, strings)) {
        out->text = true;
        out->v = attr_text(n, attr_is_text(n, tensor) ? tensor : strings);
        if (out->v) out->v = text_rows(n->g, out->v);
    } else if (attr_has(n, tensor)) {
        Value *v = attr_tensor(n, tensor);
        int64_t shape[1] = {v ? value_numel(v) : 0};
        out->v = v ? g_reshape(n->g, v, 1, shape) : NULL;
    } else if (attr_has(n, ints)) {
        const int64_t *list = attr_ints(n, ints, &count);
        out->v = list ? g_ints(n->g, count, list) : NULL;
    } else if (attr_has(n, floats)) {
        const float *list = attr_floats(n, floats, &count);
        int64_t shape[1] = {count};
        out->v = list ? ml_floats(n->g, list, 1, shape) : NULL;
    } else {
        invalid(n, E2004, "attribute '%s' is missing", ints);
    }
    return out->v && !n->failed;
}

/* What is given for a label that no key equals, of the type of `values`: one row. False after a
 * report. */
static bool default_label(Node *n, const Labels *values, Value **out) {
    Graph *g = n->g;
    const int64_t one[1] = {1};
    DType dt = values->v->dt;
    if (values->text) {
        OnnxString unused = {"_Unused", 7};
        const char *name = attr_has(n, "default_tensor") ? "default_tensor" : "default_string";
        *out = attr_has(n, name) ? attr_text(n, name) : text_const(g, 1, one, &unused);
        if (*out) *out = text_rows(g, *out);
        if (*out && (*out)->dims[0] != 1) invalid(n, E2004, "default_tensor must hold one str");
        return *out && !n->failed;
    }
    if (attr_has(n, "default_tensor")) {
        *out = attr_tensor(n, "default_tensor");
        if (*out && (value_numel(*out) != 1 || (*out)->dt != dt))
            invalid(n, E2004, "default_tensor must hold one %s", dt_name(dt));
    } else if (dt_is_float(dt)) {
        *out = g_scalar(g, dt, attr_float(n, "default_float", -0.0));
    } else {
        int64_t given = attr_int(n, "default_int64", -1);
        *out = g_cast(g, g_ints(g, 1, &given), dt);
    }
    if (!*out || n->failed) return false;
    *out = g_reshape(g, *out, 1, one);
    return true;
}

/* Sets the output to the value beside the (last) key that each element equals, or the default. */
static void map_labels(Node *n, const Labels *keys, const Labels *values) {
    Exprs *x = n->x;
    Graph *g = n->g;
    bool text = n->n_in && n->entity[0] && n->entity[0]->kind == ENTITY_text;
    Value *v = text ? node_text(n, 0) : node_need(n, 0), *fallback, *place;
    int64_t count = keys->v->dims[0];
    if (!v) return;
    if (count != values->v->dims[0] || count < 1 || keys->v->dt != v->dt || keys->text != text) {
        invalid(n, E2004, "%lld keys (%s) and %lld values for an input of %s", (long long)count,
                dt_name(keys->text ? DT_str : keys->v->dt), (long long)values->v->dims[0],
                dt_name(text ? DT_str : v->dt));
        return;
    }
    if (!default_label(n, values, &fallback)) return;
    if (text) {
        place = text_find(g, v, keys->v);
    } else {
        Builder b = build(g, v->rank, v->dims);
        const Expr *own = build_in(&b, v), *r = build_red(&b, count);
        const Expr *key = build_load(&b, keys->v, &r), *hit = ex_bin(x, EX_eq, own, key);
        const Expr *nan = ex_int(x, DT_bool, 0);
        if (dt_is_float(v->dt) && n->version >= 4)
            nan = ex_and(x, ex_un(x, EX_isnan, own), ex_un(x, EX_isnan, key));
        hit = ex_bin(x, EX_or, hit, nan);
        place = build_reduce(&b, DT_i32, COMBINE_max, ex_select(x, hit, r, ex_i(x, -1)), NULL);
    }
    /* the default stands behind the values */
    Value *table[2] = {values->v, fallback};
    Builder b = build(g, place->rank, place->dims);
    const Expr *at = build_in(&b, place);
    at = index_clamp(x, ex_select(x, ex_lt(x, at, ex_i(x, 0)), ex_i(x, count), at), count + 1);
    if (values->text) {
        Value *rows = text_join(g, table[0], table[1]);
        node_set_text(n, 0, text_pick(g, rows, build_map(&b, DT_i32, at)));
        return;
    }
    n->out[0] = build_map(&b, values->v->dt, build_load(&b, g_concat(g, 2, table, 0), &at));
}

void import_ml_label_encoder(Node *n) {
    Labels keys, values;
    if (label_list(n, "keys", &keys) && label_list(n, "values", &values))
        map_labels(n, &keys, &values);
}

/* From names to numbers, or the other way. */
void import_ml_category_mapper(Node *n) {
    Labels names, numbers;
    int n_names, n_numbers;
    const int64_t *list = attr_ints(n, "cats_int64s", &n_numbers);
    attr_strs(n, "cats_strings", &n_names);
    if (n->failed) return;
    if (!list || !n_names) {
        invalid(n, E2004, "attributes 'cats_int64s' and 'cats_strings' must be there");
        return;
    }
    names = (Labels){attr_text(n, "cats_strings"), true};
    numbers = (Labels){g_ints(n->g, n_numbers, list), false};
    if (!names.v) return;
    bool text = n->n_in && n->entity[0] && n->entity[0]->kind == ENTITY_text;
    map_labels(n, text ? &names : &numbers, text ? &numbers : &names);
}
