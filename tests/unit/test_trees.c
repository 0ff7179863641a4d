/* Random ensembles of trees beside a walk that follows ONNX's words: all tests, sets, numbers that
 * are none or infinite, votes for one target and for many. */
#include "tests/unit/model_rows.h"

#include <math.h>

enum { FEATURES = 3, ROWS = 9, MOST_NODES = 400, CASES = 300 };

typedef struct Tree {
    int n, leaves, members, roots; /* of all trees */
    int mode[MOST_NODES], feature[MOST_NODES], nan_is_true[MOST_NODES];
    int next[2][MOST_NODES], leaf[2][MOST_NODES]; /* false, true */
    double split[MOST_NODES], member[4 * MOST_NODES], weight[MOST_NODES];
    int set[MOST_NODES]; /* member: the first of its set, which a NaN ends */
    int target[MOST_NODES], root[MOST_NODES];
    bool wide; /* numbers that f32 has not */
} Tree;

/* xorshift: Marsaglia, "Xorshift RNGs", 2003 */
static uint32_t below(uint32_t *seed, uint32_t n) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed % n;
}

static double number(uint32_t *seed, bool wide) {
    static const double special[] = {INFINITY, -INFINITY, NAN, 0.1, -0.1, 3e38, -3e38, 0.0};
    uint32_t k = below(seed, 24);
    if (k >= 8) return (double)k - 16;
    return wide ? special[k] : (double)(float)special[k];
}

static void add_tree(Tree *t, uint32_t *seed, int height, int target, int targets) {
    int at = t->n++;
    t->mode[at] = (int)below(seed, 7);
    t->feature[at] = (int)below(seed, FEATURES);
    t->nan_is_true[at] = (int)below(seed, 2);
    t->split[at] = number(seed, t->wide);
    if (t->mode[at] == 6) {
        t->set[at] = t->members;
        for (int i = (int)below(seed, 4); i > 0; i--) {
            double m = number(seed, t->wide);
            if (m == m) t->member[t->members++] = m;
        }
        t->member[t->members++] = NAN;
    }
    for (int k = 1; k >= 0; k--) {
        t->leaf[k][at] = height == 1 || below(seed, 4) == 0 || t->n > MOST_NODES - 20;
        t->next[k][at] = t->leaf[k][at] ? t->leaves : t->n;
        if (t->leaf[k][at]) {
            t->target[t->leaves] = target >= 0 ? target : (int)below(seed, (uint32_t)targets);
            t->weight[t->leaves++] = (double)below(seed, 64) - 32;
        } else {
            add_tree(t, seed, height - 1, target, targets);
        }
    }
}

static bool holds(const Tree *t, int at, double x) {
    bool found = false;
    for (int i = t->set[at]; t->mode[at] == 6 && t->member[i] == t->member[i]; i++)
        found |= x == t->member[i];
    const bool is[] = {x <= t->split[at], x<t->split[at], x >= t->split[at], x> t->split[at],
                       x == t->split[at], x != t->split[at], found};
    return is[t->mode[at]] || (x != x && t->nan_is_true[at]);
}

static void add_ints(Text *text, const char *name, int n, const int *values) {
    text_addf(text, " %s=[", name);
    for (int i = 0; i < n; i++) text_addf(text, "%s%d", i ? " " : "", values[i]);
    text_add(text, "]");
}

static void add_floats(Text *text, const char *name, const char *dt, int n, const double *values) {
    text_addf(text, " %s=%s[%d](", name, dt, n);
    for (int i = 0; i < n; i++) text_addf(text, "%s%.17g", i ? " " : "", values[i]);
    text_add(text, ")");
}

static void test_random(void **state) {
    Bench *b = *state;
    for (uint32_t i = 1; i <= CASES; i++) {
        uint32_t seed = i * 2654435761u;
        const int targets = 1 + (int)below(&seed, 4), aggregate = (int)below(&seed, 4);
        const bool wide_x = below(&seed, 3) == 0, one_target = below(&seed, 2);
        Tree *t = ARENA_NEW(&b->arena, Tree);
        t->wide = wide_x || below(&seed, 3) == 0;
        const int trees = 1 + (int)below(&seed, 12);
        for (int k = 0; k < trees && t->n < MOST_NODES - 40; k++) {
            t->root[t->roots++] = t->n;
            add_tree(t, &seed, 1 + (int)below(&seed, 6), one_target ? k % targets : -1, targets);
        }
        const char *dt = t->wide ? "f64" : "f32";
        Text text = text_new(&b->arena), x = text_new(&b->arena), want = text_new(&b->arena);
        text_addf(&text,
                  "opset 18 opset ai.onnx.ml 5 input x %s[%d,%d] output y "
                  "y = ai.onnx.ml:TreeEnsemble(x) {n_targets=%d aggregate_function=%d",
                  wide_x ? "f64" : "f32", ROWS, FEATURES, targets, aggregate);
        add_ints(&text, "tree_roots", t->roots, t->root);
        add_ints(&text, "nodes_featureids", t->n, t->feature);
        add_ints(&text, "nodes_truenodeids", t->n, t->next[1]);
        add_ints(&text, "nodes_falsenodeids", t->n, t->next[0]);
        add_ints(&text, "nodes_trueleafs", t->n, t->leaf[1]);
        add_ints(&text, "nodes_falseleafs", t->n, t->leaf[0]);
        add_ints(&text, "nodes_missing_value_tracks_true", t->n, t->nan_is_true);
        add_ints(&text, "leaf_targetids", t->leaves, t->target);
        text_addf(&text, " nodes_modes=u8[%d](", t->n);
        for (int k = 0; k < t->n; k++) text_addf(&text, "%s%d", k ? " " : "", t->mode[k]);
        text_add(&text, ")");
        add_floats(&text, "nodes_splits", dt, t->n, t->split);
        add_floats(&text, "leaf_weights", dt, t->leaves, t->weight);
        if (t->members) add_floats(&text, "membership_values", dt, t->members, t->member);
        text_add(&text, "}");

        text_addf(&want, "%s[%d, %d]", wide_x ? "f64" : "f32", ROWS, targets);
        for (int row = 0; row < ROWS; row++) {
            double given[FEATURES], score[4] = {0};
            bool voted[4] = {false};
            for (int k = 0; k < FEATURES; k++) {
                given[k] = number(&seed, wide_x);
                text_addf(&x, "%s%.17g", row + k ? " " : "", given[k]);
            }
            for (int k = 0; k < t->roots; k++) {
                int at = t->root[k];
                bool leaf = false;
                while (!leaf) {
                    const int to = holds(t, at, given[t->feature[at]]);
                    leaf = t->leaf[to][at];
                    at = t->next[to][at];
                }
                double *s = &score[t->target[at]];
                bool *first = &voted[t->target[at]];
                if (aggregate < 2) *s += t->weight[at];
                if (aggregate == 2 && (!*first || t->weight[at] < *s)) *s = t->weight[at];
                if (aggregate == 3 && (!*first || t->weight[at] > *s)) *s = t->weight[at];
                *first = true;
            }
            for (int k = 0; k < targets; k++)
                text_addf(&want, " %g", aggregate == 0 ? score[k] / t->roots : score[k]);
        }
        const char *inputs[1] = {text_get(&x)};
        const char *got = run_text(b, text_get(&text), NULL, 1, inputs);
        if (strcmp(got, text_get(&want)) != 0)
            fail_msg("case %d: %s\n%s\n%s: not\n%s", (int)i, text_get(&text), inputs[0], got,
                     text_get(&want));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, set_up, tear_down)};
    return cmocka_run_group_tests_name("trees", tests, NULL, NULL);
}
