/* What a model declares of a node's outputs: value_info, graph outputs, and what follows from them.
 *
 * Where an output itself is not declared, but goes through elementwise operators (with nothing else
 * than single elements as other inputs) to one that is, its shape is the declared one too.
 * Exporters that unfold functions leave such gaps, and a shape computed at run time then still has
 * a declaration.
 */
#include "compiler/onnx/import_impl.h"

#include <string.h>

#define MAX_LOOKS 64 /* nodes that are looked at for one output */

static void fill_users(Import *im, Scope *s) {
    strmap_init(&s->users, im->arena);
    for (size_t i = 0; i < s->n_nodes; i++)
        for (size_t k = 0; k < s->nodes[i]->n_input; k++) {
            if (!*s->nodes[i]->input[k]) continue;
            void **slot = strmap_put(&s->users, s->nodes[i]->input[k]);
            User *user = ARENA_NEW(im->arena, User);
            *user = (User){*slot, s->nodes[i]};
            *slot = user;
        }
}

/* True if the operator computes element i of its result from element i of its inputs. */
static bool is_elementwise(const Import *im, const Onnx__NodeProto *node) {
    static const char *const others[] = {"Cast", "CastLike", "Clip", "Identity", "Pow"};
    const char *op = pb_text(node->op_type);
    if (*plain_domain(node->domain) || check_function(im, "", op, pb_text(node->overload)))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(op, others[i])) return true;
    const OpRow *row = check_op_row(&im->ops, "", op, INT32_MAX);
    return row && row->elementwise;
}

/* True if `name` is the one input that can decide the shape of a result of this rank. */
static bool decides(const Scope *s, const Onnx__NodeProto *node, const char *name, int rank) {
    bool like = !strcmp(pb_text(node->op_type), "CastLike");
    for (size_t i = 0; i < node->n_input; i++) {
        if (!strcmp(node->input[i], name)) {
            if (like && i > 0) return false;
            continue;
        }
        if (!*node->input[i] || like) continue;
        const Value *other = scope_value(s, node->input[i]);
        if (!other || value_numel(other) != 1 || (other->rank && other->rank >= rank)) return false;
    }
    return true;
}

/* What is asked of a declaration: all of a shape, or one dimension. */
typedef struct Wanted {
    bool varying; /* dimensions that vary will do */
    int axis;     /* -1: all */
    int rank;
    int64_t shape[MAX_TENSOR_RANK];
    const char *name; /* of the one dimension, where it has no extent */
} Wanted;

static bool has_extent(const Wanted *w, int k) {
    return w->shape[k] <= INT32_MAX &&
           (w->shape[k] >= 0 || (w->varying && dim_varies(w->shape[k])));
}

static bool says(const Import *im, const Onnx__TypeProto *type, Wanted *w) {
    if (!check_type_shape(im, type, &w->rank, w->shape)) return false;
    if (w->axis >= 0) {
        if (w->axis >= w->rank) return false;
        w->name = check_dim_name(type, w->axis);
        return has_extent(w, w->axis) || *w->name;
    }
    for (int k = 0; k < w->rank; k++)
        if (!has_extent(w, k)) return false;
    return true;
}

/* looks: how many more nodes may be looked at. */
static bool declared_behind(Import *im, Scope *s, const char *name, int *looks, Wanted *w) {
    const Onnx__ValueInfoProto *info = strmap_get(&s->declared, name);
    if (info && says(im, info->type, w)) return true;
    if (!s->users.arena) fill_users(im, s);
    for (const User *user = strmap_get(&s->users, name); user && *looks > 0; user = user->next) {
        const Onnx__NodeProto *node = user->node;
        --*looks;
        if (node->n_output < 1 || !*node->output[0] || !is_elementwise(im, node)) continue;
        if (declared_behind(im, s, node->output[0], looks, w) && decides(s, node, name, w->rank))
            return true;
    }
    return false;
}

bool node_declared_shape(const Node *n, int i, int *rank, int64_t *shape) {
    int looks = MAX_LOOKS;
    Wanted w = {.varying = n->varying, .axis = -1};
    if (!node_wants(n, i) || !declared_behind(n->im, n->scope, n->proto->output[i], &looks, &w))
        return false;
    *rank = w.rank;
    memcpy(shape, w.shape, sizeof(int64_t) * (size_t)w.rank);
    return true;
}

/* --- extents that depend on data -------------------------------------------------------------- */

bool node_declared_extent(const Node *n, int i, int axis, int64_t *extent, const char **name) {
    int looks = MAX_LOOKS;
    Wanted w = {.varying = n->varying, .axis = axis, .name = ""};
    bool found =
        node_wants(n, i) && declared_behind(n->im, n->scope, n->proto->output[i], &looks, &w);
    if (found && has_extent(&w, axis)) {
        *extent = w.shape[axis];
        return true;
    }
    *name = found && *w.name ? w.name
                             : arena_printf(n->g->arena, "%s.%d",
                                            node_wants(n, i) ? n->proto->output[i] : "", axis);
    return false;
}

static void no_extent(Node *n, const char *options) {
    invalid(n, E3004,
            "how many elements there are depends on run-time data, and the model does not say; "
            "give%s",
            options);
}

bool node_range(const Node *n, const char *name, int64_t *low, int64_t *high) {
    const DimOption *option = check_dim_option(n->im, name);
    if (!option) return false;
    *low = option->low;
    *high = option->value;
    return true;
}

int64_t node_most_extent(const Node *n, const char *name, int64_t most) {
    const DimOption *option = check_dim_option(n->im, name);
    return option ? option->value : most == -1 ? -1 : dim_max(n->x, most);
}

/* `count` as an i32 scalar in [low, high]. */
static Value *count_within(Graph *g, Value *count, int64_t low, int64_t high) {
    Exprs *x = g->x;
    Builder b = build(g, 0, NULL);
    const Expr *zeros[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) zeros[i] = ex_i(x, 0);
    const Expr *e = ex_cast(x, DT_i64, build_load(&b, count, zeros));
    e = ex_bin(x, EX_min, ex_bin(x, EX_max, e, ex_int(x, DT_i64, low)), ex_int(x, DT_i64, high));
    return build_map(&b, DT_i32, ex_cast(x, DT_i32, e));
}

void node_check_count(Node *n, Value *count, int64_t low, int64_t high) {
    Graph *g = n->g;
    Exprs *x = g->x;
    Builder b = build(g, 0, NULL);
    const Expr *zeros[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) zeros[i] = ex_i(x, 0);
    const Expr *e = ex_cast(x, DT_i64, build_load(&b, count, zeros));
    const Expr *least = ex_int(x, DT_i64, low), *most = ex_int(x, DT_i64, high);
    const Expr *outside = low == high ? ex_bin(x, EX_ne, e, least)
                                      : ex_bin(x, EX_or, ex_lt(x, e, least), ex_lt(x, most, e));
    graph_note_fault(g, build_map(&b, DT_bool, outside), "a computed extent is out of its range");
}

bool node_counted_extent(Node *n, Value *count, int64_t most, bool sure, const char *name,
                         int64_t *extent) {
    int n_ints;
    const int64_t *known =
        n->varying ? value_dims(n->g, count, &n_ints) : value_ints(n->g, count, &n_ints);
    if (known && n_ints == 1) {
        *extent = known[0];
        return true;
    }
    const DimOption *option = check_dim_option(n->im, name);
    int64_t low = option ? option->low : 0, high = node_most_extent(n, name, most);
    bool fits = sure && low <= 0 && most != -1 && high >= dim_max(n->x, most);
    if (low == high) {
        if (!fits) node_check_count(n, count, sure ? 0 : low, high);
        *extent = low;
        return true;
    }
    if (!n->varying || high < 0) {
        no_extent(n, arena_printf(n->g->arena, " --dim %s=LOW..HIGH", name));
        return false;
    }
    if (!fits) node_check_count(n, count, low, high);
    *extent = graph_symbol(n->g, count_within(n->g, count, low, high), low, high);
    if (*extent == -1) unsupported(n, "more than %d dimensions that vary", DIM_MAX_SYMBOLS);
    return !n->failed;
}

bool node_chosen_extent(Node *n, Value *count, int output, int axis, int64_t most, bool sure,
                        int64_t *extent) {
    int n_ints;
    const char *name;
    const int64_t *known = value_ints(n->g, count, &n_ints);
    if (!(known && n_ints == 1) && node_declared_extent(n, output, axis, extent, &name)) {
        node_check_count(n, count, sure ? 0 : *extent, *extent);
        return true;
    }
    return node_counted_extent(n, count, most, sure, known ? "" : name, extent);
}

bool node_counted_shape(Node *n, Value *counts, const int64_t *most, int *rank, int64_t *shape) {
    if (node_declared_shape(n, 0, rank, shape) && (counts->rank != 1 || counts->dims[0] == *rank)) {
        for (int k = 0; k < *rank && counts->rank == 1; k++) {
            int64_t start[1] = {k}, one[1] = {1};
            node_check_count(n, g_slice(n->g, counts, start, one, one), shape[k], shape[k]);
        }
        return true;
    }
    if (counts->rank != 1 || dim_varies(counts->dims[0]) || counts->dims[0] > MAX_TENSOR_RANK) {
        invalid(n, E3004, "how many dimensions there are depends on run-time data");
        return false;
    }
    *rank = (int)counts->dims[0];
    Text missing = text_new(n->g->arena);
    for (int k = 0; k < *rank; k++) {
        const char *name;
        int64_t start[1] = {k}, one[1] = {1};
        Value *count = g_slice(n->g, counts, start, one, one);
        int n_known;
        const int64_t *known = n->varying ? value_dims(n->g, count, &n_known) : NULL;
        if (known)
            shape[k] = known[0];
        else if (node_declared_extent(n, 0, k, &shape[k], &name)) {
            node_check_count(n, count, shape[k], shape[k]);
        } else if (!n->varying || node_most_extent(n, name, most ? most[k] : -1) < 0)
            text_addf(&missing, " --dim %s=LOW..HIGH", name);
        else if (!node_counted_extent(n, count, most ? most[k] : -1, false, name, &shape[k]))
            return false;
    }
    if (!missing.length) return true;
    no_extent(n, text_get(&missing));
    return false;
}
