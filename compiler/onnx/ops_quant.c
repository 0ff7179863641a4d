/* Quantisation: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, QLinearConv,
 * QLinearMatMul.
 *
 * Nothing here is a kernel of its own: quantising and its reverse are maps, to be fused into the
 * sums beside them, and sums of products of integers are exact in i32.
 */
#include "compiler/onnx/quant.h"

#include <string.h>

/* --- what is shared --------------------------------------------------------------------------- */

Value *import_as(Node *n, ImportFn *fn, int version, int n_in, Value *const *in) {
    Arena *arena = n->g->arena;
    Node other = *n;
    other.version = version;
    other.n_in = n_in;
    other.in = arena_copy(arena, in, (size_t)n_in * sizeof *in);
    other.entity = ARENA_ARRAY(arena, n_in, Entity *);
    other.out = ARENA_ARRAY(arena, MAX_SET_OUTPUTS, Value *);
    other.out_entity = ARENA_ARRAY(arena, MAX_SET_OUTPUTS, Entity *);
    fn(&other);
    n->failed |= other.failed;
    return other.failed ? NULL : other.out[0];
}

/* The range of an integer type of at most 16 bits. */
static void int_range(DType dt, double *low, double *high) {
    int bits = dt_bits(dt);
    bool is_signed = dt_kind(dt) == DK_sint;
    *low = is_signed ? -(double)(1 << (bits - 1)) : 0;
    *high = (double)(1 << (is_signed ? bits - 1 : bits)) - 1;
}

static bool is_small_int(DType dt) {
    return dt_is_int(dt) && dt_bits(dt) <= 16;
}

/* round(e) + zero, saturated (before it is rounded: the bounds are whole numbers); e is f32 or f64.
 * zero may be NULL. Where it is known at run time only, so are the bounds: constants around them
 * say that what is rounded is small. */
static const Expr *encode(Exprs *x, DType dt, const Expr *e, const Expr *zero, bool known_zero) {
    DType work = (DType)e->dt;
    double low, high;
    int_range(dt, &low, &high);
    const Expr *least = ex_num(x, work, low), *most = ex_num(x, work, high);
    if (zero) {
        least = ex_sub(x, least, ex_cast(x, work, zero));
        most = ex_sub(x, most, ex_cast(x, work, zero));
    }
    e = ex_bin(x, EX_min, ex_bin(x, EX_max, e, least), most);
    if (zero && !known_zero) {
        e = ex_bin(x, EX_max, e, ex_num(x, work, low - high));
        e = ex_bin(x, EX_min, e, ex_num(x, work, high - low));
    }
    e = ex_un(x, EX_round, e);
    e = ex_cast(x, DT_i32, e);
    return ex_cast(x, dt, zero ? ex_add(x, e, ex_cast(x, DT_i32, zero)) : e);
}

static bool is_known(const Value *zero) {
    return !zero || value_is_const(zero);
}

/* The one element of a value. */
static const Expr *only(Builder *b, Value *v) {
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) index[i] = ex_i(b->x, 0);
    return build_load(b, v, index);
}

bool quant_read(Node *n, int i, DType dt, Quant *q) {
    *q = (Quant){node_need(n, i), node_in(n, i + 1), dt};
    if (!q->scale) return false;
    if (q->zero) q->dt = q->zero->dt;
    if (!value_single(n, q->scale) || (q->zero && !value_single(n, q->zero))) {
        unsupported(n, "a scale or zero point (inputs %d, %d) that is not one number", i, i + 1);
        return false;
    }
    if (dt_is_float(q->scale->dt) && is_small_int(q->dt)) return true;
    invalid(n, E2006, "a scale (input %d) of type %s for elements of type %s", i,
            dt_name(q->scale->dt), dt_name(q->dt));
    return false;
}

Value *quant_decode(Node *n, Value *v, const Quant *q) {
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *e = ex_cast(x, DT_i32, build_in(&b, v));
    if (q->zero) e = ex_sub(x, e, ex_cast(x, DT_i32, only(&b, q->zero)));
    e = ex_mul(x, ex_cast(x, DT_f32, e), ex_cast(x, DT_f32, only(&b, q->scale)));
    return build_map(&b, DT_f32, e);
}

static Value *build_encoded(Builder *b, const Expr *e, const Quant *q) {
    const Expr *zero = q->zero ? only(b, q->zero) : NULL;
    return build_map(b, q->dt, encode(b->x, q->dt, e, zero, is_known(q->zero)));
}

Value *quant_encode(Node *n, Value *v, const Quant *q) {
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *e = ex_div(x, build_in(&b, v), ex_cast(x, DT_f32, only(&b, q->scale)));
    return build_encoded(&b, e, q);
}

Value *quant_scaled(Node *n, Value *v, Value *factor, const Quant *q) {
    Exprs *x = n->x;
    int rank;
    int64_t shape[MAX_RANK];
    if (!shape_broadcast(n->x, v->rank, v->dims, factor->rank, factor->dims, &rank, shape) ||
        !dims_meet(n->x, rank, shape, v->rank, v->dims)) {
        invalid(n, E2005, "scales of shape %s do not fit a result of shape %s",
                shape_text(n->g->arena, factor->rank, factor->dims),
                shape_text(n->g->arena, v->rank, v->dims));
        return NULL;
    }
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *e =
        ex_mul(x, ex_cast(x, DT_f32, build_in(&b, v)), ex_cast(x, DT_f32, build_in(&b, factor)));
    return build_encoded(&b, e, q);
}

Value *quant_row_scale(Graph *g, Value *scale) {
    int64_t shape[2] = {scale->rank ? scale->dims[0] : 1, 1};
    return scale->rank == 1 && shape[0] != 1 ? g_reshape(g, scale, 2, shape) : scale;
}

Value *quant_matmul(Node *n, Value *a, Value *a_zero, Value *b, Value *b_zero) {
    Value *in[4] = {a, b, a_zero, b_zero};
    if (is_small_int(a->dt) && is_small_int(b->dt))
        return import_as(n, import_matmul_integer, 10, 4, in);
    unsupported(n, "matrices of %s and %s", dt_name(a->dt), dt_name(b->dt));
    return NULL;
}

Value *quant_centre(Graph *g, Value *v, Value *zero) {
    Builder b = build(g, v->rank, v->dims);
    const Expr *e = ex_cast(g->x, DT_i32, build_in(&b, v));
    if (zero) e = ex_sub(g->x, e, ex_cast(g->x, DT_i32, build_in(&b, zero)));
    return build_map(&b, DT_i32, e);
}

/* --- QuantizeLinear, DequantizeLinear --------------------------------------------------------- */

/* How scales and zero points lie along a tensor: one for all, one per index of `axis`, or one per
 * `block` indices of it. */
typedef struct Grain {
    int axis;
    int64_t block;
} Grain;

/* Is the parameter one number for all? (Not if it only may have one element.) */
static bool is_one(Exprs *x, const Value *p) {
    return dim_product(x, p->rank, p->dims) == 1;
}

/* False after a report if a parameter does not fit. */
static bool grain_fits(Node *n, const Grain *grain, const Value *v, const Value *p) {
    Exprs *x = n->x;
    if (!p || is_one(x, p) || grain->axis < 0) return true;
    bool fits;
    if (grain->block) {
        fits = p->rank == v->rank;
        for (int i = 0; i < v->rank && fits; i++) {
            int64_t d = v->dims[i];
            if (i == grain->axis) d = dim_div(x, dim_add(x, d, grain->block - 1), grain->block);
            fits = dim_can_meet(n->x, p->dims[i], d);
            if (fits) dim_claim(n->x, CLAIM_broadcast, p->dims[i], d);
        }
    } else {
        int64_t d = v->dims[grain->axis];
        fits = p->rank == 1 && dim_can_meet(n->x, p->dims[0], d);
        if (fits) dim_claim(n->x, CLAIM_broadcast, p->dims[0], d);
    }
    if (!fits)
        invalid(n, E2005, "a scale or zero point of shape %s does not fit a tensor of shape %s",
                shape_text(n->g->arena, p->rank, p->dims),
                shape_text(n->g->arena, v->rank, v->dims));
    return fits;
}

/* Reads axis and block size, checks scale and zero point (which may be NULL). */
static bool read_grain(Node *n, const Value *v, const Value *scale, const Value *zero,
                       Grain *grain) {
    grain->axis = -1;
    grain->block = attr_int(n, "block_size", 0);
    if (grain->block < 0 || grain->block > INT32_MAX) {
        invalid(n, E2004, "block_size is %lld", (long long)grain->block);
        return false;
    }
    if (!dt_is_float(scale->dt) && scale->dt != DT_i32) {
        invalid(n, E2006, "the scale is %s", dt_name(scale->dt));
        return false;
    }
    if (!is_one(n->x, scale) || (zero && !is_one(n->x, zero))) {
        int64_t axis = attr_int(n, "axis", 1);
        /* without such an axis they must be one number each */
        bool one = value_single(n, scale) && (!zero || value_single(n, zero));
        if (one && (axis < -v->rank || axis >= v->rank)) return !n->failed;
        grain->axis = node_axis(n, axis, v->rank);
        if (grain->axis < 0) return false;
    }
    return !n->failed && grain_fits(n, grain, v, scale) && grain_fits(n, grain, v, zero);
}

/* The parameter of the element at hand. */
static const Expr *grain_load(Builder *b, const Grain *grain, Value *p) {
    Exprs *x = b->x;
    const Expr *index[MAX_RANK];
    if (is_one(x, p) || grain->axis < 0) return only(b, p);
    if (!grain->block) {
        index[0] = build_index(b, grain->axis, p->dims[0]);
        return build_load(b, p, index);
    }
    for (int i = 0; i < p->rank; i++)
        index[i] = i == grain->axis ? NULL : build_index(b, i, p->dims[i]);
    index[grain->axis] = ex_div(x, ex_var(x, grain->axis), ex_i(x, grain->block));
    return build_load(b, p, index);
}

/* The type of the result: the zero point's, or the attribute's, which must agree. */
static DType quantized_dtype(Node *n, const Value *zero) {
    int64_t asked = attr_int(n, "output_dtype", 0);
    DType dt = asked ? node_dtype(n, asked) : zero ? zero->dt : DT_u8;
    if (n->failed) return DT_none;
    bool is_8bit_float = dt_is_float(dt) && dt_bits(dt) <= 8 && dt != DT_f8e8m0;
    if (zero && zero->dt != dt)
        invalid(n, E2006, "the zero point is %s, output_dtype %s", dt_name(zero->dt), dt_name(dt));
    else if (!is_small_int(dt) && !is_8bit_float)
        invalid(n, E2006, "elements of type %s cannot be quantised to", dt_name(dt));
    return n->failed ? DT_none : dt;
}

void import_quantize_linear(Node *n) {
    Value *v = node_need(n, 0), *scale = node_need(n, 1), *zero = node_in(n, 2);
    Grain grain;
    if (!v || !scale || !read_grain(n, v, scale, zero, &grain)) return;
    Exprs *x = n->x;
    DType dt = quantized_dtype(n, zero), work = scale->dt;
    int64_t precision = attr_int(n, "precision", 0);
    if (precision) work = node_dtype(n, precision);
    if (!precision && work == DT_i32) work = DT_f64; /* which holds all quotients' halves */
    if (n->failed || dt == DT_none || work == DT_none) return;
    if (!dt_is_float(work)) {
        invalid(n, E2006, "precision is %s", dt_name(work));
        return;
    }
    Builder b = build(n->g, v->rank, v->dims);
    /* the division rounds to `work`, what follows is computed in a type that holds all integers */
    const Expr *e = ex_div(x, ex_cast(x, work, build_in(&b, v)),
                           ex_cast(x, work, grain_load(&b, &grain, scale)));
    e = ex_cast(x, dt_reg(work), e);
    const Expr *offset = zero ? grain_load(&b, &grain, zero) : NULL;
    if (is_small_int(dt)) {
        n->out[0] = build_map(&b, dt, encode(x, dt, e, offset, is_known(zero)));
        return;
    }
    if (offset) e = ex_add(x, e, ex_cast(x, dt_reg(work), offset));
    /* CastLike knows how these round and saturate */
    Value *in[2] = {build_map(&b, dt_reg(work), e), g_scalar(n->g, dt, 0)};
    n->out[0] = import_as(n, import_cast_like, 25, 2, in);
}

void import_dequantize_linear(Node *n) {
    Value *v = node_need(n, 0), *scale = node_need(n, 1), *zero = node_in(n, 2);
    Grain grain;
    if (!v || !scale || !read_grain(n, v, scale, zero, &grain)) return;
    Exprs *x = n->x;
    int64_t asked = attr_int(n, "output_dtype", 0);
    DType dt = asked ? node_dtype(n, asked) : scale->dt;
    if (n->failed) return;
    if (!dt_is_float(dt)) {
        invalid(n, E2006, "output_dtype is %s", dt_name(dt));
        return;
    }
    if (zero && zero->dt != v->dt) {
        invalid(n, E2006, "the zero point is %s, the input %s", dt_name(zero->dt), dt_name(v->dt));
        return;
    }
    Builder b = build(n->g, v->rank, v->dims);
    DType work = dt_reg(dt), whole = is_small_int(v->dt) ? DT_i32 : dt_is_int(v->dt) ? v->dt : work;
    const Expr *e = ex_cast(x, whole, build_in(&b, v));
    if (zero) e = ex_sub(x, e, ex_cast(x, whole, grain_load(&b, &grain, zero)));
    e = ex_mul(x, ex_cast(x, work, e), ex_cast(x, work, grain_load(&b, &grain, scale)));
    n->out[0] = build_map(&b, dt, e);
}

/* --- DynamicQuantizeLinear -------------------------------------------------------------------- */

Value *quant_dynamic(Graph *g, Value *v, uint32_t dims, Value **scale, Value **zero) {
    static const char *const names[] = {"a", "b"};
    const bool keep = dims != (1u << v->rank) - 1;
    if (v->dt != DT_f32) v = g_cast(g, v, DT_f32);
    /* the range always has 0 in it; a range of nothing but 0 gets the scale 1 / 255 */
    Value *ends[2] = {g_reduce(g, COMBINE_min, v, dims, keep),
                      g_reduce(g, COMBINE_max, v, dims, keep)};
    ends[0] = g_formula(g, "min(a, 0)", 1, names, &ends[0]);
    ends[1] = g_formula(g, "max(a, 0)", 1, names, &ends[1]);
    *scale = g_formula(g, "select(a == b, 1, b - a) / 255", 2, names, ends);
    Value *low[2] = {ends[0], *scale};
    Value *at = g_formula(g, "round(max(0, min(255, 0 - a / b)))", 2, names, low);
    *zero = g_cast(g, at, DT_u8);
    Builder b = build(g, v->rank, v->dims);
    const Expr *e = ex_div(g->x, build_in(&b, v), build_in(&b, *scale));
    return build_map(&b, DT_u8, encode(g->x, DT_u8, e, build_in(&b, *zero), false));
}

void import_dynamic_quantize_linear(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    if (!dt_is_float(v->dt) || value_numel(v) == 0) {
        invalid(n, E2006, "the input must hold floats");
        return;
    }
    n->out[0] = quant_dynamic(n->g, v, (1u << v->rank) - 1, &n->out[1], &n->out[2]);
}

/* --- QLinearMatMul, QLinearConv --------------------------------------------------------------- */

/* scale * scale / scale, rounded to their own type at each step. */
static Value *joined_scale(Node *n, Value *a, Value *b, Value *y) {
    int rank;
    int64_t shape[MAX_RANK];
    if (a->dt != b->dt || b->dt != y->dt || !dt_is_float(a->dt)) {
        invalid(n, E2006, "scales of types %s, %s and %s", dt_name(a->dt), dt_name(b->dt),
                dt_name(y->dt));
        return NULL;
    }
    if (!value_single(n, y)) {
        unsupported(n, "a scale of the result that is not one number");
        return NULL;
    }
    if (!shape_broadcast(n->x, a->rank, a->dims, b->rank, b->dims, &rank, shape)) {
        invalid(n, E2005, "scales of shapes %s and %s do not broadcast",
                shape_text(n->g->arena, a->rank, a->dims),
                shape_text(n->g->arena, b->rank, b->dims));
        return NULL;
    }
    Value *product = g_bin(n->g, EX_mul, a, b);
    return g_bin(n->g, EX_div, product, g_reshape(n->g, y, 0, NULL));
}

/* A tensor of one element as a scalar, so that it broadcasts to anything. */
static Value *as_scalar(Graph *g, Value *v) {
    return is_one(g->x, v) ? g_reshape(g, v, 0, NULL) : v;
}

void import_qlinear_matmul(Node *n) {
    Value *in[8];
    for (int i = 0; i < 8; i++)
        if (!(in[i] = node_need(n, i))) return;
    Quant q;
    if (!quant_read(n, 6, in[7]->dt, &q)) return;
    Value *sum = quant_matmul(n, in[0], in[2], in[3], in[5]);
    if (!sum) return;
    Value *a = quant_row_scale(n->g, as_scalar(n->g, in[1])), *b = as_scalar(n->g, in[4]);
    Value *factor = joined_scale(n, a, b, in[6]);
    if (factor) n->out[0] = quant_scaled(n, sum, factor, &q);
}

void import_qlinear_conv(Node *n) {
    Value *in[8], *bias = node_in(n, 8);
    for (int i = 0; i < 8; i++)
        if (!(in[i] = node_need(n, i))) return;
    Graph *g = n->g;
    Quant q;
    if (!quant_read(n, 6, in[7]->dt, &q)) return;
    if (in[3]->rank < 1 || (bias && bias->rank != 1) ||
        (bias && (bias->dt != DT_i32 || !dim_meets(n->x, bias->dims[0], in[3]->dims[0])))) {
        invalid(n, E2005, "the bias must have one i32 for each output channel");
        return;
    }
    Value *conv_in[4] = {in[0], in[3], in[2], in[5]};
    Value *sum = import_as(n, import_conv_integer, 10, 4, conv_in);
    Value *a = as_scalar(g, in[1]), *w = as_scalar(g, in[4]);
    if (!sum) return;
    /* what goes with the channels lies along dimension 1 */
    int64_t shape[MAX_RANK];
    for (int i = 0; i < sum->rank; i++) shape[i] = i == 1 ? sum->dims[1] : 1;
    if (bias) sum = g_bin(g, EX_add, sum, g_reshape(g, bias, sum->rank, shape));
    if (w->rank) {
        if (w->rank != 1 || !dim_meets(n->x, w->dims[0], sum->dims[1])) {
            invalid(n, E2005, "the weights' scales have shape %s; expected [%lld]",
                    shape_text(g->arena, w->rank, w->dims), (long long)sum->dims[1]);
            return;
        }
        shape[1] = w->dims[0];
        w = g_reshape(g, w, sum->rank, shape);
    }
    if (value_single(n, a)) a = g_reshape(g, a, 0, NULL);
    Value *factor = joined_scale(n, a, w, in[6]);
    if (factor) n->out[0] = quant_scaled(n, sum, factor, &q);
}
