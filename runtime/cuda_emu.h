/* CUDA on the CPU: what a generated `.cu` text sees when it is compiled as C.
 *
 *     cc -x c -std=gnu11 -O2 -fPIC -shared -I... -include cuda_emu.h model.cu cuda_emu.c -o
 * model.so -lm
 *
 * gives a model library with the same descriptor that needs no GPU. It is meant for tests: kernels
 * run as they are written, with one fiber per CUDA thread, blocks spread over a few OS threads.
 *
 * How a kernel is launched. The generated text has, for each kernel, outside of device compilation,
 *
 *     #ifdef MLCC_EMULATED
 *     static void tramp_k3(void **p) {
 *         k3_conv(*(const float **)p[0], *(float **)p[1], *(int *)p[2]);
 *     }
 *     #endif
 *
 * and names it in `mlcc_gpu_kernel.emulated`. The scheduler calls it once per CUDA thread, with the
 * parameter list that cuLaunchKernel would get, on a stack of 120 KB. A thread runs until it waits
 * at a barrier or a warp function, so that a kernel without any is a plain loop of calls.
 *
 * What differs from a GPU: threads run in a fixed order (a missing barrier gives wrong results that
 * are the same each time); `__shared__` holds what the last block left, and is not limited to 48
 * KB; a barrier that not all threads reach, or shuffle masks that do not agree, end the run with an
 * error.
 *
 * With -DMLCC_EMU_THREADS every CUDA thread is an OS thread and one block runs at a time, so that
 * ThreadSanitizer reports what a missing barrier lets race. Masks must then name the whole warp,
 * and no two models may run at once.
 */
#ifndef MLCC_RUNTIME_CUDA_EMU_H
#define MLCC_RUNTIME_CUDA_EMU_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#error "cuda_emu.h is for host compilers"
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gpu.h"

#define MLCC_EMULATED 1

/* ---- for tests: the emulator without a generated model ---- */

/* As mlcc_gpu_open, for any program and number of OS threads (mlcc_gpu_open: MLCC_EMU_WORKERS, 2 if
 * not defined). Results do not depend on the number, but for the order of float atomics. */
int mlcc_emu_open(void **state, const mlcc_gpu_program *program, const char *weights, int workers);
/* Runs one kernel on `grid` blocks; `params` as for cuLaunchKernel. MLCC_OK or MLCC_E_DEVICE. */
int mlcc_emu_launch(void *state, const mlcc_gpu_kernel *kernel, const uint32_t grid[3],
                    void **params);

/* ---- where a thread is ---- */

typedef struct mlcc_emu_dim {
    unsigned int x, y, z;
} mlcc_emu_dim;

typedef struct mlcc_emu_view {
    mlcc_emu_dim thread, block, block_dim, grid_dim;
} mlcc_emu_view;

/* All stacks of a worker lie in one block of address space, aligned to its size, that begins with a
 * pointer to the worker: a mask finds it, which is cheaper in a shared library than thread-local
 * data. */
#define MLCC_EMU_SLAB ((uintptr_t)1 << 28)

#ifdef MLCC_EMU_THREADS
extern _Thread_local mlcc_emu_view mlcc_emu_thread_view;
static inline const mlcc_emu_view *mlcc_emu_self(void) {
    return &mlcc_emu_thread_view;
}
#define __shared__ static
#else
static inline const mlcc_emu_view *mlcc_emu_self(void) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return *(const mlcc_emu_view *const *)(here & ~(MLCC_EMU_SLAB - 1));
}
#define __shared__ static _Thread_local
#endif

#define threadIdx (mlcc_emu_self()->thread)
#define blockIdx  (mlcc_emu_self()->block)
#define blockDim  (mlcc_emu_self()->block_dim)
#define gridDim   (mlcc_emu_self()->grid_dim)
#define warpSize  32

#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)

/* ---- barriers and warp functions ---- */

void mlcc_emu_syncthreads(void);
#define __syncthreads() mlcc_emu_syncthreads()

/* A warp collective: each lane of `mask` calls with its own `arg` and waits; the last one runs
 * op(args, lanes) once for all. args[i] is lane i's; only those with a bit in `lanes` are there.
 * `op` may be NULL: then it is __syncwarp. */
typedef void (*mlcc_emu_op)(void *const *args, unsigned int lanes);
void mlcc_emu_warp(unsigned int mask, mlcc_emu_op op, void *arg);
/* The lanes of this warp that have not returned. */
unsigned int mlcc_emu_active(void);
/* threadIdx as a number within the block; its last five bits are the lane. */
unsigned int mlcc_emu_linear(void);

#define MLCC_EMU_SECOND(a, b, ...) b
#define __syncwarp(...)                                                                            \
    mlcc_emu_warp(MLCC_EMU_SECOND(0, ##__VA_ARGS__, 0xffffffffu, 0), (mlcc_emu_op)0, (void *)0)
#define __activemask() mlcc_emu_active()

enum { MLCC_EMU_IDX, MLCC_EMU_UP, MLCC_EMU_DOWN, MLCC_EMU_XOR };
/* Replaces the `bytes` (4 or 8) at `value` by those of the lane that `kind` and `by` name. */
void mlcc_emu_shuffle(unsigned int mask, int kind, int by, int width, void *value, size_t bytes);
#define MLCC_EMU_SHUFFLE(kind, mask, value, by, ...)                                               \
    __extension__({                                                                                \
        __typeof__((value) + 0) mlcc_emu_v = (value);                                              \
        mlcc_emu_shuffle((mask), (kind), (int)(by), MLCC_EMU_SECOND(0, ##__VA_ARGS__, 32, 0),      \
                         &mlcc_emu_v, sizeof mlcc_emu_v);                                          \
        mlcc_emu_v;                                                                                \
    })
#define __shfl_sync(mask, value, ...)      MLCC_EMU_SHUFFLE(MLCC_EMU_IDX, mask, value, __VA_ARGS__)
#define __shfl_up_sync(mask, value, ...)   MLCC_EMU_SHUFFLE(MLCC_EMU_UP, mask, value, __VA_ARGS__)
#define __shfl_down_sync(mask, value, ...) MLCC_EMU_SHUFFLE(MLCC_EMU_DOWN, mask, value, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, ...)  MLCC_EMU_SHUFFLE(MLCC_EMU_XOR, mask, value, __VA_ARGS__)

/* The lanes of `mask` whose predicate is not 0. */
unsigned int mlcc_emu_ballot(unsigned int mask, int predicate);
#define __ballot_sync(mask, p) mlcc_emu_ballot((mask), (p) != 0)
#define __any_sync(mask, p)    (mlcc_emu_ballot((mask), (p) != 0) != 0)
#define __all_sync(mask, p)    (mlcc_emu_ballot((mask), (p) == 0) == 0)

/* A 16-byte asynchronous copy of this thread, done when mlcc_emu_copy_wait says that it must be: as
 * late as the rules allow, so that a missing wait shows. `bytes` are read, the rest becomes 0. */
void mlcc_emu_copy16(void *to, const void *from, unsigned int bytes);
void mlcc_emu_copy_commit(void);
void mlcc_emu_copy_wait(unsigned int groups_left);

#define __threadfence()        __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_block()  __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_system() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* ---- atomics: the overloads of CUDA by _Generic ---- */

/* name##_suffix(p, v): stores `next`, computed from `old` and `v`, and returns `old`. */
#define MLCC_EMU_ATOMIC(name, suffix, type, bits, next)                                            \
    static inline type name##_##suffix(type *p, type v) {                                          \
        bits seen, want;                                                                           \
        type old, now;                                                                             \
        __atomic_load((bits *)(void *)p, &seen, __ATOMIC_RELAXED);                                 \
        do {                                                                                       \
            memcpy(&old, &seen, sizeof old);                                                       \
            now = (type)(next);                                                                    \
            memcpy(&want, &now, sizeof want);                                                      \
        } while (!__atomic_compare_exchange((bits *)(void *)p, &seen, &want, 0, __ATOMIC_RELAXED,  \
                                            __ATOMIC_RELAXED));                                    \
        return old;                                                                                \
    }
typedef uint32_t __attribute__((may_alias)) mlcc_emu_b32;
typedef uint64_t __attribute__((may_alias)) mlcc_emu_b64;
#define MLCC_EMU_INTEGER_ATOMIC(name, next)                                                        \
    MLCC_EMU_ATOMIC(name, i32, int, mlcc_emu_b32, next)                                            \
    MLCC_EMU_ATOMIC(name, u32, unsigned int, mlcc_emu_b32, next)                                   \
    MLCC_EMU_ATOMIC(name, i64, long long, mlcc_emu_b64, next)                                      \
    MLCC_EMU_ATOMIC(name, u64, unsigned long long, mlcc_emu_b64, next)

/* Sums of signed numbers wrap, as on the device. */
MLCC_EMU_ATOMIC(mlcc_emu_add, i32, int, mlcc_emu_b32, (unsigned int)old + (unsigned int)v)
MLCC_EMU_ATOMIC(mlcc_emu_add, u32, unsigned int, mlcc_emu_b32, old + v)
MLCC_EMU_ATOMIC(mlcc_emu_add, u64, unsigned long long, mlcc_emu_b64, old + v)
MLCC_EMU_ATOMIC(mlcc_emu_add, f32, float, mlcc_emu_b32, old + v)
MLCC_EMU_ATOMIC(mlcc_emu_add, f64, double, mlcc_emu_b64, old + v)
MLCC_EMU_ATOMIC(mlcc_emu_sub, i32, int, mlcc_emu_b32, (unsigned int)old - (unsigned int)v)
MLCC_EMU_ATOMIC(mlcc_emu_sub, u32, unsigned int, mlcc_emu_b32, old - v)
MLCC_EMU_ATOMIC(mlcc_emu_exch, f32, float, mlcc_emu_b32, ((void)old, v))
MLCC_EMU_INTEGER_ATOMIC(mlcc_emu_exch, ((void)old, v))
MLCC_EMU_INTEGER_ATOMIC(mlcc_emu_min, old < v ? old : v)
MLCC_EMU_INTEGER_ATOMIC(mlcc_emu_max, old > v ? old : v)
MLCC_EMU_INTEGER_ATOMIC(mlcc_emu_and, old &v)
MLCC_EMU_INTEGER_ATOMIC(mlcc_emu_or, old | v)
MLCC_EMU_INTEGER_ATOMIC(mlcc_emu_xor, old ^ v)

#define MLCC_EMU_INTEGERS(name)                                                                    \
    int * : name##_i32,                                                                            \
            unsigned int * : name##_u32,                                                           \
                             long long * : name##_i64,                                             \
                                           unsigned long long * : name##_u64
#define atomicAdd(p, v)                                                                            \
    _Generic((p), int * : mlcc_emu_add_i32, unsigned int * : mlcc_emu_add_u32,                     \
             unsigned long long * : mlcc_emu_add_u64, float * : mlcc_emu_add_f32,                  \
             double * : mlcc_emu_add_f64)((p), (v))
#define atomicSub(p, v)                                                                            \
    _Generic((p), int * : mlcc_emu_sub_i32, unsigned int * : mlcc_emu_sub_u32)((p), (v))
#define atomicExch(p, v)                                                                           \
    _Generic((p), MLCC_EMU_INTEGERS(mlcc_emu_exch), float * : mlcc_emu_exch_f32)((p), (v))
#define atomicMin(p, v) _Generic((p), MLCC_EMU_INTEGERS(mlcc_emu_min))((p), (v))
#define atomicMax(p, v) _Generic((p), MLCC_EMU_INTEGERS(mlcc_emu_max))((p), (v))
#define atomicAnd(p, v) _Generic((p), MLCC_EMU_INTEGERS(mlcc_emu_and))((p), (v))
#define atomicOr(p, v)  _Generic((p), MLCC_EMU_INTEGERS(mlcc_emu_or))((p), (v))
#define atomicXor(p, v) _Generic((p), MLCC_EMU_INTEGERS(mlcc_emu_xor))((p), (v))

#define MLCC_EMU_CAS(suffix, type)                                                                 \
    static inline type mlcc_emu_cas_##suffix(type *p, type compare, type v) {                      \
        __atomic_compare_exchange(p, &compare, &v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);         \
        return compare;                                                                            \
    }
MLCC_EMU_CAS(i32, int)
MLCC_EMU_CAS(u16, unsigned short)
MLCC_EMU_CAS(u32, unsigned int)
MLCC_EMU_CAS(u64, unsigned long long)
#define atomicCAS(p, compare, v)                                                                   \
    _Generic((p), int * : mlcc_emu_cas_i32, unsigned short * : mlcc_emu_cas_u16,                   \
             unsigned int * : mlcc_emu_cas_u32,                                                    \
             unsigned long long * : mlcc_emu_cas_u64)((p), (compare), (v))

/* ---- bits and arithmetic ---- */

#define MLCC_EMU_BITS(name, from, to)                                                              \
    static inline to name(from v) {                                                                \
        to r;                                                                                      \
        memcpy(&r, &v, sizeof r);                                                                  \
        return r;                                                                                  \
    }
MLCC_EMU_BITS(__float_as_int, float, int)
MLCC_EMU_BITS(__float_as_uint, float, unsigned int)
MLCC_EMU_BITS(__int_as_float, int, float)
MLCC_EMU_BITS(__uint_as_float, unsigned int, float)
MLCC_EMU_BITS(__double_as_longlong, double, long long)
MLCC_EMU_BITS(__longlong_as_double, long long, double)

#define __ldg(p) (*(p))
static inline int __popc(unsigned int v) {
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v) {
    return __builtin_popcountll(v);
}
static inline int __clz(int v) {
    return v ? __builtin_clz((unsigned int)v) : 32;
}
static inline int __ffs(int v) {
    return __builtin_ffs(v);
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (signed char)(a >> (8 * i)) * (signed char)(b >> (8 * i));
    return c;
}
static inline float rsqrtf(float v) {
    return 1.0f / sqrtf(v);
}
static inline double rsqrt(double v) {
    return 1.0 / sqrt(v);
}
/* These are never contracted into a multiply-add; `volatile` says so to every compiler. */
static inline float __fadd_rn(float a, float b) {
    volatile float r = a + b;
    return r;
}
static inline float __fmul_rn(float a, float b) {
    volatile float r = a * b;
    return r;
}
static inline float __fsub_rn(float a, float b) {
    volatile float r = a - b;
    return r;
}
static inline double __dadd_rn(double a, double b) {
    volatile double r = a + b;
    return r;
}
static inline double __dmul_rn(double a, double b) {
    volatile double r = a * b;
    return r;
}
#define __fdiv_rn(a, b)    ((float)(a) / (float)(b))
#define __fdividef(a, b)   ((float)(a) / (float)(b))
#define __fsqrt_rn(a)      sqrtf(a)
#define __fmaf_rn(a, b, c) fmaf((a), (b), (c))
/* The C library already declares some of these names, so they are macros here. */
#define __expf(v)    expf(v)
#define __logf(v)    logf(v)
#define __powf(v, e) powf((v), (e))
#define __sinf(v)    sinf(v)
#define __cosf(v)    cosf(v)

/* ---- vector types ---- */

#define MLCC_EMU_VECTORS(type, name)                                                               \
    typedef struct __attribute__((aligned(2 * sizeof(type)))) name##2 {                            \
        type x, y;                                                                                 \
    }                                                                                              \
    name##2;                                                                                       \
    typedef struct __attribute__((aligned(16))) name##4 {                                          \
        type x, y, z, w;                                                                           \
    }                                                                                              \
    name##4;                                                                                       \
    static inline name##2 make_##name##2(type x, type y) {                                         \
        return (name##2){x, y};                                                                    \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w) {                         \
        return (name##4){x, y, z, w};                                                              \
    }
MLCC_EMU_VECTORS(float, float)
MLCC_EMU_VECTORS(int, int)
MLCC_EMU_VECTORS(unsigned int, uint)

#endif
