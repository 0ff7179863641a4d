/* See carry.h.
 *
 * The room is found by trying: an iteration is imported with extents up to what is known so far. If
 * it makes none that are larger, there is room enough for all iterations. Else it is imported with
 * room for those, and so on, at most as often as there are iterations; unless each adds the same,
 * when what all of them add is known.
 */
#include "compiler/onnx/carry.h"

Carry carry_of(Graph *g, const Value *v) {
    Carry c = {.rank = v->rank};
    for (int i = 0; i < v->rank; i++) {
        c.first[i] = v->dims[i];
        c.room[i] = dim_max(g->x, v->dims[i]);
        c.low[i] = dim_min(g->x, v->dims[i]);
    }
    return c;
}

bool carry_changes(const Carry *c) {
    for (int i = 0; i < c->rank; i++)
        if (c->changes[i]) return true;
    return false;
}

Value *in_room(Graph *g, Value *v, const int64_t *dims) {
    if (shape_equal(v->rank, v->dims, v->rank, dims)) return v;
    Builder b = build(g, v->rank, dims);
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) {
        index[i] = ex_var(g->x, i);
        if (dims[i] != v->dims[i]) index[i] = dim_index(g->x, index[i], v->dims[i]);
    }
    const Expr *nothing = ex_cast(g->x, v->dt, ex_int(g->x, DT_i32, 0));
    return build_map(&b, v->dt, value_numel(v) ? build_load(&b, v, index) : nothing);
}

void carry_pack(const Carry *c, Graph *g, Value *v, ValueVec *parts) {
    if (!carry_changes(c)) {
        vec_push(g->arena, parts, v);
        return;
    }
    int64_t room[MAX_RANK];
    for (int i = 0; i < c->rank; i++) room[i] = c->changes[i] ? c->room[i] : v->dims[i];
    vec_push(g->arena, parts, in_room(g, v, room));
    for (int i = 0; i < c->rank; i++)
        if (c->changes[i]) vec_push(g->arena, parts, g_dim(g, DT_i32, v->dims[i]));
}

Value *carry_unpack(const Carry *c, Graph *g, Value *const *parts, int *at, int64_t trips) {
    Value *v = parts[(*at)++];
    if (!carry_changes(c)) return v;
    Exprs *x = g->x;
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK], dims[MAX_RANK];
    for (int i = 0; i < c->rank; i++) {
        step[i] = 1;
        dims[i] = v->dims[i];
        if (!c->changes[i]) continue;
        Builder e = build(g, 0, NULL);
        const Expr *least = ex_i(x, c->low[i]), *most = ex_i(x, c->room[i]);
        const Expr *extent = build_in(&e, parts[(*at)++]);
        extent = ex_bin(x, EX_min, ex_bin(x, EX_max, extent, least), most);
        bool steady = c->least_step[i] == c->most_step[i] && c->least_step[i] >= 0;
        dims[i] = trips != -1 && steady
                      ? dim_add(x, c->first[i], dim_mul(x, trips, c->most_step[i]))
                      : graph_symbol(g, build_map(&e, DT_i32, extent), c->low[i], c->room[i]);
        if (dims[i] == -1) return NULL;
    }
    return g_slice(g, v, start, step, dims);
}

bool carry_learn(Carry *c, Graph *g, const Value *before, const Value *after, int64_t trips,
                 bool *again) {
    Exprs *x = g->x;
    if (after->dt != before->dt || after->rank != before->rank) return false;
    for (int i = 0; i < c->rank; i++) {
        if (!c->changes[i] && before->dims[i] == after->dims[i]) continue;
        int64_t most = dim_max(x, after->dims[i]), least = dim_min(x, after->dims[i]);
        int64_t most_step;
        dim_apart(x, after->dims[i], before->dims[i], &c->least_step[i], &most_step);
        if (!c->changes[i]) {
            c->changes[i] = *again = true;
            if (most > c->room[i]) c->room[i] = most;
        } else if (most > c->room[i] && c->enlarged[i] < trips) {
            int64_t grown = dim_max(x, c->first[i]) + trips * most_step;
            if (grown > c->room[i]) {
                bool even = most_step == c->most_step[i];
                c->room[i] = even && grown > most ? grown : most;
                c->enlarged[i]++;
                *again = true;
            }
        }
        c->most_step[i] = most_step;
        if (least < c->low[i] && c->least_step[i] < 0) {
            *again = true;
            c->low[i] = 0;
        }
    }
    return true;
}
