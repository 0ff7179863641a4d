/* Files and tools: temporary folders, outputs that appear whole, running the C compiler. */
#include "compiler/driver.h"
#include "compiler/onnx/mapfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *temp_folder(Session *s) {
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(&s->arena, "%s/mlcc-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(path)) {
        vec_push(&s->arena, &s->folders, path);
        return path;
    }
    diag_error(&s->diag, E0002, "cannot make a temporary folder '%s': %s", path, strerror(errno));
    return NULL;
}

void temp_remove(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (unlink(path) != 0 && (errno == EISDIR || errno == EPERM)) temp_remove(path);
    }
    closedir(dir);
    rmdir(folder);
}

/* Files that are being written, for the handler of signals. */
static const char *volatile being_written[4];

void temp_remove_all(Session *s) {
    for (int i = 0; i < s->folders.n; i++) temp_remove(s->folders.items[i]);
    for (int i = 0; i < s->unfinished.n; i++) {
        unlink(s->unfinished.items[i]);
        for (size_t k = 0; k < sizeof being_written / sizeof *being_written; k++)
            if (being_written[k] == s->unfinished.items[i]) being_written[k] = NULL;
    }
    s->folders.n = s->unfinished.n = 0;
}

FileWriter writer_open(Session *s, const char *path, const char *shown) {
    FileWriter w = {.s = s, .path = path, .shown = shown};
    w.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w.fd < 0) w.error = errno;
    return w;
}

bool writer_add(FileWriter *w, const void *data, size_t bytes) {
    const char *at = data;
    while (!w->error && bytes) {
        ssize_t n = write(w->fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) w->error = n ? errno : EIO;
        if (n <= 0) break;
        at += n;
        bytes -= (size_t)n;
    }
    return !w->error;
}

void writer_begin(FileWriter *w, const void *head, size_t bytes) {
    if (!w->error && pwrite(w->fd, head, bytes, 0) != (ssize_t)bytes) w->error = errno;
}

bool writer_close(FileWriter *w, bool sync) {
    if (!w->error && sync && fsync(w->fd) != 0 && errno != EINVAL && errno != EROFS)
        w->error = errno;
    if (w->fd >= 0 && close(w->fd) != 0 && !w->error) w->error = errno;
    if (!w->error) return true;
    struct stat st; /* a device is not ours to remove */
    if (w->fd >= 0 && stat(w->path, &st) == 0 && S_ISREG(st.st_mode)) unlink(w->path);
    diag_error(&w->s->diag, E0002, "cannot write '%s': %s", w->shown, strerror(w->error));
    return false;
}

/* Writes and syncs; the message names `shown`. */
static bool write_synced(Session *s, const char *path, const char *shown, const void *data,
                         size_t bytes, bool sync) {
    FileWriter w = writer_open(s, path, shown);
    writer_add(&w, data, bytes);
    return writer_close(&w, sync);
}

bool write_file(Session *s, const char *path, const void *data, size_t bytes) {
    return write_synced(s, path, path, data, bytes, false);
}

/* A name beside `path` for its unfinished self. Files that are no regular files are written
 * directly. */
static const char *unfinished(Session *s, const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return path;
    return arena_printf(&s->arena, "%s.tmp%ld", path, (long)getpid());
}

static void remove_unfinished(int signal) {
    for (size_t i = 0; i < sizeof being_written / sizeof *being_written; i++)
        if (being_written[i]) unlink(being_written[i]);
    raise(signal); /* SA_RESETHAND: this one ends mlcc */
}

/* Has signals that end mlcc remove the file first. */
static void watch_unfinished(const char *name) {
    static const int ending[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGXFSZ, SIGXCPU};
    size_t i = 0;
    while (i < sizeof being_written / sizeof *being_written - 1 && being_written[i]) i++;
    being_written[i] = name;
    for (i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction now, action = {.sa_handler = remove_unfinished};
        action.sa_flags = (int)SA_RESETHAND;
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(ending[i], &action, NULL);
    }
}

const char *output_begin(Session *s, const char *path) {
    const char *name = unfinished(s, path), *folder = name == path ? temp_folder(s) : NULL;
    if (name == path) return folder ? arena_printf(&s->arena, "%s/output", folder) : NULL;
    vec_push(&s->arena, &s->unfinished, name);
    watch_unfinished(name);
    return name;
}

/* Do both paths name the same place in the same folder, however they are spelled? */
static bool same_place(Session *s, const char *a, const char *b) {
    const char *path[2] = {a, b}, *name[2];
    struct stat st[2];
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(path[i], '/');
        name[i] = slash ? slash + 1 : path[i];
        const char *folder = arena_printf(&s->arena, "%.*s.", (int)(name[i] - path[i]), path[i]);
        if (stat(folder, &st[i]) != 0) return false;
    }
    return !strcmp(name[0], name[1]) && st[0].st_dev == st[1].st_dev &&
           st[0].st_ino == st[1].st_ino;
}

/* No output may take the place of the model, of a file with its data or of another output. */
static bool check_places(Session *s, int n, const OutputFile *files) {
    const OnnxMaps *maps = s->model_open ? s->model.file.maps : NULL;
    for (int i = 0; i < n; i++) {
        const char *held = same_place(s, files[i].path, s->o->model) ? "the model" : NULL;
        for (const OnnxMap *map = maps ? maps->list : NULL; map && !held; map = map->next)
            if (same_place(s, files[i].path, map->path)) held = "data of the model";
        for (int k = 0; k < i; k++)
            if (same_place(s, files[i].path, files[k].path)) held = "another output";
        if (!held) continue;
        diag_error(&s->diag, E0001, "'%s' would be written over %s: choose another name",
                   files[i].path, held);
        return false;
    }
    return true;
}

bool output_reserve(Session *s, const char *path) {
    OutputFile file = {.path = path};
    struct stat st;
    if (!check_places(s, 1, &file)) return false;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        diag_error(&s->diag, E0002, "cannot write '%s': %s", path, strerror(EISDIR));
        return false;
    }
    const char *name = output_begin(s, path);
    FileWriter w = {0};
    if (name) w = writer_open(s, name, path);
    return name && writer_close(&w, false);
}

static bool copy_file(Session *s, const char *from, const char *to, const char *shown) {
    const size_t room = (size_t)1 << 20;
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        diag_error(&s->diag, E0002, "cannot read '%s': %s", from, strerror(errno));
        return false;
    }
    void *piece = arena_borrow(&s->arena, room);
    FileWriter w = writer_open(s, to, shown);
    for (ssize_t n; (n = read(fd, piece, room)) != 0;) {
        if (n < 0 && errno != EINTR) w.error = errno;
        if (w.error || (n > 0 && !writer_add(&w, piece, (size_t)n))) break;
    }
    close(fd);
    arena_return(&s->arena, piece, room);
    return writer_close(&w, true);
}

/* Brings what the file shall be to `temp`, unless it is there. */
static bool write_unfinished(Session *s, const OutputFile *file, const char *temp) {
    if (!file->from) return write_synced(s, temp, file->path, file->data, file->bytes, true);
    return !strcmp(file->from, temp) || copy_file(s, file->from, temp, file->path);
}

bool write_outputs(Session *s, int n, const OutputFile *files) {
    if (!check_places(s, n, files)) return false;
    const char **temp = ARENA_ARRAY(&s->arena, n, const char *);
    int written = 0;
    bool ok = true;
    for (; written < n && ok; written++) {
        temp[written] = unfinished(s, files[written].path);
        ok = write_unfinished(s, &files[written], temp[written]);
    }
    for (int i = 0; i < written && ok; i++)
        if (temp[i] != files[i].path && rename(temp[i], files[i].path) != 0) {
            diag_error(&s->diag, E0002, "cannot write '%s': %s", files[i].path, strerror(errno));
            ok = false;
        }
    for (int i = 0; i < written && !ok; i++)
        if (temp[i] != files[i].path) unlink(temp[i]);
    return ok;
}

const char *shown_name(Session *s, const char *name) {
    Text t = text_new(&s->arena);
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 0x7f)
            text_addf(&t, "\\x%02x", (unsigned)*name);
        else
            text_addn(&t, name, 1);
    return text_get(&t);
}

bool load_file(Session *s, const char *from, OutputFile *file) {
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0) close(fd);
        diag_error(&s->diag, E0002, "cannot read '%s': %s", from, strerror(errno));
        return false;
    }
    char *data = arena_alloc(&s->arena, (size_t)st.st_size + 1);
    size_t got = 0;
    for (ssize_t n; got < (size_t)st.st_size; got += (size_t)n)
        if ((n = read(fd, data + got, (size_t)st.st_size - got)) <= 0) break;
    close(fd);
    file->data = data;
    file->bytes = got;
    return true;
}

bool install_file(Session *s, const char *from, const char *to) {
    OutputFile file = {.path = to, .from = from};
    return write_outputs(s, 1, &file);
}

/* --- running tools ---------------------------------------------------------------------------- */

#define MOST_AT_ONCE 8 /* C compilers, which take some 300 MB each */

/* Commands that run beside each other. */
typedef struct Tools {
    int started, running;
    pid_t *child; /* 0: it has ended, or was never started */
    int *status;
    bool quiet;   /* what they say is not shown */
    int error;    /* errno of what could not be started */
    int ended_by; /* a signal that asks mlcc to end */
} Tools;

static void start_tool(Tools *t, const char *folder, const char *const *argv,
                       const sigset_t *before) {
    pid_t child = fork();
    if (child == 0) {
        pthread_sigmask(SIG_SETMASK, before, NULL);
        int nowhere = t->quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
        if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
        if (chdir(folder) == 0) {
            union {
                const char *const *in;
                char *const *out;
            } args = {argv}; /* execvp's old prototype */
            execvp(argv[0], args.out);
        }
        _exit(127);
    }
    if (child < 0) t->error = errno;
    t->child[t->started++] = child;
    t->running += child > 0;
}

/* Waits until one of them has ended. A signal that asks mlcc to end is passed on to all, which may
 * not have got it. Called with the signals of `set` blocked. */
static void wait_for_one(Tools *t, const sigset_t *set) {
    for (;;) {
        for (int i = 0; i < t->started; i++) {
            if (t->child[i] <= 0) continue;
            pid_t ended = waitpid(t->child[i], &t->status[i], WNOHANG);
            if (ended != t->child[i] && (ended == 0 || errno == EINTR)) continue;
            t->child[i] = 0;
            t->running--;
            return;
        }
        /* SIGCHLD ends the pause; where it is ignored, the time does */
        int sig = sigtimedwait(set, NULL, &(struct timespec){.tv_nsec = 50000000});
        if (sig <= 0 || sig == SIGCHLD) continue;
        for (int i = 0; i < t->started; i++)
            if (t->child[i] > 0) kill(t->child[i], sig);
        t->ended_by = sig;
    }
}

/* Did the command end well? Else a diagnostic. */
static bool ended_well(Session *s, const char *tool, int status, const char *missing_hint) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        diag_error(&s->diag, E0003, "'%s' not found: %s", tool, missing_hint);
    else
        diag_error(&s->diag, E0003, "'%s' failed", tool);
    return false;
}

/* Starts them all, but no more after one that fails, and waits for their ends. */
static void run_all(Session *s, Tools *t, const char *folder, int n,
                    const char *const *const *argv) {
    static const int watched[] = {SIGCHLD, SIGHUP, SIGINT, SIGTERM};
    t->child = ARENA_ARRAY(&s->arena, n, pid_t);
    t->status = ARENA_ARRAY(&s->arena, n, int);
    cpu_set_t processors;
    const int most =
        sched_getaffinity(0, sizeof processors, &processors) ? 1 : CPU_COUNT(&processors);
    sigset_t set, before;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        struct sigaction now; /* what is ignored stays so: nohup */
        bool ignored = !sigaction(watched[i], NULL, &now) && now.sa_handler == SIG_IGN;
        if (!ignored) sigaddset(&set, watched[i]);
    }
    pthread_sigmask(SIG_BLOCK, &set, &before);
    bool well = true;
    for (;;) {
        while (well && !t->error && !t->ended_by && t->started < n && t->running < MOST_AT_ONCE &&
               t->running < most)
            start_tool(t, folder, argv[t->started], &before);
        if (!t->running) break;
        wait_for_one(t, &set);
        for (int i = 0; i < t->started; i++) well &= t->child[i] != 0 || t->status[i] == 0;
    }
    if (t->ended_by) { /* as without the children, but for what lies in the temporary folders */
        temp_remove_all(s);
        raise(t->ended_by);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool run_tools(Session *s, const char *folder, int n, const char *const *const *argv,
               const char *missing_hint) {
    Tools t = {0};
    run_all(s, &t, folder, n, argv);
    for (int i = 0; i < t.started; i++)
        if (t.child[i] == 0 && !ended_well(s, argv[i][0], t.status[i], missing_hint)) return false;
    if (!t.error) return true;
    diag_error(&s->diag, E0003, "cannot start '%s': %s", argv[t.started - 1][0], strerror(t.error));
    return false;
}

bool run_tool(Session *s, const char *folder, const char *const *argv, const char *missing_hint) {
    return run_tools(s, folder, 1, &argv, missing_hint);
}

int run_quietly(Session *s, const char *folder, const char *const *argv) {
    Tools t = {.quiet = true};
    run_all(s, &t, folder, 1, &argv);
    return t.error ? -1 : WIFEXITED(*t.status) ? WEXITSTATUS(*t.status) : -1;
}
