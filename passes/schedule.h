/* Inside of schedule.c and schedule_blocks.c: the first schedule of a nest. */
#ifndef PASSES_SCHEDULE_H
#define PASSES_SCHEDULE_H

#include "passes/nest.h"

typedef struct Product {
    int row[MAX_RANK], n_row;       /* loops only factor 0 reads */
    int column[MAX_RANK], n_column; /* only factor 1 */
    int batch[MAX_RANK], n_batch;   /* both, or none */
    int depth[MAX_RANK], n_depth;
    int64_t rows, columns, batches, depths;
} Product;

/* Reads the body as a product; false if it is none. */
bool find_product(Nest *n, Product *m);
/* The schedule for a grid of blocks of threads. */
void schedule_blocks(Nest *n);

#endif
