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

static void name_extents(Session *s, Io *io) {
    for (int k = 0; k < s->o->extents.n; k++) {
        const char *word = s->o->extents.items[k], *equals = strrchr(word, '=');
        char *end = NULL;
        const long long extent = equals ? strtoll(equals + 1, &end, 10) : -1;
        if (!equals || end == equals + 1 || *end) {
            diag_error(&s->diag, E0001, "--extent wants NAME=N, not '%s'", word);
            continue;
        }
        const int at = extent_input(io, word, (size_t)(equals - word));
        if (at < 0) {
            diag_error(&s->diag, E0001, "--extent %s: no dimension of this name varies", word);
            continue;
        }
        const TensorInfo *symbol = &io->in[at];
        if (extent < symbol->low || extent > symbol->high)
            diag_error(&s->diag, E0001, "--extent %s: it is in %lld..%lld", word,
                       (long long)symbol->low, (long long)symbol->high);
        set_extent(io, at, extent);
    }
}

/* The extents of an input's shape. */
static void take_extents(Session *s, Io *io, const TensorInfo *t) {
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
                       "input '%s': dimension %d, '%s', is %lld, but %lld elsewhere", t->name, d,
                       symbol->name, (long long)extent, (long long)before);
        set_extent(io, at, extent);
    }
}

/* Sets the extents that --extent and the inputs that are given (NULL: all) say, all others to -1.
 */
static bool known_extents(Session *s, Io *io, const bool *given) {
    for (int i = 0; i < io->n_in; i++)
        if (io_input_hidden(io, i)) set_extent(io, i, -1);
    name_extents(s, io);
    for (int i = 0; i < io->n_in; i++)
        if (!given || given[i]) take_extents(s, io, &io->in[i]);
    return s->diag.n_errors == 0;
}

bool io_set_extents(Session *s, Io *io) {
    return known_extents(s, io, NULL);
}

static int64_t choose_extent(const TensorInfo *symbol, Extents which, uint64_t *state) {
    if (which != EXTENTS_random) return which == EXTENTS_smallest ? symbol->low : symbol->high;
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return symbol->low + (int64_t)((*state >> 33) % (uint64_t)(symbol->high - symbol->low + 1));
}

/* The input that "NAME=FILE" is for, the longest name that fits, for names may hold '='; -1: none.
 */
static int named_input(const Io *io, const char *word) {
    int found = -1;
    size_t length = 0;
    for (int i = 0; i < io->n_in; i++) {
        size_t n = strlen(io->in[i].name);
        if (io_input_hidden(io, i) || strncmp(word, io->in[i].name, n) != 0 || word[n] != '=' ||
            (found >= 0 && n <= length))
            continue;
        found = i;
        length = n;
    }
    return found;
}

TensorInfo io_in_file(Session *s, const Io *io, const TensorInfo *t) {
    TensorInfo all = *t;
    if (!s->o->calls) return all;
    int64_t *shape = ARENA_ARRAY(&s->arena, t->rank + 1, int64_t);
    shape[0] = io->calls;
    for (int i = 0; i < t->rank; i++) shape[i + 1] = t->shape[i];
    all.shape = shape;
    all.rank++;
    all.bytes *= (size_t)io->calls;
    return all;
}

static void read_inputs(Session *s, Io *io, bool *given) {
    const StringList *list = &s->o->inputs;
    for (int k = 0; k < list->n; k++) {
        const char *word = list->items[k];
        int at = named_input(io, word);
        if (at < 0 && strchr(word, '='))
            diag_error(&s->diag, E0001, "--input %s: the model has no such input", word);
        else if (at < 0)
            diag_error(&s->diag, E0001, "--input wants NAME=FILE, not '%s'", word);
        else if (given[at])
            diag_error(&s->diag, E0001, "input '%s' is given twice", io->in[at].name);
        if (at < 0 || given[at]) continue;
        given[at] = true;
        TensorInfo t = io_in_file(s, io, &io->in[at]);
        tensor_read(s, s->o->calls ? &t : &io->in[at], word + strlen(io->in[at].name) + 1,
                    io->in_data[at]);
        for (int call = 1; call < io->calls && !s->o->calls; call++)
            memcpy((char *)io->in_data[at] + io->in[at].bytes * (size_t)call, io->in_data[at],
                   io->in[at].bytes);
    }
}

bool io_set_inputs(Session *s, Io *io, Extents which, uint64_t *state) {
    bool *given = ARENA_ARRAY(&s->arena, io->n_in + 1, bool);
    if (s->o->calls && io_varies(io) && (s->o->inputs.n || !state)) {
        /* the tensors of all calls in one are of one shape */
        diag_error(&s->diag, E0001, "--calls %s: the model has dimensions that vary", s->o->calls);
        return false;
    }
    read_inputs(s, io, given);
    for (int i = 0; i < io->n_in && !state; i++) {
        if (given[i] || io_input_hidden(io, i)) continue;
        TensorInfo t = io_in_file(s, io, &io->in[i]);
        diag_error(&s->diag, E0001, "input '%s' (%s%s) is missing: --input %s=FILE", t.name,
                   dt_name(t.dt), shape_text(&s->arena, t.rank, t.shape), t.name);
    }
    if (s->diag.n_errors || !known_extents(s, io, given)) return false;
    for (int i = 0; i < io->n_in; i++)
        if (io_input_hidden(io, i) && extent_of(io, i) < 0)
            set_extent(io, i, choose_extent(&io->in[i], which, state));
    follow_extents(io);
    for (int call = 0; call < io->calls; call++)
        for (int i = 0; i < io->n_in; i++)
            if (!given[i] && !io_input_hidden(io, i))
                tensor_random(&io->in[i], (char *)io->in_data[i] + io->in[i].bytes * (size_t)call,
                              state);
    return true;
}

const char *io_smaller_extents(Session *s, const Io *io) {
    Text t = text_new(&s->arena);
    bool smaller = false;
    for (int i = 0; i < io->n_in; i++) {
        if (!io_input_hidden(io, i)) continue;
        const int64_t extent = extent_of(io, i);
        text_addf(&t, "%s%s=%lld", t.length ? ", " : "", io->in[i].name, (long long)extent);
        smaller |= extent < io->in[i].high;
    }
    return smaller ? text_get(&t) : NULL;
}

void io_take_shapes(Io *io) {
    for (int i = 0; i < io->n_out; i++) {
        TensorInfo *t = &io->out[i];
        if (t->shape_output < 0) continue;
        memcpy(t->shape, io->out_data[t->shape_output], (size_t)t->rank * sizeof *t->shape);
        set_shape(t);
    }
}
