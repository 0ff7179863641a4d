/* Which elements of constant columns are multiplied in which sums of 16 bits, chosen for each
 * column: where an instruction moves bytes of a row within a window for each lane, nothing asks
 * that those side by side be added. */
#ifndef PASSES_DEAL_H
#define PASSES_DEAL_H

#include "ir/arena.h"
#include "ir/target.h"

#define FEW        BYTES_AT_ONCE /* bytes of a lane */
#define MOST_LANES 16            /* of words in a vector */
#define SUM_MOST   128           /* that columns of a sum of 16 bits come to: 255 * 128 < 2^15 */

/* Two fours of a vector of columns: the sums of weight * row[place + to] over the first two of
 * both, and over the last two, fit into 16 bits for rows of any unsigned bytes. `place` is where a
 * window of BYTES_WINDOW elements begins, no earlier than the last step's. */
typedef struct DealtStep {
    int64_t place;
    uint8_t to[2][MOST_LANES][FEW];
    int8_t weight[2][MOST_LANES][FEW];
} DealtStep;

typedef VEC(DealtStep) DealtSteps;

/* Appends steps that all elements of so many columns, weight[column * depth + element], are dealt
 * to. depth: BYTES_WINDOW at least. */
void deal_columns(Arena *arena, const int8_t *weight, int columns, int64_t depth,
                  DealtSteps *steps);

/* The steps of blocks of columns, one for each lane. Once all are there they are tables, `place`
 * [blocks, most], `to` and `weight` [blocks, most, 2, lanes, FEW]; the last steps of some
 * blocks do nothing. */
typedef struct Dealt {
    int lanes;
    int64_t depth, blocks;
    int64_t n;         /* blocks that are there, */
    int64_t most, all; /* steps of one of them, and of all, */
    int64_t room;      /* and how many there is place for in each */
    int32_t *place;
    uint8_t *to;
    int8_t *weight;
    DealtSteps steps;
} Dealt;

/* Deals the next block, weight[lane * depth + element]. Before the first, *d has lanes, depth and
 * blocks and is 0. */
void deal_block(Arena *arena, Dealt *d, const int8_t *weight);

#endif
