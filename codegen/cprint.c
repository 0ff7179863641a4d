/* Statements and kernels as text; see cprint.h. */
#include "codegen/clanes.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define LONGEST_LINE  92
#define MOST_UNROLLED 64 /* iterations; more only costs compile time */

/* --- names and setup -------------------------------------------------------------------------- */

void unit_init(Unit *unit, Arena *arena, const Dialect *dialect) {
    *unit = (Unit){.arena = arena, .dialect = dialect};
    names_init(&unit->names, arena, NULL, dialect->reserved);
    strmap_init(&unit->helpers, arena);
}

/* Marks what an expression reads. */
static void note_uses(void *user, const Expr *e) {
    Printer *p = user;
    if (e->op == EX_var) p->var_used[e->k.i] = true;
    if (e->op == EX_load) p->buffer_used[e->k.i] = true;
}

static void note_expr(Printer *p, const Expr *e) {
    if (e) ex_visit(p->scratch, e, note_uses, p);
}

static void note_block(Printer *p, const Stmt *s) {
    for (; s; s = s->next) {
        note_expr(p, s->extent);
        note_expr(p, s->value);
        if (s->kind == ST_store || s->kind == ST_prefetch) {
            const int op = s->kind == ST_store ? s->value->op : EX_const;
            p->buffer_used[s->buffer] = true;
            p->compared[s->buffer] |= op == EX_max || op == EX_min;
            for (int i = 0; i < p->k->buffers.items[s->buffer]->rank; i++)
                note_expr(p, s->index[i]);
        }
        note_block(p, s->body);
        note_block(p, s->other);
    }
}

/* The trips of the loops around the kernel's launches, the most by depth. */
static int64_t *launch_trips(const Program *program, const Kernel *k, Arena *scratch) {
    int64_t *most = ARENA_ARRAY(scratch, k->n_scalars + 1, int64_t);
    int64_t *open = ARENA_ARRAY(scratch, program->steps.n + 1, int64_t);
    int depth = 0;
    for (int s = 0; s < program->steps.n; s++) {
        const Step *step = &program->steps.items[s];
        if (step->kind == STEP_loop) open[depth++] = step->trips;
        if (step->kind == STEP_end) depth--;
        if (step->kind != STEP_launch || step->kernel != k) continue;
        for (int i = 0; i < k->n_scalars && i < depth; i++)
            if (open[i] > most[i]) most[i] = open[i];
    }
    return most;
}

void printer_init(Printer *p, Unit *unit, const Program *program, Arena *scratch, const Kernel *k) {
    *p = (Printer){.unit = unit, .d = unit->dialect, .x = program->x, .scratch = scratch, .k = k};
    p->trips = launch_trips(program, k, scratch);
    p->out = text_new(scratch);
    names_init(&p->names, scratch, &unit->names, NULL);
    int vars = k->vars.n, buffers = k->buffers.n;
    p->buffer = ARENA_ARRAY(scratch, buffers + 1, const char *);
    p->var = ARENA_ARRAY(scratch, vars + 1, const char *);
    p->scalar = ARENA_ARRAY(scratch, k->n_scalars + 1, const char *);
    p->extent = ARENA_ARRAY(scratch, vars + 1, int64_t);
    p->var_value = ARENA_ARRAY(scratch, vars + 1, const Node *);
    p->var_used = ARENA_ARRAY(scratch, vars + 1, bool);
    p->unrolled = ARENA_ARRAY(scratch, vars + 1, bool);
    p->buffer_used = ARENA_ARRAY(scratch, buffers + 1, bool);
    p->compared = ARENA_ARRAY(scratch, buffers + 1, bool);
    p->declared = ARENA_ARRAY(scratch, buffers + 1, bool);
    for (int i = 0; i < buffers; i++)
        p->buffer[i] = names_take(&p->names, k->buffers.items[i]->name, "b");
    for (int i = 0; i < vars; i++) {
        p->var[i] = names_take(&p->names, k->vars.items[i].name, "i");
        p->extent[i] = k->vars.items[i].extent;
    }
    for (int i = 0; i < k->n_scalars; i++)
        p->scalar[i] = names_take(&p->names, arena_printf(scratch, "t%d", i), "t");
    note_block(p, k->body);
    hold_arrays(p);
}

void printer_share(Printer *p, const Stmt *loop, int unit) {
    p->shared = loop;
    p->unit_of_part = unit;
    p->worker = names_take(&p->names, "worker", "worker");
    p->workers = names_take(&p->names, "workers", "workers");
}

/* --- declarations ----------------------------------------------------------------------------- */

typedef struct Reading {
    int buffer;
    const Expr *const *place; /* NULL: any is elsewhere */
    bool elsewhere;
} Reading;

static void look_at_place(void *user, const Expr *e) {
    Reading *r = user;
    if (e->op != EX_load || e->k.i != r->buffer) return;
    for (int i = 0; i < e->n && r->place; i++) r->elsewhere |= e->arg[i] != r->place[i];
    r->elsewhere |= !r->place;
}

/* Does `e` read the buffer, in another place than that (NULL: in any)? */
static bool reads_buffer(Printer *p, const Expr *e, int buffer, const Expr *const *place) {
    Reading r = {buffer, place, false};
    ex_visit(p->scratch, e, look_at_place, &r);
    return r.elsewhere;
}

/* True if the register that `alloc` makes is set by a store before anything else happens, so that
 * the store can declare it. */
static bool set_at_once(Printer *p, const Stmt *alloc) {
    for (const Stmt *s = alloc->next; s; s = s->next) {
        if (s->kind == ST_alloc) continue;
        if (s->kind != ST_store || reads_buffer(p, s->value, alloc->buffer, NULL)) return false;
        if (s->buffer == alloc->buffer) return true;
        if (!is_scalar_buffer(p->k->buffers.items[s->buffer])) return false;
    }
    return false;
}

/* The type of `count` elements in memory that are read or written at once; NULL: there is none. */
static const char *wide_type(const Printer *p, DType dt, int64_t count) {
    const int64_t bytes = count * (int64_t)dt_store(dt);
    if (!p->d->wide[dt] || bytes > 16 || (bytes & (bytes - 1))) return NULL;
    return arena_printf(p->scratch, "%s%lld", p->d->wide[dt], (long long)count);
}

/* An array of what is read and written at once, and a pointer to its elements. */
static void print_narrow_alloc(Printer *p, const Buffer *b, const char *name) {
    const int64_t each = 16 / (int64_t)dt_store(b->dt);
    const char *wide = names_take(&p->names, arena_printf(p->scratch, "%s_wide", name), "wide");
    print_line(p, "%s %s[%lld];", wide_type(p, b->dt, each), wide,
               (long long)((buffer_elements(b) + each - 1) / each));
    const char *type = mem_type(p->unit, b->dt);
    print_line(p, "%s *const %s = (%s *)%s;", type, name, type, wide);
}

static void print_alloc(Printer *p, const Stmt *s) {
    const Buffer *b = p->k->buffers.items[s->buffer];
    if (!p->buffer_used[s->buffer] || print_held_alloc(p, s->buffer) ||
        print_sums_alloc(p, s->buffer))
        return;
    if (b->space == SPACE_shared) {
        if (p->d->global_shared) return;
        print_line(p, "%s %s %s[%lld];", p->d->shared ? p->d->shared : "", mem_type(p->unit, b->dt),
                   p->buffer[s->buffer], (long long)buffer_elements(b));
        return;
    }
    const char *type = type_of(p, held_type(p, s->buffer)), *name = p->buffer[s->buffer];
    if (is_narrow_array(p, b))
        print_narrow_alloc(p, b, name);
    else if (!is_scalar_buffer(b))
        print_line(p, "%s %s[%lld];", type, name, (long long)buffer_elements(b));
    else if (set_at_once(p, s))
        p->declared[s->buffer] = true;
    else
        print_line(p, "%s %s;", type, name);
}

/* --- statements ------------------------------------------------------------------------------- */

static void print_indented(Printer *p, const Stmt *body) {
    int mark = p->named.n;
    p->indent++;
    print_statements(p, body);
    p->indent--;
    end_scope(p, mark);
}

/* x[i] = x[i] + v as x[i] += v, for types that are stored as they are computed. */
static bool print_update(Printer *p, int buffer, const Expr *index, const Expr *value) {
    DType dt = p->k->buffers.items[buffer]->dt;
    bool plain = dt == DT_f32 || dt == DT_f64 || dt == DT_u32 || dt == DT_u64;
    if (!plain || node_of(p, value)->name || (value->op != EX_add && value->op != EX_mul))
        return false;
    for (int i = 0; i < 2; i++) {
        const Expr *old = value->arg[i], *by = value->arg[1 - i];
        if (old->op != EX_load || old->k.i != buffer || node_of(p, old)->uses > 1 ||
            (index ? old->arg[0] != index : old->n != 0))
            continue;
        const char *text = print_root(p, by);
        print_line(p, "%s %s= %s;", print_place(p, buffer, index), ex_infix((ExprOp)value->op),
                   text);
        return true;
    }
    return false;
}

static const char *print_value(Printer *p, int buffer, const Expr *value) {
    const Buffer *b = p->k->buffers.items[buffer];
    if (!held_wide(p, b)) return print_stored(p, b->dt, value);
    const char *text = print_root(p, value);
    DType dt = held_type(p, buffer);
    return dt == b->dt ? text : arena_printf(p->scratch, "(%s)(%s)", type_of(p, dt), text);
}

static void print_store(Printer *p, const Stmt *s) {
    const Buffer *b = p->k->buffers.items[s->buffer];
    int mark = p->named.n;
    const Expr *roots[] = {place_of(p, s), prepare(p, s->value)};
    begin_statement(p, 2, roots);
    const char *type = "";
    if (p->declared[s->buffer]) {
        p->declared[s->buffer] = false;
        type = arena_printf(p->scratch, "%s ", type_of(p, b->dt));
    }
    if (!*type && print_update(p, s->buffer, roots[0], roots[1])) {
        end_statement(p, mark);
        return;
    }
    const char *place = print_place(p, s->buffer, roots[0]);
    const char *value = print_value(p, s->buffer, roots[1]);
    bool long_line =
        (size_t)p->indent * 4 + strlen(type) + strlen(place) + strlen(value) > LONGEST_LINE;
    if (long_line && roots[1]->op != EX_load && roots[1]->n && !node_of(p, roots[1])->name) {
        name_expr(p, roots[1]);
        value = print_value(p, s->buffer, roots[1]);
    }
    print_line(p, "%s%s = %s;", type, place, value);
    end_statement(p, mark);
}

static void print_prefetch(Printer *p, const Stmt *s) {
    int mark = p->named.n;
    const Expr *flat = place_of(p, s);
    begin_statement(p, 1, &flat);
    p->unit->needs |= NEEDS_prefetch;
    print_line(p, "MLCC_PREFETCH(%s, %s, %d);", p->buffer[s->buffer], print_bound(p, flat),
               s->near ? 3 : 2);
    end_statement(p, mark);
}

static void print_let(Printer *p, const Stmt *s) {
    if (!p->var_used[s->var]) return;
    int mark = p->named.n;
    const Expr *value = prepare(p, s->value);
    begin_statement(p, 1, &value);
    const bool index = value->dt == DT_i32;
    print_line(p, "const %s %s = %s;", index ? index_type(p) : type_of(p, (DType)value->dt),
               p->var[s->var], index ? print_bound(p, value) : print_root(p, value));
    p->var_value[s->var] = range_of(p, value);
    end_statement(p, mark);
}

static void print_if(Printer *p, const Stmt *s) {
    int mark = p->named.n;
    const Expr *condition = prepare(p, s->value);
    if (ex_is_const(condition)) {
        print_statements(p, condition->k.i ? s->body : s->other);
        return;
    }
    begin_statement(p, 1, &condition);
    print_line(p, "if (%s) {", print_root(p, condition));
    end_statement(p, mark);
    print_indented(p, s->body);
    if (s->other) {
        print_line(p, "} else {");
        print_indented(p, s->other);
    }
    print_line(p, "}");
}

static const char *grid_position(const Printer *p, Role role) {
    if (role >= ROLE_block_x && role <= ROLE_block_z) return p->d->block_at[role - ROLE_block_x];
    if (role >= ROLE_thread_x && role <= ROLE_thread_z)
        return p->d->thread_at[role - ROLE_thread_x];
    return NULL;
}

/* A loop over blocks or threads: each of them takes its own iteration. */
static void print_position(Printer *p, const Stmt *s, const char *position, const Expr *extent) {
    bool block = s->role <= ROLE_block_z;
    int64_t count =
        block ? p->k->grid[s->role - ROLE_block_x] : p->k->block[s->role - ROLE_thread_x];
    bool all = ex_is_const(extent) && extent->k.i >= count;
    bool scope = s->next != NULL;
    if (scope) {
        print_line(p, "{");
        p->indent++;
    }
    int mark = p->named.n;
    const char *bound = NULL;
    if (!all) {
        begin_statement(p, 1, &extent);
        bound = print_root(p, extent);
    }
    if (p->var_used[s->var] || !all)
        print_line(p, "const %s %s = %s;", index_type(p), p->var[s->var], position);
    if (!all) {
        print_line(p, "if (%s < %s) {", p->var[s->var], bound);
        end_statement(p, mark);
        print_indented(p, s->body);
        print_line(p, "}");
    } else {
        print_statements(p, s->body);
    }
    end_scope(p, mark);
    if (scope) {
        p->indent--;
        print_line(p, "}");
    }
}

/* A vector loop of one store that writes or reads an array of the kernel's own: over a row of a
 * tile of sums, if it is inside of unrolled ones. */
static bool is_row(Printer *p, const Stmt *s) {
    const Stmt *store = s->body;
    if (!p->d->lanes || s->kind != ST_for || s->role != ROLE_vector || !ex_is_const(s->extent) ||
        !store || store->next || store->kind != ST_store)
        return false;
    bool own = store->buffer >= p->k->n_params;
    for (int b = p->k->n_params; b < p->k->buffers.n && !own; b++)
        own = reads_buffer(p, store->value, b, NULL);
    return own;
}

static void find_choice(void *user, const Expr *e) {
    if (e->op == EX_select || e->op == EX_and || e->op == EX_or) *(bool *)user = true;
}

/* Prints unrolled loops around one that adds to a row, one row after the other: compilers make
 * vectors of each, and keep them in registers. In loops they do so now and then, and else take up
 * to 20 times as long. False: it is not such a loop. */
static bool print_rows(Printer *p, const Stmt *unrolled) {
    int64_t steps = 1;
    const Stmt *row = unrolled;
    for (; row->kind == ST_for && row->role == ROLE_unroll; row = row->body) {
        if (!ex_is_const(row->extent) || !row->body || row->body->next) return false;
        steps *= row->extent->k.i;
        if (steps > MOST_UNROLLED) return false;
    }
    if (!is_row(p, row) || !reads_buffer(p, row->body->value, row->body->buffer, NULL))
        return false;
    bool chooses = false; /* what becomes branches is no vector */
    ex_visit(p->scratch, row->body->value, find_choice, &chooses);
    if (chooses) return false;
    const int rank = p->k->buffers.items[row->body->buffer]->rank;
    const bool in_rows = p->in_rows;
    for (int64_t step = 0; step < steps; step++) {
        Stmt loop = *row, store = *row->body;
        const Expr *index[MAX_RANK];
        loop.body = &store;
        store.index = index;
        memcpy(index, row->body->index, sizeof *index * (size_t)rank);
        int64_t stride = steps, left = step;
        for (const Stmt *s = unrolled; s != row; s = s->body) {
            stride /= s->extent->k.i;
            const Expr *at = ex_i(p->x, left / stride);
            left %= stride;
            store.value = ex_subst_var(p->x, store.value, s->var, at);
            for (int i = 0; i < rank; i++) index[i] = ex_subst_var(p->x, index[i], s->var, at);
        }
        p->in_rows = true;
        print_loop(p, &loop);
    }
    p->in_rows = in_rows;
    return true;
}

/* Does the block store to vectors that are held, or else to parameters, and nowhere else? */
static bool stores_only(const Printer *p, const Stmt *s, bool held) {
    for (; s; s = s->next) {
        if (s->kind == ST_store && (held ? p->held[s->buffer] <= 0 : s->buffer >= p->k->n_params))
            return false;
        if (!stores_only(p, s->body, held) || !stores_only(p, s->other, held)) return false;
    }
    return true;
}

/* `e` for the first element of a wide one, which `var` runs through. */
static const Expr *first_of(Printer *p, const Expr *e, int var) {
    return ex_simplify(p->x, ex_subst_var(p->x, e, var, ex_i(p->x, 0)), p->k->vars.n, p->extent);
}

/* The address of the first element, what loops that are unrolled add to it last: compilers then
 * see one pointer, with numbers behind it. */
static const char *first_place(Printer *p, const Expr *load, int var) {
    const Expr *first = first_of(p, load->arg[0], var);
    const char *more = "";
    for (int v = 0; v < p->k->vars.n; v++) {
        int64_t stride;
        if (!p->unrolled[v] || !ex_stride(first, v, &stride) || stride == 0) continue;
        first = first_of(p, first, v);
        more = arena_printf(p->scratch, "%s + %s * %lld", more, p->var[v], (long long)stride);
    }
    begin_statement(p, 1, &first);
    return arena_printf(p->scratch, "%s + %s%s", p->buffer[load->k.i], print_bound(p, first), more);
}

/* The load that a cast widens, of bytes that lie side by side along `var`; NULL: none. */
static const Expr *widened_bytes(const Expr *e, DType dt, int var) {
    const Expr *load = widened_load(e, dt);
    return load && lanes_apart(load->arg[0], var, 1) ? load : NULL;
}

/* A sum of four products of bytes: for a function that uses an instruction for two at once. */
static bool print_scalar_dot(Printer *p, const Stmt *s) {
    const Stmt *store = s->body;
    if (p->d->helpers != IN_c || s->role != ROLE_unroll || !ex_is_int(s->extent, 4) || !store ||
        store->next || store->kind != ST_store)
        return false;
    const Expr *value = prepare(p, store->value), *at = place_of(p, store);
    int64_t stride;
    if (value->op != EX_add || value->dt != DT_i32 || !ex_stride(at, s->var, &stride) || stride)
        return false;
    for (int i = 0; i < 4; i++) {
        const Expr *old = value->arg[i / 2], *product = value->arg[1 - i / 2];
        if (old->op != EX_load || old->k.i != store->buffer || old->arg[0] != at ||
            product->op != EX_mul)
            continue;
        const Expr *rows = widened_bytes(product->arg[i % 2], DT_u8, s->var);
        const Expr *columns = widened_bytes(product->arg[1 - i % 2], DT_i8, s->var);
        if (!rows || !columns) continue;
        int mark = p->named.n;
        const char *text[2] = {first_place(p, rows, s->var), first_place(p, columns, s->var)};
        begin_statement(p, 1, &at);
        const char *sum = print_place(p, store->buffer, at);
        print_line(p, "%s = %s(%s, %s, %s);", sum, unit_helper(p->unit, "mlcc_dot_bytes"), sum,
                   text[0], text[1]);
        end_statement(p, mark);
        return true;
    }
    return false;
}

/* The line before a loop over a row, but not of copies of numbers: GCC makes those a call, for
 * which the row has to be in memory. */
static void mark_lanes(Printer *p, const Stmt *s) {
    if (!is_row(p, s) || s->body->value->op == EX_load || s->body->value->op == EX_const) return;
    p->unit->needs |= NEEDS_lanes;
    print_line(p, "%s", p->d->lanes);
}

void print_loop(Printer *p, const Stmt *s) {
    if (print_scalar_dot(p, s)) return;
    if (s->role == ROLE_unroll && print_rows(p, s)) return;
    const Expr *extent = prepare(p, s->extent);
    const char *position = grid_position(p, s->role);
    if (ex_is_const(extent) && extent->k.i <= 0) return;
    if (ex_is_const(extent) && extent->k.i == 1 && (!position || p->extent[s->var] == 1)) {
        p->extent[s->var] = 1; /* ex_simplify makes the variable 0 */
        print_statements(p, s->body);
        return;
    }
    if (position) {
        print_position(p, s, position, extent);
        return;
    }
    int mark = p->named.n;
    begin_statement(p, 1, &extent);
    const char *bound = print_bound(p, extent), *var = p->var[s->var];
    if (strchr(bound, ' ')) bound = arena_printf(p->scratch, "(%s)", bound);
    bool few = ex_is_const(extent) && extent->k.i <= MOST_UNROLLED;
    bool unroll = s->role == ROLE_unroll || (s->role == ROLE_vector && p->d->barrier);
    p->unrolled[s->var] = unroll;
    if (unroll && p->d->unroll && few) {
        p->unit->needs |= NEEDS_unroll;
        print_line(p, "%s", p->d->unroll);
    }
    const char *first = "0", *last = bound;
    if (s == p->shared) {
        first = names_take(&p->names, "begin", "begin");
        last = names_take(&p->names, "end", "end");
        print_line(p, "const %s %s = mlcc_part(%s, %d, %s, %s);", index_type(p), first, bound,
                   p->unit_of_part, p->worker, p->workers);
        print_line(p, "const %s %s = mlcc_part(%s, %d, %s + 1, %s);", index_type(p), last, bound,
                   p->unit_of_part, p->worker, p->workers);
    }
    group_bounds(p, s, &first, &last);
    const Strips strips = print_strips(p, s, first, last);
    if (strips == STRIPS_all) {
        end_statement(p, mark);
        return;
    }
    const bool pairs = !strips && begin_pairs(p, s);
    if (!strips && is_rolled(p, s) && strchr(last, '?')) { /* GCC cannot keep such from it */
        const char *end = names_take(&p->names, "end", "end");
        print_line(p, "const %s %s = %s;", index_type(p), end, last);
        last = end;
    }
    if (!strips) print_rolled(p, s);
    if (!strips && p->in_rows) mark_lanes(p, s);
    if (strips)
        print_line(p, "for (; %s < %s; %s++) {", var, last, var);
    else
        print_line(p, "for (%s %s = %s; %s < %s; %s++) {", index_type(p), var, first, var, last,
                   var);
    end_statement(p, mark);
    const bool in_rows = p->in_rows;
    p->in_rows |= unroll;
    print_indented(p, s->body);
    p->in_rows = in_rows;
    print_line(p, "}");
    if (strips) end_strips(p);
    if (pairs) end_pairs(p, s);
}

/* GCC spills vectors of 64 bytes, of 32 nothing is gained. */
void print_stay(Printer *p) {
    if (p->unit->vector_bytes < 64) return;
    p->unit->needs |= NEEDS_stay;
    print_line(p, "MLCC_STAY;");
}

/* What follows the loop over a tile's depth is to be read behind it. Not where lanes are added in
 * an array: GCC makes vectors of its rows. */
static void stay_behind(Printer *p, const Stmt *s) {
    if (!s->next || s->role != ROLE_serial) return;
    if (stores_only(p, s->body, true) && stores_only(p, s->next, false)) print_stay(p);
}

/* A loop over the elements of a wide one. */
typedef struct Wide {
    Printer *p;
    int var;
    int64_t count;
    const Expr *value, *inside; /* what is stored, if that holds; NULL: always */
    int buffer;
    const Expr *at, *to; /* where; to: the first place of those that are written at once, or NULL */
    int loads;           /* that are read at once */
    const Expr *whole;   /* one of them, and what holds it; NULL: there is none */
    const char *whole_name;
} Wide;

/* Where a place in `buffer` goes through the elements of a wide one while the loop runs, the first
 * of them; else NULL. */
static const Expr *wide_place(const Wide *w, int buffer, const Expr *flat) {
    const Printer *p = w->p;
    const Buffer *b = p->k->buffers.items[buffer];
    const bool aligned = buffer < p->k->n_params ? p->aligned[buffer] : is_narrow_array(p, b);
    int64_t stride;
    if (!aligned || !flat || !wide_type(p, b->dt, w->count) || !ex_stride(flat, w->var, &stride) ||
        stride != 1)
        return NULL;
    const Expr *first = first_of(w->p, flat, w->var);
    return ex_is_multiple(first, w->count) ? first : NULL;
}

static const char *wide_text(const Wide *w, int buffer, const Expr *first) {
    Printer *p = w->p;
    const Buffer *b = p->k->buffers.items[buffer];
    const bool constant = buffer < p->k->n_params && !b->written;
    begin_statement(p, 1, &first);
    return arena_printf(p->scratch, "*(%s%s *)(%s + %s)", constant ? "const " : "",
                        wide_type(p, b->dt, w->count), p->buffer[buffer], print_bound(p, first));
}

static const char *wide_name(Printer *p) {
    return names_take(&p->names, arena_printf(p->scratch, "w%d", p->n_values++), "w");
}

/* Has `e` be element by element what `name` holds. */
static void use_wide(Wide *w, const Expr *e, const char *name) {
    Printer *p = w->p;
    const char *element = arena_printf(p->scratch, "%s.e[%s]", name, p->var[w->var]);
    use_name(p, e, print_loaded(p, (DType)e->dt, element));
    w->loads++;
    w->whole = e;
    w->whole_name = name;
}

/* Reads what the loop loads one by one, and names the load. */
static void read_wide(void *user, const Expr *e) {
    Wide *w = user;
    Printer *p = w->p;
    if (e->op != EX_load || e->n != 1 || p->k->buffers.items[e->k.i]->written) return;
    const Expr *first = wide_place(w, (int)e->k.i, e->arg[0]);
    if (!first || node_of(p, e)->name) return;
    const char *text = wide_text(w, (int)e->k.i, first), *name = wide_name(p);
    print_line(p, "const %s %s = %s;", wide_type(p, (DType)e->dt, w->count), name, text);
    use_wide(w, e, name);
}

/* The elements of a wide one that all are `number`, as an initializer. */
static const char *print_same(const Wide *w, DType dt, const Expr *number) {
    Text list = text_new(w->p->scratch);
    const char *each = print_stored(w->p, dt, number);
    if (ex_is_zero(number) && !(dt_is_float(dt) && signbit(number->k.f))) return "0";
    for (int64_t i = 0; i < w->count; i++) text_addf(&list, "%s%s", i ? ", " : "", each);
    return text_get(&list);
}

/* The same of `condition ? load : number`, which is read at once or not at all. */
static void read_wide_if(Wide *w) {
    Printer *p = w->p;
    const Expr *e = w->value, *load = e->op == EX_select ? e->arg[1] : NULL;
    if (!load || load->op != EX_load || load->n != 1 || !ex_is_const(e->arg[2]) ||
        p->k->buffers.items[load->k.i]->written ||
        !ex_same_below(p->x, e->arg[0], w->var, w->count))
        return;
    const Expr *first = wide_place(w, (int)load->k.i, load->arg[0]);
    if (!first) return;
    const DType dt = (DType)load->dt;
    const Expr *roots[] = {first_of(p, e->arg[0], w->var), e->arg[2]};
    const char *name = wide_name(p);
    begin_statement(p, 2, roots);
    print_line(p, "%s %s = {{%s}};", wide_type(p, dt, w->count), name,
               print_same(w, dt, e->arg[2]));
    print_line(p, "if (%s) {", print_root(p, roots[0]));
    p->indent++;
    int mark = p->named.n;
    print_line(p, "%s = %s;", name, wide_text(w, (int)load->k.i, first));
    end_scope(p, mark);
    p->indent--;
    print_line(p, "}");
    use_wide(w, e, name);
}

/* Is the statement such a loop, as far as can be told before its loads are looked at? */
static bool find_wide(Printer *p, const Stmt *s, Wide *w) {
    const Stmt *body = s->body;
    *w = (Wide){.p = p, .var = s->var};
    if (s->role != ROLE_vector || !p->aligned || !ex_is_const(s->extent) || s->extent->k.i < 2 ||
        body->next)
        return false;
    w->count = s->extent->k.i;
    if (body->kind == ST_if && !body->other && !body->body->next) {
        const Expr *inside = prepare(p, body->value);
        if (!ex_same_below(p->x, inside, s->var, w->count)) return false;
        w->inside = first_of(p, inside, s->var);
        body = body->body;
    }
    if (body->kind != ST_store) return false;
    w->buffer = body->buffer;
    w->value = prepare(p, body->value);
    w->at = place_of(p, body);
    w->to = w->at ? wide_place(w, body->buffer, w->at) : NULL;
    return w->to || !w->inside;
}

/* The elements one by one, to `out` or where they belong. */
static void print_elements(const Wide *w, const char *out) {
    Printer *p = w->p;
    const char *var = p->var[w->var];
    p->unit->needs |= NEEDS_unroll;
    print_line(p, "%s", p->d->unroll);
    print_line(p, "for (%s %s = 0; %s < %lld; %s++) {", index_type(p), var, var,
               (long long)w->count, var);
    p->indent++;
    const Expr *roots[] = {w->to ? NULL : w->at, w->value};
    int mark = p->named.n;
    begin_statement(p, 2, roots);
    const char *place =
        w->to ? arena_printf(p->scratch, "%s.e[%s]", out, var) : print_place(p, w->buffer, w->at);
    print_line(p, "%s = %s;", place, print_value(p, w->buffer, w->value));
    end_scope(p, mark);
    p->indent--;
    print_line(p, "}");
}

/* Prints a loop over the elements of a wide one: what it loads is read before, what it stores
 * written after it, at once. False: nothing is. */
static bool print_wide(Printer *p, const Stmt *s) {
    Wide w;
    if (!find_wide(p, s, &w)) return false;
    int mark = p->named.n;
    if (w.inside) {
        begin_statement(p, 1, &w.inside);
        print_line(p, "if (%s) {", print_root(p, w.inside));
        p->indent++;
    }
    bool chooses = false; /* what is not chosen may not be there */
    ex_visit(p->scratch, w.value, find_choice, &chooses);
    if (chooses)
        read_wide_if(&w);
    else
        ex_visit(p->scratch, w.value, read_wide, &w);
    if (!w.to && !w.loads) return false;
    const DType dt = p->k->buffers.items[w.buffer]->dt;
    const bool copied = w.to && w.whole == w.value && (DType)w.value->dt == dt;
    const char *out = copied ? w.whole_name : w.to ? names_take(&p->names, "out", "out") : NULL;
    if (out && !copied) print_line(p, "%s %s;", wide_type(p, dt, w.count), out);
    if (!copied) print_elements(&w, out);
    if (out) print_line(p, "%s = %s;", wide_text(&w, w.buffer, w.to), out);
    if (w.inside) {
        p->indent--;
        print_line(p, "}");
    }
    end_scope(p, mark);
    return true;
}

static void print_for(Printer *p, const Stmt *s) {
    if (take_clearing(p, s)) return;
    if (print_wide(p, s) || print_warp_tile(p, s) || print_groups(p, s)) return;
    bool sums = begin_tiles(p, s);
    if (!print_tiles(p, s) && !print_vectors(p, s)) {
        bool spilled = spill_held(p, s);
        print_loop(p, s);
        if (spilled) unspill_held(p);
        stay_behind(p, s);
    }
    if (sums) end_tiles(p);
}

void print_statements(Printer *p, const Stmt *s) {
    for (; s; s = s->next) {
        if (print_later(p, s)) return;
        switch (s->kind) {
        case ST_for:
            print_for(p, s);
            break;
        case ST_if:
            print_if(p, s);
            break;
        case ST_store:
            print_store(p, s);
            break;
        case ST_let:
            print_let(p, s);
            break;
        case ST_alloc:
            print_alloc(p, s);
            break;
        case ST_barrier:
            if (p->d->barrier)
                print_line(p, "%s", s->global ? p->d->global_barrier : p->d->barrier);
            break;
        case ST_prefetch:
            if (p->d->prefetch) print_prefetch(p, s);
            break;
        }
    }
}

void print_body(Printer *p) {
    p->indent = 1;
    if (!p->d->block_at[0]) name_extents(p);
    print_tiles_begin(p);
    if (!p->tiles && p->unit->vector_bytes) find_later(p, NULL, -1);
    print_later_begin(p);
    print_statements(p, p->k->body);
    print_later_end(p);
    print_tiles_end(p);
}

/* --- around kernels --------------------------------------------------------------------------- */

void text_list(Text *out, int n, const char *const *piece, int column, int indent) {
    for (int i = 0; i < n; i++) {
        int length = (int)strlen(piece[i]) + 2;
        if (i > 0 && column + length > 97) {
            text_addf(out, "\n%*s", indent, "");
            column = indent;
        }
        text_add(out, piece[i]);
        column += length;
        if (i + 1 < n) text_add(out, column + (int)strlen(piece[i + 1]) + 2 > 97 ? "," : ", ");
    }
}

/* True if `word` stands in `text` as a whole identifier. */
static bool mentions(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length) {
        bool begins = at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_');
        if (begins && !isalnum((unsigned char)at[length]) && at[length] != '_') return true;
    }
    return false;
}

void print_unused(const Printer *p, Text *out) {
    const char *body = text_get(&p->out);
    for (int i = 0; i < p->k->n_params; i++)
        if (!mentions(body, p->buffer[i])) text_addf(out, "    (void)%s;\n", p->buffer[i]);
    for (int i = 0; i < p->k->n_scalars; i++)
        if (!mentions(body, p->scalar[i])) text_addf(out, "    (void)%s;\n", p->scalar[i]);
}

void kernel_parameters(Printer *p, const char *const *restrict_word, const char *scalar_type,
                       Text *out, int indent) {
    const Kernel *k = p->k;
    int n = k->n_params + k->n_scalars;
    const char **piece = ARENA_ARRAY(p->scratch, n + 3, const char *);
    for (int i = 0; i < k->n_params; i++)
        piece[i] = arena_printf(
            p->scratch, "%s%s *%s%s", k->buffers.items[i]->written ? "" : "const ",
            mem_type(p->unit, k->buffers.items[i]->dt), restrict_word[i], p->buffer[i]);
    for (int i = 0; i < k->n_scalars; i++)
        piece[k->n_params + i] = arena_printf(p->scratch, "%s %s", scalar_type, p->scalar[i]);
    if (p->shared) {
        piece[n++] = arena_printf(p->scratch, "%s %s", scalar_type, p->worker);
        piece[n++] = arena_printf(p->scratch, "%s %s", scalar_type, p->workers);
    }
    text_list(out, n, piece, indent, indent);
}

void print_comment(const char *text, Text *out) {
    int column = 3;
    text_add(out, "/* ");
    while (*text) {
        int length = (int)strcspn(text, " ");
        bool fits = column + length <= 96;
        if (!fits && column > 3) {
            text_add(out, "\n * ");
            column = 3;
        }
        if (length > 93) length = 93; /* a word as long as a line is cut */
        text_addn(out, text, (size_t)length);
        column += length;
        text += length;
        if (*text == ' ' && *++text && column + (int)strcspn(text, " ") < 96) {
            text_add(out, " ");
            column++;
        }
    }
    text_add(out, " */\n");
}

void kernel_comment(const Kernel *k, Arena *arena, Text *out) {
    Text t = text_new(arena);
    text_add(&t, comment_text(arena, k->src ? k->src : k->name));
    for (int i = 0; i < k->n_params; i++) {
        const Buffer *b = k->buffers.items[i];
        text_addf(&t, "%s%s %s%s", i ? ", " : ": ", b->name, dt_name(b->dt),
                  shape_text(arena, b->rank, b->shape));
    }
    print_comment(text_get(&t), out);
}
