/* Elementwise operators: those of elementwise.def by their formulas, and the few that need more. */
#include "compiler/onnx/elementwise.h"
#include "compiler/onnx/text.h"
#include "compiler/onnx/text_number.h"

#include <stdlib.h>
#include <string.h>

const Elementwise elementwise_rows[] = {
#define ELEMENTWISE(name, since, inputs, types, attrs, formula)                                    \
    {#name, since, inputs, types, attrs, formula},
#include "compiler/onnx/elementwise.def"
    {0}};

/* --- formulas --------------------------------------------------------------------------------- */

Value *node_formula(Node *n, const char *formula, int count, Value *const *v) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    Graph *g = n->g;
    Exprs *x = n->x;
    int rank = 0;
    int64_t shape[MAX_RANK] = {0};
    for (int i = 0; i < count; i++) {
        int64_t before[MAX_RANK];
        memcpy(before, shape, sizeof before);
        if (!shape_broadcast(n->x, rank, before, v[i]->rank, v[i]->dims, &rank, shape)) {
            invalid(n, E2005, "input shapes %s and %s do not broadcast",
                    shape_text(g->arena, rank, before),
                    shape_text(g->arena, v[i]->rank, v[i]->dims));
            return NULL;
        }
    }
    Builder b = build(g, rank, shape);
    const Expr *operand[8];
    DType narrow = DT_none;
    for (int i = 0; i < count; i++) {
        operand[i] = build_in(&b, v[i]);
        if (!dt_is_float(v[i]->dt) || !dt_is_narrow(v[i]->dt)) continue;
        narrow = v[i]->dt;
        operand[i] = ex_cast(x, dt_reg(narrow), operand[i]);
    }
    const char *error = "";
    const Expr *e = ex_formula(x, formula, count, names, operand, &error);
    if (!e) {
        invalid(n, E2006, "the inputs' element types do not fit: %s", error);
        return NULL;
    }
    DType dt = (DType)e->dt;
    if (narrow != DT_none && dt == dt_reg(narrow)) dt = narrow;
    return build_map(&b, dt, e);
}

/* Takes one word of `attrs` off *text: "name", its separator and "value". False at the end. */
static bool next_attr(Arena *arena, const char **text, const char **name, char *separator,
                      const char **value) {
    const char *p = *text + strspn(*text, " ");
    if (!*p) return false;
    size_t length = strcspn(p, "=:?"), rest = strcspn(p + length, " ");
    *name = arena_strndup(arena, p, length);
    *separator = p[length];
    *value = arena_strndup(arena, p + length + 1, rest - 1);
    *text = p + length + rest;
    return true;
}

static bool row_takes(const Elementwise *row, DType dt) {
    char kind = dt_is_float(dt)          ? 'f'
                : dt_kind(dt) == DK_sint ? 's'
                : dt_kind(dt) == DK_uint ? 'u'
                : dt_kind(dt) == DK_bool ? 'b'
                                         : 0;
    return kind && (row->types[0] == '*' || strchr(row->types, kind));
}

/* True if the node's attributes are as the row's conditions want them. */
static bool row_applies(Node *n, const Elementwise *row) {
    const char *attrs = row->attrs, *name, *value;
    char separator;
    while (next_attr(n->g->arena, &attrs, &name, &separator, &value)) {
        bool has = attr_has(n, name);
        if (separator == '=' || (separator == '?' && !has)) continue;
        if (!has) return false;
        bool is_number = strspn(value, "0123456789") == strlen(value);
        if (is_number ? attr_int(n, name, 0) != strtol(value, NULL, 10)
                      : strcmp(attr_str(n, name, ""), value) != 0)
            return false;
    }
    return true;
}

/* Reports that no row of the operator is for the node's attributes: what those are for. */
static void refuse_attrs(Node *n) {
    Text t = text_new(n->g->arena);
    for (const Elementwise *row = elementwise_rows; row->name; row++) {
        if (row->since != n->row->since || strcmp(row->name, n->row->name) != 0) continue;
        const char *attrs = row->attrs, *name, *value;
        char separator;
        while (next_attr(n->g->arena, &attrs, &name, &separator, &value))
            text_addf(&t, "%s'%s' %s", t.length ? " or " : "", name, value);
    }
    invalid(n, E2004, "the attributes fit no form of the operator; it has %s", text_get(&t));
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The row's formula with the attributes' values in place of their names. */
static const char *fill_formula(Node *n, const Elementwise *row) {
    Arena *arena = n->g->arena;
    Text t = text_new(arena);
    for (const char *p = row->formula; *p;) {
        size_t length = 0;
        while (is_name_char(p[length])) length++;
        const char *attrs = row->attrs, *name, *value, *put = NULL;
        char separator;
        bool word = length && (*p < '0' || *p > '9');
        while (word && !put && next_attr(arena, &attrs, &name, &separator, &value)) {
            if (separator != '=' || strlen(name) != length || strncmp(name, p, length) != 0)
                continue;
            if (strchr(value, '.'))
                put = arena_printf(arena, "(%.17g)", attr_float(n, name, strtod(value, NULL)));
            else
                put = arena_printf(arena, "(%lld)",
                                   (long long)attr_int(n, name, strtoll(value, NULL, 10)));
        }
        if (put)
            text_add(&t, put);
        else
            text_addn(&t, p, length ? length : 1);
        p += length ? length : 1;
    }
    return text_get(&t);
}

/* Before opset 7, `b` broadcast only where asked to, its dimensions beginning at `axis` of `a`. */
static Value *legacy_broadcast(Node *n, const Value *a, Value *b) {
    if (n->version >= 7 || !attr_int(n, "broadcast", 0) || !attr_has(n, "axis")) return b;
    int axis = node_axis(n, attr_int(n, "axis", 0), a->rank);
    if (axis < 0) return b;
    int after = a->rank - axis - b->rank;
    if (after <= 0) return b;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < b->rank; i++) shape[i] = b->dims[i];
    for (int i = 0; i < after; i++) shape[b->rank + i] = 1;
    return g_reshape(n->g, b, b->rank + after, shape);
}

void import_elementwise(Node *n) {
    int want = n->row->n_in, count = want < 0 ? n->n_in : want;
    Value **v = ARENA_ARRAY(n->g->arena, count + 1, Value *);
    if (count < 1) {
        node_need(n, 0);
        return;
    }
    for (int i = 0; i < count; i++)
        if (!(v[i] = node_need(n, i))) return;
    if (n->n_in > count) {
        invalid(n, E2007, "%d inputs, expected %d", n->n_in, count);
        return;
    }
    const Elementwise *row = elementwise_rows;
    bool type_fits = false;
    for (; row->name; row++) {
        if (row->since != n->row->since || strcmp(row->name, n->row->name) != 0) continue;
        if (!row_takes(row, v[0]->dt)) continue;
        type_fits = true;
        if (row_applies(n, row)) break;
    }
    if (!row->name && type_fits && !n->failed) refuse_attrs(n);
    if (!row->name && !type_fits)
        invalid(n, E2006, "the operator takes no elements of type %s", dt_name(v[0]->dt));
    if (n->failed) return;
    const char *formula = fill_formula(n, row);
    if (count == 2) v[1] = legacy_broadcast(n, v[0], v[1]);
    if (n->failed) return;
    if (want > 0) {
        n->out[0] = node_formula(n, formula, count, v);
        return;
    }
    Value *sum = v[0];
    for (int i = 1; i < count && sum; i++) {
        Value *pair[2] = {sum, v[i]};
        sum = node_formula(n, formula, 2, pair);
    }
    n->out[0] = sum;
}

void import_mean(Node *n) {
    Value *sum = node_need(n, 0);
    for (int i = 1; i < n->n_in && sum; i++) {
        Value *pair[2] = {sum, node_need(n, i)};
        sum = pair[1] ? node_formula(n, "a + b", 2, pair) : NULL;
    }
    if (!sum) return;
    const char *formula = arena_printf(n->g->arena, "a / %d", n->n_in);
    n->out[0] = node_formula(n, formula, 1, &sum);
}

/* --- types ------------------------------------------------------------------------------------ */

/* What lies beyond the largest value of an 8-bit float when it must not saturate: the bits of
 * infinity or NaN, from `limit` on (`past`: only above it). */
typedef struct Overflow {
    DType dt;
    double limit;
    bool past;
    int bits, sign;
} Overflow;

static const Overflow overflows[] = {
    {DT_f8e4m3fn, 464, true, 0x7f, 0x80},
    {DT_f8e4m3fnuz, 248, false, 0x80, 0},
    {DT_f8e5m2, 61440, false, 0x7c, 0x80},
    {DT_f8e5m2fnuz, 61440, false, 0x80, 0},
};

/* Cast to an 8-bit float without saturation. */
static Value *cast_unsaturated(Node *n, Value *v, const Overflow *o) {
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    DType wide = v->dt == DT_f64 ? DT_f64 : DT_f32;
    const Expr *e = ex_cast(x, wide, build_in(&b, v)), *size = ex_un(x, EX_abs, e);
    const Expr *limit = ex_num(x, wide, o->limit);
    const Expr *over = o->past ? ex_lt(x, limit, size) : ex_le(x, limit, size);
    const Expr *negative = ex_lt(x, e, ex_num(x, wide, 0));
    const Expr *beyond =
        ex_select(x, negative, ex_int(x, DT_u8, o->bits | o->sign), ex_int(x, DT_u8, o->bits));
    const Expr *code = ex_select(x, over, beyond, ex_bits(x, DT_u8, ex_cast(x, o->dt, e)));
    return build_map(&b, o->dt, ex_bits(x, o->dt, code));
}

/* Rounding to f8e8m0. */
typedef enum Rounding { ROUND_up, ROUND_down, ROUND_nearest } Rounding;

/* Cast to f8e8m0 (a power of two): from the bits of f32. */
static Value *cast_e8m0(Node *n, Value *v, Rounding round, bool saturate) {
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *e = ex_un(x, EX_abs, ex_cast(x, DT_f32, build_in(&b, v)));
    const Expr *bits = ex_bits(x, DT_u32, e);
    const Expr *exponent = ex_bin(x, EX_shr, bits, ex_int(x, DT_u32, 23));
    const Expr *fraction = ex_bin(x, EX_band, bits, ex_int(x, DT_u32, 0x7fffff));
    const Expr *zero = ex_int(x, DT_u32, 0), *one = ex_int(x, DT_u32, 1);
    const Expr *up = ex_int(x, DT_bool, 0);
    if (round == ROUND_up)
        up = ex_lt(x, zero, fraction);
    else if (round == ROUND_nearest)
        up = ex_le(x, ex_int(x, DT_u32, 0x400000), fraction);
    const Expr *code = ex_add(x, exponent, ex_select(x, up, one, zero));
    const Expr *is_zero = ex_bin(x, EX_eq, e, ex_num(x, DT_f32, 0));
    const Expr *top = ex_int(x, DT_u32, saturate ? 254 : 255);
    code = ex_select(x, ex_lt(x, ex_int(x, DT_u32, 254), code), top, code);
    if (!saturate) code = ex_select(x, is_zero, ex_int(x, DT_u32, 255), code);
    code = ex_select(x, ex_un(x, EX_isnan, e), ex_int(x, DT_u32, 255), code);
    return build_map(&b, DT_f8e8m0, ex_bits(x, DT_f8e8m0, ex_cast(x, DT_u8, code)));
}

static void cast_to(Node *n, Value *v, DType dt) {
    bool saturate = attr_int(n, "saturate", 1) != 0;
    int round = attr_choice(n, "round_mode", ROUND_up, "up down nearest");
    if (n->failed) return;
    if (dt == DT_f8e8m0 && dt_is_float(v->dt) && v->dt != dt) {
        n->out[0] = cast_e8m0(n, v, (Rounding)round, saturate);
        return;
    }
    for (size_t i = 0; i < sizeof overflows / sizeof *overflows && !saturate; i++)
        if (overflows[i].dt == dt && v->dt != dt) {
            n->out[0] = cast_unsaturated(n, v, &overflows[i]);
            return;
        }
    n->out[0] = g_cast(n->g, v, dt);
}

/* The type to cast to; strings, too. */
static DType target_dtype(Node *n, int64_t onnx) {
    return onnx == dt_onnx(DT_str) ? DT_str : node_dtype(n, onnx);
}

/* Before opset 6 the attribute `to` was the type's name. */
static DType named_dtype(Node *n) {
    static const char *const names[] = {"FLOAT",  "UINT8",  "INT8",   "UINT16", "INT16",
                                        "INT32",  "INT64",  "STRING", "BOOL",   "FLOAT16",
                                        "DOUBLE", "UINT32", "UINT64"};
    const char *to = attr_str(n, "to", "");
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(names[i], to)) return target_dtype(n, i + 1);
    if (!n->failed) invalid(n, E2004, "attribute 'to' is '%s', which is no element type", to);
    return DT_none;
}

static void cast_node(Node *n, DType dt) {
    if (dt == DT_none || n->failed) return;
    bool text = n->n_in && n->entity[0] && n->entity[0]->kind == ENTITY_text;
    Value *v = text ? node_text(n, 0) : node_need(n, 0);
    if (!v) return;
    if (text && dt == DT_str)
        n->out_entity[0] = n->entity[0];
    else if (text)
        cast_from_text(n, v, dt);
    else if (dt == DT_str)
        cast_to_text(n, v);
    else
        cast_to(n, v, dt);
}

void import_cast(Node *n) {
    cast_node(n, n->version < 6 ? named_dtype(n) : target_dtype(n, attr_int(n, "to", 0)));
}

void import_cast_like(Node *n) {
    bool text = n->n_in > 1 && n->entity[1] && n->entity[1]->kind == ENTITY_text;
    Value *like = text ? NULL : node_need(n, 1);
    if (text || like) cast_node(n, text ? DT_str : like->dt);
}

void import_bitcast(Node *n) {
    Value *v = node_need(n, 0);
    DType dt = node_dtype(n, attr_int(n, "to", 0));
    if (!v || dt == DT_none) return;
    if (dt_bits(v->dt) != dt_bits(dt)) {
        /* bool is stored in a byte */
        bool byte = dt_store(v->dt) == 1 && dt_store(dt) == 1 &&
                    (v->dt == DT_bool || dt == DT_bool) && dt_bits(v->dt) + dt_bits(dt) == 9;
        if (!byte) {
            unsupported(n, "%s and %s have different widths", dt_name(v->dt), dt_name(dt));
            return;
        }
        n->out[0] = g_cast(n->g, v, dt);
        return;
    }
    Builder b = build(n->g, v->rank, v->dims);
    n->out[0] = build_map(&b, dt, ex_bits(n->x, dt, build_in(&b, v)));
}

/* --- the others ------------------------------------------------------------------------------- */

void import_identity(Node *n) {
    if (n->n_in && n->entity[0] && n->entity[0]->kind != ENTITY_tensor)
        n->out_entity[0] = n->entity[0];
    else
        n->out[0] = node_need(n, 0);
}

/* Limits are attributes before opset 11, then optional inputs. */
void import_clip(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    Value *low = node_in(n, 1), *high = node_in(n, 2);
    if (n->version < 11) {
        if (attr_has(n, "min")) low = g_scalar(n->g, v->dt, attr_float(n, "min", 0));
        if (attr_has(n, "max")) high = g_scalar(n->g, v->dt, attr_float(n, "max", 0));
    }
    Value *lower[2] = {v, low};
    if (low) v = node_formula(n, "max(a, b)", 2, lower);
    Value *upper[2] = {v, high};
    if (v && high) v = node_formula(n, "min(a, b)", 2, upper);
    n->out[0] = v;
}

/* Integers go through f64, and what it gives is cut off. */
void import_shrink(Node *n) {
    Value *v = node_need(n, 0);
    if (!v || n->failed) return;
    double lambd = attr_float(n, "lambd", 0.5), bias = attr_float(n, "bias", 0);
    const char *formula = arena_printf(
        n->g->arena, "select(a < (%.9g), a + (%.9g), select(a > (%.9g), a - (%.9g), 0))", -lambd,
        bias, lambd, bias);
    Value *real = dt_is_float(v->dt) ? v : g_cast(n->g, v, DT_f64);
    Value *result = node_formula(n, formula, 1, &real);
    if (result) n->out[0] = g_cast(n->g, result, v->dt);
}

/* The result has the base's type. Small whole exponents, which are common, become products. */
void import_pow(Node *n) {
    Value *a = node_need(n, 0), *b = node_need(n, 1);
    if (!a || !b) return;
    b = legacy_broadcast(n, a, b);
    Value *v[2] = {a, b};
    if (value_is_const(b) && value_numel(b) == 1 && b->rank <= a->rank) {
        Scalar s = dt_cast(b->dt, DT_f64, dt_load(b->dt, b->data, 0));
        const char *product = s.f == 1 ? "a" : s.f == 2 ? "a * a" : s.f == 3 ? "a * a * a" : NULL;
        if (product) {
            n->out[0] = node_formula(n, product, 1, &a);
            return;
        }
    }
    bool floats = dt_is_float(a->dt);
    DType work = floats ? dt_reg(a->dt) : dt_bits(a->dt) < 32 ? DT_f32 : DT_f64;
    if (a->dt != work) v[0] = g_cast(n->g, a, work);
    if (b->dt != work) v[1] = g_cast(n->g, b, work);
    Value *result = node_formula(n, "pow(a, b)", 2, v);
    if (!result) return;
    n->out[0] = g_cast(n->g, floats ? result : node_formula(n, "round(a)", 1, &result), a->dt);
}

/* Before opset 7 a slope of rank 1 goes with the channels, axis 1. */
void import_prelu(Node *n) {
    Value *v[2] = {node_need(n, 0), node_need(n, 1)};
    if (!v[0] || !v[1]) return;
    if (n->version < 7 && v[1]->rank == 1 && v[0]->rank > 2 && v[1]->dims[0] > 1) {
        int64_t shape[MAX_RANK] = {v[1]->dims[0]};
        for (int i = 1; i < v[0]->rank - 1; i++) shape[i] = 1;
        v[1] = g_reshape(n->g, v[1], v[0]->rank - 1, shape);
    }
    n->out[0] = node_formula(n, "select(a < 0, a * b, a)", 2, v);
}

/* At inference: the input, and a mask of ones. */
void import_dropout(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    n->out[0] = v;
    Builder b = build(n->g, v->rank, v->dims);
    DType mask = n->version >= 10 ? DT_bool : v->dt;
    if (node_wants(n, 1)) n->out[1] = build_map(&b, mask, ex_int(n->x, mask, 1));
}
