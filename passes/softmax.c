/* softmax: what a product reads of a softmax is not divided by the sum; the product's results are.
 * What nobody multiplies is multiplied by the sum's reciprocal, which is several times as fast.
 *
 * In attention, each exponential is read as often as there are columns, and its row is divided by
 * one number. sum((e / s) * v) = sum(e * v) / s saves going over all scores once more. Since no e
 * is larger than 1 and some e of a row is 1 (it is exp(x - m), m the largest x of the row), the
 * sums round as sums of the quotients do. They are up to s times as large, s at most the elements
 * of a row: finite results whose sums are larger than the largest float become infinite.
 *
 * Likewise what a product reads times a number (keys of attention, as some exporters scale them) is
 * multiplied by it as a sum. The sums may be up to 64 times as large before: no other numbers are
 * taken out.
 *
 * Where vectors have a function for exponentials of x - m, those are computed by it.
 */
#include "passes/inline.h"
#include "passes/passes.h"

#include <math.h>

/* Does `load`, in the body of `map`, read what `reduce` makes of a row of a tensor of the map's
 * shape, the row that the map's own element is in? The dimensions that rows run along go to
 * *along. */
static bool reads_own_row(Graph *g, const Op *map, const Expr *load, const Op *reduce,
                          uint64_t *along) {
    const int rank = reduce->out[0]->rank;
    uint64_t seen = 0;
    *along = 0;
    if (reduce->kind != OP_reduce) return false;
    const Expr *condition, *at = reduce_term(g->x, reduce, &condition);
    if (at->op != EX_load || reduce->post->op != EX_acc || at->n != map->out[0]->rank) return false;
    for (int d = 0; d < at->n; d++) {
        const Expr *e = at->arg[d];
        const int64_t extent = map->out[0]->shape[d];
        if (extent == 1 && ex_is_int(e, 0)) continue;
        if (e->op != EX_var) return false;
        if (e->k.i < rank) {
            const Expr *own = load->arg[e->k.i];
            if (own->op != EX_var || own->k.i != d) return false;
            continue;
        }
        const int r = (int)e->k.i - rank;
        if (seen >> e->k.i & 1 || !reduces_all_of(g, reduce, r, map->out[0], d)) return false;
        seen |= (uint64_t)1 << e->k.i;
        *along |= (uint64_t)1 << d;
    }
    return true;
}

/* Is `e`, in the body of `op`, x - m, where m is the largest of elements of which x is one? The
 * dimensions of x that they run along go to *along. */
static bool is_low(Graph *g, const Op *op, const Expr *e, uint64_t *along) {
    Exprs *x = g->x;
    *along = 0;
    if (e->op != EX_sub || e->arg[0]->op != EX_load || e->arg[1]->op != EX_load) return false;
    const Expr *one = e->arg[0], *largest = e->arg[1];
    const Op *most = op->in[largest->k.i]->def;
    if (most->kind != OP_reduce || most->combine != COMBINE_max) return false;
    const Expr *condition, *any = reduce_term(x, most, &condition);
    if (any->op != EX_load || most->post->op != EX_acc || most->in[any->k.i] != op->in[one->k.i])
        return false;
    const int rank = most->out[0]->rank;
    uint64_t seen = 0;
    for (int d = 0; d < one->n; d++) {
        const Expr *at = any->arg[d];
        const uint64_t reduced = ex_vars(at) >> rank;
        const bool all = at->op == EX_var && reduced &&
                         reduces_all_of(g, most, (int)at->k.i - rank, op->in[one->k.i], d);
        if (reduced && (!all || seen & reduced)) return false;
        if (!all && ex_subst_vars(x, at, rank, largest->arg) != one->arg[d]) return false;
        seen |= reduced;
        *along |= (uint64_t)all << d;
    }
    return true;
}

/* Is it exp(x - m), where m is the largest x of a row? */
static bool is_exponential(Graph *g, const Value *v, uint64_t *along) {
    const Op *op = v->def;
    return op->kind == OP_map && op->body->op == EX_exp && is_low(g, op, op->body->arg[0], along) &&
           own_load(op, op->body->arg[0]->arg[0]);
}

/* Is it the softmax e / s, where s is the sum of a row of e? */
static bool is_softmax(Graph *g, const Op *map) {
    uint64_t summed, largest;
    if (map->kind != OP_map || map->guard || map->body->op != EX_div) return false;
    const Expr *divisor = map->body->arg[1];
    const Value *e = own_load(map, map->body->arg[0]);
    if (!e || e->dt != DT_f32 || divisor->op != EX_load) return false;
    const Op *sum = map->in[divisor->k.i]->def;
    if (!reads_own_row(g, map, divisor, sum, &summed) || sum->combine != COMBINE_sum) return false;
    const Expr *condition, *term = reduce_term(g->x, sum, &condition);
    return sum->in[term->k.i] == e && is_exponential(g, e, &largest) && summed == largest;
}

static const Expr *replace_acc(void *user, const Expr *e, const Expr *const *args) {
    const Expr *const *by = user;
    (void)args;
    return e->op == EX_acc ? *by : e;
}

/* Factor `f` of the product reads the element of `v` at this index. */
static void read_factor(Graph *g, Op *op, int f, Value *v, int n, const Expr *const *index) {
    const Expr *condition, *product = reduce_term(g->x, op, &condition);
    const Expr *factor[2] = {product->arg[0], product->arg[1]};
    factor[f] = ex_load(g->x, DT_f32, op_add_input(g, op, v), n, index);
    reduce_set_term(g->x, op, ex_mul(g->x, factor[0], factor[1]));
}

/* A factor of the product, if it is a load of floats; NULL: it is none. */
static const Expr *loaded_factor(Graph *g, const Op *op, int f) {
    const Expr *condition, *load = reduce_term(g->x, op, &condition)->arg[f];
    return load->op == EX_load && load->dt == DT_f32 && op->body->dt == DT_f32 ? load : NULL;
}

/* Factor `f` of the product loads a softmax: takes the division out of it. */
static bool take_division(Graph *g, Op *op, int f) {
    Exprs *x = g->x;
    const Expr *load = loaded_factor(g, op, f);
    if (!load) return false;
    Value *v = op->in[load->k.i];
    const Op *map = v->def;
    if (v->index != 1 || !is_softmax(g, map)) return false;
    const Expr *sum = map->body->arg[1];
    Value *e = own_load(map, map->body->arg[0]);
    const int rank = op->out[0]->rank;
    const Expr *index[MAX_RANK];
    for (int i = 0; i < sum->n; i++) index[i] = ex_subst_vars(x, sum->arg[i], load->n, load->arg);
    for (int i = 0; i < sum->n; i++)
        if (ex_vars(index[i]) >> rank) return false;
    const Expr *divisor = ex_load(x, DT_f32, op_add_input(g, op, map->in[sum->k.i]), sum->n, index);
    const Expr *quotient = ex_div(x, ex_acc(x, DT_f32), divisor);
    read_factor(g, op, f, e, load->n, load->arg);
    op->post = ex_rewrite(x, op->post, replace_acc, &quotient);
    graph_drop_inputs(g, op);
    return true;
}

#define MOST_SCALE 64.0

/* Factor `f` of the product loads something times a number: takes the number out of it. */
static bool take_scale(Graph *g, Op *op, int f) {
    Exprs *x = g->x;
    const Expr *load = loaded_factor(g, op, f), *index[MAX_RANK];
    if (!load) return false;
    Value *v = op->in[load->k.i];
    const Op *map = v->def;
    if (v->index != 1 || map->kind != OP_map || map->guard || map->body->op != EX_mul) return false;
    const int at = map->body->arg[0]->op == EX_load ? 0 : 1;
    const Expr *from = map->body->arg[at], *number = map->body->arg[1 - at];
    if (from->op != EX_load || from->dt != DT_f32 || !ex_is_const(number)) return false;
    const double size = fabs(number->k.f);
    if (!(size <= MOST_SCALE && size >= 1 / MOST_SCALE)) return false;
    for (int i = 0; i < from->n; i++) {
        if (from->arg[i]->loads) return false;
        index[i] = ex_subst_vars(x, from->arg[i], load->n, load->arg);
    }
    read_factor(g, op, f, map->in[from->k.i], from->n, index);
    const Expr *scaled = ex_mul(x, ex_acc(x, DT_f32), number);
    op->post = ex_rewrite(x, op->post, replace_acc, &scaled);
    graph_drop_inputs(g, op);
    return true;
}

/* Has a softmax multiply by what its row's sum is the reciprocal of, if nobody else wants the sum.
 */
static void multiply(Graph *g, Op *map) {
    Exprs *x = g->x;
    if (!is_softmax(g, map)) return;
    const Expr *sum = map->body->arg[1];
    Op *reduce = map->in[sum->k.i]->def;
    if (reduce->out[0]->index != 1 || map->body->dt != DT_f32) return;
    reduce->post = ex_div(x, ex_num(x, DT_f32, 1), reduce->post);
    map->body = ex_mul(x, map->body->arg[0], sum);
}

/* Is the value added up as it is? */
static bool is_summed(const Graph *g, const Value *v) {
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_reduce || op->combine != COMBINE_sum) continue;
        const Expr *condition, *term = reduce_term(g->x, op, &condition);
        if (term->op == EX_load && op->in[term->k.i] == v) return true;
    }
    return false;
}

/* Exponentials of a softmax, which are added up, are at most 1, and one of a row is 1: those below
 * 2^-126 change nothing. (With vectors of 64 bytes there is no faster function for them.) */
static void take_low(Graph *g, const Target *t) {
    if (!t->vector_types || t->vector_bytes > 32) return;
    uint64_t along;
    for (Op *op = g->first; op; op = op->next) {
        const bool map = op->kind == OP_map;
        if (!map && (op->kind != OP_reduce || op->combine != COMBINE_sum)) continue;
        const Expr *condition = NULL, *e = map ? op->body : reduce_term(g->x, op, &condition);
        if (e->op != EX_exp || e->dt != DT_f32 || !is_low(g, op, e->arg[0], &along) ||
            (map && !is_summed(g, op->out[0])))
            continue;
        e = ex_un(g->x, EX_exp_low, e->arg[0]);
        if (map)
            op->body = e;
        else
            reduce_set_term(g->x, op, e);
    }
}

static bool is_product(Graph *g, const Op *op) {
    const Expr *condition;
    return op->kind == OP_reduce && op->combine == COMBINE_sum &&
           reduce_term(g->x, op, &condition)->op == EX_mul;
}

void pass_softmax(Graph *g, const PassOptions *o) {
    graph_count_uses(g);
    bool any = false;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_softmax(op->sub, o);
        if (!is_product(g, op)) continue;
        if (op->n_in + 2 > MAX_INPUTS) continue; /* each adds two at most, and drops one */
        any |= take_division(g, op, 0) || take_division(g, op, 1);
        any |= take_scale(g, op, 0) || take_scale(g, op, 1);
    }
    if (any) pass_dce(g, o);
    graph_count_uses(g);
    for (Op *op = g->first; op; op = op->next) multiply(g, op);
    take_low(g, o->target);
}
