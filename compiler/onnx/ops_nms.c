/* NonMaxSuppression: in every batch and class the boxes with the best scores, without those that
 * overlap better ones.
 *
 * Boxes are looked at from the best score on, one of each batch and class in an iteration of a
 * loop: sorted before, or, where few may be chosen, the best that is left each time. One that none
 * of those chosen before overlaps is chosen, too, and written behind them; so the loop ends once
 * enough are chosen, and a box is compared with few. Boxes whose scores are not above the
 * threshold, nearly all of a detector's, are left out before, where a dimension may vary: the loop
 * numbers what is left of each batch and class.
 */
#include "compiler/onnx/index.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* What is looked at: of each batch and class, up to M boxes that are left of all. */
typedef struct Boxes {
    Value *boxes;     /* f32[batches, all, 4] */
    bool centred;     /* these are centres and sides, not corners */
    Value *which;     /* i32[batches, classes, M]: which of all; NULL: M are all */
    Value *open;      /* i32[batches, classes]: how many of these may be chosen, of which the best
                         come first; NULL: they are not sorted */
    Value *key;       /* else f32[batches, classes, M]: scores, minus infinity of what may not */
    Value *threshold; /* f32; NULL: 0 */
    Value *most;      /* i32: how many may be chosen of each batch and class */
} Boxes;

/* What a box is compared by: along each axis the lower and the upper corner, and its area. One
 * without area overlaps none: its corners are such that it has nothing in common with any. */
enum { CORNERS = 4, AREA = CORNERS, MEASURES };

/* What is chosen, up to K of each batch and class. */
typedef struct Chosen {
    Value *count;   /* i32[batches, classes] */
    Value *measure; /* f32[batches, classes, MEASURES, K] */
    Value *box;     /* i32[batches, classes, K]: which of all */
} Chosen;

/* Where no more may be chosen, boxes are not sorted: 10 of 2000 were found in 2 us, and sorted
 * first in 45. */
#define FEW 32
/* Where so many may be chosen, a box is compared with the last ones first: with 14 until one
 * overlaps it, on an average of SSDLite's 27000. */
#define MANY 2000
#define LAST 32

/* --- what is left ----------------------------------------------------------------------------- */

/* Is a score one that may be chosen? least: the threshold; NULL: there is none. */
static const Expr *is_open(Builder *b, const Expr *score, Value *least) {
    Exprs *x = b->x;
    return least ? ex_lt(x, build_in(b, least), score)
                 : ex_un(x, EX_not, ex_un(x, EX_isnan, score));
}

/* 1 where the score at these coordinates is above `least`, else 0. */
static const Expr *count_open(Builder *b, Value *scores, Value *least, const Expr *const *at) {
    return ex_select(b->x, is_open(b, build_load(b, scores, at), least), ex_i(b->x, 1),
                     ex_i(b->x, 0));
}

/* How many do, i32[batches, classes]. */
static Value *n_open(Graph *g, Value *scores, Value *least) {
    Builder b = build(g, 2, scores->dims);
    const Expr *at[3] = {ex_var(g->x, 0), ex_var(g->x, 1), build_red(&b, scores->dims[2])};
    return build_reduce(&b, DT_i32, COMBINE_sum, count_open(&b, scores, least, at), NULL);
}

/* Which boxes [batches, classes, M] have a score above `least`, in their order; *count: how many in
 * each batch and class. NULL if no dimension can vary here, or after a report. */
static Value *boxes_left(Node *n, Value *scores, Value *least, Value **count) {
    Exprs *x = n->x;
    Graph *g = n->g;
    if (!n->varying || g->parent) return NULL;
    int64_t left[3] = {scores->dims[0], scores->dims[1]};
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 3)};
    Builder b = build(g, 3, scores->dims);
    Value *place =
        build_scan(&b, DT_i32, COMBINE_sum, 2, true, false, count_open(&b, scores, least, at));
    *count = n_open(g, scores, least);
    b = build(g, 0, NULL);
    const Expr *line[2] = {build_red(&b, left[0]), build_red(&b, left[1])};
    Value *most = build_reduce(&b, DT_i32, COMBINE_max, build_load(&b, *count, line), NULL);
    if (!node_counted_extent(n, most, scores->dims[2], true, "", &left[2])) return NULL;
    b = build(g, 3, scores->dims);
    at[2] = ex_var(x, 2);
    const Expr *target[3] = {at[0], at[1], build_load(&b, place, at)};
    const Expr *guard = is_open(&b, build_load(&b, scores, at), least);
    return build_scatter(&b, zeros(g, DT_i32, 3, left), COMBINE_none, target, guard, at[2]);
}

/* Fills in `which`, and `open` or `key`. False after a report. */
static bool look_at(Node *n, Value *scores, Value *least, bool sorted, Boxes *boxes) {
    Exprs *x = n->x;
    Graph *g = n->g;
    Value *count = NULL, *left = least ? boxes_left(n, scores, least, &count) : NULL;
    if (n->failed) return false;
    const int64_t *dims = left ? left->dims : scores->dims;
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2)};
    const Expr *gone = ex_num(x, DT_f32, -INFINITY), *lowest = ex_num(x, DT_f32, -FLT_MAX);
    Builder b = build(g, 3, dims);
    const Expr *there = NULL;
    if (left) {
        there = ex_lt(x, at[2], build_load(&b, count, at));
        at[2] = build_load(&b, left, at);
    }
    /* infinite scores are there */
    const Expr *score = build_load(&b, scores, at), *key = ex_bin(x, EX_max, score, lowest);
    if (!there) there = is_open(&b, score, least);
    boxes->key = build_map(&b, DT_f32, ex_select(x, there, key, gone));
    boxes->which = left;
    if (!sorted) return true;
    boxes->open = left ? count : n_open(g, scores, least);
    boxes->which = largest_at(n, boxes->key, 2, dims[2]);
    if (left) {
        b = build(g, 3, dims);
        at[2] = build_in(&b, boxes->which);
        boxes->which = build_map(&b, DT_i32, build_load(&b, left, at));
    }
    boxes->key = NULL;
    return true;
}

/* Corner `k` of a box, one of all. */
static const Expr *corner_of(Builder *b, const Boxes *boxes, const Expr *batch, const Expr *box,
                             int k) {
    Exprs *x = b->x;
    const bool upper = k % 2;
    const Expr *first[3] = {batch, box, ex_i(x, k / 2)},
               *second[3] = {batch, box, ex_i(x, k / 2 + 2)};
    const Expr *p = build_load(b, boxes->boxes, first), *q = build_load(b, boxes->boxes, second);
    if (!boxes->centred) return ex_bin(x, upper ? EX_max : EX_min, p, q);
    q = ex_div(x, q, ex_num(x, DT_f32, 2));
    return upper ? ex_add(x, p, q) : ex_sub(x, p, q);
}

/* --- the loop --------------------------------------------------------------------------------- */

/* The best of what has not been looked at, i32[batches, classes]; M where there is nothing left. */
static Value *best_left(Graph *g, Value *key) {
    Exprs *x = g->x;
    const Expr *none = ex_i(x, key->dims[2]), *gone = ex_num(x, DT_f32, -INFINITY);
    Builder b = build(g, 2, key->dims);
    const Expr *r = build_red(&b, key->dims[2]), *at[3] = {ex_var(x, 0), ex_var(x, 1), r};
    Value *best = build_reduce(&b, DT_f32, COMBINE_max, build_load(&b, key, at), NULL);
    b = build(g, 2, key->dims);
    at[2] = r = build_red(&b, key->dims[2]);
    const Expr *most = build_in(&b, best);
    const Expr *e = ex_select(x, ex_le(x, most, build_load(&b, key, at)), r, none);
    const Expr *first = ex_select(x, ex_lt(x, gone, most), ex_acc(x, DT_i32), none);
    return build_reduce(&b, DT_i32, COMBINE_min, e, first);
}

/* Which of M boxes an iteration looks at, of the batch and class `line`. */
static const Expr *place_of(Builder *b, Value *best, const Expr *const *line) {
    return best ? build_load(b, best, line) : ex_ctr(b->x, b->g->depth - 1);
}

/* Below so many is a box that may be chosen. */
static const Expr *end_of(Builder *b, const Boxes *boxes, const Expr *const *line) {
    return boxes->open ? build_load(b, boxes->open, line) : ex_i(b->x, boxes->key->dims[2]);
}

/* Which of all boxes it is, i32[batches, classes]. */
static Value *looked_at(Graph *g, const Boxes *boxes, Value *best) {
    Exprs *x = g->x;
    const int64_t *dims = best ? boxes->key->dims : boxes->which->dims;
    Builder b = build(g, 2, dims);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1)};
    at[2] = index_clamp(x, place_of(&b, best, at), dims[2]);
    return build_map(&b, DT_i32, boxes->which ? build_load(&b, boxes->which, at) : at[2]);
}

/* Its measures, f32[batches, classes, MEASURES]. */
static Value *measures(Graph *g, const Boxes *boxes, Value *box) {
    Exprs *x = g->x;
    const int64_t shape[3] = {box->dims[0], box->dims[1], MEASURES};
    Builder b = build(g, 3, shape);
    const Expr *batch = ex_var(x, 0),
               *own = build_load(&b, box, (const Expr *[]){batch, ex_var(x, 1)});
    const Expr *corner[CORNERS], *area = ex_num(x, DT_f32, 1), *zero = ex_num(x, DT_f32, 0);
    for (int k = 0; k < CORNERS; k++) corner[k] = corner_of(&b, boxes, batch, own, k);
    for (int k = 0; k < CORNERS; k += 2)
        area = ex_mul(x, area, ex_sub(x, corner[k + 1], corner[k]));
    const Expr *some = ex_lt(x, zero, area), *e = ex_select(x, some, area, zero);
    for (int k = 0; k < CORNERS; k++) {
        const Expr *none = ex_num(x, DT_f32, k % 2 ? -INFINITY : INFINITY);
        const Expr *is_k = ex_bin(x, EX_eq, ex_var(x, 2), ex_i(x, k));
        e = ex_select(x, is_k, ex_select(x, some, corner[k], none), e);
    }
    return build_map(&b, DT_f32, e);
}

/* Is what is common to two boxes more than this share of their union? `limit` is not negative. */
static const Expr *overlap(Exprs *x, const Expr *const *one, const Expr *const *two,
                           const Expr *limit) {
    const Expr *zero = ex_num(x, DT_f32, 0), *common = NULL;
    for (int k = 0; k < CORNERS; k += 2) {
        const Expr *from = ex_bin(x, EX_max, one[k], two[k]);
        const Expr *side = ex_sub(x, ex_bin(x, EX_min, one[k + 1], two[k + 1]), from);
        side = ex_select(x, ex_lt(x, zero, side), side, zero);
        common = common ? ex_mul(x, common, side) : side;
    }
    const Expr *whole = ex_sub(x, ex_add(x, one[AREA], two[AREA]), common);
    return ex_lt(x, limit, ex_div(x, common, whole));
}

/* What sums up to how many of those chosen, number r + `from` for all r below `within`, overlap a
 * box that is measured. (A float, like the shares: vectors of both have as many lanes.) */
static const Expr *overlapping(Builder *b, const Boxes *boxes, const Chosen *chosen, Value *measure,
                               int64_t many, const Expr *from, const Expr *within) {
    Exprs *x = b->x;
    const Expr *zero = ex_num(x, DT_f32, 0), *r = build_red(b, many), *one[MEASURES],
               *two[MEASURES];
    const Expr *at[4] = {ex_var(x, 0), ex_var(x, 1), NULL, from ? ex_add(x, from, r) : r};
    for (int k = 0; k < MEASURES; k++) {
        at[2] = ex_i(x, k);
        one[k] = build_load(b, chosen->measure, at);
        two[k] = build_load(b, measure, at);
    }
    const Expr *limit = boxes->threshold ? build_in(b, boxes->threshold) : zero;
    const Expr *over = overlap(x, one, two, ex_bin(x, EX_max, limit, zero));
    over = ex_select(x, over, ex_num(x, DT_f32, 1), zero);
    return ex_select(x, ex_lt(x, r, within), over, zero);
}

/* Does one of the last that were chosen overlap a box? Of neighbours with about the same score the
 * first is chosen, and the others follow it. (Where fewer are chosen yet there are zeros, which
 * overlap nothing.) bool[batches, classes] */
static Value *is_near(Graph *g, const Boxes *boxes, const Chosen *chosen, Value *measure) {
    Exprs *x = g->x;
    Builder b = build(g, 2, measure->dims);
    const Expr *last = ex_sub(x, build_in(&b, chosen->count), ex_i(x, LAST));
    const Expr *from = ex_bin(x, EX_max, last, ex_i(x, 0)), *within = ex_i(x, LAST);
    const Expr *over = overlapping(&b, boxes, chosen, measure, LAST, from, within);
    const Expr *any = ex_lt(x, ex_num(x, DT_f32, 0), ex_acc(x, DT_f32));
    return build_reduce(&b, DT_bool, COMBINE_sum, over, any);
}

/* Is the box that an iteration looks at one to choose? bool[batches, classes] */
static Value *is_chosen(Graph *g, const Boxes *boxes, const Chosen *chosen, Value *best,
                        Value *measure) {
    Exprs *x = g->x;
    const int64_t room = chosen->box->dims[2], *lines = measure->dims;
    const bool by_last = room >= MANY && lines[0] == 1 && lines[1] == 1;
    Value *near = by_last ? is_near(g, boxes, chosen, measure) : NULL;
    Builder b = build(g, 2, lines);
    const Expr *count = build_in(&b, chosen->count), *within = count;
    if (near) within = ex_select(x, build_in(&b, near), ex_i(x, 0), count);
    const Expr *over = overlapping(&b, boxes, chosen, measure, room, NULL, within);
    const Expr *free = ex_le(x, ex_acc(x, DT_f32), ex_num(x, DT_f32, 0));
    if (near) free = ex_and(x, free, ex_un(x, EX_not, build_in(&b, near)));
    const Expr *line[2] = {ex_var(x, 0), ex_var(x, 1)};
    free = ex_and(x, free, ex_lt(x, place_of(&b, best, line), end_of(&b, boxes, line)));
    free = ex_and(x, free, ex_lt(x, count, build_in(&b, boxes->most)));
    return build_reduce(&b, DT_bool, COMBINE_sum, over, free);
}

/* Could any batch and class choose more, after this iteration? */
static Value *goes_on(Graph *g, const Boxes *boxes, Value *best, Value *count) {
    Exprs *x = g->x;
    Builder b = build(g, 0, NULL);
    const Expr *line[2];
    for (int i = 0; i < 2; i++) line[i] = build_red(&b, count->dims[i]);
    const Expr *next = place_of(&b, best, line);
    if (!best) next = ex_add(x, next, ex_i(x, 1));
    const Expr *more = ex_lt(x, next, end_of(&b, boxes, line));
    more = ex_and(x, more, ex_lt(x, build_load(&b, count, line), build_in(&b, boxes->most)));
    more = ex_select(x, more, ex_i(x, 1), ex_i(x, 0));
    const Expr *any = ex_lt(x, ex_i(x, 0), ex_acc(x, DT_i32));
    return build_reduce(&b, DT_bool, COMBINE_max, more, any);
}

static Value *input_like(Graph *g, const Value *v) {
    return v ? graph_input(g, NULL, v->dt, v->rank, v->dims) : NULL;
}

/* Measures of those chosen, which they are, how many, and the keys, without those of boxes that
 * have been looked at. */
enum { MOST_STATES = 4, STATES_AND_INPUTS = 9 };

/* Looks at one box of every batch and class: the body of a loop. */
static Graph *nms_step(Node *n, const Boxes *outer, const Chosen *before) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    Chosen chosen;
    chosen.measure = input_like(g, before->measure);
    chosen.box = input_like(g, before->box);
    chosen.count = input_like(g, before->count);
    Boxes boxes = {.centred = outer->centred};
    boxes.key = input_like(g, outer->key);
    boxes.open = input_like(g, outer->open);
    boxes.which = input_like(g, outer->which);
    boxes.boxes = input_like(g, outer->boxes);
    boxes.most = input_like(g, outer->most);
    boxes.threshold = input_like(g, outer->threshold);

    Value *best = boxes.key ? best_left(g, boxes.key) : NULL;
    Value *box = looked_at(g, &boxes, best), *measure = measures(g, &boxes, box);
    Value *more = is_chosen(g, &boxes, &chosen, best, measure);
    /* one more behind those chosen */
    Builder b = build(g, 3, measure->dims);
    const Expr *line[2] = {ex_var(x, 0), ex_var(x, 1)};
    const Expr *place = build_load(&b, chosen.count, line);
    const Expr *target[4] = {line[0], line[1], ex_var(x, 2), place};
    const Expr *guard = build_load(&b, more, line);
    graph_output(
        g, build_scatter(&b, chosen.measure, COMBINE_none, target, guard, build_in(&b, measure)),
        NULL);
    b = build(g, 2, box->dims);
    target[2] = build_in(&b, chosen.count);
    guard = build_in(&b, more);
    graph_output(g, build_scatter(&b, chosen.box, COMBINE_none, target, guard, build_in(&b, box)),
                 NULL);
    Value *count = g_bin(g, EX_add, chosen.count, g_cast(g, more, DT_i32));
    graph_output(g, count, NULL);
    if (best) {
        b = build(g, 2, best->dims);
        target[2] = build_in(&b, best);
        guard = ex_lt(x, target[2], end_of(&b, &boxes, line));
        const Expr *gone = ex_num(x, DT_f32, -INFINITY);
        graph_output(g, build_scatter(&b, boxes.key, COMBINE_none, target, guard, gone), NULL);
    }
    g->go_on = goes_on(g, &boxes, best, count);
    return g;
}

/* Up to `most` of each batch and class. */
static Chosen choose(Node *n, const Boxes *boxes, int64_t most) {
    Graph *g = n->g;
    const int64_t *dims = (boxes->key ? boxes->key : boxes->which)->dims;
    const int64_t shape[3] = {dims[0], dims[1], most};
    const int64_t space[4] = {dims[0], dims[1], MEASURES, most};
    const Chosen none = {.count = zeros(g, DT_i32, 2, shape),
                         .measure = zeros(g, DT_f32, 4, space),
                         .box = zeros(g, DT_i32, 3, shape)};
    /* in the order in which nms_step takes them */
    Value *const all[STATES_AND_INPUTS] = {none.measure, none.box,    none.count,
                                           boxes->key,   boxes->open, boxes->which,
                                           boxes->boxes, boxes->most, boxes->threshold};
    Value *in[STATES_AND_INPUTS], *out[MOST_STATES];
    int n_in = 0;
    for (int i = 0; i < STATES_AND_INPUTS; i++)
        if (all[i]) in[n_in++] = all[i];
    const int states = boxes->key ? MOST_STATES : MOST_STATES - 1;
    build_loop(g, nms_step(n, boxes, &none), dim_max(n->x, dims[2]), states, n_in, in, out);
    return (Chosen){.measure = out[0], .box = out[1], .count = out[2]};
}

/* --- the result ------------------------------------------------------------------------------- */

/* Rows (batch, class, box) of what is chosen, in that order. NULL after a report. */
static Value *nms_rows(Node *n, const Chosen *chosen) {
    Exprs *x = n->x;
    Graph *g = n->g;
    const int64_t *dims = chosen->box->dims;
    int64_t lines[1] = {dim_mul(x, dims[0], dims[1])}, shape[2] = {0, 3};
    Value *count = g_reshape(g, chosen->count, 1, lines);
    Builder b = build(g, 1, lines);
    const Expr *at = ex_var(x, 1);
    Value *first = build_scan(&b, DT_i32, COMBINE_sum, 0, true, false, build_load(&b, count, &at));
    b = build(g, 0, NULL);
    at = build_red(&b, lines[0]);
    Value *rows = build_reduce(&b, DT_i32, COMBINE_sum, build_load(&b, count, &at), NULL);
    if (!node_chosen_extent(n, rows, 0, 0, dim_mul(x, lines[0], dims[2]), true, &shape[0]))
        return NULL;
    if (!node_shape_ok(n, 2, shape)) return NULL;
    int64_t space[4] = {dims[0], dims[1], dims[2], 3};
    b = build(g, 4, space);
    const Expr *own[4] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2), ex_var(x, 3)};
    const Expr *line = ex_add(x, ex_mul(x, own[0], ex_i(x, dims[1])), own[1]);
    const Expr *box = build_load(&b, chosen->box, own);
    const Expr *e = ex_select(x, ex_bin(x, EX_eq, own[3], ex_i(x, 1)), own[1], box);
    e = ex_select(x, ex_bin(x, EX_eq, own[3], ex_i(x, 0)), own[0], e);
    const Expr *target[2] = {ex_add(x, build_load(&b, first, &line), own[2]), own[3]};
    const Expr *guard = ex_lt(x, own[2], build_load(&b, count, &line));
    guard = ex_and(x, guard, ex_lt(x, target[0], ex_i(x, shape[0])));
    return build_scatter(&b, zeros(g, DT_i64, 2, shape), COMBINE_none, target, guard,
                         ex_cast(x, DT_i64, e));
}

/* --- the operator ----------------------------------------------------------------------------- */

/* A scalar of this type from an optional input of one element; NULL if absent or after a report. */
static Value *one_number(Node *n, int i, DType dt) {
    Value *v = node_in(n, i);
    if (!v) return NULL;
    if (value_single(n, v)) return g_cast(n->g, g_reshape(n->g, v, 0, NULL), dt);
    invalid(n, E2005, "input %d must be one number", i);
    return NULL;
}

/* The part of a tensor that two of its dimensions leave. */
static Value *cut_to(Graph *g, Value *v, int a, int64_t extent_a, int b, int64_t extent_b) {
    static const int64_t start[3], step[3] = {1, 1, 1};
    if (v->dims[a] == extent_a && v->dims[b] == extent_b) return v;
    int64_t count[3] = {v->dims[0], v->dims[1], v->dims[2]};
    count[a] = extent_a;
    count[b] = extent_b;
    return g_slice(g, v, start, step, count);
}

/* `v`, an integer scalar, brought into [0, most], i32. */
static Value *count_up_to(Graph *g, Value *v, int64_t most) {
    Exprs *x = g->x;
    Builder b = build(g, 0, NULL);
    const Expr *e = ex_bin(x, EX_max, build_in(&b, v), ex_int(x, DT_i64, 0));
    e = ex_bin(x, EX_min, e, ex_int(x, DT_i64, INT32_MAX));
    return build_map(&b, DT_i32, ex_bin(x, EX_min, ex_cast(x, DT_i32, e), ex_i(x, most)));
}

void import_non_max_suppression(Node *n) {
    Value *boxes = node_need(n, 0), *scores = node_need(n, 1);
    if (!boxes || !scores) return;
    Exprs *x = n->x;
    Graph *g = n->g;
    if (boxes->rank != 3 || scores->rank != 3 || !dim_meets(x, boxes->dims[2], 4) ||
        !dim_meets(x, boxes->dims[0], scores->dims[0]) ||
        !dim_meets(x, boxes->dims[1], scores->dims[2])) {
        invalid(n, E2005, "boxes of shape %s and scores of shape %s",
                shape_text(g->arena, boxes->rank, boxes->dims),
                shape_text(g->arena, scores->rank, scores->dims));
        return;
    }
    if (boxes->dt != DT_f32 || scores->dt != DT_f32) {
        invalid(n, E2006, "boxes and scores must be f32");
        return;
    }
    int64_t batches = dim_smaller(x, boxes->dims[0], scores->dims[0]);
    int64_t per_batch = dim_smaller(x, boxes->dims[1], scores->dims[2]);
    boxes = cut_to(g, boxes, 0, batches, 1, per_batch);
    scores = cut_to(g, scores, 0, batches, 2, per_batch);
    Value *most = one_number(n, 2, DT_i64), *least = one_number(n, 4, DT_f32);
    Boxes left = {.boxes = boxes, .threshold = one_number(n, 3, DT_f32)};
    left.centred = attr_int(n, "center_point_box", 0) != 0;
    if (n->failed) return;
    if (!most) most = g_scalar(g, DT_i64, 0);
    const char *name;
    int64_t lines = dim_mul(x, scores->dims[0], scores->dims[1]), room = scores->dims[2], rows;
    int n_known;
    const int64_t *known = value_ints(g, most, &n_known);
    if (known && known[0] <= INT32_MAX) /* exporters write 2^63-1 for all */
        room = dim_smaller(x, room, known[0] < 0 ? 0 : known[0]);
    /* one row more than there may be in all shows that there are too many */
    if (!node_declared_extent(n, 0, 0, &rows, &name)) rows = node_most_extent(n, name, INT32_MAX);
    room = dim_smaller(x, room, dim_add(x, rows, 1));
    room =
        dim_max(x, room); /* as much in every run: so boxes chosen are compared with by vectors */
    int64_t space[2] = {3, dim_mul(x, room, lines)}, none[2] = {0, 3};
    if (!node_shape_ok(n, 2, space)) return;
    if (space[1] == 0) {
        n->out[0] = zeros(g, DT_i64, 2, none);
        return;
    }
    left.most = count_up_to(g, most, room);
    if (!look_at(n, scores, least, dim_max(x, room) > FEW, &left)) return;
    const Chosen chosen = choose(n, &left, room);
    n->out[0] = nms_rows(n, &chosen);
}
