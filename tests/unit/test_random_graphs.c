/* Random graphs through all passes, for the facts of every target: the interpreter must give the
 * same results after each graph pass, and so must the program when its kernels run in the kernel
 * interpreter with every tensor where the memory plan put it. On the way: what is printed reads
 * back, and schedules written as text build the same kernels.
 *
 *     test_random_graphs [FIRST_SEED [LAST_SEED]]
 *
 * runs these seeds instead of the usual ones; of a single seed it prints the graph. */
#include "passes/nest.h"
#include "passes/passes.h"
#include "tests/unit/graph_random.h"
#include "ir/verify.h"

#ifdef __SANITIZE_ADDRESS__
#define SEEDS 200
#else
#define SEEDS 1500
#endif

static int first_seed = 1, last_seed = SEEDS;

typedef struct Case {
    Arena arena;
    Exprs x;
    Diag diag;
    int seed;
    const char *target;
    double tolerance;
    void **inputs, **wanted;
    const char *graph_text;
} Case;

static void give_up(Case *c, const char *what, const char *why) {
    for (int i = 0; i < c->diag.messages.n; i++)
        print_error("%s\n", c->diag.messages.items[i].text);
    if (first_seed == last_seed) print_error("%s", c->graph_text);
    fail_msg("seed %d, target %s, after %s: %s", c->seed, c->target, what, why);
}

static void compare(Case *c, const Graph *g, void **got, const char *what) {
    for (int i = 0; i < g->outputs.n; i++) {
        const char *why =
            tensor_difference(&c->arena, g->outputs.items[i], got[i], c->wanted[i], c->tolerance);
        if (why) give_up(c, what, arena_printf(&c->arena, "output %d, %s", i, why));
    }
}

static void after_pass(void *user, const char *pass, const Graph *g, const Program *p,
                       double seconds) {
    Case *c = user;
    (void)seconds;
    if (p) return;
    if (!verify_graph(g, &c->diag, pass)) give_up(c, pass, "the graph is ill-formed");
    void **got = value_buffers(&c->arena, g->outputs.n, g->outputs.items, 0xff);
    assert_true(interp_graph(g, (const void *const *)c->inputs, got));
    compare(c, g, got, pass);
}

static const char *program_text(Case *c, const Program *p) {
    Text t = text_new(&c->arena);
    text_program(&t, p, (TextOptions){0});
    return text_get(&t);
}

/* The text of a kernel, of its own program. */
static const char *nest_text(Case *c, Nest *n) {
    Value **args;
    Text t = text_new(&c->arena);
    text_kernel(&t, nest_build(n, "k", &args));
    return text_get(&t);
}

/* The schedule of every operator, written and read back, builds the same kernel. */
static void check_replay(Case *c, Graph *g, const Target *target) {
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) check_replay(c, op->sub, target);
        bool computes = op->kind == OP_map || op->kind == OP_reduce || op->kind == OP_scan ||
                        op->kind == OP_scatter;
        if (!computes || value_numel(op->out[0]) == 0) continue;
        Nest chosen, replayed;
        nest_begin(&chosen, program_new(g), op, target);
        chosen.variant = c->seed % 6;
        schedule_choose(&chosen);
        const char *steps = text_get(&chosen.steps);
        nest_begin(&replayed, program_new(g), op, target);
        if (!nest_replay(&replayed, steps)) give_up(c, "schedule", steps);
        const char *a = nest_text(c, &chosen), *b = nest_text(c, &replayed);
        if (strcmp(a, b) != 0) {
            print_error("%s\n%s", a, b);
            give_up(c, "schedule", "read back, it builds another kernel");
        }
    }
}

static void check_seed(int seed, const char *target) {
    Case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    arena_init(&c->arena, 0, NULL, NULL);
    exprs_init(&c->x, &c->arena);
    diag_init(&c->diag, &c->arena, "test");
    c->seed = seed;
    c->target = target;
    Random r = {(uint64_t)seed * 77};
    bool exact;
    Graph *g = random_graph(&c->arena, &c->x, &c->diag, &r, 3 + random_below(&r, 25), &exact);
    c->tolerance = exact ? 0 : 1e-3;
    Text t = text_new(&c->arena);
    text_graph(&t, g, (TextOptions){.elide = true});
    c->graph_text = text_get(&t);
    if (c->diag.n_errors || !verify_graph(g, &c->diag, "random_graph"))
        give_up(c, "making it", "the graph is ill-formed");
    c->inputs = value_buffers(&c->arena, g->inputs.n, g->inputs.items, 0);
    for (int i = 0; i < g->inputs.n; i++) random_fill(&r, g->inputs.items[i], c->inputs[i]);
    c->wanted = value_buffers(&c->arena, g->outputs.n, g->outputs.items, 0xff);
    assert_true(interp_graph(g, (const void *const *)c->inputs, c->wanted));
    PassOptions options = {.target = target_find(target),
                           .skip = random_chance(&r, 25) ? "fuse" : NULL,
                           .variant = seed % 6,
                           .on_pass = after_pass,
                           .user = c,
                           .verify = true};
    Program *p = run_passes(g, &options);
    if (!p) give_up(c, "the passes", "no program");
    void **got = value_buffers(&c->arena, g->outputs.n, g->outputs.items, 0xee);
    const char *error = limits_passed(p, options.target);
    if (!error) error = run_program(p, c->inputs, got);
    if (error) give_up(c, "plan", error);
    compare(c, g, got, "plan");
    const char *text = program_text(c, p);
    Program *back = parse_program(&c->arena, &c->x, &c->diag, text, strlen(text));
    if (!back || strcmp(text, program_text(c, back)) != 0)
        give_up(c, "printing", "its text does not read back");
    check_replay(c, g, options.target);
    arena_free(&c->arena);
    free(c);
}

static void check_target(const char *target) {
    for (int seed = first_seed; seed <= last_seed; seed++) check_seed(seed, target);
}

static void test_c(void **state) {
    (void)state;
    check_target("c");
}

static void test_cuda(void **state) {
    (void)state;
    check_target("cuda");
}

static void test_vulkan(void **state) {
    (void)state;
    check_target("vulkan");
}

int main(int argc, char **argv) {
    if (argc > 1) first_seed = last_seed = atoi(argv[1]);
    if (argc > 2) last_seed = atoi(argv[2]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_c), cmocka_unit_test(test_cuda),
                                       cmocka_unit_test(test_vulkan)};
    return cmocka_run_group_tests_name("random graphs", tests, NULL, NULL);
}
