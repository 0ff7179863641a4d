/* Runs the tiled product and the softmax of cuda_kernels.cu once. test_cuda_emu.c builds this with
 * -DMLCC_EMU_THREADS and ThreadSanitizer, with and without one of the barriers. */
#include "cuda_emu.h"

#include <stdio.h>
#include <stdlib.h>

static const mlcc_gpu_kernel *find(const char *name) {
    for (uint32_t i = 0; i < mlcc_program.n_kernels; i++)
        if (!strcmp(mlcc_program.kernels[i].name, name)) return &mlcc_program.kernels[i];
    abort();
}

int main(int argc, char **argv) {
    enum { N = 48 };
    static float a[N * N], b[N * N], c[N * N];
    float *pa = a, *pb = b, *pc = c;
    int n = N;
    void *state;
    for (int i = 0; i < N * N; i++) a[i] = b[i] = (float)(i % 7);
    if (argc < 2 || mlcc_emu_open(&state, &mlcc_program, argv[1], 1) != MLCC_OK) return 2;
    void *gemm[] = {&pa, &pb, &pc, &n, &n, &n}, *softmax[] = {&pc, &pa, &n};
    if (mlcc_emu_launch(state, find("k_sgemm"), (const uint32_t[3]){1, 1, 1}, gemm)) return 2;
    if (mlcc_emu_launch(state, find("k_softmax"), (const uint32_t[3]){4, 1, 1}, softmax)) return 2;
    mlcc_gpu_close(state);
    printf("done %f\n", (double)a[0]);
    return 0;
}
