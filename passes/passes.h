/* The pass pipeline from a graph to a placed program. The list is passes.def. */
#ifndef PASSES_PASSES_H
#define PASSES_PASSES_H

#include "ir/kernel.h"
#include "passes/schedules.h"

typedef struct PassOptions {
    const Target *target;
    DType precision;            /* what products may round their operands to; DT_none: nothing */
    bool bytes;                 /* ... to bytes, where they multiply weights of few bits */
    bool strassen;              /* may products add rows to each other? See strassen.c */
    const Schedules *schedules; /* measured ones, to be preferred to chosen ones; NULL: none */
    int variant;                /* of the chosen schedules (nest.h): 0 the best */
    const char *skip; /* --passes=-fuse,-cse: comma separated names without the minus; NULL: none.
                         Only optional graph passes can be left out */
    const char *dump; /* --dump-ir=NAME[,NAME] or "all"; NULL: none */
    bool time;        /* --time-passes */
    void (*on_pass)(void *user, const char *pass, const Graph *g, const Program *p, double seconds);
    void *user;
    bool verify; /* run the verifier after every pass, else where it costs little: before the
                    first, after the last on graphs, and on programs */
} PassOptions;

/* Runs the pipeline. NULL after diagnostics. */
Program *run_passes(Graph *g, const PassOptions *o);

void pass_dce(Graph *g, const PassOptions *o);
void pass_append(Graph *g, const PassOptions *o);
void pass_hoist(Graph *g, const PassOptions *o);
void pass_signs(Graph *g, const PassOptions *o);
void pass_bits(Graph *g, const PassOptions *o);
void pass_integer(Graph *g, const PassOptions *o);
void pass_cse(Graph *g, const PassOptions *o);
void pass_progressions(Graph *g, const PassOptions *o);
void pass_tabulate(Graph *g, const PassOptions *o);
void pass_widen(Graph *g, const PassOptions *o);
void pass_unjoin(Graph *g, const PassOptions *o);
void pass_winograd(Graph *g, const PassOptions *o);
void pass_strassen(Graph *g, const PassOptions *o);
void pass_phase(Graph *g, const PassOptions *o);
void pass_deepen(Graph *g, const PassOptions *o);
void pass_layout(Graph *g, const PassOptions *o);
void pass_flatten(Graph *g, const PassOptions *o);
void pass_fuse(Graph *g, const PassOptions *o);
void pass_early(Graph *g, const PassOptions *o);
void pass_recode(Graph *g, const PassOptions *o);
void pass_fixed(Graph *g, const PassOptions *o);
void pass_flush(Graph *g, const PassOptions *o);
void pass_narrow(Graph *g, const PassOptions *o);
void pass_softmax(Graph *g, const PassOptions *o);
void pass_strips(Graph *g, const PassOptions *o);
void pass_slice(Graph *g, const PassOptions *o);
void pass_stack(Graph *g, const PassOptions *o);
void pass_cascade(Graph *g, const PassOptions *o);
void pass_turn(Graph *g, const PassOptions *o);
void pass_compact(Graph *g, const PassOptions *o);
void pass_relieve(Graph *g, const PassOptions *o);
void pass_place(Graph *g, const PassOptions *o);
void pass_tidy(Graph *g, const PassOptions *o);
Program *pass_lower(Graph *g, const PassOptions *o);
void pass_split(Program *p, const PassOptions *o);
void pass_plan(Program *p, const PassOptions *o);

/* Drops the inputs of a map or a reduce that it does not load. */
void graph_drop_inputs(Graph *g, Op *op);
/* What builders, who append, made since `last` was g's last operator goes before op, as part of it.
 */
void graph_take_in(Graph *g, Op *last, Op *op);
/* Uses of every value of g in v->index: operands and graph outputs. */
void graph_count_uses(Graph *g);

#endif
