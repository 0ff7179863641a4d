/* ONNX's backend tests on one target.
 *
 * conformance --target c|cuda|vulkan [--suite DIR] [--filter GLOB] [--jobs N] [--report FILE]
 *
 * Every test is compiled by mlcc into a shared library, loaded through its descriptor, run on the test's
 * inputs with poisoned outputs, and compared with the suite's own tolerances (rtol 1e-3, atol 1e-7,
 * integers exactly). Where a file `dims` lies beside the model, its lines are what --dim gets: so are
 * tests made whose dimensions vary from run to run (scripts/vary-onnx-tests). CUDA runs emulated. A test whose model mlcc refuses with exit status 4 counts as
 * unsupported; anything else that is not a pass has failed. Workers are processes: one that dies fails
 * its test and is replaced. The last line is "conformance TARGET: P/T passed, U unsupported, F failed".
 */
#include "compiler/driver.h"
#include "compiler/io.h"
#include "codegen/glsl_compile.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_S   120
#define MAX_JOBS    16
#define MESSAGE_MAX 400
#define OPS_MAX     160

typedef enum Outcome { TEST_open, TEST_passed, TEST_unsupported, TEST_failed } Outcome;

typedef struct Result {
    int outcome;
    char message[MESSAGE_MAX];
    char ops[OPS_MAX]; /* the model's operators, for the report */
} Result;

typedef struct Worker {
    pid_t pid;
    int test; /* at work on; -1: none */
    time_t since;
} Worker;

typedef struct Shared { /* in memory that parent and workers share */
    int next;
    Worker worker[MAX_JOBS];
    Result result[];
} Shared;

typedef struct Suite {
    char **path; /* folder of each test */
    int n;
    const char *target, *march; /* march NULL: the default */
    Shared *shared;
    Result *current; /* in a worker: of the test at work */
    const char *folder;
    const char *scratch; /* for libraries */
} Suite;

static Suite suite;

/* --- comparing ------------------------------------------------------------------------------------*/

static bool same_element(DType dt, Scalar got, Scalar want) {
    if (!dt_is_float(dt)) return got.i == want.i;
    if (isnan(want.f) || isnan(got.f)) return isnan(want.f) && isnan(got.f);
    if (isinf(want.f) || isinf(got.f)) return want.f == got.f;
    return fabs(got.f - want.f) <= 1e-7 + 1e-3 * fabs(want.f);
}

static bool compare_strings(const TensorInfo *info, const char *data, const OnnxString *want) {
    int64_t n = shape_numel(info->rank, info->shape);
    for (int64_t i = 0; i < n; i++, data += info->width) {
        size_t length = want[i].length;
        bool same = length <= info->width && !memcmp(data, want[i].data, length);
        for (size_t k = length; k < info->width && same; k++) same = data[k] == 0;
        if (same) continue;
        snprintf(suite.current->message, MESSAGE_MAX,
                 "output %s: string %lld is '%.*s', not '%.*s'", info->name, (long long)i, (int)strnlen(data, info->width), data, (int)length,
                 want[i].data);
        return false;
    }
    return true;
}

static bool compare(Session *s, const TensorInfo *out, const void *data, const OnnxTensor *want) {
    TensorInfo info = *out;
    if (info.dt != want->dt || !shape_equal(info.rank, info.shape, want->rank, want->dims)) {
        snprintf(suite.current->message, MESSAGE_MAX, "output %s is %s%s, expected %s%s", out->name,
                 dt_name(info.dt), shape_text(&s->arena, info.rank, info.shape), dt_name(want->dt),
                 shape_text(&s->arena, want->rank, want->dims));
        return false;
    }
    if (info.width) return compare_strings(&info, data, want->data);
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < want->count; i++) {
        Scalar a = dt_load(info.dt, data, (size_t)i), b = dt_load(info.dt, want->data, (size_t)i);
        if (same_element(info.dt, a, b)) continue;
        wrong++;
        if (first < 0) first = i;
    }
    if (!wrong) return true;
    Scalar a = dt_load(info.dt, data, (size_t)first), b = dt_load(info.dt, want->data, (size_t)first);
    bool real = dt_is_float(info.dt);
    snprintf(suite.current->message, MESSAGE_MAX,
             "output %s: %lld of %lld elements differ, first [%lld] %.9g, expected %.9g", out->name,
             (long long)wrong, (long long)want->count, (long long)first, real ? a.f : (double)a.i,
             real ? b.f : (double)b.i);
    return false;
}

/* --- one test -------------------------------------------------------------------------------------*/

static bool read_tensor(Session *s, const char *path, OnnxTensor *t) {
    OnnxData data;
    return onnx_read_data(&data, &s->arena, &s->diag, ONNX_DATA_tensor, path) &&
           onnx_tensor(&data.file, &s->arena, &s->diag, data.tensor, t);
    /* the mapping is left to the end of the process: the tensor points into it */
}

static bool run_data_set(Session *s, LoadedModel *m, const char *folder) {
    Io io;
    io_of_model(s, &io, m->model);
    for (int i = 0, file = 0; i < io.n_in; i++) {
        if (io_input_hidden(&io, i)) continue;
        const char *path = arena_printf(&s->arena, "%s/input_%d.pb", folder, file++);
        if (!tensor_read(s, &io.in[i], path, io.in_data[i])) return false;
    }
    if (!io_set_extents(s, &io) ||
        !model_run(s, m, (const void *const *)io.in_data, io.out_data))
        return false;
    io_take_shapes(&io);
    for (int i = 0, file = 0; i < io.n_out; i++) {
        OnnxTensor t;
        if (io_output_hidden(&io, i)) continue;
        const char *path = arena_printf(&s->arena, "%s/output_%d.pb", folder, file++);
        if (!read_tensor(s, path, &t) || !compare(s, &io.out[i], io.out_data[i], &t)) return false;
    }
    return true;
}

static void note_ops(Session *s) {
    const Onnx__GraphProto *g = s->model.proto ? s->model.proto->graph : NULL;
    char *to = suite.current->ops, *end = to + OPS_MAX - 1;
    for (size_t i = 0; g && i < g->n_node; i++) {
        const char *op = g->node[i]->op_type;
        char word[64];
        snprintf(word, sizeof word, " %s ", op);
        char padded[OPS_MAX + 2];
        snprintf(padded, sizeof padded, " %s ", suite.current->ops);
        if (strstr(padded, word) || to + strlen(op) + 2 > end) continue;
        to += snprintf(to, (size_t)(end - to), "%s%s", to > suite.current->ops ? " " : "", op);
    }
}

static int test_body(Session *s) {
    suite.current->outcome = TEST_failed;
    s->target = target_find(suite.target);
    Program *p = session_program(s);
    note_ops(s);
    if (!p) return 0;
    const char *library = arena_printf(&s->arena, "%s/%d-%ld.so", suite.scratch, (int)getpid(),
                                       (long)(suite.current - suite.shared->result));
    LoadedModel m = {0};
    bool ok = write_program(s, p, library) && model_load(s, &m, library, NULL);
    unlink(library);
    for (int set = 0; ok; set++) {
        const char *folder = arena_printf(&s->arena, "%s/test_data_set_%d", suite.folder, set);
        struct stat st;
        if (stat(folder, &st) != 0) {
            ok = set > 0;
            break;
        }
        ok = run_data_set(s, &m, folder);
    }
    /* a driver is costly to start anew: the first model of a worker stays open */
    static bool kept;
    if (!kept && m.model)
        kept = true;
    else
        model_unload(&m);
    if (ok) suite.current->outcome = TEST_passed;
    return 0;
}

/* Dimensions that the model leaves open are those of the test's own inputs: NAME=VALUE for --dim. */
typedef struct Dims {
    const char *items[64];
    int n;
} Dims;

static void add_dims(Dims *dims, const Onnx__ValueInfoProto *input, const OnnxTensor *t) {
    const Onnx__TypeProto *type = input->type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return;
    const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
    for (size_t d = 0; shape && d < shape->n_dim && (int)d < t->rank && dims->n < 64; d++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[d];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) continue;
        bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                     dim->dim_param[0];
        char word[256];
        if (named)
            snprintf(word, sizeof word, "%s=%lld", dim->dim_param, (long long)t->dims[d]);
        else
            snprintf(word, sizeof word, "%s.%zu=%lld", input->name, d, (long long)t->dims[d]);
        bool known = false;
        size_t name = (size_t)(strrchr(word, '=') - word) + 1;
        for (int k = 0; k < dims->n; k++) known |= !strncmp(dims->items[k], word, name);
        if (!known) dims->items[dims->n++] = strdup(word);
    }
}

/* The lines of the file `dims` in the test's folder; false if there is none. */
static bool read_dims(Dims *dims) {
    char path[4200], line[256];
    snprintf(path, sizeof path, "%s/dims", suite.folder);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    while (dims->n < 64 && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        dims->items[dims->n++] = strdup(line);
    }
    fclose(f);
    return true;
}

static Dims found_dims;
static size_t found_bytes; /* of the longest string among the inputs */

static int find_dims(Session *s) {
    OnnxModel model;
    found_dims.n = 0;
    found_bytes = 1;
    bool given = read_dims(&found_dims);
    if (!onnx_read(&model, &s->arena, &s->diag, s->o->model)) return 0;
    const Onnx__GraphProto *g = model.proto->graph;
    int file = 0;
    for (size_t i = 0; i < g->n_input; i++) {
        bool initialized = false;
        for (size_t k = 0; k < g->n_initializer; k++)
            initialized |= !strcmp(g->initializer[k]->name, g->input[i]->name);
        if (initialized) continue;
        OnnxTensor t;
        char path[4200];
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", suite.folder, file++);
        const Onnx__TypeProto *type = g->input[i]->type;
        if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
            read_tensor(s, path, &t)) {
            if (!given) add_dims(&found_dims, g->input[i], &t);
            const OnnxString *strings = t.dt == DT_str ? t.data : NULL;
            for (int64_t k = 0; strings && k < t.count; k++)
                if (strings[k].length > found_bytes) found_bytes = strings[k].length;
        }
    }
    onnx_close(&model.file);
    return 0;
}

static void run_test(int i) {
    Result *r = suite.current = &suite.shared->result[i];
    suite.folder = suite.path[i];
    char model[4096];
    snprintf(model, sizeof model, "%s/model.onnx", suite.folder);
    Options o = {.model = model, .optimize = "1", .runtime_cache = suite.scratch};
    o.march = !strcmp(suite.target, "cuda") ? "cpu" : suite.march;
    char *text = NULL;
    size_t length = 0;
    FILE *keep = stderr, *capture = open_memstream(&text, &length);
    stderr = capture;
    with_session(&o, find_dims);
    o.dims = (StringList){found_dims.items, found_dims.n};
    char bytes[32];
    const char *string_bytes[1] = {bytes};
    snprintf(bytes, sizeof bytes, "%zu", found_bytes);
    o.string_bytes = (StringList){string_bytes, 1};
    int status = with_session(&o, test_body);
    stderr = keep;
    fclose(capture);
    if (r->outcome != TEST_passed && status == 4) r->outcome = TEST_unsupported;
    if (r->outcome != TEST_passed && !r->message[0]) {
        const char *at = strstr(text, "error[");
        snprintf(r->message, MESSAGE_MAX, "%.*s", (int)strcspn(at ? at : text, "\n"), at ? at : text);
    }
    free(text);
}

static void work(int me) {
    Arena arena;
    Diag diag;
    arena_init(&arena, 0, NULL, NULL);
    diag_init(&diag, &arena, NULL);
    if (!strcmp(suite.target, "vulkan")) glsl_open(&arena, &diag, NULL); /* stays warm */
    for (;;) {
        int i = __atomic_fetch_add(&suite.shared->next, 1, __ATOMIC_SEQ_CST);
        if (i >= suite.n) _exit(0);
        suite.shared->worker[me].since = time(NULL);
        suite.shared->worker[me].test = i;
        run_test(i);
        suite.shared->worker[me].test = -1;
    }
}

/* --- the suite ------------------------------------------------------------------------------------*/

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void collect(const char *root, const char *filter) {
    static const char *const kinds[] = {"node", "simple", "pytorch-converted", "pytorch-operator"};
    int cap = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char folder[2048];
        snprintf(folder, sizeof folder, "%s/%s", root, kinds[k]);
        DIR *dir = opendir(folder);
        if (!dir) continue;
        for (struct dirent *e; (e = readdir(dir));) {
            char path[4096], model[4200];
            if (e->d_name[0] == '.' || (filter && fnmatch(filter, e->d_name, 0) != 0)) continue;
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            snprintf(model, sizeof model, "%s/model.onnx", path);
            if (access(model, R_OK) != 0) continue;
            if (suite.n == cap) {
                cap = cap ? cap * 2 : 256;
                suite.path = realloc(suite.path, (size_t)cap * sizeof *suite.path);
            }
            suite.path[suite.n++] = strdup(path);
        }
        closedir(dir);
    }
    if (suite.n) qsort(suite.path, (size_t)suite.n, sizeof *suite.path, by_name);
}

static void start(int w) {
    suite.shared->worker[w].test = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) work(w);
    suite.shared->worker[w].pid = pid;
}

/* Waits for workers; a dead or stuck one fails its test and is replaced. */
static void supervise(int jobs) {
    int running = jobs;
    for (int w = 0; w < jobs; w++) start(w);
    while (running) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0) {
            struct timespec nap = {0, 20 * 1000 * 1000};
            nanosleep(&nap, NULL);
            for (int w = 0; w < jobs; w++) {
                Worker *at = &suite.shared->worker[w];
                if (at->pid > 0 && at->test >= 0 && time(NULL) - at->since > TIMEOUT_S)
                    kill(at->pid, SIGKILL);
            }
            continue;
        }
        if (pid < 0) break;
        for (int w = 0; w < jobs; w++) {
            Worker *at = &suite.shared->worker[w];
            if (at->pid != pid) continue;
            at->pid = 0;
            running--;
            if (at->test < 0) continue;
            Result *r = &suite.shared->result[at->test];
            r->outcome = TEST_failed;
            snprintf(r->message, MESSAGE_MAX, WIFSIGNALED(status) ? "died with signal %d"
                                                                  : "ended with status %d",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            start(w);
            running++;
        }
    }
}

/* --- report ---------------------------------------------------------------------------------------*/

typedef struct OpRow {
    char name[64];
    int count[4];
} OpRow;

static int by_op(const void *a, const void *b) {
    return strcmp(((const OpRow *)a)->name, ((const OpRow *)b)->name);
}

static const char *const outcome_names[] = {"open", "passed", "unsupported", "FAILED"};

static void write_report(const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) return;
    OpRow *rows = calloc(1024, sizeof *rows);
    int n = 0;
    for (int i = 0; i < suite.n; i++) {
        char ops[OPS_MAX], *rest = ops;
        snprintf(ops, sizeof ops, "%s", suite.shared->result[i].ops);
        for (char *op; (op = strtok_r(rest, " ", &rest));) {
            int k = 0;
            while (k < n && strcmp(rows[k].name, op) != 0) k++;
            if (k == n && n < 1023) snprintf(rows[n++].name, sizeof rows->name, "%s", op);
            rows[k].count[suite.shared->result[i].outcome]++;
        }
    }
    qsort(rows, (size_t)n, sizeof *rows, by_op);
    fprintf(f, "%-32s %8s %12s %8s\n", "operator (in tests)", "passed", "unsupported", "failed");
    for (int k = 0; k < n; k++)
        fprintf(f, "%-32s %8d %12d %8d\n", rows[k].name, rows[k].count[TEST_passed],
                rows[k].count[TEST_unsupported], rows[k].count[TEST_failed]);
    fprintf(f, "\n");
    for (int i = 0; i < suite.n; i++) {
        const char *name = strrchr(suite.path[i], '/') + 1;
        const Result *r = &suite.shared->result[i];
        fprintf(f, "%-12s %s%s%s\n", outcome_names[r->outcome], name, r->message[0] ? ": " : "",
                r->message);
    }
    free(rows);
    fclose(f);
}

int main(int argc, char **argv) {
    const char *root = NULL, *filter = NULL, *report = NULL;
    int jobs = 2;
    suite.target = "c";
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--target")) suite.target = argv[i + 1];
        if (!strcmp(argv[i], "--march")) suite.march = argv[i + 1];
        if (!strcmp(argv[i], "--suite")) root = argv[i + 1];
        if (!strcmp(argv[i], "--filter")) filter = argv[i + 1];
        if (!strcmp(argv[i], "--report")) report = argv[i + 1];
        if (!strcmp(argv[i], "--jobs")) jobs = atoi(argv[i + 1]);
    }
    if (!root || !target_find(suite.target) || jobs < 1 || jobs > MAX_JOBS) {
        fprintf(stderr, "usage: conformance --target c|cuda|vulkan --suite DIR [--march ARCH] "
                        "[--filter GLOB] [--report FILE] [--jobs N]\n");
        return 2;
    }
    collect(root, filter);
    size_t bytes = sizeof(Shared) + (size_t)suite.n * sizeof(Result);
    suite.shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char scratch[] = "/tmp/mlcc-conformance-XXXXXX";
    suite.scratch = mkdtemp(scratch);
    if (suite.shared == MAP_FAILED || !suite.scratch) return 3;
    supervise(jobs);
    int count[4] = {0};
    for (int i = 0; i < suite.n; i++) {
        const Result *r = &suite.shared->result[i];
        count[r->outcome]++;
        if (r->outcome == TEST_failed || r->outcome == TEST_open)
            printf("FAILED %s: %s\n", strrchr(suite.path[i], '/') + 1, r->message);
    }
    temp_remove(suite.scratch);
    if (report) write_report(report);
    int failed = count[TEST_failed] + count[TEST_open];
    printf("conformance %s: %d/%d passed, %d unsupported, %d failed\n", suite.target,
           count[TEST_passed], suite.n, count[TEST_unsupported], failed);
    return failed || !suite.n;
}
