/* Substitution of one operator into another; shared by fuse and integer. */
#ifndef PASSES_INLINE_H
#define PASSES_INLINE_H

#include "ir/graph.h"

/* What memory a value lies in: a reshape's is its operand's. */
static inline Value *through_reshape(Value *v) {
    return v->def->kind == OP_reshape ? v->def->in[0] : v;
}

/* The coordinates in a tensor of shape `to` of the element at `index` of the same memory with shape
 * `from`. */
void reshape_index(Exprs *x, int rank_from, const int64_t *from, const Expr *const *index,
                   int rank_to, const int64_t *to, const Expr **result);

/* The body of a map over shape `from` as one over the same memory with shape `to`, simplified. */
const Expr *reshape_body(Exprs *x, const Expr *body, int rank_from, const int64_t *from,
                         int rank_to, const int64_t *to);

/* Turns a reshape into a map that loads. */
void reshape_to_map(Graph *g, Op *op);

/* Adds v to a list of inputs; returns its number. */
int list_add(Value **list, int *n, Value *v);

/* `e` with to[i] as the number of load i, i < n. */
const Expr *renumber_loads(Exprs *x, const Expr *e, int n, const int *to);

/* Input i of c, which a map or a reshape of a map computes, is replaced by the map's body wherever
 * c loads it. False, and nothing changed, if c would get more than `most` inputs and more than
 * before. Grows *work by the nodes that were simplified. Counts of uses are the caller's affair. */
bool op_inline(Graph *g, Op *c, int i, int most, int64_t *work);

#endif
