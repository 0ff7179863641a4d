/* Random numbers.
 *
 * A compiled model has no state, so every run draws the same numbers. With the attribute `seed`
 * they are those of numpy's RandomState(seed), a Mersenne Twister, as ONNX's reference evaluator
 * uses it; they are drawn when compiling and stored as constants. Without a seed, or where there
 * would be more than MAX_STORED constants, element i of the tensor is computed at run time from a
 * hash of i and a key: h = mix(mix(key) ^ i),  number = (h >> 8) / 2^24 where mix is the 32-bit
 * finalizer of MurmurHash3, and the key comes from the seed, or else from the name of the node and
 * its output, so that compiling again gives the same program. Normal numbers are made of two
 * uniform ones by Box and Muller's formula.
 */
#include "compiler/onnx/import.h"

#include <math.h>
#include <string.h>

#define MAX_STORED ((int64_t)1 << 18) /* numbers */

/* --- the Mersenne Twister --------------------------------------------------------------------- */

#define MT_N 624
#define MT_M 397

typedef struct Twister {
    uint32_t state[MT_N];
    int at;
} Twister;

static void twister_seed(Twister *t, uint32_t seed) {
    t->state[0] = seed;
    for (uint32_t i = 1; i < MT_N; i++)
        t->state[i] = 1812433253u * (t->state[i - 1] ^ (t->state[i - 1] >> 30)) + i;
    t->at = MT_N;
}

static void twister_refill(Twister *t) {
    for (int i = 0; i < MT_N; i++) {
        uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % MT_N] & 0x7fffffffu);
        t->state[i] = t->state[(i + MT_M) % MT_N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

static uint32_t twister_word(Twister *t) {
    if (t->at == MT_N) twister_refill(t);
    uint32_t y = t->state[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* 53 bits, in [0, 1) */
static double twister_unit(Twister *t) {
    uint32_t high = twister_word(t) >> 5, low = twister_word(t) >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

/* A pair of normal numbers by the polar method, given out second first, as numpy does. */
static void twister_normals(Twister *t, double *pair) {
    double a, b, r;
    do {
        a = 2 * twister_unit(t) - 1;
        b = 2 * twister_unit(t) - 1;
        r = a * a + b * b;
    } while (r >= 1 || r == 0);
    double f = sqrt(-2 * log(r) / r);
    pair[0] = f * b;
    pair[1] = f * a;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* The attribute `seed`, FLOAT or INT; false if there is none. */
static bool seed_of(Node *n, double *seed) {
    if (!attr_has(n, "seed")) return false;
    *seed = !strcmp(n->op, "Dropout") ? (double)attr_int(n, "seed", 0) : attr_float(n, "seed", 0);
    return !isnan(*seed);
}

static uint32_t seed_word(double seed) {
    return seed >= 0 && seed < 4294967296.0 ? (uint32_t)seed : 0;
}

static Value *stored(Node *n, int rank, const int64_t *shape, double seed, bool normal) {
    int64_t count = shape_numel(rank, shape);
    float *data = ARENA_ARRAY(n->g->arena, count + 2, float);
    Twister t;
    twister_seed(&t, seed_word(seed));
    for (int64_t i = 0; i < count; i++) {
        double pair[2] = {twister_unit(&t), 0};
        data[i] = (float)pair[0];
        if (data[i] >= 1) data[i] = 1 - 0x1p-24f;
    }
    if (normal) twister_seed(&t, seed_word(seed));
    for (int64_t i = 0; i < count && normal; i += 2) {
        double pair[2];
        twister_normals(&t, pair);
        data[i] = (float)pair[0];
        data[i + 1] = (float)pair[1];
    }
    return graph_const(n->g, DT_f32, rank, shape, data);
}

/* The place of the element (coordinates of b) in row-major order. */
static const Expr *place_of(const Builder *b, DType dt) {
    Exprs *x = b->x;
    const Expr *flat = ex_int(x, dt, 0);
    for (int i = 0; i < b->rank; i++)
        flat = ex_add(x, ex_mul(x, flat, ex_int(x, dt, b->shape[i])), ex_cast(x, dt, ex_var(x, i)));
    return flat;
}

/* The numbers that a seed gives; false if it gives none, or there are too many. */
static bool stored_any(Node *n, int rank, const int64_t *shape, bool normal, Value **out) {
    double seed;
    int64_t most[MAX_RANK], count;
    dims_max(n->x, rank, shape, most);
    count = shape_numel(rank, most);
    if (!seed_of(n, &seed) || count > MAX_STORED) return false;
    bool varies = dims_vary(rank, shape);
    *out = stored(n, varies ? 1 : rank, varies ? &count : most, seed, normal);
    if (!varies) return true;
    /* as many of them as there are elements */
    Builder b = build(n->g, rank, shape);
    const Expr *at = dim_index(n->x, place_of(&b, DT_i32), count);
    *out = build_map(&b, DT_f32, build_load(&b, *out, &at));
    return true;
}

static const Expr *mix(Exprs *x, const Expr *h) {
    static const int64_t factor[2] = {0x85ebca6b, 0xc2b2ae35};
    static const int shift[3] = {16, 13, 16};
    for (int i = 0; i < 3; i++) {
        h = ex_bin(x, EX_bxor, h, ex_bin(x, EX_shr, h, ex_int(x, DT_u32, shift[i])));
        if (i < 2) h = ex_mul(x, h, ex_int(x, DT_u32, factor[i]));
    }
    return h;
}

/* Number `stream` of element (coordinates of b), in (0, 1) if `open`, else [0, 1). */
static const Expr *hashed(Node *n, const Builder *b, uint32_t stream, bool open) {
    Exprs *x = n->x;
    double seed = 0;
    uint32_t key;
    if (seed_of(n, &seed)) {
        key = seed_word(seed);
    } else {
        uint64_t h = fnv1a(n->label, strlen(n->label), FNV_SEED);
        if (n->n_out) h = fnv1a(n->proto->output[0], strlen(n->proto->output[0]), h);
        key = (uint32_t)(h ^ (h >> 32));
    }
    const Expr *flat = place_of(b, DT_u32);
    key += stream * 0x9e3779b9u;
    const Expr *h = mix(x, ex_bin(x, EX_bxor, mix(x, ex_int(x, DT_u32, key)), flat));
    const Expr *top = ex_cast(x, DT_f32, ex_bin(x, EX_shr, h, ex_int(x, DT_u32, 8)));
    if (open) top = ex_add(x, top, ex_num(x, DT_f32, 0.5));
    return ex_mul(x, top, ex_num(x, DT_f32, 0x1p-24));
}

static Value *random_uniform(Node *n, int rank, const int64_t *shape) {
    Value *known;
    if (stored_any(n, rank, shape, false, &known)) return known;
    Builder b = build(n->g, rank, shape);
    return build_map(&b, DT_f32, hashed(n, &b, 0, false));
}

static Value *random_normal(Node *n, int rank, const int64_t *shape) {
    Exprs *x = n->x;
    Value *known;
    if (stored_any(n, rank, shape, true, &known)) return known;
    Builder b = build(n->g, rank, shape);
    const Expr *size = ex_un(
        x, EX_sqrt, ex_mul(x, ex_num(x, DT_f32, -2), ex_un(x, EX_log, hashed(n, &b, 0, true))));
    const Expr *angle = ex_mul(x, ex_num(x, DT_f32, 6.283185307179586), hashed(n, &b, 1, false));
    return build_map(&b, DT_f32, ex_mul(x, size, ex_un(x, EX_cos, angle)));
}

/* --- operators -------------------------------------------------------------------------------- */

/* RandomNormal and RandomUniform, and what is like another tensor. */
void import_random(Node *n) {
    Graph *g = n->g;
    bool like = n->n_in > 0, normal = strstr(n->op, "Normal") != NULL;
    Value *model = like ? node_need(n, 0) : NULL;
    int count = 0;
    const int64_t *shape = like ? NULL : attr_ints(n, "shape", &count);
    if ((like && !model) || n->failed) return;
    if (like) {
        shape = model->dims;
        count = model->rank;
    } else if (!shape) {
        invalid(n, E2004, "attribute 'shape' is missing");
        return;
    }
    DType dt = like && !attr_has(n, "dtype") ? model->dt : node_dtype(n, attr_int(n, "dtype", 1));
    if (dt == DT_none || !node_shape_ok(n, count, shape)) return;
    double add = normal ? attr_float(n, "mean", 0) : attr_float(n, "low", 0);
    double by = normal ? attr_float(n, "scale", 1) : attr_float(n, "high", 1) - add;
    Value *v = normal ? random_normal(n, count, shape) : random_uniform(n, count, shape);
    static const char *const names[] = {"v", "by", "more"};
    Value *parts[3] = {v, g_scalar(g, DT_f32, by), g_scalar(g, DT_f32, add)};
    n->out[0] = g_cast(g, g_formula(g, "v * by + more", 3, names, parts), dt);
}

/* 1 with the probability that the input says, else 0. As numpy does it, the number that is drawn is
 * compared with the smaller one of p and 1 - p. */
void import_bernoulli(Node *n) {
    Exprs *x = n->x;
    Value *v = node_need(n, 0);
    if (!v) return;
    DType dt = attr_has(n, "dtype") ? node_dtype(n, attr_int(n, "dtype", 1)) : v->dt;
    if (dt == DT_none || n->failed) return;
    if (!dt_is_float(v->dt)) {
        invalid(n, E2006, "the operator takes no elements of type %s", dt_name(v->dt));
        return;
    }
    Value *unit = random_uniform(n, v->rank, v->dims);
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *p = ex_cast(x, DT_f32, build_in(&b, v)), *u = build_in(&b, unit);
    const Expr *rare = ex_lt(x, ex_sub(x, ex_num(x, DT_f32, 1), p), u), *often = ex_le(x, u, p);
    const Expr *one = ex_select(x, ex_le(x, p, ex_num(x, DT_f32, 0.5)), rare, often);
    n->out[0] = build_map(&b, dt, ex_cast(x, dt_reg(dt), one));
}

/* Sample (b, s): the first class at which the running sum of probabilities passes a random number.
 */
void import_multinomial(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *v = node_need(n, 0);
    DType dt = node_dtype(n, attr_int(n, "dtype", 6));
    int64_t samples = attr_int(n, "sample_size", 1);
    if (!v || dt == DT_none || n->failed) return;
    if (v->rank != 2 || dim_max(x, v->dims[1]) < 1 || !dt_is_float(v->dt) || !dt_is_int(dt)) {
        invalid(n, E2005, "an input of %s%s", dt_name(v->dt),
                shape_text(g->arena, v->rank, v->dims));
        return;
    }
    int64_t shape[2] = {v->dims[0], samples};
    if (!node_shape_ok(n, 2, shape)) return;
    Value *probs = g_softmax(g, g_cast(g, v, DT_f32), 2, false);
    Builder c = build(g, 2, probs->dims);
    const Expr *at[2] = {ex_var(x, 0), ex_var(x, 2)};
    Value *sums = build_scan(&c, DT_f32, COMBINE_sum, 1, false, false, build_load(&c, probs, at));
    Value *unit = random_uniform(n, 2, shape);
    /* how many sums are not above the number; the last class has no end */
    Builder b = build(g, 2, shape);
    const Expr *place[2] = {ex_var(x, 0), build_red(&b, v->dims[1] - 1)};
    const Expr *passed = ex_le(x, build_load(&b, sums, place), build_in(&b, unit));
    n->out[0] = build_reduce(&b, dt, COMBINE_sum, ex_cast(x, DT_i32, passed), NULL);
}

/* Training mode is an input from version 12 on. Where it is off for certain, or the ratio is 0,
 * this is the dropout of inference. */
void import_dropout_training(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *v = node_need(n, 0), *ratio = node_in(n, 1), *training = node_in(n, 2);
    if (!v) return;
    if ((ratio && !value_single(n, ratio)) || (training && !value_single(n, training))) {
        invalid(n, E2005, "ratio and training_mode must be one element each");
        return;
    }
    bool off = !training ||
               (value_is_const(training) && !dt_load(training->dt, training->data, 0).i) ||
               (ratio && value_is_const(ratio) && dt_load(ratio->dt, ratio->data, 0).f == 0);
    if (off) {
        import_dropout(n);
        return;
    }
    if (!dt_is_float(v->dt)) {
        invalid(n, E2006, "the operator takes no elements of type %s", dt_name(v->dt));
        return;
    }
    if (ratio && ratio->rank) ratio = g_reshape(g, ratio, 0, NULL);
    if (training->rank) training = g_reshape(g, training, 0, NULL);
    Value *unit = random_uniform(n, v->rank, v->dims);
    DType work = dt_reg(v->dt);
    Builder b = build(g, v->rank, v->dims);
    const Expr *p = ratio ? ex_cast(x, DT_f32, build_in(&b, ratio)) : ex_num(x, DT_f32, 0.5);
    const Expr *on = ex_cast(x, DT_bool, build_in(&b, training));
    const Expr *keep = ex_bin(x, EX_or, ex_un(x, EX_not, on), ex_le(x, p, build_in(&b, unit)));
    if (node_wants(n, 1)) n->out[1] = build_map(&b, DT_bool, keep);
    const Expr *e = ex_cast(x, work, build_in(&b, v)), *one = ex_num(x, work, 1);
    const Expr *scale = ex_div(x, one, ex_sub(x, one, ex_cast(x, work, p)));
    const Expr *kept = ex_select(x, on, ex_mul(x, e, scale), e);
    n->out[0] = build_map(&b, v->dt, ex_select(x, keep, kept, ex_num(x, work, 0)));
}
