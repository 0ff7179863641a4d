/* Which steps of a program are worth sharing among threads, by a model of two. */
#ifndef CODEGEN_SHARE_GAIN_H
#define CODEGEN_SHARE_GAIN_H

#include "ir/kernel.h"

/* About how many cycles a launch takes. */
double share_cycles(Arena *arena, const Kernel *k, int lanes);

/* Of each step how threads should share it: 0: they should not, else 1 + the way (share_ways.h); 1
 * for loops. A kernel's launches are all alike, but for those in loops whose iterations are apart
 * (Step.apart), which the loop's step speaks for. ways: of each step in how many they may share it,
 * lanes: of vectors of the processor. In the program's arena. */
int *share_gain(const Program *p, const int *ways, int lanes);

#endif
