/* See mapfile.h. */
#include "compiler/onnx/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps a regular file. NULL if that worked, else why not. */
static const char *map_file(OnnxMaps *maps, const char *path, int flags, OnnxMap **result) {
    OnnxMap *map = ARENA_NEW(maps->arena, OnnxMap); /* before there is something to leak */
    /* O_NONBLOCK: opening a named pipe must not wait for a writer */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | flags);
    if (fd < 0) return strerror(errno);
    struct stat info;
    const char *reason = NULL;
    if (fstat(fd, &info) != 0) {
        reason = strerror(errno);
    } else if (S_ISDIR(info.st_mode)) {
        reason = "it is a folder, not a file";
    } else if (!S_ISREG(info.st_mode)) {
        reason = "it is not a regular file";
    } else if (info.st_size > 0) {
        map->size = (size_t)info.st_size;
        void *data = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            reason = strerror(errno);
        else
            map->data = data;
    }
    close(fd);
    if (reason) return reason;
    map->next = maps->list;
    maps->list = map;
    *result = map;
    return NULL;
}

static const char *folder_of(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

const OnnxMap *maps_open(OnnxMaps **result, Arena *arena, Diag *diag, const char *path) {
    OnnxMaps *maps = *result = ARENA_NEW(arena, OnnxMaps);
    maps->arena = arena;
    strmap_init(&maps->by_location, arena);
    OnnxMap *map;
    const char *reason = map_file(maps, path, 0, &map);
    if (reason) {
        diag_error(diag, E0002, "cannot read the file: %s", reason);
        return NULL;
    }
    map->path = arena_strdup(arena, path);
    char real[PATH_MAX];
    maps->folder = folder_of(arena, path);
    if (realpath(maps->folder, real)) maps->real_folder = arena_strdup(arena, real);
    if (realpath(path, real)) maps->real_home = folder_of(arena, real);
    return map;
}

/* True if a relative path never climbs above where it starts. */
static bool stays_below(const char *path) {
    int depth = 0;
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n == 2 && path[0] == '.' && path[1] == '.') {
            if (--depth < 0) return false;
        } else if (n > 0 && !(n == 1 && path[0] == '.')) {
            depth++;
        }
        path += n + strspn(path + n, "/");
    }
    return true;
}

/* True if absolute path `path` is `folder` (which opening it will refuse), in it or below; both are
 * free of links. */
static bool lies_in(const char *path, const char *folder) {
    if (!folder) return false;
    size_t n = strlen(folder);
    if (n == 1) return true; /* "/" */
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0);
}

const OnnxMap *maps_external(OnnxMaps *maps, Diag *diag, const char *location) {
    OnnxMap *known = strmap_get(&maps->by_location, location);
    if (known) return known;
    if (location[0] == '/' || !stays_below(location)) {
        diag_error(
            diag, E1202,
            "external data '%s' lie outside of the model's folder: such files are not opened",
            location);
        return NULL;
    }
    char real[PATH_MAX];
    const char *path = arena_printf(maps->arena, "%s/%s", maps->folder, location);
    if (!realpath(path, real)) {
        diag_error(diag, E1203, "cannot open external data '%s': %s", path, strerror(errno));
        return NULL;
    }
    if (!lies_in(real, maps->real_folder) && !lies_in(real, maps->real_home)) {
        diag_error(
            diag, E1202,
            "external data '%s' are a link to '%s', outside of the model's folder: such files "
            "are not opened",
            location, real);
        return NULL;
    }
    const char *reason = map_file(maps, real, O_NOFOLLOW, &known);
    if (reason) {
        diag_error(diag, E1203, "cannot open external data '%s': %s", path, reason);
        return NULL;
    }
    known->path = path;
    *strmap_put(&maps->by_location, location) = known;
    return known;
}

void maps_release(const OnnxMaps *maps) {
    for (const OnnxMap *map = maps->list; map; map = map->next)
        if (map->data) madvise(map->data, map->size, MADV_DONTNEED);
}

void maps_close(OnnxMaps *maps) {
    for (OnnxMap *map = maps->list; map; map = map->next) {
        if (map->data) munmap(map->data, map->size);
        map->data = NULL;
        map->size = 0;
    }
}
