/* See nvrtc.h.
 *
 * Two traps are handled here. NVRTC loads a second library, libnvrtc-builtins, by name alone:
 * unless the system's loader knows its folder, compiling fails. So it is opened first, by the
 * absolute path of the folder that libnvrtc came from. And the size of PTX counts the terminating
 * zero, which ptxas does not take.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "codegen/nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct NvrtcProgram NvrtcProgram;

/* nvrtcResult */
enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };

/* The functions used: FUNCTION(name in the library, parameters). */
#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(nvrtcVersion, (int *, int *))                                                         \
    FUNCTION(nvrtcGetNumSupportedArchs, (int *))                                                   \
    FUNCTION(nvrtcGetSupportedArchs, (int *))                                                      \
    FUNCTION(nvrtcCreateProgram, (NvrtcProgram **, const char *, const char *, int,                \
                                  const char *const *, const char *const *))                       \
    FUNCTION(nvrtcDestroyProgram, (NvrtcProgram **))                                               \
    FUNCTION(nvrtcCompileProgram, (NvrtcProgram *, int, const char *const *))                      \
    FUNCTION(nvrtcGetCUBINSize, (NvrtcProgram *, size_t *))                                        \
    FUNCTION(nvrtcGetCUBIN, (NvrtcProgram *, char *))                                              \
    FUNCTION(nvrtcGetPTXSize, (NvrtcProgram *, size_t *))                                          \
    FUNCTION(nvrtcGetPTX, (NvrtcProgram *, char *))                                                \
    FUNCTION(nvrtcGetProgramLogSize, (NvrtcProgram *, size_t *))                                   \
    FUNCTION(nvrtcGetProgramLog, (NvrtcProgram *, char *))

typedef struct Nvrtc {
    void *handle;
    const char *(*nvrtcGetErrorString)(int);
#define FUNCTION(name, parameters) int(*name) parameters;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    int major, minor;
} Nvrtc;

/* One image to make: "sm_90a" or "compute_80". */
typedef struct Arch {
    const char *text;
    int number;
    char suffix;
    bool is_ptx;
} Arch;

static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

/* Folders to look in, as glob patterns. "%" is the running program's folder. The wheel's folder
 * depends on its version: nvidia/cu13/lib or nvidia/cuda_nvrtc/lib. */
static const char *const folders[] = {
    "%/venv/lib/python3*/site-packages/nvidia/*/lib",
    "%/../venv/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/*-linux/lib",
    "/usr/local/cuda-1[23]*/lib64",
    "/opt/cuda/lib64",
    "/usr/lib/*-linux-gnu",
};

static void *open_in(Arena *arena, const char *folder) {
    for (size_t i = 0; i < sizeof sonames / sizeof *sonames; i++) {
        const char *path = arena_printf(arena, "%s/%s", folder, sonames[i]);
        void *handle = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (handle) return handle;
    }
    return NULL;
}

/* The running program's folder, "." where the system does not say. */
static const char *program_folder(Arena *arena) {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash = NULL;
    if (length > 0) {
        path[length] = 0;
        slash = strrchr(path, '/');
    }
    if (!slash) return ".";
    return arena_strndup(arena, path, (size_t)(slash - path));
}

static void *search(Arena *arena) {
    for (size_t i = 0; i < sizeof sonames / sizeof *sonames; i++) {
        void *handle = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
    }
    void *handle = NULL;
    const char *here = program_folder(arena);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !handle; i++) {
        const char *pattern = folders[i];
        if (*pattern == '%') pattern = arena_printf(arena, "%s%s", here, pattern + 1);
        glob_t found;
        if (glob(pattern, 0, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc && !handle; k++)
                handle = open_in(arena, found.gl_pathv[k]);
            globfree(&found);
        }
    }
    return handle;
}

/* Opens libnvrtc-builtins from the folder that libnvrtc lies in. If it is not there, NVRTC may
 * still find it, so this is no failure. */
static void open_builtins(Arena *arena, const Nvrtc *nvrtc) {
    Dl_info info;
    if (!dladdr(*(void *const *)&nvrtc->nvrtcVersion, &info) || !info.dli_fname) return;
    char *path = realpath(info.dli_fname, NULL);
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (slash)
        dlopen(arena_printf(arena, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - path), path,
                            nvrtc->major, nvrtc->minor),
               RTLD_NOW | RTLD_GLOBAL);
    free(path);
}

/* The library stays loaded: NVRTC keeps state that does not survive being unloaded. */
static int nvrtc_open(Arena *arena, Diag *diag, const char *folder, Nvrtc *nvrtc) {
    *nvrtc = (Nvrtc){.handle = folder ? open_in(arena, folder) : search(arena)};
    if (!nvrtc->handle) {
        diag_error(diag, E4201,
                   "NVRTC not found%s%s: pip install nvidia-cuda-nvrtc, or install the "
                   "CUDA toolkit",
                   folder ? " in " : "", folder ? folder : "");
        return -1;
    }
    const char *missing = NULL;
    *(void **)&nvrtc->nvrtcGetErrorString = dlsym(nvrtc->handle, "nvrtcGetErrorString");
    if (!nvrtc->nvrtcGetErrorString) missing = "nvrtcGetErrorString";
#define FUNCTION(name, parameters)                                                                 \
    *(void **)&nvrtc->name = dlsym(nvrtc->handle, #name);                                          \
    if (!nvrtc->name) missing = #name;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    if (missing) {
        diag_error(diag, E4201, "NVRTC is too old, it has no %s: version 12 or 13 is needed",
                   missing);
        return -1;
    }
    nvrtc->nvrtcVersion(&nvrtc->major, &nvrtc->minor);
    open_builtins(arena, nvrtc);
    return 0;
}

/* Reads "sm_90a" or "compute_80"; false if it is neither. */
static bool arch_parse(const char *text, Arch *arch) {
    *arch = (Arch){.text = text, .is_ptx = strncmp(text, "compute_", 8) == 0};
    if (!arch->is_ptx && strncmp(text, "sm_", 3) != 0) return false;
    char *end;
    const long number = strtol(text + (arch->is_ptx ? 8 : 3), &end, 10);
    if (number < 10 || number > 999) return false;
    arch->number = (int)number;
    if (*end == 'a' || *end == 'f') arch->suffix = *end++;
    return *end == 0;
}

/* Is it one that this NVRTC knows? */
static bool arch_check(Arena *arena, Diag *diag, const Nvrtc *nvrtc, const Arch *arch) {
    int n = 0;
    nvrtc->nvrtcGetNumSupportedArchs(&n);
    int *known = ARENA_ARRAY(arena, n + 1, int);
    nvrtc->nvrtcGetSupportedArchs(known);
    Text list = text_new(arena);
    for (int i = 0; i < n; i++) {
        if (known[i] == arch->number) return true;
        text_addf(&list, " %d", known[i]);
    }
    diag_error(diag, E4202, "NVRTC %d.%d does not compile for %s; it knows%s", nvrtc->major,
               nvrtc->minor, arch->text, text_get(&list));
    return false;
}

static const char *program_log(Arena *arena, const Nvrtc *nvrtc, NvrtcProgram *program) {
    size_t bytes = 0;
    if (nvrtc->nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS || bytes == 0) return "";
    char *log = arena_alloc(arena, bytes + 1);
    if (nvrtc->nvrtcGetProgramLog(program, log) != NVRTC_SUCCESS) return "";
    return log;
}

/* The line of a log that says what is wrong: the first with "error", else the first. */
static const char *telling_line(Arena *arena, const char *log) {
    const char *at = strstr(log, "error");
    if (!at) at = log;
    while (at > log && at[-1] != '\n') at--;
    return arena_strndup(arena, at, strcspn(at, "\n"));
}

/* Fetches the cubin or the PTX of a compiled program into `image`. */
static int program_image(Arena *arena, const Nvrtc *nvrtc, NvrtcProgram *program, const Arch *arch,
                         Blob *image) {
    size_t bytes = 0;
    int code = arch->is_ptx ? nvrtc->nvrtcGetPTXSize(program, &bytes)
                            : nvrtc->nvrtcGetCUBINSize(program, &bytes);
    if (code != NVRTC_SUCCESS) return code;
    char *data = arena_alloc(arena, bytes + 1);
    code = arch->is_ptx ? nvrtc->nvrtcGetPTX(program, data) : nvrtc->nvrtcGetCUBIN(program, data);
    while (arch->is_ptx && bytes > 0 && data[bytes - 1] == 0) bytes--;
    *image = (Blob){.name = arch->text,
                    .data = data,
                    .bytes = bytes,
                    .arch = arch->number,
                    .suffix = arch->suffix,
                    .is_ptx = arch->is_ptx};
    return code;
}

/* Compiles for one architecture. Adds what NVRTC says to `log`. */
static int compile_one(Arena *arena, Diag *diag, const Nvrtc *nvrtc, const NvrtcOptions *options,
                       const char *name, const char *source, const Arch *arch, Text *log,
                       Blob *image) {
    const char **texts = ARENA_ARRAY(arena, options->n_headers + 1, const char *);
    const char **names = ARENA_ARRAY(arena, options->n_headers + 1, const char *);
    for (int i = 0; i < options->n_headers; i++) {
        texts[i] = options->headers[i].text;
        names[i] = options->headers[i].name;
    }
    const char **flags = ARENA_ARRAY(arena, options->n_flags + 1, const char *);
    int n_flags = 0;
    flags[n_flags++] = arena_printf(arena, "--gpu-architecture=%s", arch->text);
    for (int i = 0; i < options->n_flags; i++) flags[n_flags++] = options->flags[i];

    NvrtcProgram *program = NULL;
    int code = nvrtc->nvrtcCreateProgram(&program, source, name, options->n_headers, texts, names);
    if (code == NVRTC_SUCCESS) {
        code = nvrtc->nvrtcCompileProgram(program, n_flags, flags);
        const char *said = program_log(arena, nvrtc, program);
        text_add(log, said);
        if (code == NVRTC_ERROR_COMPILATION)
            diag_error(diag, E4203, "NVRTC rejects '%s' for %s: %s", name, arch->text,
                       telling_line(arena, said));
        if (code == NVRTC_SUCCESS) code = program_image(arena, nvrtc, program, arch, image);
        nvrtc->nvrtcDestroyProgram(&program);
    }
    if (code != NVRTC_SUCCESS && code != NVRTC_ERROR_COMPILATION)
        diag_error(diag, E4204, "NVRTC %d.%d failed on '%s' for %s: %s", nvrtc->major, nvrtc->minor,
                   name, arch->text, nvrtc->nvrtcGetErrorString(code));
    return code == NVRTC_SUCCESS ? 0 : -1;
}

int nvrtc_compile(Arena *arena, Diag *diag, const NvrtcOptions *options, const char *name,
                  const char *source, NvrtcResult *result) {
    static const NvrtcOptions none;
    if (!options) options = &none;
    *result = (NvrtcResult){.log = ""};
    VEC(Arch) archs = {0};
    for (const char *at = options->archs ? options->archs : NVRTC_DEFAULT_ARCHS; *at;) {
        Arch arch;
        const size_t length = strcspn(at, ",");
        const char *text = arena_strndup(arena, at, length);
        if (!arch_parse(text, &arch)) {
            diag_error(diag, E4202,
                       "'%s' is no architecture: sm_NN for machine code, compute_NN for "
                       "PTX",
                       text);
            return -1;
        }
        vec_push(arena, &archs, arch);
        at += length + (at[length] == ',');
    }
    Nvrtc nvrtc;
    if (nvrtc_open(arena, diag, options->folder, &nvrtc) != 0) return -1;
    Blob *images = ARENA_ARRAY(arena, archs.n + 1, Blob);
    Text log = text_new(arena);
    for (int i = 0; i < archs.n; i++)
        if (!arch_check(arena, diag, &nvrtc, &archs.items[i]) ||
            compile_one(arena, diag, &nvrtc, options, name, source, &archs.items[i], &log,
                        &images[i]) != 0)
            return -1;
    *result = (NvrtcResult){.n_images = archs.n, .images = images, .log = text_get(&log)};
    return 0;
}
