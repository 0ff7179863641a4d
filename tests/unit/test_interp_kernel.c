/* The kernel interpreter: kernels built by hand against plain loops, and the mistakes it must find.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/interp.h"

typedef struct Fixture {
    Arena arena;
    Exprs x;
    Diag diag;
    Program *p;
    Kernel *k;
    const char *message;
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 0, NULL, NULL);
    exprs_init(&f->x, &f->arena);
    diag_init(&f->diag, &f->arena, "test");
    f->p = program_new(graph_new(&f->arena, &f->x, &f->diag, "test"));
    f->k = kernel_new(f->p, "k");
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    arena_free(&f->arena);
    free(f);
    return 0;
}

#define SHAPE(...) ((int64_t[]){__VA_ARGS__})
#define INDEX(...) ((const Expr *[]){__VA_ARGS__})

static int param(Fixture *f, const char *name, int rank, const int64_t *shape) {
    return kernel_buffer(f->p, f->k, name, SPACE_param, DT_f32, rank, shape);
}

static Stmt *stmt_for(Fixture *f, Role role, int64_t extent, const Expr **var) {
    Stmt *s = stmt_new(f->p, ST_for);
    s->var = kernel_var(f->p, f->k, "i", DT_i32, extent);
    s->role = role;
    s->extent = ex_i(&f->x, extent);
    *var = ex_var(&f->x, s->var);
    return s;
}

static Stmt *stmt_store(Fixture *f, int buffer, const Expr *const *index, const Expr *value) {
    Stmt *s = stmt_new(f->p, ST_store);
    int rank = f->k->buffers.items[buffer]->rank;
    s->buffer = buffer;
    s->index = arena_copy(&f->arena, index, (size_t)rank * sizeof *index);
    s->value = value;
    return s;
}

static Stmt *stmt_alloc(Fixture *f, int buffer) {
    Stmt *s = stmt_new(f->p, ST_alloc);
    s->buffer = buffer;
    return s;
}

static const Expr *load(Fixture *f, int buffer, const Expr *const *index) {
    const Buffer *b = f->k->buffers.items[buffer];
    return ex_load(&f->x, b->dt, buffer, b->rank, index);
}

static bool run(Fixture *f, void *const *buffers) {
    f->message = "";
    return interp_kernel_checked(&f->arena, f->k, buffers, NULL, &f->message);
}

static void assert_message(const Fixture *f, const char *part) {
    if (!strstr(f->message, part)) fail_msg("message '%s' has no '%s'", f->message, part);
}

static void fill(float *data, int n) {
    for (int i = 0; i < n; i++) data[i] = (float)((i * 37 + 11) % 64) / 8 - 3;
}

/* --- serial and CPU kernels ------------------------------------------------------------------- */

enum { M = 37, N = 20, K = 9 };

static void check_product(const float *a, const float *b, const float *c) {
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int r = 0; r < K; r++) sum += a[i * K + r] * b[r * N + j];
            assert_true(c[i * N + j] == sum);
        }
}

/* for i (rows) { acc[1]; for j (columns) { acc = 0; for r { acc += ... }; c = acc } } */
static void run_matmul(Fixture *f, Role rows, Role columns, bool shared_acc) {
    Exprs *x = &f->x;
    f->k = kernel_new(f->p, "matmul");
    int a = param(f, "a", 2, SHAPE(M, K)), b = param(f, "b", 2, SHAPE(K, N));
    int c = param(f, "c", 2, SHAPE(M, N));
    int acc = kernel_buffer(f->p, f->k, "acc", SPACE_reg, DT_f32, 1, SHAPE(1));
    const Expr *i, *j, *r, *zero = ex_i(x, 0);
    Stmt *loop_i = stmt_for(f, rows, M, &i), *loop_j = stmt_for(f, columns, N, &j);
    Stmt *loop_r = stmt_for(f, ROLE_serial, K, &r);
    const Expr *product = ex_mul(x, load(f, a, INDEX(i, r)), load(f, b, INDEX(r, j)));
    stmt_append(&loop_r->body,
                stmt_store(f, acc, INDEX(zero), ex_add(x, load(f, acc, INDEX(zero)), product)));
    stmt_append(shared_acc ? &f->k->body : &loop_j->body, stmt_alloc(f, acc));
    stmt_append(&loop_j->body, stmt_store(f, acc, INDEX(zero), ex_num(x, DT_f32, 0)));
    stmt_append(&loop_j->body, loop_r);
    stmt_append(&loop_j->body, stmt_store(f, c, INDEX(i, j), load(f, acc, INDEX(zero))));
    stmt_append(&loop_i->body, loop_j);
    stmt_append(&f->k->body, loop_i);
    float da[M * K], db[K * N], dc[M * N];
    fill(da, M * K);
    fill(db, K * N);
    bool ok = run(f, (void *[]){da, db, dc});
    bool independent = rows == ROLE_serial && columns == ROLE_serial;
    if (shared_acc && !independent) {
        assert_false(ok);
        assert_message(f, "race on buffer 'acc', element 0");
        return;
    }
    if (!ok) fail_msg("%s", f->message);
    check_product(da, db, dc);
    memset(dc, 0, sizeof dc);
    interp_kernel(f->k, (void *[]){da, db, dc}, NULL);
    check_product(da, db, dc);
}

static void test_cpu_matmul(void **state) {
    Fixture *f = *state;
    for (int shared_acc = 0; shared_acc < 2; shared_acc++) {
        run_matmul(f, ROLE_serial, ROLE_serial, shared_acc);
        run_matmul(f, ROLE_parallel, ROLE_serial, shared_acc);
        run_matmul(f, ROLE_parallel, ROLE_vector, shared_acc);
        run_matmul(f, ROLE_serial, ROLE_vector, shared_acc);
        run_matmul(f, ROLE_unroll, ROLE_vector, shared_acc);
    }
}

/* y[i] = sum of x[0..i), with an extent that differs between lanes, lets, an if with an else. */
static void test_control(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    enum { L = 300 };
    int in = param(f, "x", 1, SHAPE(L)), out = param(f, "y", 1, SHAPE(L));
    int acc = kernel_buffer(f->p, f->k, "acc", SPACE_reg, DT_f32, 0, SHAPE(0));
    const Expr *i, *r;
    Stmt *outer = stmt_for(f, ROLE_parallel, L, &i), *inner = stmt_for(f, ROLE_serial, L, &r);
    inner->extent = i;
    stmt_append(&outer->body, stmt_alloc(f, acc));
    stmt_append(&outer->body, stmt_store(f, acc, NULL, ex_num(x, DT_f32, 0)));
    Stmt *let = stmt_new(f->p, ST_let);
    let->var = kernel_var(f->p, f->k, "v", DT_f32, -1);
    let->value = load(f, in, INDEX(r));
    const Expr *v = ex_var_of(x, let->var, DT_f32), *old = load(f, acc, NULL);
    Stmt *branch = stmt_new(f->p, ST_if);
    branch->value = ex_lt(x, v, ex_num(x, DT_f32, 0));
    branch->body = stmt_store(f, acc, NULL, ex_sub(x, old, v));
    branch->other = stmt_store(f, acc, NULL, ex_add(x, old, ex_add(x, v, v)));
    stmt_append(&inner->body, let);
    stmt_append(&inner->body, branch);
    stmt_append(&outer->body, inner);
    stmt_append(&outer->body, stmt_store(f, out, INDEX(i), old));
    stmt_append(&f->k->body, outer);
    float data[L], got[L], sum = 0;
    fill(data, L);
    if (!run(f, (void *[]){data, got})) fail_msg("%s", f->message);
    for (int n = 0; n < L; n++) {
        assert_true(got[n] == sum);
        sum += data[n] < 0 ? -data[n] : 2 * data[n];
    }
}

static void test_counters(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    int out = param(f, "y", 1, SHAPE(4));
    const Expr *i;
    Stmt *loop = stmt_for(f, ROLE_serial, 4, &i);
    const Expr *sum = ex_add(x, ex_mul(x, ex_ctr(x, 1), ex_i(x, 10)), i);
    stmt_append(&loop->body, stmt_store(f, out, INDEX(i), ex_cast(x, DT_f32, sum)));
    f->k->body = loop;
    f->k->n_scalars = 2;
    float got[4];
    interp_kernel(f->k, (void *[]){got}, (int64_t[]){3, 7});
    for (int n = 0; n < 4; n++) assert_true(got[n] == (float)(70 + n));
}

/* --- GPU kernels ------------------------------------------------------------------------------ */

static Stmt *gpu_loops(Fixture *f, const int64_t *grid, const int64_t *block, const Expr **var) {
    Stmt *outer = NULL, **at = &outer;
    for (int d = 0; d < 2; d++) f->k->grid[d] = grid[d], f->k->block[d] = block[d];
    static const Role roles[] = {ROLE_block_y, ROLE_block_x, ROLE_thread_y, ROLE_thread_x};
    const int64_t extents[] = {grid[1], grid[0], block[1], block[0]};
    for (int d = 0; d < 4; d++) {
        *at = stmt_for(f, roles[d], extents[d], &var[d]);
        at = &(*at)->body;
    }
    return outer;
}

static Stmt *innermost(Stmt *s) {
    while (s->body) s = s->body;
    return s;
}

typedef enum Mistake {
    MISTAKE_none,
    MISTAKE_no_barrier,
    MISTAKE_no_second_barrier,
    MISTAKE_divergent,
    MISTAKE_outside
} Mistake;

/* A product of 16x16 matrices in 8x8 tiles through shared memory, with or without a mistake. */
static bool run_tiled(Fixture *f, Mistake mistake, float *da, float *db, float *dc) {
    enum { S = 16, T = 8 };
    Exprs *x = &f->x;
    f->k = kernel_new(f->p, "tiled");
    int a = param(f, "a", 2, SHAPE(S, S)), b = param(f, "b", 2, SHAPE(S, S));
    int c = param(f, "c", 2, SHAPE(S, S));
    int sa = kernel_buffer(f->p, f->k, "sa", SPACE_shared, DT_f32, 2, SHAPE(T, T));
    int sb = kernel_buffer(f->p, f->k, "sb", SPACE_shared, DT_f32, 2, SHAPE(T, T));
    int acc = kernel_buffer(f->p, f->k, "acc", SPACE_reg, DT_f32, 1, SHAPE(2));
    const Expr *v[4], *tile, *r, *one = ex_i(x, 1);
    f->k->body = gpu_loops(f, SHAPE(S / T, S / T), SHAPE(T, T), v);
    Stmt *in = innermost(f->k->body), *loop = stmt_for(f, ROLE_serial, S / T, &tile);
    Stmt *inner = stmt_for(f, ROLE_unroll, T, &r);
    const Expr *row = ex_add(x, ex_mul(x, v[0], ex_i(x, T)), v[2]);
    const Expr *column = ex_add(x, ex_mul(x, v[1], ex_i(x, T)), v[3]);
    const Expr *base = ex_mul(x, tile, ex_i(x, T));
    const Expr *from = ex_add(x, base, v[3]);
    if (mistake == MISTAKE_outside) from = ex_add(x, from, one);
    stmt_append(&in->body, stmt_alloc(f, sa));
    stmt_append(&in->body, stmt_alloc(f, sb));
    stmt_append(&in->body, stmt_alloc(f, acc));
    stmt_append(&in->body, stmt_store(f, acc, INDEX(one), ex_num(x, DT_f32, 0)));
    stmt_append(&loop->body, stmt_store(f, sa, INDEX(v[2], v[3]), load(f, a, INDEX(row, from))));
    stmt_append(&loop->body, stmt_store(f, sb, INDEX(v[2], v[3]),
                                        load(f, b, INDEX(ex_add(x, base, v[2]), column))));
    Stmt *barrier = stmt_new(f->p, ST_barrier);
    if (mistake == MISTAKE_divergent) {
        Stmt *some = stmt_new(f->p, ST_if);
        some->value = ex_lt(x, v[3], ex_i(x, T / 2));
        some->body = barrier;
        barrier = some;
    }
    if (mistake != MISTAKE_no_barrier) stmt_append(&loop->body, barrier);
    const Expr *product = ex_mul(x, load(f, sa, INDEX(v[2], r)), load(f, sb, INDEX(r, v[3])));
    stmt_append(&inner->body,
                stmt_store(f, acc, INDEX(one), ex_add(x, load(f, acc, INDEX(one)), product)));
    stmt_append(&loop->body, inner);
    if (mistake != MISTAKE_no_second_barrier) stmt_append(&loop->body, stmt_new(f->p, ST_barrier));
    stmt_append(&in->body, loop);
    stmt_append(&in->body, stmt_store(f, c, INDEX(row, column), load(f, acc, INDEX(one))));
    fill(da, S * S);
    fill(db, S * S);
    return run(f, (void *[]){da, db, dc});
}

static void test_gpu_tiled(void **state) {
    Fixture *f = *state;
    float a[256], b[256], c[256];
    if (!run_tiled(f, MISTAKE_none, a, b, c)) fail_msg("%s", f->message);
    for (int i = 0; i < 256; i++) {
        float sum = 0;
        for (int r = 0; r < 16; r++) sum += a[i / 16 * 16 + r] * b[r * 16 + i % 16];
        assert_true(c[i] == sum);
    }
    assert_false(run_tiled(f, MISTAKE_no_barrier, a, b, c));
    assert_message(f, "race on buffer 's");
    assert_false(run_tiled(f, MISTAKE_no_second_barrier, a, b, c));
    assert_message(f, "overwrites the value read by");
    assert_false(run_tiled(f, MISTAKE_divergent, a, b, c));
    assert_message(f, "only 32 of 64 threads come to a barrier");
    assert_false(run_tiled(f, MISTAKE_outside, a, b, c));
    assert_message(f, "buffer 'a' is read at index 16 in dimension 1, which has extent 16");
}

/* More threads than elements: a guard keeps the rest away. Then a guard that is too weak. */
static void test_gpu_guard(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    for (int limit = 100; limit < 102; limit++) {
        f->k = kernel_new(f->p, "guard");
        int in = param(f, "x", 1, SHAPE(100)), out = param(f, "y", 1, SHAPE(100));
        const Expr *v[4];
        f->k->body = gpu_loops(f, SHAPE(4, 1), SHAPE(32, 1), v);
        const Expr *i = ex_add(x, ex_mul(x, v[1], ex_i(x, 32)), v[3]);
        Stmt *guard = stmt_new(f->p, ST_if);
        guard->value = ex_lt(x, i, ex_i(x, limit));
        guard->body = stmt_store(f, out, INDEX(i), ex_un(x, EX_neg, load(f, in, INDEX(i))));
        innermost(f->k->body)->body = guard;
        float data[100], got[100];
        fill(data, 100);
        bool ok = run(f, (void *[]){data, got});
        assert_true(ok == (limit == 100));
        for (int n = 0; n < 100 && ok; n++) assert_true(got[n] == -data[n]);
        if (!ok) assert_message(f, "at index 100");
    }
}

/* A parameter that does not hold what the kernel says of it. */
static void test_range(void **state) {
    Fixture *f = *state;
    for (int most = 2; most < 4; most++) {
        f->k = kernel_new(f->p, "range");
        int in = param(f, "x", 1, SHAPE(2)), out = param(f, "y", 1, SHAPE(2));
        const Expr *i;
        f->k->buffers.items[in]->low = 1;
        f->k->buffers.items[in]->high = most;
        f->k->body = stmt_for(f, ROLE_serial, 2, &i);
        f->k->body->body = stmt_store(f, out, INDEX(i), load(f, in, INDEX(i)));
        float data[2] = {1, 3}, got[2];
        assert_true(run(f, (void *[]){data, got}) == (most == 3));
        if (most == 2) assert_message(f, "buffer 'x' holds 3, which is not within 1 and 2");
    }
}

/* All blocks store to one element: the same value is fine, different ones are a race. */
static void test_gpu_blocks(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    for (int differ = 0; differ < 2; differ++) {
        f->k = kernel_new(f->p, "blocks");
        int out = param(f, "y", 1, SHAPE(1));
        const Expr *v[4];
        f->k->body = gpu_loops(f, SHAPE(2, 1), SHAPE(4, 1), v);
        const Expr *value = differ ? ex_cast(x, DT_f32, v[1]) : ex_num(x, DT_f32, 5);
        innermost(f->k->body)->body = stmt_store(f, out, INDEX(ex_i(x, 0)), value);
        float got[1] = {0};
        assert_true(run(f, (void *[]){got}) != differ);
        if (differ)
            assert_message(f, "thread 0 of block 1 overwrites");
        else
            assert_true(got[0] == 5);
    }
}

/* A thread reads what its neighbour has stored to a parameter: behind a barrier for all memory
 * only.
 */
static void test_gpu_exchange(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    for (int global = 0; global < 2; global++) {
        f->k = kernel_new(f->p, "exchange");
        int own = param(f, "y", 1, SHAPE(4)), other = param(f, "z", 1, SHAPE(4));
        const Expr *v[4];
        f->k->body = gpu_loops(f, SHAPE(1, 1), SHAPE(4, 1), v);
        const Expr *thread = v[3], *next = ex_sub(x, ex_i(x, 3), thread);
        Stmt *list = stmt_store(f, own, INDEX(thread), ex_cast(x, DT_f32, thread));
        Stmt *barrier = stmt_new(f->p, ST_barrier);
        barrier->global = global;
        stmt_append(&list, barrier);
        stmt_append(&list, stmt_store(f, other, INDEX(thread), load(f, own, INDEX(next))));
        innermost(f->k->body)->body = list;
        float y[4], z[4];
        assert_true(run(f, (void *[]){y, z}) == global);
        if (!global) assert_message(f, "race on buffer 'y'");
        if (global) assert_true(z[0] == 3 && z[3] == 0);
    }
}

/* What was allotted and not written is NaN. */
static void test_poison(void **state) {
    Fixture *f = *state;
    int out = param(f, "y", 1, SHAPE(1));
    int acc = kernel_buffer(f->p, f->k, "acc", SPACE_reg, DT_f32, 1, SHAPE(4));
    const Expr *zero = ex_i(&f->x, 0);
    f->k->body = stmt_alloc(f, acc);
    f->k->body->next = stmt_store(f, out, INDEX(zero), load(f, acc, INDEX(zero)));
    float got[1] = {0};
    assert_true(run(f, (void *[]){got}));
    assert_true(isnan(got[0]));
    f->k->body = f->k->body->next;
    assert_false(run(f, (void *[]){got}));
    assert_message(f, "buffer 'acc' is read before it is allotted");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_cpu_matmul), TEST(test_control),   TEST(test_counters),
        TEST(test_gpu_tiled),  TEST(test_gpu_guard), TEST(test_range),
        TEST(test_gpu_blocks), TEST(test_poison),    TEST(test_gpu_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
