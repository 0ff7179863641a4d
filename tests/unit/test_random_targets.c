/* Random graphs as libraries of every target: what the generated code computes is what the
 * interpreter does. CUDA runs emulated, Vulkan on the first device there is; it is passed over with
 * SKIP_VULKAN=1.
 *
 *     test_random_targets [FIRST_SEED [LAST_SEED]]
 */
#include "compiler/driver.h"
#include "tests/unit/graph_random.h"

#include <unistd.h>

static int first_seed = 1, last_seed = 25;
static const char *cache; /* the runtime's object files */

typedef struct Case {
    int seed;
    const char *target, *march; /* march NULL: the default */
    const char *why; /* what went wrong; NULL: nothing */
} Case;

static Case now;

static const char *run_library(Session *s, Program *p, void **inputs, void **wanted,
                               double tolerance) {
    const char *path = arena_printf(&s->arena, "%s/%s-%d.so", cache, now.target, now.seed);
    const Graph *g = p->graph;
    void **got = value_buffers(&s->arena, g->outputs.n, g->outputs.items, 0xa5);
    LoadedModel m = {0};
    bool ok = write_program(s, p, path) && model_load(s, &m, path, NULL) &&
              model_run(s, &m, (const void *const *)inputs, got);
    const char *why = ok ? NULL : s->diag.n_errors ? s->diag.messages.items[0].text : "it fails";
    for (int i = 0; i < g->outputs.n && !why; i++) {
        why = tensor_difference(&s->arena, g->outputs.items[i], got[i], wanted[i], tolerance);
        if (why) why = arena_printf(&s->arena, "output %d, %s", i, why);
    }
    static LoadedModel kept; /* a driver is costly to start anew: the first model stays open */
    if (!kept.library)
        kept = m;
    else
        model_unload(&m);
    unlink(path);
    return why;
}

static int body(Session *s) {
    Random r = {(uint64_t)now.seed * 77 + 5};
    bool exact;
    Graph *g = random_graph(&s->arena, &s->x, &s->diag, &r, 3 + random_below(&r, 25), &exact);
    void **inputs = value_buffers(&s->arena, g->inputs.n, g->inputs.items, 0);
    for (int i = 0; i < g->inputs.n; i++) random_fill(&r, g->inputs.items[i], inputs[i]);
    void **wanted = value_buffers(&s->arena, g->outputs.n, g->outputs.items, 0xff);
    interp_graph(g, (const void *const *)inputs, wanted);
    s->target = target_find(now.target);
    Program *p = session_lower(s, g);
    const char *why =
        p ? run_library(s, p, inputs, wanted, exact ? 0 : 1e-3) : "the passes give no program";
    now.why = why ? strdup(why) : NULL;
    return 0;
}

static void check_target(const char *target, const char *march, const char *cc) {
    for (int seed = first_seed; seed <= last_seed; seed++) {
        now = (Case){.seed = seed, .target = target, .march = march, .why = "no result"};
        Options o = {.model = "random.onnx",
                     .march = march,
                     .cc = cc,
                     .optimize = "1",
                     .runtime_cache = cache};
        with_session(&o, body);
        if (now.why)
            fail_msg("seed %d, target %s%s%s: %s", seed, target, march ? " -march=" : "",
                     march ? march : "", now.why);
    }
}

static void test_c(void **state) {
    (void)state;
    check_target("c", "generic", NULL);
}

static void test_c_vectors(void **state) {
    (void)state;
    check_target("c", "native", NULL);
}

static void test_c_scalars(void **state) {
    (void)state;
    check_target("c", "armv7e-m+fp", "tests/cc-any");
}

static void test_cuda(void **state) {
    (void)state;
    check_target("cuda", "cpu", NULL);
}

static void test_vulkan(void **state) {
    (void)state;
    const char *skip_it = getenv("SKIP_VULKAN");
    if (skip_it && strcmp(skip_it, "0") != 0) skip();
    check_target("vulkan", NULL, NULL);
}

int main(int argc, char **argv) {
    if (argc > 1) first_seed = last_seed = atoi(argv[1]);
    if (argc > 2) last_seed = atoi(argv[2]);
    char folder[] = P_tmpdir "/mlcc-random-XXXXXX";
    cache = mkdtemp(folder);
    if (!cache) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_c), cmocka_unit_test(test_c_vectors),
                                       cmocka_unit_test(test_c_scalars),
                                       cmocka_unit_test(test_cuda),
                                       cmocka_unit_test(test_vulkan)};
    int failed = cmocka_run_group_tests_name("random graphs on targets", tests, NULL, NULL);
    temp_remove(cache);
    return failed;
}
