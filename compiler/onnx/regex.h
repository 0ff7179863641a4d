/* Regular expressions, in the syntax of RE2, as automata over the bytes of UTF-8.
 *
 * What there is: literals, . [...] with ranges, classes such as [:alpha:] and escapes, \d \w \s and
 * their opposites, \b \B ^ $ \A \z, groups of every kind that does not look around, | * + ? {n,m},
 * the flags i and s. Classes by Unicode property (\p) and the flag m are not supported. Which of
 * several ways a string matches does not matter here, so lazy repetition is as good as greedy.
 */
#ifndef COMPILER_ONNX_REGEX_H
#define COMPILER_ONNX_REGEX_H

#include "ir/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* A deterministic automaton. Bytes of one class are the same to it. It stays where it is on byte 0,
 * which stands behind the end of strings. */
typedef struct Automaton {
    int n_states, n_classes, start;
    uint8_t class_of[256];
    int32_t *next;   /* [n_states, n_classes] */
    uint8_t *accept; /* [n_states]: a string that ends here belongs to it */
} Automaton;

typedef enum RegexResult { REGEX_ok, REGEX_wrong, REGEX_unsupported } RegexResult;

/* An automaton of the strings that match as a whole. *message: what is wrong, where it fails. */
RegexResult regex_compile(Arena *arena, const char *pattern, Automaton *out, const char **message);

/* Looks for matches from left to right: each begins as early as it can behind the last one, and is
 * the longest that begins there. None is shorter than the least number of characters; where the
 * longest would be, there is no match.
 *
 * `back` reads the string from its end. Its state behind byte i says which states of `ahead` may
 * still get to the end of a match from there, so no byte is looked at twice. Byte 0 ends a string,
 * but another one may come behind it. */
typedef struct Search {
    Automaton ahead, back; /* of the same classes; state 0 of `ahead` leads nowhere */
    int32_t *start_of;     /* [256]: state of `ahead` where a match begins, by the byte before */
    uint8_t *leads;        /* [states of back, states of ahead] */
    bool apart;            /* no match begins where the last one ended */
    bool empty;            /* the pattern matches empty strings, too; which are not looked for */
} Search;

/* least > 0 */
RegexResult regex_search(Arena *arena, const char *pattern, int64_t least, Search *out,
                         const char **message);
/* One that accepts wherever an occurrence of `word` ends; occurrences do not overlap. */
void automaton_of_word(Arena *arena, const char *word, Automaton *out);

#endif
