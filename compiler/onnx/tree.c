/* How ensembles of trees are run.
 *
 * First every test becomes `x > value` or `-x > value`, whatever ONNX calls it, so that numbers
 * that are none always go the same way. Then the nodes of all trees are laid out in one table,
 * level by level, the two that follow a test side by side: a step down is `next[at] + (x >
 * value[at])`, without a branch. A leaf follows itself. The state is where each row is in each
 * tree, one step is a map, and trees of about the same depth walk in one loop. The votes of the
 * leaves are then joined.
 */
#include "compiler/onnx/tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_OF_GROUP 256 /* of one row in one tree: what a loop of its own has to save */

typedef struct Walk {
    Node *n;
    Forest *f;
    Value *v;            /* rows, f32 or f64 */
    int32_t *next;       /* by node: the place of the first of the two that follow, or -1 */
    int32_t *height;     /* by node: the most steps from there to a leaf, or -1 */
    VEC(int32_t) places; /* the nodes that lie there */
} Walk;

/* --- checking --------------------------------------------------------------------------------- */

/* False after a report if a feature is none, or nodes are reached on two ways, which a tree cannot
 * have (and which would allow circles). */
static bool check_forest(Node *n, const Forest *f, const Value *v) {
    Arena *arena = n->g->arena;
    int count = f->nodes.n, top = 0;
    char *seen = ARENA_ARRAY(arena, count + 1, char);
    int32_t *stack = ARENA_ARRAY(arena, count + 1, int32_t);
    const int64_t features = dim_max(n->x, v->dims[1]);
    for (int i = 0; i < count; i++) {
        const TreeNode *node = &f->nodes.items[i];
        if (node->branch == BRANCH_leaf || (node->feature >= 0 && node->feature < features))
            continue;
        invalid(n, E2004, "a node tests feature %d of %lld", (int)node->feature,
                (long long)features);
        return false;
    }
    for (int t = 0; t < f->roots.n; t++) {
        stack[top++] = f->roots.items[t];
        while (top) {
            int32_t at = stack[--top];
            const TreeNode *node = &f->nodes.items[at];
            if (node->branch == BRANCH_leaf) continue;
            const int32_t next[2] = {node->on_true, node->on_false};
            bool again = seen[at]++;
            for (int k = 0; k < 2 && !again; k++) {
                /* two ways to a leaf are no harm */
                if (f->nodes.items[next[k]].branch == BRANCH_leaf) continue;
                again = top == count;
                if (!again) stack[top++] = next[k];
            }
            if (again) {
                invalid(n, E2004, "the nodes form no trees: one is reached twice");
                return false;
            }
        }
    }
    return true;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* The largest number of the rows' type that is at most t, or that is less than t; NaN if none is.
 */
static double largest(const Walk *w, double t, bool less) {
    const bool wide = w->v->dt == DT_f64;
    if (t != t) return t;
    double u = wide ? t : (double)(float)t;
    if (u < t || (u == t && !less)) return u;
    if (u == -HUGE_VAL) return NAN;
    return wide ? nextafter(u, -HUGE_VAL) : (double)nextafterf((float)u, -HUGE_VALF);
}

/* The node at `at` tests if x > value, or -x > value; what is no number is not greater. */
static void set_test(Walk *w, int at, bool negated, double value, int on_true, int on_false) {
    TreeNode *node = &w->f->nodes.items[at];
    node->branch = BRANCH_gt;
    node->nan_is_true = false;
    node->value = value;
    node->on_true = on_true;
    node->on_false = on_false;
    node->negated = negated;
}

/* A further node for the feature of that at `like`. */
static int32_t add_node(Walk *w, int like) {
    TreeNode node = w->f->nodes.items[like];
    vec_push(w->n->g->arena, &w->f->nodes, node);
    return w->f->nodes.n - 1;
}

/* The node at `at` leads to `rest` what is no number, and all others to `numbers`. */
static void set_is_number(Walk *w, int at, int numbers, int rest) {
    int lowest = add_node(w, at); /* -x > what is largest but infinity */
    set_test(w, lowest, true, largest(w, HUGE_VAL, true), numbers, rest);
    set_test(w, at, false, -HUGE_VAL, numbers, lowest);
}

/* The node at `at` tests if x <= u; a NaN: no x is. */
static void set_at_most(Walk *w, int at, double u, int on_true, int on_false, bool nan_is_true) {
    const int nan = nan_is_true ? on_true : on_false;
    if (u != u && nan == on_false)
        set_test(w, at, false, NAN, on_false, on_false);
    else if (u != u)
        set_is_number(w, at, on_false, nan);
    else if (nan_is_true)
        set_test(w, at, false, u, on_false, on_true);
    else if (u == HUGE_VAL)
        set_is_number(w, at, on_true, nan);
    else
        set_test(w, at, true, largest(w, -u, true), on_true, on_false);
}

/* The node at `at` tests if x == t: x <= t, and not x < t. */
static void set_equal(Walk *w, int at, double t, int on_true, int on_false, bool nan_is_true) {
    int not_more = add_node(w, at);
    set_at_most(w, not_more, largest(w, t, true), on_false, on_true, false);
    set_at_most(w, at, largest(w, t, false), not_more, on_false, nan_is_true);
}

static int compare_numbers(const void *a, const void *b) {
    const double *p = a, *q = b;
    return *p < *q ? -1 : *p > *q;
}

/* The node at `at` looks among sorted members. */
static void set_member(Walk *w, int at, const double *member, int count, int on_true, int on_false,
                       bool nan_is_true) {
    if (count == 0) {
        set_at_most(w, at, NAN, on_true, on_false, nan_is_true);
    } else if (count == 1) {
        set_equal(w, at, *member, on_true, on_false, nan_is_true);
    } else {
        int half = count / 2, low = add_node(w, at), high = add_node(w, at);
        set_member(w, low, member, half, on_true, on_false, nan_is_true);
        set_member(w, high, member + half, count - half, on_true, on_false, nan_is_true);
        set_at_most(w, at, largest(w, member[half - 1], false), low, high, nan_is_true);
    }
}

/* Makes all tests of the forest such as set_test makes. */
static void set_tests(Walk *w) {
    Forest *f = w->f;
    const int count = f->nodes.n;
    for (int i = 0; i < count; i++) {
        const TreeNode t = f->nodes.items[i];
        const bool less = t.branch == BRANCH_lt || t.branch == BRANCH_gte;
        double *members = f->members.items + t.members;
        switch ((TreeBranch)t.branch) {
        case BRANCH_leq:
        case BRANCH_lt:
            set_at_most(w, i, largest(w, t.value, less), t.on_true, t.on_false, t.nan_is_true);
            break;
        case BRANCH_gte:
        case BRANCH_gt: /* what is no number is neither */
            if (t.value != t.value)
                set_at_most(w, i, NAN, t.on_true, t.on_false, t.nan_is_true);
            else
                set_at_most(w, i, largest(w, t.value, less), t.on_false, t.on_true, !t.nan_is_true);
            break;
        case BRANCH_eq:
            set_equal(w, i, t.value, t.on_true, t.on_false, t.nan_is_true);
            break;
        case BRANCH_neq:
            set_equal(w, i, t.value, t.on_false, t.on_true, false);
            break;
        case BRANCH_member:
            qsort(members, (size_t)t.n_members, sizeof *members, compare_numbers);
            set_member(w, i, members, t.n_members, t.on_true, t.on_false, t.nan_is_true);
            break;
        case BRANCH_leaf:
            break;
        }
    }
}

/* --- laying out ------------------------------------------------------------------------------- */

/* The heights of all nodes that are reached from `root`. */
static void measure(Walk *w, int32_t root, int32_t *stack) {
    int top = 0;
    stack[top++] = root;
    while (top) {
        const int32_t at = stack[top - 1];
        const TreeNode *node = &w->f->nodes.items[at];
        const int32_t after[2] = {node->on_true, node->on_false};
        int32_t height = 0;
        bool known = true;
        for (int k = 0; k < 2 && node->branch != BRANCH_leaf && w->height[at] < 0; k++) {
            const int32_t below = w->height[after[k]];
            if (below + 1 > height) height = below + 1;
            if (below >= 0) continue;
            stack[top++] = after[k];
            known = false;
            break;
        }
        if (!known) continue;
        if (w->height[at] < 0) w->height[at] = height;
        top--;
    }
}

typedef struct Root {
    int32_t node, height, tree;
} Root;

static int compare_roots(const void *a, const void *b) {
    const Root *p = a, *q = b;
    if (p->height != q->height) return p->height > q->height ? -1 : 1;
    return p->tree - q->tree;
}

/* Trees from the highest to the lowest; then places for all nodes, level by level. */
static void lay_out(Walk *w) {
    Forest *f = w->f;
    Arena *arena = w->n->g->arena;
    w->next = ARENA_ARRAY(arena, f->nodes.n + 1, int32_t);
    w->height = ARENA_ARRAY(arena, f->nodes.n + 1, int32_t);
    int32_t *stack = ARENA_ARRAY(arena, f->nodes.n + 1, int32_t);
    Root *root = ARENA_ARRAY(arena, f->roots.n + 1, Root);
    for (int i = 0; i < f->nodes.n; i++) w->next[i] = w->height[i] = -1;
    for (int t = 0; t < f->roots.n; t++) {
        measure(w, f->roots.items[t], stack);
        root[t] = (Root){f->roots.items[t], w->height[f->roots.items[t]], t};
    }
    qsort(root, (size_t)f->roots.n, sizeof *root, compare_roots);
    for (int t = 0; t < f->roots.n; t++) {
        f->roots.items[t] = root[t].node;
        vec_push(arena, &w->places, root[t].node);
    }
    for (int at = 0; at < w->places.n; at++) {
        const int32_t i = w->places.items[at];
        const TreeNode *node = &f->nodes.items[i];
        if (node->branch == BRANCH_leaf || w->next[i] >= 0) continue;
        w->next[i] = w->places.n;
        vec_push(arena, &w->places, node->on_false);
        vec_push(arena, &w->places, node->on_true);
    }
}

/* A table with one number for each place, of the least integers that hold them. */
static Value *place_table(Walk *w, const int32_t *number) {
    Arena *arena = w->n->g->arena;
    int64_t shape[1] = {w->places.n}, most = 0;
    for (int i = 0; i < w->places.n; i++)
        if (number[i] > most) most = number[i];
    const DType dt = most <= UINT8_MAX ? DT_u8 : most <= UINT16_MAX ? DT_u16 : DT_i32;
    char *data = arena_array(arena, (size_t)w->places.n + 1, dt_store(dt));
    for (int i = 0; i < w->places.n; i++) dt_save(dt, data, (size_t)i, (Scalar){.i = number[i]});
    return graph_const(w->n->g, dt, 1, shape, data);
}

/* --- walking ---------------------------------------------------------------------------------- */

/* What a step reads: what the places' tests compare, and the tables. */
typedef struct Tables {
    Value *given; /* [rows, features], or of each x and -x */
    Value *feature, *value, *next;
    bool negated; /* all test -x */
} Tables;

static void make_tables(Walk *w, Tables *t) {
    Graph *g = w->n->g;
    Exprs *x = w->n->x;
    const Forest *f = w->f;
    int64_t shape[1] = {w->places.n};
    int32_t *feature = ARENA_ARRAY(g->arena, w->places.n + 1, int32_t);
    int32_t *next = ARENA_ARRAY(g->arena, w->places.n + 1, int32_t);
    char *value = arena_array(g->arena, (size_t)w->places.n + 1, dt_store(w->v->dt));
    bool used[2] = {false, false};
    for (int i = 0; i < w->places.n; i++) {
        const TreeNode *test = &f->nodes.items[w->places.items[i]];
        if (test->branch != BRANCH_leaf) used[test->negated] = true;
    }
    const bool both = used[0] && used[1];
    for (int i = 0; i < w->places.n; i++) {
        const int32_t node = w->places.items[i];
        const TreeNode *test = &f->nodes.items[node];
        const bool leaf = test->branch == BRANCH_leaf;
        if (!leaf) feature[i] = both ? test->feature * 2 + test->negated : test->feature;
        next[i] = leaf ? i : w->next[node];
        dt_save(w->v->dt, value, (size_t)i, (Scalar){.f = leaf ? NAN : test->value});
    }
    *t = (Tables){.given = w->v, .negated = !used[0]};
    t->feature = place_table(w, feature);
    t->next = place_table(w, next);
    t->value = graph_const(g, w->v->dt, 1, shape, value);
    if (!both) return;
    int64_t twice[2] = {w->v->dims[0], dim_mul(x, w->v->dims[1], 2)};
    Builder b = build(g, 2, twice);
    const Expr *at[2] = {ex_var(x, 0), ex_div(x, ex_var(x, 1), ex_i(x, 2))};
    const Expr *own = build_load(&b, w->v, at);
    const Expr *odd = ex_bin(x, EX_rem, ex_var(x, 1), ex_i(x, 2));
    const Expr *is_odd = ex_bin(x, EX_eq, odd, ex_i(x, 1));
    t->given = build_map(&b, w->v->dt, ex_select(x, is_odd, ex_un(x, EX_neg, own), own));
}

/* One step down, as the body of a loop. State: the places [rows, trees]. */
static Graph *step_down(Walk *w, const Tables *t, const int64_t *shape) {
    Graph *g = graph_new_sub(w->n->g);
    Exprs *x = w->n->x;
    Value *where = graph_input(g, NULL, DT_i32, 2, shape);
    Value *given = graph_input(g, NULL, t->given->dt, 2, t->given->dims);
    Value *table[3] = {t->feature, t->value, t->next};
    for (int i = 0; i < 3; i++) table[i] = graph_input(g, NULL, table[i]->dt, 1, table[i]->dims);
    Builder b = build(g, 2, shape);
    const Expr *place = build_in(&b, where);
    const Expr *at[2] = {ex_var(x, 0), ex_cast(x, DT_i32, build_load(&b, table[0], &place))};
    const Expr *own = build_load(&b, given, at);
    if (t->negated) own = ex_un(x, EX_neg, own);
    const Expr *greater = ex_lt(x, build_load(&b, table[1], &place), own);
    const Expr *next = ex_cast(x, DT_i32, build_load(&b, table[2], &place));
    graph_output(g, build_map(&b, DT_i32, ex_add(x, next, ex_cast(x, DT_i32, greater))), NULL);
    return g;
}

/* The leaves that rows reach in trees `first` to `end`, [rows, end - first]. */
static Value *find_leaves(Walk *w, const Tables *t, int first, int end) {
    Graph *g = w->n->g;
    const int64_t shape[2] = {w->v->dims[0], end - first};
    Builder b = build(g, 2, shape);
    const Expr *root = ex_add(w->n->x, ex_var(w->n->x, 1), ex_i(w->n->x, first));
    Value *in[] = {build_map(&b, DT_i32, root), t->given, t->feature, t->value, t->next}, *out;
    const int32_t height = w->height[w->f->roots.items[first]];
    if (height == 0) return in[0];
    build_loop(g, step_down(w, t, shape), height, 1, 5, in, &out);
    return out;
}

/* The leaf that each row reaches in each tree [rows, trees]. Each group of trees makes as many
 * steps as its highest one; groups are such that they are the fewest in all. */
static Value *find_all_leaves(Walk *w) {
    Graph *g = w->n->g;
    const Forest *f = w->f;
    const int count = f->roots.n;
    const int64_t shape[2] = {w->v->dims[0], count};
    if (!node_shape_ok(w->n, 2, shape)) return NULL;
    int n = 0;                                                 /* heights */
    int *start = ARENA_ARRAY(g->arena, count + 1, int);        /* of the trees of each */
    int *before = ARENA_ARRAY(g->arena, count + 1, int);       /* the first height of the group */
    int64_t *cost = ARENA_ARRAY(g->arena, count + 1, int64_t); /* of all trees before */
    for (int i = 0; i < count; i++)
        if (i == 0 || w->height[f->roots.items[i]] != w->height[f->roots.items[i - 1]])
            start[n++] = i;
    start[n] = count;
    for (int k = 1; k <= n; k++) {
        cost[k] = INT64_MAX;
        for (int j = 0; j < k; j++) {
            const int64_t steps = w->height[f->roots.items[start[j]]];
            const int64_t all = cost[j] + steps * (start[k] - start[j]) + STEPS_OF_GROUP;
            if (all < cost[k]) cost[k] = all, before[k] = j;
        }
    }
    Tables tables;
    make_tables(w, &tables);
    Value **part = ARENA_ARRAY(g->arena, n + 1, Value *);
    int m = 0;
    for (int k = n; k > 0; k = before[k]) m++;
    for (int k = n, i = m; k > 0; k = before[k])
        part[--i] = find_leaves(w, &tables, start[before[k]], start[k]);
    return m == 1 ? part[0] : g_concat(g, m, part, 1);
}

/* --- votes ------------------------------------------------------------------------------------ */

static Combine combine_of(TreeAggregate aggregate) {
    return aggregate == AGGREGATE_min   ? COMBINE_min
           : aggregate == AGGREGATE_max ? COMBINE_max
                                        : COMBINE_sum;
}

/* Numbers the places' leaves that have votes, from 1 on in order of nodes; 0 is for all others.
 * Returns how many there are with 0. Sets *most to the largest number of votes of a leaf. */
static int number_leaves(Walk *w, int32_t *of_node, int32_t *of_place, int *most) {
    const Forest *f = w->f;
    int32_t *held = ARENA_ARRAY(w->n->g->arena, f->nodes.n + 1, int32_t);
    int count = 1;
    *most = 1;
    for (int i = 0; i < f->votes.n; i++) {
        int32_t leaf = f->votes.items[i].leaf;
        if (++held[leaf] > *most) *most = held[leaf];
    }
    for (int i = 0; i < f->nodes.n; i++) of_node[i] = held[i] ? count++ : 0;
    for (int i = 0; i < w->places.n; i++) of_place[i] = of_node[w->places.items[i]];
    return count;
}

/* By tree: the target that it alone votes for, with one vote of a leaf at most; -1: it has none.
 * False if trees vote for several. */
static bool find_targets(Walk *w, int32_t *target) {
    const Forest *f = w->f;
    Arena *arena = w->n->g->arena;
    int32_t *of_leaf = ARENA_ARRAY(arena, f->nodes.n + 1, int32_t);
    int32_t *seen = ARENA_ARRAY(arena, f->nodes.n + 1, int32_t); /* by trees, from 1 on */
    int32_t *stack = ARENA_ARRAY(arena, f->nodes.n + 2, int32_t);
    for (int i = 0; i < f->nodes.n; i++) of_leaf[i] = -1;
    for (int i = 0; i < f->votes.n; i++) of_leaf[f->votes.items[i].leaf] = f->votes.items[i].target;
    for (int t = 0; t < f->roots.n; t++) {
        int top = 0;
        target[t] = -1;
        stack[top++] = f->roots.items[t];
        while (top) {
            const int32_t at = stack[--top];
            const TreeNode *node = &f->nodes.items[at];
            const int32_t after[2] = {node->on_true, node->on_false};
            for (int k = 0; k < 2 && node->branch != BRANCH_leaf; k++) {
                if (seen[after[k]] == t + 1) continue;
                seen[after[k]] = t + 1;
                stack[top++] = after[k];
            }
            if (node->branch != BRANCH_leaf || of_leaf[at] < 0) continue;
            if (target[t] >= 0 && target[t] != of_leaf[at]) return false;
            target[t] = of_leaf[at];
        }
    }
    return true;
}

/* The weight of the only vote of each place's leaf; `neutral` for all others. */
static Value *place_weights(Walk *w, Scalar neutral) {
    const Forest *f = w->f;
    Arena *arena = w->n->g->arena;
    char *of_node = arena_array(arena, (size_t)f->nodes.n + 1, dt_store(f->dt));
    char *weight = arena_array(arena, (size_t)w->places.n + 1, dt_store(f->dt));
    const int64_t shape[1] = {w->places.n};
    for (int i = 0; i < f->nodes.n; i++) dt_save(f->dt, of_node, (size_t)i, neutral);
    for (int i = 0; i < f->votes.n; i++) {
        const Scalar s = {.f = f->votes.items[i].weight};
        dt_save(f->dt, of_node, (size_t)f->votes.items[i].leaf, dt_cast(DT_f64, f->dt, s));
    }
    for (int i = 0; i < w->places.n; i++)
        dt_save(f->dt, weight, (size_t)i, dt_load(f->dt, of_node, (size_t)w->places.items[i]));
    return graph_const(w->n->g, f->dt, 1, shape, weight);
}

/* The trees that vote for each target, [targets, *most], -1 behind the last. *fewest: of a target.
 * NULL if targets have very different numbers of them. */
static int32_t *list_trees(Walk *w, const int32_t *target, int64_t *most, int64_t *fewest) {
    const Forest *f = w->f;
    int32_t *count = ARENA_ARRAY(w->n->g->arena, (size_t)f->targets, int32_t);
    *most = 1;
    *fewest = INT32_MAX;
    for (int t = 0; t < f->roots.n; t++)
        if (target[t] >= 0) count[target[t]]++;
    for (int64_t k = 0; k < f->targets; k++) {
        if (count[k] > *most) *most = count[k];
        if (count[k] < *fewest) *fewest = count[k];
        count[k] = 0;
    }
    if (f->targets * *most > 2 * (int64_t)f->roots.n + *most) return NULL;
    int32_t *list = ARENA_ARRAY(w->n->g->arena, (size_t)(f->targets * *most), int32_t);
    memset(list, 0xff, (size_t)(f->targets * *most) * sizeof *list);
    for (int t = 0; t < f->roots.n; t++)
        if (target[t] >= 0) list[target[t] * *most + count[target[t]]++] = t;
    return list;
}

/* Where each leaf has one vote, all of a tree for the same target: a target's trees are looked up,
 * and the weights by place. NULL if that is not so. */
static Value *join_trees(Walk *w, Value *leaves, Combine combine) {
    Graph *g = w->n->g;
    Exprs *x = w->n->x;
    const Forest *f = w->f;
    int32_t *target = ARENA_ARRAY(g->arena, f->roots.n + 1, int32_t);
    int64_t most, fewest, shape[2] = {leaves->dims[0], f->targets};
    int32_t *list = find_targets(w, target) ? list_trees(w, target, &most, &fewest) : NULL;
    if (!list) return NULL;
    const Scalar neutral = combine_identity(combine, f->dt);
    const int64_t table[2] = {f->targets, most};
    Builder b = build(g, 2, shape);
    const Expr *at[2] = {ex_var(x, 1), build_red(&b, most)};
    const Expr *tree = build_load(&b, graph_const(g, DT_i32, 2, table, list), at);
    const Expr *given = fewest < most ? ex_bin(x, EX_max, tree, ex_i(x, 0)) : tree;
    const Expr *to[2] = {ex_var(x, 0), f->targets == 1 && most == f->roots.n ? at[1] : given};
    const Expr *leaf = build_load(&b, leaves, to);
    const Expr *e = build_load(&b, place_weights(w, neutral), &leaf);
    if (fewest < most) e = ex_select(x, ex_le(x, ex_i(x, 0), tree), e, ex_const(x, f->dt, neutral));
    return build_reduce(&b, f->dt, combine, e, NULL);
}

/* The votes of all trees joined, [rows, targets]. A target without votes gets the neutral element.
 * The votes of a leaf are looked up by target where most leaves vote for most targets (as in a
 * forest of classifiers), and searched for it otherwise. */
static Value *join_votes(Walk *w, Value *leaves, Combine combine) {
    Graph *g = w->n->g;
    Exprs *x = w->n->x;
    const Forest *f = w->f;
    int32_t *number = ARENA_ARRAY(g->arena, f->nodes.n + 1, int32_t);
    int32_t *of_place = ARENA_ARRAY(g->arena, w->places.n + 1, int32_t);
    int most, count = number_leaves(w, number, of_place, &most);
    int64_t shape[2] = {leaves->dims[0], f->targets};
    if (!node_shape_ok(w->n, 2, shape)) return NULL;
    if (most == 1) {
        Value *joined = join_trees(w, leaves, combine);
        if (joined) return joined;
    }
    bool by_target = 2 * (int64_t)most >= f->targets;
    int64_t width = by_target ? f->targets : most, table[2] = {count, width};
    if (!node_shape_ok(w->n, 2, table)) return NULL;
    Scalar neutral = combine_identity(combine, f->dt);
    char *weight = arena_array(g->arena, (size_t)(count * width), dt_store(f->dt));
    int32_t *target = ARENA_ARRAY(g->arena, (size_t)(count * width), int32_t);
    int32_t *held = ARENA_ARRAY(g->arena, f->nodes.n + 1, int32_t);
    for (int64_t i = 0; i < count * width; i++) {
        dt_save(f->dt, weight, (size_t)i, neutral);
        target[i] = -1;
    }
    for (int i = 0; i < f->votes.n; i++) {
        const TreeVote *vote = &f->votes.items[i];
        int64_t at = (by_target ? vote->target : held[vote->leaf]++) + number[vote->leaf] * width;
        Scalar s = dt_cast(DT_f64, f->dt, (Scalar){.f = vote->weight});
        if (by_target && target[at] >= 0) { /* a second vote for the target */
            const Scalar both[2] = {dt_load(f->dt, weight, (size_t)at), s};
            s = ex_apply(combine_expr(combine), f->dt, f->dt, both);
        }
        dt_save(f->dt, weight, (size_t)at, s);
        target[at] = vote->target;
    }
    Value *weights = graph_const(g, f->dt, 2, table, weight);
    Builder b = build(g, 2, shape);
    const Expr *tree = build_red(&b, f->roots.n), *leaf_at[2] = {ex_var(x, 0), tree};
    const Expr *leaf = build_load(&b, leaves, leaf_at), *slot = ex_var(x, 1);
    if (!by_target) slot = build_red(&b, width);
    const Expr *numbered = build_load(&b, place_table(w, of_place), &leaf);
    const Expr *at[2] = {ex_cast(x, DT_i32, numbered), slot};
    const Expr *e = build_load(&b, weights, at);
    if (!by_target) {
        const Expr *own = build_load(&b, graph_const(g, DT_i32, 2, table, target), at);
        const Expr *hit = ex_bin(x, EX_eq, own, ex_var(x, 1));
        e = ex_select(x, hit, e, ex_const(x, f->dt, neutral));
    }
    return build_reduce(&b, f->dt, combine, e, NULL);
}

Value *tree_scores(Node *n, Forest *f, Value *v, TreeAggregate aggregate) {
    Walk w = {.n = n, .f = f, .v = v};
    if (!check_forest(n, f, v)) return NULL;
    set_tests(&w);
    lay_out(&w);
    Value *leaves = find_all_leaves(&w);
    Value *scores = leaves ? join_votes(&w, leaves, combine_of(aggregate)) : NULL;
    if (!scores || aggregate == AGGREGATE_sum) return scores;
    if (aggregate != AGGREGATE_average)
        return node_formula(n, "select(isinf(a), 0, a)", 1, &scores);
    return node_formula(n, arena_printf(n->g->arena, "a / %d", f->roots.n), 1, &scores);
}
