/* Teams of threads: they start, change size and end, their barriers hold, and ThreadSanitizer finds
 * nothing: this program compiles itself with it and runs again. Run in the repository. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/team.c"

enum { CELLS = 64, ROUNDS = 300 };

/* Cells that threads write by turns: after each barrier every thread reads what all wrote. */
typedef struct Ring {
    int cell[2][CELLS];
    int wrong[CELLS], barriers, threads;
} Ring;

static void turn_ring(void *user, int32_t thread, int32_t threads, mlcc_team *team) {
    Ring *ring = user;
    if (thread == 0) ring->threads = threads;
    for (int round = 0; round < ring->barriers; round++) {
        const int *from = ring->cell[round % 2];
        int *to = ring->cell[(round + 1) % 2];
        int end = mlcc_part(CELLS, 1, thread + 1, threads);
        for (int i = mlcc_part(CELLS, 1, thread, threads); i < end; i++) {
            for (int k = 0; k < CELLS; k++) ring->wrong[i] += from[k] != round;
            to[i] = round + 1;
        }
        mlcc_barrier(team);
    }
}

/* Brief jobs are done alone now and then; these are not. */
static void run_on_all(mlcc_team *team, mlcc_job *job, void *user) {
    if (team) team->left = LEAST_JOBS;
    mlcc_team_run(team, job, user);
}

static void run_ring(mlcc_team *team, int threads, int barriers) {
    Ring *ring = calloc(1, sizeof *ring);
    assert_non_null(ring);
    ring->barriers = barriers;
    run_on_all(team, turn_ring, ring);
    assert_int_equal(ring->threads, threads);
    for (int i = 0; i < CELLS; i++) {
        assert_int_equal(ring->wrong[i], 0);
        assert_int_equal(ring->cell[barriers % 2][i], barriers);
    }
    free(ring);
}

enum { STRETCHES = 3, WORTH = 19, MOST_TAKERS = 8, MOST_PIECES = 19 };

/* How often each piece of the stretches was done, and by the first thread, which may be slow. */
typedef struct Pieces {
    int done[STRETCHES][MOST_PIECES], by_first;
    bool slow;
} Pieces;

static void take_pieces(void *user, int32_t thread, int32_t threads, mlcc_team *team) {
    Pieces *p = user;
    (void)threads;
    for (int s = 0; s < STRETCHES; s++) {
        mlcc_deal(team, thread, WORTH);
        if (s != 1) mlcc_barrier(team);
        for (int32_t piece = -1; mlcc_take(team, thread, &piece);) {
            p->done[s][piece]++;
            if (thread) continue;
            p->by_first++;
            if (p->slow) usleep(20000);
        }
    }
}

static void check_pieces(mlcc_team *team, int threads, bool slow) {
    Pieces p = {.slow = slow};
    const int pieces = mlcc_pieces(team, threads, WORTH);
    run_on_all(team, take_pieces, &p);
    for (int s = 0; s < STRETCHES; s++)
        for (int i = 0; i < MOST_PIECES; i++) assert_int_equal(p.done[s][i], i < pieces);
    /* it is given some, but others do what it leaves */
    assert_in_range(p.by_first, 0, slow ? STRETCHES * pieces / threads - 1 : STRETCHES * pieces);
}

static void test_pieces(void **unused) {
    (void)unused;
    check_pieces(NULL, 1, false);
    mlcc_team *team = mlcc_team_new(NULL, 0);
    for (int threads = 2; threads <= MOST_TAKERS; threads += 3) {
        assert_int_equal(mlcc_team_resize(team, threads), MLCC_OK);
        for (int i = 0; i < ROUNDS; i++) check_pieces(team, threads, false);
        check_pieces(team, threads, true);
    }
    mlcc_team_free(team);
}

static void test_parts(void **unused) {
    (void)unused;
    for (int32_t threads = 1; threads < 9; threads++)
        for (int64_t extent = 0; extent < 20; extent++) {
            assert_int_equal(mlcc_part(extent, 1, 0, threads), 0);
            assert_int_equal(mlcc_part(extent, 1, threads, threads), extent);
            assert_int_equal(mlcc_part(extent, 4, threads, threads), extent);
            for (int32_t t = 0; t < threads; t++) {
                int32_t first = mlcc_part(extent, 1, t, threads);
                int32_t length = mlcc_part(extent, 1, t + 1, threads) - first;
                assert_in_range(length, extent / threads, (extent + threads - 1) / threads);
                first = mlcc_part(extent, 4, t, threads);
                assert_true(first % 4 == 0 || first == extent);
                length = mlcc_part(extent, 4, t + 1, threads) - first;
                assert_in_range(length, 0, extent / threads + 4);
            }
        }
    assert_int_equal(mlcc_part(INT32_MAX, 1, 1023, 1024), (int64_t)INT32_MAX * 1023 / 1024);
    assert_int_equal(mlcc_part(INT32_MAX, 64, 1024, 1024), INT32_MAX);
}

static void test_one_thread(void **unused) {
    int owner = 0;
    (void)unused;
    run_ring(NULL, 1, 10);
    mlcc_team *team = mlcc_team_new(&owner, 0);
    assert_ptr_equal(mlcc_team_user(team), &owner);
    run_ring(team, 1, 10);
    mlcc_team_free(team);
    mlcc_team_free(NULL);
    assert_null(mlcc_team_user(NULL));
}

static void test_sizes(void **unused) {
    static const int sizes[] = {2, 3, 1, 5, 2, 2, 16, 1, 4};
    (void)unused;
    mlcc_team *team = mlcc_team_new(NULL, 0);
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
        assert_int_equal(mlcc_team_resize(team, sizes[i]), MLCC_OK);
        run_ring(team, sizes[i], ROUNDS);
        run_ring(team, sizes[i], 1);
        run_ring(team, sizes[i], 0);
    }
    assert_int_equal(mlcc_team_resize(team, 0), MLCC_E_ARGUMENT);
    assert_int_equal(mlcc_team_resize(team, -3), MLCC_E_ARGUMENT);
    assert_int_equal(mlcc_team_resize(team, 1 << 20), MLCC_E_ARGUMENT);
    assert_int_equal(mlcc_team_resize(NULL, 2), MLCC_E_ARGUMENT);
    run_ring(team, 4, ROUNDS); /* as before */
    mlcc_team_free(team);
}

/* Each thread has memory of its own, which nobody else writes to. */
static void fill_own(void *user, int32_t thread, int32_t threads, mlcc_team *team) {
    enum { BYTES = 100 };
    (void)user;
    if (thread == 0) return;
    unsigned char *own = mlcc_team_memory(team, thread);
    assert_int_equal((uintptr_t)own % 64, 0);
    for (int i = 0; i < ROUNDS; i++) {
        memset(own, thread + threads + i, BYTES);
        for (int k = 0; k < BYTES; k++)
            if (own[k] != (unsigned char)(thread + threads + i)) fail();
    }
}

static void test_memory(void **unused) {
    (void)unused;
    mlcc_team *team = mlcc_team_new(NULL, 100);
    for (int threads = 1; threads < 6; threads += 2) {
        assert_int_equal(mlcc_team_resize(team, threads), MLCC_OK);
        run_on_all(team, fill_own, NULL);
    }
    mlcc_team_free(team);
    team = mlcc_team_new(NULL, SIZE_MAX / 2);
    assert_int_equal(mlcc_team_resize(team, 4), MLCC_E_MEMORY);
    run_ring(team, 1, ROUNDS); /* a team of one */
    mlcc_team_free(team);
}

/* Teams that never run a job, and many short lives. */
static void test_lives(void **unused) {
    (void)unused;
    for (int i = 0; i < 100; i++) {
        mlcc_team *team = mlcc_team_new(NULL, 0);
        assert_int_equal(mlcc_team_resize(team, 1 + i % 4), MLCC_OK);
        if (i % 3) run_ring(team, 1 + i % 4, 2);
        mlcc_team_free(team);
    }
}

/* Threads that wait long sleep, and wake. */
static void sleep_first(void *user, int32_t thread, int32_t threads, mlcc_team *team) {
    (void)user, (void)threads;
    for (int i = 0; i < 3; i++) {
        if (thread == i) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        mlcc_barrier(team);
    }
}

static void test_sleep(void **unused) {
    (void)unused;
    mlcc_team *team = mlcc_team_new(NULL, 0);
    assert_int_equal(mlcc_team_resize(team, 3), MLCC_OK);
    for (int i = 0; i < 5; i++) {
        run_on_all(team, sleep_first, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        run_ring(team, 3, 10);
    }
    mlcc_team_free(team);
}

static void divide(void *user, int32_t thread, int32_t threads, mlcc_team *team) {
    volatile float one = 1, three = 3;
    (void)threads, (void)team;
    ((float *)user)[thread] = one / three;
}

/* All threads round as the caller does when it runs the job. */
static void test_rounding(void **unused) {
    static const int modes[] = {FE_UPWARD, FE_TONEAREST, FE_DOWNWARD, FE_TONEAREST};
    float result[4];
    (void)unused;
    mlcc_team *team = mlcc_team_new(NULL, 0);
    assert_int_equal(mlcc_team_resize(team, 4), MLCC_OK);
    for (int m = 0; m < 4; m++) {
        fesetround(modes[m]);
        run_on_all(team, divide, result);
        fesetround(FE_TONEAREST);
        for (int i = 1; i < 4; i++) assert_memory_equal(&result[i], &result[0], sizeof *result);
    }
    mlcc_team_free(team);
}

static void *run_own_team(void *argument) {
    mlcc_team *team = mlcc_team_new(NULL, 0);
    (void)argument;
    assert_int_equal(mlcc_team_resize(team, 2), MLCC_OK);
    for (int i = 0; i < 20; i++) run_ring(team, 2, 10);
    mlcc_team_free(team);
    return NULL;
}

static void note_threads(void *user, int32_t thread, int32_t threads, mlcc_team *team) {
    (void)team;
    if (thread == 0) *(int *)user = threads;
}

/* As if `jobs` jobs took so many seconds when they are shared, and done alone; returns how many
 * were alone. */
static int count_jobs(mlcc_team *team, int jobs, double shared, double alone) {
    int n = 0;
    for (int i = 0; i < jobs; i++) {
        n += team->alone;
        count_job(team, team->alone ? alone : shared);
    }
    return n;
}

/* Jobs that take longer shared than alone are soon done alone, but for a few, and the other way
 * round; long ones are shared whatever that costs. */
static void test_brief_jobs(void **unused) {
    enum { JOBS = 20 * MOST_JOBS };
    const double brief = BRIEF_SECONDS / 4;
    int threads = 0;
    (void)unused;
    mlcc_team *team = mlcc_team_new(NULL, 0);
    assert_int_equal(mlcc_team_resize(team, 2), MLCC_OK);
    assert_in_range(count_jobs(team, JOBS, brief, 2 * brief), 1, JOBS / 50);
    mlcc_team_run(team, note_threads, &threads);
    assert_int_equal(threads, 2);
    count_jobs(team, 2 * MOST_JOBS, 2 * brief, brief);
    assert_in_range(count_jobs(team, JOBS, 2 * brief, brief), JOBS - JOBS / 50, JOBS - 1);
    team->left = LEAST_JOBS;
    mlcc_team_run(team, note_threads, &threads);
    assert_int_equal(threads, 1);
    /* jobs that grow */
    assert_in_range(count_jobs(team, JOBS, 2 * BRIEF_SECONDS, 3 * BRIEF_SECONDS), 0, 1);
    count_jobs(team, 2 * MOST_JOBS, 2 * brief, brief);
    assert_true(team->alone || team->trying);
    count_jobs(team, 2 * MOST_JOBS, brief, 2 * brief);
    assert_in_range(count_jobs(team, JOBS, brief, 2 * brief), 1, JOBS / 50);
    assert_int_equal(mlcc_team_resize(team, 3), MLCC_OK);
    assert_int_equal(count_jobs(team, JOBS, 2 * BRIEF_SECONDS, BRIEF_SECONDS), 0);
    mlcc_team_free(team);
}

/* Two threads of a program, each with a team. */
static void test_two_teams(void **unused) {
    pthread_t other;
    (void)unused;
    assert_int_equal(pthread_create(&other, NULL, run_own_team, NULL), 0);
    run_own_team(NULL);
    pthread_join(other, NULL);
}

static void test_sanitized(void **unused) {
    (void)unused;
#ifndef NO_SANITIZED
    char folder[] = "build/team-XXXXXX", command[512];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cc -std=c11 -D_GNU_SOURCE -DNO_SANITIZED -O1 -g -fsanitize=thread -I. -Iinclude "
             "-o %s/tsan tests/unit/test_team.c -lcmocka -lpthread -lm >%s/log 2>&1 && "
             "TSAN_OPTIONS=halt_on_error=1 %s/tsan >%s/log 2>&1 || { cat %s/log; false; }",
             folder, folder, folder, folder, folder);
    int status = system(command);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(status, 0);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),      cmocka_unit_test(test_one_thread),
        cmocka_unit_test(test_brief_jobs), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_lives),
        cmocka_unit_test(test_sleep),      cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_two_teams),  cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_sanitized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
