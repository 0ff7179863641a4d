/* The functions that C models with vector types use instead of the C library's, against the latter
 * in double precision: for a dense sample of all floats, and the special ones. */
#include "compiler/driver.h"
#include "tests/unit/graph_random.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT   65536
#define SPECIAL 16
#define ROUNDS  66 /* every 993rd float */

static const char *cache;

static double sigmoid(double x) {
    return 1 / (exp(-x) + 1);
}

/* Of -infinity its limit. */
static double gelu(double x) {
    return x == -INFINITY ? 0 : x * erfc(-x / sqrt(2)) / 2;
}

static const struct {
    ExprOp op; /* EX_div: of the sigmoid, EX_mul: of gelu */
    double (*right)(double);
    double most;  /* units in the last place, */
    double least; /* where results are not less; those may be anything between 0 and this, or, */
    double error; /* where arguments are below -1, this much away */
} functions[] = {{EX_exp, exp, 1.2, 0, 0},           {EX_exp_low, exp, 1.2, 0x1p-126, 0},
                 {EX_tanh, tanh, 2.0, 0, 0},         {EX_erf, erf, 2.7, 0, 0},
                 {EX_log, log, 1.0, 0, 0},           {EX_sin, sin, 1.3, 0, 0},
                 {EX_cos, cos, 1.3, 0, 0},           {EX_mul, gelu, 2.6, 0, 4e-8},
                 {EX_div, sigmoid, 2.3, 0x1p-126, 0}};

/* Where vectors have 64 bytes a sigmoid is exp, a sum and a quotient: twice 1.2 and twice a half,
 * for one unit of the denominator may be two of the result, and its own half. Gelu is its parts,
 * too, and loses all digits of what is left of 1. */
#define MOST_BY_EXP 3.7

enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static double ulps(float got, double right) {
    int exponent;
    if (isnan(right) || isnan(got)) return isnan(right) && isnan(got) ? 0 : INFINITY;
    if (isinf((float)right) || isinf(got)) return (float)right == got ? 0 : INFINITY;
    if (right == 0 && got == 0) return !signbit(right) == !signbit(got) ? 0 : INFINITY;
    frexp(right, &exponent);
    return fabs(got - right) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

/* All exponents and signs, with mantissas that differ from one to the next. */
static void sample(float *x, uint32_t round) {
    static const float special[SPECIAL] = {0,       -0.0f,   INFINITY, -INFINITY, NAN,    1,
                                           -1,      1e-45f,  -1e-45f,  88.72f,    88.73f, -103.9f,
                                           -104.1f, 3.4e38f, -3.4e38f, 1.2e-38f};
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = i << 16 | (i * 40503u + round * 9973u) % 65536;
        memcpy(&x[i], &bits, sizeof bits);
    }
    memcpy(x, special, sizeof special);
}

static int body(Session *s) {
    int64_t shape = COUNT;
    Graph *g = graph_new(&s->arena, &s->x, &s->diag, "math");
    Value *in = graph_input(g, "x", DT_f32, 1, &shape);
    for (int i = 0; i < N_FUNCTIONS; i++) {
        Builder b = build(g, 1, &shape);
        const Expr *e = build_in(&b, in), *one = ex_num(&s->x, DT_f32, 1);
        if (functions[i].op == EX_mul)
            e = ex_mul(
                &s->x, ex_mul(&s->x, e, ex_num(&s->x, DT_f32, 0.5)),
                ex_add(&s->x,
                       ex_un(&s->x, EX_erf, ex_mul(&s->x, e, ex_num(&s->x, DT_f32, sqrt(0.5)))),
                       one));
        else if (functions[i].op == EX_div)
            e = ex_div(&s->x, one,
                       ex_add(&s->x, ex_un(&s->x, EX_exp, ex_un(&s->x, EX_neg, e)), one));
        else
            e = ex_un(&s->x, functions[i].op, e);
        graph_output(g, build_map(&b, DT_f32, e), ex_name(functions[i].op));
    }
    s->target = target_find("c");
    Program *p = session_lower(s, g);
    const char *path = arena_printf(&s->arena, "%s/math.so", cache);
    LoadedModel m = {0};
    assert_true(p && write_program(s, p, path) && model_load(s, &m, path, NULL));
    const bool by_exp = s->target->vector_bytes > 32;
    float *x = ARENA_ARRAY(&s->arena, COUNT, float), *y[N_FUNCTIONS];
    void *out[N_FUNCTIONS];
    for (int i = 0; i < N_FUNCTIONS; i++) out[i] = y[i] = ARENA_ARRAY(&s->arena, COUNT, float);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        sample(x, round);
        const void *inputs[] = {x};
        assert_true(model_run(s, &m, inputs, out));
        for (int i = 0; i < N_FUNCTIONS; i++)
            for (int k = 0; k < COUNT && !(by_exp && functions[i].op == EX_mul); k++) {
                double right = functions[i].right(x[k]), least = functions[i].least;
                if (fabs(right) < least && y[i][k] >= 0 && y[i][k] <= least) continue;
                if (functions[i].op == EX_exp_low && x[k] > 0) continue;
                if (functions[i].op == EX_mul && x[k] < -8 && y[i][k] != 0)
                    fail_msg("gelu(%.9g) = %.9g is not 0", (double)x[k], (double)y[i][k]);
                if (x[k] < -1 && fabs(y[i][k] - right) <= functions[i].error) continue;
                double error = ulps(y[i][k], right), most = functions[i].most;
                if (by_exp && functions[i].op == EX_div) most = MOST_BY_EXP;
                if (error > most)
                    fail_msg("%s(%.9g) = %.9g, %g units in the last place away",
                             ex_name(functions[i].op), (double)x[k], (double)y[i][k], error);
            }
    }
    model_unload(&m);
    unlink(path);
    return 0;
}

static LoadedModel loaded(Session *s, Graph *g) {
    s->target = target_find("c");
    Program *p = session_lower(s, g);
    const char *path = arena_printf(&s->arena, "%s/%s.so", cache, g->name);
    LoadedModel m = {0};
    assert_true(p && write_program(s, p, path) && model_load(s, &m, path, NULL));
    unlink(path);
    return m;
}

static const Expr *encoded(Exprs *x, const Expr *e) {
    e = ex_bin(x, EX_max, e, ex_num(x, DT_f32, -128));
    return ex_cast(x, DT_i32, ex_un(x, EX_round, ex_bin(x, EX_min, e, ex_num(x, DT_f32, 127))));
}

static int byte_of(double x) {
    return isnan(x) ? 0 : (int)rint(fmin(fmax(x, -128), 127));
}

/* Bytes of rounded floats that were rounded before, as integers or not; NaN becomes 0. */
static int body_rounding(Session *s) {
    int64_t shape = COUNT - 3; /* lanes and a rest */
    Exprs *x = &s->x;
    Graph *g = graph_new(&s->arena, x, &s->diag, "rounding");
    Value *in = graph_input(g, "x", DT_f32, 1, &shape);
    for (int i = 0; i < 2; i++) {
        Builder b = build(g, 1, &shape);
        const Expr *e = encoded(x, build_in(&b, in));
        if (i) e = ex_sub(x, e, ex_int(x, DT_i32, 40));
        e = encoded(x, ex_mul(x, ex_cast(x, DT_f32, e), ex_num(x, DT_f32, 0.75)));
        graph_output(g, build_map(&b, DT_i8, ex_cast(x, DT_i8, e)), i ? "moved" : "plain");
    }
    LoadedModel m = loaded(s, g);
    float *from = ARENA_ARRAY(&s->arena, COUNT, float);
    int8_t *plain = ARENA_ARRAY(&s->arena, COUNT, int8_t);
    int8_t *moved = ARENA_ARRAY(&s->arena, COUNT, int8_t);
    sample(from, 0);
    for (int i = SPECIAL; i < COUNT; i += 7) from[i] = (float)(i % 600 - 300) / 2;
    const void *inputs[] = {from};
    void *out[] = {plain, moved};
    assert_true(model_run(s, &m, inputs, out));
    for (int i = 0; i < shape; i++) {
        int once = byte_of(from[i]);
        if (plain[i] != byte_of(once * 0.75) || moved[i] != byte_of((once - 40) * 0.75))
            fail_msg("%.9g becomes %d and %d", (double)from[i], plain[i], moved[i]);
    }
    model_unload(&m);
    return 0;
}

/* Products of integers wrap around, also where vectors add them; the C compiler has all else trap.
 */
static int body_wraps(Session *s) {
    enum { ROWS = 8, DEPTH = 5, COLUMNS = 32 };
    Exprs *x = &s->x;
    Graph *g = graph_new(&s->arena, x, &s->diag, "wraps");
    Value *a = graph_input(g, "a", DT_i32, 2, (const int64_t[]){ROWS, DEPTH});
    Value *b = graph_input(g, "b", DT_i32, 2, (const int64_t[]){DEPTH, COLUMNS});
    Builder p = build(g, 2, (const int64_t[]){ROWS, COLUMNS});
    const Expr *k = build_red(&p, DEPTH);
    const Expr *left = build_load(&p, a, (const Expr *[]){ex_var(x, 0), k});
    const Expr *right = build_load(&p, b, (const Expr *[]){k, ex_var(x, 1)});
    graph_output(g, build_reduce(&p, DT_i32, COMBINE_sum, ex_mul(x, left, right), NULL), "y");
    LoadedModel m = loaded(s, g);
    int32_t in_a[ROWS * DEPTH], in_b[DEPTH * COLUMNS], y[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * DEPTH; i++) in_a[i] = i % 3 ? INT32_MIN + i : INT32_MAX - i;
    for (int i = 0; i < DEPTH * COLUMNS; i++) in_b[i] = i % 2 ? 2 * i + 1 : -i;
    assert_true(model_run(s, &m, (const void *[]){in_a, in_b}, (void *[]){y}));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        uint32_t sum = 0;
        for (int d = 0; d < DEPTH; d++)
            sum +=
                (uint32_t)in_a[i / COLUMNS * DEPTH + d] * (uint32_t)in_b[d * COLUMNS + i % COLUMNS];
        assert_int_equal(y[i], (int32_t)sum);
    }
    model_unload(&m);
    return 0;
}

/* So do sums of products of bytes, or of words, that start with what is added to them, also in the
 * lanes that are left over. */
static int narrow_wraps(Session *s, DType rows, DType columns, int64_t n) {
    enum { ROWS = 3, DEPTH = 8 };
    Exprs *x = &s->x;
    Graph *g = graph_new(&s->arena, x, &s->diag, "narrow");
    int16_t a[ROWS * DEPTH], *b = ARENA_ARRAY(&s->arena, DEPTH * n, int16_t); /* room for either */
    int64_t most = columns == DT_i8 ? INT8_MIN : INT16_MIN;
    for (int i = 0; i < ROWS * DEPTH; i++)
        dt_save(rows, a, (size_t)i,
                (Scalar){.i = rows == DT_u8 ? UINT8_MAX - i : INT16_MIN + i / 2});
    for (int64_t i = 0; i < DEPTH * n; i++)
        dt_save(columns, b, (size_t)i, (Scalar){.i = most + i % 5});
    Value *in = graph_input(g, "a", rows, 2, (const int64_t[]){ROWS, DEPTH});
    Value *bias = graph_input(g, "bias", DT_i32, 1, &n);
    Value *constant = graph_const(g, columns, 2, (const int64_t[]){DEPTH, n}, b);
    Builder p = build(g, 2, (const int64_t[]){ROWS, n});
    const Expr *k = build_red(&p, DEPTH), *column = ex_var(x, 1);
    const Expr *left = build_load(&p, in, (const Expr *[]){ex_var(x, 0), k});
    const Expr *right = build_load(&p, constant, (const Expr *[]){k, column});
    const Expr *product = ex_mul(x, ex_cast(x, DT_i32, left), ex_cast(x, DT_i32, right));
    const Expr *post = ex_add(x, ex_acc(x, DT_i32), build_load(&p, bias, &column));
    graph_output(g, build_reduce(&p, DT_i32, COMBINE_sum, product, post), "y");
    LoadedModel m = loaded(s, g);
    int32_t *first = ARENA_ARRAY(&s->arena, n, int32_t);
    int32_t *y = ARENA_ARRAY(&s->arena, ROWS * n, int32_t);
    for (int64_t i = 0; i < n; i++) first[i] = INT32_MIN + (int32_t)i;
    assert_true(model_run(s, &m, (const void *[]){a, first}, (void *[]){y}));
    for (int64_t i = 0; i < ROWS * n; i++) {
        uint32_t sum = (uint32_t)first[i % n];
        for (int d = 0; d < DEPTH; d++)
            sum += (uint32_t)(dt_load(rows, a, (size_t)(i / n * DEPTH + d)).i *
                              dt_load(columns, b, (size_t)(d * n + i % n)).i);
        assert_int_equal(y[i], (int32_t)sum);
    }
    model_unload(&m);
    return 0;
}

static int body_narrow_wraps(Session *s) {
    for (int64_t n = 4; n <= 21; n++) {
        narrow_wraps(s, DT_u8, DT_i8, n);
        narrow_wraps(s, DT_i16, DT_i16, n);
    }
    return 0;
}

/* The lesser of zeros of two signs is the same one in lanes and in the rest, and so on any number
 * of threads; what is less than all normal floats stays, too. */
static int zeros_of(Session *s, DType dt) {
    enum { N = 35, SMALL = 0x0040 };
    Graph *g = graph_new(&s->arena, &s->x, &s->diag, "zeros");
    Value *in = graph_input(g, "x", dt, 1, (const int64_t[]){N});
    Value *bound = graph_input(g, "bound", dt, 1, (const int64_t[]){1});
    for (int i = 0; i < 2; i++) {
        Builder b = build(g, 1, (const int64_t[]){N});
        const Expr *left = build_in(&b, in), *right = build_in(&b, bound);
        left = ex_cast(&s->x, DT_f32, left);
        right = ex_cast(&s->x, DT_f32, right);
        const Expr *e = ex_bin(&s->x, i ? EX_max : EX_min, left, right);
        graph_output(g, build_map(&b, dt, ex_cast(&s->x, dt, e)), i ? "most" : "least");
    }
    LoadedModel m = loaded(s, g);
    for (int sign = 0; sign < 2; sign++) {
        uint16_t x[N], other = sign ? 0 : 0x8000, least[N], most[N];
        for (int i = 0; i < N; i++) x[i] = sign ? 0x8000 : 0;
        assert_true(model_run(s, &m, (const void *[]){x, &other}, (void *[]){least, most}));
        for (int i = 1; i < N; i++) {
            assert_int_equal(least[i], least[0]);
            assert_int_equal(most[i], most[0]);
        }
    }
    uint16_t x[N], zero = 0, least[N], most[N];
    for (int i = 0; i < N; i++) x[i] = SMALL;
    assert_true(model_run(s, &m, (const void *[]){x, &zero}, (void *[]){least, most}));
    for (int i = 0; i < N; i++) assert_true(least[i] == 0 && most[i] == SMALL);
    model_unload(&m);
    return 0;
}

/* Squares of lanes that are turned, the last ones beside others again: every element at its place,
 * halved, as those of 16 bits show that they are computed in between. */
static int turned_of(Session *s, DType dt) {
    enum { ROWS = 37, COLUMNS = 45, N = 2 * ROWS * COLUMNS };
    Graph *g = graph_new(&s->arena, &s->x, &s->diag, "turned");
    Value *in = graph_input(g, "x", dt, 3, (const int64_t[]){2, ROWS, COLUMNS});
    Builder b = build(g, 3, (const int64_t[]){2, COLUMNS, ROWS});
    const Expr *at[3] = {ex_var(&s->x, 0), ex_var(&s->x, 2), ex_var(&s->x, 1)};
    const Expr *e = ex_cast(&s->x, DT_f32, build_load(&b, in, at));
    e = ex_cast(&s->x, dt, ex_mul(&s->x, e, ex_num(&s->x, DT_f32, 0.5)));
    Value *out = build_map(&b, dt, e);
    graph_output(g, out, "y");
    void *x = value_buffers(&s->arena, 1, &in, 0)[0], *y = value_buffers(&s->arena, 1, &out, 0)[0];
    for (int i = 0; i < N; i++) dt_save(dt, x, (size_t)i, (Scalar){.f = i % 241});
    LoadedModel m = loaded(s, g);
    assert_true(model_run(s, &m, (const void *[]){x}, (void *[]){y}));
    for (int i = 0; i < N; i++) {
        int row = i % ROWS, column = i / ROWS % COLUMNS, k = i / ROWS / COLUMNS;
        double want = ((k * ROWS + row) * COLUMNS + column) % 241 / 2.0;
        assert_true(dt_load(dt, y, (size_t)i).f == want);
    }
    model_unload(&m);
    return 0;
}

static int body_turned(Session *s) {
    return turned_of(s, DT_f32) + turned_of(s, DT_f16) + turned_of(s, DT_bf16);
}

/* Columns under a condition that does not hold are not read: here they cannot be. */
static int body_guarded(Session *s) {
    enum { ROWS = 24, DEPTH = 6, COLUMNS = 64 };
    Exprs *x = &s->x;
    Graph *g = graph_new(&s->arena, x, &s->diag, "guarded");
    Value *a = graph_input(g, "a", DT_f32, 2, (const int64_t[]){ROWS, DEPTH});
    Value *n = graph_input(g, "n", DT_i32, 1, (const int64_t[]){1});
    Value *b = graph_input(g, "b", DT_f32, 2, (const int64_t[]){DEPTH, COLUMNS});
    Builder made = build(g, 2, (const int64_t[]){ROWS, COLUMNS});
    const Expr *r = build_red(&made, DEPTH), *first[1] = {ex_i(x, 0)};
    const Expr *row[2] = {ex_var(x, 0), r}, *column[2] = {r, ex_var(x, 1)};
    const Expr *some = ex_lt(x, ex_i(x, 0), build_load(&made, n, first));
    const Expr *guarded = ex_select(x, some, build_load(&made, b, column), ex_num(x, DT_f32, 0));
    const Expr *product = ex_mul(x, build_load(&made, a, row), guarded);
    Value *out = build_reduce(&made, DT_f32, COMBINE_sum, product, NULL);
    graph_output(g, out, "y");
    float rows[ROWS * DEPTH], y[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * DEPTH; i++) rows[i] = 1;
    memset(y, 0xff, sizeof y);
    size_t bytes = sizeof(float) * DEPTH * COLUMNS;
    void *nothing = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(nothing != MAP_FAILED);
    LoadedModel m = loaded(s, g);
    int32_t none = 0;
    assert_true(model_run(s, &m, (const void *[]){rows, &none, nothing}, (void *[]){y}));
    for (int i = 0; i < ROWS * COLUMNS; i++) assert_true(y[i] == 0);
    munmap(nothing, bytes);
    model_unload(&m);
    return 0;
}

/* Memory of which nothing lies behind the last byte. */
typedef struct Tight {
    unsigned char *map;
    size_t size;
    float *data;
} Tight;

static Tight tight(size_t floats) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = floats * sizeof(float);
    Tight t = {.size = (bytes + page - 1) / page * page};
    t.map = mmap(NULL, t.size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(t.map != MAP_FAILED && !mprotect(t.map + t.size, page, PROT_NONE));
    t.size += page;
    t.data = (float *)(void *)(t.map + t.size - page - bytes);
    return t;
}

/* Products whose columns are no whole vectors, with a bias: nothing is read or written behind them.
 */
static int columns_of(Session *s, int64_t columns) {
    enum { ROWS = 19, DEPTH = 7 };
    Exprs *x = &s->x;
    Graph *g = graph_new(&s->arena, x, &s->diag, "columns");
    Value *a = graph_input(g, "a", DT_f32, 2, (const int64_t[]){ROWS, DEPTH});
    Value *b = graph_input(g, "b", DT_f32, 2, (const int64_t[]){DEPTH, columns});
    Value *bias = graph_input(g, "bias", DT_f32, 1, &columns);
    Builder made = build(g, 2, (const int64_t[]){ROWS, columns});
    const Expr *r = build_red(&made, DEPTH), *own[1] = {ex_var(x, 1)};
    const Expr *row[2] = {ex_var(x, 0), r}, *column[2] = {r, ex_var(x, 1)};
    const Expr *product = ex_mul(x, build_load(&made, a, row), build_load(&made, b, column));
    const Expr *post = ex_add(x, ex_acc(x, DT_f32), build_load(&made, bias, own));
    graph_output(g, build_reduce(&made, DT_f32, COMBINE_sum, product, post), "y");
    size_t n = (size_t)columns;
    Tight t[4] = {tight(ROWS * DEPTH), tight(DEPTH * n), tight(n), tight(ROWS * n)};
    for (int i = 0; i < ROWS * DEPTH; i++) t[0].data[i] = (float)(i % 13 - 6);
    for (size_t i = 0; i < DEPTH * n; i++) t[1].data[i] = (float)(i % 11) - 5;
    for (size_t i = 0; i < n; i++) t[2].data[i] = (float)i;
    LoadedModel m = loaded(s, g);
    const void *in[3] = {t[0].data, t[1].data, t[2].data};
    assert_true(model_run(s, &m, in, (void *[]){t[3].data}));
    for (size_t i = 0; i < ROWS * n; i++) {
        float want = t[2].data[i % n];
        for (size_t d = 0; d < DEPTH; d++)
            want += t[0].data[i / n * DEPTH + d] * t[1].data[d * n + i % n];
        assert_true(t[3].data[i] == want);
    }
    for (int i = 0; i < 4; i++) munmap(t[i].map, t[i].size);
    model_unload(&m);
    return 0;
}

static int body_columns(Session *s) {
    for (int64_t n = 2; n <= 39; n = n < 16 ? n + 1 : n + 7)
        if (columns_of(s, n)) return 1;
    return 0;
}

/* Rows that are no whole vectors, or less than one. */
static int rests_of(Session *s, int64_t columns) {
    enum { ROWS = 3 };
    Exprs *x = &s->x;
    Graph *g = graph_new(&s->arena, x, &s->diag, "rests");
    Value *a = graph_input(g, "a", DT_f32, 2, (const int64_t[]){ROWS, columns});
    Value *w = graph_input(g, "w", DT_f32, 1, &columns);
    Builder made = build(g, 2, (const int64_t[]){ROWS, columns});
    const Expr *own[1] = {ex_var(x, 1)};
    const Expr *sum = ex_add(x, build_in(&made, a), build_load(&made, w, own));
    graph_output(g, build_map(&made, DT_f32, ex_un(x, EX_exp, sum)), "y");
    size_t n = (size_t)columns;
    Tight t[3] = {tight(ROWS * n), tight(n), tight(ROWS * n)};
    for (size_t i = 0; i < ROWS * n; i++) t[0].data[i] = (float)(i % 17) / 4;
    for (size_t i = 0; i < n; i++) t[1].data[i] = -(float)i;
    LoadedModel m = loaded(s, g);
    assert_true(model_run(s, &m, (const void *[]){t[0].data, t[1].data}, (void *[]){t[2].data}));
    for (size_t i = 0; i < ROWS * n; i++) {
        const double want = exp((double)(t[0].data[i] + t[1].data[i % n]));
        assert_true(ulps(t[2].data[i], want) <= 1.1);
    }
    for (int i = 0; i < 3; i++) munmap(t[i].map, t[i].size);
    model_unload(&m);
    return 0;
}

static int body_rests(Session *s) {
    for (int64_t n = 2; n <= 39; n = n < 20 ? n + 1 : n + 6)
        if (rests_of(s, n)) return 1;
    return 0;
}

/* Windows of three that go along rows by two: nothing is read behind the last one. */
static int seconds_of(Session *s, int64_t columns) {
    enum { ROWS = 3, WINDOW = 3 };
    Exprs *x = &s->x;
    Graph *g = graph_new(&s->arena, x, &s->diag, "seconds");
    Value *a = graph_input(g, "a", DT_f32, 2, (const int64_t[]){ROWS, 2 * columns + 1});
    Builder made = build(g, 2, (const int64_t[]){ROWS, columns});
    const Expr *at = ex_add(x, ex_mul(x, ex_var(x, 1), ex_i(x, 2)), build_red(&made, WINDOW));
    const Expr *load = build_load(&made, a, (const Expr *[]){ex_var(x, 0), at});
    graph_output(g, build_reduce(&made, DT_f32, COMBINE_max, load, NULL), "y");
    size_t n = (size_t)columns, row = 2 * n + 1;
    Tight t[2] = {tight(ROWS * row), tight(ROWS * n)};
    for (size_t i = 0; i < ROWS * row; i++) t[0].data[i] = (float)(i * 37 % 101);
    LoadedModel m = loaded(s, g);
    assert_true(model_run(s, &m, (const void *[]){t[0].data}, (void *[]){t[1].data}));
    for (size_t i = 0; i < ROWS * n; i++) {
        const float *from = t[0].data + i / n * row + i % n * 2;
        assert_true(t[1].data[i] == fmaxf(fmaxf(from[0], from[1]), from[2]));
    }
    for (int i = 0; i < 2; i++) munmap(t[i].map, t[i].size);
    model_unload(&m);
    return 0;
}

static int body_seconds(Session *s) {
    for (int64_t n = 3; n <= 39; n = n < 20 ? n + 1 : n + 6)
        if (seconds_of(s, n)) return 1;
    return 0;
}

static int body_zeros(Session *s) {
    return zeros_of(s, DT_f16) + zeros_of(s, DT_bf16);
}

static void on_each(int (*what)(Session *), const char *cc) {
    static const char *const archs[] = {"native", "x86-64-v2", "x86-64-v3"};
    for (int i = 0; i < 3; i++) {
        Options o = {.model = "math.onnx", .march = archs[i], .runtime_cache = cache, .cc = cc};
#if !defined(__x86_64__)
        if (i) break;
#endif
        assert_int_equal(with_session(&o, what), 0);
    }
}

static void test_accuracy(void **state) {
    (void)state;
    on_each(body, NULL);
}

static void test_rounding(void **state) {
    (void)state;
    on_each(body_rounding, NULL);
}

static void test_wraps(void **state) {
    (void)state;
    static const char trapping[] =
        "cc -fsanitize=signed-integer-overflow -fsanitize-undefined-trap-on-error";
    on_each(body_wraps, trapping);
    on_each(body_narrow_wraps, trapping);
}

static void test_zeros(void **state) {
    (void)state;
    on_each(body_zeros, NULL);
}

static void test_turned(void **state) {
    (void)state;
    on_each(body_turned, NULL);
}

static void test_guarded(void **state) {
    (void)state;
    on_each(body_guarded, NULL);
}

static void test_columns(void **state) {
    (void)state;
    on_each(body_columns, NULL);
}

static void test_rests(void **state) {
    (void)state;
    on_each(body_rests, NULL);
}

static void test_seconds(void **state) {
    (void)state;
    on_each(body_seconds, NULL);
}

/* --strassen reaches its pass: sums of rows, products and sums of these instead of a product. */
static int body_strassen(Session *s) {
    enum { ROWS = 160, DEPTH = 640, COLUMNS = 640 };
    Graph *g = graph_new(&s->arena, &s->x, &s->diag, "strassen");
    Value *a = graph_input(g, "a", DT_f32, 2, (const int64_t[]){ROWS, DEPTH});
    float *data = ARENA_ARRAY(&s->arena, DEPTH * COLUMNS, float);
    for (int i = 0; i < DEPTH * COLUMNS; i++) data[i] = (float)(i % 7);
    Value *b = graph_const(g, DT_f32, 2, (const int64_t[]){DEPTH, COLUMNS}, data);
    graph_output(g, g_matmul(g, a, b, DT_f32, DT_f32), "y");
    s->target = target_find("c");
    Program *p = session_lower(s, g);
    assert_non_null(p);
    assert_int_equal(p->kernels.n, s->o->strassen ? 3 : 1);
    return 0;
}

static void test_strassen(void **state) {
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        Options o = {
            .model = "math.onnx", .march = "x86-64-v3", .passes = "-slice", .strassen = asked};
        assert_int_equal(with_session(&o, body_strassen), 0);
    }
}

/* --- panels that are fetched ahead ------------------------------------------------------------ */

enum { LINE = 16 /* floats */ };

/* What is fetched ahead of a buffer: panels into the L2 cache, or a few steps near. */
typedef struct Hints {
    Exprs *x;
    const Expr *extent; /* of the run, as kernels load it, */
    int64_t rows;       /* and what it is */
    int64_t var[64];
    int buffer;
    bool near;
    int64_t first; /* index; -1: there is none yet */
    int64_t lines; /* of the buffer */
    bool *hinted;  /* by line, and those of a panel more */
} Hints;

static int64_t value_in_run(const Hints *h, const Expr *e) {
    return ex_eval(ex_replace(h->x, e, h->extent, ex_i(h->x, h->rows)), h->var).i;
}

/* Goes through the loops and notes all hints. */
static void run_hints(Hints *h, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->kind == ST_let) h->var[s->var] = value_in_run(h, s->value);
        if (s->kind == ST_if) run_hints(h, value_in_run(h, s->value) ? s->body : s->other);
        if (s->kind == ST_prefetch && s->buffer == h->buffer && s->near == h->near) {
            const int64_t at = value_in_run(h, s->index[0]);
            if (h->first < 0) h->first = at;
            assert_true(at >= h->first && at < h->lines * LINE + 2 * h->first);
            h->hinted[at / LINE] = true;
        }
        const bool tile = s->kind == ST_for && s->role != ROLE_serial && s->role != ROLE_parallel;
        if (s->kind != ST_for || tile) continue;
        const int64_t extent = value_in_run(h, s->extent);
        for (h->var[s->var] = 0; h->var[s->var] < extent; h->var[s->var]++) run_hints(h, s->body);
    }
}

/* The first index of the hints for the buffer of so many elements, which must hint at all lines
 * from there in a run of so many rows; 0: there is none. */
static int64_t first_hint(Session *s, const Kernel *k, int64_t rows, int64_t numel, bool near) {
    Hints h = {.x = &s->x, .rows = rows, .near = near, .first = -1, .lines = numel / LINE};
    const Expr *zero = ex_i(h.x, 0);
    for (int i = 0; i < k->n_params; i++)
        if (k->buffers.items[i]->dt == DT_i32) h.extent = ex_load(h.x, DT_i32, i, 1, &zero);
    if (!h.extent) h.extent = zero; /* it is fixed */
    while (k->buffers.items[h.buffer]->shape[0] != numel) assert_true(++h.buffer < k->n_params);
    h.hinted = ARENA_ARRAY(&s->arena, (size_t)h.lines * 3, bool);
    run_hints(&h, k->body);
    for (int64_t i = 0; h.first >= 0 && i < h.lines; i++)
        if (h.hinted[i] != (i >= h.first / LINE)) fail_msg("line %lld", (long long)i);
    return h.first < 0 ? 0 : h.first;
}

/* What of the operands of a product is fetched ahead, in elements: a panel of columns, columns of 8
 * steps, the rows of a tile. `run`: how many of the rows, which vary, there are in a run; 0: they
 * do not. */
static void check_run_ahead(Session *s, int64_t rows, int64_t run, int64_t depth, int64_t columns,
                            int64_t panel, int64_t near, int64_t tile) {
    Graph *g = graph_new(&s->arena, &s->x, &s->diag, "ahead");
    Value *a = graph_input(g, "a", DT_f32, 2, (const int64_t[]){rows, depth});
    float *data = ARENA_ARRAY(&s->arena, (size_t)(depth * columns), float);
    for (int64_t i = 0; i < depth * columns; i++) data[i] = (float)(i % 7);
    Value *b = graph_const(g, DT_f32, 2, (const int64_t[]){depth, columns}, data);
    const int64_t dims[] = {
        run ? graph_symbol(g, graph_input(g, "n", DT_i32, 0, NULL), 1, rows) : 0, depth};
    if (run) a->dims = dims;
    graph_output(g, g_matmul(g, a, b, DT_f32, DT_f32), "y");
    s->target = target_find("c");
    Program *p = session_lower(s, g);
    assert_true(p && p->kernels.n == 1 && p->kernels.items[0]->vars.n <= 64);
    const Kernel *k = p->kernels.items[0];
    assert_int_equal(first_hint(s, k, run, depth * columns, false), panel);
    assert_int_equal(first_hint(s, k, run, depth * columns, true), near);
    assert_int_equal(first_hint(s, k, run, rows * depth, false), tile);
}

static void check_ahead(Session *s, int64_t rows, int64_t depth, int64_t columns, int64_t panel,
                        int64_t near, int64_t tile) {
    check_run_ahead(s, rows, 0, depth, columns, panel, near, tile);
}

static int body_ahead(Session *s) {
    enum { TWO = 16, THREE = 24 }; /* columns of a tile: vectors of 8 */
    check_ahead(s, 96, 512, 768, 512 * TWO, 0, 0); /* four steps need no hints for columns */
    check_ahead(s, 72, 512, 768, 512 * TWO, 0, 0); /* more than an element at once */
    check_ahead(s, 1152, 512, 768, 512 * THREE, 0, 4 * 512);        /* less than one at once */
    check_ahead(s, 800, 61, 3072, 0, 0, 0);                         /* much less */
    check_run_ahead(s, 800, 800, 64, 3072, 64 * TWO, 0, 0);         /* yet there may be few rows */
    check_run_ahead(s, 800, 20, 64, 3072, 64 * TWO, 0, 0);
    check_run_ahead(s, 800, 7, 64, 3072, 64 * TWO, 0, 0);
    check_run_ahead(s, 800, 3, 64, 3072, 64 * TWO, 0, 0); /* ... as half a tile has */
    check_ahead(s, 4, 509, 768, 0, 8 * THREE, 0);         /* one tile of rows, one step */
    check_ahead(s, 2, 510, 768, 0, 0, 0);                 /* few rows */
    check_ahead(s, 2, 512, 768, 0, 0, 0);                 /* which read streams */
    check_ahead(s, 96, 128, 64, 0, 0, 0);                 /* stays in the cache */
    check_ahead(s, 96, 65536, 16, 0, 0, 6 * 65536);       /* two panels do not fit it */
    return 0;
}

static void test_ahead(void **state) {
    (void)state;
    Options o = {.model = "math.onnx", .march = "x86-64-v3", .passes = "-slice"};
    assert_int_equal(with_session(&o, body_ahead), 0);
}

int main(void) {
    char folder[] = P_tmpdir "/mlcc-math-XXXXXX";
    cache = mkdtemp(folder);
    if (!cache) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy), cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_wraps),    cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_turned),   cmocka_unit_test(test_guarded),
        cmocka_unit_test(test_columns),  cmocka_unit_test(test_rests),
        cmocka_unit_test(test_seconds),  cmocka_unit_test(test_strassen),
        cmocka_unit_test(test_ahead)};
    int failed = cmocka_run_group_tests_name("functions of vectors", tests, NULL, NULL);
    temp_remove(cache);
    return failed;
}
