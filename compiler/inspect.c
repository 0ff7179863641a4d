/* The command inspect: what a model is made of. */
#include "compiler/tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct OpCount {
    const char *name;
    int n;
} OpCount;

static int by_count(const void *a, const void *b) {
    const OpCount *x = a, *y = b;
    return x->n != y->n ? y->n - x->n : strcmp(x->name, y->name);
}

static void count_nodes(Session *s, const Onnx__GraphProto *graph, StrMap *counts) {
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        bool plain = !node->domain || !*node->domain || !strcmp(node->domain, "ai.onnx");
        const char *type = node->op_type ? node->op_type : "(none)";
        const char *name = plain ? type : arena_printf(&s->arena, "%s.%s", node->domain, type);
        void **slot = strmap_put(counts, name);
        if (!*slot) {
            OpCount *count = ARENA_NEW(&s->arena, OpCount);
            count->name = arena_strdup(&s->arena, name);
            *slot = count;
        }
        ((OpCount *)*slot)->n++;
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g) count_nodes(s, node->attribute[k]->g, counts);
    }
}

static void print_ops(Session *s) {
    StrMap counts;
    strmap_init(&counts, &s->arena);
    count_nodes(s, s->model.proto->graph, &counts);
    OpCount *sorted = ARENA_ARRAY(&s->arena, counts.n + 1, OpCount);
    int n = 0;
    for (int i = 0; strmap_at(&counts, i); i++) sorted[n++] = *(OpCount *)strmap_at(&counts, i);
    qsort(sorted, (size_t)n, sizeof *sorted, by_count);
    printf("operators:");
    for (int i = 0; i < n; i++)
        printf("%s %s %d", i ? "," : "", shown_name(s, sorted[i].name), sorted[i].n);
    printf("\n");
}

int64_t count_macs(const Graph *g) {
    int64_t macs = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind == OP_loop) macs += op->trips * count_macs(op->sub);
        if (op->kind != OP_reduce || op->combine != COMBINE_sum || op->body->op != EX_mul) continue;
        macs += value_numel(op->out[0]) * shape_numel(op->n_red, op->red);
    }
    return macs;
}

static int64_t count_weights(const Graph *g) {
    int64_t bytes = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind == OP_const) bytes += (int64_t)value_bytes(op->out[0]);
        if (op->sub) bytes += count_weights(op->sub);
    }
    return bytes;
}

static void print_tensor(Session *s, const char *what, TensorInfo t) {
    printf("%s: %s %s%s", what, shown_name(s, t.name), dt_name(t.dt),
           shape_text(&s->arena, t.rank, t.shape));
    if (t.width) printf(" of %zu bytes", t.width);
    printf("\n");
}

/* A tensor as the model declares it; dimensions without an extent by their names, or as --dim calls
 * them. */
static void print_declared(Session *s, const char *what, const Onnx__ValueInfoProto *v) {
    const Onnx__TypeProto *type = v->type;
    const char *name = v->name ? v->name : "";
    printf("%s: %s ", what, shown_name(s, name));
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) {
        printf("%s\n", type ? "no tensor" : "of a type that is not declared");
        return;
    }
    const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
    const DType dt = dt_from_onnx(type->tensor_type->elem_type);
    printf("%s[", dt == DT_none ? "?" : dt_name(dt));
    for (size_t i = 0; shape && i < shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        const bool fixed = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        const bool named =
            dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
            dim->dim_param && *dim->dim_param;
        printf("%s", i ? ", " : "");
        if (fixed && dim->dim_value >= 0)
            printf("%lld", (long long)dim->dim_value);
        else if (named)
            printf("%s", shown_name(s, dim->dim_param));
        else
            printf("%s", shown_name(s, arena_printf(&s->arena, "%s.%zu", name, i)));
    }
    printf("%s]\n", shape ? "" : "...");
}

static bool is_initializer(const Onnx__GraphProto *graph, const char *name) {
    for (size_t i = 0; name && i < graph->n_initializer; i++)
        if (graph->initializer[i]->name && !strcmp(graph->initializer[i]->name, name)) return true;
    return false;
}

/* What can be said before dimensions have values, whose names one wants to know. */
static void print_ends(Session *s, const Onnx__GraphProto *graph) {
    for (size_t i = 0; i < graph->n_input; i++)
        if (!is_initializer(graph, graph->input[i]->name))
            print_declared(s, "declared input", graph->input[i]);
    for (size_t i = 0; i < graph->n_output; i++)
        print_declared(s, "declared output", graph->output[i]);
}

int command_inspect(Session *s) {
    Graph *g = session_graph(s);
    if (s->model.proto && s->model.proto->graph) {
        const Onnx__ModelProto *proto = s->model.proto;
        printf("model: %s, IR version %lld, producer '%s'\nopsets:", s->o->model,
               (long long)proto->ir_version,
               proto->producer_name ? shown_name(s, proto->producer_name) : "");
        for (size_t i = 0; i < proto->n_opset_import; i++)
            printf(" %s %lld",
                   proto->opset_import[i]->domain && *proto->opset_import[i]->domain
                       ? proto->opset_import[i]->domain
                       : "ai.onnx",
                   (long long)proto->opset_import[i]->version);
        printf("\nnodes: %zu\n", proto->graph->n_node);
        print_ops(s);
        if (!g) print_ends(s, proto->graph);
    }
    if (!g) return 0;
    pass_dce(g, NULL);
    for (int i = 0; i < g->inputs.n; i++) {
        const Value *v = g->inputs.items[i];
        if (i >= graph_n_given(g) && i < graph_n_inputs(g)) continue; /* decoded images */
        print_tensor(s, i < graph_n_inputs(g) ? "input" : "state",
                     info_of_value(&s->arena, v, v->name, v->text));
    }
    for (int i = 0; i < graph_n_outputs(g); i++)
        print_tensor(s, "output",
                     info_of_value(&s->arena, g->outputs.items[i], g->output_names.items[i],
                                   g->output_text.items[i]));
    printf("weights: %lld bytes\nmultiply-adds: %lld\nunsupported operators: none\n",
           (long long)count_weights(g), (long long)count_macs(g));
    return 0;
}
