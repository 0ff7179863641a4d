/* Recurrent networks: RNN, GRU, LSTM, and com.microsoft's LSTM of quantised weights.
 *
 * What does not depend on the state is taken out of the loop: the product of all inputs with the
 * weights of all gates and directions is one matrix product before it. Each trip of the loop then
 * does one step of every direction at once, with states of shape [directions, batch, hidden]; the
 * direction that runs backwards reads its inputs from the end. Its outputs, stacked in the order of
 * the steps, are turned round when all is done. A single step needs no loop.
 *
 * With sequence_lens, a sequence that has ended keeps its state, and its outputs are zero; one that
 * runs backwards begins at its own last element.
 */
#include "compiler/onnx/quant.h"
#include "compiler/onnx/window.h"
#include "ir/constant.h"

#include <strings.h>

#define MAX_ACTIVATIONS 3

/* Activation functions by name; f(x) with the attributes' alpha and beta, in this order. */
typedef struct ActivationRow {
    const char *name, *formula;
    int params;         /* 1: alpha; 2: alpha and beta */
    double alpha, beta; /* defaults */
} ActivationRow;

static const ActivationRow activation_rows[] = {
    {"Sigmoid", "1 / (1 + exp(-x))", 0, 0, 0},
    {"Tanh", "tanh(x)", 0, 0, 0},
    {"Relu", "max(x, 0)", 0, 0, 0},
    {"Affine", "alpha * x + beta", 2, 1, 0},
    {"LeakyRelu", "select(x < 0, alpha * x, x)", 1, 0.01, 0},
    {"ThresholdedRelu", "select(x < alpha, 0, x)", 1, 1, 0},
    {"ScaledTanh", "alpha * tanh(beta * x)", 2, 1, 1},
    {"HardSigmoid", "min(max(alpha * x + beta, 0), 1)", 2, 0.2, 0.5},
    {"Elu", "select(x < 0, alpha * (exp(x) - 1), x)", 1, 1, 0},
    {"Softsign", "x / (1 + abs(x))", 0, 0, 0},
    {"Softplus", SOFTPLUS("x"), 0, 0, 0},
};

typedef struct Activation {
    const ActivationRow *row;
    double alpha, beta;
} Activation;

typedef struct Rnn Rnn;
/* One step: from the states at step `s` (an expression) to the next ones, in graph `g`. */
typedef void StepFn(Rnn *r, Graph *g, const Expr *s);

/* A recurrent operator. Values below `x_gates` are those of the graph that the step is built in. */
struct Rnn {
    Node *n;
    Exprs *x;
    int gates, n_states, n_activations;
    const char *const *usual; /* names of the default activations */
    StepFn *step;
    int dirs;
    bool reverse;     /* direction 0 runs backwards (direction 1 always does) */
    bool batch_first; /* layout 1 */
    int64_t steps, batch, in, hidden;
    DType work;
    double clip;     /* 0: none */
    bool couple;     /* LSTM input_forget */
    bool late_reset; /* GRU linear_before_reset */
    bool quantised;  /* LSTM: R is bytes, and its product sees a state of bytes */
    Activation act[2][MAX_ACTIVATIONS];
    Value *x_gates;          /* [steps, batch, dirs, gates * hidden], or batch first */
    Value *r;                /* [dirs, gates * hidden, hidden] */
    Value *r_scale, *r_zero; /* quantised: [dirs, gates * hidden or 1]; then r is not turned yet */
    Value *bias;             /* [dirs, 2 * gates * hidden] or NULL */
    Value *peephole;         /* [dirs, 3 * hidden] or NULL */
    Value *lens;             /* [batch] or NULL */
    Value *state[2], *next[2]; /* [dirs, batch, hidden] */
};

/* --- reading ---------------------------------------------------------------------------------- */

/* Input i, if it is there, must have this shape. */
static bool has_shape(Rnn *r, int i, const char *what, int rank, const int64_t *shape) {
    const Value *v = node_in(r->n, i);
    if (!v || dims_meet(r->n->x, v->rank, v->dims, rank, shape)) return true;
    invalid(r->n, E2005, "%s has shape %s; expected %s", what,
            shape_text(r->n->g->arena, v->rank, v->dims), shape_text(r->n->g->arena, rank, shape));
    return false;
}

/* Are all sequences known to have this length? */
static bool lengths_are(const Node *n, int64_t steps) {
    int count;
    const int64_t *lens = node_ints(n, 4, &count);
    bool full = lens != NULL;
    for (int i = 0; i < count; i++) full &= lens[i] == steps;
    return full;
}

static bool read_shapes(Rnn *r) {
    Node *n = r->n;
    Value *v = need_float(n, 0, 3), *w = need_float(n, 1, 3), *rec = need_float(n, 2, 3);
    if (!v || !w || !rec) return false;
    if (v->rank != 3 || w->rank != 3 || rec->rank != 3) {
        invalid(n, E2005, "X, W and R must have 3 dimensions");
        return false;
    }
    r->steps = v->dims[r->batch_first];
    r->batch = v->dims[!r->batch_first];
    r->in = v->dims[2];
    Exprs *x = n->x;
    int64_t dirs = r->dirs, told = attr_int(n, "hidden_size", rec->dims[2]);
    if (n->failed) return false;
    if (!dim_meets(n->x, told, rec->dims[2]) || dim_max(x, told) < 1) {
        invalid(n, E2005, "hidden_size is %s, but R has %s", dim_text(x, told),
                dim_text(x, rec->dims[2]));
        return false;
    }
    int64_t hidden = r->hidden = dim_same(rec->dims[2], told), wide = dim_mul(x, hidden, r->gates);
    int64_t states[3] = {r->batch_first ? r->batch : dirs, r->batch_first ? dirs : r->batch,
                         hidden};
    if (!has_shape(r, 1, "W", 3, (int64_t[]){dirs, wide, r->in}) ||
        !has_shape(r, 2, "R", 3, (int64_t[]){dirs, wide, hidden}) ||
        !has_shape(r, 3, "B", 2, (int64_t[]){dirs, dim_mul(x, wide, 2)}) ||
        !has_shape(r, 4, "sequence_lens", 1, &r->batch) || !has_shape(r, 5, "initial_h", 3, states))
        return false;
    if (r->n_states > 1 && (!has_shape(r, 6, "initial_c", 3, states) ||
                            !has_shape(r, 7, "P", 2, (int64_t[]){dirs, dim_mul(x, hidden, 3)})))
        return false;
    r->bias = node_in(n, 3);
    r->lens = node_in(n, 4);
    r->peephole = r->n_states > 1 ? node_in(n, 7) : NULL;
    if (lengths_are(n, r->steps)) r->lens = NULL;
    if (r->lens && !dt_is_int(r->lens->dt)) {
        invalid(n, E2006, "sequence_lens must be integers, not %s", dt_name(r->lens->dt));
        return false;
    }
    return true;
}

/* The names come direction by direction; alphas and betas are used up by the functions that have
 * them. */
static bool read_activations(Rnn *r) {
    Node *n = r->n;
    int n_names, n_alpha, n_beta, a = 0, b = 0;
    const char *const *names = attr_strs(n, "activations", &n_names);
    const float *alpha = attr_floats(n, "activation_alpha", &n_alpha);
    const float *beta = attr_floats(n, "activation_beta", &n_beta);
    if (n->failed) return false;
    if (names && n_names < r->dirs * r->n_activations) {
        invalid(n, E2004, "%d activations; expected %d for each direction", n_names,
                r->n_activations);
        return false;
    }
    for (int d = 0; d < r->dirs; d++)
        for (int i = 0; i < r->n_activations; i++) {
            const char *name = names ? names[d * r->n_activations + i] : r->usual[i];
            const ActivationRow *row = NULL;
            for (size_t k = 0; k < sizeof activation_rows / sizeof *activation_rows; k++)
                if (!strcasecmp(activation_rows[k].name, name)) row = &activation_rows[k];
            if (!row) {
                invalid(n, E2004, "'%s' is no activation function", name);
                return false;
            }
            Activation *act = &r->act[d][i];
            *act = (Activation){row, row->alpha, row->beta};
            if (row->params > 0 && a < n_alpha) act->alpha = alpha[a++];
            if (row->params > 1 && b < n_beta) act->beta = beta[b++];
        }
    return true;
}

static bool read_attributes(Rnn *r) {
    Node *n = r->n;
    const char *direction = attr_str(n, "direction", "forward");
    r->clip = attr_float(n, "clip", 0);
    r->batch_first = attr_int(n, "layout", 0) != 0;
    r->couple = attr_int(n, "input_forget", 0) != 0;
    r->late_reset = r->gates == 3 && attr_int(n, "linear_before_reset", 0) != 0;
    if (n->failed) return false;
    r->reverse = !strcasecmp(direction, "reverse");
    r->dirs = strcasecmp(direction, "bidirectional") ? 1 : 2;
    if (r->dirs == 2 || r->reverse || !strcasecmp(direction, "forward")) return true;
    invalid(n, E2004, "direction is '%s'", direction);
    return false;
}

/* --- parts of a step -------------------------------------------------------------------------- */

/* `a`, or `b` in the second direction; `dir` is the direction's coordinate. */
static const Expr *by_direction(Rnn *r, const Expr *dir, const Expr *a, const Expr *b) {
    if (r->dirs == 1 || a == b) return a;
    return ex_select(r->x, ex_bin(r->x, EX_eq, dir, ex_i(r->x, 0)), a, b);
}

/* Activation function `which` of the directions, its operand clipped; only that of LSTM's cell (2)
 * is not, as in ONNX Runtime. */
static const Expr *activate(Rnn *r, const Expr *dir, int which, const Expr *e) {
    Exprs *x = r->x;
    const Expr *out[2];
    if (r->clip > 0 && which < 2) {
        const Expr *limit = ex_num(x, r->work, r->clip);
        e = ex_bin(x, EX_min, ex_bin(x, EX_max, e, ex_un(x, EX_neg, limit)), limit);
    }
    for (int d = 0; d < r->dirs; d++) {
        const Activation *act = &r->act[d][which];
        static const char *const names[] = {"x", "alpha", "beta"};
        const Expr *operand[] = {e, ex_num(x, r->work, act->alpha), ex_num(x, r->work, act->beta)};
        const char *error;
        out[d] = ex_formula(x, act->row->formula, 3, names, operand, &error);
    }
    return by_direction(r, dir, out[0], out[1]);
}

/* The length of the sequence, in [0, steps]. */
static const Expr *length_of(Rnn *r, Builder *b, const Expr *batch) {
    Exprs *x = r->x;
    const Expr *e = ex_cast(x, DT_i32, build_load(b, r->lens, &batch));
    return ex_bin(x, EX_min, ex_bin(x, EX_max, e, ex_i(x, 0)), ex_i(x, r->steps));
}

/* The position that is `s` from the end of the sequence: always one that exists. */
static const Expr *from_end(Rnn *r, Builder *b, const Expr *batch, const Expr *s) {
    Exprs *x = r->x;
    const Expr *end = r->lens ? length_of(r, b, batch) : ex_i(x, r->steps);
    const Expr *at = ex_sub(x, ex_sub(x, end, ex_i(x, 1)), s);
    bool ends = r->lens || dim_varies(r->steps); /* before the last step */
    return ends ? ex_bin(x, EX_max, at, ex_i(x, 0)) : at;
}

/* The position in the sequence at step `s`, or the step at a position. */
static const Expr *turned(Rnn *r, Builder *b, const Expr *dir, const Expr *batch, const Expr *s) {
    if (!r->reverse && r->dirs == 1) return s;
    const Expr *back = from_end(r, b, batch, s);
    return r->reverse ? back : by_direction(r, dir, s, back);
}

/* What the input gives to element `gate` (of gates * hidden) at step `s`; vars 0 and 1 are
 * direction and batch. */
static const Expr *from_input(Rnn *r, Builder *b, const Expr *s, const Expr *gate) {
    const Expr *dir = ex_var(r->x, 0), *batch = ex_var(r->x, 1),
               *index[4] = {NULL, NULL, dir, gate};
    index[r->batch_first] = turned(r, b, dir, batch, s);
    index[!r->batch_first] = batch;
    return build_load(b, r->x_gates, index);
}

/* Weights of bytes [dirs, in, columns] as floats [dirs, columns, in]. */
static Value *decoded(Graph *g, Value *v, Value *scale, Value *zero) {
    Exprs *x = g->x;
    int64_t shape[3] = {v->dims[0], v->dims[2], v->dims[1]};
    Builder b = build(g, 3, shape);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 2), ex_var(x, 1)};
    const Expr *of_scale[2] = {at[0], build_index(&b, 1, scale->dims[1])};
    const Expr *of_zero[2] = {at[0], build_index(&b, 1, zero->dims[1])};
    const Expr *e = ex_sub(x, ex_cast(x, DT_i32, build_load(&b, v, at)),
                           ex_cast(x, DT_i32, build_load(&b, zero, of_zero)));
    e = ex_mul(x, ex_cast(x, DT_f32, e), build_load(&b, scale, of_scale));
    return build_map(&b, DT_f32, e);
}

/* Begins the product of a state [dirs, batch, hidden] with rows `first` .. `first + rows` of R. */
static Builder recur(Rnn *r, Graph *g, Value *state, int64_t first, int64_t rows,
                     const Expr **body) {
    Exprs *x = r->x;
    int64_t shape[3] = {r->dirs, r->batch, rows};
    Value *weights = r->quantised ? decoded(g, r->r, r->r_scale, r->r_zero) : r->r;
    Builder b = build(g, 3, shape);
    const Expr *dir = ex_var(x, 0), *k = build_red(&b, r->hidden);
    const Expr *is[3] = {dir, ex_var(x, 1), k};
    const Expr *ir[3] = {dir, ex_add(x, ex_var(x, 2), ex_i(x, first)), k};
    *body = ex_mul(x, build_load(&b, state, is), ex_cast(x, r->work, build_load(&b, weights, ir)));
    return b;
}

static Builder build_state(Rnn *r, Graph *g) {
    int64_t shape[3] = {r->dirs, r->batch, r->hidden};
    return build(g, 3, shape);
}

/* Element `gate * hidden + h` of a tensor [dirs, batch, gates * hidden], h the last coordinate. */
static const Expr *gate_at(Rnn *r, int gate) {
    return ex_add(r->x, ex_var(r->x, 2), ex_i(r->x, dim_mul(r->x, r->hidden, gate)));
}

static const Expr *load_gate(Rnn *r, Builder *b, Value *gates, int gate) {
    const Expr *index[3] = {ex_var(r->x, 0), ex_var(r->x, 1), gate_at(r, gate)};
    return build_load(b, gates, index);
}

/* The new state, or the old one where the sequence has ended. */
static const Expr *while_running(Rnn *r, Builder *b, const Expr *s, const Expr *fresh,
                                 const Expr *old) {
    if (!r->lens) return fresh;
    return ex_select(r->x, ex_lt(r->x, s, length_of(r, b, ex_var(r->x, 1))), fresh, old);
}

/* --- the three cells -------------------------------------------------------------------------- */

/* h' = f(x_gates + h R) */
static void step_rnn(Rnn *r, Graph *g, const Expr *s) {
    Exprs *x = r->x;
    const Expr *body;
    Builder b = recur(r, g, r->state[0], 0, r->hidden, &body);
    const Expr *e = ex_add(x, ex_acc(x, r->work), from_input(r, &b, s, ex_var(x, 2)));
    e = activate(r, ex_var(x, 0), 0, e);
    if (r->lens) e = while_running(r, &b, s, e, build_in(&b, r->state[0]));
    r->next[0] = build_reduce(&b, r->work, COMBINE_sum, body, e);
}

/* Gates z, r, h. h' = (1 - z) * c + z * h, where the candidate c sees r * h through R or, late
 * reset, r * (h R + bias). */
static void step_gru(Rnn *r, Graph *g, const Expr *s) {
    Exprs *x = r->x;
    DType work = r->work;
    const Expr *dir = ex_var(x, 0), *body, *post, *one = ex_num(x, work, 1);
    Value *h = r->state[0];
    Builder b = recur(r, g, h, 0, dim_mul(x, r->hidden, r->late_reset ? 3 : 2), &body);
    post = ex_acc(x, work);
    if (!r->late_reset)
        post = activate(r, dir, 0, ex_add(x, post, from_input(r, &b, s, ex_var(x, 2))));
    Value *gates = build_reduce(&b, work, COMBINE_sum, body, post);
    const Expr *z, *candidate;
    if (r->late_reset) {
        b = build_state(r, g);
        z = activate(r, dir, 0,
                     ex_add(x, load_gate(r, &b, gates, 0), from_input(r, &b, s, gate_at(r, 0))));
        const Expr *reset =
            ex_add(x, load_gate(r, &b, gates, 1), from_input(r, &b, s, gate_at(r, 1)));
        reset = activate(r, dir, 0, reset);
        const Expr *own = load_gate(r, &b, gates, 2);
        if (r->bias) {
            const Expr *at[2] = {dir, gate_at(r, 5)};
            own = ex_add(x, own, ex_cast(x, work, build_load(&b, r->bias, at)));
        }
        candidate = ex_add(x, from_input(r, &b, s, gate_at(r, 2)), ex_mul(x, reset, own));
    } else {
        b = build_state(r, g);
        Value *kept = build_map(&b, work, ex_mul(x, load_gate(r, &b, gates, 1), build_in(&b, h)));
        b = recur(r, g, kept, dim_mul(x, r->hidden, 2), r->hidden, &body);
        z = load_gate(r, &b, gates, 0);
        candidate = ex_add(x, ex_acc(x, work), from_input(r, &b, s, gate_at(r, 2)));
    }
    candidate = activate(r, dir, 1, candidate);
    const Expr *old = build_in(&b, h);
    const Expr *e = ex_add(x, ex_mul(x, ex_sub(x, one, z), candidate), ex_mul(x, z, old));
    e = while_running(r, &b, s, e, old);
    r->next[0] =
        r->late_reset ? build_map(&b, work, e) : build_reduce(&b, work, COMBINE_sum, body, e);
}

/* A gate of an LSTM before its activation, with the peephole (0: input, 1: output, 2: forget) at
 * `cell`. */
static const Expr *lstm_gate(Rnn *r, Builder *b, Value *gates, int gate, const Expr *cell) {
    Exprs *x = r->x;
    const Expr *e = load_gate(r, b, gates, gate);
    if (!r->peephole || !cell) return e;
    const Expr *at[2] = {ex_var(x, 0), gate_at(r, gate)};
    const Expr *peephole = ex_cast(x, r->work, build_load(b, r->peephole, at));
    return ex_add(x, e, ex_mul(x, peephole, cell));
}

/* The state as what 256 steps between its smallest and its largest number in each direction (and 0)
 * can say of it. */
static Value *in_steps(Rnn *r, Graph *g, Value *state) {
    Exprs *x = r->x;
    if (!r->quantised) return state;
    Value *scale, *zero, *bytes = quant_dynamic(g, state, 6, &scale, &zero);
    Builder b = build(g, 3, state->dims);
    const Expr *e =
        ex_sub(x, ex_cast(x, DT_i32, build_in(&b, bytes)), ex_cast(x, DT_i32, build_in(&b, zero)));
    return build_map(&b, DT_f32, ex_mul(x, ex_cast(x, DT_f32, e), build_in(&b, scale)));
}

/* Gates i, o, f, c: cell' = f * cell + i * c, h' = o * act(cell'). State 0 is h, state 1 the cell.
 */
static void step_lstm(Rnn *r, Graph *g, const Expr *s) {
    Exprs *x = r->x;
    DType work = r->work;
    const Expr *dir = ex_var(x, 0), *body;
    Value *seen = in_steps(r, g, r->state[0]);
    Builder b = recur(r, g, seen, 0, dim_mul(x, r->hidden, 4), &body);
    const Expr *post = ex_add(x, ex_acc(x, work), from_input(r, &b, s, ex_var(x, 2)));
    Value *gates = build_reduce(&b, work, COMBINE_sum, body, post);

    b = build_state(r, g);
    const Expr *old = build_in(&b, r->state[1]);
    const Expr *input = activate(r, dir, 0, lstm_gate(r, &b, gates, 0, old));
    const Expr *forget = r->couple ? ex_sub(x, ex_num(x, work, 1), input)
                                   : activate(r, dir, 0, lstm_gate(r, &b, gates, 2, old));
    const Expr *fresh = activate(r, dir, 1, lstm_gate(r, &b, gates, 3, NULL));
    const Expr *cell = ex_add(x, ex_mul(x, forget, old), ex_mul(x, input, fresh));
    r->next[1] = build_map(&b, work, while_running(r, &b, s, cell, old));

    b = build_state(r, g);
    cell = build_in(&b, r->next[1]);
    const Expr *output = activate(r, dir, 0, lstm_gate(r, &b, gates, 1, cell));
    const Expr *h = ex_mul(x, output, activate(r, dir, 2, cell));
    r->next[0] = build_map(&b, work, while_running(r, &b, s, h, build_in(&b, r->state[0])));
}

/* --- around the steps ------------------------------------------------------------------------- */

/* X W + biases, for all positions, directions and gates: one matrix product. */
static void project_input(Rnn *r) {
    Node *n = r->n;
    Graph *g = n->g;
    Exprs *x = r->x;
    int64_t wide = dim_mul(x, r->hidden, r->gates), rows = dim_mul(x, r->steps, r->batch);
    int64_t columns = dim_mul(x, wide, r->dirs);
    Value *v = g_reshape(g, n->in[0], 2, (int64_t[]){rows, r->in});
    Value *w = g_reshape(g, n->in[1], 2, (int64_t[]){columns, r->in});
    int64_t shape[2] = {rows, columns};
    if (!node_shape_ok(n, 2, shape)) return;
    const Expr *post = NULL, *body;
    Value *bias = NULL;
    if (r->bias) {
        Builder b = build(g, 2, (int64_t[]){r->dirs, wide});
        const Expr *at[2] = {ex_var(x, 0), ex_var(x, 1)};
        const Expr *e = ex_cast(x, r->work, build_load(&b, r->bias, at));
        at[1] = ex_add(x, at[1], ex_i(x, wide));
        const Expr *more = ex_cast(x, r->work, build_load(&b, r->bias, at));
        /* late reset: that of the last gate is for the recurrence alone */
        if (r->late_reset)
            more = ex_select(x, ex_lt(x, ex_var(x, 1), ex_i(x, dim_mul(x, r->hidden, 2))), more,
                             ex_num(x, r->work, 0));
        bias = g_reshape(g, build_map(&b, r->work, ex_add(x, e, more)), 1, &columns);
    }
    Builder b = build(g, 2, shape);
    const Expr *k = build_red(&b, r->in), *iv[2] = {ex_var(x, 0), k}, *iw[2] = {ex_var(x, 1), k};
    body = ex_mul(x, ex_cast(x, r->work, build_load(&b, v, iv)),
                  ex_cast(x, r->work, build_load(&b, w, iw)));
    if (bias) post = ex_add(x, ex_acc(x, r->work), build_in(&b, bias));
    Value *all = build_reduce(&b, r->work, COMBINE_sum, body, post);
    int64_t apart[4] = {r->steps, r->batch, r->dirs, wide};
    if (r->batch_first) apart[0] = r->batch, apart[1] = r->steps;
    r->x_gates = g_reshape(g, all, 4, apart);
}

/* The state to begin with: input i or zeros, as [dirs, batch, hidden]. */
static Value *initial_state(Rnn *r, int i) {
    Graph *g = r->n->g;
    Value *v = node_in(r->n, i);
    if (!v) {
        Builder b = build_state(r, g);
        return build_map(&b, r->work, ex_num(r->x, r->work, 0));
    }
    static const int swap[3] = {1, 0, 2};
    v = g_cast(g, v, r->work);
    if (r->batch_first) v = g_transpose(g, v, swap);
    Builder b = build_state(r, g); /* whose dimensions may be known better */
    return build_map(&b, r->work, build_in(&b, v));
}

/* An outer value as the body of the loop sees it: a constant of its own, or one more input. */
static Value *bring_in(Graph *sub, Value *v, Value **in, int *n_in) {
    if (!v) return NULL;
    if (value_is_const(v)) return constant_like(sub, v, v->rank, v->dims);
    in[(*n_in)++] = v;
    return graph_input(sub, NULL, v->dt, v->rank, v->dims);
}

/* Runs the steps in a loop; r->next gets the last states. Returns the outputs of all steps,
 * stacked, or NULL if they are not wanted. */
static Value *run_loop(Rnn *r, bool stacked) {
    Graph *g = r->n->g, *sub = graph_new_sub(g);
    Rnn outer = *r;
    Value *in[10], *out[3] = {NULL};
    int n_in = 0;
    for (int i = 0; i < r->n_states; i++) {
        in[n_in++] = outer.state[i];
        r->state[i] = graph_input(sub, NULL, r->work, 3, outer.state[i]->dims);
    }
    r->x_gates = bring_in(sub, outer.x_gates, in, &n_in);
    r->r = bring_in(sub, outer.r, in, &n_in);
    r->r_scale = bring_in(sub, outer.r_scale, in, &n_in);
    r->r_zero = bring_in(sub, outer.r_zero, in, &n_in);
    r->bias = r->late_reset ? bring_in(sub, outer.bias, in, &n_in) : NULL;
    r->peephole = bring_in(sub, outer.peephole, in, &n_in);
    r->lens = bring_in(sub, outer.lens, in, &n_in);
    const Expr *s = ex_ctr(r->x, g->depth);
    r->step(r, sub, s);
    for (int i = 0; i < r->n_states; i++) graph_output(sub, r->next[i], NULL);
    if (stacked) {
        Builder b = build_state(r, sub);
        const Expr *e = while_running(r, &b, s, build_in(&b, r->next[0]), ex_num(r->x, r->work, 0));
        graph_output(sub, build_map(&b, r->work, e), NULL);
    }
    build_loop(g, sub, r->steps, r->n_states, n_in, in, out);
    *r = outer;
    for (int i = 0; i < r->n_states; i++) r->next[i] = out[i];
    return stacked ? out[r->n_states] : NULL;
}

/* The only step there is, without a loop. */
static Value *run_once(Rnn *r) {
    Graph *g = r->n->g;
    r->step(r, g, ex_i(r->x, 0));
    Builder b = build_state(r, g);
    const Expr *e = build_in(&b, r->next[0]);
    e = while_running(r, &b, ex_i(r->x, 0), e, ex_num(r->x, r->work, 0));
    return g_reshape(g, build_map(&b, r->work, e), 4, (int64_t[]){1, r->dirs, r->batch, r->hidden});
}

/* Outputs stacked by steps [steps, dirs, batch, hidden] as those by positions, in the operator's
 * layout. */
static Value *by_position(Rnn *r, Value *stacked, DType dt) {
    Exprs *x = r->x;
    int64_t shape[4] = {r->steps, r->dirs, r->batch, r->hidden};
    if (r->batch_first) shape[0] = r->batch, shape[1] = r->steps, shape[2] = r->dirs;
    Builder b = build(r->n->g, 4, shape);
    const Expr *at = ex_var(x, r->batch_first), *dir = ex_var(x, r->batch_first ? 2 : 1);
    const Expr *batch = ex_var(x, r->batch_first ? 0 : 2);
    const Expr *index[4] = {turned(r, &b, dir, batch, at), dir, batch, ex_var(x, 3)};
    const Expr *e = build_load(&b, stacked, index);
    if (r->lens) e = ex_select(x, ex_lt(x, at, length_of(r, &b, batch)), e, ex_num(x, r->work, 0));
    return build_map(&b, dt, e);
}

/* R's bytes, their scales and zero points with the extents that the states have. */
static void name_extents(Rnn *r) {
    Graph *g = r->n->g;
    int64_t shape[3] = {r->dirs, r->hidden, dim_mul(r->x, r->hidden, r->gates)};
    int64_t one[2] = {r->dirs, 1}, each[2] = {r->dirs, shape[2]};
    r->r = g_reshape(g, r->r, 3, shape);
    r->r_scale = g_reshape(g, r->r_scale, 2, r->r_scale->dims[1] == 1 ? one : each);
    r->r_zero = g_reshape(g, r->r_zero, 2, r->r_zero->dims[1] == 1 ? one : each);
}

static void import_recurrent(Rnn *r) {
    Node *n = r->n;
    r->x = n->x;
    if (!read_attributes(r) || !read_shapes(r) || !read_activations(r)) return;
    DType dt = n->in[0]->dt;
    r->work = float_work(dt);
    if (r->quantised)
        name_extents(r);
    else
        r->r = n->in[2];
    for (int i = 0; i < r->n_states; i++) r->state[i] = initial_state(r, 5 + i);
    project_input(r);
    if (n->failed) return;
    bool stacked = node_wants(n, 0);
    Value *all = r->steps == 1 ? run_once(r) : run_loop(r, stacked);
    if (stacked) n->out[0] = by_position(r, all, dt);
    static const int swap[3] = {1, 0, 2};
    for (int i = 0; i < r->n_states; i++) {
        Value *v = g_cast(n->g, r->next[i], dt);
        n->out[1 + i] = r->batch_first ? g_transpose(n->g, v, swap) : v;
    }
}

void import_rnn(Node *n) {
    static const char *const usual[] = {"Tanh"};
    import_recurrent(&(Rnn){
        .n = n, .gates = 1, .n_states = 1, .n_activations = 1, .usual = usual, .step = step_rnn});
}

void import_gru(Node *n) {
    static const char *const usual[] = {"Sigmoid", "Tanh"};
    import_recurrent(&(Rnn){
        .n = n, .gates = 3, .n_states = 1, .n_activations = 2, .usual = usual, .step = step_gru});
}

void import_lstm(Node *n) {
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"};
    import_recurrent(&(Rnn){
        .n = n, .gates = 4, .n_states = 2, .n_activations = 3, .usual = usual, .step = step_lstm});
}

/* The scale and the zero point of weights of bytes [dirs, in, columns], in inputs `i` and i + 1:
 * one for each direction or each column, as [dirs, columns or 1]. False after a report. */
static bool weight_parts(Node *n, const Value *v, int i, Value **scale, Value **zero) {
    Value *parts[2] = {node_need(n, i), node_need(n, i + 1)};
    if (!v || !parts[0] || !parts[1]) return false;
    bool fits = v->rank == 3 && (v->dt == DT_u8 || v->dt == DT_i8) && parts[0]->dt == DT_f32 &&
                parts[1]->dt == v->dt;
    for (int k = 0; k < 2 && fits; k++) {
        int rank = parts[k]->rank;
        fits = (rank == 1 || rank == 2) && dim_meets(n->x, parts[k]->dims[0], v->dims[0]) &&
               (rank == 1 || dim_meets(n->x, parts[k]->dims[1], v->dims[2]));
        int64_t shape[2] = {v->dims[0], rank == 1 ? 1 : v->dims[2]};
        if (fits) parts[k] = g_reshape(n->g, parts[k], 2, shape);
    }
    *scale = parts[0], *zero = parts[1];
    if (!fits)
        invalid(n, E2005, "weights %s%s with a scale or zero point that does not fit",
                dt_name(v->dt), shape_text(n->g->arena, v->rank, v->dims));
    return fits;
}

/* Inputs, states and weights are what 8 bits can say of them; all else is as in LSTM. The bits
 * serve the whole tensor, so what lies behind the ends of shorter sequences would matter, and
 * nothing says what that is. */
void import_ms_dynamic_quantize_lstm(Node *n) {
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"};
    Rnn r = {.gates = 4,
             .n_states = 2,
             .n_activations = 3,
             .usual = usual,
             .step = step_lstm,
             .quantised = true};
    Value *v = need_float(n, 0, 3), *w = node_need(n, 1), *scale, *zero, *w_scale, *w_zero;
    r.r = node_need(n, 2);
    if (!v || !weight_parts(n, w, 8, &w_scale, &w_zero) ||
        !weight_parts(n, r.r, 10, &r.r_scale, &r.r_zero))
        return;
    if (v->dt != DT_f32 || value_numel(v) == 0) {
        invalid(n, E2006, "X must hold f32");
        return;
    }
    if (node_in(n, 4) && !lengths_are(n, v->dims[0])) {
        unsupported(n, "sequences of different lengths");
        return;
    }
    Value *bytes = quant_dynamic(n->g, v, (1u << v->rank) - 1, &scale, &zero);
    Quant q = {scale, zero, DT_u8};
    Node plain = *n;
    plain.in = arena_copy(n->g->arena, n->in, (size_t)n->n_in * sizeof *n->in);
    plain.in[0] = quant_decode(n, bytes, &q);
    plain.in[1] = decoded(n->g, w, w_scale, w_zero);
    plain.in[2] = decoded(n->g, r.r, r.r_scale, r.r_zero); /* its shape and type are looked at */
    r.n = &plain;
    import_recurrent(&r);
    n->failed |= plain.failed;
}
