/* What pass `strassen` saves, for those who choose what a product is one of. */
#ifndef PASSES_STRASSEN_H
#define PASSES_STRASSEN_H

#include "ir/graph.h"
#include "ir/target.h"

/* The part of its multiply-adds that a product of words, which makes `out` with n columns and depth
 * k, has less by seven products of quarters, sums of quarters counted; 0: the pass leaves it alone.
 * rows, columns: elements of the factors, the latter constant. */
double strassen_saves(const Target *t, const Value *out, int64_t n, int64_t k, int64_t rows,
                      int64_t columns);

#endif
