/* Sums with small matrices of numbers as factors, as Winograd's transforms are: the innermost loops
 * of their nest are straight lines. See nest_build.h.
 *
 *     result[i, j] = sum over r, s of a[i, r] * b[j, s] * x[r, s]
 *
 * takes the sums with `a` for every s, then those with `b` of what came of that. Rows of such
 * matrices, and columns, come in pairs which differ in the signs of some elements: of these, sum
 * and difference are computed once, and of zeros nothing is.
 */
#include "passes/inline.h"
#include "passes/nest_build.h"

#include <math.h>

/* The factors of a product. */
typedef struct Factors {
    const Expr *number[MOST_MATRICES]; /* those that have no loads */
    int n;
    const Expr *other; /* the one that has; NULL: there is none */
} Factors;

#define MOST_SPELLED 1024 /* nodes */

/* Is it a choice by where two coordinates are, as pass winograd spells its matrices out? A zero of
 * these counts for nothing, while a float times another zero may be NaN. */
static bool is_spelled_out(const Expr *e) {
    if (ex_is_const(e)) return true;
    if (e->size > MOST_SPELLED) return false;
    return e->op == EX_select && e->arg[0]->op == EX_eq && ex_is_const(e->arg[0]->arg[1]) &&
           is_spelled_out(e->arg[1]) && is_spelled_out(e->arg[2]);
}

/* Adds the factors of `e`; false if there are too many. */
static bool add_factors(const Expr *e, Factors *f) {
    if (e->op == EX_mul) return add_factors(e->arg[0], f) && add_factors(e->arg[1], f);
    if (!e->loads && e->op == EX_select && (!dt_is_float((DType)e->dt) || is_spelled_out(e))) {
        if (f->n == MOST_MATRICES) return false;
        f->number[f->n++] = e;
        return true;
    }
    if (f->other) return false;
    f->other = e;
    return true;
}

bool op_applies_matrices(const Op *op) {
    Factors f = {.n = 0};
    if (!op_is_product(op) || op->n_red > MOST_MATRICES) return false;
    if (dt_store((DType)op->body->dt) > 4) return false; /* a Matrix holds all that others have */
    for (int i = 0; i < op->n_red; i++)
        if (op->red[i] > MOST_NUMBERS) return false;
    return add_factors(op->body, &f) && f.other && f.n == op->n_red;
}

/* The loop that `number` depends on beside reduction loop `red`; -1: none, or several. */
static int row_of(const Nest *n, const Expr *number, int red) {
    int row = -1;
    for (int i = 0; i < n->n_order; i++) {
        const int loop = n->order[i];
        if (loop == red || !ex_depends(number, loop)) continue;
        if (row >= 0 || n->loop[loop].reduce) return -1;
        row = loop;
    }
    return row;
}

/* Reads the elements of `number`; false if its matrix is too large, or some are not known. */
static bool read_matrix(const Nest *n, const Expr *number, Matrix *m) {
    m->rows = (int)n->loop[m->row].extent;
    m->columns = (int)n->loop[m->red].extent;
    if (n->loop[m->row].extent > MOST_NUMBERS || n->loop[m->red].extent > MOST_NUMBERS)
        return false;
    for (int i = 0; i < m->rows; i++)
        for (int k = 0; k < m->columns; k++) {
            const Expr *e = ex_subst_var(n->x, number, m->row, ex_i(n->x, i));
            e = ex_simplify(n->x, ex_subst_var(n->x, e, m->red, ex_i(n->x, k)), 0, NULL);
            if (!ex_is_const(e)) return false;
            m->at[i][k] = dt_is_float((DType)e->dt) ? e->k.f : (double)e->k.i;
        }
    return true;
}

bool nest_read_matrices(const Nest *n, MatrixSum *m) {
    Factors f = {.n = 0};
    int reds = 0;
    *m = (MatrixSum){.n = 0};
    if (!op_applies_matrices(n->op) || n->guard[1]) return false;
    if (!add_factors(nest_body(n), &f) || !f.other || !f.n) return false;
    m->factor = f.other;
    for (int i = 0; i < n->n_order; i++) {
        const int red = n->order[i];
        if (!n->loop[red].reduce) continue;
        if (++reds > f.n) return false;
        Matrix *one = &m->of[m->n++];
        const Expr *own = NULL;
        for (int k = 0; k < f.n; k++)
            if (ex_depends(f.number[k], red)) own = own ? NULL : f.number[k];
        if (!own) return false;
        *one = (Matrix){.row = row_of(n, own, red), .red = red};
        if (one->row < 0 || ex_depends(m->factor, one->row) || !read_matrix(n, own, one))
            return false;
    }
    return reds == f.n && (f.n == 1 || m->of[0].row != m->of[1].row);
}

/* --- straight lines --------------------------------------------------------------------------- */

/* What is computed, each value once, in rows of lanes of a buffer. */
typedef struct Lines {
    Build *b;
    int buffer;
    const NestLoop *lanes;
    int64_t n; /* values */
    DType dt;  /* that sums are computed in */
    Stmt *list;
} Lines;

/* Where the lanes of value `number` are in a buffer. */
static const Expr *lanes_of_value(const Lines *l, int64_t number) {
    Exprs *x = l->b->x;
    return ex_add(x, ex_i(x, number * l->lanes->extent), ex_var(x, l->lanes->var));
}

static void put(Lines *l, int buffer, int64_t number, const Expr *value) {
    value = ex_cast(l->b->x, l->b->k->buffers.items[buffer]->dt, value);
    stmt_append(&l->list, nest_new_store(l->b, buffer, lanes_of_value(l, number), value));
}

/* The value as it lies in the buffer of lines, widened. */
static const Expr *keep(Lines *l, const Expr *value) {
    Exprs *x = l->b->x;
    const Expr *load = without_casts(value);
    if (ex_is_const(value) || (load->op == EX_load && load->k.i == l->buffer)) return value;
    put(l, l->buffer, l->n, value);
    const Expr *at = lanes_of_value(l, l->n++);
    return ex_cast(x, l->dt, ex_load(x, l->b->k->buffers.items[l->buffer]->dt, l->buffer, 1, &at));
}

/* Adds `times` the value to a sum, NULL: to none. */
static const Expr *with_term(Exprs *x, const Expr *sum, const Expr *value, double times) {
    const DType dt = (DType)value->dt;
    if (times == 0) return sum;
    const Expr *term = fabs(times) == 1 ? value : ex_mul(x, value, ex_num(x, dt, fabs(times)));
    if (!sum) return times > 0 ? term : ex_un(x, EX_neg, term);
    return times > 0 ? ex_add(x, sum, term) : ex_sub(x, sum, term);
}

/* The sum of the values, so many times each, those first that are added. */
static const Expr *sum_of(const Lines *l, int count, const double *times,
                          const Expr *const *value) {
    Exprs *x = l->b->x;
    const Expr *sum = NULL;
    for (int negative = 0; negative < 2; negative++)
        for (int i = 0; i < count; i++)
            if ((times[i] < 0) == negative) sum = with_term(x, sum, value[i], times[i]);
    return sum ? sum : ex_num(x, l->dt, 0);
}

/* Are elements `step` apart of two rows or columns, so many, alike but for the signs of some? */
static bool are_pair(int count, const double *a, const double *b, int step) {
    int same = 0, opposite = 0;
    for (int i = 0; i < count; i++) {
        const double one = a[i * step], other = b[i * step];
        if (fabs(one) != fabs(other)) return false;
        same += one != 0 && one == other;
        opposite += one != 0 && one != other;
    }
    return same && opposite;
}

/* Two columns that are a pair become one for their sum and one for their difference. */
static void pair_columns(Lines *l, Matrix *m, const Expr **value) {
    Exprs *x = l->b->x;
    for (int c = 0; c < m->columns; c++)
        for (int d = c + 1; d < m->columns; d++) {
            if (!are_pair(m->rows, &m->at[0][c], &m->at[0][d], MOST_NUMBERS)) continue;
            const Expr *one = value[c], *other = value[d];
            value[c] = keep(l, ex_add(x, one, other));
            value[d] = keep(l, ex_sub(x, one, other));
            for (int i = 0; i < m->rows; i++) {
                const bool same = m->at[i][c] == m->at[i][d];
                m->at[i][same ? d : c] = 0;
                if (!same) m->at[i][d] = -m->at[i][d];
            }
        }
}

/* The rows of the matrix times the values. */
static void apply(Lines *l, const Matrix *of, const Expr *const *values, const Expr **result) {
    Exprs *x = l->b->x;
    Matrix m = *of;
    const Expr *value[MOST_NUMBERS];
    bool done[MOST_NUMBERS] = {false};
    for (int c = 0; c < m.columns; c++) value[c] = values[c];
    pair_columns(l, &m, value);
    for (int i = 0; i < m.rows; i++)
        for (int k = i + 1; k < m.rows && !done[i]; k++) {
            if (done[k] || !are_pair(m.columns, m.at[i], m.at[k], 1)) continue;
            double part[2][MOST_NUMBERS];
            for (int c = 0; c < m.columns; c++) {
                const bool same = m.at[i][c] == m.at[k][c];
                part[!same][c] = m.at[i][c];
                part[same][c] = 0;
            }
            const Expr *one = keep(l, sum_of(l, m.columns, part[0], value));
            const Expr *other = keep(l, sum_of(l, m.columns, part[1], value));
            result[i] = ex_add(x, one, other);
            result[k] = ex_sub(x, one, other);
            done[i] = done[k] = true;
        }
    for (int i = 0; i < m.rows; i++)
        if (!done[i]) result[i] = sum_of(l, m.columns, m.at[i], value);
}

/* What the matrices are applied to, where the reduction loops are at (r, s). */
static const Expr *element(Lines *l, const MatrixSum *m, int r, int s) {
    Exprs *x = l->b->x;
    const Expr *e = ex_subst_var(x, m->factor, m->of[0].red, ex_i(x, r));
    if (m->n > 1) e = ex_subst_var(x, e, m->of[1].red, ex_i(x, s));
    return keep(l, nest_in_loops(l->b, e));
}

/* The number in the tile of the result in row i of the first matrix and row j of the other. */
static int64_t number_in_tile(const Build *b, const MatrixSum *m, int64_t i, int64_t j) {
    int64_t number = 0;
    for (int t = 0; t < b->n_tile - 1; t++) {
        const int loop = b->tile[t];
        number = number * b->n->loop[loop].extent + (loop == m->of[0].row ? i : j);
    }
    return number;
}

/* Does only a result's place in the tile say that it lies beyond the edge, and not its lane? What
 * is read for the whole tile lies inside then. */
static bool ends_in_rows(const Build *b, const MatrixSum *m, const Expr *guard) {
    if (guard->op == EX_and)
        return ends_in_rows(b, m, guard->arg[0]) && ends_in_rows(b, m, guard->arg[1]);
    bool row = false;
    for (int i = 0; i < m->n; i++) row |= ex_depends(guard, b->n->loop[m->of[i].row].var);
    return row && !ex_depends(guard, b->n->loop[b->tile[m->n]].var);
}

Stmt *nest_apply_matrices(Build *b) {
    const Nest *n = b->n;
    MatrixSum m;
    if (!nest_read_matrices(n, &m) || b->n_tile != m.n + 1) return NULL;
    const NestLoop *lanes = &n->loop[b->tile[m.n]];
    if (lanes->role != ROLE_vector || (b->guard[0] && !ends_in_rows(b, &m, b->guard[0])))
        return NULL;
    for (int i = 0; i < m.n; i++)
        if (b->tile[i] != m.of[0].row && (m.n == 1 || b->tile[i] != m.of[1].row)) return NULL;
    const DType held = b->k->buffers.items[b->acc_buffer]->dt;
    int64_t size = 0; /* of t: known in the end */
    const int buffer = kernel_buffer(b->p, b->k, "t", SPACE_reg, held, 1, &size);
    Lines l = {b, buffer, lanes, 0, (DType)n->op->body->dt, NULL};
    const int columns = m.n > 1 ? m.of[1].columns : 1, rows = m.of[0].rows;
    const Expr *value[MOST_NUMBERS], *half[MOST_NUMBERS][MOST_NUMBERS], *result[MOST_NUMBERS];
    for (int s = 0; s < columns; s++) {
        for (int r = 0; r < m.of[0].columns; r++) value[r] = element(&l, &m, r, s);
        apply(&l, &m.of[0], value, result);
        for (int i = 0; i < rows; i++) {
            if (m.n == 1)
                put(&l, b->acc_buffer, number_in_tile(b, &m, i, 0), result[i]);
            else
                half[i][s] = keep(&l, result[i]);
        }
    }
    for (int i = 0; i < rows && m.n > 1; i++) {
        apply(&l, &m.of[1], half[i], result);
        for (int j = 0; j < m.of[1].rows; j++)
            put(&l, b->acc_buffer, number_in_tile(b, &m, i, j), result[j]);
    }
    size = l.n * lanes->extent;
    b->k->buffers.items[buffer]->shape = arena_copy(b->p->arena, &size, sizeof size);
    Stmt *list = nest_new_alloc(b, buffer);
    Stmt *loop = nest_new_for(b, lanes->var, lanes->extent, ROLE_vector);
    loop->body = l.list;
    stmt_append(&list, loop);
    return list;
}
