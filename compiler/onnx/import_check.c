/* What can be said of a model before the walk: its opsets, functions, unsupported operators (all of
 * them at once), and the values of its symbolic dimensions. */
#include "compiler/onnx/import_impl.h"

#include <string.h>

#define MAX_LISTED 100 /* unsupported operators named in one run */

const char *plain_domain(const char *domain) {
    return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
}

const char *check_label(Arena *arena, const Onnx__NodeProto *node, size_t number) {
    const char *op = pb_text(node->op_type);
    if (*pb_text(node->name)) return arena_printf(arena, "node '%s' (%s)", node->name, op);
    const char *output = "";
    for (size_t i = 0; i < node->n_output && !*output; i++) output = node->output[i];
    return arena_printf(arena, "node #%zu '%s' (%s)", number, output, op);
}

/* --- the table of operators ------------------------------------------------------------------- */

static const OpRow op_rows[] = {
#define OP(domain, name, since, fn)  {domain, name, since, fn, NULL, false, NULL},
#define DYN(domain, name, since, fn) {domain, name, since, fn, NULL, true, NULL},
#include "compiler/onnx/ops.def"
};

static const OpRow text_rows[] = {
#define TEXT(domain, name, since, fn)     {domain, name, since, fn, NULL, false, NULL},
#define DYN_TEXT(domain, name, since, fn) {domain, name, since, fn, NULL, true, NULL},
#include "compiler/onnx/ops.def"
};

static const char *op_key(Arena *arena, const char *domain, const char *name) {
    return arena_printf(arena, "%s:%s", domain, name);
}

static void add_row(Arena *arena, StrMap *ops, OpRow row) {
    void **slot = strmap_put(ops, op_key(arena, row.domain, row.name));
    row.next = *slot;
    *slot = arena_copy(arena, &row, sizeof row);
}

static void fill_ops(Arena *arena, StrMap *ops, StrMap *text_ops) {
    strmap_init(ops, arena);
    strmap_init(text_ops, arena);
    for (size_t i = 0; i < sizeof text_rows / sizeof *text_rows; i++)
        add_row(arena, text_ops, text_rows[i]);
    for (size_t i = 0; i < sizeof op_rows / sizeof *op_rows; i++) add_row(arena, ops, op_rows[i]);
    for (const Elementwise *e = elementwise_rows; e->name; e++)
        add_row(arena, ops, (OpRow){"", e->name, e->since, import_elementwise, e, true, NULL});
}

const OpRow *check_op_row(const StrMap *ops, const char *domain, const char *name, int version) {
    const OpRow *best = NULL;
    const OpRow *row = strmap_get(ops, op_key(ops->arena, domain, name));
    for (; row; row = row->next)
        if (row->since <= version && (!best || row->since > best->since)) best = row;
    return best;
}

const OpRow *check_node_row(const Import *im, const char *domain, const char *name, int version,
                            bool text) {
    const OpRow *row = check_op_row(&im->text_ops, domain, name, version);
    if (text) return row;
    const OpRow *plain = check_op_row(&im->ops, domain, name, version);
    return plain ? plain : row;
}

bool onnx_operator(int row, OnnxOperator *result) {
    const int n_ops = (int)(sizeof op_rows / sizeof *op_rows);
    const int n_text = (int)(sizeof text_rows / sizeof *text_rows);
    if (row < n_ops + n_text) {
        const OpRow *op = row < n_ops ? &op_rows[row] : &text_rows[row - n_ops];
        *result = (OnnxOperator){op->domain, op->name, op->since, row >= n_ops, op->varying};
        return true;
    }
    const Elementwise *e = elementwise_rows;
    for (row -= n_ops + n_text; e->name && row > 0; row--) e++;
    if (e->name) *result = (OnnxOperator){"", e->name, e->since, false, true};
    return e->name != NULL;
}

bool onnx_supports(const char *domain, const char *name, int version) {
    OnnxOperator op;
    domain = plain_domain(domain);
    for (int row = 0; onnx_operator(row, &op); row++)
        if (!strcmp(op.domain, domain) && !strcmp(op.name, name) && op.since <= version)
            return true;
    return false;
}

/* --- opsets and functions --------------------------------------------------------------------- */

static void fill_opsets(Import *im, StrMap *map, size_t n, Onnx__OperatorSetIdProto *const *sets) {
    strmap_init(map, im->arena);
    for (size_t i = 0; i < n; i++) {
        const char *domain = plain_domain(sets[i]->domain);
        int64_t version = sets[i]->version;
        if (version < 1 || version > INT32_MAX) {
            diag_error(im->diag, E2010, "opset_import of domain '%s' has version %lld",
                       *domain ? domain : "ai.onnx", (long long)version);
            version = 1;
        }
        Opset *set = ARENA_NEW(im->arena, Opset);
        set->version = (int)version;
        *strmap_put(map, domain) = set;
    }
}

int check_opset(const Import *im, const Function *function, const char *domain) {
    const Opset *set = function ? strmap_get(&function->opsets, domain) : NULL;
    if (!set) set = strmap_get(&im->opsets, domain);
    return set ? set->version : 0;
}

static const char *function_key(Arena *arena, const char *domain, const char *name,
                                const char *overload) {
    return arena_printf(arena, "%s:%s:%s", plain_domain(domain), name, overload);
}

Function *check_function(const Import *im, const char *domain, const char *name,
                         const char *overload) {
    if (!im->functions.n) return NULL;
    return strmap_get(&im->functions, function_key(im->arena, domain, name, overload));
}

static void fill_functions(Import *im) {
    strmap_init(&im->functions, im->arena);
    for (size_t i = 0; i < im->proto->n_functions; i++) {
        const Onnx__FunctionProto *proto = im->proto->functions[i];
        const char *key =
            function_key(im->arena, proto->domain, pb_text(proto->name), pb_text(proto->overload));
        void **slot = strmap_put(&im->functions, key);
        if (*slot) {
            diag_error(im->diag, E2002, "function '%s' is defined twice", pb_text(proto->name));
            continue;
        }
        Function *function = ARENA_NEW(im->arena, Function);
        function->proto = proto;
        fill_opsets(im, &function->opsets, proto->n_opset_import, proto->opset_import);
        *slot = function;
    }
}

/* --- unsupported operators -------------------------------------------------------------------- */

/* One operator that nothing serves, with the first node that uses it. */
typedef struct Missing {
    const char *domain, *op, *label;
    int version, count;
} Missing;

typedef struct Check {
    Import *im;
    StrMap seen; /* "domain:op:version" -> Missing */
    VEC(Missing *) missing;
    VEC(Function *) functions; /* called and still to be looked at */
} Check;

static void check_nodes(Check *c, const Function *function, size_t n,
                        Onnx__NodeProto *const *nodes);

/* The newest opsets that import functions were written for: those of ONNX 1.22. What operators do
 * in later ones is not known. */
static const struct {
    const char *domain;
    int version;
} newest[] = {{"", 27}, {"ai.onnx.ml", 5}};

/* Reports an opset that a node needs and that is newer, once. */
static void check_newest(Check *c, const char *domain, int version) {
    for (size_t i = 0; i < sizeof newest / sizeof *newest; i++) {
        if (version <= newest[i].version || strcmp(domain, newest[i].domain) != 0) continue;
        void **slot = strmap_put(&c->seen, arena_printf(c->im->arena, "%s:%d", domain, version));
        if (!*slot)
            diag_error(c->im->diag, E3007,
                       "opset %d of %s is not supported: the newest is %d, of ONNX 1.22", version,
                       *domain ? domain : "ai.onnx", newest[i].version);
        *slot = c;
    }
}

static void check_node(Check *c, const Function *function, const Onnx__NodeProto *node,
                       size_t number) {
    Import *im = c->im;
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *a = node->attribute[i];
        if (a->g) check_nodes(c, function, a->g->n_node, a->g->node);
        for (size_t k = 0; k < a->n_graphs; k++)
            check_nodes(c, function, a->graphs[k]->n_node, a->graphs[k]->node);
    }
    const char *domain = plain_domain(node->domain), *op = pb_text(node->op_type);
    Function *called = check_function(im, domain, op, pb_text(node->overload));
    if (called) {
        if (!called->checked) vec_push(im->arena, &c->functions, called);
        called->checked = true;
        return;
    }
    int version = check_opset(im, function, domain);
    check_newest(c, domain, version);
    if (version && check_node_row(im, domain, op, version, false)) return;
    void **slot = strmap_put(&c->seen, arena_printf(im->arena, "%s:%s:%d", domain, op, version));
    Missing *m = *slot;
    if (!m) {
        m = ARENA_NEW(im->arena, Missing);
        *m = (Missing){domain, op, check_label(im->arena, node, number), version, 0};
        if (function)
            m->label = arena_printf(im->arena, "function '%s': %s", pb_text(function->proto->name),
                                    m->label);
        *slot = m;
        vec_push(im->arena, &c->missing, m);
    }
    m->count++;
}

static void check_nodes(Check *c, const Function *function, size_t n,
                        Onnx__NodeProto *const *nodes) {
    for (size_t i = 0; i < n; i++) check_node(c, function, nodes[i], i);
}

static void report_missing(Check *c) {
    Import *im = c->im;
    for (int i = 0; i < c->missing.n && i < MAX_LISTED; i++) {
        const Missing *m = c->missing.items[i];
        const char *more =
            m->count > 1 ? arena_printf(im->arena, " (used %d times)", m->count) : "";
        const char *domain = *m->domain ? m->domain : "ai.onnx";
        im->diag->where = m->label;
        if (m->version)
            diag_error(im->diag, E3001, "operator %s of %s, opset %d, is not supported%s", m->op,
                       domain, m->version, more);
        else
            diag_error(im->diag, E2010, "domain '%s' of operator %s is not in opset_import%s",
                       domain, m->op, more);
    }
    im->diag->where = NULL;
    if (c->missing.n > MAX_LISTED)
        diag_error(im->diag, E3001, "%d more operators are not supported",
                   c->missing.n - MAX_LISTED);
}

bool check_model(Import *im) {
    const Onnx__GraphProto *graph = im->proto->graph;
    if (!graph) {
        diag_error(im->diag, E2007, "the model has no graph");
        return false;
    }
    fill_ops(im->arena, &im->ops, &im->text_ops);
    fill_opsets(im, &im->opsets, im->proto->n_opset_import, im->proto->opset_import);
    if (!im->proto->n_opset_import) { /* IR version 1 and 2 had none */
        Opset *first = ARENA_NEW(im->arena, Opset);
        first->version = 1;
        *strmap_put(&im->opsets, "") = first;
    }
    fill_functions(im);
    Check c = {.im = im};
    strmap_init(&c.seen, im->arena);
    check_nodes(&c, NULL, graph->n_node, graph->node);
    for (int i = 0; i < c.functions.n; i++) {
        const Onnx__FunctionProto *proto = c.functions.items[i]->proto;
        check_nodes(&c, c.functions.items[i], proto->n_node, proto->node);
    }
    report_missing(&c);
    return true;
}

/* --- dimensions ------------------------------------------------------------------------------- */

bool check_is_initializer(const StrMap *names, const char *name) {
    const Binding *b = strmap_get(names, name);
    return b && (b->tensor || b->sparse);
}

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__TypeProto *type) {
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type
                                                                           : NULL;
}

/* The fixed extent of a dimension, or -1 with *symbol its name ("" if it has none). */
static int64_t dim_value(const Onnx__TensorShapeProto__Dimension *dim, const char **symbol) {
    *symbol = "";
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
        dim->dim_value >= 0)
        return dim->dim_value;
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)
        *symbol = pb_text(dim->dim_param);
    return -1;
}

static const char *axis_symbol(Arena *arena, const char *input, size_t axis) {
    return arena_printf(arena, "%s.%zu", input, axis);
}

/* A dimension of the inputs. map: the one whose entries it counts, at most `most` (-1: not said).
 */
static void resolve_symbol(Import *im, const char *name, const char *map, int64_t most) {
    void **slot = strmap_put(&im->symbols, name);
    if (*slot) return;
    Symbol *symbol = ARENA_NEW(im->arena, Symbol);
    *symbol = (Symbol){arena_strdup(im->arena, name), most, -1, map};
    int64_t low = map ? 0 : -1;
    *slot = symbol;
    vec_push(im->arena, &im->symbol_list, symbol);
    bool own = most >= 0; /* the last option of the name, else --items, else the last "*" */
    for (int i = 0; im->options && i < im->options->n_dims; i++) {
        DimOption *option = &im->options->dims[i];
        bool named = !strcmp(option->name, name);
        if (!named && (own || strcmp(option->name, "*") != 0)) continue;
        option->used = true;
        own = named;
        symbol->value = option->value;
        low = option->low;
    }
    if (low == symbol->value || symbol->value < 0) return;
    symbol->varies = dim_new_symbol(im->x, symbol->name, low, symbol->value);
    if (symbol->varies < 0)
        diag_error(im->diag, E3002, "more than %d dimensions that vary", DIM_MAX_SYMBOLS);
    else
        symbol->value = dim_of_symbol(im->x, symbol->varies);
}

const char *check_dim_name(const Onnx__TypeProto *type, int axis) {
    const Onnx__TypeProto__Tensor *tensor = tensor_type(type);
    const char *name = "";
    if (tensor && tensor->shape && (size_t)axis < tensor->shape->n_dim)
        dim_value(tensor->shape->dim[axis], &name);
    return name;
}

const DimOption *check_dim_option(const Import *im, const char *name) {
    const DimOption *found = NULL; /* the last one of the name */
    for (int i = 0; im->options && i < im->options->n_dims; i++)
        if (!strcmp(im->options->dims[i].name, name)) found = &im->options->dims[i];
    return found;
}

static bool infos_name(size_t n, Onnx__ValueInfoProto *const *info, const char *name) {
    for (size_t i = 0; i < n; i++) {
        const Onnx__TypeProto__Tensor *type = tensor_type(info[i]->type);
        for (size_t k = 0; type && type->shape && k < type->shape->n_dim; k++)
            if (!strcmp(check_dim_name(info[i]->type, (int)k), name)) return true;
    }
    return false;
}

static bool graph_names(const Onnx__GraphProto *graph, const char *name);

/* Does a result of one of the nodes have a dimension that --dim calls so (OUTPUT.AXIS)? What
 * repeats has a number of iterations besides (OUTPUT.trips). */
static bool nodes_name(size_t n, Onnx__NodeProto *const *nodes, const char *name) {
    const char *dot = strrchr(name, '.');
    bool axis = dot && dot[1] >= '0' && dot[1] < '0' + MAX_TENSOR_RANK && !dot[2];
    size_t length = axis || (dot && !strcmp(dot, ".trips")) ? (size_t)(dot - name) : 0;
    for (size_t i = 0; i < n; i++) {
        const Onnx__NodeProto *node = nodes[i];
        for (size_t k = 0; k < node->n_output && length; k++)
            if (strlen(node->output[k]) == length && !strncmp(node->output[k], name, length))
                return true;
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g && graph_names(node->attribute[k]->g, name)) return true;
    }
    return false;
}

static bool graph_names(const Onnx__GraphProto *graph, const char *name) {
    return infos_name(graph->n_value_info, graph->value_info, name) ||
           infos_name(graph->n_output, graph->output, name) ||
           nodes_name(graph->n_node, graph->node, name);
}

static bool model_names(const Onnx__ModelProto *model, const char *name) {
    if (graph_names(model->graph, name)) return true;
    for (size_t i = 0; i < model->n_functions; i++) {
        const Onnx__FunctionProto *f = model->functions[i];
        if (infos_name(f->n_value_info, f->value_info, name) ||
            nodes_name(f->n_node, f->node, name))
            return true;
    }
    return false;
}

/* Options for dimensions of results: one value is what the model then declares. */
static void resolve_results(Import *im) {
    for (int i = 0; im->options && i < im->options->n_dims; i++) {
        DimOption *option = &im->options->dims[i];
        if (option->used || !strcmp(option->name, "*") || !model_names(im->proto, option->name))
            continue;
        option->used = true;
        void **slot = strmap_put(&im->symbols, option->name);
        if (!*slot) *slot = ARENA_NEW(im->arena, Symbol);
        *(Symbol *)*slot = (Symbol){.name = option->name,
                                    .value = option->low == option->value ? option->low : -1,
                                    .varies = -1};
    }
}

/* Names of the symbols (only the unresolved ones?), separated. */
static const char *list_symbols(Import *im, bool unresolved, const char *before,
                                const char *after) {
    Text t = text_new(im->arena);
    int listed = 0;
    for (int i = 0; i < im->symbol_list.n; i++) {
        const Symbol *symbol = im->symbol_list.items[i];
        if (unresolved && symbol->value != -1) continue;
        if (listed++ == 20) {
            text_add(&t, " ...");
            break;
        }
        if (unresolved && symbol->map) {
            text_addf(&t, "%s--items %s=N", listed > 1 ? " " : "", symbol->map);
            continue;
        }
        text_addf(&t, "%s%s%s%s", listed > 1 ? " " : "", before, symbol->name, after);
    }
    return text_get(&t);
}

bool check_dims(Import *im) {
    const Onnx__GraphProto *graph = im->proto->graph;
    StrMap initializers;
    int errors = im->diag->n_errors;
    strmap_init(&initializers, im->arena);
    strmap_init(&im->symbols, im->arena);
    for (size_t i = 0; i < graph->n_initializer; i++)
        *strmap_put(&initializers, pb_text(graph->initializer[i]->name)) = im;
    for (size_t i = 0; i < graph->n_sparse_initializer; i++)
        if (graph->sparse_initializer[i]->values)
            *strmap_put(&initializers, pb_text(graph->sparse_initializer[i]->values->name)) = im;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TypeProto__Tensor *type = tensor_type(io_dims_type(im, graph->input[i]));
        const char *name = pb_text(graph->input[i]->name), *symbol;
        int64_t most;
        const char *entries = io_map_entries(im, graph->input[i], &most);
        if (entries) resolve_symbol(im, entries, name, most);
        if (!type || !type->shape || strmap_get(&initializers, name)) continue;
        for (size_t k = 0; k < type->shape->n_dim && k < MAX_TENSOR_RANK; k++)
            if (dim_value(type->shape->dim[k], &symbol) < 0)
                resolve_symbol(
                    im,
                    *symbol ? symbol : axis_symbol(im->arena, io_axis_name(im, graph->input[i]), k),
                    NULL, -1);
    }
    resolve_results(im);
    bool ok = im->diag->n_errors == errors;
    for (int i = 0; im->options && i < im->options->n_dims; i++) {
        const DimOption *option = &im->options->dims[i];
        const char *given = option->low == option->value
                                ? arena_printf(im->arena, "%lld", (long long)option->value)
                                : arena_printf(im->arena, "%lld..%lld", (long long)option->low,
                                               (long long)option->value);
        if (option->low < 0 || option->value > INT32_MAX || option->low > option->value) {
            diag_error(im->diag, E0001, "--dim %s=%s: a dimension is between 0 and 2^31-1",
                       option->name, given);
            ok = false;
        } else if (!option->used && strcmp(option->name, "*") != 0) {
            const char *list = list_symbols(im, false, "", "");
            diag_error(im->diag, E0001, "--dim %s=%s: the model has no such dimension; it has: %s",
                       option->name, given, *list ? list : "none");
            ok = false;
        }
    }
    if (!ok) return false;
    const char *open = list_symbols(im, true, "--dim ", "=VALUE");
    if (!*open) return true;
    diag_error(im->diag, E2008, "symbolic dimensions have no value; give %s (or --dim '*=VALUE')",
               open);
    return false;
}

/* As check_type_shape; `input` names dimensions without a name. */
static bool type_shape(const Import *im, const Onnx__TypeProto *type, const char *input, int *rank,
                       int64_t *shape) {
    const Onnx__TypeProto__Tensor *tensor = tensor_type(type);
    if (!tensor || !tensor->shape || tensor->shape->n_dim > MAX_TENSOR_RANK) return false;
    *rank = (int)tensor->shape->n_dim;
    for (int i = 0; i < *rank; i++) {
        const char *name;
        shape[i] = dim_value(tensor->shape->dim[i], &name);
        if (shape[i] >= 0) continue;
        if (!*name && input) name = axis_symbol(im->arena, input, (size_t)i);
        const Symbol *symbol = *name ? strmap_get(&im->symbols, name) : NULL;
        if (symbol) shape[i] = symbol->value;
    }
    return true;
}

bool check_type_shape(const Import *im, const Onnx__TypeProto *type, int *rank, int64_t *shape) {
    return type_shape(im, type, NULL, rank, shape);
}

DType check_input_type(Import *im, const Onnx__ValueInfoProto *info, int *rank, int64_t *shape) {
    const Onnx__TypeProto__Tensor *tensor = tensor_type(info->type);
    if (!tensor) {
        diag_error(im->diag, E3002,
                   "only tensors, maps of single elements, and sequences and optionals of "
                   "tensors are supported");
        return DT_none;
    }
    DType dt = dt_from_onnx(tensor->elem_type);
    if (dt == DT_none) {
        diag_error(im->diag, E2006, "%d is not an element type", (int)tensor->elem_type);
        return DT_none;
    }
    if (dt_kind(dt) > DK_float && dt != DT_str) {
        diag_error(im->diag, E3003, "tensors of type %s are not supported", dt_name(dt));
        return DT_none;
    }
    if (!type_shape(im, info->type, pb_text(info->name), rank, shape)) {
        if (tensor->shape)
            diag_error(im->diag, E3002, "%zu dimensions; at most %d are supported",
                       tensor->shape->n_dim, MAX_TENSOR_RANK);
        else
            diag_error(im->diag, E3002, "the model does not say how many dimensions it has");
        return DT_none;
    }
    bool open = false; /* dimensions without a value are reported elsewhere */
    int64_t most[MAX_TENSOR_RANK];
    for (int i = 0; i < *rank; i++) open |= shape[i] == -1;
    dims_max(im->x, *rank, shape, most);
    if (!open && !shape_fits(*rank, most)) {
        diag_error(im->diag, E3005, "shape %s has more than 2^31-1 elements",
                   shape_text(im->arena, *rank, most));
        return DT_none;
    }
    return dt;
}

bool check_input_strings(Import *im, const Onnx__ValueInfoProto *info, int *rank, int64_t *shape) {
    int64_t bytes = DEFAULT_STRING_BYTES;
    bool own = false; /* the last option of the name, else the last "*" */
    for (int i = 0; im->options && i < im->options->n_string_bytes; i++) {
        DimOption *option = &im->options->string_bytes[i];
        bool named = !strcmp(option->name, pb_text(info->name));
        if (!named && (own || strcmp(option->name, "*") != 0)) continue;
        option->used = true;
        own = named;
        bytes = option->value;
    }
    if (*rank == MAX_TENSOR_RANK) {
        diag_error(im->diag, E3002, "%d dimensions; strings may have %d", *rank,
                   MAX_TENSOR_RANK - 1);
        return false;
    }
    shape[(*rank)++] = bytes;
    int64_t most[MAX_TENSOR_RANK];
    dims_max(im->x, *rank, shape, most);
    if (shape_fits(*rank, most)) return true;
    diag_error(im->diag, E3005, "strings of %lld bytes in shape %s take more than 2^31-1 bytes",
               (long long)bytes, shape_text(im->arena, *rank - 1, shape));
    return false;
}

void check_output(Import *im, const Onnx__TypeProto *declared, const Entity *e) {
    const Onnx__TypeProto__Tensor *tensor = tensor_type(declared);
    if (!tensor) return;
    const Value *v = e->tensor;
    bool text = e->kind == ENTITY_text;
    DType dt = dt_from_onnx(tensor->elem_type), own = text ? DT_str : v->dt;
    if (tensor->elem_type && dt != own)
        diag_error(im->diag, E2009, "declared as %s, but computed as %s",
                   dt == DT_none ? "no known type" : dt_name(dt), dt_name(own));
    int rank, own_rank = v->rank - text;
    int64_t shape[MAX_TENSOR_RANK];
    if (!check_type_shape(im, declared, &rank, shape)) return;
    bool same = rank == own_rank;
    for (int i = 0; i < rank && same; i++)
        same = shape[i] < 0 || dim_varies(v->dims[i]) || shape[i] == v->dims[i];
    if (same) return;
    /* exporters write wrong ones, which no runtime minds: what is computed counts */
    const char *text_shape = shape_text(im->arena, rank, shape);
    diag_warning(im->diag, E2009, "declared with shape %s (-1: not fixed), but computed with %s",
                 text_shape, shape_text(im->arena, own_rank, v->dims));
}
