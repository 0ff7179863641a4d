/* See rows.h. */
#include "passes/rows.h"
#include "passes/inline.h"

#include <string.h>

#define MOST_OF_ROW  16384 /* elements */
#define MOST_OF_SOME 4096  /* the same where multiprocessors are more than rows, */
#define MOST_OF_FEW  2048  /* or where these are so few: */
#define FEW_ROWS     32
#define LEAST_OF_ROW 32 /* threads have something to do */
#define MOST_PIECES  32 /* that one thread adds up */
#define MOST_PARAMS  (MAX_INPUTS + 1)

/* --- which operators -------------------------------------------------------------------------- */

typedef struct Reading {
    const RowChain *chain;
    const Op *op;
    bool own_row, reads; /* what is read of the chain lies in the own row; there is something */
} Reading;

static bool is_made_by(const RowChain *chain, const Value *v) {
    for (int i = 0; i < chain->n; i++)
        if (chain->op[i]->out[0] == v) return true;
    return false;
}

static void look_at_load(void *user, const Expr *e) {
    Reading *u = user;
    if (e->op != EX_load) return;
    const Value *v = u->op->in[e->k.i], *whole = v;
    while (whole->def->kind == OP_reshape) whole = whole->def->in[0];
    if (!is_made_by(u->chain, whole)) return;
    u->reads = true;
    u->own_row &= v == whole;
    for (int i = 0; v == whole && i < u->chain->axes; i++)
        u->own_row &= e->arg[i]->op == EX_var ? e->arg[i]->k.i == i
                                              : v->shape[i] == 1 && ex_is_int(e->arg[i], 0);
}

static int64_t elements_of_row(const Op *op, int axes) {
    const Value *out = op->out[0];
    return shape_numel(out->rank - axes, out->shape + axes);
}

/* Can a block go through it row by row? */
static bool fits(const Op *op, const RowChain *chain) {
    const Value *out = op->out[0];
    if ((op->kind != OP_map && op->kind != OP_reduce) || op->guard || out->rank < chain->axes ||
        out->inside || out->stacked || out->dense || dims_vary(out->rank, out->dims))
        return false;
    for (int i = 0; i < op->n_in; i++)
        if (dims_vary(op->in[i]->rank, op->in[i]->dims)) return false;
    const int64_t wide = elements_of_row(op, chain->axes);
    const int64_t deep = op->kind == OP_reduce ? shape_numel(op->n_red, op->red) : 1;
    if (wide < 1 || wide > MOST_OF_ROW || deep < 1 || deep > MOST_OF_ROW) return false;
    if (wide == 1) return op->kind == OP_reduce && op->n_red > 0;
    return deep == 1 || (deep <= MOST_PIECES && !op_is_product(op));
}

/* What follows an operator, but for those that compute nothing. */
static const Op *next_computing(const Op *op) {
    do {
        op = op->next;
    } while (op && (op->kind == OP_reshape || op->kind == OP_const));
    return op;
}

/* Adds what `op` reads and makes to the `*n` parameters; false: they are too many. */
static bool add_params(const Op *op, const Value **params, int *n) {
    for (int i = 0; i <= op->n_in; i++) {
        const Value *v = i < op->n_in ? op->in[i] : op->out[0];
        int at = 0;
        while (at < *n && params[at] != v) at++;
        if (at == MOST_PARAMS) return false;
        params[at] = v;
        if (at == *n) ++*n;
    }
    return true;
}

static RowChain chain_along(const Op *first, const Target *t, int axes) {
    const Value *out = first->out[0];
    const int64_t rows = shape_numel(axes, out->shape);
    const int64_t limit = rows < FEW_ROWS             ? MOST_OF_FEW
                          : rows < t->multiprocessors ? MOST_OF_SOME
                                                      : MOST_OF_ROW;
    bool reduces = false; /* some row to one element */
    RowChain chain = {.axes = axes};
    int64_t most = 0;
    const Value *params[MOST_PARAMS];
    int n_params = 0;
    for (const Op *op = first; op && chain.n < MOST_IN_ROWS; op = next_computing(op)) {
        Reading u = {&chain, op, true, false};
        if (rows < 1 || !fits(op, &chain) ||
            memcmp(op->out[0]->shape, out->shape, (size_t)axes * sizeof *out->shape) != 0)
            break;
        const Expr *parts[] = {op->body, op->post};
        Arena scratch;
        arena_init(&scratch, 0, NULL, NULL);
        for (int i = 0; i < 2; i++)
            if (parts[i]) ex_visit(&scratch, parts[i], look_at_load, &u);
        arena_free(&scratch);
        const bool one = elements_of_row(op, axes) == 1;
        const int64_t deep = one ? shape_numel(op->n_red, op->red) : elements_of_row(op, axes);
        if (!u.own_row || (chain.n && !u.reads) || deep > limit ||
            !add_params(op, params, &n_params))
            break;
        chain.op[chain.n++] = op;
        reduces |= one;
        if (deep > most) most = deep;
    }
    if (!reduces || rows > t->max_grid || most < LEAST_OF_ROW) chain.n = 0;
    chain.threads = 32;
    while (chain.threads * 2 <= t->block_threads && chain.threads < most) chain.threads *= 2;
    return chain;
}

RowChain find_rows(const Op *first, const Target *t) {
    RowChain best = {.n = 0};
    if (!t->blocks || (first->kind != OP_map && first->kind != OP_reduce)) return best;
    for (int axes = first->out[0]->rank; axes > 0; axes--) {
        const RowChain chain = chain_along(first, t, axes);
        if (chain.n > best.n) best = chain;
    }
    return best;
}

/* --- as one kernel ---------------------------------------------------------------------------- */

/* What all threads have in registers: parameter y[i] at index at[i] is in register reg[i]. */
typedef struct RowResults {
    int n, y[MOST_IN_ROWS], reg[MOST_IN_ROWS];
    const Expr *at[MOST_IN_ROWS];
} RowResults;

/* Where what a kernel has is in the one that it becomes a part of. */
typedef struct Moved {
    Program *p;
    const RowResults *known; /* of the parts before */
    int *buffer, *var;
} Moved;

static const Expr *moved_leaf(void *user, const Expr *e, const Expr *const *args) {
    const Moved *m = user;
    if (e->op == EX_var) return ex_var(m->p->x, m->var[e->k.i]);
    if (e->op == EX_load) {
        const int buffer = m->buffer[e->k.i];
        const Expr *zero = ex_i(m->p->x, 0);
        for (int i = 0; i < m->known->n; i++)
            if (m->known->y[i] == buffer && m->known->at[i] == args[0])
                return ex_load(m->p->x, (DType)e->dt, m->known->reg[i], 1, &zero);
        return ex_load(m->p->x, (DType)e->dt, buffer, e->n, args);
    }
    return e->n ? ex_rebuild(m->p->x, e, args) : e;
}

static const Expr *moved_expr(Moved *m, const Expr *e) {
    return e ? ex_rewrite(m->p->x, e, moved_leaf, m) : NULL;
}

static Stmt *moved_statements(Moved *m, const Kernel *k, const Stmt *from) {
    Stmt *list = NULL;
    for (; from; from = from->next) {
        Stmt *s = arena_copy(m->p->arena, from, sizeof *from);
        s->next = NULL;
        if (s->kind == ST_for || s->kind == ST_let) s->var = m->var[from->var];
        s->extent = moved_expr(m, from->extent);
        s->value = moved_expr(m, from->value);
        if (s->kind == ST_store || s->kind == ST_alloc) s->buffer = m->buffer[from->buffer];
        if (s->kind == ST_store) {
            const int rank = k->buffers.items[from->buffer]->rank;
            s->index = ARENA_ARRAY(m->p->arena, rank + 1, const Expr *);
            for (int i = 0; i < rank; i++) s->index[i] = moved_expr(m, from->index[i]);
        }
        s->body = moved_statements(m, k, from->body);
        s->other = moved_statements(m, k, from->other);
        stmt_append(&list, s);
    }
    return list;
}

/* Notes where a row's result goes that the statements keep in a register, too. */
static void note_result(const Kernel *k, const Stmt *s, int reg, RowResults *known) {
    for (; s; s = s->next) {
        if (s->kind == ST_store && s->buffer < k->n_params && s->value->op == EX_load &&
            s->value->k.i == reg) {
            known->y[known->n] = s->buffer;
            known->reg[known->n] = reg;
            known->at[known->n++] = s->index[0];
        }
        note_result(k, s->body, reg, known);
    }
}

/* The parameter for `v`, which is one of the first *n; it is a new one if there is none yet. */
static int parameter_of(Program *p, Kernel *k, const Buffer *like, Value *v, Value **args) {
    for (int i = 0; i < k->n_params; i++)
        if (args[i] == v) {
            k->buffers.items[i]->written |= like->written;
            return i;
        }
    const char *name = arena_printf(p->arena, "%c%d", like->written ? 'y' : 'x', k->n_params);
    const int at = kernel_buffer(p, k, name, SPACE_param, like->dt, like->rank, like->shape);
    k->buffers.items[at]->written = like->written;
    k->buffers.items[at]->partial = like->partial;
    k->buffers.items[at]->low = like->low;
    k->buffers.items[at]->high = like->high;
    args[at] = v;
    return at;
}

/* Appends what threads do in kernel `from`, whose number in the chain is `part`. */
static void append_part(Program *p, Kernel *to, const Kernel *from, int part, Moved *m,
                        RowResults *known, Stmt **threads) {
    int result = -1;
    for (int i = from->n_params; i < from->buffers.n; i++) {
        const Buffer *b = from->buffers.items[i];
        m->buffer[i] = kernel_buffer(p, to, arena_printf(p->arena, "%s_%d", b->name, part),
                                     b->space, b->dt, b->rank, b->shape);
        if (!strcmp(b->name, ROW_RESULT)) result = m->buffer[i];
        to->buffers.items[m->buffer[i]]->low = b->low;
        to->buffers.items[m->buffer[i]]->high = b->high;
    }
    const Stmt *block = from->body, *thread = block->body;
    for (int i = 0; i < from->vars.n; i++) {
        const Var *v = &from->vars.items[i];
        if (part && i == block->var)
            m->var[i] = to->body->var;
        else if (part && i == thread->var)
            m->var[i] = to->body->body->var;
        else
            m->var[i] =
                kernel_var(p, to, arena_printf(p->arena, "%s_%d", v->name, part), v->dt, v->extent);
    }
    if (part) {
        Stmt *barrier = stmt_new(p, ST_barrier);
        barrier->global = true;
        Stmt *own = moved_statements(m, from, thread->body);
        stmt_append(threads, barrier);
        stmt_append(threads, own);
        note_result(to, own, result, known);
        return;
    }
    to->body = moved_statements(m, from, block);
    *threads = to->body->body->body;
    note_result(to, *threads, result, known);
}

Kernel *join_rows(Program *p, const char *name, int n, Kernel *const *kernels, Value **const *args,
                  Value ***joined) {
    Kernel *k = kernel_new(p, name);
    RowResults known = {.n = 0};
    int params = 0;
    for (int i = 0; i < n; i++) params += kernels[i]->n_params;
    *joined = ARENA_ARRAY(p->arena, params, Value *);
    Moved *moved = ARENA_ARRAY(p->arena, n, Moved);
    for (int i = 0; i < n; i++) { /* parameters come before all other buffers */
        const Kernel *from = kernels[i];
        moved[i] = (Moved){p, &known, ARENA_ARRAY(p->arena, from->buffers.n, int),
                           ARENA_ARRAY(p->arena, from->vars.n + 1, int)};
        for (int a = 0; a < from->n_params; a++)
            moved[i].buffer[a] = parameter_of(p, k, from->buffers.items[a], args[i][a], *joined);
    }
    Stmt *threads = NULL;
    Text steps = text_new(p->arena), src = text_new(p->arena);
    for (int i = 0; i < n; i++) {
        append_part(p, k, kernels[i], i, &moved[i], &known, &threads);
        if (k->n_scalars < kernels[i]->n_scalars) k->n_scalars = kernels[i]->n_scalars;
        text_addf(&steps, "%s%s", i ? "| " : "", kernels[i]->schedule);
        const char *own = kernels[i]->src ? kernels[i]->src : "";
        if (i == 0 || strcmp(own, kernels[i - 1]->src ? kernels[i - 1]->src : "") != 0)
            text_addf(&src, "%s%s", src.length && *own ? ", " : "", own);
    }
    memcpy(k->grid, kernels[0]->grid, sizeof k->grid);
    memcpy(k->block, kernels[0]->block, sizeof k->block);
    k->schedule = text_get(&steps);
    k->src = src.length ? text_get(&src) : NULL;
    return k;
}
