/* libFuzzer harness: any text as a graph, a kernel or a program. The reader and the verifier must
 * end with a result or with messages; what is read prints as a text that reads back to the same
 * text. */
#include "ir/text.h"
#include "ir/verify.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY ((size_t)64 << 20)

typedef struct Try {
    Arena arena;
    Diag diag;
    Exprs x;
    jmp_buf limit;
} Try;

static void limit_hit(void *user, size_t wanted, bool refused) {
    (void)refused;
    (void)wanted;
    longjmp(((Try *)user)->limit, 1);
}

/* The first letter that is in no comment. */
static char first_letter(const char *text, size_t length) {
    bool comment = false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == ';') comment = true;
        if (text[i] == '\n') comment = false;
        if (!comment && text[i] > ' ') return text[i];
    }
    return 0;
}

/* Reads what the first letter says, verifies it and prints it. NULL if it cannot be read. */
static const char *reprint(Try *t, const char *text, size_t length) {
    Text out = text_new(&t->arena);
    char first = first_letter(text, length);
    if (first == 'k') {
        Program *p = program_new(graph_new(&t->arena, &t->x, &t->diag, NULL));
        Kernel *k = parse_kernel(p, text, length);
        if (!k) return NULL;
        verify_kernel(k, &t->diag, NULL);
        text_kernel(&out, k);
    } else if (first == 'p') {
        Program *p = parse_program(&t->arena, &t->x, &t->diag, text, length);
        if (!p) return NULL;
        verify_graph(p->graph, &t->diag, NULL);
        verify_program(p, &t->diag, NULL);
        text_program(&out, p, (TextOptions){0});
    } else {
        Graph *g = parse_graph(&t->arena, &t->x, &t->diag, text, length);
        if (!g) return NULL;
        verify_graph(g, &t->diag, NULL);
        text_graph(&out, g, (TextOptions){0});
    }
    return text_get(&out);
}

static void try_text(Try *t, const char *text, size_t length) {
    const char *once = reprint(t, text, length);
    const char *twice = once ? reprint(t, once, strlen(once)) : NULL;
    if (once && (!twice || strcmp(once, twice) != 0)) {
        fprintf(stderr, "printed:\n%s\nread and printed again:\n%s\n", once, twice ? twice : "-");
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Try *t = calloc(1, sizeof *t);
    if (!t) return 0;
    arena_init(&t->arena, MEMORY, limit_hit, t);
    diag_init(&t->diag, &t->arena, "fuzz");
    exprs_init(&t->x, &t->arena);
    if (setjmp(t->limit) == 0) try_text(t, (const char *)data, size);
    arena_free(&t->arena);
    free(t);
    return 0;
}
