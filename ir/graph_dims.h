/* Inside of the graph's builders: reshapes. */
#ifndef IR_GRAPH_DIMS_H
#define IR_GRAPH_DIMS_H

#include "ir/graph.h"

/* The operator that gives the memory of `v` another shape. */
Value *reshape_memory(Graph *g, Value *v, int rank, const int64_t *shape);
/* g_reshape where dimensions vary. */
Value *reshape_varying(Graph *g, Value *v, int rank, const int64_t *shape);

#endif
