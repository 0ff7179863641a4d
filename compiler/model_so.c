/* Loading and running models compiled into shared libraries, through the descriptor of
 * mlcc/model.h. */
#include "compiler/driver.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is said where a library has an instruction that the processor lacks: ready before anything
 * runs, since a signal's handler may only write and leave. */
static char illegal_message[1024];

static void leave_illegal(int signal) {
    (void)signal;
    ssize_t written = write(STDERR_FILENO, illegal_message, strlen(illegal_message));
    (void)written;
    _exit(ERR_SYSTEM);
}

/* A library does not state what it was compiled for, so that of another processor is only noticed
 * when it runs. */
static void expect_illegal(const Session *s) {
    snprintf(illegal_message, sizeof illegal_message,
             "%s: error[E%04d]: has instructions that this machine's processor lacks (it was "
             "compiled for another -march)\n",
             s->diag.file ? s->diag.file : "mlcc", E0010);
    struct sigaction action = {.sa_handler = leave_illegal};
    sigaction(SIGILL, &action, NULL);
}

/* Does the file end before its section headers, which come last? The loader maps such a library all
 * the same and dies of reading what is not there. */
static bool cut_short(const char *path) {
    unsigned char head[64];
    FILE *f = fopen(path, "rb");
    bool cut = false;
    if (f && fread(head, 1, sizeof head, f) == sizeof head && !memcmp(head, "\177ELF\2\1", 6)) {
        uint64_t end = 0; /* e_shoff + e_shentsize * e_shnum */
        for (int i = 7; i >= 0; i--) end = end << 8 | head[40 + i];
        end += (uint64_t)(head[58] | head[59] << 8) * (uint64_t)(head[60] | head[61] << 8);
        cut = fseek(f, 0, SEEK_END) == 0 && (uint64_t)ftell(f) < end;
    }
    if (f) fclose(f);
    return cut;
}

/* Has the model work on as many threads as --threads says. */
static bool set_threads(Session *s, LoadedModel *m) {
    const char *text = s->o->threads;
    m->threads = 1;
    if (!text) return true;
    char *end;
    long threads = strtol(text, &end, 10);
    if (*end || threads < 1 || threads > 1024) {
        diag_error(&s->diag, E0001, "--threads wants a number from 1 to 1024, not '%s'", text);
        return false;
    }
    /* a library made before there were threads ends its descriptor earlier */
    bool offered = m->model->struct_bytes >= offsetof(mlcc_model, set_threads) + sizeof(void *) &&
                   m->model->set_threads;
    if (!offered && threads > 1)
        diag_error(&s->diag, E0001,
                   "--threads=%s: this library does not work on several; leave it out", text);
    else if (offered && m->model->set_threads(m->state, (int)threads) != MLCC_OK)
        diag_error(&s->diag, E0006, "the system gives no %ld threads", threads);
    m->threads = (int)threads;
    return s->diag.n_errors == 0;
}

bool model_load(Session *s, LoadedModel *m, const char *path, const char *weights) {
    *m = (LoadedModel){0};
    if (!strchr(path, '/')) path = arena_printf(&s->arena, "./%s", path);
    if (cut_short(path)) {
        diag_error(&s->diag, E0008,
                   "cannot be loaded: the file ends early (was a copy cut short?)");
        return false;
    }
    m->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!m->library) {
        diag_error(&s->diag, E0008, "cannot be loaded: %s", dlerror());
        return false;
    }
    union { /* POSIX promises that a function pointer comes through dlsym whole */
        void *object;
        const mlcc_model *(*function)(void);
    } symbol = {dlsym(m->library, "mlcc_model_v1")};
    if (!symbol.object) {
        diag_error(&s->diag, E0008, "is no model compiled by mlcc (it exports no mlcc_model_v1)");
        return false;
    }
    expect_illegal(s);
    m->model = symbol.function();
    if (m->model->abi_version != MLCC_ABI_VERSION) {
        diag_error(&s->diag, E0008, "has ABI version %u, this mlcc knows %u", m->model->abi_version,
                   MLCC_ABI_VERSION);
        return false;
    }
    int status = m->model->open(&m->state, weights);
    if (status != MLCC_OK) {
        diag_error(&s->diag, E0008, "cannot be opened: %s", m->model->error(m->state));
        return false;
    }
    if (!set_threads(s, m)) return false;
    size_t bytes = ((size_t)m->model->arena_bytes + 63) / 64 * 64;
    m->arena = aligned_alloc(64, bytes ? bytes : 64);
    if (!m->arena) diag_error(&s->diag, E0006, "no memory for an arena of %zu bytes", bytes);
    return m->arena != NULL;
}

const char *model_failure(const LoadedModel *loaded, int status, void *const *outputs) {
    const mlcc_model *m = loaded->model;
    bool told = m->struct_bytes >= offsetof(mlcc_model, faults) + sizeof(void *) && m->faults;
    for (uint32_t i = 0; status == MLCC_E_EXTENT && told && i < m->n_outputs; i++) {
        int32_t fault = 0;
        if (m->output_shape[i] != (int32_t)i) continue;
        memcpy(&fault, outputs[i], sizeof fault);
        if (fault) return m->faults[fault - 1];
    }
    if (status == MLCC_E_DRIVER && !strcmp(m->target, "c"))
        return "the system does not give the processor's matrix unit";
    return m->error(loaded->state);
}

bool model_run(Session *s, LoadedModel *m, const void *const *inputs, void *const *outputs) {
    /* whatever lies in the arena must not matter */
    memset(m->arena, 0xa5, (size_t)m->model->arena_bytes);
    int status = m->model->run(m->state, inputs, outputs, m->arena);
    if (status == MLCC_OK) return true;
    diag_error(&s->diag, E0008, "failed with status %d: %s", status,
               model_failure(m, status, outputs));
    return false;
}

bool model_reset(Session *s, LoadedModel *m) {
    /* a library made before there were states ends its descriptor earlier */
    bool offered =
        m->model->struct_bytes >= offsetof(mlcc_model, reset) + sizeof(void *) && m->model->reset;
    int status = offered ? m->model->reset(m->state) : MLCC_OK;
    if (status == MLCC_OK) return true;
    diag_error(&s->diag, E0008, "failed with status %d in reset: %s", status,
               m->model->error(m->state));
    return false;
}

void model_unload(LoadedModel *m) {
    if (m->model && m->state) m->model->close(m->state);
    free(m->arena);
    if (m->library) dlclose(m->library);
    signal(SIGILL, SIG_DFL);
}
