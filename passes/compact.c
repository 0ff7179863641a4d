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

/* A factor of a product as a copy: a tensor with a dimension for each coordinate that it depends
 * on. */
typedef struct Copy {
    int rank;
    int64_t dims[MAX_RANK];
    const Expr *to[MAX_RANK];  /* the product's coordinates are these of the copy's, */
    const Expr *own[MAX_RANK]; /* and the copy's these of the product's */
    int64_t elements;          /* at most */
    int64_t columns;           /* results that read each of them */
    int64_t line;              /* length of the last of the result's coordinates in it */
    bool windows;              /* it has places of a window */
} Copy;

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
static int depth_of(const Graph *g, const Op *op, const Expr *load) {
    const int rank = op->out[0]->rank;
    bool steps = false;
    if (load->op != EX_load || value_is_const(op->in[load->k.i])) return -1;
    for (int d = 0; d < load->n - 1; d++) steps |= takes_steps(op, load->arg[d]);
    for (int k = rank; k < rank + op->n_red && steps; k++)
        if (load_dimension(g->arena, load, k) == load->n - 1) return k;
    return -1;
}

/* The copy's next dimension is the product's coordinate k. */
static void add_dimension(Graph *g, Copy *c, int k, int64_t extent) {
    c->own[c->rank] = ex_var(g->x, k);
    c->to[k] = ex_var(g->x, c->rank);
    c->dims[c->rank++] = extent;
    c->elements *= dim_max(g->x, extent);
}

/* Of a factor in the product's order, but for coordinate `depth`, which comes last. */
static Copy copy_of(Graph *g, const Op *op, const Expr *load, int depth) {
    Copy c = {.columns = 1, .elements = 1};
    int64_t extent[MAX_RANK];
    const int n = op_extents(op, extent), rank = op->out[0]->rank;
    const uint64_t vars = ex_vars(g->arena, load);
    for (int k = 0; k < n; k++) {
        c.to[k] = ex_i(g->x, 0);
        const bool reads = vars >> k & 1;
        if (reads && k != depth)
            add_dimension(g, &c, k, k < rank ? op->out[0]->dims[k] : extent[k]);
        if (!reads && k < rank) c.columns *= extent[k];
        if (reads && k < rank) c.line = extent[k];
        c.windows |= reads && k >= rank && k != depth;
    }
    add_dimension(g, &c, depth, extent[depth]);
    return c;
}

static bool pays(const Copy *c, const Value *of) {
    return c->columns >= LEAST_COLUMNS && c->elements <= MOST_COPIES * value_numel(of) &&
           (!c->windows || c->line <= LONGEST_LINE);
}

static void copy_rows(Graph *g, Op *op, int i, const Copy *c) {
    Exprs *x = g->x;
    Op *last = g->last;
    const Expr *factor = op->body->arg[i], *load = without_casts(factor);
    const Expr *part[2] = {op->body->arg[0], op->body->arg[1]};
    const Expr *moved = ex_subst_vars(x, load, op->out[0]->rank + op->n_red, c->to);
    Builder b = build(g, c->rank, c->dims);
    Value *rows = build_map(&b, (DType)load->dt, build_rebased(&b, op->in, moved));
    graph_take_in(g, last, op);
    const Expr *own = ex_load(x, rows->dt, op_add_input(g, op, rows), c->rank, c->own);
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
            const int depth = depth_of(g, op, load);
            if (depth < 0 || (o->target->matrix_tiles && load->dt != DT_f32)) continue;
            const Copy c = copy_of(g, op, load, depth);
            if (pays(&c, op->in[load->k.i])) copy_rows(g, op, i, &c);
        }
    }
}
