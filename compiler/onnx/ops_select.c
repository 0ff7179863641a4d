/* Operators that order or choose elements by their values: TopK, NonZero, Compress, Unique.
 *
 * Nothing is sorted by exchanging. An element's place in the order is the number of elements before
 * it, a reduction over all others, and a scatter takes it there; so the same few core operators do
 * it on every target, and the order of equals is always that of their positions. NaN counts as the
 * largest number, and as equal to NaN. Many are sorted by one bit of theirs after the other: there
 * the number before is a running sum. Some of many are chosen first, by how large the last of
 * them is, which counting finds bit by bit; a few are the largest of all, of those after it, and so
 * on. Of much more, what is chosen lies in as many parts as it has elements, those whose largest
 * come first; so parts are chosen first, by these, and then only they are looked through.
 *
 * How many elements are chosen is known when the inputs are constant. Otherwise what the model
 * declares is what it promises, if it is fixed, and exactly so many are given; and if it is not,
 * how many there are is a dimension that varies (ir/dim.h). Where fewer are found than must be
 * given the rest is zero; where more are found than may be given the last ones are left out.
 */
#include "compiler/onnx/index.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* More than so many are not looked for one after the other. */
#define MOST_PASSES 64
/* Groups of elements are a multiple of so many, vectors' lanes. */
#define GROUP_UNIT  16
#define LEAST_PIECE 8

/* --- order ------------------------------------------------------------------------------------ */

/* Integers (i32, or i64 for elements of 64 bits) in the order of the elements, so that a comparison
 * is all that ordering takes: floats by their bits, of which the negative ones run backwards. */
static Value *order_keys(Graph *g, Value *v) {
    Exprs *x = g->x;
    DType reg = v->dt == DT_bool ? DT_i32 : dt_reg(v->dt),
          dt = dt_store(reg) == 8 ? DT_i64 : DT_i32;
    if (reg == dt) return g_cast(g, v, dt);
    Builder b = build(g, v->rank, v->dims);
    const Expr *e = ex_cast(x, reg, build_in(&b, v)), *bits = ex_bits(x, dt, e);
    const Expr *lowest = ex_int(x, dt, dt == DT_i64 ? INT64_MIN : INT32_MIN);
    const Expr *highest = ex_int(x, dt, dt == DT_i64 ? INT64_MAX : INT32_MAX);
    const Expr *negative = ex_lt(x, bits, ex_int(x, dt, 0)), *key;
    if (dt_is_float(reg)) {
        key = ex_select(x, negative, ex_sub(x, lowest, bits), bits);
        key = ex_select(x, ex_un(x, EX_isnan, e), highest, key);
    } else {
        key = ex_bin(x, EX_bxor, bits, lowest);
    }
    return build_map(&b, dt, key);
}

static int key_bits(DType dt) {
    return dt == DT_i64 ? 64 : 32;
}

static const Expr *count_if(Exprs *x, const Expr *cond) {
    return ex_select(x, cond, ex_i(x, 1), ex_i(x, 0));
}

/* --- TopK ------------------------------------------------------------------------------------- */

/* The place of every element along the axis when the largest keys come first, i32. */
static Value *ranks(Node *n, Value *keys, int axis) {
    Exprs *x = n->x;
    Builder b = build(n->g, keys->rank, keys->dims);
    const Expr *r = build_red(&b, keys->dims[axis]), *index[MAX_RANK];
    for (int i = 0; i < keys->rank; i++) index[i] = ex_var(x, i);
    const Expr *own = build_load(&b, keys, index);
    index[axis] = r;
    const Expr *other = build_load(&b, keys, index);
    /* of equal elements the first comes first */
    const Expr *lower = ex_lt(x, r, ex_var(x, axis));
    const Expr *before = ex_select(x, lower, ex_le(x, own, other), ex_lt(x, own, other));
    return build_reduce(&b, DT_i32, COMBINE_sum, count_if(x, before), NULL);
}

/* The body of a loop that finds the k-th largest of every line of keys [lines, n] bit by bit: the
 * highest number that no fewer than k elements reach. State: its bits so far. */
static Graph *next_bit(Node *n, const Value *whole, int64_t k) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    DType dt = whole->dt;
    Value *known = graph_input(g, NULL, dt, 1, whole->dims);
    Value *keys = graph_input(g, NULL, dt, 2, whole->dims);
    const Expr *shift = ex_sub(x, ex_i(x, key_bits(dt) - 1), ex_ctr(x, g->depth - 1));
    Builder b = build(g, 1, known->dims);
    const Expr *bit = ex_bin(x, EX_shl, ex_int(x, dt, 1), ex_cast(x, dt, shift));
    Value *trial = build_map(&b, dt, ex_add(x, build_in(&b, known), bit));
    b = build(g, 1, known->dims);
    const Expr *at[2] = {ex_var(x, 0), build_red(&b, whole->dims[1])};
    const Expr *reaches = ex_le(x, build_load(&b, trial, at), build_load(&b, keys, at));
    Value *reached = build_reduce(&b, DT_i32, COMBINE_sum, count_if(x, reaches), NULL);
    b = build(g, 1, known->dims);
    const Expr *enough = ex_le(x, ex_i(x, k), build_in(&b, reached));
    const Expr *next = ex_select(x, enough, build_in(&b, trial), build_in(&b, known));
    graph_output(g, build_map(&b, dt, next), NULL);
    return g;
}

/* How many elements before each in its line of flags [lines, n] (bool) are set. */
static Value *flagged_before(Graph *g, Value *flags) {
    Exprs *x = g->x;
    Builder b = build(g, 2, flags->dims);
    const Expr *at[2] = {ex_var(x, 0), ex_var(x, 2)};
    return build_scan(&b, DT_i32, COMBINE_sum, 1, true, false,
                      count_if(x, build_load(&b, flags, at)));
}

/* Takes to place[i] (where that is below the result's extent) the element, or its position. */
static Value *take_to(Node *n, Value *v, Value *place, int axis, const int64_t *shape, DType dt,
                      bool position) {
    Exprs *x = n->x;
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *target[MAX_RANK];
    for (int i = 0; i < v->rank; i++) target[i] = ex_var(x, i);
    target[axis] = build_in(&b, place);
    const Expr *guard = ex_lt(x, target[axis], ex_i(x, shape[axis]));
    const Expr *e = position ? ex_var(x, axis) : build_in(&b, v);
    return build_scatter(&b, zeros(n->g, dt, v->rank, shape), COMBINE_none, target, guard, e);
}

/* The positions of the k largest of every line of keys [lines, n], i32, in the order of positions:
 * those above the k-th largest and the first that equal it are taken to a tensor of their own. */
static Value *choose_by_last(Node *n, Value *keys, int64_t k) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int64_t chosen[2] = {keys->dims[0], k};
    void *lowest = arena_alloc(g->arena, 8);
    dt_save(keys->dt, lowest, 0, combine_identity(COMBINE_max, keys->dt));
    Value *in[2] = {g_expand(g, graph_const(g, keys->dt, 0, NULL, lowest), 1, keys->dims), keys};
    Value *last;
    build_loop(g, next_bit(n, keys, k), key_bits(keys->dt), 1, 2, in, &last);

    Builder b = build(g, 1, keys->dims);
    const Expr *at[2] = {ex_var(x, 0), build_red(&b, keys->dims[1])};
    const Expr *above = ex_lt(x, build_load(&b, last, at), build_load(&b, keys, at));
    Value *n_above = build_reduce(&b, DT_i32, COMBINE_sum, count_if(x, above), NULL);
    b = build(g, 2, keys->dims);
    const Expr *own = build_in(&b, keys);
    Value *equal = build_map(&b, DT_bool, ex_bin(x, EX_eq, own, build_load(&b, last, at)));
    Value *equal_before = flagged_before(g, equal);
    b = build(g, 2, keys->dims);
    above = ex_lt(x, build_load(&b, last, at), build_in(&b, keys));
    const Expr *wanted = ex_sub(x, ex_i(x, k), build_load(&b, n_above, at));
    const Expr *first = ex_lt(x, build_in(&b, equal_before), wanted);
    first = ex_and(x, build_in(&b, equal), first);
    Value *flags = build_map(&b, DT_bool, ex_bin(x, EX_or, above, first));
    Value *before = flagged_before(g, flags);
    b = build(g, 2, keys->dims);
    const Expr *place = ex_select(x, build_in(&b, flags), build_in(&b, before), ex_i(x, INT32_MAX));
    return take_to(n, keys, build_map(&b, DT_i32, place), 1, chosen, DT_i32, true);
}

/* The elements of every line of v [lines, n] at positions [lines, m] in it. */
static Value *elements_at(Graph *g, Value *v, Value *positions) {
    Exprs *x = g->x;
    Builder b = build(g, 2, positions->dims);
    const Expr *at[2] = {ex_var(x, 0), index_clamp(x, build_in(&b, positions), v->dims[1])};
    return build_map(&b, v->dt, build_load(&b, v, at));
}

static const Expr *lowest_bit(Exprs *x, const Expr *number) {
    return ex_cast(x, DT_i32, ex_bin(x, EX_band, number, ex_int(x, number->dt, 1)));
}

/* Lines of tensors [lines, n] with those elements at the front of which the lowest bit of the first
 * one's numbers is set, and otherwise in their order, written over `onto`. The numbers are rotated
 * by that bit, so that the next one is the lowest. */
static void sort_by_bit(Graph *g, int n_moved, Value *const *from, Value *const *onto, Value **to) {
    Exprs *x = g->x;
    const int64_t *lines = from[0]->dims;
    Builder b = build(g, 2, lines);
    const Expr *at[2] = {ex_var(x, 0), ex_var(x, 2)}, *one = ex_i(x, 1);
    Value *before = build_scan(&b, DT_i32, COMBINE_sum, 1, true, false,
                               lowest_bit(x, build_load(&b, from[0], at)));
    for (int i = 0; i < n_moved; i++) {
        b = build(g, 2, lines);
        const Expr *number = build_in(&b, from[0]), *ahead = build_in(&b, before);
        at[1] = index_clamp(x, ex_sub(x, ex_i(x, lines[1]), one), lines[1]);
        const Expr *last = lowest_bit(x, build_load(&b, from[0], at));
        const Expr *set = ex_add(x, build_load(&b, before, at), last);
        const Expr *behind = ex_add(x, set, ex_sub(x, ex_var(x, 1), ahead));
        /* no choice, as it would be a branch that nobody can foresee */
        const Expr *clear = ex_sub(x, one, lowest_bit(x, number));
        const Expr *further = ex_mul(x, clear, ex_sub(x, behind, ahead));
        const Expr *target[2] = {at[0], ex_add(x, ahead, further)};
        const Expr *low = ex_bin(x, EX_shr, number, ex_int(x, DT_u64, 1));
        const Expr *high = ex_bin(x, EX_shl, number, ex_int(x, DT_u64, 63));
        const Expr *e = i == 0 ? ex_bin(x, EX_bor, low, high) : build_in(&b, from[i]);
        to[i] = build_scatter(&b, onto[i], COMBINE_none, target, NULL, e);
    }
}

/* The body of a loop that does so by two bits: there and back. */
static Graph *sort_by_bits(Node *n, int n_moved, Value *const *moved) {
    Graph *g = graph_new_sub(n->g);
    Value *in[2], *there[2], *back[2];
    for (int i = 0; i < n_moved; i++) in[i] = graph_input(g, NULL, moved[i]->dt, 2, moved[i]->dims);
    sort_by_bit(g, n_moved, in, in, there);
    sort_by_bit(g, n_moved, there, in, back);
    for (int i = 0; i < n_moved; i++) graph_output(g, back[i], NULL);
    return g;
}

/* Where the elements of every line of keys [lines, n] are, i32, those of larger keys first, and of
 * equal ones the first. */
static Value *order_of(Node *n, Value *keys) {
    Exprs *x = n->x;
    Graph *g = n->g;
    const bool wide = keys->dt == DT_i64;
    const int64_t sign = wide ? INT64_MIN : INT32_MIN;
    Value *moved[2], *out[2];
    Builder b = build(g, 2, keys->dims);
    const Expr *key = ex_bin(x, EX_bxor, build_in(&b, keys), ex_int(x, keys->dt, sign));
    const Expr *number = ex_cast(x, DT_u64, key);
    if (!wide) { /* the two in one */
        number = ex_cast(x, DT_u64, ex_cast(x, DT_u32, key));
        const Expr *above = ex_cast(x, DT_u64, ex_var(x, 1));
        number = ex_bin(x, EX_bor, number, ex_bin(x, EX_shl, above, ex_int(x, DT_u64, 32)));
    }
    moved[0] = build_map(&b, DT_u64, number);
    b = build(g, 2, keys->dims);
    if (wide) moved[1] = build_map(&b, DT_i32, ex_var(x, 1));
    const int n_moved = wide ? 2 : 1, trips = key_bits(keys->dt) / 2;
    build_loop(g, sort_by_bits(n, n_moved, moved), trips, n_moved, n_moved, moved, out);
    if (wide) return out[1];
    b = build(g, 2, keys->dims);
    number = ex_bin(x, EX_band, build_in(&b, out[0]), ex_int(x, DT_u64, INT32_MAX));
    return build_map(&b, DT_i32, ex_cast(x, DT_i32, number));
}

/* Cycles that the order of the elements of a line takes, by how many come before each and by
 * sorting (see cheapest_way). A device has pairs side by side. */
static double cost_of_pairs(double length) {
    return (length / 4 + 2) * length;
}

static double cost_of_sorting(const Node *n, double length, DType key) {
    if (node_on_device(n)) return INFINITY;
    return 1500 + 85 * length * (key == DT_i64 ? 3 : 1);
}

/* The positions, those of larger keys first. */
static Value *in_order(Node *n, Value *keys, Value *positions) {
    Value *chosen = elements_at(n->g, keys, positions);
    const double length = (double)positions->shape[1];
    if (cost_of_sorting(n, length, keys->dt) < cost_of_pairs(length))
        return elements_at(n->g, positions, order_of(n, chosen));
    return take_to(n, positions, ranks(n, chosen, 1), 1, positions->dims, DT_i32, false);
}

/* Lines of `length`, filled up with the lowest key. */
static Value *filled_up(Graph *g, Value *keys, int64_t length) {
    const int64_t before[2] = {0}, after[2] = {0, length - keys->dims[1]};
    return g_pad(g, keys, before, after, combine_identity(COMBINE_max, keys->dt));
}

/* What choose_by_last does, of long lines: the k largest are in the k pieces, each of `piece`
 * elements side by side, whose largest come first. */
static Value *choose_in_pieces(Node *n, Value *keys, int64_t piece, int64_t k) {
    Graph *g = n->g;
    Exprs *x = n->x;
    const int64_t pieces = (keys->dims[1] + piece - 1) / piece;
    const int64_t first[2] = {keys->dims[0], pieces}, inside[2] = {keys->dims[0], k * piece};
    const Expr *own = ex_var(x, 1), *by = ex_i(x, piece), *at[2] = {ex_var(x, 0)};
    keys = filled_up(g, keys, pieces * piece);
    Builder b = build(g, 2, first);
    at[1] = ex_add(x, ex_mul(x, own, by), build_red(&b, piece));
    Value *most = build_reduce(&b, keys->dt, COMBINE_max, build_load(&b, keys, at), NULL);
    Value *chosen = choose_by_last(n, most, k);
    b = build(g, 2, inside);
    at[1] = ex_div(x, own, by);
    const Expr *start = ex_mul(x, build_load(&b, chosen, at), by);
    Value *positions = build_map(&b, DT_i32, ex_add(x, start, ex_bin(x, EX_rem, own, by)));
    Value *taken = choose_by_last(n, elements_at(g, keys, positions), k);
    return elements_at(g, positions, taken);
}

/* The body of a loop that finds the largest of every line of keys [lines, n] that comes after the
 * one before. State: that one's key and position; stacked: the positions. `placed`: the position of
 * each is an input, too. */
static Graph *next_largest(Node *n, const Value *whole, bool placed) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    const int64_t *lines = whole->dims;
    Value *last = graph_input(g, NULL, whole->dt, 1, lines);
    Value *last_at = graph_input(g, NULL, DT_i32, 1, lines);
    Value *keys = graph_input(g, NULL, whole->dt, 2, lines);
    Value *places = placed ? graph_input(g, NULL, DT_i32, 2, lines) : NULL;
    Builder b = build(g, 1, lines);
    const Expr *r = build_red(&b, lines[1]), *at[2] = {ex_var(x, 0), r};
    const Expr *key = build_load(&b, keys, at), *before = build_load(&b, last, at);
    const Expr *place = places ? build_load(&b, places, at) : r;
    const Expr *equal = ex_bin(x, EX_eq, key, before);
    const Expr *later = ex_and(x, equal, ex_lt(x, build_load(&b, last_at, at), place));
    later = ex_bin(x, EX_or, ex_lt(x, key, before), later);
    const Expr *none = ex_const(x, whole->dt, combine_identity(COMBINE_max, whole->dt));
    Value *found = build_reduce(&b, whole->dt, COMBINE_max, ex_select(x, later, key, none), NULL);
    /* the first that equals it, behind the last one if that does, too */
    b = build(g, 1, lines);
    const Expr *lower = ex_lt(x, build_in(&b, found), build_in(&b, last));
    Value *behind = build_map(&b, DT_i32, ex_select(x, lower, ex_i(x, -1), build_in(&b, last_at)));
    b = build(g, 1, lines);
    r = at[1] = build_red(&b, lines[1]);
    place = places ? build_load(&b, places, at) : r;
    equal = ex_bin(x, EX_eq, build_load(&b, keys, at), build_load(&b, found, at));
    equal = ex_and(x, equal, ex_lt(x, build_load(&b, behind, at), place));
    Value *found_at =
        build_reduce(&b, DT_i32, COMBINE_min, ex_select(x, equal, place, ex_i(x, INT32_MAX)), NULL);
    graph_output(g, found, NULL);
    graph_output(g, found_at, NULL);
    graph_output(g, found_at, NULL);
    return g;
}

/* The positions of the k largest of every line of keys [lines, n], i32, in the order of the keys,
 * found one after the other. Where `places` is not NULL, key i of a line is at position places[i].
 */
static Value *choose_few(Node *n, Value *keys, Value *places, int64_t k) {
    Graph *g = n->g;
    void *highest = arena_alloc(g->arena, 8);
    const int to[2] = {1, 0};
    dt_save(keys->dt, highest, 0, combine_identity(COMBINE_min, keys->dt));
    Value *in[4] = {g_expand(g, graph_const(g, keys->dt, 0, NULL, highest), 1, keys->dims),
                    g_expand(g, g_scalar(g, DT_i32, -1), 1, keys->dims), keys, places};
    Value *out[3];
    build_loop(g, next_largest(n, keys, places != NULL), k, 2, places ? 4 : 3, in, out);
    return g_transpose(g, out[2], to);
}

/* The position of element `i` of group `group`. */
static const Expr *in_group(Exprs *x, const Expr *group, const Expr *i, int64_t groups) {
    return ex_add(x, ex_mul(x, i, ex_i(x, groups)), group);
}

/* What choose_few does, of long lines: the k largest are in the k groups, each of every groups-th
 * element, whose largest come first. (Vectors of the largest of groups need no sums across lanes,
 * as those of pieces do, which matters where groups are small.) */
static Value *choose_in_groups(Node *n, Value *keys, int64_t groups, int64_t k) {
    Graph *g = n->g;
    Exprs *x = n->x;
    const int64_t size = (keys->dims[1] + groups - 1) / groups;
    const int64_t first[2] = {keys->dims[0], groups}, inside[2] = {keys->dims[0], k * size};
    const Expr *own[2] = {ex_var(x, 0), ex_var(x, 1)}, *at[2] = {own[0]};
    keys = filled_up(g, keys, groups * size);
    Builder b = build(g, 2, first);
    at[1] = in_group(x, own[1], build_red(&b, size), groups);
    Value *most = build_reduce(&b, keys->dt, COMBINE_max, build_load(&b, keys, at), NULL);
    b = build(g, 2, first);
    at[1] = in_group(x, own[1], build_red(&b, size), groups);
    const Expr *leads = ex_bin(x, EX_eq, build_load(&b, keys, at), build_load(&b, most, own));
    const Expr *place = ex_select(x, leads, at[1], ex_i(x, INT32_MAX));
    Value *places = build_reduce(&b, DT_i32, COMBINE_min, place, NULL);
    Value *chosen = choose_few(n, most, places, k);

    b = build(g, 2, inside);
    at[1] = ex_div(x, own[1], ex_i(x, size));
    const Expr *group = ex_bin(x, EX_rem, build_load(&b, chosen, at), ex_i(x, groups));
    const Expr *i = ex_bin(x, EX_rem, own[1], ex_i(x, size));
    Value *positions = build_map(&b, DT_i32, in_group(x, group, i, groups));
    return choose_few(n, elements_at(g, keys, positions), positions, k);
}

/* About as many groups of a line of n as elements in k > 0 of them. */
static int64_t groups_for(int64_t n, int64_t k) {
    int64_t groups = (int64_t)sqrt((double)(n * k));
    return (groups + GROUP_UNIT - 1) / GROUP_UNIT * GROUP_UNIT;
}

/* The size of pieces of such a line that are about as many as elements in k of them. */
static int64_t piece_for(int64_t n, int64_t k) {
    int64_t piece = LEAST_PIECE;
    while (4 * piece * piece * k < 2 * n) piece *= 2;
    return piece;
}

typedef enum Way {
    WAY_pairs,  /* an element's place is how many come before it */
    WAY_last,   /* the last one of the largest is looked for first, bit by bit */
    WAY_pieces, /* and in pieces */
    WAY_few,    /* one after the other */
    WAY_groups, /* and in groups */
    WAY_sort,   /* all are sorted, bit by bit */
    WAYS
} Way;

/* The way that takes least. Costs are cycles that lines took on a processor with vectors of 64
 * bytes (Zen 4, those of sorting Zen 5); what vectors do counts double, as if they had 32, and
 * three times for keys of 64 bits, of which they have no lanes: guesses. `fixed`: n and k do not
 * vary. */
static Way cheapest_way(const Node *node, int64_t n, int64_t k, bool fixed, DType key) {
    const double length = (double)n, most = (double)k, slow = dt_store(key) == 8 ? 3 : 1;
    const double piece = (double)piece_for(n, k), pieces = length / piece;
    const double groups = (double)groups_for(n, k), size = ceil(length / groups);
    const bool passes = fixed && k <= MOST_PASSES;
    const double order = fmin(cost_of_pairs(most), cost_of_sorting(node, most, key));
    const double cost[WAYS] = {
        [WAY_pairs] = cost_of_pairs(length),
        [WAY_last] = 1000 + 13 * length + order,
        [WAY_pieces] = fixed
                           ? 2000 + pieces * (20 + piece / 4) + 13 * (pieces + most * piece) + order
                           : INFINITY,
        [WAY_few] = passes ? slow * most * (0.8 * length + 60) : INFINITY,
        [WAY_groups] =
            passes ? slow * (0.6 * length + most * (0.8 * (groups + most * size) + 120)) : INFINITY,
        [WAY_sort] = cost_of_sorting(node, length, key),
    };
    Way best = WAY_pairs;
    for (Way way = WAY_last; way < WAYS; way++)
        if (cost[way] < cost[best]) best = way;
    return best;
}

/* The first k of every line. */
static Value *first_of(Graph *g, Value *v, int64_t k) {
    static const int64_t start[2], step[2] = {1, 1};
    const int64_t count[2] = {v->dims[0], k};
    return g_slice(g, v, start, step, count);
}

/* The positions of the k largest keys along the axis, i32. */
static Value *choose_largest(Node *n, Value *keys, int axis, int64_t k, Way way) {
    Graph *g = n->g;
    int rank = keys->rank, to[MAX_RANK], from[MAX_RANK];
    int64_t lines[2] = {1, keys->dims[axis]}, shape[MAX_RANK];
    for (int i = 0; i < rank; i++) { /* the axis goes last */
        to[i] = i < axis ? i : i < rank - 1 ? i + 1 : axis;
        from[to[i]] = i;
        shape[i] = i < rank - 1 ? keys->dims[to[i]] : k;
        if (i < rank - 1) lines[0] = dim_mul(n->x, lines[0], shape[i]);
    }
    keys = g_reshape(g, g_transpose(g, keys, to), 2, lines);
    Value *taken = way == WAY_groups ? choose_in_groups(n, keys, groups_for(lines[1], k), k)
                   : way == WAY_few  ? choose_few(n, keys, NULL, k)
                   : way == WAY_sort ? first_of(n->g, order_of(n, keys), k)
                   : way == WAY_pieces
                       ? in_order(n, keys, choose_in_pieces(n, keys, piece_for(lines[1], k), k))
                       : in_order(n, keys, choose_by_last(n, keys, k));
    return g_transpose(g, g_reshape(g, taken, rank, shape), from);
}

/* How the k largest keys along the axis are found best. */
static Way way_along(const Node *n, const Value *keys, int axis, int64_t k) {
    const bool fixed = !dim_varies(k) && !dim_varies(keys->dims[axis]);
    return cheapest_way(n, keys->shape[axis], dim_max(n->x, k), fixed, keys->dt);
}

Value *largest_at(Node *n, Value *v, int axis, int64_t k) {
    int64_t shape[MAX_RANK];
    for (int i = 0; i < v->rank; i++) shape[i] = i == axis ? k : v->dims[i];
    if (value_numel(v) == 0) return zeros(n->g, DT_i32, v->rank, shape);
    Value *keys = order_keys(n->g, v);
    const Way way = way_along(n, keys, axis, k);
    if (way != WAY_pairs) return choose_largest(n, keys, axis, k, way);
    return take_to(n, v, ranks(n, keys, axis), axis, shape, DT_i32, true);
}

void import_topk(Node *n) {
    Value *v = node_need(n, 0);
    if (!v) return;
    int axis = node_axis(n, attr_int(n, "axis", -1), v->rank);
    int64_t k, shape[MAX_RANK], most[MAX_RANK];
    const char *name;
    if (axis < 0) return;
    if (n->version < 10) {
        k = attr_int(n, "k", -1);
    } else {
        Value *count = node_need(n, 1);
        if (!count) return;
        if (!value_single(n, count) || !dt_is_int(count->dt)) {
            invalid(n, E2005, "k must be one number");
            return;
        }
        bool declared = !value_is_const(count) && (node_declared_extent(n, 0, axis, &k, &name) ||
                                                   node_declared_extent(n, 1, axis, &k, &name));
        if (declared) node_check_count(n, count, k, k);
        if (!declared && !node_chosen_extent(n, count, 0, axis, v->dims[axis], false, &k)) return;
    }
    if ((k < 0 && !dim_varies(k)) || dim_min(n->x, k) > v->shape[axis]) {
        invalid(n, E2005, "k is %s, but axis %d has %s elements", dim_text(n->x, k), axis,
                dim_text(n->x, v->dims[axis]));
        return;
    }
    dim_claim(n->x, CLAIM_at_most, k, v->dims[axis]);
    for (int i = 0; i < v->rank; i++) shape[i] = i == axis ? k : v->dims[i];
    dims_max(n->x, v->rank, shape, most);
    if (shape_numel(v->rank, most) == 0) {
        n->out[0] = zeros(n->g, v->dt, v->rank, shape);
        n->out[1] = zeros(n->g, DT_i64, v->rank, shape);
        return;
    }
    Value *keys = order_keys(n->g, v);
    if (!attr_int(n, "largest", 1)) keys = g_un(n->g, EX_bnot, keys);
    const Way way = way_along(n, keys, axis, k);
    if (way != WAY_pairs) {
        Value *at = choose_largest(n, keys, axis, k, way);
        Builder b = build(n->g, v->rank, shape);
        const Expr *index[MAX_RANK];
        for (int i = 0; i < v->rank; i++) index[i] = ex_var(n->x, i);
        index[axis] = index_clamp(n->x, build_in(&b, at), v->dims[axis]);
        if (node_wants(n, 0)) n->out[0] = build_map(&b, v->dt, build_load(&b, v, index));
        if (node_wants(n, 1)) n->out[1] = g_cast(n->g, at, DT_i64);
        return;
    }
    Value *place = ranks(n, keys, axis);
    if (node_wants(n, 0)) n->out[0] = take_to(n, v, place, axis, shape, v->dt, false);
    if (node_wants(n, 1)) n->out[1] = take_to(n, v, place, axis, shape, DT_i64, true);
}

/* --- NonZero, Compress ------------------------------------------------------------------------ */

/* For flags (bool, rank 1): how many are set before each (i32), and how many in all (i64 scalar).
 */
static Value *places_of(Node *n, Value *flags, Value **count) {
    Exprs *x = n->x;
    const Op *def = flags->def;
    bool all = def->kind == OP_map && ex_is_const(def->body) && def->body->k.i;
    Builder b = build(n->g, 1, flags->dims);
    const Expr *at = ex_var(x, 1);
    Value *place = build_scan(&b, DT_i32, COMBINE_sum, 0, true, false,
                              count_if(x, build_load(&b, flags, &at)));
    if (all) {
        *count = g_dim(n->g, DT_i64, flags->dims[0]);
        return place;
    }
    b = build(n->g, 0, NULL);
    at = build_red(&b, flags->dims[0]);
    *count = build_reduce(&b, DT_i64, COMBINE_sum, count_if(x, build_load(&b, flags, &at)), NULL);
    return place;
}

void import_non_zero(Node *n) {
    Value *v = node_need(n, 0), *count;
    if (!v) return;
    Exprs *x = n->x;
    Graph *g = n->g;
    int64_t size[1] = {dim_product(x, v->rank, v->dims)}, shape[2] = {v->rank ? v->rank : 1};
    Value *flat = g_reshape(g, v, 1, size);
    Builder b = build(g, 1, size);
    Value *flags = build_map(&b, DT_bool, ex_cast(x, DT_bool, build_in(&b, flat)));
    Value *place = places_of(n, flags, &count);
    if (!node_chosen_extent(n, count, 0, 1, size[0], true, &shape[1])) return;
    /* a scalar has one coordinate, 0 */
    if (!node_shape_ok(n, 2, shape)) return;
    Value *result = zeros(g, DT_i64, 2, shape);
    if (size[0] && shape[1]) {
        int64_t space[2] = {shape[0], size[0]};
        if (!node_shape_ok(n, 2, space)) return;
        b = build(g, 2, space);
        const Expr *at = ex_var(x, 1), *e = ex_i(x, 0);
        for (int i = 0; i < v->rank; i++) {
            int64_t below = dim_product(x, v->rank - 1 - i, v->dims + i + 1);
            const Expr *c = ex_bin(x, EX_rem, ex_div(x, at, ex_i(x, below)), ex_i(x, v->dims[i]));
            e = ex_select(x, ex_bin(x, EX_eq, ex_var(x, 0), ex_i(x, i)), c, e);
        }
        const Expr *target[2] = {ex_var(x, 0), build_load(&b, place, &at)};
        const Expr *guard = ex_lt(x, target[1], ex_i(x, shape[1]));
        guard = ex_and(x, build_load(&b, flags, &at), guard);
        result = build_scatter(&b, result, COMBINE_none, target, guard, e);
    }
    n->out[0] = result;
}

void import_compress(Node *n) {
    Value *v = node_need(n, 0), *flags = node_need(n, 1), *count;
    if (!v || !flags) return;
    Exprs *x = n->x;
    Graph *g = n->g;
    int64_t size[1] = {dim_product(x, v->rank, v->dims)}, shape[MAX_RANK];
    int axis = 0;
    if (attr_has(n, "axis"))
        axis = node_axis(n, attr_int(n, "axis", 0), v->rank);
    else
        v = g_reshape(g, v, 1, size);
    if (axis < 0) return;
    if (flags->rank != 1 || flags->dt != DT_bool) {
        invalid(n, E2005, "the condition must be a vector of bool");
        return;
    }
    /* a condition may be shorter than the axis, and then leaves the rest out */
    int64_t looked_at = dim_smaller(x, flags->dims[0], v->dims[axis]);
    if (flags->dims[0] != looked_at) {
        const int64_t start = 0, step = 1;
        flags = g_slice(g, flags, &start, &step, &looked_at);
    }
    Value *place = places_of(n, flags, &count);
    memcpy(shape, v->dims, sizeof(int64_t) * (size_t)v->rank);
    if (!node_chosen_extent(n, count, 0, axis, looked_at, true, &shape[axis])) return;
    if (!node_shape_ok(n, v->rank, shape)) return;
    Value *result = zeros(g, v->dt, v->rank, shape);
    int64_t space[MAX_RANK];
    memcpy(space, v->dims, sizeof(int64_t) * (size_t)v->rank);
    space[axis] = looked_at;
    if (value_numel(v) && looked_at && shape[axis]) {
        Builder b = build(g, v->rank, space);
        const Expr *at = ex_var(x, axis), *target[MAX_RANK];
        for (int i = 0; i < v->rank; i++) target[i] = ex_var(x, i);
        const Expr *e = build_load(&b, v, target);
        target[axis] = build_load(&b, place, &at);
        const Expr *guard = ex_lt(x, target[axis], ex_i(x, shape[axis]));
        guard = ex_and(x, build_load(&b, flags, &at), guard);
        result = build_scatter(&b, result, COMBINE_none, target, guard, e);
    }
    n->out[0] = result;
}

/* --- Unique ----------------------------------------------------------------------------------- */

/* Items along the middle of [before, items, after]. Item i is said by its own elements [before,
 * after]; two are compared at the first place where they differ. */
typedef struct Items {
    Value *v; /* keys */
    int64_t n, before, after;
} Items;

static const Expr *item_at(Builder *b, const Items *it, const Expr *item, const Expr *place) {
    Exprs *x = b->x;
    const Expr *after = ex_i(x, it->after);
    const Expr *index[3] = {ex_div(x, place, after), item, ex_bin(x, EX_rem, place, after)};
    return build_load(b, it->v, index);
}

/* [items, items]: the first place where the two differ, before * after if nowhere. NULL where items
 * are single elements, which are compared directly. */
static Value *first_difference(Node *n, const Items *it) {
    Exprs *x = n->x;
    int64_t shape[2] = {it->n, it->n}, width = dim_mul(x, it->before, it->after);
    if (width == 1) return NULL;
    Builder b = build(n->g, 2, shape);
    const Expr *r = build_red(&b, width);
    const Expr *equal =
        ex_bin(x, EX_eq, item_at(&b, it, ex_var(x, 0), r), item_at(&b, it, ex_var(x, 1), r));
    return build_reduce(&b, DT_i32, COMBINE_min, ex_select(x, equal, ex_i(x, width), r), NULL);
}

/* Conditions on items i and j: i == j, i > j. */
static void compare(Builder *b, const Items *it, Value *difference, const Expr *i, const Expr *j,
                    const Expr **equal, const Expr **above) {
    Exprs *x = b->x;
    const Expr *place = ex_i(x, 0);
    if (difference) {
        const Expr *pair[2] = {i, j};
        place = build_load(b, difference, pair);
        int64_t width = dim_mul(x, it->before, it->after);
        *equal = ex_bin(x, EX_eq, place, ex_i(x, width));
        place = index_clamp(x, place, width);
    }
    const Expr *a = item_at(b, it, i, place), *c = item_at(b, it, j, place);
    if (!difference) *equal = ex_bin(x, EX_eq, a, c);
    *above = ex_lt(x, c, a);
}

/* A result of `count` elements: body (of update coordinate 0, an item) goes to place[item]. */
static Value *per_unique(Node *n, Value *place, int64_t count, Combine combine, Value *first,
                         bool position) {
    Exprs *x = n->x;
    Value *result = zeros(n->g, DT_i64, 1, &count);
    if (!count || !value_numel(place)) return result;
    Builder b = build(n->g, 1, place->dims);
    const Expr *i = ex_var(x, 0), *target[1] = {build_in(&b, place)};
    const Expr *guard = ex_lt(x, target[0], ex_i(x, count));
    if (first) guard = ex_and(x, ex_bin(x, EX_eq, build_in(&b, first), i), guard);
    return build_scatter(&b, result, combine, target, guard, position ? i : ex_i(x, 1));
}

/* Which output of the operator is what; -1: none. */
typedef struct UniqueOutputs {
    int first, place, count;
} UniqueOutputs;

static void unique(Node *n, bool sorted, UniqueOutputs out) {
    Value *v = node_need(n, 0);
    if (!v) return;
    Exprs *x = n->x;
    Graph *g = n->g;
    bool by_axis = attr_has(n, "axis");
    int axis = by_axis ? node_axis(n, attr_int(n, "axis", 0), v->rank) : 0;
    if (axis < 0) return;
    int64_t shape[MAX_RANK] = {dim_product(x, v->rank, v->dims)}, split[3] = {1, 1, 1}, extent;
    const char *name = "";
    int rank = 1;
    if (by_axis) {
        rank = v->rank;
        memcpy(shape, v->dims, sizeof(int64_t) * (size_t)rank);
    }
    for (int i = 0; i < rank; i++) {
        int64_t *part = &split[i < axis ? 0 : i > axis ? 2 : 1];
        *part = dim_mul(x, *part, shape[i]);
    }
    Items it = {.n = split[1], .before = split[0], .after = split[2]};
    Value *flat = g_reshape(g, v, 3, split);
    it.v = order_keys(g, flat);
    if (value_numel(v) == 0) {
        unsupported(n, "an input without elements");
        return;
    }
    Value *difference = first_difference(n, &it);
    /* the first item that is equal */
    const Expr *equal, *above, *i = ex_var(x, 0), *j;
    Builder b = build(g, 1, &it.n);
    j = build_red(&b, it.n);
    compare(&b, &it, difference, i, j, &equal, &above);
    Value *first =
        build_reduce(&b, DT_i32, COMBINE_min, ex_select(x, equal, j, ex_i(x, it.n - 1)), NULL);
    /* the place in the result: how many firsts are smaller, or were seen before */
    b = build(g, 1, &it.n);
    j = build_red(&b, it.n);
    compare(&b, &it, difference, i, j, &equal, &above);
    const Expr *is_first = ex_bin(x, EX_eq, build_load(&b, first, &j), j);
    const Expr *earlier = ex_lt(x, j, build_load(&b, first, &i));
    Value *place = build_reduce(&b, DT_i32, COMBINE_sum,
                                count_if(x, ex_and(x, is_first, sorted ? above : earlier)), NULL);
    b = build(g, 0, NULL);
    j = build_red(&b, it.n);
    is_first = ex_bin(x, EX_eq, build_load(&b, first, &j), j);
    Value *total = build_reduce(&b, DT_i64, COMBINE_sum, count_if(x, is_first), NULL);
    bool declared = !value_is_const(total) &&
                    (node_declared_extent(n, out.count, 0, &extent, &name) ||
                     (out.first >= 0 && node_declared_extent(n, out.first, 0, &extent, &name)) ||
                     node_declared_extent(n, 0, axis, &extent, &name));
    if (declared) node_check_count(n, total, 0, extent);
    if (!declared && !node_counted_extent(n, total, it.n, true, name, &extent)) return;
    shape[axis] = extent;
    if (!node_shape_ok(n, rank, shape)) return;
    split[1] = extent;
    Value *result = zeros(g, v->dt, 3, split);
    if (extent) {
        int64_t space[3] = {it.before, it.n, it.after};
        b = build(g, 3, space);
        const Expr *item = ex_var(x, 1);
        const Expr *target[3] = {ex_var(x, 0), build_load(&b, place, &item), ex_var(x, 2)};
        const Expr *guard = ex_bin(x, EX_eq, build_load(&b, first, &item), item);
        guard = ex_and(x, guard, ex_lt(x, target[1], ex_i(x, extent)));
        result = build_scatter(&b, result, COMBINE_none, target, guard, build_in(&b, flat));
    }
    n->out[0] = g_reshape(g, result, rank, shape);
    if (out.first >= 0 && node_wants(n, out.first))
        n->out[out.first] = per_unique(n, place, extent, COMBINE_none, first, true);
    if (node_wants(n, out.place)) n->out[out.place] = g_cast(g, place, DT_i64);
    if (node_wants(n, out.count))
        n->out[out.count] = per_unique(n, place, extent, COMBINE_sum, NULL, false);
}

void import_unique(Node *n) {
    unique(n, attr_int(n, "sorted", 1) != 0, (UniqueOutputs){1, 2, 3});
}

/* Of a vector, in the order in which elements occur. */
void import_ms_unique(Node *n) {
    Value *v = node_need(n, 0);
    if (v && v->rank != 1)
        invalid(n, E2005, "the input has %d dimensions, not 1", v->rank);
    else if (v)
        unique(n, false, (UniqueOutputs){-1, 1, 2});
}
