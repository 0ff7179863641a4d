/* Programs shared among threads: where they wait for each other, that results are the same bits for
 * any number of threads, and that ThreadSanitizer finds no race in them. Run in the repository. */
#include "tests/unit/emit_fixture.h"

#include "codegen/share.h"
#include "tests/unit/graph_random.h"

static const EmitOptions all = {.share_all = true};

/* --- where threads wait ----------------------------------------------------------------------- */

/* Kernels: `each` can be shared, `one` can not, `two` is two loops, `again` two of which one reads
 * what the other writes, `fill` reads nothing; `rows` and `long` have loops inside; buffers of 32
 * bytes. `some` can be shared and takes 30,000 cycles, `much` a million, `bulk` a quarter million
 * in buffers of 4 MiB, of which `bit` writes an element. */
static const char kernels[] =
    "  kernel @each src \"each\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i\n"
    "    for i in 8 parallel {\n      store y[i] = x0[i] * 2.0\n    }\n  }\n"
    "  kernel @one src \"one\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i\n"
    "    for i in 8 {\n      store y[i] = x0[i] + 1.0\n    }\n  }\n"
    "  kernel @two src \"two\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i, k, v\n"
    "    for i in 4 parallel {\n      store y[i] = 0.5\n    }\n"
    "    for k in 4 parallel {\n      let v : f32 = x0[k]\n      store y[k + 4] = v\n    }\n  }\n"
    "  kernel @again src \"again\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i, k\n"
    "    for i in 4 parallel {\n      store y[i] = x0[i]\n    }\n"
    "    for k in 4 parallel {\n      store y[k + 4] = y[k]\n    }\n  }\n"
    "  kernel @fill src \"fill\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i\n"
    "    for i in 4 parallel {\n      store y[i] = 0.5\n    }\n  }\n"
    "  kernel @rows src \"rows\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i, k\n"
    "    for i in 2 parallel {\n      for k in 8 {\n        store y[k] = x0[k]\n      }\n    }\n  "
    "}\n"
    "  kernel @long src \"long\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i, k\n"
    "    for i in 2 parallel {\n      for k in 17 {\n        store y[i * 4] = x0[k % 8]\n      }\n "
    "   }\n  }\n"
    "  kernel @asked src \"asked\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i, o, k\n"
    "    for i in 2 parallel {\n      for o in 4 {\n        if o < 3 {\n"
    "          for k in 17 {\n            store y[i * 4 + o] = x0[k % 8]\n          }\n"
    "        }\n      }\n    }\n  }\n"
    "  kernel @some src \"some\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i, k\n"
    "    for i in 8 parallel {\n      for k in 3750 {\n        store y[i] = x0[i]\n      }\n    "
    "}\n  }\n"
    "  kernel @much src \"much\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    vars i, k\n"
    "    for i in 8 parallel {\n      for k in 125000 {\n        store y[i] = x0[i]\n      }\n    "
    "}\n  }\n"
    "  kernel @bulk src \"bulk\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars i\n"
    "    for i in 1048576 parallel {\n      store y[i] = x0[i]\n    }\n  }\n"
    "  kernel @bit src \"bit\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars i\n"
    "    for i in 1 {\n      store y[i] = x0[i]\n    }\n  }\n"
    "  kernel @columns src \"columns\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars part, row, block, "
    "k\n"
    "    for part in 8192 parallel {\n      let row : i32 upto 1024 = part % 1024\n"
    "      let block : i32 upto 8 = part / 1024\n      for k in 128 {\n"
    "        store y[row * 1024 + block * 128 + k] = x0[row * 1024 + block * 128 + k]\n      }\n"
    "    }\n  }\n"
    "  kernel @three src \"three\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars i, k\n"
    "    for i in 3 parallel {\n      for k in 300000 {\n"
    "        store y[i * 300000 + k] = x0[k * 3 + i]\n      }\n    }\n  }\n"
    "  kernel @turned src \"turned\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars i, k\n"
    "    for i in 1024 parallel {\n      for k in 1024 {\n"
    "        store y[k * 1024 + i] = x0[k * 1024 + i]\n      }\n    }\n  }\n"
    "  kernel @strewn src \"strewn\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars i, k\n"
    "    for i in 3 parallel {\n      for k in 300000 {\n"
    "        store y[i * 300000 + cast(i32, x0[k]) + k] = 0.5\n      }\n    }\n  }\n"
    "  kernel @halves src \"halves\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars i, v, row, k\n"
    "    for i in 2 parallel {\n      let v : f32 = x0[i]\n      for row in 4096 {\n"
    "        for k in 128 {\n          store y[row * 256 + i * 128 + k] = v\n        }\n"
    "      }\n    }\n  }\n"
    "  kernel @short src \"short\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars i, k\n"
    "    for i in 4096 parallel {\n      for k in 256 {\n"
    "        store y[i * 256 + k] = exp(x0[i * 256 + k])\n      }\n    }\n  }\n"
    "  kernel @apart src \"apart\" {\n"
    "    param x0 : f32[8]\n    param y : f32[8] written\n    reg r : f32[8]\n    vars i, k\n"
    "    alloc r\n"
    "    for i in 8 parallel {\n      store r[i] = x0[i]\n    }\n"
    "    for k in 8 parallel {\n      store y[k] = r[k]\n    }\n  }\n";

/* ... and `columns` with a hint for what the next block reads. */
static const char fetching_kernel[] =
    "  kernel @fetched src \"fetched\" {\n"
    "    param x0 : f32[1048576]\n    param y : f32[1048576] written\n    vars part, row, block, "
    "k\n"
    "    for part in 8192 parallel {\n      let row : i32 upto 1024 = part % 1024\n"
    "      let block : i32 upto 8 = part / 1024\n"
    "      prefetch x0[row * 1024 + block * 128 + 1024]\n      for k in 128 {\n"
    "        store y[row * 1024 + block * 128 + k] = x0[row * 1024 + block * 128 + k]\n      }\n"
    "    }\n  }\n";

static const char *place_text(Fixture *f, char letter) {
    if (letter == 'x') return "%0 input 0 +0 bytes 32";
    if (letter == 'y') return "%2 output 0 +0 bytes 32";
    if (letter == 'X') return "%12 input 1 +0 bytes 4194304";
    if (letter == 'p') return "%3 arena +0 bytes 32";
    if (letter < 'a')
        return arena_printf(&f->arena, "%%%d arena +%d bytes 4194304", 4 + letter - 'A',
                            (letter - 'A' + 1) * 4194304);
    return arena_printf(&f->arena, "%%%d arena +%d bytes 32", letter == 'a' ? 1 : 8 + letter - 'b',
                        (letter - 'a') * 32);
}

/* A program from words such as "each:xa": kernel, what it reads, what it writes; "loop" or "apart"
 * ... "end", of which the second is a loop whose iterations have c and d for themselves; "loop:b"
 * and "turns:b" are such that run as often as b says, one that ends with "end:b" is left where b
 * says so. x and y are the input and output, X is a large input, a, b, ... are places in the arena,
 * p lies inside of a.
 */
static const Program *program_of(Fixture *f, const char *words, const EmitOptions *o) {
    Text t = text_new(&f->arena);
    text_add(&t, "program {\n  graph @main {\n    %0 = input : f32[8] \"x\"\n"
                 "    %3 = map (%0) : f32[4]\n      body $0[i0] * 2.0\n"
                 "    %1 = map (%3) : f32[8]\n      if !(i0 < 4)\n      body 0.5\n"
                 "      holds %3 [0]\n"
                 "    %2 = map (%1) : f32[8]\n      body $0[i0] * 2.0\n");
    for (int v = 4; v < 12; v++) /* A to D, b to e */
        text_addf(&t, "    %%%d = map (%%0) : f32[%d]\n      body $0[0]\n", v, v < 8 ? 1048576 : 8);
    if (strchr(words, 'X')) text_add(&t, "    %12 = input : f32[1048576] \"large\"\n");
    text_add(&t, "    output %2 \"y\"\n  }\n");
    text_add(&t, kernels);
    text_add(&t, fetching_kernel);
    text_add(&t, "  arena 20971520\n");
    for (char *rest = arena_strdup(&f->arena, words), *word; (word = strtok_r(rest, " ", &rest));) {
        char *colon = strchr(word, ':');
        if (colon && !strncmp(word, "end", 3))
            text_addf(&t, "  end while %s\n", place_text(f, colon[1]));
        else if (colon && !strncmp(word, "loop", 4))
            text_addf(&t, "  loop 3 each 1 of %s\n", place_text(f, colon[1]));
        else if (colon && !strncmp(word, "turns", 5))
            text_addf(&t, "  loop 3 apart +64 bytes 64 each 1 of %s\n", place_text(f, colon[1]));
        else if (colon)
            text_addf(&t, "  launch @%.*s (%s, %s)\n", (int)(colon - word), word,
                      place_text(f, colon[1]), place_text(f, colon[2]));
        else
            text_add(&t, strcmp(word, "loop") == 0    ? "  loop 3\n"
                         : strcmp(word, "apart") == 0 ? "  loop 3 apart +64 bytes 64\n"
                                                      : "  end\n");
    }
    text_add(&t, "}\n");
    return share_loops(read_program(f, text_get(&t), t.length), o);
}

/* '|' a barrier, 's' a step that is shared, '1' one that is not; loops are brackets. */
static void check_shared(Fixture *f, const char *words, const EmitOptions *o, const char *wanted) {
    const Program *p = program_of(f, words, o);
    const StepShare *share = share_steps(p, o);
    Text t = text_new(&f->arena);
    for (int i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.items[i];
        if (share[i].barrier) text_add(&t, "|");
        text_add(&t, step->kind == STEP_loop  ? "("
                     : step->kind == STEP_end ? ")"
                     : share[i].alone         ? "1"
                                              : "s");
    }
    assert_string_equal(text_get(&t), wanted);
}

static void check_plan(Fixture *f, const char *words, const char *wanted) {
    check_shared(f, words, &all, wanted);
}

/* Kernels are one thread's where sharing gains less than waiting and moving data costs. */
static void test_gain(void **state) {
    static const EmitOptions gainful = {.share_all = false};
    static const char *const cases[][2] = {
        {"each:xy", "1"},
        {"much:xy", "s"},
        {"some:xy", "s"},
        {"some:xa some:xb some:xc", "sss"},
        {"much:xa each:ab much:by", "s|s|s"}, /* two barriers in any case */
        {"much:xa one:ab each:bc one:cd much:dy", "s|111|s"},
        {"bulk:AB bulk:BC bulk:CD", "s|s|s"},
        {"bit:AB bulk:BC bit:CD", "111"}, /* moving 4 MiB takes longer */
        {"bulk:XA", "s"},                 /* but no cache of the caller's core keeps so much */
        {"much:xa bit:AB bulk:BC bit:CD much:ay", "s111|s"},
        {"bit:AB bulk:BC bulk:CD bulk:DC bulk:CD bulk:DC bulk:CD bulk:DC bulk:CD",
         "1|s|s|s|s|s|s|s|s"},
        {"apart one:xb end", "(1)"},
        {"apart much:xb end", "(s)"},
        {"loop each:ab each:ba end", "(11)"},
        {"loop some:ab some:ba end", "(s|s|)"},
    };
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_shared(f, cases[i][0], &gainful, cases[i][1]);
    static const EmitOptions vectors = {.vector_bytes = 64};
    check_shared(f, "bulk:XA", &vectors, "s"); /* soon computed, but it takes long to come and go */
    assert_false(emit_c_shares(program_of(f, "each:xy", &all), &gainful));
    assert_true(emit_c_shares(program_of(f, "much:xy", &all), &gainful));
}

/* Rows of a loop that compilers may make vectors across are shared by whole vectors. */
static void test_unit(void **state) {
    Fixture *f = *state;
    static const struct {
        const char *kernel;
        int unit;
    } cases[] = {{"each:xa", 192}, {"rows:xa", 192}, {"long:xa", 1}, {"asked:xa", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Program *p = program_of(f, cases[i].kernel, &all);
        assert_int_equal(shared_unit(shared_loop(p->kernels.items[0])), cases[i].unit);
    }
}

/* Kernels are shared such that threads go on with what they have made. */
static void test_ways(void **state) {
    static const EmitOptions gainful = {.share_all = false};
    static const struct {
        const char *words;
        int kernel;
        const char *iterations; /* of the loops around each other, '*': the one that is shared;
                                   NULL: none is */
    } cases[] = {
        {"bulk:AB columns:BC bulk:CD", 1, "8 1024*"},
        {"columns:AB columns:BC", 1, "8192*"},
        {"bulk:AB fetched:BC bulk:CD", 1, NULL}, /* what is ahead is another thread's else */
        {"turned:AB columns:BC turned:CD", 1, "8192*"},
        {"turned:AB bulk:BC", 0, "1024 1024*"},
        {"bulk:AB three:BC", 1, "3 300000*"}, /* of three rows one thread would do two */
        {"strewn:AB", 0, "3*"},               /* which may store an element twice */
        {"halves:AB short:BC", 1, "4096*"},   /* rows of a kilobyte are not cut */
    };
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Program *p = program_of(f, cases[i].words, &gainful);
        const Kernel *k = p->steps.items[cases[i].kernel].kernel;
        const Stmt *shared = shared_loop(k);
        if (!cases[i].iterations) {
            assert_null(shared);
            continue;
        }
        assert_non_null(shared);
        Text t = text_new(&f->arena);
        for (const Stmt *s = k->body; s; s = s == shared ? NULL : s->body)
            text_addf(&t, "%s%lld%s", s == k->body ? "" : " ",
                      (long long)k->vars.items[s->var].extent, s == shared ? "*" : "");
        assert_string_equal(text_get(&t), cases[i].iterations);
    }
}

static void test_plan(void **state) {
    Fixture *f = *state;
    check_plan(f, "each:xa each:xb", "ss");           /* nothing in common but what is only read */
    check_plan(f, "each:xa each:ab", "s|s");          /* read after write */
    check_plan(f, "each:ab each:xa", "s|s");          /* write after read */
    check_plan(f, "each:xa each:xa", "s|s");          /* write after write */
    check_plan(f, "each:xa each:xb each:ay", "ss|s"); /* one barrier ... */
    check_plan(f, "each:xa each:xb each:ac each:by", "ss|ss"); /* ... serves two */
    check_plan(f, "each:aa each:bb each:aa", "ss|s");          /* in place */
    check_plan(f, "one:xa one:ab one:by", "111");              /* one thread needs none */
    check_plan(f, "one:xa one:ab each:by", "11|s");
    check_plan(f, "each:xa one:ab one:bc each:xd one:dy", "s|11s|1");
    check_plan(f, "each:xa one:ab each:xc one:cb", "s|1s|1");
    check_plan(f, "two:xa each:ab", "ss|s"); /* taken apart; each loop writes elements of its own */
    check_plan(f, "again:xa", "s|s");
    check_plan(f, "each:xa two:xa", "s|ss");
    check_plan(f, "each:xp fill:pa each:ab", "ss|s"); /* p lies inside of a */
    check_plan(f, "each:xp each:xp fill:pa", "s|ss");
    check_plan(f, "each:xp two:pa", "ss|s"); /* the second loop reads p */
    check_plan(f, "fill:xa each:xa", "s|s"); /* what is filled and then written anew */
    check_plan(f, "apart:xa", "1");          /* registers are a thread's own */
    /* loops: what comes last in an iteration comes before what is first in the next */
    check_plan(f, "each:xa loop each:ab each:ba end each:ay", "s|(s|s|)s");
    check_plan(f, "loop each:xa end", "(s|)");
    /* all threads look at b before any writes it again */
    check_plan(f, "loop each:xb end:b each:xa", "(|s|)s");
    check_plan(f, "loop each:xb end:b each:xb", "(|s|)|s");
    check_plan(f, "loop one:xb each:xa end:b", "(|1s|)");
    check_plan(f, "one:xb loop:b each:xa end each:xb", "1|(s|)|s");
    check_plan(f, "one:xb turns:b one:xc end each:xb", "1|(s)|s");
    check_plan(f, "loop one:xb end:b", "(1)");
    check_plan(f, "loop each:xa one:ab end one:by", "(s|1|)1");
    check_plan(f, "each:xa loop one:bc one:cb end each:by", "s(11)|s");
    check_plan(f, "each:xa loop one:bc one:ca end each:ay", "s|(11)|s");
    check_plan(f, "one:xa loop one:ab loop one:bc end end one:cy", "1(1(1))1");
    check_plan(f, "loop loop each:xa end one:bc end", "((s|)1|)");
    /* iterations that threads do apart: kernels are not shared, and need not wait */
    check_plan(f, "each:xa apart each:ac one:cd one:db end each:by", "s|(sss)|s");
    check_plan(f, "each:xa apart one:xc each:cb end one:ay", "s(ss)|1");
    check_plan(f, "each:xc apart one:xc each:cb end", "s|(ss)");
    check_plan(f, "loop apart one:xc each:cb end one:by end", "((ss)|1|)");
}

/* --- results ---------------------------------------------------------------------------------- */

static bool all_serial(const Kernel *k) {
    for (const Stmt *s = k->body; s; s = s->next)
        if (s->kind != ST_for || s->role != ROLE_serial) return false;
    return true;
}

static void set_roles(Kernel *k, Role role) {
    for (Stmt *s = k->body; s; s = s->next)
        if (s->kind == ST_for) s->role = role;
}

/* Makes the outermost loops of maps, reductions and scans parallel, the smallest too, where the
 * schedule has not done so. slid: also loops over tiles of which the last overlaps the one before
 * it: two threads then store the same numbers in the same place, which the sanitizer takes for a
 * race. */
static void bind_outermost(Program *p, bool slid) {
    for (int i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.items[i];
        if (step->kind != STEP_launch) continue;
        const Op *op = step->args[step->kernel->n_params - 1]->def;
        const char *schedule = step->kernel->schedule;
        if (!slid && schedule && strstr(schedule, "slide"))
            set_roles(step->kernel, ROLE_serial);
        else if (op && op->kind != OP_scatter && op->kind != OP_loop && all_serial(step->kernel))
            set_roles(step->kernel, ROLE_parallel);
    }
}

static void write_model(Fixture *f, const Program *p) {
    Text source = text_new(&f->arena), header = text_new(&f->arena);
    EmitOptions o = {.prefix = "model",
                     .model_name = "model",
                     .header_name = "model.h",
                     .descriptor = true,
                     .threads = true};
    emit_c(p, &o, &source, &header);
    assert_int_equal(f->diag.n_errors, 0);
    write_text(in_folder(f, "model.c"), text_get(&source), source.length);
    write_text(in_folder(f, "model.h"), text_get(&header), header.length);
}

/* Runs the library with several numbers of threads: the first against the interpreter, the others
 * bit by bit against the first. */
static void compare_threads(Fixture *f, const Program *p) {
    static const int numbers[] = {1, 2, 3, 5, 2};
    const Graph *g = p->graph;
    Tensors t = make_tensors(f, p, false);
    interpret_program(f, p, &t);
    void *library = dlopen(arena_printf(&f->arena, "./%s/model.so", f->folder), RTLD_NOW);
    if (!library) fail_msg("%s", dlerror());
    const mlcc_model *(*get)(void) = NULL;
    *(void **)&get = dlsym(library, "mlcc_model_v1");
    const mlcc_model *m = get();
    void *state = NULL, *arena = aligned_alloc(64, (size_t)m->arena_bytes / 64 * 64 + 64);
    assert_int_equal(m->open(&state, NULL), MLCC_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(m->set_threads(state, numbers[i]), MLCC_OK);
        for (int repeat = 0; repeat < 3; repeat++) {
            memset(arena, 0xa5, (size_t)m->arena_bytes);
            for (int k = 0; k < g->outputs.n; k++)
                memset(t.outputs[k], 0xa5, value_bytes(g->outputs.items[k]));
            assert_int_equal(m->run(state, (const void *const *)t.inputs, t.outputs, arena),
                             MLCC_OK);
            for (int k = 0; k < g->outputs.n; k++) {
                size_t bytes = value_bytes(g->outputs.items[k]);
                if (i || repeat) assert_memory_equal(t.outputs[k], t.wanted[k], bytes);
            }
            if (i || repeat) continue;
            compare_outputs(p, &t);
            for (int k = 0; k < g->outputs.n; k++)
                memcpy(t.wanted[k], t.outputs[k], value_bytes(g->outputs.items[k]));
        }
    }
    assert_int_equal(m->set_threads(state, 0), MLCC_E_ARGUMENT);
    m->close(state);
    free(arena);
    dlclose(library);
}

/* Runs the model on 4 threads; ThreadSanitizer watches. */
static const char race_main[] =
    "#include <stdlib.h>\n#include \"mlcc/model.h\"\n"
    "int main(void) {\n"
    "    const mlcc_model *m = mlcc_model_v1();\n"
    "    void *state, *arena = aligned_alloc(64, m->arena_bytes / 64 * 64 + 64);\n"
    "    const void **in = calloc(m->n_inputs + 1, sizeof *in);\n"
    "    void **out = calloc(m->n_outputs + 1, sizeof *out);\n"
    "    for (uint32_t i = 0; i < m->n_inputs; i++) in[i] = calloc(1, m->inputs[i].bytes + 64);\n"
    "    for (uint32_t i = 0; i < m->n_outputs; i++) out[i] = calloc(1, m->outputs[i].bytes + "
    "64);\n"
    "    if (m->open(&state, 0) || m->set_threads(state, 4)) return 2;\n"
    "    for (int i = 0; i < 3; i++)\n"
    "        if (m->run(state, in, out, arena)) return 3;\n"
    "    m->close(state);\n    return 0;\n}\n";

static void check_program(Fixture *f, Program *p, bool races) {
    bind_outermost(p, !races);
    write_model(f, p);
    must_run(f, arena_printf(&f->arena,
                             "gcc " STRICT " -Iruntime -I%s -fPIC -c -o %s/model.o %s/model.c && "
                             "gcc -std=gnu11 -O1 -Iinclude -Iruntime -shared -fPIC -o %s/model.so "
                             "%s/model.o runtime/team.c -lpthread -lm",
                             f->folder, f->folder, f->folder, f->folder, f->folder));
    compare_threads(f, p);
    if (!races || !emit_c_shares(p, &all)) return;
    write_text(in_folder(f, "main.c"), race_main, sizeof race_main - 1);
    must_run(f, arena_printf(&f->arena,
                             "gcc -std=gnu11 -O1 -g -fsanitize=thread -Iinclude -Iruntime -I%s "
                             "-o %s/race %s/model.c %s/main.c runtime/team.c -lm && "
                             "TSAN_OPTIONS=halt_on_error=1 %s/race",
                             f->folder, f->folder, f->folder, f->folder, f->folder));
}

/* A perceptron of two layers, its sizes drawn anew each time. */
static void test_perceptron(void **state) {
    Fixture *f = *state;
    Random r = {11};
    for (int i = 0; i < 3; i++) {
        int rows = 1 + random_below(&r, 40), in = 1 + random_below(&r, 70);
        int hidden = 1 + random_below(&r, 90), out = 1 + random_below(&r, 40);
        const char *text = arena_printf(
            &f->arena,
            "graph @mlp {\n  %%0 = input : f32[%d, %d] \"x\"\n  %%1 = input : f32[%d, %d] \"w0\"\n"
            "  %%2 = input : f32[%d, %d] \"w1\"\n"
            "  %%3 = reduce sum (%%0, %%1) [r0: %d] : f32[%d, %d]\n    body $0[i0, r0] * $1[r0, "
            "i1]\n"
            "    post max(acc, 0.0)\n"
            "  %%4 = reduce sum (%%3, %%2) [r0: %d] : f32[%d, %d]\n    body $0[i0, r0] * $1[r0, "
            "i1]\n"
            "    post acc\n"
            "  %%5 = reduce max (%%4) [r0: %d] : f32[%d]\n    body $0[i0, r0]\n    post acc\n"
            "  %%6 = map (%%4, %%5) : f32[%d, %d]\n    body exp($0[i0, i1] - $1[i0])\n"
            "  output %%6 \"y\"\n}\n",
            rows, in, in, hidden, hidden, out, in, rows, hidden, hidden, rows, out, out, rows, rows,
            out);
        check_program(f, lower_text(f, text, "c"), i == 0);
    }
}

/* Convolution between a pad, taken apart, and a scan; and a loop that carries a state. */
static void test_kinds(void **state) {
    Fixture *f = *state;
    check_program(
        f,
        lower_text(f,
                   "graph @conv {\n  %0 = input : f32[2, 3, 9, 10] \"x\"\n"
                   "  %1 = input : f32[5, 3, 3, 3] \"w\"\n"
                   "  %2 = map (%0) : f32[2, 3, 11, 12]\n    body select(1 <= i2 && i2 < 10 && "
                   "1 <= i3 && i3 < 11, $0[i0, i1, i2 - 1, i3 - 1], 0.0)\n"
                   "  %3 = reduce sum (%2, %1) [r0: 3, r1: 3, r2: 3] : f32[2, 5, 9, 10]\n"
                   "    body $0[i0, r0, i2 + r1, i3 + r2] * $1[i1, r0, r1, r2]\n    post acc\n"
                   "  %4 = scan sum (%3) axis 3 : f32[2, 5, 9, 10]\n    body $0[i0, i1, i2, r0]\n"
                   "    post acc\n"
                   "  output %4 \"y\"\n  output %2 \"z\"\n}\n",
                   "c"),
        true);
    check_program(
        f,
        lower_text(
            f,
            "graph @loop {\n  %0 = input : f32[40] \"h0\"\n  %1 = input : f32[30, 40] \"xs\"\n"
            "  %2, %3 = loop 30 state 1 (%0, %1) : f32[40], f32[30, 40] {\n"
            "    %0 = input : f32[40]\n    %1 = input : f32[30, 40]\n"
            "    %2 = map (%0, %1) : f32[40]\n      body $0[39 - i0] * 0.5 + $1[ctr0, i0]\n"
            "    %3 = map (%2) : f32[40]\n      body max($0[39 - i0], 0.0)\n"
            "    output %2\n    output %3\n  }\n"
            "  output %2 \"last\"\n  output %3 \"all\"\n}\n",
            "c"),
        true);
    /* what it would do behind its end shows */
    check_program(
        f,
        lower_text(f,
                   "graph @while {\n  %0 = input : f32[40] \"h0\"\n  %1 = const : bool[] = [true]\n"
                   "  %2, %3 = loop 30 state 2 while 1 (%0, %1) : f32[40], bool[] {\n"
                   "    %0 = input : f32[40]\n    %1 = input : bool[]\n"
                   "    %2 = map (%0) : f32[40]\n      body $0[39 - i0] * 2.0\n"
                   "    %3 = map () : bool[]\n      body ctr0 < 6\n"
                   "    output %2\n    output %3\n  }\n"
                   "  output %2 \"last\"\n}\n",
                   "c"),
        true);
}

/* Loops whose iterations threads do apart, with memory of their own. */
static void test_apart(void **state) {
    Fixture *f = *state;
    check_program(
        f,
        lower_text(f,
                   "graph @loop {\n  %0 = input : f32[30, 40] \"x\"\n"
                   "  %1, %2 = loop 30 state 0 (%0) : f32[30, 40], f32[30, 40] {\n"
                   "    %0 = input : f32[30, 40]\n"
                   "    %1 = map (%0) : f32[40]\n      body exp($0[ctr0, 39 - i0])\n"
                   "    %2 = reduce sum (%1) [r0: 40] : f32[1]\n      body $0[r0]\n      post acc\n"
                   "    %3 = map (%1, %2) : f32[40]\n      body $0[39 - i0] / $1[0]\n"
                   "    output %3\n    output %1\n  }\n"
                   "  output %1 \"y\"\n  output %2 \"z\"\n}\n",
                   "c"),
        true);
    size_t length;
    char *text = read_text(f, "tests/passes/strips/depthwise.ir", &length);
    *strstr(text, "; after") = 0;
    Program *p = lower_text(f, text, "c");
    bool apart = false;
    for (int i = 0; i < p->steps.n; i++) apart |= p->steps.items[i].apart;
    assert_true(apart);
    check_program(f, p, true);
}

static void test_random(void **state) {
    Fixture *f = *state;
    for (int seed = 1; seed <= 12; seed++) {
        Random r = {(uint64_t)seed * 91 + 3};
        bool exact;
        Graph *g = random_graph(&f->arena, &f->x, &f->diag, &r, 3 + random_below(&r, 20), &exact);
        PassOptions options = {.target = target_find("c"), .verify = true};
        Program *p = run_passes(g, &options);
        if (!p) fail_msg("seed %d: %s", seed, first_message(f));
        bind_outermost(p, false);
        if (emit_c_shares(p, &all)) check_program(f, p, seed % 3 == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ways, setup, teardown),
        cmocka_unit_test_setup_teardown(test_perceptron, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
