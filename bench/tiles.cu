/* A product as mlcc's CUDA kernels compute it, for bench/tiles.py: C[piece] = A * B of a piece of the
 * depth, tile by tile, both operands in shared memory, and in registers ahead of that. A is stored by
 * columns (A_BY_COLUMNS) or by rows, B by rows; all is a multiple of the tile.
 *
 * ROWS, COLUMNS, DEPTH: of a block; THREAD_ROWS, THREAD_COLUMNS: of a thread. WARPS: of bf16, by
 * tensor cores; A by rows, B by columns. */
#include "runtime/cuda_intrin.h"

#if WARPS

#define WARP_ROWS    (THREAD_ROWS * 8)
#define WARP_COLUMNS (THREAD_COLUMNS * 4)
#define ACROSS       (COLUMNS / WARP_COLUMNS)
#define THREADS      (32 * ACROSS * (ROWS / WARP_ROWS))
#define WIDE         8
#define LINE         (DEPTH + WIDE)
#define LOADS(LINES) ((LINES * DEPTH / WIDE + THREADS - 1) / THREADS)

template <int LINES>
__device__ void load(uint4 *next, const unsigned short *from, int depth, int thread) {
#pragma unroll
    for (int i = 0; i < LOADS(LINES); i++) {
        const int e = (i * THREADS + thread) * WIDE;
        const unsigned short *at = from + (size_t)(e / DEPTH) * depth + e % DEPTH;
        if (e < LINES * DEPTH) next[i] = *(const uint4 *)at;
    }
}

template <int LINES>
__device__ void fill(unsigned short *tile, const uint4 *next, int thread) {
#pragma unroll
    for (int i = 0; i < LOADS(LINES); i++) {
        const int e = (i * THREADS + thread) * WIDE;
        if (e < LINES * DEPTH) *(uint4 *)(tile + e / DEPTH * LINE + e % DEPTH) = next[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    product(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b,
            float *__restrict__ c, int rows, int columns, int depth) {
    __shared__ __align__(16) unsigned short tile_a[ROWS * LINE], tile_b[COLUMNS * LINE];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
    const int piece = depth / gridDim.z, begin = blockIdx.z * piece;
    const int place = lane % 8 * LINE + lane / 8 * WIDE;
    const unsigned short *own_a = tile_a + warp / ACROSS * WARP_ROWS * LINE + place;
    const unsigned short *own_b = tile_b + warp % ACROSS * WARP_COLUMNS * LINE + place;
    float sum[THREAD_ROWS / 2][THREAD_COLUMNS / 2][4] = {};
    uint4 next_a[LOADS(ROWS)], next_b[LOADS(COLUMNS)];
    a += (size_t)row * depth, b += (size_t)column * depth;
    load<ROWS>(next_a, a + begin, depth, thread);
    load<COLUMNS>(next_b, b + begin, depth, thread);
    for (int at = begin; at < begin + piece; at += DEPTH) {
        fill<ROWS>(tile_a, next_a, thread);
        fill<COLUMNS>(tile_b, next_b, thread);
        __syncthreads();
        if (at + DEPTH < begin + piece) {
            load<ROWS>(next_a, a + at + DEPTH, depth, thread);
            load<COLUMNS>(next_b, b + at + DEPTH, depth, thread);
        }
        unsigned int of_a[8], of_b[THREAD_COLUMNS / 2][4];
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS / 2; j++)
            mlcc_ldmatrix_x4(of_b[j], own_b + j * 8 * LINE);
#pragma unroll
        for (int i = 0; i < THREAD_ROWS / 2; i++) {
            mlcc_ldmatrix_x4(of_a, own_a + i * 16 * LINE);
            mlcc_ldmatrix_x4(of_a + 4, own_a + (i * 16 + 8) * LINE);
#pragma unroll
            for (int step = 0; step < 2; step++)
#pragma unroll
                for (int j = 0; j < THREAD_COLUMNS / 2; j++)
                    mlcc_warp_product_bf16_bf16(sum[i][j], of_a + 2 * step, of_b[j] + 2 * step);
        }
        __syncthreads();
    }
    const int first_row = row + warp / ACROSS * WARP_ROWS + lane / 4;
    const int first_column = column + warp % ACROSS * WARP_COLUMNS + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS / 2; i++)
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS / 2; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)(c + ((size_t)blockIdx.z * rows + first_row + i * 16 + half * 8) * columns +
                            first_column + j * 8) =
                    make_float2(sum[i][j][half * 2], sum[i][j][half * 2 + 1]);
}

#else

#define ACROSS  (COLUMNS / THREAD_COLUMNS)
#define THREADS (ACROSS * ROWS / THREAD_ROWS)
#define WIDE    4
#define GROUP_ROWS    (THREAD_ROWS < WIDE ? THREAD_ROWS : WIDE)
#define GROUP_COLUMNS (THREAD_COLUMNS < WIDE ? THREAD_COLUMNS : WIDE)
#define LINE_A  (ROWS + WIDE)
#define LINE_B  (COLUMNS + WIDE)
#define LOADS_A (ROWS * DEPTH / THREADS / WIDE)
#define LOADS_B (COLUMNS * DEPTH / THREADS / WIDE)

extern "C" __global__ void __launch_bounds__(THREADS)
    product(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int rows,
            int columns, int depth) {
    __shared__ __align__(16) float tile_a[DEPTH * LINE_A], tile_b[DEPTH * LINE_B];
    const int x = threadIdx.x, y = threadIdx.y, thread = y * ACROSS + x;
    const int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
    const int piece = depth / gridDim.z, begin = blockIdx.z * piece;
    float sum[THREAD_ROWS][THREAD_COLUMNS] = {};
    float4 next_a[LOADS_A], next_b[LOADS_B];
    auto load = [&](int at) {
#pragma unroll
        for (int i = 0; i < LOADS_A; i++) {
            const int e = (i * THREADS + thread) * WIDE;
#if A_BY_COLUMNS
            const size_t from = (size_t)(at + e / ROWS) * rows + row + e % ROWS;
#else
            const size_t from = (size_t)(row + e / DEPTH) * depth + at + e % DEPTH;
#endif
            next_a[i] = *(const float4 *)(a + from);
        }
#pragma unroll
        for (int i = 0; i < LOADS_B; i++) {
            const int e = (i * THREADS + thread) * WIDE;
            next_b[i] = *(const float4 *)(b + (size_t)(at + e / COLUMNS) * columns + column + e % COLUMNS);
        }
    };
    load(begin);
    for (int at = begin; at < begin + piece; at += DEPTH) {
#pragma unroll
        for (int i = 0; i < LOADS_A; i++) {
            const int e = (i * THREADS + thread) * WIDE;
#if A_BY_COLUMNS
            *(float4 *)(tile_a + e / ROWS * LINE_A + e % ROWS) = next_a[i];
#else
            const float of[WIDE] = {next_a[i].x, next_a[i].y, next_a[i].z, next_a[i].w};
#pragma unroll
            for (int j = 0; j < WIDE; j++) tile_a[(e % DEPTH + j) * LINE_A + e / DEPTH] = of[j];
#endif
        }
#pragma unroll
        for (int i = 0; i < LOADS_B; i++) {
            const int e = (i * THREADS + thread) * WIDE;
            *(float4 *)(tile_b + e / COLUMNS * LINE_B + e % COLUMNS) = next_b[i];
        }
        __syncthreads();
        if (at + DEPTH < begin + piece) load(at + DEPTH);
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float of_a[THREAD_ROWS], of_b[THREAD_COLUMNS];
#pragma unroll
            for (int i = 0; i < THREAD_ROWS; i++) of_a[i] = tile_a[k * LINE_A + y * THREAD_ROWS + i];
#pragma unroll
            for (int j = 0; j < THREAD_COLUMNS; j++)
                of_b[j] = tile_b[k * LINE_B + j / GROUP_COLUMNS * ACROSS * GROUP_COLUMNS +
                                 x * GROUP_COLUMNS + j % GROUP_COLUMNS];
#pragma unroll
            for (int i = 0; i < THREAD_ROWS; i++)
#pragma unroll
                for (int j = 0; j < THREAD_COLUMNS; j++) sum[i][j] += of_a[i] * of_b[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++)
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; j++)
            c[((size_t)blockIdx.z * rows + row + y * THREAD_ROWS + i) * columns + column +
              j / GROUP_COLUMNS * ACROSS * GROUP_COLUMNS + x * GROUP_COLUMNS + j % GROUP_COLUMNS] =
                sum[i][j];
}

#endif

/* What the pieces come to. */
extern "C" __global__ void total(const float *__restrict__ pieces, float *__restrict__ c, int n,
                                 int count) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    float sum = 0;
#pragma unroll 4
    for (int k = 0; k < count; k++) sum += pieces[(size_t)k * n + i];
    c[i] = sum;
}
