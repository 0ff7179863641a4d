/* The weights of a library of C in memory of the process.
 *
 * A library's file is mapped, and its pages are the system's to take back when it likes: a model
 * that has not run for a while then reads its weights anew, 4 KiB at a time. A copy stays, and lies
 * in large pages where the system has them.
 */
#ifndef MLCC_RESIDENT_H
#define MLCC_RESIDENT_H

#include "mlcc/model.h"

/* Several models in one library share one copy of this. */
#if defined(__GNUC__)
#define MLCC_RESIDENT_API __attribute__((weak, visibility("hidden")))
#else
#define MLCC_RESIDENT_API
#endif

/* Puts a copy where the weights are; nobody may read them before. `*held` is 0 at first, and then
 * says that it has been done. Few bytes, and more than a quarter of the machine's memory, stay as
 * they are, as all do where the system is not Linux. MLCC_OK, or MLCC_E_MEMORY, now and later: then
 * there are no weights any more. */
MLCC_RESIDENT_API int mlcc_hold_weights(int *held, const void *weights, size_t bytes);

#endif
