/* bits: constants of 2 and 4 bits that are decoded for a product alone stay in their bytes.
 *
 * Such weights reach a product as (q - zero) * scale, where scale and zero point are the same for a
 * block of the depth, as DequantizeLinear has them. Decoded they would take eight times their room,
 * which a run that reads them once must fetch from memory. So the product becomes one of
 * ir/few_bits.h, which schedules sum up in two steps (nest_partial). With --precision=int8 the
 * other factor is rounded to bytes.
 */
#include "ir/constant.h"
#include "ir/few_bits.h"
#include "passes/inline.h"
#include "passes/passes.h"

#define MOST_MOVES 4   /* between decoding and product */
#define MOST_ROWS  256 /* of a block */
#define LEAST_ROWS 16
#define BYTE_BITS  8

/* A sum over the depth, coordinate `depth`, of x * (q - zero) * scale, of which q, zero and scale
 * are constants that depend on that and on coordinate `column`. */
typedef struct Decoded {
    Exprs *x;
    Op op; /* with the decoding in its body */
    int depth, column;
    const Expr *other; /* x, which does not depend on `column` */
    const Expr *q, *scale;
    const Expr *zero; /* i32, a load or a number; NULL: 0 */
    int64_t rows;     /* of a block */
} Decoded;

/* --- reading ---------------------------------------------------------------------------------- */

static const Expr *load_behind(const Expr *e) {
    if (e->op == EX_cast && e->dt == DT_i32) e = e->arg[0];
    return e->op == EX_load ? e : NULL;
}

static bool is_few_bits(DType dt) {
    return dt_is_int(dt) && (dt_bits(dt) == 4 || dt_bits(dt) == 2);
}

/* Reads `e` as (q - zero) * scale. */
static bool read_weight(Decoded *d, const Expr *e) {
    for (int i = 0; e->op == EX_mul && i < 2; i++) {
        const Expr *number = e->arg[i];
        if (number->op != EX_cast || number->arg[0]->dt != DT_i32) continue;
        number = number->arg[0];
        d->scale = e->arg[1 - i];
        d->zero = NULL;
        if (number->op == EX_sub) {
            d->zero = number->arg[1];
            number = number->arg[0];
            if (!load_behind(d->zero) && !ex_is_const(d->zero)) continue;
        }
        d->q = load_behind(number);
        if (d->q && is_few_bits((DType)d->q->dt) && d->scale->op == EX_load) return true;
    }
    return false;
}

static bool all_constant(const Decoded *d, const Expr *load) {
    return value_is_const(d->op.in[load->k.i]);
}

static uint64_t vars_of(const Expr *e) {
    return e ? ex_vars(e) : 0;
}

/* `e` at row `row` of block `block` of the depth. */
static const Expr *at_row(Decoded *d, const Expr *e, const Expr *block, const Expr *row) {
    Exprs *x = d->x;
    const Expr *to[MAX_RANK] = {NULL};
    int64_t extent[MAX_RANK + 2];
    const int n = op_extents(&d->op, extent);
    to[d->depth] = ex_add(x, ex_mul(x, block, ex_i(x, d->rows)), row);
    return ex_subst_vars(x, e, n, to);
}

/* Do all rows of a block have the same one? */
static bool is_shared(Decoded *d, const Expr *e) {
    int64_t extent[MAX_RANK + 2];
    const int n = op_extents(&d->op, extent);
    if (!e) return true;
    extent[n] = extent[d->depth] / d->rows;
    extent[n + 1] = d->rows;
    e = at_row(d, e, ex_var(d->x, n), ex_var(d->x, n + 1));
    e = ex_simplify(d->x, e, n + 2, extent);
    return !(vars_of(e) >> (n + 1) & 1);
}

/* Does the place of what is loaded grow evenly along `var`? */
static bool is_even(const Expr *load, int var) {
    int64_t stride;
    for (int i = 0; i < load->n; i++)
        if (!ex_stride(load->arg[i], var, &stride)) return false;
    return true;
}

/* The coordinate that the weight depends on beside the depth; -1: there is none, or several. */
static int column_of(const Decoded *d) {
    const uint64_t vars = vars_of(d->q) & ~(UINT64_C(1) << d->depth);
    for (int i = 0; i < d->depth; i++)
        if (vars == UINT64_C(1) << i) return i;
    return -1;
}

static bool find_blocks(Decoded *d) {
    const int64_t depth = d->op.red[0];
    const int each = BYTE_BITS / dt_bits((DType)d->q->dt);
    for (d->rows = MOST_ROWS; d->rows >= LEAST_ROWS; d->rows /= 2)
        if (depth % d->rows == 0 && d->rows % (4 * each) == 0 && is_shared(d, d->scale) &&
            is_shared(d, d->zero))
            return true;
    return false;
}

static bool is_map_of_constants(const Value *v, int deep) {
    const Op *m = v->def->kind == OP_reshape ? v->def->in[0]->def : v->def;
    if (m->kind != OP_map || !deep) return false;
    for (int i = 0; i < m->n_in; i++)
        if (!value_is_const(m->in[i]) && !is_map_of_constants(m->in[i], deep - 1)) return false;
    return m->n_in > 0;
}

static bool read_decoded(Graph *g, const Op *op, Decoded *d) {
    const Expr *body = op->body;
    *d = (Decoded){.x = g->x, .op = *op, .depth = op->out[0]->rank};
    if (!is_product_of_two(op) || body->dt != DT_f32 || op->n_red != 1) return false;
    int64_t work = 0;
    for (int moves = 0; moves < MOST_MOVES; moves++) {
        for (int i = 0; i < 2 && d->op.body->op == EX_mul; i++) {
            d->other = d->op.body->arg[1 - i];
            if (!read_weight(d, d->op.body->arg[i])) continue;
            d->column = column_of(d);
            const Expr *zero = d->zero ? load_behind(d->zero) : NULL;
            if (d->column < 0) return false;
            const uint64_t both = UINT64_C(1) << d->depth | UINT64_C(1) << d->column;
            return all_constant(d, d->q) && all_constant(d, d->scale) && d->scale->dt == DT_f32 &&
                   (!zero || all_constant(d, zero)) &&
                   !((vars_of(d->scale) | vars_of(d->zero)) & ~both) &&
                   !(vars_of(d->other) >> d->column & 1) && is_even(d->q, d->depth) &&
                   is_even(d->q, d->column) && find_blocks(d);
        }
        int inlined = -1;
        for (int i = 0; i < 2 && d->op.body->op == EX_mul && inlined < 0; i++) {
            const Expr *load = d->op.body->arg[i];
            if (load->op == EX_load && is_map_of_constants(d->op.in[load->k.i], MOST_MOVES))
                inlined = (int)load->k.i;
        }
        if (inlined < 0 || !op_inline(g, &d->op, inlined, MAX_INPUTS, &work)) return false;
    }
    return false;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The element that the load finds at these coordinates, of constant data. */
static double number_at(const Decoded *d, const Expr *load, const void *data, int64_t column,
                        int64_t row, bool integer) {
    const Value *v = d->op.in[load->k.i];
    int64_t at[MAX_RANK + 1] = {0}, place = 0;
    at[d->column] = column;
    at[d->depth] = row;
    for (int i = 0; i < load->n; i++) place = place * v->shape[i] + ex_eval(load->arg[i], at).i;
    const Scalar s = dt_load(v->dt, data, (size_t)place);
    return integer ? (double)s.i : s.f;
}

/* What is added to an element for its bits to be those of an unsigned one. */
static int bias_of(DType dt) {
    return dt == DT_i4 || dt == DT_i2 ? 1 << (dt_bits(dt) - 1) : 0;
}

/* Weights as bytes, [columns, blocks * bytes]: rows that share a byte are as far apart as a block
 * has bytes. */
static Value *pack_weights(Graph *g, const Decoded *d, int64_t columns, int64_t blocks) {
    const Value *v = d->op.in[d->q->k.i];
    const int bits = (int)dt_bits(v->dt), each = BYTE_BITS / bits, bias = bias_of(v->dt);
    const int64_t blob = d->rows / each, shape[2] = {columns, blocks * blob};
    const void *from = constant_data(g->arena, v);
    unsigned char *to = arena_alloc(g->arena, (size_t)(shape[0] * shape[1]));
    int64_t first = 0, by_column = 0, by_row = 0, at[MAX_RANK + 1] = {0};
    for (int i = 0; i < d->q->n; i++) {
        int64_t along_column, along_row;
        ex_stride(d->q->arg[i], d->column, &along_column);
        ex_stride(d->q->arg[i], d->depth, &along_row);
        first = first * v->shape[i] + ex_eval(d->q->arg[i], at).i;
        by_column = by_column * v->shape[i] + along_column;
        by_row = by_row * v->shape[i] + along_row;
    }
    for (int64_t c = 0; c < columns; c++)
        for (int64_t b = 0; b < blocks; b++)
            for (int64_t i = 0; i < blob; i++) {
                unsigned byte = 0;
                for (int p = 0; p < each; p++) {
                    const int64_t row = b * d->rows + p * blob + i;
                    const int64_t place = first + c * by_column + row * by_row;
                    const Scalar w = dt_load(v->dt, from, (size_t)place);
                    byte |= (unsigned)(w.i + bias) << p * bits;
                }
                to[(c * blocks + b) * blob + i] = (unsigned char)byte;
            }
    return graph_const(g, DT_u8, 2, shape, to);
}

/* Scales or zero points, with `add` added, as [columns, blocks]. */
static Value *per_block(Graph *g, const Decoded *d, const Expr *load, DType dt, int64_t columns,
                        int64_t blocks, int add) {
    const int64_t shape[2] = {columns, blocks};
    const void *from = constant_data(g->arena, d->op.in[load->k.i]);
    void *to = arena_alloc(g->arena, (size_t)(columns * blocks) * dt_store(dt));
    for (int64_t c = 0; c < columns; c++)
        for (int64_t b = 0; b < blocks; b++) {
            const double s = number_at(d, load, from, c, b * d->rows, dt != DT_f32);
            const Scalar number = dt == DT_f32 ? (Scalar){.f = s} : (Scalar){.i = (int64_t)s + add};
            dt_save(dt, to, (size_t)(c * blocks + b), number);
        }
    return graph_const(g, dt, 2, shape, to);
}

/* x as a tensor of its own, [.., depth]: of the coordinates of the result that it depends on, which
 * go to `coordinate`. */
static Value *other_factor(Graph *g, const Decoded *d, int *coordinate) {
    Exprs *x = g->x;
    const LaidOut l = lay_out(x, &d->op, vars_of(d->other), d->depth);
    for (int i = 0; i < l.rank - 1; i++) coordinate[i] = (int)l.own[i]->k.i;
    Builder b = build(g, l.rank, l.dims);
    const Expr *e = ex_subst_vars(x, d->other, d->depth + 1, l.to);
    return build_map(&b, DT_f32, build_rebased(&b, d->op.in, e));
}

/* bytes: x may be rounded to such. */
static void keep_packed(Graph *g, Op *op, Decoded *d, bool bytes) {
    Exprs *x = g->x;
    const DType dt = (DType)d->q->dt;
    const int bias = bias_of(dt);
    FewBits k = {
        .blocks = op->red[0] / d->rows, .rows = d->rows, .bits = (int)dt_bits(dt), .work = DT_f32};
    const int64_t columns = op->out[0]->shape[d->column], width = few_bits_bytes(&k);
    int coordinate[MAX_RANK];
    Value *v = other_factor(g, d, coordinate);
    few_bits_operand(g, &k, v, bytes);
    Value *weights = pack_weights(g, d, columns, k.blocks);
    Value *scales = per_block(g, d, d->scale, DT_f32, columns, k.blocks, 0);
    const bool table = d->zero && !ex_is_const(d->zero);
    Value *zeros =
        table ? per_block(g, d, load_behind(d->zero), DT_u8, columns, k.blocks, bias) : NULL;

    Builder b = build(g, op->out[0]->rank, op->out[0]->dims);
    const Expr *block = build_red(&b, k.blocks), *place = build_red(&b, few_bits_each(&k));
    const Expr *byte = ex_add(x, ex_mul(x, block, ex_i(x, width)), build_red(&b, width));
    const Expr *at[MAX_RANK + 1], *column = ex_var(x, d->column);
    const Expr *in_block[2] = {column, block}, *in_byte[2] = {column, byte};
    for (int i = 0; i < v->rank - 1; i++) at[i] = ex_var(x, coordinate[i]);
    const Expr *zero = ex_num(x, DT_f32, (double)(bias + (d->zero && !table ? d->zero->k.i : 0)));
    if (zeros) zero = ex_cast(x, DT_f32, build_load(&b, zeros, in_block));
    op->body = few_bits_term(&b, &k, at, block, place, byte, build_load(&b, weights, in_byte), zero,
                             build_load(&b, scales, in_block));
    op->post = build_rebased(&b, d->op.in, d->op.post);
    op->in = b.in.items;
    op->n_in = b.in.n;
    op->n_red = b.n_red;
    op->red = arena_copy(g->arena, b.red, (size_t)b.n_red * sizeof *b.red);
}

/* --- devices ---------------------------------------------------------------------------------- */

/* The factors of `e`, without casts of all of it, that depend on coordinate `column`, or that do
 * not, as one of f32; NULL: there are none. */
static const Expr *factors_of(Graph *g, const Expr *e, int column, bool depend) {
    Exprs *x = g->x;
    if (e->op == EX_cast && e->arg[0]->op == EX_mul) e = e->arg[0];
    if (e->op != EX_mul) return ex_depends(e, column) == depend ? ex_cast(x, DT_f32, e) : NULL;
    const Expr *a = factors_of(g, e->arg[0], column, depend);
    const Expr *b = factors_of(g, e->arg[1], column, depend);
    return !a ? b : !b ? a : ex_mul(x, a, b);
}

/* The product of these factors as one of two, of which one depends on `column`; NULL: it is none.
 */
static const Expr *as_product(Graph *g, const Expr *e, int column) {
    const Expr *rows = factors_of(g, e, column, false), *columns = factors_of(g, e, column, true);
    return rows && columns ? ex_mul(g->x, rows, columns) : NULL;
}

/* The sum over blocks of what zero points contribute: `e` is that of a block. */
static Value *sum_of_blocks(Graph *g, const Op *op, const Expr *e) {
    const int rank = op->out[0]->rank;
    const uint64_t vars = ex_vars(e);
    const Expr *to[2 * MAX_RANK] = {NULL};
    Builder b = build(g, rank, op->out[0]->dims);
    for (int i = 0; i < op->n_red; i++)
        if (vars >> (rank + i) & 1) to[rank + i] = build_red(&b, op->red[i]);
    if (!b.n_red) build_red(&b, 1);
    e = ex_subst_vars(g->x, e, rank + op->n_red, to);
    return build_reduce(&b, DT_f32, COMBINE_sum, build_rebased(&b, op->in, e), NULL);
}

/* Devices decode weights on their way into shared memory, where many rows meet them: the sum
 * becomes one of products of v with decoded weights, and another, over blocks, is subtracted from
 * it. */
static void take_apart(Graph *g, Op *op) {
    Exprs *x = g->x;
    const int rank = op->out[0]->rank, column = rank - 1;
    const Expr *body = op->body, *at[MAX_RANK];
    if (!op_is_product(op) || body->dt != DT_f32 || !rank) return;
    const int k = body->arg[0]->op == EX_sub ? 0 : 1;
    const Expr *difference = body->arg[k], *scale = body->arg[1 - k];
    if (difference->op != EX_sub || difference->arg[1]->op != EX_mul) return;
    const Expr *product = difference->arg[0];
    if (product->op == EX_cast) product = product->arg[0];
    if (product->op != EX_mul) return;
    int64_t times = 1; /* that a block's term occurs in the sum */
    const Expr *of_zeros = ex_mul(x, difference->arg[1], scale);
    for (int i = 0; i < op->n_red; i++)
        if (!ex_depends(of_zeros, rank + i)) times *= op->red[i];
    of_zeros = as_product(g, ex_mul(x, of_zeros, ex_num(x, DT_f32, (double)times)), column);
    body = as_product(g, ex_mul(x, ex_cast(x, DT_f32, product), scale), column);
    if (!of_zeros || !body) return;
    Value *zeros = sum_of_blocks(g, op, of_zeros);
    for (int i = 0; i < rank; i++) at[i] = ex_var(x, i);
    const Expr *less = ex_load(x, DT_f32, op_add_input(g, op, zeros), rank, at);
    const Expr *acc = ex_acc(x, DT_f32);
    op->body = body;
    op->post = ex_replace(x, op->post, acc, ex_sub(x, acc, less));
}

void pass_bits(Graph *g, const PassOptions *o) {
    for (Op *op = g->first; op; op = op->next) {
        Op *last = g->last;
        Decoded d;
        if (op->sub) pass_bits(op->sub, o);
        if (op->kind != OP_reduce || op->out[0]->rank + 3 > MAX_RANK) continue;
        if (o->target->blocks)
            take_apart(g, op);
        else if (read_decoded(g, op, &d))
            keep_packed(g, op, &d, o->bytes);
        graph_take_in(g, last, op);
    }
    pass_dce(g, o);
}
