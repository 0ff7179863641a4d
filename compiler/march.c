/* What -march= means for a target of C, and whether this machine runs what is compiled so. The
 * usual names are a table of ir/target.c; for all others the C compiler is asked which macros it
 * defines: it knows hundreds of names, and those of tomorrow. */
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

/* The facts of a core of microcontrollers, of which no vectors are used; false: it is none. */
static bool read_core(const char *list, Target *t) {
    if (defines(list, "__riscv") && !defines(list, "__riscv_vector")) {
        const bool few = defines(list, "__riscv_e") || defines(list, "__riscv_32e");
        target_set_core(t, few ? RISCV_E : RISCV_I, false, defines(list, "__riscv_flen"));
        return true;
    }
    if (!strstr(list, " __ARM_ARCH_PROFILE 77") && !strstr(list, " __ARM_ARCH_PROFILE 'M'"))
        return false;
    target_set_core(t, strstr(list, " __ARM_ARCH_ISA_THUMB 1") ? THUMB_1 : THUMB_2,
                    defines(list, "__ARM_FEATURE_DSP"), defines(list, "__ARM_FP"));
    return true;
}

/* Do the tables of ir/target.c have it? */
static bool in_tables(const Target *t, const char *march) {
    Target of = target_for_arch(t, march);
    return of.vector_types || of.scalar_registers;
}

/* The macros of our -march. NULL after a diagnostic. */
static const char *known_macros(Session *s) {
    const char *march = s->o->march, *cc = s->o->cc ? s->o->cc : "cc";
    const char *list = c_macros(s, march);
    if (list || s->diag.n_errors) return list;
    Text names = text_new(&s->arena);
    for (int i = 0; target_arch(i); i++) text_addf(&names, " %s", target_arch(i));
    if (in_tables(s->target, march))
        diag_error(&s->diag, E0001,
                   "-march=%s: the C compiler '%s' does not know it; name one that does with --cc",
                   march, cc);
    else
        diag_error(&s->diag, E0001,
                   "-march=%s: neither the C compiler '%s' knows it nor mlcc, which knows generic "
                   "native%s",
                   march, cc, text_get(&names));
    return NULL;
}

bool target_of_march(Session *s, Target *result) {
    const char *march = s->o->march;
    *result = target_for_arch(s->target, march);
    bool asks = march ? strcmp(march, "generic") != 0 && !in_tables(s->target, march) : !s->source;
    if (!asks || !s->target->vector_bytes) return true;
    const char *list = march ? known_macros(s) : c_macros(s, NULL);
    if (!list) return !march && !s->diag.n_errors; /* it does not tell */
    if (!defines(list, "__GNUC__") || read_core(list, result)) return true;
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
    result->unfused_products = result->word_products && !defines(list, "__FMA__");
    result->bf16_products = defines(list, "__AVX512BF16__");
    result->half_vectors = defines(list, "__F16C__");
    result->whole_vectors = defines(list, "__AVX512F__") && !strstr(list, " __znver");
    result->half_units = defines(list, "__znver4__");
    result->matrix_tiles = (defines(list, "__AMX_INT8__") && defines(list, "__AMX_BF16__")) ||
                           (defines(list, "__AMXINT8__") && defines(list, "__AMXBF16__"));
    return true;
}

/* The C compiler's option is one for code of target c, if there is one. */
static bool passes_march(const Session *s) {
    return s->o->march && !strcmp(s->target->name, "c") && strcmp(s->o->march, "generic") != 0;
}

bool march_known(Session *s) {
    return !passes_march(s) || known_macros(s);
}

/* Of the instructions that macros of this kind of processor tell of, those that compilers make use
 * of by themselves. (For the matrix unit a run asks.) */
#if defined(__x86_64__)
#define KIND  "__x86_64__"
#define MACRO "__%s__"
#define INSTRUCTIONS                                                                               \
    "SSE3 SSSE3 SSE4_1 SSE4_2 POPCNT AVX AVX2 FMA FMA4 XOP F16C BMI BMI2 LZCNT MOVBE AVX512F "     \
    "AVX512CD AVX512BW AVX512DQ AVX512VL AVX512IFMA AVX512VBMI AVX512VBMI2 AVX512VNNI "            \
    "AVX512BITALG AVX512VPOPCNTDQ AVX512BF16 AVX512FP16 AVXVNNI AVXVNNIINT8 GFNI"
#elif defined(__aarch64__)
#define KIND  "__aarch64__"
#define MACRO "__ARM_FEATURE_%s"
#define INSTRUCTIONS                                                                               \
    "ATOMICS DOTPROD FP16_VECTOR_ARITHMETIC BF16_VECTOR_ARITHMETIC MATMUL_INT8 SVE SVE2"
#else /* of which nothing is known: a macro of all compilers */
#define KIND         "__STDC__"
#define MACRO        "%s"
#define INSTRUCTIONS ""
#endif

/* Those that are in `wanted`, but not in `own`, with commas between them. */
static const char *lacking(Session *s, const char *wanted, const char *own) {
    Text t = text_new(&s->arena);
    char *rest = arena_strdup(&s->arena, INSTRUCTIONS);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        const char *macro = arena_printf(&s->arena, MACRO, word);
        if (defines(wanted, macro) && !defines(own, macro))
            text_addf(&t, "%s%s", t.length ? ", " : "", word);
    }
    return text_get(&t);
}

bool march_runs(Session *s) {
    if (!passes_march(s) || !strcmp(s->o->march, "native")) return true;
    const char *march = s->o->march;
    if (lists_architectures(s->o)) {
        diag_error(&s->diag, E0001, "-march=%s: several architectures go into a .so only", march);
        return false;
    }
    const char *wanted = known_macros(s), *own = wanted ? c_macros(s, "native") : NULL;
    if (!wanted) return false;
    const char *lacks = own ? lacking(s, wanted, own) : "";
    if (!defines(wanted, KIND))
        diag_error(&s->diag, E0010,
                   "-march=%s is for another kind of processor than this machine's", march);
    else if (*lacks)
        diag_error(&s->diag, E0010, "-march=%s: this machine's processor lacks %s", march, lacks);
    return s->diag.n_errors == 0;
}
