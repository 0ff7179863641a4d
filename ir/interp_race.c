/* See interp_race.h. Time is counted in epochs, which end at barriers and blocks; of parameters, at
 * barriers for memory outside of the block only. Two accesses by different threads of one block are
 * in order if their epochs differ; those of different blocks never are. */
#include "ir/interp_race.h"

#include <string.h>

#define NOBODY  (-1)
#define SEVERAL (-2)

typedef struct Cell {
    int64_t writer, reader; /* thread, or NOBODY; reader also SEVERAL */
    int64_t write_block, read_block;
    int64_t write_epoch, read_epoch;
    Scalar value; /* last written */
} Cell;

struct Race {
    Arena *arena;
    const Kernel *k;
    Cell **cells; /* per buffer; NULL: nothing stores to it */
    bool *stored;
    int64_t block, epoch, global_epoch, first;
};

static void find_stores(Race *r, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->kind == ST_store) r->stored[s->buffer] = true;
        find_stores(r, s->body);
        find_stores(r, s->other);
    }
}

Race *race_new(Arena *arena, const Kernel *k) {
    Race *r = ARENA_NEW(arena, Race);
    r->arena = arena;
    r->k = k;
    r->cells = ARENA_ARRAY(arena, k->buffers.n, Cell *);
    r->stored = ARENA_ARRAY(arena, k->buffers.n, bool);
    find_stores(r, k->body);
    return r;
}

void race_begin_block(Race *r, int64_t block) {
    r->block = block;
    race_barrier(r, true);
    r->first = 0;
}

void race_barrier(Race *r, bool global) {
    r->epoch++;
    if (global) r->global_epoch++;
}

static int64_t epoch_of(const Race *r, int buffer) {
    return r->k->buffers.items[buffer]->space == SPACE_param ? r->global_epoch : r->epoch;
}

void race_set_first(Race *r, int64_t first) {
    r->first = first;
}

void race_forget(Race *r, int buffer) {
    Cell *cells = r->cells[buffer];
    if (!cells) return;
    const Buffer *b = r->k->buffers.items[buffer];
    int64_t n = shape_numel(b->rank, b->shape);
    for (int64_t i = 0; i < n; i++) cells[i].writer = cells[i].reader = NOBODY;
}

static Cell *cell_of(Race *r, int buffer, int64_t element) {
    if (!r->stored[buffer]) return NULL;
    if (!r->cells[buffer]) {
        const Buffer *b = r->k->buffers.items[buffer];
        r->cells[buffer] = ARENA_ARRAY(r->arena, shape_numel(b->rank, b->shape), Cell);
        race_forget(r, buffer);
    }
    return &r->cells[buffer][element];
}

/* True if an access by `thread` of `block` in `epoch` is not in order with one by `me`, now that it
 * is epoch `at`. */
static bool unordered(const Race *r, int64_t thread, int64_t block, int64_t epoch, int64_t me,
                      int64_t at) {
    if (thread == NOBODY) return false;
    if (block != r->block) return true;
    return thread != me && epoch == at;
}

static const char *report(Race *r, int buffer, int64_t element, int64_t me, const char *what,
                          int64_t other, int64_t other_block) {
    const char *who = other == SEVERAL ? "others"
                                       : arena_printf(r->arena, "thread %lld of block %lld",
                                                      (long long)other, (long long)other_block);
    return arena_printf(
        r->arena,
        "race on buffer '%s', element %lld: thread %lld of block %lld %s %s, with no "
        "barrier between",
        r->k->buffers.items[buffer]->name, (long long)element, (long long)me, (long long)r->block,
        what, who);
}

const char *race_read(Race *r, int buffer, int64_t element, int lane) {
    Cell *cell = cell_of(r, buffer, element);
    if (!cell) return NULL;
    const int64_t me = r->first + lane, now = epoch_of(r, buffer);
    if (unordered(r, cell->writer, cell->write_block, cell->write_epoch, me, now))
        return report(r, buffer, element, me, "reads the value written by", cell->writer,
                      cell->write_block);
    bool again = unordered(r, cell->reader, cell->read_block, cell->read_epoch, me, now);
    cell->reader = again ? SEVERAL : me;
    cell->read_block = r->block;
    cell->read_epoch = now;
    return NULL;
}

const char *race_write(Race *r, int buffer, int64_t element, int lane, Scalar value) {
    Cell *cell = cell_of(r, buffer, element);
    if (!cell) return NULL;
    const int64_t me = r->first + lane, now = epoch_of(r, buffer);
    if (unordered(r, cell->writer, cell->write_block, cell->write_epoch, me, now) &&
        cell->value.i != value.i)
        return report(r, buffer, element, me, "overwrites the value written by", cell->writer,
                      cell->write_block);
    if (unordered(r, cell->reader, cell->read_block, cell->read_epoch, me, now))
        return report(r, buffer, element, me, "overwrites the value read by", cell->reader,
                      cell->read_block);
    *cell = (Cell){.writer = me,
                   .reader = cell->reader,
                   .write_block = r->block,
                   .read_block = cell->read_block,
                   .write_epoch = now,
                   .read_epoch = cell->read_epoch,
                   .value = value};
    return NULL;
}
