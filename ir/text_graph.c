/* Graphs as text: printing and reading; see text.h.
 *
 * One line an operator, its expressions on indented lines below; after the outputs `image ...` for
 * each that the host decodes, and `states N` where there are any. `src` and names stand last on the
 * line. The sub-graph of a loop stands in braces behind it and numbers its values on its own.
 */
#include "ir/constant.h"
#include "ir/text.h"

#include <stdio.h>
#include <string.h>

enum { INLINE_LIMIT = 32, MAX_LOOPS = 50, MAX_ID = 1 << 24 };

/* --- printing --------------------------------------------------------------------------------- */

typedef struct GraphPrinter {
    Text *out;
    TextOptions options;
} GraphPrinter;

static void print_graph_body(GraphPrinter *p, const Graph *g, int indent);

/* True if every element survives being written as a literal and read back. */
static bool listable(const Value *v, const unsigned char *data, int64_t n) {
    if (dt_kind(v->dt) >= DK_complex || dt_kind(v->dt) == DK_none) return false;
    size_t size = dt_store(v->dt);
    for (int64_t i = 0; i < n; i++) {
        unsigned char back[16] = {0};
        dt_save(v->dt, back, 0, dt_load(v->dt, data, (size_t)i));
        if (memcmp(back, data + (size_t)i * size, size) != 0) return false;
    }
    return true;
}

static uint64_t digest_of(Arena *arena, const Value *v) {
    uint64_t sum = FNV_SEED;
    ConstantPieces c = constant_pieces(arena, v, CONSTANT_PIECE);
    while (constant_next(&c)) sum = fnv1a(c.data, c.bytes, sum);
    return sum;
}

static void print_data(GraphPrinter *p, const Value *v) {
    Text *out = p->out;
    int64_t n = value_numel(v), limit = p->options.inline_limit;
    size_t bytes = value_bytes(v);
    bool few = n <= (limit ? limit : INLINE_LIMIT), elided = p->options.elide || v->dt == DT_str;
    const unsigned char *data = few || !elided ? constant_data(out->arena, v) : NULL;
    if (few && listable(v, data, n)) {
        text_add(out, "[");
        for (int64_t i = 0; i < n; i++) {
            if (i) text_add(out, ", ");
            text_scalar(out, v->dt, dt_load(v->dt, data, (size_t)i), false);
        }
        text_add(out, "]");
        return;
    }
    if (elided) {
        uint64_t sum = v->dt == DT_str ? 0 : digest_of(out->arena, v);
        text_addf(out, "<%zu bytes, fnv %016llx>", bytes, (unsigned long long)sum);
        return;
    }
    static const char digits[] = "0123456789abcdef";
    text_add(out, "0x");
    for (size_t i = 0; i < bytes; i++) {
        char pair[2] = {digits[data[i] >> 4], digits[data[i] & 15]};
        text_addn(out, pair, 2);
    }
}

/* `[r0: 3, r1: 4]` */
static void print_coordinates(Text *out, char letter, int n, const int64_t *extent) {
    text_add(out, " [");
    for (int i = 0; i < n; i++)
        text_addf(out, "%s%c%d: %lld", i ? ", " : "", letter, i, (long long)extent[i]);
    text_add(out, "]");
}

static void print_clause(Text *out, int indent, const char *word, const Sharing *sharing,
                         const ExprScope *scope, const Expr *e) {
    if (!e) return;
    text_indent(out, indent);
    text_addf(out, "%s ", word);
    sharing_print(out, sharing, scope, e);
    text_add(out, "\n");
}

/* The expressions of an operator, one a line. */
static void print_expressions(Text *out, const Op *op, int depth, int indent) {
    ExprScope scope = op_scope(op, false, depth);
    const Expr *e[MAX_RANK + 2];
    int n = 0, n_target = op->target ? op->out[0]->rank : 0;
    while (n < n_target) e[n] = op->target[n], n++;
    e[n++] = op->guard;
    e[n++] = op->body;
    const Sharing *sharing = sharing_plan(out, &scope, n, e, indent);
    if (op->target) {
        text_indent(out, indent);
        text_add(out, "to [");
        for (int i = 0; i < n_target; i++) {
            if (i) text_add(out, ", ");
            sharing_print(out, sharing, &scope, op->target[i]);
        }
        text_add(out, "]\n");
    }
    print_clause(out, indent, "if", sharing, &scope, op->guard);
    print_clause(out, indent, "body", sharing, &scope, op->body);
    if (!op->post) return;
    scope = op_scope(op, true, depth);
    sharing = sharing_plan(out, &scope, 1, &op->post, indent);
    print_clause(out, indent, "post", sharing, &scope, op->post);
}

/* `holds %3 [0, 1, 1]`: input i is a box of the result (Value.inside). */
static void print_part(Text *out, const Op *op, int i, int indent) {
    const Value *v = op->in[i];
    if (v->inside != op->out[0]) return;
    text_indent(out, indent);
    text_addf(out, "holds %%%d [", v->id);
    for (int k = 0; k < v->rank; k++)
        text_addf(out, "%s%lld", k ? ", " : "", (long long)v->origin[k]);
    text_add(out, "]\n");
}

static void print_op(GraphPrinter *p, const Op *op, int depth, int indent) {
    Text *out = p->out;
    text_indent(out, indent);
    for (int i = 0; i < op->n_out; i++) text_addf(out, "%s%%%d", i ? ", " : "", op->out[i]->id);
    text_addf(out, "%s%s", op->n_out ? " = " : "", op_kind_name(op->kind));
    if (op->kind == OP_reduce || op->kind == OP_scan || op->kind == OP_scatter)
        text_addf(out, " %s", combine_name(op->combine));
    if (op->kind == OP_loop) text_addf(out, " %lld state %d", (long long)op->trips, op->n_state);
    if (op->go_on) text_addf(out, " while %d", op->go_on - 1);
    if (op->kind != OP_input && op->kind != OP_const) {
        text_add(out, " (");
        for (int i = 0; i < op->n_in; i++) text_addf(out, "%s%%%d", i ? ", " : "", op->in[i]->id);
        text_add(out, ")");
    }
    if (op->kind == OP_reduce) print_coordinates(out, 'r', op->n_red, op->red);
    if (op->kind == OP_scatter) print_coordinates(out, 'i', op->n_upd, op->upd);
    if (op->kind == OP_scan) {
        text_addf(out, " axis %d", op->axis);
        if (op->exclusive) text_add(out, " exclusive");
        if (op->reverse) text_add(out, " reverse");
    }
    for (int i = 0; i < op->n_out; i++) {
        const Value *v = op->out[i];
        text_add(out, i ? ", " : " : ");
        text_type(out, v->dt, v->rank, v->shape);
        if (v->gap) text_addf(out, " gap %d", v->gap);
        if (v->text) text_add(out, " text");
        if (!v->name) continue;
        text_add(out, " ");
        text_string(out, v->name);
    }
    if ((op->kind == OP_const || op->kind == OP_input) &&
        (op->out[0]->data || op->out[0]->packed || op->out[0]->made)) {
        text_add(out, " = ");
        print_data(p, op->out[0]);
    }
    if (op->src) {
        text_add(out, " src ");
        text_string(out, op->src);
    }
    if (op->kind == OP_loop && op->sub) {
        text_add(out, " {\n");
        print_graph_body(p, op->sub, indent + 2);
        text_indent(out, indent);
        text_add(out, "}");
    }
    text_add(out, "\n");
    if (op->kind != OP_loop && op->n_out) print_expressions(out, op, depth, indent + 2);
    for (int i = 0; i < op->n_in && op->kind == OP_map; i++) print_part(out, op, i, indent + 2);
}

static void print_graph_body(GraphPrinter *p, const Graph *g, int indent) {
    for (const Op *op = g->first; op; op = op->next) print_op(p, op, g->depth, indent);
    for (int i = 0; i < g->outputs.n; i++) {
        text_indent(p->out, indent);
        text_addf(p->out, "output %%%d", g->outputs.items[i]->id);
        if (g->output_text.items[i]) text_add(p->out, " text");
        if (g->output_names.items[i]) {
            text_add(p->out, " ");
            text_string(p->out, g->output_names.items[i]);
        }
        text_add(p->out, "\n");
    }
    for (int i = 0; i < g->images.n; i++) {
        const GraphImage *image = &g->images.items[i];
        text_indent(p->out, indent);
        text_addf(p->out, "image %s %%%d height %%%d width %%%d pixels %%%d\n", image->format,
                  image->stream->id, image->height->id, image->width->id, image->pixels->id);
    }
    if (!g->n_states) return;
    text_indent(p->out, indent);
    text_addf(p->out, "states %d\n", g->n_states);
}

void text_symbol(Text *out, const char *name) {
    bool plain = *name && !strchr("0123456789", *name);
    for (const char *c = name; *c && plain; c++)
        plain =
            strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *c) != NULL;
    if (plain)
        text_addf(out, "@%s", name);
    else
        text_string(out, name);
}

void text_graph_at(Text *out, const Graph *g, TextOptions options, int indent) {
    GraphPrinter p = {out, options};
    text_indent(out, indent);
    text_add(out, "graph ");
    if (g->name) {
        text_symbol(out, g->name);
        text_add(out, " ");
    }
    text_add(out, "{\n");
    print_graph_body(&p, g, indent + 2);
    text_indent(out, indent);
    text_add(out, "}\n");
}

void text_graph(Text *out, const Graph *g, TextOptions options) {
    text_graph_at(out, g, options, 0);
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct GraphReader {
    Lexer *lx;
    Graph *g;
    StrMap values; /* by number as text */
    int loops;
} GraphReader;

static void **value_slot(GraphReader *r, uint64_t id) {
    char key[24];
    snprintf(key, sizeof key, "%llu", (unsigned long long)id);
    return strmap_put(&r->values, key);
}

/* `%3`, defined before. */
static Value *read_value(GraphReader *r) {
    Lexer *lx = r->lx;
    if (lx->tok.kind != TOK_value) {
        lex_expected(lx, "a value such as %0");
        return NULL;
    }
    Value *v = *value_slot(r, lx->tok.integer);
    if (!v) lex_fail(lx, "%%%d is not defined before", (int)lx->tok.integer);
    lex_next(lx);
    return lx->error ? NULL : v;
}

typedef VEC(Value *) Values;

/* `(%0, %1)` */
static bool read_inputs(GraphReader *r, Values *in) {
    Lexer *lx = r->lx;
    if (!lex_want(lx, '(')) return false;
    if (lex_accept(lx, ')')) return !lx->error;
    do {
        Value *v = read_value(r);
        if (!v) return false;
        vec_push(lx->arena, in, v);
    } while (lex_accept(lx, ','));
    return lex_want(lx, ')');
}

/* `[r0: 3, r1: 4]`; at most `room` of them. */
static bool read_coordinates(Lexer *lx, char letter, int room, int *n, const int64_t **extent) {
    int64_t *e = ARENA_ARRAY(lx->arena, MAX_RANK, int64_t);
    *n = 0;
    *extent = e;
    if (!lex_want(lx, '[')) return false;
    if (lex_accept(lx, ']')) return !lx->error;
    do {
        char name[16];
        snprintf(name, sizeof name, "%c%d", letter, *n);
        if (*n == room) {
            lex_fail(lx, "more than %d coordinates", MAX_RANK);
            return false;
        }
        if (!lex_want_name(lx, name) || !lex_want(lx, ':') ||
            !lex_want_int(lx, 0, INT32_MAX, "an extent", &e[*n]))
            return false;
        ++*n;
    } while (lex_accept(lx, ','));
    return lex_want(lx, ']');
}

static bool read_combine(Lexer *lx, Combine *combine) {
    for (int c = COMBINE_none; c <= COMBINE_min; c++)
        if (lex_accept_name(lx, combine_name((Combine)c))) {
            *combine = (Combine)c;
            return !lx->error;
        }
    lex_expected(lx, "none, sum, prod, max or min");
    return false;
}

/* `: f32[2] "name"` for each of the operator's outputs, whose numbers are in ids. */
static bool read_types(GraphReader *r, Op *op, const int *ids) {
    Lexer *lx = r->lx;
    for (int i = 0; i < op->n_out; i++) {
        DType dt;
        int rank;
        int64_t shape[MAX_RANK], n = 1;
        if (!lex_want(lx, i ? ',' : ':')) return false;
        const Token at = lx->tok;
        if (!lex_want_type(lx, &dt, &rank, shape)) return false;
        for (int k = 0; k < rank; k++) {
            if (shape[k] > 0 && n > INT32_MAX / shape[k]) {
                lx->tok = at;
                lex_fail(lx, "expected fewer than 2^31 elements");
                return false;
            }
            n *= shape[k];
        }
        Value *v = graph_new_value(r->g, op, i, dt, rank, shape);
        v->id = ids[i];
        int64_t gap = 0;
        if (rank && lex_accept_name(lx, "gap") && !lex_want_int(lx, 1, MOST_GAP, "a gap", &gap))
            return false;
        v->gap = (int)gap;
        v->text = op->kind == OP_input && rank && lex_accept_name(lx, "text");
        if (lx->tok.kind == TOK_string && !lex_want_string(lx, &v->name)) return false;
    }
    return true;
}

static int hex_value(char c) {
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

static bool read_hex(Lexer *lx, const Value *v, unsigned char *data) {
    size_t bytes = value_bytes(v);
    if (lx->tok.length != 2 * bytes) {
        lex_fail(lx, "expected %zu bytes, found %zu hexadecimal digits", bytes, lx->tok.length);
        return false;
    }
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(hex_value(lx->tok.text[2 * i]) << 4 |
                                  hex_value(lx->tok.text[2 * i + 1]));
    lex_next(lx);
    return !lx->error;
}

/* The elements of a constant, after `=`. */
static bool read_data(Lexer *lx, Value *v) {
    int64_t n = value_numel(v);
    size_t given = (size_t)(lx->end - lx->tok.text);
    if (lex_is(lx, '<')) {
        lex_fail(lx, "the elements were left out when this was printed; it cannot be read back");
        return false;
    }
    if (v->dt == DT_str) {
        lex_fail(lx, "constants of strings have no text form");
        return false;
    }
    /* an element takes a character or more, so the text bounds what is allotted */
    if ((uint64_t)n > given) {
        lex_fail(lx, "expected %lld elements, found the end of the text", (long long)n);
        return false;
    }
    unsigned char *data = arena_alloc(lx->arena, value_bytes(v) + 1);
    v->data = data;
    if (lx->tok.kind == TOK_hex) return read_hex(lx, v, data);
    if (!lex_want(lx, '[')) return false;
    for (int64_t i = 0; i < n; i++) {
        Scalar value = {0};
        if (i && !lex_want(lx, ',')) return false;
        if (!lex_want_scalar(lx, v->dt, &value)) return false;
        dt_save(v->dt, data, (size_t)i, value);
    }
    return lex_want(lx, ']');
}

/* After `holds`. */
static bool read_part(GraphReader *r, Op *op) {
    Lexer *lx = r->lx;
    Value *v = read_value(r);
    if (!v || !lex_want(lx, '[')) return false;
    int64_t *origin = ARENA_ARRAY(lx->arena, MAX_RANK, int64_t);
    for (int i = 0; i < v->rank && i < MAX_RANK; i++) {
        if (i && !lex_want(lx, ',')) return false;
        if (!lex_want_int(lx, 0, INT32_MAX, "a coordinate", &origin[i])) return false;
    }
    v->inside = v->storage = op->out[0];
    v->origin = origin;
    return lex_want(lx, ']') && lex_want_line(lx);
}

/* The lines of expressions below an operator. */
static bool read_expressions(GraphReader *r, Op *op) {
    Lexer *lx = r->lx;
    ExprScope scope = op_scope(op, false, r->g->depth);
    ExprReader e = {.lx = lx, .x = r->g->x, .scope = &scope};
    if (!read_lets(&e)) return false;
    if (op->kind == OP_scatter && lex_accept_name(lx, "to")) {
        op->target = ARENA_ARRAY(lx->arena, MAX_RANK, const Expr *);
        if (read_index(&e, op->out[0]->rank, op->target) < 0 || !lex_want_line(lx)) return false;
    }
    bool guarded = op->kind == OP_scatter || op->kind == OP_map;
    if (guarded && lex_accept_name(lx, "if")) {
        op->guard = read_expr(&e);
        if (!op->guard || !lex_want_line(lx)) return false;
    }
    if (lex_accept_name(lx, "body")) {
        op->body = read_expr(&e);
        if (!op->body || !lex_want_line(lx)) return false;
    }
    while (op->kind == OP_map && lex_accept_name(lx, "holds"))
        if (!read_part(r, op)) return false;
    if (op->kind != OP_reduce && op->kind != OP_scan) return true;
    scope = op_scope(op, true, r->g->depth);
    e.shared.n = e.shared_height.n = 0;
    if (!read_lets(&e)) return false;
    if (lex_accept_name(lx, "post")) {
        op->post = read_expr(&e);
        if (!op->post || !lex_want_line(lx)) return false;
    }
    return !lx->error;
}

static bool read_graph_body(GraphReader *r);

/* `{ ... }` of a loop. */
static bool read_sub(GraphReader *r, Op *op) {
    Lexer *lx = r->lx;
    if (r->loops == MAX_LOOPS) {
        lex_fail(lx, "more than %d loops in each other", MAX_LOOPS);
        return false;
    }
    if (!lex_want(lx, '{') || !lex_want_line(lx)) return false;
    op->sub = graph_new_sub(r->g);
    GraphReader inner = {.lx = lx, .g = op->sub, .loops = r->loops + 1};
    strmap_init(&inner.values, lx->arena);
    return read_graph_body(&inner);
}

/* Between the kind and the inputs, and between the inputs and the types. */
static bool read_before_inputs(Lexer *lx, Op *op) {
    int64_t n_state, go_on;
    switch (op->kind) {
    case OP_reduce:
    case OP_scan:
    case OP_scatter:
        return read_combine(lx, &op->combine);
    case OP_loop:
        if (!lex_want_int(lx, 0, INT32_MAX, "a number of iterations", &op->trips) ||
            !lex_want_name(lx, "state") ||
            !lex_want_int(lx, 0, INT32_MAX, "a number of states", &n_state))
            return false;
        op->n_state = (int)n_state;
        if (!lex_accept_name(lx, "while")) return true;
        if (!lex_want_int(lx, 0, INT32_MAX - 1, "a state", &go_on)) return false;
        op->go_on = (int)go_on + 1;
        return true;
    default:
        return true;
    }
}

static bool read_after_inputs(Lexer *lx, Op *op) {
    int64_t axis;
    switch (op->kind) {
    case OP_reduce:
        return read_coordinates(lx, 'r', MAX_RANK, &op->n_red, &op->red);
    case OP_scatter:
        return read_coordinates(lx, 'i', MAX_RANK, &op->n_upd, &op->upd);
    case OP_scan:
        if (!lex_want_name(lx, "axis") || !lex_want_int(lx, 0, MAX_RANK - 1, "an axis", &axis))
            return false;
        op->axis = (int)axis;
        op->exclusive = lex_accept_name(lx, "exclusive");
        op->reverse = lex_accept_name(lx, "reverse");
        return !lx->error;
    default:
        return true;
    }
}

/* `kind ...` up to the end of its lines. */
static bool read_op(GraphReader *r, OpKind kind, int n_out, const int *ids) {
    Lexer *lx = r->lx;
    Graph *g = r->g;
    Op shape = {.kind = kind};
    Values in = {0};
    bool leaf = kind == OP_input || kind == OP_const;
    if (!read_before_inputs(lx, &shape)) return false;
    if (!leaf && (!read_inputs(r, &in) || !read_after_inputs(lx, &shape))) return false;
    Op *op = graph_new_op(g, kind, in.n, in.items, n_out);
    shape.n_in = op->n_in, shape.in = op->in, shape.n_out = op->n_out, shape.out = op->out;
    *op = shape;
    if (!read_types(r, op, ids)) return false;
    if (leaf && lex_accept(lx, '=') && !read_data(lx, op->out[0])) return false;
    if (lex_accept_name(lx, "src") && !lex_want_string(lx, &op->src)) return false;
    if (kind == OP_loop && !read_sub(r, op)) return false;
    if (!lex_want_line(lx)) return false;
    if (!leaf && kind != OP_loop && !read_expressions(r, op)) return false;
    graph_append(g, op);
    if (kind == OP_input) vec_push(g->arena, &g->inputs, op->out[0]);
    for (int i = 0; i < n_out; i++) {
        *value_slot(r, (uint64_t)ids[i]) = op->out[i];
        if (g->n_values <= ids[i]) g->n_values = ids[i] + 1;
    }
    return true;
}

/* `%0, %1 = kind ...` */
static bool read_definition(GraphReader *r) {
    Lexer *lx = r->lx;
    VEC(int) ids = {0};
    while (lx->tok.kind == TOK_value) {
        int id = (int)lx->tok.integer;
        bool again = *value_slot(r, (uint64_t)id) != NULL;
        if (id >= MAX_ID) {
            lex_fail(lx, "expected a number below %d", MAX_ID);
            return false;
        }
        for (int i = 0; i < ids.n; i++) again |= ids.items[i] == id;
        if (again || ids.n == 1000) {
            lex_fail(lx, again ? "%%%d is defined before" : "%%%d is one output too many", id);
            return false;
        }
        vec_push(lx->arena, &ids, id);
        lex_next(lx);
        if (!lex_accept(lx, ',')) break;
        if (lx->tok.kind != TOK_value) lex_expected(lx, "a value such as %0");
    }
    if (ids.n && !lex_want(lx, '=')) return false;
    for (int kind = 0; kind < OP_count; kind++) {
        if (!lex_is_name(lx, op_kind_name((OpKind)kind))) continue;
        if (kind != OP_loop && ids.n != 1) {
            lex_expected(lx, "'loop', for other operators have one output");
            return false;
        }
        lex_next(lx);
        return read_op(r, (OpKind)kind, ids.n, ids.items);
    }
    lex_expected(lx, ids.n ? "the name of an operator"
                           : "an operator, 'output', 'image', 'states' or '}'");
    return false;
}

/* RGB %stream height %h width %w pixels %p */
static bool read_image(GraphReader *r) {
    static const char *const formats[] = {"RGB", "BGR", "Grayscale"};
    Lexer *lx = r->lx;
    GraphImage image = {0};
    for (int i = 0; i < 3 && !image.format; i++)
        if (lex_accept_name(lx, formats[i])) image.format = formats[i];
    if (!image.format) {
        lex_expected(lx, "'RGB', 'BGR' or 'Grayscale'");
        return false;
    }
    image.stream = read_value(r);
    if (!image.stream || !lex_want_name(lx, "height")) return false;
    image.height = read_value(r);
    if (!image.height || !lex_want_name(lx, "width")) return false;
    image.width = read_value(r);
    if (!image.width || !lex_want_name(lx, "pixels")) return false;
    image.pixels = read_value(r);
    if (image.pixels) vec_push(r->g->arena, &r->g->images, image);
    return image.pixels && lex_want_line(lx);
}

/* The lines up to `}`. */
static bool read_graph_body(GraphReader *r) {
    Lexer *lx = r->lx;
    while (!lx->error && !lex_is(lx, '}')) {
        if (lex_accept_name(lx, "states")) {
            int64_t n;
            if (!lex_want_int(lx, 0, INT32_MAX, "a number of states", &n) || !lex_want_line(lx))
                return false;
            r->g->n_states = (int)n;
            continue;
        }
        if (lex_accept_name(lx, "image")) {
            if (!read_image(r)) return false;
            continue;
        }
        if (!lex_accept_name(lx, "output")) {
            if (!read_definition(r)) return false;
            continue;
        }
        const char *name = NULL;
        Value *v = read_value(r);
        if (!v) return false;
        bool text = lex_accept_name(lx, "text");
        if (lx->tok.kind == TOK_string && !lex_want_string(lx, &name)) return false;
        (text ? graph_output_text : graph_output)(r->g, v, name);
        if (!lex_want_line(lx)) return false;
    }
    return lex_want(lx, '}');
}

bool lex_want_symbol(Lexer *lx, const char **name) {
    if (lx->tok.kind != TOK_symbol) return lex_want_string(lx, name);
    *name = arena_strndup(lx->arena, lx->tok.text, lx->tok.length);
    lex_next(lx);
    return !lx->error;
}

Graph *read_graph(Lexer *lx, Arena *arena, Exprs *x, Diag *diag) {
    const char *name = NULL;
    if (!lex_want_name(lx, "graph")) return NULL;
    if (!lex_is(lx, '{') && !lex_want_symbol(lx, &name)) return NULL;
    if (!lex_want(lx, '{') || !lex_want_line(lx)) return NULL;
    GraphReader r = {.lx = lx, .g = graph_new(arena, x, diag, name)};
    r.g->no_fold = true; /* the text is read as it stands */
    strmap_init(&r.values, arena);
    bool read = read_graph_body(&r);
    r.g->no_fold = false;
    return read ? r.g : NULL;
}

bool lex_want_end(Lexer *lx) {
    if (lx->tok.kind == TOK_newline) lex_next(lx);
    if (!lx->error && lx->tok.kind != TOK_end) lex_expected(lx, "the end of the text");
    return !lx->error;
}

Graph *parse_graph(Arena *arena, Exprs *x, Diag *diag, const char *text, size_t length) {
    Lexer lx;
    lex_init(&lx, arena, text, length, false);
    Graph *g = read_graph(&lx, arena, x, diag);
    if (lex_want_end(&lx)) return g;
    diag_error(diag, E5001, "%s", lx.error);
    return NULL;
}
