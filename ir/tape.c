/* Compilation of expressions to tapes, and the movement of lanes; see tape.h. The instructions
 * themselves are in tape_run.c.
 *
 * An expression is a graph with shared parts. A part without risky loads is emitted once, for all
 * lanes. A part with risky loads is emitted under the mask of its guards, and again if it is met
 * later under a mask that the first one does not include. That could multiply without bound through
 * nested selects; past MAX_CODE instructions risky loads are emitted once, unmasked, and read 0
 * where their index is outside: still the right value for a correct graph, only without the check.
 */
#include "ir/tape.h"

#define MAX_CODE 20000

/* Masks form a tree: lanes(mask) = lanes(parent) and cond (or not cond). */
struct TapeMask {
    TapeMask *parent, *children, *sibling;
    const Expr *cond;
    bool negated;
    TapeSlot slot;
};

typedef struct Emitted {
    struct Emitted *next;
    TapeMask *mask; /* NULL: all lanes */
    TapeSlot slot;
} Emitted;

typedef struct TapeEntry {
    const Expr *key;
    Emitted *emitted;
    enum { RISK_unknown, RISK_no, RISK_yes } risk;
    bool exact;
} TapeEntry;

static int round_up(int n) {
    return (n + TAPE_BLOCK - 1) / TAPE_BLOCK * TAPE_BLOCK;
}

Scalar *tape_lanes_new(Arena *arena, int width) {
    return ARENA_ARRAY(arena, round_up(width), Scalar);
}

void tape_init(Tape *t) {
    t->vars = t->given ? t->given : ARENA_ARRAY(t->arena, t->n_vars, Scalar *);
    if (t->active) {
        t->root = ARENA_NEW(t->arena, TapeMask);
        t->root->slot = (TapeSlot){(Scalar *)(uintptr_t)t->active, TAPE_LEVELS - 1};
    }
}

static TapeEntry *entry_of(Tape *t, const Expr *e) {
    if (t->n_table * 2 >= t->cap_table) {
        TapeEntry **old = t->table;
        uint32_t old_cap = t->cap_table;
        t->cap_table = old_cap ? old_cap * 2 : 32;
        t->table = ARENA_ARRAY(t->arena, t->cap_table, TapeEntry *);
        for (uint32_t i = 0; i < old_cap; i++) {
            if (!old[i]) continue;
            uint32_t at = old[i]->key->hash & (t->cap_table - 1);
            while (t->table[at]) at = (at + 1) & (t->cap_table - 1);
            t->table[at] = old[i];
        }
    }
    uint32_t at = e->hash & (t->cap_table - 1);
    while (t->table[at] && t->table[at]->key != e) at = (at + 1) & (t->cap_table - 1);
    if (!t->table[at]) {
        t->table[at] = ARENA_NEW(t->arena, TapeEntry);
        t->table[at]->key = e;
        t->n_table++;
    }
    return t->table[at];
}

static int code_size(const Tape *t) {
    int n = 0;
    for (int i = 0; i < TAPE_LEVELS; i++) n += t->code[i].n;
    return n;
}

/* --- risk: loads whose indices may be outside ------------------------------------------------- */

static bool index_proven(const Tape *t, const Expr *index, int64_t extent) {
    int64_t lo, hi;
    return ex_bounds(index, t->n_vars, t->extent, &lo, &hi) && lo >= 0 && hi < extent;
}

static bool is_risky(Tape *t, const Expr *e) {
    if (e->n == 0 && e->op != EX_load) return false;
    TapeEntry *entry = entry_of(t, e);
    if (entry->risk != RISK_unknown) return entry->risk == RISK_yes;
    bool risky = false;
    for (int i = 0; i < e->n && !risky; i++) risky = is_risky(t, e->arg[i]);
    if (e->op == EX_load) {
        const TapeSource *source = &t->sources[e->k.i];
        for (int i = 0; i < e->n && !risky; i++)
            risky = !index_proven(t, e->arg[i], source->shape[i]);
        for (int i = 0; i < source->rank && !risky; i++) risky = source->shape[i] == 0;
    }
    entry->risk = risky ? RISK_yes : RISK_no;
    return risky;
}

/* --- masks ------------------------------------------------------------------------------------ */

static bool covers(const TapeMask *wide, const TapeMask *narrow) {
    if (!wide) return true;
    for (; narrow; narrow = narrow->parent)
        if (narrow == wide) return true;
    return false;
}

static TapeSlot push(Tape *t, TapeIns ins, int level) {
    ins.d = tape_lanes_new(t->arena, t->width);
    vec_push(t->arena, &t->code[level], ins);
    return (TapeSlot){ins.d, level};
}

static int max_level(int a, int b) {
    return a > b ? a : b;
}

static TapeSlot constant_slot(Tape *t, Scalar value) {
    Scalar *lanes = tape_lanes_new(t->arena, t->width);
    for (int i = 0; i < round_up(t->width); i++) lanes[i] = value;
    return (TapeSlot){lanes, 0};
}

/* The lanes of `parent` in which cond has the wanted value. */
static TapeMask *mask_child(Tape *t, TapeMask *parent, const Expr *cond, TapeSlot value,
                            bool negated) {
    for (TapeMask *m = parent; m; m = m->parent)
        if (m->cond == cond && m->negated == negated) return parent;
    if (!parent) { /* a tree needs a root: all lanes */
        if (!t->root) t->root = ARENA_NEW(t->arena, TapeMask);
        parent = t->root;
    }
    for (TapeMask *m = parent->children; m; m = m->sibling)
        if (m->cond == cond && m->negated == negated) return m;
    TapeMask *m = ARENA_NEW(t->arena, TapeMask);
    *m =
        (TapeMask){.parent = parent, .sibling = parent->children, .cond = cond, .negated = negated};
    parent->children = m;
    if (!parent->slot.lanes) {
        m->slot =
            negated ? push(t, (TapeIns){.op = EX_not, .dt = DT_bool, .a = value.lanes}, value.level)
                    : value;
    } else {
        TapeIns ins = {.op = negated ? EX_const : EX_and,
                       .dt = DT_bool,
                       .a = parent->slot.lanes,
                       .b = value.lanes};
        m->slot = push(t, ins, max_level(parent->slot.level, value.level));
    }
    return m;
}

/* --- emission --------------------------------------------------------------------------------- */

static int var_number(const Tape *t, const Expr *e) {
    return e->k.i == t->alias ? t->alias_of : (int)e->k.i;
}

static bool is_lane_var(const Tape *t, int v) {
    return v >= t->lane_lo && v < t->lane_hi;
}

/* Adds factor * e to the affine form. */
static bool add_affine(const Expr *e, int64_t factor, int n, int64_t *coef, int64_t *constant) {
    const int64_t limit = (int64_t)1 << 31;
    if (factor > limit || factor < -limit || e->dt != DT_i32) return false;
    switch ((ExprOp)e->op) {
    case EX_const:
        *constant += factor * e->k.i;
        return true;
    case EX_var:
        if (e->k.i >= n) return false;
        coef[e->k.i] += factor;
        return true;
    case EX_neg:
        return add_affine(e->arg[0], -factor, n, coef, constant);
    case EX_add:
    case EX_sub:
        return add_affine(e->arg[0], factor, n, coef, constant) &&
               add_affine(e->arg[1], e->op == EX_sub ? -factor : factor, n, coef, constant);
    case EX_mul:
        if (e->arg[1]->op != EX_const || e->arg[1]->k.i > limit || e->arg[1]->k.i < -limit)
            return false;
        return add_affine(e->arg[0], factor * e->arg[1]->k.i, n, coef, constant);
    default:
        return false;
    }
}

bool tape_affine(const Expr *e, int n, int64_t *coef, int64_t *constant) {
    for (int i = 0; i < n; i++) coef[i] = 0;
    *constant = 0;
    return add_affine(e, 1, n, coef, constant);
}

static TapeSlot emit(Tape *t, const Expr *e, TapeMask *mask);

static TapeSlot emit_load(Tape *t, const Expr *e, TapeMask *mask) {
    const TapeSource *source = &t->sources[e->k.i];
    TapeLoad *l = ARENA_NEW(t->arena, TapeLoad);
    l->source = (int)e->k.i;
    l->rest = ARENA_ARRAY(t->arena, e->n, TapeIndex);
    l->check = ARENA_ARRAY(t->arena, e->n, TapeIndex);
    l->offset = ARENA_ARRAY(t->arena, round_up(t->width), int64_t);
    int64_t *coef = t->given ? NULL : ARENA_ARRAY(t->arena, t->n_vars, int64_t);
    int64_t *trial = t->given ? NULL : ARENA_ARRAY(t->arena, t->n_vars, int64_t);
    int level = 1;
    int64_t stride = 1;
    bool empty = false;
    for (int dim = e->n - 1; dim >= 0; dim--) {
        const Expr *index = e->arg[dim];
        int64_t constant;
        bool affine = tape_affine(index, t->given ? 0 : t->n_vars, trial, &constant);
        if (affine && t->alias != t->alias_of && !t->given) {
            trial[t->alias_of] += trial[t->alias];
            trial[t->alias] = 0;
        }
        bool proven = index_proven(t, index, source->shape[dim]);
        TapeIndex at = {.stride = stride, .extent = source->shape[dim], .dim = dim};
        if (!affine || !proven) {
            TapeSlot slot = emit(t, index, mask);
            at.lanes = slot.lanes;
            level = max_level(level, slot.level);
        }
        if (affine) {
            l->constant += constant * stride;
            for (int v = 0; coef && v < t->n_vars; v++) {
                coef[v] += trial[v] * stride;
                if (trial[v] && !is_lane_var(t, v)) level = TAPE_LEVELS - 1;
            }
        } else {
            l->rest[l->n_rest++] = at;
        }
        if (!proven) l->check[l->n_check++] = at;
        stride *= source->shape[dim];
        empty |= source->shape[dim] == 0;
    }
    if (t->given) {
        l->delta = l->constant;
        level = TAPE_LEVELS - 1;
    } else {
        l->coef = coef;
        l->base = ARENA_ARRAY(t->arena, round_up(t->width), int64_t);
    }
    if (l->n_check || empty) {
        if (mask && mask->slot.lanes) {
            l->mask = mask->slot.lanes;
            level = max_level(level, mask->slot.level);
        }
        l->clamp = !mask && code_size(t) > MAX_CODE;
    }
    if (t->active && !l->mask) l->mask = t->active; /* idle threads read nothing */
    vec_push(t->arena, &t->loads, l);
    return push(t, (TapeIns){.op = EX_load, .dt = e->dt, .load = l}, level);
}

static TapeSlot emit_leaf(Tape *t, const Expr *e) {
    if (e->op == EX_const) return constant_slot(t, e->k);
    if (e->op == EX_acc) return (TapeSlot){t->acc, 1};
    if (e->op == EX_ctr) {
        TapeSlot slot = {tape_lanes_new(t->arena, t->width), (int)e->k.i};
        vec_push(t->arena, &t->counters, slot);
        return (TapeSlot){slot.lanes, 0};
    }
    int v = var_number(t, e);
    if (!t->vars[v]) t->vars[v] = tape_lanes_new(t->arena, t->width);
    return (TapeSlot){t->vars[v], is_lane_var(t, v) && !t->given ? 1 : TAPE_LEVELS - 1};
}

/* select, and, or: what stands behind the condition is wanted only where it lets it. */
static TapeSlot emit_guarded(Tape *t, const Expr *e, TapeMask *mask) {
    TapeSlot arg[3] = {emit(t, e->arg[0], mask)};
    int level = arg[0].level;
    for (int i = 1; i < e->n; i++) {
        bool negated = e->op == EX_or || i == 2;
        TapeMask *inner = mask;
        if (is_risky(t, e->arg[i])) inner = mask_child(t, mask, e->arg[0], arg[0], negated);
        arg[i] = emit(t, e->arg[i], inner);
        level = max_level(level, arg[i].level);
    }
    TapeIns ins = {.op = e->op, .dt = e->dt, .from = e->dt, .a = arg[0].lanes};
    ins.b = arg[1].lanes;
    ins.c = arg[2].lanes;
    return push(t, ins, level);
}

static TapeSlot emit_new(Tape *t, const Expr *e, TapeMask *mask) {
    if (e->op == EX_load) return emit_load(t, e, mask);
    if (e->n == 0) return emit_leaf(t, e);
    if (e->op == EX_select || ((e->op == EX_and || e->op == EX_or) && e->dt == DT_bool))
        return emit_guarded(t, e, mask);
    TapeSlot arg[2] = {{NULL, 0}, {NULL, 0}};
    for (int i = 0; i < e->n && i < 2; i++) arg[i] = emit(t, e->arg[i], mask);
    TapeIns ins = {.op = e->op, .dt = e->dt, .from = e->arg[0]->dt, .a = arg[0].lanes};
    ins.b = arg[1].lanes;
    ins.exact = entry_of(t, e)->exact;
    return push(t, ins, max_level(arg[0].level, arg[1].level));
}

static TapeSlot emit(Tape *t, const Expr *e, TapeMask *mask) {
    TapeEntry *entry = entry_of(t, e);
    if (!is_risky(t, e) || code_size(t) > MAX_CODE) mask = NULL;
    for (Emitted *m = entry->emitted; m; m = m->next)
        if (covers(m->mask, mask)) return m->slot;
    TapeSlot slot = emit_new(t, e, mask);
    Emitted *m = ARENA_NEW(t->arena, Emitted);
    *m = (Emitted){entry->emitted, mask, slot};
    entry->emitted = m;
    return slot;
}

TapeSlot tape_add(Tape *t, const Expr *e, const Expr *guard) {
    TapeMask *mask = t->active ? t->root : NULL;
    if (guard && is_risky(t, e)) mask = mask_child(t, mask, guard, emit(t, guard, mask), false);
    return emit(t, e, mask);
}

void tape_keep_exact(Tape *t, const Expr *e) {
    entry_of(t, e)->exact = true;
}

/* --- movement --------------------------------------------------------------------------------- */

void tape_start(Tape *t, const int64_t *counters) {
    for (int k = 0; k < t->counters.n; k++) {
        TapeSlot slot = t->counters.items[k];
        Scalar value = {.i = counters ? counters[slot.level] : 0};
        for (int i = 0; i < round_up(t->width); i++) slot.lanes[i] = value;
    }
    tape_run(t, 0, t->width);
}

/* Fills lanes at..at+n with the innermost lane coordinate running from coords[last]. */
static void fill_run(Tape *t, const int64_t *coords, int last, int at, int n) {
    for (int v = t->lane_lo; v < t->lane_hi; v++) {
        Scalar *lanes = t->vars[v];
        int64_t value = coords[v], step = v == last;
        for (int i = 0; lanes && i < n; i++) lanes[at + i].i = value + step * i;
    }
    for (int k = 0; k < t->loads.n; k++) {
        TapeLoad *l = t->loads.items[k];
        int64_t value = l->constant, step = last >= t->lane_lo ? l->coef[last] : 0;
        for (int v = t->lane_lo; v < t->lane_hi; v++) value += l->coef[v] * coords[v];
        int64_t *base = l->base + at;
        for (int i = 0; i < n; i++) base[i] = value + step * i;
    }
}

void tape_move(Tape *t, int64_t first, int n) {
    int64_t coords[32] = {0};
    int last = t->lane_hi - 1;
    for (int v = last; v >= t->lane_lo; v--) {
        coords[v] = first % t->extent[v];
        first /= t->extent[v];
    }
    int64_t inner = last >= t->lane_lo ? t->extent[last] : 1;
    for (int at = 0; at < n;) {
        int64_t left = last >= t->lane_lo ? inner - coords[last] : 1;
        int run = left < n - at ? (int)left : n - at;
        fill_run(t, coords, last, at, run);
        at += run;
        if (last < t->lane_lo) break;
        coords[last] += run;
        for (int v = last; v > t->lane_lo && coords[v] == t->extent[v]; v--) {
            coords[v] = 0;
            coords[v - 1]++;
        }
    }
    tape_run(t, 1, n);
}

void tape_serial(Tape *t, const int64_t *coords) {
    for (int v = 0; v < t->n_vars; v++) {
        Scalar *lanes = t->vars[v];
        if (is_lane_var(t, v) || !lanes) continue;
        Scalar value = {.i = coords[v]};
        for (int i = 0; i < round_up(t->width); i++) lanes[i] = value;
    }
    for (int k = 0; k < t->loads.n; k++) {
        TapeLoad *l = t->loads.items[k];
        l->delta = 0;
        for (int v = 0; v < t->n_vars; v++)
            if (!is_lane_var(t, v)) l->delta += l->coef[v] * coords[v];
    }
}

void tape_step(Tape *t, int n) {
    tape_run(t, TAPE_LEVELS - 1, n);
}
