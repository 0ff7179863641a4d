# The weights of a library lie in memory of the process once it has been opened, by however many
# threads at a time; they are what they were, and are gone with the library.
set -eu
build=$1 work=$2
[ "$(uname -s)" = Linux ] || exit 0
python=$(scripts/venv onnx)
"$python" tests/e2e/resident.py "$work/model.onnx"
cat >"$work/main.c" <<'C'
#include "mlcc/model.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define THREADS 4
static const mlcc_model *(*get)(void);
static float x[3 * 1024], y[THREADS][3 * 600];
static void *work(void *to) {
    void *state, *arena = aligned_alloc(64, get()->arena_bytes / 64 * 64 + 64);
    if (get()->open(&state, NULL) != MLCC_OK) return to;
    if (get()->run(state, (const void *[]){x}, (void *[]){to}, arena) != MLCC_OK) return to;
    get()->close(state);
    free(arena);
    return NULL;
}
/* Bytes of the file that are mapped. */
static size_t mapped(const char *file) {
    char line[4096];
    size_t sum = 0;
    unsigned long long first, end;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, file) && sscanf(line, "%llx-%llx", &first, &end) == 2) sum += end - first;
    if (maps) fclose(maps);
    return sum;
}
int main(int argc, char **argv) {
    for (int i = 0; i < 3 * 1024; i++) x[i] = (float)(i % 17 - 8);
    for (int again = 0; again < 2; again++) {
        void *library = dlopen(argv[argc - 1], RTLD_NOW), *failed;
        pthread_t thread[THREADS];
        if (!library) return 1;
        *(void **)&get = dlsym(library, "mlcc_model_v1");
        const size_t before = mapped(argv[argc - 1]), held = get()->weight_bytes - 2 * 4096;
        if (before < get()->weight_bytes) return 2;
        for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, work, y[i]);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], &failed);
            if (failed || memcmp(y[i], y[0], sizeof y[0])) return 3;
        }
        if (mapped(argv[argc - 1]) > before - held) return 4;
        dlclose(library);
        if (mapped(argv[argc - 1])) return 5;
    }
    return 0;
}
C
cc -std=gnu11 -Wall -Wextra -Iinclude "$work/main.c" -ldl -lpthread -o "$work/main"
for march in generic native x86-64-v2,x86-64-v3; do
    case $(uname -m) in x86_64) ;; *) [ $march = generic ] || continue ;; esac
    "$build/mlcc" "$work/model.onnx" -march=$march -o "$work/model.so"
    "$work/main" "$work/model.so"
    case $march in *,*) ;; *) "$build/mlcc" verify "$work/model.onnx" -t c -march=$march ;; esac
done
