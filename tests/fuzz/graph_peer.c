/* The long-lived peer of scripts/fuzz-graphs: compiles models in several ways and runs them.
 *
 *     graph_peer FOLDER        a folder for libraries and sources; it is not emptied
 *
 * A batch is lines on the standard input, then the line "go":
 *
 *     MODEL.onnx INPUTS RUNS WAY WAY ...
 *
 * INPUTS holds the tensors of the model's inputs one after the other, RUNS times. A WAY is
 * KIND:TARGET:MARCH:PASSES:apart, of which later parts may be left out:
 *
 *     interp              the graph as imported, in the interpreter
 *     kernels:TARGET      the lowered kernels in the interpreter, with its checks
 *     c0:c, c1:c, c3:c    C, compiled with -O0, -O1 or -O3 together with all others of the batch;
 *                         run on 1, 2 and 3 threads, which must give the same bits
 *     lib:TARGET          a library as `mlcc -o x.so` makes it
 *
 * PASSES are names of passes to leave out, joined by '+'. "apart": every tensor has memory of its
 * own. For each way, in the order of the batch, one line is written: "ok TYPE[DIMS] ..." of the
 * outputs, whose bytes are in MODEL.onnx.N (N: the number of the way; RUNS times all outputs), or
 * "error STATUS MESSAGE" with the exit status that mlcc would have had. Then "done".
 *
 * A file MODEL.onnx.dims has lines for --dim. INPUTS holds room for the largest shapes then, and
 * the extents (int32) after the tensors; C gets them in memory for what they hold. After the
 * outputs of a run come all their extents (int64), -1 where it ends with a status that says that
 * extents are wrong. Of outputs what lies beyond their elements is zeros, and all is after such a
 * status.
 *
 * Built with SANITIZE=1 it has the C code checked by ASan and UBSan too, and poisons what lies
 * between tensors that are apart.
 */
#include "compiler/embedded.h"
#include "compiler/io.h"
#include "compiler/tensor_file.h"
#include "codegen/glsl_compile.h"
#include "tests/unit/program_run.h"

#include <ctype.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CHECK_FLAGS " -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define CHECK_FLAGS                       ""
#endif

#define MAX_JOBS 4096
#define MAX_DIMS 1024
#define GAP      256 /* bytes between tensors that are apart */

typedef struct Job {
    const char *model, *inputs;
    int runs, way;
    char kind[16], target[16], march[32], passes[64];
    bool apart;
    char *result;  /* the line to be written; NULL: not known yet */
    char *source;  /* of kind c: the file */
    int64_t *gaps; /* apart: begin and end of each gap in the arena */
    int n_gaps;
} Job;

static const char *folder;
static Job jobs[MAX_JOBS];
static int n_jobs;
static Job *now; /* at work on */

__attribute__((format(printf, 1, 2))) static char *print(const char *format, ...) {
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) abort();
    va_end(args);
    return text;
}

/* --- data -----------------------------------------------------------------------------------*/

typedef enum Ran { RAN_failed, RAN_well, RAN_refused } Ran;

typedef struct Data { /* what a job reads and writes */
    Io io;            /* shapes are the largest ones */
    int n_in, n_out;
    const TensorInfo *in, *out;
    unsigned char *bytes; /* of the inputs' file */
    size_t size;
    FILE *file;
} Data;

static bool data_open(Data *d) {
    size_t one = 0;
    for (int i = 0; i < d->n_in; i++) one += d->in[i].bytes;
    FILE *f = fopen(now->inputs, "rb");
    d->size = one;
    d->bytes = malloc(one * (size_t)now->runs + 1);
    bool ok = f && d->bytes &&
              fread(d->bytes, 1, one * (size_t)now->runs + 1, f) == one * (size_t)now->runs;
    if (f) fclose(f);
    if (!ok) now->result = print("error 70 the inputs are not of the size that the model has");
    char *path = print("%s.%d", now->model, now->way);
    d->file = fopen(path, "wb");
    free(path);
    return ok && d->file;
}

static void data_close(Data *d) {
    free(d->bytes);
    if (d->file) fclose(d->file);
    if (now->result) return;
    char *line = print("ok");
    for (int i = 0; i < d->n_out; i++) {
        if (io_output_hidden(&d->io, i)) continue;
        char *longer = print("%s %s[", line, dt_name(d->out[i].dt));
        free(line);
        line = longer;
        for (int k = 0; k < d->out[i].rank; k++) {
            longer = print("%s%s%lld", line, k ? "," : "", (long long)d->out[i].shape[k]);
            free(line);
            line = longer;
        }
        longer = print("%s]", line);
        free(line);
        line = longer;
    }
    now->result = line;
}

/* Buffers of their own for each tensor, exactly as large, so that every overrun is seen. held: how
 * much of `from` each holds; NULL: all. */
static void **tensor_buffers(int n, const TensorInfo *t, const size_t *held,
                             const unsigned char *from) {
    void **buffers = calloc((size_t)n + 1, sizeof *buffers);
    for (int i = 0; i < n; i++) {
        size_t room = (t[i].bytes + 63) / 64 * 64, bytes = held ? held[i] : t[i].bytes;
        buffers[i] = aligned_alloc(64, room ? room : 64);
        if (from)
            memcpy(buffers[i], from, bytes);
        else
            memset(buffers[i], 0xa5, bytes);
        ASAN_POISON_MEMORY_REGION((char *)buffers[i] + bytes, room - bytes);
        if (from) from += t[i].bytes;
    }
    return buffers;
}

/* How much each input of a run holds; false: an extent is out of its range, and nothing is read. */
static bool find_held(const Data *d, const unsigned char *from, size_t *held) {
    int32_t *value = calloc((size_t)d->n_in + 1, sizeof *value);
    bool fits = true;
    for (int i = 0; i < d->n_in; i++) {
        if (io_input_hidden(&d->io, i)) {
            memcpy(&value[i], from, sizeof *value);
            fits &= value[i] >= d->in[i].low && value[i] <= d->in[i].high;
        }
        from += d->in[i].bytes;
    }
    for (int i = 0; i < d->n_in; i++) {
        const TensorInfo *t = &d->in[i];
        held[i] = fits ? dt_store(t->dt) : 0;
        for (int k = 0; k < t->rank; k++) {
            int at = t->extent_input ? t->extent_input[k] : -1;
            held[i] *= (size_t)(at >= 0 && fits ? value[at] : t->shape[k]);
        }
        if (io_input_hidden(&d->io, i)) held[i] = t->bytes;
    }
    free(value);
    return fits;
}

/* Zeros what lies beyond the elements of outputs; a report if they have more than there is room
 * for. */
static void settle_outputs(const Data *d, Ran ran, void **out) {
    for (int i = 0; i < d->n_out; i++) {
        const TensorInfo *t = &d->out[i];
        size_t bytes = ran == RAN_well ? t->bytes : 0;
        if (ran == RAN_well && t->shape_output >= 0 && t->shape_output != i) {
            const int64_t *shape = out[t->shape_output];
            bytes = dt_store(t->dt);
            for (int k = 0; k < t->rank && !now->result; k++) {
                if (shape[k] < 0 || shape[k] > INT32_MAX)
                    now->result =
                        print("error 70 output %d has an extent of %lld", i, (long long)shape[k]);
                bytes *= (size_t)shape[k];
            }
            if (!now->result && bytes > t->bytes)
                now->result =
                    print("error 70 output %d has %zu bytes, not %zu at most", i, bytes, t->bytes);
        }
        if (!now->result) memset((char *)out[i] + bytes, 0, t->bytes - bytes);
    }
}

static void write_extents(const Data *d, Ran ran, void **out) {
    for (int i = 0; i < d->n_out; i++) {
        const TensorInfo *t = &d->out[i];
        if (io_output_hidden(&d->io, i)) continue;
        const int64_t *shape =
            t->shape_output >= 0 && t->shape_output != i ? out[t->shape_output] : t->shape;
        for (int k = 0; k < t->rank; k++) {
            int64_t extent = ran == RAN_well ? shape[k] : -1;
            fwrite(&extent, sizeof extent, 1, d->file);
        }
    }
}

static void free_buffers(int n, const TensorInfo *t, void **buffers) {
    for (int i = 0; i < n; i++) {
        size_t room = (t[i].bytes + 63) / 64 * 64;
        ASAN_UNPOISON_MEMORY_REGION(buffers[i], room);
        (void)room;
        free(buffers[i]);
    }
    free(buffers);
}

static Ran run_loaded(void *user, void **in, void **out);

/* Runs `run` on each set of inputs. */
static void run_all(Data *d, Ran (*run)(void *user, void **in, void **out), void *user) {
    size_t *held = calloc((size_t)d->n_in + 1, sizeof *held);
    for (int r = 0; r < now->runs && !now->result; r++) {
        const unsigned char *from = d->bytes + (size_t)r * d->size;
        bool fits = find_held(d, from, held);
        /* interpreters copy inputs as they are */
        void **in = tensor_buffers(d->n_in, d->in, run == run_loaded ? held : NULL, from);
        void **out = tensor_buffers(d->n_out, d->out, NULL, NULL);
        Ran ran = fits || run == run_loaded ? run(user, in, out) : RAN_refused;
        if (!fits && ran == RAN_well) now->result = print("error 70 an extent out of its range");
        if (ran != RAN_failed && !now->result) settle_outputs(d, ran, out);
        for (int i = 0; i < d->n_out && !now->result; i++)
            if (!io_output_hidden(&d->io, i)) fwrite(out[i], 1, d->out[i].bytes, d->file);
        if (!now->result) write_extents(d, ran, out);
        free_buffers(d->n_in, d->in, in);
        free_buffers(d->n_out, d->out, out);
    }
    free(held);
}

static Data data_of(Io io) {
    return (Data){.io = io, .n_in = io.n_in, .n_out = io.n_out, .in = io.in, .out = io.out};
}

static Data graph_data(Session *s, const Graph *g) {
    Io io;
    io_of_graph(s, &io, g, 1);
    return data_of(io);
}

static Data model_data(Session *s, const mlcc_model *m) {
    Io io;
    io_of_model(s, &io, m, 1);
    return data_of(io);
}

/* --- memory of their own for all tensors ----------------------------------------------------*/

static int64_t align_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static void spread_tensors(Program *p) {
    Value **root = NULL;
    int64_t *begin = NULL, end = 0;
    int n = 0;
    for (int i = 0; i < p->steps.n; i++) {
        Step *step = &p->steps.items[i];
        step->apart = false; /* threads would need what is no block any more */
        for (int a = 0; a < step_n_args(step); a++) {
            if (step->places[a].space != PLACE_arena) continue;
            Value *v = value_storage(step->args[a]);
            int at = 0;
            while (at < n && root[at] != v) at++;
            if (at == n++) {
                root = realloc(root, sizeof *root * (size_t)n);
                begin = realloc(begin, sizeof *begin * (size_t)n);
                now->gaps = realloc(now->gaps, 2 * sizeof *now->gaps * (size_t)(n + 1));
                root[at] = v;
                begin[at] = align_up(end + GAP, 256);
                now->gaps[2 * at] = end;
                now->gaps[2 * at + 1] = begin[at];
                end = begin[at] + align_up(value_span(v) * (int64_t)dt_store(v->dt), 8);
            } else {
                n--;
            }
            step->places[a].offset = begin[at];
        }
    }
    if (n) {
        p->arena_bytes = align_up(end + GAP, 256);
        now->gaps[2 * n] = end;
        now->gaps[2 * n + 1] = p->arena_bytes;
        now->n_gaps = n + 1;
    }
    free(root);
    free(begin);
}

static void poison_gaps(unsigned char *arena, bool poison) {
    for (int i = 0; i < now->n_gaps; i++) {
        size_t bytes = (size_t)(now->gaps[2 * i + 1] - now->gaps[2 * i]);
        if (poison)
            ASAN_POISON_MEMORY_REGION(arena + now->gaps[2 * i], bytes);
        else
            ASAN_UNPOISON_MEMORY_REGION(arena + now->gaps[2 * i], bytes);
        (void)bytes;
        (void)arena;
    }
}

/* --- ways -----------------------------------------------------------------------------------*/

#define MOST_WORK 1e9

/* Elements that there is room for: the interpreter computes them all, and so do moves whose extents
 * are not known while they run. */
static double work_of(const Graph *g) {
    double work = 0;
    for (const Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_out; i++) work += (double)value_numel(op->out[i]);
        if (op->kind == OP_loop) work += (double)op->trips * work_of(op->sub);
    }
    return work;
}

static bool takes_too_long(const Graph *g) {
    if (work_of(g) * now->runs <= MOST_WORK) return false;
    now->result = print("error 4 there is room for too many elements");
    return true;
}

static Program *lowered(Session *s) {
    s->target = target_find(now->target);
    if (!s->target) {
        now->result = print("error 2 there is no target '%s'", now->target);
        return NULL;
    }
    Program *p = session_program(s);
    if (p && takes_too_long(p->graph)) return NULL;
    if (p && now->apart) spread_tensors(p);
    return p;
}

static Ran status_of(const Graph *g, void **out) {
    int at = graph_status_output(g);
    return at >= 0 && *(const int32_t *)out[at] ? RAN_refused : RAN_well;
}

static Ran run_interp(void *user, void **in, void **out) {
    return interp_graph(user, (const void *const *)in, out) ? status_of(user, out) : RAN_failed;
}

static Ran run_kernels(void *user, void **in, void **out) {
    const Program *p = user;
    const char *message = run_program(user, in, out);
    if (message) now->result = print("error 70 %s", message);
    return message ? RAN_failed : status_of(p->graph, out);
}

static int body_interp(Session *s) {
    Graph *g = session_graph(s);
    if (!g || takes_too_long(g)) return 0;
    Data d = graph_data(s, g);
    if (data_open(&d)) run_all(&d, run_interp, g);
    data_close(&d);
    return 0;
}

static int body_kernels(Session *s) {
    Program *p = lowered(s);
    if (!p) return 0;
    const char *limits = limits_passed(p, s->target);
    if (limits) now->result = print("error 70 %s", limits);
    Data d = graph_data(s, p->graph);
    if (data_open(&d)) run_all(&d, run_kernels, p);
    data_close(&d);
    return 0;
}

typedef struct Library {
    Session *s;
    LoadedModel m;
} Library;

static Ran run_library(void *user, void **in, void **out) {
    Library *l = user;
    return model_run(l->s, &l->m, (const void *const *)in, out) ? RAN_well : RAN_failed;
}

static int body_library(Session *s) {
    Program *p = lowered(s);
    if (!p) return 0;
    Library l = {.s = s};
    static int number; /* dlopen knows by its path a library that is still open */
    const char *path = arena_printf(&s->arena, "%s/library%d.so", folder, number++);
    if (write_program(s, p, path) && model_load(s, &l.m, path, NULL)) {
        Data d = model_data(s, l.m.model);
        if (data_open(&d)) run_all(&d, run_library, &l);
        data_close(&d);
    }
    unlink(path);
    static int kept; /* a driver is costly to start anew: the first model of each stays open */
    int bit = !strcmp(now->target, "vulkan") ? 1 : 2;
    if (l.m.model && !(kept & bit))
        kept |= bit;
    else
        model_unload(&l.m);
    return 0;
}

/* --- C: sources first, then one call of the compiler for all --------------------------------*/

static int body_source(Session *s) {
    Program *p = lowered(s);
    if (!p) return 0;
    EmitOptions e = {.prefix = arena_printf(&s->arena, "job%d", (int)(now - jobs)),
                     .model_name = "random",
                     .descriptor = true,
                     .threads = true,
                     .share_all = true};
    if (s->target->vector_types) e.vector_bytes = s->target->vector_bytes;
    Text source = text_new(&s->arena);
    text_addf(&source, "#define mlcc_model_v1 mlcc_model_v1_%d\n", (int)(now - jobs));
    emit_c(p, &e, &source, NULL);
    if (s->diag.n_errors) return 0;
    now->source = print("%s/job%d.c", folder, (int)(now - jobs));
    write_file(s, now->source, text_get(&source), source.length);
    return 0;
}

static char *library_path; /* that the compiler is to write */

/* Are these two compiled by one call? */
static bool together(const Job *a, const Job *b) {
    return !strcmp(a->kind, b->kind) && !strcmp(a->march, b->march);
}

/* What is made for another machine is compiled for this one: functions do what it would. */
static const char *machine_of(const char *march) {
    bool other = !strncmp(march, "arm", 3) || !strncmp(march, "rv", 2);
    return other || !strcmp(march, "sapphirerapids") ? "native" : march;
}

static char *compiler_words(const Job *job) {
    return print("cc -O%s " C_FLAGS " -std=gnu99 -ffp-contract=fast -pipe%s%s -I%s" CHECK_FLAGS,
                 job->kind + 1, job->march[0] ? " -march=" : "", machine_of(job->march), folder);
}

static bool word_char(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* The name that a line of C defines for its file alone; NULL: none. */
static const char *file_name_on(const char *line, size_t *length) {
    if (line[0] == '}' && line[1] == ' ') {
        *length = strcspn(line + 2, ";\n");
        return line[2 + *length] == ';' ? line + 2 : NULL;
    }
    if (strncmp(line, "static ", 7) != 0 && strncmp(line, "typedef ", 8) != 0) return NULL;
    static const char specifiers[] = "static inline __attribute__((always_inline)) ";
    if (!strncmp(line, specifiers, sizeof specifiers - 1)) line += sizeof specifiers - 1;
    for (const char *c = line; *c && *c != '\n'; c += *length ? *length : 1) {
        for (*length = 0; word_char(c[*length]);) ++*length;
        const char *after = c + *length;
        if (*length && (strchr("([;", *after) || !strncmp(after, " __attribute__", 14) ||
                        !strncmp(after, " = ", 3)))
            return c;
    }
    return NULL;
}

/* Sources as one for the compiler, which starts once and reads headers once: what is static in each
 * has the number of the job before its name. */
static void include_source(FILE *all, const Job *job) {
    FILE *f = fopen(job->source, "r");
    char *line = NULL, *names = NULL;
    size_t room = 0, size = 0, length;
    FILE *list = open_memstream(&names, &size);
    int number = (int)(job - jobs);
    while (f && getline(&line, &room, f) > 0) {
        const char *name = file_name_on(line, &length);
        if (!name) continue;
        fprintf(all, "#define %.*s job%d_%.*s\n", (int)length, name, number, (int)length, name);
        fprintf(list, "#undef %.*s\n", (int)length, name);
    }
    fclose(list);
    fprintf(all, "#include \"job%d.c\"\n%s#undef mlcc_model_v1\n", number, names);
    free(names);
    free(line);
    if (f) fclose(f);
}

/* The headers, which the compiler takes as it has read them once for the same -march=. GCC 12 would
 * take those of another -O, too, and crash. */
static void precompile_headers(const Job *job) {
    char *path = print("%s/%s.h", folder, job->kind), *read = print("%s.gch", path);
    if (mkdir(read, 0777) == 0) {
        FILE *f = fopen(path, "w");
        if (!f) abort();
        fprintf(f, "#include \"mlcc/model.h\"\n#include \"team.h\"\n");
        for (const char *const *h = (const char *const[]){"math", "stdbool", "stddef", "stdint",
                                                          "stdlib", "string", NULL};
             *h; h++)
            fprintf(f, "#include <%s.h>\n", *h);
        fprintf(f, "#if defined(__x86_64__)\n#include <immintrin.h>\n#endif\n");
        fclose(f);
    }
    char *one = print("%s/march-%s", read, job->march);
    if (access(one, F_OK) != 0) {
        char *words = compiler_words(job);
        char *line = print("%s -x c-header -o %s %s", words, one, path);
        if (system(line) != 0) unlink(one); /* it is only for speed */
        free(line);
        free(words);
    }
    free(one);
    free(read);
    free(path);
}

/* Compiles the sources from job `first` on that go together with it, or that one alone. */
static bool compile_jobs(int first, bool alone) {
    precompile_headers(&jobs[first]);
    char *path = print("%s/all.c", folder);
    FILE *all = fopen(path, "w");
    if (!all) abort();
    if (!alone) fprintf(all, "#include \"%s.h\"\n", jobs[first].kind);
    for (int i = first; i < n_jobs && (i == first || !alone); i++) {
        if (!jobs[i].source || !together(&jobs[i], &jobs[first])) continue;
        if (alone)
            fprintf(all, "#include \"job%d.c\"\n", i);
        else
            include_source(all, &jobs[i]);
    }
    fclose(all);
    char *words = compiler_words(&jobs[first]);
    char *line = print("%s -shared -o %s %s %s/team.c -lm -lpthread 2>%s/cc.log", words,
                       library_path, path, folder, folder);
    bool ok = system(line) == 0;
    free(line);
    free(words);
    free(path);
    return ok;
}

typedef struct Loaded {
    const mlcc_model *model;
    void *state;
    const TensorInfo *out;
} Loaded;

/* Bit by bit, but for what kind of NaN it is: that hangs on the order of operands. */
static bool same_bits(const TensorInfo *t, const void *a, const void *b) {
    if (memcmp(a, b, t->bytes) == 0) return true;
    if (!dt_is_float(t->dt)) return false;
    size_t size = dt_store(t->dt);
    for (size_t i = 0; i < t->bytes / size; i++)
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) != 0 &&
            !(isnan(dt_load(t->dt, a, i).f) && isnan(dt_load(t->dt, b, i).f)))
            return false;
    return true;
}

static Ran run_loaded(void *user, void **in, void **out) {
    Loaded *l = user;
    int status = MLCC_OK;
    size_t bytes = ((size_t)l->model->arena_bytes + 63) / 64 * 64 + 64;
    void **again = NULL;
    for (int threads = 1; threads <= 3 && !now->result; threads++) {
        unsigned char *arena = aligned_alloc(64, bytes);
        memset(arena, 0xa5, bytes);
        poison_gaps(arena, true);
        void **to = out;
        if (threads > 1) to = again = tensor_buffers((int)l->model->n_outputs, l->out, NULL, NULL);
        int before = status;
        if (l->model->set_threads(l->state, threads) != MLCC_OK)
            now->result = print("error 70 no %d threads", threads);
        else
            status = l->model->run(l->state, (const void *const *)in, to, arena);
        bool refused =
            l->model->output_shape && (status == MLCC_E_EXTENT || status == MLCC_E_ARGUMENT);
        if (status != MLCC_OK && !refused)
            now->result = print("error 70 it fails: %s", l->model->error(l->state));
        if (threads > 1 && status != before)
            now->result =
                print("error 5 status %d on %d threads, %d on one", status, threads, before);
        for (uint32_t i = 0; i < l->model->n_outputs && again && !now->result && !status; i++)
            if (!same_bits(&l->out[i], out[i], again[i]))
                now->result =
                    print("error 5 output %u on %d threads is not what it is on one", i, threads);
        poison_gaps(arena, false);
        free(arena);
        if (again) free_buffers((int)l->model->n_outputs, l->out, again);
        again = NULL;
    }
    return now->result ? RAN_failed : status ? RAN_refused : RAN_well;
}

static void *library;

static int body_loaded(Session *s) {
    union {
        void *object;
        const mlcc_model *(*function)(void);
    } symbol = {dlsym(library, arena_printf(&s->arena, "mlcc_model_v1_%d", (int)(now - jobs)))};
    if (!symbol.object) {
        now->result = print("error 70 the library has no descriptor");
        return 0;
    }
    Loaded l = {.model = symbol.function()};
    if (l.model->open(&l.state, NULL) != MLCC_OK) {
        now->result = print("error 70 it cannot be opened");
        return 0;
    }
    Data d = model_data(s, l.model);
    l.out = d.out;
    if (data_open(&d)) run_all(&d, run_loaded, &l);
    data_close(&d);
    l.model->close(l.state);
    return 0;
}

/* The lines of MODEL.onnx.dims, if it is there; returns how many. */
static int read_dims(const char *model, char *to, size_t room, const char **words) {
    char *path = print("%s.dims", model), *rest = to;
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(to, 1, room - 1, f) : 0;
    if (f) fclose(f);
    free(path);
    to[n] = 0;
    int count = 0;
    for (char *word; count < MAX_DIMS && (word = strtok_r(rest, "\n", &rest)); count++)
        words[count] = word;
    return count;
}

/* Runs `body` for a job; what it reports becomes the result. */
static void do_job(Job *job, int (*body)(Session *)) {
    now = job;
    char *skip = job->passes[0] ? print("-%s", job->passes) : NULL;
    for (char *c = skip; c && *c; c++)
        if (*c == '+') {
            char *longer = print("%.*s,-%s", (int)(c - skip), skip, c + 1);
            c = longer + (c - skip);
            free(skip);
            skip = longer;
        }
    static char dims[1 << 16];
    static const char *words[MAX_DIMS];
    Options o = {.model = job->model,
                 .march = job->march[0]               ? job->march
                          : !strcmp(job->target, "c") ? "generic"
                                                      : NULL,
                 .optimize = "1",
                 .passes = skip,
                 .runtime_cache = folder};
    o.dims = (StringList){words, read_dims(job->model, dims, sizeof dims, words)};
    char *text = NULL;
    size_t length = 0;
    FILE *keep = stderr, *capture = open_memstream(&text, &length);
    stderr = capture;
    int status = with_session(&o, body);
    stderr = keep;
    fclose(capture);
    if (status != 0) {
        const char *at = strstr(text, "error[");
        free(job->result);
        job->result =
            print("error %d %.*s", status, (int)strcspn(at ? at : text, "\n"), at ? at : text);
    }
    free(text);
    free(skip);
}

static void run_jobs(int first, bool alone) {
    library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    for (int i = first; i < n_jobs && (i == first || !alone); i++) {
        if (!jobs[i].source || !together(&jobs[i], &jobs[first])) continue;
        if (!library)
            jobs[i].result = print("error 70 cannot be loaded: %s", dlerror());
        else
            do_job(&jobs[i], body_loaded);
    }
    if (library) dlclose(library);
    unlink(library_path);
}

static void drop_source(Job *job) {
    if (job->source) unlink(job->source);
    free(job->source);
    job->source = NULL;
}

static char *first_error(void) {
    char *path = print("%s/cc.log", folder), line[400] = "no message";
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, "error")) break;
    if (f) fclose(f);
    free(path);
    line[strcspn(line, "\n")] = 0;
    return print("error 70 the C compiler fails: %s", line);
}

static void run_sources(void) {
    for (int i = 0; i < n_jobs; i++) {
        if (!jobs[i].source) continue;
        static int number;
        library_path = print("%s/jobs%d.so", folder, number++);
        if (compile_jobs(i, false)) {
            run_jobs(i, false);
            for (int k = n_jobs - 1; k >= i; k--)
                if (together(&jobs[k], &jobs[i])) drop_source(&jobs[k]);
        } else { /* one of them is at fault: which? */
            if (compile_jobs(i, true))
                run_jobs(i, true);
            else
                jobs[i].result = first_error();
            drop_source(&jobs[i]);
        }
        free(library_path);
    }
}

/* --- batches --------------------------------------------------------------------------------*/

/* The next part of a way, up to ':'. */
static const char *take_part(const char *at, char *part, size_t room) {
    size_t n = strcspn(at, ":");
    snprintf(part, room, "%.*s", (int)n, at);
    return at[n] ? at + n + 1 : at + n;
}

static void read_line(char *line) {
    char *rest = line, *model = strtok_r(line, " \n", &rest),
         *inputs = strtok_r(NULL, " \n", &rest), *runs = strtok_r(NULL, " \n", &rest);
    for (int way = 0; model && inputs && runs && n_jobs < MAX_JOBS; way++) {
        const char *word = strtok_r(NULL, " \n", &rest);
        if (!word) break;
        Job *job = &jobs[n_jobs++];
        *job =
            (Job){.model = strdup(model), .inputs = strdup(inputs), .runs = atoi(runs), .way = way};
        char apart[8];
        word = take_part(word, job->kind, sizeof job->kind);
        word = take_part(word, job->target, sizeof job->target);
        word = take_part(word, job->march, sizeof job->march);
        word = take_part(word, job->passes, sizeof job->passes);
        take_part(word, apart, sizeof apart);
        job->apart = apart[0] != 0;
    }
}

static void run_batch(void) {
    for (int i = 0; i < n_jobs; i++) {
        Job *job = &jobs[i];
        if (!strcmp(job->kind, "interp")) do_job(job, body_interp);
        if (!strcmp(job->kind, "kernels")) do_job(job, body_kernels);
        if (!strcmp(job->kind, "lib")) do_job(job, body_library);
        if (job->kind[0] == 'c') do_job(job, body_source);
    }
    run_sources();
    for (int i = 0; i < n_jobs; i++) {
        Job *job = &jobs[i];
        printf("%s\n", job->result ? job->result : "error 70 nothing came of it");
        free(job->result);
        free(job->gaps);
    }
    printf("done\n");
    fflush(stdout);
    n_jobs = 0;
}

static bool write_runtime(void) {
    char *inner = print("%s/mlcc", folder);
    mkdir(inner, 0777);
    free(inner);
    for (const EmbeddedFile *f = embedded_files; f->name; f++) {
        const char *slash = strchr(f->name, '/');
        char *path = print("%s/%s", folder, slash ? slash + 1 : f->name);
        FILE *file = fopen(path, "wb");
        free(path);
        if (!file) return false;
        fwrite(f->data, 1, f->bytes, file);
        fclose(file);
    }
    return true;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    folder = argv[1];
    if (!write_runtime()) return 3;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        if (!strcmp(line, "go\n"))
            run_batch();
        else
            read_line(line);
    }
    free(line);
    return 0;
}
