/* runtime/vulkan_api.h, declared by hand, against the real <vulkan/vulkan.h>: every value, the size
 * of every struct, the place and size of every member that has a name. All of it is checked by the
 * compiler; where the real header is not installed there is nothing to check.
 *
 * Both headers use the same names. The real one is included first and what it says is kept in
 * constants; ours is then included inside a function, where its declarations hide the real ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if __has_include(<vulkan/vulkan.h>)
#include <vulkan/vulkan.h>

/* clang-format off */
#define VALUES(X) \
    X(VK_SUCCESS) X(VK_NOT_READY) X(VK_TIMEOUT) X(VK_INCOMPLETE) \
    X(VK_ERROR_OUT_OF_HOST_MEMORY) X(VK_ERROR_OUT_OF_DEVICE_MEMORY) \
    X(VK_ERROR_INITIALIZATION_FAILED) X(VK_ERROR_DEVICE_LOST) X(VK_ERROR_MEMORY_MAP_FAILED) \
    X(VK_ERROR_LAYER_NOT_PRESENT) X(VK_ERROR_EXTENSION_NOT_PRESENT) \
    X(VK_ERROR_FEATURE_NOT_PRESENT) X(VK_ERROR_INCOMPATIBLE_DRIVER) \
    X(VK_ERROR_TOO_MANY_OBJECTS) X(VK_ERROR_FRAGMENTED_POOL) X(VK_ERROR_UNKNOWN) \
    X(VK_ERROR_OUT_OF_POOL_MEMORY) X(VK_ERROR_FRAGMENTATION) X(VK_ERROR_INVALID_SHADER_NV) \
    X(VK_STRUCTURE_TYPE_APPLICATION_INFO) X(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO) X(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_SUBMIT_INFO) X(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO) \
    X(VK_STRUCTURE_TYPE_FENCE_CREATE_INFO) X(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO) \
    X(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET) X(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO) \
    X(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO) \
    X(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO) X(VK_STRUCTURE_TYPE_MEMORY_BARRIER) \
    X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2) \
    X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2) \
    X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES) \
    X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES) \
    X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES) \
    X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES) \
    X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES) \
    X(VK_PHYSICAL_DEVICE_TYPE_OTHER) X(VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) \
    X(VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU) X(VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU) \
    X(VK_PHYSICAL_DEVICE_TYPE_CPU) X(VK_QUEUE_COMPUTE_BIT) \
    X(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) X(VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) \
    X(VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) X(VK_MEMORY_PROPERTY_HOST_CACHED_BIT) \
    X(VK_BUFFER_USAGE_TRANSFER_SRC_BIT) X(VK_BUFFER_USAGE_TRANSFER_DST_BIT) \
    X(VK_BUFFER_USAGE_STORAGE_BUFFER_BIT) X(VK_DESCRIPTOR_TYPE_STORAGE_BUFFER) \
    X(VK_SHADER_STAGE_COMPUTE_BIT) X(VK_PIPELINE_BIND_POINT_COMPUTE) \
    X(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT) X(VK_PIPELINE_STAGE_TRANSFER_BIT) \
    X(VK_PIPELINE_STAGE_HOST_BIT) X(VK_ACCESS_SHADER_READ_BIT) X(VK_ACCESS_SHADER_WRITE_BIT) \
    X(VK_ACCESS_TRANSFER_READ_BIT) X(VK_ACCESS_TRANSFER_WRITE_BIT) \
    X(VK_ACCESS_HOST_READ_BIT) X(VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT) \
    X(VK_COMMAND_BUFFER_LEVEL_PRIMARY) X(VK_SUBGROUP_FEATURE_BASIC_BIT) \
    X(VK_SUBGROUP_FEATURE_VOTE_BIT) X(VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) \
    X(VK_SUBGROUP_FEATURE_BALLOT_BIT) X(VK_SUBGROUP_FEATURE_SHUFFLE_BIT) \
    X(VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT) X(VK_SUBGROUP_FEATURE_CLUSTERED_BIT) \
    X(VK_SUBGROUP_FEATURE_QUAD_BIT)

#define SIZES(X) \
    X(VkApplicationInfo) X(VkInstanceCreateInfo) X(VkExtensionProperties) \
    X(VkPhysicalDeviceLimits) X(VkPhysicalDeviceProperties) X(VkPhysicalDeviceProperties2) \
    X(VkPhysicalDeviceSubgroupProperties) X(VkPhysicalDeviceFloatControlsProperties) \
    X(VkPhysicalDeviceFeatures) X(VkPhysicalDeviceFeatures2) \
    X(VkPhysicalDevice16BitStorageFeatures) X(VkPhysicalDevice8BitStorageFeatures) \
    X(VkPhysicalDeviceShaderFloat16Int8Features) X(VkQueueFamilyProperties) X(VkMemoryType) \
    X(VkMemoryHeap) X(VkPhysicalDeviceMemoryProperties) X(VkDeviceQueueCreateInfo) \
    X(VkDeviceCreateInfo) X(VkBufferCreateInfo) X(VkMemoryRequirements) \
    X(VkMemoryAllocateInfo) X(VkShaderModuleCreateInfo) X(VkDescriptorSetLayoutBinding) \
    X(VkDescriptorSetLayoutCreateInfo) X(VkPushConstantRange) X(VkPipelineLayoutCreateInfo) \
    X(VkPipelineCacheCreateInfo) X(VkPipelineShaderStageCreateInfo) \
    X(VkComputePipelineCreateInfo) X(VkDescriptorPoolSize) X(VkDescriptorPoolCreateInfo) \
    X(VkDescriptorSetAllocateInfo) X(VkDescriptorBufferInfo) X(VkWriteDescriptorSet) \
    X(VkCommandPoolCreateInfo) X(VkCommandBufferAllocateInfo) X(VkCommandBufferBeginInfo) \
    X(VkMemoryBarrier) X(VkBufferCopy) X(VkFenceCreateInfo) X(VkSubmitInfo) X(VkInstance) \
    X(VkBuffer) X(VkPipeline) X(VkDeviceSize) X(VkBool32)

#define MEMBERS(X) \
    X(VkApplicationInfo, sType) X(VkApplicationInfo, pNext) \
    X(VkApplicationInfo, pApplicationName) X(VkApplicationInfo, applicationVersion) \
    X(VkApplicationInfo, pEngineName) X(VkApplicationInfo, engineVersion) \
    X(VkApplicationInfo, apiVersion) X(VkInstanceCreateInfo, sType) \
    X(VkInstanceCreateInfo, pNext) X(VkInstanceCreateInfo, flags) \
    X(VkInstanceCreateInfo, pApplicationInfo) X(VkInstanceCreateInfo, enabledLayerCount) \
    X(VkInstanceCreateInfo, ppEnabledLayerNames) \
    X(VkInstanceCreateInfo, enabledExtensionCount) \
    X(VkInstanceCreateInfo, ppEnabledExtensionNames) X(VkExtensionProperties, extensionName) \
    X(VkExtensionProperties, specVersion) X(VkPhysicalDeviceLimits, maxStorageBufferRange) \
    X(VkPhysicalDeviceLimits, maxPushConstantsSize) \
    X(VkPhysicalDeviceLimits, maxPerStageDescriptorStorageBuffers) \
    X(VkPhysicalDeviceLimits, maxComputeSharedMemorySize) \
    X(VkPhysicalDeviceLimits, maxComputeWorkGroupCount) \
    X(VkPhysicalDeviceLimits, maxComputeWorkGroupInvocations) \
    X(VkPhysicalDeviceLimits, maxComputeWorkGroupSize) \
    X(VkPhysicalDeviceLimits, minStorageBufferOffsetAlignment) \
    X(VkPhysicalDeviceProperties, apiVersion) X(VkPhysicalDeviceProperties, driverVersion) \
    X(VkPhysicalDeviceProperties, vendorID) X(VkPhysicalDeviceProperties, deviceID) \
    X(VkPhysicalDeviceProperties, deviceType) X(VkPhysicalDeviceProperties, deviceName) \
    X(VkPhysicalDeviceProperties, pipelineCacheUUID) X(VkPhysicalDeviceProperties, limits) \
    X(VkPhysicalDeviceProperties, sparseProperties) X(VkPhysicalDeviceProperties2, sType) \
    X(VkPhysicalDeviceProperties2, pNext) X(VkPhysicalDeviceProperties2, properties) \
    X(VkPhysicalDeviceSubgroupProperties, sType) \
    X(VkPhysicalDeviceSubgroupProperties, pNext) \
    X(VkPhysicalDeviceSubgroupProperties, subgroupSize) \
    X(VkPhysicalDeviceSubgroupProperties, supportedStages) \
    X(VkPhysicalDeviceSubgroupProperties, supportedOperations) \
    X(VkPhysicalDeviceSubgroupProperties, quadOperationsInAllStages) \
    X(VkPhysicalDeviceFloatControlsProperties, sType) \
    X(VkPhysicalDeviceFloatControlsProperties, pNext) \
    X(VkPhysicalDeviceFloatControlsProperties, denormBehaviorIndependence) \
    X(VkPhysicalDeviceFloatControlsProperties, roundingModeIndependence) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderSignedZeroInfNanPreserveFloat16) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderSignedZeroInfNanPreserveFloat32) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderSignedZeroInfNanPreserveFloat64) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderDenormPreserveFloat16) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderDenormPreserveFloat32) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderDenormPreserveFloat64) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderDenormFlushToZeroFloat16) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderDenormFlushToZeroFloat32) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderDenormFlushToZeroFloat64) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderRoundingModeRTEFloat16) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderRoundingModeRTEFloat32) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderRoundingModeRTEFloat64) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderRoundingModeRTZFloat16) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderRoundingModeRTZFloat32) \
    X(VkPhysicalDeviceFloatControlsProperties, shaderRoundingModeRTZFloat64) \
    X(VkPhysicalDeviceFeatures, shaderFloat64) X(VkPhysicalDeviceFeatures, shaderInt64) \
    X(VkPhysicalDeviceFeatures, shaderInt16) X(VkPhysicalDeviceFeatures2, sType) \
    X(VkPhysicalDeviceFeatures2, pNext) X(VkPhysicalDeviceFeatures2, features) \
    X(VkPhysicalDevice16BitStorageFeatures, sType) \
    X(VkPhysicalDevice16BitStorageFeatures, pNext) \
    X(VkPhysicalDevice16BitStorageFeatures, storageBuffer16BitAccess) \
    X(VkPhysicalDevice16BitStorageFeatures, uniformAndStorageBuffer16BitAccess) \
    X(VkPhysicalDevice16BitStorageFeatures, storagePushConstant16) \
    X(VkPhysicalDevice16BitStorageFeatures, storageInputOutput16) \
    X(VkPhysicalDevice8BitStorageFeatures, sType) \
    X(VkPhysicalDevice8BitStorageFeatures, pNext) \
    X(VkPhysicalDevice8BitStorageFeatures, storageBuffer8BitAccess) \
    X(VkPhysicalDevice8BitStorageFeatures, uniformAndStorageBuffer8BitAccess) \
    X(VkPhysicalDevice8BitStorageFeatures, storagePushConstant8) \
    X(VkPhysicalDeviceShaderFloat16Int8Features, sType) \
    X(VkPhysicalDeviceShaderFloat16Int8Features, pNext) \
    X(VkPhysicalDeviceShaderFloat16Int8Features, shaderFloat16) \
    X(VkPhysicalDeviceShaderFloat16Int8Features, shaderInt8) \
    X(VkQueueFamilyProperties, queueFlags) X(VkQueueFamilyProperties, queueCount) \
    X(VkQueueFamilyProperties, timestampValidBits) \
    X(VkQueueFamilyProperties, minImageTransferGranularity) X(VkMemoryType, propertyFlags) \
    X(VkMemoryType, heapIndex) X(VkMemoryHeap, size) X(VkMemoryHeap, flags) \
    X(VkPhysicalDeviceMemoryProperties, memoryTypeCount) \
    X(VkPhysicalDeviceMemoryProperties, memoryTypes) \
    X(VkPhysicalDeviceMemoryProperties, memoryHeapCount) \
    X(VkPhysicalDeviceMemoryProperties, memoryHeaps) X(VkDeviceQueueCreateInfo, sType) \
    X(VkDeviceQueueCreateInfo, pNext) X(VkDeviceQueueCreateInfo, flags) \
    X(VkDeviceQueueCreateInfo, queueFamilyIndex) X(VkDeviceQueueCreateInfo, queueCount) \
    X(VkDeviceQueueCreateInfo, pQueuePriorities) X(VkDeviceCreateInfo, sType) \
    X(VkDeviceCreateInfo, pNext) X(VkDeviceCreateInfo, flags) \
    X(VkDeviceCreateInfo, queueCreateInfoCount) X(VkDeviceCreateInfo, pQueueCreateInfos) \
    X(VkDeviceCreateInfo, enabledLayerCount) X(VkDeviceCreateInfo, ppEnabledLayerNames) \
    X(VkDeviceCreateInfo, enabledExtensionCount) \
    X(VkDeviceCreateInfo, ppEnabledExtensionNames) X(VkDeviceCreateInfo, pEnabledFeatures) \
    X(VkBufferCreateInfo, sType) X(VkBufferCreateInfo, pNext) X(VkBufferCreateInfo, flags) \
    X(VkBufferCreateInfo, size) X(VkBufferCreateInfo, usage) \
    X(VkBufferCreateInfo, sharingMode) X(VkBufferCreateInfo, queueFamilyIndexCount) \
    X(VkBufferCreateInfo, pQueueFamilyIndices) X(VkMemoryRequirements, size) \
    X(VkMemoryRequirements, alignment) X(VkMemoryRequirements, memoryTypeBits) \
    X(VkMemoryAllocateInfo, sType) X(VkMemoryAllocateInfo, pNext) \
    X(VkMemoryAllocateInfo, allocationSize) X(VkMemoryAllocateInfo, memoryTypeIndex) \
    X(VkShaderModuleCreateInfo, sType) X(VkShaderModuleCreateInfo, pNext) \
    X(VkShaderModuleCreateInfo, flags) X(VkShaderModuleCreateInfo, codeSize) \
    X(VkShaderModuleCreateInfo, pCode) X(VkDescriptorSetLayoutBinding, binding) \
    X(VkDescriptorSetLayoutBinding, descriptorType) \
    X(VkDescriptorSetLayoutBinding, descriptorCount) \
    X(VkDescriptorSetLayoutBinding, stageFlags) \
    X(VkDescriptorSetLayoutBinding, pImmutableSamplers) \
    X(VkDescriptorSetLayoutCreateInfo, sType) X(VkDescriptorSetLayoutCreateInfo, pNext) \
    X(VkDescriptorSetLayoutCreateInfo, flags) \
    X(VkDescriptorSetLayoutCreateInfo, bindingCount) \
    X(VkDescriptorSetLayoutCreateInfo, pBindings) X(VkPushConstantRange, stageFlags) \
    X(VkPushConstantRange, offset) X(VkPushConstantRange, size) \
    X(VkPipelineLayoutCreateInfo, sType) X(VkPipelineLayoutCreateInfo, pNext) \
    X(VkPipelineLayoutCreateInfo, flags) X(VkPipelineLayoutCreateInfo, setLayoutCount) \
    X(VkPipelineLayoutCreateInfo, pSetLayouts) \
    X(VkPipelineLayoutCreateInfo, pushConstantRangeCount) \
    X(VkPipelineLayoutCreateInfo, pPushConstantRanges) X(VkPipelineCacheCreateInfo, sType) \
    X(VkPipelineCacheCreateInfo, pNext) X(VkPipelineCacheCreateInfo, flags) \
    X(VkPipelineCacheCreateInfo, initialDataSize) X(VkPipelineCacheCreateInfo, pInitialData) \
    X(VkPipelineShaderStageCreateInfo, sType) X(VkPipelineShaderStageCreateInfo, pNext) \
    X(VkPipelineShaderStageCreateInfo, flags) X(VkPipelineShaderStageCreateInfo, stage) \
    X(VkPipelineShaderStageCreateInfo, module) X(VkPipelineShaderStageCreateInfo, pName) \
    X(VkPipelineShaderStageCreateInfo, pSpecializationInfo) \
    X(VkComputePipelineCreateInfo, sType) X(VkComputePipelineCreateInfo, pNext) \
    X(VkComputePipelineCreateInfo, flags) X(VkComputePipelineCreateInfo, stage) \
    X(VkComputePipelineCreateInfo, layout) \
    X(VkComputePipelineCreateInfo, basePipelineHandle) \
    X(VkComputePipelineCreateInfo, basePipelineIndex) X(VkDescriptorPoolSize, type) \
    X(VkDescriptorPoolSize, descriptorCount) X(VkDescriptorPoolCreateInfo, sType) \
    X(VkDescriptorPoolCreateInfo, pNext) X(VkDescriptorPoolCreateInfo, flags) \
    X(VkDescriptorPoolCreateInfo, maxSets) X(VkDescriptorPoolCreateInfo, poolSizeCount) \
    X(VkDescriptorPoolCreateInfo, pPoolSizes) X(VkDescriptorSetAllocateInfo, sType) \
    X(VkDescriptorSetAllocateInfo, pNext) X(VkDescriptorSetAllocateInfo, descriptorPool) \
    X(VkDescriptorSetAllocateInfo, descriptorSetCount) \
    X(VkDescriptorSetAllocateInfo, pSetLayouts) X(VkDescriptorBufferInfo, buffer) \
    X(VkDescriptorBufferInfo, offset) X(VkDescriptorBufferInfo, range) \
    X(VkWriteDescriptorSet, sType) X(VkWriteDescriptorSet, pNext) \
    X(VkWriteDescriptorSet, dstSet) X(VkWriteDescriptorSet, dstBinding) \
    X(VkWriteDescriptorSet, dstArrayElement) X(VkWriteDescriptorSet, descriptorCount) \
    X(VkWriteDescriptorSet, descriptorType) X(VkWriteDescriptorSet, pImageInfo) \
    X(VkWriteDescriptorSet, pBufferInfo) X(VkWriteDescriptorSet, pTexelBufferView) \
    X(VkCommandPoolCreateInfo, sType) X(VkCommandPoolCreateInfo, pNext) \
    X(VkCommandPoolCreateInfo, flags) X(VkCommandPoolCreateInfo, queueFamilyIndex) \
    X(VkCommandBufferAllocateInfo, sType) X(VkCommandBufferAllocateInfo, pNext) \
    X(VkCommandBufferAllocateInfo, commandPool) X(VkCommandBufferAllocateInfo, level) \
    X(VkCommandBufferAllocateInfo, commandBufferCount) X(VkCommandBufferBeginInfo, sType) \
    X(VkCommandBufferBeginInfo, pNext) X(VkCommandBufferBeginInfo, flags) \
    X(VkCommandBufferBeginInfo, pInheritanceInfo) X(VkMemoryBarrier, sType) \
    X(VkMemoryBarrier, pNext) X(VkMemoryBarrier, srcAccessMask) \
    X(VkMemoryBarrier, dstAccessMask) X(VkBufferCopy, srcOffset) X(VkBufferCopy, dstOffset) \
    X(VkBufferCopy, size) X(VkFenceCreateInfo, sType) X(VkFenceCreateInfo, pNext) \
    X(VkFenceCreateInfo, flags) X(VkSubmitInfo, sType) X(VkSubmitInfo, pNext) \
    X(VkSubmitInfo, waitSemaphoreCount) X(VkSubmitInfo, pWaitSemaphores) \
    X(VkSubmitInfo, pWaitDstStageMask) X(VkSubmitInfo, commandBufferCount) \
    X(VkSubmitInfo, pCommandBuffers) X(VkSubmitInfo, signalSemaphoreCount) \
    X(VkSubmitInfo, pSignalSemaphores)
/* clang-format on */

#define VALUE_CONSTANT(name)         real_##name = (int)name,
#define SIZE_CONSTANT(type)          real_size_##type = (int)sizeof(type),
#define PLACE_CONSTANT(type, member) real_place_##type##_##member = (int)offsetof(type, member),
#define LENGTH_CONSTANT(type, member)                                                              \
    real_length_##type##_##member = (int)sizeof(((type *)0)->member),
enum {
    VALUES(VALUE_CONSTANT) SIZES(SIZE_CONSTANT) MEMBERS(PLACE_CONSTANT) MEMBERS(LENGTH_CONSTANT)
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
static void same_as_the_real_header(void **state) {
#include "runtime/vulkan_api.h"
#define SAME_VALUE(name) _Static_assert((int)name == real_##name, #name);
#define SAME_SIZE(type)  _Static_assert(sizeof(type) == real_size_##type, #type);
#define SAME_MEMBER(type, member)                                                                  \
    _Static_assert(offsetof(type, member) == real_place_##type##_##member &&                       \
                       sizeof(((type *)0)->member) == real_length_##type##_##member,               \
                   #type "." #member);
    VALUES(SAME_VALUE)
    SIZES(SAME_SIZE)
    MEMBERS(SAME_MEMBER)
    /* The functions' names; their parameters cannot be compared, as the types are others. */
#define KNOWN(name, result, parameters)                                                            \
    _Static_assert(sizeof((mlcc_vk *)0)->name == sizeof(PFN_##name), #name);
    MLCC_VK_GLOBAL(KNOWN)
    MLCC_VK_INSTANCE(KNOWN)
    MLCC_VK_DEVICE(KNOWN)
    (void)state;
}
#pragma GCC diagnostic pop

#else
static void same_as_the_real_header(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_the_real_header)};
    return cmocka_run_group_tests_name("vulkan_api", tests, NULL, NULL);
}
