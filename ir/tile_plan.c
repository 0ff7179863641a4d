/* See tile_plan.h. */
#include "ir/tile_plan.h"

bool tile_pieces(int64_t times, int64_t extent, int unit, TilePieces *pieces) {
    int64_t each = (extent + TILE_SIDE - 1) / TILE_SIDE;
    pieces->n = 0;
    if (extent < 1 || times < 1 || each * times > TILE_REGISTERS) return false;
    int64_t size = ((extent + each - 1) / each + unit - 1) / unit * unit;
    for (int64_t i = 0; i < times; i++)
        for (int64_t at = 0; at < extent; at += size)
            pieces->extent[pieces->n++] = (int)(at + size < extent ? size : extent - at);
    return true;
}

/* Pieces take turns in so many registers. */
static bool share_registers(TilePieces *pieces, int first, int count) {
    for (int i = 0; i < pieces->n; i++) {
        pieces->reg[i] = first + i % count;
        if (pieces->extent[i] != pieces->extent[i % count]) return false;
    }
    return true;
}

bool tile_plan(TilePlan *plan) {
    int sums = plan->rows.n * plan->columns.n;
    bool rows_stay = plan->rows.n <= plan->columns.n;
    TilePieces *stay = rows_stay ? &plan->rows : &plan->columns;
    TilePieces *pass = rows_stay ? &plan->columns : &plan->rows;
    int left = TILE_REGISTERS - sums - stay->n;
    return left > 0 && share_registers(stay, sums, stay->n) &&
           share_registers(pass, sums + stay->n, left);
}

#define PART_VECTORS 4

int64_t tile_part(int64_t rows, int64_t columns) {
    int64_t vectors = (columns + TILE_SIDE - 1) / TILE_SIDE, part = 1;
    for (int64_t r = 1; r <= rows && r <= TILE_SIDE; r++)
        if (rows % r == 0 && part * vectors < PART_VECTORS && r * vectors <= 2 * PART_VECTORS)
            part = r;
    return part;
}
