/* The functions that generated code needs beyond its language's own; see helpers.def. */
#include "codegen/cprint.h"

#include <ctype.h>
#include <string.h>

typedef struct Helper {
    unsigned dialects;
    const char *head; /* result type, name, parameters */
    const char *body;
} Helper;

static const Helper helpers[] = {
#define HELPER(dialects, head, body) {dialects, head, body},
#include "codegen/helpers.def"
};

#define WORD "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* The length of the identifier at `text`; 0 if there is none. */
static size_t word_length(const char *text) {
    size_t n = 0;
    if (isdigit((unsigned char)*text)) return 0;
    while (is_word(text[n])) n++;
    return n;
}

static const Helper *find_helper(const Unit *unit, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) {
        const char *at = strchr(helpers[i].head, ' ') + 1;
        if ((helpers[i].dialects & unit->dialect->helpers) && !strncmp(at, name, length) &&
            at[length] == '(')
            return &helpers[i];
    }
    return NULL;
}

typedef struct TypeWord {
    const char *word;
    DType dt;
} TypeWord;

static DType type_word(const char *text, size_t length) {
    static const TypeWord words[] = {{"F32", DT_f32},  {"F64", DT_f64}, {"I32", DT_i32},
                                     {"U32", DT_u32},  {"I64", DT_i64}, {"U64", DT_u64},
                                     {"BOOL", DT_bool}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == length && !memcmp(text, words[i].word, length))
            return words[i].dt;
    return DT_none;
}

/* Replaces the type words: `F32 x` by the type, `F32(x)` by a conversion. Notes what is needed. */
static void translate(Unit *unit, const char *text, Text *out) {
    const Dialect *d = unit->dialect;
    while (*text) {
        size_t length = word_length(text);
        if (!length) {
            do text_addn(out, text++, 1);
            while (*text && is_word(text[-1]) && is_word(*text)); /* the rest of a number */
            continue;
        }
        DType dt = type_word(text, length);
        if (!dt) {
            text_addn(out, text, length);
        } else if (text[length] == '(' && !d->call_casts) {
            text_addf(out, "(%s)", d->reg[dt]);
            size_t word = strspn(text + length + 1, WORD);
            if (text[length + 1 + word] == ')') { /* a name or number needs no parentheses */
                text_addn(out, text + length + 1, word);
                text += word + 2;
            }
        } else {
            text_add(out, d->reg[dt]);
        }
        text += length;
    }
}

static void note_words(Unit *unit, const char *text) {
    const Dialect *d = unit->dialect;
    while (*text) {
        size_t length = word_length(text);
        if (!length) {
            text++;
            while (is_word(text[-1]) && is_word(*text)) text++;
            continue;
        }
        DType dt = type_word(text, length);
        if (dt == DT_i64 || dt == DT_u64) unit->needs |= NEEDS_i64;
        if (dt == DT_f64) unit->needs |= NEEDS_f64;
        if (dt == DT_bool) unit->needs |= NEEDS_bool;
        if (!strncmp(text, "mlcc_", 5))
            unit_helper(unit, arena_strndup(unit->arena, text, length));
        else if (d->helpers == IN_c && text[length] == '(' && !dt)
            unit->needs |= NEEDS_math;
        text += length;
    }
}

const char *unit_helper(Unit *unit, const char *name) {
    void **slot = strmap_put(&unit->helpers, name);
    if (*slot) return name;
    const Helper *h = find_helper(unit, name);
    if (!h) return name; /* the compiler of the generated code will name it */
    *slot = (void *)(uintptr_t)h;
    note_words(unit, h->head);
    note_words(unit, h->body);
    return name;
}

/* Notes in `used` the helpers that `text` names, and those that they call. */
static void find_used(const Unit *unit, const char *text, StrMap *used) {
    while ((text = strstr(text, "mlcc_"))) {
        size_t length = word_length(text);
        const char *name = arena_strndup(unit->arena, text, length);
        const Helper *h = find_helper(unit, name);
        void **slot = h ? strmap_put(used, name) : NULL;
        if (slot && !*slot) {
            *slot = (void *)(uintptr_t)h;
            find_used(unit, h->body, used);
        }
        text += length;
    }
}

void unit_print_helpers(Unit *unit, const char *text, Text *out) {
    StrMap used;
    strmap_init(&used, unit->arena);
    find_used(unit, text, &used);
    /* helpers.def has callees before callers */
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) {
        const char *at = strchr(helpers[i].head, ' ') + 1;
        const char *name = arena_strndup(unit->arena, at, strcspn(at, "("));
        if (strmap_get(&used, name) != &helpers[i]) continue;
        text_add(out, unit->dialect->function);
        translate(unit, helpers[i].head, out);
        text_add(out, " {\n");
        Text body = text_new(unit->arena);
        translate(unit, helpers[i].body, &body);
        for (const char *line = text_get(&body); *line;) {
            size_t length = strcspn(line, "\n");
            text_add(out, "    ");
            text_addn(out, line, length);
            text_add(out, "\n");
            line += length + (line[length] == '\n');
        }
        text_add(out, "}\n\n");
    }
}
