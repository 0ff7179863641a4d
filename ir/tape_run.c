/* The instructions of tapes; see tape.h.
 *
 * The frequent operators have loops of their own, over whole blocks of TAPE_BLOCK lanes so that the
 * compiler can use vector instructions (the lanes past the end hold garbage, which none of them
 * minds); all others go through ex_apply, lane by lane, which also defines what every operator
 * means.
 */
#include "ir/tape.h"

#include <math.h>

/* d[i] = expression in i, over whole blocks. */
#define BLOCKS(field, expression)                                                                  \
    for (int at = 0; at < n; at += TAPE_BLOCK)                                                     \
        for (int i = at; i < at + TAPE_BLOCK; i++) d[i].field = (expression)
/* The same over the lanes alone. */
#define LANES(field, expression)                                                                   \
    for (int i = 0; i < n; i++) d[i].field = (expression)

typedef enum Class { CLASS_f32, CLASS_f64, CLASS_sint, CLASS_uint, CLASS_other } Class;

static Class class_of(const TapeIns *ins, DType dt) {
    if (dt == DT_f64) return CLASS_f64;
    if (dt == DT_f32) return ins->exact ? CLASS_f64 : CLASS_f32;
    if (dt_kind(dt) == DK_sint) return CLASS_sint;
    return dt_kind(dt) == DK_uint ? CLASS_uint : CLASS_other;
}

/* Shifting up and down again wraps to the type; arithmetic on the way is unsigned, which may wrap.
 */
#define SWRAP(value) ((int64_t)((uint64_t)(value) << shift) >> shift)
#define UWRAP(value) ((int64_t)((uint64_t)(value) << shift >> shift))
#define U(scalar)    ((uint64_t)(scalar).i)

#define ARITHMETIC(sign)                                                                           \
    switch (cls) {                                                                                 \
    case CLASS_f32:                                                                                \
        BLOCKS(f, (double)(float)(a[i].f sign b[i].f));                                            \
        return true;                                                                               \
    case CLASS_f64:                                                                                \
        BLOCKS(f, a[i].f sign b[i].f);                                                             \
        return true;                                                                               \
    case CLASS_sint:                                                                               \
        BLOCKS(i, SWRAP(U(a[i]) sign U(b[i])));                                                    \
        return true;                                                                               \
    case CLASS_uint:                                                                               \
        BLOCKS(i, UWRAP(U(a[i]) sign U(b[i])));                                                    \
        return true;                                                                               \
    case CLASS_other:                                                                              \
        return false;                                                                              \
    }                                                                                              \
    return false

#define COMPARISON(sign)                                                                           \
    switch (cls) {                                                                                 \
    case CLASS_f32:                                                                                \
    case CLASS_f64:                                                                                \
        BLOCKS(i, a[i].f sign b[i].f);                                                             \
        return true;                                                                               \
    case CLASS_sint:                                                                               \
        BLOCKS(i, a[i].i sign b[i].i);                                                             \
        return true;                                                                               \
    case CLASS_uint:                                                                               \
    case CLASS_other:                                                                              \
        BLOCKS(i, U(a[i]) sign U(b[i]));                                                           \
        return true;                                                                               \
    }                                                                                              \
    return false

/* NaN wins: a comparison with it is false, so it is looked for first. */
#define EXTREMUM(sign)                                                                             \
    switch (cls) {                                                                                 \
    case CLASS_f32:                                                                                \
    case CLASS_f64:                                                                                \
        BLOCKS(f, a[i].f != a[i].f || a[i].f sign b[i].f ? a[i].f : b[i].f);                       \
        return true;                                                                               \
    case CLASS_sint:                                                                               \
        BLOCKS(i, a[i].i sign b[i].i ? a[i].i : b[i].i);                                           \
        return true;                                                                               \
    default:                                                                                       \
        BLOCKS(i, U(a[i]) sign U(b[i]) ? a[i].i : b[i].i);                                         \
        return true;                                                                               \
    }

/* The frequent operators of one type; false if `op` is none of them. */
static bool run_common(const TapeIns *ins, int n) {
    Scalar *d = ins->d;
    const Scalar *a = ins->a, *b = ins->b, *c = ins->c;
    Class cls = class_of(ins, (DType)ins->from);
    int shift = 64 - dt_bits((DType)ins->dt);
    switch ((ExprOp)ins->op) {
    case EX_add:
        ARITHMETIC(+);
    case EX_sub:
        ARITHMETIC(-);
    case EX_mul:
        ARITHMETIC(*);
    case EX_div:
        if (cls == CLASS_f32)
            BLOCKS(f, (double)(float)(a[i].f / b[i].f));
        else if (cls == CLASS_f64)
            BLOCKS(f, a[i].f / b[i].f);
        else
            return false;
        return true;
    case EX_min:
        EXTREMUM(<);
    case EX_max:
        EXTREMUM(>);
    case EX_eq:
        COMPARISON(==);
    case EX_ne:
        COMPARISON(!=);
    case EX_lt:
        COMPARISON(<);
    case EX_le:
        COMPARISON(<=);
    case EX_neg:
        if (cls != CLASS_f32 && cls != CLASS_f64) return false;
        BLOCKS(f, -a[i].f);
        return true;
    case EX_abs:
        if (cls != CLASS_f32 && cls != CLASS_f64) return false;
        BLOCKS(f, fabs(a[i].f));
        return true;
    case EX_sqrt:
        if (cls != CLASS_f32) return false;
        LANES(f, (double)(float)sqrt(a[i].f));
        return true;
    case EX_exp:
    case EX_exp_low:
        if (cls != CLASS_f32) return false;
        LANES(f, (double)(float)exp(a[i].f));
        return true;
    case EX_and:
    case EX_band:
        BLOCKS(i, a[i].i & b[i].i);
        return true;
    case EX_or:
    case EX_bor:
        BLOCKS(i, a[i].i | b[i].i);
        return true;
    case EX_not:
        BLOCKS(i, a[i].i ^ 1);
        return true;
    case EX_const:
        BLOCKS(i, a[i].i & ~b[i].i);
        return true; /* see tape.h */
    case EX_select:
        BLOCKS(i, (int64_t)((U(b[i]) & (0 - U(a[i]))) | (U(c[i]) & (U(a[i]) - 1))));
        return true;
    default:
        return false;
    }
}

static bool run_cast(const TapeIns *ins, int n) {
    Scalar *d = ins->d;
    const Scalar *a = ins->a;
    DType from = (DType)ins->from, to = (DType)ins->dt;
    int shift = 64 - dt_bits(to);
    if (from == DT_bool || dt_is_int(from)) {
        if (dt_kind(to) == DK_sint)
            BLOCKS(i, SWRAP(a[i].i));
        else if (dt_kind(to) == DK_uint)
            BLOCKS(i, UWRAP(a[i].i));
        else if (to == DT_f32 && from != DT_u64)
            LANES(f, (double)(float)a[i].i);
        else if (to == DT_f64 && from != DT_u64)
            LANES(f, (double)a[i].i);
        else
            return false;
        return true;
    }
    if (to == DT_f64 || (to == DT_f32 && from != DT_f64)) { /* narrower floats are exact in f32 */
        BLOCKS(i, a[i].i);
        return true;
    }
    if (to != DT_f32) return false;
    BLOCKS(f, (double)(float)a[i].f);
    return true;
}

/* Any operator, by its definition. */
static void run_any(const TapeIns *ins, int n) {
    int arity = ex_arity((ExprOp)ins->op);
    for (int i = 0; i < n; i++) {
        Scalar args[3] = {ins->a[i], {0}, {0}};
        if (arity > 1) args[1] = ins->b[i];
        if (arity > 2) args[2] = ins->c[i];
        ins->d[i] = ex_apply((ExprOp)ins->op, (DType)ins->dt, (DType)ins->from, args);
    }
}

/* --- loads ------------------------------------------------------------------------------------ */

/* True if every lane that is wanted has its index inside. */
static bool check_index(Tape *t, const TapeLoad *l, const TapeIndex *at, int n) {
    uint64_t extent = (uint64_t)at->extent;
    for (int i = 0; i < n; i++) {
        if (U(at->lanes[i]) < extent || (l->mask && !l->mask[i].i)) continue;
        if (!t->fault.set)
            t->fault = (TapeFault){true, l->source, at->dim, at->lanes[i].i, at->extent};
        return false;
    }
    return true;
}

/* Offsets of a load, in l->offset. */
static void find_offsets(const TapeLoad *l, int64_t lane_step, int n) {
    int64_t *offset = l->offset, delta = l->delta;
    const int64_t *base = l->base;
    if (base)
        for (int i = 0; i < n; i++) offset[i] = base[i] + delta;
    else
        for (int i = 0; i < n; i++) offset[i] = delta + lane_step * i;
    for (int k = 0; k < l->n_rest; k++) {
        const Scalar *lanes = l->rest[k].lanes;
        int64_t stride = l->rest[k].stride;
        for (int i = 0; i < n; i++) offset[i] += lanes[i].i * stride;
    }
}

#define FETCH(type, field, conversion)                                                             \
    {                                                                                              \
        const type *p = data;                                                                      \
        if (!mask)                                                                                 \
            LANES(field, (conversion)p[offset[i]]);                                                \
        else                                                                                       \
            LANES(field, mask[i].i ? (conversion)p[offset[i]] : 0);                                \
        return;                                                                                    \
    }

static void fetch(DType dt, const void *data, const int64_t *offset, const Scalar *mask, Scalar *d,
                  int n) {
    bool aligned = (uintptr_t)data % dt_store(dt) == 0;
    switch (aligned ? dt : DT_none) {
    case DT_f32:
        FETCH(float, f, double)
    case DT_f64:
        FETCH(double, f, double)
    case DT_i64:
    case DT_u64:
        FETCH(int64_t, i, int64_t)
    case DT_i32:
        FETCH(int32_t, i, int64_t)
    case DT_i8:
        FETCH(int8_t, i, int64_t)
    case DT_u8:
        FETCH(uint8_t, i, int64_t)
    default:
        break;
    }
    for (int i = 0; i < n; i++)
        d[i] = !mask || mask[i].i ? dt_load(dt, data, (size_t)offset[i]) : (Scalar){.i = 0};
}

static void run_load(Tape *t, const TapeIns *ins, int n) {
    TapeLoad *l = ins->load;
    const TapeSource *source = &t->sources[l->source];
    bool inside = true;
    for (int k = 0; k < l->n_check && inside; k++)
        inside = l->clamp || check_index(t, l, &l->check[k], n);
    if (!inside) {
        for (int i = 0; i < n; i++) ins->d[i].i = 0;
        return;
    }
    find_offsets(l, source->lane_step, n);
    if (!l->clamp) {
        fetch((DType)ins->dt, source->data, l->offset, l->mask, ins->d, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        bool wanted = !l->mask || l->mask[i].i;
        for (int k = 0; k < l->n_check; k++)
            wanted &= U(l->check[k].lanes[i]) < (uint64_t)l->check[k].extent;
        ins->d[i] =
            wanted ? dt_load((DType)ins->dt, source->data, (size_t)l->offset[i]) : (Scalar){.i = 0};
    }
}

void tape_run(Tape *t, int level, int n) {
    for (int k = 0; k < t->code[level].n; k++) {
        const TapeIns *ins = &t->code[level].items[k];
        if (ins->op == EX_load)
            run_load(t, ins, n);
        else if (ins->op == EX_cast ? !run_cast(ins, n) : !run_common(ins, n))
            run_any(ins, n);
    }
}

/* --- stores ----------------------------------------------------------------------------------- */

#define STORE(type, field)                                                                         \
    {                                                                                              \
        type *p = (type *)data + first;                                                            \
        for (int i = 0; i < n; i++) p[i] = (type)lanes[i].field;                                   \
        return;                                                                                    \
    }

void tape_save(DType dt, void *data, int64_t first, const Scalar *lanes, int n) {
    bool aligned = (uintptr_t)data % dt_store(dt) == 0;
    switch (aligned ? dt : DT_none) {
    case DT_f32:
        STORE(float, f)
    case DT_f64:
        STORE(double, f)
    case DT_i64:
    case DT_u64:
        STORE(int64_t, i)
    case DT_i32:
        STORE(int32_t, i)
    case DT_bool:
    case DT_u8:
        STORE(uint8_t, i)
    default:
        break;
    }
    for (int i = 0; i < n; i++) dt_save(dt, data, (size_t)(first + i), lanes[i]);
}
