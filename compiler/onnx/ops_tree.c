/* ai.onnx.ml: ensembles of trees, as they are read; tree.c runs them. */
#include "compiler/onnx/ml.h"
#include "compiler/onnx/tree.h"

#include <stdlib.h>
#include <string.h>

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
        TreeVote vote = {leaf, (int32_t)target[i], weight[i]};
        if (f->targets > 1 || !voted[leaf]) vec_push(arena, &f->votes, vote);
        voted[leaf] = true;
    }
    return true;
}

static bool read_aggregate(Node *n, TreeAggregate *aggregate) {
    int i = attr_choice(n, "aggregate_function", 1, "AVERAGE SUM MIN MAX");
    *aggregate = (TreeAggregate)i;
    return i >= 0;
}

void import_ml_tree_ensemble_regressor(Node *n) {
    Value *v = ml_rows(n);
    Forest f = {.dt = DT_f32, .targets = attr_int(n, "n_targets", 1)};
    NodeId *ids;
    TreeAggregate aggregate;
    MlTransform transform;
    if (!v || !read_aggregate(n, &aggregate) || !ml_read_transform(n, &transform)) return;
    if (f.targets < 1 || f.targets > INT32_MAX) {
        invalid(n, E2004, "n_targets is %lld", (long long)f.targets);
        return;
    }
    if (!read_nodes(n, &f, &ids) || !read_votes(n, &f, ids, "target")) return;
    Value *scores = tree_scores(n, &f, v, aggregate);
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
    Value *scores = tree_scores(n, &f, v, AGGREGATE_sum);
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

/* Gives a node its set: the numbers from *next on to the next that is none. False after a report.
 */
static bool read_members(Node *n, Forest *f, TreeNode *node, const double *given, int count,
                         int *next) {
    if (*next >= count) {
        invalid(n, E2004, "membership_values has fewer sets than there are nodes that ask for one");
        return false;
    }
    node->members = f->members.n;
    for (; *next < count && given[*next] == given[*next]; ++*next)
        vec_push(n->g->arena, &f->members, given[*next]);
    node->n_members = f->members.n - node->members;
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
        TreeVote vote = {count + i, 0, weights[i]};
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
            !read_members(n, f, &f->nodes.items[i], members, n_members, &next))
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
    Value *scores = tree_scores(n, &f, v, (TreeAggregate)aggregate);
    if (scores) scores = ml_transform(n, scores, (MlTransform)transform);
    if (scores) n->out[0] = g_cast(n->g, scores, n->in[0]->dt);
}
