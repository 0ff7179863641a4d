/* What a library says of its steps to be measured; see runtime/profile.h. */
#ifndef CODEGEN_PROFILE_H
#define CODEGEN_PROFILE_H

#include "ir/kernel.h"

/* Multiply-adds of the products that a launch sums up; and the bytes of the arguments that it uses
 * if loops repeat it so often: of one that it reads or writes at places that depend on the
 * iteration, all iterations have a part each. */
int64_t step_macs(const Step *step);
int64_t step_bytes(const Step *step, int64_t times);
/* The table `mlcc_steps_profile` of all launches in order. kernel_name: the functions'. */
void print_profile(const Program *p, const char *const *kernel_name, Text *out);

#endif
