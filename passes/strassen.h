/* What pass `strassen` saves, for those who choose what a product is one of. */
#ifndef PASSES_STRASSEN_H
#define PASSES_STRASSEN_H

#include <stdbool.h>

/* The part of a product's multiply-adds, so many, that seven products of quarters save, less what
 * the sums of quarters take of elements of rows, columns (constant) and results; negative: they
 * take more. */
double strassen_saves(double products, double rows, double columns, double results, bool words);
/* Is that worth it? */
bool strassen_pays(double saved);

#endif
