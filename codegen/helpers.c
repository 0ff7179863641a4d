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

/* `text` is a literal that is all of an argument or of parentheses: its length; else 0. */
static size_t literal_length(const char *text) {
    size_t n = strspn(text, "-"), more = strspn(text + n, "0123456789.abcdefxu+-");
    bool ends = text[n + more] == ')' || text[n + more] == ',';
    return n <= 1 && isdigit((unsigned char)text[n]) && ends ? n + more : 0;
}

/* A word of a function on vectors: types and the functions that it calls are of vectors too.
 * Integers are converted to each other as they are. */
static void translate_word(const char *text, size_t length, int lanes, Text *out) {
    DType dt = type_word(text, length);
    const char *name = dt ? dt_name(dt) : "";
    if (length == 13 && !memcmp(text, "mlcc_f32_bits", length))
        text_addf(out, "(mlcc_u32x%d)", lanes);
    else if (length == 13 && !memcmp(text, "mlcc_bits_f32", length))
        text_addf(out, "(mlcc_f32x%d)", lanes);
    else if (dt == DT_f32 && text[length] == '(') /* of a name */
        text_add(out, "__builtin_convertvector");
    else if (dt)
        text_addf(out, text[length] == '(' ? "(mlcc_%sx%d)" : "mlcc_%sx%d", name, lanes);
    else if (length > 9 && !memcmp(text, "mlcc_", 5))
        text_addf(out, "mlcc_lane_%.*sx%d", (int)length - 9, text + 5, lanes);
    else
        text_addn(out, text, length);
}

/* translate for functions on vectors. */
static void translate_lanes(const char *text, int lanes, Text *out) {
    bool converts = false;
    while (*text) {
        size_t length = word_length(text);
        if (length) {
            converts |= !strncmp(text, "F32(", 4);
            translate_word(text, length, lanes, out);
            text += length;
            continue;
        }
        char c = *text;
        bool between = c == ' ' && text[-1] == ',';
        if (c == ')' && converts) text_addf(out, ", mlcc_f32x%d", lanes);
        if (c == ')') converts = false;
        do text_addn(out, text++, 1);
        while (*text && is_word(text[-1]) && is_word(*text)); /* the rest of a number */
        size_t literal = c == '(' || between ? literal_length(text) : 0;
        if (!literal) continue;
        const char *type = text[literal - 1] == 'u' ? "u32" : "f32";
        text_addf(out, "(%.*s - (mlcc_%sx%d){0})", (int)literal, text, type, lanes);
        text += literal;
    }
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

bool unit_lane_helper(Unit *unit, const char *name, int lanes) {
    const Helper *h = find_helper(unit, arena_printf(unit->arena, "mlcc_%s_f32", name));
    if (!h) return false;
    if (!unit->lane_helpers)
        unit->lane_helpers = ARENA_ARRAY(unit->arena, sizeof helpers / sizeof *helpers, uint8_t);
    uint8_t *noted = &unit->lane_helpers[h - helpers];
    if (*noted & lanes) return true;
    *noted |= (uint8_t)lanes;
    Text text = text_new(unit->arena);
    translate_lanes(h->head, lanes, &text);
    translate_lanes(h->body, lanes, &text);
    for (const char *at = text_get(&text); (at = strstr(at, "mlcc_"));) {
        size_t length = word_length(at), digits = length;
        while (isdigit((unsigned char)at[digits - 1])) digits--;
        if (!strncmp(at, "mlcc_lane_", 10))
            unit_lane_function(unit, arena_strndup(unit->arena, at + 10, digits - 11), lanes);
        at += length;
    }
    unit_note_vectors(unit, text_get(&text));
    return true;
}

static void print_function(const char *begin, const char *head, const char *body, Text *out) {
    text_addf(out, "%s%s {\n", begin, head);
    while (*body) {
        size_t length = strcspn(body, "\n");
        text_addf(out, "    %.*s\n", (int)length, body);
        body += length + (body[length] == '\n');
    }
    text_add(out, "}\n\n");
}

void print_lane_helpers(const Unit *unit, const char *begin, Text *out) {
    for (size_t i = 0; unit->lane_helpers && i < sizeof helpers / sizeof *helpers; i++)
        for (int lanes = 4; lanes <= 16; lanes *= 2) {
            if (!(unit->lane_helpers[i] & lanes)) continue;
            Text head = text_new(unit->arena), body = text_new(unit->arena);
            translate_lanes(helpers[i].head, lanes, &head);
            translate_lanes(helpers[i].body, lanes, &body);
            print_function(begin, text_get(&head), text_get(&body), out);
        }
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

#define SHORT_BODY 200 /* characters, of a minimum, a shift, a rounding */

void unit_print_helpers(Unit *unit, const char *text, Text *out) {
    static const char inlined[] = "static inline __attribute__((always_inline)) ";
    StrMap used;
    strmap_init(&used, unit->arena);
    find_used(unit, text, &used);
    /* helpers.def has callees before callers */
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) {
        const char *at = strchr(helpers[i].head, ' ') + 1;
        const char *name = arena_strndup(unit->arena, at, strcspn(at, "("));
        if (strmap_get(&used, name) != &helpers[i]) continue;
        Text head = text_new(unit->arena), body = text_new(unit->arena);
        translate(unit, helpers[i].head, &head);
        translate(unit, helpers[i].body, &body);
        const bool by_force = unit->inlines && body.length <= SHORT_BODY;
        print_function(by_force ? inlined : unit->dialect->function, text_get(&head),
                       text_get(&body), out);
    }
}
