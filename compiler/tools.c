/* Files and tools: temporary folders, outputs that appear whole, running the C compiler. */
#include "compiler/driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const char *temp_folder(Session *s) {
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(&s->arena, "%s/mlcc-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(path)) return path;
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

/* Writes and syncs; the message names `shown`. */
static bool write_synced(Session *s, const char *path, const char *shown, const void *data,
                         size_t bytes, bool sync) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const char *at = data;
    size_t left = bytes;
    bool ok = fd >= 0;
    while (ok && left) {
        ssize_t n = write(fd, at, left);
        if (n < 0 && errno == EINTR) continue;
        ok = n > 0;
        if (ok) {
            at += n;
            left -= (size_t)n;
        }
    }
    if (ok && sync) ok = fsync(fd) == 0 || errno == EINVAL || errno == EROFS;
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok) return true;
    struct stat st; /* a device is not ours to remove */
    if (fd >= 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode)) unlink(path);
    diag_error(&s->diag, E0002, "cannot write '%s': %s", shown, strerror(error));
    return false;
}

bool write_file(Session *s, const char *path, const void *data, size_t bytes) {
    return write_synced(s, path, path, data, bytes, false);
}

/* A name beside `path` for its unfinished self. Files that are no regular files are written directly. */
static const char *unfinished(Session *s, const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return path;
    return arena_printf(&s->arena, "%s.tmp%ld", path, (long)getpid());
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
    return !strcmp(name[0], name[1]) && st[0].st_dev == st[1].st_dev && st[0].st_ino == st[1].st_ino;
}

/* No output may take the place of the model or of another output. */
static bool check_places(Session *s, int n, const OutputFile *files) {
    for (int i = 0; i < n; i++) {
        const char *held = same_place(s, files[i].path, s->o->model) ? "the model" : NULL;
        for (int k = 0; k < i; k++)
            if (same_place(s, files[i].path, files[k].path)) held = "another output";
        if (!held) continue;
        diag_error(&s->diag, E0001, "'%s' would be written over %s: choose another name",
                   files[i].path, held);
        return false;
    }
    return true;
}

bool write_outputs(Session *s, int n, const OutputFile *files) {
    if (!check_places(s, n, files)) return false;
    const char **temp = ARENA_ARRAY(&s->arena, n, const char *);
    int written = 0;
    bool ok = true;
    for (; written < n && ok; written++) {
        temp[written] = unfinished(s, files[written].path);
        ok = write_synced(s, temp[written], files[written].path, files[written].data,
                          files[written].bytes, true);
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
    OutputFile file = {.path = to};
    return load_file(s, from, &file) && write_outputs(s, 1, &file);
}

bool run_tool(Session *s, const char *folder, const char *const *argv, const char *missing_hint) {
    pid_t child = fork();
    if (child == 0) {
        if (chdir(folder) == 0) {
            union {
                const char *const *in;
                char *const *out;
            } args = {argv}; /* execvp's old prototype */
            execvp(argv[0], args.out);
        }
        _exit(127);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (child < 0)
        diag_error(&s->diag, E0003, "cannot start '%s': %s", argv[0], strerror(errno));
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        diag_error(&s->diag, E0003, "'%s' not found: %s", argv[0], missing_hint);
    else
        diag_error(&s->diag, E0003, "'%s' failed", argv[0]);
    return false;
}
