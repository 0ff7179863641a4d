/* See profile.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "profile.h"

#include <time.h>

void mlcc_profile_step(mlcc_profile *profile, int32_t step) {
    struct timespec t;
    if (!profile->on) return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (profile->step >= 0) profile->nanoseconds[profile->step] += now - profile->since;
    profile->step = step;
    profile->since = now;
}
