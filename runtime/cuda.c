/* The CUDA launcher: runs `mlcc_program` through the driver API.
 *
 * libcuda is opened at run time and its prototypes are declared here, so that a model library is
 * compiled without a CUDA header and loads on machines without a GPU. All memory is taken in open;
 * the launches are recorded there once as a CUDA graph, loops unrolled, so that run is three steps:
 * copy the inputs in, launch the graph, copy the outputs out. Where no graph can be made, run
 * launches the kernels one by one.
 */
#include "gpu_common.h"

#include <dlfcn.h>

/* A graph with more launches than this takes longer to make than it saves. */
enum { MAX_GRAPH_LAUNCHES = 20000 };

/* The driver's types: handles are pointers, an address on the device is 64 bits wide. */
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1
};

/* The calls used: CALL(name here, symbol in libcuda, parameters). The ones of OPTIONAL may be
 * missing from an old driver: then there are no graphs. */
#define CALLS(CALL)                                                                                \
    CALL(cuInit, cuInit, (unsigned int))                                                           \
    CALL(cuDeviceGetCount, cuDeviceGetCount, (int *))                                              \
    CALL(cuDeviceGet, cuDeviceGet, (CUdevice *, int))                                              \
    CALL(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *, int, CUdevice))                       \
    CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))              \
    CALL(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))                      \
    CALL(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext))                                       \
    CALL(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *))                                       \
    CALL(cuModuleLoadDataEx, cuModuleLoadDataEx,                                                   \
         (CUmodule *, const void *, unsigned int, int *, void **))                                 \
    CALL(cuModuleUnload, cuModuleUnload, (CUmodule))                                               \
    CALL(cuModuleGetFunction, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))         \
    CALL(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                       \
    CALL(cuMemFree, cuMemFree_v2, (CUdeviceptr))                                                   \
    CALL(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))   \
    CALL(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))         \
    CALL(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))    \
    CALL(cuMemsetD8Async, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))         \
    CALL(cuStreamCreate, cuStreamCreate, (CUstream *, unsigned int))                               \
    CALL(cuStreamDestroy, cuStreamDestroy_v2, (CUstream))                                          \
    CALL(cuStreamSynchronize, cuStreamSynchronize, (CUstream))                                     \
    CALL(cuLaunchKernel, cuLaunchKernel,                                                           \
         (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,        \
          unsigned int, unsigned int, CUstream, void **, void **))                                 \
    CALL(cuGetErrorName, cuGetErrorName, (CUresult, const char **))
#define OPTIONAL_CALLS(CALL)                                                                       \
    CALL(cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream, int))                           \
    CALL(cuStreamEndCapture, cuStreamEndCapture, (CUstream, CUgraph *))                            \
    CALL(cuGraphInstantiate, cuGraphInstantiateWithFlags,                                          \
         (CUgraphExec *, CUgraph, unsigned long long))                                             \
    CALL(cuGraphLaunch, cuGraphLaunch, (CUgraphExec, CUstream))                                    \
    CALL(cuGraphDestroy, cuGraphDestroy, (CUgraph))                                                \
    CALL(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec))

typedef struct Driver {
#define CALL(name, symbol, parameters) CUresult(*name) parameters;
    CALLS(CALL)
    OPTIONAL_CALLS(CALL)
#undef CALL
    int has_graphs;
} Driver;

/* What one model holds on a device. Everything is 0 until it is there, so that close can give back
 * whatever open came to. */
typedef struct State {
    const mlcc_gpu_program *program;
    Driver driver;
    mlcc_gpu_message message;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUmodule module;
    CUfunction *functions;            /* of each kernel */
    CUdeviceptr *inputs, *outputs;    /* a buffer of each */
    CUdeviceptr arena, weights, kept; /* kept: the states, between runs */
    CUdeviceptr *pointers;            /* of one launch, and where cuLaunchKernel finds them */
    void **params;
    CUgraphExec graph; /* NULL: launch one by one */
    uint32_t n_launches;
} State;

/* Notes a failed call and returns its MLCC_E_ code; `code` unless memory was short. */
static int failed(State *state, int code, const char *call, CUresult result) {
    const char *name = NULL;
    state->driver.cuGetErrorName(result, &name);
    return mlcc_gpu_fail(&state->message, result == CUDA_ERROR_OUT_OF_MEMORY ? MLCC_E_MEMORY : code,
                         "%s: %s", call, name ? name : "unknown error");
}

/* TRY(code, cuXxx, (arguments)): calls the driver; on failure the function returns. */
#define TRY(code, call, arguments)                                                                 \
    do {                                                                                           \
        const CUresult try_result = state->driver.call arguments;                                  \
        if (try_result != CUDA_SUCCESS) return failed(state, code, #call, try_result);             \
    } while (0)

static void context_leave(const State *state) {
    CUcontext old;
    state->driver.cuCtxPopCurrent(&old);
}

static int open_driver(State *state) {
    Driver *driver = &state->driver;
    const char *missing = NULL;
    /* Never closed: the driver keeps threads that do not survive being unloaded. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return mlcc_gpu_fail(&state->message, MLCC_E_DRIVER,
                             "libcuda.so.1 not found: install the NVIDIA driver, or compile with "
                             "-march=cpu");
#define CALL(name, symbol, parameters)                                                             \
    *(void **)&driver->name = dlsym(library, #symbol);                                             \
    if (!driver->name) missing = #symbol;
    OPTIONAL_CALLS(CALL)
    driver->has_graphs = missing == NULL;
    missing = NULL;
    CALLS(CALL)
#undef CALL
    if (missing)
        return mlcc_gpu_fail(&state->message, MLCC_E_DRIVER,
                             "libcuda.so.1 has no %s: install a newer NVIDIA driver", missing);
    TRY(MLCC_E_DRIVER, cuInit, (0));
    return MLCC_OK;
}

/* How well an image fits a device of compute capability `device` (90 for 9.0): 0 not at all;
 * machine code before PTX, a later architecture before an earlier one, a special one before a plain
 * one. */
static uint32_t image_rank(const mlcc_gpu_image *image, uint32_t device) {
    const int fits = image->suffix == 'a' || (image->suffix && image->is_ptx)
                         ? image->arch == device
                     : image->is_ptx ? image->arch <= device
                                     : image->arch / 10 == device / 10 && image->arch <= device;
    if (!fits) return 0;
    return (image->is_ptx ? 0u : 100000u) + image->arch * 10u + (image->suffix ? 2u : 1u);
}

/* The best image that ranks below `below`; NULL if there is none. */
static const mlcc_gpu_image *next_image(const mlcc_gpu_program *program, uint32_t device,
                                        uint32_t below) {
    const mlcc_gpu_image *best = NULL;
    for (uint32_t i = 0; i < program->n_images; i++) {
        const uint32_t rank = image_rank(&program->images[i], device);
        if (rank == 0 || rank >= below) continue;
        if (!best || rank > image_rank(best, device)) best = &program->images[i];
    }
    return best;
}

/* Retains the context of the first device that an image fits, and makes it current. */
static int open_device(State *state, uint32_t *capability) {
    int n = 0;
    TRY(MLCC_E_DRIVER, cuDeviceGetCount, (&n));
    *capability = 0;
    for (int i = 0; i < n; i++) {
        CUdevice device;
        int major = 0, minor = 0;
        TRY(MLCC_E_DRIVER, cuDeviceGet, (&device, i));
        TRY(MLCC_E_DRIVER, cuDeviceGetAttribute,
            (&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
        TRY(MLCC_E_DRIVER, cuDeviceGetAttribute,
            (&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
        *capability = (uint32_t)(10 * major + minor);
        if (!next_image(state->program, *capability, UINT32_MAX)) continue;
        CUcontext context = NULL;
        TRY(MLCC_E_DRIVER, cuDevicePrimaryCtxRetain, (&context, device));
        state->device = device;
        state->context = context;
        TRY(MLCC_E_DRIVER, cuCtxPushCurrent, (context));
        return MLCC_OK;
    }
    if (n == 0) return mlcc_gpu_fail(&state->message, MLCC_E_DRIVER, "no CUDA device");
    return mlcc_gpu_fail(&state->message, MLCC_E_DRIVER,
                         "model '%s' holds no code for this device (compute capability %u.%u)",
                         state->program->model->name, *capability / 10, *capability % 10);
}

/* Loads the best image; if the driver refuses it, the next best. */
static int open_module(State *state, uint32_t capability) {
    const mlcc_gpu_program *program = state->program;
    CUresult result = CUDA_SUCCESS;
    char log[256] = "";
    const mlcc_gpu_image *image = next_image(program, capability, UINT32_MAX);
    for (; image; image = next_image(program, capability, image_rank(image, capability))) {
        int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
        result = state->driver.cuModuleLoadDataEx(&state->module, image->bytes, 2, options, values);
        if (result == CUDA_SUCCESS) break;
        state->module = NULL;
    }
    if (!state->module) {
        const char *name = NULL;
        state->driver.cuGetErrorName(result, &name);
        log[strcspn(log, "\n")] = 0;
        return mlcc_gpu_fail(
            &state->message, result == CUDA_ERROR_OUT_OF_MEMORY ? MLCC_E_MEMORY : MLCC_E_DRIVER,
            "cuModuleLoadDataEx: %s%s%s", name ? name : "unknown error", *log ? ": " : "", log);
    }
    for (uint32_t i = 0; i < program->n_kernels; i++)
        TRY(MLCC_E_DRIVER, cuModuleGetFunction,
            (&state->functions[i], state->module, program->kernels[i].name));
    return MLCC_OK;
}

/* Device memory, rounded up, so that vector loads of a last row stay inside. Never empty. */
static int device_alloc(State *state, CUdeviceptr *at, uint64_t bytes) {
    CUdeviceptr found = 0;
    if (bytes > SIZE_MAX - MLCC_GPU_ALIGN)
        return mlcc_gpu_fail(&state->message, MLCC_E_MEMORY, "a tensor of %llu bytes is too large",
                             (unsigned long long)bytes);
    TRY(MLCC_E_DRIVER, cuMemAlloc, (&found, (size_t)mlcc_gpu_round(bytes ? bytes : 1)));
    *at = found;
    return MLCC_OK;
}

/* By the model's own stream and with a wait: a plain copy may return while the last part is still
 * under way, and a kernel on another stream would not wait for it. */
static int upload(State *state, CUdeviceptr at, const void *bytes, size_t n) {
    TRY(MLCC_E_DRIVER, cuMemcpyHtoDAsync, (at, bytes, n, state->stream));
    TRY(MLCC_E_DRIVER, cuStreamSynchronize, (state->stream));
    return MLCC_OK;
}

static int open_weights(State *state, const char *path) {
    mlcc_gpu_weights weights;
    const uint64_t bytes = state->program->model->weight_bytes;
    int code = mlcc_gpu_weights_load(state->program, path, &weights, &state->message);
    if (code != MLCC_OK || !weights.bytes) return code;
    code = device_alloc(state, &state->weights, bytes);
    if (code == MLCC_OK) code = upload(state, state->weights, weights.bytes, (size_t)bytes);
    mlcc_gpu_weights_free(&weights);
    return code;
}

/* The host memory of a state: tables whose sizes the program gives. */
static int open_tables(State *state) {
    const mlcc_gpu_program *program = state->program;
    const mlcc_model *model = program->model;
    size_t n_args = 0;
    for (uint32_t i = 0; i < program->n_kernels; i++)
        if (program->kernels[i].n_args > n_args) n_args = program->kernels[i].n_args;
    state->functions = calloc((size_t)program->n_kernels + 1, sizeof *state->functions);
    state->inputs = calloc((size_t)model->n_inputs + 1, sizeof *state->inputs);
    state->outputs = calloc((size_t)model->n_outputs + 1, sizeof *state->outputs);
    state->pointers = calloc(n_args + 1, sizeof *state->pointers);
    state->params = calloc(n_args + MLCC_GPU_MAX_SCALARS, sizeof *state->params);
    if (state->functions && state->inputs && state->outputs && state->pointers && state->params)
        return MLCC_OK;
    return mlcc_gpu_fail(&state->message, MLCC_E_MEMORY, "no host memory");
}

static int open_buffers(State *state) {
    const mlcc_model *model = state->program->model;
    int code = MLCC_OK;
    for (uint32_t i = 0; i < model->n_inputs && code == MLCC_OK; i++)
        code = device_alloc(state, &state->inputs[i], model->inputs[i].bytes);
    for (uint32_t i = 0; i < model->n_outputs && code == MLCC_OK; i++)
        code = device_alloc(state, &state->outputs[i], model->outputs[i].bytes);
    if (code == MLCC_OK) code = device_alloc(state, &state->arena, state->program->arena_bytes);
    if (code == MLCC_OK && model->state_bytes)
        code = device_alloc(state, &state->kept, model->state_bytes);
    return code;
}

static CUdeviceptr place(const State *state, const mlcc_gpu_arg *arg) {
    switch (arg->space) {
    case MLCC_SPACE_INPUT:
        return state->inputs[arg->index] + arg->offset;
    case MLCC_SPACE_OUTPUT:
        return state->outputs[arg->index] + arg->offset;
    case MLCC_SPACE_ARENA:
        return state->arena + arg->offset;
    case MLCC_SPACE_STATE:
        return state->kept + arg->offset;
    default:
        return state->weights + arg->offset;
    }
}

static int count_step(void *opaque, const mlcc_gpu_step *step, const int32_t *scalars) {
    State *state = (State *)opaque;
    (void)step;
    (void)scalars;
    state->n_launches++;
    return MLCC_OK;
}

static int launch_step(void *opaque, const mlcc_gpu_step *step, const int32_t *scalars) {
    State *state = (State *)opaque;
    const mlcc_gpu_kernel *kernel = &state->program->kernels[step->kernel];
    int32_t values[MLCC_GPU_MAX_SCALARS];
    memcpy(values, scalars, sizeof values);
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        state->pointers[i] = place(state, &state->program->args[step->first_arg + i]);
        state->params[i] = &state->pointers[i];
    }
    for (uint32_t i = 0; i < kernel->n_scalars; i++) state->params[kernel->n_args + i] = &values[i];
    const CUresult result =
        state->driver.cuLaunchKernel(state->functions[step->kernel], step->grid[0], step->grid[1],
                                     step->grid[2], kernel->block[0], kernel->block[1],
                                     kernel->block[2], 0, state->stream, state->params, NULL);
    if (result == CUDA_SUCCESS) return MLCC_OK;
    char call[96];
    snprintf(call, sizeof call, "cuLaunchKernel of %s", kernel->name);
    return failed(state, MLCC_E_DEVICE, call, result);
}

/* Records all launches as one graph. (That a kernel is set up while the one before it runs, by
 * programmatic dependent launches, made models 2 to 32 % slower on an H100.) Any failure but that
 * of the steps themselves only means that run does without. */
static void open_graph(State *state) {
    const Driver *driver = &state->driver;
    CUgraph graph = NULL;
    if (!driver->has_graphs || state->n_launches < 2 || state->n_launches > MAX_GRAPH_LAUNCHES)
        return;
    if (driver->cuStreamBeginCapture(state->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) !=
        CUDA_SUCCESS)
        return;
    const int code = mlcc_gpu_walk(state->program, launch_step, state, &state->message);
    const CUresult ended = driver->cuStreamEndCapture(state->stream, &graph);
    if (code == MLCC_OK && ended == CUDA_SUCCESS &&
        driver->cuGraphInstantiate(&state->graph, graph, 0) != CUDA_SUCCESS)
        state->graph = NULL;
    if (ended == CUDA_SUCCESS && graph) driver->cuGraphDestroy(graph);
    state->message.text[0] = 0;
}

/* Gives the states their first values. */
static int reset_states(State *state) {
    const mlcc_gpu_program *program = state->program;
    const uint64_t bytes = program->model->state_bytes;
    if (!bytes) return MLCC_OK;
    TRY(MLCC_E_DEVICE, cuMemsetD8Async, (state->kept, 0, (size_t)bytes, state->stream));
    for (uint32_t i = 0; i < program->n_initial; i++) {
        const mlcc_gpu_copy *copy = &program->initial[i];
        TRY(MLCC_E_DEVICE, cuMemcpyDtoDAsync,
            (state->kept + copy->offset, state->weights + copy->initial, (size_t)copy->bytes,
             state->stream));
    }
    TRY(MLCC_E_DEVICE, cuStreamSynchronize, (state->stream));
    return MLCC_OK;
}

/* The part of open that runs with the context current. */
static int open_model(State *state, const char *weights, uint32_t capability) {
    TRY(MLCC_E_DRIVER, cuStreamCreate, (&state->stream, CU_STREAM_NON_BLOCKING));
    int code = open_module(state, capability);
    if (code == MLCC_OK) code = open_buffers(state);
    if (code == MLCC_OK) code = open_weights(state, weights);
    if (code == MLCC_OK) code = reset_states(state);
    if (code == MLCC_OK) code = mlcc_gpu_walk(state->program, count_step, state, &state->message);
    if (code == MLCC_OK) open_graph(state);
    return code;
}

int mlcc_gpu_open(void **opaque, const char *weights) {
    State *state = calloc(1, sizeof *state);
    uint32_t capability = 0;
    *opaque = state;
    if (!state) return MLCC_E_MEMORY;
    state->program = &mlcc_program;
    int code = open_tables(state);
    if (code == MLCC_OK) code = open_driver(state);
    if (code == MLCC_OK) code = open_device(state, &capability);
    if (code != MLCC_OK) return code;
    code = open_model(state, weights, capability);
    context_leave(state);
    return code;
}

/* The part of run that runs with the context current. */
static int run_model(State *state, const void *const *inputs, void *const *outputs) {
    const mlcc_model *model = state->program->model;
    for (uint32_t i = 0; i < model->n_inputs; i++)
        if (model->inputs[i].bytes)
            TRY(MLCC_E_DEVICE, cuMemcpyHtoDAsync,
                (state->inputs[i], inputs[i], mlcc_gpu_input_bytes(model, inputs, i),
                 state->stream));
    if (state->graph) {
        TRY(MLCC_E_DEVICE, cuGraphLaunch, (state->graph, state->stream));
    } else {
        const int code = mlcc_gpu_walk(state->program, launch_step, state, &state->message);
        if (code != MLCC_OK) return code;
    }
    for (uint32_t i = 0; i < model->n_outputs; i++)
        if (model->outputs[i].bytes)
            TRY(MLCC_E_DEVICE, cuMemcpyDtoHAsync,
                (outputs[i], state->outputs[i], (size_t)model->outputs[i].bytes, state->stream));
    TRY(MLCC_E_DEVICE, cuStreamSynchronize, (state->stream));
    return mlcc_gpu_status(model, outputs, &state->message);
}

int mlcc_gpu_run(void *opaque, const void *const *inputs, void *const *outputs, void *arena) {
    State *state = (State *)opaque;
    const mlcc_model *model = state->program->model;
    (void)arena;
    int code = mlcc_gpu_check_run(model, inputs, outputs, &state->message);
    if (code != MLCC_OK) return code;
    TRY(MLCC_E_DEVICE, cuCtxPushCurrent, (state->context));
    code = run_model(state, inputs, outputs);
    /* The copies that were begun read and write the caller's memory: none may be left. */
    if (code != MLCC_OK) state->driver.cuStreamSynchronize(state->stream);
    context_leave(state);
    return code;
}

int mlcc_gpu_reset(void *opaque) {
    State *state = (State *)opaque;
    TRY(MLCC_E_DEVICE, cuCtxPushCurrent, (state->context));
    const int code = reset_states(state);
    context_leave(state);
    return code;
}

static void close_device(State *state) {
    const Driver *driver = &state->driver;
    const mlcc_model *model = state->program->model;
    if (driver->cuCtxPushCurrent(state->context) == CUDA_SUCCESS) {
        if (state->graph) driver->cuGraphExecDestroy(state->graph);
        for (uint32_t i = 0; i < model->n_inputs; i++)
            if (state->inputs[i]) driver->cuMemFree(state->inputs[i]);
        for (uint32_t i = 0; i < model->n_outputs; i++)
            if (state->outputs[i]) driver->cuMemFree(state->outputs[i]);
        if (state->arena) driver->cuMemFree(state->arena);
        if (state->kept) driver->cuMemFree(state->kept);
        if (state->weights) driver->cuMemFree(state->weights);
        if (state->module) driver->cuModuleUnload(state->module);
        if (state->stream) driver->cuStreamDestroy(state->stream);
        context_leave(state);
    }
    driver->cuDevicePrimaryCtxRelease(state->device);
}

void mlcc_gpu_close(void *opaque) {
    State *state = (State *)opaque;
    if (!state) return;
    if (state->context) close_device(state);
    free(state->functions);
    free(state->inputs);
    free(state->outputs);
    free(state->pointers);
    free(state->params);
    free(state);
}

const char *mlcc_gpu_error(void *state) {
    return state ? ((State *)state)->message.text : "no host memory";
}
