/* Construction of scalar expressions; see expr.h. Analysis and simplification are in expr_index.c.
 */
#include "ir/dim.h"
#include "ir/expr_memo.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct ExprRow {
    const char *name;
    int arity;
    const char *infix;
} ExprRow;

static const ExprRow rows[EX_count] = {
#define EXPR(name, arity, text) [EX_##name] = {#name, arity, text},
#include "ir/expr.def"
};

const char *ex_name(ExprOp op) {
    return rows[op].name;
}

int ex_arity(ExprOp op) {
    return rows[op].arity;
}

const char *ex_infix(ExprOp op) {
    return rows[op].infix;
}

void exprs_init(Exprs *x, Arena *arena) {
    *x = (Exprs){.arena = arena};
}

/* --- hash-consing ----------------------------------------------------------------------------- */

static uint32_t hash_node(ExprOp op, DType dt, Scalar k, int n, const Expr *const *arg) {
    uint64_t h = FNV_SEED ^ ((uint64_t)op << 8) ^ (uint64_t)dt;
    h = (h ^ (uint64_t)k.i) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    for (int i = 0; i < n; i++) h = (h ^ arg[i]->id) * 0x9e3779b97f4a7c15u + (h >> 31);
    return (uint32_t)(h ^ (h >> 32));
}

static bool same_node(const Expr *e, ExprOp op, DType dt, Scalar k, int n, const Expr *const *arg) {
    if (e->op != op || e->dt != dt || e->k.i != k.i || e->n != n) return false;
    for (int i = 0; i < n; i++)
        if (e->arg[i] != arg[i]) return false;
    return true;
}

static void grow_table(Exprs *x) {
    uint32_t cap = x->cap ? x->cap * 2 : 1024;
    const Expr **slots = ARENA_ARRAY(x->arena, cap, const Expr *);
    for (uint32_t i = 0; i < x->cap; i++) {
        if (!x->slots[i]) continue;
        uint32_t at = x->slots[i]->hash & (cap - 1);
        while (slots[at]) at = (at + 1) & (cap - 1);
        slots[at] = x->slots[i];
    }
    x->slots = slots;
    x->cap = cap;
}

static bool has_bit(int var) {
    return var >= 0 && var < EX_OTHER_VARS;
}

static uint64_t var_bit(int var) {
    return (uint64_t)1 << (has_bit(var) ? var : EX_OTHER_VARS);
}

/* The one node of this content. */
static const Expr *node(Exprs *x, ExprOp op, DType dt, Scalar k, int n, const Expr *const *arg) {
    if (x->n * 2 >= x->cap) grow_table(x);
    uint32_t hash = hash_node(op, dt, k, n, arg), at = hash & (x->cap - 1);
    for (; x->slots[at]; at = (at + 1) & (x->cap - 1))
        if (x->slots[at]->hash == hash && same_node(x->slots[at], op, dt, k, n, arg))
            return x->slots[at];
    Expr *e = arena_alloc(x->arena, sizeof *e + (size_t)n * sizeof *e->arg);
    *e = (Expr){.op = (uint8_t)op,
                .dt = (uint8_t)dt,
                .n = (uint16_t)n,
                .hash = hash,
                .id = x->n++,
                .size = 1,
                .loads = op == EX_load,
                .k = k};
    if (op == EX_var) e->vars = var_bit((int)k.i);
    for (int i = 0; i < n; i++) {
        e->arg[i] = arg[i];
        e->loads |= arg[i]->loads;
        e->vars |= arg[i]->vars;
        e->size = e->size + arg[i]->size < (1u << 30) ? e->size + arg[i]->size : 1u << 30;
    }
    x->slots[at] = e;
    return e;
}

/* --- leaves ----------------------------------------------------------------------------------- */

const Expr *ex_const(Exprs *x, DType dt, Scalar value) {
    return node(x, EX_const, dt, value, 0, NULL);
}

const Expr *ex_num(Exprs *x, DType dt, double value) {
    return ex_const(x, dt, dt_cast(DT_f64, dt, (Scalar){.f = value}));
}

const Expr *ex_int(Exprs *x, DType dt, int64_t value) {
    if (x->dims && dim_varies(value)) return ex_cast(x, dt, dim_expr(x, value));
    return ex_const(x, dt, dt_cast(DT_i64, dt, (Scalar){.i = value}));
}

const Expr *ex_i(Exprs *x, int64_t value) {
    return ex_int(x, DT_i32, value);
}

const Expr *ex_var_of(Exprs *x, int number, DType dt) {
    return node(x, EX_var, dt, (Scalar){.i = number}, 0, NULL);
}

const Expr *ex_var(Exprs *x, int number) {
    return ex_var_of(x, number, DT_i32);
}

const Expr *ex_ctr(Exprs *x, int depth) {
    return node(x, EX_ctr, DT_i32, (Scalar){.i = depth}, 0, NULL);
}

const Expr *ex_acc(Exprs *x, DType dt) {
    return node(x, EX_acc, dt, (Scalar){.i = 0}, 0, NULL);
}

const Expr *ex_load(Exprs *x, DType dt, int source, int n, const Expr *const *index) {
    return node(x, EX_load, dt, (Scalar){.i = source}, n, index);
}

/* --- evaluation of constants ------------------------------------------------------------------ */

static double float_unary(ExprOp op, double a) {
    switch (op) {
    case EX_neg:
        return -a;
    case EX_abs:
        return fabs(a);
    case EX_sqrt:
        return sqrt(a);
    case EX_exp:
    case EX_exp_low:
        return exp(a);
    case EX_log:
        return log(a);
    case EX_sin:
        return sin(a);
    case EX_cos:
        return cos(a);
    case EX_tan:
        return tan(a);
    case EX_asin:
        return asin(a);
    case EX_acos:
        return acos(a);
    case EX_atan:
        return atan(a);
    case EX_sinh:
        return sinh(a);
    case EX_cosh:
        return cosh(a);
    case EX_tanh:
        return tanh(a);
    case EX_asinh:
        return asinh(a);
    case EX_acosh:
        return acosh(a);
    case EX_atanh:
        return atanh(a);
    case EX_erf:
        return erf(a);
    case EX_floor:
        return floor(a);
    case EX_ceil:
        return ceil(a);
    case EX_round:
        return rint(a);
    case EX_trunc:
        return trunc(a);
    default:
        return a;
    }
}

static double float_binary(ExprOp op, double a, double b) {
    switch (op) {
    case EX_add:
        return a + b;
    case EX_sub:
        return a - b;
    case EX_mul:
        return a * b;
    case EX_div:
        return a / b;
    case EX_rem:
        return fmod(a, b);
    case EX_pow:
        return pow(a, b);
    case EX_min:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case EX_max:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    default:
        return a;
    }
}

static int64_t int_binary(ExprOp op, DType dt, int64_t a, int64_t b) {
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    bool is_unsigned = dt_kind(dt) == DK_uint || dt_kind(dt) == DK_bool;
    int width = dt_bits(dt);
    switch (op) {
    case EX_add:
        return (int64_t)(ua + ub);
    case EX_sub:
        return (int64_t)(ua - ub);
    case EX_mul:
        return (int64_t)(ua * ub);
    case EX_div:
        if (b == 0) return 0;
        if (is_unsigned) return (int64_t)(ua / ub);
        return b == -1 ? (int64_t)(0 - ua) : a / b;
    case EX_rem:
        if (b == 0) return 0;
        if (is_unsigned) return (int64_t)(ua % ub);
        return b == -1 ? 0 : a % b;
    case EX_min:
        return (is_unsigned ? ua < ub : a < b) ? a : b;
    case EX_max:
        return (is_unsigned ? ua > ub : a > b) ? a : b;
    case EX_and:
    case EX_band:
        return a & b;
    case EX_or:
    case EX_bor:
        return a | b;
    case EX_bxor:
        return a ^ b;
    case EX_shl:
        return ub >= (uint64_t)width ? 0 : (int64_t)(ua << ub);
    case EX_shr:
        if (ub >= (uint64_t)width) return is_unsigned || a >= 0 ? 0 : -1;
        return is_unsigned ? (int64_t)(ua >> ub) : a >> ub;
    default:
        return a;
    }
}

static bool compare(ExprOp op, DType from, Scalar a, Scalar b) {
    if (dt_is_float(from))
        return op == EX_eq   ? a.f == b.f
               : op == EX_ne ? a.f != b.f
               : op == EX_lt ? a.f < b.f
                             : a.f <= b.f;
    if (op == EX_eq) return a.i == b.i;
    if (op == EX_ne) return a.i != b.i;
    if (dt_kind(from) == DK_uint)
        return op == EX_lt ? (uint64_t)a.i < (uint64_t)b.i : (uint64_t)a.i <= (uint64_t)b.i;
    return op == EX_lt ? a.i < b.i : a.i <= b.i;
}

Scalar ex_apply(ExprOp op, DType dt, DType from, const Scalar *args) {
    Scalar a = args[0];
    switch (op) {
    case EX_cast:
        return dt_cast(from, dt, a);
    case EX_bits: {
        uint64_t raw[2] = {0};
        dt_save(from, raw, 0, a);
        return dt_load(dt, raw, 0);
    }
    case EX_select:
        return a.i ? args[1] : args[2];
    case EX_eq:
    case EX_ne:
    case EX_lt:
    case EX_le:
        return (Scalar){.i = compare(op, from, a, args[1])};
    case EX_not:
        return (Scalar){.i = !a.i};
    case EX_isnan:
        return (Scalar){.i = dt_is_float(from) && isnan(a.f)};
    case EX_isinf:
        return (Scalar){.i = dt_is_float(from) && isinf(a.f)};
    default:
        break;
    }
    if (dt_is_float(dt)) {
        double result = ex_arity(op) == 2 ? float_binary(op, a.f, args[1].f) : float_unary(op, a.f);
        return dt_cast(DT_f64, dt, (Scalar){.f = result});
    }
    int64_t result = a.i;
    if (op == EX_neg)
        result = (int64_t)(0 - (uint64_t)a.i);
    else if (op == EX_abs)
        result = a.i < 0 && dt_kind(dt) == DK_sint ? (int64_t)(0 - (uint64_t)a.i) : a.i;
    else if (op == EX_bnot)
        result = ~a.i;
    else if (ex_arity(op) == 2)
        result = int_binary(op, dt, a.i, args[1].i);
    return dt_cast(DT_i64, dt, (Scalar){.i = result});
}

Scalar ex_eval(const Expr *e, const int64_t *vars) {
    if (e->op == EX_const) return e->k;
    if (e->op == EX_var) return (Scalar){.i = vars[e->k.i]};
    Scalar args[3] = {{0}, {0}, {0}};
    for (int i = 0; i < e->n && i < 3; i++) args[i] = ex_eval(e->arg[i], vars);
    return ex_apply((ExprOp)e->op, (DType)e->dt, e->n ? (DType)e->arg[0]->dt : DT_none, args);
}

/* --- operators -------------------------------------------------------------------------------- */

static bool is_comparison(ExprOp op) {
    return op == EX_eq || op == EX_ne || op == EX_lt || op == EX_le;
}

static bool is_zero(const Expr *e) {
    return ex_is_const(e) && !dt_is_float((DType)e->dt) && e->k.i == 0;
}

const Expr *ex_as_byte(Exprs *x, const Expr *e, const Expr *scale) {
    const DType dt = (DType)e->dt;
    const Expr *zero = ex_num(x, dt, 0), *none = ex_bin(x, EX_eq, scale, zero);
    const Expr *least = ex_num(x, dt, -127), *most = ex_num(x, dt, 127);
    e = ex_select(x, none, zero, ex_div(x, e, scale));
    e = ex_un(x, EX_round, ex_bin(x, EX_min, ex_bin(x, EX_max, e, least), most));
    return ex_cast(x, DT_i8, ex_cast(x, DT_i32, e));
}

const Expr *ex_by_reciprocal(Exprs *x, const Expr *e) {
    if (e->op != EX_div || e->dt != DT_f32 || !ex_is_const(e->arg[1])) return NULL;
    const double reciprocal = 1 / e->arg[1]->k.f;
    if (!(fabs(reciprocal) >= FLT_MIN && fabs(reciprocal) <= FLT_MAX)) return NULL;
    return ex_mul(x, e->arg[0], ex_num(x, DT_f32, reciprocal));
}

const Expr *ex_un(Exprs *x, ExprOp op, const Expr *a) {
    DType dt = (DType)a->dt;
    bool to_bool = op == EX_not || op == EX_isnan || op == EX_isinf;
    if (dt_is_narrow(dt)) {
        const Expr *wide = ex_un(x, op, ex_cast(x, dt_reg(dt), a));
        return to_bool ? wide : ex_cast(x, dt, wide);
    }
    DType to = to_bool ? DT_bool : dt;
    if (ex_is_const(a)) return ex_const(x, to, ex_apply(op, to, dt, &a->k));
    if (op == EX_not && a->op == EX_not) return a->arg[0];
    if (op == EX_not && (a->op == EX_eq || a->op == EX_ne))
        return ex_bin(x, a->op == EX_eq ? EX_ne : EX_eq, a->arg[0], a->arg[1]);
    if (op == EX_not && (a->op == EX_lt || a->op == EX_le) && !dt_is_float((DType)a->arg[0]->dt))
        return ex_bin(x, a->op == EX_lt ? EX_le : EX_lt, a->arg[1], a->arg[0]);
    if (op == EX_neg && a->op == EX_neg) return a->arg[0];
    if ((op == EX_isnan || op == EX_isinf) && !dt_is_float(dt)) return ex_int(x, DT_bool, 0);
    if (!dt_is_float(dt) && (op == EX_floor || op == EX_ceil || op == EX_round || op == EX_trunc))
        return a;
    if (op == EX_abs && dt_kind(dt) == DK_uint) return a;
    if (op == EX_erf ||
        op == EX_tanh) { /* whose relative error is no larger than their argument's */
        const Expr *product = ex_by_reciprocal(x, a);
        if (product) a = product;
    }
    return node(x, op, to, (Scalar){.i = 0}, 1, &a);
}

/* Is it 2^n, 0 <= n < 64? Multiplied by such a number floats are exact, or infinite whatever
 * follows.
 */
static bool scales_up(const Expr *e) {
    int n;
    return ex_is_const(e) && dt_is_float((DType)e->dt) && frexp(e->k.f, &n) == 0.5 && n > 0 &&
           n <= 64;
}

/* The bool that is a number here; NULL: it is none. */
static const Expr *as_number(const Expr *e) {
    return e->op == EX_cast && e->arg[0]->dt == DT_bool ? e->arg[0] : NULL;
}

/* Identities of integer and boolean operators, and the few of floats that are exact; NULL if none
 * applies. Constants stand on the right. */
static const Expr *simplify_bin(Exprs *x, ExprOp op, const Expr *a, const Expr *b) {
    DType dt = (DType)a->dt;
    bool is_float = dt_is_float(dt);
    switch (op) {
    case EX_add:
        if (is_zero(b)) return a;
        if (!is_float && ex_is_const(b) && a->op == EX_add && ex_is_const(a->arg[1]))
            return ex_bin(x, EX_add, a->arg[0], ex_bin(x, EX_add, a->arg[1], b));
        break;
    case EX_sub:
        if (is_zero(b)) return a;
        if (is_float) break;
        if (a == b) return ex_int(x, dt, 0);
        if (ex_is_const(b)) return ex_bin(x, EX_add, a, ex_un(x, EX_neg, b));
        break;
    case EX_mul:
        if (ex_is_one(b)) return a;
        if (is_zero(b)) return b;
        if (!is_float && ex_is_const(b) && a->op == EX_mul && ex_is_const(a->arg[1]))
            return ex_bin(x, EX_mul, a->arg[0], ex_bin(x, EX_mul, a->arg[1], b));
        if (scales_up(b) && a->op == EX_mul && scales_up(a->arg[1]) &&
            (dt == DT_f32 || dt == DT_f64))
            return ex_bin(x, EX_mul, a->arg[0], ex_num(x, dt, a->arg[1]->k.f * b->k.f));
        if (dt == DT_i32 && ex_is_const(b) && a->op == EX_add && ex_is_const(a->arg[1]))
            return ex_bin(x, EX_add, ex_bin(x, EX_mul, a->arg[0], b),
                          ex_bin(x, EX_mul, a->arg[1], b));
        break;
    case EX_div:
        if (ex_is_one(b)) return a;
        break;
    case EX_rem:
        if (!is_float && ex_is_one(b)) return ex_int(x, dt, 0);
        break;
    case EX_min:
    case EX_max:
        if (a == b) return a;
        if (ex_is_const(b) && (ExprOp)a->op == op && ex_is_const(a->arg[1]))
            return ex_bin(x, op, a->arg[0], ex_bin(x, op, a->arg[1], b));
        break;
    case EX_and:
        if (a == b) return a;
        if (ex_is_const(b)) return b->k.i ? a : b;
        if (ex_is_const(a)) return a->k.i ? b : a;
        break;
    case EX_or:
        if (a == b) return a;
        if (ex_is_const(b)) return b->k.i ? b : a;
        if (ex_is_const(a)) return a->k.i ? a : b;
        break;
    case EX_band:
    case EX_bor:
        if (a == b) return a;
        if (is_zero(b)) return op == EX_band ? b : a;
        break;
    case EX_bxor:
    case EX_shl:
    case EX_shr:
        if (is_zero(b)) return a;
        break;
    case EX_eq:
        if (a == b && !is_float) return ex_int(x, DT_bool, 1);
        if (dt == DT_bool && ex_is_const(b)) return b->k.i ? a : ex_un(x, EX_not, a);
        if (is_zero(b) && as_number(a)) return ex_un(x, EX_not, as_number(a));
        break;
    case EX_ne:
        if (a == b && !is_float) return ex_int(x, DT_bool, 0);
        if (dt == DT_bool && ex_is_const(b)) return b->k.i ? ex_un(x, EX_not, a) : a;
        if (is_zero(b) && as_number(a)) return as_number(a);
        break;
    case EX_lt:
        if (a == b) return ex_int(x, DT_bool, 0);
        break;
    case EX_le:
        if (a == b && !is_float) return ex_int(x, DT_bool, 1);
        break;
    default:
        break;
    }
    return NULL;
}

/* True if every value of `from` is also one of `to`. */
static bool exact_cast(DType from, DType to) {
    if (from == DT_bool) return true;
    if (dt_is_int(from) && dt_is_int(to)) {
        if (dt_kind(from) == dt_kind(to)) return dt_bits(from) <= dt_bits(to);
        return dt_kind(from) == DK_uint && dt_bits(from) < dt_bits(to);
    }
    if (dt_is_float(from) && dt_is_float(to))
        return to == DT_f64 || (to == DT_f32 && from != DT_f64);
    return false;
}

/* What was widened to i64 from an i32 or less, as an i32; NULL if it may be none. */
static const Expr *as_half(Exprs *x, const Expr *e) {
    if (e->op == EX_cast && e->arg[0]->dt != DT_bool && exact_cast((DType)e->arg[0]->dt, DT_i32))
        return ex_cast(x, DT_i32, e->arg[0]);
    if (!ex_is_const(e) || e->k.i < INT32_MIN || e->k.i > INT32_MAX) return NULL;
    return ex_int(x, DT_i32, e->k.i);
}

int ex_order(const Expr *a, const Expr *b) {
    while (a != b) {
        if (a->size != b->size) return a->size > b->size ? -1 : 1;
        if (a->op != b->op) return a->op < b->op ? -1 : 1;
        if (a->dt != b->dt) return a->dt < b->dt ? -1 : 1;
        if (a->k.i != b->k.i) return a->k.i < b->k.i ? -1 : 1;
        if (a->n != b->n) return a->n < b->n ? -1 : 1;
        int i = 0;
        while (i < a->n && a->arg[i] == b->arg[i]) i++;
        if (i == a->n) break;
        a = a->arg[i], b = b->arg[i];
    }
    return 0;
}

const Expr *ex_bin(Exprs *x, ExprOp op, const Expr *a, const Expr *b) {
    DType dt = (DType)a->dt;
    if (dt_is_narrow(dt)) {
        DType reg = dt_reg(dt);
        /* shifts of narrow types see their own width */
        if ((op == EX_shl || op == EX_shr) && !ex_is_const(b)) {
            const Expr *over = ex_le(x, ex_int(x, reg, dt_bits(dt)), ex_cast(x, reg, b));
            const Expr *wide = ex_bin(x, op, ex_cast(x, reg, a), ex_cast(x, reg, b));
            return ex_cast(x, dt, ex_select(x, over, ex_int(x, reg, 0), wide));
        }
        const Expr *wide = ex_bin(x, op, ex_cast(x, reg, a), ex_cast(x, reg, b));
        return is_comparison(op) ? wide : ex_cast(x, dt, wide);
    }
    DType to = is_comparison(op) ? DT_bool : dt;
    if (ex_is_const(a) && ex_is_const(b)) {
        Scalar args[2] = {a->k, b->k};
        return ex_const(x, to, ex_apply(op, to, dt, args));
    }
    bool commutes = op == EX_add || op == EX_mul || op == EX_min || op == EX_max || op == EX_band ||
                    op == EX_bor || op == EX_bxor || op == EX_eq || op == EX_ne;
    if (commutes && (ex_is_const(a) || (!ex_is_const(b) && ex_order(a, b) > 0))) {
        const Expr *t = a;
        a = b;
        b = t;
    }
    const Expr *simple = simplify_bin(x, op, a, b);
    if (simple) return simple;
    /* Not only for speed: Mesa 22.3 takes an int64_t that was widened, also one that has been
     * through max or min, for never less than any constant. */
    if (dt == DT_i64 && (is_comparison(op) || op == EX_min || op == EX_max)) {
        const Expr *l = as_half(x, a), *r = as_half(x, b);
        if (l && r) return ex_cast(x, to, ex_bin(x, op, l, r));
    }
    const Expr *arg[2] = {a, b};
    return node(x, op, to, (Scalar){.i = 0}, 2, arg);
}

const Expr *ex_select(Exprs *x, const Expr *cond, const Expr *a, const Expr *b) {
    if (ex_is_const(cond)) return cond->k.i ? a : b;
    if (a == b) return a;
    if (cond->op == EX_not) return ex_select(x, cond->arg[0], b, a);
    const Expr *arg[3] = {cond, a, b};
    return node(x, EX_select, (DType)a->dt, (Scalar){.i = 0}, 3, arg);
}

const Expr *ex_cast(Exprs *x, DType dt, const Expr *a) {
    DType from = (DType)a->dt;
    if (from == dt) return a;
    if (ex_is_const(a)) return ex_const(x, dt, dt_cast(from, dt, a->k));
    if (a->op == EX_cast && exact_cast((DType)a->arg[0]->dt, from) &&
        ((DType)a->arg[0]->dt == dt || exact_cast((DType)a->arg[0]->dt, dt) ||
         (dt_is_int(from) && dt_is_int(dt)) || (dt_is_float(from) && dt_is_float(dt))))
        return ex_cast(x, dt, a->arg[0]);
    if (dt == DT_bool)
        return ex_bin(x, EX_ne, dt_is_narrow(from) ? ex_cast(x, dt_reg(from), a) : a,
                      ex_num(x, dt_reg(from), 0));
    return node(x, EX_cast, dt, (Scalar){.i = 0}, 1, &a);
}

const Expr *ex_bits(Exprs *x, DType dt, const Expr *a) {
    if ((DType)a->dt == dt) return a;
    if (ex_is_const(a)) return ex_const(x, dt, ex_apply(EX_bits, dt, (DType)a->dt, &a->k));
    return node(x, EX_bits, dt, (Scalar){.i = 0}, 1, &a);
}

/* --- walking ---------------------------------------------------------------------------------- */

void memo_end(Memo *m) {
    if (m->cap) arena_return(m->arena, m->slots, m->cap * sizeof *m->slots);
    *m = (Memo){.arena = m->arena};
}

MemoSlot *memo_slot(Memo *m, const Expr *e) {
    if (m->n * 2 >= m->cap) {
        Memo old = *m;
        m->cap = old.cap ? old.cap * 2 : 16;
        m->slots = arena_borrow(m->arena, m->cap * sizeof *m->slots);
        m->n = 0;
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.slots[i].key) {
                *memo_slot(m, old.slots[i].key) = old.slots[i];
                m->n++;
            }
        memo_end(&old);
    }
    uint32_t at = e->hash & (m->cap - 1);
    while (m->slots[at].key && m->slots[at].key != e) at = (at + 1) & (m->cap - 1);
    return &m->slots[at];
}

void memo_set(Memo *m, const Expr *e, const Expr *value) {
    MemoSlot *slot = memo_slot(m, e);
    if (!slot->key) m->n++;
    *slot = (MemoSlot){e, value};
}

typedef struct Rewriter {
    Exprs *x;
    ExprLeafFn *leaf;
    void *user;
    Memo memo;
} Rewriter;

const Expr *ex_rebuild(Exprs *x, const Expr *e, const Expr *const *arg) {
    bool same = true;
    for (int i = 0; i < e->n && same; i++) same = arg[i] == e->arg[i];
    if (same) return e;
    switch ((ExprOp)e->op) {
    case EX_load:
        return ex_load(x, (DType)e->dt, (int)e->k.i, e->n, arg);
    case EX_select:
        return ex_select(x, arg[0], arg[1], arg[2]);
    case EX_cast:
        return ex_cast(x, (DType)e->dt, arg[0]);
    case EX_bits:
        return ex_bits(x, (DType)e->dt, arg[0]);
    default:
        return e->n == 2 ? ex_bin(x, (ExprOp)e->op, arg[0], arg[1])
                         : ex_un(x, (ExprOp)e->op, arg[0]);
    }
}

static const Expr *rewrite(Rewriter *r, const Expr *e) {
    if (e->op == EX_const) return e;
    MemoSlot *slot = memo_slot(&r->memo, e);
    if (slot->key) return slot->value;
    const Expr *small[4], **arg = small;
    if (e->n > 4) arg = ARENA_ARRAY(r->x->arena, e->n, const Expr *);
    for (int i = 0; i < e->n; i++) arg[i] = rewrite(r, e->arg[i]);
    const Expr *result;
    if (e->op == EX_var || e->op == EX_ctr || e->op == EX_acc || e->op == EX_load)
        result = r->leaf(r->user, e, arg);
    else
        result = ex_rebuild(r->x, e, arg);
    memo_set(&r->memo, e, result);
    return result;
}

const Expr *ex_rewrite(Exprs *x, const Expr *e, ExprLeafFn *leaf, void *user) {
    Rewriter r = {x, leaf, user, {.arena = x->arena}};
    const Expr *result = rewrite(&r, e);
    memo_end(&r.memo);
    return result;
}

typedef struct Subst {
    Exprs *x;
    int n;
    const Expr *const *to;
} Subst;

static const Expr *subst_leaf(void *user, const Expr *e, const Expr *const *args) {
    Subst *s = user;
    if (e->op == EX_var && e->k.i < s->n && s->to[e->k.i]) return s->to[e->k.i];
    return e->op == EX_load ? ex_rebuild(s->x, e, args) : e;
}

const Expr *ex_subst_vars(Exprs *x, const Expr *e, int n, const Expr *const *to) {
    Subst s = {x, n, to};
    return ex_rewrite(x, e, subst_leaf, &s);
}

static const Expr *replace(Exprs *x, Memo *memo, const Expr *e, const Expr *part, const Expr *to) {
    if (e == part) return to;
    if (e->n == 0 || e->id < part->id) return e; /* operands are older than what they are in */
    MemoSlot *slot = memo_slot(memo, e);
    if (slot->key) return slot->value;
    const Expr **arg = ARENA_ARRAY(x->arena, e->n, const Expr *);
    bool same = true;
    for (int i = 0; i < e->n; i++) {
        arg[i] = replace(x, memo, e->arg[i], part, to);
        same &= arg[i] == e->arg[i];
    }
    const Expr *result = same ? e : ex_rebuild(x, e, arg);
    memo_set(memo, e, result);
    return result;
}

const Expr *ex_replace(Exprs *x, const Expr *e, const Expr *part, const Expr *to) {
    Memo memo = {.arena = x->arena};
    const Expr *result = replace(x, &memo, e, part, to);
    memo_end(&memo);
    return result;
}

static void visit(Memo *memo, const Expr *e, ExprVisitFn *fn, void *user) {
    MemoSlot *slot = memo_slot(memo, e);
    if (slot->key) return;
    memo_set(memo, e, e);
    for (int i = 0; i < e->n; i++) visit(memo, e->arg[i], fn, user);
    fn(user, e);
}

void ex_visit(Arena *scratch, const Expr *e, ExprVisitFn *fn, void *user) {
    Memo memo = {.arena = scratch};
    visit(&memo, e, fn, user);
    memo_end(&memo);
}

#define MOST_PARTS 256

typedef struct PartsSoFar {
    ExprParts p;
    bool fits;
} PartsSoFar;

static void add_part(void *user, const Expr *e) {
    PartsSoFar *s = user;
    s->fits = s->fits && e->op != EX_load && e->n <= 3 && s->p.n < MOST_PARTS;
    if (!s->fits) return;
    for (int i = 0; i < e->n; i++) {
        int at = s->p.n - 1;
        while (s->p.part[at] != e->arg[i]) at--;
        s->p.arg[s->p.n][i] = at;
    }
    s->p.part[s->p.n++] = e;
}

ExprParts *ex_parts(Arena *arena, const Expr *e) {
    ExprParts *p = ARENA_NEW(arena, ExprParts);
    PartsSoFar s = {.fits = true};
    s.p.part = ARENA_ARRAY(arena, MOST_PARTS, const Expr *);
    s.p.arg = arena_alloc(arena, sizeof *s.p.arg * MOST_PARTS);
    s.p.value = ARENA_ARRAY(arena, MOST_PARTS, Scalar);
    ex_visit(arena, e, add_part, &s);
    *p = s.p;
    return s.fits ? p : NULL;
}

Scalar ex_parts_eval(ExprParts *p, ExprValueFn *leaf, void *user) {
    for (int k = 0; k < p->n; k++) {
        const Expr *e = p->part[k];
        Scalar args[3] = {{0}, {0}, {0}};
        for (int i = 0; i < e->n; i++) args[i] = p->value[p->arg[k][i]];
        p->value[k] = e->op == EX_const ? e->k
                      : !e->n           ? leaf(user, e)
                              : ex_apply((ExprOp)e->op, (DType)e->dt, (DType)e->arg[0]->dt, args);
    }
    return p->value[p->n - 1];
}

static void add_slow_cycles(void *user, const Expr *e) {
    int *cycles = user;
    bool function = e->n == 1 && dt_is_float((DType)e->dt) && e->op >= EX_exp && e->op <= EX_erf;
    bool slow = (e->op == EX_div && dt_is_float((DType)e->dt)) || e->op == EX_sqrt;
    *cycles += function || e->op == EX_pow ? 20 : slow ? 4 : 0;
}

int ex_slow_cycles(Arena *scratch, const Expr *e) {
    int cycles = 0;
    ex_visit(scratch, e, add_slow_cycles, &cycles);
    return cycles;
}

bool ex_depends(const Expr *e, int var) {
    if (!(e->vars & var_bit(var))) return false;
    if (has_bit(var)) return true;
    if (e->op == EX_var) return e->k.i == var;
    for (int i = 0; i < e->n; i++)
        if (ex_depends(e->arg[i], var)) return true;
    return false;
}

typedef struct Shift {
    Exprs *x;
    int by;
} Shift;

static const Expr *shift_leaf(void *user, const Expr *e, const Expr *const *args) {
    Shift *s = user;
    return e->op == EX_load ? ex_load(s->x, (DType)e->dt, (int)e->k.i + s->by, e->n, args) : e;
}

const Expr *ex_shift_loads(Exprs *x, const Expr *e, int by) {
    Shift s = {x, by};
    return ex_rewrite(x, e, shift_leaf, &s);
}

const Expr *ex_bounded(const Expr *e, double *low, double *high) {
    *low = -HUGE_VAL;
    *high = HUGE_VAL;
    for (; (e->op == EX_min || e->op == EX_max) && ex_is_const(e->arg[1]); e = e->arg[0])
        if (e->op == EX_max)
            *low = fmax(*low, e->arg[1]->k.f);
        else
            *high = fmin(*high, e->arg[1]->k.f);
    return e;
}

/* -limit <= e <= limit, or NaN, by a min and a max with constants. */
static bool within(const Expr *e, double limit) {
    double low, high;
    ex_bounded(e, &low, &high);
    return low >= -limit && high <= limit && low <= high;
}

bool ex_is_rounding(const Expr *e) {
    return e->op == EX_cast && e->dt == DT_i32 && e->arg[0]->op == EX_round &&
           e->arg[0]->dt == DT_f32 && within(e->arg[0]->arg[0], ROUND_LIMIT);
}

bool ex_is_word_sum(const Expr *e, int var) {
    if (e->dt != DT_i32) return false;
    if (!ex_depends(e, var)) return true;
    if (e->op == EX_cast) return e->arg[0]->op == EX_load && dt_is_short((DType)e->arg[0]->dt);
    if (e->op != EX_add && e->op != EX_sub && e->op != EX_mul && e->op != EX_neg) return false;
    for (int i = 0; i < e->n; i++)
        if (!ex_is_word_sum(e->arg[i], var)) return false;
    return true;
}

enum { BELOW_BYTES = 1, ABOVE_BYTES = 2, NO_BYTES = 4 };

/* Where what `e` chooses may lie beside the bytes of the type. */
static int beside_bytes(const Expr *e, DType dt, int var) {
    if (e->dt != DT_i32) return NO_BYTES;
    if (ex_is_const(e))
        return (e->k.i < byte_least(dt) ? BELOW_BYTES : 0) |
               (e->k.i > byte_most(dt) ? ABOVE_BYTES : 0);
    if (e->op == EX_cast) return e->arg[0]->op == EX_load && e->arg[0]->dt == dt ? 0 : NO_BYTES;
    const bool chosen = e->op == EX_select && !ex_depends(e->arg[0], var);
    if (!chosen && e->op != EX_min && e->op != EX_max) return NO_BYTES;
    const int a = beside_bytes(e->arg[chosen], dt, var);
    const int b = beside_bytes(e->arg[1 + chosen], dt, var);
    if ((a | b) & NO_BYTES) return NO_BYTES;
    const int both = e->op == EX_max ? BELOW_BYTES : e->op == EX_min ? ABOVE_BYTES : 0;
    return (a & b & both) | ((a | b) & ~both);
}

#define MOST_CHOICES 4096 /* nodes of a tree */

bool ex_chooses_bytes(const Expr *e, DType dt, int var) {
    return e->size <= MOST_CHOICES && beside_bytes(e, dt, var) == 0;
}

bool ex_is_lookup(const Expr *load) {
    if (load->n != 1 || (load->dt != DT_f32 && !dt_is_byte((DType)load->dt))) return false;
    const Expr *at = load->arg[0];
    while (!dt_is_byte((DType)at->dt) &&
           ((at->op == EX_add && ex_is_const(at->arg[1])) || at->op == EX_cast))
        at = at->arg[0];
    return dt_is_byte((DType)at->dt);
}
