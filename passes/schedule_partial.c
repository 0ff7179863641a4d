/* The first schedule of sums in two steps (nest_partial): those of blocks of the depth, each with a
 * scale of its own, as products with weights of few bits are (ir/few_bits.h).
 */
#include "passes/schedule.h"

#include <math.h>
#include <string.h>

/* The constants that a factor reads. */
typedef struct Constants {
    const Nest *n;
    uint64_t loops; /* that say which element */
    bool any, all;  /* it reads some, and nothing else */
} Constants;

static void look_at_constants(void *user, const Expr *e) {
    Constants *u = user;
    if (e->op != EX_load) return;
    u->any = true;
    u->all &= nest_can_pack(u->n, e->k.i, e->arg[0]);
    u->loops |= ex_vars(e);
}

#define MOST_SHORT 2

/* Such a sum's terms as a product, and its loops. */
typedef struct Terms {
    const Expr *term;
    Product m;
    Constants weights;               /* the columns */
    int row, column;                 /* row: -1: none */
    int around;                      /* the loop over blocks */
    int deep, depth[NEST_MAX_LOOPS]; /* all reduction loops */
    int few;                         /* over products that the target adds at once; -1: none */
    int n_short, shorts[MOST_SHORT]; /* loops around those, whose sums fit into 16 bits, ... */
    int64_t short_times;             /* ... with so many iterations in all */
} Terms;

/* Reads it with factor `k` as the rows; false if they are none, or no tile fits. */
static bool read_terms(Nest *n, const Expr *term, int k, Terms *t) {
    *t = (Terms){.term = term, .weights = {n, 0, false, true}, .few = -1};
    ex_visit(n->p->arena, term->arg[1 - k], look_at_constants, &t->weights);
    split_product(n, term, &t->m);
    if (k) t->m = transposed(&t->m);
    t->row = longest_of(n, t->m.row, t->m.n_row);
    t->column = longest_of(n, t->m.column, t->m.n_column);
    if (!t->weights.any || !t->weights.all) return false;
    if (t->column < 0 || n->loop[t->column].extent < lanes_of(n)) return false;
    t->deep = reductions_by_stride(n, term, t->depth, 0);
    /* sums that are arrays the C compiler keeps in registers if they are few */
    return t->row < 0 || n->target->vector_types || n->target->scalar_registers;
}

/* Takes products of bytes by fours, if the rows, `factor`, are such and lie side by side. */
static void split_fours(Nest *n, const Expr *factor, Terms *t) {
    const Expr *rows = nest_narrow_factor(n->x, factor);
    if (!rows || rows->op != EX_load || rows->dt != DT_i8) return;
    if (!n->target->byte_products || !n->target->vector_types) return;
    for (int i = 0; i < t->deep && t->few < 0; i++) {
        int64_t stride;
        int fours;
        const int loop = t->depth[i];
        if (loop == t->around || n->loop[loop].extent % BYTES_AT_ONCE ||
            !ex_stride(rows->arg[0], loop, &stride) || stride != 1)
            continue;
        nest_split(n, loop, BYTES_AT_ONCE, &fours, &t->few);
        t->depth[i] = fours;
        if (t->weights.loops >> loop & 1) t->weights.loops |= UINT64_C(1) << fours;
    }
}

#define FOURS_AT_ONCE 8 /* that are added in 16 bits: of longer rows of code little is gained */

/* Takes what it can of the loops over fours of a block as sums of 16 bits. */
static void find_short_sums(Nest *n, Terms *t) {
    t->short_times = 1;
    for (int i = t->deep - 1; i >= 0 && t->few >= 0; i--) {
        int loop = t->depth[i], outer, inner;
        if (loop == t->around || t->n_short == MOST_SHORT) continue;
        int64_t part = n->loop[loop].extent;
        while (part > 1 &&
               (t->short_times * part > FOURS_AT_ONCE || n->loop[loop].extent % part ||
                !nest_sums_are_short(n, t->term, 0, NULL, t->short_times * part, t->few)))
            part--;
        if (part == 1) continue;
        if (part < n->loop[loop].extent) {
            nest_split(n, loop, part, &outer, &inner);
            if (t->weights.loops >> loop & 1) t->weights.loops |= UINT64_C(1) << outer;
            t->depth[i] = outer;
            loop = inner;
        } else {
            memmove(&t->depth[i], &t->depth[i + 1], (size_t)(--t->deep - i) * sizeof *t->depth);
        }
        nest_bind(n, loop, ROLE_short);
        t->shorts[t->n_short++] = loop;
        t->short_times *= part;
    }
}

static Tile tile_of(const Nest *n, const Terms *t) {
    const int at_once = t->few < 0 ? 1 : BYTES_AT_ONCE, row = t->row;
    const Operands o = {.rows = row >= 0 ? n->loop[row].extent : 1,
                        .columns = n->loop[t->column].extent,
                        .depth = t->m.depths / at_once,
                        .times = row >= 0 ? t->m.rows / n->loop[row].extent : 1,
                        .fewest = row >= 0 ? n->loop[row].least : 1,
                        .row_bytes = row >= 0 ? bytes_behind(n, &t->m, t->term, row) : 0,
                        .column_bytes = bytes_behind(n, &t->m, t->term, t->column),
                        .most_rows = most_rows(n, t->term, row),
                        .temporaries = t->n_short    ? 1
                                       : at_once > 1 ? n->target->vector_registers / 2
                                                     : 4,
                        .instructions = t->n_short ? short_instructions(t->short_times) : 0,
                        .at_once = at_once,
                        .floats = dt_is_float((DType)t->term->dt)};
    return choose_tile(n->target, lanes_of(n), &o, n->variant);
}

/* Of columns, of which several tiles go side by side if a lone row meets them. */
#define LONE_VECTORS 2

#define LEAST_BLOCKS 16 /* which threads share */

/* Columns go by in blocks of so many tiles, for each of which all rows come: where results go to
 * memory, a tile alone would write short pieces, far apart, which nothing fetches ahead. 1: tiles
 * go by alone. Rows that vary are counted as most. */
static int64_t column_block(const Nest *n, const Product *m, double column_bytes, int64_t tiles) {
    const double results = (double)m->rows * (double)m->columns * (double)m->batches *
                           (double)dt_store(n->op->out[0]->dt);
    if (results <= (double)n->target->l3_bytes || m->n_row != 1 || n->target->scalar_registers)
        return 1;
    int64_t block =
        (int64_t)((double)n->target->l2_bytes / 4 / (fmax(column_bytes / (double)tiles, 1)));
    if (block > tiles / LEAST_BLOCKS) block = tiles / LEAST_BLOCKS;
    while (block > 1 && tiles % block) block--;
    return block > 1 ? block : 1;
}

static void place(Nest *n, const Terms *t) {
    Tile tile = tile_of(n, t);
    const int64_t extent = n->loop[t->column].extent, few = LONE_VECTORS * lanes_of(n);
    const int64_t parts =
        t->row < 0 && extent % few == 0 ? streams_of(n, t->column, extent / few) : 1;
    if (parts > 1) tile.columns = few;
    int64_t row_tiles = 1, column_tiles = 1;
    int order[NEST_MAX_LOOPS], inner[3], count = 0, at = 0, around;
    if (t->row >= 0) inner[count++] = tile_loop(n, t->row, tile.rows, &row_tiles);
    const int columns = tile_loop(n, t->column, tile.columns, &column_tiles);
    if (parts > 1) {
        nest_split(n, outer_of(columns), column_tiles / parts, &inner[count], &around);
        nest_stream(n, inner[count++]);
    }
    inner[count++] = columns;
    const Role role = n->target->scalar_registers ? ROLE_unroll : ROLE_vector;
    for (int i = 0; i < count; i++) nest_bind(n, inner[i], i == count - 1 ? role : ROLE_unroll);
    int panels = column_tiles > 1 ? outer_of(columns) : -1;
    if (t->row >= 0 && column_tiles > 1)
        at = order_tiles(n, &t->m, t->term, t->row, t->column,
                         row_tiles > 1 ? outer_of(inner[0]) : -1, panels, tile.turned, order);
    if (at == 2 && order[0] == panels) { /* columns around rows */
        const int64_t block =
            column_block(n, &t->m, bytes_behind(n, &t->m, t->term, t->column), column_tiles);
        if (block > 1) nest_split(n, panels, block, &panels, &order[at++]);
        order[0] = panels;
    }
    order[at++] = t->around;
    for (int i = 0; i < t->deep; i++)
        if (t->depth[i] != t->around && t->weights.loops >> t->depth[i] & 1)
            order[at++] = t->depth[i];
    for (int i = 0; i < t->deep; i++) { /* places in bytes that have been read */
        if (t->depth[i] == t->around || t->weights.loops >> t->depth[i] & 1) continue;
        nest_bind(n, t->depth[i], ROLE_unroll);
        order[at++] = t->depth[i];
    }
    for (int i = t->n_short - 1; i >= 0; i--) order[at++] = t->shorts[i];
    for (int i = 0; i < count; i++) order[at++] = inner[i];
    if (t->few >= 0) {
        nest_bind(n, t->few, ROLE_unroll);
        order[at++] = t->few;
    }
    nest_order(n, at, order);
    if (row_tiles > 1)
        tile_singles(n, &t->m, inner[0], column_tiles > 1 ? columns : -1, panels,
                     n->loop[t->column].extent);
    nest_partial(n, t->around);
    nest_pack(n);
}

/* Schedules a sum of blocks of the product `term`; false: it is none with constants. */
static bool place_partial(Nest *n, const Expr *term, int around) {
    for (int k = 0; k < 2; k++) {
        Terms t;
        if (!read_terms(n, term, k, &t)) continue;
        t.around = around;
        split_fours(n, term->arg[k], &t);
        find_short_sums(n, &t);
        place(n, &t);
        return true;
    }
    return false;
}

bool partial_tile(Nest *n) {
    const Expr *body = nest_body(n);
    uint64_t all = 0;
    if (n->op->combine != COMBINE_sum || n->guard[1] || value_numel(n->op->out[0]) == 0)
        return false;
    for (int i = 0; i < n->n_order; i++)
        if (n->loop[n->order[i]].reduce) all |= UINT64_C(1) << n->order[i];
    for (int i = 0; i < n->n_order; i++) {
        const int loop = n->order[i];
        const int64_t blocks = n->loop[loop].extent;
        const uint64_t inside = all & ~(UINT64_C(1) << loop);
        if (!n->loop[loop].reduce || !inside || blocks < 1) continue;
        const int64_t times = shape_numel(n->op->n_red, n->op->red) / blocks;
        const Expr *term = nest_partial_sum(n->x, body, inside, times).term;
        if (term != body && term->op == EX_mul) return place_partial(n, term, loop);
    }
    return false;
}
