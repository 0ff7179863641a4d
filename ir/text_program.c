/* Programs as text: the graph, the kernels, and the steps that launch them; see text.h.
 *
 *     program {
 *       graph @main { ... }
 *       kernel @k0 { ... }
 *       arena 256
 *       weights 64
 *       weight %1 at 0
 *       states 64
 *       state at 0 bytes 4 initial 0
 *       launch @k0 (%0 input 0 +0 bytes 32, %1 weights +0 bytes 64, %2 arena +128 bytes 32)
 *       loop 10 apart +256 bytes 64
 *       launch @k1 (%3.%0)
 *       end
 *     }
 *
 * A value inside a loop is written behind the first output of the loop: %3.%0. An argument that is
 * no value of the graph is `_`.
 */
#include "ir/text.h"

#include <string.h>

/* --- printing --------------------------------------------------------------------------------- */

/* Prints the path to `v` in `g`; false if it is not there. */
static bool print_path(Text *out, const Graph *g, const Value *v) {
    for (const Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_out; i++)
            if (op->out[i] == v) {
                text_addf(out, "%%%d", v->id);
                return true;
            }
        if (op->kind != OP_loop || !op->sub || !op->n_out) continue;
        size_t before = out->length;
        text_addf(out, "%%%d.", op->out[0]->id);
        if (print_path(out, op->sub, v)) return true;
        out->length = before;
        out->data[before] = 0;
    }
    return false;
}

static void print_value(Text *out, const Program *p, const Value *v) {
    if (!v || !p->graph || !print_path(out, p->graph, v)) text_add(out, "_");
}

static void print_place(Text *out, const Place *place) {
    static const char *const names[] = {"", "input", "output", "arena", "weights", "state"};
    if (place->space == PLACE_none) return;
    text_addf(out, " %s", names[place->space]);
    if (place->space == PLACE_input || place->space == PLACE_output)
        text_addf(out, " %d", place->index);
    text_addf(out, " +%lld bytes %lld", (long long)place->offset, (long long)place->bytes);
}

static void print_step(Text *out, const Program *p, const Step *s) {
    switch (s->kind) {
    case STEP_launch:
        text_add(out, "  launch ");
        text_symbol(out, s->kernel->name);
        text_add(out, " (");
        for (int i = 0; i < s->kernel->n_params; i++) {
            if (i) text_add(out, ", ");
            print_value(out, p, s->args ? s->args[i] : NULL);
            if (s->places) print_place(out, &s->places[i]);
        }
        text_add(out, ")\n");
        return;
    case STEP_loop:
        text_addf(out, "  loop %lld", (long long)s->trips);
        if (s->apart)
            text_addf(out, " apart +%lld bytes %lld", (long long)s->own_offset,
                      (long long)s->own_bytes);
        if (s->args) {
            text_addf(out, " each %lld of ", (long long)s->each);
            print_value(out, p, s->args[0]);
            if (s->places) print_place(out, &s->places[0]);
        }
        text_add(out, "\n");
        return;
    case STEP_end:
        text_add(out, s->args ? "  end while " : "  end");
        if (s->args) print_value(out, p, s->args[0]);
        if (s->args && s->places) print_place(out, &s->places[0]);
        text_add(out, "\n");
        return;
    }
}

void text_program(Text *out, const Program *p, TextOptions options) {
    text_add(out, "program {\n");
    if (p->graph) text_graph_at(out, p->graph, options, 2);
    for (int i = 0; i < p->kernels.n; i++) text_kernel_at(out, p->kernels.items[i], 2);
    if (p->arena_bytes) text_addf(out, "  arena %lld\n", (long long)p->arena_bytes);
    if (p->weight_bytes) text_addf(out, "  weights %lld\n", (long long)p->weight_bytes);
    for (int i = 0; i < p->weights.n; i++) {
        text_add(out, "  weight ");
        print_value(out, p, p->weights.items[i]);
        text_addf(out, " at %lld\n", (long long)p->weight_offset.items[i]);
    }
    if (p->state_bytes) text_addf(out, "  states %lld\n", (long long)p->state_bytes);
    for (int i = 0; i < p->states.n; i++) {
        const StatePlace *state = &p->states.items[i];
        text_addf(out, "  state at %lld bytes %lld", (long long)state->offset,
                  (long long)state->bytes);
        if (state->initial >= 0) text_addf(out, " initial %lld", (long long)state->initial);
        text_add(out, "\n");
    }
    for (int i = 0; i < p->steps.n; i++) print_step(out, p, &p->steps.items[i]);
    text_add(out, "}\n");
}

/* --- reading ---------------------------------------------------------------------------------- */

static Value *find_value(const Graph *g, uint64_t id) {
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_out; i++)
            if ((uint64_t)op->out[i]->id == id) return op->out[i];
    return NULL;
}

/* `%3`, `%3.%0` or `_` (then *v is NULL). */
static bool read_path(Lexer *lx, const Program *p, Value **v) {
    const Graph *g = p->graph;
    *v = NULL;
    if (lex_accept_name(lx, "_")) return !lx->error;
    for (;;) {
        *v = lx->tok.kind == TOK_value && g ? find_value(g, lx->tok.integer) : NULL;
        if (!*v) {
            lex_expected(lx, "a value of the graph");
            return false;
        }
        lex_next(lx);
        if (!lex_accept(lx, '.')) return !lx->error;
        g = (*v)->def->sub;
    }
}

static bool read_place(Lexer *lx, Place *place) {
    *place = (Place){.space = PLACE_none};
    if (lex_accept_name(lx, "input"))
        place->space = PLACE_input;
    else if (lex_accept_name(lx, "output"))
        place->space = PLACE_output;
    else if (lex_accept_name(lx, "arena"))
        place->space = PLACE_arena;
    else if (lex_accept_name(lx, "weights"))
        place->space = PLACE_weights;
    else if (lex_accept_name(lx, "state"))
        place->space = PLACE_state;
    else
        return !lx->error;
    int64_t index = 0;
    if (place->space <= PLACE_output && !lex_want_int(lx, 0, INT32_MAX, "an index", &index))
        return false;
    place->index = (int)index;
    return lex_want(lx, '+') && lex_want_int(lx, 0, INT64_MAX, "an offset", &place->offset) &&
           lex_want_name(lx, "bytes") &&
           lex_want_int(lx, 0, INT64_MAX, "a number of bytes", &place->bytes);
}

static Kernel *find_kernel(const Program *p, const char *name) {
    for (int i = 0; i < p->kernels.n; i++)
        if (!strcmp(p->kernels.items[i]->name, name)) return p->kernels.items[i];
    return NULL;
}

static bool read_launch(Lexer *lx, Program *p) {
    const Token at = lx->tok;
    const char *name;
    if (!lex_want_symbol(lx, &name)) return false;
    Step s = {.kind = STEP_launch, .kernel = find_kernel(p, name)};
    if (!s.kernel) {
        lx->tok = at;
        lex_expected(lx, "the name of a kernel");
        return false;
    }
    int n = s.kernel->n_params;
    s.args = ARENA_ARRAY(p->arena, n, Value *);
    Place *places = ARENA_ARRAY(p->arena, n, Place);
    if (!lex_want(lx, '(')) return false;
    for (int i = 0; i < n; i++) {
        if (i && !lex_want(lx, ',')) return false;
        if (!read_path(lx, p, &s.args[i]) || !read_place(lx, &places[i])) return false;
        if (places[i].space != PLACE_none) s.places = places;
    }
    vec_push(p->arena, &p->steps, s);
    return lex_want(lx, ')');
}

/* The argument of a step that is no launch. */
static bool read_argument(Lexer *lx, Program *p, Step *s) {
    Place place = {.bytes = 0};
    s->args = ARENA_NEW(p->arena, Value *);
    bool ok = read_path(lx, p, s->args) && read_place(lx, &place);
    if (place.space != PLACE_none) s->places = arena_copy(p->arena, &place, sizeof place);
    return ok;
}

static bool read_end(Lexer *lx, Program *p) {
    Step s = {.kind = STEP_end};
    bool ok = !lex_accept_name(lx, "while") || read_argument(lx, p, &s);
    vec_push(p->arena, &p->steps, s);
    return ok;
}

static bool read_loop(Lexer *lx, Program *p) {
    Step s = {.kind = STEP_loop};
    bool ok = lex_want_int(lx, 0, INT64_MAX, "a number of iterations", &s.trips);
    s.apart = ok && lex_accept_name(lx, "apart");
    if (s.apart)
        ok = lex_want(lx, '+') && lex_want_int(lx, 0, INT64_MAX, "an offset", &s.own_offset) &&
             lex_want_name(lx, "bytes") &&
             lex_want_int(lx, 0, INT64_MAX, "a number of bytes", &s.own_bytes);
    if (ok && lex_accept_name(lx, "each"))
        ok = lex_want_int(lx, 1, INT64_MAX, "a number of iterations", &s.each) &&
             lex_want_name(lx, "of") && read_argument(lx, p, &s);
    vec_push(p->arena, &p->steps, s);
    return ok;
}

static bool read_weight(Lexer *lx, Program *p) {
    Value *v;
    int64_t offset = 0;
    if (!read_path(lx, p, &v) || !lex_want_name(lx, "at") ||
        !lex_want_int(lx, 0, INT64_MAX, "an offset", &offset))
        return false;
    vec_push(p->arena, &p->weights, v);
    vec_push(p->arena, &p->weight_offset, offset);
    return true;
}

static bool read_state(Lexer *lx, Program *p) {
    StatePlace state = {.initial = -1};
    if (!lex_want_name(lx, "at") || !lex_want_int(lx, 0, INT64_MAX, "an offset", &state.offset) ||
        !lex_want_name(lx, "bytes") ||
        !lex_want_int(lx, 0, INT64_MAX, "a number of bytes", &state.bytes))
        return false;
    if (lex_accept_name(lx, "initial") &&
        !lex_want_int(lx, 0, INT64_MAX, "an offset", &state.initial))
        return false;
    vec_push(p->arena, &p->states, state);
    return true;
}

/* One line behind the graph. */
static bool read_line(Lexer *lx, Program *p) {
    bool ok;
    if (lex_is_name(lx, "kernel"))
        ok = read_kernel(lx, p) != NULL;
    else if (lex_accept_name(lx, "arena"))
        ok = lex_want_int(lx, 0, INT64_MAX, "a number of bytes", &p->arena_bytes);
    else if (lex_accept_name(lx, "weights"))
        ok = lex_want_int(lx, 0, INT64_MAX, "a number of bytes", &p->weight_bytes);
    else if (lex_accept_name(lx, "weight"))
        ok = read_weight(lx, p);
    else if (lex_accept_name(lx, "states"))
        ok = lex_want_int(lx, 0, INT64_MAX, "a number of bytes", &p->state_bytes);
    else if (lex_accept_name(lx, "state"))
        ok = read_state(lx, p);
    else if (lex_accept_name(lx, "launch"))
        ok = read_launch(lx, p);
    else if (lex_accept_name(lx, "end"))
        ok = read_end(lx, p);
    else if (lex_accept_name(lx, "loop"))
        ok = read_loop(lx, p);
    else {
        lex_expected(lx, "a kernel, a step or '}'");
        return false;
    }
    return ok && lex_want_line(lx);
}

Program *parse_program(Arena *arena, Exprs *x, Diag *diag, const char *text, size_t length) {
    Lexer lx;
    lex_init(&lx, arena, text, length, false);
    Program *p = NULL;
    if (lex_want_name(&lx, "program") && lex_want(&lx, '{') && lex_want_line(&lx)) {
        Graph *g = read_graph(&lx, arena, x, diag);
        if (g && lex_want_line(&lx)) {
            p = program_new(g);
            while (!lx.error && !lex_is(&lx, '}'))
                if (!read_line(&lx, p)) break;
            lex_want(&lx, '}');
        }
    }
    if (lex_want_end(&lx)) return p;
    diag_error(diag, E5001, "%s", lx.error);
    return NULL;
}
