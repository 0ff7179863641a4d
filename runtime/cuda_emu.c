/* CUDA on the CPU: the scheduler of fibers, the warp functions, and a launcher for `mlcc_program`.
 *
 * A worker (an OS thread) runs one block at a time. It calls the kernel for thread 0, 1, 2, ... in
 * a plain loop, the "runner", on one of its stacks. When a thread has to wait, the stack with the
 * runner on it becomes that thread's, and a new runner goes on with the next thread on another
 * stack. So a kernel that never waits costs no switch at all, and one that does costs one switch
 * per wait: there is no scheduler in between. A thread that waits is put on the ready queue by
 * whoever completes its barrier; ready threads go before threads that have not begun.
 *
 * With MLCC_EMU_THREADS a CUDA thread is an OS thread instead: see cuda_emu_threads.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cuda_emu.h"
#include "gpu_common.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MLCC_EMU_WORKERS
#define MLCC_EMU_WORKERS 2
#endif

enum { MAX_THREADS = 1024, LANES = 32, MAX_WARPS = MAX_THREADS / LANES };
/* A launch that has run for so many nanoseconds and has blocks left wakes the other workers: waking
 * costs some ten microseconds, more than most kernels of a test take. */
enum { WORTH_SHARING = 50000 };

typedef struct State State;

/* ---- asynchronous copies of one thread ---- */

typedef struct Copy {
    void *to;
    const void *from;
    unsigned int bytes, group;
} Copy;

typedef struct Copies {
    Copy *items;
    unsigned int n, cap;
    unsigned int committed; /* groups so far */
} Copies;

static void copy_now(const Copy *copy) {
    unsigned char line[16] = {0};
    memcpy(line, copy->from, copy->bytes < 16 ? copy->bytes : 16);
    memcpy(copy->to, line, sizeof line);
}

static void copies_add(Copies *copies, Copy copy) {
    if (copies->n == copies->cap) {
        const unsigned int cap = copies->cap ? 2 * copies->cap : 16;
        Copy *items = (Copy *)realloc(copies->items, cap * sizeof *items);
        if (!items) {
            copy_now(&copy);
            return;
        }
        copies->items = items;
        copies->cap = cap;
    }
    copies->items[copies->n++] = copy;
}

static void copies_wait(Copies *copies, unsigned int groups_left) {
    unsigned int kept = 0;
    for (unsigned int i = 0; i < copies->n; i++) {
        if (copies->items[i].group + groups_left < copies->committed)
            copy_now(&copies->items[i]);
        else
            copies->items[kept++] = copies->items[i];
    }
    copies->n = kept;
}

/* ---- one launch ---- */

typedef struct Job {
    const mlcc_gpu_kernel *kernel;
    void **params;
    mlcc_emu_dim grid;
    uint64_t n_blocks;
    uint64_t next;   /* block to run next; atomic */
    uint32_t failed; /* a thread was left waiting; atomic */
    State *state;    /* of the caller, who alone uses what follows */
    int64_t begun;
    int shared; /* the other workers were woken */
} Job;

static uint32_t block_threads(const mlcc_gpu_kernel *kernel) {
    return kernel->block[0] * kernel->block[1] * kernel->block[2];
}

static mlcc_emu_dim nth(mlcc_emu_dim size, uint64_t n) {
    const mlcc_emu_dim at = {(unsigned int)(n % size.x), (unsigned int)(n / size.x % size.y),
                             (unsigned int)(n / size.x / size.y)};
    return at;
}

#ifndef MLCC_EMU_THREADS

/* ---- workers ---- */

#include "cuda_emu_context.h"

typedef struct Fiber {
    Context context; /* valid while the thread waits */
    Copies copies;
} Fiber;

typedef struct Warp {
    unsigned int live;    /* lanes that have not returned, begun or not */
    unsigned int waiting; /* lanes in a collective */
    unsigned int mask[LANES];
    void *arg[LANES];
    mlcc_emu_op op;
} Warp;

typedef struct Worker {
    mlcc_emu_view view; /* first: what mlcc_emu_self gives device code */
    void (*entry)(void **);
    void **params;
    uint32_t n_threads, started, live; /* of the block */
    uint32_t current;                  /* the thread that runs */
    uint32_t arrived;                  /* threads in __syncthreads */
    uint32_t first_ready, n_ready;     /* ring of threads that may go on */
    uint32_t fresh;                    /* the stack that a new runner finds itself on */
    uint32_t n_free, n_stacks;
    int failed;
    Context main, made, dead;
    uint16_t ready[MAX_THREADS], parked[MAX_THREADS], free_stacks[MAX_THREADS];
    mlcc_emu_dim index[MAX_THREADS]; /* threadIdx of each thread */
    Warp warps[MAX_WARPS];
    Fiber fibers[MAX_THREADS];
    unsigned char *slab;
    size_t page, stride; /* a stack, its guard page included */
    State *state;
    int is_caller; /* the worker that whoever calls run is; the others are of the pool */
    pthread_t thread;
} Worker;

static Worker *here(void) {
    const uintptr_t at = (uintptr_t)__builtin_frame_address(0);
    return *(Worker *const *)(at & ~(MLCC_EMU_SLAB - 1));
}

static int worker_map(Worker *w) {
    const size_t slab = MLCC_EMU_SLAB;
    unsigned char *at = (unsigned char *)mmap(NULL, 2 * slab, PROT_NONE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == (unsigned char *)MAP_FAILED) return MLCC_E_MEMORY;
    const size_t skip = (slab - (uintptr_t)at % slab) % slab;
    if (skip) munmap(at, skip);
    munmap(at + skip + slab, slab - skip);
    w->slab = at + skip;
    w->page = (size_t)sysconf(_SC_PAGESIZE);
    w->stride = (120 * 1024 + w->page - 1) / w->page * w->page + w->page;
    if (mprotect(w->slab, w->page, PROT_READ | PROT_WRITE) != 0) return MLCC_E_MEMORY;
    *(Worker **)(void *)w->slab = w;
    return MLCC_OK;
}

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
void __asan_unpoison_memory_region(void const volatile *at, size_t bytes);
#else
#define __asan_unpoison_memory_region(at, bytes) ((void)(at), (void)(bytes))
#endif

static void runner(void);

/* Makes w->made a runner on a free stack; 0 if there is no memory for one. The tops of the stacks
 * are staggered, so that a thousand of them do not fall into the same few cache sets. */
static int make_runner(Worker *w) {
    if (w->n_free == 0) {
        unsigned char *guard = w->slab + w->page + w->n_stacks * w->stride;
        if (mprotect(guard + w->page, w->stride - w->page, PROT_READ | PROT_WRITE) != 0) return 0;
        w->free_stacks[w->n_free++] = (uint16_t)w->n_stacks++;
    }
    const uint32_t stack = w->free_stacks[--w->n_free];
    unsigned char *top = w->slab + w->page + (stack + 1) * w->stride;
    __asan_unpoison_memory_region(top - (w->stride - w->page), w->stride - w->page);
    w->fresh = stack;
    context_make(&w->made, top - 64 - stack % 60 * 64, runner);
    return 1;
}

/* Leaves the current stack for the next thread that may run: a ready one, else one that has not
 * begun, else the worker's own stack: then the block is done, or all its threads wait for ever. */
static void switch_away(Worker *w, Context *save) {
    if (w->n_ready > 0) {
        const uint32_t next = w->ready[w->first_ready];
        w->first_ready = (w->first_ready + 1) % MAX_THREADS;
        w->n_ready--;
        w->current = next;
        w->view.thread = w->index[next];
        mlcc_emu_switch(save, &w->fibers[next].context);
    } else if (w->started < w->n_threads && make_runner(w)) {
        mlcc_emu_switch(save, &w->made);
    } else {
        w->failed = w->live > 0;
        mlcc_emu_switch(save, &w->main);
    }
}

static void make_ready(Worker *w, uint32_t thread) {
    w->ready[(w->first_ready + w->n_ready++) % MAX_THREADS] = (uint16_t)thread;
}

static void release_block(Worker *w, uint32_t waiting) {
    for (uint32_t i = 0; i < waiting; i++) make_ready(w, w->parked[i]);
    w->arrived = 0;
}

/* Completes the collective that the lanes of `mask` are in, if all are there; makes all but `self`
 * (LANES: nobody) ready. */
static int release_warp(Worker *w, uint32_t warp_index, unsigned int mask, uint32_t self) {
    Warp *warp = &w->warps[warp_index];
    const unsigned int group = mask & warp->live;
    if (!group || (warp->waiting & group) != group) return 0;
    for (uint32_t i = 0; i < LANES; i++)
        if ((group >> i & 1) && (warp->mask[i] & warp->live) != group) return 0;
    warp->waiting &= ~group;
    if (warp->op) warp->op((void *const *)warp->arg, group);
    for (uint32_t i = 0; i < LANES; i++)
        if ((group >> i & 1) && i != self) make_ready(w, warp_index * LANES + i);
    return 1;
}

/* A thread has returned: others may have been waiting for it alone. */
static void finish(Worker *w, uint32_t t) {
    Warp *warp = &w->warps[t / LANES];
    w->live--;
    warp->live &= ~(1u << t % LANES);
    w->fibers[t].copies.n = 0;
    if (w->arrived > 0 && w->arrived == w->live) release_block(w, w->arrived);
    for (uint32_t i = 0; i < LANES && warp->waiting; i++)
        if (warp->waiting >> i & 1) release_warp(w, t / LANES, warp->mask[i], LANES);
}

/* The bottom of every stack. */
static void runner(void) {
    Worker *w = here();
    const uint32_t stack = w->fresh;
    do {
        const uint32_t t = w->started++;
        w->current = t;
        w->view.thread = w->index[t];
        w->entry(w->params);
        finish(w, t);
    } while (w->n_ready == 0 && w->started < w->n_threads);
    w->free_stacks[w->n_free++] = (uint16_t)stack;
    switch_away(w, &w->dead);
    __builtin_unreachable();
}

void mlcc_emu_syncthreads(void) {
    Worker *w = here();
    if (++w->arrived == w->live) {
        release_block(w, w->arrived - 1);
        return;
    }
    w->parked[w->arrived - 1] = (uint16_t)w->current;
    switch_away(w, &w->fibers[w->current].context);
}

void mlcc_emu_warp(unsigned int mask, mlcc_emu_op op, void *arg) {
    Worker *w = here();
    const uint32_t t = w->current, lane = t % LANES;
    Warp *warp = &w->warps[t / LANES];
    mask |= 1u << lane;
    warp->arg[lane] = arg;
    warp->mask[lane] = mask;
    warp->waiting |= 1u << lane;
    warp->op = op;
    if (!release_warp(w, t / LANES, mask, lane)) switch_away(w, &w->fibers[t].context);
}

unsigned int mlcc_emu_active(void) {
    const Worker *w = here();
    return w->warps[w->current / LANES].live;
}

unsigned int mlcc_emu_linear(void) {
    return here()->current;
}

static Copies *my_copies(void) {
    Worker *w = here();
    return &w->fibers[w->current].copies;
}

static void run_block(Worker *w) {
    w->started = w->arrived = w->first_ready = w->n_ready = 0;
    w->live = w->n_threads;
    for (uint32_t i = 0; i * LANES < w->n_threads; i++) {
        const uint32_t n = w->n_threads - i * LANES;
        w->warps[i].live = n < LANES ? (1u << n) - 1 : ~0u;
        w->warps[i].waiting = 0;
    }
    w->failed = !make_runner(w);
    if (!w->failed) mlcc_emu_switch(&w->main, &w->made);
    if (!w->failed) return;
    /* The stacks of the threads that were left waiting are free again. */
    for (w->n_free = 0; w->n_free < w->n_stacks; w->n_free++)
        w->free_stacks[w->n_free] = (uint16_t)w->n_free;
}

static int next_block(Job *job, uint64_t *block) {
    if (__atomic_load_n(&job->failed, __ATOMIC_RELAXED)) return 0;
    *block = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
    return *block < job->n_blocks;
}

static void consider_sharing(Job *job);

/* Runs blocks of the job until there are none. */
static void worker_run(Worker *w, Job *job) {
    const uint32_t *block = job->kernel->block;
    w->view.block_dim = (mlcc_emu_dim){block[0], block[1], block[2]};
    w->view.grid_dim = job->grid;
    w->entry = job->kernel->emulated;
    w->params = job->params;
    w->n_threads = block_threads(job->kernel);
    for (uint32_t t = 0; t < w->n_threads; t++) w->index[t] = nth(w->view.block_dim, t);
    for (uint64_t at; next_block(job, &at);) {
        w->view.block = nth(job->grid, at);
        run_block(w);
        if (w->failed) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        if (w->is_caller && !job->shared) consider_sharing(job);
    }
}

static void worker_free(Worker *w) {
    if (!w) return;
    for (uint32_t t = 0; t < MAX_THREADS; t++) free(w->fibers[t].copies.items);
    if (w->slab) munmap(w->slab, MLCC_EMU_SLAB);
    free(w);
}

#else /* MLCC_EMU_THREADS */

#include "cuda_emu_threads.h"

#endif

/* ---- warp functions, the same for both modes ---- */

typedef struct Shuffle {
    unsigned char *value;
    unsigned char got[8];
    size_t bytes;
    int kind, by, width;
} Shuffle;

/* The lane to read from; the lane itself where the rules say that its own value stays. */
static int shuffle_source(const Shuffle *s, int lane) {
    const int first = lane & ~(s->width - 1), last = first + s->width - 1;
    int from = lane;
    switch (s->kind) {
    case MLCC_EMU_IDX:
        from = first + (s->by & (s->width - 1));
        break;
    case MLCC_EMU_UP:
        from = lane - s->by;
        break;
    case MLCC_EMU_DOWN:
        from = lane + s->by;
        break;
    default:
        from = lane ^ s->by;
        break;
    }
    /* xor may read an earlier segment, never a later one */
    if (from > last || from < 0 || (from < first && s->kind != MLCC_EMU_XOR)) from = lane;
    return from;
}

static void shuffle_op(void *const *args, unsigned int lanes) {
    for (int i = 0; i < LANES; i++) {
        if (!(lanes >> i & 1)) continue;
        Shuffle *to = (Shuffle *)args[i];
        const int from = shuffle_source(to, i);
        /* A lane that is not there gives an undefined value on a GPU; here all bits set. */
        if (lanes >> from & 1)
            memcpy(to->got, ((const Shuffle *)args[from])->value, to->bytes);
        else
            memset(to->got, 0xff, to->bytes);
    }
}

void mlcc_emu_shuffle(unsigned int mask, int kind, int by, int width, void *value, size_t bytes) {
    Shuffle shuffle = {.value = (unsigned char *)value, .bytes = bytes, .kind = kind, .by = by};
    shuffle.width = width;
    mlcc_emu_warp(mask, shuffle_op, &shuffle);
    memcpy(value, shuffle.got, bytes);
}

typedef struct Ballot {
    int predicate;
    unsigned int result;
} Ballot;

static void ballot_op(void *const *args, unsigned int lanes) {
    unsigned int result = 0;
    for (int i = 0; i < LANES; i++)
        if ((lanes >> i & 1) && ((const Ballot *)args[i])->predicate) result |= 1u << i;
    for (int i = 0; i < LANES; i++)
        if (lanes >> i & 1) ((Ballot *)args[i])->result = result;
}

unsigned int mlcc_emu_ballot(unsigned int mask, int predicate) {
    Ballot ballot = {predicate, 0};
    mlcc_emu_warp(mask, ballot_op, &ballot);
    return ballot.result;
}

void mlcc_emu_copy16(void *to, const void *from, unsigned int bytes) {
    Copies *copies = my_copies();
    const Copy copy = {to, from, bytes, copies->committed};
    copies_add(copies, copy);
}

void mlcc_emu_copy_commit(void) {
    my_copies()->committed++;
}

void mlcc_emu_copy_wait(unsigned int groups_left) {
    copies_wait(my_copies(), groups_left);
}

/* ---- the launcher ---- */

struct State {
    const mlcc_gpu_program *program;
    mlcc_gpu_message message;
    unsigned char *arena, *weights, *kept; /* kept: the states, between runs */
    int owns_weights;
    unsigned char **inputs, **outputs;
    void **pointers, **params; /* of one launch */
    /* The workers; the first is whoever calls run. The others sleep until `sequence` changes. */
    Worker **workers;
    int n_workers, n_threads; /* n_threads: how many of the others were started */
    Job *job;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    uint64_t sequence;
    int busy, quit;
};

static void *pool_main(void *argument) {
    Worker *w = (Worker *)argument;
    State *state = w->state;
    uint64_t seen = 0;
    pthread_mutex_lock(&state->lock);
    for (;;) {
        while (state->sequence == seen && !state->quit)
            pthread_cond_wait(&state->wake, &state->lock);
        if (state->quit) break;
        seen = state->sequence;
        Job *job = state->job;
        pthread_mutex_unlock(&state->lock);
        worker_run(w, job);
        pthread_mutex_lock(&state->lock);
        if (--state->busy == 0) pthread_cond_signal(&state->done);
    }
    pthread_mutex_unlock(&state->lock);
    return NULL;
}

#ifndef MLCC_EMU_THREADS

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Wakes the other workers if the job has proved long enough. Only times depend on it. */
static void consider_sharing(Job *job) {
    State *state = job->state;
    if (state->n_threads == 0 || __atomic_load_n(&job->next, __ATOMIC_RELAXED) >= job->n_blocks)
        return;
    if (now() - job->begun < WORTH_SHARING) return;
    pthread_mutex_lock(&state->lock);
    state->job = job;
    state->busy = state->n_threads;
    state->sequence++;
    pthread_cond_broadcast(&state->wake);
    pthread_mutex_unlock(&state->lock);
    job->shared = 1;
}

#endif

static void run_job(State *state, Job *job) {
#ifndef MLCC_EMU_THREADS
    if (state->n_threads > 0) job->begun = now();
#endif
    worker_run(state->workers[0], job);
    if (!job->shared) return;
    pthread_mutex_lock(&state->lock);
    while (state->busy > 0) pthread_cond_wait(&state->done, &state->lock);
    pthread_mutex_unlock(&state->lock);
}

int mlcc_emu_launch(void *opaque, const mlcc_gpu_kernel *kernel, const uint32_t grid[3],
                    void **params) {
    State *state = (State *)opaque;
    const uint64_t threads =
        (uint64_t)kernel->block[0] * kernel->block[1] * (uint64_t)kernel->block[2];
    Job job = {.kernel = kernel, .params = params, .state = state};
    job.grid = (mlcc_emu_dim){grid[0], grid[1], grid[2]};
    if (threads == 0 || threads > MAX_THREADS || kernel->block[2] > 64 || grid[0] == 0 ||
        grid[0] > INT32_MAX || grid[1] == 0 || grid[1] > 65535 || grid[2] == 0 || grid[2] > 65535)
        return mlcc_gpu_fail(&state->message, MLCC_E_DEVICE,
                             "kernel '%s': no GPU runs %u x %u x %u blocks of %u x %u x %u threads",
                             kernel->name, grid[0], grid[1], grid[2], kernel->block[0],
                             kernel->block[1], kernel->block[2]);
    job.n_blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    run_job(state, &job);
    if (!job.failed) return MLCC_OK;
    return mlcc_gpu_fail(&state->message, MLCC_E_DEVICE,
                         "kernel '%s': some threads of a block wait at a barrier or in a warp "
                         "function that others never reach",
                         kernel->name);
}

/* Memory as the driver gives it, but of the exact size, so that a sanitizer sees what passes the
 * end; filled with 0xff (not-a-numbers), so that reading it before writing shows. */
static unsigned char *device_alloc(uint64_t bytes) {
    void *at = NULL;
    if (bytes > SIZE_MAX || posix_memalign(&at, MLCC_GPU_ALIGN, bytes ? (size_t)bytes : 1) != 0)
        return NULL;
    memset(at, 0xff, (size_t)bytes);
    return (unsigned char *)at;
}

static unsigned char **device_alloc_all(const mlcc_tensor *tensors, uint32_t n) {
    unsigned char **all = (unsigned char **)calloc((size_t)n + 1, sizeof *all);
    for (uint32_t i = 0; all && i < n; i++) all[i] = device_alloc(tensors[i].bytes);
    return all;
}

static int all_there(unsigned char *const *all, uint32_t n) {
    if (!all) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!all[i]) return 0;
    return 1;
}

static int open_weights(State *state, const char *path) {
    mlcc_gpu_weights found;
    const uint64_t bytes = state->program->model->weight_bytes;
    int code = mlcc_gpu_weights_load(state->program, path, &found, &state->message);
    if (code != MLCC_OK || !found.bytes) return code;
    if ((uintptr_t)found.bytes % MLCC_GPU_ALIGN == 0 && !found.owned) {
        /* Constants of the library serve as they are: a kernel that writes them is stopped. */
        memcpy(&state->weights, &found.bytes, sizeof state->weights);
        return MLCC_OK;
    }
    state->weights = device_alloc(bytes);
    state->owns_weights = state->weights != NULL;
    if (state->weights) memcpy(state->weights, found.bytes, (size_t)bytes);
    mlcc_gpu_weights_free(&found);
    if (state->weights) return MLCC_OK;
    return mlcc_gpu_fail(&state->message, MLCC_E_MEMORY, "no memory for the weights");
}

static int open_workers(State *state, int workers) {
    state->workers = (Worker **)calloc((size_t)workers, sizeof *state->workers);
    if (!state->workers) return MLCC_E_MEMORY;
    while (state->n_workers < workers) {
        Worker *w = (Worker *)calloc(1, sizeof *w);
        state->workers[state->n_workers++] = w;
        if (!w || worker_map(w) != MLCC_OK) return MLCC_E_MEMORY;
        w->state = state;
        w->is_caller = state->n_workers == 1;
    }
    for (; state->n_threads < workers - 1; state->n_threads++) {
        Worker *w = state->workers[state->n_threads + 1];
        if (pthread_create(&w->thread, NULL, pool_main, w) != 0) return MLCC_E_MEMORY;
    }
    return MLCC_OK;
}

int mlcc_emu_open(void **opaque, const mlcc_gpu_program *program, const char *weights,
                  int workers) {
    const mlcc_model *model = program->model;
    State *state = (State *)calloc(1, sizeof *state);
    *opaque = state;
    if (!state) return MLCC_E_MEMORY;
    state->program = program;
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->wake, NULL);
    pthread_cond_init(&state->done, NULL);
    int code = open_weights(state, weights);
    if (code != MLCC_OK) return code;
    uint32_t n_args = 0;
    for (uint32_t i = 0; i < program->n_kernels; i++)
        if (program->kernels[i].n_args > n_args) n_args = program->kernels[i].n_args;
    state->arena = device_alloc(program->arena_bytes);
    state->kept = device_alloc(model->state_bytes);
    state->inputs = device_alloc_all(model->inputs, model->n_inputs);
    state->outputs = device_alloc_all(model->outputs, model->n_outputs);
    state->pointers = (void **)calloc((size_t)n_args + 1, sizeof *state->pointers);
    state->params =
        (void **)calloc((size_t)n_args + MLCC_GPU_MAX_SCALARS + 1, sizeof *state->params);
    if (!state->arena || !state->kept || !all_there(state->inputs, model->n_inputs) ||
        !all_there(state->outputs, model->n_outputs) || !state->pointers || !state->params)
        return mlcc_gpu_fail(&state->message, MLCC_E_MEMORY, "no memory for the tensors");
    mlcc_gpu_reset(state);
#ifdef MLCC_EMU_THREADS
    workers = 1;
#endif
    if (open_workers(state, workers > 1 ? workers : 1) != MLCC_OK)
        return mlcc_gpu_fail(&state->message, MLCC_E_MEMORY, "no memory for the threads' stacks");
    return MLCC_OK;
}

static unsigned char *place(const State *state, const mlcc_gpu_arg *arg) {
    switch (arg->space) {
    case MLCC_SPACE_INPUT:
        return state->inputs[arg->index] + arg->offset;
    case MLCC_SPACE_OUTPUT:
        return state->outputs[arg->index] + arg->offset;
    case MLCC_SPACE_ARENA:
        return state->arena + arg->offset;
    case MLCC_SPACE_STATE:
        return state->kept + arg->offset;
    default:
        return state->weights ? state->weights + arg->offset : NULL;
    }
}

static int launch_step(void *opaque, const mlcc_gpu_step *step, const int32_t *scalars) {
    State *state = (State *)opaque;
    const mlcc_gpu_kernel *kernel = &state->program->kernels[step->kernel];
    int32_t values[MLCC_GPU_MAX_SCALARS];
    memcpy(values, scalars, sizeof values);
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        state->pointers[i] = place(state, &state->program->args[step->first_arg + i]);
        state->params[i] = &state->pointers[i];
    }
    for (uint32_t i = 0; i < kernel->n_scalars; i++) state->params[kernel->n_args + i] = &values[i];
    return mlcc_emu_launch(state, kernel, step->grid, state->params);
}

int mlcc_gpu_open(void **state, const char *weights) {
    return mlcc_emu_open(state, &mlcc_program, weights, MLCC_EMU_WORKERS);
}

int mlcc_gpu_run(void *opaque, const void *const *inputs, void *const *outputs, void *arena) {
    State *state = (State *)opaque;
    const mlcc_model *model = state->program->model;
    (void)arena;
    int code = mlcc_gpu_check_run(model, inputs, outputs, &state->message);
    if (code != MLCC_OK) return code;
    for (uint32_t i = 0; i < model->n_inputs; i++)
        if (model->inputs[i].bytes)
            memcpy(state->inputs[i], inputs[i], mlcc_gpu_input_bytes(model, inputs, i));
    code = mlcc_gpu_walk(state->program, launch_step, state, &state->message);
    for (uint32_t i = 0; i < model->n_outputs && code == MLCC_OK; i++)
        if (model->outputs[i].bytes)
            memcpy(outputs[i], state->outputs[i], (size_t)model->outputs[i].bytes);
    return code == MLCC_OK ? mlcc_gpu_status(model, outputs, &state->message) : code;
}

int mlcc_gpu_reset(void *opaque) {
    State *state = (State *)opaque;
    const mlcc_gpu_program *program = state->program;
    memset(state->kept, 0, (size_t)program->model->state_bytes);
    for (uint32_t i = 0; i < program->n_initial; i++)
        memcpy(state->kept + program->initial[i].offset,
               state->weights + program->initial[i].initial, (size_t)program->initial[i].bytes);
    return MLCC_OK;
}

void mlcc_gpu_close(void *opaque) {
    State *state = (State *)opaque;
    if (!state) return;
    pthread_mutex_lock(&state->lock);
    state->quit = 1;
    pthread_cond_broadcast(&state->wake);
    pthread_mutex_unlock(&state->lock);
    for (int i = 0; i < state->n_threads; i++) pthread_join(state->workers[i + 1]->thread, NULL);
    for (int i = 0; i < state->n_workers; i++) worker_free(state->workers[i]);
    const mlcc_model *model = state->program->model;
    for (uint32_t i = 0; state->inputs && i < model->n_inputs; i++) free(state->inputs[i]);
    for (uint32_t i = 0; state->outputs && i < model->n_outputs; i++) free(state->outputs[i]);
    if (state->owns_weights) free(state->weights);
    free(state->workers);
    free(state->inputs);
    free(state->outputs);
    free(state->arena);
    free(state->kept);
    free(state->pointers);
    free(state->params);
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->wake);
    pthread_cond_destroy(&state->done);
    free(state);
}

const char *mlcc_gpu_error(void *state) {
    return state ? ((State *)state)->message.text : "no memory";
}
