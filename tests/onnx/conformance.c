/* ONNX's backend tests on one target.
 *
 * conformance --target c|cuda|vulkan [--suite DIR] [--filter GLOB] [--jobs N] [--report FILE]
 *
 * Every test is compiled by mlcc into a shared library, loaded through its descriptor, run on the
 * test's inputs with poisoned outputs, and compared with the suite's own tolerances (rtol 1e-3,
 * atol 1e-7, integers exactly). CUDA runs emulated unless --march names a GPU. What mlcc wants to
 * know when compiling (dimensions that are open, lengths of sequences) is that of the test's data;
 * where a file `dims` lies beside the model, its lines are what --dim gets: so are tests made whose
 * dimensions vary from run to run (scripts/vary-onnx-tests). A model that is refused with exit
 * status 4 is tried once more with its small inputs fixed to the test's values, for shapes may
 * depend on them; the report says so. Refused again it counts as unsupported; anything else that is
 * not a pass has failed. Numbers that are drawn at random agree in type, shape and range with those
 * of the test, and are whole where those are; the report says that, too. Where MagickWand is not
 * installed, tests that decode images count as unsupported. The host decodes them, all else is
 * kernels, strings and sequences too: the report marks and counts tests that are in part on the
 * host. Workers are processes: one that dies fails its test and is replaced. The last line is
 * "conformance TARGET: P/T passed, U unsupported, F failed".
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
    bool on_host;      /* the host does a part of it before the kernels */
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

struct Words;

typedef struct Suite {
    char **path; /* folder of each test */
    int n;
    const char *target, *march; /* march NULL: plain C, CUDA on the CPU */
    Shared *shared;
    Result *current; /* in a worker: of the test at work */
    const char *folder;
    const char *scratch;       /* for libraries */
    const char *image_decoder; /* NULL: there is none on this machine */
    const struct Words *fixed; /* inputs that are compiled into the library; NULL: none */
} Suite;

static Suite suite;

/* --- comparing -------------------------------------------------------------------------------- */

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
                 "output %s: string %lld is '%.*s', not '%.*s'", info->name, (long long)i,
                 (int)strnlen(data, info->width), data, (int)length, want[i].data);
        return false;
    }
    return true;
}

/* Does the model draw numbers from a generator that ONNX leaves open? */
static bool draws(const Session *s) {
    static const char *const ops[] = {"Bernoulli", "RandomUniformLike"};
    const Onnx__GraphProto *g = s->model.proto->graph;
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
            if (!strcmp(g->node[i]->op_type, ops[k])) return true;
    return false;
}

/* No element is below the least or above the greatest that is wanted, and all are whole if those
 * are. */
static bool compare_range(DType dt, const void *data, const OnnxTensor *want) {
    double low = INFINITY, high = -INFINITY;
    bool whole = true, good = true;
    for (int64_t i = 0; i < want->count; i++) {
        double v = dt_load(dt, want->data, (size_t)i).f;
        low = fmin(low, v);
        high = fmax(high, v);
        whole &= v == floor(v);
    }
    for (int64_t i = 0; i < want->count; i++) {
        double v = dt_load(dt, data, (size_t)i).f;
        good &= v >= low && v <= high && (!whole || v == floor(v));
    }
    if (good) snprintf(suite.current->message, MESSAGE_MAX, "random: type, shape and range");
    return good && dt_is_float(dt);
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
    if (!wrong || (draws(s) && compare_range(info.dt, data, want))) return true;
    Scalar a = dt_load(info.dt, data, (size_t)first),
           b = dt_load(info.dt, want->data, (size_t)first);
    bool real = dt_is_float(info.dt);
    snprintf(suite.current->message, MESSAGE_MAX,
             "output %s: %lld of %lld elements differ, first [%lld] %.9g, expected %.9g", out->name,
             (long long)wrong, (long long)want->count, (long long)first, real ? a.f : (double)a.i,
             real ? b.f : (double)b.i);
    return false;
}

/* --- what mlcc wants to know when compiling --------------------------------------------------- */

/* The tensors of one input or output, in order: one, or as many as a sequence or optional holds. */
typedef VEC(OnnxTensor) Tensors;

static bool add_tensor(Session *s, const OnnxFile *file, const Onnx__TensorProto *proto,
                       Tensors *to) {
    OnnxTensor t;
    if (!onnx_tensor(file, &s->arena, &s->diag, proto, &t)) return false;
    vec_push(&s->arena, to, t);
    return true;
}

static bool add_sequence(Session *s, const OnnxFile *file, const Onnx__SequenceProto *proto,
                         Tensors *to) {
    for (size_t i = 0; i < proto->n_tensor_values; i++)
        if (!add_tensor(s, file, proto->tensor_values[i], to)) return false;
    return true;
}

/* Adds what the file holds. absent (may be NULL) is set if that is an optional without anything. */
static bool read_tensors(Session *s, const Onnx__TypeProto *type, const char *path, Tensors *to,
                         bool *absent) {
    OnnxData data;
    OnnxDataKind kind =
        !type                                                       ? ONNX_DATA_tensor
        : type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE ? ONNX_DATA_sequence
        : type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE ? ONNX_DATA_optional
                                                                    : ONNX_DATA_tensor;
    /* the mapping is left to the end of the process: tensors point into it */
    if (!onnx_read_data(&data, &s->arena, &s->diag, kind, path)) return false;
    if (kind == ONNX_DATA_tensor) return add_tensor(s, &data.file, data.tensor, to);
    if (kind == ONNX_DATA_sequence) return add_sequence(s, &data.file, data.sequence, to);
    const Onnx__OptionalProto *o = data.optional;
    if (absent) *absent = !o->tensor_value && !o->sequence_value;
    if (o->tensor_value) return add_tensor(s, &data.file, o->tensor_value, to);
    return !o->sequence_value || add_sequence(s, &data.file, o->sequence_value, to);
}

static bool is_initializer(const Onnx__GraphProto *g, const char *name) {
    for (size_t k = 0; k < g->n_initializer; k++)
        if (!strcmp(g->initializer[k]->name, name)) return true;
    return false;
}

/* Options for mlcc, from the test's data. */
typedef struct Words {
    const char *items[64];
    int n;
} Words;

typedef struct Found {
    Words dims, items, fixed;
    size_t bytes; /* of the longest string among the inputs */
} Found;

static Found found;

static void add_word(Words *to, const char *word) {
    if (to->n < (int)(sizeof to->items / sizeof *to->items)) to->items[to->n++] = strdup(word);
}

/* --dim of what the model leaves open. */
static void add_dims(const Onnx__ValueInfoProto *input, const OnnxTensor *t) {
    const Onnx__TensorShapeProto *shape = input->type->tensor_type->shape;
    for (size_t d = 0; shape && d < shape->n_dim && (int)d < t->rank; d++) {
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
        for (int k = 0; k < found.dims.n; k++) known |= !strncmp(found.dims.items[k], word, name);
        if (!known) add_word(&found.dims, word);
    }
}

/* --items: the shapes of a sequence's items, or of what an optional holds. */
static void add_items(Session *s, const char *name, const Tensors *own, bool absent) {
    Text t = text_new(&s->arena);
    text_addf(&t, "%s=%s", name, absent ? "none" : own->n ? "" : "0");
    for (int i = 0; i < own->n; i++)
        text_addf(&t, "%s%s", i ? "," : "",
                  shape_text(&s->arena, own->items[i].rank, own->items[i].dims));
    add_word(&found.items, text_get(&t));
}

/* NAME=V,V,... for --fix; NULL if the tensor is none that shapes may depend on. */
static const char *fixed_word(Session *s, const char *name, const OnnxTensor *t) {
    if (t->rank > 1 || t->count < 1 || t->count > 64 || dt_kind(t->dt) > DK_float) return NULL;
    Text word = text_new(&s->arena);
    text_addf(&word, "%s=", name);
    for (int64_t i = 0; i < t->count; i++) {
        Scalar v = dt_load(t->dt, t->data, (size_t)i);
        if (dt_is_float(t->dt))
            text_addf(&word, "%s%.17g", i ? "," : "", v.f);
        else
            text_addf(&word, "%s%lld", i ? "," : "", (long long)v.i);
    }
    return text_get(&word);
}

/* Was the input compiled into the library, with these values? */
static bool is_fixed(Session *s, const char *name, const Tensors *own) {
    const char *word = suite.fixed && own->n == 1 ? fixed_word(s, name, own->items) : NULL;
    for (int i = 0; word && i < suite.fixed->n; i++)
        if (!strcmp(suite.fixed->items[i], word)) return true;
    return false;
}

/* --dim from the lines of the file `dims` in the test's folder; false if there is none. */
static bool read_dims(void) {
    char path[4200], line[256];
    snprintf(path, sizeof path, "%s/dims", suite.folder);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        add_word(&found.dims, line);
    }
    fclose(f);
    return true;
}

/* given: the dimensions are, and vary. */
static void find_options(Session *s, const Onnx__ValueInfoProto *input, const Tensors *own,
                         bool absent, bool given) {
    const Onnx__TypeProto *type = input->type;
    bool plain = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    if (!plain) add_items(s, input->name, own, absent);
    for (int i = 0; i < own->n; i++) {
        const OnnxTensor *t = &own->items[i];
        if (plain && !given) add_dims(input, t);
        const char *word = plain && !given ? fixed_word(s, input->name, t) : NULL;
        if (word) add_word(&found.fixed, word);
        const OnnxString *strings = t->dt == DT_str ? t->data : NULL;
        for (int64_t k = 0; strings && k < t->count; k++)
            if (strings[k].length > found.bytes) found.bytes = strings[k].length;
    }
}

/* --- one test --------------------------------------------------------------------------------- */

static bool miscounted(const char *what) {
    snprintf(suite.current->message, MESSAGE_MAX, "the library has not as many %s as the test",
             what);
    return false;
}

static bool run_data_set(Session *s, LoadedModel *m, const char *folder) {
    Io io;
    io_of_model(s, &io, m->model, 1);
    const Onnx__GraphProto *g = s->model.proto->graph;
    int file = 0, at = 0;
    for (size_t i = 0; i < g->n_input; i++) {
        if (is_initializer(g, g->input[i]->name)) continue;
        const char *path = arena_printf(&s->arena, "%s/input_%d.pb", folder, file++);
        Tensors own = {0};
        if (!read_tensors(s, g->input[i]->type, path, &own, NULL)) return false;
        if (is_fixed(s, g->input[i]->name, &own)) continue;
        for (int k = 0; k < own.n; k++, at++) {
            while (at < io.n_in && io_input_hidden(&io, at)) at++;
            if (at == io.n_in) return miscounted("inputs");
            if (!tensor_take(s, &io.in[at], path, &own.items[k], io.in_data[at])) return false;
        }
    }
    while (at < io.n_in && io_input_hidden(&io, at)) at++;
    if (at < io.n_in) return miscounted("inputs");
    if (!io_set_extents(s, &io) || !model_run(s, m, (const void *const *)io.in_data, io.out_data))
        return false;
    io_take_shapes(&io);
    at = 0;
    for (size_t i = 0; i < g->n_output; i++) {
        Tensors wanted = {0};
        const char *path = arena_printf(&s->arena, "%s/output_%zu.pb", folder, i);
        if (!read_tensors(s, g->output[i]->type, path, &wanted, NULL)) return false;
        for (int k = 0; k < wanted.n; k++, at++) {
            while (at < io.n_out && io_output_hidden(&io, at)) at++;
            if (at == io.n_out) return miscounted("outputs");
            if (!compare(s, &io.out[at], io.out_data[at], &wanted.items[k])) return false;
        }
    }
    while (at < io.n_out && io_output_hidden(&io, at)) at++;
    if (at < io.n_out) return miscounted("outputs");
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
    suite.current->on_host = p->graph->images.n > 0;
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

static int find_all_options(Session *s) {
    found = (Found){.bytes = 1};
    bool given = read_dims();
    OnnxModel model;
    if (!onnx_read(&model, &s->arena, &s->diag, s->o->model)) return 0;
    const Onnx__GraphProto *g = model.proto->graph;
    int file = 0;
    for (size_t i = 0; i < g->n_input; i++) {
        if (is_initializer(g, g->input[i]->name)) continue;
        Tensors own = {0};
        bool absent = false;
        char path[4200];
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", suite.folder, file++);
        if (!read_tensors(s, g->input[i]->type, path, &own, &absent)) continue;
        find_options(s, g->input[i], &own, absent, given);
    }
    onnx_close(&model.file);
    return 0;
}

/* Compiles and runs the test; its exit status, and in *text what mlcc said. */
static int try_test(const Options *o, char **text) {
    size_t length = 0;
    FILE *keep = stderr, *capture = open_memstream(text, &length);
    stderr = capture;
    int status = with_session(o, test_body);
    stderr = keep;
    fclose(capture);
    return status;
}

static void run_test(int i) {
    Result *r = suite.current = &suite.shared->result[i];
    suite.folder = suite.path[i];
    char model[4096];
    snprintf(model, sizeof model, "%s/model.onnx", suite.folder);
    Options o = {.model = model,
                 .optimize = "1",
                 .runtime_cache = suite.scratch,
                 .image_decoder = suite.image_decoder};
    o.march = suite.march                     ? suite.march
              : !strcmp(suite.target, "cuda") ? "cpu"
              : !strcmp(suite.target, "c")    ? "generic"
                                              : NULL;
    with_session(&o, find_all_options);
    o.dims = (StringList){found.dims.items, found.dims.n};
    o.items = (StringList){found.items.items, found.items.n};
    char bytes[32];
    const char *string_bytes[1] = {bytes};
    snprintf(bytes, sizeof bytes, "%zu", found.bytes);
    o.string_bytes = (StringList){string_bytes, 1};
    char *text = NULL, *second = NULL;
    suite.fixed = NULL;
    int status = try_test(&o, &text);
    if (r->outcome != TEST_passed && status == 4 && found.fixed.n) {
        suite.fixed = &found.fixed;
        o.fixed = (StringList){found.fixed.items, found.fixed.n};
        int again = try_test(&o, &second);
        if (again != 4) {
            status = again;
            free(text);
            text = second;
            second = NULL;
        }
        if (r->outcome == TEST_passed)
            for (int k = 0; k < found.fixed.n; k++)
                snprintf(r->message + strlen(r->message), MESSAGE_MAX - strlen(r->message),
                         "%s--fix %s", k ? " " : "", found.fixed.items[k]);
    }
    if (r->outcome != TEST_passed && status == 4) r->outcome = TEST_unsupported;
    if (r->outcome == TEST_unsupported && !suite.image_decoder && strstr(r->ops, "ImageDecoder"))
        snprintf(r->message, MESSAGE_MAX, "MagickWand, which decodes images, is not installed");
    if (r->outcome != TEST_passed && !r->message[0]) {
        const char *at = strstr(text, "error[");
        snprintf(r->message, MESSAGE_MAX, "%.*s", (int)strcspn(at ? at : text, "\n"),
                 at ? at : text);
    }
    free(text);
    free(second);
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

/* --- the suite -------------------------------------------------------------------------------- */

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
            snprintf(r->message, MESSAGE_MAX,
                     WIFSIGNALED(status) ? "died with signal %d" : "ended with status %d",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            start(w);
            running++;
        }
    }
}

/* --- report ----------------------------------------------------------------------------------- */

typedef struct OpRow {
    char name[64];
    int count[4];
} OpRow;

static int by_op(const void *a, const void *b) {
    return strcmp(((const OpRow *)a)->name, ((const OpRow *)b)->name);
}

static const char *const outcome_names[] = {"open", "passed", "unsupported", "FAILED"};

/* How many tests need the host for more than launching kernels. */
static void print_on_host(FILE *to) {
    int n = 0;
    for (int i = 0; i < suite.n; i++) n += suite.shared->result[i].on_host;
    fprintf(to,
            "note: %s: %d of %d tests (%.1f %%) in part on the host: images are decoded there\n",
            suite.target, n, suite.n, suite.n ? 100.0 * n / suite.n : 0);
}

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
        fprintf(f, "%-12s %s%s%s%s\n", outcome_names[r->outcome], name,
                r->on_host ? " (in part on the host)" : "", r->message[0] ? ": " : "", r->message);
    }
    print_on_host(f);
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
    if (system("pkg-config --exists MagickWand 2>/dev/null") == 0)
        suite.image_decoder = "magickwand";
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
    print_on_host(stdout);
    if (!suite.image_decoder) printf("note: MagickWand is not installed: no images are decoded\n");
    int failed = count[TEST_failed] + count[TEST_open];
    printf("conformance %s: %d/%d passed, %d unsupported, %d failed\n", suite.target,
           count[TEST_passed], suite.n, count[TEST_unsupported], failed);
    return failed || !suite.n;
}
