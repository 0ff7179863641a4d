/* Sums of products, which matrix products and convolutions without padding are: direct strided
 * loops over the tensors' memory with double accumulators, several times as fast as a tape.
 *
 * The innermost loop runs along the last output coordinate (a row of accumulators) where there are
 * enough outputs in a row, else along the last reduction coordinate. */
#include "ir/interp_plan.h"

#include <string.h>

/* --- recognition
 * ----------------------------------------------------------------------------------*/

/* A load of floats, perhaps widened, with affine indices that stay inside. */
static bool read_operand(const Op *op, const Expr *e, int n, DotPlan *dot, int which) {
    if (e->op == EX_cast && dt_is_float((DType)e->arg[0]->dt) && dt_is_float((DType)e->dt) &&
        dt_bits((DType)e->dt) >= dt_bits((DType)e->arg[0]->dt))
        e = e->arg[0];
    if (e->op != EX_load || !dt_is_float((DType)e->dt)) return false;
    const Value *v = op->in[e->k.i];
    dot->source[which] = (int)e->k.i;
    dot->dt[which] = v->dt;
    dot->count[which] = value_numel(v);
    int64_t stride = 1;
    for (int dim = v->rank - 1; dim >= 0; dim--) {
        int64_t coef[MAX_RANK], constant;
        if (!tape_affine(e->arg[dim], n, coef, &constant)) return false;
        int64_t lo = constant, hi = constant;
        for (int k = 0; k < n; k++) {
            int64_t span = coef[k] * (dot->extent[k] - 1);
            hi += span > 0 ? span : 0;
            lo += span > 0 ? 0 : span;
            dot->stride[which][k] += coef[k] * stride;
        }
        if (lo < 0 || hi >= v->shape[dim]) return false;
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
    }
    if (dim < dot->rank)
        dot->rank--;
    else
        dot->n_red--;
}

/* Makes one dimension of neighbours that both operands step through as if they were one. */
static void merge_dims(DotPlan *dot) {
    for (int k = dot->rank + dot->n_red - 1; k >= 0; k--)
        if (dot->extent[k] == 1 && (k < dot->rank || dot->n_red > 1)) drop_dim(dot, k);
    for (int k = dot->rank + dot->n_red - 2; k >= 0; k--) {
        bool fits = k != dot->rank - 1;
        for (int w = 0; w < 2; w++)
            fits &= dot->stride[w][k] == dot->extent[k + 1] * dot->stride[w][k + 1];
        if (!fits) continue;
        dot->extent[k + 1] *= dot->extent[k];
        drop_dim(dot, k);
    }
}

DotPlan *dot_plan(Arena *arena, const Op *op) {
    const Expr *body = op->body;
    if (op->combine != COMBINE_sum || op->n_red == 0) return NULL;
    if (body->dt != DT_f32 && body->dt != DT_f64) return NULL;
    DotPlan *dot = ARENA_NEW(arena, DotPlan);
    int n = op_extents(op, dot->extent);
    for (int k = 0; k < n; k++)
        if (dot->extent[k] == 0) return NULL;
    dot->rank = op->out[0]->rank;
    dot->n_red = n - dot->rank;
    bool is_product = body->op == EX_mul;
    if (!read_operand(op, is_product ? body->arg[0] : body, n, dot, 0)) return NULL;
    if (!is_product || body->arg[1]->op == EX_const) {
        dot->source[1] = -1;
        dot->dt[1] = DT_f64;
        dot->factor = is_product ? body->arg[1]->k.f : 1;
    } else if (!read_operand(op, body->arg[1], n, dot, 1)) {
        return NULL;
    }
    merge_dims(dot);
    return dot;
}

/* --- inner loops
 * ----------------------------------------------------------------------------------*/

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

/* The two operands at some position. */
typedef struct Position {
    const unsigned char *at[2];
} Position;

static size_t size_of(const DotPlan *dot, int which) {
    return dot->dt[which] == DT_f64 ? sizeof(double) : sizeof(float);
}

static void advance(const DotPlan *dot, Position *p, int dim, int64_t by) {
    for (int w = 0; w < 2; w++)
        p->at[w] += (ptrdiff_t)size_of(dot, w) * (ptrdiff_t)(dot->stride[w][dim] * by);
}

#define CALL(call)                                                                                 \
    if (a_is_f32 && b_is_f32)                                                                      \
        call(float, float);                                                                        \
    else if (a_is_f32)                                                                             \
        call(float, double);                                                                       \
    else if (b_is_f32)                                                                             \
        call(double, float);                                                                       \
    else                                                                                           \
        call(double, double)

static void add_row(const DotPlan *dot, const Position *p, int dim, int n, Scalar *acc) {
    bool a_is_f32 = dot->dt[0] != DT_f64;
    bool b_is_f32 = dot->dt[1] != DT_f64;
    int64_t sa = dot->stride[0][dim], sb = dot->stride[1][dim];
    const void *a = p->at[0], *b = p->at[1];
#define CALL_ROW(ta, tb) row_##ta##_##tb(acc, a, sa, b, sb, n)
    CALL(CALL_ROW);
}

static double sum_line(const DotPlan *dot, const Position *p, int dim) {
    bool a_is_f32 = dot->dt[0] != DT_f64;
    bool b_is_f32 = dot->dt[1] != DT_f64;
    int64_t sa = dot->stride[0][dim], sb = dot->stride[1][dim], n = dot->extent[dim];
    const void *a = p->at[0], *b = p->at[1];
    double sum = 0;
#define CALL_LINE(ta, tb) sum = line_##ta##_##tb(a, sa, b, sb, n)
    CALL(CALL_LINE);
    return sum;
}

/* --- outer loops
 * ----------------------------------------------------------------------------------*/

/* Sums over reduction dimensions dim.. into n accumulators along the last output coordinate. */
static void reduce_row(const DotPlan *dot, Position p, int dim, int n, Scalar *acc) {
    if (dim == dot->rank + dot->n_red) {
        add_row(dot, &p, dot->rank - 1, n, acc);
        return;
    }
    for (int64_t i = 0; i < dot->extent[dim]; i++) {
        reduce_row(dot, p, dim + 1, n, acc);
        advance(dot, &p, dim, 1);
    }
}

static double reduce_point(const DotPlan *dot, Position p, int dim) {
    if (dim == dot->rank + dot->n_red - 1) return sum_line(dot, &p, dim);
    double sum = 0;
    for (int64_t i = 0; i < dot->extent[dim]; i++) {
        sum += reduce_point(dot, p, dim + 1);
        advance(dot, &p, dim, 1);
    }
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
            for (int64_t i = 0; i < dot->count[w]; i++)
                wide[i] = (float)dt_load(dt, data, (size_t)i).f;
            data = wide;
        } else if ((uintptr_t)data % dt_store(dt)) {
            data = arena_copy(scratch, data, (size_t)dot->count[w] * dt_store(dt));
        }
        dot->data[w] = data;
    }
}

void dot_run(const DotPlan *dot, int64_t first, int n, Scalar *acc) {
    Position origin;
    for (int w = 0; w < 2; w++)
        origin.at[w] = (const unsigned char *)dot->data[w] +
                       (ptrdiff_t)size_of(dot, w) * (ptrdiff_t)dot->offset[w];
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
            reduce_row(dot, p, dot->rank, run, acc + at);
        } else {
            for (int i = 0; i < run; i++) {
                acc[at + i].f = reduce_point(dot, p, dot->rank);
                if (last >= 0) advance(dot, &p, last, 1);
            }
        }
        at += run;
    }
}
