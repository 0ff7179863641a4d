/* Products of floats of 16 bits, or of bytes, that warps multiply, a tile of 16 x 8 sums at a time;
 * see cprint.h.
 *
 * A reduction loop of role tile, of steps of WARP_BYTES, around loops of rows, columns, the two
 * halves of a tile's rows and its pairs of columns, with both factors in shared memory. By the
 * kernel each thread adds up its own sums: rows by its place along y, pairs of columns by that
 * along x. The instruction spreads a tile's sums over the lanes just so (runtime/cuda_intrin.h),
 * and each lane loads a part of the operands for all of them.
 */
#include "codegen/cexpr.h"
#include "ir/tile_plan.h"

#define TEXT(...)  arena_printf(p->scratch, __VA_ARGS__)
#define LINES      8  /* of which one instruction loads WARP_BYTES each */
#define LANE_BYTES 16 /* which one lane gives the address of */

/* An operand, its rows (or columns) called lines. */
typedef struct Operand {
    const Expr *load;
    int64_t line, step; /* strides in shared memory */
    int64_t each;       /* numbers of LANE_BYTES */
} Operand;

typedef struct WarpTile {
    const Stmt *loop, *row, *column, *half, *pair, *store;
    int x, y; /* variables: the thread in its warp */
    Operand rows, columns;
} WarpTile;

/* The variable of the loop that has a role; -1: there is none. */
static int var_of_role(const Stmt *s, Role role) {
    int found = -1;
    for (; s && found < 0; s = s->next) {
        if (s->kind == ST_for && s->role == role) return s->var;
        found = var_of_role(s->body, role);
        if (found < 0) found = var_of_role(s->other, role);
    }
    return found;
}

/* The only statement of a loop, if that is unrolled and runs so often; 0: however often. */
static const Stmt *inside_of(const Stmt *s, int64_t extent) {
    const bool fits = s && s->kind == ST_for &&
                      (s->role == ROLE_unroll || s->role == ROLE_vector) &&
                      ex_is_const(s->extent) && (!extent || s->extent->k.i == extent);
    return fits && !s->body->next ? s->body : NULL;
}

static bool has_stride(const Expr *e, int var, int64_t wanted) {
    int64_t stride;
    return ex_stride(e, var, &stride) && stride == wanted;
}

/* Reads one factor, which must not depend on `others`, variables up to -1; `line`: the variable
 * whose step is one line. */
static bool read_operand(const Printer *p, const WarpTile *t, const Expr *factor, int line,
                         const int *others, Operand *o) {
    const Expr *load = factor->op == EX_cast ? factor->arg[0] : NULL;
    if (!load || load->op != EX_load || load->n != 1 || !p->d->wide[load->dt] ||
        (DType)factor->dt != (dt_is_float((DType)load->dt) ? DT_f32 : DT_i32) ||
        p->k->buffers.items[load->k.i]->space != SPACE_shared)
        return false;
    const Expr *index = load->arg[0];
    for (; *others >= 0; others++)
        if (!has_stride(index, *others, 0)) return false;
    const int64_t size = (int64_t)dt_store((DType)load->dt);
    *o = (Operand){.load = load, .each = LANE_BYTES / size};
    if (size > 2 || !ex_is_int(t->loop->extent, WARP_BYTES / size)) return false;
    if (!ex_stride(index, line, &o->line) || !ex_stride(index, t->loop->var, &o->step))
        return false;
    if (o->step == 1) return o->line % o->each == 0;
    return size == 2 && o->line == 1 && o->step % o->each == 0;
}

static bool read_warp_tile(const Printer *p, const Stmt *s, WarpTile *t) {
    *t = (WarpTile){.loop = s, .row = s->body};
    if (!p->d->warp_tiles || s->role != ROLE_tile || p->k->block[0] != WARP_X ||
        p->k->block[1] != WARP_Y || s->body->next)
        return false;
    t->column = inside_of(t->row, 0);
    t->half = inside_of(t->column, 0);
    t->pair = inside_of(t->half, 2);
    t->store = inside_of(t->pair, 2);
    if (!t->store || t->store->kind != ST_store) return false;
    t->x = var_of_role(p->k->body, ROLE_thread_x);
    t->y = var_of_role(p->k->body, ROLE_thread_y);
    const Expr *sum = t->store->value, *index = t->store->index[0], *product = NULL;
    for (int i = 0; sum->op == EX_add && i < 2; i++)
        if (sum->arg[i]->op == EX_load && sum->arg[i]->k.i == t->store->buffer &&
            sum->arg[i]->arg[0] == index)
            product = sum->arg[1 - i];
    if (!product || product->op != EX_mul || !has_stride(index, t->half->var, 2) ||
        !has_stride(index, t->pair->var, 1))
        return false;
    const int not_rows[] = {t->x, t->column->var, t->pair->var, -1};
    const int not_columns[] = {t->y, t->row->var, t->half->var, -1};
    for (int i = 0; i < 2; i++)
        if (read_operand(p, t, product->arg[i], t->y, not_rows, &t->rows) &&
            read_operand(p, t, product->arg[1 - i], t->pair->var, not_columns, &t->columns) &&
            has_stride(t->columns.load->arg[0], t->x, 2 * t->columns.line))
            return product->dt == DT_i32 || t->rows.load->dt == t->columns.load->dt;
    return false;
}

/* Where what this lane gives the address of begins: lane i that of line i % LINES, quarter i /
 * LINES of the steps, or, where lines lie side by side, of step i, all of those. NULL: not where
 * LANE_BYTES do. */
static const Expr *lane_place(Printer *p, const WarpTile *t, const Operand *o, const Expr *half) {
    Exprs *x = p->x;
    const Expr **at = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    const Expr *zero = ex_i(x, 0), *lane_x = ex_var(x, t->x), *lane_y = ex_var(x, t->y);
    at[t->loop->var] = at[t->x] = at[t->y] = at[t->pair->var] = zero;
    at[t->half->var] = half;
    const Expr *first = ex_subst_vars(x, o->load->arg[0], p->k->vars.n, at);
    first = ex_simplify(x, first, p->k->vars.n, p->extent);
    if (!ex_is_multiple(first, o->each)) return NULL;
    const Expr *step = ex_add(x, ex_mul(x, lane_y, ex_i(x, WARP_X)), lane_x);
    if (o->step == 1) {
        const Expr *line = ex_bin(x, EX_rem, step, ex_i(x, LINES));
        first = ex_add(x, first, ex_mul(x, line, ex_i(x, o->line)));
        step = ex_mul(x, ex_div(x, step, ex_i(x, LINES)), ex_i(x, o->each));
    }
    first = ex_add(x, first, ex_mul(x, step, ex_i(x, o->step)));
    return ex_simplify(x, first, p->k->vars.n, p->extent);
}

static void print_lines(Printer *p, const Operand *o, const char *to, const Expr *place) {
    const int mark = p->named.n;
    begin_statement(p, 1, &place);
    print_line(p, "mlcc_ldmatrix_x4%s(%s, %s + %s);", o->step == 1 ? "" : "_trans", to,
               p->buffer[o->load->k.i], print_root(p, place));
    end_statement(p, mark);
}

static void open_loop(Printer *p, const char *var, int64_t extent) {
    p->unit->needs |= NEEDS_unroll;
    print_line(p, "%s", p->d->unroll);
    print_line(p, "for (int %s = 0; %s < %lld; %s++) {", var, var, (long long)extent, var);
    p->indent++;
}

static void close_loop(Printer *p) {
    p->indent--;
    print_line(p, "}");
}

bool print_warp_tile(Printer *p, const Stmt *s) {
    WarpTile t;
    if (!read_warp_tile(p, s, &t)) return false;
    const Expr *upper = lane_place(p, &t, &t.rows, ex_i(p->x, 0));
    const Expr *lower = lane_place(p, &t, &t.rows, ex_i(p->x, 1));
    const Expr *columns = lane_place(p, &t, &t.columns, ex_i(p->x, 0));
    if (!upper || !lower || !columns) return false;
    const char *row = p->var[t.row->var], *column = p->var[t.column->var];
    const char *a = names_take(&p->names, "rows", "rows");
    const char *b = names_take(&p->names, "columns", "columns");
    const char *step = names_take(&p->names, "step", "step");
    const int64_t n_rows = t.row->extent->k.i, n_columns = t.column->extent->k.i;
    print_line(p, "unsigned int %s[8], %s[%lld];", a, b, (long long)(4 * n_columns));
    open_loop(p, column, n_columns);
    print_lines(p, &t.columns, TEXT("%s + 4 * %s", b, column), columns);
    close_loop(p);
    open_loop(p, row, n_rows);
    print_lines(p, &t.rows, a, upper);
    print_lines(p, &t.rows, TEXT("%s + 4", a), lower);
    open_loop(p, step, 2);
    open_loop(p, column, n_columns);
    const Expr **at = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    at[t.half->var] = at[t.pair->var] = ex_i(p->x, 0);
    const Expr *sums = ex_subst_vars(p->x, t.store->index[0], p->k->vars.n, at);
    sums = ex_simplify(p->x, sums, p->k->vars.n, p->extent);
    const int mark = p->named.n;
    begin_statement(p, 1, &sums);
    print_line(p, "mlcc_warp_product_%s_%s(%s + %s, %s + 2 * %s, %s + 4 * %s + 2 * %s);",
               dt_name((DType)t.rows.load->dt), dt_name((DType)t.columns.load->dt),
               p->buffer[t.store->buffer], print_root(p, sums), a, step, b, column, step);
    end_statement(p, mark);
    for (int i = 0; i < 3; i++) close_loop(p);
    return true;
}
