/* See clanes.h.
 *
 * What does not depend on the loop is a scalar, and is spread over the lanes where it is used.
 * Arithmetic of i32 lanes goes through u32: it wraps. A few operations have an instruction that GNU
 * C's vectors do not reach: they are functions with an intrinsic where the compiler's target has
 * it, and with vector operators elsewhere.
 */
#include "codegen/clanes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEXT(...) arena_printf(p->scratch, __VA_ARGS__)

/* --- what can be in lanes --------------------------------------------------------------------- */

bool lanes_apart(const Expr *index, int var, int64_t step) {
    int64_t stride;
    return index && ex_stride(index, var, &stride) && stride == step;
}

static bool is_half(DType dt) {
    return dt == DT_bf16 || dt == DT_f16;
}

bool is_lane_type(DType dt) {
    return dt == DT_f32 || dt == DT_f64 || dt == DT_i32 || dt == DT_u32 || dt_is_short(dt) ||
           is_half(dt);
}

/* What a byte, which may be stored as a word, is encoded from: zero + the integer nearest to
 * `value`, saturated; 0 is nearest to NaN. */
typedef struct Encoding {
    const Expr *value;
    int64_t zero;
    int lowest; /* that the byte can be: 0 or -128 */
    bool maybe_nan;
} Encoding;

static bool read_encoding(const Printer *p, const Expr *e, Encoding *to) {
    if (e->op != EX_cast || !dt_is_short((DType)e->dt) || e->arg[0]->dt != DT_i32) return false;
    const Expr *whole = e->arg[0];
    bool moved = whole->op == EX_add && ex_is_const(whole->arg[1]);
    int64_t zero = moved ? whole->arg[1]->k.i : 0;
    if (moved) whole = whole->arg[0];
    if (!ex_is_rounding(whole)) return false;
    double low, high;
    const Expr *bounded = whole->arg[0]->arg[0], *value = ex_bounded(bounded, &low, &high);
    int lowest = e->dt == DT_i8 || (e->dt == DT_i16 && low + (double)zero < 0) ? -128 : 0;
    if (low + (double)zero < lowest || high + (double)zero > lowest + 255) return false;
    bool plain = low + (double)zero == lowest && high + (double)zero == lowest + 255;
    double most = kernel_largest(p->k, value);
    *to =
        (Encoding){plain && most < 0x1p31 - 512 ? value : bounded, zero, lowest, most == HUGE_VAL};
    return true;
}

/* A function of one float. */
static bool is_function(const Printer *p, const Expr *e) {
    return e->n == 1 && e->dt == DT_f32 && e->arg[0]->dt == DT_f32 &&
           (p->d->fn32_vector[e->op] || p->d->fn32[e->op]);
}

#define MOST_WORDS 1024 /* nodes of a tree */

/* Does a word sum read words that registers hold? */
static bool reads_words(const Printer *p, const Expr *e) {
    if (e->op == EX_load) return e->dt == DT_i16 && p->k->buffers.items[e->k.i]->space == SPACE_reg;
    for (int i = 0; i < e->n; i++)
        if (reads_words(p, e->arg[i])) return true;
    return false;
}

/* A sum of words in registers, with other terms, in as many bits (sums_are_words). */
static bool adds_words(const Printer *p, const Expr *e, int var) {
    return e->op == EX_cast && e->dt == DT_i16 && e->size <= MOST_WORDS &&
           ex_is_word_sum(e->arg[0], var) && reads_words(p, e->arg[0]);
}

/* A byte that is chosen from others, in lanes of bytes? */
static bool chooses_bytes(const Expr *e, int var) {
    return e->op == EX_cast && dt_is_byte((DType)e->dt) &&
           ex_chooses_bytes(e->arg[0], (DType)e->dt, var);
}

static bool can_cast(DType from, DType to) {
    bool to_float = to == DT_f32 && (from == DT_i32 || dt_is_short(from) || is_half(from));
    if (is_half(to)) return from == DT_f32;
    if (to == DT_i16) return from == DT_i32 || dt_is_byte(from);
    return to_float || (to == DT_i32 && dt_is_short(from)) || (dt_is_byte(to) && from == DT_i32);
}

/* An element whose place is read from lanes: one of a table. */
static bool is_gather(const Expr *e, int var) {
    return ex_is_lookup(e) && !lanes_apart(e->arg[0], var, 1);
}

/* Is it every second element of a row in memory? */
static bool is_every_second(const Printer *p, const Expr *load, int var) {
    const Buffer *b = p->k->buffers.items[load->k.i];
    return load->dt == DT_f32 && b->space != SPACE_reg && lanes_apart(load->arg[0], var, 2);
}

/* An index that grows by one from lane to lane? */
static bool is_counted(const Expr *e, int var) {
    return e->dt == DT_i32 && e->op != EX_load && lanes_apart(e, var, 1);
}

static bool compares_floats(const Expr *e) {
    return (e->op == EX_lt || e->op == EX_le) && e->arg[0]->dt == DT_f32;
}

bool lanes_can(Printer *p, const Expr *e, int var) {
    if (!ex_depends(e, var) || is_counted(e, var)) return true;
    DType dt = (DType)e->dt;
    bool is_i32 = dt == DT_i32 || dt == DT_u32;
    switch ((ExprOp)e->op) {
    case EX_load:
        if (!is_lane_type(dt) || p->k->buffers.items[e->k.i]->dt != dt || e->n != 1) return false;
        if (is_gather(e, var)) return lanes_can(p, e->arg[0], var);
        return lanes_apart(e->arg[0], var, 1) || is_every_second(p, e, var);
    case EX_add:
    case EX_sub:
    case EX_mul:
    case EX_neg:
        if (!dt_is_float(dt) && !is_i32) return false;
        break;
    case EX_band:
        if (!is_i32) return false;
        break;
    case EX_shr:
        if (dt != DT_i32 || !ex_is_const(e->arg[1]) || e->arg[1]->k.i < 0 || e->arg[1]->k.i > 31)
            return false;
        break;
    case EX_div:
        if (!dt_is_float(dt)) return false;
        break;
    case EX_min:
    case EX_max:
        if (dt != DT_f32 && dt != DT_i32) return false;
        break;
    case EX_lt:
    case EX_le:
    case EX_eq:
    case EX_ne:
        if (e->arg[0]->dt != DT_f32 && e->arg[0]->dt != DT_i32) return false;
        break;
    case EX_and: /* of which the second is computed in any case */
    case EX_or:
        if (!loads_inside(p, e->arg[1])) return false;
        break;
    case EX_select:
        if (!ex_depends(e->arg[0], var)) {
            if (!is_lane_type(dt)) return false;
            break;
        }
        if (dt != DT_f32 && dt != DT_i32) return false;
        if (!compares_floats(e->arg[0]) &&
            !(loads_inside(p, e->arg[1]) && loads_inside(p, e->arg[2])))
            return false;
        break;
    case EX_cast:
        if (ex_is_rounding(e)) return lanes_can(p, e->arg[0]->arg[0], var);
        if (!can_cast((DType)e->arg[0]->dt, dt)) return false;
        break;
    default:
        if (!is_function(p, e)) return false;
    }
    for (int i = 0; i < e->n; i++)
        if (!lanes_can(p, e->arg[i], var)) return false;
    return true;
}

int lanes_widest(const Printer *p, const Expr *e, int var, int widest) {
    if (!ex_depends(e, var)) return widest;
    int bytes = e->dt == DT_bool ? 4 : (int)dt_store((DType)e->dt);
    if (bytes > widest) widest = bytes;
    if (adds_words(p, e, var) || chooses_bytes(e, var)) return widest;
    for (int i = 0; i < e->n && (e->op != EX_load || is_gather(e, var)); i++)
        widest = lanes_widest(p, e->arg[i], var, widest);
    return widest;
}

const Expr *widened_load(const Expr *e, DType dt) {
    if (e->op != EX_cast || e->arg[0]->op != EX_load || e->arg[0]->n != 1) return NULL;
    return (DType)e->arg[0]->dt == dt ? e->arg[0] : NULL;
}

/* Is `e` a byte that lanes side by side have side by side, or zero, or, as a condition that all of
 * them share tells, one of such? */
static bool is_row_of_bytes(const Expr *e, DType dt, int var) {
    if (e->op == EX_select)
        return !ex_depends(e->arg[0], var) && is_row_of_bytes(e->arg[1], dt, var) &&
               is_row_of_bytes(e->arg[2], dt, var);
    const Expr *load = widened_load(e, dt);
    return load ? lanes_apart(load->arg[0], var, 1) : ex_is_int(e, 0);
}

/* Reads `e` as such a byte for each of the four. */
static bool read_each(Printer *p, const Expr *e, DType dt, int few, int var, const Expr *row[4]) {
    const Expr **value = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    if (e->dt != DT_i32) return false;
    for (int i = 0; i < 4; i++) {
        value[few] = ex_i(p->x, i);
        const Expr *one = ex_subst_vars(p->x, e, p->k->vars.n, value);
        row[i] = ex_simplify(p->x, one, p->k->vars.n, p->extent);
        if (!is_row_of_bytes(row[i], dt, var)) return false;
    }
    return true;
}

/* Rows at the sum of what all lanes share and the bytes of a table? */
static bool read_moved(Printer *p, const Stmt *s, int var, LaneDot *dot) {
    const Expr *place = dot->rows->arg[0], *to = NULL;
    while (!to && place->op == EX_add) {
        for (int i = 0; i < 2 && !to; i++) {
            const Expr *e = widened_load(place->arg[i], DT_u8);
            if (e && ex_depends(e, var)) to = e;
        }
        if (!to) place = place->arg[ex_depends(place->arg[1], var)];
    }
    if (!to || !lanes_apart(to->arg[0], s->var, 1) || !lanes_apart(to->arg[0], var, dot->count))
        return false;
    const Expr *shared =
        ex_replace(p->x, dot->rows->arg[0], ex_cast(p->x, DT_i32, to), ex_i(p->x, 0));
    if (ex_depends(shared, var) || ex_depends(shared, s->var)) return false;
    dot->rows = ex_load(p->x, DT_u8, (int)dot->rows->k.i, 1, &shared);
    dot->to = to;
    return true;
}

typedef struct DotRow {
    DType sum, rows, columns;
    int count;
    const char *function; /* of lanes.def */
    bool spread;          /* it wants rows in all lanes, not in a word */
    const char *each;     /* the function for rows that differ from lane to lane; NULL: none */
    bool parts;           /* of columns of less than 128, parts of bytes */
} DotRow;

static const DotRow dots[] = {
    {DT_i32, DT_u8, DT_i8, 4, "dot", true, "dot", false},
    {DT_i32, DT_i8, DT_i8, 4, "dot_i8", false, "dot_i8_each", false},
    {DT_i32, DT_i8, DT_u8, 4, "dot_part", true, NULL, true},
    {DT_i32, DT_i16, DT_i16, 2, "dot_i16", true, NULL, false},
    {DT_f32, DT_bf16, DT_bf16, 2, "dot_bf16", false, NULL, false},
};

/* The most that a shift may be, a number times a variable at most; negative: not known. */
static int64_t most_shift(const Printer *p, const Expr *e) {
    if (ex_is_const(e)) return e->k.i;
    const bool times = e->op == EX_mul && ex_is_const(e->arg[1]);
    const Expr *var = times ? e->arg[0] : e;
    if (var->op != EX_var || p->extent[var->k.i] < 1) return -1;
    return (p->extent[var->k.i] - 1) * (times ? e->arg[1]->k.i : 1);
}

/* Reads a factor as a part of a byte, of less than 128: the load of the byte, or NULL. */
static const Expr *part_of_byte(Printer *p, const Expr *e, LaneDot *dot) {
    if (e->op != EX_band || !ex_is_const(e->arg[1])) return NULL;
    const Expr *of = e->arg[0];
    const int64_t mask = e->arg[1]->k.i;
    dot->shift = of->op == EX_shr ? of->arg[1] : ex_i(p->x, 0);
    const int64_t shift = most_shift(p, dot->shift);
    if (mask < 1 || mask > 127 || shift < 0 || shift > 7 || mask << shift > 255) return NULL;
    dot->mask = (int)mask;
    return widened_load(of->op == EX_shr ? of->arg[0] : of, DT_u8);
}

/* Reads a product of the few that `s` runs over as what a row adds. */
static bool read_product(Printer *p, const Expr *product, const Stmt *s, int var, const DotRow *row,
                         LaneDot *dot) {
    for (int k = 0; k < 2; k++) {
        const Expr *rows = widened_load(product->arg[k], row->rows);
        LaneDot part = {0};
        const Expr *columns = row->parts ? part_of_byte(p, product->arg[1 - k], &part)
                                         : widened_load(product->arg[1 - k], row->columns);
        if (part.shift && (ex_depends(part.shift, var) || ex_depends(part.shift, s->var))) continue;
        if (!columns || !lanes_apart(columns->arg[0], s->var, 1) ||
            !lanes_apart(columns->arg[0], var, row->count))
            continue;
        *dot = (LaneDot){.store = s->body,
                         .var = s->var,
                         .count = row->count,
                         .function = row->function,
                         .spread = row->spread,
                         .bytes = row->rows,
                         .rows = rows,
                         .columns = columns,
                         .shift = part.shift,
                         .mask = part.mask};
        if (rows && lanes_apart(rows->arg[0], s->var, 1) && !ex_depends(rows->arg[0], var))
            return true;
        if (s->role == ROLE_moved && rows && read_moved(p, s, var, dot)) return true;
        dot->each = row->each && read_each(p, product->arg[k], row->rows, s->var, var, dot->row);
        if (dot->each) {
            dot->function = row->each;
            return true;
        }
    }
    return false;
}

bool lanes_read_dot(Printer *p, const Stmt *s, int var, LaneDot *dot) {
    if (s->kind != ST_for || s->next || !ex_is_const(s->extent)) return false;
    const Stmt *store = s->body;
    if (!store || store->kind != ST_store || store->next) return false;
    const Buffer *b = p->k->buffers.items[store->buffer];
    if (b->space != SPACE_reg || b->rank != 1) return false;
    const Expr *value = prepare(p, store->value), *index = prepare(p, store->index[0]);
    if (value->op != EX_add || !lanes_apart(index, var, 1) || ex_depends(index, s->var))
        return false;
    for (size_t r = 0; r < sizeof dots / sizeof *dots; r++) {
        if (b->dt != dots[r].sum || s->extent->k.i != dots[r].count) continue;
        for (int i = 0; i < 2; i++) {
            const Expr *old = value->arg[i], *product = value->arg[1 - i];
            if (old->op != EX_load || old->k.i != store->buffer || old->arg[0] != index) continue;
            if (product->op == EX_mul && read_product(p, product, s, var, &dots[r], dot))
                return true;
        }
    }
    return false;
}

/* --- types and functions ---------------------------------------------------------------------- */

static int log_of(int width) {
    int log = 0;
    while (4 << log < width) log++;
    return log;
}

const char *lane_type(Printer *p, DType dt, int width) {
    if (width == 1) return dt_is_short(dt) || is_half(dt) ? mem_type(p->unit, dt) : type_of(p, dt);
    mem_type(p->unit, dt);
    p->unit->vectors[dt] |= (uint8_t)(1 << log_of(width));
    return TEXT("mlcc_%sx%d", dt_name(dt), width);
}

typedef struct LaneRow {
    const char *name;
    int width;
    const char *result, *parameters, *body;
} LaneRow;

static const LaneRow rows[] = {
#define LANE(name, width, result, parameters, body) {#name, width, result, parameters, body},
#include "codegen/lanes.def"
};

#define N_ROWS (int)(sizeof rows / sizeof *rows)
_Static_assert(N_ROWS <= 64 * LANE_WORDS, "one bit each");

void unit_note_vectors(Unit *unit, const char *text) {
    for (int dt = 0; dt < DT_count; dt++)
        for (int log = 0; log < 5; log++) {
            char name[32];
            int n = snprintf(name, sizeof name, "mlcc_%sx%d", dt_name((DType)dt), 4 << log);
            for (const char *at = text; (at = strstr(at, name)); at += n)
                if (at[n] < '0' || at[n] > '9') unit->vectors[dt] |= (uint8_t)(1 << log);
        }
}

const char *unit_lane_function(Unit *unit, const char *name, int lanes) {
    bool found = false;
    for (int i = 0; i < N_ROWS && !found; i++) {
        const LaneRow *row = &rows[i];
        found = row->width == lanes && !strcmp(row->name, name);
        uint64_t *noted = &unit->lane_rows[i / 64], bit = (uint64_t)1 << i % 64;
        if (!found || *noted & bit) continue;
        unit_note_vectors(unit, row->result);
        unit_note_vectors(unit, row->parameters);
        unit_note_vectors(unit, row->body);
        if (strstr(row->body, "f(x[i])")) unit->needs |= NEEDS_math; /* the C library's */
        *noted |= bit;
    }
    if (!found) unit_lane_helper(unit, name, lanes);
    return arena_printf(unit->arena, "mlcc_lane_%sx%d", name, lanes);
}

static const char *lane_function(Printer *p, const char *name, int width) {
    return unit_lane_function(p->unit, name, width);
}

/* Always: a compiler that thinks a kernel has grown enough would call some of many copies, and save
 * all registers around each. */
#define ALWAYS_INLINE "static inline __attribute__((always_inline)) "

static void print_lane_function(const LaneRow *row, Text *out) {
    text_addf(out, ALWAYS_INLINE "%s mlcc_lane_%sx%d(%s) {\n%s}\n\n", row->result, row->name,
              row->width, row->parameters, row->body);
}

/* For vectors of so many bytes, in registers that the letter stands for. */
static void print_keep(Text *out, int bytes, const char *letter, bool holds) {
    text_addf(out, "#define MLCC_KEEP%d(v) __asm__(\"\" : \"+%s\"(v))\n", bytes, letter);
    if (!holds) return;
    text_addf(out,
              "#if defined(__clang__)\n#define MLCC_HOLD%d(...)\n#else\n"
              "#define MLCC_HELD%d(v) \"+%s\"(v)\n"
              "#define MLCC_HOLD%d(...) __asm__ volatile(\"\" : __VA_ARGS__ : : \"memory\")\n"
              "#endif\n",
              bytes, bytes, letter, bytes);
}

static void print_keeps(const Unit *unit, Text *out) {
    if (unit->keeps)
        text_add(out,
                 "/* A vector that several statements use stays in a register. GCC would make it\n"
                 " * an operand in memory, which costs a load for every use. */\n");
    if (unit->holds)
        text_add(
            out,
            "/* Sums stay there between iterations that stand one after the other: GCC would\n"
            " * read for the next one before, and then have no registers for them. Clang keeps\n"
            " * their order, and has no registers for so many operands of one statement. */\n");
    for (int bytes = 16; bytes <= 64; bytes *= 2) {
        if (!(unit->keeps & bytes)) continue;
        const char *x86 = bytes == 16 ? "__SSE__" : bytes == 32 ? "__AVX__" : "__AVX512F__";
        text_addf(out, "#if defined(__GNUC__) && defined(%s)\n", x86);
        print_keep(out, bytes, bytes == 64 ? "v" : "x", unit->holds & bytes);
        if (bytes == 16) {
            text_add(out, "#elif defined(__GNUC__) && defined(__aarch64__)\n");
            print_keep(out, bytes, "w", unit->holds & bytes);
        }
        text_addf(out, "#else\n#define MLCC_KEEP%d(v)\n", bytes);
        if (unit->holds & bytes) text_addf(out, "#define MLCC_HOLD%d(...)\n", bytes);
        text_add(out, "#endif\n");
    }
    if (unit->keeps) text_add(out, "\n");
}

static bool uses_row(const Unit *unit, int i) {
    return unit->lane_rows[i / 64] >> i % 64 & 1;
}

void print_vector_types(const Unit *unit, Text *out) {
    bool any = false, functions = false;
    for (int i = 0; i < LANE_WORDS; i++) functions |= unit->lane_rows[i] != 0;
    if (functions)
        text_add(out, "#if defined(__SSE__)\n#include <immintrin.h>\n#elif defined(__ARM_NEON)\n"
                      "#include <arm_neon.h>\n#endif\n\n");
    for (int i = 0; i < N_ROWS; i++)
        if (uses_row(unit, i) && !strncmp(rows[i].name, "dot", 3)) {
            text_add(
                out,
                "/* Four bytes of an array, of whatever type. */\ntypedef uint32_t mlcc_four_at "
                "__attribute__((aligned(1), may_alias));\n\n");
            break;
        }
    for (int dt = 0; dt < DT_count; dt++)
        for (int log = 0; log < 5; log++) {
            int width = 4 << log, bytes = width * (int)dt_store((DType)dt);
            if (!(unit->vectors[dt] >> log & 1)) continue;
            const char *type =
                dt_is_narrow((DType)dt) ? unit->dialect->mem[dt] : unit->dialect->reg[dt];
            if (!any) text_add(out, "/* Vectors, and vectors as they lie in arrays. */\n");
            any = true;
            text_addf(out,
                      "typedef %s mlcc_%sx%d __attribute__((vector_size(%d)));\n"
                      "typedef %s mlcc_%sx%d_at __attribute__((vector_size(%d), aligned(%d), "
                      "may_alias));\n",
                      type, dt_name((DType)dt), width, bytes, type, dt_name((DType)dt), width,
                      bytes, (int)dt_store((DType)dt));
        }
    if (any) text_add(out, "\n");
    print_keeps(unit, out);
    for (int i = 0; i < N_ROWS; i++)
        if (uses_row(unit, i)) print_lane_function(&rows[i], out);
    print_lane_helpers(unit, ALWAYS_INLINE, out);
}

/* --- text ------------------------------------------------------------------------------------- */

/* `e` in this step, at the first of the lanes. */
static const Expr *at_start(const Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const Expr *start = ex_i(p->x, l->start);
    l->value[l->var] = l->strip ? ex_add(p->x, ex_var(p->x, l->var), start) : start;
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

bool lanes_missing(const Lanes *l, int buffer) {
    return (l->rest || (l->there && l->there < l->width)) && l->p->held[buffer] <= 0;
}

/* How many are there. */
static const char *count_of(const Lanes *l) {
    return l->rest ? l->rest : arena_printf(l->p->scratch, "%d", l->there);
}

/* The function of lanes.def that loads, or stores (`what`), the first lanes of such a type. */
static const char *first_function(Printer *p, const char *what, DType dt, int width) {
    return lane_function(p, dt == DT_f32 ? what : TEXT("%s_%s", what, dt_name(dt)), width);
}

static const char *first_lanes(Lanes *l, DType dt, const char *place) {
    Printer *p = l->p;
    return TEXT("%s(%s, %s)", first_function(p, "first", dt, l->width), place, count_of(l));
}

const char *put_first_function(Printer *p, DType dt, int width) {
    return first_function(p, "put_first", dt, width);
}

void lanes_put_first(Lanes *l, int buffer, const Expr *index, const char *value) {
    Printer *p = l->p;
    index = at_start(l, index);
    begin_statement(p, 1, &index);
    print_line(p, "%s(%s, %s, %s);",
               put_first_function(p, p->k->buffers.items[buffer]->dt, l->width),
               print_address(p, buffer, index), value, count_of(l));
}

const char *lanes_at(Lanes *l, int buffer, const Expr *index) {
    Printer *p = l->p;
    const Buffer *b = p->k->buffers.items[buffer];
    index = at_start(l, index);
    if (p->held[buffer] > 0 && ex_is_const(index)) return p->held_name[buffer][index->k.i];
    begin_statement(p, 1, &index);
    const char *place = print_place(p, buffer, index);
    if (l->width == 1) return place;
    if (lanes_missing(l, buffer)) return first_lanes(l, b->dt, TEXT("&%s", place));
    const char *is_const = b->written || b->space == SPACE_reg ? "" : "const ";
    return TEXT("*(%s%s_at *)&%s", is_const, lane_type(p, b->dt, l->width), place);
}

/* The type of the vectors that `load` gives: columns of a dot are loaded as i32. */
static DType loaded_type(const Expr *load) {
    return dt_is_narrow((DType)load->dt) ? DT_i32 : (DType)load->dt;
}

static const char *kept_name(const Lanes *l, const Expr *load, const Expr *shift) {
    for (int i = 0; i < l->kept.n; i++) {
        const KeptLoad *k = &l->kept.items[i];
        if (k->load == load && k->shift == shift && k->start == l->start) return k->name;
    }
    return NULL;
}

/* Gives the vector a name that the C compiler keeps in a register. */
static void keep(Lanes *l, const Expr *load, const Expr *shift, const char *text) {
    Printer *p = l->p;
    const DType dt = loaded_type(load);
    const int bytes = l->width * (int)dt_store(dt);
    const char *name = names_take(&p->names, TEXT("v%d", p->n_values++), "v");
    print_line(p, "%s %s = %s;", lane_type(p, dt, l->width), name, text);
    print_line(p, "MLCC_KEEP%d(%s);", bytes, name);
    p->unit->keeps |= (uint8_t)bytes;
    KeptLoad kept = {load, shift, l->start, name};
    vec_push(p->scratch, &l->kept, kept);
}

void lanes_keep(Lanes *l, const Expr *load) {
    Printer *p = l->p;
    int mark = p->named.n;
    if (l->width == 1 || kept_name(l, load, NULL)) return;
    const Expr *index = at_start(l, load->arg[0]);
    const char *type = lane_type(p, loaded_type(load), l->width);
    begin_statement(p, 1, &index);
    const char *place = print_address(p, (int)load->k.i, index);
    keep(l, load, NULL,
         lanes_missing(l, (int)load->k.i) ? first_lanes(l, loaded_type(load), place)
                                          : TEXT("*(const %s_at *)%s", type, place));
    end_statement(p, mark);
}

static void count_uses(void *user, const Expr *e) {
    Lanes *l = user;
    if (e->op == EX_load && !is_gather(e, l->var)) return; /* an index is no value of lanes */
    for (int i = 0; i < e->n; i++)
        for (int k = l->values.n - 1; k >= 0; k--)
            if (l->values.items[k].e == e->arg[i]) {
                l->values.items[k].uses++;
                break;
            }
    LaneValue value = {.e = e};
    if (ex_depends(e, l->var)) vec_push(l->p->scratch, &l->values, value);
}

void lanes_begin(Lanes *l, const Expr *e) {
    l->values.n = 0;
    ex_visit(l->p->scratch, e, count_uses, l);
}

static LaneValue *shared_value(Lanes *l, const Expr *e) {
    for (int i = 0; i < l->values.n; i++)
        if (l->values.items[i].e == e)
            return l->values.items[i].uses > 1 ? &l->values.items[i] : NULL;
    return NULL;
}

static const char *blend(Lanes *l, DType dt, const char *mask, const char *yes, const char *no) {
    Printer *p = l->p;
    const char *bits = lane_type(p, DT_i32, l->width), *type = lane_type(p, dt, l->width);
    return TEXT("((%s)(((%s)%s & %s) | ((%s)%s & ~%s)))", type, bits, yes, mask, bits, no, mask);
}

static const char *local_name(Lanes *l, const char *type, const char *text) {
    Printer *p = l->p;
    const char *name = names_take(&p->names, TEXT("v%d", p->n_values++), "v");
    print_line(p, "const %s %s = %s;", type, name, text);
    return name;
}

/* min or max; the comparison fails for NaN, which leaves the first operand */
static const char *bounded(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    DType dt = (DType)e->dt;
    const Expr *second = e->arg[1];
    bool never_nan = ex_is_const(second) && !isnan(second->k.f), most = e->op == EX_max;
    const char *a = lanes_text(l, e->arg[0], true), *b = lanes_text(l, second, true);
    if (dt == DT_f32 && l->width > 1) {
        const char *name = never_nan ? (most ? "no_less" : "no_more") : ex_name((ExprOp)e->op);
        return TEXT("%s(%s, %s)", lane_function(p, name, l->width), a, b);
    }
    if (dt == DT_f32 && !never_nan)
        return TEXT("%s(%s, %s)", unit_helper(p->unit, most ? "mlcc_max_f32" : "mlcc_min_f32"), a,
                    b);
    const char *sign = most ? "<" : ">", *bits = lane_type(p, DT_i32, l->width);
    const char *type = lane_type(p, dt, l->width);
    a = local_name(l, type, a);
    if (!ex_is_const(second)) b = local_name(l, type, b);
    const char *mask = TEXT("%s %s %s", a, sign, b);
    if (l->width == 1) return TEXT("(%s ? %s : %s)", mask, b, a);
    return blend(l, dt, local_name(l, bits, mask), b, a);
}

/* An integer of which the low byte alone matters: what rounding leaves above it may stay. */
static const char *low_byte(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const Expr *rounding = e->op == EX_add && ex_is_const(e->arg[1]) ? e->arg[0] : e;
    if (!ex_is_rounding(rounding) || shared_value(l, rounding)) return lanes_text(l, e, false);
    const char *a = lanes_text(l, rounding->arg[0]->arg[0], true);
    const char *type = lane_type(p, DT_i32, l->width);
    const char *bits = TEXT("(%s)(%s + 12582912.0f)", type, a);
    return rounding == e ? bits : TEXT("%s + %lld", bits, (long long)e->arg[1]->k.i);
}

/* What ex_is_word_sum holds for, in lanes of 16 bits. */
static const char *word_sum(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *type = lane_type(p, DT_i16, l->width), *bits = lane_type(p, DT_u16, l->width);
    if (!ex_depends(e, l->var)) return TEXT("((int16_t)%s - (%s){0})", scalar_text(l, e), type);
    if (e->op == EX_cast && e->arg[0]->dt == DT_i16) return lanes_text(l, e->arg[0], false);
    if (e->op == EX_cast)
        return TEXT("__builtin_convertvector(%s, %s)", lanes_text(l, e->arg[0], false), type);
    const char *a = word_sum(l, e->arg[0]);
    if (e->op == EX_neg) return TEXT("((%s)-(%s)%s)", type, bits, a);
    return TEXT("((%s)((%s)%s %s (%s)%s))", type, bits, a, ex_infix((ExprOp)e->op), bits,
                word_sum(l, e->arg[1]));
}

static const char *chosen(Lanes *l, const Expr *e, DType dt);

/* What ex_chooses_bytes holds for, in lanes of bytes. */
static const char *byte_choice(Lanes *l, const Expr *e, DType dt) {
    Printer *p = l->p;
    if (ex_is_const(e)) {
        const int64_t least = byte_least(dt), most = byte_most(dt), i = e->k.i;
        return TEXT("((%s)%d - (%s){0})", mem_type(p->unit, dt),
                    (int)(i < least  ? least
                          : i > most ? most
                                     : i),
                    lane_type(p, dt, l->width));
    }
    if (e->op == EX_cast) return lanes_text(l, e->arg[0], true);
    if (e->op == EX_select) return chosen(l, e, dt);
    const char *a = byte_choice(l, e->arg[0], dt), *b = byte_choice(l, e->arg[1], dt);
    const char *name = TEXT("%s_%s", e->op == EX_max ? "larger" : "smaller", dt_name(dt));
    return TEXT("%s(%s, %s)", lane_function(p, name, l->width), a, b);
}

static const char *converted(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    DType to = (DType)e->dt;
    const char *type = lane_type(p, to, l->width);
    if (ex_is_rounding(e)) { /* the sum's last bit is 1; 0 of NaN, as everywhere */
        const char *a =
            local_name(l, lane_type(p, DT_f32, l->width), lanes_text(l, e->arg[0]->arg[0], true));
        const char *sum = TEXT("(%s + 12582912.0f)", a);
        if (l->width == 1) return TEXT("(%s == %s ? (int32_t)(%s - 12582912.0f) : 0)", a, a, sum);
        const char *whole = TEXT("((%s)%s - 0x4b400000)", type, sum);
        if (kernel_largest(p->k, e->arg[0]->arg[0]) < HUGE_VAL) return whole;
        return TEXT("(%s & (%s == %s))", whole, a, a);
    }
    DType from = (DType)e->arg[0]->dt;
    if (to == DT_f32 && ex_is_rounding(e->arg[0])) { /* no integer in between */
        const char *a = local_name(l, type, lanes_text(l, e->arg[0]->arg[0]->arg[0], true));
        const char *sum = TEXT("((%s + 12582912.0f) - 12582912.0f)", a);
        if (kernel_largest(p->k, e->arg[0]->arg[0]->arg[0]) < HUGE_VAL) return sum;
        if (l->width == 1) return TEXT("(%s == %s ? %s : 0.0f)", a, a, sum);
        const char *bits = lane_type(p, DT_i32, l->width);
        return TEXT("((%s)((%s)%s & (%s == %s)))", type, bits, sum, a, a);
    }
    if (dt_is_short(from) && to == DT_f32) { /* as i32 in between */
        const Expr *whole = ex_cast(p->x, DT_i32, e->arg[0]);
        const char *a = converted(l, whole);
        return l->width == 1 ? TEXT("((%s)%s)", type, a)
                             : TEXT("__builtin_convertvector(%s, %s)", a, type);
    }
    if (l->width > 1 && adds_words(p, e, l->var)) return word_sum(l, e->arg[0]);
    if (l->width > 1 && chooses_bytes(e, l->var)) return byte_choice(l, e->arg[0], to);
    bool narrows = dt_is_byte(to) && l->width > 1 && l->width <= 16;
    const char *a = narrows ? low_byte(l, e->arg[0]) : lanes_text(l, e->arg[0], false);
    if (is_half(from) || is_half(to)) {
        const char *half = dt_name(is_half(from) ? from : to);
        if (l->width > 1)
            return TEXT("%s(%s)",
                        lane_function(p, TEXT(is_half(from) ? "from_%s" : "to_%s", half), l->width),
                        a);
        const char *name = TEXT(is_half(from) ? "mlcc_%s_decode" : "mlcc_%s_encode", half);
        return TEXT(is_half(from) ? "%s(%s)" : "(uint16_t)%s(%s)", unit_helper(p->unit, name), a);
    }
    if (l->width == 1) return TEXT("((%s)%s)", type, a);
    if (dt_is_byte(from) && to == DT_i32 && l->width <= 16)
        return TEXT("%s(%s)", lane_function(p, from == DT_u8 ? "from_u8" : "from_i8", l->width), a);
    if (narrows)
        return TEXT("%s(%s)", lane_function(p, to == DT_u8 ? "to_u8" : "to_i8", l->width), a);
    return TEXT("__builtin_convertvector(%s, %s)", a, type);
}

static const char *arithmetic(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *sign = ex_infix((ExprOp)e->op);
    if (e->dt != DT_i32)
        return TEXT("(%s %s %s)", lanes_text(l, e->arg[0], false), sign,
                    lanes_text(l, e->arg[1], false));
    const char *type = lane_type(p, DT_i32, l->width), *bits = lane_type(p, DT_u32, l->width);
    return TEXT("((%s)((%s)%s %s (%s)%s))", type, bits, lanes_text(l, e->arg[0], true), sign, bits,
                lanes_text(l, e->arg[1], true));
}

/* One lane after the other where there is no function on vectors: compilers make vectors of such a
 * loop if they can. */
static const char *called(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *a = lanes_text(l, e->arg[0], true), *on_lanes = p->d->fn32_vector[e->op];
    if (on_lanes && l->width > 1)
        return TEXT("%s(%s)", lane_function(p, ex_name((ExprOp)e->op), l->width), a);
    const char *name = function_name(p, (ExprOp)e->op, DT_f32);
    if (l->width == 1) return TEXT("%s(%s)", name, a);
    const char *type = lane_type(p, DT_f32, l->width);
    const char *list = names_take(&p->names, TEXT("v%d", p->n_values++), "v");
    const char *lane = names_take(&p->names, "lane", "v");
    print_line(p, "%s %s[%d];", type_of(p, DT_f32), list, l->width);
    print_line(p, "*(%s_at *)%s = %s;", type, list, a);
    print_line(p, "for (int32_t %s = 0; %s < %d; %s++) %s[%s] = %s(%s[%s]);", lane, lane, l->width,
               lane, list, lane, name, list, lane);
    return TEXT("*(%s_at *)%s", type, list);
}

static const char *gathered(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *at = lanes_text(l, e->arg[0], true), *table = p->buffer[e->k.i];
    if (l->width == 1) return TEXT("%s[%s]", table, at);
    const char *name = TEXT("table_%s", dt_name((DType)e->dt));
    return TEXT("%s(%s, %s)", lane_function(p, name, l->width), table, at);
}

static const char *every_second(Lanes *l, const Expr *load) {
    Printer *p = l->p;
    const Expr *index = at_start(l, load->arg[0]);
    begin_statement(p, 1, &index);
    return TEXT("%s(%s)", lane_function(p, "seconds", l->width),
                print_address(p, (int)load->k.i, index));
}

static const char *counted(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *first = scalar_text(l, e), *list = "0";
    if (l->width == 1) return first;
    for (int i = 1; i < l->width; i++) list = TEXT("%s, %d", list, i);
    return TEXT("((%s){%s} + %s)", lane_type(p, DT_i32, l->width), list, first);
}

/* A comparison: in lanes, -1 where it holds and else 0. */
static const char *compared(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *sign = ex_infix((ExprOp)e->op);
    if (is_counted(e->arg[0], l->var) && !ex_depends(e->arg[1], l->var))
        return TEXT("(%s %s %s)", counted(l, e->arg[0]), sign, scalar_text(l, e->arg[1]));
    return TEXT("(%s %s %s)", lanes_text(l, e->arg[0], true), sign, lanes_text(l, e->arg[1], true));
}

/* Both, or one of the two. */
static const char *combined(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    const char *part[2];
    for (int i = 0; i < 2; i++) {
        bool same = l->width > 1 && !ex_depends(e->arg[i], l->var);
        part[i] = same ? TEXT("-(%s)", scalar_text(l, e->arg[i])) : lanes_text(l, e->arg[i], true);
    }
    const char *sign = e->op == EX_and ? "&" : "|";
    return TEXT("(%s %s %s)", part[0], sign, part[1]);
}

/* In lanes of the type, its own or that of bytes. */
static const char *arm_text(Lanes *l, const Expr *e, DType dt) {
    return dt == (DType)e->dt ? lanes_text(l, e, true) : byte_choice(l, e, dt);
}

/* A select of the same arm in all lanes, of the type as in arm_text: the arms are evaluated only if
 * they are wanted. */
static const char *chosen(Lanes *l, const Expr *e, DType dt) {
    Printer *p = l->p;
    const Expr *cond = at_start(l, e->arg[0]);
    if (ex_is_const(cond)) return arm_text(l, e->arg[cond->k.i ? 1 : 2], dt);
    const char *name = names_take(&p->names, TEXT("v%d", p->n_values++), "v");
    const char *test = scalar_text(l, e->arg[0]);
    print_line(p, "%s %s;", lane_type(p, dt, l->width), name);
    for (int arm = 1; arm <= 2; arm++) {
        const int mark = p->named.n, n_kept = l->kept.n, n_late = l->late.n;
        const LaneValue *before =
            arena_copy(p->scratch, l->values.items, (size_t)l->values.n * sizeof *before);
        if (arm == 1)
            print_line(p, "if (%s) {", test);
        else
            print_line(p, "} else {");
        p->indent++;
        print_line(p, "%s = %s;", name, arm_text(l, e->arg[arm], dt));
        p->indent--;
        /* what was named in here is not known outside */
        memcpy(l->values.items, before, (size_t)l->values.n * sizeof *before);
        l->kept.n = n_kept;
        l->late.n = n_late;
        end_scope(p, mark);
    }
    print_line(p, "}");
    return name;
}

/* A function of helpers.def that has no operator. */
static const char *whole(Lanes *l, const char *name, const Expr *x) {
    Printer *p = l->p;
    const char *text = lanes_text(l, x, true);
    if (l->width > 1) return TEXT("%s(%s)", lane_function(p, name, l->width), text);
    return TEXT("%s(%s)", unit_helper(p->unit, TEXT("mlcc_%s_f32", name)), text);
}

static const char *compute(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    if (is_counted(e, l->var)) return counted(l, e);
    if (is_function(p, e) && e->op != EX_neg) return called(l, e);
    const Expr *x = sigmoid_operand(p, e), *y = gelu_operand(p, e);
    if (x) return whole(l, "sigmoid", x);
    if (y) return whole(l, "gelu", y);
    switch ((ExprOp)e->op) {
    case EX_load: {
        const char *kept = kept_name(l, e, NULL);
        if (kept) return kept;
        if (is_gather(e, l->var)) return gathered(l, e);
        if (l->width > 1 && is_every_second(p, e, l->var)) return every_second(l, e);
        return lanes_at(l, (int)e->k.i, e->arg[0]);
    }
    case EX_neg:
        return TEXT("(-%s)", lanes_text(l, e->arg[0], false));
    case EX_shr:
        return TEXT("(%s >> %d)", lanes_text(l, e->arg[0], true), (int)e->arg[1]->k.i);
    case EX_lt:
    case EX_le:
    case EX_eq:
    case EX_ne:
        return compared(l, e);
    case EX_and:
    case EX_or:
        return combined(l, e);
    case EX_min:
    case EX_max:
        return bounded(l, e);
    case EX_cast:
        return converted(l, e);
    case EX_select: {
        if (!ex_depends(e->arg[0], l->var)) return chosen(l, e, (DType)e->dt);
        if (l->width == 1)
            return TEXT("(%s ? %s : %s)", lanes_text(l, e->arg[0], false),
                        lanes_text(l, e->arg[1], false), lanes_text(l, e->arg[2], false));
        const char *bits = lane_type(p, DT_i32, l->width);
        const char *mask = local_name(l, bits, lanes_text(l, e->arg[0], false));
        return blend(l, (DType)e->dt, mask, lanes_text(l, e->arg[1], true),
                     lanes_text(l, e->arg[2], true));
    }
    default:
        return arithmetic(l, e);
    }
}

/* A number that is read when it is used; see MLCC_LATE in host_c.c. */
static const char *late_number(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    for (int i = 0; i < l->late.n; i++)
        if (l->late.items[i].e == e) return l->late.items[i].name;
    const char *number = names_take(&p->names, TEXT("v%d", p->n_values++), "v");
    print_line(p, "static const float %s = %s;", number, scalar_text(l, e));
    const LaneValue late = {e, 1, local_name(l, "float", TEXT("MLCC_LATE(%s)", number))};
    vec_push(p->scratch, &l->late, late);
    p->unit->needs |= NEEDS_late;
    return late.name;
}

/* A value that all lanes have, as an element lies in memory. */
static const char *same_text(Lanes *l, const Expr *e) {
    Printer *p = l->p;
    DType dt = (DType)e->dt;
    if (l->is_late && ex_is_const(e) && dt == DT_f32) return late_number(l, e);
    const char *text = scalar_text(l, e);
    if (is_half(dt))
        return TEXT("(uint16_t)%s(%s)", unit_helper(p->unit, TEXT("mlcc_%s_encode", dt_name(dt))),
                    text);
    return dt_is_short(dt) ? TEXT("(%s)%s", mem_type(p->unit, dt), text) : text;
}

/* Reads what a byte is made of: its encoding, or that of the place in a table that it comes from.
 */
static bool read_byte(const Lanes *l, const Expr *e, Encoding *code, const Expr **table) {
    int64_t moved = 0;
    *table = NULL;
    if (is_gather(e, l->var)) {
        *table = e;
        if (!dt_is_byte((DType)e->dt)) return false;
        for (e = e->arg[0]; !dt_is_byte((DType)e->dt); e = e->arg[0])
            if (e->op == EX_add) moved += e->arg[1]->k.i;
        if (moved != (e->dt == DT_i8 ? 128 : 0)) return false;
    }
    if (!read_encoding(l->p, e, code)) return false;
    code->zero += moved;
    return true;
}

bool lanes_can_put(const Lanes *l, const Expr *value) {
    Encoding code;
    const Expr *table;
    return dt_is_short((DType)value->dt) && read_byte(l, value, &code, &table);
}

void lanes_put(Lanes *l, int buffer, const Expr *index, const Expr *value) {
    Printer *p = l->p;
    const Expr *table;
    Encoding code;
    read_byte(l, value, &code, &table);
    lanes_begin(l, code.value);
    const char *near = lane_function(p, code.maybe_nan ? "near_or_0" : "near", l->width);
    const char *text = TEXT("%s(%s)", near, lanes_text(l, code.value, true));
    if (code.zero) text = TEXT("%s + %lld", text, (long long)code.zero);
    int at = l->n_put++;
    l->put[at] = local_name(l, lane_type(p, DT_i32, l->width), text);
    index = at_start(l, index);
    begin_statement(p, 1, &index);
    l->put_at[at] = print_address(p, buffer, index);
    if (l->n_put < LANES_PUT) return;
    const char *name = TEXT("%s_%s", table ? "look_up" : "put", dt_name((DType)value->dt));
    if (value->dt == DT_i16) name = code.lowest ? "put_word_i8" : "put_word_u8";
    const char *from = table ? TEXT("%s, ", p->buffer[table->k.i]) : "";
    print_line(p, "%s(%s%s, %s, %s, %s, %s, %s, %s, %s);", lane_function(p, name, l->width), from,
               l->put_at[0], l->put_at[1], l->put_at[2], l->put_at[3], l->put[0], l->put[1],
               l->put[2], l->put[3]);
    l->n_put = 0;
}

const char *lanes_text(Lanes *l, const Expr *e, bool spread) {
    Printer *p = l->p;
    if (!ex_depends(e, l->var)) {
        const char *text = same_text(l, e);
        if (l->width == 1 || !spread) return text;
        /* minus zero stays what it is */
        return TEXT("(%s - (%s){0})", text, lane_type(p, (DType)e->dt, l->width));
    }
    LaneValue *shared = shared_value(l, e);
    if (shared && shared->name) return shared->name;
    const char *text = compute(l, e);
    DType dt = (DType)e->dt == DT_bool ? DT_i32 : (DType)e->dt;
    if (shared && strlen(text) > 8) {
        text = local_name(l, lane_type(p, dt, l->width), text);
        shared->name = text;
    }
    return text;
}

const char *lanes_named(Lanes *l, const Expr *e) {
    return local_name(l, lane_type(l->p, (DType)e->dt, l->width), lanes_text(l, e, true));
}

/* A sum of integers that wraps around. */
static const char *wrapped_sum(Printer *p, const char *acc, const char *more) {
    return TEXT("(int32_t)((uint32_t)%s + (uint32_t)(%s))", acc, more);
}

/* The address of the few that the load begins with. */
static const char *few_at(Lanes *l, const LaneDot *dot, const Expr *load) {
    Printer *p = l->p;
    l->value[dot->var] = ex_i(p->x, 0);
    const Expr *index = at_start(l, load->arg[0]);
    l->value[dot->var] = NULL;
    begin_statement(p, 1, &index);
    return print_address(p, (int)load->k.i, index);
}

/* Those of all lanes as a vector of words. */
static const char *few_in_lanes(Lanes *l, const LaneDot *dot, const Expr *load) {
    Printer *p = l->p;
    const char *place = few_at(l, dot, load);
    if (lanes_missing(l, (int)load->k.i)) return first_lanes(l, DT_i32, place);
    return TEXT("*(const %s_at *)%s", lane_type(p, DT_i32, l->width), place);
}

/* The lanes of a row of a dot's bytes. */
static const char *bytes_text(Lanes *l, const LaneDot *dot, const Expr *row) {
    Printer *p = l->p;
    if (row->op == EX_select) {
        const Expr *guard = at_start(l, row->arg[0]);
        if (ex_is_const(guard)) return bytes_text(l, dot, row->arg[guard->k.i ? 1 : 2]);
        const char *yes = bytes_text(l, dot, row->arg[1]), *no = bytes_text(l, dot, row->arg[2]);
        return TEXT("(%s ? %s : %s)", scalar_text(l, guard), yes, no);
    }
    const Expr *load = widened_load(row, dot->bytes);
    const char *bytes = load ? lanes_at(l, (int)load->k.i, load->arg[0]) : "{0}";
    if (l->width == 1) return load ? bytes : "0";
    return load && dot->bytes == DT_u8 ? bytes
                                       : TEXT("(%s)%s", lane_type(p, DT_u8, l->width), bytes);
}

/* Of a dot of rows that differ from lane to lane. */
static const char *dot_each_text(Lanes *l, const LaneDot *dot, const char *acc) {
    Printer *p = l->p;
    const char *row[4], *columns = kept_name(l, dot->columns, NULL);
    for (int i = 0; i < dot->count; i++) row[i] = bytes_text(l, dot, dot->row[i]);
    if (l->width == 1) {
        const char *place = few_at(l, dot, dot->columns);
        const char *sum = TEXT("%s * (%s)[0]", row[0], place);
        for (int i = 1; i < dot->count; i++)
            sum = TEXT("%s + %s * (%s)[%d]", sum, row[i], place, i);
        return wrapped_sum(p, acc, sum);
    }
    if (!columns) columns = few_in_lanes(l, dot, dot->columns);
    return TEXT("%s(%s, %s(%s, %s, %s, %s), %s)", lane_function(p, dot->function, l->width), acc,
                lane_function(p, "fours", l->width), row[0], row[1], row[2], row[3], columns);
}

/* The columns of a dot: the vector's name, if it is kept, else what is loaded; of parts of bytes,
 * the bits. */
const char *lanes_columns_text(Lanes *l, const LaneDot *dot) {
    Printer *p = l->p;
    const char *text = kept_name(l, dot->columns, dot->shift);
    if (text) return text;
    text = kept_name(l, dot->columns, NULL);
    if (!text) text = few_in_lanes(l, dot, dot->columns);
    if (!dot->shift) return text;
    return TEXT("(%s)((%s)%s >> (uint32_t)%s & 0x%08xu)", lane_type(p, DT_i32, l->width),
                lane_type(p, DT_u32, l->width), text, scalar_text(l, dot->shift),
                0x01010101u * (unsigned)dot->mask);
}

/* Where the rows of a dot lie behind the place that they have in common. */
static const char *moves_text(Lanes *l, const LaneDot *dot) {
    const char *text = kept_name(l, dot->to, NULL);
    return text ? text : few_in_lanes(l, dot, dot->to);
}

static const char *moved_text(Lanes *l, const LaneDot *dot, const char *acc) {
    Printer *p = l->p;
    const char *row = few_at(l, dot, dot->rows), *to = moves_text(l, dot);
    return TEXT("%s(%s, %s, %s, %s)", lane_function(p, "dot_moved", l->width), acc, row, to,
                lanes_columns_text(l, dot));
}

void lanes_keep_columns(Lanes *l, const LaneDot *dot) {
    Printer *p = l->p;
    int mark = p->named.n;
    if (l->width == 1 || kept_name(l, dot->columns, dot->shift)) return;
    keep(l, dot->columns, dot->shift, lanes_columns_text(l, dot));
    end_statement(p, mark);
}

/* The rows of a dot, which are the same in all lanes. */
static const char *spread_text(Lanes *l, const LaneDot *dot) {
    Printer *p = l->p;
    return TEXT("%s + (%s){0}", lanes_row_text(l, dot), lane_type(p, DT_i32, l->width));
}

bool lanes_dot_pairs(const LaneDot *dot) {
    return dot->spread && !dot->each && !dot->to && !dot->shift;
}

const char *lanes_row_text(Lanes *l, const LaneDot *dot) {
    Printer *p = l->p;
    return TEXT("(int32_t)*(const mlcc_four_at *)%s", few_at(l, dot, dot->rows));
}

/* Those that differ from lane to lane as a table says, for sums of 16 bits. */
static const char *moved_row(Lanes *l, const LaneDot *dot) {
    Printer *p = l->p;
    return TEXT("%s(%s, %s)", lane_function(p, "moved", l->width), few_at(l, dot, dot->rows),
                moves_text(l, dot));
}

LaneDot lanes_dot_of(Lanes *l, const LaneDot *dot, int step) {
    Printer *p = l->p;
    LaneDot one = *dot;
    const Expr **to = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    const Stmt *s = dot->shorts;
    one.n_shorts = 0;
    for (int i = 0; i < dot->n_shorts; i++, s = s->body) {
        to[s->var] = ex_i(p->x, step % s->extent->k.i);
        step /= (int)s->extent->k.i;
    }
    const Expr **part[] = {&one.rows, &one.columns, &one.shift, &one.to};
    for (int i = 0; i < 4; i++)
        if (*part[i]) *part[i] = ex_subst_vars(p->x, *part[i], p->k->vars.n, to);
    return one;
}

const char *lanes_short_text(Lanes *l, const LaneDot *dot, const char *sum) {
    Printer *p = l->p;
    const char *row = dot->to ? moved_row(l, dot) : spread_text(l, dot);
    const char *column = lanes_columns_text(l, dot);
    const char *a = dot->shift ? column : row, *b = dot->shift ? row : column; /* a is unsigned */
    if (!sum) return TEXT("%s(%s, %s)", lane_function(p, "dot_short", l->width), a, b);
    return TEXT("%s(%s, %s, %s)", lane_function(p, "dot_short_add", l->width), sum, a, b);
}

const char *lanes_dot_text(Lanes *l, const LaneDot *dot, const char *acc) {
    Printer *p = l->p;
    if (dot->each) return dot_each_text(l, dot, acc);
    if (dot->to) return moved_text(l, dot, acc);
    bool whole = !dt_is_float((DType)dot->store->value->dt);
    if (l->width == 1) { /* the lane alone */
        const char *row = few_at(l, dot, dot->rows);
        const char *shift = dot->shift ? scalar_text(l, dot->shift) : NULL;
        const char *column = few_at(l, dot, dot->columns);
        const char *decode = whole ? "" : unit_helper(p->unit, "mlcc_bf16_decode");
        for (int i = 0; i < dot->count; i++) {
            const char *other = TEXT("(%s)[%d]", column, i);
            if (shift) other = TEXT("(%s >> %s & %d)", other, shift, dot->mask);
            const char *one = TEXT("%s((%s)[%d]) * %s(%s)", decode, row, i, decode, other);
            acc = whole ? wrapped_sum(p, acc, one) : TEXT("%s + %s", acc, one);
        }
        return acc;
    }
    const char *columns = lanes_columns_text(l, dot);
    const char *row = dot->spread ? spread_text(l, dot)
                                  : TEXT("*(const mlcc_four_at *)%s", few_at(l, dot, dot->rows));
    return TEXT("%s(%s, %s, %s)", lane_function(p, dot->function, l->width), acc, row, columns);
}
