/* Arena: memory of one compilation, given back all at once.
 *
 * Everything the compiler builds lives in an arena; nothing is freed piece by piece (a walk's own
 * tables are borrowed and returned, or memory would grow with the time spent). An arena may be
 * bounded (`--max-memory`): the allocation that would pass the bound, or that the system refuses,
 * calls `on_limit`, which must not return (the driver jumps back to its own frame and reports
 * E0006).
 */
#ifndef IR_ARENA_H
#define IR_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ArenaBlock ArenaBlock;

#define ARENA_SPARES 48

/* `refused`: it is the system that has no more memory, for us or at all. */
typedef void ArenaLimitFn(void *user, size_t wanted, bool refused);

typedef struct Arena {
    ArenaBlock *head;
    size_t used;  /* bytes taken from the system so far */
    size_t limit; /* 0: none */
    ArenaLimitFn *on_limit;
    void *user;
    void *spare[ARENA_SPARES]; /* given back by arena_return: a list for each power of two */
} Arena;

void arena_init(Arena *arena, size_t limit, ArenaLimitFn *on_limit, void *user);
void arena_free(Arena *arena);

/* `bytes` bytes, zeroed, aligned to 16. Never NULL. */
void *arena_alloc(Arena *arena, size_t bytes);
/* The same for `count` elements of `size` bytes; an overflowing product counts as passing the
 * limit. */
void *arena_array(Arena *arena, size_t count, size_t size);
void *arena_copy(Arena *arena, const void *data, size_t bytes);
/* For tables that a walk needs only while it lasts: zeroed memory that goes back with arena_return,
 * to be borrowed again. `bytes` is a power of two, no less than a pointer's, and the same in both.
 */
void *arena_borrow(Arena *arena, size_t bytes);
void arena_return(Arena *arena, void *data, size_t bytes);
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args);

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, count, type)                                                            \
    ((type *)arena_array((arena), (size_t)(count), sizeof(type)))

/* A growing array in an arena: `items`, `n` used, `cap` allotted. Old storage stays in the arena.
 *     VEC(Op *) ops; vec_push(arena, &ops, op);                                                  */
#define VEC(type)                                                                                  \
    struct {                                                                                       \
        type *items;                                                                               \
        int n, cap;                                                                                \
    }
#define vec_push(arena, vec, item)                                                                 \
    ((vec)->n == (vec)->cap ? (void)((vec)->items = arena_grow((arena), (vec)->items, &(vec)->cap, \
                                                               sizeof *(vec)->items))              \
                            : (void)0,                                                             \
     (vec)->items[(vec)->n++] = (item))
void *arena_grow(Arena *arena, void *items, int *cap, size_t item_size);

/* A growing text; with a sink, one that is handed on piece by piece and not kept: text_get gives
 * what is left to be handed on. */
typedef void TextSink(void *user, const char *piece, size_t length);
typedef struct Text {
    Arena *arena;
    char *data; /* zero-terminated once anything was added */
    size_t length, cap;
    TextSink *sink; /* NULL: the whole text is in data */
    void *user;
} Text;

Text text_new(Arena *arena);
/* A text with a sink. After the last piece, text_flush. */
Text text_to(Arena *arena, TextSink *sink, void *user);
void text_flush(Text *text);
void text_add(Text *text, const char *piece);
void text_addn(Text *text, const char *piece, size_t length);
void text_addf(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text so far, "" if empty. */
const char *text_get(const Text *text);

/* A map from strings to pointers, in an arena; keys are copied. */
typedef struct StrMap {
    Arena *arena;
    struct StrEntry *slots;
    int n, cap;
} StrMap;

void strmap_init(StrMap *map, Arena *arena);
/* The place of `key`'s value; a new place holds NULL. */
void **strmap_put(StrMap *map, const char *key);
/* The value, or NULL. */
void *strmap_get(const StrMap *map, const char *key);
/* The i-th value in no particular but always the same order; NULL past the end. */
void *strmap_at(const StrMap *map, int i);

uint64_t fnv1a(const void *data, size_t bytes, uint64_t seed);
#define FNV_SEED 0xcbf29ce484222325u

#endif
