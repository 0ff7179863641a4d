/* See names.h. */
#include "codegen/names.h"

#include <stdbool.h>
#include <string.h>

#define LONGEST 40 /* longer names are cut: a line holds two of them */

void names_init(Names *names, Arena *arena, const Names *outer, const char *const *reserved) {
    *names = (Names){.arena = arena, .outer = outer};
    strmap_init(&names->taken, arena);
    for (; reserved && *reserved; reserved++) *strmap_put(&names->taken, *reserved) = names;
}

bool names_taken(const Names *names, const char *name) {
    for (; names; names = names->outer)
        if (strmap_get(&names->taken, name)) return true;
    return false;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

const char *names_take(Names *names, const char *wanted, const char *fallback) {
    char text[LONGEST + 1];
    size_t n = 0;
    if (!wanted || !*wanted) wanted = fallback;
    for (const char *c = wanted; *c && n < LONGEST; c++) {
        bool ok = is_letter(*c) || is_digit(*c);
        if (!ok && (n == 0 || text[n - 1] == '_')) continue; /* no leading, no double '_' */
        if (n == 0 && is_digit(*c)) text[n++] = 'n';
        text[n++] = ok ? *c : '_';
    }
    while (n > 0 && text[n - 1] == '_') n--;
    text[n] = 0;
    const char *base = n ? arena_strdup(names->arena, text) : fallback;
    const char *name = base;
    for (int i = 2; names_taken(names, name); i++)
        name = arena_printf(names->arena, is_digit(base[strlen(base) - 1]) ? "%s_%d" : "%s%d", base,
                            i);
    *strmap_put(&names->taken, name) = names;
    return name;
}

void names_claim(Names *names, const char *name, bool claim) {
    *strmap_put(&names->taken, name) = claim ? names : NULL;
}

const char *comment_text(Arena *arena, const char *text) {
    char *copy = arena_strdup(arena, text ? text : "");
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f || *c == '\\' ||
            (*c == '*' && (c[1] == '/' || (c > copy && c[-1] == '/'))))
            *c = '_';
    return copy;
}

const char *upper_case(Arena *arena, const char *text) {
    char *copy = arena_strdup(arena, text);
    for (char *c = copy; *c; c++)
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
    return copy;
}

const char *c_string(Arena *arena, const char *text) {
    Text t = text_new(arena);
    text_add(&t, "\"");
    for (; text && *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '?')
            text_addf(&t, "\\%03o", (unsigned)c); /* '?': no trigraphs */
        else
            text_addn(&t, text, 1);
    }
    text_add(&t, "\"");
    return text_get(&t);
}
