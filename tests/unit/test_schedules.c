/* Schedules from a file: the file itself, the keys of operators, and programs built with them,
 * which must compute the same whatever the steps say, or be refused. */
#include "passes/nest.h"
#include "passes/passes.h"
#include "tests/unit/program_run.h"

#ifdef __SANITIZE_ADDRESS__
#define SEEDS 300
#else
#define SEEDS 1500
#endif

typedef struct Fixture {
    Arena arena;
    Exprs x;
    Diag diag;
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    arena_init(&f->arena, 0, NULL, NULL);
    exprs_init(&f->x, &f->arena);
    diag_init(&f->diag, &f->arena, "test");
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    arena_free(&f->arena);
    free(f);
    return 0;
}

static Graph *graph_of(Fixture *f, const char *text) {
    Graph *g = parse_graph(&f->arena, &f->x, &f->diag, text, strlen(text));
    if (!g) fail_msg("%s", f->diag.messages.items[0].text);
    return g;
}

/* --- the file --------------------------------------------------------------------------------- */

static bool read_text(Fixture *f, const char *text, Schedules *s) {
    *s = (Schedules){.file = "a.tune"};
    return schedules_read(&f->arena, &f->diag, text, strlen(text), s);
}

static void test_file(void **state) {
    Fixture *f = *state;
    Schedules s, again;
    assert_true(read_text(f,
                          "mlcc schedules 1\n# a comment\n\n"
                          "ffffffffffffffff share 1;\r\n"
                          "0000000000000001   split i0 4; pack;  \n"
                          "00000000000000a0 pack;",
                          &s));
    assert_int_equal(s.entries.n, 3);
    assert_int_equal(s.entries.items[0].key, 1);
    assert_int_equal(s.entries.items[0].line, 5);
    assert_string_equal(s.entries.items[0].steps, "split i0 4; pack;");
    assert_int_equal(schedules_find(&s, 0xa0), 1);
    assert_int_equal(schedules_find(&s, 0xa1), -1);
    s.comment = "made by hand";
    s.entries.items[1].comment = "k1: 3.0 us";
    Text text = text_new(&f->arena), same = text_new(&f->arena);
    schedules_print(&text, &s);
    assert_string_equal(text_get(&text), "mlcc schedules 1\n# made by hand\n"
                                         "0000000000000001 split i0 4; pack;\n"
                                         "# k1: 3.0 us\n00000000000000a0 pack;\n"
                                         "ffffffffffffffff share 1;\n");
    assert_true(read_text(f, text_get(&text), &again));
    again.comment = s.comment;
    again.entries.items[1].comment = s.entries.items[1].comment;
    schedules_print(&same, &again);
    assert_string_equal(text_get(&same), text_get(&text));
    assert_int_equal(f->diag.messages.n, 0);
}

static void test_wrong_files(void **state) {
    Fixture *f = *state;
    static const char *const wrong[][2] = {
        {"", "does not begin with"},
        {"mlcc schedules 2\n", "does not begin with"},
        {"mlcc schedules 1\n1234 pack;\n", "line 2: expected"},
        {"mlcc schedules 1\n\nxyz\n", "line 3: expected"},
        {"mlcc schedules 1\n00000000000000a0 \n", "line 2: expected"},
        {"mlcc schedules 1\n00000000000000A0 pack;\n", "line 2: expected"},
        {"mlcc schedules 1\n00000000000000a0 pack;\n00000000000000a0 share 1;\n",
         "line 3: a second"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Schedules s;
        diag_init(&f->diag, &f->arena, "test");
        if (read_text(f, wrong[i][0], &s)) fail_msg("'%s' is taken for schedules", wrong[i][0]);
        assert_int_equal(f->diag.messages.items[0].code, E5003);
        if (!strstr(f->diag.messages.items[0].text, wrong[i][1]))
            fail_msg("%s", f->diag.messages.items[0].text);
    }
}

/* --- keys ------------------------------------------------------------------------------------- */

static uint64_t key_of(Fixture *f, const char *body, int columns, const char *data, int bytes) {
    Graph *g = graph_of(
        f, arena_printf(&f->arena,
                        "graph {\n  %%0 = input : f32[8, 4] \"%s\"\n"
                        "  %%1 = const : f32[4, 2] = [%s, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]\n"
                        "  %%2 = reduce sum (%%0, %%1) [r0: 4] : f32[8, %d] src \"%s\"\n"
                        "    body %s\n    post acc\n  output %%2 \"y\"\n}\n",
                        data, data[0] == 'a' ? "1.0" : "-1.0", columns, data, body));
    Target t = *target_find("c");
    t.vector_bytes = bytes;
    return schedule_key(&f->arena, g->last, &t);
}

static void test_keys(void **state) {
    Fixture *f = *state;
    const char *body = "$0[i0, r0] * $1[r0, i1]";
    uint64_t key = key_of(f, body, 2, "a", 16);
    assert_int_not_equal(key, 0);
    assert_int_equal(key_of(f, body, 2, "b", 16), key); /* names and weights */
    assert_int_not_equal(key_of(f, body, 1, "a", 16), key);
    assert_int_not_equal(key_of(f, body, 2, "a", 32), key);
    assert_int_not_equal(key_of(f, "$0[i0, r0] * $1[i1, r0 / 2]", 2, "a", 16), key);
    Graph *g = graph_of(f, "graph {\n  %0 = input : f32[8] \"x\"\n  %1 = map (%0) : f32[8]\n"
                           "    body $0[i0] + 1.0\n  output %1 \"y\"\n}\n");
    assert_int_equal(schedule_key(&f->arena, g->last, target_find("c")), 0);
    g = graph_of(
        f, "graph {\n  %0 = input : f32[8, 4] \"x\"\n  %1 = reduce sum (%0) [r0: 4] : f32[8]\n"
           "    body $0[i0, r0]\n    post acc\n  output %1 \"y\"\n}\n");
    assert_int_equal(schedule_key(&f->arena, g->last, target_find("cuda")), 0);
}

/* --- programs --------------------------------------------------------------------------------- */

/* A convolution, a product with constants, the sum of rows, a sliding maximum and tiles of two that
 * are transformed back, the last of which is cut. */
static const char *const before_constants =
    "graph {\n"
    "  %0 = input : f32[1, 9, 9, 5] \"x\"\n"
    "  %1 = input : f32[3, 3, 5, 20] \"w\"\n"
    "  %2 = reduce sum (%0, %1) [r0: 3, r1: 3, r2: 5] : f32[1, 7, 7, 20]\n"
    "    body $0[i0, i1 + r0, i2 + r1, r2] * $1[r0, r1, r2, i3]\n    post max(acc, 0.0)\n"
    "  %3 = reduce max (%2) [r0: 2, r1: 2] : f32[1, 6, 6, 20]\n"
    "    body $0[i0, i1 + r0, i2 + r1, i3]\n    post acc\n"
    "  %4 = reshape (%3) : f32[36, 20]\n";
static const char *const behind_constants =
    "  %6 = reduce sum (%4, %5) [r0: 20] : f32[36, 33]\n"
    "    body $0[i0, r0] * $1[r0, i1]\n    post acc\n"
    "  %7 = reduce sum (%6) [r0: 33] : f32[36]\n    body $0[i0, r0]\n    post acc\n"
    "  %8 = reduce sum (%3) [r0: 4] : f32[11, 20]\n"
    "    body $0[0, r0, i0 / 2, i1] * select(i0 % 2 == 0, select(r0 == 3, 0.0, 1.0),\n"
    "        select(r0 == 0, 0.0, select(r0 == 2, -1.0, 1.0)))\n    post acc\n"
    "  output %6 \"y\"\n  output %7 \"z\"\n  output %8 \"t\"\n}\n";

typedef struct Run {
    Graph *g;
    Target target;
    void **in, **want;
} Run;

static const char *with_constants(Fixture *f) {
    Text text = text_new(&f->arena);
    text_addf(&text, "%s  %%5 = const : f32[20, 33] = [", before_constants);
    for (int i = 0; i < 20 * 33; i++) text_addf(&text, "%s%d.0", i ? ", " : "", i * 37 % 9 - 4);
    text_addf(&text, "]\n%s", behind_constants);
    return text_get(&text);
}

static Run begin_run(Fixture *f) {
    Run r = {.g = graph_of(f, with_constants(f)),
             .target = target_for_arch(target_find("c"), "x86-64-v3")};
    Random random = {11};
    r.in = value_buffers(&f->arena, r.g->inputs.n, r.g->inputs.items, 0);
    r.want = value_buffers(&f->arena, r.g->outputs.n, r.g->outputs.items, 0xff);
    for (int i = 0; i < r.g->inputs.n; i++) random_fill(&random, r.g->inputs.items[i], r.in[i]);
    assert_true(interp_graph(r.g, (const void *const *)r.in, r.want));
    return r;
}

static Program *build_with(const Run *r, const Schedules *s, int variant) {
    PassOptions o = {.target = &r->target, .schedules = s, .variant = variant, .verify = true};
    return run_passes(r->g, &o);
}

/* NULL, or what is wrong with its results. */
static const char *wrong_with(Fixture *f, const Run *r, Program *p) {
    void **got = value_buffers(&f->arena, r->g->outputs.n, r->g->outputs.items, 0xee);
    const char *wrong = run_program(p, r->in, got);
    for (int i = 0; i < r->g->outputs.n && !wrong; i++)
        wrong = tensor_difference(&f->arena, r->g->outputs.items[i], got[i], r->want[i], 0);
    return wrong;
}

/* The schedules of a program as a table. */
static Schedules table_of(Fixture *f, const Program *p) {
    Schedules s = {.file = "a.tune"};
    for (int i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.items[i];
        ScheduleEntry e = {.key = step->key, .steps = step->kernel->schedule, .line = i + 2};
        if (step->key) schedules_add(&f->arena, &s, e);
    }
    return s;
}

static bool same_schedules(const Program *a, const Program *b) {
    if (a->steps.n != b->steps.n) return false;
    for (int i = 0; i < a->steps.n; i++)
        if (strcmp(a->steps.items[i].kernel->schedule, b->steps.items[i].kernel->schedule) != 0)
            return false;
    return true;
}

/* Every variant computes the same, and so does a program built with its table, of the same
 * schedules. */
static void test_variants(void **state) {
    Fixture *f = *state;
    int different = 0;
    Run r = begin_run(f);
    Program *first = build_with(&r, NULL, 0);
    for (int variant = 0; variant < 12; variant++) {
        r = begin_run(f);
        Program *p = build_with(&r, NULL, variant);
        const char *wrong = wrong_with(f, &r, p);
        if (wrong) fail_msg("variant %d: %s", variant, wrong);
        if (variant) different += !same_schedules(first, p);
        Schedules s = table_of(f, p);
        assert_int_equal(s.entries.n, 5);
        r = begin_run(f);
        Program *again = build_with(&r, &s, 0);
        assert_non_null(again);
        assert_true(same_schedules(p, again));
        assert_null(wrong_with(f, &r, again));
    }
    assert_true(different >= 8);
    r = begin_run(f);
    assert_true(same_schedules(first, build_with(&r, NULL, 10000))); /* past the last: the first */
    assert_int_equal(f->diag.messages.n, 0);
}

static void test_no_operator(void **state) {
    Fixture *f = *state;
    Run r = begin_run(f);
    Schedules s = {.file = "a.tune"};
    schedules_add(&f->arena, &s, (ScheduleEntry){.key = 77, .steps = "pack;", .line = 2});
    Program *p = build_with(&r, &s, 0);
    assert_non_null(p);
    assert_null(wrong_with(f, &r, p));
    assert_int_equal(f->diag.n_errors, 0);
    assert_int_equal(f->diag.messages.n, 1);
    assert_int_equal(f->diag.messages.items[0].code, E5004);
    assert_int_equal(diag_exit_status(&f->diag), 0);
}

static void test_unfit_steps(void **state) {
    Fixture *f = *state;
    static const char *const wrong[] = {
        "split i9 4;",
        "fuse i0 r0;",
        "bind r0 vector;",
        "bind r0 parallel;",
        "bind i1 thread.x;",
        "stage 0 r0;",
        "order r0; share 9;",
        "order i0 i0;",
        "dot r0 4; order r0i r0o;",
        "dot r0 4; split r0i 2;",
        "share 1; order r0 i0 i1;",
        "stream i9;",
        "stream r0; split r0 2;",
        "split r0 2; stream r0i; stream r0o;",
        "bind i0 repeat;",
        "partial i0;",
        "partial r0; split r0 2;",
        "split i1 4; bind i1i unroll; rest i1i 2;", /* of rows that do not vary nothing is left */
        "later r0 1;",
        "later i1 2;",
        "split i1 4; bind i1i unroll; later i1i 3;",
        "bind r0 later;",
        "split i1 4; bind i1i unroll; order r0 i1i; later i1i 4;",
        "split i0 2; bind i0i unroll; order r0 i0i; later i0i 1;",
    };
    Run r = begin_run(f);
    Schedules s = table_of(f, build_with(&r, NULL, 0));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        diag_init(&f->diag, &f->arena, "test");
        r = begin_run(f);
        for (int k = 0; k < s.entries.n; k++) s.entries.items[k].steps = wrong[i];
        if (build_with(&r, &s, 0)) fail_msg("'%s' was taken", wrong[i]);
        assert_int_equal(f->diag.messages.items[0].code, E5002);
        assert_non_null(strstr(f->diag.messages.items[0].text, "'a.tune', line "));
    }
}

/* Steps with one or a few things changed, moved or left out. */
static const char *mutated(Fixture *f, Random *r, const char *steps) {
    char *step[40], *rest = arena_strdup(&f->arena, steps);
    int n = 0;
    for (char *s; n < 40 && (s = strtok_r(rest, ";", &rest));)
        if (strspn(s, " ") != strlen(s)) step[n++] = s;
    static const char *const more[] = {
        " split i1 3",        " slide i1 4",     " fuse i0 i1",
        " bind i1 unroll",    " order r0 i1",    " dot r0 4",
        " bind i1i vector",   " split r0 2",     " share 1",
        " share 2",           " bind r1 unroll", " order i0 r0",
        " order r0o i1i r0i", " pack",           " bind i0 vector",
        " stream r0",         " stream r0o",     " partial r0",
        " partial r0o",       " stream i1o",     " bind r0 repeat",
        " bind r0i repeat",   " later i0i 2",    " later i1 1",
        " matrices",          " split i0o 4",    " split i1 16",
    };
    for (int change = 1 + random_below(r, 3); change > 0; change--) {
        int a = random_below(r, n), b = random_below(r, n);
        char *digit = strpbrk(step[a], "23456789");
        switch (random_below(r, 4)) {
        case 0:
            step[a] = arena_strdup(&f->arena, more[random_below(r, sizeof more / sizeof *more)]);
            break;
        case 1:
            step[a] = step[b];
            break;
        case 2: {
            char *swap = step[a];
            step[a] = step[b];
            step[b] = swap;
            break;
        }
        default:
            if (digit) *digit = (char)('1' + random_below(r, 9));
        }
    }
    Text text = text_new(&f->arena);
    for (int i = 0; i < n; i++) text_addf(&text, "%s;", step[i]);
    return text_get(&text);
}

/* --- large constants for few rows ------------------------------------------------------------- */

/* A product of so many rows with constants that no cache of a core keeps, of type `dt`. */
static Program *few_rows(Fixture *f, int64_t rows, DType dt, const char *arch) {
    Exprs *x = &f->x;
    int64_t in[2] = {rows, 640}, w[2] = {640, 512}, out[2] = {rows, 512};
    Graph *g = graph_new(&f->arena, x, &f->diag, "few");
    void *data = ARENA_ARRAY(&f->arena, w[0] * w[1], float);
    for (int64_t i = 0; i < w[0] * w[1]; i++)
        dt_save(dt, data, (size_t)i, (Scalar){.f = (double)(i * 37 % 9 - 4)});
    Value *v = graph_input(g, "x", DT_f32, 2, in), *weights = graph_const(g, dt, 2, w, data);
    Builder b = build(g, 2, out);
    const Expr *r = build_red(&b, w[0]), *at[2] = {ex_var(x, 0), r}, *to[2] = {r, ex_var(x, 1)};
    const Expr *body =
        ex_mul(x, build_load(&b, v, at), ex_cast(x, DT_f32, build_load(&b, weights, to)));
    graph_output(g, build_reduce(&b, DT_f32, COMBINE_sum, body, NULL), "y");
    Target target = target_for_arch(target_find("c"), arch);
    Run run = {.g = g, .target = target};
    Random random = {5};
    run.in = value_buffers(&f->arena, 1, g->inputs.items, 0);
    run.want = value_buffers(&f->arena, 1, g->outputs.items, 0xff);
    random_fill(&random, v, run.in[0]);
    assert_true(interp_graph(g, (const void *const *)run.in, run.want));
    Program *p = build_with(&run, NULL, 0);
    assert_non_null(p);
    assert_null(wrong_with(f, &run, p));
    return p;
}

static bool has_streams(const Program *p) {
    return strstr(p->steps.items[0].kernel->schedule, "stream r0o; ") != NULL;
}

static bool reads(const Program *p, DType dt) {
    const Kernel *k = p->steps.items[0].kernel;
    bool any = false;
    for (int i = 0; i < k->buffers.n; i++) any |= k->buffers.items[i]->dt == dt;
    return any;
}

static void test_streams(void **state) {
    Fixture *f = *state;
    assert_true(has_streams(few_rows(f, 1, DT_f32, "x86-64-v3")));
    assert_true(has_streams(few_rows(f, 2, DT_f32, "x86-64-v3")));
    assert_false(has_streams(few_rows(f, 3, DT_f32, "x86-64-v3")));
    assert_false(has_streams(few_rows(f, 1, DT_f32, "generic")));
    assert_true(has_streams(few_rows(f, 1, DT_f32, "znver4")));
    assert_false(has_streams(few_rows(f, 1, DT_f32, "sapphirerapids"))); /* hints are faster */
    /* half floats are decoded as they come, where an instruction does it */
    assert_true(reads(few_rows(f, 1, DT_f16, "x86-64-v3"), DT_f16));
    assert_true(reads(few_rows(f, 2, DT_bf16, "x86-64-v3"), DT_bf16));
    assert_false(reads(few_rows(f, 40, DT_f16, "x86-64-v3"), DT_f16));
    assert_false(reads(few_rows(f, 1, DT_f16, "x86-64-v2"), DT_f16));
}

/* --- random steps ----------------------------------------------------------------------------- */

/* What a file says is carried out as it says, or refused. */
static void test_random_steps(void **state) {
    int taken = 0;
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        void *own;
        assert_int_equal(setup(&own), 0);
        Fixture *f = own;
        Random random = {(uint64_t)seed * 131};
        Run r = begin_run(f);
        Schedules s = table_of(f, build_with(&r, NULL, seed % 12));
        int at = random_below(&random, s.entries.n);
        const char *steps = s.entries.items[at].steps =
            mutated(f, &random, s.entries.items[at].steps);
        r = begin_run(f);
        Program *p = build_with(&r, &s, 0);
        const char *wrong = p ? wrong_with(f, &r, p) : NULL;
        if (!p && f->diag.messages.items[0].code != E5002) wrong = f->diag.messages.items[0].text;
        if (wrong) fail_msg("seed %d, steps '%s': %s", seed, steps, wrong);
        taken += p != NULL;
        teardown(&own);
    }
    print_message("%d of %d schedules were taken\n", taken, SEEDS);
    assert_true(taken > SEEDS / 5 && taken < SEEDS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_variants, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_operator, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unfit_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_streams, setup, teardown),
        cmocka_unit_test(test_random_steps),
    };
    return cmocka_run_group_tests_name("schedules", tests, NULL, NULL);
}
