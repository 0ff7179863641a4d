/* Vector loops as vector types of GNU C; see cprint.h.
 *
 * A loop of role vector, alone inside of loops of role unroll, with nothing but stores in it, is
 * printed as straight lines, one for each step of the unrolled loops and each vector. Arrays in
 * registers that such loops alone store to become variables, one for each vector: compilers keep
 * variables in registers, arrays they often do not. Before a loop that only reads such an array,
 * and is none of these, the variables are written to an array.
 *
 * What does not depend on the loop is a scalar, and is spread over the lanes where it is used.
 */
#include "codegen/cexpr.h"

#include <math.h>
#include <string.h>

#define MAX_UNROLLED    8
#define MOST_STATEMENTS 512

#define TEXT(...) arena_printf(p->scratch, __VA_ARGS__)

typedef struct VectorNest {
    const Stmt *unrolled[MAX_UNROLLED];
    int n_unrolled;
    const Stmt *loop; /* the vector loop */
    int64_t extent;
    int64_t steps; /* of the unrolled loops together */
} VectorNest;

/* The lanes that one statement computes, in one step of the unrolled loops. */
typedef struct Lanes {
    Printer *p;
    int var;            /* of the vector loop */
    int64_t start;      /* its first value here */
    int width;          /* how many; 1: a scalar */
    const Expr **value; /* by variable: what it is in this step; NULL: itself */
} Lanes;

/* --- what can be a vector -------------------------------------------------------------------*/

static bool varies(const Expr *e, int var) {
    if (e->op == EX_var) return e->k.i == var;
    for (int i = 0; i < e->n; i++)
        if (varies(e->arg[i], var)) return true;
    return false;
}

static bool one_apart(const Expr *index, int var) {
    int64_t stride;
    return index && ex_stride(index, var, &stride) && stride == 1;
}

/* Types whose lanes lie in memory as they are computed with. */
static bool is_lane_type(DType dt) {
    return dt == DT_f32 || dt == DT_f64 || dt == DT_i32 || dt == DT_u32;
}

static bool vector_value(Printer *p, const Expr *e, int var) {
    if (!varies(e, var)) return true;
    DType dt = (DType)e->dt;
    switch ((ExprOp)e->op) {
    case EX_load:
        return is_lane_type(dt) && p->k->buffers.items[e->k.i]->dt == dt && e->n == 1 &&
               one_apart(e->arg[0], var);
    case EX_add:
    case EX_sub:
    case EX_mul:
    case EX_neg:
        if (dt != DT_f32 && dt != DT_f64 && dt != DT_u32) return false;
        break;
    case EX_div:
        if (!dt_is_float(dt)) return false;
        break;
    case EX_min:
    case EX_max:
        if (dt != DT_f32) return false;
        break;
    case EX_lt:
    case EX_le:
        if (e->arg[0]->dt != DT_f32) return false;
        break;
    case EX_select:
        if (dt != DT_f32 || !varies(e->arg[0], var)) return false;
        break;
    default:
        return false;
    }
    for (int i = 0; i < e->n; i++)
        if (!vector_value(p, e->arg[i], var)) return false;
    return true;
}

/* Reads `s` as a nest of the kind; false if it is none. */
static bool find_nest(Printer *p, const Stmt *s, VectorNest *n) {
    *n = (VectorNest){.steps = 1};
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
    if (n->extent < 2 || n->steps * n->extent > MOST_STATEMENTS * 16) return false;
    for (const Stmt *store = s->body; store; store = store->next) {
        if (store->kind != ST_store) return false;
        const Buffer *b = p->k->buffers.items[store->buffer];
        const Expr *value = prepare(p, store->value);
        const Expr *index[MAX_RANK];
        for (int i = 0; i < b->rank; i++) index[i] = prepare(p, store->index[i]);
        if (!is_lane_type(b->dt) || (DType)value->dt != b->dt ||
            !one_apart(flat_index(p, store->buffer, b->rank, index), s->var) ||
            !vector_value(p, value, s->var))
            return false;
    }
    return true;
}

/* --- arrays in registers --------------------------------------------------------------------*/

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

static int width_at(const Printer *p, int64_t start, int64_t extent, DType dt) {
    int64_t width = p->unit->vector_bytes / (int)dt_store(dt);
    while (width > 1 && width > extent - start) width /= 2;
    return width < 4 ? 1 : (int)width;
}

void hold_arrays(Printer *p) {
    int count = p->k->buffers.n;
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
                at += width_at(p, at, p->held[b], buffer->dt);
            }
    }
}

/* --- text -----------------------------------------------------------------------------------*/

/* The name of the vector type; its typedef is printed once. */
static const char *lane_type(Printer *p, DType dt, int width) {
    if (width == 1) return type_of(p, dt);
    int log = width == 4 ? 0 : width == 8 ? 1 : 2;
    p->unit->vectors[dt] |= (uint8_t)(1 << log);
    return TEXT("mlcc_%sx%d", dt_name(dt), width);
}

void print_vector_types(const Unit *unit, Text *out) {
    bool any = false;
    for (int dt = 0; dt < DT_count; dt++)
        for (int log = 0; log < 3; log++) {
            if (!(unit->vectors[dt] >> log & 1)) continue;
            int width = 4 << log;
            const char *type = unit->dialect->reg[dt];
            if (!any) text_add(out, "/* Vectors, and vectors as they lie in arrays. */\n");
            any = true;
            text_addf(out,
                      "typedef %s mlcc_%sx%d __attribute__((vector_size(%d)));\n"
                      "typedef %s mlcc_%sx%d_at __attribute__((vector_size(%d), aligned(%d), "
                      "may_alias));\n",
                      type, dt_name((DType)dt), width, width * (int)dt_store((DType)dt), type,
                      dt_name((DType)dt), width, width * (int)dt_store((DType)dt),
                      (int)dt_store((DType)dt));
        }
    if (any) text_add(out, "\n");
}

/* `e` in this step, at the first of the lanes. */
static const Expr *at_start(const Lanes *l, const Expr *e) {
    Printer *p = l->p;
    l->value[l->var] = ex_i(p->x, l->start);
    e = ex_subst_vars(p->x, e, p->k->vars.n, l->value);
    l->value[l->var] = NULL;
    return ex_simplify(p->x, e, p->k->vars.n, p->extent);
}

static const char *scalar_text(const Lanes *l, const Expr *e) {
    Printer *p = l->p;
    e = at_start(l, e);
    begin_statement(p, 1, &e);
    Piece piece = print(p, e);
    return piece.prec < P_unary ? TEXT("(%s)", piece.text) : piece.text;
}

/* The lanes of a buffer from the index on, to be read or, with `typed` lanes, written. */
static const char *lanes_at(const Lanes *l, int buffer, const Expr *index) {
    Printer *p = l->p;
    DType dt = p->k->buffers.items[buffer]->dt;
    index = at_start(l, index);
    if (p->held[buffer] > 0 && ex_is_const(index)) return p->held_name[buffer][index->k.i];
    begin_statement(p, 1, &index);
    const char *at = print(p, index).text;
    if (l->width == 1) return TEXT("%s[%s]", p->buffer[buffer], at);
    const char *is_const =
        p->k->buffers.items[buffer]->written || p->k->buffers.items[buffer]->space == SPACE_reg
            ? ""
            : "const ";
    return TEXT("*(%s%s_at *)&%s[%s]", is_const, lane_type(p, dt, l->width), p->buffer[buffer], at);
}

static const char *vector_text(const Lanes *l, const Expr *e);

/* The operand of a comparison or a select must be a vector on both sides. */
static const char *spread(const Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *text = vector_text(l, e);
    if (l->width == 1 || varies(e, l->var)) return text;
    /* minus zero stays what it is */
    return TEXT("(%s - (%s){0})", text, lane_type(p, (DType)e->dt, l->width));
}

static const char *blend(const Lanes *l, const char *mask, const char *yes, const char *no) {
    Printer *p = l->p;
    const char *bits = lane_type(p, DT_i32, l->width), *type = lane_type(p, DT_f32, l->width);
    return TEXT("(%s)(((%s)%s & %s) | ((%s)%s & ~%s))", type, bits, yes, mask, bits, no, mask);
}

static const char *local_name(const Lanes *l, const char *type, const char *text) {
    Printer *p = l->p;
    const char *name = names_take(&p->names, TEXT("v%d", p->n_values++), "v");
    print_line(p, "const %s %s = %s;", type, name, text);
    return name;
}

static const char *vector_text(const Lanes *l, const Expr *e) {
    Printer *p = l->p;
    if (!varies(e, l->var)) return scalar_text(l, e);
    if (e->op == EX_load) return lanes_at(l, (int)e->k.i, e->arg[0]);
    const char *type = lane_type(p, (DType)(e->dt == DT_bool ? DT_i32 : e->dt), l->width);
    switch ((ExprOp)e->op) {
    case EX_neg:
        return TEXT("(-%s)", vector_text(l, e->arg[0]));
    case EX_lt:
    case EX_le:
        return TEXT("(%s %s %s)", spread(l, e->arg[0]), ex_infix((ExprOp)e->op),
                    spread(l, e->arg[1]));
    case EX_min:
    case EX_max: { /* the comparison fails for NaN, which leaves the first operand */
        const Expr *second = e->arg[1];
        bool never_nan = ex_is_const(second) && !isnan(second->k.f);
        const char *sign = e->op == EX_min ? ">" : "<", *bits = lane_type(p, DT_i32, l->width);
        const char *a = local_name(l, type, spread(l, e->arg[0])), *b = spread(l, second);
        if (!never_nan) b = local_name(l, type, b);
        const char *mask = TEXT("%s %s %s", a, sign, b);
        if (!never_nan)
            mask = TEXT(l->width == 1 ? "%s || %s != %s" : "(%s) | (%s != %s)", mask, b, b);
        if (l->width == 1) return TEXT("(%s ? %s : %s)", mask, b, a);
        return blend(l, local_name(l, bits, mask), b, a);
    }
    case EX_select: {
        if (l->width == 1)
            return TEXT("(%s ? %s : %s)", vector_text(l, e->arg[0]), vector_text(l, e->arg[1]),
                        vector_text(l, e->arg[2]));
        const char *bits = lane_type(p, DT_i32, l->width);
        const char *mask = local_name(l, bits, vector_text(l, e->arg[0]));
        return blend(l, mask, spread(l, e->arg[1]), spread(l, e->arg[2]));
    }
    default:
        return TEXT("(%s %s %s)", vector_text(l, e->arg[0]), ex_infix((ExprOp)e->op),
                    vector_text(l, e->arg[1]));
    }
}

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

static void print_lanes(const Lanes *l, const Stmt *s) {
    Printer *p = l->p;
    int mark = p->named.n;
    const Expr *value = prepare(p, s->value), *index[MAX_RANK];
    const Buffer *b = p->k->buffers.items[s->buffer];
    for (int i = 0; i < b->rank; i++) index[i] = prepare(p, s->index[i]);
    const Expr *flat = flat_index(p, s->buffer, b->rank, index);
    const char *place = lanes_at(l, s->buffer, flat);
    bool held = p->held[s->buffer] > 0;
    if (held && value->op == EX_add)
        for (int i = 0; i < 2; i++) {
            const Expr *old = value->arg[i];
            if (old->op != EX_load || old->k.i != s->buffer || old->arg[0] != flat) continue;
            const char *by = vector_text(l, value->arg[1 - i]);
            print_line(p, "%s += %s;", place, without_parentheses(p, by));
            end_statement(p, mark);
            return;
        }
    const char *text = varies(value, l->var) ? vector_text(l, value) : spread(l, value);
    print_line(p, "%s = %s;", place, without_parentheses(p, text));
    end_statement(p, mark);
}

bool print_vectors(Printer *p, const Stmt *s) {
    VectorNest n;
    if (!p->unit->vector_bytes || !find_nest(p, s, &n)) return false;
    Lanes l = {.p = p, .var = n.loop->var};
    l.value = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    DType dt = p->k->buffers.items[n.loop->body->buffer]->dt;
    int scope = p->named.n;
    for (int64_t step = 0; step < n.steps; step++) {
        int64_t rest = step;
        for (int i = n.n_unrolled - 1; i >= 0; i--) {
            int64_t extent = n.unrolled[i]->extent->k.i;
            l.value[n.unrolled[i]->var] = ex_i(p->x, rest % extent);
            rest /= extent;
        }
        for (l.start = 0; l.start < n.extent; l.start += l.width) {
            l.width = width_at(p, l.start, n.extent, dt);
            for (const Stmt *store = n.loop->body; store; store = store->next)
                print_lanes(&l, store);
        }
    }
    end_scope(p, scope);
    return true;
}

/* --- around the loops -----------------------------------------------------------------------*/

bool print_held_alloc(Printer *p, int buffer) {
    if (p->held[buffer] <= 0) return false;
    const Buffer *b = p->k->buffers.items[buffer];
    for (int64_t at = 0; at < buffer_elements(b);) {
        int width = width_at(p, at % p->held[buffer], p->held[buffer], b->dt);
        print_line(p, "%s %s;", lane_type(p, b->dt, width), p->held_name[buffer][at]);
        at += width;
    }
    return true;
}

typedef struct HeldLoads {
    Printer *p;
    bool *read;
} HeldLoads;

static void find_held(void *user, const Expr *e) {
    HeldLoads *u = user;
    if (e->op == EX_load && u->p->held[e->k.i] > 0) u->read[e->k.i] = true;
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

bool spill_held(Printer *p, const Stmt *s) {
    bool any = false;
    if (!p->unit->vector_bytes || !only_reads(p, s->body)) return false;
    HeldLoads user = {p, ARENA_ARRAY(p->scratch, p->k->buffers.n + 1, bool)};
    find_held_in(&user, s->body);
    for (int i = 0; i < p->k->buffers.n; i++) {
        if (!user.read[i]) continue;
        const Buffer *b = p->k->buffers.items[i];
        if (!any) {
            print_line(p, "{");
            p->indent++;
        }
        any = true;
        print_line(p, "%s %s[%lld];", type_of(p, b->dt), p->buffer[i],
                   (long long)buffer_elements(b));
        for (int64_t at = 0; at < buffer_elements(b);) {
            int width = width_at(p, at % p->held[i], p->held[i], b->dt);
            if (width == 1)
                print_line(p, "%s[%lld] = %s;", p->buffer[i], (long long)at, p->held_name[i][at]);
            else
                print_line(p, "*(%s_at *)&%s[%lld] = %s;", lane_type(p, b->dt, width), p->buffer[i],
                           (long long)at, p->held_name[i][at]);
            at += width;
        }
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
