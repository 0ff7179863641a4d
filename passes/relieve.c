/* relieve: constant columns of products of bytes have sums that fit into 16 bits, for targets that
 * add products in such (Target.byte_pairs).
 *
 * x86 before VNNI multiplies unsigned with signed bytes and adds two neighbours with one
 * instruction, if the sum fits into 16 bits: three instructions for a vector of fours, where words
 * take four. With any rows, the sum fits if the positive columns among the two come to 128 at most,
 * and the negative ones too. For a block of columns, what is too much in a four is left to a second
 * four at the same place, behind all others (MODE_single). The product becomes
 *
 *     sum over f and i of row[four[c / block, f] + i] * relieved[c, 4 * f + i]
 *
 * where f goes over those, too. Two such sums can be added before they become one of 32 bits with
 * their neighbours: five instructions for two vectors (MODE_pair). Four products then have to fit.
 * Of trained weights most do, and which elements of the depth make a sum is free: for a block of
 * columns, fours of the depth, which a row has side by side, are matched so that few sums are too
 * large: the same sum, with f over as many fours as there were. What is too much in a sum is taken
 * away from its columns, and a second product adds it:
 *
 *     rest[row, c] = sum over v and i of row[place[v] + to[v, c, i]] * lack[v, c, i]
 *
 * Each v is a vector of columns, which find four elements each, in two pairs, within a window of
 * the row: 64 bytes for 16 columns, or 16 bytes for fewer. That takes four instructions, but few v.
 *
 * Or each column chooses for itself which elements a sum adds (MODE_dealt, deal.h): an instruction
 * moves bytes of a row to where its lane wants them, seven for two vectors of fours, and hardly a
 * sum is too large, whatever the columns are:
 *
 *     sum over s, f and i of row[place[c / lanes, s] + to[c, s, f, i]] * dealt[c, s, f, i]
 *
 * The result is exact.
 */
#include "passes/relieve.h"

#include "ir/constant.h"
#include "passes/deal.h"
#include "passes/inline.h"
#include "passes/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES MOST_LANES
#define MOST  SUM_MOST

/* Half cycles, as measured (Skylake): more than instructions where loads are late. */
#define COST_OF_WORDS    4.1  /* of a vector of fours as words, */
#define COST_OF_FOURS    3.3  /* in fours of bytes (0.8 of words, a Zen 3's ratio), */
#define COST_OF_PAIRS    2.8  /* in pairs of these, */
#define COST_OF_DEALT    3.1  /* in pairs whose rows are moved: a Zen 3's ratio, ... */
#define COST_OF_DEALT_64 3.9  /* ... and estimated for vectors of 64 bytes, which have two units */
#define COST_OF_REST     6.6  /* of a vector of the rest, */
#define COST_OF_SUMS     32   /* and what it takes to store a vector of sums and to load it again */
#define WORTH            0.95 /* of what words take */
#define LEAST_ROWS       6 /* of dealt columns, which take two bytes for each: fewer wait for them */
#define MOST_EMPTY       1.3 /* of such: steps that there is place for, of those that do something */
#define LEAST_DEPTH      64  /* of such products; no less than a window */
#define SAMPLES          4   /* blocks of columns that are tried before a product is one of bytes */
#define CHOICE           128 /* fours, among which one finds another */

/* What columns come to that have this sign. */
static int sum_of_sign(const int *w, int n, int sign) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        if (w[i] * sign > 0) sum += w[i] * sign;
    return sum;
}

static bool fit(const int *w, int n) {
    return sum_of_sign(w, n, 1) <= MOST && sum_of_sign(w, n, -1) <= MOST;
}

bool relieve_fits(Arena *arena, const Fours *f) {
    const int8_t *data = constant_settle(arena, f->v);
    int64_t at[64] = {0}, place = f->first;
    for (;;) {
        for (int half = 0; half < FEW; half += 2) {
            int sum[2] = {0}; /* of the positive ones, and of the negative ones */
            for (int k = 0; k < f->together; k++) {
                const int8_t *four = &data[place + k * f->apart + half * f->stride];
                const int w[2] = {four[0], four[f->stride]};
                for (int sign = 0; sign < 2; sign++) sum[sign] += sum_of_sign(w, 2, sign ? -1 : 1);
            }
            if (sum[0] > MOST || sum[1] > MOST) return false;
        }
        int i = f->n - 1;
        for (; i >= 0 && ++at[i] == f->extent[i]; at[i--] = 0)
            place -= f->step[i] * (f->extent[i] - 1);
        if (i < 0) return true;
        place += f->step[i];
    }
}

bool relieve_moves(Arena *arena, Value *table, Value *lack, int window) {
    int64_t n = value_numel(table);
    if (value_numel(lack) != n || n % 2) return false;
    const uint8_t *to = constant_settle(arena, table);
    const int8_t *more = constant_settle(arena, lack);
    for (int64_t i = 0; i < n; i += 2) {
        const int w[2] = {more[i], more[i + 1]};
        if (to[i] % 2 || to[i] >= window || to[i + 1] != to[i] + 1 || !fit(w, 2)) return false;
    }
    return true;
}

bool relieve_reaches(Arena *arena, Value *table, int window) {
    const int64_t n = value_numel(table);
    const uint8_t *to = constant_settle(arena, table);
    for (int64_t i = 0; i < n; i++)
        if (to[i] >= window) return false;
    return true;
}

/* --- what columns lack ------------------------------------------------------------------------ */

/* Two neighbours along the depth. */
typedef struct Pair {
    int64_t at; /* the first */
    int8_t lack[2];
} Pair;

typedef VEC(Pair) Pairs; /* by place */

/* Adds to what a pair lacks, or, if the sum of that would not fit, to a second one in its place. */
static void add_lack(Arena *arena, Pairs *pairs, int64_t at, int k, int lack) {
    Pair new = {.at = at};
    int place = pairs->n;
    for (; place > 0 && pairs->items[place - 1].at >= at; place--) {
        Pair *p = &pairs->items[place - 1];
        int w[2] = {p->lack[0], p->lack[1]};
        w[k] += lack;
        if (p->at > at || !fit(w, 2) || w[k] > INT8_MAX) continue;
        p->lack[k] = (int8_t)w[k];
        return;
    }
    new.lack[k] = (int8_t)lack;
    vec_push(arena, pairs, new);
    memmove(&pairs->items[place + 1], &pairs->items[place],
            (size_t)(pairs->n - 1 - place) * sizeof new);
    pairs->items[place] = new;
}

/* Takes what is too much from the four of a sum, pairs at `first` and `second`: first of all from
 * the largest. */
static void relieve_sum(Arena *arena, int *w, int64_t first, int64_t second, Pairs *pairs) {
    for (int sign = -1; sign <= 1; sign += 2)
        for (int much; (much = sum_of_sign(w, FEW, sign) - MOST) > 0;) {
            int largest = 0;
            for (int i = 1; i < FEW; i++)
                if (w[i] * sign > w[largest] * sign) largest = i;
            int by = w[largest] * sign;
            if (by > much) by = much;
            if (by > INT8_MAX) by = INT8_MAX;
            w[largest] -= sign * by;
            add_lack(arena, pairs, largest < 2 ? first : second, largest % 2, sign * by);
        }
}

/* --- vectors of the rest ---------------------------------------------------------------------- */

typedef struct RestVector {
    int64_t place;
    uint8_t to[LANES][FEW];
    int8_t lack[LANES][FEW];
} RestVector;

typedef enum Mode {
    MODE_none,   /* bytes take no less than words do */
    MODE_single, /* sums of two products fit into 16 bits, */
    MODE_pair,   /* or of four, */
    MODE_dealt   /* or of four that are chosen for each column */
} Mode;

typedef struct Work {
    Arena *arena;
    const ConstantColumns *columns;
    const void *data;
    int8_t *relieved;  /* [columns, depth]; NULL: not wanted */
    int lanes, window; /* columns of a vector; bytes of a row in which they find what they lack */
    int block;         /* columns that go by the same fours: of one vector or two */
    int8_t *weight;    /* of the block at work: [columns, depth] */
    int32_t *four;     /* ... in their order: where each begins */
    Pairs pairs[LANES];
    VEC(RestVector) rest;
} Work;

static Work begin_work(Arena *arena, const Target *t, const ConstantColumns *columns) {
    int lanes = t->vector_bytes / FEW, block = columns->n % (2 * lanes) ? lanes : 2 * lanes;
    return (Work){.arena = arena,
                  .columns = columns,
                  .data = constant_settle(arena, columns->v),
                  .lanes = lanes,
                  .window = target_window(t),
                  .block = block,
                  .weight = ARENA_ARRAY(arena, block * columns->depth, int8_t),
                  .four = ARENA_ARRAY(arena, columns->depth / FEW, int32_t)};
}

/* Has it whole vectors, and depth for a window and for what it takes? */
static bool has_size(const Work *k) {
    const ConstantColumns *c = k->columns;
    return c->depth >= LEAST_DEPTH && c->depth % FEW == 0 && c->n % k->lanes == 0;
}

/* Columns are counted through all matrices. */
static int64_t all_columns(const ConstantColumns *c) {
    return c->batches * c->n;
}

static int64_t place_of(const ConstantColumns *c, int64_t column) {
    return column % c->n * c->column_stride + column / c->n * c->batch_stride;
}

/* The block that begins with the column, all of one matrix. */
static void read_block(Work *k, int64_t column) {
    const ConstantColumns *c = k->columns;
    const int zero = c->v->dt == DT_u8 ? 128 : 0;
    const uint8_t *data = (const uint8_t *)k->data + place_of(c, column);
    for (int64_t depth = 0; depth < c->depth; depth++, data += c->stride)
        for (int64_t i = 0; i < k->block; i++)
            k->weight[i * c->depth + depth] = (int8_t)(data[i * c->column_stride] - zero);
}

/* Reads the four of a sum: two of the four that begins at `first`, the first or (half: 2) the last,
 * and of that at `second`. */
static void read_sum(const Work *k, int64_t first, int64_t second, int half, int64_t column,
                     int *w) {
    const int8_t *weight = &k->weight[column % k->block * k->columns->depth + half];
    w[0] = weight[first], w[1] = weight[first + 1];
    w[2] = weight[second], w[3] = weight[second + 1];
}

/* --- matching --------------------------------------------------------------------------------- */

enum { SUMS = 8 * LANES, WORDS = SUMS / 8 }; /* bytes and words of sums of a four */

/* A few fours of a block of columns. */
typedef struct Choice {
    int n;
    uint64_t sums[CHOICE][WORDS];         /* half of what pairs come to, by column, pair and sign */
    uint8_t cost[CHOICE][CHOICE];         /* sums of two fours that are too large, about */
    uint8_t other[CHOICE];                /* of a four */
    uint16_t sorted[CHOICE * CHOICE / 2]; /* twos, the cheapest first: number * CHOICE + number */
} Choice;

#define CHOICE_ROOM ((size_t)1 << 16) /* a power of two */
_Static_assert(sizeof(Choice) <= CHOICE_ROOM, "a choice has room");

static void read_choice(const Work *k, int64_t depth, Choice *c) {
    for (int f = 0; f < c->n; f++) {
        uint8_t sums[SUMS] = {0};
        for (int i = 0; i < k->block * 2; i++) {
            const int8_t *pair =
                &k->weight[i / 2 * k->columns->depth + depth + f * FEW + i % 2 * 2];
            const int w[2] = {pair[0], pair[1]};
            for (int sign = 0; sign < 2; sign++) {
                int half = sum_of_sign(w, 2, sign ? -1 : 1) / 2;
                sums[i * 2 + sign] = (uint8_t)(half < MOST / 2 ? half : MOST / 2);
            }
        }
        memcpy(c->sums[f], sums, sizeof sums);
    }
}

static int cost_of(const Choice *c, int a, int b) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t count = 0; /* byte by byte */
    for (int i = 0; i < WORDS; i++)
        count += (c->sums[a][i] + c->sums[b][i] + ones * (MOST / 2 - 1)) >> 7 & ones;
    return (int)(count * ones >> 56);
}

static void sort_twos(Choice *c) {
    int first[SUMS + 2] = {0};
    for (int a = 0; a < c->n; a++)
        for (int b = 0; b < a; b++) {
            c->cost[a][b] = c->cost[b][a] = (uint8_t)cost_of(c, a, b);
            first[c->cost[a][b] + 1]++;
        }
    for (int i = 1; i < SUMS + 2; i++) first[i] += first[i - 1];
    for (int a = 0; a < c->n; a++)
        for (int b = 0; b < a; b++) c->sorted[first[c->cost[a][b]]++] = (uint16_t)(a * CHOICE + b);
}

/* The cheapest twos of those that are left, one after the other. */
static void match_greedily(Choice *c) {
    for (int i = 0; i < c->n; i++) c->other[i] = (uint8_t)i;
    for (int i = 0; i < c->n * (c->n - 1) / 2; i++) {
        int a = c->sorted[i] / CHOICE, b = c->sorted[i] % CHOICE;
        if (c->other[a] != a || c->other[b] != b) continue;
        c->other[a] = (uint8_t)b;
        c->other[b] = (uint8_t)a;
    }
}

/* Lets two twos change partners; false if that makes none cheaper. */
static bool improve(Choice *c) {
    bool better = false;
    for (int a = 0; a < c->n; a++)
        for (int b = 0; b < a; b++) {
            int x = c->other[a], y = c->other[b];
            if (x == b || c->cost[a][b] + c->cost[x][y] >= c->cost[a][x] + c->cost[b][y]) continue;
            c->other[a] = (uint8_t)b, c->other[b] = (uint8_t)a;
            c->other[x] = (uint8_t)y, c->other[y] = (uint8_t)x;
            better = true;
        }
    return better;
}

/* Orders the fours of the block at work, two that make sums after the other. */
static void match_fours(Work *k, Choice *c) {
    int n = 0;
    for (int64_t depth = 0; depth < k->columns->depth; depth += CHOICE * FEW) {
        int64_t left = (k->columns->depth - depth) / FEW;
        c->n = left < CHOICE ? (int)left : CHOICE;
        read_choice(k, depth, c);
        sort_twos(c);
        match_greedily(c);
        for (int rounds = 0; rounds < 8 && improve(c); rounds++) {
        }
        for (int i = 0; i < c->n; i++) {
            if (c->other[i] < i) continue;
            k->four[n++] = (int32_t)(depth + i * FEW);
            k->four[n++] = (int32_t)(depth + c->other[i] * FEW);
        }
    }
}

/* --- relieving -------------------------------------------------------------------------------- */

static void relieve_column(Work *k, int64_t column, Pairs *pairs) {
    pairs->n = 0;
    for (int64_t depth = 0; depth < k->columns->depth; depth += 2 * FEW) {
        const int32_t *four = &k->four[depth / FEW];
        for (int half = 0; half < FEW; half += 2) {
            int w[FEW];
            read_sum(k, four[0], four[1], half, column, w);
            relieve_sum(k->arena, w, four[0] + half, four[1] + half, pairs);
            for (int i = 0; i < FEW && k->relieved; i++) {
                int64_t at = depth + half + i % 2 + i / 2 * FEW;
                k->relieved[column * k->columns->depth + at] = (int8_t)w[i];
            }
        }
    }
}

/* Relieves a vector of columns and adds those of its rest: each begins with the first pair that is
 * left, but ends in the row. */
static void relieve_columns(Work *k, int64_t column) {
    const int64_t depth = k->columns->depth;
    int taken[LANES] = {0};
    for (int i = 0; i < k->lanes; i++) relieve_column(k, column + i, &k->pairs[i]);
    for (;;) {
        RestVector v = {.place = depth};
        for (int i = 0; i < k->lanes; i++)
            if (taken[i] < k->pairs[i].n && k->pairs[i].items[taken[i]].at < v.place)
                v.place = k->pairs[i].items[taken[i]].at;
        if (v.place == depth) return;
        if (v.place > depth - k->window) v.place = depth - k->window;
        for (int i = 0; i < k->lanes; i++)
            for (int half = 0; half < FEW; half += 2) {
                Pair p = {.at = v.place}; /* nothing is lacking */
                if (taken[i] < k->pairs[i].n &&
                    k->pairs[i].items[taken[i]].at < v.place + k->window)
                    p = k->pairs[i].items[taken[i]++];
                for (int j = 0; j < 2; j++) {
                    v.to[i][half + j] = (uint8_t)(p.at - v.place + j);
                    v.lack[i][half + j] = p.lack[j];
                }
            }
        vec_push(k->arena, &k->rest, v);
    }
}

/* Of the block that was read last, in the fours' order as they are: those that have too much, and
 * what is left to each if it is relieved, [columns of the block, FEW]. Returns how many. */
static int find_more_fours(Work *k, int32_t *place, int8_t *left) {
    const int64_t depth = k->columns->depth;
    int count = 0;
    for (int64_t at = 0; at < depth; at += FEW) {
        bool fits = true;
        for (int64_t i = 0; i < k->block * FEW; i += 2) {
            const int8_t *w = &k->weight[i / FEW * depth + at + i % FEW];
            fits &= fit((int[]){w[0], w[1]}, 2);
        }
        if (fits) continue;
        if (place) place[count] = (int32_t)at;
        for (int64_t i = 0; i < k->block * FEW && left; i++) {
            int8_t *w = &k->weight[i / FEW * depth + at + i % FEW];
            left[count * k->block * FEW + i] = (int8_t)(*w / 2);
            *w = (int8_t)(*w - *w / 2);
        }
        count++;
    }
    return count;
}

/* The most of any block. */
static int most_more_fours(Work *k) {
    int most = 0;
    for (int64_t column = 0; column < all_columns(k->columns); column += k->block) {
        read_block(k, column);
        const int more = find_more_fours(k, NULL, NULL);
        if (more > most) most = more;
    }
    return most;
}

/* Dimensions of a load that go along the columns. */
typedef struct Along {
    int column; /* -1: there is none */
    int matrix; /* the columns are those of several matrices, one behind the other; -1: of one */
} Along;

static bool takes_apart(const Expr *at, ExprOp how, int coordinate, int64_t by) {
    return at->op == how && at->arg[0]->op == EX_var && at->arg[0]->k.i == coordinate &&
           ex_is_int(at->arg[1], by);
}

static Along dimensions_along(const Value *v, const Expr *load, int column) {
    Along along = {load_dimension(load, column), -1};
    if (along.column >= 0) return along;
    for (int i = 0; i < load->n; i++)
        if (takes_apart(load->arg[i], EX_rem, column, v->shape[i])) along.column = i;
    for (int i = 0; i < load->n && along.column >= 0; i++) {
        if (i == along.column || !ex_depends(load->arg[i], column)) continue;
        if (!takes_apart(load->arg[i], EX_div, column, v->shape[along.column]) || along.matrix >= 0)
            return (Along){-1, -1};
        along.matrix = i;
    }
    return along.matrix >= 0 ? along : (Along){-1, -1}; /* one that is repeated */
}

/* The longest coordinate of columns that `load` reads and `row` does not; -1: there is none. */
static int find_column(const Value *v, const Expr *row, const Expr *load, int rank,
                       const int64_t *extent) {
    const uint64_t rows = ex_vars(row);
    int column = -1;
    for (int i = 0; i < rank; i++)
        if (!(rows >> i & 1) && (column < 0 || extent[i] > extent[column]) &&
            dimensions_along(v, load, i).column >= 0)
            column = i;
    return column;
}

bool relieve_columns_of(Value *v, const Expr *row, const Expr *load, int rank,
                        const int64_t *extent, ConstantColumns *c) {
    const int depth = rank, column = find_column(v, row, load, rank, extent);
    const int k = load_dimension(load, depth);
    if (k < 0 || column < 0 || value_numel(v) == 0) return false;
    Along along = dimensions_along(v, load, column);
    int64_t stride[MAX_RANK], size = 1;
    for (int i = v->rank - 1; i >= 0; size *= v->shape[i--]) stride[i] = size;
    *c = (ConstantColumns){.v = v,
                           .column = column,
                           .depth = extent[depth],
                           .stride = stride[k],
                           .n = v->shape[along.column],
                           .column_stride = stride[along.column],
                           .batch = -1,
                           .batches = 1};
    const uint64_t others = ex_vars(load) & ~(UINT64_C(1) << depth | UINT64_C(1) << column);
    int64_t columns = c->n;
    if (along.matrix >= 0) {
        c->batches = v->shape[along.matrix];
        c->batch_stride = stride[along.matrix];
        columns *= c->batches;
    } else if (others) {
        c->batch = __builtin_ctzll(others);
        const int matrix = load_dimension(load, c->batch);
        if (matrix < 0) return false;
        c->batches = extent[c->batch];
        c->batch_stride = stride[matrix];
    }
    c->rows = 1;
    for (int i = 0; i < rank; i++)
        if (i != column && i != c->batch) c->rows *= extent[i];
    return extent[column] == columns && c->depth * c->n * c->batches == value_numel(v);
}

/* The mode that costs least (the rest of pairs and the steps of dealt columns by a few blocks), if
 * it is less than `words` of what words take. deals: MODE_dealt is one of them. */
static Mode choose_mode(Work *k, double words, bool deals) {
    const ConstantColumns *columns = k->columns;
    Choice *choice = arena_borrow(k->arena, CHOICE_ROOM);
    int rest = 0;
    double dealt = 0; /* steps of a block */
    DealtSteps steps_of_block = {0};
    int64_t blocks = all_columns(columns) / k->block, samples = blocks < SAMPLES ? blocks : SAMPLES;
    const bool pairs = columns->depth % (2 * FEW) == 0;
    for (int64_t i = 0; i < samples; i++) {
        int64_t column = i * blocks / samples * k->block;
        read_block(k, column);
        steps_of_block.n = k->rest.n = 0;
        deal_columns(k->arena, k->weight, k->lanes, columns->depth, &steps_of_block);
        dealt += (double)steps_of_block.n / (double)samples;
        if (!pairs) continue;
        match_fours(k, choice);
        relieve_columns(k, column);
        if (k->rest.n > rest) rest = k->rest.n;
    }
    k->rest.n = 0;
    arena_return(k->arena, choice, CHOICE_ROOM);
    const double steps = (double)columns->depth / FEW;
    const double pair = COST_OF_PAIRS * steps + (rest ? COST_OF_REST * rest + COST_OF_SUMS : 0);
    const double each = k->lanes == LANES ? COST_OF_DEALT_64 : COST_OF_DEALT;
    double cost[] = {[MODE_none] = words * COST_OF_WORDS * steps,
                     [MODE_single] = COST_OF_FOURS * steps, /* at least */
                     [MODE_pair] = pairs ? pair : HUGE_VAL,
                     [MODE_dealt] = deals ? each * 2 * dealt : HUGE_VAL};
    const double others = fmin(cost[MODE_pair], cost[MODE_dealt]);
    if (cost[MODE_single] < others) cost[MODE_single] += COST_OF_FOURS * most_more_fours(k);
    Mode best = MODE_none;
    for (int mode = MODE_single; mode <= MODE_dealt; mode++)
        if (cost[mode] <= cost[best]) best = (Mode)mode;
    return best;
}

bool relieve_pays(Arena *arena, const Target *t, const ConstantColumns *columns, double words) {
    Work k = begin_work(arena, t, columns);
    return has_size(&k) && choose_mode(&k, WORTH * words, columns->rows >= LEAST_ROWS) != MODE_none;
}

/* --- the pass --------------------------------------------------------------------------------- */

typedef struct Relief {
    Graph *g;
    Op *op;
    const Expr *row, *load; /* of rows and of columns */
    ConstantColumns columns;
    Work work;
} Relief;

/* Reads op as a product of rows of bytes, which lie side by side along its depth, with one or more
 * constant matrices. */
static bool read_product(Relief *r) {
    const Op *op = r->op;
    const Value *out = op->out[0];
    if (!op_is_product(op)) return false;
    if (op->n_red != 1 || op->body->dt != DT_i32) return false;
    for (int i = 0; i < 2; i++) {
        r->row = without_casts(op->body->arg[i]);
        r->load = without_casts(op->body->arg[1 - i]);
        if (r->row->op != EX_load || r->row->dt != DT_u8 || r->load->op != EX_load) continue;
        Value *v = op->in[r->load->k.i];
        if (!value_is_const(v) || v->dt != DT_i8) continue;
        int64_t extent[MAX_RANK];
        op_extents(op, extent);
        return load_dimension(r->row, out->rank) == r->row->n - 1 &&
               relieve_columns_of(v, r->row, r->load, out->rank, extent, &r->columns);
    }
    return false;
}

/* Relieves all columns. The vectors of columns' rests follow each other, those of number i from
 * first[i] on. Returns the most that one has. `fours`: the order of the fours of each block. */
static int relieve_all(Relief *r, int *first, int32_t *fours) {
    const ConstantColumns *c = &r->columns;
    Work *k = &r->work;
    int most = 0, vectors = 0;
    Choice *choice = arena_borrow(k->arena, CHOICE_ROOM);
    k->relieved = ARENA_ARRAY(k->arena, value_numel(c->v), int8_t);
    for (int64_t column = 0; column < all_columns(c); column += k->lanes) {
        if (column % k->block == 0) {
            read_block(k, column);
            match_fours(k, choice);
            memcpy(&fours[column / k->block * (c->depth / FEW)], k->four,
                   (size_t)(c->depth / FEW) * sizeof *fours);
        }
        first[vectors++] = k->rest.n;
        relieve_columns(k, column);
        if (k->rest.n - first[vectors - 1] > most) most = k->rest.n - first[vectors - 1];
    }
    first[vectors] = k->rest.n;
    arena_return(k->arena, choice, CHOICE_ROOM);
    return most;
}

/* In which group of so many, which divide a matrix, the column is. */
static const Expr *group_of(const Relief *r, int64_t by) {
    Exprs *x = r->g->x;
    const Expr *group = ex_div(x, ex_var(x, r->columns.column), ex_i(x, by));
    if (r->columns.batch < 0) return group;
    const Expr *first = ex_mul(x, ex_var(x, r->columns.batch), ex_i(x, r->columns.n / by));
    return ex_add(x, first, group);
}

/* The product of an element of the row, input `row`, at this place along the depth, and one of
 * input `columns`, of rank n. */
static const Expr *product_at(const Relief *r, int row, const Expr *place, int columns, int n,
                              const Expr *const *at) {
    Exprs *x = r->g->x;
    const int depth = r->row->n - 1;
    const Expr *index[MAX_RANK];
    for (int i = 0; i < depth; i++) index[i] = r->row->arg[i];
    index[depth] = place;
    return ex_mul(x, ex_cast(x, DT_i32, ex_load(x, DT_u8, row, depth + 1, index)),
                  ex_cast(x, DT_i32, ex_load(x, DT_i8, columns, n, at)));
}

/* The sum of the rest, of `most` vectors for each vector of columns. */
static Value *sum_of_rest(Relief *r, const int *first, int most) {
    Graph *g = r->g;
    Exprs *x = g->x;
    const Op *op = r->op;
    const Value *out = op->out[0];
    const int width = r->work.lanes;
    int64_t blocks = all_columns(&r->columns) / width, shape[4] = {blocks, most, width, FEW};
    size_t bytes = (size_t)(width * FEW);
    int32_t *place = ARENA_ARRAY(g->arena, blocks * most, int32_t);
    uint8_t *to = ARENA_ARRAY(g->arena, blocks * most * width * FEW, uint8_t);
    int8_t *lack = ARENA_ARRAY(g->arena, blocks * most * width * FEW, int8_t);
    for (int64_t i = 0; i < blocks * most; i++) {
        int at = first[i / most] + (int)(i % most);
        if (at >= first[i / most + 1]) { /* nothing is lacking */
            for (size_t k = 0; k < bytes; k++) to[(size_t)i * bytes + k] = k % 2;
            continue;
        }
        const RestVector *v = &r->work.rest.items[at];
        place[i] = (int32_t)v->place;
        memcpy(&to[(size_t)i * bytes], v->to, bytes);
        memcpy(&lack[(size_t)i * bytes], v->lack, bytes);
    }
    Value *in[4] = {op->in[r->row->k.i], graph_const(g, DT_i32, 2, shape, place),
                    graph_const(g, DT_u8, 4, shape, to), graph_const(g, DT_i8, 4, shape, lack)};
    Op *sum = graph_new_op(g, OP_reduce, 4, in, 1);
    int64_t red[2] = {most, FEW};
    const Expr *lanes = ex_i(x, width), *column = ex_var(x, r->columns.column);
    const Expr *at[4] = {group_of(r, width), ex_var(x, out->rank), ex_bin(x, EX_rem, column, lanes),
                         ex_var(x, out->rank + 1)};
    const Expr *element =
        ex_add(x, ex_load(x, DT_i32, 1, 2, at), ex_cast(x, DT_i32, ex_load(x, DT_u8, 2, 4, at)));
    sum->combine = COMBINE_sum;
    sum->n_red = 2;
    sum->red = arena_copy(g->arena, red, sizeof red);
    sum->body = product_at(r, 0, element, 3, 4, at);
    sum->post = ex_acc(x, DT_i32);
    sum->src = op->src;
    Value *v = graph_new_value(g, sum, 0, DT_i32, out->rank, out->dims);
    graph_append(g, sum);
    return v;
}

/* Does it fit as it is? */
static bool fits(const Relief *r, Mode mode) {
    const ConstantColumns *c = &r->columns;
    const int together = mode == MODE_pair ? 2 : 1;
    const Fours as_they_are = {
        .v = c->v,
        .stride = c->stride,
        .apart = FEW * c->stride,
        .together = together,
        .n = 3,
        .extent = {c->n, c->depth / (together * FEW), c->batches},
        .step = {c->column_stride, together * FEW * c->stride, c->batch_stride}};
    return relieve_fits(r->g->arena, &as_they_are);
}

/* The sum over the table `four`, [blocks, fours], and those of each, of columns as they were
 * relieved, [columns, fours * FEW]. */
static void sum_by_table(Relief *r, const int32_t *four, int64_t fours, const int8_t *relieved) {
    Graph *g = r->g;
    Exprs *x = g->x;
    Op *op = r->op;
    const int rank = op->out[0]->rank, n_in = op->n_in;
    const int64_t columns = all_columns(&r->columns), red[2] = {fours, FEW};
    const int64_t shape[2] = {columns / r->work.block, fours};
    const int64_t relieved_shape[2] = {columns, fours * FEW};
    Value **in = ARENA_ARRAY(g->arena, n_in + 3, Value *);
    for (int i = 0; i < n_in; i++) in[i] = op->in[i];
    in[n_in] = graph_const(g, DT_i8, 2, relieved_shape, relieved);
    in[n_in + 1] = graph_const(g, DT_i32, 2, shape, four);
    const Expr *i = ex_var(x, rank + 1);
    const Expr *block[2] = {group_of(r, r->work.block), ex_var(x, rank)};
    const Expr *depth = ex_add(x, ex_mul(x, ex_var(x, rank), ex_i(x, FEW)), i);
    const Expr *at[2] = {group_of(r, 1), depth};
    const Expr *place = ex_add(x, ex_load(x, DT_i32, n_in + 1, 2, block), i);
    op->body = product_at(r, (int)r->row->k.i, place, n_in, 2, at);
    op->n_red = 2;
    op->red = arena_copy(g->arena, red, sizeof red);
    op->in = in;
    op->n_in = n_in + 2;
}

/* MODE_dealt; false if blocks of columns differ too much in their steps. */
static bool deal_all(Relief *r) {
    Graph *g = r->g;
    Exprs *x = g->x;
    Op *op = r->op;
    const ConstantColumns *c = &r->columns;
    const int lanes = r->work.lanes, rank = op->out[0]->rank, n_in = op->n_in;
    Dealt d = {.lanes = lanes, .depth = c->depth, .blocks = all_columns(c) / lanes};
    for (int64_t column = 0; column < all_columns(c); column += lanes) {
        const int64_t within = column % r->work.block;
        if (within == 0) read_block(&r->work, column);
        deal_block(g->arena, &d, &r->work.weight[within * c->depth]);
    }
    if ((double)(d.most * d.blocks) > MOST_EMPTY * (double)d.all) return false;
    const int64_t shape[5] = {d.blocks, d.most, 2, lanes, FEW};
    Value **in = ARENA_ARRAY(g->arena, n_in + 3, Value *);
    for (int i = 0; i < n_in; i++) in[i] = op->in[i];
    in[n_in] = graph_const(g, DT_i32, 2, shape, d.place);
    in[n_in + 1] = graph_const(g, DT_u8, 5, shape, d.to);
    in[n_in + 2] = graph_const(g, DT_i8, 5, shape, d.weight);
    int64_t *range = ARENA_ARRAY(g->arena, 2, int64_t);
    range[1] = c->depth - BYTES_WINDOW;
    in[n_in]->range = range;
    const Expr *lane = ex_bin(x, EX_rem, ex_var(x, c->column), ex_i(x, lanes));
    const Expr *at[5] = {group_of(r, lanes), ex_var(x, rank), ex_var(x, rank + 1), lane,
                         ex_var(x, rank + 2)};
    const Expr *place = ex_add(x, ex_load(x, DT_i32, n_in, 2, at),
                               ex_cast(x, DT_i32, ex_load(x, DT_u8, n_in + 1, 5, at)));
    op->body = product_at(r, (int)r->row->k.i, place, n_in + 2, 5, at);
    const int64_t red[3] = {d.most, 2, FEW};
    op->n_red = 3;
    op->red = arena_copy(g->arena, red, sizeof red);
    op->in = in;
    op->n_in = n_in + 3;
    return true;
}

/* MODE_single. */
static void relieve_fours(Relief *r) {
    Graph *g = r->g;
    Work *k = &r->work;
    const ConstantColumns *c = &r->columns;
    const int64_t fours = c->depth / FEW, columns = all_columns(c), blocks = columns / k->block;
    const int most = most_more_fours(k);
    const int64_t all = fours + most, deep = all * FEW;
    int32_t *four = ARENA_ARRAY(g->arena, blocks * all, int32_t);
    int8_t *relieved = ARENA_ARRAY(g->arena, deep * columns, int8_t);
    int8_t *left = ARENA_ARRAY(g->arena, most * k->block * FEW, int8_t);
    for (int64_t b = 0; b < blocks; b++) {
        read_block(k, b * k->block);
        for (int64_t f = 0; f < fours; f++) four[b * all + f] = (int32_t)(f * FEW);
        const int more = find_more_fours(k, &four[b * all + fours], left);
        for (int64_t i = 0; i < k->block; i++) {
            int8_t *column = &relieved[(b * k->block + i) * deep];
            memcpy(column, &k->weight[i * c->depth], (size_t)c->depth);
            for (int64_t f = 0; f < more; f++)
                memcpy(&column[c->depth + f * FEW], &left[(f * k->block + i) * FEW], FEW);
        }
    }
    sum_by_table(r, four, all, relieved);
}

/* MODE_pair. */
static void relieve_pairs(Relief *r) {
    Graph *g = r->g;
    Exprs *x = g->x;
    Op *op = r->op;
    const Value *out = op->out[0];
    int64_t fours = op->red[0] / FEW, columns = all_columns(&r->columns);
    int64_t blocks = columns / r->work.block;
    int *first = ARENA_ARRAY(g->arena, columns / r->work.lanes + 1, int);
    int32_t *four = ARENA_ARRAY(g->arena, blocks * fours, int32_t);
    int most = relieve_all(r, first, four);
    if (most == 1) most++; /* so that there is a loop, around the sums of rows */
    Value *rest = most ? sum_of_rest(r, first, most) : NULL;
    sum_by_table(r, four, fours, r->work.relieved);
    if (!rest) return;
    op->in[op->n_in] = rest;
    const Expr *own[MAX_RANK], *acc = ex_acc(x, DT_i32);
    for (int k = 0; k < out->rank; k++) own[k] = ex_var(x, k);
    const Expr *lacking = ex_load(x, DT_i32, op->n_in++, out->rank, own);
    op->post = ex_replace(x, op->post, acc, ex_add(x, acc, lacking));
}

static void relieve(Relief *r, const Target *t) {
    Op *last = r->g->last;
    r->work = begin_work(r->g->arena, t, &r->columns);
    if (!has_size(&r->work)) return;
    Mode mode = choose_mode(&r->work, HUGE_VAL, r->columns.rows >= LEAST_ROWS);
    if (mode == MODE_dealt && !deal_all(r)) mode = choose_mode(&r->work, HUGE_VAL, false);
    if (mode != MODE_dealt && fits(r, mode)) return;
    if (mode == MODE_pair) relieve_pairs(r);
    if (mode == MODE_single) relieve_fours(r);
    graph_drop_inputs(r->g, r->op);
    graph_take_in(r->g, last, r->op);
}

void pass_relieve(Graph *g, const PassOptions *o) {
    if (!o->target->byte_pairs) return;
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_relieve(op->sub, o);
        Relief r = {.g = g, .op = op};
        if (read_product(&r)) relieve(&r, o->target);
    }
}
