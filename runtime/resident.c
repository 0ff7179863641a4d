/* See resident.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* mremap */
#endif
#include "resident.h"

#if defined(__linux__)

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEAST_HELD ((size_t)1 << 20)
#define LARGE_PAGE ((size_t)2 << 20)

/* Moves `copy` to `to`, where the file is, or leaves that as it is. */
static int take_place(void *copy, void *to, size_t bytes) {
    unsigned char resident;
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to) return MLCC_OK;
    if (mincore(to, 1, &resident) == 0) { /* the file still is there */
        munmap(copy, bytes);
        return MLCC_OK;
    }
    if (mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        to)
        return MLCC_E_MEMORY;
    memcpy(to, copy, bytes);
    munmap(copy, bytes);
    return mprotect(to, bytes, PROT_READ) == 0 ? MLCC_OK : MLCC_E_MEMORY;
}

/* Whole pages; a large page of the copy is one of the place. */
static int hold(const void *weights, size_t bytes) {
    long page = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES);
    if (page <= 0 || pages <= 0 || bytes < LEAST_HELD) return MLCC_OK;
    uintptr_t mask = (uintptr_t)page - 1;
    uintptr_t first = ((uintptr_t)weights + mask) & ~mask;
    size_t size = (((uintptr_t)weights + bytes) & ~mask) - first;
    if (size / (size_t)page > (size_t)pages / 4) return MLCC_OK;
    char *room =
        mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return MLCC_OK;
    size_t skip = (first - (uintptr_t)room) & (LARGE_PAGE - 1);
    char *copy = room + skip;
    madvise(copy, size, MADV_HUGEPAGE);
    memcpy(copy, (const void *)first, size);
    mprotect(copy, size, PROT_READ);
    int code = take_place(copy, (void *)first, size);
    if (skip) munmap(room, skip);
    munmap(copy + size, LARGE_PAGE - skip);
    return code;
}

int mlcc_hold_weights(int *held, const void *weights, size_t bytes) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int code;
    pthread_mutex_lock(&lock);
    if (!*held) *held = 1 + hold(weights, bytes);
    code = *held - 1;
    pthread_mutex_unlock(&lock);
    return code;
}

#else

int mlcc_hold_weights(int *held, const void *weights, size_t bytes) {
    (void)held, (void)weights, (void)bytes;
    return MLCC_OK;
}

#endif
