/* Kernels as text: printing and reading; see text.h. Programs are in text_program.c.
 *
 *     kernel @k0 src "Conv_0" {
 *       param x : f32[8, 64]
 *       param y : f32[8] written
 *       reg sum : f32[]
 *       schedule "parallel i"
 *       for i in 8 parallel {
 *         alloc sum
 *         store sum[] = 0.0
 *         for j in 64 {
 *           store sum[] = sum[] + x[i, j]
 *         }
 *         store y[i] = sum[]
 *       }
 *     }
 *
 * All buffers are declared first, in their order. Variables are declared where they are bound; if
 * their numbers do not follow the order of the text, a line `vars a, b:f32, ...` says them. `upto
 * n` gives a variable's bound where it is not the constant extent.
 */
#include "ir/text.h"

#include <math.h>
#include <string.h>

enum { MAX_NESTING = 200, MAX_NAMES = 5000 };

static const char *const space_names[] = {"param", "reg", "shared"};

/* --- printing --------------------------------------------------------------------------------- */

typedef struct KernelPrinter {
    Text *out;
    const Kernel *kernel;
    ExprScope scope;
} KernelPrinter;

static const char *var_name(const Kernel *k, int var) {
    return var >= 0 && var < k->vars.n ? k->vars.items[var].name : "?";
}

static const char *buffer_name(const Kernel *k, int buffer) {
    return buffer >= 0 && buffer < k->buffers.n ? k->buffers.items[buffer]->name : "?";
}

/* How many indices a store or prefetch has: as many as its buffer has dimensions. */
static int index_rank(const Kernel *k, const Stmt *s) {
    bool indexed = (s->kind == ST_store || s->kind == ST_prefetch) && s->index;
    bool known = indexed && s->buffer >= 0 && s->buffer < k->buffers.n;
    return known ? k->buffers.items[s->buffer]->rank : 0;
}

static void print_block(KernelPrinter *p, const Stmt *s, int indent);

/* The bound of a loop's variable if the text does not say another. */
static int64_t usual_bound(const Expr *extent) {
    return ex_is_const(extent) && extent->dt == DT_i32 && extent->k.i >= -1 ? extent->k.i : -1;
}

/* The bound of a variable, where the text does not say it already. */
static void print_bound(KernelPrinter *p, const Stmt *s) {
    bool known = s->var >= 0 && s->var < p->kernel->vars.n;
    int64_t bound = known ? p->kernel->vars.items[s->var].extent : -1;
    int64_t usual = s->kind == ST_for ? usual_bound(s->extent) : -1;
    if (bound != usual) text_addf(p->out, " upto %lld", (long long)bound);
}

static void print_branches(KernelPrinter *p, const Stmt *s, int indent) {
    text_add(p->out, " {\n");
    print_block(p, s->body, indent + 2);
    if (s->other) {
        text_indent(p->out, indent);
        text_add(p->out, "} else {\n");
        print_block(p, s->other, indent + 2);
    }
    text_indent(p->out, indent);
    text_add(p->out, "}\n");
}

static void print_stmt(KernelPrinter *p, const Stmt *s, int indent) {
    Text *out = p->out;
    const Kernel *k = p->kernel;
    const Expr *e[MAX_RANK + 2];
    int rank = index_rank(k, s), n = 0;
    for (; n < rank; n++) e[n] = s->index[n];
    if (s->value) e[n++] = s->value;
    if (s->extent) e[n++] = s->extent;
    const Sharing *sharing = sharing_plan(out, &p->scope, n, e, indent);
    text_indent(out, indent);
    switch (s->kind) {
    case ST_for:
        text_addf(out, "for %s in ", var_name(k, s->var));
        sharing_print(out, sharing, &p->scope, s->extent);
        print_bound(p, s);
        if (s->role != ROLE_serial) text_addf(out, " %s", role_name(s->role));
        print_branches(p, s, indent);
        return;
    case ST_if:
        text_add(out, "if ");
        sharing_print(out, sharing, &p->scope, s->value);
        print_branches(p, s, indent);
        return;
    case ST_store:
    case ST_prefetch:
        text_addf(out, "%s %s[", s->kind == ST_store ? "store" : "prefetch",
                  buffer_name(k, s->buffer));
        for (int i = 0; i < rank; i++) {
            if (i) text_add(out, ", ");
            sharing_print(out, sharing, &p->scope, s->index[i]);
        }
        text_add(out, s->kind == ST_store ? "] = " : s->near ? "] near" : "]");
        break;
    case ST_let: {
        bool known = s->var >= 0 && s->var < k->vars.n;
        text_addf(out, "let %s : %s", var_name(k, s->var),
                  dt_name(known ? k->vars.items[s->var].dt : DT_i32));
        print_bound(p, s);
        text_add(out, " = ");
        break;
    }
    case ST_alloc:
        text_addf(out, "alloc %s", buffer_name(k, s->buffer));
        break;
    case ST_barrier:
        text_add(out, s->global ? "barrier global" : "barrier");
        break;
    }
    if (s->value) sharing_print(out, sharing, &p->scope, s->value);
    text_add(out, "\n");
}

static void print_block(KernelPrinter *p, const Stmt *s, int indent) {
    for (; s; s = s->next) print_stmt(p, s, indent);
}

/* Whether variables are bound in the order of their numbers, and none is used before. */
typedef struct Order {
    Arena *arena;
    int next; /* the first variable not bound yet */
    bool ok;
} Order;

static void look_at_var(void *user, const Expr *e) {
    Order *order = user;
    if (e->op == EX_var && e->k.i >= order->next) order->ok = false;
}

static void look_at(Order *order, const Expr *e) {
    if (e && order->ok) ex_visit(order->arena, e, look_at_var, order);
}

static void look_at_block(Order *order, const Kernel *k, const Stmt *s) {
    for (; s && order->ok; s = s->next) {
        int rank = index_rank(k, s);
        for (int i = 0; i < rank; i++) look_at(order, s->index[i]);
        look_at(order, s->extent);
        look_at(order, s->value);
        if (s->kind == ST_for || s->kind == ST_let) {
            if (s->var > order->next) order->ok = false;
            if (s->var == order->next) order->next++;
        }
        look_at_block(order, k, s->body);
        look_at_block(order, k, s->other);
    }
}

static bool bound_in_order(const Kernel *k) {
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    Order order = {&scratch, 0, true};
    look_at_block(&order, k, k->body);
    arena_free(&scratch);
    return order.ok && order.next == k->vars.n;
}

static void print_three(Text *out, const char *word, const int64_t *size, int indent) {
    if (size[0] == 1 && size[1] == 1 && size[2] == 1) return;
    text_indent(out, indent);
    text_addf(out, "%s %lld, %lld, %lld\n", word, (long long)size[0], (long long)size[1],
              (long long)size[2]);
}

void text_kernel_at(Text *out, const Kernel *k, int indent) {
    KernelPrinter p = {out, k, {.kernel = k}};
    int inner = indent + 2;
    text_indent(out, indent);
    text_add(out, "kernel ");
    text_symbol(out, k->name);
    if (k->src) {
        text_add(out, " src ");
        text_string(out, k->src);
    }
    text_add(out, " {\n");
    for (int i = 0; i < k->buffers.n; i++) {
        const Buffer *b = k->buffers.items[i];
        text_indent(out, inner);
        text_addf(out, "%s %s : ", space_names[b->space], b->name);
        text_type(out, b->dt, b->rank, b->shape);
        if (b->high < HUGE_VAL) {
            text_add(out, " within ");
            text_scalar(out, DT_f64, (Scalar){.f = b->low}, false);
            text_add(out, ", ");
            text_scalar(out, DT_f64, (Scalar){.f = b->high}, false);
        }
        text_add(out, b->partial ? " partial" : "");
        text_add(out, b->written ? " written\n" : "\n");
    }
    if (!bound_in_order(k)) {
        text_indent(out, inner);
        text_add(out, "vars ");
        for (int i = 0; i < k->vars.n; i++) {
            const Var *v = &k->vars.items[i];
            text_addf(out, "%s%s", i ? ", " : "", v->name);
            if (v->dt != DT_i32) text_addf(out, ":%s", dt_name(v->dt));
        }
        text_add(out, "\n");
    }
    if (k->n_scalars) {
        text_indent(out, inner);
        text_addf(out, "scalars %d\n", k->n_scalars);
    }
    print_three(out, "grid", k->grid, inner);
    print_three(out, "block", k->block, inner);
    if (k->schedule) {
        text_indent(out, inner);
        text_add(out, "schedule ");
        text_string(out, k->schedule);
        text_add(out, "\n");
    }
    print_block(&p, k->body, inner);
    text_indent(out, indent);
    text_add(out, "}\n");
}

void text_kernel(Text *out, const Kernel *k) {
    text_kernel_at(out, k, 0);
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct KernelReader {
    Lexer *lx;
    Program *p;
    Kernel *k;
    ExprScope scope;
    ExprReader e;
    int nesting;
} KernelReader;

static bool read_word(Lexer *lx, const char *what, const char **name) {
    if (lx->tok.kind != TOK_name) {
        lex_expected(lx, what);
        return false;
    }
    *name = arena_strndup(lx->arena, lx->tok.text, lx->tok.length);
    lex_next(lx);
    return !lx->error;
}

static int find_var(const Kernel *k, const char *name) {
    for (int i = 0; i < k->vars.n; i++)
        if (!strcmp(k->vars.items[i].name, name)) return i;
    return -1;
}

static int find_buffer(const Kernel *k, const char *name) {
    for (int i = 0; i < k->buffers.n; i++)
        if (!strcmp(k->buffers.items[i]->name, name)) return i;
    return -1;
}

/* A variable about to be bound: the one of this name, or a new one. -1 on a mistake. */
static int read_bound_var(KernelReader *r) {
    const char *name;
    if (!read_word(r->lx, "a variable", &name)) return -1;
    int var = find_var(r->k, name);
    if (var < 0 && r->k->vars.n == MAX_NAMES) {
        lex_fail(r->lx, "more than %d variables", MAX_NAMES);
        return -1;
    }
    return var >= 0 ? var : kernel_var(r->p, r->k, name, DT_i32, -1);
}

/* `upto n`, else `usual`. */
static bool read_bound(KernelReader *r, int var, int64_t usual) {
    if (lex_accept_name(r->lx, "upto") && !lex_want_int(r->lx, -1, INT64_MAX, "a bound", &usual))
        return false;
    Var *v = &r->k->vars.items[var];
    if (usual > v->extent) v->extent = usual;
    return true;
}

static bool read_role(Lexer *lx, Role *role) {
    *role = ROLE_serial;
    if (lx->tok.kind != TOK_name) return true;
    for (int i = 0; i < ROLE_count; i++) {
        const char *name = role_name((Role)i), *dot = strchr(name, '.');
        Lexer ahead = *lx;
        if (!lex_accept_name(&ahead,
                             dot ? arena_strndup(lx->arena, name, (size_t)(dot - name)) : name))
            continue;
        if (dot && (!lex_accept(&ahead, '.') || !lex_accept_name(&ahead, dot + 1))) continue;
        *lx = ahead;
        *role = (Role)i;
        return !lx->error;
    }
    lex_expected(lx, "the role of a loop or '{'");
    return false;
}

static bool read_block(KernelReader *r, Stmt **body);

static bool read_for(KernelReader *r, Stmt *s) {
    Lexer *lx = r->lx;
    if ((s->var = read_bound_var(r)) < 0 || !lex_want_name(lx, "in")) return false;
    if (!(s->extent = read_expr(&r->e))) return false;
    return read_bound(r, s->var, usual_bound(s->extent)) && read_role(lx, &s->role) &&
           read_block(r, &s->body);
}

static bool read_if(KernelReader *r, Stmt *s) {
    if (!(s->value = read_expr(&r->e)) || !read_block(r, &s->body)) return false;
    return !lex_accept_name(r->lx, "else") || read_block(r, &s->other);
}

/* The name of a declared buffer. */
static bool read_buffer_name(KernelReader *r, int *buffer) {
    const Token at = r->lx->tok;
    const char *name;
    if (!read_word(r->lx, "a buffer", &name)) return false;
    *buffer = find_buffer(r->k, name);
    if (*buffer >= 0) return true;
    r->lx->tok = at;
    lex_expected(r->lx, "a declared buffer");
    return false;
}

/* A buffer and its indices. */
static bool read_element(KernelReader *r, Stmt *s) {
    if (!read_buffer_name(r, &s->buffer)) return false;
    s->index = ARENA_ARRAY(r->lx->arena, MAX_RANK, const Expr *);
    return read_index(&r->e, r->k->buffers.items[s->buffer]->rank, s->index) >= 0;
}

static bool read_store(KernelReader *r, Stmt *s) {
    return read_element(r, s) && lex_want(r->lx, '=') && (s->value = read_expr(&r->e)) != NULL;
}

static bool read_let(KernelReader *r, Stmt *s) {
    DType dt;
    if ((s->var = read_bound_var(r)) < 0 || !lex_want(r->lx, ':') || !lex_want_dtype(r->lx, &dt))
        return false;
    r->k->vars.items[s->var].dt = dt;
    return read_bound(r, s->var, -1) && lex_want(r->lx, '=') &&
           (s->value = read_expr(&r->e)) != NULL;
}

/* One statement with the `let #n` lines before it, and the end of its line. */
static Stmt *read_stmt(KernelReader *r) {
    static const struct {
        const char *word;
        StmtKind kind;
    } words[] = {{"for", ST_for},          {"if", ST_if},       {"store", ST_store},
                 {"let", ST_let},          {"alloc", ST_alloc}, {"barrier", ST_barrier},
                 {"prefetch", ST_prefetch}};
    Lexer *lx = r->lx;
    r->e.shared.n = r->e.shared_height.n = 0;
    if (!read_lets(&r->e)) return NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!lex_accept_name(lx, words[i].word)) continue;
        Stmt *s = stmt_new(r->p, words[i].kind);
        bool ok = true;
        switch (s->kind) {
        case ST_for:
            ok = read_for(r, s);
            break;
        case ST_if:
            ok = read_if(r, s);
            break;
        case ST_store:
            ok = read_store(r, s);
            break;
        case ST_let:
            ok = read_let(r, s);
            break;
        case ST_alloc:
            ok = read_buffer_name(r, &s->buffer);
            break;
        case ST_barrier:
            s->global = lex_accept_name(lx, "global");
            break;
        case ST_prefetch:
            ok = read_element(r, s);
            s->near = ok && lex_accept_name(lx, "near");
            break;
        }
        return ok && lex_want_line(lx) ? s : NULL;
    }
    lex_expected(lx, "a statement or '}'");
    return NULL;
}

/* Statements up to `}`. */
static bool read_stmts(KernelReader *r, Stmt **body) {
    Lexer *lx = r->lx;
    while (!lx->error && !lex_is(lx, '}')) {
        Stmt *s = read_stmt(r);
        if (!s) return false;
        *body = s;
        body = &s->next;
    }
    return lex_want(lx, '}');
}

static bool read_block(KernelReader *r, Stmt **body) {
    if (!lex_want(r->lx, '{') || !lex_want_line(r->lx)) return false;
    if (r->nesting == MAX_NESTING) {
        lex_fail(r->lx, "statements nest too deeply");
        return false;
    }
    r->nesting++;
    bool ok = read_stmts(r, body);
    r->nesting--;
    return ok;
}

/* A line such as `param x : f32[8] written`, after its first word. */
static bool read_buffer(KernelReader *r, Space space) {
    Lexer *lx = r->lx;
    const Token at = lx->tok;
    const char *name;
    DType dt;
    int rank;
    int64_t shape[MAX_RANK];
    if (!read_word(lx, "the name of a buffer", &name)) return false;
    bool late = space == SPACE_param && r->k->n_params < r->k->buffers.n;
    if (late || find_buffer(r->k, name) >= 0 || r->k->buffers.n == MAX_NAMES) {
        lx->tok = at;
        lex_expected(lx, late ? "parameters before other buffers" : "a new name of a buffer");
        return false;
    }
    if (!lex_want(lx, ':') || !lex_want_type(lx, &dt, &rank, shape)) return false;
    int buffer = kernel_buffer(r->p, r->k, name, space, dt, rank, shape);
    Buffer *b = r->k->buffers.items[buffer];
    Scalar low = {.f = -HUGE_VAL}, high = {.f = HUGE_VAL};
    if (lex_accept_name(lx, "within") &&
        !(lex_want_scalar(lx, DT_f64, &low) && lex_want(lx, ',') &&
          lex_want_scalar(lx, DT_f64, &high)))
        return false;
    b->low = low.f;
    b->high = high.f;
    b->partial = lex_accept_name(lx, "partial");
    b->written = lex_accept_name(lx, "written");
    return true;
}

static bool read_vars(KernelReader *r) {
    do {
        int var = read_bound_var(r);
        if (var < 0) return false;
        DType *dt = &r->k->vars.items[var].dt;
        if (lex_accept(r->lx, ':') && !lex_want_dtype(r->lx, dt)) return false;
    } while (lex_accept(r->lx, ','));
    return true;
}

static bool read_three(Lexer *lx, int64_t *size) {
    for (int i = 0; i < 3; i++) {
        if (i && !lex_want(lx, ',')) return false;
        if (!lex_want_int(lx, 0, INT32_MAX, "a size", &size[i])) return false;
    }
    return true;
}

/* The lines before the first statement. */
static bool read_head(KernelReader *r) {
    Lexer *lx = r->lx;
    Kernel *k = r->k;
    for (;;) {
        bool ok;
        int64_t n = 0;
        if (lex_accept_name(lx, "param"))
            ok = read_buffer(r, SPACE_param);
        else if (lex_accept_name(lx, "reg"))
            ok = read_buffer(r, SPACE_reg);
        else if (lex_accept_name(lx, "shared"))
            ok = read_buffer(r, SPACE_shared);
        else if (lex_accept_name(lx, "vars"))
            ok = read_vars(r);
        else if (lex_accept_name(lx, "scalars"))
            ok = lex_want_int(lx, 0, 1000, "a number of counters", &n);
        else if (lex_accept_name(lx, "grid"))
            ok = read_three(lx, k->grid);
        else if (lex_accept_name(lx, "block"))
            ok = read_three(lx, k->block);
        else if (lex_accept_name(lx, "schedule"))
            ok = lex_want_string(lx, &k->schedule);
        else
            return !lx->error;
        if (n) k->n_scalars = (int)n;
        if (!ok || !lex_want_line(lx)) return false;
    }
}

Kernel *read_kernel(Lexer *lx, Program *p) {
    const char *name = NULL, *src = NULL;
    if (!lex_want_name(lx, "kernel") || !lex_want_symbol(lx, &name)) return NULL;
    if (lex_accept_name(lx, "src") && !lex_want_string(lx, &src)) return NULL;
    if (!lex_want(lx, '{') || !lex_want_line(lx)) return NULL;
    KernelReader r = {.lx = lx, .p = p, .k = kernel_new(p, name)};
    r.k->src = src;
    r.scope = (ExprScope){.kernel = r.k};
    r.e = (ExprReader){.lx = lx, .x = p->x, .scope = &r.scope};
    if (read_head(&r) && read_stmts(&r, &r.k->body)) return r.k;
    p->kernels.n--;
    return NULL;
}

Kernel *parse_kernel(Program *p, const char *text, size_t length) {
    Lexer lx;
    lex_init(&lx, p->arena, text, length, false);
    Kernel *k = read_kernel(&lx, p);
    if (lex_want_end(&lx)) return k;
    if (k) p->kernels.n--;
    diag_error(p->diag, E5001, "%s", lx.error);
    return NULL;
}
