/* A libcuda without a device: what runtime/cuda.c calls, over malloc, so that its logic can be
 * tested anywhere. Device addresses are host addresses. There is one kernel, k_step of
 * cuda_kernels.cu. test_cuda_launcher.c builds this as libcuda.so.1 and steers it through the fake_
 * functions. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Launch {
    uint64_t pointers[3];
    int scalars[2];
} Launch;

struct Fake {
    int n_devices, majors[4], minors[4];
    int refuse_images;  /* how many cuModuleLoadDataEx refuse before one is taken */
    char fail_call[64]; /* this call fails with fail_code, the nth time */
    int fail_nth, fail_code;
    int calls;  /* of the functions below, all together */
    int live;   /* allocations, modules, streams, graphs, contexts not given back */
    int pushed; /* depth of the context stack */
    int capturing;
    int device;            /* whose context was retained */
    int launches, replays; /* kernels launched one by one; graphs launched */
    char image[32];        /* first bytes of the module */
    Launch graph[256];
    int n_graph;
};

#define EXPORT __attribute__((visibility("default")))

EXPORT struct Fake fake;

EXPORT void fake_reset(void) {
    memset(&fake, 0, sizeof fake);
    fake.n_devices = 1;
    fake.majors[0] = 9;
}

/* Begins every call: the failure asked for, or 0. */
static int enter(const char *name) {
    fake.calls++;
    if (strcmp(name, fake.fail_call) != 0 || --fake.fail_nth > 0) return 0;
    fake.fail_call[0] = 0;
    return fake.fail_code;
}
#define ENTER                                                                                      \
    do {                                                                                           \
        const int enter_code = enter(__func__);                                                    \
        if (enter_code) return enter_code;                                                         \
    } while (0)

EXPORT int cuInit(unsigned int flags) {
    ENTER;
    return flags ? 1 : 0;
}
EXPORT int cuDeviceGetCount(int *n) {
    ENTER;
    *n = fake.n_devices;
    return 0;
}
EXPORT int cuDeviceGet(int *device, int index) {
    ENTER;
    *device = 40 + index;
    return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER;
    if (attribute != 75 && attribute != 76) return 1;
    *value = attribute == 75 ? fake.majors[device - 40] : fake.minors[device - 40];
    return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER;
    fake.live++;
    fake.device = device - 40;
    *context = &fake;
    return 0;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER;
    fake.live--;
    return device - 40 == fake.device ? 0 : 101;
}
EXPORT int cuCtxPushCurrent_v2(void *context) {
    ENTER;
    fake.pushed++;
    return context == &fake ? 0 : 201;
}
EXPORT int cuCtxPopCurrent_v2(void **context) {
    ENTER;
    if (fake.pushed-- < 1) return 201;
    *context = &fake;
    return 0;
}
EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned int n, int *options,
                              void **values) {
    ENTER;
    if (fake.pushed != 1) return 201;
    if (fake.refuse_images > 0) {
        fake.refuse_images--;
        for (unsigned int i = 0; i < n; i++)
            if (options[i] == 5) strcpy(values[i], "ptxas fatal: too new\nand more");
        return 209;
    }
    strncpy(fake.image, image, sizeof fake.image - 1);
    fake.live++;
    *module = malloc(1);
    return 0;
}
EXPORT int cuModuleUnload(void *module) {
    ENTER;
    fake.live--;
    free(module);
    return 0;
}
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER;
    (void)module;
    if (strcmp(name, "k_step") != 0) return 500;
    *function = &fake.graph;
    return 0;
}
EXPORT int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    ENTER;
    if (fake.pushed != 1 || bytes == 0 || bytes % 256) return 1;
    fake.live++;
    *at = (uint64_t)(uintptr_t)malloc(bytes);
    return 0;
}
EXPORT int cuMemFree_v2(uint64_t at) {
    ENTER;
    fake.live--;
    free((void *)(uintptr_t)at);
    return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    ENTER;
    if (!stream || fake.capturing) return 1;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    ENTER;
    if (!stream || fake.capturing) return 1;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    ENTER;
    if (!stream || fake.capturing) return 1;
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return 0;
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, void *stream) {
    ENTER;
    if (!stream || fake.capturing) return 1;
    memset((void *)(uintptr_t)to, byte, bytes);
    return 0;
}
EXPORT int cuStreamCreate(void **stream, unsigned int flags) {
    ENTER;
    (void)flags;
    fake.live++;
    *stream = malloc(1);
    return 0;
}
EXPORT int cuStreamDestroy_v2(void *stream) {
    ENTER;
    fake.live--;
    free(stream);
    return 0;
}
EXPORT int cuStreamSynchronize(void *stream) {
    ENTER;
    return stream ? 0 : 1;
}

static void k_step(const Launch *launch) {
    const float *x = (const float *)(uintptr_t)launch->pointers[0];
    const float *w = (const float *)(uintptr_t)launch->pointers[1];
    float *y = (float *)(uintptr_t)launch->pointers[2];
    for (int i = 0; i < 64; i++)
        y[i] = x[i] * w[i] + (float)(10 * launch->scalars[1] + launch->scalars[0]);
}

EXPORT int cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
                          unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                          void *stream, void **params, void **extra) {
    ENTER;
    Launch launch;
    if (function != &fake.graph || gx != 1 || gy != 1 || gz != 1 || bx != 64 || by != 1 ||
        bz != 1 || shared || !stream || extra)
        return 1;
    for (int i = 0; i < 3; i++) memcpy(&launch.pointers[i], params[i], sizeof(uint64_t));
    for (int i = 0; i < 2; i++) memcpy(&launch.scalars[i], params[3 + i], sizeof(int));
    if (fake.capturing) {
        fake.graph[fake.n_graph++] = launch;
        return 0;
    }
    fake.launches++;
    k_step(&launch);
    return 0;
}
EXPORT int cuStreamBeginCapture_v2(void *stream, int mode) {
    ENTER;
    (void)stream;
    if (mode != 1) return 1;
    fake.capturing = 1;
    fake.n_graph = 0;
    return 0;
}
EXPORT int cuStreamEndCapture(void *stream, void **graph) {
    (void)stream;
    fake.capturing = 0;
    *graph = NULL;
    ENTER;
    fake.live++;
    *graph = malloc(1);
    return 0;
}
EXPORT int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    ENTER;
    if (!graph || flags) return 1;
    fake.live++;
    *exec = malloc(1);
    return 0;
}
EXPORT int cuGraphLaunch(void *exec, void *stream) {
    ENTER;
    if (!exec || !stream) return 1;
    fake.replays++;
    for (int i = 0; i < fake.n_graph; i++) k_step(&fake.graph[i]);
    return 0;
}
EXPORT int cuGraphDestroy(void *graph) {
    ENTER;
    fake.live--;
    free(graph);
    return 0;
}
EXPORT int cuGraphExecDestroy(void *exec) {
    ENTER;
    fake.live--;
    free(exec);
    return 0;
}
EXPORT int cuGetErrorName(int code, const char **name) {
    *name = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
            : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                          : NULL;
    return *name ? 0 : 1;
}
