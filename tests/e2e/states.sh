# A model with states gives what ONNX Runtime gives that is fed its own outputs, on every target; two
# instances of it do not disturb each other; a reset begins anew.
set -eu
build=$1 work=$2
python=$(scripts/venv onnx)
model=$work/rnn.onnx
"$python" tests/e2e/states.py make "$model" "$work/x.npy"
states="--state h=h_next --state cache=cache_next --state row=row_next --state delay=delay_next"

# check NAME MODEL RUN-OPTIONS...
check() {
    name=$1 run=$2
    shift 2
    "$build/mlcc" run "$run" "$@" --calls 9 --input x="$work/x.npy" --output "$work/$name"
    "$python" tests/e2e/states.py check "$model" "$work/x.npy" "$work/$name"
}
# shellcheck disable=SC2086
{
    check interpreter "$model" $states
    for target in c cuda vulkan; do
        march=
        if [ $target = cuda ]; then march="-march cpu"; fi
        if [ $target = vulkan ] && [ "${SKIP_VULKAN-}" = 1 ]; then continue; fi
        "$build/mlcc" "$model" $states -t $target $march -o "$work/$target.so"
        check $target "$work/$target.so"
        "$build/mlcc" "$model" $states -t $target $march --weights "$work/$target.bin" \
            -o "$work/$target-part.so"
        check $target-part "$work/$target-part.so" --weights "$work/$target.bin"
        "$build/mlcc" verify "$model" $states -t $target $march --calls 6
    done
    "$build/mlcc" "$model" $states -march=native -o "$work/native.so"
    check threads "$work/native.so" --threads 3
    "$build/mlcc" "$model" $states -o "$work/rnn.c"
    "$build/mlcc" "$model" $states --weights "$work/rnn.bin" -o "$work/part.c"
    "$build/mlcc" "$model" $states -o "$work/rnn_o.o"
    "$build/mlcc" inspect "$model" $states | grep -q "^state: delay f32\[3, 24\]"
    "$build/mlcc" bench "$work/native.so" -n 3 | grep -q latency
}

# the C file: two states take turns with one arena, whose contents do not matter
cat >"$work/main.c" <<'C'
#include "rnn.h"
#include <stdio.h>
#include <string.h>
static unsigned char arena[RNN_ARENA_BYTES + 64], state[3][RNN_STATE_BYTES + 64];
static void *aligned(unsigned char *at) {
    return at + (64 - (uintptr_t)at % 64) % 64;
}
static int call(int number, float seed, float *y) {
    float x[RNN_X_SIZE];
    int64_t at[RNN_AT_SIZE];
    for (int i = 0; i < (int)RNN_X_SIZE; i++) x[i] = seed + 0.01f * (float)i;
    memset(arena, 0xa5, sizeof arena);
    return rnn_run(x, y, at, aligned(state[number]), aligned(arena)) != RNN_OK;
}
int main(void) {
    float turns[2][6][RNN_Y_SIZE], alone[RNN_Y_SIZE] = {0};
    memset(state, 0xa5, sizeof state);
    if (rnn_run(alone, alone, NULL, NULL, NULL) != RNN_E_ARGUMENT) return 1;
    if (rnn_reset(NULL) != RNN_E_ARGUMENT) return 2;
    for (int i = 0; i < 3; i++)
        if (rnn_reset(aligned(state[i])) != RNN_OK) return 3;
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < 2; i++)
            if (call(i, (float)(k - 7 * i), turns[i][k])) return 4;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 6; k++)
            if (call(2, (float)(k - 7 * i), alone) || memcmp(alone, turns[i][k], sizeof alone))
                return 5;
        if (rnn_reset(aligned(state[2])) != RNN_OK) return 6;
    }
    return memcmp(turns[0], turns[1], sizeof turns[0]) == 0;
}
C
strict="-std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror"
# shellcheck disable=SC2086
{
    cc $strict -fsanitize=address,undefined "$work/main.c" "$work/rnn.c" -lm -o "$work/main"
    cc $strict -c "$work/part.c" -o "$work/part.o"
}
"$work/main"

# libraries: two that are open at once, on a thread each
cat >"$work/both.c" <<'C'
#include "mlcc/model.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
typedef struct Job {
    const mlcc_model *m;
    void *state;
    float seed, y[40][24];
} Job;
static void *work(void *user) {
    Job *job = user;
    int64_t at;
    void *arena = aligned_alloc(64, job->m->arena_bytes / 64 * 64 + 64);
    for (int k = 0; k < 40; k++) {
        float x[24];
        for (int i = 0; i < 24; i++) x[i] = job->seed * (float)(i - k);
        const void *in[] = {x};
        void *out[] = {job->y[k], &at};
        if (job->m->run(job->state, in, out, arena) != MLCC_OK) return job;
    }
    free(arena);
    return NULL;
}
int main(int argc, char **argv) {
    const mlcc_model *(*get)(void);
    static Job jobs[3];
    pthread_t thread[2];
    void *failed, *library = dlopen(argv[argc - 1], RTLD_NOW);
    if (!library) return 1;
    *(void **)&get = dlsym(library, "mlcc_model_v1");
    if (get()->state_bytes == 0 || get()->n_inputs != 1 || get()->n_outputs != 2) return 2;
    for (int i = 0; i < 3; i++) {
        jobs[i].m = get();
        jobs[i].seed = i == 1 ? -0.02f : 0.01f;
        if (get()->open(&jobs[i].state, NULL) != MLCC_OK) return 3;
    }
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, work, &jobs[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], &failed);
        if (failed) return 4;
    }
    for (int i = 0; i < 2; i++) { /* the third does both, one after the other */
        jobs[2].seed = jobs[i].seed;
        if (work(&jobs[2]) || memcmp(jobs[2].y, jobs[i].y, sizeof jobs[i].y)) return 5;
        if (get()->reset(jobs[2].state) != MLCC_OK) return 6;
    }
    for (int i = 0; i < 3; i++) get()->close(jobs[i].state);
    return memcmp(jobs[0].y, jobs[1].y, sizeof jobs[0].y) == 0;
}
C
cc -std=gnu11 -Wall -Wextra -Iinclude "$work/both.c" -ldl -lpthread -o "$work/both"
for target in c native cuda vulkan; do
    if [ -e "$work/$target.so" ]; then "$work/both" "$work/$target.so"; fi
done
