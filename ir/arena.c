/* See arena.h. Blocks double in size up to 4 MiB; a larger request gets a block of its own. */
#include "ir/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ArenaBlock {
    ArenaBlock *next;
    size_t size, used;
    _Alignas(16) unsigned char data[];
};

void arena_init(Arena *arena, size_t limit, ArenaLimitFn *on_limit, void *user) {
    *arena = (Arena){.limit = limit, .on_limit = on_limit, .user = user};
}

void arena_free(Arena *arena) {
    for (ArenaBlock *block = arena->head, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    arena->head = NULL;
    arena->used = 0;
    memset(arena->spare, 0, sizeof arena->spare);
}

static void out_of_memory(Arena *arena, size_t wanted, bool refused) {
    if (arena->on_limit) arena->on_limit(arena->user, wanted, refused);
    fprintf(stderr, "mlcc: error[E0006]: out of memory (%zu bytes wanted)\n", wanted);
    exit(6);
}

static ArenaBlock *new_block(Arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2 ||
        (arena->limit && (bytes > arena->limit || arena->used > arena->limit - bytes)))
        out_of_memory(arena, bytes, false);
    ArenaBlock *block = calloc(1, sizeof *block + bytes);
    if (!block) out_of_memory(arena, bytes, true);
    block->size = bytes;
    arena->used += bytes;
    return block;
}

void *arena_alloc(Arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) out_of_memory(arena, bytes, false);
    bytes = (bytes + 15) & ~(size_t)15;
    ArenaBlock *head = arena->head;
    if (!head || head->size - head->used < bytes) {
        size_t next = head ? head->size * 2 : 16384;
        if (next > (size_t)4 << 20) next = (size_t)4 << 20;
        ArenaBlock *block = new_block(arena, bytes > next / 2 ? bytes : next);
        if (head && bytes > next / 2) { /* keep filling the old head */
            block->next = head->next;
            head->next = block;
            block->used = bytes;
            return block->data;
        }
        block->next = head;
        arena->head = head = block;
    }
    void *result = head->data + head->used;
    head->used += bytes;
    return result;
}

void *arena_array(Arena *arena, size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) out_of_memory(arena, SIZE_MAX, false);
    return arena_alloc(arena, count * size);
}

/* log2 of a power of two */
static int spare_list(size_t bytes) {
    int list = 0;
    while (bytes >> (list + 1)) list++;
    return list;
}

void *arena_borrow(Arena *arena, size_t bytes) {
    void **list = &arena->spare[spare_list(bytes)], *data = *list;
    if (!data) return arena_alloc(arena, bytes);
    memcpy(list, data, sizeof *list);
    return memset(data, 0, bytes);
}

void arena_return(Arena *arena, void *data, size_t bytes) {
    void **list = &arena->spare[spare_list(bytes)];
    memcpy(data, list, sizeof *list);
    *list = data;
}

void *arena_copy(Arena *arena, const void *data, size_t bytes) {
    void *result = arena_alloc(arena, bytes);
    if (bytes) memcpy(result, data, bytes);
    return result;
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
    char *result = arena_alloc(arena, length + 1);
    memcpy(result, text, length);
    return result;
}

char *arena_strdup(Arena *arena, const char *text) {
    return arena_strndup(arena, text, strlen(text));
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
    char small[256];
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(small, sizeof small, format, again);
    va_end(again);
    if ((size_t)length < sizeof small) return arena_strndup(arena, small, (size_t)length);
    char *result = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(result, (size_t)length + 1, format, args);
    return result;
}

char *arena_printf(Arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *result = arena_vprintf(arena, format, args);
    va_end(args);
    return result;
}

void *arena_grow(Arena *arena, void *items, int *cap, size_t item_size) {
    int old = *cap, wider = old ? old * 2 : 8;
    void *result = arena_array(arena, (size_t)wider, item_size);
    if (old) memcpy(result, items, (size_t)old * item_size);
    *cap = wider;
    return result;
}

#define TEXT_PIECE 65536 /* what a sink gets at once, or a bit more */

Text text_new(Arena *arena) {
    return (Text){.arena = arena};
}

Text text_to(Arena *arena, TextSink *sink, void *user) {
    return (Text){.arena = arena, .sink = sink, .user = user};
}

void text_flush(Text *text) {
    if (text->length) text->sink(text->user, text->data, text->length);
    if (text->data) text->data[0] = 0;
    text->length = 0;
}

void text_addn(Text *text, const char *piece, size_t length) {
    if (text->sink && text->length > TEXT_PIECE) text_flush(text);
    if (text->length + length + 1 > text->cap) {
        size_t cap = text->cap ? text->cap : 256;
        while (cap < text->length + length + 1) cap *= 2;
        char *data = arena_alloc(text->arena, cap);
        if (text->length) memcpy(data, text->data, text->length);
        text->data = data;
        text->cap = cap;
    }
    memcpy(text->data + text->length, piece, length);
    text->length += length;
    text->data[text->length] = 0;
}

void text_add(Text *text, const char *piece) {
    text_addn(text, piece, strlen(piece));
}

void text_addf(Text *text, const char *format, ...) {
    char small[256];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if ((size_t)length < sizeof small)
        text_addn(text, small, (size_t)length);
    else
        text_addn(text, arena_vprintf(text->arena, format, again), (size_t)length);
    va_end(again);
}

const char *text_get(const Text *text) {
    return text->data ? text->data : "";
}

struct StrEntry {
    const char *key;
    void *value;
};

void strmap_init(StrMap *map, Arena *arena) {
    *map = (StrMap){.arena = arena};
}

uint64_t fnv1a(const void *data, size_t bytes, uint64_t seed) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) seed = (seed ^ p[i]) * 0x100000001b3u;
    return seed;
}

static struct StrEntry *find_slot(const StrMap *map, const char *key) {
    size_t i = fnv1a(key, strlen(key), FNV_SEED) & (size_t)(map->cap - 1);
    while (map->slots[i].key && strcmp(map->slots[i].key, key) != 0)
        i = (i + 1) & (size_t)(map->cap - 1);
    return &map->slots[i];
}

void **strmap_put(StrMap *map, const char *key) {
    if (map->n * 2 >= map->cap) {
        StrMap old = *map;
        map->cap = old.cap ? old.cap * 2 : 32;
        map->slots = ARENA_ARRAY(map->arena, map->cap, struct StrEntry);
        for (int i = 0; i < old.cap; i++)
            if (old.slots[i].key) *find_slot(map, old.slots[i].key) = old.slots[i];
    }
    struct StrEntry *slot = find_slot(map, key);
    if (!slot->key) {
        slot->key = arena_strdup(map->arena, key);
        map->n++;
    }
    return &slot->value;
}

void *strmap_get(const StrMap *map, const char *key) {
    return map->cap ? find_slot(map, key)->value : NULL;
}

void *strmap_at(const StrMap *map, int i) {
    for (int k = 0; k < map->cap; k++)
        if (map->slots[k].key && i-- == 0) return map->slots[k].value;
    return NULL;
}
