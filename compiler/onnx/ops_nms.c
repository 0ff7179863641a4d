/* NonMaxSuppression: in every batch and class the boxes with the best scores, without those that
 * overlap better ones.
 *
 * Boxes are looked at from the best score on, one of each batch and class in an iteration of a
 * loop. One that none of those chosen before overlaps is chosen, too, and written behind them; so
 * the loop ends once enough are chosen, and a box is compared with few. Boxes whose scores are not
 * above the threshold, nearly all of a detector's, are left out before, where a dimension may vary:
 * the loop numbers what is left of each batch and class.
 */
#include "compiler/onnx/index.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* What is looked at: of each batch and class, up to M boxes that are left of all. */
typedef struct Boxes {
    Value *boxes;     /* f32[batches, all, 4] */
    bool centred;     /* these are centres and sides, not corners */
    Value *key;       /* f32[batches, classes, M]: scores, minus infinity of what is not to be
                         chosen */
    Value *which;     /* i32[batches, classes, M]: which of all it is; NULL: M are all */
    Value *threshold; /* f32; NULL: 0 */
    Value *most;      /* i32: how many may be chosen of each batch and class */
} Boxes;

#define CORNERS 4 /* of a box: along each axis the lower and the upper one */

/* What is chosen, up to K of each batch and class. */
typedef struct Chosen {
    Value *count;           /* i32[batches, classes] */
    Value *corner[CORNERS]; /* f32[batches, classes, K] */
    Value *box;             /* i32[batches, classes, K]: which of all */
} Chosen;

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
    b = build(g, 2, scores->dims);
    at[2] = build_red(&b, scores->dims[2]);
    *count = build_reduce(&b, DT_i32, COMBINE_sum, count_open(&b, scores, least, at), NULL);
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

/* Fills in `which` and `key`. False after a report. */
static bool look_at(Node *n, Value *scores, Value *least, Boxes *boxes) {
    Exprs *x = n->x;
    Graph *g = n->g;
    Value *count = NULL;
    boxes->which = least ? boxes_left(n, scores, least, &count) : NULL;
    if (n->failed) return false;
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), ex_var(x, 2)};
    const Expr *gone = ex_num(x, DT_f32, -INFINITY), *lowest = ex_num(x, DT_f32, -FLT_MAX);
    Builder b = build(g, 3, boxes->which ? boxes->which->dims : scores->dims);
    const Expr *there = NULL;
    if (boxes->which) {
        there = ex_lt(x, at[2], build_load(&b, count, at));
        at[2] = build_load(&b, boxes->which, at);
    }
    /* infinite scores are there */
    const Expr *score = build_load(&b, scores, at), *key = ex_bin(x, EX_max, score, lowest);
    const Expr *open = is_open(&b, score, least);
    there = there ? ex_and(x, there, open) : open;
    boxes->key = build_map(&b, DT_f32, ex_select(x, there, key, gone));
    return true;
}

/* Which of all boxes number `i` of those left is. */
static const Expr *box_of(Builder *b, const Boxes *boxes, const Expr *batch, const Expr *class,
                          const Expr *i) {
    const Expr *at[3] = {batch, class, index_clamp(b->x, i, boxes->key->dims[2])};
    return boxes->which ? build_load(b, boxes->which, at) : at[2];
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

/* What is common to two boxes, of which these are the corners, as a share of their union; minus
 * infinity if there is no such share. */
static const Expr *overlap(Exprs *x, const Expr *const *one, const Expr *const *two) {
    const Expr *zero = ex_num(x, DT_f32, 0), *nothing = ex_num(x, DT_f32, -INFINITY);
    const Expr *common = NULL, *area[2] = {NULL, NULL}, *side[2];
    for (int axis = 0; axis < 2; axis++) {
        const Expr *const low[2] = {one[2 * axis], two[2 * axis]};
        const Expr *const high[2] = {one[2 * axis + 1], two[2 * axis + 1]};
        for (int i = 0; i < 2; i++) {
            const Expr *edge = ex_sub(x, high[i], low[i]);
            area[i] = area[i] ? ex_mul(x, area[i], edge) : edge;
        }
        const Expr *from = ex_bin(x, EX_max, low[0], low[1]);
        side[axis] = ex_sub(x, ex_bin(x, EX_min, high[0], high[1]), from);
        common = common ? ex_mul(x, common, side[axis]) : side[axis];
    }
    const Expr *whole = ex_sub(x, ex_add(x, area[0], area[1]), common);
    const Expr *positive[] = {whole, area[0], area[1], side[0], side[1]};
    const Expr *share = ex_div(x, common, whole);
    for (int i = 0; i < 5; i++) share = ex_select(x, ex_lt(x, zero, positive[i]), share, nothing);
    return share;
}

/* The best of what has not been looked at, i32[batches, classes]; M where there is nothing left. */
static Value *best_box(Graph *g, Value *key) {
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

/* Is box number `box` of those left one to choose? bool[batches, classes] */
static Value *is_chosen(Graph *g, const Boxes *boxes, const Chosen *chosen, Value *box) {
    Exprs *x = g->x;
    Builder b = build(g, 2, box->dims);
    const Expr *own = build_in(&b, box), *count = build_in(&b, chosen->count);
    const Expr *at[3] = {ex_var(x, 0), ex_var(x, 1), build_red(&b, chosen->box->dims[2])};
    const Expr *looked_at = box_of(&b, boxes, at[0], at[1], own), *one[CORNERS], *two[CORNERS];
    for (int k = 0; k < CORNERS; k++) {
        one[k] = build_load(&b, chosen->corner[k], at);
        two[k] = corner_of(&b, boxes, at[0], looked_at, k);
    }
    const Expr *limit = boxes->threshold ? build_in(&b, boxes->threshold) : ex_num(x, DT_f32, 0);
    /* the sum is one of floats, like the shares: vectors of both have as many lanes */
    const Expr *zero = ex_num(x, DT_f32, 0), *more = ex_num(x, DT_f32, 1);
    const Expr *over = ex_select(x, ex_lt(x, limit, overlap(x, one, two)), more, zero);
    over = ex_select(x, ex_lt(x, at[2], count), over, zero);
    const Expr *free = ex_le(x, ex_acc(x, DT_f32), zero);
    free = ex_and(x, free, ex_lt(x, own, ex_i(x, boxes->key->dims[2])));
    free = ex_and(x, free, ex_lt(x, count, build_in(&b, boxes->most)));
    return build_reduce(&b, DT_bool, COMBINE_sum, over, free);
}

/* Element `k` of what is chosen, with one more for each box that is: a corner, or which of all it
 * is (CORNERS). */
static Value *append(Graph *g, const Boxes *boxes, const Chosen *chosen, Value *more, Value *box,
                     int k) {
    Exprs *x = g->x;
    Builder b = build(g, 2, box->dims);
    const Expr *target[3] = {ex_var(x, 0), ex_var(x, 1), build_in(&b, chosen->count)};
    const Expr *e = box_of(&b, boxes, target[0], target[1], build_in(&b, box));
    if (k < CORNERS) e = corner_of(&b, boxes, target[0], e, k);
    Value *v = k < CORNERS ? chosen->corner[k] : chosen->box;
    return build_scatter(&b, v, COMBINE_none, target, build_in(&b, more), e);
}

/* Could any batch and class choose more, after this iteration? */
static Value *goes_on(Graph *g, const Boxes *boxes, Value *box, Value *count) {
    Exprs *x = g->x;
    Builder b = build(g, 0, NULL);
    const Expr *at[2];
    for (int i = 0; i < 2; i++) at[i] = build_red(&b, box->dims[i]);
    const Expr *more = ex_lt(x, build_load(&b, box, at), ex_i(x, boxes->key->dims[2]));
    more = ex_and(x, more, ex_lt(x, build_load(&b, count, at), build_in(&b, boxes->most)));
    more = ex_select(x, more, ex_i(x, 1), ex_i(x, 0));
    const Expr *any = ex_lt(x, ex_i(x, 0), ex_acc(x, DT_i32));
    return build_reduce(&b, DT_bool, COMBINE_max, more, any);
}

static Value *input_like(Graph *g, const Value *v) {
    return v ? graph_input(g, NULL, v->dt, v->rank, v->dims) : NULL;
}

#define STATES (CORNERS + 3) /* the keys, how many are chosen, their corners, which they are */

/* Looks at one box of every batch and class: the body of a loop that is left when nothing changes
 * any more. States: the keys, minus infinity of what has been looked at, and what is chosen. */
static Graph *nms_step(Node *n, const Boxes *outer, const Chosen *before) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    Boxes boxes = {.key = input_like(g, outer->key), .centred = outer->centred};
    Chosen chosen = {.count = input_like(g, before->count)};
    for (int k = 0; k < CORNERS; k++) chosen.corner[k] = input_like(g, before->corner[k]);
    chosen.box = input_like(g, before->box);
    boxes.boxes = input_like(g, outer->boxes);
    boxes.most = input_like(g, outer->most);
    boxes.which = input_like(g, outer->which);
    boxes.threshold = input_like(g, outer->threshold);

    Value *box = best_box(g, boxes.key), *more = is_chosen(g, &boxes, &chosen, box);
    Builder b = build(g, 2, box->dims);
    const Expr *target[3] = {ex_var(x, 0), ex_var(x, 1), build_in(&b, box)};
    const Expr *guard = ex_lt(x, target[2], ex_i(x, boxes.key->dims[2]));
    const Expr *gone = ex_num(x, DT_f32, -INFINITY);
    graph_output(g, build_scatter(&b, boxes.key, COMBINE_none, target, guard, gone), NULL);
    Value *count = g_bin(g, EX_add, chosen.count, g_cast(g, more, DT_i32));
    graph_output(g, count, NULL);
    for (int k = 0; k <= CORNERS; k++)
        graph_output(g, append(g, &boxes, &chosen, more, box, k), NULL);
    g->go_on = goes_on(g, &boxes, box, count);
    return g;
}

/* Up to `most` of each batch and class. */
static Chosen choose(Node *n, const Boxes *boxes, int64_t most) {
    Graph *g = n->g;
    const Value *key = boxes->key;
    int64_t shape[3] = {key->dims[0], key->dims[1], most};
    Chosen none = {.count = zeros(g, DT_i32, 2, shape), .box = zeros(g, DT_i32, 3, shape)};
    Value *in[STATES + 4] = {boxes->key, none.count}, *out[STATES];
    for (int k = 0; k < CORNERS; k++) in[2 + k] = none.corner[k] = zeros(g, DT_f32, 3, shape);
    int n_in = STATES;
    in[n_in - 1] = none.box;
    in[n_in++] = boxes->boxes;
    in[n_in++] = boxes->most;
    if (boxes->which) in[n_in++] = boxes->which;
    if (boxes->threshold) in[n_in++] = boxes->threshold;
    int64_t trips = dim_max(n->x, key->dims[2]);
    build_loop(g, nms_step(n, boxes, &none), trips, STATES, n_in, in, out);
    return (Chosen){.count = out[1], .box = out[STATES - 1]};
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
    if (!look_at(n, scores, least, &left)) return;
    const Chosen chosen = choose(n, &left, room);
    n->out[0] = nms_rows(n, &chosen);
}
