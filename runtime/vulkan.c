/* The Vulkan launcher: runs an mlcc_gpu_program on the first device that fits.
 *
 * The loader library is opened at run time. `open` does all the work there is: it picks a device,
 * uploads the weights, builds one pipeline per kernel and records the whole program, loops
 * unrolled, into one command buffer. `run` copies inputs in, submits that command buffer, waits,
 * copies outputs out; it allocates nothing.
 *
 * Launches run at once on the device unless one writes bytes that another touches; only there a
 * barrier is recorded (see order_launch). Finding a device that fits is vulkan_device.h.
 *
 * C99, no globals: threads may run at once with a state each.
 */
#include "vulkan_device.h"

enum {
    MAX_ACCESSES = 256,     /* remembered between two barriers */
    MAX_LAUNCHES = 1 << 22, /* recorded; a launch takes some hundred bytes of command buffer */
    UPLOAD_BYTES = 16 << 20 /* of the weights at once, when they go by way of a staging buffer */
};

/* A buffer with memory of its own; `host` is where it is mapped, NULL if it is not. */
typedef struct Block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    unsigned char *host;
    uint64_t bytes;
} Block;

typedef struct Kernel {
    VkDescriptorSetLayout bindings;
    VkPipelineLayout layout;
    VkPipeline pipeline;
} Kernel;

/* Bytes [begin, end) of a space that a launch since the last barrier touches. */
typedef struct Access {
    uint32_t space, writes;
    uint64_t begin, end;
} Access;

typedef struct State {
    Gpu gpu;
    int ready;        /* open went through */
    int stage;        /* never map memory of the device */
    Block blocks[5];  /* by MLCC_SPACE_* */
    Block staging[2]; /* for INPUT and OUTPUT where the block itself cannot be mapped */
    uint64_t *places; /* of each input, then of each output, in its block */
    Kernel *kernels;
    VkPipelineCache cache; /* lets equal kernels share their machine code */
    VkDescriptorPool pool;
    VkDescriptorSet *sets; /* by step; unused for loops */
    VkCommandPool commands;
    VkCommandBuffer run, reset; /* reset: gives the states their first values */
    VkCommandBuffer command;    /* the one that is recorded */
    VkFence fence;

    /* While recording: */
    Access accesses[MAX_ACCESSES];
    uint32_t n_accesses, n_launches, n_barriers;
    uint32_t bound_kernel;
    const mlcc_gpu_step *bound_step;
} State;

/* What `open` can be told; tests use it. */
typedef struct Options {
    const char *loader;
    int stage;
} Options;

/* ---- Memory ---- */

enum {
    LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    SHARED = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT
};

/* Memory of type `type` for a block; mapped if `map`. VK_ERROR_... if there is not enough. */
static VkResult allocate(State *state, Block *block, uint64_t bytes, uint32_t type, int map) {
    Gpu *gpu = &state->gpu;
    const mlcc_vk *vk = &gpu->vk;
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = bytes,
                                 .memoryTypeIndex = type};
    VkResult result = vk->vkAllocateMemory(gpu->device, &info, NULL, &block->memory);
    void *host = NULL;
    if (result == VK_SUCCESS && map)
        result = vk->vkMapMemory(gpu->device, block->memory, 0, bytes, 0, &host);
    if (result == VK_SUCCESS) {
        block->host = host;
    } else {
        if (block->memory) vk->vkFreeMemory(gpu->device, block->memory, NULL);
        block->memory = 0;
    }
    return result;
}

/* A buffer of `bytes` bytes in the first kind of memory of `wishes` (sets of properties, ended by
 * 0) that the device has and has enough of. It is mapped if the wish says
 * SHARED. The buffer is a little larger: a tensor without elements may lie behind the last byte,
 * and Vulkan wants a byte there. */
static int create_block(State *state, Block *block, uint64_t bytes, const VkFlags *wishes,
                        const char *what) {
    Gpu *gpu = &state->gpu;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = mlcc_gpu_round(bytes) + MLCC_GPU_ALIGN,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    char about[96];
    snprintf(about, sizeof about, "%llu bytes for %s", (unsigned long long)info.size, what);
    VkResult result = gpu->vk.vkCreateBuffer(gpu->device, &info, NULL, &block->buffer);
    if (result != VK_SUCCESS) return call_failed(gpu, "vkCreateBuffer", result, about);
    block->bytes = info.size;
    VkMemoryRequirements needs;
    gpu->vk.vkGetBufferMemoryRequirements(gpu->device, block->buffer, &needs);
    result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    for (; *wishes && result != VK_SUCCESS; wishes++) {
        uint32_t type = 0;
        /* Types with further properties (lazy, protected, uncached) are for other uses. */
        const VkFlags known = LOCAL | SHARED | CACHED;
        for (; type < gpu->memory.memoryTypeCount; type++) {
            VkFlags flags = gpu->memory.memoryTypes[type].propertyFlags;
            if ((needs.memoryTypeBits >> type & 1) && (flags & *wishes) == *wishes &&
                !(flags & ~known))
                break;
        }
        if (type < gpu->memory.memoryTypeCount &&
            !(state->stage && (*wishes & LOCAL) && (*wishes & SHARED)))
            result = allocate(state, block, needs.size, type, (*wishes & SHARED) != 0);
    }
    if (result != VK_SUCCESS) return call_failed(gpu, "vkAllocateMemory", result, about);
    VK(vkBindBufferMemory(gpu->device, block->buffer, block->memory, 0));
    return MLCC_OK;
}

static void destroy_block(State *state, Block *block) {
    Gpu *gpu = &state->gpu;
    if (block->buffer) gpu->vk.vkDestroyBuffer(gpu->device, block->buffer, NULL);
    if (block->memory) gpu->vk.vkFreeMemory(gpu->device, block->memory, NULL);
    memset(block, 0, sizeof *block);
}

static const VkFlags wish_upload[] = {SHARED, 0};
static const VkFlags wish_download[] = {SHARED | CACHED, SHARED, 0};

/* Gives each of `n` tensors its place in a block; returns the block's size. */
static uint64_t place_tensors(uint64_t *places, const mlcc_tensor *tensors, uint32_t n) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        places[i] = bytes;
        bytes += mlcc_gpu_round(tensors[i].bytes);
    }
    return bytes;
}

/* All buffers; staging ones where the host cannot reach inputs or outputs. Outputs are read by the
 * host, which is slow without a cache, so those without one are staged as well. */
static int create_blocks(State *state) {
    Gpu *gpu = &state->gpu;
    static const VkFlags local[] = {LOCAL, SHARED, 0};
    static const VkFlags upload[] = {LOCAL | SHARED, LOCAL, SHARED, 0};
    static const VkFlags download[] = {LOCAL | SHARED | CACHED, LOCAL, SHARED, 0};
    const mlcc_model *model = gpu->program->model;
    /* The window through which the host reaches a graphics card can be small: it is kept for
     * tensors that move at every run. */
    int discrete =
        gpu->facts.properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    state->places = calloc((size_t)model->n_inputs + model->n_outputs + 1, sizeof *state->places);
    if (!state->places) return out_of_memory(gpu);
    uint64_t in = place_tensors(state->places, model->inputs, model->n_inputs);
    uint64_t out = place_tensors(state->places + model->n_inputs, model->outputs, model->n_outputs);
    Block *blocks = state->blocks;
    TRY(create_block(state, &blocks[MLCC_SPACE_INPUT], in, upload, "inputs"));
    TRY(create_block(state, &blocks[MLCC_SPACE_OUTPUT], out, download, "outputs"));
    TRY(create_block(state, &blocks[MLCC_SPACE_ARENA], gpu->program->arena_bytes, local,
                     "intermediate tensors"));
    if (model->state_bytes)
        TRY(create_block(state, &blocks[MLCC_SPACE_STATE], model->state_bytes, local, "states"));
    TRY(create_block(state, &blocks[MLCC_SPACE_WEIGHTS], model->weight_bytes,
                     discrete ? local : upload, "weights"));
    if (!blocks[MLCC_SPACE_INPUT].host)
        TRY(create_block(state, &state->staging[0], in, wish_upload, "staged inputs"));
    if (!blocks[MLCC_SPACE_OUTPUT].host)
        TRY(create_block(state, &state->staging[1], out, wish_download, "staged outputs"));
    return MLCC_OK;
}

/* ---- Commands ---- */

static int create_commands(State *state) {
    Gpu *gpu = &state->gpu;
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = gpu->facts.family};
    VK(vkCreateCommandPool(gpu->device, &pool, NULL, &state->commands));
    VkCommandBufferAllocateInfo command = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                           .commandPool = state->commands,
                                           .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                           .commandBufferCount = 1};
    VK(vkAllocateCommandBuffers(gpu->device, &command, &state->run));
    VK(vkAllocateCommandBuffers(gpu->device, &command, &state->reset));
    state->command = state->run;
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VK(vkCreateFence(gpu->device, &fence, NULL, &state->fence));
    return MLCC_OK;
}

static int begin(State *state) {
    Gpu *gpu = &state->gpu;
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VK(vkBeginCommandBuffer(state->command, &info));
    return MLCC_OK;
}

/* Runs recorded commands to their end. */
static int submit(State *state, VkCommandBuffer command) {
    Gpu *gpu = &state->gpu;
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &command};
    VK(vkResetFences(gpu->device, 1, &state->fence));
    VK(vkQueueSubmit(gpu->queue, 1, &info, state->fence));
    VK(vkWaitForFences(gpu->device, 1, &state->fence, 1, UINT64_MAX));
    return MLCC_OK;
}

static void barrier(State *state, VkFlags from_stage, VkFlags from, VkFlags to_stage, VkFlags to) {
    VkMemoryBarrier memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = from, .dstAccessMask = to};
    state->gpu.vk.vkCmdPipelineBarrier(state->command, from_stage, to_stage, 0, 1, &memory, 0, NULL,
                                       0, NULL);
}

static void copy(State *state, const Block *from, const Block *to, uint64_t offset,
                 uint64_t bytes) {
    VkBufferCopy region = {.dstOffset = offset, .size = bytes};
    state->gpu.vk.vkCmdCopyBuffer(state->command, from->buffer, to->buffer, 1, &region);
}

/* Moves the weights to the device piece by piece through a staging buffer. */
static int upload_staged(State *state, const unsigned char *weights, Block *window) {
    Gpu *gpu = &state->gpu;
    const uint64_t bytes = gpu->program->model->weight_bytes;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t piece = bytes - done < UPLOAD_BYTES ? bytes - done : UPLOAD_BYTES;
        memcpy(window->host, weights + done, (size_t)piece);
        TRY(begin(state));
        copy(state, window, &state->blocks[MLCC_SPACE_WEIGHTS], done, piece);
        barrier(state, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
                VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT);
        VK(vkEndCommandBuffer(state->command));
        TRY(submit(state, state->command));
        done += piece;
    }
    return MLCC_OK;
}

static int upload_weights(State *state, const char *path) {
    Gpu *gpu = &state->gpu;
    const uint64_t bytes = gpu->program->model->weight_bytes;
    mlcc_gpu_weights weights;
    TRY(mlcc_gpu_weights_load(gpu->program, path, &weights, &gpu->message));
    int code = MLCC_OK;
    if (!bytes) {
    } else if (state->blocks[MLCC_SPACE_WEIGHTS].host) {
        memcpy(state->blocks[MLCC_SPACE_WEIGHTS].host, weights.bytes, (size_t)bytes);
    } else {
        Block window = {0};
        code = create_block(state, &window, bytes < UPLOAD_BYTES ? bytes : UPLOAD_BYTES,
                            wish_upload, "staged weights");
        if (code == MLCC_OK) code = upload_staged(state, weights.bytes, &window);
        destroy_block(state, &window);
    }
    mlcc_gpu_weights_free(&weights);
    return code;
}

/* ---- Kernels ---- */

static int create_pipeline(State *state, const mlcc_gpu_kernel *source, Kernel *kernel) {
    Gpu *gpu = &state->gpu;
    VkShaderModuleCreateInfo module_info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                            .codeSize = source->spirv_bytes,
                                            .pCode = source->spirv};
    VkShaderModule module = 0;
    VkResult result = gpu->vk.vkCreateShaderModule(gpu->device, &module_info, NULL, &module);
    if (result != VK_SUCCESS) return call_failed(gpu, "vkCreateShaderModule", result, source->name);
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main"},
        .layout = kernel->layout,
        .basePipelineIndex = -1};
    result = gpu->vk.vkCreateComputePipelines(gpu->device, state->cache, 1, &info, NULL,
                                              &kernel->pipeline);
    gpu->vk.vkDestroyShaderModule(gpu->device, module, NULL);
    if (result != VK_SUCCESS)
        return call_failed(gpu, "vkCreateComputePipelines", result, source->name);
    return MLCC_OK;
}

static int create_kernel(State *state, const mlcc_gpu_kernel *source, Kernel *kernel) {
    Gpu *gpu = &state->gpu;
    VkDescriptorSetLayoutBinding bindings[MAX_BUFFERS];
    for (uint32_t i = 0; i < source->n_args; i++)
        bindings[i] =
            (VkDescriptorSetLayoutBinding){.binding = i,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .descriptorCount = 1,
                                           .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    VkDescriptorSetLayoutCreateInfo set = {.sType =
                                               VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                           .bindingCount = source->n_args,
                                           .pBindings = bindings};
    VK(vkCreateDescriptorSetLayout(gpu->device, &set, NULL, &kernel->bindings));
    VkPushConstantRange scalars = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                   .size = source->n_scalars * (uint32_t)sizeof(int32_t)};
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = 1,
                                         .pSetLayouts = &kernel->bindings,
                                         .pushConstantRangeCount = source->n_scalars > 0,
                                         .pPushConstantRanges = &scalars};
    VK(vkCreatePipelineLayout(gpu->device, &layout, NULL, &kernel->layout));
    return create_pipeline(state, source, kernel);
}

static int create_kernels(State *state) {
    Gpu *gpu = &state->gpu;
    const mlcc_gpu_program *program = gpu->program;
    state->kernels = calloc((size_t)program->n_kernels + 1, sizeof *state->kernels);
    if (!state->kernels) return out_of_memory(gpu);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    VK(vkCreatePipelineCache(gpu->device, &info, NULL, &state->cache));
    for (uint32_t i = 0; i < program->n_kernels; i++)
        TRY(create_kernel(state, &program->kernels[i], &state->kernels[i]));
    return MLCC_OK;
}

/* ---- Descriptor sets: one for each launch step, whatever loops are around it ---- */

static uint64_t arg_begin(const State *state, const mlcc_gpu_arg *arg) {
    uint64_t place = 0;
    if (arg->space == MLCC_SPACE_INPUT) place = state->places[arg->index];
    if (arg->space == MLCC_SPACE_OUTPUT)
        place = state->places[state->gpu.program->model->n_inputs + arg->index];
    return place + arg->offset;
}

static int create_set(State *state, const mlcc_gpu_step *step, VkDescriptorSet *set) {
    Gpu *gpu = &state->gpu;
    const uint32_t n = gpu->program->kernels[step->kernel].n_args;
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .descriptorPool = state->pool,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &state->kernels[step->kernel].bindings};
    VK(vkAllocateDescriptorSets(gpu->device, &info, set));
    VkDescriptorBufferInfo buffers[MAX_BUFFERS];
    VkWriteDescriptorSet writes[MAX_BUFFERS];
    for (uint32_t i = 0; i < n; i++) {
        const mlcc_gpu_arg *arg = &gpu->program->args[step->first_arg + i];
        /* Whole words, so that a kernel may load the last bytes of a tensor of small elements as
         * one; spaces are padded for that. A tensor without elements gets a word too: 0 is not
         * allowed. */
        buffers[i] = (VkDescriptorBufferInfo){.buffer = state->blocks[arg->space].buffer,
                                              .offset = arg_begin(state, arg),
                                              .range = arg->bytes ? (arg->bytes + 3) / 4 * 4 : 4};
        writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                           .dstSet = *set,
                                           .dstBinding = i,
                                           .descriptorCount = 1,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .pBufferInfo = &buffers[i]};
    }
    if (n) gpu->vk.vkUpdateDescriptorSets(gpu->device, n, writes, 0, NULL);
    return MLCC_OK;
}

static int create_sets(State *state) {
    Gpu *gpu = &state->gpu;
    const mlcc_gpu_program *program = gpu->program;
    uint32_t n_sets = 1, n_buffers = 1; /* the pool may not be empty */
    for (uint32_t i = 0; i < program->n_steps; i++) {
        if (program->steps[i].kind != MLCC_STEP_LAUNCH) continue;
        n_sets++;
        n_buffers += program->kernels[program->steps[i].kernel].n_args;
    }
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, n_buffers};
    VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .maxSets = n_sets,
                                       .poolSizeCount = 1,
                                       .pPoolSizes = &size};
    VK(vkCreateDescriptorPool(gpu->device, &info, NULL, &state->pool));
    state->sets = calloc((size_t)program->n_steps + 1, sizeof *state->sets);
    if (!state->sets) return out_of_memory(gpu);
    for (uint32_t i = 0; i < program->n_steps; i++)
        if (program->steps[i].kind == MLCC_STEP_LAUNCH)
            TRY(create_set(state, &program->steps[i], &state->sets[i]));
    return MLCC_OK;
}

/* ---- Recording ---- */

/* Whether a launch must wait for one since the last barrier: they share bytes, and one writes. */
static int conflicts(const State *state, const Access *access) {
    for (uint32_t i = 0; i < state->n_accesses; i++) {
        const Access *before = &state->accesses[i];
        if ((before->writes || access->writes) && before->space == access->space &&
            before->begin < access->end && access->begin < before->end)
            return 1;
    }
    return 0;
}

/* Records a barrier if the launch needs one, and remembers what the launch touches. A barrier
 * orders all that came before it, so what came before is forgotten then; it is also recorded when
 * the memory is full, which bounds the work a launch takes. */
static void order_launch(State *state, const mlcc_gpu_step *step) {
    Gpu *gpu = &state->gpu;
    const mlcc_gpu_kernel *kernel = &gpu->program->kernels[step->kernel];
    Access touched[MAX_BUFFERS];
    uint32_t n = 0;
    int wait = 0;
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        const mlcc_gpu_arg *arg = &gpu->program->args[step->first_arg + i];
        uint64_t from = arg_begin(state, arg);
        Access access = {arg->space, kernel->write_mask >> i & 1, from, from + arg->bytes};
        if (access.space == MLCC_SPACE_INPUT || access.space == MLCC_SPACE_WEIGHTS) continue;
        wait |= conflicts(state, &access);
        touched[n++] = access;
    }
    if (wait || state->n_accesses + n > MAX_ACCESSES) {
        barrier(state, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
        state->n_accesses = 0;
        state->n_barriers++;
    }
    memcpy(state->accesses + state->n_accesses, touched, n * sizeof *touched);
    state->n_accesses += n;
}

static int count_launch(void *user, const mlcc_gpu_step *step, const int32_t *scalars) {
    State *state = user;
    (void)step, (void)scalars;
    if (++state->n_launches <= MAX_LAUNCHES) return MLCC_OK;
    return mlcc_gpu_fail(&state->gpu.message, MLCC_E_MEMORY,
                         "with its loops unrolled the model launches more than %d kernels",
                         MAX_LAUNCHES);
}

static int record_launch(void *user, const mlcc_gpu_step *step, const int32_t *scalars) {
    State *state = user;
    const Gpu *gpu = &state->gpu;
    const mlcc_vk *vk = &gpu->vk;
    const Kernel *kernel = &state->kernels[step->kernel];
    const uint32_t n_scalars = gpu->program->kernels[step->kernel].n_scalars;
    order_launch(state, step);
    if (state->bound_kernel != step->kernel)
        vk->vkCmdBindPipeline(state->command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->pipeline);
    if (state->bound_step != step)
        vk->vkCmdBindDescriptorSets(state->command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->layout,
                                    0, 1, &state->sets[step - gpu->program->steps], 0, NULL);
    state->bound_kernel = step->kernel;
    state->bound_step = step;
    if (n_scalars)
        vk->vkCmdPushConstants(state->command, kernel->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                               n_scalars * (uint32_t)sizeof *scalars, scalars);
    vk->vkCmdDispatch(state->command, step->grid[0], step->grid[1], step->grid[2]);
    return MLCC_OK;
}

/* What writes to states. */
#define WRITERS (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)

/* Records what gives the states their first values: zeros, then what the weights have of them. */
static int record_reset(State *state) {
    Gpu *gpu = &state->gpu;
    const mlcc_gpu_program *program = gpu->program;
    const Block *kept = &state->blocks[MLCC_SPACE_STATE];
    state->command = state->reset;
    TRY(begin(state));
    barrier(state, WRITERS, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_TRANSFER_BIT,
            VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    gpu->vk.vkCmdFillBuffer(state->command, kept->buffer, 0, kept->bytes, 0);
    barrier(state, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT);
    for (uint32_t i = 0; i < program->n_initial; i++) {
        const mlcc_gpu_copy *initial = &program->initial[i];
        VkBufferCopy region = {
            .srcOffset = initial->initial, .dstOffset = initial->offset, .size = initial->bytes};
        gpu->vk.vkCmdCopyBuffer(state->command, state->blocks[MLCC_SPACE_WEIGHTS].buffer,
                                kept->buffer, 1, &region);
    }
    VK(vkEndCommandBuffer(state->command));
    return submit(state, state->reset);
}

/* Records the whole program. What the host writes before a submit is visible to it without a
 * barrier; what it reads after one is not. */
static int record(State *state) {
    Gpu *gpu = &state->gpu;
    state->bound_kernel = UINT32_MAX;
    state->command = state->run;
    TRY(mlcc_gpu_walk(gpu->program, count_launch, state, &gpu->message));
    TRY(begin(state));
    if (gpu->program->model->state_bytes) /* what the run before, or a reset, left */
        barrier(state, WRITERS, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    if (state->staging[0].buffer) {
        copy(state, &state->staging[0], &state->blocks[MLCC_SPACE_INPUT], 0,
             state->staging[0].bytes);
        barrier(state, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
                VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT);
    }
    TRY(mlcc_gpu_walk(gpu->program, record_launch, state, &gpu->message));
    if (state->staging[1].buffer) {
        barrier(state, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_READ_BIT);
        copy(state, &state->blocks[MLCC_SPACE_OUTPUT], &state->staging[1], 0,
             state->staging[1].bytes);
        barrier(state, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
                VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    } else {
        barrier(state, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    }
    VK(vkEndCommandBuffer(state->command));
    return MLCC_OK;
}

/* ---- What the model's descriptor points to ---- */

static int open_steps(State *state, const char *weights, const Options *options) {
    TRY(gpu_open(&state->gpu, options->loader));
    TRY(create_commands(state));
    TRY(create_blocks(state));
    TRY(upload_weights(state, weights));
    TRY(create_kernels(state));
    TRY(create_sets(state));
    TRY(record(state));
    if (state->gpu.program->model->state_bytes) TRY(record_reset(state));
    state->ready = 1;
    return MLCC_OK;
}

static int open_program(void **result, const mlcc_gpu_program *program, const char *weights,
                        const Options *options) {
    if (!result) return MLCC_E_ARGUMENT;
    State *state = calloc(1, sizeof *state);
    *result = state;
    if (!state) return MLCC_E_MEMORY;
    state->gpu.program = program;
    state->stage = options->stage;
    return open_steps(state, weights, options);
}

int mlcc_gpu_open(void **state, const char *weights) {
    const Options options = {"libvulkan.so.1", 0};
    return open_program(state, &mlcc_program, weights, &options);
}

int mlcc_gpu_run(void *opaque, const void *const *inputs, void *const *outputs, void *arena) {
    State *state = opaque;
    (void)arena;
    if (!state) return MLCC_E_ARGUMENT;
    if (!state->ready) return MLCC_E_DRIVER; /* the message of `open` stays */
    const mlcc_model *model = state->gpu.program->model;
    TRY(mlcc_gpu_check_run(model, inputs, outputs, &state->gpu.message));
    unsigned char *in = state->blocks[MLCC_SPACE_INPUT].host;
    if (!in) in = state->staging[0].host;
    for (uint32_t i = 0; i < model->n_inputs; i++)
        if (model->inputs[i].bytes)
            memcpy(in + state->places[i], inputs[i], mlcc_gpu_input_bytes(model, inputs, i));
    TRY(submit(state, state->run));
    const unsigned char *out = state->blocks[MLCC_SPACE_OUTPUT].host;
    if (!out) out = state->staging[1].host;
    const uint64_t *places = state->places + model->n_inputs;
    for (uint32_t i = 0; i < model->n_outputs; i++)
        if (model->outputs[i].bytes)
            memcpy(outputs[i], out + places[i], (size_t)model->outputs[i].bytes);
    return mlcc_gpu_status(model, outputs, &state->gpu.message);
}

int mlcc_gpu_reset(void *opaque) {
    State *state = opaque;
    if (!state) return MLCC_E_ARGUMENT;
    if (!state->ready) return MLCC_E_DRIVER; /* the message of `open` stays */
    return state->gpu.program->model->state_bytes ? submit(state, state->reset) : MLCC_OK;
}

/* Gives back what was created on the device. The command pool comes first of all: without it there
 * is nothing else. Destroying a handle that is 0 is allowed and does nothing. */
static void destroy_objects(State *state) {
    Gpu *gpu = &state->gpu;
    const mlcc_vk *vk = &gpu->vk;
    if (!state->commands) return;
    vk->vkDeviceWaitIdle(gpu->device);
    for (int i = 0; i < 5; i++) destroy_block(state, &state->blocks[i]);
    for (int i = 0; i < 2; i++) destroy_block(state, &state->staging[i]);
    for (uint32_t i = 0; state->kernels && i < gpu->program->n_kernels; i++) {
        vk->vkDestroyPipeline(gpu->device, state->kernels[i].pipeline, NULL);
        vk->vkDestroyPipelineLayout(gpu->device, state->kernels[i].layout, NULL);
        vk->vkDestroyDescriptorSetLayout(gpu->device, state->kernels[i].bindings, NULL);
    }
    vk->vkDestroyPipelineCache(gpu->device, state->cache, NULL);
    vk->vkDestroyDescriptorPool(gpu->device, state->pool, NULL);
    vk->vkDestroyFence(gpu->device, state->fence, NULL);
    vk->vkDestroyCommandPool(gpu->device, state->commands, NULL);
}

void mlcc_gpu_close(void *opaque) {
    State *state = opaque;
    if (!state) return;
    destroy_objects(state);
    gpu_close(&state->gpu);
    free(state->places);
    free(state->kernels);
    free(state->sets);
    free(state);
}

const char *mlcc_gpu_error(void *opaque) {
    const State *state = opaque;
    return state ? state->gpu.message.text : "out of host memory";
}
