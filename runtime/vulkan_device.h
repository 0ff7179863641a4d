/* From the Vulkan loader to a device that fits a program, with a queue.
 *
 * What a kernel needs of the device is not part of the program's table: its SPIR-V says it in its
 * OpCapability instructions, and these, with the sizes in the table, are held against what the
 * driver says of itself. The device is created with the features that are needed and no others.
 *
 * Header-only C99, part of the launcher vulkan.c. Every failure leaves one line in gpu->message
 * that names the Vulkan call and its result, or the device and what it lacks.
 */
#ifndef MLCC_RUNTIME_VULKAN_DEVICE_H
#define MLCC_RUNTIME_VULKAN_DEVICE_H

#include "gpu_common.h"
#include "vulkan_api.h"

#include <dlfcn.h>

enum {
    MAX_BUFFERS = 32, /* of a kernel: bits of write_mask */
    VERSION_1_1 = 1 << 22 | 1 << 12,
    VERSION_1_2 = 1 << 22 | 2 << 12
};

/* What can be asked of a device, filled by the driver; structs of Vulkan 1.2 or of extensions stay
 * zero where it has neither. */
typedef struct Facts {
    VkPhysicalDeviceProperties2 properties;
    VkPhysicalDeviceSubgroupProperties subgroups;
    VkPhysicalDeviceFloatControlsProperties floats;
    VkPhysicalDeviceFeatures2 features;
    VkPhysicalDevice16BitStorageFeatures storage16;
    VkPhysicalDevice8BitStorageFeatures storage8;
    VkPhysicalDeviceShaderFloat16Int8Features small;
    uint32_t family; /* the queue family that computes */
    int has[3];      /* by optional_extensions */
} Facts;

/* Parts of Vulkan 1.2 that Vulkan 1.1 has as extensions. */
static const char *const optional_extensions[] = {
    "VK_KHR_8bit_storage", "VK_KHR_shader_float16_int8", "VK_KHR_shader_float_controls"};

/* A device and the way to it. */
typedef struct Gpu {
    mlcc_gpu_message message;
    const mlcc_gpu_program *program;
    void *library;
    mlcc_vk vk;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    Facts facts;
    VkPhysicalDeviceMemoryProperties memory;
} Gpu;

static const char *result_name(VkResult result) {
    switch ((int)result) {
#define NAME(name)                                                                                 \
    case name:                                                                                     \
        return #name
        NAME(VK_SUCCESS);
        NAME(VK_NOT_READY);
        NAME(VK_TIMEOUT);
        NAME(VK_INCOMPLETE);
        NAME(VK_ERROR_OUT_OF_HOST_MEMORY);
        NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY);
        NAME(VK_ERROR_INITIALIZATION_FAILED);
        NAME(VK_ERROR_DEVICE_LOST);
        NAME(VK_ERROR_MEMORY_MAP_FAILED);
        NAME(VK_ERROR_LAYER_NOT_PRESENT);
        NAME(VK_ERROR_EXTENSION_NOT_PRESENT);
        NAME(VK_ERROR_FEATURE_NOT_PRESENT);
        NAME(VK_ERROR_INCOMPATIBLE_DRIVER);
        NAME(VK_ERROR_TOO_MANY_OBJECTS);
        NAME(VK_ERROR_FRAGMENTED_POOL);
        NAME(VK_ERROR_UNKNOWN);
        NAME(VK_ERROR_OUT_OF_POOL_MEMORY);
        NAME(VK_ERROR_FRAGMENTATION);
        NAME(VK_ERROR_INVALID_SHADER_NV);
#undef NAME
    default:
        return "an unknown VkResult";
    }
}

/* The MLCC_E_ code and the line for a Vulkan call that failed. `call` may be the call's whole text,
 * of which the name is taken; `about` is what it was about, "" if nothing. */
static int call_failed(Gpu *gpu, const char *call, VkResult result, const char *about) {
    int code = MLCC_E_DRIVER;
    if (result == VK_ERROR_DEVICE_LOST || result == VK_ERROR_UNKNOWN) code = MLCC_E_DEVICE;
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
        result == VK_ERROR_OUT_OF_POOL_MEMORY || result == VK_ERROR_FRAGMENTED_POOL ||
        result == VK_ERROR_FRAGMENTATION || result == VK_ERROR_TOO_MANY_OBJECTS ||
        result == VK_ERROR_MEMORY_MAP_FAILED)
        code = MLCC_E_MEMORY;
    return mlcc_gpu_fail(&gpu->message, code, "%.*s: %s%s%s", (int)strcspn(call, "("), call,
                         result_name(result), *about ? ", " : "", about);
}

/* Ends the calling function, which has a `gpu`, if a Vulkan call or another function fails. */
#define VK(call)                                                                                   \
    do {                                                                                           \
        VkResult result_ = gpu->vk.call;                                                           \
        if (result_ != VK_SUCCESS) return call_failed(gpu, #call, result_, "");                    \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int code_ = call;                                                                          \
        if (code_ != MLCC_OK) return code_;                                                        \
    } while (0)

static int out_of_memory(Gpu *gpu) {
    return mlcc_gpu_fail(&gpu->message, MLCC_E_MEMORY, "out of host memory");
}

/* ---- What a device must offer ---- */

/* One thing that SPIR-V can ask for: where in Facts the driver says yes, and in which bits. */
typedef struct Capability {
    uint32_t number; /* operand of OpCapability */
    uint32_t mask;
    size_t offset;
    const char *name; /* as Vulkan calls it */
} Capability;

#define FACT(number, mask, where, name)                                                            \
    { number, mask, offsetof(Facts, where.name), #name }
#define SUBGROUP(number, bit)                                                                      \
    { number, bit, offsetof(Facts, subgroups.supportedOperations), #bit }

static const Capability capabilities[] = {
    FACT(10, 1, features.features, shaderFloat64),
    FACT(11, 1, features.features, shaderInt64),
    FACT(22, 1, features.features, shaderInt16),
    FACT(9, 1, small, shaderFloat16),
    FACT(39, 1, small, shaderInt8),
    FACT(4433, 1, storage16, storageBuffer16BitAccess),
    FACT(4434, 1, storage16, uniformAndStorageBuffer16BitAccess),
    FACT(4448, 1, storage8, storageBuffer8BitAccess),
    FACT(4449, 1, storage8, uniformAndStorageBuffer8BitAccess),
    FACT(4464, 1, floats, shaderDenormPreserveFloat32),
    FACT(4466, 1, floats, shaderSignedZeroInfNanPreserveFloat32),
    FACT(4467, 1, floats, shaderRoundingModeRTEFloat32),
    SUBGROUP(61, VK_SUBGROUP_FEATURE_BASIC_BIT),
    SUBGROUP(62, VK_SUBGROUP_FEATURE_VOTE_BIT),
    SUBGROUP(63, VK_SUBGROUP_FEATURE_ARITHMETIC_BIT),
    SUBGROUP(64, VK_SUBGROUP_FEATURE_BALLOT_BIT),
    SUBGROUP(65, VK_SUBGROUP_FEATURE_SHUFFLE_BIT),
    SUBGROUP(66, VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT),
    SUBGROUP(67, VK_SUBGROUP_FEATURE_CLUSTERED_BIT),
    SUBGROUP(68, VK_SUBGROUP_FEATURE_QUAD_BIT),
};

enum { CAPABILITY_MATRIX = 0, CAPABILITY_SHADER = 1 }; /* what every device has */

/* The capabilities of a module, one a call: they come first, after five words of header, as
 * instructions of two words. Returns 0 after the last; *at begins at 0. */
static int next_capability(const mlcc_gpu_kernel *kernel, uint32_t *at, uint32_t *number) {
    if (*at == 0) *at = 5;
    if ((*at + 2) * sizeof(uint32_t) > kernel->spirv_bytes || kernel->spirv[*at] != (2u << 16 | 17))
        return 0;
    *number = kernel->spirv[*at + 1];
    *at += 2;
    return 1;
}

static const Capability *capability_find(uint32_t number) {
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++)
        if (capabilities[i].number == number) return &capabilities[i];
    return NULL;
}

static uint32_t *fact(Facts *facts, const Capability *capability) {
    return (uint32_t *)(void *)((char *)facts + capability->offset);
}

/* Gives each struct its type and chains the ones that the device knows (facts->has). */
static void facts_chain(Facts *facts) {
    facts->properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    facts->subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
    facts->floats.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES;
    facts->features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    facts->storage16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
    facts->storage8.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES;
    facts->small.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
    facts->properties.pNext = &facts->subgroups;
    facts->subgroups.pNext = facts->has[2] ? &facts->floats : NULL;
    facts->features.pNext = &facts->storage16;
    facts->storage8.pNext = facts->has[1] ? &facts->small : NULL;
    facts->storage16.pNext = facts->has[0] ? (void *)&facts->storage8 : facts->storage8.pNext;
}

/* Sets facts->has for a device of Vulkan 1.1, from its list of extensions. */
static int find_extensions(Gpu *gpu, VkPhysicalDevice device, Facts *facts) {
    uint32_t n = 0;
    VK(vkEnumerateDeviceExtensionProperties(device, NULL, &n, NULL));
    VkExtensionProperties *list = calloc((size_t)n + 1, sizeof *list);
    if (!list) return out_of_memory(gpu);
    VkResult result = gpu->vk.vkEnumerateDeviceExtensionProperties(device, NULL, &n, list);
    for (uint32_t i = 0; i < n; i++)
        for (int e = 0; e < 3; e++)
            if (strcmp(list[i].extensionName, optional_extensions[e]) == 0) facts->has[e] = 1;
    free(list);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return call_failed(gpu, "vkEnumerateDeviceExtensionProperties", result, "");
    return MLCC_OK;
}

/* Asks a device what it offers. Fails if it is of Vulkan 1.0 or does not compute. */
static int ask_device(Gpu *gpu, VkPhysicalDevice device, Facts *facts) {
    const mlcc_vk *vk = &gpu->vk;
    memset(facts, 0, sizeof *facts);
    VkPhysicalDeviceProperties *properties = &facts->properties.properties;
    vk->vkGetPhysicalDeviceProperties(device, properties);
    if (properties->apiVersion < VERSION_1_1)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER, "%s: its driver has Vulkan 1.0 only",
                             properties->deviceName);
    VkQueueFamilyProperties families[32];
    uint32_t n = 32;
    vk->vkGetPhysicalDeviceQueueFamilyProperties(device, &n, families);
    while (facts->family < n && !(families[facts->family].queueFlags & VK_QUEUE_COMPUTE_BIT))
        facts->family++;
    if (facts->family == n)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER, "%s has no compute queue",
                             properties->deviceName);
    if (properties->apiVersion >= VERSION_1_2)
        facts->has[0] = facts->has[1] = facts->has[2] = 1;
    else
        TRY(find_extensions(gpu, device, facts));
    facts_chain(facts);
    vk->vkGetPhysicalDeviceProperties2(device, &facts->properties);
    vk->vkGetPhysicalDeviceFeatures2(device, &facts->features);
    return MLCC_OK;
}

/* Holds one kernel against a device: size of its groups, number of buffers, capabilities. */
static int check_kernel(Gpu *gpu, Facts *facts, const mlcc_gpu_kernel *kernel) {
    const VkPhysicalDeviceLimits *limits = &facts->properties.properties.limits;
    const char *device = facts->properties.properties.deviceName;
    uint64_t threads = 1;
    for (int d = 0; d < 3; d++) {
        threads *= kernel->block[d];
        if (kernel->block[d] > limits->maxComputeWorkGroupSize[d]) threads = UINT32_MAX;
    }
    if (threads > limits->maxComputeWorkGroupInvocations)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                             "%s cannot run kernel '%s': groups of %ux%ux%u threads, at most %u",
                             device, kernel->name, kernel->block[0], kernel->block[1],
                             kernel->block[2], limits->maxComputeWorkGroupInvocations);
    uint32_t buffers = limits->maxPerStageDescriptorStorageBuffers;
    if (buffers > MAX_BUFFERS) buffers = MAX_BUFFERS;
    if (kernel->n_args > buffers)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                             "%s cannot run kernel '%s': %u buffers, at most %u", device,
                             kernel->name, kernel->n_args, buffers);
    for (uint32_t at = 0, number; next_capability(kernel, &at, &number);) {
        if (number == CAPABILITY_MATRIX || number == CAPABILITY_SHADER) continue;
        const Capability *capability = capability_find(number);
        if (!capability)
            return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                                 "kernel '%s' needs SPIR-V capability %u, unknown to this launcher",
                                 kernel->name, number);
        if (!(*fact(facts, capability) & capability->mask))
            return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                                 "%s lacks %s, which kernel '%s' needs", device, capability->name,
                                 kernel->name);
    }
    return MLCC_OK;
}

/* Holds a launch against a device: number of groups, sizes of buffers. */
static int check_launch(Gpu *gpu, const Facts *facts, const mlcc_gpu_step *step) {
    const mlcc_gpu_program *program = gpu->program;
    const VkPhysicalDeviceLimits *limits = &facts->properties.properties.limits;
    const char *device = facts->properties.properties.deviceName;
    const mlcc_gpu_kernel *kernel = &program->kernels[step->kernel];
    for (int d = 0; d < 3; d++)
        if (step->grid[d] > limits->maxComputeWorkGroupCount[d])
            return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                                 "%s cannot run kernel '%s': a grid of %ux%ux%u, at most %u in "
                                 "dimension %d",
                                 device, kernel->name, step->grid[0], step->grid[1], step->grid[2],
                                 limits->maxComputeWorkGroupCount[d], d);
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        const mlcc_gpu_arg *arg = &program->args[step->first_arg + i];
        if (arg->bytes > limits->maxStorageBufferRange)
            return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                                 "%s cannot run kernel '%s': a tensor of %llu bytes, at most %u",
                                 device, kernel->name, (unsigned long long)arg->bytes,
                                 limits->maxStorageBufferRange);
    }
    return MLCC_OK;
}

static int check_device(Gpu *gpu, VkPhysicalDevice device, Facts *facts) {
    const mlcc_gpu_program *program = gpu->program;
    TRY(ask_device(gpu, device, facts));
    for (uint32_t i = 0; i < program->n_kernels; i++)
        TRY(check_kernel(gpu, facts, &program->kernels[i]));
    for (uint32_t i = 0; i < program->n_steps; i++)
        if (program->steps[i].kind == MLCC_STEP_LAUNCH)
            TRY(check_launch(gpu, facts, &program->steps[i]));
    return MLCC_OK;
}

/* ---- From the library to a queue ---- */

/* Opens the loader and fills the part of `vk` that needs no instance. */
static int open_loader(Gpu *gpu, const char *name) {
    gpu->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!gpu->library)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                             "%s not found: install libvulkan1 and a driver", name);
    /* ISO C has no cast from an object pointer to a function pointer; POSIX makes them the same. */
    void *symbol = dlsym(gpu->library, "vkGetInstanceProcAddr");
    memcpy(&gpu->vk.vkGetInstanceProcAddr, &symbol, sizeof symbol);
    const char *missing = symbol ? NULL : "vkGetInstanceProcAddr";
    if (symbol) {
#define LOOK_UP(function, result, parameters)                                                      \
    gpu->vk.function = (result(*) parameters)gpu->vk.vkGetInstanceProcAddr(NULL, #function);       \
    if (!gpu->vk.function) missing = #function;
        MLCC_VK_GLOBAL(LOOK_UP)
#undef LOOK_UP
    }
    if (missing)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER, "%s has no %s: Vulkan 1.1 is needed",
                             name, missing);
    return MLCC_OK;
}

static int create_instance(Gpu *gpu) {
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                     .pEngineName = "mlcc",
                                     .apiVersion = VERSION_1_2};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &application};
    VkResult result = gpu->vk.vkCreateInstance(&info, NULL, &gpu->instance);
    if (result != VK_SUCCESS)
        return call_failed(gpu, "vkCreateInstance", result,
                           result == VK_ERROR_INCOMPATIBLE_DRIVER ? "no driver: install one" : "");
    const char *missing = NULL;
#define LOOK_UP(function, result, parameters)                                                      \
    gpu->vk.function =                                                                             \
        (result(*) parameters)gpu->vk.vkGetInstanceProcAddr(gpu->instance, #function);             \
    if (!gpu->vk.function) missing = #function;
    MLCC_VK_INSTANCE(LOOK_UP)
#undef LOOK_UP
    if (missing)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER, "the Vulkan loader has no %s", missing);
    return MLCC_OK;
}

/* Picks the first device that fits, by type and then in the loader's order. If none fits, the
 * message is about the one that would have been preferred. */
static int pick_device(Gpu *gpu) {
    static const uint32_t preference[] = {
        VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
        VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU, VK_PHYSICAL_DEVICE_TYPE_CPU,
        VK_PHYSICAL_DEVICE_TYPE_OTHER};
    VkPhysicalDevice devices[32];
    uint32_t n = 32;
    VkResult result = gpu->vk.vkEnumeratePhysicalDevices(gpu->instance, &n, devices);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return call_failed(gpu, "vkEnumeratePhysicalDevices", result, "");
    int code = MLCC_OK;
    mlcc_gpu_message first = {{0}};
    for (size_t p = 0; p < sizeof preference / sizeof *preference; p++) {
        for (uint32_t i = 0; i < n; i++) {
            VkPhysicalDeviceProperties properties;
            gpu->vk.vkGetPhysicalDeviceProperties(devices[i], &properties);
            if (properties.deviceType != preference[p]) continue;
            int misfit = check_device(gpu, devices[i], &gpu->facts);
            if (misfit == MLCC_OK) {
                gpu->physical = devices[i];
                return MLCC_OK;
            }
            if (code == MLCC_OK) first = gpu->message;
            if (code == MLCC_OK) code = misfit;
        }
    }
    gpu->message = first;
    if (code == MLCC_OK)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER,
                             "no Vulkan device found: install a driver");
    return code;
}

/* Creates the device with just the features that the kernels need, and its queue. */
static int create_device(Gpu *gpu) {
    const mlcc_gpu_program *program = gpu->program;
    Facts enabled = {.family = gpu->facts.family};
    memcpy(enabled.has, gpu->facts.has, sizeof enabled.has);
    facts_chain(&enabled);
    for (uint32_t i = 0; i < program->n_kernels; i++) {
        for (uint32_t at = 0, number; next_capability(&program->kernels[i], &at, &number);) {
            const Capability *capability = capability_find(number);
            if (capability && capability->offset >= offsetof(Facts, features))
                *fact(&enabled, capability) = 1;
        }
    }
    const char *extensions[3];
    uint32_t n_extensions = 0;
    if (gpu->facts.properties.properties.apiVersion < VERSION_1_2)
        for (int e = 0; e < 3; e++)
            if (enabled.has[e]) extensions[n_extensions++] = optional_extensions[e];
    const float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = enabled.family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &enabled.features,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = n_extensions,
                               .ppEnabledExtensionNames = extensions};
    VK(vkCreateDevice(gpu->physical, &info, NULL, &gpu->device));
    const char *missing = NULL;
#define LOOK_UP(function, result, parameters)                                                      \
    gpu->vk.function = (result(*) parameters)gpu->vk.vkGetDeviceProcAddr(gpu->device, #function);  \
    if (!gpu->vk.function) missing = #function;
    MLCC_VK_DEVICE(LOOK_UP)
#undef LOOK_UP
    if (missing)
        return mlcc_gpu_fail(&gpu->message, MLCC_E_DRIVER, "the Vulkan driver has no %s", missing);
    gpu->vk.vkGetDeviceQueue(gpu->device, enabled.family, 0, &gpu->queue);
    gpu->vk.vkGetPhysicalDeviceMemoryProperties(gpu->physical, &gpu->memory);
    return MLCC_OK;
}

/* `loader` is the library's file name. After a failure gpu_close is still due. */
static int gpu_open(Gpu *gpu, const char *loader) {
    TRY(open_loader(gpu, loader));
    TRY(create_instance(gpu));
    TRY(pick_device(gpu));
    return create_device(gpu);
}

/* After whatever gpu_open came to; what was created on the device must be destroyed. */
static void gpu_close(Gpu *gpu) {
    if (gpu->device && gpu->vk.vkDestroyDevice) gpu->vk.vkDestroyDevice(gpu->device, NULL);
    if (gpu->instance && gpu->vk.vkDestroyInstance) gpu->vk.vkDestroyInstance(gpu->instance, NULL);
    if (gpu->library) dlclose(gpu->library);
}

#endif
