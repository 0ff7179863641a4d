/* Reading and writing at indices: the Gather and Scatter families, ReverseSequence,
 * TfIdfVectorizer. How indices are kept inside their tensors is index.h.
 */
#include "compiler/onnx/index.h"
#include "compiler/onnx/text.h"

#include <string.h>

/* --- indices ---------------------------------------------------------------------------------- */

bool index_type_ok(Node *n, const Value *indices) {
    if (dt_is_int(indices->dt)) return true;
    invalid(n, E2006, "indices must be integers, not %s", dt_name(indices->dt));
    return false;
}

/* True if all elements are known and in [low, high). */
static bool known_within(const Value *v, int64_t low, int64_t high) {
    if (!value_is_const(v)) return false;
    int64_t count = value_numel(v);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = dt_load(v->dt, v->data, (size_t)i).i;
        if (k < low || k >= high) return false;
    }
    return true;
}

/* The element, counted from the end if negative, brought into [low, high]; i32. */
static const Expr *wrapped(Builder *b, Value *v, const Expr *const *at, int64_t extent, int64_t low,
                           int64_t high) {
    Exprs *x = b->x;
    bool small = dt_store(v->dt) <= 4 && v->dt != DT_u32;
    DType work = small ? DT_i32 : DT_i64;
    const Expr *e = ex_cast(x, work, build_load(b, v, at));
    if (known_within(v, 0, dim_min(x, extent))) return ex_cast(x, DT_i32, e);
    if (dt_kind(v->dt) == DK_sint)
        e = ex_select(x, ex_lt(x, e, ex_int(x, work, 0)), ex_add(x, e, ex_int(x, work, extent)), e);
    if (dim_varies(extent) || !known_within(v, -extent, extent)) {
        e = ex_bin(x, EX_min, e, ex_int(x, work, high));
        e = ex_bin(x, EX_max, e, ex_int(x, work, low)); /* the last: an extent may come to 0 */
    }
    return ex_cast(x, DT_i32, e);
}

const Expr *index_read(Builder *b, Value *indices, const Expr *const *at, int64_t extent) {
    return wrapped(b, indices, at, extent, 0, extent - 1);
}

const Expr *index_write(Builder *b, Value *indices, const Expr *const *at, int64_t extent,
                        const Expr **guard) {
    const Expr *e = wrapped(b, indices, at, extent, -1, extent);
    if (!dim_varies(extent) && known_within(indices, -extent, extent)) return e;
    *guard = guard_and(b->x, *guard, ex_le(b->x, ex_i(b->x, 0), e));
    *guard = ex_and(b->x, *guard, ex_lt(b->x, e, ex_i(b->x, extent)));
    return e;
}

const Expr *guard_and(Exprs *x, const Expr *guard, const Expr *cond) {
    return guard ? ex_and(x, guard, cond) : cond;
}

const Expr *index_clamp(Exprs *x, const Expr *e, int64_t extent) {
    e = ex_bin(x, EX_min, e, ex_i(x, extent - 1));
    return ex_bin(x, EX_max, e, ex_i(x, 0));
}

Value *zeros(Graph *g, DType dt, int rank, const int64_t *shape) {
    Builder b = build(g, rank, shape);
    return build_map(&b, dt, ex_num(b.x, dt, 0));
}

/* True, with an empty result set, if a result has no elements; false and failed if it has some, but
 * what they are read from is empty. */
static bool nothing_to_read(Node *n, const Value *from, int rank, const int64_t *shape) {
    if (shape_numel(rank, shape) == 0) {
        n->out[0] = zeros(n->g, from->dt, rank, shape);
        return true;
    }
    if (value_numel(from) == 0) {
        invalid(n, E2005, "the indices have elements, but shape %s has none to take",
                shape_text(n->g->arena, from->rank, from->dims));
        return true;
    }
    return false;
}

/* --- Gather family ---------------------------------------------------------------------------- */

/* data with the dimensions of the indices in place of `axis`. */
static void gather(Node *n, Value *data, Value *indices, int axis) {
    Exprs *x = n->x;
    int64_t shape[2 * MAX_RANK];
    int rank = 0;
    for (int i = 0; i < axis; i++) shape[rank++] = data->dims[i];
    for (int i = 0; i < indices->rank; i++) shape[rank++] = indices->dims[i];
    for (int i = axis + 1; i < data->rank; i++) shape[rank++] = data->dims[i];
    if (!node_shape_ok(n, rank, shape) || nothing_to_read(n, data, rank, shape)) return;
    Builder b = build(n->g, rank, shape);
    const Expr *index[MAX_RANK], *at[MAX_RANK];
    for (int i = 0; i < indices->rank; i++) at[i] = ex_var(x, axis + i);
    for (int i = 0; i < data->rank; i++) index[i] = ex_var(x, i < axis ? i : i + indices->rank - 1);
    index[axis] = index_read(&b, indices, at, data->dims[axis]);
    n->out[0] = build_map(&b, data->dt, build_load(&b, data, index));
}

void import_gather(Node *n) {
    Value *data = node_need(n, 0), *indices = node_need(n, 1);
    if (!data || !indices || !index_type_ok(n, indices)) return;
    int axis = node_axis(n, attr_int(n, "axis", 0), data->rank);
    if (axis >= 0) gather(n, data, indices, axis);
}

/* ai.onnx.ml: features of the last axis. */
void import_array_feature_extractor(Node *n) {
    Value *data = node_need(n, 0), *indices = node_need(n, 1);
    if (!data || !indices || !index_type_ok(n, indices)) return;
    int64_t shape[2] = {1, dim_product(n->x, indices->rank, indices->dims)};
    if (data->rank < 1) {
        invalid(n, E2005, "the input is a scalar");
        return;
    }
    indices =
        g_reshape(n->g, indices, data->rank == 1 ? 2 : 1, data->rank == 1 ? shape : shape + 1);
    gather(n, data, indices, data->rank - 1);
}

/* False after a report if the indices do not lie over the data in all dimensions but `axis`. */
static bool elements_fit(Node *n, const Value *data, const Value *indices, int axis) {
    bool fits = data->rank == indices->rank;
    for (int i = 0; i < data->rank && fits; i++)
        fits = i == axis || dim_can_meet(n->x, indices->dims[i], data->dims[i]) ||
               dim_min(n->x, indices->dims[i]) <= dim_max(n->x, data->dims[i]);
    for (int i = 0; i < data->rank && fits; i++)
        if (i != axis) dim_claim(n->x, CLAIM_at_most, indices->dims[i], data->dims[i]);
    if (!fits)
        invalid(n, E2005, "indices of shape %s do not fit data of shape %s",
                shape_text(n->g->arena, indices->rank, indices->dims),
                shape_text(n->g->arena, data->rank, data->dims));
    return fits;
}

void import_gather_elements(Node *n) {
    Value *data = node_need(n, 0), *indices = node_need(n, 1);
    if (!data || !indices || !index_type_ok(n, indices)) return;
    int axis = node_axis(n, attr_int(n, "axis", 0), data->rank);
    if (axis < 0 || !elements_fit(n, data, indices, axis)) return;
    if (nothing_to_read(n, data, indices->rank, indices->dims)) return;
    Builder b = build(n->g, indices->rank, indices->dims);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < data->rank; i++) index[i] = ex_var(n->x, i);
    const Expr *at = index_read(&b, indices, index, data->dims[axis]);
    for (int i = 0; i < data->rank; i++) {
        bool same = data->dims[i] == indices->dims[i];
        if (!same && dims_vary(data->rank, data->dims))
            index[i] = index_clamp(n->x, index[i], data->dims[i]);
    }
    index[axis] = at;
    n->out[0] = build_map(&b, data->dt, build_load(&b, data, index));
}

/* Length of the index tuples in the last dimension of GatherND and ScatterND, checked; -1 after a
 * report. */
static int tuple_length(Node *n, const Value *data, const Value *indices, int batch) {
    int64_t k = indices->rank ? indices->dims[indices->rank - 1] : -1;
    if (dim_varies(k)) {
        unsupported(n, "indices whose last dimension varies are not supported");
        return -1;
    }
    bool fits = batch >= 0 && batch < indices->rank && k >= 0 && batch + k <= data->rank;
    for (int i = 0; i < batch && fits; i++) fits = dim_meets(n->x, indices->dims[i], data->dims[i]);
    if (fits) return (int)k;
    invalid(n, E2005, "indices of shape %s do not fit data of shape %s",
            shape_text(n->g->arena, indices->rank, indices->dims),
            shape_text(n->g->arena, data->rank, data->dims));
    return -1;
}

void import_gather_nd(Node *n) {
    Value *data = node_need(n, 0), *indices = node_need(n, 1);
    if (!data || !indices || !index_type_ok(n, indices)) return;
    Exprs *x = n->x;
    int64_t batch_dims = attr_int(n, "batch_dims", 0), shape[2 * MAX_RANK];
    int batch = batch_dims < 0 || batch_dims > MAX_RANK ? -1 : (int)batch_dims, rank = 0;
    int k = tuple_length(n, data, indices, batch), outer = indices->rank - 1;
    if (k < 0) return;
    for (int i = 0; i < outer; i++) shape[rank++] = indices->dims[i];
    for (int i = batch + k; i < data->rank; i++) shape[rank++] = data->dims[i];
    if (!node_shape_ok(n, rank, shape) || nothing_to_read(n, data, rank, shape)) return;
    Builder b = build(n->g, rank, shape);
    const Expr *index[MAX_RANK], *at[MAX_RANK];
    for (int i = 0; i < outer; i++) at[i] = ex_var(x, i);
    for (int i = 0; i < data->rank; i++) {
        at[outer] = ex_i(x, i - batch);
        index[i] = i < batch       ? ex_var(x, i)
                   : i < batch + k ? index_read(&b, indices, at, data->dims[i])
                                   : ex_var(x, i - batch - k + outer);
    }
    n->out[0] = build_map(&b, data->dt, build_load(&b, data, index));
}

/* --- Scatter family --------------------------------------------------------------------------- */

/* How updates join what is there; false after a report. */
static bool reduction(Node *n, const Value *data, const Value *updates, Combine *combine) {
    static const Combine combines[] = {COMBINE_none, COMBINE_sum, COMBINE_prod, COMBINE_max,
                                       COMBINE_min};
    int i = attr_choice(n, "reduction", 0, "none add mul max min");
    if (i < 0) return false;
    if (data->dt != updates->dt) {
        invalid(n, E2006, "data are %s, updates %s", dt_name(data->dt), dt_name(updates->dt));
        return false;
    }
    *combine = combines[i];
    if (i == 0 || data->dt != DT_bool) return true;
    invalid(n, E2006, "reduction '%s' does not take bool", attr_str(n, "reduction", ""));
    return false;
}

void import_scatter_elements(Node *n) {
    Value *data = node_need(n, 0), *indices = node_need(n, 1), *updates = node_need(n, 2);
    Combine combine;
    if (!data || !indices || !updates || !index_type_ok(n, indices)) return;
    if (!reduction(n, data, updates, &combine)) return;
    int axis = node_axis(n, attr_int(n, "axis", 0), data->rank);
    if (axis < 0 || !elements_fit(n, data, indices, axis)) return;
    if (!dims_meet(n->x, indices->rank, indices->dims, updates->rank, updates->dims)) {
        invalid(n, E2005, "indices have shape %s, updates %s",
                shape_text(n->g->arena, indices->rank, indices->dims),
                shape_text(n->g->arena, updates->rank, updates->dims));
        return;
    }
    if (value_numel(data) == 0 || value_numel(updates) == 0) {
        n->out[0] = data;
        return;
    }
    Builder b = build(n->g, indices->rank, indices->dims);
    const Expr *target[MAX_RANK], *guard = NULL;
    for (int i = 0; i < data->rank; i++) target[i] = ex_var(n->x, i);
    const Expr *e = build_load(&b, updates, target);
    target[axis] = index_write(&b, indices, target, data->dims[axis], &guard);
    n->out[0] = build_scatter(&b, data, combine, target, guard, e);
}

void import_scatter_nd(Node *n) {
    Value *data = node_need(n, 0), *indices = node_need(n, 1), *updates = node_need(n, 2);
    Combine combine;
    if (!data || !indices || !updates || !index_type_ok(n, indices)) return;
    if (!reduction(n, data, updates, &combine)) return;
    Exprs *x = n->x;
    int k = tuple_length(n, data, indices, 0), outer = indices->rank - 1, rank = 0;
    int64_t shape[2 * MAX_RANK];
    if (k < 0) return;
    for (int i = 0; i < outer; i++) shape[rank++] = indices->dims[i];
    for (int i = k; i < data->rank; i++) shape[rank++] = data->dims[i];
    if (!node_shape_ok(n, rank, shape)) return;
    if (!dims_meet(n->x, rank, shape, updates->rank, updates->dims)) {
        invalid(n, E2005, "updates have shape %s, the data and indices ask for %s",
                shape_text(n->g->arena, updates->rank, updates->dims),
                shape_text(n->g->arena, rank, shape));
        return;
    }
    if (value_numel(data) == 0 || value_numel(updates) == 0) {
        n->out[0] = data;
        return;
    }
    Builder b = build(n->g, rank, shape);
    const Expr *target[MAX_RANK], *at[MAX_RANK], *guard = NULL;
    for (int i = 0; i < outer; i++) at[i] = ex_var(x, i);
    for (int i = 0; i < data->rank; i++) {
        at[outer] = ex_i(x, i);
        target[i] =
            i < k ? index_write(&b, indices, at, data->dims[i], &guard) : ex_var(x, i - k + outer);
    }
    const Expr *e = build_in(&b, updates);
    n->out[0] = build_scatter(&b, data, combine, target, guard, e);
}

/* Writes a part of a cache along `axis`, beginning at an index of its own for every batch. */
void import_tensor_scatter(Node *n) {
    Value *cache = node_need(n, 0), *update = node_need(n, 1), *starts = node_in(n, 2);
    if (!cache || !update || (starts && !index_type_ok(n, starts))) return;
    Exprs *x = n->x;
    int axis = node_axis(n, attr_int(n, "axis", -2), cache->rank);
    bool circular = attr_choice(n, "mode", 0, "linear circular") == 1;
    if (axis < 0 || n->failed) return;
    bool fits = update->rank == cache->rank && axis > 0;
    for (int i = 0; i < cache->rank && fits; i++)
        fits = i == axis ? dim_min(x, update->dims[i]) <= dim_max(x, cache->dims[i])
                         : dim_meets(x, update->dims[i], cache->dims[i]);
    if (fits) dim_claim(x, CLAIM_at_most, update->dims[axis], cache->dims[axis]);
    if (starts && (starts->rank != 1 || !dim_meets(n->x, starts->dims[0], cache->dims[0])))
        fits = false;
    if (!fits || update->dt != cache->dt) {
        invalid(n, E2005, "an update of shape %s does not fit a cache of shape %s",
                shape_text(n->g->arena, update->rank, update->dims),
                shape_text(n->g->arena, cache->rank, cache->dims));
        return;
    }
    if (value_numel(update) == 0) {
        n->out[0] = cache;
        return;
    }
    int64_t extent = cache->dims[axis];
    Builder b = build(n->g, update->rank, update->dims);
    const Expr *target[MAX_RANK], *batch = ex_var(x, 0), *guard = NULL;
    for (int i = 0; i < cache->rank; i++) target[i] = ex_var(x, i);
    if (starts && circular) {
        const Expr *size = ex_int(x, DT_i64, extent);
        const Expr *at = ex_cast(x, DT_i64, build_load(&b, starts, &batch));
        at = ex_bin(x, EX_rem, at, size);
        at = ex_select(x, ex_lt(x, at, ex_int(x, DT_i64, 0)), ex_add(x, at, size), at);
        at = ex_add(x, ex_cast(x, DT_i32, at), ex_var(x, axis));
        target[axis] =
            ex_select(x, ex_lt(x, at, ex_i(x, extent)), at, ex_sub(x, at, ex_i(x, extent)));
    } else if (starts) {
        const Expr *at = index_write(&b, starts, &batch, extent, &guard);
        target[axis] = ex_add(x, at, ex_var(x, axis));
        guard = guard_and(x, guard, ex_lt(x, target[axis], ex_i(x, extent)));
    }
    n->out[0] = build_scatter(&b, cache, COMBINE_none, target, guard, build_in(&b, update));
}

/* --- ReverseSequence -------------------------------------------------------------------------- */

/* out[t] = in[length - 1 - t] in the first `length` steps of each batch. */
void import_reverse_sequence(Node *n) {
    Value *v = node_need(n, 0), *lengths = node_need(n, 1);
    if (!v || !lengths || !index_type_ok(n, lengths)) return;
    Exprs *x = n->x;
    int batch = node_axis(n, attr_int(n, "batch_axis", 1), v->rank);
    int time = batch < 0 ? -1 : node_axis(n, attr_int(n, "time_axis", 0), v->rank);
    if (time < 0) return;
    if (time == batch || lengths->rank != 1 || !dim_meets(n->x, lengths->dims[0], v->dims[batch])) {
        invalid(n, E2005, "sequence_lens must have one length for each of %s batches",
                dim_text(x, v->dims[batch]));
        return;
    }
    Builder b = build(n->g, v->rank, v->dims);
    const Expr *index[MAX_RANK], *t = ex_var(x, time), *at = ex_var(x, batch);
    for (int i = 0; i < v->rank; i++) index[i] = ex_var(x, i);
    const Expr *length = ex_cast(x, DT_i64, build_load(&b, lengths, &at));
    length = ex_bin(x, EX_min, length, ex_int(x, DT_i64, v->dims[time]));
    length = ex_cast(x, DT_i32, ex_bin(x, EX_max, length, ex_int(x, DT_i64, 0)));
    const Expr *mirrored = ex_sub(x, ex_sub(x, length, ex_i(x, 1)), t);
    index[time] = ex_select(x, ex_lt(x, t, length), mirrored, t);
    n->out[0] = build_map(&b, v->dt, build_load(&b, v, index));
}

/* --- TfIdfVectorizer -------------------------------------------------------------------------- */

#define MAX_GRAM 32

/* The pool as tables with a row for every n-gram: its items (padded), its length (0: not to be
 * counted) and the column of the result that counts it. */
typedef struct Grams {
    int n, longest;
    int64_t *item; /* [n, longest] */
    int32_t *length, *column;
    int64_t columns;
} Grams;

/* pool: of numbers, or of the places of strings in the pool. */
static bool read_grams(Node *n, const int64_t *pool, int n_pool, Grams *out) {
    Arena *arena = n->g->arena;
    int n_starts, n_columns;
    const int64_t *starts = attr_ints(n, "ngram_counts", &n_starts);
    const int64_t *columns = attr_ints(n, "ngram_indexes", &n_columns);
    int64_t shortest = attr_int(n, "min_gram_length", 1),
            longest = attr_int(n, "max_gram_length", 1);
    bool fits = pool && starts && columns && shortest >= 1 && longest >= shortest;
    if (n_starts > MAX_GRAM) {
        unsupported(n, "n-grams of more than %d items", MAX_GRAM);
        return false;
    }
    if (n_starts < 1 || n_columns < 1 || longest > n_starts) longest = n_starts;
    *out = (Grams){.longest = n_starts ? n_starts : 1};
    /* every item is copied at most once a row, and a row has at least one item */
    out->item = ARENA_ARRAY(arena, (size_t)n_columns * (size_t)out->longest + 1, int64_t);
    out->length = ARENA_ARRAY(arena, n_columns + 1, int32_t);
    out->column = ARENA_ARRAY(arena, n_columns + 1, int32_t);
    for (int i = 0; i < n_starts && fits; i++) {
        int64_t from = starts[i], to = i + 1 < n_starts ? starts[i + 1] : n_pool;
        int length = i + 1;
        if (from < 0 || to < from || to > n_pool) fits = false;
        for (int64_t at = from; fits && at + length <= to; at += length) {
            int row = out->n++;
            fits = row < n_columns && columns[row] >= 0 && columns[row] < INT32_MAX;
            if (!fits) break;
            memcpy(out->item + row * out->longest, pool + at, (size_t)length * sizeof *pool);
            out->length[row] = length >= shortest && length <= longest ? length : 0;
            out->column[row] = (int32_t)columns[row];
        }
    }
    for (int i = 0; i < n_columns && fits; i++) {
        fits = columns[i] >= 0 && columns[i] < INT32_MAX;
        if (fits && columns[i] >= out->columns) out->columns = columns[i] + 1;
    }
    if (!fits || out->columns < 1) {
        invalid(n, E2004, "the pool, ngram_counts and ngram_indexes do not fit together");
        return false;
    }
    return true;
}

/* How often every n-gram of the pool is in every row [rows, grams] of v [rows, length]: n-grams of
 * items that lie 1, 2 .. max_skip + 1 apart. Those of one item are counted once. */
static Value *count_grams(Node *n, Value *v, const Grams *grams, int64_t max_skip) {
    Exprs *x = n->x;
    Graph *g = n->g;
    int64_t shape[2] = {v->dims[0], grams->n}, table[2] = {grams->n, grams->longest};
    Value *items = graph_const(g, DT_i64, 2, table, grams->item);
    Value *lengths = graph_const(g, DT_i32, 1, table, grams->length);
    Builder b = build(g, 2, shape);
    const Expr *start = build_red(&b, v->dims[1]), *skip = build_red(&b, max_skip + 1);
    const Expr *gram = ex_var(x, 1), *step = ex_add(x, skip, ex_i(x, 1));
    const Expr *length = build_load(&b, lengths, &gram);
    /* the last item is inside, and the gram is to be counted in this distance */
    const Expr *span = ex_mul(x, ex_sub(x, length, ex_i(x, 1)), step);
    const Expr *hit = ex_lt(x, ex_add(x, start, span), ex_i(x, v->dims[1]));
    const Expr *one = ex_and(x, ex_bin(x, EX_eq, skip, ex_i(x, 0)), ex_lt(x, ex_i(x, 0), length));
    hit = ex_and(x, hit, ex_bin(x, EX_or, ex_lt(x, ex_i(x, 1), length), one));
    for (int k = 0; k < grams->longest; k++) {
        const Expr *item_at[2] = {gram, ex_i(x, k)};
        const Expr *at = ex_add(x, start, ex_mul(x, step, ex_i(x, k)));
        const Expr *value_at[2] = {ex_var(x, 0), index_clamp(x, at, v->dims[1])};
        const Expr *value = ex_cast(x, DT_i64, build_load(&b, v, value_at));
        const Expr *same = ex_bin(x, EX_eq, value, build_load(&b, items, item_at));
        hit = ex_and(x, hit, ex_bin(x, EX_or, ex_le(x, length, ex_i(x, k)), same));
    }
    const Expr *e = ex_select(x, hit, ex_num(x, DT_f32, 1), ex_num(x, DT_f32, 0));
    return build_reduce(&b, DT_f32, COMBINE_sum, e, NULL);
}

/* The numbers of the pool's strings: the last place that holds each. NULL if there are none. */
static int64_t *number_strings(Node *n, int *count) {
    const char *const *pool = attr_strs(n, "pool_strings", count);
    if (!pool) return NULL;
    int64_t *number = ARENA_ARRAY(n->g->arena, *count + 1, int64_t);
    StrMap seen;
    strmap_init(&seen, n->g->arena);
    for (int i = 0; i < *count; i++) {
        void **slot = strmap_put(&seen, pool[i]);
        *slot = (void *)((uintptr_t)i + 1);
    }
    for (int i = 0; i < *count; i++) number[i] = (int64_t)(uintptr_t)strmap_get(&seen, pool[i]) - 1;
    return number;
}

static const int64_t *read_pool(Node *n, int *count) {
    bool text = n->entity[0]->kind == ENTITY_text;
    return text ? number_strings(n, count) : attr_ints(n, "pool_int64s", count);
}

/* The input; strings as their numbers in the pool (-1: not in it). NULL after a report. */
static Value *read_items(Node *n) {
    if (!n->n_in || !n->entity[0] || n->entity[0]->kind != ENTITY_text) {
        Value *v = node_need(n, 0);
        return v && index_type_ok(n, v) ? v : NULL;
    }
    Value *v = node_text(n, 0), *pool = attr_text(n, "pool_strings");
    if (pool && !n->failed) return text_find(n->g, v, pool);
    if (!n->failed) invalid(n, E2004, "attribute 'pool_strings' is missing");
    return NULL;
}

void import_tfidf_vectorizer(Node *n) {
    Grams grams;
    int n_pool;
    Value *v = read_items(n);
    const int64_t *pool = v ? read_pool(n, &n_pool) : NULL;
    if (!v || n->failed || !read_grams(n, pool, n_pool, &grams)) return;
    Graph *g = n->g;
    Exprs *x = n->x;
    int n_weights;
    int64_t max_skip = attr_int(n, "max_skip_count", 0);
    const float *weights = attr_floats(n, "weights", &n_weights);
    enum { TF, IDF };
    int mode = attr_choice(n, "mode", TF, "TF IDF TFIDF");
    if (n->failed) return;
    int rank = v->rank;
    if (rank > 2 || max_skip < 0 || (weights && n_weights < grams.n)) {
        invalid(n, E2004, "the input has more than two dimensions, or an attribute does not fit");
        return;
    }
    int64_t shape[2] = {v->rank == 2 ? v->dims[0] : 1, grams.columns};
    int64_t in_shape[2] = {shape[0], v->rank ? v->dims[v->rank - 1] : 1};
    if (!node_shape_ok(n, 2, shape)) return;
    /* no distance reaches beyond the row */
    int64_t most = dim_max(x, in_shape[1]);
    if (max_skip >= most) max_skip = most ? most - 1 : 0;
    if (most > INT32_MAX / (grams.longest + 1)) {
        unsupported(n, "rows of more than %d items", INT32_MAX / (grams.longest + 1));
        return;
    }
    Value *result = zeros(g, DT_f32, 2, shape);
    if (grams.n && value_numel(v)) {
        v = count_grams(n, g_reshape(g, v, 2, in_shape), &grams, max_skip);
        int64_t count[1] = {grams.n};
        Value *columns = graph_const(g, DT_i32, 1, count, grams.column);
        Builder b = build(g, 2, v->dims);
        const Expr *gram = ex_var(x, 1), *guard = NULL;
        const Expr *target[2] = {ex_var(x, 0)};
        target[1] = index_write(&b, columns, &gram, grams.columns, &guard);
        result = build_scatter(&b, result, COMBINE_sum, target, guard, build_in(&b, v));
    }
    if (mode == IDF) result = node_formula(n, "min(a, 1)", 1, &result);
    if (result && mode != TF && weights) {
        /* weights go with the columns, as they lie */
        float *row = ARENA_ARRAY(g->arena, grams.columns, float);
        for (int i = 0; i < n_weights && i < grams.columns; i++) row[i] = weights[i];
        result = g_bin(g, EX_mul, result, graph_const(g, DT_f32, 1, shape + 1, row));
    }
    n->out[0] = result && rank && rank < 2 ? g_reshape(g, result, 1, shape + 1) : result;
}
