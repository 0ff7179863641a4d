/* compact: rows of products that are read in steps lie one behind the other, for targets of plain
 * loops with vectors.
 *
 * A convolution with a stride of 2 multiplies every other pixel of every other line, or the windows
 * there. Where they lie one behind the other, those of all lines are rows of one matrix, of which
 * tiles are cut without regard to lines (of 14 pixels of a line, tiles of 6 compute 4 twice). So
 * they are copied, as are other rows that are read in steps: little beside what the product does,
 * if it has many columns. Memory it may take much of, where `strips` computed a few rows at a time
 * of a chain that ends at the copy now. With a matrix unit tiles of 16 bits and bytes go over lines
 * (ir/tile_plan.h) and need no copy. (ResNet-50's strided convolutions in f32: windows of 1 0.88 of
 * the time, of 3 x 3 with lines of 14 and 7 pixels 0.91.)
 */
#include "passes/inline.h"
#include "passes/passes.h"

#define LEAST_COLUMNS 128 /* results that read each element, */
#define MOST_COPIES   4   /* elements for each of the tensor (windows overlap), */
#define LONGEST_LINE  16  /* and, of windows, pixels of a line, for which a copy pays */

/* Does the index leave places out, as the result's coordinates take steps of more than 1? Not if it
 * goes back, or elsewhere. */
static bool takes_steps(const Op *op, const Expr *index) {
    bool steps = false;
    for (int k = 0; k < op->out[0]->rank; k++) {
        int64_t stride;
        if (op->out[0]->shape[k] == 1) continue;
        if (!ex_stride(index, k, &stride) || stride == 1 || stride < 0) return false;
        steps |= stride > 1;
    }
    return steps;
}

/* The reduction along whose places the elements of rows lie side by side, if the factor is computed
 * rows of which some are left out; -1: it is not. */
static int depth_of(const Op *op, const Expr *load) {
    const int rank = op->out[0]->rank;
    bool steps = false;
    if (load->op != EX_load || value_is_const(op->in[load->k.i])) return -1;
    for (int d = 0; d < load->n - 1; d++) steps |= takes_steps(op, load->arg[d]);
    for (int k = rank; k < rank + op->n_red && steps; k++)
        if (load_dimension(load, k) == load->n - 1) return k;
    return -1;
}

/* Does it pay to copy what the product loads, laid out like this? */
static bool pays(const Graph *g, const Op *op, const Expr *load, const LaidOut *l) {
    const Value *out = op->out[0];
    const uint64_t vars = ex_vars(load);
    int64_t elements = 1, columns = 1, line = 1;
    bool windows = false;
    for (int d = 0; d < l->rank; d++) elements *= dim_max(g->x, l->dims[d]);
    for (int d = 0; d < l->rank - 1; d++) windows |= l->own[d]->k.i >= out->rank;
    for (int k = 0; k < out->rank; k++)
        if (vars >> k & 1)
            line = out->shape[k]; /* the last one's */
        else
            columns *= out->shape[k];
    return columns >= LEAST_COLUMNS && elements <= MOST_COPIES * value_numel(op->in[load->k.i]) &&
           (!windows || line <= LONGEST_LINE);
}

static void copy_rows(Graph *g, Op *op, int i, const LaidOut *l) {
    Exprs *x = g->x;
    Op *last = g->last;
    const Expr *factor = op->body->arg[i], *load = without_casts(factor);
    const Expr *part[2] = {op->body->arg[0], op->body->arg[1]};
    const Expr *moved = ex_subst_vars(x, load, op->out[0]->rank + op->n_red, l->to);
    Builder b = build(g, l->rank, l->dims);
    Value *rows = build_map(&b, (DType)load->dt, build_rebased(&b, op->in, moved));
    graph_take_in(g, last, op);
    const Expr *own = ex_load(x, rows->dt, op_add_input(g, op, rows), l->rank, l->own);
    part[i] = with_casts(x, factor, load, own);
    op->body = ex_mul(x, part[0], part[1]);
    graph_drop_inputs(g, op);
}

void pass_compact(Graph *g, const PassOptions *o) {
    if (!o->target->vector_types) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_compact(op->sub, o);
        if (!is_product_of_two(op)) continue;
        for (int i = 0; i < 2; i++) {
            const Expr *load = without_casts(op->body->arg[i]);
            const int depth = depth_of(op, load);
            if (depth < 0 || (o->target->matrix_tiles && load->dt != DT_f32)) continue;
            const LaidOut l = lay_out(g->x, op, ex_vars(load), depth);
            if (pays(g, op, load, &l)) copy_rows(g, op, i, &l);
        }
    }
}
