/* Runs the list in passes.def; see passes.h. */
#include "passes/passes.h"
#include "ir/verify.h"

#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Is `name` in the comma separated list? */
static bool listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == 0 || at[length] == ',')) return true;
    return false;
}

typedef void GraphPass(Graph *, const PassOptions *);
typedef Program *LowerPass(Graph *, const PassOptions *);
typedef void ProgramPass(Program *, const PassOptions *);

typedef struct PassRow {
    const char *name;
    GraphPass *graph;
    LowerPass *lower;
    ProgramPass *program;
} PassRow;

#define ROW_graph(fn)   fn, NULL, NULL
#define ROW_lower(fn)   NULL, fn, NULL
#define ROW_program(fn) NULL, NULL, fn

static const PassRow rows[] = {
#define PASS(name, level, needs, gives) {#name, ROW_##level(pass_##name)},
#include "passes/passes.def"
};

Program *run_passes(Graph *g, const PassOptions *o) {
    Program *p = NULL;
    if (!verify_graph(g, g->diag, "import")) return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const PassRow *row = &rows[i];
        if (row->graph && strcmp(row->name, "tidy") != 0 && listed(o->skip, row->name)) continue;
        double start = now();
        if (row->graph)
            row->graph(g, o);
        else if (row->lower)
            p = row->lower(g, o);
        else
            row->program(p, o);
        if (g->diag->n_errors) return NULL;
        if (o->on_pass) o->on_pass(o->user, row->name, g, p, now() - start);
        bool last = i + 1 == sizeof rows / sizeof *rows || !rows[i + 1].graph;
        if (!o->verify && !last) continue;
        bool ok = p ? verify_program(p, g->diag, row->name) : verify_graph(g, g->diag, row->name);
        if (!ok) return NULL;
    }
    return p;
}
