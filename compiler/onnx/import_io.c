/* What the model's inputs and outputs are for generated code, which sees tensors only.
 *
 * A sequence is its items, tensors named NAME.0, NAME.1 ...; how many an input has, --items says
 * when compiling. A map is two tensors, NAME.keys and NAME.values; how many entries it has is a
 * dimension like others, NAME.entries, and --items says up to how many. An optional is what it
 * holds, under its own name, or nothing at all. An input that --fix gives a value is a constant,
 * and no input any more: so may shapes depend on it.
 */
#include "compiler/onnx/import_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 4096 /* of a sequence */

/* The option for this input: the last of its name, else the last "*". Marks those of its name. */
static InputOption *find_option(InputOption *list, int n, const char *name) {
    InputOption *found = NULL;
    bool own = false;
    for (int i = 0; i < n; i++) {
        bool named = !strcmp(list[i].name, name);
        if (!named && (own || strcmp(list[i].name, "*") != 0)) continue;
        found = &list[i];
        found->used = own = named;
    }
    return found;
}

static bool is_sequence(const Onnx__TypeProto *type) {
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
}

static bool is_map(const Onnx__TypeProto *type) {
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_MAP_TYPE;
}

/* ZipMap's result, which is a tensor here: the values of the maps. */
static bool is_maps(const Onnx__TypeProto *type) {
    const Onnx__TypeProto *item = is_sequence(type) ? type->sequence_type->elem_type : NULL;
    return is_map(item);
}

static bool is_optional(const Onnx__TypeProto *type) {
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
}

/* --- the number of items ---------------------------------------------------------------------- */

typedef struct Shape {
    int rank;
    int64_t extent[MAX_TENSOR_RANK];
} Shape;

typedef struct Items {
    bool none;          /* the optional is absent */
    int n;              /* number of items, of a map: the most; -1: not given */
    const Shape *shape; /* of each; NULL: all have what the model declares */
} Items;

/* [2,3] at *at, which is moved behind it. */
static bool read_shape(const char **at, Shape *shape) {
    const char *p = *at;
    if (*p++ != '[') return false;
    for (shape->rank = 0; *p != ']'; shape->rank++) {
        char *end;
        if (shape->rank && *p++ != ',') return false;
        while (*p == ' ') p++;
        if (shape->rank == MAX_TENSOR_RANK || *p < '0' || *p > '9') return false;
        long long extent = strtoll(p, &end, 10);
        if (extent > INT32_MAX) return false;
        shape->extent[shape->rank] = extent;
        p = end;
    }
    *at = p + 1;
    return true;
}

/* "none", "3" (at most `limit`), or "[2,3],[4]". */
static bool read_items(Import *im, const char *text, long limit, Items *items) {
    *items = (Items){0};
    if (!strcmp(text, "none")) {
        items->none = true;
        return true;
    }
    if (*text >= '0' && *text <= '9') {
        char *end;
        long n = strtol(text, &end, 10);
        items->n = (int)n;
        return !*end && n <= limit;
    }
    int most = 0;
    for (const char *c = text; *c; c++) most += *c == '[';
    Shape *shape = ARENA_ARRAY(im->arena, most + 1, Shape);
    for (items->shape = shape; items->n < most; items->n++) {
        if (items->n && *text++ != ',') return false;
        if (!read_shape(&text, &shape[items->n])) return false;
    }
    return most && most <= MAX_ITEMS && !*text;
}

/* What --items says of this input. An optional tensor is there unless it says otherwise. False
 * after a report. */
static bool input_items(Import *im, const Onnx__ValueInfoProto *info, Items *items) {
    const char *name = pb_text(info->name);
    const ImportOptions *options = im->options;
    const InputOption *option =
        options ? find_option(options->items, options->n_items, name) : NULL;
    const Onnx__TypeProto *held = info->type;
    bool optional = is_optional(held);
    if (optional) held = held->optional_type->elem_type;
    bool map = is_map(held), several = map || is_sequence(held);
    if (option && !several && !strcmp(option->name, "*")) option = NULL;
    *items = (Items){.n = several ? -1 : 1};
    if (!option) return true;
    bool read = read_items(im, option->value, map ? INT32_MAX : MAX_ITEMS, items);
    if (map && !optional && (!read || items->none || items->shape)) {
        diag_error(im->diag, E0001,
                   "--items %s=%s: the input is a map; N is the most entries that it may have",
                   option->name, option->value);
        return false;
    }
    if (!read) {
        diag_error(im->diag, E0001,
                   "--items wants NAME=N (at most %d), NAME=[2,3],[4] or NAME=none, not '%s=%s'",
                   MAX_ITEMS, option->name, option->value);
        return false;
    }
    if (items->none && !optional) {
        diag_error(im->diag, E0001, "--items %s=none: the input is not optional", option->name);
        return false;
    }
    if (!items->none && !several && items->n != 1) {
        diag_error(im->diag, E0001, "--items %s=%s: the input is no sequence, but one tensor",
                   option->name, option->value);
        return false;
    }
    return true;
}

const Onnx__TypeProto *io_dims_type(Import *im, const Onnx__ValueInfoProto *info) {
    const Onnx__TypeProto *type = info->type;
    Items items;
    if (!is_sequence(type) && !is_optional(type)) return type;
    im->diag->where = arena_printf(im->arena, "input '%s'", pb_text(info->name));
    bool known = input_items(im, info, &items);
    im->diag->where = NULL;
    if (!known || items.n < 1 || items.shape) return NULL;
    if (is_optional(type)) type = type->optional_type->elem_type;
    return is_sequence(type) ? type->sequence_type->elem_type : type;
}

static const char *entries_name(Import *im, const char *name) {
    return arena_printf(im->arena, "%s.entries", name);
}

const char *io_map_entries(Import *im, const Onnx__ValueInfoProto *info, int64_t *most) {
    Items items;
    if (!is_map(info->type)) return NULL;
    im->diag->where = arena_printf(im->arena, "input '%s'", pb_text(info->name));
    bool known = input_items(im, info, &items);
    im->diag->where = NULL;
    *most = items.n;
    return known ? entries_name(im, pb_text(info->name)) : NULL;
}

const char *io_axis_name(Import *im, const Onnx__ValueInfoProto *info) {
    const Onnx__TypeProto *type = info->type;
    const char *name = pb_text(info->name);
    if (is_optional(type)) type = type->optional_type->elem_type;
    return is_sequence(type) ? arena_printf(im->arena, "%s.item", name) : name;
}

/* --- inputs ----------------------------------------------------------------------------------- */

/* One element from the text up to a comma or the end; *at is moved behind both. */
static bool read_element(const char **at, DType dt, Scalar *value) {
    char *end;
    if (dt_is_float(dt)) {
        value->f = strtod(*at, &end);
    } else {
        errno = 0;
        value->i = strtoll(*at, &end, 10);
        bool fits = !errno && dt_cast(dt, DT_i64, dt_cast(DT_i64, dt, *value)).i == value->i;
        if (!fits || (dt == DT_bool && value->i >> 1)) return false;
    }
    if (end == *at || (*end && *end != ',')) return false;
    *at = *end ? end + 1 : end;
    return true;
}

/* The constant that --fix makes of an input; NULL after a report. */
static Value *fixed_input(Import *im, Graph *g, const InputOption *option, const char *name,
                          DType dt, int rank, const int64_t *shape) {
    if (dims_vary(rank, shape)) {
        diag_error(im->diag, E0001, "--fix %s=%s: the input has dimensions that vary", name,
                   option->value);
        return NULL;
    }
    int64_t n = shape_numel(rank, shape), given = 0;
    void *data = arena_alloc(im->arena, (size_t)n * dt_store(dt) + 16);
    const char *at = option->value;
    Scalar value;
    for (; *at; given++) {
        if (!read_element(&at, dt, &value)) {
            diag_error(im->diag, E0001, "--fix %s=%s: '%s' is no %s", name, option->value,
                       arena_strndup(im->arena, at, strcspn(at, ",")), dt_name(dt));
            return NULL;
        }
        if (dt_is_float(dt)) value = dt_cast(DT_f64, dt, value);
        if (given < n) dt_save(dt, data, (size_t)given, value);
    }
    if (given == n) return graph_const(g, dt, rank, shape, data);
    diag_error(im->diag, E0001, "--fix %s=%s: %lld values for %s%s", name, option->value,
               (long long)given, dt_name(dt), shape_text(im->arena, rank, shape));
    return NULL;
}

/* A tensor that the model is given, or that --fix says. info: its type, and the name for options.
 */
static Entity *input_tensor(Import *im, Graph *g, const char *name,
                            const Onnx__ValueInfoProto *info, bool may_fix) {
    int rank;
    int64_t shape[MAX_TENSOR_RANK];
    DType dt = check_input_type(im, info, &rank, shape);
    bool text = dt == DT_str;
    if (text && check_input_strings(im, info, &rank, shape)) dt = DT_u8;
    if (dt == DT_none || dt == DT_str) return NULL;
    const ImportOptions *options = im->options;
    const InputOption *fix =
        options && may_fix && !text ? find_option(options->fixed, options->n_fixed, name) : NULL;
    Value *v = fix ? fixed_input(im, g, fix, name, dt, rank, shape)
                   : graph_input(g, arena_strdup(im->arena, name), dt, rank, shape);
    if (!v) return NULL;
    if (fix) v->name = arena_strdup(im->arena, name);
    v->text = text;
    Entity *e = text ? entity_strings(im, v) : entity_tensor(im, v);
    if (!text && !fix) e->input = v;
    return e;
}

/* An item with a shape that --items gives, which must be one that the type allows. */
static Entity *shaped_input(Import *im, Graph *g, const char *name,
                            const Onnx__ValueInfoProto *info, const Shape *given) {
    int rank;
    int64_t shape[MAX_TENSOR_RANK];
    const Onnx__TypeProto *declared = info->type;
    bool fits = true;
    if (check_type_shape(im, declared, &rank, shape)) {
        fits = rank == given->rank;
        for (int i = 0; i < rank && fits; i++) fits = shape[i] < 0 || shape[i] == given->extent[i];
    }
    if (!fits) {
        diag_error(im->diag, E0001, "--items: '%s' of shape %s, but the model declares %s", name,
                   shape_text(im->arena, given->rank, given->extent),
                   shape_text(im->arena, rank, shape));
        return NULL;
    }
    Onnx__TensorShapeProto__Dimension dims[MAX_TENSOR_RANK], *list[MAX_TENSOR_RANK];
    for (int i = 0; i < given->rank; i++) {
        dims[i] = (Onnx__TensorShapeProto__Dimension)ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
        dims[i].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        dims[i].dim_value = given->extent[i];
        list[i] = &dims[i];
    }
    Onnx__TensorShapeProto own_shape = ONNX__TENSOR_SHAPE_PROTO__INIT;
    own_shape.n_dim = (size_t)given->rank;
    own_shape.dim = list;
    Onnx__TypeProto own = *declared;
    Onnx__TypeProto__Tensor tensor = ONNX__TYPE_PROTO__TENSOR__INIT;
    if (declared->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) {
        tensor = *declared->tensor_type;
        tensor.shape = &own_shape;
        own.tensor_type = &tensor;
    }
    Onnx__ValueInfoProto item = *info;
    item.type = &own;
    return input_tensor(im, g, name, &item, false);
}

/* NAME.PART, which nothing else that the model takes or gives may be called. */
static const char *part_name(Import *im, const char *name, const char *part) {
    const char *own = arena_printf(im->arena, "%s.%s", name, part);
    const Onnx__GraphProto *graph = im->proto->graph;
    bool taken = false;
    for (size_t k = 0; k < graph->n_input; k++)
        taken |= !strcmp(pb_text(graph->input[k]->name), own);
    for (size_t k = 0; k < graph->n_output; k++)
        taken |= !strcmp(pb_text(graph->output[k]->name), own);
    if (taken)
        diag_error(im->diag, E2002, "'%s' is a part of '%s', and another input or output", own,
                   name);
    return own;
}

static const char *item_name(Import *im, const char *name, int i) {
    return part_name(im, name, arena_printf(im->arena, "%d", i));
}

static Entity *new_group(Import *im, bool sequence, int n, const Onnx__TypeProto *item) {
    Entity *e = ARENA_NEW(im->arena, Entity);
    e->kind = sequence ? ENTITY_sequence : ENTITY_optional;
    e->items = ARENA_ARRAY(im->arena, n + 1, Entity *);
    if (is_sequence(item)) item = item->sequence_type->elem_type;
    if (item && item->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        e->dt = dt_from_onnx(item->tensor_type->elem_type);
    return e;
}

/* One that sequences and optionals hold. shape NULL: it has what the model declares. */
static Entity *input_item(Import *im, Graph *g, const char *name, const Onnx__ValueInfoProto *info,
                          const Onnx__TypeProto *type, const Shape *shape, bool may_fix) {
    Onnx__TypeProto none = ONNX__TYPE_PROTO__INIT; /* which check_input_type reports */
    Onnx__ValueInfoProto item = *info;
    item.name = (char *)io_axis_name(im, info);
    item.type = type ? (Onnx__TypeProto *)type : &none;
    if (shape) return shaped_input(im, g, name, &item, shape);
    if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
        !type->tensor_type->shape) {
        diag_error(im->diag, E2008, "the model declares no shape for it; give --items %s=[2,3]%s",
                   pb_text(info->name), is_sequence(info->type) ? ",[4]" : "");
        return NULL;
    }
    return input_tensor(im, g, name, &item, may_fix);
}

static Entity *input_sequence(Import *im, Graph *g, const Onnx__ValueInfoProto *info,
                              const Onnx__TypeProto *type, const Items *items) {
    const char *name = pb_text(info->name);
    const Onnx__TypeProto *item = type->sequence_type->elem_type;
    if (items->n < 0) {
        diag_error(im->diag, E2008,
                   "the sequence has no length; give --items %s=N, or the shapes of its items as "
                   "in --items %s=[2,3],[4]",
                   name, name);
        return NULL;
    }
    Entity *e = new_group(im, true, 0, item);
    if (e->dt == DT_str) {
        diag_error(im->diag, E3003, "sequences of strings are not supported");
        return NULL;
    }
    e->items = ARENA_ARRAY(im->arena, items->n + 1, Entity *);
    for (; e->n < items->n; e->n++) {
        const char *own = item_name(im, name, e->n);
        const Shape *shape = items->shape ? &items->shape[e->n] : NULL;
        Entity *v = input_item(im, g, own, info, item, shape, false);
        if (!v) return NULL;
        e->items[e->n] = v;
    }
    return e;
}

/* Keys or values of a map: a vector of so many as there are entries. */
static Entity *input_column(Import *im, Graph *g, const char *map, const char *part, int32_t type) {
    Onnx__TensorShapeProto__Dimension dim = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
    Onnx__TensorShapeProto__Dimension *dims[1] = {&dim};
    Onnx__TensorShapeProto shape = ONNX__TENSOR_SHAPE_PROTO__INIT;
    Onnx__TypeProto__Tensor tensor = ONNX__TYPE_PROTO__TENSOR__INIT;
    Onnx__TypeProto column = ONNX__TYPE_PROTO__INIT;
    Onnx__ValueInfoProto info = ONNX__VALUE_INFO_PROTO__INIT;
    dim.value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    dim.dim_param = (char *)entries_name(im, map);
    shape.n_dim = 1;
    shape.dim = dims;
    tensor.elem_type = type;
    tensor.shape = &shape;
    column.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    column.tensor_type = &tensor;
    info.name = (char *)part_name(im, map, part);
    info.type = &column;
    return input_tensor(im, g, info.name, &info, true);
}

/* One element, as a scalar or, as skl2onnx has it, of shape [1]. */
static bool is_single(const Onnx__TypeProto *type) {
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return false;
    const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
    for (size_t i = 0; shape && i < shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE ||
            dim->dim_value != 1)
            return false;
    }
    return true;
}

static Entity *input_map(Import *im, Graph *g, const char *name, const Onnx__TypeProto__Map *map) {
    const Onnx__TypeProto *value = map->value_type;
    DType key = dt_from_onnx(map->key_type);
    if (!is_single(value) || (key != DT_str && !dt_is_int(key))) {
        diag_error(im->diag, E3002,
                   "only maps from integers or strings to single elements are supported");
        return NULL;
    }
    part_name(im, name, "entries");
    Entity *e = ARENA_NEW(im->arena, Entity);
    e->kind = ENTITY_map;
    e->items = ARENA_ARRAY(im->arena, 2, Entity *);
    e->items[e->n++] = input_column(im, g, name, "keys", map->key_type);
    e->items[e->n++] = input_column(im, g, name, "values", value->tensor_type->elem_type);
    return e->items[0] && e->items[1] ? e : NULL;
}

Entity *io_input(Import *im, Graph *g, const Onnx__ValueInfoProto *info) {
    const Onnx__TypeProto *type = info->type;
    Items items;
    if (is_sequence(type))
        return input_items(im, info, &items) ? input_sequence(im, g, info, type, &items) : NULL;
    if (is_map(type)) return input_map(im, g, pb_text(info->name), type->map_type);
    if (!is_optional(type)) return input_tensor(im, g, pb_text(info->name), info, true);
    if (!input_items(im, info, &items)) return NULL;
    type = type->optional_type->elem_type;
    Entity *e = new_group(im, false, 1, type);
    if (items.none) return e;
    Entity *item = is_sequence(type)
                       ? input_sequence(im, g, info, type, &items)
                       : input_item(im, g, pb_text(info->name), info, type, items.shape, true);
    if (!item) return NULL;
    e->items[e->n++] = item;
    return e;
}

static bool is_among(int n, const char *const *names, const char *name) {
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0) i++;
    return i < n;
}

bool io_is_state(const Import *im, const char *name) {
    return im->options && is_among(im->options->n_states, im->options->states, name);
}

bool io_is_kept(const Import *im, const char *name) {
    return im->options && is_among(im->options->n_states, im->options->kept, name);
}

/* The tensor with these extents in a state, which may get more room (states_tie): no builder takes
 * this map for its operand. */
static Value *part_of_state(Graph *g, Value *state) {
    const Expr *at[MAX_RANK];
    for (int i = 0; i < state->rank; i++) at[i] = ex_var(g->x, i);
    Op *op = graph_new_op(g, OP_map, 1, &state, 1);
    op->body = ex_load(g->x, state->dt, 0, state->rank, at);
    op->src = state->name;
    Value *v = graph_new_value(g, op, 0, state->dt, state->rank, state->dims);
    v->name = state->name;
    graph_append(g, op);
    return v;
}

/* An input with dimensions that vary holds its elements without gaps; but a state, which no caller
 * sees, holds them where tensors of the graph do, with room for the largest extents. */
void io_from_memory(Import *im, Graph *g, Entity *e) {
    for (int i = 0; i < e->n; i++) io_from_memory(im, g, e->items[i]);
    Value *v = e->kind == ENTITY_tensor || e->kind == ENTITY_text ? e->tensor : NULL;
    if (v && v->def->kind == OP_input && dims_vary(v->rank, v->dims))
        e->tensor = io_is_state(im, v->name) ? part_of_state(g, v) : graph_from_dense(g, v);
}

void io_options_used(Import *im) {
    const ImportOptions *o = im->options;
    for (int i = 0; o && i < o->n_items; i++)
        if (!o->items[i].used && strcmp(o->items[i].name, "*") != 0)
            diag_error(im->diag, E0001,
                       "--items %s=%s: the model has no such input that is a sequence, a map or an "
                       "optional",
                       o->items[i].name, o->items[i].value);
    for (int i = 0; o && i < o->n_fixed; i++)
        if (!o->fixed[i].used)
            diag_error(im->diag, E0001,
                       "--fix %s=%s: the model has no such input that is a tensor of numbers",
                       o->fixed[i].name, o->fixed[i].value);
}

/* --- outputs ---------------------------------------------------------------------------------- */

static void output_part(Import *im, Graph *g, const char *name, const Onnx__TypeProto *type,
                        const Entity *e) {
    if (is_optional(type)) type = type->optional_type->elem_type;
    if (is_maps(type)) type = NULL;
    if (e->kind == ENTITY_optional) {
        if (e->n) output_part(im, g, name, type, e->items[0]);
        return;
    }
    if (e->kind == ENTITY_filled) {
        diag_error(im->diag, E3002, "a sequence that a loop fills");
        return;
    }
    bool declared = type && type->value_case != ONNX__TYPE_PROTO__VALUE__NOT_SET;
    bool sequence = e->kind == ENTITY_sequence, map = e->kind == ENTITY_map;
    if (declared && (is_sequence(type) != sequence || is_map(type) != map)) {
        diag_error(im->diag, E2009, "declared as %s, but computed as %s",
                   is_sequence(type) ? "a sequence"
                   : is_map(type)    ? "a map"
                                     : "a tensor",
                   sequence ? "a sequence"
                   : map    ? "a map"
                            : "a tensor");
        return;
    }
    if (map) {
        output_part(im, g, part_name(im, name, "keys"), NULL, e->items[0]);
        output_part(im, g, part_name(im, name, "values"), NULL, e->items[1]);
        return;
    }
    if (sequence) {
        type = declared ? type->sequence_type->elem_type : NULL;
        for (int i = 0; i < e->n; i++)
            output_part(im, g, item_name(im, name, i), type, e->items[i]);
        return;
    }
    check_output(im, type, e);
    const Value *v = e->tensor;
    int at = g->outputs.n;
    const bool plain = !dims_vary(v->rank, v->dims) || io_is_kept(im, name);
    (plain ? graph_output : graph_output_varying)(g, e->tensor, arena_strdup(im->arena, name));
    g->output_text.items[at] = e->kind == ENTITY_text;
}

void io_output(Import *im, Graph *g, const Onnx__ValueInfoProto *info, const Entity *e) {
    output_part(im, g, pb_text(info->name), info->type, e);
}
