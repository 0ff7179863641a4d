/* See io.h. */
#include "compiler/io.h"
#include "ir/interp.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Memory of all calls for a tensor. */
static void *calls_alloc(Session *s, const Io *io, size_t bytes) {
    size_t all;
    if (__builtin_mul_overflow(bytes, (size_t)io->calls, &all) || all > SIZE_MAX / 2)
        all = SIZE_MAX / 2; /* the limit says it */
    return arena_alloc(&s->arena, all + 64);
}

static void allocate(Session *s, Io *io) {
    for (int i = 0; i < io->n_in; i++) io->in_data[i] = calls_alloc(s, io, io->in[i].bytes);
    for (int i = 0; i < io->n_out; i++) {
        io->out_room[i] = io->out[i].bytes;
        io->out_data[i] = calls_alloc(s, io, io->out[i].bytes);
        memset(io->out_data[i], 0xa5, io->out[i].bytes * (size_t)io->calls);
    }
}

static void begin(Session *s, Io *io, int n_in, int n_out, int n_states, int calls) {
    *io = (Io){.n_in = n_in, .n_out = n_out, .n_states = n_states, .calls = calls};
    io->out_room = ARENA_ARRAY(&s->arena, n_out + 1, size_t);
    io->now = ARENA_ARRAY(&s->arena, n_states + 1, void *);
    io->next = ARENA_ARRAY(&s->arena, n_states + 1, void *);
    io->call_in = ARENA_ARRAY(&s->arena, n_in + n_states + 1, const void *);
    io->call_out = ARENA_ARRAY(&s->arena, n_out + n_states + 1, void *);
    io->in = ARENA_ARRAY(&s->arena, n_in + 1, TensorInfo);
    io->out = ARENA_ARRAY(&s->arena, n_out + 1, TensorInfo);
    io->in_data = ARENA_ARRAY(&s->arena, n_in + 1, void *);
    io->out_data = ARENA_ARRAY(&s->arena, n_out + 1, void *);
}

/* The input of the graph that is a symbol of dim.h; -1: none. */
static int input_of_symbol(const Graph *g, int symbol) {
    for (int i = 0; symbol >= 0 && i < g->inputs.n; i++)
        if (symbol < g->symbols.n && g->symbols.items[symbol] == g->inputs.items[i]) return i;
    return -1;
}

static void begin_states(Session *s, Io *io, const Graph *g) {
    for (int i = 0; i < io->n_states; i++) {
        const Value *v = g->inputs.items[io->n_in + i];
        io->now[i] = arena_alloc(&s->arena, value_bytes(v) + 64);
        io->next[i] = arena_alloc(&s->arena, value_bytes(v) + 64);
        if (v->data) memcpy(io->now[i], v->data, value_bytes(v));
    }
}

void io_of_graph(Session *s, Io *io, const Graph *g, int calls) {
    begin(s, io, graph_n_inputs(g), graph_n_outputs(g), g->n_states, calls);
    begin_states(s, io, g);
    for (int i = 0; i < io->n_in; i++) {
        const Value *v = g->inputs.items[i];
        io->in[i] = info_of_value(&s->arena, v, v->name, v->text);
        if (!dims_vary(v->rank, v->dims)) continue;
        int32_t *extent_input = ARENA_ARRAY(&s->arena, v->rank, int32_t);
        for (int d = 0; d < v->rank; d++)
            extent_input[d] = input_of_symbol(g, dim_symbol(g->x, v->dims[d]));
        io->in[i].extent_input = extent_input;
    }
    for (int k = 0; k < g->symbols.n; k++) {
        int at = input_of_symbol(g, k);
        if (at < 0) continue;
        io->in[at].low = dim_symbol_range(g->x, k).low;
        io->in[at].high = dim_symbol_range(g->x, k).high;
    }
    for (int i = 0; i < io->n_out; i++) {
        io->out[i] = info_of_value(&s->arena, g->outputs.items[i], g->output_names.items[i],
                                   g->output_text.items[i]);
        io->out[i].shape_output = g->output_shape.items[i];
    }
    allocate(s, io);
}

void io_of_model(Session *s, Io *io, const mlcc_model *m, int calls) {
    begin(s, io, (int)m->n_inputs, (int)m->n_outputs, 0, calls);
    bool varies = m->struct_bytes >= offsetof(mlcc_model, output_shape) + sizeof(void *);
    for (int i = 0; i < io->n_in; i++) {
        io->in[i] = info_of_model(&s->arena, &m->inputs[i]);
        if (!varies || !m->input_extents) continue;
        io->in[i].extent_input = m->input_extents[i];
        io->in[i].low = m->input_range[i].low;
        io->in[i].high = m->input_range[i].high;
    }
    for (int i = 0; i < io->n_out; i++) {
        io->out[i] = info_of_model(&s->arena, &m->outputs[i]);
        if (varies && m->output_shape) io->out[i].shape_output = m->output_shape[i];
    }
    allocate(s, io);
}

void *io_alloc_output(Session *s, const Io *io, int i) {
    return calls_alloc(s, io, io->out_room[i]);
}

void io_call(Io *io, int call, void *const *out) {
    for (int i = 0; i < io->n_in; i++) { /* extents are those of all calls */
        size_t at = io_input_hidden(io, i) ? 0 : io->in[i].bytes * (size_t)call;
        io->call_in[i] = (const char *)io->in_data[i] + at;
    }
    for (int i = 0; i < io->n_out; i++)
        io->call_out[i] = (char *)out[i] + io->out_room[i] * (size_t)call;
    for (int i = 0; i < io->n_states; i++) {
        io->call_in[io->n_in + i] = io->now[i];
        io->call_out[io->n_out + i] = io->next[i];
    }
}

/* The status that a run computes. */
static bool status_ok(const Graph *g, Io *io) {
    int at = graph_status_output(g), status = 0;
    if (at >= 0) memcpy(&status, io->call_out[at], sizeof status);
    io->fault |= status != 0;
    if (status && !io->may_fault)
        diag_error(g->diag, E0009, "extents do not fit the model: %s", g->faults.items[status - 1]);
    return !status || io->may_fault;
}

bool io_interpret(const Graph *g, Io *io, void *const *out) {
    bool ok = true;
    for (int call = 0; call < io->calls && ok; call++) {
        io_call(io, call, out);
        ok = interp_graph(g, io->call_in, io->call_out) && status_ok(g, io);
        for (int i = 0; i < io->n_states && ok; i++)
            memcpy(io->now[i], io->next[i], value_bytes(g->inputs.items[io->n_in + i]));
    }
    return ok;
}

bool io_run(Session *s, LoadedModel *m, Io *io, void *const *out) {
    bool ok = true;
    for (int call = 0; call < io->calls && ok; call++) {
        io_call(io, call, out);
        ok = model_run(s, m, io->call_in, io->call_out);
    }
    return ok;
}

bool io_input_hidden(const Io *io, int i) {
    return io->in[i].high > 0;
}

bool io_output_hidden(const Io *io, int i) {
    for (int k = 0; k < io->n_out; k++)
        if (io->out[k].shape_output == i) return true;
    return false;
}

bool io_varies(const Io *io) {
    for (int i = 0; i < io->n_in; i++)
        if (io_input_hidden(io, i)) return true;
    return false;
}

static void set_shape(TensorInfo *t) {
    size_t size = t->width ? t->width : dt_store(t->dt);
    t->bytes = (size_t)shape_numel(t->rank, t->shape) * size;
}

static void set_extent(const Io *io, int i, int64_t extent) {
    int32_t value = (int32_t)extent;
    memcpy(io->in_data[i], &value, sizeof value);
}

static int64_t extent_of(const Io *io, int i) {
    int32_t value;
    memcpy(&value, io->in_data[i], sizeof value);
    return value;
}

bool io_set_extents(Session *s, Io *io) {
    for (int i = 0; i < io->n_in; i++)
        if (io_input_hidden(io, i)) set_extent(io, i, -1);
    for (int i = 0; i < io->n_in; i++) {
        const TensorInfo *t = &io->in[i];
        for (int d = 0; t->extent_input && d < t->rank; d++) {
            int at = t->extent_input[d];
            if (at < 0) continue;
            const TensorInfo *symbol = &io->in[at];
            int64_t extent = t->shape[d], before = extent_of(io, at);
            if (extent < symbol->low || extent > symbol->high)
                diag_error(&s->diag, E0009,
                           "input '%s': dimension %d, '%s', is %lld, not in %lld..%lld", t->name, d,
                           symbol->name, (long long)extent, (long long)symbol->low,
                           (long long)symbol->high);
            else if (before >= 0 && before != extent)
                diag_error(&s->diag, E0009,
                           "input '%s': dimension %d, '%s', is %lld; that of another input is %lld",
                           t->name, d, symbol->name, (long long)extent, (long long)before);
            set_extent(io, at, extent);
        }
    }
    return s->diag.n_errors == 0;
}

/* Gives the inputs the shapes that the extents say. */
static void follow_extents(Io *io) {
    for (int i = 0; i < io->n_in; i++) {
        TensorInfo *t = &io->in[i];
        for (int d = 0; t->extent_input && d < t->rank; d++)
            if (t->extent_input[d] >= 0) t->shape[d] = extent_of(io, t->extent_input[d]);
        if (t->extent_input) set_shape(t);
    }
}

/* The input that holds the extent of this name; -1: none. */
static int extent_input(const Io *io, const char *name, size_t length) {
    for (int i = 0; i < io->n_in; i++)
        if (io_input_hidden(io, i) && strlen(io->in[i].name) == length &&
            !strncmp(io->in[i].name, name, length))
            return i;
    return -1;
}

bool io_named_extents(Session *s, Io *io) {
    for (int k = 0; k < s->o->extents.n; k++) {
        const char *word = s->o->extents.items[k], *equals = strrchr(word, '=');
        char *end = NULL;
        const long long extent = equals ? strtoll(equals + 1, &end, 10) : -1;
        if (!equals || end == equals + 1 || *end) {
            diag_error(&s->diag, E0001, "--extent wants NAME=N, not '%s'", word);
            return false;
        }
        const int at = extent_input(io, word, (size_t)(equals - word));
        if (at < 0) {
            diag_error(&s->diag, E0001, "--extent %s: no dimension of this name varies", word);
            return false;
        }
        const TensorInfo *symbol = &io->in[at];
        if (extent < symbol->low || extent > symbol->high) {
            diag_error(&s->diag, E0001, "--extent %s: it is in %lld..%lld", word,
                       (long long)symbol->low, (long long)symbol->high);
            return false;
        }
        set_extent(io, at, extent);
    }
    follow_extents(io);
    return true;
}

void io_choose_extents(Io *io, Extents which, uint64_t *state) {
    for (int i = 0; i < io->n_in; i++) {
        const TensorInfo *t = &io->in[i];
        if (!io_input_hidden(io, i)) continue;
        int64_t extent = which == EXTENTS_smallest ? t->low : t->high;
        if (which == EXTENTS_random) {
            *state = *state * 6364136223846793005u + 1442695040888963407u;
            extent = t->low + (int64_t)((*state >> 33) % (uint64_t)(t->high - t->low + 1));
        }
        set_extent(io, i, extent);
    }
    follow_extents(io);
}

void io_take_shapes(Io *io) {
    for (int i = 0; i < io->n_out; i++) {
        TensorInfo *t = &io->out[i];
        if (t->shape_output < 0) continue;
        memcpy(t->shape, io->out_data[t->shape_output], (size_t)t->rank * sizeof *t->shape);
        set_shape(t);
    }
}
