/* What the machine can do, for `mlcc bench`: multiply-adds from registers, and reading memory.
 *
 * It is compiled with the flags of the model, so the peak is that of the instructions which the
 * model was allowed to use. Vectors are the compiler's own.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "team.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define CHAINS       20
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define CHAINS       12
#else
#define VECTOR_BYTES 16
#define CHAINS       12
#endif
#define LANES (VECTOR_BYTES / (int)sizeof(float))

typedef float vector __attribute__((vector_size(VECTOR_BYTES), may_alias));

typedef struct Work {
    const char *memory; /* NULL: multiply */
    size_t bytes;       /* in all, shared by the threads */
    int rounds;
    float sink[1024][16]; /* results, a cache line per thread */
} Work;

static float total(vector v) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

/* Chains of multiply-adds, enough of them to hide how long one takes. */
static float multiply(int rounds) {
    vector sum[CHAINS], factor = {0}, add = {0};
    factor += 0.999f;
    add += 0.001f;
    for (int c = 0; c < CHAINS; c++) sum[c] = add * (float)c;
    for (int r = 0; r < rounds; r++) {
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 32
#endif
        for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * factor + add;
    }
    for (int c = 1; c < CHAINS; c++) sum[0] += sum[c];
    return total(sum[0]);
}

static float read_through(const char *memory, size_t bytes, int rounds) {
    enum { STEP = 8 * VECTOR_BYTES };
    vector sum[8] = {{0}};
    for (int r = 0; r < rounds; r++) {
        for (size_t i = 0; i + STEP <= bytes; i += STEP)
            for (size_t k = 0; k < 8; k++)
                sum[k] += *(const vector *)(const void *)(memory + i + k * VECTOR_BYTES);
        __asm__ volatile("" : : : "memory"); /* the next round reads again */
    }
    for (int k = 1; k < 8; k++) sum[0] += sum[k];
    return total(sum[0]);
}

static void work(void *user, int32_t thread, int32_t threads, mlcc_team *team) {
    Work *w = user;
    (void)team;
    if (!w->memory) {
        w->sink[thread][0] = multiply(w->rounds);
        return;
    }
    const size_t part = w->bytes / (size_t)threads / 64 * 64;
    w->sink[thread][0] = read_through(w->memory + part * (size_t)thread, part, w->rounds);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The shortest time of a round, of several tries of about 10 ms. */
static double best_round(mlcc_team *team, Work *w) {
    double best = 0, took = 0;
    for (w->rounds = 1; w->rounds < 1 << 28; w->rounds *= 2) {
        const double start = seconds();
        mlcc_team_run(team, work, w);
        took = seconds() - start;
        if (took > 0.01) break;
    }
    for (int i = 0; i < 16; i++) {
        const double start = seconds();
        mlcc_team_run(team, work, w);
        took = (seconds() - start) / w->rounds;
        if (i == 0 || took < best) best = took;
    }
    return best;
}

/* Floating-point operations per second of `threads` threads, and bytes read per second from memory
 * areas of n sizes. MLCC_OK, or an MLCC_E_ code. */
__attribute__((visibility("default"))) int mlcc_peak_v1(int threads, double *flops, int n,
                                                        const size_t *sizes, double *reads) {
    mlcc_team *team = mlcc_team_new(NULL, 0);
    Work *w = calloc(1, sizeof *w);
    int code = team && w ? mlcc_team_resize(team, threads) : MLCC_E_MEMORY;
    if (code == MLCC_OK) *flops = 2.0 * CHAINS * LANES * threads / best_round(team, w);
    for (int i = 0; i < n && code == MLCC_OK; i++) {
        char *memory = aligned_alloc(64, sizes[i] / 64 * 64);
        if (!memory) {
            code = MLCC_E_MEMORY;
            break;
        }
        memset(memory, 0, sizes[i] / 64 * 64);
        w->memory = memory;
        w->bytes = sizes[i];
        reads[i] = (double)sizes[i] / best_round(team, w);
        free(memory);
    }
    mlcc_team_free(team);
    free(w);
    return code;
}
