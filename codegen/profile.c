/* See profile.h. */
#include "codegen/profile.h"

#include "codegen/names.h"
#include "ir/graph.h"

int64_t step_macs(const Step *step) {
    const Kernel *k = step->kernel;
    int64_t macs = 0;
    for (int i = 0; i < k->n_params; i++) {
        const Op *op = k->buffers.items[i]->written ? step->args[i]->def : NULL;
        if (op && op->kind == OP_reduce && op->combine == COMBINE_sum && op->body->op == EX_mul)
            macs += value_numel(op->out[0]) * shape_numel(op->n_red, op->red);
    }
    return macs;
}

typedef struct Uses {
    Arena *arena;
    bool *buffer;  /* by number: it is used, ... */
    bool *counted; /* ... at places that depend on the number of a loop's iteration */
} Uses;

static void note_counter(void *user, const Expr *e) {
    *(bool *)user |= e->op == EX_ctr;
}

static void note_use(Uses *u, int buffer, int n, const Expr *const *index) {
    u->buffer[buffer] = true;
    for (int i = 0; i < n; i++) ex_visit(u->arena, index[i], note_counter, &u->counted[buffer]);
}

static void note_load(void *user, const Expr *e) {
    if (e->op == EX_load) note_use(user, (int)e->k.i, e->n, e->arg);
}

static void note_block(Uses *u, const Kernel *k, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->value) ex_visit(u->arena, s->value, note_load, u);
        if (s->kind == ST_store) {
            int rank = k->buffers.items[s->buffer]->rank;
            note_use(u, s->buffer, rank, s->index);
            for (int i = 0; i < rank; i++) ex_visit(u->arena, s->index[i], note_load, u);
        }
        note_block(u, k, s->body);
        note_block(u, k, s->other);
    }
}

int64_t step_bytes(const Step *step, int64_t times) {
    const Kernel *k = step->kernel;
    Arena arena;
    arena_init(&arena, 0, NULL, NULL);
    Uses u = {&arena, ARENA_ARRAY(&arena, k->buffers.n + 1, bool),
              ARENA_ARRAY(&arena, k->buffers.n + 1, bool)};
    note_block(&u, k, k->body);
    int64_t bytes = 0;
    for (int i = 0; i < k->n_params; i++)
        if (u.buffer[i]) bytes += step->places[i].bytes * (u.counted[i] ? 1 : times);
    arena_free(&arena);
    return bytes;
}

void print_profile(const Program *p, const char *const *kernel_name, Text *out) {
    int n = 0, depth = 0;
    long long times[MAX_RANK + 2] = {1};
    text_add(out, "static const mlcc_profile_row mlcc_step_rows[] = {\n");
    for (int s = 0; s < p->steps.n; s++) {
        const Step *step = &p->steps.items[s];
        int k = 0;
        if (step->kind == STEP_loop) {
            times[depth + 1] = times[depth] * (long long)step->trips;
            depth++;
        }
        if (step->kind == STEP_end) depth--;
        if (step->kind != STEP_launch) continue;
        while (p->kernels.items[k] != step->kernel) k++;
        text_addf(out, "    {\"%s\", %s, %lldu, %lldu, %lldu, 0x%llxu},\n", kernel_name[k],
                  c_string(p->arena, step->kernel->src ? step->kernel->src : ""), times[depth],
                  times[depth] * (long long)step_macs(step),
                  (long long)step_bytes(step, times[depth]), (unsigned long long)step->key);
        n++;
    }
    text_addf(out,
              "    {0, 0, 0, 0, 0, 0}};\nstatic uint64_t mlcc_step_times[%d];\n"
              "static mlcc_profile mlcc_steps_profile = {\n"
              "    sizeof(mlcc_profile), %d, mlcc_step_rows, mlcc_step_times, 0, -1, 0};\n\n",
              n + 1, n);
}
