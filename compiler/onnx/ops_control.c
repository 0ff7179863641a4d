/* Loop and Scan: repeat.h at work. (If is in ops_if.c.) */
#include "compiler/onnx/repeat.h"

#include <string.h>

/* --- Loop ------------------------------------------------------------------------------------- */

/* The greatest number of iterations; INT64_MAX if nothing tells. */
static int64_t loop_bound(Repeat *r, Value *count) {
    Node *n = r->n;
    int64_t trips = INT64_MAX, known;
    int n_dims, first = 0;
    if (count && const_scalar(count, &known)) {
        trips = known;
    } else if (count) {
        const int64_t *dims = value_dims(n->g, count, &n_dims);
        if (dims) return dim_larger(n->x, dims[0], 0);
        r->limit = count;
    }
    while (first < n->n_out - 1 && !node_wants(n, first)) first++;
    r->bound_name = arena_printf(n->g->arena, "%s.trips", n->n_out ? n->proto->output[first] : "");
    if (trips <= INT32_MAX) return trips;
    for (int i = 0; i < r->n_rows; i++) {
        int64_t extent;
        const char *name;
        if (!node_wants(n, r->n_state + i)) continue;
        if (!node_declared_extent(n, r->n_state + i, 0, &extent, &name))
            extent = node_most_extent(n, name, -1);
        r->bounded = extent >= 0 || dim_varies(extent);
        if (r->bounded) return extent;
        r->bound_name = name;
    }
    known = node_most_extent(n, r->bound_name, -1);
    r->bounded = known >= 0;
    return r->bounded ? known : trips;
}

typedef struct Found {
    const Exprs *x;
    bool any;
} Found;

static void note_found(void *user, const Expr *e) {
    Found *f = user;
    if (e->op == EX_var && e->k.i >= DIM_VAR)
        f->any |= !dim_symbol_range(f->x, (int)e->k.i - DIM_VAR).name;
}

/* Does the extent follow from what a run computes, not from the inputs' extents alone? */
static bool found_in_run(Graph *g, int64_t extent) {
    Found f = {.x = g->x};
    if (dim_varies(extent)) ex_visit(g->arena, dim_expr(g->x, extent), note_found, &f);
    return f.any;
}

/* Output i with the extents that the model fixes, where a run finds those of `e`: they must be the
 * same. */
static Entity *as_declared(Node *n, int i, Entity *e) {
    if (e->kind != ENTITY_tensor) return e;
    Value *v = e->tensor;
    int64_t dims[MAX_RANK];
    bool fixed = false;
    for (int k = 0; k < v->rank; k++) {
        const char *name;
        int64_t extent;
        dims[k] = v->dims[k];
        if (!found_in_run(n->g, dims[k]) || !node_declared_extent(n, i, k, &extent, &name) ||
            dim_varies(extent))
            continue;
        node_check_count(n, g_dim(n->g, DT_i64, dims[k]), extent, extent);
        dims[k] = extent;
        fixed = true;
    }
    return fixed ? entity_tensor(n->im, in_room(n->g, v, dims)) : e;
}

void import_loop(Node *n) {
    Graph *g = n->g;
    Repeat r = {.n = n, .body = attr_graph(n, "body"), .is_loop = true};
    if (!r.body) {
        if (!n->failed) invalid(n, E2004, "attribute 'body' is missing");
        return;
    }
    r.n_state = n->n_in > 2 ? n->n_in - 2 : 0;
    r.n_rows = (int)r.body->n_output - 1 - r.n_state;
    if ((int)r.body->n_input != r.n_state + 2 || r.n_rows < 0 || n->n_out > r.n_state + r.n_rows) {
        invalid(n, E2007, "the body has %zu inputs and %zu outputs, the node %d and %d",
                r.body->n_input, r.body->n_output, n->n_in, n->n_out);
        return;
    }
    r.state = ARENA_ARRAY(g->arena, r.n_state + 1, Entity *);
    for (int i = 0; i < r.n_state; i++) {
        r.state[i] = n->entity[i + 2];
        if (r.state[i]) continue;
        node_need(n, i + 2);
        return;
    }
    Value *count = as_scalar(n, node_in(n, 0), "the number of iterations");
    r.alive = as_condition(n, node_in(n, 1));
    if (n->failed) return;
    r.trips = loop_bound(&r, count);
    if (r.limit) repeat_limit(&r, r.limit);
    if (!repeat_all(&r)) return;
    if (r.bounded && !r.stopped)
        graph_note_fault(g, r.alive ? r.alive : g_scalar(g, DT_bool, 1), "too many iterations");
    for (int i = 0; i < r.n_rows && r.n_state + i < n->n_out; i++)
        n->out[r.n_state + i] = repeat_stacked(&r, i);
    for (int i = 0; i < r.n_state; i++) {
        Entity *e = repeat_state(&r, i);
        if (!e) return;
        set_output(n, i, as_declared(n, i, e));
    }
}

/* --- Scan ------------------------------------------------------------------------------------- */

/* Attributes of Scan, one number for each input or output that is scanned; zeros where absent. */
static const int64_t *scan_list(Node *n, const char *name, int want) {
    int count;
    const int64_t *given = attr_ints(n, name, &count);
    if (!given) return ARENA_ARRAY(n->g->arena, want + 1, int64_t);
    if (count == want) return given;
    invalid(n, E2004, "attribute '%s' has %d numbers, expected %d", name, count, want);
    return NULL;
}

/* Sets r->trips to the common extent. */
static bool scan_slices(Repeat *r, const int64_t *axes, const int64_t *directions) {
    Node *n = r->n;
    r->axis = ARENA_ARRAY(n->g->arena, r->n_slices + 1, int);
    r->backward = ARENA_ARRAY(n->g->arena, r->n_slices + 1, bool);
    for (int i = 0; i < r->n_slices; i++) {
        Value *v = r->sliced[i];
        r->axis[i] = node_axis(n, axes[i], v->rank);
        r->backward[i] = directions[i] != 0;
        if (r->axis[i] < 0) return false;
        int64_t extent = v->dims[r->axis[i]];
        if (i && !dim_meets(n->x, extent, r->trips)) {
            invalid(n, E2005, "scanned inputs have extents %lld and %lld", (long long)r->trips,
                    (long long)extent);
            return false;
        }
        r->trips = i ? dim_smaller(n->x, r->trips, extent) : extent;
    }
    return true;
}

/* Stacked output i with its rows in the order and along the axis that are asked for. */
static Value *scan_output(Repeat *r, int i, int64_t axis, bool backward) {
    Graph *g = r->n->g;
    Value *v = repeat_stacked(r, i);
    if (!v) return NULL;
    int to = node_axis(r->n, axis, v->rank);
    if (to < 0) return NULL;
    if (backward && v->dims[0] != 0) {
        int64_t start[MAX_RANK] = {v->dims[0] - 1}, step[MAX_RANK] = {-1};
        for (int k = 1; k < v->rank; k++) step[k] = 1;
        v = g_slice(g, v, start, step, v->dims);
    }
    int perm[MAX_RANK];
    for (int k = 0; k < v->rank; k++) perm[k] = k < to ? k + 1 : k == to ? 0 : k;
    return to ? g_transpose(g, v, perm) : v;
}

/* Before version 9: a batch in dimension 0 of everything, the sequence in dimension 1, and lengths
 * of the batch's sequences as an optional first input. */
static void scan_batches(Node *n, Repeat *all, const int64_t *directions) {
    Graph *g = n->g;
    Value *lengths = node_in(n, 0);
    int n_in = all->n_state + all->n_slices, n_out = all->n_state + all->n_rows;
    int64_t found = node_in(n, 1) && node_in(n, 1)->rank ? node_in(n, 1)->dims[0] : 0;
    int64_t batches = dim_max(n->x, found); /* those beyond the batch are cut off in the end */
    for (int i = 0; i < n_in; i++) {
        const Value *v = node_need(n, i + 1);
        if (!v) return;
        if (v->rank < (i < all->n_state ? 1 : 2) || !dim_meets(n->x, v->dims[0], found)) {
            invalid(n, E2005, "input %d has no batch of %s", i + 1, dim_text(n->x, found));
            return;
        }
    }
    if (lengths && (lengths->rank != 1 || !dim_meets(n->x, lengths->dims[0], found))) {
        invalid(n, E2005, "sequence_lens must have one number for each of the batch");
        return;
    }
    if (batches < 1 || batches > MAX_UNROLL) {
        unsupported(n, "a batch of %s; from 1 to %d are supported", dim_text(n->x, found),
                    MAX_UNROLL);
        return;
    }
    Value **part = ARENA_ARRAY(g->arena, n_out * batches + 1, Value *);
    const int64_t *axes = ARENA_ARRAY(g->arena, all->n_slices + 1, int64_t);
    for (int64_t b = 0; b < batches; b++) {
        Repeat r = *all;
        const Expr *at = ex_i(g->x, b);
        r.state = ARENA_ARRAY(g->arena, r.n_state + 1, Entity *);
        r.sliced = ARENA_ARRAY(g->arena, r.n_slices + 1, Value *);
        for (int i = 0; i < r.n_state; i++)
            r.state[i] = entity_tensor(n->im, take_slice(g, n->in[i + 1], 0, at));
        for (int i = 0; i < r.n_slices; i++)
            r.sliced[i] = take_slice(g, n->in[r.n_state + i + 1], 0, at);
        if (!scan_slices(&r, axes, directions)) return;
        if (lengths) {
            repeat_limit(&r, g_cast(g, take_slice(g, lengths, 0, at), DT_i64));
            r.zero_rows = true;
        }
        if (!repeat_all(&r)) return;
        for (int i = 0; i < n_out; i++) {
            Value *v = i < r.n_state ? r.state[i]->tensor : repeat_stacked(&r, i - r.n_state);
            if (!v) return;
            int64_t shape[MAX_RANK + 1] = {1};
            for (int k = 0; k < v->rank; k++) shape[k + 1] = v->dims[k];
            if (!node_shape_ok(n, v->rank + 1, shape)) return;
            v = g_reshape(g, v, v->rank + 1, shape);
            const Value *first = b ? part[i * batches] : v;
            if (!dims_meet(n->x, first->rank, first->dims, v->rank, v->dims)) {
                invalid(n, E2005, "output %d has shapes %s and %s for two of the batch", i,
                        dims_text(n->x, first->rank, first->dims),
                        dims_text(n->x, v->rank, v->dims));
                return;
            }
            part[i * batches + b] = in_room(g, v, first->dims);
        }
    }
    for (int i = 0; i < n_out && i < n->n_out; i++)
        n->out[i] = first_rows(g, g_concat(g, (int)batches, part + i * batches, 0), found);
}

void import_scan(Node *n) {
    Graph *g = n->g;
    Repeat r = {.n = n, .body = attr_graph(n, "body")};
    int skip = n->version < 9 ? 1 : 0; /* sequence_lens */
    int64_t n_slices = attr_int(n, "num_scan_inputs", 0);
    if (!r.body || n->failed) {
        if (!n->failed) invalid(n, E2004, "attribute 'body' is missing");
        return;
    }
    if (n_slices < 1 || n_slices > n->n_in - skip) {
        invalid(n, E2004, "attribute 'num_scan_inputs' is %lld for %d inputs", (long long)n_slices,
                n->n_in);
        return;
    }
    r.n_slices = (int)n_slices;
    r.n_state = n->n_in - skip - r.n_slices;
    r.n_rows = (int)r.body->n_output - r.n_state;
    if ((int)r.body->n_input != n->n_in - skip || r.n_rows < 0 || n->n_out > r.n_state + r.n_rows) {
        invalid(n, E2007, "the body has %zu inputs and %zu outputs, the node %d and %d",
                r.body->n_input, r.body->n_output, n->n_in, n->n_out);
        return;
    }
    if (skip) {
        const int64_t *directions = scan_list(n, "directions", r.n_slices);
        if (directions) scan_batches(n, &r, directions);
        return;
    }
    const int64_t *axes = scan_list(n, "scan_input_axes", r.n_slices),
                  *directions = scan_list(n, "scan_input_directions", r.n_slices),
                  *out_axes = scan_list(n, "scan_output_axes", r.n_rows),
                  *out_directions = scan_list(n, "scan_output_directions", r.n_rows);
    if (!axes || !directions || !out_axes || !out_directions || n->failed) return;
    r.state = ARENA_ARRAY(g->arena, r.n_state + 1, Entity *);
    r.sliced = ARENA_ARRAY(g->arena, r.n_slices + 1, Value *);
    for (int i = 0; i < n->n_in; i++) {
        Value *v = node_need(n, i);
        if (!v) return;
        if (i < r.n_state)
            r.state[i] = entity_tensor(n->im, v);
        else
            r.sliced[i - r.n_state] = v;
    }
    if (!scan_slices(&r, axes, directions) || !repeat_all(&r)) return;
    for (int i = 0; i < r.n_state; i++) set_output(n, i, as_declared(n, i, r.state[i]));
    for (int i = 0; i < r.n_rows && r.n_state + i < n->n_out; i++)
        n->out[r.n_state + i] = scan_output(&r, i, out_axes[i], out_directions[i] != 0);
}
