/* What -march= means for a target of C. The usual names are a table of ir/target.c; for all others
 * the C compiler is asked which macros it defines: it knows hundreds of names, and those of
 * tomorrow. */
#include "compiler/driver.h"

#include <string.h>

/* What a macro says, the best first. */
typedef struct MacroRow {
    const char *macro;
    int vector_bytes, vector_registers;
} MacroRow;

static const MacroRow macros[] = {
    {"__AVX512F__", 64, 32}, {"__AVX2__", 32, 16}, {"__SSE2__", 16, 16},
    {"__aarch64__", 16, 32}, {"__VSX__", 16, 32},
};

/* Does the list of "#define NAME VALUE" define it? */
static bool defines(const char *list, const char *macro) {
    size_t length = strlen(macro);
    for (const char *at = list; (at = strstr(at, macro)); at += length)
        if (at > list && at[-1] == ' ' && at[length] == ' ') return true;
    return false;
}

bool target_of_march(Session *s, Target *result) {
    const char *march = s->o->march;
    *result = target_for_arch(s->target, march);
    bool asks = march && s->target->vector_bytes && !result->vector_types &&
                !result->scalar_registers && strcmp(march, "generic") != 0;
    if (!asks) return true;
    const char *list = ask_c_compiler(s, "-dM -E -x c /dev/null");
    if (!list) return false;
    for (size_t i = 0; i < sizeof macros / sizeof *macros; i++) {
        if (!defines(list, macros[i].macro)) continue;
        result->vector_bytes = macros[i].vector_bytes;
        result->vector_registers = macros[i].vector_registers;
        result->vector_types = true;
        break;
    }
    result->signed_rows = defines(list, "__aarch64__");
    result->byte_dots = defines(list, "__AVX512VNNI__") || defines(list, "__AVXVNNI__") ||
                        (result->signed_rows && defines(list, "__ARM_FEATURE_DOTPROD"));
    result->byte_pairs = defines(list, "__SSSE3__") && !result->byte_dots;
    result->byte_products = defines(list, "__SSE2__") || result->signed_rows;
    result->word_products = defines(list, "__SSE2__");
    result->bf16_products = defines(list, "__AVX512BF16__");
    result->half_vectors = defines(list, "__F16C__");
    result->whole_vectors = defines(list, "__AVX512F__") && !strstr(list, " __znver");
    result->matrix_tiles = (defines(list, "__AMX_INT8__") && defines(list, "__AMX_BF16__")) ||
                           (defines(list, "__AMXINT8__") && defines(list, "__AMXBF16__"));
    return true;
}
