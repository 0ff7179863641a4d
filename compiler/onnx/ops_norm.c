/* Normalisations: a scale and a shift by statistics that are given (BatchNormalization at
 * inference) or taken from the tensor itself. All are computed in f32 (f64 for f64). */
#include "compiler/onnx/window.h"

#include <string.h>

/* --- statistics ------------------------------------------------------------------------------- */

/* The sum of `v` over the axes (bit mask), divided by their extents; the axes stay as 1. */
static Value *mean_of(Graph *g, Value *v, uint32_t axes) {
    int64_t count = 1;
    for (int i = 0; i < v->rank; i++)
        if (axes >> i & 1) count = dim_mul(g->x, count, v->dims[i]);
    return g_bin(g, EX_div, g_reduce(g, COMBINE_sum, v, axes, true), g_dim(g, v->dt, count));
}

/* 1 / sqrt(v + epsilon) */
static Value *inverse_root(Graph *g, Value *v, double epsilon) {
    Value *operands[2] = {v, g_scalar(g, v->dt, epsilon)};
    static const char *const names[] = {"v", "epsilon"};
    return g_formula(g, "1 / sqrt(v + epsilon)", 2, names, operands);
}

/* What a normalisation over some axes computes on its way. */
typedef struct Moments {
    Value *mean, *centred, *variance;
} Moments;

static Moments moments_of(Graph *g, Value *v, uint32_t axes) {
    Moments m = {.mean = mean_of(g, v, axes)};
    m.centred = g_bin(g, EX_sub, v, m.mean);
    m.variance = mean_of(g, g_bin(g, EX_mul, m.centred, m.centred), axes);
    return m;
}

/* (v - mean) / sqrt(variance + epsilon) over the axes */
static Value *standardized(Graph *g, Value *v, uint32_t axes, double epsilon) {
    Moments m = moments_of(g, v, axes);
    return g_bin(g, EX_mul, m.centred, inverse_root(g, m.variance, epsilon));
}

static Value *scale_and_shift(Graph *g, Value *v, Value *scale, Value *shift) {
    Value *operands[3] = {v, g_cast(g, scale, v->dt), shift ? g_cast(g, shift, v->dt) : NULL};
    static const char *const names[] = {"v", "scale", "shift"};
    return shift ? g_formula(g, "v * scale + shift", 3, names, operands)
                 : g_bin(g, EX_mul, operands[0], operands[1]);
}

/* A value with one number for each channel, as one that broadcasts with a tensor of `rank`. */
static Value *per_channel(Graph *g, Value *v, int rank) {
    int64_t shape[MAX_RANK] = {dim_product(g->x, v->rank, v->dims)};
    for (int i = 1; i < rank - 1; i++) shape[i] = 1;
    return g_reshape(g, v, rank < 2 ? 1 : rank - 1, shape);
}

/* Input i with `count` numbers in one dimension; NULL after a report. */
static Value *need_vector(Node *n, int i, int64_t count) {
    Value *v = need_float(n, i, 0);
    if (!v || (v->rank == 1 && dim_meets(n->x, v->dims[0], count))) return v;
    invalid(n, E2005, "input %d has shape %s; expected [%lld]", i,
            shape_text(n->g->arena, v->rank, v->dims), (long long)count);
    return NULL;
}

/* All axes of `rank` except axis 1, or except the first two. */
static uint32_t all_but_channel(int rank) {
    return ((1u << rank) - 1) & ~2u;
}

static uint32_t spatial_axes(int rank) {
    return ((1u << rank) - 1) & ~3u;
}

/* --- BatchNormalization ----------------------------------------------------------------------- */

/* old * momentum + new * (1 - momentum) */
static Value *moved(Graph *g, Value *old, Value *fresh, double momentum) {
    Value *operands[3] = {old, fresh, g_scalar(g, old->dt, momentum)};
    static const char *const names[] = {"old", "fresh", "momentum"};
    return g_formula(g, "old * momentum + fresh * (1 - momentum)", 3, names, operands);
}

/* Before opset 14 training was told by the number of outputs (before 7, by is_test). */
static bool is_training(Node *n) {
    if (n->version >= 14) return attr_int(n, "training_mode", 0) != 0;
    if (n->version < 7 && attr_int(n, "is_test", 0)) return false;
    for (int i = 1; i < 5; i++)
        if (node_wants(n, i)) return true;
    return n->version < 7;
}

void import_batch_normalization(Node *n) {
    Value *v = need_float(n, 0, 1);
    if (!v) return;
    Graph *g = n->g;
    DType work = float_work(v->dt);
    bool by_feature = n->version < 9 && !attr_int(n, "spatial", 1);
    int64_t channels = v->rank > 1 ? v->dims[1] : 1;
    Value *given[4]; /* scale, shift, mean, variance */
    for (int i = 0; i < 4; i++) {
        given[i] = by_feature ? need_float(n, 1 + i, 0) : need_vector(n, 1 + i, channels);
        if (!given[i]) return;
        if (by_feature && value_numel(given[i]) * v->shape[0] != value_numel(v)) {
            invalid(n, E2005, "input %d has shape %s, not one number for each feature", 1 + i,
                    shape_text(g->arena, given[i]->rank, given[i]->dims));
            return;
        }
        given[i] = g_cast(g, given[i], work);
        if (by_feature) given[i] = g_reshape(g, given[i], v->rank - 1, v->dims + 1);
    }
    double epsilon = attr_float(n, "epsilon", 1e-5), momentum = attr_float(n, "momentum", 0.9);
    bool training = is_training(n);
    if (n->failed) return;
    Value *wide = g_cast(g, v, work), *mean = given[2], *variance = given[3];
    if (training) {
        if (by_feature || v->rank < 2) {
            unsupported(n, "training with statistics for each feature is not supported");
            return;
        }
        Moments m = moments_of(g, wide, all_but_channel(v->rank));
        mean = g_reshape(g, m.mean, 1, &channels);
        variance = g_reshape(g, m.variance, 1, &channels);
        n->out[1] = g_cast(g, moved(g, given[2], mean, momentum), given[2]->dt);
        n->out[2] = g_cast(g, moved(g, given[3], variance, momentum), given[3]->dt);
        n->out[3] = mean;
        n->out[4] = variance;
        for (int i = 1; i < 5; i++) n->out[i] = g_cast(g, n->out[i], node_in(n, 4)->dt);
    }
    Value *scale = g_bin(g, EX_mul, given[0], inverse_root(g, variance, epsilon));
    Value *operands[3] = {given[1], mean, scale};
    static const char *const names[] = {"shift", "mean", "scale"};
    Value *shift = g_formula(g, "shift - mean * scale", 3, names, operands);
    if (!by_feature) {
        scale = per_channel(g, scale, v->rank);
        shift = per_channel(g, shift, v->rank);
    }
    n->out[0] = g_cast(g, scale_and_shift(g, wide, scale, shift), v->dt);
}

/* --- statistics of the tensor itself ---------------------------------------------------------- */

void import_instance_normalization(Node *n) {
    Value *v = need_float(n, 0, 3);
    if (!v) return;
    Value *scale = need_vector(n, 1, v->dims[1]), *shift = need_vector(n, 2, v->dims[1]);
    double epsilon = attr_float(n, "epsilon", 1e-5);
    if (!scale || !shift || n->failed) return;
    Graph *g = n->g;
    Value *wide = g_cast(g, v, float_work(v->dt));
    Value *even = standardized(g, wide, spatial_axes(v->rank), epsilon);
    scale = per_channel(g, scale, v->rank);
    shift = per_channel(g, shift, v->rank);
    n->out[0] = g_cast(g, scale_and_shift(g, even, scale, shift), v->dt);
}

/* Scale and shift have one number for each channel; before opset 21, for each group. */
void import_group_normalization(Node *n) {
    Value *v = need_float(n, 0, 2);
    int64_t groups = attr_int(n, "num_groups", 0);
    double epsilon = attr_float(n, "epsilon", 1e-5);
    if (!v || n->failed) return;
    if (groups < 1 || (!dim_varies(v->dims[1]) && v->dims[1] % groups)) {
        invalid(n, E2005, "num_groups %lld does not divide %lld channels", (long long)groups,
                (long long)v->dims[1]);
        return;
    }
    int64_t per = n->version < 21 ? groups : v->dims[1];
    Value *scale = need_vector(n, 1, per), *shift = need_vector(n, 2, per);
    if (!scale || !shift) return;
    Graph *g = n->g;
    int64_t shape[3] = {v->dims[0], groups, 1};
    for (int i = 2; i < v->rank; i++) shape[2] = dim_mul(n->x, shape[2], v->dims[i]);
    shape[2] = dim_mul(n->x, shape[2], dim_div(n->x, v->dims[1], groups));
    Value *wide = g_reshape(g, g_cast(g, v, float_work(v->dt)), 3, shape);
    Value *even = standardized(g, wide, 4, epsilon);
    if (n->version >= 21) {
        even = g_reshape(g, even, v->rank, v->dims);
        scale = per_channel(g, scale, v->rank);
        shift = per_channel(g, shift, v->rank);
    } else {
        scale = per_channel(g, scale, 3);
        shift = per_channel(g, shift, 3);
    }
    Value *out = g_reshape(g, scale_and_shift(g, even, scale, shift), v->rank, v->dims);
    n->out[0] = g_cast(g, out, v->dt);
}

/* The axes from attribute `axis` on; false after a report. */
static bool axes_from(Node *n, const Value *v, uint32_t *axes) {
    int axis = node_axis(n, attr_int(n, "axis", -1), v->rank);
    if (axis < 0) return false;
    *axes = ((1u << v->rank) - 1) & ~((1u << axis) - 1);
    return true;
}

/* The type that statistics are computed in: attribute stash_type, but never less than f32. */
static DType stash_type(Node *n, const Value *v) {
    DType stash = node_dtype(n, attr_int(n, "stash_type", 1));
    if (stash == DT_none) return DT_none;
    return stash == DT_f64 || v->dt == DT_f64 ? DT_f64 : DT_f32;
}

/* `scale` must broadcast to the shape of `v`. */
static bool broadcasts_to(Node *n, const Value *scale, const Value *v) {
    int rank;
    int64_t shape[MAX_RANK];
    if (shape_broadcast(n->x, v->rank, v->dims, scale->rank, scale->dims, &rank, shape) &&
        dims_meet(n->x, rank, shape, v->rank, v->dims))
        return true;
    invalid(n, E2005, "shape %s does not broadcast to %s",
            shape_text(n->g->arena, scale->rank, scale->dims),
            shape_text(n->g->arena, v->rank, v->dims));
    return false;
}

/* GroupNorm and SkipGroupNorm of com.microsoft. What SkipGroupNorm adds before may lack the spatial
 * dimensions. */
void import_ms_group_norm(Node *n) {
    Value *v = need_float(n, 0, 3), *skip = NULL, *bias = NULL;
    int64_t groups = attr_int(n, "groups", 0), activation = attr_int(n, "activation", 0);
    bool last = attr_int(n, "channels_last", 1) != 0;
    double epsilon = attr_float(n, "epsilon", 1e-5);
    if (!v || n->failed) return;
    int rank = v->rank, at = last ? rank - 1 : 1;
    int64_t channels = v->dims[at];
    if (groups < 1 || groups > INT32_MAX || (!dim_varies(channels) && channels % groups)) {
        invalid(n, E2005, "groups %lld does not divide %s channels", (long long)groups,
                dim_text(n->x, channels));
        return;
    }
    if (activation != 0 && activation != 1) {
        invalid(n, E2004, "attribute 'activation' is %lld", (long long)activation);
        return;
    }
    Value *scale = need_vector(n, 1, channels), *shift = need_vector(n, 2, channels);
    if (!scale || !shift) return;
    Graph *g = n->g;
    if (!strcmp(n->op, "SkipGroupNorm")) {
        skip = need_float(n, 3, 2);
        if (node_in(n, 4)) bias = need_vector(n, 4, channels);
        if (!skip || n->failed) return;
        int64_t shape[MAX_RANK];
        for (int i = 0; i < rank; i++) shape[i] = i == 0 ? v->dims[0] : i == at ? channels : 1;
        if (skip->rank == 2) {
            if (!dim_meets(n->x, skip->dims[0], shape[0]) ||
                !dim_meets(n->x, skip->dims[1], channels)) {
                invalid(n, E2005, "skip has shape %s",
                        shape_text(g->arena, skip->rank, skip->dims));
                return;
            }
            skip = g_reshape(g, skip, rank, shape);
        }
        shape[0] = 1;
        if (bias) bias = g_reshape(g, bias, rank, shape);
        if (!broadcasts_to(n, skip, v)) return;
        Value *parts[3] = {v, skip, bias};
        v = node_formula(n, bias ? "a + b + c" : "a + b", bias ? 3 : 2, parts);
        if (!v) return;
        n->out[1] = v;
    }
    int64_t each = dim_div(n->x, channels, groups), area = 1;
    for (int i = 1; i < rank; i++)
        if (i != at) area = dim_mul(n->x, area, v->dims[i]);
    const int64_t split[2][4] = {{v->dims[0], groups, each, area},
                                 {v->dims[0], area, groups, each}};
    const int64_t per[3] = {groups, each, 1};
    Value *wide = g_reshape(g, g_cast(g, v, float_work(v->dt)), 4, split[last]);
    Value *out = standardized(g, wide, last ? 10 : 12, epsilon);
    scale = g_reshape(g, scale, last ? 2 : 3, per);
    shift = g_reshape(g, shift, last ? 2 : 3, per);
    out = scale_and_shift(g, out, scale, shift);
    if (activation) out = node_formula(n, "a / (1 + exp(-a))", 1, &out);
    if (out) n->out[0] = g_cast(g, g_reshape(g, out, rank, v->dims), v->dt);
}

void import_layer_normalization(Node *n) {
    Value *v = need_float(n, 0, 1), *scale = node_need(n, 1), *shift = node_in(n, 2);
    double epsilon = attr_float(n, "epsilon", 1e-5);
    uint32_t axes;
    if (!v || !scale || n->failed || !axes_from(n, v, &axes)) return;
    DType stash = stash_type(n, v);
    if (stash == DT_none || !broadcasts_to(n, scale, v) || (shift && !broadcasts_to(n, shift, v)))
        return;
    Graph *g = n->g;
    Moments m = moments_of(g, g_cast(g, v, stash), axes);
    Value *inverse = inverse_root(g, m.variance, epsilon);
    /* the second stage is in the tensor's own type, which for narrow floats means rounded to it */
    Value *even =
        g_cast(g, g_cast(g, g_bin(g, EX_mul, m.centred, inverse), v->dt), float_work(v->dt));
    n->out[0] = g_cast(g, scale_and_shift(g, even, scale, shift), v->dt);
    DType told = node_dtype(n, attr_int(n, "stash_type", 1));
    n->out[1] = g_cast(g, m.mean, told);
    n->out[2] = g_cast(g, inverse, told);
}

void import_rms_normalization(Node *n) {
    Value *v = need_float(n, 0, 1), *scale = node_need(n, 1);
    double epsilon = attr_float(n, "epsilon", 1e-5);
    uint32_t axes;
    if (!v || !scale || n->failed || !axes_from(n, v, &axes)) return;
    DType stash = stash_type(n, v);
    if (stash == DT_none || !broadcasts_to(n, scale, v)) return;
    Graph *g = n->g;
    Value *wide = g_cast(g, v, stash);
    Value *square = mean_of(g, g_bin(g, EX_mul, wide, wide), axes);
    Value *even = g_bin(g, EX_mul, wide, inverse_root(g, square, epsilon));
    even = g_cast(g, g_cast(g, even, v->dt), float_work(v->dt));
    n->out[0] = g_cast(g, scale_and_shift(g, even, scale, NULL), v->dt);
}

void import_mean_variance_normalization(Node *n) {
    Value *v = need_float(n, 0, 0);
    int count;
    static const int64_t usual[] = {0, 2, 3};
    const int64_t *list = attr_ints(n, "axes", &count);
    if (!v || n->failed) return;
    if (!list) list = usual, count = 3;
    uint32_t axes = 0;
    for (int i = 0; i < count; i++) {
        int axis = node_axis(n, list[i], v->rank);
        if (axis < 0) return;
        axes |= 1u << axis;
    }
    Graph *g = n->g;
    Moments m = moments_of(g, g_cast(g, v, float_work(v->dt)), axes);
    Value *operands[3] = {m.centred, m.variance, g_scalar(g, m.centred->dt, 1e-9)};
    static const char *const names[] = {"centred", "variance", "epsilon"};
    Value *out = g_formula(g, "centred / (sqrt(variance) + epsilon)", 3, names, operands);
    n->out[0] = g_cast(g, out, v->dt);
}

/* x / (bias + alpha / size * the sum of squares over `size` channels around) ^ beta */
void import_lrn(Node *n) {
    Value *v = need_float(n, 0, 2);
    int64_t size = attr_int(n, "size", 0);
    double alpha = attr_float(n, "alpha", 1e-4), beta = attr_float(n, "beta", 0.75);
    double bias = attr_float(n, "bias", 1);
    if (!v || n->failed) return;
    if (size < 1 || size > INT32_MAX) {
        invalid(n, E2004, "size is %lld", (long long)size);
        return;
    }
    Exprs *x = n->x;
    DType work = float_work(v->dt);
    int64_t before[MAX_RANK] = {0, (size - 1) / 2}, after[MAX_RANK] = {0, size / 2};
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++) shape[i] = v->dims[i] + before[i] + after[i];
    if (!node_shape_ok(n, v->rank, shape)) return;
    Value *padded = g_pad(n->g, v, before, after, (Scalar){.f = 0});
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *index[MAX_RANK], *r = build_red(&b, size);
    for (int i = 0; i < v->rank; i++) index[i] = i == 1 ? ex_add(x, ex_var(x, 1), r) : ex_var(x, i);
    const Expr *e = ex_cast(x, work, build_load(&b, padded, index));
    const Expr *spread = ex_mul(x, ex_acc(x, work), ex_num(x, work, alpha / (double)size));
    const Expr *base = ex_add(x, ex_num(x, work, bias), spread);
    const Expr *own = ex_cast(x, work, build_in(&b, v));
    const Expr *post = ex_div(x, own, ex_bin(x, EX_pow, base, ex_num(x, work, beta)));
    n->out[0] = build_reduce(&b, v->dt, COMBINE_sum, ex_mul(x, e, e), post);
}
