/* --state: inputs that are in a call what outputs were in the one before. */
#ifndef COMPILER_STATES_H
#define COMPILER_STATES_H

#include "compiler/driver.h"

/* Names of such inputs and outputs, and the word of the command line that says each. */
typedef struct StatePairs {
    int n;
    const char **word, **past, **present;
} StatePairs;

/* Reads PAST=PRESENT, in which a '*' stands for the same text in both, by the names that the model,
 * which has been read, has for its inputs and outputs. Wrong ones are among the pairs, too. */
StatePairs states_read(Session *s);
/* Ties inputs and outputs of the graph; reports what does not fit. */
void states_tie(Session *s, Graph *g, const StatePairs *pairs);

#endif
