/* Every message that a user can meet: what mlcc says, its exit status, and that nothing was
 * written.
 *
 *     test_errors [--bless] [NAME...]     runs tests/errors/NAME; by default all of them
 *
 * A file of tests/errors is a list of these, in order, in an empty folder:
 *
 *     model FILE        an ONNX model, from the text below it (tests/unit/model_text.h)
 *     proto FILE        any protobuf message: `field:value` with a value that is a number, 1.5f,
 * "text", x0a0b (bytes) or {a message} file FILE         a text file; `program FILE` may be run
 *     replace FILE A B  the first A in the file becomes B; "\0" and "\x12" stand for bytes
 *     cut FILE N        keeps the first N bytes
 *     link FILE TARGET  a symbolic link
 *     folder NAME
 *     needs nvrtc       without it the rest of the file is passed over
 *     $ command         what it prints to stderr follows, then `status N`. The words mlcc and $MLCC
 * are the compiler's path, -I$REPO/include names our headers; '...' in the text stands for anything
 * on a line
 *
 * Text that belongs to a line is indented. A command that fails must leave the folder as it was.
 * --bless writes down what the commands print now. Every code of ir/errors.def has a file of its
 * name or a reason below. Run in the repository. */
#include "tests/unit/model_text.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct {
    const char *code, *why;
} without_file[] = {
    {"E1008", "needs a file of 1 GiB"},
    {"E3006", "the importer stops at 8 dimensions (E3002): tests/unit/test_passes.c"},
    {"E4203", "our own bug: generated CUDA C is wrong"},
    {"E4204", "needs an NVRTC that fails for reasons of its own"},
    {"E4303", "our own bug: generated GLSL is wrong"},
    {"E5001", "no command reads IR text: tests/ir/errors"},
    {"E9001", "our own bug: tests/ir/verify"},
    {"E9002", "our own bug"},
};

#define MAX_CASES 200

static bool bless;
static char mlcc_path[4096];

/* --- files ------------------------------------------------------------------------------------ */

static Text read_whole(Bench *b, const char *path) {
    Text t = text_new(&b->arena);
    char chunk[4096];
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) text_addn(&t, chunk, n);
    fclose(f);
    return t;
}

static void write_whole(const char *path, const char *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0)
        fail_msg("cannot write %s", path);
}

/* --- protobuf messages from text -------------------------------------------------------------- */

static Text read_proto(ModelText *m);

static void read_field(ModelText *m, Text *to) {
    unsigned field = (unsigned)strtoul(word(m), NULL, 10);
    want(m, ":");
    skip_blanks(m);
    if (accept(m, "{")) {
        Text inner = read_proto(m);
        put_message(to, field, &inner);
    } else if (*m->p == '"') {
        put_string(to, field, word(m));
    } else if (*m->p == 'x') {
        const char *hex = word(m) + 1;
        Text bytes = text_new(&m->b->arena);
        for (; hex[0] && hex[1]; hex += 2) {
            char pair[3] = {hex[0], hex[1], 0};
            text_addn(&bytes, &(char){(char)strtol(pair, NULL, 16)}, 1);
        }
        put_message(to, field, &bytes);
    } else {
        const char *number = word(m);
        if (number[strlen(number) - 1] == 'f')
            put_float(to, field, strtof(number, NULL));
        else
            put_int(to, field, strtoll(number, NULL, 10));
    }
}

static Text read_proto(ModelText *m) {
    Text t = text_new(&m->b->arena);
    while (skip_blanks(m), *m->p && !accept(m, "}")) read_field(m, &t);
    return t;
}

/* --- the folder ------------------------------------------------------------------------------- */

/* The names in a folder, sorted, on one line. */
static const char *listing(Bench *b, const char *folder) {
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    Text t = text_new(&b->arena);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') text_addf(&t, "%s ", entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return text_get(&t);
}

/* The word with \0 and \x12 in it read. */
static Text unescape(Bench *b, const char *word) {
    Text t = text_new(&b->arena);
    while (*word) {
        char c = *word++;
        if (c == '\\' && *word == '0') {
            c = 0;
            word++;
        } else if (c == '\\' && *word == 'x') {
            char pair[3] = {word[1], word[2], 0};
            c = (char)strtol(pair, NULL, 16);
            word += 3;
        }
        text_addn(&t, &c, 1);
    }
    return t;
}

static void replace_bytes(Bench *b, const char *path, const char *from, const char *to) {
    Text file = read_whole(b, path), a = unescape(b, from), z = unescape(b, to), out;
    const char *data = text_get(&file), *at = memmem(data, file.length, text_get(&a), a.length);
    if (!at) fail_msg("%s: there is no '%s' to replace", path, from);
    size_t before = (size_t)(at - data);
    out = text_new(&b->arena);
    text_addn(&out, data, before);
    text_addn(&out, text_get(&z), z.length);
    text_addn(&out, at + a.length, file.length - before - a.length);
    write_whole(path, text_get(&out), out.length);
}

/* --- commands --------------------------------------------------------------------------------- */

#define MAX_WORDS 32

/* Words are separated by blanks; '...' holds one together. */
static int split_words(Bench *b, const char *line, char **words) {
    int n = 0;
    while (n < MAX_WORDS - 1) {
        while (*line == ' ') line++;
        if (!*line) break;
        const char *end = *line == '\'' ? strchr(line + 1, '\'') : line + strcspn(line, " ");
        bool quoted = *line == '\'';
        words[n] = arena_strndup(&b->arena, line + quoted, (size_t)(end - line - quoted));
        if (!strcmp(words[n], "-I$REPO/include"))
            words[n] = arena_printf(&b->arena, "-I%s/include", getcwd((char[4096]){0}, 4096));
        if (!strcmp(words[n], "$MLCC") || (n == 0 && !strcmp(words[n], "mlcc")))
            words[n] = mlcc_path;
        line = end + quoted;
        n++;
    }
    words[n] = NULL;
    return n;
}

/* Runs a command in the folder; what it wrote to stderr. */
static const char *run_command(Bench *b, const char *folder, const char *line, int *status) {
    char *words[MAX_WORDS];
    split_words(b, line, words);
    char captured[] = P_tmpdir "/mlcc-stderr-XXXXXX";
    int fd = mkstemp(captured);
    assert_true(fd >= 0);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(fd, 2);
        alarm(60);
        if (chdir(folder) == 0) execvp(words[0], words);
        _exit(127);
    }
    int how;
    waitpid(child, &how, 0);
    close(fd);
    *status = WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
    Text t = read_whole(b, captured);
    unlink(captured);
    return text_get(&t);
}

/* Does the line match, where ... in the pattern stands for anything? */
static bool line_fits(const char *pattern, size_t n, const char *line, size_t length) {
    const char *dots = memmem(pattern, n, "...", 3);
    if (!dots) return n == length && !memcmp(pattern, line, n);
    size_t head = (size_t)(dots - pattern);
    if (length < head || memcmp(pattern, line, head) != 0) return false;
    for (size_t skip = head; skip <= length; skip++)
        if (line_fits(dots + 3, n - head - 3, line + skip, length - skip)) return true;
    return false;
}

/* The text with those lines of `pattern` that fit in place of its own: dots are kept. */
static const char *keep_dots(Bench *b, const char *pattern, const char *text) {
    Text out = text_new(&b->arena);
    while (*text) {
        size_t length = strcspn(text, "\n"), n = strcspn(pattern, "\n");
        if (n && line_fits(pattern, n, text, length))
            text_addn(&out, pattern, n);
        else
            text_addn(&out, text, length);
        text_add(&out, "\n");
        text += length + (text[length] == '\n');
        pattern += n + (pattern[n] == '\n');
    }
    return text_get(&out);
}

/* --- one file of tests ------------------------------------------------------------------------ */

typedef struct Script {
    Bench *b;
    const char *name, *p;
    Text blessed; /* the file as it should be */
} Script;

/* The next line, without its end; NULL at the end of the file. */
static const char *next_line(Script *s) {
    if (!*s->p) return NULL;
    size_t n = strcspn(s->p, "\n");
    const char *line = arena_strndup(&s->b->arena, s->p, n);
    s->p += n + (s->p[n] == '\n');
    return line;
}

/* The indented lines that follow, without their indentation. */
static const char *indented(Script *s, bool keep) {
    Text t = text_new(&s->b->arena);
    while (*s->p == ' ') {
        const char *line = next_line(s);
        if (keep) text_addf(&s->blessed, "%s\n", line);
        text_addf(&t, "%s\n", line + strspn(line, " "));
    }
    return text_get(&t);
}

/* Compares what a command prints, and leaves behind, with what is written down. */
static void do_command(Script *s, const char *line) {
    Bench *b = s->b;
    const char *pattern = indented(s, false), *before = listing(b, b->folder);
    const char *status_line = strncmp(s->p, "status ", 7) ? NULL : next_line(s);
    int status, wanted = status_line ? atoi(status_line + 7) : -1;
    const char *text = run_command(b, b->folder, line, &status);
    const char *kept = keep_dots(b, pattern, text);
    for (const char *at = kept; *at; at += strcspn(at, "\n") + 1)
        text_addf(&s->blessed, "  %.*s\n", (int)strcspn(at, "\n"), at);
    text_addf(&s->blessed, "status %d\n", status);
    if (status && strcmp(before, listing(b, b->folder)) != 0)
        fail_msg("%s: $ %s\nfailed, but left files behind: %s, not %s", s->name, line,
                 listing(b, b->folder), before);
    if (status >= 1000 || strstr(text, "Sanitizer"))
        fail_msg("%s: $ %s\ndied (%d):\n%s", s->name, line, status, text);
    if (!bless && (strcmp(kept, pattern) != 0 || status != wanted))
        fail_msg("%s: $ %s\nprints\n%sstatus %d\nnot\n%sstatus %d", s->name, line, kept, status,
                 pattern, wanted);
}

static void do_line(Script *s, const char *line) {
    Bench *b = s->b;
    char *w[MAX_WORDS];
    int n = split_words(b, line, w);
    const char *path = n > 1 ? arena_printf(&b->arena, "%s/%s", b->folder, w[1]) : "";
    const char *what = n ? w[0] : "#";
    if (line[0] == '$') {
        do_command(s, line + 2);
    } else if (!strcmp(what, "model")) {
        Text bytes = model_bytes(b, indented(s, true));
        write_whole(path, text_get(&bytes), bytes.length);
    } else if (!strcmp(what, "proto")) {
        ModelText m = {.b = b, .p = indented(s, true)};
        Text bytes = read_proto(&m);
        write_whole(path, text_get(&bytes), bytes.length);
    } else if (!strcmp(what, "file") || !strcmp(what, "program")) {
        const char *text = indented(s, true);
        write_whole(path, text, strlen(text));
        if (what[0] == 'p') assert_int_equal(chmod(path, 0755), 0);
    } else if (!strcmp(what, "replace") && n == 4) {
        replace_bytes(b, path, w[2], w[3]);
    } else if (!strcmp(what, "cut") && n == 3) {
        assert_int_equal(truncate(path, atol(w[2])), 0);
    } else if (!strcmp(what, "link") && n == 3) {
        assert_int_equal(symlink(w[2], path), 0);
    } else if (!strcmp(what, "folder")) {
        assert_int_equal(mkdir(path, 0755), 0);
    } else if (what[0] != '#') {
        fail_msg("%s: no line of a test: %s", s->name, line);
    }
}

static bool have_nvrtc(void) {
    return dlopen("libnvrtc.so.13", RTLD_LAZY) || dlopen("libnvrtc.so.12", RTLD_LAZY);
}

static void run_script(Bench *b, const char *name) {
    const char *path = arena_printf(&b->arena, "tests/errors/%s", name);
    Text file = read_whole(b, path);
    Script s = {.b = b, .name = name, .p = text_get(&file), .blessed = text_new(&b->arena)};
    for (const char *line; (line = next_line(&s));) {
        text_addf(&s.blessed, "%s\n", line);
        if (!strcmp(line, "needs nvrtc")) {
            if (have_nvrtc()) continue;
            print_message("%s: NVRTC is not installed: passed over\n", name);
            text_add(&s.blessed, s.p);
            break;
        }
        do_line(&s, line);
    }
    if (bless && strcmp(text_get(&file), text_get(&s.blessed)) != 0) {
        write_whole(path, text_get(&s.blessed), s.blessed.length);
        print_message("%s: changed\n", path);
    }
}

static char *names[MAX_CASES]; /* the files */
static int n_names, at_name;   /* cmocka runs the tests in order */

static void test_file(void **state) {
    run_script(*state, names[at_name++]);
}

/* --- completeness ----------------------------------------------------------------------------- */

static void test_every_code(void **state) {
    static const char *const codes[] = {
#define ERROR(code, kind, meaning) "E" #code,
#include "ir/errors.def"
    };
    (void)state;
    for (size_t i = 0; i < N(codes); i++) {
        bool found = false;
        for (int k = 0; k < n_names; k++) found |= !strcmp(names[k], codes[i]);
        for (size_t k = 0; k < N(without_file); k++)
            found |= !strcmp(without_file[k].code, codes[i]);
        if (!found) fail_msg("there is no test of %s: add tests/errors/%s", codes[i], codes[i]);
    }
}

static int visible(const struct dirent *e) {
    return e->d_name[0] != '.';
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[MAX_CASES + 1];
    ssize_t length = readlink("/proc/self/exe", mlcc_path, sizeof mlcc_path - 16);
    for (int up = 0; up < 2 && length > 0; up++)
        while (length > 0 && mlcc_path[--length] != '/') {
        }
    strcpy(mlcc_path + length, "/mlcc"); /* the build folder's */
    unsetenv("LD_PRELOAD");
    setenv("LC_ALL", "C", 1);
    struct dirent **entries;
    int n = scandir("tests/errors", &entries, visible, alphasort), given = 0;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--bless"))
            bless = true;
        else
            names[given++] = argv[i];
    n_names = given;
    for (int i = 0; i < n && i < MAX_CASES; i++) {
        if (!given && n_names < MAX_CASES) names[n_names++] = strdup(entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    int count = 0;
    for (int i = 0; i < n_names; i++)
        tests[count++] = (struct CMUnitTest){names[i], test_file, set_up, tear_down, NULL};
    if (!given) tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_every_code);
    /* cmocka's macro wants an array of known size */
    int failed = _cmocka_run_group_tests("errors", tests, (size_t)count, NULL, NULL);
    for (int i = 0; i < n_names && !given; i++) free(names[i]);
    return failed;
}
