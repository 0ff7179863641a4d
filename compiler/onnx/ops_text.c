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

/* The state after byte number ctr, as the body of a loop. State: that before it; invariant: the
 * strings [count, width]. Stacks the new states if `all`. */
static Graph *one_byte(Node *n, const Automaton *m, const Value *text, bool all) {
    Exprs *x = n->x;
    Graph *g = graph_new_sub(n->g);
    Value *state = graph_input(g, NULL, DT_i32, 1, text->dims);
    Value *bytes = graph_input(g, NULL, DT_u8, 2, text->dims);
    int64_t entries[1] = {(int64_t)m->n_states * m->n_classes};
    Value *next = graph_const(g, DT_i32, 1, entries, m->next);
    Value *class_of = const_bytes(g, m->class_of, 256);
    Builder b = build(g, 1, text->dims);
    const Expr *at[2] = {ex_var(x, 0), ex_ctr(x, g->depth - 1)};
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
static Value *run_automaton(Node *n, const Automaton *m, Value *text, bool all) {
    Builder b = build(n->g, 1, text->dims);
    Value *start = build_map(&b, DT_i32, ex_i(n->x, m->start));
    Value *in[2] = {start, text}, *out[2];
    build_loop(n->g, one_byte(n, m, text, all), text_width(text), 1, 2, in, out);
    return out[all];
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
    if (result == REGEX_wrong)
        invalid(n, E2004, "attribute 'pattern' is no regular expression: %s", message);
    else if (result == REGEX_unsupported)
        unsupported(n, "the regular expression: %s", message);
    if (n->failed) return;
    Exprs *x = n->x;
    Value *state = run_automaton(n, &m, text_rows(n->g, v), false);
    Value *accept = const_bytes(n->g, m.accept, m.n_states);
    Builder b = build(n->g, 1, state->dims);
    const Expr *at = build_in(&b, state);
    const Expr *e = ex_bin(x, EX_ne, ex_cast(x, DT_i32, build_load(&b, accept, &at)), ex_i(x, 0));
    n->out[0] = g_reshape(n->g, build_map(&b, DT_bool, e), v->rank - 1, v->dims);
}

/* --- StringSplit ------------------------------------------------------------------------------ */

/* Where pieces begin and end, in strings [count, width]: flags [count, width], u8. Piece k is from
 * the k-th byte that begins one to the k-th that ends one, or to the end of the string. */
typedef struct Cuts {
    Value *begins, *ends;
    int64_t before, after; /* added to the places of these bytes */
    bool first; /* piece 0 begins with the string, and the k-th of `begins` is piece k+1's */
} Cuts;

/* A byte that parts words, as Python's str.split has it, or a zero. */
static const Expr *is_blank(Exprs *x, const Expr *byte) {
    const Expr *yes = ex_bin(x, EX_eq, byte, ex_i(x, 0));
    static const int ranges[][2] = {{9, 13}, {28, 32}};
    for (int i = 0; i < 2; i++)
        yes = ex_bin(x, EX_or, yes,
                     ex_and(x, ex_le(x, ex_i(x, ranges[i][0]), byte),
                            ex_le(x, byte, ex_i(x, ranges[i][1]))));
    return yes;
}

/* Pieces are words: what stands between blanks. */
static Cuts cut_at_blanks(Node *n, Value *text) {
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
    Value *states = run_automaton(n, &m, text, true);
    Builder b = build(n->g, 2, text->dims);
    const Expr *at[2] = {ex_var(x, 1), ex_var(x, 0)};
    const Expr *found = ex_bin(x, EX_eq, build_load(&b, states, at), ex_i(x, length));
    const Expr *byte = text_own_byte(&b, text, ex_var(x, 1));
    found = ex_and(x, found, ex_bin(x, EX_ne, byte, ex_i(x, 0)));
    Value *flags = build_map(&b, DT_u8, ex_cast(x, DT_u8, found));
    return (Cuts){flags, flags, 1, 1 - length, true};
}

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

/* The pieces [count, pieces, width]: bytes from begin to end of each. */
static Value *take_pieces(Node *n, Value *text, const Cuts *cuts, Value *count, int64_t pieces) {
    Exprs *x = n->x;
    Graph *g = n->g;
    int64_t shape[3] = {text->dims[0], pieces, text_width(text)};
    int64_t most = attr_int(n, "maxsplit", -1);
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

void import_string_split(Node *n) {
    Value *v = node_text(n, 0);
    const char *delimiter = attr_str(n, "delimiter", "");
    int64_t most = attr_int(n, "maxsplit", -1);
    if (!v || n->failed) return;
    Exprs *x = n->x;
    Graph *g = n->g;
    int rank = v->rank - 1;
    Value *text = text_rows(g, v);
    if (strlen(delimiter) > MAX_STRING_BYTES) {
        unsupported(n, "a delimiter of more than %d bytes", MAX_STRING_BYTES);
        return;
    }
    Cuts cuts = *delimiter ? cut_at_word(n, text, delimiter) : cut_at_blanks(n, text);
    /* pieces: a word begins each, or a delimiter lies between each and the next */
    Builder b = build(g, 1, text->dims);
    const Expr *at[2] = {ex_var(x, 0), build_red(&b, text_width(text))}, *sum = ex_acc(x, DT_i32);
    if (cuts.first) sum = ex_add(x, sum, ex_i(x, 1));
    if (most >= 0 && most < INT32_MAX) sum = ex_bin(x, EX_min, sum, ex_i(x, most + 1));
    Value *count =
        build_reduce(&b, DT_i64, COMBINE_sum, ex_cast(x, DT_i32, build_load(&b, cuts.begins, at)),
                     ex_cast(x, DT_i64, sum));
    b = build(g, 0, NULL);
    at[0] = build_red(&b, text->dims[0]);
    Value *largest =
        build_reduce(&b, DT_i64, COMBINE_max,
                     ex_bin(x, EX_max, build_load(&b, count, at), ex_int(x, DT_i64, 0)), NULL);
    int64_t shape[MAX_RANK];
    if (!text->dims[0])
        shape[rank] = 0;
    else if (!node_chosen_extent(n, largest, 0, rank, text_width(text) + 1, true, &shape[rank]))
        return;
    for (int i = 0; i < rank; i++) shape[i] = v->dims[i];
    shape[rank + 1] = text_width(v);
    if (!node_shape_ok(n, rank + 2, shape)) return;
    node_set_text(n, 0,
                  g_reshape(g, take_pieces(n, text, &cuts, count, shape[rank]), rank + 2, shape));
    n->out[1] = g_reshape(g, count, rank, v->dims);
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
    static const char *const names[] = {"NONE", "LOWER", "UPPER"};
    const char *name = attr_str(n, "case_change_action", "NONE");
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) {
            *to = (Case)i;
            return !n->failed;
        }
    invalid(n, E2004, "case_change_action '%s' is none of NONE, LOWER, UPPER", name);
    return false;
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
