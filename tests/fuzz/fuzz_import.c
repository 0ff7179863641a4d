/* libFuzzer harness: any bytes as a model. Reading, importing and all passes must end with a result
 * or with messages, in bounded memory and time, and leak nothing. Open dimensions are 2. */
#include "compiler/onnx/import.h"
#include "passes/passes.h"
#include "tests/fuzz/proto_mutate.h"
#include "ir/verify.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define MEMORY ((size_t)64 << 20)

typedef struct Try {
    Arena arena;
    Diag diag;
    Exprs x;
    OnnxModel model;
    bool open;
    jmp_buf limit;
} Try;

static void limit_hit(void *user, size_t wanted, bool refused) {
    (void)refused;
    (void)wanted;
    longjmp(((Try *)user)->limit, 1);
}

/* Our own bugs are what is searched for: verifier messages and broken invariants. */
static void expect_no_bug(const Diag *diag) {
    for (int i = 0; i < diag->messages.n; i++)
        if (err_kind(diag->messages.items[i].code) == ERR_BUG) {
            fprintf(stderr, "%s\n", diag->messages.items[i].text);
            abort();
        }
}

static void try_model(Try *t, const uint8_t *data, size_t size) {
    DimOption all = {.name = "*", .low = 2, .value = 2};
    InputOption each = {"*", "2", false};
    ImportOptions options = {
        .dims = &all, .n_dims = 1, .items = &each, .n_items = 1, .image_decoder = true};
    t->open = onnx_read_memory(&t->model, &t->arena, &t->diag, data, size);
    if (!t->open) return;
    Graph *g = onnx_import(&t->arena, &t->x, &t->diag, &t->model, &options);
    if (!g || t->diag.n_errors) return;
    verify_graph(g, &t->diag, "import");
    expect_no_bug(&t->diag);
    PassOptions passes = {.target = target_at(size % 2 == 0), .verify = true};
    run_passes(g, &passes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Try *t = calloc(1, sizeof *t);
    if (!t) return 0;
    arena_init(&t->arena, MEMORY, limit_hit, t);
    diag_init(&t->diag, &t->arena, "fuzz");
    exprs_init(&t->x, &t->arena);
    if (setjmp(t->limit) == 0) {
        try_model(t, data, size);
        expect_no_bug(&t->diag);
    }
    if (t->open) onnx_close(&t->model.file);
    arena_free(&t->arena);
    free(t);
    return 0;
}
