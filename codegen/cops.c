/* What each operator looks like: types, literals, memory, casts, arithmetic; see cprint.h. */
#include "codegen/cexpr.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Piece atom(const char *text) {
    return (Piece){text, P_atom};
}

#define TEXT(...) arena_printf(p->scratch, __VA_ARGS__)

/* --- types and literals ----------------------------------------------------------------------- */

static void note_type(Unit *unit, DType dt) {
    if (dt == DT_bool) unit->needs |= NEEDS_bool;
    if (dt == DT_i64 || dt == DT_u64) unit->needs |= NEEDS_i64;
    if (dt == DT_f64) unit->needs |= NEEDS_f64;
}

static const char *reg_type(Unit *unit, DType dt) {
    DType reg = dt_reg(dt);
    note_type(unit, reg);
    return unit->dialect->reg[reg];
}

const char *type_of(Printer *p, DType dt) {
    return reg_type(p->unit, dt);
}

const char *mem_type(Unit *unit, DType dt) {
    size_t bytes = dt_store(dt);
    if (bytes == 1) unit->needs |= NEEDS_8bit;
    if (bytes == 2) unit->needs |= NEEDS_16bit;
    if (dt != DT_bool) note_type(unit, dt);
    return unit->dialect->mem[dt];
}

int64_t buffer_elements(const Buffer *b) {
    return shape_numel(b->rank, b->shape);
}

bool is_narrow_array(const Printer *p, const Buffer *b) {
    return b->space != SPACE_param && !is_scalar_buffer(b) && p->d->wide[b->dt] &&
           dt_store(b->dt) <= 2;
}

bool held_wide(const Printer *p, const Buffer *b) {
    if (is_narrow_array(p, b)) return false;
    return b->space == SPACE_reg || (b->space == SPACE_shared && p->d->global_shared);
}

bool is_scalar_buffer(const Buffer *b) {
    return b->space == SPACE_reg && buffer_elements(b) == 1;
}

DType held_type(const Printer *p, int buffer) {
    const Buffer *b = p->k->buffers.items[buffer];
    bool vectorised = p->d->gcc_makes_vectors && !p->unit->vector_bytes && b->space == SPACE_reg;
    if (!vectorised || is_scalar_buffer(b) || p->compared[buffer]) return b->dt;
    return b->dt == DT_i32 ? DT_u32 : b->dt == DT_i64 ? DT_u64 : b->dt;
}

/* Prints so many digits; do they read back as the same value? */
static bool digits_suffice(char text[40], int digits, double value, bool single) {
    snprintf(text, 40, "%.*g", digits, value);
    return single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value;
}

/* The shortest decimal that reads back as the same value. Where as many digits as every value keeps
 * do not, fewer need not be tried. */
static const char *decimal(Arena *arena, double value, bool single) {
    char text[40];
    if (fabs(value) < 1e6 && value == floor(value)) return arena_printf(arena, "%.1f", value);
    int kept = single ? FLT_DIG : DBL_DIG;
    int digits = digits_suffice(text, kept, value, single) ? 1 : kept + 1;
    while (!digits_suffice(text, digits, value, single) && digits < 17) digits++;
    return arena_printf(arena, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

static const char *print_float(Unit *unit, DType dt, double value) {
    const Dialect *d = unit->dialect;
    bool wide = dt == DT_f64;
    if (isfinite(value))
        return arena_printf(unit->arena, "%s%s", decimal(unit->arena, value, !wide),
                            wide ? d->double_suffix : "f");
    const char *text = isnan(value) ? d->nan : d->infinity;
    if (d->helpers == IN_c) unit->needs |= NEEDS_math;
    if (wide)
        text = arena_printf(unit->arena, d->call_casts ? "%s(%s)" : "(%s)%s", d->reg[DT_f64], text);
    if (isnan(value) || value > 0) return text;
    return arena_printf(unit->arena, "-%s", text);
}

const char *print_number(Unit *unit, DType dt, Scalar value) {
    const Dialect *d = unit->dialect;
    Arena *arena = unit->arena;
    DType reg = dt_reg(dt);
    note_type(unit, reg);
    switch (reg) {
    case DT_bool:
        return value.i ? "true" : "false";
    case DT_u32:
        return arena_printf(arena, "%luu", (unsigned long)(uint32_t)value.i);
    case DT_i32:
        if (value.i == INT32_MIN) return "(-2147483647 - 1)";
        return arena_printf(arena, "%ld", (long)value.i);
    case DT_u64:
        if (!d->long_suffix)
            return arena_printf(arena, (uint64_t)value.i >> 32 ? "UINT64_C(%llu)" : "%lluu",
                                (unsigned long long)value.i);
        return arena_printf(arena, "%lluu%s", (unsigned long long)value.i, d->long_suffix);
    case DT_i64: {
        if (value.i == INT64_MIN)
            return arena_printf(arena, "(%s - 1)",
                                print_number(unit, DT_i64, (Scalar){.i = -INT64_MAX}));
        if (d->long_suffix)
            return arena_printf(arena, "%lld%s", (long long)value.i, d->long_suffix);
        if (value.i >= INT32_MIN && value.i <= INT32_MAX)
            return arena_printf(arena, "%lld", (long long)value.i);
        return arena_printf(arena, value.i < 0 ? "-INT64_C(%lld)" : "INT64_C(%lld)",
                            (long long)(value.i < 0 ? -value.i : value.i));
    }
    default:
        return print_float(unit, reg, value.f);
    }
}

static Piece literal(Printer *p, DType dt, Scalar value) {
    const char *text = print_number(p->unit, dt, value);
    return (Piece){text, text[0] == '-' ? P_unary : P_atom};
}

static const char *helper(Printer *p, const char *format, DType dt) {
    return unit_helper(p->unit, TEXT(format, dt_name(dt)));
}

static Piece call(Printer *p, const char *function, Piece a) {
    return atom(TEXT("%s(%s)", function, a.text));
}

static Piece call2(Printer *p, const char *function, Piece a, Piece b) {
    return atom(TEXT("%s(%s, %s)", function, a.text, b.text));
}

/* A conversion as the language spells it. */
Piece convert(Printer *p, const char *type, Piece a) {
    if (p->d->call_casts) return call(p, type, a);
    return (Piece){TEXT("(%s)%s", type, operand(p, a, P_unary)), P_unary};
}

static Piece infix(Printer *p, Piece a, const char *op, Piece b, int prec) {
    return (Piece){TEXT("%s %s %s", operand(p, a, prec), op, operand(p, b, prec + 1)), prec};
}

static Piece reg_cast(Printer *p, DType from, DType to, Piece a);

/* --- memory ----------------------------------------------------------------------------------- */

/* May the result of signed arithmetic be one that the type does not hold, in a language in which it
 * must not be? */
static bool may_wrap(Printer *p, const Expr *e) {
    int64_t lo, hi;
    if (dt_kind((DType)e->dt) != DK_sint || p->d->wraps) return false;
    return !exact_range(p, e, &lo, &hi) || (e->dt == DT_i32 && (lo < INT32_MIN || hi > INT32_MAX));
}

typedef struct IndexParts {
    const Expr *known, *other; /* sums of the terms; NULL: there are none */
    int64_t most;              /* of those that are known */
} IndexParts;

/* Sorts the terms of an index: those that are known not to be negative, and the others. */
static void sort_terms(Printer *p, const Expr *e, IndexParts *parts) {
    const Node *node = range_of(p, e);
    if (e->op == EX_add && !node->name) {
        for (int i = 0; i < 2; i++) sort_terms(p, e->arg[i], parts);
        return;
    }
    bool known = node->bounded && node->lo >= 0 && node->hi <= INT32_MAX - parts->most;
    const Expr **sum = known ? &parts->known : &parts->other;
    if (known) parts->most += node->hi;
    *sum = *sum ? ex_add(p->x, *sum, e) : e;
}

/* An index that is computed from what a tensor holds: its sum might wrap around, for all that the
 * ranges say. Yet one that passes the largest integer would come out negative, and no element lies
 * there: so what is known not to be negative is added as it is. C compilers then see that elements
 * of a row lie side by side, which a sum that may wrap hides. */
static const char *print_index(Printer *p, const Expr *index) {
    IndexParts parts = {.known = NULL};
    const bool sum = index->op == EX_add && index->dt == DT_i32 && !node_of(p, index)->name;
    if (sum && may_wrap(p, index)) sort_terms(p, index, &parts);
    if (!parts.known || !parts.other) return print_in_place(p, index).text;
    Piece other = print_in_place(p, parts.other);
    return infix(p, other, "+", print_in_place(p, parts.known), P_sum).text;
}

const char *print_place(Printer *p, int buffer, const Expr *index) {
    const char *name = p->buffer[buffer];
    return index ? TEXT("%s[%s]", name, print_index(p, index)) : name;
}

const char *print_address(Printer *p, int buffer, const Expr *index) {
    return TEXT("&%s[%s]", p->buffer[buffer], print_index(p, index));
}

typedef struct Index {
    const Kernel *kernel;
    bool condition; /* it, or part of it, is a condition as a number, or what a register holds */
} Index;

static void note_condition(void *user, const Expr *e) {
    Index *i = user;
    bool held = e->op == EX_load && i->kernel->buffers.items[e->k.i]->space == SPACE_reg;
    bool chosen = e->op == EX_select && ex_is_const(e->arg[1]) && ex_is_const(e->arg[2]);
    i->condition |= held || chosen || (e->op == EX_cast && e->arg[0]->dt == DT_bool);
}

/* An element that is read. GCC 12 takes -1 for 1 where it vectorizes table[condition], at -O2, too:
 * it does not where the table is volatile. */
static const char *print_element(Printer *p, const Expr *e) {
    const char *place = print_place(p, (int)e->k.i, e->n ? e->arg[0] : NULL);
    const Buffer *b = p->k->buffers.items[e->k.i];
    Index index = {.kernel = p->k};
    if (p->d->gcc_makes_vectors && e->n && b->space == SPACE_param)
        ex_visit(p->scratch, e->arg[0], note_condition, &index);
    if (!index.condition) return place;
    return TEXT("((const volatile %s *)%s)%s", mem_type(p->unit, b->dt), p->buffer[e->k.i],
                place + strlen(p->buffer[e->k.i]));
}

static bool coded_float(DType dt) {
    return dt_is_float(dt) && dt_is_narrow(dt);
}

/* The value of an element as it lies in memory. */
static Piece from_memory(Printer *p, DType dt, Piece raw) {
    const Dialect *d = p->d;
    if (dt == DT_bool && d->int_promotion) return infix(p, raw, "!=", atom("0"), P_equal);
    if (dt == DT_bool) return infix(p, convert(p, d->reg[DT_u32], raw), "!=", atom("0u"), P_equal);
    if (coded_float(dt)) {
        if (!d->int_promotion) raw = convert(p, d->reg[DT_u32], raw);
        return call(p, helper(p, "mlcc_%s_decode", dt), raw);
    }
    if (!dt_is_narrow(dt)) return raw;
    if (d->int_promotion && dt_kind(dt) == DK_sint) return raw;
    return convert(p, d->reg[dt_reg(dt)], raw);
}

const char *print_loaded(Printer *p, DType dt, const char *raw) {
    return from_memory(p, dt, atom(raw)).text;
}

static const char *to_memory(Printer *p, DType dt, Piece value) {
    const char *type = mem_type(p->unit, dt);
    if (dt == DT_bool && !p->d->int_promotion) {
        return TEXT("%s(%s)", type, convert(p, p->d->reg[DT_u32], value).text);
    }
    if (coded_float(dt)) value = call(p, helper(p, "mlcc_%s_encode", dt), value);
    return dt_is_narrow(dt) || dt == DT_bool ? convert(p, type, value).text : value.text;
}

/* A cast to the type that is stored rounds or wraps once, on its way to memory; NULL: nothing is
 * gained. */
static const char *print_stored_cast(Printer *p, DType dt, const Expr *e) {
    DType from = dt_reg((DType)e->arg[0]->dt);
    const char *type = mem_type(p->unit, dt);
    if (!coded_float(dt)) {
        if (dt_bits(dt) < 8 || !p->d->int_promotion || dt_is_float(from)) return NULL;
        return convert(p, type, print(p, e->arg[0])).text;
    }
    bool direct = dt == DT_f16 || dt == DT_bf16 || dt == DT_f8e8m0;
    const char *name = helper(p, direct ? "mlcc_%s_encode" : "mlcc_%s_cast", dt);
    Piece a = print(p, e->arg[0]);
    if (from == DT_f64)
        a = call(p, unit_helper(p->unit, "mlcc_f64_to_f32_odd"), a);
    else
        a = reg_cast(p, from, DT_f32, a);
    return convert(p, type, call(p, name, a)).text;
}

const char *print_stored(Printer *p, DType dt, const Expr *e) {
    const Node *node = node_of(p, e);
    bool copied = coded_float(dt) && e->op == EX_load && !node->name && (DType)e->dt == dt;
    if (copied && !held_wide(p, p->k->buffers.items[e->k.i])) return print_element(p, e);
    if (coded_float(dt) && ex_is_const(e)) { /* its code, at once */
        unsigned char byte = 0;
        uint16_t code = 0;
        dt_save(dt, dt_store(dt) == 1 ? (void *)&byte : (void *)&code, 0, e->k);
        if (dt_store(dt) == 1) code = byte;
        Piece text = atom(TEXT("0x%xu", (unsigned)code));
        return p->d->call_casts ? convert(p, mem_type(p->unit, dt), text).text : text.text;
    }
    if (e->op == EX_cast && (DType)e->dt == dt && !node->name && dt_is_narrow(dt)) {
        const char *cast = print_stored_cast(p, dt, e);
        if (cast) return cast;
    }
    const char *text = print_root(p, e);
    return to_memory(p, dt, (Piece){text, node->name ? P_atom : P_cond});
}

static Piece compose_load(Printer *p, const Expr *e) {
    const Buffer *b = p->k->buffers.items[e->k.i];
    Piece raw = atom(print_element(p, e));
    if (!held_wide(p, b)) return from_memory(p, b->dt, raw);
    return held_type(p, (int)e->k.i) == b->dt ? raw : convert(p, p->d->reg[b->dt], raw);
}

/* --- casts ------------------------------------------------------------------------------------ */

static Piece reg_cast(Printer *p, DType from, DType to, Piece a) {
    note_type(p->unit, to);
    if (from == to) return a;
    if (dt_is_float(from) && dt_is_int(to)) {
        const char *name = TEXT("mlcc_%s_to_%s", dt_name(from), dt_name(to));
        return call(p, unit_helper(p->unit, name), a);
    }
    if (to == DT_bool) {
        Scalar zero = {.i = 0};
        if (dt_is_float(from)) zero.f = 0;
        return infix(p, a, "!=", literal(p, from, zero), P_equal);
    }
    return convert(p, p->d->reg[to], a);
}

static Piece masked(Printer *p, Piece a, const char *mask) {
    return (Piece){TEXT("%s & %s", operand(p, a, P_unary), mask), P_bitand};
}

/* The low bits of an i32 or u32 (`from`) as a narrow integer in its register type. */
static Piece wrap_narrow(Printer *p, DType from, DType to, Piece a) {
    int bits = dt_bits(to);
    bool is_signed = dt_kind(to) == DK_sint;
    if (p->d->int_promotion && bits >= 8) {
        a = convert(p, mem_type(p->unit, to), a);
        return is_signed ? a : convert(p, p->d->reg[DT_u32], a);
    }
    const char *mask = TEXT("%luu", ((unsigned long)1 << bits) - 1);
    Piece low = masked(p, reg_cast(p, from, DT_u32, a), mask);
    if (!is_signed) return low;
    unsigned long sign = (unsigned long)1 << (bits - 1);
    Piece flipped = {TEXT("(%s) ^ %luu", low.text, sign), P_bitxor};
    return (Piece){
        TEXT("%s - %lu", operand(p, reg_cast(p, DT_u32, DT_i32, flipped), P_unary), sign), P_sum};
}

/* The integer nearest to a float that whole numbers bound, 0 between them: by a function, which
 * bounds the integer where the processor converts that way. */
static const char *rounded_within(Printer *p, const Expr *e) {
    if (p->d->helpers != IN_c || !ex_is_rounding(e)) return NULL;
    double low, high;
    const Expr *x = ex_bounded(e->arg[0]->arg[0], &low, &high);
    if (low > 0 || high < 0 || low != floor(low) || high != floor(high)) return NULL;
    return TEXT("%s(%s, %d, %d)", unit_helper(p->unit, "mlcc_round_within"), print(p, x).text,
                (int)low, (int)high);
}

static Piece compose_cast(Printer *p, const Expr *e) {
    const char *rounded = rounded_within(p, e);
    if (rounded) return atom(rounded);
    DType from = (DType)e->arg[0]->dt, to = (DType)e->dt, reg = dt_reg(to);
    Piece a = print(p, e->arg[0]);
    if (to == DT_bool || !dt_is_narrow(to)) {
        /* a small signed integer may still have its own C type */
        if (dt_reg(from) == reg && dt_is_narrow(from) && dt_kind(from) == DK_sint)
            return convert(p, p->d->reg[reg], a);
        return reg_cast(p, dt_reg(from), reg, a);
    }
    if (dt_is_float(to)) {
        if (dt_reg(from) == DT_f64) {
            a = call(p, unit_helper(p->unit, "mlcc_f64_to_f32_odd"), a);
        } else {
            a = reg_cast(p, dt_reg(from), DT_f32, a);
        }
        return call(p, helper(p, "mlcc_%s_round", to), a);
    }
    const Node *range = range_of(p, e->arg[0]);
    Node limits = {.lo = 0};
    type_range(&limits, to);
    DType middle = dt_reg(from);
    if (middle != DT_i32 && middle != DT_u32) {
        a = reg_cast(p, middle, reg, a);
        middle = reg;
    }
    if (!dt_is_float(from) && range->bounded && range->lo >= limits.lo && range->hi <= limits.hi)
        return reg_cast(p, middle, reg, a);
    return wrap_narrow(p, middle, to, a);
}

/* The stored bits of a value as u32 (at most 32 bits wide), not masked. */
static Piece raw_bits(Printer *p, DType dt, Piece a) {
    if (coded_float(dt)) return call(p, helper(p, "mlcc_%s_encode", dt), a);
    if (dt == DT_f32) return call(p, unit_helper(p->unit, "mlcc_f32_bits"), a);
    return reg_cast(p, dt_reg(dt), DT_u32, a);
}

static Piece compose_bits(Printer *p, const Expr *e) {
    DType from = (DType)e->arg[0]->dt, to = (DType)e->dt;
    Piece a = print(p, e->arg[0]);
    if (dt_bits(to) == 64) {
        if (from == DT_f64) a = call(p, unit_helper(p->unit, "mlcc_f64_bits"), a);
        if (to == DT_f64)
            return call(p, unit_helper(p->unit, "mlcc_bits_f64"), reg_cast(p, from, DT_u64, a));
        return reg_cast(p, from == DT_f64 ? DT_u64 : from, to, a);
    }
    a = raw_bits(p, from, a);
    if (to == DT_f32) return call(p, unit_helper(p->unit, "mlcc_bits_f32"), a);
    if (!dt_is_narrow(to)) return reg_cast(p, DT_u32, to, a);
    if (!coded_float(to)) return wrap_narrow(p, DT_u32, to, a);
    if (!coded_float(from) && dt_kind(from) != DK_uint) {
        const char *mask = TEXT("%luu", ((unsigned long)1 << dt_bits(to)) - 1);
        a = masked(p, a, mask);
    }
    return call(p, helper(p, "mlcc_%s_decode", to), a);
}

/* --- arithmetic ------------------------------------------------------------------------------- */

/* A function of the language or a helper, of one or two operands of type dt. */
const char *function_name(Printer *p, ExprOp op, DType dt) {
    const Dialect *d = p->d;
    const char *name = dt == DT_f64 ? d->fn64[op] : d->fn32[op];
    if (dt == DT_f32 && p->unit->vector_bytes && d->fn32_vector[op]) name = d->fn32_vector[op];
    if (!name && op == EX_exp_low) return function_name(p, EX_exp, dt);
    if (!name) return NULL;
    if (!strncmp(name, "mlcc_", 5)) return unit_helper(p->unit, name);
    p->unit->needs |= NEEDS_math;
    return name;
}

/* Is a function worth more than its parts? exp and erf of 16 lanes, 64 bytes, have rows of
 * lanes.def, which are fast. */
static bool has_wholes(const Printer *p) {
    return p->d->fn32_vector[EX_exp] && p->unit->vector_bytes && p->unit->vector_bytes <= 32;
}

const Expr *sigmoid_operand(const Printer *p, const Expr *e) {
    if (!has_wholes(p)) return NULL;
    if (e->op != EX_div || e->dt != DT_f32 || !ex_is_one(e->arg[0])) return NULL;
    const Expr *sum = e->arg[1];
    if (sum->op != EX_add || !ex_is_one(sum->arg[1]) || sum->arg[0]->op != EX_exp) return NULL;
    const Expr *power = sum->arg[0]->arg[0];
    return power->op == EX_neg ? power->arg[0] : NULL;
}

/* x where e is erf(x / sqrt(2)) + 1. */
static const Expr *normal_operand(const Expr *e) {
    if (e->op != EX_add || !ex_is_one(e->arg[1]) || e->arg[0]->op != EX_erf) return NULL;
    const Expr *of = e->arg[0]->arg[0];
    if (of->op != EX_mul || !ex_is_const(of->arg[1])) return NULL;
    return fabs(of->arg[1]->k.f - 0.70710678) < 1e-7 ? of->arg[0] : NULL;
}

/* The factors of a product, in any order. */
typedef struct Factors {
    int n;
    const Expr *of[3];
} Factors;

static bool add_factors(Factors *f, const Expr *e) {
    if (e->op == EX_mul) return add_factors(f, e->arg[0]) && add_factors(f, e->arg[1]);
    if (f->n == 3) return false;
    f->of[f->n++] = e;
    return true;
}

const Expr *gelu_operand(const Printer *p, const Expr *e) {
    Factors f = {.n = 0};
    if (!has_wholes(p) || e->op != EX_mul || e->dt != DT_f32 || !add_factors(&f, e) || f.n != 3)
        return NULL;
    for (int i = 0; i < 3; i++) {
        const Expr *x = normal_operand(f.of[i]), *one = f.of[(i + 1) % 3],
                   *other = f.of[(i + 2) % 3];
        if (other == x) other = one, one = x;
        if (x && one == x && ex_is_const(other) && other->k.f == 0.5) return x;
    }
    return NULL;
}

static Piece function(Printer *p, const Expr *e, DType dt, const char *const *args) {
    const Dialect *d = p->d;
    const char *name = function_name(p, (ExprOp)e->op, dt);
    bool by_f32 = !name && dt == DT_f64 && d->f64_by_f32;
    if (by_f32) name = function_name(p, (ExprOp)e->op, DT_f32);
    if (!name) name = unit_helper(p->unit, "mlcc_unknown");
    Text t = text_new(p->scratch);
    text_addf(&t, "%s(", name);
    for (int i = 0; i < e->n; i++)
        text_addf(&t, by_f32 ? "%s%s(%s)" : "%s%.0s%s", i ? ", " : "", d->reg[DT_f32], args[i]);
    text_add(&t, ")");
    return atom(by_f32 && e->dt == DT_f64 ? TEXT("%s(%s)", d->reg[DT_f64], text_get(&t))
                                          : text_get(&t));
}

/* --- sums of integers --- */

enum { MAX_TERMS = 24 };

typedef struct Sum {
    int n;
    struct {
        const Expr *e; /* without its sign */
        bool minus;
        int64_t weight; /* what it is sorted by: its factor */
    } term[MAX_TERMS];
    int64_t most; /* bound of the absolute value of every partial sum */
} Sum;

static bool add_terms(Printer *p, Sum *sum, const Expr *e, bool minus, bool top) {
    const Node *node = node_of(p, e);
    bool inner = top || (!node->name && node->uses < 2);
    if (inner && (e->op == EX_add || e->op == EX_sub))
        return add_terms(p, sum, e->arg[0], minus, false) &&
               add_terms(p, sum, e->arg[1], minus != (e->op == EX_sub), false);
    const Node *range = range_of(p, e);
    if (sum->n == MAX_TERMS || !range->bounded) return false;
    sum->most += -range->lo > range->hi ? -range->lo : range->hi;
    bool negative = ex_is_const(e) && e->k.i < 0;
    if (negative) {
        e = ex_int(p->x, (DType)e->dt, -e->k.i);
        minus = !minus;
    }
    if (e->op == EX_mul && !node->name && ex_is_const(e->arg[1]) && e->arg[1]->k.i < 0 &&
        e->arg[1]->k.i > INT32_MIN) {
        e = ex_mul(p->x, e->arg[0], ex_int(p->x, (DType)e->dt, -e->arg[1]->k.i));
        minus = !minus;
    }
    int64_t weight = e->op == EX_mul && ex_is_const(e->arg[1]) ? e->arg[1]->k.i : 1;
    if (ex_is_const(e)) weight = INT64_MIN;
    int at = sum->n++;
    for (; at > 0 && sum->term[at - 1].weight < weight; at--) sum->term[at] = sum->term[at - 1];
    sum->term[at].e = e;
    sum->term[at].minus = minus;
    sum->term[at].weight = weight;
    return sum->most <= INT32_MAX;
}

/* A sum that cannot overflow in any order, as a * 8 + b * 4 + c - 3; false if that is not known. */
static bool compose_terms(Printer *p, const Expr *e, Piece *result) {
    Sum sum = {.n = 0};
    if (dt_kind((DType)e->dt) != DK_sint || !add_terms(p, &sum, e, false, true)) return false;
    if (sum.term[0].minus) { /* begin with a positive term, if there is one */
        for (int i = 1; i < sum.n; i++)
            if (!sum.term[i].minus) {
                Sum was = sum;
                sum.term[0] = was.term[i];
                for (int j = 0; j < i; j++) sum.term[j + 1] = was.term[j];
                break;
            }
    }
    Text t = text_new(p->scratch);
    for (int i = 0; i < sum.n; i++) {
        bool minus = sum.term[i].minus;
        Piece piece = print(p, sum.term[i].e);
        text_add(&t, i == 0 ? minus ? "-" : "" : minus ? " - " : " + ");
        text_add(&t, operand(p, piece, i == 0 && minus ? P_unary : P_product));
    }
    *result = (Piece){text_get(&t), P_sum};
    return true;
}

/* Computes in the unsigned type of the same width, where overflow wraps. */
static Piece wrapped(Printer *p, DType dt, Piece a, const char *op, Piece b, int prec,
                     const Expr *right) {
    DType u = dt == DT_i64 ? DT_u64 : DT_u32;
    a = reg_cast(p, dt, u, a);
    b = ex_is_const(right) ? literal(p, u, right->k) : reg_cast(p, dt, u, b);
    return reg_cast(p, u, dt, infix(p, a, op, b, prec));
}

static Piece compose_sum(Printer *p, const Expr *e) {
    DType dt = (DType)e->dt;
    Piece sum;
    if (e->op != EX_mul && compose_terms(p, e, &sum)) return sum;
    const Expr *x = gelu_operand(p, e);
    if (x) return call(p, unit_helper(p->unit, "mlcc_gelu_f32"), print(p, x));
    Piece a = print(p, e->arg[0]), b = print(p, e->arg[1]);
    const char *op = ex_infix((ExprOp)e->op);
    int prec = e->op == EX_mul ? P_product : P_sum;
    if (may_wrap(p, e)) return wrapped(p, dt, a, op, b, prec, e->arg[1]);
    if (e->op == EX_add && b.text[0] == '-' && ex_is_const(e->arg[1]))
        return (Piece){TEXT("%s - %s", operand(p, a, prec), b.text + 1), prec};
    return infix(p, a, op, b, prec);
}

static Piece compose_div(Printer *p, const Expr *e) {
    DType dt = (DType)e->dt;
    if (dt_is_float(dt)) {
        const Expr *x = sigmoid_operand(p, e);
        if (x) return call(p, unit_helper(p->unit, "mlcc_sigmoid_f32"), print(p, x));
        Piece a = print(p, e->arg[0]), b = print(p, e->arg[1]);
        if (e->op == EX_div) return infix(p, a, "/", b, P_product);
        const char *const args[] = {a.text, b.text};
        return function(p, e, dt, args);
    }
    const Node *ra = range_of(p, e->arg[0]), *rb = range_of(p, e->arg[1]);
    bool constant = ex_is_const(e->arg[1]);
    bool positive = (rb->bounded && rb->lo > 0) || (constant && e->arg[1]->k.i > 0);
    bool plain = positive || (constant && e->arg[1]->k.i < -1 && dt_kind(dt) == DK_sint);
    if (dt_kind(dt) == DK_uint) plain = positive || (constant && e->arg[1]->k.i != 0);
    /* GLSL leaves the remainder of negative numbers open */
    if (p->d->wraps && e->op == EX_rem && dt_kind(dt) == DK_sint)
        plain = positive && ra->bounded && ra->lo >= 0;
    p->in_place &= plain; /* functions take values */
    Piece a = print(p, e->arg[0]), b = print(p, e->arg[1]);
    if (plain) return infix(p, a, ex_infix((ExprOp)e->op), b, P_product);
    return call2(p, helper(p, e->op == EX_div ? "mlcc_div_%s" : "mlcc_rem_%s", dt), a, b);
}

static bool repeatable(Printer *p, const Expr *e, Piece a) {
    return node_of(p, e)->name || e->n == 0 || strlen(a.text) < 16;
}

/* In the type of its own, which name_expr's text may not have. */
static Piece named(Printer *p, const Expr *e) {
    name_expr(p, e);
    return print(p, e);
}

static Piece compose_min_max(Printer *p, const Expr *e) {
    DType dt = (DType)e->dt;
    bool is_min = e->op == EX_min;
    const char *name = is_min ? "mlcc_min_%s" : "mlcc_max_%s";
    bool is_float = dt_is_float(dt), constant = ex_is_const(e->arg[1]);
    if (!is_float && dt != DT_bool && p->d->fn32[e->op])
        return call2(p, p->d->fn32[e->op], print(p, e->arg[0]), print(p, e->arg[1]));
    if (is_float && (!p->d->select_min_max || !constant || isnan(e->arg[1]->k.f)))
        return call2(p, helper(p, name, dt), print(p, e->arg[0]), print(p, e->arg[1]));
    Piece a = print(p, e->arg[0]), b = print(p, e->arg[1]);
    if (!p->inline_only && !repeatable(p, e->arg[0], a)) a = named(p, e->arg[0]);
    if (!p->inline_only && !repeatable(p, e->arg[1], b)) b = named(p, e->arg[1]);
    if (!repeatable(p, e->arg[0], a) || !repeatable(p, e->arg[1], b)) {
        p->in_place = false;
        return call2(p, helper(p, name, dt), print(p, e->arg[0]), print(p, e->arg[1]));
    }
    /* The comparison fails for NaN, which leaves the first operand. */
    return (Piece){TEXT("%s %s %s ? %s : %s", operand(p, a, P_shift), is_min ? ">" : "<",
                        operand(p, b, P_shift), operand(p, b, P_or), operand(p, a, P_or)),
                   P_cond};
}

static Piece compose_shift(Printer *p, const Expr *e) {
    DType dt = (DType)e->dt;
    bool left = e->op == EX_shl;
    const bool constant = ex_is_const(e->arg[1]);
    p->in_place &= constant;
    Piece a = print(p, e->arg[0]);
    if (!constant)
        return call2(p, helper(p, left ? "mlcc_shl_%s" : "mlcc_shr_%s", dt), a,
                     print(p, e->arg[1]));
    int width = dt_bits(dt);
    int64_t by = e->arg[1]->k.i;
    bool over = by < 0 || by >= width;
    if (over && (left || dt_kind(dt) == DK_uint)) return literal(p, dt, (Scalar){.i = 0});
    Piece count = atom(TEXT("%d", over ? width - 1 : (int)by));
    Piece from = {operand(p, a, P_unary), P_unary}; /* compilers warn of sums in shifts */
    if (left && dt_kind(dt) == DK_sint && !p->d->wraps) {
        DType u = dt == DT_i64 ? DT_u64 : DT_u32;
        return reg_cast(p, u, dt, infix(p, reg_cast(p, dt, u, from), "<<", count, P_shift));
    }
    return infix(p, from, left ? "<<" : ">>", count, P_shift);
}

/* 1, 0: the ranges decide; -1: they do not. */
static int decided(Printer *p, const Expr *e) {
    if (dt_is_float((DType)e->arg[0]->dt)) return -1;
    const Node *a = range_of(p, e->arg[0]), *b = range_of(p, e->arg[1]);
    if (e->arg[0]->dt == DT_u64 && e->op == EX_lt && ex_is_int(e->arg[1], 0)) return 0;
    if (e->arg[0]->dt == DT_u64 && e->op == EX_le && ex_is_int(e->arg[0], 0)) return 1;
    if (!a->bounded || !b->bounded) return -1;
    bool apart = a->hi < b->lo || b->hi < a->lo;
    switch ((ExprOp)e->op) {
    case EX_lt:
        return a->hi < b->lo ? 1 : a->lo >= b->hi ? 0 : -1;
    case EX_le:
        return a->hi <= b->lo ? 1 : a->lo > b->hi ? 0 : -1;
    case EX_eq:
        return apart ? 0 : -1;
    default:
        return apart ? 1 : -1;
    }
}

/* i + 2 < 9 as i < 7, where i + 2 cannot overflow. */
static void move_constant(Printer *p, const Expr *e, Piece *a, Piece *b) {
    int side = ex_is_const(e->arg[1]) ? 0 : 1;
    const Expr *sum = e->arg[side], *limit = e->arg[1 - side];
    if (sum->op != EX_add || !ex_is_const(sum->arg[1]) || !ex_is_const(limit)) return;
    if (node_of(p, sum)->name) return;
    const Node *from = range_of(p, sum->arg[0]);
    int64_t by = sum->arg[1]->k.i, moved = limit->k.i - by;
    if (from->lo + by < INT32_MIN || from->hi + by > INT32_MAX || moved < INT32_MIN ||
        moved > INT32_MAX)
        return;
    *(side ? b : a) = print_compared(p, sum->arg[0]);
    *(side ? a : b) = literal(p, DT_i32, (Scalar){.i = moved});
}

static Piece compose_compare(Printer *p, const Expr *e) {
    int known = decided(p, e);
    if (known >= 0) return literal(p, DT_bool, (Scalar){.i = known});
    DType dt = (DType)e->arg[0]->dt;
    Piece a = print_compared(p, e->arg[0]), b = print_compared(p, e->arg[1]);
    bool order = e->op == EX_lt || e->op == EX_le;
    if (dt == DT_bool && order) {
        a = convert(p, p->d->reg[DT_i32], a);
        b = convert(p, p->d->reg[DT_i32], b);
    }
    const char *op = ex_infix((ExprOp)e->op);
    if (dt == DT_i32) move_constant(p, e, &a, &b);
    if (order && ex_is_const(e->arg[0]) && !ex_is_const(e->arg[1])) { /* 0 <= i  as  i >= 0 */
        Piece t = a;
        a = b;
        b = t;
        op = e->op == EX_lt ? ">" : ">=";
    }
    return (Piece){TEXT("%s %s %s", operand(p, a, P_shift), op, operand(p, b, P_shift)),
                   order ? P_less : P_equal};
}

/* Arithmetic on bool: what remains of it after the cast back, `!= 0`. */
static Piece compose_bool(Printer *p, const Expr *e) {
    Piece a = print(p, e->arg[0]), b = print(p, e->arg[1]);
    bool any = e->op == EX_add || e->op == EX_max || e->op == EX_bor;
    bool differ = e->op == EX_sub || e->op == EX_bxor;
    int prec = differ ? P_equal : any ? P_or : P_and;
    const char *op = differ ? "!=" : any ? "||" : "&&";
    return (Piece){TEXT("%s %s %s", logic_operand(p, a, differ ? P_unary : prec), op,
                        logic_operand(p, b, differ ? P_unary : prec)),
                   prec};
}

static Piece compose_bitwise(Printer *p, const Expr *e) {
    Piece a = print(p, e->arg[0]), b = print(p, e->arg[1]);
    int prec = e->op == EX_band ? P_bitand : e->op == EX_bor ? P_bitor : P_bitxor;
    return (Piece){
        TEXT("%s %s %s", operand(p, a, P_unary), ex_infix((ExprOp)e->op), operand(p, b, P_unary)),
        prec};
}

static Piece compose_unary(Printer *p, const Expr *e) {
    DType dt = (DType)e->arg[0]->dt;
    const Node *range = range_of(p, e->arg[0]);
    p->in_place &= e->op != EX_abs;
    Piece a = print(p, e->arg[0]);
    switch ((ExprOp)e->op) {
    case EX_not:
        return (Piece){TEXT("!%s", operand(p, a, P_unary)), P_unary};
    case EX_bnot:
        return (Piece){TEXT("~%s", operand(p, a, P_unary)), P_unary};
    case EX_neg:
        if (dt_is_int(dt) && !p->d->wraps &&
            (dt_kind(dt) == DK_uint || !range->bounded || range->lo <= INT32_MIN)) {
            Piece zero =
                literal(p, dt == DT_i64 || dt == DT_u64 ? DT_u64 : DT_u32, (Scalar){.i = 0});
            if (dt_kind(dt) == DK_uint) return infix(p, zero, "-", a, P_sum);
            DType u = dt == DT_i64 ? DT_u64 : DT_u32;
            return reg_cast(p, u, dt, infix(p, zero, "-", reg_cast(p, dt, u, a), P_sum));
        }
        if (dt == DT_bool) return a;
        return (Piece){TEXT(a.text[0] == '-' ? "-(%s)" : "-%s", operand(p, a, P_unary)), P_unary};
    default:
        break;
    }
    if (!dt_is_float(dt)) {
        if (e->op == EX_abs && dt_kind(dt) == DK_sint)
            return call(p, helper(p, "mlcc_abs_%s", dt), a);
        return a;
    }
    const char *const args[] = {a.text};
    return function(p, e, dt, args);
}

Piece compose(Printer *p, const Expr *e) {
    switch ((ExprOp)e->op) {
    case EX_const:
        return literal(p, (DType)e->dt, e->k);
    case EX_var:
        return atom(p->var[e->k.i]);
    case EX_ctr:
        return atom(p->scalar[e->k.i]);
    case EX_load:
        return compose_load(p, e);
    case EX_select:
        return compose_select(p, e);
    case EX_and:
    case EX_or:
        return compose_logic(p, e);
    case EX_cast:
        return compose_cast(p, e);
    case EX_bits:
        return compose_bits(p, e);
    default:
        break;
    }
    if (e->n == 1) return compose_unary(p, e);
    if (e->dt == DT_bool && e->arg[0]->dt == DT_bool && e->op != EX_eq && e->op != EX_ne &&
        e->op != EX_lt && e->op != EX_le)
        return compose_bool(p, e);
    switch ((ExprOp)e->op) {
    case EX_add:
    case EX_sub:
    case EX_mul:
        return compose_sum(p, e);
    case EX_div:
    case EX_rem:
        return compose_div(p, e);
    case EX_min:
    case EX_max:
        return compose_min_max(p, e);
    case EX_shl:
    case EX_shr:
        return compose_shift(p, e);
    case EX_band:
    case EX_bor:
    case EX_bxor:
        return compose_bitwise(p, e);
    case EX_eq:
    case EX_ne:
    case EX_lt:
    case EX_le:
        return compose_compare(p, e);
    default:
        break;
    }
    Piece a = print(p, e->arg[0]), b = print(p, e->arg[1]);
    const char *const args[] = {a.text, b.text};
    return function(p, e, (DType)e->dt, args);
}
