/* early: a function of tensors that a map joins is computed by those who make them.
 *
 * Quantised models encode what they have concatenated anew: a map reads the parts, decodes each and
 * encodes the whole. Where a part is made for this map alone, its maker does both as soon as it has
 * an element, and what is left of the map copies: pass `place` has the part computed in its place
 * then, and nothing is copied.
 */
#include "passes/inline.h"
#include "passes/passes.h"

/* And choices of them: models have tens, and of each the whole body is written anew. */
#define MOST_PARTS 128

typedef struct Joined {
    Graph *g;
    Op *op;
    int *parts;  /* by input: how many parts of the map's body read it */
    int n_parts; /* and choices */
} Joined;

static bool is_choice(const Expr *e) {
    return e->op == EX_select && !e->arg[0]->loads;
}

/* What `e` is a function of, beside constants: the first choice, or load, on the way to all else;
 * NULL: there is none. */
static const Expr *argument_of(const Expr *e) {
    while (!is_choice(e) && e->op != EX_load) {
        const Expr *next = NULL;
        for (int i = 0; i < e->n; i++) {
            if (ex_is_const(e->arg[i])) continue;
            if (next) return NULL;
            next = e->arg[i];
        }
        if (!next) return NULL;
        e = next;
    }
    return e;
}

static void count_parts(Joined *j, const Expr *e) {
    const Expr *from = argument_of(e);
    if (j->n_parts++ > MOST_PARTS) return;
    if (from && is_choice(from)) {
        count_parts(j, from->arg[1]);
        count_parts(j, from->arg[2]);
        return;
    }
    if (from && from->op == EX_load) j->parts[from->k.i]++;
}

/* Can the function go to who makes what `load` reads, for elements of type `dt`? Not if others read
 * it, too, if more is made than the map has, of which it reads some, or if the elements became
 * larger. Sums have something done with them anyway, the largest of bytes had rather not
 * (nest_chosen_bytes). */
static bool can_move(const Joined *j, const Expr *load, DType dt) {
    const Value *v = j->op->in[load->k.i];
    const Op *maker = v->def;
    const bool adds = maker->kind == OP_reduce && maker->combine == COMBINE_sum;
    return j->parts[load->k.i] == 1 && v->index == 1 && !v->range &&
           (adds || maker->kind == OP_map) &&
           loads_of_input(j->g->arena, j->op->body, (int)load->k.i) == 1 &&
           value_numel(v) <= value_numel(j->op->out[0]) && dt_store(dt) <= dt_store(v->dt);
}

/* `whole`, of which `e` is a part: chosen from what it is with each arm of a choice, or a load of
 * what its maker makes of it then. */
static const Expr *moved(Joined *j, const Expr *whole, const Expr *e) {
    Exprs *x = j->g->x;
    const Expr *from = argument_of(e), *arm[3];
    if (from && is_choice(from)) {
        for (int i = 1; i < 3; i++)
            arm[i] = moved(j, ex_replace(x, whole, from, from->arg[i]), from->arg[i]);
        return ex_select(x, from->arg[0], arm[1], arm[2]);
    }
    const DType dt = (DType)whole->dt;
    if (!from || whole == from || !can_move(j, from, dt)) return whole;
    Value *v = j->op->in[from->k.i];
    const Expr **made = v->def->kind == OP_map ? &v->def->body : &v->def->post;
    int64_t extent[MAX_RANK];
    op_extents(v->def, extent);
    *made = ex_simplify(x, ex_replace(x, whole, from, *made), v->rank, extent);
    v->dt = dt;
    return ex_load(x, dt, (int)from->k.i, from->n, from->arg);
}

void pass_early(Graph *g, const PassOptions *o) {
    graph_count_uses(g);
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_early(op->sub, o);
        if (op->kind != OP_map) continue;
        const Expr *from = argument_of(op->body);
        if (!from || !is_choice(from)) continue;
        Joined j = {.g = g, .op = op, .parts = ARENA_ARRAY(g->arena, op->n_in, int)};
        count_parts(&j, op->body);
        if (j.n_parts <= MOST_PARTS) op->body = moved(&j, op->body, op->body);
    }
}
