/* Large graphs: the passes must take memory for what there is, not for the time they spend, and
 * must not recurse over the length of the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "passes/passes.h"

#define LENGTH 20000

typedef struct Model {
    Arena arena;
    Exprs x;
    Diag diag;
    Graph *g;
} Model;

static void too_large(void *user, size_t wanted, bool refused) {
    (void)refused;
    (void)user;
    fail_msg("more than %zu MiB wanted (%zu bytes the last)", (size_t)256, wanted);
}

static void begin(Model *m) {
    arena_init(&m->arena, (size_t)256 << 20, too_large, NULL);
    exprs_init(&m->x, &m->arena);
    diag_init(&m->diag, &m->arena, "test");
    m->g = graph_new(&m->arena, &m->x, &m->diag, "large");
}

static Program *compile(Model *m, Value *out) {
    graph_output(m->g, out, "y");
    PassOptions options = {.target = target_find("c"), .verify = true};
    Program *p = run_passes(m->g, &options);
    assert_non_null(p);
    return p;
}

/* Elementwise operators, each of the one before and a constant: kernels of bounded size. */
static void test_chain(void **state) {
    (void)state;
    static const float data[16] = {1, 2, 3};
    static const int64_t shape[2] = {4, 4};
    Model m;
    begin(&m);
    Value *c = graph_const(m.g, DT_f32, 2, shape, data);
    Value *v = graph_input(m.g, "x", DT_f32, 2, shape);
    for (int i = 0; i < LENGTH; i++) v = i % 2 ? g_bin(m.g, EX_add, v, c) : g_un(m.g, EX_abs, v);
    Program *p = compile(&m, v);
    assert_in_range(p->steps.n, 2, LENGTH / 500);
    arena_free(&m.arena);
}

/* Each sum moves its operand: the bodies are rewritten at every step. */
static void test_moved_chain(void **state) {
    (void)state;
    static const int64_t shape[2] = {4, 4};
    static const int perm[2] = {1, 0};
    Model m;
    begin(&m);
    Value *x = graph_input(m.g, "x", DT_f32, 2, shape), *v = x;
    for (int i = 0; i < LENGTH / 10; i++) v = g_bin(m.g, EX_add, g_transpose(m.g, v, perm), x);
    compile(&m, v);
    arena_free(&m.arena);
}

/* One concatenation of many parts: a tree of maps, not one body as deep as there are parts. */
static void test_concat(void **state) {
    (void)state;
    static const int64_t shape[2] = {1, 3};
    Model m;
    begin(&m);
    Value **part = ARENA_ARRAY(&m.arena, LENGTH, Value *);
    for (int i = 0; i < LENGTH; i++) part[i] = graph_input(m.g, "x", DT_f32, 2, shape);
    Value *all = g_concat(m.g, LENGTH, part, 0);
    assert_int_equal(all->shape[0], LENGTH);
    compile(&m, all);
    assert_ptr_equal(g_concat(m.g, 1, part, 0), part[0]);
    arena_free(&m.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chain),
                                       cmocka_unit_test(test_moved_chain),
                                       cmocka_unit_test(test_concat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
