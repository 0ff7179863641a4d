/* See states.h. */
#include "compiler/states.h"

#include <string.h>

/* --- names ------------------------------------------------------------------------------------ */

/* `to` with what the '*' in `from` stands for in `name` in place of its own '*'; NULL if `name` is
 * not like `from`. */
static const char *renamed(Arena *arena, const char *from, const char *name, const char *to) {
    const char *star = strchr(from, '*'), *other = strchr(to, '*');
    if (!star || !other) return strcmp(from, name) == 0 ? to : NULL;
    const size_t before = (size_t)(star - from), behind = strlen(star + 1), length = strlen(name);
    if (length < before + behind || strncmp(from, name, before) != 0 ||
        strcmp(star + 1, name + length - behind) != 0)
        return NULL;
    return arena_printf(arena, "%.*s%.*s%s", (int)(other - to), to, (int)(length - before - behind),
                        name + before, other + 1);
}

static const char *name_of(const Onnx__ValueInfoProto *info) {
    return info->name ? info->name : "";
}

static bool has_output(const Onnx__GraphProto *graph, const char *name) {
    size_t i = 0;
    while (i < graph->n_output && strcmp(name_of(graph->output[i]), name) != 0) i++;
    return i < graph->n_output;
}

static void add_pair(StatePairs *to, const char *word, const char *past, const char *present) {
    to->word[to->n] = word;
    to->past[to->n] = past;
    to->present[to->n++] = present;
}

/* Adds the pairs that `word` says if one of its '=' parts it; names may hold others. False if with
 * this one no input and output of the model are named. */
static bool add_pairs(Session *s, StatePairs *to, const char *word, const char *equals) {
    const Onnx__GraphProto *graph = s->model.proto->graph;
    const char *past = arena_strndup(&s->arena, word, (size_t)(equals - word));
    const int before = to->n;
    bool found = false;
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = name_of(graph->input[i]);
        const char *present = renamed(&s->arena, past, name, equals + 1);
        if (!present) continue;
        add_pair(to, word, name, present);
        found |= has_output(graph, present);
    }
    if (!found && !strchr(past, '*')) to->n = before;
    return found;
}

StatePairs states_read(Session *s) {
    const int words = s->o->states.n, most = words * (int)(s->model.proto->graph->n_input + 1);
    StatePairs pairs = {.word = ARENA_ARRAY(&s->arena, most + 1, const char *),
                        .past = ARENA_ARRAY(&s->arena, most + 1, const char *),
                        .present = ARENA_ARRAY(&s->arena, most + 1, const char *)};
    for (int i = 0; i < words; i++) {
        const char *word = s->o->states.items[i], *first = strchr(word, '=');
        const int before = pairs.n;
        bool found = false;
        for (const char *at = first; at && !found; at = strchr(at + 1, '=')) {
            pairs.n = before;
            found = add_pairs(s, &pairs, word, at);
        }
        if (found || pairs.n > before) continue;
        /* items of sequences have names in the graph alone; others are wrong */
        const char *past = first ? arena_strndup(&s->arena, word, (size_t)(first - word)) : "";
        add_pair(&pairs, word, past, first ? first + 1 : "");
    }
    return pairs;
}

/* --- the graph -------------------------------------------------------------------------------- */

/* Decoded images are none to callers. */
static int find_input(const Graph *g, const char *name) {
    int i = g->inputs.n;
    while (i-- && ((i >= graph_n_given(g) && i < graph_n_inputs(g)) ||
                   strcmp(g->inputs.items[i]->name, name) != 0))
        continue;
    return i;
}

static int find_output(const Graph *g, const char *name) {
    int i = g->outputs.n;
    while (i-- && strcmp(g->output_names.items[i], name) != 0) continue;
    return i;
}

static const char *type_text(Session *s, const Value *v, bool text) {
    const char *shape = dims_text(&s->x, v->rank - text, v->dims);
    const char *bytes =
        text ? arena_printf(&s->arena, " of %lld bytes", (long long)v->shape[v->rank - 1]) : "";
    return arena_printf(&s->arena, "%s%s%s", dt_name(text ? DT_str : v->dt), shape, bytes);
}

/* Does the input hold the extent of a dimension that varies, or the output such extents; or are
 * they the output's own? */
static bool is_extent(const Graph *g, int in, int out) {
    bool found = g->output_shape.items[out] >= 0;
    for (int i = 0; i < g->outputs.n; i++) found |= g->output_shape.items[i] == out;
    return found || graph_symbol_of(g, g->inputs.items[in]) >= 0;
}

static bool is_stream(const Graph *g, int in) {
    bool found = false;
    for (int i = 0; i < g->images.n; i++) found |= g->images.items[i].stream == g->inputs.items[in];
    return found;
}

/* May the input be what the output was? Extents are equal, or vary in both, and the output's are
 * no less at most. */
static bool fits(const Value *in, const Value *out) {
    bool fit = in->dt == out->dt && in->rank == out->rank;
    for (int i = 0; fit && i < in->rank; i++)
        fit = dim_varies(in->dims[i]) ? dim_varies(out->dims[i]) && in->shape[i] <= out->shape[i]
                                      : in->dims[i] == out->dims[i];
    return fit;
}

/* Reports what is wrong with pair `i`; true if nothing is. */
static bool check_pair(Session *s, const Graph *g, const StatePairs *pairs, int i) {
    const char *word = pairs->word[i], *past = pairs->past[i], *present = pairs->present[i];
    const int in = find_input(g, past), out = find_output(g, present);
    bool used[2] = {false, false};
    for (int k = 0; k < i; k++) {
        used[0] |= !strcmp(pairs->past[k], past);
        used[1] |= !strcmp(pairs->present[k], present);
    }
    if (!*past || !*present) {
        diag_error(&s->diag, E0001,
                   "--state wants PAST=PRESENT, an input and an output of the model, not '%s'",
                   word);
    } else if (in < 0 || out < 0) {
        diag_error(&s->diag, E0001, "--state %s: the model has no %s '%s'", word,
                   in < 0 ? "input" : "output", in < 0 ? past : present);
    } else if (used[0] || used[1]) {
        diag_error(&s->diag, E0001, "--state %s: %s '%s' is part of a state already", word,
                   used[0] ? "input" : "output", used[0] ? past : present);
    } else if (is_extent(g, in, out)) {
        diag_error(&s->diag, E0001, "--state %s: an extent cannot be kept", word);
    } else if (is_stream(g, in)) {
        diag_error(&s->diag, E0001, "--state %s: the input is an encoded image", word);
    } else {
        const Value *v = g->inputs.items[in], *w = g->outputs.items[out];
        if (v->text == g->output_text.items[out] && fits(v, w)) return true;
        diag_error(&s->diag, E0001, "--state %s: the input is %s, the output %s", word,
                   type_text(s, v, v->text), type_text(s, w, g->output_text.items[out]));
    }
    return false;
}

/* The state has the room of what it becomes: what reads an input of this kind reads the part of it
 * that has the input's extents. */
static void enlarge(Value *in, const Value *out) {
    in->shape = in->dims = out->shape;
}

void states_tie(Session *s, Graph *g, const StatePairs *pairs) {
    bool right = true;
    for (int i = 0; i < pairs->n; i++) right &= check_pair(s, g, pairs, i);
    if (!right) return;
    for (int i = 0; i < pairs->n; i++) {
        const int in = find_input(g, pairs->past[i]), out = find_output(g, pairs->present[i]);
        enlarge(g->inputs.items[in], g->outputs.items[out]);
        graph_tie(g, in, out);
    }
}
