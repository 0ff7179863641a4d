/* See diag.h. */
#include "ir/diag.h"

#include <stdio.h>
#include <string.h>

typedef struct ErrRow {
    ErrCode code;
    ErrKind kind;
    const char *meaning;
} ErrRow;

static const ErrRow rows[] = {
#define ERROR(code, kind, meaning) {E##code, ERR_##kind, meaning},
#include "ir/errors.def"
};

static const ErrRow *find_row(ErrCode code) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == code) return &rows[i];
    return &rows[sizeof rows / sizeof *rows - 1];
}

ErrKind err_kind(ErrCode code) {
    return find_row(code)->kind;
}

const char *err_meaning(ErrCode code) {
    return find_row(code)->meaning;
}

void diag_init(Diag *diag, Arena *arena, const char *file) {
    *diag = (Diag){.arena = arena, .file = file};
}

static void add_message(Diag *diag, ErrCode code, bool warning, const char *format, va_list args) {
    const char *text = arena_vprintf(diag->arena, format, args);
    if (diag->where) text = arena_printf(diag->arena, "%s: %s", diag->where, text);
    for (int i = 0; i < diag->messages.n; i++)
        if (diag->messages.items[i].code == code && !strcmp(diag->messages.items[i].text, text))
            return;
    DiagMessage message = {code, warning, text};
    vec_push(diag->arena, &diag->messages, message);
    if (!warning) diag->n_errors++;
}

void diag_error(Diag *diag, ErrCode code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_message(diag, code, false, format, args);
    va_end(args);
}

void diag_warning(Diag *diag, ErrCode code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_message(diag, code, true, format, args);
    va_end(args);
}

void diag_print(const Diag *diag) {
    for (int i = 0; i < diag->messages.n; i++)
        fprintf(stderr, "%s: %s[E%04d]: %s\n", diag->file ? diag->file : "mlcc",
                diag->messages.items[i].warning ? "warning" : "error",
                (int)diag->messages.items[i].code, diag->messages.items[i].text);
}

int diag_exit_status(const Diag *diag) {
    static const ErrKind order[] = {ERR_BUG,   ERR_MODEL,       ERR_LIMIT, ERR_SYSTEM,
                                    ERR_USAGE, ERR_UNSUPPORTED, ERR_DIFFER};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (int i = 0; i < diag->messages.n; i++)
            if (!diag->messages.items[i].warning &&
                err_kind(diag->messages.items[i].code) == order[k])
                return (int)order[k];
    return 0;
}
