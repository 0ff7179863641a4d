/* The first schedule of a nest: inside of schedule.c and schedule_*.c, and for passes on graphs
 * (slice, cascade), into which tiles it divides products. */
#ifndef PASSES_SCHEDULE_H
#define PASSES_SCHEDULE_H

#include "passes/nest.h"

typedef struct Product {
    const Expr *body; /* the product */
    int row[MAX_RANK], n_row;       /* loops only factor 0 reads */
    int column[MAX_RANK], n_column; /* only factor 1 */
    int batch[MAX_RANK], n_batch;   /* both, or none */
    int depth[MAX_RANK], n_depth;
    int64_t rows, columns, batches, depths;
    bool moved; /* where rows lie behind what the body says, a table says for each of columns */
} Product;

/* What is row and column of the product `body`. */
void split_product(const Nest *n, const Expr *body, Product *m);
/* Reads the body as a product; false if it is none. */
bool find_product(Nest *n, Product *m);
/* The same product with rows for columns. */
Product transposed(const Product *m);
/* The schedule for a grid of blocks of threads. */
void schedule_blocks(Nest *n);
/* Of a product; narrow: see nest_warp_bytes; depth: the elements of its reduction. */
typedef struct ProductSize {
    DType dt;
    int narrow;
    int64_t rows, columns, batches, depth;
} ProductSize;

/* What a product costs on a device, in cycles, if it is cut into so many pieces of its depth which
 * are added up afterwards; infinite: products of such a type or with so few rows or columns are not
 * tiled. */
double product_cost(const Target *t, const ProductSize *s, int64_t pieces);

/* An accumulator tile of rows x columns; columns is a multiple of a vector where there is room. */
typedef struct Tile {
    int64_t rows, columns;
    int64_t lines; /* of an image, each of so many rows; 0 or 1: one */
    int repeats;   /* steps of the depth in an iteration (ROLE_repeat), as far as they divide it */
    bool turned;   /* the tiles come in the other order than the one that reads less */
    double cost;
} Tile;

#define MOST_TILES 24

/* The tiles to choose from, the cheapest first; of equal ones the first added. */
typedef struct Ranking {
    Tile tile[MOST_TILES];
    int n;
} Ranking;

void rank_tile(Ranking *ranking, Tile tile);
/* The cheapest for variant 0, the next for 1 and so on; where there are not so many the cheapest.
 */
Tile ranked_tile(const Ranking *ranking, int variant);

#define WORD_BYTES 4
#define MOST_ROWS  16 /* of a tile */
#define COST_OF_LOAD 1.3 /* of the time in which it could start */

/* Operands.instructions of products of bytes by fours, so many of which are added in 16 bits. */
double short_instructions(int64_t shorts);

/* The operands of a product as its tiles read them. */
typedef struct Operands {
    int64_t rows, columns, depth;   /* of the loops that tiles cut; depth: elements of WORD_BYTES */
    int64_t times;                  /* that other loops over rows repeat them */
    int64_t fewest;                 /* rows in any run */
    double row_bytes, column_bytes; /* of all of them */
    double overlap;                 /* part of a panel's elements that are others' too: windows' */
    int64_t most_rows;              /* of which the L1 cache keeps a line each */
    int temporaries;                /* vectors that a product takes beside its operands */
    int bounds;                     /* that the sums are cut at, but 0 */
    bool functions;                 /* of the sums, with constants of their own */
    double instructions;            /* of a product; 0: one that multiplies and adds */
    int at_once;                    /* products that the target adds at once */
    bool floats;
} Operands;

/* The tile that costs least, or a later one of the ranking.
 * Accumulators take what operands leave of the registers, or half of them where they are arrays of
 * which the C compiler must make registers. */
Tile choose_tile(const Target *t, int lanes, const Operands *o, int variant);
/* Operands.most_rows; `compete`: rows are a multiple of a way of the L1 cache apart. */
int64_t most_tile_rows(const Target *t, bool compete);

/* How many tiles cover the extent. */
int64_t tiles_of(int64_t extent, int64_t tile);
/* Splits `loop` into tiles and returns the inner part; a loop that is short enough is its own. */
int tile_loop(Nest *n, int loop, int64_t tile, int64_t *tiles);
/* So many rows of loop `row` a tile should have, of `rows`: not all, where a run may have few. */
int64_t rows_of_tile(const Nest *n, int row, int64_t rows);
/* Has runs that have few of the rows, of which `rows` is a tile, do one after the other, in tiles
 * of other rows of the product (NULL: it is none), if it has some, and of more of its columns than
 * are in the tile's loop `column` (-1: all of them), or, of large constants, tiles of several parts
 * of the loop over tiles, or blocks of such, `panels`, side by side. `columns`: of all tiles. */
void tile_singles(Nest *n, const Product *m, int rows, int column, int panels, int64_t columns);
/* Has what is left of rows that vary in number done by half a tile, if that is enough. */
void tile_rest(Nest *n, int rows);
/* So many rows; 0: the tile has few. */
int64_t half_of_tile(int64_t rows);
/* Into how many parts the tiles of columns, so many, should go where so few rows meet these that
 * they come from memory as streams; 1: they should not. `loop`: over the columns, or over the
 * tiles. */
int64_t streams_of(const Nest *n, int loop, int64_t tiles);
/* The outer part of the loop that was split into `inner` and it: made just before. */
int outer_of(int inner);
/* Bytes behind the factor that reads `loop`: what it visits, or all there is where that is less,
 * for the places of a window overlap. */
double bytes_behind(const Nest *n, const Product *m, const Expr *body, int loop);
/* Appends the reduction loops to the k loops in `order`, those that walk through memory in small
 * steps last; returns how many there are then. */
int reductions_by_stride(Nest *n, const Expr *body, int *order, int k);
/* Splits the innermost of the k loops in `order` into `steps`, or fewer that divide it, and binds
 * these to the role; returns how many loops there are then. */
int split_innermost(Nest *n, int64_t steps, Role role, int *order, int k);
/* Takes `loop` out of the list; returns how many remain. */
int without(int *order, int count, int loop);

/* The loop of the list that is sure to have most rows, the innermost of such; -1 if none runs
 * twice. */
int longest_of(const Nest *n, const int *list, int count);
/* Loops for a tile of the product along `column` and `row` (-1: none), with the ranked tile number
 * `variant`; around: the loop of role short around it, few: the one over products that are added at
 * once, the innermost; -1: there is none. */
void matrix_tile(Nest *n, const Product *m, int column, int row, int around, int few, int variant);

/* Should a tile of rows meet all columns before the next one comes? They stay in the L2 cache then,
 * but the first tile waits for them. */
bool columns_stay(const Target *t, double column_bytes, int64_t row_tiles);

/* Of a vector of what the reduction adds up, or as many as are worth a loop. */
int lanes_of(const Nest *n);
/* How many rows a tile may have if the L1 cache is to keep a line of each. */
int64_t most_rows(const Nest *n, const Expr *body, int row);

/* Has the sums of a tile be finished while those of the next one are added up, if what is done with
 * them takes more than a few instructions. They mostly run beside multiply-adds where processors
 * have units for both: of 1x1 convolutions of bytes with a residual, 64 channels deep, tiles took
 * 0.85 of the time on a Zen 5; SiLU 0.93 to 0.97, GELU, of multiply-adds itself, 0.94 to 1. Vectors
 * of 64 bytes have registers left for it. Rows with half a vector at the end would lose the pairs
 * that they make. */
void finish_later(Nest *n);

/* --- windows (schedule_window.c) ---------------------------------------------------------------
 */

/* Of results in a tile. place.c sets what they read apart, if it can. */
#define MOST_WINDOW_ROWS 8
/* How a window moves along a loop over results: so many places of a reduction loop. */
typedef struct Slide {
    int row, loop; /* loop -1: by no less than it is long, neighbours share nothing */
    int64_t step;
} Slide;
#define NO_SLIDE ((Slide){.row = -1, .loop = -1})
/* The first loop over results, but for `column` and that of `other`, along which windows move by less
 * than they are long, along one of the k reduction loops in `order` that is not `other`'s; false:
 * there is none. */
bool find_slide(Nest *n, int column, const Slide *other, const int *order, int k, Slide *slide);
/* A tile of a reduction over a window that slides along `row`, each column for itself. */
void window_tile(Nest *n, int column, int row);

/* --- the order of tiles (schedule_order.c) -----------------------------------------------------
 */

/* The order of the tiles of a product: what is read again for every tile of rows, or else for every
 * tile of columns, should be the less. Rows that are read again and do not stay in the L2 cache go
 * by in blocks that do. Where rows are of several loops and columns do not stay there, columns come
 * once, not again for every row of an image, if the rows that come again are less. `turned`: the
 * other order. row_outer: -1 if a tile has all of `row`. Writes the loops to `order`; returns how
 * many. */
int order_tiles(Nest *n, const Product *m, const Expr *body, int row, int column, int row_outer,
                int column_outer, bool turned, int *order);

/* --- sums in two steps (schedule_partial.c) --------------------------------------------------- */

/* Sums of blocks with scales, of products with constants; false, without a change, if it is none.
 */
bool partial_tile(Nest *n);

/* --- small matrices of numbers (schedule_matrices.c) -------------------------------------------- */

/* Sums of a tile of results with such as factors. False, after splits at most, if it is none, has no
 * lanes side by side, or ends in a run within a tile. */
bool matrices_tile(Nest *n);

/* --- cores without vectors (schedule_scalars.c) ----------------------------------------------- */

/* choose_tile for these: sums and the operands of a step stay in registers. */
Tile scalar_tile(const Target *t, const Operands *o, int variant);
/* Unrolls a part of the innermost of the k loops in `order` around a tile, whose sums stay in
 * registers beside the operands of two steps; returns how many loops there are then. */
int scalar_steps(Nest *n, Tile tile, int at_once, int *order, int k);
/* The loops of a reduction. */
void schedule_scalars(Nest *n);

/* --- matrix units (schedule_tiles.c) ---------------------------------------------------------- */

/* The loops of a tile of a product of which the target adds several at once; -1: none. */
typedef struct NarrowTile {
    int row, column, depth;
} NarrowTile;

/* Has a matrix unit do the product, `at_once` in a word of its tiles; `rows`: the load of those,
 * `packs`: columns are laid out as wanted; `variant`: which of the ranked tiles. False, without a
 * change, if it is too small for it or has no number of words that divides the depth. */
bool schedule_tiles(Nest *n, const Product *m, const NarrowTile *t, int at_once, const Expr *rows,
                    bool packs, int variant);

#endif
