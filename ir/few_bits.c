/* See few_bits.h. */
#include "ir/few_bits.h"

#include <string.h>

const Expr *few_bits_worth(Exprs *x, const Expr *place, int bits) {
    return ex_bin(x, EX_shl, ex_i(x, 1), ex_mul(x, place, ex_i(x, bits)));
}

const Expr *few_bits_masked(Exprs *x, const Expr *byte, const Expr *place, int bits) {
    const Expr *w = ex_cast(x, DT_i32, byte);
    if (bits == 8) return w;
    return ex_bin(x, EX_band, w,
                  ex_mul(x, ex_i(x, (1 << bits) - 1), few_bits_worth(x, place, bits)));
}

/* The weight at `place` of the byte, as an i32. */
static const Expr *shifted(Exprs *x, const Expr *byte, const Expr *place, int bits) {
    const Expr *w = ex_bin(x, EX_shr, ex_cast(x, DT_i32, byte), ex_mul(x, place, ex_i(x, bits)));
    return ex_bin(x, EX_band, w, ex_i(x, (1 << bits) - 1));
}

/* A tensor of v's extents with others in place of its rows. The first coordinates go to `at`. */
static Builder instead_of_rows(Graph *g, const Value *v, int n, const int64_t *extent,
                               const Expr **at) {
    int64_t shape[MAX_RANK + 1];
    const int last = v->rank - 1;
    for (int i = 0; i < last; i++) {
        shape[i] = v->dims[i];
        at[i] = ex_var(g->x, i);
    }
    memcpy(shape + last, extent, (size_t)n * sizeof *extent);
    return build(g, last + n, shape);
}

/* A tensor by places and bytes, with the row of an element. */
static Builder by_places(Graph *g, const FewBits *k, const Value *v, const Expr **at) {
    Exprs *x = g->x;
    const int last = v->rank - 1;
    const int64_t bytes = few_bits_bytes(k), extent[2] = {few_bits_each(k), k->blocks * bytes};
    Builder b = instead_of_rows(g, v, 2, extent, at);
    const Expr *place = ex_var(x, last), *byte = ex_var(x, last + 1), *width = ex_i(x, bytes);
    if (k->beside) {
        at[last] = ex_add(x, ex_mul(x, byte, ex_i(x, extent[0])), place);
    } else {
        const Expr *first = ex_mul(x, ex_div(x, byte, width), ex_i(x, k->rows));
        const Expr *within = ex_add(x, ex_mul(x, place, width), ex_bin(x, EX_rem, byte, width));
        at[last] = ex_add(x, first, within);
    }
    return b;
}

Value *few_bits_places(Graph *g, const FewBits *k, Value *v) {
    Exprs *x = g->x;
    const Expr *at[MAX_RANK + 1];
    Builder b = by_places(g, k, v, at);
    const Expr *worth = few_bits_worth(x, ex_var(x, v->rank - 1), k->bits);
    const Expr *e = ex_cast(x, k->work, build_load(&b, v, at));
    return build_map(&b, k->work, ex_div(x, e, ex_cast(x, k->work, worth)));
}

static Value *as_bytes(Graph *g, const FewBits *k, Value *v) {
    Exprs *x = g->x;
    const Expr *at[MAX_RANK + 1];
    Builder b = by_places(g, k, v, at);
    const Expr *e = ex_cast(x, k->work, build_load(&b, v, at));
    at[v->rank - 1] = ex_div(x, ex_var(x, v->rank), ex_i(x, few_bits_bytes(k)));
    return build_map(&b, DT_i8, ex_as_byte(x, e, build_load(&b, k->scale, at)));
}

/* Divided by this the largest element of each block of v is 127. */
static Value *scales_of(Graph *g, const FewBits *k, Value *v) {
    Exprs *x = g->x;
    const Expr *at[MAX_RANK + 1], *block = ex_var(x, v->rank - 1);
    Builder b = instead_of_rows(g, v, 1, &k->blocks, at);
    at[v->rank - 1] = ex_add(x, ex_mul(x, block, ex_i(x, k->rows)), build_red(&b, k->rows));
    const Expr *e = ex_un(x, EX_abs, ex_cast(x, k->work, build_load(&b, v, at)));
    return build_reduce(&b, k->work, COMBINE_max, e,
                        ex_div(x, ex_acc(x, k->work), ex_num(x, k->work, 127)));
}

/* The means of blocks of v, or, if there are such, of what its bytes stand for. */
static Value *means_of(Graph *g, const FewBits *k, Value *v) {
    Exprs *x = g->x;
    const int last = v->rank - 1;
    const Expr *at[MAX_RANK + 1], *block = ex_var(x, last), *e;
    const int64_t bytes = few_bits_bytes(k);
    Builder b = instead_of_rows(g, v, 1, &k->blocks, at);
    if (k->scale) {
        at[last] = build_red(&b, few_bits_each(k));
        at[last + 1] = ex_add(x, ex_mul(x, block, ex_i(x, bytes)), build_red(&b, bytes));
        e = ex_cast(x, DT_i32, build_load(&b, k->v, at));
    } else {
        at[last] = ex_add(x, ex_mul(x, block, ex_i(x, k->rows)), build_red(&b, k->rows));
        e = ex_cast(x, k->work, build_load(&b, v, at));
    }
    const Expr *mean = ex_mul(x, ex_cast(x, k->work, ex_acc(x, (DType)e->dt)),
                              ex_num(x, k->work, 1.0 / (double)k->rows));
    at[last] = block;
    if (k->scale) mean = ex_mul(x, build_load(&b, k->scale, at), mean);
    return build_reduce(&b, k->work, COMBINE_sum, e, mean);
}

void few_bits_operand(Graph *g, FewBits *k, Value *v, bool bytes) {
    k->scale = bytes ? scales_of(g, k, v) : NULL;
    k->v = bytes ? as_bytes(g, k, v) : few_bits_places(g, k, v);
    k->mean = means_of(g, k, v);
}

const Expr *few_bits_term(Builder *b, const FewBits *k, const Expr **at, const Expr *block,
                          const Expr *place, const Expr *byte, const Expr *weights,
                          const Expr *zero, const Expr *scale) {
    Exprs *x = b->x;
    const int last = k->mean->rank - 1;
    at[last] = block;
    const Expr *mean = build_load(b, k->mean, at), *e;
    const Expr *by = k->scale ? build_load(b, k->scale, at) : NULL;
    at[last] = place;
    at[last + 1] = byte;
    const Expr *v = build_load(b, k->v, at);
    if (k->scale)
        e = ex_mul(x, ex_cast(x, DT_i32, v), shifted(x, weights, place, k->bits));
    else
        e = ex_mul(x, v, ex_cast(x, k->work, few_bits_masked(x, weights, place, k->bits)));
    e = ex_cast(x, k->work, e);
    if (by) e = ex_mul(x, by, e);
    return ex_mul(x, ex_sub(x, e, ex_mul(x, mean, zero)), scale);
}
