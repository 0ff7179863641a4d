/* Writing a program in the form that the output's suffix asks for. */
#include "compiler/driver.h"
#include "compiler/embedded.h"
#include "compiler/onnx/mapfile.h"
#include "codegen/glsl_compile.h"
#include "codegen/nvrtc.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum Form { FORM_source, FORM_spirv, FORM_object, FORM_archive, FORM_library } Form;

typedef struct FormRow {
    const char *suffix;
    Form form;
    const char *target; /* NULL: any */
} FormRow;

static const FormRow forms[] = {
    {".c", FORM_source, "c"},       {".cu", FORM_source, "cuda"}, {".comp", FORM_source, "vulkan"},
    {".spv", FORM_spirv, "vulkan"}, {".o", FORM_object, NULL},    {".a", FORM_archive, NULL},
    {".so", FORM_library, NULL},
};

/* All that one command writes, so that it appears together or not at all. */
typedef VEC(OutputFile) Outputs;

static void add_output(Session *s, Outputs *out, const char *path, const void *data, size_t bytes) {
    OutputFile file = {.path = path, .data = data, .bytes = bytes};
    vec_push(&s->arena, out, file);
}

static const FormRow *find_form(const Target *t, const char *suffix) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(forms[i].suffix, suffix) &&
            (!forms[i].target || !strcmp(forms[i].target, t->name)))
            return &forms[i];
    return NULL;
}

bool output_fits(const Target *t, const char *suffix) {
    return find_form(t, suffix) != NULL;
}

/* The path without folder and suffix, as a C identifier that is not reserved: it begins with a
 * letter. */
static const char *prefix_of(Session *s, const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = arena_strdup(&s->arena, slash ? slash + 1 : path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return isalpha((unsigned char)*name) ? name : arena_printf(&s->arena, "m%s", name);
}

static const char *with_suffix(Session *s, const char *path, const char *suffix) {
    const char *dot = strrchr(path, '.');
    return arena_printf(&s->arena, "%.*s%s", (int)(dot - path), path, suffix);
}

/* --- tools ------------------------------------------------------------------------------------ */

typedef VEC(const char *) Words;

/* Adds the words of a command line fragment. */
static void add_words(Session *s, Words *argv, const char *text) {
    char *copy = arena_strdup(&s->arena, text), *rest = copy;
    for (char *w; (w = strtok_r(rest, " ", &rest));) vec_push(&s->arena, argv, w);
}

static const char no_compiler[] = "install gcc, or name a C compiler with --cc";

static bool run_words(Session *s, const char *folder, Words *argv) {
    vec_push(&s->arena, argv, NULL);
    return run_tool(s, folder, argv->items, no_compiler);
}

/* The C compiler. It runs in another folder: a path to it is made absolute. */
static void cc_words(Session *s, Words *argv) {
    int first = argv->n;
    char real[PATH_MAX];
    add_words(s, argv, s->o->cc ? s->o->cc : "cc");
    if (argv->n > first && strchr(argv->items[first], '/') && realpath(argv->items[first], real))
        argv->items[first] = arena_strdup(&s->arena, real);
}

/* -march= for the C compiler, for which a processor's own name is another option. */
static const char *march_flag(Session *s, const char *march) {
    const bool core = !strncmp(march, "cortex-", 7);
    return arena_printf(&s->arena, "-m%s=%s", core ? "cpu" : "arch", march);
}

static void compiler_words(Session *s, Words *argv, const char *flags) {
    cc_words(s, argv);
    vec_push(&s->arena, argv,
             arena_printf(&s->arena, "-O%s", s->o->optimize ? s->o->optimize : "3"));
    /* what computes functions in vectors counts on sums that are not taken apart */
    if (s->target->vector_types) add_words(s, argv, "-fno-fast-math");
    add_words(s, argv, C_FLAGS " -fvisibility=hidden -I.");
    bool plain = !strcmp(s->target->name, "c");
    if (plain && s->o->march && strcmp(s->o->march, "generic") != 0)
        vec_push(&s->arena, argv, march_flag(s, s->o->march));
    const bool fast = !s->o->optimize || !strcmp(s->o->optimize, "3");
    if (plain && s->target->vector_types && fast) add_words(s, argv, LOOP_FLAGS);
    add_words(s, argv, flags);
    if (s->o->variant)
        vec_push(
            &s->arena, argv,
            arena_printf(&s->arena, "-Dmlcc_model_v1=mlcc_model_v1_%d", s->o->variant->number));
}

const char *c_macros(Session *s, const char *march) {
    void **known = strmap_put(&s->macros, march ? march : "");
    const char *folder = *known ? NULL : temp_folder(s);
    if (!folder) return *known;
    Words argv = {0}, plain = {0};
    cc_words(s, &argv);
    if (march) vec_push(&s->arena, &argv, march_flag(s, march));
    add_words(s, &argv, "-dM -E -x c /dev/null -o answer");
    vec_push(&s->arena, &argv, NULL);
    OutputFile answer = {0};
    bool ok = run_quietly(s, folder, argv.items) == 0;
    if (ok) {
        ok = load_file(s, arena_printf(&s->arena, "%s/answer", folder), &answer);
    } else { /* if it is not for the name that it fails, it may say why */
        cc_words(s, &plain);
        add_words(s, &plain, "-E -x c /dev/null -o answer");
        run_words(s, folder, &plain);
    }
    temp_remove(folder);
    if (ok) *known = arena_strndup(&s->arena, answer.data, answer.bytes);
    return *known;
}

static const char *embedded_text(const char *name) {
    const EmbeddedFile *f = embedded_files;
    while (f->name && strcmp(f->name, name) != 0) f++;
    return f->data;
}

/* How to compile and link what decodes images. */
typedef struct Decoder {
    const char *flags, *libraries;
} Decoder;

/* Asks pkg-config. False after a diagnostic. */
static bool find_decoder(Session *s, const char *folder, Decoder *d) {
    static const char *const argv[] = {
        "sh", "-c",
        "for what in cflags libs; do pkg-config --$what MagickWand >$what 2>&1 || >$what; done",
        NULL};
    OutputFile flags = {0}, libraries = {0};
    if (!run_tool(s, folder, argv, "a shell asks pkg-config for MagickWand") ||
        !load_file(s, arena_printf(&s->arena, "%s/cflags", folder), &flags) ||
        !load_file(s, arena_printf(&s->arena, "%s/libs", folder), &libraries))
        return false;
    const char *words[] = {arena_strndup(&s->arena, flags.data, flags.bytes),
                           arena_strndup(&s->arena, libraries.data, libraries.bytes)};
    d->flags = arena_strndup(&s->arena, words[0], strcspn(words[0], "\n"));
    /* its threads and what it keeps until the process ends must not lose their code */
    d->libraries = arena_printf(&s->arena, "-Wl,-z,nodelete -Wl,--as-needed %.*s",
                                (int)strcspn(words[1], "\n"), words[1]);
    if (strstr(words[1], "MagickWand")) return true;
    diag_error(&s->diag, E0003,
               "pkg-config knows no MagickWand, which decodes images: install libmagickwand-dev");
    return false;
}

/* Writes the embedded runtime sources into the folder. */
static bool write_embedded(Session *s, const char *folder) {
    mkdir(arena_printf(&s->arena, "%s/mlcc", folder), 0700);
    for (const EmbeddedFile *f = embedded_files; f->name; f++) {
        /* include/mlcc/x.h -> mlcc/x.h, runtime/x -> x */
        const char *name = !strncmp(f->name, "include/", 8)   ? f->name + 8
                           : !strncmp(f->name, "runtime/", 8) ? f->name + 8
                                                              : f->name;
        if (!write_file(s, arena_printf(&s->arena, "%s/%s", folder, name), f->data, f->bytes))
            return false;
    }
    return true;
}

/* --- what the libraries are made of ----------------------------------------------------------- */

typedef struct Unit {
    const char *file, *flags; /* a source file in the folder, and how to compile it, */
    const char *object;       /* to what */
    bool runtime;             /* it is the same for every model */
} Unit;

typedef struct Units {
    VEC(Unit) of;
    int n_objects; /* compiled before */
    const char *const *objects;
    const char *libraries;
    Text *header;    /* of the model's C functions; NULL: it has none */
    Decoder decoder; /* empty where no images are decoded */
} Units;

static Unit unit_of(Session *s, const char *file, const char *flags) {
    return (Unit){file, flags, arena_printf(&s->arena, "%s.o", file), false};
}

static void add_unit(Session *s, Units *u, const char *file, const char *flags) {
    vec_push(&s->arena, &u->of, unit_of(s, file, flags));
}

static void add_runtime(Session *s, Units *u, const char *file) {
    Unit unit = unit_of(s, file, "-std=gnu11");
    unit.runtime = true;
    vec_push(&s->arena, &u->of, unit);
}

/* A file that is compiled in parts. */
static void add_parts(Session *s, Units *u, const char *file, const char *flags, int parts) {
    for (int i = 0; i < parts; i++) {
        Unit unit = {file, arena_printf(&s->arena, "%s -DMLCC_PART=%d", flags, i),
                     arena_printf(&s->arena, "%s.%d.o", file, i), false};
        vec_push(&s->arena, &u->of, unit);
    }
}

static bool write_text(Session *s, const char *folder, const char *name, const Text *text) {
    return write_file(s, arena_printf(&s->arena, "%s/%s", folder, name), text_get(text),
                      text->length);
}

static bool c_units(Session *s, Program *p, EmitOptions *e, const char *folder, Units *units) {
    Text source = text_new(&s->arena), header = text_new(&s->arena);
    e->header_name = "model.h";
    e->profile = s->o->profile;
    if (e->profile) add_runtime(s, units, "profile.c");
    int parts = 1;
    if (e->descriptor && !s->o->variant) e->parts = &parts;
    emit_c(p, e, &source, &header);
    if (!write_text(s, folder, "model.c", &source) || !write_text(s, folder, "model.h", &header))
        return false;
    add_parts(s, units, "model.c",
              arena_printf(&s->arena, "-std=c99 -ffp-contract=fast %s", units->decoder.flags),
              parts);
    units->header = ARENA_NEW(&s->arena, Text);
    *units->header = header;
    units->libraries = "-lm";
    bool shares = e->threads && emit_c_shares(p, e), held = e->descriptor && e->weights_symbol;
    if (shares) add_runtime(s, units, "team.c");
    if (held) add_runtime(s, units, "resident.c");
    if (shares || held) units->libraries = "-lpthread -lm";
    return true;
}

static bool is_emulated(const Session *s) {
    return s->o->march && !strcmp(s->o->march, "cpu");
}

static bool cuda_units(Session *s, Program *p, EmitOptions *e, const char *folder, Units *units) {
    Text kernels = text_new(&s->arena), host = text_new(&s->arena);
    emit_cuda(p, e, &kernels);
    bool emulated = is_emulated(s);
    NvrtcResult code = {0};
    if (emulated) {
        if (!write_text(s, folder, "kernels.c", &kernels)) return false;
        add_unit(s, units, "kernels.c", "-std=gnu11 -include cuda_emu.h");
        add_runtime(s, units, "cuda_emu.c");
    } else {
        NvrtcHeader header = {.name = "cuda_intrin.h",
                              .text = embedded_text("runtime/cuda_intrin.h")};
        NvrtcOptions options = {
            .folder = s->o->nvrtc, .archs = s->o->march, .n_headers = 1, .headers = &header};
        if (nvrtc_compile(&s->arena, &s->diag, &options, "kernels.cu", text_get(&kernels), &code))
            return false;
        add_runtime(s, units, "cuda.c");
    }
    emit_gpu_host(p, s->target, e, code.n_images, code.images, emulated, &host);
    add_unit(s, units, "host.c", arena_printf(&s->arena, "-std=gnu11 %s", units->decoder.flags));
    units->libraries = "-ldl -lpthread -lm";
    return write_text(s, folder, "host.c", &host);
}

/* SPIR-V of every kernel. */
static Blob *compile_shaders(Session *s, Program *p, EmitOptions *e) {
    GlslCompiler *compiler = glsl_open(&s->arena, &s->diag, NULL);
    if (!compiler) return NULL;
    Blob *blobs = ARENA_ARRAY(&s->arena, p->kernels.n + 1, Blob);
    bool ok = true;
    for (int i = 0; i < p->kernels.n && ok; i++) {
        Text shader = text_new(&s->arena);
        GlslWords words;
        emit_glsl(p, e, i, &shader);
        ok = glsl_compile(compiler, p->kernels.items[i]->name, text_get(&shader), &words);
        if (ok)
            blobs[i] = (Blob){
                .name = p->kernels.items[i]->name, .data = words.words, .bytes = words.bytes};
    }
    glsl_close(compiler);
    return ok ? blobs : NULL;
}

static bool vulkan_units(Session *s, Program *p, EmitOptions *e, const char *folder, Units *units) {
    Blob *blobs = compile_shaders(s, p, e);
    if (!blobs) return false;
    Text host = text_new(&s->arena);
    emit_gpu_host(p, s->target, e, p->kernels.n, blobs, false, &host);
    add_unit(s, units, "host.c", arena_printf(&s->arena, "-std=gnu11 %s", units->decoder.flags));
    add_runtime(s, units, "vulkan.c");
    units->libraries = "-ldl -lpthread";
    return write_text(s, folder, "host.c", &host);
}

typedef bool UnitsFn(Session *, Program *, EmitOptions *, const char *, Units *);

static const char *cache_of(Session *s, const Unit *u) {
    if (!u->runtime || !s->o->runtime_cache) return NULL;
    return arena_printf(&s->arena, "%s/%s", s->o->runtime_cache, u->object);
}

/* Compiles units in the folder, several at once, and adds their objects. */
static bool compile_units(Session *s, const char *folder, int n, const Unit *units,
                          Words *objects) {
    VEC(const char *const *) commands = {0};
    for (int i = 0; i < n; i++) {
        const Unit *u = &units[i];
        const char *cached = cache_of(s, u);
        const bool had = cached && access(cached, R_OK) == 0;
        vec_push(&s->arena, objects, had ? cached : u->object);
        if (had) continue;
        Words argv = {0};
        compiler_words(s, &argv, u->flags);
        add_words(s, &argv, arena_printf(&s->arena, "-c -o %s %s", u->object, u->file));
        vec_push(&s->arena, &argv, NULL);
        vec_push(&s->arena, &commands, (const char *const *)argv.items);
    }
    if (!run_tools(s, folder, commands.n, commands.items, no_compiler)) return false;
    for (int i = 0; i < n; i++) {
        const char *cached = cache_of(s, &units[i]);
        const char *from = arena_printf(&s->arena, "%s/%s", folder, units[i].object);
        if (cached && access(cached, R_OK) != 0 && !install_file(s, from, cached)) return false;
    }
    return true;
}

/* Compiles the units in the folder and makes the library, object or archive of them. */
static bool build_units(Session *s, const char *folder, const Units *units, Form form,
                        const char *path, Outputs *out) {
    Words objects = {0};
    VEC(Unit) own = {0};
    for (int i = 0; i < units->of.n; i++) {
        if (s->o->variant && units->of.items[i].runtime) continue; /* the library has one for all */
        vec_push(&s->arena, &own, units->of.items[i]);
    }
    if (!compile_units(s, folder, own.n, own.items, &objects)) return false;
    for (int i = 0; i < units->n_objects; i++) vec_push(&s->arena, &objects, units->objects[i]);
    Words argv = {0};
    if (form == FORM_archive)
        add_words(s, &argv, "ar rcsD out");
    else {
        cc_words(s, &argv);
        add_words(s, &argv,
                  form == FORM_library ? "-shared -Wl,--build-id=none -Wl,-z,defs -o out"
                                       : "-r -nostdlib -Wl,--build-id=none -o out");
    }
    for (int i = 0; i < objects.n; i++) vec_push(&s->arena, &argv, objects.items[i]);
    if (form == FORM_library) {
        add_words(s, &argv, units->libraries);
        add_words(s, &argv, units->decoder.libraries);
    }
    OutputFile file = {.path = path, .from = arena_printf(&s->arena, "%s/out", folder)};
    if (!run_words(s, folder, &argv)) return false;
    vec_push(&s->arena, out, file);
    return true;
}

bool write_runtime_library(Session *s, const char *path, int n, const char *const *sources) {
    Units units = {.libraries = "-lpthread -lm", .decoder = {"", ""}};
    Outputs out = {0};
    const char *folder = temp_folder(s);
    for (int i = 0; i < n; i++) add_unit(s, &units, sources[i], "-std=gnu11 -ffp-contract=fast");
    bool ok = folder && write_embedded(s, folder) &&
              build_units(s, folder, &units, FORM_library, path, &out) &&
              write_outputs(s, out.n, out.items);
    if (folder) temp_remove(folder);
    return ok;
}

/* From this size on weights are taken in by the assembler: C compilers are slow to read them. It
 * and the linker hold a piece in memory. */
#define ASSEMBLED_WEIGHTS (64 << 10)
#define ASSEMBLED_PIECE   ((size_t)64 << 20)

/* The weights block on its way to files. */
typedef struct WeightsFile {
    Session *s;
    FileWriter to;
    uint64_t digest;
    size_t unreleased; /* bytes since maps_release */
    /* pieces for the assembler */
    bool hashed;  /* somebody wants the digest */
    size_t bytes; /* of the current one */
    const Program *p;
    const char *folder, *symbol;
    Words objects;
} WeightsFile;

/* What has been read of the model's files need not stay in memory. */
static void note_read(WeightsFile *w, size_t bytes) {
    w->unreleased += bytes;
    if (w->unreleased < ASSEMBLED_PIECE) return;
    w->unreleased = 0;
    if (w->s->model_open) maps_release(w->s->model.file.maps);
}

static bool write_weights(void *user, const void *data, size_t bytes) {
    WeightsFile *w = user;
    w->digest = fnv1a(data, bytes, w->digest);
    bool ok = writer_add(&w->to, data, bytes);
    note_read(w, bytes);
    return ok;
}

static const char *piece_name(WeightsFile *w, const char *suffix) {
    return arena_printf(&w->s->arena, "weights%d.%s", w->objects.n, suffix);
}

/* Makes an object of the piece that has been written. */
static bool assemble_piece(WeightsFile *w) {
    Session *s = w->s;
    if (!writer_close(&w->to, false)) return false;
    const char *bin = piece_name(w, "bin"), *path = w->to.path;
    Text text = text_new(&s->arena);
    emit_weights_asm(w->p, w->objects.n ? NULL : w->symbol, bin, s->target->buffer_align, &text);
    const Unit unit = unit_of(s, piece_name(w, "s"), "");
    if (!write_text(s, w->folder, unit.file, &text)) return false;
    bool ok = compile_units(s, w->folder, 1, &unit, &w->objects);
    unlink(path);
    w->bytes = 0;
    return ok;
}

static bool assemble_weights(void *user, const void *data, size_t bytes) {
    WeightsFile *w = user;
    if (w->hashed) w->digest = fnv1a(data, bytes, w->digest);
    for (size_t n; bytes; bytes -= n, data = (const char *)data + n) {
        if (!w->bytes) {
            const char *path = arena_printf(&w->s->arena, "%s/%s", w->folder, piece_name(w, "bin"));
            w->to = writer_open(w->s, path, path);
        }
        n = bytes < ASSEMBLED_PIECE - w->bytes ? bytes : ASSEMBLED_PIECE - w->bytes;
        w->bytes += n;
        if (!writer_add(&w->to, data, n) || w->bytes == ASSEMBLED_PIECE) {
            if (!assemble_piece(w)) return false;
        }
        note_read(w, n);
    }
    return true;
}

/* Objects of the weights block, one for each piece of it: linked in this order they are the block.
 */
static bool assembled_weights(Session *s, Program *p, EmitOptions *e, const char *folder,
                              Units *units) {
    if (e->weights_file || p->weight_bytes < ASSEMBLED_WEIGHTS) return true;
    WeightsFile *w = ARENA_NEW(&s->arena, WeightsFile);
    *w = (WeightsFile){.s = s, .digest = FNV_SEED, .p = p, .folder = folder};
    w->hashed = s->target->blocks;
    w->symbol = e->weights_symbol = arena_printf(&s->arena, "%s_weights", e->prefix);
    if (!weights_write(p, assemble_weights, w) || (w->bytes && !assemble_piece(w))) return false;
    if (w->hashed) e->weights_digest = &w->digest;
    units->n_objects = w->objects.n;
    units->objects = w->objects.items;
    return true;
}

static bool add_binary(Session *s, Program *p, EmitOptions *e, Form form, const char *path,
                       Outputs *out) {
    UnitsFn *make = !strcmp(s->target->name, "c")      ? c_units
                    : !strcmp(s->target->name, "cuda") ? cuda_units
                                                       : vulkan_units;
    const char *folder = temp_folder(s);
    if (!folder) return false;
    /* Who links an object or archive of C calls the model by its header; a descriptor, which has
     * the same name in each, would keep two models out of one program. A library's names are its
     * own. */
    e->descriptor = e->threads = form == FORM_library || s->o->variant;
    if (form == FORM_library) e->prefix = "model";
    Units units = {.decoder = {"", ""}};
    bool ok = march_known(s) && (!p->graph->images.n || find_decoder(s, folder, &units.decoder)) &&
              write_embedded(s, folder) && assembled_weights(s, p, e, folder, &units) &&
              make(s, p, e, folder, &units) && build_units(s, folder, &units, form, path, out);
    if (ok && units.header && form != FORM_library && !s->o->variant)
        add_output(s, out, with_suffix(s, path, ".h"), text_get(units.header),
                   units.header->length);
    return ok;
}

/* --- sources ---------------------------------------------------------------------------------- */

/* One file per kernel; a single one has the name asked for, more have the kernel's name in theirs.
 */
static void add_per_kernel(Session *s, Program *p, const char *path, const Blob *blobs,
                           Outputs *out) {
    const char *suffix = strrchr(path, '.');
    for (int i = 0; i < p->kernels.n; i++) {
        const char *own = arena_printf(&s->arena, ".%s%s", p->kernels.items[i]->name, suffix);
        add_output(s, out, p->kernels.n > 1 ? with_suffix(s, path, own) : path, blobs[i].data,
                   blobs[i].bytes);
    }
}

static void write_piece(void *user, const char *piece, size_t length) {
    writer_add(user, piece, length);
}

/* The C file is written as it is made: with its weights it may be larger than memory. */
static bool add_c_source(Session *s, Program *p, const EmitOptions *e, const char *path,
                         Text *header, Outputs *out) {
    OutputFile file = {.path = path, .from = output_begin(s, path)};
    if (!file.from) return false;
    FileWriter to = writer_open(s, file.from, path);
    Text source = text_to(&s->arena, write_piece, &to);
    emit_c(p, e, &source, header);
    text_flush(&source);
    vec_push(&s->arena, out, file);
    return writer_close(&to, true);
}

static bool add_sources(Session *s, Program *p, EmitOptions *e, const char *path, Outputs *out) {
    if (!strcmp(s->target->name, "c")) {
        Text header = text_new(&s->arena);
        const char *header_path = with_suffix(s, path, ".h"), *slash = strrchr(header_path, '/');
        e->header_name = slash ? slash + 1 : header_path;
        /* no #include can spell these, and no escape stands for them there */
        if (strpbrk(e->header_name, "\"\n\\") || strstr(e->header_name, "?\?")) {
            diag_error(&s->diag, E0001,
                       "-o '%s': a C file's name cannot hold '\"', '\\', '?\?' or a new line",
                       path);
            return false;
        }
        if (!add_c_source(s, p, e, path, &header, out)) return false;
        add_output(s, out, header_path, text_get(&header), header.length);
        return true;
    }
    if (!strcmp(s->target->name, "cuda")) {
        Text kernels = text_new(&s->arena);
        emit_cuda(p, e, &kernels);
        add_output(s, out, path, text_get(&kernels), kernels.length);
        return true;
    }
    Blob *blobs = ARENA_ARRAY(&s->arena, p->kernels.n + 1, Blob);
    for (int i = 0; i < p->kernels.n; i++) {
        Text shader = text_new(&s->arena);
        emit_glsl(p, e, i, &shader);
        blobs[i] = (Blob){.data = text_get(&shader), .bytes = shader.length};
    }
    add_per_kernel(s, p, path, blobs, out);
    return true;
}

/* The side file, and its digest for the texts. */
static bool add_weights(Session *s, const Program *p, EmitOptions *e, Outputs *out) {
    unsigned char head[WEIGHTS_HEAD] = {0};
    OutputFile file = {.path = s->o->weights, .from = output_begin(s, s->o->weights)};
    if (!file.from) return false;
    WeightsFile *w = ARENA_NEW(&s->arena, WeightsFile);
    *w = (WeightsFile){.s = s, .digest = FNV_SEED};
    w->to = writer_open(s, file.from, file.path);
    writer_add(&w->to, head, sizeof head);
    weights_write(p, write_weights, w);
    weights_mark(w->digest, head);
    writer_begin(&w->to, head, sizeof head);
    e->weights_digest = &w->digest;
    vec_push(&s->arena, out, file);
    return writer_close(&w->to, true);
}

bool write_program(Session *s, Program *p, const char *path) {
    const FormRow *row = find_form(s->target, strrchr(path, '.'));
    EmitOptions e = {.prefix = prefix_of(s, path), .weights_file = s->o->weights};
    e.image_decoder = embedded_text("runtime/image_decoder.h");
    if (s->target->vector_types) {
        e.vector_bytes = s->target->vector_bytes;
        e.whole_vectors = s->target->whole_vectors;
        e.pairs_rows = s->target->vector_bytes == 64 && !e.whole_vectors && !s->target->half_units;
    }
    if (s->o->march && (s->target->vector_types || s->target->scalar_registers))
        e.march = march_flag(s, s->o->march);
    e.scalars = s->target->scalar_registers > 0;
    const char *slash = strrchr(s->o->model, '/');
    e.model_name = slash ? slash + 1 : s->o->model;
    e.digest =
        arena_printf(&s->arena, "%016llx",
                     (unsigned long long)fnv1a(s->model.file.data, s->model.file.size, FNV_SEED));
    Outputs out = {0};
    if (s->o->variant) {
        e.prefix = arena_printf(&s->arena, "model%d", s->o->variant->number);
        return add_binary(s, p, &e, FORM_object, path, &out) && write_outputs(s, out.n, out.items);
    }
    Outputs weights = {0};
    if (s->o->weights && !add_weights(s, p, &e, &weights)) return false;
    if (row->form == FORM_source) {
        if (!add_sources(s, p, &e, path, &out)) return false;
    } else if (row->form == FORM_spirv) {
        Blob *blobs = compile_shaders(s, p, &e);
        if (!blobs) return false;
        add_per_kernel(s, p, path, blobs, &out);
    } else if (!add_binary(s, p, &e, row->form, path, &out)) {
        return false;
    }
    if (weights.n) vec_push(&s->arena, &out, weights.items[0]);
    return write_outputs(s, out.n, out.items);
}

bool write_variant(Session *s, Program *p) {
    return write_program(s, p, s->o->variant->object);
}

bool write_library_of(Session *s, const char *folder, const char *choice, int n,
                      const char *const *object) {
    static const char exports[] = "{ global: mlcc_model_v1; local: *; };\n";
    Units units = {.n_objects = n,
                   .objects = object,
                   .libraries = "-Wl,--version-script=exports -lpthread -lm",
                   .decoder = {"", ""}};
    Outputs out = {0};
    add_unit(s, &units, "choice.c", "-std=gnu11");
    add_runtime(s, &units, "team.c");
    add_runtime(s, &units, "resident.c");
    return (!s->o->image_decoder || find_decoder(s, folder, &units.decoder)) &&
           write_embedded(s, folder) &&
           write_file(s, arena_printf(&s->arena, "%s/choice.c", folder), choice, strlen(choice)) &&
           write_file(s, arena_printf(&s->arena, "%s/exports", folder), exports,
                      sizeof exports - 1) &&
           build_units(s, folder, &units, FORM_library, s->o->output, &out) &&
           write_outputs(s, out.n, out.items);
}
