/* Finds and drives the GLSL compiler plugin. What the plugin offers is in glsl_plugin.h. */
#include "codegen/glsl_compile.h"

#include "codegen/glsl_plugin.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

struct GlslCompiler {
    Arena *arena;
    Diag *diag;
    void *library;
    const GlslPlugin *plugin;
    void *compiler;
};

/* Where the plugin may lie, seen from the program's folder: in the build folder, seen from the
 * build folder's tests, and installed. */
static const char *const places[] = {"", "../", "../lib/mlcc/"};

/* The folder of the running program with a final slash, or NULL. */
static const char *program_folder(Arena *arena) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    while (length > 0 && path[length - 1] != '/') length--;
    return length > 0 ? arena_strndup(arena, path, (size_t)length) : NULL;
}

/* The path of the plugin, or NULL. */
static const char *find_plugin(Arena *arena) {
    const char *folder = program_folder(arena);
    for (size_t i = 0; folder && i < sizeof places / sizeof *places; i++) {
        const char *path = arena_printf(arena, "%s%slibmlcc_glsl.so", folder, places[i]);
        if (access(path, R_OK) == 0) return path;
    }
    return NULL;
}

/* Loads `path` into `glsl`. False with a message. */
static bool load_plugin(GlslCompiler *glsl, const char *path) {
    /* Not to be unloaded: glslang keeps tables for the process, which would be lost, not freed. */
    glsl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!glsl->library) {
        diag_error(glsl->diag, E4301, "GLSL compiler plugin does not load: %s", dlerror());
        return false;
    }
    /* POSIX lets a function's address go through an object pointer; ISO C has no cast for it. */
    void *symbol = dlsym(glsl->library, "mlcc_glsl_plugin");
    GlslPluginFunction *function = NULL;
    memcpy(&function, &symbol, sizeof symbol);
    glsl->plugin = function ? function() : NULL;
    if (!glsl->plugin || glsl->plugin->version != GLSL_PLUGIN_VERSION) {
        diag_error(glsl->diag, E4302,
                   "GLSL compiler plugin '%s' is of another version than mlcc: run make", path);
        return false;
    }
    glsl->compiler = glsl->plugin->create();
    if (!glsl->compiler)
        diag_error(glsl->diag, E4301, "GLSL compiler plugin '%s' does not start: out of memory",
                   path);
    return glsl->compiler != NULL;
}

GlslCompiler *glsl_open(Arena *arena, Diag *diag, const char *path) {
    GlslCompiler *glsl = ARENA_NEW(arena, GlslCompiler);
    glsl->arena = arena;
    glsl->diag = diag;
    if (!path) path = find_plugin(arena);
    if (!path) {
        diag_error(diag, E4301,
                   "GLSL compiler plugin libmlcc_glsl.so not found: install libshaderc-dev and "
                   "glslang-dev, then run make");
        return NULL;
    }
    if (load_plugin(glsl, path)) return glsl;
    glsl_close(glsl);
    return NULL;
}

bool glsl_compile(GlslCompiler *glsl, const char *name, const char *text, GlslWords *result) {
    GlslResult got = glsl->plugin->compile(glsl->compiler, name, text, strlen(text));
    result->words = NULL;
    result->bytes = 0;
    if (!got.words) {
        diag_error(glsl->diag, E4303, "kernel '%s': the GLSL compiler says: %.*s", name,
                   (int)strcspn(got.log, "\n"), got.log);
        return false;
    }
    result->words = arena_copy(glsl->arena, got.words, got.bytes);
    result->bytes = got.bytes;
    return true;
}

void glsl_close(GlslCompiler *glsl) {
    if (!glsl) return;
    if (glsl->compiler) glsl->plugin->destroy(glsl->compiler);
    glsl->compiler = NULL;
    if (glsl->library) dlclose(glsl->library);
    glsl->library = NULL;
}
