/* Loading and running models compiled into shared libraries, through the descriptor of mlcc/model.h. */
#include "compiler/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

bool model_load(Session *s, LoadedModel *m, const char *path, const char *weights) {
    *m = (LoadedModel){0};
    if (!strchr(path, '/')) path = arena_printf(&s->arena, "./%s", path);
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
    m->model = symbol.function();
    if (m->model->abi_version != MLCC_ABI_VERSION) {
        diag_error(&s->diag, E0008, "has ABI version %u, this mlcc knows %u",
                   m->model->abi_version, MLCC_ABI_VERSION);
        return false;
    }
    int status = m->model->open(&m->state, weights);
    if (status != MLCC_OK) {
        diag_error(&s->diag, E0008, "cannot be opened: %s", m->model->error(m->state));
        return false;
    }
    size_t bytes = ((size_t)m->model->arena_bytes + 63) / 64 * 64;
    m->arena = aligned_alloc(64, bytes ? bytes : 64);
    if (!m->arena) diag_error(&s->diag, E0006, "no memory for an arena of %zu bytes", bytes);
    return m->arena != NULL;
}

bool model_run(Session *s, LoadedModel *m, const void *const *inputs, void *const *outputs) {
    /* whatever lies in the arena must not matter */
    memset(m->arena, 0xa5, (size_t)m->model->arena_bytes);
    int status = m->model->run(m->state, inputs, outputs, m->arena);
    if (status == MLCC_OK) return true;
    diag_error(&s->diag, E0008, "failed with status %d: %s", status, m->model->error(m->state));
    return false;
}

void model_unload(LoadedModel *m) {
    if (m->model && m->state) m->model->close(m->state);
    free(m->arena);
    if (m->library) dlclose(m->library);
}
