/* Expressions as text: the printer, with the fewest parentheses; see text.h. The reader is
 * text_expr_read.c.
 *
 * An expression is a DAG whose tree can be exponentially larger. The printer names the parts that
 * are used more than once, and parts that nest too deeply, by `let #n` lines, so that the text's
 * size is linear in the DAG's and the reader's recursion is bounded.
 */
#include "ir/text.h"

#include <math.h>
#include <string.h>

int text_precedence(ExprOp op) {
    switch (op) {
    case EX_or:
        return 1;
    case EX_and:
        return 2;
    case EX_bor:
        return 3;
    case EX_bxor:
        return 4;
    case EX_band:
        return 5;
    case EX_eq:
    case EX_ne:
        return 6;
    case EX_lt:
    case EX_le:
        return 7;
    case EX_shl:
    case EX_shr:
        return 8;
    case EX_add:
    case EX_sub:
        return 9;
    case EX_mul:
    case EX_div:
    case EX_rem:
        return 10;
    default:
        return 0;
    }
}

enum { PREC_UNARY = 11, PREC_LEAF = 12 };

static int precedence_of(const Expr *e) {
    int infix = text_precedence((ExprOp)e->op);
    if (infix) return infix;
    bool prefix = e->op == EX_not || (e->op == EX_neg && !ex_is_const(e->arg[0]));
    return prefix ? PREC_UNARY : PREC_LEAF;
}

/* --- naming shared parts ---------------------------------------------------------------------- */

enum {
    FLAT_SIZE = 40,  /* trees up to this size print without names */
    SMALL_SIZE = 6,  /* a part up to this size is repeated rather than named */
    MAX_NESTING = 24 /* a part that nests deeper is named even if used once */
};

typedef struct Part {
    const Expr *e;
    int uses, nesting;
    int number; /* of its `let`, -1 if it has none */
} Part;

struct Sharing {
    Arena *arena;
    VEC(Part) parts; /* operands first */
    int *slots;      /* hash table by expression: place in parts + 1, 0 if free */
    uint32_t cap;
};

/* The slot of `e` in the table, which must not be full. */
static int *part_slot(const Sharing *s, const Expr *e) {
    uint32_t at = e->hash & (s->cap - 1);
    while (s->slots[at] && s->parts.items[s->slots[at] - 1].e != e) at = (at + 1) & (s->cap - 1);
    return &s->slots[at];
}

static Part *find_part(const Sharing *s, const Expr *e) {
    int place = s->cap ? *part_slot(s, e) : 0;
    return place ? &s->parts.items[place - 1] : NULL;
}

static void collect_part(void *user, const Expr *e) {
    Sharing *s = user;
    if ((uint32_t)s->parts.n * 2 >= s->cap) {
        s->cap = s->cap ? s->cap * 2 : 128;
        s->slots = ARENA_ARRAY(s->arena, s->cap, int);
        for (int i = 0; i < s->parts.n; i++) *part_slot(s, s->parts.items[i].e) = i + 1;
    }
    int *slot = part_slot(s, e);
    if (*slot) return;
    Part part = {.e = e, .number = -1};
    vec_push(s->arena, &s->parts, part);
    *slot = s->parts.n;
}

/* Decides which parts get a name; they are numbered operands first. */
static void number_parts(Sharing *s, int n, const Expr *const *e) {
    for (int i = 0; i < s->parts.n; i++) {
        const Expr *part = s->parts.items[i].e;
        for (int k = 0; k < part->n; k++) find_part(s, part->arg[k])->uses++;
    }
    for (int i = 0; i < n; i++)
        if (e[i]) find_part(s, e[i])->uses++;
    int number = 0;
    for (int i = 0; i < s->parts.n; i++) {
        Part *part = &s->parts.items[i];
        for (int k = 0; k < part->e->n; k++) {
            const Part *arg = find_part(s, part->e->arg[k]);
            if (arg->number < 0 && arg->nesting >= part->nesting) part->nesting = arg->nesting + 1;
        }
        bool shared = part->uses > 1 && part->e->size > SMALL_SIZE;
        if (part->e->n > 0 && (shared || part->nesting >= MAX_NESTING)) part->number = number++;
    }
}

/* --- printing --------------------------------------------------------------------------------- */

typedef struct Printer {
    Text *out;
    const ExprScope *scope;
    const Sharing *sharing; /* NULL: nothing is named */
    int nesting;            /* may go so much deeper; then "..." */
} Printer;

static void print_var(Printer *p, const Expr *e) {
    const ExprScope *scope = p->scope;
    DType type = DT_i32;
    int number = (int)e->k.i;
    if (scope && scope->kernel) {
        bool known = number >= 0 && number < scope->kernel->vars.n;
        const Var *var = known ? &scope->kernel->vars.items[number] : NULL;
        type = var ? var->dt : DT_none;
        if (var)
            text_add(p->out, var->name);
        else
            text_addf(p->out, "?%d", number);
    } else if (scope && number >= scope->rank) {
        text_addf(p->out, "r%d", number - scope->rank);
    } else {
        text_addf(p->out, "i%d", number);
    }
    if (type != (DType)e->dt) text_addf(p->out, ":%s", dt_name((DType)e->dt));
}

static void print_source(Printer *p, const Expr *e) {
    const ExprScope *scope = p->scope;
    DType type = DT_none;
    int number = (int)e->k.i;
    if (scope && scope->kernel && number >= 0 && number < scope->kernel->buffers.n) {
        const Buffer *buffer = scope->kernel->buffers.items[number];
        type = buffer->dt;
        text_add(p->out, buffer->name);
    } else {
        if (scope && !scope->kernel && number >= 0 && number < scope->n_in)
            type = scope->in[number]->dt;
        text_addf(p->out, "$%d", number);
    }
    if (type != (DType)e->dt) text_addf(p->out, ":%s", dt_name((DType)e->dt));
}

static void print_expr(Printer *p, const Expr *e, int weakest, bool definition);

static void print_args(Printer *p, const Expr *e, const char *open, const char *close) {
    text_add(p->out, open);
    for (int i = 0; i < e->n; i++) {
        if (i) text_add(p->out, ", ");
        print_expr(p, e->arg[i], 0, false);
    }
    text_add(p->out, close);
}

static void print_content(Printer *p, const Expr *e) {
    Text *out = p->out;
    ExprOp op = (ExprOp)e->op;
    int prec = text_precedence(op);
    switch (op) {
    case EX_const:
        text_scalar(out, (DType)e->dt, e->k, true);
        return;
    case EX_var:
        print_var(p, e);
        return;
    case EX_ctr:
        text_addf(out, "ctr%d", (int)e->k.i);
        return;
    case EX_acc:
        text_add(out, "acc");
        if (!p->scope || p->scope->acc != (DType)e->dt)
            text_addf(out, ":%s", dt_name((DType)e->dt));
        return;
    case EX_load:
        print_source(p, e);
        print_args(p, e, "[", "]");
        return;
    case EX_cast:
    case EX_bits:
        text_addf(out, "%s(%s", ex_name(op), dt_name((DType)e->dt));
        print_args(p, e, ", ", ")");
        return;
    default:
        break;
    }
    if (prec) {
        print_expr(p, e->arg[0], prec, false);
        text_addf(out, " %s ", ex_infix(op));
        print_expr(p, e->arg[1], prec + 1, false);
    } else if (precedence_of(e) == PREC_UNARY) {
        text_add(out, op == EX_neg ? "-" : "!");
        print_expr(p, e->arg[0], PREC_UNARY, false);
    } else {
        text_add(out, ex_name(op));
        print_args(p, e, "(", ")");
    }
}

/* Prints `e` so that it may stand where operators of strength `weakest` or more are wanted.
 * `definition`: what a `let` names is to be printed, not the name. */
static void print_expr(Printer *p, const Expr *e, int weakest, bool definition) {
    const Part *part = p->sharing && !definition ? find_part(p->sharing, e) : NULL;
    if (part && part->number >= 0) {
        text_addf(p->out, "#%d", part->number);
        return;
    }
    if (p->nesting == 0) {
        text_add(p->out, "...");
        return;
    }
    p->nesting--;
    bool parentheses = precedence_of(e) < weakest;
    if (parentheses) text_add(p->out, "(");
    print_content(p, e);
    if (parentheses) text_add(p->out, ")");
    p->nesting++;
}

Sharing *sharing_plan(Text *out, const ExprScope *scope, int n, const Expr *const *e, int indent) {
    uint64_t size = 0;
    for (int i = 0; i < n; i++)
        if (e[i]) size += e[i]->size;
    if (size <= FLAT_SIZE) return NULL;
    Sharing *s = ARENA_NEW(out->arena, Sharing);
    s->arena = out->arena;
    for (int i = 0; i < n; i++)
        if (e[i]) ex_visit(out->arena, e[i], collect_part, s);
    number_parts(s, n, e);
    Printer p = {out, scope, s, -1};
    for (int i = 0; i < s->parts.n; i++) {
        const Part *part = &s->parts.items[i];
        if (part->number < 0) continue;
        text_indent(out, indent);
        text_addf(out, "let #%d = ", part->number);
        print_expr(&p, part->e, 0, true);
        text_add(out, "\n");
    }
    return s;
}

void sharing_print(Text *out, const Sharing *sharing, const ExprScope *scope, const Expr *e) {
    Printer p = {out, scope, sharing, -1};
    print_expr(&p, e, 0, false);
}

void text_expr(Text *out, const ExprScope *scope, const Expr *e, int indent) {
    const Sharing *sharing = sharing_plan(out, scope, 1, &e, indent);
    text_indent(out, indent);
    sharing_print(out, sharing, scope, e);
}

const char *ex_text(Arena *arena, const ExprScope *scope, const Expr *e) {
    Text out = text_new(arena);
    Printer p = {&out, scope, NULL, e->size <= FLAT_SIZE ? -1 : 6};
    print_expr(&p, e, 0, false);
    if (out.length > 160) return arena_printf(arena, "%.157s...", text_get(&out));
    return text_get(&out);
}

ExprScope op_scope(const Op *op, bool post, int depth) {
    int rank = op->kind == OP_scatter ? op->n_upd : op->n_out ? op->out[0]->rank : 0;
    int more = post ? 0 : op->kind == OP_reduce ? op->n_red : op->kind == OP_scan ? 1 : 0;
    return (ExprScope){.rank = rank,
                       .n_vars = rank + more,
                       .n_in = op->n_in,
                       .in = op->in,
                       .acc = post && op->body ? (DType)op->body->dt : DT_none,
                       .n_ctr = depth};
}
