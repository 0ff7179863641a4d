/* What the host programs of all targets share: facts about launches, the tensor tables. See host.h.
 */
#include "codegen/host.h"

#include "ir/diag.h"

const char **kernel_names(const Program *p, Names *names) {
    const char **name = ARENA_ARRAY(p->arena, p->kernels.n + 1, const char *);
    for (int i = 0; i < p->kernels.n; i++)
        name[i] = names_take(names, p->kernels.items[i]->name, "kernel");
    return name;
}

int kernel_index(const Program *p, const Kernel *k) {
    int i = 0;
    while (p->kernels.items[i] != k) i++;
    return i;
}

bool kernel_launched(const Program *p, const Kernel *k) {
    for (int s = 0; s < p->steps.n; s++)
        if (p->steps.items[s].kind == STEP_launch && p->steps.items[s].kernel == k) return true;
    return false;
}

bool places_overlap(const Place *a, const Place *b) {
    if (a->space != b->space || a->space == PLACE_none) return false;
    if (a->space == PLACE_input || a->space == PLACE_output) return a->index == b->index;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool has_global_barrier(const Stmt *s) {
    for (; s; s = s->next)
        if ((s->kind == ST_barrier && s->global) || has_global_barrier(s->body) ||
            has_global_barrier(s->other))
            return true;
    return false;
}

bool parameter_exchanged(const Kernel *k, int i) {
    return k->buffers.items[i]->written && has_global_barrier(k->body);
}

bool parameter_alone(const Program *p, const Kernel *k, int i) {
    if (parameter_exchanged(k, i)) return false;
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        if (step->kind != STEP_launch || step->kernel != k) continue;
        for (int j = 0; j < k->n_params; j++) {
            bool written = k->buffers.items[i]->written || k->buffers.items[j]->written;
            if (j != i && written && places_overlap(&step->places[i], &step->places[j]))
                return false;
        }
    }
    return true;
}

static bool type_supported(const Program *p, const Dialect *d, DType dt, const char *what) {
    if (d->mem[dt]) return true;
    diag_error(p->diag, E3003, "%s has element type %s, which generated code cannot hold", what,
               dt_name(dt));
    return false;
}

bool types_supported(const Program *p, const Dialect *d) {
    bool ok = true;
    for (int i = 0; i < graph_n_inputs(p->graph); i++)
        ok &= type_supported(p, d, p->graph->inputs.items[i]->dt,
                             arena_printf(p->arena, "input '%s'", input_name(p, i)));
    for (int i = 0; i < graph_n_outputs(p->graph); i++)
        ok &= type_supported(p, d, p->graph->outputs.items[i]->dt,
                             arena_printf(p->arena, "output '%s'", output_name(p, i)));
    for (int i = 0; i < p->kernels.n; i++) {
        const Kernel *k = p->kernels.items[i];
        for (int b = 0; b < k->buffers.n; b++)
            ok &= type_supported(
                p, d, k->buffers.items[b]->dt,
                arena_printf(p->arena, "a tensor of '%s'", k->src ? k->src : k->name));
    }
    return ok;
}

const char *input_name(const Program *p, int i) {
    const char *name = p->graph->inputs.items[i]->name;
    return name ? name : arena_printf(p->arena, "input%d", i);
}

const char *output_name(const Program *p, int i) {
    const char *name = i < p->graph->output_names.n ? p->graph->output_names.items[i] : NULL;
    return name ? name : arena_printf(p->arena, "output%d", i);
}

bool is_text(const Program *p, bool input, int i) {
    return input ? p->graph->inputs.items[i]->text : p->graph->output_text.items[i];
}

static void print_tensor_table(const Program *p, bool input, Text *out) {
    int n = input ? graph_n_inputs(p->graph) : graph_n_outputs(p->graph);
    const char *which = input ? "input" : "output";
    for (int i = 0; i < n; i++) {
        const Value *v = input ? p->graph->inputs.items[i] : p->graph->outputs.items[i];
        int rank = v->rank - is_text(p, input, i); /* a string's bytes are no dimension outside */
        if (rank == 0) continue;
        text_addf(out, "static const int64_t mlcc_%s%d_shape[%d] = {", which, i, rank);
        for (int d = 0; d < rank; d++)
            text_addf(out, "%s%lld", d ? ", " : "", (long long)v->shape[d]);
        text_add(out, "};\n");
    }
    if (n == 0) return;
    text_addf(out, "static const mlcc_tensor mlcc_%ss[%d] = {\n", which, n);
    for (int i = 0; i < n; i++) {
        const Value *v = input ? p->graph->inputs.items[i] : p->graph->outputs.items[i];
        const char *name = input ? input_name(p, i) : output_name(p, i);
        bool text = is_text(p, input, i);
        int rank = v->rank - text;
        text_addf(out, "    {%s, %du, %du, ", c_string(p->arena, name),
                  dt_onnx(text ? DT_str : v->dt), rank);
        text_add(out, rank ? arena_printf(p->arena, "mlcc_%s%d_shape", which, i) : "NULL");
        text_addf(out, ", %lluu},\n", (unsigned long long)value_bytes(v));
    }
    text_add(out, "};\n");
}

/* The symbol of dim.h that an input of the graph is; -1: none. */
int input_symbol(const Program *p, int i) {
    const Graph *g = p->graph;
    for (int k = 0; k < g->symbols.n; k++)
        if (g->symbols.items[k] == g->inputs.items[i]) return k;
    return -1;
}

int symbol_input(const Program *p, int symbol) {
    for (int i = 0; symbol >= 0 && i < graph_n_inputs(p->graph); i++)
        if (input_symbol(p, i) == symbol) return i;
    return -1;
}

bool program_varies(const Program *p) {
    for (int i = 0; i < graph_n_inputs(p->graph); i++)
        if (input_symbol(p, i) >= 0) return true;
    for (int i = 0; i < graph_n_outputs(p->graph); i++)
        if (p->graph->output_shape.items[i] >= 0) return true;
    return false;
}

static void print_extents(const Program *p, Text *out) {
    const Graph *g = p->graph;
    for (int i = 0; i < graph_n_inputs(g); i++) {
        const Value *v = g->inputs.items[i];
        if (!dims_vary(v->rank, v->dims)) continue;
        text_addf(out, "static const int32_t mlcc_input%d_extents[%d] = {", i, v->rank);
        for (int d = 0; d < v->rank; d++)
            text_addf(out, "%s%d", d ? ", " : "", symbol_input(p, dim_symbol(g->x, v->dims[d])));
        text_add(out, "};\n");
    }
    if (graph_n_inputs(g)) {
        text_addf(out, "static const int32_t *const mlcc_input_extents[%d] = {", graph_n_inputs(g));
        for (int i = 0; i < graph_n_inputs(g); i++) {
            const Value *v = g->inputs.items[i];
            text_add(out, i ? ", " : "");
            text_add(out, dims_vary(v->rank, v->dims)
                              ? arena_printf(p->arena, "mlcc_input%d_extents", i)
                              : "NULL");
        }
        text_addf(out, "};\nstatic const mlcc_range mlcc_input_range[%d] = {", graph_n_inputs(g));
        for (int i = 0; i < graph_n_inputs(g); i++) {
            int k = input_symbol(p, i);
            DimSymbol range = {NULL, 0, 0};
            if (k >= 0) range = dim_symbol_range(g->x, k);
            text_addf(out, "%s{%lld, %lld}", i ? ", " : "", (long long)range.low,
                      (long long)range.high);
        }
        text_add(out, "};\n");
    }
    if (graph_n_outputs(g) == 0) return;
    text_addf(out, "static const int32_t mlcc_output_shape[%d] = {", graph_n_outputs(g));
    for (int i = 0; i < graph_n_outputs(g); i++)
        text_addf(out, "%s%d", i ? ", " : "", g->output_shape.items[i]);
    text_add(out, "};\n");
}

static void print_faults(const Program *p, Text *out) {
    const Graph *g = p->graph;
    text_addf(out, "static const char *const mlcc_faults[%d] = {\n", g->faults.n);
    for (int i = 0; i < g->faults.n; i++)
        text_addf(out, "    %s,\n", c_string(p->arena, g->faults.items[i]));
    text_add(out, "};\n");
}

void print_tensors(const Program *p, Text *out) {
    print_tensor_table(p, true, out);
    print_tensor_table(p, false, out);
    if (program_varies(p)) print_extents(p, out);
    if (graph_status_output(p->graph) >= 0) print_faults(p, out);
    text_add(out, "\n");
}

void print_tensor_fields(const Program *p, const char *indent, Text *out) {
    const char *const fields[] = {"inputs", "input_extents", "input_range", "outputs",
                                  "output_shape"};
    bool varies = program_varies(p);
    for (int i = 0; i < 5; i++) {
        bool there = i < 3 ? graph_n_inputs(p->graph) : graph_n_outputs(p->graph);
        if (there && (varies || i == 0 || i == 3))
            text_addf(out, "%s.%s = mlcc_%s,\n", indent, fields[i], fields[i]);
    }
    if (graph_status_output(p->graph) >= 0) text_addf(out, "%s.faults = mlcc_faults,\n", indent);
}
