/* Measuring a library made of a model: runs with random or given inputs, the time of each step. */
#ifndef COMPILER_MEASURE_H
#define COMPILER_MEASURE_H

#include "compiler/driver.h"
#include "runtime/profile.h"

typedef struct Runner {
    Session *s;
    LoadedModel m;
    void **in, **out;
    mlcc_profile *profile; /* NULL: the library does not measure its steps */
    const char *extents;   /* of dimensions that vary; NULL: all are the largest */
    uint64_t *least;       /* the shortest time of each step so far, nanoseconds */
} Runner;

/* Seconds on a clock that only goes forward. */
double seconds_now(void);

/* Loads the library and sets inputs as io_set_inputs does, with --seed. False after diagnostics; to
 * be closed in either case. */
bool runner_open(Runner *r, Session *s, const char *path, const char *weights);
/* Seconds of one run; negative after a diagnostic. */
double runner_run(Runner *r);
/* One run with its steps measured; r->least keeps the shortest time of each. False after a
 * diagnostic. */
bool runner_measure(Runner *r);
void runner_forget(Runner *r); /* what r->least knows */
void runner_close(Runner *r);

#endif
