/* mlcc: the command line. Options are the table options.def. */
#include "compiler/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION "0.1.0"

typedef struct OptionRow {
    size_t offset;
    enum { KIND_text, KIND_flag, KIND_list } kind;
    const char *name, *value, *commands, *help;
} OptionRow;

static const OptionRow option_rows[] = {
#define OPTION(field, kind, name, value, commands, help)                                           \
    {offsetof(Options, field), KIND_##kind, name, value, commands, help},
#include "compiler/options.def"
};
#define N_OPTIONS (sizeof option_rows / sizeof *option_rows)

typedef struct CommandRow {
    const char *name;
    char letter;
    int (*run)(Session *);
    const char *usage, *help;
} CommandRow;

static const CommandRow command_rows[] = {
    {"", 'c', command_compile, "MODEL.onnx [-t TARGET] -o FILE", "compile a model"},
    {"run", 'r', command_run, "run MODEL[.onnx|.so] --input x=FILE ... --output DIR",
     "run a model: a .so on its device, an .onnx in the interpreter"},
    {"verify", 'v', command_verify, "verify MODEL.onnx -t TARGET",
     "compare a target with the interpreter on random inputs"},
    {"bench", 'b', command_bench, "bench MODEL[.onnx|.so] [--threads N] [-n RUNS] [--json]",
     "measure a model as a library of target c: latency, and the time of each kernel"},
    {"tune", 't', command_tune, "tune MODEL.onnx [-march=ARCH] [-o FILE]",
     "measure schedules on this machine; the fastest go into a text file"},
    {"inspect", 'i', command_inspect, "inspect MODEL.onnx",
     "print inputs, outputs, operators, weights, multiply-adds, what is not supported"},
};
#define N_COMMANDS (sizeof command_rows / sizeof *command_rows)

static void print_help(void) {
    printf("mlcc: a compiler from ONNX models to C, CUDA and Vulkan\n\nusage:\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  mlcc %-58s %s\n", command_rows[i].usage, command_rows[i].help);
    printf("\ntargets:\n");
    for (int i = 0; target_at(i); i++)
        printf("  %-10s %s\n", target_at(i)->name, target_at(i)->meaning);
    printf("\noptions:\n");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const OptionRow *row = &option_rows[i];
        char left[64];
        snprintf(left, sizeof left, "%s %s", row->name, row->value);
        printf("  %-24s %s\n", left, row->help);
    }
    printf("  %-24s %s\n", "--list-ops",
           "print the operators that there are import functions for, and from which version on");
    printf(
        "\nexit status: 0 done, 1 the model is wrong, 2 usage, 3 file or system, 4 not supported,\n"
        "5 results differ, 6 a limit was hit, 70 a bug of mlcc\n");
}

/* `DOMAIN OPERATOR VERSION`, a row of the importer's tables a line; `strings` where it is for
 * those, `varying` where dimensions may vary. */
static void print_operators(void) {
    OnnxOperator op;
    for (int row = 0; onnx_operator(row, &op); row++)
        printf("%s %s %d%s%s\n", *op.domain ? op.domain : "ai.onnx", op.name, op.since,
               op.text ? " strings" : "", op.varies ? " varying" : "");
}

static int usage_error(const char *format, const char *what) {
    fprintf(stderr, "mlcc: error[E0001]: ");
    fprintf(stderr, format, what);
    fprintf(stderr, " (mlcc --help lists all)\n");
    return ERR_USAGE;
}

/* The row of the option that `word` begins with; *value: what follows '=' (NULL: nothing). */
static const OptionRow *find_option(const char *word, const char **value) {
    for (size_t i = 0; i < N_OPTIONS; i++) {
        size_t length = strlen(option_rows[i].name);
        if (strncmp(word, option_rows[i].name, length) != 0) continue;
        *value = word[length] == '=' ? word + length + 1 : NULL;
        if (word[length] == 0 || word[length] == '=') return &option_rows[i];
        if (!strcmp(option_rows[i].name, "-O")) { /* -O2 */
            *value = word + length;
            return &option_rows[i];
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    Options o = {0};
    const CommandRow *command = &command_rows[0];
    int at = 1;
    for (size_t i = 1; i < N_COMMANDS && argc > 1; i++)
        if (!strcmp(argv[1], command_rows[i].name)) {
            command = &command_rows[i];
            at = 2;
        }
    if (argc < 2) {
        print_help();
        return ERR_USAGE;
    }
    bool options = true; /* what follows '--' is none */
    for (; at < argc; at++) {
        const char *word = argv[at], *value;
        if (options && !strcmp(word, "--")) {
            options = false;
            continue;
        }
        if (options && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            print_help();
            return 0;
        }
        if (options && !strcmp(word, "--version")) {
            printf("mlcc %s\n", VERSION);
            return 0;
        }
        if (!options || word[0] != '-' || word[1] == 0) {
            if (o.model && access(o.model, F_OK) != 0)
                return usage_error("there is no command and no file '%s'", o.model);
            if (o.model) return usage_error("a second model '%s'", word);
            o.model = word;
            continue;
        }
        if (options && !strcmp(word, "--list-ops")) {
            print_operators();
            return 0;
        }
        const OptionRow *row = find_option(word, &value);
        if (!row) return usage_error("unknown option '%s'", word);
        if (!strchr(row->commands, command->letter))
            return usage_error("option '%s' does not belong to this command", row->name);
        if (row->kind == KIND_flag) {
            if (value) return usage_error("option '%s' takes no value", row->name);
            *(OptionFlag *)((char *)&o + row->offset) = true;
            continue;
        }
        if (!value && ++at < argc) value = argv[at];
        if (!value || !*value) return usage_error("option '%s' needs a value", row->name);
        if (row->kind == KIND_text) {
            *(OptionText *)((char *)&o + row->offset) = value;
            continue;
        }
        StringList *list = (OptionList *)((char *)&o + row->offset);
        const char **items = realloc(list->items, sizeof *items * (size_t)(list->n + 1));
        if (!items) return ERR_LIMIT;
        items[list->n++] = value;
        list->items = items;
    }
    if (!o.model) return usage_error("%s", "no model given");
    int status = with_session(&o, command->run);
    free(o.dims.items);
    free(o.inputs.items);
    free(o.string_bytes.items);
    free(o.states.items);
    free(o.items.items);
    free(o.fixed.items);
    free(o.extents.items);
    return status;
}
