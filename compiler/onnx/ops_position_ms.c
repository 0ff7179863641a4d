/* How positions come into attention of com.microsoft: biases by distance, and rotary embeddings. */
#include "compiler/onnx/attention.h"
#include "compiler/onnx/index.h"

#include <math.h>

/* --- biases by position ----------------------------------------------------------------------- */

/* The bucket of each distance in [0, most]: the first half of them has one each, those of the
 * others grow as powers do. */
static const int32_t *distance_buckets(Arena *arena, int64_t buckets, int64_t most) {
    int32_t *table = ARENA_ARRAY(arena, most + 1, int32_t);
    int64_t exact = buckets / 2;
    for (int64_t d = 0; d <= most; d++) {
        int64_t at = d;
        if (d >= exact) {
            float share = logf((float)d / (float)exact) / logf((float)most / (float)exact);
            at = exact + (int64_t)(share * (float)(buckets - exact));
            if (at > buckets - 1) at = buckets - 1;
        }
        table[d] = (int32_t)at;
    }
    return table;
}

/* The table has the shape [buckets, heads], but holds its elements head by head. */
void import_ms_relative_position_bias(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *table = node_need(n, 0);
    int n_queries, n_keys;
    const int64_t *queries = node_need_ints(n, 1, "query_length", &n_queries),
                  *keys = node_need_ints(n, 2, "key_length", &n_keys);
    int64_t most = attr_int(n, "max_distance", 0);
    bool both = attr_int(n, "is_bidirectional", 0) != 0;
    if (!table || !queries || !keys || n->failed) return;
    int64_t all = table->rank == 2 ? table->dims[0] : 0, buckets = all / (both ? 2 : 1);
    bool fits = table->rank == 2 && !dim_varies(all) && buckets >= 2 && dt_is_float(table->dt) &&
                n_queries == 1 && n_keys == 1 && all % (both ? 2 : 1) == 0;
    if (!fits || most <= buckets / 2 || most > 1 << 20) {
        invalid(n, E2005, "a table of shape %s for distances up to %lld", shape_of(n, table),
                (long long)most);
        return;
    }
    if (!dim_meets(x, queries[0], keys[0])) {
        unsupported(n, "%s queries and %s keys", dim_text(x, queries[0]), dim_text(x, keys[0]));
        return;
    }
    int64_t heads = table->dims[1], shape[4] = {1, heads, queries[0], keys[0]}, count = most + 1;
    if (!node_shape_ok(n, 4, shape)) return;
    table = g_reshape(g, table, 2, (int64_t[]){heads, all});
    Value *near = graph_const(g, DT_i32, 1, &count, distance_buckets(g->arena, buckets, most));
    Builder b = build(g, 4, shape);
    const Expr *zero = ex_i(x, 0), *ahead = ex_sub(x, ex_var(x, 3), ex_var(x, 2));
    const Expr *back = ex_un(x, EX_neg, ahead);
    const Expr *distance = ex_bin(x, EX_max, back, both ? ahead : zero);
    distance = ex_bin(x, EX_min, distance, ex_i(x, most));
    const Expr *bucket = build_load(&b, near, &distance), *at[2] = {ex_var(x, 1), bucket};
    if (both)
        at[1] = ex_add(x, bucket, ex_select(x, ex_lt(x, zero, ahead), ex_i(x, buckets), zero));
    n->out[0] = build_map(&b, table->dt, build_load(&b, table, at));
}

/* rel_pos times a gate that each query opens: (u * (r * eco_a - 1) + 2), where u and r are the
 * sigmoids of the two halves' sums of query * weight + bias. */
void import_ms_gated_relative_position_bias(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *in[6];
    for (int i = 0; i < 6; i++)
        if (!(in[i] = node_need(n, i))) return;
    Value *query = in[0], *query_bias = in[1], *places = in[2], *weight = in[3], *bias = in[4];
    int64_t heads = attr_int(n, "num_heads", 0), columns = weight->rank == 2 ? weight->dims[1] : 0;
    if (n->failed) return;
    if (query->rank != 3 || node_in(n, 6)) {
        unsupported(n, "tokens without padding");
        return;
    }
    Heads q;
    bool fits = query_bias->rank == 1 && dim_meets(x, query_bias->dims[0], query->dims[2]) &&
                !dim_varies(columns) && columns > 0 && columns % 2 == 0 && bias->rank == 1 &&
                dim_meets(x, bias->dims[0], columns);
    if (fits) {
        Value *sum[2] = {query, query_bias};
        query = node_formula(n, "a + b", 2, sum);
        if (!query || !heads_from(n, query, heads, "the query", &q)) return;
        int64_t shape[4] = {1, heads, q.length, q.length}, one[4] = {1, heads, 1, 1};
        fits = dim_meets(x, weight->dims[0], q.size) &&
               dims_meet(x, places->rank, places->dims, 4, shape) &&
               dims_meet(x, in[5]->rank, in[5]->dims, 4, one);
    }
    if (!fits) {
        invalid(n, E2005, "a query of shape %s, weights %s and rel_pos %s do not fit",
                shape_of(n, in[0]), shape_of(n, weight), shape_of(n, places));
        return;
    }
    DType work = dt_reg(query->dt);
    Value *gates = g_matmul(g, heads_plain(n, &q), weight, work, work);
    gates = g_bin(g, EX_add, gates, g_cast(g, bias, work));
    int64_t apart[5] = {q.batch, heads, q.length, 2, columns / 2};
    if (!node_shape_ok(n, 5, apart)) return;
    gates = g_reduce(g, COMBINE_sum, g_reshape(g, gates, 5, apart), 1u << 4, false);
    int64_t start[4] = {0}, step[4] = {1, 1, 1, 1}, size[4] = {q.batch, heads, q.length, 1};
    Value *parts[4] = {g_slice(g, gates, start, step, size), NULL, g_cast(g, in[5], work),
                       g_cast(g, places, work)};
    start[3] = 1;
    parts[1] = g_slice(g, gates, start, step, size);
    Value *gate =
        node_formula(n, "(1 / (1 + exp(-a)) * (1 / (1 + exp(-b)) * c - 1) + 2) * d", 4, parts);
    if (gate) n->out[0] = g_cast(g, gate, query->dt);
}

/* --- RotaryEmbedding -------------------------------------------------------------------------- */

void import_ms_rotary_embedding(Node *n) {
    Value *v = node_need(n, 0);
    Rotary r = {.ids = node_need(n, 1),
                .cos = node_need(n, 2),
                .sin = node_need(n, 3),
                .interleaved = attr_int(n, "interleaved", 0) != 0,
                .size = attr_int(n, "rotary_embedding_dim", 0)};
    int64_t count = attr_int(n, "num_heads", 0);
    Heads heads;
    if (!v || !r.ids || !r.cos || !r.sin || n->failed) return;
    if (attr_int(n, "is_packed_batching", 0)) {
        unsupported(n, "is_packed_batching");
        return;
    }
    if (count == 0 && r.size == 0 && v->rank == 3 && r.cos->rank == 2 &&
        dim_max(n->x, r.cos->dims[1]) > 0)
        count = dim_div(n->x, v->dims[2], dim_mul(n->x, r.cos->dims[1], 2));
    if (heads_from(n, v, count, "the input", &heads)) n->out[0] = rotary_result(n, v, &heads, &r);
}

/* --- MRotaryEmbedding ------------------------------------------------------------------------- */

/* Cosines or sines of each position, f32 [batch, length, half]: column i is that of one of three
 * positions. These have the columns one after the other, as many as `share` says, or, in turns, the
 * second and third have every third one, and the first the others. */
static Value *mixed_rows(Node *n, Value *cache, Value *ids, const int64_t *share, bool turns,
                         double scale) {
    Exprs *x = n->x;
    int64_t shape[3] = {ids->dims[1], ids->dims[2], cache->dims[1]};
    Builder b = build(n->g, 3, shape);
    const Expr *i = ex_var(x, 2), *which[3] = {ex_i(x, 0), ex_i(x, 1), ex_i(x, 2)}, *is[3] = {NULL};
    for (int k = 1; k < 3; k++) {
        const Expr *turn = ex_bin(x, EX_eq, ex_bin(x, EX_rem, i, ex_i(x, 3)), which[k]);
        is[k] = turns ? ex_and(x, turn, ex_lt(x, i, ex_i(x, 3 * share[k])))
                      : ex_le(x, ex_i(x, share[0] + (k == 2 ? share[1] : 0)), i);
    }
    const Expr *stream = ex_select(x, is[2], which[2], ex_select(x, is[1], which[1], which[0]));
    const Expr *at[3] = {stream, ex_var(x, 0), ex_var(x, 1)};
    const Expr *row[2] = {index_read(&b, ids, at, cache->dims[0]), i};
    const Expr *e = ex_cast(x, DT_f32, build_load(&b, cache, row));
    return build_map(&b, DT_f32, ex_mul(x, e, ex_num(x, DT_f32, scale)));
}

/* A token has three positions: in time, and in the height and width of an image. */
void import_ms_mrotary_embedding(Node *n) {
    Exprs *x = n->x;
    Value *v = node_need(n, 0), *ids = node_need(n, 1), *cos = node_need(n, 2),
          *sin = node_need(n, 3);
    int sections;
    const int64_t *share = attr_ints(n, "mrope_section", &sections);
    int64_t layout = attr_int(n, "mrope_layout", 0);
    double scale = attr_float(n, "scale", 1);
    Rotary r = {.interleaved = attr_int(n, "interleaved", 0) != 0,
                .size = attr_int(n, "rotary_embedding_dim", 0)};
    Heads heads;
    if (!v || !ids || !cos || !sin || n->failed) return;
    if (attr_int(n, "is_packed_batching", 0)) {
        unsupported(n, "is_packed_batching");
        return;
    }
    if (!share || sections != 3 || layout < 0 || layout > 1) {
        invalid(n, E2004, "mrope_section has %d numbers, mrope_layout is %lld", sections,
                (long long)layout);
        return;
    }
    if (!heads_from(n, v, attr_int(n, "num_heads", 0), "the input", &heads)) return;
    const int64_t places[3] = {3, heads.batch, heads.length};
    bool fits = cos->rank == 2 && dims_meet(x, ids->rank, ids->dims, 3, places) &&
                dims_meet(x, sin->rank, sin->dims, 2, cos->dims) && dim_max(x, cos->dims[0]) > 0 &&
                dt_is_int(ids->dt) && dt_is_float(cos->dt) && dt_is_float(sin->dt);
    int64_t sum = 0;
    for (int i = 0; i < 3 && fits; i++) {
        fits = share[i] >= 0 && share[i] <= INT32_MAX / 4;
        sum += share[i];
    }
    if (!fits || !dim_meets(x, sum, cos->dims[1])) {
        invalid(n, E2005, "position_ids %s, caches %s and mrope_section do not fit %s",
                shape_of(n, ids), shape_of(n, cos), shape_of(n, v));
        return;
    }
    r.cos = mixed_rows(n, cos, ids, share, layout == 1, scale);
    r.sin = mixed_rows(n, sin, ids, share, layout == 1, scale);
    n->out[0] = rotary_result(n, v, &heads, &r);
}

/* --- GemmaRotaryEmbedding --------------------------------------------------------------------- */

/* Queries and keys times the cosine, and what they are turned half round times the sine, of angles
 * [batch, length, size]. Cosine, sine and products are rounded. */
void import_ms_gemma_rotary_embedding(Node *n) {
    Graph *g = n->g;
    Exprs *x = n->x;
    Value *angle = node_need(n, 0), *in[4];
    for (int i = 0; i < 4; i++)
        if (!(in[i] = node_need(n, 1 + i))) return;
    if (!angle) return;
    for (int k = 0; k < 4; k += 2) {
        Value *v = in[k], *turned = in[k + 1];
        const int64_t *d = v->dims;
        bool fits = v->rank == 4 && dims_meet(x, turned->rank, turned->dims, 4, d) &&
                    turned->dt == v->dt && dt_is_float(v->dt) && dt_is_float(angle->dt);
        if (fits) {
            const int64_t places[3] = {d[0], d[2], d[3]};
            fits = dims_meet(x, angle->rank, angle->dims, 3, places);
        }
        if (!fits) {
            invalid(n, E2005, "angles %s, a state of shape %s and its turned one %s do not fit",
                    shape_of(n, angle), shape_of(n, v), shape_of(n, turned));
            return;
        }
        DType work = dt_reg(v->dt);
        Builder b = build(g, 4, d);
        const Expr *at[3] = {ex_var(x, 0), ex_var(x, 2), ex_var(x, 3)}, *sum = NULL;
        const Expr *a = ex_cast(x, dt_reg(angle->dt), build_load(&b, angle, at));
        for (int i = 0; i < 2; i++) {
            const Expr *by = ex_cast(x, v->dt, ex_un(x, i ? EX_sin : EX_cos, a));
            const Expr *e =
                ex_mul(x, ex_cast(x, work, build_in(&b, in[k + i])), ex_cast(x, work, by));
            e = ex_cast(x, work, ex_cast(x, v->dt, e));
            sum = sum ? ex_add(x, sum, e) : e;
        }
        n->out[k / 2] = build_map(&b, v->dt, sum);
    }
}
