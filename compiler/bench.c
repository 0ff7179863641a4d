/* The command bench: how long a model takes, and where.
 *
 * The model is compiled into a library that can measure its steps. First it runs without measuring
 * them, for the latency; then with, for the table of kernels. A kernel's bound is what the machine
 * could do it in: the longer of its multiply-adds at the peak and its bytes at the speed of the
 * memory that they fit in. Both are measured, on the same number of threads and compiled in the
 * same way.
 */
#include "compiler/measure.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_SECONDS  0.2
#define RUN_SECONDS   2.0
#define FEWEST_RUNS   10
#define MOST_RUNS     100000
#define MEMORY_LEVELS 3

static const size_t memory_sizes[MEMORY_LEVELS] = {256 << 10, 4 << 20, 128 << 20};

typedef struct KernelTime {
    const char *kernel, *nodes;
    uint64_t times, macs, bytes;
    double seconds, bound;
} KernelTime;

typedef struct Bench {
    Session *s;
    Runner r;
    uint64_t macs; /* of a run; 0: not known */
    /* results */
    int n_runs;
    double *run; /* seconds, the shortest first */
    double peak; /* floating-point operations per second; 0: not measured */
    double reads[MEMORY_LEVELS];
    int n_kernels;
    KernelTime *kernels; /* the longest first */
} Bench;

/* --- measuring -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs it `wanted` times, or where that is 0 for RUN_SECONDS. */
static bool measure_latency(Bench *b, int wanted) {
    double warm = seconds_now();
    do {
        if (runner_run(&b->r) < 0) return false;
    } while (seconds_now() - warm < WARM_SECONDS && wanted != 1);
    double start = seconds_now();
    int most = wanted ? wanted : MOST_RUNS;
    b->run = malloc((size_t)most * sizeof *b->run);
    if (!b->run) {
        diag_error(&b->s->diag, E0006, "no memory for the times of %d runs", most);
        return false;
    }
    while (b->n_runs < most) {
        bool enough = b->n_runs >= FEWEST_RUNS && seconds_now() - start > RUN_SECONDS;
        if (!wanted && enough) break;
        if ((b->run[b->n_runs++] = runner_run(&b->r)) < 0) return false;
    }
    qsort(b->run, (size_t)b->n_runs, sizeof *b->run, by_size);
    return true;
}

static double percentile(const Bench *b, int percent) {
    return b->run[(int)((int64_t)(b->n_runs - 1) * percent / 100)];
}

static bool measure_peak(Bench *b, const char *folder) {
    static const char *const sources[] = {"peak.c", "team.c"};
    Session *s = b->s;
    const char *path = arena_printf(&s->arena, "%s/peak.so", folder);
    if (!write_runtime_library(s, path, 2, sources)) return false;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    union { /* POSIX promises that a function pointer comes through dlsym whole */
        void *object;
        int (*function)(int, double *, int, const size_t *, double *);
    } symbol = {library ? dlsym(library, "mlcc_peak_v1") : NULL};
    int code = MLCC_E_FILE;
    if (symbol.object)
        code = symbol.function(b->r.m.threads, &b->peak, MEMORY_LEVELS, memory_sizes, b->reads);
    if (library) dlclose(library);
    if (code != MLCC_OK) diag_error(&s->diag, E0008, "the machine's peak cannot be measured");
    return code == MLCC_OK;
}

/* What the machine could do the kernel's work in. */
static double bound_of(const Bench *b, const KernelTime *k) {
    if (b->peak <= 0) return 0;
    int level = 0;
    uint64_t each = k->bytes / (k->times ? k->times : 1);
    while (level + 1 < MEMORY_LEVELS && each > memory_sizes[level]) level++;
    double compute = 2.0 * (double)k->macs / b->peak, memory = (double)k->bytes / b->reads[level];
    return compute > memory ? compute : memory;
}

static int by_time(const void *a, const void *b) {
    double x = ((const KernelTime *)a)->seconds, y = ((const KernelTime *)b)->seconds;
    return (x < y) - (x > y);
}

/* Adds a step to its kernel's row. What it does was counted for the largest extents. */
static void add_step(Bench *b, const mlcc_profile_row *row, uint64_t nanoseconds) {
    int i = 0;
    while (i < b->n_kernels && strcmp(b->kernels[i].kernel, row->kernel) != 0) i++;
    KernelTime *k = &b->kernels[i];
    if (i == b->n_kernels) {
        b->n_kernels++;
        *k = (KernelTime){.kernel = row->kernel, .nodes = row->nodes};
    }
    if (!b->r.extents) {
        k->times += row->times;
        k->macs += row->macs;
        k->bytes += row->bytes;
    }
    k->seconds += (double)nanoseconds * 1e-9;
}

/* Of each step the shortest time of a number of runs; steps of one kernel are added up. */
static bool measure_kernels(Bench *b) {
    const mlcc_profile *profile = b->r.profile;
    if (!profile) return true;
    uint32_t n = profile->n_steps;
    double start = seconds_now();
    bool ok = true;
    for (int i = 0; i < b->n_runs && ok; i++) {
        if (i >= FEWEST_RUNS && seconds_now() - start >= RUN_SECONDS) break;
        ok = runner_measure(&b->r);
    }
    b->kernels = ARENA_ARRAY(&b->s->arena, n + 1, KernelTime);
    for (uint32_t k = 0; k < n && ok; k++) add_step(b, &profile->rows[k], b->r.least[k]);
    for (int i = 0; i < b->n_kernels; i++) b->kernels[i].bound = bound_of(b, &b->kernels[i]);
    qsort(b->kernels, (size_t)b->n_kernels, sizeof *b->kernels, by_time);
    return ok;
}

/* --- printing --------------------------------------------------------------------------------- */

/* "12.3 M" */
static const char *in_units(Session *s, double value) {
    static const char *const unit[] = {"", " K", " M", " G", " T"};
    int i = 0;
    for (; value >= 1000 && i < 4; i++) value /= 1000;
    return arena_printf(&s->arena, i && value < 100 ? "%.1f%s" : "%.0f%s", value, unit[i]);
}

static double flops_of(uint64_t macs, double seconds) {
    return seconds > 0 ? 2.0 * (double)macs / seconds : 0;
}

static void print_kernels(const Bench *b) {
    double total = 0, bound = 0;
    for (int i = 0; i < b->n_kernels; i++) {
        total += b->kernels[i].seconds;
        bound += b->kernels[i].bound;
    }
    printf("\n%10s %6s %6s %8s %8s %8s %10s %6s  %s\n", "time us", "share", "times", "macs",
           "bytes", "GFLOP/s", "bound us", "of it", "kernel: nodes");
    for (int i = 0; i < b->n_kernels; i++) {
        const KernelTime *k = &b->kernels[i];
        printf("%10.2f %5.1f%% %6llu %8s %8s %8.1f %10.2f %5.0f%%  %s: %.60s%s\n", k->seconds * 1e6,
               total > 0 ? 100 * k->seconds / total : 0, (unsigned long long)k->times,
               in_units(b->s, (double)k->macs), in_units(b->s, (double)k->bytes),
               flops_of(k->macs, k->seconds) * 1e-9, k->bound * 1e6,
               k->seconds > 0 ? 100 * k->bound / k->seconds : 0, k->kernel, k->nodes,
               strlen(k->nodes) > 60 ? "..." : "");
    }
    printf("%10.2f  in all; bound %.2f\n", total * 1e6, bound * 1e6);
}

static void print_text(const Bench *b) {
    const mlcc_model *m = b->r.m.model;
    double median = percentile(b, 50);
    int digits = median < 1e-4 ? 6 : 4; /* of ms: a small model takes less than a microsecond */
    printf("%s: target %s, threads %d, runs %d\n", b->s->o->model, m->target, b->r.m.threads,
           b->n_runs);
    printf("latency: min %.*f ms, median %.*f, p90 %.*f, p99 %.*f\n", digits, b->run[0] * 1e3,
           digits, median * 1e3, digits, percentile(b, 90) * 1e3, digits, percentile(b, 99) * 1e3);
    if (b->r.extents) printf("extents: %s; what a run does is not counted\n", b->r.extents);
    if (b->macs)
        printf("multiply-adds: %s; at the median %.2f GFLOP/s\n", in_units(b->s, (double)b->macs),
               flops_of(b->macs, median) * 1e-9);
    if (b->peak > 0) {
        printf("machine: %.1f GFLOP/s", b->peak * 1e-9);
        if (b->macs)
            printf(" (the model does %.1f%% of it)", 100 * flops_of(b->macs, median) / b->peak);
        printf("; reads");
        for (int i = 0; i < MEMORY_LEVELS; i++)
            printf("%s %.1f GB/s from %zu KiB", i ? "," : "", b->reads[i] * 1e-9,
                   memory_sizes[i] >> 10);
        printf("\n");
    }
    if (b->n_kernels) print_kernels(b);
}

static void print_string(const char *text) {
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < ' ' || c == 0x7f)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_json(const Bench *b) {
    printf("{\"model\": ");
    print_string(b->s->o->model);
    printf(", \"target\": ");
    print_string(b->r.m.model->target);
    printf(", \"march\": ");
    print_string(b->s->o->march ? b->s->o->march : "");
    printf(", \"threads\": %d, \"runs\": %d,\n", b->r.m.threads, b->n_runs);
    printf(" \"latency_ms\": {\"min\": %.6f, \"median\": %.6f, \"p90\": %.6f, \"p99\": %.6f},\n",
           b->run[0] * 1e3, percentile(b, 50) * 1e3, percentile(b, 90) * 1e3,
           percentile(b, 99) * 1e3);
    printf(" \"macs\": %llu, \"gflops\": %.3f, \"peak_gflops\": %.3f,\n \"reads\": [",
           (unsigned long long)b->macs, flops_of(b->macs, percentile(b, 50)) * 1e-9,
           b->peak * 1e-9);
    for (int i = 0; i < MEMORY_LEVELS && b->peak > 0; i++)
        printf("%s{\"bytes\": %zu, \"gb_per_s\": %.3f}", i ? ", " : "", memory_sizes[i],
               b->reads[i] * 1e-9);
    printf("],\n \"kernels\": [");
    for (int i = 0; i < b->n_kernels; i++) {
        const KernelTime *k = &b->kernels[i];
        printf("%s\n  {\"kernel\": ", i ? "," : "");
        print_string(k->kernel);
        printf(", \"nodes\": ");
        print_string(k->nodes);
        printf(
            ", \"times\": %llu, \"us\": %.3f, \"macs\": %llu, \"bytes\": %llu, \"gflops\": %.3f, "
            "\"bound_us\": %.3f}",
            (unsigned long long)k->times, k->seconds * 1e6, (unsigned long long)k->macs,
            (unsigned long long)k->bytes, flops_of(k->macs, k->seconds) * 1e-9, k->bound * 1e6);
    }
    printf("]}\n");
}

/* --- the command ------------------------------------------------------------------------------ */

/* The path of the library to measure: the one given, or one made of the model. NULL after
 * diagnostics. */
static const char *library_of(Bench *b, const char *folder) {
    Session *s = b->s;
    const char *dot = strrchr(s->o->model, '.');
    if (dot && !strcmp(dot, ".so")) return s->o->model;
    Graph *g = march_runs(s) ? session_graph(s) : NULL;
    if (!g) return NULL;
    pass_dce(g, NULL);
    b->macs = (uint64_t)count_macs(g); /* of the largest extents */
    Program *p = session_lower(s, g);
    const char *path = arena_printf(&s->arena, "%s/model.so", folder);
    return p && write_program(s, p, path) ? path : NULL;
}

/* The number of runs asked for; 0: none is. Negative after a diagnostic. */
static int read_runs(Session *s) {
    char *end;
    long runs = s->o->runs ? strtol(s->o->runs, &end, 10) : 0;
    if (!s->o->runs || (!*end && runs > 0 && runs <= MOST_RUNS)) return (int)runs;
    diag_error(&s->diag, E0001, "-n wants a number from 1 to %d, not '%s'", MOST_RUNS, s->o->runs);
    return -1;
}

int command_bench(Session *s) {
    Bench b = {.s = s};
    const char *name = s->o->target ? s->o->target : "c", *weights = s->o->weights;
    s->target = target_find(name);
    if (!s->target) diag_error(&s->diag, E0001, "there is no target '%s' (c, cuda, vulkan)", name);
    int runs = read_runs(s);
    const char *folder = s->diag.n_errors ? NULL : temp_folder(s);
    if (!folder) return 0;
    const Options *given = s->o;
    Options o = *given;
    o.weights = NULL; /* the model's own go into the library */
    o.profile = true;
    s->o = &o;
    const char *library = library_of(&b, folder);
    if (library && runner_open(&b.r, s, library, library == o.model ? weights : NULL)) {
        bool on_cpu = !strcmp(b.r.m.model->target, "c");
        if (b.r.extents) b.macs = 0;
        if (!o.march && library == o.model)
            o.march = "native"; /* nothing says what it was made for */
        s->target = target_find("c");
        bool peak_runs = !on_cpu || library != o.model || march_runs(s);
        if (peak_runs && measure_latency(&b, runs) && (!on_cpu || measure_peak(&b, folder)) &&
            measure_kernels(&b)) {
            if (o.json)
                print_json(&b);
            else
                print_text(&b);
        }
    }
    runner_close(&b.r);
    temp_remove(folder);
    free(b.run);
    s->o = given;
    return 0;
}
