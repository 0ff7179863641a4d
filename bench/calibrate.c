/* How fast is this machine at this moment? Prints the best of several short slices:
 *
 *     calibrate THREADS SECONDS     GFLOP/s of multiply-adds in registers, GB/s of reading memory
 *
 * The rates are of all THREADS together. SECONDS is about how long each of the two takes. Clock and
 * neighbours change from minute to minute: numbers taken minutes apart are compared by these.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
/* Chains that do not wait for each other: a latency of 4 or 5 times 2 units. */
#define CHAINS 12
#define SLICE  200000
#define BUFFER ((size_t)256 << 20)

typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
typedef uint64_t Word __attribute__((vector_size(64)));

typedef struct Task {
    pthread_barrier_t *barrier;
    const Word *words; /* this thread's part of the buffer */
    size_t n_words;
    int first;         /* this thread keeps the time */
    double seconds;    /* for each of the two loops */
    double flop, byte; /* best seconds of a slice */
    volatile int *stop;
    float sink;
} Task;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float multiply_add(void) {
    Vector sum[CHAINS], factor;
    for (int l = 0; l < LANES; l++) factor[l] = 0.999f;
    /* Chains that are the same would be computed once. */
    for (int c = 0; c < CHAINS; c++) sum[c] = factor * (float)c;
    for (int i = 0; i < SLICE; i++) {
        for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * factor + factor;
        /* Nothing is moved out of the loop, nothing is kept in memory. */
        __asm__ volatile("" : "+x"(factor));
    }
    float total = 0;
    for (int c = 0; c < CHAINS; c++) total += sum[c][0];
    return total;
}

static float read_all(const Word *words, size_t n) {
    Word sum[4] = {{0}};
    for (size_t i = 0; i + 4 <= n; i += 4) {
        for (size_t k = 0; k < 4; k++) sum[k] ^= words[i + k];
    }
    return (float)(sum[0] ^ sum[1] ^ sum[2] ^ sum[3])[0];
}

/* One of the two loops, slice after slice, all threads starting each together. */
static double best_slice(Task *t, int memory) {
    double best = 1e9, end = now() + t->seconds;
    for (;;) {
        if (t->first) *t->stop = now() > end;
        pthread_barrier_wait(t->barrier);
        if (*t->stop) break;
        double start = now();
        t->sink += memory ? read_all(t->words, t->n_words) : multiply_add();
        pthread_barrier_wait(t->barrier);
        double took = now() - start;
        if (took < best) best = took;
    }
    pthread_barrier_wait(t->barrier);
    return best;
}

static void *work(void *task) {
    Task *t = task;
    t->flop = best_slice(t, 0);
    t->byte = best_slice(t, 1);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc == 3 ? atoi(argv[1]) : 0;
    double seconds = argc == 3 ? atof(argv[2]) : 0;
    if (threads < 1 || threads > 256 || !(seconds > 0)) {
        fprintf(stderr, "usage: calibrate THREADS SECONDS\n");
        return 2;
    }
    Word *words = aligned_alloc(64, BUFFER);
    Task *tasks = calloc((size_t)threads, sizeof *tasks);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    pthread_barrier_t barrier;
    volatile int stop = 0;
    if (!words || !tasks || !ids || pthread_barrier_init(&barrier, NULL, (unsigned)threads)) {
        fprintf(stderr, "calibrate: out of memory\n");
        return 3;
    }
    memset(words, 1, BUFFER);
    size_t part = BUFFER / sizeof(Word) / (size_t)threads;
    for (int i = 0; i < threads; i++) {
        tasks[i] =
            (Task){&barrier, words + (size_t)i * part, part, i == 0, seconds, 0, 0, &stop, 0};
        if (i > 0 && pthread_create(&ids[i], NULL, work, &tasks[i])) {
            fprintf(stderr, "calibrate: cannot start a thread\n");
            return 3;
        }
    }
    work(&tasks[0]);
    float sink = tasks[0].sink;
    for (int i = 1; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sink += tasks[i].sink;
    }
    double flops = 2.0 * LANES * CHAINS * SLICE * threads;
    printf("%.1f %.2f\n", flops / tasks[0].flop / 1e9,
           (double)(part * sizeof(Word)) * threads / tasks[0].byte / 1e9);
    if (sink == 12345.0f) fprintf(stderr, "%g\n", (double)sink); /* the loops have a use */
    return 0;
}
