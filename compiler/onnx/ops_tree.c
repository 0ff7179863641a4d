/* ai.onnx.ml: ensembles of trees.
 *
 * All trees lie in one table of nodes, leaves included. A leaf's two children are itself, so that a
 * loop over the depth of the deepest tree leads every row to its leaf in every tree: the state is
 * the node where each row is in each tree, and one step is a map. The votes of the leaves are then
 * summed.
 */
#include "compiler/onnx/ml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum Branch {
    BRANCH_leq,
    BRANCH_lt,
    BRANCH_gte,
    BRANCH_gt,
    BRANCH_eq,
    BRANCH_neq,
    BRANCH_member, /* in the attributes only: taken apart into a chain of eq */
    BRANCH_leaf
} Branch;

typedef struct TreeNode {
    int32_t feature;
    uint8_t branch;
    bool nan_is_true;
    double value;
    int32_t on_true, on_false; /* nodes */
} TreeNode;

typedef struct Vote {
    int32_t leaf; /* node */
    int32_t target;
    double weight;
} Vote;

typedef struct Forest {
    VEC(TreeNode) nodes;
    VEC(int32_t) roots;
    VEC(Vote) votes;
    int64_t targets;
    int64_t depth;
    DType dt; /* f32 or f64: of thresholds and weights */
} Forest;

typedef enum Aggregate { AGGREGATE_average, AGGREGATE_sum, AGGREGATE_min, AGGREGATE_max } Aggregate;

/* --- checking --------------------------------------------------------------------------------- */

/* Finds the depth. False after a report if a feature is none, or nodes are reached on two ways,
 * which a tree cannot have (and which would allow circles). */
static bool check_forest(Node *n, Forest *f, const Value *v) {
    Arena *arena = n->g->arena;
    int count = f->nodes.n, top = 0;
    char *seen = ARENA_ARRAY(arena, count + 1, char);
    int32_t *stack = ARENA_ARRAY(arena, count + 1, int32_t);
    int32_t *depth = ARENA_ARRAY(arena, count + 1, int32_t);
    f->depth = 0;
    for (int i = 0; i < count; i++) {
        const TreeNode *node = &f->nodes.items[i];
        int64_t features = dim_max(n->x, v->dims[1]);
        if (node->branch == BRANCH_leaf || (node->feature >= 0 && node->feature < features))
            continue;
        invalid(n, E2004, "a node tests feature %d of %lld", (int)node->feature,
                (long long)features);
        return false;
    }
    for (int t = 0; t < f->roots.n; t++) {
        stack[top++] = f->roots.items[t];
        depth[f->roots.items[t]] = 0;
        while (top) {
            int32_t at = stack[--top];
            const TreeNode *node = &f->nodes.items[at];
            if (depth[at] > f->depth) f->depth = depth[at];
            if (node->branch == BRANCH_leaf) continue;
            if (seen[at]++) {
                invalid(n, E2004, "the nodes form no trees: one is reached twice");
                return false;
            }
            const int32_t next[2] = {node->on_true, node->on_false};
            for (int k = 0; k < 2; k++) {
                /* two ways to a leaf are no harm, but it need not be looked at twice */
                bool leaf = f->nodes.items[next[k]].branch == BRANCH_leaf;
                if (leaf) {
                    if (depth[at] + 1 > f->depth) f->depth = depth[at] + 1;
                    continue;
                }
                if (top == count) {
                    invalid(n, E2004, "the nodes form no trees: one is reached twice");
                    return false;
                }
                depth[next[k]] = depth[at] + 1;
                stack[top++] = next[k];
            }
        }
    }
    return true;
}

/* --- walking ---------------------------------------------------------------------------------- */

/* A table with one number for each node, read by `get`. */
static Value *node_table(Graph *g, const Forest *f, DType dt, double (*get)(const TreeNode *)) {
    int64_t shape[1] = {f->nodes.n};
    char *data = arena_array(g->arena, (size_t)f->nodes.n + 1, dt_store(dt));
    for (int i = 0; i < f->nodes.n; i++) {
        Scalar s = {.f = get(&f->nodes.items[i])};
        dt_save(dt, data, (size_t)i, dt_cast(DT_f64, dt, s));
    }
    return graph_const(g, dt, 1, shape, data);
}

static double get_feature(const TreeNode *node) {
    return node->branch == BRANCH_leaf ? 0 : node->feature;
}
static double get_branch(const TreeNode *node) {
    return node->branch;
}
static double get_nan(const TreeNode *node) {
    return node->nan_is_true;
}
static double get_value(const TreeNode *node) {
    return node->value;
}
static double get_true(const TreeNode *node) {
    return node->on_true;
}
static double get_false(const TreeNode *node) {
    return node->on_false;
}

static const Expr *compare(Exprs *x, Branch branch, const Expr *a, const Expr *b) {
    switch (branch) {
    case BRANCH_lt:
        return ex_lt(x, a, b);
    case BRANCH_gte:
        return ex_le(x, b, a);
    case BRANCH_gt:
        return ex_lt(x, b, a);
    case BRANCH_eq:
        return ex_bin(x, EX_eq, a, b);
    case BRANCH_neq:
        return ex_bin(x, EX_ne, a, b);
    default:
        return ex_le(x, a, b);
    }
}

/* One step down, as the body of a loop. State: where each row is in each tree [rows, trees]. */
static Graph *step_down(Node *n, const Forest *f, const Value *v) {
    Graph *g = graph_new_sub(n->g);
    Exprs *x = n->x;
    int64_t shape[2] = {v->dims[0], f->roots.n};
    Value *where = graph_input(g, NULL, DT_i32, 2, shape);
    Value *rows = graph_input(g, NULL, v->dt, 2, v->dims);
    Builder b = build(g, 2, shape);
    const Expr *node = build_in(&b, where);
    const Expr *at[2] = {ex_var(x, 0),
                         build_load(&b, node_table(g, f, DT_i32, get_feature), &node)};
    DType wide = v->dt == DT_f64 || f->dt == DT_f64 ? DT_f64 : DT_f32;
    const Expr *given = ex_cast(x, wide, build_load(&b, rows, at));
    const Expr *value = ex_cast(x, wide, build_load(&b, node_table(g, f, f->dt, get_value), &node));
    /* tables of what the nodes differ in; mostly they do not */
    bool used[BRANCH_leaf + 1] = {false}, nan_matters = false;
    int kinds = 0;
    for (int i = 0; i < f->nodes.n; i++) {
        const TreeNode *t = &f->nodes.items[i];
        if (t->branch == BRANCH_leaf) continue;
        kinds += !used[t->branch];
        used[t->branch] = true;
        nan_matters |= t->nan_is_true;
    }
    const Expr *kind = NULL, *yes = NULL;
    if (kinds > 1) kind = build_load(&b, node_table(g, f, DT_i32, get_branch), &node);
    for (int k = 0; k < BRANCH_member; k++) {
        if (!used[k]) continue;
        const Expr *e = compare(x, (Branch)k, given, value);
        yes = yes ? ex_select(x, ex_bin(x, EX_eq, kind, ex_i(x, k)), e, yes) : e;
    }
    if (!yes) yes = ex_int(x, DT_bool, 1);
    if (nan_matters) {
        const Expr *on_nan = build_load(&b, node_table(g, f, DT_bool, get_nan), &node);
        yes = ex_bin(x, EX_or, yes, ex_and(x, ex_un(x, EX_isnan, given), on_nan));
    }
    const Expr *next = ex_select(x, yes, build_load(&b, node_table(g, f, DT_i32, get_true), &node),
                                 build_load(&b, node_table(g, f, DT_i32, get_false), &node));
    graph_output(g, build_map(&b, DT_i32, next), NULL);
    return g;
}

/* The leaf that each row reaches in each tree [rows, trees]. */
static Value *find_leaves(Node *n, const Forest *f, Value *v) {
    Graph *g = n->g;
    int64_t shape[2] = {v->dims[0], f->roots.n};
    if (!node_shape_ok(n, 2, shape)) return NULL;
    int32_t *roots = arena_copy(g->arena, f->roots.items, (size_t)f->roots.n * sizeof *roots);
    Value *in[2] = {g_expand(g, graph_const(g, DT_i32, 1, shape + 1, roots), 2, shape), v}, *out;
    if (f->depth == 0) return in[0];
    build_loop(g, step_down(n, f, v), f->depth, 1, 2, in, &out);
    return out;
}

/* --- votes ------------------------------------------------------------------------------------ */

static Combine combine_of(Aggregate aggregate) {
    return aggregate == AGGREGATE_min   ? COMBINE_min
           : aggregate == AGGREGATE_max ? COMBINE_max
                                        : COMBINE_sum;
}

/* Numbers the leaves that have votes, from 1 on in order of nodes; 0 is for nodes without. Sets
 * *most to the largest number of votes of a leaf. */
static int number_leaves(const Forest *f, int32_t *number, int32_t *held, int *most) {
    int count = 1;
    *most = 1;
    for (int i = 0; i < f->votes.n; i++) {
        int32_t leaf = f->votes.items[i].leaf;
        if (++held[leaf] > *most) *most = held[leaf];
    }
    for (int i = 0; i < f->nodes.n; i++) number[i] = held[i] ? count++ : 0;
    return count;
}

/* The votes of all trees joined, [rows, targets]. A target without votes gets the neutral element.
 * The votes of a leaf are looked up by target where most leaves vote for most targets (as in a
 * forest of classifiers), and searched for it otherwise. */
static Value *join_votes(Node *n, const Forest *f, Value *leaves, Combine combine) {
    Graph *g = n->g;
    Exprs *x = n->x;
    int32_t *number = ARENA_ARRAY(g->arena, f->nodes.n, int32_t);
    int32_t *held = ARENA_ARRAY(g->arena, f->nodes.n, int32_t);
    int most, count = number_leaves(f, number, held, &most);
    int64_t node_shape[1] = {f->nodes.n}, shape[2] = {leaves->dims[0], f->targets};
    bool by_target = 2 * (int64_t)most >= f->targets;
    int64_t width = by_target ? f->targets : most, table[2] = {count, width};
    if (!node_shape_ok(n, 2, shape) || !node_shape_ok(n, 2, table)) return NULL;
    Scalar neutral = combine_identity(combine, f->dt);
    char *weight = arena_array(g->arena, (size_t)(count * width), dt_store(f->dt));
    int32_t *target = ARENA_ARRAY(g->arena, (size_t)(count * width), int32_t);
    for (int64_t i = 0; i < count * width; i++) {
        dt_save(f->dt, weight, (size_t)i, neutral);
        target[i] = -1;
    }
    memset(held, 0, (size_t)f->nodes.n * sizeof *held);
    for (int i = 0; i < f->votes.n; i++) {
        const Vote *vote = &f->votes.items[i];
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
    Value *numbers = graph_const(g, DT_i32, 1, node_shape, number);
    Builder b = build(g, 2, shape);
    const Expr *tree = build_red(&b, f->roots.n), *leaf_at[2] = {ex_var(x, 0), tree};
    const Expr *leaf = build_load(&b, leaves, leaf_at), *slot = ex_var(x, 1);
    if (!by_target) slot = build_red(&b, width);
    const Expr *at[2] = {build_load(&b, numbers, &leaf), slot};
    const Expr *e = build_load(&b, weights, at);
    if (!by_target) {
        const Expr *own = build_load(&b, graph_const(g, DT_i32, 2, table, target), at);
        const Expr *hit = ex_bin(x, EX_eq, own, ex_var(x, 1));
        e = ex_select(x, hit, e, ex_const(x, f->dt, neutral));
    }
    return build_reduce(&b, f->dt, combine, e, NULL);
}

/* Base values, one for each target (or none), added. NULL after a report. */
static Value *add_base(Node *n, const Forest *f, Value *scores) {
    Graph *g = n->g;
    int count;
    Value *base;
    if (attr_has(n, "base_values_as_tensor")) {
        base = attr_tensor(n, "base_values_as_tensor");
    } else {
        const float *numbers = attr_floats(n, "base_values", &count);
        int64_t shape[1] = {count};
        if (n->failed) return NULL;
        if (!numbers || !count) return scores;
        base = ml_floats(g, numbers, 1, shape);
    }
    if (!base) return NULL;
    if (value_numel(base) == 0) return scores;
    if ((value_numel(base) != f->targets && value_numel(base) != 1) || !dt_is_float(base->dt)) {
        invalid(n, E2004, "%lld base values for %lld targets", (long long)value_numel(base),
                (long long)f->targets);
        return NULL;
    }
    int64_t shape[1] = {value_numel(base)};
    return g_bin(g, EX_add, scores, g_cast(g, g_reshape(g, base, 1, shape), scores->dt));
}

/* --- nodes with ids (TreeEnsembleClassifier, TreeEnsembleRegressor) --------------------------- */

/* Where the node with this id lies. */
typedef struct NodeId {
    int64_t tree, node;
    int32_t index;
} NodeId;

static int compare_ids(const void *a, const void *b) {
    const NodeId *p = a, *q = b;
    if (p->tree != q->tree) return p->tree < q->tree ? -1 : 1;
    return p->node < q->node ? -1 : p->node > q->node;
}

static int32_t find_id(const NodeId *ids, int count, int64_t tree, int64_t node) {
    NodeId key = {tree, node, 0};
    const NodeId *found = bsearch(&key, ids, (size_t)count, sizeof *ids, compare_ids);
    return found ? found->index : -1;
}

/* A list of numbers from an attribute of floats, or from its twin that is a tensor. *dt becomes f64
 * if they are. NULL after a report. */
static double *number_list(Node *n, const char *name, int want, DType *dt) {
    Arena *arena = n->g->arena;
    const char *twin = arena_printf(arena, "%s_as_tensor", name);
    double *list = ARENA_ARRAY(arena, want + 1, double);
    int count = 0;
    if (attr_has(n, twin)) {
        const Value *v = attr_tensor(n, twin);
        if (!v) return NULL;
        if (!dt_is_float(v->dt) || value_numel(v) != want) {
            invalid(n, E2004, "attribute '%s' must hold %d floats", twin, want);
            return NULL;
        }
        for (int i = 0; i < want; i++) list[i] = dt_load(v->dt, v->data, (size_t)i).f;
        if (v->dt == DT_f64) *dt = DT_f64;
        return list;
    }
    const float *given = attr_floats(n, name, &count);
    if (n->failed) return NULL;
    if (count != want) {
        invalid(n, E2004, "attribute '%s' has %d numbers, expected %d", name, count, want);
        return NULL;
    }
    for (int i = 0; i < want; i++) list[i] = (double)given[i];
    return list;
}

/* A list of `want` integers. NULL after a report. */
static const int64_t *int_list(Node *n, const char *name, int want) {
    int count;
    const int64_t *list = attr_ints(n, name, &count);
    if (list && count == want) return list;
    if (!n->failed)
        invalid(n, E2004, "attribute '%s' has %d numbers, expected %d", name, count, want);
    return NULL;
}

/* The nodes' modes; false after a report. */
static bool read_modes(Node *n, Forest *f, int count) {
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE", "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "",           "LEAF"};
    int given;
    const char *const *modes = attr_strs(n, "nodes_modes", &given);
    if (!modes || given != count) {
        if (!n->failed)
            invalid(n, E2004, "attribute 'nodes_modes' has %d names, expected %d", given, count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        int k = BRANCH_leaf;
        while (k >= 0 && strcmp(names[k], modes[i]) != 0) k--;
        if (k < 0 || k == BRANCH_member) {
            invalid(n, E2004, "a node has mode '%s'", modes[i]);
            return false;
        }
        f->nodes.items[i].branch = (uint8_t)k;
    }
    return true;
}

/* The nodes and roots of all trees. False after a report. ids: where the nodes are found by their
 * id. */
static bool read_nodes(Node *n, Forest *f, NodeId **ids) {
    Arena *arena = n->g->arena;
    int count, n_nan;
    const int64_t *tree = attr_ints(n, "nodes_treeids", &count);
    if (!tree || count < 1) {
        if (!n->failed) invalid(n, E2004, "attribute 'nodes_treeids' is missing");
        return false;
    }
    const int64_t *node = int_list(n, "nodes_nodeids", count);
    const int64_t *feature = int_list(n, "nodes_featureids", count);
    const int64_t *on_true = int_list(n, "nodes_truenodeids", count);
    const int64_t *on_false = int_list(n, "nodes_falsenodeids", count);
    const int64_t *nan = attr_ints(n, "nodes_missing_value_tracks_true", &n_nan);
    const double *value = number_list(n, "nodes_values", count, &f->dt);
    if (!node || !feature || !on_true || !on_false || !value || n->failed) return false;
    *ids = ARENA_ARRAY(arena, count, NodeId);
    for (int i = 0; i < count; i++) {
        TreeNode t = {.value = value[i], .nan_is_true = nan && i < n_nan && nan[i] >= 1};
        t.feature = feature[i] >= 0 && feature[i] <= INT32_MAX ? (int32_t)feature[i] : -1;
        vec_push(arena, &f->nodes, t);
        (*ids)[i] = (NodeId){tree[i], node[i], i};
    }
    qsort(*ids, (size_t)count, sizeof **ids, compare_ids);
    for (int i = 1; i < count; i++)
        if (!compare_ids(&(*ids)[i - 1], &(*ids)[i])) {
            invalid(n, E2004, "tree %lld has node %lld twice", (long long)(*ids)[i].tree,
                    (long long)(*ids)[i].node);
            return false;
        }
    if (!read_modes(n, f, count)) return false;
    for (int i = 0; i < count; i++) {
        TreeNode *t = &f->nodes.items[i];
        bool leaf = t->branch == BRANCH_leaf;
        t->on_true = leaf ? i : find_id(*ids, count, tree[i], on_true[i]);
        t->on_false = leaf ? i : find_id(*ids, count, tree[i], on_false[i]);
        if (t->on_true < 0 || t->on_false < 0) {
            invalid(n, E2004, "node %lld of tree %lld leads to a node that is not there",
                    (long long)node[i], (long long)tree[i]);
            return false;
        }
    }
    /* the first node of a tree is its root; sorted by tree, that is the least index */
    for (int i = 0; i < count;) {
        int32_t root = (*ids)[i].index;
        int64_t of = (*ids)[i].tree;
        for (; i < count && (*ids)[i].tree == of; i++)
            if ((*ids)[i].index < root) root = (*ids)[i].index;
        vec_push(arena, &f->roots, root);
    }
    return true;
}

/* Votes from the attributes <what>_treeids, _nodeids, _ids and _weights. False after a report. Of
 * several of a leaf for the only target the first counts, as in ONNX Runtime: skl2onnx gives so
 * many where it wants the number of the leaf. */
static bool read_votes(Node *n, Forest *f, const NodeId *ids, const char *what) {
    Arena *arena = n->g->arena;
    int count;
    bool *voted = ARENA_ARRAY(arena, f->nodes.n + 1, bool);
    const int64_t *tree = attr_ints(n, arena_printf(arena, "%s_treeids", what), &count);
    const int64_t *node = int_list(n, arena_printf(arena, "%s_nodeids", what), count);
    const int64_t *target = int_list(n, arena_printf(arena, "%s_ids", what), count);
    const double *weight = number_list(n, arena_printf(arena, "%s_weights", what), count, &f->dt);
    if (!tree || !node || !target || !weight || n->failed) {
        if (!n->failed) invalid(n, E2004, "attribute '%s_treeids' is missing", what);
        return false;
    }
    for (int i = 0; i < count; i++) {
        int32_t leaf = find_id(ids, f->nodes.n, tree[i], node[i]);
        if (leaf < 0 || target[i] < 0 || target[i] >= f->targets) {
            invalid(n, E2004, "a vote of node %lld of tree %lld for target %lld",
                    (long long)node[i], (long long)tree[i], (long long)target[i]);
            return false;
        }
        Vote vote = {leaf, (int32_t)target[i], weight[i]};
        if (f->targets > 1 || !voted[leaf]) vec_push(arena, &f->votes, vote);
        voted[leaf] = true;
    }
    return true;
}

static bool read_aggregate(Node *n, Aggregate *aggregate) {
    static const char *const names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    const char *name = attr_str(n, "aggregate_function", "SUM");
    if (n->failed) return false;
    for (int i = 0; i < 4; i++)
        if (!strcmp(names[i], name)) {
            *aggregate = (Aggregate)i;
            return true;
        }
    invalid(n, E2004, "aggregate_function '%s' is not known", name);
    return false;
}

/* The joined votes of a forest that was read, 0 for a target that got none; NULL after a report. */
static Value *run_forest(Node *n, Forest *f, Value *v, Aggregate aggregate) {
    if (!check_forest(n, f, v)) return NULL;
    Value *leaves = find_leaves(n, f, v);
    Value *scores = leaves ? join_votes(n, f, leaves, combine_of(aggregate)) : NULL;
    if (!scores || aggregate == AGGREGATE_sum) return scores;
    if (aggregate != AGGREGATE_average)
        return node_formula(n, "select(isinf(a), 0, a)", 1, &scores);
    return node_formula(n, arena_printf(n->g->arena, "a / %d", f->roots.n), 1, &scores);
}

void import_ml_tree_ensemble_regressor(Node *n) {
    Value *v = ml_rows(n);
    Forest f = {.dt = DT_f32, .targets = attr_int(n, "n_targets", 1)};
    NodeId *ids;
    Aggregate aggregate;
    MlTransform transform;
    if (!v || !read_aggregate(n, &aggregate) || !ml_read_transform(n, &transform)) return;
    if (f.targets < 1 || f.targets > INT32_MAX) {
        invalid(n, E2004, "n_targets is %lld", (long long)f.targets);
        return;
    }
    if (!read_nodes(n, &f, &ids) || !read_votes(n, &f, ids, "target")) return;
    Value *scores = run_forest(n, &f, v, aggregate);
    if (scores) scores = add_base(n, &f, scores);
    if (scores) scores = ml_transform(n, scores, transform);
    if (scores) n->out[0] = g_cast(n->g, scores, DT_f32);
}

/* Two classes of which only one gets votes. Votes for the first stand for the score of the second,
 * from which both scores come; votes for the second leave the first one's score as it is. The label
 * is the second one's from a score of one half on, or of 0 if votes may be negative. */
static void set_binary(Node *n, const Forest *f, Value *scores, int voted, MlTransform transform,
                       const MlLabels *labels) {
    Graph *g = n->g;
    bool positive = true;
    for (int i = 0; i < f->votes.n; i++) positive &= f->votes.items[i].weight >= 0;
    int64_t start[2] = {0, voted}, step[2] = {1, 1}, shape[2] = {scores->dims[0], 1};
    Value *score = g_slice(g, scores, start, step, shape);
    const char *formula = positive ? "select(a > 0.5, 1, 0)" : "select(a > 0, 1, 0)";
    Value *second = node_formula(n, formula, 1, &score);
    Value *both = voted ? ml_transform(n, scores, transform)
                        : ml_two_scores(n, score, positive ? ML_complement : ML_negated, transform);
    if (!second || !both) return;
    Value *position = g_reshape(g, g_cast(g, second, DT_i32), 1, shape);
    ml_set_labels(n, position, labels);
    n->out[1] = g_cast(g, both, DT_f32);
}

/* A single class: label 1 from a positive score on, else 0. */
static void set_single(Node *n, Value *scores, MlTransform transform) {
    static const int64_t labels[2] = {0, 1};
    Value *second = node_formula(n, "select(a > 0, 1, 0)", 1, &scores);
    Value *result = ml_transform(n, scores, transform);
    if (!second || !result) return;
    Value *position = g_reshape(n->g, g_cast(n->g, second, DT_i32), 1, scores->dims);
    ml_set_labels(n, position, &(MlLabels){.count = 2, .ints = labels});
    n->out[1] = g_cast(n->g, result, DT_f32);
}

void import_ml_tree_ensemble_classifier(Node *n) {
    Value *v = ml_rows(n);
    Forest f = {.dt = DT_f32};
    NodeId *ids;
    MlTransform transform;
    MlLabels labels;
    if (!v || !ml_read_transform(n, &transform)) return;
    if (!ml_read_labels(n, "classlabels_int64s", "classlabels_strings", &labels)) return;
    f.targets = labels.count;
    if (!read_nodes(n, &f, &ids) || !read_votes(n, &f, ids, "class")) return;
    Value *scores = run_forest(n, &f, v, AGGREGATE_sum);
    if (scores) scores = add_base(n, &f, scores);
    if (!scores) return;
    bool one = f.votes.n > 0;
    for (int i = 1; i < f.votes.n; i++) one &= f.votes.items[i].target == f.votes.items[0].target;
    if (one && labels.count == 2) {
        set_binary(n, &f, scores, f.votes.items[0].target, transform, &labels);
        return;
    }
    if (labels.count == 1) {
        if (!labels.ints) {
            unsupported(n, "a single label that is a string");
            return;
        }
        set_single(n, scores, transform);
        return;
    }
    ml_set_labels(n, ml_best(n->g, scores), &labels);
    scores = ml_transform(n, scores, transform);
    if (scores) n->out[1] = g_cast(n->g, scores, DT_f32);
}

/* --- TreeEnsemble ----------------------------------------------------------------------------- */

/* A list of floats from a tensor attribute. NULL if absent or after a report. */
static double *tensor_list(Node *n, const char *name, int *count, DType *dt) {
    *count = 0;
    if (!attr_has(n, name)) return NULL;
    const Value *v = attr_tensor(n, name);
    if (!v) return NULL;
    double *list = ARENA_ARRAY(n->g->arena, value_numel(v) + 1, double);
    *count = (int)value_numel(v);
    if (dt) *dt = v->dt;
    for (int i = 0; i < *count; i++)
        list[i] = dt_cast(v->dt, DT_f64, dt_load(v->dt, v->data, (size_t)i)).f;
    return list;
}

/* Adds eq nodes for all members of the next set but the first, which `at` becomes itself: each
 * leads on to the next. `next` is where in the list of members the set begins, and then ends. */
static bool chain_members(Node *n, Forest *f, int at, const double *members, int count, int *next) {
    TreeNode *node = &f->nodes.items[at];
    int32_t on_false = node->on_false, previous = at;
    node->branch = BRANCH_eq;
    if (*next >= count) {
        invalid(n, E2004, "membership_values has fewer sets than there are nodes that ask for one");
        return false;
    }
    bool first = true;
    for (; *next < count && members[*next] == members[*next]; ++*next, first = false) {
        if (first) {
            f->nodes.items[at].value = members[*next];
            continue;
        }
        TreeNode more = f->nodes.items[at];
        more.value = members[*next];
        f->nodes.items[previous].on_false = f->nodes.n;
        previous = f->nodes.n;
        more.on_false = on_false;
        vec_push(n->g->arena, &f->nodes, more);
    }
    if (first) { /* nothing is in an empty set */
        f->nodes.items[at].branch = BRANCH_lt;
        f->nodes.items[at].value = -(double)INFINITY;
    }
    ++*next;
    return true;
}

/* Interior nodes come first in the table, then the leaves. False after a report. */
static bool read_ensemble(Node *n, Forest *f) {
    Arena *arena = n->g->arena;
    int count, n_modes, n_splits, n_weights, n_members, n_roots, n_nan;
    const double *modes = tensor_list(n, "nodes_modes", &n_modes, NULL);
    const double *splits = tensor_list(n, "nodes_splits", &n_splits, &f->dt);
    const double *weights = tensor_list(n, "leaf_weights", &n_weights, NULL);
    const double *members = tensor_list(n, "membership_values", &n_members, NULL);
    const int64_t *roots = attr_ints(n, "tree_roots", &n_roots);
    const int64_t *nan = attr_ints(n, "nodes_missing_value_tracks_true", &n_nan);
    if (n->failed) return false;
    count = n_modes;
    if (!modes || !splits || !weights || !roots || n_splits != count || count < 1 || n_roots < 1) {
        invalid(n, E2004,
                "an attribute is missing or has another number of nodes than nodes_modes");
        return false;
    }
    const int64_t *feature = int_list(n, "nodes_featureids", count);
    const int64_t *child[2] = {int_list(n, "nodes_truenodeids", count),
                               int_list(n, "nodes_falsenodeids", count)};
    const int64_t *leaf[2] = {int_list(n, "nodes_trueleafs", count),
                              int_list(n, "nodes_falseleafs", count)};
    const int64_t *target = int_list(n, "leaf_targetids", n_weights);
    if (n->failed || !feature || !child[0] || !child[1] || !leaf[0] || !leaf[1] || !target)
        return false;
    if (f->dt != DT_f64) f->dt = DT_f32;
    for (int i = 0; i < count; i++) {
        TreeNode t = {.value = splits[i], .nan_is_true = nan && i < n_nan && nan[i] >= 1};
        t.feature = feature[i] >= 0 && feature[i] <= INT32_MAX ? (int32_t)feature[i] : -1;
        t.branch = modes[i] >= 0 && modes[i] <= BRANCH_member ? (uint8_t)modes[i] : BRANCH_leaf;
        int32_t next[2] = {-1, -1};
        for (int k = 0; k < 2; k++) {
            int64_t limit = leaf[k][i] ? n_weights : count;
            if (child[k][i] >= 0 && child[k][i] < limit)
                next[k] = (int32_t)(child[k][i] + (leaf[k][i] ? count : 0));
        }
        if (next[0] < 0 || next[1] < 0 || t.branch == BRANCH_leaf) {
            invalid(n, E2004, "node %d has an unknown mode, or leads to a node that is not there",
                    i);
            return false;
        }
        t.on_true = next[0], t.on_false = next[1];
        vec_push(arena, &f->nodes, t);
    }
    for (int i = 0; i < n_weights; i++) {
        TreeNode t = {.branch = BRANCH_leaf, .on_true = count + i, .on_false = count + i};
        Vote vote = {count + i, 0, weights[i]};
        if (target[i] < 0 || target[i] >= f->targets) {
            invalid(n, E2004, "leaf %d is for target %lld", i, (long long)target[i]);
            return false;
        }
        vote.target = (int32_t)target[i];
        vec_push(arena, &f->nodes, t);
        vec_push(arena, &f->votes, vote);
    }
    for (int i = 0; i < n_roots; i++) {
        if (roots[i] < 0 || roots[i] >= count) {
            invalid(n, E2004, "tree %d begins at node %lld", i, (long long)roots[i]);
            return false;
        }
        vec_push(arena, &f->roots, (int32_t)roots[i]);
    }
    for (int i = 0, next = 0; i < count; i++)
        if (f->nodes.items[i].branch == BRANCH_member &&
            !chain_members(n, f, i, members, n_members, &next))
            return false;
    return true;
}

void import_ml_tree_ensemble(Node *n) {
    Value *v = ml_rows(n);
    if (!v) return;
    Forest f = {.dt = DT_f32, .targets = attr_int(n, "n_targets", 1)};
    int64_t aggregate = attr_int(n, "aggregate_function", 1);
    int64_t transform = attr_int(n, "post_transform", 0);
    if (n->failed) return;
    if (aggregate < 0 || aggregate > AGGREGATE_max || transform < 0 || transform > ML_probit ||
        f.targets < 1 || f.targets > INT32_MAX) {
        invalid(n, E2004, "aggregate_function, post_transform or n_targets is not known");
        return;
    }
    if (!read_ensemble(n, &f)) return;
    Value *scores = run_forest(n, &f, v, (Aggregate)aggregate);
    if (scores) scores = ml_transform(n, scores, (MlTransform)transform);
    if (scores) n->out[0] = g_cast(n->g, scores, n->in[0]->dt);
}
