/* Arithmetic of com.microsoft that no operator of ai.onnx has. */
#include "compiler/onnx/quant.h"
#include "compiler/onnx/text.h"

#include <string.h>

/* --- distances, complex numbers --------------------------------------------------------------- */

/* Between the rows of two matrices. */
void import_ms_cdist(Node *n) {
    Exprs *x = n->x;
    Value *a = node_need(n, 0), *b = node_need(n, 1);
    const char *metric = attr_str(n, "metric", "sqeuclidean");
    if (!a || !b || n->failed) return;
    bool root = !strcmp(metric, "euclidean");
    if (!root && strcmp(metric, "sqeuclidean") != 0) {
        unsupported(n, "metric '%s'", metric);
        return;
    }
    if (a->rank != 2 || b->rank != 2 || !dim_meets(x, a->dims[1], b->dims[1]) || a->dt != b->dt ||
        !dt_is_float(a->dt)) {
        invalid(n, E2005, "matrices of shapes %s and %s", shape_text(n->g->arena, a->rank, a->dims),
                shape_text(n->g->arena, b->rank, b->dims));
        return;
    }
    int64_t shape[2] = {a->dims[0], b->dims[0]};
    if (!node_shape_ok(n, 2, shape)) return;
    DType work = dt_reg(a->dt);
    Builder to = build(n->g, 2, shape);
    const Expr *k = build_red(&to, dim_same(a->dims[1], b->dims[1]));
    const Expr *own[2] = {ex_var(x, 0), k}, *other[2] = {ex_var(x, 1), k};
    const Expr *d = ex_sub(x, ex_cast(x, work, build_load(&to, a, own)),
                           ex_cast(x, work, build_load(&to, b, other)));
    const Expr *post = root ? ex_un(x, EX_sqrt, ex_acc(x, work)) : NULL;
    n->out[0] = build_reduce(&to, a->dt, COMBINE_sum, ex_mul(x, d, d), post);
}

/* Products of complex numbers, whose parts lie along the last dimension; ComplexMulConj takes the
 * second ones conjugated. */
void import_ms_complex_mul(Node *n) {
    Exprs *x = n->x;
    Value *a = node_need(n, 0), *b = node_need(n, 1);
    if (!a || !b) return;
    int rank;
    int64_t shape[MAX_RANK];
    bool fits = a->rank > 0 && b->rank > 0 && a->dims[a->rank - 1] == 2 &&
                b->dims[b->rank - 1] == 2 && a->dt == b->dt && dt_is_float(a->dt);
    if (!fits || !shape_broadcast(x, a->rank, a->dims, b->rank, b->dims, &rank, shape)) {
        invalid(n, E2005, "complex numbers of shapes %s and %s",
                shape_text(n->g->arena, a->rank, a->dims),
                shape_text(n->g->arena, b->rank, b->dims));
        return;
    }
    Builder to = build(n->g, rank, shape);
    Value *v[2] = {a, b};
    const Expr *part[2][2], *real = ex_bin(x, EX_eq, ex_var(x, rank - 1), ex_i(x, 0));
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 2; p++) {
            const Expr *index[MAX_RANK];
            int left = rank - v[i]->rank;
            for (int d = 0; d < v[i]->rank; d++)
                index[d] = build_index(&to, left + d, v[i]->dims[d]);
            index[v[i]->rank - 1] = ex_i(x, p);
            part[i][p] = ex_cast(x, dt_reg(a->dt), build_load(&to, v[i], index));
        }
    const Expr *imaginary = part[1][1];
    if (!strcmp(n->op, "ComplexMulConj")) imaginary = ex_un(x, EX_neg, imaginary);
    const Expr *re = ex_sub(x, ex_mul(x, part[0][0], part[1][0]), ex_mul(x, part[0][1], imaginary));
    const Expr *im = ex_add(x, ex_mul(x, part[0][0], imaginary), ex_mul(x, part[0][1], part[1][0]));
    n->out[0] = build_map(&to, a->dt, ex_select(x, real, re, im));
}

/* --- elementwise ------------------------------------------------------------------------------ */

/* z * sigmoid(z) for z = scale * v, rounded at each step. */
void import_ms_scaled_silu(Node *n) {
    Exprs *x = n->x;
    Value *v = node_need(n, 0), *scale = node_in(n, 1);
    double alpha = attr_float(n, "alpha", 1);
    if (!v || n->failed) return;
    if (!dt_is_float(v->dt) || (scale && (!dt_is_float(scale->dt) || !value_single(n, scale)))) {
        invalid(n, E2006, "the input must hold floats, and the scale one of them");
        return;
    }
    DType work = dt_reg(v->dt);
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *factor = ex_num(x, work, alpha), *one = ex_num(x, work, 1);
    if (scale) factor = ex_cast(x, work, build_in(&b, g_reshape(n->g, scale, 0, NULL)));
    const Expr *z = ex_mul(x, ex_cast(x, work, build_in(&b, v)), factor);
    z = ex_cast(x, work, ex_cast(x, v->dt, z));
    const Expr *s = ex_div(x, one, ex_add(x, one, ex_un(x, EX_exp, ex_un(x, EX_neg, z))));
    s = ex_cast(x, work, ex_cast(x, v->dt, s));
    n->out[0] = build_map(&b, v->dt, ex_mul(x, z, s));
}

/* Is there no number in any input that is infinite, or none? */
void import_ms_is_all_finite(Node *n) {
    bool inf = attr_int(n, "isinf_only", 0) != 0, nan = attr_int(n, "isnan_only", 0) != 0;
    if (inf && nan) {
        invalid(n, E2004, "both isinf_only and isnan_only are set");
        return;
    }
    const char *formula = inf   ? "select(isinf(a), 1, 0)"
                          : nan ? "select(isnan(a), 1, 0)"
                                : "select(isinf(a) || isnan(a), 1, 0)";
    Value *all = g_scalar(n->g, DT_i32, 0);
    for (int i = 0; i < n->n_in; i++) {
        Value *v = node_need(n, i);
        if (!v) return;
        if (!dt_is_float(v->dt)) {
            invalid(n, E2006, "input %d is %s", i, dt_name(v->dt));
            return;
        }
        Value *bad = node_formula(n, formula, 1, &v);
        if (!bad) return;
        bad = g_reduce(n->g, COMBINE_max, g_cast(n->g, bad, DT_i32), (1u << v->rank) - 1, false);
        all = g_bin(n->g, EX_max, all, bad);
    }
    n->out[0] = node_formula(n, "a == 0", 1, &all);
}

/* --- integers --------------------------------------------------------------------------------- */

/* (A - zero) * (B - zero) in i32 */
void import_ms_mul_integer(Node *n) {
    Value *v[2];
    for (int i = 0; i < 2; i++) {
        Value *zero = node_in(n, 2 * i + 1);
        if (!(v[i] = node_need(n, 2 * i))) return;
        bool fits = v[i]->dt == DT_u8 || v[i]->dt == DT_i8;
        if (!fits || (zero && (!value_single(n, zero) || zero->dt != v[i]->dt))) {
            invalid(n, E2006, "input %d or its zero point is not of one type of 8 bits", 2 * i);
            return;
        }
        v[i] = g_cast(n->g, v[i], DT_i32);
        if (zero)
            v[i] = g_bin(n->g, EX_sub, v[i], g_cast(n->g, g_reshape(n->g, zero, 0, NULL), DT_i32));
    }
    n->out[0] = node_formula(n, "a * b", 2, v);
}

/* In i32 whatever the signs, as ONNX Runtime infers it; sums wrap. */
void import_ms_matmul_integer16(Node *n) {
    Value *a = node_need(n, 0), *b = node_need(n, 1);
    if (!a || !b) return;
    bool fits = (a->dt == DT_i16 || a->dt == DT_u16) && (b->dt == DT_i16 || b->dt == DT_u16);
    if (!fits) {
        invalid(n, E2006, "matrices of %s and %s", dt_name(a->dt), dt_name(b->dt));
        return;
    }
    n->out[0] = quant_matmul(n, a, NULL, b, NULL);
}

/* --- hashes ----------------------------------------------------------------------------------- */

static const Expr *rotated(Exprs *x, const Expr *e, int by) {
    return ex_bin(x, EX_bor, ex_bin(x, EX_shl, e, ex_int(x, DT_u32, by)),
                  ex_bin(x, EX_shr, e, ex_int(x, DT_u32, 32 - by)));
}

/* e ^ (e >> by) */
static const Expr *folded(Exprs *x, const Expr *e, int by) {
    return ex_bin(x, EX_bxor, e, ex_bin(x, EX_shr, e, ex_int(x, DT_u32, by)));
}

/* The hash with four more bytes. */
static const Expr *hash_word(Exprs *x, const Expr *hash, const Expr *word) {
    word = ex_mul(x, ex_cast(x, DT_u32, word), ex_int(x, DT_u32, 0xcc9e2d51));
    word = ex_mul(x, rotated(x, word, 15), ex_int(x, DT_u32, 0x1b873593));
    return ex_bin(x, EX_bxor, hash, word);
}

/* What comes between two words. */
static const Expr *hash_step(Exprs *x, const Expr *hash) {
    hash = rotated(x, hash, 13);
    return ex_add(x, ex_mul(x, hash, ex_int(x, DT_u32, 5)), ex_int(x, DT_u32, 0xe6546b64));
}

/* The hash of so many bytes. */
static const Expr *hash_end(Exprs *x, const Expr *hash, const Expr *length) {
    hash = ex_bin(x, EX_bxor, hash, length);
    hash = ex_mul(x, folded(x, hash, 16), ex_int(x, DT_u32, 0x85ebca6b));
    hash = ex_mul(x, folded(x, hash, 13), ex_int(x, DT_u32, 0xc2b2ae35));
    return folded(x, hash, 16);
}

/* Bytes 4 * ctr and so on of the strings [count, width], as the body of a loop. State: the hashes
 * [count]. A word that is not full is the last one. */
static Graph *hash_bytes(Node *n, const Value *text) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    Value *state = graph_input(g, NULL, DT_u32, 1, text->dims);
    Value *bytes = graph_input(g, NULL, DT_u8, 2, text->dims);
    Builder b = build(g, 1, text->dims);
    const Expr *first = ex_mul(x, ex_ctr(x, g->depth - 1), ex_i(x, 4));
    const Expr *word = NULL, *byte = NULL, *at = ex_var(x, 0);
    for (int i = 0; i < 4; i++) {
        byte = ex_cast(x, DT_u32, text_byte(&b, bytes, &at, ex_add(x, first, ex_i(x, i))));
        const Expr *own = ex_bin(x, EX_shl, byte, ex_int(x, DT_u32, 8 * i));
        word = word ? ex_bin(x, EX_bor, word, own) : own;
    }
    const Expr *hash = hash_word(x, build_in(&b, state), word);
    const Expr *full = ex_bin(x, EX_ne, byte, ex_int(x, DT_u32, 0));
    graph_output(g, build_map(&b, DT_u32, ex_select(x, full, hash_step(x, hash), hash)), NULL);
    return g;
}

static Value *hash_text(Node *n, Value *v, int64_t seed, bool positive) {
    Exprs *x = n->x;
    Graph *g = n->g;
    Value *text = text_rows(g, v), *hashes, *lengths = text_lengths(g, text);
    Builder b = build(g, 1, text->dims);
    Value *in[2] = {build_map(&b, DT_u32, ex_int(x, DT_u32, seed & UINT32_MAX)), text};
    build_loop(g, hash_bytes(n, text), (text_width(text) + 3) / 4, 1, 2, in, &hashes);
    b = build(g, 1, text->dims);
    const Expr *length = ex_cast(x, DT_u32, build_in(&b, lengths));
    const Expr *hash = hash_end(x, build_in(&b, hashes), length);
    Value *result =
        build_map(&b, positive ? DT_u32 : DT_i32, positive ? hash : ex_bits(x, DT_i32, hash));
    return g_reshape(g, result, v->rank - 1, v->dims);
}

/* MurmurHash3_x86_32 of the 4 or 8 bytes of each element, or of strings. */
void import_ms_murmur_hash3(Node *n) {
    Exprs *x = n->x;
    bool text = n->n_in && n->entity[0] && n->entity[0]->kind == ENTITY_text;
    Value *v = text ? node_text(n, 0) : node_need(n, 0);
    int64_t seed = attr_int(n, "seed", 0);
    bool positive = attr_int(n, "positive", 1) != 0;
    if (!v || n->failed) return;
    if (text) {
        n->out[0] = hash_text(n, v, seed, positive);
        return;
    }
    int bits = dt_bits(v->dt);
    if (bits != 32 && bits != 64) {
        invalid(n, E2006, "the operator takes no elements of type %s", dt_name(v->dt));
        return;
    }
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *e = ex_bits(x, bits == 64 ? DT_u64 : DT_u32, build_in(&b, v));
    const Expr *hash = ex_int(x, DT_u32, seed & UINT32_MAX);
    for (int i = 0; i < bits / 32; i++) {
        const Expr *word = i ? ex_bin(x, EX_shr, e, ex_int(x, DT_u64, 32)) : e;
        hash = hash_step(x, hash_word(x, hash, word));
    }
    hash = hash_end(x, hash, ex_int(x, DT_u32, bits / 8));
    n->out[0] =
        build_map(&b, positive ? DT_u32 : DT_i32, positive ? hash : ex_bits(x, DT_i32, hash));
}
