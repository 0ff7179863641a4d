/* Verifying expressions: types from the operands up, leaves within what their place offers. */
#include "ir/verify.h"

#include "ir/expr_memo.h"

#include <math.h>
#include <stdarg.h>

enum {
    MAX_MESSAGES = 20,
    BOUNDED_SIZE = 2000 /* ex_bounds walks trees: larger indices are not examined */
};

void verify_fail(Verifier *v, const char *format, ...) {
    if (v->n_errors++ >= MAX_MESSAGES) return;
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(v->arena, format, args);
    va_end(args);
    const char *pass = v->pass ? arena_printf(v->arena, "after %s: ", v->pass) : "";
    if (v->place)
        diag_error(v->diag, E9001, "%s%s: %s", pass, v->place, text);
    else
        diag_error(v->diag, E9001, "%s%s", pass, text);
}

/* --- types ------------------------------------------------------------------------------------ */

/* What operands an operator takes. */
typedef enum Class {
    CLASS_real,
    CLASS_number,
    CLASS_integer,
    CLASS_bits,
    CLASS_float,
    CLASS_bool
} Class;

static bool in_class(Class c, DType dt) {
    DKind kind = dt_kind(dt);
    bool number = dt_is_int(dt) || kind == DK_float;
    switch (c) {
    case CLASS_real:
        return number || kind == DK_bool;
    case CLASS_number:
        return number;
    case CLASS_integer:
        return dt_is_int(dt);
    case CLASS_bits:
        return dt_is_int(dt) || kind == DK_bool;
    case CLASS_float:
        return kind == DK_float;
    case CLASS_bool:
        return kind == DK_bool;
    }
    return false;
}

static Class class_of(ExprOp op, bool strict) {
    switch (op) {
    case EX_neg:
    case EX_abs:
    case EX_add:
    case EX_sub:
    case EX_mul:
    case EX_div:
    case EX_rem:
        return CLASS_number;
    case EX_floor:
    case EX_ceil:
    case EX_round:
    case EX_trunc:
    case EX_isnan:
    case EX_isinf:
        return strict ? CLASS_float : CLASS_number; /* trivial on integers */
    case EX_not:
    case EX_and:
    case EX_or:
        return CLASS_bool;
    case EX_band:
    case EX_bor:
    case EX_bxor:
        return CLASS_bits;
    case EX_bnot:
    case EX_shl:
    case EX_shr:
        return CLASS_integer;
    case EX_min:
    case EX_max:
    case EX_cast:
    case EX_bits:
    case EX_eq:
    case EX_ne:
    case EX_lt:
    case EX_le:
        return CLASS_real;
    default:
        return CLASS_float;
    }
}

static DType select_type(const DType *arg, const char **why) {
    if (arg[0] == DT_bool && arg[1] == arg[2]) return arg[1];
    *why = arg[0] == DT_bool ? "the branches of 'select' differ in type"
                             : "the condition of 'select' is not a bool";
    return DT_none;
}

static bool gives_bool(ExprOp op) {
    return op == EX_not || op == EX_isnan || op == EX_isinf || (op >= EX_eq && op <= EX_le);
}

DType expr_type(Arena *arena, ExprOp op, DType to, const DType *arg, bool strict,
                const char **why) {
    static const char *const class_text[] = {"numbers or bools",  "numbers", "integers",
                                             "integers or bools", "floats",  "bools"};
    if (op == EX_select) return select_type(arg, why);
    bool convert = op == EX_cast || op == EX_bits;
    Class wanted = class_of(op, strict);
    for (int i = 0; i < ex_arity(op); i++) {
        if (!in_class(wanted, arg[i]))
            *why = arena_printf(arena, "'%s' takes %s, not %s", ex_name(op), class_text[wanted],
                                dt_name(arg[i]));
        else if (arg[i] != arg[0])
            *why = arena_printf(arena, "the operands of '%s' are %s and %s", ex_name(op),
                                dt_name(arg[0]), dt_name(arg[i]));
        else if (strict && !convert && dt_is_narrow(arg[i]))
            *why = arena_printf(arena, "'%s' computes in the narrow type %s", ex_name(op),
                                dt_name(arg[i]));
        else
            continue;
        return DT_none;
    }
    if (!convert) return gives_bool(op) ? DT_bool : arg[0];
    if (in_class(CLASS_real, to) && (op == EX_cast || dt_bits(arg[0]) == dt_bits(to))) return to;
    *why =
        arena_printf(arena, "'%s' cannot make %s of %s", ex_name(op), dt_name(to), dt_name(arg[0]));
    return DT_none;
}

/* --- expressions ------------------------------------------------------------------------------ */

typedef struct Walk {
    Verifier *v;
    const VerifyScope *scope;
    const char *what;
} Walk;

static void fail_node(const Walk *w, const Expr *e, const char *why) {
    verify_fail(w->v, "%s: %s: in %s", w->what, why, ex_text(w->v->arena, &w->scope->names, e));
}

static void check_var(const Walk *w, const Expr *e) {
    const VerifyScope *s = w->scope;
    if (e->k.i < 0 || e->k.i >= s->n_vars) {
        fail_node(w, e, arena_printf(w->v->arena, "there are only %d coordinates", s->n_vars));
        return;
    }
    DType dt = s->var_types ? s->var_types[e->k.i] : DT_i32;
    if (dt == DT_none)
        fail_node(w, e, "the variable is not defined here");
    else if (dt != (DType)e->dt)
        fail_node(w, e, arena_printf(w->v->arena, "the variable is %s", dt_name(dt)));
}

/* Type and shape of what load number `source` reads. */
static const int64_t *source_shape(const VerifyScope *s, int64_t source, DType *dt, int *rank) {
    if (s->values) {
        const Value *value = s->values[source];
        *dt = value->dt;
        *rank = value->rank;
        return value->shape;
    }
    const Buffer *buffer = s->buffers[source];
    *dt = buffer->dt;
    *rank = buffer->rank;
    return buffer->shape;
}

static void check_load(const Walk *w, const Expr *e) {
    const VerifyScope *s = w->scope;
    Verifier *v = w->v;
    if (e->k.i < 0 || e->k.i >= s->n_sources) {
        fail_node(w, e, arena_printf(v->arena, "there are only %d inputs", s->n_sources));
        return;
    }
    int rank;
    DType dt;
    source_shape(s, e->k.i, &dt, &rank);
    if (s->usable && !s->usable[e->k.i]) fail_node(w, e, "the buffer is not allotted here");
    if (dt != (DType)e->dt)
        fail_node(w, e, arena_printf(v->arena, "the element loaded is %s", dt_name(dt)));
    if (rank != e->n) {
        fail_node(w, e, arena_printf(v->arena, "%d indices for rank %d", e->n, rank));
        return;
    }
    for (int i = 0; i < rank; i++)
        if (e->arg[i]->dt != DT_i32)
            fail_node(w, e,
                      arena_printf(v->arena, "index %d is %s, not i32", i,
                                   dt_name((DType)e->arg[i]->dt)));
}

/* The value must be one that its type has. */
static void check_literal(const Walk *w, const Expr *e) {
    DType dt = (DType)e->dt;
    unsigned char raw[16] = {0};
    if (dt <= DT_none || dt >= DT_count || dt_kind(dt) >= DK_complex) {
        fail_node(w, e, "there are no literals of this type");
        return;
    }
    if (dt_is_float(dt) && !isfinite(e->k.f)) return;
    dt_save(dt, raw, 0, e->k);
    Scalar back = dt_load(dt, raw, 0);
    if (back.i != e->k.i) fail_node(w, e, "the literal is no value of its type");
}

static void check_node(void *user, const Expr *e) {
    const Walk *w = user;
    Verifier *v = w->v;
    switch ((ExprOp)e->op) {
    case EX_const:
        check_literal(w, e);
        return;
    case EX_var:
        check_var(w, e);
        return;
    case EX_load:
        check_load(w, e);
        return;
    case EX_ctr:
        if (e->dt != DT_i32 || e->k.i < 0 || e->k.i >= w->scope->n_ctr)
            fail_node(w, e, arena_printf(v->arena, "there are only %d counters", w->scope->n_ctr));
        return;
    case EX_acc:
        if (w->scope->acc == DT_none)
            fail_node(w, e, "'acc' is not defined here");
        else if (w->scope->acc != (DType)e->dt)
            fail_node(w, e, arena_printf(v->arena, "'acc' is %s", dt_name(w->scope->acc)));
        return;
    default:
        break;
    }
    DType arg[3] = {DT_none, DT_none, DT_none};
    for (int i = 0; i < e->n && i < 3; i++) arg[i] = (DType)e->arg[i]->dt;
    const char *why = NULL;
    DType dt = expr_type(v->arena, (ExprOp)e->op, (DType)e->dt, arg, true, &why);
    if (dt == DT_none)
        fail_node(w, e, why);
    else if (dt != (DType)e->dt)
        fail_node(w, e,
                  arena_printf(v->arena, "it is marked %s but gives %s", dt_name((DType)e->dt),
                               dt_name(dt)));
}

/* Examines the indices of loads that are always evaluated: those not behind a guard. */
static void check_bounds(const Walk *w, Memo *seen, const Expr *e) {
    if (e->n == 0 || memo_slot(seen, e)->key) return;
    memo_set(seen, e, e);
    bool guards = e->op == EX_select || e->op == EX_and || e->op == EX_or;
    for (int i = 0; i < (guards ? 1 : e->n); i++) check_bounds(w, seen, e->arg[i]);
    if (e->op != EX_load) return;
    int rank;
    DType dt;
    const int64_t *shape = source_shape(w->scope, e->k.i, &dt, &rank);
    for (int i = 0; i < rank; i++) verify_index(w->v, w->scope, e->arg[i], shape[i], w->what);
}

void verify_expr(Verifier *v, const VerifyScope *scope, const Expr *e, DType want,
                 const char *what) {
    Walk w = {v, scope, what};
    int before = v->n_errors;
    if (!e) {
        verify_fail(v, "%s is missing", what);
        return;
    }
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    ex_visit(&scratch, e, check_node, &w);
    Memo seen = {.arena = &scratch};
    if (before == v->n_errors && scope->extents) check_bounds(&w, &seen, e);
    arena_free(&scratch);
    if (want != DT_none && want != (DType)e->dt)
        verify_fail(v, "%s gives %s where %s is wanted: %s", what, dt_name((DType)e->dt),
                    dt_name(want), ex_text(v->arena, &scope->names, e));
}

void verify_index(Verifier *v, const VerifyScope *scope, const Expr *index, int64_t size,
                  const char *what) {
    int64_t low, high;
    if (index->size > BOUNDED_SIZE || size <= 0) return;
    for (int i = 0; i < scope->n_vars; i++)
        if (scope->extents[i] == 0) return; /* in an empty loop: never evaluated */
    if (!ex_bounds(index, scope->n_vars, scope->extents, &low, &high)) return;
    if (high < 0 || low >= size)
        verify_fail(v, "%s: the index %s is always outside 0..%lld", what,
                    ex_text(v->arena, &scope->names, index), (long long)size - 1);
}
