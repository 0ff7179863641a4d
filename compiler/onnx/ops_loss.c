/* Losses, and the optimisers of ai.onnx.preview.training. */
#include "compiler/onnx/index.h"

#include <string.h>

/* --- losses ----------------------------------------------------------------------------------- */

/* Which sum a loss tensor is brought to. */
typedef enum Joining { JOIN_none, JOIN_sum, JOIN_mean } Joining;

static bool read_joining(Node *n, Joining *joining) {
    int i = attr_choice(n, "reduction", JOIN_mean, "none sum mean");
    *joining = (Joining)i;
    return i >= 0;
}

/* False after a report if scores [N, C, D..], targets [N, D..] and weights [C] (or NULL) do not
 * fit. */
static bool loss_fits(Node *n, const Value *v, const Value *target, const Value *weight) {
    bool fits = v->rank >= 2 && target->rank == v->rank - 1;
    for (int i = 0; i < target->rank && fits; i++)
        fits = dim_meets(n->x, target->dims[i], v->dims[i ? i + 1 : 0]);
    if (fits && weight) fits = weight->rank == 1 && dim_meets(n->x, weight->dims[0], v->dims[1]);
    if (!fits || !dt_is_float(v->dt) || !dt_is_int(target->dt) || (weight && weight->dt != v->dt)) {
        invalid(n, E2005,
                "scores of shape %s do not fit targets of shape %s, or their types do not",
                shape_text(n->g->arena, v->rank, v->dims),
                shape_text(n->g->arena, target->rank, target->dims));
        return false;
    }
    if (dim_max(n->x, v->dims[1]) > 0 || value_numel(target) == 0) return true;
    invalid(n, E2005, "there are targets but no classes");
    return false;
}

/* For every target: -scores[target] * weight[target], or with `only_weight` the weight alone; 0
 * where the target is to be ignored. A target that is no class counts as the nearest one that is.
 */
static Value *loss_terms(Node *n, Value *v, Value *target, Value *weight, bool only_weight) {
    Exprs *x = n->x;
    DType dt = v->dt;
    Builder b = build(n->g, target->rank, target->dims);
    const Expr *at[MAX_RANK], *index[MAX_RANK];
    for (int i = 0; i < target->rank; i++) at[i] = ex_var(x, i);
    const Expr *class = index_read(&b, target, at, v->dims[1]);
    index[0] = at[0];
    index[1] = class;
    for (int i = 2; i < v->rank; i++) index[i] = at[i - 1];
    const Expr *e = ex_num(x, dt, 1);
    if (!only_weight) e = ex_un(x, EX_neg, build_load(&b, v, index));
    if (weight) e = ex_mul(x, e, ex_cast(x, dt, build_load(&b, weight, &class)));
    if (attr_has(n, "ignore_index")) {
        const Expr *ignored = ex_int(x, DT_i64, attr_int(n, "ignore_index", 0));
        const Expr *given = ex_cast(x, DT_i64, build_load(&b, target, at));
        e = ex_select(x, ex_bin(x, EX_eq, given, ignored), ex_num(x, dt, 0), e);
    }
    return build_map(&b, dt, e);
}

/* The loss for logarithms of probabilities `v`, in a type that computes; the result is of type
 * `dt`. */
static Value *likelihood_loss(Node *n, Value *v, Value *target, Value *weight, Joining joining,
                              DType dt) {
    Graph *g = n->g;
    uint32_t all = (1u << target->rank) - 1;
    Value *loss = loss_terms(n, v, target, weight, false);
    if (joining != JOIN_none) loss = g_reduce(g, COMBINE_sum, loss, all, false);
    if (joining == JOIN_mean) {
        Value *weights = loss_terms(n, v, target, weight, true);
        loss = g_bin(g, EX_div, loss, g_reduce(g, COMBINE_sum, weights, all, false));
    }
    return g_cast(g, loss, dt);
}

void import_negative_log_likelihood_loss(Node *n) {
    Value *v = node_need(n, 0), *target = node_need(n, 1), *weight = node_in(n, 2);
    Joining joining;
    if (!v || !target || !read_joining(n, &joining) || !loss_fits(n, v, target, weight)) return;
    Value *wide = g_cast(n->g, v, dt_reg(v->dt));
    n->out[0] = likelihood_loss(n, wide, target, weight, joining, v->dt);
}

void import_softmax_cross_entropy_loss(Node *n) {
    Value *v = node_need(n, 0), *target = node_need(n, 1), *weight = node_in(n, 2);
    Joining joining;
    if (!v || !target || !read_joining(n, &joining) || !loss_fits(n, v, target, weight)) return;
    Value *logs = g_softmax(n->g, g_cast(n->g, v, dt_reg(v->dt)), 1u << 1, true);
    n->out[0] = likelihood_loss(n, logs, target, weight, joining, v->dt);
    if (node_wants(n, 1)) n->out[1] = g_cast(n->g, logs, v->dt);
}

/* --- optimisers ------------------------------------------------------------------------------- */

/* An optimiser's inputs are the rate, the step count, then tensors to optimise x1.., their
 * gradients g1.. and each state s1..; the outputs the new tensors and states in the same order. */
typedef struct Optimiser {
    int n;      /* tensors */
    int states; /* of each */
    Value *rate, *step;
} Optimiser;

static bool read_optimiser(Node *n, int states, Optimiser *o) {
    *o = (Optimiser){.states = states, .rate = node_need(n, 0), .step = node_need(n, 1)};
    if (!o->rate || !o->step) return false;
    o->n = (n->n_in - 2) / (2 + states);
    if (o->n < 1 || n->n_in != 2 + o->n * (2 + states)) {
        invalid(n, E2007, "%d inputs; expected 2, and %d for each tensor", n->n_in, 2 + states);
        return false;
    }
    if (!value_single(n, o->rate) || !value_single(n, o->step) || !dt_is_float(o->rate->dt)) {
        invalid(n, E2005, "rate and step count must be one number each");
        return false;
    }
    o->rate = g_reshape(n->g, o->rate, 0, NULL);
    o->step = g_reshape(n->g, o->step, 0, NULL);
    for (int i = 2; i < n->n_in; i++) {
        const Value *v = node_need(n, i);
        if (!v) return false;
        const Value *first = n->in[2 + (i - 2) % o->n];
        if (dims_meet(n->x, v->rank, v->dims, first->rank, first->dims) && v->dt == first->dt &&
            dt_is_float(v->dt))
            continue;
        invalid(n, E2005, "input %d has not the shape and type of the tensor it goes with", i);
        return false;
    }
    return true;
}

/* Tensor i (part 0), its gradient (part 1) or state (part 2 ..). */
static Value *optimiser_in(const Node *n, const Optimiser *o, int part, int i) {
    return n->in[2 + part * o->n + i];
}

/* Sets the new tensor (part 0) or state (part 1 ..) of tensor i. */
static void optimiser_out(Node *n, const Optimiser *o, int part, int i, Value *v) {
    int at = part * o->n + i;
    if (at < n->n_out) n->out[at] = v;
}

/* The gradient with that of the norm: norm_coefficient * x + g. */
static Value *regularised(Node *n, const Optimiser *o, int i) {
    Value *v[2] = {optimiser_in(n, o, 0, i), optimiser_in(n, o, 1, i)};
    double norm = attr_float(n, "norm_coefficient", 0);
    return node_formula(n, arena_printf(n->g->arena, "(%.9g) * a + b", norm), 2, v);
}

/* A number that depends on rate (a) and step count (b) alone, in the type of tensor i. */
static Value *rate_of(Node *n, const Optimiser *o, int i, const char *formula) {
    DType dt = dt_reg(optimiser_in(n, o, 0, i)->dt);
    Value *v[2] = {g_cast(n->g, o->rate, dt), g_cast(n->g, o->step, dt)};
    Value *rate = node_formula(n, formula, 2, v);
    return rate ? g_cast(n->g, rate, optimiser_in(n, o, 0, i)->dt) : NULL;
}

void import_adagrad(Node *n) {
    Optimiser o;
    if (!read_optimiser(n, 1, &o)) return;
    Arena *arena = n->g->arena;
    double decay = attr_float(n, "decay_factor", 0), epsilon = attr_float(n, "epsilon", 0);
    const char *slowed = arena_printf(arena, "a / (1 + b * (%.9g))", decay);
    const char *update = arena_printf(arena, "a - b * c / (sqrt(d) + (%.9g))", epsilon);
    for (int i = 0; i < o.n && !n->failed; i++) {
        Value *grad = regularised(n, &o, i), *rate = rate_of(n, &o, i, slowed);
        Value *grown[2] = {optimiser_in(n, &o, 2, i), grad};
        Value *square = grad ? node_formula(n, "a + b * b", 2, grown) : NULL;
        Value *v[4] = {optimiser_in(n, &o, 0, i), rate, grad, square};
        if (!rate || !square) return;
        optimiser_out(n, &o, 0, i, node_formula(n, update, 4, v));
        optimiser_out(n, &o, 1, i, square);
    }
}

void import_adam(Node *n) {
    Optimiser o;
    if (!read_optimiser(n, 2, &o)) return;
    Arena *arena = n->g->arena;
    double alpha = attr_float(n, "alpha", 0.9), beta = attr_float(n, "beta", 0.999);
    double epsilon = attr_float(n, "epsilon", 0), after = attr_float(n, "norm_coefficient_post", 0);
    /* the rate makes up for states that began at 0 */
    const char *corrected = arena_printf(
        arena, "select(b > 0, a * sqrt(1 - pow(%.9g, b)) / (1 - pow(%.9g, b)), a)", beta, alpha);
    const char *first = arena_printf(arena, "(%.9g) * a + (%.9g) * b", alpha, 1 - alpha);
    const char *second = arena_printf(arena, "(%.9g) * a + (%.9g) * (b * b)", beta, 1 - beta);
    const char *update =
        arena_printf(arena, "(%.9g) * (a - b * (c / (sqrt(d) + (%.9g))))", 1 - after, epsilon);
    for (int i = 0; i < o.n && !n->failed; i++) {
        Value *grad = regularised(n, &o, i), *rate = rate_of(n, &o, i, corrected);
        Value *moment[2][2] = {{optimiser_in(n, &o, 2, i), grad},
                               {optimiser_in(n, &o, 3, i), grad}};
        if (!grad || !rate) return;
        Value *mean = node_formula(n, first, 2, moment[0]);
        Value *square = node_formula(n, second, 2, moment[1]);
        Value *v[4] = {optimiser_in(n, &o, 0, i), rate, mean, square};
        if (!mean || !square) return;
        optimiser_out(n, &o, 0, i, node_formula(n, update, 4, v));
        optimiser_out(n, &o, 1, i, mean);
        optimiser_out(n, &o, 2, i, square);
    }
}

void import_momentum(Node *n) {
    Optimiser o;
    if (!read_optimiser(n, 1, &o)) return;
    Arena *arena = n->g->arena;
    double alpha = attr_float(n, "alpha", 0), beta = attr_float(n, "beta", 0);
    bool nesterov = attr_choice(n, "mode", 0, "standard nesterov") == 1;
    if (n->failed) return;
    const char *share = arena_printf(arena, "select(b > 0, 0 * a + (%.9g), 0 * a + 1)", beta);
    const char *moved = arena_printf(arena, "(%.9g) * a + b * c", alpha);
    const char *update =
        nesterov ? arena_printf(arena, "a - b * (d + (%.9g) * c)", alpha) : "a - b * c";
    for (int i = 0; i < o.n && !n->failed; i++) {
        Value *grad = regularised(n, &o, i), *rate = rate_of(n, &o, i, "a");
        Value *part = rate_of(n, &o, i, share);
        Value *in[3] = {optimiser_in(n, &o, 2, i), part, grad};
        Value *velocity = grad && part ? node_formula(n, moved, 3, in) : NULL;
        Value *v[4] = {optimiser_in(n, &o, 0, i), rate, velocity, grad};
        if (!rate || !velocity) return;
        optimiser_out(n, &o, 0, i, node_formula(n, update, nesterov ? 4 : 3, v));
        optimiser_out(n, &o, 1, i, velocity);
    }
}
