/* See constant.h. */
#include "ir/constant.h"
#include "ir/interp.h"

#include <string.h>

#define SMALL_BYTES ((size_t)16 << 10) /* laid out at once */
#define TILE        32                 /* of a transposition, in both directions */

/* The elements of a constant. */
typedef struct Source {
    int64_t numel;
    size_t size; /* of an element */
    const unsigned char *data;
} Source;

/* Elements of a source that lie at even strides, to be laid out densely or at strides of their own.
 */
typedef struct Box {
    int n;
    int64_t extent[PACKED_LOOPS], from[PACKED_LOOPS], to[PACKED_LOOPS]; /* strides in elements */
} Box;

/* Loops that go on where the next one ends are one with it, and those of one iteration none. */
static void merge_loops(Box *b) {
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        if (b->extent[i] == 1) continue;
        bool on = n && b->from[n - 1] == b->from[i] * b->extent[i] &&
                  b->to[n - 1] == b->to[i] * b->extent[i];
        if (!on) n++;
        b->extent[n - 1] = on ? b->extent[n - 1] * b->extent[i] : b->extent[i];
        b->from[n - 1] = b->from[i];
        b->to[n - 1] = b->to[i];
    }
    b->n = n;
}

static void move_loop(Box *b, int at, int to) {
    int64_t *const rows[] = {b->extent, b->from, b->to};
    for (int r = 0; r < 3; r++) {
        int64_t *row = rows[r], moved = row[at];
        for (int i = at; i < to; i++) row[i] = row[i + 1];
        for (int i = at; i > to; i--) row[i] = row[i - 1];
        row[to] = moved;
    }
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* Puts the loops in the order of the source, which is read from memory or a file; but the last one
 * stays that of the result. */
static void order_loops(Box *b) {
    for (int i = 1; i + 1 < b->n; i++) {
        int to = i;
        while (to && magnitude(b->from[to - 1]) < magnitude(b->from[i])) to--;
        move_loop(b, i, to);
    }
}

/* Two loops, a tile of them after the other. `size` is a constant wherever this is called: copies
 * are then single moves. */
static inline __attribute__((always_inline)) void
copy_tiles(size_t size, int64_t rows, int64_t columns, int64_t from_row, int64_t from_column,
           int64_t to_row, int64_t to_column, const unsigned char *from, unsigned char *to) {
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < columns; c0 += TILE) {
            int64_t r1 = r0 + TILE < rows ? r0 + TILE : rows;
            int64_t c1 = c0 + TILE < columns ? c0 + TILE : columns;
            for (int64_t r = r0; r < r1; r++)
                for (int64_t c = c0; c < c1; c++)
                    memcpy(to + (size_t)(r * to_row + c * to_column) * size,
                           from + (r * from_row + c * from_column) * (int64_t)size, size);
        }
}

static void copy_plane(const Box *b, int row, size_t size, const unsigned char *from,
                       unsigned char *to) {
    int c = row + 1;
    if (b->from[c] == 1 && b->to[c] == 1) {
        for (int64_t r = 0; r < b->extent[row]; r++)
            memcpy(to + (size_t)(r * b->to[row]) * size, from + r * b->from[row] * (int64_t)size,
                   (size_t)b->extent[c] * size);
        return;
    }
#define CASE(SIZE)                                                                                 \
    case SIZE:                                                                                     \
        copy_tiles(SIZE, b->extent[row], b->extent[c], b->from[row], b->from[c], b->to[row],       \
                   b->to[c], from, to);                                                            \
        return
    switch (size) {
        CASE(1);
        CASE(2);
        CASE(4);
        CASE(8);
        CASE(16);
    }
#undef CASE
}

static void copy_loops(const Box *b, int at, size_t size, const unsigned char *from,
                       unsigned char *to) {
    if (at + 2 == b->n) {
        copy_plane(b, at, size, from, to);
        return;
    }
    for (int64_t i = 0; i < b->extent[at]; i++)
        copy_loops(b, at + 1, size, from + i * b->from[at] * (int64_t)size,
                   to + (size_t)(i * b->to[at]) * size);
}

/* The loops from number `at` on. */
static void inner_loops(const Box *b, int at, Box *rest) {
    rest->n = b->n - at;
    for (int i = 0; i < rest->n; i++) {
        rest->extent[i] = b->extent[at + i];
        rest->from[i] = b->from[at + i];
        rest->to[i] = b->to[at + i];
    }
}

/* Copies the box whose first element is number `first` of the source. Elements outside of it are
 * zero: the loops are then taken apart until what is inside is known to be. */
static void copy_box(const Box *box, const Source *v, int64_t first, unsigned char *to) {
    int64_t least = first, most = first;
    for (int i = 0; i < box->n; i++) {
        int64_t reach = box->from[i] * (box->extent[i] - 1);
        *(reach < 0 ? &least : &most) += reach;
    }
    size_t size = v->size;
    bool inside = least >= 0 && most < v->numel;
    Box b;
    if (!inside && box->n) {
        inner_loops(box, 1, &b);
        for (int64_t i = 0; i < box->extent[0]; i++)
            copy_box(&b, v, first + i * box->from[0], to + (size_t)(i * box->to[0]) * size);
        return;
    }
    if (!inside) {
        memset(to, 0, size);
        return;
    }
    inner_loops(box, 0, &b);
    merge_loops(&b);
    order_loops(&b);
    while (b.n < 2) { /* a plane at least */
        b.extent[b.n] = b.from[b.n] = b.to[b.n] = 1;
        if (b.n++) move_loop(&b, 1, 0);
    }
    copy_loops(&b, 0, size, v->data + (size_t)first * size, to);
}

/* Elements of a packed constant: in boxes, each as many iterations of a loop as there are left or
 * wanted, with all loops inside of it. */
static void read_packed(const Packed *p, const Source *source, int64_t first, int64_t count,
                        unsigned char *to) {
    int64_t at[PACKED_LOOPS], inner[PACKED_LOOPS + 1], value[PACKED_VARS] = {0};
    inner[p->n] = 1;
    for (int i = p->n - 1; i >= 0; i--) inner[i] = inner[i + 1] * p->extent[i];
    while (count) {
        for (int i = 0; i < p->n; i++)
            value[p->var[i]] = at[i] = first / inner[i + 1] % p->extent[i];
        int loop = p->n - 1;
        while (loop > p->even && at[loop] == 0 && inner[loop] <= count) loop--;
        if (loop < p->even) loop = p->n; /* a single element */
        Box box = {.n = p->n - loop};
        int64_t done = 1;
        for (int i = loop; i < p->n; i++) {
            box.extent[i - loop] = p->extent[i];
            box.from[i - loop] = p->stride[i];
            box.to[i - loop] = inner[i + 1];
        }
        if (box.n) {
            int64_t left = p->extent[loop] - at[loop], wanted = count / inner[loop + 1];
            box.extent[0] = left < wanted ? left : wanted;
            done = box.extent[0] * inner[loop + 1];
        }
        copy_box(&box, source, ex_eval(p->index, value).i, to);
        to += (size_t)done * source->size;
        count -= done;
        first += done;
    }
}

/* --- making ----------------------------------------------------------------------------------- */

/* Small ones are computed at once. */
static void settle_small(Arena *arena, Value *v) {
    if (value_bytes(v) <= SMALL_BYTES) constant_settle(arena, v);
}

Value *constant_packed(Graph *g, DType dt, int64_t numel, const Packed *packed) {
    Value *v = graph_const(g, dt, 1, &numel, NULL);
    Packed *own = arena_copy(g->arena, packed, sizeof *packed);
    own->var = arena_copy(g->arena, packed->var, (size_t)packed->n * sizeof *packed->var);
    own->extent = arena_copy(g->arena, packed->extent, (size_t)packed->n * sizeof *packed->extent);
    own->stride = arena_copy(g->arena, packed->stride, (size_t)packed->n * sizeof *packed->stride);
    v->packed = own;
    settle_small(g->arena, v);
    return v;
}

void constant_made(Graph *g, Value *out, const Op *map) {
    out->made = map;
    settle_small(g->arena, out);
}

Value *constant_mapped(Graph *g, Value *v, DType dt, const Expr *body) {
    Op *op = graph_new_op(g, OP_const, 0, NULL, 1), *map = graph_new_op(g, OP_map, 1, &v, 0);
    Value *out = graph_new_value(g, op, 0, dt, v->rank, v->dims);
    map->body = body;
    map->out = op->out;
    map->n_out = 1;
    constant_made(g, out, map);
    return out;
}

const Expr *constant_element(Graph *g, const Value *v) {
    const Expr *index[MAX_RANK];
    for (int i = 0; i < v->rank; i++) index[i] = ex_var(g->x, i);
    return ex_load(g->x, v->dt, 0, v->rank, index);
}

Value *constant_cast(Graph *g, Value *v, DType dt) {
    return constant_mapped(g, v, dt, ex_cast(g->x, dt, constant_element(g, v)));
}

void constant_alias(Value *out, const Value *v) {
    out->data = v->data;
    out->packed = v->packed;
    out->made = v->made;
}

Value *constant_like(Graph *g, const Value *v, int rank, const int64_t *shape) {
    Value *like = graph_const(g, v->dt, rank, shape, NULL);
    constant_alias(like, v);
    return like;
}

/* Are they the same elements of the same, in the same order? */
static bool same_packed(const Packed *a, const Packed *b) {
    if (a == b) return true;
    if (!a || !b || a->index != b->index || a->n != b->n || a->even != b->even) return false;
    for (int i = 0; i < a->n; i++)
        if (a->var[i] != b->var[i] || a->extent[i] != b->extent[i] || a->stride[i] != b->stride[i])
            return false;
    return constant_same(a->from, b->from);
}

bool constant_same(const Value *a, const Value *b) {
    size_t bytes = value_bytes(a);
    if (a->dt != b->dt || bytes != value_bytes(b) || !same_packed(a->packed, b->packed))
        return false;
    if (a->made || b->made) {
        bool same =
            a->made && b->made && a->made->body == b->made->body && a->made->n_in == b->made->n_in;
        for (int i = 0; same && i < a->made->n_in; i++) same = a->made->in[i] == b->made->in[i];
        return same;
    }
    return a->packed || a->data == b->data || !memcmp(a->data, b->data, bytes);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Arenas lend powers of two. */
static size_t room_for(size_t bytes) {
    size_t room = 16;
    while (room < bytes) room *= 2;
    return room;
}

/* All elements, in memory that is borrowed (*room: how much) unless the constant holds them. */
static const void *borrow_data(Arena *arena, const Value *v, size_t *room) {
    *room = 0;
    if (!v->packed && !v->made) return v->data;
    *room = room_for(value_bytes(v));
    void *data = arena_borrow(arena, *room);
    constant_read(arena, v, data);
    return data;
}

static void return_data(Arena *arena, const void *data, size_t room) {
    if (room) arena_return(arena, (void *)(uintptr_t)data, room);
}

/* What an operator computes. */
static void compute(Arena *arena, const Op *op, void *to) {
    const void **in = ARENA_ARRAY(arena, op->n_in, const void *);
    size_t *room = ARENA_ARRAY(arena, op->n_in, size_t);
    for (int i = 0; i < op->n_in; i++) in[i] = borrow_data(arena, op->in[i], &room[i]);
    interp_op(arena, op, in, &to, NULL);
    for (int i = 0; i < op->n_in; i++) return_data(arena, in[i], room[i]);
}

static Source source_of(const Value *v, const void *data) {
    return (Source){value_numel(v), dt_store(v->dt), data};
}

void constant_read(Arena *arena, const Value *v, void *to) {
    if (v->made) {
        compute(arena, v->made, to);
    } else if (v->packed) {
        size_t room;
        const void *data = borrow_data(arena, v->packed->from, &room);
        Source source = source_of(v->packed->from, data);
        read_packed(v->packed, &source, 0, value_numel(v), to);
        return_data(arena, data, room);
    } else if (value_bytes(v)) {
        memcpy(to, v->data, value_bytes(v));
    }
}

const void *constant_data(Arena *arena, const Value *v) {
    if (!v->packed && !v->made) return v->data;
    void *data = arena_alloc(arena, value_bytes(v) + 1);
    constant_read(arena, v, data);
    return data;
}

const void *constant_settle(Arena *arena, Value *v) {
    v->data = constant_data(arena, v);
    v->packed = NULL;
    v->made = NULL;
    return v->data;
}

ConstantPieces constant_pieces(Arena *arena, const Value *v, size_t most) {
    size_t size = dt_store(v->dt), bytes = value_bytes(v);
    ConstantPieces c = {.arena = arena, .v = v, .most = most / size * size};
    c.source = v->packed ? v->packed->from : v;
    c.from = borrow_data(arena, c.source, &c.computed);
    if (v->packed) c.piece_room = room_for(bytes < c.most ? bytes : c.most);
    if (v->packed) c.piece = arena_borrow(arena, c.piece_room);
    return c;
}

bool constant_next(ConstantPieces *c) {
    size_t total = value_bytes(c->v), size = dt_store(c->v->dt);
    if (c->at == total) {
        return_data(c->arena, c->from, c->computed);
        return_data(c->arena, c->piece, c->piece_room);
        return false;
    }
    c->bytes = total - c->at < c->most ? total - c->at : c->most;
    if (c->piece) {
        Source source = source_of(c->source, c->from);
        read_packed(c->v->packed, &source, (int64_t)(c->at / size), (int64_t)(c->bytes / size),
                    c->piece);
    }
    c->data = c->piece ? c->piece : c->from + c->at;
    c->at += c->bytes;
    return true;
}
