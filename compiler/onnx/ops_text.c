/* Operators on strings; see text.h. What they compute byte by byte is right for UTF-8 too. */
#include "compiler/onnx/index.h"
#include "compiler/onnx/regex.h"
#include "compiler/onnx/text.h"

#include <string.h>

/* --- two operands ----------------------------------------------------------------------------- */

/* Reads both operands and the shape (of strings) that they broadcast to. */
static bool read_pair(Node *n, Value **v, int *rank, int64_t *shape) {
    for (int i = 0; i < 2; i++)
        if (!(v[i] = node_text(n, i))) return false;
    if (shape_broadcast(n->x, v[0]->rank - 1, v[0]->dims, v[1]->rank - 1, v[1]->dims, rank, shape))
        return true;
    invalid(n, E2005, "input shapes %s and %s do not broadcast",
            shape_text(n->g->arena, v[0]->rank - 1, v[0]->dims),
            shape_text(n->g->arena, v[1]->rank - 1, v[1]->dims));
    return false;
}

/* Coordinates in `v`, of `own` dimensions, of the element that broadcasts to an output's. */
static void broadcast_place(Exprs *x, const Value *v, int own, int rank, const int64_t *shape,
                            const Expr **at) {
    for (int i = 0; i < own; i++) {
        int k = rank - own + i;
        at[i] = v->dims[i] == 1 ? ex_i(x, 0) : ex_var(x, k);
        /* of two that are not known to be equal, one may be 1 */
        if (v->dims[i] != 1 && v->dims[i] != shape[k]) at[i] = index_clamp(x, at[i], v->dims[i]);
    }
}

void import_text_equal(Node *n) {
    Value *v[2];
    int rank;
    int64_t shape[MAX_RANK];
    if (!read_pair(n, v, &rank, shape)) return;
    Exprs *x = n->x;
    int64_t width = text_width(v[0]) > text_width(v[1]) ? text_width(v[0]) : text_width(v[1]);
    Builder b = build(n->g, rank, shape);
    const Expr *w = build_red(&b, width), *byte[2];
    for (int i = 0; i < 2; i++) {
        const Expr *at[MAX_RANK];
        broadcast_place(x, v[i], v[i]->rank - 1, rank, shape, at);
        byte[i] = text_byte(&b, v[i], at, w);
    }
    const Expr *same = ex_bin(x, EX_eq, byte[0], byte[1]);
    n->out[0] =
        build_reduce(&b, DT_bool, COMBINE_min, ex_select(x, same, ex_i(x, 1), ex_i(x, 0)), NULL);
}

/* The bytes of the second begin where the first one ends. */
void import_string_concat(Node *n) {
    Value *v[2];
    int rank;
    int64_t shape[MAX_RANK];
    if (!read_pair(n, v, &rank, shape)) return;
    Exprs *x = n->x;
    Value *lengths = text_lengths(n->g, v[0]);
    shape[rank] = text_width(v[0]) + text_width(v[1]);
    if (!node_shape_ok(n, rank + 1, shape)) return;
    Builder b = build(n->g, rank + 1, shape);
    const Expr *at[2][MAX_RANK], *w = ex_var(x, rank);
    for (int i = 0; i < 2; i++) broadcast_place(x, v[i], v[i]->rank - 1, rank, shape, at[i]);
    const Expr *length = build_load(&b, lengths, at[0]);
    const Expr *behind = ex_sub(x, w, length), *zero = ex_i(x, 0);
    const Expr *second =
        ex_select(x, ex_le(x, zero, behind), text_byte(&b, v[1], at[1], behind), zero);
    const Expr *e = ex_select(x, ex_lt(x, w, length), text_byte(&b, v[0], at[0], w), second);
    node_set_text(n, 0, build_map(&b, DT_u8, e));
}

/* --- automata --------------------------------------------------------------------------------- */

static Value *const_bytes(Graph *g, const uint8_t *bytes, int64_t n) {
    return graph_const(g, DT_u8, 1, &n, arena_copy(g->arena, bytes, (size_t)n));
}

typedef enum Way { FORWARDS, BACKWARDS } Way;

/* The state after byte number ctr, as the body of a loop. State: that before it; invariant: the
 * strings [count, width]. Stacks the new states if `all`. */
static Graph *one_byte(Node *n, const Automaton *m, const Value *text, Way way, bool all) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    Value *state = graph_input(g, NULL, DT_i32, 1, text->dims);
    Value *bytes = graph_input(g, NULL, DT_u8, 2, text->dims);
    int64_t entries[1] = {(int64_t)m->n_states * m->n_classes};
    Value *next = graph_const(g, DT_i32, 1, entries, m->next);
    Value *class_of = const_bytes(g, m->class_of, 256);
    Builder b = build(g, 1, text->dims);
    const Expr *at[2] = {ex_var(x, 0), ex_ctr(x, g->depth - 1)};
    if (way == BACKWARDS) at[1] = ex_sub(x, ex_i(x, text_width(text) - 1), at[1]);
    const Expr *byte = ex_cast(x, DT_i32, build_load(&b, bytes, at));
    const Expr *class = ex_cast(x, DT_i32, build_load(&b, class_of, &byte));
    const Expr *row = ex_mul(x, build_in(&b, state), ex_i(x, m->n_classes));
    const Expr *entry = ex_add(x, row, class);
    Value *after = build_map(&b, DT_i32, build_load(&b, next, &entry));
    graph_output(g, after, NULL);
    if (all) graph_output(g, after, NULL);
    return g;
}

/* Runs the automaton over the strings [count, width]. The states in the end [count], or, if `all`,
 * after each byte [width, count]; i32. */
static Value *run_automaton(Node *n, const Automaton *m, Value *text, Way way, bool all) {
    Builder b = build(n->g, 1, text->dims);
    Value *start = build_map(&b, DT_i32, ex_i(n->x, m->start));
    Value *in[2] = {start, text}, *out[2];
    build_loop(n->g, one_byte(n, m, text, way, all), text_width(text), 1, 2, in, out);
    return out[all];
}

/* False after a report. */
static bool regex_ok(Node *n, const char *attr, RegexResult result, const char *message) {
    if (result == REGEX_wrong)
        invalid(n, E2004, "attribute '%s' is no regular expression: %s", attr, message);
    else if (result == REGEX_unsupported)
        unsupported(n, "the regular expression: %s", message);
    return result == REGEX_ok;
}

void import_regex_full_match(Node *n) {
    Value *v = node_text(n, 0);
    const char *pattern = attr_str(n, "pattern", NULL), *message = "";
    if (!v || n->failed) return;
    Automaton m;
    if (!pattern) {
        invalid(n, E2004, "attribute 'pattern' is missing");
        return;
    }
    RegexResult result = regex_compile(n->g->arena, pattern, &m, &message);
    if (!regex_ok(n, "pattern", result, message)) return;
    Exprs *x = n->x;
    Value *state = run_automaton(n, &m, text_rows(n->g, v), FORWARDS, false);
    Value *accept = const_bytes(n->g, m.accept, m.n_states);
    Builder b = build(n->g, 1, state->dims);
    const Expr *at = build_in(&b, state);
    const Expr *e = ex_bin(x, EX_ne, ex_cast(x, DT_i32, build_load(&b, accept, &at)), ex_i(x, 0));
    n->out[0] = g_reshape(n->g, build_map(&b, DT_bool, e), v->rank - 1, v->dims);
}

/* --- pieces of strings ------------------------------------------------------------------------ */

/* Where pieces begin and end, in strings [count, width]: flags [count, width], u8. Piece k is from
 * the k-th byte that begins one to the k-th that ends one, or to the end of the string. */
typedef struct Cuts {
    Value *begins, *ends;
    int64_t before, after; /* added to the places of these bytes */
    bool first; /* piece 0 begins with the string, and the k-th of `begins` is piece k+1's */
} Cuts;

/* How many flags there are up to each byte; i32 [count, width]. */
static Value *count_up(Graph *g, Value *flags) {
    Exprs *x = g->x;
    Builder b = build(g, 2, flags->dims);
    const Expr *at[2] = {ex_var(x, 0), ex_var(x, 2)};
    const Expr *flag = ex_cast(x, DT_i32, build_load(&b, flags, at));
    return build_scan(&b, DT_i32, COMBINE_sum, 1, false, false, flag);
}

/* The place of flag number k (from 0 on) plus `add`, [count, pieces]; where there is none it is
 * `none` (NULL: 0). */
static Value *place_of(Graph *g, Value *flags, int64_t pieces, bool skip, int64_t add) {
    Exprs *x = g->x;
    Value *counts = count_up(g, flags);
    int64_t shape[2] = {flags->dims[0], pieces};
    Builder b = build(g, 2, shape);
    const Expr *w = build_red(&b, flags->dims[1]), *at[2] = {ex_var(x, 0), w};
    const Expr *k = skip ? ex_var(x, 1) : ex_add(x, ex_var(x, 1), ex_i(x, 1));
    const Expr *flag = ex_bin(x, EX_ne, ex_cast(x, DT_i32, build_load(&b, flags, at)), ex_i(x, 0));
    const Expr *hit = ex_and(x, flag, ex_bin(x, EX_eq, build_load(&b, counts, at), k));
    const Expr *e = ex_select(x, hit, ex_add(x, w, ex_i(x, add)), ex_i(x, -1));
    return build_reduce(&b, DT_i32, COMBINE_max, e, NULL);
}

/* The pieces [count, pieces, width]: bytes from begin to end of each; of piece number `most` (-1:
 * of none) to the end of the string. */
static Value *take_pieces(Node *n, Value *text, const Cuts *cuts, Value *count, int64_t pieces,
                          int64_t most) {
    Exprs *x = n->x;
    Graph *g = n->g;
    int64_t shape[3] = {text->dims[0], pieces, text_width(text)};
    Value *begin = place_of(g, cuts->begins, pieces, cuts->first, cuts->before);
    Value *end = place_of(g, cuts->ends, pieces, false, cuts->after);
    Builder b = build(g, 3, shape);
    const Expr *at[2] = {ex_var(x, 0), ex_var(x, 1)}, *w = ex_var(x, 2), *zero = ex_i(x, 0);
    const Expr *from = ex_bin(x, EX_max, build_load(&b, begin, at), zero);
    const Expr *to = build_load(&b, end, at);
    const Expr *rest = ex_lt(x, to, zero);
    if (most >= 0 && most < INT32_MAX && (dim_varies(pieces) || most < pieces))
        rest = ex_bin(x, EX_or, rest, ex_bin(x, EX_eq, at[1], ex_i(x, most)));
    to = ex_select(x, rest, ex_i(x, shape[2]), to);
    const Expr *place = ex_add(x, from, w);
    const Expr *inside = ex_lt(x, at[1], ex_cast(x, DT_i32, build_load(&b, count, at)));
    inside = ex_and(x, inside, ex_lt(x, place, to));
    const Expr *byte = text_byte(&b, text, at, place);
    return build_map(&b, DT_u8, ex_select(x, inside, byte, zero));
}

/* How many pieces there are, i64 [count]: the byte of a flag begins each, or all but the first. At
 * most `most` + 1; -1: all. */
static Value *count_pieces(Graph *g, const Cuts *cuts, int64_t most) {
    Exprs *x = g->x;
    Value *flags = cuts->begins;
    Builder b = build(g, 1, flags->dims);
    const Expr *at[2] = {ex_var(x, 0), build_red(&b, flags->dims[1])}, *sum = ex_acc(x, DT_i32);
    if (cuts->first) sum = ex_add(x, sum, ex_i(x, 1));
    if (most >= 0 && most < INT32_MAX) sum = ex_bin(x, EX_min, sum, ex_i(x, most + 1));
    return build_reduce(&b, DT_i64, COMBINE_sum, ex_cast(x, DT_i32, build_load(&b, flags, at)),
                        ex_cast(x, DT_i64, sum));
}

/* The largest of the counts, and `more` where that is not 0. */
static Value *largest_count(Graph *g, Value *counts, int more) {
    Exprs *x = g->x;
    Builder b = build(g, 0, NULL);
    const Expr *at = build_red(&b, counts->dims[0]), *zero = ex_int(x, DT_i64, 0);
    const Expr *most = ex_acc(x, DT_i64);
    const Expr *all = ex_add(x, most, ex_int(x, DT_i64, more));
    return build_reduce(&b, DT_i64, COMBINE_max,
                        ex_bin(x, EX_max, build_load(&b, counts, &at), zero),
                        more ? ex_select(x, ex_lt(x, zero, most), all, zero) : NULL);
}

/* --- StringSplit ------------------------------------------------------------------------------ */

/* A byte that parts words, as Python's str.split has it, or a zero. */
static const Expr *is_space(Exprs *x, const Expr *byte) {
    const Expr *yes = ex_bin(x, EX_eq, byte, ex_i(x, 0));
    static const int ranges[][2] = {{9, 13}, {28, 32}};
    for (int i = 0; i < 2; i++)
        yes = ex_bin(x, EX_or, yes,
                     ex_and(x, ex_le(x, ex_i(x, ranges[i][0]), byte),
                            ex_le(x, byte, ex_i(x, ranges[i][1]))));
    return yes;
}

typedef const Expr *ByteTest(Exprs *x, const Expr *byte);

/* Pieces are words: what stands between blanks. */
static Cuts cut_at_blanks(Node *n, Value *text, ByteTest *is_blank) {
    Exprs *x = n->x;
    Cuts cuts = {0};
    for (int end = 0; end < 2; end++) {
        Builder b = build(n->g, 2, text->dims);
        const Expr *w = ex_var(x, 1), *last = ex_sub(x, w, ex_i(x, 1));
        const Expr *blank = is_blank(x, text_own_byte(&b, text, w));
        const Expr *before =
            is_blank(x, text_own_byte(&b, text, index_clamp(x, last, text_width(text))));
        before = ex_bin(x, EX_or, ex_bin(x, EX_eq, w, ex_i(x, 0)), before);
        const Expr *flag = ex_and(x, ex_un(x, EX_not, end ? before : blank), end ? blank : before);
        *(end ? &cuts.ends : &cuts.begins) = build_map(&b, DT_u8, ex_cast(x, DT_u8, flag));
    }
    return cuts;
}

/* Pieces are what stands between occurrences of the delimiter. */
static Cuts cut_at_word(Node *n, Value *text, const char *delimiter) {
    Exprs *x = n->x;
    Automaton m;
    int length = (int)strlen(delimiter);
    automaton_of_word(n->g->arena, delimiter, &m);
    Value *states = run_automaton(n, &m, text, FORWARDS, true);
    Builder b = build(n->g, 2, text->dims);
    const Expr *at[2] = {ex_var(x, 1), ex_var(x, 0)};
    const Expr *found = ex_bin(x, EX_eq, build_load(&b, states, at), ex_i(x, length));
    const Expr *byte = text_own_byte(&b, text, ex_var(x, 1));
    found = ex_and(x, found, ex_bin(x, EX_ne, byte, ex_i(x, 0)));
    Value *flags = build_map(&b, DT_u8, ex_cast(x, DT_u8, found));
    return (Cuts){flags, flags, 1, 1 - length, true};
}

void import_string_split(Node *n) {
    Value *v = node_text(n, 0);
    const char *delimiter = attr_str(n, "delimiter", "");
    int64_t most = attr_int(n, "maxsplit", -1);
    if (!v || n->failed) return;
    Graph *g = n->g;
    int rank = v->rank - 1;
    Value *text = text_rows(g, v);
    if (strlen(delimiter) > MAX_STRING_BYTES) {
        unsupported(n, "a delimiter of more than %d bytes", MAX_STRING_BYTES);
        return;
    }
    Cuts cuts = *delimiter ? cut_at_word(n, text, delimiter) : cut_at_blanks(n, text, is_space);
    Value *count = count_pieces(g, &cuts, most), *largest = largest_count(g, count, 0);
    int64_t shape[MAX_RANK];
    if (!text->dims[0])
        shape[rank] = 0;
    else if (!node_chosen_extent(n, largest, 0, rank, text_width(text) + 1, true, &shape[rank]))
        return;
    for (int i = 0; i < rank; i++) shape[i] = v->dims[i];
    shape[rank + 1] = text_width(v);
    if (!node_shape_ok(n, rank + 2, shape)) return;
    node_set_text(
        n, 0, g_reshape(g, take_pieces(n, text, &cuts, count, shape[rank], most), rank + 2, shape));
    n->out[1] = g_reshape(g, count, rank, v->dims);
}

/* --- Tokenizer of com.microsoft --------------------------------------------------------------- */

static const Expr *is_zero(Exprs *x, const Expr *byte) {
    return ex_bin(x, EX_eq, byte, ex_i(x, 0));
}

/* Pieces are the characters. */
static Cuts cut_at_characters(Node *n, Value *text) {
    Exprs *x = n->x;
    Cuts cuts = {0};
    for (int end = 0; end < 2; end++) {
        Builder b = build(n->g, 2, text->dims);
        const Expr *w = ex_var(x, 1), *byte = text_own_byte(&b, text, w);
        const Expr *high = ex_bin(x, EX_band, byte, ex_i(x, 0xc0));
        const Expr *flag = ex_bin(x, EX_ne, high, ex_i(x, 0x80));
        flag = ex_and(x, flag, ex_lt(x, ex_i(x, 0), end ? w : byte));
        *(end ? &cuts.ends : &cuts.begins) = build_map(&b, DT_u8, ex_cast(x, DT_u8, flag));
    }
    return cuts;
}

/* One byte of a search, as the body of a loop. State: twice the state of s->ahead, which is 0
 * outside of matches, and 1 more where a match begins with the byte. Invariants: the strings
 * [count, width], and the states of s->back [width, count], the last byte's first. Stacks the new
 * states. */
static Graph *search_byte(Node *n, const Search *s, const Value *text, const Value *back) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    const Automaton *m = &s->ahead;
    int64_t width = text_width(text), size[1] = {256}, entries[1];
    Value *state = graph_input(g, NULL, DT_i32, 1, text->dims);
    Value *bytes = graph_input(g, NULL, DT_u8, 2, text->dims);
    Value *behind = graph_input(g, NULL, DT_i32, 2, back->dims);
    entries[0] = (int64_t)m->n_states * m->n_classes;
    Value *next = graph_const(g, DT_i32, 1, entries, m->next);
    Value *leads = const_bytes(g, s->leads, (int64_t)m->n_states * s->back.n_states);
    Value *class_of = const_bytes(g, m->class_of, 256);
    Value *start_of = graph_const(g, DT_i32, 1, size, s->start_of);
    Builder b = build(g, 1, text->dims);
    const Expr *zero = ex_i(x, 0), *one = ex_i(x, 1), *w = ex_ctr(x, g->depth - 1);
    const Expr *at[2] = {ex_var(x, 0), w};
    const Expr *byte = ex_cast(x, DT_i32, build_load(&b, bytes, at));
    const Expr *class = ex_cast(x, DT_i32, build_load(&b, class_of, &byte));
    at[1] = index_clamp(x, ex_sub(x, w, one), width);
    const Expr *before = ex_cast(x, DT_i32, build_load(&b, bytes, at));
    before = ex_select(x, ex_bin(x, EX_eq, w, zero), zero, before);
    const Expr *last = ex_sub(x, ex_i(x, width - 2), w); /* how far s->back has come behind w */
    at[0] = index_clamp(x, last, width);
    at[1] = ex_var(x, 0);
    const Expr *rest =
        ex_select(x, ex_lt(x, last, zero), ex_i(x, s->back.start), build_load(&b, behind, at));
    const Expr *from[2] = {ex_bin(x, EX_shr, build_in(&b, state), one),
                           build_load(&b, start_of, &before)};
    const Expr *after = zero;
    for (int begins = 1; begins >= 0; begins--) {
        const Expr *entry = ex_add(x, ex_mul(x, from[begins], ex_i(x, m->n_classes)), class);
        const Expr *to = build_load(&b, next, &entry);
        entry = ex_add(x, ex_mul(x, rest, ex_i(x, m->n_states)), to);
        const Expr *on = ex_cast(x, DT_i32, build_load(&b, leads, &entry));
        to = ex_add(x, ex_mul(x, to, ex_i(x, 2)), ex_i(x, begins));
        after = ex_select(x, ex_bin(x, EX_ne, on, zero), to, after);
    }
    Value *result = build_map(&b, DT_i32, after);
    graph_output(g, result, NULL);
    graph_output(g, result, NULL);
    return g;
}

/* The states of search_byte, [width, count]: 0 where there is no match, odd where one begins. */
static Value *run_search(Node *n, const Search *s, Value *text) {
    Builder b = build(n->g, 1, text->dims);
    Value *start = build_map(&b, DT_i32, ex_i(n->x, 0));
    Value *back = run_automaton(n, &s->back, text, BACKWARDS, true);
    Value *in[3] = {start, text, back}, *out[2];
    build_loop(n->g, search_byte(n, s, text, back), text_width(text), 1, 3, in, out);
    return out[1];
}

/* Pieces are the matches. */
static Cuts cut_matches(Node *n, const Search *s, Value *text) {
    Exprs *x = n->x;
    Cuts cuts = {0};
    Value *states = run_search(n, s, text);
    for (int end = 0; end < 2; end++) {
        Builder b = build(n->g, 2, text->dims);
        const Expr *zero = ex_i(x, 0), *one = ex_i(x, 1), *w = ex_var(x, 1);
        const Expr *at[2] = {w, ex_var(x, 0)}, *own = build_load(&b, states, at);
        const Expr *flag = ex_bin(x, EX_eq, ex_bin(x, EX_band, own, one), one);
        if (end) {
            at[0] = index_clamp(x, ex_sub(x, w, one), text_width(text));
            const Expr *inside = ex_bin(x, EX_ne, build_load(&b, states, at), zero);
            inside = ex_and(x, ex_lt(x, zero, w), inside);
            flag = ex_and(x, inside, ex_bin(x, EX_or, flag, ex_bin(x, EX_eq, own, zero)));
        }
        *(end ? &cuts.ends : &cuts.begins) = build_map(&b, DT_u8, ex_cast(x, DT_u8, flag));
    }
    return cuts;
}

/* The strings with zeros for the matches. So a later search takes the parts for strings, as it
 * should: its matches lie within them, and anchors and word boundaries are theirs. */
static Value *without_matches(Node *n, const Search *s, Value *text) {
    Exprs *x = n->x;
    Value *states = run_search(n, s, text);
    Builder b = build(n->g, 2, text->dims);
    const Expr *at[2] = {ex_var(x, 1), ex_var(x, 0)}, *zero = ex_i(x, 0);
    const Expr *outside = ex_bin(x, EX_eq, build_load(&b, states, at), zero);
    const Expr *byte = text_own_byte(&b, text, ex_var(x, 1));
    return build_map(&b, DT_u8, ex_select(x, outside, byte, zero));
}

/* What the attributes say. */
typedef struct Tokens {
    bool mark, characters;
    int64_t least;          /* characters of a token */
    Value *pad;             /* [width] */
    const char *expression; /* NULL: separators */
    const char *const *separators;
    int n_separators;
} Tokens;

static bool read_tokens(Node *n, Tokens *t) {
    static const char *const needed[] = {"mark", "mincharnum", "pad_value"};
    for (int i = 0; i < 3; i++)
        if (!attr_has(n, needed[i])) {
            invalid(n, E2004, "attribute '%s' is missing", needed[i]);
            return false;
        }
    *t = (Tokens){.mark = attr_int(n, "mark", 0) != 0, .least = attr_int(n, "mincharnum", 1)};
    t->pad = attr_text(n, "pad_value");
    t->separators = attr_strs(n, "separators", &t->n_separators);
    if (!t->separators) t->expression = attr_str(n, "tokenexp", "");
    if (n->failed || !t->pad) return false;
    t->characters =
        t->expression ? !strcmp(t->expression, ".") : t->n_separators == 1 && !*t->separators[0];
    if (t->pad->rank != 1)
        invalid(n, E2004, "attribute 'pad_value' is not one string");
    else if (t->expression ? !*t->expression : !t->n_separators)
        invalid(n, E2004, "neither separators nor tokenexp say what a token is");
    else if (t->least < 1 || (t->characters && t->least > 1))
        invalid(n, E2004, "mincharnum is %lld%s", (long long)t->least,
                t->characters ? ", but characters are tokens" : "");
    return !n->failed;
}

/* most: how many tokens there may be. */
static bool cut_tokens(Node *n, const Tokens *t, Value *text, Cuts *cuts, int64_t *most) {
    Arena *arena = n->g->arena;
    const char *message = "", *expression = t->expression;
    Search s;
    if (t->characters) {
        *cuts = cut_at_characters(n, text);
        *most = text_width(text);
        return true;
    }
    for (int i = 0; i < t->n_separators; i++) {
        RegexResult result = regex_search(arena, t->separators[i], 1, &s, &message);
        if (!regex_ok(n, "separators", result, message)) return false;
        if (s.empty) {
            unsupported(n, "separator %d, which matches empty strings", i);
            return false;
        }
        text = without_matches(n, &s, text);
    }
    *most = (text_width(text) + 1) / (t->least + 1); /* a byte between two */
    if (!expression && t->least == 1) {
        *cuts = cut_at_blanks(n, text, is_zero);
        return true;
    }
    if (!expression) expression = "(?s).+";
    RegexResult result = regex_search(arena, expression, t->least, &s, &message);
    if (!regex_ok(n, "tokenexp", result, message)) return false;
    if (!s.apart) *most = text_width(text) / t->least;
    *cuts = cut_matches(n, &s, text);
    return true;
}

/* The tokens [count, tokens, width] with the marks, which are characters 2 and 3, and the padding.
 */
static Value *pad_tokens(Node *n, const Tokens *t, Value *pieces, Value *count, int64_t width) {
    Exprs *x = n->x;
    int64_t shape[3] = {pieces->dims[0], pieces->dims[1], width};
    Builder b = build(n->g, 3, shape);
    const Expr *row = ex_var(x, 0), *w = ex_var(x, 2), *zero = ex_i(x, 0);
    const Expr *own = ex_sub(x, ex_var(x, 1), ex_i(x, t->mark));
    const Expr *behind = ex_sub(x, own, ex_cast(x, DT_i32, build_load(&b, count, &row)));
    const Expr *at[2] = {row, index_clamp(x, own, shape[1])};
    const Expr *byte = text_byte(&b, pieces, at, w);
    const Expr *padding = text_byte(&b, t->pad, NULL, w);
    byte = ex_select(x, ex_le(x, ex_i(x, t->mark), behind), padding, byte);
    if (t->mark) {
        const Expr *first = ex_bin(x, EX_eq, w, zero);
        const Expr *is_end = ex_bin(x, EX_eq, behind, zero);
        byte = ex_select(x, is_end, ex_select(x, first, ex_i(x, 3), zero), byte);
        byte = ex_select(x, ex_lt(x, own, zero), ex_select(x, first, ex_i(x, 2), zero), byte);
    }
    return build_map(&b, DT_u8, byte);
}

/* Tokens are the longest matches of tokenexp from left to right, what stands between those of the
 * separators, one after the other, or characters. */
void import_ms_tokenizer(Node *n) {
    Value *v = node_text(n, 0);
    Tokens t;
    Cuts cuts;
    int64_t most;
    if (!v || !read_tokens(n, &t)) return;
    Graph *g = n->g;
    int rank = v->rank - 1;
    if (rank != 1 && rank != 2) {
        invalid(n, E2005, "the input must have shape [C] or [N, C], not %s",
                shape_text(g->arena, rank, v->dims));
        return;
    }
    Value *text = text_rows(g, v);
    if (!cut_tokens(n, &t, text, &cuts, &most)) return;
    Value *count = count_pieces(g, &cuts, -1);
    Value *largest = largest_count(g, count, t.mark ? 2 : 0);
    int64_t shape[4], width = text_width(v);
    if (text_width(t.pad) > width) width = text_width(t.pad);
    shape[rank] = 0;
    if (text->dims[0] &&
        !node_chosen_extent(n, largest, 0, rank, most + (t.mark ? 2 : 0), true, &shape[rank]))
        return;
    for (int i = 0; i < rank; i++) shape[i] = v->dims[i];
    shape[rank + 1] = width;
    if (!node_shape_ok(n, rank + 2, shape)) return;
    Value *pieces = take_pieces(n, text, &cuts, count, shape[rank], -1);
    node_set_text(n, 0, g_reshape(g, pad_tokens(n, &t, pieces, count, width), rank + 2, shape));
}

/* --- StringNormalizer ------------------------------------------------------------------------- */

typedef enum Case { CASE_as_it_is, CASE_lower, CASE_upper } Case;

/* Letters of ASCII in the other case. */
static Value *change_case(Graph *g, Value *text, Case to) {
    if (to == CASE_as_it_is) return text;
    Exprs *x = g->x;
    Builder b = build(g, text->rank, text->dims);
    const Expr *c = ex_cast(x, DT_i32, build_in(&b, text));
    int from = to == CASE_lower ? 'A' : 'a';
    const Expr *letter = ex_and(x, ex_le(x, ex_i(x, from), c), ex_le(x, c, ex_i(x, from + 25)));
    const Expr *other = ex_add(x, c, ex_i(x, to == CASE_lower ? 32 : -32));
    return build_map(&b, DT_u8, ex_select(x, letter, other, c));
}

static bool read_case(Node *n, Case *to) {
    int i = attr_choice(n, "case_change_action", 0, "NONE LOWER UPPER");
    *to = (Case)i;
    return i >= 0;
}

/* [strings, width] without those that `stop` holds, moved together: as many as the model declares,
 * empty ones at the end. Where none is left there is one empty string. */
static Value *without_words(Node *n, Value *compared, Value *text, Value *stop, int axis) {
    Exprs *x = n->x;
    Graph *g = n->g;
    Value *found = text_find(g, compared, stop);
    Builder b = build(g, 1, found->dims);
    const Expr *at = ex_var(x, 1), *none = ex_i(x, 0), *one = ex_i(x, 1);
    const Expr *kept = ex_lt(x, build_load(&b, found, &at), none);
    Value *place =
        build_scan(&b, DT_i32, COMBINE_sum, 0, true, false, ex_select(x, kept, one, none));
    b = build(g, 0, NULL);
    at = build_red(&b, found->dims[0]);
    kept = ex_lt(x, build_load(&b, found, &at), none);
    Value *count = build_reduce(&b, DT_i64, COMBINE_sum, ex_select(x, kept, one, none),
                                ex_cast(x, DT_i64, ex_bin(x, EX_max, ex_acc(x, DT_i32), one)));
    int64_t shape[2] = {0, text_width(text)};
    if (!node_chosen_extent(n, count, 0, axis, dim_larger(x, found->dims[0], 1), true, &shape[0]))
        return NULL;
    if (!node_shape_ok(n, 2, shape)) return NULL;
    Value *result = zeros(g, DT_u8, 2, shape);
    if (!shape[0] || !text->dims[0]) return result;
    b = build(g, 2, text->dims);
    const Expr *own = ex_var(x, 0), *target[2] = {build_load(&b, place, &own), ex_var(x, 1)};
    const Expr *guard = ex_and(x, ex_lt(x, build_load(&b, found, &own), none),
                               ex_lt(x, target[0], ex_i(x, shape[0])));
    return build_scatter(&b, result, COMBINE_none, target, guard, build_in(&b, text));
}

/* Stop words are compared as they are, or without regard to case; then case is changed. */
void import_string_normalizer(Node *n) {
    Value *v = node_text(n, 0);
    Case to;
    if (!v || !read_case(n, &to)) return;
    Graph *g = n->g;
    int axis = v->rank - 2; /* of the strings */
    if (axis < 0 || axis > 1 || (axis == 1 && !dim_meets(n->x, v->dims[0], 1))) {
        invalid(n, E2005, "the input must have shape [C] or [1, C], not %s",
                shape_text(g->arena, v->rank - 1, v->dims));
        return;
    }
    bool exact = attr_int(n, "is_case_sensitive", 0) != 0;
    Value *text = text_rows(g, v), *stop = attr_text(n, "stopwords");
    if (n->failed) return;
    Value *changed = change_case(g, text, to);
    if (stop && stop->dims[0]) {
        Value *compared = exact ? text : change_case(g, text, CASE_lower);
        if (!exact) stop = change_case(g, stop, CASE_lower);
        changed = without_words(n, compared, changed, stop, axis);
        if (!changed) return;
    }
    int64_t shape[3] = {1, changed->dims[0], text_width(changed)};
    node_set_text(n, 0, g_reshape(g, changed, axis + 2, shape + 1 - axis));
}
