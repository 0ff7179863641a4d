/* The driver: from options to results. Each command is one function that returns the exit status
 * (STYLE: 0 done, 1 model wrong, 2 usage, 3 file or system, 4 not supported, 5 differ, 6 limit, 70
 * bug).
 */
#ifndef COMPILER_DRIVER_H
#define COMPILER_DRIVER_H

#include <setjmp.h>

#include "compiler/onnx/import.h"
#include "codegen/codegen.h"
#include "passes/passes.h"
#include "mlcc/model.h"

typedef struct StringList {
    const char **items;
    int n;
} StringList;

typedef const char *OptionText;
typedef bool OptionFlag;
typedef StringList OptionList;
#define OPTION_TYPE_text OptionText
#define OPTION_TYPE_flag OptionFlag
#define OPTION_TYPE_list OptionList

struct Trial;

/* One architecture of several in a library (several.c). */
typedef struct Variant {
    int number;
    const char *object; /* the file to write */
    bool *tiles;        /* becomes true if it wants a matrix unit */
} Variant;

typedef struct Options {
    const char *model; /* first word that is no option */
#define OPTION(field, kind, name, value, commands, help) OPTION_TYPE_##kind field;
#include "compiler/options.def"
    const char *runtime_cache; /* no option: a folder where a caller that compiles many models keeps
                                  the runtime's object files; NULL: they are compiled anew */
    bool profile; /* no option: libraries measure the time of their steps (runtime/profile.h) */
    const Variant *variant; /* no option; NULL: there is one architecture */
    struct Trial *trial;    /* no option; NULL: the schedules are those thought best */
} Options;

/* A compilation with other schedules than those thought best, for mlcc tune. */
typedef struct Trial {
    int variant;                /* see schedule_choose in passes/nest.h */
    const Schedules *schedules; /* instead of those of --schedules; NULL: none */
    void *user;
} Trial;

/* One compilation: its memory, its messages, and the way out when memory runs out. */
typedef struct Session Session;
struct Session {
    const Options *o;
    Arena arena;
    Diag diag;
    Exprs x;
    OnnxModel model;
    bool model_open;
    const Target *target;
    bool source;                  /* what is written is source, which any C compiler may get */
    StrMap macros;                /* of names of -march, as c_macros found them */
    VEC(const char *) folders;    /* temporary ones that may still be there */
    VEC(const char *) unfinished; /* outputs that are written, but have not got their names yet */
    size_t refused;               /* bytes that the system did not give; 0: --max-memory was hit */
    jmp_buf limit;                /* taken when memory runs out */
};

/* Runs `body` in a fresh session and prints its diagnostics; returns the exit status. */
int with_session(const Options *o, int (*body)(Session *));

/* Reads and imports the model. NULL after diagnostics. */
Graph *session_graph(Session *s);
/* Runs the passes on a graph, for s->target. NULL after diagnostics. */
Program *session_lower(Session *s, Graph *g);
/* The whole pipeline for s->target. NULL after diagnostics. */
Program *session_program(Session *s);
/* What generated C is compiled with besides -O and -march=. */
#define C_FLAGS "-w -fPIC -fno-math-errno -fno-trapping-math"
/* And with -O3, where it has vectors: loops over products take up to 15 % longer (Zen 3), as chance
 * has it, where their instructions begin in the middle of what is fetched at once. */
#define LOOP_FLAGS "-falign-loops=32"
/* Can this target be written to a file with this suffix? */
bool output_fits(const Target *t, const char *suffix);
/* Writes the program in the form that the suffix of `path` asks for. False after diagnostics. */
bool write_program(Session *s, Program *p, const char *path);
/* Writes the code for one of several architectures as an object, without the runtime. */
bool write_variant(Session *s, Program *p);
/* Writes the library of such objects to the command's output; `choice` is the source of its
 * mlcc_model_v1. */
bool write_library_of(Session *s, const char *folder, const char *choice, int n,
                      const char *const *object);
/* Does -march name several? */
bool lists_architectures(const Options *o);
/* Compiles to a library for all of them; returns the exit status. */
int compile_several(Session *s);
/* Writes a library made of runtime sources, compiled as a model's code is. */
bool write_runtime_library(Session *s, const char *path, int n, const char *const *sources);

/* The macros that the C compiler defines with -march=`march` (NULL: without), as lines "#define
 * NAME VALUE". NULL where it does not know the name, and after a diagnostic where it is missing or
 * always fails. */
const char *c_macros(Session *s, const char *march);
/* The facts of s->target for -march=. Names that ir/target.c does not know are the C compiler's: it
 * is asked what vectors they have, and, where there is no -march and it compiles what is made, what
 * vectors it takes by itself. False after a diagnostic, as for names that it does not know. */
bool target_of_march(Session *s, Target *result);
/* Does the C compiler know our -march? False after a diagnostic. */
bool march_known(Session *s);
/* Can this machine run what is compiled with our -march? False after a diagnostic. */
bool march_runs(Session *s);

int command_compile(Session *s);
int command_run(Session *s);
int command_verify(Session *s);
int command_inspect(Session *s);
int command_bench(Session *s);
int command_tune(Session *s);

/* Multiply-adds of the reductions whose body is a product (of a graph that no pass but dce has
 * changed). */
int64_t count_macs(const Graph *g);

/* --- files and tools (tools.c) ---------------------------------------------------------------- */

/* A temporary folder, removed with all in it by temp_remove. NULL after a diagnostic. */
const char *temp_folder(Session *s);
void temp_remove(const char *folder);
/* Removes those that are left when a session ends early. */
void temp_remove_all(Session *s);
bool write_file(Session *s, const char *path, const void *data, size_t bytes);
/* A file written piece by piece; `shown` is what messages call it. */
typedef struct FileWriter {
    Session *s;
    const char *path, *shown;
    int fd, error;
} FileWriter;
FileWriter writer_open(Session *s, const char *path, const char *shown);
bool writer_add(FileWriter *w, const void *data,
                size_t bytes); /* false: it failed, closing says why */
/* Writes over the first bytes. */
void writer_begin(FileWriter *w, const void *head, size_t bytes);
/* False after a diagnostic; the file is gone then. */
bool writer_close(FileWriter *w, bool sync);
/* Files that must appear together: written beside their place, then renamed. */
typedef struct OutputFile {
    const char *path;
    const void *data;
    size_t bytes;
    const char *from; /* a finished file that it is a copy of, instead of data; or output_begin's */
} OutputFile;
bool write_outputs(Session *s, int n, const OutputFile *files);
/* Where to write what becomes the output `path` with write_outputs, before it is called: beside its
 * place, where that can be. NULL after a diagnostic. */
const char *output_begin(Session *s, const char *path);
/* Before long work: can the output `path` be written? False after a diagnostic. */
bool output_reserve(Session *s, const char *path);
/* Reads a finished file, to be written to file->path. */
bool load_file(Session *s, const char *from, OutputFile *file);
/* Copies a finished file to its place in one step. */
bool install_file(Session *s, const char *from, const char *to);
/* A model's name for the terminal: control characters become "\x1b" and the like, so that a line of
 * output stays one. */
const char *shown_name(Session *s, const char *name);
/* Runs a program in `folder` with arguments (argv[0] is searched in PATH); output to the terminal.
 * A signal that ends mlcc meanwhile ends the program too and leaves no temporary folder. False
 * after a diagnostic. */
bool run_tool(Session *s, const char *folder, const char *const *argv, const char *missing_hint);
/* Runs one whose messages nobody wants to see; its exit status, or another number but 0 where it
 * was not started or a signal ended it. */
int run_quietly(Session *s, const char *folder, const char *const *argv);
/* The same as run_tool for n programs, as many at once as there are processors, 8 at most. After
 * one that fails no more are started; the diagnostic is about the first in the list that did. */
bool run_tools(Session *s, const char *folder, int n, const char *const *const *argv,
               const char *missing_hint);

/* --- models as shared libraries (model_so.c) -------------------------------------------------- */

typedef struct LoadedModel {
    void *library;
    const mlcc_model *model;
    void *state;
    void *arena;
    int threads; /* that it works on */
} LoadedModel;
/* Loads and opens a library that exports mlcc_model_v1. False after diagnostics. */
bool model_load(Session *s, LoadedModel *m, const char *path, const char *weights);
bool model_run(Session *s, LoadedModel *m, const void *const *inputs, void *const *outputs);
/* Why a run ended with this status. */
const char *model_failure(const LoadedModel *m, int status, void *const *outputs);
/* Puts its states to their first values. */
bool model_reset(Session *s, LoadedModel *m);
void model_unload(LoadedModel *m);

#endif
