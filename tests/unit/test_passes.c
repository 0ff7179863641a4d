/* Each pass on small graphs, given as text: what comes out, compared whole, and that it still
 * computes the same.
 *
 *     test_passes [--bless] [PASS/NAME.ir...]     by default all files of tests/passes
 *
 * tests/passes/PASS/NAME.ir is a graph as the pass gets it and, after a line `; after PASS`, what
 * it must become; `; after PASS with ARCH [TYPE]` is that for -march=ARCH and --precision of that
 * type. In tests/passes/lower there is one such part for each of some targets, `; after plan for
 * TARGET`, where a name of -march may follow: the program with its schedules, kernels and memory
 * plan. Graphs run in the interpreter, on random inputs, before and after; programs run their
 * kernels in it. --bless writes down what comes out now. Run in the repository. */
#include "passes/deal.h"
#include "passes/nest.h"
#include "passes/passes.h"
#include "passes/relieve.h"
#include "tests/unit/program_run.h"
#include "ir/verify.h"

#include <dirent.h>

#define MAX_FILES 200

static bool bless;
static char *files[MAX_FILES];
static int n_files, at_file;

typedef struct Fixture {
    Arena arena;
    Exprs x;
    Diag diag;
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
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

/* --- running ---------------------------------------------------------------------------------- */

typedef struct Results {
    void **in, **out;
} Results;

static Results run_before(Fixture *f, const Graph *g) {
    Random random = {7};
    Results r = {value_buffers(&f->arena, g->inputs.n, g->inputs.items, 0),
                 value_buffers(&f->arena, g->outputs.n, g->outputs.items, 0xff)};
    for (int i = 0; i < g->inputs.n; i++) random_fill(&random, g->inputs.items[i], r.in[i]);
    assert_true(interp_graph(g, (const void *const *)r.in, r.out));
    return r;
}

/* What two calls make of the inputs, from states of zeros on. */
static Results run_calls(Fixture *f, const Graph *g, void *const *in) {
    Results r = {value_buffers(&f->arena, g->inputs.n, g->inputs.items, 0),
                 value_buffers(&f->arena, g->outputs.n, g->outputs.items, 0xff)};
    for (int i = 0; i < graph_n_inputs(g); i++) r.in[i] = in[i];
    for (int call = 0; call < 2; call++) {
        assert_true(interp_graph(g, (const void *const *)r.in, r.out));
        for (int i = 0; i < g->n_states; i++)
            memcpy(r.in[graph_n_inputs(g) + i], r.out[graph_n_outputs(g) + i],
                   value_bytes(g->inputs.items[graph_n_inputs(g) + i]));
    }
    return r;
}

/* Of the outputs the first `n`. */
static void compare(Fixture *f, const Graph *g, int n, const Results *before, void **got,
                    const char *path, double allowed) {
    for (int i = 0; i < n; i++) {
        const char *why =
            tensor_difference(&f->arena, g->outputs.items[i], got[i], before->out[i], allowed);
        if (why) fail_msg("%s: it computes something else, output %d: %s", path, i, why);
    }
}

static Graph *read_input(Fixture *f, const char *path, const char *text, size_t length) {
    Graph *g = parse_graph(&f->arena, &f->x, &f->diag, text, length);
    if (!g || !verify_graph(g, &f->diag, NULL))
        fail_msg("%s: %s", path, f->diag.messages.items[0].text);
    return g;
}

typedef struct PassRow {
    const char *name;
    void (*graph)(Graph *, const PassOptions *);
    void (*program)(Program *, const PassOptions *);
} PassRow;

#define ROW_graph(fn)   fn, NULL
#define ROW_lower(fn)   NULL, NULL
#define ROW_program(fn) NULL, fn

static const PassRow rows[] = {
#define PASS(name, level, needs, gives) {#name, ROW_##level(pass_##name)},
#include "passes/passes.def"
};

/* heading: "PASS", or "PASS with ARCH", or "PASS with ARCH TYPE"; ARCH may be a target instead. */
static const char *after_graph_pass(Fixture *f, const char *path, const char *heading, Graph *g) {
    char pass[32] = "", arch[32] = "", type[8] = "";
    int words = sscanf(heading, "%31s with %31s %7s", pass, arch, type);
    const Target *other = target_find(arch);
    Target target = other ? *other : target_for_arch(target_find("c"), words > 1 ? arch : NULL);
    PassOptions options = {.target = &target, .precision = dt_parse(type, strlen(type))};
    double allowed = words > 2 ? 2e-2 : 1e-5;
    Results before = run_before(f, g), calls = run_calls(f, g, before.in);
    Value *const *states = g->inputs.items + graph_n_inputs(g);
    const int64_t **shape = ARENA_ARRAY(&f->arena, g->n_states + 1, const int64_t *);
    for (int i = 0; i < g->n_states; i++) shape[i] = states[i]->shape;
    bool found = false, same = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].graph && !strcmp(rows[i].name, pass)) {
            rows[i].graph(g, &options);
            found = true;
        }
    if (!found) fail_msg("%s: there is no pass '%s'", path, pass);
    if (!verify_graph(g, &f->diag, pass)) fail_msg("%s: %s", path, f->diag.messages.items[0].text);
    /* a pass may have a state lie as it likes */
    for (int i = 0; i < g->n_states; i++) same &= states[i]->shape == shape[i];
    void **got = value_buffers(&f->arena, g->outputs.n, g->outputs.items, 0xee);
    if (same) assert_true(interp_graph(g, (const void *const *)before.in, got));
    if (same) compare(f, g, g->outputs.n, &before, got, path, allowed);
    compare(f, g, graph_n_outputs(g), &calls, run_calls(f, g, before.in).out, path, allowed);
    Text t = text_new(&f->arena);
    text_graph(&t, g, (TextOptions){.elide = true});
    return text_get(&t);
}

static const char *after_plan(Fixture *f, const char *path, const char *target, Graph *g) {
    const char *arch = strchr(target, ' '); /* "c" or "c x86-64-v4" */
    const char *name = arch ? arena_strndup(&f->arena, target, (size_t)(arch - target)) : target;
    const Target *found = target_find(name);
    if (!found) fail_msg("%s: there is no target '%s'", path, name);
    const Target exact = target_for_arch(found, arch ? arch + 1 : NULL);
    PassOptions options = {.target = &exact};
    Results before = run_before(f, g);
    Program *p = pass_lower(g, &options);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].program) rows[i].program(p, &options);
    if (!verify_program(p, &f->diag, "plan"))
        fail_msg("%s: %s", path, f->diag.messages.items[0].text);
    void **got = value_buffers(&f->arena, g->outputs.n, g->outputs.items, 0xee);
    const char *error = limits_passed(p, options.target);
    if (!error) error = run_program(p, before.in, got);
    if (error) fail_msg("%s: %s", path, error);
    compare(f, g, g->outputs.n, &before, got, path, 1e-5);
    Text t = text_new(&f->arena);
    text_program(&t, p, (TextOptions){.elide = true});
    return text_get(&t);
}

/* --- files ------------------------------------------------------------------------------------ */

static const char *read_file(Fixture *f, const char *path) {
    Text t = text_new(&f->arena);
    char chunk[4096];
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot open %s", path);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;) text_addn(&t, chunk, n);
    fclose(file);
    return text_get(&t);
}

/* What the graph becomes; heading is what follows "; after ". */
static const char *outcome(Fixture *f, const char *path, const char *heading, const char *text,
                           size_t length) {
    Graph *g = read_input(f, path, text, length);
    const char *target = strstr(heading, " for ");
    return target ? after_plan(f, path, target + 5, g) : after_graph_pass(f, path, heading, g);
}

static void test_file(void **state) {
    Fixture *f = *state;
    const char *path = files[at_file++], *text = read_file(f, path);
    const char *end = strstr(text, "\n; after ");
    size_t length = end ? (size_t)(end + 1 - text) : strlen(text);
    Text want = text_new(&f->arena);
    text_addn(&want, text, length);
    const char *parts = text + length;
    if (!*parts) { /* a new file */
        const char *pass = strchr(strchr(path, '/') + 1, '/') + 1;
        int n = (int)strcspn(pass, "/");
        parts = !strncmp(pass, "lower", 5) ? "; after plan for c\n; after plan for cuda\n"
                                           : arena_printf(&f->arena, "; after %.*s\n", n, pass);
    }
    while (*parts) {
        size_t line = strcspn(parts, "\n");
        const char *heading = arena_strndup(&f->arena, parts + 8, line - 8);
        text_addf(&want, "; after %s\n%s", heading, outcome(f, path, heading, text, length));
        parts = strstr(parts, "\n; after ");
        parts = parts ? parts + 1 : "";
    }
    if (strcmp(text, text_get(&want)) == 0) return;
    if (!bless) {
        const char *a = text, *b = text_get(&want);
        size_t at = 0, line = 1, begin = 0;
        for (; a[at] && a[at] == b[at]; at++)
            if (a[at] == '\n') {
                line++;
                begin = at + 1;
            }
        fail_msg("%s:%zu: it is now (scripts/bless passes shows all):\n%.*s", path, line,
                 (int)strcspn(b + begin, "\n"), b + begin);
    }
    FILE *file = fopen(path, "w");
    assert_true(file && fputs(text_get(&want), file) >= 0 && fclose(file) == 0);
    print_message("%s: changed\n", path);
}

/* --- schedules as text ------------------------------------------------------------------------ */

static void test_wrong_schedules(void **state) {
    Fixture *f = *state;
    const char *text =
        "graph {\n  %0 = input : f32[8, 9] \"x\"\n"
        "  %1 = reduce sum (%0) [r0: 9] : f32[8]\n    body $0[i0, r0]\n    post acc\n"
        "  output %1 \"y\"\n}\n";
    static const char *const wrong[] = {
        "twist i0 2",  "split i7 2",
        "split i0 0",  "split i0 -4",
        "split i0",    "split i0 2 3",
        "slide r0 2",  "slide i0 9",
        "fuse i0 i0",  "fuse i0 i3",
        "order i0 i9", "bind i0 warp",
        "stage 2 r0",  "stage 0 i5",
        "pack i0",     "split i0 4; split i0 2",
        "fuse i0",     "split i0 99999999999999999999",
    };
    Graph *g = read_input(f, "schedule", text, strlen(text));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Nest n;
        nest_begin(&n, program_new(g), g->last, target_find("c"));
        if (nest_replay(&n, wrong[i])) fail_msg("'%s' is taken for a schedule", wrong[i]);
        assert_int_equal(f->diag.messages.items[f->diag.messages.n - 1].code, E5002);
    }
}

static void test_schedule_text(void **state) {
    Fixture *f = *state;
    const char *text =
        "graph {\n  %0 = input : f32[8, 9] \"x\"\n"
        "  %1 = reduce sum (%0) [r0: 9] : f32[8]\n    body $0[i0, r0]\n    post acc\n"
        "  output %1 \"y\"\n}\n";
    Graph *g = read_input(f, "schedule", text, strlen(text));
    const char *steps = "slide i0 5; split r0 4; order r0o i0i r0i; bind i0i vector; ";
    Nest n;
    nest_begin(&n, program_new(g), g->last, target_find("c"));
    assert_true(nest_replay(&n, steps));
    assert_string_equal(text_get(&n.steps), steps);
}

/* Devices of some architectures are small: products are cut into fewer pieces for them. */
static void test_devices(void **state) {
    const Target *cuda = target_find("cuda");
    (void)state;
    assert_int_equal(target_for_arch(cuda, "sm_87").multiprocessors, 16);
    assert_int_equal(target_for_arch(cuda, "sm_87,compute_90").multiprocessors, 132);
    assert_int_equal(target_for_arch(cuda, "sm_90a").multiprocessors, 132);
    assert_int_equal(target_for_arch(cuda, "sm_999").multiprocessors, cuda->multiprocessors);
    assert_int_equal(target_for_arch(cuda, NULL).multiprocessors, cuda->multiprocessors);
    assert_int_equal(target_for_arch(target_find("c"), "sm_87").multiprocessors, 0);
    assert_true(target_for_arch(cuda, "sm_80,sm_90a,compute_80").warp_tiles);
    assert_false(target_for_arch(cuda, "sm_90a,sm_75").warp_tiles);
    assert_true(target_for_arch(cuda, "cpu").warp_tiles);
    assert_false(target_for_arch(target_find("vulkan"), NULL).warp_tiles);
}

/* What a core without vectors has, by its name. */
static void test_cores(void **state) {
    static const struct {
        const char *arch;
        int scalars, floats; /* registers */
        bool soft_floats, byte_products;
    } cores[] = {
        {"armv6-m", 8, 6, true, false},
        {"armv7-m", 13, 6, true, false},
        {"armv7e-m", 13, 6, true, true},
        {"armv7e-m+fp.dp", 13, 32, false, true},
        {"armv8-m.main+fp", 13, 32, false, false},
        {"armv8-m.main+dsp+fp", 13, 32, false, true},
        {"armv8.1-m.main+mve.fp", 13, 32, false, true},
        {"armv8.1-m.main", 13, 6, true, false},
        {"rv32emac", 12, 6, true, false},
        {"cortex-m0plus", 8, 6, true, false},
        {"cortex-m4", 13, 32, false, true},
        {"cortex-m4+nofp", 13, 6, true, true},
        {"cortex-m33+nodsp", 13, 32, false, false},
        {"rv32imac_zicsr", 27, 6, true, false},
        {"rv32imafc", 27, 32, false, false},
        {"rv64gc", 27, 32, false, false},
    };
    const Target *c = target_find("c");
    (void)state;
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++) {
        const Target t = target_for_arch(c, cores[i].arch);
        assert_int_equal(t.scalar_registers, cores[i].scalars);
        assert_int_equal(t.vector_registers, cores[i].floats);
        assert_int_equal(t.soft_floats, cores[i].soft_floats);
        assert_int_equal(t.byte_products, cores[i].byte_products);
        assert_false(t.vector_types);
    }
    assert_int_equal(target_for_arch(c, "armv7-a").scalar_registers, 0);
    assert_int_equal(target_for_arch(c, "armv8-a").scalar_registers, 0);
    assert_int_equal(target_for_arch(c, "armv7-ma").scalar_registers, 0);
    assert_int_equal(target_for_arch(c, "cortex-a72").scalar_registers, 0);
    assert_int_equal(target_for_arch(target_find("cuda"), "armv7e-m").scalar_registers, 0);
}

/* The bound on the coordinates of one operator. */
static void test_too_many_dimensions(void **state) {
    Fixture *f = *state;
    Graph *g = graph_new(&f->arena, &f->x, &f->diag, "many");
    int64_t ones[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) ones[i] = 1;
    Builder b = build(g, MAX_RANK - 1, ones);
    build_red(&b, 1);
    assert_int_equal(f->diag.n_errors, 0);
    build_red(&b, 1);
    assert_int_equal(f->diag.n_errors, 1);
    assert_int_equal(f->diag.messages.items[0].code, E3006);
}

/* --- loops that are left ---------------------------------------------------------------------- */

/* A loop that has done all it does after three of ten iterations. Devices, which do them all, need
 * not be told so. */
static void test_go_on(void **state) {
    Fixture *f = *state;
    Exprs *x = &f->x;
    static const char *const targets[] = {"c", "cuda"};
    for (int blocks = 0; blocks < 2; blocks++) {
        Graph *g = graph_new(&f->arena, x, &f->diag, "leaves"), *sub = graph_new_sub(g);
        Value *h = graph_input(g, "h", DT_f32, 1, (const int64_t[]){4}), *out;
        Value *before = graph_input(sub, NULL, DT_f32, 1, h->shape);
        const Expr *number = ex_ctr(x, 0);
        Builder b = build(sub, 1, h->shape);
        const Expr *old = build_in(&b, before);
        const Expr *next = ex_mul(x, old, ex_num(x, DT_f32, 2));
        next = ex_select(x, ex_lt(x, number, ex_i(x, 3)), next, old);
        graph_output(sub, build_map(&b, DT_f32, next), NULL);
        b = build(sub, 0, NULL);
        sub->go_on = build_map(&b, DT_bool, ex_lt(x, number, ex_i(x, 2)));
        build_loop(g, sub, 10, 1, 1, &h, &out);
        graph_output(g, out, "y");
        Op *loop = out->def;
        assert_int_equal(loop->n_state, 2);
        assert_int_equal(loop->go_on, 2);
        PassOptions options = {.target = target_find(targets[blocks])};
        pass_dce(g, &options);
        assert_true(verify_graph(g, &f->diag, "dce"));
        assert_int_equal(loop->n_state, blocks ? 1 : 2);
        assert_int_equal(loop->go_on, blocks ? 0 : 2);
        assert_int_equal(loop->n_in, loop->sub->inputs.n);
        float in[4] = {1, -2, 3, 0.5f}, got[4];
        assert_true(interp_graph(g, (const void *const[]){in}, (void *[]){got}));
        for (int i = 0; i < 4; i++) assert_true(got[i] == 8 * in[i]);
    }
}

/* --- tiles of convolutions -------------------------------------------------------------------- */

/* A convolution whose last tiles go beyond the edge; its weights are too many for a text. Tiles are
 * of `points` in each direction. `bytes`: of the largest bytes, in part, with such weights (of 4
 * bits, for a window of 5); the results are exact. */
static void check_winograd(Fixture *f, DType precision, int64_t c, int64_t window, bool bytes,
                           int points) {
    Exprs *x = &f->x;
    DType dt = bytes ? DT_i32 : DT_f32;
    Graph *g = graph_new(&f->arena, x, &f->diag, "tiles");
    int64_t in[4] = {2, c, 18, 17}, w[4] = {48, c, window, window};
    int64_t out[4] = {2, 48, 19 - window, 18 - window};
    Value *image = graph_input(g, "x", bytes ? DT_u8 : DT_f32, 4, in), *weights;
    if (bytes) {
        int8_t *data = ARENA_ARRAY(&f->arena, shape_numel(4, w), int8_t);
        for (int i = 0; i < shape_numel(4, w); i++)
            data[i] = (int8_t)(i < 9 * c ? 127 : i < 18 * c ? -128 : i * 37 % 256 - 128);
        for (int i = 0; window == 5 && i < shape_numel(4, w); i++) data[i] /= 16;
        weights = graph_const(g, DT_i8, 4, w, data);
        Builder b = build(g, 4, in);
        const Expr *largest = ex_lt(x, ex_var(x, 2), ex_i(x, 9)), *most = ex_int(x, DT_u8, 255);
        image = build_map(&b, DT_u8, ex_select(x, largest, most, build_in(&b, image)));
    } else {
        float *data = ARENA_ARRAY(&f->arena, shape_numel(4, w), float);
        for (int i = 0; i < shape_numel(4, w); i++) data[i] = (float)(i * 37 % 101) / 50 - 1;
        weights = graph_const(g, DT_f32, 4, w, data);
    }
    Builder b = build(g, 4, out);
    const Expr *d = build_red(&b, c), *r = build_red(&b, window), *s = build_red(&b, window);
    const Expr *at[4] = {ex_var(x, 0), d, ex_add(x, ex_var(x, 2), r), ex_add(x, ex_var(x, 3), s)};
    const Expr *tap[4] = {ex_var(x, 1), d, r, s};
    const Expr *body = ex_mul(x, ex_cast(x, dt, build_load(&b, image, at)),
                              ex_cast(x, dt, build_load(&b, weights, tap)));
    const Expr *post =
        bytes ? ex_acc(x, dt) : ex_bin(x, EX_max, ex_acc(x, dt), ex_num(x, DT_f32, 0));
    graph_output(g, build_reduce(&b, dt, COMBINE_sum, body, post), "y");
    Results before = run_before(f, g);
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions options = {.target = &target, .precision = precision};
    pass_winograd(g, &options);
    assert_true(verify_graph(g, &f->diag, "winograd"));
    int sums = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_reduce) continue;
        sums++;
        if (sums == 2) assert_int_equal(op->out[0]->shape[0], points); /* the products */
    }
    assert_int_equal(sums, 3);
    void **got = value_buffers(&f->arena, 1, g->outputs.items, 0xee);
    assert_true(interp_graph(g, (const void *const *)before.in, got));
    compare(f, g, g->outputs.n, &before, got, "winograd", bytes ? 0 : 1e-5);
}

/* Tiles along some coordinates of others: of an image of rank - 2 coordinates, with a window of
 * `window` places, `apart` of each other. `axes`: along how many tiles are cut. */
static void check_winograd_axes(Fixture *f, int rank, const int64_t *window, const int64_t *apart,
                                int axes) {
    Exprs *x = &f->x;
    Graph *g = graph_new(&f->arena, x, &f->diag, "axes");
    int64_t in[5] = {2, 48}, w[5] = {32, 48}, out[5] = {2, 32};
    for (int d = 2; d < rank; d++) {
        in[d] = rank == 3 ? 66 : d < rank - 2 ? 9 : 18;
        w[d] = window[d - 2];
        out[d] = in[d] - (w[d] - 1) * apart[d - 2];
    }
    Value *image = graph_input(g, "x", DT_f32, rank, in);
    const int64_t n = shape_numel(rank, w);
    float *data = ARENA_ARRAY(&f->arena, n, float);
    for (int64_t i = 0; i < n; i++) data[i] = (float)(i * 37 % 101) / 50 - 1;
    Value *weights = graph_const(g, DT_f32, rank, w, data);
    Builder b = build(g, rank, out);
    const Expr *at[5], *tap[5];
    at[0] = ex_var(x, 0);
    tap[0] = ex_var(x, 1);
    at[1] = tap[1] = build_red(&b, w[1]);
    for (int d = 2; d < rank; d++) {
        tap[d] = w[d] > 1 ? build_red(&b, w[d]) : ex_i(x, 0);
        at[d] = ex_add(x, ex_var(x, d), ex_mul(x, tap[d], ex_i(x, apart[d - 2])));
    }
    const Expr *body = ex_mul(x, build_load(&b, image, at), build_load(&b, weights, tap));
    graph_output(g, build_reduce(&b, DT_f32, COMBINE_sum, body, ex_acc(x, DT_f32)), "y");
    Results before = run_before(f, g);
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions options = {.target = &target};
    pass_winograd(g, &options);
    assert_true(verify_graph(g, &f->diag, "winograd"));
    int sums = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_reduce) continue;
        sums++;
        if (sums != 2) assert_int_equal(op->n_red, axes); /* the transforms */
    }
    assert_int_equal(sums, 3);
    void **got = value_buffers(&f->arena, 1, g->outputs.items, 0xee);
    assert_true(interp_graph(g, (const void *const *)before.in, got));
    compare(f, g, g->outputs.n, &before, got, "winograd", 1e-5);
}

static void test_winograd(void **state) {
    check_winograd(*state, DT_none, 64, 3, false, 6);
    check_winograd(*state, DT_bf16, 64, 3, false, 4);
    check_winograd(*state, DT_none, 64, 3, true, 6);
    /* sums of 27 bits would not come back from tiles of 4 x 4 */
    check_winograd(*state, DT_none, 128, 3, true, 4);
    check_winograd(*state, DT_none, 64, 5, false, 6);
    check_winograd(*state, DT_none, 64, 5, true, 6);
}

static void test_winograd_axes(void **state) {
    const int64_t near[3] = {1, 1, 1}, far[3] = {2, 1, 2};
    check_winograd_axes(*state, 3, (int64_t[]){3}, near, 1);
    check_winograd_axes(*state, 3, (int64_t[]){3}, far, 1);
    check_winograd_axes(*state, 3, (int64_t[]){5}, near, 1);
    check_winograd_axes(*state, 3, (int64_t[]){9}, near, 1);
    check_winograd_axes(*state, 3, (int64_t[]){10}, far, 1);
    check_winograd_axes(*state, 4, (int64_t[]){3, 3}, far, 2);
    check_winograd_axes(*state, 4, (int64_t[]){3, 1}, near, 1);
    check_winograd_axes(*state, 4, (int64_t[]){2, 3}, far, 1);
    check_winograd_axes(*state, 4, (int64_t[]){5, 5}, near, 2);
    check_winograd_axes(*state, 4, (int64_t[]){5, 5}, far, 2);
    check_winograd_axes(*state, 4, (int64_t[]){3, 5}, near, 1);
    check_winograd_axes(*state, 5, (int64_t[]){3, 3, 3}, near, 2);
    check_winograd_axes(*state, 5, (int64_t[]){3, 2, 3}, far, 2);
    check_winograd_axes(*state, 5, (int64_t[]){1, 3, 3}, far, 2);
}

/* --- sums of bytes that fit into 16 bits ------------------------------------------------------ */

/* The largest magnitude of sums of `n` columns of one sign. */
static int sum_of_columns(const int8_t *w, int n) {
    int sum[2] = {0, 0};
    for (int i = 0; i < n; i++) sum[w[i] < 0] += abs(w[i]);
    return sum[0] > sum[1] ? sum[0] : sum[1];
}

/* What the sum of a rest promises to whoever computes it: pairs of a row that lie side by side, in
 * a window that begins at a place in it, whose products add up to 16 bits. */
static void check_rest(const Op *op, int64_t depth, int window) {
    const int32_t *place = op->in[1]->data;
    const uint8_t *to = op->in[2]->data;
    const int8_t *lack = op->in[3]->data;
    int64_t each = value_numel(op->in[3]) / value_numel(op->in[1]);
    for (int64_t i = 0; i < value_numel(op->in[1]); i++)
        assert_true(place[i] >= 0 && place[i] % 2 == 0 && place[i] <= depth - window);
    for (int64_t i = 0; i < value_numel(op->in[3]); i += 2) {
        assert_true(i / each < value_numel(op->in[1]));
        assert_true(to[i] % 2 == 0 && to[i] < window && to[i + 1] == to[i] + 1);
        assert_in_range(sum_of_columns(&lack[i], 2), 0, 128);
    }
}

/* What a product whose elements are dealt promises: bytes of a row within a window that begins at a
 * place in it, and products of two fours that add up to 16 bits. */
static void check_dealt(Fixture *f, const Op *op, int64_t depth, int64_t lanes) {
    Value *place = NULL, *to = NULL, *columns = NULL;
    for (int i = 1; i < op->n_in; i++) {
        if (op->in[i]->rank == 2 && op->in[i]->dt == DT_i32) place = op->in[i];
        if (op->in[i]->rank == 5) *(op->in[i]->dt == DT_u8 ? &to : &columns) = op->in[i];
    }
    assert_true(place && to && columns && columns->shape[3] == lanes);
    const int32_t *at = place->data;
    for (int64_t i = 0; i < value_numel(place); i++)
        assert_in_range(at[i], 0, depth - BYTES_WINDOW);
    assert_true(relieve_reaches(&f->arena, to, BYTES_WINDOW));
    const int64_t four = 4 * lanes;
    const Fours fours = {.v = columns,
                         .stride = 1,
                         .apart = four,
                         .together = 2,
                         .n = 2,
                         .extent = {lanes, value_numel(columns) / (2 * four)},
                         .step = {4, 2 * four}};
    assert_true(relieve_fits(&f->arena, &fours));
}

typedef enum Matrices {
    ONE_MATRIX,
    BATCH_OF_MATRICES, /* each with rows of its own */
    JOINED_MATRICES,   /* the first half of the columns is one, the others are the other */
    REPEATED_MATRIX    /* both halves are the same one */
} Matrices;

/* Columns that are `spread` wide about zero, and all of one sign if `one_sign`. `changes`: some of
 * their sums are too large. */
static void check_relief(Fixture *f, const char *arch, Matrices matrices, int64_t depth,
                         int64_t columns, int spread, bool one_sign, bool changes) {
    Exprs *x = &f->x;
    const int64_t each = matrices == ONE_MATRIX ? columns : columns / 2;
    const int rank = matrices == BATCH_OF_MATRICES ? 3 : 2, first = 3 - rank;
    const int64_t in[3] = {2, 9, depth}, out[3] = {2, 9, rank == 3 ? each : columns};
    const int64_t w[3] = {matrices == REPEATED_MATRIX ? 1 : columns / each, each, depth};
    Graph *g = graph_new(&f->arena, x, &f->diag, "relief");
    int8_t *data = ARENA_ARRAY(&f->arena, depth * columns, int8_t);
    uint32_t seed = 1;
    for (int64_t i = 0; i < depth * columns; i++) {
        int sum = 0; /* of three: mostly near zero */
        for (int k = 0; k < 3; k++) sum += (int)((seed = seed * 1664525 + 1013904223) >> 16) % 171;
        sum = (sum - 255) * spread / 255;
        data[i] = (int8_t)(one_sign ? -abs(sum) - 1 : sum > 127 ? 127 : sum < -128 ? -128 : sum);
    }
    Value *v = graph_input(g, "x", DT_u8, rank, &in[first]);
    Value *weights = graph_const(g, DT_i8, 3, w, data);
    Builder b = build(g, rank, &out[first]);
    const Expr *r = build_red(&b, depth), *column = ex_var(x, rank - 1), *width = ex_i(x, each);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), r}, *to[3] = {ex_i(x, 0), column, r};
    if (matrices == BATCH_OF_MATRICES) to[0] = ex_var(x, 0);
    if (matrices != BATCH_OF_MATRICES) at[1] = ex_var(x, 0);
    if (matrices == JOINED_MATRICES) to[0] = ex_div(x, column, width);
    if (matrices >= JOINED_MATRICES) to[1] = ex_bin(x, EX_rem, column, width);
    const Expr *body = ex_mul(x, ex_cast(x, DT_i32, build_load(&b, v, &at[first])),
                              ex_cast(x, DT_i32, build_load(&b, weights, to)));
    const Expr *post = ex_bin(x, EX_max, ex_acc(x, DT_i32), ex_int(x, DT_i32, 0));
    graph_output(g, build_reduce(&b, DT_i32, COMBINE_sum, body, post), "y");
    Results before = run_before(f, g);
    const Op product = *g->last;
    int dealt = 0;
    Target target = target_for_arch(target_find("c"), arch);
    PassOptions options = {.target = &target};
    pass_relieve(g, &options);
    assert_true(verify_graph(g, &f->diag, "relieve"));
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_reduce) continue;
        bool last = op->out[0] == g->outputs.items[0];
        if (!last) check_rest(op, depth, target.vector_bytes == 64 ? 64 : 16);
        if (!last) continue;
        if (op->n_red == 3) {
            check_dealt(f, op, depth, target.vector_bytes / 4);
            dealt++;
            continue;
        }
        assert_int_equal(op->n_red, 1 + changes);
        for (int i = 0; i < op->n_in; i++) {
            const int64_t bytes = value_numel(op->in[i]);
            const int together = bytes > depth * columns ? 1 : 2;
            const Fours fours = {op->in[i],     0, 1, 4, together, 1, {bytes / together / 4},
                                 {together * 4}};
            if (op->in[i]->dt == DT_i8 && (together == 1 || depth % 8 == 0) &&
                matrices != REPEATED_MATRIX)
                assert_true(relieve_fits(&f->arena, &fours));
        }
    }
    assert_true(changes || !dealt);
    void **got = value_buffers(&f->arena, 1, g->outputs.items, 0xee);
    assert_true(interp_graph(g, (const void *const *)before.in, got));
    compare(f, g, g->outputs.n, &before, got, "relieve", 0);
    if (depth % 8 || matrices != ONE_MATRIX) return;
    Nest n; /* a file that asks for short sums of what was there */
    nest_begin(&n, program_new(g), &product, &target);
    assert_true(nest_replay(&n, "split r0 8; split r0i 4; bind i0 unroll; bind i1 vector; "
                                "bind r0io short; bind r0ii unroll; order r0o r0io i0 i1 r0ii; "));
    assert_int_equal(nest_check_loops(&n), !changes);
}

static void test_relief(void **state) {
    static const char *const archs[] = {"skylake-avx512", "x86-64-v3", "x86-64-v2"};
    for (int i = 0; i < 3; i++) {
        const char *arch = archs[i];
        const Matrices one = ONE_MATRIX;
        check_relief(*state, arch, one, 64, 16, 32, false, false); /* fits as it is */
        check_relief(*state, arch, one, 64, 48, 127, false, true);
        check_relief(*state, arch, one, 520, 32, 127, false, true); /* fours beyond a choice */
        check_relief(*state, arch, one, 72, 32, 255, false, true);  /* many are -128 or 127 */
        check_relief(*state, arch, one, 128, 64, 127, true, true);
        check_relief(*state, arch, one, 4, 16, 127, false, false); /* too small */
        check_relief(*state, arch, one, 68, 16, 127, false, true); /* no pairs of fours */
        for (Matrices two = BATCH_OF_MATRICES; two <= JOINED_MATRICES; two++) {
            check_relief(*state, arch, two, 64, 32, 32, false, false);
            check_relief(*state, arch, two, 64, 96, 127, false, true);
            check_relief(*state, arch, two, 68, 32, 127, false, true);
            check_relief(*state, arch, two, 64, 96, 127, true, true);
        }
        check_relief(*state, arch, REPEATED_MATRIX, 64, 96, 127, false, false); /* stays */
    }
}

/* --- slices of the depth ---------------------------------------------------------------------- */

/* Of a product of `many` rows, of `bytes` or floats; another with fewer rows stays. */
static void check_slices(Fixture *f, const char *arch, bool bytes, int64_t many, int64_t columns,
                         int64_t depth, int slices) {
    Exprs *x = &f->x;
    DType dt = bytes ? DT_i32 : DT_f32, from = bytes ? DT_i16 : DT_f32;
    int64_t height[2] = {many, 8}, w[2] = {depth, columns};
    Graph *g = graph_new(&f->arena, x, &f->diag, "slices");
    void *data = ARENA_ARRAY(&f->arena, depth * w[1], float);
    for (int64_t i = 0; i < depth * w[1]; i++) {
        Scalar value = {.f = (double)(i * 37 % 101) / 50 - 1};
        if (bytes) value.i = i * 37 % 255 - 127;
        dt_save(from, data, (size_t)i, value);
    }
    Value *weights = graph_const(g, from, 2, w, data);
    for (int i = 0; i < 2; i++) {
        int64_t in[2] = {height[i], depth}, out[2] = {height[i], w[1]};
        Value *v = graph_input(g, i ? "few" : "many", from, 2, in);
        Builder b = build(g, 2, out);
        const Expr *r = build_red(&b, depth), *at[2] = {ex_var(x, 0), r},
                   *to[2] = {r, ex_var(x, 1)};
        const Expr *body = ex_mul(x, ex_cast(x, dt, build_load(&b, v, at)),
                                  ex_cast(x, dt, build_load(&b, weights, to)));
        const Expr *post = ex_bin(x, EX_max, ex_acc(x, dt), ex_num(x, dt, 0));
        graph_output(g, build_reduce(&b, dt, COMBINE_sum, body, post), i ? "b" : "a");
    }
    Results before = run_before(f, g);
    Target target = target_for_arch(target_find("c"), arch);
    PassOptions options = {.target = &target};
    pass_slice(g, &options);
    assert_true(verify_graph(g, &f->diag, "slice"));
    const int64_t length = slices == 1 ? depth : (depth / slices + 15) / 16 * 16;
    int sums = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_reduce) continue;
        sums++;
        assert_int_equal(op->red[0], sums < slices    ? length
                                     : sums == slices ? depth - (slices - 1) * length
                                                      : depth);
    }
    assert_int_equal(sums, slices + 1);
    void **got = value_buffers(&f->arena, 2, g->outputs.items, 0xee);
    assert_true(interp_graph(g, (const void *const *)before.in, got));
    compare(f, g, g->outputs.n, &before, got, "slice", bytes ? 0 : 1e-5);
}

static void test_slices(void **state) {
    /* the L2 cache holds rows in slices only */
    check_slices(*state, "skylake-avx512", false, 130, 192, 3072, 3);
    check_slices(*state, "skylake-avx512", true, 130, 192, 4096, 2);
    check_slices(*state, "skylake-avx512", false, 130, 192, 3071, 3);
    /* no rows, but a panel of three vectors; four of AVX-512 would be too large */
    check_slices(*state, "znver3", false, 420, 64, 1536, 1);
}

/* --- quarters of matrices ----------------------------------------------------------------------
 */

/* A product with an odd number of rows, and another of the same rows; a third has too few columns.
 * Where constants are not folded, all stay as they are. */
static void check_strassen(Fixture *f, bool folds) {
    Exprs *x = &f->x;
    Graph *g = graph_new(&f->arena, x, &f->diag, "quarters");
    static const char *const names[] = {"a", "b", "c"};
    int64_t in[3] = {2, 131, 640}, columns[3] = {600, 640, 40};
    Value *v = graph_input(g, "x", DT_f32, 3, in);
    float *data = ARENA_ARRAY(&f->arena, 640 * 640, float);
    for (int i = 0; i < 640 * 640; i++) data[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < 3; i++) {
        int64_t w[2] = {640, columns[i]}, out[3] = {2, 131, columns[i]};
        int down = i == 1; /* the dimension of the weights that is the depth */
        if (down) w[0] = columns[i], w[1] = 640;
        Value *weights = graph_const(g, DT_f32, 2, w, data);
        Builder b = build(g, 3, out);
        const Expr *r = build_red(&b, 640), *at[3] = {ex_var(x, 0), ex_var(x, 1), r}, *to[2];
        to[down] = r;
        to[!down] = ex_var(x, 2);
        const Expr *body = ex_mul(x, build_load(&b, v, at), build_load(&b, weights, to));
        const Expr *post = ex_bin(x, EX_max, ex_acc(x, DT_f32), ex_num(x, DT_f32, 0));
        graph_output(g, build_reduce(&b, DT_f32, COMBINE_sum, body, post), names[i]);
    }
    Results before = run_before(f, g);
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions options = {.target = &target, .strassen = true};
    g->no_fold = !folds;
    pass_strassen(g, &options);
    assert_true(verify_graph(g, &f->diag, "strassen"));
    pass_tidy(g, &options);
    int products = 0, maps = 0;
    for (const Op *op = g->first; op; op = op->next) {
        maps += op->kind == OP_map; /* the sums of the rows, once, and two of results */
        if (op->kind != OP_reduce) continue;
        assert_int_equal(op->red[0], products == 2 || !folds ? 640 : 320);
        products++;
    }
    assert_int_equal(products, 3);
    assert_int_equal(maps, folds ? 3 : 0);
    void **got = value_buffers(&f->arena, 3, g->outputs.items, 0xee);
    assert_true(interp_graph(g, (const void *const *)before.in, got));
    compare(f, g, g->outputs.n, &before, got, "strassen", 1e-5);
}

static void test_strassen(void **state) {
    check_strassen(*state, true);
    check_strassen(*state, false);
}

typedef struct WordProduct {
    const char *arch;
    DType dt; /* of the image, before it becomes words */
    int64_t height, depth, n, window, stride;
    bool quartered;
} WordProduct;

/* A convolution of words: exact, so asked for by nobody. */
static void check_words(Fixture *f, const WordProduct *c) {
    Exprs *x = &f->x;
    Graph *g = graph_new(&f->arena, x, &f->diag, "words");
    const int64_t depth = c->depth, side = (c->height - c->window) / c->stride + 1;
    const int64_t in[4] = {1, c->height, c->height, depth}, out[4] = {1, side, side, c->n};
    const int64_t w[4] = {c->n, depth, c->window, c->window};
    Value *v = graph_input(g, "x", c->dt, 4, in);
    const Expr *same[4];
    for (int d = 0; d < 4; d++) same[d] = ex_var(x, d);
    if (c->dt != DT_i16) {
        Builder b = build(g, 4, in);
        v = build_map(&b, DT_i16, ex_cast(x, DT_i16, build_load(&b, v, same)));
    }
    const int64_t n = shape_numel(4, w);
    int16_t *data = ARENA_ARRAY(&f->arena, n, int16_t);
    for (int64_t i = 0; i < n; i++) data[i] = (int16_t)(i * 7919 % 256 - 128);
    Value *weights = graph_const(g, DT_i16, 4, w, data);
    Builder b = build(g, 4, out);
    const Expr *r = build_red(&b, depth), *at[4] = {same[0]}, *to[4] = {same[3], r};
    for (int d = 0; d < 2; d++) {
        to[2 + d] = build_red(&b, c->window);
        at[1 + d] = ex_add(x, ex_mul(x, same[1 + d], ex_i(x, c->stride)), to[2 + d]);
    }
    at[3] = r;
    const Expr *body = ex_mul(x, ex_cast(x, DT_i32, build_load(&b, v, at)),
                              ex_cast(x, DT_i32, build_load(&b, weights, to)));
    const Expr *post = ex_add(x, ex_acc(x, DT_i32), ex_int(x, DT_i32, 5));
    graph_output(g, build_reduce(&b, DT_i32, COMBINE_sum, body, post), "y");
    Results before = {0};
    if (c->quartered) before = run_before(f, g);
    Target target = target_for_arch(target_find("c"), c->arch);
    PassOptions options = {.target = &target};
    pass_strassen(g, &options);
    assert_true(verify_graph(g, &f->diag, "strassen"));
    pass_tidy(g, &options);
    int products = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_reduce) continue;
        assert_int_equal(op->out[0]->rank, c->quartered ? 5 : 4);
        assert_int_equal(op->red[0], c->quartered ? depth / 2 : depth);
        products++;
    }
    assert_int_equal(products, 1);
    if (!c->quartered) return;
    void **got = value_buffers(&f->arena, 1, g->outputs.items, 0xee);
    assert_true(interp_graph(g, (const void *const *)before.in, got));
    compare(f, g, g->outputs.n, &before, got, "words", 0);
}

static void test_strassen_words(void **state) {
    static const WordProduct cases[] = {
        {"x86-64-v3", DT_u8, 16, 256, 256, 1, 1, true},
        {"x86-64-v3", DT_i8, 9, 256, 256, 2, 1, true},
        {"x86-64-v3", DT_u8, 17, 256, 256, 3, 2, true},  /* rows of the image in both halves */
        {"x86-64-v3", DT_u8, 27, 256, 512, 1, 1, true},  /* an odd number of rows */
        {"x86-64-v3", DT_i8, 53, 256, 512, 1, 2, false}, /* ... that are not side by side */
        {"x86-64-v3", DT_u8, 16, 256, 264, 1, 1, false}, /* halves are no whole vectors */
        {"x86-64-v3", DT_u8, 8, 256, 256, 1, 1, false},  /* few rows for so many columns */
        {"x86-64-v3", DT_u8, 16, 258, 256, 1, 1, false}, /* half the depth is no pairs */
        {"x86-64-v4", DT_u8, 16, 256, 256, 1, 1, true},
        {"x86-64-v3", DT_i16, 16, 256, 256, 1, 1, false}, /* sums might not fit */
        {"generic", DT_u8, 16, 256, 256, 1, 1, false},
        {"armv8-a", DT_u8, 16, 256, 256, 1, 1, false}, /* without such an instruction */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_words(*state, &cases[i]);
}

/* --- all of it -------------------------------------------------------------------------------- */

static int visible(const struct dirent *e) {
    return e->d_name[0] != '.';
}

static void find_files(const char *folder, int depth) {
    struct dirent **entries;
    int n = scandir(folder, &entries, visible, alphasort);
    for (int i = 0; i < n; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (depth == 0)
            find_files(path, 1);
        else if (n_files < MAX_FILES)
            files[n_files++] = strdup(path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

int main(int argc, char **argv) {
    bool all = true;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--bless"))
            bless = true;
        else {
            files[n_files++] = strdup(argv[i]);
            all = false;
        }
    if (all) find_files("tests/passes", 0);
    struct CMUnitTest tests[MAX_FILES + 10];
    int n = 0;
    for (int i = 0; i < n_files; i++)
        tests[n++] = (struct CMUnitTest){files[i], test_file, setup, teardown, NULL};
    if (all) {
        tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_devices);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_cores);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_wrong_schedules, setup,
                                                                        teardown);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_schedule_text, setup, teardown);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_too_many_dimensions,
                                                                        setup, teardown);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_winograd, setup, teardown);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_winograd_axes, setup, teardown);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_go_on, setup, teardown);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_slices, setup, teardown);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_relief, setup, teardown);
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_strassen, setup, teardown);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(test_strassen_words, setup,
                                                                        teardown);
    }
    int failed = _cmocka_run_group_tests("passes", tests, (size_t)n, NULL, NULL);
    for (int i = 0; i < n_files; i++) free(files[i]);
    return failed;
}
