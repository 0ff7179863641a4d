/* The schedule of sums with small matrices of numbers as factors; see schedule.h. */
#include "passes/schedule.h"

#define LEAST_COLUMNS 4

/* A loop that a matrix reads the remainder of, or that of its quotient (of every d-th line), and by
 * what it is divided. */
typedef struct Remainder {
    const Nest *n;
    int loop; /* -1: none */
    int64_t by;
} Remainder;

static void find_remainder(void *user, const Expr *e) {
    Remainder *u = user;
    if (e->op != EX_rem || !ex_is_const(e->arg[1]) || e->arg[1]->k.i > MOST_NUMBERS) return;
    const Expr *of = e->arg[0]->op == EX_div ? e->arg[0] : e; /* what is divided first */
    if (of->arg[0]->op != EX_var || !ex_is_const(of->arg[1])) return;
    const NestLoop *l = &u->n->loop[of->arg[0]->k.i];
    if (l->reduce || of->arg[1]->k.i >= l->extent) return;
    u->loop = (int)of->arg[0]->k.i;
    u->by = of->arg[1]->k.i;
}

/* Has rows of matrices that are remainders of coordinates become loops. */
static void split_remainders(Nest *n) {
    for (int i = 0; i < 2 * MOST_MATRICES; i++) {
        Remainder u = {n, -1, 0};
        int outer, inner;
        ex_visit(n->p->arena, nest_body(n), find_remainder, &u);
        if (u.loop < 0) return;
        nest_split(n, u.loop, u.by, &outer, &inner);
    }
}

/* The last coordinate's loop; -1: results, or what the matrices are applied to, do not lie side by
 * side along it. */
static int column_of(const Nest *n, const MatrixSum *m) {
    const Expr *last = n->coord[n->op->out[0]->rank - 1];
    if (last->op != EX_var || n->loop[last->k.i].extent < LEAST_COLUMNS) return -1;
    const int loop = (int)last->k.i;
    for (int i = 0; i < m->n; i++)
        if (m->of[i].row == loop) return -1;
    const Expr *factor = m->factor;
    int64_t stride;
    while (factor->op == EX_cast) factor = factor->arg[0];
    return factor->op == EX_load && ex_stride(factor->arg[0], loop, &stride) && stride == 1 ? loop
                                                                                            : -1;
}

/* Does a run say how far a coordinate goes that a tile has several of? */
static bool ends_inside(const Nest *n, const MatrixSum *m, int column) {
    for (int d = 0; d < MAX_RANK; d++) {
        bool several = n->limit[d] && ex_depends(n->coord[d], column);
        for (int i = 0; i < m->n; i++)
            several |= n->limit[d] && ex_depends(n->coord[d], m->of[i].row);
        if (several) return true;
    }
    return false;
}

bool matrices_tile(Nest *n) {
    MatrixSum m;
    int order[2 * MOST_MATRICES + 1], k = 0, outer, inner;
    if (!n->target->vector_types || !op_applies_matrices(n->op)) return false;
    split_remainders(n);
    if (!nest_read_matrices(n, &m)) return false;
    inner = column_of(n, &m);
    if (inner < 0 || ends_inside(n, &m, inner)) return false;
    const int64_t bytes = n->op->out[0]->dt == DT_i16 ? 2 : WORD_BYTES,
                  lanes = n->target->vector_bytes / bytes, columns = n->loop[inner].extent;
    if (columns > lanes && columns % lanes)
        nest_slide(n, inner, lanes, &outer, &inner);
    else if (columns > lanes)
        nest_split(n, inner, lanes, &outer, &inner);
    for (int i = 0; i < m.n; i++) order[k++] = m.of[i].red;
    for (int i = 0; i < m.n; i++) order[k++] = m.of[i].row;
    for (int i = 0; i < k; i++) nest_bind(n, order[i], ROLE_unroll);
    nest_bind(n, inner, ROLE_vector);
    order[k++] = inner;
    nest_order(n, k, order);
    nest_matrices(n);
    return true;
}
