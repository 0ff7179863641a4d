/* The part of Vulkan 1.1 that the launcher calls, declared by hand.
 *
 * A model's `.so` is compiled on its user's machine, where no Vulkan header need be installed, and
 * the library itself is opened at run time. Names, values and layouts are those of the Vulkan
 * specification; tests/unit/test_vulkan_api.c holds every one of them against <vulkan/vulkan.h>.
 * Members that the launcher leaves at zero are spelled, but with the simplest type of their size;
 * runs of members that it never looks at are arrays named `other...`.
 */
#ifndef MLCC_RUNTIME_VULKAN_API_H
#define MLCC_RUNTIME_VULKAN_API_H

#include <stddef.h>
#include <stdint.h>

/* Dispatchable handles are pointers, all others are 64 bits wide on every machine. */
typedef struct VkInstance_T *VkInstance;
typedef struct VkPhysicalDevice_T *VkPhysicalDevice;
typedef struct VkDevice_T *VkDevice;
typedef struct VkQueue_T *VkQueue;
typedef struct VkCommandBuffer_T *VkCommandBuffer;
typedef uint64_t VkBuffer, VkDeviceMemory, VkShaderModule, VkDescriptorSetLayout, VkPipelineLayout,
    VkPipeline, VkPipelineCache, VkDescriptorPool, VkDescriptorSet, VkCommandPool, VkFence;

typedef uint32_t VkBool32, VkFlags;
typedef uint64_t VkDeviceSize;

typedef enum VkResult {
    VK_SUCCESS = 0,
    VK_NOT_READY = 1,
    VK_TIMEOUT = 2,
    VK_INCOMPLETE = 5,
    VK_ERROR_OUT_OF_HOST_MEMORY = -1,
    VK_ERROR_OUT_OF_DEVICE_MEMORY = -2,
    VK_ERROR_INITIALIZATION_FAILED = -3,
    VK_ERROR_DEVICE_LOST = -4,
    VK_ERROR_MEMORY_MAP_FAILED = -5,
    VK_ERROR_LAYER_NOT_PRESENT = -6,
    VK_ERROR_EXTENSION_NOT_PRESENT = -7,
    VK_ERROR_FEATURE_NOT_PRESENT = -8,
    VK_ERROR_INCOMPATIBLE_DRIVER = -9,
    VK_ERROR_TOO_MANY_OBJECTS = -10,
    VK_ERROR_FRAGMENTED_POOL = -12,
    VK_ERROR_UNKNOWN = -13,
    VK_ERROR_OUT_OF_POOL_MEMORY = -1000069000,
    VK_ERROR_FRAGMENTATION = -1000161000,
    VK_ERROR_INVALID_SHADER_NV = -1000012000
} VkResult;

typedef enum VkStructureType {
    VK_STRUCTURE_TYPE_APPLICATION_INFO = 0,
    VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO = 1,
    VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO = 2,
    VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO = 3,
    VK_STRUCTURE_TYPE_SUBMIT_INFO = 4,
    VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO = 5,
    VK_STRUCTURE_TYPE_FENCE_CREATE_INFO = 8,
    VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO = 12,
    VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO = 16,
    VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO = 17,
    VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO = 18,
    VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO = 29,
    VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO = 30,
    VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO = 32,
    VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO = 33,
    VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO = 34,
    VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET = 35,
    VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO = 39,
    VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO = 40,
    VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO = 42,
    VK_STRUCTURE_TYPE_MEMORY_BARRIER = 46,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2 = 1000059000,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2 = 1000059001,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES = 1000082000,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES = 1000083000,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES = 1000094000,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES = 1000177000,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES = 1000197000
} VkStructureType;

enum {
    VK_PHYSICAL_DEVICE_TYPE_OTHER = 0,
    VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU = 1,
    VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU = 2,
    VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU = 3,
    VK_PHYSICAL_DEVICE_TYPE_CPU = 4,
    VK_QUEUE_COMPUTE_BIT = 2,
    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT = 1,
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT = 2,
    VK_MEMORY_PROPERTY_HOST_COHERENT_BIT = 4,
    VK_MEMORY_PROPERTY_HOST_CACHED_BIT = 8,
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT = 1,
    VK_BUFFER_USAGE_TRANSFER_DST_BIT = 2,
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT = 0x20,
    VK_DESCRIPTOR_TYPE_STORAGE_BUFFER = 7,
    VK_SHADER_STAGE_COMPUTE_BIT = 0x20,
    VK_PIPELINE_BIND_POINT_COMPUTE = 1,
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT = 0x800,
    VK_PIPELINE_STAGE_TRANSFER_BIT = 0x1000,
    VK_PIPELINE_STAGE_HOST_BIT = 0x4000,
    VK_ACCESS_SHADER_READ_BIT = 0x20,
    VK_ACCESS_SHADER_WRITE_BIT = 0x40,
    VK_ACCESS_TRANSFER_READ_BIT = 0x800,
    VK_ACCESS_TRANSFER_WRITE_BIT = 0x1000,
    VK_ACCESS_HOST_READ_BIT = 0x2000,
    VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT = 2,
    VK_COMMAND_BUFFER_LEVEL_PRIMARY = 0,
    VK_SUBGROUP_FEATURE_BASIC_BIT = 1,
    VK_SUBGROUP_FEATURE_VOTE_BIT = 2,
    VK_SUBGROUP_FEATURE_ARITHMETIC_BIT = 4,
    VK_SUBGROUP_FEATURE_BALLOT_BIT = 8,
    VK_SUBGROUP_FEATURE_SHUFFLE_BIT = 0x10,
    VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT = 0x20,
    VK_SUBGROUP_FEATURE_CLUSTERED_BIT = 0x40,
    VK_SUBGROUP_FEATURE_QUAD_BIT = 0x80
};

typedef struct VkApplicationInfo {
    VkStructureType sType;
    const void *pNext;
    const char *pApplicationName;
    uint32_t applicationVersion;
    const char *pEngineName;
    uint32_t engineVersion;
    uint32_t apiVersion;
} VkApplicationInfo;

typedef struct VkInstanceCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    const VkApplicationInfo *pApplicationInfo;
    uint32_t enabledLayerCount;
    const char *const *ppEnabledLayerNames;
    uint32_t enabledExtensionCount;
    const char *const *ppEnabledExtensionNames;
} VkInstanceCreateInfo;

typedef struct VkExtensionProperties {
    char extensionName[256];
    uint32_t specVersion;
} VkExtensionProperties;

typedef struct VkPhysicalDeviceLimits {
    uint32_t other0[7];
    uint32_t maxStorageBufferRange;
    uint32_t maxPushConstantsSize;
    uint32_t other1[3];
    VkDeviceSize other2[2];
    uint32_t other3[3];
    uint32_t maxPerStageDescriptorStorageBuffers;
    uint32_t other4[34];
    uint32_t maxComputeSharedMemorySize;
    uint32_t maxComputeWorkGroupCount[3];
    uint32_t maxComputeWorkGroupInvocations;
    uint32_t maxComputeWorkGroupSize[3];
    uint32_t other5[20];
    VkDeviceSize minStorageBufferOffsetAlignment;
    VkDeviceSize other6[21];
} VkPhysicalDeviceLimits;

typedef struct VkPhysicalDeviceProperties {
    uint32_t apiVersion;
    uint32_t driverVersion;
    uint32_t vendorID;
    uint32_t deviceID;
    uint32_t deviceType;
    char deviceName[256];
    uint8_t pipelineCacheUUID[16];
    VkPhysicalDeviceLimits limits;
    VkBool32 sparseProperties[5];
} VkPhysicalDeviceProperties;

typedef struct VkPhysicalDeviceProperties2 {
    VkStructureType sType;
    void *pNext;
    VkPhysicalDeviceProperties properties;
} VkPhysicalDeviceProperties2;

typedef struct VkPhysicalDeviceSubgroupProperties {
    VkStructureType sType;
    void *pNext;
    uint32_t subgroupSize;
    VkFlags supportedStages;
    VkFlags supportedOperations;
    VkBool32 quadOperationsInAllStages;
} VkPhysicalDeviceSubgroupProperties;

typedef struct VkPhysicalDeviceFloatControlsProperties {
    VkStructureType sType;
    void *pNext;
    uint32_t denormBehaviorIndependence;
    uint32_t roundingModeIndependence;
    VkBool32 shaderSignedZeroInfNanPreserveFloat16;
    VkBool32 shaderSignedZeroInfNanPreserveFloat32;
    VkBool32 shaderSignedZeroInfNanPreserveFloat64;
    VkBool32 shaderDenormPreserveFloat16;
    VkBool32 shaderDenormPreserveFloat32;
    VkBool32 shaderDenormPreserveFloat64;
    VkBool32 shaderDenormFlushToZeroFloat16;
    VkBool32 shaderDenormFlushToZeroFloat32;
    VkBool32 shaderDenormFlushToZeroFloat64;
    VkBool32 shaderRoundingModeRTEFloat16;
    VkBool32 shaderRoundingModeRTEFloat32;
    VkBool32 shaderRoundingModeRTEFloat64;
    VkBool32 shaderRoundingModeRTZFloat16;
    VkBool32 shaderRoundingModeRTZFloat32;
    VkBool32 shaderRoundingModeRTZFloat64;
} VkPhysicalDeviceFloatControlsProperties;

typedef struct VkPhysicalDeviceFeatures {
    VkBool32 other0[39];
    VkBool32 shaderFloat64;
    VkBool32 shaderInt64;
    VkBool32 shaderInt16;
    VkBool32 other1[13];
} VkPhysicalDeviceFeatures;

typedef struct VkPhysicalDeviceFeatures2 {
    VkStructureType sType;
    void *pNext;
    VkPhysicalDeviceFeatures features;
} VkPhysicalDeviceFeatures2;

typedef struct VkPhysicalDevice16BitStorageFeatures {
    VkStructureType sType;
    void *pNext;
    VkBool32 storageBuffer16BitAccess;
    VkBool32 uniformAndStorageBuffer16BitAccess;
    VkBool32 storagePushConstant16;
    VkBool32 storageInputOutput16;
} VkPhysicalDevice16BitStorageFeatures;

typedef struct VkPhysicalDevice8BitStorageFeatures {
    VkStructureType sType;
    void *pNext;
    VkBool32 storageBuffer8BitAccess;
    VkBool32 uniformAndStorageBuffer8BitAccess;
    VkBool32 storagePushConstant8;
} VkPhysicalDevice8BitStorageFeatures;

typedef struct VkPhysicalDeviceShaderFloat16Int8Features {
    VkStructureType sType;
    void *pNext;
    VkBool32 shaderFloat16;
    VkBool32 shaderInt8;
} VkPhysicalDeviceShaderFloat16Int8Features;

typedef struct VkQueueFamilyProperties {
    VkFlags queueFlags;
    uint32_t queueCount;
    uint32_t timestampValidBits;
    uint32_t minImageTransferGranularity[3];
} VkQueueFamilyProperties;

typedef struct VkMemoryType {
    VkFlags propertyFlags;
    uint32_t heapIndex;
} VkMemoryType;

typedef struct VkMemoryHeap {
    VkDeviceSize size;
    VkFlags flags;
} VkMemoryHeap;

typedef struct VkPhysicalDeviceMemoryProperties {
    uint32_t memoryTypeCount;
    VkMemoryType memoryTypes[32];
    uint32_t memoryHeapCount;
    VkMemoryHeap memoryHeaps[16];
} VkPhysicalDeviceMemoryProperties;

typedef struct VkDeviceQueueCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    uint32_t queueFamilyIndex;
    uint32_t queueCount;
    const float *pQueuePriorities;
} VkDeviceQueueCreateInfo;

typedef struct VkDeviceCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    uint32_t queueCreateInfoCount;
    const VkDeviceQueueCreateInfo *pQueueCreateInfos;
    uint32_t enabledLayerCount;
    const char *const *ppEnabledLayerNames;
    uint32_t enabledExtensionCount;
    const char *const *ppEnabledExtensionNames;
    const VkPhysicalDeviceFeatures *pEnabledFeatures;
} VkDeviceCreateInfo;

typedef struct VkBufferCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    VkDeviceSize size;
    VkFlags usage;
    uint32_t sharingMode;
    uint32_t queueFamilyIndexCount;
    const uint32_t *pQueueFamilyIndices;
} VkBufferCreateInfo;

typedef struct VkMemoryRequirements {
    VkDeviceSize size;
    VkDeviceSize alignment;
    uint32_t memoryTypeBits;
} VkMemoryRequirements;

typedef struct VkMemoryAllocateInfo {
    VkStructureType sType;
    const void *pNext;
    VkDeviceSize allocationSize;
    uint32_t memoryTypeIndex;
} VkMemoryAllocateInfo;

typedef struct VkShaderModuleCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    size_t codeSize;
    const uint32_t *pCode;
} VkShaderModuleCreateInfo;

typedef struct VkDescriptorSetLayoutBinding {
    uint32_t binding;
    uint32_t descriptorType;
    uint32_t descriptorCount;
    VkFlags stageFlags;
    const void *pImmutableSamplers;
} VkDescriptorSetLayoutBinding;

typedef struct VkDescriptorSetLayoutCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    uint32_t bindingCount;
    const VkDescriptorSetLayoutBinding *pBindings;
} VkDescriptorSetLayoutCreateInfo;

typedef struct VkPushConstantRange {
    VkFlags stageFlags;
    uint32_t offset;
    uint32_t size;
} VkPushConstantRange;

typedef struct VkPipelineLayoutCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    uint32_t setLayoutCount;
    const VkDescriptorSetLayout *pSetLayouts;
    uint32_t pushConstantRangeCount;
    const VkPushConstantRange *pPushConstantRanges;
} VkPipelineLayoutCreateInfo;

typedef struct VkPipelineCacheCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    size_t initialDataSize;
    const void *pInitialData;
} VkPipelineCacheCreateInfo;

typedef struct VkPipelineShaderStageCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    VkFlags stage;
    VkShaderModule module;
    const char *pName;
    const void *pSpecializationInfo;
} VkPipelineShaderStageCreateInfo;

typedef struct VkComputePipelineCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    VkPipelineShaderStageCreateInfo stage;
    VkPipelineLayout layout;
    VkPipeline basePipelineHandle;
    int32_t basePipelineIndex;
} VkComputePipelineCreateInfo;

typedef struct VkDescriptorPoolSize {
    uint32_t type;
    uint32_t descriptorCount;
} VkDescriptorPoolSize;

typedef struct VkDescriptorPoolCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    uint32_t maxSets;
    uint32_t poolSizeCount;
    const VkDescriptorPoolSize *pPoolSizes;
} VkDescriptorPoolCreateInfo;

typedef struct VkDescriptorSetAllocateInfo {
    VkStructureType sType;
    const void *pNext;
    VkDescriptorPool descriptorPool;
    uint32_t descriptorSetCount;
    const VkDescriptorSetLayout *pSetLayouts;
} VkDescriptorSetAllocateInfo;

typedef struct VkDescriptorBufferInfo {
    VkBuffer buffer;
    VkDeviceSize offset;
    VkDeviceSize range;
} VkDescriptorBufferInfo;

typedef struct VkWriteDescriptorSet {
    VkStructureType sType;
    const void *pNext;
    VkDescriptorSet dstSet;
    uint32_t dstBinding;
    uint32_t dstArrayElement;
    uint32_t descriptorCount;
    uint32_t descriptorType;
    const void *pImageInfo;
    const VkDescriptorBufferInfo *pBufferInfo;
    const void *pTexelBufferView;
} VkWriteDescriptorSet;

typedef struct VkCommandPoolCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    uint32_t queueFamilyIndex;
} VkCommandPoolCreateInfo;

typedef struct VkCommandBufferAllocateInfo {
    VkStructureType sType;
    const void *pNext;
    VkCommandPool commandPool;
    uint32_t level;
    uint32_t commandBufferCount;
} VkCommandBufferAllocateInfo;

typedef struct VkCommandBufferBeginInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
    const void *pInheritanceInfo;
} VkCommandBufferBeginInfo;

typedef struct VkMemoryBarrier {
    VkStructureType sType;
    const void *pNext;
    VkFlags srcAccessMask;
    VkFlags dstAccessMask;
} VkMemoryBarrier;

typedef struct VkBufferCopy {
    VkDeviceSize srcOffset;
    VkDeviceSize dstOffset;
    VkDeviceSize size;
} VkBufferCopy;

typedef struct VkFenceCreateInfo {
    VkStructureType sType;
    const void *pNext;
    VkFlags flags;
} VkFenceCreateInfo;

typedef struct VkSubmitInfo {
    VkStructureType sType;
    const void *pNext;
    uint32_t waitSemaphoreCount;
    const void *pWaitSemaphores;
    const VkFlags *pWaitDstStageMask;
    uint32_t commandBufferCount;
    const VkCommandBuffer *pCommandBuffers;
    uint32_t signalSemaphoreCount;
    const void *pSignalSemaphores;
} VkSubmitInfo;

/* The functions, X(name, result, parameters), by what they are looked up with. Parameters typed
 * `const void *` are allocation callbacks or barrier lists that the launcher leaves NULL. */
#define MLCC_VK_GLOBAL(X)                                                                          \
    X(vkEnumerateInstanceVersion, VkResult, (uint32_t *))                                          \
    X(vkCreateInstance, VkResult, (const VkInstanceCreateInfo *, const void *, VkInstance *))

#define MLCC_VK_INSTANCE(X)                                                                        \
    X(vkDestroyInstance, void, (VkInstance, const void *))                                         \
    X(vkEnumeratePhysicalDevices, VkResult, (VkInstance, uint32_t *, VkPhysicalDevice *))          \
    X(vkGetPhysicalDeviceProperties2, void, (VkPhysicalDevice, VkPhysicalDeviceProperties2 *))     \
    X(vkGetPhysicalDeviceProperties, void, (VkPhysicalDevice, VkPhysicalDeviceProperties *))       \
    X(vkGetPhysicalDeviceFeatures2, void, (VkPhysicalDevice, VkPhysicalDeviceFeatures2 *))         \
    X(vkGetPhysicalDeviceQueueFamilyProperties, void,                                              \
      (VkPhysicalDevice, uint32_t *, VkQueueFamilyProperties *))                                   \
    X(vkGetPhysicalDeviceMemoryProperties, void,                                                   \
      (VkPhysicalDevice, VkPhysicalDeviceMemoryProperties *))                                      \
    X(vkEnumerateDeviceExtensionProperties, VkResult,                                              \
      (VkPhysicalDevice, const char *, uint32_t *, VkExtensionProperties *))                       \
    X(vkCreateDevice, VkResult,                                                                    \
      (VkPhysicalDevice, const VkDeviceCreateInfo *, const void *, VkDevice *))                    \
    X(vkGetDeviceProcAddr, mlcc_vk_function, (VkDevice, const char *))

#define MLCC_VK_DEVICE(X)                                                                          \
    X(vkDestroyDevice, void, (VkDevice, const void *))                                             \
    X(vkDeviceWaitIdle, VkResult, (VkDevice))                                                      \
    X(vkGetDeviceQueue, void, (VkDevice, uint32_t, uint32_t, VkQueue *))                           \
    X(vkQueueSubmit, VkResult, (VkQueue, uint32_t, const VkSubmitInfo *, VkFence))                 \
    X(vkAllocateMemory, VkResult,                                                                  \
      (VkDevice, const VkMemoryAllocateInfo *, const void *, VkDeviceMemory *))                    \
    X(vkFreeMemory, void, (VkDevice, VkDeviceMemory, const void *))                                \
    X(vkMapMemory, VkResult,                                                                       \
      (VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkFlags, void **))                    \
    X(vkCreateBuffer, VkResult, (VkDevice, const VkBufferCreateInfo *, const void *, VkBuffer *))  \
    X(vkDestroyBuffer, void, (VkDevice, VkBuffer, const void *))                                   \
    X(vkGetBufferMemoryRequirements, void, (VkDevice, VkBuffer, VkMemoryRequirements *))           \
    X(vkBindBufferMemory, VkResult, (VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize))            \
    X(vkCreateShaderModule, VkResult,                                                              \
      (VkDevice, const VkShaderModuleCreateInfo *, const void *, VkShaderModule *))                \
    X(vkDestroyShaderModule, void, (VkDevice, VkShaderModule, const void *))                       \
    X(vkCreateDescriptorSetLayout, VkResult,                                                       \
      (VkDevice, const VkDescriptorSetLayoutCreateInfo *, const void *, VkDescriptorSetLayout *))  \
    X(vkDestroyDescriptorSetLayout, void, (VkDevice, VkDescriptorSetLayout, const void *))         \
    X(vkCreatePipelineLayout, VkResult,                                                            \
      (VkDevice, const VkPipelineLayoutCreateInfo *, const void *, VkPipelineLayout *))            \
    X(vkDestroyPipelineLayout, void, (VkDevice, VkPipelineLayout, const void *))                   \
    X(vkCreatePipelineCache, VkResult,                                                             \
      (VkDevice, const VkPipelineCacheCreateInfo *, const void *, VkPipelineCache *))              \
    X(vkDestroyPipelineCache, void, (VkDevice, VkPipelineCache, const void *))                     \
    X(vkCreateComputePipelines, VkResult,                                                          \
      (VkDevice, VkPipelineCache, uint32_t, const VkComputePipelineCreateInfo *, const void *,     \
       VkPipeline *))                                                                              \
    X(vkDestroyPipeline, void, (VkDevice, VkPipeline, const void *))                               \
    X(vkCreateDescriptorPool, VkResult,                                                            \
      (VkDevice, const VkDescriptorPoolCreateInfo *, const void *, VkDescriptorPool *))            \
    X(vkDestroyDescriptorPool, void, (VkDevice, VkDescriptorPool, const void *))                   \
    X(vkAllocateDescriptorSets, VkResult,                                                          \
      (VkDevice, const VkDescriptorSetAllocateInfo *, VkDescriptorSet *))                          \
    X(vkUpdateDescriptorSets, void,                                                                \
      (VkDevice, uint32_t, const VkWriteDescriptorSet *, uint32_t, const void *))                  \
    X(vkCreateCommandPool, VkResult,                                                               \
      (VkDevice, const VkCommandPoolCreateInfo *, const void *, VkCommandPool *))                  \
    X(vkDestroyCommandPool, void, (VkDevice, VkCommandPool, const void *))                         \
    X(vkAllocateCommandBuffers, VkResult,                                                          \
      (VkDevice, const VkCommandBufferAllocateInfo *, VkCommandBuffer *))                          \
    X(vkBeginCommandBuffer, VkResult, (VkCommandBuffer, const VkCommandBufferBeginInfo *))         \
    X(vkEndCommandBuffer, VkResult, (VkCommandBuffer))                                             \
    X(vkCmdBindPipeline, void, (VkCommandBuffer, uint32_t, VkPipeline))                            \
    X(vkCmdBindDescriptorSets, void,                                                               \
      (VkCommandBuffer, uint32_t, VkPipelineLayout, uint32_t, uint32_t, const VkDescriptorSet *,   \
       uint32_t, const uint32_t *))                                                                \
    X(vkCmdPushConstants, void,                                                                    \
      (VkCommandBuffer, VkPipelineLayout, VkFlags, uint32_t, uint32_t, const void *))              \
    X(vkCmdDispatch, void, (VkCommandBuffer, uint32_t, uint32_t, uint32_t))                        \
    X(vkCmdPipelineBarrier, void,                                                                  \
      (VkCommandBuffer, VkFlags, VkFlags, VkFlags, uint32_t, const VkMemoryBarrier *, uint32_t,    \
       const void *, uint32_t, const void *))                                                      \
    X(vkCmdCopyBuffer, void,                                                                       \
      (VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy *))                       \
    X(vkCmdFillBuffer, void, (VkCommandBuffer, VkBuffer, uint64_t, uint64_t, uint32_t))            \
    X(vkCreateFence, VkResult, (VkDevice, const VkFenceCreateInfo *, const void *, VkFence *))     \
    X(vkDestroyFence, void, (VkDevice, VkFence, const void *))                                     \
    X(vkWaitForFences, VkResult, (VkDevice, uint32_t, const VkFence *, VkBool32, uint64_t))        \
    X(vkResetFences, VkResult, (VkDevice, uint32_t, const VkFence *))

/* What the loader's lookups return: any function, to be cast. */
typedef void (*mlcc_vk_function)(void);

typedef struct mlcc_vk {
    mlcc_vk_function (*vkGetInstanceProcAddr)(VkInstance, const char *);
#define MLCC_VK_MEMBER(name, result, parameters) result(*name) parameters;
    MLCC_VK_GLOBAL(MLCC_VK_MEMBER) MLCC_VK_INSTANCE(MLCC_VK_MEMBER) MLCC_VK_DEVICE(MLCC_VK_MEMBER)
#undef MLCC_VK_MEMBER
} mlcc_vk;

#endif
