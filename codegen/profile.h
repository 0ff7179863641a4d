/* What a library says of its steps to be measured; see runtime/profile.h. */
#ifndef CODEGEN_PROFILE_H
#define CODEGEN_PROFILE_H

#include "ir/kernel.h"

/* Multiply-adds of the products that a launch sums up, and the bytes of the arguments it uses. */
int64_t step_macs(const Step *step);
int64_t step_bytes(const Step *step);
/* The table `mlcc_steps_profile` of all launches in order. kernel_name: the functions'. */
void print_profile(const Program *p, const char *const *kernel_name, Text *out);

#endif
