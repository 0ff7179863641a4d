/* Verifying kernels and programs; see verify.h. One walk in the order of execution keeps which
 * variables are bound and which buffers exist, and whether control may differ between the threads
 * of a block. */
#include "ir/verify.h"

#include <string.h>

typedef struct KernelVerifier {
    Verifier v;
    const Kernel *k;
    VerifyScope scope;
    DType *types;               /* by variable: its type while it is bound, else DT_none */
    bool *varying;              /* by variable: may differ between threads of a block */
    bool *usable;               /* by buffer: exists here */
    bool *scattered;            /* by buffer: its content at one index may differ between threads */
    int64_t *extents;           /* by variable: its bound */
    bool role_used[ROLE_count]; /* loops of the role around */
    bool divergent; /* inside a branch or loop that not all threads of a block take alike */
    int n_barriers;
} KernelVerifier;

static void set_place(KernelVerifier *r, const char *what, const char *name) {
    r->v.place =
        arena_printf(r->v.arena, "kernel %s: %s%s%s", r->k->name, what, *name ? " " : "", name);
}

/* --- threads ---------------------------------------------------------------------------------- */

typedef struct VaryWalk {
    const KernelVerifier *r;
    bool varying;
} VaryWalk;

static void visit_varying(void *user, const Expr *e) {
    VaryWalk *w = user;
    const Kernel *k = w->r->k;
    if (e->op == EX_var && e->k.i >= 0 && e->k.i < k->vars.n) w->varying |= w->r->varying[e->k.i];
    if (e->op == EX_load && e->k.i >= 0 && e->k.i < k->buffers.n)
        w->varying |= w->r->scattered[e->k.i];
}

/* True if the value may differ between threads of a block. */
static bool is_varying(const KernelVerifier *r, const Expr *e) {
    Arena scratch;
    VaryWalk w = {r, false};
    arena_init(&scratch, 0, NULL, NULL);
    ex_visit(&scratch, e, visit_varying, &w);
    arena_free(&scratch);
    return w.varying;
}

/* --- names and numbers ------------------------------------------------------------------------ */

static bool is_identifier(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return name && *name && !strchr("0123456789", *name) && strspn(name, letters) == strlen(name);
}

/* Names the text form reads as something else where a variable could stand. */
static bool is_reserved(const char *name) {
    static const char *const words[] = {"true", "false", "inf", "nan"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(name, words[i])) return true;
    return !strncmp(name, "inf_", 4) || !strncmp(name, "nan_", 4) ||
           (!strncmp(name, "ctr", 3) && name[3] >= '0' && name[3] <= '9');
}

static void check_name(KernelVerifier *r, StrMap *names, const char *what, const char *name) {
    if (!is_identifier(name) || is_reserved(name)) {
        verify_fail(&r->v, "the %s name '%s' cannot be used", what, name ? name : "");
        return;
    }
    void **slot = strmap_put(names, name);
    if (*slot) verify_fail(&r->v, "the name '%s' is used twice", name);
    *slot = r;
}

static bool check_names(KernelVerifier *r) {
    const Kernel *k = r->k;
    Verifier *v = &r->v;
    StrMap names;
    strmap_init(&names, v->arena);
    if (k->n_params < 0 || k->n_params > k->buffers.n) {
        verify_fail(v, "%d parameters of %d buffers", k->n_params, k->buffers.n);
        return false;
    }
    for (int i = 0; i < k->buffers.n; i++) {
        const Buffer *b = k->buffers.items[i];
        check_name(r, &names, "buffer", b->name);
        if ((b->space == SPACE_param) != (i < k->n_params))
            verify_fail(v, "buffer %s stands among the wrong buffers", b->name);
        bool ok = b->rank >= 0 && b->rank <= MAX_RANK && b->dt > DT_none && b->dt < DT_count;
        for (int d = 0; d < b->rank && ok; d++) ok = b->shape[d] >= 0;
        if (!ok) {
            verify_fail(v, "buffer %s has no proper type", b->name);
            return false;
        }
    }
    for (int i = 0; i < k->vars.n; i++) check_name(r, &names, "variable", k->vars.items[i].name);
    for (int i = 0; i < 3; i++)
        if (k->grid[i] < 1 || k->block[i] < 1) verify_fail(v, "grid and block must be 1 or more");
    return true;
}

/* --- statements ------------------------------------------------------------------------------- */

static void check_block(KernelVerifier *r, const Stmt *s);

/* Binds the variable of a loop or let; false if it cannot be. */
static bool bind_var(KernelVerifier *r, int var) {
    if (var < 0 || var >= r->k->vars.n) {
        verify_fail(&r->v, "there is no variable %d", var);
        return false;
    }
    if (r->types[var] != DT_none) {
        verify_fail(&r->v, "it is bound already");
        return false;
    }
    r->types[var] = r->k->vars.items[var].dt;
    r->extents[var] = r->k->vars.items[var].extent;
    return true;
}

static void check_gpu_loop(KernelVerifier *r, const Stmt *s) {
    int i = (int)s->role - (int)ROLE_block_x;
    int64_t wanted = i < 3 ? r->k->grid[i] : r->k->block[i - 3];
    if (!ex_is_int(s->extent, wanted))
        verify_fail(&r->v, "the extent of %s must be %lld, the kernel's %s", role_name(s->role),
                    (long long)wanted, i < 3 ? "grid" : "block");
    if (r->role_used[s->role])
        verify_fail(&r->v, "a loop of role %s is around it", role_name(s->role));
}

static void check_for(KernelVerifier *r, const Stmt *s) {
    Verifier *v = &r->v;
    const Kernel *k = r->k;
    bool named = s->var >= 0 && s->var < k->vars.n;
    set_place(r, "for", named ? k->vars.items[s->var].name : "?");
    verify_expr(v, &r->scope, s->extent, DT_i32, "extent");
    if (!s->extent || !bind_var(r, s->var)) return;
    const Var *var = &k->vars.items[s->var];
    if (var->dt != DT_i32) verify_fail(v, "its variable is %s, not i32", dt_name(var->dt));
    if (ex_is_const(s->extent) && s->extent->dt == DT_i32 && var->extent >= 0 &&
        var->extent < s->extent->k.i)
        verify_fail(v, "its extent %lld passes its bound %lld", (long long)s->extent->k.i,
                    (long long)var->extent);
    if (s->role < ROLE_serial || s->role >= ROLE_count) {
        verify_fail(v, "it has no role");
        return;
    }
    bool thread = s->role >= ROLE_thread_x, outer_role = r->role_used[s->role];
    if (s->role >= ROLE_block_x) check_gpu_loop(r, s);
    if (s->role == ROLE_tile && r->divergent)
        verify_fail(v, "a warp's threads may not all come to it");
    bool divergent = r->divergent;
    r->varying[s->var] = thread || is_varying(r, s->extent);
    r->divergent |= !thread && is_varying(r, s->extent);
    r->role_used[s->role] = true;
    check_block(r, s->body);
    r->role_used[s->role] = outer_role;
    r->divergent = divergent;
    r->types[s->var] = DT_none;
}

static void check_if(KernelVerifier *r, const Stmt *s) {
    set_place(r, "if", s->value ? ex_text(r->v.arena, &r->scope.names, s->value) : "");
    verify_expr(&r->v, &r->scope, s->value, DT_bool, "condition");
    bool divergent = r->divergent;
    r->divergent |= s->value && is_varying(r, s->value);
    check_block(r, s->body);
    check_block(r, s->other);
    r->divergent = divergent;
}

static void check_store(KernelVerifier *r, const Stmt *s) {
    Verifier *v = &r->v;
    if (s->buffer < 0 || s->buffer >= r->k->buffers.n) {
        set_place(r, "store", "");
        verify_fail(v, "there is no buffer %d", s->buffer);
        return;
    }
    const Buffer *b = r->k->buffers.items[s->buffer];
    set_place(r, "store", b->name);
    if (!r->usable[s->buffer]) verify_fail(v, "the buffer is not allotted here");
    if (b->space == SPACE_param && !b->written)
        verify_fail(v, "the parameter is not marked as written");
    for (int i = 0; i < b->rank; i++) {
        const char *what = arena_printf(v->arena, "index %d", i);
        int before = v->n_errors;
        verify_expr(v, &r->scope, s->index ? s->index[i] : NULL, DT_i32, what);
        if (before == v->n_errors) verify_index(v, &r->scope, s->index[i], b->shape[i], what);
    }
    verify_expr(v, &r->scope, s->value, b->dt, "value");
}

/* What lies at the indices is only hinted at, so they may be out of range. */
static void check_prefetch(KernelVerifier *r, const Stmt *s) {
    Verifier *v = &r->v;
    bool named = s->buffer >= 0 && s->buffer < r->k->n_params;
    set_place(r, "prefetch", named ? r->k->buffers.items[s->buffer]->name : "?");
    if (!named) verify_fail(v, "it is no parameter");
    for (int i = 0; named && i < r->k->buffers.items[s->buffer]->rank; i++)
        verify_expr(v, &r->scope, s->index ? s->index[i] : NULL, DT_i32,
                    arena_printf(v->arena, "index %d", i));
}

static void check_let(KernelVerifier *r, const Stmt *s) {
    bool named = s->var >= 0 && s->var < r->k->vars.n;
    set_place(r, "let", named ? r->k->vars.items[s->var].name : "?");
    verify_expr(&r->v, &r->scope, s->value, named ? r->k->vars.items[s->var].dt : DT_none, "value");
    if (s->value && bind_var(r, s->var)) r->varying[s->var] = is_varying(r, s->value);
}

static void check_alloc(KernelVerifier *r, const Stmt *s) {
    bool named = s->buffer >= 0 && s->buffer < r->k->buffers.n;
    set_place(r, "alloc", named ? r->k->buffers.items[s->buffer]->name : "?");
    if (!named || s->buffer < r->k->n_params)
        verify_fail(&r->v, "it is no buffer of the kernel's own");
    else if (r->usable[s->buffer])
        verify_fail(&r->v, "the buffer is allotted already");
    else
        r->usable[s->buffer] = true;
}

/* The statements of one block; what they bind and allot ends with it. */
static void check_block(KernelVerifier *r, const Stmt *first) {
    for (const Stmt *s = first; s; s = s->next) {
        switch (s->kind) {
        case ST_for:
            check_for(r, s);
            break;
        case ST_if:
            check_if(r, s);
            break;
        case ST_store:
            check_store(r, s);
            break;
        case ST_let:
            check_let(r, s);
            break;
        case ST_alloc:
            check_alloc(r, s);
            break;
        case ST_barrier:
            set_place(r, "barrier", arena_printf(r->v.arena, "%d", ++r->n_barriers));
            if (r->divergent) verify_fail(&r->v, "not all threads of the block may come to it");
            break;
        case ST_prefetch:
            check_prefetch(r, s);
            break;
        default:
            verify_fail(&r->v, "there is no such statement");
            break;
        }
    }
    for (const Stmt *s = first; s; s = s->next) {
        if (s->kind == ST_let && s->var >= 0 && s->var < r->k->vars.n) r->types[s->var] = DT_none;
        bool own = s->buffer >= r->k->n_params && s->buffer < r->k->buffers.n;
        if (s->kind == ST_alloc && own) r->usable[s->buffer] = false;
    }
}

bool verify_kernel(const Kernel *k, Diag *diag, const char *after_pass) {
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    KernelVerifier r = {.v = {.diag = diag, .arena = &scratch, .pass = after_pass}, .k = k};
    r.types = ARENA_ARRAY(&scratch, k->vars.n, DType);
    r.varying = ARENA_ARRAY(&scratch, k->vars.n, bool);
    r.extents = ARENA_ARRAY(&scratch, k->vars.n, int64_t);
    r.usable = ARENA_ARRAY(&scratch, k->buffers.n, bool);
    r.scattered = ARENA_ARRAY(&scratch, k->buffers.n, bool);
    r.v.place = arena_printf(&scratch, "kernel %s", k->name ? k->name : "?");
    if (check_names(&r)) {
        for (int i = 0; i < k->vars.n; i++) r.extents[i] = -1;
        for (int i = 0; i < k->buffers.n; i++) {
            r.usable[i] = i < k->n_params;
            r.scattered[i] = k->buffers.items[i]->space == SPACE_reg;
        }
        r.scope = (VerifyScope){.n_vars = k->vars.n,
                                .var_types = r.types,
                                .extents = r.extents,
                                .n_sources = k->buffers.n,
                                .buffers = k->buffers.items,
                                .usable = r.usable,
                                .n_ctr = k->n_scalars,
                                .names = {.kernel = k}};
        check_block(&r, k->body);
    }
    arena_free(&scratch);
    return r.v.n_errors == 0;
}

/* --- programs --------------------------------------------------------------------------------- */

static void check_launch(Verifier *v, const Step *s, int loops) {
    const Kernel *k = s->kernel;
    if (!k || (k->n_params && !s->args)) {
        verify_fail(v, "a launch without a kernel or arguments");
        return;
    }
    v->place = arena_printf(v->arena, "launch of %s", k->name);
    if (k->n_scalars > loops)
        verify_fail(v, "it reads %d counters where there are %d loops", k->n_scalars, loops);
    for (int i = 0; i < k->n_params; i++) {
        const Buffer *b = k->buffers.items[i];
        if (!s->args[i])
            verify_fail(v, "argument %d (%s) is missing", i, b->name);
        else if (s->args[i]->dt != b->dt)
            verify_fail(v, "argument %d (%s) is %s, not %s", i, b->name, dt_name(s->args[i]->dt),
                        dt_name(b->dt));
    }
    v->place = NULL;
}

bool verify_program(const Program *p, Diag *diag, const char *after_pass) {
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    Verifier v = {.diag = diag, .arena = &scratch, .pass = after_pass};
    bool ok = true;
    int loops = 0;
    StrMap names;
    strmap_init(&names, &scratch);
    for (int i = 0; i < p->kernels.n; i++) {
        const Kernel *k = p->kernels.items[i];
        ok &= verify_kernel(k, diag, after_pass);
        void **slot = strmap_put(&names, k->name ? k->name : "");
        if (*slot || !is_identifier(k->name))
            verify_fail(&v, "the kernel name '%s' cannot be used", k->name ? k->name : "");
        *slot = &v;
    }
    for (int i = 0; i < p->steps.n; i++) {
        const Step *s = &p->steps.items[i];
        if (s->kind == STEP_launch) check_launch(&v, s, loops);
        if (s->kind == STEP_loop) loops++;
        if (s->kind == STEP_loop && s->args &&
            (!s->args[0] || s->args[0]->dt != DT_i32 || s->each < 1 || s->each > s->trips))
            verify_fail(
                &v, "step %d counts its iterations by what is no i32, or by too many at once", i);
        if (s->kind == STEP_end && s->args && (!s->args[0] || s->args[0]->dt != DT_bool))
            verify_fail(&v, "step %d leaves a loop where no bool is false", i);
        if (s->kind == STEP_end && loops-- == 0) {
            verify_fail(&v, "step %d ends no loop", i);
            break;
        }
    }
    if (loops > 0) verify_fail(&v, "%d loops of steps have no end", loops);
    arena_free(&scratch);
    return ok && v.n_errors == 0;
}
