/* The first schedule: steps for a map or a reduce, chosen from the target's facts.
 *
 * A reduction that sums products is looked at as a matrix product: coordinates that only one factor
 * reads are its rows or columns, those that both read are batches, reduction coordinates are depth.
 * Products, convolutions (as implicit products), einsums and their quantised forms all fit.
 *
 *   loops:  columns are the innermost, vectorised; a tile of rows x columns is kept in registers
 * and the reduction runs outside of it. Constant operands are packed in the order of reading.
 *   scalars: see schedule_scalars.c.
 *   sums in two steps: see schedule_partial.c.
 *   blocks: see schedule_blocks.c.
 */
#include "passes/schedule.h"

#include <math.h>
#include <string.h>

#define MOST_PAIRED     2  /* fours of constant bytes whose sums are added in 16 bits */
#define DEEP            32 /* products of a sum beside which its end is short */
#define ENOUGH_TO_SHARE 64 /* iterations that threads can share evenly */

void split_product(const Nest *n, const Expr *body, Product *m) {
    uint64_t mask[2];
    *m = (Product){.body = body, .rows = 1, .columns = 1, .batches = 1, .depths = 1};
    for (int f = 0; f < 2; f++) mask[f] = ex_vars(body->arg[f]);
    for (int k = 0; k < n->n_order; k++) {
        int i = n->order[k];
        int64_t extent = n->loop[i].extent;
        bool in0 = mask[0] >> i & 1, in1 = mask[1] >> i & 1;
        if (n->loop[i].reduce) {
            m->depth[m->n_depth++] = i;
            m->depths *= extent;
        } else if (in0 && !in1) {
            m->row[m->n_row++] = i;
            m->rows *= extent;
        } else if (in1 && !in0) {
            m->column[m->n_column++] = i;
            m->columns *= extent;
        } else {
            m->batch[m->n_batch++] = i;
            m->batches *= extent;
        }
    }
}

bool find_product(Nest *n, Product *m) {
    const Expr *body = op_is_product(n->op) ? nest_body(n) : NULL;
    *m = (Product){0};
    if (!body || body->op != EX_mul) return false;
    split_product(n, body, m);
    return true;
}

Product transposed(const Product *m) {
    Product t = *m;
    memcpy(t.row, m->column, sizeof t.row);
    memcpy(t.column, m->row, sizeof t.column);
    t.n_row = m->n_column, t.n_column = m->n_row;
    t.rows = m->columns, t.columns = m->rows;
    return t;
}

/* --- plain loops ------------------------------------------------------------------------------ */

typedef struct VectorScore {
    Nest *n;
    int loop;
    int unit, other; /* loads with stride 1; with any stride but 0 and 1 along the loop, ... */
    int seconds;     /* ... of which every second element of f32 */
} VectorScore;

static void score_load(void *user, const Expr *e) {
    VectorScore *s = user;
    int64_t stride;
    if (e->op != EX_load) return;
    if (!ex_stride(e->arg[0], s->loop, &stride)) {
        s->other += !ex_is_lookup(e); /* vectors do it for each lane */
    } else if (stride == 1 || nest_can_pack(s->n, e->k.i, e->arg[0])) {
        s->unit += stride != 0;
    } else {
        s->other += stride != 0;
        s->seconds += stride == 2 && e->dt == DT_f32;
    }
}

void rank_tile(Ranking *ranking, Tile tile) {
    int at = ranking->n;
    while (at > 0 && ranking->tile[at - 1].cost > tile.cost) at--;
    if (at == MOST_TILES) return;
    int n = ranking->n < MOST_TILES ? ranking->n++ : MOST_TILES - 1;
    memmove(&ranking->tile[at + 1], &ranking->tile[at], (size_t)(n - at) * sizeof tile);
    ranking->tile[at] = tile;
}

Tile ranked_tile(const Ranking *ranking, int variant) {
    return ranking->tile[variant < ranking->n ? variant : 0];
}

int64_t tiles_of(int64_t extent, int64_t tile) {
    return (extent + tile - 1) / tile;
}

int tile_loop(Nest *n, int loop, int64_t tile, int64_t *tiles) {
    int64_t extent = n->loop[loop].extent;
    int outer, inner;
    if (extent <= tile) return loop;
    *tiles = tiles_of(extent, tile);
    if (extent % tile == 0)
        nest_split(n, loop, tile, &outer, &inner);
    else
        nest_slide(n, loop, tile, &outer, &inner);
    return inner;
}

static void count_divisions(void *user, const Expr *e) {
    int *count = user;
    *count += (e->op == EX_div || e->op == EX_rem) && e->dt == DT_i32;
}

/* A constant that will lie as it is read needs no divisions. */
static const Expr *drop_packed(void *user, const Expr *e, const Expr *const *args) {
    const Nest *n = user;
    if (e->op != EX_load) return e;
    const Expr *zero = ex_i(n->x, 0);
    if (nest_can_pack(n, e->k.i, e->arg[0])) args = &zero;
    return ex_load(n->x, (DType)e->dt, (int)e->k.i, e->n, args);
}

typedef struct Divisions {
    int terms, results; /* for what is reduced or is mapped, and for what follows: where it goes */
} Divisions;

/* How many divisions the op's expressions need, loads flattened, with loop `b` inside of `a` as one
 * loop (-1: as the loops are now). */
static Divisions divisions_if_fused(Nest *n, int a, int b) {
    Exprs *x = n->x;
    const Op *op = n->op;
    int64_t extent[NEST_MAX_LOOPS + 1];
    const Expr *to[NEST_MAX_LOOPS + 1], *one = ex_var(x, n->n_loops);
    Divisions count = {0, 0};
    for (int i = 0; i < n->n_loops; i++) {
        extent[i] = n->loop[i].extent;
        to[i] = ex_var(x, i);
    }
    if (a >= 0) {
        to[a] = ex_div(x, one, ex_i(x, extent[b]));
        to[b] = ex_bin(x, EX_rem, one, ex_i(x, extent[b]));
        extent[n->n_loops] = extent[a] * extent[b];
    }
    const Expr *parts[3] = {op->body, op->post, nest_output_index(n)};
    for (int i = 0; i < 3; i++) {
        if (!parts[i]) continue;
        const Expr *e = nest_flatten_loads(x, parts[i], op);
        e = ex_subst_vars(x, e, n->n_coords, n->coord);
        if (n->target->scalar_registers) e = ex_rewrite(x, e, drop_packed, n);
        e = ex_subst_vars(x, e, n->n_loops, to);
        e = ex_simplify(x, e, n->n_loops + (a >= 0), extent);
        ex_visit(n->p->arena, e, count_divisions, i == 0 ? &count.terms : &count.results);
    }
    return count;
}

typedef struct Divided {
    int loop;
    int64_t by; /* the largest that the loop's variable is divided by; 0: nothing yet, -1: they are
                   no multiples of each other */
} Divided;

static void find_divisor(void *user, const Expr *e) {
    Divided *d = user;
    if ((e->op != EX_div && e->op != EX_rem) || !ex_is_const(e->arg[1])) return;
    if (e->arg[0]->op != EX_var || e->arg[0]->k.i != d->loop) return;
    int64_t by = e->arg[1]->k.i, more = by > d->by ? by : d->by, less = by > d->by ? d->by : by;
    if (by > 0 && d->by >= 0) d->by = less == 0 || more % less == 0 ? more : -1;
}

#define SHORTEST_STRETCH 16 /* of a reduction; the few that are added at once are split later */

/* A loop whose variable is taken apart by a division becomes two loops, of the quotient and of the
 * remainder: what is read then lies in stretches. */
static void split_divided(Nest *n) {
    const Expr *body = nest_body(n);
    for (int i = 0; i < n->n_order; i++) {
        Divided d = {n->order[i], 0};
        const NestLoop *l = &n->loop[d.loop];
        int outer, inner;
        if (l->extent < 2) continue;
        ex_visit(n->p->arena, body, find_divisor, &d);
        if (d.by < (l->reduce ? SHORTEST_STRETCH : 2) || d.by >= l->extent || l->extent % d.by)
            continue;
        nest_split(n, d.loop, d.by, &outer, &inner);
        body = nest_body(n);
        i++;
    }
}

/* Is one loop for both no loop whose end says how far they go? Of a coordinate that does not always
 * go as far as its extent it does only if that is the outer one's. */
static bool go_apart(const Nest *n, int outer, int inner) {
    const Expr *guard = n->loop[inner].reduce ? n->guard[1] : NULL;
    for (int d = 0; d < n->n_coords; d++)
        if (n->limit[d] && n->loop[inner].extent > 1 && ex_depends(n->coord[d], inner)) return true;
    return guard && (ex_depends(guard, outer) || ex_depends(guard, inner));
}

int outer_of(int inner) {
    return inner - 1;
}

typedef struct LoadStrides {
    const Nest *n;
    int64_t most[NEST_MAX_LOOPS]; /* of the loads of what is not packed, by loop */
} LoadStrides;

static void note_strides(void *user, const Expr *e) {
    LoadStrides *s = user;
    if (e->op != EX_load || nest_can_pack(s->n, e->k.i, e->arg[0])) return;
    for (int i = 0; i < s->n->n_order; i++) {
        int loop = s->n->order[i];
        int64_t stride;
        if (!ex_stride(e->arg[0], loop, &stride)) stride = INT32_MAX;
        if (stride < 0) stride = -stride;
        if (stride > s->most[loop]) s->most[loop] = stride;
    }
}

int reductions_by_stride(Nest *n, const Expr *body, int *order, int k) {
    LoadStrides s = {.n = n};
    ex_visit(n->p->arena, body, note_strides, &s);
    int first = k;
    for (int i = 0; i < n->n_order; i++) {
        int loop = n->order[i], at = k;
        if (!n->loop[loop].reduce) continue;
        for (; at > first && s.most[order[at - 1]] < s.most[loop]; at--) order[at] = order[at - 1];
        order[at] = loop;
        k++;
    }
    return k;
}

/* The vector loop: the last one along which every load has stride 1 or 0, or, `seconds`, 2 of f32;
 * -1 if there is none. */
static int find_column(Nest *n, const Expr *body, bool seconds) {
    for (int i = n->n_order - 1; i >= 0; i--) {
        VectorScore s = {.n = n, .loop = n->order[i]};
        if (n->loop[s.loop].reduce || n->loop[s.loop].extent < 4) continue;
        ex_visit(n->p->arena, body, score_load, &s);
        if (s.unit + s.seconds && s.other == (seconds ? s.seconds : 0)) return s.loop;
    }
    return -1;
}

static bool listed(int loop, const int *list, int count) {
    for (int i = 0; i < count; i++)
        if (list[i] == loop) return true;
    return false;
}

/* Are both loops' values rows of a product so deep that what a division for each of them takes is
 * little? Joined they make tiles of which fewer are at an edge. */
static bool are_deep_rows(Nest *n, int a, int b) {
    Product m;
    if (!n->target->vector_types || n->target->scalar_registers || !find_product(n, &m) ||
        m.depths < DEEP)
        return false;
    const int column = find_column(n, nest_body(n), false);
    if (listed(column, m.row, m.n_row)) m = transposed(&m);
    return listed(column, m.column, m.n_column) && listed(a, m.row, m.n_row) &&
           listed(b, m.row, m.n_row);
}

/* Joins neighbouring loops that every load walks through in one stride. */
static void join_loops(Nest *n) {
    Divisions divisions = divisions_if_fused(n, -1, -1);
    for (int i = n->n_order - 2; i >= 0; i--) {
        int a = n->order[i], b = n->order[i + 1];
        if (n->loop[a].reduce != n->loop[b].reduce || n->loop[a].extent < 1 ||
            n->loop[b].extent < 1 || go_apart(n, a, b))
            continue;
        const Divisions fused = divisions_if_fused(n, a, b);
        const int terms = fused.terms - divisions.terms;
        const int results = fused.results - divisions.results;
        if (terms + results > 0 && (terms > 0 || !are_deep_rows(n, a, b))) continue;
        nest_fuse(n, a, b);
        divisions = fused;
    }
}

#define FEW_ROWS 4 /* that make a good tile */

/* How many rows the loop has for a tile. One that varies may have few, of which a tile does more
 * than there are: another one with enough is better. */
static int64_t sure_rows(const NestLoop *l) {
    const int64_t few = l->extent < FEW_ROWS ? l->extent : FEW_ROWS;
    return l->least > few ? l->least : few;
}

int longest_of(const Nest *n, const int *list, int count) {
    int best = -1;
    for (int i = 0; i < count; i++)
        if (n->loop[list[i]].extent >= 2 &&
            (best < 0 || sure_rows(&n->loop[list[i]]) >= sure_rows(&n->loop[best])))
            best = list[i];
    return best;
}

int lanes_of(const Nest *n) {
    int lanes = n->target->vector_bytes / (int)dt_store((DType)n->op->body->dt);
    return lanes < 4 ? 4 : lanes;
}

int without(int *order, int count, int loop) {
    for (int i = 0; i < count; i++)
        if (order[i] == loop) {
            memmove(&order[i], &order[i + 1], (size_t)(--count - i) * sizeof *order);
            break;
        }
    return count;
}

typedef struct Footprint {
    const Nest *n;
    double bytes, word; /* of the tensors that are loaded, and of their largest elements */
} Footprint;

static void look_at_footprint(void *user, const Expr *e) {
    Footprint *u = user;
    if (e->op != EX_load) return;
    const Value *v = u->n->op->in[e->k.i];
    u->bytes += (double)value_bytes(v);
    u->word = fmax(u->word, (double)dt_store(v->dt));
}

double bytes_behind(const Nest *n, const Product *m, const Expr *body, int loop) {
    int64_t extent = listed(loop, m->row, m->n_row) ? m->rows : m->columns;
    double elements = (double)extent * (double)m->depths;
    double bytes = elements * (double)dt_store((DType)body->dt);
    for (int f = 0; f < 2; f++) {
        Footprint u = {.n = n};
        ex_visit(n->p->arena, body->arg[f], look_at_footprint, &u);
        if (ex_depends(body->arg[f], loop)) bytes = fmin(bytes, fmin(u.bytes, elements * u.word));
    }
    return m->moved && !listed(loop, m->row, m->n_row) ? 2 * bytes : bytes; /* with their table */
}

typedef struct Overlap {
    const Nest *n;
    const Product *m;
    int column;
    double part;
} Overlap;

/* Loops from the smallest stride on: steps shorter than what lies behind them overlap. */
static void look_at_overlap(void *user, const Expr *e) {
    Overlap *u = user;
    int64_t stride[NEST_MAX_LOOPS], extent[NEST_MAX_LOOPS];
    int n_loops = 0;
    if (e->op != EX_load || !ex_depends(e->arg[0], u->column)) return;
    double elements = 1, places = 1, reach = 1;
    for (int i = 0; i <= u->m->n_depth; i++) {
        const int loop = i < u->m->n_depth ? u->m->depth[i] : u->column;
        int64_t step;
        if (!ex_stride(e->arg[0], loop, &step)) return;
        int k = n_loops++;
        for (step = step < 0 ? -step : step; k > 0 && stride[k - 1] > step; k--) {
            stride[k] = stride[k - 1];
            extent[k] = extent[k - 1];
        }
        stride[k] = step;
        extent[k] = u->n->loop[loop].extent;
    }
    for (int i = 0; i < n_loops; i++) {
        const double all = reach + (double)(stride[i] * (extent[i] - 1));
        elements *= (double)extent[i];
        places *= fmin((double)extent[i], all / reach);
        reach = all;
    }
    u->part = fmin(u->part, 1 - places / elements);
}

/* Operands.overlap. */
static double overlap_of(const Nest *n, const Product *m, int column) {
    Overlap u = {n, m, column, 1};
    ex_visit(n->p->arena, m->body, look_at_overlap, &u);
    return u.part < 1 ? u.part : 0;
}

typedef struct RowLoads {
    const Nest *n;
    int row;
    bool compete;
} RowLoads;

static void look_at_row(void *user, const Expr *e) {
    RowLoads *u = user;
    int64_t stride;
    if (e->op != EX_load || nest_can_pack(u->n, e->k.i, e->arg[0])) return;
    if (ex_stride(e->arg[0], u->row, &stride) && stride)
        u->compete |= stride * (int64_t)dt_store((DType)e->dt) % L1_WAY_BYTES == 0;
}

int64_t most_rows(const Nest *n, const Expr *body, int row) {
    RowLoads u = {n, row, false};
    if (row < 0) return 1;
    ex_visit(n->p->arena, body, look_at_row, &u);
    return most_tile_rows(n->target, u.compete);
}

/* Large constants that few rows read come from memory at its own pace. Processors fetch ahead for
 * each stream of addresses that they see, but only so far: several streams bring more at once
 * (Zen 3: 16 GB/s with hints, 21 without, 27 from 2 streams or more; from caches all are alike).
 * Not so Intel's with AVX-512, which `whole_vectors` tells apart, too: one stream with hints takes
 * 0.93 to 1 of the time of four for a row, 0.91 to 0.95 for two (a Xeon with AMX). */
#define STREAMS         4
#define LEAST_OF_STREAM 16 /* steps */
/* Bytes of constants, of which tiles of columns are streams: rows vary, or columns have few bits,
 * and the constants of models that have such are more than caches keep. */
#define LEAST_OF_COLUMNS 65536
#define ROWS_AT_MEMORY   2 /* more want columns in registers, which are not kept across streams */

typedef struct ColumnBytes {
    const Nest *n;
    int column;
    double bytes; /* of constants that depend on it */
} ColumnBytes;

static void look_at_columns(void *user, const Expr *e) {
    ColumnBytes *u = user;
    if (e->op == EX_load && ex_depends(e, u->column) && nest_can_pack(u->n, e->k.i, e->arg[0]))
        u->bytes += (double)value_bytes(u->n->op->in[e->k.i]);
}

static bool wants_streams(const Target *t) {
    return t->vector_types && !t->whole_vectors;
}

int64_t streams_of(const Nest *n, int loop, int64_t tiles) {
    ColumnBytes u = {.n = n, .column = loop};
    if (!wants_streams(n->target)) return 1;
    ex_visit(n->p->arena, nest_body(n), look_at_columns, &u);
    int64_t parts = u.bytes < LEAST_OF_COLUMNS ? 1 : STREAMS;
    while (tiles % parts) parts--;
    return parts;
}

/* Splits the innermost of the reduction loops around a tile into streams, where that pays; returns
 * the loop over these, or -1. */
static int split_streams(Nest *n, const Product *m, const Expr *body, int column, int *innermost) {
    ColumnBytes u = {.n = n, .column = column};
    int streams, inner;
    int64_t extent = n->loop[*innermost].extent;
    if (!wants_streams(n->target) || m->rows > ROWS_AT_MEMORY || extent % STREAMS ||
        extent < STREAMS * LEAST_OF_STREAM)
        return -1;
    ex_visit(n->p->arena, body, look_at_columns, &u);
    if (u.bytes <= (double)n->target->l2_bytes || n->loop[*innermost].role != ROLE_serial)
        return -1;
    nest_split(n, *innermost, extent / STREAMS, &streams, &inner);
    nest_bind(n, streams, ROLE_unroll);
    nest_stream(n, streams);
    *innermost = inner;
    return streams;
}

/* The other one of two loops over columns, where a tile has all of `column`: over panels of them
 * (turn.c), for one. -1: there is none. */
static int panels_of(const Nest *n, const Product *m, int column) {
    int64_t tiles = m ? m->columns / n->loop[column].extent : 1;
    for (int i = 0; tiles > 1 && i < m->n_column; i++)
        if (m->column[i] != column && n->loop[m->column[i]].extent == tiles) return m->column[i];
    return -1;
}

int split_innermost(Nest *n, int64_t steps, Role role, int *order, int k) {
    const int64_t extent = n->loop[order[k - 1]].extent;
    int outer, inner;
    while (extent % steps) steps--;
    if (steps == 1) return k;
    if (steps == extent) {
        nest_bind(n, order[k - 1], role);
        return k;
    }
    nest_split(n, order[k - 1], steps, &outer, &inner);
    nest_bind(n, inner, role);
    order[k - 1] = outer;
    order[k] = inner;
    return k + 1;
}

#define LEAST_REPEATED 16 /* steps; of fewer little is gained */

/* Has the innermost of the k loops in `order`, of the depth, do so many steps in an iteration, or
 * fewer that divide it; returns how many loops there are then. */
static int repeat_depth(Nest *n, int repeats, int *order, int k) {
    const int loop = order[k - 1];
    const NestLoop *l = &n->loop[loop];
    if (l->role != ROLE_serial || !l->reduce || l->extent < LEAST_REPEATED) return k;
    if (n->guard[1] && ex_depends(n->guard[1], loop)) return k;
    return split_innermost(n, repeats, ROLE_repeat, order, k);
}

/* A tile of the matrix product `m` (NULL: of what the nest adds up, in the order of its loops), of
 * which `around` (-1: none) is the reduction loop around it of role short, and `few` (or -1) the
 * one that is innermost. */
static void place_tile(Nest *n, const Product *m, int column, int row, Tile tile, int around,
                       int few) {
    const Expr *body = m ? m->body : nest_body(n);
    const bool scalars = n->target->scalar_registers > 0;
    int64_t row_tiles = 1, column_tiles = 1;
    int inner[2], count = 0;
    if (row >= 0) inner[count++] = tile_loop(n, row, rows_of_tile(n, row, tile.rows), &row_tiles);
    inner[count++] = tile_loop(n, column, tile.columns, &column_tiles);
    for (int i = 0; i < count; i++)
        nest_bind(n, inner[i], i == count - 1 && !scalars ? ROLE_vector : ROLE_unroll);
    int order[NEST_MAX_LOOPS], k = 0;
    const int panels = column_tiles > 1 ? outer_of(inner[count - 1]) : panels_of(n, m, column);
    if (row >= 0 && panels >= 0)
        k = order_tiles(n, m, body, row, column, row_tiles > 1 ? outer_of(inner[0]) : -1, panels,
                        tile.turned, order);
    int first = k, streams = -1;
    k = without(order, reductions_by_stride(n, body, order, k), few);
    if (around >= 0) k = without(order, k, around);
    if (m && k > first) streams = split_streams(n, m, body, column, &order[k - 1]);
    if (scalars && k > first)
        k = scalar_steps(n, tile, few >= 0 ? (int)n->loop[few].extent : 1, order, k);
    if (tile.repeats > 1 && k > first && around < 0 && streams < 0)
        k = repeat_depth(n, tile.repeats, order, k);
    if (around >= 0) {
        nest_bind(n, around, ROLE_short);
        order[k++] = around;
    }
    if (streams >= 0) order[k++] = streams;
    for (int i = 0; i < count; i++) order[k++] = inner[i];
    if (few >= 0) {
        nest_bind(n, few, ROLE_unroll);
        order[k++] = few;
    }
    nest_order(n, k, order);
    if (row_tiles == 1) return;
    tile_singles(n, m, inner[0], column_tiles > 1 ? inner[1] : -1, panels, n->loop[column].extent);
    if (!scalars) tile_rest(n, inner[0]);
}

/* Is a factor of the product a small matrix of numbers that the body spells out, with `row` as its
 * rows? (Winograd's are.) */
static bool has_numbers(const Nest *n, const Product *m, const Expr *body, int row) {
    if (row < 0 || n->loop[row].extent > MOST_NUMBERS || m->depths > MOST_NUMBERS) return false;
    return !body->arg[0]->loads || !body->arg[1]->loads;
}

/* Does Arm's NEON add products of bytes without an instruction of its own? They are widened, and
 * added in pairs twice. */
static bool widens(const Target *t, int64_t at_once) {
    return at_once == 4 && t->signed_rows && !t->byte_dots;
}

#define MOVED_REGISTERS 6   /* beside a row and a vector of columns, for two fours of moved rows */
#define MOVING          0.3 /* of an instruction: it has a unit that others seldom want */

double short_instructions(int64_t shorts) {
    return 2 + 1.0 / (double)shorts;
}

/* Operands.instructions of a product of which so many are added at once; `shorts`: fours of which
 * sums are added in 16 bits, 0: none. */
static double instructions_of(const Target *t, int64_t at_once, int64_t shorts) {
    if (shorts) return short_instructions(shorts);
    if (widens(t, at_once)) return 6;
    return at_once == 2 && t->word_products ? 2 : 0;
}

/* Operands.temporaries of such. */
static int temporaries_of(const Target *t, int64_t at_once, int64_t shorts) {
    if (shorts == 1) return 2;
    if (at_once == 1 || shorts || t->byte_dots) return 0;
    return widens(t, at_once) ? 4 : 1;
}

static void count_bound(void *user, const Expr *e) {
    int *n = user;
    if (e->op != EX_min && e->op != EX_max) return;
    *n += e->dt == DT_f32 && ex_is_const(e->arg[1]) && e->arg[1]->k.f != 0;
}

static int bounds_of(const Nest *n) {
    int bounds = 0;
    if (n->op->post) ex_visit(n->p->arena, n->op->post, count_bound, &bounds);
    return bounds;
}

void matrix_tile(Nest *n, const Product *m, int column, int row, int around, int few, int variant) {
    const Expr *body = m->body;
    const int64_t at_once = few >= 0 ? n->loop[few].extent : 1;
    const int64_t shorts = around >= 0 ? n->loop[around].extent : 0;
    Operands o = {.rows = row >= 0 ? n->loop[row].extent : 1,
                  .columns = n->loop[column].extent,
                  .depth = m->depths / at_once,
                  .times = row >= 0 ? m->rows / n->loop[row].extent : 1,
                  .fewest = row >= 0 ? n->loop[row].least : 1,
                  .row_bytes = row >= 0 ? bytes_behind(n, m, body, row) : 0,
                  .column_bytes = bytes_behind(n, m, body, column),
                  .overlap = overlap_of(n, m, column),
                  .most_rows = most_rows(n, body, row),
                  .temporaries = m->moved   ? MOVED_REGISTERS
                                 : few >= 0 ? temporaries_of(n->target, at_once, shorts)
                                            : n->target->unfused_products,
                  .bounds = bounds_of(n),
                  .functions = n->op->post && ex_slow_cycles(n->p->arena, n->op->post) > 0,
                  .instructions =
                      instructions_of(n->target, at_once, shorts) + (m->moved ? MOVING : 0),
                  .at_once = (int)at_once,
                  .floats = dt_is_float((DType)body->dt)};
    Tile tile = choose_tile(n->target, lanes_of(n), &o, variant);
    bool numbers = has_numbers(n, m, body, row);
    if (numbers) tile.rows = n->loop[row].extent;
    place_tile(n, m, column, row, tile, around, few);
    for (int i = 0; i < m->n_depth && numbers; i++) nest_bind(n, m->depth[i], ROLE_unroll);
}

/* --- several products at once ----------------------------------------------------------------- */

/* A factor of a product that is a load of a narrow type, widened. */
typedef struct NarrowFactor {
    const Expr *load;
    uint64_t loops; /* that it depends on */
} NarrowFactor;

static NarrowFactor narrow_factor(const Expr *factor) {
    NarrowFactor f = {NULL, 0};
    if (factor->op == EX_cast && factor->arg[0]->op == EX_load) {
        f.load = factor->arg[0];
        f.loops = ex_vars(f.load);
    }
    return f;
}

/* The loops of a tile of such a product; `columns` has elements `at_once` apart unless it is
 * packed. */
static bool find_narrow_tile(const Nest *n, const NarrowFactor *rows, const NarrowFactor *columns,
                             int at_once, bool packs, NarrowTile *t) {
    *t = (NarrowTile){-1, -1, -1};
    for (int i = 0; i < n->n_order; i++) {
        int loop = n->order[i];
        int64_t extent = n->loop[loop].extent, stride;
        bool in_rows = rows->loops >> loop & 1, in_columns = columns->loops >> loop & 1;
        if (n->loop[loop].reduce) {
            if (extent % at_once == 0 && ex_stride(rows->load->arg[0], loop, &stride) &&
                stride == 1 && (t->depth < 0 || extent > n->loop[t->depth].extent))
                t->depth = loop;
        } else if (in_columns && !in_rows && (extent >= 4 || n->target->scalar_registers)) {
            if (packs || (ex_stride(columns->load->arg[0], loop, &stride) && stride == at_once))
                t->column = loop;
        } else if (in_rows && !in_columns && extent >= 2) {
            if (t->row < 0 || sure_rows(&n->loop[loop]) >= sure_rows(&n->loop[t->row]))
                t->row = loop;
        }
    }
    return t->column >= 0 && t->depth >= 0;
}

/* The loop over fours of the depth, where a tile's depth is one of them; -1: there is none. */
static int loop_of_fours(const Nest *n, const NarrowFactor *columns, const NarrowTile *t) {
    int found = -1;
    for (int i = 0; i < n->n_order; i++)
        if (n->loop[n->order[i]].reduce && n->order[i] != t->depth &&
            columns->loops >> n->order[i] & 1)
            found = found < 0 ? n->order[i] : -2;
    return n->loop[t->depth].extent == 4 && found >= 0 ? found : -1;
}

/* Products of narrow types of which the target adds several at once: those that lie side by side in
 * the rows, and in the columns too if these are not packed. */
static bool narrow_tile(Nest *n) {
    const Expr *body = nest_body(n);
    Product m;
    if (body->op != EX_mul || !find_product(n, &m)) return false;
    for (int k = 0; k < 2; k++) {
        NarrowFactor rows = narrow_factor(body->arg[k]);
        NarrowFactor columns = narrow_factor(body->arg[1 - k]);
        if (!rows.load || !columns.load) return false;
        int at_once = target_products(n->target, (DType)rows.load->dt, (DType)columns.load->dt);
        bool packs = nest_can_pack(n, columns.load->k.i, columns.load->arg[0]);
        NarrowTile t;
        if (at_once == 1 || value_is_const(n->op->in[rows.load->k.i]) ||
            !find_narrow_tile(n, &rows, &columns, at_once, packs, &t))
            continue;
        const Product turned = k ? transposed(&m) : m;
        int variant = n->variant, outer, few;
        bool tiles = n->target->matrix_tiles && rows.load->dt != DT_i16;
        if (!tiles || variant % 2 || /* every other one is of vectors */
            !schedule_tiles(n, &turned, &t, at_once, rows.load, packs, variant / 2)) {
            if (tiles) variant /= 2;
            int shorts = -1, fours = loop_of_fours(n, &columns, &t);
            if (fours >= 0)
                few = t.depth;
            else
                nest_split(n, t.depth, at_once, &fours, &few);
            for (int times = MOST_PAIRED; times > 0 && shorts < 0; times--)
                if (n->loop[fours].extent % times == 0 &&
                    nest_sums_are_short(n, nest_body(n), 1, &fours, times, few))
                    nest_split(n, fours, times, &outer, &shorts);
            matrix_tile(n, &turned, t.column, t.row, shorts, few, variant);
        }
        if (packs) nest_pack(n);
        return true;
    }
    return false;
}

#define MOVED_ROWS 12 /* whose sums, of a vector, stay in registers */

/* The loops of a product of bytes whose rows lie where tables say; -1: there is none. */
typedef struct MovedLoops {
    int row, column, steps, two, few; /* two: fours whose sums are added in 16 bits */
} MovedLoops;

static MovedLoops find_moved(const Nest *n, const NarrowFactor *columns, int64_t at_once) {
    MovedLoops l = {-1, -1, -1, -1, -1};
    for (int i = 0; i < n->n_order; i++) {
        const int loop = n->order[i];
        int64_t extent = n->loop[loop].extent, stride = 0;
        bool even = ex_stride(columns->load->arg[0], loop, &stride);
        if (!n->loop[loop].reduce && even && stride == at_once && extent == lanes_of(n))
            l.column = loop;
        else if (!n->loop[loop].reduce)
            l.row = columns->loops >> loop & 1 || (l.row >= 0 && extent <= n->loop[l.row].extent)
                        ? l.row
                        : loop;
        else if (even && stride == 1 && extent == at_once)
            l.few = loop;
        else if (l.steps >= 0 && even && stride == at_once * lanes_of(n))
            l.two = loop;
        else
            l.steps = loop;
    }
    return l;
}

/* A vector of such columns and its table serve a few rows. */
static void rest_tile(Nest *n, const MovedLoops *l) {
    Ranking ranking = {.n = 0};
    for (int64_t r = 1; r <= MOVED_ROWS && l->row >= 0 && r <= n->loop[l->row].extent; r++) {
        double cost = (double)(tiles_of(n->loop[l->row].extent, r) * (r + 1));
        rank_tile(&ranking, (Tile){.rows = r, .columns = lanes_of(n), .cost = cost});
    }
    rank_tile(&ranking, (Tile){.rows = 1, .columns = lanes_of(n), .cost = HUGE_VAL});
    place_tile(n, NULL, l->column, l->row, ranked_tile(&ranking, n->variant), -1, l->few);
}

static const Expr *forget_table(void *user, const Expr *e, const Expr *const *args) {
    const Nest *n = user;
    (void)args;
    return e->op == EX_load ? ex_int(n->x, (DType)e->dt, 0) : e;
}

/* Products of bytes by fours whose rows lie where tables say (pass `relieve`). */
static bool moved_tile(Nest *n) {
    const Expr *body = nest_body(n);
    if (!n->target->byte_pairs || body->op != EX_mul) return false;
    for (int k = 0; k < 2; k++) {
        NarrowFactor rows = narrow_factor(body->arg[k]);
        NarrowFactor columns = narrow_factor(body->arg[1 - k]);
        if (!rows.load || !columns.load || !rows.load->arg[0]->loads) continue;
        int64_t at_once = target_products(n->target, (DType)rows.load->dt, (DType)columns.load->dt);
        const MovedLoops l = find_moved(n, &columns, at_once);
        if (l.column < 0 || l.few < 0 || l.steps < 0) continue;
        if (!nest_moves_fit(n, l.few, l.two >= 0)) return false;
        if (l.two < 0) {
            rest_tile(n, &l);
        } else {
            /* rows as if tables were not there, which depend on columns */
            const Expr *at = ex_rewrite(n->x, rows.load->arg[0], forget_table, n);
            const Expr *row = ex_load(n->x, DT_u8, (int)rows.load->k.i, 1, &at);
            const Expr *factor = ex_cast(n->x, DT_i32, row);
            const Expr *product = ex_mul(n->x, factor, body->arg[1 - k]);
            Product m;
            split_product(n, product, &m);
            if (product->arg[0] != factor) m = transposed(&m);
            m.moved = true;
            matrix_tile(n, &m, l.column, l.row, l.two, l.few, n->variant);
        }
        nest_bind(n, l.few, ROLE_moved);
        if (l.two >= 0) nest_pack(n); /* they lie as they are read, and are fetched ahead */
        return true;
    }
    return false;
}

typedef struct LaneLoads {
    const Nest *n;
    int loop;
    bool unit, other, packable; /* other: of what cannot be packed */
} LaneLoads;

static void look_at_lanes(void *user, const Expr *e) {
    LaneLoads *u = user;
    int64_t stride;
    if (e->op != EX_load) return;
    bool packable = nest_can_pack(u->n, e->k.i, e->arg[0]);
    if (!ex_stride(e->arg[0], u->loop, &stride) || (stride != 0 && stride != 1))
        *(packable ? &u->packable : &u->other) = true;
    else if (stride == 1 && !packable)
        u->unit = true;
}

/* Lanes for a reduction loop: where constants are packed they must fill it; 0 if none do. */
static int lanes_along(const Nest *n, int64_t extent, bool packed) {
    int lanes = lanes_of(n);
    while (lanes > extent || (packed && extent % lanes)) lanes /= 2;
    return lanes < 4 ? 0 : lanes;
}

/* Rows and columns of results whose lanes are kept at once, each an accumulator: a vector loaded
 * serves all rows or all columns. Costs as in choose_tile. */
static Tile lane_results(const Target *t, int64_t rows, int64_t columns) {
    Tile best = {.rows = 1, .columns = 1};
    double least = -1;
    for (int64_t c = 1; c <= 8 && c <= columns; c++)
        for (int64_t r = 1; r <= 8 && r <= rows && r * c <= t->vector_registers * 3 / 4; r++) {
            double cycles = (double)(r * c) / 2, loads = (double)(r + c) / 2;
            if (cycles < COST_OF_LOAD * loads) cycles = COST_OF_LOAD * loads;
            if (cycles < 5) cycles = 5;
            double total =
                (cycles + loads / 8) * (double)(tiles_of(rows, r) * tiles_of(columns, c));
            if (least >= 0 && total >= least) continue;
            least = total;
            best = (Tile){.rows = r, .columns = c};
        }
    return best;
}

/* Does it make words of words, bytes and rounded floats by comparing and adding them? Of the
 * largest of such, and of sums of bytes, compilers make no vectors. */
static bool chooses_words(const Expr *e) {
    const DType dt = (DType)e->dt;
    if (dt != DT_i32 && dt != DT_bool) return false;
    switch ((ExprOp)e->op) {
    case EX_cast:
        return ex_is_rounding(e) || (e->arg[0]->op == EX_load && dt_is_byte((DType)e->arg[0]->dt));
    case EX_const:
    case EX_var:
    case EX_load:
        return dt == DT_i32;
    case EX_select:
    case EX_lt:
    case EX_le:
    case EX_eq:
    case EX_and:
    case EX_or:
    case EX_add:
    case EX_sub:
    case EX_min:
    case EX_max:
        break;
    default:
        return false;
    }
    for (int i = 0; i < e->n; i++)
        if (!chooses_words(e->arg[i])) return false;
    return true;
}

#define SUMS_AT_ONCE 4
#define LONG_SUM     16 /* beside which what is left of it is little */

/* A reduction that reads its operands along one of its own loops: vectors of partial results, for a
 * few rows, of a product also columns, at a time. Without such a loop, one element comes after the
 * other. */
static bool lane_tile(Nest *n) {
    const Expr *body = nest_body(n);
    int best = -1, last = -1, lanes = 0, outer, inner;
    int64_t depth = shape_numel(n->op->n_red, n->op->red);
    bool pack = false;
    const DType dt = (DType)body->dt;
    const bool floats = dt_is_float(dt) && !dt_is_narrow(dt);
    if (!n->target->vector_types || !(floats || (dt == DT_i32 && chooses_words(body))))
        return false;
    for (int i = 0; i < n->n_order; i++) {
        LaneLoads u = {.n = n, .loop = n->order[i]};
        const NestLoop *l = &n->loop[u.loop];
        if (!l->reduce && l->extent >= 2) last = u.loop;
        if (!l->reduce || (l->extent < 8 && (l->extent != 4 || depth < 16))) continue;
        ex_visit(n->p->arena, body, look_at_lanes, &u);
        int along = lanes_along(n, l->extent, u.packable);
        if (!u.unit || u.other || !along || (best >= 0 && l->extent < n->loop[best].extent))
            continue;
        best = u.loop;
        lanes = along;
        pack = u.packable;
    }
    if (best < 0) return false;
    int64_t tiles;
    int order[NEST_MAX_LOOPS], k = 0, inside[2], count = 0;
    Product m;
    bool product = find_product(n, &m);
    int row = product ? longest_of(n, m.row, m.n_row) : -1;
    int column = product ? longest_of(n, m.column, m.n_column) : -1;
    if (row >= 0 && column >= 0) {
        Tile tile = lane_results(n->target, n->loop[row].extent, n->loop[column].extent);
        if (tile.rows > 1) inside[count++] = tile_loop(n, row, tile.rows, &tiles);
        if (tile.columns > 1) inside[count++] = tile_loop(n, column, tile.columns, &tiles);
    } else if (last >= 0) {
        /* rows of which a vector is all lie side by side: the more at once, the longer the
         * stretches */
        int64_t rows = lanes == n->loop[best].extent ? 8 : 4;
        Ranking ranking = {.n = 0};
        for (int64_t r = 2; r <= 16; r *= 2)
            rank_tile(&ranking,
                      (Tile){.rows = r, .cost = (double)(r > rows ? r - rows : rows - r)});
        inside[count++] = tile_loop(n, last, ranked_tile(&ranking, n->variant).rows, &tiles);
    }
    /* one sum after the other waits for each addition: a few vectors of it at once do not */
    int64_t sums = 1;
    for (int i = 0; i < count; i++) sums *= n->loop[inside[i]].extent;
    const int64_t extent = n->loop[best].extent;
    int64_t most = SUMS_AT_ONCE / sums * lanes_of(n);
    if (nest_limited(n, best)) most /= 2; /* more may be left of each row */
    while (!pack && lanes < most && (extent % (2 * lanes) == 0 || extent >= LONG_SUM * 2 * lanes))
        lanes *= 2;
    for (int i = 0; i < count; i++) nest_bind(n, inside[i], ROLE_unroll);
    nest_dot(n, best, lanes, &outer, &inner);
    k = reductions_by_stride(n, nest_body(n), order, k);
    k = without(order, k, inner);
    for (int i = 0; i < count; i++) order[k++] = inside[i];
    order[k++] = inner;
    nest_order(n, k, order);
    if (pack) nest_pack(n);
    return true;
}

#define SCANNED 256 /* elements of a row that are scanned beside each other */

/* A scan across rows goes along a piece of them at every position. */
static void loops_scan(Nest *n) {
    int64_t stride, tiles;
    const int last = n->order[n->n_order - 1], column = find_column(n, nest_body(n), false);
    if (!n->target->vector_types || column < 0 || n->loop[column].least < n->loop[column].extent)
        return;
    const Expr *out = ex_subst_vars(n->x, nest_output_index(n), n->n_coords, n->coord);
    if (!ex_stride(out, column, &stride) || stride != 1) return;
    const int order[] = {last, tile_loop(n, column, SCANNED, &tiles)};
    nest_order(n, 2, order);
}

/* Reduction for loops: accumulators are a tile of vectors, the reduction runs outside of it. */
static void loops_reduce(Nest *n) {
    if (matrices_tile(n)) return;
    split_divided(n);
    if (n->target->scalar_registers) {
        int order[NEST_MAX_LOOPS];
        nest_order(n, reductions_by_stride(n, nest_body(n), order, 0), order);
    }
    join_loops(n);
    if (moved_tile(n) || narrow_tile(n) || partial_tile(n)) return;
    if (n->target->scalar_registers) {
        schedule_scalars(n);
        return;
    }
    int column = find_column(n, nest_body(n), false);
    if (column < 0) {
        if (lane_tile(n) || !n->target->vector_types) return;
        column = find_column(n, nest_body(n), true);
        if (column < 0) return;
    }
    Product m;
    bool product = find_product(n, &m);
    if (product && listed(column, m.column, m.n_column)) {
        matrix_tile(n, &m, column, longest_of(n, m.row, m.n_row), -1, -1, n->variant);
    } else if (product && listed(column, m.row, m.n_row)) {
        const Product turned = transposed(&m);
        matrix_tile(n, &turned, column, longest_of(n, m.column, m.n_column), -1, -1, n->variant);
    } else {
        int row = -1;
        for (int i = 0; i < n->n_order; i++)
            if (!n->loop[n->order[i]].reduce && n->order[i] != column &&
                n->loop[n->order[i]].extent >= 2)
                row = n->order[i];
        window_tile(n, column, row);
    }
    nest_pack(n);
}

/* A map to bytes or words whose four innermost elements (two or three, of bytes) lie apart in what
 * it reads, while those of the loop around lie side by side: vectors along that loop are
 * interleaved. */
static void interleave(Nest *n) {
    const DType dt = n->op->out[0]->dt;
    if (!n->target->vector_types || n->n_order < 2 || (dt_store(dt) != 1 && dt != DT_i16)) return;
    int last = n->order[n->n_order - 1], around = n->order[n->n_order - 2];
    VectorScore along = {.n = n, .loop = around}, across = {.n = n, .loop = last};
    ex_visit(n->p->arena, nest_body(n), score_load, &along);
    ex_visit(n->p->arena, nest_body(n), score_load, &across);
    const int64_t few = n->loop[last].extent;
    if ((few == 4 || ((few == 2 || few == 3) && dt_store(dt) == 1)) &&
        n->loop[around].extent >= 4 && along.unit && !along.other && across.other)
        nest_bind(n, last, ROLE_unroll);
}

/* How a map's loads go along a loop, but for those that are the same all along another. */
typedef struct Reach {
    const Nest *n;
    int loop, other;
    int near, far; /* loads of neighbours that lie in one line, and in lines of their own */
} Reach;

static void look_at_reach(void *user, const Expr *e) {
    Reach *r = user;
    int64_t stride;
    if (e->op != EX_load || (ex_stride(e->arg[0], r->other, &stride) && !stride)) return;
    if (!ex_stride(e->arg[0], r->loop, &stride)) stride = LINE_BYTES;
    int64_t bytes = (stride < 0 ? -stride : stride) * (int64_t)dt_store((DType)e->dt);
    r->near += bytes > 0 && bytes < LINE_BYTES;
    r->far += bytes >= LINE_BYTES;
}

static Reach reach_of(Nest *n, int loop, int other) {
    Reach r = {.n = n, .loop = loop, .other = other};
    ex_visit(n->p->arena, nest_body(n), look_at_reach, &r);
    return r;
}

/* The loop outside of position `at` along which a map reads neighbours, where it reads across rows
 * along the loop there; -1: there is none. */
static int find_along(Nest *n, int at) {
    const int across = n->order[at];
    for (int i = at - 1; i >= 0; i--) {
        Reach far = reach_of(n, across, n->order[i]), near = reach_of(n, n->order[i], n->order[i]);
        if (far.far && !far.near && near.near && !near.far) return n->order[i];
    }
    return -1;
}

/* The part of a loop that runs over a line, or over a vector where lines would leave much. */
static int line_loop(Nest *n, int loop, int64_t line, int64_t lanes) {
    int64_t extent = n->loop[loop].extent, tiles;
    bool lines = extent % line == 0 || (extent % lanes && extent >= 4 * line);
    return tile_loop(n, loop, lines ? line : lanes, &tiles);
}

/* The innermost loop of a map, along which it writes, in squares with one along which it reads
 * vectors; false if there is none. */
static bool turn_squares(Nest *n) {
    const DType dt = n->op->out[0]->dt;
    const int last = n->n_order - 1, lanes = n->target->vector_bytes / WORD_BYTES;
    const int64_t line = LINE_BYTES / (int64_t)dt_store(dt);
    if (!dt_is_float(dt) || dt_store(dt) > WORD_BYTES || lanes < 4) return false;
    const int across = n->order[last], along = find_along(n, last);
    if (along < 0 || n->loop[along].extent < lanes || n->loop[across].extent < lanes) return false;
    VectorScore rows = {.n = n, .loop = along};
    ex_visit(n->p->arena, nest_body(n), score_load, &rows);
    if (!rows.unit || rows.other) return false;
    int64_t tiles;
    int part[2] = {line_loop(n, across, line, lanes), line_loop(n, along, line, lanes)};
    if (lanes < line) nest_order(n, 2, part);
    int square[2] = {tile_loop(n, part[0], lanes, &tiles), tile_loop(n, part[1], lanes, &tiles)};
    nest_order(n, 2, square);
    nest_bind(n, square[0], ROLE_unroll);
    nest_bind(n, square[1], ROLE_vector);
    return true;
}

/* A map that writes along rows what it reads across them. Where the rows are vectors, squares of
 * them are turned in registers, of a few lines one after the other; else a few lines are read to
 * their ends before the next ones, so that they stay in the cache. */
static void block_across(Nest *n) {
    int64_t line = LINE_BYTES / (int64_t)dt_store(n->op->out[0]->dt), tiles;
    int inner[NEST_MAX_LOOPS], k = 0, at = n->n_order - 1;
    if (!n->target->vector_types || n->n_order < 2 || turn_squares(n)) return;
    while (at > 0 && n->loop[n->order[at]].extent < 2 * line) at--;
    int along = at > 0 ? find_along(n, at) : -1;
    if (along < 0) return;
    inner[k++] = along;
    for (int i = at; i < n->n_order; i++) inner[k++] = n->order[i];
    inner[1] = tile_loop(n, inner[1], line, &tiles);
    nest_order(n, k, inner);
}

/* The outermost loops are shared by threads: as many of a reduction's as make enough iterations. */
static void share_outer(Nest *n) {
    int count = 0;
    int64_t iterations = 1;
    bool several = n->op->kind == OP_reduce && n->target->vector_types;
    for (int i = 0; i < n->n_order && iterations < ENOUGH_TO_SHARE; i++, count++) {
        const NestLoop *l = &n->loop[n->order[i]];
        if (l->reduce || l->role != ROLE_serial || (count && !several)) break;
        iterations *= l->extent;
    }
    if (count && iterations > 1) nest_share(n, count);
}

void schedule_choose(Nest *n) {
    OpKind kind = n->op->kind;
    if (n->target->blocks) {
        schedule_blocks(n);
        return;
    }
    if (kind == OP_reduce) {
        loops_reduce(n);
        finish_later(n);
    } else if (kind == OP_scan)
        loops_scan(n);
    else if (kind == OP_map) {
        split_divided(n);
        join_loops(n);
        interleave(n);
        block_across(n);
    }
    if (kind != OP_scatter) share_outer(n);
}
