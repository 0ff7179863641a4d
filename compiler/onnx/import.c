/* The walk over a model: scopes of names, order of nodes, calls of functions, sub-graphs.
 *
 * Nodes run in an order in which every name is made before it is used (the model's own order where
 * it already is one). A name is looked up from the innermost scope outwards; what a loop body uses
 * from outside becomes a further input of the body. A value that could not be computed is `poison`,
 * and nodes that need it are passed over in silence.
 */
#include "compiler/onnx/import_impl.h"
#include "ir/constant.h"

#include <string.h>

/* --- scopes ----------------------------------------------------------------------------------- */

Entity *entity_tensor(Import *im, Value *v) {
    Entity *e = ARENA_NEW(im->arena, Entity);
    e->kind = ENTITY_tensor;
    e->tensor = v;
    return e;
}

Entity *entity_strings(Import *im, Value *bytes) {
    Entity *e = entity_tensor(im, bytes);
    e->kind = ENTITY_text;
    e->dt = DT_str;
    return e;
}

/* True if the entity is one Value. */
static bool is_value(const Entity *e) {
    return e->kind == ENTITY_tensor || e->kind == ENTITY_text;
}

static Scope *new_scope(Import *im, Scope *outer, Graph *g, Frame *frame) {
    Scope *s = ARENA_NEW(im->arena, Scope);
    s->outer = outer;
    s->g = g;
    s->frame = frame;
    s->depth = outer ? outer->depth + 1 : 0;
    strmap_init(&s->names, im->arena);
    strmap_init(&s->declared, im->arena);
    return s;
}

static void bind(Import *im, Scope *s, const char *name, Entity *e) {
    Binding *b = ARENA_NEW(im->arena, Binding);
    b->entity = e;
    *strmap_put(&s->names, name) = b;
}

/* The entity of a loop's surroundings as the loop's body sees it. */
static Entity *capture(Import *im, Scope *s, Entity *e) {
    if (e == &im->poison || e == &im->absent) return e;
    Entity *inner = ARENA_NEW(im->arena, Entity);
    *inner = *e;
    if (e->tensor) {
        Value *v = e->tensor;
        if (value_is_const(v)) {
            inner->tensor = constant_like(s->g, v, v->rank, v->dims);
        } else {
            inner->tensor = graph_captured(s->g, v);
            vec_push(im->arena, s->captured, v);
        }
        return inner;
    }
    inner->items = ARENA_ARRAY(im->arena, e->n, Entity *);
    for (int i = 0; i < e->n; i++) inner->items[i] = capture(im, s, e->items[i]);
    return inner;
}

/* NULL if nothing visible has the name. */
static Entity *lookup(Import *im, Scope *s, const char *name) {
    Binding *b = strmap_get(&s->names, name);
    if (b) {
        if (!b->entity) {
            if (b->tensor) {
                b->entity = attr_entity(im, s->g, b->tensor);
            } else {
                Value *v = attr_sparse_const(im, s->g, b->sparse);
                if (v) b->entity = entity_tensor(im, v);
            }
            if (b->entity)
                b->entity->tensor->name = arena_strdup(im->arena, name);
            else
                b->entity = &im->poison;
        }
        return b->entity;
    }
    if (!s->outer) return NULL;
    Entity *e = lookup(im, s->outer, name);
    if (e && s->captured) {
        e = capture(im, s, e);
        bind(im, s, name, e);
    }
    return e;
}

const Value *scope_value(const Scope *s, const char *name) {
    for (; s; s = s->outer) {
        const Binding *b = strmap_get(&s->names, name);
        if (b) return b->entity && b->entity->kind == ENTITY_tensor ? b->entity->tensor : NULL;
    }
    return NULL;
}

static void declare(Scope *s, size_t n, Onnx__ValueInfoProto *const *info) {
    for (size_t i = 0; i < n; i++) *strmap_put(&s->declared, pb_text(info[i]->name)) = info[i];
}

static bool says_zero(const Onnx__TypeProto *type) {
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return false;
    const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
    for (size_t i = 0; shape && i < shape->n_dim; i++)
        if (shape->dim[i]->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            shape->dim[i]->dim_value == 0)
            return true;
    return false;
}

/* What the model says of values inside of it. Extents of 0 are what PyTorch's exporter writes where
 * a run computes the end of a slice. */
static void declare_inner(Scope *s, size_t n, Onnx__ValueInfoProto *const *info) {
    for (size_t i = 0; i < n; i++)
        if (!says_zero(info[i]->type)) declare(s, 1, info + i);
}

/* Reports a second definition. */
static void bind_new(Import *im, Scope *s, const char *name, Binding *b, const char *what) {
    void **slot = strmap_put(&s->names, name);
    if (*slot)
        diag_error(im->diag, E2002, "%s '%s' is defined twice", what, name);
    else
        *slot = b;
}

static void bind_initializers(Import *im, Scope *s, const Onnx__GraphProto *graph) {
    for (size_t i = 0; i < graph->n_initializer; i++) {
        Binding *b = ARENA_NEW(im->arena, Binding);
        b->tensor = graph->initializer[i];
        bind_new(im, s, pb_text(b->tensor->name), b, "initializer");
    }
    for (size_t i = 0; i < graph->n_sparse_initializer; i++) {
        Binding *b = ARENA_NEW(im->arena, Binding);
        b->sparse = graph->sparse_initializer[i];
        const char *name = b->sparse->values ? pb_text(b->sparse->values->name) : "";
        bind_new(im, s, name, b, "initializer");
    }
}

/* --- order ------------------------------------------------------------------------------------ */

typedef struct Order {
    Import *im;
    size_t n;
    Onnx__NodeProto *const *node;
    StrMap producer; /* name -> index of its node + 1 */
    VEC(int) deps;   /* nodes that node i needs: deps[first[i]] up to deps[first[i + 1]] */
    int *first;
    int *sorted;
    bool *replaced; /* a Constant that a later one of the same name replaces */
} Order;

/* Names that a sub-graph defines itself, and those of the sub-graphs around it. */
typedef struct Hidden {
    const struct Hidden *outer;
    StrMap names;
} Hidden;

static void add_dep(Order *o, const char *name, const Hidden *hidden) {
    if (!name || !*name) return;
    for (; hidden; hidden = hidden->outer)
        if (strmap_get(&hidden->names, name)) return;
    size_t producer = (size_t)(uintptr_t)strmap_get(&o->producer, name);
    if (producer) vec_push(o->im->arena, &o->deps, (int)(producer - 1));
}

static void add_node_deps(Order *o, const Onnx__NodeProto *node, const Hidden *hidden);

/* Adds what a sub-graph uses of the names around it. */
static void add_graph_deps(Order *o, const Onnx__GraphProto *graph, const Hidden *outer) {
    Hidden own = {.outer = outer};
    strmap_init(&own.names, o->im->arena);
    for (size_t i = 0; i < graph->n_input; i++)
        *strmap_put(&own.names, pb_text(graph->input[i]->name)) = &own;
    for (size_t i = 0; i < graph->n_initializer; i++)
        *strmap_put(&own.names, pb_text(graph->initializer[i]->name)) = &own;
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++)
            *strmap_put(&own.names, graph->node[i]->output[k]) = &own;
    for (size_t i = 0; i < graph->n_node; i++) add_node_deps(o, graph->node[i], &own);
    for (size_t i = 0; i < graph->n_output; i++) add_dep(o, pb_text(graph->output[i]->name), &own);
}

static void add_node_deps(Order *o, const Onnx__NodeProto *node, const Hidden *hidden) {
    for (size_t k = 0; k < node->n_input; k++) add_dep(o, node->input[k], hidden);
    for (size_t k = 0; k < node->n_attribute; k++) {
        const Onnx__AttributeProto *a = node->attribute[k];
        if (a->g) add_graph_deps(o, a->g, hidden);
        for (size_t j = 0; j < a->n_graphs; j++) add_graph_deps(o, a->graphs[j], hidden);
    }
}

static void report_cycle(Order *o, const int *stack, int depth) {
    int from = depth - 2; /* the last node on the stack closes the cycle */
    while (from > 0 && stack[from] != stack[depth - 1]) from--;
    Text t = text_new(o->im->arena);
    for (int i = from; i < depth; i++) {
        if (i == from + 6) {
            text_add(&t, " -> ...");
            break;
        }
        const char *label = check_label(o->im->arena, o->node[stack[i]], (size_t)stack[i]);
        text_addf(&t, "%s%s", i > from ? " -> " : "", label);
    }
    diag_error(o->im->diag, E2003, "the graph has a cycle, each needing the next: %s",
               text_get(&t));
}

/* Depth first along the dependencies, without recursion. False on a cycle. */
static bool sort_by_need(Order *o) {
    Arena *arena = o->im->arena;
    int n = (int)o->n, n_sorted = 0;
    char *state = ARENA_ARRAY(arena, n, char); /* 0 new, 1 on the stack, 2 done */
    int *stack = ARENA_ARRAY(arena, n + 1, int), *cursor = ARENA_ARRAY(arena, n + 1, int);
    for (int root = 0; root < n; root++) {
        if (state[root]) continue;
        int depth = 1;
        stack[0] = root;
        cursor[0] = o->first[root];
        state[root] = 1;
        while (depth) {
            int at = stack[depth - 1];
            if (cursor[depth - 1] == o->first[at + 1]) {
                state[at] = 2;
                o->sorted[n_sorted++] = at;
                depth--;
                continue;
            }
            int need = o->deps.items[cursor[depth - 1]++];
            if (state[need] == 2) continue;
            stack[depth] = need;
            if (state[need] == 1) {
                report_cycle(o, stack, depth + 1);
                return false;
            }
            cursor[depth] = o->first[need];
            state[need] = 1;
            depth++;
        }
    }
    return true;
}

static bool is_constant(const Onnx__NodeProto *node) {
    return !strcmp(pb_text(node->op_type), "Constant") && !*plain_domain(node->domain);
}

/* Fills o->sorted with an order in which every name is made before it is used. A name has one
 * definition, except that of several Constant nodes the last one counts: editors of models append
 * what is to replace a constant, and ONNX Runtime reads it so. */
static bool order_nodes(Order *o, const Scope *scope) {
    Import *im = o->im;
    strmap_init(&o->producer, im->arena);
    if (o->n > MAX_NODES) {
        diag_error(im->diag, E0007, "the model has more than %d nodes", MAX_NODES);
        return false;
    }
    o->replaced = ARENA_ARRAY(im->arena, o->n, bool);
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < o->node[i]->n_output; k++) {
            const char *name = o->node[i]->output[k];
            if (!*name) continue;
            void **slot = strmap_put(&o->producer, name);
            size_t before = (size_t)(uintptr_t)*slot;
            if (before && is_constant(o->node[before - 1]) && is_constant(o->node[i]))
                o->replaced[before - 1] = true;
            else if (before || strmap_get(&scope->names, name))
                diag_error(im->diag, E2002, "%s: output '%s' is defined twice",
                           check_label(im->arena, o->node[i], i), name);
            *slot = (void *)(uintptr_t)(i + 1);
            if (im->diag->messages.n > MAX_WALK_ERRORS) return false;
        }
    o->first = ARENA_ARRAY(im->arena, o->n + 1, int);
    o->sorted = ARENA_ARRAY(im->arena, o->n + 1, int);
    bool in_order = true;
    for (size_t i = 0; i < o->n; i++) {
        o->first[i] = o->deps.n;
        add_node_deps(o, o->node[i], NULL);
        for (int k = o->first[i]; k < o->deps.n; k++) in_order &= o->deps.items[k] < (int)i;
    }
    o->first[o->n] = o->deps.n;
    if (!in_order) return sort_by_need(o);
    for (size_t i = 0; i < o->n; i++) o->sorted[i] = (int)i;
    return true;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static bool run_nodes(Import *im, Scope *scope, size_t n, Onnx__NodeProto *const *nodes);

static void bind_output(Node *n, int i, Entity *e) {
    const char *name = n->proto->output[i];
    if (!*name) return;
    bind(n->im, n->scope, name, e);
    if (is_value(e) && e->tensor && !e->tensor->name)
        e->tensor->name = arena_strdup(n->im->arena, name);
}

static void poison_outputs(Node *n) {
    for (int i = 0; i < n->n_out; i++) bind_output(n, i, &n->im->poison);
}

/* Looks the inputs up. False if one of them is undefined or could not be computed. */
static bool gather_inputs(Node *n) {
    Import *im = n->im;
    bool ok = true;
    for (int i = 0; i < n->n_in; i++) {
        const char *name = n->proto->input[i];
        if (!*name) continue;
        Entity *e = lookup(im, n->scope, name);
        if (!e) {
            diag_error(im->diag, E2001,
                       "input '%s' is made by no node, and is no input or initializer", name);
            ok = false;
        } else if (e == &im->poison) {
            ok = false;
        } else if (e != &im->absent) {
            n->entity[i] = e;
            n->in[i] = e->kind == ENTITY_tensor ? e->tensor : NULL;
        }
    }
    return ok;
}

static void call_function(Node *n, Function *function) {
    Import *im = n->im;
    const Onnx__FunctionProto *proto = function->proto;
    for (const Frame *f = n->scope->frame; f; f = f->outer)
        if (f->function == function) {
            invalid(n, E2003, "function '%s' calls itself", pb_text(proto->name));
            return;
        }
    if ((size_t)n->n_in > proto->n_input || (size_t)n->n_out > proto->n_output) {
        invalid(n, E2007, "function '%s' has %zu inputs and %zu outputs, the call %d and %d",
                pb_text(proto->name), proto->n_input, proto->n_output, n->n_in, n->n_out);
        return;
    }
    Frame *frame = ARENA_NEW(im->arena, Frame);
    *frame = (Frame){.outer = n->scope->frame, .function = function};
    frame->label = frame->outer ? frame->outer->label : n->label;
    frame->attrs = ARENA_ARRAY(im->arena, proto->n_attribute + proto->n_attribute_proto, BoundAttr);
    for (size_t i = 0; i < proto->n_attribute + proto->n_attribute_proto; i++) {
        const Onnx__AttributeProto *fallback =
            i < proto->n_attribute ? NULL : proto->attribute_proto[i - proto->n_attribute];
        const char *name = fallback ? pb_text(fallback->name) : proto->attribute[i];
        const Onnx__AttributeProto *given = NULL;
        for (size_t k = 0; k < n->proto->n_attribute && !given; k++)
            if (!strcmp(pb_text(n->proto->attribute[k]->name), name))
                given = attr_resolve(n->scope->frame, n->proto->attribute[k]);
        frame->attrs[frame->n_attrs++] = (BoundAttr){name, given ? given : fallback};
    }
    Scope *s = new_scope(im, NULL, n->g, frame);
    s->depth = n->scope->depth + 1;
    declare_inner(s, proto->n_value_info, proto->value_info);
    for (size_t i = 0; i < proto->n_input; i++) {
        Entity *e = (int)i < n->n_in ? n->entity[i] : NULL;
        bind(im, s, proto->input[i], e ? e : &im->absent);
    }
    for (int i = 0; i < n->n_out; i++) {
        void *info = strmap_get(&n->scope->declared, n->proto->output[i]);
        if (info) *strmap_put(&s->declared, proto->output[i]) = info;
    }
    if (!run_nodes(im, s, proto->n_node, proto->node)) {
        n->failed = true;
        return;
    }
    im->diag->where = n->label;
    for (int i = 0; i < n->n_out; i++) {
        Entity *e = lookup(im, s, proto->output[i]);
        if (!e)
            invalid(n, E2001, "function '%s': output '%s' is made by no node", pb_text(proto->name),
                    proto->output[i]);
        else if (e == &im->absent || e->kind != ENTITY_tensor)
            n->out_entity[i] = e;
        else
            n->out[i] = e->tensor;
        if (e == &im->poison) n->failed = true;
    }
}

/* What the function made, under its names. */
static void bind_outputs(Node *n) {
    Import *im = n->im;
    for (int i = 0; i < n->n_out; i++) {
        if (!*n->proto->output[i]) continue;
        Entity *e = n->out_entity[i];
        if (!e && n->out[i]) {
            const Value *v = n->out[i];
            if (node_shape_ok(n, v->rank, v->dims)) e = entity_tensor(im, n->out[i]);
        }
        if (!e && !n->failed)
            unsupported(n, "output %d, '%s', is not supported", i, n->proto->output[i]);
        bind_output(n, i, e ? e : &im->poison);
    }
}

static const char *node_label(Import *im, const Scope *scope, const Onnx__NodeProto *proto,
                              size_t number) {
    const char *label = check_label(im->arena, proto, number);
    if (!scope->frame) return label;
    return arena_printf(im->arena, "%s: in function '%s': %s", scope->frame->label,
                        pb_text(scope->frame->function->proto->name), label);
}

/* Sums and the like take numbers: an operator that adds bools was given what it does not take. */
static void check_combined(Node *n, const Op *before) {
    for (const Op *op = before ? before->next : n->g->first; op; op = op->next)
        if (op->combine != COMBINE_none && op->body && op->body->dt == DT_bool)
            invalid(n, E2006, "the operator takes no elements of type bool");
}

/* The first input that is a tensor of strings; -1: none is. */
static int text_input(const Node *n) {
    for (int i = 0; i < n->n_in; i++)
        if (n->entity[i] && n->entity[i]->kind == ENTITY_text) return i;
    return -1;
}

/* A tensor with dimensions that vary, the entity or one in it; NULL: there is none. */
static const Value *varying_value(const Entity *e) {
    if (e->tensor) return dims_vary(e->tensor->rank, e->tensor->dims) ? e->tensor : NULL;
    const Value *v = NULL;
    for (int i = 0; i < e->n && !v; i++) v = varying_value(e->items[i]);
    return v;
}

/* The first input with dimensions that vary; -1: none has. */
static int varying_input(const Node *n) {
    for (int i = 0; i < n->n_in; i++)
        if (n->entity[i] && varying_value(n->entity[i])) return i;
    return -1;
}

static const char *varying_text(const Node *n, int input) {
    const Value *v = varying_value(n->entity[input]);
    Text t = text_new(n->im->arena);
    for (int i = 0; i < v->rank; i++)
        if (dim_varies(v->dims[i]))
            text_addf(&t, "%s%s", t.length ? ", " : "", dim_text(n->x, v->dims[i]));
    return text_get(&t);
}

/* What the node's function took for granted of dimensions that vary is checked in every run. */
static void note_faults(Node *n) {
    if (n->failed || !n->x->dims) return;
    graph_note_claims(n->g);
}

static void import_node(Import *im, Scope *scope, const Onnx__NodeProto *proto, size_t number) {
    size_t n_set = proto->n_output > MAX_SET_OUTPUTS ? proto->n_output : MAX_SET_OUTPUTS;
    Node node = {.im = im,
                 .g = scope->g,
                 .x = im->x,
                 .proto = proto,
                 .op = pb_text(proto->op_type),
                 .domain = plain_domain(proto->domain),
                 .n_in = (int)proto->n_input,
                 .n_out = (int)proto->n_output,
                 .in = ARENA_ARRAY(im->arena, proto->n_input, Value *),
                 .entity = ARENA_ARRAY(im->arena, proto->n_input, Entity *),
                 .out = ARENA_ARRAY(im->arena, n_set, Value *),
                 .out_entity = ARENA_ARRAY(im->arena, n_set, Entity *),
                 .scope = scope,
                 .label = node_label(im, scope, proto, number)};
    Node *n = &node;
    im->diag->where = n->label;
    const char *src = *pb_text(proto->name)                  ? proto->name
                      : proto->n_output && *proto->output[0] ? proto->output[0]
                                                             : n->op;
    n->src = scope->g->src = arena_printf(im->arena, "%s(%s)", n->op, src);
    /* errors of other nodes must not keep the builders from folding this one's constants */
    int errors = im->diag->n_errors;
    im->diag->n_errors = 0;
    bool ready = gather_inputs(n);
    Function *called = check_function(im, n->domain, n->op, pb_text(proto->overload));
    if (ready && called) {
        call_function(n, called);
    } else if (ready) {
        const Frame *frame = scope->frame;
        n->version = check_opset(im, frame ? frame->function : NULL, n->domain);
        const OpRow *row = check_node_row(im, n->domain, n->op, n->version, text_input(n) >= 0);
        /* an operator without any row was reported before the walk */
        ready = row && n->version;
        if (!row && check_node_row(im, n->domain, n->op, n->version, false))
            diag_error(im->diag, E3003,
                       "input %d is a tensor of strings, which are not supported here",
                       text_input(n));
        n->varying = row && row->varying;
        int varying = ready && !n->varying ? varying_input(n) : -1;
        if (varying >= 0) {
            unsupported(
                n, "input %d, '%s', has dimensions that vary, %s, which are not supported here",
                varying, proto->input[varying], varying_text(n, varying));
            ready = false;
        }
        if (ready) {
            const Op *before = scope->g->last;
            DimClaim *forgotten;
            dim_take_claims(im->x, &forgotten);
            n->row = row->elementwise;
            row->fn(n);
            check_combined(n, before);
        }
    }
    im->diag->where = n->label;
    if (im->diag->n_errors) n->failed = true;
    if (ready && !called) note_faults(n);
    if (ready && (called || !n->failed)) /* a function's own nodes have poisoned what failed */
        bind_outputs(n);
    else
        poison_outputs(n);
    im->diag->n_errors += errors;
    im->diag->where = NULL;
}

/* Ends the walk: a bound was passed. */
static void stop(Import *im, const char *format, int bound) {
    if (!im->stopped) diag_error(im->diag, E0007, "%s", arena_printf(im->arena, format, bound));
    im->stopped = true;
}

static bool run_nodes(Import *im, Scope *scope, size_t n, Onnx__NodeProto *const *nodes) {
    if (scope->depth > MAX_CALL_DEPTH)
        stop(im, "functions and sub-graphs are nested more than %d deep", MAX_CALL_DEPTH);
    if (im->stopped) return false;
    scope->n_nodes = n;
    scope->nodes = nodes;
    Order order = {.im = im, .n = n, .node = nodes};
    if (!order_nodes(&order, scope)) return false;
    /* constants first: they need nothing, and what asks for declared shapes can look at them */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            int at = order.sorted[i];
            if (order.replaced[at] || is_constant(nodes[at]) != (pass == 0)) continue;
            if (++im->n_nodes > MAX_NODES)
                stop(im, "functions and sub-graphs unfold to more than %d nodes", MAX_NODES);
            if (im->diag->messages.n > MAX_WALK_ERRORS) im->stopped = true;
            if (im->stopped) return false;
            import_node(im, scope, nodes[at], (size_t)at);
        }
    return true;
}

bool import_subgraph(Node *n, const Onnx__GraphProto *proto, Graph *g, Entity *const *inputs,
                     Entity **outputs, ValueVec *captured) {
    Import *im = n->im;
    Scope *s = new_scope(im, n->scope, g, n->scope->frame);
    s->captured = captured;
    declare_inner(s, proto->n_value_info, proto->value_info);
    declare(s, proto->n_output, proto->output);
    for (size_t i = 0; i < proto->n_input; i++) {
        Binding *b = ARENA_NEW(im->arena, Binding);
        b->entity = inputs[i] ? inputs[i] : &im->absent;
        bind_new(im, s, pb_text(proto->input[i]->name), b, "input");
    }
    bind_initializers(im, s, proto);
    bool ok = run_nodes(im, s, proto->n_node, proto->node);
    im->diag->where = n->label;
    g->src = n->src;
    for (size_t i = 0; i < proto->n_output; i++) {
        const char *name = pb_text(proto->output[i]->name);
        Entity *e = lookup(im, s, name);
        bool known = e && e != &im->poison && e != &im->absent;
        outputs[i] = known ? e : NULL;
        if (ok && !e) invalid(n, E2001, "output '%s' of the sub-graph is made by no node", name);
        if (ok && e == &im->absent)
            invalid(n, E2001, "output '%s' of the sub-graph is an input that is left out", name);
        ok = ok && known;
    }
    if (!ok) n->failed = true;
    return ok;
}

/* --- the model -------------------------------------------------------------------------------- */

/* Every dimension that varies is one more input, a number of the type int32. */
static void bind_symbols(Import *im, Graph *g) {
    for (int i = 0; i < im->symbol_list.n; i++) {
        const Symbol *symbol = im->symbol_list.items[i];
        if (symbol->varies < 0) continue;
        graph_set_symbol(g, symbol->varies, graph_input(g, symbol->name, DT_i32, 0, NULL));
    }
}

/* An input that begins as its initializer says. */
static void bind_initial(Import *im, Scope *s, const char *name) {
    Entity *e = lookup(im, s, name);
    if (e == &im->poison || !is_value(e)) return;
    Value *first = e->tensor;
    Value *v = graph_input(s->g, first->name, first->dt, first->rank, first->shape);
    v->data = first->data;
    v->text = e->kind == ENTITY_text;
    bind(im, s, name, v->text ? entity_strings(im, v) : entity_tensor(im, v));
}

/* Inputs that are not also initializers (which, before IR version 4, had to be listed as inputs).
 */
static void bind_inputs(Import *im, Scope *s, const Onnx__GraphProto *graph) {
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfoProto *info = graph->input[i];
        const char *name = pb_text(info->name);
        if (check_is_initializer(&s->names, name)) {
            if (io_is_state(im, name)) bind_initial(im, s, name);
            continue;
        }
        im->diag->where = arena_printf(im->arena, "input '%s'", name);
        Binding *b = ARENA_NEW(im->arena, Binding);
        b->entity = io_input(im, s->g, info);
        if (!b->entity) b->entity = &im->poison;
        im->diag->where = NULL;
        bind_new(im, s, name, b, "input");
    }
    bind_symbols(im, s->g);
    for (size_t i = 0; i < graph->n_input; i++) {
        const Binding *b = strmap_get(&s->names, pb_text(graph->input[i]->name));
        if (b && b->entity && b->entity != &im->poison) io_from_memory(im, s->g, b->entity);
    }
}

static void bind_graph_outputs(Import *im, Scope *s, const Onnx__GraphProto *graph) {
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = pb_text(graph->output[i]->name);
        im->diag->where = arena_printf(im->arena, "output '%s'", name);
        Entity *e = lookup(im, s, name);
        if (!e) {
            diag_error(im->diag, E2001, "made by no node, and no input or initializer");
        } else if (e != &im->poison) {
            io_output(im, s->g, graph->output[i], e);
        }
    }
    im->diag->where = NULL;
}

Graph *onnx_import(Arena *arena, Exprs *x, Diag *diag, const OnnxModel *model,
                   const ImportOptions *options) {
    Import *im = ARENA_NEW(arena, Import);
    *im = (Import){.arena = arena,
                   .x = x,
                   .diag = diag,
                   .model = model,
                   .proto = model->proto,
                   .options = options};
    im->poison.kind = im->absent.kind = ENTITY_tensor;
    int errors = diag->n_errors;
    if (!check_model(im) || !check_dims(im)) return NULL;
    const Onnx__GraphProto *graph = im->proto->graph;
    const char *name = *pb_text(graph->name) ? graph->name : "model";
    Graph *g = graph_new(arena, x, diag, arena_strdup(arena, name));
    Scope *s = new_scope(im, NULL, g, NULL);
    declare_inner(s, graph->n_value_info, graph->value_info);
    declare(s, graph->n_output, graph->output);
    bind_initializers(im, s, graph);
    bind_inputs(im, s, graph);
    io_options_used(im);
    if (run_nodes(im, s, graph->n_node, graph->node)) {
        bind_graph_outputs(im, s, graph);
        graph_output_status(g);
    }
    diag->where = NULL;
    g->src = NULL;
    return diag->n_errors > errors ? NULL : g;
}
