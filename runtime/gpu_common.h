/* What every GPU launcher needs: the step walker, the weights' side file, one-line errors.
 *
 * Header-only C99, so that a launcher stays one C file that a model's `.so` is linked with. Nothing
 * here knows a driver.
 */
#ifndef MLCC_RUNTIME_GPU_COMMON_H
#define MLCC_RUNTIME_GPU_COMMON_H

#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loops nest no deeper than this; the compiler checks it. */
#define MLCC_GPU_MAX_DEPTH 16

/* A launcher's last failure: one line, without a newline. */
typedef struct mlcc_gpu_message {
    char text[384];
} mlcc_gpu_message;

/* Writes the line and returns `code`, so that a failing function ends in `return
 * mlcc_gpu_fail(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline int
mlcc_gpu_fail(mlcc_gpu_message *message, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message->text, sizeof message->text, format, args);
    va_end(args);
    return code;
}

/* Is there memory for every tensor, and every extent in its range? */
static inline int mlcc_gpu_check_run(const mlcc_model *model, const void *const *inputs,
                                     void *const *outputs, mlcc_gpu_message *message) {
    for (uint32_t i = 0; i < model->n_inputs; i++)
        if (model->inputs[i].bytes && (!inputs || !inputs[i]))
            return mlcc_gpu_fail(message, MLCC_E_ARGUMENT, "input '%s' is null",
                                 model->inputs[i].name);
    for (uint32_t i = 0; i < model->n_outputs; i++)
        if (model->outputs[i].bytes && (!outputs || !outputs[i]))
            return mlcc_gpu_fail(message, MLCC_E_ARGUMENT, "output '%s' is null",
                                 model->outputs[i].name);
    for (uint32_t i = 0; model->input_range && i < model->n_inputs; i++) {
        const mlcc_range range = model->input_range[i];
        int32_t extent = 0;
        if (range.high == 0) continue;
        memcpy(&extent, inputs[i], sizeof extent);
        if (extent < range.low || extent > range.high)
            return mlcc_gpu_fail(message, MLCC_E_ARGUMENT, "'%s' is %d, not in %d..%d",
                                 model->inputs[i].name, (int)extent, (int)range.low,
                                 (int)range.high);
    }
    return MLCC_OK;
}

/* What a run that came to its end returns: is what it was given too large for the model? */
static inline int mlcc_gpu_status(const mlcc_model *model, void *const *outputs,
                                  mlcc_gpu_message *message) {
    for (uint32_t i = 0; model->output_shape && i < model->n_outputs; i++) {
        int32_t status = 0;
        if (model->output_shape[i] != (int32_t)i) continue;
        memcpy(&status, outputs[i], sizeof status);
        if (status) return mlcc_gpu_fail(message, MLCC_E_EXTENT, "%s", model->faults[status - 1]);
    }
    return MLCC_OK;
}

/* How much input i holds: less than its size where dimensions vary. */
static inline size_t mlcc_gpu_input_bytes(const mlcc_model *model, const void *const *inputs,
                                          uint32_t i) {
    const mlcc_tensor *tensor = &model->inputs[i];
    const int32_t *const held = model->input_extents ? model->input_extents[i] : NULL;
    uint64_t bytes = tensor->bytes;
    for (uint32_t d = 0; held && d < tensor->rank && bytes; d++) {
        int32_t extent = 0;
        if (held[d] < 0) continue;
        memcpy(&extent, inputs[held[d]], sizeof extent);
        bytes = bytes / (uint64_t)tensor->shape[d] * (uint64_t)extent;
    }
    return (size_t)bytes;
}

/* FNV-1a, 64 bits, continued from `digest` (MLCC_GPU_DIGEST_SEED to begin). */
#define MLCC_GPU_DIGEST_SEED UINT64_C(0xcbf29ce484222325)
static inline uint64_t mlcc_gpu_digest(uint64_t digest, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* The weights of a program while they are uploaded. */
typedef struct mlcc_gpu_weights {
    const void *bytes; /* model->weight_bytes bytes; NULL if the model has none */
    void *owned; /* what mlcc_gpu_weights_free gives back; NULL if they are inside the library */
} mlcc_gpu_weights;

static inline void mlcc_gpu_weights_free(mlcc_gpu_weights *weights) {
    free(weights->owned);
    weights->owned = NULL;
    weights->bytes = NULL;
}

/* Reads and checks an open side file; see mlcc_gpu_weights_load. */
static inline int mlcc_gpu_weights_read(const mlcc_gpu_program *program, FILE *file,
                                        const char *path, mlcc_gpu_weights *weights,
                                        mlcc_gpu_message *message) {
    unsigned char head[MLCC_GPU_WEIGHTS_HEAD];
    if (fread(head, 1, sizeof head, file) != sizeof head || memcmp(head, "MLCCWTS2", 8) != 0)
        return mlcc_gpu_fail(message, MLCC_E_FILE, "'%s' is not an mlcc weights file", path);
    uint64_t digest = 0;
    for (int i = 7; i >= 0; i--) digest = digest << 8 | head[8 + i];
    if (digest != program->weights_digest)
        return mlcc_gpu_fail(message, MLCC_E_FILE,
                             "'%s' belongs to another model than '%s': its digest is %016llx, not "
                             "%016llx",
                             path, program->model->name, (unsigned long long)digest,
                             (unsigned long long)program->weights_digest);
    const uint64_t wanted = program->model->weight_bytes;
    if (wanted > SIZE_MAX - 1)
        return mlcc_gpu_fail(message, MLCC_E_MEMORY, "the weights do not fit this machine");
    weights->owned = malloc((size_t)wanted + 1);
    if (!weights->owned)
        return mlcc_gpu_fail(message, MLCC_E_MEMORY, "no memory for %llu bytes of weights",
                             (unsigned long long)wanted);
    /* One byte more than wanted is asked for, so that a file that is too long is seen as well. */
    if (fread(weights->owned, 1, (size_t)wanted + 1, file) != wanted)
        return mlcc_gpu_fail(message, MLCC_E_FILE, "'%s' does not hold %llu bytes of weights", path,
                             (unsigned long long)wanted);
    if (mlcc_gpu_digest(MLCC_GPU_DIGEST_SEED, weights->owned, (size_t)wanted) != digest)
        return mlcc_gpu_fail(message, MLCC_E_FILE, "'%s' is damaged: its digest does not fit",
                             path);
    weights->bytes = weights->owned;
    return MLCC_OK;
}

/* Finds the weights: inside the program, or in the side file `path` (may be NULL), which is read
 * whole and checked (magic, the model's digest, length, content). Returns MLCC_OK or, with a line
 * in `message`, MLCC_E_FILE or MLCC_E_MEMORY. After success the caller uploads and then frees. */
static inline int mlcc_gpu_weights_load(const mlcc_gpu_program *program, const char *path,
                                        mlcc_gpu_weights *weights, mlcc_gpu_message *message) {
    weights->owned = NULL;
    weights->bytes = program->model->weight_bytes ? program->weights : NULL;
    if (weights->bytes || !program->model->weight_bytes) return MLCC_OK;
    if (!path)
        return mlcc_gpu_fail(message, MLCC_E_FILE,
                             "model '%s' keeps its weights in a side file: pass its path to open",
                             program->model->name);
    FILE *file = fopen(path, "rb");
    if (!file) return mlcc_gpu_fail(message, MLCC_E_FILE, "cannot open weights file '%s'", path);
    int code = mlcc_gpu_weights_read(program, file, path, weights, message);
    fclose(file);
    if (code != MLCC_OK) mlcc_gpu_weights_free(weights);
    return code;
}

/* Called for one launch, in order. scalars[i] is what the kernel's scalar `i` receives. Anything
 * but MLCC_OK ends the walk. */
typedef int (*mlcc_gpu_launch)(void *user, const mlcc_gpu_step *step, const int32_t *scalars);

/* Walks the steps of `program`, loops unrolled, and calls `launch` for each launch. Returns
 * MLCC_OK, what `launch` returned, or MLCC_E_DEVICE if the steps are ill-formed (which is a
 * compiler bug). */
static inline int mlcc_gpu_walk(const mlcc_gpu_program *program, mlcc_gpu_launch launch, void *user,
                                mlcc_gpu_message *message) {
    uint32_t start[MLCC_GPU_MAX_DEPTH] = {0}; /* index of the step after each open LOOP */
    int32_t counter[MLCC_GPU_MAX_DEPTH] = {0};
    int32_t scalars[MLCC_GPU_MAX_SCALARS] = {0};
    uint32_t depth = 0;
    for (uint32_t i = 0; i < program->n_steps; i++) {
        const mlcc_gpu_step *step = &program->steps[i];
        if (step->kind == MLCC_STEP_LAUNCH) {
            for (uint32_t s = 0; s < program->kernels[step->kernel].n_scalars; s++) {
                if (s >= MLCC_GPU_MAX_SCALARS || step->scalar[s] >= depth) goto ill_formed;
                scalars[s] = counter[step->scalar[s]];
            }
            int code = launch(user, step, scalars);
            if (code != MLCC_OK) return code;
        } else if (step->kind == MLCC_STEP_LOOP && step->trips > 0) {
            if (depth == MLCC_GPU_MAX_DEPTH) goto ill_formed;
            start[depth] = i + 1;
            counter[depth++] = 0;
        } else if (step->kind == MLCC_STEP_LOOP) {
            /* No trip at all: on to the END that belongs to this LOOP. */
            for (uint32_t open = 1; open > 0;) {
                if (++i >= program->n_steps) goto ill_formed;
                open += program->steps[i].kind == MLCC_STEP_LOOP;
                open -= program->steps[i].kind == MLCC_STEP_END;
            }
        } else {
            if (depth == 0 || start[depth - 1] == 0) goto ill_formed;
            /* The LOOP's own step tells how often; `i` goes back to it, and ++ moves past it. */
            const uint32_t loop = start[depth - 1] - 1;
            if ((uint32_t)++counter[depth - 1] < program->steps[loop].trips)
                i = loop;
            else
                depth--;
        }
    }
    if (depth == 0) return MLCC_OK;
ill_formed:
    return mlcc_gpu_fail(message, MLCC_E_DEVICE, "the steps of model '%s' are ill-formed",
                         program->model->name);
}

/* The tensor that an INPUT or OUTPUT argument lies in has its own buffer, whose size is the
 * tensor's, rounded up so that vector loads of a whole row stay inside. */
static inline uint64_t mlcc_gpu_round(uint64_t bytes) {
    return (bytes + MLCC_GPU_ALIGN - 1) / MLCC_GPU_ALIGN * MLCC_GPU_ALIGN;
}

#endif
