/* The verifier finds each violation. Files tests/ir/verify/NAME.ir: their first lines, `; ...`, are
 * all the messages that the rest must give. What text cannot express is built here. Run in the
 * repository. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "ir/verify.h"

typedef struct Fixture {
    Arena arena;
    Exprs x;
    Diag diag;
    Graph *g;
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 0, NULL, NULL);
    exprs_init(&f->x, &f->arena);
    diag_init(&f->diag, &f->arena, "test");
    f->g = graph_new(&f->arena, &f->x, &f->diag, "g");
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    arena_free(&f->arena);
    free(f);
    return 0;
}

/* --- files ------------------------------------------------------------------------------------ */

static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    *length = fread(text, 1, (size_t)size, file);
    text[*length] = 0;
    fclose(file);
    return text;
}

static void verify_text(Fixture *f, const char *path, const char *text, size_t length) {
    const char *start = text;
    while (*start == ';') start = strchr(start, '\n') + 1;
    bool read = false, ok = false;
    if (!strncmp(start, "kernel", 6)) {
        Kernel *k = parse_kernel(program_new(f->g), text, length);
        read = k != NULL;
        ok = k && verify_kernel(k, &f->diag, "test");
    } else if (!strncmp(start, "program", 7)) {
        Program *p = parse_program(&f->arena, &f->x, &f->diag, text, length);
        read = p != NULL;
        ok = p && verify_program(p, &f->diag, "test");
    } else {
        Graph *g = parse_graph(&f->arena, &f->x, &f->diag, text, length);
        read = g != NULL;
        ok = g && verify_graph(g, &f->diag, "test");
    }
    if (!read) fail_msg("%s: %s", path, f->diag.messages.items[0].text);
    assert_false(ok);
}

static void check_file(const char *path) {
    void *state;
    setup(&state);
    Fixture *f = state;
    size_t length;
    char *text = read_file(path, &length);
    verify_text(f, path, text, length);
    Text got = text_new(&f->arena);
    for (int i = 0; i < f->diag.messages.n; i++) {
        assert_int_equal(f->diag.messages.items[i].code, E9001);
        text_addf(&got, "; %s\n", f->diag.messages.items[i].text);
    }
    const char *rest = text;
    while (*rest == ';') rest = strchr(rest, '\n') + 1;
    if (got.length != (size_t)(rest - text) || memcmp(text_get(&got), text, got.length) != 0) {
        fprintf(stderr, "%s gives\n%s", path, text_get(&got)); /* cmocka would cut it short */
        fail();
    }
    free(text);
    teardown(&state);
}

static void test_files(void **state) {
    (void)state;
    DIR *dir = opendir("tests/ir/verify");
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".ir") != 0) continue;
        char path[400];
        snprintf(path, sizeof path, "tests/ir/verify/%s", entry->d_name);
        check_file(path);
        n++;
    }
    closedir(dir);
    assert_true(n >= 7);
}

/* --- built --- */

static void expect(Fixture *f, const char *message) {
    int before = f->diag.messages.n;
    assert_false(verify_graph(f->g, &f->diag, NULL));
    assert_true(f->diag.messages.n > before);
    assert_string_equal(f->diag.messages.items[before].text, message);
}

static Value *input(Fixture *f) {
    static const int64_t shape[1] = {4};
    return graph_input(f->g, "x", DT_f32, 1, shape);
}

static Value *negation(Fixture *f, Value *v) {
    return g_un(f->g, EX_neg, v);
}

static void test_good(void **state) {
    Fixture *f = *state;
    Value *y = negation(f, input(f));
    graph_output(f->g, g_softmax(f->g, g_matmul(f->g, y, y, DT_f32, DT_f16), 0, false), "y");
    bool ok = verify_graph(f->g, &f->diag, NULL);
    if (!ok) fail_msg("%s", f->diag.messages.items[0].text);
}

static void test_order(void **state) {
    Fixture *f = *state;
    Value *x = input(f), *y = negation(f, x);
    graph_unlink(f->g, y->def);
    graph_insert_before(f->g, x->def, y->def);
    expect(f, "%1 = map: input 0 (%0) is not defined before");
}

static void test_numbers(void **state) {
    Fixture *f = *state;
    Value *x = input(f), *y = negation(f, x);
    y->id = 0;
    expect(f, "%0 = map: %0 is defined twice");
    y->id = 5;
    expect(f, "%5 = map: output 0 has the number 5 of 2");
}

static void test_links(void **state) {
    Fixture *f = *state;
    Value *x = input(f), *y = negation(f, x);
    y->def_index = 1;
    expect(f, "%1 = map: output 0 does not lead back to it");
    y->def_index = 0;
    y->def->prev = NULL;
    expect(f, "%1 = map: the list of operators is broken before it");
    y->def->prev = x->def;
    f->g->last = x->def;
    expect(f, "the list of operators is broken at its end");
}

static void test_graph_ends(void **state) {
    Fixture *f = *state;
    Value *y = negation(f, input(f));
    graph_output(f->g, y, "y");
    graph_unlink(f->g, y->def);
    expect(f, "output 0 of the graph (%1) is not defined");
    graph_append(f->g, y->def);
    f->g->inputs.n = 0;
    expect(f, "%0 = input: it is not input 0 of the graph");
    f->g->inputs.n = 2;
    expect(f, "the graph has 2 inputs, 1 of them defined");
}

static void test_strings(void **state) {
    Fixture *f = *state;
    Value *y = negation(f, input(f));
    graph_output_text(f->g, y, "y");
    expect(f, "output 0 of the graph (%1) is text, but of type f32 and rank 1");
    f->g->output_text.items[0] = false;
    f->g->inputs.items[0]->text = true;
    expect(f, "input 0 of the graph (%0) is text, but of type f32 and rank 1");
}

static void test_shapes(void **state) {
    Fixture *f = *state;
    Value *x = input(f);
    static const int64_t negative[1] = {-4}, large[2] = {1 << 20, 1 << 20};
    x->shape = negative;
    expect(f, "%0 = input: output 0 has the shape [-4]");
    x->shape = large;
    x->rank = 2;
    expect(f, "%0 = input: output 0 has the shape [1048576, 1048576]");
    x->rank = 17;
    expect(f, "%0 = input: output 0 has rank 17");
    x->rank = 0;
    x->dt = DT_none;
    expect(f, "%0 = input: output 0 has no element type");
}

static void test_loop_without_graph(void **state) {
    Fixture *f = *state;
    Value *x = input(f);
    Op *op = graph_new_op(f->g, OP_loop, 1, &x, 1);
    graph_new_value(f->g, op, 0, DT_f32, x->rank, x->shape);
    graph_append(f->g, op);
    expect(f, "%1 = loop: its sub-graph is missing or belongs elsewhere");
}

/* Arithmetic on a narrow type, which no constructor makes. */
static void test_narrow(void **state) {
    Fixture *f = *state;
    static const int64_t shape[1] = {4};
    Value *x = graph_input(f->g, "x", DT_f16, 1, shape);
    Value *y = g_un(f->g, EX_neg, x);
    Op *op = y->def;
    Expr *node = arena_alloc(&f->arena, sizeof *node + sizeof node->arg[0]);
    const Expr *index = ex_var(&f->x, 0), *load = ex_load(&f->x, DT_f16, 0, 1, &index);
    *node = (Expr){.op = EX_neg, .dt = DT_f16, .n = 1, .hash = 1, .size = 3};
    node->arg[0] = load;
    op->body = node;
    expect(f, "%1 = map: body: 'neg' computes in the narrow type f16: in -$0[i0]");
    op->body = ex_const(&f->x, DT_f16, (Scalar){.f = 0.1});
    expect(f, "%1 = map: body: the literal is no value of its type: in 0.10000000000000001f16");
    op->body = node;
    node->dt = DT_f32;
    node->arg[0] = ex_num(&f->x, DT_f64, 1);
    expect(f, "%1 = map: body: it is marked f32 but gives f64: in neg(1.0f64)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test_setup_teardown(test_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_graph_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_strings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loop_without_graph, setup, teardown),
        cmocka_unit_test_setup_teardown(test_narrow, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
