/* Feeds images.sh's model with images, whole and spoiled, from buffers of just their size, on
 * several threads at once: `images_main FILE...`. What the sanitizers see is what counts; of whole
 * images, that they are decoded each time. */
#include "rgb.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, SPOILED = 60 };

typedef struct Work {
    int n, failed;
    char **path;
    unsigned seed;
} Work;

static unsigned next(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static int decode(const unsigned char *data, size_t length, void *arena) {
    unsigned char *own = malloc(length ? length : 1);
    unsigned char *image = malloc(RGB_IMAGE_SIZE);
    float *numbers = malloc(sizeof(float) * RGB_NUMBERS_SIZE);
    int64_t shape[3], numbers_shape[3];
    const int32_t n[1] = {(int32_t)length};
    memcpy(own, data, length);
    int status = rgb_run(own, n, image, shape, numbers, numbers_shape, arena);
    free(own);
    free(image);
    free(numbers);
    return status;
}

static void *work(void *user) {
    Work *w = user;
    void *arena = aligned_alloc(64, (RGB_ARENA_BYTES + 63) / 64 * 64);
    static const size_t room = RGB_BYTES_SIZE;
    unsigned char *data = malloc(room);
    for (int i = 0; i < w->n; i++) {
        FILE *file = fopen(w->path[i], "rb");
        size_t length = file ? fread(data, 1, room, file) : 0;
        if (!file || length == 0 || decode(data, length, arena) != RGB_OK) {
            fprintf(stderr, "%s is not decoded\n", w->path[i]);
            w->failed++;
        }
        if (file) fclose(file);
        for (int k = 0; k < SPOILED && length; k++) {
            for (unsigned many = 1 + next(&w->seed) % 4; many--;)
                data[next(&w->seed) % length] = (unsigned char)next(&w->seed);
            size_t part = k % 3 ? length : 1 + next(&w->seed) % length;
            int status = decode(data, part, arena);
            w->failed += status != RGB_OK && status != RGB_E_ARGUMENT;
        }
    }
    free(data);
    free(arena);
    return NULL;
}

int main(int argc, char **argv) {
    Work job[THREADS];
    pthread_t thread[THREADS];
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        job[i] = (Work){argc - 1, 0, argv + 1, 7u + (unsigned)i};
        pthread_create(&thread[i], NULL, work, &job[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        failed += job[i].failed;
    }
    printf("%d failed\n", failed);
    return failed != 0;
}
