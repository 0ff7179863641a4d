/* Diagnostics: coded messages that name the place, collected, printed in order.
 *
 * Three failures, three kinds: the model is wrong (MODEL), not supported (UNSUPPORTED), our bug
 * (BUG). A message does not stop anything by itself: callers return NULL or -1 and the driver looks
 * at `diag->n_errors`. All unsupported operators of a model are reported in one run.
 */
#ifndef IR_DIAG_H
#define IR_DIAG_H

#include "ir/arena.h"

#include <stdbool.h>

typedef enum ErrKind {
    ERR_MODEL = 1,
    ERR_USAGE = 2,
    ERR_SYSTEM = 3,
    ERR_UNSUPPORTED = 4,
    ERR_DIFFER = 5,
    ERR_LIMIT = 6,
    ERR_BUG = 70
} ErrKind;

typedef enum ErrCode {
#define ERROR(code, kind, meaning) E##code = 1##code - 10000,
#include "ir/errors.def"
} ErrCode;

typedef struct DiagMessage {
    ErrCode code;
    bool warning;
    const char *text; /* whole line, without the file name and the code */
} DiagMessage;

typedef struct Diag {
    Arena *arena;
    const char *file; /* what messages begin with: the model's path as the user gave it */
    const char
        *where; /* current place, e.g. "node 'Conv_12' (Conv)"; NULL: none. Set by whoever walks */
    VEC(DiagMessage) messages;
    int n_errors;
} Diag;

void diag_init(Diag *diag, Arena *arena, const char *file);
/* Adds a message; the text is "where: format...". Equal messages are kept once. */
void diag_error(Diag *diag, ErrCode code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for what the user should know and nothing fails for. */
void diag_warning(Diag *diag, ErrCode code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints all messages to stderr: "FILE: error[E2013]: node 'x' (Conv): ...". */
void diag_print(const Diag *diag);
/* The exit status that the messages ask for: 0 without any; a model error before a limit before a
 * system error before a usage error before unsupported ones; our own bug before all. */
int diag_exit_status(const Diag *diag);
ErrKind err_kind(ErrCode code);
const char *err_meaning(ErrCode code);

#endif
