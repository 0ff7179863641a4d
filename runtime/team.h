/* The threads of a model compiled to C: a team that walks through the model's steps together.
 *
 * Every thread of the team runs the same job, and takes its part of each loop that may be shared,
 * or, of long ones, pieces; barriers stand where a step needs what others made. The team is made
 * once and waits between runs: for a while it spins, then it sleeps. Nothing is allocated while a
 * job runs.
 *
 * Where there are no POSIX threads (firmware), all of it is one thread and needs no memory.
 */
#ifndef MLCC_TEAM_H
#define MLCC_TEAM_H

#include "mlcc/model.h"

#if defined(__unix__) || defined(__APPLE__)
#define MLCC_HAS_THREADS 1
#else
#define MLCC_HAS_THREADS 0
#endif

typedef struct mlcc_team mlcc_team;

/* What each thread runs: thread number `thread` of `threads`; `team` is NULL where it is the only
 * one. */
typedef void mlcc_job(void *user, int32_t thread, int32_t threads, mlcc_team *team);

/* The first iteration of part `thread` of a loop, a multiple of `unit`; the part ends where the
 * next begins. */
static inline int32_t mlcc_part(int64_t extent, int32_t unit, int32_t thread, int32_t threads) {
    int64_t first = (extent + unit - 1) / unit * thread / threads * unit;
    return (int32_t)(first < extent ? first : extent);
}

/* A stretch of steps that is worth cutting into `worth` pieces: how many each thread has at first,
 * and how many there are. */
static inline int32_t mlcc_each(int32_t threads, int32_t worth) {
    return worth > threads ? worth / threads : 1;
}

static inline int32_t mlcc_pieces(const mlcc_team *team, int32_t threads, int32_t worth) {
    return team ? threads * mlcc_each(threads, worth) : 1;
}

#if MLCC_HAS_THREADS

/* Several models in one program share one copy of these. */
#if defined(__GNUC__)
#define MLCC_TEAM_API __attribute__((weak, visibility("hidden")))
#else
#define MLCC_TEAM_API
#endif

/* A team of the calling thread alone; `user` is the owner's, see mlcc_team_user. Every thread but
 * the first will have `bytes` of memory of its own. NULL: no memory. */
MLCC_TEAM_API mlcc_team *mlcc_team_new(void *user, size_t bytes);
MLCC_TEAM_API void *mlcc_team_user(const mlcc_team *team);
/* The memory of thread number `thread` > 0, 64-byte aligned. */
MLCC_TEAM_API unsigned char *mlcc_team_memory(const mlcc_team *team, int32_t thread);
/* Makes it a team of `threads` threads, the calling one among them. MLCC_OK, MLCC_E_ARGUMENT if
 * that is no number of threads, or MLCC_E_MEMORY if the system has no more: then the team is of
 * one. */
MLCC_TEAM_API int mlcc_team_resize(mlcc_team *team, int threads);
/* Runs `job` on all threads, the calling one is number 0; returns when all are done. A NULL team is
 * one thread; so is one whose jobs, of less than 2 ms, turn out to take longer shared: now and then
 * a few are done the other way. A team runs one job at a time; a child made by fork has no team. */
MLCC_TEAM_API void mlcc_team_run(mlcc_team *team, mlcc_job *job, void *user);
/* Inside of a job: waits for all threads. What they stored before it, all see after it. */
MLCC_TEAM_API void mlcc_team_wait(mlcc_team *team);
/* Inside of a job: thread number `thread` is about to take pieces of a stretch that is worth so
 * many, and gets its own. All threads do this before every stretch; a wait between it and the
 * stretch lets others know. */
MLCC_TEAM_API void mlcc_team_deal(mlcc_team *team, int32_t thread, int32_t worth);
/* The next piece for the thread: its own ones in order, then what others have left, for one may be
 * slower, or the system may have taken its processor away. False: there are none. */
MLCC_TEAM_API int mlcc_team_take(mlcc_team *team, int32_t thread, int32_t *piece);
/* Ends the threads. The owner's `user` stays as it is. */
MLCC_TEAM_API void mlcc_team_free(mlcc_team *team);

#else

static inline mlcc_team *mlcc_team_new(void *user, size_t bytes) {
    (void)bytes;
    return (mlcc_team *)user;
}

static inline unsigned char *mlcc_team_memory(const mlcc_team *team, int32_t thread) {
    (void)team;
    (void)thread;
    return NULL;
}

static inline void *mlcc_team_user(const mlcc_team *team) {
    return (void *)(uintptr_t)team;
}

static inline int mlcc_team_resize(mlcc_team *team, int threads) {
    (void)team;
    return threads == 1 ? MLCC_OK : threads < 1 ? MLCC_E_ARGUMENT : MLCC_E_MEMORY;
}

static inline void mlcc_team_run(mlcc_team *team, mlcc_job *job, void *user) {
    (void)team;
    job(user, 0, 1, NULL);
}

static inline void mlcc_team_wait(mlcc_team *team) {
    (void)team;
}

static inline void mlcc_team_deal(mlcc_team *team, int32_t thread, int32_t worth) {
    (void)team;
    (void)thread;
    (void)worth;
}

static inline int mlcc_team_take(mlcc_team *team, int32_t thread, int32_t *piece) {
    (void)team;
    (void)thread;
    (void)piece;
    return 0;
}

static inline void mlcc_team_free(mlcc_team *team) {
    (void)team;
}

#endif

static inline void mlcc_barrier(mlcc_team *team) {
    if (team) mlcc_team_wait(team);
}

static inline void mlcc_deal(mlcc_team *team, int32_t thread, int32_t worth) {
    if (team) mlcc_team_deal(team, thread, worth);
}

/* *piece is -1 at first. */
static inline int mlcc_take(mlcc_team *team, int32_t thread, int32_t *piece) {
    return team ? mlcc_team_take(team, thread, piece) : ++*piece == 0;
}

#endif
