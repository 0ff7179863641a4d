/* One OS thread per CUDA thread: the MLCC_EMU_THREADS part of cuda_emu.c, for that file alone.
 *
 * Barriers come in pairs, used in turns. With a single one, a thread still leaving barrier n would
 * take the lock that a faster thread has just given back on its way into barrier n+1, and
 * ThreadSanitizer would see an order between them that the kernel does not have: races would be
 * missed.
 */
#ifndef MLCC_RUNTIME_CUDA_EMU_THREADS_H
#define MLCC_RUNTIME_CUDA_EMU_THREADS_H

typedef struct Barrier {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t arrived, round;
    void *arg[LANES]; /* of a warp's barrier */
    mlcc_emu_op op;
} Barrier;

typedef struct Worker {
    State *state;
    int is_caller;
    pthread_t thread;
    Job *job;
    uint32_t n_threads;
    uint32_t live;                 /* of the block; relaxed, so that it orders nothing */
    unsigned int lanes[MAX_WARPS]; /* that have not returned; relaxed as well */
    Barrier block[2], between[2], warp[MAX_WARPS][2];
} Worker;

typedef struct Self {
    Worker *team;
    uint32_t index;
    uint32_t blocks, warps; /* how many barriers of each kind it has passed */
    Copies copies;
} Self;

_Thread_local mlcc_emu_view mlcc_emu_thread_view;
static _Thread_local Self *self;

static void barrier_open(Barrier *b) {
    b->arrived = 0;
    b->round++;
    pthread_cond_broadcast(&b->wake);
}

static void barrier_wait(Barrier *b, const uint32_t *live) {
    pthread_mutex_lock(&b->lock);
    const uint32_t round = b->round;
    if (++b->arrived == __atomic_load_n(live, __ATOMIC_RELAXED)) barrier_open(b);
    while (b->round == round) pthread_cond_wait(&b->wake, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void mlcc_emu_syncthreads(void) {
    barrier_wait(&self->team->block[self->blocks++ & 1], &self->team->live);
}

/* Opens a warp's barrier if all its lanes are there; under its lock. */
static void warp_open(Barrier *b) {
    const unsigned int lanes = mlcc_emu_active();
    if (b->arrived == 0 || b->arrived != (uint32_t)__builtin_popcount(lanes)) return;
    if (b->op) b->op((void *const *)b->arg, lanes);
    barrier_open(b);
}

void mlcc_emu_warp(unsigned int mask, mlcc_emu_op op, void *arg) {
    Barrier *b = &self->team->warp[self->index / LANES][self->warps++ & 1];
    (void)mask;
    pthread_mutex_lock(&b->lock);
    const uint32_t round = b->round;
    b->arg[self->index % LANES] = arg;
    b->op = op;
    b->arrived++;
    warp_open(b);
    while (b->round == round) pthread_cond_wait(&b->wake, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

unsigned int mlcc_emu_active(void) {
    return __atomic_load_n(&self->team->lanes[self->index / LANES], __ATOMIC_RELAXED);
}

unsigned int mlcc_emu_linear(void) {
    return self->index;
}

static Copies *my_copies(void) {
    return &self->copies;
}

/* A thread has returned. Only the barriers that it would have come to next are touched: the other
 * ones may still be being left. */
static void finish(Worker *team) {
    Barrier *b = &team->block[self->blocks & 1];
    Barrier *w = &team->warp[self->index / LANES][self->warps & 1];
    const unsigned int lane = 1u << self->index % LANES;
    self->copies.n = 0;
    __atomic_fetch_and(&team->lanes[self->index / LANES], ~lane, __ATOMIC_RELAXED);
    const uint32_t live = __atomic_sub_fetch(&team->live, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&b->lock);
    if (b->arrived > 0 && b->arrived == live) barrier_open(b);
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_lock(&w->lock);
    warp_open(w);
    pthread_mutex_unlock(&w->lock);
}

static void *thread_main(void *argument) {
    self = (Self *)argument;
    Worker *team = self->team;
    const uint32_t *size = team->job->kernel->block;
    mlcc_emu_view *view = &mlcc_emu_thread_view;
    view->block_dim = (mlcc_emu_dim){size[0], size[1], size[2]};
    view->grid_dim = team->job->grid;
    view->thread = nth(view->block_dim, self->index);
    for (uint64_t at = 0; at < team->job->n_blocks; at++) {
        view->block = nth(view->grid_dim, at);
        if (self->index == 0) team->live = team->n_threads;
        if (self->index % LANES == 0) {
            const uint32_t n = team->n_threads - self->index;
            team->lanes[self->index / LANES] = n < LANES ? (1u << n) - 1 : ~0u;
        }
        self->blocks = self->warps = 0;
        barrier_wait(&team->between[0], &team->n_threads);
        team->job->kernel->emulated(team->job->params);
        finish(team);
        barrier_wait(&team->between[1], &team->n_threads);
    }
    free(self->copies.items);
    return NULL;
}

static void worker_run(Worker *w, Job *job) {
    static const Self none;
    const uint32_t n = block_threads(job->kernel);
    pthread_t *threads = (pthread_t *)calloc(n, sizeof *threads);
    Self *selves = (Self *)calloc(n, sizeof *selves);
    uint32_t begun = 0;
    w->job = job;
    w->n_threads = n;
    for (; threads && selves && begun < n; begun++) {
        selves[begun] = none;
        selves[begun].team = w;
        selves[begun].index = begun;
        if (pthread_create(&threads[begun], NULL, thread_main, &selves[begun]) != 0) {
            fprintf(stderr, "cuda_emu: cannot start %u threads\n", n);
            abort();
        }
    }
    for (uint32_t t = 0; t < begun; t++) pthread_join(threads[t], NULL);
    job->failed = begun < n;
    free(threads);
    free(selves);
}

static int worker_map(Worker *w) {
    Barrier *all[] = {w->block, w->between, w->warp[0]};
    const size_t n[] = {2, 2, 2 * MAX_WARPS};
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < n[k]; i++) {
            pthread_mutex_init(&all[k][i].lock, NULL);
            pthread_cond_init(&all[k][i].wake, NULL);
        }
    return MLCC_OK;
}

static void worker_free(Worker *w) {
    free(w);
}

#endif
