/* Tables of tests for operators: models as text (model_text.h) with what they give, or with what
 * refuses them. `opsets` comes before the text of each row. */
#ifndef TESTS_MODEL_ROWS_H
#define TESTS_MODEL_ROWS_H

#include "tests/unit/model_text.h"

#define ROW_INPUTS 4

typedef struct Row {
    const char *text;
    const char *inputs[ROW_INPUTS];
    const char *result;
} Row;

typedef struct Wrong {
    const char *text;
    ErrCode code;
    const char *part; /* of the message */
} Wrong;

static inline void run_rows(void **state, const char *opsets, size_t n, const Row *rows) {
    Bench *b = *state;
    for (size_t i = 0; i < n; i++) {
        int count = 0;
        while (count < ROW_INPUTS && rows[i].inputs[count]) count++;
        const char *text = arena_printf(&b->arena, "%s %s", opsets, rows[i].text);
        const char *result = run_text(b, text, NULL, count, rows[i].inputs);
        if (strcmp(result, rows[i].result) != 0)
            fail_msg("%s: %s, not %s", rows[i].text, result, rows[i].result);
    }
}

static inline void refuse_rows(void **state, const char *opsets, size_t n, const Wrong *rows) {
    Bench *b = *state;
    for (size_t i = 0; i < n; i++) {
        const char *text = arena_printf(&b->arena, "%s %s", opsets, rows[i].text);
        if (import_text(b, text, NULL)) fail_msg("%s: imported", rows[i].text);
        expect_error(b, rows[i].code, rows[i].part);
    }
}

#endif
