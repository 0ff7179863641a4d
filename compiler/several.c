/* -march=A,B,...: a library with code for several architectures, one of which is taken when it is
 * loaded.
 *
 * Each is compiled in a session of its own, for schedules and layouts differ, to an object whose
 * descriptor has a name of its own; `mlcc_model_v1` of the library asks the processor.
 */
#include "codegen/codegen.h"
#include "compiler/driver.h"

#include <string.h>

#define MOST_VARIANTS 8

bool lists_architectures(const Options *o) {
    return o->march && strchr(o->march, ',');
}

/* Compiles one of them. */
static int compile_variant(Session *s) {
    s->target = target_find("c");
    Program *p = session_program(s);
    if (p) write_variant(s, p);
    *s->o->variant->tiles = s->target->matrix_tiles;
    return 0;
}

/* What the processor is asked for an architecture of x86: a level of its ABI, or its very name. */
static const char *question(Session *s, const char *arch, bool tiles) {
    bool level = !strncmp(arch, "x86-64", 6);
    return arena_printf(&s->arena, "__builtin_cpu_%s(\"%s\")%s", level ? "supports" : "is", arch,
                        tiles ? " && mlcc_may_tile()" : "");
}

/* The source of mlcc_model_v1: the last one that fits; the first fits always. */
static const char *print_choice(Session *s, int n, const char *const *arch, const bool *tiles) {
    Text t = text_new(&s->arena);
    bool any = false;
    for (int i = 1; i < n; i++) any |= tiles[i];
    text_add(&t, "#include \"mlcc/model.h\"\n\n");
    if (any) text_add(&t, may_tile_text);
    for (int i = 0; i < n; i++) text_addf(&t, "const mlcc_model *mlcc_model_v1_%d(void);\n", i);
    text_add(&t,
             "__attribute__((visibility(\"default\"))) const mlcc_model *mlcc_model_v1(void) {\n"
             "    __builtin_cpu_init();\n");
    for (int i = n - 1; i > 0; i--)
        text_addf(&t, "    if (%s) return mlcc_model_v1_%d();\n", question(s, arch[i], tiles[i]),
                  i);
    text_add(&t, "    return mlcc_model_v1_0();\n}\n");
    return text_get(&t);
}

int compile_several(Session *s) {
    const char *arch[MOST_VARIANTS], *object[MOST_VARIANTS];
    bool tiles[MOST_VARIANTS] = {false};
    int n = 0;
    char *rest = arena_strdup(&s->arena, s->o->march);
    for (char *word; (word = strtok_r(rest, ",", &rest)); arch[n++] = word)
        if (n == MOST_VARIANTS) {
            diag_error(&s->diag, E0001, "-march: more than %d architectures", MOST_VARIANTS);
            return 0;
        }
    if (s->o->weights) {
        diag_error(&s->diag, E0001, "--weights holds those of one architecture; -march=%s has %d",
                   s->o->march, n);
        return 0;
    }
    const char *folder = temp_folder(s);
    if (!folder) return 0;
    int status = 0;
    for (int i = 0; i < n && status == 0; i++) {
        object[i] = arena_printf(&s->arena, "%s/variant%d.o", folder, i);
        Variant variant = {i, object[i], &tiles[i]};
        Options o = *s->o;
        o.march = arch[i];
        o.variant = &variant;
        status = with_session(&o, compile_variant);
    }
    if (status == 0) {
        Options o = *s->o;
        o.march = NULL;
        const Options *own = s->o;
        s->o = &o;
        write_library_of(s, folder, print_choice(s, n, arch, tiles), n, object);
        s->o = own;
    }
    temp_remove(folder);
    return status;
}
