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
 * Words (products of bytes by way of 16 bits) whose sums of two fit into words are quartered
 * wherever that pays and halves are whole vectors and pairs: integers wrap around, so sums are the
 * same to the bit. Floats only on request (--strassen), for rows are no longer by themselves: row i
 * and the one half of the rows away err by about the error of the larger one, NaN and infinity
 * reach both, and zeros do not stay zeros. Where rows are alike, as behind a normalisation, f32
 * errs about twice as much as without.
 * The columns' sums are made when compiling and take 7/4 of their room. Where the sums of rows and
 * results, which pass through the cache, or the additional columns cost more than is won, the
 * product stays.
 *
 * A convolution is such a product, too: its rows are lines of the image, its depth the channels,
 * and the window is summed over as before.
 */
#include "ir/constant.h"
#include "passes/inline.h"
#include "passes/passes.h"
#include "passes/strassen.h"

#define QUARTERS 4
#define PRODUCTS 7

/* Measured, in multiply-adds of one lane: an element of the rows, or of the result, for its sums;
 * an element of the columns, for three quarters more of which are read. */
#define COST_OF_SUM    20
#define COST_OF_WORDS  8 /* of a sum of words: 6 and 10 serve as well, 3 does not (Zen 3) */
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
    int64_t stride;   /* along `other` from one row to the next; of columns 1 */
} Factor;

typedef struct Quartered {
    Graph *g;
    Exprs *x;
    Op *op;
    Factor rows, columns;
    int row, column, depth; /* coordinates of the result, and the variable of the reduction */
    int64_t m, n, k;        /* their extents */
    int64_t m2, n2, k2;     /* of a quarter */
} Quartered;

/* --- recognising ------------------------------------------------------------------------------ */

/* The load of a factor: of f32, or of words that are widened; else NULL. */
static const Expr *loaded(const Expr *factor) {
    const Expr *load = without_casts(factor);
    if (load->op != EX_load || (load != factor && load->dt != DT_i16)) return NULL;
    return load;
}

/* Do sums and differences of two of a factor's elements fit into words? */
static bool sums_fit(Arena *arena, Value *v) {
    int64_t low, high;
    return integer_range(arena, v, &low, &high) && high - low <= INT16_MAX &&
           low >= INT16_MIN / 2 && high <= INT16_MAX / 2;
}

/* The dimension of the load whose index is `stride` times a variable and something else, which does
 * not have it; -1: there is none, or another one has the variable. */
static int dimension_along(const Expr *load, int var, int64_t *stride) {
    int found = -1;
    for (int d = 0; d < load->n; d++) {
        if (!ex_depends(load->arg[d], var)) continue;
        if (found >= 0 || !ex_stride(load->arg[d], var, stride) || *stride < 1) return -1;
        found = d;
    }
    return found;
}

/* Takes the longest coordinates of the result that only the one, and only the other factor depends
 * on. Rows may be several elements apart, as those of a window with a stride are; halves of columns
 * and of the depth are halves of their tensors. */
static bool find_coordinates(Quartered *p) {
    const Op *op = p->op;
    const Value *out = op->out[0];
    const uint64_t row_vars = ex_vars(p->rows.load);
    const uint64_t column_vars = ex_vars(p->columns.load);
    p->row = p->column = p->depth = -1;
    for (int i = 0; i < out->rank; i++) {
        int64_t stride;
        if (!(column_vars >> i & 1) && (p->row < 0 || out->shape[i] > p->m)) {
            int d = dimension_along(p->rows.load, i, &stride);
            if (d < 0) continue;
            p->row = i, p->m = out->shape[i], p->rows.other = d, p->rows.stride = stride;
        } else if (!(row_vars >> i & 1) && (p->column < 0 || out->shape[i] > p->n)) {
            int d = load_dimension(p->columns.load, i);
            if (d < 0 || p->columns.v->shape[d] != out->shape[i]) continue;
            p->column = i, p->n = out->shape[i], p->columns.other = d;
        }
    }
    for (int r = 0; r < op->n_red; r++) {
        int d = load_dimension(p->rows.load, out->rank + r);
        int e = load_dimension(p->columns.load, out->rank + r);
        if (d < 0 || e < 0 || (p->depth >= 0 && op->red[r] <= p->k)) continue;
        if (p->rows.v->shape[d] != op->red[r] || p->columns.v->shape[e] != op->red[r]) continue;
        p->depth = r, p->k = op->red[r], p->rows.depth = d, p->columns.depth = e;
    }
    if (p->row < 0 || p->column < 0 || p->depth < 0) return false;
    p->m2 = (p->m + 1) / 2, p->n2 = p->n / 2, p->k2 = p->k / 2;
    bool whole = p->m % 2 == 0 || (p->rows.stride == 1 && p->rows.v->shape[p->rows.other] == p->m);
    return whole && p->n % 2 == 0 && p->k % 2 == 0;
}

/* Reads op as such a product. */
static bool read_product(Quartered *p) {
    const Op *op = p->op;
    if (!op_is_product(op)) return false;
    const Value *out = op->out[0];
    if (out->rank + op->n_red >= MAX_RANK ||
        dims_vary(out->rank, out->dims)) /* what lies beyond is not to be added */
        return false;
    for (int f = 0; f < 2; f++) {
        const Expr *rows = loaded(op->body->arg[f]), *columns = loaded(op->body->arg[1 - f]);
        if (!rows || !columns || rows->n == MAX_RANK || columns->n == MAX_RANK) continue;
        p->rows = (Factor){op->in[rows->k.i], rows, -1, -1, 1};
        p->columns = (Factor){op->in[columns->k.i], columns, -1, -1, 1};
        if (!value_is_const(p->columns.v) || value_is_const(p->rows.v)) continue;
        if (find_coordinates(p)) return true;
    }
    return false;
}

/* The part of so many multiply-adds that is saved; costs in those of one lane. */
static double saved_of(double products, double rows, double columns, double results, bool words) {
    const double sums = (words ? COST_OF_WORDS : COST_OF_SUM) * (rows + results);
    return 1.0 / (PRODUCTS + 1) - (sums + COST_OF_COLUMN * columns) / products;
}

/* Are halves of words whole vectors and pairs? A rest of lanes is slow, and so is a depth that is
 * no multiple of what is added at once. */
static bool are_whole(const Target *t, int64_t n2, int64_t k2) {
    return n2 % (t->vector_bytes / 4) == 0 && k2 % target_products(t, DT_i16, DT_i16) == 0;
}

double strassen_saves(const Target *t, const Value *out, int64_t n, int64_t k, int64_t rows,
                      int64_t columns) {
    const double results = (double)value_numel(out);
    if (!t->word_products || dims_vary(out->rank, out->dims) || n % 2 || k % 2 || results == 0 ||
        !are_whole(t, n / 2, k / 2))
        return 0;
    const double saved =
        saved_of(results * (double)k, (double)rows, (double)columns, results, true);
    return saved > LEAST_WON ? saved : 0;
}

static bool pays(const Quartered *p, const Target *t) {
    const bool words = p->op->body->dt == DT_i32;
    if (words && !are_whole(t, p->n2, p->k2)) return false;
    const double results = (double)value_numel(p->op->out[0]);
    const double all = results * (double)shape_numel(p->op->n_red, p->op->red);
    const double more = (double)(2 * p->m2 - p->m) / (double)p->m; /* rows */
    const double saved = saved_of(all, (double)value_numel(p->rows.v),
                                  (double)value_numel(p->columns.v), results, words);
    return saved - more * PRODUCTS / (PRODUCTS + 1) > LEAST_WON;
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
static Value *sums_of(const Quartered *p, const Factor *f, int64_t half,
                      const signed char sign[PRODUCTS][QUARTERS]) {
    Exprs *x = p->x;
    const DType dt = f->v->dt, reg = dt_reg(dt);
    const int rank = f->v->rank;
    const int64_t all = f->v->shape[f->other], moved = half * f->stride;
    const bool odd = f == &p->rows && p->m % 2;
    int64_t shape[MAX_RANK] = {PRODUCTS};
    for (int d = 0; d < rank; d++) shape[1 + d] = f->v->shape[d];
    shape[1 + f->other] = odd ? half : all - moved;
    shape[1 + f->depth] = p->k2;
    Builder b = build(p->g, 1 + rank, shape);
    const Expr *quarter[QUARTERS], *index[MAX_RANK];
    for (int q = 0; q < QUARTERS; q++) {
        /* the quarters of columns are numbered by depth first */
        bool second_other = f == &p->columns ? q & 1 : q >> 1;
        bool second_depth = f == &p->columns ? q >> 1 : q & 1;
        for (int d = 0; d < rank; d++) index[d] = ex_var(x, 1 + d);
        if (second_other) index[f->other] = ex_add(x, index[f->other], ex_i(x, moved));
        if (second_depth) index[f->depth] = ex_add(x, index[f->depth], ex_i(x, p->k2));
        quarter[q] = ex_cast(x, reg, build_load(&b, f->v, index));
        if (second_other && odd)
            quarter[q] = ex_select(x, ex_lt(x, ex_var(x, 1 + f->other), ex_i(x, all - moved)),
                                   quarter[q], ex_num(x, reg, 0));
    }
    const Expr *sums = NULL;
    for (int i = PRODUCTS - 1; i >= 0; i--) {
        const Expr *sum = ex_cast(x, dt, signed_sum(x, sign[i], quarter, QUARTERS, 1));
        sums = sums ? ex_select(x, ex_lt(x, ex_var(x, 0), ex_i(x, i + 1)), sum, sums) : sum;
    }
    return build_map(&b, dt, sums);
}

/* The sums of quarters of constant words, as sums_of: made here, for they are many. */
static Value *constant_sums(const Quartered *p) {
    const Factor *f = &p->columns;
    const Value *v = f->v;
    Arena *arena = p->g->arena;
    const int16_t *from = constant_settle(arena, f->v);
    int64_t shape[MAX_RANK] = {PRODUCTS}, stride[MAX_RANK], place[QUARTERS];
    stride[v->rank - 1] = 1;
    for (int d = v->rank - 1; d > 0; d--) stride[d - 1] = stride[d] * v->shape[d];
    for (int d = 0; d < v->rank; d++) shape[1 + d] = v->shape[d];
    shape[1 + f->other] = p->n2;
    shape[1 + f->depth] = p->k2;
    for (int q = 0; q < QUARTERS; q++)
        place[q] = (q & 1) * p->n2 * stride[f->other] + (q >> 1) * p->k2 * stride[f->depth];
    const int64_t quarter = shape_numel(v->rank, shape + 1);
    int16_t *sums = ARENA_ARRAY(arena, PRODUCTS * quarter, int16_t);
    int64_t at[MAX_RANK] = {0}, source = 0;
    for (int64_t i = 0; i < quarter; i++) {
        for (int k = 0; k < PRODUCTS; k++) {
            int sum = 0;
            for (int q = 0; q < QUARTERS; q++)
                if (of_columns[k][q]) sum += of_columns[k][q] * from[source + place[q]];
            sums[k * quarter + i] = (int16_t)sum;
        }
        for (int d = v->rank - 1; d >= 0; d--) {
            source += stride[d];
            if (++at[d] < shape[1 + d]) break;
            source -= at[d] * stride[d];
            at[d] = 0;
        }
    }
    return graph_const(p->g, DT_i16, 1 + v->rank, shape, sums);
}

/* The seven products. */
static Value *products(const Quartered *p, Value *rows, Value *columns) {
    const Op *op = p->op;
    const Value *out = op->out[0];
    Exprs *x = p->x;
    const DType dt = (DType)op->body->dt;
    int64_t shape[MAX_RANK] = {PRODUCTS};
    const Expr *of_row[MAX_RANK], *of_column[MAX_RANK], *moved[MAX_RANK];
    for (int d = 0; d < out->rank; d++) shape[1 + d] = out->shape[d];
    shape[1 + p->row] = p->m2;
    shape[1 + p->column] = p->n2;
    Builder b = build(p->g, 1 + out->rank, shape);
    for (int d = 0; d < out->rank; d++) moved[d] = ex_var(x, 1 + d);
    for (int r = 0; r < op->n_red; r++)
        moved[out->rank + r] = build_red(&b, r == p->depth ? p->k2 : op->red[r]);
    of_row[0] = of_column[0] = ex_var(x, 0);
    for (int d = 0; d < rows->rank - 1; d++)
        of_row[1 + d] = ex_subst_vars(x, p->rows.load->arg[d], out->rank + op->n_red, moved);
    for (int d = 0; d < columns->rank - 1; d++)
        of_column[1 + d] = ex_subst_vars(x, p->columns.load->arg[d], out->rank + op->n_red, moved);
    const Expr *body = ex_mul(x, ex_cast(x, dt, build_load(&b, rows, of_row)),
                              ex_cast(x, dt, build_load(&b, columns, of_column)));
    return build_reduce(&b, dt, COMBINE_sum, body, NULL);
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
            product[i] = ex_load(x, made->dt, op->n_in, 1 + rank, index);
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
    op->body = op->post ? ex_replace(x, op->post, ex_acc(x, made->dt), sum) : sum;
    op->post = NULL;
    op->n_red = 0;
    graph_drop_inputs(p->g, op);
}

/* False, and only an operator without users made, if the sums of columns are more than is computed
 * when compiling. */
static bool rewrite(const Quartered *p, Value **sums) {
    Op *last = p->g->last;
    Value *columns =
        p->columns.v->dt == DT_i16 ? constant_sums(p) : sums_of(p, &p->columns, p->n2, of_columns);
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
    int64_t m, stride;
    Value *sums;
} Made;

/* Sums of floats err, and are made where the user asks for them. */
static bool may(const Quartered *p, const PassOptions *o) {
    if (p->op->body->dt == DT_i32 && o->target->word_products)
        return sums_fit(p->g->arena, p->rows.v) && sums_fit(p->g->arena, p->columns.v);
    return p->op->body->dt == DT_f32 && o->strassen &&
           (o->precision == DT_none || o->precision == DT_f32);
}

void pass_strassen(Graph *g, const PassOptions *o) {
    VEC(Made) made = {0};
    if (o->target->blocks || !o->target->vector_types) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_strassen(op->sub, o);
        Quartered p = {.g = g, .x = g->x, .op = op};
        if (!read_product(&p) || !pays(&p, o->target) || !may(&p, o)) continue;
        Made now = {p.rows.v, p.rows.other, p.rows.depth, p.m, p.rows.stride, NULL};
        for (int i = 0; i < made.n; i++) {
            const Made *old = &made.items[i];
            if (old->of == now.of && old->other == now.other && old->depth == now.depth &&
                old->m == now.m && old->stride == now.stride)
                now.sums = old->sums;
        }
        bool known = now.sums;
        if (rewrite(&p, &now.sums) && !known) vec_push(g->arena, &made, now);
    }
}
