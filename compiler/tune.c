/* The command tune: which schedules are fast on this machine.
 *
 * The compiler ranks the ways to tile an operator by a model of a core, and takes the first. Here
 * the model is compiled again with the second of every operator, the third and so on; each library
 * runs in turns with the first, so that both meet the same machine, and the shortest time of each
 * operator is compared. What was faster is built into one library, which must show it once more.
 * Then the fastest schedule of each operator is written down (passes/schedules.h), the compiler's
 * own included: a build that uses the file stays as it is when the ranking changes.
 *
 * An operator is known by its key: equal layers are one. Weights do not matter, nor do inputs. No
 * trial begins for which there may not be the time.
 */
#include "compiler/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TRIALS   12
#define TUNE_SECONDS  55.0
#define TRIAL_SECONDS 1.0
#define FEWEST_ROUNDS 5
#define MOST_ROUNDS   1000
#define LEAST_SHARE   0.002 /* of a run, for an operator to be of interest */
#define WORTHWHILE    0.98  /* of the first schedule's time, for another to be taken */
#define FIRST_COLUMNS "   first us   tuned us  times  kernel\n"

typedef struct Candidate {
    uint64_t key;
    const char *kernel;             /* its name with the first schedule */
    int times;                      /* launches in a run; none in loops */
    const char *steps[MOST_TRIALS]; /* that were tried, the first the compiler's own */
    int n_steps;
    int tried;      /* in the trial at work; 0: nothing new */
    uint64_t first; /* nanoseconds with it, of all launches */
    int best;       /* of the steps */
    double ratio;   /* of the best one's time to the first one's, in the same trial */
} Candidate;

/* A library and the program that it was made of. */
typedef struct Built {
    Program *p;
    Runner r;
} Built;

typedef struct Tune {
    Session *s; /* of the first schedules; what outlives a trial is in its arena */
    Built first;
    VEC(Candidate) candidates;
    double begin, longest; /* longest: seconds of one trial */
    /* the trial at work */
    bool any_new; /* it has steps that were not tried */
} Tune;

/* --- building --------------------------------------------------------------------------------- */

/* Compiles the session's model. False after diagnostics. */
static bool compile(Session *s, Built *b) {
    s->target = target_find("c");
    b->p = session_program(s);
    return b->p != NULL;
}

/* Builds the library and loads it; it needs its file no longer then. */
static bool load(Session *s, Built *b) {
    const char *folder = temp_folder(s);
    if (!folder) return false;
    const char *path = arena_printf(&s->arena, "%s/model.so", folder);
    bool ok = write_program(s, b->p, path) && runner_open(&b->r, s, path, NULL);
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

/* --- measuring -------------------------------------------------------------------------------- */

/* Nanoseconds of all launches of the operator; key 0: of all operators. */
static uint64_t time_of(const Built *b, uint64_t key) {
    const mlcc_profile *profile = b->r.profile;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < profile->n_steps; i++)
        if (!key || profile->rows[i].key == key) sum += b->r.least[i];
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

/* Calls `body` for each launch of a program whose operator has a key. */
static void each_launch(Tune *t, const Program *p, void (*body)(Tune *t, const Step *step)) {
    for (int i = 0; i < p->steps.n; i++)
        if (p->steps.items[i].key) body(t, &p->steps.items[i]);
}

/* An operator that is worth a look becomes a candidate. */
static void add_candidate(Tune *t, const Step *step) {
    Arena *arena = &t->s->arena;
    Candidate *known = find_candidate(t, step->key);
    uint64_t took = time_of(&t->first, step->key);
    if (known) known->times++;
    if (known || (double)took < LEAST_SHARE * (double)time_of(&t->first, 0)) return;
    Candidate c = {.key = step->key,
                   .kernel = step->kernel->name,
                   .times = 1,
                   .steps = {step->kernel->schedule},
                   .n_steps = 1,
                   .first = took,
                   .ratio = 1};
    vec_push(arena, &t->candidates, c);
}

/* The steps of a trial that are new are noted. */
static void note_steps(Tune *t, const Step *step) {
    Candidate *c = find_candidate(t, step->key);
    if (!c || c->n_steps == MOST_TRIALS || find_steps(c, step->kernel->schedule) >= 0) return;
    c->tried = c->n_steps;
    c->steps[c->n_steps++] = arena_strdup(&t->s->arena, step->kernel->schedule);
    t->any_new = true;
}

static void compare(Tune *t, const Built *b) {
    for (int i = 0; i < t->candidates.n; i++) {
        Candidate *c = &t->candidates.items[i];
        uint64_t first = time_of(&t->first, c->key);
        if (first < c->first) c->first = first;
        double ratio = (double)time_of(b, c->key) / (double)(first ? first : 1);
        if (!c->tried || ratio >= c->ratio) continue;
        c->ratio = ratio;
        c->best = c->tried;
    }
}

/* Where the gain is none worth having the compiler's choice stays. How many have another. */
static int settle(Tune *t) {
    int changed = 0;
    for (int i = 0; i < t->candidates.n; i++) {
        Candidate *c = &t->candidates.items[i];
        if (c->ratio > WORTHWHILE) c->best = 0;
        changed += c->best != 0;
    }
    return changed;
}

/* The body of a trial's session: the library with the next schedules, in turns with the first. */
static int run_trial(Session *s) {
    Tune *t = s->o->trial->user;
    Built b = {.p = NULL};
    if (!compile(s, &b)) return 0;
    t->any_new = false;
    for (int i = 0; i < t->candidates.n; i++) t->candidates.items[i].tried = 0;
    each_launch(t, b.p, note_steps);
    if (t->any_new && load(s, &b) && measure(&t->first, &b, TRIAL_SECONDS)) {
        compare(t, &b);
        fprintf(stderr, "%8.1f s  schedules %d: %.3f ms, the first %.3f ms\n",
                seconds_now() - t->begin, s->o->trial->variant + 1, (double)time_of(&b, 0) * 1e-6,
                (double)time_of(&t->first, 0) * 1e-6);
    }
    runner_close(&b.r);
    return 0;
}

/* The body of the last session: all that was faster, together. What is not again is given up. */
static int run_confirmation(Session *s) {
    Tune *t = s->o->trial->user;
    Built b = {.p = NULL};
    if (compile(s, &b) && load(s, &b) && measure(&t->first, &b, 2 * TRIAL_SECONDS)) {
        for (int i = 0; i < t->candidates.n; i++) {
            Candidate *c = &t->candidates.items[i];
            c->first = time_of(&t->first, c->key);
            if (!c->best) continue;
            c->ratio = (double)time_of(&b, c->key) / (double)(c->first ? c->first : 1);
        }
        settle(t);
    }
    runner_close(&b.r);
    return 0;
}

/* --- the result ------------------------------------------------------------------------------- */

static double tuned_us(const Candidate *c) {
    return (double)c->first * 1e-3 * (c->best ? c->ratio : 1);
}

/* The fastest schedule of each operator. */
static Schedules winners(const Tune *t) {
    Arena *arena = &t->s->arena;
    const Options *o = t->s->o;
    const char *march =
        o->march ? arena_printf(arena, "-march=%s", shown_name(t->s, o->march)) : "no -march";
    Schedules table = {.comment = arena_printf(arena, "by mlcc tune, %s, threads %s", march,
                                               o->threads ? o->threads : "1")};
    for (int i = 0; i < t->candidates.n; i++) {
        const Candidate *c = &t->candidates.items[i];
        double first = (double)c->first * 1e-3;
        ScheduleEntry e = {.key = c->key, .steps = c->steps[c->best]};
        e.comment =
            c->best
                ? arena_printf(arena, "%s: %.1f us, %.1f us by the compiler's own choice",
                               c->kernel, tuned_us(c), first)
                : arena_printf(arena, "%s: %.1f us, the compiler's own choice", c->kernel, first);
        schedules_add(arena, &table, e);
    }
    return table;
}

static void print_result(const Tune *t, const char *path) {
    double first = 0, tuned = 0, all = (double)time_of(&t->first, 0) * 1e-3;
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

/* --- the command ------------------------------------------------------------------------------ */

/* A session of its own, so that its memory is given back. 0, or the exit status after diagnostics.
 */
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
    int changed = settle(t);
    if (!changed) return 0;
    Schedules table = winners(t);
    fprintf(stderr, "%8.1f s  faster operators: %d; now all of them together\n",
            seconds_now() - t->begin, changed);
    return in_session(t, run_confirmation, (Trial){.schedules = &table});
}

static int tune(Tune *t) {
    Session *s = t->s;
    s->target = target_find("c");
    const char *path = s->o->output ? s->o->output : default_path(s);
    if (!march_runs(s) || !output_reserve(s, path)) return 0;
    if (!compile(s, &t->first) || !load(s, &t->first) || !measure(NULL, &t->first, TRIAL_SECONDS))
        return 0;
    t->longest = seconds_now() - t->begin;
    each_launch(t, t->first.p, add_candidate);
    fprintf(stderr, "%8.1f s  schedules 1: %.3f ms; operators of interest: %d\n", t->longest,
            (double)time_of(&t->first, 0) * 1e-6, t->candidates.n);
    int status = try_schedules(t);
    if (status) return status;
    Schedules table = winners(t);
    Text text = text_new(&s->arena);
    schedules_print(&text, &table);
    OutputFile file = {.path = path, .data = text_get(&text), .bytes = text.length};
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
