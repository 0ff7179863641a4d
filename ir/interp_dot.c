/* Sums of products, which matrix products and convolutions are: direct strided loops over the
 * tensors' memory with double accumulators, many times as fast as a tape.
 *
 * The innermost loop runs along the last output coordinate (a row of accumulators) or along the
 * last reduction coordinate (a line), whichever has the kinder strides. Padding shows as guards,
 * affine inequalities in the coordinates; they bound the innermost loop's range, so that it needs
 * no test. A term that a guard leaves out counts as 0, also if its other factor is not finite.
 * Sums of bytes and words of 16 bits, and of their products, are exact so.
 */
#include "ir/interp_plan.h"

#include <string.h>

#define MOST_WHOLE_TERMS (1 << 22) /* each less than 2^31: a double holds their sum */

/* --- recognition ------------------------------------------------------------------------------ */

/* Adds what `cond` asks for to the guards; false if it is not a conjunction of affine inequalities.
 */
static bool read_guard(DotPlan *dot, const Expr *cond, int n) {
    if (cond->op == EX_and)
        return read_guard(dot, cond->arg[0], n) && read_guard(dot, cond->arg[1], n);
    if ((cond->op != EX_le && cond->op != EX_lt) || dot->n_guard == MAX_GUARDS) return false;
    int64_t lower[MAX_RANK], upper[MAX_RANK], from, to;
    if (!tape_affine(cond->arg[0], n, lower, &from) || !tape_affine(cond->arg[1], n, upper, &to))
        return false;
    dot->slack[dot->n_guard] = to - from - (cond->op == EX_lt);
    for (int k = 0; k < n; k++) dot->slope[dot->n_guard][k] = upper[k] - lower[k];
    dot->n_guard++;
    return true;
}

/* Takes select(guard, x, 0) off x; NULL if the guard is not of a form that can be used. */
static const Expr *strip_guard(DotPlan *dot, const Expr *e, int n) {
    if (e->op != EX_select) return e;
    if (!ex_is_const(e->arg[2]) || e->arg[2]->k.f != 0) return NULL;
    return read_guard(dot, e->arg[0], n) ? strip_guard(dot, e->arg[1], n) : NULL;
}

static const Expr *strip_widening(const Expr *e) {
    if (e->op != EX_cast) return e;
    DType from = (DType)e->arg[0]->dt, to = (DType)e->dt;
    bool widens = dt_is_float(from) && dt_is_float(to) && dt_bits(to) >= dt_bits(from);
    widens |= dt_is_short(from) && to == DT_i32;
    return widens ? e->arg[0] : e;
}

/* True if sign * (constant + sum coef * coordinate) + shift >= 0 wherever the guards hold. */
static bool never_negative(const DotPlan *dot, int n, int64_t sign, const int64_t *coef,
                           int64_t constant, int64_t shift) {
    int64_t least = sign * constant + shift;
    for (int k = 0; k < n; k++)
        if (sign * coef[k] < 0) least += sign * coef[k] * (dot->extent[k] - 1);
    if (least >= 0) return true;
    for (int g = 0; g < dot->n_guard; g++) {
        bool implies = sign * constant + shift >= dot->slack[g];
        for (int k = 0; k < n && implies; k++) implies = sign * coef[k] == dot->slope[g][k];
        if (implies) return true;
    }
    return false;
}

/* A load of floats or short integers, perhaps guarded and widened, with affine indices. */
static bool read_operand(const Op *op, const Expr *e, int n, DotPlan *dot, int which) {
    e = strip_guard(dot, e, n);
    if (e) e = strip_guard(dot, strip_widening(e), n);
    if (!e || e->op != EX_load) return false;
    if (!(dot->whole ? dt_is_short((DType)e->dt) : dt_is_float((DType)e->dt))) return false;
    const Value *v = op->in[e->k.i];
    dot->source[which] = (int)e->k.i;
    dot->dt[which] = v->dt;
    dot->count[which] = value_numel(v);
    int64_t stride = 1;
    for (int dim = v->rank - 1; dim >= 0; dim--) {
        int64_t coef[MAX_RANK], constant;
        if (!tape_affine(e->arg[dim], n, coef, &constant)) return false;
        if (!never_negative(dot, n, 1, coef, constant, 0) ||
            !never_negative(dot, n, -1, coef, constant, v->shape[dim] - 1))
            return false;
        for (int k = 0; k < n; k++) dot->stride[which][k] += coef[k] * stride;
        dot->offset[which] += constant * stride;
        stride *= v->shape[dim];
    }
    return true;
}

/* Drops dimension `dim`. */
static void drop_dim(DotPlan *dot, int dim) {
    int n = dot->rank + dot->n_red;
    for (int k = dim; k + 1 < n; k++) {
        dot->extent[k] = dot->extent[k + 1];
        for (int w = 0; w < 2; w++) dot->stride[w][k] = dot->stride[w][k + 1];
        for (int g = 0; g < dot->n_guard; g++) dot->slope[g][k] = dot->slope[g][k + 1];
    }
    if (dim < dot->rank)
        dot->rank--;
    else
        dot->n_red--;
}

/* Makes one dimension of neighbours that operands and guards step through as if they were one. */
static void merge_dims(DotPlan *dot) {
    for (int k = dot->rank + dot->n_red - 1; k >= 0; k--)
        if (dot->extent[k] == 1 && (k < dot->rank || dot->n_red > 1)) drop_dim(dot, k);
    for (int k = dot->rank + dot->n_red - 2; k >= 0; k--) {
        bool fits = k != dot->rank - 1;
        for (int w = 0; w < 2; w++)
            fits &= dot->stride[w][k] == dot->extent[k + 1] * dot->stride[w][k + 1];
        for (int g = 0; g < dot->n_guard; g++)
            fits &= dot->slope[g][k] == dot->extent[k + 1] * dot->slope[g][k + 1];
        if (!fits) continue;
        dot->extent[k + 1] *= dot->extent[k];
        drop_dim(dot, k);
    }
}

DotPlan *dot_plan(Arena *arena, const Op *op) {
    const Expr *body = op->body;
    if (op->combine != COMBINE_sum || op->n_red == 0) return NULL;
    if (body->dt != DT_f32 && body->dt != DT_f64 && body->dt != DT_i32) return NULL;
    DotPlan *dot = ARENA_NEW(arena, DotPlan);
    int n = op_extents(op, dot->extent);
    dot->whole = body->dt == DT_i32;
    if (dot->whole && shape_numel(op->n_red, op->red) > MOST_WHOLE_TERMS) return NULL;
    for (int k = 0; k < n; k++)
        if (dot->extent[k] == 0) return NULL;
    dot->rank = op->out[0]->rank;
    dot->n_red = n - dot->rank;
    body = strip_guard(dot, body, n);
    if (!body) return NULL;
    bool is_product = body->op == EX_mul;
    if (!read_operand(op, is_product ? body->arg[0] : body, n, dot, 0)) return NULL;
    if (!is_product || (body->arg[1]->op == EX_const && !dot->whole)) {
        dot->source[1] = -1;
        dot->dt[1] = DT_f64;
        dot->factor = is_product ? body->arg[1]->k.f : 1;
    } else if (!read_operand(op, body->arg[1], n, dot, 1)) {
        return NULL;
    }
    merge_dims(dot);
    return dot;
}

/* --- inner loops ------------------------------------------------------------------------------ */

/* acc[i] += a[i*sa] * b[i*sb]. The common strides get loops in which they are constant. */
#define ROW(ta, tb)                                                                                \
    static void row_##ta##_##tb(Scalar *acc, const ta *a, int64_t sa, const tb *b, int64_t sb,     \
                                int n) {                                                           \
        if (sa == 1 && sb == 0) {                                                                  \
            double factor = (double)*b;                                                            \
            for (int i = 0; i < n; i++) acc[i].f += (double)a[i] * factor;                         \
        } else if (sa == 0 && sb == 1) {                                                           \
            double factor = (double)*a;                                                            \
            for (int i = 0; i < n; i++) acc[i].f += (double)b[i] * factor;                         \
        } else {                                                                                   \
            for (int i = 0; i < n; i++) acc[i].f += (double)a[i * sa] * (double)b[i * sb];         \
        }                                                                                          \
    }                                                                                              \
    static double line_##ta##_##tb(const ta *a, int64_t sa, const tb *b, int64_t sb, int64_t n) {  \
        double sum[4] = {0}; /* several chains, so that additions need not wait for each other */  \
        int64_t i = 0;                                                                             \
        if (sa == 1 && sb == 1) {                                                                  \
            for (; i + 4 <= n; i += 4)                                                             \
                for (int k = 0; k < 4; k++) sum[k] += (double)a[i + k] * (double)b[i + k];         \
        } else {                                                                                   \
            for (; i + 4 <= n; i += 4)                                                             \
                for (int k = 0; k < 4; k++)                                                        \
                    sum[k] += (double)a[(i + k) * sa] * (double)b[(i + k) * sb];                   \
        }                                                                                          \
        for (; i < n; i++) sum[0] += (double)a[i * sa] * (double)b[i * sb];                        \
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);                                              \
    }
ROW(float, float)
ROW(float, double)
ROW(double, float)
ROW(double, double)

/* Offsets of the operands and slacks of the guards at some coordinates. */
typedef struct Position {
    int64_t at[2];
    int64_t slack[MAX_GUARDS];
} Position;

static void advance(const DotPlan *dot, Position *p, int dim, int64_t by) {
    for (int w = 0; w < 2; w++) p->at[w] += dot->stride[w][dim] * by;
    for (int g = 0; g < dot->n_guard; g++) p->slack[g] += dot->slope[g][dim] * by;
}

/* Shrinks [*lo, *hi) to the steps along `dim` that the guards let through. */
static void clip(const DotPlan *dot, const Position *p, int dim, int64_t *lo, int64_t *hi) {
    for (int g = 0; g < dot->n_guard; g++) {
        int64_t slack = p->slack[g], slope = dot->slope[g][dim];
        if (slope == 0) {
            if (slack < 0) *hi = *lo;
        } else if (slope > 0) {
            if (slack + slope * *lo < 0) *lo = (slope - 1 - slack) / slope;
        } else {
            int64_t end = slack < 0 ? 0 : slack / -slope + 1;
            if (end < *hi) *hi = end;
        }
    }
}

static const void *element(const DotPlan *dot, int which, const Position *p, int dim,
                           int64_t step) {
    int64_t at = p->at[which] + dot->stride[which][dim] * step;
    return dot->dt[which] == DT_f64 ? (const void *)((const double *)dot->data[which] + at)
                                    : (const void *)((const float *)dot->data[which] + at);
}

#define CALL(call)                                                                                 \
    if (dot->dt[0] != DT_f64 && dot->dt[1] != DT_f64)                                              \
        call(float, float);                                                                        \
    else if (dot->dt[0] != DT_f64)                                                                 \
        call(float, double);                                                                       \
    else if (dot->dt[1] != DT_f64)                                                                 \
        call(double, float);                                                                       \
    else                                                                                           \
        call(double, double)

static void add_row(const DotPlan *dot, const Position *p, int n, Scalar *acc) {
    int dim = dot->rank - 1;
    int64_t lo = 0, hi = n;
    clip(dot, p, dim, &lo, &hi);
    if (lo >= hi) return;
    const void *a = element(dot, 0, p, dim, lo), *b = element(dot, 1, p, dim, lo);
    int64_t sa = dot->stride[0][dim], sb = dot->stride[1][dim];
    acc += lo;
    n = (int)(hi - lo);
#define CALL_ROW(ta, tb) row_##ta##_##tb(acc, a, sa, b, sb, n)
    CALL(CALL_ROW);
}

static double sum_line(const DotPlan *dot, const Position *p) {
    int dim = dot->rank + dot->n_red - 1;
    int64_t lo = 0, hi = dot->extent[dim];
    clip(dot, p, dim, &lo, &hi);
    if (lo >= hi) return 0;
    const void *a = element(dot, 0, p, dim, lo), *b = element(dot, 1, p, dim, lo);
    int64_t sa = dot->stride[0][dim], sb = dot->stride[1][dim];
    double sum = 0;
#define CALL_LINE(ta, tb) sum = line_##ta##_##tb(a, sa, b, sb, hi - lo)
    CALL(CALL_LINE);
    return sum;
}

/* --- outer loops ------------------------------------------------------------------------------ */

/* Sums over reduction dimensions dim.. into n accumulators along the last output coordinate. */
static void reduce_row(const DotPlan *dot, Position *p, int dim, int n, Scalar *acc) {
    if (dim == dot->rank + dot->n_red) {
        add_row(dot, p, n, acc);
        return;
    }
    for (int64_t i = 0; i < dot->extent[dim]; i++) {
        reduce_row(dot, p, dim + 1, n, acc);
        advance(dot, p, dim, 1);
    }
    advance(dot, p, dim, -dot->extent[dim]);
}

static double reduce_point(const DotPlan *dot, Position *p, int dim) {
    if (dim == dot->rank + dot->n_red - 1) return sum_line(dot, p);
    double sum = 0;
    for (int64_t i = 0; i < dot->extent[dim]; i++) {
        sum += reduce_point(dot, p, dim + 1);
        advance(dot, p, dim, 1);
    }
    advance(dot, p, dim, -dot->extent[dim]);
    return sum;
}

/* True if a row of outputs is the better inner loop. */
static bool prefers_rows(const DotPlan *dot) {
    if (dot->rank == 0) return false;
    int row = dot->rank - 1, line = dot->rank + dot->n_red - 1;
    int64_t cost_row = 0, cost_line = 0; /* cache lines are what the wider strides cost */
    for (int w = 0; w < 2; w++) {
        cost_row += dot->stride[w][row] > 1 || dot->stride[w][row] < 0;
        cost_line += dot->stride[w][line] > 1 || dot->stride[w][line] < 0;
    }
    if (dot->extent[row] < 8 || dot->extent[line] < 8) return dot->extent[row] >= dot->extent[line];
    return cost_row <= cost_line;
}

void dot_start(Arena *scratch, DotPlan *dot, const void *const *in) {
    for (int w = 0; w < 2; w++) {
        if (dot->source[w] < 0) {
            dot->data[w] = &dot->factor;
            continue;
        }
        const void *data = in[dot->source[w]];
        DType dt = dot->dt[w];
        bool direct = dt == DT_f32 || dt == DT_f64;
        if (!direct) {
            float *wide = ARENA_ARRAY(scratch, dot->count[w], float);
            for (int64_t i = 0; i < dot->count[w]; i++) {
                Scalar one = dt_load(dt, data, (size_t)i);
                wide[i] = dot->whole ? (float)one.i : (float)one.f;
            }
            data = wide;
        } else if ((uintptr_t)data % dt_store(dt)) {
            data = arena_copy(scratch, data, (size_t)dot->count[w] * dt_store(dt));
        }
        dot->data[w] = data;
    }
}

void dot_run(const DotPlan *dot, int64_t first, int n, Scalar *acc) {
    Position origin = {{dot->offset[0], dot->offset[1]}, {0}};
    memcpy(origin.slack, dot->slack, sizeof origin.slack);
    for (int i = 0; i < n; i++) acc[i].f = 0;
    int last = dot->rank - 1;
    bool rows = prefers_rows(dot);
    for (int at = 0; at < n;) {
        Position p = origin;
        int64_t rest = first + at, column = last >= 0 ? rest % dot->extent[last] : 0;
        for (int dim = last; dim >= 0; dim--) {
            advance(dot, &p, dim, rest % dot->extent[dim]);
            rest /= dot->extent[dim];
        }
        int64_t left = last >= 0 ? dot->extent[last] - column : 1;
        int run = left < n - at ? (int)left : n - at;
        if (rows) {
            reduce_row(dot, &p, dot->rank, run, acc + at);
        } else {
            for (int i = 0; i < run; i++) {
                acc[at + i].f = reduce_point(dot, &p, dot->rank);
                if (last >= 0) advance(dot, &p, last, 1);
            }
        }
        at += run;
    }
    for (int i = 0; dot->whole && i < n; i++) /* it wraps around */
        acc[i].i = (int32_t)(uint32_t)(int64_t)acc[i].f;
}
