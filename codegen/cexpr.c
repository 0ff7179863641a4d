/* Expressions as text: which values get a name of their own, and where; see cprint.h.
 *
 * What an operator looks like is in cops.c; here is the order in which things are printed.
 */
#include "codegen/cexpr.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_ARM  24 /* nodes of a guarded part that is printed inline */
#define EAGER_ARM  4  /* nodes of one that is computed before it is known whether it is wanted */
#define LONG_LINE  90 /* columns after which a value gets a name */
#define LONGEST    98 /* columns of any line */
#define SHORT_TEXT 40 /* ... never below this, however deep the indentation */

/* --- nodes ------------------------------------------------------------------------------------ */

static Node **node_slot(Printer *p, const Expr *e) {
    uint32_t at = e->hash & (p->cap - 1);
    while (p->slots[at] && p->slots[at]->e != e) at = (at + 1) & (p->cap - 1);
    return &p->slots[at];
}

Node *node_of(Printer *p, const Expr *e) {
    if (p->n_nodes * 2 >= p->cap) {
        Node **old = p->slots;
        uint32_t old_cap = p->cap;
        p->cap = old_cap ? old_cap * 2 : 256;
        p->slots = ARENA_ARRAY(p->scratch, p->cap, Node *);
        for (uint32_t i = 0; i < old_cap; i++)
            if (old[i]) *node_slot(p, old[i]->e) = old[i];
    }
    Node **slot = node_slot(p, e);
    if (!*slot) {
        *slot = ARENA_NEW(p->scratch, Node);
        (*slot)->e = e;
        p->n_nodes++;
    }
    return *slot;
}

/* --- preparation ------------------------------------------------------------------------------ */

static int n_vars(const Printer *p) {
    return p->k->vars.n;
}

static const Expr *flat_index(Printer *p, int buffer, int n, const Expr *const *index) {
    const Buffer *b = p->k->buffers.items[buffer];
    if (is_scalar_buffer(b)) return NULL;
    const Expr *flat = ex_i(p->x, 0);
    for (int i = 0; i < n; i++)
        flat = ex_add(p->x, ex_mul(p->x, flat, ex_i(p->x, b->shape[i])), index[i]);
    return ex_simplify(p->x, flat, n_vars(p), p->extent);
}

static const Expr *prepare_leaf(void *user, const Expr *e, const Expr *const *args) {
    Printer *p = user;
    if (e->op != EX_load) return e;
    const Expr *flat = flat_index(p, (int)e->k.i, e->n, args);
    return ex_load(p->x, (DType)e->dt, (int)e->k.i, flat ? 1 : 0, &flat);
}

const Expr *prepare(Printer *p, const Expr *e) {
    return ex_simplify(p->x, ex_rewrite(p->x, e, prepare_leaf, p), n_vars(p), p->extent);
}

const Expr *place_of(Printer *p, const Stmt *s) {
    const Expr *index[MAX_RANK];
    const int rank = p->k->buffers.items[s->buffer]->rank;
    for (int i = 0; i < rank; i++) index[i] = prepare(p, s->index[i]);
    return flat_index(p, s->buffer, rank, index);
}

/* --- the statement at work -------------------------------------------------------------------- */

static bool is_leaf(const Expr *e) {
    return e->n == 0; /* const, var, ctr, a register */
}

/* Not worth a name: printing it again is as short. */
static bool is_cheap(const Expr *e) {
    if (is_leaf(e)) return true;
    if (e->op == EX_add || e->op == EX_sub || e->op == EX_mul)
        return dt_is_int((DType)e->dt) && is_leaf(e->arg[0]) && ex_is_const(e->arg[1]);
    return e->op == EX_not && is_leaf(e->arg[0]);
}

static void collect(Printer *p, const Expr *e) {
    Node *node = node_of(p, e);
    if (node->stamp == p->stamp) {
        node->uses++;
        return;
    }
    node->stamp = p->stamp;
    node->uses = 1;
    for (int i = 0; i < e->n; i++) collect(p, e->arg[i]);
    vec_push(p->scratch, &p->local, node);
}

static int by_id(const void *a, const void *b) {
    uint32_t ia = (*(Node *const *)a)->e->id, ib = (*(Node *const *)b)->e->id;
    return ia < ib ? -1 : ia > ib;
}

static uint64_t *must_of(const Printer *p, const Node *node) {
    return p->must + (size_t)node->local * (size_t)p->words;
}

/* For each node the set of nodes that evaluating it evaluates in any case. */
static void find_must(Printer *p) {
    int n = p->local.n;
    p->words = (n + 63) / 64;
    p->must = ARENA_ARRAY(p->scratch, (size_t)n * (size_t)p->words, uint64_t);
    for (int i = 0; i < n; i++) p->local.items[i]->local = i;
    for (int i = 0; i < n; i++) {
        const Expr *e = p->local.items[i]->e;
        uint64_t *must = must_of(p, p->local.items[i]);
        must[i / 64] |= (uint64_t)1 << (i % 64);
        int sure = e->op == EX_select || e->op == EX_and || e->op == EX_or ? 1 : e->n;
        for (int a = 0; a < sure; a++) {
            const uint64_t *from = must_of(p, node_of(p, e->arg[a]));
            for (int w = 0; w < p->words; w++) must[w] |= from[w];
        }
        if (e->op == EX_select) { /* what both arms need */
            const uint64_t *yes = must_of(p, node_of(p, e->arg[1]));
            const uint64_t *no = must_of(p, node_of(p, e->arg[2]));
            for (int w = 0; w < p->words; w++) must[w] |= yes[w] & no[w];
        }
    }
}

static void give_name(Printer *p, Node *node, const char *name) {
    node->name = name;
    vec_push(p->scratch, &p->named, node);
}

static const char *fresh(Printer *p) {
    return names_take(&p->names, arena_printf(p->scratch, "v%d", p->n_values++), "v");
}

void use_name(Printer *p, const Expr *e, const char *name) {
    give_name(p, node_of(p, e), name);
}

static bool holds_extent(const Buffer *b) {
    return b->space == SPACE_param && b->dt == DT_i32 && buffer_elements(b) == 1 && !b->written &&
           buffer_has_range(b);
}

static bool is_extent(Printer *p, const Expr *e);

static bool find_extent(Printer *p, const Expr *e) {
    if (e->op == EX_load)
        return holds_extent(p->k->buffers.items[e->k.i]) && (!e->n || ex_is_const(e->arg[0]));
    for (int i = 0; i < e->n; i++)
        if (!is_extent(p, e->arg[i])) return false;
    return e->n || ex_is_const(e);
}

/* Is it computed from extents of a run alone? Nothing in the kernel changes it then. */
static bool is_extent(Printer *p, const Expr *e) {
    const int before = node_of(p, e)->extent;
    if (before) return before > 0;
    const bool found = find_extent(p, e);
    node_of(p, e)->extent = found ? 1 : -1;
    return found;
}

static bool is_part(Printer *p, const Expr *e);

static bool find_part(Printer *p, const Expr *e) {
    if (e->dt != DT_i32 && e->dt != DT_bool) return false;
    if (e->op == EX_load) return is_extent(p, e);
    for (int i = 0; i < e->n; i++)
        if (!is_part(p, e->arg[i])) return false;
    return true;
}

/* Is it computed from what a place is? */
static bool is_part(Printer *p, const Expr *e) {
    const int before = node_of(p, e)->place;
    if (before) return before > 0;
    const bool found = find_part(p, e);
    node_of(p, e)->place = found ? 1 : -1;
    return found;
}

/* A place is an integer that is computed from variables, loop counters and a run's extents alone.
 * Such are held, and computed, in the type of indices: in C one of as many bits as pointers, for
 * compilers that cannot prove of a sum of 32 bits that it does not wrap around extend each, and
 * make no vectors of what lies side by side. */
static bool is_place(Printer *p, const Expr *e) {
    return p->d->index && e->dt == DT_i32 && e->vars && is_part(p, e);
}

const char *index_type(const Printer *p) {
    if (!p->d->index) return p->d->reg[DT_i32];
    p->unit->needs |= NEEDS_index;
    return p->d->index;
}

static const char *value_type(Printer *p, const Expr *e) {
    return is_place(p, e) ? index_type(p) : type_of(p, (DType)e->dt);
}

typedef Piece PrintIt(Printer *p, const Expr *e);

static Piece print_with(Printer *p, bool in_place, PrintIt *print_it, const Expr *e) {
    const bool before = p->in_place;
    p->in_place = in_place;
    Piece piece = print_it(p, e);
    p->in_place = before;
    return piece;
}

const char *name_expr(Printer *p, const Expr *e) {
    Node *node = node_of(p, e);
    if (node->name) return node->name;
    Piece piece = print_with(p, is_place(p, e), compose, e);
    if (node->name) return node->name; /* it became a variable of an if statement */
    const char *name = fresh(p);
    print_line(p, "const %s %s = %s;", value_type(p, e), name, piece.text);
    give_name(p, node, name);
    return name;
}

/* Gives names to what `e` needs in any case and uses more than once. */
static void bind_needed(Printer *p, const Expr *e, bool top) {
    const uint64_t *must = must_of(p, node_of(p, e));
    for (int i = 0; i < p->local.n; i++) {
        Node *node = p->local.items[i];
        if (node->uses < 2 || node->name || is_cheap(node->e)) continue;
        /* Index arithmetic never fails, so it need not stand behind its guard. */
        bool safe = top && (node->e->loads ? is_extent(p, node->e) : dt_is_int((DType)node->e->dt));
        if (safe || (must[i / 64] >> (i % 64) & 1)) name_expr(p, node->e);
    }
}

void begin_statement(Printer *p, int n, const Expr *const *roots) {
    p->stamp++;
    p->local.n = 0;
    for (int i = 0; i < n; i++)
        if (roots[i]) collect(p, roots[i]);
    if (p->local.n == 0) return;
    qsort(p->local.items, (size_t)p->local.n, sizeof *p->local.items, by_id);
    find_must(p);
    for (int i = 0; i < n; i++)
        if (roots[i]) bind_needed(p, roots[i], true);
}

/* --- what a run's extents come to ------------------------------------------------------------- */

typedef struct Extents {
    Printer *p;
    VEC(const Expr *) found;
} Extents;

static bool is_integer_extent(Printer *p, const Expr *e) {
    return dt_is_int((DType)e->dt) && is_extent(p, e);
}

/* Notes the largest parts of what is visited that are such. */
static void find_extents(Extents *u, const Expr *e) {
    if (e->n && is_integer_extent(u->p, e)) vec_push(u->p->scratch, &u->found, e);
}

static void look_into(void *user, const Expr *e) {
    Extents *u = user;
    if (e->op == EX_load || !is_integer_extent(u->p, e))
        for (int i = 0; i < e->n; i++) find_extents(u, e->arg[i]);
}

static void look_at_roots(Extents *u, const Stmt *s) {
    for (; s; s = s->next) {
        const Expr *roots[] = {s->extent, s->value, NULL};
        if (s->kind == ST_store || s->kind == ST_prefetch) roots[2] = place_of(u->p, s);
        for (int i = 0; i < 3; i++) {
            if (!roots[i]) continue;
            if (i < 2) roots[i] = prepare(u->p, roots[i]);
            find_extents(u, roots[i]);
            ex_visit(u->p->scratch, roots[i], look_into, u);
        }
        look_at_roots(u, s->body);
        look_at_roots(u, s->other);
    }
}

void name_extents(Printer *p) {
    Extents u = {.p = p};
    bool any = false;
    for (int i = 0; i < p->k->n_params; i++)
        any |= p->buffer_used[i] && holds_extent(p->k->buffers.items[i]);
    if (any) look_at_roots(&u, p->k->body);
    if (!u.found.n) return;
    begin_statement(p, u.found.n, u.found.items);
    for (int i = 0; i < u.found.n; i++) name_expr(p, u.found.items[i]);
}

void end_scope(Printer *p, int mark) {
    while (p->named.n > mark) p->named.items[--p->named.n]->name = NULL;
}

void end_statement(Printer *p, int mark) {
    int kept = mark;
    for (int i = mark; i < p->named.n; i++) {
        Node *node = p->named.items[i];
        if (!node->e->loads)
            p->named.items[kept++] = node;
        else
            node->name = NULL;
    }
    p->named.n = kept;
}

/* Columns that a value may take in the current line. */
static size_t room(const Printer *p) {
    int columns = LONG_LINE - p->indent * 4;
    return (size_t)(columns > SHORT_TEXT ? columns : SHORT_TEXT);
}

/* --- guarded parts ---------------------------------------------------------------------------- */

static bool count_small(Printer *p, const Expr *e, int *budget) {
    const Node *node = node_of(p, e);
    if (node->name || is_cheap(e)) return true;
    if (--*budget < 0 || node->uses > 1) return false;
    for (int i = 0; i < e->n; i++)
        if (!count_small(p, e->arg[i], budget)) return false;
    return true;
}

/* True if `e` may stand inline behind a guard. */
static bool is_small(Printer *p, const Expr *e) {
    int budget = SMALL_ARM;
    return p->inline_only || count_small(p, e, &budget);
}

/* `name = e;` in a scope of its own. */
static void print_branch(Printer *p, const char *name, const Expr *e) {
    int mark = p->named.n;
    p->indent++;
    bind_needed(p, e, false);
    print_line(p, "%s = %s;", name, print_root(p, e));
    p->indent--;
    end_scope(p, mark);
}

static Piece select_statement(Printer *p, const Expr *e) {
    const Expr *yes = e->arg[1], *no = e->arg[2];
    Piece condition = print(p, e->arg[0]);
    const char *name = fresh(p), *type = value_type(p, e);
    if (is_leaf(no)) {
        print_line(p, "%s %s = %s;", type, name, print(p, no).text);
        print_line(p, "if (%s) {", condition.text);
        print_branch(p, name, yes);
    } else if (is_leaf(yes)) {
        print_line(p, "%s %s = %s;", type, name, print(p, yes).text);
        print_line(p, "if (!%s) {", operand(p, condition, P_unary));
        print_branch(p, name, no);
    } else {
        print_line(p, "%s %s;", type, name);
        print_line(p, "if (%s) {", condition.text);
        print_branch(p, name, yes);
        print_line(p, "} else {");
        print_branch(p, name, no);
    }
    print_line(p, "}");
    give_name(p, node_of(p, e), name);
    return (Piece){name, P_atom};
}

static Piece logic_statement(Printer *p, const Expr *e) {
    const char *name = fresh(p);
    const char *first = print(p, e->arg[0]).text;
    print_line(p, "%s %s = %s;", type_of(p, DT_bool), name, first);
    print_line(p, "if (%s%s) {", e->op == EX_and ? "" : "!", name);
    print_branch(p, name, e->arg[1]);
    print_line(p, "}");
    give_name(p, node_of(p, e), name);
    return (Piece){name, P_atom};
}

static Piece print_guarded(Printer *p, const Expr *e) {
    bool before = p->inline_only;
    p->inline_only = true;
    Piece piece = print(p, e);
    p->inline_only = before;
    return piece;
}

/* A float that a few additions and multiplications make. */
static bool is_quick(Printer *p, const Expr *e, int *budget) {
    bool arithmetic = e->op == EX_add || e->op == EX_sub || e->op == EX_mul || e->op == EX_neg;
    if (node_of(p, e)->name || ex_is_const(e)) return true;
    if (!dt_is_float((DType)e->dt) || --*budget < 0) return false;
    if (e->op == EX_load) return loads_inside(p, e);
    for (int i = 0; i < e->n && arithmetic; i++) arithmetic = is_quick(p, e->arg[i], budget);
    return arithmetic;
}

/* Which of two floats is wanted hangs on others, and both are soon computed: then compilers make
 * vectors of it if they are, as nothing is left behind a branch that could raise a flag. */
static bool is_eager(Printer *p, const Expr *e) {
    const Expr *cond = e->arg[0];
    int yes = EAGER_ARM, no = EAGER_ARM;
    bool compares = cond->op == EX_lt || cond->op == EX_le || cond->op == EX_eq;
    return compares && dt_is_float((DType)cond->arg[0]->dt) && !p->inline_only &&
           is_quick(p, e->arg[1], &yes) && is_quick(p, e->arg[2], &no);
}

Piece compose_select(Printer *p, const Expr *e) {
    for (int arm = 1; arm <= 2 && is_eager(p, e); arm++)
        if (!is_leaf(e->arg[arm])) name_expr(p, e->arg[arm]);
    if (!is_small(p, e->arg[1]) || !is_small(p, e->arg[2])) return select_statement(p, e);
    Piece condition = print(p, e->arg[0]);
    Piece yes = print_guarded(p, e->arg[1]), no = print_guarded(p, e->arg[2]);
    const char *text = arena_printf(p->scratch, "%s ? %s : %s", operand(p, condition, P_or),
                                    operand(p, yes, P_or), operand(p, no, P_or));
    if (strlen(text) > room(p) && !p->inline_only) return select_statement(p, e);
    return (Piece){text, P_cond};
}

Piece compose_logic(Printer *p, const Expr *e) {
    if (!is_small(p, e->arg[1])) return logic_statement(p, e);
    int prec = e->op == EX_and ? P_and : P_or;
    Piece a = print(p, e->arg[0]), b = print_guarded(p, e->arg[1]);
    const char *text = arena_printf(p->scratch, "%s %s %s", logic_operand(p, a, prec),
                                    ex_infix((ExprOp)e->op), logic_operand(p, b, prec));
    if (strlen(text) > room(p) && !p->inline_only && strlen(b.text) > SHORT_TEXT / 2)
        return logic_statement(p, e);
    return (Piece){text, prec};
}

/* --- printing --------------------------------------------------------------------------------- */

static Piece print_whole(Printer *p, const Expr *e) {
    Node *node = node_of(p, e);
    if (node->name) return (Piece){node->name, P_atom};
    Piece piece = compose(p, e);
    return node->name ? (Piece){node->name, P_atom} : piece;
}

/* Names what takes too much of a line. */
static Piece print_short(Printer *p, const Expr *e) {
    Node *node = node_of(p, e);
    Piece piece = print_whole(p, e);
    if (node->name) return piece;
    if (!p->inline_only && !is_leaf(e) && strlen(piece.text) > room(p) / 2) {
        /* a number that is added stays outside: compilers make it a part of an address */
        const bool adds = e->op == EX_add && ex_is_const(e->arg[1]) && e->dt == DT_i32;
        if (adds && !is_leaf(e->arg[0]) && !node_of(p, e->arg[0])->name) {
            name_expr(p, e->arg[0]);
            return compose(p, e);
        }
        const char *name = fresh(p);
        const char *type = p->in_place ? index_type(p) : value_type(p, e);
        print_line(p, "const %s %s = %s;", type, name, piece.text);
        give_name(p, node, name);
        return (Piece){name, P_atom};
    }
    return piece;
}

/* A place that is a value is cast. Where places stand, sums of places and others do, too: an index
 * that is computed from what a tensor holds. */
static Piece print_in_type(Printer *p, PrintIt *print_it, const Expr *e) {
    const bool place = is_place(p, e), sum = e->op == EX_add || e->op == EX_sub;
    Piece piece = print_with(p, place || (p->in_place && e->dt == DT_i32 && sum), print_it, e);
    return place && !p->in_place ? convert(p, type_of(p, DT_i32), piece) : piece;
}

static Piece print_root_in_type(Printer *p, const Expr *e) {
    return print_in_type(p, print_whole, e);
}

Piece print(Printer *p, const Expr *e) {
    return print_in_type(p, print_short, e);
}

const char *print_root(Printer *p, const Expr *e) {
    return print_root_in_type(p, e).text;
}

const char *print_bound(Printer *p, const Expr *e) {
    return print_with(p, true, print_root_in_type, e).text;
}

Piece print_in_place(Printer *p, const Expr *e) {
    return print_with(p, true, print, e);
}

Piece print_compared(Printer *p, const Expr *e) {
    return print_with(p, is_place(p, e), print, e);
}

const char *operand(Printer *p, Piece piece, int prec) {
    return piece.prec < prec ? arena_printf(p->scratch, "(%s)", piece.text) : piece.text;
}

const char *logic_operand(Printer *p, Piece piece, int prec) {
    /* compilers warn of && inside || without parentheses */
    bool mixed = piece.prec < P_bitor && piece.prec != prec;
    return mixed ? arena_printf(p->scratch, "(%s)", piece.text) : operand(p, piece, prec);
}

/* Where to break a line that is too long: behind an operator between the columns, the loosest and
 * then the last there is; 0: nowhere. */
static size_t break_at(const char *text, size_t from, size_t columns) {
    static const char *const operators[] = {"=&|?:,", "+-", "*/%<>^"};
    for (int class = 0; class < 3; class ++) {
        size_t best = 0;
        for (size_t i = from + 1; text[i] && i < columns; i++)
            if (text[i] == ' ' && strchr(operators[class], text[i - 1])) best = i;
        if (best) return best;
    }
    return 0;
}

void print_line(Printer *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(p->scratch, format, args);
    va_end(args);
    size_t indent = (size_t)p->indent * 4, columns = LONGEST - indent;
    text_addf(&p->out, "%*s", (int)indent, "");
    while (indent + 20 < LONGEST && strlen(text) > columns) {
        size_t at = break_at(text, columns / 3, columns);
        if (!at) break;
        text_addn(&p->out, text, at);
        text_addf(&p->out, "\n%*s", (int)indent + 4, "");
        text += at + 1;
        columns = LONGEST - indent - 4;
    }
    text_add(&p->out, text);
    text_add(&p->out, "\n");
}
