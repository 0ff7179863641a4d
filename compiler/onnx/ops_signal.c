/* Signals: DFT, STFT, windows, mel weights.
 *
 * A Fourier transform of length N = N1 * N2 is made of transforms of length N1, a product with
 * roots of unity, and transforms of length N2, again and again while N has a divisor that is small
 * enough; the short ones are sums of products with a constant table, which is what scheduling knows
 * best.
 *
 * A spectrum has large and small numbers side by side, and the small ones would drown in the
 * rounding of the large ones: it is computed in f64. Back in time all numbers are of a size, and
 * f32 is enough; there the factors are short, as few operations round least.
 *
 * Lengths and axes that are computed at run time are taken where the declared shape of the result
 * leaves only a few that they can be: all of these are computed, and the value chooses.
 */
#include "compiler/onnx/index.h"

#include <math.h>
#include <string.h>

#define FULL_TABLE 64 /* up to this length a transform is a product with a matrix */
#define SPLIT_MAX  32 /* longest first factor that a length is split into */

/* The type that is computed in. */
static DType work_type(DType dt, bool inverse) {
    return inverse ? dt_reg(dt) : DT_f64;
}

/* --- Fourier transforms ----------------------------------------------------------------------- */

/* cos and sin of 2 pi * k / n, exact where they are 0, 1/2 or 1. */
static void root_of_unity(int64_t k, int64_t n, double *re, double *im) {
    const double pi = 3.14159265358979323846;
    /* brought into the first eighth of the circle, and back */
    k %= n;
    int64_t eighth = 8 * k / n;
    int64_t quarter = (eighth + 1) / 2; /* the nearest multiple of a quarter turn */
    double angle = 2 * pi * ((double)(4 * k - quarter * n) / (4 * (double)n));
    double c = cos(angle), s = sin(angle);
    double turned[4][2] = {{c, s}, {-s, c}, {-c, -s}, {s, -c}};
    *re = turned[quarter % 4][0];
    *im = turned[quarter % 4][1];
}

/* A transform in the making: of v [before, length, after, parts] of type `work`; parts 1 (real)
 * or 2. */
typedef struct Transform {
    Node *n;
    bool inverse; /* the sign of the exponent; division by the length is not done here */
    DType work;
} Transform;

static double sign_of(const Transform *t) {
    return t->inverse ? 1 : -1;
}

/* What part `i` of the input adds to part `o` of the result through the root re + i * im. */
static double part_weight(double re, double im, int i, int o) {
    return i == o ? re : o == 1 ? im : -im;
}

/* out[p, k, q, o] = sum over t and i of v[p, t, q, i] * table[t, i, k, o] */
static Value *transform_by_table(const Transform *t, Value *v) {
    Graph *g = t->n->g;
    Exprs *x = g->x;
    int64_t n = v->dims[1], parts = v->dims[3];
    int64_t shape[4] = {v->dims[0], n, v->dims[2], 2}, table_shape[4] = {n, parts, n, 2};
    char *table = arena_array(g->arena, (size_t)(n * n * parts * 2), dt_store(t->work));
    size_t at = 0;
    for (int64_t time = 0; time < n; time++)
        for (int i = 0; i < (int)parts; i++)
            for (int64_t k = 0; k < n; k++) {
                double re, im;
                root_of_unity(time * k, n, &re, &im);
                for (int o = 0; o < 2; o++) {
                    double weight = part_weight(re, sign_of(t) * im, i, o);
                    dt_save(t->work, table, at++, (Scalar){.f = weight});
                }
            }
    Value *weights = graph_const(g, t->work, 4, table_shape, table);
    Builder b = build(g, 4, shape);
    const Expr *time = build_red(&b, n), *part = ex_i(x, 0);
    if (parts == 2) part = build_red(&b, 2);
    const Expr *from[4] = {ex_var(x, 0), time, ex_var(x, 2), part};
    const Expr *by[4] = {time, part, ex_var(x, 1), ex_var(x, 3)};
    const Expr *e = ex_mul(x, build_load(&b, v, from), build_load(&b, weights, by));
    return build_reduce(&b, t->work, COMBINE_sum, e, NULL);
}

/* The sum of (-1)^i a^(2i + from) / (2i + from)!, for |a| <= pi / 4 as exact as f64 is. */
static const Expr *series(Exprs *x, const Expr *a, int from) {
    const Expr *square = ex_mul(x, a, a), *sum = ex_num(x, DT_f64, 1);
    for (int k = from + 16; k > from; k -= 2)
        sum = ex_sub(x, ex_num(x, DT_f64, 1),
                     ex_mul(x, ex_div(x, square, ex_num(x, DT_f64, (double)(k * (k - 1)))), sum));
    return from ? ex_mul(x, a, sum) : sum;
}

/* root_of_unity where n varies, and k with the run. GPUs have no such functions of f64, so these
 * are series. */
static void root_expr(Exprs *x, const Expr *k, int64_t n, const Expr **re, const Expr **im) {
    const double pi = 3.14159265358979323846;
    const Expr *all = ex_i(x, n), *two = ex_i(x, 2);
    k = ex_bin(x, EX_rem, k, all);
    const Expr *eighth = ex_div(x, ex_mul(x, k, ex_i(x, 8)), all);
    const Expr *quarter = ex_div(x, ex_add(x, eighth, ex_i(x, 1)), two);
    const Expr *rest = ex_sub(x, ex_mul(x, k, ex_i(x, 4)), ex_mul(x, quarter, all));
    const Expr *part = ex_div(x, ex_cast(x, DT_f64, rest), extent_as(x, DT_f64, n));
    const Expr *angle = ex_mul(x, part, ex_num(x, DT_f64, pi / 2));
    const Expr *c = series(x, angle, 0), *s = series(x, angle, 1);
    /* odd quarters exchange them, the second half of the circle turns the signs */
    quarter = ex_bin(x, EX_rem, quarter, ex_i(x, 4));
    const Expr *odd = ex_bin(x, EX_eq, ex_bin(x, EX_rem, quarter, two), ex_i(x, 1));
    const Expr *far = ex_le(x, two, quarter);
    const Expr *r = ex_select(x, odd, ex_un(x, EX_neg, s), c), *i = ex_select(x, odd, c, s);
    *re = ex_select(x, far, ex_un(x, EX_neg, r), r);
    *im = ex_select(x, far, ex_un(x, EX_neg, i), i);
}

/* The roots of unity of order n as a constant [n, 2]; they are computed in a run where n varies. */
static Value *roots(const Transform *t, int64_t n) {
    Arena *arena = t->n->g->arena;
    int64_t shape[2] = {n, 2};
    if (dim_varies(n)) {
        Exprs *x = t->n->x;
        Builder b = build(t->n->g, 2, shape);
        const Expr *re, *im;
        root_expr(x, ex_var(x, 0), n, &re, &im);
        im = ex_mul(x, im, ex_num(x, DT_f64, sign_of(t)));
        const Expr *e = ex_select(x, ex_bin(x, EX_eq, ex_var(x, 1), ex_i(x, 0)), re, im);
        return build_map(&b, t->work, ex_cast(x, t->work, e));
    }
    char *table = arena_array(arena, (size_t)n * 2, dt_store(t->work));
    for (int64_t k = 0; k < n; k++) {
        double re, im;
        root_of_unity(k, n, &re, &im);
        dt_save(t->work, table, (size_t)(2 * k), (Scalar){.f = re});
        dt_save(t->work, table, (size_t)(2 * k + 1), (Scalar){.f = sign_of(t) * im});
    }
    return graph_const(t->n->g, t->work, 2, shape, table);
}

/* Part o of (v at `from`) * root, where root has the parts re and im. */
static const Expr *complex_product(Builder *b, Value *v, const Expr **from, bool real,
                                   const Expr *re, const Expr *im, const Expr *part) {
    Exprs *x = b->x;
    from[3] = ex_i(x, 0);
    const Expr *a = build_load(b, v, from);
    const Expr *first = ex_mul(x, a, re), *second = ex_mul(x, a, im);
    if (!real) {
        from[3] = ex_i(x, 1);
        const Expr *c = build_load(b, v, from);
        first = ex_sub(x, first, ex_mul(x, c, im));
        second = ex_add(x, second, ex_mul(x, c, re));
    }
    return ex_select(x, ex_bin(x, EX_eq, part, ex_i(x, 0)), first, second);
}

/* A long transform that cannot be split: roots are looked up by k * t modulo the length. */
static Value *transform_by_roots(const Transform *t, Value *v) {
    Graph *g = t->n->g;
    Exprs *x = g->x;
    int64_t n = v->dims[1], shape[4] = {v->dims[0], n, v->dims[2], 2};
    Value *table = roots(t, n);
    Builder b = build(g, 4, shape);
    const Expr *time = build_red(&b, n), *k = ex_var(x, 1);
    DType work = dim_max(x, n) <= 46340 ? DT_i32 : DT_i64;
    const Expr *turn = ex_mul(x, ex_cast(x, work, k), ex_cast(x, work, time));
    turn = ex_cast(x, DT_i32, ex_bin(x, EX_rem, turn, ex_int(x, work, n)));
    const Expr *re_at[2] = {turn, ex_i(x, 0)}, *im_at[2] = {turn, ex_i(x, 1)};
    const Expr *from[4] = {ex_var(x, 0), time, ex_var(x, 2), NULL};
    const Expr *e = complex_product(&b, v, from, v->dims[3] == 1, build_load(&b, table, re_at),
                                    build_load(&b, table, im_at), ex_var(x, 3));
    return build_reduce(&b, t->work, COMBINE_sum, e, NULL);
}

/* The first factor that a length is split into; the length itself if it is not split. */
static int64_t first_factor(const Transform *t, int64_t n) {
    if (t->inverse) {
        if (n > 4 && n % 4 == 0) return 4;
        for (int64_t f = 2; f <= SPLIT_MAX && f < n; f++)
            if (n % f == 0) return f;
        return n;
    }
    if (n <= FULL_TABLE) return n;
    for (int64_t f = SPLIT_MAX; f > 1; f--)
        if (n % f == 0) return f;
    return n;
}

static Value *transform(const Transform *t, Value *v) {
    Graph *g = t->n->g;
    Exprs *x = g->x;
    int64_t n = v->dims[1], n1 = dim_varies(n) ? n : first_factor(t, n);
    if (dim_varies(n)) return transform_by_roots(t, v);
    if (n1 == n) return n <= FULL_TABLE ? transform_by_table(t, v) : transform_by_roots(t, v);
    /* time = n2 * t1 + t2, frequency = k1 + n1 * k2 */
    int64_t n2 = n / n1, p = v->dims[0], q = v->dims[2];
    int64_t split[4] = {p, n1, dim_mul(x, q, n2), v->dims[3]};
    Value *first = transform(t, g_reshape(g, v, 4, split)), *table = roots(t, n);
    Builder b = build(g, 4, first->dims);
    const Expr *t2 = ex_div(x, ex_var(x, 2), ex_i(x, q)), *turn = ex_mul(x, ex_var(x, 1), t2);
    const Expr *re_at[2] = {turn, ex_i(x, 0)}, *im_at[2] = {turn, ex_i(x, 1)};
    const Expr *from[4] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2), NULL};
    const Expr *e = complex_product(&b, first, from, false, build_load(&b, table, re_at),
                                    build_load(&b, table, im_at), ex_var(x, 3));
    int64_t second_shape[4] = {dim_mul(x, p, n1), n2, q, 2}, apart[5] = {p, n1, n2, q, 2};
    Value *second = transform(t, g_reshape(g, build_map(&b, t->work, e), 4, second_shape));
    static const int perm[5] = {0, 2, 1, 3, 4};
    int64_t whole[4] = {p, n, q, 2};
    return g_reshape(g, g_transpose(g, g_reshape(g, second, 5, apart), perm), 4, whole);
}

/* --- DFT -------------------------------------------------------------------------------------- */

typedef struct DftForm {
    bool inverse, onesided;
} DftForm;

/* Frequencies that a transform of this length has in its result. */
static int64_t bins(Exprs *x, const DftForm *f, int64_t length) {
    return f->onesided && !f->inverse ? dim_add(x, dim_div(x, length, 2), 1) : length;
}

/* `v` [before, given, after, parts] cut or filled with zeros to the length. For the inverse of a
 * one-sided spectrum the other side is put in: conjugates, without what must be real. */
static Value *fit_length(Node *n, const DftForm *f, Value *v, int64_t length) {
    Exprs *x = n->x;
    int64_t shape[4] = {v->dims[0], length, v->dims[2], v->dims[3]}, given = v->dims[1];
    bool mirror = f->inverse && f->onesided;
    DType work = work_type(v->dt, f->inverse);
    const Expr *at = ex_var(x, 1), *zero = ex_num(x, work, 0);
    Builder b = build(n->g, 4, shape);
    if (given == 0) return zeros(n->g, work, 4, shape);
    bool whole = given == length || (!dim_varies(given) && !dim_varies(length) && given > length);
    if (!mirror && whole) {
        const Expr *same[4] = {ex_var(x, 0), at, ex_var(x, 2), ex_var(x, 3)};
        return build_map(&b, work, ex_cast(x, work, build_load(&b, v, same)));
    }
    const Expr *upper = ex_lt(x, ex_i(x, dim_div(x, length, 2)), at), *from = at;
    if (mirror) from = ex_select(x, upper, ex_sub(x, ex_i(x, length), at), at);
    const Expr *index[4] = {ex_var(x, 0), index_clamp(x, from, given), ex_var(x, 2), ex_var(x, 3)};
    const Expr *e = ex_cast(x, work, build_load(&b, v, index));
    e = ex_select(x, ex_lt(x, from, ex_i(x, given)), e, zero);
    if (mirror && shape[3] == 2) {
        const Expr *im = ex_bin(x, EX_eq, ex_var(x, 3), ex_i(x, 1));
        const Expr *real = ex_bin(x, EX_eq, at, ex_i(x, 0));
        if (dim_varies(length) || length % 2 == 0) {
            const Expr *twice = ex_mul(x, at, ex_i(x, 2));
            real = ex_bin(x, EX_or, real, ex_bin(x, EX_eq, twice, ex_i(x, length)));
        }
        e = ex_select(x, ex_and(x, im, upper), ex_un(x, EX_neg, e), e);
        e = ex_select(x, ex_and(x, im, real), zero, e);
    }
    return build_map(&b, work, e);
}

/* The transform of `v` along an axis, as type `dt`. */
static Value *dft(Node *n, const DftForm *f, Value *v, int axis, int64_t length, DType dt) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int rank = v->rank;
    int64_t flat[4] = {1, v->dims[axis], 1, v->dims[rank - 1]}, shape[MAX_RANK];
    for (int i = 0; i < rank - 1; i++) {
        shape[i] = i == axis ? bins(n->x, f, length) : v->dims[i];
        int64_t *other = &flat[i < axis ? 0 : 2];
        if (i != axis) *other = dim_mul(x, *other, v->dims[i]);
    }
    shape[rank - 1] = f->inverse && f->onesided ? 1 : 2;
    int64_t work[4] = {flat[0], length, flat[2], 2};
    if (!node_shape_ok(n, rank, shape) || !node_shape_ok(n, 4, work)) return NULL;
    int64_t most[MAX_RANK];
    dims_max(x, rank, shape, most);
    if (shape_numel(rank, most) == 0) return zeros(g, dt, rank, shape);
    Transform t = {n, f->inverse, work_type(v->dt, f->inverse)};
    Value *whole = transform(&t, fit_length(n, f, g_reshape(g, v, 4, flat), length));
    /* the part that is asked for */
    int64_t cut[4] = {flat[0], shape[axis], flat[2], shape[rank - 1]};
    Builder b = build(g, 4, cut);
    const Expr *index[4];
    for (int i = 0; i < 4; i++) index[i] = ex_var(x, i);
    const Expr *e = build_load(&b, whole, index);
    if (f->inverse) e = ex_div(x, e, extent_as(x, t.work, length));
    return g_reshape(g, build_map(&b, dt, e), rank, shape);
}

/* The transform along an axis, with the length that the inputs say. Where that is a run-time value,
 * those that give the declared extent. NULL without a report if the axis cannot give the declared
 * shape. */
static Value *dft_along(Node *n, const DftForm *f, Value *v, int axis) {
    int count, rank;
    int64_t shape[MAX_TENSOR_RANK];
    Value *given = node_in(n, 1);
    const int64_t *known = node_ints(n, 1, &count);
    bool declared = node_declared_shape(n, 0, &rank, shape) && rank == v->rank;
    for (int i = 0; i < v->rank - 1 && declared; i++)
        if (i != axis && !dim_meets(n->x, shape[i], v->dims[i])) return NULL;
    int64_t length = v->dims[axis];
    if (f->inverse && f->onesided) length = dim_mul(n->x, length - 1, 2);
    if (known && count == 1) length = known[0];
    if (!given || known) {
        int64_t most = dim_max(n->x, length);
        if (declared && !dim_meets(n->x, shape[axis], bins(n->x, f, length))) return NULL;
        if (most >= 1 && most <= INT32_MAX) return dft(n, f, v, axis, length, v->dt);
        invalid(n, E2005, "a transform of length %lld", (long long)length);
        return NULL;
    }
    if (!declared) {
        node_need_ints(n, 1, "dft_length", &count);
        return NULL;
    }
    if (!value_single(n, given) || !index_type_ok(n, given)) return NULL;
    int64_t bin_count = shape[axis];
    bool half = bins(n->x, f, 4) != 4;
    if (!half) return bin_count ? dft(n, f, v, axis, bin_count, v->dt) : NULL;
    if (bin_count < 2) return bin_count ? dft(n, f, v, axis, 1, v->dt) : NULL;
    /* an even and an odd length have as many bins */
    Value *even = dft(n, f, v, axis, 2 * bin_count - 2, v->dt);
    Value *odd = even ? dft(n, f, v, axis, 2 * bin_count - 1, v->dt) : NULL;
    Value *scalar = g_reshape(n->g, given, 0, NULL);
    Value *is_odd = odd ? node_formula(n, "a % 2 != 0", 1, &scalar) : NULL;
    return is_odd ? g_where(n->g, is_odd, odd, even) : NULL;
}

/* A tensor of which it varies whether its numbers are complex, with the parts that they have then.
 */
static Value *with_parts(Node *n, Value *v) {
    Exprs *x = n->x;
    int64_t shape[MAX_RANK];
    const Expr *at[MAX_RANK];
    int last = v->rank - 1;
    if (last < 0 || !dim_varies(v->dims[last])) return v;
    for (int i = 0; i <= last; i++) {
        shape[i] = i == last ? 2 : v->dims[i];
        at[i] = i == last ? dim_index(x, ex_var(x, i), v->dims[i]) : ex_var(x, i);
    }
    Builder b = build(n->g, v->rank, shape);
    const Expr *there = ex_lt(x, ex_var(x, last), ex_i(x, v->dims[last]));
    const Expr *e = build_load(&b, v, at);
    return build_map(&b, v->dt, ex_select(x, there, e, ex_num(x, v->dt, 0)));
}

void import_dft(Node *n) {
    Value *v = node_need(n, 0), *axis_value = n->version < 20 ? NULL : node_in(n, 2),
          *result = NULL;
    if (!v) return;
    DftForm f = {attr_int(n, "inverse", 0) != 0, attr_int(n, "onesided", 0) != 0};
    v = with_parts(n, v);
    int64_t parts = v->rank ? v->dims[v->rank - 1] : 0;
    if (v->rank < 2 || parts < 1 || parts > 2 || !dt_is_float(v->dt)) {
        invalid(n, E2005, "the input of shape %s must be floats with 1 or 2 in the last dimension",
                shape_text(n->g->arena, v->rank, v->dims));
        return;
    }
    int count;
    const int64_t *known = n->version < 20 ? NULL : node_fixed_ints(n, 2, &count);
    if (axis_value && !known) {
        if (!value_single(n, axis_value) || !dt_is_int(axis_value->dt)) {
            invalid(n, E2006, "the axis must be one integer");
            return;
        }
        Value *scalar = g_reshape(n->g, axis_value, 0, NULL);
        for (int axis = 0; axis < v->rank - 1 && !n->failed; axis++) {
            Value *one = dft_along(n, &f, v, axis);
            if (!one) continue;
            if (result && !dims_meet(n->x, one->rank, one->dims, result->rank, result->dims)) {
                node_need_ints(n, 2, "the axis", &count);
                return;
            }
            const char *formula =
                arena_printf(n->g->arena, "a == %d || a == %d", axis, axis - v->rank);
            Value *chosen = node_formula(n, formula, 1, &scalar);
            result = !result || !chosen ? one : g_where(n->g, chosen, one, result);
        }
        if (!result && !n->failed) invalid(n, E2009, "no axis gives the declared shape");
        n->out[0] = result;
        return;
    }
    int64_t fallback = n->version < 20 ? attr_int(n, "axis", 1) : -2;
    int axis = node_axis(n, known && count == 1 ? known[0] : fallback, v->rank);
    if (axis < 0) return;
    if (axis == v->rank - 1) {
        invalid(n, E2004, "axis %d holds the parts of the complex numbers", axis);
        return;
    }
    n->out[0] = dft_along(n, &f, v, axis);
    if (!n->out[0] && !n->failed)
        invalid(n, E2009, "the declared shape does not fit an input of shape %s",
                shape_text(n->g->arena, v->rank, v->dims));
}

/* com.microsoft: the last dimension of reals to the first half of their spectrum, and back. */
void import_ms_rfft(Node *n) {
    Value *v = node_need(n, 0);
    bool back = !strcmp(n->op, "Irfft");
    if (!v) return;
    if (attr_int(n, "signal_ndim", 1) != 1 || attr_int(n, "normalized", 0) ||
        attr_int(n, "onesided", 1) != 1) {
        unsupported(n, "normalized, two sides, and more than one dimension");
        return;
    }
    int last = v->rank - 1;
    int64_t shape[MAX_RANK];
    bool fits = v->rank >= 1 + back && v->rank < MAX_TENSOR_RANK && dt_is_float(v->dt) &&
                (!back || dim_meets(n->x, v->dims[last], 2));
    if (!fits || dim_max(n->x, v->dims[last - back]) < 1 + back) {
        invalid(n, E2005, "a spectrum or signal of shape %s",
                shape_text(n->g->arena, v->rank, v->dims));
        return;
    }
    DftForm f = {back, true};
    if (!back) {
        for (int i = 0; i <= last; i++) shape[i] = v->dims[i];
        shape[v->rank] = 1;
        v = g_reshape(n->g, v, v->rank + 1, shape);
        n->out[0] = dft(n, &f, v, last, shape[last], v->dt);
        return;
    }
    int64_t length = dim_mul(n->x, v->dims[last - 1] - 1, 2);
    v = dft(n, &f, v, last - 1, length, v->dt);
    if (v) n->out[0] = g_reshape(n->g, v, last, v->dims);
}

/* --- STFT ------------------------------------------------------------------------------------- */

/* Frames [batch, frames, length, parts] of the signal, times the window. `step` is one number. */
static Value *frames_of(Node *n, Value *v, Value *step, Value *window, int64_t frames,
                        int64_t length) {
    Exprs *x = n->x;
    int64_t shape[4] = {v->dims[0], frames, length, v->dims[2]}, samples = v->dims[1];
    if (!node_shape_ok(n, 4, shape)) return NULL;
    Builder b = build(n->g, 4, shape);
    const Expr *zero[MAX_RANK];
    for (int i = 0; i < step->rank; i++) zero[i] = ex_i(x, 0);
    const Expr *size = ex_int(x, DT_i64, samples);
    /* beyond the signal is silence */
    const Expr *at =
        ex_bin(x, EX_max, ex_cast(x, DT_i64, build_load(&b, step, zero)), ex_int(x, DT_i64, 0));
    at = ex_mul(x, ex_bin(x, EX_min, at, size), ex_cast(x, DT_i64, ex_var(x, 1)));
    at = ex_add(x, at, ex_cast(x, DT_i64, ex_var(x, 2)));
    at = ex_cast(x, DT_i32, ex_bin(x, EX_min, at, size));
    const Expr *from[3] = {ex_var(x, 0), index_clamp(x, at, samples), ex_var(x, 3)};
    const Expr *inside = ex_lt(x, at, ex_i(x, samples)), *t = ex_var(x, 2);
    const Expr *e = ex_cast(x, DT_f64, build_load(&b, v, from));
    if (window) {
        const Expr *weight = build_load(&b, window, &t);
        e = ex_mul(x, e, ex_cast(x, DT_f64, weight));
    }
    return build_map(&b, DT_f64, ex_select(x, inside, e, ex_num(x, DT_f64, 0)));
}

static Value *stft(Node *n, const DftForm *f, Value *v, Value *step, Value *window, int64_t frames,
                   int64_t length) {
    Value *parts = frames_of(n, v, step, window, frames, length);
    return parts ? dft(n, f, parts, 2, length, v->dt) : NULL;
}

void import_stft(Node *n) {
    Value *v = node_need(n, 0), *step = node_need(n, 1), *window = node_in(n, 2);
    Value *length_value = node_in(n, 3);
    if (!v || !step) return;
    DftForm f = {false, attr_int(n, "onesided", 1) != 0};
    int64_t shape[MAX_TENSOR_RANK], length = 0, frames;
    int rank, count, n_step;
    if (v->rank == 2) { /* a real signal may come without its last dimension */
        int64_t real[3] = {v->dims[0], v->dims[1], 1};
        v = g_reshape(n->g, v, 3, real);
    }
    v = with_parts(n, v);
    if (v->rank != 3 || !dt_is_float(v->dt) || v->dims[2] < 1 || v->dims[2] > 2 ||
        dim_max(n->x, v->dims[1]) < 1 ||
        (window && (window->rank != 1 || !dt_is_float(window->dt))) || !value_single(n, step) ||
        !dt_is_int(step->dt)) {
        invalid(n, E2005,
                "the signal must be [batch, length, 1 or 2] of floats, the step one integer");
        return;
    }
    bool declared = node_declared_shape(n, 0, &rank, shape) && rank == 4;
    const int64_t *known = node_ints(n, 3, &count), *known_step = node_ints(n, 1, &n_step);
    if (window) {
        length = window->dims[0];
    } else if (known && count == 1) {
        length = known[0];
    } else if (!length_value) {
        length = v->dims[1];
    } else if (!declared || shape[2] < 1 || !value_single(n, length_value)) {
        node_need_ints(n, 3, "frame_length", &count);
        return;
    }
    Exprs *x = n->x;
    bool fixed = !dim_varies(length) && !dim_varies(v->dims[1]);
    bool steps_back = known_step && dim_max(x, known_step[0]) < 1;
    if (dim_max(x, length) < 0 || (fixed && length > v->dims[1]) || steps_back) {
        invalid(n, E2005, "frames of length %s in a signal of length %s", dim_text(x, length),
                dim_text(x, v->dims[1]));
        return;
    }
    if (known_step && length) {
        int64_t ends = dim_add(x, dim_sub(x, v->dims[1], length), known_step[0]);
        frames = dim_div(x, dim_larger(x, ends, 0), known_step[0]);
    } else if (declared) {
        frames = shape[1];
    } else {
        node_need_ints(n, 1, "frame_step", &count);
        return;
    }
    if (length || !f.onesided || shape[2] < 2) {
        if (!length) length = shape[2];
        n->out[0] = stft(n, &f, v, step, window, frames, length);
        return;
    }
    Value *even = stft(n, &f, v, step, window, frames, 2 * shape[2] - 2);
    Value *odd = even ? stft(n, &f, v, step, window, frames, 2 * shape[2] - 1) : NULL;
    Value *scalar = g_reshape(n->g, length_value, 0, NULL);
    Value *is_odd = odd ? node_formula(n, "a % 2 != 0", 1, &scalar) : NULL;
    if (is_odd) n->out[0] = g_where(n->g, is_odd, odd, even);
}

/* --- windows ---------------------------------------------------------------------------------- */

/* A window whose size varies, computed in the run. */
static Value *window_map(Node *n, DType dt, int64_t size, bool periodic, const double *a) {
    Exprs *x = n->x;
    int64_t turn = periodic ? size : dim_larger(x, size - 1, 1);
    Builder b = build(n->g, 1, &size);
    const Expr *k = ex_var(x, 0), *e = ex_num(x, DT_f64, a[0]), *re, *im;
    root_expr(x, k, turn, &re, &im);
    e = ex_sub(x, e, ex_mul(x, ex_num(x, DT_f64, a[1]), re));
    root_expr(x, ex_mul(x, k, ex_i(x, 2)), turn, &re, &im);
    e = ex_add(x, e, ex_mul(x, ex_num(x, DT_f64, a[2]), re));
    const Expr *single = ex_bin(x, EX_eq, ex_i(x, size), ex_i(x, 1));
    return build_map(&b, dt, ex_cast(x, dt, ex_select(x, single, ex_num(x, DT_f64, 1), e)));
}

/* a[0] - a[1] * cos(angle) + a[2] * cos(2 * angle) over one turn. */
static void set_window(Node *n, const double *a) {
    int count, rank;
    int64_t size, shape[MAX_TENSOR_RANK];
    const int64_t *known = node_ints(n, 0, &count);
    DType dt = node_dtype(n, attr_int(n, "output_datatype", 1));
    bool periodic = attr_int(n, "periodic", 1) != 0;
    if (!node_need(n, 0) || dt == DT_none || n->failed) return;
    if (known && count == 1) {
        size = known[0];
    } else if (node_declared_shape(n, 0, &rank, shape) && rank == 1) {
        size = shape[0];
    } else {
        node_need_ints(n, 0, "the size", &count);
        if (!n->failed) invalid(n, E2005, "the size must be one number");
        return;
    }
    if (!node_shape_ok(n, 1, &size)) return;
    if (dim_varies(size)) {
        n->out[0] = window_map(n, dt, size, periodic, a);
        return;
    }
    char *table = arena_array(n->g->arena, (size_t)size + 1, dt_store(dt));
    int64_t turn = periodic || size < 2 ? size : size - 1;
    for (int64_t i = 0; i < size; i++) {
        double re, im, twice;
        root_of_unity(i, turn, &re, &im);
        root_of_unity(2 * i, turn, &twice, &im);
        double value = size == 1 ? 1 : a[0] - a[1] * re + a[2] * twice;
        dt_save(dt, table, (size_t)i, dt_cast(DT_f64, dt, (Scalar){.f = value}));
    }
    n->out[0] = graph_const(n->g, dt, 1, &size, table);
}

void import_hann_window(Node *n) {
    set_window(n, (double[]){0.5, 0.5, 0});
}

void import_hamming_window(Node *n) {
    set_window(n, (double[]){25.0 / 46.0, 21.0 / 46.0, 0});
}

void import_blackman_window(Node *n) {
    set_window(n, (double[]){0.42, 0.5, 0.08});
}

/* --- MelWeightMatrix -------------------------------------------------------------------------- */

/* The bins of the spectrum at which the triangles begin, peak and end: bins + 2 points that are
 * evenly spaced in mel. All operands are f64 scalars. */
static Value *mel_points(Node *n, Value *const *v, int64_t mel_bins) {
    Graph *g = n->g;
    Value *ends[2];
    for (int i = 0; i < 2; i++) {
        Value *edge = v[3 + i];
        ends[i] = node_formula(n, "log(1 + a / 700) * 1127.0104805886438", 1, &edge);
        if (!ends[i]) return NULL;
    }
    int64_t points = mel_bins + 2;
    Builder b = build(g, 1, &points);
    Value *number = build_map(&b, DT_f64, ex_cast(b.x, DT_f64, ex_var(b.x, 0)));
    Value *in[4] = {number, ends[0], ends[1], g_dim(g, DT_f64, points)};
    Value *mel = node_formula(n, "a * ((c - b) / d) + b", 4, in);
    Value *to_bin[3] = {mel, v[1], v[2]};
    Value *at =
        mel ? node_formula(n, "floor((b + 1) * (700 * (exp(a / 1127.0104805886438) - 1)) / c)", 3,
                           to_bin)
            : NULL;
    return at ? g_cast(g, at, DT_i32) : NULL;
}

void import_mel_weight_matrix(Node *n) {
    Exprs *x = n->x;
    Value *v[5];
    int rank, count[2];
    int64_t shape[MAX_TENSOR_RANK];
    DType dt = node_dtype(n, attr_int(n, "output_datatype", 1));
    for (int i = 0; i < 5; i++) {
        if (!(v[i] = node_need(n, i))) return;
        if (!value_single(n, v[i])) {
            invalid(n, E2005, "input %d must be one number", i);
            return;
        }
        v[i] = g_cast(n->g, g_reshape(n->g, v[i], 0, NULL), DT_f64);
    }
    if (dt == DT_none) return;
    const int64_t *bins_known = node_ints(n, 0, &count[0]), *length = node_ints(n, 1, &count[1]);
    if (bins_known && length && count[0] == 1 && count[1] == 1) {
        shape[0] = dim_add(x, dim_div(x, length[0], 2), 1);
        shape[1] = bins_known[0];
    } else if (!node_declared_shape(n, 0, &rank, shape) || rank != 2) {
        node_need_ints(n, bins_known ? 1 : 0, bins_known ? "dft_length" : "num_mel_bins", &rank);
        if (!n->failed) invalid(n, E2005, "num_mel_bins and dft_length must be integers");
        return;
    }
    if (!node_shape_ok(n, 2, shape) || dim_max(x, shape[1]) > INT32_MAX - 2) return;
    Value *points = mel_points(n, v, shape[1]);
    if (!points) return;
    /* up from the left point to the peak, down to the right one; a peak alone is 1 */
    Builder b = build(n->g, 2, shape);
    const Expr *j = ex_var(x, 0), *at[3], *point[3];
    for (int i = 0; i < 3; i++) {
        at[i] = ex_add(x, ex_var(x, 1), ex_i(x, i));
        point[i] = build_load(&b, points, &at[i]);
    }
    const Expr *rise = ex_sub(x, point[1], point[0]), *fall = ex_sub(x, point[2], point[1]);
    const Expr *up =
        ex_div(x, ex_cast(x, DT_f32, ex_sub(x, j, point[0])), ex_cast(x, DT_f32, rise));
    const Expr *down =
        ex_div(x, ex_cast(x, DT_f32, ex_sub(x, point[2], j)), ex_cast(x, DT_f32, fall));
    const Expr *zero = ex_num(x, DT_f32, 0), *one = ex_num(x, DT_f32, 1);
    const Expr *flat = ex_bin(x, EX_eq, rise, ex_i(x, 0)), *is_peak = ex_bin(x, EX_eq, j, point[1]);
    const Expr *left = ex_and(x, ex_le(x, point[0], j), ex_le(x, j, point[1]));
    const Expr *e =
        ex_select(x, flat, ex_select(x, is_peak, one, zero), ex_select(x, left, up, zero));
    const Expr *right = ex_and(x, ex_le(x, point[1], j), ex_lt(x, j, point[2]));
    e = ex_select(x, right, down, e);
    n->out[0] = build_map(&b, dt, e);
}
