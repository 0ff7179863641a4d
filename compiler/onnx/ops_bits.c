/* Weights of few bits, of com.microsoft: products with them (ir/few_bits.h), and rows looked up in
 * tables of them. */
#include "compiler/onnx/index.h"
#include "compiler/onnx/norm.h"
#include "compiler/onnx/quant.h"
#include "compiler/onnx/window.h"
#include "ir/few_bits.h"

#include <string.h>

const Expr *packed_load(Builder *b, Value *v, const Expr **index, const Expr *at, int bits) {
    Exprs *x = b->x;
    int each = 8 / bits;
    index[v->rank - 1] = ex_div(x, at, ex_i(x, each));
    const Expr *byte = ex_cast(x, DT_u32, build_load(b, v, index));
    const Expr *part = ex_bin(x, EX_rem, at, ex_i(x, each));
    const Expr *shift = ex_cast(x, DT_u32, ex_mul(x, part, ex_i(x, bits)));
    return ex_bin(x, EX_band, ex_bin(x, EX_shr, byte, shift), ex_int(x, DT_u32, (1 << bits) - 1));
}

const Expr *packed_weight(Exprs *x, const Expr *byte, const Expr *place, int bits, const Expr *zero,
                          const Expr *scale) {
    DType work = (DType)scale->dt;
    const Expr *w = ex_mul(x, ex_cast(x, work, few_bits_masked(x, byte, place, bits)), scale);
    zero = ex_mul(x, zero, ex_cast(x, work, few_bits_worth(x, place, bits)));
    return ex_sub(x, w, ex_mul(x, zero, scale));
}

static bool bits_ok(Node *n, int64_t bits, int64_t block) {
    bool power = block * bits >= 8 && block <= (1 << 20) && (block & (block - 1)) == 0;
    if ((bits == 2 || bits == 4 || bits == 8) && power) return true;
    if (power)
        unsupported(n, "weights of %lld bits; 2, 4 and 8 are supported", (long long)bits);
    else
        invalid(n, E2004, "attribute 'block_size' is %lld", (long long)block);
    return false;
}

/* v as [rows, columns]; NULL after a report if it does not have as many elements. */
static Value *as_matrix(Node *n, Value *v, int64_t rows, int64_t columns, const char *what) {
    int64_t shape[2] = {rows, columns};
    int64_t count = dim_product(n->x, v->rank, v->dims);
    if (dim_meets(n->x, count, rows * columns)) return g_reshape(n->g, v, 2, shape);
    invalid(n, E2005, "%s has shape %s, expected %lld by %lld", what,
            shape_text(n->g->arena, v->rank, v->dims), (long long)rows, (long long)columns);
    return NULL;
}

/* Zero points as numbers of their own, u8 [N, blocks]. */
static Value *zeros_apart(Graph *g, Value *zeros, int64_t columns, const FewBits *k) {
    Exprs *x = g->x;
    const int64_t shape[2] = {columns, k->blocks};
    Builder b = build(g, 2, shape);
    const Expr *at[2] = {ex_var(x, 0), ex_var(x, 1)};
    return build_map(&b, DT_u8, ex_cast(x, DT_u8, packed_load(&b, zeros, at, at[1], k->bits)));
}

/* The accuracy_level that lets `a` be rounded to bytes, each block of its rows with a scale of its
 * own. The others ask for floats that sums are exact enough in, as f32 is. */
#define INTEGERS 4

/* The product of `a` with weights of `columns` columns; zero points and the bias may be NULL. NULL
 * after a report. */
static Value *bits_product(Node *n, Value *a, Value *packed, Value *scales, Value *zeros,
                           Value *bias, int64_t columns) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int64_t depth = attr_int(n, "K", 0), bits = attr_int(n, "bits", 4),
            block = attr_int(n, "block_size", 128);
    if (!a || !packed || !scales || n->failed || !bits_ok(n, bits, block)) return NULL;
    if (columns < 1 || depth < 1 || columns > INT32_MAX || depth > INT32_MAX || a->rank < 1 ||
        !dim_meets(n->x, a->dims[a->rank - 1], depth) || !dt_is_float(a->dt)) {
        invalid(n, E2005, "an input of shape %s for K %lld and N %lld",
                shape_text(g->arena, a->rank, a->dims), (long long)depth, (long long)columns);
        return NULL;
    }
    int64_t blocks = (depth + block - 1) / block, blob = block * bits / 8;
    packed = as_matrix(n, packed, columns, blocks * blob, "the weights");
    scales = as_matrix(n, scales, columns, blocks, "the scales");
    if (!packed || !scales) return NULL;
    bool packed_zeros = zeros && zeros->dt == DT_u8;
    if (zeros)
        zeros = as_matrix(n, zeros, columns, packed_zeros ? (blocks * bits + 7) / 8 : blocks,
                          "the zero points");
    bool right = !bias || dim_meets(n->x, dim_product(x, bias->rank, bias->dims), columns);
    if (n->failed || !right) {
        if (!n->failed)
            invalid(n, E2005, "the bias does not have %lld numbers", (long long)columns);
        return NULL;
    }
    int64_t shape[MAX_RANK];
    for (int i = 0; i < a->rank; i++) shape[i] = i == a->rank - 1 ? columns : a->dims[i];
    if (!node_shape_ok(n, a->rank, shape)) return NULL;
    DType work = float_work(a->dt);
    int64_t after[MAX_RANK] = {0}, before[MAX_RANK] = {0}, each = 8 / bits;
    after[a->rank - 1] = blocks * block - depth;
    if (blocks * block != depth) a = g_pad(g, a, before, after, (Scalar){.f = 0});
    FewBits k = {.blocks = blocks, .rows = block, .bits = (int)bits, .beside = true, .work = work};
    few_bits_operand(g, &k, a,
                     attr_int(n, "accuracy_level", 0) == INTEGERS && work == DT_f32 && bits < 8);
    if (packed_zeros) zeros = zeros_apart(g, zeros, columns, &k);
    Builder b = build(g, a->rank, shape);
    const Expr *row = ex_var(x, a->rank - 1), *index[MAX_RANK + 1];
    const Expr *at_block = reduce_over(&b, blocks), *place = reduce_over(&b, each);
    const Expr *byte = ex_add(x, ex_mul(x, at_block, ex_i(x, blob)), reduce_over(&b, blob));
    if (!b.n_red) build_red(&b, 1);
    const Expr *at[2] = {row, at_block}, *to[2] = {row, byte};
    for (int i = 0; i < a->rank - 1; i++) index[i] = ex_var(x, i);
    const Expr *zero = ex_num(x, work, (double)(1 << (bits - 1)));
    if (zeros) zero = ex_cast(x, work, build_load(&b, zeros, at));
    const Expr *scale = ex_cast(x, work, build_load(&b, scales, at));
    const Expr *e = few_bits_term(&b, &k, index, at_block, place, byte, build_load(&b, packed, to),
                                  zero, scale);
    const Expr *post = ex_acc(x, work);
    if (bias) {
        const int64_t flat[1] = {columns};
        post = ex_add(x, post, ex_cast(x, work, build_load(&b, g_reshape(g, bias, 1, flat), &row)));
    }
    return build_reduce(&b, a->dt, COMBINE_sum, e, post);
}

void import_ms_matmul_n_bits(Node *n) {
    Value *a = node_need(n, 0), *packed = node_need(n, 1), *scales = node_need(n, 2);
    int64_t columns = attr_int(n, "N", 0);
    if (node_in(n, 4)) {
        unsupported(n, "the input g_idx");
        return;
    }
    n->out[0] = bits_product(n, a, packed, scales, node_in(n, 3), node_in(n, 5), columns);
}

/* Input 0, normalised with the scale in input 2, if there is one. Input 1, if there, is added
 * before, and output `sum` that. NULL after a report. */
static Value *normed_input(Node *n, double epsilon, int sum) {
    Value *v = node_need(n, 0), *skip = node_in(n, 1), *scale = node_in(n, 2);
    if (!v || n->failed) return NULL;
    if (skip && !scale) {
        invalid(n, E2007, "norm_scale is missing, which skip needs");
        return NULL;
    }
    if (v->rank < 1 || !dt_is_float(v->dt) ||
        (skip &&
         (skip->dt != v->dt || !dims_meet(n->x, skip->rank, skip->dims, v->rank, v->dims)))) {
        invalid(n, E2005, "the input is %s%s, skip does not fit it", dt_name(v->dt),
                shape_of(n, v));
        return NULL;
    }
    if (!is_row(n, scale, v)) return NULL;
    Value *parts[2] = {v, skip};
    if (skip && !(v = node_formula(n, "a + b", 2, parts))) return NULL;
    n->out[sum] = v;
    if (!scale) return v;
    Norm m = normalize(n->g, v, v->rank - 1, epsilon, true);
    return norm_scaled(n->g, m.even, scale, NULL, v->dt);
}

/* A gate's activation times another product of the same input. */
void import_ms_matmul_n_bits_mlp(Node *n) {
    const char *activation = attr_str(n, "activation", "");
    int64_t columns = attr_int(n, "N", 0);
    Value *a = normed_input(n, attr_float(n, "epsilon", 1e-5), 1), *part[2];
    if (!a) return;
    if (strcmp(activation, "silu") != 0) {
        unsupported(n, "activation '%s'", activation);
        return;
    }
    for (int i = 0; i < 2; i++) {
        int at = 3 + 3 * i;
        part[i] = bits_product(n, a, node_need(n, at), node_need(n, at + 1), NULL,
                               node_in(n, at + 2), columns);
        if (!part[i]) return;
    }
    n->out[0] = node_formula(n, "a / (1 + exp(-a)) * b", 2, part);
}

/* Queries, keys and values of one input. */
void import_ms_matmul_n_bits_qkv(Node *n) {
    int64_t queries = attr_int(n, "Nq", 0), others = attr_int(n, "Nkv", 0);
    if (!node_need(n, 2)) return;
    Value *a = normed_input(n, attr_float(n, "epsilon", 1e-6), 3);
    for (int i = 0; i < 3 && a && !n->failed; i++) {
        int at = 3 + 3 * i;
        n->out[i] = bits_product(n, a, node_need(n, at), node_need(n, at + 1), NULL,
                                 node_in(n, at + 2), i ? others : queries);
    }
}

/* The numbers that 4 bits stand for: FP4 (sign, and a float of 3 bits) and NF4 (the quantiles of a
 * normal distribution), as bitsandbytes has them. */
static const float bnb4_values[2][16] = {
    {0, 5.208333333e-03f, 0.66666667f, 1, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f,
     -5.208333333e-03f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
     -0.18477343022823334f, -0.09105003625154495f, 0, 0.07958029955625534f, 0.16093020141124725f,
     0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
     0.7229568362236023f, 1},
};

/* Weights [N, K] as one row of 4 bits each, the high ones first; blocks of the row have scales. */
void import_ms_matmul_bnb4(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *a = node_need(n, 0), *packed = node_need(n, 1), *scales = node_need(n, 2);
    int64_t columns = attr_int(n, "N", 0), depth = attr_int(n, "K", 0),
            block = attr_int(n, "block_size", 0), kind = attr_int(n, "quant_type", -1);
    bool turned_weights = attr_int(n, "transB", 1) != 0;
    if (!a || !packed || !scales || n->failed) return;
    if (block < 16 || block > (1 << 20) || (block & (block - 1)) || kind < 0 || kind > 1) {
        invalid(n, E2004, "block_size %lld and quant_type %lld", (long long)block, (long long)kind);
        return;
    }
    if (columns < 1 || depth < 1 || columns > INT32_MAX / depth) {
        invalid(n, E2004, "K is %lld, N is %lld", (long long)depth, (long long)columns);
        return;
    }
    int64_t sum = turned_weights ? depth : columns, wide = turned_weights ? columns : depth;
    int64_t count = columns * depth, shape[MAX_RANK];
    bool fits =
        a->rank > 0 && dim_meets(x, a->dims[a->rank - 1], sum) && dt_is_float(a->dt) &&
        packed->dt == DT_u8 && scales->dt == a->dt &&
        dim_meets(x, dim_product(x, packed->rank, packed->dims), (count + 1) / 2) &&
        dim_meets(x, dim_product(x, scales->rank, scales->dims), (count + block - 1) / block);
    if (!fits) {
        invalid(n, E2005, "an input of shape %s, weights %s and scales %s for K %lld and N %lld",
                shape_text(g->arena, a->rank, a->dims),
                shape_text(g->arena, packed->rank, packed->dims),
                shape_text(g->arena, scales->rank, scales->dims), (long long)depth,
                (long long)columns);
        return;
    }
    packed = g_reshape(g, packed, 1, (int64_t[]){(count + 1) / 2});
    scales = g_reshape(g, scales, 1, (int64_t[]){(count + block - 1) / block});
    for (int i = 0; i < a->rank; i++) shape[i] = i == a->rank - 1 ? wide : a->dims[i];
    if (!node_shape_ok(n, a->rank, shape)) return;
    Value *values = graph_const(g, DT_f32, 1, (int64_t[]){16}, bnb4_values[kind]);
    DType work = float_work(a->dt);
    Builder b = build(g, a->rank, shape);
    const Expr *own = ex_var(x, a->rank - 1), *k = build_red(&b, sum), *index[MAX_RANK];
    const Expr *row = turned_weights ? own : k, *column = turned_weights ? k : own;
    const Expr *at = ex_add(x, ex_mul(x, row, ex_i(x, depth)), column);
    const Expr *byte_at = ex_div(x, at, ex_i(x, 2)), *block_at = ex_div(x, at, ex_i(x, block));
    const Expr *high = ex_bin(x, EX_eq, ex_bin(x, EX_rem, at, ex_i(x, 2)), ex_i(x, 0));
    const Expr *code = ex_cast(x, DT_i32, build_load(&b, packed, &byte_at));
    code = ex_bin(x, EX_band, ex_bin(x, EX_shr, code, ex_select(x, high, ex_i(x, 4), ex_i(x, 0))),
                  ex_i(x, 15));
    const Expr *w = ex_mul(x, ex_cast(x, work, build_load(&b, values, &code)),
                           ex_cast(x, work, build_load(&b, scales, &block_at)));
    for (int i = 0; i < a->rank; i++) index[i] = i == a->rank - 1 ? k : ex_var(x, i);
    const Expr *e = ex_mul(x, ex_cast(x, work, build_load(&b, a, index)), w);
    n->out[0] = build_reduce(&b, a->dt, COMBINE_sum, e, NULL);
}

/* --- weights of 8 and 4 bits that are floats ---------------------------------------------------
 */

/* Is it an input of a product with weights [columns, depth] and scales for blocks of their rows?
 * False after a report. */
static bool block_floats_fit(Node *n, const Value *a, const Value *weights, const Value *scales,
                             int64_t depth, int64_t block) {
    Exprs *x = n->x;
    if (block < 1 || block > INT32_MAX) {
        invalid(n, E2004, "attribute 'block_size' is %lld", (long long)block);
        return false;
    }
    bool fits = a->rank > 0 && dt_is_float(a->dt) && dim_meets(x, a->dims[a->rank - 1], depth) &&
                scales->rank == 2 && dim_meets(x, scales->dims[0], weights->dims[0]) &&
                dim_meets(x, scales->dims[1], dim_div(x, dim_add(x, depth, block - 1), block));
    if (fits) return true;
    invalid(n, E2005, "an input %s%s, weights %s and scales %s do not fit each other",
            dt_name(a->dt), shape_of(n, a), shape_of(n, weights), shape_of(n, scales));
    return false;
}

/* False after a report if `v` (NULL is right) is not one number of f32. */
static bool is_one_f32(Node *n, const Value *v, const char *what) {
    if (!v || (v->dt == DT_f32 && value_single(n, v))) return true;
    invalid(n, v->dt == DT_f32 ? E2005 : E2006, "%s is %s%s, not one number of f32", what,
            dt_name(v->dt), shape_of(n, v));
    return false;
}

/* a times the weights, f32 [columns, depth], plus a bias (NULL: none), as output 0 in `dt`. */
static void set_float_product(Node *n, Value *a, Value *weights, Value *bias, DType dt) {
    static const int perm[2] = {1, 0};
    Value *y = g_matmul(n->g, a, g_transpose(n->g, weights, perm), DT_f32, DT_f32);
    if (!is_row(n, bias, y)) return;
    if (bias) y = g_bin(n->g, EX_add, y, g_cast(n->g, bias, DT_f32));
    n->out[0] = g_cast(n->g, y, dt);
}

#define LARGEST_FP8 448

/* The nearest multiples of `scale` (f32, one number) by floats of 8 bits. */
static Value *rounded_to_fp8(Graph *g, Value *v, Value *scale) {
    Exprs *x = g->x;
    Builder b = build(g, v->rank, v->dims);
    const Expr *by = build_in(&b, scale), *e = ex_div(x, build_in(&b, v), by);
    e = ex_bin(x, EX_max, e, ex_num(x, DT_f32, -LARGEST_FP8));
    e = ex_cast(x, DT_f8e4m3fn, ex_bin(x, EX_min, e, ex_num(x, DT_f32, LARGEST_FP8)));
    return build_map(&b, DT_f32, ex_mul(x, ex_cast(x, DT_f32, e), by));
}

/* Where a_scale is given, the input is rounded to such floats, too. */
void import_ms_matmul_fp8_weight(Node *n) {
    Exprs *x = n->x;
    Value *a = node_need(n, 0), *weights = node_need(n, 1), *scales = node_need(n, 2),
          *a_scale = node_in(n, 3);
    int64_t block = attr_int(n, "block_size", 128);
    if (!a || !weights || !scales || n->failed) return;
    if (weights->rank != 2 || weights->dt != DT_f8e4m3fn || scales->dt != DT_f32) {
        invalid(n, E2006, "weights %s%s and scales %s", dt_name(weights->dt), shape_of(n, weights),
                dt_name(scales->dt));
        return;
    }
    if (!is_one_f32(n, a_scale, "a_scale") ||
        !block_floats_fit(n, a, weights, scales, weights->dims[1], block))
        return;
    DType dt = a->dt;
    a = g_cast(n->g, a, DT_f32);
    if (a_scale) a = rounded_to_fp8(n->g, a, g_reshape(n->g, a_scale, 0, NULL));
    Builder b = build(n->g, 2, weights->dims);
    const Expr *at[2] = {ex_var(x, 0), ex_div(x, ex_var(x, 1), ex_i(x, block))};
    const Expr *w = ex_cast(x, DT_f32, build_in(&b, weights));
    Value *wide = build_map(&b, DT_f32, ex_mul(x, w, build_load(&b, scales, at)));
    set_float_product(n, a, wide, node_in(n, 4), dt);
}

/* The low bits of a byte come first. Scales of blocks are bytes that are floats, and there is one
 * for all weights. A weight is rounded to the input's type; input_scale says nothing of that. */
void import_ms_matmul_fp4_weight(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *a = node_need(n, 0), *packed = node_need(n, 1), *scales = node_need(n, 2),
          *scale = node_need(n, 3);
    int64_t block = attr_int(n, "block_size", 16);
    if (!a || !packed || !scales || !scale || n->failed) return;
    if (packed->rank != 2 || packed->dt != DT_u8 || scales->dt != DT_u8) {
        invalid(n, E2006, "weights %s%s and scales %s", dt_name(packed->dt), shape_of(n, packed),
                dt_name(scales->dt));
        return;
    }
    if (!is_one_f32(n, scale, "weight_scale_2")) return;
    int64_t depth = dim_mul(x, packed->dims[1], 2), shape[2] = {packed->dims[0], depth};
    if (!node_shape_ok(n, 2, shape) || !block_floats_fit(n, a, packed, scales, depth, block))
        return;
    float *decoded = ARENA_ARRAY(g->arena, 16, float);
    for (uint32_t i = 0; i < 16; i++) decoded[i] = (float)dt_decode_float(DT_f4e2m1, i);
    Value *values = graph_const(g, DT_f32, 1, (int64_t[]){16}, decoded);
    Builder b = build(g, 2, shape);
    const Expr *at[2] = {ex_var(x, 0), NULL}, *column = ex_var(x, 1);
    const Expr *code = ex_cast(x, DT_i32, packed_load(&b, packed, at, column, 4));
    at[1] = ex_div(x, column, ex_i(x, block));
    const Expr *own = ex_cast(x, DT_f32, ex_bits(x, DT_f8e4m3fn, build_load(&b, scales, at)));
    const Expr *all = build_in(&b, g_reshape(g, scale, 0, NULL));
    const Expr *w = ex_mul(x, ex_mul(x, build_load(&b, values, &code), all), own);
    Value *weights = build_map(&b, DT_f32, ex_cast(x, DT_f32, ex_cast(x, a->dt, w)));
    set_float_product(n, a, weights, node_in(n, 5), a->dt);
}

/* --- rows of tables --------------------------------------------------------------------------- */

/* data[..., indices, ...] as (data - zero point) * scale; rows that do not exist are zeros. */
void import_ms_gather_block_quantized(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *data = node_need(n, 0), *ids = node_need(n, 1), *scales = node_need(n, 2),
          *zeros = node_in(n, 3);
    if (!data || !ids || !scales) return;
    int axis = node_axis(n, attr_int(n, "gather_axis", 0), data->rank),
        along = node_axis(n, attr_int(n, "quantize_axis", 1), data->rank), rank = data->rank;
    int64_t bits = attr_int(n, "bits", 4), block = attr_int(n, "block_size", 128);
    if (axis < 0 || along < 0 || n->failed || !bits_ok(n, bits, block)) return;
    bool bytes = data->dt == DT_u8;
    int64_t each = bytes ? 8 / bits : 1, extent[MAX_RANK], shape[MAX_RANK];
    for (int i = 0; i < rank; i++) extent[i] = dim_mul(x, data->dims[i], i == rank - 1 ? each : 1);
    bool fits = dt_is_int(data->dt) && dt_is_int(ids->dt) && scales->rank == rank &&
                dt_is_float(scales->dt) &&
                (!zeros || (zeros->rank == rank && zeros->dt == data->dt));
    if (bytes && bits < 8) fits = fits && axis != along && axis != rank - 1;
    for (int i = 0; i < rank && fits; i++) {
        int64_t want = extent[i];
        if (i == along) want = dim_div(x, dim_add(x, want, block - 1), block);
        fits = dim_meets(n->x, scales->dims[i], want);
        if (fits && zeros) {
            if (bytes && i == rank - 1) want = dim_div(x, dim_add(x, want, each - 1), each);
            fits = dim_meets(n->x, zeros->dims[i], want);
        }
    }
    int out_rank = rank - 1 + ids->rank;
    if (!fits || out_rank > MAX_TENSOR_RANK) {
        invalid(n, E2005, "data %s%s, indices, scales %s and zero points do not fit each other",
                dt_name(data->dt), shape_text(g->arena, rank, data->dims),
                shape_text(g->arena, scales->rank, scales->dims));
        return;
    }
    for (int i = 0, k = 0; i < rank; i++) {
        for (int j = 0; i == axis && j < ids->rank; j++) shape[k++] = ids->dims[j];
        if (i != axis) shape[k++] = extent[i];
    }
    if (!node_shape_ok(n, out_rank, shape)) return;
    Builder b = build(g, out_rank, shape);
    const Expr *at[MAX_RANK] = {NULL}, *index[MAX_RANK], *id_at[MAX_RANK];
    for (int j = 0; j < ids->rank; j++) id_at[j] = ex_var(x, axis + j);
    const Expr *id = ex_cast(x, DT_i64, build_load(&b, ids, id_at)), *zero64 = ex_int(x, DT_i64, 0);
    const Expr *limit = ex_int(x, DT_i64, extent[axis]);
    id = ex_select(x, ex_lt(x, id, zero64), ex_add(x, id, limit), id);
    const Expr *exists = ex_and(x, ex_le(x, zero64, id), ex_lt(x, id, limit));
    for (int i = 0; i < rank; i++)
        at[i] = i == axis ? ex_cast(x, DT_i32, id) : ex_var(x, i < axis ? i : i + ids->rank - 1);
    DType work = float_work(scales->dt);
    for (int i = 0; i < rank; i++) index[i] = at[i];
    const Expr *e =
        bytes ? packed_load(&b, data, index, at[rank - 1], (int)bits) : build_load(&b, data, index);
    e = ex_cast(x, work, e);
    for (int i = 0; i < rank; i++) index[i] = i == along ? ex_div(x, at[i], ex_i(x, block)) : at[i];
    const Expr *last = index[rank - 1];
    const Expr *scale = ex_cast(x, work, build_load(&b, scales, index));
    const Expr *zero = ex_num(x, work, bytes ? (double)(1 << (bits - 1)) : 0);
    if (zeros) {
        zero =
            bytes ? packed_load(&b, zeros, index, last, (int)bits) : build_load(&b, zeros, index);
        zero = ex_cast(x, work, zero);
    }
    e = ex_mul(x, ex_sub(x, e, zero), scale);
    n->out[0] = build_map(&b, scales->dt, ex_select(x, exists, e, ex_num(x, work, 0)));
}
