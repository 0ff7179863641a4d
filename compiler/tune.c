/* The command tune: which schedules are fast on this machine.
 *
 * The compiler ranks the ways to tile an operator by a model of a core, and takes the first. Here
 * the model is compiled again with the second of every operator, the third and so on; each library
 * runs in turns with the first, so that both meet the same machine, and the shortest time of each
 * operator is compared. What was faster is built into one library, which must show it once more;
 * what remains faster is written down (passes/schedules.h).
 *
 * An operator is known by its key: equal layers are one. Weights do not matter, nor do inputs. No
 * trial begins for which there may not be the time.
 */
#include "compiler/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TRIALS    12
#define TUNE_SECONDS   55.0
#define TRIAL_SECONDS  1.0
#define FEWEST_ROUNDS  5
#define MOST_ROUNDS    1000
#define LEAST_SHARE    0.002 /* of a run, for an operator to be of interest */
#define WORTHWHILE     0.98  /* of the first schedule's time, for another to be taken */
#define FIRST_COLUMNS  "   first us   tuned us  times  kernel\n"

typedef struct Candidate {
    uint64_t key;
    const char *kernel;             /* its name with the first schedule */
    int times;                      /* launches in a run; none in loops */
    const char *steps[MOST_TRIALS]; /* that were tried, the first the compiler's own */
    int n_steps;
    uint64_t first;                 /* nanoseconds with it, of all launches */
    int best;                       /* of the steps */
    double ratio;                   /* of the best one's time to the first one's, in the same trial */
} Candidate;

/* A library and what its launches are. */
typedef struct Built {
    Runner r;
    VEC(uint64_t) keys; /* of each launch */
    VEC(const char *) steps;
} Built;

typedef struct Tune {
    Session *s; /* of the first schedules; what outlives a trial is in its arena */
    Built first;
    VEC(Candidate) candidates;
    double begin, longest; /* longest: seconds of one trial */
    /* the trial at work */
    bool any_new; /* it has steps that were not tried */
} Tune;

/* --- building
 * -------------------------------------------------------------------------------------*/

/* The operator that a launch computes; NULL if it is none of ours. */
static const Op *op_of(const Step *step) {
    for (int i = 0; i < step->kernel->n_params; i++)
        if (step->kernel->buffers.items[i]->written) return step->args[i]->def;
    return NULL;
}

static void note_launches(Session *s, const Program *p, Built *b) {
    for (int i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.items[i];
        if (step->kind != STEP_launch) continue;
        const Op *op = op_of(step);
        vec_push(&s->arena, &b->keys, op ? schedule_key(&s->arena, op, s->target) : 0);
        vec_push(&s->arena, &b->steps, step->kernel->schedule);
    }
}

/* Compiles the session's model. NULL after diagnostics. */
static Program *compile(Session *s, Built *b) {
    s->target = target_find("c");
    Program *p = session_program(s);
    if (p) note_launches(s, p, b);
    return p;
}

/* Builds the library and loads it; it needs its file no longer then. */
static bool load(Session *s, Program *p, Built *b) {
    const char *folder = temp_folder(s);
    if (!folder) return false;
    const char *path = arena_printf(&s->arena, "%s/model.so", folder);
    bool ok = write_program(s, p, path) && runner_open(&b->r, s, path, NULL);
    temp_remove(folder);
    return ok;
}

static Candidate *find_candidate(Tune *t, uint64_t key) {
    for (int i = 0; i < t->candidates.n; i++)
        if (t->candidates.items[i].key == key) return &t->candidates.items[i];
    return NULL;
}

static int find_steps(const Candidate *c, const char *steps) {
    for (int i = 0; i < c->n_steps; i++)
        if (!strcmp(c->steps[i], steps)) return i;
    return -1;
}

/* --- measuring
 * ------------------------------------------------------------------------------------*/

/* Of all launches of the operator. */
static uint64_t time_of(const Built *b, uint64_t key) {
    uint64_t sum = 0;
    for (int i = 0; i < b->keys.n; i++)
        if (b->keys.items[i] == key) sum += b->r.least[i];
    return sum;
}

static uint64_t time_of_all(const Built *b) {
    uint64_t sum = 0;
    for (int i = 0; i < b->keys.n; i++) sum += b->r.least[i];
    return sum;
}

/* Runs the two in turns; the first may be NULL. */
static bool measure(Built *first, Built *b, double seconds) {
    Built *both[2] = {first, b};
    for (int k = 0; k < 2; k++) {
        if (!both[k]) continue;
        runner_forget(&both[k]->r);
        if (runner_run(&both[k]->r) < 0) return false;
    }
    double start = seconds_now();
    for (int round = 0; round < MOST_ROUNDS; round++) {
        if (round >= FEWEST_ROUNDS && seconds_now() - start > seconds) break;
        for (int k = 0; k < 2; k++)
            if (both[k] && !runner_measure(&both[k]->r)) return false;
    }
    return true;
}

/* The operators that are worth a look. */
static void list_candidates(Tune *t) {
    const Built *b = &t->first;
    Arena *arena = &t->s->arena;
    double total = (double)time_of_all(b);
    for (int i = 0; i < b->keys.n; i++) {
        uint64_t key = b->keys.items[i];
        Candidate *known = key ? find_candidate(t, key) : NULL;
        if (known) known->times++;
        uint64_t took = key ? time_of(b, key) : 0;
        if (known || (double)took < LEAST_SHARE * total || !key) continue;
        Candidate c = {.key = key,
                       .kernel = arena_strdup(arena, b->r.profile->rows[i].kernel),
                       .times = 1,
                       .steps = {b->steps.items[i]},
                       .n_steps = 1,
                       .first = took,
                       .ratio = 1};
        vec_push(arena, &t->candidates, c);
    }
}

/* Notes the steps of a trial that are new. */
static void note_new_steps(Tune *t, const Built *b, int *tried) {
    t->any_new = false;
    for (int i = 0; i < t->candidates.n; i++) tried[i] = -1;
    for (int i = 0; i < b->keys.n; i++) {
        Candidate *c = b->keys.items[i] ? find_candidate(t, b->keys.items[i]) : NULL;
        if (!c || find_steps(c, b->steps.items[i]) >= 0) continue;
        tried[c - t->candidates.items] = c->n_steps;
        c->steps[c->n_steps++] = arena_strdup(&t->s->arena, b->steps.items[i]);
        t->any_new = true;
    }
}

static void compare(Tune *t, const Built *b, const int *tried) {
    for (int i = 0; i < t->candidates.n; i++) {
        Candidate *c = &t->candidates.items[i];
        uint64_t first = time_of(&t->first, c->key);
        if (first < c->first) c->first = first;
        double ratio = (double)time_of(b, c->key) / (double)(first ? first : 1);
        if (tried[i] < 0 || ratio >= c->ratio) continue;
        c->ratio = ratio;
        c->best = tried[i];
    }
}

/* The body of a trial's session: the library with the next schedules, in turns with the first. */
static int run_trial(Session *s) {
    Tune *t = s->o->trial->user;
    Built b = {.r = {.s = s}};
    Program *p = compile(s, &b);
    if (!p) return 0;
    int *tried = ARENA_ARRAY(&s->arena, t->candidates.n + 1, int);
    note_new_steps(t, &b, tried);
    if (t->any_new && load(s, p, &b) && measure(&t->first, &b, TRIAL_SECONDS)) {
        compare(t, &b, tried);
        fprintf(stderr, "%8.1f s  schedules %d: %.3f ms, the first %.3f ms\n",
                seconds_now() - t->begin, s->o->trial->variant + 1, (double)time_of_all(&b) * 1e-6,
                (double)time_of_all(&t->first) * 1e-6);
    }
    runner_close(&b.r);
    return 0;
}

/* The body of the last session: all that was faster, together. What is not again is given up. */
static int run_confirmation(Session *s) {
    Tune *t = s->o->trial->user;
    Built b = {.r = {.s = s}};
    Program *p = compile(s, &b);
    if (p && load(s, p, &b) && measure(&t->first, &b, 2 * TRIAL_SECONDS)) {
        for (int i = 0; i < t->candidates.n; i++) {
            Candidate *c = &t->candidates.items[i];
            c->first = time_of(&t->first, c->key);
            if (!c->best) continue;
            c->ratio = (double)time_of(&b, c->key) / (double)(c->first ? c->first : 1);
            if (c->ratio > WORTHWHILE) c->best = 0;
        }
    }
    runner_close(&b.r);
    return 0;
}

/* --- the result
 * -----------------------------------------------------------------------------------*/

static double tuned_us(const Candidate *c) {
    return (double)c->first * 1e-3 * (c->best ? c->ratio : 1);
}

/* The schedules that are faster than the first. */
static Schedules winners(Tune *t) {
    Arena *arena = &t->s->arena;
    const Options *o = t->s->o;
    Schedules table = {.comment = arena_printf(arena, "by mlcc tune, -march=%s, threads %s",
                                               o->march ? shown_name(t->s, o->march) : "generic",
                                               o->threads ? o->threads : "1")};
    for (int i = 0; i < t->candidates.n; i++) {
        Candidate *c = &t->candidates.items[i];
        if (c->ratio > WORTHWHILE) c->best = 0;
        if (!c->best) continue;
        ScheduleEntry e = {.key = c->key, .steps = c->steps[c->best]};
        e.comment = arena_printf(arena, "%s: %.1f us, %.1f us with the compiler's own choice",
                                 c->kernel, tuned_us(c), (double)c->first * 1e-3);
        schedules_add(arena, &table, e);
    }
    return table;
}

static void print_result(const Tune *t, const char *path) {
    double first = 0, tuned = 0, all = (double)time_of_all(&t->first) * 1e-3;
    int changed = 0;
    for (int i = 0; i < t->candidates.n; i++) {
        const Candidate *c = &t->candidates.items[i];
        first += (double)c->first * 1e-3;
        tuned += tuned_us(c);
        if (!c->best) continue;
        if (!changed++) printf(FIRST_COLUMNS);
        printf("%11.1f%11.1f %6d  %s\n", (double)c->first * 1e-3, tuned_us(c), c->times, c->kernel);
    }
    printf("%s: %d of %d operators measured have a faster schedule\n"
           "a run of %.1f us takes %.1f us with them: the compiler's own choices have %.3f of the "
           "tuned speed\n",
           path, changed, t->candidates.n, all, all - first + tuned,
           all > 0 ? (all - first + tuned) / all : 1.0);
}

static const char *default_path(Session *s) {
    size_t length = strlen(s->o->model);
    if (length > 5 && !strcmp(s->o->model + length - 5, ".onnx")) length -= 5;
    return arena_printf(&s->arena, "%.*s.tune", (int)length, s->o->model);
}

/* --- the command
 * ----------------------------------------------------------------------------------*/

/* A session of its own, so that its memory is given back. 0, or the exit status after diagnostics. */
static int in_session(Tune *t, int (*body)(Session *), Trial trial) {
    Options o = *t->s->o;
    double start = seconds_now();
    trial.user = t;
    o.trial = &trial;
    int status = with_session(&o, body);
    double took = seconds_now() - start;
    if (took > t->longest) t->longest = took;
    return status;
}

/* Is there time for one more trial and for the confirmation? */
static bool has_time(const Tune *t) {
    return seconds_now() - t->begin + 2 * t->longest + TRIAL_SECONDS < TUNE_SECONDS;
}

static int try_schedules(Tune *t) {
    int status = 0;
    t->any_new = true;
    for (int variant = 1; variant < MOST_TRIALS && t->any_new && !status && has_time(t); variant++)
        status = in_session(t, run_trial, (Trial){.variant = variant});
    if (status) return status;
    Schedules table = winners(t);
    if (!table.entries.n) return 0;
    fprintf(stderr, "%8.1f s  %d operators were faster: all of them together\n",
            seconds_now() - t->begin, table.entries.n);
    return in_session(t, run_confirmation, (Trial){.schedules = &table});
}

static int tune(Tune *t) {
    Session *s = t->s;
    Program *p = compile(s, &t->first);
    if (!p || !load(s, p, &t->first) || !measure(NULL, &t->first, TRIAL_SECONDS)) return 0;
    t->longest = seconds_now() - t->begin;
    list_candidates(t);
    fprintf(stderr, "%8.1f s  schedules 1: %.3f ms, %d operators of interest\n", t->longest,
            (double)time_of_all(&t->first) * 1e-6, t->candidates.n);
    int status = try_schedules(t);
    if (status) return status;
    Schedules table = winners(t);
    Text text = text_new(&s->arena);
    schedules_print(&text, &table);
    OutputFile file = {s->o->output ? s->o->output : default_path(s), text_get(&text), text.length};
    if (write_outputs(s, 1, &file)) print_result(t, file.path);
    return 0;
}

int command_tune(Session *s) {
    Tune t = {.s = s, .begin = seconds_now()};
    const Options *given = s->o;
    Options o = *given;
    o.profile = true;
    s->o = &o;
    int status = tune(&t);
    runner_close(&t.first.r);
    s->o = given;
    return status;
}
