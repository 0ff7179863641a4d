/* compact: rows of products that are read in steps lie one behind the other, for targets of plain
 * loops with vectors.
 *
 * A convolution with a window of 1 and a stride of 2 multiplies every other pixel of every other
 * line. Where pixels lie side by side, those of all lines are rows of one matrix, of which tiles
 * are cut without regard to lines; of 14 pixels of a line, tiles of 6 compute 4 twice. So they are
 * copied, as are other rows that are read in steps: little beside what the product does, if it has
 * many columns. (ResNet-50's three: 0.90 of the time.)
 */
#include "passes/inline.h"
#include "passes/passes.h"

#define LEAST_COLUMNS 128

/* A factor of a product as a copy: a tensor with a dimension for each coordinate that it depends
 * on. */
typedef struct Copy {
    int rank;
    int64_t dims[MAX_RANK];
    const Expr *to[2 * MAX_RANK]; /* the product's coordinates are these of the copy's, */
    const Expr *own[MAX_RANK];    /* and the copy's these of the product's */
    int64_t columns;              /* results that read each element */
} Copy;

/* Does the index leave places out, since all coordinates in it take steps of more than 1? */
static bool takes_steps(const Op *op, const Expr *index) {
    int64_t extent[MAX_RANK];
    const int n = op_extents(op, extent);
    bool steps = false;
    for (int k = 0; k < n; k++) {
        int64_t stride;
        if (extent[k] == 1) continue;
        if (!ex_stride(index, k, &stride) || stride == 1 || stride < 0) return false;
        steps |= stride > 1;
    }
    return steps;
}

/* Is the factor computed rows, with their elements side by side, of which some are left out? */
static bool has_steps(const Graph *g, const Op *op, const Expr *load) {
    bool steps = false;
    if (load->op != EX_load || value_is_const(op->in[load->k.i])) return false;
    for (int d = 0; d < load->n - 1; d++) steps |= takes_steps(op, load->arg[d]);
    return steps && load_dimension(g->arena, load, op->out[0]->rank) == load->n - 1;
}

static Copy copy_of(const Graph *g, const Op *op, const Expr *load) {
    Copy c = {.columns = 1};
    int64_t extent[MAX_RANK];
    const int n = op_extents(op, extent), rank = op->out[0]->rank;
    const uint64_t vars = ex_vars(g->arena, load);
    for (int k = 0; k < n; k++) {
        c.to[k] = ex_i(g->x, 0);
        if (!(vars >> k & 1)) {
            c.columns *= extent[k];
            continue;
        }
        c.own[c.rank] = ex_var(g->x, k);
        c.to[k] = ex_var(g->x, c.rank);
        c.dims[c.rank++] = k < rank ? op->out[0]->dims[k] : extent[k];
    }
    return c;
}

static void copy_rows(Graph *g, Op *op, int i, const Copy *c) {
    Exprs *x = g->x;
    Op *last = g->last;
    const Expr *factor = op->body->arg[i], *load = without_casts(factor), *index[MAX_RANK];
    const Expr *part[2] = {op->body->arg[0], op->body->arg[1]};
    Value *from = op->in[load->k.i];
    int64_t extent[MAX_RANK];
    const int n = op_extents(op, extent);
    Builder b = build(g, c->rank, c->dims);
    for (int d = 0; d < load->n; d++) index[d] = ex_subst_vars(x, load->arg[d], n, c->to);
    Value *rows = build_map(&b, from->dt, build_load(&b, from, index));
    graph_take_in(g, last, op);
    load = ex_load(x, rows->dt, op_add_input(g, op, rows), c->rank, c->own);
    part[i] = with_casts(x, factor, without_casts(factor), load);
    op->body = ex_mul(x, part[0], part[1]);
    graph_drop_inputs(g, op);
}

void pass_compact(Graph *g, const PassOptions *o) {
    if (!o->target->vector_types) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_compact(op->sub, o);
        if (!is_product_of_two(op) || op->n_red != 1) continue;
        for (int i = 0; i < 2; i++) {
            const Expr *load = without_casts(op->body->arg[i]);
            if (!has_steps(g, op, load)) continue;
            const Copy c = copy_of(g, op, load);
            if (c.columns >= LEAST_COLUMNS) copy_rows(g, op, i, &c);
        }
    }
}
