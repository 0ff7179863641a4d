/* Who touched an element of shared memory last: the race detector of the kernel interpreter. */
#ifndef IR_INTERP_RACE_H
#define IR_INTERP_RACE_H

#include "ir/interp.h"
#include "ir/tape.h"

typedef struct Race Race;

Race *race_new(Arena *arena, const Kernel *k);
void race_begin_block(Race *race, int64_t block);
/* What was done before is seen by all threads of the block from here on; `global`: what they did to
 * parameters, too. */
void race_barrier(Race *race, bool global);
/* Lane i is thread first + i. */
void race_set_first(Race *race, int64_t first);
/* The buffer has new memory. */
void race_forget(Race *race, int buffer);
/* Notes an access; NULL, or what is wrong with it. */
const char *race_read(Race *race, int buffer, int64_t element, int lane);
const char *race_write(Race *race, int buffer, int64_t element, int lane, Scalar value);

#endif
