/* What import functions are given: attributes, inputs, declared shapes, constants from tensors of
 * the model, and the two ways to refuse. */
#include "compiler/onnx/import_impl.h"

#include <string.h>

/* --- refusing --------------------------------------------------------------------------------- */

void unsupported(Node *n, const char *format, ...) {
    va_list args;
    va_start(args, format);
    diag_error(n->g->diag, E3002, "%s", arena_vprintf(n->g->arena, format, args));
    va_end(args);
    n->failed = true;
}

void invalid(Node *n, ErrCode code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    diag_error(n->g->diag, code, "%s", arena_vprintf(n->g->arena, format, args));
    va_end(args);
    n->failed = true;
}

/* --- attributes ------------------------------------------------------------------------------- */

typedef enum AttrKind {
    ATTR_float = 1,
    ATTR_int,
    ATTR_string,
    ATTR_tensor,
    ATTR_graph,
    ATTR_floats,
    ATTR_ints,
    ATTR_strings,
    ATTR_tensors,
    ATTR_graphs,
    ATTR_sparse,
    ATTR_sparses,
    ATTR_type,
    ATTR_types,
    ATTR_kinds
} AttrKind;

static const char *const kind_names[ATTR_kinds] = {
    "UNDEFINED",      "FLOAT",      "INT",        "STRING",  "TENSOR", "GRAPH",
    "FLOATS",         "INTS",       "STRINGS",    "TENSORS", "GRAPHS", "SPARSE_TENSOR",
    "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};

const Onnx__AttributeProto *attr_resolve(const Frame *frame, const Onnx__AttributeProto *attr) {
    if (!*pb_text(attr->ref_attr_name)) return attr;
    for (int i = frame ? frame->n_attrs - 1 : -1; i >= 0; i--)
        if (frame->attrs[i].attr && !strcmp(frame->attrs[i].name, attr->ref_attr_name))
            return frame->attrs[i].attr;
    return NULL;
}

const Onnx__AttributeProto *attr_find(const Node *n, const char *name) {
    for (size_t i = 0; i < n->proto->n_attribute; i++)
        if (!strcmp(pb_text(n->proto->attribute[i]->name), name))
            return attr_resolve(n->scope->frame, n->proto->attribute[i]);
    return NULL;
}

/* The attribute if it is there and of this kind (files of IR version 1 do not say the kind). */
static const Onnx__AttributeProto *find_kind(Node *n, const char *name, AttrKind kind) {
    const Onnx__AttributeProto *a = attr_find(n, name);
    if (!a || (int)a->type == (int)kind || (int)a->type == 0) return a;
    int given = (int)a->type > 0 && (int)a->type < ATTR_kinds ? (int)a->type : 0;
    invalid(n, E2004, "attribute '%s' is %s, expected %s", name, kind_names[given],
            kind_names[kind]);
    return NULL;
}

bool attr_has(const Node *n, const char *name) {
    return attr_find(n, name) != NULL;
}

int64_t attr_int(Node *n, const char *name, int64_t fallback) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_int);
    return a ? a->i : fallback;
}

double attr_float(Node *n, const char *name, double fallback) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_float);
    return a ? (double)a->f : fallback;
}

static const char *text_of(Node *n, const ProtobufCBinaryData *s) {
    return arena_strndup(n->g->arena, s->len ? (const char *)s->data : "", s->len);
}

const char *attr_str(Node *n, const char *name, const char *fallback) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_string);
    return a ? text_of(n, &a->s) : fallback;
}

int attr_choice(Node *n, const char *name, int fallback, const char *names) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_string);
    const char *given = a ? text_of(n, &a->s) : "", *at = names;
    if (!a) return n->failed ? -1 : fallback;
    for (int i = 0; *at; i++) {
        size_t length = strcspn(at, " ");
        if (strlen(given) == length && !strncmp(given, at, length)) return i;
        at += length + (at[length] == ' ');
    }
    invalid(n, E2004, "attribute '%s' is '%s', none of: %s", name, given, names);
    return -1;
}

const int64_t *attr_ints(Node *n, const char *name, int *count) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_ints);
    *count = a ? (int)a->n_ints : 0;
    static const int64_t none[1];
    return !a ? NULL : a->n_ints ? a->ints : none;
}

const float *attr_floats(Node *n, const char *name, int *count) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_floats);
    *count = a ? (int)a->n_floats : 0;
    static const float none[1];
    return !a ? NULL : a->n_floats ? a->floats : none;
}

const char *const *attr_strs(Node *n, const char *name, int *count) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_strings);
    *count = a ? (int)a->n_strings : 0;
    if (!a) return NULL;
    const char **result = ARENA_ARRAY(n->g->arena, a->n_strings + 1, const char *);
    for (size_t i = 0; i < a->n_strings; i++) result[i] = text_of(n, &a->strings[i]);
    return result;
}

Value *attr_tensor(Node *n, const char *name) {
    const Onnx__AttributeProto *a = attr_find(n, name);
    if (a && a->sparse_tensor) return attr_sparse_const(n->im, n->g, a->sparse_tensor);
    a = find_kind(n, name, ATTR_tensor);
    if (!a) return NULL;
    if (a->t) return attr_const(n->im, n->g, a->t);
    invalid(n, E2004, "attribute '%s' holds no tensor", name);
    return NULL;
}

const Onnx__GraphProto *attr_graph(Node *n, const char *name) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_graph);
    return a ? a->g : NULL;
}

const Onnx__TypeProto *attr_type(Node *n, const char *name) {
    const Onnx__AttributeProto *a = find_kind(n, name, ATTR_type);
    return a ? a->tp : NULL;
}

DType node_dtype(Node *n, int64_t onnx) {
    DType dt = onnx > 0 && onnx < 1000 ? dt_from_onnx((int32_t)onnx) : DT_none;
    if (dt == DT_none) {
        invalid(n, E2004, "%lld is not an element type", (long long)onnx);
    } else if (dt_kind(dt) > DK_float) {
        invalid(n, E3003, "tensors of type %s are not supported", dt_name(dt));
        dt = DT_none;
    }
    return dt;
}

/* --- inputs and outputs ----------------------------------------------------------------------- */

bool node_decodes_images(const Node *n) {
    return n->im->options && n->im->options->image_decoder;
}

Value *node_in(const Node *n, int i) {
    return i < n->n_in ? n->in[i] : NULL;
}

Value *node_need(Node *n, int i) {
    Value *v = node_in(n, i);
    if (v) return v;
    static const char *const kinds[] = {"tensor", "tensor of strings", "sequence", "optional",
                                        "map",    "sequence"};
    if (i < n->n_in && n->entity[i])
        invalid(n, E2006, "input %d must be a tensor%s, not a %s", i,
                n->entity[i]->kind == ENTITY_text ? " of numbers" : "", kinds[n->entity[i]->kind]);
    else
        invalid(n, E2007, "input %d is missing", i);
    return NULL;
}

bool node_wants(const Node *n, int i) {
    return i < n->n_out && *n->proto->output[i];
}

bool node_on_device(const Node *n) {
    return n->im->options->device;
}

bool node_keeps(const Node *n, int i) {
    return node_wants(n, i) && io_is_kept(n->im, n->proto->output[i]);
}

int node_axis(Node *n, int64_t axis, int rank) {
    if (axis >= -rank && axis < rank) return (int)(axis < 0 ? axis + rank : axis);
    invalid(n, E2004, "axis %lld is not in [%d, %d)", (long long)axis, -rank, rank);
    return -1;
}

const int64_t *node_ints(const Node *n, int i, int *count) {
    const Value *v = node_in(n, i);
    *count = 0;
    if (!v) return NULL;
    return n->varying ? value_dims(n->g, v, count) : value_ints(n->g, v, count);
}

const int64_t *node_fixed_ints(const Node *n, int i, int *count) {
    const int64_t *ints = node_ints(n, i, count);
    for (int k = 0; ints && k < *count; k++) {
        if (!dim_varies(ints[k])) continue;
        *count = 0;
        return NULL;
    }
    return ints;
}

#define MOST_FIXED 16 /* elements of an input that somebody may want to write down */

const char *node_remedy(const Node *n, const Value *v) {
    const Graph *g = n->g;
    if (g->depth || g->parent) return "";
    bool *needed = ARENA_ARRAY(g->arena, g->n_values, bool);
    Text t = text_new(g->arena);
    needed[v->id] = true;
    for (const Op *op = v->def; op; op = op->prev) {
        bool needs = false;
        for (int i = 0; i < op->n_out; i++) needs |= needed[op->out[i]->id];
        for (int i = 0; i < op->n_in && needs; i++) needed[op->in[i]->id] = true;
    }
    for (int i = 0; i < g->inputs.n; i++) {
        const Value *input = g->inputs.items[i];
        const bool symbol = graph_symbol_of(g, input) >= 0, scalar = value_numel(input) == 1;
        if (!needed[input->id]) continue;
        if (!symbol && (value_numel(input) > MOST_FIXED || dims_vary(input->rank, input->dims)))
            return "";
        text_addf(&t, "%s %s=%s", symbol ? " --dim" : " --fix", input->name,
                  symbol || scalar ? "V" : "V,V,...");
    }
    return t.length ? arena_printf(g->arena, " (%s would make it constant)", text_get(&t) + 1) : "";
}

const int64_t *node_need_ints(Node *n, int i, const char *what, int *count) {
    const int64_t *ints = node_ints(n, i, count);
    const Value *v = node_in(n, i);
    if (ints || !v) return ints;
    if (value_is_const(v))
        invalid(n, E2006, "%s must be integers, not %s", what, dt_name(v->dt));
    else
        invalid(n, E3004, "%s must be constant, but '%s' is computed at run time%s", what,
                n->proto->input[i], node_remedy(n, v));
    return NULL;
}

bool node_shape_ok(Node *n, int rank, const int64_t *shape) {
    if (rank > MAX_TENSOR_RANK) {
        unsupported(n, "the result has %d dimensions; at most %d are supported", rank,
                    MAX_TENSOR_RANK);
        return false;
    }
    int64_t most[MAX_TENSOR_RANK];
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 && !dim_varies(shape[i])) {
            invalid(n, E2005, "the result would have shape %s",
                    shape_text(n->g->arena, rank, shape));
            return false;
        }
    dims_max(n->x, rank, shape, most);
    shape = most;
    if (shape_fits(rank, shape)) return true;
    invalid(n, E3005, "a tensor of shape %s has more than 2^31-1 elements",
            shape_text(n->g->arena, rank, shape));
    return false;
}

bool node_source_ok(Node *n, const Value *from, int rank, const int64_t *shape) {
    int64_t most[MAX_TENSOR_RANK];
    dims_max(n->x, rank, shape, most);
    if (value_numel(from) == 0 && shape_numel(rank, most) > 0) {
        invalid(n, E2005, "the input has no elements for a result of shape %s",
                shape_text(n->g->arena, rank, shape));
        return false;
    }
    int64_t some = dim_smaller(n->x, dim_product(n->x, rank, shape), 1);
    dim_claim(n->x, CLAIM_at_most, some, dim_product(n->x, from->rank, from->dims));
    return true;
}
