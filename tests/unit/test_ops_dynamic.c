/* Operators whose results have as many elements as a run finds (--dim NAME=LOW..HIGH, or the number
 * of elements as a bound): the interpreter and libraries of all targets give what is written here.
 * Inputs hold what no model should have, too: nothing is read or written outside of a tensor.
 * Vulkan is passed over with SKIP_VULKAN=1. */
#include "codegen/share.h"
#include "compiler/driver.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "tests/unit/model_text.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct Row {
    const char *text, *dims;
    const char *inputs[6]; /* the extents of dimensions behind the others */
    const char *result;
} Row;

static const Row rows[] = {
#include "tests/unit/ops_dynamic.def"
};

/* --- one row on one target -------------------------------------------------------------------- */

static struct {
    Bench *b;
    const Row *row;
    const char *result;
} now;

/* An input that ends where memory does: of inputs no more is read than a run gives. */
typedef struct Fenced {
    unsigned char *pages;
    size_t bytes, page;
} Fenced;

static const void *fence(Fenced *f, Bench *b, const Value *v, const Row *row, int i) {
    ModelText m = {.b = b, .p = row->inputs[i]};
    size_t count = 0, size = v->text ? (size_t)v->shape[v->rank - 1] : dt_store(v->dt);
    for (skip_blanks(&m); *m.p; skip_blanks(&m), count++) word(&m);
    /* some rows leave out what nothing reads, and faults are of extents that are not given */
    if (!dims_vary(v->rank, v->dims) || count == 0 || !strncmp(row->result, "fault: ", 7))
        count = value_bytes(v) / size;
    f->page = (size_t)sysconf(_SC_PAGESIZE);
    f->bytes = (count * size + f->page - 1) / f->page * f->page;
    f->pages =
        mmap(NULL, f->bytes + f->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->pages != MAP_FAILED);
    assert_int_equal(mprotect(f->pages + f->bytes, f->page, PROT_NONE), 0);
    return memcpy(f->pages + f->bytes - count * size, elements(b, v, row->inputs[i]), count * size);
}

static int run_row(Session *s) {
    s->target = target_find(s->o->target);
    Graph *g = session_graph(s);
    if (!g) now.result = "not imported";
    if (!g) return 0;
    const void *in[8];
    void *out[16];
    Fenced fenced[8];
    const int n_in = g->inputs.n;
    for (int i = 0; i < n_in; i++) in[i] = fence(&fenced[i], now.b, g->inputs.items[i], now.row, i);
    for (int i = 0; i < g->outputs.n; i++) {
        size_t bytes = value_bytes(g->outputs.items[i]);
        out[i] = memset(arena_alloc(&now.b->arena, bytes + 16), 0xa5, bytes);
    }
    Graph before = *g; /* the passes change it */
    Program *p = session_lower(s, g);
    const char *path = arena_printf(&s->arena, "%s/m.so", now.b->folder);
    LoadedModel m = {0};
    if (p && write_program(s, p, path) && model_load(s, &m, path, NULL)) {
        int status = m.model->run(m.state, in, out, m.arena);
        if (status == MLCC_OK || status == MLCC_E_EXTENT)
            now.result = outputs_text(now.b, &before, out);
        bool fault = !strncmp(now.result, "fault: ", 7);
        if (fault != (status == MLCC_E_EXTENT)) now.result = "another status";
    }
    model_unload(&m);
    for (int i = 0; i < n_in; i++) munmap(fenced[i].pages, fenced[i].bytes + fenced[i].page);
    return 0;
}

static int count_inputs(const Row *row) {
    int n = 0;
    while (n < 6 && row->inputs[n]) n++;
    return n;
}

static void check_row(Bench *b, const Row *row, const char *target, const char *march) {
    const char *path = arena_printf(&b->arena, "%s/m.onnx", b->folder);
    const char *dims[8];
    ModelText m = {.b = b, .p = row->dims ? row->dims : ""};
    Options o = {.model = path, .target = target, .march = march, .optimize = "1"};
    o.runtime_cache = b->folder;
    o.dims.items = dims;
    for (skip_blanks(&m); *m.p; skip_blanks(&m)) {
        const char *name = word(&m);
        want(&m, "=");
        dims[o.dims.n++] = arena_printf(&b->arena, "%s=%s", name, word(&m));
    }
    Text bytes = model_bytes(b, row->text);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(text_get(&bytes), 1, bytes.length, f);
    fclose(f);
    now.b = b;
    now.row = row;
    now.result = "no result";
    with_session(&o, run_row);
    if (strcmp(now.result, row->result) != 0)
        fail_msg("%s on %s: %s, not %s", row->text, target, now.result, row->result);
}

static void test_interpreter(void **state) {
    for (size_t i = 0; i < N(rows); i++) {
        const char *result =
            run_text(*state, rows[i].text, rows[i].dims, count_inputs(&rows[i]), rows[i].inputs);
        if (strcmp(result, rows[i].result) != 0)
            fail_msg("%s: %s, not %s", rows[i].text, result, rows[i].result);
    }
}

static void test_c(void **state) {
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "c", "generic");
}

static void test_vectors(void **state) {
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "c", "native");
}

static void test_cuda(void **state) {
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "cuda", "cpu");
}

static void test_vulkan(void **state) {
    const char *skip_it = getenv("SKIP_VULKAN");
    if (skip_it && strcmp(skip_it, "0") != 0) skip();
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "vulkan", NULL);
}

/* Every kernel that goes over rows that NonZero has found ends with the last of them, or asks first
 * whether there is one: the symbol is a parameter, x<N> : i32[1], that a loop's end or a condition
 * loads. */
static void test_work_ends(void **state) {
    Bench *b = *state;
    static const char *const arch[] = {"generic", "x86-64-v4"};
    for (size_t i = 0; i < N(arch); i++) {
        Graph *g = import_text(
            b,
            "opset 17 input m bool[100] input x f32[100,64] init z i64[1] = 0 n = NonZero(m) "
            "input w f32[64,32] i = Squeeze(n, z) g = Gather(x, i) output y y = MatMul(g, w)",
            NULL);
        Target target = target_for_arch(target_find("c"), arch[i]);
        PassOptions o = {.target = &target};
        assert_non_null(g);
        Program *p = run_passes(g, &o);
        int ending = 0;
        for (int k = 0; k < p->kernels.n; k++) {
            Text text = text_new(&b->arena);
            text_kernel(&text, p->kernels.items[k]);
            const char *said = text_get(&text);
            bool of_rows = strstr(said, "y : f32"), ends = false;
            const char *symbol = strstr(said, " : i32[1] within"), *loaded = "";
            if (symbol) loaded = arena_printf(&b->arena, "%.2s[0]", symbol - 2);
            for (const char *at = strstr(said, loaded); symbol && at && !ends;
                 at = strstr(at + 1, loaded))
                ends = at[strcspn(at, "\n") - 1] == '{';
            if (of_rows && !ends) fail_msg("it goes over all rows: %s", said);
            ending += of_rows;
        }
        assert_true(ending > 0); /* the gather may be part of the product */
    }
}

/* What threads share of products whose rows vary are the iterations that a run does, also where
 * another loop, of heads, is outside of that of the rows. */
static void test_shared_work(void **state) {
    Bench *b = *state;
    Graph *g = import_text(
        b, "opset 17 input x f32[6,S,64] input w f32[6,64,32] output y y = MatMul(x, w)",
        "S=1..512");
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    Program *p = run_passes(g, &o);
    int products = 0;
    for (int i = 0; i < p->kernels.n; i++) {
        const Kernel *k = p->kernels.items[i];
        if (k->buffers.n == k->n_params) continue; /* without sums */
        for (const Stmt *loop = k->body; loop; loop = loop->next) {
            assert_int_equal(loop->role, ROLE_parallel);
            assert_false(ex_is_const(loop->extent));
            assert_true(k->vars.items[loop->var].extent > 6 * 64);
            assert_int_equal(shared_unit(loop), 1);
            products++; /* of many rows, and of few */
        }
    }
    assert_int_equal(products, 2);
}

/* Strips of a convolution around a batch that varies: the loop does those of the run, eight or more
 * of an image, so that threads have something to do if there is one. */
static void test_strips(void **state) {
    Bench *b = *state;
    Graph *g = import_text(
        b,
        "opset 17 input x f32[B,32,112,112] input e f32[96,32,1,1] input d f32[96,1,3,3] "
        "input p f32[24,96,1,1] output y v = Conv(x, e) u = Relu(v) w = Conv(u, d) {group=96 "
        "pads=[1 1 1 1]} y = Conv(w, p)",
        "B=1..4");
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    Program *p = run_passes(g, &o);
    int loops = 0;
    for (int i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.items[i];
        if (step->kind != STEP_loop) continue;
        assert_non_null(step->args);
        assert_ptr_equal(step->args[0], p->graph->symbols.items[0]);
        assert_true(step->each >= 8 && step->each * 4 == step->trips);
        loops++;
    }
    assert_int_equal(loops, 1);
    Text once = text_new(&b->arena), again = text_new(&b->arena);
    text_program(&once, p, (TextOptions){0});
    assert_non_null(strstr(text_get(&once), " of %4 input 4 +0 bytes 4\n"));
    Program *back = parse_program(&b->arena, p->x, &b->diag, text_get(&once), once.length);
    assert_non_null(back);
    text_program(&again, back, (TextOptions){0});
    assert_string_equal(text_get(&once), text_get(&again));
}

/* The program of a model whose weights are numbers from 1 to 7, for a processor with vectors. */
static Program *vectors_of(Bench *b, const char *input, const char *weights, int count,
                           const char *rest, const char *dims) {
    Text model = text_new(&b->arena);
    text_addf(&model, "opset 17 %s init w f32[%s] =", input, weights);
    for (int i = 0; i < count; i++) text_addf(&model, " %d", i % 7 + 1);
    text_addf(&model, " %s", rest);
    Graph *g = import_text(b, text_get(&model), dims);
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    return run_passes(g, &o);
}

/* No tile has all rows of a batch of which a run may have one: that has tiles of its own. */
static void test_single_rows(void **state) {
    Program *p = vectors_of(*state, "input x f32[B,64]", "64,96", 64 * 96,
                            "output y y = MatMul(x, w)", "B=1..6");
    int singles = 0;
    for (int i = 0; i < p->kernels.n; i++)
        singles += strstr(p->kernels.items[i]->schedule, "single i0i 2 streams ") != NULL;
    assert_int_equal(singles, 1);
}

/* Hints for the L2 cache in the kernel's first loop that has some. */
static int far_hints(const Stmt *list) {
    int here = 0;
    for (const Stmt *s = list; s; s = s->next) here += s->kind == ST_prefetch && !s->near;
    for (const Stmt *s = list; s && !here; s = s->next) here = far_hints(s->body);
    return here;
}

static const Stmt *first_choice(const Stmt *list) {
    const Stmt *found = NULL;
    for (const Stmt *s = list; s && !found; s = s->next)
        found = s->kind == ST_if && s->other ? s : first_choice(s->body);
    return found;
}

/* What is left of rows that vary in number is done by half a tile where that is enough; of a run
 * that has one or two tiles, each of four steps brings two lines of the next columns. */
static void test_rest_of_rows(void **state) {
    Program *p = vectors_of(*state, "input x f32[B,512]", "512,512", 512 * 512,
                            "output y y = MatMul(x, w)", "B=3..64");
    const Kernel *k = NULL;
    for (int i = 0; i < p->kernels.n; i++)
        if (strstr(p->kernels.items[i]->schedule, "rest ")) k = p->kernels.items[i];
    assert_non_null(k);
    int tile = 0, rest = 0;
    const char *cut = strstr(k->schedule, " i0 ");
    assert_int_equal(sscanf(cut, " i0 %d;", &tile), 1);
    assert_int_equal(sscanf(strstr(k->schedule, "rest i0i"), "rest i0i %d;", &rest), 1);
    assert_int_equal(rest, (tile + 1) / 2);
    const Stmt *choice = first_choice(k->body);
    assert_non_null(choice);
    assert_int_equal(far_hints(choice->body), 4 * 2);
    assert_int_equal(far_hints(choice->other), 4 * 2);
}

/* Of images of 20 x 20 pixels at most a run may have few, for which weights of 6 x 6 points are
 * much to read. */
static void test_filtered_images(void **state) {
    static const struct {
        const char *dims;
        int64_t points;
    } images[] = {{"H=20 W=20", 6}, {"H=19..20 W=19..20", 6}, {"H=1..20 W=1..20", 4}};
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        Program *p = vectors_of(*state, "input x f32[1,256,H,W]", "64,256,3,3", 64 * 256 * 9,
                                "output y y = Conv(x, w) {pads=[1 1 1 1]}", images[i].dims);
        int products = 0;
        for (const Op *op = p->graph->first; op; op = op->next) {
            if (op->kind != OP_reduce || op->n_red != 1 || op->red[0] != 256) continue;
            assert_int_equal(op->out[0]->shape[0], images[i].points);
            products++;
        }
        assert_int_equal(products, 1);
    }
}

/* Images of any size are filtered by tiles, those of all rows side by side, and made where their
 * rim is. */
static void test_images(void **state) {
    Program *p = vectors_of(*state, "input x f32[1,32,H,W]", "32,32,3,3", 32 * 32 * 9,
                            "output y u = Relu(x) v = Conv(u, w) {pads=[1 1 1 1]} "
                            "a = Conv(v, w) {pads=[1 1 1 1]} y = Relu(a)",
                            "H=1..64 W=1..64");
    int products = 0, inside = 0;
    for (const Op *op = p->graph->first; op; op = op->next) {
        const Value *v = op->n_out ? op->out[0] : NULL;
        if (!v) continue;
        inside += v->inside && dims_vary(v->rank, v->dims);
        if (op->kind != OP_reduce || op->n_red != 1 || op->red[0] != 32) continue;
        assert_true(v->rank == 5 && v->shape[0] == 6 && v->shape[2] == 16 * 16);
        products++;
    }
    assert_int_equal(products, 2);
    assert_int_equal(inside, 1);

    /* the rim is cleared when all threads have made what lies in it, of which there may be more
     * than a run asks for */
    const EmitOptions all = {.prefix = "m", .vector_bytes = 32, .share_all = true};
    const Program *shared = share_loops(p, &all);
    const StepShare *share = share_steps(shared, &all);
    int rims = 0;
    for (int i = 0; i < shared->steps.n; i++) {
        const Step *step = &shared->steps.items[i];
        const Value *made =
            step->kind == STEP_launch ? step->args[step->kernel->n_params - 1] : NULL;
        const Step *before = i > 0 && made ? step - 1 : NULL;
        const Value *part = before && before->kind == STEP_launch
                                ? before->args[before->kernel->n_params - 1]
                                : NULL;
        if (!part || part->inside != made) continue;
        assert_true(share[i].barrier);
        rims++;
    }
    assert_int_equal(rims, 1);
}

/* What is known of reductions over extents that are computed: a softmax divides its product. */
static void test_computed_extents(void **state) {
    Program *p = vectors_of(*state, "input x f32[1,8,S] input q f32[4,8]", "8,8,3", 8 * 8 * 3,
                            "output y a = Conv(x, w) {strides=[2] pads=[1 1]} "
                            "k = Conv(a, w) {strides=[2] pads=[1 1]} s = MatMul(q, k) "
                            "e = Softmax(s) {axis=2} t = Transpose(k) {perm=[0 2 1]} "
                            "y = MatMul(e, t)",
                            "S=1..300");
    Text text = text_new(&((Bench *)*state)->arena);
    text_program(&text, p, (TextOptions){0});
    assert_non_null(strstr(text_get(&text), "exp_low("));
}

/* C computes what extents come to once, ahead of all loops. */
static void test_extents_first(void **state) {
    Bench *b = *state;
    Program *p = vectors_of(b, "input x f32[1,16,H,W]", "16,16,3,3", 16 * 16 * 9,
                            "output y a = Conv(x, w) {strides=[2 2] pads=[1 1 1 1]} "
                            "y = Conv(a, w) {strides=[2 2] pads=[1 1 1 1]}",
                            "H=1..64 W=1..64");
    const EmitOptions plain = {.prefix = "m", .vector_bytes = 32};
    Text text = text_new(&b->arena);
    Text header = text_new(&b->arena);
    emit_c(p, &plain, &text, &header);
    bool inside = false;
    int first = 0, later = 0; /* lines that read an extent */
    for (const char *line = text_get(&text); line && *line; line = strchr(line + 1, '\n')) {
        const char *end = strchr(line + 1, '\n'), *load = strstr(line, "[0] + ");
        if (!strncmp(line, "\n}", 2)) inside = false;
        if (!strncmp(line, "\n    for (", 10)) inside = true;
        if (load && end && load < end) (inside ? later++ : first++);
    }
    assert_true(first > 0);
    assert_int_equal(later, 0);
}

/* A tile has no rows of several images, of which there may be one: those of an image are enough, or
 * go on in the next image. */
static void test_tiles(void **state) {
    Bench *b = *state;
    static const struct {
        const char *name, *shape;
        int elements;
    } weights[] = {
        {"e", "96,32,1,1", 96 * 32}, {"d", "96,1,3,3", 96 * 9}, {"p", "24,96,1,1", 2304}};
    Text model = text_new(&b->arena);
    text_add(&model, "opset 17 input x f32[B,32,7,7] ");
    for (size_t i = 0; i < N(weights); i++) {
        text_addf(&model, "init %s f32[%s] =", weights[i].name, weights[i].shape);
        for (int k = 0; k < weights[i].elements; k++) text_addf(&model, " %d", k % 7 + 1);
        text_add(&model, " ");
    }
    text_add(&model, "output y v = Conv(x, e) w = Conv(v, d) {group=96 pads=[1 1 1 1]} "
                     "y = Conv(w, p)");
    Graph *g = import_text(b, text_get(&model), "B=1..8");
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    Program *p = run_passes(g, &o);
    int across = 0;
    for (int i = 0; i < p->kernels.n; i++) {
        const char *steps = p->kernels.items[i]->schedule;
        assert_null(strstr(steps, "split i0 "));
        assert_null(strstr(steps, "slide i0 "));
        across += strstr(steps, "split i0i1i2 ") || strstr(steps, "slide i0i1i2 ");
    }
    assert_true(across > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tiles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rest_of_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_filtered_images, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_single_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_images, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_computed_extents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_extents_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shared_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_interpreter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_c, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_vectors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cuda, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_vulkan, set_up, tear_down)};
    return cmocka_run_group_tests_name("sizes that a run finds", tests, NULL, NULL);
}
