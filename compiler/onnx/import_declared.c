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

/* looks: how many more nodes may be looked at. */
static bool declared_behind(Import *im, Scope *s, const char *name, int *looks, int *rank,
                            int64_t *shape) {
    const Onnx__ValueInfoProto *info = strmap_get(&s->declared, name);
    if (info && check_type_shape(im, info->type, rank, shape)) {
        bool fixed = true;
        for (int k = 0; k < *rank; k++) fixed &= shape[k] >= 0 && shape[k] <= INT32_MAX;
        if (fixed) return true;
    }
    if (!s->users.arena) fill_users(im, s);
    for (const User *user = strmap_get(&s->users, name); user && *looks > 0; user = user->next) {
        const Onnx__NodeProto *node = user->node;
        --*looks;
        if (node->n_output < 1 || !*node->output[0] || !is_elementwise(im, node)) continue;
        if (declared_behind(im, s, node->output[0], looks, rank, shape) &&
            decides(s, node, name, *rank))
            return true;
    }
    return false;
}

bool node_declared_shape(const Node *n, int i, int *rank, int64_t *shape) {
    int looks = MAX_LOOKS;
    return node_wants(n, i) &&
           declared_behind(n->im, n->scope, n->proto->output[i], &looks, rank, shape);
}

bool node_chosen_extent(const Node *n, const Value *count, int output, int axis, int64_t *extent) {
    int rank, n_ints;
    int64_t shape[MAX_TENSOR_RANK];
    const int64_t *known = value_ints(n->g, count, &n_ints);
    if (known && n_ints == 1) {
        *extent = known[0];
        return true;
    }
    if (!node_declared_shape(n, output, &rank, shape) || axis >= rank) return false;
    *extent = shape[axis];
    return true;
}

void node_no_extent(Node *n) {
    invalid(n, E3004,
            "how many elements there are depends on run-time data, and the model declares no "
            "fixed shape for the result");
}
