/* The reference interpreter against plain loops, and tapes against the definition of every
 * operator. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ir/interp.h"
#include "ir/tape.h"

typedef struct Fixture {
    Arena arena;
    Exprs x;
    Diag diag;
    Graph *g;
    uint64_t seed;
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 0, NULL, NULL);
    exprs_init(&f->x, &f->arena);
    diag_init(&f->diag, &f->arena, "test");
    f->g = graph_new(&f->arena, &f->x, &f->diag, "test");
    f->g->no_fold = true;
    f->seed = 1;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    arena_free(&f->arena);
    free(f);
    return 0;
}

static uint32_t next_random(Fixture *f) {
    f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f->seed >> 33);
}

static float *random_floats(Fixture *f, int64_t n) {
    float *data = ARENA_ARRAY(&f->arena, n, float);
    for (int64_t i = 0; i < n; i++) data[i] = (float)(next_random(f) % 2000) / 500.0f - 2;
    return data;
}

static void assert_near(const float *got, const float *want, int64_t n, double tolerance) {
    for (int64_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        if (!(error <= tolerance * (1 + fabs((double)want[i]))))
            fail_msg("element %d: %g instead of %g", (int)i, (double)got[i], (double)want[i]);
    }
}

static Value *input(Fixture *f, DType dt, int rank, const int64_t *shape) {
    return graph_input(f->g, "x", dt, rank, shape);
}

/* Runs a graph of one output on the given inputs. */
static void *run(Fixture *f, Value *out, const void *const *inputs) {
    graph_output(f->g, out, "y");
    void *data = arena_alloc(&f->arena, value_bytes(out) + 1);
    assert_true(interp_graph(f->g, inputs, &data));
    return data;
}

#define SHAPE(...)  ((int64_t[]){__VA_ARGS__})
#define INPUTS(...) ((const void *[]){__VA_ARGS__})

/* --- reductions ------------------------------------------------------------------------------- */

static void check_matmul(Fixture *f, int m, int n, int k) {
    f->g = graph_new(&f->arena, &f->x, &f->diag, "matmul");
    Value *a = input(f, DT_f32, 2, SHAPE(m, k)), *b = input(f, DT_f32, 2, SHAPE(k, n));
    float *da = random_floats(f, m * k), *db = random_floats(f, k * n);
    float *got = run(f, g_matmul(f->g, a, b, DT_f32, DT_f32), INPUTS(da, db));
    float *want = ARENA_ARRAY(&f->arena, m * n, float);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int r = 0; r < k; r++) sum += (double)da[i * k + r] * (double)db[r * n + j];
            want[i * n + j] = (float)sum;
        }
    assert_near(got, want, m * n, 1e-7);
}

static void test_matmul(void **state) {
    Fixture *f = *state;
    static const int sizes[][3] = {{1, 1, 1},  {3, 5, 7},   {17, 33, 9}, {1, 1000, 64},
                                   {64, 1, 5}, {2, 300, 3}, {20, 20, 1}, {1, 1, 999}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_matmul(f, sizes[i][0], sizes[i][1], sizes[i][2]);
}

static void test_matmul_half(void **state) {
    Fixture *f = *state;
    enum { M = 5, N = 6, K = 40 };
    Value *a = input(f, DT_f16, 2, SHAPE(M, K)), *b = input(f, DT_f16, 2, SHAPE(K, N));
    float *da = random_floats(f, M * K), *db = random_floats(f, K * N);
    uint16_t ha[M * K], hb[K * N];
    for (int i = 0; i < M * K; i++) ha[i] = (uint16_t)dt_encode_float(DT_f16, (double)da[i], false);
    for (int i = 0; i < K * N; i++) hb[i] = (uint16_t)dt_encode_float(DT_f16, (double)db[i], false);
    uint16_t *got = run(f, g_matmul(f->g, a, b, DT_f32, DT_f16), INPUTS(ha, hb));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int r = 0; r < K; r++)
                sum +=
                    dt_decode_float(DT_f16, ha[i * K + r]) * dt_decode_float(DT_f16, hb[r * N + j]);
            assert_int_equal(got[i * N + j], dt_encode_float(DT_f16, (double)(float)sum, false));
        }
}

typedef struct Conv {
    int n, c, h, w, oc, kh, kw, stride, pad, dilation, group;
} Conv;

static int conv_out(const Conv *v, int in, int k) {
    return (in + 2 * v->pad - v->dilation * (k - 1) - 1) / v->stride + 1;
}

static void conv_reference(const Conv *v, const float *x, const float *w, float *y) {
    int oh = conv_out(v, v->h, v->kh), ow = conv_out(v, v->w, v->kw), cg = v->c / v->group;
    for (int i = 0; i < v->n * v->oc * oh * ow; i++) {
        int px = i % ow, py = i / ow % oh, o = i / ow / oh % v->oc, b = i / ow / oh / v->oc;
        double sum = 0;
        for (int r = 0; r < cg * v->kh * v->kw; r++) {
            int kx = r % v->kw, ky = r / v->kw % v->kh, ic = r / v->kw / v->kh;
            int iy = py * v->stride + ky * v->dilation - v->pad;
            int ix = px * v->stride + kx * v->dilation - v->pad;
            if (iy < 0 || iy >= v->h || ix < 0 || ix >= v->w) continue;
            int channel = o / (v->oc / v->group) * cg + ic;
            sum += (double)x[((b * v->c + channel) * v->h + iy) * v->w + ix] *
                   (double)w[((o * cg + ic) * v->kh + ky) * v->kw + kx];
        }
        y[i] = (float)sum;
    }
}

static void check_conv(Fixture *f, const Conv *v) {
    Exprs *x = &f->x;
    Graph *g = f->g = graph_new(&f->arena, &f->x, &f->diag, "conv");
    int oh = conv_out(v, v->h, v->kh), ow = conv_out(v, v->w, v->kw), cg = v->c / v->group;
    Value *in = input(f, DT_f32, 4, SHAPE(v->n, v->c, v->h, v->w));
    Value *weights = input(f, DT_f32, 4, SHAPE(v->oc, cg, v->kh, v->kw));
    Builder b = build(g, 4, SHAPE(v->n, v->oc, oh, ow));
    const Expr *ic = build_red(&b, cg), *ky = build_red(&b, v->kh), *kx = build_red(&b, v->kw);
    const Expr *group = ex_div(x, ex_var(x, 1), ex_i(x, v->oc / v->group));
    const Expr *k[2] = {ky, kx},
               *at[4] = {ex_var(x, 0), ex_add(x, ex_mul(x, group, ex_i(x, cg)), ic)};
    const Expr *inside = ex_int(x, DT_bool, 1);
    for (int i = 0; i < 2; i++) {
        at[2 + i] = ex_add(x, ex_mul(x, ex_var(x, 2 + i), ex_i(x, v->stride)),
                           ex_sub(x, ex_mul(x, k[i], ex_i(x, v->dilation)), ex_i(x, v->pad)));
        inside = ex_and(x, inside, ex_le(x, ex_i(x, 0), at[2 + i]));
        inside = ex_and(x, inside, ex_lt(x, at[2 + i], ex_i(x, i ? v->w : v->h)));
    }
    const Expr *wat[4] = {ex_var(x, 1), ic, ky, kx};
    const Expr *value = build_load(&b, in, at);
    if (v->pad) value = ex_select(x, inside, value, ex_num(x, DT_f32, 0));
    Value *y =
        build_reduce(&b, DT_f32, COMBINE_sum, ex_mul(x, value, build_load(&b, weights, wat)), NULL);
    float *dx = random_floats(f, value_numel(in)), *dw = random_floats(f, value_numel(weights));
    float *got = run(f, y, INPUTS(dx, dw));
    float *want = ARENA_ARRAY(&f->arena, value_numel(y), float);
    conv_reference(v, dx, dw, want);
    assert_near(got, want, value_numel(y), 1e-7);
}

static void test_conv(void **state) {
    Fixture *f = *state;
    static const Conv rows[] = {
        {1, 3, 9, 11, 4, 3, 3, 1, 1, 1, 1},  {2, 4, 8, 8, 6, 3, 3, 2, 1, 1, 2},
        {1, 4, 7, 7, 4, 3, 3, 1, 2, 2, 4},   {1, 16, 7, 7, 8, 1, 1, 1, 0, 1, 1},
        {1, 3, 10, 10, 2, 5, 3, 2, 0, 1, 1}, {1, 6, 5, 5, 6, 1, 1, 1, 0, 1, 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_conv(f, &rows[i]);
}

/* y[i] = sum over k of x[i - k] * w[k] in double, where i - k is inside: guards of both directions,
 * with the loop along the outputs and along the sum. The guards stand around the product or one
 * factor. */
static void check_polynomial(Fixture *f, int n, int k, bool outside) {
    Exprs *x = &f->x;
    int64_t m = n + k - 1;
    f->g = graph_new(&f->arena, x, &f->diag, "polynomial");
    Value *in = input(f, DT_f32, 1, SHAPE(n)), *weights = input(f, DT_f64, 1, SHAPE(k));
    Builder b = build(f->g, 1, &m);
    const Expr *r = build_red(&b, k), *at = ex_sub(x, ex_var(x, 0), r);
    const Expr *inside = ex_and(x, ex_le(x, ex_i(x, 0), at), ex_lt(x, at, ex_i(x, n)));
    const Expr *zero = ex_num(x, DT_f64, 0);
    const Expr *value = ex_cast(x, DT_f64, build_load(&b, in, &at));
    if (!outside) value = ex_select(x, inside, value, zero);
    const Expr *body = ex_mul(x, value, build_load(&b, weights, &r));
    if (outside) body = ex_select(x, inside, body, zero);
    Value *y = build_reduce(&b, DT_f64, COMBINE_sum, body, NULL);
    float *dx = random_floats(f, n), *dw = random_floats(f, k);
    double *wide = ARENA_ARRAY(&f->arena, k, double);
    for (int i = 0; i < k; i++) wide[i] = (double)dw[i];
    const double *got = run(f, y, INPUTS(dx, wide));
    for (int i = 0; i < m; i++) {
        double sum = 0;
        for (int j = 0; j < k; j++)
            if (i - j >= 0 && i - j < n) sum += (double)dx[i - j] * wide[j];
        assert_true(fabs(got[i] - sum) < 1e-12);
    }
}

static void test_polynomial(void **state) {
    static const int sizes[][2] = {{1, 1}, {30, 4}, {4, 30}, {300, 3}, {20, 20}, {2, 500}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int outside = 0; outside < 2; outside++)
            check_polynomial(*state, sizes[i][0], sizes[i][1], outside);
}

static void test_max_pool(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    enum { C = 3, H = 7, W = 6, OH = 4, OW = 3 };
    Value *in = input(f, DT_f32, 3, SHAPE(C, H, W));
    Builder b = build(f->g, 3, SHAPE(C, OH, OW));
    const Expr *k[2] = {build_red(&b, 3), build_red(&b, 3)}, *at[3] = {ex_var(x, 0)};
    const Expr *inside = ex_int(x, DT_bool, 1);
    for (int i = 0; i < 2; i++) {
        const Expr *scaled = ex_mul(x, ex_var(x, 1 + i), ex_i(x, 2));
        at[1 + i] = ex_add(x, scaled, ex_sub(x, k[i], ex_i(x, 1)));
        inside = ex_and(x, inside, ex_le(x, ex_i(x, 0), at[1 + i]));
        inside = ex_and(x, inside, ex_lt(x, at[1 + i], ex_i(x, i ? W : H)));
    }
    const Expr *body =
        ex_select(x, inside, build_load(&b, in, at), ex_num(x, DT_f32, (double)-INFINITY));
    Value *y = build_reduce(&b, DT_f32, COMBINE_max, body, NULL);
    float *dx = random_floats(f, C * H * W);
    dx[W * 3 + 3] = NAN;
    float *got = run(f, y, INPUTS(dx));
    for (int c = 0; c < C; c++)
        for (int i = 0; i < OH; i++)
            for (int j = 0; j < OW; j++) {
                float want = -INFINITY;
                for (int r = 0; r < 9; r++) {
                    int h = i * 2 + r / 3 - 1, w = j * 2 + r % 3 - 1;
                    if (h < 0 || h >= H || w < 0 || w >= W) continue;
                    float v = dx[(c * H + h) * W + w];
                    if (isnan(v) || isnan(want))
                        want = NAN;
                    else if (v > want)
                        want = v;
                }
                float value = got[(c * OH + i) * OW + j];
                assert_true(isnan(want) ? isnan(value) : value == want);
            }
}

static void test_softmax(void **state) {
    Fixture *f = *state;
    enum { N = 5, C = 37 };
    Value *in = input(f, DT_f32, 2, SHAPE(N, C));
    float *dx = random_floats(f, N * C);
    float *got = run(f, g_softmax(f->g, in, 2, false), INPUTS(dx));
    float want[N * C];
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int j = 0; j < C; j++) sum += exp((double)dx[i * C + j]);
        for (int j = 0; j < C; j++) want[i * C + j] = (float)(exp((double)dx[i * C + j]) / sum);
    }
    assert_near(got, want, N * C, 1e-6);
}

/* All combines over all axes, in both ways of using the lanes, for floats and for integers that
 * wrap. */
static void test_reduce_combines(void **state) {
    Fixture *f = *state;
    enum { A = 70, B = 9 };
    static const Combine combines[] = {COMBINE_sum, COMBINE_prod, COMBINE_max, COMBINE_min};
    int32_t di[A * B];
    float df[A * B];
    for (int i = 0; i < A * B; i++) di[i] = (int32_t)(next_random(f) * 3u);
    for (int i = 0; i < A * B; i++) df[i] = 0.5f + (float)(next_random(f) % 1000) / 1000;
    for (int k = 0; k < 4; k++)
        for (uint32_t axes = 1; axes < 4; axes++)
            for (int is_float = 0; is_float < 2; is_float++) {
                f->g = graph_new(&f->arena, &f->x, &f->diag, "reduce");
                Value *in = input(f, is_float ? DT_f32 : DT_i32, 2, SHAPE(A, B));
                Value *y = g_reduce(f->g, combines[k], in, axes, true);
                const void *got = run(f, y, INPUTS(is_float ? (void *)df : (void *)di));
                int64_t rows = y->shape[0], columns = y->shape[1];
                for (int64_t i = 0; i < rows * columns; i++) {
                    Scalar identity = combine_identity(combines[k], y->dt);
                    double sum = identity.f;
                    uint64_t whole = (uint64_t)identity.i;
                    for (int j = 0; j < A * B; j++) {
                        if (rows == A && j / B != i / columns) continue;
                        if (columns == B && j % B != i % columns) continue;
                        double v = (double)df[j];
                        int64_t w = di[j];
                        if (k == 0) sum += v, whole += (uint64_t)w;
                        if (k == 1) sum *= v, whole *= (uint64_t)w;
                        if (k == 2 && v > sum) sum = v;
                        if (k == 3 && v < sum) sum = v;
                        if (k == 2 && w > (int64_t)whole) whole = (uint64_t)w;
                        if (k == 3 && w < (int64_t)whole) whole = (uint64_t)w;
                    }
                    if (is_float)
                        assert_near((const float *)got + i, &(float){(float)sum}, 1, 1e-6);
                    else
                        assert_int_equal(((const int32_t *)got)[i], (int32_t)(uint32_t)whole);
                }
            }
}

/* A reduction over nothing gives the neutral element; a tensor of nothing is left alone. */
static void test_empty(void **state) {
    Fixture *f = *state;
    Value *in = input(f, DT_f32, 2, SHAPE(3, 0));
    float dummy = 0;
    float *got = run(f, g_reduce(f->g, COMBINE_sum, in, 2, false), INPUTS(&dummy));
    for (int i = 0; i < 3; i++) assert_true(got[i] == 0);
    f->g = graph_new(&f->arena, &f->x, &f->diag, "empty");
    in = input(f, DT_f32, 2, SHAPE(3, 0));
    run(f, g_un(f->g, EX_neg, in), INPUTS(&dummy));
    f->g = graph_new(&f->arena, &f->x, &f->diag, "empty");
    in = input(f, DT_f32, 2, SHAPE(3, 0));
    got = run(f, g_reduce(f->g, COMBINE_max, in, 3, false), INPUTS(&dummy));
    assert_true(isinf(got[0]) && got[0] < 0);
}

/* --- movement --------------------------------------------------------------------------------- */

static void test_gather(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    enum { N = 10, D = 7, K = 300 };
    Value *table = input(f, DT_f32, 2, SHAPE(N, D)), *ids = input(f, DT_i64, 1, SHAPE(K));
    Builder b = build(f->g, 2, SHAPE(K, D));
    const Expr *row = ex_var(x, 0), *id = build_load(&b, ids, &row);
    const Expr *wrapped =
        ex_select(x, ex_lt(x, id, ex_int(x, DT_i64, 0)), ex_add(x, id, ex_int(x, DT_i64, N)), id);
    const Expr *at[2] = {ex_cast(x, DT_i32, wrapped), ex_var(x, 1)};
    Value *y = build_map(&b, DT_f32, build_load(&b, table, at));
    float *dx = random_floats(f, N * D);
    int64_t di[K];
    for (int i = 0; i < K; i++) di[i] = (int64_t)(next_random(f) % (2 * N)) - N;
    float *got = run(f, y, INPUTS(dx, di));
    for (int i = 0; i < K; i++)
        for (int j = 0; j < D; j++)
            assert_true(got[i * D + j] == dx[(di[i] < 0 ? di[i] + N : di[i]) * D + j]);
}

static void test_concat_pad_transpose(void **state) {
    Fixture *f = *state;
    enum { A = 5, B = 3, C = 8 };
    Value *a = input(f, DT_i32, 2, SHAPE(A, C)), *b = input(f, DT_i32, 2, SHAPE(B, C));
    Value *both = g_concat(f->g, 2, (Value *[]){a, b}, 0);
    Value *turned = g_transpose(f->g, both, (int[]){1, 0});
    Value *y = g_pad(f->g, turned, SHAPE(1, -1), SHAPE(0, 2), (Scalar){.i = 9});
    int32_t da[A * C], db[B * C];
    for (int i = 0; i < A * C; i++) da[i] = i;
    for (int i = 0; i < B * C; i++) db[i] = 100 + i;
    int32_t *got = run(f, y, INPUTS(da, db));
    int rows = C + 1, columns = A + B + 1;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            int c = i - 1, r = j + 1;
            int want = c < 0 || r >= A + B ? 9 : r < A ? da[r * C + c] : db[(r - A) * C + c];
            assert_int_equal(got[i * columns + j], want);
        }
}

static void test_scatter(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    enum { N = 6, K = 500 };
    for (int k = 0; k < 5; k++) {
        Combine combine = (Combine)k;
        f->g = graph_new(&f->arena, &f->x, &f->diag, "scatter");
        Value *data = input(f, DT_i32, 1, SHAPE(N));
        Value *ids = input(f, DT_i64, 1, SHAPE(K)), *updates = input(f, DT_i32, 1, SHAPE(K));
        Builder b = build(f->g, 1, SHAPE(K));
        const Expr *i = ex_var(x, 0), *id = build_load(&b, ids, &i);
        const Expr *target = ex_cast(x, DT_i32, id);
        const Expr *guard = ex_le(x, ex_int(x, DT_i64, 0), id);
        Value *y = build_scatter(&b, data, combine, &target, guard, build_load(&b, updates, &i));
        int32_t dd[N] = {1, 2, 3, 4, 5, 6}, du[K], want[N];
        int64_t di[K];
        for (int j = 0; j < K; j++) {
            di[j] = (int64_t)(next_random(f) % (N + 1)) - 1;
            du[j] = (int32_t)(next_random(f) % 7) - 3 + 1000 * (j % 2);
        }
        memcpy(want, dd, sizeof dd);
        for (int j = 0; j < K; j++) {
            if (di[j] < 0) continue;
            int32_t *w = &want[di[j]];
            if (combine == COMBINE_none) *w = du[j];
            if (combine == COMBINE_sum) *w += du[j];
            if (combine == COMBINE_prod) *w = (int32_t)((uint32_t)*w * (uint32_t)du[j]);
            if (combine == COMBINE_max && du[j] > *w) *w = du[j];
            if (combine == COMBINE_min && du[j] < *w) *w = du[j];
        }
        assert_memory_equal(run(f, y, INPUTS(dd, di, du)), want, sizeof want);
    }
}

static void test_cumsum(void **state) {
    Fixture *f = *state;
    enum { A = 4, B = 90, C = 3 };
    float *dx = random_floats(f, A * B * C);
    for (int flags = 0; flags < 4; flags++)
        for (int axis = 0; axis < 3; axis++) {
            bool exclusive = flags & 1, reverse = flags & 2;
            f->g = graph_new(&f->arena, &f->x, &f->diag, "scan");
            Value *in = input(f, DT_f32, 3, SHAPE(A, B, C));
            Builder b = build(f->g, 3, in->shape);
            const Expr *at[3] = {ex_var(&f->x, 0), ex_var(&f->x, 1), ex_var(&f->x, 2)};
            at[axis] = ex_var(&f->x, 3);
            Value *y = build_scan(&b, DT_f32, COMBINE_sum, axis, exclusive, reverse,
                                  build_load(&b, in, at));
            float *got = run(f, y, INPUTS(dx)), want[A * B * C];
            int64_t extent = in->shape[axis], stride = axis == 0 ? B * C : axis == 1 ? C : 1;
            for (int64_t i = 0; i < A * B * C; i++) {
                int64_t here = i / stride % extent;
                double sum = 0;
                for (int64_t r = 0; r < extent; r++) {
                    int64_t distance = reverse ? r - here : here - r;
                    if (distance < exclusive) continue;
                    sum += (double)dx[i + (r - here) * stride];
                }
                want[i] = (float)sum;
            }
            assert_near(got, want, A * B * C, 1e-6);
        }
}

/* h' = h * w + x[t]; both the last state and the stack of all states come out. */
static void test_loop(void **state) {
    Fixture *f = *state;
    enum { T = 5, N = 3 };
    Graph *g = f->g;
    Value *h0 = input(f, DT_f32, 1, SHAPE(N)), *xs = input(f, DT_f32, 2, SHAPE(T, N));
    Value *w = input(f, DT_f32, 1, SHAPE(N));
    Graph *sub = graph_new_sub(g);
    Value *h = graph_input(sub, "h", DT_f32, 1, h0->shape);
    Value *sx = graph_input(sub, "x", DT_f32, 2, xs->shape);
    Value *sw = graph_input(sub, "w", DT_f32, 1, w->shape);
    Builder b = build(sub, 1, h0->shape);
    const Expr *at[2] = {ex_ctr(&f->x, 0), ex_var(&f->x, 0)};
    const Expr *body =
        ex_add(&f->x, ex_mul(&f->x, build_in(&b, h), build_in(&b, sw)), build_load(&b, sx, at));
    Value *next = build_map(&b, DT_f32, body);
    graph_output(sub, next, "h");
    graph_output(sub, next, "all");
    Value *out[2];
    build_loop(g, sub, T, 1, 3, (Value *[]){h0, xs, w}, out);
    graph_output(g, out[0], "last");
    graph_output(g, out[1], "all");
    float *dh = random_floats(f, N), *dx = random_floats(f, T * N), *dw = random_floats(f, N);
    float last[N], all[T * N];
    assert_true(interp_graph(g, INPUTS(dh, dx, dw), (void *[]){last, all}));
    for (int i = 0; i < N; i++) {
        float v = dh[i];
        for (int t = 0; t < T; t++) {
            float product = v * dw[i];
            v = product + dx[t * N + i];
            assert_true(all[t * N + i] == v);
        }
        assert_true(last[i] == v);
    }
    /* no iteration: the state is what it was */
    out[0]->def->trips = 0;
    assert_true(interp_graph(g, INPUTS(dh, dx, dw), (void *[]){last, all}));
    assert_memory_equal(last, dh, sizeof last);
}

static void test_reshape(void **state) {
    Fixture *f = *state;
    Value *in = input(f, DT_i32, 2, SHAPE(2, 3));
    int32_t data[6] = {1, 2, 3, 4, 5, 6};
    int32_t *got = run(f, g_reshape(f->g, in, 3, SHAPE(3, 1, 2)), INPUTS(data));
    assert_memory_equal(got, data, sizeof data);
}

/* --- guards and faults ------------------------------------------------------------------------ */

/* A guard that is itself made of a guarded load: x[x[i]] wherever that is inside, else -1. */
static void test_nested_guards(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    enum { N = 40, M = 60 };
    Value *in = input(f, DT_i32, 1, SHAPE(N));
    Builder b = build(f->g, 1, SHAPE(M));
    const Expr *i = ex_var(x, 0), *first = build_load(&b, in, &i);
    const Expr *second = build_load(&b, in, &first);
    const Expr *inside = ex_lt(x, i, ex_i(x, N));
    const Expr *good =
        ex_and(x, ex_and(x, inside, ex_le(x, ex_i(x, 0), first)), ex_lt(x, first, ex_i(x, N)));
    const Expr *outside = ex_bin(x, EX_or, ex_un(x, EX_not, inside), ex_lt(x, first, ex_i(x, 0)));
    const Expr *body = ex_select(x, good, second,
                                 ex_select(x, outside, ex_i(x, -1), ex_add(x, first, ex_i(x, 7))));
    Value *y = build_map(&b, DT_i32, body);
    int32_t data[N];
    for (int k = 0; k < N; k++) data[k] = (int32_t)(next_random(f) % (2 * N)) - N / 2;
    int32_t *got = run(f, y, INPUTS(data));
    for (int k = 0; k < M; k++) {
        int want = k >= N || data[k] < 0 ? -1 : data[k] < N ? data[data[k]] : data[k] + 7;
        assert_int_equal(got[k], want);
    }
}

/* Selects within selects that share what they choose from would double a tape at every level. */
static void test_deep_sharing(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    enum { N = 64, DEPTH = 40 };
    Value *in = input(f, DT_i32, 1, SHAPE(N));
    Builder b = build(f->g, 1, SHAPE(N + 1));
    const Expr *i = ex_var(x, 0);
    const Expr *e = ex_select(x, ex_lt(x, i, ex_i(x, N)), build_load(&b, in, &i), ex_i(x, 5));
    for (int k = 0; k < DEPTH; k++) {
        const Expr *bit = ex_bin(x, EX_band, ex_bin(x, EX_shr, i, ex_i(x, k % 6)), ex_i(x, 1));
        const Expr *cond = ex_bin(x, EX_eq, bit, ex_i(x, k % 2));
        e = ex_select(x, cond, ex_add(x, e, ex_i(x, k)), ex_bin(x, EX_bxor, e, ex_i(x, k)));
    }
    Value *y = build_map(&b, DT_i32, e);
    int32_t data[N];
    for (int k = 0; k < N; k++) data[k] = (int32_t)next_random(f) % 1000;
    int32_t *got = run(f, y, INPUTS(data));
    for (int p = 0; p <= N; p++) {
        int want = p < N ? data[p] : 5;
        for (int k = 0; k < DEPTH; k++) want = ((p >> (k % 6)) & 1) == k % 2 ? want + k : want ^ k;
        assert_int_equal(got[p], want);
    }
}

enum { POOL = 40, TABLE = 16, POINTS = 64 };

/* What a body means, evaluated lazily; stops the test if it reads outside the table. */
static int64_t evaluate(const Expr *e, const int64_t *vars, const int32_t *table) {
    if (e->op == EX_const) return e->k.i;
    if (e->op == EX_var) return vars[e->k.i];
    int64_t a = evaluate(e->arg[0], vars, table);
    if (e->op == EX_load) {
        assert_in_range(a, 0, TABLE - 1);
        return table[a];
    }
    if (e->op == EX_select) return evaluate(e->arg[a ? 1 : 2], vars, table);
    if (e->op == EX_and && !a) return 0;
    if (e->op == EX_or && a) return 1;
    Scalar args[2] = {{a}, {e->n > 1 ? evaluate(e->arg[1], vars, table) : 0}};
    return ex_apply((ExprOp)e->op, (DType)e->dt, (DType)e->arg[0]->dt, args).i;
}

/* Random bodies of shared parts, of which some may only be evaluated behind a guard. */
static void random_body(Fixture *f) {
    static const ExprOp ops[] = {EX_add, EX_sub, EX_mul, EX_div, EX_rem, EX_band, EX_shr, EX_min};
    Exprs *x = &f->x;
    f->g = graph_new(&f->arena, x, &f->diag, "random");
    Value *in = input(f, DT_i32, 1, SHAPE(TABLE));
    Builder b = build(f->g, 1, SHAPE(POINTS));
    const Expr *pool[POOL] = {ex_var(x, 0), ex_i(x, 3), ex_i(x, -20)};
    const Expr *cond[POOL] = {ex_lt(x, pool[0], ex_i(x, TABLE / 2))};
    int n = 3, n_cond = 1;
    while (n < POOL) {
        const Expr *p = pool[next_random(f) % (unsigned)n], *q = pool[next_random(f) % (unsigned)n];
        const Expr *c = cond[next_random(f) % (unsigned)n_cond];
        const Expr *read = build_load(&b, in, &p);
        const Expr *inside = ex_and(x, ex_le(x, ex_i(x, 0), p), ex_lt(x, p, ex_i(x, TABLE)));
        switch (next_random(f) % 5) {
        case 0:
            pool[n++] = ex_bin(x, ops[next_random(f) % 8], p, q);
            break;
        case 1:
            pool[n++] = ex_select(x, c, p, q);
            break;
        case 2:
            pool[n++] = ex_select(x, inside, read, q);
            break;
        case 3:
            pool[n++] = ex_select(x, ex_bin(x, EX_or, ex_un(x, EX_not, inside), c), q,
                                  ex_add(x, read, ex_select(x, c, read, q)));
            break;
        default:
            if (n_cond == POOL) break;
            cond[n_cond++] = next_random(f) % 2
                                 ? ex_and(x, ex_and(x, c, inside), ex_lt(x, read, q))
                                 : ex_bin(x, EX_or, ex_un(x, EX_not, inside), ex_lt(x, q, read));
        }
    }
    const Expr *body = pool[n - 1];
    Value *y = build_map(&b, DT_i32, body);
    if (y == in) return;
    int32_t table[TABLE];
    for (int i = 0; i < TABLE; i++) table[i] = (int32_t)(next_random(f) % 40) - 10;
    const int32_t *got = run(f, y, INPUTS(table));
    for (int64_t i = 0; i < POINTS; i++)
        assert_int_equal(got[i], evaluate(y->def->body, &i, table));
}

static void test_random_bodies(void **state) {
    for (int i = 0; i < 300; i++) random_body(*state);
}

static void run_outside(Fixture *f, bool by_data) {
    Exprs *x = &f->x;
    Value *in = input(f, DT_i32, 2, SHAPE(4, 4));
    Builder b = build(f->g, 1, SHAPE(4));
    const Expr *i = ex_var(x, 0), *at[2] = {i, ex_add(x, i, ex_i(x, 1))};
    if (by_data) at[1] = build_load(&b, in, (const Expr *[]){i, i});
    Value *y = build_map(&b, DT_i32, build_load(&b, in, at));
    int32_t data[16] = {0, 0, 0, 0, 0, -1};
    run(f, y, INPUTS(data));
}

/* An index outside its tensor stops the program with the status of our own bugs, even if it would
 * still be within the tensor's memory. */
static void test_fault(void **state) {
    for (int by_data = 0; by_data < 2; by_data++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            if (!freopen("/dev/null", "w", stderr)) _exit(1);
            run_outside(*state, by_data);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 70);
    }
}

/* --- tapes ------------------------------------------------------------------------------------ */

static const int64_t int_samples[] = {0,  1,  -1,  2,   3,    -7,        31,        32,
                                      33, 64, 127, 128, -128, INT32_MAX, INT32_MIN, 65535};
static const double float_samples[] = {0.0,   -0.0, 1.0,   -1.5, 0.1,   2.5,   -3.5, 1e10,
                                       1e-40, 3e38, -3e38, 7.25, 1e300, -1e30, 0.5,  123456.789};

/* Constants of a type: the samples, brought to it, and some that float types have besides. */
static Scalar sample(DType dt, int k) {
    if (!dt_is_float(dt)) {
        if (dt == DT_i64 && k == 13) return (Scalar){.i = INT64_MIN};
        return dt_cast(DT_i64, dt, (Scalar){.i = int_samples[k]});
    }
    double value = k == 14 ? (double)INFINITY : k == 15 ? (double)NAN : float_samples[k];
    return dt_cast(DT_f64, dt, (Scalar){.f = value});
}

static bool same_scalar(DType dt, Scalar a, Scalar b) {
    if (dt_is_float(dt) && isnan(a.f)) return isnan(b.f);
    return a.i == b.i;
}

/* Evaluates `op` on loads of all pairs of samples and compares with its definition. */
static void check_op(Fixture *f, ExprOp op, DType from, DType to) {
    enum { S = 16, N = S * S };
    Exprs *x = &f->x;
    Scalar a[N], b[N];
    void *da = arena_alloc(&f->arena, N * 8), *db = arena_alloc(&f->arena, N * 8);
    for (int i = 0; i < N; i++) {
        a[i] = sample(from, i / S);
        b[i] = sample(from, i % S);
        dt_save(from, da, (size_t)i, a[i]);
        dt_save(from, db, (size_t)i, b[i]);
    }
    f->g = graph_new(&f->arena, x, &f->diag, "op");
    Value *va = input(f, from, 1, SHAPE(N)), *vb = input(f, from, 1, SHAPE(N));
    Builder builder = build(f->g, 1, SHAPE(N));
    const Expr *ea = build_in(&builder, va), *eb = build_in(&builder, vb);
    const Expr *e = op == EX_cast       ? ex_cast(x, to, ea)
                    : ex_arity(op) == 1 ? ex_un(x, op, ea)
                                        : ex_bin(x, op, ea, eb);
    if (e == ea) return;
    Value *y = build_map(&builder, (DType)e->dt, e);
    const void *got = run(f, y, INPUTS(da, db));
    for (int i = 0; i < N; i++) {
        Scalar args[2] = {a[i], b[i]};
        Scalar want = ex_apply(op, (DType)e->dt, from, args),
               value = dt_load(y->dt, got, (size_t)i);
        if (!same_scalar(y->dt, value, want))
            fail_msg("%s of %s to %s: pair %d", ex_name(op), dt_name(from), dt_name(y->dt), i);
    }
}

static void test_operators(void **state) {
    Fixture *f = *state;
    static const DType ints[] = {DT_i32, DT_u32, DT_i64, DT_u64}, floats[] = {DT_f32, DT_f64};
    static const ExprOp int_ops[] = {EX_neg, EX_abs, EX_bnot, EX_add,  EX_sub, EX_mul,  EX_div,
                                     EX_rem, EX_min, EX_max,  EX_band, EX_bor, EX_bxor, EX_shl,
                                     EX_shr, EX_eq,  EX_ne,   EX_lt,   EX_le};
    static const ExprOp float_ops[] = {
        EX_neg,   EX_abs,  EX_sqrt,  EX_exp,   EX_log,   EX_sin,   EX_cos, EX_tanh, EX_erf,
        EX_floor, EX_ceil, EX_round, EX_trunc, EX_isnan, EX_isinf, EX_add, EX_sub,  EX_mul,
        EX_div,   EX_rem,  EX_min,   EX_max,   EX_pow,   EX_eq,    EX_ne,  EX_lt,   EX_le};
    for (size_t t = 0; t < 4; t++)
        for (size_t k = 0; k < sizeof int_ops / sizeof *int_ops; k++)
            check_op(f, int_ops[k], ints[t], ints[t]);
    for (size_t t = 0; t < 2; t++)
        for (size_t k = 0; k < sizeof float_ops / sizeof *float_ops; k++)
            check_op(f, float_ops[k], floats[t], floats[t]);
    static const ExprOp bool_ops[] = {EX_not, EX_and, EX_or, EX_bxor, EX_eq, EX_ne};
    for (size_t k = 0; k < sizeof bool_ops / sizeof *bool_ops; k++)
        check_op(f, bool_ops[k], DT_bool, DT_bool);
}

static void test_all_casts(void **state) {
    Fixture *f = *state;
    for (int from = DT_none + 1; from < DT_count; from++)
        for (int to = DT_none + 1; to < DT_count; to++) {
            if (dt_kind((DType)from) > DK_float || dt_kind((DType)to) > DK_float || from == to)
                continue;
            check_op(f, EX_cast, (DType)from, (DType)to);
        }
}

static void test_bits(void **state) {
    Fixture *f = *state;
    Value *in = input(f, DT_f32, 1, SHAPE(3));
    Builder b = build(f->g, 1, in->shape);
    Value *y = build_map(&b, DT_u32, ex_bits(&f->x, DT_u32, build_in(&b, in)));
    float data[3] = {1.0f, -0.0f, 0.1f};
    assert_memory_equal(run(f, y, INPUTS(data)), data, sizeof data);
}

/* A map in f32 gives what C's float arithmetic gives, operator by operator. */
static void test_f32_rounding(void **state) {
    Fixture *f = *state;
    enum { N = 1000 };
    Value *v[3];
    const char *names[3] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) v[i] = input(f, DT_f32, 1, SHAPE(N));
    Value *y = g_formula(f->g, "a * b + c / (a - b)", 3, names, v);
    float *a = random_floats(f, N), *b = random_floats(f, N), *c = random_floats(f, N);
    float *got = run(f, y, INPUTS(a, b, c));
    for (int i = 0; i < N; i++) {
        volatile float product = a[i] * b[i], difference = a[i] - b[i];
        volatile float quotient = c[i] / difference;
        volatile float sum = product + quotient;
        assert_true(got[i] == sum || (isnan(got[i]) && isnan(sum)));
    }
}

/* Constant operators fold through interp_op, also from memory that is not aligned. */
static void test_folding(void **state) {
    Fixture *f = *state;
    f->g->no_fold = false;
    unsigned char raw[9 * 4 + 1];
    float a[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    memcpy(raw + 1, a, sizeof a);
    Value *odd = graph_const(f->g, DT_f32, 2, SHAPE(3, 3), raw + 1);
    Value *square = g_matmul(f->g, odd, odd, DT_f32, DT_f32);
    assert_true(value_is_const(square));
    const float want[9] = {30, 36, 42, 66, 81, 96, 102, 126, 150};
    assert_memory_equal(square->data, want, sizeof want);
    Value *negative = g_un(f->g, EX_neg, odd);
    assert_true(value_is_const(negative) && ((const float *)negative->data)[8] == -9);
}

/* A product of large constants folds; one of twice FOLD_MAX_PRODUCTS stays an operator. */
static void test_folding_products(void **state) {
    Fixture *f = *state;
    f->g->no_fold = false;
    enum { ROWS = 300, DEPTH = 512 };
    float *ones = ARENA_ARRAY(&f->arena, DEPTH * DEPTH, float);
    for (int i = 0; i < DEPTH * DEPTH; i++) ones[i] = 1;
    Value *a = graph_const(f->g, DT_f32, 2, SHAPE(ROWS, DEPTH), ones);
    Value *b = graph_const(f->g, DT_f32, 2, SHAPE(DEPTH, DEPTH), ones);
    Value *product = g_matmul(f->g, a, b, DT_f32, DT_f32);
    assert_true(value_is_const(product));
    assert_true(((const float *)product->data)[ROWS * DEPTH - 1] == DEPTH);
    Value *many = graph_const(f->g, DT_f32, 2, SHAPE(8 * DEPTH, DEPTH), NULL);
    assert_false(value_is_const(g_matmul(f->g, many, b, DT_f32, DT_f32)));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_matmul),
        TEST(test_matmul_half),
        TEST(test_conv),
        TEST(test_polynomial),
        TEST(test_max_pool),
        TEST(test_softmax),
        TEST(test_reduce_combines),
        TEST(test_empty),
        TEST(test_gather),
        TEST(test_concat_pad_transpose),
        TEST(test_scatter),
        TEST(test_cumsum),
        TEST(test_loop),
        TEST(test_reshape),
        TEST(test_nested_guards),
        TEST(test_deep_sharing),
        TEST(test_random_bodies),
        TEST(test_fault),
        TEST(test_operators),
        TEST(test_all_casts),
        TEST(test_bits),
        TEST(test_f32_rounding),
        TEST(test_folding),
        TEST(test_folding_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
