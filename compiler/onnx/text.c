/* See text.h. */
#include "compiler/onnx/text.h"
#include "compiler/onnx/import_impl.h"
#include "compiler/onnx/index.h"

#include <string.h>

/* --- inputs, outputs, constants --------------------------------------------------------------- */

Value *node_text(Node *n, int i) {
    const Entity *e = i < n->n_in ? n->entity[i] : NULL;
    if (e && e->kind == ENTITY_text) return e->tensor;
    if (e)
        invalid(n, E2006, "input %d must be a tensor of strings", i);
    else
        invalid(n, E2007, "input %d is missing", i);
    return NULL;
}

void node_set_text(Node *n, int i, Value *bytes) {
    if (bytes && node_shape_ok(n, bytes->rank, bytes->dims))
        n->out_entity[i] = entity_strings(n->im, bytes);
}

Value *text_const(Graph *g, int rank, const int64_t *shape, const OnnxString *strings) {
    int64_t full[MAX_TENSOR_RANK], width = 1;
    if (rank >= MAX_TENSOR_RANK) {
        diag_error(g->diag, E3002,
                   "a constant of strings has %d dimensions; at most %d are supported", rank,
                   MAX_TENSOR_RANK - 1);
        return NULL;
    }
    int64_t count = shape_numel(rank, shape);
    for (int64_t i = 0; i < count; i++) {
        OnnxString s = strings[i];
        if ((int64_t)s.length > width) width = (int64_t)s.length;
        if (s.length <= MAX_STRING_BYTES && (!s.length || !memchr(s.data, 0, s.length))) continue;
        diag_error(g->diag, E3002, "string %lld of a constant %s", (long long)i,
                   s.length > MAX_STRING_BYTES ? "has more than 65536 bytes"
                                               : "has a zero byte in it, which ends strings here");
        return NULL;
    }
    for (int i = 0; i < rank; i++) full[i] = shape[i];
    full[rank] = width;
    if (!shape_fits(rank + 1, full)) {
        diag_error(g->diag, E3005, "a constant of strings takes more than 2^31-1 bytes: %s",
                   shape_text(g->arena, rank + 1, full));
        return NULL;
    }
    char *bytes = ARENA_ARRAY(g->arena, (size_t)(count * width) + 1, char);
    for (int64_t i = 0; i < count; i++)
        if (strings[i].length) memcpy(bytes + i * width, strings[i].data, strings[i].length);
    return graph_const(g, DT_u8, rank + 1, full, bytes);
}

bool attr_is_text(const Node *n, const char *name) {
    const Onnx__AttributeProto *a = attr_find(n, name);
    if (a && a->t) return a->t->data_type == dt_onnx(DT_str);
    return a && (a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS ||
                 a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
}

Value *attr_text(Node *n, const char *name) {
    const Onnx__AttributeProto *a = attr_find(n, name);
    if (!a) return NULL;
    if (!attr_is_text(n, name)) {
        invalid(n, E2004, "attribute '%s' holds no strings", name);
        return NULL;
    }
    if (a->t) {
        Entity *e = attr_entity(n->im, n->g, a->t);
        return e ? e->tensor : NULL;
    }
    bool list = a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
    size_t count = list ? a->n_strings : 1;
    OnnxString *strings = ARENA_ARRAY(n->g->arena, count + 1, OnnxString);
    for (size_t i = 0; i < count; i++) {
        const ProtobufCBinaryData *s = list ? &a->strings[i] : &a->s;
        strings[i] = (OnnxString){(const char *)s->data, s->len};
    }
    int64_t shape[1] = {(int64_t)count};
    return text_const(n->g, list, shape, strings);
}

/* --- rows ------------------------------------------------------------------------------------- */

int64_t text_width(const Value *text) {
    return text->dims[text->rank - 1];
}

Value *text_rows(Graph *g, Value *text) {
    int64_t shape[2] = {dim_product(g->x, text->rank - 1, text->dims), text_width(text)};
    return g_reshape(g, text, 2, shape);
}

const Expr *text_byte(Builder *b, Value *text, const Expr *const *at, const Expr *w) {
    Exprs *x = b->x;
    const Expr *index[MAX_RANK];
    for (int i = 0; i < text->rank - 1; i++) index[i] = at[i];
    index[text->rank - 1] = w;
    const Expr *byte = ex_cast(x, DT_i32, build_load(b, text, index));
    const Expr *inside = ex_lt(x, w, ex_i(x, text_width(text)));
    return ex_select(x, inside, byte, ex_i(x, 0));
}

/* Coordinates 0 .. rank-1. */
static void own_place(Exprs *x, int rank, const Expr **at) {
    for (int i = 0; i < rank; i++) at[i] = ex_var(x, i);
}

const Expr *text_own_byte(Builder *b, Value *text, const Expr *w) {
    const Expr *at[MAX_RANK];
    own_place(b->x, text->rank - 1, at);
    return text_byte(b, text, at, w);
}

Value *text_lengths(Graph *g, Value *text) {
    Exprs *x = g->x;
    Builder b = build(g, text->rank - 1, text->dims);
    const Expr *byte = text_own_byte(&b, text, build_red(&b, text_width(text)));
    const Expr *is_zero = ex_bin(x, EX_eq, byte, ex_i(x, 0));
    return build_reduce(&b, DT_i32, COMBINE_sum, ex_select(x, is_zero, ex_i(x, 0), ex_i(x, 1)),
                        NULL);
}

static Value *widen(Graph *g, Value *text, int64_t width) {
    if (text_width(text) == width) return text;
    int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
    after[text->rank - 1] = width - text_width(text);
    return g_pad(g, text, before, after, (Scalar){.i = 0});
}

bool text_same_width(Graph *g, int n, Value **text) {
    int64_t width = 0;
    for (int i = 0; i < n; i++) {
        if (!shape_equal(text[0]->rank - 1, text[0]->dims, text[i]->rank - 1, text[i]->dims))
            return false;
        if (text_width(text[i]) > width) width = text_width(text[i]);
    }
    for (int i = 0; i < n; i++) text[i] = widen(g, text[i], width);
    return true;
}

Value *text_join(Graph *g, Value *a, Value *b) {
    int64_t width = text_width(a) > text_width(b) ? text_width(a) : text_width(b);
    Value *rows[2] = {widen(g, a, width), widen(g, b, width)};
    return g_concat(g, 2, rows, 0);
}

Value *text_find(Graph *g, Value *text, Value *table) {
    Exprs *x = g->x;
    int rank = text->rank - 1;
    int64_t shape[MAX_RANK], width = text_width(text);
    const Expr *at[MAX_RANK];
    for (int i = 0; i < rank; i++) shape[i] = text->dims[i];
    shape[rank] = table->dims[0];
    if (text_width(table) > width) width = text_width(table);
    own_place(x, rank + 1, at);
    Builder b = build(g, rank + 1, shape);
    const Expr *w = build_red(&b, width);
    const Expr *same =
        ex_bin(x, EX_eq, text_byte(&b, text, at, w), text_byte(&b, table, &at[rank], w));
    Value *equal =
        build_reduce(&b, DT_i32, COMBINE_min, ex_select(x, same, ex_i(x, 1), ex_i(x, 0)), NULL);
    b = build(g, rank, shape);
    at[rank] = build_red(&b, shape[rank]);
    const Expr *hit = ex_bin(x, EX_eq, build_load(&b, equal, at), ex_i(x, 1));
    return build_reduce(&b, DT_i32, COMBINE_max, ex_select(x, hit, at[rank], ex_i(x, -1)), NULL);
}

Value *text_pick(Graph *g, Value *table, Value *numbers) {
    Exprs *x = g->x;
    int rank = numbers->rank;
    int64_t shape[MAX_RANK];
    const Expr *at[MAX_RANK], *row[2];
    for (int i = 0; i < rank; i++) shape[i] = numbers->dims[i];
    shape[rank] = text_width(table);
    own_place(x, rank, at);
    Builder b = build(g, rank + 1, shape);
    row[0] = ex_cast(x, DT_i32, build_load(&b, numbers, at));
    row[1] = ex_var(x, rank);
    return build_map(&b, DT_u8, build_load(&b, table, row));
}

/* --- movement --------------------------------------------------------------------------------- */

/* The strings that a node is given, numbered through: 0 is the empty string (what padding gives),
 * then come those of the first input that has strings, and so on. */
#define MAX_POOL ((1 << 24) - 1) /* whole numbers that f32 has */
typedef struct Pool {
    int n;
    Value *text[64]; /* [count, width] */
    int64_t start[65];
} Pool;

/* Numbers start, start + 1 ... in a shape. They are f32, which no operator takes for indices or
 * shapes: strings in such a place are refused by it. */
static Value *number_through(Graph *g, int rank, const int64_t *shape, int64_t start) {
    Exprs *x = g->x;
    Builder b = build(g, rank, shape);
    const Expr *e = ex_i(x, 0);
    for (int i = 0; i < rank; i++) e = ex_add(x, ex_mul(x, e, ex_i(x, shape[i])), ex_var(x, i));
    return build_map(&b, DT_f32, ex_cast(x, DT_f32, ex_add(x, e, ex_i(x, start))));
}

/* The strings of the pool by their numbers. */
static Value *gather_rows(Node *n, const Pool *pool, Value *numbers) {
    Exprs *x = n->x;
    int rank = numbers->rank;
    int64_t shape[MAX_RANK] = {0}, width = 1;
    const Expr *at[MAX_RANK];
    for (int k = 0; k < pool->n; k++)
        if (text_width(pool->text[k]) > width) width = text_width(pool->text[k]);
    for (int i = 0; i < rank; i++) shape[i] = numbers->dims[i];
    shape[rank] = width;
    own_place(x, rank, at);
    if (!node_shape_ok(n, rank + 1, shape)) return NULL;
    Builder b = build(n->g, rank + 1, shape);
    const Expr *number = ex_cast(x, DT_i32, build_load(&b, numbers, at)), *byte = ex_i(x, 0);
    for (int k = 0; k < pool->n; k++) {
        int64_t count = pool->text[k]->dims[0];
        if (!count) continue;
        const Expr *row = index_clamp(x, ex_sub(x, number, ex_i(x, pool->start[k])), count);
        const Expr *own = text_byte(&b, pool->text[k], &row, ex_var(x, rank));
        byte = ex_select(x, ex_le(x, ex_i(x, pool->start[k]), number), own, byte);
    }
    return build_map(&b, DT_u8, byte);
}

void import_text_move(Node *n) {
    Graph *g = n->g;
    const Import *im = n->im;
    Pool pool = {.start = {1}};
    if (attr_choice(n, "reduction", 0, "none add mul max min") > 0)
        unsupported(n, "a reduction of strings");
    if (n->failed) return;
    for (int i = 0; i < n->n_in && !n->failed; i++) {
        if (n->in[i] && n->in[i]->dt == DT_f32)
            invalid(n, E2006, "input %d is of type f32, others are strings", i);
        if (!n->entity[i] || n->entity[i]->kind != ENTITY_text) continue;
        Value *text = n->entity[i]->tensor;
        Value *rows = text_rows(g, text);
        if (pool.n == 64 || pool.start[pool.n] + rows->shape[0] > MAX_POOL) {
            unsupported(n, "more than 64 inputs, or %d elements, of strings", MAX_POOL);
            return;
        }
        n->in[i] = number_through(g, text->rank - 1, text->dims, pool.start[pool.n]);
        n->entity[i] = entity_tensor(n->im, n->in[i]);
        pool.text[pool.n] = rows;
        pool.start[pool.n + 1] = pool.start[pool.n] + rows->shape[0];
        pool.n++;
    }
    const OpRow *row = check_op_row(&im->ops, n->domain, n->op, n->version);
    if (!row || n->failed) return;
    n->varying = row->varying;
    for (int i = 0; i < n->n_in && !row->varying; i++)
        if (n->in[i] && dims_vary(n->in[i]->rank, n->in[i]->dims)) {
            unsupported(n, "input %d has dimensions that vary, which are not supported here", i);
            return;
        }
    n->row = row->elementwise;
    row->fn(n);
    for (int i = 0; i < MAX_SET_OUTPUTS || i < n->n_out; i++) {
        Value *numbers = n->out[i];
        if (n->failed || !numbers || numbers->dt != DT_f32) continue;
        n->out[i] = NULL;
        node_set_text(n, i, gather_rows(n, &pool, numbers));
    }
}
