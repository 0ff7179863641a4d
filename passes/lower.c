/* lower: from a graph to a program, one scheduled kernel per computing operator.
 *
 * Values that share memory are tied together here (Value.storage): reshapes with their operand, the
 * invariants of a loop with the outer values, a loop's carried outputs with the state it updates
 * (the next of a state, too, where a map makes it of elements at its own places, or a scatter),
 * what it stacks with its outputs.
 */
#include "ir/text.h"
#include "passes/inline.h"
#include "passes/nest.h"
#include "passes/parts.h"
#include "passes/passes.h"
#include "passes/reach.h"
#include "passes/rows.h"

#include <ctype.h>
#include <string.h>

#define LEAST_TRIPS                                                                                \
    8 /* of a loop that threads divide among them; of others they divide kernels                   \
       */

typedef struct Lower {
    Program *p;
    StrMap kernels; /* text of a kernel without its name and source -> the Kernel */
    Graph *g;       /* the (sub-)graph at work */
    const Target *target;
    const Schedules *schedules; /* NULL: none */
    bool *used;                 /* of each of its entries */
    int variant;
    bool apart; /* in a loop whose iterations threads may do apart */
} Lower;

/* k<number>_<first source node, as an identifier> */
static const char *kernel_name(Lower *l, const Op *op) {
    char name[32];
    int length = 0;
    for (const char *c = op->src ? op->src : op_kind_name(op->kind); *c && *c != ','; c++) {
        if (length == (int)sizeof name - 1) break;
        bool plain = isalnum((unsigned char)*c);
        if (!plain && (length == 0 || name[length - 1] == '_')) continue;
        name[length++] = plain ? (char)tolower((unsigned char)*c) : '_';
    }
    while (length && name[length - 1] == '_') length--;
    name[length] = 0;
    return arena_printf(l->p->arena, "k%d_%s", l->p->kernels.n, length ? name : "op");
}

static uint32_t in_place_inputs(Lower *l, const Op *op) {
    const Value *out = op->out[0];
    uint32_t mask = 0;
    if (out->inside || out->stacked || (out->dense && out->rank > 1)) return 0;
    for (int i = 0; i < op->n_in && i < 32; i++)
        if (!op->in[i]->inside && !op->in[i]->stacked &&
            value_pitch(op->in[i]) == value_pitch(out) && may_write_over(l->p->arena, op, i))
            mask |= 1u << i;
    return mask;
}

/* The kernel to launch for the one just built: an earlier one that computes the same, or itself.
 * Models repeat their layers; one kernel for all of them saves code and the targets' compilers
 * time. */
static Kernel *share_kernel(Lower *l, Kernel *k) {
    const char *name = k->name, *src = k->src;
    Text text = text_new(l->p->arena);
    k->name = "k";
    k->src = NULL;
    text_kernel(&text, k);
    k->name = name;
    k->src = src;
    void **slot = strmap_put(&l->kernels, text_get(&text));
    if (!*slot) {
        *slot = k;
        return k;
    }
    Kernel *same = *slot;
    l->p->kernels.n--; /* it was the last */
    if (src && same->src && strlen(same->src) < 400)
        same->src = arena_printf(l->p->arena, "%s; %s", same->src, src);
    return same;
}

static void add_launch(Lower *l, Nest *n, uint64_t key, bool copy) {
    Step step = {.kind = STEP_launch, .copy = copy};
    step.in_place = in_place_inputs(l, n->op);
    step.key = key;
    step.kernel = share_kernel(l, nest_build(n, kernel_name(l, n->op), &step.args));
    vec_push(l->p->arena, &l->p->steps, step);
}

/* Replays the schedule that was measured for the operator. False if there is none; then, and if its
 * steps do not fit, the nest is as it was. */
static bool replay_measured(Lower *l, Nest *n, uint64_t key) {
    int at = l->schedules && key ? schedules_find(l->schedules, key) : -1;
    if (at < 0) return false;
    const ScheduleEntry *entry = &l->schedules->entries.items[at];
    Diag *diag = l->p->diag;
    const char *where = diag->where;
    Nest before = *n;
    l->used[at] = true;
    diag->where = arena_printf(l->p->arena, "'%s', line %d: %s", l->schedules->file, entry->line,
                               n->op->src ? n->op->src : op_kind_name(n->op->kind));
    bool ok = nest_replay(n, entry->steps) && nest_check_loops(n);
    diag->where = where;
    if (!ok) *n = before; /* the error has been noted */
    return ok;
}

/* Entries of other models, other targets, or what this model was when they were measured. */
static void warn_of_unused(const Lower *l) {
    int total = l->schedules ? l->schedules->entries.n : 0, unused = 0;
    for (int i = 0; i < total; i++) unused += !l->used[i];
    if (unused)
        diag_warning(l->p->diag, E5004,
                     "%d of the %d schedules in '%s' fit no operator of this model as it is "
                     "compiled here (mlcc tune makes new ones)",
                     unused, total, l->schedules->file);
}

/* How far the coordinates of the operator's result go in a run, and the operator with the symbols
 * that say so among its inputs. */
static const Op *limited(Lower *l, const Op *op, const Expr **limit) {
    const Value *out = op->out[0];
    Exprs *x = l->p->x;
    bool any = false;
    if (!x->dims || !dims_vary(out->rank, out->dims) || op->kind == OP_scatter) return op;
    Op *own = arena_copy(l->p->arena, op, sizeof *op);
    own->in = ARENA_ARRAY(l->p->arena, op->n_in + l->g->symbols.n, Value *);
    for (int i = 0; i < op->n_in; i++) own->in[i] = op->in[i];
    for (int i = 0; i < out->rank; i++) {
        if (!dim_varies(out->dims[i]) || out->shape[i] < 2) continue;
        limit[i] = load_symbols(l->g, own, dim_simplified(x, out->dims[i]));
        any |= limit[i] != NULL;
    }
    return any ? own : op;
}

/* Has something else been written by now where `v` lies? The next of a loop's state may be made
 * where the state lies, and a row of a loop's result where lies what it is made of: whoever reads
 * them was asked before. */
static bool is_gone(const Lower *l, Value *v) {
    for (int i = 0; l->g->parent && i < l->g->outputs.n; i++) {
        Value *made = l->g->outputs.items[i];
        if (made != v && made->index == 1 && value_storage(made) == value_storage(v)) return true;
    }
    return false;
}

/* How far the reduction has anything to combine (reach.h), unless what says so is gone. */
static const Expr *find_reach(const Lower *l, const Op **op) {
    const Op *given = *op;
    const Expr *reach = l->target->blocks ? NULL : reach_of_reduction(l->g, op);
    for (int i = given->n_in; i < (*op)->n_in; i++) {
        if (!is_gone(l, (*op)->in[i])) continue;
        *op = given;
        return NULL;
    }
    return reach;
}

/* Begins the nest of an operator, which goes as far as its result does in a run. */
static void nest_begin_limited(Lower *l, Nest *n, const Op *op) {
    const Expr *limit[MAX_RANK] = {NULL};
    op = limited(l, op, limit);
    nest_begin(n, l->p, op, l->target);
    for (int i = 0; i < op->out[0]->rank; i++)
        if (limit[i]) nest_limit(n, i, limit[i], dim_min(n->x, op->out[0]->dims[i]));
}

static void lower_compute(Lower *l, const Op *op) {
    int64_t extent[MAX_RANK];
    int n_extents = op_extents(op, extent);
    /* an empty tensor needs no kernel; an empty reduction still stores its identity */
    if (value_numel(op->out[0]) == 0) return;
    if (op->kind == OP_scatter && shape_numel(n_extents, extent) == 0) return;
    if (op->kind == OP_map && op->guard && ex_is_int(op->guard, 0))
        return; /* others write it all */
    Nest n;
    uint64_t key = schedule_key(l->p->arena, op, l->target);
    const Expr *lies[MAX_RANK];
    const Op *dense = by_coordinates(l->g, op, lies);
    const Value *flat = op->out[0];
    if (dense) op = dense;
    const Expr *reach = find_reach(l, &op);
    nest_begin_limited(l, &n, op);
    if (reach) nest_reach(&n, reach);
    if (dense) nest_lay_dense(&n, flat, lies);
    n.variant = l->variant;
    n.apart = l->apart;
    if (!replay_measured(l, &n, key)) schedule_choose(&n);
    add_launch(l, &n, key, false);
}

/* The operators of a chain as one kernel (rows.h). */
static void lower_rows(Lower *l, const RowChain *chain) {
    Kernel *kernels[MOST_IN_ROWS];
    Value **args[MOST_IN_ROWS];
    Step step = {.kind = STEP_launch};
    for (int i = 0; i < chain->n; i++) {
        Nest n;
        nest_begin(&n, l->p, chain->op[i], l->target);
        schedule_rows(&n, chain);
        kernels[i] = nest_build(&n, "part", &args[i]);
    }
    l->p->kernels.n -= chain->n; /* they are parts of the next */
    const Op *last = chain->op[chain->n - 1];
    Kernel *k = join_rows(l->p, kernel_name(l, chain->op[0]), chain->n, kernels, args, &step.args);
    /* The last result may lie where a part before has stored what its element alone is made of. */
    for (int i = 0; i < k->n_params && i < 32; i++)
        for (int a = 0; a < last->n_in; a++)
            if (step.args[i] == last->in[a] && k->buffers.items[i]->written &&
                in_place_inputs(l, last) >> a & 1)
                step.in_place |= (uint32_t)1 << i;
    step.kernel = share_kernel(l, k);
    vec_push(l->p->arena, &l->p->steps, step);
}

/* A map that copies `from` into memory of `to`; at >= 0: into its row number `ctr at`. */
static void lower_copy(Lower *l, Value *from, Value *to, int at, const char *src) {
    Exprs *x = l->p->x;
    if (value_numel(from) == 0) return;
    const Expr *index[MAX_RANK];
    int skip = at >= 0;
    for (int i = 0; i < from->rank; i++) index[i] = ex_var(x, i + skip);
    Op *op = ARENA_NEW(l->p->arena, Op);
    Value **ends = ARENA_ARRAY(l->p->arena, 2, Value *);
    ends[0] = from, ends[1] = to;
    *op = (Op){.kind = OP_map, .n_in = 1, .n_out = 1, .in = &ends[0], .out = &ends[1], .src = src};
    op->body = ex_load(x, from->dt, 0, from->rank, index);
    if (value_is_uniform(from)) { /* it takes no memory */
        op->body = ex_const(x, from->dt, dt_load(from->dt, from->data, 0));
        op->in++, op->n_in = 0;
    }
    Nest n;
    if (skip) {
        nest_begin(&n, l->p, op, l->target);
        nest_fix(&n, 0, ex_ctr(x, at));
    } else {
        nest_begin_limited(l, &n, op);
    }
    if (!skip || l->target->blocks) schedule_choose(&n);
    add_launch(l, &n, 0, !skip && op->n_in);
}

/* Can output `at` of a loop's body, which the loop stacks, be computed in its row at once? It then
 * has no memory of its own, which other operators' results might share. */
static bool goes_to_row(const Graph *sub, int at) {
    const Value *v = sub->outputs.items[at];
    if ((v->def->kind != OP_map && v->def->kind != OP_reduce) || v->inside || v->gap) return false;
    for (int i = 0; i < sub->outputs.n; i++)
        if (i != at && sub->outputs.items[i] == v) return false;
    for (const Op *op = v->def->next; op; op = op->next)
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] == v && op->kind != OP_map && op->kind != OP_reduce) return false;
    return true;
}

/* Does a map or a reduction of g make `v`, in memory of its own, and do maps and reductions alone
 * read it, none of them behind `last`? */
static bool read_until(const Graph *g, const Value *v, const Op *last) {
    if ((v->def->kind != OP_map && v->def->kind != OP_reduce) || v->inside || v->gap || v->stacked)
        return false;
    if (graph_is_output(g, v)) return false;
    bool before = true; /* or at `last` */
    for (const Op *op = v->def->next; op; op = op->next) {
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] == v && (!before || (op->kind != OP_map && op->kind != OP_reduce)))
                return false;
        before &= op != last;
    }
    return !before;
}

/* What a map reads just where it stores to a loop's result may lie there before: then it needs no
 * memory of its own, and the result's is in a cache when the map comes. */
static void share_row(Lower *l, const Graph *sub, const Value *row) {
    const Op *map = row->def;
    for (int i = 0; i < map->n_in; i++) {
        Value *v = map->in[i];
        if (!may_write_over(l->p->arena, map, i) || value_numel(v) != value_numel(row) ||
            v->dt != row->dt || dims_vary(v->rank, v->dims) || !read_until(sub, v, map))
            continue;
        v->storage = row->storage;
        v->stacked = row->stacked;
        return;
    }
}

static bool has_loop(const Graph *g) {
    for (const Op *op = g->first; op; op = op->next)
        if (op->kind == OP_loop) return true;
    return false;
}

static void lower_graph(Lower *l, Graph *g);

/* The value of an i32 expression of symbols; NULL: some are not known before. */
static Value *symbols_value(Lower *l, const Expr *e, const char *src) {
    Arena *arena = l->p->arena;
    Op *op = ARENA_NEW(arena, Op);
    *op = (Op){.kind = OP_map, .src = src};
    op->in = ARENA_ARRAY(arena, l->g->symbols.n + 1, Value *);
    op->body = load_symbols(l->g, op, e);
    if (!op->body || op->body->op == EX_load) return op->body ? op->in[0] : NULL;
    op->out = ARENA_NEW(arena, Value *);
    op->n_out = 1;
    Value *value = graph_new_value(l->g, op, 0, DT_i32, 0, NULL);
    Nest n;
    nest_begin(&n, l->p, op, l->target);
    schedule_choose(&n);
    add_launch(l, &n, 0, false);
    return value;
}

/* Where iterations are apart, those matter that stack what is within the results' extents. */
static void count_trips(Lower *l, const Op *op, Step *begin) {
    int64_t d = op->n_out ? op->out[0]->dims[0] : op->trips;
    for (int i = 1; i < op->n_out; i++)
        if (op->out[i]->dims[0] != d) return;
    if (!dim_varies(d)) return;
    const Expr *e = dim_simplified(l->p->x, d);
    bool many = e->op == EX_mul && ex_is_const(e->arg[1]);
    Value *count = symbols_value(l, many ? e->arg[0] : e, op->src);
    if (!count) return;
    begin->args = arena_copy(l->p->arena, &count, sizeof count);
    begin->each = many ? e->arg[1]->k.i : 1;
}

static void note_load(void *user, const Expr *e) {
    bool *first_loaded = user;
    if (e->op == EX_load && e->k.i == 0) *first_loaded = true;
}

/* Do the expressions of a scatter load what it changes? */
static bool loads_data(Arena *arena, const Op *op) {
    bool loaded = false;
    for (int i = 0; i < op->out[0]->rank; i++) ex_visit(arena, op->target[i], note_load, &loaded);
    if (op->guard) ex_visit(arena, op->guard, note_load, &loaded);
    ex_visit(arena, op->body, note_load, &loaded);
    return loaded;
}

/* May `op` make its result where its input i lies? */
static bool may_change(const Lower *l, const Op *op, int i) {
    if (op->kind == OP_scatter) return i == 0 && !loads_data(l->p->arena, op);
    return may_write_over(l->p->arena, op, i);
}

/* May the next of state `at` of a loop's body be made where the state lies? A map may that stores
 * each element where it alone reads what was there, a scatter into the state, unless it reads it,
 * and what does not read it at all; nothing may want the state behind. */
static bool steps_in_place(const Lower *l, const Graph *sub, int at) {
    const Value *state = sub->inputs.items[at], *next = sub->outputs.items[at];
    const Op *last = next->def;
    bool before = true; /* or at `last` */
    if (last->kind == OP_input || last->kind == OP_const || last->kind == OP_reshape ||
        last->kind == OP_loop || next->storage || next->inside || next->gap)
        return false;
    for (int i = 0; i < sub->outputs.n; i++)
        if (sub->outputs.items[i] == state || (i != at && sub->outputs.items[i] == next))
            return false;
    for (const Op *op = sub->first; op; op = op->next) {
        for (int i = 0; i < op->n_in; i++) {
            if (op->in[i] != state) continue;
            if (!before || op->kind == OP_reshape || op->kind == OP_loop) return false;
            /* it may be in a kernel with that: chains of rows, which hold no scatter */
            if (op != last && l->target->blocks && last->kind != OP_scatter) return false;
            if (op == last && !may_change(l, op, i)) return false;
        }
        before &= op != last;
    }
    return value_numel(state) == value_numel(next);
}

static void lower_loop(Lower *l, Op *op) {
    Graph *sub = op->sub;
    for (int i = 0; i < op->n_in; i++) {
        Value *inner = sub->inputs.items[i];
        if (i >= op->n_state) {
            inner->storage = op->in[i];
            continue;
        }
        lower_copy(l, op->in[i], inner, -1, op->src);
        op->out[i]->storage = inner;
    }
    if (op->trips == 0) return; /* what it stacks is empty */
    Step begin = {.kind = STEP_loop, .trips = op->trips}, end = {.kind = STEP_end};
    begin.apart =
        op->n_state == 0 && op->trips >= LEAST_TRIPS && !l->target->blocks && !has_loop(sub);
    for (int i = op->n_state; i < op->n_out; i++) {
        Value *row = sub->outputs.items[i];
        if (!goes_to_row(sub, i)) continue;
        row->storage = op->out[i];
        row->stacked = sub->depth;
        share_row(l, sub, row);
    }
    for (int i = 0; i < op->n_state; i++)
        if (steps_in_place(l, sub, i)) sub->outputs.items[i]->storage = sub->inputs.items[i];
    if (op->n_state == 0 && !l->target->blocks) count_trips(l, op, &begin);
    vec_push(l->p->arena, &l->p->steps, begin);
    l->apart = begin.apart;
    lower_graph(l, sub);
    l->apart = false;
    for (int i = op->n_state; i < op->n_out; i++)
        if (!sub->outputs.items[i]->stacked)
            lower_copy(l, sub->outputs.items[i], op->out[i], sub->depth - 1, op->src);
    for (int i = 0; i < op->n_state; i++)
        if (sub->outputs.items[i]->storage != sub->inputs.items[i])
            lower_copy(l, sub->outputs.items[i], sub->inputs.items[i], -1, op->src);
    if (op->go_on)
        end.args = arena_copy(l->p->arena, &sub->inputs.items[op->go_on - 1], sizeof *end.args);
    vec_push(l->p->arena, &l->p->steps, end);
}

static const Expr *load_before(void *user, const Expr *e, const Expr *const *args) {
    Exprs *x = user;
    return e->op == EX_load ? ex_load(x, (DType)e->dt, (int)e->k.i - 1, e->n, args) : e;
}

/* A scatter whose output has been filled: it needs input 0 no more, unless its expressions load it.
 */
static const Op *without_data(Arena *arena, Exprs *x, const Op *op) {
    if (loads_data(arena, op)) return op;
    int n = op->out[0]->rank;
    Op *bare = arena_copy(arena, op, sizeof *op);
    bare->in++;
    bare->n_in--;
    bare->body = ex_rewrite(x, op->body, load_before, x);
    if (op->guard) bare->guard = ex_rewrite(x, op->guard, load_before, x);
    bare->target = ARENA_ARRAY(arena, n + 1, const Expr *);
    for (int i = 0; i < n; i++) bare->target[i] = ex_rewrite(x, op->target[i], load_before, x);
    return bare;
}

static void lower_graph(Lower *l, Graph *g) {
    Graph *outer = l->g;
    l->g = g;
    for (int k = 0; k < g->symbols.n; k++)
        if (g->symbols.items[k]) g->symbols.items[k]->index = 0;
    RowChain rows = {.n = 0};
    int in_rows = 0; /* operators of the chain that are to come */
    for (Op *op = g->first; op; op = op->next) {
        if (in_rows && op == rows.op[rows.n - in_rows]) {
            in_rows--;
            for (int i = 0; i < op->n_out; i++) op->out[i]->index = 1;
            continue;
        }
        switch (op->kind) {
        case OP_input:
        case OP_const:
            break;
        case OP_reshape:
            op->out[0]->storage = op->in[0];
            break;
        case OP_loop:
            lower_loop(l, op);
            break;
        case OP_scatter:
            if (op->out[0]->storage != op->in[0]) lower_copy(l, op->in[0], op->out[0], -1, op->src);
            lower_compute(l, without_data(l->p->arena, l->p->x, op));
            break;
        default:
            rows = find_rows(op, l->target);
            if (rows.n > 1) {
                lower_rows(l, &rows);
                in_rows = rows.n - 1;
            } else {
                lower_compute(l, op);
            }
        }
        for (int i = 0; i < op->n_out; i++) op->out[i]->index = 1; /* it is there from now on */
    }
    l->g = outer;
}

/* What the states are in the next run: copied at the end, when nothing reads them any more. The
 * memory plan has most of them computed where they stay, and leaves the copy out. */
static void lower_states(Lower *l, Graph *g) {
    for (int i = 0; i < g->n_states; i++) {
        Value *now = g->inputs.items[graph_n_inputs(g) + i];
        const char *src = arena_printf(g->arena, "State(%s)", now->name ? now->name : "");
        lower_copy(l, g->outputs.items[graph_n_outputs(g) + i], now, -1, src);
    }
}

Program *pass_lower(Graph *g, const PassOptions *o) {
    Lower l = {.p = program_new(g),
               .g = g,
               .target = o->target,
               .schedules = o->schedules,
               .variant = o->variant};
    strmap_init(&l.kernels, g->arena);
    if (l.schedules) l.used = ARENA_ARRAY(g->arena, l.schedules->entries.n + 1, bool);
    lower_graph(&l, g);
    lower_states(&l, g);
    warn_of_unused(&l);
    return l.p;
}
