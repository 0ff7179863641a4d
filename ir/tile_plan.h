/* Tiles of products that matrix units multiply.
 *
 * Which registers of a matrix unit hold the tiles of a product: Intel's AMX (Software Developer's
 * Manual, volume 1, chapter 18) has eight, of at most 16 rows of 16 words of 32 bits.
 *
 * The accumulators are a grid of pieces of rows and pieces of columns. All of them stay in
 * registers over the depth; so do, for a step of it, the operand's tiles of which there are fewer,
 * and each of the others meets them all as soon as it is loaded.
 */
#ifndef IR_TILE_PLAN_H
#define IR_TILE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define TILE_SIDE      16 /* rows of a tile, and words of 32 bits in one of them */
#define TILE_REGISTERS 8

/* Of a device: threads of a warp along x and y, the sums that one instruction adds to, and the
 * bytes of each row and column that are loaded for two instructions (runtime/cuda_intrin.h). */
#define WARP_X       4
#define WARP_Y       8
#define WARP_ROWS    16
#define WARP_COLUMNS 8
#define WARP_BYTES   64

typedef struct TilePieces {
    int n;
    int extent[TILE_REGISTERS];
    int reg[TILE_REGISTERS];
} TilePieces;

typedef struct TilePlan {
    TilePieces rows, columns; /* register of sums: row piece * columns.n + column piece */
} TilePlan;

/* `times` stretches of `extent` in pieces of at most a tile's side, of about the same size:
 * multiples of `unit`, but for the last of a stretch. False if there are too many. */
bool tile_pieces(int64_t times, int64_t extent, int unit, TilePieces *pieces);
/* Assigns registers. False if there are too few, or pieces would share one that differ in size. */
bool tile_plan(TilePlan *plan);

/* Of the rows of a stretch, how many are finished together, in as many vectors as are narrowed at
 * once, or a few more: a divisor of their number. */
int64_t tile_part(int64_t rows, int64_t columns);

#endif
