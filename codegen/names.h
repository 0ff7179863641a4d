/* Names in generated code: C identifiers made of the model's names, unique in their scope. */
#ifndef CODEGEN_NAMES_H
#define CODEGEN_NAMES_H

#include "ir/arena.h"

#include <stdbool.h>

/* The names taken in one scope, and those of the scope around it. */
typedef struct Names {
    Arena *arena;
    const struct Names *outer;
    StrMap taken;
} Names;

/* reserved: NULL-terminated words that no name may be (keywords, functions of the language). */
void names_init(Names *names, Arena *arena, const Names *outer, const char *const *reserved);
bool names_taken(const Names *names, const char *name);
/* An identifier like `wanted`, not taken yet; it is taken from now on. Characters that C does not
 * allow become '_'; a number is added where the name is taken. `fallback` stands in for NULL and
 * "". */
const char *names_take(Names *names, const char *wanted, const char *fallback);
/* Takes `name` of the inner scope in the outer one too, or gives it back there. */
void names_claim(Names *names, const char *name, bool claim);
/* `text` as the inside of a comment: no comment marks, no control characters, no backslashes. */
const char *comment_text(Arena *arena, const char *text);
/* `text` in upper case. */
const char *upper_case(Arena *arena, const char *text);
/* `text` as a C string literal with its quotes. */
const char *c_string(Arena *arena, const char *text);

#endif
