/* The time of each step of a model, as `mlcc bench` has it measured.
 *
 * A library that was made for this exports mlcc_profile_v1 besides its descriptor. While `on`, the
 * first thread of a run notes when each step begins; what passes until the next one begins is added
 * to the step's time. One run at a time.
 */
#ifndef MLCC_PROFILE_H
#define MLCC_PROFILE_H

#include "mlcc/model.h"

typedef struct mlcc_profile_row {
    const char *kernel, *nodes; /* the function, the ONNX nodes it computes */
    uint64_t times;             /* that it is launched in a run; macs and bytes are of all these */
    uint64_t macs;              /* multiply-adds of its products */
    uint64_t bytes;             /* of its arguments, each read or written once */
    uint64_t key;               /* that schedules of its operator have in a file; 0: it has none */
} mlcc_profile_row;

typedef struct mlcc_profile {
    uint32_t struct_bytes, n_steps;
    const mlcc_profile_row *rows; /* of each step */
    uint64_t *nanoseconds;        /* spent in each, added up; to be set to 0 before a run */
    int32_t on, step;             /* step: the one at work, -1: none */
    uint64_t since;
} mlcc_profile;

mlcc_profile *mlcc_profile_v1(void);

/* For the model's code: `step` begins; -1: the run ends. */
#if defined(__GNUC__)
__attribute__((weak, visibility("hidden")))
#endif
void mlcc_profile_step(mlcc_profile *profile, int32_t step);

#endif
