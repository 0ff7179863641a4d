/* Reading and rewriting the bodies of operators; shared by passes on graphs. */
#ifndef PASSES_INLINE_H
#define PASSES_INLINE_H

#include "ir/graph.h"

/* Of a fused operator: every device can bind so many. */
#define MAX_INPUTS 12

/* What memory a value lies in: a reshape's is its operand's. */
static inline Value *through_reshape(Value *v) {
    return v->def->kind == OP_reshape ? v->def->in[0] : v;
}

/* A sum of products of two factors; one of squares reads what it reads once. */
static inline bool is_product_of_two(const Op *op) {
    return op_is_product(op) && op->body->arg[0] != op->body->arg[1];
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

/* Does the map load its input `i` at its own coordinates only? */
bool reads_own(Arena *scratch, const Op *c, int i);

/* Could the operator, a map, write its result over its input `i`, of which it reads its own
 * elements only? Rows of that may be a little longer. Whether rows of both begin in the same
 * places, and nothing needs the input any more, is the caller's affair. */
bool may_write_over(Arena *scratch, const Op *op, int i);

/* c, a map that reads its input `i`, a reshape, at its own coordinates, becomes a map over what is
 * reshaped, and is reshaped afterwards. */
void map_before_reshape(Graph *g, Op *c, int i);

/* Adds v to a list of inputs; returns its number. */
int list_add(Value **list, int *n, Value *v);
/* The same with the inputs of an operator, which get a list of their own. */
int op_add_input(Graph *g, Op *op, Value *v);
/* Does coordinate `var` run through rows of what is loaded, and not along them? */
bool runs_across(const Expr *load, int var);
/* Do rows of its result run across rows of something that the operator reads? */
bool reads_across(Arena *scratch, const Op *op);

/* `e` with to[i] as the number of load i, i < n. */
const Expr *renumber_loads(Exprs *x, const Expr *e, int n, const int *to);

/* `e`, whose loads are numbered by `in`, with loads of the operator at work on. */
const Expr *build_rebased(Builder *b, Value *const *in, const Expr *e);

/* What the factor of a product loads, without the casts around it; the factor if it is no load. */
const Expr *without_casts(const Expr *factor);
/* `e` with the casts that stand around `inner` in the factor. */
const Expr *with_casts(Exprs *x, const Expr *factor, const Expr *inner, const Expr *e);

/* The dimension of the load that coordinate `var` alone runs through, and that alone; -1: none. */
int load_dimension(const Expr *load, int var);

/* Coordinates of an operator as the dimensions of a tensor: that of a factor that is copied. */
typedef struct LaidOut {
    int rank;
    int64_t dims[MAX_RANK];
    const Expr *to[MAX_RANK]; /* the operator's coordinates are these of the tensor's (others 0), */
    const Expr *own[MAX_RANK]; /* and the tensor's these of the operator's */
} LaidOut;
/* Those in the set `vars`, in order but for `last`, one of them, which comes last; -1: all are. */
LaidOut lay_out(Exprs *x, const Op *op, uint64_t vars, int last);

/* The only operand that `e`, in the body of `op`, loads at the operator's own coordinates; NULL if
 * it is no such load. */
Value *own_load(const Op *op, const Expr *e);

/* What a reduction combines: its body, or what that is within dimensions that vary,
 * select(condition, term, identity). *condition: NULL if there is none. */
const Expr *reduce_term(Exprs *x, const Op *op, const Expr **condition);
/* Has it combine something else, under the same condition. */
void reduce_set_term(Exprs *x, Op *op, const Expr *term);
/* `e`, in the body of `op`, with symbols as they are in dimensions in place of loads of them. */
const Expr *symbols_of_loads(const Graph *g, const Op *op, const Expr *e);
/* Does reduction variable `r` run through all of dimension `d` of `v`, in every run? */
bool reduces_all_of(Graph *g, const Op *op, int r, const Value *v, int d);

/* Cycles, about, that computing `e` once takes, without its loads. */
double body_cost(Arena *scratch, const Expr *e);
/* How many different loads of operator input `input` there are in `e`. */
int loads_of_input(Arena *scratch, const Expr *e, int input);

/* The state that `v` is in the next run, if what lies between is only scattered into it, and read
 * by nobody else but `v`; NULL: it is none. Uses are counted in v->index (graph_count_uses). */
Value *scattered_state(const Graph *g, const Value *v);

/* The integers that a tensor of bytes, of words that a map moves, widens or adds bytes to, or of
 * constant words may have; false: it is none of these. */
bool integer_range(Arena *a, Value *v, int64_t *low, int64_t *high);

/* Input i of c, which a map or a reshape of a map computes, is replaced by the map's body wherever
 * c loads it. False, and nothing changed, if c would get more than `most` inputs and more than
 * before. Grows *work by the nodes that were simplified. Counts of uses are the caller's affair. */
bool op_inline(Graph *g, Op *c, int i, int most, int64_t *work);

#endif
