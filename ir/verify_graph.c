/* Verifying graphs; see verify.h. Works from the outside in: links and counts first, then shapes
 * and types, then expressions, so that each check may rely on those before it. */
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

typedef struct GraphVerifier {
    Verifier v;
    const Graph *g;
    const char *outer;     /* the place of the loop around */
    const Value **defined; /* by id: the value defined so far */
    int n_inputs;          /* input operators so far */
} GraphVerifier;

static void set_place(GraphVerifier *r, const Op *op) {
    Arena *arena = r->v.arena;
    const char *id = op->n_out && op->out[0] ? arena_printf(arena, "%%%d = ", op->out[0]->id) : "";
    const char *kind = op->kind < OP_count ? op_kind_name(op->kind) : "?";
    const char *outer = r->outer ? arena_printf(arena, "%s: ", r->outer) : "";
    r->v.place = arena_printf(arena, "%s%s%s%s%s%s", outer, id, kind, op->src ? " (" : "",
                              op->src ? op->src : "", op->src ? ")" : "");
}

/* --- values ----------------------------------------------------------------------------------- */

static bool shape_ok(Verifier *v, const char *what, int rank, const int64_t *shape) {
    int64_t n = 1;
    if (rank < 0 || rank > MAX_RANK || (rank && !shape)) {
        verify_fail(v, "%s has rank %d", what, rank);
        return false;
    }
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0 || (shape[i] > 0 && n > INT32_MAX / shape[i])) {
            verify_fail(v, "%s has the shape %s", what, shape_text(v->arena, rank, shape));
            return false;
        }
        n *= shape[i];
    }
    return true;
}

static const char *type_text(Arena *arena, DType dt, int rank, const int64_t *shape) {
    Text t = text_new(arena);
    text_type(&t, dt, rank, shape);
    return text_get(&t);
}

static const char *value_type(Arena *arena, const Value *v) {
    return type_text(arena, v->dt, v->rank, v->shape);
}

static bool same_type(const Value *a, const Value *b) {
    return a->dt == b->dt && shape_equal(a->rank, a->shape, b->rank, b->shape);
}

static bool is_defined(const GraphVerifier *r, const Value *v) {
    return v && v->id >= 0 && v->id < r->g->n_values && r->defined[v->id] == v;
}

static bool check_outputs(GraphVerifier *r, const Op *op) {
    Verifier *v = &r->v;
    if (op->kind != OP_loop && op->n_out != 1) {
        verify_fail(v, "it has %d outputs", op->n_out);
        return false;
    }
    for (int i = 0; i < op->n_out; i++) {
        const Value *out = op->out[i];
        if (!out || out->def != op || out->def_index != i) {
            verify_fail(v, "output %d does not lead back to it", i);
            return false;
        }
        const char *what = arena_printf(v->arena, "output %d", i);
        if (out->dt <= DT_none || out->dt >= DT_count) {
            verify_fail(v, "%s has no element type", what);
            return false;
        }
        if (!shape_ok(v, what, out->rank, out->shape)) return false;
        if (out->id < 0 || out->id >= r->g->n_values) {
            verify_fail(v, "%s has the number %d of %d", what, out->id, r->g->n_values);
            return false;
        }
        if (r->defined[out->id]) {
            verify_fail(v, "%%%d is defined twice", out->id);
            return false;
        }
    }
    return true;
}

static bool check_inputs(GraphVerifier *r, const Op *op) {
    for (int i = 0; i < op->n_in; i++)
        if (!is_defined(r, op->in[i])) {
            verify_fail(&r->v, "input %d (%%%d) is not defined before", i,
                        op->in[i] ? op->in[i]->id : -1);
            return false;
        }
    return true;
}

static bool expect_inputs(GraphVerifier *r, const Op *op, int n) {
    if (op->n_in == n) return true;
    verify_fail(&r->v, "it has %d inputs, not %d", op->n_in, n);
    return false;
}

/* --- expressions ------------------------------------------------------------------------------ */

static VerifyScope scope_of(const GraphVerifier *r, const Op *op, int n_vars,
                            const int64_t *extent) {
    VerifyScope scope = {.n_vars = n_vars,
                         .extents = extent,
                         .n_sources = op->n_in,
                         .values = op->in,
                         .n_ctr = r->g->depth,
                         .names = op_scope(op, false, r->g->depth)};
    for (int i = 0; i < n_vars; i++)
        if (extent[i] == 0) scope.extents = NULL; /* then nothing is evaluated */
    return scope;
}

static void check_combine(GraphVerifier *r, const Op *op, bool strict) {
    if (op->combine < COMBINE_none || op->combine > COMBINE_min) {
        verify_fail(&r->v, "it has no way to combine");
        return;
    }
    if (!op->body || op->combine == COMBINE_none) return;
    DType arg[2] = {(DType)op->body->dt, (DType)op->body->dt};
    const char *why = NULL;
    if (expr_type(r->v.arena, combine_expr(op->combine), DT_none, arg, strict, &why) == DT_none)
        verify_fail(&r->v, "it combines by %s: %s", combine_name(op->combine), why);
}

static void check_post(GraphVerifier *r, const Op *op, const int64_t *extent) {
    VerifyScope scope = scope_of(r, op, op->out[0]->rank, extent);
    scope.acc = op->body ? (DType)op->body->dt : DT_none;
    scope.names = op_scope(op, true, r->g->depth);
    verify_expr(&r->v, &scope, op->post, op->out[0]->dt, "post");
}

/* An input that is a part of the result. */
static void check_part(Verifier *v, const Value *part, const Value *whole) {
    bool fits = part->rank == whole->rank && part->dt == whole->dt &&
                (part->def->kind == OP_map || part->def->kind == OP_reduce);
    for (int i = 0; i < part->rank && fits; i++)
        fits = part->origin[i] >= 0 && part->origin[i] <= whole->shape[i] - part->shape[i];
    if (!fits)
        verify_fail(v, "%%%d, %s, cannot lie in %s", part->id, value_type(v->arena, part),
                    value_type(v->arena, whole));
}

static void check_map(GraphVerifier *r, const Op *op) {
    int64_t extent[MAX_RANK];
    int n = op_extents(op, extent);
    VerifyScope scope = scope_of(r, op, n, extent);
    if (op->guard) verify_expr(&r->v, &scope, op->guard, DT_bool, "if");
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i]->inside == op->out[0]) check_part(&r->v, op->in[i], op->out[0]);
    verify_expr(&r->v, &scope, op->body, op->out[0]->dt, "body");
}

static void check_reduce(GraphVerifier *r, const Op *op) {
    Verifier *v = &r->v;
    int rank = op->out[0]->rank;
    int64_t extent[MAX_RANK];
    if (op->n_red < 0 || op->n_red > MAX_RANK - rank) {
        verify_fail(v, "%d output and %d reduction coordinates are too many", rank, op->n_red);
        return;
    }
    for (int i = 0; i < op->n_red; i++)
        if (op->red[i] < 0 || op->red[i] > INT32_MAX) {
            verify_fail(v, "the extent of r%d is %lld", i, (long long)op->red[i]);
            return;
        }
    if (op->combine == COMBINE_none) verify_fail(v, "it has no way to combine");
    check_combine(r, op, true);
    int n = op_extents(op, extent);
    VerifyScope scope = scope_of(r, op, n, extent);
    verify_expr(v, &scope, op->body, DT_none, "body");
    check_post(r, op, extent);
}

static void check_scan(GraphVerifier *r, const Op *op) {
    Verifier *v = &r->v;
    int rank = op->out[0]->rank;
    int64_t extent[MAX_RANK];
    DType types[MAX_RANK];
    if (op->axis < 0 || op->axis >= rank || rank >= MAX_RANK) {
        verify_fail(v, "axis %d of rank %d", op->axis, rank);
        return;
    }
    if (op->combine == COMBINE_none) verify_fail(v, "it has no way to combine");
    check_combine(r, op, true);
    int n = op_extents(op, extent);
    for (int i = 0; i < n; i++) types[i] = i == op->axis ? DT_none : DT_i32;
    VerifyScope scope = scope_of(r, op, n, extent);
    scope.var_types = types;
    verify_expr(v, &scope, op->body, DT_none, "body");
    check_post(r, op, extent);
}

static void check_scatter(GraphVerifier *r, const Op *op) {
    Verifier *v = &r->v;
    const Value *out = op->out[0];
    if (op->n_in < 1 || !same_type(op->in[0], out)) {
        verify_fail(v, "input 0 is %s, the output %s",
                    op->n_in ? value_type(v->arena, op->in[0]) : "missing",
                    value_type(v->arena, out));
        return;
    }
    if (!shape_ok(v, "the update space", op->n_upd, op->upd)) return;
    VerifyScope scope = scope_of(r, op, op->n_upd, op->upd);
    check_combine(r, op, false);
    if (!op->target) verify_fail(v, "it has no target");
    for (int i = 0; i < out->rank && op->target; i++) {
        const char *what = arena_printf(v->arena, "target coordinate %d", i);
        int before = v->n_errors;
        verify_expr(v, &scope, op->target[i], DT_i32, what);
        bool sure = before == v->n_errors && !op->guard && scope.extents;
        if (sure) verify_index(v, &scope, op->target[i], out->shape[i], what);
    }
    if (op->guard) verify_expr(v, &scope, op->guard, DT_bool, "if");
    verify_expr(v, &scope, op->body, out->dt, "body");
}

/* --- operators -------------------------------------------------------------------------------- */

static void check_graph(Verifier *v, const Graph *g);

static void check_input(GraphVerifier *r, const Op *op) {
    if (r->n_inputs >= r->g->inputs.n || r->g->inputs.items[r->n_inputs] != op->out[0])
        verify_fail(&r->v, "it is not input %d of the graph", r->n_inputs);
    r->n_inputs++;
}

static void check_reshape(GraphVerifier *r, const Op *op) {
    const Value *in = op->in[0], *out = op->out[0];
    if (in->dt != out->dt || value_numel(in) != value_numel(out))
        verify_fail(&r->v, "%s cannot become %s", value_type(r->v.arena, in),
                    value_type(r->v.arena, out));
}

/* What passes between a loop and its sub-graph, both ways. */
static void check_loop(GraphVerifier *r, const Op *op) {
    Verifier *v = &r->v;
    const Graph *sub = op->sub;
    if (!sub || sub->parent != r->g || sub->depth != r->g->depth + 1) {
        verify_fail(v, "its sub-graph is missing or belongs elsewhere");
        return;
    }
    if (op->trips < 0 || op->n_state < 0 || op->n_state > op->n_in || op->n_state > op->n_out) {
        verify_fail(v, "%d states of %d inputs and %d outputs, %lld iterations", op->n_state,
                    op->n_in, op->n_out, (long long)op->trips);
        return;
    }
    if (sub->inputs.n != op->n_in || sub->outputs.n != op->n_out) {
        verify_fail(v, "its sub-graph has %d inputs for %d and %d outputs for %d", sub->inputs.n,
                    op->n_in, sub->outputs.n, op->n_out);
        return;
    }
    const Value *go_on = op->go_on > 0 && op->go_on <= op->n_state ? op->in[op->go_on - 1] : NULL;
    if (op->go_on && !(go_on && go_on->dt == DT_bool && go_on->rank == 0))
        verify_fail(v, "state %d, which says whether it goes on, is no bool", op->go_on - 1);
    for (int i = 0; i < op->n_in; i++)
        if (!same_type(op->in[i], sub->inputs.items[i]))
            verify_fail(v, "input %d is %s, in the sub-graph %s", i,
                        value_type(v->arena, op->in[i]),
                        value_type(v->arena, sub->inputs.items[i]));
    for (int i = 0; i < op->n_out; i++) {
        const Value *out = op->out[i], *inner = sub->outputs.items[i];
        bool stacked = i >= op->n_state;
        bool fits = inner && inner->dt == out->dt && out->rank == inner->rank + stacked &&
                    (!stacked || out->shape[0] == op->trips) &&
                    shape_equal(inner->rank, inner->shape, inner->rank, out->shape + stacked);
        if (!fits)
            verify_fail(v, "output %d is %s, in the sub-graph %s", i, value_type(v->arena, out),
                        inner ? value_type(v->arena, inner) : "missing");
        if (!stacked && !same_type(out, op->in[i]))
            verify_fail(v, "state %d begins as %s and ends as %s", i,
                        value_type(v->arena, op->in[i]), value_type(v->arena, out));
    }
    check_graph(v, sub);
}

static void check_op(GraphVerifier *r, const Op *op) {
    switch (op->kind) {
    case OP_input:
        if (expect_inputs(r, op, 0)) check_input(r, op);
        return;
    case OP_const:
        if (expect_inputs(r, op, 0) && !op->out[0]->data && !op->out[0]->packed &&
            !op->out[0]->made && value_numel(op->out[0]) > 0)
            verify_fail(&r->v, "it has no data");
        return;
    case OP_map:
        check_map(r, op);
        return;
    case OP_reduce:
        check_reduce(r, op);
        return;
    case OP_scan:
        check_scan(r, op);
        return;
    case OP_scatter:
        check_scatter(r, op);
        return;
    case OP_reshape:
        if (expect_inputs(r, op, 1)) check_reshape(r, op);
        return;
    case OP_loop:
        check_loop(r, op);
        return;
    default:
        verify_fail(&r->v, "there is no such operator");
        return;
    }
}

/* --- graphs ----------------------------------------------------------------------------------- */

/* Strings are rows of bytes. */
static void check_text(Verifier *v, const Value *text, const char *what, int i) {
    if (text->dt != DT_u8 || text->rank < 1)
        verify_fail(v, "%s %d of the graph (%%%d) is text, but of type %s and rank %d", what, i,
                    text->id, dt_name(text->dt), text->rank);
}

/* Decoded images are the last inputs before the states, made of one that callers give. */
static void check_images(GraphVerifier *r) {
    const Graph *g = r->g;
    Verifier *v = &r->v;
    if (g->images.n && (g->depth || graph_n_given(g) < 1)) {
        verify_fail(v, "the graph has %d images of %d inputs", g->images.n, g->inputs.n);
        return;
    }
    for (int i = 0; i < g->images.n; i++) {
        const GraphImage *image = &g->images.items[i];
        Value *const *own = &g->inputs.items[graph_n_given(g) + 3 * i];
        const Value *stream = image->stream, *pixels = image->pixels;
        if (own[0] != image->height || own[1] != image->width || own[2] != pixels)
            verify_fail(v, "image %d of the graph is not in its place among the inputs", i);
        else if (own[0]->dt != DT_i32 || own[0]->rank || own[1]->dt != DT_i32 || own[1]->rank ||
                 pixels->dt != DT_u8 || pixels->rank != 3)
            verify_fail(v, "image %d of the graph is %s of height %s and width %s", i,
                        value_type(v->arena, pixels), value_type(v->arena, own[0]),
                        value_type(v->arena, own[1]));
        bool given = false;
        for (int k = 0; k < graph_n_given(g); k++) given |= g->inputs.items[k] == stream;
        if (!given || stream->dt != DT_u8 || stream->rank != 1)
            verify_fail(v, "image %d of the graph is made of no bytes that callers give", i);
    }
}

static void check_ends(GraphVerifier *r) {
    const Graph *g = r->g;
    Verifier *v = &r->v;
    if (r->n_inputs != g->inputs.n)
        verify_fail(v, "the graph has %d inputs, %d of them defined", g->inputs.n, r->n_inputs);
    if (g->output_names.n != g->outputs.n)
        verify_fail(v, "the graph has %d outputs and %d names for them", g->outputs.n,
                    g->output_names.n);
    for (int i = 0; i < g->inputs.n && i < r->n_inputs; i++)
        if (g->inputs.items[i]->text) check_text(v, g->inputs.items[i], "input", i);
    if (g->n_states < 0 || g->n_states > g->inputs.n || g->n_states > g->outputs.n ||
        (g->depth && g->n_states)) {
        verify_fail(v, "the graph has %d states of %d inputs and %d outputs", g->n_states,
                    g->inputs.n, g->outputs.n);
        return;
    }
    if (g->inputs.n == r->n_inputs) check_images(r);
    for (int i = 0; i < graph_n_inputs(g) && i < r->n_inputs; i++)
        if (g->inputs.items[i]->data)
            verify_fail(v, "input %d of the graph has data, but is no state", i);
    for (int i = 0; i < g->outputs.n; i++) {
        int state = i - graph_n_outputs(g);
        const Value *now = state < 0 ? NULL : g->inputs.items[graph_n_inputs(g) + state];
        if (now && g->outputs.items[i] && !same_type(now, g->outputs.items[i]))
            verify_fail(v, "state %d is %s before a run and %s after it", state,
                        value_type(v->arena, now), value_type(v->arena, g->outputs.items[i]));
        if (!is_defined(r, g->outputs.items[i]))
            verify_fail(v, "output %d of the graph (%%%d) is not defined", i,
                        g->outputs.items[i] ? g->outputs.items[i]->id : -1);
        else if (g->output_text.items[i])
            check_text(v, g->outputs.items[i], "output", i);
    }
}

static void check_graph(Verifier *v, const Graph *g) {
    const char *outer = v->place;
    GraphVerifier r = {.v = *v, .g = g, .outer = outer};
    r.defined = calloc((size_t)g->n_values + 1, sizeof *r.defined);
    if (!r.defined) return; /* no memory to look: the arena will report it */
    const Op *before = NULL;
    for (const Op *op = g->first; op; before = op, op = op->next) {
        set_place(&r, op);
        if (op->prev != before) verify_fail(&r.v, "the list of operators is broken before it");
        if (!check_outputs(&r, op)) continue;
        if (check_inputs(&r, op)) check_op(&r, op);
        for (int i = 0; i < op->n_out; i++) r.defined[op->out[i]->id] = op->out[i];
    }
    r.v.place = outer;
    if (g->last != before) verify_fail(&r.v, "the list of operators is broken at its end");
    check_ends(&r);
    free(r.defined);
    v->n_errors = r.v.n_errors;
}

bool verify_graph(const Graph *g, Diag *diag, const char *after_pass) {
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    Verifier v = {.diag = diag, .arena = &scratch, .pass = after_pass};
    check_graph(&v, g);
    arena_free(&scratch);
    return v.n_errors == 0;
}
