/* Teams of threads; see team.h.
 *
 * There is one mechanism, a barrier. Workers wait at it for a job; the calling thread passes it
 * when it has one, all pass it as often as the job asks, and once more when the job is done. The
 * last to arrive begins the next phase; the others spin until they see it, then sleep on a
 * condition. What threads have left of a stretch of steps is dealt out anew before each, and others
 * take from it when they have nothing left of their own.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "team.h"

#if MLCC_HAS_THREADS

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 1024
#define SPIN_SECONDS 50e-6 /* waking a thread that sleeps takes 5 us, in virtual machines 60 */
#define FEW_ROUNDS   50    /* of spinning, where threads must share processors */
#define MOST_ROUNDS  100000

/* Whether it pays to share brief jobs, they show themselves; see count_job. */
#define BRIEF_SECONDS 2e-3
#define GAIN          0.97 /* of the time that one thread takes: threads must be faster than that */
#define WORSE         1.5  /* times as long, and a trial ends */
#define TRIAL_JOBS    8
#define LEAST_JOBS    64 /* from one trial to the next */
#define MOST_JOBS     1024

typedef struct mlcc_worker {
    mlcc_team *team;
    pthread_t thread;
    int32_t number;
} mlcc_worker;

/* What a thread has left of a stretch, in one word: the stretch's number in the upper half, below
 * it the first of its pieces and the one behind the last: there are not more than a stretch is
 * worth, or than threads, both of which 16 bits hold. In a cache line of its own. */
typedef struct mlcc_hand {
    _Alignas(64) _Atomic uint64_t left;
} mlcc_hand;

struct mlcc_team {
    void *owner;
    size_t bytes; /* of memory for each worker, a multiple of 64 */
    unsigned char *memory;
    int32_t threads, most_rounds;
    mlcc_worker *worker; /* threads - 1 of them */
    mlcc_hand *hand;     /* of each thread */
    bool alone;          /* jobs are done by the calling thread */
    bool trying;         /* ... or not, to see how long that takes */
    double least[2];     /* [alone]: seconds that the last TRIAL_JOBS so done took, the least */
    int32_t left;        /* jobs until a trial begins or ends */
    int32_t jobs;        /* from one trial to the next */
    /* the job at work; NULL: workers end */
    mlcc_job *job;
    void *user;
    uint32_t float_mode;
    pthread_mutex_t mutex;
    pthread_cond_t next_phase;
    /* each in a cache line of its own */
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint phase;
    _Alignas(64) atomic_uint asleep;
    _Alignas(64) atomic_int rounds; /* of spinning, now */
};

/* --- the machine ------------------------------------------------------------------------------ */

static inline void spin_pause(void) {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_ia32_pause();
#elif defined(__GNUC__) && (defined(__aarch64__) || defined(__arm__))
    __asm__ volatile("yield");
#endif
}

/* How floats are rounded and whether subnormals are zero: workers must do as the caller does, or
 * results would depend on the number of threads. */
static uint32_t get_float_mode(void) {
    uint32_t mode = 0;
#if defined(__GNUC__) && defined(__x86_64__)
    __asm__ volatile("stmxcsr %0" : "=m"(mode));
    mode &= ~(uint32_t)0x3f; /* exceptions seen so far */
#elif defined(__GNUC__) && defined(__aarch64__)
    uint64_t wide;
    __asm__ volatile("mrs %0, fpcr" : "=r"(wide));
    mode = (uint32_t)wide;
#endif
    return mode;
}

static void set_float_mode(uint32_t mode) {
    if (mode == get_float_mode()) return;
#if defined(__GNUC__) && defined(__x86_64__)
    __asm__ volatile("ldmxcsr %0" : : "m"(mode));
#elif defined(__GNUC__) && defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode));
#endif
}

static int processors(void) {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* How often to look for the next phase before going to sleep: a pause takes from 1 to 50 ns. */
static int32_t spin_rounds(int threads) {
    enum { PAUSES = 100, TRIES = 5 };
    if (threads > processors()) return FEW_ROUNDS;
    double least = SPIN_SECONDS; /* of a pause; another program may run in between */
    for (int i = 0; i < TRIES; i++) {
        const double start = seconds();
        for (int k = 0; k < PAUSES; k++) spin_pause();
        const double each = (seconds() - start) / PAUSES;
        if (each < least) least = each;
    }
    const double rounds = least > 0 ? SPIN_SECONDS / least : MOST_ROUNDS;
    return rounds < FEW_ROUNDS ? FEW_ROUNDS : rounds > MOST_ROUNDS ? MOST_ROUNDS : (int32_t)rounds;
}

/* --- the barrier ------------------------------------------------------------------------------ */

static void sleep_through(mlcc_team *team, unsigned phase) {
    pthread_mutex_lock(&team->mutex);
    /* Both this pair and that of the last to arrive are sequentially consistent: either it sees
     * that this thread is asleep, or this thread sees the next phase. */
    atomic_fetch_add(&team->asleep, 1);
    while (atomic_load(&team->phase) == phase) pthread_cond_wait(&team->next_phase, &team->mutex);
    atomic_fetch_sub(&team->asleep, 1);
    pthread_mutex_unlock(&team->mutex);
}

/* Who spun in vain spins half as long the next time, who did not, twice as long: where other
 * programs want the processors too, threads that sleep get them back sooner than threads that spin.
 */
static void set_rounds(mlcc_team *team, int32_t rounds) {
    if (rounds > team->most_rounds) rounds = team->most_rounds;
    if (rounds < team->most_rounds / 8)
        rounds = team->most_rounds / 8; /* as long as waking takes */
    atomic_store_explicit(&team->rounds, rounds, memory_order_relaxed);
}

void mlcc_team_wait(mlcc_team *team) {
    const unsigned phase = atomic_load_explicit(&team->phase, memory_order_relaxed);
    const unsigned last = (unsigned)team->threads - 1;
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) == last) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store(&team->phase, phase + 1);
        if (atomic_load(&team->asleep)) {
            pthread_mutex_lock(&team->mutex);
            pthread_cond_broadcast(&team->next_phase);
            pthread_mutex_unlock(&team->mutex);
        }
        return;
    }
    const int32_t rounds = atomic_load_explicit(&team->rounds, memory_order_relaxed);
    for (int32_t i = 0; i < rounds; i++) {
        if (atomic_load_explicit(&team->phase, memory_order_acquire) != phase) {
            if (rounds < team->most_rounds) set_rounds(team, rounds * 2);
            return;
        }
        spin_pause();
    }
    set_rounds(team, rounds / 2);
    sleep_through(team, phase);
}

/* --- pieces ----------------------------------------------------------------------------------- */

#define STRETCH 32 /* bits below its number */
#define FIRST   16 /* bits below the first piece */

static inline uint32_t first_of(uint64_t left) {
    return (uint32_t)left >> FIRST;
}

static inline uint32_t end_of(uint64_t left) {
    return (uint32_t)left & 0xffff;
}

void mlcc_team_deal(mlcc_team *team, int32_t thread, int32_t worth) {
    _Atomic uint64_t *own = &team->hand[thread].left;
    const uint64_t stretch = atomic_load_explicit(own, memory_order_relaxed) >> STRETCH;
    const uint64_t each = (uint64_t)mlcc_each(team->threads, worth);
    const uint64_t first = (uint64_t)thread * each;
    atomic_store_explicit(own, (stretch + 1) << STRETCH | first << FIRST | (first + each),
                          memory_order_relaxed);
}

/* Takes the first or the last piece of this hand, if it is one of that stretch. What pieces read
 * and write is the barriers' affair. */
static bool take_from(_Atomic uint64_t *hand, uint64_t stretch, bool last, int32_t *piece) {
    uint64_t left = atomic_load_explicit(hand, memory_order_relaxed);
    while (left >> STRETCH == stretch && first_of(left) < end_of(left)) {
        const uint64_t rest = last ? left - 1 : left + (UINT64_C(1) << FIRST);
        if (!atomic_compare_exchange_weak_explicit(hand, &left, rest, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        *piece = (int32_t)(last ? end_of(left) - 1 : first_of(left));
        return true;
    }
    return false;
}

int mlcc_team_take(mlcc_team *team, int32_t thread, int32_t *piece) {
    _Atomic uint64_t *own = &team->hand[thread].left;
    const uint64_t stretch = atomic_load_explicit(own, memory_order_relaxed) >> STRETCH;
    if (take_from(own, stretch, false, piece)) return 1;
    for (int32_t i = 1; i < team->threads; i++) {
        const int32_t other = (thread + i) % team->threads;
        if (take_from(&team->hand[other].left, stretch, true, piece)) return 1;
    }
    return 0;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *work(void *argument) {
    const mlcc_worker *worker = argument;
    mlcc_team *team = worker->team;
    pthread_mutex_lock(&team->mutex); /* held while the team is made */
    pthread_mutex_unlock(&team->mutex);
    for (;;) {
        mlcc_team_wait(team);
        if (!team->job) return NULL;
        set_float_mode(team->float_mode);
        team->job(team->user, worker->number, team->threads, team);
        mlcc_team_wait(team);
    }
}

/* Ends all workers. */
static void dismiss(mlcc_team *team) {
    if (team->threads > 1) {
        team->job = NULL;
        mlcc_team_wait(team);
    }
    for (int32_t i = 1; i < team->threads; i++) pthread_join(team->worker[i - 1].thread, NULL);
    free(team->worker);
    free(team->memory);
    free(team->hand);
    team->worker = NULL;
    team->hand = NULL;
    team->memory = NULL;
    team->threads = 1;
}

/* Makes the workers of a team of one; false if the system has not so many. */
static bool recruit(mlcc_team *team, int threads) {
    const size_t workers = (size_t)threads - 1;
    team->worker = calloc(workers, sizeof *team->worker);
    if (team->bytes && team->bytes <= SIZE_MAX / workers)
        team->memory = aligned_alloc(64, team->bytes * workers);
    team->hand = aligned_alloc(_Alignof(mlcc_hand), (size_t)threads * sizeof *team->hand);
    if (!team->worker || !team->hand || (team->bytes && !team->memory)) return false;
    memset(team->hand, 0, (size_t)threads * sizeof *team->hand);
    team->most_rounds = spin_rounds(threads);
    team->alone = team->trying = false;
    team->left = team->jobs = LEAST_JOBS;
    set_rounds(team, team->most_rounds);
    sigset_t all, before;
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&team->mutex);
    int made = 1;
    for (; made < threads; made++) {
        mlcc_worker *worker = &team->worker[made - 1];
        *worker = (mlcc_worker){.team = team, .number = made};
        if (pthread_create(&worker->thread, NULL, work, worker) != 0) break;
    }
    team->threads = made;
    pthread_mutex_unlock(&team->mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made == threads;
}

int mlcc_team_resize(mlcc_team *team, int threads) {
    if (!team || threads < 1 || threads > MOST_THREADS) return MLCC_E_ARGUMENT;
    if (threads == team->threads) return MLCC_OK;
    dismiss(team);
    if (threads == 1 || recruit(team, threads)) return MLCC_OK;
    dismiss(team);
    return MLCC_E_MEMORY;
}

mlcc_team *mlcc_team_new(void *user, size_t bytes) {
    mlcc_team *team = aligned_alloc(_Alignof(mlcc_team), sizeof *team);
    if (!team) return NULL;
    memset(team, 0, sizeof *team);
    team->owner = user;
    team->bytes = (bytes + 63) / 64 * 64;
    team->threads = 1;
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->next_phase, NULL);
    return team;
}

void *mlcc_team_user(const mlcc_team *team) {
    return team ? team->owner : NULL;
}

unsigned char *mlcc_team_memory(const mlcc_team *team, int32_t thread) {
    return team->memory ? team->memory + (size_t)(thread - 1) * team->bytes : NULL;
}

/* What comes next, and for how many jobs. */
static void go_on(mlcc_team *team, bool alone, bool trying, int32_t jobs) {
    team->alone = alone;
    team->trying = trying;
    team->least[alone] = INFINITY;
    team->left = jobs;
}

/* Cores that share no cache take five times as long to hand a line over as such that do, and where
 * the system has put the threads changes from second to second; one that sleeps has to be woken. So
 * a brief job may take twice as long shared as alone, or half as long. A few are done the other way
 * now and then, less often where nothing changes; fewer if that is plainly worse (the first one
 * that is shared wakes the others). */
static void count_job(mlcc_team *team, double took) {
    double *least = team->least;
    if (team->left == TRIAL_JOBS) least[team->alone] = INFINITY;
    if (took < least[team->alone]) least[team->alone] = took;
    team->left--;
    if (team->trying) {
        const bool woke = !team->alone && team->left == TRIAL_JOBS - 1;
        const bool worse = !woke && took > WORSE * least[!team->alone];
        if (team->left > 0 && !worse) return;
        const bool was = !team->alone, alone = least[false] > least[true] * GAIN;
        if (alone != was)
            team->jobs = LEAST_JOBS;
        else if (team->jobs < MOST_JOBS)
            team->jobs *= 2;
        go_on(team, alone, false, team->jobs);
    } else if (team->alone && took > BRIEF_SECONDS) {
        go_on(team, false, false, team->jobs = LEAST_JOBS);
    } else if (team->left == 0) {
        const bool brief = least[team->alone] <= BRIEF_SECONDS;
        go_on(team, team->alone != brief, brief, brief ? TRIAL_JOBS : team->jobs);
    }
}

void mlcc_team_run(mlcc_team *team, mlcc_job *job, void *user) {
    if (!team || team->threads == 1) {
        job(user, 0, 1, NULL);
        return;
    }
    const double start = seconds();
    if (team->alone) {
        job(user, 0, 1, NULL);
    } else {
        team->job = job;
        team->user = user;
        team->float_mode = get_float_mode();
        mlcc_team_wait(team);
        job(user, 0, team->threads, team);
        mlcc_team_wait(team);
    }
    count_job(team, seconds() - start);
}

void mlcc_team_free(mlcc_team *team) {
    if (!team) return;
    dismiss(team);
    pthread_cond_destroy(&team->next_phase);
    pthread_mutex_destroy(&team->mutex);
    free(team);
}

#else
typedef int mlcc_no_threads; /* C wants something in a file */
#endif
