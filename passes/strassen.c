/* strassen: a large product of matrices, one of them constant, as seven products of half the rows,
 * depth and columns instead of eight, for targets of plain loops with vectors.
 *
 * With both factors and the result cut into quarters (Strassen, "Gaussian elimination is not
 * optimal", 1969):
 *
 *     M1 = (A11 + A22) (B11 + B22)    C11 = M1 + M4 - M5 + M7
 *     M2 = (A21 + A22) B11            C12 = M3 + M5
 *     M3 = A11 (B12 - B22)            C21 = M2 + M4
 *     M4 = A22 (B21 - B11)            C22 = M1 - M2 + M3 + M6
 *     M5 = (A11 + A12) B22
 *     M6 = (A21 - A11) (B11 + B12)
 *     M7 = (A12 - A22) (B21 + B22)
 *
 * Only on request (--strassen), for rows are no longer by themselves: row i and the one half of the
 * rows away err by about the error of the larger one, NaN and infinity reach both, and zeros do not
 * stay zeros. Where rows are alike, as behind a normalisation, f32 errs about twice as much as
 * without. The columns' sums are made when compiling and take 7/4 of their room. Where the sums of
 * rows and results, which pass through the cache, or the additional columns cost more than is won,
 * the product stays.
 */
#include "passes/inline.h"
#include "passes/passes.h"

#define QUARTERS 4
#define PRODUCTS 7

/* Measured, in multiply-adds of one lane: an element of a row, or of the result, for its sums; an
 * element of the columns, for three quarters more of which are read. */
#define COST_OF_SUM    20
#define COST_OF_COLUMN 3
#define LEAST_WON      0.03

/* Which quarters (11, 12, 21, 22) of each factor are added for product i, and which quarters of the
 * result it is added to. */
static const signed char of_rows[PRODUCTS][QUARTERS] = {
    {1, 0, 0, 1}, {0, 0, 1, 1},  {1, 0, 0, 0},  {0, 0, 0, 1},
    {1, 1, 0, 0}, {-1, 0, 1, 0}, {0, 1, 0, -1},
};
static const signed char of_columns[PRODUCTS][QUARTERS] = {
    {1, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, 0, 1, 0},
    {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 0, 1, 1},
};
static const signed char of_result[PRODUCTS][QUARTERS] = {
    {1, 0, 0, 1},  {0, 0, 1, -1}, {0, 1, 0, 1}, {1, 0, 1, 0},
    {-1, 1, 0, 0}, {0, 0, 0, 1},  {1, 0, 0, 0},
};

typedef struct Factor {
    Value *v;
    const Expr *load;
    int other, depth; /* dimensions of v: of the rows (columns), and of the depth */
} Factor;

typedef struct Quartered {
    Graph *g;
    Exprs *x;
    Op *op;
    Factor rows, columns;
    int row, column;    /* coordinates of the result */
    int64_t m, n, k;    /* their extents, and the depth */
    int64_t m2, n2, k2; /* of a quarter */
} Quartered;

/* --- recognising ------------------------------------------------------------------------------ */

/* The coordinate of the result that runs through dimension d of the load, and through that alone;
 * -1: none. */
static int coordinate_of(const Quartered *p, const Expr *load, int d) {
    for (int i = 0; i < p->op->out[0]->rank; i++)
        if (load_dimension(p->g->arena, load, i) == d) return i;
    return -1;
}

/* Reads op as such a product. */
static bool read_product(Quartered *p) {
    const Op *op = p->op;
    if (op->kind != OP_reduce || op->combine != COMBINE_sum || op->body->op != EX_mul) return false;
    if (op->n_red != 1 || op->body->dt != DT_f32) return false;
    const Value *out = op->out[0];
    if (dims_vary(out->rank, out->dims)) return false; /* what lies beyond is not to be added */
    for (int f = 0; f < 2; f++) {
        const Expr *rows = op->body->arg[f], *columns = op->body->arg[1 - f];
        if (rows->op != EX_load || columns->op != EX_load || columns->n != 2) continue;
        p->rows = (Factor){op->in[rows->k.i], rows, -1, 0};
        p->columns = (Factor){op->in[columns->k.i], columns, 0, 0};
        if (!value_is_const(p->columns.v) || value_is_const(p->rows.v)) continue;
        p->rows.depth = load_dimension(p->g->arena, rows, out->rank);
        p->columns.depth = load_dimension(p->g->arena, columns, out->rank);
        if (p->rows.depth < 0 || p->columns.depth < 0) continue;
        p->columns.other = 1 - p->columns.depth;
        p->column = coordinate_of(p, columns, p->columns.other);
        for (int d = 0; d < rows->n; d++) {
            int at = coordinate_of(p, rows, d);
            if (at < 0 || d == p->rows.depth) continue;
            if (p->rows.other >= 0 && out->shape[at] <= out->shape[p->row]) continue;
            p->rows.other = d;
            p->row = at;
        }
        if (p->column < 0 || p->rows.other < 0 || p->row == p->column) continue;
        if (ex_vars(p->g->arena, rows) >> p->column & 1) continue;
        p->m = out->shape[p->row], p->n = out->shape[p->column], p->k = op->red[0];
        p->m2 = (p->m + 1) / 2, p->n2 = p->n / 2, p->k2 = p->k / 2;
        return p->n % 2 == 0 && p->k % 2 == 0 && p->rows.v->shape[p->rows.other] == p->m &&
               p->columns.v->shape[p->columns.other] == p->n &&
               p->rows.v->shape[p->rows.depth] == p->k &&
               p->columns.v->shape[p->columns.depth] == p->k;
    }
    return false;
}

/* Costs in multiply-adds of one lane. */
static bool pays(const Quartered *p) {
    double m = (double)p->m, n = (double)p->n, k = (double)p->k;
    double won = m * n * k / 8 - COST_OF_SUM * m * (n + k) - COST_OF_COLUMN * n * k;
    return won > LEAST_WON * m * n * k;
}

/* --- rewriting -------------------------------------------------------------------------------- */

/* The sum of quarters, each at its sign, of which `quarter` gives an element. */
static const Expr *signed_sum(Exprs *x, const signed char *sign, const Expr *const *quarter, int n,
                              int stride) {
    const Expr *sum = NULL;
    for (int pass = 0; pass < 2; pass++) /* what is added first */
        for (int i = 0; i < n; i++) {
            int s = sign[i * stride];
            if (s != (pass ? -1 : 1)) continue;
            sum = !sum    ? quarter[i]
                  : s > 0 ? ex_add(x, sum, quarter[i])
                          : ex_sub(x, sum, quarter[i]);
        }
    return sum;
}

/* The sums of quarters of a factor: [7, what it has with `other` and `depth` halved]. */
static Value *sums_of(const Quartered *p, const Factor *f, int64_t other,
                      const signed char sign[PRODUCTS][QUARTERS]) {
    Exprs *x = p->x;
    int rank = f->v->rank;
    int64_t shape[MAX_RANK] = {PRODUCTS}, half[2] = {other, p->k2};
    int cut[2] = {1 + f->other, 1 + f->depth};
    for (int d = 0; d < rank; d++) shape[1 + d] = f->v->shape[d];
    for (int i = 0; i < 2; i++) shape[cut[i]] = half[i];
    Builder b = build(p->g, 1 + rank, shape);
    const Expr *quarter[QUARTERS], *index[MAX_RANK];
    for (int q = 0; q < QUARTERS; q++) {
        /* the quarters of columns are numbered by depth first */
        bool second_other = f == &p->columns ? q & 1 : q >> 1;
        bool second_depth = f == &p->columns ? q >> 1 : q & 1;
        for (int d = 0; d < rank; d++) index[d] = ex_var(x, 1 + d);
        if (second_other) index[f->other] = ex_add(x, index[f->other], ex_i(x, other));
        if (second_depth) index[f->depth] = ex_add(x, index[f->depth], ex_i(x, p->k2));
        quarter[q] = build_load(&b, f->v, index);
        if (second_other && 2 * other > f->v->shape[f->other]) /* an odd number of rows */
            quarter[q] =
                ex_select(x, ex_lt(x, ex_var(x, cut[0]), ex_i(x, f->v->shape[f->other] - other)),
                          quarter[q], ex_num(x, DT_f32, 0));
    }
    const Expr *all = NULL;
    for (int i = PRODUCTS - 1; i >= 0; i--) {
        const Expr *sum = signed_sum(x, sign[i], quarter, QUARTERS, 1);
        all = all ? ex_select(x, ex_lt(x, ex_var(x, 0), ex_i(x, i + 1)), sum, all) : sum;
    }
    return build_map(&b, DT_f32, all);
}

/* The seven products. */
static Value *products(const Quartered *p, Value *rows, Value *columns) {
    const Value *out = p->op->out[0];
    Exprs *x = p->x;
    int64_t shape[MAX_RANK] = {PRODUCTS};
    const Expr *of_row[MAX_RANK], *of_column[3], *moved[MAX_RANK];
    for (int d = 0; d < out->rank; d++) shape[1 + d] = out->shape[d];
    shape[1 + p->row] = p->m2;
    shape[1 + p->column] = p->n2;
    Builder b = build(p->g, 1 + out->rank, shape);
    const Expr *depth = build_red(&b, p->k2);
    for (int d = 0; d < out->rank; d++) moved[d] = ex_var(x, 1 + d);
    moved[out->rank] = depth;
    of_row[0] = of_column[0] = ex_var(x, 0);
    for (int d = 0; d < rows->rank - 1; d++)
        of_row[1 + d] = ex_subst_vars(x, p->rows.load->arg[d], out->rank + 1, moved);
    for (int d = 0; d < 2; d++)
        of_column[1 + d] = ex_subst_vars(x, p->columns.load->arg[d], out->rank + 1, moved);
    const Expr *body = ex_mul(x, build_load(&b, rows, of_row), build_load(&b, columns, of_column));
    return build_reduce(&b, DT_f32, COMBINE_sum, body, NULL);
}

/* op becomes the sum of the products, and what it did to its own. */
static void sum_up(const Quartered *p, Value *made) {
    Exprs *x = p->x;
    Op *op = p->op;
    int rank = op->out[0]->rank;
    const Expr *quarter[QUARTERS], *index[MAX_RANK];
    const Expr *row = ex_var(x, p->row), *column = ex_var(x, p->column);
    for (int q = 0; q < QUARTERS; q++) {
        const Expr *product[PRODUCTS];
        for (int d = 0; d < rank; d++) index[1 + d] = ex_var(x, d);
        if (q >> 1) index[1 + p->row] = ex_sub(x, row, ex_i(x, p->m2));
        if (q & 1) index[1 + p->column] = ex_sub(x, column, ex_i(x, p->n2));
        for (int i = 0; i < PRODUCTS; i++) {
            index[0] = ex_i(x, i);
            product[i] = ex_load(x, DT_f32, op->n_in, 1 + rank, index);
        }
        quarter[q] = signed_sum(x, &of_result[0][q], product, PRODUCTS, QUARTERS);
    }
    const Expr *left = ex_lt(x, column, ex_i(x, p->n2)), *top = ex_lt(x, row, ex_i(x, p->m2));
    const Expr *sum = ex_select(x, top, ex_select(x, left, quarter[0], quarter[1]),
                                ex_select(x, left, quarter[2], quarter[3]));
    Value **in = ARENA_ARRAY(p->g->arena, op->n_in + 1, Value *);
    for (int i = 0; i < op->n_in; i++) in[i] = op->in[i];
    in[op->n_in++] = made;
    op->in = in;
    op->kind = OP_map;
    op->body = ex_replace(x, op->post, ex_acc(x, DT_f32), sum);
    op->post = NULL;
    op->n_red = 0;
    graph_drop_inputs(p->g, op);
}

/* False, and only an operator without users made, if the sums of columns are more than is computed
 * when compiling. */
static bool rewrite(const Quartered *p, Value **sums) {
    Op *last = p->g->last;
    Value *columns = sums_of(p, &p->columns, p->n2, of_columns);
    if (!value_is_const(columns)) return false;
    if (!*sums) *sums = sums_of(p, &p->rows, p->m2, of_rows);
    sum_up(p, products(p, *sums, columns));
    graph_take_in(p->g, last, p->op);
    return true;
}

/* Sums of rows, which several products may read. */
typedef struct Made {
    const Value *of;
    int other, depth;
    Value *sums;
} Made;

void pass_strassen(Graph *g, const PassOptions *o) {
    VEC(Made) made = {0};
    if (!o->strassen || o->target->blocks || !o->target->vector_types) return;
    if (o->precision != DT_none && o->precision != DT_f32) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_strassen(op->sub, o);
        Quartered p = {.g = g, .x = g->x, .op = op};
        if (!read_product(&p) || !pays(&p)) continue;
        Made now = {p.rows.v, p.rows.other, p.rows.depth, NULL};
        for (int i = 0; i < made.n; i++)
            if (made.items[i].of == now.of && made.items[i].other == now.other &&
                made.items[i].depth == now.depth)
                now.sums = made.items[i].sums;
        bool known = now.sums;
        if (rewrite(&p, &now.sums) && !known) vec_push(g->arena, &made, now);
    }
}
