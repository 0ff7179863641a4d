/* See regex.h. The pattern becomes a tree, the tree an automaton of single steps (Thompson's), that
 * one a deterministic automaton by sets of states. Anchors and word boundaries are conditions on
 * free steps: a set is closed under free steps only when the byte before and the one behind are
 * known, so a state is a set that is not closed yet and the kind of the byte before. */
#include "compiler/onnx/regex.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH  200
#define MAX_REPEAT 1000
#define MAX_STEPS  20000     /* states of the first automaton */
#define MAX_STATES 4000      /* and of the second */
#define MAX_WORK   400000000 /* looks at steps while the second one is made */
#define MAX_LEADS  (1 << 20) /* entries of Search.leads */
#define MAX_CODE   0x10ffffu

/* --- the tree --------------------------------------------------------------------------------- */

typedef enum Kind { RE_empty, RE_set, RE_cat, RE_alt, RE_repeat, RE_assert } Kind;

typedef enum Assert { AT_begin, AT_end, AT_boundary, AT_inside } Assert;

typedef struct Range {
    uint32_t from, to;
} Range;

typedef struct Tree {
    Kind kind;
    struct Tree *a, *b; /* cat, alt; repeat: a */
    int least, most;    /* repeat; most -1: without end */
    Assert at;          /* assert */
    VEC(Range) ranges;  /* set */
} Tree;

typedef struct Parser {
    Arena *arena;
    const unsigned char *p;
    bool fold, dot_all; /* flags i and s */
    int depth;
    RegexResult result;
    const char *message;
    jmp_buf fail;
} Parser;

static _Noreturn void fail(Parser *r, RegexResult result, const char *message) {
    r->result = result;
    r->message = message;
    longjmp(r->fail, 1);
}

static Tree *tree(Parser *r, Kind kind, Tree *a, Tree *b) {
    Tree *t = ARENA_NEW(r->arena, Tree);
    t->kind = kind;
    t->a = a;
    t->b = b;
    return t;
}

static void add_range(Parser *r, Tree *set, uint32_t from, uint32_t to) {
    vec_push(r->arena, &set->ranges, ((Range){from, to}));
}

/* The same with the other case of ASCII letters, where the flag is set. */
static void add_folded(Parser *r, Tree *set, uint32_t from, uint32_t to) {
    add_range(r, set, from, to);
    for (uint32_t c = 'a'; c <= 'z' && r->fold; c++) {
        uint32_t upper = c - 32;
        if (c >= from && c <= to) add_range(r, set, upper, upper);
        if (upper >= from && upper <= to) add_range(r, set, c, c);
    }
}

static int by_start(const void *a, const void *b) {
    const Range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Sorts the ranges, joins those that touch, and turns them round if `negate`. */
static void settle(Parser *r, Tree *set, bool negate) {
    VEC(Range) out = {0};
    if (set->ranges.n) qsort(set->ranges.items, (size_t)set->ranges.n, sizeof(Range), by_start);
    for (int i = 0; i < set->ranges.n; i++) {
        Range now = set->ranges.items[i];
        Range *last = out.n ? &out.items[out.n - 1] : NULL;
        if (!last || now.from > last->to + 1)
            vec_push(r->arena, &out, now);
        else if (now.to > last->to)
            last->to = now.to;
    }
    set->ranges.n = 0;
    uint32_t from = 0;
    for (int i = 0; i < out.n; i++) {
        Range now = out.items[i];
        if (!negate) {
            add_range(r, set, now.from, now.to);
        } else if (now.from > from) {
            add_range(r, set, from, now.from - 1);
        }
        from = now.to + 1;
    }
    if (negate && from <= MAX_CODE) add_range(r, set, from, MAX_CODE);
}

/* --- reading ---------------------------------------------------------------------------------- */

static uint32_t read_code(Parser *r) {
    uint32_t c = *r->p++;
    int more = c < 0x80                ? 0
               : c >= 0xc2 && c < 0xe0 ? 1
               : c >= 0xe0 && c < 0xf0 ? 2
               : c < 0xf5              ? 3
                                       : -1;
    if (more < 0 || (c >= 0x80 && c < 0xc2)) fail(r, REGEX_wrong, "it is not UTF-8");
    if (more) c &= 0x3fu >> more;
    for (int i = 0; i < more; i++) {
        if ((*r->p & 0xc0) != 0x80) fail(r, REGEX_wrong, "it is not UTF-8");
        c = c << 6 | (*r->p++ & 0x3fu);
    }
    return c;
}

static bool accept(Parser *r, const char *text) {
    size_t n = strlen(text);
    if (strncmp((const char *)r->p, text, n) != 0) return false;
    r->p += n;
    return true;
}

/* Named classes: ranges as pairs of characters. */
static const struct {
    const char *name, *pairs;
} classes[] = {
    {"d", "09"},           {"w", "09AZaz__"},   {"s", "\t\n\f\r  "}, {"alnum", "09AZaz"},
    {"alpha", "AZaz"},     {"ascii", "\1\177"}, {"blank", "\t\t  "}, {"cntrl", "\1\37\177\177"},
    {"digit", "09"},       {"graph", "!~"},     {"lower", "az"},     {"print", " ~"},
    {"punct", "!/:@[`{~"}, {"space", "\t\r  "}, {"upper", "AZ"},     {"word", "09AZaz__"},
    {"xdigit", "09AFaf"},
};

/* Adds the class, or what it leaves out; false if there is no such one. */
static bool add_class(Parser *r, Tree *set, const char *name, size_t length, bool negate) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strlen(classes[i].name) != length || strncmp(classes[i].name, name, length) != 0)
            continue;
        Tree *own = tree(r, RE_set, NULL, NULL);
        for (const char *p = classes[i].pairs; *p; p += 2)
            add_folded(r, own, (uint32_t)p[0], (uint32_t)p[1]);
        settle(r, own, negate);
        for (int k = 0; k < own->ranges.n; k++)
            add_range(r, set, own->ranges.items[k].from, own->ranges.items[k].to);
        return true;
    }
    return false;
}

static int hex_digit(int c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* The character that an escape behind '\' means, where it means one. */
static uint32_t read_escape(Parser *r) {
    static const char letters[] = "afnrtv", means[] = "\a\f\n\r\t\v";
    int c = *r->p;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        r->p++;
        return (uint32_t)means[letter - letters];
    }
    if (c == 'x') {
        bool braces = r->p[1] == '{';
        r->p += 1 + braces;
        uint32_t code = 0;
        int digits = 0;
        for (; hex_digit(*r->p) >= 0 && (braces || digits < 2) && digits < 7; digits++)
            code = code * 16 + (uint32_t)hex_digit(*r->p++);
        if (!digits || (!braces && digits < 2) || code > MAX_CODE || (braces && *r->p++ != '}'))
            fail(r, REGEX_wrong, "a bad \\x");
        return code;
    }
    if (c == 'p' || c == 'P' || c == 'C')
        fail(r, REGEX_unsupported, "classes by Unicode property and \\C are not supported");
    if (!c || hex_digit(c) >= 0 || (c < 0x80 && ((c | 32) >= 'a' && (c | 32) <= 'z')))
        fail(r, REGEX_wrong, "an escape that there is not");
    return read_code(r);
}

/* \d \w \s and their opposites, behind '\'. */
static bool accept_class(Parser *r, Tree *set) {
    char c = (char)*r->p;
    if (!c || !strchr("dDwWsS", c)) return false;
    char name = (char)(c | 32);
    r->p++;
    return add_class(r, set, &name, 1, c != name);
}

static Tree *read_set(Parser *r) {
    Tree *set = tree(r, RE_set, NULL, NULL);
    bool negate = accept(r, "^"), first = true;
    for (; first || *r->p != ']'; first = false) {
        if (!*r->p) fail(r, REGEX_wrong, "a missing ]");
        if (accept(r, "[:")) {
            bool other = accept(r, "^");
            size_t length = strcspn((const char *)r->p, ":]");
            const char *name = (const char *)r->p;
            r->p += length;
            if (!accept(r, ":]") || length < 2 || !add_class(r, set, name, length, other))
                fail(r, REGEX_wrong, "a class that there is not");
            continue;
        }
        bool escape = accept(r, "\\");
        if (escape && accept_class(r, set)) continue;
        uint32_t from = escape ? read_escape(r) : read_code(r), to = from;
        if (r->p[0] == '-' && r->p[1] && r->p[1] != ']') {
            r->p++;
            to = accept(r, "\\") ? read_escape(r) : read_code(r);
            if (to < from) fail(r, REGEX_wrong, "a range that runs backwards");
        }
        add_folded(r, set, from, to);
    }
    r->p++;
    settle(r, set, negate);
    return set;
}

static Tree *read_choice(Parser *r);

/* What stands behind "(?", up to the group's end; NULL: only flags. */
static Tree *read_special(Parser *r) {
    if (accept(r, "P<") || (r->p[0] == '<' && r->p[1] != '=' && r->p[1] != '!' && accept(r, "<"))) {
        size_t length = strcspn((const char *)r->p, ">)");
        r->p += length;
        if (!length || !accept(r, ">")) fail(r, REGEX_wrong, "a bad name of a group");
        return read_choice(r);
    }
    bool fold = r->fold, dot_all = r->dot_all, set = true;
    for (;; r->p++) {
        if (*r->p == ':' || *r->p == ')') break;
        if (*r->p == '-' && set)
            set = false;
        else if (*r->p == 'i')
            r->fold = set;
        else if (*r->p == 's')
            r->dot_all = set;
        else if (*r->p == 'm' && set)
            fail(r, REGEX_unsupported, "the flag m is not supported");
        else if (*r->p != 'U' && *r->p != 'm')
            fail(r, REGEX_wrong, "a group that there is not");
    }
    if (*r->p == ')') return NULL; /* the flags hold up to the end of the group around */
    r->p++;
    Tree *t = read_choice(r);
    r->fold = fold;
    r->dot_all = dot_all;
    return t;
}

static Tree *read_group(Parser *r) {
    bool fold = r->fold, dot_all = r->dot_all;
    if (++r->depth > MAX_DEPTH) fail(r, REGEX_unsupported, "groups nest more than 200 deep");
    bool special = accept(r, "?");
    Tree *t = special ? read_special(r) : read_choice(r);
    r->depth--;
    if (!accept(r, ")")) fail(r, REGEX_wrong, "a missing )");
    if (!t) return tree(r, RE_empty, NULL, NULL);
    r->fold = fold;
    r->dot_all = dot_all;
    return t;
}

static Tree *assertion(Parser *r, Assert at) {
    Tree *t = tree(r, RE_assert, NULL, NULL);
    t->at = at;
    return t;
}

static Tree *read_atom(Parser *r) {
    if (accept(r, "(")) return read_group(r);
    if (accept(r, "[")) return read_set(r);
    if (accept(r, "^") || accept(r, "\\A")) return assertion(r, AT_begin);
    if (accept(r, "$") || accept(r, "\\z")) return assertion(r, AT_end);
    if (accept(r, "\\b")) return assertion(r, AT_boundary);
    if (accept(r, "\\B")) return assertion(r, AT_inside);
    if (strchr("*+?", *r->p)) fail(r, REGEX_wrong, "a repetition of nothing");
    Tree *set = tree(r, RE_set, NULL, NULL);
    if (accept(r, ".")) {
        if (!r->dot_all) add_range(r, set, '\n', '\n');
        settle(r, set, true);
        return set;
    }
    bool escape = accept(r, "\\");
    if (escape && accept_class(r, set)) return set;
    uint32_t c = escape ? read_escape(r) : read_code(r);
    add_folded(r, set, c, c);
    settle(r, set, false);
    return set;
}

/* {n}, {n,}, {n,m}; what is none is literal text. */
static bool accept_counts(Parser *r, int *least, int *most) {
    const unsigned char *start = r->p;
    long number[2] = {-1, -1};
    bool comma = false;
    if (!accept(r, "{")) return false;
    for (int i = 0; i < 2; i++) {
        for (; *r->p >= '0' && *r->p <= '9'; r->p++) {
            number[i] = (number[i] < 0 ? 0 : number[i]) * 10 + (*r->p - '0');
            if (number[i] > MAX_REPEAT) fail(r, REGEX_wrong, "a count above 1000");
        }
        if (i == 0) comma = accept(r, ",");
        if (!comma) break;
    }
    if (number[0] < 0 || !accept(r, "}")) {
        r->p = start;
        return false;
    }
    *least = (int)number[0];
    *most = comma ? (int)number[1] : *least;
    if (*most >= 0 && *most < *least) fail(r, REGEX_wrong, "counts that run backwards");
    return true;
}

static Tree *read_repeat(Parser *r) {
    Tree *t = read_atom(r);
    bool again = false;
    for (;; again = true) {
        int least = 0, most = -1;
        if (accept(r, "+"))
            least = 1;
        else if (accept(r, "?"))
            most = 1;
        else if (!accept(r, "*") && !accept_counts(r, &least, &most))
            return t;
        if (again) fail(r, REGEX_wrong, "a repetition of a repetition");
        accept(r, "?"); /* lazy */
        t = tree(r, RE_repeat, t, NULL);
        t->least = least;
        t->most = most;
    }
}

static Tree *read_choice(Parser *r) {
    Tree *all = NULL;
    do {
        Tree *row = NULL;
        while (*r->p && *r->p != '|' && *r->p != ')') {
            Tree *t = read_repeat(r);
            row = row ? tree(r, RE_cat, row, t) : t;
        }
        if (!row) row = tree(r, RE_empty, NULL, NULL);
        all = all ? tree(r, RE_alt, all, row) : row;
    } while (accept(r, "|"));
    return all;
}

/* --- single steps ----------------------------------------------------------------------------- */

typedef struct Step {
    enum { STEP_byte, STEP_fork, STEP_assert, STEP_match } kind;
    uint8_t from, to; /* byte */
    Assert at;
    int next, other; /* other: fork */
} Step;

typedef struct Steps {
    Parser *r;
    VEC(Step) all;
} Steps;

static int add_step(Steps *s, Step step) {
    if (s->all.n >= MAX_STEPS) fail(s->r, REGEX_unsupported, "it is too large");
    vec_push(s->r->arena, &s->all, step);
    return s->all.n - 1;
}

static int fork_to(Steps *s, int a, int b) {
    if (a < 0 || b < 0) return a < 0 ? b : a;
    return add_step(s, (Step){.kind = STEP_fork, .next = a, .other = b});
}

static int encode(uint32_t c, uint8_t *byte) {
    if (c < 0x80) {
        byte[0] = (uint8_t)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) byte[i] = (uint8_t)(0x80 | (c & 0x3f));
    byte[0] = (uint8_t)((0xf00 >> n & 0xff) | c);
    return n;
}

/* Steps over the bytes of the characters from .. to, then `next`; or (other >= 0) `other`. Ranges
 * are cut until the bytes of all characters in one are those of a box. */
static int add_codes(Steps *s, uint32_t from, uint32_t to, int next, int other) {
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xffff};
    if (from == 0) from = 1; /* no string holds a zero */
    if (from > to) return other;
    for (int i = 0; i < 3; i++)
        if (from <= ends[i] && to > ends[i])
            return add_codes(s, ends[i] + 1, to, next, add_codes(s, from, ends[i], next, other));
    for (int i = 1; i < 4 && to > 0x7f; i++) {
        uint32_t low = (1u << 6 * i) - 1;
        if ((from & ~low) == (to & ~low)) break;
        if (from & low)
            return add_codes(s, (from | low) + 1, to, next,
                             add_codes(s, from, from | low, next, other));
        if ((to & low) != low)
            return add_codes(s, to & ~low, to, next,
                             add_codes(s, from, (to & ~low) - 1, next, other));
    }
    uint8_t first[4], last[4];
    int n = encode(from, first), at = next;
    encode(to, last);
    for (int i = n - 1; i >= 0; i--)
        at = add_step(s, (Step){.kind = STEP_byte, .from = first[i], .to = last[i], .next = at});
    return fork_to(s, at, other);
}

/* Steps through the tree and then to `next`; -1: there is no way. */
static int add_tree(Steps *s, const Tree *t, int next) {
    if (next < 0) return -1;
    switch (t->kind) {
    case RE_empty:
        return next;
    case RE_set: {
        int at = -1;
        for (int i = 0; i < t->ranges.n; i++)
            at = add_codes(s, t->ranges.items[i].from, t->ranges.items[i].to, next, at);
        return at;
    }
    case RE_cat:
        return add_tree(s, t->a, add_tree(s, t->b, next));
    case RE_alt: {
        int a = add_tree(s, t->a, next);
        return fork_to(s, a, add_tree(s, t->b, next));
    }
    case RE_assert:
        return add_step(s, (Step){.kind = STEP_assert, .at = t->at, .next = next});
    case RE_repeat:
        break;
    }
    int at = next;
    if (t->most < 0) {
        at = add_step(s, (Step){.kind = STEP_fork, .next = next, .other = next});
        int body = add_tree(s, t->a, at);
        if (body >= 0) s->all.items[at].other = body;
    }
    for (int i = t->least; i < t->most; i++) at = fork_to(s, add_tree(s, t->a, at), next);
    for (int i = 0; i < t->least; i++) at = add_tree(s, t->a, at);
    return at;
}

/* --- sets of states --------------------------------------------------------------------------- */

/* What is before a position, or behind it: an end of the string, a letter of a word, another byte.
 */
typedef enum Side { SIDE_end, SIDE_word, SIDE_other } Side;

typedef struct State {
    uint64_t *set; /* of steps */
    uint64_t hash; /* of the set */
    Side before;
    int64_t chars; /* read so far, up to the least number of a match */
} State;

typedef struct Sets {
    Steps *s;
    size_t words; /* of a set */
    VEC(State) states;
    int *stack;
    bool begins[256]; /* bytes that not all steps take for the one before */
    bool sides;       /* it matters what is before */
    int64_t least;
    int64_t work;
} Sets;

static bool has(const uint64_t *set, int i) {
    return set[i / 64] >> i % 64 & 1;
}

static void put(uint64_t *set, int i) {
    set[i / 64] |= (uint64_t)1 << i % 64;
}

static bool holds(Assert at, Side before, Side behind) {
    switch (at) {
    case AT_begin:
        return before == SIDE_end;
    case AT_end:
        return behind == SIDE_end;
    case AT_boundary:
        return (before == SIDE_word) != (behind == SIDE_word);
    default:
        return (before == SIDE_word) == (behind == SIDE_word);
    }
}

/* All steps that free ones lead to. True if the end is among them. */
static bool close_set(Sets *d, const State *from, Side behind, uint64_t *out) {
    const Step *steps = d->s->all.items;
    int n = 0;
    bool match = false;
    memcpy(out, from->set, d->words * sizeof *out);
    for (int i = 0; i < d->s->all.n; i++)
        if (has(out, i)) d->stack[n++] = i;
    while (n) {
        const Step *step = &steps[d->stack[--n]];
        int to[2] = {-1, -1};
        match |= step->kind == STEP_match;
        if (step->kind == STEP_fork) {
            to[0] = step->next;
            to[1] = step->other;
        } else if (step->kind == STEP_assert && holds(step->at, from->before, behind)) {
            to[0] = step->next;
        }
        for (int k = 0; k < 2; k++)
            if (to[k] >= 0 && !has(out, to[k])) {
                put(out, to[k]);
                d->stack[n++] = to[k];
            }
    }
    return match;
}

/* The number of a state, a new one if there is none like it. */
static int state_of(Sets *d, const uint64_t *set, Side before, int64_t chars) {
    bool empty = true;
    uint64_t hash = 0;
    for (size_t i = 0; i < d->words; i++) {
        empty &= set[i] == 0;
        hash = (hash ^ set[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    if (empty || !d->sides) before = SIDE_end; /* what was before does not matter (any more) */
    if (empty) chars = 0;
    for (int i = 0; i < d->states.n; i++) {
        const State *state = &d->states.items[i];
        if (state->hash == hash && state->before == before && state->chars == chars &&
            !memcmp(state->set, set, d->words * sizeof *set))
            return i;
    }
    if (d->states.n == MAX_STATES) fail(d->s->r, REGEX_unsupported, "it is too large");
    State state = {arena_copy(d->s->r->arena, set, d->words * sizeof *set), hash, before, chars};
    vec_push(d->s->r->arena, &d->states, state);
    return d->states.n - 1;
}

static bool is_word(int c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* Fills next[256] of a state. */
static void fill_row(Sets *d, int state, int32_t *next, uint64_t *closed, uint64_t *after) {
    for (int side = SIDE_word; side <= SIDE_other; side++) {
        close_set(d, &d->states.items[state], (Side)side, closed);
        for (int c = 1; c < 256; c++) {
            if (is_word(c) != (side == SIDE_word)) continue;
            if (!d->begins[c]) {
                next[c] = next[c - 1];
                continue;
            }
            memset(after, 0, d->words * sizeof *after);
            for (int i = 0; i < d->s->all.n; i++) {
                const Step *step = &d->s->all.items[i];
                d->work++;
                if (!has(closed, i)) {
                    if (!closed[i / 64]) i |= 63; /* nothing in this word */
                    continue;
                }
                if (step->kind == STEP_byte && c >= step->from && c <= step->to)
                    put(after, step->next);
            }
            if (d->work > MAX_WORK) fail(d->s->r, REGEX_unsupported, "it is too large");
            int64_t chars = d->states.items[state].chars;
            if (chars < d->least) chars += (c & 0xc0) != 0x80;
            next[c] = state_of(d, after, (Side)side, chars);
        }
    }
    next[0] = state;
}

/* --- classes of bytes ------------------------------------------------------------------------- */

/* rows: [n_states, 256]. Bytes with equal columns become one class. */
static void join_columns(Arena *arena, const int32_t *rows, Automaton *out) {
    int sample[256]; /* a byte of each class */
    for (int c = 0; c < 256; c++) {
        int k = 0;
        for (; k < out->n_classes; k++) {
            int s = 0;
            while (s < out->n_states && rows[s * 256 + c] == rows[s * 256 + sample[k]]) s++;
            if (s == out->n_states) break;
        }
        if (k == out->n_classes) sample[out->n_classes++] = c;
        out->class_of[c] = (uint8_t)k;
    }
    out->next = ARENA_ARRAY(arena, out->n_states * out->n_classes, int32_t);
    for (int s = 0; s < out->n_states; s++)
        for (int k = 0; k < out->n_classes; k++)
            out->next[s * out->n_classes + k] = rows[s * 256 + sample[k]];
}

/* least: 0, or how many characters a match must have. */
static void init_sets(Sets *d, Steps *s, int64_t least) {
    Arena *arena = s->r->arena;
    *d = (Sets){.s = s, .words = (size_t)s->all.n / 64 + 1, .least = least, .sides = !least};
    d->stack = ARENA_ARRAY(arena, s->all.n + 1, int);
    for (int c = 1; c < 256; c++) d->begins[c] = c == 1 || is_word(c) != is_word(c - 1);
    if (least) d->begins[0x80] = d->begins[0xc0] = true;
    for (int i = 0; i < s->all.n; i++) {
        const Step *step = &s->all.items[i];
        d->sides |= step->kind == STEP_assert;
        if (step->kind != STEP_byte) continue;
        d->begins[step->from] = true;
        if (step->to < 255) d->begins[step->to + 1] = true;
    }
}

/* Adds all states that those there lead to. Returns where they lead, [states, 256]. */
static int32_t *find_states(Sets *d) {
    Arena *arena = d->s->r->arena;
    uint64_t *closed = ARENA_ARRAY(arena, d->words, uint64_t);
    uint64_t *after = ARENA_ARRAY(arena, d->words, uint64_t);
    VEC(int32_t *) rows = {0};
    for (int i = 0; i < d->states.n; i++) {
        vec_push(arena, &rows, ARENA_ARRAY(arena, 256, int32_t));
        fill_row(d, i, rows.items[i], closed, after);
    }
    int32_t *all = ARENA_ARRAY(arena, d->states.n * 256, int32_t);
    for (int i = 0; i < d->states.n; i++) memcpy(all + i * 256, rows.items[i], 256 * sizeof *all);
    return all;
}

static void determine(Steps *s, int start, Automaton *out) {
    Arena *arena = s->r->arena;
    Sets d;
    init_sets(&d, s, 0);
    uint64_t *set = ARENA_ARRAY(arena, d.words, uint64_t);
    if (start >= 0) put(set, start);
    out->start = state_of(&d, set, SIDE_end, 0);
    int32_t *rows = find_states(&d);
    out->n_states = d.states.n;
    out->accept = ARENA_ARRAY(arena, out->n_states, uint8_t);
    for (int i = 0; i < out->n_states; i++)
        out->accept[i] = close_set(&d, &d.states.items[i], SIDE_end, set);
    join_columns(arena, rows, out);
}

/* --- searching -------------------------------------------------------------------------------- */

static Side side_of(int byte) {
    return !byte ? SIDE_end : is_word(byte) ? SIDE_word : SIDE_other;
}

/* Search.apart. accept, sample: as below. */
static bool stand_apart(const Search *s, const uint8_t *accept, const int *sample) {
    const Automaton *m = &s->ahead;
    static const uint8_t before[] = {0, 'a', ' '}; /* one of each side */
    for (int side = SIDE_end; side <= SIDE_other; side++) {
        const int32_t *begin = m->next + s->start_of[before[side]] * m->n_classes;
        for (int q = 0; q < m->n_states; q++)
            for (int k = 0; k < m->n_classes; k++) {
                int to = m->next[q * m->n_classes + k];
                if (!accept[(int)side_of(sample[k]) * m->n_states + q]) continue;
                for (int i = 0; i < s->back.n_states; i++) {
                    const uint8_t *leads = s->leads + i * m->n_states;
                    if (!leads[to] && leads[begin[k]]) return false;
                }
            }
    }
    return true;
}

/* The automaton that reads backwards: sets of states of `ahead`. accept: where a match may end, by
 * what is behind, [3, states]; sample: a byte of each class. */
static void look_back(Steps *s, const uint8_t *accept, const int *sample, Search *out) {
    Arena *arena = s->r->arena;
    const Automaton *m = &out->ahead;
    Sets d = {.s = s, .words = (size_t)m->n_states / 64 + 1};
    uint64_t *set = ARENA_ARRAY(arena, d.words, uint64_t);
    VEC(int32_t) next = {0};
    for (int q = 0; q < m->n_states; q++)
        if (accept[q]) put(set, q);
    out->back = (Automaton){.start = state_of(&d, set, SIDE_end, 0), .n_classes = m->n_classes};
    for (int i = 0; i < d.states.n; i++) {
        if ((int64_t)d.states.n * m->n_states > MAX_LEADS ||
            (d.work += (int64_t)m->n_classes * m->n_states) > MAX_WORK)
            fail(s->r, REGEX_unsupported, "it is too large");
        for (int k = 0; k < m->n_classes; k++) {
            const uint8_t *ends = accept + (int)side_of(sample[k]) * m->n_states;
            memset(set, 0, d.words * sizeof *set);
            for (int q = 0; q < m->n_states; q++)
                if (ends[q] || has(d.states.items[i].set, m->next[q * m->n_classes + k]))
                    put(set, q);
            vec_push(arena, &next, state_of(&d, set, SIDE_end, 0));
        }
    }
    out->back.n_states = d.states.n;
    out->back.next = next.items;
    memcpy(out->back.class_of, m->class_of, sizeof m->class_of);
    out->leads = ARENA_ARRAY(arena, d.states.n * m->n_states, uint8_t);
    for (int i = 0; i < d.states.n; i++)
        for (int q = 0; q < m->n_states; q++)
            out->leads[i * m->n_states + q] = has(d.states.items[i].set, q);
    out->apart = stand_apart(out, accept, sample);
}

static void determine_search(Steps *s, int start, int64_t least, Search *out) {
    Arena *arena = s->r->arena;
    Automaton *m = &out->ahead;
    Sets d;
    init_sets(&d, s, least);
    uint64_t *set = ARENA_ARRAY(arena, d.words, uint64_t);
    state_of(&d, set, SIDE_end, 0);
    if (start >= 0) put(set, start);
    out->start_of = ARENA_ARRAY(arena, 256, int32_t);
    for (int c = 0; c < 256; c++) out->start_of[c] = state_of(&d, set, side_of(c), 0);
    int32_t *rows = find_states(&d);
    /* a further row, which keeps bytes apart whose sides matter */
    m->n_states = d.states.n + 1;
    int32_t *more = ARENA_ARRAY(arena, m->n_states * 256, int32_t);
    memcpy(more, rows, (size_t)d.states.n * 256 * sizeof *more);
    for (int i = 0; i < d.states.n; i++) more[i * 256] = 0;
    for (int c = 0; c < 256 && d.sides; c++) more[d.states.n * 256 + c] = (int32_t)side_of(c);
    join_columns(arena, more, m);
    m->n_states--;
    int sample[256];
    for (int c = 255; c >= 0; c--) sample[m->class_of[c]] = c;
    uint8_t *accept = ARENA_ARRAY(arena, 3 * m->n_states, uint8_t);
    for (int side = SIDE_end; side <= SIDE_other; side++)
        for (int i = 0; i < m->n_states; i++) {
            bool match = close_set(&d, &d.states.items[i], (Side)side, set);
            out->empty |= match && d.states.items[i].chars == 0;
            accept[side * m->n_states + i] = match && d.states.items[i].chars >= least;
        }
    look_back(s, accept, sample, out);
}

/* Compiles the pattern; one of `full` and `search` is NULL. */
static RegexResult compile(Arena *arena, const char *pattern, int64_t least, Automaton *full,
                           Search *search, const char **message) {
    Parser *r = ARENA_NEW(arena, Parser);
    *r = (Parser){.arena = arena, .p = (const unsigned char *)pattern};
    if (setjmp(r->fail)) {
        *message = r->message;
        return r->result;
    }
    Tree *t = read_choice(r);
    if (*r->p) fail(r, REGEX_wrong, "a ) without a (");
    Steps s = {.r = r};
    int end = add_step(&s, (Step){.kind = STEP_match}), start = add_tree(&s, t, end);
    if (full)
        determine(&s, start, full);
    else
        determine_search(&s, start, least, search);
    return REGEX_ok;
}

RegexResult regex_compile(Arena *arena, const char *pattern, Automaton *out, const char **message) {
    *out = (Automaton){0};
    return compile(arena, pattern, 0, out, NULL, message);
}

RegexResult regex_search(Arena *arena, const char *pattern, int64_t least, Search *out,
                         const char **message) {
    *out = (Search){0};
    return compile(arena, pattern, least, NULL, out, message);
}

/* State i: the i last bytes are the first i of the word (Knuth, Morris and Pratt). */
void automaton_of_word(Arena *arena, const char *word, Automaton *out) {
    int n = (int)strlen(word);
    *out = (Automaton){.n_states = n + 1};
    int32_t *rows = ARENA_ARRAY(arena, (n + 1) * 256, int32_t);
    out->accept = ARENA_ARRAY(arena, n + 1, uint8_t);
    out->accept[n] = 1;
    int shorter = 0; /* where the state's longest proper suffix leads */
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)word[i];
        for (int k = 1; k < 256; k++) rows[i * 256 + k] = i ? rows[shorter * 256 + k] : 0;
        rows[i * 256 + c] = i + 1;
        if (i) shorter = rows[shorter * 256 + c];
    }
    memcpy(rows + n * 256, rows, 256 * sizeof *rows); /* a new occurrence begins behind the last */
    for (int i = 0; i <= n; i++) rows[i * 256] = i;
    join_columns(arena, rows, out);
}
