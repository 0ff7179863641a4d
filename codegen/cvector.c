/* Vector loops as vector types of GNU C; see cprint.h.
 *
 * A loop of role vector, alone inside of loops of role unroll, with nothing but stores in it, is
 * printed as straight lines, one for each step of the unrolled loops and each vector. Arrays in
 * registers that such loops alone store to become variables, one for each vector: compilers keep
 * variables in registers, arrays they often do not. Before a loop that only reads such an array,
 * and is none of these, the variables are written to an array. A vector loop around a sum of a few
 * products of narrow types is one of an instruction.
 *
 * clanes.c makes the expressions.
 */
#include "codegen/clanes.h"

#include <string.h>

#define MAX_UNROLLED    8
#define MOST_STATEMENTS 512

#define TEXT(...) arena_printf(p->scratch, __VA_ARGS__)

typedef struct VectorNest {
    const Stmt *unrolled[MAX_UNROLLED];
    int n_unrolled;
    const Stmt *repeat; /* the loop of role repeat around all others, or NULL */
    const Stmt *shorts; /* the outermost of them, of role short, ... */
    int n_shorts;       /* ... so many of them, ... */
    int short_steps;    /* ... with so many iterations in all */
    const Stmt *loop;   /* the vector loop */
    int64_t extent;
    int64_t steps; /* of the unrolled loops together */
    int widest;    /* bytes of the widest type in it */
    bool is_dot;   /* the loop's body is */
    bool is_turned;
    bool fills; /* its last vector may have lanes beyond it: see width_at */
    LaneDot dot;
} VectorNest;

/* Lanes of the vector that begins at `start`, if the widest type in it has so many bytes. fills: it
 * is a wider one, with lanes beyond the row, where the rest of that would take several vectors, or
 * narrower ones take longer (the target's whole_vectors), which they do beside whole ones. */
static int width_at(const Printer *p, int64_t start, int64_t extent, int bytes, bool fills) {
    int most = p->unit->vector_bytes / bytes, width = most, filled = 4;
    int64_t rest = extent - start;
    while (width > 1 && width > rest) width /= 2;
    if (width < 4) width = 1;
    if (!fills || rest >= most) return width;
    if (p->unit->whole_vectors && extent > most && rest > 1) return most;
    while (filled < rest && filled < most) filled *= 2;
    return width < rest ? filled : width;
}

/* As many vectors as they have lanes, of which the first lanes are to lie side by side, then the
 * second ones, and so on. */
static bool is_turned(Printer *p, const VectorNest *n, const Stmt *store) {
    const Buffer *b = p->k->buffers.items[store->buffer];
    const Expr *value = prepare(p, store->value), *place = place_of(p, store);
    int bytes = (int)dt_store(b->dt);
    return n->n_unrolled == 1 && !store->next && b->space != SPACE_reg && n->steps == n->extent &&
           (bytes == 2 || bytes == 4) && lanes_widest(p, value, n->loop->var, bytes) <= 4 &&
           width_at(p, 0, n->extent, 4, false) == n->extent &&
           lanes_apart(place, n->unrolled[0]->var, 1);
}

#define MOST_REPEATS 8
#define MOST_SHORTS  32 /* iterations that add sums of 16 bits */

/* Reads `s` as a nest of the kind; false if it is none. */
static bool find_nest(Printer *p, const Stmt *s, VectorNest *n) {
    *n = (VectorNest){.steps = 1, .short_steps = 1};
    if (s && s->kind == ST_for && s->role == ROLE_repeat && ex_is_const(s->extent)) {
        if (s->extent->k.i > MOST_REPEATS || !s->body || s->body->next) return false;
        n->repeat = s;
        s = s->body;
    }
    n->shorts = s;
    for (; s && s->kind == ST_for && s->role == ROLE_short; s = s->body) {
        if (!ex_is_const(s->extent) || !s->body || s->body->next) return false;
        const int64_t extent = s->extent->k.i;
        if (extent < 1 || extent > MOST_SHORTS / n->short_steps) return false;
        n->n_shorts++;
        n->short_steps *= (int)extent;
    }
    for (; s && s->kind == ST_for && s->role == ROLE_unroll; s = s->body) {
        if (n->n_unrolled == MAX_UNROLLED || !ex_is_const(s->extent) || !s->body || s->body->next)
            return false;
        n->unrolled[n->n_unrolled++] = s;
        n->steps *= s->extent->k.i;
        if (n->steps > MOST_STATEMENTS || n->steps < 1) return false;
    }
    if (!s || s->kind != ST_for || s->role != ROLE_vector || !ex_is_const(s->extent)) return false;
    n->loop = s;
    n->extent = s->extent->k.i;
    if (n->extent < 2 || n->steps * n->extent * n->short_steps > MOST_STATEMENTS * 16) return false;
    n->widest = 4;
    n->is_dot = s->body && lanes_read_dot(p, s->body, s->var, &n->dot);
    if (n->n_shorts) {
        n->dot.shorts = n->shorts;
        n->dot.n_shorts = n->n_shorts;
        return n->is_dot && n->dot.count == 4 && !n->dot.each;
    }
    if (n->is_dot) return true;
    n->widest = 1;
    for (const Stmt *store = s->body; store; store = store->next) {
        if (store->kind != ST_store) return false;
        const Buffer *b = p->k->buffers.items[store->buffer];
        const Expr *value = prepare(p, store->value);
        n->is_turned = is_turned(p, n, store);
        if (!is_lane_type(b->dt) || (DType)value->dt != b->dt || !lanes_can(p, value, s->var) ||
            !(n->is_turned || lanes_apart(place_of(p, store), s->var, 1)))
            return false;
        if (n->widest < (int)dt_store(b->dt)) n->widest = (int)dt_store(b->dt);
        n->widest = lanes_widest(p, value, s->var, n->widest);
    }
    return true;
}

/* --- arrays in registers ---------------------------------------------------------------------- */

static bool is_array(const Printer *p, int buffer) {
    const Buffer *b = p->k->buffers.items[buffer];
    return b->space == SPACE_reg && buffer_elements(b) > 1;
}

static void refuse(Printer *p, int buffer) {
    if (is_array(p, buffer)) p->held[buffer] = -1;
}

static void refuse_loads(void *user, const Expr *e) {
    if (e->op == EX_load) refuse(user, (int)e->k.i);
}

/* The array has rows as long as the vector loop, and is read and written by rows. */
static void note_row(Printer *p, const VectorNest *n, int buffer, const Expr *index) {
    if (!is_array(p, buffer) || p->held[buffer] < 0) return;
    int64_t rows = buffer_elements(p->k->buffers.items[buffer]) / n->extent;
    bool fits = rows * n->extent == buffer_elements(p->k->buffers.items[buffer]);
    int64_t stride;
    const Stmt *s = n->shorts;
    if (n->repeat) fits &= !ex_depends(index, n->repeat->var);
    for (int i = 0; i < n->n_shorts; i++, s = s->body) fits &= !ex_depends(index, s->var);
    for (int i = 0; fits && i < n->n_unrolled; i++)
        fits = ex_stride(index, n->unrolled[i]->var, &stride) && stride % n->extent == 0;
    if (fits && p->held[buffer] != 0) fits = p->held[buffer] == n->extent;
    p->held[buffer] = fits ? n->extent : -1;
}

typedef struct NoteRows {
    Printer *p;
    const VectorNest *nest;
} NoteRows;

static void note_load(void *user, const Expr *e) {
    NoteRows *u = user;
    if (e->op == EX_load && e->n == 1) note_row(u->p, u->nest, (int)e->k.i, e->arg[0]);
}

static void note_nest(Printer *p, const VectorNest *n) {
    NoteRows user = {p, n};
    if (n->is_dot) {
        note_row(p, n, n->dot.store->buffer, prepare(p, n->dot.store->index[0]));
        return;
    }
    for (const Stmt *s = n->loop->body; s; s = s->next) {
        const Expr *index = prepare(p, s->index[0]);
        ex_visit(p->scratch, prepare(p, s->value), note_load, &user);
        note_row(p, n, s->buffer, index);
    }
}

/* True if nothing in the statements stores to an array in registers. */
static bool only_reads(const Printer *p, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->kind == ST_alloc || (s->kind == ST_store && is_array(p, s->buffer))) return false;
        if (!only_reads(p, s->body) || !only_reads(p, s->other)) return false;
    }
    return true;
}

static void scan(Printer *p, const Stmt *s) {
    for (; s; s = s->next) {
        VectorNest n;
        if (find_tiles(p, s)) continue;
        if (find_nest(p, s, &n)) {
            note_nest(p, &n);
            continue;
        }
        if (s->kind == ST_for && only_reads(p, s->body)) continue;
        if (s->value) ex_visit(p->scratch, s->value, refuse_loads, p);
        if (s->extent) ex_visit(p->scratch, s->extent, refuse_loads, p);
        if (s->kind == ST_store) refuse(p, s->buffer);
        scan(p, s->body);
        scan(p, s->other);
    }
}

typedef struct Across {
    int var;
    bool found;
} Across;

static void find_across(void *user, const Expr *e) {
    Across *u = user;
    if (e->op != EX_load || e->n != 1) return;
    u->found |= ex_depends(e->arg[0], u->var) && !lanes_apart(e->arg[0], u->var, 1);
}

/* May vectors have lanes beyond their rows? Not if these would read what is not there. */
static bool can_fill(Printer *p, const Stmt *s) {
    for (; s; s = s->next) {
        Across u = {-1, false};
        if (s->kind == ST_for && s->role == ROLE_vector) u.var = s->var;
        for (const Stmt *store = u.var < 0 ? NULL : s->body; store; store = store->next)
            if (store->value) ex_visit(p->scratch, prepare(p, store->value), find_across, &u);
        if (u.found || !can_fill(p, s->body) || !can_fill(p, s->other)) return false;
    }
    return true;
}

void hold_arrays(Printer *p) {
    int count = p->k->buffers.n;
    p->fills = p->unit->vector_bytes > 0 && can_fill(p, p->k->body);
    for (int b = 0; b < count; b++) {
        DType dt = p->k->buffers.items[b]->dt;
        const bool held = p->k->buffers.items[b]->space == SPACE_reg;
        p->fills &= dt == DT_f32 || dt == DT_i32 || (dt_is_short(dt) && !held);
    }
    p->held = ARENA_ARRAY(p->scratch, count + 1, int64_t);
    p->held_name = ARENA_ARRAY(p->scratch, count + 1, const char **);
    if (!p->unit->vector_bytes) return;
    scan(p, p->k->body);
    for (int b = 0; b < count; b++) {
        const Buffer *buffer = p->k->buffers.items[b];
        if (p->held[b] <= 0) continue;
        int64_t elements = buffer_elements(buffer);
        p->held_name[b] = ARENA_ARRAY(p->scratch, elements, const char *);
        for (int64_t row = 0; row < elements; row += p->held[b])
            for (int64_t at = 0; at < p->held[b];) {
                const char *name = TEXT("%s_%lld", p->buffer[b], (long long)(row + at));
                p->held_name[b][row + at] = names_take(&p->names, name, "r");
                at += width_at(p, at, p->held[b], (int)dt_store(buffer->dt), p->fills);
            }
    }
}

/* --- text ------------------------------------------------------------------------------------- */

static const char *without_parentheses(Printer *p, const char *text) {
    size_t n = strlen(text);
    if (text[0] != '(' || text[n - 1] != ')') return text;
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        depth += (text[i] == '(') - (text[i] == ')');
        if (depth == 0 && i + 1 < n) return text;
    }
    return arena_strndup(p->scratch, text + 1, n - 2);
}

static void print_dot(Lanes *l, const LaneDot *dot) {
    Printer *p = l->p;
    int mark = p->named.n;
    const char *place = lanes_at(l, dot->store->buffer, prepare(p, dot->store->index[0]));
    print_line(p, "%s = %s;", place, lanes_dot_text(l, dot, place));
    end_statement(p, mark);
}

/* Adds what the dot is in one iteration of the loops of role short to a sum of 16 bits, `*sum`
 * (NULL: it is the first); where there are no functions for it, to the dot's own. */
static void print_short(Lanes *l, const LaneDot *dot, const char **sum) {
    Printer *p = l->p;
    int mark = p->named.n;
    if (l->width != p->unit->vector_bytes / 4) {
        print_dot(l, dot); /* dot_moved of fewer than 16 lanes takes any places, too */
        return;
    }
    const char *text = lanes_short_text(l, dot, *sum);
    if (*sum) {
        print_line(p, "%s = %s;", *sum, text);
    } else {
        *sum = names_take(&p->names, TEXT("s%d", p->n_values++), "v");
        print_line(p, "%s %s = %s;", lane_type(p, DT_i32, l->width), *sum, text);
    }
    end_statement(p, mark);
}

/* Adds the sum of 16 bits, if there is one, to the dot's own. */
static void print_short_sum(Lanes *l, const LaneDot *dot, const char *sum) {
    Printer *p = l->p;
    int mark = p->named.n;
    if (!sum) return;
    const char *place = lanes_at(l, dot->store->buffer, prepare(p, dot->store->index[0]));
    print_line(p, "%s = %s(%s, %s);", place, unit_lane_function(p->unit, "dot_short_sum", l->width),
               place, sum);
    end_statement(p, mark);
}

static void print_put(Lanes *l, const Stmt *s) {
    Printer *p = l->p;
    int mark = p->named.n;
    lanes_put(l, s->buffer, place_of(p, s), prepare(p, s->value));
    end_statement(p, mark);
}

static void print_lanes(Lanes *l, const Stmt *s) {
    Printer *p = l->p;
    int mark = p->named.n;
    const Expr *value = prepare(p, s->value), *flat = place_of(p, s);
    const Buffer *b = p->k->buffers.items[s->buffer];
    bool missing = lanes_missing(l, s->buffer);
    const char *place = missing ? NULL : lanes_at(l, s->buffer, flat);
    bool held = p->held[s->buffer] > 0;
    if (held && value->op == EX_add && b->dt != DT_i32) /* which wraps around */
        for (int i = 0; i < 2; i++) {
            const Expr *old = value->arg[i];
            if (old->op != EX_load || old->k.i != s->buffer || old->arg[0] != flat) continue;
            lanes_begin(l, value->arg[1 - i]);
            const char *by = lanes_text(l, value->arg[1 - i], false);
            print_line(p, "%s += %s;", place, without_parentheses(p, by));
            end_statement(p, mark);
            return;
        }
    lanes_begin(l, value);
    const char *text = lanes_text(l, value, true);
    if (missing)
        lanes_put_first(l, s->buffer, flat, text);
    else
        print_line(p, "%s = %s;", place, without_parentheses(p, text));
    end_statement(p, mark);
}

/* The lanes from the start on. */
static void take_lanes(Lanes *l, const VectorNest *n) {
    l->width = width_at(l->p, l->start, n->extent, n->widest, n->fills);
    l->there = (int)(n->extent - l->start < l->width ? n->extent - l->start : l->width);
}

/* Do all steps of the unrolled loops use the same? */
static bool is_shared(const VectorNest *n, const Expr *e) {
    for (int i = 0; i < n->n_unrolled; i++)
        if (ex_depends(e, n->unrolled[i]->var)) return false;
    return true;
}

typedef struct Columns {
    Lanes *l;
    const VectorNest *nest;
} Columns;

static void keep_column(const Columns *u, const Expr *e) {
    int var = u->nest->loop->var;
    if (e->op != EX_load || u->l->p->held[e->k.i] > 0) return;
    if (!u->nest->is_dot && (dt_is_narrow((DType)e->dt) || !lanes_apart(e->arg[0], var, 1))) return;
    if (is_shared(u->nest, e->arg[0])) lanes_keep(u->l, e);
}

/* Of loads that a condition guards there is perhaps nothing to be read. */
static void keep_what_is_certain(const Columns *u, const Expr *e) {
    if (!ex_depends(e, u->nest->loop->var)) return;
    bool guards = e->op == EX_select || e->op == EX_and || e->op == EX_or;
    keep_column(u, e);
    for (int i = 0; i < (guards ? 1 : e->n); i++) keep_what_is_certain(u, e->arg[i]);
}

/* Do all steps decode the same columns? Then that is done once, and for one iteration of the loops
 * of role short at a time, for which alone there are registers. */
static bool shares_decoded(const VectorNest *n) {
    return n->n_shorts && n->dot.shift && n->steps >= 2 && is_shared(n, n->dot.columns->arg[0]);
}

/* The vectors of a product's columns, which all steps, its rows, use. Where steps of the depth are
 * repeated, not the last of three or more: where sums, columns and a row take all registers, GCC
 * gave sums others in each step, by way of the stack. */
static void keep_columns(Lanes *l, const VectorNest *n) {
    Printer *p = l->p;
    const Stmt *store = n->is_dot ? n->dot.store : n->loop->body;
    if (n->steps < 2 || p->held[store->buffer] <= 0 || (!n->is_dot && store->next)) return;
    if (n->short_steps > 1 && !n->dot.to) return; /* more than there are registers for */
    Columns user = {l, n};
    if (n->is_dot) l->value[n->dot.var] = ex_i(p->x, 0); /* the first of the few */
    for (l->start = 0; l->start < n->extent; l->start += l->width) {
        take_lanes(l, n);
        if (n->repeat && l->start >= KEPT_VECTORS * l->width && l->start + l->width >= n->extent)
            break;
        for (int k = 0; k < n->short_steps && n->is_dot; k++) {
            const LaneDot one = lanes_dot_of(l, &n->dot, k);
            keep_column(&user, one.columns);
            if (one.to) keep_column(&user, one.to);
        }
        if (!n->is_dot) keep_what_is_certain(&user, prepare(p, store->value));
    }
    if (n->is_dot) l->value[n->dot.var] = NULL;
}

/* Sets the variables of the unrolled loops. */
static void take_step(Lanes *l, const VectorNest *n, int64_t step) {
    for (int i = n->n_unrolled - 1; i >= 0; i--) {
        const int64_t extent = n->unrolled[i]->extent->k.i;
        l->value[n->unrolled[i]->var] = ex_i(l->p->x, step % extent);
        step /= extent;
    }
}

/* A nest with loops of role short around it. */
static void print_shorts(Lanes *l, const VectorNest *n) {
    Printer *p = l->p;
    const bool shares = shares_decoded(n);
    const int around = shares ? n->short_steps : 1, within = n->short_steps / around;
    const char **sum = ARENA_ARRAY(p->scratch, n->steps * n->extent, const char *);
    for (int i = 0; i < around; i++) {
        const LaneDot one = lanes_dot_of(l, &n->dot, i);
        for (l->start = 0; shares && l->start < n->extent; l->start += l->width) {
            take_lanes(l, n);
            lanes_keep_columns(l, &one);
        }
        for (int64_t step = 0; step < n->steps; step++) {
            take_step(l, n, step);
            for (l->start = 0; l->start < n->extent; l->start += l->width) {
                const char **to = &sum[step * n->extent + l->start];
                take_lanes(l, n);
                for (int k = i; k < i + within; k++) {
                    const LaneDot each = lanes_dot_of(l, &n->dot, k);
                    print_short(l, &each, to);
                }
                if (i == around - 1) print_short_sum(l, &n->dot, *to);
            }
        }
    }
}

/* How many of the nest's vectors are stored several at once: all but a few, or none. */
static int64_t count_put(const Lanes *l, const VectorNest *n) {
    Printer *p = l->p;
    const Stmt *store = n->is_dot ? NULL : n->loop->body;
    int width = p->unit->vector_bytes / 4;
    if (!store || store->next || p->held[store->buffer] > 0 || width < 8) return 0;
    if (!lanes_can_put(l, prepare(p, store->value))) return 0;
    return n->steps * (n->extent / width) / LANES_PUT * LANES_PUT;
}

/* The lanes as words, or back. */
static const char *as_words(Lanes *l, DType dt, const char *value, bool back) {
    Printer *p = l->p;
    const char *words = lane_type(p, DT_i32, l->width), *type = lane_type(p, dt, l->width);
    if (dt_store(dt) == 4) return TEXT("(%s)%s", back ? type : words, value);
    return TEXT("__builtin_convertvector(%s, %s)", value, back ? type : words);
}

static void print_turned(Lanes *l, const VectorNest *n) {
    Printer *p = l->p;
    const Stmt *store = n->loop->body;
    DType dt = p->k->buffers.items[store->buffer]->dt;
    const Expr *value = prepare(p, store->value), *place = place_of(p, store);
    const Expr **step = &l->value[n->unrolled[0]->var];
    l->width = (int)n->extent;
    print_line(p, "{");
    p->indent++;
    const char *square = names_take(&p->names, "square", "r");
    print_line(p, "%s %s[%d];", lane_type(p, DT_i32, l->width), square, l->width);
    for (int i = 0; i < l->width; i++) {
        int mark = p->named.n;
        *step = ex_i(p->x, i);
        lanes_begin(l, value);
        const char *text = lanes_text(l, value, true);
        print_line(p, "%s[%d] = %s;", square, i, as_words(l, dt, text, false));
        end_statement(p, mark);
    }
    print_line(p, "%s(%s);", unit_lane_function(p->unit, "turn", l->width), square);
    *step = ex_i(p->x, 0);
    for (int i = 0; i < l->width; i++) {
        int mark = p->named.n;
        l->start = i;
        const char *at = lanes_at(l, store->buffer, place);
        print_line(p, "%s = %s;", at, as_words(l, dt, TEXT("%s[%d]", square, i), true));
        end_statement(p, mark);
    }
    p->indent--;
    print_line(p, "}");
}

typedef struct HeldLoads {
    Printer *p;
    bool *read; /* which buffers that are held */
    bool any;
} HeldLoads;

static void find_held(void *user, const Expr *e) {
    HeldLoads *u = user;
    if (e->op != EX_load || u->p->held[e->k.i] <= 0) return;
    if (u->read) u->read[e->k.i] = true;
    u->any = true;
}

/* Does the nest read or write vectors that are held? In memory, lanes that are not there would cost
 * more than they save. */
static bool on_held(Printer *p, const VectorNest *n) {
    HeldLoads u = {p, NULL, n->is_dot && p->held[n->dot.store->buffer] > 0};
    for (const Stmt *s = n->is_dot ? NULL : n->loop->body; s; s = s->next) {
        u.any |= p->held[s->buffer] > 0;
        ex_visit(p->scratch, prepare(p, s->value), find_held, &u);
    }
    return u.any;
}

/* --- pairs of rows ---------------------------------------------------------------------------- */

/* Rows of a product that have half a vector left over. */
typedef struct Pairs {
    int64_t extent, start; /* of a row, and of the half in it, */
    int half;              /* ... of so many lanes */
    int buffer;            /* the rows */
    const char *suffix;    /* of functions for their type */
    const Expr *factor;    /* what all lanes of a row are multiplied with, */
    const Expr *columns;   /* and what lies in lanes for all rows; both NULL: a dot's */
} Pairs;

/* Does it add a product to an element of a row? */
static bool find_factors(Printer *p, const VectorNest *n, const Stmt *store, Pairs *pairs) {
    const int row = n->unrolled[0]->var, lane = n->loop->var;
    const Expr *sum = prepare(p, store->value), *place = prepare(p, store->index[0]);
    for (int i = 0; i < 2 && sum->op == EX_add; i++) {
        const Expr *old = sum->arg[i], *product = sum->arg[1 - i];
        if (old->op != EX_load || old->k.i != store->buffer || old->arg[0] != place ||
            product->op != EX_mul)
            continue;
        for (int f = 0; f < 2; f++) {
            pairs->factor = product->arg[f];
            pairs->columns = product->arg[1 - f];
            if (!ex_depends(pairs->factor, lane) && ex_depends(pairs->columns, lane) &&
                !ex_depends(pairs->columns, row) && pairs->columns->op == EX_load)
                return true;
        }
    }
    return false;
}

/* Two rows' halves are a whole vector: factors of both, blended, are multiplied with the columns
 * twice. (24 columns on Zen 5, by hand: 268 GFLOP/s, with half vectors 182.) */
static bool find_pairs(Printer *p, const VectorNest *n, Pairs *pairs) {
    const Stmt *store = n->is_dot ? n->dot.store : n->loop->body;
    const DType dt = p->k->buffers.items[store->buffer]->dt;
    const int lanes = p->unit->vector_bytes / 4;
    int64_t stride;
    *pairs = (Pairs){.extent = n->extent,
                     .start = n->extent - lanes / 2,
                     .half = lanes / 2,
                     .buffer = store->buffer,
                     .suffix = dt == DT_f32 ? "" : "_i32"};
    if (!p->unit->pairs_rows || n->repeat || n->n_shorts || n->n_unrolled != 1 || n->steps < 2 ||
        store->next || p->held[store->buffer] != n->extent || n->extent < lanes ||
        n->extent % lanes != pairs->half ||
        width_at(p, pairs->start, n->extent, 4, p->fills) != pairs->half ||
        !ex_stride(prepare(p, store->index[0]), n->unrolled[0]->var, &stride) ||
        stride != n->extent)
        return false;
    if (n->is_dot) return dt == DT_i32 && lanes_dot_pairs(&n->dot) && is_shared(n, n->dot.columns);
    return dt == DT_f32 && find_factors(p, n, store, pairs);
}

static const char *pair_function(Printer *p, const Pairs *pairs, const char *name) {
    return unit_lane_function(p->unit, TEXT("%s%s", name, pairs->suffix), 2 * pairs->half);
}

/* The nest inside of loops over the depth, with hints beside it or without; NULL: there is none. */
static const Stmt *nest_inside(const Stmt *loop) {
    while (loop && loop->kind == ST_for && loop->role == ROLE_serial) {
        loop = loop->body;
        while (loop && loop->kind == ST_prefetch) loop = loop->next;
        if (loop && loop->next) return NULL;
    }
    return loop;
}

/* The name of what holds the half of such a row. */
static const char *half_of(const Printer *p, const Pairs *pairs, int64_t row) {
    return p->held_name[pairs->buffer][row * pairs->extent + pairs->start];
}

bool begin_pairs(Printer *p, const Stmt *loop) {
    VectorNest n;
    Pairs pairs;
    if (!p->unit->vector_bytes || p->pair || loop->role != ROLE_serial) return false;
    const Stmt *s = nest_inside(loop);
    if (!s || s == loop || !find_nest(p, s, &n) || !find_pairs(p, &n, &pairs)) return false;
    const char *type = lane_type(p, n.is_dot ? DT_i32 : DT_f32, 2 * pairs.half);
    p->pair = ARENA_ARRAY(p->scratch, n.steps, const char *);
    for (int64_t row = 0; row + 1 < n.steps; row += 2) {
        p->pair[row] = names_take(&p->names, TEXT("v%d", p->n_values++), "v");
        print_line(p, "%s %s = %s(%s, %s);", type, p->pair[row], pair_function(p, &pairs, "join"),
                   half_of(p, &pairs, row), half_of(p, &pairs, row + 1));
    }
    return true;
}

void end_pairs(Printer *p, const Stmt *loop) {
    VectorNest n;
    Pairs pairs;
    const char **pair = p->pair;
    p->pair = NULL;
    if (!find_nest(p, nest_inside(loop), &n) || !find_pairs(p, &n, &pairs)) return;
    for (int64_t row = 0; row < n.steps / 2 * 2; row++)
        print_line(p, "%s = %s(%s);", half_of(p, &pairs, row),
                   pair_function(p, &pairs, row % 2 ? "high" : "low"), pair[row / 2 * 2]);
}

/* Adds the product to the halves of the row of this step and the next one; true if it has, or did
 * with the step before. */
static bool print_pair(Lanes *l, const VectorNest *n, int64_t step) {
    Printer *p = l->p;
    Pairs pairs;
    if (!p->pair || !find_pairs(p, n, &pairs) || l->start != pairs.start) return false;
    if (step % 2) return true;
    if (step + 1 == n->steps) return false;
    const int mark = p->named.n;
    if (!n->is_dot) lanes_begin(l, pairs.columns);
    const char *columns =
        n->is_dot ? lanes_columns_text(l, &n->dot) : lanes_text(l, pairs.columns, true);
    const char *row[2];
    for (int i = 0; i < 2; i++) {
        take_step(l, n, step + i);
        row[i] = n->is_dot ? lanes_row_text(l, &n->dot) : lanes_text(l, pairs.factor, false);
    }
    take_step(l, n, step);
    const char *both = TEXT("%s(%s, %s)", pair_function(p, &pairs, "both"), row[0], row[1]);
    const char *twice = TEXT("%s(%s)", pair_function(p, &pairs, "twice"), columns);
    if (n->is_dot)
        print_line(p, "%s = %s(%s, %s, %s);", p->pair[step],
                   unit_lane_function(p->unit, n->dot.function, 2 * pairs.half), p->pair[step],
                   both, twice);
    else
        print_line(p, "%s += %s * %s;", p->pair[step], both, twice);
    end_statement(p, mark);
    return true;
}

/* --- nests ------------------------------------------------------------------------------------ */

/* One iteration of the loop of role repeat, or all there is. */
static void print_nest(Lanes *l, const VectorNest *n) {
    Printer *p = l->p;
    keep_columns(l, n);
    if (n->n_shorts) {
        print_shorts(l, n);
        return;
    }
    int64_t n_put = count_put(l, n);
    for (int64_t step = 0; step < n->steps; step++) {
        take_step(l, n, step);
        for (l->start = 0; l->start < n->extent; l->start += l->width) {
            take_lanes(l, n);
            if (print_pair(l, n, step)) continue;
            if (n->is_dot) {
                print_dot(l, &n->dot);
                continue;
            }
            if (l->width == p->unit->vector_bytes / 4 && l->there == l->width && n_put > 0) {
                print_put(l, n->loop->body);
                n_put--;
                continue;
            }
            for (const Stmt *store = n->loop->body; store; store = store->next)
                print_lanes(l, store);
        }
    }
}

#define MOST_HELD 14 /* operands, each in and out, of which GCC takes 30 */

/* Has what the nest adds to in registers at this point, and nothing read before it that belongs
 * behind. */
static void print_hold(Printer *p, const VectorNest *n) {
    const int buffer = n->is_dot ? n->dot.store->buffer : n->loop->body->buffer;
    const Buffer *b = p->k->buffers.items[buffer];
    const int bytes = (int)dt_store(b->dt), most = p->unit->vector_bytes;
    const char *list = NULL;
    int count = 0;
    if (p->held[buffer] <= 0) return;
    for (int64_t row = 0; row < buffer_elements(b); row += p->held[buffer])
        for (int64_t at = 0, width; at < p->held[buffer]; at += width) {
            width = width_at(p, at, p->held[buffer], bytes, p->fills);
            if (width * bytes != most) continue;
            const char *name = p->held_name[buffer][row + at];
            list = TEXT("%s%sMLCC_HELD%d(%s)", list ? list : "", list ? ", " : "", most, name);
            if (++count % MOST_HELD) continue;
            print_line(p, "MLCC_HOLD%d(%s);", most, list);
            list = NULL;
        }
    if (list) print_line(p, "MLCC_HOLD%d(%s);", most, list);
    if (count) {
        p->unit->keeps |= (uint8_t)most;
        p->unit->holds |= (uint8_t)most;
    }
}

bool print_vectors(Printer *p, const Stmt *s) {
    VectorNest n;
    if (!p->unit->vector_bytes || !find_nest(p, s, &n)) return false;
    const bool held = (p->fills || p->repeats) && on_held(p, &n);
    n.fills = p->fills && held;
    Lanes l = {.p = p, .var = n.loop->var, .is_late = p->repeats && !n.repeat && held};
    p->repeats |= n.repeat != NULL;
    l.value = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    const int64_t repeats = n.repeat ? n.repeat->extent->k.i : 1;
    const bool wide = n.extent * n.widest > KEPT_VECTORS * p->unit->vector_bytes;
    /* Before the first step, too: else GCC may read all of its rows first. */
    const bool held_first = n.repeat && wide;
    for (int64_t i = 0; i < repeats; i++) {
        int scope = p->named.n;
        if (n.repeat) l.value[n.repeat->var] = ex_i(p->x, i);
        l.kept.n = 0;
        if (i > 0 || held_first) print_hold(p, &n);
        if (n.is_turned)
            print_turned(&l, &n);
        else
            print_nest(&l, &n);
        end_scope(p, scope);
    }
    if (s == p->rolled) print_hold(p, &n);
    return true;
}

typedef struct Rows {
    const VectorNest *nest;
    const Printer *p;
    bool vectors; /* are they some? */
} Rows;

static void look_at_row(void *user, const Expr *e) {
    Rows *u = user;
    if (e->op == EX_load && u->p->held[e->k.i] <= 0)
        u->vectors |= ex_depends(e, u->nest->loop->var) && !is_shared(u->nest, e);
}

/* Does the nest add products of columns, which all steps use, and rows, the same for all lanes? */
static bool is_product(Printer *p, const VectorNest *n) {
    const Stmt *store = n->loop->body;
    if (n->is_dot || n->steps < 2 || p->held[store->buffer] <= 0 || store->next) return false;
    Rows rows = {.nest = n, .p = p};
    ex_visit(p->scratch, prepare(p, store->value), look_at_row, &rows);
    return !rows.vectors;
}

static const Stmt *loop_alone(const Stmt *s) {
    return s->kind == ST_for && s->role == ROLE_serial && s->body && !s->body->next ? s->body
                                                                                    : NULL;
}

bool is_rolled(Printer *p, const Stmt *loop) {
    if (!p->unit->vector_bytes) return false;
    const Stmt *inner = loop_alone(loop), *nest = inner ? loop_alone(inner) : NULL;
    VectorNest n;
    if (nest && find_nest(p, nest, &n) && !n.repeat && is_product(p, &n)) p->rolled = nest;
    return p->rolled && p->rolled == loop->body;
}

void print_rolled(Printer *p, const Stmt *loop) {
    if (!is_rolled(p, loop)) return;
    p->unit->needs |= NEEDS_rolled;
    print_line(p, "MLCC_ROLLED");
}

/* --- strips ----------------------------------------------------------------------------------- */

/* Of bytes and words that are loaded, as i32? */
static bool is_short_sum(const Expr *e) {
    if (e->op == EX_cast) return e->arg[0]->op == EX_load && dt_is_short((DType)e->arg[0]->dt);
    if (e->op != EX_add && e->op != EX_sub) return false;
    return e->dt == DT_i32 && is_short_sum(e->arg[0]) && is_short_sum(e->arg[1]);
}

#define LARGEST_PLAIN_SELECT 20 /* nodes */

/* Bytes, half floats, functions and selects of much, which become branches, are what compilers make
 * poor vectors of; but not sums of bytes that are words again. */
static bool wants_lanes(const Printer *p, const Expr *e) {
    if (e->op == EX_cast && e->dt == DT_i16 && is_short_sum(e->arg[0])) return false;
    bool wants = dt_is_narrow((DType)e->dt) || (e->dt == DT_f32 && p->d->fn32_vector[e->op]);
    wants |= e->op == EX_select && e->dt == DT_f32 && e->size > LARGEST_PLAIN_SELECT;
    for (int i = 0; i < e->n && !wants; i++) wants = wants_lanes(p, e->arg[i]);
    return wants;
}

#define LEAST_REST  3 /* iterations that are worth being a vector of their own */
#define LEAST_WIDTH 4 /* of a vector */
#define FOUR        4

/* The body of a loop around one over two, three or four bytes, or four words, that lie side by
 * side: the store, and what is stored of each of the few. */
typedef struct Interleaved {
    const Stmt *store;
    const Expr *place; /* of the first */
    int few;
    const Expr *value[FOUR];
} Interleaved;

static bool read_interleaved(Printer *p, const Stmt *s, Interleaved *in) {
    const Stmt *loop = s->body;
    if (!loop || loop->kind != ST_for || loop->next || !ex_is_const(loop->extent)) return false;
    const Stmt *store = in->store = loop->body;
    if (!store || store->kind != ST_store || store->next) return false;
    const Buffer *b = p->k->buffers.items[store->buffer];
    const Expr *place = place_of(p, store), *value = prepare(p, store->value);
    const int64_t few = loop->extent->k.i;
    const bool bytes = dt_store(b->dt) == 1;
    if (!(few == FOUR ? bytes || b->dt == DT_i16 : few >= 2 && few < FOUR && bytes) ||
        b->space == SPACE_reg || !is_lane_type(b->dt) || (DType)value->dt != b->dt ||
        !lanes_apart(place, s->var, few) || !lanes_apart(place, loop->var, 1))
        return false;
    in->few = (int)few;
    const Expr **at = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    for (int i = in->few - 1; i >= 0; i--) {
        at[loop->var] = ex_i(p->x, i);
        in->value[i] = ex_subst_vars(p->x, value, p->k->vars.n, at);
        in->value[i] = ex_simplify(p->x, in->value[i], p->k->vars.n, p->extent);
        if (!lanes_can(p, in->value[i], s->var)) return false;
    }
    in->place = ex_subst_vars(p->x, place, p->k->vars.n, at);
    return true;
}

static void print_interleaved(Lanes *l, const Interleaved *in) {
    Printer *p = l->p;
    int mark = p->named.n;
    const Buffer *to = p->k->buffers.items[in->store->buffer];
    const bool words = to->dt == DT_i16;
    const char *part[FOUR], *type = lane_type(p, words ? DT_i16 : DT_u8, l->width);
    for (int i = 0; i < in->few; i++) {
        lanes_begin(l, in->value[i]);
        part[i] = TEXT("(%s)%s", type, lanes_text(l, in->value[i], true));
    }
    begin_statement(p, 1, &in->place);
    const char *place = print_address(p, in->store->buffer, in->place);
    if (in->few == 2) {
        const char *pairs = lane_type(p, DT_u16, l->width);
        print_line(p,
                   "*(%s_at *)%s = __builtin_convertvector(%s, %s) | (__builtin_convertvector(%s, "
                   "%s) << 8);",
                   pairs, place, part[0], pairs, part[1], pairs);
    } else if (in->few == 3)
        print_line(p, "%s((uint8_t *)%s, %s, %s, %s);",
                   unit_lane_function(p->unit, "put_threes", l->width), place, part[0], part[1],
                   part[2]);
    else if (words)
        print_line(p, "%s(%s, %s, %s, %s, %s);", unit_lane_function(p->unit, "put_fours", l->width),
                   place, part[0], part[1], part[2], part[3]);
    else
        print_line(p, "*(%s_at *)%s = %s(%s, %s, %s, %s);", lane_type(p, DT_i32, l->width), place,
                   unit_lane_function(p->unit, "fours", l->width), part[0], part[1], part[2],
                   part[3]);
    end_scope(p, mark);
}

typedef struct Rest {
    const Printer *p;
    int var;
    bool f32;
} Rest;

static void look_at_lanes(void *user, const Expr *e) {
    Rest *r = user;
    if (e->op != EX_load || !ex_depends(e, r->var)) return;
    r->f32 &= e->dt == DT_f32 && lanes_apart(e->arg[0], r->var, 1);
}

/* Can the rest of the loop's iterations, fewer than a vector has lanes, be one? Only floats are
 * read and written by some lanes alone. */
static bool rest_is_vector(Printer *p, const Stmt *s) {
    Rest r = {p, s->var, true};
    for (const Stmt *store = s->body; store && r.f32; store = store->next) {
        r.f32 = p->k->buffers.items[store->buffer]->dt == DT_f32;
        ex_visit(p->scratch, prepare(p, store->value), look_at_lanes, &r);
    }
    return r.f32;
}

typedef struct Calls {
    const Printer *p;
    bool any;
} Calls;

static void look_for_function(void *user, const Expr *e) {
    Calls *c = user;
    c->any |= e->dt == DT_f32 && c->p->d->fn32_vector[e->op];
}

/* Does the loop compute functions? Their instructions wait for each other, and a processor sees too
 * few of the next vector's to do meanwhile. */
static bool calls_functions(Printer *p, const Stmt *s) {
    Calls c = {p, false};
    for (const Stmt *store = s->body; store; store = store->next)
        ex_visit(p->scratch, prepare(p, store->value), look_for_function, &c);
    return c.any;
}

/* A store of several vectors, from the loop's variable on. */
static void print_together(Lanes *l, const Stmt *s) {
    Printer *p = l->p;
    const int mark = p->named.n;
    const Expr *value = prepare(p, s->value), *flat = place_of(p, s);
    const char *text[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
        l->start = i * l->width;
        lanes_begin(l, value);
        text[i] = lanes_named(l, value);
    }
    for (int i = 0; i < TOGETHER; i++) {
        l->start = i * l->width;
        print_line(p, "%s = %s;", lanes_at(l, s->buffer, flat), text[i]);
    }
    l->start = 0;
    end_statement(p, mark);
}

/* What the loop does in the lanes from its variable on. */
static void print_step(Lanes *l, const Stmt *s, const Interleaved *in, int together) {
    int scope = l->p->named.n;
    if (in) print_interleaved(l, in);
    for (const Stmt *store = in ? NULL : s->body; store; store = store->next)
        if (together > 1)
            print_together(l, store);
        else
            print_lanes(l, store);
    end_scope(l->p, scope);
}

/* As many whole vectors as there are before `last`, so many at once. */
static void print_steps(Lanes *l, const Stmt *s, const Interleaved *in, int together,
                        const char *last) {
    Printer *p = l->p;
    const char *var = p->var[s->var];
    const int by = together * l->width;
    const char *mixes = together > 1 ? "MLCC_MIXES && " : "";
    print_line(p, "for (; %s%s - %s >= %d; %s += %d) {", mixes, last, var, by, var, by);
    p->indent++;
    print_step(l, s, in, together);
    p->indent--;
    print_line(p, "}");
}

Strips print_strips(Printer *p, const Stmt *s, const char *first, const char *last) {
    int widest = 1;
    bool wanted = false;
    Interleaved in;
    if (!p->unit->vector_bytes || s->role > ROLE_vector) return STRIPS_none;
    bool interleaved = read_interleaved(p, s, &in);
    if (interleaved) {
        widest = 4;
        wanted = true;
    }
    for (const Stmt *store = s->body; store && !interleaved; store = store->next) {
        if (store->kind != ST_store) return STRIPS_none;
        const Buffer *b = p->k->buffers.items[store->buffer];
        const Expr *value = prepare(p, store->value);
        if (b->space == SPACE_reg || !is_lane_type(b->dt) || (DType)value->dt != b->dt ||
            !lanes_apart(place_of(p, store), s->var, 1) || !lanes_can(p, value, s->var))
            return STRIPS_none;
        wanted |= wants_lanes(p, value);
        if (widest < (int)dt_store(b->dt)) widest = (int)dt_store(b->dt);
        widest = lanes_widest(p, value, s->var, widest);
    }
    int width = p->unit->vector_bytes / widest;
    const bool rest = !interleaved && rest_is_vector(p, s);
    const int64_t extent = ex_is_const(s->extent) ? s->extent->k.i : INT64_MAX;
    if (!wanted || width < LEAST_WIDTH || extent < (rest ? LEAST_REST : LEAST_WIDTH))
        return STRIPS_none;
    print_line(p, "{");
    p->indent++;
    const char *var = p->var[s->var];
    print_line(p, "%s %s = %s;", index_type(p), var, first);
    Lanes l = {.p = p, .var = s->var, .width = width, .strip = true};
    l.value = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    int64_t left = extent; /* if all of the loop is done here */
    if (extent / TOGETHER >= width && !interleaved && !p->has_tile && calls_functions(p, s)) {
        p->mixed = true;
        print_steps(&l, s, NULL, TOGETHER, last);
    }
    if (extent == INT64_MAX) {
        print_steps(&l, s, interleaved ? &in : NULL, 1, last);
    } else {
        for (; l.width >= (rest ? width : LEAST_WIDTH); left %= l.width, l.width /= 2)
            if (left >= l.width) print_steps(&l, s, interleaved ? &in : NULL, 1, last);
    }
    const bool all = !strcmp(first, "0") && !strcmp(last, TEXT("%lld", (long long)extent));
    if (rest && left > 0) {
        l.width = width;
        print_line(p, "if (%s < %s) {", var, last);
        p->indent++;
        l.rest = TEXT("(int)(%s - %s)", last, var);
        print_step(&l, s, NULL, 1);
        p->indent--;
        print_line(p, "}");
    } else if (!rest && !(all && left == 0)) {
        return STRIPS_begun;
    }
    end_strips(p);
    return STRIPS_all;
}

void end_strips(Printer *p) {
    p->indent--;
    print_line(p, "}");
}

/* --- around the loops ------------------------------------------------------------------------- */

bool print_held_alloc(Printer *p, int buffer) {
    if (p->held[buffer] <= 0) return false;
    const Buffer *b = p->k->buffers.items[buffer];
    for (int64_t row = 0; row < buffer_elements(b); row += p->held[buffer])
        for (int64_t at = 0; at < p->held[buffer];) {
            int width = width_at(p, at, p->held[buffer], (int)dt_store(b->dt), p->fills);
            print_line(p, "%s %s;", lane_type(p, b->dt, width), p->held_name[buffer][row + at]);
            at += width;
        }
    return true;
}

static void find_held_in(HeldLoads *u, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->value) ex_visit(u->p->scratch, s->value, find_held, u);
        for (int i = 0; s->kind == ST_store && i < u->p->k->buffers.items[s->buffer]->rank; i++)
            ex_visit(u->p->scratch, s->index[i], find_held, u);
        find_held_in(u, s->body);
        find_held_in(u, s->other);
    }
}

static void store_row(Printer *p, int buffer, int64_t row, const char *to) {
    const Buffer *b = p->k->buffers.items[buffer];
    int width;
    for (int64_t at = 0; at < p->held[buffer]; at += width) {
        const char *name = p->held_name[buffer][row + at];
        int64_t rest = p->held[buffer] - at;
        width = width_at(p, at, p->held[buffer], (int)dt_store(b->dt), p->fills);
        if (width == 1)
            print_line(p, "%s[%lld] = %s;", to, (long long)(row + at), name);
        else if (width > rest)
            print_line(p, "%s(&%s[%lld], %s, %d);", put_first_function(p, b->dt, width), to,
                       (long long)(row + at), name, (int)rest);
        else
            print_line(p, "*(%s_at *)&%s[%lld] = %s;", lane_type(p, b->dt, width), to,
                       (long long)(row + at), name);
    }
}

void store_held(Printer *p, int buffer, const char *array) {
    const int64_t elements = buffer_elements(p->k->buffers.items[buffer]);
    for (int64_t row = 0; row < elements; row += p->held[buffer]) store_row(p, buffer, row, array);
}

bool spill_held(Printer *p, const Stmt *s) {
    bool any = false;
    if (!p->unit->vector_bytes || !only_reads(p, s->body)) return false;
    HeldLoads user = {p, ARENA_ARRAY(p->scratch, p->k->buffers.n + 1, bool), false};
    find_held_in(&user, s->body);
    for (int i = 0; i < p->k->buffers.n; i++) {
        if (!user.read[i]) continue;
        const Buffer *b = p->k->buffers.items[i];
        if (!any) {
            print_line(p, "{");
            p->indent++;
        }
        any = true;
        print_line(p, "%s %s[%lld] __attribute__((aligned(%d)));", mem_type(p->unit, b->dt),
                   p->buffer[i], (long long)buffer_elements(b), p->unit->vector_bytes);
        store_held(p, i, p->buffer[i]);
        p->held[i] = -p->held[i];
    }
    return any;
}

void unspill_held(Printer *p) {
    p->indent--;
    print_line(p, "}");
    for (int i = 0; i < p->k->buffers.n; i++)
        if (p->held[i] < -1) p->held[i] = -p->held[i];
}
